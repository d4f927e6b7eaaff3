//! Once everybody is up and recovery had its time, nothing of ours is left at a resource manager: nothing prepared,
//! whether its program lives or not, and nothing that it remembers of having decided by itself.
//!
//! May use: the resource managers. Must not know: how it came about.

use crate::distributed::world::World;
use crate::run::{Check, violation};

pub(crate) fn check(world: &World) -> Check<()> {
    for (number, manager) in world.managers.iter().enumerate() {
        if let Some(name) = manager.open().next() {
            let branch = xa::Xid::of_parts(name.0, &name.1, &name.2);
            let parts = branch.as_ref().and_then(|xid| world.said.parts.get(&xid.transaction));
            let text = format!("manager {number} holds {branch:?} for ever; what was said: {parts:?}");
            return Err(violation("in doubt", text));
        }
    }
    Ok(())
}
