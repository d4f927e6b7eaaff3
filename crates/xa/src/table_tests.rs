//! The table's rules, one by one, and that whatever happens it is what was written.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::decide::{Forgetting, Learned, Taking};
use crate::id::{BranchName, LastResourceId};
use crate::record::{DamageRecord, Deed, Heuristic};
use crate::status::State;
use crate::verdict::Verdict;

const COORDINATOR: CoordinatorId = CoordinatorId(9);

fn at(seconds: u64) -> Now {
    let time = Time::default().after(Duration::from_secs(seconds));
    Now { time, wall_ms: 1_000_000 + seconds * 1000 }
}

/// A table and the records it wrote.
struct Held {
    table: Table,
    records: BTreeMap<RecordKey, Record>,
    mark: Mark,
    limits: Limits,
}

impl Held {
    fn new() -> Self {
        let limits = Limits { xa_transactions_max: 40, ..Limits::tiny() };
        let table = Table::load(COORDINATOR, &limits, at(0), []).unwrap();
        Self { table, records: BTreeMap::new(), mark: 0, limits }
    }

    fn write<T>(&mut self, plan: Plan<T>) -> T {
        for change in plan.changes() {
            match change {
                Change::Put(record) => drop(self.records.insert(record.key(), record.clone())),
                Change::Delete(key) => assert!(self.records.remove(key).is_some(), "{key:?} was there"),
            }
        }
        self.mark += 1;
        let mark = self.mark;
        let answer = self.table.carry_out(plan, mark);
        assert!(answer.needs.asked <= mark && answer.needs.synced <= mark, "nothing rests on what is to come");
        answer.value
    }

    fn open(&mut self, lease: Lease, now: Now) -> Option<OwnerId> {
        loop {
            let plan = self.table.open(lease, "", now).ok()?;
            if let Some(owner) = self.write(plan) {
                return Some(owner);
            }
        }
    }

    fn restart(&mut self, now: Now) {
        self.table = Table::load(COORDINATOR, &self.limits, now, self.records.values().cloned()).unwrap();
        self.mark = 0;
    }

    fn step(&mut self, now: Now) {
        for _ in 0..100 {
            let plan = self.table.step(3, now);
            if self.write(plan) == crate::Stepped::All {
                return;
            }
        }
        panic!("a step has no end");
    }

    fn check(&self) {
        let remembered: BTreeMap<RecordKey, Record> =
            self.table.records().map(|record| (record.key(), record)).collect();
        assert_eq!(remembered, self.records);
        let decided = self.table.entries.values().filter_map(|entry| match entry {
            Entry::Decided(decided) => Some(&decided.decision),
            _ => None,
        });
        let counters = self.table.counters();
        assert_eq!(counters.outstanding, decided.clone().filter(|decision| !is_complete(decision)).count() as u64);
        let of_aborts = self.table.entries.values().filter(|entry| match entry {
            Entry::Aborted { abort, .. } => !abort.deeds.is_empty(),
            _ => false,
        });
        let heuristic = decided.filter(|decision| is_heuristic(decision)).count() + of_aborts.count();
        assert_eq!(counters.heuristic, heuristic as u64);
    }
}

fn id(owner: OwnerId, sequence: u64, deadline: u64, shared: bool) -> TransactionId {
    let deadline_ms = if deadline == 0 { 0 } else { at(deadline).wall_ms };
    TransactionId { coordinator: COORDINATOR, owner, sequence, deadline_ms, shared, last_resource: None }
}

fn name(branch: u8) -> BranchName {
    BranchName::new(&format!("b{branch}")).unwrap()
}

