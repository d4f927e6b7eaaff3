//! Changes of the coordinator's own store that commit in the batch of its decision.
//!
//! May use: `decisions`, `embedded`. Must not know: resource managers, async.

use holdfast::{Durability, Store};
use xa::{BranchName, TransactionId};

use crate::decisions::{Error, ErrorKind, Result};
use crate::embedded::of_store;

/// A decision to commit, whose branches are all prepared.
#[derive(Debug, Clone, Copy)]
pub struct OwnDecision<'a> {
    /// The transaction.
    pub id: TransactionId,
    /// Its branches. Without any there is nobody who would ask for the decision, and it is not written.
    pub prepared: &'a [BranchName],
    /// How durable batch and decision are when the call returns.
    pub durability: Durability,
}

/// Commits changes of the coordinator's own store, and the decision with them, in one batch. Blocks until it is as durable as
/// asked; after a crash either both are there or neither.
///
/// # Errors
/// Nothing happened but after `Unknown`: `Aborted` when the transaction will never be committed, its changes took too long or the
/// disk is full, `Invalid` when somebody else changed what they rest on, or they are too many or cannot be written.
pub fn commit_with_decision(
    store: &Store,
    mut changes: holdfast::Transaction,
    decision: OwnDecision<'_>,
) -> Result<()> {
    if !decision.prepared.is_empty() {
        changes.decide(decision.id, decision.prepared);
    }
    let committed = changes.commit_with_room(decision.durability).map_err(|error| {
        use holdfast::ErrorKind as Kind;
        let kind = match error.kind() {
            // The batch may be in the journal.
            Kind::Corrupt | Kind::Unknown | Kind::Internal => ErrorKind::Unknown,
            Kind::Limit | Kind::Invalid | Kind::Conflict => ErrorKind::Invalid,
            _ => ErrorKind::Aborted,
        };
        Error { kind, text: error.to_string() }
    })?;
    store.wait(committed.position, decision.durability).map_err(of_batch)
}

/// Why a batch with a decision failed, which may be on its way to the disk.
pub(crate) fn of_batch(error: holdfast::Error) -> Error {
    match of_store(error) {
        // The batch may be on its way to the disk.
        Error { kind: ErrorKind::Unavailable, text } => Error { kind: ErrorKind::Unknown, text },
        error => error,
    }
}
