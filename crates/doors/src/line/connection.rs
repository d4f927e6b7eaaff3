//! One connection: bytes from its socket into the batch of its thread, and the little that is answered.
//!
//! A turn is one read, of a bounded size, whose lines are parsed at once; then the other connections have theirs. What is
//! left of a line that is not all there is kept until its rest comes. A checkpoint holds the connection up, and nobody else.
//!
//! What a client asked is answered at once. What it did wrong is told when it pauses, asks or ends: a client that does not read
//! and closes while something lies in its socket resets the connection, and its system then throws away the lines it has not sent.
//!
//! May use: tokio, `batch`, `handle`, `wire`. Must not know: how points are written.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use holdfast::Position;
use memchr::memchr;
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::batch::{Ask, Reactor, Source};
use super::handle::{self, Answer};
use super::wire::{After, Shape, Step};
use crate::durable::State;

/// One connection.
pub(crate) struct Connection {
    reactor: Rc<Reactor>,
    stream: TcpStream,
    source: Rc<Source>,
    /// Bytes that were read and are not done with.
    rest: Vec<u8>,
    /// Whether they are the beginning of a line.
    is_starved: bool,
    /// Whether what comes is the rest of a line that was too long.
    is_skipping: bool,
    /// Lines that are done with.
    lines: u64,
    mode: Mode,
    is_registered: bool,
    /// Whether what is to be said does not reach the client any more.
    is_mute: bool,
    /// When something came last.
    heard: Instant,
    /// Ends when nothing has come for long enough; made for the first complaint.
    silence: Option<Pin<Box<Sleep>>>,
}

/// What the connection does.
enum Mode {
    Reading,
    /// A checkpoint waits for its position; the round of the reactor in which it has put itself among the waiting.
    Waiting(Position, u64),
    /// What there is to be said is sent, and then it ends.
    Ending,
}

impl Connection {
    pub(crate) fn new(reactor: Rc<Reactor>, stream: TcpStream, source: Rc<Source>) -> Self {
        Connection {
            reactor,
            stream,
            source,
            rest: Vec::new(),
            is_starved: true,
            is_skipping: false,
            lines: 0,
            mode: Mode::Reading,
            is_registered: false,
            is_mute: false,
            heard: Instant::now(),
            silence: None,
        }
    }

