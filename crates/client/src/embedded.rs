//! A store in this process, as a client has it: what blocks there can be awaited here.
//!
//! One thread waits for syncs for all who await them: while one sync runs the next positions gather, so that N who wait cost
//! no more syncs than N threads that block would. Time comes from the client's runtime. What may wait for the lock of a
//! transaction, or sync more than once, is done in a bounded number of threads when it is awaited.
//!
//! May use: `call`, the facade, tokio's time. Must not know: operations.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use holdfast::{Durability, Error, ErrorKind, Position, Result, Shown, Store};
use tokio::sync::oneshot;

use crate::call::{Call, How, Step};
use crate::runtime::Runtime;

/// Most positions that one round of waiting answers.
const ROUND_MAX: usize = 64 << 10;

/// A store. Clones share its threads.
#[derive(Clone)]
pub(crate) struct Embedded(Arc<Inner>);

struct Inner {
    store: Store,
    runtime: Runtime,
    /// To the thread that waits for syncs, which ends when this is gone.
    syncs: Mutex<Option<Sender<Sync>>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.syncs.lock().unwrap_or_else(PoisonError::into_inner).take());
        // The store is let go of when this returns, so that it can be opened again.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Somebody who waits for a position.
struct Sync {
    position: Position,
    durability: Durability,
    answer: oneshot::Sender<Result<()>>,
}

impl Embedded {
    pub(crate) fn new(store: Store) -> Result<Self> {
        let runtime = Runtime::start()?;
        let (syncs, waiting) = channel();
        let waits = store.clone();
        let thread = std::thread::Builder::new()
            .name("holdfast-client-sync".to_owned())
            .spawn(move || wait_for_all(&waits, &waiting))
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread for the client: {error}")))?;
        Ok(Self(Arc::new(Inner { store, runtime, syncs: Mutex::new(Some(syncs)), thread: Some(thread) })))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    /// Does something that does not wait, and gives its answer when that is as durable as asked; `None` where nothing of it is
    /// in the journal.
    pub(crate) fn shown<T: Send + 'static>(
        &self,
        durability: Option<Durability>,
        run: impl FnOnce() -> Result<Shown<T>> + Send + 'static,
    ) -> Call<T> {
        let this = self.clone();
        Call::new(move |how| {
            let ran = run();
            this.settle(how, ran, durability)
        })
    }

