//! One partition's key-value state machine.
//!
//! `apply` is the only way in, live and in replay, so both give the same state. With each object it keeps the number of
//! objects per bucket and the live bytes per journal segment; both are written into the ledger as its *summary*
//! (`summary.rs`) whenever the ledger is written out.
//!
//! May use: the ledger. Must not know: the journal's files, locks, clocks.

use std::ops::Bound;
use std::sync::Arc;

use base::hash128;
use journal::{Log, Position, StateMachine};

use crate::bytes::{len32, put_string};
use crate::cache::{Entries, EntryCache};
use crate::command::{Command, Put};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::key;
use crate::ledger::{Ledger, Slice};
use crate::live::{LiveBytes, Places};
use crate::query::{Reader, decode};
use crate::summary::{self, Counts};

/// How to open an engine.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Values up to this many bytes are kept in the ledger.
    pub inline_bytes_max: usize,
}

/// The state machine. One thread at a time changes it; any number read through [`Engine::reader`].
pub struct Engine {
    reader: Reader,
    places: Arc<dyn Places + Send + Sync>,
    options: Options,
    counts: Counts,
    live: LiveBytes,
    /// Everything at or below was applied.
    applied: Position,
    /// Position of the newest change that made something absent.
    removed: Position,
}

impl Engine {
    /// The state that the ledger kept. What the journal has behind [`Engine::applied`] has to be applied again.
    ///
    /// # Errors
    /// `Ledger` when the ledger's summary is missing or damaged: discard the ledger and replay everything.
    pub fn open(
        ledger: Arc<dyn Ledger>,
        cache: Arc<EntryCache>,
        log: Arc<dyn Log>,
        places: Arc<dyn Places + Send + Sync>,
        options: Options,
    ) -> Result<Self> {
        let applied = ledger.persisted();
        let (mut counts, mut live) = (Counts::new(), LiveBytes::default());
        if applied.is_some() {
            let damaged = || Error::Ledger { path: String::new(), reason: "the summary is missing".into() };
            let summary = ledger.get(key::SUMMARY, Position::MAX)?.ok_or_else(damaged)?;
            (counts, live) = summary::decode(&summary).ok_or_else(damaged)?;
        }
        let applied = applied.unwrap_or_default();
        let reader = Reader { entries: Entries::new(ledger, cache), log };
        Ok(Self { reader, places, options, counts, live, applied, removed: Position::ZERO })
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
        self.counts.get(bucket).copied().unwrap_or_default()
    }

    /// Live bytes by journal segment.
    #[must_use]
    pub fn live(&self) -> &LiveBytes {
        &self.live
    }

    /// Drops the whole state, ledger included: everything has to be applied again.
    ///
    /// # Errors
    /// When the ledger cannot be made anew.
    pub fn reset(&mut self) -> Result<()> {
        self.reader.entries.reset()?;
        self.counts.clear();
        self.live = LiveBytes::default();
        self.applied = Position::ZERO;
        Ok(())
    }

    /// Prepares the ledger to be written out, with everything before `next` in it: the journal has given this partition
    /// nothing at or behind `next` yet.
    pub fn rotate(&mut self, next: Position) {
        let through = Position::new(next.get().saturating_sub(1)).max(self.applied);
        self.ledger().insert(key::SUMMARY, summary::encode(&self.counts, &self.live).into(), through);
        self.applied = through;
        self.ledger().rotate(next);
    }

    fn old(&self, ledger_key: &[u8]) -> Result<Option<Slice>> {
        self.reader.entries.get(ledger_key, Position::MAX)
    }

    fn put(&mut self, position: Position, at: u64, bytes: usize, put: &Put<'_>) -> Result<()> {
        let ledger_key = key::object(put.bucket, put.key);
        let old = self.old(&ledger_key)?;
        match &old {
            Some(old) => self.forget(&decode(old)?, put.bucket, put.key, put.expires_ms, position),
            None => match self.counts.get_mut(put.bucket) {
                Some(count) => *count += 1,
                None => {
                    self.counts.insert(put.bucket.to_vec(), 1);
                }
            },
        }
        let entry = Entry {
            version: position,
            modified_ms: put.modified_ms,
            expires_ms: put.expires_ms,
            at,
            command_bytes: len32(bytes),
            value_bytes: len32(put.value.len()),
            checksum: put.checksum,
            metadata: put.metadata,
            inline: (put.value.len() <= self.options.inline_bytes_max).then_some(put.value),
        };
        self.live.add(self.places.segment_of(at), bytes as u64);
        self.reader.entries.insert(&ledger_key, entry.encode().into(), position);
        if put.expires_ms != 0 {
            let expiry = key::expiry(put.expires_ms, put.bucket, put.key);
            self.ledger().insert(&expiry, Slice::empty(), position);
        }
        Ok(())
    }

