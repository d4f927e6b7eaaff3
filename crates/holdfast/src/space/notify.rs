//! Notifications: what happens to the entries of a type, each event once and in order, also for who was away.
//!
//! A listener is a view of the journal. It reads events there from where it is told to begin, and, once it has caught up,
//! takes them from a buffer into which writers put them (see `listen.rs`). When its buffer overflows it goes back to the
//! journal, from where it stands: nothing is lost, and nobody waits for it. While it lives the journal keeps what lies
//! before it.
//!
//! Where it stands is a [`Bookmark`]: who gives it to a new listener goes on behind the event that it came with.
//!
//! May use: everything of this folder, `journal`. Must not know: protocols.

mod journaled;
mod page;

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ::space::{Document, EventKind, Reason, Storage};
use journal::{Log, Position, Visit};

use super::entries::Entries;
use super::listen::{Buffer, Heard};
use super::named::ListenName;
use super::wanted::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use journaled::{as_journaled, events};
use page::Folded;
pub use page::{NoticePage, PageLimit};

/// Events read from the journal at once.
const READ_EVENTS_MAX: usize = 1024;
/// Bytes of journal passed over at once.
const READ_BYTES_MAX: u64 = 8 << 20;
/// Bytes of journal behind which a listener keeps hold, at most, of what it does not need any more.
const HOLD_GRAIN_BYTES: u64 = 1 << 20;
/// Events that wait for one listener, unless it asks for more.
pub const BUFFER_EVENTS: usize = 16 << 10;

/// What a listener wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hears {
    /// Entries that come; of a type without history also those that are replaced.
    pub written: bool,
    /// Entries that are replaced.
    pub updated: bool,
    /// Entries that somebody takes, that are cleared, or that go to make room.
    pub taken: bool,
    /// Entries whose lease ends.
    pub expired: bool,
    /// Entries that did not match before a change, and do now; among those that come are all that match.
    pub entered: bool,
    /// Entries that matched before a change, and do not any more; among them are all that go.
    pub left: bool,
}

impl Hears {
    /// Everything that happens to entries that match.
    pub const ALL: Self =
        Self { written: true, updated: true, taken: true, expired: true, entered: false, left: false };
    /// Which entries match, as it changes.
    pub const MATCHING: Self =
        Self { written: false, updated: false, taken: false, expired: false, entered: true, left: true };
}

/// How to listen.
#[derive(Debug, Clone)]
pub struct Listen {
    /// What to hear of.
    pub hears: Hears,
    /// Where to go on; `None` is from now on.
    pub from: Option<Bookmark>,
    /// How many events may wait before they are read from the journal instead.
    pub buffer_events: usize,
    /// Of several events of one entry that wait, tell one: how it is now, and what became of it since the first of them. An entry that came
    /// and was replaced is told as one that came; one that entered and left a query is not told as either. Whether they wait in memory or in
    /// the journal makes no difference. Where to go on is what [`Listener::bookmark`] says, or a page's bookmark, and not the bookmark of an event.
    pub conflate: bool,
    /// A name by which the store knows where it stands. It goes on behind what was acknowledged by that name, see
    /// [`Entries::acknowledge`]; `from` has it stand elsewhere, and a new one begins now.
    pub name: Option<ListenName>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { hears: Hears::ALL, from: None, buffer_events: BUFFER_EVENTS, conflate: false, name: None }
    }
}

/// Behind which event a listener stands. Its text form, `4096.2`, is that of the journal's position and of the event within
/// the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bookmark {
    position: Position,
    /// Events of the batch that were told; `u32::MAX` is all.
    told: u32,
}

impl Bookmark {
    /// Before everything that the journal still has.
    pub const START: Self = Self { position: Position::ZERO, told: 0 };

    /// Before everything at or behind a position.
    pub(crate) fn before(position: Position) -> Self {
        Self { position, told: 0 }
    }

    fn behind(heard: &Heard) -> Self {
        Self { position: heard.event.position, told: heard.number }
    }