#[test]
fn an_owner_that_lives_long_does_not_keep_a_record_of_all_that_came_and_went() {
    let mut held = Held::new();
    let long = held.open(Lease::Held, at(0)).unwrap();
    for _ in 0..3_000 {
        let owner = held.open(Lease::For(Duration::from_secs(1)), at(0)).unwrap();
        let plan = held.table.end(owner, at(0)).unwrap();
        held.write(plan);
        held.step(at(0));
    }
    held.check();
    assert!(held.records.len() < 12, "{}", held.records.len());
    assert_eq!(held.table.owners.ended(long), None);
    assert!((long.0 + 1..=3_001).all(|owner| held.table.owners.ended(OwnerId(owner)).is_some()));
    // It alone is taken as alive after a restart, until the grace is over.
    held.restart(at(100));
    assert_eq!(held.table.verdicts(&[id(long, 1, 0, false)], at(100)).value, [Verdict::Leave]);
    held.step(at(110));
    assert!(held.table.owners.ended(long).is_some());
    assert!(held.open(Lease::Held, at(110)).unwrap().0 > 3_001, "numbers are never given out again");
}

#[test]
fn tombstones_go_when_their_owner_has_ended_and_the_verdict_stays() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    for sequence in 1..6 {
        let plan = held.table.abort(id(owner, sequence, 0, false), at(0)).unwrap();
        held.write(plan);
    }
    held.step(at(9));
    assert_eq!(held.table.entries.len(), 5);
    held.step(at(10));
    assert_eq!((held.table.entries.len(), held.records.len()), (0, 2), "its end, and the record of owners");
    let plan = held.table.verdicts(&[id(owner, 1, 0, false)], at(10));
    assert_eq!(plan.value, [Verdict::Rollback]);
    assert!(plan.changes.is_empty() && plan.needs.synced > 0);
}

/// Every shared transaction that is rolled back leaves a tombstone, which stays while its owner lives. They filled the table,
/// and every commit of every program was refused.
#[test]
fn an_owner_whose_tombstones_leave_no_room_for_others_ends_and_nothing_of_it_is_torn() {
    let mut held = Held::new();
    held.limits.xa_transactions_max = 12;
    held.restart(at(0));
    let (patient, busy) = (held.open(Lease::Held, at(0)).unwrap(), held.open(Lease::Held, at(0)).unwrap());
    let commit = |held: &mut Held, id| {
        let plan = held.table.commit(id, &[name(1)], Patience::Over, at(0))?;
        Ok(held.write(plan))
    };
    let abort = |held: &mut Held, id| {
        let plan = held.table.abort(id, at(0)).unwrap();
        assert!(matches!(held.write(plan), Outcome::Aborted(_)));
    };
    let (decided, open) = (id(busy, 100, 0, false), id(busy, 101, 0, false));
    assert_eq!(commit(&mut held, decided), Ok(Commit::Decided));
    let enlisted = id(busy, 102, 0, true);
    let plan = held.table.enlist(enlisted, None, &[name(2)], at(0)).unwrap();
    held.write(plan);
    abort(&mut held, id(patient, 1, 0, true));
    for sequence in 1..6 {
        abort(&mut held, id(busy, sequence, 0, true));
    }
    held.step(at(0));
    assert_eq!(held.table.owners.ended(busy), None, "half of the table is left for others");
    for sequence in 6..10 {
        abort(&mut held, id(busy, sequence, 0, true));
    }
    let full = TableError::Limit { what: "transactions", max: 12 };
    assert_eq!(commit(&mut held, id(patient, 2, 0, false)), Err(full));
    for is_restarted in [false, true] {
        held.step(at(0));
        held.check();
        assert!(held.table.owners.ended(busy).is_some());
        assert!(is_restarted || held.table.owners.ended(patient).is_none());
        // What it had decided stays so, and what it had not is never committed.
        assert_eq!(commit(&mut held, decided), Ok(Commit::Settled(Outcome::Committed)));
        let plan = held.table.verdicts(&[decided, open, enlisted, id(busy, 1, 0, true)], at(0));
        let rolled_back = [Verdict::Commit, Verdict::Rollback, Verdict::Rollback, Verdict::Rollback];
        assert_eq!(held.write(plan), rolled_back);
        let ended = Commit::Settled(Outcome::Aborted(AbortReason::OwnerEnded));
        assert_eq!((commit(&mut held, open), commit(&mut held, enlisted)), (Ok(ended), Ok(ended)));
        if !is_restarted {
            assert_eq!(commit(&mut held, id(patient, 2, 0, false)), Ok(Commit::Decided));
            assert_eq!(held.table.entries.len(), 3);
            held.restart(at(0));
        }
    }
}

