//! Events as they happen: Server-Sent Events, as browsers' `EventSource` reads them.
//!
//! ```text
//! id: 4096.2
//! event: written
//! data: {"kind":"written","bookmark":"4096.2","now":{"id":1},"before":null,"reason":null}
//! ```
//! The first thing that is sent is an id alone, so that a client which comes back knows where it stood before anything happened.
//! So it is, too, when nothing was to be told for a while, which keeps the connection open. It ends when its client has closed its side.
//! Where events of an entry are made one, only the last of a page has an id, which is the page's: who went on from the midst of it would miss what was made one.
//!
//! Nothing is read before the client has taken what was read before: a slow one costs the memory of a page.
//!
//! May use: `events`, `event_json`, `showing`, hyper, tokio. Must not know: routes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use holdfast::space::{Bookmark, Listener, Notice};
use hyper::body::{Body, Bytes, Frame};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::event_json;
use super::events::{Read, Reading, woken};
use super::failure::Failure;
use super::gone::gone_for_a_while;
use super::showing::{Otherwise, Sent, Text};
use crate::budget::Exhausted;

/// How long nothing is sent at the most.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Milliseconds after which a client whose connection broke comes back.
const RETRY_MS: u64 = 1_000;

type Next = Pin<Box<dyn Future<Output = (Option<Sent>, Option<Listener>)> + Send>>;

/// The body of an answer without end: but for the door's.
pub(crate) struct Stream {
    reading: Reading,
    ready: Option<Sent>,
    next: Option<Next>,
    /// When something has to be sent.
    quiet_until: Instant,
    /// Ends when the client has been gone for a while.
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    /// Goes on behind what was read.
    ///
    /// # Errors
    /// 503 when there is no room for the first events within the time that an answer may take.
    pub(super) async fn begin(reading: Reading, first: Read, place: OwnedSemaphorePermit) -> Result<Self, Failure> {
        let mut head = format!("retry: {RETRY_MS}\n");
        if first.notices.is_empty() {
            head.push_str(&format!("id: {}\n\n", first.bookmark));
        }
        let time_max = reading.shared.options.limits.answer_timeout;
        let (begin, listener) = timeout(time_max, page(&reading, head, first)).await.map_err(|_| Exhausted)??;
        let next = Some(next(reading.clone(), listener, Instant::now() + SILENCE_MAX));
        let peer = reading.peer.clone();
        let gone = Box::pin(async move { gone_for_a_while(peer.as_ref()).await });
        let quiet_until = Instant::now() + SILENCE_MAX;
        Ok(Stream { reading, ready: Some(begin), next, quiet_until, gone, _place: place })
    }
}

/// Events with the ids behind which a client may go on, behind what is said first. They wait for room.
async fn page(reading: &Reading, head: String, read: Read) -> Result<(Sent, Listener), Failure> {
    let (bytes, conflates) = (event_json::stored_bytes(&read.notices), reading.conflates);
    let Read { notices, bookmark, listener, .. } = read;
    let show = move |text: &mut Text| {
        text.add(&head)?;
        told(&notices, bookmark, conflates).try_for_each(|event| text.add(&event))
    };
    Ok((reading.shared.show_patiently(bytes, show).await?, listener))
}

fn told(notices: &[Notice], bookmark: Bookmark, conflates: bool) -> impl Iterator<Item = String> {
    let last = notices.len().saturating_sub(1);
    let one = move |(number, notice): (usize, &Notice)| {
        let (kind, event) = (event_json::kind(notice), event_json::event(notice));
        let id = match conflates {
            false => format!("id: {}\n", notice.bookmark),
            true if number == last => format!("id: {bookmark}\n"),
            true => String::new(),
        };
        format!("{id}event: {kind}\ndata: {event}\n\n")
    };
    notices.iter().enumerate().map(one)
}

/// What is sent next, if anything, and the listener behind it; without one that was the end.
fn next(reading: Reading, listener: Listener, quiet_until: Instant) -> Next {
    Box::pin(async move {
        let mut stop = reading.shared.stop.clone();
        tokio::select! {
            () = woken(&listener) => {}
            () = tokio::time::sleep_until(quiet_until) => {}
            _ = stop.wait_for(|stop| *stop) => return (None, None),
        }
        let read = async {
            let read = reading.go_on(listener).await?;
            let is_quiet = read.notices.is_empty() && Instant::now() >= quiet_until;
            let head = if is_quiet { format!("id: {}\n\n", read.bookmark) } else { String::new() };
            page(&reading, head, read).await
        };
        match read.await {
            Ok((text, listener)) => (Some(text), Some(listener)),
            Err(failure) => {
                let error = json!({ "error": failure.text() });
                let text = format!("event: failed\ndata: {error}\n\n");
                (Sent::of(text, &reading.shared.budget, Otherwise::Show).ok(), None)
            }
        }
    })
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.next.is_some() && self.gone.as_mut().poll(context).is_ready() {
            self.next = None;
            self.ready = None;
        }
        loop {
            if let Some(text) = self.ready.take().filter(|text| !text.is_empty()) {
                return Poll::Ready(Some(Ok(Frame::data(text.into_bytes()))));
            }
            let Some(making) = &mut self.next else { return Poll::Ready(None) };
            let (text, listener) = ready!(making.as_mut().poll(context));
            if text.as_ref().is_some_and(|text| !text.is_empty()) {
                self.quiet_until = Instant::now() + SILENCE_MAX;
            }
            self.next = listener.map(|listener| next(self.reading.clone(), listener, self.quiet_until));
            self.ready = text;
        }
    }
}
