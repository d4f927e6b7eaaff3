//! How long a question has worked, and whether it goes on.
//!
//! May use: `Stop`, clocks. Must not know: what is asked.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Clock;

use crate::space::{Cancel, Stop};

/// No pause.
const NONE: u64 = u64::MAX;

/// Watches one question: in one thread at a time, though not always the same.
pub(super) struct Worked {
    stop: Stop,
    /// When it began, moved later by its pauses; in nanoseconds of the clock.
    since: AtomicU64,
    /// When the pause began that it makes.
    paused: AtomicU64,
}

impl Worked {
    /// It begins now.
    pub(super) fn new(stop: Stop, clock: &dyn Clock) -> Self {
        Self { stop, since: AtomicU64::new(clock.now().as_nanos()), paused: AtomicU64::new(NONE) }
    }

    pub(super) fn check(&self, clock: &dyn Clock) -> ::series::Result<()> {
        if self.stop.cancel.as_ref().is_some_and(Cancel::is_canceled) {
            return Err(::series::Error::Canceled);
        }
        let Some(time_max) = self.stop.time_max else { return Ok(()) };
        let until = self.paused.load(Relaxed).min(clock.now().as_nanos());
        let worked = until.saturating_sub(self.since.load(Relaxed));
        if u128::from(worked) >= time_max.as_nanos() {
            return Err(::series::Error::Late { time_max });
        }
        Ok(())
    }

    /// Time does not count from now on.
    pub(super) fn pause(&self, clock: &dyn Clock) {
        self.paused.fetch_min(clock.now().as_nanos(), Relaxed);
    }

    /// It counts again.
    pub(super) fn resume(&self, clock: &dyn Clock) {
        let paused = self.paused.swap(NONE, Relaxed);
        if paused != NONE {
            self.since.fetch_add(clock.now().as_nanos().saturating_sub(paused), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::Time;

    use super::*;

    struct At(u64);

    impl Clock for At {
        fn now(&self) -> Time {
            Time::from_nanos(self.0)
        }

        fn wall_ms(&self) -> u64 {
            0
        }
    }

    #[test]
    fn only_work_counts() {
        let time_max = Duration::from_nanos(10);
        let worked = Worked::new(Stop { time_max: Some(time_max), ..Stop::default() }, &At(100));
        assert_eq!(worked.check(&At(109)), Ok(()));
        worked.pause(&At(106));
        worked.pause(&At(500));
        assert_eq!(worked.check(&At(1_000)), Ok(()), "a pause in a pause is one");
        worked.resume(&At(1_000));
        worked.resume(&At(1_001));
        assert_eq!(worked.check(&At(1_003)), Ok(()));
        assert_eq!(worked.check(&At(1_004)), Err(::series::Error::Late { time_max }));
    }

    #[test]
    fn what_is_canceled_does_not_go_on_whatever_the_time() {
        let cancel = Cancel::new();
        let worked = Worked::new(Stop { cancel: Some(cancel.clone()), ..Stop::default() }, &At(0));
        assert_eq!(worked.check(&At(u64::MAX)), Ok(()));
        cancel.cancel();
        assert_eq!(worked.check(&At(0)), Err(::series::Error::Canceled));
    }
}
