//! A cache of entries by id, which events make forget.
//!
//! An entry is read without the cache's lock, and kept only if no event of it was heard meanwhile. So what is kept is never older
//! than what was heard.
//!
//! May use: `follow`, `entries`. Must not know: sockets, views.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast::space::{Entry, Hears, NearCounts, NearTable, Notice, ReadOptions, Value, Wanted, key_of};
use holdfast::{Error, ErrorKind};

use crate::call::Call;
use crate::entries::Entries;
use crate::follow::{Feed, Follow, Keeps};

/// Entries of a durable type, kept near by their ids, over a store in the process or a server.
///
/// **Staleness.** As of [`LocalView`](crate::LocalView): a read shows everything that was acknowledged longer than the cache's
/// staleness before the read began, or waits, or fails with `Unavailable`. With zero each read asks the server what happened, so
/// that a cache over a server needs more than zero to be worth it.
///
/// Leases are looked at with each read, by this program's clock; one that was made shorter is not heard of until the entry goes.
pub struct NearCache {
    entries: Entries,
    follow: Follow<Near>,
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
    /// Times that everything was forgotten, because events may have been missed.
    pub cleared: u64,
    /// Entries that it has.
    pub entries: u64,
}

struct Near {
    id_field: String,
    table: NearTable,
    is_begun: bool,
    cleared: u64,
}

impl NearCache {
    /// An empty cache of at most so many entries.
    ///
    /// # Errors
    /// `Invalid` when the type is volatile; otherwise as [`Entries::listen`].
    pub fn open(entries: &Entries, entries_max: usize, staleness: Duration) -> Call<Self> {
        let definition = entries.definition();
        if !entries.is_durable() {
            let text = "a cache needs a durable type: what happens to volatile entries is in no journal";
            return Call::done(Err(Error::new(ErrorKind::Invalid, text)));
        }
        // Of a type without history all that are written are told as if they came.
        let hears = Hears { updated: definition.history, ..Hears::ALL };
        let near =
            Near { id_field: definition.id.clone(), table: NearTable::new(entries_max), is_begun: false, cleared: 0 };
        let entries = entries.clone();
        let feed = Feed::new(&entries, &Wanted::all(), hears);
        Follow::start(feed, near, staleness).then(move |follow| Ok(Self { entries, follow }))
    }

    /// The entry with this id: from the cache, or from the space, and then the cache has it.
    ///
    /// # Errors
    /// As [`Entries::read`]; `Unavailable` when what is kept is staler than it may be.
    pub fn read(&self, id: &Value) -> Call<Option<Entry>> {
        let key = key_of(id.stored().get());
        let looked = {
            let key = key.clone();
            self.follow.look(move |near| near.table.get(&key, now_ms()))
        };
        let (entries, near, wanted) = (self.entries.clone(), self.follow.kept(), Wanted::id(id.clone()));
        looked.and_then(move |kept| {
            if kept.is_some() {
                return Call::done(Ok(kept));
            }
            near.kept().table.begin_reading(&key);
            // However it ends, also when it is dropped, it is not being read any more.
            let mut reads = Reads { near, key, read: None };
            entries.read(&wanted, &ReadOptions::default()).then(move |read| {
                reads.read.clone_from(&read);
                Ok(read)
            })
        })
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> NearStats {
        let near = self.follow.kept();
        let near = near.kept();
        let NearCounts { hits, misses, invalidated, evicted, entries } = near.table.counts();
        NearStats { hits, misses, invalidated, evicted, cleared: near.cleared, entries }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// One who reads an entry from the space.
struct Reads {
    near: std::sync::Arc<crate::follow::Shared<Near>>,
    key: Vec<u8>,
    read: Option<Entry>,
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.near.kept().table.end_reading(&self.key, self.read.as_ref());
    }
}

impl Keeps for Near {
    fn apply(&mut self, notices: Vec<Notice>) {
        let id_field = self.id_field.clone();
        for notice in notices {
            let document = notice.after.as_ref().or(notice.before.as_ref());
            if let Some(id) = document.and_then(|document| document.get(&id_field)) {
                self.table.forget(&key_of(id));
            }
        }
    }

    fn begin(&mut self) -> Call<()> {
        // What is kept from before goes, and what is being read may be from before too.
        if std::mem::replace(&mut self.is_begun, true) {
            self.cleared += 1;
        }
        self.table.clear();
        Call::done(Ok(()))
    }

    fn begun(&mut self) {}
}
