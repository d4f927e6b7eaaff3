//! Files on a slower disk: each sync takes so much longer.
//!
//! May use: `base`. Must not know: who syncs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{DirLock, File, Files};

/// Files whose syncs are delayed.
pub(crate) struct DelayedFiles {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) delay: Duration,
}

struct DelayedFile {
    file: Arc<dyn File>,
    delay: Duration,
}

impl DelayedFiles {
    fn of(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(DelayedFile { file, delay: self.delay })
    }
}

impl Files for DelayedFiles {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.of(self.files.open(path)?))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.files.open_to_read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.of(self.files.create(path)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        std::thread::sleep(self.delay);
        self.files.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.files.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.files.free_bytes(dir)
    }

    fn boot_id(&self) -> u128 {
        self.files.boot_id()
    }
}

impl File for DelayedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        std::thread::sleep(self.delay);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
}
