//! What is sealed: files of points, registers of names, and the manifest that says which of them count.
//!
//! Manifest and registers are kept twice, because everything hangs on them; each is written before what it names is needed, and
//! what a manifest does not name any more is removed only when both are replaced.
//!
//! May use: `base`, `series`. Must not know: when something is sealed or merged, who reads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::series::{
    BlockAt, Engine, Manifest, PackedBlock, Points, Range, Register, Registered, RollupAt, SealedFile, SeriesId,
    Summary,
};
use base::{File, Files, remove_if_there};
use journal::{Damage, Position};

use super::folder::{FOLDER, Folder, MANIFEST, Shelved, failed, points_name, register_name};
use crate::error::{Error, Result};
use crate::jobs::Job;
use crate::room::Room;
use crate::store::lock;

/// What was read lately, in bytes: blocks as they lie in files, pages of them unpacked, rollups.
const CACHE_BYTES: u64 = 16 << 20;

/// All that is sealed.
pub(crate) struct Shelf {
    files: Arc<dyn Files>,
    dir: PathBuf,
    contents: Mutex<Arc<Contents>>,
    /// Held by who changes the contents.
    changing: Mutex<()>,
    /// Held by who seals.
    pub(crate) sealing: Mutex<()>,
    /// Held by who merges.
    pub(crate) merging: Mutex<()>,
    is_used: AtomicBool,
    damage: Mutex<Vec<Damage>>,
    cache: quick_cache::sync::Cache<Place, Cached, Weigh>,
    /// Bytes of points in memory, in all partitions.
    pub(crate) memory_bytes: AtomicU64,
    /// Where writers pause while there are many.
    pub(crate) room: Room,
    /// Series, in all partitions.
    pub(crate) series: AtomicU64,
    /// Points written and refused since open.
    pub(crate) written: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Bytes that merging has read, files that it made, and for how many it should make haste.
    pub(crate) merged_bytes: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) hurried: AtomicU64,
    pub(crate) sealer: Job,
    pub(crate) merger: Job,
    /// Points that a rollup stood for.
    pub(crate) summarized: AtomicU64,
    /// Bytes that questions hold now.
    pub(crate) query_bytes: AtomicU64,
    /// When what is too old was last looked for.
    pub(crate) retired_ms: AtomicU64,
    pub(crate) is_disk_low: AtomicBool,
}

/// What is sealed at one moment.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) manifest: Manifest,
    /// As the manifest has them; one that cannot be read is missing here.
    pub(crate) files: Vec<Arc<Shelved>>,
}

/// Whether a file may have points in a range.
pub(super) fn touches(of: &SealedFile, range: Range) -> bool {
    of.range.from <= range.to && of.range.to >= range.from
}

impl Contents {
    /// Whether there may be points of a series in a range: as far as is known, when a file could not be opened.
    pub(super) fn may_have(&self, series: SeriesId, range: Range) -> bool {
        self.files.iter().any(|open| touches(&open.of, range) && open.blocks(series, range).next().is_some())
            || self.unopened(range).next().is_some()
    }

    /// The files with points in a range that could not be opened.
    pub(super) fn unopened(&self, range: Range) -> impl Iterator<Item = &SealedFile> {
        let is_open = |of: &SealedFile| self.files.iter().any(|open| open.of.file == of.file);
        let all = if self.files.len() < self.manifest.files.len() { &*self.manifest.files } else { &[] };
        all.iter().filter(move |of| touches(of, range) && !is_open(of))
    }
}

/// A partition's share, as opening found it.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// Everything up to this position is in it.
    pub(crate) replayed: Position,
}

/// Where something cached is: the file, the offset, and the page if it is one.
type Place = (u64, u64, Option<usize>);

/// What was read lately.
#[derive(Clone)]
enum Cached {
    Block(Arc<PackedBlock>),
    Page(Arc<Points>),
    Rollup(Arc<Vec<Summary>>),
}

#[derive(Clone)]
struct Weigh;

impl quick_cache::Weighter<Place, Cached> for Weigh {
    fn weight(&self, _: &Place, cached: &Cached) -> u64 {
        let bytes = match cached {
            Cached::Block(block) => block.memory_bytes(),
            Cached::Page(points) => points.memory_bytes(),
            Cached::Rollup(windows) => windows.len() * size_of::<Summary>(),
        };
        bytes as u64 + 64
    }
}

