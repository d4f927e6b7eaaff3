//! What a transaction needs of a resource manager, whichever way it is reached: through a switch or through a connection.
//!
//! Answers are the numbers of `xa.h`. A resource belongs to the thread that calls it, as the XA standard has it.
//!
//! May use: `abi`, `tm`. Must not know: switches, databases.

use std::ffi::{c_int, c_long};

pub(crate) use tm::xa_h::code;
use tm::{BranchName, XaCode, Xid};

use crate::abi::XidData;

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

    /// The branches of any coordinator of ours that are prepared in it; others are left out.
    fn prepared(&self) -> Result<Vec<Xid>, XaCode>;
}
