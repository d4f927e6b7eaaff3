//! Backups: sealed segments, which never change, get a second name in another folder. Nothing is copied unless it lies on
//! another file system, and a second backup into the same folder takes only what is new.
//!
//! A backup's folder is a store's folder without ledger: the file `store` (which the facade puts there), `journal/*.seg`,
//! the note of where the journal begins, and the manifest `backup`, which is written last. Order of events, so that a crash at any moment leaves the backup that
//! was there, whole, or a folder without manifest, which is no backup:
//!
//! 1. New segments are placed, oldest first, and the folder is synced. The manifest before does not name them.
//! 2. Only if a segment that the backup has was replaced in the store: the manifest is removed, durably, and the new file
//!    is put over the old name. The old file stays what it is in other backups, which have names of their own for it.
//! 3. The note, and then the manifest, are written beside and renamed. A note of an instant behind the manifest's does no harm.
//! 4. What the store has let go is removed from the backup; a crash before leaves files that no manifest names.
//!
//! May use: all of this crate. Must not know: stores, protocols.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use base::{File, Files, Placed, link_or_copy, read_exact_at, read_whole, remove_if_there, write_new_file};

use crate::begin::{self, Noted};
use crate::commit::lock;
use crate::damage::{Damage, DamageKind};
use crate::error::{Error, Result};
use crate::footer::{TRAILER_BYTES, Trailer};
use crate::header::header_bytes;
use crate::journal::{Journal, Purpose};
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestSegment};
use crate::position::Position;
use crate::record::RECORD_BYTES_MIN;
use crate::segment::{Segment, base_of};
use crate::verify::{SegmentCheck, Through, Verified};

/// Name of the manifest in a backup's folder.
pub const MANIFEST_FILE: &str = "backup";
const JOURNAL_DIR: &str = "journal";

/// While it lives no file of a sealed segment is removed or replaced.
pub struct Hold<'a>(&'a Journal);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        *lock(&self.0.holds) -= 1;
    }
}

/// What a backup did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// What the backup holds now.
    pub manifest: Manifest,
    /// Segments that were linked.
    pub linked: u64,
    /// Bytes in them.
    pub linked_bytes: u64,
    /// Segments that had to be copied, because the folder is on another file system.
    pub copied: u64,
    /// Bytes in them.
    pub copied_bytes: u64,
    /// Segments that the backup had already.
    pub kept: u64,
    /// Segments that were removed from the backup, because the store has let them go.
    pub removed: u64,
}

impl Journal {
    /// Identity of the store that the journal belongs to.
    #[must_use]
    pub fn store(&self) -> u128 {
        self.options.store
    }

    /// Keeps the files of sealed segments as they are until the hold is dropped.
    pub fn hold(&self) -> Hold<'_> {
        *lock(&self.holds) += 1;
        Hold(self)
    }

    /// Permission to remove or replace files of sealed segments, for as long as it lives; `None` while somebody holds
    /// them: try again later.
    pub(crate) fn letting_go(&self) -> Option<MutexGuard<'_, usize>> {
        Some(lock(&self.holds)).filter(|holds| **holds == 0)
    }

    /// Sees to it that everything appended so far lies in sealed segments, durably: begins a new segment, unless nothing
    /// was appended to the current one, and seals all before. Returns the position below which everything is sealed.
    ///
    /// # Errors
    /// `Closed`; `DiskFull`, which changes nothing that matters; the failure of a write or sync.
    pub fn seal_current(&self) -> Result<Position> {
        self.check()?;
        let (base, end) = {
            let mut next = lock(&self.next);
            let mut tail = lock(&self.tail);
            if tail.closed {
                return Err(Error::Closed);
            }
            if tail.has_records() {
                self.roll(&mut next, &mut tail, (RECORD_BYTES_MIN, Purpose::New))?;
                self.appended.fetch_max(tail.end().get(), Ordering::AcqRel);
            }
            (tail.segment.base, tail.end())
        };
        self.sync_all()?;
        self.seal_full()?;
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        match segments.range(..base).find(|(_, segment)| segment.trailer().is_none()) {
            // A footer that found no space is tried again later.
            Some((_, segment)) => Err(Error::DiskFull { path: segment.path.clone() }),
            None => Ok(end),
        }
    }

    /// Makes the folder `dir` a backup of the journal, up to now, or brings the one that is there up to date. `taken_ms` is
    /// the time to note in it. Writing and reading go on meanwhile. Blocks for as long as it takes.
    ///
    /// # Errors
    /// As [`Journal::seal_current`], and what the folder meets. The backup that was there before is still whole, or there
    /// is no manifest.
    pub fn link_into(&self, dir: &Path, taken_ms: u64) -> Result<Linked> {
        let _hold = self.hold();
        let position = self.seal_current()?;
        let header = header_bytes(usize::from(self.options.partitions));
        let segments: Vec<Arc<Segment>> = {
            let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
            segments
                .values()
                // The segment that begins there may be full and sealed by now, but is not of the instant that the backup names.
                .filter(|segment| segment.base.plus(header) < position && segment.trailer().is_some())
                .cloned()
                .collect()
        };
        let (store, partitions) = (self.options.store, self.options.partitions);
        let manifest = Manifest { store, partitions, position, taken_ms, segments: Vec::new() };
        Linking::new(&*self.files, dir, manifest)?.run(&segments, self.begin())
    }
}

