//! When the journal is compacted, and how fast.
//!
//! May use: nothing. Must not know: what compaction does.

use std::time::Duration;

const DAY_MS: u64 = 24 * 3600 * 1000;
const HOUR_MS: u64 = 3600 * 1000;

/// When compaction begins by itself. A run that somebody asks for begins at once, whatever the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Whenever enough is dead. The default.
    #[default]
    Continuous,
    /// Each day from one hour, UTC, until before another; over midnight when the first is not below the second.
    Hours {
        /// First hour, 0 to 23.
        from: u8,
        /// The hour before which no run begins any more, 0 to 23.
        to: u8,
    },
    /// So many runs a day, evenly spread, the first at midnight UTC. At most 1440.
    PerDay(u16),
    /// Only when somebody asks.
    OnDemand,
}

/// How the journal is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionOptions {
    /// When. Default: continuously.
    pub schedule: Schedule,
    /// Bytes of journal that are read in a second, 0 for no limit. Half of the space that comes back is lost again when what
    /// is moved is half of what is read, so this is about the rate at which space comes back. When more than 512 MiB, and more
    /// than half of what is live, is dead, it is exceeded, by as much again for each 32 MiB. Default: 32 MiB.
    pub bytes_per_second: u64,
    /// Percent of the journal that may be dead before compaction begins, 1 to 99. Less saves space and costs writes: a
    /// journal that is overwritten evenly is written about 1 + 1/(2p) times with a part p dead. Default: 25, which is a third more than what is live.
    /// While writers bring more than `bytes_per_second` segments are left to die, until there is so much dead that this is exceeded.
    pub dead_percent: u64,
    /// The newest bytes of journal that are left alone, so that a change feed that was away finds them. Default: 64 MiB.
    pub keep_bytes: u64,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self { schedule: Schedule::Continuous, bytes_per_second: 32 << 20, dead_percent: 25, keep_bytes: 64 << 20 }
    }
}

impl CompactionOptions {
    /// How long to rest after so many bytes.
    pub(crate) fn pause(&self, bytes: u64) -> Duration {
        let nanos = (bytes * 1_000_000_000).checked_div(self.bytes_per_second);
        Duration::from_nanos(nanos.unwrap_or(0))
    }
}

impl Schedule {
    /// The number of the slot that `wall_ms` lies in, if runs begin by themselves then: one run for each new number.
    pub(crate) fn slot(self, wall_ms: u64) -> Option<u64> {
        let hour = wall_ms / HOUR_MS;
        match self {
            Self::Continuous | Self::OnDemand => None,
            Self::PerDay(runs) => wall_ms.checked_div(DAY_MS / u64::from(runs).clamp(1, 1440)),
            Self::Hours { from, to } => {
                let (from, to, of_day) = (u64::from(from), u64::from(to), hour % 24);
                let inside = if from < to { (from..to).contains(&of_day) } else { of_day >= from || of_day < to };
                // A run is begun anew each hour of the window: what became dead meanwhile is worth it.
                inside.then_some(hour)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_open_and_close_also_over_midnight() {
        let inside =
            |from, to, hour: u64| Schedule::Hours { from, to }.slot(DAY_MS * 20_000 + HOUR_MS * hour).is_some();
        let open = |from, to| (0..24).filter(|hour| inside(from, to, *hour)).collect::<Vec<_>>();
        assert_eq!(open(1, 4), [1, 2, 3]);
        assert_eq!(open(22, 2), [0, 1, 22, 23]);
        assert_eq!(open(5, 5).len(), 24);
    }

    #[test]
    fn runs_are_spread_over_the_day() {
        let slots = |runs| {
            let minutes = (0..1440).map(|minute| Schedule::PerDay(runs).slot(DAY_MS * 5 + minute * 60_000));
            minutes.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((slots(1), slots(4), slots(0), slots(9999)), (1, 4, 1, 1440));
        assert_eq!((Schedule::OnDemand.slot(0), Schedule::Continuous.slot(0)), (None, None));
    }

    #[test]
    fn the_rate_is_kept_and_may_be_unlimited() {
        let rate = |bytes_per_second| CompactionOptions { bytes_per_second, ..CompactionOptions::default() };
        assert_eq!(rate(1 << 20).pause(1 << 19), Duration::from_millis(500));
        assert_eq!(rate(0).pause(1 << 30), Duration::ZERO);
    }
}
