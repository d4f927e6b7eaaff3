//! Loading a table into a type: at start, and single entries when they are asked for.
//!
//! What a loader writes does not go back to the table through the mirror that it stands beside. After a crash that can happen
//! once, with what was loaded.
//!
//! May use: `target`. Must not know: how mirrors follow.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{
    Document, Entries, Entry, Listen, Listener, ReadOptions, Reason, Value, ValueRef, Wanted, WriteMode, WriteOptions,
};
use holdfast::{Error, ErrorKind, Result, Store};
use tokio::runtime::Runtime;

use super::table::{Mapping, Table};
use super::target::{Address, Row, Target};
use super::{Database, Mirror, Refused, Shared, stopped, target};

/// How often a batch is tried when others write the same entries meanwhile.
const LOAD_TRIES_MAX: u32 = 100;
/// Rows that are asked for again at once.
const STALE_ROWS: usize = 500;
/// After so long without a row a load gives up: longer than connecting may take.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a load waits for the mirror beside it.
const MIRROR_TIME_MAX: Duration = Duration::from_secs(60);

fn silent(table: &Table) -> Error {
    let text = format!(
        "the table {} does not answer in time: the database is slow, or something there has locked it",
        table.name
    );
    Error::new(ErrorKind::Timeout, text)
}

/// What was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows of the table.
    pub rows: u64,
    /// Those that were written as entries; the others were there already.
    pub written: u64,
}

/// What was loaded of some ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadedIds {
    /// Those that have an entry now, in any order. One may have gone since, if others take or evict it.
    pub entries: Vec<Value>,
    /// How many of these entries were written, as they were not there.
    pub written: u64,
}

/// Ids of entries to which something happened since it was made. Their rows may be older than that: such an entry was taken, or written
/// and evicted again. That an entry was evicted alone says nothing of its row.
struct Changed {
    listener: Listener,
    ids: HashSet<String>,
}

impl Changed {
    fn of(entries: &Entries) -> Result<Self> {
        Ok(Self { listener: entries.listen(&Wanted::all(), Listen::default())?, ids: HashSet::new() })
    }

    fn hear(&mut self, id: &str) -> Result<()> {
        while let Some(notice) = self.listener.poll()? {
            if let Some(of) = notice.after.or(notice.before).filter(|_| notice.removed != Some(Reason::Evicted)) {
                self.ids.insert(key(of.get(id).unwrap_or(ValueRef::Null)));
            }
        }
        Ok(())
    }

    fn has(&self, id: &Value) -> bool {
        self.ids.contains(&key(id.stored().get()))
    }
}

/// What came of some rows.
#[derive(Default)]
struct Loading {
    loaded: LoadedIds,
    /// Those that may be older than what happened meanwhile: to be asked for again.
    stale: Vec<Value>,
}

/// An id as text, by which those of different kinds differ.
fn key(id: ValueRef<'_>) -> String {
    format!("{id:?}")
}

/// Loads entries of a type from a table.
///
/// Cheap to clone; clones share one connection, and so take turns.
///
/// Its calls block, and must not be made from within an asynchronous runtime: those that end in `_with` are for there.
#[derive(Clone)]
pub struct Loader {
    store: Store,
    entries: Entries,
    mapping: Arc<dyn Mapping>,
    address: Address,
    mirror: Option<Arc<Shared>>,
    session: Arc<Mutex<Session>>,
}

struct Session {
    target: Option<Target>,
    /// Always there until it is dropped.
    runtime: Option<Runtime>,
}

