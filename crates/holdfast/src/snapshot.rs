//! A consistent view of the store at one instant.
//!
//! May use: partitions, `kv`. Must not know: protocols.

use journal::Position;
use kv::{Engine, Head, Object, Page, PageOut, Reader, UpTo};

use crate::error::Result;
use crate::listing;
use crate::partition::Partition;
use crate::store::{Inner, Store};

/// The store as it was at one position and time, for as long as it is held. Holding it keeps old versions on disk and
/// what was in the ledger's memory at that time, never a copy of the ledger.
pub struct Snapshot {
    store: Store,
    /// A view of each partition.
    pub(crate) readers: Vec<Reader>,
    position: Position,
    now_ms: u64,
}

impl Snapshot {
    pub(crate) fn take(store: &Store) -> Result<Self> {
        Self::take_noting(store, |_| ()).map(|(snapshot, _)| snapshot)
    }

    /// Takes a snapshot, and something of each engine in the same instant.
    pub(crate) fn take_noting<T>(store: &Store, note: impl Fn(&Engine) -> T) -> Result<(Self, Vec<T>)> {
        let inner = store.inner();
        inner.check_open()?;
        let (position, now_ms, readers, noted) = {
            // With every lock held no batch is half applied.
            let held: Vec<_> = inner.partitions.iter().map(Partition::lock).collect();
            let position = inner.newest();
            inner.hold_snapshot(position);
            let view = |partition: &Partition| partition.reader.view();
            let readers = inner.partitions.iter().map(view).collect();
            (position, inner.clock.wall_ms(), readers, held.iter().map(|engine| note(engine)).collect())
        };
        inner.partitions.iter().try_for_each(Partition::check).inspect_err(|_| inner.drop_snapshot(position))?;
        Ok((Self { store: store.clone(), readers, position, now_ms }, noted))
    }

    pub(crate) fn inner(&self) -> &Inner {
        self.store.inner()
    }

    /// The time it takes for now, in milliseconds since 1970: what has expired by then is absent.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn reader(&self, bucket: &[u8], key: &[u8]) -> &Reader {
        let id = self.inner().partition(bucket, key).id;
        self.readers.get(id.index()).expect("there is a view of each partition")
    }

    /// Everything at or before this position is seen, and nothing after. Wait for it before showing what was read.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The object as it was.
    ///
    /// # Errors
    /// `Corrupt` when the stored value is damaged.
    pub fn get(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Object>> {
        self.inner().check_bucket(bucket)?;
        Ok(self.reader(bucket, key).get(bucket, key, self.now_ms)?.value)
    }

    /// As [`Snapshot::get`], but leaves a value alone that has more bytes than `bytes_max`.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_up_to(&self, bucket: &[u8], key: &[u8], bytes_max: u64) -> Result<Option<UpTo>> {
        self.inner().check_bucket(bucket)?;
        Ok(self.reader(bucket, key).get_up_to(bucket, key, self.now_ms, bytes_max)?.value)
    }

    /// What was known of the object.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn head(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Head>> {
        self.inner().check_bucket(bucket)?;
        Ok(self.reader(bucket, key).head(bucket, key, self.now_ms)?.value)
    }

    /// A part of one bucket in key order.
    ///
    /// # Errors
    /// `Corrupt` when something stored is damaged.
    pub fn page(&self, page: &Page<'_>) -> Result<PageOut> {
        self.inner().check_bucket(page.bucket)?;
        Ok(listing::page(self.readers.iter(), page, self.now_ms)?)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.inner().drop_snapshot(self.position);
    }
}
