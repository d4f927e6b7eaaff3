//! Sweeping: lets go of decisions that nobody needs, though nobody said so.
//!
//! A program that is killed after it told its branches and before it told the coordinator leaves a decision behind. Nothing is
//! in doubt because of it, and nobody ever asks again. Whether a branch knows is asked of its resource manager, by the
//! branch's name: so this is right only where all programs mean the same resource manager by the same name.
//!
//! May use: `administration`, `decisions`, `branch`. Must not know: when it is time, who asks.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xa::{BranchName, CoordinatorId, TransactionId, Xid};

use crate::administration::{Administration, Status};
use crate::branch::ResourceManager;
use crate::decisions::{Decisions, Result};
use crate::last_resource::Kept;
use crate::{Learned, State};

/// Decisions that one statement removes.
const LET_GO_MAX: usize = 500;

fn is_known(managers: &[Arc<dyn ResourceManager>], branch: &BranchName) -> bool {
    managers.iter().any(|manager| manager.name() == branch)
}

/// Forgets decisions to commit that are older than `age`, whose branches are all of `managers`, and of which none is prepared
/// there any more: the coordinator's, and those of last resources. Returns how many; of those that a resource manager that does
/// not answer, or has what cannot be read, may have prepared, none. Blocks while the coordinator is asked.
///
/// # Errors
/// `Unavailable` when the coordinator cannot be asked.
pub async fn sweep<C: Decisions + Administration + ?Sized>(
    coordinator: &C,
    managers: &[Arc<dyn ResourceManager>],
    age: Duration,
) -> Result<usize> {
    let of_coordinator = sweep_coordinator(coordinator, managers, age).await?;
    Ok(of_coordinator + sweep_last(coordinator.coordinator(), managers, age).await)
}

async fn sweep_coordinator<C: Decisions + Administration + ?Sized>(
    coordinator: &C,
    managers: &[Arc<dyn ResourceManager>],
    age: Duration,
) -> Result<usize> {
    let mut settled: Vec<Status> = Vec::new();
    let mut cursor = Some("0".to_owned());
    while let Some(from) = cursor {
        let page = coordinator.list(&from)?;
        let is_old = |status: &Status| status.decided.is_some_and(|at| since(at).is_some_and(|since| since >= age));
        settled
            .extend(page.transactions.into_iter().filter(|status| status.state == State::Committed && is_old(status)));
        cursor = page.next;
    }
    if settled.is_empty() {
        return Ok(0);
    }
    // Asked for after the decisions, whose branches were all prepared then: what is not listed has learned its outcome.
    for manager in managers {
        let Some(listed) = all_of(&**manager).await else { return Ok(0) };
        settled.retain(|status| !listed.iter().any(|xid| xid.transaction == status.id));
    }
    let mut count = 0;
    for status in &settled {
        let open: Vec<Learned> = status
            .branches
            .iter()
            .filter(|branch| branch.state == "open")
            .map(|branch| Learned { branch: branch.branch.clone(), heuristic: None })
            .collect();
        if !open.is_empty() && open.iter().all(|done| is_known(managers, &done.branch)) {
            coordinator.done(status.id, &open);
            count += 1;
        }
    }
    Ok(count)
}

/// The same for what last resources among `managers` keep.
async fn sweep_last(coordinator: CoordinatorId, managers: &[Arc<dyn ResourceManager>], age: Duration) -> usize {
    let mut count = 0;
    for keeper in managers {
        let is_ours = |kept: &Kept| {
            kept.id.coordinator == coordinator && kept.branches.iter().all(|branch| is_known(managers, branch))
        };
        let Ok(mut kept) = keeper.kept(age, &is_ours).await else { continue };
        if kept.is_empty() {
            continue;
        }
        // As above: asked for after the decisions.
        for manager in managers {
            let Some(listed) = all_of(&**manager).await else { return count };
            kept.retain(|kept| !listed.iter().any(|xid| xid.transaction == kept.id));
        }
        let ids: Vec<TransactionId> = kept.into_iter().map(|kept| kept.id).collect();
        for ids in ids.chunks(LET_GO_MAX) {
            if keeper.let_go(ids).await.is_ok() {
                count += ids.len();
            }
        }
    }
    count
}

/// Everything that is prepared there; `None` when that is not known, because one of them cannot be read or the list not be had.
async fn all_of(manager: &dyn ResourceManager) -> Option<Vec<Xid>> {
    let listed = manager.in_doubt().await.ok()?;
    listed.unreadable.is_empty().then_some(listed.branches)
}

/// The time since a moment after 1970; `None` when that is yet to come.
fn since(moment: Duration) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.checked_sub(moment)
}
