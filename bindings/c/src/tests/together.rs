//! Transactions as objects over several connections: what is asked of them at the same time, in which order, and what is recovered when.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_int, c_long};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tm::{BranchName, Decisions, OwnerId, Sharing, TransactionId, XaCode, Xid};

use super::scene::{ASYNC, COORDINATOR, Memory, monkey};
use crate::abi::{
    TMASYNC, TMNOFLAGS, TX_EINVAL, TX_ERROR, TX_OK, TX_PROTOCOL_ERROR, TX_ROLLBACK, XA_OK, XA_RBDEADLOCK, XA_RETRY,
    XAER_DUPID, XAER_RMERR, XAER_RMFAIL, XidData,
};
use crate::manager::{Manager, Pass};
use crate::object::{Added, Role, TmObject};
use crate::resource::{Collected, Resource, Verb};
use crate::switch::{Switch, SwitchedResource};

/// A connection that answers what it is told to, and writes into a list that all of a test share what it is asked.
struct Database {
    branch: BranchName,
    order: Cell<u32>,
    is_asynchronous: bool,
    asked: Rc<RefCell<Vec<String>>>,
    /// The next answers to each verb; `XA_OK` behind them.
    answers: RefCell<Vec<(Verb, c_int)>>,
    under_way: Cell<Option<Verb>>,
    prepared: RefCell<Result<Vec<Xid>, XaCode>>,
}

impl Database {
    fn answer(&self, verb: Verb) -> c_int {
        let mut answers = self.answers.borrow_mut();
        let place = answers.iter().position(|(of, _)| *of == verb);
        place.map_or(XA_OK, |place| answers.remove(place).1)
    }

    fn note(&self, what: &str) {
        self.asked.borrow_mut().push(format!("{what} {}", self.branch));
    }

    fn will_answer(&self, verb: Verb, answer: c_int) {
        self.answers.borrow_mut().push((verb, answer));
    }
}

impl Added for Database {
    fn set_order(&self, order: u32) {
        self.order.set(order);
    }
}

impl Resource for Database {
    fn branch(&self) -> &BranchName {
        &self.branch
    }

    fn order(&self) -> u32 {
        self.order.get()
    }

    fn is_asynchronous(&self) -> bool {
        self.is_asynchronous
    }

    fn call(&self, verb: Verb, xid: &XidData, flags: c_long) -> c_int {
        if flags & TMASYNC != 0 {
            self.note(&format!("begin {verb:?}"));
            self.under_way.set(Some(verb));
            return 1;
        }
        assert_eq!(flags & TMASYNC, TMNOFLAGS);
        self.note(&format!("{verb:?}"));
        let answer = self.answer(verb);
        if let Ok(prepared) = &mut *self.prepared.borrow_mut()
            && answer == XA_OK
        {
            prepared.retain(|found| Some(found) != xid.to_xid().as_ref());
        }
        answer
    }

    fn complete(&self, handle: c_int, collected: Collected) -> c_int {
        assert_eq!((handle, collected), (1, Collected::AtOnce));
        let verb = self.under_way.take().unwrap();
        self.note(&format!("end {verb:?}"));
        self.answer(verb)
    }

    fn prepared(&self) -> Result<Vec<Xid>, XaCode> {
        self.note("list");
        self.prepared.borrow().clone()
    }
}

struct Program {
    memory: Arc<Memory>,
    tm: Rc<TmObject>,
    databases: Vec<Rc<Database>>,
    asked: Rc<RefCell<Vec<String>>>,
}

impl Program {
    fn new(names: &[&str], is_asynchronous: bool) -> Self {
        Self::of_profile(names, is_asynchronous, Vec::new())
    }

    fn of_profile(names: &[&str], is_asynchronous: bool, resources: Vec<SwitchedResource>) -> Self {
        let (memory, asked) = (Arc::new(Memory::default()), Rc::new(RefCell::default()));
        let tm = Rc::new(TmObject::new(Arc::new(Manager::new(memory.clone(), resources, None, None))));
        let database = |name: &&str| Database {
            branch: BranchName::new(name).unwrap(),
            order: Cell::new(0),
            is_asynchronous,
            asked: Rc::clone(&asked),
            answers: RefCell::default(),
            under_way: Cell::default(),
            prepared: RefCell::new(Ok(Vec::new())),
        };
        let databases: Vec<_> = names.iter().map(database).map(Rc::new).collect();
        let program = Self { memory, tm, databases, asked };
        for database in &program.databases {
            assert_eq!(program.tm.add(database.clone()), TX_OK);
        }
        program.asked.take();
        program
    }

