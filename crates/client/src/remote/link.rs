//! The connection that all calls of a client share: requests go out in the order in which they came, replies come back in it.
//!
//! One task owns the socket. When it breaks, what only reads is sent again on the next one; what may have changed something
//! is [`ErrorKind::Unknown`], because a server that was killed may have done it or not. What was not sent yet waits for the
//! next connection, as long as its time lasts.
//!
//! May use: `connection`, tokio. Must not know: what is asked.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::{Connection, NoConnection, Target};
use super::wire::Reply;

/// Bytes that are gathered for one write.
const GATHER_BYTES: usize = 256 << 10;
/// What a request takes of the room besides its bytes.
const REQUEST_BYTES: usize = 256;
/// The shortest and the longest pause between two attempts to connect; an eighth of the time that calls have is never exceeded, so
/// that each call sees several.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How often it is looked whether somebody has waited too long, while there is no connection.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);

/// Whether a request may be sent once more when its reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It changes nothing, or changes to the same.
    May,
    /// It may have happened.
    MustNot,
}

/// What is sent, and how many replies that has.
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    pub(crate) replies: usize,
    pub(crate) again: Again,
}

/// A request on its way.
struct Way {
    request: Request,
    /// Until when it may wait for a connection, the first or another.
    until: Instant,
    /// On a connection that broke.
    was_sent: bool,
    got: Vec<Reply>,
    answer: oneshot::Sender<Result<Vec<Reply>>>,
    /// Of those who block while there is no room.
    _room: Option<OwnedSemaphorePermit>,
}

impl Way {
    fn fail(self, kind: ErrorKind, text: impl Into<String>) {
        // Nobody may wait any more.
        let _ = self.answer.send(Err(Error::new(kind, text)));
    }
}

/// The way to the task that owns the connection.
///
/// What was sent and not answered is bounded. What waits to be sent is held by those who await it, in their order; those who
/// block to put more there wait for room first.
pub(crate) struct Link {
    queue: mpsc::UnboundedSender<Way>,
    room: Arc<Semaphore>,
    room_bytes: usize,
    timeout: Duration,
}

/// Where the answer comes.
type Answer = oneshot::Receiver<Result<Vec<Reply>>>;

impl Link {
    /// Starts the task in the runtime that is entered.
    pub(crate) fn start(target: Arc<Target>) -> Self {
        let room_bytes = target.options.queue_bytes_max.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        let (queue, requests) = mpsc::unbounded_channel();
        let timeout = target.options.timeout;
        tokio::spawn(Task::new(target, requests, room_bytes).run());
        Self { queue, room: Arc::new(Semaphore::new(room_bytes)), room_bytes, timeout }
    }

    /// Puts a request into the queue, behind all that are there.
    pub(crate) fn send(&self, request: Request) -> Result<Answer> {
        self.put(request, None)
    }

