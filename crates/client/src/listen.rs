//! What happens to entries, each event once and in order, from a store in the process or a server.
//!
//! A listener on a server keeps nothing there: each question says behind which event it stands. So a connection that breaks, and
//! a server that is started again, make it wait and not miss or repeat anything.
//!
//! May use: `entries`, `embedded`, `remote`, the facade. Must not know: sockets.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::Stream;
use holdfast::space::{self, Bookmark, KnownListener, Listen, ListenName, Notice, NoticePage, PageLimit, Wanted};
use holdfast::{Error, ErrorKind, Result};

use crate::call::{Call, How, Step};
use crate::embedded::Embedded;
use crate::entries::{At, Entries};
use crate::read;
use crate::remote::{Again, Remote, Reply, Words};

/// Events that are got at once, and the bytes of their documents at which that ends in the process.
const EVENTS_MAX: usize = 1_000;
const BYTES_MAX: usize = 4 << 20;
/// The longest that a server is asked to wait at once.
const BLOCK_MAX: Duration = Duration::from_secs(20);

/// Hears what happens to entries: from [`Entries::listen`].
pub struct Listener(Arc<Inner>);

enum Inner {
    Here(Embedded, Box<Mutex<space::Listener>>),
    There(Remote, Box<There>),
}

struct There {
    words: Words,
    listen: Listen,
    place: Mutex<Place>,
}

/// Where a listener on a server stands.
struct Place {
    /// Behind the last event that was given out.
    bookmark: Bookmark,
    /// Behind the last one that was got.
    got: Bookmark,
    ready: VecDeque<Notice>,
}

/// What a server answered: events, and whether there are more now.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) bookmark: Bookmark,
    pub(crate) notices: Vec<Notice>,
    pub(crate) has_more: bool,
}

impl Entries {
    /// Listens to what happens to entries that match: [`holdfast::space::Entries::listen`]. On a server the type has to be durable,
    /// and `buffer_events` counts for nothing: events are in the journal there.
    ///
    /// # Errors
    /// As there.
    pub fn listen(&self, wanted: &Wanted, listen: Listen) -> Call<Listener> {
        match &self.at {
            At::Here(here, entries) => {
                let listener = entries.listen(wanted, listen);
                Call::done(listener.map(|it| Listener(Arc::new(Inner::Here(here.clone(), Box::new(Mutex::new(it)))))))
            }
            At::There(there, _) => {
                let words = match self.listen_words(wanted) {
                    Ok(words) => words,
                    Err(error) => return Call::done(Err(error)),
                };
                // The first question says what is wrong, and from where it is heard. Those behind it say where they stand
                // themselves, and so leave the place of a listener by name alone.
                let named = match &listen.name {
                    None => words.clone(),
                    Some(ListenName { name, retain_bytes: None }) => words.clone().and("NAME").and(name),
                    Some(ListenName { name, retain_bytes: Some(bytes) }) => {
                        words.clone().and("NAME").and(name).and("RETAIN").and(bytes.to_string())
                    }
                };
                let first = page(there, &named, &listen, listen.from, Duration::ZERO);
                let there = there.clone();
                first.then(move |page| {
                    let told = page.notices.first().map(|notice| notice.bookmark.before_its_event());
                    let bookmark = listen.from.or(told).unwrap_or(page.bookmark);
                    let place = Place { bookmark, got: page.bookmark, ready: page.notices.into() };
                    let of = There { words, listen, place: Mutex::new(place) };
                    Ok(Listener(Arc::new(Inner::There(there, Box::new(of)))))
                })
            }
        }
    }

