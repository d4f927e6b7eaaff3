//! What a coordinator does not know any more since its journal was damaged.
//!
//! A decision that was in a damaged range is gone, and so may be a tombstone or an owner's end. That nothing is remembered of
//! a transaction then does not say that nobody will commit it, or did; and who asks to commit may not know that somebody was
//! told to roll back. So owners that were given out before the damage was found are *in shadow*. Of their transactions
//! nothing is presumed and no program decides: they are *doubtful* until an operator says commit or roll back, who can look
//! at all branches. Programs that live become new owners. Records that are there count as ever.
//!
//! The record of owners may be gone too, and an older one be found in its place. So that no number is given out twice, many
//! are passed over.
//!
//! That is what opening finds. Damage that is met later cost nothing yet, because the table is in memory: all of it is written
//! once more, behind the damage, and nobody comes to be in shadow.
//!
//! May use: `table`. Must not know: journals; to a store a mark is a position.

use std::collections::BTreeSet;

use crate::answer::Mark;
use crate::error::TableError;
use crate::id::{OwnerId, TransactionId};
use crate::record::{Change, DamageRecord, Record, RecordKey};
use crate::table::{Entry, Now, Table};

/// How many numbers of owners are passed over: more than are given out between two records of owners that could be lost.
const OWNERS_PASSED_OVER: u64 = 1 << 32;

/// The damage that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Damage {
    pub(crate) record: DamageRecord,
    /// Whether that is to be written yet.
    pub(crate) is_new: bool,
    met: Option<Met>,
    /// Since damage was met for the first time, the first change that was written: every record lies here or behind it, but those
    /// that are left.
    behind: Option<Mark>,
}

/// Damage that was met while the table was in memory.
#[derive(Debug, Clone)]
struct Met {
    upto: Mark,
    /// Records that were not written behind it yet.
    left: BTreeSet<RecordKey>,
}

impl Damage {
    pub(crate) fn put(&mut self, record: DamageRecord) {
        let met = self.met.take().filter(|met| met.upto > record.upto || !met.left.is_empty());
        *self = Self { record, is_new: false, met, behind: self.behind };
    }

    /// A record is where damage did not reach, or gone.
    pub(crate) fn note_written(&mut self, change: &Change, mark: Mark) {
        if let Some(met) = &mut self.met {
            self.behind.get_or_insert(mark);
            met.left.remove(&match change {
                Change::Put(record) => record.key(),
                Change::Delete(key) => *key,
            });
        }
    }
}

impl Table {
    /// Records up to this mark may be lost. To be called before anything is asked, each time that the table is loaded.
    pub fn note_damage(&mut self, upto: Mark, now: Now) {
        if upto <= self.damage.record.upto {
            return;
        }
        self.owners.pass_over(OWNERS_PASSED_OVER, now.time);
        let record = DamageRecord { upto, below: self.owners.record.next };
        self.damage = Damage { record, is_new: true, ..Damage::default() };
        self.keep_tombstones_in_shadow();
    }

    /// Records up to this mark may be lost from the journal, but not from memory: [`Table::step`] writes them all again, but for
    /// those that it has written since, behind this mark.
    pub fn meet_damage(&mut self, upto: Mark) {
        let met = self.damage.met.take();
        let known = met.as_ref().map_or(self.damage.record.upto, |met| met.upto);
        let left = match (met, self.damage.behind) {
            (met, Some(behind)) if behind >= upto => met.map(|met| met.left).unwrap_or_default(),
            (Some(met), None) => met.left,
            _ => {
                self.damage.behind = None;
                self.records().map(|record| record.key()).filter(|key| *key != RecordKey::Damage).collect()
            }
        };
        self.damage.met = Some(Met { upto: upto.max(known), left });
    }

    /// Whether damage is not noted yet, or records are left that it may have taken from the journal.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.damage.is_new || self.damage.met.is_some()
    }

    /// Where no abort is presumed a tombstone is all that says one: an owner's end does not make it redundant.
    pub(crate) fn keep_tombstones_in_shadow(&mut self) {
        let (entries, below) = (&self.entries, self.damage.record.below);
        self.let_go.retain(|id| id.owner.0 >= below || !matches!(entries.get(id), Some(Entry::Aborted { .. })));
    }

    /// Whether something may have been decided about this owner's transactions that is lost.
    pub(crate) fn is_in_shadow(&self, owner: OwnerId) -> bool {
        owner.0 < self.damage.record.below
    }

    /// Remembers, in memory, that nobody knows what was decided, so that it is listed.
    pub(crate) fn doubt(&mut self, id: TransactionId) {
        if !self.is_full() {
            self.entries.entry(id).or_insert(Entry::Doubtful);
        }
    }

    /// Refuses a program that decides about a transaction of which nothing is remembered because of damage.
    pub(crate) fn check_shadow(&mut self, id: TransactionId) -> Result<(), TableError> {
        if !self.is_in_shadow(id.owner) {
            return Ok(());
        }
        self.doubt(id);
        Err(TableError::Doubtful(id))
    }

    /// What is to be written because of damage: that it is there, or what it may have taken, and at last that this was written.
    pub(crate) fn damage_to_write(&self, changes_max: usize) -> Vec<Change> {
        if self.damage.is_new {
            return vec![Change::Put(Record::Damage(self.damage.record))];
        }
        let Some(met) = &self.damage.met else { return Vec::new() };
        if met.left.is_empty() {
            return vec![Change::Put(Record::Damage(DamageRecord { upto: met.upto, ..self.damage.record }))];
        }
        met.left.iter().filter_map(|key| self.record(*key)).take(changes_max).map(Change::Put).collect()
    }
}
