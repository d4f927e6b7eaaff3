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

mod receive;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use holdfast::{Backup, Position, Transaction};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::clients::{Ask, Client};
use super::commands::backup::backed_up;
use super::commands::connection::authenticated;
use super::commands::space::wait::Waited;
use super::counters::add;
use super::handle;
use super::lingering::Came;
use super::moving::{Carried, Habit, Moving};
use super::open::{self, Guard};
use super::reactor::Reactor;
use super::reply::Reply;
use super::session::{Hello, Need, Pending, Session};
use super::stream::Stream;
use super::wire::{Parser, Progress};
use super::work::Worked;
use crate::auth::User;
use crate::durable::State;
use crate::failed_logins::FailedLogin;
use crate::handed::Handed;

/// The name of this door in users' lists of doors.
const DOOR: &str = "resp";
/// Buffers up to this size are kept for the next chunk.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Replies to commands that arrived together.
struct Chunk {
    bytes: Vec<u8>,
    need: Need,
    replies: usize,
    handed: Vec<Handed>,
}

/// Whether a reply is not to be sent: CLIENT REPLY.
type IsSilent = bool;

/// What the connection waits for before its next command.
enum Blocked {
    Auth(JoinHandle<Option<Arc<User>>>, Option<Hello>),
    Backup(JoinHandle<holdfast::Result<Backup>>),
    Sync(Position, Option<Pin<Box<Sleep>>>),
    Work(Pin<Box<dyn Future<Output = Worked>>>, IsSilent),
    /// A command of an open transaction waits.
    Within(Pin<Box<dyn Future<Output = (Worked, Option<Transaction>)>>>, Guard, IsSilent),
    /// An entry is looked for, or waited for.
    Entry(Pin<Box<dyn Future<Output = Waited>>>, IsSilent),
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
    /// Whether the first chunk has let the other connections go first.
    has_yielded: bool,
    /// The round of the reactor in which this connection has put itself among the waiting.
    round: u64,
    is_ended: bool,
    is_broken: bool,
    is_registered: bool,
    stalled_ms: u64,
    habit: Habit,
    /// The reactor that is to serve it from when it rests on.
    moves_to: Option<usize>,
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
        let carried = Carried { session, parser, reply, input, is_starved: true };
        Connection { habit: Habit::default(), ..Self::going_on(reactor, stream, carried) }
    }

    /// One that another reactor has served.
    pub(crate) fn going_on(reactor: Rc<Reactor>, stream: Stream, carried: Carried) -> Self {
        let Carried { mut session, parser, reply, input, is_starved } = carried;
        session.counters = reactor.counters.clone();
        Connection {
            reply,
            parser,
            input,
            is_starved,
            habit: Habit::KNOWN,
            moves_to: None,
            chunks: VecDeque::new(),
            chunk_bytes: 0,
            sending: Vec::new(),
            sent: 0,
            handing: Vec::new(),
            sending_handed: Vec::new(),
            blocked: None,
            has_yielded: false,
            round: 0,
            is_ended: false,
            is_broken: false,
            is_registered: false,
            stalled_ms: 0,
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
        let Connection { stream, session, parser, reply, input, is_starved, .. } = self;
        let carried = Carried { session, parser, reply, input, is_starved };
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
        loop {
            match self.session.client.asked() {
                Ask::Nothing => {}
                Ask::Finish => self.session.closing = true,
                Ask::Kill => return Poll::Ready(Ok(None)),
            }
            if self.session.client.is_waiting() && self.poll_gone(cx)? {
                return Poll::Ready(Ok(None));
            }
            let mut is_moving = self.poll_blocked(cx);
            is_moving |= self.release(cx);
            is_moving |= self.poll_send(cx)?;
            if self.is_broken {
                return Poll::Ready(Ok(None));
            }
            if self.is_finished() {
                ready!(self.stream.poll_flush(cx))?;
                return self.stream.poll_shutdown(cx).map_ok(|()| None);
            }
            if self.moves_to.is_some() && self.rests() {
                return Poll::Ready(Ok(self.moves_to));
            }
            if self.may_handle() {
                if !self.is_starved && !self.input.is_empty() {
                    self.handle_input();
                    is_moving = true;
                } else if !self.is_ended {
                    is_moving |= self.poll_receive(cx)?;
                }
            }
            if !is_moving {
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
    fn may_handle(&self) -> bool {
        let limits = &self.reactor.door.options.limits;
        self.blocked.is_none()
            && !self.session.closing
            && self.chunks.len() < limits.pending_chunks_max
            && self.unsent_bytes() < limits.output_pause_bytes
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
        let mut started = Instant::now();
        let (mut done, mut commands) = (0, 0);
        let last_write = self.session.last_write;
        self.is_starved = false;
        let must_authenticate = door.options.users.is_required();
        let mut wire_limits = door.wire_limits(!must_authenticate || self.session.user.is_some());
        while self.session.pending.is_none() && !self.session.closing && self.unsent_bytes() < limits.output_pause_bytes
        {
            let input = bytes.get(done..).unwrap_or_default();
            match self.parser.parse(input, &wire_limits) {
                Ok(Progress::Incomplete) => {
                    self.is_starved = true;
                    break;
                }
                Ok(Progress::Skip { consumed }) => done += consumed,
                Ok(Progress::Command { consumed }) => {
                    let args = self.parser.args(input);
                    handle::command(door, &mut self.session, args, &mut self.reply, now_ms, &mut started);
                    done += consumed;
                    commands += 1;
                    if must_authenticate {
                        // RESET may have taken back who the client is.
                        wire_limits = door.wire_limits(self.session.user.is_some());
                    }
                }
                Err(error) => {
                    tracing::debug!(client = %self.session.client.address, %error, "protocol error");
                    self.reply.error(&format!("ERR Protocol error: {error}"));
                    self.session.replies += 1;
                    self.session.closing = true;
                    done = bytes.len();
                }
            }
        }
        self.parser.shrink();
        reactor.lingering.note(if self.session.last_write == last_write { Came::Reads } else { Came::Writes });
        if self.habit.pipelines(commands) && self.stream.may_move() {
            self.moves_to = Some(door.next_for_pipelines()).filter(|to| *to != reactor.index);
        }
        if self.reply.take_overflow() {
            // A reply that is too big became an error; only errors themselves can get here, with absurd limits.
            tracing::warn!(client = %self.session.client.address, "replies exceed output_bytes_max; closing the connection");
            self.is_broken = true;
        }
        self.end_chunk();
        self.block();
        done
    }

    /// Makes a chunk of what the handlers have written.
    fn end_chunk(&mut self) {
        let need = std::mem::replace(&mut self.session.need, Need::NOTHING);
        let replies = std::mem::take(&mut self.session.replies);
        let handed = std::mem::take(&mut self.handing);
        if self.reply.len() == 0 {
            return;
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

    /// Sends what may be sent. Whether all of it went.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.sending.is_empty() {
            return Ok(false);
        }
        while self.sent < self.sending.len() {
            let rest = self.sending.get(self.sent..).unwrap_or_default();
            match self.stream.poll_write(cx, rest) {
                Poll::Ready(result) => {
                    let written = result?;
                    if written == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    add(&self.session.counters.output_bytes, written as u64);
                    self.sent += written;
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
        self.sending_handed.drain(..).for_each(Handed::keep);
        let mut spare = std::mem::take(&mut self.sending);
        if spare.capacity() <= KEPT_BYTES_MAX && self.reply.len() == 0 {
            spare.clear();
            self.reply.take(spare);
        }
        Ok(true)
    }

    /// Starts to wait for what the last command asked for.
    fn block(&mut self) {
        self.blocked = match self.session.pending.take() {
            None => return,
            Some(Pending::Auth { name, password, hello }) => {
                let users = self.reactor.door.options.users.clone();
                let address = Some(self.session.client.address);
                let verify = move || {
                    let user = users.verify(&name, &password).filter(|user| user.may_enter(DOOR));
                    if user.is_none() {
                        users.tell_failed(FailedLogin { door: DOOR, name: &name, address });
                    }
                    user
                };
                Some(Blocked::Auth(tokio::task::spawn_blocking(verify), hello))
            }
            Some(Pending::Backup { dir }) => {
                let store = self.reactor.door.store.clone();
                Some(Blocked::Backup(tokio::task::spawn_blocking(move || store.backup(dir))))
            }
            Some(Pending::Work(work)) => {
                let is_silent = work.is_silent;
                let turns = self.reactor.door.turns_of(&work);
                Some(Blocked::Work(Box::pin(work.run_elsewhere(turns)), is_silent))
            }
            Some(Pending::Script(later)) => {
                let door = self.reactor.door.clone();
                let (turns, work) = (door.scripts.turns(), later.work(door));
                let is_silent = work.is_silent;
                Some(Blocked::Work(Box::pin(work.run_elsewhere(turns)), is_silent))
            }
            Some(Pending::Within(waiting)) => {
                let (is_silent, guard) = (waiting.is_silent, waiting.guard());
                let door = self.reactor.door.clone();
                self.session.client.set_waiting(true);
                Some(Blocked::Within(Box::pin(waiting.run(door)), guard, is_silent))
            }
            Some(Pending::Feed(follow)) => {
                let is_silent = follow.is_silent;
                Some(Blocked::Work(Box::pin(follow.run()), is_silent))
            }
            Some(Pending::Listen(listening)) => {
                let is_silent = listening.is_silent;
                Some(Blocked::Work(Box::pin(listening.run()), is_silent))
            }
            Some(Pending::Entry(wait)) => {
                let is_silent = wait.is_silent;
                self.session.client.set_waiting(wait.block.is_some());
                Some(Blocked::Entry(Box::pin(wait.run()), is_silent))
            }
            Some(Pending::Sync { position, timeout }) => {
                Some(Blocked::Sync(position, timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)))))
            }
        };
    }

    /// Ends the waiting if its reason is gone, and writes the reply. Whether it ended.
    fn poll_blocked(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.blocked {
            None => return false,
            Some(Blocked::Auth(verify, hello)) => {
                let Poll::Ready(user) = Pin::new(verify).poll(cx) else {
                    return false;
                };
                authenticated(&mut self.session, user.ok().flatten(), hello.take(), &mut self.reply);
            }
            Some(Blocked::Backup(making)) => {
                let Poll::Ready(done) = Pin::new(making).poll(cx) else {
                    return false;
                };
                backed_up(&mut self.session, done.ok(), &mut self.reply);
            }
            Some(Blocked::Work(working, is_silent)) => {
                let Poll::Ready(worked) = working.as_mut().poll(cx) else {
                    return false;
                };
                handle::worked(&mut self.session, worked, *is_silent, &mut self.reply);
            }
            Some(Blocked::Within(waiting, guard, is_silent)) => {
                if self.session.client.asked() != Ask::Nothing {
                    guard.end();
                }
                let Poll::Ready((worked, transaction)) = waiting.as_mut().poll(cx) else {
                    return false;
                };
                self.session.client.set_waiting(false);
                let worked = open::back(&self.reactor.door, &mut self.session, transaction, worked);
                handle::worked(&mut self.session, worked, *is_silent, &mut self.reply);
            }
            Some(Blocked::Entry(waiting, is_silent)) => {
                let Poll::Ready(waited) = waiting.as_mut().poll(cx) else {
                    return false;
                };
                self.session.client.set_waiting(false);
                self.handing = handle::waited(&mut self.session, waited, *is_silent, &mut self.reply);
            }
            Some(Blocked::Sync(position, timeout)) => {
                let position = *position;
                let state = self.reactor.door.syncer.synced_for(&self.reactor.listener, position);
                let is_late = timeout.as_mut().is_some_and(|timeout| timeout.as_mut().poll(cx).is_ready());
                match state {
                    State::Waiting if !is_late => {
                        self.wait_for_sync(cx);
                        return false;
                    }
                    State::Failed(text) => self.reply.error(&text),
                    state => {
                        self.reply.array(2);
                        self.reply.integer(i64::from(state == State::Done));
                        self.reply.integer(0);
                    }
                }
                self.session.replies += 1;
            }
        }
        self.blocked = None;
        self.end_chunk();
        true
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
