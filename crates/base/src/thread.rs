//! Threads for the few parts that may have them: a named worker, and a signal to sleep on.
//!
//! May use: the operating system's threads. Must not know: what the workers do.

use std::cell::Cell;
use std::sync::{Condvar, LockResult, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::yielder::Yielder;

/// How many processors this process may use; at least one.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Lets other threads that are ready run first.
pub fn yield_now() {
    std::thread::yield_now();
}

/// How often a lock that is taken is looked at again before its thread sleeps.
const LOOKS: u32 = 32;
/// Between two looks; some hundred nanoseconds.
const PAUSES: u32 = 16;

/// Takes a lock that is held for some microseconds at a time: looks again for about as long before it sleeps. To fall asleep and to be
/// woken takes several times what the holder still needs, and the holder pays a part of it.
///
/// # Errors
/// As [`Mutex::lock`].
pub fn lock_soon<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    for _ in 0..LOOKS {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => (0..PAUSES).for_each(|_| std::hint::spin_loop()),
        }
    }
    mutex.lock()
}

/// Lets the calling thread have processors only as far as others leave them, for as long as it lives. For work that nobody
/// waits for: beside writers that keep all processors busy it would else take one of them for milliseconds at a time.
pub fn stand_back() {
    // On Linux the priority is the thread's. Where it cannot be changed the thread is as important as any.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 10);
    STEPPED_ASIDE.set(Some(Instant::now()));
}

/// So long a thread that stands back keeps others waiting: the system by itself takes a processor from it after milliseconds, whatever its
/// priority is.
const PIECE_TIME: Duration = Duration::from_micros(100);

thread_local! {
    /// When the thread last let others run, if it stands back.
    static STEPPED_ASIDE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets other threads that are ready run first, if the calling one [stands back](stand_back) and has not done so for a while. To be called
/// between pieces of work of some microseconds, without any lock that others want.
pub fn step_aside() {
    if STEPPED_ASIDE.get().is_some_and(|last| last.elapsed() >= PIECE_TIME) {
        yield_now();
        STEPPED_ASIDE.set(Some(Instant::now()));
    }
}

/// A wake-up call that is remembered until somebody waits for it.
#[derive(Debug, Default)]
pub struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// A signal that nobody raised yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes the waiter, or the next to wait.
    pub fn raise(&self) {
        let was_raised = std::mem::replace(&mut *self.lock(), true);
        // The lock is free again, or who wakes up at once would sleep once more to wait for it.
        if !was_raised {
            self.changed.notify_one();
        }
    }

    /// Blocks until raised, at most `timeout` if there is one, and lowers the signal. True if it was raised.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let raised = self.lock();
        let mut raised = match timeout {
            None => self.changed.wait_while(raised, |raised| !*raised).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                self.changed
                    .wait_timeout_while(raised, timeout, |raised| !*raised)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        std::mem::take(&mut *raised)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // A flag cannot be half written: a panic elsewhere does not spoil it.
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gate for any number of threads, which is opened once: they sleep until then, and one system call wakes all of them.
#[derive(Debug, Default)]
pub struct Gate(OnceLock<()>);

impl Gate {
    /// Sleeps until [`Gate::open`] was called, at any time since the gate was made.
    pub fn wait(&self) {
        self.0.wait();
    }

    /// Like [`Gate::wait`], but only gives way to threads that are ready, for at most `awake`, before it sleeps. Where many threads
    /// share processors and wait for something short, to put each to sleep and to wake it costs more than their taking turns does.
    pub fn wait_awake(&self, awake: Duration, yielder: &Yielder, done: impl Fn() -> u64) {
        let begun = Instant::now();
        while self.0.get().is_none() {
            if begun.elapsed() >= awake || !yielder.yield_now(&done) {
                return self.wait();
            }
        }
    }

    /// Wakes all who wait; later ones do not sleep at all.
    pub fn open(&self) {
        self.0.get_or_init(|| ());
    }
}

/// A named thread, joined when dropped. Whoever owns it must have told it to end by then.
#[derive(Debug)]
pub struct Worker(Option<std::thread::JoinHandle<()>>);

impl Worker {
    /// Starts `body` on a thread called `name`.
    ///
    /// # Errors
    /// When the operating system has no thread to give.
    pub fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body).map(|handle| Self(Some(handle)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take()
            && handle.thread().id() != std::thread::current().id()
        {
            // A worker that panicked has said so on standard error already.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_lock_that_is_held_for_long_is_waited_for_and_a_panic_under_it_is_told() {
        let (lock, is_free) = (Arc::new(Mutex::new(0)), Arc::new(AtomicBool::new(false)));
        let held = lock.lock().unwrap();
        let (theirs, freed) = (Arc::clone(&lock), Arc::clone(&is_free));
        let waiting = std::thread::spawn(move || {
            *lock_soon(&theirs).unwrap() += 1;
            assert!(freed.load(Ordering::SeqCst), "it was free");
        });
        // Longer than it looks before it sleeps.
        std::thread::park_timeout(Duration::from_millis(20));
        is_free.store(true, Ordering::SeqCst);
        drop(held);
        waiting.join().unwrap();
        assert_eq!(*lock_soon(&lock).unwrap(), 1);
        let theirs = Arc::clone(&lock);
        assert!(
            std::thread::spawn(move || {
                let _held = theirs.lock().unwrap();
                panic!("under the lock");
            })
            .join()
            .is_err()
        );
        assert_eq!(lock_soon(&lock).map_err(|poisoned| *poisoned.into_inner()).err(), Some(1));
    }

    #[test]
    fn a_gate_lets_those_through_who_stay_awake_and_those_who_sleep() {
        for awake in [Duration::ZERO, Duration::from_secs(60)] {
            let gate = Arc::new(Gate::default());
            let theirs = Arc::clone(&gate);
            let waiting = std::thread::spawn(move || theirs.wait_awake(awake, &Yielder::default(), || 0));
            gate.open();
            waiting.join().unwrap();
            gate.wait_awake(awake, &Yielder::default(), || 0);
        }
    }
}
