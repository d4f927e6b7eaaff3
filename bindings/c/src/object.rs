//! Transactions as objects: a manager with the program's own connections, and transactions of it.
//!
//! A transaction is in one of three phases:
//!
//!   active   work on the connections belongs to it
//!   voted    its branches here are prepared, and another program decides
//!   over     it is committed or rolled back, or left to recovery
//!
//! Who begins or resumes a transaction decides; who joins votes. To suspend is to vote, and to leave deciding to whoever
//! resumes it: one program, which the coordinator sees to. A decision names the branches of the program that makes it; those
//! of others have said for themselves that they are prepared.
//!
//! Connections belong to the manager, so a manager has one active transaction at a time. They are the program's, and used while it
//! calls alone: what earlier programs left in doubt on them is recovered by calls that add a connection, and that begin a transaction
//! (`rounds.rs`).
//!
//! May use: `drive`, `manager`, `own`, `resource`. Must not know: C.

mod vote;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tm::{Begin, BranchName, ErrorKind, OtherWork, Outcome, Sharing, TransactionId, Verdict};

use crate::abi::{
    TMFAIL, TMNOFLAGS, TMSUCCESS, TX_COMMITTED, TX_EINVAL, TX_ERROR, TX_FAIL, TX_HAZARD, TX_MIXED, TX_OK, TX_OUTSIDE,
    TX_PROTOCOL_ERROR, TX_ROLLBACK, XA_OK, XAER_DUPID, XAER_OUTSIDE, XidData,
};
use crate::control::{ROLLBACK_ONLY, TIME_IS_OVER};
use crate::drive::{Drive, Means, Until};
use crate::last_error;
use crate::manager::{self, CarriesOut, Manager, Pass, Recovered};
use crate::own::{Committing, OwnWork, Worker, before_commit};
use crate::resource::{Resource, Verb, code};
use crate::rounds::ROUND_TIME_MAX;

/// Between two questions for the decision of another program: the first, and the longest.
const ASK_MIN: Duration = Duration::from_millis(1);
const ASK_MAX: Duration = Duration::from_millis(100);

/// A resource manager that a program added.
pub(crate) trait Added: Resource {
    /// Those with a lower number commit earlier.
    fn set_order(&self, order: u32);
}

/// `holdfast_tm`.
pub(crate) struct TmObject {
    manager: Arc<Manager>,
    connections: RefCell<Vec<Rc<dyn Added>>>,
    /// Whether a transaction is active on the connections.
    busy: RefCell<bool>,
    /// The last request to resume that was not answered, and its number: said again, it is the same one.
    unanswered: Cell<Option<(TransactionId, u64)>>,
}

/// `holdfast_tx`.
pub(crate) struct TxObject {
    tm: Rc<TmObject>,
    id: TransactionId,
    resources: Vec<Rc<dyn Resource>>,
    role: Role,
    phase: Phase,
    deadline: Option<Instant>,
    /// What it does in the coordinator's own store.
    own: Option<OwnWork>,
    /// Whether a call in that said that it cannot commit.
    rollback_only: bool,
}

/// What a program is to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Decides,
    Votes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Active,
    Voted,
    Over,
}

impl TmObject {
    pub(crate) fn new(manager: Arc<Manager>) -> Self {
        Self { manager, connections: RefCell::default(), busy: RefCell::new(false), unanswered: Cell::new(None) }
    }

    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    #[cfg(test)]
    pub(crate) fn shared_manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// Adds a connection. Its place in the order of commits is that of the profile's resource manager of its name, if there is one.
    pub(crate) fn add(&self, connection: Rc<dyn Added>) -> c_int {
        if let Some(code) = self.refuse_when_busy() {
            return code;
        }
        let mut connections = self.connections.borrow_mut();
        if connections.iter().any(|own| own.branch() == connection.branch()) {
            last_error::set(format!("there is a connection `{}` already", connection.branch()));
            return TX_EINVAL;
        }
        let in_profile = self.manager.resources.iter().find(|own| own.branch() == connection.branch());
        if let Some(in_profile) = in_profile {
            connection.set_order(in_profile.order());
        }
        connections.push(Rc::clone(&connection));
        drop(connections);
        self.roll_back_what_was_left(&*connection);
        TX_OK
    }

