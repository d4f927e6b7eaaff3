//! SPACE.LISTEN: what happened to entries behind a bookmark, or will, off the event loop.
//!
//! Each call opens a listener where the client stands and closes it with the reply, so that nothing of it is kept here: the
//! bookmark in the reply is where the next call goes on, also from another connection, or after a restart. Reading takes one
//! of the turns of the long commands; waiting takes none, and no thread, and what comes meanwhile is in memory and told at once.
//!
//! May use: `wanted`, `work`, the facade, tokio's time and semaphore. Must not know: sockets, dispatch.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use holdfast::space::{
    Bookmark, Entries, Hears, Listen, ListenName, Listener, Notice, NoticeKind, NoticePage, PageLimit, Reason, Storage,
    Wanted,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::wanted::chosen;
use super::within::all_or_nothing;
use super::{entries, need_of};
use crate::auth::Right;
use crate::ids;
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX, View};
use crate::resp::clients::{Ask, Client};
use crate::resp::number;
use crate::resp::reply::{Form, Reply};
use crate::resp::session::{Need, Pending, ReplyMode};
use crate::resp::work::{Elsewhere, Worked, Written};

/// How many events are returned unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 100;
/// Events that are told on the event loop when somebody has waited for them; there is more then, for the next call.
const AT_ONCE_MAX: usize = 256;

/// A SPACE.LISTEN that was accepted.
pub(crate) struct Listening {
    entries: Arc<Entries>,
    wanted: Wanted,
    listen: Listen,
    /// What the listener by name has done with.
    acknowledged: Option<Bookmark>,
    count: usize,
    block: Duration,
    client: Arc<Client>,
    elsewhere: Elsewhere,
    waiters: Arc<Semaphore>,
    page: Page,
    /// Whether its reply is to be sent.
    pub(crate) is_silent: bool,
}

/// How events are shown.
#[derive(Clone, Copy)]
struct Page {
    durability: holdfast::Durability,
    /// No event is told that may vanish by what the store promises, whatever the client asked for.
    of_store: holdfast::Durability,
    form: Form,
    output_bytes_max: usize,
    events_bytes_max: usize,
    /// Why entries went, and whether there is more.
    details: bool,
}

fn hears(words: &[u8]) -> Result<Hears, Fail> {
    let mut hears = Hears { written: false, updated: false, taken: false, expired: false, entered: false, left: false };
    for word in words.split(|byte| *byte == b',') {
        let wanted = match word.to_ascii_lowercase().as_slice() {
            b"written" => &mut hears.written,
            b"updated" => &mut hears.updated,
            b"taken" => &mut hears.taken,
            b"expired" => &mut hears.expired,
            b"entered" => &mut hears.entered,
            b"left" => &mut hears.left,
            _ => {
                return Err(
                    "ERR HEARS takes written, updated, taken, expired, entered and left, with commas between".into()
                );
            }
        };
        *wanted = true;
    }
    Ok(hears)
}

fn bookmark(argument: &[u8]) -> Result<Bookmark, Fail> {
    if argument.eq_ignore_ascii_case(b"start") {
        return Ok(Bookmark::START);
    }
    let text = std::str::from_utf8(argument).unwrap_or_default();
    Ok(text.parse::<Bookmark>()?)
}

