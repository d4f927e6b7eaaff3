//! Listings over all partitions: pages in key order, scans in any order, buckets, counts.
//!
//! May use: `kv`, partitions. Must not know: protocols.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::Random;
use journal::PartitionId;
use kv::{Bounds, FoldRange, Head, Items, Page, PageOut, Reader, Reading, Value};

use crate::error::Result;
use crate::exclusive::Exclusive;
use crate::kv::{Kv, Shown};
use crate::partition::Partition;
use crate::staged::{Change, Changes};
use crate::store::Inner;
use crate::transaction::Transaction;

/// Where a scan goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanCursor {
    partition: PartitionId,
    after: Vec<u8>,
}

type Keys = (Vec<Vec<u8>>, Option<ScanCursor>);

fn keys_from(bucket: &[u8], start: Bound<&[u8]>) -> Bounds {
    FoldRange { start, ..FoldRange::all(Some(bucket)) }.bounds(Reading::Query)
}

/// Merges the partitions' objects of a bucket into one page in key order.
pub(crate) fn page<'r>(readers: impl Iterator<Item = &'r Reader>, page: &Page<'_>, now_ms: u64) -> kv::Result<PageOut> {
    let readers: Vec<&Reader> = readers.collect();
    let range = FoldRange { bucket: Some(page.bucket), start: page.start, end: page.end, after: None };
    let bounds = range.bounds(Reading::Query);
    let mut items = Items::of(readers.iter().copied(), &bounds, now_ms);
    let mut out = PageOut::default();
    let mut more = items.advance()?;
    while more && out.entries.len() < page.limit {
        let (item, reader) = (items.item()?, readers.get(items.reader()).expect("each object is a partition's"));
        let value = if page.values { Some(reader.value_of(&item)?) } else { None };
        out.entries.push((item.key_in(page.bucket).to_vec(), item.head()?, value));
        more = items.advance()?;
    }
    out.more = more;
    Ok(out)
}

/// Up to `limit` keys of a bucket, partition by partition.
fn scan(inner: &Inner, bucket: &[u8], cursor: Option<&ScanCursor>, limit: usize, now_ms: u64) -> Result<Keys> {
    let mut keys = Vec::new();
    let first = cursor.map_or(0, |cursor| cursor.partition.index());
    let mut start = cursor.map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.after.as_slice()));
    for partition in inner.partitions.iter().skip(first) {
        let mut items = partition.reader.items(&keys_from(bucket, start), now_ms);
        while let Some(item) = items.step()? {
            keys.push(item.key_in(bucket).to_vec());
            if keys.len() >= limit {
                let after = keys.last().cloned().unwrap_or_default();
                return Ok((keys, Some(ScanCursor { partition: partition.id, after })));
            }
        }
        start = Bound::Unbounded;
    }
    Ok((keys, None))
}

/// Some key of a bucket. Not evenly spread: keys after a gap are likelier.
fn random_key(inner: &Inner, bucket: &[u8], random: u64, now_ms: u64) -> Result<Option<Vec<u8>>> {
    let mut random = Random::new(random);
    let count = inner.partitions.len();
    let first = usize::try_from(random.below(count as u64)).unwrap_or(0);
    for partition in inner.partitions.iter().cycle().skip(first).take(count) {
        let first_from = |start| -> kv::Result<Option<Vec<u8>>> {
            let mut items = partition.reader.items(&keys_from(bucket, start), now_ms);
            Ok(items.step()?.map(|item| item.key_in(bucket).to_vec()))
        };
        let Some(lowest) = first_from(Bound::Unbounded)? else { continue };
        // A random place near the keys there are: the lowest key's shape with other bytes from some place on.
        let mut place = lowest.clone();
        let from = usize::try_from(random.below(place.len() as u64 + 1)).unwrap_or(0);
        for byte in place.iter_mut().skip(from) {
            *byte = byte.saturating_add(u8::try_from(random.below(10)).unwrap_or(0));
        }
        return Ok(Some(first_from(Bound::Included(&place))?.unwrap_or(lowest)));
    }
    Ok(None)
}

