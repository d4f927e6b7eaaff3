//! One connection that all threads of the process share.
//!
//! A request is put into a buffer and its caller into a queue. Who finds nobody writing writes the buffer, and goes on
//! while others have filled it again: so the requests of concurrent callers leave in one write, without a thread of their
//! own. In the same way who finds nobody reading reads, for all, until its own reply is there, and has another go on: a
//! caller that is alone is woken by its reply itself, not by a thread that was. Replies come in the order of requests, so
//! the first in the queue gets the first reply.
//!
//! A *lazy* request has no caller. It leaves with the next write of somebody else or when [`Pipe::flush`] is called, and
//! again after a broken connection, until it is answered. Between calls nobody reads: what has come meanwhile, be it the end
//! of the connection, is read before the next request is sent.
//!
//! May use: `socket`, `slot`, `wire`, `tls`. Must not know: what requests mean.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::slot::{Broken, Slot, Waited};
use super::socket::Socket;
use super::wire::{self, Reply};
use crate::tls::explained;

/// Most lazy requests without an answer; more are dropped, and counted.
const LAZY_MAX: usize = 100_000;
/// So many callers that wait at the same time are a crowd: to put each to sleep and to wake it costs more than the rest of its call,
/// so they stay awake and give way to each other. Fewer would keep processors from sleeping.
const CROWD: usize = 12;
/// How long one of a crowd waits before it sleeps all the same.
const AWAKE: Duration = Duration::from_millis(1);
/// After a failed attempt to connect callers are refused at once for so long, instead of each trying for itself.
const REFUSAL: Duration = Duration::from_millis(100);
/// How often who reads looks whether its time is over: at least so often, and at most.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(10);

/// Where a server is and how one gets in.
#[derive(Clone)]
pub(crate) struct Target {
    /// `host:port`, tried in order.
    pub(crate) servers: Vec<String>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// User and password.
    pub(crate) login: Option<(String, String)>,
    /// How long each step of connecting may take, and each reply.
    pub(crate) patience: Duration,
}

/// The connection. It is made when it is first needed, and again after it broke.
pub(crate) struct Pipe(Shared);

/// A connection while it lasts.
struct Link {
    socket: Socket,
    /// What is no whole reply yet. Who holds the lock reads, for all.
    arrived: Mutex<Vec<u8>>,
}

struct Shared {
    target: Target,
    state: Mutex<State>,
    /// An attempt to connect has ended.
    attempted: Condvar,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    connecting: bool,
    refused: Option<(Instant, String)>,
    /// Encoded requests that nobody writes yet.
    out: Vec<u8>,
    writing: bool,
    /// Who waits for a reply, in the order of requests.
    waiting: VecDeque<Waiting>,
    lazy: VecDeque<Vec<u8>>,
    dropped: u64,
}

enum Waiting {
    Caller(Arc<Slot>),
    Lazy(Vec<u8>),
}

impl State {
    /// Who waits for the next reply that somebody waits for.
    fn first_caller(&self) -> Option<&Arc<Slot>> {
        self.waiting.iter().find_map(|waiting| match waiting {
            Waiting::Caller(slot) => Some(slot),
            Waiting::Lazy(_) => None,
        })
    }

    /// Whether `link` is the connection still.
    fn goes_over(&self, link: &Link) -> bool {
        self.link.as_deref().is_some_and(|current| std::ptr::eq(current, link))
    }
}

impl Pipe {
    pub(crate) fn new(target: Target) -> Self {
        let state = Mutex::new(State::default());
        Self(Shared { target, state, attempted: Condvar::new() })
    }

    /// Sends a request and waits for its reply, for `patience` beyond the usual.
    pub(crate) fn call(&self, words: &[&str], patience: Duration) -> Result<Reply, Broken> {
        let mut request = Vec::with_capacity(256);
        wire::request(&mut request, words);
        let slot = Slot::here();
        let patience = self.0.target.patience.saturating_add(patience);
        let state = self.0.connected().map_err(|text| Broken { sent: false, text })?;
        let awake = if state.waiting.len() < CROWD { Duration::ZERO } else { AWAKE };
        let link = self.0.send(state, &request, Arc::clone(&slot));
        let start = Instant::now();
        loop {
            if let Some(arrived) = link.begin_reading() {
                self.0.read_for(&link, arrived, &slot, || start.elapsed() >= patience);
            }
            match slot.wait(awake, patience.saturating_sub(start.elapsed())) {
                Waited::Reply(reply) => return reply,
                Waited::ToRead => {}
                Waited::InVain => break,
            }
        }
        let text = format!("the server did not answer within {patience:?}");
        self.0.broke(&link, &text);
        // The slot was filled by that, or just before.
        match slot.wait(Duration::ZERO, Duration::ZERO) {
            Waited::Reply(reply) => reply,
            Waited::ToRead | Waited::InVain => Err(Broken { sent: true, text }),
        }
    }