/// The coordinator knows only that it will not commit; what its own decision says comes first.
#[test]
fn where_a_last_resource_may_have_decided_nobody_is_told_to_roll_back() {
    let mut held = Held::new();
    let owner = held.open(Lease::Held, at(0)).unwrap();
    let commit = |held: &mut Held, id| {
        let plan = held.table.commit(id, &[name(1)], Patience::Over, at(4)).unwrap();
        held.write(plan)
    };
    let of = |sequence, deadline| TransactionId {
        last_resource: Some(LastResourceId(9)),
        ..id(owner, sequence, deadline, false)
    };
    let ids = [of(1, 0), of(2, 0), of(3, 5), of(4, 0)];
    let [decided, given_up, late, open] = ids;
    assert_eq!(commit(&mut held, decided), Commit::Decided);
    let plan = held.table.abort(given_up, at(0)).unwrap();
    held.write(plan);
    let verdicts = |held: &mut Held, now| {
        let plan = held.table.verdicts(&ids, now);
        assert_eq!(plan.verdicts, plan.value.iter().filter(|verdict| **verdict != Verdict::Leave).count() as u64);
        held.write(plan)
    };
    let asks = Verdict::LastResource;
    assert_eq!(verdicts(&mut held, at(1)), [Verdict::Commit, asks, Verdict::Leave, Verdict::Leave]);
    assert_eq!(verdicts(&mut held, at(5)), [Verdict::Commit, asks, asks, Verdict::Leave]);
    // Nor does an operator, whom the program and its last resource do not ask.
    let refused = held.table.commit_by_operator(open, &[name(0)], at(5)).map(drop);
    assert_eq!(refused, Err(TableError::LastResource(open)));
    // Whoever was sent there must find that nothing is decided here behind it.
    for id in [given_up, late] {
        assert!(matches!(commit(&mut held, id), Commit::Settled(Outcome::Aborted(_))));
        assert_eq!(held.table.status(id).value.state, State::LastResource);
    }
    held.restart(at(6));
    let plan = held.table.end(owner, at(6)).unwrap();
    held.write(plan);
    assert_eq!(verdicts(&mut held, at(7)), [Verdict::Commit, asks, asks, asks]);
    assert!(matches!(commit(&mut held, open), Commit::Settled(Outcome::Aborted(_))));
}

#[test]
fn a_tombstone_goes_a_day_after_its_deadline_though_its_owner_lives() {
    let mut held = Held::new();
    let owner = held.open(Lease::Held, at(0)).unwrap();
    let (with, without) = (id(owner, 1, 10, false), id(owner, 2, 0, false));
    for id in [with, without] {
        let plan = held.table.abort(id, at(0)).unwrap();
        held.write(plan);
    }
    let day = 24 * 3600;
    held.step(at(day + 9));
    assert_eq!(held.table.entries.len(), 2);
    held.step(at(day + 10));
    assert_eq!(held.table.entries.keys().collect::<Vec<_>>(), [&without]);
    held.check();
    for _ in 0..2 {
        let plan = held.table.commit(with, &[name(1)], Patience::Over, at(day + 10)).unwrap();
        assert_eq!(held.write(plan), Commit::Settled(Outcome::Aborted(AbortReason::Deadline)));
        held.step(at(day + 10));
    }
    held.check();
}

