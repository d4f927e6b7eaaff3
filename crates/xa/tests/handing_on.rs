//! Every order of events of a transaction that goes from program to program: one that began it and suspends it, and two that
//! would resume it, too early or at the same time, and may suspend it in turn; answers that are lost, programs that die, an
//! owner whose lease runs out, a coordinator that is restarted, a deadline. Small enough to try all of them.
#![allow(clippy::unwrap_used, reason = "tests stand outside the wall")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Limits, Time};
use holdfast_xa::{
    BranchName, Change, Commit, CoordinatorId, Lease, Mark, Now, Outcome, OwnerId, Patience, Plan, Record, RecordKey,
    Resumer, State, Table, TableError, Taking, TransactionId, Verdict, Vote,
};

const COORDINATOR: CoordinatorId = CoordinatorId(7);
const START_MS: u64 = 1_000_000;
const PROGRAMS: usize = 3;

/// How far a program is, with its one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// It works, and has not asked to resume; nor does the first, which need not.
    Working,
    /// It asked, and the answer was lost.
    Asked,
    /// It holds the transaction.
    Holding,
    /// It has suspended the transaction, and its branch is being prepared.
    Suspending,
    /// It is dead, or has done all it had to.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Branch {
    Active,
    Prepared,
    Committed,
    RolledBack,
}

/// What time has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hour {
    Start,
    LeaseOver,
    DeadlineOver,
    /// After everything, and after the grace of a restart.
    Later,
}

#[derive(Debug, Clone)]
struct World {
    id: TransactionId,
    table: Table,
    records: BTreeMap<RecordKey, Record>,
    mark: Mark,
    hour: Hour,
    programs: [Program; PROGRAMS],
    branches: [Branch; PROGRAMS],
    /// Whose work is part of the transaction: the first's, and of those that the coordinator let resume.
    parts: [bool; PROGRAMS],
    /// Whether a program has joined, which changes nothing.
    is_joined: bool,
    crashes: u8,
    losses: u8,
    told_committed: bool,
    /// Whether it was committed when its owner had ended.
    outlived: bool,
}

fn name(program: usize) -> BranchName {
    BranchName::new(["a", "b", "c"][program]).unwrap()
}

/// Each program is an owner as well; the first is the transaction's.
fn owner(program: usize) -> OwnerId {
    OwnerId(program as u64 + 1)
}

fn now(hour: Hour) -> Now {
    let after = Duration::from_secs(match hour {
        Hour::Start => 0,
        Hour::LeaseOver => 1_000,
        Hour::DeadlineOver => 10_000,
        Hour::Later => 20_000,
    });
    Now { time: Time::default().after(after), wall_ms: START_MS + u64::try_from(after.as_millis()).unwrap() }
}

impl World {
    fn new(has_deadline: bool, crashes: u8, losses: u8) -> Self {
        let deadline_ms = if has_deadline { START_MS + 5_000_000 } else { 0 };
        let id = TransactionId {
            coordinator: COORDINATOR,
            owner: owner(0),
            sequence: 1,
            deadline_ms,
            shared: true,
            last_resource: None,
        };
        let table = Table::load(COORDINATOR, &Limits::tiny(), now(Hour::Start), []).unwrap();
        let programs = [Program::Holding, Program::Working, Program::Working];
        let mut world = Self {
            id,
            table,
            records: BTreeMap::new(),
            mark: 0,
            hour: Hour::Start,
            programs,
            branches: [Branch::Active; PROGRAMS],
            parts: [true, false, false],
            is_joined: false,
            crashes,
            losses,
            told_committed: false,
            outlived: false,
        };
        let lease = Lease::For(Duration::from_secs(10));
        while world.ask(|table, now| table.open(lease, "", now)).unwrap() != Some(owner(PROGRAMS - 1)) {}
        world
    }

