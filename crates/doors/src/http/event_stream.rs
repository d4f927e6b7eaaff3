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
//! May use: `events`, `event_json`, hyper, tokio. Must not know: routes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use holdfast::space::{Listener, Notice};
use hyper::body::{Body, Bytes, Frame};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::event_json;
use super::events::{Read, Reading, woken};
use super::gone::gone_for_a_while;

/// How long nothing is sent at the most.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Milliseconds after which a client whose connection broke comes back.
const RETRY_MS: u64 = 1_000;

type Next = Pin<Box<dyn Future<Output = (String, Option<Listener>)> + Send>>;

/// The body of an answer without end: but for the door's.
pub(crate) struct Stream {
    reading: Reading,
    ready: Option<String>,
    next: Option<Next>,
    /// When something has to be sent.
    quiet_until: Instant,
    /// Ends when the client has been gone for a while.
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    /// Goes on behind what was read.
    pub(super) fn begin(reading: Reading, first: Read, place: OwnedSemaphorePermit) -> Self {
        let begin = match first.notices.is_empty() {
            true => format!("retry: {RETRY_MS}\nid: {}\n\n", first.bookmark),
            false => format!("retry: {RETRY_MS}\n{}", page(&first, reading.conflates)),
        };
        let next = Some(next(reading.clone(), first.listener, Instant::now() + SILENCE_MAX));
        let peer = reading.peer.clone();
        let gone = Box::pin(async move { gone_for_a_while(peer.as_ref()).await });
        let quiet_until = Instant::now() + SILENCE_MAX;
        Stream { reading, ready: Some(begin), next, quiet_until, gone, _place: place }
    }
}

/// Events with the ids behind which a client may go on.
fn page(read: &Read, conflates: bool) -> String {
    let last = read.notices.len().saturating_sub(1);
    let one = |(number, notice): (usize, &Notice)| {
        let (kind, event) = (event_json::kind(notice), event_json::event(notice));
        let id = match conflates {
            false => format!("id: {}\n", notice.bookmark),
            true if number == last => format!("id: {}\n", read.bookmark),
            true => String::new(),
        };
        format!("{id}event: {kind}\ndata: {event}\n\n")
    };
    read.notices.iter().enumerate().map(one).collect()
}

/// What is sent next, if anything, and the listener behind it; without one that was the end.
fn next(reading: Reading, listener: Listener, quiet_until: Instant) -> Next {
    Box::pin(async move {
        let mut stop = reading.shared.stop.clone();
        tokio::select! {
            () = woken(&listener) => {}
            () = tokio::time::sleep_until(quiet_until) => {}
            _ = stop.wait_for(|stop| *stop) => return (String::new(), None),
        }
        match reading.go_on(listener).await {
            Ok(read) if read.notices.is_empty() && Instant::now() >= quiet_until => {
                (format!("id: {}\n\n", read.bookmark), Some(read.listener))
            }
            Ok(read) => (page(&read, reading.conflates), Some(read.listener)),
            Err(failure) => {
                let error = json!({ "error": failure.text() });
                (format!("event: failed\ndata: {error}\n\n"), None)
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
                return Poll::Ready(Some(Ok(Frame::data(text.into()))));
            }
            let Some(making) = &mut self.next else { return Poll::Ready(None) };
            let (text, listener) = ready!(making.as_mut().poll(context));
            if !text.is_empty() {
                self.quiet_until = Instant::now() + SILENCE_MAX;
            }
            self.next = listener.map(|listener| next(self.reading.clone(), listener, self.quiet_until));
            self.ready = Some(text);
        }
    }
}