    /// Before the event that it is behind, and behind all before that one.
    #[must_use]
    pub fn before_its_event(self) -> Self {
        Self { told: self.told.saturating_sub(1), ..self }
    }

    /// The position of the batch.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.position.get(), self.told)
    }
}

impl FromStr for Bookmark {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('.').and_then(|(position, told)| {
            Some(Self { position: Position::new(position.parse().ok()?), told: told.parse().ok()? })
        });
        parsed.ok_or_else(|| Error::new(ErrorKind::Invalid, "a bookmark is two numbers with a point between: 4096.2"))
    }
}

/// What happened to an entry, to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// It came.
    Written,
    /// It was replaced.
    Updated,
    /// It was taken, cleared, or went to make room.
    Taken,
    /// Its lease ended.
    Expired,
    /// It matches now.
    Entered,
    /// It does not match any more.
    Left,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// What happened.
    pub kind: NoticeKind,
    /// What was there before; of a type without history only its id, and only when it went.
    pub before: Option<Document>,
    /// What is there now.
    pub after: Option<Document>,
    /// Why it went, if it did.
    pub removed: Option<Reason>,
    /// Where to go on behind it.
    pub bookmark: Bookmark,
}

enum Source {
    /// Events up to here come from the journal.
    Journal { next: Position, until: Position },
    /// Events come from the buffer.
    Live,
}

/// Listens to the entries of a type: from [`Entries::listen`].
pub struct Listener {
    entries: Entries,
    wanted: Wanted,
    listen: Listen,
    buffer: Arc<Buffer>,
    source: Source,
    ready: VecDeque<Heard>,
    bookmark: Bookmark,
    held: Position,
    /// The journal is kept from here, if it stands behind.
    keeps: Option<Position>,
    /// What went wrong behind the last page.
    failed: Option<Error>,
    /// Of a listener that conflates: what [`Listener::poll`] will tell, one at a time.
    folded: Folded,
}

