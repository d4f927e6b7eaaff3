//! Distributed transactions as pure decisions: ids, what a coordinator remembers, two-phase commit, recovery.
//!
//! Nothing here does anything: the facade keeps the records, `tm` talks to resource managers, and the simulator does both.
//! X/Open XA (C193) and TX (C504) give the terms; *presumed abort* is C. Mohan, B. Lindsay, R. Obermarck, "Transaction
//! Management in the R* Distributed Database Management System", ACM TODS 11(4), 1986.
//!
//! May use: `base`. Must not know: engines, time, sockets, what a resource manager is made of.

mod id;
mod record;

mod answer;
mod error;
mod owners;
mod table;

mod damage;
mod decide;
mod deeds;
mod hold;
mod status;
mod verdict;

mod codes;
mod settle;
mod two_phase;

pub use base::Time;

pub use answer::{Answer, Mark, Needs, Plan};
pub use codes::{BranchEnd, Ended, PrepareAnswer, XaCode};
pub use decide::{Forgetting, Learned, Taking};
pub use error::TableError;
pub use hold::{Resumer, SUSPENDED_MAX};
pub use id::{
    BRANCH_BYTES_MAX, BranchName, CoordinatorId, FORMAT_ID, LastResourceId, MalformedId, OwnerId, TransactionId, Xid,
};
pub use owners::{LEASE_DEFAULT, LEASE_MAX, LEASE_MIN, Lease};
pub use record::{
    Abort, BranchState, Change, DamageRecord, Decision, Deed, Heuristic, MalformedRecord, OwnersRecord, Record,
    RecordKey, Tombstone,
};
pub use settle::{Action, Instruction, Pace, Settle};
pub use status::{BranchStatus, Listed, State, Status};
pub use table::{AbortReason, Commit, Counters, Now, OWNER_NAME_BYTES_MAX, Outcome, Patience, Table, Vote};
pub use two_phase::{Call, OtherWork, TwoPhase, TwoPhaseDecision, TwoPhaseOutcome};
pub use verdict::{Stepped, Verdict};
