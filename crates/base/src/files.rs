//! Files as the crates above see them: positioned reads and writes, explicit syncs, explicit directory syncs.
//!
//! What survives a power cut is part of each method's contract, and [`crate::memory::Disk`] holds callers to it.
//!
//! May use: nothing. Must not know: what is stored.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A file system, real or simulated.
pub trait Files: Send + Sync {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` when there is none; otherwise what the system says.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file for reading only: needs no right to write, and changes nothing, times included.
    ///
    /// # Errors
    /// `NotFound` when there is none; otherwise what the system says.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Creates a file that must not exist. After a power cut it is there only if [`Files::sync_dir`] of its folder came
    /// after, and holds only what [`File::sync`] covered.
    ///
    /// # Errors
    /// `AlreadyExists` when it does; otherwise what the system says.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Gives the file `from` a second name, `to`, which must not exist. Both name the same bytes, until one of the names is
    /// removed or renamed over. The name is durable after [`Files::sync_dir`] of `to`'s folder; the content is as durable
    /// as it was.
    ///
    /// # Errors
    /// `AlreadyExists` when `to` does; `CrossesDevices` or `Unsupported` when such a link cannot be; otherwise what the
    /// system says.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

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

    /// Removes whatever has this name, a folder with all that is in it, and is content when there is nothing. For what can be made again. Durable
    /// after [`Files::sync_dir`].
    ///
    /// # Errors
    /// What the system says; some of what was in a folder may be gone.
    fn discard(&self, path: &Path) -> io::Result<()>;

    /// Creates a folder and its parents where missing, durably.
    ///
    /// # Errors
    /// `NotADirectory`, with the path in its text, when a file has the name of one of them; otherwise what the system says.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The path from the root that leads to the same place without a link. Of a path that is not all there, the part that is.
    ///
    /// # Errors
    /// What the system says.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// The names of the files in a folder, sorted. Folders are left out.
    ///
    /// # Errors
    /// `NotFound` when there is no such folder; otherwise what the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes creations, renames and removals in this folder durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the folder's lock for this process, held until the value is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` when another holder has it, with who that is, in words, if that is known; otherwise what the system says.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>>;

    /// Bytes that may still be written to the file system of a folder.
    ///
    /// # Errors
    /// What the system says.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

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

    /// Says that many small writes below what was allocated are to come, and few syncs. Returns whether they cost less then; least
    /// where zeros were written before. All that [`File::write_at`] promises stays as it is.
    fn expect_small_writes(&self) -> bool;

    /// Makes the first small writes to what lies between `from` and `to`, which is written already, as cheap as later ones are, after
    /// [`File::expect_small_writes`]. By whoever has time for it; changes nothing else.
    fn make_ready(&self, from: u64, to: u64);
}

/// Writes above this are no small ones ([`File::expect_small_writes`]): a call takes them many pages at a time, and zeros before them
/// only double what is copied. (Measured with groups of 25 KiB: the zeros took a seventh of the processor's time of all.)
pub const SMALL_WRITE_BYTES_MAX: usize = 8 << 10;

/// A held lock; dropping it releases.
pub trait DirLock: Send + Sync {}

/// Linux' numbers of what is said when the bytes cannot be had though the disk answers: EIO, ENODATA, EBADMSG, EILSEQ, EUCLEAN.
const UNREADABLE: [i32; 5] = [5, 61, 74, 84, 117];

/// Whether a read failed because of the bytes that it asked for.
#[must_use]
pub fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| UNREADABLE.contains(&number))
}

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
    let file = files.open_to_read(path)?;
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
    remove_if_there(files, &beside)?;
    let place = || {
        let file = files.create(&beside)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        files.rename(&beside, path)
    };
    place().inspect_err(|_| {
        // A full disk must not keep the half of it.
        let _ = files.remove(&beside);
    })?;
    files.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// How a file came to have a second name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// It is the same file: no bytes were copied, no space was taken.
    Linked,
    /// It is a copy, synced.
    Copied,
}

/// Puts the file `from`, whose content must be on stable storage and not change any more, at `to`, over whatever was
/// there, atomically: as a hard link where that can be, as a copy otherwise. The name is durable after
/// [`Files::sync_dir`] of `to`'s folder; until then a power cut leaves the old or the new file, whole.
///
/// # Errors
/// What the system says; what was at `to` is then still there.
pub fn link_or_copy(files: &dyn Files, from: &Path, to: &Path) -> io::Result<Placed> {
    place(files, from, to, true)
}

/// As [`link_or_copy`], but always a copy: bytes that rot in one of the two stay sound in the other.
///
/// # Errors
/// What the system says; what was at `to` is then still there.
pub fn copy_whole(files: &dyn Files, from: &Path, to: &Path) -> io::Result<()> {
    place(files, from, to, false).map(|_| ())
}

fn place(files: &dyn Files, from: &Path, to: &Path, may_link: bool) -> io::Result<Placed> {
    let beside = with_suffix(to, ".new");
    remove_if_there(files, &beside)?;
    let placed = match if may_link { files.link(from, &beside) } else { Err(io::ErrorKind::Unsupported.into()) } {
        Ok(()) => Placed::Linked,
        Err(error) if is_no_link(&error) => {
            let copied = copy(files, from, &beside);
            if copied.is_err() {
                // A full disk must not keep the half of a copy.
                let _ = files.remove(&beside);
            }
            copied?;
            Placed::Copied
        }
        Err(error) => return Err(error),
    };
    files.rename(&beside, to)?;
    // POSIX: renaming over another name of the same file does nothing, and leaves both.
    remove_if_there(files, &beside)?;
    Ok(placed)
}

/// Whether a copy may do what the link cannot: another file system, one without links, or too many links already.
fn is_no_link(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::CrossesDevices | E::Unsupported | E::PermissionDenied | E::TooManyLinks)
}

fn copy(files: &dyn Files, from: &Path, to: &Path) -> io::Result<()> {
    let source = files.open_to_read(from)?;
    let target = files.create(to)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    loop {
        let read = source.read_at(&mut buffer, at)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        target.write_at(bytes, at)?;
        at += read as u64;
    }
    target.sync()
}

/// Removes a file, or finds that there is none.
///
/// # Errors
/// What the system says.
pub fn remove_if_there(files: &dyn Files, path: &Path) -> io::Result<()> {
    match files.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
