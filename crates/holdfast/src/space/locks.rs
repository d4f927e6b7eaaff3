//! Locks on entries, held by transactions until they end; with a search for deadlocks.
//!
//! A lock is taken while the entry's partition is locked, and waited for while it is not. Who would wait for somebody who,
//! through others, waits for him is told so at once: each transaction waits for one lock at a time, so the search follows
//! a few chains (Holt, "Some Deadlock Properties of Computer Systems", 1972).
//!
//! May use: `space`. Must not know: what transactions do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::space::{Engine, Place};
use base::{Clock, Time};
use journal::PartitionId;

use crate::error::{Error, ErrorKind, Result};
use crate::stats::{OpenTransaction, TransactionStats};

/// Who locks: transactions have numbers from 1.
pub(crate) type Holder = u64;
/// Somebody who holds no locks, and only waits for them.
pub(crate) const NOBODY: Holder = 0;

/// An entry that is locked; it stays where it is for as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockedPlace {
    pub(crate) partition: PartitionId,
    pub(crate) place: Place,
    /// Which of all entries that ever lay there: who waits for one that is gone does not wait for the next one's lock.
    pub(crate) sequence: u64,
}

impl LockedPlace {
    /// Of what lies there now.
    pub(crate) fn of(engine: &Engine, partition: PartitionId, place: Place) -> Self {
        LockedPlace { partition, place, sequence: engine.sequence(place) }
    }
}

/// Of many who share a lock, so many are named to who wants it alone.
const NAMES_MAX: usize = 4;

/// How an entry is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Others may read it, and lock it so.
    Shared,
    /// Nobody else touches it.
    Exclusive,
}

#[derive(Default)]
struct Lock {
    exclusive: Option<Holder>,
    shared: BTreeSet<Holder>,
}

impl Lock {
    fn stands_in_the_way_of(&self, who: Holder, mode: Mode) -> bool {
        self.exclusive.is_some_and(|holder| holder != who)
            || (mode == Mode::Exclusive && self.shared.iter().any(|holder| *holder != who))
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        self.exclusive.into_iter().chain(self.shared.iter().copied())
    }
}

/// A transaction that begins.
#[derive(Default)]
pub(crate) struct Begins {
    pub(crate) at: Time,
    /// When it is ended, if it does not end by itself.
    pub(crate) until: Option<Time>,
    /// What those are told of it who wait in vain for what it has locked.
    pub(crate) name: Option<Arc<str>>,
    /// Where it says how many bytes it keeps in memory.
    pub(crate) held_bytes: Arc<AtomicU64>,
}

/// A transaction that may hold locks.
struct Live {
    begun: Time,
    held_bytes: Arc<AtomicU64>,
    /// It was committed, or ended because it took too long: it is counted.
    is_counted: bool,
    held: BTreeSet<LockedPlace>,
    waits_for: Option<LockedPlace>,
    until: Option<Time>,
    /// Its locks are being let go of: it gets no more.
    is_ending: bool,
    name: Option<Arc<str>>,
}

#[derive(Default)]
struct Table {
    locks: BTreeMap<LockedPlace, Lock>,
    live: BTreeMap<Holder, Live>,
    last: Holder,
    /// What became of transactions and of those who waited for them; what is there now is not in it.
    counts: TransactionStats,
    is_closed: bool,
}

/// All locks of a store.
#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Table {
    /// Whether the holders of a lock wait, through others, for `who`.
    fn would_deadlock(&self, who: Holder, wanted: LockedPlace) -> bool {
        let holders = |place| self.locks.get(&place).into_iter().flat_map(Lock::holders);
        let mut seen = BTreeSet::new();
        // Its own lock on what it wants is in nobody's way but that of others who want the same, and wait already.
        let mut next: Vec<Holder> = holders(wanted).filter(|holder| *holder != who).collect();
        while let Some(holder) = next.pop() {
            if holder == who {
                return true;
            }
            if seen.insert(holder) {
                let waits_for = self.live.get(&holder).and_then(|live| live.waits_for);
                next.extend(waits_for.into_iter().flat_map(holders).filter(|other| *other != holder));
            }
        }
        false
    }

    /// Who of those that have a name keeps `who` from an entry, behind a colon; empty when none has one.
    fn names(&self, who: Holder, at: LockedPlace) -> String {
        let holders = self.locks.get(&at).into_iter().flat_map(Lock::holders).filter(|holder| *holder != who);
        let names = holders.filter_map(|holder| self.live.get(&holder)?.name.as_deref());
        let names: Vec<&str> = names.take(NAMES_MAX).collect();
        if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
    }

    /// Notes that the transaction waits for a lock from now on.
    fn begin_waiting(&mut self, who: Holder, at: LockedPlace) -> Result<()> {
        if who != NOBODY && self.would_deadlock(who, at) {
            self.counts.deadlocks += 1;
            let text = "a deadlock: those who have the entry wait for this transaction; roll it back and begin again";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        if let Some(live) = self.live.get_mut(&who) {
            live.waits_for = Some(at);
        }
        Ok(())
    }

    /// Whether the transaction may go on: it was not ended for having taken too long.
    fn check(&self, who: Holder) -> Result<()> {
        if self.is_closed {
            return Err(Error::new(ErrorKind::Closed, "the store is closed"));
        }
        if who == NOBODY || self.live.get(&who).is_some_and(|live| !live.is_ending) {
            return Ok(());
        }
        let text = "the transaction's lease ended, and it was rolled back: begin again";
        Err(Error::new(ErrorKind::Timeout, text))
    }
}

