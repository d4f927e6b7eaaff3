//! How long points are kept, and how much room the disk has to have for more.
//!
//! Points that are too old are not taken (`write`), and not shown from the moment on at which they are; files go when all that is in
//! them is, or are written again when most is. It is the same with what was deleted, and with series that were dropped.
//!
//! May use: the shelf, `merge`, `pace`. Must not know: protocols.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::series::{BlockAt, Erased, Key, Policy, SeriesId};

use super::folder::Shelved;
use super::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Inner;

/// How often it is looked for what is too old.
const LOOK_INTERVAL_MS: u64 = 60_000;
/// A file is written again when this share of its points is too old.
const WORTH_PERCENT: u64 = 50;

/// How long points are kept, and how full the disk may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesOptions {
    /// Points whose time is longer ago than this are refused, and removed; the first that fits a series counts. Default: none,
    /// everything is kept.
    pub retention: Vec<Retention>,
    /// Points are refused while fewer bytes are free on the disk; 0 turns it off. Default: 256 MiB.
    pub free_bytes_min: u64,
    /// Bytes of sealed files that merging reads in a second, 0 for no limit. Each point is merged about as often as the number of
    /// files doubles, and a MiB is some two million points, so the default is more than two shared cores can write; a lower one
    /// keeps cores and disk free for queries. Above 48 files it is exceeded, twice as fast, and so on: each file costs every query.
    /// Default: 16 MiB.
    pub merge_bytes_per_second: u64,
}

impl Default for SeriesOptions {
    fn default() -> Self {
        Self { retention: Vec::new(), free_bytes_min: 256 << 20, merge_bytes_per_second: 16 << 20 }
    }
}

/// How long points of some series are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// The database; `*` stands for any characters.
    pub database: String,
    /// The metric; `*` stands for any characters.
    pub metric: String,
    /// How long.
    pub keep: Duration,
}

/// How the time series are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeriesStats {
    /// Series.
    pub series: u64,
    /// Bytes of points in memory, which the journal keeps.
    pub memory_bytes: u64,
    /// Bytes of names and their index in memory, nearly.
    pub names_bytes: u64,
    /// Sealed files.
    pub files: u64,
    /// Bytes of them.
    pub file_bytes: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Points in them; one that was written in several counts in each.
    pub points: u64,
    /// Points written since open.
    pub written: u64,
    /// Points refused since open, because of their type or a limit.
    pub refused: u64,
    /// Points are refused because the disk is nearly full.
    pub is_disk_low: bool,
    /// Files that merging made since open.
    pub merges: u64,
    /// Bytes that it read for them.
    pub merged_bytes: u64,
    /// How often sealing failed since open.
    pub seal_failures: u64,
    /// How often merging did.
    pub merge_failures: u64,
    /// Points since open that queries needed not read, because a rollup said enough of them.
    pub summarized: u64,
    /// Ranges that were deleted and are remembered, because files have points of them.
    pub erased: u64,
    /// Bytes of memory that questions hold now.
    pub query_bytes: u64,
}

/// How many points of a block were deleted, if they lie evenly.
fn share(at: &BlockAt, erased: &[Erased]) -> u64 {
    let length = |from: i64, to: i64| (i128::from(to) - i128::from(from) + 1).max(0);
    let gone = |erased: &Erased| length(erased.range.from.max(at.range.from), erased.range.to.min(at.range.to));
    let whole = length(at.range.from, at.range.to).max(1);
    let gone = erased.iter().map(gone).sum::<i128>().min(whole);
    u64::try_from(i128::from(at.points) * gone / whole).unwrap_or(0)
}

/// Whether a name fits a pattern in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = name.get(at + part.len()..).unwrap_or_default();
    }
    name.ends_with(end)
}

impl Inner {
    /// Points of a series before this time are too old; `i64::MIN` when all are kept.
    pub(super) fn kept_from(&self, key: &Key) -> i64 {
        let fitting = |it: &&Retention| fits(&it.database, &key.database) && fits(&it.metric, &key.metric);
        let Some(retention) = self.options.series.retention.iter().find(fitting) else { return i64::MIN };
        let now = i64::try_from(u128::from(self.clock.wall_ms()) * 1_000_000).unwrap_or(i64::MAX);
        now.saturating_sub(i64::try_from(retention.keep.as_nanos()).unwrap_or(i64::MAX))
    }

    /// What holds for a database, in the order in which it counts.
    pub(super) fn retention_of(&self, database: &str) -> Vec<Policy> {
        let fitting = self.options.series.retention.iter().filter(|of| fits(&of.database, database));
        let keep = |of: &Retention| i64::try_from(of.keep.as_nanos()).unwrap_or(i64::MAX);
        fitting.map(|of| Policy { metric: of.metric.clone(), keep: keep(of) }).collect()
    }

