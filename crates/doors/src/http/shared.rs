//! What all connections of one HTTP door share.
//!
//! May use: the facade, `durable`, `options`, `turns`, `upload`. Must not know: sockets.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast::space::{Cancel, Stop};
use holdfast::{Durability, Position, Stats, Store};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::batch::Transactions;
use super::failure::Failure;
use super::ingest::intake::Kits;
use super::ingest::writers::Writers;
use super::options::Options;
use super::showing::SHOWING_MAX;
use super::turns::Turns;
use crate::budget::Budget;
use crate::durable::{State, Syncer};
use crate::iterations::Iterations;
use crate::numbers::{self, DoorNumbers, PointCounts, TypeNumbers};

/// What all connections of one door share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) options: Options,
    /// Becomes true when the door closes.
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) started: Instant,
    pub(crate) connections: AtomicU64,
    pub(crate) answers: Answers,
    /// What became of points that came in here.
    pub(crate) points: PointCounts,
    /// What reads points.
    pub(crate) kits: Kits,
    /// Who reads and writes them, and how many large bodies of them are at it at a time.
    pub(crate) writers: Writers,
    pub(crate) large_writes: Arc<Semaphore>,
    /// Questions about points.
    pub(crate) turns: Turns,
    syncer: Syncer,
    /// Bytes of bodies in memory.
    pub(crate) budget: Budget,
    /// Clients that wait for events, and events that are read at a time.
    pub(crate) listeners: Arc<Semaphore>,
    pub(crate) event_turns: Arc<Semaphore>,
    /// Answers that are made of many or large documents at a time.
    pub(crate) showing: Arc<Semaphore>,
    /// Transactions that stay open, and turns for those whose operations may wait for locks.
    pub(crate) transactions: Arc<Transactions>,
    pub(crate) lock_turns: Arc<Semaphore>,
    /// Turns for commits that wait for a table.
    pub(crate) table_turns: Arc<Semaphore>,
    /// Where clients stand that go through entries.
    pub(crate) iterations: Arc<Mutex<Iterations>>,
    /// Passwords that are verified at a time.
    pub(crate) verifying: Semaphore,
    keys: (RandomState, RandomState),
    keys_made: AtomicU64,
}

/// Argon2 takes 19 MiB for each password.
const VERIFYING_MAX: usize = 2;
/// Digits of a key that the server makes: 128 bits and a little in base 62, as Riak's are.
const KEY_DIGITS: usize = 22;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Answers by the first digit of their status.
#[derive(Default)]
pub(crate) struct Answers([AtomicU64; 5]);

/// Everything that `/metrics` and `/stats` say, as of one moment.
pub(crate) struct Snapshot {
    pub(crate) stats: Stats,
    /// Types of entries in spaces.
    pub(crate) types: Vec<TypeNumbers>,
    pub(crate) shared: Arc<Shared>,
    /// This door and the others, by name.
    pub(crate) doors: Vec<(String, DoorNumbers)>,
}

/// The store did not answer within the time there is. Whether it did what it was asked is known by reading.
#[derive(Debug)]
pub(crate) struct Stalled;

impl From<Stalled> for Failure {
    fn from(_: Stalled) -> Self {
        Failure::unavailable("the store does not answer: its disk may be stuck; a change may or may not have happened")
    }
}

impl Shared {
    /// # Errors
    /// When threads cannot be started.
    pub(crate) fn new(store: Store, options: Options, stop: watch::Receiver<bool>) -> std::io::Result<Self> {
        let limits = &options.limits;
        let largest = limits.body_bytes_max.min(store.limits().value_bytes_max as u64);
        Ok(Shared {
            // What rounding takes must not keep the largest body out.
            budget: Budget::new(limits.bodies_bytes_max.max(largest + 1024)),
            writers: Writers::start(&store, limits.write_threads)?,
            large_writes: Arc::new(Semaphore::new(limits.large_writes_max.max(1))),
            listeners: Arc::new(Semaphore::new(limits.listeners_max)),
            event_turns: Arc::new(Semaphore::new(limits.queries())),
            showing: Arc::new(Semaphore::new(SHOWING_MAX)),
            transactions: Transactions::new(limits.transactions_max),
            lock_turns: Arc::new(Semaphore::new((limits.threads_max / 4).max(1))),
            table_turns: Arc::new(Semaphore::new((limits.threads_max / 4).max(1))),
            iterations: Arc::new(Mutex::new(Iterations::new(limits.iterations_max, limits.iterations_entries_max))),
            turns: Turns::new(limits.queries(), limits.queries_waiting_max, limits.answer_timeout),
            syncer: Syncer::start(store.clone(), "http", ToString::to_string),
            store,
            options,
            stop,
            started: Instant::now(),
            connections: AtomicU64::new(0),
            answers: Answers::default(),
            points: PointCounts::default(),
            kits: Kits::default(),
            verifying: Semaphore::new(VERIFYING_MAX),
            keys: (RandomState::new(), RandomState::new()),
            keys_made: AtomicU64::new(0),
        })
    }