    /// Serves the connection until it closes.
    pub(crate) async fn run(mut self) {
        if let Err(error) = std::future::poll_fn(|cx| self.poll(cx)).await {
            tracing::debug!(%error, "a line connection ended");
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_registered {
            self.is_registered = true;
            *self.source.waker.borrow_mut() = Some(cx.waker().clone());
        }
        loop {
            match self.source.ask.get() {
                Ask::Kill => {
                    self.is_mute = true;
                    let rest = std::mem::take(&mut self.rest);
                    self.turn(&rest);
                    self.end_text();
                    return Poll::Ready(Ok(()));
                }
                Ask::Finish if matches!(self.mode, Mode::Reading) => self.mode = Mode::Ending,
                Ask::EndText => {
                    self.source.ask.set(Ask::Nothing);
                    self.end_text();
                }
                Ask::Finish | Ask::Nothing => {}
            }
            self.poll_checkpoint(cx);
            if matches!(self.mode, Mode::Ending) {
                self.source.tell_complaints();
            }
            let is_sent = self.poll_send(cx);
            match self.mode {
                Mode::Ending if is_sent => return Pin::new(&mut self.stream).poll_shutdown(cx),
                Mode::Ending | Mode::Waiting(..) => return Poll::Pending,
                Mode::Reading => {}
            }
            if self.is_full() {
                return Poll::Pending;
            }
            if !self.is_starved {
                let rest = std::mem::take(&mut self.rest);
                self.turn(&rest);
                continue;
            }
            match self.poll_receive(cx) {
                Poll::Ready(true) => {
                    // The others first.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(false) => {}
                Poll::Pending if self.poll_silence(cx) => self.source.tell_complaints(),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether there are complaints, and the client has paused for long enough to be told.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.source.has_complaints() {
            return false;
        }
        let due = self.heard + self.reactor.door.options.limits.complaint_delay;
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if silence.deadline() != due {
            silence.as_mut().reset(due);
        }
        // When the thread was busy, what came meanwhile may not have been noticed yet; it will be.
        silence.as_mut().poll(cx).is_ready() && !self.has_unread()
    }

    /// Whether the system has something that was not read.
    fn has_unread(&self) -> bool {
        recv(self.stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT).is_ok()
    }

    /// Whether so much waits to be sent that nothing more may be read.
    fn is_full(&self) -> bool {
        if self.is_mute {
            self.source.output.borrow_mut().clear();
        }
        let is_full = self.source.output.borrow().len() >= self.reactor.door.options.limits.output_bytes_max;
        if is_full && self.source.stalled_ms.get() == 0 {
            self.source.stalled_ms.set(self.reactor.door.store.now_ms());
        }
        is_full
    }

    /// Reads once, and handles what arrived. Whether there was as much as may be read in one turn.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let reactor = Rc::clone(&self.reactor);
        let mut scratch = reactor.scratch.borrow_mut();
        let had = self.rest.len();
        let turn_bytes = reactor.door.options.limits.turn_bytes;
        let (old, new) = scratch.split_at_mut_checked(had).expect("the beginning of a line is no longer than a line");
        let room = new.get_mut(..turn_bytes).expect("there is room for a line and a turn");
        let mut room = ReadBuf::new(room);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room));
        if let Err(error) = &read {
            tracing::debug!(%error, "a line connection broke off");
            self.is_mute = true;
        }
        let received = room.filled().len();
        self.heard = Instant::now();
        self.source.active_ms.set(reactor.door.store.now_ms());
        if received == 0 {
            self.end();
            return Poll::Ready(false);
        }
        reactor.door.received_bytes.fetch_add(received as u64, Relaxed);
        old.copy_from_slice(&self.rest);
        self.rest.clear();
        self.turn(scratch.get(..had + received).unwrap_or_default());
        Poll::Ready(received == turn_bytes)
    }

    /// The client sends no more. Half a line is not taken: its other half may be lost, and `12` is another value than `123`.
    fn end(&mut self) {
        while self.end_text() {}
        if !self.rest.is_empty() {
            let line = std::mem::take(&mut self.rest);
            self.complain(Shape::Influx, &line, "the connection was closed within the line: end each with a line end");
        }
        self.mode = Mode::Ending;
    }

    /// Takes the lines that a text holds back which was opened and not ended, without the line that opened it. Whether there were any.
    fn end_text(&mut self) -> bool {
        if !self.is_open() || !matches!(self.mode, Mode::Reading) {
            return false;
        }
        let text = std::mem::take(&mut self.rest);
        // What another text holds back has its own time.
        self.source.open_ms.set(0);
        let behind = self.too_long(&text);
        self.turn(behind);
        true
    }

    /// Whether what was read holds a whole line, and a text that goes over its end.
    fn is_open(&self) -> bool {
        self.is_starved && memchr(b'\n', &self.rest).is_some()
    }

    /// Handles lines, and keeps what is left.
    fn turn(&mut self, text: &[u8]) {
        let mut rest = text;
        self.is_starved = false;
        while matches!(self.mode, Mode::Reading) && !self.is_full() {
            if self.is_skipping {
                let Some(end) = memchr(b'\n', rest) else {
                    rest = &[];
                    self.is_starved = true;
                    break;
                };
                self.is_skipping = false;
                rest = rest.get(end + 1..).unwrap_or_default();
            }
            let gathered = self.reactor.gather(&self.source, rest, After::More);
            rest = rest.get(gathered.bytes..).unwrap_or_default();
            self.lines += gathered.lines as u64;
            match gathered.next {
                None => {
                    self.is_starved = true;
                    break;
                }
                Some(Step::Points { .. }) => {}
                Some(Step::Incomplete) if rest.len() <= self.reactor.door.options.limits.line_bytes_max => {
                    self.is_starved = true;
                    break;
                }
                Some(Step::Incomplete) => rest = self.too_long(rest),
                // What follows are its headers and its body, and no lines.
                Some(Step::Bad { line, .. } | Step::Word { line, .. }) if self.lines == 0 && handle::is_http(line) => {
                    self.refuse_http();
                    rest = &[];
                }
                Some(Step::Bad { bytes, line, shape, reason }) => {
                    self.complain(shape, line, &reason);
                    rest = rest.get(bytes..).unwrap_or_default();
                }
                Some(Step::Word { bytes, line }) => {
                    self.lines += 1;
                    self.word(line);
                    rest = rest.get(bytes..).unwrap_or_default();
                }
            }
        }
        self.rest.extend_from_slice(rest);
        self.is_starved |= self.rest.is_empty();
        if !self.is_open() {
            self.source.open_ms.set(0);
        } else if self.source.open_ms.get() == 0 {
            self.source.open_ms.set(self.reactor.door.store.now_ms().max(1));
        }
    }

    /// Leaves out a line of which so much came that it is too long. What follows it.
    fn too_long<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let end = memchr(b'\n', text);
        let line = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
        let line_bytes_max = self.reactor.door.options.limits.line_bytes_max;
        let reason = match end {
            // It ends, and is not complete: a text was opened.
            Some(_) => "unbalanced quotes: a text begins and ends with \"".to_owned(),
            None => format!("the line is longer than {line_bytes_max} bytes: it was skipped"),
        };
        self.complain(Shape::Influx, line, &reason);
        self.is_skipping = end.is_none();
        end.and_then(|end| text.get(end + 1..)).unwrap_or_default()
    }