    /// Notes durably that a listener by name has done with all up to a bookmark: [`holdfast::space::Entries::acknowledge`], with the
    /// durability of the store.
    ///
    /// # Errors
    /// As there.
    pub fn acknowledge(&self, name: &str, bookmark: Bookmark) -> Call<()> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, name) = (entries.clone(), name.to_owned());
                here.elsewhere(move || entries.acknowledge(&name, bookmark, None))
            }
            At::There(there, _) => {
                let words = self.acknowledge_words(name, bookmark);
                // What was acknowledged is not taken back, so it may be said twice.
                there.call_alone(&words, Again::May, Some(Duration::ZERO), Reply::ok)
            }
        }
    }

    pub(crate) fn acknowledge_words(&self, name: &str, bookmark: Bookmark) -> Words {
        self.words("SPACE.ACK").and(name).and(bookmark.to_string())
    }

    /// The listeners of the type that are known by name, in order: [`holdfast::space::Entries::known_listeners`].
    ///
    /// # Errors
    /// As there.
    pub fn known_listeners(&self) -> Call<Vec<KnownListener>> {
        match &self.at {
            At::Here(here, entries) => {
                let entries = entries.clone();
                here.elsewhere(move || entries.known_listeners())
            }
            At::There(there, _) => {
                let words = self.words("SPACE.LISTENERS");
                there.call_alone(&words, Again::May, Some(Duration::ZERO), |reply| {
                    reply.list()?.iter().map(read::known_listener).collect()
                })
            }
        }
    }

    /// Forgets a listener by name, and lets go of the journal that is held for it: [`holdfast::space::Entries::forget_listener`]. False if
    /// there is none.
    ///
    /// # Errors
    /// As there.
    pub fn forget_listener(&self, name: &str) -> Call<bool> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, name) = (entries.clone(), name.to_owned());
                here.elsewhere(move || entries.forget_listener(&name))
            }
            At::There(there, _) => {
                let words = self.words("SPACE.UNLISTEN").and(name);
                // Somebody may have begun anew with the name meanwhile.
                there.call_alone(&words, Again::MustNot, Some(Duration::ZERO), |reply| Ok(reply.unsigned()? != 0))
            }
        }
    }

    /// The beginning of SPACE.LISTEN.
    pub(crate) fn listen_words(&self, wanted: &Wanted) -> Result<Words> {
        if !self.is_durable() {
            let text =
                "entries of a volatile type are in no journal: who is not in the process misses what happens to them";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        self.words("SPACE.LISTEN").wanted(wanted)
    }
}

/// Asks a server for events behind a bookmark, or, without one, from where it is now.
pub(crate) fn page(
    there: &Remote,
    words: &Words,
    listen: &Listen,
    from: Option<Bookmark>,
    block: Duration,
) -> Call<Page> {
    let from = from.map(|from| if from == Bookmark::START { "START".to_owned() } else { from.to_string() });
    let mut words = words.clone().listening(listen, from.as_deref()).and("COUNT").and(EVENTS_MAX.to_string());
    if !block.is_zero() {
        words = words.and("BLOCK").and(block.as_millis().max(1).to_string());
    }
    there.call_alone(&words, Again::May, Some(block), |reply: Reply| {
        let [bookmark, events, more] = reply.items()?;
        let (bookmark, notices) = read::notices(Reply::List(vec![bookmark, events]))?;
        Ok(Page { bookmark, notices, has_more: more.unsigned()? != 0 })
    })
}

impl There {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop(&self) -> Option<Notice> {
        let mut place = self.place();
        let next = place.ready.pop_front();
        place.bookmark = match &next {
            // Behind one that stands for several the others are not what was told before.
            Some(_) if self.listen.conflate && !place.ready.is_empty() => place.bookmark,
            Some(notice) if !self.listen.conflate => notice.bookmark,
            _ => place.bookmark.max(place.got),
        };
        next
    }

    fn put(&self, page: Page) {
        let mut place = self.place();
        // Two calls at a time may have got the same events.
        let behind = place.ready.back().map_or(place.bookmark, |last| last.bookmark);
        place.ready.extend(page.notices.into_iter().filter(|notice| notice.bookmark > behind));
        place.got = place.got.max(page.bookmark);
    }

    async fn next(&self, there: &Remote, wait: Duration) -> Result<Option<Notice>> {
        let begin = Instant::now();
        loop {
            if let Some(notice) = self.pop() {
                return Ok(Some(notice));
            }
            let from = self.place().got;
            let left = wait.saturating_sub(begin.elapsed());
            let page = page(there, &self.words, &self.listen, Some(from), left.min(BLOCK_MAX)).await?;
            self.put(page);
            if left.is_zero() {
                return Ok(self.pop());
            }
        }
    }
}

