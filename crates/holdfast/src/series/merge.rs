//! Merging sealed files, so that there are few of them, blocks are full, and what was deleted or written anew goes.
//!
//! Files that lie next to each other in the order in which they count become one, when the older is not much larger than those behind
//! it together: each point is written again as often as the number of files has doubled. A file with damage is left as it is, for
//! whoever can read more of it; those older and those newer than it are merged among themselves.
//!
//! May use: the shelf, `seal`, `pace`. Must not know: who writes or reads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use journal::{Level, Log, Position};

use ::series::{BlockAt, Erased, Points, Range as TimeRange, SeriesId, without_erased};

use super::folder::Shelved;
use super::pace::Pace;
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
/// Bytes of them, which texts may be many of.
const GATHERED_BYTES: usize = 16 << 20;

/// The newest files that are worth merging: those behind which the older one is not much larger than all of them.
fn worth_merging(files: &[Arc<Shelved>]) -> Option<Range<usize>> {
    let mut start = files.len();
    let mut bytes = 0u64;
    for (at, file) in files.iter().enumerate().rev() {
        if file.of.bytes > FILE_BYTES_MAX || (files.len() - at > FILES_MIN && file.of.bytes > 2 * bytes) {
            break;
        }
        start = at;
        bytes += file.of.bytes;
    }
    (files.len() - start >= FILES_MIN).then_some(start..files.len())
}

/// Files that lie next to each other in the order in which they count, with none between them that is damaged or cannot be read;
/// the newest first.
fn stretches(contents: &Contents) -> Vec<Range<usize>> {
    let mut stretches = Vec::new();
    let (mut start, mut next) = (0, 0);
    for of in &contents.manifest.files {
        let open = contents.files.get(next).filter(|open| open.of.file == of.file);
        if open.is_some_and(|open| !open.is_damaged()) {
            next += 1;
            continue;
        }
        stretches.push(start..next);
        next += usize::from(open.is_some());
        start = next;
    }
    stretches.push(start..next);
    stretches.reverse();
    stretches
}

/// Files that are being merged, and by partition what was deleted when that began.
struct Merge {
    files: Vec<Arc<Shelved>>,
    deleted: Vec<Deleted>,
}

/// What was deleted in a partition, by series, and up to which position that is everything.
struct Deleted {
    by_series: BTreeMap<u32, Vec<Erased>>,
    applied: Position,
}

impl Inner {
    /// Merges files if that is worth it. True when it was.
    pub(crate) fn merge_series(&self, pace: &mut Pace) -> Result<bool> {
        let _one = lock(&self.shelf.merging);
        let contents = self.shelf.contents();
        let worth = |stretch: Range<usize>| {
            let found = worth_merging(contents.files.get(stretch.clone())?)?;
            Some(stretch.start + found.start..stretch.start + found.end)
        };
        let Some(run) = stretches(&contents).into_iter().find_map(worth) else { return Ok(false) };
        self.merge(self.begin_merge(&contents, run), pace)?;
        Ok(true)
    }

    /// Writes one file again, without what was deleted or is too old.
    pub(super) fn rewrite_series(&self, file: u64, pace: &mut Pace) -> Result<()> {
        let _one = lock(&self.shelf.merging);
        let contents = self.shelf.contents();
        match contents.files.iter().position(|open| open.of.file == file) {
            Some(at) => self.merge(self.begin_merge(&contents, at..at + 1), pace),
            None => Ok(()),
        }
    }

    fn begin_merge(&self, contents: &Contents, run: Range<usize>) -> Merge {
        let deleted = self.partitions.iter().map(|partition| {
            let engine = partition.series();
            Deleted { by_series: engine.erased().clone(), applied: engine.applied() }
        });
        Merge { files: contents.files.get(run).unwrap_or_default().to_vec(), deleted: deleted.collect() }
    }

