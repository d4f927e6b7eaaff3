//! Giving way to other threads, where they give something back.
//!
//! Threads that share work, such as a sync, give way to each other for some microseconds, and what one of them does then is done for
//! more. A thread that computes gives nothing back: it has the processor for milliseconds before the one that gave way has it again. (Measured
//! with ten writers that share syncs beside nine threads that compute: 1,100 puts a second, 4,400 when nobody gives way.) So it is measured how long
//! giving way takes and how much the others did meanwhile, and who had to wait for others that did little does not do it again until it has had its
//! share. How long alone would not do: whoever then does not give way has the others wait as long, and soon nobody did.
//!
//! May use: the operating system's threads and clock. Must not know: what is shared.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Giving way for less is never too long.
const HOGGED_TIME: Duration = Duration::from_millis(1);
/// Those who share work do a piece of it in so much time at the most.
const PIECE_TIME: Duration = Duration::from_micros(100);
/// Where they did not nobody gives way for so many times as long as it took.
const SHARE_TIMES: u32 = 4;

/// Those who give way to each other: what one of them has met, all of them know.
#[derive(Debug, Default)]
pub struct Yielder {
    /// Nanoseconds of this process.
    not_before: AtomicU64,
}

impl Yielder {
    /// Lets other threads that are ready run first; `done` counts what they do. False, at once, while that lately took milliseconds in which
    /// they did little.
    pub fn yield_now(&self, done: impl Fn() -> u64) -> bool {
        self.yield_to(now, std::thread::yield_now, done)
    }

    fn yield_to(&self, now: impl Fn() -> Duration, others: impl FnOnce(), done: impl Fn() -> u64) -> bool {
        let (before, done_before) = (now(), done());
        if before < Duration::from_nanos(self.not_before.load(Ordering::Relaxed)) {
            return false;
        }
        others();
        let behind = now();
        if let Some(rest) = rest_behind(behind.saturating_sub(before), done().saturating_sub(done_before)) {
            let nanos = u64::try_from((behind + rest).as_nanos()).unwrap_or(u64::MAX);
            self.not_before.store(nanos, Ordering::Relaxed);
        }
        true
    }
}

/// For how long not to give way again, when that took so long and others did so many pieces of work meanwhile.
#[must_use]
pub fn rest_behind(took: Duration, done: u64) -> Option<Duration> {
    let did_little = PIECE_TIME.saturating_mul(u32::try_from(done).unwrap_or(u32::MAX)) < took;
    (took >= HOGGED_TIME && did_little).then(|| took * SHARE_TIMES)
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
        let (done, does) = (Cell::new(0), Cell::new(0));
        let gives_way = |waits: Duration| {
            let others = || {
                clock.set(clock.get() + waits);
                done.set(done.get() + does.get());
            };
            yielder.yield_to(|| clock.get(), others, || done.get())
        };
        let (short, long, least) = (HOGGED_TIME - Duration::from_nanos(1), 3 * HOGGED_TIME, Duration::from_nanos(1));
        does.set(u64::try_from(long.as_micros() / PIECE_TIME.as_micros()).expect("a small number"));
        assert!(gives_way(long) && gives_way(long), "they did as much as they could");
        does.set(3);
        assert!(gives_way(short) && gives_way(short) && gives_way(long));
        clock.set(clock.get() + long * SHARE_TIMES - least);
        assert!(!gives_way(short), "its share is not over");
        clock.set(clock.get() + least);
        assert!(gives_way(short) && gives_way(short));
    }
}
