//! One transaction in a program.
//!
//! May use: `branch`, `drive`, `coordinator`. Must not know: resource managers, where the coordinator is.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::task::JoinHandle;
use xa::{BranchName, OtherWork, TransactionId, TwoPhase, TwoPhaseOutcome as Outcome, Xid};

use crate::branch::Branch;
use crate::coordinator::Coordinator;
use crate::decisions::{Decisions, Error, ErrorKind, Result};
use crate::drive::{Decide, Drive, Ended, Enlisted, WaitForDecision, Waiting};
use crate::last_resource::LastResource;
use crate::own::{OwnDecision, commit_with_decision, of_batch};
use crate::suspended::{self, Signals, Suspended};
use crate::{Verdict, Vote};

/// Between two questions for what was decided elsewhere: at first and at most.
pub(crate) const QUESTION_PAUSE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

/// A transaction under way. Its branches are what was enlisted; the program works in them through its own connections.
///
/// Dropping it rolls back what was not committed, without waiting. The futures of its methods may be dropped: what they
/// began goes on.
pub struct Transaction {
    coordinator: Coordinator,
    id: TransactionId,
    branches: Vec<Enlisted>,
    local: Option<holdfast::Transaction>,
    role: Role,
    /// Who decides, once a branch of it is enlisted as the last resource's.
    last: Option<Arc<dyn LastResource>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It decides.
    Superior,
    /// Another program does.
    Joined,
    /// It was ended, one way or another.
    Over,
}

/// All of it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Branches that could not be told yet. Their resource managers hold them prepared, and recovery commits them.
    pub pending: Vec<BranchName>,
}

/// It is not, or not surely, committed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", words_of(*outcome), reasons.join("; "))]
pub struct Failed {
    /// What became of it.
    pub outcome: Outcome,
    /// Why, in the words of those who were asked.
    pub reasons: Vec<String>,
    /// Branches that could not be told yet; recovery sees to them.
    pub pending: Vec<BranchName>,
}

/// How an outcome is called.
fn words_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "rolled back",
        Outcome::Mixed => "partly committed and partly rolled back",
        Outcome::Hazard => "perhaps partly committed and partly rolled back",
        Outcome::Unknown => "not known whether it is committed",
    }
}

impl Transaction {
    pub(crate) fn begun(coordinator: Coordinator, id: TransactionId) -> Self {
        Self::new(coordinator, id, Role::Superior, None)
    }

    pub(crate) fn begun_with_last(coordinator: Coordinator, id: TransactionId, last: Arc<dyn LastResource>) -> Self {
        Self::new(coordinator, id, Role::Superior, Some(last))
    }

    pub(crate) fn joined(coordinator: Coordinator, id: TransactionId) -> Self {
        Self::new(coordinator, id, Role::Joined, None)
    }

    fn new(coordinator: Coordinator, id: TransactionId, role: Role, last: Option<Arc<dyn LastResource>>) -> Self {
        Self { coordinator, id, branches: Vec::new(), local: None, role, last }
    }

    /// Its id. As text it fits into a header: another program joins by it.
    #[must_use]
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// The name of this transaction's branch in a resource manager.
    ///
    /// # Errors
    /// `Invalid` when the resource manager's name cannot be one.
    pub fn xid(&self, manager: &str) -> Result<Xid> {
        let branch = BranchName::new(manager)
            .map_err(|error| Error { kind: ErrorKind::Invalid, text: format!("{manager:?} is no name: {error}") })?;
        Ok(Xid { transaction: self.id, branch })
    }

    /// Takes a branch that was started under [`Self::xid`] into the transaction. Branches commit side by side, but for those of a
    /// coordinator that was opened by a profile: they commit in its order.
    ///
    /// # Errors
    /// `Invalid` when there is a branch of this name. Of a joined transaction also as [`crate::Decisions::enlist`]; then the
    /// branch is dropped, and so rolled back.
    pub async fn enlist(&mut self, name: &BranchName, branch: impl Branch + 'static) -> Result<()> {
        self.enlist_in_order(name, self.coordinator.usual_order(name), branch).await
    }