    /// Takes back what an entry that is replaced or removed had added, except an expiry that stays the same.
    fn forget(&mut self, old: &Entry<'_>, bucket: &[u8], key: &[u8], expires_ms: u64, position: Position) {
        self.live.subtract(self.places.segment_of(old.at), u64::from(old.command_bytes));
        if old.expires_ms != 0 && old.expires_ms != expires_ms {
            self.ledger().remove(&key::expiry(old.expires_ms, bucket, key), position);
        }
    }

    fn delete(&mut self, position: Position, bucket: &[u8], key: &[u8]) -> Result<()> {
        let ledger_key = key::object(bucket, key);
        let Some(old) = self.old(&ledger_key)? else { return Ok(()) };
        self.forget(&decode(&old)?, bucket, key, 0, position);
        self.reader.entries.remove(&ledger_key, position);
        self.removed = position;
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(bucket);
            }
        }
        Ok(())
    }

    fn expire(
        &mut self,
        position: Position,
        modified_ms: u64,
        expires_ms: u64,
        bucket: &[u8],
        key: &[u8],
    ) -> Result<()> {
        let ledger_key = key::object(bucket, key);
        let Some(old) = self.old(&ledger_key)? else { return Ok(()) };
        let old = decode(&old)?;
        let ledger = self.ledger();
        if old.expires_ms != 0 && old.expires_ms != expires_ms {
            ledger.remove(&key::expiry(old.expires_ms, bucket, key), position);
        }
        if expires_ms != 0 {
            ledger.insert(&key::expiry(expires_ms, bucket, key), Slice::empty(), position);
        }
        let entry = Entry { version: position, modified_ms, expires_ms, ..old };
        self.reader.entries.insert(&ledger_key, entry.encode().into(), position);
        Ok(())
    }

    fn clear(&mut self, position: Position, bucket: &[u8]) -> Result<()> {
        let (start, end) = (key::object(bucket, &[]), key::bucket_end(bucket));
        let entries = self.ledger().range(Bound::Included(&start), Bound::Excluded(&end), Position::MAX);
        for entry in entries {
            let (ledger_key, _) = entry?;
            let key = ledger_key.get(start.len()..).unwrap_or_default();
            self.delete(position, bucket, key)?;
        }
        Ok(())
    }
}

impl StateMachine for Engine {
    type Error = Error;

    fn apply(&mut self, position: Position, at: u64, commands: &[u8]) -> Result<()> {
        let mut offset = 0;
        while let Some(rest) = commands.get(offset..).filter(|rest| !rest.is_empty()) {
            let (command, bytes) = Command::decode(rest).ok_or(Error::Command)?;
            match command {
                Command::Put(put) => self.put(position, at + offset as u64, bytes, &put)?,
                Command::Delete { bucket, key } => self.delete(position, bucket, key)?,
                Command::Expire { bucket, key, modified_ms, expires_ms } => {
                    self.expire(position, modified_ms, expires_ms, bucket, key)?;
                }
                Command::Clear { bucket } => self.clear(position, bucket)?,
            }
            offset += bytes;
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
        for entry in self.ledger().range(Bound::Included(&start), Bound::Excluded(&end), Position::MAX) {
            let (ledger_key, slice) = entry?;
            let entry = decode(&slice)?;
            let mut input = digest.to_le_bytes().to_vec();
            put_string(&mut input, &ledger_key);
            // Where a value lies is not what it is: compaction may move it.
            input.extend_from_slice(&Entry { at: 0, command_bytes: 0, inline: None, ..entry }.encode());
            digest = hash128(&input);
        }
        let mut input = digest.to_le_bytes().to_vec();
        for (bucket, count) in &self.counts {
            put_string(&mut input, bucket);
            input.extend_from_slice(&count.to_le_bytes());
        }
        Ok(hash128(&input))
    }
}