    /// Leaves a request to be sent with others.
    pub(crate) fn call_lazily(&self, words: &[&str]) {
        let mut request = Vec::with_capacity(128);
        wire::request(&mut request, words);
        let mut state = self.0.lock();
        if state.lazy.len() < LAZY_MAX {
            state.lazy.push_back(request);
        } else {
            state.dropped += 1;
        }
    }

    /// Sends what was left; true when something was. Connects if need be, and hears what became of what was sent before.
    pub(crate) fn flush(&self) -> bool {
        let state = self.0.lock();
        if state.lazy.is_empty() && state.waiting.is_empty() {
            return false;
        }
        drop(state);
        let Ok(state) = self.0.connected() else { return true };
        let is_left = !state.lazy.is_empty();
        self.0.write(state);
        is_left
    }

    /// Lazy requests that were dropped, because too many had no answer.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(link) = self.0.lock().link.take() {
            link.socket.close();
        }
    }
}

impl Link {
    /// The right to read, unless somebody has it.
    fn begin_reading(&self) -> Option<MutexGuard<'_, Vec<u8>>> {
        match self.arrived.try_lock() {
            Ok(arrived) => Some(arrived),
            // Who reads changes it by whole steps.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reads what there is, or waits for it for some time. What it gives is told to callers.
    fn read(&self, arrived: &mut Vec<u8>) -> Result<(), String> {
        match self.socket.read_into(arrived) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the coordinator closed the connection".to_owned()),
            // The time was over, or a signal came to the caller's thread.
            Err(error) if is_for_now(&error) => Ok(()),
            Err(error) => Err(format!("the connection to the coordinator broke: {error}")),
        }
    }
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything may panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, with a connection; or why there is none.
    fn connected(&self) -> Result<MutexGuard<'_, State>, String> {
        let mut state = self.lock();
        loop {
            if let Some(link) = state.link.clone() {
                if state.first_caller().is_some() {
                    // Somebody reads, or is about to; the right to read must not be found taken then.
                    return Ok(state);
                }
                let arrived = link.begin_reading().filter(|_| link.socket.is_readable());
                let Some(mut arrived) = arrived else { return Ok(state) };
                drop(state);
                self.read_once(&link, &mut arrived);
                self.end_reading(arrived);
                state = self.lock();
                continue;
            }
            if !state.connecting {
                break;
            }
            state = self.attempted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some((when, text)) = &state.refused
            && when.elapsed() < REFUSAL
        {
            return Err(text.clone());
        }
        state.connecting = true;
        drop(state);
        let attempt = self.connect();
        let mut state = self.lock();
        state.connecting = false;
        self.attempted.notify_all();
        match attempt {
            Ok(link) => {
                state.refused = None;
                state.link = Some(Arc::new(link));
                Ok(state)
            }
            Err(text) => {
                state.refused = Some((Instant::now(), text.clone()));
                Err(text)
            }
        }
    }

    fn connect(&self) -> Result<Link, String> {
        let mut refusals = Vec::new();
        for server in &self.target.servers {
            match self.connect_to(server) {
                Ok(link) => return Ok(link),
                Err(text) => refusals.push(format!("cannot reach the coordinator at {server}: {text}")),
            }
        }
        Err(refusals.join("; "))
    }

    fn connect_to(&self, server: &str) -> Result<Link, String> {
        let Target { tls, login, patience, .. } = &self.target;
        let text = |error: io::Error| match explained(&error) {
            Some(text) => text,
            // In the words of the system a resource is unavailable.
            None if is_for_now(&error) => format!("it did not answer within {patience:?}"),
            None if tls.is_some() && error.kind() == io::ErrorKind::UnexpectedEof => {
                "it closed the connection before TLS was agreed on: it may have no TLS at this port".to_owned()
            }
            None => error.to_string(),
        };
        let socket = Socket::connect(server, tls.as_ref(), *patience).map_err(text)?;
        let mut hello = Vec::new();
        match login {
            Some((user, password)) => wire::request(&mut hello, &["HELLO", "3", "AUTH", user, password]),
            None => wire::request(&mut hello, &["HELLO", "3"]),
        }
        socket.set_read_timeout(Some(*patience)).map_err(text)?;
        socket.write_all(&hello).map_err(text)?;
        let mut arrived = Vec::new();
        let greeting = loop {
            match socket.read_into(&mut arrived) {
                Ok(true) => {}
                Ok(false) => return Err("it closed the connection at once".to_owned()),
                // This program was stopped for a while.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(text(error)),
            }
            if let Some((reply, _)) = wire::reply(&arrived).map_err(|error| error.to_string())? {
                break reply;
            }
        };
        if let Reply::Error(error) = greeting {
            return Err(error);
        }
        let look = (*patience / 4).clamp(LOOK_MIN, LOOK_MAX);
        socket.set_read_timeout(Some(look)).map_err(text)?;
        Ok(Link { socket, arrived: Mutex::default() })
    }

