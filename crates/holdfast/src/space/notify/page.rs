//! A page of events: as many as one answer holds, and from where the next one goes on.
//!
//! Of a listener that conflates, a page tells each entry once, as it is behind the page, whether its events waited in memory or were read
//! from the journal. For that the page is a stretch of the journal without gaps: all events of it are taken together, and where it ends
//! nothing of what lies behind is in it. So who goes on from its bookmark is told of everything that lies behind, as a change of what the
//! page told. It ends before the first event for which there is no room.
//!
//! What waits in memory may have been taken together by then, and cannot be parted again. Where it does not fit in whole, the journal
//! has it in parts.
//!
//! Asked for one at a time, events come by such pages as well.
//!
//! May use: what `notify` may. Must not know: protocols.

use std::collections::{BTreeSet, VecDeque};

use ::space::{Definition, Document, EventKind};

use super::{Bookmark, Listener, Notice, Source};
use crate::error::Result;
use crate::kv::Shown;
use crate::space::listen::{Heard, Queue};

/// Most entries whose events a page takes together, those among them of which nothing is told.
const ENTRIES_MAX: usize = 16 << 10;
/// Bytes of their documents, likewise.
const BYTES_MAX: usize = 16 << 20;

/// How much a page may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Most events; at least one.
    pub events: usize,
    /// Bytes of their documents at which it ends: the last event may go beyond.
    pub bytes: usize,
}

/// Events of a listener: from [`Listener::page`].
#[derive(Debug, Clone, PartialEq)]
pub struct NoticePage {
    /// What happened, in order.
    pub notices: Vec<Notice>,
    /// Where to go on behind all of it.
    pub bookmark: Bookmark,
    /// Whether it ended because of its limit, and not because there was no more.
    pub has_more: bool,
}

/// Events of a stretch that are taken together.
#[derive(Default)]
struct Stretch {
    queue: Queue,
    /// Entries of which there may be something to tell, and events that are of nobody knows which entry.
    told: BTreeSet<Vec<u8>>,
    alone: usize,
    bytes: usize,
    end: Option<Bookmark>,
}

/// A page that is told one event at a time.
#[derive(Default)]
pub(super) struct Folded {
    notices: VecDeque<Notice>,
    /// Before all of it, as long as something of it is left.
    begin: Option<Bookmark>,
}

impl Folded {
    pub(super) fn begin(&self) -> Option<Bookmark> {
        self.begin
    }
}

impl Listener {
    /// The events that are there already, up to a limit. Where the listener conflates each entry is told once in a page, and the page's
    /// bookmark is where to go on: behind the bookmark of an event in the midst of it other entries are not what the page has told of
    /// them before.
    ///
    /// # Errors
    /// As [`Listener::next`]. An error that lies behind events that are told is told after them, by whatever is asked next.
    pub fn page(&mut self, limit: PageLimit) -> Result<NoticePage> {
        if self.folded.begin.is_some() {
            let page = self.plain_page(limit, |this| Ok(this.next_folded()))?;
            return Ok(NoticePage { has_more: self.may_have_more(), ..page });
        }
        if self.listen.conflate { self.conflated_page(limit) } else { self.plain_page(limit, Self::poll) }
    }

    /// The next event of the page under way, or of the next one.
    pub(super) fn poll_folded(&mut self) -> Result<Option<Notice>> {
        if self.folded.begin.is_none() {
            // From here on what lies before it is kept.
            self.folded.begin = Some(self.bookmark);
            let page = self.conflated_page(PageLimit { events: usize::MAX, bytes: usize::MAX });
            self.folded.notices = page.inspect_err(|_| self.folded.begin = None)?.notices.into();
        }
        Ok(self.next_folded())
    }

    pub(super) fn next_folded(&mut self) -> Option<Notice> {
        let notice = self.folded.notices.pop_front();
        if self.folded.notices.is_empty() && self.folded.begin.take().is_some() {
            self.pass(self.bookmark);
        }
        notice
    }

    /// Those of the events that are in memory, each as it waits there. Does not wait, neither for the disk nor for durability: an event rests
    /// on the position of its bookmark, and whoever is told of it has to wait for that. `has_more` also when the journal alone has more:
    /// [`Listener::page`] reads it.
    ///
    /// # Errors
    /// As [`Listener::page`].
    pub fn page_shown(&mut self, limit: PageLimit) -> Result<NoticePage> {
        let page = self.plain_page(limit, Self::poll_shown)?;
        Ok(NoticePage { has_more: self.may_have_more(), ..page })
    }

