//! One connection: bytes from its socket through the parser and the handlers, replies back when they may be shown.
//!
//! What happens to a reply:
//!   written by a handler  ->  chunk, with the positions it shows  ->  durable as asked  ->  sent
//! All commands that arrive in one read make one chunk. Chunks leave in order; while one waits for its sync the next
//! commands are already handled. Everything is bounded: too many chunks, or too many unsent bytes, and nothing more is read.
//!
//! All connections that became readable together run before the first of them waits for `written` or asks for a sync (each
//! lets the others go first, once): one `pwrite` and one `fdatasync` then serve all of them.
//!
//! May use: tokio, `wire`, `handle`, `crate::durable`. Must not know: what commands do.

mod blocked;
mod heavy;
mod receive;
mod send;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use holdfast::Position;
use tokio::time::Sleep;

use self::blocked::Blocked;
use self::turn::{Turn, give_way};
use super::ahead;
use super::clients::{Ask, Client};
use super::effort::Effort;
use super::handle;
use super::lingering::Came;
use super::moving::{COMMITS_MIN, Carried, Habit, Moving, Place};
use super::reactor::Reactor;
use super::reply::Reply;
use super::session::{Need, Pending, Session};
use super::stream::Stream;
use super::wire::{Parser, Progress};
use crate::budget::Share;
use crate::durable::State;
use crate::handed::Handed;

/// The name of this door in users' lists of doors.
const DOOR: &str = "resp";
/// Buffers up to this size are kept for the next chunk.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// What a connection may owe its client beside the room that all share: no more than its buffers take anyway.
const FREE_REPLY_BYTES: usize = KEPT_BYTES_MAX;

/// Replies to commands that arrived together.
struct Chunk {
    bytes: Vec<u8>,
    need: Need,
    replies: usize,
    handed: Vec<Handed>,
}

/// One connection.
pub(crate) struct Connection {
    reactor: Rc<Reactor>,
    stream: Stream,
    session: Session,
    parser: Parser,
    reply: Reply,
    /// Bytes that are not handled yet; empty most of the time.
    input: BytesMut,
    /// Whether `input` is the beginning of a command that needs more bytes.
    is_starved: bool,
    chunks: VecDeque<Chunk>,
    chunk_bytes: usize,
    sending: Vec<u8>,
    sent: usize,
    /// Entries of the reply under way, and of what is being sent, that the client does not have yet.
    handing: Vec<Handed>,
    sending_handed: Vec<Handed>,
    blocked: Option<Blocked>,
    /// Since the client seems to be gone while something is done for it.
    leaving: Option<Pin<Box<Sleep>>>,
    /// Whether the first chunk has let the other connections go first.
    has_yielded: bool,
    /// The round of the reactor in which this connection has put itself among the waiting.
    round: u64,
    is_ended: bool,
    is_broken: bool,
    /// Until when, and how many bytes of it, what the client goes on sending is read and let go of, behind the error that ends the
    /// connection.
    farewell: Option<(Pin<Box<Sleep>>, usize)>,
    is_registered: bool,
    stalled_ms: u64,
    turn: Turn,
    /// Of the room for replies.
    owed: Share,
    /// Where in the bytes that are handled the command begins that is to be run in a thread.
    heavy_begins: Option<usize>,
    habit: Habit,
    /// The reactor that is to serve it from when it rests on.
    moves_to: Option<usize>,
    place: Option<Place>,
}

/// The reactor that goes on with a connection; none when it is closed.
type GoesTo = Option<usize>;

impl Connection {
    pub(crate) fn new(reactor: Rc<Reactor>, stream: Stream, client: Arc<Client>) -> Self {
        let door = &reactor.door;
        let mut session = Session::new(client, reactor.counters.clone(), door.durability());
        session.select(0);
        let reply = Reply::new(door.options.limits.output_bytes_max);
        let (parser, input) = (Parser::new(), BytesMut::new());
        let carried = Carried { session, parser, reply, input, is_starved: true, place: None };
        Connection { habit: Habit::default(), ..Self::going_on(reactor, stream, carried) }
    }

