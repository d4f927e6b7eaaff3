//! Holding writers back while a partition's ledger has much in memory, or the journal much that is dead, so that the
//! background can keep up.
//!
//! The ledger thread writes a partition out from `ledger_memory_bytes` on. If it falls behind, a writer is delayed, a
//! little more for each byte above half of `ledger_memory_bytes_max`; at the maximum it waits. So memory is bounded, and
//! writers slow down to what the disk takes instead of running into a wall.
//!
//! May use: partitions. Must not know: how ledgers are written out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::partition::Partition;
use crate::store::Inner;
use crate::turn;

/// Delay of a writer just below the maximum.
const DELAY_MAX: Duration = Duration::from_millis(2);
/// Shorter delays add up until they are worth a sleep: the kernel wakes some 50 us late, so short sleeps would cost more
/// than they are meant to.
const SLEEP_MIN: Duration = Duration::from_micros(250);
/// How often a writer who waits at the maximum looks whether the store is being closed.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a writer pauses before it adds to `memory_bytes`: nothing up to half of `max`, then in proportion.
fn delay(memory_bytes: u64, max: u64) -> Duration {
    let half = max / 2;
    let above = memory_bytes.saturating_sub(half).min(max - half);
    let nanos = DELAY_MAX.as_nanos() * u128::from(above) / u128::from((max - half).max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a partition's writers wait for room.
#[derive(Default)]
pub(crate) struct Room {
    tries: Mutex<Tries>,
    ended: Condvar,
    /// Delays that no writer has slept yet.
    owed_nanos: AtomicU64,
}

/// Attempts to make room.
#[derive(Default)]
struct Tries {
    count: u64,
    /// What the last one failed with.
    failed: Option<Error>,
}

impl Room {
    fn tries(&self) -> MutexGuard<'_, Tries> {
        // A count cannot be half written.
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the partition was written out, or why not, and wakes its writers.
    pub(crate) fn tried(&self, outcome: &Result<()>) {
        let mut tries = self.tries();
        tries.count += 1;
        tries.failed = outcome.as_ref().err().cloned();
        self.ended.notify_all();
    }

    /// Delays writers by so much altogether: this one sleeps it, if it is worth a sleep.
    pub(crate) fn delay(&self, delay: Duration) {
        let owed = self.owed_nanos.fetch_add(nanos(delay), Ordering::Relaxed) + nanos(delay);
        if owed >= nanos(SLEEP_MIN) {
            let mine = self.owed_nanos.swap(0, Ordering::Relaxed);
            self.pause(Duration::from_nanos(mine));
        }
    }

    /// Waits until the next attempt ends, at most `timeout`.
    fn pause(&self, timeout: Duration) {
        let tries = self.tries();
        let before = tries.count;
        // Whether it was the end or the timeout: the caller looks at memory.
        drop(self.ended.wait_timeout_while(tries, timeout, |tries| tries.count == before));
    }

    /// Waits until `full` does not hold any more, or `ending` does.
    ///
    /// # Errors
    /// What the last attempt to make room failed with, if one ended meanwhile.
    fn wait(&self, full: impl Fn() -> bool, ending: impl Fn() -> bool) -> Result<()> {
        let mut tries = self.tries();
        let before = tries.count;
        while full() && !ending() {
            if let Some(error) = tries.failed.as_ref().filter(|_| tries.count != before) {
                return Err(error.clone());
            }
            tries = self.ended.wait_timeout(tries, LOOK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

impl Inner {
    /// Called by writers before they take locks: holds them back when one of the partitions has far too much in memory.
    /// A store without threads writes it out itself.
    ///
    /// # Errors
    /// Why memory does not fall: the disk is full, for example.
    pub(crate) fn relieve(&self, partitions: &[&Partition]) -> Result<()> {
        let memory = |partition: &Partition| partition.reader.memory_bytes();
        let fullest = || partitions.iter().copied().max_by_key(|partition| memory(partition));
        let max = self.options.limits.ledger_memory_bytes_max;
        let debt = self.compactor.delay();
        let Some(partition) = fullest().filter(|partition| memory(partition) > max / 2 || !debt.is_zero()) else {
            return Ok(());
        };
        if !self.threads {
            return if memory(partition) >= max { self.write_out(partition) } else { Ok(()) };
        }
        let began = self.clock.now();
        if memory(partition) < max {
            partition.room.delay(delay(memory(partition), max).max(debt));
        }
        let mut outcome = Ok(());
        let ending = || self.stopping.load(Ordering::Acquire);
        while let Some(full) = fullest().filter(|full| memory(full) >= max && outcome.is_ok() && !ending()) {
            self.ledger_wake.raise();
            outcome = full.room.wait(|| memory(full) >= max, ending);
        }
        let took = self.clock.now().since(began);
        if took >= SLEEP_MIN {
            turn::has_rested(&*self.clock);
        }
        self.delay_nanos.fetch_add(nanos(took), Ordering::Relaxed);
        self.delayed_writes.fetch_add(1, Ordering::Relaxed);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_delay_grows_from_nothing_at_half_to_its_maximum() {
        let max = 16 << 20;
        assert_eq!((delay(0, max), delay(max / 2, max)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(delay(max / 4 * 3, max), DELAY_MAX / 2);
        assert_eq!((delay(max, max), delay(u64::MAX, max)), (DELAY_MAX, DELAY_MAX));
        let delays: Vec<Duration> = (0..=max / 1024).map(|kib| delay(kib * 1024, max)).collect();
        assert!(delays.is_sorted());
        assert!(delays.windows(2).all(|pair| pair[1] - pair[0] < DELAY_MAX / 1000), "it grows without a jump");
        assert_eq!((delay(5, 0), delay(5, 1)), (Duration::ZERO, DELAY_MAX), "whatever the limit is");
    }

    #[test]
    fn who_waits_for_room_is_told_why_there_is_none() {
        let room = Room::default();
        let failed = Err(Error::new(ErrorKind::Unavailable, "full"));
        room.tried(&failed);
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| room.wait(|| true, || false));
            // What failed before it waited is not its answer; so it waits until another attempt fails.
            while !waiter.is_finished() {
                room.tried(&failed);
                std::thread::yield_now();
            }
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
        });
        assert!(room.wait(|| false, || false).is_ok());
        assert!(room.wait(|| true, || true).is_ok());
    }
}
