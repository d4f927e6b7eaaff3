//! The change feed: every committed batch of keys in order, resumable by position, of a store in the process or of a server.
//!
//! A feed on a server keeps nothing there: each question says where it stands. So a connection that breaks makes it wait and not
//! miss or repeat anything.
//!
//! May use: `call`, `embedded`, `remote`, `kv`, the facade. Must not know: sockets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::{ErrorKind, FeedChange, FeedItem, FeedLimit, Indexes, Metadata, Position, Result};

use crate::call::{Call, How, Step};
use crate::client::{Client, Place};
use crate::embedded::Embedded;
use crate::kv::{pairs, terms};
use crate::remote::{Again, Remote, Reply, Words, strange};

/// The longest that a server is asked to wait at once.
const BLOCK_MAX: Duration = Duration::from_secs(20);
/// How often a feed of a store in the process that is awaited looks for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// How often it is read also where there seems to be nothing, so that whoever waits is told of a store that was closed.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Between two questions to a server that has no room for one more to wait.
const PAUSE: Duration = Duration::from_millis(100);

/// A reader of the change feed: from [`Client::feed`]. See [`holdfast::Feed`].
pub struct Feed(Arc<Inner>);

enum Inner {
    Here(Embedded, Box<Mutex<Reading>>),
    There(Remote, Mutex<Position>),
}

/// A feed of a store in the process.
struct Reading {
    feed: holdfast::Feed,
    /// What was read and not given out, because who asked for it does not wait any more.
    ready: Vec<FeedItem>,
    /// Behind what was given out.
    position: Position,
}

impl Reading {
    /// Reads, if there is nothing that was read. Does not wait.
    fn read(&mut self, limit: FeedLimit) -> Result<()> {
        if self.ready.is_empty() {
            self.ready = self.feed.next(limit, Duration::ZERO)?;
        }
        Ok(())
    }

    fn give(&mut self, limit: FeedLimit) -> Vec<FeedItem> {
        let rest = self.ready.split_off(limit.items.min(self.ready.len()));
        self.position = rest.first().map_or(self.feed.position(), FeedItem::position);
        std::mem::replace(&mut self.ready, rest)
    }
}

/// What a server answered: items, and where to go on.
struct Page {
    next: Position,
    items: Vec<FeedItem>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Opens the change feed at the first batch at or behind `from`: [`holdfast::Store::feed`]. What is fed are objects by key of the whole
    /// store, which on a server the user must be allowed to read. A server does not keep the journal for it.
    ///
    /// # Errors
    /// As there.
    pub fn feed(&self, from: Position) -> Call<Feed> {
        match &self.place {
            Place::Here(here) => {
                let feed = here.store().feed(from);
                Call::done(feed.map(|feed| {
                    let reading = Reading { feed, ready: Vec::new(), position: from };
                    Feed(Arc::new(Inner::Here(here.clone(), Box::new(Mutex::new(reading)))))
                }))
            }
            Place::There(there) => {
                let of = there.clone();
                // Asked for one, to see whether it can be asked for.
                let first = page(there, from, 1, Duration::ZERO);
                first.then(move |_| Ok(Feed(Arc::new(Inner::There(of, Mutex::new(from))))))
            }
        }
    }
}

/// Asks a server for what comes at or behind a position.
fn page(there: &Remote, from: Position, items: usize, block: Duration) -> Call<Page> {
    let count = items.clamp(1, i64::MAX as usize).to_string();
    let mut words = Words::new("FEED").and("FROM").and(from.get().to_string()).and("COUNT").and(count);
    if !block.is_zero() {
        words = words.and("BLOCK").and(block.as_millis().max(1).to_string());
    }
    there.call_alone(&words, Again::May, Some(block), |reply| {
        let [next, items] = reply.items()?;
        let items = items.list()?.into_iter().map(item).collect::<Result<_>>()?;
        Ok(Page { next: next.position()?, items })
    })
}

/// As [`page`], also where so many wait for the feed that the server lets nobody else wait.
async fn page_or_pause(there: &Remote, from: Position, items: usize, block: Duration) -> Result<Page> {
    match page(there, from, items, block).await {
        Err(error) if error.kind() == ErrorKind::Invalid && error.to_string().starts_with("too many clients wait") => {
            there.sleep(PAUSE.min(block)).await;
            page(there, from, items, Duration::ZERO).await
        }
        page => page,
    }
}

/// `[position, changes]`, or `[position, lost, bytes]`.
fn item(reply: Reply) -> Result<FeedItem> {
    let items = reply.list()?;
    match <[Reply; 2]>::try_from(items) {
        Ok([position, changes]) => Ok(FeedItem::Batch {
            position: position.position()?,
            changes: changes.list()?.into_iter().map(change).collect::<Result<_>>()?,
        }),
        Err(items) => {
            let [position, _, bytes] = Reply::List(items).items()?;
            Ok(FeedItem::Lost { position: position.position()?, bytes: bytes.unsigned()? })
        }
    }
}