    /// As [`Inner::kept_from`], of a series by its number.
    pub(super) fn series_kept_from(&self, series: SeriesId) -> i64 {
        if self.options.series.retention.is_empty() {
            return i64::MIN;
        }
        let partition = self.partitions.get(usize::from(series.partition));
        let key = partition.and_then(|partition| partition.series().key(series.number));
        key.map_or(i64::MIN, |key| self.kept_from(&key))
    }

    /// Removes what is too old, was deleted or whose series was dropped, now and then: whole files first, for which no room is needed
    /// on the disk. A file that fails keeps no other from its turn.
    pub(super) fn retire_series(&self, pace: &mut Pace) -> Result<()> {
        let now_ms = self.clock.wall_ms();
        let before = self.shelf.retired_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(before) < LOOK_INTERVAL_MS {
            return Ok(());
        }
        self.shelf.retired_ms.store(now_ms, Ordering::Relaxed);
        let (mut whole, mut others) = (Vec::new(), Vec::new());
        for file in &self.shelf.contents().files {
            let points = file.of.points.max(1);
            let gone = self.gone(file);
            if gone >= points {
                whole.push(file.of.file);
            } else if gone * 100 >= points * WORTH_PERCENT && !file.is_damaged() {
                // Of a damaged file only what is gone whole is read no more.
                others.push(file.of.file);
            }
        }
        let mut outcome = Ok(());
        for file in whole.into_iter().chain(others) {
            match self.rewrite_series(file, pace) {
                Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
                rewritten => outcome = outcome.and(rewritten),
            }
        }
        outcome
    }

    /// Points of a file that are not shown any more, as far as its index says: those in blocks that are too old or of no series, and
    /// as many of the others as the time has a share that was deleted.
    fn gone(&self, file: &Shelved) -> u64 {
        let of_series = file.index.blocks.chunk_by(|a, b| a.series == b.series);
        of_series
            .map(|blocks| {
                let Some(series) = blocks.first().map(|at| at.series) else { return 0 };
                let points = || blocks.iter().map(|at| u64::from(at.points));
                let Some(partition) = self.partitions.get(usize::from(series.partition)) else { return 0 };
                let erased = {
                    let engine = partition.series();
                    if engine.kind(series.number).is_none() {
                        return points().sum();
                    }
                    let through = file.through(series.partition);
                    let mut erased = engine.erased().get(&series.number).cloned().unwrap_or_default();
                    erased.retain(|erased| erased.at > through);
                    erased
                };
                let kept_from = self.series_kept_from(series);
                let gone = |at: &BlockAt| if at.range.to < kept_from { at.points.into() } else { share(at, &erased) };
                blocks.iter().map(gone).sum()
            })
            .sum()
    }

    /// Looks how much room the disk has.
    pub(super) fn look_for_room(&self) {
        let min = self.options.series.free_bytes_min;
        // Who cannot say is believed to have room: a full disk says so when it is written to.
        let is_low = min > 0 && self.files.free_bytes(self.dir()).is_ok_and(|free| free < min);
        self.shelf.is_disk_low.store(is_low, Ordering::Relaxed);
    }

    /// Refuses points while the disk is nearly full.
    pub(super) fn check_room(&self) -> Result<()> {
        if !self.shelf.is_disk_low.load(Ordering::Relaxed) {
            return Ok(());
        }
        let min = self.options.series.free_bytes_min;
        let text = format!("fewer than {min} bytes are free on the disk: points are refused until there are more");
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    pub(crate) fn series_stats(&self) -> SeriesStats {
        let contents = self.shelf.contents();
        let files = || contents.files.iter();
        SeriesStats {
            series: self.shelf.series.load(Ordering::Relaxed),
            memory_bytes: self.shelf.memory_bytes.load(Ordering::Relaxed),
            names_bytes: self.partitions.iter().map(|partition| partition.series().catalog_bytes() as u64).sum(),
            files: contents.files.len() as u64,
            file_bytes: files().map(|file| file.of.bytes).sum(),
            blocks: files().map(|file| file.index.blocks.len() as u64).sum(),
            points: files().map(|file| file.of.points).sum(),
            written: self.shelf.written.load(Ordering::Relaxed),
            refused: self.shelf.refused.load(Ordering::Relaxed),
            is_disk_low: self.shelf.is_disk_low.load(Ordering::Relaxed),
            merges: self.shelf.merges.load(Ordering::Relaxed),
            merged_bytes: self.shelf.merged_bytes.load(Ordering::Relaxed),
            seal_failures: self.shelf.sealer.failures.load(Ordering::Relaxed),
            merge_failures: self.shelf.merger.failures.load(Ordering::Relaxed),
            summarized: self.shelf.summarized.load(Ordering::Relaxed),
            query_bytes: self.shelf.query_bytes.load(Ordering::Relaxed),
            erased: self.partitions.iter().map(|partition| partition.series().erased_count() as u64).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_what_they_say() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("*", "cpu", true),
            ("cpu", "cpu", true),
            ("cpu", "cpu0", false),
            ("cpu.*", "cpu.user", true),
            ("cpu.*", "cpu", false),
            ("*.user", "cpu.user", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
