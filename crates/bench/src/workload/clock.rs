//! When one caller's operations begin and when it stops.
//!
//! May use: `pace.rs`. Must not know: stores, operations.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::pace::Pace;

/// What tells all callers of a workload to go on or to stop.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Something failed: stop.
    pub(super) failed: AtomicBool,
    /// Something has to be seen to its end under load: go on although the time is up.
    pub(super) hold: AtomicBool,
    /// Callers that are still at work.
    pub(super) callers: AtomicUsize,
}

/// The clock of one caller.
#[derive(Debug)]
pub(super) struct Clock<'a> {
    pub(super) signals: &'a Signals,
    pub(super) start: Instant,
    /// How long operations may begin; without end if `None`.
    pub(super) time: Option<Duration>,
    /// How many operations may begin.
    pub(super) operations: Option<u64>,
    /// When they should; as soon as the one before has ended if `None`.
    pub(super) pace: Option<Pace>,
    /// How many have begun.
    pub(super) begun: u64,
}

impl Clock<'_> {
    /// Waits for the next operation's time. Returns when it began, or should have; `None` when no more may begin.
    pub(super) fn begin(&mut self) -> Option<Instant> {
        let done = self.operations.is_some_and(|operations| self.begun >= operations);
        if done || self.signals.failed.load(Relaxed) {
            return None;
        }
        let now = Instant::now();
        let end = self.time.map(|time| self.start + time);
        let over = |at: Instant| end.is_some_and(|end| at >= end) && !self.signals.hold.load(Relaxed);
        let begin = match self.pace {
            _ if over(now) => return None,
            None => now,
            Some(pace) => {
                let begin = self.start.checked_add(pace.begin(self.begun))?;
                if over(begin) {
                    return None;
                }
                if begin > now {
                    thread::sleep(begin - now);
                }
                begin
            }
        };
        self.begun += 1;
        Some(begin)
    }

    /// Operations that should have begun until the time was up and did not.
    pub(super) fn not_begun(&self) -> u64 {
        let due = self.pace.zip(self.time).map_or(0, |(pace, time)| pace.due(time));
        due.saturating_sub(self.begun)
    }
}

/// Lets this thread wake up when it wanted to, and not up to 50 us later, as the system groups timers by default.
pub(super) fn wake_up_sharply() {
    // Without it the latencies of an open loop are some microseconds longer, on every side.
    let _ = std::fs::write("/proc/thread-self/timerslack_ns", "1");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(signals: &Signals) -> Clock<'_> {
        Clock { signals, start: Instant::now(), time: None, operations: None, pace: None, begun: 0 }
    }

    #[test]
    fn a_number_of_operations_begins_and_no_more() {
        let signals = Signals::default();
        let mut clock = Clock { operations: Some(3), ..clock(&signals) };
        assert_eq!(std::iter::from_fn(|| clock.begin()).count(), 3);
        assert_eq!(clock.not_begun(), 0);
    }

    #[test]
    fn an_open_loop_begins_late_operations_at_once_and_counts_them_from_their_time() {
        let signals = Signals::default();
        let start = Instant::now().checked_sub(Duration::from_millis(500)).unwrap();
        let pace = Some(Pace::new(100.0, 0, 1));
        let mut clock = Clock { start, pace, time: Some(Duration::from_secs(3_600)), ..clock(&signals) };
        for number in 0..50 {
            assert_eq!(clock.begin(), Some(start + Duration::from_millis(10 * number)));
        }
    }

    #[test]
    fn what_an_open_loop_could_not_begin_in_time_is_counted() {
        let signals = Signals::default();
        let start = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let pace = Some(Pace::new(100.0, 0, 1));
        let mut clock = Clock { start, pace, time: Some(Duration::from_secs(1)), ..clock(&signals) };
        assert_eq!((clock.begin(), clock.not_begun()), (None, 100));
        signals.hold.store(true, Relaxed);
        assert_eq!((clock.begin(), clock.not_begun()), (Some(start), 99));
        signals.failed.store(true, Relaxed);
        assert_eq!(clock.begin(), None);
    }
}
