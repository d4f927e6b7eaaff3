//! Secondary indexes as users see them: ranges of terms over all partitions, in order of terms, then keys.
//!
//! May use: `kv`, partitions, `regex`. Must not know: protocols.

use base::hash64;
use kv::{IndexEntries, IndexList, IndexRange, Reader, Term, TermRef};
use regex::bytes::{Regex, RegexBuilder};

use crate::cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::{Kv, Shown};
use crate::snapshot::Snapshot;
use crate::store::Inner;

/// Memory that a compiled regular expression may take, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Bytes that say which index a cursor is of.
const STAMP_BYTES: usize = 4;

/// Entries of a page for which room is made before it is known how many there are.
const ENTRIES_AHEAD: usize = 1024;

/// A query of one index.
#[derive(Debug, Clone, Copy)]
pub struct IndexQuery<'a> {
    /// Bucket.
    pub bucket: &'a [u8],
    /// Index.
    pub index: &'a [u8],
    /// Lowest term.
    pub from: &'a Term,
    /// Highest term; the same as `from` asks for objects with just that term.
    pub to: &'a Term,
    /// Only terms that this expression matches somewhere; integers are matched as decimal text. See [`regex()`].
    pub term_regex: Option<&'a Regex>,
    /// Most entries to return; the store's `page_entries_max` at the most.
    pub limit: usize,
    /// Go on where an earlier page ended.
    pub after: Option<&'a IndexCursor>,
}

/// A page of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexPage {
    /// Term and key, ascending. A key stands as often as it has terms in the range.
    pub entries: IndexList,
    /// Where the next page begins; `None` at the end.
    pub next: Option<IndexCursor>,
}

/// A place in an index. It stays valid whatever changes, also over restarts; another index refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexCursor(Vec<u8>);

/// What a cursor begins with: which index it is of.
fn stamp(bucket: &[u8], index: &[u8]) -> [u8; STAMP_BYTES] {
    let of = [&(bucket.len() as u64).to_le_bytes(), bucket, index].concat();
    (hash64(&of) as u32).to_le_bytes()
}

/// Compiles a regular expression (syntax of the `regex` crate, over bytes) whose size and time are bounded.
///
/// # Errors
/// `Invalid` when it does not compile, or would take too much memory.
pub fn regex(pattern: &str) -> Result<Regex> {
    let built = RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX).build();
    built.map_err(|error| Error::new(ErrorKind::Invalid, format!("regular expression: {error}")))
}

impl IndexCursor {
    fn new(query: &IndexQuery<'_>, place: &[u8]) -> Self {
        Self([&stamp(query.bucket, query.index), place].concat())
    }

    /// The place, if it is one of that index.
    fn place_in(&self, query: &IndexQuery<'_>) -> Result<&[u8]> {
        let place = self.0.strip_prefix(&stamp(query.bucket, query.index));
        let other = || Error::new(ErrorKind::Invalid, "the continuation is one of another index: begin without it");
        place.ok_or_else(other)
    }

    /// The cursor as letters and digits.
    #[must_use]
    pub fn encode(&self) -> String {
        cursor::encode(b'i', &self.0)
    }

    /// The cursor that [`IndexCursor::encode`] wrote.
    ///
    /// # Errors
    /// `Invalid` when it is something else.
    pub fn decode(text: &str) -> Result<Self> {
        cursor::decode(b'i', text).map(Self)
    }
}

/// Merges the partitions' entries of an index.
pub(crate) fn query<'r>(
    readers: impl Iterator<Item = &'r Reader>,
    query: &IndexQuery<'_>,
    now_ms: u64,
) -> Result<IndexPage> {
    let IndexQuery { bucket, index, from, to, .. } = *query;
    let after = query.after.map(|cursor| cursor.place_in(query)).transpose()?;
    let mut entries = IndexEntries::of(readers, &IndexRange { bucket, index, from, to, after }, now_ms);
    let mut page = IndexPage { entries: IndexList::with_capacity(query.limit.min(ENTRIES_AHEAD)), next: None };
    while page.entries.len() < query.limit && entries.advance()? {
        page.entries.push_place(entries.place())?;
        if let Some(regex) = query.term_regex
            && !page.entries.last().is_some_and(|(term, _)| matches(regex, term))
        {
            page.entries.pop();
        } else if page.entries.len() == query.limit {
            let last = IndexCursor::new(query, entries.place());
            page.next = entries.advance()?.then_some(last);
        }
    }
    Ok(page)
}

fn matches(regex: &Regex, term: TermRef<'_>) -> bool {
    match term {
        TermRef::Binary(bytes) => regex.is_match(bytes),
        TermRef::Integer(number) => regex.is_match(number.to_string().as_bytes()),
    }
}

fn bounded<'a>(inner: &Inner, wanted: &IndexQuery<'a>) -> IndexQuery<'a> {
    IndexQuery { limit: wanted.limit.min(inner.options.limits.page_entries_max), ..*wanted }
}

impl Kv<'_> {
    /// A page of an index, as of one instant. Does not wait.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn index(&self, wanted: &IndexQuery<'_>) -> Result<Shown<IndexPage>> {
        let snapshot = self.store.snapshot()?;
        Ok(Shown { value: snapshot.index(wanted)?, position: snapshot.position() })
    }
}

impl Snapshot {
    /// A page of an index as it was.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn index(&self, wanted: &IndexQuery<'_>) -> Result<IndexPage> {
        self.inner().check_bucket(wanted.bucket)?;
        query(self.readers.iter(), &bounded(self.inner(), wanted), self.now_ms())
    }
}
