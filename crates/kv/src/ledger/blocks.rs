//! Reading the tree's tables a block at a time: unpacked for ranges, as they are stored for look-ups (`lookup.rs`).
//!
//! The tree's own iterators decode a block anew for each range, allocate each key and look the range's ends up in each
//! block: measured, that was most of what a range of a thousand entries cost. Here a block is decoded once into one stretch
//! of memory, where entries are found by number, and is kept at hand for the ranges to come. Whoever goes through
//! everything reads many blocks at once instead, and keeps none: it would only drive out what is in use.
//!
//! Where a table's blocks are is said by blocks too, of its *index*: one, or in large tables one of parts that say it. They
//! are unpacked and kept as all others are, in the same room. So are the parts of large tables' filters.
//!
//! May use: `lsm-tree`, `std::fs` (the exception that `lsm.rs` has). Must not know: what lies above the tables.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use lsm_tree::table::block::BlockType;
use lsm_tree::table::filter::block::FilterBlock;
use lsm_tree::table::util::SliceIndexes;
use lsm_tree::table::{Block, BlockHandle, BlockOffset, DataBlock, IndexBlock};
use lsm_tree::{CompressionType, DescriptorTable, Error, GlobalTableId, Result, Table};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::Reading;

/// Bytes that are read at once by whoever goes through everything: of each run of each partition at the same time.
const AHEAD_BYTES: u64 = 32 << 10;
/// Blocks that the cache makes room for beforehand; it grows.
const BLOCKS_EXPECTED: usize = 1024;
/// Bytes of the top of a table's index, as it is stored, up to which it stays with its table.
const TOP_BYTES_MAX: u32 = 8 << 10;
/// How many times as much its own room is as what the whole may be larger or smaller than it should be.
const FIT_PARTS: u64 = 16;
/// Bytes that a block costs beside its entries.
const OVERHEAD_BYTES: usize = 96;

/// What was read of all ledgers' tables lately.
pub(super) struct Blocks {
    pub(super) known: Cache<(GlobalTableId, u64), Known, ByBytes>,
    /// Bytes that are kept at the most, without what is lent.
    bytes_max: u64,
    files: Arc<DescriptorTable>,
}

/// A block.
#[derive(Clone)]
pub(super) enum Known {
    /// Of entries, unpacked.
    Entries(Arc<Unpacked>),
    /// Of entries, as it is stored but for its compression.
    Stored(Arc<DataBlock>),
    /// Of an index, unpacked.
    Places(Arc<Places>),
    /// A part of a filter.
    Filter(Arc<FilterBlock>),
}

#[derive(Clone)]
pub(super) struct ByBytes;

impl<K> Weighter<K, Known> for ByBytes {
    fn weight(&self, _: &K, known: &Known) -> u64 {
        let bytes = match known {
            Known::Entries(block) => block.bytes.len() + block.spots.len() * size_of::<Spot>(),
            Known::Stored(block) => block.inner.size(),
            Known::Filter(filter) => filter.size(),
            Known::Places(places) => places.keys.len() + places.blocks.len() * size_of::<Place>(),
        };
        (bytes + OVERHEAD_BYTES) as u64
    }
}

/// A table, and what its blocks are known by.
pub(super) struct Shelved {
    pub(super) table: Table,
    pub(super) id: GlobalTableId,
    /// The top of its index, once a query has read it, if it is small: that of a small table, or of a large one whose index has
    /// parts. The cache would be asked for it by every range.
    top: OnceLock<Arc<Places>>,
    /// Where the parts of its filter are, if that has parts: a few kilobytes, once a look-up has read it.
    pub(super) filter_parts: OnceLock<Arc<Places>>,
}

/// A block of a table's index: where other blocks are, and the greatest key of each.
#[derive(Default)]
pub(super) struct Places {
    keys: Vec<u8>,
    pub(super) blocks: Vec<Place>,
}

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    bytes: u32,
    /// Where the block's greatest key ends in `keys`; it begins where that of the block before ends.
    key_end: u32,
}

