//! Every order of events of one transaction over two resource managers: an owner that may die, recovery beside it, a
//! coordinator that loses what was not synced, leases and deadlines that run out. Small enough to try all of them.
#![allow(clippy::unwrap_used, reason = "tests stand outside the wall")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Limits, Time};
use holdfast_xa::{
    Answer, BranchName, Change, Commit, CoordinatorId, Forgetting, Learned, Lease, Mark, Now, Outcome, OwnerId,
    Patience, Plan, Record, RecordKey, Table, TableError, TransactionId, Verdict,
};

const COORDINATOR: CoordinatorId = CoordinatorId(7);
const START_MS: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(10);

/// A resource manager's branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Branch {
    Active,
    Prepared,
    Committed,
    RolledBack,
}

/// How far the owner is.
#[derive(Debug, Clone)]
enum Owner {
    Preparing,
    Deciding(Answer<Commit>),
    Aborting(Answer<Outcome>),
    /// It lost the connection, and does not know what was decided.
    Unsure,
    Committed,
    RolledBack,
    /// It is dead, or has done all it had to.
    Gone,
}

/// What may go wrong yet.
#[derive(Debug, Clone, Copy)]
struct Faults {
    /// The coordinator loses its memory, and what was not synced.
    crashes: u8,
    /// The owner loses its connection.
    disconnects: u8,
    /// The coordinator finds at a start that a record is gone which was synced.
    damages: u8,
}

#[derive(Debug, Clone)]
struct World {
    id: TransactionId,
    table: Table,
    log: Vec<Vec<Change>>,
    synced: usize,
    owner: Owner,
    branches: [Branch; 2],
    verdicts: [Option<Answer<Vec<Verdict>>>; 2],
    late: bool,
    faults: Faults,
    /// What the owner was told.
    told: Option<Outcome>,
    /// Whether a record was lost since the owner was opened.
    is_damaged: bool,
}

fn name(branch: usize) -> BranchName {
    BranchName::new(["a", "b"][branch]).unwrap()
}

fn now(late: bool) -> Now {
    let after = if late { Duration::from_secs(1_000) } else { Duration::ZERO };
    Now { time: Time::default().after(after), wall_ms: START_MS + u64::try_from(after.as_millis()).unwrap() }
}

impl World {
    fn new(deadline: bool, faults: Faults) -> Self {
        let table = Table::load(COORDINATOR, &Limits::tiny(), now(false), []).unwrap();
        let deadline_ms = if deadline { START_MS + 1 } else { 0 };
        let id = TransactionId {
            coordinator: COORDINATOR,
            owner: OwnerId(1),
            sequence: 1,
            deadline_ms,
            shared: false,
            last_resource: None,
        };
        let (owner, branches, verdicts) = (Owner::Preparing, [Branch::Active; 2], [None, None]);
        let (log, synced, late, told, is_damaged) = (Vec::new(), 0, false, None, false);
        let mut world = Self { id, table, log, synced, owner, branches, verdicts, late, faults, told, is_damaged };
        for _ in 0..2 {
            let _ = world.ask(|table, now| table.open(Lease::For(LEASE), "", now));
        }
        world.synced = world.log.len();
        world
    }