/// Every bucket of users that holds something, in order.
fn buckets(partitions: &[Partition]) -> Result<Vec<Vec<u8>>> {
    let mut all = std::collections::BTreeSet::new();
    for partition in partitions {
        let mut last: Option<Vec<u8>> = None;
        while let Some(bucket) = partition.reader.next_bucket(last.as_deref())? {
            if !kv::is_reserved(&bucket) {
                all.insert(bucket.clone());
            }
            last = Some(bucket);
        }
    }
    Ok(all.into_iter().collect())
}

impl Kv<'_> {
    /// A listing rests on everything that was appended before it.
    fn listing<T>(&self, list: impl FnOnce(&Inner, u64) -> Result<T>) -> Result<Shown<T>> {
        let inner = self.store.inner();
        inner.check_open()?;
        inner.partitions.iter().try_for_each(Partition::check)?;
        let value = list(inner, inner.clock.wall_ms())?;
        Ok(Shown { value, position: inner.newest() })
    }

    /// A part of one bucket in key order, as of one instant. Does not wait.
    ///
    /// # Errors
    /// `Corrupt` when something stored is damaged.
    pub fn page(&self, wanted: &Page<'_>) -> Result<Shown<PageOut>> {
        let snapshot = self.store.snapshot()?;
        let limit = wanted.limit.min(self.store.limits().page_entries_max);
        let value = snapshot.page(&Page { limit, ..*wanted })?;
        Ok(Shown { value, position: snapshot.position() })
    }

    /// Some keys of a bucket in no particular order, and where to go on. Keys that are there from the first call to the
    /// last are returned; others may be. Does not wait.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn scan(&self, bucket: &[u8], cursor: Option<&ScanCursor>, limit: usize) -> Result<Shown<Keys>> {
        self.store.inner().check_bucket(bucket)?;
        self.listing(|inner, now_ms| scan(inner, bucket, cursor, limit, now_ms))
    }

    /// Some key of a bucket, chosen by `random`. Does not wait.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn random_key(&self, bucket: &[u8], random: u64) -> Result<Shown<Option<Vec<u8>>>> {
        self.store.inner().check_bucket(bucket)?;
        self.listing(|inner, now_ms| random_key(inner, bucket, random, now_ms))
    }

    /// The buckets that hold something, in order; the cost is per bucket and partition, not per key. Does not wait.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn buckets(&self) -> Result<Shown<Vec<Vec<u8>>>> {
        self.listing(|inner, _| buckets(&inner.partitions))
    }

    /// How many objects a bucket holds; one that has expired counts until it is removed. Does not wait.
    ///
    /// # Errors
    /// `Closed`.
    pub fn count(&self, bucket: &[u8]) -> Result<Shown<u64>> {
        self.store.inner().check_bucket(bucket)?;
        self.listing(|inner, _| Ok(inner.partitions.iter().map(|partition| partition.lock().count(bucket)).sum()))
    }
}

type Staged = BTreeMap<Vec<u8>, Option<(Head, Value)>>;

/// Staged puts of a bucket, and staged removals as `None`.
fn staged(changes: &Changes, bucket: &[u8], now_ms: u64) -> Staged {
    let mut staged = BTreeMap::new();
    for change in changes.iter().filter(|change| change.bucket == bucket) {
        let put = match &change.change {
            Change::Put { stored, .. } => {
                change.change.head(None, now_ms).map(|head| (head, Value::from_vec(stored.value())))
            }
            Change::Delete => None,
            Change::Expire { .. } => continue,
        };
        staged.insert(change.key.clone(), put);
    }
    staged
}

