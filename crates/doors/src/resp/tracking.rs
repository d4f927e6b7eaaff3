//! CLIENT TRACKING: which connections are to hear that a key, or an entry of a space, has changed, so that their clients may keep what they read of it.
//!
//! A connection *asks* for keys: for each that it reads, once, or for all that begin with some prefixes. A key that changes is put into the connection's
//! *news*, and the connection, woken, pushes them to its client behind the replies that it owes already. As with Redis, keys are told by
//! name, those of numbered databases alone, and which database it was is not said. An entry is told as `space/type/id`, its id as JSON.
//!
//! Everything is bounded. Who has more news than it takes is told to forget everything, and so is one whose keys are too many.
//!
//! May use: the facade's `KeyWatcher`, `clients`. Must not know: sockets, commands.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::{cell::Cell, mem};

use holdfast::KeyWatcher;
use holdfast::space::ValueRef;

use super::clients::Client;
use super::reply::Reply;
use crate::auth::{Right, User};

/// Parts of the table of keys, each with a lock of its own.
const PARTS: usize = 64;
/// Keys and bytes of news that wait for a connection at the most: there may be ten thousand that do not read theirs.
const NEWS_KEYS_MAX: usize = 4 << 10;
const NEWS_BYTES_MAX: usize = 128 << 10;

thread_local! {
    /// The connection whose command this thread runs; 0 is none's.
    static ACTING: Cell<u64> = const { Cell::new(0) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is written whole: a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a connection wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Of each key that it reads.
    Read,
    /// Of each key that it reads behind CLIENT CACHING YES.
    OptIn,
    /// Of each key that it reads, but behind CLIENT CACHING NO.
    OptOut,
    /// Of all keys with its prefixes.
    Broadcast,
}

/// One connection's wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    /// With [`Mode::Broadcast`]; none are all keys.
    pub(crate) prefixes: Vec<Vec<u8>>,
    /// Not of what it changes itself.
    pub(crate) no_loop: bool,
}

/// Who hears.
pub(crate) struct Listener {
    id: u64,
    mode: Mode,
    /// What may be said anew of one that hears already.
    prefixes: RwLock<Vec<Vec<u8>>>,
    no_loop: AtomicBool,
    inbox: Mutex<Inbox>,
    /// Whether there may be news.
    has_news: AtomicBool,
    is_gone: AtomicBool,
}

/// What goes with the connection: keys that it has asked for keep the rest.
#[derive(Default)]
struct Inbox {
    news: News,
    /// None when it is gone.
    client: Option<Arc<Client>>,
    /// Hears of buckets that it may read.
    user: Option<Arc<User>>,
}

/// What a connection is to tell its client.
#[derive(Default)]
pub(crate) struct News {
    keys: Vec<Vec<u8>>,
    bytes: usize,
    /// It is to forget everything.
    all: bool,
}

impl News {
    /// The messages that say so.
    pub(crate) fn write(&self, reply: &mut Reply) {
        if self.all {
            reply.push(2);
            reply.text("invalidate");
            reply.null();
        } else if !self.keys.is_empty() {
            reply.push(2);
            reply.text("invalidate");
            reply.array(self.keys.len());
            self.keys.iter().for_each(|key| reply.bulk(key));
        }
    }
}

impl Listener {
    pub(crate) fn wish(&self) -> Wish {
        let no_loop = self.no_loop.load(Ordering::Acquire);
        Wish { mode: self.mode, prefixes: self.prefixes().clone(), no_loop }
    }

    fn prefixes(&self) -> std::sync::RwLockReadGuard<'_, Vec<Vec<u8>>> {
        self.prefixes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it wish otherwise in the same mode. What it has asked for, and has not been told yet, stays.
    pub(crate) fn wish_again(&self, wish: Wish) {
        self.no_loop.store(wish.no_loop, Ordering::Release);
        *self.prefixes.write().unwrap_or_else(PoisonError::into_inner) = wish.prefixes;
    }

    pub(crate) fn take_news(&self) -> Option<News> {
        // What comes in behind the swap sets it again.
        self.has_news.swap(false, Ordering::AcqRel).then(|| mem::take(&mut lock(&self.inbox).news))
    }

    fn may_read(&self, bucket: &[u8]) -> bool {
        let user = lock(&self.inbox).user.clone();
        user.is_none_or(|user| user.may(Right::Read, bucket))
    }

    /// Whether it hears of a key though it has not read it. Of entries only who names a prefix does.
    fn hears_all_of(&self, bucket: &[u8], key: &[u8], is_entry: bool) -> bool {
        let is_wanted = || {
            let prefixes = self.prefixes();
            prefixes.is_empty() && !is_entry || prefixes.iter().any(|prefix| key.starts_with(prefix))
        };
        self.mode == Mode::Broadcast && is_wanted() && self.may_read(bucket)
    }

