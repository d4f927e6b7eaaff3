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

/// What waiting came to.
#[derive(Debug)]
pub(crate) enum Waited {
    Reply(Result<Reply, Broken>),
    /// Nobody reads any more, and the caller is to.
    ToRead,
    /// There is no reply after all that time.
    InVain,
}

/// The place of one request's reply.
#[derive(Debug)]
pub(crate) struct Slot {
    thread: Thread,
    filled: AtomicBool,
    to_read: AtomicBool,
    reply: Mutex<Option<Result<Reply, Broken>>>,
}

impl Slot {
    /// A place for the calling thread, which alone may wait there.
    pub(crate) fn here() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            filled: AtomicBool::default(),
            to_read: AtomicBool::default(),
            reply: Mutex::default(),
        })
    }

    /// Puts the reply there and wakes the caller.
    pub(crate) fn fill(&self, reply: Result<Reply, Broken>) {
        *self.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
        self.filled.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Wakes the caller to read.
    pub(crate) fn have_read(&self) {
        self.to_read.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Whether the reply is there.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Waits until the reply is there, or the caller is to read, for `patience` at most. For the first `awake` of that it
    /// gives way to threads that are ready instead of sleeping.
    pub(crate) fn wait(&self, awake: Duration, patience: Duration) -> Waited {
        let start = Instant::now();
        while !self.is_filled() {
            let waited = start.elapsed();
            let left = patience.saturating_sub(waited);
            if left.is_zero() {
                return Waited::InVain;
            }
            if self.to_read.swap(false, Ordering::Acquire) {
                return Waited::ToRead;
            }
            if waited < awake {
                thread::yield_now();
            } else {
                thread::park_timeout(left);
            }
        }
        let reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        reply.map_or(Waited::InVain, Waited::Reply)
    }
}