/// Where somebody who goes through a table stands in its index.
pub(super) struct Way {
    /// The parts of the index, if it has parts, and the number of the one that comes next.
    parts: Option<(Arc<Places>, usize)>,
    /// The part that it is in, and the number of the block that comes next.
    places: Arc<Places>,
    next: usize,
}

/// A block's entries, one behind the other, of each key the newest.
#[derive(Default)]
pub(super) struct Unpacked {
    bytes: Vec<u8>,
    spots: Vec<Spot>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Spot {
    start: u32,
    key_end: u32,
    value_end: u32,
    pub(super) is_removal: bool,
}

/// Raw bytes of the blocks to come.
#[derive(Default)]
pub(super) struct Ahead {
    raw: Vec<u8>,
    offset: u64,
}

impl Blocks {
    /// Keeps about so many bytes of blocks.
    pub(super) fn new(bytes: u64, files: Arc<DescriptorTable>) -> Self {
        Self { known: Cache::with_weighter(BLOCKS_EXPECTED, bytes, ByBytes), bytes_max: bytes, files }
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

    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "the ledger is derived, and its tree opens files itself"
    )]
    pub(super) fn file(&self, of: &Shelved) -> Result<Arc<std::fs::File>> {
        if let Some(file) = self.files.access_for_table(&of.id) {
            return Ok(file);
        }
        let file = Arc::new(std::fs::File::open(&*of.table.path)?);
        self.files.insert_for_table(of.id, Arc::clone(&file));
        Ok(file)
    }

    fn read(&self, of: &Shelved, offset: u64, to: &mut [u8]) -> Result<()> {
        Ok(self.file(of)?.read_exact_at(to, offset)?)
    }

    pub(super) fn read_places(&self, of: &Shelved, at: &BlockHandle) -> Result<Arc<Places>> {
        let mut raw = vec![0; to_usize(at.size())];
        self.read(of, *at.offset(), &mut raw)?;
        let block = whole_block(&raw, of.table.metadata.index_block_compression)?;
        expect_type(&block, BlockType::Index)?;
        Ok(Arc::new(Places::of(&IndexBlock::new(block)).ok_or(Error::Unrecoverable)?))
    }

    /// The block of the index that lies at a place.
    fn places(&self, of: &Shelved, at: &BlockHandle, reading: Reading) -> Result<Arc<Places>> {
        let id = (of.id, *at.offset());
        if let Some(Known::Places(places)) = self.known.get(&id) {
            return Ok(places);
        }
        let places = self.read_places(of, at)?;
        if reading == Reading::Query {
            self.known.insert(id, Known::Places(Arc::clone(&places)));
        }
        Ok(places)
    }

    /// The top of a table's index.
    fn top(&self, of: &Shelved, reading: Reading) -> Result<Arc<Places>> {
        if let Some(top) = of.top.get() {
            return Ok(Arc::clone(top));
        }
        let at = &of.table.regions.tli;
        if at.size() > TOP_BYTES_MAX {
            return self.places(of, at, reading);
        }
        let top = self.read_places(of, at)?;
        if reading == Reading::Query {
            // Somebody else may have come first, with the same.
            let _ = of.top.set(Arc::clone(&top));
        }
        Ok(top)
    }

    /// The way through a table from the first block that may have keys at or behind `start`, or from the first.
    pub(super) fn way(&self, of: &Shelved, start: Option<&[u8]>, reading: Reading) -> Result<Way> {
        let number = |places: &Places| start.map_or(0, |key| places.first_with(key));
        let top = self.top(of, reading)?;
        if of.table.regions.index.is_none() {
            return Ok(Way { parts: None, next: number(&top), places: top });
        }
        let part = number(&top);
        let places = match top.blocks.get(part) {
            Some(place) => self.places(of, &place.handle(), reading)?,
            None => Arc::default(),
        };
        Ok(Way { next: number(&places), places, parts: Some((top, part + 1)) })
    }

