//! Verdicts on branches that somebody found prepared, and what time alone brings about.
//!
//! May use: `table`. Must not know: who found them, clocks, stores.

use std::collections::BTreeSet;

use crate::answer::{Needs, Plan, Rests};
use crate::id::{OwnerId, TransactionId};
use crate::record::{Change, Record, RecordKey, Tombstone};
use crate::table::{AbortReason, Entry, Now, Outcome, Table, Vote};

/// What to do with a prepared branch that somebody found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Decided: commit it.
    Commit,
    /// It will never be committed: roll it back.
    Rollback,
    /// The coordinator will never commit it, but its last resource may have: what that says counts.
    LastResource,
    /// Its owner is alive, or nobody can tell, also since the journal was damaged: leave it.
    Leave,
    /// Another coordinator's: leave it.
    Foreign,
}

/// Whether time has brought about more than was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// Nothing more is due.
    All,
    /// Ask again.
    More,
}

impl Table {
    /// What to do with each transaction that was found prepared somewhere. All of it is on stable storage before it is
    /// said, commits too: whoever asks does not know how durable the owner wants its decision to be.
    pub fn verdicts(&mut self, ids: &[TransactionId], now: Now) -> Plan<Vec<Verdict>> {
        let mut judging = Judging::default();
        let mut verdict = |id: &TransactionId| match self.judge(*id, now, &mut judging) {
            Verdict::Rollback if id.last_resource.is_some() => Verdict::LastResource,
            verdict => verdict,
        };
        let verdicts: Vec<Verdict> = ids.iter().map(&mut verdict).collect();
        let settled = verdicts.iter().filter(|verdict| !matches!(verdict, Verdict::Leave | Verdict::Foreign));
        let settled = settled.count() as u64;
        let plan = Plan::writing(verdicts, Rests::Synced, judging.changes);
        Plan { needs: judging.needs, verdicts: settled, ..plan }
    }

    fn judge(&mut self, id: TransactionId, now: Now, judging: &mut Judging) -> Verdict {
        if id.coordinator != self.coordinator {
            return Verdict::Foreign;
        }
        if let Some((outcome, needs)) = self.settled(id) {
            let needs = Needs::synced(needs.asked.max(needs.synced));
            judging.needs = judging.needs.and(needs);
            if let Some(Entry::Decided(decided)) = self.entries.get_mut(&id) {
                decided.is_told = true;
            }
            return match outcome {
                Outcome::Committed => Verdict::Commit,
                Outcome::Aborted(_) => Verdict::Rollback,
            };
        }
        let outlives_owner = matches!(self.entries.get(&id), Some(Entry::Shared(shared)) if shared.outlives_owner(id));
        if (judging.ended.contains(&id.owner) && !outlives_owner) || judging.buried.contains(&id) {
            return Verdict::Rollback;
        }
        if self.is_in_shadow(id.owner) {
            self.doubt(id);
            return Verdict::Leave;
        }
        if !self.owners.is_given(id.owner) {
            return Verdict::Leave;
        }
        if self.owners.is_lapsed(id.owner, now.time) && !outlives_owner {
            judging.ended.insert(id.owner);
            judging.changes.push(Change::Put(Record::Ended(id.owner, Tombstone { at_ms: now.wall_ms })));
            return Verdict::Rollback;
        }
        let has_failed = match self.entries.get(&id) {
            Some(Entry::Shared(shared)) => shared.parts.values().any(|part| part.vote == Some(Vote::Failed)),
            _ => false,
        };
        // What speaks against a commit now always will: a commit is refused for it from here on.
        let failed = has_failed.then_some(AbortReason::BranchFailed);
        let Some(reason) = self.obstacle(id, now).or(failed) else { return Verdict::Leave };
        // Without room for the tombstone nothing may be said.
        let has_room = self.entries.len() + judging.buried.len() < self.limits.xa_transactions_max;
        if !(has_room || self.entries.contains_key(&id)) {
            return Verdict::Leave;
        }
        judging.buried.insert(id);
        judging.changes.extend(Self::bury(id, reason, now).changes);
        Verdict::Rollback
    }

    /// Does what is due by now, up to so many changes: owners whose lease is over end, shared transactions past their
    /// deadline are rolled back, records that say nothing any more go, and an owner ends whose tombstones leave no room.
    pub fn step(&mut self, changes_max: usize, now: Now) -> Plan<Stepped> {
        self.note_time(now);
        let ended = |owner: OwnerId| Change::Put(Record::Ended(owner, Tombstone { at_ms: now.wall_ms }));
        let mut changes = self.damage_to_write(changes_max);
        if changes.is_empty() {
            changes.extend(self.owners.lapsed(now.time).take(changes_max).map(ended));
        }
        if changes.is_empty()
            && let Some(record) = self.owners.raised(self.limits.xa_owners_max, now.time)
        {
            changes.push(Change::Put(Record::Owners(record)));
        }
        if changes.is_empty() {
            let due = self.deadlines.iter().take_while(|(deadline_ms, _)| *deadline_ms <= now.wall_ms);
            let bury = |(_, id): &(u64, TransactionId)| Self::bury(*id, AbortReason::Deadline, now).changes;
            changes.extend(due.take(changes_max).flat_map(bury));
        }
        if changes.is_empty() {
            let redundant = self.owners.redundant().map(|owner| Change::Delete(RecordKey::Ended(owner)));
            let gone = self.let_go.iter().map(|id| match self.entries.get(id) {
                Some(Entry::Decided(_)) => Change::Delete(RecordKey::Decision(*id)),
                _ => Change::Delete(RecordKey::Tombstone(*id)),
            });
            let stale = self.stale.iter().take_while(|(at_ms, _)| *at_ms <= now.wall_ms);
            let stale = stale.filter(|(_, id)| !self.let_go.contains(id) && !self.is_in_shadow(id.owner));
            let stale = stale.map(|(_, id)| Change::Delete(RecordKey::Tombstone(*id)));
            let over = self.retained.iter().take_while(|(until, _)| *until <= now.time);
            let over = over.map(|(_, id)| Change::Delete(RecordKey::Decision(*id)));
            changes.extend(redundant.chain(gone).chain(stale).chain(over).take(changes_max));
        }
        if changes.is_empty() {
            changes.extend(self.crowding().map(ended));
        }
        let stepped = if changes.is_empty() { Stepped::All } else { Stepped::More };
        Plan::writing(stepped, Rests::Lazily, changes)
    }

    /// The owner that is to end because tombstones of the living fill half of the table, which would refuse every commit once
    /// it is full: its end says what its tombstones say, and rolls back what it has not decided. It goes on as another one. In
    /// shadow its end would say nothing.
    fn crowding(&self) -> Option<OwnerId> {
        let half = self.limits.xa_transactions_max / 2;
        let is_possible = self.entries.len() > half;
        is_possible.then(|| self.owners.with_most_tombstones(OwnerId(self.damage.record.below), half)).flatten()
    }
}

/// What verdicts come to while they are given.
#[derive(Default)]
struct Judging {
    changes: Vec<Change>,
    needs: Needs,
    ended: BTreeSet<OwnerId>,
    buried: BTreeSet<TransactionId>,
}
