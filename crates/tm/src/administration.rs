//! What people ask a coordinator about transactions, and do about them.
//!
//! May use: `decisions`, `xa`. Must not know: where the coordinator is, how answers are shown.

use std::time::Duration;

use xa::{BranchName, State, TransactionId};

use crate::decisions::Result;

/// What a coordinator knows of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The transaction.
    pub id: TransactionId,
    /// How far it is.
    pub state: State,
    /// When it was decided, since 1970; `None` when it is not decided or that is not known.
    pub decided: Option<Duration>,
    /// What its owner calls itself, while the coordinator takes that as alive; the text is the owner's own.
    pub owner_name: Option<String>,
    /// Its branches, as far as the coordinator knows them.
    pub branches: Vec<BranchStatus>,
}

/// A branch as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchStatus {
    /// The branch.
    pub branch: BranchName,
    /// `open`, `done`, or what its resource manager decided by itself.
    pub state: String,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What is remembered.
    pub transactions: Vec<Status>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<String>,
}

/// What may be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forget {
    /// What nobody needs any more.
    Settled,
    /// Also a decision that a branch in doubt may still need, and reports of what resource managers did by themselves.
    EvenInDoubt,
}

/// What an operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling<'a> {
    /// To commit, with these branches, all of which are prepared or committed.
    Commit(&'a [BranchName]),
    /// Never to commit.
    Rollback,
}

/// A coordinator's side for people. Calls block.
pub trait Administration: Send + Sync {
    /// What is known of a transaction.
    ///
    /// # Errors
    /// `Unavailable`.
    fn status(&self, id: TransactionId) -> Result<Status>;

    /// Everything that is remembered, from `cursor` on: `0` at first, then [`Page::next`].
    ///
    /// # Errors
    /// `Invalid` for a cursor that nobody gave out; `Unavailable`.
    fn list(&self, cursor: &str) -> Result<Page>;

    /// Forgets a transaction.
    ///
    /// # Errors
    /// `Invalid` when a branch may still be in doubt and [`Forget::EvenInDoubt`] was not said; `Unavailable`.
    fn forget(&self, id: TransactionId, forget: Forget) -> Result<()>;

    /// Decides about a transaction as an operator who has looked at its branches. Also about what is doubtful since the
    /// coordinator's journal was damaged, where programs are refused.
    ///
    /// # Errors
    /// `Aborted` when it is to be committed and never can be; `Invalid` when it is to be rolled back and is committed, and
    /// for whoever is no administrator; `Unknown`, `Unavailable`.
    fn settle(&self, id: TransactionId, settling: Settling<'_>) -> Result<()>;
}
