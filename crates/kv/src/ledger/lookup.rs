//! Looking a key up in the tree's tables.
//!
//! The tree's own look-up has a cache of its own, which ranges have no use for, looks for the block through iterators that
//! it allocates, and through all of the index's part, and says nothing of whether it had to read. Measured, a look-up whose block is
//! not at hand took half as long again.
//!
//! May use: `blocks.rs`, `lsm-tree`. Must not know: what lies above the tables.

use std::sync::Arc;

use lsm_tree::table::block::BlockType;
use lsm_tree::table::filter::block::FilterBlock;
use lsm_tree::table::{Block, BlockHandle, DataBlock};
use lsm_tree::{CompressionType, Result, SeqNo};

use super::blocks::{Blocks, Known, Places, Shelved, Unpacked, expect_type};
use super::{Hit, Reading, Slice};

/// Above all numbers that are in use.
const NEWEST: SeqNo = SeqNo::MAX;

/// What a table says of a key.
pub(super) struct Said {
    /// `None` when it was removed.
    pub(super) value: Option<Slice>,
    pub(super) was_at_hand: bool,
}

impl Said {
    pub(super) fn found(self) -> Option<Hit> {
        let was_at_hand = self.was_at_hand;
        self.value.map(|value| Hit { value, was_at_hand })
    }
}

impl Blocks {
    fn read_block(&self, of: &Shelved, at: &BlockHandle, kind: BlockType, packed: CompressionType) -> Result<Block> {
        let block = Block::from_file(&*self.file(of)?, *at, packed)?;
        expect_type(&block, kind)?;
        Ok(block)
    }

    fn filter_parts<'s>(&self, of: &'s Shelved, at: &BlockHandle) -> Result<&'s Places> {
        if let Some(parts) = of.filter_parts.get() {
            return Ok(parts);
        }
        let parts = self.read_places(of, at)?;
        Ok(of.filter_parts.get_or_init(|| parts))
    }

    fn filter(&self, of: &Shelved, at: &BlockHandle) -> Result<Arc<FilterBlock>> {
        let id = (of.id, *at.offset());
        if let Some(Known::Filter(filter)) = self.known.get(&id) {
            return Ok(filter);
        }
        // Filters are not packed.
        let block = self.read_block(of, at, BlockType::Filter, CompressionType::None)?;
        let filter = Arc::new(FilterBlock::new(block));
        self.known.insert(id, Known::Filter(Arc::clone(&filter)));
        Ok(filter)
    }

    /// Whether the table's filter lets a key pass. One that stays in memory was asked already.
    fn may_have(&self, of: &Shelved, key: &[u8], hash: u64) -> Result<bool> {
        let regions = &of.table.regions;
        let part = match (&of.table.pinned_filter_block, &regions.filter_tli, &regions.filter) {
            (None, Some(parts), _) => {
                let parts = self.filter_parts(of, parts)?;
                parts.blocks.get(parts.first_with(key)).map(|place| place.handle())
            }
            (None, None, Some(whole)) => Some(*whole),
            _ => None,
        };
        part.map_or(Ok(true), |part| self.filter(of, &part)?.maybe_contains_hash(hash))
    }

    /// The newest that a table says of a key. A sweep keeps what says where blocks are, as it will ask for that again, and not the blocks.
    pub(super) fn get(&self, of: &Shelved, (key, hash): (&[u8], u64), reading: Reading) -> Result<Option<Said>> {
        if !self.may_have(of, key, hash)? {
            return Ok(None);
        }
        let mut way = self.way(of, Some(key), Reading::Query)?;
        let Some(place) = self.next_place(of, &mut way, Reading::Query)? else { return Ok(None) };
        let id = (of.id, place.offset);
        let (block, was_at_hand) = match self.known.get(&id) {
            Some(Known::Entries(block)) => return Ok(block.said(key)),
            Some(Known::Stored(block)) => (block, true),
            _ => {
                let packed = of.table.metadata.data_block_compression;
                let block = Arc::new(DataBlock::new(self.read_block(of, &place.handle(), BlockType::Data, packed)?));
                if reading == Reading::Query {
                    self.known.insert(id, Known::Stored(Arc::clone(&block)));
                }
                (block, false)
            }
        };
        let found = block.point_read(key, NEWEST);
        Ok(found.map(|found| Said { value: (!found.is_tombstone()).then_some(found.value), was_at_hand }))
    }
}

impl Unpacked {
    fn said(&self, key: &[u8]) -> Option<Said> {
        let number = self.before(|other| other < key);
        let spot = self.spot(number);
        let is_there = number < self.len() && self.key(spot) == key;
        is_there.then(|| Said { value: self.entry(spot).1.map(Slice::new), was_at_hand: true })
    }
}