/// Reads the manifest of the backup in `dir`; `None` when there is none, or it is damaged.
///
/// # Errors
/// `Foreign` when it is of a newer version; what reading meets.
pub fn read_manifest(files: &dyn Files, dir: &Path) -> Result<Option<Manifest>> {
    let path = dir.join(MANIFEST_FILE);
    let bytes = match read_whole(files, &path, MANIFEST_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => return Ok(None),
        Err(error) => return Err(Error::io("reading", &path, error)),
    };
    match Manifest::decode(&bytes) {
        None => Ok(None),
        Some(Ok(manifest)) => Ok(Some(manifest)),
        Some(Err(version)) => {
            let reason = format!("it is of version {version}; this program reads version 1, use a newer one");
            Err(Error::foreign(&path, reason))
        }
    }
}

/// What checking a backup found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// What the backup says that it holds.
    pub manifest: Manifest,
    /// What was read.
    pub verified: Verified,
    /// Every damaged, missing or exchanged segment, with file and offset.
    pub damage: Vec<Damage>,
    /// What was damaged already when its segment was sealed, so that the store lacked it too.
    pub aside: Vec<Damage>,
}

/// Reads every byte of the backup in `dir` and checks it: each segment against the manifest, every record, the checksum
/// over each file, and the chain of each partition through all of them. Changes nothing. `told` is called with the bytes
/// read so far and those to read in all.
///
/// # Errors
/// `Foreign` when there is no manifest, because the backup was not finished, or its manifest is damaged or of a newer
/// version; what finding a segment's footer meets. Damage in segments is no error.
pub fn examine(files: &dyn Files, dir: &Path, told: &mut dyn FnMut(u64, u64)) -> Result<Examined> {
    let manifest = read_manifest(files, dir)?.ok_or_else(|| {
        Error::foreign(&dir.join(MANIFEST_FILE), "there is no intact manifest: the backup was not finished, or rotted")
    })?;
    let total = manifest.bytes();
    let mut through = Through::default();
    let journal = dir.join(JOURNAL_DIR);
    for entry in &manifest.segments {
        let path = journal.join(entry.name());
        let mut wrong = |kind, bytes, reason| {
            let (path, position) = (path.clone(), entry.base);
            through.damage.push(Damage { kind, path, offset: 0, bytes, position, reason });
        };
        let segment = match Segment::open_to_read(files, &journal, entry.base) {
            Ok(segment) => Arc::new(segment),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                wrong(DamageKind::Missing, entry.bytes, "the segment is missing");
                continue;
            }
            Err(error) => return Err(error),
        };
        let trailer = segment.read_trailer()?;
        match trailer {
            None => wrong(DamageKind::Record, segment.reserved(), "the segment has no intact footer to check it by"),
            Some(trailer) if !entry.is_of(&trailer) => {
                wrong(DamageKind::Missing, segment.reserved(), "another segment than the manifest says");
            }
            Some(_) => {}
        }
        if let Some(check) = SegmentCheck::begin(&segment)? {
            through.run(check, true, &mut |done| told(done, total));
        }
    }
    if begin::read(files, &journal, manifest.store)? == Noted::Damaged {
        through.damage.push(begin::damage(&journal));
    }
    told(total, total);
    Ok(Examined { manifest, verified: through.verified, damage: through.damage, aside: through.aside })
}

impl ManifestSegment {
    fn of(segment: &Segment, trailer: &Trailer) -> Self {
        let (segment_sum, tail_sum) = (trailer.segment_sum, trailer.tail_sum);
        Self { base: segment.base, bytes: trailer.file_bytes(), segment_sum, tail_sum }
    }

