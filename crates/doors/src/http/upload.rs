//! The body of one request: bounded in size, in time, and together with all other bodies in memory.
//!
//! Nothing is read before it is asked for, so that a client that sends `Expect: 100-continue` is refused before it has
//! sent anything. What was not read when the answer is ready is either little, and read away so that the connection goes
//! on, or the connection ends with the answer.
//!
//! May use: `failure`, `limits`, hyper, tokio. Must not know: what bodies mean.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use axum::http::{HeaderMap, StatusCode};
use hyper::body::{Body as _, Bytes, Incoming};
use tokio::time::{Instant, timeout_at};

use super::failure::Failure;
use super::limits::Limits;
use crate::budget::{Budget, Exhausted, Share};

/// How much of a body that nobody wants is read so that the connection can go on, and how long that may take.
const DRAIN_BYTES_MAX: usize = 64 << 10;
const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);
/// Space that is made at once for a body whose length was announced: a client may announce what it never sends.
const RESERVED_BYTES_MAX: usize = 64 << 10;

impl From<Exhausted> for Failure {
    fn from(Exhausted: Exhausted) -> Self {
        Failure::unavailable("too many large bodies at a time")
    }
}

/// What bounds every body, for messages.
pub(crate) const SETTINGS: &str = " (http.body_bytes_max, limits.value_bytes_max)";

/// The body of one request.
pub(crate) struct Upload {
    body: Incoming,
    declared: Option<u64>,
    is_chunked: bool,
    expects: bool,
    is_done: bool,
    bytes_max: u64,
    /// Whether what is asked for takes less than the settings allow.
    is_narrowed: bool,
    idle: Duration,
    total: Duration,
    budget: Budget,
    share: Share,
}

impl Upload {
    /// `bytes_max` is the most that is read.
    pub(crate) fn new(body: Incoming, headers: &HeaderMap, bytes_max: u64, limits: &Limits, budget: &Budget) -> Self {
        let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Upload {
            is_done: body.is_end_stream(),
            body,
            declared,
            is_chunked: headers.contains_key(TRANSFER_ENCODING),
            expects: headers.contains_key(EXPECT),
            bytes_max,
            is_narrowed: false,
            idle: limits.body_idle_timeout,
            total: limits.body_timeout,
            budget: budget.clone(),
            share: Share::default(),
        }
    }

    /// # Errors
    /// 413 when the client announces more than is read.
    pub(crate) fn check_declared(&self) -> Result<(), Failure> {
        if self.declared.is_some_and(|bytes| bytes > self.bytes_max) { Err(self.too_large()) } else { Ok(()) }
    }

    /// Reads no more than this.
    ///
    /// # Errors
    /// 413 when the client announces more.
    pub(crate) fn limit(&mut self, bytes_max: u64) -> Result<(), Failure> {
        self.is_narrowed |= bytes_max < self.bytes_max;
        self.bytes_max = self.bytes_max.min(bytes_max);
        self.check_declared()
    }

    /// # Errors
    /// 411 when the client says nothing of a body.
    pub(crate) fn check_present(&self) -> Result<(), Failure> {
        if self.declared.is_some() || self.is_chunked {
            return Ok(());
        }
        Err(Failure::new(StatusCode::LENGTH_REQUIRED, "send a Content-Length (0 for an empty value) or chunks"))
    }

    fn too_large(&self) -> Failure {
        let keys = if self.is_narrowed { "" } else { SETTINGS };
        let text = format!("a body holds at most {} bytes{keys}", self.bytes_max);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    }

    /// The next bytes; `None` at the end. Trailers are skipped.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                None => {
                    self.is_done = true;
                    return Ok(None);
                }
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(_)) => return Err(Failure::bad("the body ended early or is badly framed")),
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// 400 when it is not well-formed or not all there, 408 when it takes too long, 413 when it is too large, 503 when
    /// all bodies together are.
    pub(crate) async fn read(&mut self) -> Result<Vec<u8>, Failure> {
        let end = Instant::now() + self.total;
        let expected = usize::try_from(self.declared.unwrap_or(0)).unwrap_or(0);
        let mut all = Vec::with_capacity(expected.min(RESERVED_BYTES_MAX));
        loop {
            let patience = (Instant::now() + self.idle).min(end);
            let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body took too long");
            let Some(bytes) = timeout_at(patience, self.next()).await.map_err(late)?? else { return Ok(all) };
            if (all.len() + bytes.len()) as u64 > self.bytes_max {
                return Err(self.too_large());
            }
            self.budget.grow(&mut self.share, all.len() + bytes.len())?;
            all.extend_from_slice(&bytes);
        }
    }

    /// The part of the budget that what was read has taken, for whoever keeps that for longer than the request lasts.
    pub(crate) fn take_share(&mut self) -> Share {
        std::mem::take(&mut self.share)
    }

    /// Gives back what was taken: it is kept until the request is over.
    pub(crate) fn give_share(&mut self, share: Share) {
        self.share = share;
    }

    /// Whether the connection can go on after the answer: all of the body was read, or is now.
    pub(crate) async fn finish(&mut self) -> bool {
        if !self.is_done && !self.expects && self.declared.is_none_or(|bytes| bytes <= DRAIN_BYTES_MAX as u64) {
            let drain = async {
                let mut left = DRAIN_BYTES_MAX;
                while let Ok(Some(bytes)) = self.next().await {
                    let Some(less) = left.checked_sub(bytes.len()) else { break };
                    left = less;
                }
            };
            // Over time or not, `is_done` says how it ended.
            let _ = tokio::time::timeout(DRAIN_TIME_MAX, drain).await;
        }
        self.is_done
    }
}