    fn merge(&self, Merge { files, deleted }: Merge, pace: &mut Pace) -> Result<()> {
        let Some(newest) = files.last() else { return Ok(()) };
        // What was deleted by now is left out, so it needs not be remembered for this file.
        let through = newest.of.through.iter().zip(&deleted).map(|(through, it)| it.applied.max(*through)).collect();
        let number = self.shelf.new_file();
        let made = self
            .write_merged(number, &files, &deleted, pace)
            .and_then(|writer| writer.finish(through))
            .inspect_err(|_| self.shelf.forget_points([number].into_iter()))?;
        let merged: Vec<u64> = files.iter().map(|file| file.of.file).collect();
        // What was deleted or dropped, and is left out now, must not come back with the power.
        self.journal.wait(self.newest(), Level::Synced)?;
        self.shelf.change(|manifest| {
            let at = manifest.files.iter().position(|of| merged.contains(&of.file));
            manifest.files.retain(|of| !merged.contains(&of.file));
            if let (Some(at), Some(made)) = (at, made) {
                manifest.files.insert(at.min(manifest.files.len()), made);
            }
            let files = &manifest.files;
            let is_in_a_file = |partition, at| files.iter().any(|of| of.through(partition) < at);
            manifest.erased.retain(|(partition, erased)| is_in_a_file(*partition, erased.at));
        })?;
        self.shelf.merges.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.forget_erased();
        Ok(())
    }

    fn write_merged(
        &self,
        number: u64,
        files: &[Arc<Shelved>],
        deleted: &[Deleted],
        pace: &mut Pace,
    ) -> Result<Writer<'_>> {
        let mut writer = Writer::create(self, number)?;
        let mut cursors: Vec<&[BlockAt]> = files.iter().map(|file| file.index.blocks.as_slice()).collect();
        while let Some(series) = cursors.iter().filter_map(|blocks| blocks.first()).map(|at| at.series).min() {
            let mut of_it: Vec<BlockOf<'_>> = Vec::new();
            let kept_from = self.series_kept_from(series);
            for ((nth, file), blocks) in files.iter().enumerate().zip(&mut cursors) {
                let count = blocks.iter().take_while(|at| at.series == series).count();
                let (mine, rest) = blocks.split_at(count);
                of_it.extend(mine.iter().filter(|at| at.range.to >= kept_from).map(|at| BlockOf { nth, file, at }));
                *blocks = rest;
            }
            let partition = self.partitions.get(usize::from(series.partition));
            if partition.is_none_or(|partition| partition.series().kind(series.number).is_none()) {
                // It was dropped.
                continue;
            }
            let erased = deleted.get(usize::from(series.partition));
            let erased = erased.and_then(|it| it.by_series.get(&series.number)).map_or(&[][..], Vec::as_slice);
            self.merge_one((series, erased), of_it, &mut writer, pace)?;
        }
        Ok(writer)
    }

    /// Writes one series' points of several files, of which the later count. Of each file no more than one block is unpacked at a time,
    /// however the blocks lie in time, and none that is full and has its time for itself.
    fn merge_one(
        &self,
        (series, erased): (SeriesId, &[Erased]),
        mut blocks: Vec<BlockOf<'_>>,
        writer: &mut Writer<'_>,
        pace: &mut Pace,
    ) -> Result<()> {
        // What was deleted whole needs not be read: it may be what is damaged.
        blocks.retain(|BlockOf { file, at, .. }| {
            let through = file.through(series.partition);
            let covers = |range: TimeRange| range.from <= at.range.from && range.to >= at.range.to;
            !erased.iter().any(|erased| erased.at > through && covers(erased.range))
        });
        blocks.sort_by_key(|block| block.at.range.from);
        let mut opened = Opened::default();
        let mut gathered = Points::new();
        let mut rest = blocks.as_slice();
        while let Some((BlockOf { nth, file, at }, behind)) = rest.split_first() {
            rest = behind;
            opened.take_before(Some(at.range.from), &mut gathered);
            if gathered.len() >= GATHERED_POINTS || gathered.memory_bytes() >= GATHERED_BYTES {
                writer.add(series, &gathered)?;
                gathered.clear();
            }
            let through = file.through(series.partition);
            let is_touched = erased.iter().any(|erased| {
                erased.at > through && erased.range.from <= at.range.to && erased.range.to >= at.range.from
            });
            let next = behind.first().map(|next| next.at.range.from);
            let is_alone = [opened.first(), next].into_iter().flatten().all(|first| first > at.range.to);
            pace.keep(self, at.bytes.into())?;
            if at.points >= FULL_POINTS && is_alone && !is_touched {
                writer.add(series, &gathered)?;
                gathered.clear();
                writer.sealer.add_raw(at, &file.block_bytes(at)?).map_err(|_| self.shelf.refuse_damaged(file, at))?;
                writer.flush()?;
                continue;
            }
            let mut points = self.shelf.whole_block(file, at)?.ok_or_else(damaged)?;
            without_erased(&mut points, erased, through);
            opened.add(*nth, points);
        }
        opened.take_before(None, &mut gathered);
        writer.add(series, &gathered)
    }
}

