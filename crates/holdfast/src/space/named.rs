//! Listeners by name: the store keeps where they stand, and the journal behind it up to a bound.
//!
//! Each is an object of a bucket of the store's own (`kept.rs`), so it is durable, in backups, and moved by compaction without a line for it
//! anywhere else.
//!
//! Compaction keeps the journal from the bookmark that is farthest behind and within its bound; behind its bound a listener holds
//! nothing, and is told so when it comes. No bound is above the store's own, so what all of them hold has a maximum, whoever never
//! returns.
//!
//! One that is damaged has no place: it holds nothing, it is told so when it comes, and the others go on.
//!
//! May use: `kept`, `notify`, exclusive access, transactions. Must not know: protocols.

use std::time::Duration;

use ::space::TypeId;
use base::Time;
use journal::{Log, Position};
use kv::{Compression, FoldRange, Indexes, Metadata, Reading, Stored, Value};

use super::entries::Entries;
use super::kept::{Kept, key_of, split_key};
use super::notify::Bookmark;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Exclusive, Scope};
use crate::staged::Change;
use crate::store::{Inner, lock};
use crate::transaction::Transaction;

/// Hidden from users, as all whose names begin so.
const BUCKET: &[u8] = b"\0listener";

/// Whether it is the bucket in which the store keeps listeners.
pub(crate) fn is_of_listeners(bucket: &[u8]) -> bool {
    bucket == BUCKET
}
/// Longest name of a listener, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Listeners of one type that are known by name: all are looked at now and then.
const NAMES_MAX: usize = 1000;
/// How much journal a listener holds unless it says otherwise.
const RETAIN_BYTES: u64 = 1 << 30;
/// How old what compaction knows of listeners may be. What they acknowledge meanwhile only lets more go.
const KNOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// The name under which a listener stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenName {
    /// 1 to 256 bytes; of one type each is of one listener.
    pub name: String,
    /// How many bytes of journal may come to lie behind its bookmark before they are not held for it any more; `None` is as it was
    /// before, and of a new one 1 GiB. At most `Limits::listener_retain_bytes_max`.
    pub retain_bytes: Option<u64>,
}

/// A listener that the store knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownListener {
    /// Its name.
    pub name: String,
    /// What it has acknowledged.
    pub bookmark: Bookmark,
    /// How many bytes of journal it may hold.
    pub retain_bytes: u64,
    /// How many were written since its bookmark, those of everybody.
    pub behind_bytes: u64,
    /// Whether what it has not acknowledged is held for it. If not it may be gone.
    pub is_held: bool,
    /// Whether what the store kept of it is damaged: its bookmark is lost then, and it has to be forgotten.
    pub is_damaged: bool,
}

/// What compaction knows of all of them.
#[derive(Default)]
pub(crate) struct Known {
    read_at: Option<Time>,
    kept: Vec<Kept>,
}

/// One that was ever named.
struct Named {
    of: TypeId,
    name: String,
    /// `None` when it is damaged.
    kept: Option<Kept>,
}

impl Inner {
    /// All that were ever named, with their types.
    fn named(&self) -> Result<Vec<Named>> {
        let mut list = Vec::new();
        let all = FoldRange::all(Some(BUCKET)).bounds(Reading::Sweep);
        for partition in &self.partitions {
            let mut items = partition.reader.items(&all, 0);
            while let Some(item) = items.step()? {
                // Keys are written here alone, and a key that nobody could have named names nobody.
                let Some((of, name)) = split_key(item.key_in(BUCKET)) else { continue };
                let name = name.to_owned();
                let kept = match partition.reader.value_of(&item) {
                    // It was moved, or forgotten, since the sweep began.
                    Err(kv::Error::Journal(journal::Error::Missing { .. })) => match self.named_one(of, &name)? {
                        Some(named) => named.kept,
                        None => continue,
                    },
                    value => kept_of(value)?,
                };
                list.push(Named { of, name, kept });
            }
        }
        list.sort_by(|a, b| (a.of, &a.name).cmp(&(b.of, &b.name)));
        Ok(list)
    }

