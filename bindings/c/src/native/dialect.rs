//! What a database calls the steps of two-phase commit, and what its answers mean.
//!
//! May use: `native` types. Must not know: connections.

use std::ffi::c_int;

use tm::Xid;

use super::{Failure, Reply, Standing};

/// A statement about a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Start,
    End,
    Prepare,
    CommitOnePhase,
    CommitPrepared,
    RollbackActive,
    RollbackPrepared,
    /// Rolls back what is open in the session, whatever it is.
    Clear,
}

impl Step {
    /// Whether nothing of the branch is left in the session behind it.
    pub(crate) fn is_last(self) -> bool {
        !matches!(self, Self::Start | Self::End | Self::Prepare)
    }

    /// What is done, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Start => "beginning",
            Self::End => "ending",
            Self::Prepare => "preparing",
            Self::CommitOnePhase => "committing",
            Self::CommitPrepared => "committing what is prepared",
            Self::RollbackActive | Self::Clear => "rolling back",
            Self::RollbackPrepared => "rolling back what is prepared",
        }
    }
}

pub(crate) trait Dialect {
    /// The statement of a step; `None` where the database has none, and the step is done without.
    fn statement(step: Step, xid: &Xid) -> Option<String>;

    /// The same statement that ends a branch, in the session that began it.
    fn in_its_session(statement: String, _xid: &Xid) -> String {
        statement
    }

    /// The XA code of an answer.
    fn judge(step: Step, answer: &Result<Reply, Failure>) -> c_int;

    /// Whether an answer says that what is open in the session is not the branch: the program ended that itself.
    fn is_missed(answer: &Result<Reply, Failure>) -> bool;

    /// The XA code of ending a branch whose session stands so.
    fn judge_end(standing: Standing) -> c_int;

    /// What tells whether a branch that ended changed anything; `None` where nothing does.
    const ASK: Option<&'static str>;

    /// Whether such an answer says that it did not.
    fn changed_nothing(reply: &Reply) -> bool;

    /// Whether a session that prepared a branch begins no other until that one is decided.
    const BINDS_PREPARED: bool;

    /// The statement that lists what is prepared.
    const LIST: &'static str;

    /// The branches in such a list; those that nobody of ours made are left out.
    fn listed(reply: &Reply) -> Vec<Xid>;
}