/// A page of what is stored, which has as many entries more as there are staged changes if there are so many, with those changes.
fn with_staged(mut out: PageOut, staged: Staged, wanted: &Page<'_>) -> PageOut {
    // Whether it goes on behind this one says where those that are staged end, too.
    let last = out.entries.last().map(|(key, ..)| key.clone()).filter(|_| out.more);
    out.entries.retain(|(key, ..)| !staged.contains_key(key));
    let inside = (wanted.start.map(<[u8]>::to_vec), wanted.end.map(<[u8]>::to_vec));
    for (key, put) in staged {
        let Some((head, value)) = put else { continue };
        if std::ops::RangeBounds::contains(&inside, &key) && last.as_ref().is_none_or(|last| key <= *last) {
            out.entries.push((key, head, wanted.values.then_some(value)));
        }
    }
    out.entries.sort_by(|a, b| a.0.cmp(&b.0));
    out.more |= out.entries.len() > wanted.limit;
    out.entries.truncate(wanted.limit);
    out
}

/// Keys of a scan with staged changes, which come with its beginning.
fn scanned_with_staged((mut keys, next): Keys, staged: Staged, cursor: Option<&ScanCursor>) -> Keys {
    keys.retain(|key| !staged.contains_key(key));
    if cursor.is_none() {
        keys.extend(staged.into_iter().filter(|(_, put)| put.is_some()).map(|(key, _)| key));
    }
    (keys, next)
}

/// Listings as others see them at that moment, with the transaction's own changes, which are not watched: others may change what they
/// show before the commit. A key on which something rests is read.
impl Transaction {
    /// As [`Kv::page`], with this transaction's changes.
    ///
    /// # Errors
    /// As [`Kv::page`]; `Timeout` when the transaction's lease has ended.
    pub fn page_unwatched(&mut self, wanted: &Page<'_>) -> Result<PageOut> {
        let own = self.begin_listing(wanted.bucket)?;
        let limit = wanted.limit.min(self.store().limits().page_entries_max);
        let snapshot = self.store().snapshot()?;
        let out = snapshot.page(&Page { limit: limit + own.len(), ..*wanted })?;
        self.note_seen(snapshot.position())?;
        Ok(with_staged(out, own, &Page { limit, ..*wanted }))
    }

    /// As [`Kv::scan`], with this transaction's changes; what it puts between two calls may be left out.
    ///
    /// # Errors
    /// As [`Transaction::page_unwatched`].
    pub fn scan_unwatched(&mut self, bucket: &[u8], cursor: Option<&ScanCursor>, limit: usize) -> Result<Keys> {
        let own = self.begin_listing(bucket)?;
        let Shown { value, position } = self.store().kv().scan(bucket, cursor, limit)?;
        self.note_seen(position)?;
        Ok(scanned_with_staged(value, own, cursor))
    }

    /// As [`Kv::random_key`], with this transaction's changes.
    ///
    /// # Errors
    /// As [`Transaction::page_unwatched`].
    pub fn random_key_unwatched(&mut self, bucket: &[u8], random: u64) -> Result<Option<Vec<u8>>> {
        if self.begin_listing(bucket)?.is_empty() {
            let Shown { value, position } = self.store().kv().random_key(bucket, random)?;
            self.note_seen(position)?;
            return Ok(value);
        }
        let (start, end) = (Bound::Unbounded, Bound::Unbounded);
        let out = self.page_unwatched(&Page { bucket, start, end, limit: 1, values: false })?;
        Ok(out.entries.into_iter().next().map(|(key, ..)| key))
    }

    /// As [`Kv::buckets`]; those that exist only by this transaction's changes are left out.
    ///
    /// # Errors
    /// As [`Transaction::page_unwatched`].
    pub fn buckets_unwatched(&mut self) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        let Shown { value, position } = self.store().kv().buckets()?;
        self.note_seen(position)?;
        Ok(value)
    }

    /// As [`Kv::count`], with this transaction's changes.
    ///
    /// # Errors
    /// As [`Transaction::page_unwatched`].
    pub fn count_unwatched(&mut self, bucket: &[u8]) -> Result<u64> {
        let own = self.begin_listing(bucket)?;
        let Shown { value: mut count, position: mut newest } = self.store().kv().count(bucket)?;
        let inner = self.store().inner();
        for (key, put) in own {
            // One that has expired counts until it is removed.
            let Shown { value, position } =
                inner.read(inner.partition(bucket, &key), |reader| reader.head(bucket, &key, 0))?;
            newest = newest.max(position);
            match put {
                Some(_) if value.is_none() => count += 1,
                None if value.is_some() => count = count.saturating_sub(1),
                _ => {}
            }
        }
        self.note_seen(newest)?;
        Ok(count)
    }

    /// Its own changes of a bucket.
    fn begin_listing(&self, bucket: &[u8]) -> Result<Staged> {
        self.check()?;
        Ok(staged(self.changes(), bucket, self.store().now_ms()))
    }
}

