//! Turns of questions that may take long and much memory: so many at a time; the next ones wait, in order, and not too many of them.
//!
//! May use: `failure`, tokio. Must not know: what is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::failure::Failure;

/// Turns of one door. Clones share them.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Inner>);

struct Inner {
    places: Arc<Semaphore>,
    at_a_time: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    patience: Duration,
}

/// A turn; dropping it ends it.
pub(crate) struct Turn {
    _place: Option<OwnedSemaphorePermit>,
}

/// Counts one who waits for as long as it does, however that ends.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Turns {
    /// `at_a_time` have theirs together, `waiting_max` wait, each at most for `patience`.
    pub(crate) fn new(at_a_time: usize, waiting_max: usize, patience: Duration) -> Self {
        let at_a_time = at_a_time.clamp(1, Semaphore::MAX_PERMITS);
        let (places, waiting) = (Arc::new(Semaphore::new(at_a_time)), AtomicUsize::new(0));
        Turns(Arc::new(Inner { places, at_a_time, waiting, waiting_max, patience }))
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// 503 when too many wait already, or it takes too long.
    pub(crate) async fn take(&self) -> Result<Turn, Failure> {
        let inner = &*self.0;
        if let Ok(place) = Arc::clone(&inner.places).try_acquire_owned() {
            return Ok(Turn { _place: Some(place) });
        }
        let before = inner.waiting.fetch_add(1, Relaxed);
        let _waiting = Waiting(&inner.waiting);
        let busy = || {
            Failure::unavailable(format!(
                "too many queries at a time: {} are being answered, and {} wait; ask again later, ask for less, or raise \
                 http.queries_max",
                inner.at_a_time,
                inner.waiting.load(Relaxed).saturating_sub(1)
            ))
        };
        if before >= inner.waiting_max {
            return Err(busy());
        }
        match timeout(inner.patience, Arc::clone(&inner.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(Turn { _place: Some(place) }),
            Ok(Err(_)) | Err(_) => Err(busy()),
        }
    }

    /// Waits for another turn of one who had one before, and whose answer has begun.
    pub(crate) async fn again(self) -> Turn {
        // It fails when the door closes, and then everything may end.
        Turn { _place: Arc::clone(&self.0.places).acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn so_many_at_a_time_the_next_wait_in_order_and_the_others_are_refused() {
        let turns = Turns::new(1, 1, Duration::from_secs(20));
        let first = turns.take().await.expect("it is free");
        let others = turns.clone();
        let second = tokio::spawn(async move { others.take().await.is_ok() });
        while turns.0.waiting.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let refused = turns.take().await.err().expect("one waits already");
        assert_eq!(refused.status(), 503);
        let wanted = "too many queries at a time: 1 are being answered, and 1 wait; ask again later, ask for less, or raise \
                      http.queries_max";
        assert_eq!(refused.text(), wanted);
        drop(first);
        assert!(second.await.expect("it does not panic"), "its turn comes");
        assert!(turns.take().await.is_ok(), "and ends");
    }

    #[tokio::test]
    async fn nobody_waits_for_ever_and_who_gave_up_is_not_counted() {
        let turns = Turns::new(1, 1, Duration::from_millis(5));
        let _first = turns.take().await.expect("it is free");
        for _ in 0..3 {
            assert_eq!(turns.take().await.err().map(|failure| failure.status()), Some(503));
        }
        assert_eq!(turns.0.waiting.load(Relaxed), 0);
    }
}
