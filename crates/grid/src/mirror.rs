//! A mirror: a table in PostgreSQL or MariaDB that follows a type, after the fact and in order, and before the answer where
//! that is asked for.
//!
//! The mirror listens to the type from the bookmark that stands in the target. It applies events in batches, never a part of
//! what one Holdfast batch did, and writes the bookmark behind them into `holdfast_mirror` in the same transaction of the
//! target. So each event takes effect exactly once, whoever crashes when. What the answer to a COMMIT would have been, if it
//! got lost, is read from the bookmark.
//!
//! A mirror that was never there begins with a copy of all entries, in one transaction of the target.
//!
//! What the target refuses for what is in it stops a mirror, or is set aside there: see `aside`.
//!
//! May use: `holdfast`, `tm` for connections, calls of the client library. Must not know: workers, views.

mod aside;
mod awaited;
mod columns;
mod follow;
mod hex;
mod load;
mod table;
mod target;
mod through;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast::space::{AtLimit, Definition, Entries, Storage};
use holdfast::{Error, ErrorKind, Position, Result};
use tm::DatabaseTls;
use tokio::sync::{Notify, watch};

use crate::backoff::Backoff;
pub use columns::{ColumnKind, ColumnTable, Columns, FieldColumn, Rest};
pub use load::{Loaded, LoadedIds, Loader};
pub use table::{Column, DocumentTable, IdKind, Mapping, Table};
use target::Address;
use through::Request;

/// Where a database is, and how it is reached.
#[derive(Clone)]
pub struct Database {
    /// PostgreSQL, such as `host=127.0.0.1 user=postgres dbname=shop` or `postgres://postgres@127.0.0.1/shop`, or MariaDB, such as
    /// `mysql://shop@127.0.0.1:3306/shop`.
    pub address: String,
    /// By TLS, and never without: the server is verified.
    pub tls: Option<DatabaseTls>,
}

impl Database {
    /// A database that is reached without TLS.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), tls: None }
    }

    /// Whether it can be understood, without a word to it. Blocks while certificates are read.
    ///
    /// # Errors
    /// `Invalid` when the address is not understood, or a certificate cannot be used.
    pub fn check(&self) -> Result<()> {
        Address::of(self).map(drop)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("Database").field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// What becomes of a transaction with a row that the table refuses for what is in it: a value that does not fit its column, a constraint that it breaks, a text that
/// the database cannot have, an entry for which the mapping has no row.
///
/// That the database is away, full or shut, that there is no such table or column, and that rights are missing, is never of a row: it is tried again until it goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Refused {
    /// The mirror stands still at it, and tries again until somebody has mended the table. The journal keeps it, and all that comes behind, until then.
    #[default]
    Stop,
    /// It is written into the table `holdfast_refused` of the target and not applied, as a whole and once, and the mirror goes on behind it. Of the copy that a mirror begins
    /// with, single entries are. Entries must not come back from such a table: it may have an older document than the space.
    SetAside,
}

/// How to mirror.
#[derive(Debug, Clone)]
pub struct MirrorOptions {
    /// The mirror's name in `holdfast_mirror`: one for each type that one target mirrors. Two mirrors of one name notice each
    /// other, and the later waits.
    pub name: String,
    /// Where the table is.
    pub target: Database,
    /// About how many events go into one transaction of the target: a Holdfast batch is never split.
    pub batch_events_max: usize,
    /// What becomes of a transaction with a row that the table refuses.
    pub refused: Refused,
    /// How long to wait before a target that failed is tried again.
    pub backoff: Backoff,
}

impl MirrorOptions {
    /// A mirror of this name in the database of this address, without TLS.
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> Self {
        let target = Database::new(address);
        Self { name: name.into(), target, batch_events_max: 1000, refused: Refused::Stop, backoff: Backoff::default() }
    }

    /// By TLS, and never without.
    #[must_use]
    pub fn with_tls(mut self, tls: DatabaseTls) -> Self {
        self.target.tls = Some(tls);
        self
    }
}

