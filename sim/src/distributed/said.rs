//! What was begun, what somebody was told of it, and what the coordinator answered.
//!
//! May use: `xa`. Must not know: who was told, what breaks when.

use std::collections::{BTreeMap, BTreeSet};

use holdfast::TransactionId;
use xa::{TwoPhaseOutcome, Xid};

/// One program's part of a transaction.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) has_local: bool,
    /// Resource managers, and the branches there.
    pub(crate) branches: Vec<(usize, Xid)>,
    /// What the program was told; `None` if it was killed before.
    pub(crate) told: Option<TwoPhaseOutcome>,
}

/// Who may decide about a shared transaction that was suspended, as the coordinator's answers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Nobody,
    /// The run of a program.
    By(u64),
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) parts: BTreeMap<TransactionId, Vec<Part>>,
    /// Transactions of which the coordinator said that they are committed.
    pub(crate) committed: BTreeSet<TransactionId>,
    /// Those of which it said that they never will be.
    pub(crate) aborted: BTreeSet<TransactionId>,
    /// Branches that were added when their transaction had been committed without them.
    pub(crate) late: BTreeSet<Xid>,
    /// Who may decide about shared transactions that were suspended since the server was started.
    pub(crate) held: BTreeMap<TransactionId, Held>,
    /// Transactions of which some branch was said to have failed.
    pub(crate) failed: BTreeSet<TransactionId>,
    /// Branches of which somebody was told that their resource manager decided by itself.
    pub(crate) reported: BTreeSet<Xid>,
}

impl Said {
    /// A program begins a transaction, or joins one, and which part that is.
    pub(crate) fn begun(&mut self, id: TransactionId, part: Part) -> usize {
        let parts = self.parts.entry(id).or_default();
        parts.push(part);
        parts.len() - 1
    }

    /// Its branches have other names than was said.
    pub(crate) fn renamed(&mut self, id: TransactionId, part: usize, branches: Vec<(usize, Xid)>) {
        if let Some(part) = self.parts.get_mut(&id).and_then(|parts| parts.get_mut(part)) {
            part.branches = branches;
        }
    }

    pub(crate) fn told(&mut self, id: TransactionId, part: usize, outcome: TwoPhaseOutcome) {
        if let Some(part) = self.parts.get_mut(&id).and_then(|parts| parts.get_mut(part)) {
            part.told = Some(outcome);
        }
    }
}
