//! Emptying the page cache of a store's files, so that what is read next comes from the device.
//!
//! Of these files only: the rest of the machine keeps what it has, and nobody has to be root.
//!
//! May use: the file system. Must not know: stores, workloads.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use super::Result;

/// Folders within folders that are looked at.
const DEPTH_MAX: usize = 8;

/// Writes out what is dirty of all files of a folder, and has the system forget them. Files may come and go meanwhile.
pub(super) fn forget(dir: &Path) -> Result<()> {
    forget_within(dir, DEPTH_MAX)
}

fn forget_within(dir: &Path, depth: usize) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            if depth > 0 {
                forget_within(&path, depth - 1)?;
            }
            continue;
        }
        // One that has gone is not in anybody's cache.
        let Ok(file) = File::open(&path) else { continue };
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_forgotten_is_still_there() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let paths = ["x", "a/y"].map(|name| dir.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, [7; 10_000]).unwrap());
        forget(dir.path()).unwrap();
        assert!(paths.iter().all(|path| std::fs::read(path).unwrap() == [7; 10_000]));
        assert!(forget(&dir.path().join("no such folder")).is_err());
    }
}
