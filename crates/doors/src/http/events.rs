//! Events of a type over HTTP: asked for again and again, or sent as they happen (`event_stream`).
//!
//! Each request opens a listener where its client stands, and closes it with the answer: the bookmark in the answer is where the
//! next request goes on. Reading takes one of the turns for that; waiting takes none, and no thread.
//!
//! May use: everything of the door but sockets.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Wake, Waker};

use axum::body::Body;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::Durability;
use holdfast::space::{Bookmark, Entries, Listener, Notice, NoticePage, PageLimit};
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use super::admin;
use super::event_json::{self, Wish};
use super::event_stream::Stream;
use super::failure::Failure;
use super::fields::Fields;
use super::gone::{gone, left};
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::object::shown_at;
use super::shared::{Shared, Stalled};
use super::showing::{Otherwise, Text};
use super::space_json::Bounds;
use super::upload::Upload;
use crate::auth::{Right, User};
use crate::ids;
use crate::peer::Peer;

/// How many events are told unless the limit says otherwise.
const LIMIT_DEFAULT: usize = 100;
/// The header by which a client of an event stream says where it stood.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const RUN: HeaderName = HeaderName::from_static("x-holdfast-run");
/// Bytes of documents that are read at a time for a stream, and the one that exceeds them.
const STREAMED_BYTES: usize = 1 << 20;
const EVENT_STREAM: &str = "text/event-stream";

/// What was read, and the listener behind it.
pub(super) struct Read {
    pub(super) listener: Listener,
    pub(super) notices: Vec<Notice>,
    /// Where to go on behind them.
    pub(super) bookmark: Bookmark,
    /// It ended at a limit, and not where there was no more.
    has_more: bool,
}

/// How events are read.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) shared: Arc<Shared>,
    pub(super) entries: Entries,
    pub(super) limit: usize,
    /// Whether they are sent as they happen.
    is_stream: bool,
    /// Whether what happens to an entry is told once in a page.
    pub(super) conflates: bool,
    pub(super) durability: Durability,
    /// Who listens.
    pub(super) peer: Option<Peer>,
}

impl Reading {
    /// Reads in a thread, when it is its turn. It may have to go through much of the journal: nothing is gained by giving up in
    /// between, because who asks again begins where this began.
    async fn elsewhere(&self, read: impl FnOnce() -> Result<Read, Failure> + Send + 'static) -> Result<Read, Failure> {
        let turn = Arc::clone(&self.shared.event_turns).acquire_owned().await.map_err(|_| Stalled)?;
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            read()
        });
        let read = read.await.map_err(|_| Stalled)??;
        // No event is told that may vanish by what the store promises: that was seen to. The client may want more than that.
        if let Some(notice) = read.notices.last()
            && self.entries.is_durable()
        {
            self.shared.durable(notice.bookmark.position(), shown_at(self.durability)).await?;
        }
        Ok(read)
    }

    async fn begin(&self, wish: Wish) -> Result<Read, Failure> {
        let (entries, limit, bytes_max) = (self.entries.clone(), self.limit, self.bytes_max());
        let durability = self.durability;
        let begin = move || {
            if let (Some(name), Some(bookmark)) = (&wish.listen.name, wish.acknowledged) {
                entries.acknowledge(&name.name, bookmark, Some(durability))?;
            }
            gather(entries.listen(&wish.wanted, wish.listen)?, limit, bytes_max)
        };
        self.elsewhere(begin).await
    }

    pub(super) async fn go_on(&self, listener: Listener) -> Result<Read, Failure> {
        let (limit, bytes_max) = (self.limit, self.bytes_max());
        self.elsewhere(move || gather(listener, limit, bytes_max)).await
    }

    /// Of documents that are read at a time. A stream has the next ones behind them at once.
    fn bytes_max(&self) -> usize {
        let most = self.shared.options.limits.documents_bytes_max;
        if self.is_stream { most.min(STREAMED_BYTES) } else { most }
    }

    /// A place among those who wait, each of whom has events kept in memory.
    fn place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let place = Arc::clone(&self.shared.listeners).try_acquire_owned();
        place.map_err(|_| Failure::unavailable("too many clients listen; ask again without wait_ms"))
    }
}

/// The next events up to the limits. Blocks.
fn gather(mut listener: Listener, limit: usize, bytes_max: usize) -> Result<Read, Failure> {
    let NoticePage { notices, bookmark, has_more } = listener.page(PageLimit { events: limit, bytes: bytes_max })?;
    Ok(Read { listener, notices, bookmark, has_more })
}

/// Rings when a listener is woken: a waker of its own, as that of whoever polls is woken by much else.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Waits until the listener is woken: by an event, which need not be one that it hears of, or because its type is gone.
pub(super) async fn woken(listener: &Listener) {
    let bell = Arc::new(Bell::default());
    listener.wake_with(&Waker::from(Arc::clone(&bell)));
    bell.0.notified().await;
}

/// Waits until there may be an event.
async fn news(listener: &Listener) {
    while {
        woken(listener).await;
        !listener.may_have_more()
    } {}
}

