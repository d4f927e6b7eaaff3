//! The disk as one process sees it: when that is killed, nothing it still does reaches the disk.
//!
//! May use: the disk in memory. Must not know: who the process is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Disk;
use crate::files::{DirLock, File, Files};

/// The disk for a process that runs now. After [`Disk::kill_process`] everything asked here fails.
#[derive(Clone)]
pub struct Process {
    disk: Disk,
    number: u64,
}

impl Disk {
    /// The disk for the process that runs now.
    #[must_use]
    pub fn process(&self) -> Process {
        Process { disk: self.clone(), number: self.state().process }
    }
}

impl Process {
    fn alive(&self) -> io::Result<&Disk> {
        if self.disk.state().process == self.number {
            return Ok(&self.disk);
        }
        Err(io::Error::other("the process has ended"))
    }
}

impl Files for Process {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.alive()?.open(path)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.alive()?.open_to_read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.alive()?.create(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.alive()?.remove(path)
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        self.alive()?.discard(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.alive()?.create_dir(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.alive()?.resolve(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.alive()?.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.alive()?.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.alive()?.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.alive()?.free_bytes(dir)
    }

    fn boot_id(&self) -> u128 {
        self.disk.boot_id()
    }
}
