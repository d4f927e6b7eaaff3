//! One connection: bytes from its socket into the batch of its thread, and the little that is answered.
//!
//! A turn is one read, of a bounded size, whose lines are parsed at once; then the other connections have theirs. What is
//! left of a line that is not all there is kept until its rest comes. A checkpoint holds the connection up, and nobody else.
//!
//! May use: tokio, `batch`, `handle`, `wire`. Must not know: how points are written.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use holdfast::Position;
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

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
                Ask::Kill => return Poll::Ready(Ok(())),
                Ask::Finish if matches!(self.mode, Mode::Reading) => self.mode = Mode::Ending,
                Ask::EndText => {
                    self.source.ask.set(Ask::Nothing);
                    self.end_text();
                }
                Ask::Finish | Ask::Nothing => {}
            }
            self.poll_checkpoint(cx);
            let is_sent = self.poll_send(cx)?;
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
            if ready!(self.poll_receive(cx))? {
                // The others first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Whether so much waits to be sent that nothing more may be read.
    fn is_full(&self) -> bool {
        let is_full = self.source.output.borrow().len() >= self.reactor.door.options.limits.output_bytes_max;
        if is_full && self.source.stalled_ms.get() == 0 {
            self.source.stalled_ms.set(self.reactor.door.store.now_ms());
        }
        is_full
    }

    /// Reads once, and handles what arrived. Whether there was as much as may be read in one turn.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let reactor = Rc::clone(&self.reactor);
        let mut scratch = reactor.scratch.borrow_mut();
        let had = self.rest.len();
        let turn_bytes = reactor.door.options.limits.turn_bytes;
        let (old, new) = scratch.split_at_mut_checked(had).expect("the beginning of a line is no longer than a line");
        let room = new.get_mut(..turn_bytes).expect("there is room for a line and a turn");
        let mut room = ReadBuf::new(room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        let received = room.filled().len();
        self.source.active_ms.set(reactor.door.store.now_ms());
        if received == 0 {
            self.end();
            return Poll::Ready(Ok(false));
        }
        reactor.door.received_bytes.fetch_add(received as u64, Relaxed);
        old.copy_from_slice(&self.rest);
        self.rest.clear();
        self.turn(scratch.get(..had + received).unwrap_or_default());
        Poll::Ready(Ok(received == turn_bytes))
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

    fn complain(&mut self, shape: Shape, line: &[u8], reason: &str) {
        self.lines += 1;
        self.source.errors.set(self.source.errors.get() + 1);
        self.reactor.door.points.malformed.fetch_add(1, Relaxed);
        self.source.complain(&self.reactor.door, &handle::complaint(shape, self.lines, line, reason));
    }

    fn word(&mut self, line: &[u8]) {
        match handle::word(&self.reactor.door, line) {
            Some(Answer::Text(text)) => self.source.output.borrow_mut().extend_from_slice(text.as_bytes()),
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
        self.source.output.borrow_mut().extend_from_slice(line.as_bytes());
        self.mode = Mode::Reading;
    }

    /// Sends what may be sent. Whether nothing is left.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut output = self.source.output.borrow_mut();
        while !output.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &output) {
                Poll::Pending => return Ok(false),
                Poll::Ready(written) => {
                    let written = written?;
                    if written == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    output.drain(..written);
                    self.source.stalled_ms.set(0);
                }
            }
        }
        Ok(true)
    }
}
