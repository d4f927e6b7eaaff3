//! The space's background work: leases end, transactions that took too long end; and, by a thread of their own, snapshots are written.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::space::{Engine, Order, Reason, ValueRef};
use journal::{Level, Log, Position};

use super::commit::What;
use super::files;
use crate::error::Result;
use crate::identity::Used;
use crate::partition::Partition;
use crate::store::{Inner, lock};

/// How often it is looked whether something is due.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Entries whose lease ended, removed at once in one partition.
const EXPIRY_BATCH_MAX: usize = 256;
/// Journal bytes behind a snapshot before the next one, at least.
const SNAPSHOT_LAG_BYTES: u64 = 128 << 20;

impl Inner {
    /// Does what is due; returns when to come back.
    pub(crate) fn step_spaces(&self) -> Duration {
        // Whoever asks for an entry of a partition in trouble is told.
        let looked_ms = self.clock.wall_ms();
        let more = self.told(&self.jobs.leases, self.expire_entries(looked_ms)).unwrap_or(false);
        for holder in self.spaces.locks.overdue(&*self.clock) {
            self.end_holder(holder);
        }
        if more {
            return Duration::ZERO;
        }
        let now_ms = self.clock.wall_ms();
        // What has ended and is there still is locked, or cannot be removed: it is looked at now and then, not each millisecond.
        let next = self.partitions.iter().filter_map(|partition| partition.space().next_expiry_after(looked_ms)).min();
        let lease = next.map_or(LOOK_INTERVAL, |at| Duration::from_millis(at.saturating_sub(now_ms)));
        let end = self.spaces.locks.next_end().map_or(LOOK_INTERVAL, |end| end.since(self.clock.now()));
        lease.min(end).clamp(Duration::from_millis(1), LOOK_INTERVAL)
    }

    /// Writes the snapshots that are due; returns when to come back.
    pub(crate) fn step_snapshots(&self) -> Duration {
        // A full disk is tried again; the journal keeps what has no snapshot.
        let _ = self.told(&self.jobs.snapshots, self.snapshots_due());
        LOOK_INTERVAL
    }

    /// Sees to it that a lease that ends before anybody looks again is looked after.
    pub(crate) fn note_lease(&self, expires_ms: u64) {
        if expires_ms != 0 {
            self.note_end(Duration::from_millis(expires_ms.saturating_sub(self.clock.wall_ms())));
        }
    }

    /// The same of what ends in so long. What ends later is seen by then: to wake the background for each transaction costs as much as the
    /// transaction.
    pub(crate) fn note_end(&self, left: Duration) {
        if left < 2 * LOOK_INTERVAL {
            self.space_wake.raise();
        }
    }

    /// Removes entries whose lease has ended. True when there are more.
    fn expire_entries(&self, now_ms: u64) -> Result<bool> {
        let mut more = false;
        for partition in &self.partitions {
            let mut engine = partition.space();
            if partition.check().is_err() || engine.next_expiry().is_none_or(|next| next > now_ms) {
                continue;
            }
            more |= self.expire_in(partition, &mut engine, now_ms)?;
            self.serve_behind_ended(partition, &mut engine, now_ms);
        }
        Ok(more)
    }

    /// An entry whose lease has ended while a transaction has it locked stays until that ends, and is in nobody's way any more: who waits for what
    /// stands behind it in its group is served now, before those who come later.
    fn serve_behind_ended(&self, partition: &Partition, engine: &mut Engine, now_ms: u64) {
        for kind in self.spaces.list(None) {
            if engine.has_ended(kind.of, now_ms) && matches!(kind.definition().order, Order::Groups(_)) {
                self.serve(&kind, partition, engine);
            }
        }
    }

    /// Removes some entries of a partition whose lease has ended. True when there are more.
    pub(crate) fn expire_in(&self, partition: &Partition, engine: &mut Engine, now_ms: u64) -> Result<bool> {
        let places: Vec<_> = engine.expired(now_ms).take(EXPIRY_BATCH_MAX).collect();
        let more = places.len() == EXPIRY_BATCH_MAX;
        for place in places {
            let Some((stored, kind)) = engine.get(place).zip(self.spaces.get(place.of)) else { continue };
            let id = stored.document.get(&kind.definition().id).map(ValueRef::to_value).unwrap_or_default();
            let what = What::Remove { id, reason: Reason::Expired };
            self.change_space(&kind, partition, engine, &what)?;
        }
        Ok(more)
    }

    /// Sees to it that each partition has a snapshot, if only an empty one, before a type is declared. An earlier attempt may
    /// have failed between two of them.
    pub(crate) fn begin_spaces(&self) -> Result<()> {
        let has_none = |partition: &&Partition| matches!(partition.space_through.load(Ordering::Acquire), 0 | u64::MAX);
        self.partitions.iter().filter(has_none).try_for_each(|partition| self.write_snapshot(partition))?;
        self.note_use(Used { space: true, series: false })
    }

