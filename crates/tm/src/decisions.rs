//! What everybody who runs transactions needs of a coordinator, be it in the process or a server.
//!
//! Calls block. They are few: between beginning and the end of a committed transaction there is one that waits.
//!
//! May use: `xa`. Must not know: where the coordinator is.

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast::{Begin, Durability};
use xa::{
    BranchEnd, BranchName, CoordinatorId, Deed, Heuristic, Learned, TransactionId, TwoPhaseDecision, Verdict, Vote, Xid,
};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a coordinator refuses, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// What the caller does next.
    pub kind: ErrorKind,
    /// What went wrong, for people.
    pub text: String,
}

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The transaction was, or now is, rolled back: roll all its branches back.
    Aborted,
    /// Whether the decision was made is not known: leave the prepared branches to recovery, and tell the user so.
    Unknown,
    /// The request makes no sense: correct it.
    Invalid,
    /// Nothing happened, because the coordinator cannot be reached or cannot write: try again, or roll back.
    Unavailable,
}

/// A coordinator.
pub trait Decisions: Send + Sync {
    /// Which coordinator this is.
    fn coordinator(&self) -> CoordinatorId;

    /// Makes a new transaction's id. No message and nothing on disk, but for the first call of a program.
    ///
    /// # Errors
    /// `Unavailable` when there is no owner yet and the coordinator cannot be reached.
    fn begin(&self, begin: Begin) -> Result<TransactionId>;

    /// Decides to commit a transaction whose `branches` are all prepared. Once it returns, the decision is as durable as
    /// asked, and the branches must be committed. One round trip and one group sync.
    ///
    /// # Errors
    /// `Aborted`, `Unknown`, `Invalid`, `Unavailable`.
    fn commit(&self, id: TransactionId, branches: &[BranchName], durability: Option<Durability>) -> Result<()>;

    /// Notes that branches learned of the decision to commit; when all have, the decision is let go. Never waits.
    fn done(&self, id: TransactionId, done: &[Learned]);

    /// As [`Decisions::done`], but waits until it is recorded: what a resource manager did by itself it must not forget before
    /// that, or nobody would know of it once this program is gone. Where `done` records at once this is the same.
    ///
    /// # Errors
    /// It may not be recorded: let the resource manager remember, so that recovery finds it.
    fn record(&self, id: TransactionId, done: &[Learned]) -> Result<()> {
        self.done(id, done);
        Ok(())
    }

    /// Decides never to commit a transaction. Needed only where somebody else might: when `commit` said `Unknown`, and
    /// when several programs take part. Otherwise an abort is presumed and nobody needs to be told.
    ///
    /// # Errors
    /// `Invalid` when it is committed already, and when the request makes no sense or is not permitted: never commit branches
    /// because of it, but ask for a verdict. `Unavailable`.
    fn abort(&self, id: TransactionId) -> Result<()>;

    /// As [`Decisions::abort`], and records what resource managers did by themselves with branches of the transaction, before they
    /// are told to forget it: of one that is rolled back nobody else would know.
    ///
    /// # Errors
    /// It may not be recorded: let the resource manager remember, so that recovery finds it. `Invalid` also when the transaction is
    /// committed; then that is what [`Decisions::record`] is for.
    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<()>;

    /// What to do with each transaction that was found prepared in a resource manager.
    ///
    /// # Errors
    /// `Unavailable`: leave all alone and ask again later.
    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>>;

    /// Adds branches to a shared transaction, by whichever program: they must be prepared before it commits.
    ///
    /// # Errors
    /// `Aborted` when it is too late, or the coordinator forgot the transaction in a restart; `Invalid` when it is not
    /// shared; `Unavailable`.
    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<()>;

    /// As [`Decisions::enlist`], by the program that may decide about the transaction and leaves it to whoever resumes it.
    /// Nobody can commit it before.
    ///
    /// # Errors
    /// As [`Decisions::enlist`]; `Invalid` also for a program that does not hold it.
    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<()>;