pub(crate) fn listen(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    let args = call.args();
    let limits = &call.door.options.limits;
    let mut chosen = chosen(call, 3)?;
    let definition = entries.definition();
    let all = Hears { updated: definition.history || definition.storage == Storage::Volatile, ..Hears::ALL };
    let mut listen = Listen { hears: all, ..Listen::default() };
    let (mut count, mut block, mut details) = (None, None, false);
    let (mut name, mut retain, mut acknowledged, mut has_run) = (None, None, None, false);
    let mut index = chosen.next;
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("conflate") && !listen.conflate {
            listen.conflate = true;
            index += 1;
            continue;
        }
        if is("details") && !details {
            details = true;
            index += 1;
            continue;
        }
        let argument = args.get(index + 1).ok_or(SYNTAX)?;
        if is("from") && listen.from.is_none() {
            listen.from = Some(bookmark(argument)?);
        } else if is("hears") && listen.hears == all {
            listen.hears = hears(argument)?;
        } else if is("count") && count.is_none() {
            count = Some(number::parse_u64(argument).and_then(|it| usize::try_from(it).ok()).ok_or(NOT_INTEGER)?);
        } else if is("block") && block.is_none() {
            block = Some(number::parse_u64(argument).ok_or(NOT_INTEGER)?);
        } else if is("name") && name.is_none() {
            let text = std::str::from_utf8(argument).map_err(|_| Fail::from("ERR a name has to be UTF-8"))?;
            name = Some(text.to_owned());
        } else if is("retain") && retain.is_none() {
            retain = Some(number::parse_u64(argument).ok_or(NOT_INTEGER)?);
        } else if is("ack") && acknowledged.is_none() {
            acknowledged = Some(bookmark(argument)?);
        } else if is("run") && !has_run {
            has_run = true;
            if argument != call.door.run.as_bytes() {
                return Err(format!("ERR {}", ids::NEW_RUN).into());
            }
        } else if is("routing") {
            chosen.wanted = chosen.wanted.clone().routed(super::argument::value(argument)?);
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    match name {
        Some(name) => {
            may_name(call)?;
            listen.name = Some(ListenName { name, retain_bytes: retain });
        }
        None if retain.is_some() || acknowledged.is_some() => {
            return Err("ERR RETAIN and ACK are for a listener by NAME".into());
        }
        None => {}
    }
    let page = Page {
        durability: call.durability,
        of_store: call.door.store.durability(),
        form: call.reply.form(),
        output_bytes_max: limits.output_bytes_max,
        events_bytes_max: limits.feed_bytes_max,
        details,
    };
    call.session.pending = Some(Pending::Listen(Box::new(Listening {
        entries,
        wanted: chosen.wanted,
        listen,
        acknowledged,
        count: count.unwrap_or(COUNT_DEFAULT).clamp(1, limits.feed_items_max),
        block: Duration::from_millis(block.unwrap_or_default()).min(limits.feed_block_max),
        client: call.session.client.clone(),
        elsewhere: call.door.long(),
        waiters: call.door.feed_waiters.clone(),
        page,
        is_silent: call.session.reply_mode != ReplyMode::On,
    })));
    Ok(())
}

/// What is kept for a name takes of the disk: who may not write has none.
fn may_name(call: &Call<'_, '_>) -> Answer {
    let space = call.args.at(1);
    if call.session.user.as_ref().is_some_and(|user| !user.may(Right::Write, space)) {
        let space = String::from_utf8_lossy(space).into_owned();
        return Err(format!(
            "NOPERM this user has no permissions to write in the space {space}, and so no listener by name"
        )
        .into());
    }
    Ok(())
}

/// SPACE.LISTENERS: those of a type that are known by name.
pub(crate) fn listeners(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    call.defer(move |reply| {
        let known = entries.known_listeners()?;
        reply.array(known.len());
        for listener in known {
            reply.map(6);
            reply.text("name");
            reply.text(&listener.name);
            reply.text("bookmark");
            reply.text(&listener.bookmark.to_string());
            reply.text("retain");
            reply.unsigned(listener.retain_bytes);
            reply.text("behind");
            reply.unsigned(listener.behind_bytes);
            reply.text("held");
            reply.unsigned(u64::from(listener.is_held));
            reply.text("damaged");
            reply.unsigned(u64::from(listener.is_damaged));
        }
        Ok(Need::NOTHING)
    });
    Ok(())
}

/// SPACE.ACK: a listener by name has done with all up to a bookmark; inside EXEC together with what was done about it.
pub(crate) fn ack(call: &mut Call<'_, '_>) -> Answer {
    all_or_nothing(call, try_ack)
}

fn try_ack(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    let name = std::str::from_utf8(call.args.at(3)).map_err(|_| Fail::from("ERR a name has to be UTF-8"))?.to_owned();
    let bookmark = bookmark(call.args.at(4))?;
    if call.in_exec {
        match &mut call.view {
            View::Transaction { transaction, .. } => entries.acknowledge_within(transaction, &name, bookmark)?,
            view => view.exclusive()?.acknowledge(&entries, &name, bookmark)?,
        }
        call.reply.ok();
        return Ok(());
    }
    let durability = call.durability;
    call.defer(move |reply| {
        entries.acknowledge(&name, bookmark, Some(durability))?;
        reply.ok();
        Ok(Need::NOTHING)
    });
    Ok(())
}

/// SPACE.UNLISTEN: a name is forgotten, and what is held for it.
pub(crate) fn unlisten(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    let name = std::str::from_utf8(call.args.at(3)).map_err(|_| Fail::from("ERR a name has to be UTF-8"))?.to_owned();
    call.defer(move |reply| {
        reply.unsigned(u64::from(entries.forget_listener(&name)?));
        Ok(Need::NOTHING)
    });
    Ok(())
}

impl Listening {
    /// Reads what there is, and waits for something for as long as it was asked to.
    pub(crate) async fn run(self) -> Worked {
        let until = Instant::now() + self.block;
        let (entries, wanted, listen, count, page) =
            (self.entries.clone(), self.wanted.clone(), self.listen.clone(), self.count, self.page);
        let acknowledged = self.acknowledged;
        let open = move || {
            if let (Some(name), Some(bookmark)) = (&listen.name, acknowledged) {
                entries.acknowledge(&name.name, bookmark, Some(page.durability))?;
            }
            let listener = entries.listen(&wanted, listen.clone())?;
            page.read(listener, count)
        };
        let (mut read, mut room) = self.elsewhere.run_again(&self.client.gone, open, Read::bytes).await?;
        let mut place = None;
        while read.notices.is_empty() && Instant::now() < until {
            if place.is_none() {
                let Ok(free) = self.waiters.clone().try_acquire_owned() else {
                    return Err("ERR too many clients listen; ask again without BLOCK".into());
                };
                place = Some(free);
            }
            if !self.wait(&read.listener, until).await {
                break;
            }
            // A page in which each entry is told once is made as a whole.
            if !self.listen.conflate {
                page.read_at_once(&mut read, self.count)?;
                if !read.notices.is_empty() {
                    break;
                }
            }
            let (listener, count) = (read.listener, self.count);
            read = self.elsewhere.run(move || page.read(listener, count)).await?;
        }
        if room.is_empty() && read.bytes() > self.elsewhere.free_bytes {
            // What came meanwhile is shared with the space and others who listen; the reply is not.
            room = self.elsewhere.replies.wait(read.bytes()).await;
        }
        Ok(Written { room, ..page.answer(&self.entries, &read)? })
    }

    /// Waits until there may be an event: whether there may.
    async fn wait(&self, listener: &Listener, until: Instant) -> bool {
        let mut late = pin!(tokio::time::sleep_until(until));
        let mut was_asked = false;
        poll_fn(|cx| {
            // The first time this only leaves word; being polled again means that somebody woke the connection.
            if was_asked && listener.may_have_more() {
                return Poll::Ready(true);
            }
            was_asked = true;
            if self.client.asked() != Ask::Nothing {
                return Poll::Ready(false);
            }
            listener.wake_with(cx.waker());
            late.as_mut().poll(cx).map(|()| false)
        })
        .await
    }
}

fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Taken => "taken",
        Reason::Expired => "expired",
        Reason::Cleared => "cleared",
        Reason::Evicted => "evicted",
    }
}

