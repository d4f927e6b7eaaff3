//! The folders that the trees of a store's ledgers lie in.
//!
//! A partition's ledger lies in `NNNN`; one that was emptied goes on in a new folder, `NNNN.1`, and then in `NNNN.2`. So
//! whoever still reads the tree of before finds its tables where they were, and what he lets go of is never the new one's.
//! The highest number is the ledger, all others are left over.
//!
//! May use: `std::fs` (the exception that `lsm.rs` has). Must not know: trees.

use std::path::{Path, PathBuf};

use journal::PartitionId;

use crate::error::{Error, Result};

/// Name of the file that condemns a ledger.
const CONDEMNED: &str = "condemned";

/// The kind of checksum that the tree's lists have.
const XXH3: u8 = 0;

/// The folder of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// How often the ledger was emptied before.
    pub(super) generation: u64,
}

impl Folder {
    fn new(dir: &Path, partition: PartitionId, generation: u64) -> Self {
        let name = match generation {
            0 => format!("{:04}", partition.get()),
            _ => format!("{:04}.{generation}", partition.get()),
        };
        Self { path: dir.join(name), generation }
    }

    /// All folders that a partition has in `dir`, the newest last.
    pub(super) fn all(dir: &Path, partition: PartitionId) -> Result<Vec<Self>> {
        let failed = |error: std::io::Error| io_failed(dir, &error);
        let mut folders = Vec::new();
        for entry in read_dir(dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().map_or("", |name| name.split_once('.').map_or("0", |(_, number)| number));
            let folder = number.parse().ok().map(|generation| Self::new(dir, partition, generation));
            folders.extend(folder.filter(|folder| folder.path.file_name() == Some(&name)));
        }
        folders.sort_by_key(|folder| folder.generation);
        Ok(folders)
    }

    /// The folder that a partition's ledger lies in, or is to lie in.
    pub(super) fn newest(dir: &Path, partition: PartitionId) -> Result<Self> {
        let newest = Self::all(dir, partition)?.pop();
        Ok(newest.unwrap_or_else(|| Self::new(dir, partition, 0)))
    }

    /// The folder for what comes after this one: empty, also if somebody did not get far with it.
    pub(super) fn after(&self, dir: &Path, partition: PartitionId) -> Result<Self> {
        let next = Self::new(dir, partition, self.generation + 1);
        next.discard()?;
        Ok(next)
    }

    #[expect(clippy::disallowed_methods, reason = "the ledger is derived, and its tree opens files itself")]
    pub(super) fn condemn(&self) -> Result<()> {
        let note = self.path.join(CONDEMNED);
        std::fs::write(&note, b"").map_err(|error| io_failed(&note, &error))
    }

    pub(super) fn is_condemned(&self) -> bool {
        self.path.join(CONDEMNED).exists()
    }

    /// Whether the list of the tree's tables is the one that was written. The tree reads it without a look at its checksum, and a byte of it
    /// that changed has the tree show what was true once, and merge what is true now away.
    ///
    /// `current` names the list: number 8 | xxh3 128 of the list 16 | kind of the checksum 1. A folder without it is a new one's, unless there
    /// are lists: a tree that began anew beside them would come upon their names.
    pub(super) fn has_sound_list(&self) -> Result<bool> {
        let Some(current) = read_if_there(&self.path.join("current"))? else { return Ok(!self.has_lists()?) };
        let mut fields = base::Fields(&current);
        let (Some(number), Some(sum), Some([XXH3]), []) = (fields.u64(), fields.array(), fields.array(), fields.0)
        else {
            return Ok(false);
        };
        let list = read_if_there(&self.path.join(format!("v{number}")))?;
        Ok(list.is_some_and(|list| base::hash128(&list) == u128::from_le_bytes(sum)))
    }

    fn has_lists(&self) -> Result<bool> {
        let names = match read_dir(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            names => names.map_err(|error| io_failed(&self.path, &error))?,
        };
        for entry in names {
            let name = entry.map_err(|error| io_failed(&self.path, &error))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('v'));
            if number.is_some_and(|number| number.parse::<u64>().is_ok()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn discard(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_failed(&self.path, &error)),
            _ => Ok(()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the ledger is derived, and its tree opens files itself")]
fn read_dir(dir: &Path) -> std::io::Result<std::fs::ReadDir> {
    std::fs::read_dir(dir)
}

#[expect(clippy::disallowed_methods, reason = "the ledger is derived, and its tree opens files itself")]
fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_failed(path, &error)),
    }
}

pub(super) fn io_failed(path: &Path, error: &std::io::Error) -> Error {
    Error::LedgerIo { path: path.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests stand outside the wall")]

    use super::*;

    #[test]
    fn the_folders_of_a_partition_are_its_own_and_the_highest_number_is_last() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (PartitionId::new(1000), PartitionId::new(10_000));
        assert_eq!(Folder::newest(dir.path(), one).unwrap().path, dir.path().join("1000"));
        for name in ["1000", "1000.2", "1000.10", "1000.x", "1000.02", "1000.", "10000.3", "0100", "readme"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let generations = |of| Folder::all(dir.path(), of).unwrap().iter().map(|f| f.generation).collect::<Vec<_>>();
        assert_eq!((generations(one), generations(other)), (vec![0, 2, 10], vec![3]));
        let newest = Folder::newest(dir.path(), one).unwrap();
        std::fs::create_dir(dir.path().join("1000.11")).unwrap();
        let next = newest.after(dir.path(), one).unwrap();
        assert_eq!((next.path.clone(), next.path.exists()), (dir.path().join("1000.11"), false));
        newest.condemn().unwrap();
        assert!(newest.is_condemned() && !next.is_condemned());
    }
}
