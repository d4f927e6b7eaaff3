//! Giving way to other threads, where they give something back.
//!
//! Threads that share work, such as a sync, give way to each other for some microseconds, and what one of them does then is done for
//! more. A thread that computes gives nothing back: it has the processor for milliseconds before the one that gave way has it again. (Measured
//! with ten writers that share syncs beside nine threads that compute: 1,100 puts a second, 4,400 when nobody gives way.) So it is measured how long
//! giving way takes, and who had to wait for milliseconds does not do it again until it has had its share.
//!
//! May use: the operating system's threads and clock. Must not know: what is shared.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that share work do not let others wait for so long.
const HOGGED_TIME: Duration = Duration::from_millis(2);
/// Then nobody gives way for so many times as long.
const SHARE_TIMES: u32 = 4;

/// Those who give way to each other: what one of them has met, all of them know.
#[derive(Debug, Default)]
pub struct Yielder {
    /// Nanoseconds of this process.
    not_before: AtomicU64,
}

impl Yielder {
    /// Lets other threads that are ready run first. False, at once, while that lately took milliseconds.
    pub fn yield_now(&self) -> bool {
        self.yield_to(now, std::thread::yield_now)
    }

    fn yield_to(&self, now: impl Fn() -> Duration, others: impl FnOnce()) -> bool {
        let before = now();
        if before < Duration::from_nanos(self.not_before.load(Ordering::Relaxed)) {
            return false;
        }
        others();
        let behind = now();
        if let Some(rest) = rest_behind(behind.saturating_sub(before)) {
            let nanos = u64::try_from((behind + rest).as_nanos()).unwrap_or(u64::MAX);
            self.not_before.store(nanos, Ordering::Relaxed);
        }
        true
    }
}

/// For how long not to give way again, when that took so long.
#[must_use]
pub fn rest_behind(took: Duration) -> Option<Duration> {
    (took >= HOGGED_TIME).then(|| took * SHARE_TIMES)
}

fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn who_waited_for_milliseconds_does_not_give_way_until_it_has_had_its_share() {
        let yielder = Yielder::default();
        let clock = Cell::new(Duration::from_secs(1));
        let gives_way = |waits: Duration| yielder.yield_to(|| clock.get(), || clock.set(clock.get() + waits));
        let (short, long, least) = (HOGGED_TIME - Duration::from_nanos(1), 3 * HOGGED_TIME, Duration::from_nanos(1));
        assert!(gives_way(short) && gives_way(short) && gives_way(long));
        clock.set(clock.get() + long * SHARE_TIMES - least);
        assert!(!gives_way(short), "its share is not over");
        clock.set(clock.get() + least);
        assert!(gives_way(short) && gives_way(short));
    }
}
