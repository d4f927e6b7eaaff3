//! The asynchronous side of a coordinator.
//!
//! May use: `decisions` and those who implement it, tokio. Must not know: resource managers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Durability, Options, Store};
use tokio::sync::Notify;
use xa::{BranchName, CoordinatorId, TransactionId};

use crate::decisions::{Decisions, Error, ErrorKind, Result};
use crate::drive::{Decide, Waiting};
use crate::embedded::Embedded;
use crate::last_resource::LastResource;
use crate::remote::{Remote, RemoteOptions};
use crate::resuming::Resuming;
use crate::transaction::Transaction;
use crate::{Begin, Sharing};

/// A coordinator for asynchronous programs. Cheap to clone; clones are the same.
///
/// Its methods need a tokio runtime.
#[derive(Clone)]
pub struct Coordinator(Arc<Inner>);

/// What holds of transactions of which the program says nothing else.
#[derive(Default)]
struct Usual {
    timeout: Option<Duration>,
    orders: BTreeMap<BranchName, u32>,
}

struct Inner {
    decisions: Arc<dyn Decisions>,
    waiting: Waiting,
    /// Where the coordinator is in the process: the store that local changes go to.
    store: Option<Store>,
    /// Recovery listens.
    hurry: Notify,
    usual: Usual,
    resuming: Resuming,
}