impl Locks {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets nobody wait any more, because the store closes.
    pub(crate) fn close(&self) {
        self.table().is_closed = true;
        self.changed.notify_all();
    }

    /// Lets a transaction begin.
    pub(crate) fn begin(&self, begins: Begins) -> Holder {
        let Begins { at: begun, until, name, held_bytes } = begins;
        let (held, waits_for, is_ending, is_counted) = (BTreeSet::new(), None, false, false);
        let mut table = self.table();
        table.last += 1;
        let holder = table.last;
        table.live.insert(holder, Live { begun, held_bytes, is_counted, held, waits_for, until, is_ending, name });
        holder
    }

    /// Counts one that is committed.
    pub(crate) fn count_committed(&self, who: Holder) {
        let mut table = self.table();
        if table.live.get_mut(&who).is_some_and(|live| !std::mem::replace(&mut live.is_counted, true)) {
            table.counts.committed += 1;
        }
    }

    /// Counts that one was told of a change by somebody else.
    pub(crate) fn count_conflict(&self) {
        self.table().counts.conflicts += 1;
    }

    /// Counts that somebody has waited in vain.
    pub(crate) fn count_timeout(&self) {
        self.table().counts.lock_timeouts += 1;
    }

    /// Names a transaction that has begun.
    pub(crate) fn set_name(&self, who: Holder, name: &Arc<str>) {
        if let Some(live) = self.table().live.get_mut(&who) {
            live.name = Some(Arc::clone(name));
        }
    }

    /// What somebody is told who does not get an entry, or no longer waits for it, because of somebody else's lock.
    pub(crate) fn locked(&self, who: Holder, at: LockedPlace) -> Error {
        locked(&self.table().names(who, at))
    }

    /// The transactions that may hold locks, and what became of others.
    pub(crate) fn stats(&self, now: Time) -> TransactionStats {
        let table = self.table();
        let open = || table.live.values().filter(|live| !live.is_ending);
        TransactionStats {
            open: open().count() as u64,
            // Numbers are given in order, so the first is the oldest.
            oldest_age: open().next().map(|live| now.since(live.begun)).unwrap_or_default(),
            locks: table.locks.len() as u64,
            held_bytes: open().map(|live| live.held_bytes.load(Relaxed)).sum(),
            ..table.counts
        }
    }

    /// The transactions that may hold locks, the oldest first.
    pub(crate) fn open(&self, now: Time) -> Vec<OpenTransaction> {
        let table = self.table();
        let open = table.live.values().filter(|live| !live.is_ending);
        open.map(|live| OpenTransaction {
            name: live.name.as_deref().map(str::to_owned),
            age: now.since(live.begun),
            left: live.until.map(|until| until.since(now)),
            locks: live.held.len() as u64,
            held_bytes: live.held_bytes.load(Relaxed),
            is_waiting: live.waits_for.is_some(),
        })
        .collect()
    }

    /// How many entries the transaction has locked.
    pub(crate) fn count_of(&self, who: Holder) -> usize {
        self.table().live.get(&who).map_or(0, |live| live.held.len())
    }

    /// Whether the transaction was ended for having taken too long.
    pub(crate) fn check(&self, who: Holder) -> Result<()> {
        self.table().check(who)
    }

    /// As [`Locks::check`], for a transaction that commits: it keeps its locks from now on, however long that takes.
    pub(crate) fn claim(&self, who: Holder) -> Result<()> {
        let mut table = self.table();
        table.check(who)?;
        if let Some(live) = table.live.get_mut(&who) {
            live.until = None;
        }
        Ok(())
    }

