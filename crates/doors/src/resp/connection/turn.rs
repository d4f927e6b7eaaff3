//! A connection's turn on its event loop: so long its commands are handled and its replies sent, then the others come.
//!
//! A read may bring thousands of commands, and there may always be another read. When the turn is over what is left stays where it is,
//! in `input` or in the socket, until all others that are ready have had theirs: the loop looks at its sockets in between. Each command
//! reads the clock anyway, for the slow log, so that the turn costs nothing.
//!
//! May use: tokio. Must not know: commands.

use std::pin::pin;
use std::task::Context;
use std::time::Instant;

/// What one poll of a connection has done.
#[derive(Default)]
pub(super) struct Turn {
    /// When its time for commands ends, from the first of them on.
    pub(super) ends: Option<Instant>,
    /// Bytes that it has sent.
    pub(super) sent: usize,
    /// There is more to do, when it is its turn again.
    pub(super) is_over: bool,
}

/// Has the task polled again when the event loop has looked at its sockets, behind those that it finds ready.
pub(super) fn give_way(cx: &mut Context<'_>) {
    // Waking the task itself would have it polled sixty times before the loop looks at a socket.
    let _ = std::future::Future::poll(pin!(tokio::task::yield_now()), cx);
}
