//! Nobody touches a branch that is another coordinator's, or that no coordinator of ours made.
//!
//! May use: the resource managers. Must not know: how it came about.

use crate::distributed::world::World;
use crate::run::{Check, violation};

pub(crate) fn check(world: &World) -> Check<()> {
    let mut foreign = world.managers.iter().flat_map(|manager| manager.foreign.iter().map(move |name| (manager, name)));
    match foreign.find(|(manager, name)| !manager.is_prepared(name)) {
        Some((_, name)) => Err(violation("foreign", format!("{name:?} was somebody else's, and is gone"))),
        None => Ok(()),
    }
}
