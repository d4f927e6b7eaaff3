//! A coordinator in the process: a store of its own or the program's.
//!
//! May use: `decisions`, `holdfast`. Must not know: resource managers, async.

use std::path::Path;
use std::time::Duration;

use holdfast::{
    BranchState, BranchStatus as Branch, Commit, CommitRequest, Deed, Durability, Forgetting, Learned, Options,
    Outcome, Resumer, Store, Taking, Vote,
};
use xa::{BranchName, CoordinatorId, TransactionId};

use crate::administration::{Administration, BranchStatus, Forget, Page, Settling, Status};
use crate::decisions::{Decisions, Error, ErrorKind, Result};
use crate::remote::SHARED_WAIT_DEFAULT;
use crate::{Begin, Heuristic, Verdict};

/// Most transactions of one page of a list.
const PAGE: usize = 200;

/// A coordinator in the process. Transactions of earlier processes that had the same directory and were not decided are
/// rolled back by recovery, because those processes are gone.
#[derive(Clone)]
pub struct Embedded {
    store: Store,
    shared_wait: Duration,
}

impl Embedded {
    /// Opens or creates a store for the decisions alone. What a commit waits for is the options' durability.
    ///
    /// # Errors
    /// `Unavailable` when another process has the directory, or it cannot be used.
    pub fn open(dir: &Path, options: Options) -> Result<Self> {
        Ok(Self::over(Store::open(dir, options).map_err(of_store)?))
    }

    /// Keeps decisions in a store that the program has open.
    #[must_use]
    pub fn over(store: Store) -> Self {
        Self { store, shared_wait: SHARED_WAIT_DEFAULT }
    }

    /// The store. What is changed in it by itself has nothing to do with transactions.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How long a commit waits for others who take part in a shared transaction; 30 s unless said.
    #[must_use]
    pub fn with_shared_wait(self, shared_wait: Duration) -> Self {
        Self { shared_wait, ..self }
    }
}

impl Decisions for Embedded {
    fn coordinator(&self) -> CoordinatorId {
        self.store.xa().coordinator()
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId> {
        self.store.xa().begin(&begin).map_err(of_store)
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], durability: Option<Durability>) -> Result<()> {
        let wait = if id.shared { self.shared_wait } else { Duration::ZERO };
        let durability = durability.unwrap_or_else(|| self.store.durability());
        let committed = self.store.xa().commit(&CommitRequest { id, branches, wait }, durability);
        committed.map_err(|error| match error.kind() {
            // It may be committed since before the journal was damaged.
            holdfast::ErrorKind::Corrupt => Error { kind: ErrorKind::Unknown, text: error.to_string() },
            _ => of_store(error),
        })
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        if done.is_empty() {
            return;
        }
        // What was not noted is asked again by recovery.
        let _ = self.store.xa().forget(id, done, Forgetting::Known);
    }

    fn record(&self, id: TransactionId, done: &[Learned]) -> Result<()> {
        if done.is_empty() {
            return Ok(());
        }
        let recorded = self.store.xa().forget(id, done, Forgetting::Known);
        recorded.and_then(|pending| pending.wait(Durability::Synced)).map_err(of_store)
    }

