//! A thread of control: what X/Open TX knows of one thread, and the nine calls as it makes them.
//!
//! The table of states is in `tx_state.rs`, the way to a transaction's end in `drive.rs`; here they are put together with
//! the associations between this thread and the resource managers:
//!
//!   none        nothing is started
//!   active      work of the thread belongs to the branch
//!   suspended   the branch is started, and the thread is not working in it
//!   outside     a resource manager that registers by itself works outside of transactions
//!
//! May use: `abi`, `drive`, `manager`, `own`, `tx_state`. Must not know: C strings, where profiles come from.

use std::ffi::{c_int, c_long};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use tm::{Begin, ErrorKind, OtherWork, Outcome, TransactionId};

use crate::abi::{
    TMFAIL, TMNOFLAGS, TMSUCCESS, TX_ACTIVE, TX_CHAINED, TX_COMMIT_COMPLETED, TX_COMMIT_DECISION_LOGGED, TX_COMMITTED,
    TX_EINVAL, TX_ERROR, TX_FAIL, TX_HAZARD, TX_MIXED, TX_NO_BEGIN, TX_OK, TX_OUTSIDE, TX_PROTOCOL_ERROR, TX_ROLLBACK,
    TX_ROLLBACK_ONLY, TX_TIMEOUT_ROLLBACK_ONLY, TX_UNCHAINED, TxInfo, XA_OK, XAER_DUPID, XAER_OUTSIDE, XAER_PROTO,
    XAER_RMERR, XAER_RMFAIL, XidData,
};
use crate::drive::{Drive, Means, Until};
use crate::last_error;
use crate::manager::{Manager, Recovered};
use crate::own::{Committing, OwnWork, Worker, before_commit};
use crate::resource::{Resource, Verb, code};
use crate::suspend;
use crate::switch::SwitchedResource;
use crate::tx_state::{Call, Control, Next, State};

/// The name of a branch has 1 to 64 bytes, and `tx_info` tells of a transaction, not of a branch.
const NO_BRANCH: &[u8] = b"-";

/// Why a transaction is rolled back that was to be committed.
pub(crate) const TIME_IS_OVER: &str =
    "the transaction took longer than it may: its timeout is what the program set, or timeout_ms of the profile";

/// The same, once it was said before.
pub(crate) const ROLLBACK_ONLY: &str =
    "the transaction can only be rolled back: a call or a resource manager said so before";

/// What a thread has to do with a resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Association {
    #[default]
    None,
    Active,
    Suspended,
    Outside,
}

#[derive(Default)]
pub(crate) struct Thread {
    pub(crate) state: State,
    pub(crate) manager: Option<Arc<Manager>>,
    /// One for each resource manager.
    pub(crate) associations: Vec<Association>,
    pub(crate) transaction: Option<Transaction>,
    /// What the transaction does in the coordinator's own store.
    pub(crate) own: Option<OwnWork>,
    when_return: c_long,
    timeout_seconds: c_long,
    /// A transaction that is decided, and its resources: their commits are under way.
    unfinished: Option<(Drive, Vec<usize>)>,
}

/// The transaction of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transaction {
    pub(crate) id: TransactionId,
    pub(crate) deadline: Option<Instant>,
    /// Whether a resource manager said that it cannot commit.
    pub(crate) rollback_only: bool,
    /// The only thread that may resume it, since a branch that does not migrate was suspended there.
    pub(crate) bound_to: Option<ThreadId>,
}

/// How a transaction is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
}

impl Thread {
    /// `tx_open`. `manager` is asked only where there is something to open.
    pub(crate) fn open(&mut self, manager: impl FnOnce() -> Result<Arc<Manager>, c_int>) -> c_int {
        if self.state != State::Closed {
            return TX_OK;
        }
        let manager = match manager() {
            Ok(manager) => manager,
            Err(code) => return code,
        };
        for (place, resource) in manager.resources.iter().enumerate() {
            last_error::clear();
            let answer = resource.open();
            if answer == XA_OK {
                continue;
            }
            last_error::set_with_reason(&format!("xa_open of `{}` answered {}", resource.branch, code(answer)));
            for opened in manager.resources.iter().take(place) {
                opened.close();
            }
            return if answer == XAER_RMERR { TX_ERROR } else { TX_FAIL };
        }
        manager.recover_when_due();
        let state = self.state.after(Call::Open).expect("closed resource managers may be opened");
        *self = Self { state, ..Self::default() };
        self.associations = vec![Association::None; manager.resources.len()];
        self.manager = Some(manager);
        TX_OK
    }

