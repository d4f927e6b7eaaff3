//! How answers leave in chunks while they are made.
//!
//! Whoever makes an answer in chunks waits for its client in a thread, one piece ahead: it ends when the client goes, and the door
//! ends clients that do not read.
//!
//! May use: `gone`, hyper, tokio. Must not know: InfluxQL.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use holdfast::series::SeriesError;
use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Sleep;

use crate::http::failure::Failure;
use crate::http::gone::Watching;

/// How long an answer may take to leave.
pub(super) const LEAVING_TIME_MAX: Duration = Duration::from_secs(600);
/// Pieces that wait for the client.
const PIECES_MAX: usize = 1;

type Made = Result<Vec<u8>, Failure>;

/// Where pieces go, for who makes them. Blocks.
pub(super) struct Way {
    sender: Sender<Made>,
    is_used: Cell<bool>,
}

/// Where pieces come from.
pub(super) struct Leaving(Receiver<Made>);

pub(super) fn way() -> (Way, Leaving) {
    let (sender, receiver) = channel(PIECES_MAX);
    (Way { sender, is_used: Cell::new(false) }, Leaving(receiver))
}

impl Way {
    /// Whether a piece has left.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.get()
    }

    /// Waits until the client has taken the pieces before.
    pub(super) fn send(&self, piece: Vec<u8>) -> Result<(), SeriesError> {
        self.is_used.set(true);
        let gone = || SeriesError::Source { text: "nobody waits for the answer any more".to_owned() };
        self.sender.blocking_send(Ok(piece)).map_err(|_| gone())
    }

    /// The last piece, or why there is none: then the connection ends without the end of the body.
    pub(super) fn end(self, last: Made) {
        // Nobody may be there for it, and then it does not matter.
        drop(self.sender.blocking_send(last));
    }
}

impl Leaving {
    /// The next piece; `None` when there is none.
    pub(super) async fn next(&mut self) -> Option<Made> {
        self.0.recv().await
    }

    /// The body that begins with this piece.
    pub(super) fn body(self, first: Vec<u8>, watching: Watching) -> Body {
        let end = Box::pin(tokio::time::sleep(LEAVING_TIME_MAX));
        Body::new(Pouring { first: Some(first.into()), rest: self.0, end, watching })
    }
}

struct Pouring {
    first: Option<Bytes>,
    rest: Receiver<Made>,
    /// Until then it has to have left: it holds a thread and a turn of questions however slowly its client reads.
    end: Pin<Box<Sleep>>,
    /// Ends what makes the pieces.
    watching: Watching,
}

impl hyper::body::Body for Pouring {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.end.as_mut().poll(context).is_ready() {
            self.rest.close();
            return Poll::Ready(Some(Err(io::Error::other("the client took too long to read the answer"))));
        }
        let Poll::Ready(made) = self.rest.poll_recv(context) else {
            ready!(self.watching.poll_gone(context));
            self.rest.close();
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        };
        self.watching.made();
        Poll::Ready(made.map(|made| match made {
            Ok(piece) => Ok(Frame::data(piece.into())),
            Err(failure) => {
                tracing::warn!("an answer in chunks ended early: {}", failure.text());
                Err(io::Error::other(failure.text().to_owned()))
            }
        }))
    }
}