    /// One of them.
    fn named_one(&self, of: TypeId, name: &str) -> Result<Option<Named>> {
        let key = key_of(of, name);
        let found = self.partition(BUCKET, &key).reader.get(BUCKET, &key, 0).map(|found| found.value);
        let kept = match found {
            Ok(None) => return Ok(None),
            Ok(Some(object)) => kept_of(Ok(object.value))?,
            Err(error) => kept_of(Err(error))?,
        };
        Ok(Some(Named { of, name: name.to_owned(), kept }))
    }

    fn is_held(&self, kept: Kept) -> bool {
        let from = kept.bookmark.position();
        if kept.bookmark != Bookmark::START && from < self.feed_floor() {
            return false;
        }
        let behind = self.journal_bytes_behind(from);
        // The limit may have been another when it was named.
        behind <= kept.retain_bytes.min(self.options.limits.listener_retain_bytes_max)
    }

    /// From where the journal is kept for listeners by name.
    pub(crate) fn listeners_keep(&self) -> Position {
        let mut known = lock(&self.listeners_known);
        let now = self.clock.now();
        if known.read_at.is_none_or(|at| now.since(at) >= KNOWN_TIME_MAX) {
            // Whatever cannot be read may be a bookmark at the beginning.
            let Ok(named) = self.named() else { return Position::ZERO };
            known.kept = named
                .iter()
                .filter(|named| self.spaces.get(named.of).is_some())
                .filter_map(|named| named.kept)
                .collect();
            known.read_at = Some(now);
        }
        let held = known.kept.iter().filter(|kept| self.is_held(**kept));
        held.map(|kept| kept.bookmark.position()).min().unwrap_or(Position::MAX)
    }

    /// Has compaction look anew.
    fn forget_known(&self) {
        lock(&self.listeners_known).read_at = None;
    }

    /// Removes what is kept of a type's listeners.
    pub(crate) fn drop_listeners(&self, of: TypeId) -> Result<()> {
        for named in self.named()?.into_iter().filter(|named| named.of == of) {
            self.change_listener(of, &named.name, Change::Delete)?;
        }
        Ok(())
    }

    fn change_listener(&self, of: TypeId, name: &str, change: Change) -> Result<Position> {
        let key = key_of(of, name);
        let mut exclusive = Exclusive::open(self, &Scope::Keys(&[(BUCKET, &key)]))?;
        exclusive.stage(BUCKET, &key, change)?;
        let position = exclusive.commit()?.position;
        self.forget_known();
        Ok(position)
    }

    /// Keeps where a listener begins. `goes_on` is where it stood: what somebody acknowledged since then stays so.
    fn keep_listener(&self, of: TypeId, name: &str, mut kept: Kept, goes_on: bool) -> Result<(Kept, Position)> {
        let key = key_of(of, name);
        let mut exclusive = Exclusive::open(self, &Scope::Keys(&[(BUCKET, &key)]))?;
        if goes_on && let Some(Kept { bookmark, .. }) = self.named_one(of, name)?.and_then(|named| named.kept) {
            kept.bookmark = kept.bookmark.max(bookmark);
        }
        exclusive.stage(BUCKET, &key, put(kept))?;
        let position = exclusive.commit()?.position;
        self.forget_known();
        Ok((kept, position))
    }
}

