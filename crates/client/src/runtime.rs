//! A thread that drives sockets and timers for a client, so that its calls need no runtime of the caller's; and others, bounded, for
//! what blocks while it is awaited.
//!
//! May use: tokio, threads. Must not know: what is driven.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;

use holdfast::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};

/// Most threads for what blocks.
const THREADS_MAX: usize = 512;
/// Most of them that wait for locks. Who holds what they wait for may need a thread to let go of it.
const LOCK_WAITERS_MAX: usize = if cfg!(test) { 3 } else { 448 };

/// The thread. Dropping it ends what it drives; a thread of its own never waits for itself.
pub(crate) struct Runtime {
    handle: Handle,
    lock_waiters: Arc<Semaphore>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(crate) fn start() -> Result<Self> {
        let no =
            |error: std::io::Error| Error::new(ErrorKind::Unavailable, format!("no thread for the client: {error}"));
        let runtime =
            Builder::new_current_thread().enable_all().max_blocking_threads(THREADS_MAX).build().map_err(no)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let drive = move || {
            // The sender is dropped or used: both mean the end.
            let _ = runtime.block_on(stopped);
            // Threads that block in the store are not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("holdfast-client".to_owned()).spawn(drive).map_err(no)?;
        Ok(Self {
            handle,
            lock_waiters: Arc::new(Semaphore::new(LOCK_WAITERS_MAX)),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs something that may block in another thread, which begins at once. It goes on when the future is dropped.
    pub(crate) fn off<T, R>(&self, run: R) -> impl Future<Output = Result<T>> + Send + use<T, R>
    where
        T: Send + 'static,
        R: FnOnce() -> Result<T> + Send + 'static,
    {
        let task = self.handle.spawn_blocking(run);
        async move { task.await.unwrap_or_else(|_| Err(no_answer())) }
    }

    /// As [`Runtime::off`], for what waits for a lock: it begins when fewer do than may, in the order in which they came. It never does
    /// when the future is dropped before.
    pub(crate) fn off_for_lock<T, R>(&self, run: R) -> impl Future<Output = Result<T>> + Send + use<T, R>
    where
        T: Send + 'static,
        R: FnOnce() -> Result<T> + Send + 'static,
    {
        let (turn, handle) = (Arc::clone(&self.lock_waiters).acquire_owned(), self.handle.clone());
        let (wanted, mut unwanted) = oneshot::channel::<()>();
        let task = self.handle.spawn(async move {
            let mut turn = pin!(turn);
            let turn = std::future::poll_fn(|context| match pin!(&mut unwanted).poll(context) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => turn.as_mut().poll(context).map(|turn| turn.ok()),
            });
            let Some(turn) = turn.await else { return Err(no_answer()) };
            let run = move || {
                let _turn = turn;
                run()
            };
            handle.spawn_blocking(run).await.unwrap_or_else(|_| Err(no_answer()))
        });
        async move {
            let _wanted = wanted;
            task.await.unwrap_or_else(|_| Err(no_answer()))
        }
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Internal, "the operation ended without an answer")
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // It has nothing left to do, and panics there were answered where they happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// As many as there were threads waited for what a commit would have let go of, and the commit waited for a thread.
    #[test]
    fn who_waits_for_locks_leaves_threads_for_what_ends_the_waiting() {
        let runtime = Runtime::start().unwrap();
        let mut gates = Vec::new();
        let mut waiting = Vec::new();
        for number in 0..2 * LOCK_WAITERS_MAX {
            let (open, gate) = channel::<()>();
            gates.push(open);
            waiting.push(runtime.off_for_lock(move || {
                let _ = gate.recv();
                Ok(number)
            }));
        }
        let left = runtime.lock_waiters.clone();
        assert_eq!(runtime.handle.block_on(runtime.off(|| Ok(7))).unwrap(), 7);
        assert_eq!(left.available_permits(), 0, "all turns are taken");
        // Whoever comes later than the first ones has a turn when one of those has ended.
        drop(gates);
        for (number, one) in waiting.into_iter().enumerate() {
            assert_eq!(runtime.handle.block_on(one).unwrap(), number);
        }
        assert_eq!(left.available_permits(), LOCK_WAITERS_MAX);
    }

    #[test]
    fn what_is_dropped_before_its_turn_does_not_happen_and_holds_up_nobody() {
        let runtime = Runtime::start().unwrap();
        let (open, gate) = channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let first: Vec<_> = (0..LOCK_WAITERS_MAX)
            .map(|_| {
                let gate = Arc::clone(&gate);
                runtime.off_for_lock(move || Ok(gate.lock().unwrap().recv().is_err()))
            })
            .collect();
        let happened = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let tells = Arc::clone(&happened);
        drop(runtime.off_for_lock(move || {
            tells.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }));
        let last = runtime.off_for_lock(|| Ok(1));
        drop(open);
        for one in first {
            assert!(runtime.handle.block_on(one).unwrap());
        }
        assert_eq!(runtime.handle.block_on(last).unwrap(), 1);
        assert!(!happened.load(std::sync::atomic::Ordering::Relaxed));
    }

    #[test]
    fn a_panic_of_who_waits_for_a_lock_is_an_error_and_gives_its_turn_back() {
        let runtime = Runtime::start().unwrap();
        for _ in 0..2 * LOCK_WAITERS_MAX {
            let panics = runtime.off_for_lock(|| -> Result<()> { panic!("in a task") });
            assert_eq!(runtime.handle.block_on(panics).unwrap_err().kind(), ErrorKind::Internal);
        }
        assert_eq!(runtime.handle.block_on(runtime.off_for_lock(|| Ok(1))).unwrap(), 1);
    }
}
