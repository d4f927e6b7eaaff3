//! A command that takes longer than the event loop may wait: it runs in a thread of its own, and its connection waits.
//!
//! Of a door only so many run at a time, and so many writes of points that are held back; the others wait for their turn, in order. What has not begun when its connection
//! closes never does.
//!
//! May use: `call` for the failure, `reply`, `session` for what a reply needs. Must not know: sockets, what commands do.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::call::Fail;
use super::reply::{Form, Reply};
use super::session::Need;

type Run = Box<dyn FnOnce(&mut Reply) -> Result<Need, Fail> + Send>;

/// A command to be run elsewhere. It writes its reply and says how durable what it shows must be.
pub(crate) struct Work {
    run: Run,
    form: Form,
    bytes_max: usize,
    /// Whether its reply is to be sent.
    pub(crate) is_silent: bool,
    /// Among whom it waits for its turn.
    pub(crate) turn: Turn,
}

/// Why a command is run elsewhere. Of each kind so many run at a time, so that none keeps the others from their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It takes long.
    Long,
    /// It writes points, and is held back.
    HeldWrite,
    /// It waits for the lock of a transaction.
    Lock,
}

/// A reply that was written elsewhere.
pub(crate) type Worked = Result<(Vec<u8>, Need), Fail>;

impl Work {
    /// `run` is to write a reply of this form, of `bytes_max` at most.
    pub(crate) fn new(
        form: Form,
        bytes_max: usize,
        is_silent: bool,
        run: impl FnOnce(&mut Reply) -> Result<Need, Fail> + Send + 'static,
    ) -> Self {
        Work { run: Box::new(run), form, bytes_max, is_silent, turn: Turn::Long }
    }

    /// It waits for its turn among these.
    pub(crate) fn of(self, turn: Turn) -> Self {
        Work { turn, ..self }
    }

    /// Runs it here. Blocks.
    pub(crate) fn run(self) -> Worked {
        let mut reply = Reply::of_form(self.form, self.bytes_max);
        let need = (self.run)(&mut reply)?;
        if reply.take_overflow() {
            return Err(Fail::TooBig(self.bytes_max));
        }
        Ok((reply.take(Vec::new()), need))
    }

    /// Runs it in a thread that may block, when it is its turn.
    pub(crate) async fn run_elsewhere(self, turns: Arc<Semaphore>) -> Worked {
        elsewhere(turns, || self.run()).await
    }
}

/// Runs something in a thread that may block, when it is its turn.
pub(crate) async fn elsewhere<T: Send + 'static>(
    turns: Arc<Semaphore>,
    run: impl FnOnce() -> Result<T, Fail> + Send + 'static,
) -> Result<T, Fail> {
    let Ok(turn) = turns.acquire_owned().await else {
        return Err("UNAVAILABLE the door is closing".into());
    };
    let run = move || {
        // The turn ends with the work, also when nobody waits for its reply any more.
        let _turn = turn;
        run()
    };
    match tokio::task::spawn_blocking(run).await {
        Ok(worked) => worked,
        Err(error) => {
            tracing::error!(%error, "a long command ended without an answer");
            Err("ERR internal error".into())
        }
    }
}