    /// What something came to that does not wait; as an answer when what it rests on is as durable as asked, a refusal too.
    pub(crate) fn settle<T: Send + 'static>(
        &self,
        how: How,
        ran: Result<Shown<T>>,
        durability: Option<Durability>,
    ) -> Step<T> {
        match self.needs(ran, durability) {
            (result, None) => Step::Done(result),
            (result, Some((position, durability))) if how == How::Wait => {
                Step::Done(self.store().wait(position, durability).and(result))
            }
            (result, Some((position, durability))) => {
                // Asked for at once, so that those that are begun share a sync.
                let settled = self.settled(position, durability);
                Step::Running(Box::pin(async move { settled.await.and(result) }))
            }
        }
    }

    /// As [`Embedded::settle`], for who awaits already.
    pub(crate) async fn answer<T>(&self, ran: Result<Shown<T>>, durability: Option<Durability>) -> Result<T> {
        let (result, needed) = self.needs(ran, durability);
        if let Some((position, durability)) = needed {
            self.settled(position, durability).await?;
        }
        result
    }

    /// An answer, and what has to be how durable before it is given.
    fn needs<T>(
        &self,
        ran: Result<Shown<T>>,
        durability: Option<Durability>,
    ) -> (Result<T>, Option<(Position, Durability)>) {
        match ran {
            Ok(Shown { value, position }) => {
                let needed = durability.filter(|_| position != Position::ZERO);
                (Ok(value), needed.map(|durability| (position, durability)))
            }
            Err(error) => {
                let told_at = error.told_at(durability.unwrap_or(self.store().durability()));
                let needed = error.rests_on().map(|position| (position, told_at));
                (Err(error), needed)
            }
        }
    }

    /// As [`Embedded::shown`], for who writes so many points: while they come faster than they are packed into files it waits for room
    /// first, elsewhere when it is awaited.
    pub(crate) fn shown_with_room<T: Send + 'static>(
        &self,
        points: usize,
        durability: Durability,
        run: impl FnOnce() -> Result<Shown<T>> + Send + 'static,
    ) -> Call<T> {
        let this = self.clone();
        Call::new(move |how| {
            if points == 0 || !this.store().series().is_crowded() {
                return this.shown(Some(durability), run).step(how);
            }
            let here = this.clone();
            let after_room = move || {
                here.store().series().make_room(points)?;
                let (result, needed) = here.needs(run(), Some(durability));
                if let Some((position, durability)) = needed {
                    here.store().wait(position, durability)?;
                }
                result
            };
            this.elsewhere(after_room).step(how)
        })
    }

    /// Until the position is as durable as asked, without a thread.
    pub(crate) fn settled(
        &self,
        position: Position,
        durability: Durability,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let (answer, settled) = oneshot::channel();
        let syncs = self.0.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        // Without the thread the answer is dropped, which is told below.
        if let Some(syncs) = &*syncs {
            let _ = syncs.send(Sync { position, durability, answer });
        }
        drop(syncs);
        async move { settled.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the client is closed"))) }
    }

    /// Does something that may block, in another thread when it is awaited.
    pub(crate) fn elsewhere<T: Send + 'static>(&self, run: impl FnOnce() -> Result<T> + Send + 'static) -> Call<T> {
        let this = self.clone();
        Call::new(move |how| if how == How::Wait { Step::Done(run()) } else { Step::Running(Box::pin(this.off(run))) })
    }

    /// As [`Embedded::elsewhere`], for what may wait for the lock of a transaction.
    pub(crate) fn elsewhere_for_lock<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Call<T> {
        let this = self.clone();
        Call::new(move |how| match how {
            How::Wait => Step::Done(run()),
            How::Await | How::Begin => Step::Running(Box::pin(this.off_for_lock(run))),
        })
    }

    /// Runs something that may block in another thread, which begins at once.
    pub(crate) fn off<T, R>(&self, run: R) -> impl Future<Output = Result<T>> + Send + use<T, R>
    where
        T: Send + 'static,
        R: FnOnce() -> Result<T> + Send + 'static,
    {
        self.held(self.0.runtime.off(run))
    }

    /// As [`Embedded::off`], for what waits for the lock of a transaction.
    pub(crate) fn off_for_lock<T, R>(&self, run: R) -> impl Future<Output = Result<T>> + Send + use<T, R>
    where
        T: Send + 'static,
        R: FnOnce() -> Result<T> + Send + 'static,
    {
        self.held(self.0.runtime.off_for_lock(run))
    }

    /// The same, which keeps what runs it until it is done.
    fn held<F: Future + Send>(&self, done: F) -> impl Future<Output = F::Output> + Send + use<F> {
        let this = self.clone();
        async move {
            let done = done.await;
            drop(this);
            done
        }
    }

    /// What drives timers and tasks.
    pub(crate) fn handle(&self) -> &tokio::runtime::Handle {
        self.0.runtime.handle()
    }

    /// A pause that any runtime may poll.
    pub(crate) fn sleep(&self, time: std::time::Duration) -> tokio::time::Sleep {
        let _entered = self.0.runtime.handle().enter();
        tokio::time::sleep(time)
    }
}

/// Answers everybody who waits for a position, with one wait for all that came meanwhile.
fn wait_for_all(store: &Store, waiting: &Receiver<Sync>) {
    while let Ok(first) = waiting.recv() {
        let mut all = vec![first];
        while all.len() < ROUND_MAX
            && let Ok(next) = waiting.try_recv()
        {
            all.push(next);
        }
        let (synced, less): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.durability == Durability::Synced);
        // They cost one write at the most, and do not stand behind a sync.
        for one in less {
            let _ = one.answer.send(store.wait(one.position, one.durability));
        }
        let newest = synced.iter().map(|one| one.position).max().unwrap_or_default();
        let is_done = synced.is_empty() || store.wait(newest, Durability::Synced).is_ok();
        for one in synced {
            // After a failed sync what is older may be durable all the same.
            let done = if is_done { Ok(()) } else { store.wait(one.position, one.durability) };
            let _ = one.answer.send(done);
        }
    }
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
