//! Ends the waiting of operations from another thread: those that wait now, and all that come later with the same handle.
//!
//! May use: `wait`. Must not know: operations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use super::wait::Waiter;

/// Ends the waiting of every operation that was given a clone of it: see [`ReadOptions::cancel`](super::ReadOptions). Nothing
/// that was granted by then is lost: who was given an entry gets it.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Mutex<Canceled>>);

#[derive(Debug, Default)]
struct Canceled {
    is_canceled: bool,
    waiting: Vec<Weak<Waiter>>,
    wakers: Vec<Waker>,
}

impl Cancel {
    /// One that is not used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the waiting of all that wait now; who comes later does not wait.
    pub fn cancel(&self) {
        let mut this = self.lock();
        this.is_canceled = true;
        for waiter in this.waiting.drain(..).filter_map(|waiter| waiter.upgrade()) {
            waiter.interrupt();
        }
        let wakers = std::mem::take(&mut this.wakers);
        drop(this);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes `waker` when it is used; at once if it was: for futures that look at [`Cancel::is_canceled`].
    pub fn wake_with(&self, waker: &Waker) {
        let mut this = self.lock();
        if this.is_canceled {
            drop(this);
            return waker.wake_by_ref();
        }
        // A future that is polled again is known already.
        if !this.wakers.iter().any(|known| known.will_wake(waker)) {
            this.wakers.push(waker.clone());
        }
    }

    /// Whether it was used.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.lock().is_canceled
    }

    /// From now on `waiter` is woken by it; at once if it was used.
    pub(crate) fn enter(&self, waiter: &Arc<Waiter>) {
        let mut this = self.lock();
        if this.is_canceled {
            waiter.interrupt();
        } else {
            this.waiting.push(Arc::downgrade(waiter));
        }
    }

    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        self.lock().waiting.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(waiter)));
    }

    fn lock(&self) -> MutexGuard<'_, Canceled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
