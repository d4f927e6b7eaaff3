//! Waiting for durability without blocking an event loop.
//!
//! One thread syncs for a whole door: connections tell it the newest position they need, it waits in the store for the
//! newest of all, and publishes how far the store is synced. While one sync runs, the next positions gather: one
//! `fdatasync` serves everybody who waits. Waiting for `written` costs one `pwrite` and is done on the event loop.
//!
//! May use: the facade, threads. Must not know: protocols, sockets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use holdfast::{Durability, Position, Store};
use tokio::sync::watch;

/// How durable a position is as far as this door knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Done,
    /// Waiting for it failed; the text is what the door answers.
    Failed(String),
}

/// What the syncer needs of the store: a seam, so that tests can make waiting fail.
pub(crate) trait Waits: Send + Sync + 'static {
    /// Blocks until `position` is as durable as asked.
    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()>;
    /// The positions before which everything is written, and synced.
    fn written_and_synced(&self) -> (Position, Position);
}

impl Waits for Store {
    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()> {
        Store::wait(self, position, durability)
    }

    fn written_and_synced(&self) -> (Position, Position) {
        let marks = self.watermarks();
        (marks.written, marks.synced)
    }
}

#[derive(Default)]
struct Target {
    position: u64,
    is_stopping: bool,
}

struct Shared {
    target: Mutex<Target>,
    wake: Condvar,
    /// Everything before this position is synced.
    synced: AtomicU64,
    /// Everything before this position has been handed to the operating system.
    written: AtomicU64,
    /// Waiting for what is between `synced` and here, inclusive, failed.
    failed: Mutex<(u64, String)>,
    failed_to: AtomicU64,
    changed: watch::Sender<u64>,
    describe: Describe,
}

/// What a door answers when the store fails.
pub(crate) type Describe = fn(&holdfast::Error) -> String;

/// The thread that waits for syncs, and what it knows.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    store: Arc<dyn Waits>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Syncer {
    /// Starts the thread of the door called `door`.
    pub(crate) fn start(store: impl Waits, door: &str, describe: Describe) -> Self {
        let store: Arc<dyn Waits> = Arc::new(store);
        let (written, synced) = store.written_and_synced();
        let shared = Arc::new(Shared {
            target: Mutex::new(Target::default()),
            wake: Condvar::new(),
            synced: AtomicU64::new(synced.get()),
            written: AtomicU64::new(written.get()),
            failed: Mutex::new((0, String::new())),
            failed_to: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            describe,
        });
        let (of_thread, store_of_thread) = (shared.clone(), store.clone());
        let thread = std::thread::Builder::new()
            .name(format!("{door}-sync"))
            .spawn(move || of_thread.run(&*store_of_thread))
            .map_err(|error| tracing::error!(%error, "cannot start the thread that waits for syncs; waiting on the event loop"))
            .ok();
        Syncer { shared, store, thread: Mutex::new(thread) }
    }

    /// Counts up whenever [`Syncer::synced`] may answer something new.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Asks for `position` to be synced. Does not block.
    pub(crate) fn want(&self, position: Position) {
        let mut target = self.shared.target.lock().unwrap_or_else(PoisonError::into_inner);
        if target.position < position.get() {
            target.position = position.get();
            self.shared.wake.notify_one();
        }
    }

    /// Whether `position` is synced. Does not block.
    pub(crate) fn synced(&self, position: Position) -> State {
        if self.is_synced(position) {
            return State::Done;
        }
        if position.get() <= self.shared.failed_to.load(Ordering::Acquire) {
            return State::Failed(self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).1.clone());
        }
        State::Waiting
    }

    /// Whether `position` is known to be synced.
    pub(crate) fn is_synced(&self, position: Position) -> bool {
        position == Position::ZERO || position.get() < self.shared.synced.load(Ordering::Acquire)
    }

    /// Whether `position` is known to be written.
    pub(crate) fn is_written(&self, position: Position) -> bool {
        position == Position::ZERO || position.get() < self.shared.written.load(Ordering::Acquire)
    }

    /// Waits until `position` is written, which is one `pwrite` at most.
    pub(crate) fn wait_written(&self, position: Position) -> State {
        if self.is_written(position) {
            return State::Done;
        }
        match self.store.wait(position, Durability::Written) {
            Ok(()) => {
                self.shared.written.fetch_max(position.get() + 1, Ordering::AcqRel);
                State::Done
            }
            Err(error) => State::Failed((self.shared.describe)(&error)),
        }
    }

    /// Waits until `position` is as durable as a window promises.
    pub(crate) fn wait_window(&self, position: Position, window: holdfast::Window) -> State {
        match self.store.wait(position, Durability::Window(window)) {
            Ok(()) => State::Done,
            Err(error) => State::Failed((self.shared.describe)(&error)),
        }
    }

    /// Ends the thread after the sync it is in.
    pub(crate) fn stop(&self) {
        self.shared.target.lock().unwrap_or_else(PoisonError::into_inner).is_stopping = true;
        self.shared.wake.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that waits for syncs has panicked");
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self, store: &dyn Waits) {
        let mut done = 0;
        loop {
            let target = {
                let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
                while target.position <= done && !target.is_stopping {
                    target = self.wake.wait(target).unwrap_or_else(PoisonError::into_inner);
                }
                if target.position <= done {
                    return;
                }
                target.position
            };
            done = target;
            match store.wait(Position::new(target), Durability::Synced) {
                Ok(()) => {
                    // More may have been synced in the same breath.
                    let synced = store.written_and_synced().1.get().max(target + 1);
                    self.written.fetch_max(synced, Ordering::AcqRel);
                    self.synced.fetch_max(synced, Ordering::AcqRel);
                }
                Err(error) => {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = (target, (self.describe)(&error));
                    // What the store did sync before it failed stays true.
                    self.synced.fetch_max(store.written_and_synced().1.get(), Ordering::AcqRel);
                    self.failed_to.fetch_max(target, Ordering::AcqRel);
                }
            }
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}