#[test]
fn damage_is_noted_once_and_nothing_is_presumed_of_owners_from_before_it() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    held.restart(at(0));
    held.table.note_damage(77, at(0));
    assert!(held.table.is_exposed());
    held.step(at(20));
    assert!(!held.table.is_exposed());
    assert_eq!(held.records[&RecordKey::Damage], Record::Damage(DamageRecord { upto: 77, below: 1025 + (1 << 32) }));
    let ask = |held: &mut Held, owner| {
        let plan = held.table.verdicts(&[id(owner, 1, 0, false), id(owner, 2, 1, true)], at(20));
        held.write(plan)
    };
    assert_eq!(ask(&mut held, owner), [Verdict::Leave; 2]);
    assert!(held.table.entries.values().all(|entry| matches!(entry, Entry::Doubtful)));
    held.check();
    held.restart(at(20));
    for upto in [77, 5] {
        held.table.note_damage(upto, at(20));
    }
    held.step(at(40));
    assert_eq!(ask(&mut held, owner), [Verdict::Leave; 2]);
    // A number from before that the lost records may have given out; and one of a new owner.
    assert_eq!(ask(&mut held, OwnerId(5000)), [Verdict::Leave; 2]);
    let newer = held.open(Lease::For(Duration::from_secs(1)), at(40)).unwrap();
    held.step(at(50));
    let plan = held.table.verdicts(&[id(newer, 1, 0, false)], at(50));
    assert_eq!(held.write(plan), [Verdict::Rollback]);
    held.check();
}

#[test]
fn an_abort_in_the_shadow_of_damage_stays_and_so_do_the_numbers_that_were_passed_over() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let (before, behind) = (id(owner, 1, 1, false), id(owner, 2, 1, false));
    let plan = held.table.abort(before, at(0)).unwrap();
    held.write(plan);
    // The owner's end makes its tombstone redundant, and damage makes it all there is.
    held.restart(at(0));
    held.step(at(20));
    held.table.note_damage(77, at(20));
    let plan = held.table.abort_by_operator(behind, at(20)).unwrap();
    held.write(plan);
    let day = 24 * 3600;
    for _ in 0..3 {
        held.step(at(2 * day));
        held.restart(at(2 * day));
        for id in [before, behind] {
            let is_known = held.records.contains_key(&RecordKey::Tombstone(id));
            let plan = held.table.verdicts(&[id], at(2 * day));
            let expected = if is_known { Verdict::Rollback } else { Verdict::Leave };
            assert_eq!(held.write(plan), [expected]);
        }
        assert!(held.records.contains_key(&RecordKey::Tombstone(behind)), "what an operator said is not forgotten");
    }
    let newer = held.open(Lease::For(Duration::from_secs(1)), at(2 * day)).unwrap();
    assert!(newer.0 >= 1 << 32, "{newer:?}");
    held.check();
}

/// They were told that they are to be committed, and the transaction could be forgotten before they were.
#[test]
fn branches_that_come_behind_the_decision_are_noted_with_it() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let it = id(owner, 1, 0, true);
    let plan = held.table.commit(it, &[name(1)], Patience::Over, at(0)).unwrap();
    held.write(plan);
    for _ in 0..2 {
        let plan = held.table.commit(it, &[name(2), name(1)], Patience::Over, at(0)).unwrap();
        assert_eq!(held.write(plan), Commit::Settled(Outcome::Committed));
        let learned = [Learned { branch: name(1), heuristic: None }];
        let plan = held.table.forget(it, &learned, Forgetting::Known).unwrap();
        held.write(plan);
        held.restart(at(1));
        let plan = held.table.verdicts(&[it], at(1));
        assert_eq!(held.write(plan), [Verdict::Commit]);
    }
    let misspelt = held.table.commit_by_operator(it, &[name(3)], at(1)).map(drop);
    assert_eq!(misspelt, Err(TableError::NoSuchBranch(name(3))));
    let many: Vec<BranchName> = (0..200).map(name).collect();
    assert!(matches!(held.table.commit(it, &many, Patience::Over, at(1)).map(drop), Err(TableError::Limit { .. })));
    held.check();
}