impl Shelf {
    /// Opens what is sealed in a store, and each partition's engine as far as that goes. `is_noted`: the store says of itself that it has
    /// time series.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses. Damage is no error.
    pub(crate) fn open(
        files: &Arc<dyn Files>,
        dir: &Path,
        (partitions, is_noted): (u16, bool),
    ) -> Result<(Self, Vec<Loaded>)> {
        let shelf = Self {
            files: Arc::clone(files),
            dir: dir.join(FOLDER),
            contents: Mutex::default(),
            changing: Mutex::default(),
            sealing: Mutex::default(),
            merging: Mutex::default(),
            is_used: AtomicBool::new(false),
            damage: Mutex::default(),
            cache: quick_cache::sync::Cache::with_weighter(4096, CACHE_BYTES, Weigh),
            memory_bytes: AtomicU64::new(0),
            room: Room::default(),
            series: AtomicU64::new(0),
            written: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            merged_bytes: AtomicU64::new(0),
            merges: AtomicU64::new(0),
            hurried: AtomicU64::new(0),
            sealer: Job::sealing(),
            merger: Job::merging(),
            summarized: AtomicU64::new(0),
            query_bytes: AtomicU64::new(0),
            retired_ms: AtomicU64::new(0),
            is_disk_low: AtomicBool::new(false),
        };
        let mut loaded: Vec<Loaded> = (0..partitions).map(|_| Loaded::default()).collect();
        shelf.folder().mend(MANIFEST, Manifest::decode, &mut |damage| shelf.note(damage))?;
        let Some(manifest) = shelf.folder().manifest(&mut |damage| shelf.note(damage))? else {
            let lost = shelf.folder().lost_manifest(is_noted)?;
            shelf.folder().set_aside()?;
            if let Some(damage) = lost {
                shelf.is_used.store(true, Ordering::Release);
                shelf.note(damage);
            } else {
                // Never used: nothing to replay.
                loaded.iter_mut().for_each(|loaded| loaded.replayed = Position::MAX);
            }
            return Ok((shelf, loaded));
        };
        shelf.is_used.store(true, Ordering::Release);
        shelf.load(&manifest, &mut loaded)?;
        shelf.folder().remove_unnamed(&manifest);
        let opened = manifest.files.iter().filter_map(|of| shelf.open_file(of).transpose());
        let files = opened.collect::<Result<_>>()?;
        *lock(&shelf.contents) = Arc::new(Contents { manifest, files });
        let series: usize = loaded.iter().map(|loaded| loaded.engine.len()).sum();
        shelf.series.store(series as u64, Ordering::Relaxed);
        Ok((shelf, loaded))
    }

    fn load(&self, manifest: &Manifest, loaded: &mut [Loaded]) -> Result<()> {
        for file in &manifest.registers {
            let name = register_name(*file);
            let decode = |bytes: &[u8]| {
                let mut entries = Vec::new();
                Register::read(bytes, &mut |entry| entries.push(entry)).map(|()| entries)
            };
            self.folder().mend(&name, decode, &mut |damage| self.note(damage))?;
            let Some(entries) = self.folder().read_either(&name, decode, &mut |damage| self.note(damage))? else {
                let reason = "both copies of a register are damaged or missing: its series have no names";
                self.note(self.folder().damage(&name, 0, 0, reason));
                continue;
            };
            for entry in entries {
                let (Registered::Series(series, ..) | Registered::Kind(series, _) | Registered::Gone(series)) = entry;
                let Some(loaded) = loaded.get_mut(usize::from(series.partition)) else { continue };
                match entry {
                    Registered::Series(series, kind, key) => loaded.engine.restore_series(series.number, kind, &key),
                    Registered::Kind(series, kind) => loaded.engine.restore_kind(series.number, kind),
                    Registered::Gone(series) => loaded.engine.restore_gone(series.number),
                }
            }
        }
        for ((partition, loaded), sealed) in (0u16..).zip(loaded).zip(&manifest.partitions) {
            let erased = manifest.erased.iter().filter(|(of, _)| *of == partition).map(|(_, erased)| *erased).collect();
            let databases = if partition == 0 { manifest.databases.clone() } else { Default::default() };
            loaded.engine.restore(sealed.through, sealed.digest, erased, databases);
            loaded.engine.tidy_erased(manifest.throughs(partition));
            loaded.engine.restore_next(sealed.next);
            loaded.replayed = sealed.through;
        }
        Ok(())
    }

