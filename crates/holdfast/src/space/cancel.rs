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
    wakers: Vec<Known>,
    /// Of the last waker.
    number: u64,
}

#[derive(Debug)]
struct Known {
    number: u64,
    waker: Waker,
    /// How many futures of one task wait with it.
    times: u64,
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
        wakers.into_iter().for_each(|known| known.waker.wake());
    }

    /// Wakes `waker` when it is used; at once if it was: for futures that look at [`Cancel::is_canceled`]. It is kept until
    /// [`Cancel::forget`] has been told the number as often as this has returned it.
    pub fn wake_with(&self, waker: &Waker) -> u64 {
        let mut this = self.lock();
        if this.is_canceled {
            drop(this);
            waker.wake_by_ref();
            // Nobody's: numbers begin with 1.
            return 0;
        }
        if let Some(known) = this.wakers.iter_mut().find(|known| known.waker.will_wake(waker)) {
            known.times += 1;
            return known.number;
        }
        this.number += 1;
        let number = this.number;
        this.wakers.push(Known { number, waker: waker.clone(), times: 1 });
        number
    }

    /// The other side of [`Cancel::wake_with`], which returned the number: for futures that end, or have another waker now.
    pub fn forget(&self, number: u64) {
        let mut this = self.lock();
        let Ok(at) = this.wakers.binary_search_by_key(&number, |known| known.number) else { return };
        let Some(known) = this.wakers.get_mut(at) else { return };
        known.times -= 1;
        if known.times == 0 {
            let gone = this.wakers.remove(at);
            drop(this);
            // Dropping a waker may run somebody's code.
            drop(gone);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each future that had ended left its waker behind, and with it its task.
    #[test]
    fn who_has_ended_is_forgotten() {
        struct Nothing;
        impl std::task::Wake for Nothing {
            fn wake(self: Arc<Self>) {}
        }
        let (cancel, task) = (Cancel::new(), Arc::new(Nothing));
        let waker = Waker::from(Arc::clone(&task));
        let other = cancel.wake_with(&Waker::from(Arc::new(Nothing)));
        let numbers = [cancel.wake_with(&waker), cancel.wake_with(&waker)];
        drop(waker);
        cancel.forget(numbers[0]);
        assert_eq!(Arc::strong_count(&task), 2, "another future of the task waits");
        cancel.forget(numbers[1]);
        assert_eq!(Arc::strong_count(&task), 1);
        cancel.forget(numbers[1]);
        cancel.forget(other);
        assert!(cancel.lock().wakers.is_empty());
        cancel.cancel();
        assert_eq!(cancel.wake_with(Waker::noop()), 0);
    }
}
