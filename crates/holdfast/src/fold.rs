//! Folds: going through many objects of one instant, over heads or over objects, in a chosen order.
//!
//! May use: snapshots, `kv`, the journal. Must not know: protocols.

mod beside;
mod by_write;

use std::ops::{Bound, ControlFlow, Deref, Range, RangeInclusive};

use journal::Position;
use kv::{Clock, Compression, FoldRange, Head, Item, LeafSet, Put, Reader, Reading, Value, object_hash};
use regex::bytes::Regex;

use self::beside::Objects;
use crate::cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::hands::Working;
use crate::snapshot::Snapshot;

/// Objects that a fold goes through before it has a second thread: what it takes to start one is a small part of what they took.
const ALONE: usize = 4096;

/// In which order a fold comes to the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FoldOrder {
    /// By bucket, then key. One that goes through thousands of objects has a second thread read half of the partitions, if no other fold
    /// has the processor; the visitor is called by the caller's thread all the same.
    #[default]
    Key,
    /// As they lie in the journal: by when they were put, or moved by compaction. Reads large values at the speed of the
    /// disk, and passes over everything that was overwritten.
    Write,
    /// Partition by partition, by bucket and key in each: the least work.
    Partition,
}

/// Which objects to go through, and how.
#[derive(Debug, Clone)]
pub struct Fold<'a> {
    /// Only this bucket.
    pub bucket: Option<&'a [u8]>,
    /// First key; needs a bucket.
    pub start: Bound<&'a [u8]>,
    /// Last key; needs a bucket.
    pub end: Bound<&'a [u8]>,
    /// Only keys that this expression matches somewhere. See [`crate::regex()`].
    pub key_regex: Option<&'a Regex>,
    /// Only objects last changed in this time, in milliseconds since 1970.
    pub modified_ms: Range<u64>,
    /// Only objects under these leaves of a Merkle tree.
    pub leaves: Option<&'a LeafSet>,
    /// In which order.
    pub order: FoldOrder,
    /// Most objects to visit.
    pub limit: usize,
    /// Go on where an earlier fold of the same order ended.
    pub after: Option<&'a FoldCursor>,
}

impl Default for Fold<'_> {
    /// Everything, in order of keys.
    fn default() -> Self {
        Self {
            bucket: None,
            start: Bound::Unbounded,
            end: Bound::Unbounded,
            key_regex: None,
            modified_ms: 0..u64::MAX,
            leaves: None,
            order: FoldOrder::Key,
            limit: usize::MAX,
            after: None,
        }
    }
}

/// A place among all objects. It stays valid whatever changes, also over restarts; but another snapshot may show other
/// objects behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldCursor(Place);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Key(Vec<u8>),
    Address(u64),
    Partition(u16, Vec<u8>),
}

/// One object that a fold came to.
pub struct Folded<'a> {
    bucket: &'a [u8],
    key: &'a [u8],
    item: &'a Item<'a>,
    reader: &'a Reader,
    /// The command that put it, if it was just read.
    put: Option<&'a Put<'a>>,
}

/// The value of an object that a fold came to. Dereferences to its bytes.
#[derive(Debug)]
pub enum FoldedValue<'a> {
    /// It lies where the journal was just read.
    Read(&'a [u8]),
    /// It was read by itself.
    Own(Value),
}

/// Called for each object; says whether to go on.
pub type Visitor<'v> = &'v mut dyn FnMut(&Folded<'_>) -> Result<ControlFlow<()>>;

impl Folded<'_> {
    /// Its bucket.
    #[must_use]
    pub fn bucket(&self) -> &[u8] {
        self.bucket
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// Position of the batch that last changed it.
    #[must_use]
    pub fn version(&self) -> Position {
        self.item.brief().version
    }

    /// When it was last changed, in milliseconds since 1970.
    #[must_use]
    pub fn modified_ms(&self) -> u64 {
        self.item.brief().modified_ms
    }

    /// Length of its value.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        self.item.brief().value_bytes
    }

    /// All that is known of it.
    ///
    /// # Errors
    /// `Corrupt` when it does not decode.
    pub fn head(&self) -> Result<Head> {
        Ok(self.item.head()?)
    }

    /// What two stores can compare of it.
    ///
    /// # Errors
    /// `Corrupt` when it does not decode.
    pub fn clock(&self) -> Result<Clock> {
        Ok(self.item.clock()?)
    }

    /// Its value, proven by a checksum.
    ///
    /// # Errors
    /// `Corrupt` when the stored value is damaged.
    pub fn value(&self) -> Result<FoldedValue<'_>> {
        let Some(put) = self.put else { return Ok(FoldedValue::Own(self.reader.value_of(self.item)?)) };
        if put.compression == Compression::None {
            // The record that was just read is proven by its own checksum.
            return Ok(FoldedValue::Read(put.stored));
        }
        let damaged = || kv::Error::Value { at: self.item.brief().at, reason: "checksum mismatch" };
        Ok(FoldedValue::Own(Value::from_vec(put.value().ok_or_else(damaged)?)))
    }
}

