//! Branches and a coordinator that note how long their calls take.
//!
//! May use: `tm`, `phases`. Must not know: databases, what is done in a transaction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use holdfast::{Begin, Durability};
use tm::{
    Answer, BoxFuture, Branch, BranchName, CoordinatorId, Decisions, Deed, Learned, Remote, TransactionId, Verdict,
    Vote,
};

use super::phases::{Phase, Phases};

/// Times of one program, some of which are noted on other threads.
pub(super) type Shared = Arc<Mutex<Phases>>;

pub(super) fn lock(phases: &Shared) -> MutexGuard<'_, Phases> {
    phases.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A branch whose two phases are timed.
pub(super) struct TimedBranch<B> {
    pub(super) branch: B,
    pub(super) prepare: Phase,
    pub(super) commit: Phase,
    pub(super) phases: Shared,
}

impl<B: Branch> Branch for TimedBranch<B> {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async {
            let began = Instant::now();
            let answer = self.branch.prepare().await;
            lock(&self.phases).since(self.prepare, began);
            answer
        })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        self.branch.commit_one_phase()
    }

    fn commit_last<'a>(&'a mut self, others: &'a [BranchName]) -> BoxFuture<'a, Answer> {
        Box::pin(async {
            let began = Instant::now();
            let answer = self.branch.commit_last(others).await;
            lock(&self.phases).since(self.commit, began);
            answer
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async {
            let began = Instant::now();
            let answer = self.branch.commit().await;
            lock(&self.phases).since(self.commit, began);
            answer
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        self.branch.rollback()
    }
}

/// A coordinator whose decisions are timed.
pub(super) struct TimedDecisions {
    pub(super) remote: Arc<Remote>,
    pub(super) phases: Shared,
}

impl Decisions for TimedDecisions {
    fn coordinator(&self) -> CoordinatorId {
        self.remote.coordinator()
    }

    fn begin(&self, begin: Begin) -> tm::Result<TransactionId> {
        self.remote.begin(begin)
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], durability: Option<Durability>) -> tm::Result<()> {
        let began = Instant::now();
        let decided = self.remote.commit(id, branches, durability);
        lock(&self.phases).since(Phase::Decision, began);
        decided
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        self.remote.done(id, done);
    }

    fn record(&self, id: TransactionId, done: &[Learned]) -> tm::Result<()> {
        self.remote.record(id, done)
    }

    fn abort(&self, id: TransactionId) -> tm::Result<()> {
        self.remote.abort(id)
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> tm::Result<()> {
        self.remote.record_deeds(id, deeds)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> tm::Result<Vec<Verdict>> {
        self.remote.verdicts(ids)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> tm::Result<()> {
        self.remote.enlist(id, branches)
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> tm::Result<()> {
        self.remote.suspend(id, branches)
    }

    fn resume(&self, id: TransactionId, number: u64) -> tm::Result<()> {
        self.remote.resume(id, number)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, vote: Vote) -> tm::Result<()> {
        self.remote.prepared(id, branch, vote)
    }
}