    fn plain_page(
        &mut self,
        limit: PageLimit,
        poll: impl Fn(&mut Self) -> Result<Option<Notice>>,
    ) -> Result<NoticePage> {
        let (mut notices, mut bytes, mut has_more) = (Vec::<Notice>::new(), 0, true);
        while has_more && notices.len() < limit.events.max(1) && bytes < limit.bytes {
            match poll(self) {
                Ok(Some(notice)) => {
                    bytes += bytes_of(&notice.before) + bytes_of(&notice.after);
                    notices.push(notice);
                }
                Ok(None) => has_more = false,
                // The listener stands behind the notices: nobody would be told of them.
                Err(error) if !notices.is_empty() => {
                    self.failed = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        // In the midst of what was taken together, before all of it.
        let last = notices.last().map_or(self.bookmark, |last| last.bookmark);
        let bookmark = if self.listen.conflate { self.bookmark() } else { last };
        Ok(NoticePage { notices, bookmark, has_more })
    }

    fn conflated_page(&mut self, limit: PageLimit) -> Result<NoticePage> {
        loop {
            // Also where nothing that lay before it was told.
            self.tell_failure()?;
            let begin = self.bookmark;
            let (stretch, has_more) = self.gather(limit, begin)?;
            let page = self.told(stretch, has_more);
            let stands = self.bookmark.max(page.bookmark);
            if page.notices.is_empty() && has_more {
                self.pass(stands);
                continue;
            }
            // What cannot be told is not behind it.
            if !page.notices.is_empty()
                && let Err(error) = self.entries.settle(Shown { value: (), position: page.bookmark.position })
            {
                self.go_back(begin)?;
                return Err(error);
            }
            self.pass(stands);
            return Ok(page);
        }
    }

    /// A stretch of events from where the listener stands, and whether there is more behind it.
    fn gather(&mut self, limit: PageLimit, begin: Bookmark) -> Result<(Stretch, bool)> {
        let (mut stretch, mut is_parted) = (Stretch::default(), false);
        loop {
            let Some(heard) = self.ready.front() else {
                let is_at_end = match self.fill() {
                    Err(error) if stretch.end.is_some() => {
                        self.failed = Some(error);
                        return Ok((stretch, true));
                    }
                    filled => !filled?,
                };
                if is_at_end || is_parted && matches!(self.source, Source::Live) {
                    return Ok((stretch, !is_at_end));
                }
                continue;
            };
            let definition = self.entries.kind.definition();
            let key = entry_of(heard, &definition, self.is_short());
            let may_tell = self.concerns(heard);
            if stretch.has_room(key.as_deref(), may_tell, limit) {
                if let Some(heard) = self.ready.pop_front() {
                    stretch.add(heard, key, may_tell);
                }
            } else if matches!(self.source, Source::Live) && self.is_durable() && !is_parted {
                (stretch, is_parted) = (Stretch::default(), true);
                self.go_back(begin)?;
            } else {
                return Ok((stretch, true));
            }
        }
    }

    /// What went wrong behind the last page, once.
    pub(super) fn tell_failure(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Reads the journal again from here; a volatile type has none, and what was taken of it is gone.
    fn go_back(&mut self, begin: Bookmark) -> Result<()> {
        if !self.is_durable() {
            return Ok(());
        }
        self.ready.clear();
        // It is met again.
        self.failed = None;
        self.bookmark = begin;
        self.fall_back().map(|_| ())
    }

    /// Whether an event may be anything to this listener.
    fn concerns(&self, heard: &Heard) -> bool {
        let definition = self.entries.kind.definition();
        let matches = |document: &Option<Document>| {
            document.as_ref().is_some_and(|document| self.wanted.matches(&definition, document.fields()))
        };
        matches(&heard.event.after) || matches(&heard.event.before) || matches(&heard.before)
    }

    fn told(&self, mut stretch: Stretch, has_more: bool) -> NoticePage {
        let bookmark = stretch.end.unwrap_or(self.bookmark);
        let notices = std::iter::from_fn(|| stretch.queue.pop()).filter_map(|heard| self.notice(heard)).collect();
        NoticePage { notices, bookmark, has_more }
    }
}

impl Stretch {
    fn has_room(&self, key: Option<&[u8]>, may_tell: bool, limit: PageLimit) -> bool {
        if self.end.is_none() {
            return true;
        }
        let is_new = key.is_none_or(|key| !self.told.contains(key));
        let told = self.told.len() + self.alone;
        let fits = !may_tell || !is_new || told < limit.events;
        fits && self.bytes < limit.bytes.min(BYTES_MAX) && self.queue.len() < ENTRIES_MAX
    }

    fn add(&mut self, mut heard: Heard, key: Option<Vec<u8>>, may_tell: bool) {
        self.end = Some(Bookmark::behind(&heard));
        match key {
            Some(key) => {
                if may_tell {
                    self.told.insert(key.clone());
                }
                self.bytes -= self.queue.conflate(&mut heard, key);
            }
            None => self.alone += usize::from(may_tell),
        }
        self.bytes += heard.bytes();
        self.queue.add(heard);
    }
}

fn bytes_of(document: &Option<Document>) -> usize {
    document.as_ref().map_or(0, |it| it.as_bytes().len())
}

/// The key of the entry that an event is of. The journal of a type without history tells of one that went its id alone, which several
/// may have where there is a routing.
fn entry_of(heard: &Heard, definition: &Definition, is_short: bool) -> Option<Vec<u8>> {
    let is_by_id = is_short && definition.routed_by().is_some() && matches!(heard.event.kind, EventKind::Removed(_));
    let document = heard.event.after.as_ref().or(heard.event.before.as_ref()).filter(|_| !is_by_id)?;
    Some(definition.entry_key(document.fields()))
}
