//! One partition's key-value state machine.
//!
//! `apply` is the only way in, live and in replay, so both give the same state. With each object it keeps the number of
//! objects per bucket, what is needed of each journal segment, and the leaves of the Merkle tree that are this
//! partition's; all are written into the ledger as its *summary* (`summary.rs`) whenever the ledger is written out.
//!
//! May use: the ledger. Must not know: the journal's files, locks, clocks.

use std::ops::Bound;
use std::sync::Arc;

use base::hash128;
use journal::{Log, Position, StateMachine};

use crate::bytes::{len32, put_string};
use crate::cache::{Caches, Entries, Stored};
use crate::clock::Clock;
use crate::command::{Command, Commands, Put};
use crate::compression::Compression;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::hash::object_hash;
use crate::indexes;
use crate::key;
use crate::ledger::{Bounds, Cursor, Ledger, Reading};
use crate::live::{LiveBytes, Places};
use crate::owner::Owner;
use crate::query::{Reader, decode};
use crate::summary::Summary;
use crate::tree::{Tree, TreeSize};

/// How to open an engine.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whose state it is: a ledger that is another's counts as damaged.
    pub owner: Owner,
    /// Values up to this many bytes are kept in the ledger.
    pub inline_bytes_max: usize,
    /// Size of the store's Merkle tree, of which this engine keeps its objects' leaves; `None` keeps none.
    pub tree: Option<TreeSize>,
}

impl Options {
    /// What is counted of nothing.
    fn empty(&self) -> Summary {
        Summary { owner: self.owner, tree: self.tree.map(Tree::new), ..Summary::default() }
    }
}

/// The state machine. One thread at a time changes it; any number read through [`Engine::reader`].
pub struct Engine {
    reader: Reader,
    places: Arc<dyn Places + Send + Sync>,
    options: Options,
    summary: Summary,
    /// Everything at or below was applied.
    applied: Position,
    /// Position of the newest change that made something absent.
    removed: Position,
}

impl Engine {
    /// The state that the ledger kept. What the journal has behind [`Engine::applied`] has to be applied again.
    ///
    /// # Errors
    /// `Ledger` when the ledger's summary is missing, damaged or another's: discard the ledger and replay everything.
    pub fn open(
        ledger: Arc<dyn Ledger>,
        caches: Arc<Caches>,
        log: Arc<dyn Log>,
        places: Arc<dyn Places + Send + Sync>,
        options: Options,
    ) -> Result<Self> {
        let applied = ledger.persisted();
        let mut summary = options.empty();
        if applied.is_some() {
            let damaged = |reason: &str| Error::Ledger { path: String::new(), reason: reason.into() };
            let missing = || damaged("the summary is missing");
            let bytes = ledger.get(key::SUMMARY)?.ok_or_else(missing)?.value;
            summary = Summary::decode(&bytes).ok_or_else(missing)?;
            if summary.owner != options.owner {
                return Err(damaged("it is another partition's, or another store's"));
            }
        }
        let applied = applied.unwrap_or_default();
        let reader = Reader::new(Entries::new(ledger, caches), log);
        let mut engine = Self { reader, places, options, summary, applied, removed: Position::ZERO };
        if engine.summary.tree.as_ref().map(Tree::size) != options.tree {
            engine.grow_tree()?;
        }
        Ok(engine)
    }