    /// What is written is durable at once: `interleavings.rs` has what is not.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Table, Now) -> Result<Plan<T>, TableError>) -> Result<T, TableError> {
        let plan = ask(&mut self.table, now(self.hour))?;
        for change in plan.changes() {
            match change {
                Change::Put(record) => drop(self.records.insert(record.key(), record.clone())),
                Change::Delete(key) => drop(self.records.remove(key).unwrap()),
            }
        }
        // What writes nothing makes no new world.
        self.mark += Mark::from(!plan.changes().is_empty());
        self.table.carry_out(plan, self.mark).show(|_| Ok(()))
    }

    fn next(&self) -> Vec<World> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        for at in 0..PROGRAMS {
            match self.programs[at] {
                Program::Working | Program::Asked => {
                    add(&|world| world.resume(at, false));
                    if self.losses > 0 {
                        add(&|world| world.resume(at, true));
                    }
                }
                Program::Holding => {
                    add(&|world| world.suspend(at));
                    add(&|world| world.commit(at));
                    add(&|world| world.abort(at));
                }
                Program::Suspending => add(&|world| world.vote(at)),
                Program::Gone => {}
            }
            if self.parts[at] && at > 0 && self.losses > 0 {
                add(&|world| world.late_resume(at));
            }
            if self.programs[at] != Program::Gone {
                add(&|world| world.give_up(at));
            }
            if self.branches[at] == Branch::Prepared {
                add(&|world| _ = world.recover(at));
            }
        }
        if !self.is_joined {
            add(&|world| {
                let (id, member) = (world.id, BranchName::new("member").unwrap());
                world.is_joined = true;
                let names = [member.clone()];
                if world.ask(|table, now| table.enlist(id, None, &names, now)) == Ok(Taking::Part) {
                    world.ask(|table, now| table.vote(id, &member, Vote::ReadOnly, now)).unwrap();
                }
            });
        }
        if self.hour < Hour::DeadlineOver {
            add(&|world| {
                world.hour = if world.hour == Hour::Start { Hour::LeaseOver } else { Hour::DeadlineOver };
            });
        }
        if self.crashes > 0 {
            add(&|world| {
                world.crashes -= 1;
                let records = world.records.values().cloned();
                world.table = Table::load(COORDINATOR, &Limits::tiny(), now(world.hour), records).unwrap();
                world.mark = 0;
            });
        }
        add(&|world| drop(world.ask(|table, now| Ok(table.step(8, now)))));
        all
    }

    /// The program is over: what it has not prepared is rolled back.
    fn give_up(&mut self, at: usize) {
        self.programs[at] = Program::Gone;
        if self.branches[at] == Branch::Active {
            self.branches[at] = Branch::RolledBack;
        }
    }

    fn resume(&mut self, at: usize, is_lost: bool) {
        let resumer = Resumer { by: Some(owner(at)), number: Some(1) };
        let id = self.id;
        let answer = self.ask(|table, now| table.resume(id, resumer, now));
        self.parts[at] |= answer == Ok(Taking::Part);
        if is_lost {
            self.losses -= 1;
            self.programs[at] = Program::Asked;
            return;
        }
        match answer {
            Ok(Taking::Part) => self.programs[at] = Program::Holding,
            Ok(Taking::Settled(_)) | Err(TableError::Resumed(_)) => self.give_up(at),
            // It asks again later.
            Err(TableError::NotSuspended(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// A copy of the request of a program that resumed it arrives: it stays as it is.
    fn late_resume(&mut self, at: usize) {
        self.losses -= 1;
        let (id, resumer) = (self.id, Resumer { by: Some(owner(at)), number: Some(1) });
        let state = |world: &mut Self| world.ask(|table, _| Ok(table.status(id))).unwrap().state;
        let before = state(self);
        let _ = self.ask(|table, now| table.resume(id, resumer, now));
        assert!(before != State::Suspended || state(self) != State::Active, "nobody holds it: {self:#?}");
    }

    fn suspend(&mut self, at: usize) {
        let (id, by, branches) = (self.id, Some(owner(at)), [name(at)]);
        match self.ask(|table, now| table.suspend(id, by, &branches, now)).unwrap() {
            Taking::Part => self.programs[at] = Program::Suspending,
            Taking::Settled(_) => self.give_up(at),
        }
    }

    fn vote(&mut self, at: usize) {
        self.branches[at] = Branch::Prepared;
        self.programs[at] = Program::Gone;
        let id = self.id;
        match self.ask(|table, now| table.vote(id, &name(at), Vote::Prepared, now)) {
            Ok(Taking::Part) => {}
            Ok(Taking::Settled(Outcome::Aborted(_))) => self.branches[at] = Branch::RolledBack,
            // It was forgotten in a restart: the branch waits for recovery.
            Err(TableError::NoSuchBranch(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, at: usize) {
        self.branches[at] = Branch::Prepared;
        self.programs[at] = Program::Gone;
        let (id, branches) = (self.id, [name(at)]);
        self.branches[at] = match self.ask(|table, now| table.commit(id, &branches, Patience::Over, now)).unwrap() {
            Commit::Decided | Commit::Settled(Outcome::Committed) => {
                self.told_committed = true;
                self.outlived = self.records.contains_key(&RecordKey::Ended(owner(0)));
                Branch::Committed
            }
            Commit::Settled(Outcome::Aborted(_)) => Branch::RolledBack,
            Commit::Waiting => unreachable!("it does not wait"),
        };
    }

    fn abort(&mut self, at: usize) {
        let id = self.id;
        let outcome = self.ask(|table, now| table.abort(id, now)).unwrap();
        assert!(matches!(outcome, Outcome::Aborted(_)), "who holds it is the only one who commits: {self:#?}");
        self.give_up(at);
    }

    fn recover(&mut self, at: usize) -> Verdict {
        let id = self.id;
        let verdict = self.ask(|table, now| Ok(table.verdicts(&[id], now))).unwrap()[0];
        match verdict {
            Verdict::Commit => self.branches[at] = Branch::Committed,
            Verdict::Rollback => self.branches[at] = Branch::RolledBack,
            Verdict::Leave => {}
            Verdict::Foreign | Verdict::LastResource => panic!("it is this coordinator's"),
        }
        verdict
    }

    fn check(&self) {
        let holding = self.programs.iter().filter(|program| **program == Program::Holding).count();
        assert!(holding <= 1, "one program holds it: {self:#?}");
        let is_committed = self.told_committed || self.branches.contains(&Branch::Committed);
        let of_parts = self.branches.iter().zip(self.parts);
        let mut rolled_back = of_parts.filter(|(branch, is_part)| *is_part && **branch == Branch::RolledBack);
        assert!(!is_committed || rolled_back.next().is_none(), "half of it happened: {self:#?}");
    }

    /// Time goes by, and recovery goes on: no branch stays prepared.
    fn settle(mut self) {
        (0..PROGRAMS).for_each(|at| self.give_up(at));
        self.hour = Hour::Later;
        for at in 0..PROGRAMS {
            if self.branches[at] == Branch::Prepared {
                assert_ne!(self.recover(at), Verdict::Leave, "in doubt for ever: {self:#?}");
            }
        }
        self.check();
    }
}

/// Whether all three parts were committed in some order, whether after the owner's end, and how many worlds there are.
fn explore(has_deadline: bool, crashes: u8, losses: u8) -> (bool, bool, usize) {
    let (mut seen, mut all_three, mut outlived) = (BTreeSet::new(), false, false);
    let mut open = vec![World::new(has_deadline, crashes, losses)];
    while let Some(world) = open.pop() {
        if !seen.insert(format!("{world:?}")) {
            continue;
        }
        world.check();
        all_three |= world.parts == [true; PROGRAMS] && world.told_committed;
        outlived |= world.outlived;
        open.extend(world.next());
        world.settle();
    }
    (all_three, outlived, seen.len())
}

#[test]
fn no_order_in_which_programs_hand_on_a_transaction_breaks_it_in_two() {
    for (has_deadline, crashes, losses) in [(true, 0, 1), (true, 1, 0), (false, 1, 0)] {
        let (all_three, outlived, worlds) = explore(has_deadline, crashes, losses);
        assert!(all_three && worlds > 1000, "{worlds}");
        assert_eq!(outlived, has_deadline, "with a deadline it goes on when its owner has ended");
    }
}

/// Whoever had a branch in it waited for as long as the program lived that had begun it, and could not commit it any more.
#[test]
fn what_a_restart_made_impossible_is_rolled_back_though_its_owner_lives() {
    let mut world = World::new(false, 0, 0);
    let (id, member) = (world.id, BranchName::new("member").unwrap());
    let alone = TransactionId { shared: false, sequence: 2, ..id };
    let verdicts = |world: &mut World| world.ask(|table, now| Ok(table.verdicts(&[id, alone], now))).unwrap();
    world.ask(|table, now| table.enlist(id, None, std::slice::from_ref(&member), now)).unwrap();
    world.ask(|table, now| table.vote(id, &member, Vote::Prepared, now)).unwrap();
    assert_eq!(verdicts(&mut world), [Verdict::Leave, Verdict::Leave]);
    let records = world.records.values().cloned();
    world.table = Table::load(COORDINATOR, &Limits::tiny(), now(Hour::Start), records).unwrap();
    world.mark = 0;
    assert_eq!(verdicts(&mut world), [Verdict::Rollback, Verdict::Leave]);
    let late = world.ask(|table, now| table.commit(id, &[name(0)], Patience::Over, now)).unwrap();
    assert!(matches!(late, Commit::Settled(Outcome::Aborted(_))), "{late:?}");
}
