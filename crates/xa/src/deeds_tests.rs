//! What resource managers did by themselves with branches that were rolled back stays until somebody has looked at it.

use std::time::Duration;

use super::{COORDINATOR, Held, at, id, name};
use crate::decide::{Forgetting, Learned};
use crate::error::TableError;
use crate::id::{CoordinatorId, LastResourceId, OwnerId, TransactionId};
use crate::owners::Lease;
use crate::record::{BranchState, Deed, Heuristic};
use crate::status::{BranchStatus, State};
use crate::table::{AbortReason, Commit, Now, Outcome, Patience};
use crate::verdict::Verdict;

const DAY: u64 = 24 * 3600;

fn deed(branch: u8, did: Heuristic) -> Deed {
    Deed { branch: name(branch), did }
}

impl Held {
    fn note(&mut self, id: TransactionId, deeds: &[Deed], now: Now) -> Outcome {
        let plan = self.table.note_deeds(id, deeds, now).unwrap();
        self.write(plan)
    }

    fn listed(&self, id: TransactionId) -> (State, Vec<(u8, Heuristic)>) {
        let status = self.table.status(id).value;
        let of_branch = |branch: &crate::BranchName| (0..9).find(|number| name(*number) == *branch).unwrap();
        let deeds = status.branches.iter().map(|(branch, state)| match state {
            BranchStatus::Decided(BranchState::Heuristic(did)) => (of_branch(branch), *did),
            other => panic!("{other:?} of a branch that did something by itself"),
        });
        (status.state, deeds.collect())
    }

    fn forget_all(&mut self, id: TransactionId, forgetting: Forgetting) -> Result<(), TableError> {
        let plan = self.table.forget(id, &[], forgetting)?;
        self.write(plan);
        Ok(())
    }
}

#[test]
fn deeds_outlive_their_owner_their_deadline_and_restarts_until_they_are_forgotten_by_force() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let (ends, expires, was_told) = (id(owner, 1, 0, false), id(owner, 2, 5, false), id(owner, 3, 0, false));
    let plan = held.table.abort(was_told, at(0)).unwrap();
    held.write(plan);
    let all = [ends, expires, was_told];
    for id in all {
        let did = held.note(id, &[deed(1, Heuristic::Commit)], at(1));
        assert_eq!(did, Outcome::Aborted(AbortReason::RolledBack));
        held.note(id, &[deed(2, Heuristic::Hazard), deed(1, Heuristic::Mixed)], at(1));
        held.check();
    }
    assert_eq!(held.table.counters().heuristic, 3);
    let plan = held.table.note_deeds(ends, &[deed(1, Heuristic::Commit)], at(1)).unwrap();
    assert!(plan.changes().is_empty() && plan.needs().synced > 0, "said twice is once, and rests on the first");
    for now in [at(20), at(2 * DAY)] {
        held.step(now);
        held.restart(now);
        held.step(now);
        held.check();
        for id in all {
            let deeds = vec![(1, Heuristic::Commit), (2, Heuristic::Hazard)];
            assert_eq!(held.listed(id), (State::Aborted, deeds));
            assert_eq!(held.table.verdicts(&[id], now).value, [Verdict::Rollback]);
            assert_eq!(held.forget_all(id, Forgetting::Known), Err(TableError::NotDone(name(1))));
        }
    }
    for id in all {
        held.forget_all(id, Forgetting::Everything).unwrap();
        held.check();
        assert_eq!(held.listed(id), (State::Aborted, vec![]), "it is a tombstone yet");
        held.step(at(2 * DAY));
        assert_eq!(held.table.status(id).value.state, State::Unknown, "and goes as all others");
        assert_eq!(held.table.verdicts(&[id], at(2 * DAY)).value, [Verdict::Rollback]);
    }
    held.check();
    assert_eq!(held.table.counters().heuristic, 0);
}