/// `[what, bucket, ...]`.
fn change(reply: Reply) -> Result<FeedChange> {
    let Some(what) = reply.clone().list()?.into_iter().next() else { return Err(strange(&reply)) };
    let what = what.bytes()?;
    let milliseconds = |at: Reply| at.some()?.map(|at| at.unsigned()).transpose();
    match what.as_slice() {
        b"put" => {
            let [_, bucket, key, value, metadata, indexes, modified, expires] = reply.items()?;
            Ok(FeedChange::Put {
                bucket: bucket.bytes()?,
                key: key.bytes()?,
                value: value.bytes()?,
                metadata: Metadata::from_pairs(pairs(&metadata)?),
                indexes: Indexes::from_pairs(terms(indexes)?),
                modified_ms: modified.unsigned()?,
                expires_ms: milliseconds(expires)?,
            })
        }
        b"delete" => {
            let [_, bucket, key] = reply.items()?;
            Ok(FeedChange::Delete { bucket: bucket.bytes()?, key: key.bytes()? })
        }
        b"expire" => {
            let [_, bucket, key, expires] = reply.items()?;
            let (bucket, key) = (bucket.bytes()?, key.bytes()?);
            Ok(FeedChange::Expire { bucket, key, expires_ms: milliseconds(expires)? })
        }
        b"clear" => {
            let [_, bucket] = reply.items()?;
            Ok(FeedChange::Clear { bucket: bucket.bytes()? })
        }
        _ => Err(strange(&reply)),
    }
}

impl Feed {
    /// Where it goes on: from here a new feed, of whatever process, tells what this one has not.
    #[must_use]
    pub fn position(&self) -> Position {
        match &*self.0 {
            Inner::Here(_, reading) => lock(reading).position,
            Inner::There(_, position) => *lock(position),
        }
    }

    /// The next items, at most as many as asked for, one at the least; waits up to `wait` for the first: [`holdfast::Feed::next`].
    /// A server gives 10,000 at the most, and ends at 1 MiB whatever `bytes` says. A call that is dropped has not moved the feed.
    ///
    /// # Errors
    /// As there; `Invalid` over a server when what comes next was compacted away.
    pub fn next(&mut self, limit: FeedLimit, wait: Duration) -> Call<Vec<FeedItem>> {
        let this = Arc::clone(&self.0);
        let limit = FeedLimit { items: limit.items.max(1), bytes: limit.bytes.max(1) };
        Call::new(move |how| match &*this {
            Inner::Here(_, reading) if how == How::Wait => Step::Done(wait_here(reading, limit, wait)),
            _ => Step::Running(Box::pin(async move {
                match &*this {
                    Inner::Here(here, reading) => next_here(here, &this, reading, limit, wait).await,
                    Inner::There(there, position) => next_there(there, position, limit.items, wait).await,
                }
            })),
        })
    }
}

/// The store's own way to wait.
fn wait_here(reading: &Mutex<Reading>, limit: FeedLimit, wait: Duration) -> Result<Vec<FeedItem>> {
    let mut reading = lock(reading);
    if reading.ready.is_empty() {
        reading.ready = reading.feed.next(limit, wait)?;
    }
    Ok(reading.give(limit))
}

/// Reads in another thread, and waits in none.
async fn next_here(
    here: &Embedded,
    inner: &Arc<Inner>,
    reading: &Mutex<Reading>,
    limit: FeedLimit,
    wait: Duration,
) -> Result<Vec<FeedItem>> {
    let begin = Instant::now();
    loop {
        let of_read = Arc::clone(inner);
        let read = here.off(move || match &*of_read {
            Inner::Here(_, reading) => lock(reading).read(limit),
            Inner::There(..) => Ok(()),
        });
        read.await?;
        let items = lock(reading).give(limit);
        if !items.is_empty() || begin.elapsed() >= wait {
            return Ok(items);
        }
        let asked = Instant::now();
        while begin.elapsed() < wait && asked.elapsed() < READ_INTERVAL && !lock(reading).feed.has_more() {
            here.sleep(LOOK_INTERVAL.min(wait.saturating_sub(begin.elapsed()))).await;
        }
    }
}

async fn next_there(there: &Remote, place: &Mutex<Position>, items: usize, wait: Duration) -> Result<Vec<FeedItem>> {
    let begin = Instant::now();
    loop {
        let from = *lock(place);
        let left = wait.saturating_sub(begin.elapsed());
        let page = page_or_pause(there, from, items, left.min(BLOCK_MAX)).await?;
        {
            let mut place = lock(place);
            // Another call may have come first: what it got is its own.
            if *place != from {
                continue;
            }
            *place = page.next;
        }
        if !page.items.is_empty() || left.is_zero() {
            return Ok(page.items);
        }
    }
}