    /// Asks the table and appends what it wants written.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Table, Now) -> Result<Plan<T>, TableError>) -> Answer<T> {
        self.try_ask(ask).unwrap()
    }

    fn try_ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Table, Now) -> Result<Plan<T>, TableError>,
    ) -> Result<Answer<T>, TableError> {
        let plan = ask(&mut self.table, now(self.late))?;
        if !plan.changes().is_empty() {
            self.log.push(plan.changes().to_vec());
        }
        Ok(self.table.carry_out(plan, self.log.len() as Mark))
    }

    /// The owner asks for a decision; where nobody knows it leaves all as it is.
    fn ask_for<T>(&mut self, answer: Result<Answer<T>, TableError>, then: impl FnOnce(Answer<T>) -> Owner) {
        self.owner = match answer {
            Ok(answer) => then(answer),
            Err(error) => {
                assert!(self.is_damaged && error == TableError::Doubtful(self.id), "{error}");
                Owner::Gone
            }
        };
    }

    /// The answer if what it rests on is synced.
    fn shown<T: Clone>(&self, answer: &Answer<T>) -> Option<T> {
        let synced = self.synced as Mark;
        answer.clone().show(|needs| if needs.asked.max(needs.synced) <= synced { Ok(()) } else { Err(()) }).ok()
    }

    fn durable(&self) -> BTreeMap<RecordKey, Record> {
        let mut records = BTreeMap::new();
        for change in self.log.iter().flatten() {
            match change {
                Change::Put(record) => drop(records.insert(record.key(), record.clone())),
                Change::Delete(key) => {
                    let was_there = records.remove(key).is_some();
                    assert!(was_there || self.is_damaged, "what is deleted was there");
                }
            }
        }
        records
    }

    fn learn(&mut self, branches: &[usize]) {
        let learned: Vec<Learned> =
            branches.iter().map(|branch| Learned { branch: name(*branch), heuristic: None }).collect();
        let id = self.id;
        let _ = self.ask(|table, _| table.forget(id, &learned, Forgetting::Known));
    }

    /// Every world that may be next.
    fn next(&self) -> Vec<World> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        let id = self.id;
        let commit = |world: &mut World| {
            let branches = [name(0), name(1)];
            let answer = world.try_ask(|table, now| table.commit(id, &branches, Patience::Over, now));
            world.ask_for(answer, Owner::Deciding);
        };
        match &self.owner {
            Owner::Preparing => {
                for at in 0..2 {
                    if self.branches[at] == Branch::Active {
                        add(&|world| world.branches[at] = Branch::Prepared);
                        add(&|world| {
                            world.branches[at] = Branch::RolledBack;
                            world.owner = Owner::RolledBack;
                        });
                    }
                }
                // Recovery may have rolled one back meanwhile, which the owner does not notice.
                if self.branches.iter().all(|branch| *branch != Branch::Active) {
                    add(&commit);
                }
            }
            Owner::Deciding(answer) => {
                if let Some(commit) = self.shown(answer) {
                    add(&|world| match commit {
                        Commit::Decided | Commit::Settled(Outcome::Committed) => world.tell(Outcome::Committed),
                        Commit::Settled(aborted) => world.tell(aborted),
                        Commit::Waiting => unreachable!("it is not shared"),
                    });
                }
            }
            Owner::Aborting(answer) => {
                if let Some(outcome) = self.shown(answer) {
                    add(&|world| world.tell(outcome));
                }
            }
            Owner::Unsure => {
                add(&commit);
                add(&|world| {
                    let answer = world.try_ask(|table, now| table.abort(id, now));
                    world.ask_for(answer, Owner::Aborting);
                });
            }
            Owner::Committed => {
                for at in 0..2 {
                    if self.branches[at] == Branch::Prepared {
                        add(&|world| world.branches[at] = Branch::Committed);
                    }
                }
                if self.branches == [Branch::Committed; 2] {
                    add(&|world| {
                        world.learn(&[0, 1]);
                        world.owner = Owner::Gone;
                    });
                }
            }
            Owner::RolledBack => add(&|world| {
                let open = world.branches.iter_mut().filter(|branch| **branch != Branch::Committed);
                open.for_each(|branch| *branch = Branch::RolledBack);
                world.owner = Owner::Gone;
            }),
            Owner::Gone => {}
        }
        if matches!(self.owner, Owner::Deciding(_)) && self.faults.disconnects > 0 {
            add(&|world| {
                world.faults.disconnects -= 1;
                world.owner = Owner::Unsure;
            });
        }
        if !matches!(self.owner, Owner::Gone) {
            add(&|world| {
                let active = world.branches.iter_mut().filter(|branch| **branch == Branch::Active);
                active.for_each(|branch| *branch = Branch::RolledBack);
                world.owner = Owner::Gone;
            });
        }
        for at in 0..2 {
            match &self.verdicts[at] {
                None if self.branches[at] == Branch::Prepared => {
                    add(&|world| world.verdicts[at] = Some(world.ask(|table, now| Ok(table.verdicts(&[id], now)))));
                }
                None => {}
                Some(answer) => {
                    if let Some(verdicts) = self.shown(answer) {
                        add(&|world| world.follow(at, verdicts[0]));
                    }
                }
            }
        }
        if self.synced < self.log.len() {
            add(&|world| world.synced = world.log.len());
        }
        if !self.late {
            add(&|world| world.late = true);
        }
        if self.faults.crashes > 0 {
            add(&|world| world.crash(world.log.len()));
            if self.synced < self.log.len() {
                add(&|world| world.crash(world.synced));
            }
        }
        if self.faults.damages > 0 {
            for lost in 0..self.log.len() {
                add(&|world| world.damage(lost));
            }
        }
        add(&|world| drop(world.ask(|table, now| Ok(table.step(8, now)))));
        all
    }

    fn tell(&mut self, outcome: Outcome) {
        self.told = Some(outcome);
        self.owner = if outcome == Outcome::Committed { Owner::Committed } else { Owner::RolledBack };
    }

    fn follow(&mut self, at: usize, verdict: Verdict) {
        self.verdicts[at] = None;
        if self.branches[at] != Branch::Prepared {
            return;
        }
        match verdict {
            Verdict::Commit => {
                self.branches[at] = Branch::Committed;
                self.learn(&[at]);
            }
            Verdict::Rollback => self.branches[at] = Branch::RolledBack,
            Verdict::Leave => {}
            Verdict::Foreign | Verdict::LastResource => panic!("it is this coordinator's"),
        }
    }

    fn crash(&mut self, kept: usize) {
        self.faults.crashes -= 1;
        self.log.truncate(kept);
        self.synced = kept;
        // The grace begins with the restart: for time to run out it has to run again. The wall clock was set back.
        self.late = false;
        let records = self.durable().into_values();
        self.table = Table::load(COORDINATOR, &Limits::tiny(), now(self.late), records).unwrap();
        self.verdicts = [None, None];
        if matches!(self.owner, Owner::Deciding(_) | Owner::Aborting(_)) {
            self.owner = Owner::Unsure;
        }
    }

    /// The coordinator is killed, and one of the records that it wrote cannot be read any more.
    fn damage(&mut self, lost: usize) {
        self.faults.damages -= 1;
        self.is_damaged = true;
        let upto = self.log.len() as Mark;
        // In its place is nothing, so that what follows keeps its mark.
        self.log[lost].clear();
        self.faults.crashes += 1;
        self.crash(self.log.len());
        self.table.note_damage(upto, now(self.late));
    }

    /// Looks at the branches, as people do, and decides what is in doubt.
    fn operate(&mut self) {
        let (id, names) = (self.id, [name(0), name(1)]);
        if self.told == Some(Outcome::Committed) || self.branches.contains(&Branch::Committed) {
            let _ = self.ask(|table, now| table.commit_by_operator(id, &names, now));
        } else {
            let _ = self.ask(|table, now| table.abort_by_operator(id, now));
        }
        self.synced = self.log.len();
    }

    fn check(&self) {
        let is = |state| self.branches.contains(&state);
        assert!(!(is(Branch::Committed) && is(Branch::RolledBack)), "half of it happened: {self:#?}");
        match self.told {
            Some(Outcome::Committed) => assert!(!is(Branch::RolledBack), "it was told committed: {self:#?}"),
            Some(Outcome::Aborted(_)) => assert!(!is(Branch::Committed), "it was told aborted: {self:#?}"),
            None => {}
        }
        if self.is_damaged {
            return;
        }
        let remembered: BTreeMap<RecordKey, Record> =
            self.table.records().map(|record| (record.key(), record)).collect();
        assert_eq!(remembered, self.durable(), "the table is what was written");
    }

    /// Recovery goes on until nothing more happens: no branch stays prepared, and nothing is remembered.
    fn settle(mut self) {
        self.owner = Owner::Gone;
        self.branches
            .iter_mut()
            .filter(|branch| **branch == Branch::Active)
            .for_each(|branch| *branch = Branch::RolledBack);
        self.late = true;
        if self.is_damaged {
            self.operate();
        }
        for at in 0..2 {
            let id = self.id;
            let answer = self.ask(|table, now| Ok(table.verdicts(&[id], now)));
            self.synced = self.log.len();
            let verdict = self.shown(&answer).unwrap()[0];
            self.follow(at, verdict);
            assert_ne!(self.branches[at], Branch::Prepared, "in doubt for ever: {self:#?}");
        }
        self.check();
        for _ in 0..8 {
            let _ = self.ask(|table, now| Ok(table.step(8, now)));
        }
        // Recovery saw that no resource manager has a branch of it prepared, so all know.
        if self.table.counters().outstanding > 0 {
            self.learn(&[0, 1]);
        }
        assert!(self.is_damaged || self.table.counters().outstanding == 0, "nothing that is over is kept: {self:#?}");
        self.check();
    }
}

