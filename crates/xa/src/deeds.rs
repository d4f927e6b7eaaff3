//! What resource managers did by themselves with branches of transactions that are rolled back.
//!
//! Of a transaction that is committed it stands with the decision. Of one that is rolled back it stands with the tombstone,
//! which is written for it where there is none: an abort is presumed, but a deed is not. Such a tombstone goes neither with its
//! owner nor with its deadline: somebody has to look at it, and forgets the deeds, of which it is a tombstone as all others.
//!
//! May use: `table`. Must not know: who found out, clocks, stores.

use crate::answer::{Plan, Rests};
use crate::decide::Forgetting;
use crate::error::TableError;
use crate::id::TransactionId;
use crate::record::{Abort, Change, Deed, Record};
use crate::table::{AbortReason, Entry, Now, Outcome, Table};

impl Table {
    /// Notes what resource managers did by themselves with branches of a transaction that is rolled back, and decides that it
    /// is. When it is committed, which is the answer then, nothing is noted. What is noted of a branch once stays.
    ///
    /// # Errors
    /// `Foreign`, `NoSuchOwner`, `Limit`; `Doubtful`: it may be committed, and nobody knows.
    pub fn note_deeds(&mut self, id: TransactionId, deeds: &[Deed], now: Now) -> Result<Plan<Outcome>, TableError> {
        self.check_mine(id)?;
        let settled = self.settled(id);
        let (mut abort, reason) = match (self.entries.get(&id), &settled) {
            (Some(Entry::Aborted { abort, .. }), _) => (abort.clone(), AbortReason::RolledBack),
            (_, Some((outcome @ Outcome::Committed, needs))) => return Ok(Plan::nothing(*outcome, *needs)),
            (_, Some((Outcome::Aborted(reason), _))) => (Abort { at_ms: now.wall_ms, deeds: Vec::new() }, *reason),
            (_, None) => {
                self.check_shadow(id)?;
                if !self.owners.is_given(id.owner) {
                    return Err(TableError::NoSuchOwner(id.owner));
                }
                (Abort { at_ms: now.wall_ms, deeds: Vec::new() }, AbortReason::RolledBack)
            }
        };
        self.check_room(id)?;
        self.touch(id.owner, now);
        let known = abort.deeds.len();
        for deed in deeds {
            if abort.deeds.iter().all(|known| known.branch != deed.branch) {
                abort.deeds.push(deed.clone());
            }
        }
        self.check_branches(abort.deeds.len())?;
        // Nothing but a person lets go of them: they must not take the room that transactions need.
        let max = (self.limits.xa_transactions_max / 2).max(1);
        if known == 0 && self.counters.heuristic >= max as u64 {
            return Err(TableError::Limit { what: "transactions with a branch that decided by itself", max });
        }
        let outcome = Outcome::Aborted(reason);
        match settled {
            Some((_, needs)) if abort.deeds.len() == known => Ok(Plan::nothing(outcome, needs)),
            _ => {
                let changes = vec![Change::Put(Record::Tombstone(id, abort))];
                Ok(Plan::writing(outcome, Rests::Synced, changes))
            }
        }
    }

    /// Lets go of what was done with branches of a transaction that is rolled back; `None` where there is nothing of that kind.
    pub(crate) fn forget_deeds(
        &self,
        id: TransactionId,
        forgetting: Forgetting,
    ) -> Option<Result<Plan<()>, TableError>> {
        let Some(Entry::Aborted { abort, .. }) = self.entries.get(&id) else { return None };
        let first = abort.deeds.first()?;
        if forgetting == Forgetting::Known {
            return Some(Err(TableError::NotDone(first.branch.clone())));
        }
        let plain = Record::Tombstone(id, Abort { at_ms: abort.at_ms, deeds: Vec::new() });
        Some(Ok(Plan::writing((), Rests::AsAsked, vec![Change::Put(plain)])))
    }
}
