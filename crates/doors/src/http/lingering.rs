//! A socket that, when it is closed before its peer has said everything, listens on for a moment.
//!
//! Closing a socket with unread bytes makes TCP reset the connection, and the reset overtakes the answer: a client that is
//! refused in the middle of a large body would see an error of the network and not the refusal.
//!
//! May use: tokio. Must not know: HTTP.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long, and how many bytes, a peer is listened to whose words are of no interest any more.
const TIME_MAX: Duration = Duration::from_secs(2);
const BYTES_MAX: usize = 256 << 20;
const BUFFER_BYTES: usize = 16 << 10;

/// A stream whose shutdown first says that nothing more will be said, and then reads until the peer ends, if `unread` is
/// set by then.
pub(crate) struct Lingering<S> {
    stream: S,
    unread: Arc<AtomicBool>,
    is_shut: bool,
    left: usize,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S, unread: Arc<AtomicBool>) -> Self {
        Lingering { stream, unread, is_shut: false, left: BYTES_MAX, waiting: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            this.is_shut = true;
        }
        if !this.unread.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(sleep(TIME_MAX)));
        if waiting.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            let mut to = ReadBuf::new(&mut buffer);
            let read = ready!(Pin::new(&mut this.stream).poll_read(context, &mut to));
            let count = to.filled().len();
            this.left = this.left.saturating_sub(count);
            if read.is_err() || count == 0 || this.left == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_still_speaks_is_heard_out_and_then_let_go() {
        for (unread, heard) in [(true, 100_000), (false, 0)] {
            let (near, mut far) = tokio::io::duplex(1 << 10);
            let mut near = Lingering::new(near, Arc::new(AtomicBool::new(unread)));
            let peer = tokio::spawn(async move {
                let mut end = [0; 1];
                assert_eq!(far.read(&mut end).await.expect("it is shut in order"), 0);
                let mut said = 0;
                while said < 100_000 && far.write_all(&[0; 1_000]).await.is_ok() {
                    said += 1_000;
                }
                said
            });
            near.shutdown().await.expect("shutting down works");
            drop(near);
            let said = peer.await.expect("the peer does not panic");
            assert!(said >= heard && (unread || said < 100_000), "{said} of {heard}");
        }
    }
}
