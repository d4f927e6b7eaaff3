//! How bytes come in: into the reactor's buffer while commands come whole, else into one of the connection's own, for which all
//! connections of the door together have so much room (`crate::budget`).
//!
//! May use: what `connection` may. Must not know: replies.

use std::future::Future;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

use super::{Connection, KEPT_BYTES_MAX};
use crate::budget::Share;
use crate::resp::counters::add;

/// The most read at once into a connection's own buffer, so that it grows with what arrives, not with what is announced.
const READ_BYTES_MAX: usize = 1 << 20;
/// The most that is read ahead while an entry is waited for.
const BLOCKED_INPUT_BYTES: usize = 64 << 10;
/// How long what is done for a client goes on when that has closed its side of the connection.
const LEAVING_TIME: Duration = Duration::from_secs(1);
/// How long what a client goes on sending is read behind the error that ends its connection.
const FAREWELL_TIME: Duration = Duration::from_secs(5);
/// How much of it: a value twice as large as is taken by default. Who sends without an end is cut off.
const FAREWELL_BYTES: usize = 128 << 20;
/// Least room that is made when more is announced than has come.
const READ_BYTES_MIN: usize = 16 << 10;
/// What a connection may hold beside the room that all share: no more than its buffers take anyway.
const FREE_BYTES: usize = 128 << 10;

impl Connection {
    /// Reads once and handles what arrived. Whether anything happened.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let reactor = self.reactor.clone();
        let received = if self.input.is_empty() {
            let mut scratch = reactor.scratch.borrow_mut();
            let mut buf = ReadBuf::new(&mut scratch);
            match self.stream.poll_read(cx, &mut buf) {
                Poll::Pending => return Ok(false),
                Poll::Ready(result) => result?,
            }
            let bytes = buf.filled();
            let handled = self.handle_bytes(bytes);
            self.input.extend_from_slice(bytes.get(handled..).unwrap_or_default());
            if let Some(begins) = self.heavy_begins.take() {
                self.run_heavy(BytesMut::from(bytes.get(begins..handled).unwrap_or_default()));
            }
            bytes.len()
        } else {
            let missing = self.parser.needed().saturating_sub(self.input.len());
            // Doubling at most, so that an announced length costs no memory before its bytes arrive.
            // In proportion to what has come, not to what was announced: announcing costs a client nothing.
            let step = self.input.len().clamp(READ_BYTES_MIN, READ_BYTES_MAX.max(self.input.len()));
            let more = missing.clamp(4 << 10, step);
            let bytes = self.input.len() + more;
            if bytes > FREE_BYTES && reactor.door.inputs.grow(&mut self.session.held, bytes).is_err() {
                self.refuse_input();
                return Ok(true);
            }
            self.input.reserve(more);
            let received = match self.stream.poll_read_more(cx, &mut self.input) {
                Poll::Pending => return Ok(false),
                Poll::Ready(result) => result?,
            };
            self.handle_input();
            received
        };
        add(&self.session.counters.input_bytes, received as u64);
        if received == 0 {
            self.is_ended = true;
        }
        Ok(true)
    }

    /// Reads while an entry is waited for, to notice that the client is gone: then nobody else lacks what it would be given.
    /// A client that sends no more counts as gone, as in Redis.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while !self.is_ended && self.input.len() < BLOCKED_INPUT_BYTES {
            self.input.reserve(READ_BYTES_MIN);
            let Poll::Ready(received) = self.stream.poll_read_more(cx, &mut self.input) else {
                break;
            };
            let received = received?;
            add(&self.session.counters.input_bytes, received as u64);
            self.is_starved = false;
            self.is_ended = received == 0;
        }
        if self.is_ended {
            return Ok(true);
        }
        // Behind what is not read its end is not come to, and nothing tells of it.
        if self.input.len() >= BLOCKED_INPUT_BYTES {
            self.session.client.look_again_soon();
            return Ok(self.stream.is_read_closed(cx));
        }
        Ok(false)
    }

    /// Has what goes through entries for the client end, once it has been gone for a while: who only says that it sends no more, as
    /// `nc -N` does, still gets what takes no longer.
    pub(super) fn poll_leaving(&mut self, cx: &mut Context<'_>) {
        if self.session.client.gone.is_canceled() {
            return;
        }
        // One whose connection is broken is gone too.
        if self.leaving.is_none() && self.poll_gone(cx).unwrap_or(true) {
            self.leaving = Some(Box::pin(tokio::time::sleep(LEAVING_TIME)));
        }
        if self.leaving.as_mut().is_some_and(|leaving| leaving.as_mut().poll(cx).is_ready()) {
            self.session.client.gone.cancel();
        }
    }

    pub(super) fn handle_input(&mut self) {
        let mut input = std::mem::take(&mut self.input);
        let handled = self.handle_bytes(&input);
        match self.heavy_begins.take() {
            None => input.advance(handled),
            Some(begins) => {
                // It has the bytes themselves, which may be many.
                let mut command = input.split_to(handled);
                command.advance(begins);
                self.run_heavy(command);
            }
        }
        if input.is_empty() {
            self.session.held = Share::default();
            if input.capacity() > KEPT_BYTES_MAX {
                input = BytesMut::new();
            }
        }
        self.input = input;
    }

    /// Ends a connection whose command grows while others hold all the room there is: waiting for room could have all of them wait for each
    /// other.
    fn refuse_input(&mut self) {
        tracing::warn!(client = %self.session.client.address, "unfinished commands take all of resp.input_bytes_max; closing the connection");
        self.reply.error("ERR unfinished commands of all clients take all the memory that they may: send this one again later, or raise resp.input_bytes_max");
        self.session.replies += 1;
        self.close_behind_error();
        self.input = BytesMut::new();
        self.session.held = Share::default();
        self.end_chunk();
    }

    /// Ends a connection whose client is told why, and may be sending still.
    pub(super) fn close_behind_error(&mut self) {
        self.session.closing = true;
        self.farewell = Some((Box::pin(tokio::time::sleep(FAREWELL_TIME)), FAREWELL_BYTES));
    }

    /// Reads what the client still sends, and forgets it, until it sends no more or has had its time and bytes: to close a socket with bytes that
    /// nobody has read resets the connection, and the client would lose the error that was sent (RFC 9112, 9.6).
    pub(super) fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((time, left)) = &mut self.farewell else { return Poll::Ready(()) };
        if time.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut scratch = self.reactor.scratch.borrow_mut();
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            match self.stream.poll_read(cx, &mut buf) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buf.filled().is_empty() && buf.filled().len() <= *left => {
                    *left -= buf.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
    }
}
