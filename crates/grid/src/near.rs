//! A cache of entries by id, which events make forget.
//!
//! An entry is read from the space without the cache's lock, and kept only if no event of it was heard meanwhile: so what is
//! kept is never older than what the listener has passed.
//!
//! May use: `holdfast`. Must not know: views, workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{Entries, Entry, Hears, Listen, Listener, ReadOptions, Storage, Value, Wanted, key_of};
use holdfast::{ErrorKind, Result, Store};

use crate::drain::{Drain, LISTEN_INTERVAL};

/// Entries of a type, kept near by their ids. Embedded: it stands in the process that has the store open.
///
/// **Staleness.** A read shows everything that was acknowledged longer than the cache's staleness before the read began; with
/// zero, everything that was acknowledged before it. Leases are looked at with each read; one that was made shorter is not
/// heard of until the entry goes.
pub struct NearCache {
    store: Store,
    entries: Entries,
    shared: Arc<Mutex<State>>,
    staleness: Duration,
    _drain: Drain,
}

/// What a cache has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NearStats {
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

struct State {
    entries: Entries,
    listener: Listener,
    entries_max: usize,
    kept: BTreeMap<Vec<u8>, Kept>,
    /// Keys by when they were used last.
    by_use: BTreeMap<u64, Vec<u8>>,
    uses: u64,
    /// Entries that are read from the space now: by how many, and whether an event came meanwhile.
    reading: BTreeMap<Vec<u8>, Reading>,
    heard_at: Instant,
    stats: NearStats,
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

impl NearCache {
    /// An empty cache of at most so many entries.
    ///
    /// # Errors
    /// As [`Entries::listen`].
    pub fn open(store: &Store, entries: &Entries, entries_max: usize, staleness: Duration) -> Result<Self> {
        let listener = listen(entries)?;
        let state = State {
            entries: entries.clone(),
            listener,
            entries_max: entries_max.max(1),
            kept: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            reading: BTreeMap::new(),
            heard_at: Instant::now(),
            stats: NearStats::default(),
        };
        let shared = Arc::new(Mutex::new(state));
        let listening = Arc::clone(&shared);
        // An error comes again to who reads next, and is told there.
        let drain = Drain::start("near-cache", LISTEN_INTERVAL, move || drop(locked(&listening).hear()))?;
        let (store, entries) = (store.clone(), entries.clone());
        Ok(Self { store, entries, shared, staleness, _drain: drain })
    }

    /// The entry with this id: from the cache, or from the space, and then the cache has it.
    ///
    /// # Errors
    /// As [`Entries::read`] and [`Listener::next`].
    pub fn read(&self, id: &Value) -> Result<Option<Entry>> {
        let key = key_of(id.stored().get());
        {
            let mut state = locked(&self.shared);
            if self.staleness.is_zero() || state.heard_at.elapsed() >= self.staleness {
                state.hear()?;
            }
            if let Some(entry) = state.get(&key, self.store.now_ms()) {
                return Ok(Some(entry));
            }
            state.reading.entry(key.clone()).or_default().readers += 1;
        }
        let read = self.entries.read(&Wanted::id(id.clone()), &ReadOptions::default());
        let mut state = locked(&self.shared);
        // What was heard until here, or is on its way, is later than what was read.
        let heard = state.hear();
        let is_old = state.end_reading(&key) || heard.is_err();
        let read = read?;
        if let Some(entry) = read.as_ref().filter(|_| !is_old) {
            state.keep(key, entry.clone());
        }
        Ok(read)
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> NearStats {
        let state = locked(&self.shared);
        NearStats { entries: state.kept.len() as u64, ..state.stats }
    }
}

/// All that happens to entries; of a type without history all that are written are told as if they came.
fn listen(entries: &Entries) -> Result<Listener> {
    let definition = entries.definition();
    let updated = definition.history || definition.storage == Storage::Volatile;
    entries.listen(&Wanted::all(), Listen { hears: Hears { updated, ..Hears::ALL }, ..Listen::default() })
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn hear(&mut self) -> Result<()> {
        let begin = Instant::now();
        let id_field = self.entries.definition().id.clone();
        loop {
            match self.listener.poll() {
                Ok(Some(notice)) => {
                    let document = notice.after.as_ref().or(notice.before.as_ref());
                    if let Some(id) = document.and_then(|document| document.get(&id_field)) {
                        self.forget(&key_of(id));
                    }
                }
                Ok(None) => break,
                // Events of a volatile type were lost: forget everything, then nothing is old.
                Err(error) if error.kind() == ErrorKind::Limit => {
                    self.listener = listen(&self.entries)?;
                    self.stats.invalidated += self.kept.len() as u64;
                    self.kept.clear();
                    self.by_use.clear();
                    self.reading.values_mut().for_each(|reading| reading.is_old = true);
                }
                Err(error) => return Err(error),
            }
        }
        self.heard_at = begin;
        Ok(())
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(kept) = self.kept.remove(key) {
            self.by_use.remove(&kept.used);
            self.stats.invalidated += 1;
        }
        if let Some(reading) = self.reading.get_mut(key) {
            reading.is_old = true;
        }
    }

    fn get(&mut self, key: &[u8], now_ms: u64) -> Option<Entry> {
        self.uses += 1;
        let kept = self.kept.get_mut(key).filter(|kept| kept.entry.expires_ms.is_none_or(|end| end > now_ms));
        let Some(kept) = kept else {
            self.stats.misses += 1;
            return None;
        };
        self.by_use.remove(&kept.used);
        kept.used = self.uses;
        self.by_use.insert(kept.used, key.to_vec());
        self.stats.hits += 1;
        Some(kept.entry.clone())
    }

    /// Notes that one has read; true when what was read may be old.
    fn end_reading(&mut self, key: &[u8]) -> bool {
        let Some(reading) = self.reading.get_mut(key) else { return true };
        reading.readers -= 1;
        let is_old = reading.is_old;
        if reading.readers == 0 {
            self.reading.remove(key);
        }
        is_old
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
            self.stats.evicted += 1;
        }
    }
}
