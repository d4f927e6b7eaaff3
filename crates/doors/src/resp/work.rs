//! A command that takes longer than the event loop may wait: it runs in a thread of its own, and its connection waits.
//!
//! Of a door only so many run at a time, and so many writes of points that are held back; the others wait for their turn, in order. What only
//! reads and has not begun when its client is gone never does.
//!
//! A large reply needs room among what all clients are owed, and how large it becomes nobody knows before. Who only reads lets go of a
//! reply for which there is none, waits for so much without a turn, so that those with small ones go on, and does it again.
//!
//! May use: `call` for the failure, `reply`, `session` for what a reply needs, the budget. Must not know: sockets, what commands do.

use std::sync::Arc;

use holdfast::Durability;
use holdfast::space::Cancel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::call::Fail;
use super::reply::{Form, Reply};
use super::session::Need;
use crate::budget::{Budget, Share};

type Once = Box<dyn FnOnce(&mut Reply) -> Result<Need, Fail> + Send>;
type Again = Box<dyn FnMut(&mut Reply) -> Result<Need, Fail> + Send>;

enum Run {
    Once(Once),
    Again(Again),
}

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
    /// What an open transaction is to know of it, that was not known before it ran.
    pub(crate) within: Within,
}

/// What a script has done within an open transaction.
#[derive(Default)]
pub(crate) struct Within {
    /// How durable what it has changed is to be.
    pub(crate) asked: Option<Durability>,
    /// Bytes of arguments that are kept for the commit beside what is staged.
    pub(crate) kept_bytes: u64,
}

impl Written {
    pub(crate) fn new(reply: Vec<u8>, need: Need) -> Self {
        Written { reply, need, room: Share::default(), within: Within::default() }
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
        Work { run: Run::Once(Box::new(run)), form, bytes_max, is_silent, turn: Turn::Long }
    }

    /// As [`Work::new`], of what changes nothing, so that it may be done again.
    pub(crate) fn again(
        form: Form,
        bytes_max: usize,
        is_silent: bool,
        run: impl FnMut(&mut Reply) -> Result<Need, Fail> + Send + 'static,
    ) -> Self {
        Work { run: Run::Again(Box::new(run)), form, bytes_max, is_silent, turn: Turn::Long }
    }

    /// It waits for its turn among these.
    pub(crate) fn of(self, turn: Turn) -> Self {
        Work { turn, ..self }
    }

    /// Runs it here. Blocks.
    #[cfg(test)]
    pub(crate) fn run(self) -> Worked {
        match self.run {
            Run::Once(run) => written(self.form, self.bytes_max, run),
            Run::Again(run) => written(self.form, self.bytes_max, run),
        }
    }

    /// Runs it in a thread that may block, when it is its turn, for a client that is there until `gone`.
    pub(crate) async fn run_elsewhere(self, elsewhere: Elsewhere, gone: Cancel) -> Worked {
        let (form, bytes_max) = (self.form, self.bytes_max);
        let bytes = |written: &Written| written.reply.len();
        let (written, room) = match self.run {
            Run::Once(run) => {
                let done = elsewhere.run(move || written(form, bytes_max, run)).await?;
                let room = elsewhere.room_for(bytes(&done));
                (done, room)
            }
            Run::Again(mut run) => {
                elsewhere.run_again(&gone, move || written(form, bytes_max, &mut run), bytes).await?
            }
        };
        Ok(Written { room, ..written })
    }
}

fn written(form: Form, bytes_max: usize, run: impl FnOnce(&mut Reply) -> Result<Need, Fail>) -> Worked {
    let mut reply = Reply::of_form(form, bytes_max);
    let need = run(&mut reply)?;
    if reply.take_overflow() {
        return Err(Fail::TooBig(bytes_max));
    }
    Ok(Written::new(reply.take(Vec::new()), need))
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
        let turn = self.turn().await?;
        let run = move || {
            // The turn ends with the work, also when nobody waits for its reply any more.
            let _turn = turn;
            run()
        };
        tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a long command ended without an answer");
            Err("ERR internal error".into())
        })
    }

    /// Runs what only reads when it is its turn, again if need be until there is room for what it wrote: so many bytes. Not for a client
    /// that is gone.
    pub(crate) async fn run_again<T: Send + 'static>(
        &self,
        gone: &Cancel,
        run: impl FnMut() -> Result<T, Fail> + Send + 'static,
        bytes: impl Fn(&T) -> usize,
    ) -> Result<(T, Share), Fail> {
        let (mut run, mut room) = (run, Share::default());
        loop {
            let (still, mut begins) = (gone.clone(), run);
            let (ran, back) = self
                .run(move || {
                    let ran = if still.is_canceled() { Err("ERR the client is gone".into()) } else { begins() };
                    Ok((ran, begins))
                })
                .await?;
            run = back;
            let ran = ran?;
            let bytes = bytes(&ran);
            if bytes <= self.free_bytes {
                return Ok((ran, Share::default()));
            }
            if self.replies.is_all(&room) || self.replies.grow(&mut room, bytes).is_ok() {
                room.shrink(bytes);
                return Ok((ran, room));
            }
            drop((ran, room));
            room = self.replies.wait(bytes).await;
        }
    }

    /// Room for a reply that is there, as far as there is some.
    pub(crate) fn room_for(&self, bytes: usize) -> Share {
        let mut room = Share::default();
        if bytes > self.free_bytes {
            let _ = self.replies.grow(&mut room, bytes);
        }
        room
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, Fail> {
        self.turns.clone().acquire_owned().await.map_err(|_| "UNAVAILABLE the door is closing".into())
    }
}
