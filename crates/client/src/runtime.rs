//! A thread that drives sockets and timers for a client, so that its calls need no runtime of the caller's; and others, bounded, for
//! what blocks while it is awaited.
//!
//! May use: tokio, threads. Must not know: what is driven.

use std::thread::JoinHandle;

use holdfast::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread. Dropping it ends what it drives; a thread of its own never waits for itself.
pub(crate) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(crate) fn start() -> Result<Self> {
        let no =
            |error: std::io::Error| Error::new(ErrorKind::Unavailable, format!("no thread for the client: {error}"));
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(64).build().map_err(no)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let drive = move || {
            // The sender is dropped or used: both mean the end.
            let _ = runtime.block_on(stopped);
            // Threads that block in the store are not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("holdfast-client".to_owned()).spawn(drive).map_err(no)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
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
        async move {
            task.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the operation ended without an answer")))
        }
    }
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
