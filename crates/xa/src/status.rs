//! What is remembered of transactions, for people.
//!
//! May use: `table`. Must not know: how it is shown.

use std::ops::Bound;

use crate::answer::{Needs, Plan};
use crate::hold::Holding;
use crate::id::{BranchName, TransactionId};
use crate::record::{BranchState, Deed};
use crate::table::{Entry, Table, Vote};

/// What is remembered of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The transaction.
    pub id: TransactionId,
    /// Where it stands.
    pub state: State,
    /// When it was settled, in milliseconds since 1970; `None` when it is not, or that is forgotten.
    pub at_ms: Option<u64>,
    /// Its branches, as far as they are known.
    pub branches: Vec<(BranchName, BranchStatus)>,
    /// The name its owner gave itself, while that lives.
    pub owner_name: Option<String>,
}

/// Where a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Decided to be committed, and some may not know yet.
    Committed,
    /// Never to be committed.
    Aborted,
    /// Never to be committed by the coordinator: what its last resource has decided counts.
    LastResource,
    /// Shared, and under way.
    Active,
    /// Shared, and suspended: to be resumed by whoever goes on with it.
    Suspended,
    /// Found prepared, and what was decided is lost by damage to the journal: an operator decides.
    Doubtful,
    /// Nothing is remembered: it is not decided, or over and forgotten.
    Unknown,
}

/// Where a branch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchStatus {
    /// Of a committed transaction; or what it did by itself, of one that never will be.
    Decided(BranchState),
    /// Enlisted, with its vote if it has voted.
    Enlisted(Option<Vote>),
}

impl Table {
    fn describe(&self, id: TransactionId, entry: Option<&Entry>) -> (Status, Needs) {
        let owner_name = self.owners.name(id.owner).map(str::to_owned);
        let mut status = Status { id, state: State::Unknown, at_ms: None, branches: Vec::new(), owner_name };
        let needs = match entry {
            Some(Entry::Decided(decided)) => {
                status.state = State::Committed;
                status.at_ms = Some(decided.decision.at_ms);
                let branches = decided.decision.branches.iter();
                status.branches = branches.map(|(name, state)| (name.clone(), BranchStatus::Decided(*state))).collect();
                Needs::asked(decided.mark)
            }
            Some(Entry::Aborted { abort, mark }) => {
                status.state = if id.last_resource.is_some() { State::LastResource } else { State::Aborted };
                status.at_ms = Some(abort.at_ms);
                let deed = |deed: &Deed| (deed.branch.clone(), BranchStatus::Decided(BranchState::Heuristic(deed.did)));
                status.branches = abort.deeds.iter().map(deed).collect();
                Needs::synced(*mark)
            }
            Some(Entry::Doubtful) => {
                status.state = State::Doubtful;
                Needs::default()
            }
            Some(Entry::Shared(shared)) => {
                let is_suspended = shared.holding == Holding::Nobody;
                status.state = if is_suspended { State::Suspended } else { State::Active };
                let parts = shared.parts.iter();
                status.branches = parts.map(|(name, part)| (name.clone(), BranchStatus::Enlisted(part.vote))).collect();
                Needs::default()
            }
            // If its owner has ended, nobody knows whether it had been committed before.
            None => Needs::default(),
        };
        (status, needs)
    }

    /// What is remembered of a transaction.
    pub fn status(&self, id: TransactionId) -> Plan<Status> {
        let (status, needs) = self.describe(id, self.entries.get(&id));
        Plan::nothing(status, needs)
    }

    /// What is remembered of all transactions behind `after`, in order of ids, `limit` at most; and whether there is more.
    pub fn list(&self, after: Option<TransactionId>, limit: usize) -> Plan<Listed> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut entries = self.entries.range((from, Bound::Unbounded));
        let (mut needs, mut statuses) = (Needs::default(), Vec::new());
        for (id, entry) in entries.by_ref().take(limit) {
            let (status, own) = self.describe(*id, Some(entry));
            needs = needs.and(own);
            statuses.push(status);
        }
        let next = statuses.last().map(|status| status.id).filter(|_| entries.next().is_some());
        Plan::nothing(Listed { statuses, next }, needs)
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// In order of ids.
    pub statuses: Vec<Status>,
    /// Behind which to go on; `None` at the end.
    pub next: Option<TransactionId>,
}
