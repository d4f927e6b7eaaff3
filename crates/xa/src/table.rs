//! What a coordinator remembers, and what it answers: owners, decisions, tombstones, shared transactions under way.
//!
//! States of a transaction, and what moves it:
//!
//!   unknown    nothing is remembered: not decided, or committed and forgotten
//!   shared     others may take part: who, and how they voted; in memory only
//!   aborted    a tombstone: never to be committed; goes when its owner has ended, which says the same, or a day after its
//!              deadline, which says the same to all clocks that were not set back by more; an owner with very many is ended.
//!              With deeds of resource managers it stays until somebody forgets those: see `deeds.rs`
//!   doubtful   found prepared or asked about, and the journal was damaged since: see `damage.rs`; in memory only
//!   decided    to be committed, with branches that may not know yet; goes when all know, or an hour later: see below
//!
//!   unknown, shared -> decided      commit
//!   unknown, shared -> aborted      abort, a deadline, a commit that is refused
//!   decided -> unknown              forget
//!   aborted -> unknown              when the owner has ended, or the deadline is long past
//!
//! The table changes its durable part only by records, live and when it is loaded, so that what was written is what it
//! remembers. What it says rests on them: see `answer.rs`. A refusal to commit is a verdict as any other: once somebody
//! was told to roll back nobody may ever commit, so a tombstone stands before it, on stable storage.
//!
//! That hour is for an owner that never heard the answer to its commit: while it could not ask, recovery may have
//! committed all branches, and it must not be told then that nobody will ever commit. Who found a branch committed may
//! have learned of the decision, and so may everybody after a restart, because who had is not recorded.
//!
//! May use: `record`, `owners`, `answer`. Must not know: clocks, stores.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Limits, Time};

use crate::answer::{Answer, Mark, Needs, Plan, Rests};
use crate::damage::Damage;
use crate::decide::Shared;
use crate::error::TableError;
use crate::id::{CoordinatorId, OwnerId, TransactionId};
use crate::owners::{Ended, LEASE_MAX, LEASE_MIN, Lease, Owners};
use crate::record::{
    Abort, BranchState, Change, Decision, MalformedRecord, OwnersRecord, Record, RecordKey, Tombstone,
};

/// How long a decision that all branches know is kept for an owner that may not know it.
const RETENTION: Duration = Duration::from_secs(3600);
/// How long after its deadline a transaction's tombstone is kept: more than a wall clock is ever set back.
const SET_BACK_MAX_MS: u64 = 24 * 3600 * 1000;
/// Longest name of an owner, in bytes.
pub const OWNER_NAME_BYTES_MAX: usize = 64;

/// What time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// On a clock that never goes back: for leases.
    pub time: Time,
    /// In milliseconds since 1970: for deadlines.
    pub wall_ms: u64,
}

/// Why a transaction will never be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AbortReason {
    /// It was rolled back.
    #[error("the transaction was rolled back")]
    RolledBack,
    /// Its owner has ended.
    #[error("the owner of the transaction has ended")]
    OwnerEnded,
    /// It took too long.
    #[error("the transaction's deadline has passed")]
    Deadline,
    /// Somebody who takes part said that it cannot prepare.
    #[error("a branch of the transaction failed")]
    BranchFailed,
    /// Somebody who takes part did not say in time that it is prepared.
    #[error("a branch of the transaction is not prepared")]
    NotPrepared,
    /// Nobody knows any more who takes part.
    #[error("the coordinator was restarted since the owner was opened, and does not know who takes part")]
    EntryLost,
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed: so are all its branches to be.
    Committed,
    /// It will never be committed.
    Aborted(AbortReason),
}

/// What a commit came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// It is decided now: committed.
    Decided,
    /// It was settled before, or cannot be committed.
    Settled(Outcome),
    /// Others have not voted yet: ask again.
    Waiting,
}

/// Whether a commit waits for those who have not voted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It asks again.
    Waits,
    /// Who has not voted by now has failed.
    Over,
}

