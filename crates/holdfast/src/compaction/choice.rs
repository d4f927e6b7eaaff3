//! Which segment is compacted next: the one of which most is dead, once enough is dead altogether.
//!
//! While writers bring more than compaction may read it would fall behind in any case, and what it takes now is deader a moment later. So it
//! lets segments die first, up to where it would make haste: then there is little left in them to look at.
//! (Overwriting evenly, 100 MB live: from one in twenty objects in the worst segment to one in three hundred, of which most parts need not be read.)
//!
//! May use: `journal`, `kv`'s counts. Must not know: how a segment is compacted.

use std::time::Duration;

use base::Time;
use journal::{Position, SegmentStats};
use kv::{Older, SegmentBytes};

/// A segment that is dead by so many percent is worth its work whatever the rest is.
const WORTHLESS_PERCENT: u64 = 90;
/// And by so many while others are still dying.
const BURIED_PERCENT: u64 = 99;
/// A segment is not worth its work when less than so many percent of it is dead.
const WORTH_PERCENT: u64 = 5;
/// Writers are held back when more than this is dead, and more than is live, though compaction may run.
const DEBT_FREE_BYTES: u64 = 1 << 30;
/// Stubs for each segment that holds something, before the oldest of these goes, whatever it holds.
const STUBS_PER_SEGMENT: usize = 4;
const STUBS_MIN: usize = 16;
/// The shortest time over which the pace of writers is told.
const PACE_TIME_MIN: Duration = Duration::from_millis(250);

/// What is known of a segment that may be compacted.
#[derive(Clone)]
pub(super) struct Choice {
    pub(super) stats: SegmentStats,
    pub(super) of: SegmentBytes,
    /// Whether nobody writes to it, and no feed may ask for it.
    pub(super) may_go: bool,
}

impl Choice {
    /// The part of the segment that nothing needs, in percent.
    fn dead_percent(&self, is_oldest: bool) -> u64 {
        let held = if is_oldest { self.of.held } else { 0 };
        match self.of.applied {
            // Nothing of it was ever applied that is known of.
            0 => 100,
            applied => (self.of.dead() + held) * 100 / applied,
        }
    }
}

/// The segments that hold something, in order.
pub(super) struct Choices {
    /// Those that are not in work, and not stubborn.
    pub(super) free: Vec<Choice>,
    /// Base of the oldest of all.
    pub(super) oldest: Option<Position>,
    /// Segments that were let go, behind the oldest.
    pub(super) stubs: usize,
    /// Where segments are missing first.
    pub(super) missing_from: Option<Position>,
}

impl Choices {
    /// Where records begin, those in `without` aside. What is missing may be put back.
    pub(super) fn older(&self, segments: &[SegmentStats], without: Position) -> Older {
        let others = segments.iter().filter(|segment| !segment.is_stub && segment.base != without);
        Older(others.map(|segment| segment.base).chain(self.missing_from).min())
    }
}

/// When a segment is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// Once so much of all is dead.
    pub(super) dead_percent: u64,
    /// Where the journal ended when the run began that is under way: it takes what was there then, and nothing twice, so it comes to an end.
    pub(super) run: Option<Position>,
    /// Whether writers bring more than compaction may read, and it is not behind.
    pub(super) may_wait: bool,
}

/// Where the newest so many bytes of journal begin: what ends there or before has as many behind it. Addresses do not say it, as each
/// opening goes on in a segment of its own, far behind the last.
pub(super) fn newest_begin(segments: &[SegmentStats], bytes: u64) -> Position {
    let mut left = bytes;
    for segment in segments.iter().rev().filter(|segment| !segment.is_stub) {
        if left == 0 {
            return segment.end;
        }
        left = left.saturating_sub(bytes_behind(segment, Position::ZERO));
    }
    Position::ZERO
}

/// How much journal a segment has at a position and behind it.
pub(super) fn bytes_behind(segment: &SegmentStats, from: Position) -> u64 {
    segment.records_end.get().saturating_sub(segment.base.max(from).get())
}

/// Which segment comes next, if any is due.
pub(super) fn choose(choices: &Choices, due: Due) -> Option<&Choice> {
    let Due { dead_percent, run, may_wait } = due;
    let is_oldest = |choice: &Choice| Some(choice.stats.base) == choices.oldest;
    let percent = |choice: &Choice| choice.dead_percent(is_oldest(choice));
    let is_in_run = |choice: &Choice| run.is_none_or(|until| choice.stats.end <= until);
    let candidates = || choices.free.iter().filter(|choice| choice.may_go && is_in_run(choice));
    if choices.stubs > STUBS_MIN.max(choices.free.len() * STUBS_PER_SEGMENT)
        && let Some(oldest) = candidates().find(|choice| is_oldest(choice))
    {
        return Some(oldest);
    }
    let all: u64 = candidates().map(|choice| choice.stats.bytes).sum();
    let dead: u64 = candidates().map(|choice| choice.stats.bytes / 100 * percent(choice)).sum();
    let worst = candidates().max_by_key(|choice| percent(choice))?;
    let is_due = match (run, may_wait) {
        (Some(_), _) => true,
        (None, true) => percent(worst) >= BURIED_PERCENT,
        (None, false) => percent(worst) >= WORTHLESS_PERCENT || dead * 100 >= all * dead_percent,
    };
    (is_due && percent(worst) >= WORTH_PERCENT).then_some(worst)
}