    /// What was asked since this was called last, but for lists and beginnings.
    fn asked(&self) -> String {
        let mut asked = self.asked.take();
        asked.retain(|asked| !["list", "Start", "End"].iter().any(|quiet| asked.starts_with(quiet)));
        asked.join(", ")
    }

    /// How many lists were asked for since this was called last.
    fn lists(&self) -> usize {
        self.asked.take().iter().filter(|asked| asked.starts_with("list")).count()
    }

    fn name(&self, place: usize) -> BranchName {
        self.databases[place].branch.clone()
    }
}

fn shared(owner: u64) -> TransactionId {
    let (coordinator, owner) = (COORDINATOR, OwnerId(owner));
    TransactionId { coordinator, owner, sequence: 1, deadline_ms: 0, shared: true, last_resource: None }
}

fn branch(owner: u64, name: &str) -> Xid {
    Xid { transaction: shared(owner), branch: BranchName::new(name).unwrap() }
}

/// Each was waited for before the next was asked.
#[test]
fn votes_and_what_follows_from_them_go_side_by_side() {
    let program = Program::new(&["a", "b"], true);
    let mut tx = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
    assert_eq!(tx.commit(), TX_OK);
    assert_eq!(program.asked(), "begin Prepare a, begin Prepare b, end Prepare a, end Prepare b");
    program.memory.decided.lock().unwrap().insert(tx.id(), vec![program.name(0), program.name(1)]);
    assert_eq!(tx.finish(Duration::ZERO), Some(TX_OK));
    assert_eq!(program.asked(), "begin Commit a, begin Commit b, end Commit a, end Commit b");
    assert_eq!(program.memory.done.lock().unwrap().len(), 2, "both know");

    let mut tx = program.tm.take_part(shared(9), Role::Votes).ok().unwrap();
    assert_eq!((tx.commit(), program.asked.take().len()), (TX_OK, 8));
    assert_eq!(tx.finish(Duration::ZERO), Some(TX_ROLLBACK));
    assert_eq!(program.asked(), "begin Rollback a, begin Rollback b, end Rollback a, end Rollback b");
}

#[test]
fn one_that_cannot_commit_has_the_others_rolled_back() {
    for refused in [0, 1] {
        let program = Program::new(&["a", "b"], true);
        program.databases[refused].will_answer(Verb::Prepare, XA_RBDEADLOCK);
        let mut tx = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
        assert_eq!(tx.commit(), TX_ROLLBACK);
        let prepares = "begin Prepare a, begin Prepare b, end Prepare a, end Prepare b";
        // Of the one that cannot nothing is left, and one alone is not waited for later.
        let other = program.name(1 - refused);
        assert_eq!(program.asked(), format!("{prepares}, begin Rollback {other}, end Rollback {other}"));
        assert_eq!(*program.memory.aborted.lock().unwrap(), [shared(1)]);
        assert_eq!(*program.memory.votes.lock().unwrap(), [(program.name(refused), tm::Vote::Failed)]);
    }
}

/// It may be asked again once it is its turn alone, or not be able to work by itself.
#[test]
fn who_cannot_answer_later_is_asked_at_once() {
    let program = Program::new(&["a", "b"], true);
    program.databases[0].will_answer(Verb::Prepare, XA_RETRY);
    let mut tx = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
    assert_eq!(tx.commit(), TX_OK);
    assert_eq!(program.asked(), "begin Prepare a, begin Prepare b, end Prepare a, Prepare a, end Prepare b");
    let program = Program::new(&["a", "b"], false);
    let mut tx = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
    assert_eq!((tx.commit(), program.asked()), (TX_OK, "Prepare a, Prepare b".to_owned()));
}

