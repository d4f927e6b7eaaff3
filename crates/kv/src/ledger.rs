//! The ledger as the engine sees it: a sorted map that can be held as it is, whose unwritten part may be lost.
//!
//! The real one is an LSM tree without a log ([`LsmLedgers`]); simulations use [`MemoryLedgers`].
//!
//! May use: `base::Files`. Must not know: what keys and values mean.

mod block;
mod blocks;
mod bounds;
mod chunk;
mod cursor;
mod disk;
mod filter;
mod list;
mod lsm;
mod memory;
mod plan;
mod stored;
mod table;
mod tables;
mod tournament;
mod young;

use std::sync::Arc;

use journal::{PartitionId, Position};

pub use block::Slice;
pub use bounds::{Bounds, Reading};
pub use cursor::Cursor;
pub use lsm::LsmLedgers;
pub use memory::MemoryLedgers;

use crate::cache::Caches;
use crate::coming::{Hint, Step};
use crate::error::Result;

/// What a ledger has of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Its value.
    pub value: Slice,
    /// Whether it was in memory, and found there about as fast as it would be in a cache of its own.
    pub was_at_hand: bool,
}

impl Hit {
    /// A value that it took some time to find.
    #[must_use]
    pub fn costly(value: Slice) -> Self {
        Self { value, was_at_hand: false }
    }
}

/// One partition's ledger as it was at one moment.
pub trait View: Send + Sync {
    /// The value that `key` had.
    ///
    /// # Errors
    /// `Ledger` when stored bytes do not read back.
    fn get(&self, key: &[u8]) -> Result<Option<Hit>>;

    /// Adds its entries to those that a cursor goes through.
    fn range_into(&self, cursor: &mut Cursor);

    /// Entries in a range.
    fn range(&self, bounds: &Bounds) -> Cursor {
        let mut cursor = Cursor::new(bounds.clone());
        self.range_into(&mut cursor);
        cursor
    }
}

/// One partition's ledger. Readers may run beside the one writer.
pub trait Ledger: Send + Sync {
    /// The newest value of `key`.
    ///
    /// # Errors
    /// `Ledger` when stored bytes do not read back.
    fn get(&self, key: &[u8]) -> Result<Option<Hit>>;

    /// As [`Ledger::get`], for who goes through everything: what it comes upon is not kept for others.
    ///
    /// # Errors
    /// As [`Ledger::get`].
    fn peek(&self, key: &[u8]) -> Result<Option<Hit>> {
        self.get(key)
    }

    /// Fetches what a change of `key` looks at in memory, if it has that at hand without waiting.
    fn fetch(&self, _key: &[u8], _step: Step, _hint: &mut Hint) {}

    /// Adds its newest entries to those that a cursor goes through.
    fn range_into(&self, cursor: &mut Cursor);

    /// Newest entries in a range.
    fn range(&self, bounds: &Bounds) -> Cursor {
        let mut cursor = Cursor::new(bounds.clone());
        self.range_into(&mut cursor);
        cursor
    }

    /// What the ledger holds now, for as long as the view lives. It costs what is in memory now, and disk.
    fn view(&self) -> Arc<dyn View>;

    /// Sets `key`. Positions never go down.
    fn insert(&self, key: &[u8], value: &[u8], position: Position);

    /// Removes `key`.
    fn remove(&self, key: &[u8], position: Position);

    /// Bytes in memory that were not written out.
    fn memory_bytes(&self) -> u64;

    /// Everything at or below was written out; `None` when nothing ever was.
    fn persisted(&self) -> Option<Position>;

    /// Ends the part in memory, so that [`Ledger::write_out`] writes just what was there before. Short.
    fn rotate(&self);

    /// Whether a read or a write came upon damage: then the ledger wants [`Ledger::reset`].
    fn is_damaged(&self) -> bool;

    /// Drops everything, in memory and on the disk. Whoever calls it keeps readers away until the ledger is filled again.
    ///
    /// # Errors
    /// When the files cannot be removed or made.
    fn reset(&self) -> Result<()>;

    /// Writes out what was rotated. The journal must have synced it.
    ///
    /// # Errors
    /// `Ledger` when writing fails; nothing is lost that the journal does not have.
    fn write_out(&self) -> Result<()>;

    /// Merges what was written out where that is due: without it there come to be more and more places to look at. A merge writes
    /// anew what it merges, beside what is there until it is done.
    ///
    /// # Errors
    /// As [`Ledger::write_out`].
    fn merge(&self) -> Result<()> {
        Ok(())
    }

    /// Merges what was written out lately with the rest, where that costs little for what it saves those who read. Nothing
    /// depends on it.
    ///
    /// # Errors
    /// As [`Ledger::write_out`].
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

/// Where ledgers lie.
pub trait Ledgers: Send + Sync {
    /// Opens or creates a partition's ledger. A damaged one is discarded and comes back empty.
    ///
    /// # Errors
    /// When the folder cannot be used at all.
    fn open(&self, partition: PartitionId) -> Result<Arc<dyn Ledger>>;

    /// Up to where a partition's ledger goes, as it says itself: what [`Ledger::persisted`] would say if it is not damaged.
    /// Changes nothing, and takes no look at the rest of it.
    ///
    /// # Errors
    /// When that cannot be seen.
    fn persisted(&self, partition: PartitionId) -> Result<Option<Position>>;

    /// Uses what these caches do not need of their room, for as long as they do not. What others did not need that are gone is let go of.
    fn borrow_of(&self, _caches: &Caches) {}

    /// Makes sure that the ledger is discarded when it is opened next.
    ///
    /// # Errors
    /// When that cannot be noted.
    fn condemn(&self, partition: PartitionId) -> Result<()>;
}