    /// It hears no more, and holds nothing.
    fn leave(&self) {
        self.is_gone.store(true, Ordering::Release);
        *lock(&self.inbox) = Inbox::default();
    }

    /// `None` is all keys.
    fn tell(&self, key: Option<&[u8]>) {
        if !self.no_loop.load(Ordering::Acquire) || ACTING.get() != self.id {
            self.tell_anyway(key);
        }
    }

    /// Tells also of what it does itself.
    fn tell_anyway(&self, key: Option<&[u8]>) {
        let mut inbox = lock(&self.inbox);
        let Inbox { news, client: Some(client), .. } = &mut *inbox else { return };
        match key {
            Some(_) if news.all => {}
            Some(key) if news.keys.len() < NEWS_KEYS_MAX && news.bytes + key.len() <= NEWS_BYTES_MAX => {
                news.bytes += key.len();
                news.keys.push(key.to_vec());
            }
            _ => *news = News { all: true, ..News::default() },
        }
        let client = Arc::clone(client);
        drop(inbox);
        if !self.has_news.swap(true, Ordering::AcqRel) {
            client.wake();
        }
    }
}

/// Bytes that a key costs in the table beside itself, and for each who asks for it.
const KEY_BYTES: usize = 128;
const ASKING_BYTES: usize = size_of::<Arc<Listener>>();

/// Who asks for keys, and about how many bytes that takes.
#[derive(Default)]
struct Part {
    keys: HashMap<Vec<u8>, Vec<Arc<Listener>>>,
    bytes: usize,
}

impl Part {
    fn remove(&mut self, name: &[u8]) -> Option<(Vec<u8>, Vec<Arc<Listener>>)> {
        let (name, asking) = self.keys.remove_entry(name)?;
        self.bytes = self.bytes.saturating_sub(cost(&name, &asking));
        Some((name, asking))
    }

    /// Lets go of all that begins with the name of a bucket.
    fn clear(&mut self, begin: &[u8]) {
        let mut bytes = 0;
        self.keys.retain(|name, asking| {
            let stays = !name.starts_with(begin);
            bytes += if stays { cost(name, asking) } else { 0 };
            stays
        });
        self.bytes = bytes;
    }

    /// Has a listener ask for a key.
    fn add(&mut self, name: &[u8], listener: &Arc<Listener>) {
        if let Some(asking) = self.keys.get_mut(name) {
            if !asking.iter().any(|other| Arc::ptr_eq(other, listener)) {
                let before = asking.len();
                asking.retain(|other| !other.is_gone.load(Ordering::Acquire));
                asking.push(Arc::clone(listener));
                self.bytes = (self.bytes + asking.len() * ASKING_BYTES).saturating_sub(before * ASKING_BYTES);
            }
            return;
        }
        let asking = vec![Arc::clone(listener)];
        self.bytes += cost(name, &asking);
        self.keys.insert(name.to_vec(), asking);
    }
}

fn cost(name: &[u8], asking: &[Arc<Listener>]) -> usize {
    KEY_BYTES + name.len() + asking.len() * ASKING_BYTES
}

/// What all connections of a door want to hear of.
pub(crate) struct Tracking {
    parts: Vec<Mutex<Part>>,
    spread: RandomState,
    /// Bytes that each part may take.
    part_bytes_max: usize,
    all: RwLock<Vec<Arc<Listener>>>,
    /// How many there are in `all`: nothing else is looked at while there is none.
    listeners: AtomicUsize,
    broadcasts: AtomicUsize,
}

