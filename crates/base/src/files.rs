//! Files as the crates above see them: positioned reads and writes, explicit syncs, explicit directory syncs.
//!
//! What survives a power cut is part of each method's contract, and [`crate::memory::Disk`] holds callers to it.
//!
//! May use: nothing. Must not know: what is stored.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system, real or simulated.
pub trait Files: Send + Sync {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` when there is none; otherwise what the system says.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Creates a file that must not exist. After a power cut it is there only if [`Files::sync_dir`] of its folder came
    /// after, and holds only what [`File::sync`] covered.
    ///
    /// # Errors
    /// `AlreadyExists` when it does; otherwise what the system says.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Moves a file over whatever `to` was, atomically. Durable after [`Files::sync_dir`].
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable after [`Files::sync_dir`].
    ///
    /// # Errors
    /// `NotFound` when there is none; otherwise what the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a folder and its parents where missing, durably.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a folder, sorted. Folders are left out.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes creations, renames and removals in this folder durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the folder's lock for this process, held until the value is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` when another holder has it; otherwise what the system says.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>>;

    /// Identifies this run of the machine: differs after a reboot. Zero when the system cannot say.
    fn boot_id(&self) -> u128;
}

#[expect(clippy::len_without_is_empty, reason = "a file's length is asked of the system and may fail")]
/// One open file. Reads and writes name their offset; there is no cursor. All methods may be called from any thread.
pub trait File: Send + Sync {
    /// Reads into `buffer` from `offset`; returns how many bytes were there, zero at the end. May be short.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, extending the file if needed. Survives the process at once, a power cut only
    /// after [`File::sync`].
    ///
    /// # Errors
    /// What the system says (`StorageFull` when the disk is); some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Puts content and length on stable storage.
    ///
    /// # Errors
    /// What the system says. After an error nothing is known about what was written since the last success.
    fn sync(&self) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends (with zeros) the file.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves disk space up to `len` and extends the file with zeros, so that later writes below `len` cannot meet a
    /// full disk.
    ///
    /// # Errors
    /// `StorageFull` when there is no space; otherwise what the system says.
    fn allocate(&self, len: u64) -> io::Result<()>;
}

/// A held lock; dropping it releases.
pub trait DirLock: Send + Sync {}

/// Fills `buffer` from `offset`.
///
/// # Errors
/// `UnexpectedEof` when the file ends before; otherwise what the system says.
pub fn read_exact_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            read => done += read,
        }
    }
    Ok(())
}

/// The whole content of a file of at most `bytes_max`.
///
/// # Errors
/// `InvalidData` when it is larger; otherwise what the system says.
pub fn read_whole(files: &dyn Files, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = files.open(path)?;
    let len = file.len()?;
    if len > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "file is larger than its kind may be"));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    read_exact_at(&*file, &mut bytes, 0)?;
    Ok(bytes)
}

/// Replaces `path` by a file with this content, durably and atomically: written beside, synced, renamed, folder synced.
/// A crash leaves the old content or the new one.
///
/// # Errors
/// What the system says; the old content is then still there.
pub fn write_new_file(files: &dyn Files, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = with_suffix(path, ".new");
    match files.remove(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = files.create(&beside)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    files.rename(&beside, path)?;
    files.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