    /// The place of the block that comes next on the way; `None` behind the last.
    pub(super) fn next_place(&self, of: &Shelved, way: &mut Way, reading: Reading) -> Result<Option<Place>> {
        loop {
            if let Some(place) = way.places.blocks.get(way.next) {
                return Ok(Some(*place));
            }
            let Some((parts, next)) = &mut way.parts else { return Ok(None) };
            let Some(part) = parts.blocks.get(*next) else { return Ok(None) };
            (way.places, way.next) = (self.places(of, &part.handle(), reading)?, 0);
            *next += 1;
        }
    }

    /// The next block on the way, unpacked; `None` behind the last.
    pub(super) fn next(
        &self,
        of: &Shelved,
        way: &mut Way,
        reading: Reading,
        ahead: &mut Ahead,
    ) -> Result<Option<Arc<Unpacked>>> {
        let Some(place) = self.next_place(of, way, reading)? else { return Ok(None) };
        let number = way.next;
        way.next += 1;
        let id = (of.id, place.offset);
        let block = match self.known.get(&id) {
            Some(Known::Entries(block)) => return Ok(Some(block)),
            Some(Known::Stored(block)) => Unpacked::of(&block),
            _ => {
                let raw = match ahead.block(&place) {
                    Some(raw) => raw,
                    None => {
                        let bytes =
                            if reading == Reading::Sweep { way.places.stretch(number) } else { u64::from(place.bytes) };
                        ahead.raw.clear();
                        ahead.raw.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
                        ahead.offset = place.offset;
                        self.read(of, place.offset, &mut ahead.raw)?;
                        ahead.block(&place).ok_or(Error::Unrecoverable)?
                    }
                };
                let block = whole_block(raw, of.table.metadata.data_block_compression)?;
                expect_type(&block, BlockType::Data)?;
                Unpacked::of(&DataBlock::new(block))
            }
        };
        let block = Arc::new(block.ok_or(Error::Unrecoverable)?);
        if reading == Reading::Query {
            self.known.insert(id, Known::Entries(Arc::clone(&block)));
        }
        Ok(Some(block))
    }
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The block that fills these bytes. One that is shorter is not the block that was asked for, however intact it is.
fn whole_block(raw: &[u8], compression: CompressionType) -> Result<Block> {
    let mut from = raw;
    let block = Block::from_reader(&mut from, compression)?;
    if from.is_empty() { Ok(block) } else { Err(Error::Unrecoverable) }
}

pub(super) fn expect_type(block: &Block, wanted: BlockType) -> Result<()> {
    let found = block.header.block_type;
    if found == wanted { Ok(()) } else { Err(Error::InvalidTag(("BlockType", found.into()))) }
}

fn within<'a>(bytes: &'a [u8], indexes: &SliceIndexes) -> &'a [u8] {
    bytes.get(indexes.0..indexes.1).unwrap_or_default()
}

impl Shelved {
    /// A table of the tree with this number.
    pub(super) fn new(table: Table, tree: lsm_tree::TreeId) -> Self {
        let id = (tree, table.id()).into();
        Self { table, id, top: OnceLock::new(), filter_parts: OnceLock::new() }
    }

    pub(super) fn least(&self) -> &[u8] {
        self.table.metadata.key_range.min()
    }

    pub(super) fn greatest(&self) -> &[u8] {
        self.table.metadata.key_range.max()
    }
}

impl Place {
    pub(super) fn handle(self) -> BlockHandle {
        BlockHandle::new(BlockOffset(self.offset), self.bytes)
    }
}

impl Places {
    /// Nothing when the block is larger than any that the tree writes.
    fn of(block: &IndexBlock) -> Option<Self> {
        let from: &[u8] = block.as_slice();
        let mut places = Self::default();
        for item in block.iter() {
            if let Some(prefix) = &item.prefix {
                places.keys.extend_from_slice(within(from, prefix));
            }
            places.keys.extend_from_slice(within(from, &item.end_key));
            let key_end = u32::try_from(places.keys.len()).ok()?;
            places.blocks.push(Place { offset: *item.offset, bytes: item.size, key_end });
        }
        places.keys.shrink_to_fit();
        places.blocks.shrink_to_fit();
        Some(places)
    }