impl Listener {
    /// Behind which event it stands: what a new listener goes on from.
    #[must_use]
    pub fn bookmark(&self) -> Bookmark {
        match &*self.0 {
            Inner::Here(_, listener) => listener.lock().unwrap_or_else(PoisonError::into_inner).bookmark(),
            Inner::There(_, there) => there.place().bookmark,
        }
    }

    /// The next event; waits for it up to `wait`: [`holdfast::space::Listener::next`]. While a server cannot be reached it waits
    /// for it as any call does, and fails then; who calls again goes on where it was.
    ///
    /// # Errors
    /// As there.
    pub fn next(&mut self, wait: Duration) -> Call<Option<Notice>> {
        let this = Arc::clone(&self.0);
        Call::new(move |how| {
            if how == How::Wait
                && let Inner::Here(_, listener) = &*this
            {
                return Step::Done(listener.lock().unwrap_or_else(PoisonError::into_inner).next(wait));
            }
            Step::Running(Box::pin(async move {
                match &*this {
                    Inner::There(there, of) => of.next(there, wait).await,
                    Inner::Here(here, _) => read_here(here, &this, wait, space::Listener::poll).await,
                }
            }))
        })
    }

    /// The events that there are now, of a store in the process; waits for the first up to `block`. An error behind some of them is told
    /// by whatever is asked next.
    pub(crate) async fn page_here(&self, block: Duration) -> Result<Page> {
        let read = |listener: &mut space::Listener| {
            let page = listener.page(PageLimit { events: EVENTS_MAX, bytes: BYTES_MAX })?;
            let NoticePage { notices, bookmark, has_more } = page;
            Ok((has_more || !notices.is_empty()).then_some(Page { bookmark, notices, has_more }))
        };
        let page = match &*self.0 {
            Inner::Here(here, _) => read_here(here, &self.0, block, read).await?,
            Inner::There(..) => None,
        };
        Ok(page.unwrap_or_else(|| Page { bookmark: self.bookmark(), notices: Vec::new(), has_more: false }))
    }

    /// All events as a stream, without an end. An error is an item and does not end it: what is asked for next goes on where it
    /// was.
    #[must_use]
    pub fn events(self) -> Events {
        Events { listener: self, next: None }
    }
}

/// Waits in the writers' own way to wake, and reads, which may wait for a sync, in another thread.
async fn read_here<T: Send + 'static>(
    here: &Embedded,
    inner: &Arc<Inner>,
    wait: Duration,
    read: fn(&mut space::Listener) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let locked = move |inner: &Arc<Inner>| -> Result<Option<T>> {
        let Inner::Here(_, listener) = &**inner else { return Ok(None) };
        read(&mut listener.lock().unwrap_or_else(PoisonError::into_inner))
    };
    let mut late = pin!(here.sleep(wait));
    loop {
        let reading = Arc::clone(inner);
        if let Some(read) = here.off(move || locked(&reading)).await? {
            return Ok(Some(read));
        }
        let mut was_asked = false;
        let is_late = poll_fn(|context: &mut Context<'_>| {
            let Inner::Here(_, listener) = &**inner else { return Poll::Ready(true) };
            let listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
            if was_asked && listener.may_have_more() {
                return Poll::Ready(false);
            }
            was_asked = true;
            listener.wake_with(context.waker());
            late.as_mut().poll(context).map(|()| true)
        });
        if is_late.await {
            return Ok(None);
        }
    }
}

/// Events, one after another: from [`Listener::events`].
pub struct Events {
    listener: Listener,
    next: Option<Call<Option<Notice>>>,
}

impl Events {
    /// Behind which event it stands.
    #[must_use]
    pub fn bookmark(&self) -> Bookmark {
        self.listener.bookmark()
    }
}

impl Stream for Events {
    type Item = Result<Notice>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let next = this.next.get_or_insert_with(|| this.listener.next(BLOCK_MAX));
            let Poll::Ready(result) = Pin::new(next).poll(context) else { return Poll::Pending };
            this.next = None;
            match result {
                Ok(Some(notice)) => return Poll::Ready(Some(Ok(notice))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
