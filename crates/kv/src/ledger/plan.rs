//! Which tables are merged next: the leveled way of LevelDB and RocksDB.
//!
//! What is written out comes to level 0, a run each time. Several of these are merged into level 1, with what lies there in
//! their range; what a level has too much of is merged into the next a table at a time. So a key is in each level once at
//! the most, a merge touches a bounded part of the next level, and most of the entries are in the last level, where
//! removals end.
//!
//! May use: nothing. Must not know: files, entries.

use super::list::Run;
use super::table::TableInfo;

/// Levels at the most; the last may be of any size.
const LEVELS: u8 = 7;

/// How tables are merged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    /// Runs of level 0 at which they are merged.
    pub(super) runs: usize,
    /// Bytes of level 1.
    pub(super) first_level_bytes: u64,
    /// How many times as large as the level before a level is.
    pub(super) ratio: u64,
}

/// A step: these tables become others, of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Numbers of the tables of the level above.
    pub(super) from: Vec<u64>,
    /// Numbers of those of the level that they go to which they overlap.
    pub(super) with: Vec<u64>,
    pub(super) to: u8,
    /// Whether they overlap no others, and so may go there as they are.
    pub(super) may_move: bool,
    /// Whether nothing below has keys in their range: then removals end.
    pub(super) is_last: bool,
}

/// First and last key.
type Range<'a> = (&'a [u8], &'a [u8]);

fn range_of(table: &TableInfo) -> Range<'_> {
    (&table.least, &table.greatest)
}

fn around<'a>(tables: impl IntoIterator<Item = &'a TableInfo>) -> Option<Range<'a>> {
    tables.into_iter().map(range_of).reduce(|(from, to), (least, greatest)| (from.min(least), to.max(greatest)))
}

fn overlap(one: Range<'_>, other: Range<'_>) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

fn of_level(runs: &[Run], level: u8) -> impl Iterator<Item = &TableInfo> {
    runs.iter().filter(move |run| run.level == level).flat_map(|run| &run.tables)
}

fn bytes<'a>(tables: impl Iterator<Item = &'a TableInfo>) -> u64 {
    tables.map(|table| table.bytes).sum()
}

fn touched<'a>(runs: &'a [Run], level: u8, range: Range<'a>) -> impl Iterator<Item = &'a TableInfo> {
    of_level(runs, level).filter(move |table| overlap(range_of(table), range))
}

/// The next step, if one is due.
pub(super) fn next(runs: &[Run], policy: Policy) -> Option<Plan> {
    let young = runs.iter().filter(|run| run.level == 0).count();
    if young >= policy.runs {
        return plan(runs, of_level(runs, 0).collect(), 1);
    }
    let mut room = policy.first_level_bytes;
    for level in 1..LEVELS - 1 {
        if bytes(of_level(runs, level)) > room {
            // The one that drags least along.
            let cost = |table: &&TableInfo| {
                let dragged = bytes(touched(runs, level + 1, range_of(table)));
                dragged.saturating_mul(1_000) / table.bytes.max(1)
            };
            let table = of_level(runs, level).min_by_key(cost)?;
            return plan(runs, vec![table], level + 1);
        }
        room = room.saturating_mul(policy.ratio);
    }
    None
}

fn plan(runs: &[Run], from: Vec<&TableInfo>, to: u8) -> Option<Plan> {
    let range = around(from.iter().copied())?;
    // Those of level 0 are all above already.
    let with: Vec<_> = touched(runs, to, range).filter(|_| to > 0).collect();
    let is_last = (to + 1..LEVELS).all(|level| touched(runs, level, range).next().is_none());
    let mut ordered = from.clone();
    ordered.sort_by_key(|table| &table.least);
    let are_apart = ordered.windows(2).all(|pair| match pair {
        [one, next] => one.greatest < next.least,
        _ => true,
    });
    let may_move = with.is_empty() && are_apart;
    let numbers = |tables: Vec<&TableInfo>| tables.into_iter().map(|table| table.number).collect();
    Some(Plan { from: numbers(from), with: numbers(with), to, may_move, is_last })
}

/// What settling may cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Bytes that are written once more for each byte that was written out lately.
    pub(super) times: u64,
    /// Bytes that are written once more, all in all.
    pub(super) bytes: u64,
}

/// The step that leaves ranges fewer runs to look at, where nothing else is to be done: level 0 goes where it would go
/// anyway if that costs little, else its runs become one.
pub(super) fn settling(runs: &[Run], most: Cost) -> Option<Plan> {
    let young: Vec<_> = of_level(runs, 0).collect();
    let range = around(young.iter().copied())?;
    let dragged = bytes(touched(runs, 1, range));
    let is_cheap = dragged <= most.bytes.min(bytes(of_level(runs, 0)).saturating_mul(most.times));
    let young_runs = runs.iter().filter(|run| run.level == 0).count();
    let has_below = runs.len() > young_runs;
    match (young_runs, is_cheap) {
        (1, true) if has_below => plan(runs, young, 1),
        (2.., true) => plan(runs, young, 1),
        (2.., false) => plan(runs, young, 0),
        _ => None,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
