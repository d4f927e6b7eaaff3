//! A coordinator that can be closed while others hold it: at the end of the process, when threads that will never run again
//! have it open.
//!
//! May use: `holdfast`, `tm`. Must not know: when the process ends.

use std::sync::{PoisonError, RwLock};

use holdfast::{Durability, Store};
use tm::{
    Begin, BranchName, CoordinatorId, Decisions, Deed, Embedded, Error, ErrorKind, Learned, Result, TransactionId,
    Verdict, Vote,
};

pub(crate) struct ClosableCoordinator {
    id: CoordinatorId,
    inner: RwLock<Option<Inner>>,
}

struct Inner {
    decisions: Box<dyn Decisions>,
    /// Where the decisions are, when that is in the process.
    store: Option<Store>,
}

impl ClosableCoordinator {
    pub(crate) fn new(decisions: impl Decisions + 'static) -> Self {
        Self::of(Inner { decisions: Box::new(decisions), store: None })
    }

    /// One whose store takes part in transactions.
    pub(crate) fn embedded(embedded: Embedded) -> Self {
        let store = Some(embedded.store().clone());
        Self::of(Inner { decisions: Box::new(embedded), store })
    }

    fn of(inner: Inner) -> Self {
        Self { id: inner.decisions.coordinator(), inner: RwLock::new(Some(inner)) }
    }

    /// Its store, when that is in the process and not closed.
    pub(crate) fn store(&self) -> Option<Store> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.store.clone()
    }

    /// Closes it, unless somebody is asking it something at this moment: that call is not waited for.
    pub(crate) fn close(&self) {
        let inner = self.inner.try_write().ok().and_then(|mut inner| inner.take());
        // Transactions that nobody ends any more hold the store, too.
        if let Some(store) = inner.as_ref().and_then(|inner| inner.store.as_ref())
            && let Err(error) = store.close()
        {
            tracing::warn!(%error, "the coordinator's store is not closed as it should be");
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&dyn Decisions) -> Result<T>) -> Result<T> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        match inner.as_ref() {
            Some(inner) => question(&*inner.decisions),
            None => Err(Error { kind: ErrorKind::Unavailable, text: "the process is ending".to_owned() }),
        }
    }
}

impl Decisions for ClosableCoordinator {
    fn coordinator(&self) -> CoordinatorId {
        self.id
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId> {
        self.ask(|inner| inner.begin(begin))
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], durability: Option<Durability>) -> Result<()> {
        self.ask(|inner| inner.commit(id, branches, durability))
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        // Of a closed coordinator nothing is to be hoped; recovery tells the next one.
        let _ = self.ask(|inner| {
            inner.done(id, done);
            Ok(())
        });
    }

    fn record(&self, id: TransactionId, done: &[Learned]) -> Result<()> {
        self.ask(|inner| inner.record(id, done))
    }

    fn abort(&self, id: TransactionId) -> Result<()> {
        self.ask(|inner| inner.abort(id))
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<()> {
        self.ask(|inner| inner.record_deeds(id, deeds))
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>> {
        self.ask(|inner| inner.verdicts(ids))
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        self.ask(|inner| inner.suspend(id, branches))
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<()> {
        self.ask(|inner| inner.resume(id, number))
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        self.ask(|inner| inner.enlist(id, branches))
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<()> {
        self.ask(|inner| inner.prepared(id, branch, part))
    }
}