    fn is_of(&self, trailer: &Trailer) -> bool {
        let sums = (trailer.segment_sum, trailer.tail_sum) == (self.segment_sum, self.tail_sum);
        sums && trailer.file_bytes() == self.bytes
    }
}

/// One run.
struct Linking<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
    journal: PathBuf,
    /// Names that the backup's folder of segments has.
    names: BTreeSet<String>,
    done: Linked,
}

impl<'a> Linking<'a> {
    fn new(files: &'a dyn Files, dir: &'a Path, manifest: Manifest) -> Result<Self> {
        let journal = dir.join(JOURNAL_DIR);
        files.create_dir(&journal).map_err(|error| Error::io("creating", &journal, error))?;
        let names = files.list(&journal).map_err(|error| Error::io("listing", &journal, error))?;
        let done = Linked { manifest, linked: 0, linked_bytes: 0, copied: 0, copied_bytes: 0, kept: 0, removed: 0 };
        Ok(Self { files, dir, journal, names: names.into_iter().collect(), done })
    }

    fn run(mut self, segments: &[Arc<Segment>], begin: Position) -> Result<Linked> {
        let mut replaced = Vec::new();
        for segment in segments {
            let trailer = segment.trailer().expect("only sealed segments were chosen");
            let entry = ManifestSegment::of(segment, trailer);
            self.done.manifest.segments.push(entry);
            match self.names.contains(&entry.name()) {
                true if self.has(&entry, trailer)? => self.done.kept += 1,
                true => replaced.push((Arc::clone(segment), entry)),
                false => self.place(segment, &entry)?,
            }
        }
        let sync = |dir: &Path| self.files.sync_dir(dir).map_err(|error| Error::io("syncing", dir, error));
        sync(&self.journal)?;
        if !replaced.is_empty() {
            let manifest = self.dir.join(MANIFEST_FILE);
            remove_if_there(self.files, &manifest).map_err(|error| Error::io("removing", &manifest, error))?;
            sync(self.dir)?;
            for (segment, entry) in &replaced {
                self.place(segment, entry)?;
            }
            self.files.sync_dir(&self.journal).map_err(|error| Error::io("syncing", &self.journal, error))?;
        }
        begin::write(self.files, &self.journal, self.done.manifest.store, begin)?;
        let manifest = self.dir.join(MANIFEST_FILE);
        let written = write_new_file(self.files, &manifest, &self.done.manifest.encode());
        written.map_err(|error| Error::io("writing", &manifest, error))?;
        self.clean()?;
        Ok(self.done)
    }

    /// Whether the backup's file of this name is the segment: same length, same trailer.
    fn has(&self, entry: &ManifestSegment, trailer: &Trailer) -> Result<bool> {
        let path = self.journal.join(entry.name());
        let read = || -> io::Result<Option<Trailer>> {
            let file: Arc<dyn File> = self.files.open_to_read(&path)?;
            let len = file.len()?;
            let Some(at) = len.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
            let mut bytes = [0; TRAILER_BYTES];
            read_exact_at(&*file, &mut bytes, at)?;
            Ok(Trailer::decode(&bytes, len))
        };
        let found = read().map_err(|error| Error::io("reading", &path, error))?;
        Ok(found.as_ref() == Some(trailer))
    }

    fn place(&mut self, segment: &Segment, entry: &ManifestSegment) -> Result<()> {
        let to = self.journal.join(entry.name());
        let placed = link_or_copy(self.files, &segment.path, &to).map_err(|error| Error::io("linking", &to, error))?;
        let (count, bytes) = match placed {
            Placed::Linked => (&mut self.done.linked, &mut self.done.linked_bytes),
            Placed::Copied => (&mut self.done.copied, &mut self.done.copied_bytes),
        };
        *count += 1;
        *bytes += entry.bytes;
        Ok(())
    }

    /// Removes what the manifest does not name, halves of an interrupted backup included.
    fn clean(&mut self) -> Result<()> {
        let named: BTreeSet<String> = self.done.manifest.segments.iter().map(ManifestSegment::name).collect();
        let goes = |name: &&String| {
            let whole = name.strip_suffix(".new").unwrap_or(name);
            base_of(whole).is_some() && !named.contains(*name)
        };
        let gone: Vec<PathBuf> = self.names.iter().filter(goes).map(|name| self.journal.join(name)).collect();
        for path in &gone {
            remove_if_there(self.files, path).map_err(|error| Error::io("removing", path, error))?;
            self.done.removed += 1;
        }
        if !gone.is_empty() {
            self.files.sync_dir(&self.journal).map_err(|error| Error::io("syncing", &self.journal, error))?;
        }
        Ok(())
    }
}
