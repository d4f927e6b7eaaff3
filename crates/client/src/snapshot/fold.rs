//! Folds over a snapshot, a page at a time.
//!
//! A fold in the process calls a closure for each object, which cannot travel. So its pages travel instead, the other way, with the
//! same bounds in the process as on a server.
//!
//! May use: as `snapshot`. Must not know: sockets.

use std::ops::{Bound, ControlFlow, Range};

use holdfast::{Fold, FoldCursor, FoldOrder, FoldedValue, Head, LeafSet, Regex, Result, Value};

use super::{At, Snapshot, invalid};
use crate::call::Call;
use crate::kv::listing::{between, limit};
use crate::kv::read_head;
use crate::remote::{Again, Reply, Words, strange};

/// Most objects of a page, and the bytes after which no other is added: those of a server.
const PAGE_MAX: (usize, usize) = (10_000, 1 << 20);
/// Bytes beside key, metadata and value that an object counts with.
const OBJECT_BYTES: usize = 256;

/// What of each object a fold shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FoldShow {
    /// Bucket and key.
    Keys,
    /// Also what is known of it.
    #[default]
    Heads,
    /// Also its value.
    Objects,
}

/// An object that a fold came to.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedObject {
    /// Its bucket.
    pub bucket: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// What is known of it, unless only keys were asked for.
    pub head: Option<Head>,
    /// Its value, if objects were asked for.
    pub value: Option<Value>,
}

/// A page of a fold.
#[derive(Debug, Clone, Default)]
pub struct FoldPage {
    /// The objects, in the order of the fold.
    pub objects: Vec<FoldedObject>,
    /// What the fold goes on [after](Fold::after); `None` at the end. A page may have few objects, or none, and yet not be the last.
    pub next: Option<FoldCursor>,
}

/// A [`Fold`] for as long as its call takes.
struct Owned {
    bucket: Option<Vec<u8>>,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    key_regex: Option<Regex>,
    modified_ms: Range<u64>,
    leaves: Option<LeafSet>,
    order: FoldOrder,
    limit: usize,
    after: Option<FoldCursor>,
}

impl Owned {
    fn of(fold: &Fold<'_>) -> Result<Self> {
        let is_whole = fold.start == Bound::Unbounded && fold.end == Bound::Unbounded;
        if fold.bucket.is_none() && !is_whole {
            return invalid("the ends of a fold are keys of a bucket: name it");
        }
        Ok(Self {
            bucket: fold.bucket.map(<[u8]>::to_vec),
            start: fold.start.map(<[u8]>::to_vec),
            end: fold.end.map(<[u8]>::to_vec),
            key_regex: fold.key_regex.cloned(),
            modified_ms: fold.modified_ms.clone(),
            leaves: fold.leaves.cloned(),
            order: fold.order,
            limit: fold.limit.max(1),
            after: fold.after.cloned(),
        })
    }

