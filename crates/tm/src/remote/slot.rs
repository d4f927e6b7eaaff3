//! Where one caller sleeps until its reply is there.
//!
//! May use: std's threads. Must not know: connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::wire::Reply;

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Whether the server may have got the request.
    pub(crate) sent: bool,
    /// What happened, for people.
    pub(crate) text: String,
}

/// The place of one request's reply.
#[derive(Debug)]
pub(crate) struct Slot {
    thread: Thread,
    filled: AtomicBool,
    reply: Mutex<Option<Result<Reply, Broken>>>,
}

impl Slot {
    /// A place for the calling thread, which alone may wait there.
    pub(crate) fn here() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), filled: AtomicBool::new(false), reply: Mutex::new(None) })
    }

    /// Puts the reply there and wakes the caller.
    pub(crate) fn fill(&self, reply: Result<Reply, Broken>) {
        *self.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
        self.filled.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits until the reply is there; `None` when it is not after `patience`. For the first `awake` of that it gives way to
    /// threads that are ready instead of sleeping.
    pub(crate) fn wait(&self, awake: Duration, patience: Duration) -> Option<Result<Reply, Broken>> {
        let start = Instant::now();
        while !self.filled.load(Ordering::Acquire) {
            let waited = start.elapsed();
            let left = patience.checked_sub(waited).filter(|left| !left.is_zero())?;
            if waited < awake {
                thread::yield_now();
            } else {
                thread::park_timeout(left);
            }
        }
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
