//! Listings of keys: buckets, and what one holds, in order of keys, a page at a time.
//!
//! May use: as `kv`. Must not know: sockets.

use std::ops::Bound;
use std::time::Duration;

use holdfast::{Page, PageOut, Position, Result, Shown, Store, Value};

use super::{Kv, read_head};
use crate::call::Call;
use crate::client::Place;
use crate::embedded::Embedded;
use crate::remote::{Again, Reply, Words, strange};

/// What a call waits for that does not block.
const NO_BLOCK: Option<Duration> = Some(Duration::ZERO);

/// Most entries of a page of a store in the process, whatever was asked for.
pub(crate) const ENTRIES_MAX: usize = 100_000;

/// Keys of one bucket, ascending: from [`Kv::keys`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// Whether the limit ended the page: go on behind its last key.
    pub more: bool,
}

/// A [`Page`] that is wanted, for as long as its call takes.
pub(crate) struct Owned {
    bucket: Vec<u8>,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    limit: usize,
    values: bool,
}

impl Owned {
    pub(crate) fn of(page: &Page<'_>) -> Self {
        let Page { bucket, start, end, limit, values } = *page;
        let (start, end) = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        Self { bucket: bucket.to_vec(), start, end, limit: limit.max(1), values }
    }

    pub(crate) fn page(&self) -> Page<'_> {
        Page {
            bucket: &self.bucket,
            start: self.start.as_ref().map(Vec::as_slice),
            end: self.end.as_ref().map(Vec::as_slice),
            limit: self.limit,
            values: self.values,
        }
    }
}

/// The keys of a page.
pub(crate) fn keys_of(page: PageOut) -> Keys {
    Keys { keys: page.entries.into_iter().map(|(key, ..)| key).collect(), more: page.more }
}

/// The smallest key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// START and END: the commands include the one, and not the other.
pub(crate) fn between(mut words: Words, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Words {
    words = match start {
        Bound::Included(key) => words.and("START").and(key),
        Bound::Excluded(key) => words.and("START").and(behind(key)),
        Bound::Unbounded => words,
    };
    match end {
        Bound::Included(key) => words.and("END").and(behind(key)),
        Bound::Excluded(key) => words.and("END").and(key),
        Bound::Unbounded => words,
    }
}

/// LIMIT, within what the commands' numbers hold.
pub(crate) fn limit(words: Words, limit: usize) -> Words {
    words.and("LIMIT").and(limit.clamp(1, i64::MAX as usize).to_string())
}

/// KV.FOLD, which tells of each object what KV.RANGE leaves out.
pub(crate) fn page_words(wanted: &Page<'_>) -> Words {
    let words = between(Words::new("KV.FOLD").and("BUCKET").and(wanted.bucket), wanted.start, wanted.end);
    limit(words.and(if wanted.values { "OBJECTS" } else { "HEADS" }), wanted.limit)
}

pub(crate) fn keys_words(wanted: &Page<'_>) -> Words {
    limit(between(Words::new("KV.KEYS").and(wanted.bucket), wanted.start, wanted.end), wanted.limit)
}

/// `[[bucket, key, head, value if asked for] ..., where to go on, durability]`.
pub(crate) fn read_page(reply: Reply) -> Result<PageOut> {
    let [objects, next, _] = reply.items()?;
    let entry = |object: Reply| {
        let mut fields = object.list()?.into_iter().skip(1);
        let (Some(key), Some(head)) = (fields.next(), fields.next()) else { return Err(strange(&Reply::Null)) };
        let value = fields.next().map(Reply::bytes).transpose()?.map(Value::from_vec);
        Ok((key.bytes()?, read_head(&head)?, value))
    };
    let entries = objects.list()?.into_iter().map(entry).collect::<Result<_>>()?;
    Ok(PageOut { entries, more: next.some()?.is_some() })
}

/// `[keys, where to start next, durability]`.
pub(crate) fn read_keys(reply: Reply) -> Result<Keys> {
    let [keys, next, _] = reply.items()?;
    Ok(Keys { keys: texts(keys)?, more: next.some()?.is_some() })
}

fn texts(reply: Reply) -> Result<Vec<Vec<u8>>> {
    reply.list()?.into_iter().map(Reply::bytes).collect()
}

/// Lists, and waits for what the listing rests on; in another thread when it is awaited, because it may read from the disk.
fn listed<T: Send + 'static>(
    here: &Embedded,
    list: impl FnOnce(&Store) -> Result<Shown<T>> + Send + 'static,
) -> Call<T> {
    let store = here.store().clone();
    here.elsewhere(move || {
        let Shown { value, position } = list(&store)?;
        if position != Position::ZERO {
            store.wait(position, store.durability())?;
        }
        Ok(value)
    })
}

impl Kv {
    /// The buckets that hold something, in order: [`holdfast::Kv::buckets`]. A server shows those that the user may read.
    ///
    /// # Errors
    /// As there.
    pub fn buckets(&self) -> Call<Vec<Vec<u8>>> {
        match &self.place {
            Place::Here(here) => listed(here, |store| store.kv().buckets()),
            Place::There(there) => {
                let sorted = |reply| {
                    let mut names = texts(reply)?;
                    names.sort_unstable();
                    Ok(names)
                };
                there.call_alone(&Words::new("KV.BUCKETS"), Again::May, NO_BLOCK, sorted)
            }
        }
    }

    /// How many objects a bucket holds: [`holdfast::Kv::count`]. 0 where there is no such bucket.
    ///
    /// # Errors
    /// As there.
    pub fn count(&self, bucket: &[u8]) -> Call<u64> {
        match &self.place {
            Place::Here(here) => {
                let (store, bucket) = (here.store().clone(), bucket.to_vec());
                here.shown(Some(store.durability()), move || store.kv().count(&bucket))
            }
            Place::There(there) => {
                let words = Words::new("KV.STATS").and(bucket);
                there.call(&words, Again::May, |reply| reply.good()?.field("keys")?.unsigned())
            }
        }
    }

    /// Objects of one bucket in order of keys, as of one instant, with what is known of each, and with their values if they are
    /// asked for: [`holdfast::Kv::page`]. While there is [more](PageOut::more), go on with a page that starts behind the last key
    /// (`Bound::Excluded`). A page has one object at the least if there is one; a server gives 10,000 at the most, and ends a
    /// page at 1 MiB.
    ///
    /// # Errors
    /// As there.
    pub fn page(&self, wanted: &Page<'_>) -> Call<PageOut> {
        let wanted = Owned::of(wanted);
        match &self.place {
            Place::Here(here) => listed(here, move |store| store.kv().page(&wanted.page())),
            Place::There(there) => there.call_alone(&page_words(&wanted.page()), Again::May, NO_BLOCK, read_page),
        }
    }

    /// The keys alone of such a page, which cost a server less; `values` counts for nothing.
    ///
    /// # Errors
    /// As [`Kv::page`].
    pub fn keys(&self, wanted: &Page<'_>) -> Call<Keys> {
        let wanted = Owned::of(&Page { values: false, ..*wanted });
        match &self.place {
            Place::Here(here) => listed(here, move |store| {
                let Shown { value, position } = store.kv().page(&wanted.page())?;
                Ok(Shown { value: keys_of(value), position })
            }),
            Place::There(there) => there.call_alone(&keys_words(&wanted.page()), Again::May, NO_BLOCK, read_keys),
        }
    }
}
