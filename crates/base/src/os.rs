//! The operating system's files.
//!
//! May use: `std::fs`, `rustix` for what `std` lacks. Must not know: what is stored.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{DirLock, File, Files};
use crate::mapped::Mapped;

/// What is longer the system is handed in pieces: it looks for memory for a whole piece at once, and for a large one that can
/// take ten times as long (measured: 27 MiB by one call at 0.3 to 4.5 GB/s, in pieces at 3.0 to 4.7).
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Of a lock's file no more is read.
const PROCESS_DIGITS_MAX: usize = 10;

/// The real file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsFiles;

struct OsFile {
    file: fs::File,
    mapped: Mapped,
}
struct OsLock {
    held: fs::File,
}

impl DirLock for OsLock {}

impl Drop for OsLock {
    /// Closing alone does not end it: a child that another thread has just forked has the descriptor as well, until it
    /// executes its program, and who opens the directory again in that moment would be refused.
    fn drop(&mut self) {
        // What fails here ends with the last descriptor.
        let _unlocked = self.held.unlock();
    }
}

impl OsFile {
    fn of(file: fs::File) -> Arc<dyn File> {
        Arc::new(Self { file, mapped: Mapped::default() })
    }
}

/// Who has a lock, as far as its file tells.
fn in_use(lock: &fs::File) -> String {
    let mut digits = [0; PROCESS_DIGITS_MAX];
    let read = FileExt::read_at(lock, &mut digits, 0).unwrap_or(0);
    let text = digits.get(..read).and_then(|digits| std::str::from_utf8(digits).ok());
    match text.and_then(|text| text.parse::<u32>().ok()) {
        Some(process) => format!("in use by another process (pid {process})"),
        None => "in use by another process".to_owned(),
    }
}

impl Files for OsFiles {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(OsFile::of(fs::OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        // A pipe that lies where a file should would have the caller wait for somebody who writes to it.
        let unblocked = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        Ok(OsFile::of(fs::OpenOptions::new().read(true).custom_flags(unblocked).open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(OsFile::of(fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        let removed = match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.create_dir(parent)?;
        // What is in it is for nobody else on the machine: users and passwords guard the doors only.
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => {
                let text = format!("{} is a file and not a directory", path.display());
                Err(io::Error::new(io::ErrorKind::NotADirectory, text))
            }
            created => created,
        }?;
        self.sync_dir(parent)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let path = std::path::absolute(path)?;
        let there = |part: &Path| match fs::canonicalize(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            resolved => Some(resolved),
        };
        path.ancestors()
            .find_map(|part| {
                let rest = path.strip_prefix(part).expect("it is an ancestor");
                Some(there(part)?.map(|part| part.join(rest)))
            })
            .unwrap_or(Ok(path.clone()))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let held = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match held.try_lock() {
            Ok(()) => {
                // For people alone, so it may fail: a full disk is no reason not to open.
                let _ = held.set_len(0).and_then(|()| held.write_all_at(std::process::id().to_string().as_bytes(), 0));
                Ok(Box::new(OsLock { held }))
            }
            Err(fs::TryLockError::WouldBlock) => Err(io::Error::new(io::ErrorKind::WouldBlock, in_use(&held))),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let system = rustix::fs::statvfs(dir)?;
        // What ext4 keeps back is for root, unless somebody says otherwise: a twentieth of the disk.
        let blocks = if rustix::process::geteuid().is_root() { system.f_bfree } else { system.f_bavail };
        Ok(blocks.saturating_mul(system.f_frsize))
    }

    fn boot_id(&self) -> u128 {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&hex, 16).unwrap_or(0)
    }
}

impl File for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(written) = self.mapped.write(&self.file, bytes, offset) {
            return written;
        }
        let mut at = offset;
        bytes.chunks(PIECE_BYTES_MAX).try_for_each(|piece| {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.mapped.let_go();
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.mapped.end_for(|| self.file.set_len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, len) {
            Ok(()) => {
                self.mapped.reserved(len);
                Ok(())
            }
            // File systems without fallocate (some network and union ones): extend, and let writes meet a full disk.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) if len > self.len()? => self.set_len(len),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn expect_small_writes(&self) -> bool {
        self.mapped.want(&self.file)
    }

    fn make_ready(&self, from: u64, to: u64) {
        self.mapped.make_ready(&self.file, from, to);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_is_made_is_for_its_owner_and_one_that_was_there_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (there, made) = (dir.path().join("there"), dir.path().join("there/made"));
        fs::create_dir(&there).unwrap();
        fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).unwrap();
        OsFiles.create_dir(&made).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&there), mode(&made)), (0o755, 0o700));
    }

    /// A store that was closed and opened again was "in use by another process", now and then, in a program that
    /// starts others in the meantime.
    #[test]
    fn a_lock_ends_though_a_child_still_has_its_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let held = fs::File::create(&path).unwrap();
        held.try_lock().unwrap();
        let of_the_child = held.try_clone().unwrap();
        let lock = OsLock { held };
        assert!(OsFiles.lock(&path).is_err());
        drop(lock);
        assert!(OsFiles.lock(&path).is_ok());
        drop(of_the_child);
    }
}