#[test]
fn who_has_ended_has_deeds_too_and_what_is_committed_has_them_elsewhere() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let (committed, late) = (id(owner, 1, 0, false), id(owner, 2, 0, false));
    let plan = held.table.commit(committed, &[name(1)], Patience::Over, at(0)).unwrap();
    assert_eq!(held.write(plan), Commit::Decided);
    let plan = held.table.note_deeds(committed, &[deed(1, Heuristic::Rollback)], at(0)).unwrap();
    assert!(plan.changes().is_empty());
    assert_eq!(held.write(plan), Outcome::Committed);
    held.step(at(10));
    assert_eq!(held.note(late, &[deed(1, Heuristic::Mixed)], at(10)), Outcome::Aborted(AbortReason::OwnerEnded));
    held.step(at(11));
    assert_eq!(held.listed(late), (State::Aborted, vec![(1, Heuristic::Mixed)]));
    held.forget_all(late, Forgetting::Everything).unwrap();
    held.step(at(11));
    assert_eq!(held.table.status(late).value.state, State::Unknown);
    let learned = Learned { branch: name(1), heuristic: None };
    let plan = held.table.forget(late, &[learned], Forgetting::Known).unwrap();
    assert!(plan.changes().is_empty());
    held.check();
}

#[test]
fn deeds_of_what_nobody_may_roll_back_are_refused() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let deeds = [deed(1, Heuristic::Commit)];
    let mut refused = |id: TransactionId| held.table.note_deeds(id, &deeds, at(0)).map(|_| ()).unwrap_err();
    let mine = id(owner, 1, 0, false);
    assert_eq!(refused(TransactionId { coordinator: CoordinatorId(7), ..mine }), TableError::Foreign(CoordinatorId(7)));
    assert_eq!(refused(id(OwnerId(900), 1, 0, false)), TableError::NoSuchOwner(OwnerId(900)));
    let max = held.limits.xa_branches_max;
    let many: Vec<Deed> = (0..=max).map(|number| deed(u8::try_from(number).unwrap(), Heuristic::Commit)).collect();
    let refusal = held.table.note_deeds(mine, &many, at(0)).map(|_| ()).unwrap_err();
    assert_eq!(refusal, TableError::Limit { what: "branches of a transaction", max });
    let most = held.limits.xa_transactions_max / 2;
    for sequence in 0..u64::try_from(most).unwrap() {
        held.note(id(owner, sequence, 0, false), &deeds, at(0));
    }
    let refusal = held.table.note_deeds(id(owner, 999, 0, false), &deeds, at(0)).map(|_| ()).unwrap_err();
    let what = "transactions with a branch that decided by itself";
    assert_eq!(refusal, TableError::Limit { what, max: most });
    // Others have room.
    let plan = held.table.commit(id(owner, 1000, 0, false), &[name(1)], Patience::Over, at(0)).unwrap();
    assert_eq!(held.write(plan), Commit::Decided);
    // Of one that is known there is room.
    held.note(id(owner, 1, 0, false), &[deed(2, Heuristic::Commit)], at(0));
    held.check();
    held.table.note_damage(100, at(0));
    let doubtful = id(owner, 2000, 0, false);
    assert_eq!(
        held.table.note_deeds(doubtful, &deeds, at(0)).map(|_| ()).unwrap_err(),
        TableError::Doubtful(doubtful),
        "it may be committed"
    );
    held.note(id(owner, 2, 0, false), &[deed(2, Heuristic::Commit)], at(0));
}

#[test]
fn where_a_last_resource_decides_deeds_say_nothing_of_what_it_decided() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let id = TransactionId { last_resource: Some(LastResourceId(3)), ..id(owner, 1, 0, false) };
    assert_eq!(id.coordinator, COORDINATOR);
    held.note(id, &[deed(1, Heuristic::Rollback)], at(0));
    assert_eq!(held.listed(id), (State::LastResource, vec![(1, Heuristic::Rollback)]));
    assert_eq!(held.table.verdicts(&[id], at(0)).value, [Verdict::LastResource]);
}