/// They went at the same time, whatever the program needed.
#[test]
fn commits_go_in_the_order_that_the_program_states() {
    let program = Program::new(&["queue", "pg", "ma"], true);
    assert_eq!(program.tm.set_order(&program.name(0), 1), TX_OK);
    let prepares =
        "begin Prepare queue, begin Prepare pg, begin Prepare ma, end Prepare queue, end Prepare pg, end Prepare ma";
    let commits = "begin Commit pg, begin Commit ma, end Commit pg, end Commit ma";
    let mut tx = program.tm.begin(None, Sharing::Alone).ok().unwrap();
    assert_eq!(program.tm.set_order(&program.name(0), 0), TX_PROTOCOL_ERROR, "not while a transaction is active");
    assert_eq!(tx.commit(), TX_OK);
    assert_eq!(program.asked(), format!("{prepares}, {commits}, begin Commit queue, end Commit queue"));
    assert_eq!(program.tm.set_order(&BranchName::new("nobody").unwrap(), 1), TX_EINVAL);

    // The same for a part of which another program decides: one alone is asked and waited for.
    let mut tx = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
    assert_eq!((tx.commit(), program.asked()), (TX_OK, prepares.to_owned()));
    program.memory.decided.lock().unwrap().insert(tx.id(), (0..3).map(|place| program.name(place)).collect());
    assert_eq!(tx.finish(Duration::ZERO), Some(TX_OK));
    assert_eq!(program.asked(), format!("{commits}, Commit queue"));

    // And for recovery.
    for database in &program.databases {
        *database.prepared.borrow_mut() = Ok(vec![Xid { transaction: shared(9), branch: database.branch.clone() }]);
    }
    program.memory.commit(shared(9), &[program.name(0), program.name(1), program.name(2)], None).unwrap();
    assert_eq!(program.tm.recover().unwrap().committed, 3);
    assert_eq!(program.asked(), "Commit pg, Commit ma, Commit queue");
}

#[test]
fn a_connection_has_the_order_of_the_profiles_resource_manager_of_its_name() {
    let of_profile = |name: &str, order| SwitchedResource {
        branch: BranchName::new(name).unwrap(),
        order,
        rmid: 0,
        open_string: CString::default(),
        close_string: CString::default(),
        switch: Switch::load(&monkey(), ASYNC).unwrap(),
        is_last: false,
        known: Mutex::default(),
    };
    let program = Program::of_profile(&["queue", "pg"], true, vec![of_profile("pg", 3), of_profile("queue", 7)]);
    let orders = || program.databases.iter().map(|own| own.order()).collect::<Vec<_>>();
    assert_eq!(orders(), [7, 3]);
    assert_eq!((program.tm.set_order(&program.name(0), 2), orders()), (TX_OK, vec![2, 3]));
}

/// It was `TX_ERROR`, and `tx_begin` tried another name.
#[test]
fn a_name_that_is_taken_is_replaced_once() {
    let program = Program::new(&["a", "b"], true);
    program.databases[1].will_answer(Verb::Start, XAER_DUPID);
    let mut tx = program.tm.begin(None, Sharing::Alone).ok().unwrap();
    assert_eq!(tx.id().sequence, 1, "another name than the first");
    let asked = program.asked.take().join(", ");
    let first = "Start a, Start b, End a, begin Rollback a, end Rollback a";
    assert_eq!(asked, format!("list a, list b, {first}, Start a, Start b"));
    assert_eq!(tx.commit(), TX_OK);

    program.databases[0].will_answer(Verb::Start, XAER_DUPID);
    program.databases[0].will_answer(Verb::Start, XAER_DUPID);
    assert_eq!(program.tm.begin(None, Sharing::Alone).err(), Some(TX_ERROR), "once");
    assert!(program.databases[0].answers.borrow().is_empty());
    // Anything else is not tried again, and of what another program began there is no other name.
    program.databases[0].will_answer(Verb::Start, XAER_RMERR);
    assert_eq!(program.tm.begin(None, Sharing::Alone).err(), Some(TX_ERROR));
    program.databases[0].will_answer(Verb::Start, XAER_DUPID);
    assert_eq!(program.tm.take_part(shared(1), Role::Votes).err(), Some(TX_ERROR));
    assert!(program.tm.begin(None, Sharing::Alone).is_ok());
}

/// Nothing did, unless the program called `holdfast_tm_recover`.
#[test]
fn what_others_left_is_recovered_when_a_transaction_begins() {
    for begins in [true, false] {
        let program = Program::new(&["a", "b"], false);
        // The owner 9 is gone, 1 is alive.
        *program.databases[0].prepared.borrow_mut() = Ok(vec![branch(9, "a")]);
        *program.databases[1].prepared.borrow_mut() = Ok(vec![branch(9, "b")]);
        let begin = || match begins {
            true => program.tm.begin(None, Sharing::Alone),
            false => program.tm.take_part(shared(1), Role::Votes),
        };
        let mut tx = begin().ok().unwrap();
        assert_eq!(program.asked(), "Rollback a, Rollback b");
        assert_eq!(tx.rollback(), TX_OK);
        // Not each time.
        drop(begin().ok().unwrap());
        assert_eq!(program.lists(), 0);
        // A connection more is another matter.
        let other = Program::new(&["c"], false);
        assert_eq!(program.tm.add(other.databases[0].clone()), TX_OK);
        drop(begin().ok().unwrap());
        assert_eq!((program.lists(), other.lists()), (2, 2), "when it was added, and with the others");
    }
}

