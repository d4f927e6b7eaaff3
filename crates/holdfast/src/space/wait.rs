//! Those who wait for an entry: in the order in which they came, without a thread for each.
//!
//! Who writes an entry looks, under its partition's lock, whether anybody waits for the type; that costs one load when
//! nobody does, and nothing to other types. It offers the entry to those who wait, in their order, and takes it away for
//! the first taker that wants it, so that an entry goes to one taker, and nobody is woken in vain.
//!
//! Who waits enters the queue first and looks once more then, so that no entry slips through between. Order of locks: the
//! partition, the queue, one who waits.
//!
//! May use: `space`. Must not know: how entries are taken.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::space::Stored;
use base::Signal;
use journal::PartitionId;

use super::locks::{Holder, Mode, NOBODY};
use super::wanted::Wanted;
use crate::error::{Error, Result};

/// What somebody waits to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// By a transaction, whose own locks are not in its way, or by `NOBODY`.
    Read(Holder),
    Take,
    /// To lock for a transaction, which then reads or takes it.
    Lock(Holder, Mode),
}

impl Purpose {
    /// The transaction that waits, if it is one.
    pub(crate) fn holder(self) -> Holder {
        match self {
            Self::Read(holder) | Self::Lock(holder, _) => holder,
            Self::Take => NOBODY,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) wanted: Wanted,
    pub(crate) purpose: Purpose,
    state: Mutex<State>,
    signal: Signal,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<Granted>>,
    /// Nobody will look at an outcome any more.
    is_closed: bool,
    waker: Option<Waker>,
}

/// What was waited for.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) entry: Stored,
    /// What the answer rests on, if it is in the journal.
    pub(crate) position: Option<journal::Position>,
    /// Where it lies.
    pub(crate) partition: PartitionId,
}

impl Waiter {
    pub(crate) fn new(wanted: Wanted, purpose: Purpose) -> Arc<Self> {
        Arc::new(Self { wanted, purpose, state: Mutex::default(), signal: Signal::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `grant` make the outcome, if somebody still waits for it; `None` from it changes nothing. True when there is
    /// nothing to wait for any more.
    pub(crate) fn offer(&self, grant: impl FnOnce() -> Option<Result<Granted>>) -> bool {
        let mut state = self.state();
        if state.is_closed || state.outcome.is_some() {
            return true;
        }
        let Some(outcome) = grant() else { return false };
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.signal.raise();
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Stops waiting: what was granted by now, if anything was.
    pub(crate) fn close(&self) -> Option<Result<Granted>> {
        let mut state = self.state();
        state.is_closed = true;
        state.outcome.take()
    }

    /// Wakes who blocks, as if the time were over.
    pub(crate) fn interrupt(&self) {
        self.signal.raise();
    }

    /// Blocks until granted or interrupted, at most so long.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Option<Result<Granted>> {
        self.signal.wait(timeout);
        self.close()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Granted>> {
        let mut state = self.state();
        match state.outcome.take() {
            Some(outcome) => {
                state.is_closed = true;
                Poll::Ready(outcome)
            }
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Told what came for somebody who waits no longer.
type Stop = Box<dyn FnOnce(Option<Result<Granted>>) + Send>;

/// Waits for an entry in whatever runtime polls it. Dropping it stops waiting; [`Waiting::stop`] tells what came by then.
pub(crate) struct Waiting {
    pub(crate) waiter: Arc<Waiter>,
    pub(crate) stop: Option<Stop>,
}

impl Future for Waiting {
    type Output = Result<Granted>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.waiter.poll(context)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let granted = self.waiter.close();
        if let Some(stop) = self.stop.take() {
            stop(granted);
        }
    }
}

/// Those who wait for entries of one type, in the order in which they came.
#[derive(Default)]
pub(crate) struct Waiters {
    count: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
}

impl Waiters {
    /// Whether anybody waits.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn enter(&self, waiter: Arc<Waiter>) {
        let mut queue = self.lock();
        queue.push_back(waiter);
        self.count.store(queue.len(), Ordering::SeqCst);
    }

    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        self.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    /// Goes through those who wait, in order; who is not kept waits no longer.
    pub(crate) fn retain(&self, keep: impl FnMut(&Arc<Waiter>) -> bool) {
        let mut queue = self.lock();
        queue.retain(keep);
        self.count.store(queue.len(), Ordering::SeqCst);
    }

    pub(crate) fn end_all(&self, error: &Error) {
        self.retain(|waiter| !waiter.offer(|| Some(Err(error.clone()))));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