fn explore(deadline: bool, faults: Faults) -> usize {
    let mut seen = BTreeSet::new();
    let mut open = vec![World::new(deadline, faults)];
    while let Some(world) = open.pop() {
        if !seen.insert(format!("{world:?}")) {
            continue;
        }
        world.check();
        open.extend(world.next());
        world.settle();
    }
    seen.len()
}

#[test]
fn no_order_of_events_breaks_a_transaction_in_two_or_tells_its_owner_a_lie() {
    // Fewer faults are among these; all of them with a deadline take a minute.
    for (deadline, disconnects) in [(false, 1), (true, 0)] {
        let worlds = explore(deadline, Faults { crashes: 1, disconnects, damages: 0 });
        assert!(worlds > 1000, "{worlds}");
    }
}

/// A program that was cut off while the journal was damaged decided anew once: to commit what others had been told to roll
/// back, or to roll back what others had committed.
#[test]
fn no_record_that_is_lost_by_damage_breaks_a_transaction_in_two_as_long_as_an_operator_looks_at_its_branches() {
    for (deadline, disconnects) in [(false, 1), (true, 0)] {
        let worlds = explore(deadline, Faults { crashes: 0, disconnects, damages: 1 });
        assert!(worlds > 1000, "{worlds}");
    }
}
