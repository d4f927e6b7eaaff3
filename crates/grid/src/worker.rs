//! Worker loops: threads that take entries, hand each to the user's handler with the transaction in which it was taken, and
//! commit. What the handler writes, in spaces and to keys, and the take are one batch: after a crash both are there or neither.
//!
//! They go over the client library, so that a handler is written once for a store in the process and for a server. Who works on one
//! server from several programs is kept apart by the locks of the transactions alone: programs do not know of each other.
//!
//! An entry whose handler fails, or panics, is rolled back and tried again later, and after enough attempts becomes a dead
//! letter. How often an entry failed is counted in memory, by its id and version: counting in a field of the entry would cost
//! a batch for each failure, be heard by listeners, and change the version of what nobody has handled. A restart gives every
//! entry all its attempts again.
//!
//! May use: `client`, `holdfast` for what it is asked. Must not know: mirrors, views, sockets.

mod failures;
mod run;

use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Call, Client, Entries, Transaction};
use holdfast::space::{Cancel, Entry, Order, ReadLock, Storage, Wanted};
use holdfast::{Durability, Error, ErrorKind, Result};

use crate::backoff::Backoff;
use failures::Failures;
use run::Parked;

/// Most threads.
const THREADS_MAX: usize = 1024;
/// Most entries that one transaction takes: a server lets one touch 10,000, and the handler needs some of them.
const BATCH_MAX: usize = 1000;
/// The longest lease that a server gives.
const LEASE_MAX: Duration = Duration::from_secs(3600);
/// Most entries that are parked in the process, where they cost memory alone.
const PARKED_MAX: usize = 1024;
/// Most that are parked on a server, where each has a connection to itself. Entries that fail for good become dead letters after
/// some tenths of a second, so as many have to fail at once before they hold up others.
const PARKED_REMOTE_MAX: usize = 16;

/// How to work.
pub struct WorkerOptions {
    /// Threads that take and handle, from 1 to 1024; exactly 1 for a type in first-in first-out order. On a server each has a
    /// connection to itself: fewer than [`ConnectOptions::connections_max`](client::ConnectOptions::connections_max).
    pub threads: usize,
    /// Most entries that one transaction takes, from 1 to 1000. When one of them fails all are rolled back, and those before it are
    /// handled again: a larger batch saves syncs, and costs more when a handler fails.
    pub batch_max: usize,
    /// How long a transaction may take, before others get what it had taken; from 1 ms, on a server up to an hour. A handler that
    /// takes longer has worked in vain.
    pub lease: Duration,
    /// What it locks that a handler reads an entry with the transaction. Exclusive, if handlers change what they have read.
    pub isolation: ReadLock,
    /// How long an entry that failed waits.
    pub backoff: Backoff,
    /// After so many failures an entry becomes a dead letter, if there is a type for them.
    pub attempts_max: u32,
    /// Where dead letters are written: documents of `space`, `type`, `entry`, `attempts` and `error`, with an id that is made.
    /// Without, an entry is tried for ever.
    pub dead_letters: Option<Entries>,
    /// When a handled entry counts as handled.
    pub durability: Durability,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            batch_max: 1,
            lease: Duration::from_secs(30),
            isolation: ReadLock::Shared,
            backoff: Backoff::default(),
            attempts_max: 5,
            dead_letters: None,
            durability: Durability::Synced,
        }
    }
}

/// Why a handler did not handle an entry. Made from any error by `?`.
#[derive(Debug, Clone)]
pub struct Failure {
    text: String,
    cause: Cause,
}

/// Who is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The entry, or the handler: an attempt.
    Entry,
    /// Somebody who came between.
    Conflict,
    /// A store that cannot be reached, or cannot write.
    Store,
}

impl Failure {
    /// A failure with this text, which becomes that of the dead letter.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: Cause::Entry }
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        // Also where the handler has made it a part of an error of its own.
        let first: &(dyn std::error::Error + 'static) = &error;
        let known =
            std::iter::successors(Some(first), |error| error.source()).find_map(|it| it.downcast_ref::<Error>());
        let cause = match known.map(Error::kind) {
            Some(ErrorKind::Conflict) => Cause::Conflict,
            Some(ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Closed) => Cause::Store,
            _ => Cause::Entry,
        };
        Self { text: error.to_string(), cause }
    }
}

/// What workers have done since they were started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Entries that were handled and committed.
    pub handled: u64,
    /// Times that a handler failed, panics among them, or its transaction could not be committed.
    pub failed: u64,
    /// Times that a handler panicked.
    pub panicked: u64,
    /// Times that somebody else had changed what a handler had read: tried again, and no attempt is lost by it.
    pub conflicts: u64,
    /// Entries of which nobody knows whether they were handled, because the connection broke before the commit was answered, or the
    /// disk refused. Those that were not are there, and handled again.
    pub unknown: u64,
    /// Entries that became dead letters.
    pub dead: u64,
    /// Entries that failed and wait to be tried again now, locked by their transactions.
    pub waiting: u64,
    /// What happened to the store last, or to the connection to it, if something did: workers try again until it is closed.
    pub trouble: Option<String>,
}

type Handler = dyn Fn(&mut Transaction, &Entry) -> std::result::Result<(), Failure> + Send + Sync;

