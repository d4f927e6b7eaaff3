//! The space's snapshots: files beside the journal, so that opening need not read the journal from its beginning.
//!
//! Each partition has two, `NNNN.snap` and the one before it, `NNNN.old`. The journal keeps what came after the older one,
//! so that one damaged file costs time and nothing else. A store whose space was never used has no folder `space`.
//!
//! May use: `base`, `space`. Must not know: when snapshots are due.

use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::space::{Engine, Snapshot, SnapshotCheck};
use base::{File, Files, write_new_file};
use journal::{Damage, DamageKind, PartitionId, Position};

use crate::error::{Error, ErrorKind, Result};

/// The folder within the store's.
pub(crate) const FOLDER: &str = "space";

/// Bytes of a file that are checked at once.
const PIECE_BYTES: usize = 1 << 20;

/// A partition's share as its snapshot had it.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// The journal is needed behind this position; `MAX` when the space was never used.
    pub(crate) kept: Position,
    /// Everything up to this position is in the newest intact snapshot.
    pub(crate) through: Position,
    /// Everything up to this position is in the engine.
    pub(crate) replayed: Position,
    found: Pair,
}

/// What there is of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Missing,
    Damaged { bytes: u64 },
    Intact,
}

/// The newest of a partition's snapshots and the one before.
pub(super) type Pair = [Found; 2];
pub(super) const ENDS: [&str; 2] = ["snap", "old"];

impl Loaded {
    /// Of a store whose space was never used.
    pub(crate) fn unused() -> Self {
        let never = Position::new(u64::MAX);
        Self { engine: Engine::default(), kept: never, through: never, replayed: never, found: [Found::Missing; 2] }
    }
}

fn name(partition: PartitionId, end: &str) -> String {
    format!("{:04}.{end}", partition.get())
}

pub(super) fn path(dir: &Path, partition: PartitionId, end: &str) -> PathBuf {
    dir.join(FOLDER).join(name(partition, end))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} cannot be used: {error}", path.display()))
}

