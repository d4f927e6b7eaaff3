//! The space's snapshots: files beside the journal, so that opening need not read the journal from its beginning.
//!
//! Each partition has two, `NNNN.snap` and the one before it, `NNNN.old`. The journal keeps what came after the older one,
//! so that one damaged file costs time and nothing else. A store whose space was never used has no folder `space`.
//!
//! May use: `base`, `space`. Must not know: when snapshots are due.

use std::path::{Path, PathBuf};

use ::space::Engine;
use base::{Files, write_new_file};
use journal::{PartitionId, Position};

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

/// Copies the snapshots into a backup's folder, or out of it.
pub(crate) fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<()> {
    let names = match files.list(&from.join(FOLDER)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(|error| failed(from, &error))?,
    };
    let folder = to.join(FOLDER);
    files.create_dir(&folder).map_err(|error| failed(&folder, &error))?;
    for name in names.iter().filter(|name| is_snapshot(name)) {
        let copied = base::copy_whole(files, &from.join(FOLDER).join(name), &folder.join(name));
        copied.map_err(|error| failed(&folder, &error))?;
    }
    files.sync_dir(&folder).and_then(|()| files.sync_dir(to)).map_err(|error| failed(&folder, &error))
}