    /// As [`Self::enlist`], with the place in the order of commits: those with a lower number commit first.
    ///
    /// # Errors
    /// As [`Self::enlist`].
    pub async fn enlist_in_order(
        &mut self,
        name: &BranchName,
        order: u32,
        branch: impl Branch + 'static,
    ) -> Result<()> {
        self.enlist_as(Enlisted { name: name.clone(), order, is_last: false, branch: Box::new(branch) }).await
    }

    /// As [`Self::enlist`], for the branch of the last resource that the transaction was begun with
    /// ([`Coordinator::begin_with_last`]): it is not prepared, and its commit, which comes before all others', is the decision.
    ///
    /// # Errors
    /// As [`Self::enlist`]; `Invalid` also when the transaction was begun without a last resource, or has its branch already.
    pub async fn enlist_last(&mut self, name: &BranchName, branch: impl Branch + 'static) -> Result<()> {
        let invalid = |text: &str| Err(Error { kind: ErrorKind::Invalid, text: text.to_owned() });
        if self.last.is_none() {
            return invalid("the transaction was begun without a last resource: use `begin_with_last`");
        }
        if self.branches.iter().any(|enlisted| enlisted.is_last) {
            return invalid("the transaction has the branch of its last resource already");
        }
        self.enlist_as(Enlisted { name: name.clone(), order: 0, is_last: true, branch: Box::new(branch) }).await
    }

    async fn enlist_as(&mut self, enlisting: Enlisted) -> Result<()> {
        let name = &enlisting.name;
        if self.branches.iter().any(|enlisted| enlisted.name == *name) {
            return Err(Error { kind: ErrorKind::Invalid, text: format!("there is a branch {name} already") });
        }
        if self.role == Role::Joined {
            let (id, names) = (self.id, [name.clone()]);
            self.coordinator.ask(move |decisions| decisions.enlist(id, &names)).await?;
        }
        self.branches.push(enlisting);
        Ok(())
    }

    /// Changes in the coordinator's own store, when that is in the process: they are made in the one batch in which the
    /// decision is written, and cost nothing more. Of a transaction that was not begun as shared.
    ///
    /// # Errors
    /// `Invalid` where there is no such store, and for shared transactions.
    pub fn kv(&mut self) -> Result<&mut holdfast::Transaction> {
        let invalid = |text: &str| Error { kind: ErrorKind::Invalid, text: text.to_owned() };
        let store =
            self.coordinator.store().ok_or_else(|| invalid("the coordinator's store is not in this process"))?;
        if self.id.shared {
            return Err(invalid("a shared transaction cannot change the coordinator's store"));
        }
        Ok(self.local.get_or_insert_with(|| store.begin()))
    }

    /// Commits: prepares all branches, decides, and commits them. Once it returns, the decision is as durable as the
    /// coordinator was told to make it.
    ///
    /// # Errors
    /// [`Failed`] says what became of it. After an outcome that is unknown nothing has to be done but not to believe in
    /// either, nor to repeat the work: the branches will end alike.
    pub async fn commit(mut self) -> std::result::Result<Committed, Failed> {
        if self.role == Role::Joined {
            let reason = "another program began this transaction, and decides: use `prepare`".to_owned();
            let rolled_back = self.end(Ending::Rollback).await;
            return Err(Failed { reasons: vec![reason], ..failed(rolled_back) });
        }
        self.end(Ending::Commit).await.committed()
    }

