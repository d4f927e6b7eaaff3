//! All branches of a transaction, and what it changed in the coordinator's store, end the same way, but for those about
//! which a resource manager decided by itself. What came to it when it had been committed without them is never committed.
//!
//! May use: what was said, what became of branches. Must not know: how it came about.

use crate::distributed::manager::Fate;
use crate::distributed::world::World;
use crate::run::{Check, violation};

pub(crate) fn check(world: &World) -> Check<()> {
    for (id, parts) in &world.said.parts {
        let branches = parts.iter().flat_map(|part| &part.branches);
        let fates = branches.map(|(manager, xid)| (xid, world.fate(*manager, xid)));
        let (late, fates): (Vec<_>, Vec<_>) = fates.partition(|(xid, _)| world.said.late.contains(xid));
        if late.iter().any(|(_, found)| *found == Some(Fate::Committed)) {
            return Err(violation("alike", format!("{id} had been committed without them: {late:?}")));
        }
        let has = |fate: Fate| fates.iter().any(|(_, found)| *found == Some(fate));
        let is_mixed = has(Fate::Committed) && has(Fate::RolledBack);
        let local = parts.iter().any(|part| part.has_local).then(|| world.has_local(*id));
        let is_half = match local {
            Some(true) => has(Fate::RolledBack),
            Some(false) => has(Fate::Committed),
            None => false,
        };
        if is_mixed || is_half {
            return Err(violation("alike", format!("{id}: {fates:?}, in the store: {local:?}")));
        }
    }
    Ok(())
}
