//! What a transaction needs of a resource manager, whichever way it is reached: through a switch or through a connection.
//!
//! Answers are the numbers of `xa.h`. A resource belongs to the thread that calls it, as the XA standard has it.
//!
//! May use: `abi`, `tm`. Must not know: switches, databases.

use std::ffi::{c_int, c_long};

pub(crate) use tm::xa_h::code;
use tm::{BranchName, LastResourceId, TransactionId, XaCode, Xid};

use crate::abi::{XAER_PROTO, XidData};

/// A call about one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Start,
    End,
    Prepare,
    Commit,
    Rollback,
    Forget,
}

/// When the answer of a call with `TMASYNC` is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collected {
    /// Within the call of the program that needed it.
    AtOnce,
    /// By a later one: the program may have worked with the resource manager's connection meanwhile.
    Late,
}

pub(crate) trait Resource {
    /// The name of its branches.
    fn branch(&self) -> &BranchName;

    /// Those with a lower number commit earlier.
    fn order(&self) -> u32;

    /// Whether prepare, commit and rollback may be called with `TMASYNC`.
    fn is_asynchronous(&self) -> bool;

    /// Calls it about a branch. With `TMASYNC` a positive answer is a handle.
    fn call(&self, verb: Verb, xid: &XidData, flags: c_long) -> c_int;

    /// Waits for the answer of a call with `TMASYNC`.
    fn complete(&self, handle: c_int, collected: Collected) -> c_int;

    /// Whether it is the last resource: it commits in one phase when all others are prepared, and decides by that.
    fn is_last(&self) -> bool {
        false
    }

    /// Commits a branch that ended, and with it the decision, of which `others` are to hear.
    fn commit_last(&self, _xid: &XidData, _others: &[BranchName]) -> c_int {
        XAER_PROTO
    }

    /// Whether each of these was committed by this last resource, which never will commit what it has not; `None` when it is
    /// none, or another one.
    fn settle(&self, _last: LastResourceId, _ids: &[TransactionId]) -> Result<Option<Vec<bool>>, String> {
        Ok(None)
    }

    /// Nobody will ask what it decided about this one.
    fn let_go(&self, _id: TransactionId) {}

    /// The branches of any coordinator of ours that are prepared in it; others are left out.
    fn prepared(&self) -> Result<Vec<Xid>, XaCode>;
}
