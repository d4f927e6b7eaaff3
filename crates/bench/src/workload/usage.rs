//! What a store uses of the machine: bytes at the device, memory, disk space.
//!
//! May use: `/proc`, the file system. Must not know: stores, workloads.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Unit of `st_blocks`, whatever the file system's own.
const BLOCK_BYTES: u64 = 512;
/// Folders within folders that are looked at.
const DEPTH_MAX: usize = 8;

/// Where to look.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    process: Option<u32>,
    dir: Option<PathBuf>,
}

/// What was seen at one moment; `None` where nobody may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Bytes that the process made the device read, since it began.
    pub(crate) read_bytes: Option<u64>,
    /// Bytes that the process made the device write, or will have: pages count when they become dirty.
    pub(crate) written_bytes: Option<u64>,
    /// Resident memory.
    pub(crate) rss_bytes: Option<u64>,
    /// Space that the store's files take on the disk.
    pub(crate) disk_bytes: Option<u64>,
}

impl Watched {
    /// A process, this one if `None`, and the folder of a store.
    pub(crate) fn new(process: Option<u32>, dir: Option<&Path>) -> Self {
        Self { process, dir: dir.map(Path::to_owned) }
    }

    /// Looks.
    pub(crate) fn look(&self) -> Usage {
        let process = self.process.map_or_else(|| "self".to_owned(), |id| id.to_string());
        let page = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
        let (io, status) = (page("io"), page("status"));
        Usage {
            read_bytes: field(&io, "read_bytes:"),
            written_bytes: field(&io, "write_bytes:"),
            rss_bytes: field(&status, "VmRSS:").map(|kib| kib * 1024),
            disk_bytes: self.dir.as_deref().map(taken_bytes),
        }
    }
}

/// The number behind a name at the beginning of a line.
fn field(page: &str, name: &str) -> Option<u64> {
    let rest = page.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Space that the files of a folder take on the disk. Files may come and go while they are counted.
pub(crate) fn taken_bytes(dir: &Path) -> u64 {
    disk_bytes(dir, DEPTH_MAX)
}

fn disk_bytes(dir: &Path, depth: usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() && depth > 0 => disk_bytes(&entry.path(), depth - 1),
        Ok(found) if found.is_file() => found.blocks() * BLOCK_BYTES,
        _ => 0,
    };
    entries.filter_map(std::io::Result::ok).map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let io = "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n";
        assert_eq!((field(io, "read_bytes:"), field(io, "write_bytes:")), (Some(4096), Some(8192)));
        assert_eq!(field("Name:\tx\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1234));
        assert_eq!((field(io, "nothing:"), field("", "VmRSS:")), (None, None));
    }

    #[test]
    fn this_process_uses_memory_and_a_folder_the_space_of_its_files() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let watched = Watched::new(None, Some(dir.path()));
        let before = watched.look();
        assert_eq!(before.disk_bytes, Some(0));
        assert!(before.rss_bytes > Some(0));
        std::fs::create_dir(dir.path().join("a")).unwrap();
        for name in ["x", "a/y"] {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            std::io::Write::write_all(&mut &file, &[1; 10_000]).unwrap();
            file.sync_all().unwrap();
        }
        let space = watched.look().disk_bytes.unwrap();
        assert!((20_000..200_000).contains(&space), "{space}");
    }

    #[test]
    fn who_is_not_there_uses_nothing_that_is_known() {
        assert_eq!(Watched::new(Some(u32::MAX), None).look(), Usage::default());
    }
}
