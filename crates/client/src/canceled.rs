//! A future that is ready when a [`Cancel`] is used.
//!
//! May use: the facade's `Cancel`. Must not know: what is canceled.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use holdfast::space::Cancel;

/// The future: the cancel knows its waker as long as it is there, and not longer.
pub(crate) struct Canceled<'c> {
    cancel: &'c Cancel,
    known: Option<(u64, Waker)>,
}

impl<'c> Canceled<'c> {
    pub(crate) fn by(cancel: &'c Cancel) -> Self {
        Self { cancel, known: None }
    }

    fn wake_with(&mut self, waker: &Waker) {
        if self.known.as_ref().is_some_and(|(_, known)| known.will_wake(waker)) {
            return;
        }
        self.forget();
        self.known = Some((self.cancel.wake_with(waker), waker.clone()));
    }

    fn forget(&mut self) {
        if let Some((number, _)) = self.known.take() {
            self.cancel.forget(number);
        }
    }
}

impl Future for Canceled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Told first, so that one that is used between is not missed.
        self.wake_with(context.waker());
        if self.cancel.is_canceled() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Canceled<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}