/// How far compaction is behind: how much more of what may be compacted is dead than
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// half of what writers may leave behind: from there on compaction makes haste, long before they have to pause.
    pub(super) usual_bytes: u64,
    /// all of that.
    pub(super) debt_bytes: u64,
}

impl Behind {
    pub(super) fn of(choices: &[Choice]) -> Self {
        let of = |part: &dyn Fn(&SegmentBytes) -> u64| -> u64 {
            choices.iter().filter(|choice| choice.may_go).map(|choice| part(&choice.of)).sum()
        };
        let dead = of(&SegmentBytes::dead);
        let free = of(&|of| of.live).max(DEBT_FREE_BYTES);
        Behind { usual_bytes: dead.saturating_sub(free / 2), debt_bytes: dead.saturating_sub(free) }
    }
}

/// How fast the journal grows.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When it was last looked, and how many bytes there were.
    since: Option<(Time, u64)>,
    bytes_per_second: u64,
}

impl Pace {
    /// Bytes per second at which writers append, who have appended `bytes` by now.
    pub(super) fn look(&mut self, now: Time, bytes: u64) -> u64 {
        let (since, before) = *self.since.get_or_insert((now, bytes));
        let time = now.since(since);
        if time >= PACE_TIME_MIN {
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            self.bytes_per_second = bytes.saturating_sub(before).saturating_mul(1_000) / millis.max(1);
            self.since = Some((now, bytes));
        }
        self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(base: u64, applied: u64, live: u64, held: u64) -> Choice {
        let stats = SegmentStats {
            base: Position::new(base),
            end: Position::new(base + 100),
            records_end: Position::new(base + 100),
            bytes: 1_000,
            sealed: true,
            is_stub: false,
            is_let_go: false,
            damaged_bytes: 0,
        };
        Choice { stats, of: SegmentBytes { applied, live, held }, may_go: true }
    }

    fn chosen(free: impl IntoIterator<Item = Choice>, stubs: usize, thorough: bool) -> Option<u64> {
        let free: Vec<Choice> = free.into_iter().collect();
        let oldest = free.first().map(|choice| choice.stats.base);
        let due = Due { dead_percent: 25, run: thorough.then_some(Position::MAX), may_wait: false };
        choose(&Choices { free, oldest, stubs, missing_from: None }, due).map(|choice| choice.stats.base.get())
    }

    #[test]
    fn the_worst_segment_comes_first_once_enough_is_dead_altogether() {
        let full = [choice(0, 100, 100, 0), choice(100, 100, 90, 0), choice(200, 100, 80, 0)];
        assert_eq!(chosen(full.clone(), 0, false), None, "a tenth is dead");
        assert_eq!(chosen(full.clone(), 0, true), Some(200), "but somebody asked");
        let half = [choice(0, 100, 90, 0), choice(100, 100, 30, 0), choice(200, 100, 60, 0)];
        assert_eq!(chosen(half.clone(), 0, false), Some(100));
        let gone = [choice(0, 100, 100, 0), choice(100, 100, 2, 0), choice(200, 100, 100, 0), choice(300, 9, 9, 0)];
        assert_eq!(chosen([], 0, true), None);
        assert_eq!(chosen(gone.clone(), 0, false), Some(100));
        let nearly_full = [choice(0, 100, 98, 0)];
        assert_eq!(chosen(nearly_full, 0, true), None, "not worth the work");
    }

    #[test]
    fn deletes_count_as_dead_in_the_oldest_segment_only() {
        let held = [choice(0, 100, 100, 0), choice(100, 100, 0, 100)];
        assert_eq!(chosen(held.clone(), 0, true), None);
        assert_eq!(chosen(held[1..].to_vec(), 0, false), Some(100));
    }

    #[test]
    fn the_oldest_segment_goes_when_stubs_pile_up_behind_it() {
        let cold = [choice(0, 100, 100, 0), choice(100, 100, 100, 0)];
        assert_eq!(chosen(cold.clone(), STUBS_MIN, false), None);
        assert_eq!(chosen(cold.clone(), STUBS_MIN + 1, false), Some(0));
    }

    #[test]
    fn behind_a_segment_that_cannot_go_deletes_and_stubs_are_left_alone() {
        let free = vec![choice(100, 100, 0, 100), choice(200, 100, 100, 0)];
        let choices = Choices { free, oldest: Some(Position::new(0)), stubs: 100, missing_from: None };
        let run = Due { dead_percent: 25, run: Some(Position::MAX), may_wait: false };
        assert!(choose(&choices, run).is_none(), "it would be moved again and again, for nothing");
    }

    #[test]
    fn what_is_still_dying_is_left_alone_while_writers_bring_more_than_may_be_read() {
        let of = |live: u64, run: Option<Position>, may_wait: bool| {
            let free = vec![choice(0, 1_000, live, 0), choice(100, 1_000, 500, 0)];
            let choices = Choices { free, oldest: Some(Position::new(0)), stubs: 0, missing_from: None };
            choose(&choices, Due { dead_percent: 25, run, may_wait }).is_some()
        };
        assert!(of(50, None, false));
        assert!(!of(50, None, true), "it is deader soon");
        assert!(of(10, None, true), "and then it goes");
        assert!(of(50, Some(Position::MAX), true), "somebody asked");
    }

    /// The story: it was counted in addresses, of which each opening passes over tens of megabytes, so that a store of some kilobytes
    /// that was started three times had nothing left for a feed.
    #[test]
    fn the_newest_bytes_are_those_that_are_there_and_not_addresses() {
        // Each has a thousand bytes of the 64 MiB that it may have.
        let segment = |base: u64, bytes: u64| SegmentStats {
            end: Position::new(base + (64 << 20)),
            records_end: Position::new(base + bytes),
            ..choice(base, bytes, 0, 0).stats
        };
        let mut segments: Vec<SegmentStats> = (0..4).map(|number| segment(number << 26, 1_000)).collect();
        let begin = |segments: &[SegmentStats], bytes| newest_begin(segments, bytes).get() >> 26;
        assert_eq!(begin(&segments, 0), 4);
        assert_eq!(begin(&segments, 1), 3, "as much and the rest of its segment stays");
        assert_eq!(begin(&segments, 1_000), 3);
        assert_eq!(begin(&segments, 2_500), 1);
        assert_eq!(begin(&segments, 64 << 20), 0);
        segments[2].is_stub = true;
        assert_eq!(begin(&segments, 1_000), 2, "what was let go is not there");
        assert_eq!(begin(&[], 0), 0);
        // The one that is written to has nothing yet.
        segments.push(SegmentStats { sealed: false, ..segment(4 << 26, 0) });
        assert_eq!(begin(&segments, 1_000), 2);
        assert_eq!(begin(&segments, 64 << 20), 0);
    }

    #[test]
    fn the_pace_of_writers_is_told_over_a_moment_and_without_what_compaction_moved() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut pace = Pace::default();
        assert_eq!(pace.look(at(10_000), 1 << 30), 0, "all that was there came at no time that is known");
        assert_eq!(pace.look(at(10_001), 2 << 30), 0, "a moment is too short to tell");
        assert_eq!(pace.look(at(10_500), (1 << 30) + 5_000), 10_000);
        assert_eq!(pace.look(at(10_600), 4 << 30), 10_000, "the last is still true");
        assert_eq!(pace.look(at(11_500), (1 << 30) + 5_000), 0);
        assert_eq!(pace.look(at(12_500), 1 << 30), 0, "what was moved is counted a little later than appended");
    }

    #[test]
    fn compaction_makes_haste_long_before_writers_pause() {
        let behind = |applied: u64, live: u64| {
            let Behind { usual_bytes, debt_bytes } = Behind::of(&[choice(0, applied << 20, live << 20, 0)]);
            (usual_bytes >> 20, debt_bytes >> 20)
        };
        assert_eq!(behind(612, 100), (0, 0));
        assert_eq!(behind(1_100, 100), (488, 0));
        assert_eq!(behind(1_324, 100), (712, 200));
        // In proportion to what is live, where that is more.
        assert_eq!(behind(9_000, 6_000), (0, 0));
        assert_eq!(behind(11_000, 6_000), (2_000, 0));
        let mut fed = choice(0, 4 << 30, 0, 0);
        fed.may_go = false;
        assert_eq!(Behind::of(&[fed]), Behind { usual_bytes: 0, debt_bytes: 0 }, "what is kept for others is no debt");
    }

    #[test]
    fn a_segment_that_is_written_to_or_fed_from_is_never_chosen() {
        let mut open = [choice(0, 100, 0, 0)];
        open[0].may_go = false;
        assert_eq!(chosen(open, 100, true), None);
    }
}
