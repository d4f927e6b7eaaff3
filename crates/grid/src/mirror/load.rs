//! Loading a table into a type: at start, and one entry when it is asked for.
//!
//! What a loader writes does not go back to the table through the mirror that it stands beside. After a crash that can happen
//! once, with what was loaded.
//!
//! May use: `target`. Must not know: how mirrors follow.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast::space::{Document, Entries, Entry, ReadOptions, Value, ValueRef, Wanted, WriteMode, WriteOptions};
use holdfast::{Error, ErrorKind, Result, Store};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use super::table::Mapping;
use super::{Mirror, Shared, target};

/// Rows that are written as one batch.
const LOAD_ROWS: i32 = 500;
/// How often a batch is tried when others write the same entries meanwhile.
const LOAD_TRIES_MAX: u32 = 100;

/// What was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows of the table.
    pub rows: u64,
    /// Those that were written as entries; the others were there already.
    pub written: u64,
}

/// Loads entries of a type from a table.
///
/// Its calls block, and must not be made from within an asynchronous runtime.
pub struct Loader {
    store: Store,
    entries: Entries,
    mapping: Arc<dyn Mapping>,
    target: String,
    mirror: Option<Arc<Shared>>,
    session: Mutex<Session>,
}

struct Session {
    runtime: Runtime,
    client: Option<Client>,
}

impl Loader {
    /// A loader from a table that nothing mirrors to.
    ///
    /// # Errors
    /// `Invalid` when the target is not understood.
    pub fn new(store: &Store, entries: &Entries, mapping: Arc<dyn Mapping>, target: &str) -> Result<Self> {
        target::parse(target)?;
        let session = Mutex::new(Session { runtime: target::runtime()?, client: None });
        let (store, entries) = (store.clone(), entries.clone());
        Ok(Self { store, entries, mapping, target: target.to_owned(), mirror: None, session })
    }

    /// A loader from the table that this mirror follows in.
    ///
    /// # Errors
    /// As [`Loader::new`].
    pub fn beside(store: &Store, mirror: &Mirror) -> Result<Self> {
        let shared = &mirror.shared;
        let this = Self::new(store, &shared.entries, Arc::clone(&shared.mapping), &shared.options.target)?;
        Ok(Self { mirror: Some(Arc::clone(shared)), ..this })
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the whole table, in batches of 500 rows. Entries that are there stay as they are. Beside a mirror do so before
    /// others write: a row whose entry was taken, and which the mirror has not removed yet, is loaded again.
    ///
    /// # Errors
    /// `Unavailable` when PostgreSQL fails, then what was loaded by then stays; otherwise as [`Entries::write`].
    pub fn load(&self) -> Result<Loaded> {
        let mut session = self.session();
        let Session { runtime, client } = &mut *session;
        // A connection that was idle for long may be gone.
        *client = None;
        let mut loaded = Loaded::default();
        let sql = target::select(self.mapping.table());
        runtime.block_on(async {
            let mut connected = target::connect(&self.target).await?;
            let transaction = connected.transaction().await.map_err(|error| target::down(&error))?;
            let portal = transaction.bind(&sql, &[]).await.map_err(|error| target::down(&error))?;
            loop {
                let rows = transaction.query_portal(&portal, LOAD_ROWS).await.map_err(|error| target::down(&error))?;
                if rows.is_empty() {
                    return Ok(loaded);
                }
                let documents = rows.iter().map(|row| target::document(&*self.mapping, row));
                let documents = documents.collect::<Result<Vec<_>>>()?;
                loaded.rows += documents.len() as u64;
                loaded.written += self.write(&documents)?;
            }
        })
    }

    /// Reads the entry with this id; if the space has none, loads it from the table. Beside a mirror it waits first, up to
    /// `wait`, until the table has what was acknowledged, so that an entry that was taken does not come back.
    ///
    /// One that is written and taken again between that and the loading is the exception: its row may be loaded.
    ///
    /// # Errors
    /// `Timeout` when the mirror is behind for too long; `Unavailable` when PostgreSQL fails; otherwise as [`Entries::read`].
    pub fn read(&self, id: &Value, wait: Duration) -> Result<Option<Entry>> {
        let wanted = Wanted::id(id.clone());
        if let Some(entry) = self.entries.read(&wanted, &ReadOptions::default())? {
            return Ok(Some(entry));
        }
        if self.mirror.as_ref().is_some_and(|mirror| !mirror.flush(wait)) {
            return Err(Error::new(ErrorKind::Timeout, "the mirror is behind: what the table has is too old to load"));
        }
        let Some(document) = self.fetch(&self.mapping.key(id.stored().get())?)? else { return Ok(None) };
        self.write(&[document])?;
        self.entries.read(&wanted, &ReadOptions::default())
    }

    /// The document of one row.
    fn fetch(&self, key: &str) -> Result<Option<Document>> {
        let mut session = self.session();
        let Session { runtime, client } = &mut *session;
        let sql = target::select_one(self.mapping.table());
        let row = runtime.block_on(async {
            let connected = match client.take().filter(|client| !client.is_closed()) {
                Some(connected) => connected,
                None => target::connect(&self.target).await?,
            };
            let row = connected.query_opt(&sql, &[&key]).await.map_err(|error| target::down(&error))?;
            *client = Some(connected);
            Ok::<_, Error>(row)
        })?;
        row.map(|row| target::document(&*self.mapping, &row)).transpose()
    }

    /// Writes those that are not there, in one batch; returns how many.
    fn write(&self, documents: &[Document]) -> Result<u64> {
        let definition = self.entries.definition();
        let insert = WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
        for _ in 0..LOAD_TRIES_MAX {
            let (mut transaction, mut written) = (self.store.begin(), 0);
            for document in documents {
                let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                if self.entries.read(&Wanted::id(id), &ReadOptions::default())?.is_none() {
                    match self.entries.within(&mut transaction).write(document, &insert) {
                        Err(error) if error.kind() == ErrorKind::Conflict => {}
                        other => {
                            other?;
                            written += 1;
                        }
                    }
                }
            }
            if written == 0 {
                return Ok(0);
            }
            // Held until the position is noted, so that the mirror does not come to the batch before.
            let mut loaded = self.mirror.as_ref().map(|mirror| mirror.loaded());
            match transaction.commit(self.store.durability()) {
                Ok(committed) => {
                    if let Some(loaded) = &mut loaded {
                        loaded.insert(committed.position);
                    }
                    return Ok(written);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Conflict, "others write the entries that are to be loaded: load again"))
    }
}
