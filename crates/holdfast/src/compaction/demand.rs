//! Whether much is being written: then compaction leaves more dead, since what is moved now may be replaced in a moment.
//!
//! Cleaning while idle rather than while busy is the advice of Blackwell, Harris and Seltzer, "Heuristic cleaning algorithms in
//! log-structured file systems" (1995).
//!
//! May use: `base`'s time. Must not know: what compaction does.

use std::time::Duration;

use base::Time;

/// Above this many bytes a second much is being written.
const BUSY_BYTES_PER_SECOND: u64 = 8 << 20;
/// How long it is watched before it is said.
const WATCHED: Duration = Duration::from_secs(2);

/// What was written lately, but for what compaction moved.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// When watching began, and how much had been written by then.
    since: Option<(Time, u64)>,
    is_busy: bool,
}

impl Demand {
    /// Takes note of how much was written altogether, and says whether that is much for the time it took.
    pub(super) fn note(&mut self, now: Time, written_bytes: u64) -> bool {
        let (began, before) = *self.since.get_or_insert((now, written_bytes));
        let watched = now.since(began);
        if watched >= WATCHED {
            let millis = u64::try_from(watched.as_millis()).unwrap_or(u64::MAX);
            let rate = written_bytes.saturating_sub(before).saturating_mul(1_000) / millis;
            self.is_busy = rate > BUSY_BYTES_PER_SECOND;
            self.since = Some((now, written_bytes));
        }
        self.is_busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_busy_while_it_is_written_fast_and_calm_soon_after() {
        let mut demand = Demand::default();
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        assert!(!demand.note(at(0), 1 << 40), "what was there before is no writing");
        assert!(!demand.note(at(1_000), (1 << 40) + (100 << 20)), "a moment says nothing");
        assert!(demand.note(at(2_000), (1 << 40) + (100 << 20)));
        assert!(demand.note(at(3_000), (1 << 40) + (100 << 20)));
        assert!(!demand.note(at(4_000), (1 << 40) + (110 << 20)), "five megabytes a second");
        assert!(!demand.note(at(60_000), (1 << 40) + (200 << 20)));
    }
}
