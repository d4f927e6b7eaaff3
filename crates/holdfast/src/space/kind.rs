//! The types of the store's spaces as operations see them: their definitions, who waits for entries, who listens.
//!
//! What a type is lies in each partition's engine, from the journal. Here is what ends with the process.
//!
//! May use: `space`. Must not know: operations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ::space::{Definition, Storage, TypeId};
use arc_swap::{ArcSwap, Guard};
use base::Signal;

use super::listen::Listeners;
use super::locks::Locks;
use super::space_limit::SpaceMemory;
use super::task::Function;
use super::through::Tables;
use super::wait::Waiters;
use crate::error::{Error, ErrorKind, Result};

/// Bits of a generated id that count within a millisecond.
const ID_COUNT_BITS: u32 = 20;
/// The same of a version that is no position. A double holds it exactly until 2039, as scripts and clients in JavaScript have numbers.
const VERSION_COUNT_BITS: u32 = 12;

/// One type.
pub(crate) struct Kind {
    pub(crate) of: TypeId,
    definition: ArcSwap<Definition>,
    /// What the whole space may take.
    pub(crate) memory: Arc<SpaceMemory>,
    is_dropped: AtomicBool,
    pub(crate) waiters: Waiters,
    pub(crate) listeners: Listeners,
    /// Tables outside that follow it.
    pub(super) tables: Tables,
    /// Where the next search begins that may begin anywhere, so that many takers do not all go for the same partition.
    pub(crate) turn: AtomicUsize,
}

impl Kind {
    pub(crate) fn new(of: TypeId, definition: Arc<Definition>, memory: Arc<SpaceMemory>) -> Self {
        Self {
            of,
            definition: ArcSwap::new(definition),
            memory,
            is_dropped: AtomicBool::new(false),
            waiters: Waiters::default(),
            listeners: Listeners::default(),
            tables: Tables::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// What it is now; who keeps it beyond an operation clones it. All operations ask, from all processors, and a lock or a count that they share took
    /// as long as the rest of a write.
    pub(crate) fn definition(&self) -> Guard<Arc<Definition>> {
        self.definition.load()
    }

    /// Whether its entries are in the journal.
    pub(crate) fn is_durable(&self) -> bool {
        self.definition().storage == Storage::Durable
    }

    pub(crate) fn redefine(&self, definition: Arc<Definition>) {
        self.definition.store(definition);
    }

    pub(crate) fn drop_it(&self) {
        self.is_dropped.store(true, Ordering::SeqCst);
        self.end_waiting(&Error::new(ErrorKind::Invalid, "the type was dropped"));
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::SeqCst)
    }

    /// Tells all who wait for entries or events that there will be none.
    pub(crate) fn end_waiting(&self, error: &Error) {
        self.waiters.end_all(error);
        self.listeners.wake_all();
    }

    /// Refuses work with a type that is gone.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_dropped() {
            let name = self.definition().name.clone();
            return Err(Error::new(ErrorKind::Invalid, format!("the type {name} was dropped: declare it again")));
        }
        Ok(())
    }
}

/// All types, by space and name.
#[derive(Default)]
pub(crate) struct Registry {
    kinds: RwLock<BTreeMap<String, BTreeMap<String, Arc<Kind>>>>,
    by_id: RwLock<BTreeMap<TypeId, Arc<Kind>>>,
    /// What spaces may take, by name: all that had a type since the store was opened, or a limit.
    memories: Mutex<BTreeMap<String, Arc<SpaceMemory>>>,
    /// The highest number that a type was ever given; held while types are declared and dropped.
    pub(crate) declaring: Mutex<u32>,
    /// Held while snapshots are written, and while they are copied.
    pub(crate) snapshots: Mutex<()>,
    /// Has whoever writes them look whether the store ends.
    pub(crate) snapshot_wake: Signal,
    turn: AtomicUsize,
    versions: AtomicU64,
    ids: AtomicU64,
    pub(crate) locks: Locks,
    /// Functions that programs have registered, by space and name.
    functions: RwLock<BTreeMap<(String, String), Function>>,
    /// Types that a table outside is to follow, by space and name, whether that has begun or not.
    expected: RwLock<BTreeSet<(String, String)>>,
}

impl Registry {
    pub(crate) fn register(&self, space: &str, name: &str, function: Function) {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.insert((space.to_owned(), name.to_owned()), function);
    }

    pub(super) fn expect_table(&self, space: &str, name: &str) {
        let mut expected = self.expected.write().unwrap_or_else(PoisonError::into_inner);
        expected.insert((space.to_owned(), name.to_owned()));
    }

    pub(super) fn expects_table(&self, definition: &Definition) -> bool {
        let expected = self.expected.read().unwrap_or_else(PoisonError::into_inner);
        expected.contains(&(definition.space.clone(), definition.name.clone()))
    }

    pub(crate) fn function(&self, space: &str, name: &str) -> Option<Function> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(&(space.to_owned(), name.to_owned())).cloned()
    }

    /// Names of the functions that are registered in a space.
    pub(crate) fn functions_of(&self, space: &str) -> Vec<String> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.keys().filter(|(of, _)| of == space).map(|(_, name)| name.clone()).collect()
    }

    pub(crate) fn find(&self, space: &str, name: &str) -> Option<Arc<Kind>> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        kinds.get(space)?.get(name).cloned()
    }

    pub(crate) fn get(&self, of: TypeId) -> Option<Arc<Kind>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(&of).cloned()
    }

    pub(crate) fn add(&self, kind: Arc<Kind>) {
        let definition = kind.definition();
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(kind.of, Arc::clone(&kind));
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        kinds.entry(definition.space.clone()).or_default().insert(definition.name.clone(), kind);
    }

    pub(crate) fn remove(&self, kind: &Kind) {
        let definition = kind.definition();
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&kind.of);
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_space) = kinds.get_mut(&definition.space) {
            of_space.remove(&definition.name);
            if of_space.is_empty() {
                kinds.remove(&definition.space);
            }
        }
    }

    /// What the space may take.
    pub(crate) fn memory_of(&self, space: &str) -> Arc<SpaceMemory> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(memories.entry(space.to_owned()).or_default())
    }

    /// The spaces in which types were declared.
    pub(crate) fn names(&self) -> Vec<String> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// All types; of one space if one is named.
    pub(crate) fn list(&self, space: Option<&str>) -> Vec<Arc<Kind>> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        let of_space = |(name, _): &(&String, _)| space.is_none_or(|space| space == *name);
        kinds.iter().filter(of_space).flat_map(|(_, kinds)| kinds.values().cloned()).collect()
    }

    /// Where a search begins that may begin anywhere.
    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The version of something that is in no journal: never given twice.
    pub(crate) fn next_version(&self, now_ms: u64) -> u64 {
        next(&self.versions, now_ms << VERSION_COUNT_BITS)
    }

    /// No id up to this one is given again, whatever the clock says.
    pub(crate) fn note_id(&self, id: i64) {
        self.ids.fetch_max(u64::try_from(id).unwrap_or(0), Ordering::Relaxed);
    }

    /// An id for an entry that came without: they go up with time.
    pub(crate) fn next_id(&self, now_ms: u64) -> i64 {
        next(&self.ids, now_ms << ID_COUNT_BITS).cast_signed()
    }
}

fn next(last: &AtomicU64, least: u64) -> u64 {
    let step = |last: u64| Some((last + 1).max(least));
    last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).map_or(least, step_of(least))
}

fn step_of(least: u64) -> impl Fn(u64) -> u64 {
    move |last| (last + 1).max(least)
}