impl Tracking {
    /// Takes about so many bytes for keys that are asked for; beyond, some are told as if they had changed.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            spread: RandomState::new(),
            part_bytes_max: bytes_max / PARTS,
            all: RwLock::default(),
            listeners: AtomicUsize::new(0),
            broadcasts: AtomicUsize::new(0),
        }
    }

    fn all(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<Listener>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection hear from now on.
    fn begin(&self, client: &Arc<Client>, user: Option<Arc<User>>, wish: Wish) -> Arc<Listener> {
        let Wish { mode, prefixes, no_loop } = wish;
        let is_broadcast = mode == Mode::Broadcast;
        let listener = Arc::new(Listener {
            id: client.id,
            mode,
            prefixes: RwLock::new(prefixes),
            no_loop: AtomicBool::new(no_loop),
            inbox: Mutex::new(Inbox { news: News::default(), client: Some(Arc::clone(client)), user }),
            has_news: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        });
        self.all.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&listener));
        self.listeners.fetch_add(1, Ordering::AcqRel);
        self.broadcasts.fetch_add(usize::from(is_broadcast), Ordering::AcqRel);
        listener
    }

    /// It hears no more. What it asked for goes when it changes, or is asked for again.
    fn end(&self, listener: &Arc<Listener>) {
        listener.leave();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let before = all.len();
        all.retain(|other| !Arc::ptr_eq(other, listener));
        if all.len() < before {
            self.listeners.fetch_sub(1, Ordering::AcqRel);
            self.broadcasts.fetch_sub(usize::from(listener.mode == Mode::Broadcast), Ordering::AcqRel);
        }
        if all.is_empty() {
            // Before the next can begin, and ask.
            self.parts.iter().for_each(|part| *lock(part) = Part::default());
        }
    }

    fn part(&self, name: &[u8]) -> &Mutex<Part> {
        let at = usize::try_from(self.spread.hash_one(name) % PARTS as u64).unwrap_or(0);
        self.parts.get(at).expect("it is below their number")
    }

    /// Has the listener hear, once, that the key has changed. To be called before the key is read.
    fn ask(&self, listener: &Arc<Listener>, bucket: &[u8], key: &[u8]) {
        let name = name_of(bucket, key);
        let mut part = lock(self.part(&name));
        part.add(&name, listener);
        while part.bytes > self.part_bytes_max {
            // Which is always right.
            let Some(some) = part.keys.keys().next().cloned() else { break };
            let Some((some, asking)) = part.remove(&some) else { break };
            asking.iter().for_each(|other| other.tell(Some(&key_of(&some))));
        }
    }

    /// Connections that hear, and keys that were asked for.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let listeners = self.listeners.load(Ordering::Acquire);
        let keys = if listeners == 0 { 0 } else { self.parts.iter().map(|part| lock(part).keys.len()).sum() };
        (listeners, keys)
    }

    /// Prefixes that were asked for.
    pub(crate) fn prefixes(&self) -> usize {
        self.all().iter().map(|listener| listener.prefixes().len()).sum()
    }
}

/// What the table knows a key by: names of numbered databases have no zeros.
fn name_of(bucket: &[u8], key: &[u8]) -> Vec<u8> {
    [bucket, &[0], key].concat()
}

