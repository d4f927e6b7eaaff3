//! Who owns transactions: numbers given out in blocks, leases, and how owners end.
//!
//! What is durable is the record of owners, with a floor below which all but some have ended, and a record for each that
//! ended since. What is not are the leases. After a start nobody knows them, so for the *grace*, which is as long as the
//! longest lease that was granted, every owner of an earlier run that has not ended is taken as alive.
//!
//! May use: `record`. Must not know: transactions, clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Time;

use crate::answer::Mark;
use crate::id::OwnerId;
use crate::record::{OwnersRecord, Tombstone};

/// How many numbers are reserved with one record.
const BLOCK: u64 = 1024;
/// The lease of owners that do not choose one.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(10);
/// The shortest lease.
pub const LEASE_MIN: Duration = Duration::from_millis(100);
/// The longest lease: how long transactions of a dead program may stay in doubt after the coordinator's restart.
pub const LEASE_MAX: Duration = Duration::from_secs(600);

/// How long an owner lives without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// Until it is ended, or the coordinator stops: somebody beside the coordinator watches it.
    Held,
    /// For so long after each request.
    For(Duration),
}

#[derive(Debug, Clone)]
struct Leased {
    length: Lease,
    until: Time,
    name: String,
}

/// The record of an owner's end, and where it was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) tombstone: Tombstone,
    pub(crate) mark: Mark,
}

#[derive(Debug, Clone)]
pub(crate) struct Owners {
    pub(crate) record: OwnersRecord,
    /// Where the record was written.
    pub(crate) mark: Mark,
    /// Owners with a record of their end, and where it was written.
    pub(crate) ended: BTreeMap<OwnerId, Ended>,
    /// The next number to be given out.
    given: u64,
    /// Owners below are of earlier runs.
    pub(crate) earlier: u64,
    leases: BTreeMap<OwnerId, Leased>,
    grace_until: Time,
    /// How many tombstones there are, by the owner.
    tombstones: BTreeMap<OwnerId, usize>,
}

impl Owners {
    pub(crate) fn new() -> Self {
        let record = OwnersRecord { next: 1, floor: 1, lease: Duration::ZERO, alive: BTreeSet::new() };
        let (ended, leases, tombstones) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { record, mark: 0, ended, given: 1, earlier: 1, leases, grace_until: Time::default(), tombstones }
    }

    /// After everything was loaded: what was reserved and never given out stays so.
    pub(crate) fn start(&mut self, now: Time) {
        self.given = self.record.next;
        self.earlier = self.record.next;
        self.grace_until = now.after(self.record.lease);
    }

    /// Numbers up to here may have been given out by runs of which the record is lost: goes on behind them. As after a start.
    pub(crate) fn pass_over(&mut self, count: u64, now: Time) {
        self.record.next = self.record.next.saturating_add(count);
        self.start(now);
    }

    /// Whether a number was given out, as far as anybody can know.
    pub(crate) fn is_given(&self, owner: OwnerId) -> bool {
        owner.0 > 0 && owner.0 < self.given
    }

    /// Where its end was written, if it has ended.
    pub(crate) fn ended(&self, owner: OwnerId) -> Option<Mark> {
        match self.ended.get(&owner) {
            Some(ended) => Some(ended.mark),
            None => {
                (owner.0 > 0 && owner.0 < self.record.floor && !self.record.alive.contains(&owner)).then_some(self.mark)
            }
        }
    }

    /// Whether it was given out and not heard of for longer than its lease.
    pub(crate) fn is_lapsed(&self, owner: OwnerId, now: Time) -> bool {
        match self.leases.get(&owner) {
            Some(leased) => leased.length != Lease::Held && leased.until <= now,
            None => owner.0 < self.earlier && self.ended(owner).is_none() && self.grace_until <= now,
        }
    }

    pub(crate) fn lapsed(&self, now: Time) -> impl Iterator<Item = OwnerId> {
        self.leases.keys().copied().filter(move |owner| self.is_lapsed(*owner, now))
    }

    pub(crate) fn leased(&self) -> usize {
        self.leases.len()
    }

    pub(crate) fn name(&self, owner: OwnerId) -> Option<&str> {
        self.leases.get(&owner).map(|leased| leased.name.as_str())
    }

    /// The record that has to be written before an owner with this lease can be given out, if one has to be.
    pub(crate) fn reservation(&self, lease: Lease) -> Option<OwnersRecord> {
        let longest = match lease {
            Lease::Held => self.record.lease,
            Lease::For(length) => self.record.lease.max(length).max(LEASE_DEFAULT),
        };
        let next = if self.given < self.record.next { self.record.next } else { self.record.next + BLOCK };
        let is_there = next == self.record.next && longest == self.record.lease;
        (!is_there).then(|| OwnersRecord { next, lease: longest, ..self.record.clone() })
    }

