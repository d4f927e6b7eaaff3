//! FEED: what changes in the whole store, a page at a time, off the event loop.
//!
//! Reading takes one of the turns of the long commands. Waiting takes none, and no thread: the feed is asked every few
//! milliseconds whether the journal has grown, and only then read again.
//!
//! May use: `call`, `work`, `own`, the facade, tokio's time and semaphore. Must not know: sockets, dispatch.

use std::sync::Arc;
use std::time::Duration;

use holdfast::{Durability, ErrorKind, Feed, FeedChange, FeedItem, FeedLimit, Position, Store};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::fold::may_read_all;
use super::own::{LIMIT_DEFAULT, page_limit, write_indexes, write_metadata};
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::clients::{Ask, Client};
use crate::resp::number;
use crate::resp::reply::{Protocol, Reply};
use crate::resp::session::{Need, Pending, ReplyMode};
use crate::resp::work::{Elsewhere, Worked, Written};

/// How often a client that waits looks for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Room for what stands around the items of a reply.
const FRAME_BYTES: usize = 64;

/// A FEED that was accepted.
pub(crate) struct Follow {
    page: Page,
    store: Store,
    client: Arc<Client>,
    elsewhere: Elsewhere,
    waiters: Arc<Semaphore>,
    block: Duration,
    /// Whether its reply is to be sent.
    pub(crate) is_silent: bool,
}

/// What is read at once, and how it is shown.
#[derive(Clone, Copy)]
struct Page {
    from: Position,
    limit: FeedLimit,
    durability: Durability,
    protocol: Protocol,
    output_bytes_max: usize,
}

/// A page that was read, and the feed behind it.
struct Read {
    feed: Feed,
    items: usize,
    reply: Vec<u8>,
    need: Need,
}

