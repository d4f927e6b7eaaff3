//! A ledger in memory that keeps what was written out through a crash, and loses the rest: for simulations.
//!
//! May use: nothing. Must not know: files.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::{PartitionId, Position};

use super::{Entries, Ledger, Ledgers, Slice};
use crate::error::{Error, Result};

type Versions = BTreeMap<(Vec<u8>, std::cmp::Reverse<Position>), Option<Slice>>;

#[derive(Default, Clone)]
struct Disk {
    versions: Versions,
    persisted: Option<Position>,
}

/// Ledgers whose written-out part survives [`Ledgers::open`], as a disk would keep it. Clones share it.
#[derive(Default, Clone)]
pub struct MemoryLedgers(Arc<Mutex<Home>>);

#[derive(Default)]
struct Home {
    disks: BTreeMap<PartitionId, Disk>,
    /// Counts processes: ledgers opened by an earlier one write out nothing any more.
    process: u64,
}

impl MemoryLedgers {
    /// No ledgers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything, as a deleted ledger folder does.
    pub fn delete_all(&self) {
        lock(&self.0).disks.clear();
    }

    /// Ends the process that opened ledgers here, as a kill would.
    pub fn kill_process(&self) {
        lock(&self.0).process += 1;
    }
}

impl Ledgers for MemoryLedgers {
    fn open(&self, partition: PartitionId) -> Result<Arc<dyn Ledger>> {
        let home = lock(&self.0);
        let disk = home.disks.get(&partition).cloned().unwrap_or_default();
        let state = State { live: disk.versions, persisted: disk.persisted, ..State::default() };
        let process = home.process;
        Ok(Arc::new(MemoryLedger { home: self.clone(), partition, process, state: Mutex::new(state) }))
    }

    fn condemn(&self, partition: PartitionId) -> Result<()> {
        lock(&self.0).disks.remove(&partition);
        Ok(())
    }
}

#[derive(Default)]
struct State {
    live: Versions,
    persisted: Option<Position>,
    rotated: Option<Position>,
    last: Option<Position>,
    bytes: u64,
}

struct MemoryLedger {
    home: MemoryLedgers,
    partition: PartitionId,
    process: u64,
    state: Mutex<State>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryLedger {
    fn set(&self, key: &[u8], value: Option<Slice>, position: Position) {
        let mut state = lock(&self.state);
        state.bytes += (key.len() + value.as_ref().map_or(0, |value| value.len()) + 32) as u64;
        state.live.insert((key.to_vec(), std::cmp::Reverse(position)), value);
        state.last = Some(position);
    }
}

impl Ledger for MemoryLedger {
    fn get(&self, key: &[u8], at: Position) -> Result<Option<Slice>> {
        let state = lock(&self.state);
        let from = (key.to_vec(), std::cmp::Reverse(at));
        let newest = state.live.range(from..).next().filter(|((found, _), _)| found == key);
        Ok(newest.and_then(|(_, value)| value.clone()))
    }

    fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, at: Position) -> Entries {
        let state = lock(&self.state);
        let inside = |key: &[u8]| {
            let above = match start {
                Bound::Included(start) => key >= start,
                Bound::Excluded(start) => key > start,
                Bound::Unbounded => true,
            };
            let below = match end {
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
                Bound::Unbounded => true,
            };
            above && below
        };
        let mut newest: BTreeMap<&[u8], &Option<Slice>> = BTreeMap::new();
        for ((key, position), value) in &state.live {
            if inside(key) && position.0 <= at {
                newest.entry(key).or_insert(value);
            }
        }
        let shown = newest.into_iter().filter_map(|(key, value)| Some(Ok((Slice::from(key), value.clone()?))));
        Box::new(shown.collect::<Vec<_>>().into_iter())
    }

    fn insert(&self, key: &[u8], value: Slice, position: Position) {
        self.set(key, Some(value), position);
    }

    fn remove(&self, key: &[u8], position: Position) {
        self.set(key, None, position);
    }

    fn memory_bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    fn persisted(&self) -> Option<Position> {
        lock(&self.state).persisted
    }

    fn is_damaged(&self) -> bool {
        false
    }

    fn reset(&self) -> Result<()> {
        *lock(&self.state) = State::default();
        self.home.condemn(self.partition)
    }

    fn rotate(&self, _next: Position) {
        let mut state = lock(&self.state);
        state.rotated = state.last;
    }

    fn write_out(&self, _keep: Position) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(to) = state.rotated.take() {
            let versions: Versions =
                state.live.iter().filter(|((_, at), _)| at.0 <= to).map(|(k, v)| (k.clone(), v.clone())).collect();
            let mut home = lock(&self.home.0);
            if home.process != self.process {
                let (path, reason) = ("memory".into(), "the process that opened it has ended".into());
                return Err(Error::Ledger { path, reason });
            }
            home.disks.insert(self.partition, Disk { versions, persisted: Some(to) });
            state.persisted = Some(to);
            state.bytes = 0;
        }
        Ok(())
    }
}
