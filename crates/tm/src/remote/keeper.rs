//! The thread that keeps the lease, and sends what nobody took along.
//!
//! It sleeps until the next renewal. Only while lazy requests come does it look every few milliseconds whether some are
//! still there: under load they leave with commits, and nothing wakes it.
//!
//! May use: std's threads. Must not know: what is sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Inner;
use crate::decisions::{Error, ErrorKind, Result};

/// Between two looks at what is left, while there is some.
const TICK: Duration = Duration::from_millis(20);
/// After so many looks without finding anything it sleeps longer.
const IDLE_LOOKS_MAX: u32 = 50;

pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// It looks by itself soon, so nobody has to wake it.
    awake: AtomicBool,
}

impl Keeper {
    pub(super) fn start(inner: &Arc<Inner>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (of_thread, inner) = (Arc::clone(&shared), Arc::downgrade(inner));
        let thread = thread::Builder::new().name("holdfast-lease".to_owned()).spawn(move || run(&of_thread, &inner));
        let no_thread = |error| Error { kind: ErrorKind::Unavailable, text: format!("no thread to start: {error}") };
        Ok(Self { shared, thread: Some(thread.map_err(no_thread)?) })
    }

    /// Something was left to be sent.
    pub(super) fn notice(&self) {
        if !self.shared.awake.swap(true, Ordering::AcqRel)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }

    pub(super) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, inner: &Weak<Inner>) {
    let mut renewed = Instant::now();
    let mut idle_looks = 0;
    while let Some(inner) = inner.upgrade() {
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let interval = inner.options.lease / 3;
        if renewed.elapsed() >= interval {
            renewed = Instant::now();
            if !inner.renew() {
                // Soon again: without an owner transactions cannot begin.
                renewed = renewed.checked_sub(interval / 4 * 3).unwrap_or(renewed);
            }
        }
        let mut pause = interval.saturating_sub(renewed.elapsed());
        if shared.awake.load(Ordering::Acquire) {
            idle_looks = if inner.main.flush() { 0 } else { idle_looks + 1 };
            if idle_looks > IDLE_LOOKS_MAX {
                idle_looks = 0;
                shared.awake.store(false, Ordering::Release);
                // What came just before that woke nobody.
                inner.main.flush();
            } else {
                pause = pause.min(TICK);
            }
        }
        drop(inner);
        thread::park_timeout(pause);
    }
}
