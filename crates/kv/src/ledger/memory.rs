//! A ledger in memory that keeps what was written out through a crash, and loses the rest: for simulations.
//!
//! May use: nothing. Must not know: files.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::{PartitionId, Position};

use super::cursor::Part;
use super::{Cursor, Hit, Ledger, Ledgers, Slice, View};
use crate::error::{Error, Result};

type Map = BTreeMap<Vec<u8>, Slice>;

#[derive(Default, Clone)]
struct Disk {
    map: Arc<Map>,
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
        let state = State { live: disk.map, persisted: disk.persisted, ..State::default() };
        let process = home.process;
        Ok(Arc::new(MemoryLedger { home: self.clone(), partition, process, state: Mutex::new(state) }))
    }

    fn persisted(&self, partition: PartitionId) -> Result<Option<Position>> {
        Ok(lock(&self.0).disks.get(&partition).and_then(|disk| disk.persisted))
    }

    fn condemn(&self, partition: PartitionId) -> Result<()> {
        lock(&self.0).disks.remove(&partition);
        Ok(())
    }
}

#[derive(Default)]
struct State {
    live: Arc<Map>,
    bytes: u64,
    last: Option<Position>,
    persisted: Option<Position>,
    rotated: Option<Rotated>,
}

/// What the next write-out writes.
struct Rotated {
    map: Arc<Map>,
    bytes: u64,
    last: Option<Position>,
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
    /// Makes a change and counts what it costs.
    fn change(&self, key: &[u8], value_bytes: usize, position: Position, make: impl FnOnce(&mut Map)) {
        let mut state = lock(&self.state);
        state.bytes += (key.len() + value_bytes + 32) as u64;
        state.last = Some(position);
        make(Arc::make_mut(&mut state.live));
    }
}

impl View for Map {
    fn get(&self, key: &[u8]) -> Result<Option<Hit>> {
        // Half of the keys as if they were in a block that is at hand, so that both kinds are met.
        let was_at_hand = key.last().is_some_and(|last| last.is_multiple_of(2));
        Ok(BTreeMap::get(self, key).map(|value| Hit { value: value.clone(), was_at_hand }))
    }

    fn range_into(&self, cursor: &mut Cursor) {
        let inside = |key: &[u8]| (cursor.bounds().start(), cursor.bounds().end()).contains(key);
        let shown = self.iter().filter(|(key, _)| inside(key));
        let left: Vec<_> = shown.map(|(key, value)| (key.clone(), value.clone())).collect();
        let copies = Copies { left: left.into_iter(), at: (Vec::new(), Slice::default()) };
        cursor.add(None, std::iter::once(Part::Copies(copies)));
    }
}

/// Copies of the entries of a range.
pub(super) struct Copies {
    left: std::vec::IntoIter<(Vec<u8>, Slice)>,
    at: (Vec<u8>, Slice),
}

impl Copies {
    /// Steps to the next entry, the first one at first; false when there is none.
    pub(super) fn advance(&mut self) -> bool {
        self.left.next().map(|next| self.at = next).is_some()
    }

    pub(super) fn entry(&self) -> (&[u8], &[u8]) {
        (&self.at.0, &self.at.1)
    }
}

impl Ledger for MemoryLedger {
    fn get(&self, key: &[u8]) -> Result<Option<Hit>> {
        View::get(&*lock(&self.state).live, key)
    }

    fn range_into(&self, cursor: &mut Cursor) {
        lock(&self.state).live.range_into(cursor);
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::clone(&lock(&self.state).live) as _
    }

    fn insert(&self, key: &[u8], value: &[u8], position: Position) {
        self.change(key, value.len(), position, |map| {
            map.insert(key.to_vec(), Slice::new(value));
        });
    }

    fn remove(&self, key: &[u8], position: Position) {
        self.change(key, 0, position, |map| {
            map.remove(key);
        });
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

    fn rotate(&self) {
        let mut state = lock(&self.state);
        state.rotated = Some(Rotated { map: Arc::clone(&state.live), bytes: state.bytes, last: state.last });
    }

    fn write_out(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let Some(rotated) = state.rotated.take() else { return Ok(()) };
        let mut home = lock(&self.home.0);
        if home.process != self.process {
            let (path, reason) = ("memory".into(), "the process that opened it has ended".into());
            return Err(Error::Ledger { path, reason });
        }
        state.persisted = rotated.last.or(state.persisted);
        state.bytes -= rotated.bytes;
        home.disks.insert(self.partition, Disk { map: rotated.map, persisted: state.persisted });
        Ok(())
    }
}
