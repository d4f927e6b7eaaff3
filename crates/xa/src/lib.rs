//! Distributed transactions as pure decisions: ids, what a coordinator remembers, two-phase commit, recovery.
//!
//! Nothing here does anything: the facade keeps the records, `tm` talks to resource managers, and the simulator does both.
//! X/Open XA (C193) and TX (C504) give the terms; *presumed abort* is C. Mohan, B. Lindsay, R. Obermarck, "Transaction
//! Management in the R* Distributed Database Management System", ACM TODS 11(4), 1986.
//!
//! May use: `base`. Must not know: engines, time, sockets, what a resource manager is made of.

mod codes;
mod id;
mod settle;
mod two_phase;

pub use codes::{BranchEnd, Deed, Ended, Vote, XaCode};
pub use id::{BRANCH_BYTES_MAX, BranchName, CoordinatorId, FORMAT_ID, MalformedId, OwnerId, TransactionId, Xid};
pub use settle::{Action, Instruction, Pace, Settle};
pub use two_phase::{Call, Decision, OtherWork, Outcome, TwoPhase};