    /// `tx_close`.
    pub(crate) fn close(&mut self) -> c_int {
        self.finish();
        let Some(state) = self.state.after(Call::Close) else { return self.misplaced() };
        if self.manager.as_ref().is_some_and(suspend::is_bound_here) {
            let why = "the thread has suspended a transaction that goes on only in it, and with its connections: resume and end it first";
            return last_error::refuse(TX_PROTOCOL_ERROR, why);
        }
        let Some(manager) = self.manager.take() else { return TX_OK };
        self.state = state;
        let mut worst = TX_OK;
        for resource in &manager.resources {
            last_error::clear();
            let answer = resource.close();
            if answer != XA_OK {
                last_error::set_with_reason(&format!("xa_close of `{}` answered {}", resource.branch, code(answer)));
                worst = worst.min(if answer == XAER_RMERR { TX_ERROR } else { TX_FAIL });
            }
        }
        self.associations.clear();
        worst
    }

    /// `tx_begin`.
    pub(crate) fn begin(&mut self) -> c_int {
        self.finish();
        let (Some(state), Some(manager)) = (self.state.after(Call::Begin), self.manager.clone()) else {
            return self.misplaced();
        };
        if self.associations.contains(&Association::Outside) {
            last_error::set("a resource manager is working outside of transactions".to_owned());
            return TX_OUTSIDE;
        }
        manager.recover_when_due();
        let answer = self.start(&manager);
        if answer == TX_OK {
            self.state = state;
        }
        answer
    }

    /// `tx_commit` and `tx_rollback`.
    pub(crate) fn end(&mut self, how: End) -> c_int {
        self.finish();
        let (Some(transaction), Some(manager)) = (self.transaction, self.manager.clone()) else {
            return self.misplaced();
        };
        if how == End::Commit && transaction.is_over_time() {
            last_error::set(TIME_IS_OVER.to_owned());
        } else if how == End::Commit && transaction.rollback_only {
            last_error::set(ROLLBACK_ONLY.to_owned());
        }
        let doomed = transaction.rollback_only || transaction.is_over_time();
        let flags = if how == End::Commit && !doomed { TMSUCCESS } else { TMFAIL };
        let (parts, ended_well) = self.leave(&manager, transaction.id, flags);
        let resources = resources(&manager, &parts);
        let means = Means { decisions: &*manager.decisions, durability: manager.durability, resources: &resources };
        let commits = how == End::Commit && !doomed && ended_well;
        // Its locks are free at once where it is rolled back.
        let own = before_commit(self.own.take().filter(|_| commits), transaction.id, &resources);
        let (commits, Committing { decided, kept }) = (commits && own.is_ok(), own.unwrap_or_default());
        let other = if decided.is_some() { OtherWork::Local } else { OtherWork::Nothing };
        let mut drive = if commits {
            Drive::commit(transaction.id, &resources, other).with_own(decided)
        } else {
            Drive::rollback(transaction.id, &resources, other)
        };
        let early = commits && self.when_return == TX_COMMIT_DECISION_LOGGED;
        let outcome = drive.run(&means, if early { Until::Decided } else { Until::Completed });
        drop(kept);
        self.transaction = None;
        let answer = match (how, outcome) {
            (End::Commit, None | Some(Outcome::Committed)) | (End::Rollback, Some(Outcome::RolledBack)) => TX_OK,
            (End::Commit, Some(Outcome::RolledBack)) => TX_ROLLBACK,
            (End::Rollback, None | Some(Outcome::Committed)) => TX_COMMITTED,
            (_, Some(Outcome::Mixed)) => TX_MIXED,
            (_, Some(Outcome::Hazard | Outcome::Unknown)) => TX_HAZARD,
        };
        if outcome.is_none() {
            self.unfinished = Some((drive, parts));
        }
        self.go_on(&manager, answer)
    }

    /// `tx_info`, and whether there is a transaction.
    pub(crate) fn info(&mut self) -> Option<(TxInfo, bool)> {
        self.finish();
        if !self.state.allows(Call::Info) {
            return None;
        }
        let (xid, transaction_state) = self.transaction.map_or((XidData::NULL, TX_ACTIVE), |transaction| {
            let state = if transaction.is_over_time() {
                TX_TIMEOUT_ROLLBACK_ONLY
            } else if transaction.rollback_only {
                TX_ROLLBACK_ONLY
            } else {
                TX_ACTIVE
            };
            (XidData::of_parts(&transaction.id.to_bytes(), NO_BRANCH), state)
        });
        let transaction_control = match self.state.control() {
            Control::Unchained => TX_UNCHAINED,
            Control::Chained => TX_CHAINED,
        };
        let (when_return, transaction_timeout) = (self.when_return, self.timeout_seconds);
        let info = TxInfo { xid, when_return, transaction_control, transaction_timeout, transaction_state };
        Some((info, self.state.is_active()))
    }