#[test]
fn in_the_shadow_of_damage_programs_decide_nothing_and_become_new_owners() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let (kept, open, joined) = (id(owner, 1, 0, false), id(owner, 2, 5, false), id(owner, 3, 0, true));
    let plan = held.table.commit(kept, &[name(1)], Patience::Over, at(0)).unwrap();
    held.write(plan);
    held.restart(at(1));
    held.table.note_damage(77, at(1));
    held.step(at(1));
    for now in [at(1), at(60)] {
        for id in [open, joined] {
            let doubtful = Err(TableError::Doubtful(id));
            assert_eq!(held.table.commit(id, &[name(1)], Patience::Waits, now).map(drop), doubtful);
            assert_eq!(held.table.abort(id, now).map(drop), doubtful);
        }
        let doubtful = Err(TableError::Doubtful(joined));
        assert_eq!(held.table.enlist(joined, None, &[name(1)], now).map(drop), doubtful);
        assert_eq!(held.table.vote(joined, &name(1), Vote::Prepared, now).map(drop), doubtful);
        let plan = held.table.renew(owner, now).unwrap();
        assert_eq!(held.write(plan), Err(AbortReason::OwnerEnded));
        let plan = held.table.end(owner, now).unwrap();
        held.write(plan);
        // What is remembered counts.
        let plan = held.table.commit(kept, &[name(1)], Patience::Over, now).unwrap();
        assert_eq!(held.write(plan), Commit::Settled(Outcome::Committed));
    }
    assert!([open, joined].iter().all(|id| matches!(held.table.entries.get(id), Some(Entry::Doubtful))));
    // Its deadline passed, and its program may have committed it before.
    let plan = held.table.commit_by_operator(open, &[name(1)], at(60)).unwrap();
    assert_eq!(held.write(plan), Commit::Decided);
    let plan = held.table.abort_by_operator(joined, at(60)).unwrap();
    assert_eq!(held.write(plan), Outcome::Aborted(AbortReason::RolledBack));
    let plan = held.table.verdicts(&[open, joined], at(60));
    assert_eq!(held.write(plan), [Verdict::Commit, Verdict::Rollback]);
    // Numbers that were passed over are in the record of owners once there is a new one.
    assert!(held.open(Lease::Held, at(60)).is_some_and(|new| new.0 > owner.0 + (1 << 32)));
    held.check();
}

#[test]
fn damage_that_is_met_has_everything_written_again_and_puts_nobody_in_shadow() {
    let mut held = Held::new();
    let lease = Lease::For(Duration::from_secs(10));
    let owners = [held.open(lease, at(0)).unwrap(), held.open(lease, at(0)).unwrap()];
    for sequence in 1..8 {
        let plan = held.table.commit(id(owners[0], sequence, 0, false), &[name(1)], Patience::Over, at(0)).unwrap();
        held.write(plan);
        let plan = held.table.abort(id(owners[0], 10 + sequence, 0, false), at(0)).unwrap();
        held.write(plan);
    }
    let plan = held.table.end(owners[1], at(0)).unwrap();
    held.write(plan);
    let counters = held.table.counters();
    // All that was written before is lost, while it goes on.
    held.table.meet_damage(77);
    let known = std::mem::take(&mut held.records);
    let plan = held.table.commit(id(owners[0], 8, 0, false), &[name(1)], Patience::Over, at(1)).unwrap();
    held.write(plan);
    assert!(held.table.is_exposed());
    held.step(at(1));
    assert!(!held.table.is_exposed());
    assert!(known.iter().all(|(key, record)| held.records.get(key) == Some(record)));
    assert_eq!(held.records[&RecordKey::Damage], Record::Damage(DamageRecord { upto: 77, below: 0 }));
    assert_eq!(held.table.counters(), Counters { decisions: counters.decisions + 1, outstanding: 8, ..counters });
    held.check();
    held.restart(at(2));
    held.table.note_damage(77, at(2));
    let plan = held.table.renew(owners[0], at(2)).unwrap();
    assert_eq!(held.write(plan), Ok(()));
    held.check();
}

