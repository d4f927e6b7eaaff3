//! Transactions as objects: what a vote, and the decision of another program, do to the branches here.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_long};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tm::{BranchName, ErrorKind, OwnerId, Sharing, TransactionId, XaCode, Xid};

use super::scene::{COORDINATOR, Memory};
use crate::abi::{TX_ERROR, TX_OK, TX_PROTOCOL_ERROR, TX_ROLLBACK, XA_OK, XA_RDONLY, XAER_ASYNC, XAER_RMERR, XidData};
use crate::manager::Manager;
use crate::object::{Added, Role, TmObject};
use crate::resource::{Collected, Resource, Verb};

/// A connection that does all it is asked, and writes that down.
struct Obedient {
    branch: BranchName,
    asked: RefCell<Vec<Verb>>,
    /// Its answer to a branch that begins, and to prepare.
    start: Cell<c_int>,
    vote: Cell<c_int>,
}

impl Added for Obedient {
    fn set_order(&self, _: u32) {}
}

impl Resource for Obedient {
    fn branch(&self) -> &BranchName {
        &self.branch
    }

    fn order(&self) -> u32 {
        0
    }

    fn is_asynchronous(&self) -> bool {
        false
    }

    fn call(&self, verb: Verb, _: &XidData, _: c_long) -> c_int {
        self.asked.borrow_mut().push(verb);
        match verb {
            Verb::Start => self.start.get(),
            Verb::Prepare => self.vote.get(),
            _ => XA_OK,
        }
    }

    fn complete(&self, _: c_int, _: Collected) -> c_int {
        XAER_ASYNC
    }

    fn prepared(&self) -> Result<Vec<Xid>, XaCode> {
        Ok(Vec::new())
    }
}

struct Program {
    memory: Arc<Memory>,
    tm: Rc<TmObject>,
    connection: Rc<Obedient>,
}

impl Program {
    fn new() -> Self {
        let memory = Arc::new(Memory::default());
        let tm = Rc::new(TmObject::new(Arc::new(Manager::new(memory.clone(), Vec::new(), None, None))));
        let branch = BranchName::new("database").unwrap();
        let (start, vote) = (Cell::new(XA_OK), Cell::new(XA_OK));
        let connection = Rc::new(Obedient { branch, asked: RefCell::default(), start, vote });
        assert_eq!(tm.add(connection.clone()), TX_OK);
        Self { memory, tm, connection }
    }

    /// Another program's decision to commit.
    fn commit_elsewhere(&self, id: TransactionId) {
        self.memory.decided.lock().unwrap().insert(id, vec![self.connection.branch.clone()]);
    }

    fn asked(&self) -> Vec<Verb> {
        self.connection.asked.take()
    }
}

/// A transaction of another program; undecided ones of owner 1 are left, others are rolled back.
fn shared(owner: u64) -> TransactionId {
    TransactionId {
        coordinator: COORDINATOR,
        owner: OwnerId(owner),
        sequence: 1,
        deadline_ms: 0,
        shared: true,
        last_resource: None,
    }
}

/// A server took a vote, its answer was lost, the other program's commit decided, and the vote that was sent again was
/// refused as too late: the branch was rolled back, and the transaction torn.
#[test]
fn a_vote_that_may_have_been_taken_waits_for_the_verdict() {
    let voted = [Verb::Start, Verb::End, Verb::Prepare];
    for kind in [ErrorKind::Invalid, ErrorKind::Unavailable, ErrorKind::Unknown] {
        let program = Program::new();
        let mut tx = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
        *program.memory.vote_refusal.lock().unwrap() = Some(kind);
        assert_eq!(tx.commit(), TX_OK);
        assert_eq!(program.asked(), voted);
        assert_eq!(tx.finish(Duration::ZERO), None);
        program.commit_elsewhere(tx.id());
        assert_eq!((tx.finish(Duration::ZERO), program.asked()), (Some(TX_OK), vec![Verb::Commit]));

        let mut tx = program.tm.take_part(shared(9), Role::Votes).ok().unwrap();
        assert_eq!((tx.commit(), program.asked()), (TX_OK, voted.to_vec()));
        assert_eq!((tx.finish(Duration::ZERO), program.asked()), (Some(TX_ROLLBACK), vec![Verb::Rollback]));
    }
}

