//! A cache of entries by id, which events make forget.
//!
//! An entry is read from the space without the cache's lock, and kept only if no event of it was heard meanwhile: so what is
//! kept is never older than what the listener has passed.
//!
//! May use: `holdfast`. Must not know: views, workers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{
    Entries, Entry, Hears, Listen, Listener, NearCounts, NearTable, ReadOptions, Storage, Value, Wanted, key_of,
};
use holdfast::{ErrorKind, Result, Store};

use crate::drain::{Drain, LISTEN_INTERVAL};

/// Entries of a type, kept near by their ids. Embedded: it stands in the process that has the store open.
///
/// **Staleness.** A read shows everything that was acknowledged longer than the cache's staleness before the read began; with
/// zero, everything that was acknowledged before it. Leases are looked at with each read; one that was made shorter is not
/// heard of until the entry goes. When events are lost, because the journal is damaged or too many came at once of a volatile
/// type, it forgets everything, and counts that in [`NearStats::emptied`].
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
    /// Times that events were lost, and it forgot everything.
    pub emptied: u64,
}

struct State {
    entries: Entries,
    listener: Listener,
    table: NearTable,
    /// Entries that went because events were lost, and how often that was.
    lost: u64,
    emptied: u64,
    heard_at: Instant,
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
            table: NearTable::new(entries_max),
            lost: 0,
            emptied: 0,
            heard_at: Instant::now(),
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
            if let Some(entry) = state.table.get(&key, self.store.now_ms()) {
                return Ok(Some(entry));
            }
            state.table.begin_reading(&key);
        }
        let read = self.entries.read(&Wanted::id(id.clone()), &ReadOptions::default());
        let mut state = locked(&self.shared);
        // What was heard until here, or is on its way, is later than what was read.
        let heard = state.hear();
        let keeps = read.as_ref().ok().and_then(Option::as_ref).filter(|_| heard.is_ok());
        state.table.end_reading(&key, keeps);
        read
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> NearStats {
        let state = locked(&self.shared);
        let NearCounts { hits, misses, invalidated, evicted, entries } = state.table.counts();
        let (invalidated, emptied) = (invalidated + state.lost, state.emptied);
        NearStats { hits, misses, invalidated, evicted, entries, emptied }
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
                        self.table.forget(&key_of(id));
                    }
                }
                Ok(None) => break,
                // Events were lost. Of a volatile type, because too many came; of a durable one, because the journal is damaged:
                // that is told once, to whoever listens then. Forget everything, then nothing is old.
                Err(error) if matches!(error.kind(), ErrorKind::Limit | ErrorKind::Corrupt) => {
                    self.lost += self.table.clear();
                    self.emptied += 1;
                    self.listener = listen(&self.entries)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.heard_at = begin;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast::space::{Bookmark, Definition, Document, WriteOptions};
    use holdfast::{Durability, Limits, Options};

    use super::*;

    /// A cache's listener that had to go back to the journal met damage there. The error went to the thread that listens for
    /// nobody, and the cache went on to show what the lost events had made old.
    #[test]
    fn a_cache_forgets_everything_when_events_are_lost() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
            let store = Store::open(folder.path(), options).unwrap();
            let definition = Definition { history: true, ..Definition::new("shop", "order") };
            let orders = store.space("shop").declare(definition).unwrap();
            (store, orders)
        };
        let order = |id: i64, text: &str| Document::from_pairs([("id", Value::from(id)), ("text", text.into())]);
        let (store, orders) = open();
        orders.write(&order(1, "before"), &WriteOptions::default()).unwrap();
        orders.write(&order(1, "the event that is lost"), &WriteOptions::default()).unwrap();
        orders.write(&order(2, "behind"), &WriteOptions::default()).unwrap();
        store.close().unwrap();
        drop((store, orders));
        damage(folder.path(), b"the event that is lost");
        let (store, orders) = open();
        let cache = NearCache::open(&store, &orders, 10, Duration::from_secs(3600)).unwrap();
        cache.read(&Value::from(2)).unwrap().unwrap();
        assert_eq!((cache.stats().entries, cache.stats().emptied), (1, 0));
        // As after its buffer has overflown.
        let from = Some(Bookmark::START);
        let behind = orders.listen(&Wanted::all(), Listen { from, ..Listen::default() }).unwrap();
        let mut state = locked(&cache.shared);
        state.listener = behind;
        state.hear().unwrap();
        drop(state);
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.emptied), (0, 1), "{stats:?}");
        // It goes on.
        cache.read(&Value::from(2)).unwrap().unwrap();
        orders.write(&order(2, "later"), &WriteOptions::default()).unwrap();
        locked(&cache.shared).hear().unwrap();
        assert_eq!(cache.stats().entries, 0);
    }

    /// Changes a byte where the journal has this text.
    fn damage(folder: &std::path::Path, text: &[u8]) {
        let mut changed = 0;
        for file in std::fs::read_dir(folder.join("journal")).unwrap() {
            let path = file.unwrap().path();
            let Ok(mut bytes) = std::fs::read(&path) else { continue };
            if let Some(at) = bytes.windows(text.len()).position(|part| part == text) {
                bytes[at] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                changed += 1;
            }
        }
        assert_eq!(changed, 1);
    }
}
