//! What a resource manager decided by itself is told to somebody: the program, who recovers, or whoever looks at the
//! coordinator's list. Only of a transaction that was rolled back, and whose program was killed before it was told, nobody
//! keeps a record: then there is none of the transaction either.
//!
//! May use: what was said, the resource managers. Must not know: how it came about.

use crate::distributed::manager::Fate;
use crate::distributed::world::World;
use crate::run::{Check, violation};

pub(crate) fn check(world: &World) -> Check<()> {
    for (id, parts) in &world.said.parts {
        for part in parts {
            let is_lost = part.told.is_none() && !world.said.committed.contains(id);
            for (manager, xid) in &part.branches {
                let fate = world.fate(*manager, xid);
                let is_reported = is_lost || world.said.reported.contains(xid);
                if matches!(fate, Some(Fate::Heuristic(_))) && !is_reported {
                    return Err(violation("reported", format!("nobody was told of {xid}: {fate:?}")));
                }
            }
        }
    }
    Ok(())
}
