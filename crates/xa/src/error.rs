//! Why a table refuses a call.
//!
//! May use: `id`, `owners`. Must not know: what is remembered.

use crate::hold::SUSPENDED_MAX;
use crate::id::{BranchName, CoordinatorId, OwnerId, TransactionId};
use crate::owners::{LEASE_MAX, LEASE_MIN};
use crate::table::OWNER_NAME_BYTES_MAX;

/// Why a call makes no sense, or cannot be answered. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The transaction is of another coordinator.
    #[error("this transaction is of another coordinator, {:016x}", .0.0)]
    Foreign(CoordinatorId),
    /// No owner has that number.
    #[error("no owner was ever given the number {}", .0.0)]
    NoSuchOwner(OwnerId),
    /// A branch stands twice in one request.
    #[error("the branch {0} is named twice")]
    Twice(BranchName),
    /// Another program has a branch of this name.
    #[error("another program has a branch {0} in this transaction; the names of all its branches have to differ")]
    Taken(BranchName),
    /// A branch does not belong to the transaction.
    #[error("the transaction has no branch {0}")]
    NoSuchBranch(BranchName),
    /// Only shared transactions have branches of others.
    #[error("the transaction is not shared: its id says that one program has all its branches")]
    NotShared,
    /// A branch may be in doubt, or has decided by itself.
    #[error("the branch {0} may be in doubt or has decided by itself: forgetting it needs force")]
    NotDone(BranchName),
    /// All branches know, but the owner may not.
    #[error("its branches know, but its owner may not: it goes in an hour, and forgetting it now needs force")]
    Retained,
    /// Nobody decides about it before somebody resumes it.
    #[error("{0} is suspended: who is to commit it has to resume it first")]
    Suspended(TransactionId),
    /// Whoever works in it has not suspended it, or nothing is known of it.
    #[error("{0} is not suspended: the program that works in it has not let go of it yet, or it is over")]
    NotSuspended(TransactionId),
    /// Another program works in it now.
    #[error("another program has resumed {0}, and decides about it")]
    Resumed(TransactionId),
    /// It would stay, suspended, for years.
    #[error(
        "a transaction that is suspended has to end within {} days: begin it with a shorter timeout",
        SUSPENDED_MAX.as_secs() / 86_400
    )]
    TooLongSuspended,
    /// A lease is too short or too long.
    #[error("a lease has {} to {} milliseconds", LEASE_MIN.as_millis(), LEASE_MAX.as_millis())]
    LeaseLength,
    /// A name of an owner is too long.
    #[error("the name of an owner has {OWNER_NAME_BYTES_MAX} bytes at most")]
    OwnerName,
    /// What was decided may be lost, and no program is to decide anew.
    #[error(
        "what was decided about {0} may be lost, because the journal was damaged since it began; leave its branches as they \
         are and have an operator decide, with `holdfast xa commit` or `holdfast xa rollback`"
    )]
    Doubtful(TransactionId),
    /// Its last resource may decide without the coordinator: an operator cannot know that it is to be committed.
    #[error(
        "the last resource of {0} decides about it, and may refuse yet: `holdfast xa recover` with a profile that has it carries out \
         what that decided, once the program is gone or `holdfast xa rollback` has said that it is to be given up"
    )]
    LastResource(TransactionId),
    /// A bound is reached.
    #[error("the coordinator holds at most {max} {what}")]
    Limit {
        /// Of what there are too many.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
}
