//! What must hold of distributed transactions, one check to a file.
//!
//! May use: the world. Must not know: how runs are driven.

pub(crate) mod alike;
pub(crate) mod foreign;
pub(crate) mod holder;
pub(crate) mod in_doubt;
pub(crate) mod late;
pub(crate) mod reported;
pub(crate) mod told;

use crate::distributed::world::World;
use crate::run::Check;

/// Everything that must hold when a run is over.
pub(crate) fn all(world: &World) -> Check<()> {
    [alike::check, told::check, in_doubt::check, foreign::check, reported::check]
        .into_iter()
        .try_for_each(|check| check(world))
}
