//! How replies go out: so many bytes in a turn, and never more than the socket takes.
//!
//! May use: what `connection` may. Must not know: commands.

use std::io;
use std::task::{Context, Poll};

use super::{Connection, KEPT_BYTES_MAX};
use crate::handed::Handed;
use crate::resp::counters::add;

impl Connection {
    /// Sends what may be sent. Whether all of it went.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.sending.is_empty() {
            return Ok(false);
        }
        let turn_bytes = self.reactor.door.options.limits.turn_bytes_max;
        while self.sent < self.sending.len() {
            let rest = self.sending.get(self.sent..).unwrap_or_default();
            let rest = rest.get(..turn_bytes.saturating_sub(self.turn.sent)).unwrap_or(rest);
            if rest.is_empty() {
                self.turn.is_over = true;
                return Ok(false);
            }
            match self.stream.poll_write(cx, rest) {
                Poll::Ready(result) => {
                    let written = result?;
                    if written == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    add(&self.session.counters.output_bytes, written as u64);
                    self.sent += written;
                    self.turn.sent += written;
                    if self.stalled_ms != 0 {
                        self.stalled_ms = 0;
                        self.session.client.set_output(self.unsent_bytes(), 0);
                    }
                }
                Poll::Pending => {
                    if self.stalled_ms == 0 {
                        self.stalled_ms = self.reactor.door.store.now_ms();
                    }
                    self.session.client.set_output(self.unsent_bytes(), self.stalled_ms);
                    return Ok(false);
                }
            }
        }
        if let Poll::Ready(result) = self.stream.poll_flush(cx) {
            result?;
        }
        self.sent = 0;
        let mut sent = std::mem::take(&mut self.sending);
        if !self.owed.is_empty() {
            self.keep_room();
        }
        self.sending_handed.drain(..).for_each(Handed::keep);
        if sent.capacity() <= KEPT_BYTES_MAX && self.reply.len() == 0 {
            sent.clear();
            self.reply.take(sent);
        }
        Ok(true)
    }
}