    fn fold(&self) -> Fold<'_> {
        Fold {
            bucket: self.bucket.as_deref(),
            start: self.start.as_ref().map(Vec::as_slice),
            end: self.end.as_ref().map(Vec::as_slice),
            key_regex: self.key_regex.as_ref(),
            modified_ms: self.modified_ms.clone(),
            leaves: self.leaves.as_ref(),
            order: self.order,
            limit: self.limit,
            after: self.after.as_ref(),
        }
    }

    fn words(&self, show: &str) -> Words {
        let mut words = Words::new("KV.FOLD").and(show);
        if let Some(bucket) = &self.bucket {
            let fold = self.fold();
            words = between(words.and("BUCKET").and(bucket), fold.start, fold.end);
        }
        if let Some(regex) = &self.key_regex {
            words = words.and("KEYREGEX").and(regex.as_str());
        }
        if self.modified_ms != (0..u64::MAX) {
            let Range { start, end } = &self.modified_ms;
            words = words.and("MODIFIED").and(start.to_string()).and(end.to_string());
        }
        if let Some(leaves) = &self.leaves {
            words = words.and("LEAVES").and(leaves.size().leaves().to_string());
            leaves.iter().for_each(|leaf| words.add(leaf.to_string()));
        }
        let order = match self.order {
            FoldOrder::Key => "key",
            FoldOrder::Write => "write",
            FoldOrder::Partition => "partition",
        };
        words = limit(words.and("ORDER").and(order), self.limit);
        match &self.after {
            Some(after) => words.and("AFTER").and(after.encode()),
            None => words,
        }
    }

    /// A page of a store in the process.
    fn page(&self, snapshot: &holdfast::Snapshot, show: FoldShow) -> Result<FoldPage> {
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let fold = Fold { limit: self.limit.min(PAGE_MAX.0), ..self.fold() };
        let next = snapshot.fold(&fold, &mut |folded| {
            let head = if show == FoldShow::Keys { None } else { Some(folded.head()?) };
            let value = if show == FoldShow::Objects { Some(folded.value()?) } else { None };
            let value = value.map(FoldedValue::into_value);
            let (bucket, key) = (folded.bucket().to_vec(), folded.key().to_vec());
            let of_head = head.as_ref().map_or(0, |head| head.metadata.len() + head.indexes.len());
            let of_value = value.as_ref().map_or(0, |value| value.len());
            bytes += bucket.len() + key.len() + of_head + of_value + OBJECT_BYTES;
            objects.push(FoldedObject { bucket, key, head, value });
            Ok(if bytes < PAGE_MAX.1 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(FoldPage { objects, next })
    }
}

/// `[objects or how many, where to go on, durability]`.
fn read_page(reply: Reply) -> Result<(Reply, Option<FoldCursor>)> {
    let [found, next, _] = reply.items()?;
    let next = next.some()?.map(|next| FoldCursor::decode(&next.text()?)).transpose()?;
    Ok((found, next))
}

/// `[bucket, key, head unless only keys, value if objects]`.
fn read_object(reply: Reply) -> Result<FoldedObject> {
    let mut fields = reply.list()?.into_iter();
    let (Some(bucket), Some(key)) = (fields.next(), fields.next()) else { return Err(strange(&Reply::Null)) };
    let head = fields.next().as_ref().map(read_head).transpose()?;
    let value = fields.next().map(Reply::bytes).transpose()?.map(Value::from_vec);
    Ok(FoldedObject { bucket: bucket.bytes()?, key: key.bytes()?, head, value })
}

impl Snapshot {
    /// The next objects that are wanted: [`holdfast::Snapshot::fold`], a page at a time. While there is a [next](FoldPage::next), go on
    /// after it. A page has as many objects as the limit says, 10,000 at the most, and ends at 1 MiB; on a server also when 100,000 objects
    /// were looked at.
    ///
    /// # Errors
    /// As there, and as [`Snapshot::get`]; `Invalid` when the fold has ends and no bucket.
    pub fn fold(&self, fold: &Fold<'_>, show: FoldShow) -> Call<FoldPage> {
        let owned = match Owned::of(fold) {
            Ok(owned) => owned,
            Err(error) => return Call::done(Err(error)),
        };
        let name = match show {
            FoldShow::Keys => "KEYS",
            FoldShow::Heads => "HEADS",
            FoldShow::Objects => "OBJECTS",
        };
        let words = owned.words(name);
        self.ask_one(
            move |snapshot| owned.page(snapshot, show),
            || Ok(words),
            |reply| {
                let (objects, next) = read_page(reply)?;
                let objects = objects.list()?.into_iter().map(read_object).collect::<Result<_>>()?;
                Ok(FoldPage { objects, next })
            },
        )
    }

    /// How many objects are wanted, at most as many as the limit says. A server is asked as often as it takes, for 100,000 objects at a
    /// time.
    ///
    /// # Errors
    /// As [`Snapshot::fold`].
    pub fn count(&self, fold: &Fold<'_>) -> Call<u64> {
        let mut owned = match Owned::of(fold) {
            Ok(owned) => owned,
            Err(error) => return Call::done(Err(error)),
        };
        match &self.at {
            At::Here(here, snapshot) => {
                let snapshot = std::sync::Arc::clone(snapshot);
                here.elsewhere(move || {
                    let mut count = 0;
                    snapshot.fold(&owned.fold(), &mut |_| {
                        count += 1;
                        Ok(ControlFlow::Continue(()))
                    })?;
                    Ok(count)
                })
            }
            At::There(there, held, id) => {
                let (there, held, id) = (there.clone(), std::sync::Arc::clone(held), id.clone());
                Call::running(async move {
                    let mut count = 0;
                    loop {
                        let words = owned.words("COUNT").and("SNAPSHOT").and(&id);
                        let one = |replies: Vec<Reply>| read_page(replies.into_iter().next().unwrap_or(Reply::Null));
                        let (found, next) = there.call_held(&held, &[words], Again::May, one).await?;
                        let found = found.unsigned()?;
                        count += found;
                        owned.limit = owned.limit.saturating_sub(usize::try_from(found).unwrap_or(usize::MAX));
                        if next.is_none() || owned.limit == 0 {
                            return Ok(count);
                        }
                        owned.after = next;
                    }
                })
            }
        }
    }
}