    /// As [`Self::commit`], with a transaction of the coordinator's own engines on a server: keys, entries and points, in the one batch
    /// in which the decision is written. `decide` is called once all branches are prepared, with the id and their names: it notes
    /// the decision in that transaction and commits it, as `Transaction::decide` and `Transaction::commit` of the client library
    /// do. It is dropped when it does not come to that, and so is rolled back what it holds. Without a name no branch had to be
    /// prepared, and there is nothing to note: it commits what it holds all the same.
    ///
    /// # Errors
    /// As [`Self::commit`]; `Unknown` also when no branch had to be prepared and the answer was lost: by reading the data it is
    /// known. Of a shared transaction, and where [`Self::kv`] was used too, all is rolled back.
    pub async fn commit_with<F>(
        mut self,
        decide: impl FnOnce(TransactionId, Vec<BranchName>) -> F + Send + 'static,
    ) -> std::result::Result<Committed, Failed>
    where
        F: Future<Output = holdfast::Result<()>> + Send + 'static,
    {
        if self.id.shared || self.local.is_some() {
            let reason =
                "a shared transaction, and one that changes the coordinator's store by `kv`, is committed by `commit`";
            let rolled_back = self.end(Ending::Rollback).await;
            return Err(Failed { reasons: vec![reason.to_owned()], ..failed(rolled_back) });
        }
        let id = self.id;
        let decide: WaitForDecision = Box::new(move |prepared| {
            let is_decision = !prepared.is_empty();
            // A task of its own: if it panics, prepared branches are not left to themselves.
            let deciding = tokio::spawn(async move { decide(id, prepared).await });
            Box::pin(async move {
                match deciding.await {
                    Ok(decided) => decided.map_err(|error| of_batch_elsewhere(error, is_decision)),
                    Err(error) => Err(Error { kind: ErrorKind::Unknown, text: format!("deciding panicked: {error}") }),
                }
            })
        });
        self.end(Ending::CommitWith(decide)).await.committed()
    }

    /// Rolls back.
    ///
    /// # Errors
    /// [`Failed`] when a resource manager had committed by itself. What cannot be reached rolls back by itself or is rolled
    /// back by recovery, and is no error.
    pub async fn rollback(mut self) -> std::result::Result<(), Failed> {
        let ended = self.end(Ending::Rollback).await;
        if ended.outcome == Outcome::RolledBack { Ok(()) } else { Err(failed(ended)) }
    }

    /// Ends this program's part of a transaction that it joined: prepares its branches, says so to the coordinator, waits
    /// for what the other program decides, and does it. A part that changed nothing ends at once, as committed.
    ///
    /// # Errors
    /// [`Failed`] when it is rolled back, for whatever reason: also because nothing was decided within `patience`, which
    /// rolls all of the transaction back. `Unknown` when the coordinator could not be asked: then the branches stay
    /// prepared, and recovery completes them.
    pub async fn prepare(mut self, patience: Duration) -> std::result::Result<Committed, Failed> {
        if self.role == Role::Superior {
            let reason = "this program began the transaction, and decides: use `commit`".to_owned();
            let rolled_back = self.end(Ending::Rollback).await;
            return Err(Failed { reasons: vec![reason], ..failed(rolled_back) });
        }
        self.end(Ending::Prepare(patience)).await.committed()
    }

    /// Prepares this program's branches, and leaves deciding to whichever program resumes the transaction
    /// ([`Coordinator::resume`]): send it the id when this has returned. Nobody can commit it before.
    ///
    /// With a timeout it goes on until then, also when this program ends. Without one it is rolled back soon after this program has ended, or cannot
    /// reach the coordinator for longer than its lease. A restart of the coordinator rolls it back unless it is decided.
    ///
    /// # Errors
    /// [`Failed`]: it is rolled back, because a branch could not be prepared, the transaction was not begun as a shared one, or it is
    /// too late. `Unknown` when the coordinator could not be asked: the branches will end alike. A future that is dropped before it
    /// has answered rolls it back, unless all branches had voted.
    pub async fn suspend(mut self) -> std::result::Result<Suspended, Failed> {
        let id = self.id;
        let told = if self.role == Role::Superior && id.shared {
            let names: Vec<BranchName> = self.branches.iter().map(|branch| branch.name.clone()).collect();
            self.coordinator.ask(move |decisions| decisions.suspend(id, &names)).await
        } else {
            let text = "only the program that decides about a shared transaction can suspend it".to_owned();
            Err(Error { kind: ErrorKind::Invalid, text })
        };
        if let Err(error) = told {
            let rolled_back = self.end(Ending::Rollback).await;
            return Err(Failed { reasons: vec![error.text], ..failed(rolled_back) });
        }
        let (signals, waiting) = suspended::signals();
        let task = self.start(Ending::Suspend(signals));
        waiting.voted(id, task).await
    }