    /// The most bytes that a body may have.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        self.options.limits.body_bytes_max.min(self.store.limits().value_bytes_max as u64)
    }

    /// The durability of this name.
    ///
    /// # Errors
    /// 400 when there is none.
    pub(crate) fn durability(&self, name: &[u8]) -> Result<Durability, Failure> {
        match name.to_ascii_lowercase().as_slice() {
            b"synced" => Ok(Durability::Synced),
            b"written" => Ok(Durability::Written),
            b"window" => Ok(match self.store.durability() {
                own @ Durability::Window(_) => own,
                Durability::Synced | Durability::Written => Durability::Window(self.options.window),
            }),
            _ => Err(Failure::bad("durability is one of synced, window, written")),
        }
    }

    /// A key that nobody guesses and that was most likely never there.
    pub(crate) fn new_key(&self) -> String {
        let seed = (self.keys_made.fetch_add(1, Relaxed), self.store.now_ms());
        let mut number = u128::from(self.keys.0.hash_one(seed)) << 64 | u128::from(self.keys.1.hash_one(seed));
        let mut key = String::with_capacity(KEY_DIGITS);
        for _ in 0..KEY_DIGITS {
            let digit = usize::try_from(number % 62).unwrap_or(0);
            key.push(DIGITS.get(digit).copied().map_or('0', char::from));
            number /= 62;
        }
        key
    }

    /// Lets a thread that may wait ask the store: its disk may be slow, and others may hold what is asked for.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Stalled> {
        self.ask_within(self.options.limits.answer_timeout, act).await
    }

    async fn ask_within<T: Send + 'static>(
        &self,
        time_max: Duration,
        act: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Stalled> {
        let store = self.store.clone();
        match timeout(time_max, tokio::task::spawn_blocking(move || act(&store))).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(Stalled),
        }
    }

    /// As [`Shared::ask`], for questions about points: when it is their turn.
    ///
    /// # Errors
    /// 503 when too many are asked at a time, or there is no answer in time.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = self.turns.take().await?;
        let limits = &self.options.limits;
        // A question ends by itself when its time is over, unless the disk is stuck.
        let time_max = limits.series_time_max.saturating_add(limits.answer_timeout);
        let act = move |store: &Store| {
            // The turn ends with the work, also when nobody waits for it any more.
            let _turn = turn;
            act(store)
        };
        // More often the question is large than the disk is slow.
        self.ask_within(time_max, act).await.map_err(|Stalled| {
            let seconds = time_max.as_secs();
            Failure::unavailable(format!(
                "no answer within {seconds} s: ask about fewer series, or a shorter time; what was to be changed may or may not be"
            ))
        })
    }

    /// When a question about points ends though it is not done.
    pub(crate) fn series_stop(&self, cancel: Option<Cancel>) -> Stop {
        Stop { time_max: Some(self.options.limits.series_time_max), cancel, ..Stop::default() }
    }

    /// Waits until `position` is as durable as asked; no thread waits with it for a sync.
    pub(crate) async fn durable(&self, position: Position, durability: Durability) -> Result<(), Failure> {
        if durability == Durability::Synced {
            let mut changes = self.syncer.changes();
            self.syncer.want(position);
            let synced = async {
                loop {
                    match self.syncer.synced(position) {
                        State::Waiting if changes.changed().await.is_ok() => {}
                        state => return state,
                    }
                }
            };
            if timeout(self.options.limits.answer_timeout, synced).await.map_err(|_| Stalled)? == State::Done {
                return Ok(());
            }
        }
        // What failed fails again, and says why.
        Ok(self.ask(move |store| store.wait(position, durability)).await??)
    }

    /// Ends the threads that write.
    pub(crate) fn stop(&self) {
        self.writers.stop();
        self.syncer.stop();
    }

    /// The store's statistics. They take each partition's lock for a moment.
    pub(crate) async fn stats(&self) -> Result<Stats, Stalled> {
        self.ask(Store::stats).await
    }

    /// The statistics with the doors' numbers.
    pub(crate) async fn snapshot(self: &Arc<Self>) -> Result<Snapshot, Stalled> {
        let (stats, types) = self.ask(|store| (store.stats(), numbers::types(store))).await?;
        let points = Some(self.points.totals());
        let own = DoorNumbers { connections: self.connections.load(Relaxed), totals: None, points };
        let others = self.options.doors.iter().map(|(name, numbers)| (name.clone(), numbers()));
        let doors = others.chain([("http".to_owned(), own)]).collect();
        Ok(Snapshot { stats, types, shared: Arc::clone(self), doors })
    }
}

impl Answers {
    pub(crate) fn count(&self, status: u16) {
        if let Some(class) = self.0.get(usize::from(status / 100).wrapping_sub(1)) {
            class.fetch_add(1, Relaxed);
        }
    }

    /// The classes that occur, such as `2xx`, each with its count.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["1xx", "2xx", "3xx", "4xx", "5xx"]
            .into_iter()
            .zip(&self.0)
            .skip(1)
            .map(|(name, count)| (name, count.load(Relaxed)))
    }
}
