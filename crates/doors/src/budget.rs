//! Bytes that all connections of a door may have in memory together: bodies of HTTP requests, unfinished commands of RESP.
//!
//! What is not there is refused and not waited for: those that hold a part of what they need could all wait for each other.
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
#[derive(Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>, usize);

/// So much is not there now.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes).unwrap_or(usize::MAX) / UNIT_BYTES;
        let units = units.clamp(1, Semaphore::MAX_PERMITS);
        Budget(Arc::new(Semaphore::new(units)), units.saturating_mul(UNIT_BYTES))
    }

    /// How much there is for all together.
    pub(crate) fn bytes(&self) -> usize {
        self.1
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
}