#[test]
fn what_was_written_again_behind_damage_is_not_written_once_more() {
    let mut held = Held::new();
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    for sequence in 1..8 {
        let plan = held.table.commit(id(owner, sequence, 0, false), &[name(1)], Patience::Over, at(0)).unwrap();
        held.write(plan);
    }
    let write_some = |held: &mut Held| {
        let plan = held.table.step(3, at(1));
        let written = plan.changes().len();
        held.write(plan);
        written
    };
    held.table.meet_damage(2);
    let first = held.mark + 1;
    assert_eq!(write_some(&mut held), 3);
    // More of it, that lies before: only the five others are left.
    held.table.meet_damage(first);
    assert_eq!((write_some(&mut held), write_some(&mut held)), (3, 2));
    assert!(held.table.is_exposed());
    assert_eq!(write_some(&mut held), 1, "that this is known");
    assert!(!held.table.is_exposed());
    assert_eq!(held.records[&RecordKey::Damage], Record::Damage(DamageRecord { upto: first, below: 0 }));
    // And some that is found when all is written.
    held.table.meet_damage(1);
    assert!(held.table.is_exposed());
    assert_eq!(write_some(&mut held), 1);
    assert!(!held.table.is_exposed());
    // What reaches into what was written takes everything.
    held.table.meet_damage(first + 1);
    held.records.clear();
    while held.table.is_exposed() {
        write_some(&mut held);
    }
    held.check();
}

/// Two programs had a database under one name. The decision held the name once: who committed said that it is done, the
/// decision was let go of, and the other program's branch was rolled back. Of two who enlisted, one vote counted for both.
/// Its owner may not have heard that it committed, and must not hear that it is unknown: that is to be rolled back.
#[test]
fn what_recovery_was_told_is_remembered_for_an_hour_unless_by_force() {
    let mut held = Held::new();
    let owner = held.open(Lease::Held, at(0)).unwrap();
    let learned = [Learned { branch: name(1), heuristic: None }];
    for (sequence, is_told, by_force) in [(1, false, false), (2, true, false), (3, true, true)] {
        let id = id(owner, sequence, 0, false);
        let plan = held.table.commit(id, &[name(1)], Patience::Waits, at(0)).unwrap();
        assert_eq!(held.write(plan), Commit::Decided);
        if is_told {
            let plan = held.table.verdicts(&[id], at(0));
            assert_eq!(held.write(plan), [Verdict::Commit]);
        }
        let plan = held.table.forget(id, &learned, Forgetting::Known).unwrap();
        held.write(plan);
        assert_eq!(held.records.contains_key(&RecordKey::Decision(id)), is_told);
        let again = held.table.forget(id, &[], Forgetting::Known).map(drop);
        assert_eq!(again, if is_told { Err(TableError::Retained) } else { Ok(()) });
        if by_force {
            let plan = held.table.forget(id, &[], Forgetting::Everything).unwrap();
            held.write(plan);
            assert!(!held.records.contains_key(&RecordKey::Decision(id)));
        }
        held.check();
    }
    held.step(at(3_601));
    assert!(held.table.entries.is_empty() && held.records.keys().all(|key| !matches!(key, RecordKey::Decision(_))));
}

#[test]
fn a_name_that_two_programs_chose_is_refused_to_the_second() {
    let mut held = Held::new();
    let owner = held.open(Lease::Held, at(0)).unwrap();
    let mut program = || Some(held.open(Lease::Held, at(0)).unwrap());
    let (joiner, other) = (program(), program());
    for (sequence, vote) in (1..).zip([None, Some(Vote::Prepared), Some(Vote::ReadOnly)]) {
        let id = id(owner, sequence, 0, true);
        let enlist = |held: &mut Held, by| {
            let plan = held.table.enlist(id, by, &[name(2), name(1)], at(0))?;
            Ok(held.write(plan))
        };
        for _ in 0..2 {
            assert_eq!(enlist(&mut held, joiner), Ok(Taking::Part), "the answer may have been lost");
        }
        for by in [other, None] {
            assert_eq!(enlist(&mut held, by), Err(TableError::Taken(name(2))));
        }
        if let Some(vote) = vote {
            let plan = held.table.vote(id, &name(1), vote, at(0)).unwrap();
            held.write(plan);
            let again = held.table.enlist(id, joiner, &[name(1)], at(0)).map(drop);
            assert_eq!(again, Err(TableError::Taken(name(1))));
        }
        for patience in [Patience::Waits, Patience::Over] {
            let committed = held.table.commit(id, &[name(0), name(1)], patience, at(0)).map(drop);
            assert_eq!(committed, Err(TableError::Taken(name(1))));
        }
        // An operator names all the branches that are there.
        let plan = held.table.commit_by_operator(id, &[name(0), name(1), name(2)], at(0)).unwrap();
        let is_decided = held.write(plan) == Commit::Decided;
        assert!(!is_decided, "the second branch has not voted");
    }
    let id = id(owner, 9, 0, true);
    for (branch, vote) in [(1, Vote::Prepared), (2, Vote::ReadOnly)] {
        let plan = held.table.enlist(id, joiner, &[name(branch)], at(0)).unwrap();
        held.write(plan);
        let plan = held.table.vote(id, &name(branch), vote, at(0)).unwrap();
        held.write(plan);
    }
    let plan = held.table.commit_by_operator(id, &[name(1), name(2), name(3)], at(0)).unwrap();
    assert_eq!(held.write(plan), Commit::Decided);
    assert_eq!(held.table.status(id).value.branches.len(), 3, "each once");
}

