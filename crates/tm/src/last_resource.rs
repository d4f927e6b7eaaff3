//! A last resource: a resource manager that keeps the decision about a transaction itself, because it commits it with its own
//! branch.
//!
//! All other branches are prepared; then its branch is committed in one phase, and a row that says so with it. It needs neither
//! prepare, nor a decision of the coordinator: two writes to disks less. Who finds another branch prepared, and hears from
//! the coordinator that it will not commit the transaction any more, asks the last resource. What that has not committed by then
//! it must never commit: so it notes that first, where the row would stand.
//!
//! Known as "last agent" (Samaras and others, Two-Phase Commit Optimizations and Tradeoffs in the Commercial Environment,
//! 1993) and "logging last resource".
//!
//! May use: `branch`, `xa`. Must not know: any resource manager, coordinators.

use xa::{BranchName, LastResourceId, TransactionId};

use crate::branch::BoxFuture;

/// A place in a resource manager where decisions are kept.
pub trait LastResource: Send + Sync {
    /// Which it is.
    fn id(&self) -> LastResourceId;

    /// Whether each of these transactions is committed. What is not never will be: that is on stable storage before it is said.
    ///
    /// # Errors
    /// Why that cannot be learned: nobody may be told anything then.
    fn settle<'a>(&'a self, ids: &'a [TransactionId]) -> BoxFuture<'a, Result<Vec<bool>, String>>;

    /// All branches know that it is committed, and nobody will ask any more. Never waits.
    fn let_go(&self, id: TransactionId);
}

/// A decision that a last resource keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Of which transaction.
    pub id: TransactionId,
    /// The branches that may not know of it.
    pub branches: Vec<BranchName>,
}
