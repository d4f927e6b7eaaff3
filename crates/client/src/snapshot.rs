//! The store's keys as they were at one instant, in the process or on a server, for as long as somebody holds it.
//!
//! A snapshot on a server belongs to a connection: it has one alone, and ends with it.
//!
//! May use: `call`, `embedded`, `kv`, `remote`, the facade. Must not know: sockets.

mod fold;

use std::sync::Arc;

use holdfast::{Error, ErrorKind, Head, IndexPage, IndexQuery, Object, Page, PageOut, Position, Result, Shown, Value};

use crate::call::Call;
use crate::client::{Client, Place};
use crate::embedded::Embedded;
use crate::kv::listing::{self, Keys, Owned, keys_of};
use crate::kv::{self, IndexRange};
use crate::remote::{Again, Held, Remote, Reply, Words};

pub use fold::{FoldPage, FoldShow, FoldedObject};

/// How long a server keeps it at the most, in seconds, if its client is never heard of again.
const SECONDS: &str = "3600";

/// The store's objects as they were at one position: from [`Client::snapshot`]. See [`holdfast::Snapshot`]. Dropping it lets go of
/// it. Entries of spaces and points are not in it.
pub struct Snapshot {
    at: At,
    position: Position,
}

enum At {
    Here(Embedded, Arc<holdfast::Snapshot>),
    There(Remote, Arc<Held>, String),
}

impl Client {
    /// Holds the store as it is now: [`holdfast::Store::snapshot`]. On a server it has a connection alone, of `connections_max`, and
    /// ends an hour after this, or when that connection breaks. Until it is dropped it keeps what is replaced on disk.
    ///
    /// # Errors
    /// As there; `Invalid` when the server has no room for one more.
    pub fn snapshot(&self) -> Call<Snapshot> {
        match &self.place {
            Place::Here(here) => {
                let (store, of) = (here.store().clone(), here.clone());
                // Durable as a whole now, so that nothing that is read of it waits.
                here.shown(Some(store.durability()), move || {
                    let snapshot = store.snapshot()?;
                    let position = snapshot.position();
                    let at = At::Here(of, Arc::new(snapshot));
                    Ok(Shown { value: Snapshot { at, position }, position })
                })
            }
            Place::There(there) => {
                let of = there.clone();
                let words = Words::new("KV.SNAPSHOT").and("OPEN").and("TTL").and(SECONDS);
                let opened = there.hold(&words, |reply| {
                    let [id, position] = reply.items()?;
                    Ok((id.unsigned()?.to_string(), position.position()?))
                });
                opened.then(move |(held, (id, position))| {
                    Ok(Snapshot { at: At::There(of, Arc::new(held), id), position })
                })
            }
        }
    }
}

