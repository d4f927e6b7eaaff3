//! Answers that are made piece by piece while they are sent, so that a listing of any length costs the memory of a page.
//!
//! Each piece is made by a thread that may wait, when the client has taken the one before: a slow client holds no thread.
//! An error in the middle ends the connection without the end of the body, which is how HTTP says that something is
//! missing.
//!
//! May use: `gone`, `shared`, `turns`, the facade's `series`, hyper, tokio. Must not know: what is listed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use holdfast::series::{Missing, Reader, Source};
use hyper::body::{Bytes, Frame};
use tokio::task::JoinError;

use super::failure::Failure;
use super::gone::Watching;
use super::shared::Shared;
use super::turns::Turns;

/// How long a listing may take from its first piece to its last: it keeps what it shows from being removed.
const LISTING_TIME_MAX: Duration = Duration::from_secs(600);
/// What of a whole answer is sent at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A part of an answer.
pub(crate) enum Piece {
    More(Vec<u8>),
    Last(Vec<u8>),
    /// The last of an answer that misses something of which its header does not tell.
    LastOfIncomplete(Vec<u8>, Missing),
}

impl Piece {
    /// The last piece, of an answer that may miss something; `told` is what its header has said of that.
    pub(crate) fn last(bytes: Vec<u8>, missing: Option<Missing>, told: usize) -> Self {
        match missing {
            Some(missing) if missing.blocks() > told => Piece::LastOfIncomplete(bytes, missing),
            _ => Piece::Last(bytes),
        }
    }
}

/// The header of an answer that misses what is damaged.
const INCOMPLETE: HeaderName = HeaderName::from_static("x-holdfast-incomplete");

/// Says with an answer what it misses.
pub(crate) fn telling(mut answer: Response, missing: Option<&Missing>) -> Response {
    if let Some(text) = missing.and_then(|missing| HeaderValue::from_str(&missing.to_string()).ok()) {
        answer.headers_mut().insert(INCOMPLETE, text);
    }
    answer
}

/// Makes an answer's pieces. Blocks.
pub(crate) trait Pieces: Send + 'static {
    /// The next piece; not called again after the last.
    ///
    /// # Errors
    /// When it cannot be made; there are no more pieces then.
    fn next(&mut self) -> holdfast::Result<Piece>;
}

type Made = (Box<dyn Pieces>, holdfast::Result<Piece>);
type Making = Pin<Box<dyn Future<Output = Result<Made, JoinError>> + Send>>;

fn make(mut pieces: Box<dyn Pieces>) -> Made {
    let piece = pieces.next();
    (pieces, piece)
}

/// The body of what `begin` lists. Its first piece is made before this returns, so that what fails at once has its
/// status.
///
/// # Errors
/// What `begin` and the first piece say.
pub(crate) async fn body(
    shared: &Arc<Shared>,
    begin: impl FnOnce(&holdfast::Store) -> Result<Box<dyn Pieces>, Failure> + Send + 'static,
) -> Result<Body, Failure> {
    let first = move |store: &holdfast::Store| Ok::<_, Failure>(make(begin(store)?));
    let (pieces, piece) = shared.ask(first).await??;
    match piece? {
        Piece::Last(bytes) | Piece::LastOfIncomplete(bytes, _) => Ok(Body::from(bytes)),
        Piece::More(bytes) => Ok(continued(bytes, pieces, None)),
    }
}

/// The body of which a piece is made already, and what makes the others. Of a question each is made in a turn of its own, and ends when
/// the client is gone.
pub(crate) fn continued(first: Vec<u8>, pieces: Box<dyn Pieces>, watching: Option<Watching>) -> Body {
    Body::new(Rest {
        ready: Some(first.into()),
        pieces: Some(pieces),
        watching,
        making: None,
        missing: None,
        end: Instant::now() + LISTING_TIME_MAX,
    })
}

/// Makes the next piece when it is its turn, in a thread that may wait.
async fn make_elsewhere(pieces: Box<dyn Pieces>, turns: Option<Turns>) -> Result<Made, JoinError> {
    let turn = match turns {
        Some(turns) => Some(turns.again().await),
        None => None,
    };
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        make(pieces)
    });
    made.await
}

/// A body after its first piece was made.
struct Rest {
    ready: Option<Bytes>,
    /// Between pieces; `None` after the last.
    pieces: Option<Box<dyn Pieces>>,
    watching: Option<Watching>,
    making: Option<Making>,
    /// What the body ends with in place of its end.
    missing: Option<Missing>,
    end: Instant,
}

impl hyper::body::Body for Rest {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(bytes) = self.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(pieces) = self.pieces.take() {
            if Instant::now() > self.end {
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            }
            let turns = self.watching.as_ref().map(|watching| watching.turns.clone());
            self.making = Some(Box::pin(make_elsewhere(pieces, turns)));
        }
        let Some(making) = &mut self.making else {
            let missing = self.missing.take();
            return Poll::Ready(missing.map(|missing| Err(io::Error::other(missing.to_string()))));
        };
        let Poll::Ready(made) = making.as_mut().poll(context) else {
            if let Some(watching) = &mut self.watching {
                ready!(watching.poll_gone(context));
                // What makes the piece ends by itself, and then its turn.
                self.making = None;
                return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
            }
            return Poll::Pending;
        };
        self.making = None;
        self.watching.iter_mut().for_each(Watching::made);
        let (pieces, piece) = match made {
            Ok((pieces, Ok(piece))) => (pieces, piece),
            Ok((_, Err(error))) => {
                tracing::warn!(%error, "a listing ended early");
                return Poll::Ready(Some(Err(io::Error::other(error))));
            }
            Err(error) => return Poll::Ready(Some(Err(io::Error::other(error)))),
        };
        let bytes = match piece {
            Piece::Last(bytes) => bytes,
            Piece::LastOfIncomplete(bytes, missing) => {
                tracing::warn!(%missing, "an answer was sent without its end");
                self.missing = Some(missing);
                bytes
            }
            Piece::More(bytes) => {
                self.pieces = Some(pieces);
                bytes
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

/// An answer that was made whole. Until it is sent it is held by its reader.
pub(crate) struct Whole {
    bytes: Vec<u8>,
    sent: usize,
    reader: Reader,
}

impl Whole {
    pub(crate) fn new(bytes: Vec<u8>, reader: Reader) -> Self {
        Whole { bytes, sent: 0, reader }
    }

    /// What is left of an answer that has left.
    pub(crate) fn nothing(reader: Reader) -> Self {
        Self::new(Vec::new(), reader)
    }

    pub(crate) fn missing(&self) -> Option<Missing> {
        self.reader.missing()
    }

    pub(crate) fn body(mut self) -> Body {
        if self.bytes.len() <= PIECE_BYTES {
            return Body::from(self.bytes);
        }
        let first = self.take();
        continued(first, Box::new(self), None)
    }

    fn take(&mut self) -> Vec<u8> {
        let end = self.bytes.len().min(self.sent + PIECE_BYTES);
        let piece = self.bytes.get(self.sent..end).unwrap_or_default().to_vec();
        self.sent = end;
        self.reader.give_back(piece.len() as u64);
        piece
    }
}

impl Pieces for Whole {
    fn next(&mut self) -> holdfast::Result<Piece> {
        let piece = self.take();
        Ok(if self.sent == self.bytes.len() { Piece::Last(piece) } else { Piece::More(piece) })
    }
}