#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Decided(Decided),
    Aborted {
        abort: Abort,
        mark: Mark,
    },
    Shared(Shared),
    /// Found prepared, or asked about, and what was decided may be lost; in memory only.
    Doubtful,
}

impl Entry {
    /// The record that it rests on.
    fn record(&self, id: TransactionId) -> Option<Record> {
        match self {
            Self::Decided(decided) => Some(Record::Decision(id, decided.decision.clone())),
            Self::Aborted { abort, .. } => Some(Record::Tombstone(id, abort.clone())),
            Self::Shared(_) | Self::Doubtful => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    pub(crate) mark: Mark,
    /// Whether somebody may know of it who is not the owner.
    pub(crate) is_told: bool,
    /// Until when it is kept although all branches know.
    until: Option<Time>,
}

/// How a branch of a shared transaction voted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// It can commit.
    Prepared,
    /// It changed nothing, and need not know the outcome.
    ReadOnly,
    /// It cannot commit.
    Failed,
}

/// What the table has done since it was loaded, and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Transactions decided to be committed.
    pub decisions: u64,
    /// Tombstones made.
    pub aborts: u64,
    /// Verdicts given to commit or to roll back.
    pub verdicts: u64,
    /// Decisions that are held.
    pub outstanding: u64,
    /// Decisions and tombstones that are held with a branch that decided by itself.
    pub heuristic: u64,
    /// Owners that are taken as alive.
    pub owners: u64,
}

/// The coordinator's table.
#[derive(Debug, Clone)]
pub struct Table {
    pub(crate) coordinator: CoordinatorId,
    pub(crate) limits: Limits,
    pub(crate) entries: BTreeMap<TransactionId, Entry>,
    pub(crate) owners: Owners,
    /// Shared transactions by their deadlines.
    pub(crate) deadlines: BTreeSet<(u64, TransactionId)>,
    /// Shared transactions that were suspended and have a deadline: they may outlive their owners.
    pub(crate) suspended: BTreeSet<TransactionId>,
    /// Records that say nothing any more: decisions all branches know of, tombstones whose owner has ended.
    pub(crate) let_go: BTreeSet<TransactionId>,
    /// Tombstones by the time when their deadlines say as much.
    pub(crate) stale: BTreeSet<(u64, TransactionId)>,
    /// Decisions that all branches know, and until when they are kept.
    pub(crate) retained: BTreeSet<(Time, TransactionId)>,
    pub(crate) damage: Damage,
    /// The latest time it was told.
    latest: Time,
    pub(crate) counters: Counters,
}

impl Table {
    /// The table of these records, in any order.
    ///
    /// # Errors
    /// When one of them is damaged, or they contradict each other.
    pub fn load(
        coordinator: CoordinatorId,
        limits: &Limits,
        now: Now,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Self, MalformedRecord> {
        let mut table = Self {
            coordinator,
            limits: limits.clone(),
            entries: BTreeMap::new(),
            owners: Owners::new(),
            deadlines: BTreeSet::new(),
            suspended: BTreeSet::new(),
            let_go: BTreeSet::new(),
            stale: BTreeSet::new(),
            retained: BTreeSet::new(),
            damage: Damage::default(),
            latest: now.time,
            counters: Counters::default(),
        };
        for record in records {
            if let Record::Decision(id, _) | Record::Tombstone(id, _) = &record
                && table.entries.contains_key(id)
            {
                return Err(MalformedRecord::CONTRADICTION);
            }
            table.change(Change::Put(record), 0);
        }
        for (id, entry) in &mut table.entries {
            match entry {
                Entry::Decided(decided) => {
                    decided.is_told = true;
                    if table.let_go.remove(id) {
                        let until = now.time.after(RETENTION);
                        decided.until = Some(until);
                        table.retained.insert((until, *id));
                    }
                }
                Entry::Aborted { abort, .. } if abort.deeds.is_empty() && table.owners.ended(id.owner).is_some() => {
                    table.let_go.insert(*id);
                }
                Entry::Aborted { .. } | Entry::Shared(_) | Entry::Doubtful => {}
            }
        }
        table.keep_tombstones_in_shadow();
        // Numbers that were passed over because of damage stay passed over, though no owner was opened since.
        table.owners.record.next = table.owners.record.next.max(table.damage.record.below);
        table.owners.start(now.time);
        (table.counters.decisions, table.counters.aborts) = (0, 0);
        Ok(table)
    }

    /// Every record that it rests on.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let ended = self.owners.ended.iter().map(|(owner, ended)| Record::Ended(*owner, ended.tombstone));
        let owners = (self.owners.record.next > 1).then(|| Record::Owners(self.owners.record.clone()));
        let damage = (self.damage.record.upto > 0 && !self.damage.is_new).then_some(Record::Damage(self.damage.record));
        self.entries.iter().filter_map(|(id, entry)| entry.record(*id)).chain(ended).chain(owners).chain(damage)
    }

