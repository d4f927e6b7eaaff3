//! Lists folders, and keeps one in memory so that it can be brought back again and again, each time with one byte changed.
//!
//! May use: std, `tempfile`. Must not know: what the files hold.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::TempDir;

const BLOCK: usize = 4096;

/// A temporary folder in memory, if the machine has such: for tests about bytes, which restart a store hundreds of times and
/// learn nothing from waiting for a disk.
///
/// # Panics
/// When none can be made.
pub fn folder_in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a temporary folder")
}

/// Every file below the folder, in the order of their paths.
///
/// # Panics
/// When the folder cannot be read.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of a test can be read") {
        let path = entry.expect("a folder of a test can be read").path();
        if path.is_dir() {
            found.extend(files_of(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every file below the folder with its length and when it was changed last.
///
/// # Panics
/// When one cannot be looked at.
pub fn looks_of(folder: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let look = |path: PathBuf| {
        let found = fs::metadata(&path).expect("a file of a test can be looked at");
        let changed = found.modified().expect("files have times");
        (path, found.len(), changed)
    };
    files_of(folder).into_iter().map(look).collect()
}

/// A folder as it was.
#[derive(Debug)]
pub struct Snapshot {
    files: Vec<Kept>,
}

/// One file of a snapshot. Most of a store's bytes are preallocated zeros, which are not kept.
#[derive(Debug)]
pub struct Kept {
    /// From the folder.
    pub path: PathBuf,
    /// With the zeros.
    pub length: usize,
    blocks: Vec<(usize, Vec<u8>)>,
}

impl Kept {
    /// Where the bytes are that are not zero.
    pub fn written(&self) -> Vec<usize> {
        let of_block = |(begin, block): &(usize, Vec<u8>)| {
            let (begin, block) = (*begin, block.clone());
            block.into_iter().enumerate().filter(|(_, byte)| *byte != 0).map(move |(index, _)| begin + index)
        };
        self.blocks.iter().flat_map(of_block).collect()
    }
}

impl Snapshot {
    /// Reads every file of the folder.
    ///
    /// # Panics
    /// When one cannot be read.
    pub fn of(folder: &Path) -> Self {
        let files = files_of(folder).into_iter().map(|path| {
            let content = fs::read(&path).expect("a file of a test can be read");
            let blocks = content.chunks(BLOCK).enumerate();
            let blocks = blocks.filter(|(_, block)| *block != &[0; BLOCK][..block.len()]);
            let blocks = blocks.map(|(index, block)| (index * BLOCK, block.to_vec())).collect();
            let path = path.strip_prefix(folder).expect("it is in there").to_path_buf();
            Kept { path, length: content.len(), blocks }
        });
        Self { files: files.collect() }
    }

    /// The files, in the order of their paths.
    pub fn files(&self) -> &[Kept] {
        &self.files
    }

    /// Makes the folder what it was; what is in it now goes.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn restore(&self, folder: &Path) {
        if folder.exists() {
            fs::remove_dir_all(folder).expect("a folder of a test can be removed");
        }
        for kept in &self.files {
            let path = folder.join(&kept.path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder of a test can be made");
            let mut file = fs::File::create(path).expect("a file of a test can be made");
            file.set_len(kept.length as u64).expect("a file of a test can be sized");
            for (begin, block) in &kept.blocks {
                file.seek(SeekFrom::Start(*begin as u64)).expect("a file can be positioned");
                file.write_all(block).expect("a file of a test can be written");
            }
        }
    }
}

/// Changes the bits of one byte of a file and returns what it was.
///
/// # Panics
/// When the file is shorter.
pub fn flip(file: &Path, position: usize, bits: u8) -> u8 {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().read(true).write(true).open(file).expect("the file is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, position as u64).expect("the position is in the file");
    file.write_all_at(&[byte[0] ^ bits], position as u64).expect("a byte can be written");
    byte[0]
}