    /// A way to read beside this engine.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.reader.entries.ledger
    }

    pub(crate) fn log(&self) -> &dyn Log {
        &*self.reader.log
    }

    /// Everything at or below was applied.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// Position of the newest change that removed something since open: what an absent answer rests on.
    #[must_use]
    pub fn removed(&self) -> Position {
        self.removed
    }

    /// How many objects a bucket holds, those that expired and were not removed yet included.
    #[must_use]
    pub fn count(&self, bucket: &[u8]) -> u64 {
        self.summary.counts.get(bucket).copied().unwrap_or_default()
    }

    /// How many objects there are, those that expired and were not removed yet included.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.summary.counts.values().sum()
    }

    /// What is needed of each journal segment.
    #[must_use]
    pub fn live(&self) -> &LiveBytes {
        &self.summary.live
    }

    /// This partition's share of the store's Merkle tree, if one is kept.
    #[must_use]
    pub fn tree(&self) -> Option<&Tree> {
        self.summary.tree.as_ref()
    }

    /// The tree made anew from every head: after its size was changed, or to check the one that is kept.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn tree_from_heads(&self, size: TreeSize) -> Result<Tree> {
        let mut tree = Tree::new(size);
        let (start, end) = key::objects();
        let mut entries = self.sweep(&start, &end);
        while entries.advance()? {
            let damaged = || Error::Ledger { path: String::new(), reason: "a key does not decode".into() };
            let (bucket, key) = key::split_object(entries.key()).ok_or_else(damaged)?;
            if !key::is_reserved(&bucket) {
                tree.update(object_hash(&bucket, key), None, Some(Clock::from(&decode(entries.value())?).hash()));
            }
        }
        Ok(tree)
    }

    /// Goes through all entries from `start` to before `end`.
    fn sweep(&self, start: &[u8], end: &[u8]) -> Cursor {
        let (start, end) = (Bound::Included(start.to_vec()), Bound::Excluded(end.to_vec()));
        self.ledger().range(&Bounds::new(start, end, Reading::Sweep))
    }

    /// Adds a difference to the tree that is kept, by xor.
    pub fn mend_tree(&mut self, difference: &Tree) {
        if let Some(tree) = &mut self.summary.tree {
            tree.merge(difference);
        }
    }

    fn grow_tree(&mut self) -> Result<()> {
        self.summary.tree = self.options.tree.map(|size| self.tree_from_heads(size)).transpose()?;
        Ok(())
    }

    /// The hash of an object that is about to change, if the tree counts it; its leaf is fetched meanwhile.
    fn hash_in_tree(&self, bucket: &[u8], key: &[u8]) -> Option<u64> {
        let tree = self.summary.tree.as_ref().filter(|_| !key::is_reserved(bucket))?;
        let hash = object_hash(bucket, key);
        tree.fetch(hash);
        Some(hash)
    }

    fn note_clock(&mut self, object_hash: Option<u64>, old: Option<&Entry<'_>>, new: Option<&Entry<'_>>) {
        if let (Some(tree), Some(object_hash)) = (&mut self.summary.tree, object_hash) {
            let hash = |entry: Option<&Entry<'_>>| entry.map(|entry| Clock::from(entry).hash());
            tree.update(object_hash, hash(old), hash(new));
        }
    }

    /// Drops what is counted of segments that compaction has let go: all but those that `is_there` tells.
    pub fn forget_segments(&mut self, is_there: impl Fn(Position) -> bool) {
        self.summary.live.retain(is_there);
    }

    /// Drops the whole state, ledger included: everything has to be applied again.
    ///
    /// # Errors
    /// When the ledger cannot be made anew.
    pub fn reset(&mut self) -> Result<()> {
        self.reader.entries.reset()?;
        self.summary = self.options.empty();
        self.applied = Position::ZERO;
        Ok(())
    }

    /// Prepares the ledger to be written out, with everything before `next` in it: the journal has given this partition
    /// nothing at or behind `next` yet.
    pub fn rotate(&mut self, next: Position) {
        let through = Position::new(next.get().saturating_sub(1)).max(self.applied);
        self.ledger().insert(key::SUMMARY, &self.summary.encode(), through);
        self.applied = through;
        self.ledger().rotate();
    }

    fn old(&self, ledger_key: &[u8]) -> Result<Option<Stored>> {
        self.reader.entries.get(ledger_key)
    }

    /// What the background asks for.
    pub(crate) fn peek(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Stored>> {
        self.reader.entries.peek(&key::object(bucket, key))
    }

    fn put(&mut self, change: &Change, put: &Put<'_>) -> Result<()> {
        let in_tree = self.hash_in_tree(put.bucket, put.key);
        let ledger_key = key::object(put.bucket, put.key);
        let stored = self.old(&ledger_key)?;
        let old = stored.as_ref().map(|stored| decode(&stored.entry)).transpose()?;
        if change.is_stale(old.as_ref()) {
            return Ok(());
        }
        match &old {
            Some(old) => self.forget(change, old, put),
            None => match self.summary.counts.get_mut(put.bucket) {
                Some(count) => *count += 1,
                None => {
                    self.summary.counts.insert(put.bucket.to_vec(), 1);
                }
            },
        }
        let entry = Entry {
            version: change.version,
            modified_ms: put.modified_ms,
            expires_ms: put.expires_ms,
            at: change.at,
            command_bytes: len32(change.command_bytes),
            value_bytes: put.value_bytes,
            checksum: put.checksum,
            compression: put.compression,
            metadata: put.metadata,
            indexes: put.indexes,
            inline: (put.stored.len() <= self.options.inline_bytes_max).then_some(put.stored),
        };
        self.summary.live.add(change.segment, change.at, change.command_bytes as u64);
        self.note_clock(in_tree, old.as_ref(), Some(&entry));
        // What compaction moves is as much in use as it was.
        let is_in_use = !change.is_kept() || stored.as_ref().is_some_and(|stored| stored.value.is_some());
        let is_apart = entry.inline.is_none() && entry.compression == Compression::None;
        let value = (is_apart && is_in_use).then_some(put.stored);
        let keeps_expiry = old.as_ref().is_some_and(|old| old.expires_ms == put.expires_ms);
        let keeps_indexes = keeps_expiry && old.as_ref().is_some_and(|old| old.indexes == put.indexes);
        // What nobody holds is replaced where it is.
        drop(stored);
        self.reader.entries.insert(&ledger_key, &entry.encode(), value, change.position);
        if put.expires_ms != 0 && !keeps_expiry {
            let expiry = key::expiry(put.expires_ms, put.bucket, put.key);
            self.ledger().insert(&expiry, &[], change.position);
        }
        if !keeps_indexes {
            self.index(change, put.bucket, put.key, put.indexes, put.expires_ms);
        }
        Ok(())
    }

    /// Enters an object into its indexes. Each entry says when it expires, so that it vanishes together with the object.
    fn index(&self, change: &Change, bucket: &[u8], key: &[u8], entries: &[u8], expires_ms: u64) {
        let at = expires_ms.to_le_bytes();
        let expiry = if expires_ms == 0 { &[][..] } else { &at };
        for (index, term) in indexes::pairs(entries) {
            self.ledger().insert(&key::index(bucket, index, term, key), expiry, change.position);
        }
    }

    /// Takes back what an entry that is replaced or removed had added, except what stays the same.
    fn forget(&mut self, change: &Change, old: &Entry<'_>, new: &Put<'_>) {
        let (bucket, key) = (new.bucket, new.key);
        self.summary.live.subtract(self.places.segment_of(old.at), old.at, u64::from(old.command_bytes));
        if old.version.get() > old.at {
            // Its expiry was changed after it was put; that command is not needed any more.
            let held = Command::expire_bytes(bucket, key);
            let at = old.version.get();
            self.summary.live.release(self.places.segment_of(at), at, held);
        }
        if old.expires_ms != 0 && old.expires_ms != new.expires_ms {
            self.ledger().remove(&key::expiry(old.expires_ms, bucket, key), change.position);
        }
        if !old.indexes.is_empty() && old.indexes != new.indexes {
            for (index, term) in indexes::pairs(old.indexes) {
                self.ledger().remove(&key::index(bucket, index, term, key), change.position);
            }
        }
    }

    /// Removes an object that is there and not newer; returns whether it was.
    fn delete(&mut self, change: &Change, bucket: &[u8], key: &[u8]) -> Result<bool> {
        let ledger_key = key::object(bucket, key);
        let Some(stored) = self.old(&ledger_key)? else { return Ok(false) };
        let old = decode(&stored.entry)?;
        // An object as old as a kept clear was put by the same batch, after the clear.
        if change.is_kept() && old.version >= change.version {
            return Ok(false);
        }
        self.forget(change, &old, &Put::new(bucket, key, &[]));
        self.note_clock(self.hash_in_tree(bucket, key), Some(&old), None);
        self.reader.entries.remove(&ledger_key, change.position);
        self.removed = change.position;
        if let Some(count) = self.summary.counts.get_mut(bucket) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.summary.counts.remove(bucket);
            }
        }
        Ok(true)
    }

    fn expire(&mut self, change: &Change, expiry: (u64, u64), bucket: &[u8], key: &[u8]) -> Result<bool> {
        let (modified_ms, expires_ms) = expiry;
        let ledger_key = key::object(bucket, key);
        let Some(stored) = self.old(&ledger_key)? else { return Ok(false) };
        let old = decode(&stored.entry)?;
        let ledger = self.reader.entries.ledger.clone();
        if old.version.get() > old.at {
            let held = Command::expire_bytes(bucket, key);
            let at = old.version.get();
            self.summary.live.release(self.places.segment_of(at), at, held);
        }
        if old.expires_ms != 0 && old.expires_ms != expires_ms {
            ledger.remove(&key::expiry(old.expires_ms, bucket, key), change.position);
        }
        if expires_ms != 0 && old.expires_ms != expires_ms {
            ledger.insert(&key::expiry(expires_ms, bucket, key), &[], change.position);
        }
        if old.expires_ms != expires_ms {
            self.index(change, bucket, key, old.indexes, expires_ms);
        }
        let entry = Entry { version: change.position, modified_ms, expires_ms, ..old };
        self.note_clock(self.hash_in_tree(bucket, key), Some(&old), Some(&entry));
        self.reader.entries.insert(&ledger_key, &entry.encode(), stored.value.as_deref(), change.position);
        Ok(true)
    }

    fn clear(&mut self, change: &Change, bucket: &[u8]) -> Result<bool> {
        let (start, end) = (key::object(bucket, &[]), key::bucket_end(bucket));
        let mut entries = self.sweep(&start, &end);
        let mut any = false;
        while entries.advance()? {
            let key = entries.key().get(start.len()..).unwrap_or_default();
            any |= self.delete(change, bucket, key)?;
        }
        Ok(any)
    }

    fn change(&mut self, change: &Change, command: &Command<'_>) -> Result<()> {
        self.summary.live.applied(change.segment, change.command_bytes as u64);
        let holds = match command {
            Command::Put(put) => {
                self.put(change, put)?;
                false
            }
            Command::Delete { bucket, key } => self.delete(change, bucket, key)? || change.is_kept(),
            Command::Expire { bucket, key, modified_ms, expires_ms } => {
                self.expire(change, (*modified_ms, *expires_ms), bucket, key)?
            }
            Command::Clear { bucket } => self.clear(change, bucket)? || change.is_kept(),
        };
        if holds {
            self.summary.live.hold(change.segment, change.at, change.command_bytes as u64);
        }
        Ok(())
    }
}

