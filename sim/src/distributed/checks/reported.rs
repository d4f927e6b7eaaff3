//! What a resource manager did by itself against what was decided is told to somebody: the program, who recovers, or whoever
//! looks at the coordinator's list. Of one that rolled back what was rolled back there is nothing to tell.
//!
//! May use: what was said, the resource managers. Must not know: how it came about.

use xa::Heuristic;

use crate::distributed::manager::Fate;
use crate::distributed::world::World;
use crate::run::{Check, violation};

pub(crate) fn check(world: &World) -> Check<()> {
    for (id, parts) in &world.said.parts {
        for part in parts {
            let is_committed = world.said.committed.contains(id);
            for (manager, xid) in &part.branches {
                let fate = world.fate(*manager, xid);
                let is_against = match fate {
                    Some(Fate::Heuristic(Heuristic::Rollback)) => is_committed,
                    Some(Fate::Heuristic(_)) => true,
                    _ => false,
                };
                if is_against && !world.said.reported.contains(xid) {
                    return Err(violation("reported", format!("nobody was told of {xid}: {fate:?}")));
                }
            }
        }
    }
    Ok(())
}