    /// Locks the entry, whose partition the caller has locked, if nobody stands in the way. `Some(true)` when it was not
    /// locked by this one in this way before.
    pub(crate) fn try_lock(&self, who: Holder, at: LockedPlace, mode: Mode) -> Option<bool> {
        let mut guard = self.table();
        let table = &mut *guard;
        table.live.get(&who).filter(|live| !live.is_ending)?;
        let lock = table.locks.entry(at).or_default();
        if lock.stands_in_the_way_of(who, mode) {
            return None;
        }
        let is_new = match mode {
            Mode::Shared if lock.exclusive == Some(who) => false,
            Mode::Shared => lock.shared.insert(who),
            Mode::Exclusive => {
                lock.shared.remove(&who);
                lock.exclusive.replace(who).is_none()
            }
        };
        if let Some(live) = table.live.get_mut(&who) {
            live.held.insert(at);
        }
        Some(is_new)
    }

    /// Whether somebody else's lock keeps `who` from the entry.
    pub(crate) fn is_in_the_way(&self, who: Holder, at: LockedPlace, mode: Mode) -> bool {
        self.table().locks.get(&at).is_some_and(|lock| lock.stands_in_the_way_of(who, mode))
    }

    /// Blocks until no lock stands in the way, for so long at most: then the caller looks again.
    ///
    /// # Errors
    /// `Conflict` when this would wait for itself; `Timeout`, also when the transaction's own lease has ended.
    pub(crate) fn wait(&self, who: Holder, at: LockedPlace, mode: Mode, left: Duration) -> Result<()> {
        self.wait_while((who, at, mode), left, &|| true)
    }

    /// The same for as long as `goes_on` says, which is asked again when [`Locks::look_again`] is called.
    pub(crate) fn wait_while(
        &self,
        (who, at, mode): (Holder, LockedPlace, Mode),
        left: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut table = self.table();
        let blocks = |table: &Table| {
            goes_on()
                && table.check(who).is_ok()
                && table.locks.get(&at).is_some_and(|lock| lock.stands_in_the_way_of(who, mode))
        };
        table.check(who)?;
        if !blocks(&table) {
            return Ok(());
        }
        table.begin_waiting(who, at)?;
        let waited = self.changed.wait_timeout_while(table, left, |table| blocks(table));
        let (mut table, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = table.live.get_mut(&who) {
            live.waits_for = None;
        }
        table.check(who)?;
        if waited.timed_out() {
            // Who does not wait, and comes again to wait, is counted then.
            table.counts.lock_timeouts += u64::from(!left.is_zero());
            return Err(locked(&table.names(who, at)));
        }
        Ok(())
    }

    /// Notes that a transaction waits for a lock elsewhere, in a queue, until [`Locks::end_waiting`].
    ///
    /// # Errors
    /// `Conflict` when this would wait for itself.
    pub(crate) fn begin_waiting(&self, who: Holder, at: LockedPlace) -> Result<()> {
        self.table().begin_waiting(who, at)
    }

    pub(crate) fn end_waiting(&self, who: Holder) {
        if let Some(live) = self.table().live.get_mut(&who) {
            live.waits_for = None;
        }
    }

    /// Has all who wait look at whether they still have to.
    pub(crate) fn look_again(&self) {
        let _table = self.table();
        self.changed.notify_all();
    }

    /// Begins to end a transaction, which gets no more locks: the entries that it has locked.
    pub(crate) fn begin_end(&self, who: Holder) -> Vec<LockedPlace> {
        let mut table = self.table();
        let Some(live) = table.live.get_mut(&who) else { return Vec::new() };
        live.is_ending = true;
        let held = live.held.iter().copied().collect();
        self.changed.notify_all();
        held
    }

    /// Lets go of an entry, whose partition the caller has locked: how it was locked, and whether others have it locked
    /// still. `None` when it was not locked by this one.
    pub(crate) fn release(&self, who: Holder, at: LockedPlace) -> Option<(Mode, bool)> {
        let mut guard = self.table();
        let table = &mut *guard;
        if !table.live.get_mut(&who)?.held.remove(&at) {
            return None;
        }
        let lock = table.locks.get_mut(&at)?;
        let mode = if lock.exclusive == Some(who) { Mode::Exclusive } else { Mode::Shared };
        if mode == Mode::Exclusive {
            lock.exclusive = None;
        }
        lock.shared.remove(&who);
        let is_locked = lock.holders().next().is_some();
        if !is_locked {
            table.locks.remove(&at);
        }
        self.changed.notify_all();
        Some((mode, is_locked))
    }

    /// Ends a transaction that has let go of everything.
    pub(crate) fn end(&self, who: Holder) {
        let mut table = self.table();
        if table.live.remove(&who).is_some_and(|live| !live.is_counted) {
            table.counts.rolled_back += 1;
        }
    }

    /// Transactions whose lease has ended; they get no more locks.
    pub(crate) fn overdue(&self, clock: &dyn Clock) -> Vec<Holder> {
        let now = clock.now();
        let mut table = self.table();
        let Table { live, counts, .. } = &mut *table;
        let over = live.iter_mut().filter(|(_, live)| live.until.is_some_and(|until| until <= now));
        over.map(|(holder, live)| {
            // One that ends by itself just now does not end by this.
            if !std::mem::replace(&mut live.is_ending, true) {
                live.is_counted = true;
                counts.expired += 1;
            }
            *holder
        })
        .collect()
    }

    /// When the next lease of a transaction ends.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.table().live.values().filter_map(|live| live.until).min()
    }
}