    /// `tx_set_commit_return`.
    pub(crate) fn set_commit_return(&mut self, when: c_long) -> c_int {
        if !self.state.allows(Call::SetCommitReturn) {
            return self.misplaced();
        }
        if ![TX_COMMIT_COMPLETED, TX_COMMIT_DECISION_LOGGED].contains(&when) {
            let why = format!("tx_commit returns at TX_COMMIT_COMPLETED or TX_COMMIT_DECISION_LOGGED, not at {when}");
            return last_error::refuse(TX_EINVAL, why);
        }
        self.when_return = when;
        TX_OK
    }

    /// `tx_set_transaction_control`.
    pub(crate) fn set_control(&mut self, control: c_long) -> c_int {
        let known = match control {
            TX_UNCHAINED => Control::Unchained,
            TX_CHAINED => Control::Chained,
            _ if self.state == State::Closed => return self.misplaced(),
            _ => {
                let why = format!("transactions are TX_UNCHAINED or TX_CHAINED, not {control}");
                return last_error::refuse(TX_EINVAL, why);
            }
        };
        let Some(state) = self.state.after(Call::SetControl(known)) else { return self.misplaced() };
        self.state = state;
        TX_OK
    }

    /// `tx_set_transaction_timeout`.
    pub(crate) fn set_timeout(&mut self, seconds: c_long) -> c_int {
        if !self.state.allows(Call::SetTimeout) {
            return self.misplaced();
        }
        if seconds < 0 {
            return last_error::refuse(TX_EINVAL, format!("a timeout is 0 seconds or more, not {seconds}"));
        }
        self.timeout_seconds = seconds;
        TX_OK
    }

    /// Why a call is not allowed, noted.
    pub(crate) fn misplaced(&self) -> c_int {
        let why = match self.state {
            State::Closed => "nothing is open in this thread: call tx_open first",
            State::Idle | State::IdleChained => "the thread is in no transaction",
            State::Active | State::ActiveChained => "the thread is in a transaction, which has to end first",
        };
        last_error::refuse(TX_PROTOCOL_ERROR, why)
    }

    /// Works in the coordinator's own store as part of the transaction. The code when it does not: what is noted says why.
    pub(crate) fn work<T>(&mut self, work: impl FnOnce(&mut OwnWork) -> holdfast::Result<T>) -> Result<T, c_int> {
        let (Some(transaction), Some(manager)) = (&mut self.transaction, &self.manager) else {
            return Err(self.misplaced());
        };
        let worker = Worker {
            manager,
            id: transaction.id,
            deadline: transaction.deadline,
            own: &mut self.own,
            rollback_only: &mut transaction.rollback_only,
        };
        worker.work(work)
    }

    /// Recovers now; `None` when nothing is open.
    pub(crate) fn recover(&mut self) -> Option<Recovered> {
        self.finish();
        self.manager.as_ref().map(|manager| manager.recover())
    }

    /// Completes the commits that the last transaction left under way.
    pub(crate) fn finish(&mut self) {
        let (Some((mut drive, parts)), Some(manager)) = (self.unfinished.take(), self.manager.as_ref()) else { return };
        let resources = resources(manager, &parts);
        let means = Means { decisions: &*manager.decisions, durability: manager.durability, resources: &resources };
        drive.run(&means, Until::Completed);
    }

    /// A new transaction with every resource manager that does not register by itself.
    fn start(&mut self, manager: &Manager) -> c_int {
        // A name that a resource manager knows already is not tried again: a new one is, once.
        match self.start_with_new_id(manager) {
            Err(XAER_DUPID) => self.start_with_new_id(manager).err().map_or(TX_OK, tx_of_start),
            Err(answer) => tx_of_start(answer),
            Ok(()) => TX_OK,
        }
    }

