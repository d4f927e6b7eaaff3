//! Waiting for durability without blocking an event loop.
//!
//! One thread syncs for a whole door: connections tell it the newest position they need, it waits in the store for the
//! newest of all, and publishes how far the store is synced. While one sync runs, the next positions gather: one
//! `fdatasync` serves everybody who waits. Where the disk takes so long that the store's syncs overlap, more threads do the same
//! beside it; they sleep otherwise. Waiting for `written` costs one `pwrite` and is done on the event loop.
//!
//! May use: the facade, threads. Must not know: protocols, sockets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use holdfast::{Durability, Position, Store};
use tokio::sync::{Notify, watch};

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
    /// Whether several threads that wait are served sooner than one.
    fn overlaps_syncs(&self) -> bool {
        false
    }
}

/// Most threads of a door that wait for syncs.
const THREADS: usize = 4;

impl Waits for Store {
    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()> {
        Store::wait(self, position, durability)
    }

    fn written_and_synced(&self) -> (Position, Position) {
        let marks = self.watermarks();
        (marks.written, marks.synced)
    }

    fn overlaps_syncs(&self) -> bool {
        Store::overlaps_syncs(self)
    }
}

#[derive(Default)]
struct Target {
    position: u64,
    /// The newest that a thread waits for, or has waited for.
    taken: u64,
    /// Threads that wait for syncs.
    busy: usize,
    overlaps: bool,
    is_stopping: bool,
}

impl Target {
    /// Whether a thread has something to do.
    fn is_due(&self) -> bool {
        self.position > self.taken && (self.busy == 0 || self.overlaps)
    }
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
    listeners: Mutex<Vec<Arc<Listener>>>,
    describe: Describe,
}

/// An event loop that is told of a sync only while something on it waits for one: to wake an idle thread costs more than
/// what it would find out.
#[derive(Default)]
pub(crate) struct Listener {
    waits: AtomicBool,
    told: Notify,
}

impl Listener {
    /// Returns once [`Syncer::synced`] may answer something new to who asked by [`Syncer::synced_for`].
    pub(crate) async fn told(&self) {
        self.told.notified().await;
    }
}

/// What a door answers when the store fails.
pub(crate) type Describe = fn(&holdfast::Error) -> String;