    /// One that another reactor has served.
    pub(crate) fn going_on(reactor: Rc<Reactor>, stream: Stream, carried: Carried) -> Self {
        let Carried { mut session, parser, reply, input, is_starved, place } = carried;
        session.counters = reactor.counters.clone();
        Connection {
            reply,
            parser,
            input,
            is_starved,
            habit: Habit::KNOWN,
            moves_to: None,
            place,
            chunks: VecDeque::new(),
            chunk_bytes: 0,
            sending: Vec::new(),
            sent: 0,
            handing: Vec::new(),
            sending_handed: Vec::new(),
            blocked: None,
            leaving: None,
            has_yielded: false,
            round: 0,
            is_ended: false,
            is_broken: false,
            farewell: None,
            is_registered: false,
            stalled_ms: 0,
            turn: Turn::default(),
            owed: Share::default(),
            heavy_begins: None,
            reactor,
            stream,
            session,
        }
    }

    /// Serves the connection until it closes, or is to be served by another reactor.
    pub(crate) async fn run(mut self) -> Option<Moving> {
        let address = self.session.client.address;
        let left = std::future::poll_fn(|cx| self.poll(cx)).await;
        let moving = left.and_then(|to| to.map(|to| self.into_moving(to)).transpose());
        moving.map_err(|error| tracing::debug!(client = %address, %error, "connection ended")).ok().flatten()
    }

    fn into_moving(self, to: usize) -> io::Result<Moving> {
        let Connection { stream, session, parser, reply, input, is_starved, place, .. } = self;
        let carried = Carried { session, parser, reply, input, is_starved, place };
        Ok(Moving { to, stream: stream.into_std()?, carried })
    }

    /// Whether nothing is under way: all that was received is handled and answered, but for the beginning of a command.
    fn rests(&self) -> bool {
        self.blocked.is_none()
            && !self.session.closing
            && !self.is_ended
            && self.unsent_bytes() == 0
            && (self.is_starved || self.input.is_empty())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<GoesTo>> {
        if !self.is_registered {
            self.is_registered = true;
            self.session.client.set_waker(cx.waker());
        }
        self.turn = Turn::default();
        loop {
            match self.session.client.asked() {
                Ask::Nothing => {}
                Ask::Finish => {
                    self.session.closing = true;
                    self.farewell = None;
                }
                Ask::Kill => return Poll::Ready(Ok(None)),
            }
            if self.session.client.is_waiting() && self.poll_gone(cx)? {
                return Poll::Ready(Ok(None));
            }
            if self.blocked.as_ref().is_some_and(Blocked::works) {
                self.poll_leaving(cx);
            }
            let mut is_moving = self.poll_blocked(cx);
            is_moving |= self.push_news();
            is_moving |= self.release(cx);
            is_moving |= self.poll_send(cx)?;
            if self.is_broken {
                return Poll::Ready(Ok(None));
            }
            if self.is_finished() {
                ready!(self.stream.poll_flush(cx))?;
                ready!(self.stream.poll_shutdown(cx))?;
                return self.poll_farewell(cx).map(|()| Ok(None));
            }
            if self.moves_to.is_some() && self.rests() {
                return Poll::Ready(Ok(self.moves_to));
            }
            if self.may_handle() && !self.turn.is_over {
                if !self.is_starved && !self.input.is_empty() {
                    self.handle_input();
                    is_moving = true;
                } else if !self.is_ended {
                    is_moving |= self.poll_receive(cx)?;
                }
            }
            if !is_moving {
                if self.turn.is_over {
                    give_way(cx);
                }
                return Poll::Pending;
            }
        }
    }

    fn is_finished(&self) -> bool {
        (self.session.closing || self.is_ended && (self.is_starved || self.input.is_empty()))
            && self.chunks.is_empty()
            && self.sent == self.sending.len()
            && self.blocked.is_none()
            && self.reply.len() == 0
    }

    /// Whether another command may be handled now.
    fn may_handle(&mut self) -> bool {
        self.blocked.is_none()
            && !self.session.closing
            && self.chunks.len() < self.reactor.door.options.limits.pending_chunks_max
            && self.may_owe_more()
    }

    /// Whether there is room for the reply of another command: a small one always has some.
    fn may_owe_more(&mut self) -> bool {
        let limits = &self.reactor.door.options.limits;
        let unsent = self.unsent_bytes();
        if unsent < FREE_REPLY_BYTES.min(limits.output_pause_bytes) {
            return true;
        }
        // As much at once as it may come to, and one reply more.
        let most = limits.output_pause_bytes + limits.loop_bytes_max;
        unsent < limits.output_pause_bytes && self.reactor.door.replies.grow(&mut self.owed, most).is_ok()
    }

    /// Gives back the room for replies that have been sent.
    fn keep_room(&mut self) {
        let unsent = self.unsent_bytes();
        if unsent <= FREE_REPLY_BYTES {
            self.owed = Share::default();
        } else {
            let limits = &self.reactor.door.options.limits;
            self.owed.shrink(unsent.max(limits.output_pause_bytes + limits.loop_bytes_max));
        }
    }

    fn unsent_bytes(&self) -> usize {
        self.chunk_bytes + self.sending.len() - self.sent + self.reply.len()
    }

    /// Handles the commands in `bytes` and answers how many bytes they took.
    fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        let reactor = self.reactor.clone();
        let door = &reactor.door;
        let limits = &door.options.limits;
        let now_ms = door.store.now_ms();
        self.session.client.set_active(now_ms, bytes.len());
        let began = Instant::now();
        let mut started = began;
        let turn_ends = *self.turn.ends.get_or_insert(started + limits.turn_max);
        let (mut done, mut commands, mut ahead) = (0, 0, 0);
        let last_write = self.session.last_write;
        self.is_starved = false;
        let must_authenticate = door.options.users.is_required();
        let mut wire_limits = door.wire_limits(!must_authenticate || self.session.user.is_some());
        while self.session.pending.is_none() && !self.session.closing && self.may_owe_more() {
            // The first of a read is handled in any case: what was begun goes on.
            if started >= turn_ends && commands > 0 {
                break;
            }
            let input = bytes.get(done..).unwrap_or_default();
            match self.parser.parse(input, &wire_limits) {
                Ok(Progress::Incomplete) => {
                    self.is_starved = true;
                    break;
                }
                Ok(Progress::Skip { consumed }) => done += consumed,
                Ok(Progress::Command { consumed }) => {
                    let args = self.parser.args(input);
                    self.session.effort = Effort::here(limits.loop_bytes_max).with_reply_max(limits.output_bytes_max);
                    handle::command(door, &mut self.session, args, &mut self.reply, now_ms, &mut started);
                    if let Some(Pending::Heavy { .. }) = self.session.pending {
                        self.heavy_begins = Some(done);
                    }
                    done += consumed;
                    commands += 1;
                    if done >= ahead {
                        let behind = bytes.get(done..).unwrap_or_default();
                        ahead =
                            done + ahead::look(&self.session, args, input.get(..consumed).unwrap_or_default(), behind);
                    }
                    if must_authenticate {
                        // RESET may have taken back who the client is.
                        wire_limits = door.wire_limits(self.session.user.is_some());
                    }
                }
                Err(error) => {
                    tracing::debug!(client = %self.session.client.address, %error, "protocol error");
                    self.reply.error(&format!("ERR Protocol error: {error}"));
                    self.session.replies += 1;
                    self.close_behind_error();
                    done = bytes.len();
                }
            }
        }
        self.turn.is_over |= started >= turn_ends;
        self.parser.shrink();
        reactor.lingering.note(if self.session.last_write == last_write { Came::Reads } else { Came::Writes });
        // Each command has read the clock when it was done.
        self.note_habits(commands, started.saturating_duration_since(began));
        if self.reply.take_overflow() {
            // A reply that is too big became an error; only errors themselves can get here, with absurd limits.
            tracing::warn!(client = %self.session.client.address, "replies exceed output_bytes_max; closing the connection");
            self.is_broken = true;
        }
        self.end_chunk();
        self.block();
        done
    }

