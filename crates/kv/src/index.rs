//! Reading a secondary index, of any number of partitions, in order of terms, then keys.
//!
//! May use: readers, the ledger. Must not know: who picks the partitions, regular expressions.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::indexes::{Term, TermRef};
use crate::key;
use crate::ledger::{Bounds, Cursor, Reading};
use crate::query::{Reader, range_of};

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
    /// Only what comes behind this place: see [`IndexEntries::place`].
    pub after: Option<&'a [u8]>,
}

/// Entries of a part of an index, ascending; those of expired objects are left out. It stands on an entry once
/// [`IndexEntries::advance`] said so.
pub struct IndexEntries {
    entries: Cursor,
    prefix: usize,
    now_ms: u64,
}

/// Terms and keys, one behind the other in one stretch of memory: a list of many costs two allocations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexList {
    /// Of each entry the term, 00 behind it if it is binary, and the key: usual terms are so in ledgers, too.
    bytes: Vec<u8>,
    /// Where each entry's term ends, and where its key does.
    ends: Vec<(usize, usize)>,
}

impl IndexEntries {
    /// Entries of these partitions in a part of an index.
    pub fn of<'r>(readers: impl Iterator<Item = &'r Reader>, range: &IndexRange<'_>, now_ms: u64) -> Self {
        let (start, end) = key::index_range(range.bucket, range.index, range.from, range.to);
        let prefix = key::index_prefix(range.bucket, range.index);
        let after = range.after.map(|place| [prefix.as_slice(), place].concat()).filter(|after| *after >= start);
        let start = after.map_or(Bound::Included(start), Bound::Excluded);
        let bounds = Bounds::new(start, Bound::Excluded(end), Reading::Query);
        Self { entries: range_of(readers, &bounds), prefix: prefix.len(), now_ms }
    }

    /// Steps to the next entry, the first one at first; false when there is none.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn advance(&mut self) -> Result<bool> {
        while self.entries.advance()? {
            let expires_ms = self.entries.value().try_into().map_or(0, u64::from_le_bytes);
            if expires_ms == 0 || expires_ms > self.now_ms {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where the entry it stands on stands in its index: places compare as term, then key do.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        self.entries.key().get(self.prefix..).unwrap_or_default()
    }
}

impl IndexList {
    /// Room for so many entries.
    #[must_use]
    pub fn with_capacity(entries: usize) -> Self {
        /// Of a usual term and key.
        const BYTES: usize = 32;
        Self { bytes: Vec::with_capacity(entries * BYTES), ends: Vec::with_capacity(entries) }
    }

    /// Appends an entry.
    pub fn push(&mut self, term: TermRef<'_>, key: &[u8]) {
        term.encode_into(&mut self.bytes);
        let term_end = self.bytes.len();
        if matches!(term, TermRef::Binary(_)) {
            self.bytes.push(0);
        }
        self.bytes.extend_from_slice(key);
        self.ends.push((term_end, self.bytes.len()));
    }

    /// Appends the entry at a place: see [`IndexEntries::place`].
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn push_place(&mut self, place: &[u8]) -> Result<()> {
        if let Some(term_bytes) = key::index_term_bytes(place) {
            self.ends.push((self.bytes.len() + term_bytes, self.bytes.len() + place.len()));
            self.bytes.extend_from_slice(place);
            return Ok(());
        }
        let damaged = || Error::Ledger { path: String::new(), reason: "an index entry does not decode".into() };
        let (term, key) = key::split_escaped_index(place).ok_or_else(damaged)?;
        self.push(TermRef::Binary(&term), key);
        Ok(())
    }

    /// Takes the last entry away.
    pub fn pop(&mut self) {
        self.ends.pop();
        self.bytes.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Option<(TermRef<'_>, &[u8])> {
        self.entry(self.len().checked_sub(1)?)
    }

    /// Copies of all entries, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<(Term, Vec<u8>)> {
        self.iter().map(|(term, key)| (term.into(), key.to_vec())).collect()
    }

    /// Terms and keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = (TermRef<'_>, &[u8])> {
        (0..self.len()).filter_map(|number| self.entry(number))
    }

    fn entry(&self, number: usize) -> Option<(TermRef<'_>, &[u8])> {
        let begin = number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        let (term_end, end) = *self.ends.get(number)?;
        let term = TermRef::decode(self.bytes.get(begin..term_end)?)?;
        let key = term_end + usize::from(matches!(term, TermRef::Binary(_)));
        Some((term, self.bytes.get(key..end)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_what_was_pushed() {
        let mut list = IndexList::default();
        assert!(list.is_empty() && list.last().is_none() && list.iter().next().is_none());
        list.push(TermRef::Integer(-3), b"ada");
        list.push(TermRef::Binary(b""), b"");
        list.push(TermRef::Binary(b"Ulm"), b"bo");
        list.pop();
        let place = key::index(b"", b"", &Term::Binary(b"a\x00\xFFz".to_vec()).encode(), b"key\x00");
        list.push_place(&place[key::index_prefix(b"", b"").len()..]).unwrap();
        let wanted = [
            (TermRef::Integer(-3), b"ada".as_slice()),
            (TermRef::Binary(b""), b""),
            (TermRef::Binary(b"a\x00\xFFz"), b"key\x00"),
        ];
        assert_eq!(list.iter().collect::<Vec<_>>(), wanted);
        assert_eq!((list.len(), list.last()), (3, Some(wanted[2])));
    }

    #[test]
    fn an_entry_that_does_not_decode_is_an_error_and_leaves_the_list_as_it_was() {
        let mut list = IndexList::default();
        list.push(TermRef::Integer(1), b"k");
        let before = list.clone();
        for wrong in [b"".as_slice(), b"\x02short", b"\x03without an end", b"\x09abcdefghijk", b"\x03a\x01\x05\x00k"] {
            assert!(matches!(list.push_place(wrong), Err(Error::Ledger { .. })), "{wrong:?}");
            assert_eq!(list, before);
        }
    }
}