impl Snapshot {
    /// Everything at or before this position is seen, and nothing after. From the position behind it the change feed tells what
    /// came since.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Reads in the process, or by these commands, each with the option SNAPSHOT.
    fn ask<T: Send + 'static>(
        &self,
        run: impl FnOnce(&holdfast::Snapshot) -> Result<T> + Send + 'static,
        words: impl FnOnce() -> Result<Vec<Words>>,
        read: impl FnOnce(Vec<Reply>) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        match &self.at {
            At::Here(here, snapshot) => {
                let snapshot = Arc::clone(snapshot);
                here.elsewhere(move || run(&snapshot))
            }
            At::There(there, held, id) => match words() {
                Ok(all) => {
                    let all: Vec<Words> = all.into_iter().map(|words| words.and("SNAPSHOT").and(id)).collect();
                    there.call_held(held, &all, Again::May, read)
                }
                Err(error) => Call::done(Err(error)),
            },
        }
    }

    /// As [`Snapshot::ask`], for one command.
    fn ask_one<T: Send + 'static>(
        &self,
        run: impl FnOnce(&holdfast::Snapshot) -> Result<T> + Send + 'static,
        words: impl FnOnce() -> Result<Words>,
        read: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        self.ask(run, || Ok(vec![words()?]), |replies| read(replies.into_iter().next().unwrap_or(Reply::Null)))
    }

    /// The object as it was: [`holdfast::Snapshot::get`].
    ///
    /// # Errors
    /// As there; `Unavailable` when the connection that held the snapshot broke, `Invalid` when the server let go of it after an
    /// hour: take another one.
    pub fn get(&self, bucket: &[u8], key: &[u8]) -> Call<Option<Object>> {
        let of_run = (bucket.to_vec(), key.to_vec());
        self.ask(
            move |snapshot| snapshot.get(&of_run.0, &of_run.1),
            || Ok(vec![kv::named("KV.HEAD", bucket, key), kv::named("KV.GET", bucket, key)]),
            |replies| {
                let [head, object] = Reply::List(replies).items()?;
                let (Some(head), Some(object)) = (head.some()?, object.some()?) else { return Ok(None) };
                let [value, _, _] = object.items()?;
                Ok(Some(Object { head: kv::read_head(&head)?, value: Value::from_vec(value.bytes()?) }))
            },
        )
    }

    /// What was known of the object: [`holdfast::Snapshot::head`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn head(&self, bucket: &[u8], key: &[u8]) -> Call<Option<Head>> {
        let of_run = (bucket.to_vec(), key.to_vec());
        self.ask_one(
            move |snapshot| snapshot.head(&of_run.0, &of_run.1),
            || Ok(kv::named("KV.HEAD", bucket, key)),
            |reply| reply.some()?.as_ref().map(kv::read_head).transpose(),
        )
    }

    /// Objects of one bucket in order of keys: [`holdfast::Snapshot::page`], with the bounds of [`Kv::page`](crate::Kv::page).
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn page(&self, wanted: &Page<'_>) -> Call<PageOut> {
        let wanted = Arc::new(Owned::of(wanted));
        let of_run = Arc::clone(&wanted);
        self.ask_one(
            move |snapshot| page_of(snapshot, &of_run),
            || Ok(listing::page_words(&wanted.page())),
            listing::read_page,
        )
    }

    /// The keys alone of such a page; `values` counts for nothing.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn keys(&self, wanted: &Page<'_>) -> Call<Keys> {
        let wanted = Arc::new(Owned::of(&Page { values: false, ..*wanted }));
        let of_run = Arc::clone(&wanted);
        self.ask_one(
            move |snapshot| page_of(snapshot, &of_run).map(keys_of),
            || Ok(listing::keys_words(&wanted.page())),
            listing::read_keys,
        )
    }

    /// A page of an index as it was: [`holdfast::Snapshot::index`].
    ///
    /// # Errors
    /// As [`Snapshot::get`] and [`Kv::index`](crate::Kv::index).
    pub fn index(&self, bucket: &[u8], index: &[u8], range: &IndexRange) -> Call<IndexPage> {
        let (of_run, asked) = ((bucket.to_vec(), index.to_vec()), range.clone());
        self.ask_one(
            move |snapshot| {
                let term_regex = asked.term_regex.as_deref().map(holdfast::regex).transpose()?;
                snapshot.index(&IndexQuery {
                    bucket: &of_run.0,
                    index: &of_run.1,
                    from: &asked.from,
                    to: &asked.to,
                    term_regex: term_regex.as_ref(),
                    limit: asked.limit.max(1),
                    after: asked.after.as_ref(),
                })
            },
            || kv::index_words(bucket, index, range),
            kv::read_index,
        )
    }
}

/// A page within the bound that a store's own pages have, which a snapshot's have not.
fn page_of(snapshot: &holdfast::Snapshot, wanted: &Owned) -> Result<PageOut> {
    let page = wanted.page();
    snapshot.page(&Page { limit: page.limit.min(listing::ENTRIES_MAX), ..page })
}

fn invalid<T>(text: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, text))
}
