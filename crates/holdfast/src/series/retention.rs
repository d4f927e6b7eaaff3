//! How long points are kept, and how much room the disk has to have for more.
//!
//! Points that are too old are not shown, from the moment on at which they are; files go when all that is in them is, or are written
//! again when most is.
//!
//! May use: the shelf, `merge`. Must not know: protocols.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::series::{Key, Policy, SeriesId};

use super::folder::Shelved;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Inner;

/// How often it is looked for what is too old.
const LOOK_INTERVAL_MS: u64 = 60_000;
/// A file is written again when this share of its points is too old.
const WORTH_PERCENT: u64 = 50;

/// How long points are kept, and how full the disk may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesOptions {
    /// Points whose time is longer ago than this are removed; the first that fits a series counts. Default: none, everything is
    /// kept.
    pub retention: Vec<Retention>,
    /// Points are refused while fewer bytes are free on the disk; 0 turns it off. Default: 256 MiB.
    pub free_bytes_min: u64,
}

impl Default for SeriesOptions {
    fn default() -> Self {
        Self { retention: Vec::new(), free_bytes_min: 256 << 20 }
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
    /// Why points are refused, when the disk is nearly full.
    pub is_disk_low: bool,
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
    /// Points of a series before this time are too old.
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

    /// Removes what is too old, now and then.
    pub(super) fn retire_series(&self) -> Result<()> {
        let now_ms = self.clock.wall_ms();
        let before = self.shelf.retired_ms.load(Ordering::Relaxed);
        if self.options.series.retention.is_empty() || now_ms.saturating_sub(before) < LOOK_INTERVAL_MS {
            return Ok(());
        }
        self.shelf.retired_ms.store(now_ms, Ordering::Relaxed);
        let mut kept_from = BTreeMap::new();
        for file in &self.shelf.contents().files {
            let old = self.too_old(file, &mut kept_from);
            if old * 100 >= file.of.points.max(1) * WORTH_PERCENT {
                self.rewrite_series(file.of.file)?;
            }
        }
        Ok(())
    }

    /// Points in blocks of a file all of which are too old.
    fn too_old(&self, file: &Shelved, kept_from: &mut BTreeMap<SeriesId, i64>) -> u64 {
        let old = file.index.iter().filter(|at| {
            let from = kept_from.entry(at.series).or_insert_with(|| self.series_kept_from(at.series));
            at.range.to < *from
        });
        old.map(|at| u64::from(at.points)).sum()
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
            blocks: files().map(|file| file.index.len() as u64).sum(),
            points: files().map(|file| file.of.points).sum(),
            written: self.shelf.written.load(Ordering::Relaxed),
            refused: self.shelf.refused.load(Ordering::Relaxed),
            is_disk_low: self.shelf.is_disk_low.load(Ordering::Relaxed),
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
