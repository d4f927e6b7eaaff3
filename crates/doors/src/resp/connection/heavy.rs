//! A command that is too much for the event loop (`resp/effort.rs`), begun again in a thread: with the connection's session, and so
//! with its transaction, and with the bytes it came in. The connection waits; what it was begun with comes back with the reply.
//!
//! May use: `handle`, `wire`, `session`, `reply`. Must not know: sockets, what commands do.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::BytesMut;
use holdfast::Position;

use super::Connection;
use super::blocked::Blocked;
use crate::budget::Share;
use crate::resp::counters::{Counters, add};
use crate::resp::door::Door;
use crate::resp::effort::Effort;
use crate::resp::handle;
use crate::resp::reply::Reply;
use crate::resp::session::{Pending, Session};
use crate::resp::wire::{Parser, Progress, WireLimits};

/// Room beside what values take.
const SLACK_BYTES: usize = 64 << 10;

/// A command and what it works with.
pub(super) struct Heavy {
    door: Arc<Door>,
    session: Session,
    reply: Reply,
    command: BytesMut,
    limits: WireLimits,
    /// Of the room for replies.
    share: Share,
}

impl Heavy {
    /// Runs it when there is room for a reply of so many bytes and it is its turn; nothing when it has come to no end. Whoever is not there
    /// any more when its turn comes has it never begun.
    async fn run(self, owed: u64) -> Option<Self> {
        let (mut heavy, mut owed) = (self, usize::try_from(owed).unwrap_or(usize::MAX));
        let limits = heavy.door.options.limits.clone();
        loop {
            // It has nothing while it waits for more, also not what it had come to write.
            heavy.reply = Reply::of_form(heavy.reply.form(), limits.output_bytes_max);
            drop(std::mem::take(&mut heavy.share));
            // What is owed no more than one on the event loop waits for nobody, least of all in a line with those who are.
            let mut effort = Effort::elsewhere(limits.loop_bytes_max as u64);
            if owed > limits.loop_bytes_max {
                let (replies, bytes) = (heavy.door.replies.clone(), owed.saturating_add(SLACK_BYTES));
                heavy.share = replies.wait(bytes).await;
                // What is larger than all the room there is, is made when all of it is there.
                let is_all = replies.is_all(&heavy.share);
                effort = if is_all { Effort::ANY } else { Effort::elsewhere(bytes as u64) };
            }
            heavy.session.effort = effort.with_reply_max(limits.output_bytes_max);
            let turn = heavy.door.heavy_turns.clone().acquire_owned().await.ok()?;
            let run = move || {
                let _turn = turn;
                heavy.run_here().then_some(heavy)
            };
            heavy = tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| {
                tracing::error!(%error, "a command on large values ended without an answer");
                None
            })?;
            match heavy.session.pending.take() {
                // It was known of the first value and not of those behind it. Twice as much each time: the work doubles at most.
                Some(Pending::Heavy { owed: more }) => {
                    let twice = usize::try_from(more).unwrap_or(usize::MAX).saturating_mul(2);
                    owed = twice.min(limits.output_bytes_max);
                }
                pending => {
                    heavy.session.pending = pending;
                    return Some(heavy);
                }
            }
        }
    }

    /// Runs it here. False if it is no command.
    fn run_here(&mut self) -> bool {
        let mut parser = Parser::new();
        let Ok(Progress::Command { .. }) = parser.parse(&self.command, &self.limits) else { return false };
        let args = parser.args(&self.command);
        let now_ms = self.door.store.now_ms();
        handle::command(&self.door, &mut self.session, args, &mut self.reply, now_ms, &mut Instant::now());
        // The event loop would have to write it, with all that is in it. Whether that went well it asks again.
        let need = self.session.need;
        let written = need.written.max(need.window).max(need.synced);
        if written > Position::ZERO {
            let _ = self.door.syncer.wait_written(written);
        }
        true
    }
}

impl Connection {
    /// Has the command in these bytes run in a thread.
    pub(super) fn run_heavy(&mut self, command: BytesMut) {
        let Some(Pending::Heavy { owed }) = self.session.pending.take() else { return };
        let door = self.reactor.door.clone();
        let (client, durability) = (self.session.client.clone(), self.session.durability);
        // It stays behind while the other is away, and is told nothing.
        let stand_in = Session::new(client, self.reactor.counters.clone(), durability);
        let mut session = std::mem::replace(&mut self.session, stand_in);
        // Counters have one writer each, and that is another thread.
        session.counters = Arc::new(Counters::default());
        let reply = Reply::of_form(self.reply.form(), door.options.limits.output_bytes_max);
        let limits = door.wire_limits(!door.options.users.is_required() || session.user.is_some());
        let heavy = Heavy { door, session, reply, command, limits, share: Share::default() };
        self.blocked = Some(Blocked::Heavy(Box::pin(heavy.run(owed))));
    }

    /// Takes back what a command was begun with, and its reply.
    pub(super) fn end_heavy(&mut self, ran: Option<Heavy>) {
        let Some(Heavy { session, mut reply, mut share, .. }) = ran else {
            self.is_broken = true;
            return;
        };
        let ours = self.reactor.counters.clone();
        let counted = [
            (&ours.hits, &session.counters.hits),
            (&ours.misses, &session.counters.misses),
            (&ours.errors, &session.counters.errors),
        ];
        counted.iter().for_each(|(ours, theirs)| add(ours, theirs.load(Relaxed)));
        self.session = session;
        self.session.counters = ours;
        if self.input.is_empty() {
            self.session.held = Default::default();
        }
        if reply.take_overflow() {
            tracing::warn!(client = %self.session.client.address, "replies exceed output_bytes_max; closing the connection");
            self.is_broken = true;
        }
        (self.reply.protocol, self.reply.documents) = (reply.protocol, reply.documents);
        // It was for what was read, of which the reply may be a part.
        share.shrink(reply.len());
        self.owed.merge(share);
        // Not copied where it stands alone, which is nearly always: it may be large.
        let written = reply.take(Vec::new());
        if self.reply.len() == 0 { drop(self.reply.take(written)) } else { self.reply.append(&written) }
    }
}
