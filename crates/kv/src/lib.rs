//! The key-value engine of Holdfast: one partition's share of objects by bucket and key.
//!
//! An [`Engine`] is a synchronous state machine over a *ledger*, a sorted index that says of each object its version, its
//! expiry, its metadata and where its value lies. Small values lie in the ledger, large ones in the journal, where they
//! were written once. The ledger has no log of its own: whatever it had not written out is replayed from the journal.
//!
//! May use: `base`, `journal`. Must not know: other engines, partitions other than its own, threads, clocks.

mod bytes;
mod cache;
mod clock;
mod coming;
mod command;
mod compression;
mod engine;
mod entry;
mod error;
mod fold;
mod hash;
mod index;
mod indexes;
mod keep;
mod kept;
mod key;
mod leaf_set;
mod ledger;
mod live;
mod metadata;
mod owner;
mod parts;
mod piece;
mod query;
mod summary;
mod tree;

pub use cache::Caches;
pub use clock::Clock;
pub use coming::{Coming, Hint, Step};
pub use command::{
    Command, Commands, OTHER_PART_HEADER_BYTES, Put, Recorded, Said, other_parts, put_other_part, write_other_part,
};
pub use compression::{Compression, Stored, UnknownCompression};
pub use engine::{Engine, Options};
pub use entry::{Brief, Head};
pub use error::{Error, Result};
pub use fold::{FoldRange, Item, Items, Looked};
pub use hash::object_hash;
pub use index::{IndexEntries, IndexList, IndexRange};
pub use indexes::{Indexes, Term, TermRef};
pub use keep::Older;
pub use key::{KEY_BYTES_MAX, is_reserved};
pub use leaf_set::LeafSet;
pub use ledger::{Bounds, Cursor, Hit, Ledger, Ledgers, LsmLedgers, MemoryLedgers, Reading, Slice, View};
pub use live::{LiveBytes, Places, SegmentBytes};
pub use metadata::Metadata;
pub use owner::Owner;
pub use parts::NeededParts;
pub use query::{Found, Listed, Object, Page, PageOut, Reader, UpTo, Value};
pub use tree::{Tree, TreeSize};