/// What a mirror has done since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Transactions of the target that were committed.
    pub transactions: u64,
    /// Events that they held.
    pub events: u64,
    /// The position up to which the target has everything.
    pub position: Position,
    /// Transactions that were set aside, and entries of the copy that it began with.
    pub set_aside: u64,
    /// Why the last of those was.
    pub refusal: Option<String>,
    /// Times that the target failed, and was or will be tried again.
    pub failures: u64,
    /// Why it failed last, if it has not worked since.
    pub trouble: Option<String>,
    /// Why the mirror has given up, if it has: the journal does not reach back to the bookmark.
    pub ended: Option<String>,
}

#[derive(Default)]
struct State {
    stats: MirrorStats,
    stops: bool,
    /// How often somebody asked whether everything is there.
    asked: u64,
    /// The last of those that was answered.
    answered: u64,
    /// How often a transaction was to be written through.
    requested: u64,
    /// Transactions that wait to be written through, by the number that they have of those.
    requests: VecDeque<Request>,
}

struct Shared {
    entries: Entries,
    mapping: Arc<dyn Mapping>,
    options: MirrorOptions,
    address: Address,
    state: Mutex<State>,
    changed: Condvar,
    wake: Notify,
    stopping: Notify,
    /// Positions of batches that a [`Loader`] wrote, and that have no need to go back; held while one is written.
    loaded: Mutex<BTreeSet<Position>>,
    /// True from when it is to stop: for loads beside it.
    stops: watch::Sender<bool>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self) -> MutexGuard<'_, BTreeSet<Position>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A table that follows a type. Dropping it stops it; the next one goes on where it stood.
pub struct Mirror {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Starts to follow. The database need not be there yet: it is tried again until it is.
    ///
    /// An entry that is evicted to make room stays in the table; one that is taken, cleared or expires goes.
    ///
    /// # Errors
    /// `Invalid` when the type is volatile or has no history, or has a routing and the mapping does not say that its ids are unique, or evicts entries while what is refused is to be set aside, the mirror has no name, the target is not understood, or a certificate cannot be used;
    /// `Unavailable` when there is no thread.
    pub fn start(entries: &Entries, mapping: Arc<dyn Mapping>, options: MirrorOptions) -> Result<Self> {
        check(&entries.definition(), &*mapping, options.refused)?;
        if options.name.is_empty() {
            let text = "a mirror needs a name of its own, by which its database knows how far it has come";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let address = Address::of(&options.target)?;
        let shared = Arc::new(Shared {
            entries: entries.clone(),
            mapping,
            options,
            address,
            state: Mutex::default(),
            changed: Condvar::new(),
            wake: Notify::new(),
            stopping: Notify::new(),
            loaded: Mutex::default(),
            stops: watch::Sender::new(false),
        });
        // Here and not in the thread: from when this returns, compaction lets go of nothing that the target may not have.
        let first = shared.first()?;
        let of_thread = Arc::clone(&shared);
        let runtime = target::runtime()?;
        let thread = std::thread::Builder::new().name("mirror".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(of_thread.run(first));
            // A name that is being looked up is waited for by nobody.
            runtime.shutdown_background();
        });
        let thread = thread.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}")))?;
        let table: Weak<Shared> = Arc::downgrade(&shared);
        entries.follow_in(table);
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> MirrorStats {
        self.shared.state().stats.clone()
    }

    /// Blocks until the target has everything that was acknowledged before the call; false when that took too long.
    #[must_use]
    pub fn flush(&self, wait: Duration) -> bool {
        self.shared.flush(wait)
    }

    /// Tells it to stop, and does not wait: it does when what is in work is in the target, or cannot be now. Loads beside it that are under way end with `Closed`.
    pub fn request_stop(&self) {
        self.shared.state().stops = true;
        self.shared.stops.send_replace(true);
        self.shared.wake.notify_one();
        self.shared.stopping.notify_one();
        self.shared.changed.notify_all();
    }