impl FoldedValue<'_> {
    /// The value by itself, for whoever keeps it longer than the object is shown.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Read(bytes) => Value::from_vec(bytes.to_vec()),
            Self::Own(value) => value,
        }
    }
}

impl Deref for FoldedValue<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Own(value) => value,
        }
    }
}

impl FoldCursor {
    /// The cursor as letters and digits.
    #[must_use]
    pub fn encode(&self) -> String {
        match &self.0 {
            Place::Key(place) => cursor::encode(b'k', place),
            Place::Address(at) => cursor::encode(b'a', &at.to_be_bytes()),
            Place::Partition(number, place) => {
                cursor::encode(b'p', &[number.to_be_bytes().as_slice(), place.as_slice()].concat())
            }
        }
    }

    /// The cursor that [`FoldCursor::encode`] wrote.
    ///
    /// # Errors
    /// `Invalid` when it is something else.
    pub fn decode(text: &str) -> Result<Self> {
        if let Ok(place) = cursor::decode(b'k', text) {
            return Ok(Self(Place::Key(place)));
        }
        let invalid = || Error::new(ErrorKind::Invalid, "the continuation is not one that this store has given out");
        if let Ok(place) = cursor::decode(b'a', text) {
            let at = place.as_slice().try_into().map_err(|_| invalid())?;
            return Ok(Self(Place::Address(u64::from_be_bytes(at))));
        }
        let place = cursor::decode(b'p', text)?;
        let (number, rest) = place.split_first_chunk::<2>().ok_or_else(invalid)?;
        Ok(Self(Place::Partition(u16::from_be_bytes(*number), rest.to_vec())))
    }
}

impl Snapshot {
    /// Calls `visit` for each object that is wanted, as it was. Returns where to go on when the limit ended it, or the
    /// visitor; `None` when everything was visited.
    ///
    /// # Errors
    /// `Invalid` when the cursor is of another order or bucket; the visitor's; `Corrupt` when something stored is damaged.
    pub fn fold(&self, fold: &Fold<'_>, visit: Visitor<'_>) -> Result<Option<FoldCursor>> {
        fold.bucket.map_or(Ok(()), |bucket| self.inner().check_bucket(bucket))?;
        if let Some(FoldCursor(Place::Key(place) | Place::Partition(_, place))) = fold.after
            && !FoldRange::all(fold.bucket).holds(place)
        {
            let text = "the continuation is one of another bucket: begin without it";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let mut going = Going::new(fold, visit);
        let place = match fold.order {
            FoldOrder::Key => self.fold_by_key(&mut going)?.map(Place::Key),
            FoldOrder::Write => self.fold_by_write(&mut going)?.map(Place::Address),
            FoldOrder::Partition => self.fold_by_partition(&mut going)?,
        };
        Ok(place.map(FoldCursor))
    }

    fn fold_by_key(&self, going: &mut Going<'_, '_>) -> Result<Option<Vec<u8>>> {
        let after = match going.fold.after {
            None => None,
            Some(FoldCursor(Place::Key(place))) => Some(place.as_slice()),
            Some(_) => return Err(other_order()),
        };
        let _this = Working::this();
        let another = (going.most() > ALONE).then(|| Working::another(self.inner().threads)).flatten();
        let bounds = going.range(after).bounds(Reading::Sweep);
        let alone = if another.is_some() { ALONE } else { usize::MAX };
        let here = Objects::here(&self.readers, &bounds, self.now_ms());
        let place = self.pass_up_to(alone, here, going)?;
        if place.is_none() || going.is_over() {
            return Ok(place);
        }
        let bounds = going.range(place.as_deref()).bounds(Reading::Sweep);
        std::thread::scope(|scope| {
            let all = Objects::here_and_beside(scope, &self.readers, &bounds, self.now_ms());
            self.pass_up_to(usize::MAX, all, going)
        })
    }

    /// Visits what is wanted of so many objects. Returns the place of the last when there are more.
    fn pass_up_to(&self, most: usize, mut objects: Objects, going: &mut Going<'_, '_>) -> Result<Option<Vec<u8>>> {
        let (mut left, mut last) = (most, None);
        let mut more = objects.advance()?;
        while more && left > 0 && !going.is_over() {
            let (item, partition) = objects.on()?;
            let reader = self.readers.get(partition).expect("objects are of partitions");
            going.visit(&item, reader, None)?;
            left -= 1;
            last = (left == 0 || going.is_over()).then(|| item.place().to_vec());
            more = objects.advance()?;
        }
        Ok(last.filter(|_| more))
    }

    fn fold_by_partition(&self, going: &mut Going<'_, '_>) -> Result<Option<Place>> {
        let (first, mut after) = match going.fold.after {
            None => (0, None),
            Some(FoldCursor(Place::Partition(number, place))) => (*number, Some(place.as_slice())),
            Some(_) => return Err(other_order()),
        };
        let mut last: Option<(u16, Vec<u8>)> = None;
        for (number, reader) in (0u16..).zip(&self.readers).skip(usize::from(first)) {
            if going.fold.leaves.is_some_and(|leaves| !leaves.meets(hashes_of(number, self.readers.len()))) {
                after = None;
                continue;
            }
            let mut items = reader.items(&going.range(after.take()).bounds(Reading::Sweep), self.now_ms());
            while let Some(item) = items.step()? {
                if going.is_over() {
                    return Ok(last.map(|(number, place)| Place::Partition(number, place)));
                }
                going.visit(&item, reader, None)?;
                if going.is_over() {
                    last = Some((number, item.place().to_vec()));
                }
            }
        }
        Ok(None)
    }
}

/// Object hashes of a partition: see `Inner::partition`.
fn hashes_of(number: u16, partitions: usize) -> RangeInclusive<u64> {
    let first = |number: u128| (number << 64).div_ceil(partitions as u128);
    let (first, next) = (first(u128::from(number)), first(u128::from(number) + 1));
    u64::try_from(first).unwrap_or(u64::MAX)..=u64::try_from(next - 1).unwrap_or(u64::MAX)
}

fn other_order() -> Error {
    Error::new(ErrorKind::Invalid, "the continuation is of a fold in another order")
}

/// A fold that is under way.
struct Going<'f, 'v> {
    fold: &'f Fold<'f>,
    visit: Visitor<'v>,
    left: usize,
    ended: bool,
    /// What places of the bucket before began with, and the bucket: most objects are in the same.
    prefix: Vec<u8>,
    bucket: Vec<u8>,
}

impl<'f, 'v> Going<'f, 'v> {
    fn new(fold: &'f Fold<'f>, visit: Visitor<'v>) -> Self {
        Self { fold, visit, left: fold.limit, ended: false, prefix: Vec::new(), bucket: Vec::new() }
    }

