//! A query kept up to date in memory.
//!
//! An entry that was read has a version; events up to that version are passed over, so that nothing is missed and nothing is
//! applied twice.
//!
//! May use: `follow`, `entries`. Must not know: sockets, caches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast::space::{Document, Entry, Hears, Notice, NoticeKind, Value, Wanted, key_of};
use holdfast::{Error, ErrorKind, Position, Result};

use crate::call::Call;
use crate::entries::Entries;
use crate::follow::{Feed, Follow, Keeps};

/// Entries that are read at once, at the beginning.
const READ_MAX: usize = 1_000;

/// A query kept up to date in memory, over a store in the process or a server. The type is durable and has history.
///
/// **Staleness.** A call shows everything that was acknowledged longer than the view's staleness before the call began; with
/// zero, everything that was acknowledged before it. It may show more. While a server cannot be reached, a call waits until the view
/// is as fresh as that again, as long as other calls do, and fails with `Unavailable` then. With zero each call asks the server;
/// otherwise the server is asked to tell what happens, at least twice within the staleness.
///
/// Leases are the exception: an entry stays until the store has removed it, within a second after its lease has ended.
///
/// It shows whole entries, without an order; a query with ORDER BY, LIMIT or OFFSET is refused.
pub struct LocalView {
    follow: Follow<Found>,
}

struct Found {
    entries: Entries,
    wanted: Wanted,
    /// By the keys of entries, which begin with those of their ids.
    by_key: BTreeMap<Vec<u8>, Seen>,
    /// What was read to begin anew.
    read: Arc<Mutex<BTreeMap<Vec<u8>, Seen>>>,
}

struct Seen {
    document: Document,
    version: Position,
}

impl LocalView {
    /// Reads what matches, and keeps it up to date until it is dropped.
    ///
    /// # Errors
    /// `Invalid` when the type has no history or is volatile: what leaves a query could not be told; otherwise as
    /// [`Entries::read`].
    pub fn open(entries: &Entries, wanted: &Wanted, staleness: Duration) -> Call<Self> {
        let definition = entries.definition();
        if !definition.history || !entries.is_durable() {
            let text = "a view needs a durable type with history: what leaves a query could not be told";
            return Call::done(Err(Error::new(ErrorKind::Invalid, text)));
        }
        let hears = Hears { updated: true, ..Hears::MATCHING };
        let feed = Feed::new(entries, wanted, hears);
        let found =
            Found { entries: entries.clone(), wanted: wanted.clone(), by_key: BTreeMap::new(), read: Arc::default() };
        Follow::start(feed, found, staleness).then(|follow| Ok(Self { follow }))
    }

    /// The document of the entry with this id, if it matches; of several with different routing any.
    ///
    /// # Errors
    /// `Unavailable` when it is staler than it may be.
    pub fn get(&self, id: &Value) -> Call<Option<Document>> {
        let key = key_of(id.stored().get());
        self.follow.look(move |found| {
            let first = found.by_key.range(key.clone()..).next().filter(|(found, _)| found.starts_with(&key));
            first.map(|(_, seen)| seen.document.clone())
        })
    }

    /// The documents of all entries that match, by their ids, as of one instant.
    ///
    /// # Errors
    /// As [`LocalView::get`].
    pub fn all(&self) -> Call<Vec<Document>> {
        self.follow.look(|found| found.by_key.values().map(|seen| seen.document.clone()).collect())
    }

    /// How many entries match.
    ///
    /// # Errors
    /// As [`LocalView::get`].
    pub fn count(&self) -> Call<usize> {
        self.follow.look(|found| found.by_key.len())
    }
}

/// Reads all entries that match, a batch at a time.
async fn read_all(entries: Entries, wanted: Wanted, to: Arc<Mutex<BTreeMap<Vec<u8>, Seen>>>) -> Result<()> {
    let definition = entries.definition();
    let mut all = BTreeMap::new();
    let mut iteration = entries.iterate(&wanted).await?;
    loop {
        let some = iteration.next(READ_MAX).await?;
        if some.is_empty() {
            break;
        }
        for Entry { document, version, .. } in some {
            all.insert(definition.entry_key(document.fields()), Seen { document, version });
        }
    }
    *to.lock().unwrap_or_else(PoisonError::into_inner) = all;
    Ok(())
}

impl Keeps for Found {
    fn apply(&mut self, notices: Vec<Notice>) {
        let definition = self.entries.definition();
        for notice in notices {
            let Some(document) = notice.after.as_ref().or(notice.before.as_ref()) else { continue };
            let key = definition.entry_key(document.fields());
            let version = notice.bookmark.position();
            if self.by_key.get(&key).is_some_and(|seen| seen.version >= version) {
                continue;
            }
            match (notice.kind, notice.after) {
                (NoticeKind::Entered | NoticeKind::Updated | NoticeKind::Written, Some(document)) => {
                    self.by_key.insert(key, Seen { document, version });
                }
                _ => {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    fn begin(&mut self) -> Call<()> {
        let (entries, wanted, to) = (self.entries.clone(), self.wanted.clone(), Arc::clone(&self.read));
        Call::running(read_all(entries, wanted, to))
    }

    fn begun(&mut self) {
        self.by_key = std::mem::take(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use holdfast::space::{Definition, Path, ReadOptions, WriteOptions};
    use holdfast::{Options, Store};

    use super::*;
    use crate::Client;

    /// The two were one in the view, and gone from it when the first was taken.
    #[test]
    fn a_view_tells_entries_with_one_id_apart_by_their_routing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Options::default()).unwrap();
        let routing = Some(Path::parse("customer").unwrap());
        let definition = Definition { routing, history: true, ..Definition::new("shop", "order") };
        let orders = Client::embedded(&store).unwrap().space("shop").declare(definition).wait().unwrap();
        let open = || LocalView::open(&orders, &Wanted::all(), Duration::ZERO).wait().unwrap();
        let write = |customer: &str| {
            let document = Document::from_pairs([("id", Value::from(1i64)), ("customer", customer.into())]);
            orders.write(&document, &WriteOptions::default()).wait().map(|_| document)
        };
        let before = open();
        write("ada").unwrap();
        let other = ["bob", "eve", "joe", "ann", "tom"].into_iter().find_map(|customer| write(customer).ok()).unwrap();
        let after = open();
        assert_eq!((before.count().wait().unwrap(), after.count().wait().unwrap()), (2, 2));
        orders.take(&Wanted::id(1).routed("ada"), &ReadOptions::default()).wait().unwrap().unwrap();
        for view in [before, after] {
            assert_eq!(view.get(&1.into()).wait().unwrap().as_ref(), Some(&other));
            assert_eq!(view.all().wait().unwrap(), std::slice::from_ref(&other));
        }
    }
}
