//! A transaction that this program has suspended: its branches wait, prepared, for what another program decides.
//!
//! The task that prepared them goes on as long as there is somebody who wants to finish it: it signals that it has voted,
//! waits for the signal to finish, and asks for the verdict from then on.
//!
//! May use: `transaction`, `drive`, `coordinator`. Must not know: resource managers, where the coordinator is.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xa::{BranchName, TransactionId};

use crate::coordinator::Coordinator;
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
    finish: oneshot::Sender<()>,
}

pub(crate) fn signals() -> (Signals, Waiting) {
    let ((voted, has_voted), (finish, may_finish)) = (oneshot::channel(), oneshot::channel());
    (Signals { voted, finish: may_finish }, Waiting { voted: has_voted, finish })
}

impl Waiting {
    /// Once all branches have voted.
    pub(crate) async fn voted(self, id: TransactionId, task: JoinHandle<Ended>) -> Result<Suspended, Failed> {
        let mut suspended = Suspended { id, finish: Some(self.finish), task };
        match self.voted.await {
            Ok(()) => Ok(suspended),
            Err(_) => match suspended.ended().await.committed() {
                Ok(_) => unreachable!("nothing is committed before all have voted"),
                Err(failed) => Err(failed),
            },
        }
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
        match tokio::time::timeout(patience, self.ended()).await {
            Ok(ended) => ended.committed().map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn ended(&mut self) -> Ended {
        match (&mut self.task).await {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
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
        // Who waits for it has gone when it cannot be sent; then nobody finishes it either.
        let _ = signals.voted.send(());
        if changes_nothing {
            // What is decided does not concern this part, and nobody would remember it for it.
            return Ok(());
        }
        if signals.finish.await.is_err() {
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
