//! The transaction manager: one atomic commit across Holdfast, databases and any other resource manager.
//!
//! May use: `holdfast`, `xa`. Must not know: the doors, the C interface.

mod decisions;

pub use decisions::{Begin, Decisions, Done, Error, ErrorKind, Heuristic, Result, Verdict};
pub use xa::{BranchEnd, Call, Decision, Deed, Ended, OtherWork, Outcome, TwoPhase, Vote, XaCode};
pub use xa::{BranchName, CoordinatorId, FORMAT_ID, MalformedId, OwnerId, TransactionId, Xid};
