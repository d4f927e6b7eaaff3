//! Reading tables a block at a time.
//!
//! A block that was read is kept at hand for those to come, as it is: nothing in it is decoded (`block.rs`). Whoever goes
//! through everything reads many blocks at once instead, and keeps none: it would only drive out what is in use.
//!
//! Where a table's blocks are is said by blocks too, of its *index*: one, or in large tables one of parts that say it. They
//! are kept as all others are, in the same room, but for the top, which is small and stays with its table. So are the filters of
//! large tables' parts.
//!
//! May use: `base::Files`. Must not know: what lies above the tables.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{File, Files, read_exact_at};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::Reading;
use super::block::Block;
use super::filter::Filter;
use super::stored::{Place, restore};
use super::table::{IndexKind, TableInfo, Written, path_of};
use crate::error::{Error, Result, is_damage};

/// Table files held open at the most.
const OPEN_FILES_MAX: usize = 256;
/// Bytes that are read at once by whoever goes through everything: of each run of each partition at the same time.
const AHEAD_BYTES: u64 = 32 << 10;
/// Blocks that the cache makes room for beforehand; it grows.
const BLOCKS_EXPECTED: usize = 1024;
/// How many times as much its own room is as what the whole may be larger or smaller than it should be.
const FIT_PARTS: u64 = 16;
/// Bytes that a block costs beside what is in it.
const OVERHEAD_BYTES: usize = 96;

/// What was read of all ledgers' tables lately.
pub(super) struct Blocks {
    files: Arc<dyn Files>,
    known: Cache<(TableId, u64), Known, ByBytes>,
    /// Bytes that are kept at the most, without what is lent.
    bytes_max: u64,
    open: Cache<TableId, Arc<dyn File>>,
    /// How many tables there were.
    tables: AtomicU64,
}

/// Tells tables apart while the process runs, also such of the same number.
type TableId = u64;

/// What lies at a place.
#[derive(Clone)]
enum Known {
    Block(Block),
    Filter(Filter),
}

#[derive(Clone)]
struct ByBytes;

impl<K> Weighter<K, Known> for ByBytes {
    fn weight(&self, _: &K, known: &Known) -> u64 {
        let bytes = match known {
            Known::Block(block) => block.bytes(),
            Known::Filter(filter) => filter.bytes(),
        };
        (bytes + OVERHEAD_BYTES) as u64
    }
}

/// A table that may be read. The last to let go of one that was replaced removes its file.
pub(super) struct Table {
    pub(super) info: TableInfo,
    id: TableId,
    path: PathBuf,
    blocks: Arc<Blocks>,
    /// The top of its index, once somebody has read it.
    top: OnceLock<Block>,
    /// The filter of the whole, likewise.
    filter: OnceLock<Filter>,
    is_replaced: AtomicBool,
}

/// Where somebody who goes through a table stands in its index.
pub(super) struct Way {
    /// The parts of the index, if it has parts, and the number of the one that comes next.
    parts: Option<(Block, usize)>,
    /// The part that it is in, and the number of the block that comes next.
    places: Block,
    next: usize,
}

/// Raw bytes of the blocks to come.
#[derive(Default)]
pub(super) struct Ahead {
    raw: Vec<u8>,
    offset: u64,
}

impl Blocks {
    /// Keeps about so many bytes of blocks.
    pub(super) fn new(files: Arc<dyn Files>, bytes: u64) -> Self {
        Self {
            files,
            known: Cache::with_weighter(BLOCKS_EXPECTED, bytes, ByBytes),
            bytes_max: bytes,
            open: Cache::new(OPEN_FILES_MAX),
            tables: AtomicU64::new(0),
        }
    }

    pub(super) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// Keeps so many bytes more than it has room for itself, as others do not need them.
    pub(super) fn borrow(&self, bytes: u64) {
        let wanted = self.bytes_max.saturating_add(bytes);
        if wanted.abs_diff(self.known.capacity()) >= self.bytes_max / FIT_PARTS {
            self.known.set_capacity(wanted);
        }
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.known.weight()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Nobody asks for it by this number any more, and an open file keeps its space.
        self.blocks.open.remove(&self.id);
        if self.is_replaced.load(Ordering::Acquire) {
            // What cannot be removed is when the ledger is opened next.
            let _ = self.blocks.files.remove(&self.path);
        }
    }
}

impl Table {
    pub(super) fn new(folder: &Path, info: TableInfo, blocks: &Arc<Blocks>) -> Self {
        Self {
            id: blocks.tables.fetch_add(1, Ordering::Relaxed),
            path: path_of(folder, info.number),
            info,
            blocks: Arc::clone(blocks),
            top: OnceLock::new(),
            filter: OnceLock::new(),
            is_replaced: AtomicBool::new(false),
        }
    }