/// A block of one of the files that are merged, with the file's number among them.
#[derive(Clone, Copy)]
struct BlockOf<'a> {
    nth: usize,
    file: &'a Shelved,
    at: &'a BlockAt,
}

/// Blocks of one series that are unpacked at a time: one of each file at most.
#[derive(Default)]
struct Opened(Vec<Piece>);

struct Piece {
    /// Of the file: the greater counts.
    nth: usize,
    points: Points,
    /// How many of them were taken.
    taken: usize,
}

impl Opened {
    /// The least time that was not taken.
    fn first(&self) -> Option<i64> {
        self.0.iter().filter_map(|piece| piece.points.times().get(piece.taken).copied()).min()
    }

    fn add(&mut self, nth: usize, points: Points) {
        debug_assert!(self.0.iter().all(|piece| piece.nth != nth), "of a file that block is taken which came before");
        let place = self.0.partition_point(|piece| piece.nth < nth);
        self.0.insert(place, Piece { nth, points, taken: 0 });
    }

    /// Appends what is before a time, or all of it, sorted, each time once.
    fn take_before(&mut self, end: Option<i64>, to: &mut Points) {
        let mut all = Points::new();
        for Piece { points, taken, .. } in &mut self.0 {
            let till = end.map_or(points.len(), |end| points.times().partition_point(|time| *time < end));
            all.extend_from(points, *taken..till);
            *taken = till;
        }
        self.0.retain(|piece| piece.taken < piece.points.len());
        all.sort();
        to.extend_from(&all, 0..all.len());
    }
}

