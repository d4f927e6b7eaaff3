//! A store as the workloads see it.
//!
//! May use: `terms.rs`. Must not know: workloads.

use std::fmt;
use std::path::Path;

use super::terms::{Entry, TermRange};

/// Why a benchmark cannot go on. It is told to a person and ends the run.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a step of a benchmark returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The store has no such operation. Ends the workload that asked for it, not the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) &'static str);

/// What a fold shows of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    /// What is known of it, without its value.
    Heads,
    /// Its value too.
    Objects,
}

/// Is shown key, and value if that was asked for.
pub(crate) type See<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>);

/// A store that is being measured. The methods are called from several threads at once.
pub(crate) trait Driver: Sync {
    /// A caller of its own, for one thread.
    fn session(&self) -> Result<Box<dyn Session + Send + '_>>;

    /// The process that does the store's work; `None` is this one.
    fn process(&self) -> Option<u32> {
        None
    }

    /// Folder of the store's files, if it is known and on this machine.
    fn dir(&self) -> Option<&Path>;

    /// Waits until the store's own background work has nothing left to do.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Gives the space of what was overwritten back to the disk, until nothing more can be gained.
    fn compact(&self) -> Result<()> {
        Err(Unsupported("compact").into())
    }

    /// Makes room while the store is loaded, for a store that leaves that to its caller; returns the bytes reclaimed,
    /// `None` when the store does it by itself.
    fn compact_loaded(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Builds the tree that replicas are compared by anew, from all objects; returns how many there were.
    fn rebuild_tree(&self) -> Result<u64> {
        Err(Unsupported("rebuild of a tree").into())
    }
}

/// One caller. Each method blocks until it is done, a put until it is acknowledged at the durability the store was
/// opened with.
pub(crate) trait Session {
    /// Puts one value without index entries over whatever was there.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Puts one value with index entries; what it replaces loses those it had.
    fn put_indexed(&mut self, _key: &[u8], _value: &[u8], _entries: &[Entry]) -> Result<()> {
        Err(Unsupported("index entries").into())
    }

    /// Shows the value that is there, made readable as this store does it at the least cost. False if there is none.
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Whether the key is there: the cheapest certain look-up the store has.
    fn head(&mut self, key: &[u8]) -> Result<bool>;

    /// Shows term and key of every index entry in the range, in order of terms.
    fn index_range(&mut self, _range: &TermRange, _see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Err(Unsupported("index ranges").into())
    }

    /// Shows every object: key, and value if asked for.
    fn fold(&mut self, _what: Fold, _see: See<'_>) -> Result<()> {
        Err(Unsupported("folds").into())
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not supported by this driver: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}
