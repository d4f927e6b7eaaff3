//! Writing a table: a file of entries in the order of their keys, which never changes. What is known of it beside is in the list of
//! tables (`list.rs`).
//!
//! This is the specification; sizes in bytes:
//!
//!   file     magic 8, "HFTABLE" and the version 1 | stored block*       (`stored.rs`)
//!   block    of entries (`block.rs`), of the index, or a filter (`filter.rs`)
//!   index    of one block, the *top*: for each block of entries a separator and its place. Or in parts, from 128 blocks on and where each has
//!            a filter: then such blocks are the parts, and the top has for each a separator and its place, and behind that the place of the part's own filter if there is one.
//!
//! A table of the upper levels has one filter, which stays in memory; one of the lower levels, of which there may be any number, has one
//! for each part of its index.
//!
//! May use: `base::Files`. Must not know: other tables, who reads it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{File, Files};

use super::block::{Builder, separator};
use super::filter::{filter_of, hash_of};
use super::stored::{PLACE_BYTES, Place, store};
use crate::compression::Compression;

/// What a table's file begins with.
const MAGIC: [u8; 8] = *b"HFTABLE\x01";
/// Bytes of entries at which a block ends.
const BLOCK_BYTES: usize = 4 << 10;
/// Blocks at which a part of an index ends. Those of a table that has no more are told by its top alone.
const PART_BLOCKS: usize = 128;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// What is known of a table without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableInfo {
    /// Names its file. No number is used twice in a folder.
    pub(super) number: u64,
    /// Length of the file.
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// Of them, those that say that a key was removed.
    pub(super) removals: u64,
    /// How its blocks were to be stored.
    pub(super) codec: Compression,
    pub(super) top: Place,
    pub(super) index: IndexKind,
    /// The filter of the whole, unless its parts have their own.
    pub(super) filter: Option<Place>,
    /// The first key and the last.
    pub(super) least: Vec<u8>,
    pub(super) greatest: Vec<u8>,
}

/// What the top of an index tells the places of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexKind {
    Blocks,
    Parts,
}

/// A table that is there, and what of it is to stay in memory.
pub(super) struct Written {
    pub(super) info: TableInfo,
    /// The filter of the whole.
    pub(super) filter: Option<Vec<u8>>,
}

/// The file of a table in its folder.
pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:010}.table"))
}

/// How a table is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) codec: Compression,
    /// One filter of all keys, which stays in memory.
    pub(super) has_whole_filter: bool,
}

/// A table that is being written. Dropped before [`TableWriter::finish`] it is gone.
pub(super) struct TableWriter {
    files: Arc<dyn Files>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    number: u64,
    style: Style,
    block: Builder,
    /// Of the part of the index that is being filled.
    places: Builder,
    parts: Builder,
    /// Of all keys, or of those of the part.
    hashes: Vec<u64>,
    entries: u64,
    removals: u64,
    least: Vec<u8>,
    greatest: Vec<u8>,
    /// Not yet written; it begins at `offset`.
    buffer: Vec<u8>,
    offset: u64,
    /// A block is made here before it is stored.
    scratch: Vec<u8>,
}

impl TableWriter {
    /// Begins a table that must not be there yet.
    pub(super) fn create(files: &Arc<dyn Files>, folder: &Path, number: u64, style: Style) -> io::Result<Self> {
        let path = path_of(folder, number);
        let file = Some(files.create(&path)?);
        Ok(Self {
            files: Arc::clone(files),
            path,
            file,
            number,
            style,
            block: Builder::default(),
            places: Builder::default(),
            parts: Builder::default(),
            hashes: Vec::new(),
            entries: 0,
            removals: 0,
            least: Vec::new(),
            greatest: Vec::new(),
            buffer: MAGIC.to_vec(),
            offset: 0,
            scratch: Vec::new(),
        })
    }

    /// Bytes that were stored.
    pub(super) fn bytes(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }

    /// Adds an entry behind the others; no value when the key was removed.
    pub(super) fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        // What fills a block by itself does not burden those who read its neighbours.
        let is_large = key.len() + value.map_or(0, <[u8]>::len) >= BLOCK_BYTES;
        if self.block.bytes() >= BLOCK_BYTES || is_large && !self.block.is_empty() {
            self.end_block(Some(key))?;
        }
        if self.entries == 0 {
            self.least = key.to_vec();
        }
        self.greatest.clear();
        self.greatest.extend_from_slice(key);
        self.hashes.push(hash_of(key));
        self.block.add(key, value);
        self.entries += 1;
        self.removals += u64::from(value.is_none());
        Ok(())
    }

    fn end_block(&mut self, next: Option<&[u8]>) -> io::Result<()> {
        self.block.finish(&mut self.scratch);
        let place = self.put(self.style.codec)?;
        let separator = next.map_or(&*self.greatest, |next| separator(&self.greatest, next));
        self.places.add(separator, Some(&place.encode()));
        if self.places.len() >= PART_BLOCKS {
            let separator = separator.to_vec();
            self.end_part(&separator)?;
        }
        Ok(())
    }

    fn end_part(&mut self, separator: &[u8]) -> io::Result<()> {
        self.places.finish(&mut self.scratch);
        let mut places = [0; 2 * PLACE_BYTES];
        let (of_part, of_filter) = places.split_at_mut(PLACE_BYTES);
        of_part.copy_from_slice(&self.put(self.style.codec)?.encode());
        if self.style.has_whole_filter {
            self.parts.add(separator, Some(of_part));
        } else {
            of_filter.copy_from_slice(&self.put_filter()?.encode());
            self.parts.add(separator, Some(&places));
        }
        Ok(())
    }

    fn put_filter(&mut self) -> io::Result<Place> {
        self.scratch = filter_of(&self.hashes);
        self.hashes.clear();
        self.put(Compression::None)
    }

    /// Stores what is in `scratch`.
    fn put(&mut self, codec: Compression) -> io::Result<Place> {
        let place = store(&self.scratch, codec, self.bytes(), &mut self.buffer);
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(place)
    }

    fn write(&mut self) -> io::Result<()> {
        let file = self.file.as_ref().expect("it is there until it is finished");
        file.write_at(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the table and syncs it; nothing when it has no entries, and then there is none.
    pub(super) fn finish(mut self) -> io::Result<Option<Written>> {
        if self.entries == 0 {
            return Ok(None);
        }
        self.end_block(None)?;
        let index = match self.parts.is_empty() && self.style.has_whole_filter {
            true => IndexKind::Blocks,
            false => IndexKind::Parts,
        };
        match index {
            IndexKind::Blocks => self.places.finish(&mut self.scratch),
            IndexKind::Parts => {
                if !self.places.is_empty() {
                    let greatest = self.greatest.clone();
                    self.end_part(&greatest)?;
                }
                self.parts.finish(&mut self.scratch);
            }
        }
        let top = self.put(self.style.codec)?;
        let filter = if self.style.has_whole_filter { Some(self.put_filter()?) } else { None };
        let kept = filter.is_some().then(|| std::mem::take(&mut self.scratch));
        self.write()?;
        let file = self.file.take().expect("it is there until it is finished");
        // If it cannot be synced it may as well not be there: nobody has heard of it.
        file.sync().inspect_err(|_| drop(self.files.remove(&self.path)))?;
        let info = TableInfo {
            number: self.number,
            bytes: self.offset,
            entries: self.entries,
            removals: self.removals,
            codec: self.style.codec,
            top,
            index,
            filter,
            least: std::mem::take(&mut self.least),
            greatest: std::mem::take(&mut self.greatest),
        };
        Ok(Some(Written { info, filter: kept }))
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // A full disk must not keep the half of it. What cannot be removed is when the ledger is opened next.
            let _ = self.files.remove(&self.path);
        }
    }
}