fn locked(names: &str) -> Error {
    Error::new(ErrorKind::Timeout, format!("a transaction has locked the entry{names}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(slot: u16) -> LockedPlace {
        let engine = Engine::default();
        LockedPlace::of(&engine, PartitionId::new(slot), engine.nowhere())
    }

    #[test]
    fn who_would_wait_for_himself_is_told() {
        let locks = Locks::default();
        let (first, second, third) =
            (locks.begin(Begins::default()), locks.begin(Begins::default()), locks.begin(Begins::default()));
        assert_eq!(locks.try_lock(first, place(1), Mode::Exclusive), Some(true));
        assert_eq!(locks.try_lock(second, place(2), Mode::Exclusive), Some(true));
        assert_eq!(locks.try_lock(second, place(1), Mode::Shared), None);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| locks.wait(second, place(1), Mode::Exclusive, Duration::from_secs(60)));
            while locks.table().live[&second].waits_for.is_none() {
                base::yield_now();
            }
            let error = locks.wait(first, place(2), Mode::Shared, Duration::from_secs(60)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            let error = locks.wait(third, place(2), Mode::Shared, Duration::from_millis(1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert_eq!(locks.release(first, place(1)), Some((Mode::Exclusive, false)));
            locks.end(first);
            waits.join().unwrap().unwrap();
        });
        assert_eq!(locks.try_lock(second, place(1), Mode::Exclusive), Some(true));
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let locks = Locks::default();
        let (first, second) = (locks.begin(Begins::default()), locks.begin(Begins::default()));
        assert_eq!(locks.try_lock(first, place(1), Mode::Shared), Some(true));
        assert_eq!(locks.try_lock(first, place(1), Mode::Shared), Some(false));
        assert_eq!(locks.try_lock(second, place(1), Mode::Shared), Some(true));
        assert_eq!(locks.try_lock(first, place(1), Mode::Exclusive), None);
        assert_eq!(locks.release(second, place(1)), Some((Mode::Shared, true)));
        locks.end(second);
        assert_eq!(locks.try_lock(first, place(1), Mode::Exclusive), Some(true));
        assert!(locks.check(second).is_err() && locks.check(first).is_ok());
    }

    #[test]
    fn who_waits_in_vain_is_told_who_is_in_the_way_as_far_as_they_have_names() {
        let locks = Locks::default();
        let nameless = locks.begin(Begins::default());
        let wait = || locks.wait(NOBODY, place(1), Mode::Exclusive, Duration::ZERO).unwrap_err().to_string();
        assert!(locks.try_lock(nameless, place(1), Mode::Shared).is_some());
        assert!(wait().ends_with("a transaction has locked the entry"), "{}", wait());
        for name in ["a", "b", "c", "d", "e"] {
            let named = locks.begin(Begins { name: Some(name.into()), ..Begins::default() });
            assert!(locks.try_lock(named, place(1), Mode::Shared).is_some());
        }
        assert!(wait().ends_with("a transaction has locked the entry: a, b, c, d"), "{}", wait());
        locks.set_name(nameless, &"first".into());
        assert!(wait().ends_with(": first, a, b, c"), "{}", wait());
        assert!(locks.locked(nameless, place(1)).to_string().ends_with(": a, b, c, d"), "itself is in nobody's way");
    }
}
