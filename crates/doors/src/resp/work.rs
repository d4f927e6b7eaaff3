//! A command that takes longer than the event loop may wait: it runs in a thread of its own, and its connection waits.
//!
//! Of a door only so many run at a time, and so many writes of points that are held back; the others wait for their turn, in order. What has not begun when its connection
//! closes never does. A large reply keeps the turn until there is room for it among what all clients are owed: how large it becomes
//! nobody knows before, so this bounds how many are in memory without room.
//!
//! May use: `call` for the failure, `reply`, `session` for what a reply needs, the budget. Must not know: sockets, what commands do.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::call::Fail;
use super::reply::{Form, Reply};
use super::session::Need;
use crate::budget::{Budget, Share};

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
pub(crate) struct Written {
    pub(crate) reply: Vec<u8>,
    pub(crate) need: Need,
    /// Its room among what all clients are owed, if it is large.
    pub(crate) room: Share,
}

impl Written {
    pub(crate) fn new(reply: Vec<u8>, need: Need) -> Self {
        Written { reply, need, room: Share::default() }
    }
}

/// What came of a command that ran elsewhere.
pub(crate) type Worked = Result<Written, Fail>;

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
        Ok(Written::new(reply.take(Vec::new()), need))
    }

    /// Runs it in a thread that may block, when it is its turn.
    pub(crate) async fn run_elsewhere(self, elsewhere: Elsewhere) -> Worked {
        let bytes = |written: &Written| written.reply.len();
        let (written, room) = elsewhere.run_for(|| self.run(), bytes).await?;
        Ok(Written { room, ..written })
    }
}

/// Threads that may block, and room for what they write.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) replies: Budget,
    /// A reply of so many bytes needs no room.
    pub(crate) free_bytes: usize,
}

impl Elsewhere {
    /// Runs something when it is its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> Result<T, Fail> + Send + 'static,
    ) -> Result<T, Fail> {
        self.run_for(run, |_| 0).await.map(|(ran, _)| ran)
    }

    /// Runs something when it is its turn, which it has until there is room for what it wrote: so many bytes.
    pub(crate) async fn run_for<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> Result<T, Fail> + Send + 'static,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<(T, Share), Fail> {
        let Ok(turn) = self.turns.clone().acquire_owned().await else {
            return Err("UNAVAILABLE the door is closing".into());
        };
        // The turn does not end before the work, also when nobody waits for its reply any more.
        let (ran, turn) = tokio::task::spawn_blocking(move || (run(), turn)).await.map_err(|error| {
            tracing::error!(%error, "a long command ended without an answer");
            Fail::from("ERR internal error")
        })?;
        let ran = ran?;
        let bytes = bytes(&ran);
        let room = if bytes > self.free_bytes { self.replies.wait(bytes).await } else { Share::default() };
        drop(turn);
        Ok((ran, room))
    }
}
