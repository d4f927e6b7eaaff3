//! The background scrubber: reads the sealed segments round and round, at a limited rate, and checks every byte.
//!
//! A token bucket fills with the rate, up to one second of it. One step takes one piece out, if that much is in. A round
//! that ends soon is not followed by the next at once: a small store would be read all the time.
//!
//! May use: `journal`, `store`. Must not know: protocols.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Time, Worker};
use journal::{Scrub, Scrubbed};

use crate::error::{Error, ErrorKind, Result};
use crate::stats::ScrubStats;
use crate::store::Inner;

/// Most bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Rounds begin at least so far apart.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// Starts the scrubber's thread, if it has anything to do. It ends when `inner.stopping` is set and the signal is raised.
pub(crate) fn start(inner: &Arc<Inner>) -> Result<Option<Worker>> {
    let Some(mut scrubber) = Scrubber::new(inner.options.scrub_bytes_per_second, inner.clock.now()) else {
        return Ok(None);
    };
    let inner = Arc::clone(inner);
    let run = move || {
        while !inner.stopping.load(Ordering::Acquire) {
            let pause = scrubber.step(&inner, inner.clock.now());
            inner.scrub_wake.wait(Some(pause));
        }
    };
    let failed = |error| Error::new(ErrorKind::Unavailable, format!("no thread to be had: {error}"));
    Worker::start("holdfast-scrub", run).map(Some).map_err(failed)
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
        match inner.journal.scrub(&mut self.scrub, bytes) {
            Scrubbed::Bytes(read) => {
                self.credit_bytes -= read.min(self.credit_bytes);
                inner.scrubbed.bytes.fetch_add(read, Ordering::Relaxed);
                self.time_for(piece.saturating_sub(self.credit_bytes))
            }
            Scrubbed::Round => {
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
