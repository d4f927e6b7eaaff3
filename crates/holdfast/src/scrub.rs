//! The background scrubber: reads the sealed segments and the sealed files of time series round and round, at a limited rate, and
//! checks every byte.
//!
//! A token bucket fills with the rate, up to one second of it. One step takes one piece out, if that much is in. A round
//! that ends soon is not followed by the next at once: a small store would be read all the time.
//!
//! May use: `journal`, `store`, the series' shelf. Must not know: protocols.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Time;
use journal::{Scrub, Scrubbed};

use crate::series::SealedScrub;
use crate::stats::ScrubStats;
use crate::store::Inner;

/// Most bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Rounds begin at least so far apart.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// Scrubs, if there is anything to do, until `inner.stopping` is set and the signal is raised.
pub(crate) fn run(inner: &Inner) {
    let Some(mut scrubber) = Scrubber::new(inner.options.scrub_bytes_per_second, inner.clock.now()) else { return };
    while !inner.stopping.load(Ordering::Acquire) {
        let pause = scrubber.step(inner, inner.clock.now());
        inner.scrub_wake.wait(Some(pause));
    }
}

/// What the scrubber did since open.
#[derive(Debug, Default)]
pub(crate) struct ScrubCounters {
    bytes: AtomicU64,
    rounds: AtomicU64,
    last_round_nanos: AtomicU64,
    last_round_ms: AtomicU64,
}

impl ScrubCounters {
    pub(crate) fn stats(&self) -> ScrubStats {
        ScrubStats {
            bytes: self.bytes.load(Ordering::Relaxed),
            rounds: self.rounds.load(Ordering::Relaxed),
            last_round: Duration::from_nanos(self.last_round_nanos.load(Ordering::Relaxed)),
            last_round_ms: self.last_round_ms.load(Ordering::Relaxed),
        }
    }
}

pub(crate) struct Scrubber {
    scrub: Scrub,
    /// How far the sealed files of series are; none while the journal is read.
    sealed: Option<SealedScrub>,
    bytes_per_second: u64,
    credit_bytes: u64,
    last: Time,
    round_began: Time,
    /// Nothing is read before.
    rests_until: Time,
}

impl Scrubber {
    /// `None` when nothing is to be read.
    pub(crate) fn new(bytes_per_second: u64, now: Time) -> Option<Self> {
        let scrub = Scrub::default();
        (bytes_per_second > 0).then_some(Self {
            scrub,
            sealed: None,
            bytes_per_second,
            credit_bytes: 0,
            last: now,
            round_began: now,
            rests_until: now,
        })
    }

    /// Reads one piece if it is due; returns after which time to come back.
    pub(crate) fn step(&mut self, inner: &Inner, now: Time) -> Duration {
        if now < self.rests_until {
            self.last = now;
            return self.rests_until.since(now);
        }
        self.fill(now);
        let piece = PIECE_BYTES.min(self.bytes_per_second);
        if self.credit_bytes < piece {
            return self.time_for(piece - self.credit_bytes);
        }
        let bytes = usize::try_from(piece).expect("a piece fits memory");
        let scrubbed = match &mut self.sealed {
            None => match inner.journal.scrub(&mut self.scrub, bytes) {
                Scrubbed::Round => {
                    let sealed = self.sealed.insert(SealedScrub::default());
                    inner.shelf.scrub(sealed, piece)
                }
                Scrubbed::Bytes(read) => Some(read),
            },
            Some(sealed) => inner.shelf.scrub(sealed, piece),
        };
        match scrubbed {
            Some(read) => {
                inner.scrubbed.bytes.fetch_add(read, Ordering::Relaxed);
                // What is read whole may be more than a piece: that is rested for.
                let more = read.saturating_sub(self.credit_bytes);
                self.credit_bytes -= read.min(self.credit_bytes);
                if more > 0 {
                    self.rests_until = now.after(self.time_for(more));
                }
                self.time_for(piece.saturating_sub(self.credit_bytes).max(more))
            }
            None => {
                self.sealed = None;
                let took = now.since(self.round_began);
                let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                inner.scrubbed.last_round_nanos.store(nanos, Ordering::Relaxed);
                inner.scrubbed.last_round_ms.store(inner.clock.wall_ms(), Ordering::Relaxed);
                inner.scrubbed.rounds.fetch_add(1, Ordering::Relaxed);
                self.rests_until = self.round_began.after(ROUND_INTERVAL).max(now);
                self.round_began = self.rests_until;
                self.rests_until.since(now)
            }
        }
    }

    fn fill(&mut self, now: Time) {
        let nanos = now.since(self.last).as_nanos();
        let more = u64::try_from(nanos * u128::from(self.bytes_per_second) / 1_000_000_000).unwrap_or(u64::MAX);
        // What is too little for a byte is not lost: it is counted from the same moment the next time.
        if more > 0 {
            self.credit_bytes = self.credit_bytes.saturating_add(more).min(self.bytes_per_second);
            self.last = now;
        }
    }

    fn time_for(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)) + Duration::from_nanos(u64::from(bytes > 0))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use base::memory::Disk;

    use super::*;
    use crate::series::Rows;
    use crate::{MemoryLedgers, Options, Store, World};

    /// Only the journal was read; a sealed file with a changed byte was found by whoever asked for the points, or by nobody.
    #[test]
    fn sealed_files_of_series_are_scrubbed_too_and_at_the_same_rate() {
        let disk = Disk::new(1);
        let world = World {
            files: Arc::new(disk.process()),
            clock: Arc::new(base::ManualClock::at(1_700_000_000_000)),
            ledgers: Arc::new(MemoryLedgers::default()),
            threads: false,
            entropy: 1,
        };
        let store = Store::open_in(&world, Path::new("/store"), Options::default()).unwrap();
        let mut rows = Rows::new("d");
        let row = rows.row(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
        let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
        (0..100_000i64).for_each(|time| rows.push_float(slot, time * 1_000_000_000, (time % 1009) as f64 / 7.0));
        store.series().write(&mut rows).unwrap();
        store.series().seal().unwrap();
        let bytes = store.stats().series.file_bytes;
        let of = |end: &str| {
            disk.inventory()
                .into_iter()
                .map(|(path, _)| path)
                .find(|path| path.starts_with("/store/series") && path.to_string_lossy().ends_with(end))
        };
        let (points, copy) = (of(".points").unwrap(), of(".names.copy").unwrap());
        disk.flip(&points, bytes / 2, 1);
        disk.flip(&copy, 12, 1);
        assert!(store.stats().damage.is_empty());
        let inner = store.inner();
        let rate = 64 << 10;
        let mut now = inner.clock.now();
        let begin = now;
        let mut scrubber = Scrubber::new(rate, now).unwrap();
        for _ in 0..10_000 {
            if inner.scrubbed.rounds.load(Ordering::Relaxed) > 0 {
                break;
            }
            now = now.after(scrubber.step(inner, now));
        }
        let damage = store.stats().damage;
        let mut paths: Vec<_> = damage.iter().map(|damage| damage.path.clone()).collect();
        paths.sort();
        assert_eq!(paths, [points, copy], "{damage:?}");
        let scrubbed = store.stats().scrub.bytes;
        assert!(scrubbed >= bytes * 9 / 10, "{scrubbed} of {bytes} bytes");
        let took = now.since(begin).as_secs_f64();
        assert!(took >= (scrubbed / rate) as f64 - 2.0, "{scrubbed} bytes in {took} s");
    }
}