#[test]
fn who_contradicts_itself_is_not_loaded() {
    let id = id(OwnerId(1), 1, 0, false);
    let decision = Record::Decision(id, Decision { at_ms: 1, branches: Vec::new() });
    let tombstone = Record::Tombstone(id, Abort { at_ms: 1, deeds: Vec::new() });
    assert!(Table::load(COORDINATOR, &Limits::tiny(), at(0), [decision, tombstone]).is_err());
}

#[derive(Debug, Clone)]
enum Call {
    Open(Lease),
    End(u64),
    Release(u64),
    Commit(TransactionId, u8),
    Abort(TransactionId),
    Deed(TransactionId, u8),
    ForgetAll(TransactionId),
    Verdict(TransactionId),
    Forget(TransactionId, u8, Option<Heuristic>, Forgetting),
    Enlist(TransactionId, u8),
    Vote(TransactionId, u8, Vote),
    Step,
    Later(u64),
    Restart,
    EndEarlier,
    Damage(Mark),
}

fn call() -> impl Strategy<Value = Call> {
    let ids = (1..8_u64, 1..4_u64, prop_oneof![3 => Just(0), 1 => 1..60_u64], any::<bool>());
    let ids = ids.prop_map(|(owner, sequence, deadline, shared)| {
        // Owners of later blocks too: after a restart numbers go on there.
        let owner = if owner < 5 { owner } else { 1024 + owner - 4 };
        id(OwnerId(owner), sequence, deadline, shared)
    });
    let ids = ids.boxed();
    let heuristics = prop_oneof![3 => Just(None), 1 => Just(Some(Heuristic::Mixed))];
    let votes = prop_oneof![3 => Just(Vote::Prepared), 1 => Just(Vote::ReadOnly), 1 => Just(Vote::Failed)];
    let forgetting = prop_oneof![4 => Just(Forgetting::Known), 1 => Just(Forgetting::Everything)];
    prop_oneof![
        2 => prop_oneof![Just(Lease::Held), (1..20_u64).prop_map(|s| Lease::For(Duration::from_secs(s)))].prop_map(Call::Open),
        1 => (1..8_u64).prop_map(Call::End),
        1 => (1..8_u64).prop_map(Call::Release),
        6 => (ids.clone(), 0..3_u8).prop_map(|(id, branches)| Call::Commit(id, branches)),
        2 => ids.clone().prop_map(Call::Abort),
        2 => (ids.clone(), 0..3_u8).prop_map(|(id, branch)| Call::Deed(id, branch)),
        2 => ids.clone().prop_map(Call::ForgetAll),
        4 => ids.clone().prop_map(Call::Verdict),
        5 => (ids.clone(), 0..3_u8, heuristics, forgetting).prop_map(|(id, b, h, f)| Call::Forget(id, b, h, f)),
        3 => (ids.clone(), 0..3_u8).prop_map(|(id, branch)| Call::Enlist(id, branch)),
        3 => (ids, 0..3_u8, votes).prop_map(|(id, branch, vote)| Call::Vote(id, branch, vote)),
        2 => Just(Call::Step),
        2 => (1..30_u64).prop_map(Call::Later),
        1 => Just(Call::Restart),
        1 => Just(Call::EndEarlier),
        1 => (1..100_u64).prop_map(Call::Damage),
    ]
}

