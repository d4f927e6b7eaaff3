//! Reading what is sealed again, piece by piece, to find damage before somebody needs the bytes.
//!
//! May use: the shelf, `folder`. Must not know: how fast, when.

use ::series::{Manifest, Register};

use super::folder::{MANIFEST, points_name, register_name};
use super::shelf::Shelf;

/// How far a round through what is sealed is.
#[derive(Debug, Default)]
pub(crate) struct SealedScrub {
    /// Manifest and registers were read.
    has_names: bool,
    /// The file that is being read, and its next block; files count up.
    file: u64,
    block: usize,
}

impl Shelf {
    /// Reads and checks the next bytes, about so many of them, and notes damage. How many it was; `None` when the round is over.
    pub(crate) fn scrub(&self, at: &mut SealedScrub, bytes: u64) -> Option<u64> {
        if !at.has_names {
            at.has_names = true;
            return Some(self.scrub_names());
        }
        let contents = self.contents();
        // Those that were made since have their turn in the next round, or are of this one: numbers only grow.
        let file = contents.files.iter().filter(|file| file.of.file >= at.file).min_by_key(|file| file.of.file)?;
        if file.of.file > at.file {
            (at.file, at.block) = (file.of.file, 0);
        }
        if at.block == 0 {
            // Its header and the two ends; while nothing changes, because a file that was merged just now is not missing.
            let _ = self.undisturbed(|folder| {
                let is_named = self.contents().manifest.files.contains(&file.of);
                let mut tell = |damage| self.note(damage);
                if is_named { folder.open_points(&file.of, &mut tell).map(|_| ()) } else { Ok(()) }
            });
        }
        let (read, next) = file.check_some(at.block, bytes, &mut |damage| self.note(damage)).unwrap_or_else(|_| {
            let reason = "a sealed file cannot be read";
            self.note(self.folder().damage(&points_name(at.file), 0, file.of.bytes, reason));
            (bytes, None)
        });
        match next {
            Some(next) => at.block = next,
            None => (at.file, at.block) = (at.file + 1, 0),
        }
        Some(read)
    }

    /// Reads both copies of the manifest and of the registers; how many bytes they have.
    fn scrub_names(&self) -> u64 {
        let read = std::cell::Cell::new(0);
        let mut tell = |damage| self.note(damage);
        let count = |bytes: &[u8]| read.set(read.get() + bytes.len() as u64);
        // What cannot be read, or is replaced just now, is read in the next round.
        let _ = self.undisturbed(|folder| {
            let decode = |bytes: &[u8]| {
                count(bytes);
                Manifest::decode(bytes).map(|_| ())
            };
            folder.both(MANIFEST, decode, &mut tell).map(|_| ())
        });
        for file in &self.contents().manifest.registers {
            let decode = |bytes: &[u8]| {
                count(bytes);
                Register::read(bytes, &mut |_| ())
            };
            let _ = self.folder().both(&register_name(*file), decode, &mut |damage| self.note(damage));
        }
        read.get()
    }
}