impl Asked<'_> {
    /// GET: what is wanted stands in the parameters.
    pub(crate) async fn events(&self) -> Result<Response, Failure> {
        self.answer_events(event_json::of_query(&self.query)?).await
    }

    /// POST: it stands in the body, and may have a name.
    pub(crate) async fn listen(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Result<Response, Failure> {
        upload.check_present()?;
        let (fields, _share) = self.json(upload, Becomes::Values, Fields::parse).await?;
        // What is kept for a name takes of the disk: who may not write has none.
        let may_write = user.is_none_or(|user| user.may(Right::Write, self.captured(0)));
        if fields.has("name") && !may_write {
            let text = "a listener by name needs the right to write in the space";
            return Err(Failure::new(StatusCode::FORBIDDEN, text));
        }
        self.answer_events(fields).await
    }

    async fn answer_events(&self, fields: Fields) -> Result<Response, Failure> {
        let limits = &self.shared.options.limits;
        let entries = self.place()?.entries(&self.shared.store)?;
        let bounds =
            Bounds { limit: limits.page_entries_max, limit_default: LIMIT_DEFAULT, wait: limits.take_wait_max };
        let mut wish = event_json::wish(fields, &entries, bounds)?;
        if wish.run.as_ref().is_some_and(|run| *run != self.shared.options.run) {
            return Err(Failure::new(StatusCode::GONE, ids::NEW_RUN));
        }
        let peer = self.parts.extensions.get::<Peer>().cloned();
        let (shared, durability) = (Arc::clone(self.shared), self.durability()?);
        let (limit, conflates) = (wish.limit, wish.listen.conflate);
        let accepts = self.parts.headers.get_all(ACCEPT).iter();
        let is_stream = accepts.filter_map(|it| it.to_str().ok()).any(|it| it.contains(EVENT_STREAM));
        let reading = Reading { shared, entries, limit, is_stream, conflates, durability, peer };
        if is_stream {
            // A listener by name stands where it was acknowledged, whatever was sent since.
            if let Some(id) = self.parts.headers.get(LAST_EVENT_ID).filter(|_| wish.listen.name.is_none()) {
                wish.listen.from = Some(event_json::bookmark(id.to_str().unwrap_or_default())?);
            }
            return self.stream_events(reading, wish).await;
        }
        let until = Instant::now() + wish.wait;
        let mut read = reading.begin(wish).await?;
        let mut place = None;
        while read.notices.is_empty() && Instant::now() < until {
            if place.is_none() {
                place = Some(reading.place()?);
            }
            if !self.wait_for_events(&read.listener, until).await? {
                break;
            }
            read = reading.go_on(read.listener).await?;
        }
        let bytes = event_json::stored_bytes(&read.notices);
        let Read { notices, bookmark, has_more, .. } = read;
        let show = move |text: &mut Text| event_json::add_events(text, &notices, bookmark, has_more);
        let body = reading.shared.show((bytes, Otherwise::Refuse), show).await?;
        Ok(self.say_run(say_durability(with_type(JSON, body), reading.durability)))
    }

    /// Whether there may be events before it is too late.
    async fn wait_for_events(&self, listener: &Listener, until: Instant) -> Result<bool, Failure> {
        let mut stop = self.shared.stop.clone();
        let mut late = pin!(tokio::time::sleep_until(until));
        tokio::select! {
            () = news(listener) => Ok(true),
            () = late.as_mut() => Ok(false),
            _ = stop.wait_for(|stop| *stop) => Ok(false),
            () = gone(self.parts.extensions.get::<Peer>()) => Err(left()),
        }
    }

    async fn stream_events(&self, reading: Reading, wish: Wish) -> Result<Response, Failure> {
        let place = reading.place()?;
        let durability = reading.durability;
        let first = reading.begin(wish).await?;
        let body = match self.parts.method == Method::HEAD {
            true => Body::empty(),
            false => Body::new(Stream::begin(reading, first, place).await?),
        };
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        Ok(self.say_run(say_durability((headers, body).into_response(), durability)))
    }

    /// Says which run of the server told it, so that who keeps it can ask that nothing of it is lost.
    fn say_run(&self, mut answer: Response) -> Response {
        if let Ok(run) = HeaderValue::from_str(&self.shared.options.run) {
            answer.headers_mut().insert(RUN, run);
        }
        answer
    }

    /// Listeners of a type that are known by name.
    pub(crate) async fn listeners(&self) -> Result<Response, Failure> {
        let place = self.place()?;
        let known = self.shared.ask(move |store| Ok::<_, Failure>(place.entries(store)?.known_listeners()?)).await??;
        let listener = |it: holdfast::space::KnownListener| {
            json!({
                "name": it.name, "bookmark": it.bookmark.to_string(), "retain_bytes": it.retain_bytes,
                "behind_bytes": it.behind_bytes, "held": it.is_held, "damaged": it.is_damaged,
            })
        };
        let listeners: Vec<_> = known.into_iter().map(listener).collect();
        Ok(admin::json(StatusCode::OK, &json!({ "listeners": listeners })))
    }

    /// A name is forgotten, and what is held for it.
    pub(crate) async fn forget_listener(&self) -> Result<Response, Failure> {
        let place = self.place()?;
        let bad = |_| Failure::bad("a name has to be UTF-8");
        let name = String::from_utf8(self.captured(2).to_vec()).map_err(bad)?;
        let forget = move |store: &holdfast::Store| Ok::<_, Failure>(place.entries(store)?.forget_listener(&name)?);
        match self.shared.ask(forget).await?? {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(Failure::not_found()),
        }
    }
}