    /// Runs to the end in a task of its own, so that dropping the caller's future leaves nothing half done.
    async fn end(&mut self, ending: Ending) -> Ended {
        match self.start(ending).await {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn start(&mut self, ending: Ending) -> JoinHandle<Ended> {
        let (branches, local, last) = (std::mem::take(&mut self.branches), self.local.take(), self.last.take());
        let parts = Parts { branches, local, last };
        let role = std::mem::replace(&mut self.role, Role::Over);
        tokio::spawn(run(self.coordinator.clone(), self.id, role, parts, ending))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Of a shared one the other programs hear, so that they need not wait.
        if self.role == Role::Over || (self.branches.is_empty() && !self.id.shared) {
            return;
        }
        let parts = Parts { branches: std::mem::take(&mut self.branches), local: None, last: None };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut rolled_back = Box::pin(run(self.coordinator.clone(), self.id, self.role, parts, Ending::Rollback));
            // The first requests are on their way when this returns: what the program asks of the same connections next, a new
            // branch for example, must not come before them.
            if rolled_back.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                runtime.spawn(rolled_back);
            }
        }
    }
}

enum Ending {
    Commit,
    CommitWith(WaitForDecision),
    Rollback,
    Prepare(Duration),
    Suspend(Signals),
}

fn failed(ended: Ended) -> Failed {
    Failed { outcome: ended.outcome, reasons: ended.reasons, pending: ended.pending }
}

impl Ended {
    pub(crate) fn committed(self) -> std::result::Result<Committed, Failed> {
        match self.outcome {
            Outcome::Committed => Ok(Committed { pending: self.pending }),
            _ => Err(failed(self)),
        }
    }
}

struct Parts {
    branches: Vec<Enlisted>,
    local: Option<holdfast::Transaction>,
    last: Option<Arc<dyn LastResource>>,
}

impl Parts {
    /// The last resource's branch, if that is to decide: what the coordinator's store has to do is decided there.
    fn deciding(&self) -> Option<usize> {
        let at = self.branches.iter().position(|branch| branch.is_last)?;
        (self.last.is_some() && self.local.is_none()).then_some(at)
    }
}

async fn run(coordinator: Coordinator, id: TransactionId, role: Role, parts: Parts, ending: Ending) -> Ended {
    let deciding = parts.deciding();
    let Parts { branches, local, last } = parts;
    let other = match (role, &local) {
        (Role::Superior, _) if id.shared => OtherWork::Shared,
        (_, Some(_)) => OtherWork::Local,
        _ => OtherWork::Nothing,
    };
    let orders: Vec<u32> = branches.iter().map(|branch| branch.order).collect();
    let names: Vec<BranchName> = branches.iter().map(|branch| branch.name.clone()).collect();
    // Who prepares for another program's decision fails the whole when it cannot.
    let is_part = matches!(ending, Ending::Prepare(_) | Ending::Suspend(_));
    let (machine, decide): (_, Decide) = match (ending, local) {
        (Ending::Rollback, _) => (TwoPhase::rollback(branches.len(), other), coordinator.decide(id)),
        (Ending::Commit, None) => match deciding {
            Some(at) => (TwoPhase::commit_with_last(&orders, at), coordinator.copy(id)),
            None => (TwoPhase::commit(&orders, other), coordinator.decide(id)),
        },
        (Ending::Commit, Some(local)) => {
            let store = coordinator.store().expect("what is of the store came from it").clone();
            let durability = store.durability();
            let decide = Decide::call(move |prepared| {
                commit_with_decision(&store, local, OwnDecision { id, prepared, durability })
            });
            (TwoPhase::commit(&orders, other), decide)
        }
        (Ending::CommitWith(decide), _) => (TwoPhase::commit(&orders, OtherWork::Local), Decide::Wait(decide)),
        // The decision is made elsewhere; here it is waited for. So a single branch is prepared, too.
        (Ending::Prepare(patience), _) => {
            let (waiting, all) = (coordinator.clone(), names.clone());
            let decide = Decide::call(move |prepared| wait_for_decision(&waiting, id, (&all, prepared), patience));
            (TwoPhase::commit(&orders, OtherWork::Elsewhere), decide)
        }
        (Ending::Suspend(signals), _) => {
            let decide = suspended::decide(coordinator.clone(), id, names.clone(), signals);
            (TwoPhase::commit(&orders, OtherWork::Elsewhere), decide)
        }
    };
    let waits = is_part || deciding.is_some();
    let waiting = if waits { Waiting::Aside } else { coordinator.waiting() };
    let drive = Drive { decisions: coordinator.decisions(), waiting, id, decide, last };
    let ended = drive.run(machine, branches).await;
    if (role == Role::Joined || is_part) && ended.outcome != Outcome::Committed {
        // The others must not commit without this part. Should it be decided already, nothing is said by that.
        let vote = move |decisions: &dyn crate::Decisions| {
            names.iter().try_for_each(|name| decisions.prepared(id, name, Vote::Failed))
        };
        if ended.outcome != Outcome::Unknown {
            let _ = coordinator.ask(vote).await;
        }
    }
    if !ended.pending.is_empty() {
        coordinator.hurry_recovery();
    }
    ended
}

