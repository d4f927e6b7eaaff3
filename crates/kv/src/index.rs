//! Reading one partition's share of a secondary index, in order of terms, then keys.
//!
//! May use: the ledger. Must not know: other partitions, regular expressions.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::indexes::Term;
use crate::key;
use crate::ledger::{self, Slice};
use crate::query::Reader;

/// A part of an index: from one term to another, both included.
#[derive(Debug, Clone, Copy)]
pub struct IndexRange<'a> {
    /// Bucket.
    pub bucket: &'a [u8],
    /// Index.
    pub index: &'a [u8],
    /// Lowest term.
    pub from: &'a Term,
    /// Highest term.
    pub to: &'a Term,
    /// Only what comes behind this place: see [`IndexEntry::place`].
    pub after: Option<&'a [u8]>,
}

/// One entry of an index.
#[derive(Debug, Clone)]
pub struct IndexEntry {
    ledger_key: Slice,
    prefix: usize,
}

impl IndexEntry {
    /// Where it stands in its index: places compare as term, then key do.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        self.ledger_key.get(self.prefix..).unwrap_or_default()
    }

    /// Term and key.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn split(&self) -> Result<(Term, &[u8])> {
        let damaged = || Error::Ledger { path: String::new(), reason: "an index entry does not decode".into() };
        key::split_index(&self.ledger_key, self.prefix).ok_or_else(damaged)
    }
}

/// Entries of a part of an index, ascending; those of expired objects are left out.
pub struct IndexEntries {
    entries: ledger::Entries,
    prefix: usize,
    now_ms: u64,
}

impl Iterator for IndexEntries {
    type Item = Result<IndexEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (ledger_key, expiry) = match self.entries.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let expires_ms = expiry.as_ref().try_into().map_or(0, u64::from_le_bytes);
            if expires_ms == 0 || expires_ms > self.now_ms {
                return Some(Ok(IndexEntry { ledger_key, prefix: self.prefix }));
            }
        }
    }
}

impl Reader {
    /// Entries of this partition in a part of an index.
    pub fn index_entries(&self, range: &IndexRange<'_>, now_ms: u64) -> IndexEntries {
        let (start, end) = key::index_range(range.bucket, range.index, range.from, range.to);
        let prefix = key::index_prefix(range.bucket, range.index);
        let after = range.after.map(|place| [prefix.as_slice(), place].concat()).filter(|after| *after >= start);
        let start = after.map_or(Bound::Included(start), Bound::Excluded);
        let entries: ledger::Entries = match &start {
            Bound::Included(from) | Bound::Excluded(from) if *from < end => {
                self.range(start.as_ref().map(Vec::as_slice), Bound::Excluded(&end))
            }
            _ => Box::new(std::iter::empty()),
        };
        IndexEntries { entries, prefix: prefix.len(), now_ms }
    }
}