    fn greatest(&self, number: usize) -> &[u8] {
        let end = |number: usize| self.blocks.get(number).map_or(0, |block| to_usize(block.key_end));
        self.keys.get(number.checked_sub(1).map_or(0, end)..end(number)).unwrap_or_default()
    }

    pub(super) fn first_with(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.blocks.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.greatest(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Bytes of the blocks from this one on that may be read at once.
    fn stretch(&self, number: usize) -> u64 {
        let mut bytes = 0;
        let begin = self.blocks.get(number).map_or(0, |block| block.offset);
        for block in self.blocks.iter().skip(number) {
            let end = block.offset.saturating_add(u64::from(block.bytes)).saturating_sub(begin);
            if block.offset != begin + bytes || (bytes > 0 && end > AHEAD_BYTES) {
                break;
            }
            bytes = end;
        }
        bytes
    }
}

impl Ahead {
    fn block(&self, place: &Place) -> Option<&[u8]> {
        let from = usize::try_from(place.offset.checked_sub(self.offset)?).ok()?;
        self.raw.get(from..from.checked_add(to_usize(place.bytes))?)
    }

    /// Forgets what was read: what comes next is another table's.
    pub(super) fn clear(&mut self) {
        self.raw.clear();
    }
}

impl Unpacked {
    /// Nothing when the block is larger than any that the tree writes.
    fn of(block: &DataBlock) -> Option<Self> {
        let from: &[u8] = block.as_slice();
        // Keys are stored without what they share with others of the block: twice the bytes is a good guess.
        let (mut bytes, mut spots) = (Vec::with_capacity(from.len() * 2), Vec::with_capacity(from.len() / 40));
        let place = |bytes: &Vec<u8>| u32::try_from(bytes.len()).ok();
        for item in block.iter() {
            let start = place(&bytes)?;
            if let Some(prefix) = &item.prefix {
                bytes.extend_from_slice(within(from, prefix));
            }
            bytes.extend_from_slice(within(from, &item.key));
            let key_end = place(&bytes)?;
            let before = spots.last().map(|spot: &Spot| to_usize(spot.start)..to_usize(spot.key_end));
            if before.is_some_and(|before| bytes.get(before) == bytes.get(to_usize(start)..)) {
                // What the key was before, which was kept for views that are gone.
                bytes.truncate(to_usize(start));
                continue;
            }
            if let Some(value) = &item.value {
                bytes.extend_from_slice(within(from, value));
            }
            let is_removal = item.value_type.is_tombstone();
            spots.push(Spot { start, key_end, value_end: place(&bytes)?, is_removal });
        }
        bytes.shrink_to_fit();
        Some(Self { bytes, spots })
    }

    pub(super) fn len(&self) -> usize {
        self.spots.len()
    }

    fn stretch(&self, from: u32, to: u32) -> &[u8] {
        self.bytes.get(to_usize(from)..to_usize(to)).unwrap_or_default()
    }

    pub(super) fn first(&self) -> Option<&[u8]> {
        self.spots.first().map(|spot| self.stretch(spot.start, spot.key_end))
    }

    pub(super) fn last(&self) -> Option<&[u8]> {
        self.spots.last().map(|spot| self.stretch(spot.start, spot.key_end))
    }

    /// Where an entry lies.
    pub(super) fn spot(&self, number: usize) -> Spot {
        self.spots.get(number).copied().unwrap_or_default()
    }

    pub(super) fn key(&self, spot: Spot) -> &[u8] {
        self.stretch(spot.start, spot.key_end)
    }

    /// Key and value; no value when the key was removed.
    pub(super) fn entry(&self, spot: Spot) -> (&[u8], Option<&[u8]>) {
        let value = (!spot.is_removal).then(|| self.stretch(spot.key_end, spot.value_end));
        (self.key(spot), value)
    }

    /// How many keys come before what `is_before` tells.
    pub(super) fn before(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        self.spots.partition_point(|spot| is_before(self.stretch(spot.start, spot.key_end)))
    }
}