/// What was read, and the listener behind it.
struct Read {
    listener: Listener,
    notices: Vec<Notice>,
    /// Where to go on behind them.
    bookmark: Bookmark,
    /// It ended at a limit, and not where there was no more.
    has_more: bool,
}

impl Read {
    /// Bytes of the documents.
    fn bytes(&self) -> usize {
        let documents = self.notices.iter().flat_map(|notice| [&notice.after, &notice.before]);
        documents.flatten().map(|document| document.as_bytes().len()).sum()
    }
}

impl Page {
    /// The next events. Blocks.
    fn read(&self, mut listener: Listener, count: usize) -> Result<Read, Fail> {
        let NoticePage { notices, bookmark, has_more } =
            listener.page(PageLimit { events: count, bytes: self.events_bytes_max })?;
        Ok(Read { listener, notices, bookmark, has_more })
    }

    /// Those of them that are in memory.
    fn read_at_once(&self, read: &mut Read, count: usize) -> Result<(), Fail> {
        let limit = PageLimit { events: count.min(AT_ONCE_MAX), bytes: self.events_bytes_max };
        let NoticePage { notices, bookmark, has_more } = read.listener.page_shown(limit)?;
        (read.notices, read.bookmark, read.has_more) = (notices, bookmark, has_more);
        Ok(())
    }

    fn answer(&self, entries: &Entries, read: &Read) -> Worked {
        let (mut reply, bookmark) = (Reply::of_form(self.form, self.output_bytes_max), read.bookmark);
        reply.array(if self.details { 3 } else { 2 });
        reply.text(&bookmark.to_string());
        reply.array(read.notices.len());
        for notice in &read.notices {
            reply.array(if self.details { 5 } else { 4 });
            reply.text(match notice.kind {
                NoticeKind::Written => "written",
                NoticeKind::Updated => "updated",
                NoticeKind::Taken => "taken",
                NoticeKind::Expired => "expired",
                NoticeKind::Entered => "entered",
                NoticeKind::Left => "left",
            });
            reply.text(&notice.bookmark.to_string());
            for document in [&notice.after, &notice.before] {
                match document {
                    Some(document) => reply.document(document),
                    None => reply.null(),
                }
            }
            match notice.removed.filter(|_| self.details) {
                Some(reason) => reply.text(reason_name(reason)),
                None if self.details => reply.null(),
                None => {}
            }
        }
        if self.details {
            reply.unsigned(u64::from(read.has_more));
        }
        if reply.take_overflow() {
            return Err(Fail::TooBig(self.output_bytes_max));
        }
        let newest = read.notices.last().map(|notice| notice.bookmark.position());
        let mut need = Need::NOTHING;
        for durability in [self.durability, self.of_store] {
            need.merge(newest.map_or(Need::NOTHING, |position| need_of(entries, durability, position)));
        }
        Ok(Written::new(reply.take(Vec::new()), need))
    }
}