pub(crate) fn feed(call: &mut Call<'_, '_>) -> Answer {
    may_read_all(call)?;
    let args = call.args();
    let limits = &call.door.options.limits;
    if !args.at(1).eq_ignore_ascii_case(b"from") {
        return Err(SYNTAX.into());
    }
    let from = number::parse_u64(args.at(2)).ok_or(NOT_INTEGER)?;
    let (mut items, mut block) = (None, None);
    let mut index = 3;
    while let Some(option) = args.get(index) {
        let argument = args.get(index + 1).ok_or(SYNTAX)?;
        if option.eq_ignore_ascii_case(b"count") && items.is_none() {
            items = Some(page_limit("COUNT", argument)?);
        } else if option.eq_ignore_ascii_case(b"block") && block.is_none() {
            block = Some(number::parse_u64(argument).ok_or(NOT_INTEGER)?);
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    let items = items.unwrap_or(LIMIT_DEFAULT).clamp(1, limits.feed_items_max);
    let page = Page {
        from: Position::new(from),
        limit: FeedLimit { items, bytes: limits.feed_bytes_max as u64 },
        durability: call.durability,
        protocol: call.reply.protocol,
        output_bytes_max: limits.output_bytes_max,
    };
    call.session.pending = Some(Pending::Feed(Follow {
        page,
        store: call.door.store.clone(),
        client: call.session.client.clone(),
        elsewhere: call.door.long(),
        waiters: call.door.feed_waiters.clone(),
        block: Duration::from_millis(block.unwrap_or_default()).min(limits.feed_block_max),
        is_silent: call.session.reply_mode != ReplyMode::On,
    }));
    Ok(())
}

impl Follow {
    /// Reads, and waits for something to read for as long as it was asked to.
    pub(crate) async fn run(self) -> Worked {
        let (page, store, until) = (self.page, self.store, Instant::now() + self.block);
        let bytes = |read: &Read| read.reply.len();
        let opening = move || page.read(page.open(&store)?);
        let (mut read, mut room) = self.elsewhere.run_again(&self.client.gone, opening.clone(), bytes).await?;
        let mut place = None;
        while read.items == 0 && Instant::now() < until {
            if place.is_none() {
                let Ok(free) = self.waiters.clone().try_acquire_owned() else {
                    return Err("ERR too many clients wait for the feed; ask again without BLOCK".into());
                };
                place = Some(free);
            }
            if !wait(&read.feed, &self.client, until).await {
                break;
            }
            read = self.elsewhere.run(move || page.read(read.feed)).await?;
            room = self.elsewhere.room_for(bytes(&read));
            if room.is_empty() && bytes(&read) > self.elsewhere.free_bytes {
                (read, room) = self.elsewhere.run_again(&self.client.gone, opening.clone(), bytes).await?;
            }
        }
        Ok(Written { room, ..Written::new(read.reply, read.need) })
    }
}

/// Waits until there may be more: whether there may.
async fn wait(feed: &Feed, client: &Client, until: Instant) -> bool {
    loop {
        if feed.has_more() {
            return true;
        }
        // Who is asked to finish gets its reply now, or closing the door would wait for it.
        if Instant::now() >= until || client.asked() != Ask::Nothing {
            return false;
        }
        tokio::time::sleep_until(until.min(Instant::now() + LOOK_INTERVAL)).await;
    }
}

impl Page {
    fn open(&self, store: &Store) -> Result<Feed, Fail> {
        // The reply waits for what the client asked for, which takes no thread.
        let feed = store.feed(self.from).map(|feed| feed.shown_at(Durability::Written));
        feed.map_err(|error| {
            // It only ever rises, so it says now why the feed was refused.
            let floor = store.feed_floor();
            if error.kind() == ErrorKind::Invalid && self.from < floor {
                return format!("TRIMMED the feed begins at position {floor}: what came before was compacted away")
                    .into();
            }
            Fail::Store(error)
        })
    }

    /// The next page of the feed. Blocks.
    fn read(&self, mut feed: Feed) -> Result<Read, Fail> {
        let items = feed.next(self.limit, Duration::ZERO)?;
        let mut next = feed.position();
        let mut body = self.reply(self.output_bytes_max.saturating_sub(FRAME_BYTES));
        let mut shown = 0;
        for item in &items {
            let mark = body.len();
            write_item(&mut body, item);
            let is_too_big = body.take_overflow();
            if is_too_big && shown == 0 {
                let behind = items.get(1).map_or(next, FeedItem::position);
                let text = format!(
                    "ERR the changes at position {} exceed {} bytes; go on FROM {behind}",
                    item.position(),
                    self.output_bytes_max
                );
                return Err(text.into());
            }
            if is_too_big || shown > 0 && body.len() as u64 > self.limit.bytes {
                body.truncate(mark);
                next = item.position();
                break;
            }
            shown += 1;
        }
        let mut reply = self.reply(self.output_bytes_max);
        reply.array(2);
        reply.unsigned(next.get());
        reply.array(shown);
        reply.append(&body.take(Vec::new()));
        let mut need = Need::NOTHING;
        if next > self.from {
            // Where the client goes on must not vanish either: everything before it.
            need.add(self.durability, Position::new(next.get() - 1));
        }
        Ok(Read { feed, items: shown, reply: reply.take(Vec::new()), need })
    }

    fn reply(&self, bytes_max: usize) -> Reply {
        let mut reply = Reply::new(bytes_max);
        reply.protocol = self.protocol;
        reply
    }
}

fn write_item(reply: &mut Reply, item: &FeedItem) {
    match item {
        FeedItem::Batch { position, changes } => {
            reply.array(2);
            reply.unsigned(position.get());
            reply.array(changes.len());
            changes.iter().for_each(|change| write_change(reply, change));
        }
        FeedItem::Lost { position, bytes } => {
            reply.array(3);
            reply.unsigned(position.get());
            reply.text("lost");
            reply.unsigned(*bytes);
        }
    }
}

fn write_change(reply: &mut Reply, change: &FeedChange) {
    match change {
        FeedChange::Put { bucket, key, value, metadata, indexes, modified_ms, expires_ms } => {
            reply.array(8);
            reply.text("put");
            reply.bulk(bucket);
            reply.bulk(key);
            reply.bulk(value);
            write_metadata(reply, metadata);
            write_indexes(reply, indexes);
            reply.unsigned(*modified_ms);
            write_expiry(reply, *expires_ms);
        }
        FeedChange::Delete { bucket, key } => {
            reply.array(3);
            reply.text("delete");
            reply.bulk(bucket);
            reply.bulk(key);
        }
        FeedChange::Expire { bucket, key, expires_ms } => {
            reply.array(4);
            reply.text("expire");
            reply.bulk(bucket);
            reply.bulk(key);
            write_expiry(reply, *expires_ms);
        }
        FeedChange::Clear { bucket } => {
            reply.array(2);
            reply.text("clear");
            reply.bulk(bucket);
        }
    }
}

fn write_expiry(reply: &mut Reply, expires_ms: Option<u64>) {
    match expires_ms {
        Some(at) => reply.unsigned(at),
        None => reply.null(),
    }
}