    /// Goes on with a suspended transaction, as the only program, and decides about it. `number` tells this request, should it
    /// be made once more because the answer was lost, from all others of this program.
    ///
    /// # Errors
    /// `Invalid` when it is not suspended, also because another program has resumed it, or is committed already; `Aborted` when it is
    /// rolled back, or the coordinator forgot it in a restart; `Unavailable`: it may be resumed, and the same call tells.
    fn resume(&self, id: TransactionId, number: u64) -> Result<()>;

    /// Says how a branch of a shared transaction voted.
    ///
    /// # Errors
    /// `Aborted` when the transaction will never be committed. Any other error leaves open whether the vote was taken, and so
    /// whether the transaction is committed: never roll a prepared branch back because of it, but ask for a verdict.
    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<()>;
}

/// A number for [`Decisions::resume`] that no other request of this process has.
pub fn next_resumer() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Notes what branches learned. Whether resource managers may forget now what they did by themselves.
pub fn note_done(decisions: &dyn Decisions, id: TransactionId, done: &[Learned]) -> bool {
    if done.iter().any(|done| done.heuristic.is_some()) {
        return decisions.record(id, done).is_ok();
    }
    decisions.done(id, done);
    true
}

/// What a branch did by itself that was not the verdict.
#[must_use]
pub fn against(verdict: Verdict, end: BranchEnd) -> Option<Heuristic> {
    let with = if verdict == Verdict::Commit { Heuristic::Commit } else { Heuristic::Rollback };
    end.heuristic().filter(|deed| *deed != with)
}

/// Notes how recovery ended a branch, by a verdict to commit or to roll back. Whether its resource manager may forget now what it
/// did by itself.
pub fn note_ended(decisions: &dyn Decisions, xid: &Xid, verdict: Verdict, end: BranchEnd) -> bool {
    if end == BranchEnd::Pending {
        return true;
    }
    let deed = against(verdict, end).map(|did| Deed { branch: xid.branch.clone(), did });
    match deed {
        // The coordinator has a tombstone, whatever the last resource decided, or else a copy of the decision.
        Some(deed) if xid.transaction.last_resource.is_some() => {
            match decisions.record_deeds(xid.transaction, &[deed]) {
                Err(error) if error.kind == ErrorKind::Invalid && verdict == Verdict::Commit => {}
                recorded => return recorded.is_ok(),
            }
        }
        // It did what was decided, and the coordinator may have no decision to note that with.
        None if verdict == Verdict::Commit && xid.transaction.last_resource.is_some() => {
            decisions.done(xid.transaction, &[Learned { branch: xid.branch.clone(), heuristic: None }]);
            return true;
        }
        Some(deed) if verdict != Verdict::Commit => {
            return decisions.record_deeds(xid.transaction, &[deed]).is_ok();
        }
        _ if verdict != Verdict::Commit => return true,
        _ => {}
    }
    let done = Learned { branch: xid.branch.clone(), heuristic: end.heuristic() };
    note_done(decisions, xid.transaction, &[done])
}

/// Decides never to commit a transaction, unless it is decided the other way: which of both is the answer. A refusal may
/// mean that, or anything; only a verdict tells.
///
/// # Errors
/// Neither is certain.
pub fn decide_abort(decisions: &dyn Decisions, id: TransactionId) -> Result<TwoPhaseDecision> {
    match decisions.abort(id) {
        Ok(()) => Ok(TwoPhaseDecision::Aborted),
        Err(error) if error.kind == ErrorKind::Aborted => Ok(TwoPhaseDecision::Aborted),
        Err(error) if error.kind == ErrorKind::Invalid => match decisions.verdicts(&[id])?.as_slice() {
            [Verdict::Commit] => Ok(TwoPhaseDecision::Committed),
            // Who asks is the program itself: it has not told the last resource to commit, or does without this answer.
            [Verdict::Rollback | Verdict::LastResource] => Ok(TwoPhaseDecision::Aborted),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}
