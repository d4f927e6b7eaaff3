//! The space's snapshots: files beside the journal, so that opening need not read the journal from its beginning.
//!
//! Each partition has two, `NNNN.snap` and the one before it, `NNNN.old`. The journal keeps what came after the older one,
//! so that one damaged file costs time and nothing else. A store whose space was never used has no folder `space`.
//!
//! May use: `base`, `space`. Must not know: when snapshots are due.

use std::path::{Path, PathBuf};

use ::space::Engine;
use base::{Files, write_new_file};
use journal::{Damage, DamageKind, PartitionId, Position};

use crate::error::{Error, ErrorKind, Result};

/// The folder within the store's.
pub(crate) const FOLDER: &str = "space";

/// A partition's share as its snapshot had it.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// The journal is needed behind this position; `MAX` when the space was never used.
    pub(crate) kept: Position,
    /// Everything up to this position is in the newest intact snapshot.
    pub(crate) through: Position,
    /// Everything up to this position is in the engine.
    pub(crate) replayed: Position,
}

impl Loaded {
    /// Of a store whose space was never used.
    pub(crate) fn unused() -> Self {
        let never = Position::new(u64::MAX);
        Self { engine: Engine::default(), kept: never, through: never, replayed: never }
    }
}

fn path(dir: &Path, partition: PartitionId, end: &str) -> PathBuf {
    dir.join(FOLDER).join(format!("{:04}.{end}", partition.get()))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} cannot be used: {error}", path.display()))
}

fn read(files: &dyn Files, path: &Path, partition: PartitionId) -> Result<Option<Engine>> {
    let file = match files.open_to_read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, &error)),
    };
    let bytes = || {
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        base::read_exact_at(&*file, &mut bytes, 0)?;
        Ok(bytes)
    };
    let bytes: Vec<u8> = bytes().map_err(|error| failed(path, &error))?;
    // A damaged one is as good as none: there is another, and the journal.
    Ok(Engine::restore(&bytes, partition).ok())
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
    let newest = read(files, &path("snap"), partition)?;
    let older = read(files, &path("old"), partition)?;
    if newest.is_none() && older.is_some() {
        // Out of the way, or it would take the place of the intact one when the next is written.
        match files.rename(&path("snap"), &path("damaged")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&path("snap"), &error)),
            _ => {}
        }
    }
    let kept = match (&newest, &older) {
        (Some(newest), Some(older)) => newest.applied().min(older.applied()),
        (Some(one), None) | (None, Some(one)) => one.applied(),
        (None, None) => Position::ZERO,
    };
    let engine = newest.or(older).unwrap_or_default();
    let through = engine.applied();
    Ok(Loaded { kept, through, replayed: through, engine })
}

/// What is to be told of partitions of a used space that have no snapshot left.
pub(crate) fn lost(dir: &Path, loaded: &[Loaded]) -> Vec<Damage> {
    let is_used = loaded.iter().any(|loaded| loaded.engine.types().next().is_some());
    let has_none =
        |loaded: &&(u16, &Loaded)| is_used && loaded.1.kept == Position::ZERO && loaded.1.through == Position::ZERO;
    let numbered: Vec<(u16, &Loaded)> = (0..).zip(loaded).collect();
    let damage = |(number, _): &(u16, &Loaded)| Damage {
        kind: DamageKind::Missing,
        path: path(dir, PartitionId::new(*number), "snap"),
        offset: 0,
        bytes: 0,
        position: Position::ZERO,
        reason: "both snapshots of a partition's space are missing or damaged: what the journal has let go of is lost",
    };
    numbered.iter().filter(has_none).map(damage).collect()
}

/// Writes a snapshot; the one that was the newest becomes the older one.
pub(crate) fn write(files: &dyn Files, dir: &Path, partition: PartitionId, bytes: &[u8]) -> Result<()> {
    let folder = dir.join(FOLDER);
    let (newest, older) = (path(dir, partition, "snap"), path(dir, partition, "old"));
    let write = || {
        files.create_dir(&folder)?;
        match files.rename(&newest, &older) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => write_new_file(files, &older, bytes)?,
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
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
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

/// Copies the snapshots of a backup whose manifest goes up to `position` into the store that it becomes: the newest that do not
/// go beyond it.
pub(crate) fn restore(files: &dyn Files, backup: &Path, store: &Path, position: Position) -> Result<()> {
    let fits = |folder: &Path| {
        let names = files.list(folder).unwrap_or_default();
        let snapshots: Vec<&String> = names.iter().filter(|name| is_snapshot(name)).collect();
        !snapshots.is_empty()
            && snapshots.iter().all(|name| {
                let partition = name.get(..4).and_then(|digits| digits.parse().ok()).map(PartitionId::new);
                let engine = partition.and_then(|partition| read(files, &folder.join(name), partition).ok().flatten());
                engine.is_none_or(|engine| engine.applied() < position)
            })
    };
    let next = backup.join(NEXT_FOLDER);
    let from = if fits(&next) { next } else { backup.join(FOLDER) };
    copy(files, &from, &store.join(FOLDER))
}