#[test]
fn a_vote_for_what_is_rolled_back_rolls_back_at_once() {
    let program = Program::new();
    let mut tx = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
    *program.memory.vote_refusal.lock().unwrap() = Some(ErrorKind::Aborted);
    assert_eq!(tx.commit(), TX_ROLLBACK);
    assert_eq!(program.asked(), [Verb::Start, Verb::End, Verb::Prepare, Verb::Rollback]);
}

/// The coordinator keeps nothing for a part that votes so: it was asked about a transaction that it did not know, or had
/// forgotten, and the answer was `HOLDFAST_UNDECIDED` for ever, or `TX_ROLLBACK` of what was committed.
#[test]
fn a_part_that_changed_nothing_is_over_when_it_has_voted() {
    for owner in [1, 9] {
        let program = Program::new();
        program.connection.vote.set(XA_RDONLY);
        let mut tx = program.tm.take_part(shared(owner), Role::Votes).ok().unwrap();
        assert_eq!(tx.commit(), TX_OK);
        assert_eq!(tx.finish(Duration::ZERO), Some(TX_OK));
        assert_eq!(tx.finish(Duration::ZERO), Some(TX_PROTOCOL_ERROR), "it is over");
        assert_eq!(program.asked(), [Verb::Start, Verb::End, Verb::Prepare]);
    }
}

/// The coordinator was told to roll back, and what the first program had done was lost, although the call said that it may
/// be made again later.
#[test]
fn a_transaction_that_cannot_be_resumed_now_can_be_later() {
    let program = Program::new();
    let other = Rc::new(Obedient {
        branch: BranchName::new("queue").unwrap(),
        asked: RefCell::default(),
        start: Cell::new(XAER_RMERR),
        vote: Cell::new(XA_OK),
    });
    assert_eq!(program.tm.add(other.clone()), TX_OK);
    assert_eq!(program.tm.take_part(shared(1), Role::Decides).err(), Some(TX_ERROR));
    assert_eq!(program.asked(), [Verb::Start, Verb::End, Verb::Rollback], "what had begun is ended");
    assert!(program.memory.aborted.lock().unwrap().is_empty());

    other.start.set(XA_OK);
    let mut tx = program.tm.take_part(shared(1), Role::Decides).ok().unwrap();
    assert_eq!(tx.commit(), TX_OK);

    // Who joins is waited for: the others are told.
    other.start.set(XAER_RMERR);
    assert_eq!(program.tm.take_part(shared(1), Role::Votes).err(), Some(TX_ERROR));
    assert_eq!(*program.memory.aborted.lock().unwrap(), [shared(1)]);
}

/// It cleared the mark of the active transaction, and a third could begin in the midst of it.
#[test]
fn a_voted_transaction_is_not_finished_on_connections_where_another_is_active() {
    let program = Program::new();
    let mut voted = program.tm.take_part(shared(1), Role::Votes).ok().unwrap();
    assert_eq!(voted.commit(), TX_OK);
    program.commit_elsewhere(voted.id());
    let mut active = program.tm.begin(None, Sharing::Alone).ok().unwrap();
    program.asked();
    assert_eq!(voted.finish(Duration::ZERO), Some(TX_PROTOCOL_ERROR));
    assert_eq!(program.tm.begin(None, Sharing::Alone).err(), Some(TX_PROTOCOL_ERROR));
    assert!(program.asked().is_empty());
    assert_eq!(active.commit(), TX_OK);
    assert_eq!(voted.finish(Duration::ZERO), Some(TX_OK));
    assert_eq!(program.asked().last(), Some(&Verb::Commit));
}
