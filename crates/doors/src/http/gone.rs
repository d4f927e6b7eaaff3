//! Clients that are gone while something is done for them.
//!
//! May use: `failure`, `peer`, `pages`, `shared`, `turns`, tokio, the facade's `Stop`. Must not know: what is done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast::Store;
use holdfast::space::{Cancel, Stop};

use super::failure::Failure;
use super::handle::Asked;
use super::turns::Turns;
use crate::peer::Peer;

/// How often a request that waits looks whether its client is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long what is done for a client goes on when that has closed its side of the connection.
const LEAVING_TIME: Duration = Duration::from_secs(1);

/// Waits until the client is gone.
pub(crate) async fn gone(peer: Option<&Peer>) {
    let Some(peer) = peer else { return std::future::pending().await };
    while !peer.is_gone() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// The same, and a moment more: who only says that it sends no more is answered what takes no longer.
pub(crate) async fn gone_for_a_while(peer: Option<&Peer>) {
    gone(peer).await;
    tokio::time::sleep(LEAVING_TIME).await;
}

/// What nobody reads.
pub(crate) fn left() -> Failure {
    Failure::unavailable("the client has closed its connection")
}

/// Ends what is done for a request when nobody waits for it any more.
#[derive(Default)]
pub(crate) struct Ends(Cancel);

impl Ends {
    pub(crate) fn cancel(&self) -> Cancel {
        self.0.clone()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// What watches an answer that is made while it is sent.
pub(crate) struct Watching {
    /// Each piece is made in a turn of its own.
    pub(crate) turns: Turns,
    ends: Ends,
    peer: Option<Peer>,
    leaving: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Watching {
    /// Waits until the client has been gone for a while.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let peer = self.peer.clone();
        async move { gone_for_a_while(peer.as_ref()).await }
    }

    /// A piece is being made: whether the client has been gone for a while, and it ends. A client that only sends no more gets every
    /// piece that takes no longer.
    pub(crate) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let gone = self.gone();
        let leaving = self.leaving.get_or_insert_with(|| Box::pin(gone));
        let is_gone = leaving.as_mut().poll(context);
        if is_gone.is_ready() {
            self.ends.0.cancel();
            // The next one begins anew; it is not polled again.
            self.leaving = None;
        }
        is_gone
    }

    /// The piece is made.
    pub(crate) fn made(&mut self) {
        self.leaving = None;
    }
}

impl Asked<'_> {
    /// Has a thread answer a question about points, when it is its turn: it ends when its time is over, and when the client is gone.
    ///
    /// # Errors
    /// 503 when too many are asked at a time, or there is no answer in time.
    pub(crate) async fn question<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Store, Stop) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        Ok(self.long_question(act).await?.0)
    }

    /// The same, when the answer may be made while it is sent: it goes on for as long as what watches it is kept.
    ///
    /// # Errors
    /// As [`Asked::question`].
    pub(crate) async fn long_question<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Store, Stop) -> T + Send + 'static,
    ) -> Result<(T, Watching), Failure> {
        let (stop, watching) = self.watched();
        tokio::select! {
            biased;
            answer = self.shared.query(move |store| act(store, stop)) => Ok((answer?, watching)),
            () = watching.gone() => Err(left()),
        }
    }

    /// When a question ends, and what ends it when it is dropped.
    pub(crate) fn watched(&self) -> (Stop, Watching) {
        let (turns, ends) = (self.shared.turns.clone(), Ends::default());
        let stop = self.shared.series_stop(Some(ends.cancel()));
        (stop, Watching { turns, ends, peer: self.parts.extensions.get::<Peer>().cloned(), leaving: None })
    }

    /// The same, for what changes points: who sends it and goes means it.
    ///
    /// # Errors
    /// As [`Asked::question`].
    pub(crate) async fn change_points<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Store, Stop) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let stop = self.shared.series_stop(None);
        self.shared.query(move |store| act(store, stop)).await
    }
}