    /// Journal bytes that a partition's snapshot may lag behind: in proportion to what there is to write.
    fn lag_bytes_max(&self) -> u64 {
        let held: u64 = self.partitions.iter().map(|partition| partition.space().bytes()).sum();
        held.max(SNAPSHOT_LAG_BYTES.min(self.options.limits.replay_bytes_max))
    }

    fn snapshots_due(&self) -> Result<()> {
        let appended = self.journal.watermarks().appended.get();
        let is_due = |partition: &&Partition, max: u64| {
            let through = partition.space_through.load(Ordering::Acquire);
            through != u64::MAX && appended.saturating_sub(through) > max
        };
        if !self
            .partitions
            .iter()
            .any(|partition| is_due(&partition, SNAPSHOT_LAG_BYTES.min(self.options.limits.replay_bytes_max)))
        {
            return Ok(());
        }
        self.check_spare()?;
        let max = self.lag_bytes_max();
        self.partitions.iter().filter(|partition| is_due(partition, max)).try_for_each(|it| self.write_snapshot(it))
    }

    /// Writes a partition's snapshot, after the journal is on stable storage up to there.
    pub(crate) fn write_snapshot(&self, partition: &Partition) -> Result<()> {
        let _one = lock(&self.spaces.snapshots);
        partition.check()?;
        let snapshot = {
            let engine = partition.space();
            // Nothing of this partition's space is on its way while it is locked.
            let next = self.journal.watermarks().appended.get();
            engine.snapshot(Position::new(next.saturating_sub(1)))
        };
        let through = snapshot.applied();
        self.journal.wait(through, Level::Synced)?;
        let bytes = snapshot.encode(partition.id);
        files::write(&*self.files, self.dir(), partition.id, &bytes)?;
        let before = partition.space_through.swap(through.get(), Ordering::AcqRel);
        // The first one stands for both.
        let kept = if before == u64::MAX { through.get() } else { before };
        partition.space_kept.store(kept, Ordering::Release);
        Ok(())
    }

    /// Has both snapshots of each partition be of now, so that the space needs nothing of the journal before. A partition whose space was
    /// never used has none.
    pub(crate) fn catch_up_spaces(&self) -> Result<()> {
        let now = self.newest().get();
        let is_used = |partition: &&Partition| partition.space_through.load(Ordering::Acquire) != u64::MAX;
        for partition in self.partitions.iter().filter(is_used) {
            // The first takes the place of the newer one, the second of the older.
            for _ in 0..2 {
                if partition.space_kept.load(Ordering::Acquire) < now {
                    self.write_snapshot(partition)?;
                }
            }
        }
        Ok(())
    }

    /// The journal behind this position is needed by the space.
    pub(crate) fn spaces_keep(&self) -> Position {
        let kept = self.partitions.iter().map(|partition| partition.space_kept.load(Ordering::Acquire)).min();
        Position::new(kept.unwrap_or(u64::MAX))
    }

    /// Writes what snapshots lack when the store closes, so that opening replays nothing.
    pub(crate) fn close_spaces(&self) -> Result<()> {
        for partition in &self.partitions {
            let through = partition.space_through.load(Ordering::Acquire);
            if through != u64::MAX && partition.space().applied().get() > through {
                self.write_snapshot(partition)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ::space::{Definition, Document};

    use super::*;
    use crate::space::{Lease, ReadLock, ReadOptions, Wanted, WriteOptions};
    use crate::{Options, Store, World};

    #[test]
    fn a_locked_entry_whose_lease_is_over_wakes_nobody_each_millisecond() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let entries = store.space("shop").declare(Definition::new("shop", "order")).unwrap();
        let leased = WriteOptions { lease: Lease::For(Duration::from_millis(200)), ..WriteOptions::default() };
        entries.write(&Document::from_pairs([("id", 1)]), &leased).unwrap();
        let mut holder = store.begin();
        let wanted = Wanted::id(1);
        entries.within(&mut holder).read(&wanted, ReadLock::Exclusive, &ReadOptions::default()).unwrap().unwrap();
        let renewed = WriteOptions { lease: Lease::For(Duration::from_secs(60)), ..WriteOptions::default() };
        entries.write(&Document::from_pairs([("id", 2)]), &renewed).unwrap();
        let over = store.now_ms() + 201;
        while store.now_ms() < over {
            base::yield_now();
        }
        assert_eq!(store.inner().step_spaces(), LOOK_INTERVAL);
        drop(holder);
        store.inner().step_spaces();
        assert_eq!(entries.usage().entries, 1, "it goes when its lock has gone");
    }

    /// A worker's transaction woke this thread each time, which then looked through all partitions: a seventh of an order flow.
    #[test]
    fn a_transaction_wakes_the_background_only_if_it_may_end_before_that_looks_again() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default();
        let world = World { threads: false, ..World::real(dir.path(), &options.limits) };
        let store = Store::open_in(&world, dir.path(), options).unwrap();
        let was_woken = || store.inner().space_wake.wait(Some(Duration::ZERO));
        let _ = was_woken();
        let _long = store.begin().with_lease(2 * LOOK_INTERVAL);
        assert!(!was_woken());
        let _short = store.begin().with_lease(LOOK_INTERVAL);
        assert!(was_woken());
    }
}