    /// Looks whether another reactor would serve it better, after so many commands in one read, which took so long.
    fn note_habits(&mut self, commands: usize, took: Duration) {
        // A piece of a command says nothing yet.
        let is_busy = commands > 0 && self.habit.keeps_busy(commands, took);
        let commits = self.session.commits >= COMMITS_MIN;
        if !(is_busy || commits) || self.place.is_some() || !self.stream.may_move() {
            return;
        }
        if commits {
            // When no place is free it looks again after as many more.
            self.session.commits = 0;
            self.place = self.reactor.door.places.take();
        }
        let to = self.place.as_ref().map(|place| place.reactor);
        let to = to.or_else(|| is_busy.then(|| self.reactor.door.next_for_busy()));
        self.moves_to = to.filter(|to| *to != self.reactor.index).or(self.moves_to);
    }

    /// Makes a chunk of what the handlers have written.
    fn end_chunk(&mut self) {
        let need = std::mem::replace(&mut self.session.need, Need::NOTHING);
        let replies = std::mem::take(&mut self.session.replies);
        let handed = std::mem::take(&mut self.handing);
        if self.reply.len() == 0 {
            return;
        }
        let unsent = self.unsent_bytes();
        if unsent > FREE_REPLY_BYTES {
            // What is there is there: it counts for the others, as far as there is room, and this one stops.
            let _ = self.reactor.door.replies.grow(&mut self.owed, unsent);
        }
        if self.chunks.is_empty() && self.sending.is_empty() && handed.is_empty() && self.is_durable(&need) {
            // The common case: nothing to wait for, and the last buffer is used again.
            let spare = std::mem::take(&mut self.sending);
            self.sending = self.reply.take(spare);
            return;
        }
        let bytes = self.reply.take(Vec::new());
        self.chunk_bytes += bytes.len();
        self.chunks.push_back(Chunk { bytes, need, replies, handed });
        let reactor = &self.reactor;
        reactor.written.set(reactor.written.get().max(need.written).max(need.window));
        reactor.synced.set(reactor.synced.get().max(need.synced));
    }