    /// Stops when what is in work is in the target, or cannot be now. Blocks until then.
    pub fn stop(mut self) -> MirrorStats {
        self.end();
        self.stats()
    }

    fn end(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is a fault that the test harness and the log have shown.
            let _ = thread.join();
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Waits until the target has what was acknowledged before.
    fn catch_up(&self, wait: Duration) -> Result<()> {
        if self.flush(wait) {
            return Ok(());
        }
        let (stats, stops) = (self.state().stats.clone(), *self.stops.borrow());
        Err(match (stats.ended, stats.trouble) {
            (None, _) if stops => stopped(),
            (Some(why), _) => Error::new(ErrorKind::Unavailable, format!("the mirror beside it has ended: {why}")),
            (None, why) => {
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                let text = format!("the mirror is behind{why}: what the table has is too old to load");
                Error::new(ErrorKind::Timeout, text)
            }
        })
    }

    fn check_goes_on(&self) -> Result<()> {
        if *self.stops.borrow() { Err(stopped()) } else { Ok(()) }
    }

    fn flush(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        let mut state = self.state();
        state.asked += 1;
        let mine = state.asked;
        self.wake.notify_one();
        while state.answered < mine {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.stops || state.stats.ended.is_some() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Closed, "the mirror beside it was stopped")
}

fn check(definition: &Definition, mapping: &dyn Mapping, refused: Refused) -> Result<()> {
    let name = &definition.name;
    if definition.storage == Storage::Volatile {
        let text = format!("the type {name} is volatile, and so has no bookmarks: mirror a durable one");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    if !definition.history {
        let text = format!("the type {name} has no history: declare it with history to mirror it");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    if refused == Refused::SetAside && definition.at_limit == AtLimit::Evict {
        let text = format!(
            "entries of the type {name} are evicted, and would be lost where what the table refuses is set aside: have the mirror stop at it"
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    if let Some(path) = definition.routed_by().filter(|_| !mapping.has_unique_ids()) {
        let text = format!(
            "entries of the type {name} are told apart by {path} too, and rows by the id alone: have the mapping say that ids are unique"
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdfast::space::Path;

    use super::*;

    #[test]
    fn a_mirror_has_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = holdfast::Store::open(dir.path(), holdfast::Options::default()).unwrap();
        let definition = Definition { history: true, ..Definition::new("shop", "order") };
        let orders = store.space("shop").declare(definition).unwrap();
        let mapping = Arc::new(DocumentTable::of(&orders.definition(), IdKind::Integer));
        let error = Mirror::start(&orders, mapping, MirrorOptions::new("", "host=127.0.0.1 user=shop")).err().unwrap();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("needs a name"), "{error}");
    }

    /// Two entries with one id and different routing were one row, and it went with the first of them.
    #[test]
    fn a_type_with_a_routing_is_mirrored_when_its_ids_are_said_to_be_unique() {
        let plain = Definition { history: true, ..Definition::new("shop", "order") };
        let mapping = DocumentTable::of(&plain, IdKind::Integer);
        check(&plain, &mapping, Refused::Stop).unwrap();
        let routed = Definition { routing: Some(Path::parse("city").unwrap()), ..plain };
        let error = check(&routed, &mapping, Refused::Stop).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("city"), "{error}");
        check(&routed, &mapping.with_unique_ids(), Refused::Stop).unwrap();
    }

    /// The row that is older than the entry would come back in its place.
    #[test]
    fn of_a_type_that_evicts_nothing_is_set_aside() {
        let evicts = Definition { history: true, at_limit: AtLimit::Evict, ..Definition::new("shop", "order") };
        let mapping = DocumentTable::of(&evicts, IdKind::Integer);
        check(&evicts, &mapping, Refused::Stop).unwrap();
        let error = check(&evicts, &mapping, Refused::SetAside).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("order are evicted"), "{error}");
        let refuses = Definition { at_limit: AtLimit::Refuse, ..evicts };
        check(&refuses, &mapping, Refused::SetAside).unwrap();
    }
}
