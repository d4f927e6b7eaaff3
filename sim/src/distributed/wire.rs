//! Messages between programs, the server and resource managers. A network delivers them late, in any order, or not.
//!
//! May use: `xa`. Must not know: who sends what when.

use base::Time;
use holdfast::{BranchName, Deed, Forgetting, Learned, OwnerId, Resumer, TransactionId, Verdict, Vote};
use xa::{Instruction, TwoPhaseDecision, XaCode, Xid};

use crate::distributed::manager::Name;
use crate::distributed::points::Step;

/// A process that sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Process {
    Application(usize),
    /// The server's own recovery.
    Server,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee {
    Server,
    Manager(usize),
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    // A resource manager.
    Start(Xid),
    End(Xid),
    Prepare(Xid),
    OnePhase(Xid),
    CommitLast(Xid),
    /// Whether it committed this as its last resource, which it never will if it has not.
    Settle(TransactionId),
    LetGo(TransactionId),
    Commit(Xid),
    Rollback(Xid),
    Forget(Xid),
    List,
    // The coordinator.
    Open,
    Renew(OwnerId),
    Begin {
        owner: OwnerId,
        shared: bool,
    },
    Enlist(TransactionId, Vec<BranchName>),
    Vote(TransactionId, BranchName, Vote),
    /// By this run of a program.
    Suspend(TransactionId, OwnerId, Vec<BranchName>),
    /// With a number by which it is known when it comes once more.
    Resume(TransactionId, Resumer),
    /// With a change in the server's own store in the same batch, if it is local.
    Decide {
        id: TransactionId,
        branches: Vec<BranchName>,
        local: bool,
        until: Time,
    },
    Abort(TransactionId),
    Done(TransactionId, Vec<Learned>, Forgetting),
    Deeds(TransactionId, Vec<Deed>),
    Verdicts(Vec<TransactionId>),
    Close(OwnerId),
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Code(XaCode),
    Listed(Vec<Name>),
    Owner(OwnerId),
    Id(TransactionId),
    Taken,
    Decision(TwoPhaseDecision),
    Verdicts(Vec<Verdict>),
    /// It was understood, and not done.
    Refused,
    /// The connection broke: it may have been done, be done later, or never.
    Lost,
}

/// What the answer is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nobody waits.
    Nothing,
    Opening,
    Renewing,
    Beginning {
        shared: bool,
    },
    Joining,
    Suspending,
    Resuming,
    Starting,
    Ending,
    /// What resource managers did by themselves is recorded; then they may forget it.
    Recording,
    /// The same for recovery's.
    RecordingFor(usize, Xid),
    /// A call of the two-phase driver to a branch.
    Branch(usize),
    Deciding,
    /// What the last resource decided.
    AskingLast,
    Aborting,
    Voting,
    /// What was decided elsewhere.
    Polling,
    Closing,
    // Recovery.
    Listing(usize),
    Judging(Vec<TransactionId>),
    /// What the last resource of this one decided.
    Asking(TransactionId),
    Settling(Instruction),
}

/// A request under way, or its answer.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) from: Process,
    /// Which run of the process.
    pub(crate) run: u64,
    /// The connection to a resource manager; 0 for one that is opened for this request.
    pub(crate) session: u64,
    pub(crate) to: Callee,
    pub(crate) request: Request,
    pub(crate) purpose: Purpose,
    pub(crate) reply: Option<Reply>,
    /// Whether anybody still waits for the answer.
    pub(crate) is_awaited: bool,
}

impl Message {
    /// The step of the process that sends it.
    pub(crate) fn step(&self) -> Option<Step> {
        Some(match (&self.request, &self.purpose) {
            (_, Purpose::Settling(_)) => Step::Settle,
            (Request::Start(_), _) => Step::Start,
            (Request::End(_), _) => Step::End,
            (Request::Prepare(_), _) => Step::Prepare,
            (Request::CommitLast(_), _) => Step::Last,
            (Request::Settle(_), _) => Step::AskLast,
            (Request::LetGo(_), _) => Step::LetGo,
            (Request::OnePhase(_) | Request::Commit(_), _) => Step::Commit,
            (Request::Rollback(_), _) => Step::Rollback,
            (Request::Forget(_), _) => Step::Forget,
            (Request::List, _) => Step::List,
            (request, _) => return request.step(),
        })
    }

    /// What a reply says of a branch.
    pub(crate) fn code(reply: &Reply) -> XaCode {
        match reply {
            Reply::Code(code) => *code,
            _ => XaCode::ManagerDown,
        }
    }
}

impl Request {
    /// The step of the server that is asked.
    pub(crate) fn step(&self) -> Option<Step> {
        Some(match self {
            Self::Open => Step::Open,
            Self::Begin { .. } => Step::Begin,
            Self::Enlist(..) => Step::Enlist,
            Self::Vote(..) => Step::Vote,
            Self::Suspend(..) => Step::Suspend,
            Self::Resume(..) => Step::Resume,
            Self::Decide { .. } => Step::Decision,
            Self::Abort(_) | Self::Deeds(..) => Step::Abort,
            Self::Done(_, _, Forgetting::Known) => Step::Done,
            Self::Done(_, _, Forgetting::Everything) => Step::Forget,
            Self::Verdicts(_) => Step::Verdict,
            Self::Close(_) => Step::Close,
            _ => return None,
        })
    }
}
