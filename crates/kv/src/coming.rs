//! A change that is about to come: the memory that it will look at is fetched while its batch is made.
//!
//! A change goes through cache and ledger from one place to the next, and waits for each: of a store whose objects are more than the
//! processor's caches hold that was a third of what a put took of its time. Each step fetches what the step before has made known.
//!
//! May use: `cache.rs`. Must not know: what changes.

use base::fetch_ahead;

use crate::cache::Entries;
use crate::kept::Mark;
use crate::key;
use crate::query::Reader;

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Where its places are found.
    First,
    /// The places.
    Second,
    /// What the ledger's place speaks of.
    Third,
}

/// A key that is about to be put.
pub struct Coming<'r> {
    entries: &'r Entries,
    key: Vec<u8>,
    mark: Option<Mark>,
    hint: Hint,
}

/// Where a ledger has the key, as far as the steps before have come: the steps behind need not search again. A ledger that has
/// changed since has something else there, which costs no more than to fetch it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hint {
    pub(crate) run: usize,
    pub(crate) place: usize,
}

impl Reader {
    /// Notes that a key is about to be put.
    #[must_use]
    pub fn coming(&self, bucket: &[u8], key: &[u8]) -> Coming<'_> {
        let key = key::object(bucket, key);
        Coming { entries: &self.entries, mark: Mark::of(&key), key, hint: Hint::default() }
    }
}

impl Coming<'_> {
    /// Fetches what this step is about. Changes nothing, waits for nobody, and may be left out.
    pub fn fetch(&mut self, step: Step) {
        self.fetch_kept(step);
        self.entries.ledger.fetch(&self.key, step, &mut self.hint);
    }

    /// The same of the cache alone, for who only looks.
    pub fn fetch_kept(&mut self, step: Step) {
        if let Some(mark) = self.mark {
            self.entries.caches.fetch(mark, step);
        }
    }
}

/// The first lines of a stretch of memory.
pub(crate) fn fetch_start(bytes: &[u8]) {
    const LINE_BYTES: usize = 64;
    const LINES: usize = 3;
    bytes.iter().step_by(LINE_BYTES).take(LINES).for_each(fetch_ahead);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use journal::{PartitionId, Position};

    use super::*;
    use crate::cache::Caches;
    use crate::{Ledgers, LsmLedgers, MemoryLedgers};

    const STEPS: [Step; 3] = [Step::First, Step::Second, Step::Third];

    /// Keys that are there, that are not, that share their tags, that are shorter than what all share: whatever is fetched, nothing changes.
    fn fetches_of(ledgers: &dyn Ledgers) {
        let ledger = ledgers.open(PartitionId::new(0)).unwrap();
        let entries = Entries::new(ledger, Arc::new(Caches::new(8 << 20, 8 << 20)));
        let fetch = |key: &[u8]| {
            let hint = Hint::default();
            let mut coming = Coming { entries: &entries, mark: Mark::of(key), key: key.to_vec(), hint };
            STEPS.into_iter().for_each(|step| coming.fetch(step));
        };
        fetch(b"nothing is there");
        let keys: Vec<Vec<u8>> =
            (0..500).map(|n| format!("bucket:{:03}:with the same tag:{}", n / 3, n % 3).into_bytes()).collect();
        for (at, key) in (1..).zip(&keys) {
            fetch(key);
            let value = (at % 2 == 0).then_some(&b"value"[..]);
            entries.insert(key, b"entry", value, Position::new(at));
            fetch(key);
        }
        for key in [&b""[..], b"b", b"bucket:", b"bucket:999", b"zzz"] {
            fetch(key);
            assert!(entries.get(key).unwrap().is_none());
        }
        for (at, key) in (1..).zip(&keys) {
            let stored = entries.get(key).unwrap().unwrap();
            assert_eq!(
                (&*stored.entry, stored.value.as_deref()),
                (&b"entry"[..], (at % 2 == 0).then_some(&b"value"[..]))
            );
        }
    }

    #[test]
    fn what_is_fetched_ahead_changes_nothing() {
        fetches_of(&MemoryLedgers::new());
    }

    #[test]
    fn nor_in_a_ledger_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        fetches_of(&LsmLedgers::new(Arc::new(base::OsFiles), folder.path(), 1 << 20));
    }
}
