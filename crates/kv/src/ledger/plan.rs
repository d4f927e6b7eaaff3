//! Which tables are merged next: the leveled way of LevelDB and RocksDB, with level 0 as RocksDB's universal way has it.
//!
//! What is written out comes to level 0, a run each time. When there are several, and all of them together are worth what they drag along of level 1,
//! they are merged into it; until then the younger ones, of like size, become one, so that each byte is written a few times and there are few runs.
//! What another level has too much of is merged into the next a table at a time. So in each level but the first a key is once at
//! the most, a merge touches a bounded part of the next level, and most of the entries are in the last level, where removals end.
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
    /// Bytes of level 1 that are written once more for each byte of level 0 at the most.
    pub(super) drags: u64,
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
    /// Whether they overlap no others and have nothing that ends there, and so may go there as they are.
    pub(super) may_move: bool,
    /// Whether nothing below has keys in the range of them all: then removals end.
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
    if young >= policy.runs
        && let Some(plan) = of_first_level(runs, policy)
    {
        return Some(plan);
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
            return Some(down(runs, vec![table], level + 1));
        }
        room = room.saturating_mul(policy.ratio);
    }
    None
}

/// The step that leaves ranges fewer runs to look at, where nothing else is to be done.
pub(super) fn settling(runs: &[Run], policy: Policy) -> Option<Plan> {
    let young = runs.iter().filter(|run| run.level == 0).count();
    let has_below = runs.len() > young;
    (young > 1 || young == 1 && has_below).then(|| of_first_level(runs, policy)).flatten()
}

/// What is to become of level 0: it goes down, or its younger runs become one.
fn of_first_level(runs: &[Run], policy: Policy) -> Option<Plan> {
    let young: Vec<_> = of_level(runs, 0).collect();
    let dragged = bytes(touched(runs, 1, around(young.iter().copied())?));
    if dragged <= bytes(of_level(runs, 0)).saturating_mul(policy.drags) {
        return Some(down(runs, young, 1));
    }
    // Each is taken along that is no larger than those before it together: so a byte is merged as often as what it is in doubles.
    let sizes = runs.iter().filter(|run| run.level == 0).map(|run| bytes(run.tables.iter()));
    let mut all = 0;
    let alike = sizes.take_while(|size| {
        let is_alike = all == 0 || *size <= all;
        all += size;
        is_alike
    });
    let alike = alike.count();
    (alike > 1).then(|| together(runs, alike))
}

/// The step that merges tables of a level into the next.
fn down(runs: &[Run], from: Vec<&TableInfo>, to: u8) -> Plan {
    let range = around(from.iter().copied());
    let with: Vec<_> = range.map(|range| touched(runs, to, range).collect()).unwrap_or_default();
    // What is taken along may reach further.
    let all = around(from.iter().chain(&with).copied());
    let is_last = all.is_none_or(|all| (to + 1..LEVELS).all(|level| touched(runs, level, all).next().is_none()));
    plan(from, with, to, is_last)
}

/// The step that makes one run of the first ones of level 0.
fn together(runs: &[Run], count: usize) -> Plan {
    let (young, rest) = runs.split_at_checked(count).unwrap_or((runs, &[]));
    let from: Vec<_> = young.iter().flat_map(|run| &run.tables).collect();
    let all = around(from.iter().copied());
    let below = || rest.iter().flat_map(|run| &run.tables);
    let is_last = all.is_none_or(|all| !below().any(|table| overlap(range_of(table), all)));
    plan(from, Vec::new(), 0, is_last)
}

fn plan(from: Vec<&TableInfo>, with: Vec<&TableInfo>, to: u8, is_last: bool) -> Plan {
    let mut ordered = from.clone();
    ordered.sort_by_key(|table| &table.least);
    let are_apart = ordered.windows(2).all(|pair| match pair {
        [one, next] => one.greatest < next.least,
        _ => true,
    });
    let removes = from.iter().any(|table| table.removals > 0);
    let may_move = with.is_empty() && are_apart && !(is_last && removes);
    let numbers = |tables: Vec<&TableInfo>| tables.into_iter().map(|table| table.number).collect();
    Plan { from: numbers(from), with: numbers(with), to, may_move, is_last }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