    /// As [`Link::send`], once there is room.
    pub(crate) async fn send_with_room(&self, request: Request) -> Result<Answer> {
        let permits = u32::try_from(request.cost().min(self.room_bytes)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(permits).await;
        self.put(request, Some(room.map_err(|_| closed())?))
    }

    fn put(&self, request: Request, room: Option<OwnedSemaphorePermit>) -> Result<Answer> {
        let (answer, receiver) = oneshot::channel();
        let until = Instant::now() + self.timeout;
        self.queue
            .send(Way { request, until, was_sent: false, got: Vec::new(), answer, _room: room })
            .map_err(|_| closed())?;
        Ok(receiver)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client is closed")
}

impl Request {
    /// What it takes of the room.
    fn cost(&self) -> usize {
        self.bytes.len() + REQUEST_BYTES
    }
}

struct Task {
    target: Arc<Target>,
    requests: mpsc::UnboundedReceiver<Way>,
    /// Not sent, or to be sent again.
    waiting: VecDeque<Way>,
    /// Sent, and not answered.
    sent: VecDeque<Way>,
    sent_bytes: usize,
    room_bytes: usize,
    /// Whether anything was answered on the last connection.
    has_answered: bool,
}

/// Why a connection is used no more.
enum End {
    /// Nobody asks any more.
    Done,
    Broken(io::Error),
    /// Nothing came for too long while an answer was due.
    Silent,
}

impl Task {
    fn new(target: Arc<Target>, requests: mpsc::UnboundedReceiver<Way>, room_bytes: usize) -> Self {
        let (waiting, sent) = (VecDeque::new(), VecDeque::new());
        Self { target, requests, waiting, sent, sent_bytes: 0, room_bytes, has_answered: false }
    }

    async fn run(mut self) {
        let mut pause = PAUSE.0;
        loop {
            // Nobody is connected to for nothing.
            if self.waiting.is_empty() {
                let Some(way) = self.requests.recv().await else { return };
                self.waiting.push_back(way);
            }
            let Some(connection) = self.connect().await else { continue };
            self.has_answered = false;
            let why = match self.serve(connection).await {
                End::Done => return,
                End::Broken(error) => {
                    let why = error.to_string();
                    self.lose(&why, ErrorKind::Unavailable);
                    why
                }
                End::Silent => {
                    if let Some(first) = self.answered() {
                        let text = format!(
                            "no answer within {:?}; whether it happened is known by reading",
                            self.target.options.timeout
                        );
                        first.fail(ErrorKind::Timeout, text);
                    }
                    let why = "the server did not answer in time".to_owned();
                    self.lose(&why, ErrorKind::Timeout);
                    why
                }
            };
            // What breaks each connection must not do so as fast as it can.
            pause = if self.has_answered { PAUSE.0 } else { self.rest(pause, &why).await };
        }
    }

    /// Connects, however often it takes, for as long as somebody waits for it.
    async fn connect(&mut self) -> Option<Connection> {
        let mut pause = PAUSE.0;
        while !self.waiting.is_empty() {
            let target = Arc::clone(&self.target);
            let mut connecting = std::pin::pin!(async move { target.connect().await });
            let error = loop {
                tokio::select! {
                    connected = &mut connecting => match connected {
                        Ok(connection) => return Some(connection),
                        Err(error) => break error,
                    },
                    () = sleep(LOOK_INTERVAL) => self.look("still connecting"),
                }
            };
            if let NoConnection::Refused(text) = &error {
                self.gather();
                self.waiting.drain(..).for_each(|way| way.fail(ErrorKind::Invalid, text));
                return None;
            }
            pause = self.rest(pause, error.text()).await;
        }
        None
    }

    /// Waits before the next attempt, and returns how long to wait before the one after it.
    async fn rest(&mut self, pause: Duration, why: &str) -> Duration {
        let next = Instant::now() + pause;
        self.look(why);
        while Instant::now() < next && !self.waiting.is_empty() {
            sleep(LOOK_INTERVAL.min(pause)).await;
            self.look(why);
        }
        (pause * 2).min(PAUSE.1).min(self.target.options.timeout / 8)
    }

    fn gather(&mut self) {
        while let Ok(way) = self.requests.try_recv() {
            self.waiting.push_back(way);
        }
    }

    /// Tells those who have waited for a connection too long.
    fn look(&mut self, why: &str) {
        self.gather();
        let now = Instant::now();
        for way in std::mem::take(&mut self.waiting) {
            if way.until <= now {
                let text = if way.was_sent { "the connection broke before the answer came" } else { "it was not sent" };
                way.fail(ErrorKind::Unavailable, format!("{text}: {why}"));
            } else if !way.answer.is_closed() {
                self.waiting.push_back(way);
            }
        }
    }

    /// What becomes of those that were sent on a connection that is gone: `over` is what those are told that may be sent again
    /// and have no time left.
    fn lose(&mut self, why: &str, over: ErrorKind) {
        self.sent_bytes = 0;
        let now = Instant::now();
        for mut way in std::mem::take(&mut self.sent).into_iter().rev() {
            if way.request.again == Again::MustNot {
                let text = format!("the connection broke before the answer came, and it may have happened: {why}");
                way.fail(ErrorKind::Unknown, text);
            } else if way.until <= now {
                way.fail(over, format!("there was no answer, and no time to ask again: {why}"));
            } else {
                way.got.clear();
                way.was_sent = true;
                self.waiting.push_front(way);
            }
        }
    }

    /// Puts requests into `out` while there are any and it has room.
    fn fill(&mut self, out: &mut Vec<u8>) {
        while out.len() < GATHER_BYTES && self.has_room() {
            let next = self.waiting.pop_front().or_else(|| self.requests.try_recv().ok());
            let Some(way) = next else { break };
            self.put(way, out);
        }
    }

    fn put(&mut self, way: Way, out: &mut Vec<u8>) {
        // What nobody waits for any more, and was not sent, does not happen.
        if !way.answer.is_closed() {
            out.extend_from_slice(&way.request.bytes);
            self.sent_bytes += way.request.cost();
            self.sent.push_back(way);
        }
    }

    fn has_room(&self) -> bool {
        self.sent_bytes < self.room_bytes
    }

    /// The first that was sent, which is no more.
    fn answered(&mut self) -> Option<Way> {
        let way = self.sent.pop_front()?;
        self.sent_bytes = self.sent_bytes.saturating_sub(way.request.cost());
        Some(way)
    }

    async fn serve(&mut self, connection: Connection) -> End {
        let Connection { stream, mut input } = connection;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut out, mut written) = (Vec::new(), 0);
        let (mut is_closed, mut needs_flush) = (false, false);
        // Many may be on the way at once, so the time of each begins when those before it are answered.
        let mut heard_at = Instant::now();
        loop {
            if written == out.len() {
                out.clear();
                written = 0;
            }
            if self.sent.is_empty() {
                heard_at = Instant::now();
            }
            self.fill(&mut out);
            if is_closed && self.sent.is_empty() && out.is_empty() {
                return End::Done;
            }
            let until = heard_at + self.target.options.timeout;
            let is_waited_for = !self.sent.is_empty();
            let unwritten = out.get(written..).unwrap_or_default();
            tokio::select! {
                read = input.read(&mut reader) => {
                    heard_at = Instant::now();
                    if let Err(error) = read.and_then(|()| self.answer(&mut input)) {
                        return End::Broken(error);
                    }
                }
                // Beside the reading: a server that has too many answers unsent reads no more until some are taken.
                pushed = push(&mut writer, unwritten), if !unwritten.is_empty() || needs_flush => match pushed {
                    Ok(bytes) => {
                        written += bytes;
                        // TLS keeps records back until it is told that there is no more.
                        needs_flush = bytes > 0;
                    }
                    Err(error) => return self.last_words(&mut reader, &mut input, error).await,
                },
                way = self.requests.recv(), if !is_closed && out.len() < GATHER_BYTES && self.has_room() => match way {
                    Some(way) => {
                        if self.sent.is_empty() {
                            heard_at = Instant::now();
                        }
                        self.put(way, &mut out);
                    }
                    None => is_closed = true,
                },
                () = sleep_until(until), if is_waited_for => return End::Silent,
            }
        }
    }

    /// A server that refuses a request as too large says so and closes: its words explain the failure of the writing.
    async fn last_words(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        input: &mut super::connection::Input,
        error: io::Error,
    ) -> End {
        let listen = async {
            while input.read(reader).await.is_ok() {
                if self.answer(input).is_err() {
                    break;
                }
            }
        };
        // A peer that neither talks nor closes is not waited for.
        let _ = tokio::time::timeout(Duration::from_millis(100), listen).await;
        End::Broken(error)
    }

    /// Hands out the replies that are whole.
    fn answer(&mut self, input: &mut super::connection::Input) -> io::Result<()> {
        while let Some(reply) = input.next()? {
            let Some(first) = self.sent.front_mut() else {
                let text = match reply {
                    Reply::Error(text) => text,
                    _ => "the server answered what nobody had asked".to_owned(),
                };
                return Err(io::Error::other(text));
            };
            self.has_answered = true;
            first.got.push(reply);
            if first.got.len() == first.request.replies
                && let Some(way) = self.answered()
            {
                // Nobody may wait any more.
                let _ = way.answer.send(Ok(way.got));
            }
        }
        Ok(())
    }
}

/// Writes some of it, and flushes when there is nothing: what was written, which is then nothing. It may be dropped at any time.
async fn push(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(bytes).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written),
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
