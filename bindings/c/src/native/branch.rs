//! A connection and the branch on it: XA's verbs as statements, in the states that XA gives a branch.
//!
//!   start ──▶ active ──▶ ended ──▶ prepared ──▶ none
//!              ▲  ▼        └── in one phase ─────▲
//!            suspended
//!
//! A branch whose session has no transaction any more when it ends, or another one, is *lost*: the program ended the
//! transaction itself, and nobody knows how. It says so when it is rolled back, as a heuristic hazard, until it is forgotten.
//!
//! A branch that may be asked, and says that it changed nothing, ends when it is to be prepared, and has no second phase.
//!
//! MariaDB binds a prepared branch to its session. One that was left behind in doubt is left there: a connection of ours is opened
//! anew for the next, and recovery finds the branch.
//!
//! Prepared branches of earlier connections are committed and rolled back by their names.
//!
//! May use: `dialect`, `abi`. Must not know: which database it is.

use std::ffi::{c_int, c_long};

use tm::{LastResourceId, PostgresDecisions, XaCode, Xid};

use super::dialect::{Dialect, Step};
use super::{Failure, Reply, Session, Standing};
use crate::abi::{
    TMASYNC, TMJOIN, TMMIGRATE, TMONEPHASE, TMRESUME, TMSUSPEND, XA_HEURHAZ, XA_NOMIGRATE, XA_OK, XA_RDONLY,
    XAER_ASYNC, XAER_INVAL, XAER_NOTA, XAER_OUTSIDE, XAER_PROTO, XAER_RMERR, XAER_RMFAIL, XidData,
};
use crate::last_error;
use crate::resource::Verb;

/// Why nothing of ours is begun or recovered on a connection.
const BEGAN_ITSELF: &str = "the connection has a transaction open that the program began itself";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Active,
    Suspended,
    Ended,
    Prepared,
    Lost,
}

#[derive(Debug)]
pub(crate) struct BranchConnection<S> {
    session: S,
    current: Option<(Xid, Phase)>,
    /// The call whose answer nobody collected so far.
    under_way: Option<(c_int, Step, Xid)>,
    last_handle: c_int,
    /// Whether branches may be asked whether they changed anything.
    asks: bool,
    /// Which last resource the database is, if it is one.
    last: Option<LastResourceId>,
}

impl<S: Session> BranchConnection<S> {
    pub(crate) fn new(session: S) -> Self {
        Self { session, current: None, under_way: None, last_handle: 0, asks: false, last: None }
    }

    /// Its branches drop out when they changed nothing. Whoever says so knows that none has anything that takes effect at its
    /// end but changes of the database's own tables.
    pub(crate) fn asking(self) -> Self {
        Self { asks: true, ..self }
    }

    /// The database may decide about a transaction, by committing the branch in one phase.
    pub(crate) fn deciding(self, last: LastResourceId) -> Self {
        Self { last: Some(last), ..self }
    }

    pub(crate) fn last(&self) -> Option<LastResourceId> {
        self.last
    }

    /// The session, while no transaction is in it.
    pub(crate) fn idle_session(&mut self) -> Option<&mut S> {
        let is_idle = self.current.is_none() && self.under_way.is_none() && self.session.standing() == Standing::Idle;
        is_idle.then_some(&mut self.session)
    }

    pub(crate) fn session(&self) -> &S {
        &self.session
    }

    /// Commits a branch that ended, and with it the decision about its transaction by this statement.
    pub(crate) fn commit_last(&mut self, xid: &XidData, statement: impl FnOnce(&Xid) -> String) -> c_int {
        let Some(xid) = xid.to_xid() else { return XAER_INVAL };
        if self.under_way.is_some() {
            return XAER_ASYNC;
        }
        let phase = self.current.as_ref().filter(|(own, _)| *own == xid).map(|(_, phase)| *phase);
        if phase != Some(Phase::Ended) {
            return misplaced(phase);
        }
        let statement = statement(&xid);
        let answer = self.ask(&statement).map_err(advised);
        self.finish(Step::CommitOnePhase, xid, &answer)
    }

