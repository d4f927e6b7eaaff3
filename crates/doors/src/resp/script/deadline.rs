//! How long a run may go on.
//!
//! A script is told to end when it has worked for too long, not when the system let other programs have the processors meanwhile: else scripts
//! of two lines failed on a machine that is busy. As it holds locks all the while, there is an end to that too. A thread that waits for a disk does not work either.
//!
//! May use: clocks, the thread's among them. Must not know: scripts.

use std::time::{Duration, Instant};

/// After so many times as long as it may work a run is over, however little of that it had a processor.
const STALLED_MAX: u32 = 20;

/// How long the calling thread has had a processor, since it began.
pub(super) fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0))
}

/// The end of one run, in the thread that made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    began: Instant,
    time_max: Duration,
    /// How long the thread had worked by then, if it is work that counts.
    worked: Option<Duration>,
}

impl Deadline {
    /// So much time from now on, worked or not.
    pub(crate) fn at(time_max: Duration) -> Self {
        Deadline { began: Instant::now(), time_max, worked: None }
    }

    /// So much work of this thread from now on, within [`STALLED_MAX`] times as long.
    pub(crate) fn of_work(time_max: Duration) -> Self {
        Deadline { worked: Some(worked()), ..Self::at(time_max) }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.left_after(self.began.elapsed(), worked)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// The clock of the thread is asked only when it matters: it takes a system call.
    fn left_after(&self, passed: Duration, worked: impl FnOnce() -> Duration) -> Duration {
        let left = self.time_max.saturating_sub(passed);
        match self.worked {
            Some(before) if left.is_zero() => {
                let work_left = self.time_max.saturating_sub(worked().saturating_sub(before));
                work_left.min((self.time_max * STALLED_MAX).saturating_sub(passed))
            }
            _ => left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn work_counts_and_not_the_time_that_others_had_the_processor() {
        let deadline = Deadline { worked: Some(ms(1_000)), ..Deadline::at(ms(100)) };
        let never = || -> Duration { panic!("the clock of the thread was asked") };
        assert_eq!(deadline.left_after(ms(0), never), ms(100));
        assert_eq!(deadline.left_after(ms(99), never), ms(1));
        for (passed, worked, left) in [
            (100, 1_000, 100),
            (150, 1_030, 70),
            (500, 1_099, 1),
            (500, 1_100, 0),
            (1_990, 1_001, 10),
            (2_000, 1_001, 0),
        ] {
            assert_eq!(
                deadline.left_after(ms(passed), || ms(worked)),
                ms(left),
                "{passed} ms passed, worked to {worked}"
            );
        }
        let deadline = Deadline::at(ms(100));
        assert_eq!(deadline.left_after(ms(60), never), ms(40));
        assert_eq!(deadline.left_after(ms(100), never), ms(0));
    }

    #[test]
    fn a_thread_that_computes_comes_to_its_end() {
        // Before the deadline asks the same clock: what it measures from is this or later.
        let before = worked();
        let deadline = Deadline::of_work(ms(5));
        // Bounded by the end there is for those who never work.
        while !deadline.is_over() {
            std::hint::spin_loop();
        }
        assert!(worked() - before >= ms(5) || deadline.began.elapsed() >= ms(100));
    }
}
