//! Merging sealed files, so that there are few of them, blocks are full, and what was deleted or written anew goes.
//!
//! Files that lie next to each other in the order in which they count become one, when the older is not much larger than those behind
//! it together: each point is written again as often as the number of files has doubled.
//!
//! May use: the shelf, `seal`. Must not know: who writes or reads.

use std::sync::Arc;

use journal::{Level, Log};

use ::series::{BlockAt, Erased, Points, SeriesId, without_erased};

use super::folder::Shelved;
use super::seal::Writer;
use super::shelf::Contents;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Inner, lock};

/// Files that are merged at least, unless something else calls for it.
const FILES_MIN: usize = 4;
/// Files beyond this are left as they are.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Blocks with so many points are taken over as they are.
const FULL_POINTS: u32 = 4096;
/// Points of one series that are gathered before they are written.
const GATHERED_POINTS: usize = 8192;

/// The newest files that are worth merging: those behind which the older one is not much larger than all of them.
fn worth_merging(files: &[Arc<Shelved>]) -> Option<std::ops::Range<usize>> {
    let mut start = files.len();
    let mut bytes = 0u64;
    for (at, file) in files.iter().enumerate().rev() {
        if file.of.bytes > FILE_BYTES_MAX
            || file.is_damaged()
            || (files.len() - at > FILES_MIN && file.of.bytes > 2 * bytes)
        {
            break;
        }
        start = at;
        bytes += file.of.bytes;
    }
    (files.len() - start >= FILES_MIN).then_some(start..files.len())
}

impl Inner {
    /// Merges files if that is worth it. True when it was.
    pub(crate) fn merge_series(&self) -> Result<bool> {
        let _one = lock(&self.shelf.merging);
        let contents = self.shelf.contents();
        let Some(run) = worth_merging(&contents.files) else { return Ok(false) };
        self.merge(&contents, run)?;
        self.forget_erased();
        Ok(true)
    }

    /// Writes one file again, without what was deleted or is too old.
    pub(super) fn rewrite_series(&self, file: u64) -> Result<()> {
        let _one = lock(&self.shelf.merging);
        let contents = self.shelf.contents();
        match contents.files.iter().position(|open| open.of.file == file) {
            Some(at) => self.merge(&contents, at..at + 1),
            None => Ok(()),
        }
    }

    fn merge(&self, contents: &Contents, run: std::ops::Range<usize>) -> Result<()> {
        let files = contents.files.get(run).unwrap_or_default();
        let Some(newest) = files.last() else { return Ok(()) };
        let erased: Vec<Vec<Erased>> = self.partitions.iter().map(|partition| partition.series().erased()).collect();
        let mut writer = Writer::create(self, self.shelf.new_file())?;
        let mut cursors: Vec<&[BlockAt]> = files.iter().map(|file| file.index.as_slice()).collect();
        while let Some(series) = cursors.iter().filter_map(|blocks| blocks.first()).map(|at| at.series).min() {
            let mut of_it = Vec::new();
            let kept_from = self.series_kept_from(series);
            for (file, blocks) in files.iter().zip(&mut cursors) {
                let count = blocks.iter().take_while(|at| at.series == series).count();
                let (mine, rest) = blocks.split_at(count);
                of_it.extend(mine.iter().filter(|at| at.range.to >= kept_from).map(|at| (&**file, at)));
                *blocks = rest;
            }
            let partition = self.partitions.get(usize::from(series.partition));
            if partition.is_none_or(|partition| partition.series().kind(series.number).is_none()) {
                // It was dropped.
                continue;
            }
            let erased = erased.get(usize::from(series.partition)).map_or(&[][..], Vec::as_slice);
            let erased: Vec<Erased> = erased.iter().filter(|erased| erased.number == series.number).copied().collect();
            self.merge_one(series, &of_it, &erased, &mut writer)?;
        }
        let through = newest.of.through.clone();
        let merged: Vec<u64> = files.iter().map(|file| file.of.file).collect();
        let made = writer.finish(through)?;
        // What was deleted or dropped, and is left out now, must not come back with the power.
        self.journal.wait(self.newest(), Level::Synced)?;
        self.shelf.change(|manifest| {
            let at = manifest.files.iter().position(|of| merged.contains(&of.file));
            manifest.files.retain(|of| !merged.contains(&of.file));
            if let (Some(at), Some(made)) = (at, made) {
                manifest.files.insert(at.min(manifest.files.len()), made);
            }
        })
    }

    /// Writes one series' points of several files, of which the later count.
    fn merge_one(
        &self,
        series: SeriesId,
        blocks: &[(&Shelved, &BlockAt)],
        erased: &[Erased],
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        let mut in_time: Vec<&(&Shelved, &BlockAt)> = blocks.iter().collect();
        in_time.sort_by_key(|(_, at)| at.range.from);
        let overlap = in_time.windows(2).any(|pair| matches!(pair, [(_, a), (_, b)] if a.range.to >= b.range.from));
        let mut gathered = Points::new();
        if overlap {
            // In the order in which they count.
            for (file, at) in blocks {
                self.gather(file, at, erased, &mut gathered)?;
            }
            gathered.sort();
            return writer.add(series, &gathered);
        }
        for (file, at) in in_time {
            let is_touched = erased.iter().any(|erased| erased.at > file.through(series.partition));
            if at.points >= FULL_POINTS && !is_touched {
                writer.add(series, &gathered)?;
                gathered.clear();
                writer.sealer.add_raw(at, &file.block_bytes(at)?);
                writer.flush()?;
                continue;
            }
            self.gather(file, at, erased, &mut gathered)?;
            if gathered.len() >= GATHERED_POINTS {
                writer.add(series, &gathered)?;
                gathered.clear();
            }
        }
        writer.add(series, &gathered)
    }

    fn gather(&self, file: &Shelved, at: &BlockAt, erased: &[Erased], to: &mut Points) -> Result<()> {
        let Some(points) = self.shelf.block(file, at)? else {
            // The file stays as it is, and is told of: merging would take the damage away, and with it what could be saved.
            let text = "a sealed file is damaged, and is not merged";
            return Err(Error::new(ErrorKind::Corrupt, text));
        };
        let through = file.through(at.series.partition);
        if erased.iter().all(|erased| erased.at <= through) {
            to.extend_from(&points, 0..points.len());
        } else {
            let mut left = Points::clone(&points);
            without_erased(&mut left, erased, through);
            to.extend_from(&left, 0..left.len());
        }
        Ok(())
    }
}