    fn abort(&self, id: TransactionId) -> Result<()> {
        let outcome = self.store.xa().abort(id).and_then(|pending| pending.wait(Durability::Synced));
        not_committed(outcome.map_err(of_store)?)
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<()> {
        let outcome = self.store.xa().note_deeds(id, deeds).and_then(|pending| pending.wait(Durability::Synced));
        not_committed(outcome.map_err(of_store)?)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>> {
        let xa = self.store.xa();
        let mut verdicts = Vec::with_capacity(ids.len());
        for ids in ids.chunks(xa.verdicts_max().max(1)) {
            let given = xa.verdicts(ids).and_then(|pending| pending.wait(Durability::Synced)).map_err(of_store)?;
            verdicts.extend(given);
        }
        Ok(verdicts)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        let taking = self.store.xa().enlist(id, None, branches).and_then(|pending| pending.wait(Durability::Synced));
        taken(taking.map_err(of_store)?)
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        let taking = self.store.xa().suspend(id, None, branches).and_then(|pending| pending.wait(Durability::Synced));
        taken(taking.map_err(of_store)?)
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<()> {
        let resumer = Resumer { by: None, number: Some(number) };
        let taking = self.store.xa().resume(id, resumer).and_then(|pending| pending.wait(Durability::Synced));
        taken(taking.map_err(of_store)?)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, vote: Vote) -> Result<()> {
        let taking = self.store.xa().vote(id, branch, vote).and_then(|pending| pending.wait(Durability::Synced));
        taken(taking.map_err(of_store)?)
    }
}

impl Administration for Embedded {
    fn status(&self, id: TransactionId) -> Result<Status> {
        let status = self.store.xa().status(id).and_then(|pending| pending.wait(Durability::Synced));
        Ok(shown(status.map_err(of_store)?))
    }

    fn list(&self, cursor: &str) -> Result<Page> {
        let invalid = |_| Error { kind: ErrorKind::Invalid, text: format!("{cursor:?} is no cursor of a list") };
        let after = if cursor == "0" { None } else { Some(cursor.parse().map_err(invalid)?) };
        let listed = self.store.xa().list(after, PAGE).and_then(|pending| pending.wait(Durability::Synced));
        let listed = listed.map_err(of_store)?;
        let transactions = listed.statuses.into_iter().map(shown).collect();
        Ok(Page { transactions, next: listed.next.map(|id| id.to_string()) })
    }

    fn forget(&self, id: TransactionId, forget: Forget) -> Result<()> {
        let forgetting = match forget {
            Forget::Settled => Forgetting::Known,
            Forget::EvenInDoubt => Forgetting::Everything,
        };
        let forgotten =
            self.store.xa().forget(id, &[], forgetting).and_then(|pending| pending.wait(Durability::Synced));
        forgotten.map_err(of_store)
    }

    fn settle(&self, id: TransactionId, settling: Settling<'_>) -> Result<()> {
        let xa = self.store.xa();
        match settling {
            Settling::Commit(branches) => {
                let decided = xa.decide_by_operator(id, branches).and_then(|pending| pending.wait(Durability::Synced));
                match decided.map_err(of_store)? {
                    Commit::Settled(outcome @ Outcome::Aborted(_)) => taken(Taking::Settled(outcome)),
                    _ => Ok(()),
                }
            }
            Settling::Rollback => {
                let outcome = xa.abort_by_operator(id).and_then(|pending| pending.wait(Durability::Synced));
                not_committed(outcome.map_err(of_store)?)
            }
        }
    }
}

fn shown(status: holdfast::Status) -> Status {
    let branch = |(branch, status): (BranchName, Branch)| {
        let state = match status {
            Branch::Decided(BranchState::Open) => "open",
            Branch::Decided(BranchState::Done) => "done",
            Branch::Decided(BranchState::Heuristic(Heuristic::Commit)) => "heuristic-commit",
            Branch::Decided(BranchState::Heuristic(Heuristic::Rollback)) => "heuristic-rollback",
            Branch::Decided(BranchState::Heuristic(Heuristic::Mixed)) => "heuristic-mixed",
            Branch::Decided(BranchState::Heuristic(Heuristic::Hazard)) => "heuristic-hazard",
            Branch::Enlisted(None) => "enlisted",
            Branch::Enlisted(Some(Vote::Prepared)) => "prepared",
            Branch::Enlisted(Some(Vote::ReadOnly)) => "readonly",
            Branch::Enlisted(Some(Vote::Failed)) => "failed",
        };
        BranchStatus { branch, state: state.to_owned() }
    };
    Status {
        id: status.id,
        state: status.state,
        decided: status.at_ms.map(Duration::from_millis),
        owner_name: status.owner_name.filter(|name| !name.is_empty()),
        branches: status.branches.into_iter().map(branch).collect(),
    }
}

fn taken(taking: Taking) -> Result<()> {
    match taking {
        Taking::Part => Ok(()),
        Taking::Settled(Outcome::Aborted(reason)) => Err(Error { kind: ErrorKind::Aborted, text: reason.to_string() }),
        Taking::Settled(Outcome::Committed) => {
            Err(Error { kind: ErrorKind::Invalid, text: "the transaction is committed already".to_owned() })
        }
    }
}

fn not_committed(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Aborted(_) => Ok(()),
        Outcome::Committed => {
            Err(Error { kind: ErrorKind::Invalid, text: "the transaction is committed already".to_owned() })
        }
    }
}

/// An error of a store, when nothing happened but in the one case that says so itself.
pub(crate) fn of_store(error: holdfast::Error) -> Error {
    let kind = match error.kind() {
        holdfast::ErrorKind::Aborted => ErrorKind::Aborted,
        holdfast::ErrorKind::Unknown => ErrorKind::Unknown,
        holdfast::ErrorKind::Invalid | holdfast::ErrorKind::Conflict => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    Error { kind, text: error.to_string() }
}