    /// Gives out a number that is reserved.
    pub(crate) fn open(&mut self, length: Lease, name: &str, now: Time) -> OwnerId {
        assert!(self.given < self.record.next, "numbers are reserved before they are given out");
        let owner = OwnerId(self.given);
        self.given += 1;
        self.leases.insert(owner, Leased { length, until: until(length, now), name: name.to_owned() });
        owner
    }

    /// Notes that it lives. An owner of an earlier run gets the longest lease there was: which it had nobody knows.
    pub(crate) fn touch(&mut self, owner: OwnerId, leases_max: usize, now: Time) {
        if let Some(leased) = self.leases.get_mut(&owner) {
            leased.until = until(leased.length, now);
        } else if owner.0 < self.earlier && self.ended(owner).is_none() && self.leases.len() < leases_max {
            let length = Lease::For(self.record.lease.max(LEASE_DEFAULT));
            self.leases.insert(owner, Leased { length, until: until(length, now), name: String::new() });
        }
    }

    pub(crate) fn release(&mut self, owner: OwnerId, now: Time) {
        if let Some(leased) = self.leases.get_mut(&owner) {
            (leased.length, leased.until) = (Lease::For(Duration::ZERO), now);
        }
    }

    pub(crate) fn has_lease(&self, owner: OwnerId) -> bool {
        self.leases.contains_key(&owner)
    }

    pub(crate) fn forget_ended_leases(&mut self) {
        let ended: Vec<OwnerId> = self.leases.keys().copied().filter(|owner| self.ended(*owner).is_some()).collect();
        for owner in ended {
            self.leases.remove(&owner);
        }
    }

    pub(crate) fn forget_lease(&mut self, owner: OwnerId) {
        self.leases.remove(&owner);
    }

    /// The record by which all owners of earlier runs end, if there may be any.
    pub(crate) fn without_earlier(&self) -> Option<OwnersRecord> {
        let is_done =
            self.record.floor >= self.earlier && self.record.alive.range(..OwnerId(self.earlier)).next().is_none();
        let alive = self.record.alive.range(OwnerId(self.earlier)..).copied().collect();
        let floor = self.record.floor.max(self.earlier);
        (!is_done).then(|| OwnersRecord { floor, alive, ..self.record.clone() })
    }

    /// The record with a higher floor, if it is time for one: after the grace, and when more than `ended_max` owners have
    /// a record of their end.
    pub(crate) fn raised(&self, ended_max: usize, now: Time) -> Option<OwnersRecord> {
        if self.grace_until > now {
            return None;
        }
        let floor = if self.record.floor < self.earlier {
            self.earlier
        } else if self.ended.len() > ended_max && self.ended.len() - self.redundant().count() > ended_max {
            self.given
        } else {
            return None;
        };
        let alive: BTreeSet<OwnerId> = self.leases.range(..OwnerId(floor)).map(|(owner, _)| *owner).collect();
        let lease = |leased: &Leased| match leased.length {
            Lease::Held => Duration::ZERO,
            Lease::For(length) => length,
        };
        let lease = self.leases.values().map(lease).max().unwrap_or_default().max(LEASE_DEFAULT);
        Some(OwnersRecord { next: self.record.next, floor, lease, alive })
    }

    pub(crate) fn count_tombstone(&mut self, owner: OwnerId) {
        *self.tombstones.entry(owner).or_default() += 1;
    }

    pub(crate) fn discount_tombstone(&mut self, owner: OwnerId) {
        let count = self.tombstones.get_mut(&owner).expect("every tombstone was counted");
        *count -= 1;
        if *count == 0 {
            self.tombstones.remove(&owner);
        }
    }

    /// Of the owners from `first` on that have not ended, the one with the most tombstones, if they have more than so many
    /// together.
    pub(crate) fn with_most_tombstones(&self, first: OwnerId, tombstones_max: usize) -> Option<OwnerId> {
        let living = self.tombstones.range(first..).filter(|(owner, _)| self.ended(**owner).is_none());
        let is_crowded = living.clone().map(|(_, count)| count).sum::<usize>() > tombstones_max;
        living.max_by_key(|(_, count)| **count).filter(|_| is_crowded).map(|(owner, _)| *owner)
    }

    /// Owners whose record of their end says nothing that the floor does not.
    pub(crate) fn redundant(&self) -> impl Iterator<Item = OwnerId> {
        let below = self.ended.range(..OwnerId(self.record.floor)).map(|(owner, _)| *owner);
        below.filter(|owner| !self.record.alive.contains(owner))
    }
}

fn until(length: Lease, now: Time) -> Time {
    match length {
        Lease::Held => now,
        Lease::For(length) => now.after(length),
    }
}
