//! A connection's socket, with or without TLS.
//!
//! May use: tokio, rustls. Must not know: what is sent.

use std::future::Future;
use std::io;
use std::net::TcpStream as StdStream;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::peer::Peer;

/// A socket, with or without TLS.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }

    pub(crate) fn poll_read_more(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(stream) => pin!(stream.read_buf(buf)).poll(cx),
            Stream::Tls(stream) => pin!(stream.read_buf(buf)).poll(cx),
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Whether [`Stream::into_std`] gives it away: what TLS has come to cannot be taken along.
    pub(crate) fn may_move(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }

    /// The socket, without the event loop it was served by.
    pub(crate) fn into_std(self) -> io::Result<StdStream> {
        match self {
            Stream::Plain(stream) => stream.into_std(),
            Stream::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether the other side has closed, as the system knows it now: what the runtime knows may be older.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        let stream = match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        };
        Peer::of(stream).is_some_and(|peer| peer.is_gone())
    }

    /// Whether the other side has said that it sends no more, or is gone, as far as the runtime was told: that is known however
    /// much of what it has sent was not read yet.
    pub(crate) fn is_read_closed(&self, cx: &mut Context<'_>) -> bool {
        let stream = match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        };
        let ready = pin!(stream.ready(Interest::READABLE)).poll(cx);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