/// Why a batch failed that the program sent, perhaps more than once: only the coordinator knows whether it was decided, if it was.
fn of_batch_elsewhere(error: holdfast::Error, is_decision: bool) -> Error {
    match of_batch(error) {
        error if is_decision && error.kind != ErrorKind::Aborted => Error { kind: ErrorKind::Unknown, ..error },
        error => error,
    }
}

/// Says how this program's branches voted. Blocks.
pub(crate) fn vote(
    decisions: &dyn Decisions,
    id: TransactionId,
    all: &[BranchName],
    prepared: &[BranchName],
) -> Result<()> {
    for name in all {
        let part = if prepared.contains(name) { Vote::Prepared } else { Vote::ReadOnly };
        decisions.prepared(id, name, part).map_err(|error| match error.kind {
            ErrorKind::Aborted => error,
            // The vote may have been taken and its answer lost, and the transaction be committed by now: then it is refused as
            // coming too late. Only a verdict tells.
            _ => Error { kind: ErrorKind::Unknown, ..error },
        })?;
    }
    Ok(())
}

/// What a verdict says about the decision; `None` while there is none.
pub(crate) fn decision_of(verdict: Option<Verdict>) -> Option<Result<()>> {
    let aborted = |text: &str| Some(Err(Error { kind: ErrorKind::Aborted, text: text.to_owned() }));
    match verdict {
        Some(Verdict::Commit) => Some(Ok(())),
        Some(Verdict::Rollback) => {
            aborted("the transaction is rolled back, by another program or because nobody decided in time")
        }
        Some(Verdict::Foreign) => aborted("the coordinator does not know this transaction"),
        Some(Verdict::Leave | Verdict::LastResource) | None => None,
    }
}

/// Says that this program's branches are prepared, and waits for the verdict on them. Blocks.
fn wait_for_decision(
    coordinator: &Coordinator,
    id: TransactionId,
    (all, prepared): (&[BranchName], &[BranchName]),
    patience: Duration,
) -> Result<()> {
    let decisions = coordinator.decisions();
    vote(&*decisions, id, all, prepared)?;
    if prepared.is_empty() {
        // Nothing was changed here. What is decided does not concern this part, and nobody would remember it for it.
        return Ok(());
    }
    let start = std::time::Instant::now();
    let [mut pause, longest] = QUESTION_PAUSE;
    loop {
        let verdict = decisions.verdicts(&[id]).map(|verdicts| decision_of(verdicts.first().copied()));
        match verdict {
            Ok(Some(decision)) => return decision,
            Ok(None) | Err(_) if start.elapsed() < patience => {}
            Ok(None) => {
                let text = format!("nothing was decided within {patience:?}");
                return Err(Error { kind: ErrorKind::Unknown, text });
            }
            Err(error) => return Err(Error { kind: ErrorKind::Unknown, ..error }),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}