    /// One of XA's verbs. With `TMASYNC` a positive answer is a handle for [`Self::complete`].
    pub(crate) fn call(&mut self, verb: Verb, xid: &XidData, flags: c_long) -> c_int {
        let Some(xid) = xid.to_xid() else { return XAER_INVAL };
        if self.under_way.is_some() {
            return XAER_ASYNC;
        }
        let phase = self.current.as_ref().filter(|(own, _)| *own == xid).map(|(_, phase)| *phase);
        match verb {
            Verb::Start => self.start(xid, phase, flags),
            Verb::End => self.end(xid, phase, flags),
            // Two statements have no handle.
            Verb::Prepare if phase == Some(Phase::Ended) && self.asks && flags & TMASYNC != 0 => XAER_ASYNC,
            Verb::Prepare if phase == Some(Phase::Ended) && self.asks && self.changed_nothing() => {
                match self.step(Step::CommitOnePhase, xid, flags) {
                    XA_OK => XA_RDONLY,
                    refused => refused,
                }
            }
            Verb::Prepare if phase == Some(Phase::Ended) => self.step(Step::Prepare, xid, flags),
            Verb::Prepare => misplaced(phase),
            Verb::Commit if flags & TMONEPHASE != 0 => match phase {
                Some(Phase::Ended) => self.step(Step::CommitOnePhase, xid, flags),
                phase => misplaced(phase),
            },
            Verb::Commit => match phase {
                None if self.is_working() => XAER_PROTO,
                None | Some(Phase::Prepared) => self.step(Step::CommitPrepared, xid, flags),
                phase => misplaced(phase),
            },
            Verb::Rollback => match phase {
                None if self.is_working() => XAER_PROTO,
                None | Some(Phase::Prepared) => self.step(Step::RollbackPrepared, xid, flags),
                // Of one in which a statement failed nothing can be asked.
                Some(Phase::Ended) if self.session.standing() == Standing::Failed => self.step(Step::Clear, xid, flags),
                Some(Phase::Ended) => self.step(Step::RollbackActive, xid, flags),
                // A positive answer to an asynchronous call would be a handle.
                Some(Phase::Lost) if flags & TMASYNC != 0 => XAER_ASYNC,
                Some(Phase::Lost) => {
                    let why = "the program ended the transaction itself, and whether it is committed is not known";
                    last_error::refuse(XA_HEURHAZ, why)
                }
                phase => misplaced(phase),
            },
            Verb::Forget if phase == Some(Phase::Lost) => {
                self.current = None;
                XA_OK
            }
            // These databases never decide by themselves, so there is nothing that they remember.
            Verb::Forget => XAER_NOTA,
        }
    }

    /// The answer of a call with `TMASYNC`; waits for it.
    pub(crate) fn complete(&mut self, handle: c_int) -> c_int {
        match self.under_way.take() {
            Some((own, step, xid)) if own == handle => {
                let answer = self.session.receive();
                self.finish(step, xid, &answer)
            }
            other => {
                self.under_way = other;
                XAER_INVAL
            }
        }
    }

    /// The same, when the program may have worked with the connection meanwhile. In MariaDB it has taken this answer for that of a
    /// statement of its own then, and the answer of that statement stands here: what it says was committed is looked for.
    pub(crate) fn complete_late(&mut self, handle: c_int) -> c_int {
        let committed = match &self.under_way {
            Some((own, Step::CommitPrepared, xid)) if *own == handle => xid.clone(),
            _ => return self.complete(handle),
        };
        let code = self.complete(handle);
        if code != XA_OK {
            return code;
        }
        let found = match self.ask(S::Dialect::LIST) {
            Ok(reply) if !S::Dialect::listed(&reply).contains(&committed) => return XA_OK,
            Ok(_) => "it is prepared still: the program used the connection before the commit was answered".to_owned(),
            Err(failure) => format!("it cannot be looked for: {failure}"),
        };
        last_error::set(format!("commit of {committed}: {found}"));
        self.current = Some((committed, Phase::Prepared));
        XAER_RMFAIL
    }