    pub(super) fn folder(&self) -> Folder<'_> {
        Folder { files: &*self.files, dir: &self.dir }
    }

    /// Has something done with the folder while nothing in it changes.
    pub(crate) fn undisturbed(&self, act: impl FnOnce(Folder<'_>) -> Result<()>) -> Result<()> {
        let _none = lock(&self.changing);
        act(self.folder())
    }

    pub(super) fn note(&self, damage: Damage) {
        let mut all = lock(&self.damage);
        if !all.contains(&damage) {
            all.push(damage);
        }
    }

    /// Damage that was found so far.
    pub(crate) fn damage(&self) -> Vec<Damage> {
        lock(&self.damage).clone()
    }

    fn open_file(&self, of: &SealedFile) -> Result<Option<Arc<Shelved>>> {
        Ok(self.folder().open_points(of, &mut |damage| self.note(damage))?.map(Arc::new))
    }

    fn unreadable(&self, of: &SealedFile) -> Error {
        failed(&self.folder().path(&points_name(of.file)), &std::io::ErrorKind::InvalidData.into())
    }

    /// Whether time series were ever written.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// What is sealed now.
    pub(crate) fn contents(&self) -> Arc<Contents> {
        Arc::clone(&lock(&self.contents))
    }

    /// Everything up to this position is sealed, in all partitions.
    pub(crate) fn through(&self) -> Position {
        if !self.is_used() {
            return Position::MAX;
        }
        let contents = self.contents();
        contents.manifest.partitions.iter().map(|sealed| sealed.through).min().unwrap_or_default()
    }

    /// A number for a new file.
    pub(crate) fn new_file(&self) -> u64 {
        let _one = lock(&self.changing);
        let mut contents = lock(&self.contents);
        let file = contents.manifest.next_file.max(1);
        let manifest = Manifest { next_file: file + 1, ..contents.manifest.clone() };
        *contents = Arc::new(Contents { manifest, files: contents.files.clone() });
        file
    }

    /// Creates a file for points.
    pub(crate) fn create_points(&self, file: u64) -> Result<Arc<dyn File>> {
        let path = self.folder().path(&points_name(file));
        let create = || {
            self.files.create_dir(&self.dir)?;
            remove_if_there(&*self.files, &path)?;
            self.files.create(&path)
        };
        create().map_err(|error| failed(&path, &error))
    }

    /// What went wrong with a file for points; the half of it is removed.
    pub(crate) fn give_up(&self, file: u64, error: &std::io::Error) -> Error {
        let path = self.folder().path(&points_name(file));
        let _ = self.files.remove(&path);
        failed(&path, error)
    }

    /// Removes files for points that no manifest names.
    pub(crate) fn forget_points(&self, files: impl Iterator<Item = u64>) {
        self.folder().remove(files.map(points_name));
    }

    /// Writes a register.
    pub(crate) fn write_register(&self, file: u64, bytes: &[u8]) -> Result<()> {
        self.files.create_dir(&self.dir).map_err(|error| failed(&self.dir, &error))?;
        self.folder().write_both(&register_name(file), bytes)
    }

    /// Makes another manifest count, durably. What it names is on stable storage already, but for the folder.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let _one = lock(&self.changing);
        let before = self.contents();
        let mut manifest = before.manifest.clone();
        change(&mut manifest);
        self.files
            .create_dir(&self.dir)
            .and_then(|()| self.files.sync_dir(&self.dir))
            .map_err(|error| failed(&self.dir, &error))?;
        let is_new = |of: &SealedFile| before.manifest.files.iter().all(|old| old.file != of.file);
        let opened = |of: &SealedFile| match before.files.iter().find(|open| open.of.file == of.file) {
            Some(open) => Some(Ok(Arc::clone(open))),
            // The journal, or the files that it was made of, are let go of once it counts: not if it cannot be read.
            None if is_new(of) => Some(self.open_file(of).and_then(|open| open.ok_or_else(|| self.unreadable(of)))),
            // It could not be opened before.
            None => self.open_file(of).ok().flatten().map(Ok),
        };
        let files = manifest.files.iter().filter_map(opened).collect::<Result<Vec<_>>>()?;
        self.folder().write_both(MANIFEST, &manifest.encode())?;
        self.is_used.store(true, Ordering::Release);
        let named = Folder::named(&manifest);
        let gone: Vec<String> =
            Folder::named(&before.manifest).into_iter().filter(|name| !named.contains(name)).collect();
        // Who makes a new file meanwhile has taken a number that stays taken.
        let mut contents = lock(&self.contents);
        manifest.next_file = manifest.next_file.max(contents.manifest.next_file);
        *contents = Arc::new(Contents { manifest, files });
        drop(contents);
        self.folder().remove(gone);
        Ok(())
    }

    /// A block whose pages are to be read; `None` when it is damaged, which is noted.
    pub(crate) fn block(&self, of: &Shelved, at: &BlockAt) -> Result<Option<Arc<PackedBlock>>> {
        let place = (of.of.file, at.offset, None);
        if let Some(Cached::Block(block)) = self.cache.get(&place) {
            return Ok(Some(block));
        }
        let Some(block) = of.packed(at, &mut |damage| self.note(damage))?.map(Arc::new) else { return Ok(None) };
        self.cache.insert(place, Cached::Block(Arc::clone(&block)));
        Ok(Some(block))
    }

    /// The points of a page of a block; `None` when it is damaged, which is noted.
    pub(crate) fn page(&self, of: &Shelved, at: &BlockAt, (block, page): (&PackedBlock, usize)) -> Option<Arc<Points>> {
        let place = (of.of.file, at.offset, Some(page));
        if let Some(Cached::Page(points)) = self.cache.get(&place) {
            return Some(points);
        }
        let mut points = Points::new();
        if block.page(page, &mut points).is_err() {
            // Its checksum was right: it was made wrong.
            self.note(of.malformed(at));
            return None;
        }
        let points = Arc::new(points);
        self.cache.insert(place, Cached::Page(Arc::clone(&points)));
        Some(points)
    }

    /// The windows of a rollup; none when it is damaged, which is noted: points say the same.
    pub(crate) fn rollup(&self, of: &Shelved, rollup: &RollupAt) -> Result<Arc<Vec<Summary>>> {
        let place = (of.of.file, rollup.at.offset, None);
        if let Some(Cached::Rollup(windows)) = self.cache.get(&place) {
            return Ok(windows);
        }
        let windows = Arc::new(of.rollup(rollup, &mut |damage| self.note(damage))?.unwrap_or_default());
        self.cache.insert(place, Cached::Rollup(Arc::clone(&windows)));
        Ok(windows)
    }

    /// Notes that a block is not what was written.
    pub(crate) fn refuse_damaged(&self, of: &Shelved, at: &BlockAt) -> Error {
        self.note(of.malformed(at));
        super::merge::damaged()
    }

    /// The points of a block that is read once; `None` when it is damaged, which is noted.
    pub(crate) fn whole_block(&self, of: &Shelved, at: &BlockAt) -> Result<Option<Points>> {
        of.block(at, &mut |damage| self.note(damage))
    }
}

#[cfg(test)]
mod tests {
    use base::memory::Disk;

    use super::*;

    /// A file that was written and could not be opened took over from the journal all the same, and its points were shown to nobody.
    #[test]
    fn a_new_file_counts_only_when_it_can_be_read() {
        let files: Arc<dyn Files> = Arc::new(Disk::new(1));
        let (shelf, _) = Shelf::open(&files, Path::new("/store"), (1, false)).unwrap();
        shelf.change(|manifest| manifest.next_file = 5).unwrap();
        let before = shelf.contents().manifest.clone();
        let range = Range { from: 0, to: 9 };
        let of = SealedFile { file: 5, range, points: 1, ends_at: 20, bytes: 90, through: Vec::new() };
        shelf.change(|manifest| manifest.files.push(of)).unwrap_err();
        assert_eq!(shelf.contents().manifest, before);
        assert_eq!(Shelf::open(&files, Path::new("/store"), (1, false)).unwrap().0.contents().manifest, before);
    }
}