    /// Whether its file has this name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.path.file_name().is_some_and(|own| own == name)
    }

    /// One that was just written, with what was written of its filter.
    pub(super) fn written(folder: &Path, written: Written, blocks: &Arc<Blocks>) -> Self {
        let table = Self::new(folder, written.info, blocks);
        if let Some(filter) = written.filter.and_then(|filter| Filter::of(Arc::from(filter))) {
            let _ = table.filter.set(filter);
        }
        table
    }

    /// Notes that its file goes with the last who reads it.
    pub(super) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Release);
    }

    /// How long its file is.
    pub(super) fn bytes(&self) -> std::io::Result<u64> {
        self.file()?.len()
    }

    fn file(&self) -> std::io::Result<Arc<dyn File>> {
        if let Some(file) = self.blocks.open.get(&self.id) {
            return Ok(file);
        }
        // When no more may be open, those of other tables are the first to go.
        let opened = self.blocks.files.open_to_read(&self.path).or_else(|error| {
            self.blocks.open.clear();
            if is_damage(&error) { Err(error) } else { self.blocks.files.open_to_read(&self.path) }
        });
        let file = opened?;
        self.blocks.open.insert(self.id, Arc::clone(&file));
        Ok(file)
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let read = self.file().and_then(|file| read_exact_at(&*file, to, offset));
        read.map_err(|error| Error::of_ledger(&self.path, &error))
    }

    /// What is said of a block that is not what was written.
    fn damaged(&self, place: Place) -> Error {
        let reason = format!("{} bytes at {} are not what was written", place.bytes, place.offset);
        Error::Ledger { path: self.path.display().to_string(), reason }
    }

    fn restored<T>(&self, raw: &[u8], place: Place, of: impl FnOnce(Arc<[u8]>) -> Option<T>) -> Result<T> {
        restore(raw, place).and_then(of).ok_or_else(|| self.damaged(place))
    }

    fn fetched<T>(&self, place: Place, of: impl FnOnce(Arc<[u8]>) -> Option<T>) -> Result<T> {
        if place.end().is_none_or(|end| end > self.info.bytes) {
            return Err(self.damaged(place));
        }
        let mut raw = vec![0; usize::try_from(place.bytes).unwrap_or(usize::MAX)];
        self.read(place.offset, &mut raw)?;
        self.restored(&raw, place, of)
    }

    /// The top of its index.
    fn top(&self) -> Result<&Block> {
        if let Some(top) = self.top.get() {
            return Ok(top);
        }
        let top = self.fetched(self.info.top, Block::of)?;
        // Somebody else may have come first, with the same.
        Ok(self.top.get_or_init(|| top))
    }

    fn known(&self, place: Place, reading: Reading) -> Option<Known> {
        let id = (self.id, place.offset);
        match reading {
            Reading::Query => self.blocks.known.get(&id),
            Reading::Sweep => self.blocks.known.peek(&id),
        }
    }

    /// A block of the index.
    fn places(&self, place: Place, reading: Reading) -> Result<Block> {
        if let Some(Known::Block(places)) = self.known(place, reading) {
            return Ok(places);
        }
        let places = self.fetched(place, Block::of)?;
        if reading == Reading::Query {
            self.blocks.known.insert((self.id, place.offset), Known::Block(places.clone()));
        }
        Ok(places)
    }

    /// The place that an entry of a block of the index tells.
    fn place(&self, places: &Block, number: usize) -> Result<Place> {
        let place = Place::decode(places.value(places.spot(number)));
        place.map(|(place, _)| place).ok_or_else(|| self.damaged(self.info.top))
    }

    /// Whether its filter of the whole is at hand and says that a key is not there.
    pub(super) fn has_not(&self, hash: u64) -> bool {
        self.filter.get().is_some_and(|filter| !filter.may_have(hash))
    }

    /// What its filter of the whole says of a key; true when it has none.
    pub(super) fn may_have(&self, hash: u64) -> Result<bool> {
        let Some(place) = self.info.filter else { return Ok(true) };
        let filter = match self.filter.get() {
            Some(filter) => filter,
            None => {
                let filter = self.fetched(place, Filter::of)?;
                self.filter.get_or_init(|| filter)
            }
        };
        Ok(filter.may_have(hash))
    }

    /// What the filter of a part says of a key.
    fn part_may_have(&self, places: &Block, part: usize, hash: u64) -> Result<bool> {
        let after = Place::decode(places.value(places.spot(part))).and_then(|(_, rest)| Place::decode(rest));
        let Some((place, _)) = after else { return Ok(true) };
        let filter = match self.known(place, Reading::Query) {
            Some(Known::Filter(filter)) => filter,
            _ => {
                let filter = self.fetched(place, Filter::of)?;
                self.blocks.known.insert((self.id, place.offset), Known::Filter(filter.clone()));
                filter
            }
        };
        Ok(filter.may_have(hash))
    }

    /// Where a key is, if it is here: the block's place. A filter of the whole was asked already.
    fn place_of(&self, key: &[u8], hash: u64) -> Result<Option<Place>> {
        let top = self.top()?;
        let number = top.before(key);
        if number >= top.len() {
            return Ok(None);
        }
        if self.info.index == IndexKind::Blocks {
            return self.place(top, number).map(Some);
        }
        if !self.part_may_have(top, number, hash)? {
            return Ok(None);
        }
        let part = self.places(self.place(top, number)?, Reading::Query)?;
        let number = part.before(key);
        if number < part.len() { self.place(&part, number).map(Some) } else { Ok(None) }
    }

    /// The block that `key` is in, if it is here, its number there, and whether the block was at hand. A sweep keeps what says where
    /// blocks are, as it will ask for that again, and not the blocks.
    pub(super) fn find(&self, key: &[u8], hash: u64, reading: Reading) -> Result<Option<(Block, usize, bool)>> {
        let Some(place) = self.place_of(key, hash)? else { return Ok(None) };
        let (block, was_at_hand) = match self.known(place, reading) {
            Some(Known::Block(block)) => (block, true),
            _ => {
                let block = self.fetched(place, Block::of)?;
                if reading == Reading::Query {
                    self.blocks.known.insert((self.id, place.offset), Known::Block(block.clone()));
                }
                (block, false)
            }
        };
        let number = block.find(key);
        Ok(number.map(|number| (block, number, was_at_hand)))
    }

    /// The way through from the first block that may have keys at or behind `start`, or from the first.
    pub(super) fn way(&self, start: Option<&[u8]>, reading: Reading) -> Result<Way> {
        let number = |places: &Block| start.map_or(0, |key| places.before(key));
        let top = self.top()?;
        let first = number(top);
        if self.info.index == IndexKind::Blocks || first >= top.len() {
            return Ok(Way { parts: None, next: first, places: top.clone() });
        }
        let places = self.places(self.place(top, first)?, reading)?;
        Ok(Way { next: number(&places), places, parts: Some((top.clone(), first + 1)) })
    }

    /// Sees to it that the next block on the way is in the part that the way is in; false behind the last.
    fn go_on(&self, way: &mut Way, reading: Reading) -> Result<bool> {
        while way.next >= way.places.len() {
            let Some((parts, next)) = &mut way.parts else { return Ok(false) };
            if *next >= parts.len() {
                return Ok(false);
            }
            (way.places, way.next) = (self.places(self.place(parts, *next)?, reading)?, 0);
            *next += 1;
        }
        Ok(true)
    }

    /// The next block on the way; `None` behind the last.
    pub(super) fn next(&self, way: &mut Way, reading: Reading, ahead: &mut Ahead) -> Result<Option<Block>> {
        if !self.go_on(way, reading)? {
            return Ok(None);
        }
        let place = self.place(&way.places, way.next)?;
        let number = way.next;
        way.next += 1;
        if let Some(Known::Block(block)) = self.known(place, reading) {
            return Ok(Some(block));
        }
        if reading == Reading::Query {
            let block = self.fetched(place, Block::of)?;
            self.blocks.known.insert((self.id, place.offset), Known::Block(block.clone()));
            return Ok(Some(block));
        }
        if ahead.block(place).is_none() {
            let bytes = self.stretch(&way.places, number)?;
            ahead.raw.clear();
            ahead.raw.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
            ahead.offset = place.offset;
            self.read(place.offset, &mut ahead.raw)?;
        }
        let raw = ahead.block(place).ok_or_else(|| self.damaged(place))?;
        self.restored(raw, place, Block::of).map(Some)
    }

    /// Bytes of the blocks from this one on that may be read at once: it, and those that follow while they are near.
    fn stretch(&self, places: &Block, number: usize) -> Result<u64> {
        let first = self.place(places, number)?;
        let mut bytes = u64::from(first.bytes);
        for number in number + 1..places.len() {
            let place = self.place(places, number)?;
            let with_it = bytes + u64::from(place.bytes);
            if place.offset != first.offset + bytes || with_it > AHEAD_BYTES {
                break;
            }
            bytes = with_it;
        }
        match first.offset.checked_add(bytes) {
            Some(end) if end <= self.info.bytes => Ok(bytes),
            _ => Err(self.damaged(first)),
        }
    }
}

impl Ahead {
    fn block(&self, place: Place) -> Option<&[u8]> {
        let from = usize::try_from(place.offset.checked_sub(self.offset)?).ok()?;
        self.raw.get(from..from.checked_add(usize::try_from(place.bytes).ok()?)?)
    }

    /// Forgets what was read: what comes next is another table's.
    pub(super) fn clear(&mut self) {
        self.raw.clear();
    }
}
