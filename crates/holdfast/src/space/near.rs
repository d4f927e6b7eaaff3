//! Entries kept near by id, those used last: what caches are made of, in the process and over the wire.
//!
//! An entry is read from the space without the cache's lock, and kept only if no event of it was heard meanwhile: so what is kept is
//! never older than what was heard. Who hears, and what the time is, are the cache's.
//!
//! May use: `entries`. Must not know: listeners, clocks, threads.

use std::collections::BTreeMap;

use super::entries::Entry;

/// Entries by the keys of their ids ([`key_of`](super::key_of)), and who reads one from the space now.
#[derive(Default)]
pub struct NearTable {
    entries_max: usize,
    kept: BTreeMap<Vec<u8>, Kept>,
    /// Keys by when they were used last.
    by_use: BTreeMap<u64, Vec<u8>>,
    uses: u64,
    /// Entries that are read from the space now: by how many, and whether an event came meanwhile.
    reading: BTreeMap<Vec<u8>, Reading>,
    counts: NearCounts,
}

/// What a table has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NearCounts {
    /// Reads that were answered from it.
    pub hits: u64,
    /// Reads that went to the space.
    pub misses: u64,
    /// Entries that an event made it forget.
    pub invalidated: u64,
    /// Entries that went to make room.
    pub evicted: u64,
    /// Entries that it has.
    pub entries: u64,
}

struct Kept {
    entry: Entry,
    used: u64,
}

#[derive(Default)]
struct Reading {
    readers: usize,
    is_old: bool,
}

impl NearTable {
    /// An empty one, of at most so many entries and of one at least.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self { entries_max: entries_max.max(1), ..Self::default() }
    }

    /// The entry, if it is kept and its lease has not ended.
    pub fn get(&mut self, key: &[u8], now_ms: u64) -> Option<Entry> {
        self.uses += 1;
        let kept = self.kept.get_mut(key).filter(|kept| kept.entry.expires_ms.is_none_or(|end| end > now_ms));
        let Some(kept) = kept else {
            self.counts.misses += 1;
            return None;
        };
        self.by_use.remove(&kept.used);
        kept.used = self.uses;
        self.by_use.insert(kept.used, key.to_vec());
        self.counts.hits += 1;
        Some(kept.entry.clone())
    }

    /// Notes that one begins to read it from the space.
    pub fn begin_reading(&mut self, key: &[u8]) {
        self.reading.entry(key.to_vec()).or_default().readers += 1;
    }

    /// Notes that one has read it, and keeps what he read unless an event of it came meanwhile. For each that began once.
    pub fn end_reading(&mut self, key: &[u8], read: Option<&Entry>) {
        let Some(reading) = self.reading.get_mut(key) else { return };
        reading.readers = reading.readers.saturating_sub(1);
        let is_old = reading.is_old;
        if reading.readers == 0 {
            self.reading.remove(key);
        }
        if let Some(entry) = read.filter(|_| !is_old) {
            self.keep(key.to_vec(), entry.clone());
        }
    }

    fn keep(&mut self, key: Vec<u8>, entry: Entry) {
        self.uses += 1;
        let used = self.uses;
        if let Some(old) = self.kept.insert(key.clone(), Kept { entry, used }) {
            self.by_use.remove(&old.used);
        }
        self.by_use.insert(used, key);
        while self.kept.len() > self.entries_max {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.kept.remove(&oldest);
            self.counts.evicted += 1;
        }
    }

    /// An event of the entry was heard.
    pub fn forget(&mut self, key: &[u8]) {
        if let Some(kept) = self.kept.remove(key) {
            self.by_use.remove(&kept.used);
            self.counts.invalidated += 1;
        }
        if let Some(reading) = self.reading.get_mut(key) {
            reading.is_old = true;
        }
    }

    /// Events may have been missed: whatever is kept or being read may be old. How many entries went.
    pub fn clear(&mut self) -> u64 {
        let gone = self.kept.len() as u64;
        self.kept.clear();
        self.by_use.clear();
        self.reading.values_mut().for_each(|reading| reading.is_old = true);
        gone
    }

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> NearCounts {
        NearCounts { entries: self.kept.len() as u64, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use ::space::Document;
    use journal::Position;

    use super::*;

    fn entry(id: i64, expires_ms: Option<u64>) -> Entry {
        Entry { document: Document::from_pairs([("id", id)]), version: Position::ZERO, expires_ms }
    }

    fn read(table: &mut NearTable, key: &[u8], expires_ms: Option<u64>) {
        table.begin_reading(key);
        table.end_reading(key, Some(&entry(1, expires_ms)));
    }

    #[test]
    fn those_used_last_are_kept_until_an_event_or_the_end_of_their_lease() {
        let mut table = NearTable::new(2);
        assert_eq!(table.get(b"a", 0), None);
        read(&mut table, b"a", None);
        read(&mut table, b"b", Some(100));
        assert!(table.get(b"a", 0).is_some() && table.get(b"b", 99).is_some());
        assert_eq!(table.get(b"b", 100), None);
        assert!(table.get(b"a", 100).is_some());
        read(&mut table, b"c", None);
        assert!(table.get(b"b", 0).is_none() && table.get(b"a", 0).is_some());
        table.forget(b"a");
        table.forget(b"nosuch");
        assert_eq!(table.get(b"a", 0), None);
        let counts = NearCounts { hits: 4, misses: 4, invalidated: 1, evicted: 1, entries: 1 };
        assert_eq!((table.counts(), table.clear(), table.counts().entries), (counts, 1, 0));
    }

    #[test]
    fn what_an_event_made_old_while_it_was_read_is_not_kept() {
        let mut table = NearTable::new(2);
        table.begin_reading(b"a");
        table.begin_reading(b"a");
        table.forget(b"a");
        table.end_reading(b"a", Some(&entry(1, None)));
        table.end_reading(b"a", Some(&entry(1, None)));
        assert_eq!(table.get(b"a", 0), None);
        table.begin_reading(b"a");
        table.clear();
        table.end_reading(b"a", Some(&entry(1, None)));
        assert_eq!(table.get(b"a", 0), None);
        read(&mut table, b"a", None);
        assert!(table.get(b"a", 0).is_some(), "who begins afterwards reads what is new");
    }
}