    /// The branches of ours that are prepared in the database.
    pub(crate) fn prepared(&mut self) -> Result<Vec<Xid>, XaCode> {
        if self.is_working() || self.under_way.is_some() {
            return Err(XaCode::Protocol);
        }
        if matches!(self.session.standing(), Standing::Open | Standing::Failed) {
            // What is found could not be ended there, and the attempt would end what is open.
            last_error::set(BEGAN_ITSELF.to_owned());
            return Err(XaCode::Outside);
        }
        match self.ask(S::Dialect::LIST) {
            Ok(reply) => Ok(S::Dialect::listed(&reply)),
            Err(failure) => {
                last_error::set(format!("cannot list prepared branches: {failure}"));
                Err(if matches!(failure, Failure::Lost(_)) { XaCode::ManagerDown } else { XaCode::ManagerError })
            }
        }
    }

    fn start(&mut self, xid: Xid, phase: Option<Phase>, flags: c_long) -> c_int {
        if flags & TMJOIN != 0 {
            return XAER_INVAL;
        }
        if flags & TMRESUME != 0 {
            return match phase {
                Some(Phase::Suspended) => {
                    self.current = Some((xid, Phase::Active));
                    XA_OK
                }
                phase => misplaced(phase),
            };
        }
        match &self.current {
            Some((other, Phase::Suspended)) => {
                last_error::set(format!(
                    "a connection is in one transaction at a time, and this one is in {other}, which is suspended: it has to \
                     be resumed and ended first"
                ));
                return XAER_RMERR;
            }
            Some(_) if self.is_working() => return XAER_PROTO,
            Some((left, Phase::Prepared)) if S::Dialect::BINDS_PREPARED => match self.session.reopen() {
                Some(Ok(())) => self.current = None,
                Some(Err(failure)) => {
                    last_error::set(format!("cannot leave {left}, which is prepared: {failure}"));
                    return XAER_RMFAIL;
                }
                None => {
                    last_error::set(format!(
                        "the connection has {left} prepared, and begins nothing else until that is decided: call \
                         holdfast_tm_recover, or use another connection"
                    ));
                    return XAER_RMERR;
                }
            },
            _ => {}
        }
        if matches!(self.session.standing(), Standing::Open | Standing::Failed) {
            last_error::set(BEGAN_ITSELF.to_owned());
            return XAER_OUTSIDE;
        }
        self.step(Step::Start, xid, flags)
    }

    fn end(&mut self, xid: Xid, phase: Option<Phase>, flags: c_long) -> c_int {
        if !matches!(phase, Some(Phase::Active | Phase::Suspended)) {
            return misplaced(phase);
        }
        if flags & TMSUSPEND != 0 {
            self.current = Some((xid, Phase::Suspended));
            return if flags & TMMIGRATE != 0 { XA_NOMIGRATE } else { XA_OK };
        }
        let standing = S::Dialect::judge_end(self.session.standing());
        if standing == XAER_PROTO {
            last_error::set(format!("{xid}: the program ended the transaction itself"));
            self.current = Some((xid, Phase::Lost));
            return standing;
        }
        if standing != XA_OK {
            let said =
                self.session.last_failure().unwrap_or_else(|| "the client does not know why any more".to_owned());
            last_error::set(format!("a statement failed in {xid}: {said}"));
        }
        let answer = self.step(Step::End, xid, 0);
        if answer == XA_OK { standing } else { answer }
    }

