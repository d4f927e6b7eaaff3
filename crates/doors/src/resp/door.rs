//! What all connections of one RESP door share, and how the door is configured.
//!
//! May use: the facade, tokio's semaphore, `auth`, `crate::numbers`. Must not know: sockets, handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast::{Durability, Store, Window};
use tokio::sync::Semaphore;

use super::call::store_error_text;
use super::clients::Clients;
use super::counters::Counters;
use super::cursors::Cursors;

use super::limits::Limits;
use super::moving::Places;
use super::number;
use super::open::For;
use super::script::{self, Functions, ScriptOptions, Scripts};
use super::slowlog::{Latency, Slowlog};
use super::snapshots::Snapshots;
use super::tracking::Tracking;
use super::wire::WireLimits;
use super::work::{Elsewhere, Turn, Work};
use crate::auth::Users;
use crate::budget::Budget;
use crate::durable::Syncer;
use crate::ids;
use crate::iterations::{Iterations, locked};
use crate::numbers::{DoorNumbers, DoorTotals, PointCounts, RecoverySource};
use crate::through::ReadThrough;

/// What happens when a client with the right to do so sends SHUTDOWN. Must not block: it tells the program to stop.
pub type ShutdownHook = Arc<dyn Fn() + Send + Sync>;

/// How one RESP door is served.
#[derive(Clone)]
pub struct Options {
    /// Where to listen. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Threads that serve connections, at least 1. One is enough for about two hundred thousand commands a second.
    pub reactors: usize,
    /// Threads over which connections are spread whose clients pipeline, or send commands that take long: `reactors` and, if this is more, others that serve only those.
    pub pipeline_reactors: usize,
    /// Threads that serve one connection each, of those that commit distributed transactions; others are served as usual.
    pub commit_reactors: usize,
    /// Bounds on what clients may do.
    pub limits: Limits,
    /// TLS, if connections are to be encrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who may come in.
    pub users: Arc<Users>,
    /// Connections that send nothing for so long are closed; `None` never.
    pub idle_timeout: Option<Duration>,
    /// Connections that do not take their replies for so long are closed; `None` never.
    pub stall_timeout: Option<Duration>,
    /// Databases for SELECT: n is the bucket `db<n>`. From 1 to 65535.
    pub databases: u16,
    /// How durable what connections are shown is, until they choose; `None` is the store's own default.
    pub durability: Option<Durability>,
    /// What CLIENT DURABILITY window means when the store's default is not a window itself.
    pub window: Window,
    /// Commands that take at least so long go to the slow log; `None` turns it off.
    pub slowlog_threshold: Option<Duration>,
    /// Called for SHUTDOWN; `None` refuses the command.
    pub on_shutdown: Option<ShutdownHook>,
    /// What scripts may take.
    pub script: ScriptOptions,
    /// The program's own recovery of distributed transactions, if it does any.
    pub recovery: Option<RecoverySource>,
    /// Who loads entries that SPACE.READ does not find, if anybody does.
    pub read_through: Option<Arc<dyn ReadThrough>>,
}

impl Options {
    /// The defaults, listening at `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Options {
            listen,
            reactors: 1,
            pipeline_reactors: 1,
            commit_reactors: 4,
            limits: Limits::default(),
            tls: None,
            users: Arc::new(Users::open()),
            idle_timeout: None,
            stall_timeout: Some(Duration::from_secs(60)),
            databases: 16,
            durability: None,
            window: Window { min: Duration::from_millis(1), max: Duration::from_millis(10) },
            slowlog_threshold: Some(Duration::from_millis(10)),
            on_shutdown: None,
            script: ScriptOptions::default(),
            recovery: None,
            read_through: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("reactors", &self.reactors)
            .field("pipeline_reactors", &self.pipeline_reactors)
            .field("tls", &self.tls.is_some())
            .field("databases", &self.databases)
            .finish_non_exhaustive()
    }
}

/// Settings that CONFIG SET changes while the door is open.
pub(crate) struct Settings {
    /// Seconds; 0 is never.
    pub(crate) idle_timeout_s: AtomicU64,
    pub(crate) clients_max: AtomicU64,
    /// Microseconds; negative is off.
    pub(crate) slowlog_us: AtomicI64,
    pub(crate) slowlog_entries: AtomicU64,
    /// Milliseconds; 0 is off.
    pub(crate) latency_ms: AtomicU64,
}

