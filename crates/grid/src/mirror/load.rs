//! Loading a table into a type: at start, and one entry when it is asked for.
//!
//! What a loader writes does not go back to the table through the mirror that it stands beside. After a crash that can happen
//! once, with what was loaded.
//!
//! May use: `target`. Must not know: how mirrors follow.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast::space::{
    Document, Entries, Entry, Listen, Listener, ReadOptions, Reason, Value, ValueRef, Wanted, WriteMode, WriteOptions,
};
use holdfast::{Error, ErrorKind, Result, Store};
use tokio::runtime::Runtime;

use super::table::Mapping;
use super::target::{Address, Row, Target};
use super::{Database, Mirror, Shared, stopped, target};

/// How often a batch is tried when others write the same entries meanwhile.
const LOAD_TRIES_MAX: u32 = 100;
/// How long a load waits for the mirror beside it.
const MIRROR_TIME_MAX: Duration = Duration::from_secs(60);

/// What was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows of the table.
    pub rows: u64,
    /// Those that were written as entries; the others were there already.
    pub written: u64,
}

/// Ids of entries that went since it was made, so that their rows are not loaded.
struct Gone {
    listener: Listener,
    ids: HashSet<String>,
}

impl Gone {
    fn of(entries: &Entries) -> Result<Self> {
        Ok(Self { listener: entries.listen(&Wanted::all(), Listen::default())?, ids: HashSet::new() })
    }

    fn hear(&mut self, id: &str) -> Result<()> {
        while let Some(notice) = self.listener.poll()? {
            // What was evicted went from memory alone.
            let is_gone = notice.after.is_none() && notice.removed != Some(Reason::Evicted);
            if let Some(before) = notice.before.filter(|_| is_gone) {
                self.ids.insert(key(before.get(id).unwrap_or(ValueRef::Null)));
            }
        }
        Ok(())
    }

    fn has(&self, id: &Value) -> bool {
        self.ids.contains(&key(id.stored().get()))
    }
}

/// An id as text, by which those of different kinds differ.
fn key(id: ValueRef<'_>) -> String {
    format!("{id:?}")
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

    /// Waits until the table has what was acknowledged, and tells what goes from then on; beside a mirror alone.
    fn catch_up(&self, wait: Duration) -> Result<Option<Gone>> {
        let Some(mirror) = &self.mirror else { return Ok(None) };
        let gone = Gone::of(&self.entries)?;
        mirror.catch_up(wait)?;
        Ok(Some(gone))
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the whole table, in batches of 500 rows. Entries that are there stay as they are. Beside a mirror it waits first, up to a
    /// minute, until the table has what was acknowledged, and passes over rows whose entries go meanwhile: what was taken does not come back.
    ///
    /// # Errors
    /// `Timeout` when the mirror is behind for too long; `Closed` when it is stopped, and `Unavailable` when it has ended or the database fails, then what was loaded by
    /// then stays; otherwise as [`Entries::write`].
    pub fn load(&self) -> Result<Loaded> {
        let mut gone = self.catch_up(MIRROR_TIME_MAX)?;
        let mut session = self.session();
        let Session { runtime, target } = &mut *session;
        // A connection that was idle for long may be gone.
        *target = None;
        let mut loaded = Loaded::default();
        let work = async {
            let mut target = self.address.connect().await?;
            let mut write = |rows: &[Row]| {
                self.mirror.as_ref().map_or(Ok(()), |mirror| mirror.check_goes_on())?;
                let documents = rows.iter().map(|row| target::document(&*self.mapping, row));
                let documents = documents.collect::<Result<Vec<_>>>()?;
                loaded.rows += documents.len() as u64;
                loaded.written += self.write(&documents, gone.as_mut())?;
                Ok(())
            };
            target.rows(self.mapping.table(), &mut write).await
        };
        runtime.block_on(async {
            tokio::select! {
                done = work => done,
                () = self.stopped() => Err(stopped()),
            }
        })?;
        Ok(loaded)
    }

    /// When the mirror beside it is to stop: a table that is locked, or a database that is silent, is not waited for then.
    async fn stopped(&self) {
        let Some(mirror) = &self.mirror else { return std::future::pending().await };
        // An error would mean that it is gone.
        let _ = mirror.stops.subscribe().wait_for(|stops| *stops).await;
    }

    /// Reads the entry with this id; if the space has none, loads it from the table. Beside a mirror it waits first, up to
    /// `wait`, until the table has what was acknowledged, so that an entry that was taken does not come back.
    ///
    /// One that is written and taken again in the very moment of the loading is the exception: its row may be loaded.
    ///
    /// # Errors
    /// `Timeout` when the mirror is behind for too long; `Unavailable` when it has ended or the database fails; otherwise as
    /// [`Entries::read`].
    pub fn read(&self, id: &Value, wait: Duration) -> Result<Option<Entry>> {
        let wanted = Wanted::id(id.clone());
        if let Some(entry) = self.entries.read(&wanted, &ReadOptions::default())? {
            return Ok(Some(entry));
        }
        let mut gone = self.catch_up(wait)?;
        let Some(document) = self.fetch(&self.mapping.key(id.stored().get())?)? else { return Ok(None) };
        self.write(&[document], gone.as_mut())?;
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

    /// Writes those that are not there and have not gone meanwhile, in one batch; returns how many.
    fn write(&self, documents: &[Document], mut gone: Option<&mut Gone>) -> Result<u64> {
        let definition = self.entries.definition();
        let insert = WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
        for _ in 0..LOAD_TRIES_MAX {
            let (mut transaction, mut written) = (self.store.begin(), 0);
            let mut absent = Vec::new();
            for document in documents {
                let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                if self.entries.read(&Wanted::id(id.clone()), &ReadOptions::default())?.is_none() {
                    absent.push((id, document));
                }
            }
            // Behind that: whatever made one of them absent has been told by now.
            if let Some(gone) = &mut gone {
                gone.hear(&definition.id)?;
            }
            for (id, document) in absent {
                if gone.as_ref().is_none_or(|gone| !gone.has(&id)) {
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
