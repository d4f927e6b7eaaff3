//! The list of open connections: for CLIENT LIST, CLIENT KILL, idle timeouts and stopping.
//!
//! A connection owns everything it works with; what others may see or ask of it is here, in atomics.
//!
//! May use: the facade's `Cancel`. Must not know: sockets, commands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use holdfast::space::Cancel;

use super::rows::COMMANDS;

/// What may be asked of a connection from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    /// Send what is ready, take no more, close.
    Finish,
    /// Close at once.
    Kill,
}

/// Names a client gave itself, and who it is.
#[derive(Clone, Default)]
pub(crate) struct Names {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
    pub(crate) user: String,
}

/// The public side of one connection.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) local_address: SocketAddr,
    created_ms: u64,
    active_ms: AtomicU64,
    last_command: AtomicU16,
    database: AtomicU16,
    protocol: AtomicU8,
    queued: AtomicI64,
    watched: AtomicUsize,
    /// What its transaction holds in memory.
    transaction_bytes: AtomicUsize,
    input_bytes: AtomicUsize,
    output_bytes: AtomicUsize,
    /// Since when its output has not moved; 0 while it does.
    stalled_ms: AtomicU64,
    /// Whether it waits for an entry, which is not being idle.
    waits: AtomicBool,
    /// Whether it waits for others besides: for a lock, or for news.
    is_held: AtomicBool,
    /// Whether it hears of keys that change.
    tracks: AtomicBool,
    finish: AtomicBool,
    kill: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Whether the connection is to look soon whether its client is gone.
    looks_again: AtomicBool,
    names: Mutex<Names>,
    /// Used when the connection has ended, or its client is gone while something is done for it.
    pub(crate) gone: Cancel,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is written whole: a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    pub(crate) fn new(id: u64, address: SocketAddr, local_address: SocketAddr, now_ms: u64) -> Self {
        Client {
            id,
            address,
            local_address,
            created_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            last_command: AtomicU16::new(u16::MAX),
            database: AtomicU16::new(0),
            protocol: AtomicU8::new(2),
            queued: AtomicI64::new(-1),
            watched: AtomicUsize::new(0),
            transaction_bytes: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            stalled_ms: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            tracks: AtomicBool::new(false),
            finish: AtomicBool::new(false),
            kill: AtomicBool::new(false),
            waker: Mutex::new(None),
            gone: Cancel::new(),
            looks_again: AtomicBool::new(false),
            names: Mutex::new(Names { user: "default".to_owned(), ..Names::default() }),
        }
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Asks the connection for something and wakes it.
    pub(crate) fn ask(&self, ask: Ask) {
        match ask {
            Ask::Nothing => return,
            Ask::Finish => self.finish.store(true, Relaxed),
            Ask::Kill => self.kill.store(true, Relaxed),
        }
        self.wake();
    }

    /// Has the connection look what there is for it.
    pub(crate) fn wake(&self) {
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Whether it hears of keys that change.
    pub(crate) fn set_tracking(&self, tracks: bool) {
        self.tracks.store(tracks, Relaxed);
    }

    /// Has the connection woken when the sweeper comes by.
    pub(crate) fn look_again_soon(&self) {
        self.looks_again.store(true, Relaxed);
    }

    /// Wakes the connection if it wanted that.
    pub(crate) fn look_again(&self) {
        if self.looks_again.swap(false, Relaxed)
            && let Some(waker) = lock(&self.waker).as_ref()
        {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn asked(&self) -> Ask {
        if self.kill.load(Relaxed) {
            Ask::Kill
        } else if self.finish.load(Relaxed) {
            Ask::Finish
        } else {
            Ask::Nothing
        }
    }

    /// Says how to wake the connection; once, because a task's waker does not change.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    pub(crate) fn set_active(&self, now_ms: u64, input_bytes: usize) {
        self.active_ms.store(now_ms, Relaxed);
        self.input_bytes.store(input_bytes, Relaxed);
    }

    pub(crate) fn set_output(&self, bytes: usize, stalled_ms: u64) {
        self.output_bytes.store(bytes, Relaxed);
        self.stalled_ms.store(stalled_ms, Relaxed);
    }

    pub(crate) fn set_waiting(&self, waits: bool) {
        self.waits.store(waits, Relaxed);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.load(Relaxed)
    }

    /// Says whether it waits for others though it does not count as waiting for an entry.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.is_held.store(is_held, Relaxed);
    }

    /// Whether it waits for what others do: an entry, a lock, news.
    pub(crate) fn is_blocked(&self) -> bool {
        self.waits.load(Relaxed) || self.is_held.load(Relaxed)
    }

    pub(crate) fn set_command(&self, index: u16) {
        self.last_command.store(index, Relaxed);
    }

    pub(crate) fn set_database(&self, database: u16) {
        self.database.store(database, Relaxed);
    }

    pub(crate) fn set_protocol(&self, version: u8) {
        self.protocol.store(version, Relaxed);
    }

    pub(crate) fn set_transaction(&self, queued: i64, watched: usize) {
        self.queued.store(queued, Relaxed);
        self.watched.store(watched, Relaxed);
        if queued < 0 {
            self.transaction_bytes.store(0, Relaxed);
        }
    }

    pub(crate) fn set_transaction_bytes(&self, bytes: usize) {
        self.transaction_bytes.store(bytes, Relaxed);
    }

    /// How long it has sent nothing, unless it waits for an entry.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        if self.waits.load(Relaxed) {
            return 0;
        }
        now_ms.saturating_sub(self.active_ms.load(Relaxed))
    }

    /// How long it has not taken any of the output that is ready for it.
    pub(crate) fn stalled_for_ms(&self, now_ms: u64) -> u64 {
        match self.stalled_ms.load(Relaxed) {
            0 => 0,
            since => now_ms.saturating_sub(since),
        }
    }

    /// One line of CLIENT LIST, without line end; the fields and their order are those of Redis 7.
    pub(crate) fn line(&self, now_ms: u64) -> String {
        let names = self.names().clone();
        let queued = self.queued.load(Relaxed);
        let tracks = self.tracks.load(Relaxed);
        let (is_queueing, ends) = (queued >= 0, self.finish.load(Relaxed));
        let flags: String = [("x", is_queueing), ("b", self.is_blocked()), ("c", ends), ("t", tracks)]
            .iter()
            .filter_map(|(flag, is_set)| is_set.then_some(*flag))
            .collect();
        let flags = if flags.is_empty() { "N" } else { &flags };
        let command = COMMANDS.get(self.last_command.load(Relaxed) as usize).map_or("NULL", |row| row.name);
        let (input, output) = (self.input_bytes.load(Relaxed), self.output_bytes.load(Relaxed));
        let held = self.transaction_bytes.load(Relaxed);
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 multi={queued} watch={} \
             qbuf={input} qbuf-free=0 argv-mem=0 multi-mem={held} rbs=0 rbp=0 obl={output} oll=0 omem={output} tot-mem={} \
             events=r cmd={command} user={} redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            names.name,
            now_ms.saturating_sub(self.created_ms) / 1000,
            self.idle_ms(now_ms) / 1000,
            self.database.load(Relaxed),
            self.watched.load(Relaxed),
            input + output + held,
            names.user,
            if tracks { 0 } else { -1 },
            self.protocol.load(Relaxed),
            names.library,
            names.library_version,
        )
    }
}

/// All open connections of a door.
#[derive(Default)]
pub(crate) struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
}

impl Clients {
    /// A number no connection had before.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// Adds a connection unless there are `clients_max` already.
    pub(crate) fn add(&self, client: &Arc<Client>, clients_max: usize) -> bool {
        let mut by_id = lock(&self.by_id);
        if by_id.len() >= clients_max {
            return false;
        }
        by_id.insert(client.id, client.clone());
        true
    }

    pub(crate) fn remove(&self, id: u64) {
        lock(&self.by_id).remove(&id);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.by_id).len()
    }

    /// All of them, in the order they came. One that was killed is gone, though its thread may not know yet.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        lock(&self.by_id).values().filter(|client| !matches!(client.asked(), Ask::Kill)).cloned().collect()
    }
}
