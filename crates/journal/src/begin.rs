//! Where the journal begins: the file `begin`, so that oldest segments that were lost are told from those that were let go of.
//! This comment is the format's specification.
//!
//! Format: docs/formats/journal.md
//!
//! Layout, sizes in bytes, integers little-endian:
//!   magic          8   "HOLDBEG\x01"; the last byte is the version
//!   store         16   identity of the store
//!   begin          8   the log from here on is in segments that are there; at or behind where the log stood when the oldest began
//!   checksum       4   CRC32C of all the above
//!
//! It is replaced, durably, before the oldest segments are removed, so a crash between leaves segments that lie before it: they do
//! no harm. A store without it, or whose file is damaged, gets one when it is opened.
//!
//! May use: `base`. Must not know: what is needed of a journal.

use std::io;
use std::path::{Path, PathBuf};

use base::{Files, crc32c, read_whole, write_new_file};

use crate::bytes::Reader;
use crate::damage::{Damage, DamageKind};
use crate::error::{Error, Result};
use crate::header::SegmentHeader;
use crate::position::Position;
use crate::segment::file_name;

/// Name of the file in a journal's folder that says where the journal begins.
pub const FILE: &str = "begin";
const MAGIC: [u8; 7] = *b"HOLDBEG";
const VERSION: u8 = 1;
const BYTES: u64 = 36;

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    At(Position),
    Nothing,
    Damaged,
}

/// Reads the file in the folder of a journal that belongs to `store`.
pub(crate) fn read(files: &dyn Files, dir: &Path, store: u128) -> Result<Noted> {
    let path = dir.join(FILE);
    let bytes = match read_whole(files, &path, BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Noted::Nothing),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(Noted::Damaged),
        Err(error) => return Err(Error::io("reading", &path, error)),
    };
    match decode(&bytes) {
        Some(Ok((of, begin))) if of == store => Ok(Noted::At(begin)),
        Some(Err(version)) => {
            let reason = format!("it is of version {version}; this program reads version 1, use a newer one");
            Err(Error::foreign(&path, reason))
        }
        Some(Ok(_)) | None => Ok(Noted::Damaged),
    }
}

/// Replaces the file, durably.
pub(crate) fn write(files: &dyn Files, dir: &Path, store: u128, begin: Position) -> Result<()> {
    let path = dir.join(FILE);
    write_new_file(files, &path, &encode(store, begin)).map_err(|error| Error::io("writing", &path, error))
}

/// The first segment that is there.
pub(crate) struct First<'a> {
    pub(crate) path: &'a Path,
    pub(crate) base: Position,
    /// `None` when it is damaged.
    pub(crate) header: Option<&'a SegmentHeader>,
}

/// Where the journal is noted to begin. What lies between there and the first segment is missing, and is told. `usual` is the capacity of
/// segments, `end` where the last one ends.
pub(crate) fn look(
    (files, dir): (&dyn Files, &Path),
    store: u128,
    (first, usual, end): (Option<First<'_>>, u64, Position),
    told: &mut Vec<Damage>,
) -> Result<Option<Position>> {
    let begin = match read(files, dir, store)? {
        Noted::At(begin) if begin <= end => begin,
        Noted::Nothing => return Ok(None),
        Noted::At(_) | Noted::Damaged => {
            told.push(damage(dir));
            return Ok(None);
        }
    };
    match first {
        Some(First { path, header: Some(header), .. }) if header.previous_end > begin => {
            let before = path.with_file_name(file_name(header.previous_base));
            told.push(missing(before, begin, header.previous_end));
        }
        // It cannot say where the log stood, but that a whole segment would lie between.
        Some(First { base, header: None, .. }) if base.get().saturating_sub(begin.get()) >= usual => {
            told.push(missing(dir.to_owned(), begin, base));
        }
        _ => {}
    }
    Ok(Some(begin))
}

/// That it cannot be read.
pub(crate) fn damage(dir: &Path) -> Damage {
    let reason = "the note of where the journal begins is damaged; it is written anew";
    Damage { kind: DamageKind::Copy, path: dir.join(FILE), offset: 0, bytes: BYTES, position: Position::ZERO, reason }
}

/// That the log goes on only where a segment says that it left `path`, its predecessor, at `end`.
fn missing(path: PathBuf, begin: Position, end: Position) -> Damage {
    let (bytes, reason) = (end.get().saturating_sub(begin.get()), "the oldest segments are missing, up to this one");
    Damage { kind: DamageKind::Missing, path, offset: 0, bytes, position: begin, reason }
}

fn encode(store: u128, begin: Position) -> Vec<u8> {
    let mut to = Vec::new();
    to.extend_from_slice(&MAGIC);
    to.push(VERSION);
    to.extend_from_slice(&store.to_le_bytes());
    to.extend_from_slice(&begin.get().to_le_bytes());
    let sum = crc32c(&to);
    to.extend_from_slice(&sum.to_le_bytes());
    to
}

/// Store and position; `None` when it is damaged, the version if it is intact and not ours.
fn decode(bytes: &[u8]) -> Option<std::result::Result<(u128, Position), u8>> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    if crc32c(body) != u32::from_le_bytes(*sum) {
        return None;
    }
    let mut from = Reader(body);
    if from.array()? != MAGIC {
        return None;
    }
    let [version] = from.array()?;
    if version != VERSION {
        return Some(Err(version));
    }
    let noted = (from.u128()?, Position::new(from.u64()?));
    from.0.is_empty().then_some(Ok(noted))
}