/// Where a command stands, and as of when it is said.
struct Change {
    /// Of its batch.
    position: Position,
    /// Version of what it makes; earlier than `position` when it was kept.
    version: Position,
    /// Its address, and bytes from there.
    at: u64,
    command_bytes: usize,
    /// The segment it lies in.
    segment: Position,
}

impl Change {
    fn is_kept(&self) -> bool {
        self.version != self.position
    }

    /// Whether the object has changed since what a kept command says.
    fn is_stale(&self, old: Option<&Entry<'_>>) -> bool {
        self.is_kept() && old.is_some_and(|old| old.version > self.version)
    }
}

impl StateMachine for Engine {
    type Error = Error;

    fn apply(&mut self, position: Position, at: u64, commands: &[u8]) -> Result<()> {
        for said in Commands::new(commands, at) {
            let said = said?;
            let change = Change {
                position,
                version: said.recorded.version.unwrap_or(position),
                at: said.at,
                segment: self.places.segment_of(said.at),
                command_bytes: said.command_bytes(),
            };
            self.change(&change, &said.recorded.command)?;
        }
        self.applied = position;
        Ok(())
    }

    /// Values lie in the journal, so all of it stays until compaction has moved what is live.
    fn needs(&self) -> Option<Position> {
        Some(Position::ZERO)
    }

    fn digest(&self) -> Result<u128> {
        let (start, end) = key::objects();
        let mut digest = 0u128;
        let mut entries = self.sweep(&start, &end);
        while entries.advance()? {
            let entry = decode(entries.value())?;
            let mut input = digest.to_le_bytes().to_vec();
            put_string(&mut input, entries.key());
            // Where a value lies is not what it is: compaction may move it.
            input.extend_from_slice(&Entry { at: 0, command_bytes: 0, inline: None, ..entry }.encode());
            digest = hash128(&input);
        }
        let mut input = digest.to_le_bytes().to_vec();
        let (start, end) = key::all_indexes();
        let mut entries = self.sweep(&start, &end);
        while entries.advance()? {
            put_string(&mut input, entries.key());
            put_string(&mut input, entries.value());
            input = hash128(&input).to_le_bytes().to_vec();
        }
        for (bucket, count) in &self.summary.counts {
            put_string(&mut input, bucket);
            input.extend_from_slice(&count.to_le_bytes());
        }
        Ok(hash128(&input))
    }
}
