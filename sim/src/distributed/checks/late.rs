//! What the coordinator presumed to be rolled back it refuses to commit later. What it said to be committed it may call
//! rolled back once all branches knew and all is forgotten, for then that touches nothing but what came to it too late.
//!
//! May use: what was said, the resource managers. Must not know: who was told.

use holdfast::TransactionId;
use xa::{TwoPhaseDecision, Xid};

use crate::distributed::world::World;
use crate::run::{Check, violation};

/// What the coordinator said before, and says `now`.
pub(crate) fn check(world: &World, id: TransactionId, now: TwoPhaseDecision) -> Check<()> {
    let is_late = now == TwoPhaseDecision::Committed && world.said.aborted.contains(&id);
    if is_late && !world.said.committed.contains(&id) {
        return Err(violation("late", format!("{id} is committed after it was said to be rolled back")));
    }
    let branches = || world.said.parts.get(&id).into_iter().flatten().flat_map(|part| &part.branches);
    let is_part = |xid: &Xid| !world.said.late.contains(xid);
    let is_prepared = || branches().any(|(manager, xid)| is_part(xid) && world.is_prepared(*manager, xid));
    if now == TwoPhaseDecision::Aborted && world.said.committed.contains(&id) && is_prepared() {
        return Err(violation("late", format!("{id} is rolled back after it was said to be committed")));
    }
    Ok(())
}