/// What all connections of one door share.
pub(crate) struct Door {
    pub(crate) store: Store,
    pub(crate) options: Options,
    pub(crate) settings: Settings,
    pub(crate) clients: Clients,
    pub(crate) slowlog: Slowlog,
    pub(crate) latency: Latency,
    pub(crate) syncer: Syncer,
    /// One for each reactor.
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) rejected: AtomicU64,
    /// What became of points.
    pub(crate) points: Arc<PointCounts>,
    pub(crate) started_ms: u64,
    /// Tells this run of the server from all others.
    pub(crate) run: String,
    pub(crate) address: SocketAddr,
    pub(crate) peak_clients: AtomicU64,
    cursors: Mutex<Cursors>,
    snapshots: Mutex<Snapshots>,
    pub(crate) iterations: Arc<Mutex<Iterations>>,
    /// Whose turn it is among the long commands.
    pub(crate) turns: Arc<Semaphore>,
    /// And among the commands that are too much for the event loop.
    pub(crate) heavy_turns: Arc<Semaphore>,
    /// The scripts that are known.
    pub(crate) scripts: Scripts,
    /// Those that the store keeps by name.
    pub(crate) functions: Functions,
    /// And among the writes of points that are held back, which must not wait for commands that take long.
    held_writes: Arc<Semaphore>,
    /// And among the commands of open transactions that wait for locks, and for entries.
    lock_waits: Arc<Semaphore>,
    entry_waits: Arc<Semaphore>,
    /// And among the commits that are written through, by the table's name.
    table_waits: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    /// Places for those that wait for the change feed.
    pub(crate) feed_waiters: Arc<Semaphore>,
    /// The room for unfinished commands.
    pub(crate) inputs: Budget,
    /// The room for what clients are owed.
    pub(crate) replies: Budget,
    /// What connections hear of keys that change.
    pub(crate) tracking: Arc<Tracking>,
    /// Connections that were found to keep their reactor busy.
    busy: AtomicUsize,
    /// The reactors for connections that commit distributed transactions.
    pub(crate) places: Places,
}

impl Door {
    /// The reactor for the next connection that keeps one busy.
    pub(crate) fn next_for_busy(&self) -> usize {
        self.busy.fetch_add(1, Relaxed) % self.options.pipeline_reactors
    }

    pub(crate) fn new(store: Store, mut options: Options, address: SocketAddr) -> Self {
        if let Durability::Window(window) = store.durability() {
            options.window = window;
        }
        options.reactors = options.reactors.max(1);
        options.pipeline_reactors = options.pipeline_reactors.max(options.reactors);
        let limits = &options.limits;
        let settings = Settings {
            idle_timeout_s: AtomicU64::new(options.idle_timeout.map_or(0, |timeout| timeout.as_secs().max(1))),
            clients_max: AtomicU64::new(limits.clients_max as u64),
            slowlog_us: AtomicI64::new(
                options.slowlog_threshold.map_or(-1, |t| i64::try_from(t.as_micros()).unwrap_or(i64::MAX)),
            ),
            slowlog_entries: AtomicU64::new(limits.slowlog_entries_max.min(128) as u64),
            latency_ms: AtomicU64::new(0),
        };
        let tracking = Arc::new(Tracking::new(limits.tracked_bytes_max));
        store.watch_keys(Arc::clone(&tracking) as _);
        Door {
            tracking,
            settings,
            clients: Clients::default(),
            slowlog: Slowlog::default(),
            latency: Latency::new(limits.latency_samples_max),
            syncer: Syncer::start(store.clone(), "resp", store_error_text),
            counters: (0..options.pipeline_reactors + options.commit_reactors).map(|_| Arc::default()).collect(),
            places: Places::new(options.pipeline_reactors, options.commit_reactors),
            rejected: AtomicU64::new(0),
            points: Arc::default(),
            started_ms: store.now_ms(),
            run: ids::run(),
            address,
            peak_clients: AtomicU64::new(0),
            cursors: Mutex::new(Cursors::new(limits.cursors_max)),
            snapshots: Mutex::new(Snapshots::new(limits.snapshots_max, limits.client_snapshots_max)),
            iterations: Arc::new(Mutex::new(Iterations::new(limits.iterations_max, limits.iterations_entries_max))),
            turns: Arc::new(Semaphore::new(limits.long_commands_max.max(1))),
            heavy_turns: Arc::new(Semaphore::new(limits.heavy_commands_max.max(1))),
            functions: Functions::open(&store, limits.libraries_max, script::limits(&options)),
            scripts: Scripts::new(limits.scripts_max, limits.scripts_bytes_max),
            held_writes: Arc::new(Semaphore::new(limits.held_writes_max.max(1))),
            lock_waits: Arc::new(Semaphore::new(limits.transaction_waits_max.max(1))),
            entry_waits: Arc::new(Semaphore::new(limits.transaction_waits_max.max(1))),
            table_waits: Mutex::default(),
            inputs: Budget::new(limits.input_bytes_max as u64),
            replies: Budget::new(limits.replies_bytes_max as u64),
            feed_waiters: Arc::new(Semaphore::new(limits.feed_waiters_max)),
            busy: AtomicUsize::new(0),
            store,
            options,
        }
    }