proptest! {
    #[test]
    fn the_table_is_what_was_written_and_never_takes_anything_back(calls in proptest::collection::vec(call(), 1..80)) {
        let mut held = Held::new();
        let (mut seconds, mut said) = (0, BTreeMap::new());
        let mut say = |id: TransactionId, outcome: Outcome, is_forgotten: bool| {
            let is_committed = outcome == Outcome::Committed;
            let before = *said.entry(id).or_insert(is_committed);
            // What was committed and is forgotten nobody knows any more; what was rolled back stays so.
            assert!(before == is_committed || (before && is_forgotten), "{id} was {before}");
        };
        let mut forgotten = BTreeSet::new();
        for call in calls {
            let now = at(seconds);
            match call {
                Call::Open(lease) => drop(held.open(lease, now)),
                Call::End(owner) => {
                    if let Ok(plan) = held.table.end(OwnerId(owner), now) {
                        held.write(plan);
                    }
                }
                Call::Release(owner) => held.table.release(OwnerId(owner), now),
                Call::Commit(id, branches) => {
                    let branches: Vec<BranchName> = (0..branches).map(name).collect();
                    if let Ok(plan) = held.table.commit(id, &branches, Patience::Over, now) {
                        match held.write(plan) {
                            Commit::Decided if !branches.is_empty() => say(id, Outcome::Committed, false),
                            Commit::Decided => drop(forgotten.insert(id)),
                            Commit::Settled(outcome) => say(id, outcome, forgotten.contains(&id)),
                            Commit::Waiting => panic!("patience is over"),
                        }
                    }
                }
                Call::Abort(id) => {
                    if let Ok(plan) = held.table.abort(id, now) {
                        let outcome = held.write(plan);
                        say(id, outcome, forgotten.contains(&id));
                    }
                }
                Call::Deed(id, branch) => {
                    let deed = Deed { branch: name(branch), did: Heuristic::Commit };
                    if let Ok(plan) = held.table.note_deeds(id, &[deed], now) {
                        let outcome = held.write(plan);
                        say(id, outcome, forgotten.contains(&id));
                    }
                }
                Call::ForgetAll(id) => {
                    if let Ok(plan) = held.table.forget(id, &[], Forgetting::Everything) {
                        held.write(plan);
                        if !held.table.entries.contains_key(&id) {
                            forgotten.insert(id);
                        }
                    }
                }
                Call::Verdict(id) => {
                    let plan = held.table.verdicts(&[id], now);
                    match held.write(plan).as_slice() {
                        [Verdict::Commit] => say(id, Outcome::Committed, false),
                        [Verdict::Rollback] => say(id, Outcome::Aborted(AbortReason::RolledBack), forgotten.contains(&id)),
                        verdict => assert_eq!(verdict, [Verdict::Leave]),
                    }
                }
                Call::Forget(id, branch, heuristic, forgetting) => {
                    let learned = Learned { branch: name(branch), heuristic };
                    if let Ok(plan) = held.table.forget(id, &[learned], forgetting) {
                        held.write(plan);
                        if !held.table.entries.contains_key(&id) {
                            forgotten.insert(id);
                        }
                    }
                }
                Call::Enlist(id, branch) => {
                    if let Ok(plan) = held.table.enlist(id, None, &[name(branch)], now) {
                        held.write(plan);
                    }
                }
                Call::Vote(id, branch, vote) => {
                    if let Ok(plan) = held.table.vote(id, &name(branch), vote, now) {
                        held.write(plan);
                    }
                }
                Call::Step => held.step(now),
                Call::Later(by) => seconds += by,
                Call::Restart => held.restart(now),
                Call::EndEarlier => {
                    let plan = held.table.end_earlier();
                    held.write(plan);
                }
                Call::Damage(upto) => held.table.meet_damage(upto),
            }
            held.check();
        }
    }
}

#[path = "deeds_tests.rs"]
mod deeds;
#[path = "hold_tests.rs"]
mod hold_tests;
