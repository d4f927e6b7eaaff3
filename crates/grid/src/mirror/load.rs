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

use super::table::Mapping;
use super::target::{Address, Row, Target};
use super::{Database, Mirror, Shared, target};

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
    address: Address,
    mirror: Option<Arc<Shared>>,
    session: Mutex<Session>,
}

struct Session {
    runtime: Runtime,
    target: Option<Target>,
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
    /// `Unavailable` when the machine gives no more.
    pub fn beside(store: &Store, mirror: &Mirror) -> Result<Self> {
        let shared = &mirror.shared;
        let this = Self::of(store, &shared.entries, Arc::clone(&shared.mapping), shared.address.clone())?;
        Ok(Self { mirror: Some(Arc::clone(shared)), ..this })
    }

    fn of(store: &Store, entries: &Entries, mapping: Arc<dyn Mapping>, address: Address) -> Result<Self> {
        let session = Mutex::new(Session { runtime: target::runtime()?, target: None });
        Ok(Self { store: store.clone(), entries: entries.clone(), mapping, address, mirror: None, session })
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the whole table, in batches of 500 rows. Entries that are there stay as they are. Beside a mirror do so before
    /// others write: a row whose entry was taken, and which the mirror has not removed yet, is loaded again.
    ///
    /// # Errors
    /// `Unavailable` when the database fails, then what was loaded by then stays; otherwise as [`Entries::write`].
    pub fn load(&self) -> Result<Loaded> {
        let mut session = self.session();
        let Session { runtime, target } = &mut *session;
        // A connection that was idle for long may be gone.
        *target = None;
        let mut loaded = Loaded::default();
        runtime.block_on(async {
            let mut target = self.address.connect().await?;
            let mut write = |rows: &[Row]| {
                let documents = rows.iter().map(|row| target::document(&*self.mapping, row));
                let documents = documents.collect::<Result<Vec<_>>>()?;
                loaded.rows += documents.len() as u64;
                loaded.written += self.write(&documents)?;
                Ok(())
            };
            target.rows(self.mapping.table(), &mut write).await
        })?;
        Ok(loaded)
    }

    /// Reads the entry with this id; if the space has none, loads it from the table. Beside a mirror it waits first, up to
    /// `wait`, until the table has what was acknowledged, so that an entry that was taken does not come back.
    ///
    /// One that is written and taken again between that and the loading is the exception: its row may be loaded.
    ///
    /// # Errors
    /// `Timeout` when the mirror is behind for too long; `Unavailable` when the database fails; otherwise as [`Entries::read`].
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
        let Session { runtime, target } = &mut *session;
        let row = runtime.block_on(async {
            let table = self.mapping.table();
            // A connection that was kept may be gone, and is asked first.
            if let Some(mut kept) = target.take()
                && let Ok(row) = kept.row(table, key).await
            {
                *target = Some(kept);
                return Ok::<_, Error>(row);
            }
            let mut connected = self.address.connect().await?;
            let row = connected.row(table, key).await?;
            *target = Some(connected);
            Ok(row)
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