    /// One of them.
    pub(crate) fn record(&self, key: RecordKey) -> Option<Record> {
        match key {
            RecordKey::Decision(id) | RecordKey::Tombstone(id) => self.entries.get(&id)?.record(id),
            RecordKey::Ended(owner) => Some(Record::Ended(owner, self.owners.ended.get(&owner)?.tombstone)),
            RecordKey::Owners => Some(Record::Owners(self.owners.record.clone())),
            RecordKey::Damage => Some(Record::Damage(self.damage.record)),
        }
    }

    /// Live numbers.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { owners: self.owners.leased() as u64, ..self.counters }
    }

    /// The plan's changes were written at `mark`: they are so.
    pub fn carry_out<T>(&mut self, plan: Plan<T>, mark: Mark) -> Answer<T> {
        let own = match plan.rests {
            _ if plan.changes.is_empty() => Needs::default(),
            Rests::Lazily => Needs::default(),
            Rests::AsAsked => Needs::asked(mark),
            Rests::Synced => Needs::synced(mark),
        };
        self.counters.verdicts += plan.verdicts;
        plan.changes.into_iter().for_each(|change| self.change(change, mark));
        Answer { value: plan.value, needs: plan.needs.and(own) }
    }

    fn change(&mut self, change: Change, mark: Mark) {
        self.damage.note_written(&change, mark);
        match change {
            Change::Put(Record::Decision(id, decision)) => self.put_decision(id, decision, mark),
            Change::Put(Record::Tombstone(id, abort)) => self.put_abort(id, abort, mark),
            Change::Put(Record::Ended(owner, tombstone)) => {
                self.owners.ended.insert(owner, Ended { tombstone, mark });
                self.owners.forget_lease(owner);
                self.end_transactions(owner);
            }
            Change::Put(Record::Owners(record)) => self.put_owners(record, mark),
            Change::Delete(RecordKey::Decision(id) | RecordKey::Tombstone(id)) => self.remove(id),
            Change::Delete(RecordKey::Ended(owner)) => drop(self.owners.ended.remove(&owner)),
            Change::Put(Record::Damage(record)) => self.damage.put(record),
            Change::Delete(RecordKey::Owners | RecordKey::Damage) => unreachable!("these records never go"),
        }
    }

    /// One with deeds stays until somebody has looked at them.
    fn put_abort(&mut self, id: TransactionId, abort: Abort, mark: Mark) {
        let may_go = abort.deeds.is_empty();
        if may_go && self.owners.ended(id.owner).is_some() && !self.is_in_shadow(id.owner) {
            self.let_go.insert(id);
        } else {
            self.let_go.remove(&id);
        }
        self.forget_deadline(id);
        match (stale(id), may_go) {
            (Some(stale), true) => drop(self.stale.insert(stale)),
            (Some(stale), false) => drop(self.stale.remove(&stale)),
            (None, _) => {}
        }
        self.counters.heuristic += u64::from(!may_go);
        match self.entries.insert(id, Entry::Aborted { abort, mark }) {
            Some(Entry::Aborted { abort: before, .. }) => {
                self.counters.heuristic -= u64::from(!before.deeds.is_empty());
            }
            before => {
                assert!(!matches!(before, Some(Entry::Decided(_))), "what is decided is never rolled back");
                self.counters.aborts += 1;
                self.owners.count_tombstone(id.owner);
            }
        }
    }

    /// It is under way no more.
    fn forget_deadline(&mut self, id: TransactionId) {
        self.deadlines.remove(&(id.deadline_ms, id));
        self.suspended.remove(&id);
    }

    fn put_decision(&mut self, id: TransactionId, decision: Decision, mark: Mark) {
        self.forget_deadline(id);
        self.counters.heuristic += u64::from(is_heuristic(&decision));
        self.counters.outstanding += u64::from(!is_complete(&decision));
        let mut decided = match self.entries.remove(&id) {
            Some(Entry::Decided(before)) => {
                self.counters.heuristic -= u64::from(is_heuristic(&before.decision));
                self.counters.outstanding -= u64::from(!is_complete(&before.decision));
                // Whether branches know of it makes the decision no younger; that there are more of them, or one that decided by itself, does.
                let has_more = decision.branches.len() > before.decision.branches.len()
                    || heuristics(&decision) > heuristics(&before.decision);
                let mark = if has_more { mark } else { before.mark };
                self.let_stay(id, &before);
                Decided { decision, mark, until: None, ..before }
            }
            Some(Entry::Aborted { .. }) => unreachable!("what is rolled back is never decided"),
            Some(Entry::Shared(_) | Entry::Doubtful) | None => {
                self.counters.decisions += 1;
                Decided { decision, mark, is_told: false, until: None }
            }
        };
        if is_complete(&decided.decision) {
            match decided.is_told {
                true => {
                    let until = self.latest.after(RETENTION);
                    decided.until = Some(until);
                    self.retained.insert((until, id));
                }
                false => drop(self.let_go.insert(id)),
            }
        }
        self.entries.insert(id, Entry::Decided(decided));
    }

    fn put_owners(&mut self, record: OwnersRecord, mark: Mark) {
        let is_raised = record.floor > self.owners.record.floor || record.alive != self.owners.record.alive;
        self.owners.record = record;
        self.owners.mark = mark;
        if is_raised {
            let mut owners: BTreeSet<OwnerId> = self.entries.keys().map(|id| id.owner).collect();
            owners.retain(|owner| self.owners.ended(*owner).is_some());
            owners.into_iter().for_each(|owner| self.end_transactions(owner));
            self.owners.forget_ended_leases();
        }
    }

    /// An owner has ended: what was under way is over, but what was handed on to others, and its tombstones say nothing any more.
    fn end_transactions(&mut self, owner: OwnerId) {
        let (mut over, mut let_go) = (Vec::new(), Vec::new());
        for (id, entry) in self.entries.range(self.ids_of(owner)) {
            match entry {
                Entry::Shared(shared) if shared.outlives_owner(*id) => {}
                Entry::Shared(_) => over.push(*id),
                Entry::Aborted { abort, .. } if abort.deeds.is_empty() => let_go.push(*id),
                Entry::Aborted { .. } | Entry::Decided(_) | Entry::Doubtful => {}
            }
        }
        for id in over {
            self.entries.remove(&id);
            self.forget_deadline(id);
        }
        self.let_go.extend(let_go);
        self.keep_tombstones_in_shadow();
    }

    fn ids_of(&self, owner: OwnerId) -> std::ops::RangeInclusive<TransactionId> {
        let coordinator = self.coordinator;
        let first =
            TransactionId { coordinator, owner, sequence: 0, deadline_ms: 0, shared: false, last_resource: None };
        first..=TransactionId { sequence: u64::MAX, deadline_ms: u64::MAX, shared: true, ..first }
    }

    /// A decision is not to be let go of by time any more.
    fn let_stay(&mut self, id: TransactionId, decided: &Decided) {
        self.let_go.remove(&id);
        if let Some(until) = decided.until {
            self.retained.remove(&(until, id));
        }
    }

    fn remove(&mut self, id: TransactionId) {
        self.let_go.remove(&id);
        if let Some(stale) = stale(id) {
            self.stale.remove(&stale);
        }
        match self.entries.remove(&id) {
            Some(Entry::Decided(decided)) => {
                self.counters.outstanding -= u64::from(!is_complete(&decided.decision));
                self.counters.heuristic -= u64::from(is_heuristic(&decided.decision));
                self.let_stay(id, &decided);
            }
            Some(Entry::Aborted { abort, .. }) => {
                self.counters.heuristic -= u64::from(!abort.deeds.is_empty());
                self.owners.discount_tombstone(id.owner);
            }
            Some(Entry::Shared(_) | Entry::Doubtful) | None => {}
        }
    }

    pub(crate) fn check_mine(&self, id: TransactionId) -> Result<(), TableError> {
        if id.coordinator == self.coordinator { Ok(()) } else { Err(TableError::Foreign(id.coordinator)) }
    }

    /// Whether there is no room for another transaction.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.limits.xa_transactions_max
    }

    pub(crate) fn check_room(&self, id: TransactionId) -> Result<(), TableError> {
        if self.is_full() && !self.entries.contains_key(&id) {
            return Err(TableError::Limit { what: "transactions", max: self.limits.xa_transactions_max });
        }
        Ok(())
    }

    /// What is settled of a transaction already, and what that rests on: a decision as durable as who asks wants it, all
    /// else on stable storage.
    pub(crate) fn settled(&self, id: TransactionId) -> Option<(Outcome, Needs)> {
        match self.entries.get(&id) {
            Some(Entry::Decided(decided)) => return Some((Outcome::Committed, Needs::asked(decided.mark))),
            Some(Entry::Aborted { mark, .. }) => {
                return Some((Outcome::Aborted(AbortReason::RolledBack), Needs::synced(*mark)));
            }
            Some(Entry::Shared(shared)) if shared.outlives_owner(id) => return None,
            Some(Entry::Shared(_) | Entry::Doubtful) | None => {}
        }
        let mark = self.owners.ended(id.owner).filter(|_| !self.is_in_shadow(id.owner))?;
        Some((Outcome::Aborted(AbortReason::OwnerEnded), Needs::synced(mark)))
    }

    /// Writes a tombstone, for an answer that says why.
    pub(crate) fn bury(id: TransactionId, reason: AbortReason, now: Now) -> Plan<Outcome> {
        let tombstone = Record::Tombstone(id, Abort { at_ms: now.wall_ms, deeds: Vec::new() });
        Plan::writing(Outcome::Aborted(reason), Rests::Synced, vec![Change::Put(tombstone)])
    }

    /// Reserves numbers for an owner, or gives one out.
    ///
    /// The answer is `None` when it only reserved: ask again then.
    ///
    /// # Errors
    /// `LeaseLength`, `OwnerName`, `Limit`.
    pub fn open(&mut self, lease: Lease, name: &str, now: Now) -> Result<Plan<Option<OwnerId>>, TableError> {
        if matches!(lease, Lease::For(length) if !(LEASE_MIN..=LEASE_MAX).contains(&length)) {
            return Err(TableError::LeaseLength);
        }
        if name.len() > OWNER_NAME_BYTES_MAX {
            return Err(TableError::OwnerName);
        }
        self.check_owners()?;
        if let Some(record) = self.owners.reservation(lease) {
            return Ok(Plan::writing(None, Rests::Synced, vec![Change::Put(Record::Owners(record))]));
        }
        let owner = self.owners.open(lease, name, now.time);
        Ok(Plan::nothing(Some(owner), Needs::synced(self.owners.mark)))
    }

    pub(crate) fn touch(&mut self, owner: OwnerId, now: Now) {
        self.latest = self.latest.max(now.time);
        if self.is_in_shadow(owner) {
            return;
        }
        self.owners.touch(owner, self.limits.xa_owners_max, now.time);
    }

    pub(crate) fn note_time(&mut self, now: Now) {
        self.latest = self.latest.max(now.time);
    }

    fn check_owners(&self) -> Result<(), TableError> {
        let max = self.limits.xa_owners_max;
        if self.owners.leased() >= max { Err(TableError::Limit { what: "owners", max }) } else { Ok(()) }
    }

    /// Ends every owner of earlier runs: for whoever knows that they are dead.
    pub fn end_earlier(&mut self) -> Plan<()> {
        match self.owners.without_earlier() {
            Some(record) => Plan::writing((), Rests::Synced, vec![Change::Put(Record::Owners(record))]),
            None => Plan::nothing((), Needs::synced(self.owners.mark)),
        }
    }

    /// Notes that an owner lives. Answers whether it does: an owner that has ended stays so.
    ///
    /// # Errors
    /// `NoSuchOwner`, `Limit`.
    pub fn renew(&mut self, owner: OwnerId, now: Now) -> Result<Plan<Result<(), AbortReason>>, TableError> {
        if !self.owners.is_given(owner) {
            return Err(TableError::NoSuchOwner(owner));
        }
        if let Some(mark) = self.owners.ended(owner) {
            return Ok(Plan::nothing(Err(AbortReason::OwnerEnded), Needs::synced(mark)));
        }
        if self.is_in_shadow(owner) {
            // What it begins from now on would be in doubt as well. Another start finds the same damage.
            return Ok(Plan::nothing(Err(AbortReason::OwnerEnded), Needs::default()));
        }
        if !self.owners.has_lease(owner) {
            self.check_owners()?;
        }
        self.touch(owner, now);
        Ok(Plan::nothing(Ok(()), Needs::default()))
    }

    /// Whoever watched a [`Lease::Held`] owner does so no more: its lease is over.
    pub fn release(&mut self, owner: OwnerId, now: Now) {
        self.owners.release(owner, now.time);
    }

    /// Ends an owner: what it has not decided will never be committed, but what was suspended and has a deadline.
    ///
    /// # Errors
    /// `NoSuchOwner`.
    pub fn end(&mut self, owner: OwnerId, now: Now) -> Result<Plan<()>, TableError> {
        if !self.owners.is_given(owner) {
            return Err(TableError::NoSuchOwner(owner));
        }
        if let Some(mark) = self.owners.ended(owner) {
            return Ok(Plan::nothing((), Needs::synced(mark)));
        }
        if self.is_in_shadow(owner) {
            // Its end would say nothing.
            return Ok(Plan::nothing((), Needs::default()));
        }
        let ended = Record::Ended(owner, Tombstone { at_ms: now.wall_ms });
        Ok(Plan::writing((), Rests::Synced, vec![Change::Put(ended)]))
    }
}

/// When a transaction's tombstone says no more than its deadline.
fn stale(id: TransactionId) -> Option<(u64, TransactionId)> {
    (id.deadline_ms != 0).then(|| (id.deadline_ms.saturating_add(SET_BACK_MAX_MS), id))
}

fn is_complete(decision: &Decision) -> bool {
    decision.branches.iter().all(|(_, state)| *state == BranchState::Done)
}

fn is_heuristic(decision: &Decision) -> bool {
    heuristics(decision) > 0
}

/// How many of its branches decided by themselves.
fn heuristics(decision: &Decision) -> usize {
    decision.branches.iter().filter(|(_, state)| matches!(state, BranchState::Heuristic(_))).count()
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