impl Coordinator {
    /// A coordinator in the process, with a store of its own in `dir`. What a commit waits for is the options' durability;
    /// at `Written` it is decided on the spot, else on a thread that may wait.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub async fn open(dir: &Path, options: Options) -> Result<Self> {
        Ok(Self::embedded(Self::opened(dir, options).await?))
    }

    /// As [`Coordinator::open`], with commits of shared transactions that wait so long for other programs.
    pub(crate) async fn open_waiting(dir: &Path, options: Options, shared_wait: Duration) -> Result<Self> {
        Ok(Self::embedded(Self::opened(dir, options).await?.with_shared_wait(shared_wait)))
    }

    async fn opened(dir: &Path, options: Options) -> Result<Embedded> {
        let dir = dir.to_owned();
        let opening = tokio::task::spawn_blocking(move || Embedded::open(&dir, options)).await;
        opening.map_err(|error| Error { kind: ErrorKind::Unavailable, text: error.to_string() })?
    }

    /// With what holds unless the program says otherwise. For one that was just made.
    pub(crate) fn with_usual(self, timeout: Option<Duration>, orders: BTreeMap<BranchName, u32>) -> Self {
        let inner = Arc::into_inner(self.0).expect("nobody has a clone of what was just made");
        Self(Arc::new(Inner { usual: Usual { timeout, orders }, ..inner }))
    }

    /// Where a branch stands in the order of commits when the program does not say.
    pub(crate) fn usual_order(&self, branch: &BranchName) -> u32 {
        self.0.usual.orders.get(branch).copied().unwrap_or_default()
    }

    fn usually(&self, begin: Begin) -> Begin {
        Begin { timeout: begin.timeout.or(self.0.usual.timeout), ..begin }
    }

    /// A coordinator in the process that the program has open.
    #[must_use]
    pub fn embedded(embedded: Embedded) -> Self {
        let store = embedded.store().clone();
        let waiting = if store.durability() == Durability::Written { Waiting::Here } else { Waiting::Aside };
        Self::of(Arc::new(embedded), waiting, Some(store))
    }

    /// A coordinator elsewhere.
    ///
    /// # Errors
    /// As [`Remote::open`].
    pub async fn connect(options: RemoteOptions) -> Result<Self> {
        let opening = tokio::task::spawn_blocking(move || Remote::open(options)).await;
        let remote = opening.map_err(|error| Error { kind: ErrorKind::Unavailable, text: error.to_string() })??;
        Ok(Self::over(Arc::new(remote)))
    }

    /// Over any coordinator whose calls may wait.
    #[must_use]
    pub fn over(decisions: Arc<dyn Decisions>) -> Self {
        Self::of(decisions, Waiting::Aside, None)
    }

    fn of(decisions: Arc<dyn Decisions>, waiting: Waiting, store: Option<Store>) -> Self {
        let (usual, resuming) = (Usual::default(), Resuming::default());
        Self(Arc::new(Inner { decisions, waiting, store, hurry: Notify::new(), usual, resuming }))
    }

    /// Which it is.
    #[must_use]
    pub fn id(&self) -> CoordinatorId {
        self.0.decisions.coordinator()
    }

    /// Begins a transaction. Sends nothing and writes nothing.
    ///
    /// # Errors
    /// As [`Decisions::begin`].
    pub fn begin(&self, begin: Begin) -> Result<Transaction> {
        Ok(Transaction::begun(self.clone(), self.0.decisions.begin(self.usually(begin))?))
    }

    /// Begins a transaction about which `last` decides: its branch, enlisted by [`Transaction::enlist_last`], commits in one
    /// phase when all others are prepared, and that is the decision. Sends nothing and writes nothing.
    ///
    /// The coordinator decides as ever where that cannot be: when the transaction changes its store too ([`Transaction::kv`]), and
    /// when no branch was enlisted so.
    ///
    /// # Errors
    /// As [`Decisions::begin`]; `Invalid` for a shared transaction, about which a coordinator decides.
    pub fn begin_with_last(&self, begin: Begin, last: &Arc<dyn LastResource>) -> Result<Transaction> {
        if begin.sharing == Sharing::Shared {
            let text = "a shared transaction has no last resource: the coordinator decides about it".to_owned();
            return Err(Error { kind: ErrorKind::Invalid, text });
        }
        let id = TransactionId { last_resource: Some(last.id()), ..self.0.decisions.begin(self.usually(begin))? };
        Ok(Transaction::begun_with_last(self.clone(), id, Arc::clone(last)))
    }

    /// Takes part in a transaction that another program began as shared, and whose id it sent as text.
    ///
    /// # Errors
    /// `Invalid` when the text is no id, it is another coordinator's, or the transaction is not shared.
    pub fn join(&self, id: &str) -> Result<Transaction> {
        Ok(Transaction::joined(self.clone(), self.shared_id(id)?))
    }

    /// Goes on with a transaction that another program suspended ([`Transaction::suspend`]), and whose id it sent as text: this
    /// program decides about it from now on, as the only one. A round trip.
    ///
    /// When the answer is lost, or the future dropped, this program may hold it and not know: call this again, of this coordinator or a
    /// clone of it, and it goes on. Else it is rolled back at its deadline, or when its owner ends.
    ///
    /// # Errors
    /// As [`Coordinator::join`]; `Invalid` also when it is not suspended, or another program, or an earlier call that was answered, has
    /// resumed it; `Aborted` when it is rolled back; `Unavailable`: it may be resumed, and another call tells.
    pub async fn resume(&self, id: &str) -> Result<Transaction> {
        let id = self.shared_id(id)?;
        let request = self.0.resuming.begin(id);
        let number = request.number();
        let answer = self.ask(move |decisions| decisions.resume(id, number)).await;
        request.answered(&answer);
        answer.map(|()| Transaction::begun(self.clone(), id))
    }

    /// The id of a shared transaction of this coordinator.
    fn shared_id(&self, id: &str) -> Result<TransactionId> {
        let invalid = |text: String| Error { kind: ErrorKind::Invalid, text };
        let id: TransactionId = id.parse().map_err(|error| invalid(format!("{error}")))?;
        if id.coordinator != self.id() {
            return Err(invalid("another coordinator decides about this transaction".to_owned()));
        }
        if !id.shared {
            return Err(invalid("this transaction was not begun as a shared one".to_owned()));
        }
        Ok(id)
    }

    /// Asks on a thread that may wait.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Decisions) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let decisions = self.decisions();
        match tokio::task::spawn_blocking(move || question(&*decisions)).await {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    pub(crate) fn decisions(&self) -> Arc<dyn Decisions> {
        Arc::clone(&self.0.decisions)
    }

    pub(crate) fn waiting(&self) -> Waiting {
        self.0.waiting
    }

    pub(crate) fn store(&self) -> Option<&Store> {
        self.0.store.as_ref()
    }

    pub(crate) fn decide(&self, id: TransactionId) -> Decide {
        let decisions = self.decisions();
        Decide::call(move |prepared| decisions.commit(id, prepared, None))
    }

    /// The same for what a last resource decided: what that remembers is removed then, and was on the disk.
    pub(crate) fn copy(&self, id: TransactionId) -> Decide {
        let decisions = self.decisions();
        Decide::call(move |prepared| decisions.commit(id, prepared, Some(Durability::Synced)))
    }

    /// Something was left to recovery just now.
    pub(crate) fn hurry_recovery(&self) {
        self.0.hurry.notify_one();
    }

    /// Waits until something was left to recovery.
    pub(crate) async fn hurried(&self) {
        self.0.hurry.notified().await;
    }
}