    fn start_with_new_id(&mut self, manager: &Manager) -> Result<(), c_int> {
        let seconds = u64::try_from(self.timeout_seconds).ok().filter(|seconds| *seconds > 0);
        let timeout = seconds.map(Duration::from_secs).or(manager.timeout);
        let id = manager.decisions.begin(Begin { timeout, ..Begin::default() }).map_err(|error| {
            last_error::set(format!("the coordinator does not begin a transaction: {error}"));
            if error.kind == ErrorKind::Unavailable { XAER_RMERR } else { XAER_RMFAIL }
        })?;
        // It decides if its branch is one of those that end with the transaction.
        let last_resource = manager.resources.iter().find_map(SwitchedResource::last_resource);
        let id = TransactionId { last_resource, ..id };
        for (place, resource) in manager.resources.iter().enumerate() {
            if resource.is_dynamic() {
                continue;
            }
            last_error::clear();
            let answer = start_branch(resource, id);
            if answer != XA_OK {
                last_error::set_with_reason(&format!("xa_start of `{}` answered {}", resource.branch, code(answer)));
                self.abandon(manager, id);
                return Err(answer);
            }
            self.associate(place, Association::Active);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.transaction = Some(Transaction { id, deadline, rollback_only: false, bound_to: None });
        Ok(())
    }

    /// Ends and rolls back what was started of a transaction that could not begin.
    fn abandon(&mut self, manager: &Manager, id: TransactionId) {
        let (parts, _) = self.leave(manager, id, TMFAIL);
        let resources = resources(manager, &parts);
        let means = Means { decisions: &*manager.decisions, durability: manager.durability, resources: &resources };
        Drive::rollback(id, &resources, OtherWork::Nothing).run(&means, Until::Completed);
    }

    /// Ends the thread's associations. Returns the resource managers that take part, and whether all ended well.
    fn leave(&mut self, manager: &Manager, id: TransactionId, flags: c_long) -> (Vec<usize>, bool) {
        let (mut parts, mut well) = (Vec::new(), true);
        for (place, resource) in manager.resources.iter().enumerate() {
            if !matches!(self.association(place), Association::Active | Association::Suspended) {
                continue;
            }
            last_error::clear();
            let answer = resource.call(Verb::End, &name(resource, id), flags);
            if answer != XA_OK && flags == TMSUCCESS {
                last_error::set_with_reason(&format!("xa_end of `{}` answered {}", resource.branch, code(answer)));
                well = false;
            }
            self.associate(place, Association::None);
            parts.push(place);
        }
        (parts, well)
    }

    /// The state after a transaction's end, and the answer when the next one was to begin.
    fn go_on(&mut self, manager: &Manager, answer: c_int) -> c_int {
        let mut next = Next::Began;
        let mut answer = answer;
        if self.state.control() == Control::Chained {
            // A resource manager takes one call at a time from a thread: before it starts anew its commit must be over.
            self.finish();
            if self.start(manager) != TX_OK {
                next = Next::Refused;
                answer += TX_NO_BEGIN;
            }
        }
        self.state = self.state.after(Call::End(next)).expect("a transaction was active");
        answer
    }

    pub(crate) fn association(&self, place: usize) -> Association {
        self.associations.get(place).copied().unwrap_or_default()
    }

    pub(crate) fn associate(&mut self, place: usize, association: Association) {
        if let Some(own) = self.associations.get_mut(place) {
            *own = association;
        }
    }
}

impl Transaction {
    fn is_over_time(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Starts a branch. A resource manager that is not available is opened anew, once: its server may have been restarted. One that
/// could not be opened then is closed since, which the next call finds out. Opening what is open does nothing.
fn start_branch(resource: &SwitchedResource, id: TransactionId) -> c_int {
    let name = name(resource, id);
    let answer = resource.call(Verb::Start, &name, TMNOFLAGS);
    match answer {
        XAER_RMFAIL => resource.close(),
        XAER_PROTO => XA_OK,
        answer => return answer,
    };
    if resource.open() == XA_OK { resource.call(Verb::Start, &name, TMNOFLAGS) } else { XAER_RMFAIL }
}

/// What `tx_begin` says when a resource manager does not start.
fn tx_of_start(answer: c_int) -> c_int {
    match answer {
        XA_OK => TX_OK,
        XAER_OUTSIDE => TX_OUTSIDE,
        XAER_RMFAIL => TX_FAIL,
        code if code > 0 || [XAER_RMERR, XAER_DUPID].contains(&code) => TX_ERROR,
        _ => TX_FAIL,
    }
}

pub(crate) fn name(resource: &SwitchedResource, id: TransactionId) -> XidData {
    XidData::of_branch(id, &resource.branch)
}

fn resources<'a>(manager: &'a Manager, parts: &[usize]) -> Vec<&'a dyn Resource> {
    let own = parts.iter().filter_map(|place| manager.resources.get(*place));
    own.map(|resource| resource as &dyn Resource).collect()
}