/// The file stays as it is, and is told of: merging would take the damage away, and with it what could be saved.
pub(super) fn damaged() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "a sealed file is damaged: it stays as it is, and the points of its damaged blocks are missing in answers; other files are merged without it",
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ::series::{Rows, Select, Source};
    use base::Random;
    use base::memory::Disk;

    use super::super::seal::When;
    use super::*;
    use crate::{Durability, MemoryLedgers, Options, Store, World};

    /// Points that came late, of which there is one in a file: the whole series was unpacked into memory to merge it.
    #[test]
    fn late_points_have_only_the_blocks_unpacked_that_they_lie_in() {
        let world = world(&Disk::new(1), &MemoryLedgers::default());
        let store = Store::open_in(&world, Path::new("/store"), Options::default()).unwrap();
        let inner = store.inner();
        let blocks = || inner.shelf.contents().files[0].index.blocks.clone();
        let (block, step) = (8192, 1_000);
        let in_block = |nth: i64| nth * block * step;
        let regular = (0..20 * block).map(|at| at * step).collect();
        // One between others; around all; and within two blocks far from each other, one of them in place of what is there.
        let late = [vec![in_block(10) + 1], vec![-5, i64::MAX], vec![in_block(3) + step, in_block(15) + 7]];
        let (mut wanted, mut before) = (BTreeMap::new(), Vec::new());
        for (nth, times) in (0u8..).zip([regular].into_iter().chain(late)) {
            let value = |time: i64| (time % 77_777) as f64 + f64::from(nth) / 4.0;
            let points: Vec<(i64, f64)> = times.into_iter().map(|time| (time, value(time))).collect();
            write(&store, &points);
            wanted.extend(points);
            inner.seal_series(When::Now).unwrap();
            before = blocks();
        }
        assert!(inner.merge_series(&mut Pace::Unlimited).unwrap());
        assert_eq!((before.len(), inner.shelf.contents().files.len()), (20, 1));
        let after = blocks();
        let is_there = |old: &&BlockAt| after.iter().any(|new| (new.range, new.crc) == (old.range, old.crc));
        let kept = before.iter().filter(is_there).count();
        assert_eq!(kept, 17, "all but the three that have more points, or others");
        assert_eq!(read(&store), wanted);
    }

    /// Deletions that were joined counted for points that came between them and lay in a file merged since.
    #[test]
    fn what_is_deleted_before_during_and_after_merges_is_gone_and_nothing_else() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (disk, ledgers) = (Disk::new(seed), MemoryLedgers::default());
            let mut model = BTreeMap::new();
            for _ in 0..3 {
                let store = Store::open_in(&world(&disk, &ledgers), Path::new("/store"), Options::default()).unwrap();
                live(&store, &mut random, &mut model, seed);
                store.wait(store.inner().newest(), Durability::Written).unwrap();
                if random.chance(1, 2) {
                    store.close().unwrap();
                } else {
                    disk.kill_process();
                    drop(store);
                    ledgers.kill_process();
                }
            }
        }
    }

    fn live(store: &Store, random: &mut Random, model: &mut BTreeMap<i64, f64>, seed: u64) {
        let inner = store.inner();
        let mut under_way = None;
        assert_eq!(&read(store), model, "seed {seed}, after opening");
        for nth in 0..random.below(60) {
            let mut times = [random.below(20) as i64, random.below(20) as i64];
            times.sort_unstable();
            match random.below(7) {
                0 | 1 => {
                    let points: Vec<(i64, f64)> = (times[0]..=times[1]).map(|time| (time, nth as f64)).collect();
                    write(store, &points);
                    model.extend(points);
                }
                2 | 3 => {
                    let to = if random.chance(1, 2) { times[0] } else { times[1] };
                    let range = TimeRange { from: times[0], to };
                    store.series().delete(&Select::metric("d", "m"), range).unwrap();
                    model.retain(|time, _| !(range.from..=range.to).contains(time));
                }
                4 => inner.seal_series(When::Now).unwrap(),
                _ => match under_way.take() {
                    Some(merge) => inner.merge(merge, &mut Pace::Unlimited).unwrap(),
                    None => {
                        let contents = inner.shelf.contents();
                        let count = contents.files.len() as u64;
                        let from = random.below(count + 1);
                        let to = from + random.below(count - from + 1);
                        under_way = Some(inner.begin_merge(&contents, from as usize..to as usize));
                    }
                },
            }
            assert_eq!(&read(store), model, "seed {seed}, {nth}");
        }
    }

    fn world(disk: &Disk, ledgers: &MemoryLedgers) -> World {
        World {
            files: Arc::new(disk.process()),
            clock: Arc::new(base::ManualClock::at(1_700_000_000_000)),
            ledgers: Arc::new(ledgers.clone()),
            threads: false,
            entropy: 1,
        }
    }

    fn write(store: &Store, points: &[(i64, f64)]) {
        let mut rows = Rows::new("d");
        let row = rows.row(b"m", |_| Ok(("m".to_owned(), vec![]))).unwrap();
        let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
        points.iter().for_each(|(time, value)| rows.push_float(slot, *time, *value));
        store.series().write(&mut rows).unwrap();
    }

    fn read(store: &Store) -> BTreeMap<i64, f64> {
        let reader = store.series().reader();
        let mut points = Points::new();
        for series in reader.series(&Select::metric("d", "m")).unwrap() {
            reader.points(series.id, TimeRange::ALL, &mut points).unwrap();
        }
        assert!(points.is_sorted());
        points.numbers().collect()
    }
}