pub(super) fn open(files: &dyn Files, path: &Path) -> Result<Option<Arc<dyn File>>> {
    match files.open_to_read(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == NotFound => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

/// What a file is, when it is there.
fn read(file: Option<&dyn File>, path: &Path, partition: PartitionId) -> Result<(Found, Option<Engine>)> {
    let Some(file) = file else { return Ok((Found::Missing, None)) };
    let bytes = || {
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        base::read_exact_at(file, &mut bytes, 0)?;
        Ok(bytes)
    };
    let bytes: Vec<u8> = bytes().map_err(|error| failed(path, &error))?;
    // A damaged one is as good as none: there is another, and the journal.
    Ok(match Engine::restore(&bytes, partition) {
        Ok(engine) => (Found::Intact, Some(engine)),
        Err(_) => (Found::Damaged { bytes: bytes.len() as u64 }, None),
    })
}

fn open_and_read(files: &dyn Files, path: &Path, partition: PartitionId) -> Result<(Found, Option<Engine>)> {
    read(open(files, path)?.as_deref(), path, partition)
}

/// What a file is, when it is there, and up to where it goes: without an engine made of it, which is most of what reading it costs.
fn open_and_check(files: &dyn Files, path: &Path, partition: PartitionId) -> Result<(Found, Option<Position>)> {
    let Some(file) = open(files, path)? else { return Ok((Found::Missing, None)) };
    let mut check = SnapshotCheck::new(partition);
    let (mut piece, mut offset) = (vec![0; PIECE_BYTES], 0);
    loop {
        let read = file.read_at(&mut piece, offset).map_err(|error| failed(path, &error))?;
        let bytes = piece.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        check.update(bytes);
        offset += bytes.len() as u64;
    }
    Ok(match check.applied().filter(|_| check.is_intact()) {
        Some(applied) => (Found::Intact, Some(applied)),
        None => (Found::Damaged { bytes: offset }, None),
    })
}

fn is_snapshot(name: &str) -> bool {
    name.ends_with(".snap") || name.ends_with(".old")
}

/// Whether the space was ever used: there is a snapshot. Files that a crash left of writing one are none.
pub(crate) fn is_used(files: &dyn Files, dir: &Path) -> bool {
    files.list(&dir.join(FOLDER)).is_ok_and(|names| names.iter().any(|name| is_snapshot(name)))
}

/// A partition's share as the newest intact snapshot has it; without any, all of the journal that is there is needed.
pub(crate) fn load(files: &dyn Files, dir: &Path, partition: PartitionId) -> Result<Loaded> {
    let path = |end| path(dir, partition, end);
    let (newest_found, newest) = open_and_read(files, &path("snap"), partition)?;
    if let Some(engine) = newest {
        let (older_found, older) = open_and_check(files, &path("old"), partition)?;
        let through = engine.applied();
        let kept = older.map_or(through, |older| older.min(through));
        return Ok(Loaded { kept, through, replayed: through, engine, found: [newest_found, older_found] });
    }
    let (older_found, older) = open_and_read(files, &path("old"), partition)?;
    if older.is_some() {
        // Out of the way, or it would take the place of the intact one when the next is written.
        match files.rename(&path("snap"), &path("damaged")) {
            Err(error) if error.kind() != NotFound => return Err(failed(&path("snap"), &error)),
            _ => {}
        }
    }
    let engine = older.unwrap_or_default();
    let through = engine.applied();
    Ok(Loaded { kept: through, through, replayed: through, engine, found: [newest_found, older_found] })
}

/// What is to be told of the snapshots that opening found. `is_noted`: the store says of itself that its space was used.
pub(crate) fn lost(dir: &Path, loaded: &[Loaded], is_noted: bool) -> Vec<Damage> {
    let has_types = loaded.iter().any(|loaded| loaded.engine.types().next().is_some());
    let pairs: Vec<Pair> = loaded.iter().map(|loaded| loaded.found).collect();
    damage(&dir.join(FOLDER), &pairs, has_types, is_noted)
}

fn damage(folder: &Path, pairs: &[Pair], has_types: bool, is_noted: bool) -> Vec<Damage> {
    if pairs.iter().flatten().all(|found| *found == Found::Missing) {
        let reason = "the snapshots of spaces are missing: what the journal has let go of is lost";
        return is_noted.then(|| one(DamageKind::Missing, folder.to_owned(), 0, reason)).into_iter().collect();
    }
    let of = |(number, pair): (u16, &Pair)| damage_of_pair(folder, PartitionId::new(number), *pair, has_types);
    (0..).zip(pairs).filter_map(of).collect()
}

fn one(kind: DamageKind, path: PathBuf, bytes: u64, reason: &'static str) -> Damage {
    Damage { kind, path, offset: 0, bytes, position: Position::ZERO, reason }
}

/// What is to be told of a partition's two files. `has_types`: there must be some.
pub(super) fn damage_of_pair(folder: &Path, partition: PartitionId, pair: Pair, has_types: bool) -> Option<Damage> {
    let is_damaged = |found: &Found| matches!(found, Found::Damaged { .. });
    let [newest, older] = ENDS.map(|end| folder.join(name(partition, end)));
    let reason = "both snapshots of a partition's space are missing or damaged: what the journal has let go of is lost";
    match &pair {
        // A crash between the two of a partition, before anything was in them, leaves one of them or none.
        [Found::Missing, Found::Missing] => has_types.then(|| one(DamageKind::Missing, newest, 0, reason)),
        [Found::Damaged { bytes }, other] | [other @ Found::Missing, Found::Damaged { bytes }]
            if *other != Found::Intact =>
        {
            let path = if is_damaged(&pair[0]) { newest } else { older };
            Some(one(DamageKind::Record, path, *bytes, reason))
        }
        [Found::Damaged { bytes }, _] => {
            Some(one(DamageKind::Copy, newest, *bytes, "a snapshot of a partition's space; the one before is intact"))
        }
        [_, Found::Damaged { bytes }] => {
            let reason = "the older snapshot of a partition's space; the newer is intact";
            Some(one(DamageKind::Copy, older, *bytes, reason))
        }
        _ => None,
    }
}

/// A folder's snapshots, open: whoever replaces them meanwhile changes nothing of what is read.
pub(crate) struct Opened {
    folder: PathBuf,
    partitions: Vec<[Option<Arc<dyn File>>; 2]>,
    is_noted: bool,
}

impl Opened {
    /// Opens the snapshots of so many partitions. `is_noted` is as for [`lost`].
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub(crate) fn of(files: &dyn Files, folder: PathBuf, (partitions, is_noted): (u16, bool)) -> Result<Self> {
        let open = |number| -> Result<_> {
            let [newest, older] = ENDS.map(|end| open(files, &folder.join(name(PartitionId::new(number), end))));
            Ok([newest?, older?])
        };
        let partitions = (0..partitions).map(open).collect::<Result<_>>()?;
        Ok(Self { folder, partitions, is_noted })
    }

    /// Reads every byte, and returns what is damaged or missing.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub(crate) fn check(&self) -> Result<Vec<Damage>> {
        let (mut pairs, mut has_types) = (Vec::new(), false);
        for (number, both) in (0..).map(PartitionId::new).zip(&self.partitions) {
            let mut pair = [Found::Missing; 2];
            for ((found, file), end) in pair.iter_mut().zip(both).zip(ENDS) {
                let engine;
                (*found, engine) = read(file.as_deref(), &self.folder.join(name(number, end)), number)?;
                has_types |= engine.is_some_and(|engine| engine.types().next().is_some());
            }
            pairs.push(pair);
        }
        Ok(damage(&self.folder, &pairs, has_types, self.is_noted))
    }
}

/// A snapshot of a store that goes as far as `position` or beyond, and how far; `None` when there is none. Of the others only the
/// start is read.
pub(crate) fn beyond(files: &dyn Files, dir: &Path, position: Position) -> Result<Option<(PathBuf, Position)>> {
    let folder = dir.join(FOLDER);
    for name in files.list(&folder).unwrap_or_default().iter().filter(|name| is_snapshot(name)) {
        let Some(partition) = name.get(..4).and_then(|digits| digits.parse().ok()) else { continue };
        let path = folder.join(name);
        let Some(file) = open(files, &path)? else { continue };
        let mut start = [0; Snapshot::START_BYTES];
        let read_start = base::read_exact_at(&*file, &mut start, 0);
        if read_start.is_err() || Snapshot::applied_of(&start).is_none_or(|applied| applied < position) {
            continue;
        }
        // A damaged one says nothing.
        if let (_, Some(engine)) = read(Some(&*file), &path, PartitionId::new(partition))? {
            return Ok(Some((path, engine.applied())));
        }
    }
    Ok(None)
}

/// Writes a snapshot; the one that was the newest becomes the older one.
pub(crate) fn write(files: &dyn Files, dir: &Path, partition: PartitionId, bytes: &[u8]) -> Result<()> {
    let folder = dir.join(FOLDER);
    let (newest, older) = (path(dir, partition, "snap"), path(dir, partition, "old"));
    let write = || {
        files.create_dir(&folder)?;
        match files.rename(&newest, &older) {
            Err(error) if error.kind() == NotFound => write_new_file(files, &older, bytes)?,
            renamed => renamed?,
        }
        write_new_file(files, &newest, bytes)
    };
    write().map_err(|error| failed(&newest, &error))
}

/// Where a backup keeps snapshots until its manifest is written: the ones that the manifest before needs are beside them.
const NEXT_FOLDER: &str = "space.next";

/// Copies snapshots from one folder to another.
fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<()> {
    let names = match files.list(from) {
        Err(error) if error.kind() == NotFound => return Ok(()),
        names => names.map_err(|error| failed(from, &error))?,
    };
    files.create_dir(to).map_err(|error| failed(to, &error))?;
    for name in names.iter().filter(|name| is_snapshot(name)) {
        base::copy_whole(files, &from.join(name), &to.join(name)).map_err(|error| failed(to, &error))?;
    }
    let parent = to.parent().unwrap_or(to);
    files.sync_dir(to).and_then(|()| files.sync_dir(parent)).map_err(|error| failed(to, &error))
}

/// Removes the snapshots of a folder; what cannot be removed is replaced by the next backup.
fn clear(files: &dyn Files, folder: &Path) {
    for name in files.list(folder).unwrap_or_default().iter().filter(|name| is_snapshot(name)) {
        let _ = files.remove(&folder.join(name));
    }
}

/// Copies the snapshots of a store into a backup, for the manifest that is written next.
pub(crate) fn copy_for_backup(files: &dyn Files, store: &Path, backup: &Path) -> Result<()> {
    clear(files, &backup.join(NEXT_FOLDER));
    copy(files, &store.join(FOLDER), &backup.join(NEXT_FOLDER))
}

/// Makes them the backup's own, when its manifest is written. A failure leaves both, of which restoring takes the right one.
pub(crate) fn settle_backup(files: &dyn Files, backup: &Path) -> Result<()> {
    copy(files, &backup.join(NEXT_FOLDER), &backup.join(FOLDER))?;
    clear(files, &backup.join(NEXT_FOLDER));
    Ok(())
}

/// The folder in a backup whose manifest goes up to `position` that has the newest snapshots that do not go beyond it.
pub(crate) fn fitting(files: &dyn Files, backup: &Path, position: Position) -> PathBuf {
    // A copy that was broken off lacks some.
    let settled = files.list(&backup.join(FOLDER)).unwrap_or_default();
    let fits = |folder: &Path| {
        let names = files.list(folder).unwrap_or_default();
        let snapshots: Vec<&String> = names.iter().filter(|name| is_snapshot(name)).collect();
        let has = |name: &String| !is_snapshot(name) || names.contains(name);
        !snapshots.is_empty()
            && settled.iter().all(has)
            && snapshots.iter().all(|name| {
                let partition = name.get(..4).and_then(|digits| digits.parse().ok()).map(PartitionId::new);
                let read = partition.and_then(|partition| open_and_read(files, &folder.join(name), partition).ok());
                read.and_then(|(_, engine)| engine).is_none_or(|engine| engine.applied() < position)
            })
    };
    let next = backup.join(NEXT_FOLDER);
    if fits(&next) { next } else { backup.join(FOLDER) }
}

/// Copies the snapshots of a backup whose manifest goes up to `position` into the store that it becomes.
pub(crate) fn restore(files: &dyn Files, backup: &Path, store: &Path, position: Position) -> Result<()> {
    copy(files, &fitting(files, backup, position), &store.join(FOLDER))
}