/// The threads that wait for syncs, and what they know.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    store: Arc<dyn Waits>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Syncer {
    /// Starts the threads of the door called `door`.
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
            listeners: Mutex::default(),
            describe,
        });
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let (of_thread, store_of_thread) = (shared.clone(), store.clone());
            let thread = std::thread::Builder::new()
                .name(format!("{door}-sync"))
                .spawn(move || of_thread.run(&*store_of_thread));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => {
                    tracing::error!(%error, "cannot start the thread that waits for syncs; waiting on the event loop");
                }
                // Those that are there do.
                Err(_) => {}
            }
        }
        Syncer { shared, store, threads: Mutex::new(threads) }
    }

    /// Counts up whenever [`Syncer::synced`] may answer something new.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// An event loop that asks by [`Syncer::synced_for`].
    pub(crate) fn listener(&self) -> Arc<Listener> {
        let listener = Arc::new(Listener::default());
        self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&listener));
        listener
    }

    /// As [`Syncer::synced`]; the listener is told after the next sync if the answer is [`State::Waiting`].
    pub(crate) fn synced_for(&self, listener: &Listener, position: Position) -> State {
        match self.synced(position) {
            State::Waiting => {
                listener.waits.store(true, Ordering::Relaxed);
                // Either this sees what the sync came to, or the sync sees that somebody waits.
                fence(Ordering::SeqCst);
                self.synced(position)
            }
            state => state,
        }
    }

    /// Asks for `position` to be synced. Does not block.
    pub(crate) fn want(&self, position: Position) {
        let mut target = self.shared.target.lock().unwrap_or_else(PoisonError::into_inner);
        if target.position < position.get() {
            target.position = position.get();
            // A thread that is busy looks for more by itself.
            if target.is_due() {
                self.shared.wake.notify_one();
            }
        }
    }

    /// Waits until `position` is synced, in this thread.
    pub(crate) fn sync_here(&self, position: Position) -> State {
        let state = self.synced(position);
        if state != State::Waiting {
            return state;
        }
        self.shared.sync(&*self.store, position.get());
        self.shared.tell();
        self.synced(position)
    }

    /// Whether syncs overlap, so that who waits for one keeps back what needs the next.
    pub(crate) fn overlaps_syncs(&self) -> bool {
        self.store.overlaps_syncs()
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

    /// Ends the threads after the syncs they are in.
    pub(crate) fn stop(&self) {
        self.shared.target.lock().unwrap_or_else(PoisonError::into_inner).is_stopping = true;
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that waits for syncs has panicked");
            }
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
        let lock = || self.target.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let target = {
                let mut target = lock();
                while !target.is_due() {
                    if target.is_stopping && target.position <= target.taken {
                        return;
                    }
                    target = self.wake.wait(target).unwrap_or_else(PoisonError::into_inner);
                }
                target.busy += 1;
                target.taken = target.position;
                target.position
            };
            self.sync(store, target);
            {
                let overlaps = store.overlaps_syncs();
                let mut target = lock();
                target.busy -= 1;
                target.overlaps = overlaps;
                if target.is_stopping {
                    // Who waited for this one to end.
                    self.wake.notify_all();
                }
            }
            self.tell();
        }
    }

    /// Waits until `target` is synced, and notes what that came to.
    fn sync(&self, store: &dyn Waits, target: u64) {
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
    }

    /// Tells those who wait that there is something new to see.
    fn tell(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        fence(Ordering::SeqCst);
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if listener.waits.swap(false, Ordering::Relaxed) {
                listener.told.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A store whose syncs a test ends by hand.
    struct Fake {
        begun: Mutex<Sender<(u64, Sender<()>)>>,
        overlaps: Arc<AtomicBool>,
    }

    impl Waits for Fake {
        fn wait(&self, position: Position, _: Durability) -> holdfast::Result<()> {
            let (end, ended) = channel();
            self.begun.lock().unwrap().send((position.get(), end)).unwrap();
            ended.recv().unwrap();
            Ok(())
        }

        fn written_and_synced(&self) -> (Position, Position) {
            (Position::ZERO, Position::ZERO)
        }

        fn overlaps_syncs(&self) -> bool {
            self.overlaps.load(Ordering::Relaxed)
        }
    }

    fn syncer(overlaps: &Arc<AtomicBool>) -> (Syncer, Receiver<(u64, Sender<()>)>) {
        let (begun, begins) = channel();
        let fake = Fake { begun: Mutex::new(begun), overlaps: overlaps.clone() };
        (Syncer::start(fake, "test", ToString::to_string), begins)
    }

    fn at(position: u64) -> Position {
        Position::new(position)
    }

    #[test]
    fn one_wait_runs_at_a_time_until_syncs_overlap_and_then_as_many_as_there_are_threads() {
        let overlaps = Arc::new(AtomicBool::new(false));
        let (syncer, begins) = syncer(&overlaps);
        syncer.want(at(1));
        let (first, end) = begins.recv().unwrap();
        syncer.want(at(2));
        syncer.want(at(3));
        for _ in 0..1_000 {
            assert!(begins.try_recv().is_err());
            std::thread::yield_now();
        }
        assert_eq!((first, syncer.synced(at(1))), (1, State::Waiting));
        overlaps.store(true, Ordering::Relaxed);
        end.send(()).unwrap();
        // All that gathered is waited for at once.
        let mut running = vec![begins.recv().unwrap()];
        assert_eq!(running.first().unwrap().0, 3);
        assert_eq!((syncer.synced(at(1)), syncer.synced(at(2))), (State::Done, State::Waiting));
        for position in 4..3 + THREADS as u64 {
            syncer.want(at(position));
            running.push(begins.recv().unwrap());
            assert_eq!(running.last().unwrap().0, position);
        }
        syncer.want(at(100));
        running.into_iter().for_each(|(_, end)| end.send(()).unwrap());
        let (last, end) = begins.recv().unwrap();
        assert_eq!(last, 100);
        end.send(()).unwrap();
        syncer.stop();
        assert_eq!(syncer.synced(at(100)), State::Done);
    }

    #[tokio::test]
    async fn an_event_loop_on_which_nothing_waits_is_not_told() {
        let (syncer, begins) = syncer(&Arc::default());
        let (idle, busy) = (syncer.listener(), syncer.listener());
        for position in 1..50 {
            assert_eq!(syncer.synced_for(&busy, at(position)), State::Waiting);
            syncer.want(at(position));
            begins.recv().unwrap().1.send(()).unwrap();
            busy.told().await;
            assert_eq!(syncer.synced_for(&busy, at(position)), State::Done);
        }
        assert!(!busy.waits.load(Ordering::Relaxed));
        // It would have a permit.
        let told = tokio::time::timeout(std::time::Duration::ZERO, idle.told()).await;
        assert!(told.is_err());
    }
}
