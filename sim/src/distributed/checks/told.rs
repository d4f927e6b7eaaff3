//! What a program was told is what happened to its branches, unless it was told that nobody knows.
//!
//! May use: what was said, what became of branches. Must not know: how it came about.

use xa::TwoPhaseOutcome;

use crate::distributed::manager::Fate;
use crate::distributed::world::World;
use crate::run::{Check, violation};

pub(crate) fn check(world: &World) -> Check<()> {
    for (id, parts) in &world.said.parts {
        for part in parts {
            let fates: Vec<_> = part.branches.iter().map(|(manager, xid)| world.fate(*manager, xid)).collect();
            let is_heuristic = fates.iter().any(|fate| matches!(fate, Some(Fate::Heuristic(_))));
            let local = part.has_local.then(|| world.has_local(*id));
            let holds = match part.told {
                None | Some(TwoPhaseOutcome::Unknown) => true,
                // What was never there cannot have been prepared.
                Some(TwoPhaseOutcome::Committed) => {
                    fates.iter().all(|fate| !matches!(fate, None | Some(Fate::RolledBack))) && local != Some(false)
                }
                Some(TwoPhaseOutcome::RolledBack) => !fates.contains(&Some(Fate::Committed)) && local != Some(true),
                Some(TwoPhaseOutcome::Mixed) => is_heuristic,
                // The only branch, whose resource manager broke down while it was committed.
                Some(TwoPhaseOutcome::Hazard) => is_heuristic || part.branches.len() == 1,
            };
            if !holds {
                let text = format!("{id} was said to be {:?}: {fates:?}, in the store: {local:?}", part.told);
                return Err(violation("told", text));
            }
        }
    }
    Ok(())
}
