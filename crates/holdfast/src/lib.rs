//! Holdfast: data that is held once it is acknowledged, fast. This is the library that users embed.
//!
//! A [`Store`] is one directory: one journal, and the engines that the journal feeds: objects by key, [`Kv`]; entries in
//! memory, [`space::Space`]; and the decisions of distributed transactions, [`Xa`].
//!
//! ```
//! # fn main() -> holdfast::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let store = holdfast::Store::open(dir.path(), holdfast::Options::default())?;
//! store.kv().put(b"users", b"ada", b"countess", &holdfast::PutOptions::default())?;
//! let ada = store.kv().get(b"users", b"ada")?.expect("it was just put");
//! assert_eq!(&*ada.value, b"countess");
//! # Ok(())
//! # }
//! ```
//!
//! One [`Durability`] dial says for every answer what survives: see there.
//!
//! May use: `base`, `journal`, the engines. Must not know: sockets, async, protocols.

mod background;
mod backup;
mod beside;
mod compaction;
mod coordinator;
mod cursor;
mod dial;
mod durability;
mod error;
mod exchange;
mod exclusive;
mod feed;
mod fold;
mod gaps;
mod hands;
mod identity;
mod index;
mod jobs;
mod kv;
mod library;
mod listing;
mod live_count;
mod options;
mod partition;
mod peer;
mod replay;
mod room;
mod schedule;
mod scrub;
pub mod series;
mod snapshot;
pub mod space;
mod staged;
mod stats;
mod store;
mod told;
mod transaction;
mod turn;
mod verify;
mod watch;
mod xa;

pub use ::kv::{
    Clock, Compression, Head, IndexList, Indexes, LeafSet, Ledgers, LsmLedgers, MemoryLedgers, Metadata, Object, Page,
    PageOut, Term, TermRef, Tree, TreeSize, UpTo, Value, object_hash,
};
pub use ::regex::bytes::Regex;
pub use ::xa::{
    AbortReason, BRANCH_BYTES_MAX, BranchName, BranchState, BranchStatus, Commit, CoordinatorId, Counters, Deed,
    Forgetting, Heuristic, LastResourceId, Learned, Lease, Listed, MalformedId, Outcome, OwnerId, Patience, Resumer,
    State, Status, Taking, TransactionId, Verdict, Vote, Xid,
};
pub use backup::{Backup, Restore, RestoreDamage, RestoreFiles, Restored, restore, restore_in};
pub use base::{Limits, Quantiles};
pub use compaction::CompactionStats;
pub use dial::Dial;
pub use durability::Durability;
pub use error::{Error, ErrorKind, Result};
pub use exchange::{Clocked, Difference, DifferenceKind, Exchange, Peer, Rounds, Side};
pub use exclusive::{Committed, Exclusive, Scope};
pub use feed::{Feed, FeedChange, FeedItem, FeedLimit};
pub use fold::{Fold, FoldCursor, FoldOrder, Folded, FoldedValue, Visitor};
pub use index::{IndexCursor, IndexPage, IndexQuery, regex};
pub use journal::{Damage, DamageKind, Position, Verified, Watermarks, Window};
pub use kv::{Condition, Kv, PutOptions, Shown};
pub use library::Libraries;
pub use listing::ScanCursor;
pub use options::{Options, Progress, Tell, World};
pub use peer::{TreeCheck, TreeValues};
pub use schedule::{CompactionOptions, Schedule};
pub use snapshot::Snapshot;
pub use stats::{OpenTransaction, QueryCacheStats, ScrubStats, SegmentLive, Stats, TransactionStats};
pub use store::Store;
pub use transaction::Transaction;
pub use verify::{Count, InspectedSegment, Inspection, identity_of};
pub use watch::KeyWatcher;
pub use xa::{Begin, CommitRequest, Pending, RestsOn, Sharing, Xa};
