//! One connection that all threads of the process share.
//!
//! A request is put into a buffer and its caller into a queue. Who finds nobody writing writes the buffer, and goes on
//! while others have filled it again: so the requests of concurrent callers leave in one write, without a thread of their
//! own. One thread reads; replies come in the order of requests, so the first in the queue gets the first reply.
//!
//! A *lazy* request has no caller. It leaves with the next write of somebody else or when [`Pipe::flush`] is called, and
//! again after a broken connection, until it is answered.
//!
//! May use: `socket`, `slot`, `wire`, `tls`. Must not know: what requests mean.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::slot::{Broken, Slot};
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
pub(crate) struct Pipe(Arc<Shared>);

struct Shared {
    target: Target,
    state: Mutex<State>,
    /// An attempt to connect has ended.
    attempted: Condvar,
}

#[derive(Default)]
struct State {
    socket: Option<Arc<Socket>>,
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

impl Pipe {
    pub(crate) fn new(target: Target) -> Self {
        let state = Mutex::new(State::default());
        Self(Arc::new(Shared { target, state, attempted: Condvar::new() }))
    }

    /// Sends a request and waits for its reply, for `patience` beyond the usual.
    pub(crate) fn call(&self, words: &[&str], patience: Duration) -> Result<Reply, Broken> {
        let mut request = Vec::with_capacity(256);
        wire::request(&mut request, words);
        let slot = Slot::here();
        let patience = self.0.target.patience.saturating_add(patience);
        let state = self.0.connected().map_err(|text| Broken { sent: false, text })?;
        let awake = if state.waiting.len() < CROWD { Duration::ZERO } else { AWAKE };
        let socket = self.0.send(state, &request, Arc::clone(&slot));
        if let Some(reply) = slot.wait(awake, patience) {
            return reply;
        }
        let text = format!("the server did not answer within {patience:?}");
        self.0.broke(&socket, &text);
        // The slot was filled by that, or just before.
        slot.wait(Duration::ZERO, patience).unwrap_or(Err(Broken { sent: true, text }))
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

    /// Sends what was left; true when something was. Connects if need be.
    pub(crate) fn flush(&self) -> bool {
        if self.0.lock().lazy.is_empty() {
            return false;
        }
        if let Ok(state) = self.0.connected() {
            self.0.write(state);
        }
        true
    }

    /// Lazy requests that were dropped, because too many had no answer.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(socket) = self.0.lock().socket.take() {
            // The reading thread sees the end, and with it goes the last reference.
            socket.close();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything may panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, with a connection; or why there is none.
    fn connected(self: &Arc<Self>) -> Result<MutexGuard<'_, State>, String> {
        let mut state = self.lock();
        loop {
            if state.socket.is_some() {
                return Ok(state);
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
            Ok(socket) => {
                state.refused = None;
                state.socket = Some(socket);
                Ok(state)
            }
            Err(text) => {
                state.refused = Some((Instant::now(), text.clone()));
                Err(text)
            }
        }
    }

    fn connect(self: &Arc<Self>) -> Result<Arc<Socket>, String> {
        let mut refusals = Vec::new();
        for server in &self.target.servers {
            match self.connect_to(server) {
                Ok(socket) => return Ok(socket),
                Err(text) => refusals.push(format!("cannot reach the coordinator at {server}: {text}")),
            }
        }
        Err(refusals.join("; "))
    }

    fn connect_to(self: &Arc<Self>, server: &str) -> Result<Arc<Socket>, String> {
        let Target { tls, login, patience, .. } = &self.target;
        let text = |error: std::io::Error| explained(&error).unwrap_or_else(|| error.to_string());
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
            if !socket.read_into(&mut arrived).map_err(text)? {
                return Err("it closed the connection at once".to_owned());
            }
            if let Some((reply, _)) = wire::reply(&arrived).map_err(|error| error.to_string())? {
                break reply;
            }
        };
        if let Reply::Error(error) = greeting {
            return Err(error);
        }
        socket.set_read_timeout(None).map_err(text)?;
        let socket = Arc::new(socket);
        let (shared, reading) = (Arc::clone(self), Arc::clone(&socket));
        let reader = thread::Builder::new().name("holdfast-replies".to_owned());
        reader.spawn(move || shared.read(&reading)).map_err(text)?;
        Ok(socket)
    }

    /// Queues a request and its caller, and writes unless somebody does. Returns the connection it went to.
    fn send<'a>(&'a self, mut state: MutexGuard<'a, State>, request: &[u8], slot: Arc<Slot>) -> Arc<Socket> {
        let socket = Arc::clone(state.socket.as_ref().expect("`connected` gave the lock with a connection"));
        state.out.extend_from_slice(request);
        state.waiting.push_back(Waiting::Caller(slot));
        self.write(state);
        socket
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
        while let Some(socket) = state.socket.clone() {
            while let Some(request) = state.lazy.pop_front() {
                state.out.extend_from_slice(&request);
                state.waiting.push_back(Waiting::Lazy(request));
            }
            if state.out.is_empty() {
                break;
            }
            let mut bytes = std::mem::take(&mut state.out);
            drop(state);
            if let Err(error) = socket.write_all(&bytes) {
                self.broke(&socket, &format!("the connection to the coordinator broke: {error}"));
            }
            bytes.clear();
            state = self.lock();
            if state.out.capacity() == 0 {
                state.out = bytes;
            }
        }
        state.writing = false;
    }

    /// The reading thread, until the connection ends.
    fn read(&self, socket: &Arc<Socket>) {
        let mut arrived = Vec::new();
        let mut replies = Vec::new();
        let why = loop {
            match socket.read_into(&mut arrived) {
                Ok(true) => {}
                Ok(false) => break "the coordinator closed the connection".to_owned(),
                Err(error) => break format!("the connection to the coordinator broke: {error}"),
            }
            let mut at = 0;
            let malformed = loop {
                match wire::reply(arrived.get(at..).unwrap_or_default()) {
                    Ok(Some((reply, length))) => {
                        replies.push(reply);
                        at += length;
                    }
                    Ok(None) => break None,
                    Err(malformed) => break Some(malformed.to_string()),
                }
            };
            arrived.drain(..at);
            let expected = self.deliver(socket, &mut replies);
            if let Some(text) = malformed {
                break text;
            }
            if !expected {
                break "the coordinator sent a reply that nobody waits for".to_owned();
            }
        };
        self.broke(socket, &why);
    }

    /// Gives replies to those who wait; false when there are more replies than that.
    fn deliver(&self, socket: &Arc<Socket>, replies: &mut Vec<Reply>) -> bool {
        let mut wake = Vec::with_capacity(replies.len());
        let mut state = self.lock();
        if !state.socket.as_ref().is_some_and(|current| Arc::ptr_eq(current, socket)) {
            return true;
        }
        let mut expected = true;
        for reply in replies.drain(..) {
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
    fn broke(&self, socket: &Arc<Socket>, why: &str) {
        let mut state = self.lock();
        if !state.socket.as_ref().is_some_and(|current| Arc::ptr_eq(current, socket)) {
            return;
        }
        state.socket = None;
        // Not earlier: the reading thread would tell the end as what it sees of it.
        socket.close();
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
