//! A simulated resource manager: branches by name, with what a database does to them.
//!
//! ```text
//!   start ──▶ active ──end──▶ ended ──prepare──▶ prepared ──▶ committed, rolled back
//!                └──── its connection breaks, or it crashes ──▶ rolled back
//!                         prepared, or asked to commit in one phase ──by itself──▶ heuristic ──forget──▶ gone
//! ```
//!
//! Prepared branches and what was done to them by itself survive a crash. It may roll back instead of preparing, find that
//! nothing was changed, ask to be asked again, and decide by itself.
//!
//! May use: `xa`. Must not know: who asks, what is right.

use std::collections::{BTreeMap, BTreeSet};

use base::Random;
use xa::{FORMAT_ID, Heuristic, TransactionId, TwoPhaseDecision, XaCode, Xid};

use crate::distributed::wire::{Reply, Request};

/// A branch as a resource manager knows it: format, global id, qualifier.
pub(crate) type Name = (i32, Vec<u8>, Vec<u8>);

/// What became of a branch, as only the resource manager knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed,
    RolledBack,
    ReadOnly,
    Heuristic(Heuristic),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Ended,
    Prepared,
    Heuristic(Heuristic),
}

#[derive(Debug, Clone, Copy)]
struct Branch {
    state: State,
    session: u64,
}

/// The resource manager.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    /// What it decided as the last resource: committed, or never to be.
    decisions: BTreeMap<TransactionId, bool>,
    pub(crate) is_up: bool,
    branches: BTreeMap<Name, Branch>,
    pub(crate) fates: BTreeMap<Name, Fate>,
    /// Connections that are over: nothing comes through them any more.
    closed: BTreeSet<u64>,
    /// Connections from before the last crash are over, too.
    closed_below: u64,
    /// Branches of others, prepared since the beginning.
    pub(crate) foreign: BTreeSet<Name>,
    /// Whether it answers what it likes now and then.
    pub(crate) is_moody: bool,
}

pub(crate) fn name(xid: &Xid) -> Name {
    (FORMAT_ID, xid.transaction.to_bytes().to_vec(), xid.branch.as_str().as_bytes().to_vec())
}

impl Manager {
    /// One that is up, and has nothing.
    pub(crate) fn new() -> Self {
        Self { is_up: true, ..Self::default() }
    }

    /// Another program prepares a branch that is none of ours.
    pub(crate) fn prepare_foreign(&mut self, name: Name) {
        self.branches.insert(name.clone(), Branch { state: State::Prepared, session: 0 });
        self.foreign.insert(name);
    }

