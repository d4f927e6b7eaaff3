//! What a coordinator does not know any more since its journal was damaged.
//!
//! A decision that was in a damaged range is gone, and so may be a tombstone or an owner's end. That nothing is remembered of
//! a transaction then does not say that nobody will commit it, or did. So of owners that were given out before the damage was
//! found no abort is presumed: their prepared branches are left alone, and *doubtful* until an operator says commit or roll
//! back. Records that are there count as ever.
//!
//! The record of owners may be gone too, and an older one be found in its place. So that no number is given out twice, many
//! are passed over.
//!
//! May use: `table`. Must not know: journals; to a store a mark is a position.

use crate::answer::Mark;
use crate::id::{OwnerId, TransactionId};
use crate::record::{Change, DamageRecord, Record};
use crate::table::{Entry, Now, Table};

/// How many numbers of owners are passed over: more than are given out between two records of owners that could be lost.
const OWNERS_PASSED_OVER: u64 = 1 << 32;

/// The damage that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Damage {
    pub(crate) record: DamageRecord,
    /// Whether that is to be written yet.
    pub(crate) is_new: bool,
}

impl Table {
    /// Records up to this mark may be lost. To be called before anything is asked, each time that the table is loaded.
    pub fn note_damage(&mut self, upto: Mark, now: Now) {
        if upto <= self.damage.record.upto {
            return;
        }
        self.owners.pass_over(OWNERS_PASSED_OVER, now.time);
        self.damage = Damage { record: DamageRecord { upto, below: self.owners.record.next }, is_new: true };
        self.keep_tombstones_in_shadow();
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

    /// The record of new damage.
    pub(crate) fn damage_to_write(&self) -> Option<Change> {
        self.damage.is_new.then_some(Change::Put(Record::Damage(self.damage.record)))
    }
}