impl Session {
    fn parts(&mut self) -> (&Runtime, &mut Option<Target>) {
        (self.runtime.as_ref().expect("it is taken when this is dropped"), &mut self.target)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Who awaits loads may let go of the loader in a task of a runtime, where nobody may wait for another one's end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Loader {
    /// A loader from a table that nothing mirrors to. Blocks while certificates are read.
    ///
    /// # Errors
    /// `Invalid` when the target is not understood, or a certificate cannot be used.
    pub fn new(store: &Store, entries: &Entries, mapping: Arc<dyn Mapping>, database: &Database) -> Result<Self> {
        Self::of(store, entries, mapping, Address::of(database)?)
    }

    /// A loader from the table that this mirror follows in.
    ///
    /// # Errors
    /// `Invalid` when the mirror sets aside what is refused; `Unavailable` when the machine gives no more.
    pub fn beside(store: &Store, mirror: &Mirror) -> Result<Self> {
        let shared = &mirror.shared;
        if shared.options.refused == Refused::SetAside {
            let text = format!(
                "the mirror {} sets aside what its table refuses, so that rows there may be older than their entries: nothing is loaded from such a table",
                shared.options.name
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let this = Self::of(store, &shared.entries, Arc::clone(&shared.mapping), shared.address.clone())?;
        Ok(Self { mirror: Some(Arc::clone(shared)), ..this })
    }

    fn of(store: &Store, entries: &Entries, mapping: Arc<dyn Mapping>, address: Address) -> Result<Self> {
        let session = Arc::new(Mutex::new(Session { target: None, runtime: Some(target::runtime()?) }));
        Ok(Self { store: store.clone(), entries: entries.clone(), mapping, address, mirror: None, session })
    }

    /// Waits until the table has what was acknowledged, and tells what changes from then on; beside a mirror alone.
    fn catch_up(&self, wait: Duration) -> Result<Option<Changed>> {
        let Some(mirror) = &self.mirror else { return Ok(None) };
        let changed = Changed::of(&self.entries)?;
        mirror.catch_up(wait)?;
        Ok(Some(changed))
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the whole table, in batches of 500 rows. Entries that are there stay as they are. Beside a mirror it waits first, up to a
    /// minute, until the table has what was acknowledged, and asks again for rows to whose entries something happens meanwhile: what was taken does not come back, and nothing older
    /// stands in the place of what was written.
    ///
    /// # Errors
    /// `Timeout` when the mirror is behind for too long, or the table says nothing for half a minute; `Closed` when it is stopped, and `Unavailable` when it has ended or the database fails, then what was loaded by
    /// then stays; otherwise as [`Entries::write`].
    pub fn load(&self) -> Result<Loaded> {
        let mut changed = self.catch_up(MIRROR_TIME_MAX)?;
        let mut stale = Vec::new();
        let mut session = self.session();
        let (runtime, target) = session.parts();
        // A connection that was idle for long may be gone.
        *target = None;
        let mut loaded = Loaded::default();
        let heard = Cell::new(Instant::now());
        let work = async {
            let mut target = self.address.connect().await?;
            let mut write = |rows: &[Row]| {
                heard.set(Instant::now());
                self.mirror.as_ref().map_or(Ok(()), |mirror| mirror.check_goes_on())?;
                let documents = rows.iter().map(|row| target::document(&*self.mapping, row));
                let documents = documents.collect::<Result<Vec<_>>>()?;
                loaded.rows += documents.len() as u64;
                let came = self.write(&documents, changed.as_mut())?;
                loaded.written += came.loaded.written;
                stale.extend(came.stale);
                heard.set(Instant::now());
                Ok(())
            };
            target.rows(self.mapping.table(), &mut write).await
        };
        // A table that is locked says nothing at all.
        let silence = async {
            while heard.get().elapsed() < SILENCE_MAX {
                tokio::time::sleep(SILENCE_MAX - heard.get().elapsed().min(SILENCE_MAX)).await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                done = work => done,
                () = silence => Err(silent(self.mapping.table())),
                () = self.stopped() => Err(stopped()),
            }
        })?;
        drop(session);
        for some in stale.chunks(STALE_ROWS) {
            loaded.written += self.load_ids(some, MIRROR_TIME_MAX)?.written;
        }
        Ok(loaded)
    }

    /// When the mirror beside it is to stop: a table that is locked, or a database that is silent, is not waited for then.
    async fn stopped(&self) {
        let Some(mirror) = &self.mirror else { return std::future::pending().await };
        // An error would mean that it is gone.
        let _ = mirror.stops.subscribe().wait_for(|stops| *stops).await;
    }

    /// Reads the entry with this id; if the space has none, loads it from the table, as [`Loader::load_ids`] does.
    ///
    /// # Errors
    /// Those of [`Loader::load_ids`] and [`Entries::read`].
    pub fn read(&self, id: &Value, wait: Duration) -> Result<Option<Entry>> {
        let wanted = Wanted::id(id.clone());
        if let Some(entry) = self.entries.read(&wanted, &ReadOptions::default())? {
            return Ok(Some(entry));
        }
        self.load_ids(slice::from_ref(id), wait)?;
        self.entries.read(&wanted, &ReadOptions::default())
    }

    /// Loads the rows with these ids whose entries the space has not, in one batch, and says which ids have an entry by then. An id that has no row, or is of a kind that no key is, is passed over.
    /// Beside a mirror it waits first until the table has what was acknowledged, so that an entry that was taken does not come back. All that
    /// takes no longer than `wait`, besides what others hold the loader for.
    ///
    /// One that is written and taken again in the very moment of the loading is the exception: its row may be loaded.
    ///
    /// # Errors
    /// `Timeout` when the mirror is behind for too long, or the table does not answer; `Closed` when the mirror is stopped; `Unavailable` when it has ended or the database
    /// fails; `Invalid` when a row is no document of the type; otherwise as [`Entries::write`]. Then none was loaded.
    pub fn load_ids(&self, ids: &[Value], wait: Duration) -> Result<LoadedIds> {
        let deadline = Instant::now() + wait;
        let keys = ids.iter().filter_map(|id| self.mapping.key(id.stored().get()).ok());
        // Told once each, whoever asks for them.
        let mut keys: Vec<String> = keys.collect::<BTreeSet<_>>().into_iter().collect();
        let mut all = LoadedIds::default();
        while !keys.is_empty() {
            let Loading { loaded, stale } = self.load_keys(&keys, deadline)?;
            all.entries.extend(loaded.entries);
            all.written += loaded.written;
            keys = stale.iter().filter_map(|id| self.mapping.key(id.stored().get()).ok()).collect();
        }
        Ok(all)
    }

    /// The rows with these keys as they were when all that was acknowledged before was there.
    fn load_keys(&self, keys: &[String], deadline: Instant) -> Result<Loading> {
        let mut changed = self.catch_up(deadline.saturating_duration_since(Instant::now()))?;
        let mut session = self.session();
        let (runtime, target) = session.parts();
        let rows = runtime.block_on(async {
            tokio::select! {
                rows = self.fetch(target, keys) => rows,
                () = tokio::time::sleep_until(deadline.into()) => Err(silent(self.mapping.table())),
                () = self.stopped() => Err(stopped()),
            }
        })?;
        drop(session);
        let documents = rows.iter().map(|row| target::document(&*self.mapping, row)).collect::<Result<Vec<_>>>()?;
        self.write(&documents, changed.as_mut())
    }

    /// The rows with these keys. A connection that fails, or whose answer nobody waits for any more, is not kept.
    async fn fetch(&self, target: &mut Option<Target>, keys: &[String]) -> Result<Vec<Row>> {
        let table = self.mapping.table();
        // One that was kept may be gone, and is asked first.
        if let Some(mut kept) = target.take()
            && let Ok(rows) = kept.rows_of(table, keys).await
        {
            *target = Some(kept);
            return Ok(rows);
        }
        let mut connected = self.address.connect().await?;
        let rows = connected.rows_of(table, keys).await?;
        *target = Some(connected);
        Ok(rows)
    }

    /// Writes those that are not there and to which nothing happened meanwhile, in one batch.
    fn write(&self, documents: &[Document], mut changed: Option<&mut Changed>) -> Result<Loading> {
        let definition = self.entries.definition();
        let insert = WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
        for _ in 0..LOAD_TRIES_MAX {
            let (mut transaction, mut came) = (self.store.begin(), Loading::default());
            let mut absent = Vec::new();
            for document in documents {
                let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                if self.entries.read(&Wanted::id(id.clone()), &ReadOptions::default())?.is_none() {
                    absent.push((id, document));
                } else {
                    came.loaded.entries.push(id);
                }
            }
            // Behind that: whatever made one of them absent has been told by now.
            if let Some(changed) = &mut changed {
                changed.hear(&definition.id)?;
            }
            for (id, document) in absent {
                if changed.as_ref().is_some_and(|changed| changed.has(&id)) {
                    came.stale.push(id);
                } else {
                    match self.entries.within(&mut transaction).write(document, &insert) {
                        Err(error) if error.kind() == ErrorKind::Conflict => {}
                        other => {
                            other?;
                            came.loaded.written += 1;
                        }
                    }
                    // Somebody else has written it, if not this.
                    came.loaded.entries.push(id);
                }
            }
            if came.loaded.written == 0 {
                return Ok(came);
            }
            // Held until the position is noted, so that the mirror does not come to the batch before.
            let mut of_mirror = self.mirror.as_ref().map(|mirror| mirror.loaded());
            match transaction.commit(self.store.durability()) {
                Ok(committed) => {
                    if let Some(positions) = &mut of_mirror {
                        positions.insert(committed.position);
                    }
                    return Ok(came);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Conflict, "others write the entries that are to be loaded: load again"))
    }
}