/// How what has this name in the table is told.
fn key_of(name: &[u8]) -> Vec<u8> {
    let mut parts = name.splitn(2, |byte| *byte == 0);
    told(parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Whether it is a numbered database's.
fn is_database(bucket: &[u8]) -> bool {
    bucket.strip_prefix(b"db").is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Stands for a bucket in the names of entries: no numbered database's.
const ENTRIES: &[u8] = b"entries";

/// What the table knows entries of a type by, behind [`ENTRIES`]: names of spaces and types have no zeros, nor has JSON.
fn entry_name(space: &str, of: &str, id: Option<ValueRef<'_>>) -> Vec<u8> {
    format!("{space}\0{of}\0{}", id.map(|id| id.to_value().to_json()).unwrap_or_default()).into_bytes()
}

/// How something in the table is told.
fn told(table: &[u8], key: &[u8]) -> Vec<u8> {
    let shown = |byte: &u8| if table == ENTRIES && *byte == 0 { b'/' } else { *byte };
    key.iter().map(shown).collect()
}

impl Tracking {
    /// Tells those who have asked for it, and those who hear of all that this bucket, or space, has of the kind.
    fn tell(&self, (table, bucket): (&[u8], &[u8]), key: &[u8]) {
        let name = name_of(table, key);
        let asking = lock(self.part(&name)).remove(&name);
        let asking = asking.map(|(_, asking)| asking).unwrap_or_default();
        let key = &*told(table, key);
        asking.iter().for_each(|listener| listener.tell(Some(key)));
        if self.broadcasts.load(Ordering::Acquire) > 0 {
            let all = self.all();
            let hears = |listener: &&Arc<Listener>| listener.hears_all_of(bucket, key, table == ENTRIES);
            all.iter().filter(hears).for_each(|listener| listener.tell(Some(key)));
        }
    }

    /// Tells all who may read the bucket, or space, to forget everything: others are not told, and so keep what they have asked for
    /// of what begins so.
    fn tell_all(&self, begin: &[u8], bucket: &[u8]) {
        self.parts.iter().for_each(|part| lock(part).clear(begin));
        self.all().iter().filter(|listener| listener.may_read(bucket)).for_each(|listener| listener.tell(None));
    }
}

impl KeyWatcher for Tracking {
    fn changed(&self, bucket: &[u8], key: &[u8]) {
        if self.listeners.load(Ordering::Acquire) > 0 && is_database(bucket) {
            self.tell((bucket, bucket), key);
        }
    }

    fn entry_changed(&self, space: &str, of: &str, id: ValueRef<'_>) {
        if self.listeners.load(Ordering::Acquire) > 0 {
            self.tell((ENTRIES, space.as_bytes()), &entry_name(space, of, Some(id)));
        }
    }

    fn entries_cleared(&self, space: &str, of: &str) {
        if self.listeners.load(Ordering::Acquire) > 0 {
            self.tell_all(&name_of(ENTRIES, &entry_name(space, of, None)), space.as_bytes());
        }
    }

    fn cleared(&self, bucket: &[u8]) {
        if self.listeners.load(Ordering::Acquire) > 0 && is_database(bucket) {
            self.tell_all(&name_of(bucket, &[]), bucket);
        }
    }
}

/// Whose command this thread runs, until it is dropped.
pub(crate) struct Acting;

impl Acting {
    pub(crate) fn for_client(id: u64) -> Self {
        ACTING.set(id);
        Self
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        ACTING.set(0);
    }
}

/// What a session has of it.
pub(crate) struct Tracked {
    tracking: Arc<Tracking>,
    pub(crate) listener: Arc<Listener>,
    /// Whether CLIENT CACHING was said of the next command.
    pub(crate) is_said: bool,
    /// Whether the client may have read within an open transaction what nobody else will ever see.
    pub(crate) has_uncommitted: bool,
    /// What a blocked command waits for, as it is told.
    waited: Option<Vec<u8>>,
    /// Of a script's session: it ends with that of its client.
    is_lent: bool,
}

impl Tracked {
    pub(crate) fn begin(tracking: &Arc<Tracking>, client: &Arc<Client>, user: Option<Arc<User>>, wish: Wish) -> Self {
        let listener = tracking.begin(client, user, wish);
        Self {
            tracking: Arc::clone(tracking),
            listener,
            is_said: false,
            has_uncommitted: false,
            waited: None,
            is_lent: false,
        }
    }

    /// The same, for what a script reads.
    pub(crate) fn lent(&self) -> Self {
        let (tracking, listener) = (Arc::clone(&self.tracking), Arc::clone(&self.listener));
        Self { tracking, listener, is_said: self.is_said, has_uncommitted: false, waited: None, is_lent: true }
    }

    /// Whether what is read now is to be asked for.
    fn asks(&self) -> bool {
        match self.listener.mode {
            Mode::Read => true,
            Mode::OptIn => self.is_said,
            Mode::OptOut => !self.is_said,
            Mode::Broadcast => false,
        }
    }

    /// Has the client forget everything if it may have read what was rolled back: to be called when no transaction is open.
    pub(crate) fn forget_uncommitted(&mut self) {
        if mem::take(&mut self.has_uncommitted) {
            self.listener.tell(None);
        }
    }

    /// Notes that a key is about to be read.
    pub(crate) fn ask(&self, bucket: &[u8], key: &[u8]) {
        if self.asks() && is_database(bucket) {
            self.tracking.ask(&self.listener, bucket, key);
        }
    }

    /// Notes that an entry is waited for by its id.
    pub(crate) fn wait_for(&mut self, space: &str, of: &str, id: ValueRef<'_>) {
        self.waited = self.hears_of(space, of, id);
    }

    /// Tells, behind the reply, of what was waited for: that it had changed may have been told before the reply was there, and then
    /// nobody would be told again.
    pub(crate) fn end_waiting(&mut self) {
        if let Some(name) = self.waited.take() {
            self.listener.tell(Some(&name));
        }
    }

    /// Who is to hear of an entry when it is not seen.
    pub(crate) fn may_be_hidden(&self, space: &str, of: &str, id: ValueRef<'_>) -> Option<MayBeHidden> {
        let name = self.hears_of(space, of, id)?;
        Some(MayBeHidden { listener: Arc::clone(&self.listener), name })
    }

    /// An entry by the name under which it is told, if the client asks for it, or hears of it as one of all.
    fn hears_of(&self, space: &str, of: &str, id: ValueRef<'_>) -> Option<Vec<u8>> {
        let name = told(ENTRIES, &entry_name(space, of, Some(id)));
        let hears = self.asks() || self.listener.hears_all_of(space.as_bytes(), &name, true);
        hears.then_some(name)
    }

    /// Notes that an entry is about to be read by its id.
    pub(crate) fn ask_entry(&self, space: &str, of: &str, id: ValueRef<'_>) {
        if self.asks() {
            self.tracking.ask(&self.listener, ENTRIES, &entry_name(space, of, Some(id)));
        }
    }
}

/// An entry that is read by its id where it may be hidden from the reader: locked by others, it is as if it were not there, and nobody is told when it is
/// let go of unchanged.
pub(crate) struct MayBeHidden {
    listener: Arc<Listener>,
    name: Vec<u8>,
}

impl MayBeHidden {
    /// The client is not to keep that there was none: it is told behind the reply, for news wait for that.
    pub(crate) fn was_not_seen(&self) {
        self.listener.tell_anyway(Some(&self.name));
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if !self.is_lent {
            self.tracking.end(&self.listener);
        }
    }
}

#[cfg(test)]
#[path = "tracking_tests.rs"]
mod tests;
