//! The key-value engine of Holdfast: one partition's share of objects by bucket and key.
//!
//! An [`Engine`] is a synchronous state machine over a *ledger*, a sorted index that says of each object its version, its
//! expiry, its metadata and where its value lies. Small values lie in the ledger, large ones in the journal, where they
//! were written once. The ledger has no log of its own: whatever it had not written out is replayed from the journal.
//!
//! May use: `base`, `journal`. Must not know: other engines, partitions other than its own, threads, clocks.

mod bytes;
mod cache;
mod command;
mod compression;
mod engine;
mod entry;
mod error;
mod index;
mod indexes;
mod key;
mod ledger;
mod live;
mod metadata;
mod query;

pub use cache::EntryCache;
pub use command::{Command, Put, Recorded};
pub use compression::{Compression, Stored, UnknownCompression};
pub use engine::{Engine, Options};
pub use entry::Head;
pub use error::{Error, Result};
pub use index::{IndexEntries, IndexEntry, IndexRange};
pub use indexes::{Indexes, Term};
pub use key::KEY_BYTES_MAX;
pub use ledger::{Entries, Ledger, Ledgers, LsmLedgers, MemoryLedgers, Slice, View};
pub use live::{LiveBytes, Places, SegmentBytes};
pub use metadata::Metadata;
pub use query::{Found, Listed, Object, Objects, Page, PageOut, Reader, Value};
