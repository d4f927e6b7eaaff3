//! The change feed: every committed batch in order, resumable by position. It is the journal, read.
//!
//! Compaction lets go of old segments, so a feed begins at the *floor* at the earliest: behind the last segment that was let
//! go. The newest [`crate::CompactionOptions::keep_bytes`] are never compacted, and a [`Feed`] that lives keeps what lies
//! before it as well. What compaction appends again is no change and is passed over.
//!
//! May use: `journal`, `kv`'s commands. Must not know: protocols.

use std::time::Duration;

use base::Signal;
use journal::{Log, Position, Record, Visit};
use kv::{Command, Commands, Indexes, Metadata};

use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Inner, Store};

/// How often a feed that waits looks for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// One change of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedChange {
    /// The object is now this.
    Put {
        /// Bucket.
        bucket: Vec<u8>,
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// What the user noted on it.
        metadata: Metadata,
        /// What it is found by.
        indexes: Indexes,
        /// When it was put, in milliseconds since 1970.
        modified_ms: u64,
        /// When it expires, in milliseconds since 1970; `None` is never.
        expires_ms: Option<u64>,
    },
    /// The object is gone: deleted, or removed after it had expired.
    Delete {
        /// Bucket.
        bucket: Vec<u8>,
        /// Key.
        key: Vec<u8>,
    },
    /// The object expires now at another time.
    Expire {
        /// Bucket.
        bucket: Vec<u8>,
        /// Key.
        key: Vec<u8>,
        /// When it expires, in milliseconds since 1970; `None` is never.
        expires_ms: Option<u64>,
    },
    /// Every object of the bucket is gone.
    Clear {
        /// Bucket.
        bucket: Vec<u8>,
    },
}

/// What a feed comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedItem {
    /// A committed batch: all of its changes happened together.
    Batch {
        /// Its position: the version of everything it changed.
        position: Position,
        /// The changes, in order; one `Clear` stands for all partitions.
        changes: Vec<FeedChange>,
    },
    /// Batches were here and cannot be read any more.
    Lost {
        /// Where they began.
        position: Position,
        /// Bytes of journal.
        bytes: u64,
    },
}

impl FeedItem {
    /// Its position.
    #[must_use]
    pub fn position(&self) -> Position {
        match self {
            Self::Batch { position, .. } | Self::Lost { position, .. } => *position,
        }
    }
}

/// How much of a feed to return at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimit {
    /// Most items.
    pub items: usize,
    /// Bytes after which no further item is added: those of the journal, or those of the values if these are more, which
    /// they are when they were compressed well.
    pub bytes: u64,
}

/// A reader of the change feed. What lies before it in the journal may go; what lies behind it stays while it lives.
pub struct Feed {
    store: Store,
    next: Position,
    durability: Durability,
}

impl Store {
    /// Opens the change feed at the first batch at or behind `from`; position 0 is the earliest there is, if nothing was let
    /// go yet. To go on after an item, name the position behind its own.
    ///
    /// # Errors
    /// `Invalid` when batches at or behind `from` were let go by compaction, or do not exist yet: the message names the
    /// lowest and highest position that can be asked for. Read everything by a fold then, and go on from its snapshot.
    pub fn feed(&self, from: Position) -> Result<Feed> {
        let inner = self.inner();
        inner.check_open()?;
        // Registered first, so that nothing is let go between the look and the reading.
        inner.hold_feed(from);
        let (floor, end) = (inner.feed_floor(), inner.journal.watermarks().appended);
        if from < floor || from > end {
            inner.drop_feed(from);
            let text = format!("the feed has positions from {floor} to {end}, not {from}");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(Feed { store: self.clone(), next: from, durability: self.durability() })
    }

    /// The lowest position at which a feed can begin now.
    #[must_use]
    pub fn feed_floor(&self) -> Position {
        self.inner().feed_floor()
    }
}

impl Inner {
    pub(crate) fn feed_floor(&self) -> Position {
        self.journal.floor()
    }
}

impl Feed {
    /// Where it goes on.
    #[must_use]
    pub fn position(&self) -> Position {
        self.next
    }

    /// Has it show what is as durable as this, instead of as the store has it.
    #[must_use]
    pub fn shown_at(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether there may be something to read behind its position now. Never waits and does not look at the disk; what is
    /// there may turn out to be nothing that changed.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.store.watermarks().written > self.next
    }

