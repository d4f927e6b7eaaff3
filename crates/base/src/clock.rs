//! Time: a monotone clock for intervals and the wall clock for expiry.
//!
//! May use: the operating system's clocks. Must not know: who asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point on the monotone clock, in nanoseconds since an arbitrary start. Only differences mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(u64);

impl Time {
    /// `nanos` nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This point moved later by `by`, or the end of time.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Where the crates above learn what time it is.
pub trait Clock: Send + Sync {
    /// The monotone clock. Never goes back.
    fn now(&self) -> Time;
    /// The wall clock: milliseconds since 1970-01-01 UTC. May jump.
    fn wall_ms(&self) -> u64;
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct OsClock {
    start: std::time::Instant,
}

impl OsClock {
    /// Starts a monotone clock now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for OsClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for OsClock {
    fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when told: for tests and the simulator.
#[derive(Debug)]
pub struct ManualClock {
    nanos: AtomicU64,
    wall_start_ms: u64,
}

impl ManualClock {
    /// A clock at monotone zero whose wall clock shows `wall_ms`.
    #[must_use]
    pub fn at(wall_ms: u64) -> Self {
        Self { nanos: AtomicU64::new(0), wall_start_ms: wall_ms }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.nanos.load(Ordering::Acquire))
    }

    fn wall_ms(&self) -> u64 {
        self.wall_start_ms + self.nanos.load(Ordering::Acquire) / 1_000_000
    }
}
