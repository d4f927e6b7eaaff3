//! The transaction manager: one atomic commit across Holdfast, databases and any other resource manager.
//!
//! May use: `holdfast`, `xa`. Must not know: the doors, the C interface.

mod administration;
mod decisions;
mod embedded;
mod idle;
mod own;
mod postgres_decisions;
mod postgres_mark;
mod profile;
mod remote;
mod tls;
pub mod xa_h;

#[cfg(feature = "sql")]
mod branch;
#[cfg(feature = "sql")]
mod check;
#[cfg(feature = "sql")]
mod coordinator;
#[cfg(feature = "sql")]
mod drive;
#[cfg(feature = "sql")]
mod last_resource;
#[cfg(feature = "sql")]
mod mysql;
#[cfg(feature = "sql")]
mod postgres;
#[cfg(feature = "sql")]
mod recovery;
#[cfg(feature = "sql")]
mod resuming;
#[cfg(feature = "sql")]
mod suspended;
#[cfg(feature = "sql")]
mod sweep;
#[cfg(feature = "sql")]
mod switch;
#[cfg(feature = "sql")]
mod transaction;

pub use administration::{Administration, BranchStatus, Forget, Page, Settling, Status};
#[cfg(feature = "sql")]
pub use branch::{Answer, BoxFuture, Branch, InDoubt, ResourceManager};
#[cfg(feature = "sql")]
pub use check::{Checked, Fault, Switches, check, check_coordinator, open_coordinator, resource_managers};
#[cfg(feature = "sql")]
pub use coordinator::Coordinator;
pub use decisions::{Decisions, Error, ErrorKind, Result, against, decide_abort, next_resumer, note_done, note_ended};
pub use embedded::Embedded;
pub use holdfast::{Begin, Sharing};
pub use idle::MysqlIdle;
#[cfg(feature = "sql")]
pub use last_resource::{Kept, LastResource};
#[cfg(feature = "sql")]
pub use mysql::{MysqlBranch, MysqlManager};
pub use own::{OwnDecision, commit_with_decision};
#[cfg(feature = "sql")]
pub use postgres::{PostgresBranch, PostgresLastResource, PostgresManager, PostgresTls};
pub use postgres_decisions::PostgresDecisions;
pub use postgres_mark::PostgresMark;
pub use profile::{
    CoordinatorPlace, PROFILE_FILE, PROFILE_NAME_VARIABLE, PROFILE_VARIABLE, Profile, ProfileError,
    ResourceManagerKind, ResourceManagerProfile, Secret,
};
#[cfg(feature = "sql")]
pub use recovery::{Down, Fate, Found, Progress, Recovery, Report, Unreadable};
pub use remote::{Remote, RemoteOptions, Tls};
#[cfg(feature = "sql")]
pub use suspended::Suspended;
#[cfg(feature = "sql")]
pub use sweep::sweep;
#[cfg(feature = "sql")]
pub use switch::{SwitchManager, SwitchPlace};
pub use tls::{DatabaseTls, Identity};
#[cfg(feature = "sql")]
pub use transaction::{Committed, Failed, Transaction};
pub use xa::{BranchEnd, Call, Ended, OtherWork, PrepareAnswer, TwoPhase, TwoPhaseDecision};
pub use xa::{
    BranchName, CoordinatorId, LastResourceId, OwnerId, Pace, TransactionId, TwoPhaseOutcome as Outcome, XaCode, Xid,
};
pub use xa::{Deed, Heuristic, Learned, State, Verdict, Vote};
pub use xa::{FORMAT_ID, MalformedId};
