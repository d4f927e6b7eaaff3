//! The transaction manager: one atomic commit across Holdfast, databases and any other resource manager.
//!
//! May use: `holdfast`, `xa`. Must not know: the doors, the C interface.

mod administration;
mod decisions;
mod remote;

pub use administration::{Administration, BranchStatus, Forget, Page, State, Status};
pub use decisions::{Begin, Decisions, Done, Error, ErrorKind, Heuristic, Part, Result, Verdict};
pub use remote::{Remote, RemoteOptions, Tls};
pub use xa::{BranchEnd, Call, Decision, Deed, Ended, OtherWork, Outcome, TwoPhase, Vote, XaCode};
pub use xa::{BranchName, CoordinatorId, FORMAT_ID, MalformedId, OwnerId, TransactionId, Xid};