impl Exclusive<'_> {
    fn begin_listing(&mut self, bucket: &[u8]) -> Result<()> {
        self.inner.check_bucket(bucket)?;
        self.need_all()?;
        self.seen = self.seen.max(self.inner.newest());
        Ok(())
    }

    /// As [`Kv::page`], with staged changes. Needs `Scope::All`.
    ///
    /// # Errors
    /// `Corrupt` when something stored is damaged.
    pub fn page(&mut self, wanted: &Page<'_>) -> Result<PageOut> {
        self.begin_listing(wanted.bucket)?;
        let staged = staged(&self.changes, wanted.bucket, self.now_ms);
        let limit = wanted.limit.min(self.inner.options.limits.page_entries_max);
        let mut out = PageOut::default();
        if !self.changes.is_cleared(wanted.bucket) {
            let more = Page { limit: limit + staged.len(), ..*wanted };
            let readers = self.inner.partitions.iter().map(|partition| &partition.reader);
            out = page(readers, &more, self.now_ms)?;
        }
        Ok(with_staged(out, staged, &Page { limit, ..*wanted }))
    }

    /// As [`Kv::scan`], with staged changes. Needs `Scope::All`.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn scan(&mut self, bucket: &[u8], cursor: Option<&ScanCursor>, limit: usize) -> Result<Keys> {
        self.begin_listing(bucket)?;
        let found = match self.changes.is_cleared(bucket) {
            true => (Vec::new(), None),
            false => scan(self.inner, bucket, cursor, limit, self.now_ms)?,
        };
        Ok(scanned_with_staged(found, staged(&self.changes, bucket, self.now_ms), cursor))
    }

    /// As [`Kv::random_key`], with staged changes. Needs `Scope::All`.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn random_key(&mut self, bucket: &[u8], random: u64) -> Result<Option<Vec<u8>>> {
        self.begin_listing(bucket)?;
        let (start, end) = (Bound::Unbounded, Bound::Unbounded);
        if self.changes.is_empty() {
            return random_key(self.inner, bucket, random, self.now_ms);
        }
        let out = self.page(&Page { bucket, start, end, limit: 1, values: false })?;
        Ok(out.entries.into_iter().next().map(|(key, ..)| key))
    }

    /// As [`Kv::buckets`]; buckets that exist only in staged changes are left out. Needs `Scope::All`.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn buckets(&mut self) -> Result<Vec<Vec<u8>>> {
        self.begin_listing(&[])?;
        let mut all = buckets(&self.inner.partitions)?;
        all.retain(|bucket| !self.changes.is_cleared(bucket));
        Ok(all)
    }

    /// As [`Kv::count`], with staged changes. Needs `Scope::All`.
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn count(&mut self, bucket: &[u8]) -> Result<u64> {
        self.begin_listing(bucket)?;
        let cleared = self.changes.is_cleared(bucket);
        let mut count: u64 = if cleared { 0 } else { self.engines().map(|(_, engine)| engine.count(bucket)).sum() };
        for (key, put) in staged(&self.changes, bucket, self.now_ms) {
            let partition = self.inner.partition(bucket, &key);
            let stored = !cleared && partition.reader.head(bucket, &key, 0)?.version.is_some();
            match put {
                Some(_) if !stored => count += 1,
                None if stored => count -= 1,
                _ => {}
            }
        }
        Ok(count)
    }
}