    /// Where what runs off the event loop waits for its turn.
    pub(crate) fn turns_of(&self, work: &Work) -> Elsewhere {
        self.elsewhere(match work.turn {
            Turn::Long => &self.turns,
            Turn::HeldWrite => &self.held_writes,
            Turn::Lock => &self.lock_waits,
        })
    }

    /// Where what takes long runs.
    pub(crate) fn long(&self) -> Elsewhere {
        self.elsewhere(&self.turns)
    }

    /// Where what waits for one of these turns runs.
    pub(crate) fn elsewhere(&self, turns: &Arc<Semaphore>) -> Elsewhere {
        let (turns, replies) = (Arc::clone(turns), self.replies.clone());
        Elsewhere { turns, replies, free_bytes: self.options.limits.loop_bytes_max }
    }

    /// Where a command of an open transaction waits for its turn to wait.
    pub(crate) fn turns_for(&self, what: For) -> Arc<Semaphore> {
        Arc::clone(match what {
            For::Lock => &self.lock_waits,
            For::Entry => &self.entry_waits,
        })
    }

    /// Where a commit waits for its turn to wait for this table: one that is locked holds up those of no other.
    pub(crate) fn turns_for_table(&self, name: &str) -> Arc<Semaphore> {
        let mut all = self.table_waits.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = || Arc::new(Semaphore::new(self.options.limits.transaction_waits_max.max(1)));
        Arc::clone(all.entry(name.to_owned()).or_insert_with(turns))
    }

    /// How durable a new connection's replies are.
    pub(crate) fn durability(&self) -> Durability {
        self.options.durability.unwrap_or_else(|| self.store.durability())
    }

    pub(crate) fn value_bytes_max(&self) -> usize {
        self.store.limits().value_bytes_max.min(self.options.limits.bulk_bytes_max)
    }

    /// The bounds of the parser for a connection that has authenticated, or has not.
    pub(crate) fn wire_limits(&self, is_authenticated: bool) -> WireLimits {
        let limits = &self.options.limits;
        WireLimits {
            line_bytes_max: limits.line_bytes_max,
            // Arguments that are no values, such as patterns, must fit too.
            bulk_bytes_max: limits.bulk_bytes_max.min(self.store.limits().value_bytes_max.max(64 << 10)),
            command_bytes_max: limits.command_bytes_max,
            args_max: limits.args_max,
            unauthenticated: (!is_authenticated)
                .then_some((limits.unauthenticated_bulk_bytes_max, limits.unauthenticated_args_max)),
        }
    }

    pub(crate) fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database with this number, which SELECT names, if there is such a one.
    pub(crate) fn database(&self, number: &[u8]) -> Option<u16> {
        let number = u16::try_from(number::parse_i64(number)?).ok()?;
        (number < self.options.databases).then_some(number)
    }

    pub(crate) fn snapshots(&self) -> MutexGuard<'_, Snapshots> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn iterations(&self) -> MutexGuard<'_, Iterations> {
        locked(&self.iterations)
    }

    /// A sum over all reactors.
    pub(crate) fn total(&self, counter: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.counters.iter().map(|counters| counter(counters).load(Relaxed)).sum()
    }

    /// What the door tells about itself. The numbers are read one after the other, while connections go on.
    pub(crate) fn numbers(&self) -> DoorNumbers {
        let totals = DoorTotals {
            connections_accepted: self.total(|counters| &counters.connections),
            connections_rejected: self.rejected.load(Relaxed),
            commands: self.total(|counters| &counters.commands),
            errors: self.total(|counters| &counters.errors),
            hits: self.total(|counters| &counters.hits),
            misses: self.total(|counters| &counters.misses),
            received_bytes: self.total(|counters| &counters.input_bytes),
            sent_bytes: self.total(|counters| &counters.output_bytes),
        };
        DoorNumbers { connections: self.clients.len() as u64, totals: Some(totals), points: Some(self.points.totals()) }
    }
}
