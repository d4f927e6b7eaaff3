//! A transaction that this program has suspended: its branches wait, prepared, for what another program decides.
//!
//! The task that prepared them goes on as long as there is somebody who wants to finish it: it signals that it has voted,
//! waits for the signal to finish, and asks for the verdict from then on.
//!
//! May use: `transaction`, `drive`, `coordinator`. Must not know: resource managers, where the coordinator is.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use xa::{BranchName, TransactionId, TwoPhaseOutcome as Outcome};

use crate::coordinator::Coordinator;
use crate::decisions::{Error, ErrorKind};
use crate::drive::{Decide, Ended};
use crate::transaction::{Committed, Failed, QUESTION_PAUSE, decision_of, vote};

/// A transaction that this program has suspended.
///
/// Its branches are prepared and hold their locks. Dropping it leaves them to recovery, which carries out what is decided.
pub struct Suspended {
    id: TransactionId,
    finish: Option<oneshot::Sender<()>>,
    task: JoinHandle<Ended>,
}

/// What the task says and hears.
pub(crate) struct Signals {
    voted: oneshot::Sender<()>,
    finish: oneshot::Receiver<()>,
}

/// The other ends.
pub(crate) struct Waiting {
    voted: oneshot::Receiver<()>,
    finish: Option<oneshot::Sender<()>>,
}

pub(crate) fn signals() -> (Signals, Waiting) {
    let ((voted, has_voted), (finish, may_finish)) = (oneshot::channel(), oneshot::channel());
    (Signals { voted, finish: may_finish }, Waiting { voted: has_voted, finish: Some(finish) })
}

/// Whoever waits until all have voted. If it goes before, the task gives up, because it cannot say so.
struct Suspending {
    waiting: Waiting,
    task: Option<JoinHandle<Ended>>,
}

impl Drop for Suspending {
    fn drop(&mut self) {
        // From here on it cannot be said.
        self.waiting.voted.close();
        if let Some(task) = self.task.take()
            && self.waiting.voted.try_recv().is_ok()
        {
            // It was said, and not heard: as dropping what would have been returned.
            task.abort();
        }
    }
}

impl Waiting {
    /// Once all branches have voted.
    pub(crate) async fn voted(self, id: TransactionId, task: JoinHandle<Ended>) -> Result<Suspended, Failed> {
        let mut suspending = Suspending { waiting: self, task: Some(task) };
        let voted = (&mut suspending.waiting.voted).await.is_ok();
        let (finish, task) =
            (suspending.waiting.finish.take(), suspending.task.take().expect("it is taken here alone"));
        if voted {
            return Ok(Suspended { id, finish, task });
        }
        let ended = ended(task).await;
        match ended.outcome {
            // The answer to the last vote was lost, and another program has decided meanwhile.
            Outcome::Committed => Ok(Suspended { id, finish: None, task: tokio::spawn(std::future::ready(ended)) }),
            _ => ended.committed().map(|_| unreachable!("it is not committed")),
        }
    }
}

async fn ended(task: impl Future<Output = Result<Ended, JoinError>>) -> Ended {
    match task.await {
        Ok(ended) => ended,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Suspended {
    /// Its id, to be sent to the program that goes on with it.
    #[must_use]
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// Waits for what another program decides, and carries it out on this program's branches, whose connections serve nothing else
    /// meanwhile. `None` when nothing was decided in this time: call it again, or leave it to recovery.
    ///
    /// A part that changed nothing ends at once, as committed.
    ///
    /// # Errors
    /// [`Failed`] when it is rolled back, for whatever reason.
    ///
    /// # Panics
    /// When it has answered already.
    pub async fn finish(&mut self, patience: Duration) -> Result<Option<Committed>, Failed> {
        if let Some(finish) = self.finish.take() {
            // It is not there when nothing has to be decided.
            let _ = finish.send(());
        }
        match tokio::time::timeout(patience, ended(&mut self.task)).await {
            Ok(ended) => ended.committed().map(Some),
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        // What is prepared stays so. Who would wait for nobody would go on to use connections that may serve others by now.
        self.task.abort();
    }
}

/// How it is decided: elsewhere, and not before somebody asks.
pub(crate) fn decide(coordinator: Coordinator, id: TransactionId, all: Vec<BranchName>, signals: Signals) -> Decide {
    let deciding = async move |prepared: Vec<BranchName>| {
        let changes_nothing = prepared.is_empty();
        coordinator.ask(move |decisions| vote(decisions, id, &all, &prepared)).await?;
        if signals.voted.send(()).is_err() {
            let text = "the program gave it up while it suspended it".to_owned();
            return Err(Error { kind: ErrorKind::Aborted, text });
        }
        if changes_nothing {
            // What is decided does not concern this part, and nobody would remember it for it.
            return Ok(());
        }
        if signals.finish.await.is_err() {
            // Nobody finishes it, and this task is about to be ended.
            return std::future::pending().await;
        }
        let [mut pause, longest] = QUESTION_PAUSE;
        loop {
            let verdicts = coordinator.ask(move |decisions| decisions.verdicts(&[id])).await;
            if let Some(decision) = verdicts.ok().and_then(|verdicts| decision_of(verdicts.first().copied())) {
                return decision;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    };
    Decide::Wait(Box::new(|prepared| Box::pin(deciding(prepared))))
}