/// What is kept as this value; `None` when it is damaged.
fn kept_of(value: kv::Result<Value>) -> Result<Option<Kept>> {
    match value {
        Ok(value) => Ok(Kept::decode(value.as_ref())),
        Err(kv::Error::Value { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn put(kept: Kept) -> Change {
    let stored = Stored::new(kept.encode().as_bytes(), Compression::None);
    Change::Put { stored, metadata: Metadata::default(), indexes: Indexes::default(), expires_ms: 0 }
}

fn damaged(name: &str) -> Error {
    let text = format!(
        "what the store keeps of the listener {name} is damaged, and so where it stood is lost: forget it, read what is there, \
         and listen anew"
    );
    Error::new(ErrorKind::Corrupt, text)
}

impl Entries {
    /// All of the type that are known by name.
    fn named(&self) -> Result<Vec<Named>> {
        let mut list = self.inner().named()?;
        list.retain(|named| named.of == self.kind.of);
        Ok(list)
    }

    fn known(&self, name: &str) -> Result<Kept> {
        self.check()?;
        match self.inner().named_one(self.kind.of, name)? {
            Some(named) => named.kept.ok_or_else(|| damaged(name)),
            None => {
                let text = format!("the type has no listener named {name}: listen by that name first");
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }

    /// Where a listener of this name begins: where it stood, where it is told to, or, if it is new, now. The store knows it from then on.
    pub(super) fn begin_as(&self, as_name: &ListenName, from: Option<Bookmark>) -> Result<Bookmark> {
        let name = as_name.name.as_str();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let text = format!("the name of a listener has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if !self.is_durable() {
            let text = "entries of a volatile type are in no journal: listen without a name";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let inner = self.inner();
        let max = inner.options.limits.listener_retain_bytes_max;
        if let Some(bytes) = as_name.retain_bytes.filter(|bytes| *bytes > max) {
            let text = format!("no listener may have {bytes} bytes of journal held for it: at most {max}");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        let others = self.named()?;
        let old = match others.iter().find(|named| named.name == name) {
            // Who says where it is to stand repairs it.
            Some(Named { kept: None, .. }) if from.is_none() => return Err(damaged(name)),
            Some(named) => named.kept,
            None => None,
        };
        let now = inner.journal.watermarks().appended;
        let floor = inner.feed_floor();
        let bookmark = match from.or(old.map(|old| old.bookmark)) {
            None => Bookmark::before(now),
            // A place, not a word: what goes from the journal before it was acknowledged is missed, and said so.
            Some(Bookmark::START) => Bookmark::before(floor),
            Some(bookmark) => bookmark,
        };
        let retain_bytes = as_name.retain_bytes.or(old.map(|old| old.retain_bytes)).unwrap_or(RETAIN_BYTES).min(max);
        let kept = Kept { bookmark, retain_bytes };
        if bookmark.position() < floor && from.is_some() {
            let text =
                format!("the journal reaches back to {floor}, not to {bookmark}: listen from START, or without FROM");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if bookmark.position() < floor {
            let text = format!(
                "the listener {name} stands at {bookmark} and the journal reaches back to {floor}: more than its {} bytes were \
                 written since. Forget it, read what is there, and listen anew",
                old.map_or(retain_bytes, |old| old.retain_bytes.min(max))
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if bookmark.position() > now {
            let text = format!("the journal has positions up to {now}, not {}", bookmark.position());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if old.is_none() && others.len() >= NAMES_MAX {
            let text = format!("the type has {NAMES_MAX} listeners by name already: forget one first");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        if old == Some(kept) {
            return Ok(bookmark);
        }
        let (kept, position) = inner.keep_listener(self.kind.of, name, kept, from.is_none())?;
        self.store.wait(position, self.store.durability())?;
        Ok(kept.bookmark)
    }

    /// Notes durably that a listener has done with all up to a bookmark: it goes on behind it, whoever it is then, and the journal
    /// before it may go. A bookmark before what was acknowledged already changes nothing.
    ///
    /// # Errors
    /// `Invalid` when there is no listener of that name, or no such bookmark yet; `Corrupt` when what is kept of it is damaged; as
    /// [`Exclusive::commit`].
    pub fn acknowledge(&self, name: &str, bookmark: Bookmark, durability: Option<Durability>) -> Result<()> {
        if self.acknowledged(name, bookmark)?.is_none() {
            return Ok(());
        }
        // Once more where nobody else can change it: another connection may have acknowledged more, or forgotten the name.
        let (inner, key) = (self.inner(), key_of(self.kind.of, name));
        let mut exclusive = Exclusive::open(inner, &Scope::Keys(&[(BUCKET, &key)]))?;
        let found = exclusive.holds(BUCKET, &key)?.reader.get(BUCKET, &key, 0)?.value;
        let kept = found.and_then(|object| Kept::decode(&object.value)).filter(|kept| bookmark > kept.bookmark);
        let Some(kept) = kept else { return Ok(()) };
        exclusive.stage(BUCKET, &key, put(Kept { bookmark, ..kept }))?;
        let position = exclusive.commit()?.position;
        inner.forget_known();
        self.settle_change(position, durability)
    }

    /// The same as part of a transaction: what was done about events and that they are done with is one batch, so that each is
    /// done with exactly once. Of two transactions that acknowledge for one listener at the same time the second to commit fails.
    ///
    /// # Errors
    /// As [`Entries::acknowledge`].
    pub fn acknowledge_within(&self, transaction: &mut Transaction, name: &str, bookmark: Bookmark) -> Result<()> {
        let key = key_of(self.kind.of, name);
        transaction.watch_own(BUCKET, &key)?;
        if let Some(kept) = self.acknowledged(name, bookmark)? {
            transaction.stage_own(BUCKET, &key, put(kept));
        }
        Ok(())
    }

    /// Bucket and key of the object by which the store knows a listener: what [`Exclusive::acknowledge`] needs in its scope. It is the
    /// store's own, and no operation on objects is let at it.
    #[must_use]
    pub fn listener_object(&self, name: &str) -> (&'static [u8], Vec<u8>) {
        (BUCKET, key_of(self.kind.of, name))
    }

    fn acknowledged(&self, name: &str, bookmark: Bookmark) -> Result<Option<Kept>> {
        let kept = self.known(name)?;
        let now = self.inner().journal.watermarks().appended;
        if bookmark.position() > now {
            let text = format!("the journal has positions up to {now}, not {}", bookmark.position());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok((bookmark > kept.bookmark).then_some(Kept { bookmark, ..kept }))
    }

    /// The listeners of the type that the store knows by name, in order.
    ///
    /// # Errors
    /// `Closed`.
    pub fn known_listeners(&self) -> Result<Vec<KnownListener>> {
        self.check()?;
        let inner = self.inner();
        let newest = inner.newest().get();
        let known = |Named { name, kept, .. }: Named| {
            let Kept { bookmark, retain_bytes } = kept.unwrap_or_default();
            KnownListener {
                name,
                bookmark,
                retain_bytes,
                behind_bytes: kept.map_or(0, |kept| newest.saturating_sub(kept.bookmark.position().get())),
                is_held: kept.is_some_and(|kept| inner.is_held(kept)),
                is_damaged: kept.is_none(),
            }
        };
        Ok(self.named()?.into_iter().map(known).collect())
    }

    /// Forgets a listener by name, and lets go of what is held for it. False if there is none.
    ///
    /// # Errors
    /// As [`Exclusive::commit`].
    pub fn forget_listener(&self, name: &str) -> Result<bool> {
        self.check()?;
        if self.inner().named_one(self.kind.of, name)?.is_none() {
            return Ok(false);
        }
        let position = self.inner().change_listener(self.kind.of, name, Change::Delete)?;
        self.settle_change(position, None)?;
        Ok(true)
    }
}

impl Exclusive<'_> {
    /// As [`Entries::acknowledge`], in this batch: what was done about events and that they are done with happens together. Needs
    /// [`Entries::listener_object`] in its scope. Durable as the batch is.
    ///
    /// # Errors
    /// As there; `Internal` when it is not in the scope.
    pub fn acknowledge(&mut self, entries: &Entries, name: &str, bookmark: Bookmark) -> Result<()> {
        let key = key_of(entries.kind.of, name);
        self.holds(BUCKET, &key)?;
        let Some(kept) = entries.acknowledged(name, bookmark)? else { return Ok(()) };
        let staged = match self.changes.get(BUCKET, &key) {
            Some(Change::Put { stored, .. }) => Kept::decode(&stored.value()),
            _ => None,
        };
        if staged.is_some_and(|staged| staged.bookmark >= bookmark) {
            return Ok(());
        }
        self.stage(BUCKET, &key, put(kept))
    }
}

#[cfg(test)]
mod tests {
    use ::space::Definition;

    use super::super::notify::Listen;
    use super::super::wanted::Wanted;
    use super::*;
    use crate::PutOptions;
    use crate::options::Options;
    use crate::store::Store;

    fn declare(store: &Store, name: &str) -> Entries {
        store.space("shop").declare(Definition { history: true, ..Definition::new("shop", name) }).unwrap()
    }

    fn listen_as(name: &str) -> Listen {
        Listen { name: Some(ListenName { name: name.to_owned(), retain_bytes: None }), ..Listen::default() }
    }

    fn garbage() -> Change {
        let stored = Stored::new(b"1 garbage", Compression::None);
        Change::Put { stored, metadata: Metadata::default(), indexes: Indexes::default(), expires_ms: 0 }
    }

    /// One bookmark that did not decode kept every listener of the store from listening, and the journal for ever.
    #[test]
    fn a_damaged_bookmark_is_the_trouble_of_its_listener_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Options::default()).unwrap();
        let orders = declare(&store, "order");
        let quotes = declare(&store, "quote");
        let stands = quotes.listen(&Wanted::all(), listen_as("mailer")).unwrap().bookmark();
        orders.listen(&Wanted::all(), listen_as("broken")).unwrap();
        let healthy = orders.listen(&Wanted::all(), listen_as("healthy")).unwrap().bookmark();
        store.inner().change_listener(orders.kind.of, "broken", garbage()).unwrap();

        orders.acknowledge("healthy", healthy, None).unwrap();
        orders.listen(&Wanted::all(), listen_as("healthy")).unwrap();
        quotes.listen(&Wanted::all(), listen_as("mailer")).unwrap();
        assert_eq!(store.inner().listeners_keep(), stands.position(), "the journal is kept for the others alone");
        let known = orders.known_listeners().unwrap();
        let shown: Vec<_> = known.iter().map(|it| (it.name.as_str(), it.is_damaged, it.is_held)).collect();
        assert_eq!(shown, [("broken", true, false), ("healthy", false, true)]);
        for error in [
            orders.listen(&Wanted::all(), listen_as("broken")).map(drop).unwrap_err(),
            orders.acknowledge("broken", healthy, None).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("forget it"), "{error}");
        }
        // Both ways out.
        let from = Some(Bookmark::START);
        orders.listen(&Wanted::all(), Listen { from, ..listen_as("broken") }).unwrap();
        store.inner().change_listener(orders.kind.of, "broken", garbage()).unwrap();
        assert!(orders.forget_listener("broken").unwrap());
        orders.listen(&Wanted::all(), listen_as("broken")).unwrap();
    }

    /// A type that is not there may only not be there now: its snapshots may be damaged, and put back.
    #[test]
    fn listeners_go_with_their_type_and_not_when_it_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let names = |store: &Store| -> Vec<String> {
            store.inner().named().unwrap().into_iter().map(|named| named.name).collect()
        };
        {
            let store = Store::open(folder.path(), Options::default()).unwrap();
            declare(&store, "order").listen(&Wanted::all(), listen_as("stays")).unwrap();
            declare(&store, "quote").listen(&Wanted::all(), listen_as("goes")).unwrap();
            assert_eq!(names(&store), ["stays", "goes"]);
            store.space("shop").drop_type("quote").unwrap();
            assert_eq!(names(&store), ["stays"]);
            let kept = Kept { bookmark: Bookmark::START, retain_bytes: 7 };
            store.inner().change_listener(TypeId(99), "not loaded", put(kept)).unwrap();
            store.close().unwrap();
        }
        let store = Store::open(folder.path(), Options::default()).unwrap();
        assert_eq!(names(&store), ["stays", "not loaded"]);
        assert_eq!(store.inner().listeners_keep(), store.inner().named().unwrap()[0].kept.unwrap().bookmark.position());
    }

    /// The scope of a batch names where listeners are kept, which lets nobody at them.
    #[test]
    fn a_batch_acknowledges_in_its_scope_and_nothing_else_gets_at_what_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let orders = declare(&store, "orders");
        let name = Some(ListenName { name: "mailer".to_owned(), retain_bytes: None });
        let now = orders.listen(&Wanted::all(), Listen { name, ..Listen::default() }).unwrap().bookmark();
        let (bucket, key) = orders.listener_object("mailer");
        let mut without = store.exclusive(&Scope::Keys(&[(b"b", b"k")])).unwrap();
        without.put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
        let outside = without.acknowledge(&orders, "mailer", now).map_err(|error| error.kind());
        // It may lie in the same partition.
        assert!(matches!(outside, Ok(()) | Err(ErrorKind::Internal)));
        drop(without);
        let mut within = store.exclusive(&Scope::Keys(&[(b"b", b"k"), (bucket, &key)])).unwrap();
        for refused in [
            within.put(bucket, &key, b"x", &PutOptions::default()).unwrap_err(),
            within.get(bucket, &key).map(|_| ()).unwrap_err(),
            within.delete(bucket, &key).unwrap_err(),
            within.expire(bucket, &key, Some(1)).unwrap_err(),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Invalid);
        }
        within.acknowledge(&orders, "mailer", now).unwrap();
        within.commit().unwrap();
        let other = store.exclusive(&Scope::Keys(&[(b"\0xa", b"d")])).map(|_| ()).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Invalid);
    }

    /// Who began while somebody acknowledged took that back.
    #[test]
    fn beginning_takes_back_no_acknowledgement() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Options::default()).unwrap();
        let orders = declare(&store, "order");
        let read_before = orders.listen(&Wanted::all(), listen_as("mailer")).unwrap().bookmark();
        store.kv().put(b"b", b"k", b"v", &crate::kv::PutOptions::default()).unwrap();
        let now = Bookmark::before(store.inner().journal.watermarks().appended);
        orders.acknowledge("mailer", now, None).unwrap();
        let stale = Kept { bookmark: read_before, retain_bytes: 7 };
        let begin = |goes_on| store.inner().keep_listener(orders.kind.of, "mailer", stale, goes_on).unwrap().0;
        assert_eq!(begin(true), Kept { bookmark: now, retain_bytes: 7 });
        assert_eq!(orders.known_listeners().unwrap()[0].bookmark, now);
        assert_eq!(begin(false), stale, "who says where it is to stand is believed");
    }

    /// A ledger or a journal that cannot be read is not the damage of one listener, which holds nothing then.
    #[test]
    fn only_a_value_that_is_not_what_was_put_is_a_damaged_listener() {
        let damaged = kv::Error::Value { at: 7, reason: "checksum mismatch" };
        assert_eq!(kept_of(Err(damaged)).unwrap(), None);
        for error in [
            kv::Error::Ledger { path: String::new(), reason: "damaged".to_owned() },
            kv::Error::Command,
            kv::Error::Journal(journal::Error::Missing { position: Position::new(7) }),
        ] {
            kept_of(Err(error)).unwrap_err();
        }
    }

    #[test]
    fn no_listener_holds_more_than_the_store_allows() {
        let folder = tempfile::tempdir().unwrap();
        let open = |listener_retain_bytes_max| {
            let limits = base::Limits { listener_retain_bytes_max, ..base::Limits::default() };
            Store::open(folder.path(), Options { limits, ..Options::default() }).unwrap()
        };
        let store = open(5000);
        let orders = declare(&store, "order");
        let ask = |retain_bytes| {
            let name = Some(ListenName { name: "away".to_owned(), retain_bytes });
            orders.listen(&Wanted::all(), Listen { name, ..Listen::default() }).map(drop)
        };
        let error = ask(Some(5001)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.to_string().contains("at most 5000"), "{error}");
        assert!(orders.known_listeners().unwrap().is_empty());
        ask(None).unwrap();
        assert_eq!(orders.known_listeners().unwrap()[0].retain_bytes, 5000, "not the 1 GiB of other stores");
        store.kv().put(b"b", b"k", &[7; 3000], &crate::kv::PutOptions::default()).unwrap();
        assert!(orders.known_listeners().unwrap()[0].is_held);
        store.close().unwrap();
        drop((orders, store));
        // A lower limit counts for those who were named before.
        let store = open(100);
        let orders = store.space("shop").entries("order").unwrap();
        assert!(!orders.known_listeners().unwrap()[0].is_held);
        assert_eq!(store.inner().listeners_keep(), Position::MAX);
    }
}