    fn range<'a>(&self, after: Option<&'a [u8]>) -> FoldRange<'a>
    where
        'f: 'a,
    {
        FoldRange { bucket: self.fold.bucket, start: self.fold.start, end: self.fold.end, after }
    }

    fn is_over(&self) -> bool {
        self.ended || self.left == 0
    }

    /// The most objects of the range that it comes to before it is over.
    fn most(&self) -> usize {
        let Fold { key_regex: None, leaves: None, modified_ms: Range { start: 0, end: u64::MAX }, .. } = self.fold
        else {
            return usize::MAX;
        };
        self.left
    }

    /// Whether what is put lies in the range.
    fn is_within(&self, put: &Put<'_>) -> bool {
        let inside = || std::ops::RangeBounds::<[u8]>::contains(&(self.fold.start, self.fold.end), put.key);
        self.fold.bucket.is_none_or(|wanted| wanted == put.bucket && inside())
    }

    fn visit(&mut self, item: &Item<'_>, reader: &Reader, put: Option<&Put<'_>>) -> Result<()> {
        if !self.fold.modified_ms.contains(&item.brief().modified_ms) {
            return Ok(());
        }
        if self.prefix.is_empty() || !item.place().starts_with(&self.prefix) {
            let (bucket, key) = item.name()?;
            self.prefix = item.place().strip_suffix(key).unwrap_or_default().to_vec();
            self.bucket = bucket;
        }
        if kv::is_reserved(&self.bucket) {
            return Ok(());
        }
        let key = item.place().get(self.prefix.len()..).unwrap_or_default();
        let matches = self.fold.key_regex.is_none_or(|regex| regex.is_match(key));
        if !matches || self.fold.leaves.is_some_and(|leaves| !leaves.contains(object_hash(&self.bucket, key))) {
            return Ok(());
        }
        self.left -= 1;
        let folded = Folded { bucket: &self.bucket, key, item, reader, put };
        self.ended = (self.visit)(&folded)?.is_break();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_of_the_partitions_are_those_that_are_put_there() {
        for partitions in [1usize, 3, 16, 1000] {
            let mut next = 0u128;
            for number in 0..partitions {
                let hashes = hashes_of(u16::try_from(number).unwrap(), partitions);
                assert_eq!(u128::from(*hashes.start()), next, "without a gap");
                for hash in [*hashes.start(), *hashes.end()] {
                    assert_eq!(usize::try_from((u128::from(hash) * partitions as u128) >> 64).unwrap(), number);
                }
                next = u128::from(*hashes.end()) + 1;
            }
            assert_eq!(next, 1 << 64);
        }
    }
}
