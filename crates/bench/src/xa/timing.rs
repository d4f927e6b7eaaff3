//! How long the calls of a thread took, and how long it thought.
//!
//! May use: `hdrhistogram`. Must not know: calls.

use std::thread;
use std::time::{Duration, Instant};

use base::Random;
use hdrhistogram::Histogram;

/// Longest call that is told apart from longer ones: a minute.
const LONGEST_NANOS: u64 = 60_000_000_000;

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Begin,
    Commit,
    Close,
    /// All calls of a cycle.
    Total,
}

impl Call {
    pub(crate) const NAMES: [(&'static str, Self); 5] = [
        ("open", Self::Open),
        ("begin", Self::Begin),
        ("commit", Self::Commit),
        ("close", Self::Close),
        ("total", Self::Total),
    ];
}

/// Times of many cycles.
#[derive(Debug)]
pub(crate) struct Timing {
    calls: [Histogram<u64>; 5],
    /// Of the cycle that is under way.
    cycle: Duration,
    all_nanos: u64,
    pub(crate) cycles: u64,
    pub(crate) thought: Duration,
    random: Random,
}

impl Timing {
    /// Empty; thinking takes random times from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let empty = || Histogram::new_with_max(LONGEST_NANOS, 3).expect("three digits up to a minute fit");
        Self {
            calls: std::array::from_fn(|_| empty()),
            cycle: Duration::ZERO,
            all_nanos: 0,
            cycles: 0,
            thought: Duration::ZERO,
            random: Random::new(seed),
        }
    }

    pub(crate) fn of(&self, call: Call) -> &Histogram<u64> {
        self.calls.get(call as usize).expect("there is a histogram of each call")
    }

    fn record(&mut self, call: Call, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.calls.get_mut(call as usize).expect("there is a histogram of each call").saturating_record(nanos);
    }

    /// Times a call.
    pub(crate) fn time<T>(&mut self, call: Call, run: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = run();
        self.took(call, began.elapsed());
        answer
    }

    /// Notes how long a call took.
    pub(crate) fn took(&mut self, call: Call, took: Duration) {
        self.record(call, took);
        self.cycle += took;
    }

    /// Thinks, evenly between `least` and three times that.
    pub(crate) fn think(&mut self, least: Duration) {
        if least.is_zero() {
            return;
        }
        let more = self.random.below(u64::try_from(2 * least.as_nanos()).unwrap_or(u64::MAX));
        let began = Instant::now();
        thread::sleep(least + Duration::from_nanos(more));
        self.thought += began.elapsed();
    }

    /// Ends a cycle.
    pub(crate) fn end(&mut self) {
        let took = std::mem::take(&mut self.cycle);
        self.record(Call::Total, took);
        self.all_nanos += u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.cycles += 1;
    }

    /// Time in calls of cycles that ended.
    pub(crate) fn total_nanos(&self) -> u64 {
        self.all_nanos
    }

    /// Adds what another thread timed.
    pub(crate) fn add(&mut self, other: &Self) {
        for (to, from) in self.calls.iter_mut().zip(&other.calls) {
            to.add(from).expect("both are of the same kind");
        }
        self.all_nanos += other.all_nanos;
        self.cycles += other.cycles;
        self.thought += other.thought;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_add_up_to_their_cycle() {
        let mut timing = Timing::new(1);
        for _ in 0..3 {
            timing.time(Call::Begin, || ());
            timing.time(Call::Commit, || ());
            timing.end();
        }
        let mut all = Timing::new(0);
        all.add(&timing);
        all.add(&timing);
        assert_eq!((all.cycles, all.of(Call::Commit).len(), all.of(Call::Total).len()), (6, 6, 6));
        assert!(all.of(Call::Open).is_empty());
        assert_eq!(all.total_nanos(), 2 * timing.total_nanos());
    }
}
