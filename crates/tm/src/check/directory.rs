//! Whether a coordinator could be opened in a directory. It is not opened, because that would end the transactions of a
//! program that had it before, and nothing is made.
//!
//! May use: `holdfast`, rustix. Must not know: profiles.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Access, Mode, OFlags, access, open, statvfs};
use rustix::io::Errno;

/// What is good about it, or what is wrong.
pub(super) fn check(dir: &Path) -> Result<String, String> {
    let shown = dir.display();
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(format!("{shown} is a file, not the directory of a coordinator")),
        Err(error) if is_missing(&error) => {
            can_be_made(dir)?;
            return Ok(format!("{shown} is not there yet, and can be made"));
        }
        Err(error) => return Err(format!("{shown} cannot be used: {error}")),
    }
    // First of all: of a program that runs the rest is its own affair.
    is_free(dir)?;
    keeps_files(dir).map_err(|reason| format!("{shown} cannot be used: {reason}"))?;
    // What a store is not opened in.
    if dir.join("restoring").exists() {
        return Err(format!("a restore into {shown} was interrupted: remove the directory and restore again"));
    }
    if dir.join("backup").exists() {
        return Err(format!("{shown} holds a backup, which is no coordinator: restore it into another directory"));
    }
    match holdfast::identity_of(dir) {
        Ok(Some(_)) => Ok(format!("no process has the store in {shown} open; what is in it was not looked at")),
        Ok(None) => Ok(format!("there is no store in {shown} yet, and one can be made")),
        Err(error) => Err(format!("the store in {shown} cannot be read: {error}")),
    }
}

/// A file where a folder should be counts as a folder in which nothing is: what it is is found on the way up.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether a store's folder could be made, with those above it that are missing.
fn can_be_made(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    if dir.is_symlink() {
        return Err(format!("{shown} is a link to what is not there"));
    }
    for above in dir.ancestors().skip(1) {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let wrong = |reason: &dyn std::fmt::Display| {
            format!("{shown} is not there and cannot be made in {}: {reason}", above.display())
        };
        match fs::metadata(above) {
            Ok(found) if found.is_dir() => return keeps_files(above).map_err(|reason| wrong(&reason)),
            Ok(_) => return Err(wrong(&"that is a file")),
            Err(error) if is_missing(&error) && !above.is_symlink() => {}
            Err(error) => return Err(wrong(&error)),
        }
    }
    Err(format!("{shown} is not there and cannot be made"))
}

/// Whether no process has the store open. A program that opens it in the very moment in which this asks is refused once.
fn is_free(dir: &Path) -> Result<(), String> {
    let unusable = |error: &io::Error| format!("{} cannot be used: {error}", dir.display());
    let mut lock = match OpenOptions::new().read(true).write(true).open(dir.join("lock")) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(&error)),
    };
    match lock.try_lock() {
        // Not by closing it alone: see `base`.
        Ok(()) => lock.unlock().map_err(|error| unusable(&error)),
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            // For people alone.
            let _ = lock.read_to_string(&mut process);
            let who = if process.is_empty() { "another process".to_owned() } else { format!("process {process}") };
            Err(format!(
                "{} is in use by {who}: a coordinator in a directory is for one process at a time, one in `servers` for many",
                dir.display()
            ))
        }
        Err(TryLockError::Error(error)) => Err(unusable(&error)),
    }
}

/// Whether this process can have files in a folder: a file without a name is made, which is gone at once and was never seen.
fn keeps_files(dir: &Path) -> Result<(), String> {
    let said = |error: Errno| io::Error::from(error).to_string();
    // A folder that was made is written through to the disk, for which the one above it is opened to read.
    access(dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).map_err(said)?;
    match open(dir, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Ok(()),
        // File systems that do not know such files: some of a network, and those that are no file systems, such as /proc.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let has_room = statvfs(dir).is_ok_and(|system| system.f_blocks > 0);
            if has_room { Ok(()) } else { Err("its file system keeps no files".to_owned()) }
        }
        Err(error) => Err(said(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check;

    /// A file was called a good directory, because the folder above it is there; and /proc/x, because /proc is.
    #[test]
    fn where_no_directory_can_be_is_said_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/no/such/folder", &link).unwrap();
        for (directory, wanted) in [
            (folder.path(), Ok("there is no store in")),
            (&folder.path().join("new"), Ok("is not there yet, and can be made")),
            (&folder.path().join("new/and/deep"), Ok("is not there yet, and can be made")),
            (&file, Err("is a file, not the directory of a coordinator")),
            (&file.join("below"), Err("that is a file")),
            (&link, Err("is a link to what is not there")),
            (&link.join("below"), Err("cannot be made in")),
            (Path::new("/proc/x"), Err("cannot be made in /proc: ")),
        ] {
            let found = check(directory);
            match (&found, wanted) {
                (Ok(found), Ok(wanted)) | (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{found}"),
                _ => panic!("{found:?} for {}", directory.display()),
            }
        }
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["file", "link"]);
    }

    #[test]
    fn a_store_that_somebody_has_open_is_not_free() {
        let folder = tempfile::tempdir().unwrap();
        let open = crate::Embedded::open(folder.path(), holdfast::Options::default()).unwrap();
        let found = check(folder.path()).unwrap_err();
        assert!(found.contains(&format!("is in use by process {}: ", std::process::id())), "{found}");
        drop(open);
        for _ in 0..2 {
            let found = check(folder.path()).unwrap();
            assert!(found.contains("no process has the store"), "{found}");
        }
    }

    /// A backup was called good, and what opens a coordinator refused it.
    #[test]
    fn a_backup_and_half_of_a_restore_are_no_coordinators() {
        let folder = tempfile::tempdir().unwrap();
        let (data, backup, half) = (folder.path().join("data"), folder.path().join("b"), folder.path().join("half"));
        let store = holdfast::Store::open(&data, holdfast::Options::default()).unwrap();
        store.backup(&backup).unwrap();
        std::fs::create_dir(&half).unwrap();
        std::fs::write(half.join("restoring"), "").unwrap();
        for (dir, wanted) in [(backup, "holds a backup, which is no coordinator"), (half, "was interrupted")] {
            let found = check(&dir).unwrap_err();
            assert!(found.contains(wanted), "{found}");
            assert!(crate::Embedded::open(&dir, holdfast::Options::default()).is_err(), "opening says so too");
        }
    }
}
