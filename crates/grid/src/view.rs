//! A query kept up to date in memory.
//!
//! A view begins to listen, reads what matches, and from then on applies events. An entry that was read has a version; events
//! up to that version are passed over, so that nothing is missed and nothing is applied twice.
//!
//! May use: `holdfast`. Must not know: caches, workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{
    Definition, Document, Entries, Hears, Listen, Listener, Notice, NoticeKind, Value, Wanted, key_of,
};
use holdfast::{ErrorKind, Position, Result};

use crate::drain::{Drain, LISTEN_INTERVAL};

/// A query kept up to date in memory. Embedded: it stands in the process that has the store open.
///
/// **Staleness.** A call shows everything that was acknowledged longer than the view's staleness before the call began; with
/// zero, everything that was acknowledged before it. A call may show more. Leases are the exception: an entry stays until the
/// store has removed it, which happens within a second after its lease has ended.
///
/// It shows whole entries, without an order; a query with ORDER BY, LIMIT or OFFSET is refused.
pub struct LocalView {
    shared: Arc<Mutex<State>>,
    staleness: Duration,
    _drain: Drain,
}

struct State {
    entries: Entries,
    wanted: Wanted,
    listener: Listener,
    /// By the keys of entries, which begin with those of their ids.
    found: BTreeMap<Vec<u8>, Seen>,
    heard_at: Instant,
}

struct Seen {
    document: Document,
    version: Position,
}

impl LocalView {
    /// Reads what matches, and keeps it up to date.
    ///
    /// # Errors
    /// `Invalid` when the type is durable and has no history: what leaves a query could not be told; otherwise as
    /// [`Entries::read`].
    pub fn open(entries: &Entries, wanted: &Wanted, staleness: Duration) -> Result<Self> {
        let shared = Arc::new(Mutex::new(State::open(entries, wanted)?));
        let listening = Arc::clone(&shared);
        // An error comes again to who reads the view next, and is told there.
        let drain = Drain::start("view", LISTEN_INTERVAL, move || drop(locked(&listening).hear()))?;
        Ok(Self { shared, staleness, _drain: drain })
    }

    fn state(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = locked(&self.shared);
        if self.staleness.is_zero() || state.heard_at.elapsed() >= self.staleness {
            state.hear()?;
        }
        Ok(state)
    }

    /// The document of the entry with this id, if it matches; of several with different routing any.
    ///
    /// # Errors
    /// As [`Listener::next`].
    pub fn get(&self, id: &Value) -> Result<Option<Document>> {
        let key = key_of(id.stored().get());
        let state = self.state()?;
        let first = state.found.range(key.clone()..).next().filter(|(found, _)| found.starts_with(&key));
        Ok(first.map(|(_, seen)| seen.document.clone()))
    }

    /// The documents of all entries that match, by their ids, as of one instant.
    ///
    /// # Errors
    /// As [`Listener::next`].
    pub fn iter(&self) -> Result<impl Iterator<Item = Document> + use<>> {
        let found: Vec<Document> = self.state()?.found.values().map(|seen| seen.document.clone()).collect();
        Ok(found.into_iter())
    }

    /// How many entries match.
    ///
    /// # Errors
    /// As [`Listener::next`].
    pub fn count(&self) -> Result<usize> {
        Ok(self.state()?.found.len())
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn open(entries: &Entries, wanted: &Wanted) -> Result<Self> {
        let hears = Hears { updated: true, ..Hears::MATCHING };
        let listener = entries.listen(wanted, Listen { hears, ..Listen::default() })?;
        let (entries, wanted) = (entries.clone(), wanted.clone());
        let (found, heard_at) = (BTreeMap::new(), Instant::now());
        let mut this = Self { entries, wanted, listener, found, heard_at };
        let definition = this.entries.definition();
        // Partition by partition, so that writers wait for none but their own.
        let mut all = this.entries.iterate(&this.wanted)?;
        loop {
            let entries = all.next(1000)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let key = definition.entry_key(entry.document.fields());
                this.found.insert(key, Seen { document: entry.document, version: entry.version });
            }
        }
        // What happened while it was read is here by now: so the view begins as of one instant.
        this.hear()?;
        Ok(this)
    }

    /// Applies what was heard.
    fn hear(&mut self) -> Result<()> {
        // What is acknowledged after this may be missed by the polling.
        let begin = Instant::now();
        let definition = self.entries.definition();
        loop {
            match self.listener.poll() {
                Ok(Some(notice)) => self.apply(&definition, notice),
                Ok(None) => break,
                // Events were lost: those of a volatile type are nowhere else, and the journal may be damaged. Begin anew.
                Err(error) if matches!(error.kind(), ErrorKind::Limit | ErrorKind::Corrupt) => {
                    *self = Self::open(&self.entries, &self.wanted)?;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.heard_at = begin;
        Ok(())
    }

    fn apply(&mut self, definition: &Definition, notice: Notice) {
        let Some(document) = notice.after.as_ref().or(notice.before.as_ref()) else { return };
        let key = definition.entry_key(document.fields());
        let version = notice.bookmark.position();
        if self.found.get(&key).is_some_and(|seen| seen.version >= version) {
            return;
        }
        match (notice.kind, notice.after) {
            (NoticeKind::Entered | NoticeKind::Updated | NoticeKind::Written, Some(document)) => {
                self.found.insert(key, Seen { document, version });
            }
            _ => {
                self.found.remove(&key);
            }
        }
    }
}