struct Shared {
    client: Client,
    entries: Entries,
    wanted: Wanted,
    options: WorkerOptions,
    parked_max: usize,
    handler: Box<Handler>,
    cancel: Cancel,
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    failures: Failures,
    parked: BinaryHeap<Parked>,
    stats: WorkerStats,
    /// Entries to take one by one, because a batch of them could not be committed and none is known to be at fault.
    singly: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that take entries and handle them. Dropping it stops them, as [`Workers::stop`] does.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts them on entries that match, of this client's. The handler may be called more than once for an entry, and by several threads; only
    /// what it does with the transaction happens exactly once. It waits for each operation of it (`.wait()`); when one of them
    /// fails, the transaction is rolled back, and the handler can only fail too.
    ///
    /// A server that cannot be reached is asked again, for as long as it takes; an entry that was in work then is tried again, and no
    /// attempt is lost by it.
    ///
    /// Of a type in groups, entries of a group are handled in order, one after another, also when one fails: its group waits
    /// for it, other groups do not. Of a first-in first-out type everything waits for it.
    ///
    /// # Errors
    /// `Invalid` when an option is out of its range, the type is volatile or its own dead letters', or the query has an order; `Unavailable` when there are no threads. That the
    /// entries are another client's is found when they are taken, and said in [`WorkerStats::trouble`].
    pub fn start(
        client: &Client,
        entries: &Entries,
        wanted: &Wanted,
        options: WorkerOptions,
        handler: impl Fn(&mut Transaction, &Entry) -> std::result::Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<Self> {
        wanted.check_unlimited("a worker's work")?;
        check(client, entries, &options)?;
        let parked_max = match client.connections_max() {
            None => PARKED_MAX,
            Some(connections) => PARKED_REMOTE_MAX.min(connections - options.threads),
        };
        let count = options.threads;
        let shared = Arc::new(Shared {
            client: client.clone(),
            entries: entries.clone(),
            wanted: wanted.clone(),
            options,
            parked_max,
            handler: Box::new(handler),
            cancel: Cancel::new(),
            state: Mutex::default(),
            stopped: Condvar::new(),
        });
        let mut this = Self { shared, threads: Vec::new() };
        for number in 0..count {
            let shared = Arc::clone(&this.shared);
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || shared.work());
            let thread = thread.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}")))?;
            this.threads.push(thread);
        }
        Ok(this)
    }

    /// What they have done.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        let state = self.shared.state();
        WorkerStats { waiting: state.parked.len() as u64, ..state.stats.clone() }
    }

    /// Stops: handlers that run now end, and are committed; nothing new is taken; what waits to be tried again is let go of.
    /// Blocks until then; who waits for an entry or a server stops at once.
    pub fn stop(mut self) -> WorkerStats {
        self.end();
        self.stats()
    }

    /// [`Workers::stop`] in a thread of the client's. They are told to stop at once. A call that is dropped goes on to stop them; one that is dropped
    /// before it has begun does so where it is dropped, and blocks there, as dropping workers does.
    ///
    /// # Errors
    /// As [`Client::elsewhere`].
    pub fn stop_with(self, client: &Client) -> Call<WorkerStats> {
        self.request_stop();
        client.elsewhere(move || Ok(self.stop()))
    }

    fn request_stop(&self) {
        self.shared.cancel.cancel();
        // Under the lock, so that nobody decides to sleep between.
        drop(self.shared.state());
        self.shared.stopped.notify_all();
    }

    fn end(&mut self) {
        self.request_stop();
        for thread in self.threads.drain(..) {
            // Handlers' panics are caught; another one has nothing left to stop.
            let _ = thread.join();
        }
        let parked = std::mem::take(&mut self.shared.state().parked);
        drop(parked);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

fn check(client: &Client, entries: &Entries, options: &WorkerOptions) -> Result<()> {
    let invalid = |text: &str| Err(Error::new(ErrorKind::Invalid, text));
    let definition = entries.definition();
    if definition.storage == Storage::Volatile {
        return invalid(
            "workers need a durable type: entries of a volatile one are gone with the process, and what is done with each exactly once would not be",
        );
    }
    if definition.order == Order::Fifo && options.threads != 1 {
        return invalid("entries in first-in first-out order are handled by one thread: several would mix them up");
    }
    let is_own = |letters: &Entries| {
        let letters = letters.definition();
        (&letters.space, &letters.name) == (&definition.space, &definition.name)
    };
    if options.dead_letters.as_ref().is_some_and(is_own) {
        return invalid(
            "dead letters need a type of their own: in the type that is worked on they would be handled again",
        );
    }
    let is_volatile = |letters: &Entries| letters.definition().storage == Storage::Volatile;
    if options.dead_letters.as_ref().is_some_and(is_volatile) {
        return invalid(
            "dead letters need a durable type: those of a volatile one are gone with the process, and their entries are gone already",
        );
    }
    if !(1..=THREADS_MAX).contains(&options.threads) || options.attempts_max == 0 {
        return invalid(&format!("threads are from 1 to {THREADS_MAX}, attempts_max from 1"));
    }
    if !(1..=BATCH_MAX).contains(&options.batch_max) {
        return invalid(&format!("batch_max is from 1 to {BATCH_MAX}"));
    }
    if options.lease < Duration::from_millis(1) {
        return invalid("the lease is at least 1 ms");
    }
    let Some(connections) = client.connections_max() else { return Ok(()) };
    if options.lease > LEASE_MAX {
        return invalid("a server gives a lease of an hour at the most");
    }
    if options.threads >= connections {
        let text = format!(
            "{} threads and what waits to be tried again need more than {connections} connections: see connections_max",
            options.threads
        );
        return invalid(&text);
    }
    Ok(())
}