    /// Branches in any state that are not foreign.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Name> {
        self.branches.keys().filter(|name| !self.foreign.contains(*name))
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.branches.contains_key(name)
    }

    pub(crate) fn is_prepared(&self, name: &Name) -> bool {
        self.branches.get(name).is_some_and(|branch| branch.state == State::Prepared)
    }

    /// It is killed; sessions numbered below this are over.
    pub(crate) fn crash(&mut self, next_session: u64) {
        self.is_up = false;
        self.closed_below = next_session;
        self.closed.clear();
        self.roll_back(|_| true);
    }

    /// It notices that a connection broke.
    pub(crate) fn close(&mut self, session: u64) {
        self.closed.insert(session);
        self.roll_back(|branch| branch.session == session);
    }

    fn roll_back(&mut self, of: impl Fn(&Branch) -> bool) {
        let is_over = |branch: &Branch| of(branch) && matches!(branch.state, State::Active | State::Ended);
        let over: Vec<Name> =
            self.branches.iter().filter(|(_, branch)| is_over(branch)).map(|(name, _)| name.clone()).collect();
        over.into_iter().for_each(|name| self.end(&name, Fate::RolledBack));
    }

    /// It decides about a prepared branch by itself; whether there was one.
    pub(crate) fn decide_by_itself(&mut self, random: &mut Random) -> bool {
        let prepared: Vec<Name> = self.open().filter(|name| self.is_prepared(name)).cloned().collect();
        let at = usize::try_from(random.below(prepared.len() as u64)).unwrap_or(0);
        let Some(name) = prepared.get(at) else { return false };
        self.do_by_itself(name, random);
        true
    }

    fn do_by_itself(&mut self, name: &Name, random: &mut Random) -> Heuristic {
        let deeds = [Heuristic::Commit, Heuristic::Rollback, Heuristic::Mixed, Heuristic::Hazard];
        let deed = deeds[usize::try_from(random.below(4)).unwrap_or(0)];
        self.fates.insert(name.clone(), Fate::Heuristic(deed));
        if let Some(branch) = self.branches.get_mut(name) {
            branch.state = State::Heuristic(deed);
        }
        deed
    }

    fn end(&mut self, name: &Name, fate: Fate) {
        self.branches.remove(name);
        self.fates.insert(name.clone(), fate);
    }

    /// Does what it is asked to, through this connection.
    pub(crate) fn serve(&mut self, request: &Request, session: u64, random: &mut Random) -> Reply {
        if !self.is_up || (session != 0 && (session < self.closed_below || self.closed.contains(&session))) {
            return Reply::Lost;
        }
        let code = match request {
            Request::Start(xid) => {
                self.branches.insert(name(xid), Branch { state: State::Active, session });
                XaCode::Ok
            }
            Request::End(xid) => self.end_work(&name(xid), session),
            Request::Prepare(xid) => self.prepare(&name(xid), session, random),
            Request::OnePhase(xid) => self.commit_alone(&name(xid), session, random),
            Request::CommitLast(xid) => self.commit_last(xid, session, random),
            Request::Settle(id) => {
                let committed = *self.decisions.entry(*id).or_insert(false);
                return Reply::Decision(if committed {
                    TwoPhaseDecision::Committed
                } else {
                    TwoPhaseDecision::Aborted
                });
            }
            Request::LetGo(id) => {
                self.decisions.remove(id);
                return Reply::Taken;
            }
            Request::Commit(xid) => self.commit(&name(xid), random),
            Request::Rollback(xid) => self.roll_one_back(&name(xid), session, random),
            Request::Forget(xid) => self.forget(&name(xid)),
            Request::List => {
                let is_shown = |branch: &Branch| matches!(branch.state, State::Prepared | State::Heuristic(_));
                let shown = self.branches.iter().filter(|(_, branch)| is_shown(branch));
                return Reply::Listed(shown.map(|(name, _)| name.clone()).collect());
            }
            _ => return Reply::Refused,
        };
        Reply::Code(code)
    }

    /// The branch under way on this connection.
    fn own(&mut self, name: &Name, session: u64) -> Option<&mut Branch> {
        self.branches.get_mut(name).filter(|branch| branch.session == session)
    }

    fn end_work(&mut self, name: &Name, session: u64) -> XaCode {
        match self.own(name, session) {
            Some(branch) if branch.state == State::Active => {
                branch.state = State::Ended;
                XaCode::Ok
            }
            Some(_) => XaCode::Protocol,
            None => XaCode::NotKnown,
        }
    }

    fn prepare(&mut self, name: &Name, session: u64, random: &mut Random) -> XaCode {
        let mood = if self.is_moody { random.below(12) } else { 12 };
        match self.own(name, session) {
            Some(branch) if branch.state == State::Ended => match mood {
                0 => {
                    self.end(name, Fate::RolledBack);
                    let codes = [XaCode::RolledBack, XaCode::RolledBackDeadlock, XaCode::RolledBackTimeout];
                    codes[usize::try_from(random.below(3)).unwrap_or(0)]
                }
                1 => {
                    self.end(name, Fate::ReadOnly);
                    XaCode::ReadOnly
                }
                2 => XaCode::ManagerError,
                _ => {
                    branch.state = State::Prepared;
                    XaCode::Ok
                }
            },
            Some(_) => XaCode::Protocol,
            None => XaCode::NotKnown,
        }
    }

    /// Commits the only branch of a transaction, or does something else by itself, which it remembers.
    fn commit_alone(&mut self, name: &Name, session: u64, random: &mut Random) -> XaCode {
        let is_ended = self.own(name, session).is_some_and(|branch| branch.state == State::Ended);
        if is_ended && self.is_moody && random.chance(1, 8) {
            return code_of(self.do_by_itself(name, random));
        }
        self.commit_one_phase(name, session, random)
    }

    fn commit_one_phase(&mut self, name: &Name, session: u64, random: &mut Random) -> XaCode {
        let is_against = self.is_moody && random.chance(1, 8);
        match self.own(name, session) {
            Some(branch) if branch.state == State::Ended => {
                let fate = if is_against { Fate::RolledBack } else { Fate::Committed };
                self.end(name, fate);
                if is_against { XaCode::RolledBackIntegrity } else { XaCode::Ok }
            }
            Some(_) => XaCode::Protocol,
            None => XaCode::NotKnown,
        }
    }

    /// Commits work and the decision with it, unless somebody was told that it never will.
    fn commit_last(&mut self, xid: &Xid, session: u64, random: &mut Random) -> XaCode {
        let name = name(xid);
        let is_open = self.own(&name, session).is_some_and(|branch| branch.state == State::Ended);
        if is_open && self.decisions.contains_key(&xid.transaction) {
            self.end(&name, Fate::RolledBack);
            return XaCode::RolledBackIntegrity;
        }
        let code = self.commit_one_phase(&name, session, random);
        if code == XaCode::Ok {
            self.decisions.insert(xid.transaction, true);
        }
        code
    }

    fn commit(&mut self, name: &Name, random: &mut Random) -> XaCode {
        match self.branches.get(name).map(|branch| branch.state) {
            Some(State::Prepared) if self.is_moody && random.chance(1, 10) => XaCode::Retry,
            Some(State::Prepared) => {
                self.end(name, Fate::Committed);
                XaCode::Ok
            }
            Some(State::Heuristic(deed)) => code_of(deed),
            Some(State::Active | State::Ended) => XaCode::Protocol,
            None => XaCode::NotKnown,
        }
    }

    fn roll_one_back(&mut self, name: &Name, session: u64, random: &mut Random) -> XaCode {
        let Some(branch) = self.branches.get(name).copied() else { return XaCode::NotKnown };
        match branch.state {
            State::Prepared if self.is_moody && random.chance(1, 10) => XaCode::Retry,
            State::Heuristic(deed) => code_of(deed),
            // What is not prepared belongs to its connection, and is not to be seen from another.
            State::Active | State::Ended if branch.session != session => XaCode::NotKnown,
            State::Prepared | State::Active | State::Ended => {
                self.end(name, Fate::RolledBack);
                XaCode::Ok
            }
        }
    }

    fn forget(&mut self, name: &Name) -> XaCode {
        match self.branches.get(name).map(|branch| branch.state) {
            Some(State::Heuristic(_)) => {
                self.branches.remove(name);
                XaCode::Ok
            }
            Some(_) => XaCode::Protocol,
            None => XaCode::NotKnown,
        }
    }
}

fn code_of(deed: Heuristic) -> XaCode {
    match deed {
        Heuristic::Commit => XaCode::HeuristicCommit,
        Heuristic::Rollback => XaCode::HeuristicRollback,
        Heuristic::Mixed => XaCode::HeuristicMixed,
        Heuristic::Hazard => XaCode::HeuristicHazard,
    }
}