    /// Gives the connection of this name a place in the order of commits.
    pub(crate) fn set_order(&self, name: &BranchName, order: u32) -> c_int {
        if let Some(code) = self.refuse_when_busy() {
            return code;
        }
        match self.connections.borrow().iter().find(|own| own.branch() == name) {
            Some(connection) => {
                connection.set_order(order);
                TX_OK
            }
            None => last_error::refuse(TX_EINVAL, format!("there is no connection `{name}`")),
        }
    }

    /// Recovers; the code when a transaction is active.
    pub(crate) fn recover(&self) -> Result<Recovered, c_int> {
        if let Some(code) = self.refuse_when_busy() {
            return Err(code);
        }
        let (names, recovered) = (self.names(), self.recover_in(Pass::ALL));
        self.manager.rounds.ended(&names, recovered, Instant::now());
        Ok(recovered)
    }

    /// Recovers at a connection that was added, when nobody did for a while, and not for long: what is to be rolled back holds locks
    /// until then. What is to be committed waits until all connections and their order are known.
    fn roll_back_what_was_left(&self, connection: &dyn Resource) {
        let (names, began) = ([connection.branch().clone()], Instant::now());
        if !self.manager.rounds.take(&names, began) {
            return;
        }
        let pass = Pass { end: began.checked_add(ROUND_TIME_MAX), carries_out: CarriesOut::Rollbacks };
        let recovered = manager::recover(&*self.manager.decisions, &[connection], pass);
        self.manager.rounds.ended(&names, recovered, Instant::now());
        if recovered.left > 0 {
            self.manager.rounds.hurry(&names, Instant::now());
        }
    }

    /// Recovers when nobody did for a while, and not for long.
    fn recover_when_due(&self) {
        let (names, began) = (self.names(), Instant::now());
        if !names.is_empty() && self.manager.rounds.take(&names, began) {
            let pass = Pass { end: began.checked_add(ROUND_TIME_MAX), ..Pass::ALL };
            let recovered = self.recover_in(pass);
            self.manager.rounds.ended(&names, recovered, Instant::now());
        }
    }

    fn recover_in(&self, pass: Pass) -> Recovered {
        let connections = self.connections.borrow();
        let resources: Vec<&dyn Resource> = connections.iter().map(|own| &**own as &dyn Resource).collect();
        manager::recover(&*self.manager.decisions, &resources, pass)
    }

    fn names(&self) -> Vec<BranchName> {
        self.connections.borrow().iter().map(|own| own.branch().clone()).collect()
    }

    /// Begins a transaction on all connections.
    pub(crate) fn begin(self: &Rc<Self>, timeout: Option<Duration>, sharing: Sharing) -> Result<TxObject, c_int> {
        if let Some(code) = self.refuse_when_busy() {
            return Err(code);
        }
        self.recover_when_due();
        let timeout = timeout.or(self.manager.timeout);
        let begin = || {
            let id = self.manager.decisions.begin(Begin { timeout, sharing });
            let id = id.map_err(|error| NotBegun::Told(told_by_coordinator(&error)))?;
            let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            let tx = TxObject::new(self, id, Role::Decides, deadline);
            let told = tx.other_work();
            tx.enter(told)
        };
        // A name that a resource manager knows already is not tried again: a new one is, once.
        let begun = match begin() {
            Err(NotBegun::Answer(XAER_DUPID)) => begin(),
            begun => begun,
        };
        begun.map_err(NotBegun::code)
    }

