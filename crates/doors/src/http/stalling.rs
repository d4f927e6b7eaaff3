//! A socket that gives up on a peer who takes nothing for too long.
//!
//! `hyper` bounds how long a request's headers take, and nothing bounds how long an answer waits for its reader: that is
//! done here. Reading is passed on unchanged.
//!
//! May use: tokio. Must not know: HTTP.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail with `TimedOut` once none of them moved for `patience`.
pub(crate) struct Stalling<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Stalling<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Stalling { stream, patience, waiting: None }
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = act(Pin::new(&mut self.stream), context) {
            self.waiting = None;
            return Poll::Ready(done);
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch(context, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(context, |stream, context| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Stalling::new(near, Duration::from_millis(150));
        let reader = tokio::spawn(async move {
            let mut taken = [0; 8];
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                tokio::io::AsyncReadExt::read_exact(&mut far, &mut taken).await.expect("there is more");
            }
            far
        });
        near.write_all(&[1; 32]).await.expect("it is slow, not stalled");
        let _far = reader.await.expect("the reader does not panic");
        let error = near.write_all(&[1; 32]).await.expect_err("nobody reads any more");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
