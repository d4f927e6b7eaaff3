//! One connection: from an accepted socket to its end.
//!
//! May use: hyper, tokio, rustls. Must not know: what is answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::handle;
use super::lingering::Lingering;
use super::places::{Place, Watched};
use super::shared::Shared;
use super::stalling::Stalling;
use crate::peer::Peer;

/// Counts a connection for as long as it lives, however it ends.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Serves one client until it goes, misbehaves, has to give its place up, or `stop` says that the door closes.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, place: Place, stop: watch::Receiver<bool>) {
    shared.connections.fetch_add(1, Relaxed);
    let _counted = Counted(&shared);
    let peer = Peer::of(&stream);
    let stream = place.watch(stream);
    tokio::select! {
        () = meet(&shared, stream, peer, stop) => {}
        () = place.told_to_leave() => {}
    }
}

async fn meet(shared: &Arc<Shared>, stream: Watched<TcpStream>, peer: Option<Peer>, stop: watch::Receiver<bool>) {
    match &shared.options.tls {
        None => speak(shared, stream, peer, stop).await,
        Some(config) => {
            let accept = TlsAcceptor::from(Arc::clone(config)).accept(stream);
            match timeout(shared.options.limits.handshake_timeout, accept).await {
                Ok(Ok(stream)) => speak(shared, stream, peer, stop).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake took too long"),
            }
        }
    }
}

async fn speak<S>(shared: &Arc<Shared>, stream: S, peer: Option<Peer>, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limits = &shared.options.limits;
    let unread = Arc::new(AtomicBool::new(false));
    let stream = Lingering::new(Stalling::new(stream, limits.stall_timeout), Arc::clone(&unread));
    let answer = service_fn(|mut request: Request<Incoming>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        let answer = handle::answer(Arc::clone(shared), Arc::clone(&unread), request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut talk = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_bytes_max)
            .max_headers(limits.headers_max)
            // A client that has said everything, as `nc` does at the end of its input, still wants its answer.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), answer)
    );
    let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
    let ended = tokio::select! {
        ended = talk.as_mut() => ended,
        () = stopped => {
            talk.as_mut().graceful_shutdown();
            talk.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended badly");
    }
}