    /// The next items, at most as many as asked for; waits up to `wait` for the first. None of them can vanish any more, by
    /// the store's durability, or what [`Feed::shown_at`] said: what was acknowledged at less is waited for, and synced if need be.
    ///
    /// # Errors
    /// `Corrupt` when something journaled does not decode; `Unavailable` when the disk refuses; `Closed`.
    pub fn next(&mut self, limit: FeedLimit, wait: Duration) -> Result<Vec<FeedItem>> {
        let until = self.store.inner().clock.now().after(wait);
        let idle = Signal::new();
        loop {
            let items = self.read(limit)?;
            let inner = self.store.inner();
            if !items.is_empty() || inner.clock.now() >= until {
                return Ok(items);
            }
            inner.check_open()?;
            idle.wait(Some(LOOK_INTERVAL.min(until.since(inner.clock.now()))));
        }
    }

    fn read(&mut self, limit: FeedLimit) -> Result<Vec<FeedItem>> {
        let inner = self.store.inner();
        inner.check_open()?;
        let end = inner.journal.watermarks().written;
        if end <= self.next {
            return Ok(Vec::new());
        }
        let (mut items, mut bytes, mut failed, mut is_full) = (Vec::new(), 0, None, false);
        let (mut next, began) = (self.next, self.next);
        let read = inner.journal.read_from(began, &mut |found| {
            if items.len() >= limit.items || bytes >= limit.bytes {
                is_full = true;
                return Err(journal::Error::Closed);
            }
            match found {
                Visit::Record(record) if record.position >= end => return Err(journal::Error::Closed),
                Visit::Record(record) => {
                    let mut shown = 0;
                    match changes(&record) {
                        Ok(changes) if changes.is_empty() => {}
                        Ok(changes) => {
                            shown = value_bytes(&changes);
                            items.push(FeedItem::Batch { position: record.position, changes });
                        }
                        Err(error) => {
                            failed = Some(error);
                            return Err(journal::Error::Closed);
                        }
                    }
                    bytes += shown.max(record.end.get() - record.position.get());
                    next = record.end;
                }
                Visit::Damaged(damage) => {
                    items.push(FeedItem::Lost { position: damage.position, bytes: damage.bytes });
                    next = Position::new(damage.position.get() + damage.bytes);
                }
            }
            Ok(())
        });
        match (failed, read) {
            (Some(error), _) => return Err(error),
            (None, Err(error)) if !matches!(error, journal::Error::Closed) => return Err(error.into()),
            _ => {}
        }
        if !is_full {
            // Everything up to there was seen, also if it began inside a batch and there is none behind that.
            next = next.max(end);
        }
        // Where it goes on must not vanish either: everything before it.
        inner.journal.wait(Position::new(next.get().saturating_sub(1)), self.durability.read_level())?;
        inner.hold_feed(next);
        inner.drop_feed(began);
        self.next = next;
        Ok(items)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.store.inner().drop_feed(self.next);
    }
}

fn changes(record: &Record<'_>) -> Result<Vec<FeedChange>> {
    let damaged = || Error::new(ErrorKind::Corrupt, format!("a command of batch {} does not decode", record.position));
    let mut changes = Vec::new();
    for section in &record.sections {
        for said in Commands::new(section.commands, section.at) {
            let recorded = said.map_err(|_| damaged())?.recorded;
            if recorded.version.is_none() && !kv::is_reserved(recorded.command.bucket()) {
                let change = change(&recorded.command).ok_or_else(damaged)?;
                let is_clear = matches!(change, FeedChange::Clear { .. });
                if !is_clear || !changes.contains(&change) {
                    changes.push(change);
                }
            }
        }
    }
    Ok(changes)
}

fn value_bytes(changes: &[FeedChange]) -> u64 {
    let bytes = |change: &FeedChange| match change {
        FeedChange::Put { value, .. } => value.len() as u64,
        FeedChange::Delete { .. } | FeedChange::Expire { .. } | FeedChange::Clear { .. } => 0,
    };
    changes.iter().map(bytes).sum()
}

fn change(command: &Command<'_>) -> Option<FeedChange> {
    let expiry = |at: u64| (at != 0).then_some(at);
    Some(match command {
        Command::Put(put) => FeedChange::Put {
            bucket: put.bucket.to_vec(),
            key: put.key.to_vec(),
            value: put.value()?,
            metadata: Metadata::from_encoded(put.metadata),
            indexes: Indexes::from_encoded(put.indexes),
            modified_ms: put.modified_ms,
            expires_ms: expiry(put.expires_ms),
        },
        Command::Delete { bucket, key } => FeedChange::Delete { bucket: bucket.to_vec(), key: key.to_vec() },
        Command::Expire { bucket, key, expires_ms, .. } => {
            FeedChange::Expire { bucket: bucket.to_vec(), key: key.to_vec(), expires_ms: expiry(*expires_ms) }
        }
        Command::Clear { bucket } => FeedChange::Clear { bucket: bucket.to_vec() },
    })
}