    /// Tells the client of keys that have changed, behind the replies that it is owed. Not while a command is under way, whose reply may show
    /// what they were.
    fn push_news(&mut self) -> bool {
        let may_push = matches!(self.blocked, None | Some(Blocked::Entry(..)))
            && self.chunks.len() < self.reactor.door.options.limits.pending_chunks_max
            && self.unsent_bytes() < self.reactor.door.options.limits.output_pause_bytes;
        let Some(tracked) = self.session.tracked.as_mut().filter(|_| may_push) else { return false };
        if self.session.open.is_none() {
            tracked.forget_uncommitted();
        }
        let Some(news) = tracked.listener.take_news() else { return false };
        news.write(&mut self.reply);
        self.end_chunk();
        true
    }

    fn is_durable(&self, need: &Need) -> bool {
        let syncer = &self.reactor.door.syncer;
        syncer.is_synced(need.synced) && syncer.is_written(need.written) && syncer.is_synced(need.window)
    }

    /// Moves chunks that are durable as asked to the bytes that are sent. Whether one moved.
    fn release(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Some(chunk) = self.chunks.front() {
            let need = chunk.need;
            if !self.is_durable(&need) && !self.has_yielded {
                self.has_yielded = true;
                cx.waker().wake_by_ref();
                return has_moved;
            }
            let failure = match self.wait(&need) {
                State::Waiting => {
                    self.wait_for_sync(cx);
                    return has_moved;
                }
                State::Done => None,
                State::Failed(text) => Some(text),
            };
            if !chunk.handed.is_empty() && self.stream.is_closed_by_peer() {
                // What was taken for this client goes back with the connection.
                self.is_broken = true;
                return has_moved;
            }
            let Some(chunk) = self.chunks.pop_front() else {
                return has_moved;
            };
            self.chunk_bytes -= chunk.bytes.len();
            self.has_yielded = false;
            has_moved = true;
            match failure {
                None => {
                    self.sending_handed.extend(chunk.handed);
                    match self.sending.is_empty() {
                        true => self.sending = chunk.bytes,
                        false => self.sending.extend_from_slice(&chunk.bytes),
                    }
                }
                Some(text) => {
                    // Nothing of this chunk is known to last: each of its replies becomes an error.
                    let mut errors = Reply::new(usize::MAX);
                    (0..chunk.replies).for_each(|_| errors.error(&text));
                    self.sending.extend_from_slice(&errors.take(Vec::new()));
                }
            }
        }
        has_moved
    }

    /// Waits for what costs little, asks for the rest.
    fn wait(&self, need: &Need) -> State {
        let syncer = &self.reactor.door.syncer;
        if need.written > Position::ZERO {
            // For everybody at once: what the others of this turn need is in the same write.
            let state = syncer.wait_written(need.written.max(self.reactor.written.get()));
            if state != State::Done {
                return state;
            }
        }
        if need.window > Position::ZERO {
            let state = syncer.wait_window(need.window, self.reactor.door.options.window);
            if state != State::Done {
                return state;
            }
        }
        if need.synced == Position::ZERO {
            return State::Done;
        }
        if self.reactor.serves_one && !syncer.overlaps_syncs() {
            return syncer.sync_here(need.synced);
        }
        let state = syncer.synced_for(&self.reactor.listener, need.synced);
        if state == State::Waiting {
            syncer.want(need.synced.max(self.reactor.synced.get()));
        }
        state
    }

    /// Has the connection woken after the next sync, once.
    fn wait_for_sync(&mut self, cx: &Context<'_>) {
        if self.round != self.reactor.round.get() {
            self.round = self.reactor.round.get();
            self.reactor.waiting.borrow_mut().push(cx.waker().clone());
        }
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
