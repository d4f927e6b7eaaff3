//! Bytes that all connections of a door may have in memory together: bodies of HTTP requests, unfinished commands of RESP, replies.
//!
//! What is not there is refused and not waited for: those that hold a part of what they need could all wait for each other. Only who
//! holds nothing yet may wait.
//!
//! May use: tokio's semaphore. Must not know: protocols.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What one permit stands for.
const UNIT_BYTES: usize = 1 << 10;

/// The bytes of one door. Clones share them.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Semaphore>, usize);

/// A part of the budget; dropping it gives it back.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>, usize);

/// So much is not there now.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes).unwrap_or(usize::MAX) / UNIT_BYTES;
        // So that all of them can be taken at once.
        let units = units.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Budget(Arc::new(Semaphore::new(units)), units)
    }

    /// How much there is for all together.
    pub(crate) fn bytes(&self) -> usize {
        self.1.saturating_mul(UNIT_BYTES)
    }

    /// Makes a share at least so large.
    ///
    /// # Errors
    /// When so much is not there now; the share is what it was.
    pub(crate) fn grow(&self, share: &mut Share, bytes: usize) -> Result<(), Exhausted> {
        let missing = bytes.div_ceil(UNIT_BYTES).saturating_sub(share.1);
        if missing == 0 {
            return Ok(());
        }
        let units = u32::try_from(missing).map_err(|_| Exhausted)?;
        let taken = Arc::clone(&self.0).try_acquire_many_owned(units).map_err(|_| Exhausted)?;
        match &mut share.0 {
            Some(permit) => permit.merge(taken),
            none => *none = Some(taken),
        }
        share.1 += missing;
        Ok(())
    }

    /// Waits for a share so large, or for all there is; in the order of coming.
    pub(crate) async fn wait(&self, bytes: usize) -> Share {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.1);
        let taken = Arc::clone(&self.0).acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX)).await;
        // It fails when the semaphore is closed, which nobody does.
        taken.map_or_else(|_| Share::default(), |permit| Share(Some(permit), units))
    }

    /// Whether a share that was waited for is all there is.
    pub(crate) fn is_all(&self, share: &Share) -> bool {
        share.1 >= self.1
    }
}

impl Share {
    /// Gives back what is more than so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        if let Some(permit) = &mut self.0
            && let Some(more) = self.1.checked_sub(units).filter(|more| *more > 0)
        {
            drop(permit.split(more));
            self.1 = units;
        }
    }

    /// Adds another share of the same budget.
    pub(crate) fn merge(&mut self, other: Share) {
        match (&mut self.0, other.0) {
            (Some(permit), Some(other)) => permit.merge(other),
            (none, other @ Some(_)) => *none = other,
            (_, None) => {}
        }
        self.1 += other.1;
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> usize {
        self.1.saturating_mul(UNIT_BYTES)
    }

    /// Whether it is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_share_the_room_and_give_it_back() {
        let room = Budget::new(1 << 20);
        let held = || (1 << 10) - room.0.available_permits();
        let (mut one, mut two) = (Share::default(), Share::default());
        assert!(room.grow(&mut one, 700 << 10).is_ok() && room.grow(&mut one, 600 << 10).is_ok());
        assert!(room.grow(&mut two, 400 << 10).is_err() && room.grow(&mut two, 300 << 10).is_ok());
        assert!(room.grow(&mut one, usize::MAX).is_err());
        assert_eq!(held(), 1000);
        one = Share::default();
        assert!(room.grow(&mut two, 1 << 20).is_ok() && one.1 == 0);
        drop((one, two));
        assert_eq!(held(), 0);
    }

    #[test]
    fn who_waits_gets_what_others_give_back_and_never_more_than_there_is() {
        let room = Budget::new(1 << 20);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut one = room.wait(700 << 10).await;
            let mut waiting = Box::pin(room.wait(usize::MAX));
            assert!(by_now(&mut waiting).await.is_none());
            one.shrink(100 << 10);
            assert!(by_now(&mut waiting).await.is_none());
            one.merge(Share::default());
            drop(one);
            let all = by_now(&mut waiting).await.unwrap();
            assert!(room.is_all(&all) && !all.is_empty() && room.0.available_permits() == 0);
        });
    }

    /// What it is by now.
    async fn by_now<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