    fn refuse_http(&mut self) {
        self.lines += 1;
        self.source.errors.set(self.source.errors.get() + 1);
        self.reactor.door.points.malformed.fetch_add(1, Relaxed);
        self.source.answer(&handle::answer_http());
        self.mode = Mode::Ending;
    }

    fn complain(&mut self, shape: Shape, line: &[u8], reason: &str) {
        self.lines += 1;
        self.source.errors.set(self.source.errors.get() + 1);
        self.reactor.door.points.malformed.fetch_add(1, Relaxed);
        self.source.complain(&self.reactor.door, &handle::complaint(shape, self.lines, line, reason));
    }

    fn word(&mut self, line: &[u8]) {
        match handle::word(&self.reactor.door, line) {
            Some(Answer::Text(text)) => self.source.answer(&text),
            Some(Answer::Exit) => self.mode = Mode::Ending,
            Some(Answer::Checkpoint) => {
                let position = self.reactor.checkpoint(&self.source);
                self.mode = Mode::Waiting(position, 0);
            }
            None => {
                self.source.errors.set(self.source.errors.get() + 1);
                self.reactor.door.points.malformed.fetch_add(1, Relaxed);
                self.source.complain(&self.reactor.door, &handle::unknown(self.lines, line));
            }
        }
    }

    /// Answers a checkpoint when its time has come.
    fn poll_checkpoint(&mut self, cx: &Context<'_>) {
        let Mode::Waiting(position, round) = &mut self.mode else { return };
        let failed = match self.reactor.synced(*position, round, cx.waker()) {
            State::Waiting => return,
            State::Done => self.source.failed.take(),
            State::Failed(reason) => Some(reason),
        };
        let (position, lines, errors) = (position.get(), self.lines, self.source.errors.get());
        let line = match failed {
            None => format!("checkpoint {position:016x} lines {lines} errors {errors}\n"),
            Some(reason) => format!("checkpoint failed lines {lines} errors {errors}: {reason}\n"),
        };
        self.source.answer(&line);
        self.mode = Mode::Reading;
    }

    /// Sends what may be sent. Whether nothing is left. A client that takes nothing any more may have sent lines before: they are
    /// read to their end.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut output = self.source.output.borrow_mut();
        while !output.is_empty() && !self.is_mute {
            match Pin::new(&mut self.stream).poll_write(cx, &output) {
                Poll::Pending => return false,
                Poll::Ready(Ok(written)) if written > 0 => {
                    output.drain(..written);
                    self.source.stalled_ms.set(0);
                }
                Poll::Ready(written) => {
                    tracing::debug!(?written, "a line connection takes no answers");
                    self.is_mute = true;
                    self.source.stalled_ms.set(0);
                }
            }
        }
        if self.is_mute {
            output.clear();
        }
        true
    }
}