    /// Takes part in a transaction of another program.
    pub(crate) fn take_part(self: &Rc<Self>, id: TransactionId, role: Role) -> Result<TxObject, c_int> {
        if let Some(code) = self.refuse_when_busy() {
            return Err(code);
        }
        if !id.shared || id.coordinator != self.manager.decisions.coordinator() {
            last_error::set(format!("{id} is not a shared transaction of this coordinator"));
            return Err(TX_EINVAL);
        }
        self.recover_when_due();
        if role == Role::Votes {
            self.manager.decisions.enlist(id, &self.names()).map_err(|error| told_by_coordinator(&error))?;
        }
        // Who votes is waited for already. Who resumes leaves it as it was suspended.
        let told = if role == Role::Votes { OtherWork::Shared } else { OtherWork::Nothing };
        let mut tx = TxObject::new(self, id, role, None).enter(told).map_err(NotBegun::code)?;
        if role == Role::Decides {
            let unanswered = self.unanswered.get().filter(|(of, _)| *of == id);
            let number = unanswered.map_or_else(tm::next_resumer, |(_, number)| number);
            let resumed = self.manager.decisions.resume(id, number);
            match &resumed {
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Unknown) => {
                    self.unanswered.set(Some((id, number)));
                }
                _ if unanswered.is_some() => self.unanswered.set(None),
                _ => {}
            }
            if let Err(error) = resumed {
                tx.roll_back(OtherWork::Nothing);
                // Behind what the branches had to say.
                return Err(told_by_coordinator(&error));
            }
        }
        Ok(tx)
    }

    fn refuse_when_busy(&self) -> Option<c_int> {
        let why = "the manager has an active transaction, which has to end first";
        self.busy.borrow().then(|| last_error::refuse(TX_PROTOCOL_ERROR, why))
    }
}

impl TxObject {
    fn new(tm: &Rc<TmObject>, id: TransactionId, role: Role, deadline: Option<Instant>) -> Self {
        let (resources, phase) = (Vec::new(), Phase::Active);
        Self { tm: Rc::clone(tm), id, resources, role, phase, deadline, own: None, rollback_only: false }
    }

    /// Begins a branch on each connection. When one does not begin, the others are rolled back, and the coordinator is told so
    /// as rolling back with this other work tells it.
    fn enter(mut self, told: OtherWork) -> Result<Self, NotBegun> {
        let connections = self.tm.connections.borrow().clone();
        *self.tm.busy.borrow_mut() = true;
        for resource in connections {
            last_error::clear();
            let answer = resource.call(Verb::Start, &self.name(&*resource), TMNOFLAGS);
            if answer != XA_OK {
                last_error::set_with_reason(&format!(
                    "`{}` does not begin a branch: {}",
                    resource.branch(),
                    code(answer)
                ));
                self.roll_back(told);
                return Err(NotBegun::Answer(answer));
            }
            self.resources.push(resource);
        }
        Ok(self)
    }

    pub(crate) fn id(&self) -> TransactionId {
        self.id
    }

    /// Works in the coordinator's own store as part of the transaction. The code when it does not: what is noted says why.
    pub(crate) fn work<T>(&mut self, work: impl FnOnce(&mut OwnWork) -> holdfast::Result<T>) -> Result<T, c_int> {
        if self.phase != Phase::Active {
            return Err(self.misplaced());
        }
        let worker = Worker {
            manager: &self.tm.manager,
            id: self.id,
            deadline: self.deadline,
            own: &mut self.own,
            rollback_only: &mut self.rollback_only,
        };
        worker.work(work)
    }

    /// Commits; as one who votes, prepares.
    pub(crate) fn commit(&mut self) -> c_int {
        match (self.phase, self.role) {
            (Phase::Active, Role::Decides) => self.decide(),
            (Phase::Active, Role::Votes) => self.vote(),
            _ => self.misplaced(),
        }
    }