    /// Whether a branch that is not prepared is open.
    fn is_working(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, phase)| *phase != Phase::Prepared)
    }

    fn step(&mut self, step: Step, xid: Xid, flags: c_long) -> c_int {
        let Some(statement) = self.statement(step, &xid) else {
            return self.finish(step, xid, &Ok(Reply::default()));
        };
        if let Err(failure) = self.session.send(&statement) {
            return self.finish(step, xid, &Err(failure));
        }
        if flags & TMASYNC != 0 {
            self.last_handle = self.last_handle.wrapping_add(1).max(1);
            self.under_way = Some((self.last_handle, step, xid));
            return self.last_handle;
        }
        let answer = self.session.receive();
        self.finish(step, xid, &answer)
    }

    fn statement(&self, step: Step, xid: &Xid) -> Option<String> {
        let statement = S::Dialect::statement(step, xid)?;
        // Nothing but a prepared branch may be of a session that ended.
        let is_of_session = step == Step::Clear || self.current.as_ref().is_some_and(|(own, _)| own == xid);
        Some(if step.is_last() && is_of_session { S::Dialect::in_its_session(statement, xid) } else { statement })
    }

    /// The code of a step's answer, and the branch's next phase.
    fn finish(&mut self, step: Step, xid: Xid, answer: &Result<Reply, Failure>) -> c_int {
        if let Err(failure) = answer {
            last_error::set(format!("{} of {xid}: {failure}", step.words()));
        }
        let code = S::Dialect::judge(step, answer);
        if S::Dialect::is_missed(answer) {
            last_error::set(format!(
                "{xid}: the program ended the transaction itself; another that was open is rolled back"
            ));
            self.clear_open(&xid);
            self.current = Some((xid, Phase::Lost));
            return if step == Step::RollbackActive { XA_HEURHAZ } else { code };
        }
        match step {
            Step::Start if code == XA_OK => self.current = Some((xid, Phase::Active)),
            // What begins a branch may fail when the transaction has begun.
            Step::Start => self.clear_open(&xid),
            // A branch that did not end well is rolled back as one that did.
            Step::End => self.current = Some((xid, Phase::Ended)),
            Step::Prepare if code == XA_OK => self.current = Some((xid, Phase::Prepared)),
            Step::Prepare if code == XAER_RMFAIL => {}
            Step::Prepare | Step::CommitOnePhase if code != XA_OK => {
                self.current = None;
                // XA says that the branch is gone. Where the client is not told, that there is none is good.
                if self.session.standing() == Standing::Untold { self.clear(&xid) } else { self.clear_open(&xid) }
            }
            Step::CommitPrepared | Step::RollbackPrepared => {
                if code == XAER_NOTA
                    && let Err(reason) = self.check_gone(&xid)
                {
                    last_error::set(reason);
                    return XAER_RMFAIL;
                }
                // Of another branch the session knows nothing more or less than before.
                self.current.take_if(|(own, _)| *own == xid);
            }
            // Nothing is open but where a question that went with the statement was refused.
            _ => {
                self.clear_open(&xid);
                self.current = None;
            }
        }
        code
    }

    /// Whether the branch changed nothing. A failure leaves that to its prepare, which fails then too.
    fn changed_nothing(&mut self) -> bool {
        let reply = S::Dialect::ASK.map(|question| self.ask(question));
        reply.is_some_and(|reply| reply.is_ok_and(|reply| S::Dialect::changed_nothing(&reply)))
    }

    /// Rolls back what is open, where anything is.
    fn clear_open(&mut self, xid: &Xid) {
        if matches!(self.session.standing(), Standing::Open | Standing::Failed) {
            self.clear(xid);
        }
    }

    /// Rolls back what can only be rolled back now.
    fn clear(&mut self, xid: &Xid) {
        if let Some(statement) = self.statement(Step::Clear, xid) {
            drop(self.ask(&statement));
        }
    }

    /// Looks whether the database does not know a prepared branch indeed. What does not answer may know it.
    fn check_gone(&mut self, xid: &Xid) -> Result<(), String> {
        match self.ask(S::Dialect::LIST) {
            Ok(reply) if S::Dialect::listed(&reply).contains(xid) => {
                Err(format!("{xid} belongs to another session, which has to end first"))
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(format!("{xid} is not known to this session, and it cannot be looked for: {failure}")),
        }
    }

    fn ask(&mut self, statement: &str) -> Result<Reply, Failure> {
        self.session.send(statement)?;
        self.session.receive()
    }
}

/// With what a refusal of the decision means.
fn advised(failure: Failure) -> Failure {
    let advice = match &failure {
        Failure::Refused { state, text, .. } => PostgresDecisions::advice(state, text),
        Failure::Lost(_) => None,
    };
    match (failure, advice) {
        (Failure::Refused { state, number, text }, Some(advice)) => {
            Failure::Refused { state, number, text: format!("{advice} ({text})") }
        }
        (failure, _) => failure,
    }
}

/// The code for a verb that does not go with the branch's phase.
fn misplaced(phase: Option<Phase>) -> c_int {
    if phase.is_none() { XAER_NOTA } else { XAER_PROTO }
}

#[cfg(test)]
#[path = "branch_tests.rs"]
mod tests;
