//! The key-value engine as users see it.
//!
//! May use: the `kv` engine, the commit path. Must not know: protocols.

use journal::Position;
use kv::{Compression, Found, Head, Indexes, Metadata, Object, Reader, UpTo};

use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Committed, Scope};
use crate::store::Store;

/// The store's objects by bucket and key.
///
/// Reads take no lock. Methods that wait use the store's durability unless they are given one.
#[derive(Clone, Copy)]
pub struct Kv<'a> {
    pub(crate) store: &'a Store,
}

/// An answer, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown<T> {
    /// The answer.
    pub value: T,
    /// The newest journal position that the answer depends on: wait for it before showing the answer to anybody who
    /// must not see it vanish.
    pub position: Position,
}

/// Whether a change may happen, judged in the same instant in which it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// Always.
    #[default]
    None,
    /// Only if there is no such object.
    Absent,
    /// Only if there is such an object.
    Present,
    /// Only if there is such an object, of just this version.
    Version(Position),
}

/// How to put an object.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// When it expires, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<u64>,
    /// Keep the expiry of the object that is replaced, instead.
    pub keep_expiry: bool,
    /// What to note on it.
    pub metadata: Metadata,
    /// What it is to be found by. A put replaces all index entries of the object.
    pub indexes: Indexes,
    /// How its value is stored; `None` is as the store does: [`crate::Options::compression`].
    pub compression: Option<Compression>,
    /// Whether it may happen.
    pub condition: Condition,
}

impl PutOptions {
    /// Options that keep everything an object has besides its value: expiry, metadata and index entries.
    #[must_use]
    pub fn keeping(head: Head) -> Self {
        let Head { expires_ms, metadata, indexes, .. } = head;
        Self { expires_ms, metadata, indexes, ..Self::default() }
    }
}

impl Condition {
    pub(crate) fn check(self, head: Option<&Head>) -> Result<()> {
        let holds = match self {
            Self::None => true,
            Self::Absent => head.is_none(),
            Self::Present => head.is_some(),
            Self::Version(version) => head.is_some_and(|head| head.version == version),
        };
        if holds {
            return Ok(());
        }
        let is = head.map_or("absent".to_owned(), |head| format!("at version {}", head.version));
        let wanted = match self {
            Self::None => String::new(),
            Self::Absent => "absent".into(),
            Self::Present => "present".into(),
            Self::Version(version) => format!("at version {version}"),
        };
        Err(Error::new(ErrorKind::Conflict, format!("the object is {is}, not {wanted}")))
    }
}

impl Kv<'_> {
    /// The object, as durable as the store's durability wants what is shown to be.
    ///
    /// # Errors
    /// `Corrupt` when the stored value is damaged; `Unavailable` when it cannot be made durable any more.
    pub fn get(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Object>> {
        self.store.settle(self.peek(bucket, key)?)
    }

    /// What is known of the object, without touching its value.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn head(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Head>> {
        self.store.settle(self.peek_head(bucket, key)?)
    }

    /// Looks something up, without waiting.
    fn look<T>(
        &self,
        bucket: &[u8],
        key: &[u8],
        what: impl Fn(&Reader, u64) -> kv::Result<Found<T>>,
    ) -> Result<Shown<Option<T>>> {
        let inner = self.store.inner();
        inner.check_open()?;
        inner.check_bucket(bucket)?;
        let now_ms = inner.clock.wall_ms();
        let partition = inner.partition(bucket, key);
        partition.check()?;
        inner.read(partition, |reader| what(reader, now_ms))
    }

    /// As [`Kv::get`], but does not wait.
    ///
    /// # Errors
    /// `Corrupt` when the stored value is damaged.
    pub fn peek(&self, bucket: &[u8], key: &[u8]) -> Result<Shown<Option<Object>>> {
        self.look(bucket, key, |reader, now_ms| reader.get(bucket, key, now_ms))
    }

    /// As [`Kv::peek`], but leaves a value alone that has more bytes than `bytes_max`: for who has no time for large ones.
    ///
    /// # Errors
    /// As [`Kv::peek`].
    pub fn peek_up_to(&self, bucket: &[u8], key: &[u8], bytes_max: u64) -> Result<Shown<Option<UpTo>>> {
        self.look(bucket, key, |reader, now_ms| reader.get_up_to(bucket, key, now_ms, bytes_max))
    }

    /// As [`Kv::head`], but does not wait.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn peek_head(&self, bucket: &[u8], key: &[u8]) -> Result<Shown<Option<Head>>> {
        self.look(bucket, key, |reader, now_ms| reader.head(bucket, key, now_ms))
    }

    /// Puts an object and waits for the store's durability.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold; `Limit`; `Unavailable`.
    pub fn put(&self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Result<Committed> {
        self.put_at(bucket, key, value, options, self.store.durability())
    }

    /// Puts an object and waits for `durability`.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn put_at(
        &self,
        bucket: &[u8],
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
        durability: Durability,
    ) -> Result<Committed> {
        self.store.give_way(durability);
        let committed = self.store.told(self.put_no_wait(bucket, key, value, options), durability)?;
        self.store.wait(committed.position, durability)?;
        Ok(committed)
    }

    /// As [`Kv::put`], but does not wait for any durability: [`Store::wait`] for the position, or for what the error
    /// [rests on](Error::rests_on), before telling anybody.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn put_no_wait(&self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Result<Committed> {
        if options.condition == Condition::None && !options.keep_expiry {
            return self.store.inner().put_blindly(bucket, key, value, options);
        }
        let mut exclusive = self.store.exclusive(&Scope::Keys(&[(bucket, key)]))?;
        exclusive.put(bucket, key, value, options)?;
        exclusive.commit()
    }

    /// Removes an object if the condition holds, and waits for the store's durability. `None` if there was none.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold; `Unavailable`.
    pub fn delete(&self, bucket: &[u8], key: &[u8], condition: Condition) -> Result<Option<Committed>> {
        let durability = self.store.durability();
        self.store.give_way(durability);
        // What is waited for is waited for without the lock.
        let delete = || {
            let mut exclusive = self.store.exclusive(&Scope::Keys(&[(bucket, key)]))?;
            exclusive.check(bucket, key, condition)?;
            let there = exclusive.delete(bucket, key)?;
            Ok((there, exclusive.commit()?))
        };
        let (there, committed) = self.store.told(delete(), durability)?;
        self.store.wait(committed.position, durability)?;
        Ok(there.then_some(committed))
    }

    /// Changes when an object expires, `None` for never, and waits for the store's durability. False if there is none.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn expire(&self, bucket: &[u8], key: &[u8], expires_ms: Option<u64>) -> Result<bool> {
        self.store.give_way(self.store.durability());
        let mut exclusive = self.store.exclusive(&Scope::Keys(&[(bucket, key)]))?;
        let there = exclusive.expire(bucket, key, expires_ms)?;
        let committed = exclusive.commit()?;
        self.store.wait(committed.position, self.store.durability())?;
        Ok(there)
    }
}