    /// Why a call is not allowed, noted.
    fn misplaced(&self) -> c_int {
        let why = match (self.phase, self.role) {
            (Phase::Over, _) => "the transaction is over",
            (Phase::Voted, _) => "this program has voted: another decides, and holdfast_tx_finish tells what",
            (Phase::Active, Role::Votes) => "this program joined the transaction: another one decides",
            (Phase::Active, Role::Decides) if !self.id.shared => "the transaction was not begun with HOLDFAST_SHARED",
            (Phase::Active, Role::Decides) => "the transaction is active: this program has not voted",
        };
        last_error::refuse(TX_PROTOCOL_ERROR, why)
    }

    /// Votes, and leaves deciding to whoever resumes it.
    pub(crate) fn suspend(&mut self) -> c_int {
        if self.phase != Phase::Active || self.role != Role::Decides || !self.id.shared {
            return self.misplaced();
        }
        let names: Vec<BranchName> = self.resources.iter().map(|own| own.branch().clone()).collect();
        if let Err(error) = self.tm.manager.decisions.suspend(self.id, &names) {
            let answer = told_by_coordinator(&error);
            self.rollback();
            return if error.kind == ErrorKind::Aborted { TX_ROLLBACK } else { answer };
        }
        self.vote()
    }

    /// Rolls back. As one who votes, prevents that anybody commits.
    pub(crate) fn rollback(&mut self) -> c_int {
        if self.phase != Phase::Active {
            return self.misplaced();
        }
        match self.roll_back(self.other_work()) {
            Some(Outcome::RolledBack) => TX_OK,
            Some(Outcome::Mixed) => TX_MIXED,
            Some(Outcome::Hazard | Outcome::Unknown) => TX_HAZARD,
            None | Some(Outcome::Committed) => TX_COMMITTED,
        }
    }

    fn roll_back(&mut self, told: OtherWork) -> Option<Outcome> {
        self.own = None;
        self.leave_branches(TMFAIL);
        self.drive_to_end(|id, resources| Drive::rollback(id, resources, told))
    }

    /// The connections are free then.
    fn drive_to_end(&mut self, drive: impl FnOnce(TransactionId, &[&dyn Resource]) -> Drive) -> Option<Outcome> {
        let resources = self.resources();
        let means = self.means(&resources);
        let mut drive = drive(self.id, &resources);
        let outcome = drive.run(&means, Until::Completed);
        if drive.is_pending() {
            self.tm.manager.rounds.hurry(&self.tm.names(), Instant::now());
        }
        self.leave(Phase::Over);
        outcome
    }

    /// Asks how it was decided and carries that out here; waits so long. `None` while it is open.
    pub(crate) fn finish(&mut self, patience: Duration) -> Option<c_int> {
        // While another transaction is active, the connections are that one's.
        if self.phase != Phase::Voted {
            return Some(self.misplaced());
        }
        if let Some(code) = self.tm.refuse_when_busy() {
            return Some(code);
        }
        if self.resources.is_empty() {
            // Nothing was changed here, and nobody would remember for this part what was decided.
            self.phase = Phase::Over;
            return Some(TX_OK);
        }
        let started = Instant::now();
        let mut pause = ASK_MIN;
        let verdict = loop {
            match self.tm.manager.decisions.verdicts(&[self.id]).as_deref() {
                Ok([verdict @ (Verdict::Commit | Verdict::Rollback), ..]) => break *verdict,
                Ok(_) => {}
                Err(error) => return Some(told_by_coordinator(error)),
            }
            if started.elapsed() >= patience {
                return None;
            }
            thread::sleep(pause.min(patience));
            pause = (pause * 2).min(ASK_MAX);
        };
        let resources = self.resources();
        let settled = manager::carry_out(&*self.tm.manager.decisions, self.id, verdict, &resources);
        self.phase = Phase::Over;
        Some(match (verdict, settled) {
            (_, Some(code)) => code,
            (Verdict::Commit, None) => TX_OK,
            _ => {
                let why = "the transaction is rolled back: another program did so, or nobody committed it in time";
                last_error::refuse(TX_ROLLBACK, why)
            }
        })
    }

