//! Sealed files in backups.
//!
//! As with snapshots of spaces there are two folders in a backup while it is brought up to date: `series.next` for the manifest of the
//! journal that is written next, and `series`, which becomes the same when that is written.
//!
//! May use: `folder`, the shelf. Must not know: the journal's part of a backup.

use std::path::{Path, PathBuf};

use base::Files;
use journal::Position;

use super::folder::{FOLDER, Folder};
use super::shelf::Shelf;
use crate::error::Result;

const NEXT_FOLDER: &str = "series.next";

/// Puts what is sealed into a backup, for the manifest of the journal that is written next.
pub(crate) fn copy_for_backup(files: &dyn Files, shelf: &Shelf, backup: &Path) -> Result<()> {
    let next = backup.join(NEXT_FOLDER);
    let next = Folder { files, dir: &next };
    next.clear()?;
    shelf.undisturbed(|folder| folder.place_into(&next, true))
}

/// Makes it the backup's own, when that manifest is written. A failure leaves both, of which restoring takes the right one.
pub(crate) fn settle_backup(files: &dyn Files, backup: &Path) -> Result<()> {
    let (next, own) = (backup.join(NEXT_FOLDER), backup.join(FOLDER));
    let next = Folder { files, dir: &next };
    next.place_into(&Folder { files, dir: &own }, true)?;
    next.clear()
}

/// The folder in a backup that does not go beyond `position`.
pub(crate) fn fitting(files: &dyn Files, backup: &Path, position: Position) -> Result<PathBuf> {
    let next = backup.join(NEXT_FOLDER);
    let manifest = Folder { files, dir: &next }.manifest(&mut |_| ())?;
    let fits = manifest.is_some_and(|it| it.partitions.iter().all(|sealed| sealed.through < position));
    Ok(if fits { next } else { backup.join(FOLDER) })
}

/// Puts what is sealed in a backup into the store that it becomes.
pub(crate) fn restore(files: &dyn Files, backup: &Path, store: &Path, position: Position, is_link: bool) -> Result<()> {
    let (from, to) = (fitting(files, backup, position)?, store.join(FOLDER));
    Folder { files, dir: &from }.place_into(&Folder { files, dir: &to }, is_link)
}
