//! Files with something done around some of their calls: for tests and benchmarks that hold a disk still or slow it down.
//!
//! May use: `files`. Must not know: what is done.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::files::{DirLock, File, Files};

/// What is done around calls; by default the call alone.
pub trait Around: Send + Sync {
    /// Around [`File::read_at`].
    ///
    /// # Errors
    /// Those of the call, and its own.
    fn read_at(&self, handle: &Handle, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        handle.file.read_at(buffer, offset)
    }

    /// Around [`File::sync`].
    ///
    /// # Errors
    /// Those of the call, and its own.
    fn sync(&self, handle: &Handle) -> io::Result<()> {
        handle.file.sync()
    }

    /// Around [`File::allocate`].
    ///
    /// # Errors
    /// Those of the call, and its own.
    fn allocate(&self, handle: &Handle, len: u64) -> io::Result<()> {
        handle.file.allocate(len)
    }

    /// Around [`File::expect_small_writes`].
    fn expect_small_writes(&self, handle: &Handle) -> bool {
        handle.file.expect_small_writes()
    }

    /// Around [`Files::free_bytes`].
    ///
    /// # Errors
    /// Those of the call, and its own.
    fn free_bytes(&self, files: &dyn Files, dir: &Path) -> io::Result<u64> {
        files.free_bytes(dir)
    }

    /// Around [`Files::sync_dir`].
    ///
    /// # Errors
    /// Those of the call, and its own.
    fn sync_dir(&self, files: &dyn Files, dir: &Path) -> io::Result<()> {
        files.sync_dir(dir)
    }
}

/// A file that was opened, or made, once.
pub struct Handle {
    /// The file itself.
    pub file: Arc<dyn File>,
    /// Where it was when it was opened.
    pub path: PathBuf,
    /// Of no other handle of the same files.
    pub number: usize,
}

/// Files with something done around their calls.
pub struct AroundFiles<A> {
    files: Arc<dyn Files>,
    around: Arc<A>,
    handles: AtomicUsize,
}

struct AroundFile<A> {
    handle: Handle,
    around: Arc<A>,
}

impl<A: Around + 'static> AroundFiles<A> {
    /// `files`, with `around` around their calls.
    pub fn new(files: Arc<dyn Files>, around: Arc<A>) -> Self {
        Self { files, around, handles: AtomicUsize::new(0) }
    }

    fn of(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        let number = self.handles.fetch_add(1, Ordering::Relaxed);
        let handle = Handle { file, path: path.to_owned(), number };
        Arc::new(AroundFile { handle, around: Arc::clone(&self.around) })
    }
}

impl<A: Around + 'static> Files for AroundFiles<A> {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.of(path, self.files.open(path)?))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.of(path, self.files.open_to_read(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.of(path, self.files.create(path)?))
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

    fn discard(&self, path: &Path) -> io::Result<()> {
        self.files.discard(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.files.resolve(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.around.sync_dir(&*self.files, dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.files.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.around.free_bytes(&*self.files, dir)
    }

    fn boot_id(&self) -> u128 {
        self.files.boot_id()
    }
}

impl<A: Around> File for AroundFile<A> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.around.read_at(&self.handle, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.handle.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.around.sync(&self.handle)
    }

    fn len(&self) -> io::Result<u64> {
        self.handle.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.handle.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.around.allocate(&self.handle, len)
    }

    fn expect_small_writes(&self) -> bool {
        self.around.expect_small_writes(&self.handle)
    }

    fn make_ready(&self, from: u64, to: u64) {
        self.handle.file.make_ready(from, to);
    }
}