    fn decide(&mut self) -> c_int {
        let in_time = self.deadline.is_none_or(|deadline| Instant::now() < deadline);
        if !in_time {
            last_error::set(TIME_IS_OVER.to_owned());
        } else if self.rollback_only {
            last_error::set(ROLLBACK_ONLY.to_owned());
        }
        let may_commit = in_time && !self.rollback_only;
        let commits = self.leave_branches(if may_commit { TMSUCCESS } else { TMFAIL }) && may_commit;
        let own = self.own.take().filter(|_| commits);
        let own = before_commit(own, self.id, &self.resources());
        let (commits, Committing { decided, kept }) = (commits && own.is_ok(), own.unwrap_or_default());
        let other = if decided.is_some() { OtherWork::Local } else { self.other_work() };
        let outcome = self.drive_to_end(|id, resources| match commits {
            true => Drive::commit(id, resources, other).with_own(decided),
            false => Drive::rollback(id, resources, other),
        });
        drop(kept);
        match outcome {
            None | Some(Outcome::Committed) => TX_OK,
            Some(Outcome::RolledBack) => TX_ROLLBACK,
            Some(Outcome::Mixed) => TX_MIXED,
            Some(Outcome::Hazard | Outcome::Unknown) => TX_HAZARD,
        }
    }

    /// Ends the branches' work; whether all ended well.
    fn leave_branches(&self, flags: std::ffi::c_long) -> bool {
        let mut well = true;
        for resource in &self.resources {
            last_error::clear();
            let answer = resource.call(Verb::End, &self.name(&**resource), flags);
            if answer != XA_OK && flags == TMSUCCESS {
                last_error::set_with_reason(&format!(
                    "`{}` does not end its branch: {}",
                    resource.branch(),
                    code(answer)
                ));
                well = false;
            }
        }
        well
    }

    /// Of an active transaction: the connections are free again.
    fn leave(&mut self, phase: Phase) {
        self.phase = phase;
        *self.tm.busy.borrow_mut() = false;
    }

    fn other_work(&self) -> OtherWork {
        if self.id.shared { OtherWork::Shared } else { OtherWork::Nothing }
    }

    fn resources(&self) -> Vec<&dyn Resource> {
        self.resources.iter().map(|own| &**own).collect()
    }

    fn means<'a>(&'a self, resources: &'a [&'a dyn Resource]) -> Means<'a> {
        Means { decisions: &*self.tm.manager.decisions, durability: self.tm.manager.durability, resources }
    }

    fn name(&self, resource: &dyn Resource) -> XidData {
        XidData::of_branch(self.id, resource.branch())
    }
}

/// Why a transaction has not begun.
enum NotBegun {
    /// What the program is told.
    Told(c_int),
    /// What a resource manager answered.
    Answer(c_int),
}

impl NotBegun {
    fn code(self) -> c_int {
        match self {
            Self::Told(code) => code,
            Self::Answer(XAER_OUTSIDE) => TX_OUTSIDE,
            Self::Answer(_) => TX_ERROR,
        }
    }
}

impl Drop for TxObject {
    fn drop(&mut self) {
        // A transaction that the program lets go of was not committed.
        if self.phase == Phase::Active {
            self.rollback();
        }
    }
}

/// The code for what a coordinator says, which is also noted.
fn told_by_coordinator(error: &tm::Error) -> c_int {
    last_error::set(format!("the coordinator: {error}"));
    match error.kind {
        ErrorKind::Aborted => TX_ROLLBACK,
        ErrorKind::Unavailable => TX_ERROR,
        ErrorKind::Invalid => TX_EINVAL,
        _ => TX_FAIL,
    }
}