impl Entries {
    /// Listens to what happens to entries that match. From now on, or from where a bookmark says: then each event since is
    /// told once, in order.
    ///
    /// Of a type without [`history`](::space::Definition::history) the journal tells no more than what an entry is when it is
    /// written, and its id when it goes: listening to updates, or to what enters and leaves a query, needs a type with.
    ///
    /// # Errors
    /// `Invalid` when the query has an order or a limit, the type's history does not tell what is asked for, or the journal does not reach back to the bookmark
    /// any more: the message says from where it does.
    pub fn listen(&self, wanted: &Wanted, listen: Listen) -> Result<Listener> {
        self.check()?;
        wanted.check_unlimited("listening")?;
        wanted.check_type(&self.kind.definition())?;
        let wanted = wanted.kept(&self.store)?;
        let definition = self.kind.definition();
        let Hears { updated, entered, left, .. } = listen.hears;
        let is_durable = definition.storage == Storage::Durable;
        if is_durable && !definition.history && (updated || entered || left) {
            let text = "the type has no history: listen to written, taken and expired only, or declare it with history";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if !is_durable && listen.from.is_some() {
            let text = "entries of a volatile type are in no journal: listen from now on, without a bookmark";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let from = match &listen.name {
            Some(name) => Some(self.begin_as(name, listen.from)?),
            None => listen.from,
        };
        let listen = Listen { from, ..listen };
        let inner = self.inner();
        let buffer = Buffer::new(listen.buffer_events.max(1), listen.conflate);
        self.kind.listeners.add(&buffer);
        // Whoever did not see the new listener is through after this.
        inner.partitions.iter().for_each(|partition: &Partition| drop(partition.space()));
        let now = {
            // While nobody tells, nothing is on its way, and what the buffer has lies before now: it is read from the journal or
            // not at all, and no later event must stand for it.
            let _telling = self.kind.listeners.telling();
            buffer.state().clear();
            inner.journal.watermarks().appended
        };
        let bookmark = listen.from.unwrap_or(Bookmark { position: now, told: 0 });
        // Of a volatile type nothing is in the journal that could be held.
        let held = if is_durable { bookmark.position } else { Position::MAX };
        inner.hold_feed(held);
        let source = match listen.from {
            Some(from) => Source::Journal { next: from.position, until: now },
            None => Source::Live,
        };
        let (entries, ready) = (self.clone(), VecDeque::new());
        let listener = Listener {
            entries,
            wanted,
            listen,
            buffer,
            source,
            ready,
            bookmark,
            held,
            keeps: None,
            failed: None,
            folded: Folded::default(),
        };
        let floor = inner.feed_floor();
        if listener
            .listen
            .from
            .is_some_and(|from| from != Bookmark::START && from.position < floor || from.position > now)
        {
            let text = format!("the journal has positions from {floor} to {now}, not {}", bookmark.position);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(listener)
    }
}

impl Listener {
    /// Behind which event it stands: what a new listener goes on from. One that conflates takes events together some at a time, and stands
    /// before all of these until the last of them was told: who goes on from there may be told of an entry again, and misses none.
    #[must_use]
    pub fn bookmark(&self) -> Bookmark {
        self.folded.begin().unwrap_or(self.bookmark)
    }

    /// The next event; waits for it up to `wait`. No event is told that may vanish, by the store's durability.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses; `Invalid` when the type was dropped; `Corrupt` when something journaled does not
    /// decode; `Limit` when events of a volatile type did not fit the buffer and are lost: listen anew.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Notice>> {
        let deadline = self.entries.inner().clock.now().after(wait);
        loop {
            if let Some(notice) = self.poll()? {
                return Ok(Some(notice));
            }
            let left = deadline.since(self.entries.inner().clock.now());
            if left.is_zero() {
                return Ok(None);
            }
            self.buffer.signal.wait(Some(left));
        }
    }

    /// The next event that is there already. When there is none, all events of the batches that it told of were told: what
    /// one batch did comes without a gap.
    ///
    /// # Errors
    /// As [`Listener::next`].
    pub fn poll(&mut self) -> Result<Option<Notice>> {
        if self.listen.conflate {
            return self.poll_folded();
        }
        self.tell_failure()?;
        loop {
            while let Some(heard) = self.ready.front().cloned() {
                let bookmark = Bookmark::behind(&heard);
                let notice = self.notice(heard);
                if notice.is_some() {
                    // What cannot be told is not behind it.
                    self.entries.settle(crate::kv::Shown { value: (), position: bookmark.position })?;
                }
                self.ready.pop_front();
                self.pass(bookmark);
                if notice.is_some() {
                    return Ok(notice);
                }
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next event, if it is in memory: see [`Listener::page_shown`]. `None` also when the journal alone has it.
    fn poll_shown(&mut self) -> Result<Option<Notice>> {
        if let Some(notice) = self.next_folded() {
            return Ok(Some(notice));
        }
        self.tell_failure()?;
        loop {
            while let Some(heard) = self.ready.pop_front() {
                let bookmark = Bookmark::behind(&heard);
                let notice = self.notice(heard);
                self.pass(bookmark);
                if notice.is_some() {
                    return Ok(notice);
                }
            }
            self.entries.check()?;
            let is_in_memory = matches!(self.source, Source::Live) && self.buffer.state().behind.is_none();
            if !is_in_memory || !self.take_buffered()? {
                return Ok(None);
            }
        }
    }

    /// Whether there may be an event now. Does not look at the disk; what is there may turn out to be nothing that matches.
    #[must_use]
    pub fn may_have_more(&self) -> bool {
        let state = self.buffer.state();
        let is_in_hand = !self.ready.is_empty() || self.failed.is_some() || self.folded.begin().is_some();
        is_in_hand || !state.is_empty() || state.behind.is_some() || !matches!(self.source, Source::Live)
    }

    /// Wakes `waker` when there may be an event; at once when there is.
    pub fn wake_with(&self, waker: &std::task::Waker) {
        if self.may_have_more() {
            return waker.wake_by_ref();
        }
        self.buffer.state().wake_with(waker.clone());
        // An event that came between is not waited for.
        if self.may_have_more() {
            waker.wake_by_ref();
        }
    }

    /// Keeps the journal from this bookmark, however far the listener goes, until called again: whoever has heard more than
    /// is done with can listen anew from there. Of no use behind where the listener stands.
    pub fn keep_from(&mut self, bookmark: Bookmark) {
        self.keeps = Some(bookmark.position);
        self.move_hold();
    }

    fn pass(&mut self, bookmark: Bookmark) {
        self.bookmark = bookmark;
        self.move_hold();
    }

    fn move_hold(&mut self) {
        let position = self.bookmark().position;
        let position = self.keeps.map_or(position, |keeps| keeps.min(position));
        if position.get() >= self.held.get().saturating_add(HOLD_GRAIN_BYTES) && self.is_durable() {
            let inner = self.entries.inner();
            inner.hold_feed(position);
            inner.drop_feed(self.held);
            self.held = position;
        }
    }

    fn is_durable(&self) -> bool {
        self.entries.is_durable()
    }

    /// Whether the journal tells no more than what entries are, and the ids of those that go.
    fn is_short(&self) -> bool {
        let definition = self.entries.kind.definition();
        definition.storage == Storage::Durable && !definition.history
    }

    /// Gets more events, from wherever they come now. False when there are none.
    fn fill(&mut self) -> Result<bool> {
        self.entries.check()?;
        match self.source {
            Source::Journal { next, until } if next < until => {
                let next = self.read(next, until)?;
                self.source = Source::Journal { next, until };
                Ok(true)
            }
            Source::Journal { until, .. } => {
                // What the buffer has of before was read from the journal.
                self.bookmark = self.bookmark.max(Bookmark { position: until, told: 0 });
                self.source = Source::Live;
                Ok(true)
            }
            Source::Live => self.take_buffered(),
        }
    }

    fn take_buffered(&mut self) -> Result<bool> {
        let is_durable = self.is_durable();
        // While nobody tells, the buffer ends where a batch ends.
        let telling = self.entries.kind.listeners.telling();
        let mut state = self.buffer.state();
        while let Some(heard) = state.pop() {
            if !is_durable || Bookmark::behind(&heard) > self.bookmark {
                self.ready.push_back(heard);
            }
        }
        let is_behind = state.behind.is_some();
        drop(state);
        drop(telling);
        if is_behind && self.ready.is_empty() {
            return self.fall_back();
        }
        if self.ready.is_empty() {
            self.let_go();
        }
        Ok(!self.ready.is_empty())
    }

    /// Goes on to the journal's synced end when nothing happened up to there, so that it need not be kept.
    fn let_go(&mut self) {
        let inner = self.entries.inner();
        let synced = || inner.journal.watermarks().synced;
        if !self.is_durable() || synced().get() < self.held.get().saturating_add(HOLD_GRAIN_BYTES) {
            return;
        }
        // While nobody tells, nothing is on its way.
        let telling = self.entries.kind.listeners.telling();
        let (end, state) = (synced(), self.buffer.state());
        let is_quiet = state.is_empty() && state.behind.is_none();
        drop((state, telling));
        if is_quiet {
            self.pass(self.bookmark.max(Bookmark { position: end, told: 0 }));
        }
    }

    /// Goes back to the journal, because the buffer was too small.
    fn fall_back(&mut self) -> Result<bool> {
        let inner = self.entries.inner();
        // While nobody tells, nothing is on its way.
        let telling = self.entries.kind.listeners.telling();
        let until = inner.journal.watermarks().appended;
        self.buffer.state().clear();
        drop(telling);
        if !self.is_durable() {
            let text = "events of a volatile type did not fit the listener's buffer and are lost: read what is there, and listen anew";
            return Err(Error::new(ErrorKind::Limit, text));
        }
        self.source = Source::Journal { next: self.bookmark.position, until };
        Ok(true)
    }

    /// Reads some events from the journal; returns where to go on.
    fn read(&mut self, from: Position, until: Position) -> Result<Position> {
        let inner = self.entries.inner();
        let (of, id_field) = (self.entries.kind.of, self.entries.kind.definition().id.clone());
        let (mut next, mut found, mut failed, begin) = (from, VecDeque::new(), None, self.bookmark);
        let read = inner.journal.read_from(from, &mut |visit| {
            let record = match visit {
                Visit::Record(record) => record,
                Visit::Damaged(_) if !found.is_empty() => return Err(journal::Error::Closed),
                // Told once: who calls again goes on behind it.
                Visit::Damaged(damage) => {
                    let text = format!("events may be lost: {damage}");
                    failed = Some(Error::new(ErrorKind::Corrupt, text));
                    next = Position::new(damage.position.get() + damage.bytes);
                    return Err(journal::Error::Closed);
                }
            };
            let is_enough = found.len() >= READ_EVENTS_MAX || next.get() - from.get() >= READ_BYTES_MAX;
            if record.position >= until || is_enough {
                return Err(journal::Error::Closed);
            }
            let before = found.len();
            if let Err(error) = events(&record, of, &id_field, begin, &mut found) {
                // Nothing of a batch is told alone, and what lies before it is told first.
                found.truncate(before);
                failed = Some(error).filter(|_| before == 0);
                return Err(journal::Error::Closed);
            }
            next = record.end;
            Ok(())
        });
        match (failed, read) {
            (Some(error), _) => {
                self.source = Source::Journal { next: next.min(until), until };
                return Err(error);
            }
            (None, Err(journal::Error::Closed)) => {}
            (None, Err(error)) => return Err(error.into()),
            (None, Ok(())) => next = until,
        }
        self.ready = found;
        // A batch at or behind the end ended the reading.
        Ok(if next == from { until } else { next })
    }

    /// What an event is to this listener, if it is anything.
    fn notice(&self, heard: Heard) -> Option<Notice> {
        let definition = self.entries.kind.definition();
        let bookmark = Bookmark::behind(&heard);
        let heard = if self.is_short() { as_journaled(heard, &definition.id) } else { heard };
        let Heard { event, before: first, came, .. } = heard;
        let matches = |document: &Option<Document>| {
            document.as_ref().is_some_and(|document| self.wanted.matches(&definition, document.fields()))
        };
        let (was, before, after) = (matches(&first), matches(&event.before), matches(&event.after));
        let hears = self.listen.hears;
        let kind = match event.kind {
            _ if hears.entered && after && !was => NoticeKind::Entered,
            _ if hears.left && was && !after => NoticeKind::Left,
            EventKind::Written | EventKind::Updated if hears.written && after && came => NoticeKind::Written,
            EventKind::Updated if hears.updated && (after || was) => NoticeKind::Updated,
            // It went in between.
            EventKind::Written if hears.updated && was => NoticeKind::Updated,
            // The journal of a type without history tells so of all that are written, and a listener is a view of the journal.
            EventKind::Updated if hears.written && after && !self.entries.kind.definition().history => {
                NoticeKind::Written
            }
            EventKind::Removed(Reason::Expired) if hears.expired && (before || was) => NoticeKind::Expired,
            EventKind::Removed(Reason::Expired) => return None,
            EventKind::Removed(_) if hears.taken && (before || was) => NoticeKind::Taken,
            _ => return None,
        };
        let (removed, before) = match event.kind {
            EventKind::Removed(reason) => (Some(reason), event.before),
            _ => (None, first),
        };
        Some(Notice { kind, before, after: event.after, removed, bookmark })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.entries.kind.listeners.remove(&self.buffer);
        self.entries.inner().drop_feed(self.held);
    }
}