    /// Queues a request and its caller, and writes unless somebody does. Returns the connection it went to.
    fn send<'a>(&'a self, mut state: MutexGuard<'a, State>, request: &[u8], slot: Arc<Slot>) -> Arc<Link> {
        let link = Arc::clone(state.link.as_ref().expect("`connected` gave the lock with a connection"));
        state.out.extend_from_slice(request);
        state.waiting.push_back(Waiting::Caller(slot));
        self.write(state);
        link
    }

    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.writing {
            return;
        }
        state.writing = true;
        if state.waiting.len() > 1 {
            // Others are awake or soon will be: what they send now goes along. With 40 threads that halved the processor
            // time of a commit, and doubled their number.
            drop(state);
            thread::yield_now();
            state = self.lock();
        }
        while let Some(link) = state.link.clone() {
            while let Some(request) = state.lazy.pop_front() {
                state.out.extend_from_slice(&request);
                state.waiting.push_back(Waiting::Lazy(request));
            }
            if state.out.is_empty() {
                break;
            }
            let mut bytes = std::mem::take(&mut state.out);
            drop(state);
            if let Err(error) = link.socket.write_all(&bytes) {
                self.broke(&link, &format!("the connection to the coordinator broke: {error}"));
            }
            bytes.clear();
            state = self.lock();
            if state.out.capacity() == 0 {
                state.out = bytes;
            }
        }
        state.writing = false;
    }

    /// Reads until `slot` is filled, the connection ends, or it is late; then has another caller go on.
    fn read_for(&self, link: &Link, mut arrived: MutexGuard<'_, Vec<u8>>, slot: &Slot, is_late: impl Fn() -> bool) {
        while !slot.is_filled() && !is_late() && self.read_once(link, &mut arrived) {}
        self.end_reading(arrived);
    }

    /// Reads what has come, or waits for it for a time; false when the connection has ended.
    fn read_once(&self, link: &Link, arrived: &mut Vec<u8>) -> bool {
        let read = link.read(arrived).and_then(|()| self.deliver_all(link, arrived));
        read.inspect_err(|why| self.broke(link, why)).is_ok()
    }

    /// Lets another caller read, if there is one. Whoever found the right to read taken is in the queue by now.
    fn end_reading(&self, arrived: MutexGuard<'_, Vec<u8>>) {
        drop(arrived);
        let state = self.lock();
        let next = state.first_caller().map(Arc::clone);
        drop(state);
        if let Some(slot) = next {
            slot.have_read();
        }
    }

    /// Gives out the replies that have arrived; what is wrong with them if they are none.
    fn deliver_all(&self, link: &Link, arrived: &mut Vec<u8>) -> Result<(), String> {
        let (mut replies, mut at) = (Vec::new(), 0);
        let malformed = loop {
            match wire::reply(arrived.get(at..).unwrap_or_default()) {
                Ok(Some((reply, length))) => {
                    replies.push(reply);
                    at += length;
                }
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed.to_string()),
            }
        };
        arrived.drain(..at);
        if replies.is_empty() || self.deliver(link, replies) {
            return malformed;
        }
        malformed.and(Err("the coordinator sent a reply that nobody waits for".to_owned()))
    }

    /// Gives replies to those who wait; false when there are more replies than that.
    fn deliver(&self, link: &Link, replies: Vec<Reply>) -> bool {
        let mut wake = Vec::with_capacity(replies.len());
        let mut state = self.lock();
        if !state.goes_over(link) {
            return true;
        }
        let mut expected = true;
        for reply in replies {
            match (state.waiting.pop_front(), reply) {
                (Some(Waiting::Caller(slot)), reply) => wake.push((slot, reply)),
                // It may work later; other refusals will not change.
                (Some(Waiting::Lazy(request)), Reply::Error(text)) if text.starts_with("UNAVAILABLE") => {
                    state.lazy.push_back(request);
                }
                (Some(Waiting::Lazy(_)), _) => {}
                (None, _) => expected = false,
            }
        }
        drop(state);
        for (slot, reply) in wake {
            slot.fill(Ok(reply));
        }
        expected
    }

    /// Gives up a connection, unless that was done: everybody who waits for a reply on it learns why.
    fn broke(&self, link: &Link, why: &str) {
        let mut state = self.lock();
        if !state.goes_over(link) {
            return;
        }
        state.link = None;
        // Not earlier: who reads would tell the end as what it sees of it.
        link.socket.close();
        state.out.clear();
        let waiting = std::mem::take(&mut state.waiting);
        let mut callers = Vec::new();
        for waiting in waiting.into_iter().rev() {
            match waiting {
                Waiting::Caller(slot) => callers.push(slot),
                Waiting::Lazy(request) => state.lazy.push_front(request),
            }
        }
        drop(state);
        for slot in callers.into_iter().rev() {
            slot.fill(Err(Broken { sent: true, text: why.to_owned() }));
        }
    }
}