#[test]
fn what_a_transaction_left_in_doubt_is_looked_for_when_the_next_begins() {
    let program = Program::new(&["a", "b"], false);
    let mut tx = program.tm.begin(None, Sharing::Alone).ok().unwrap();
    program.databases[0].will_answer(Verb::Commit, XAER_RMFAIL);
    assert_eq!((tx.commit(), program.lists()), (TX_OK, 2));
    *program.databases[0].prepared.borrow_mut() = Ok(vec![Xid { transaction: tx.id(), branch: program.name(0) }]);
    let next = program.tm.begin(None, Sharing::Alone).ok().unwrap();
    assert_eq!(program.asked(), "Commit a");
    assert!(program.memory.decided.lock().unwrap().is_empty(), "all know");
    drop(next);
}

#[test]
fn who_cannot_be_asked_does_not_keep_a_transaction_from_beginning() {
    let program = Program::new(&["a", "b"], false);
    *program.databases[0].prepared.borrow_mut() = Err(XaCode::ManagerDown);
    for lists in [2, 0] {
        let mut tx = program.tm.begin(None, Sharing::Alone).ok().unwrap();
        assert_eq!((tx.commit(), program.lists()), (TX_OK, lists), "with a pause in between");
    }
    // What the program asks for is done at once.
    assert_eq!(program.tm.recover().unwrap().unreachable, 1);
}

/// It held its locks until the program began its first transaction.
#[test]
fn what_others_left_to_be_rolled_back_is_rolled_back_when_a_connection_is_added() {
    let (program, later) = (Program::new(&["a"], false), Program::new(&["b", "c"], false));
    let decided = shared(9);
    program.memory.decided.lock().unwrap().insert(decided, vec![later.name(0), later.name(1)]);
    *later.databases[0].prepared.borrow_mut() =
        Ok(vec![branch(9, "b"), Xid { transaction: shared(8), branch: later.name(0) }]);
    *later.databases[1].prepared.borrow_mut() = Ok(vec![branch(9, "c")]);
    for database in &later.databases {
        assert_eq!(program.tm.add(database.clone()), TX_OK);
    }
    // What commits waits for its order.
    assert_eq!(later.asked(), "Rollback b");
    assert_eq!(program.tm.set_order(&later.name(0), 1), TX_OK);
    let tx = program.tm.begin(None, Sharing::Alone).ok().unwrap();
    assert_eq!(later.asked(), "Commit c, Commit b");
    drop(tx);
    // Not by each manager that is made.
    let again = TmObject::new(Arc::clone(program.tm.shared_manager()));
    program.asked.take();
    assert_eq!(again.add(program.databases[0].clone()), TX_OK);
    assert_eq!(program.lists(), 0);
}

/// A connection was left until a round was due that looked at nothing else.
#[test]
fn what_was_left_when_the_only_connection_was_added_is_committed_when_the_first_transaction_begins() {
    let (program, later) = (Program::new(&[], false), Program::new(&["b"], false));
    program.memory.decided.lock().unwrap().insert(shared(9), vec![later.name(0)]);
    *later.databases[0].prepared.borrow_mut() = Ok(vec![branch(9, "b")]);
    assert_eq!((program.tm.add(later.databases[0].clone()), later.asked().as_str()), (TX_OK, ""));
    let tx = program.tm.begin(None, Sharing::Alone).ok().unwrap();
    assert_eq!(later.asked(), "Commit b");
    drop(tx);
}

/// The 65,536 that a database may list would hold up a program for minutes.
#[test]
fn a_round_that_nobody_asked_for_ends_in_time() {
    let program = Program::new(&["a"], false);
    *program.databases[0].prepared.borrow_mut() = Ok((2..40).map(|owner| branch(owner, "a")).collect());
    let resources: [&dyn Resource; 1] = [&*program.databases[0]];
    let past = Pass { end: Some(std::time::Instant::now()), ..Pass::ALL };
    let found = crate::manager::recover(&*program.memory, &resources, past);
    assert_eq!((found.left, found.rolled_back, program.asked()), (38, 0, String::new()));
    assert_eq!(program.tm.recover().unwrap().rolled_back, 38);
}
