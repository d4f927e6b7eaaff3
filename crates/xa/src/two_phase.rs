//! Two-phase commit with presumed abort, as a machine that is told answers and says which calls come next.
//!
//! ```text
//!            one branch, nothing else
//!  commit ──────────────────────────────▶ one phase ───────────────────────┐
//!    │                     a refusal                                       │
//!    └─▶ preparing ──────────────────────▶ rolling back ──────────────────▶│
//!            │ all can                     ▲    ▲                          │
//!            │          aborted            │    │ aborted                  ▼
//!            ├─▶ deciding ─────────────────┘    │                      forgetting ──▶ over
//!            │      │    │ unknown              │                          ▲
//!            │      │    └───────▶ in doubt ────┤                          │
//!            │      │ committed      │  │       │ still unknown: over      │
//!            │      ▼                │  └───────┘                          │
//!            │   committing ◀────────┘ committed                           │
//!            │      └──────────────────────────────────────────────────────┤
//!            └─▶ all read-only, nothing else: over                         │
//!  rollback ──▶ rolling back ──────────────────────────────────────────────┘
//! ```
//!
//! With a last resource deciding is another matter: `two_phase/last.rs`. One phase is in `two_phase/one_phase.rs`.
//!
//! Every [`Call`] but `Done`, `Deeds` and `LetGo` is answered exactly once, in any order. Branches are numbers: places in the caller's list.
//!
//! May use: `codes`. Must not know: what a resource manager is, who decides, how calls are made, time.

mod last;
mod one_phase;

use crate::codes::{BranchEnd, Ended, PrepareAnswer, XaCode};
use crate::record::Heuristic;

/// What commits with the branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherWork {
    /// Nothing: a single branch may commit in one phase.
    Nothing,
    /// Changes in the coordinator's own store, in the same batch as the decision.
    Local,
    /// Branches of other programs: the coordinator hears of an abort, too.
    Shared,
    /// Branches of other programs, one of which decides: here that is waited for.
    Elsewhere,
}

/// A call to be made now. Those that are given out together may run in parallel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Prepare this branch; answer with [`TwoPhase::answer`].
    Prepare(usize),
    /// Commit this branch, which is not prepared, in one phase; answer with [`TwoPhase::answer`].
    CommitOnePhase(usize),
    /// Commit this branch, which is not prepared, and with it the decision to commit the transaction; answer with
    /// [`TwoPhase::answer`].
    CommitLast(usize),
    /// Ask this branch's resource manager, which may have been told to commit the decision, whether it did; what it has not it
    /// must never do then. Answer with [`TwoPhase::decide`].
    AskLast(usize),
    /// The last resource's decision is needed no more. Nothing answers.
    LetGo,
    /// Ask the coordinator to decide to commit, naming these branches; answer with [`TwoPhase::decide`].
    Decide(Vec<usize>),
    /// Ask the coordinator to decide to roll back; answer with [`TwoPhase::decide`].
    Abort,
    /// Commit this prepared branch; answer with [`TwoPhase::answer`].
    Commit(usize),
    /// Roll this branch back; answer with [`TwoPhase::answer`].
    Rollback(usize),
    /// Tell the coordinator that these branches know of the decision. Nothing answers; but what a branch did by itself has to
    /// be recorded before its resource manager is told to forget it.
    Done(Vec<(usize, BranchEnd)>),
    /// Have it recorded what these branches of a transaction that is rolled back did by themselves, before their resource managers
    /// are told to forget it. Nothing answers.
    Deeds(Vec<(usize, Heuristic)>),
    /// Let the resource manager forget what it did by itself; answer with [`TwoPhase::answer`], and with `Retry` where that is
    /// left to recovery.
    Forget(usize),
}

/// What the coordinator answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwoPhaseDecision {
    /// It is decided to commit.
    Committed,
    /// It will never be committed. Also what a coordinator's refusal means, after which nothing happened.
    Aborted,
    /// Not known: the answer was lost.
    Unknown,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwoPhaseOutcome {
    /// Committed; branches that are pending will be, too.
    Committed,
    /// Rolled back; branches that are pending will be, too.
    RolledBack,
    /// A part was committed and a part rolled back, by resource managers' own doing.
    Mixed,
    /// A part may have been committed and a part rolled back.
    Hazard,
    /// Whether the coordinator decided to commit could not be found out. All branches will end alike: recovery sees to
    /// those that are pending.
    Unknown,
}

/// The machine. Pure: it does nothing by itself.
#[derive(Debug, Clone)]
pub struct TwoPhase {
    branches: Vec<Branch>,
    other: OtherWork,
    /// The branch whose commit is the decision.
    last: Option<usize>,
    stage: Stage,
    /// Given out with the next call of [`Self::next_calls`].
    calls: Vec<Call>,
    /// Calls without an answer so far.
    awaited: usize,
    /// Whether one of them is the coordinator's.
    coordinator_asked: bool,
    /// What became of the other work.
    decided: Option<TwoPhaseDecision>,
    /// Whether the coordinator knows of an abort.
    abort_told: bool,
    /// Whether a branch was asked to prepare: those that are out of reach may be prepared.
    prepare_asked: bool,
    /// A decision was asked for, and its answer lost. Should the coordinator then refuse, it may be that it did decide to
    /// commit, that somebody's recovery carried that out, and that all was forgotten. Then every branch is gone.
    doubt: Doubt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Never,
    Open,
    /// A prepared branch was still there to be rolled back, so nobody committed.
    Dispelled,
}

#[derive(Debug, Clone)]
struct Branch {
    order: u32,
    state: State,
    /// The resource manager keeps its heuristic deed until told to forget it.
    remembered: bool,
    /// The answer to its prepare was lost: the request may be on its way yet.
    is_prepare_lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Has work, and no call is under way.
    Active,
    Prepared,
    Ended(BranchEnd),
    /// A call is under way.
    Asked(Verb),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Prepare,
    OnePhase,
    CommitLast,
    Commit,
    Rollback,
    /// Forgetting changes nothing about how it ended.
    Forget(BranchEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    OnePhase,
    Recording,
    Preparing,
    Deciding,
    InDoubt,
    HandingOver,
    Copying,
    Committing,
    RollingBack,
    Forgetting,
    Over,
}

impl TwoPhase {
    /// Begins to commit. `orders` has a number for each branch: those with a lower one commit earlier, equals in parallel.
    /// A branch that cannot be reached when its turn comes is left to recovery and does not hold up the others.
    #[must_use]
    pub fn commit(orders: &[u32], other: OtherWork) -> Self {
        Self::committing(Self::new(orders, other))
    }

    /// Begins to commit where the branch `last` is the last resource's. It commits before all others, whatever the orders say.
    /// There is no other work: that is decided by the coordinator.
    ///
    /// # Panics
    /// When there is no such branch.
    #[must_use]
    pub fn commit_with_last(orders: &[u32], last: usize) -> Self {
        assert!(last < orders.len(), "the last resource has one of the branches");
        Self::committing(Self { last: Some(last), ..Self::new(orders, OtherWork::Nothing) })
    }

    fn committing(mut machine: Self) -> Self {
        if machine.branches.len() == 1 && machine.other == OtherWork::Nothing {
            machine.commit_in_one_phase(0);
        } else {
            machine.stage = Stage::Preparing;
            machine.prepare_asked = true;
            for branch in 0..machine.branches.len() {
                if machine.last != Some(branch) {
                    machine.ask(branch, Verb::Prepare);
                }
            }
        }
        machine.proceed();
        machine
    }

    /// Begins to roll back.
    #[must_use]
    pub fn rollback(branches: usize, other: OtherWork) -> Self {
        let mut machine = Self::new(&vec![0; branches], other);
        machine.roll_back();
        machine.proceed();
        machine
    }

    fn new(orders: &[u32], other: OtherWork) -> Self {
        let branch =
            |order: &u32| Branch { order: *order, state: State::Active, remembered: false, is_prepare_lost: false };
        let branches = orders.iter().map(branch).collect();
        Self {
            branches,
            other,
            last: None,
            stage: Stage::Preparing,
            calls: Vec::new(),
            awaited: 0,
            coordinator_asked: false,
            decided: None,
            abort_told: false,
            prepare_asked: false,
            doubt: Doubt::Never,
        }
    }

    /// The calls to make now; each is given out once. Empty while answers are awaited, and when it is over.
    pub fn next_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// How it ended; `None` while calls or answers are left.
    #[must_use]
    pub fn outcome(&self) -> Option<TwoPhaseOutcome> {
        (self.stage == Stage::Over && self.calls.is_empty()).then(|| self.judge())
    }

    /// What became of a branch; `None` while that is open.
    #[must_use]
    pub fn end_of(&self, branch: usize) -> Option<BranchEnd> {
        match self.branches.get(branch)?.state {
            State::Ended(end) | State::Asked(Verb::Forget(end)) => Some(end),
            _ => None,
        }
    }

    /// Whether a branch is left to recovery. Only then may something of an ended transaction still be in doubt.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.branches.iter().any(|branch| branch.state == State::Ended(BranchEnd::Pending))
    }

    /// Whether every prepared branch was told how it was decided. Others follow when those that are asked now have answered.
    #[must_use]
    pub fn is_last_group(&self) -> bool {
        self.branches.iter().all(|branch| branch.state != State::Prepared)
    }

    /// A resource manager's answer to the call under way for this branch.
    ///
    /// # Panics
    /// When no call of this branch is under way.
    pub fn answer(&mut self, number: usize, code: XaCode) {
        let branch = self.branches.get_mut(number).expect("the caller numbers branches by its own list");
        let State::Asked(verb) = branch.state else { panic!("branch {number} was not asked anything") };
        let ended = match verb {
            Verb::Prepare => {
                branch.is_prepare_lost = code == XaCode::ManagerDown;
                branch.state = match code.as_vote() {
                    PrepareAnswer::Prepared => State::Prepared,
                    PrepareAnswer::ReadOnly => State::Ended(BranchEnd::ReadOnly),
                    PrepareAnswer::Gone => State::Ended(BranchEnd::RolledBack),
                    PrepareAnswer::Refused => State::Active,
                };
                None
            }
            Verb::OnePhase => {
                branch.state = State::Active;
                code.after_one_phase()
            }
            Verb::CommitLast => {
                branch.state = State::Active;
                return self.last_answered(number, code);
            }
            Verb::Commit => Some(code.after_commit()),
            // Not known now, and it may be prepared in a moment, by a request that outlives its connection.
            Verb::Rollback if branch.is_prepare_lost && code == XaCode::NotKnown => {
                Some(Ended { end: BranchEnd::Pending, remembered: false })
            }
            Verb::Rollback => {
                let ended = code.after_rollback();
                if self.doubt == Doubt::Open && code != XaCode::NotKnown && ended.end != BranchEnd::Pending {
                    self.doubt = Doubt::Dispelled;
                }
                Some(ended)
            }
            Verb::Forget(end) => {
                branch.state = State::Ended(end);
                branch.remembered = !matches!(code, XaCode::Ok | XaCode::NotKnown);
                None
            }
        };
        if let Some(ended) = ended {
            branch.state = State::Ended(ended.end);
            branch.remembered = ended.remembered;
        }
        self.awaited -= 1;
        self.proceed();
    }

    /// The answer to `Decide`, `Abort` or `AskLast`.
    ///
    /// # Panics
    /// When nobody was asked.
    pub fn decide(&mut self, decision: TwoPhaseDecision) {
        assert!(self.coordinator_asked, "the coordinator was not asked anything");
        self.coordinator_asked = false;
        self.awaited -= 1;
        match (self.stage, decision) {
            (Stage::Recording, decision) => self.recorded(decision),
            (Stage::HandingOver, decision) => self.handed_over(decision),
            (Stage::Copying, decision) => self.copied(decision),
            (Stage::InDoubt, decision) if self.last.is_some() => match (self.last, decision) {
                (Some(last), TwoPhaseDecision::Committed | TwoPhaseDecision::Aborted) => {
                    self.last_decided(last, decision);
                }
                _ => self.hand_over(),
            },
            // The batch may have happened, and no coordinator knows of it, because no branch had to learn that.
            (Stage::Deciding, TwoPhaseDecision::Unknown)
                if self.other == OtherWork::Local && self.with_state(State::Prepared).is_empty() =>
            {
                self.leave_in_doubt();
                self.stage = Stage::Over;
            }
            (Stage::Deciding, TwoPhaseDecision::Unknown) => {
                self.stage = Stage::InDoubt;
                if !self.with_state(State::Prepared).is_empty() {
                    self.doubt = Doubt::Open;
                }
                self.call_coordinator(Call::Abort);
            }
            (Stage::Deciding | Stage::InDoubt, TwoPhaseDecision::Committed) => {
                self.decided = Some(TwoPhaseDecision::Committed);
                self.stage = Stage::Committing;
            }
            (Stage::Deciding, TwoPhaseDecision::Aborted) => self.roll_back(),
            (Stage::InDoubt, TwoPhaseDecision::Aborted) => {
                self.abort_told = true;
                self.roll_back();
            }
            (Stage::InDoubt, TwoPhaseDecision::Unknown) => {
                self.leave_in_doubt();
                self.stage = Stage::Over;
            }
            // While it is rolled back the abort is told, which is presumed anyway. Should it be committed nevertheless, the
            // outcome says that it is mixed.
            (_, TwoPhaseDecision::Committed) => self.decided = Some(TwoPhaseDecision::Committed),
            (_, TwoPhaseDecision::Aborted | TwoPhaseDecision::Unknown) => {}
        }
        self.proceed();
    }

    /// Moves on when nothing is awaited in this stage.
    fn proceed(&mut self) {
        while self.awaited == 0 && self.stage != Stage::Over {
            let before = self.stage;
            match self.stage {
                Stage::OnePhase => self.after_one_phase(),
                Stage::Preparing => self.after_prepare(),
                Stage::Committing => self.commit_next_group(),
                Stage::RollingBack => self.after_rollback(),
                Stage::Forgetting => self.after_forget(),
                Stage::Recording | Stage::Deciding | Stage::InDoubt | Stage::Copying | Stage::HandingOver => return,
                Stage::Over => return,
            }
            assert!(self.awaited > 0 || self.stage != before, "each stage asks something or goes on");
        }
    }

    fn after_prepare(&mut self) {
        let refused = |(number, branch): (usize, &Branch)| match branch.state {
            State::Active => self.last != Some(number),
            state => state == State::Ended(BranchEnd::RolledBack),
        };
        if self.branches.iter().enumerate().any(refused) {
            return self.roll_back();
        }
        let prepared = self.with_state(State::Prepared);
        if let Some(last) = self.last {
            // Also when nobody else changed anything: it can be asked then what became of it.
            self.stage = Stage::Deciding;
            return self.ask(last, Verb::CommitLast);
        }
        if prepared.is_empty() && self.other == OtherWork::Nothing {
            self.decided = Some(TwoPhaseDecision::Committed);
            self.stage = Stage::Over;
        } else {
            self.stage = Stage::Deciding;
            self.call_coordinator(Call::Decide(prepared));
        }
    }

    fn commit_next_group(&mut self) {
        let prepared = self.branches.iter().filter(|branch| branch.state == State::Prepared);
        if let Some(order) = prepared.map(|branch| branch.order).min() {
            for number in self.with_state(State::Prepared) {
                if self.branches.get(number).is_some_and(|branch| branch.order == order) {
                    self.ask(number, Verb::Commit);
                }
            }
            return;
        }
        if self.last.is_some() { self.after_last() } else { self.note_done() }
    }

    fn note_done(&mut self) {
        let know = |(number, branch): (usize, &Branch)| match branch.state {
            State::Ended(BranchEnd::Pending | BranchEnd::ReadOnly) => None,
            // The coordinator does not know of it.
            State::Ended(_) if self.last == Some(number) => None,
            State::Ended(end) => Some((number, end)),
            _ => None,
        };
        let done: Vec<_> = self.branches.iter().enumerate().filter_map(know).collect();
        if !done.is_empty() {
            self.calls.push(Call::Done(done));
        }
        self.forget();
    }

    fn leave_in_doubt(&mut self) {
        self.decided = Some(TwoPhaseDecision::Unknown);
        for branch in &mut self.branches {
            if matches!(branch.state, State::Prepared | State::Active) {
                branch.state = State::Ended(BranchEnd::Pending);
            }
        }
    }

    fn roll_back(&mut self) {
        self.stage = Stage::RollingBack;
        self.decided = Some(TwoPhaseDecision::Aborted);
        if self.other == OtherWork::Shared && !self.abort_told {
            self.tell_abort();
        }
        for number in 0..self.branches.len() {
            if self.branches.get(number).is_some_and(|branch| !matches!(branch.state, State::Ended(_))) {
                self.ask(number, Verb::Rollback);
            }
        }
    }

    /// A branch that could not be told, but may be prepared, would hold its locks while this program lives: an abort is
    /// only presumed of programs that ended. So now the coordinator must know.
    fn after_rollback(&mut self) {
        if self.is_pending() && self.prepare_asked && !self.abort_told {
            self.tell_abort();
        } else {
            self.note_deeds();
            self.forget();
        }
    }

    /// What was not done against the decision, as a rollback, is no news. Should it be committed after all, recovery finds out.
    fn note_deeds(&mut self) {
        let against = |(number, branch): (usize, &Branch)| match branch.state {
            State::Ended(BranchEnd::Heuristic(Heuristic::Rollback)) => None,
            State::Ended(BranchEnd::Heuristic(deed)) if branch.remembered => Some((number, deed)),
            _ => None,
        };
        let deeds: Vec<_> = self.branches.iter().enumerate().filter_map(against).collect();
        if !deeds.is_empty() {
            self.calls.push(Call::Deeds(deeds));
        }
    }

    fn tell_abort(&mut self) {
        self.abort_told = true;
        self.call_coordinator(Call::Abort);
    }

    /// The last but the coordinator's: what resource managers remember is in the outcome now.
    fn forget(&mut self) {
        self.stage = Stage::Forgetting;
        for number in 0..self.branches.len() {
            if let Some(Branch { remembered: true, state: State::Ended(end), .. }) = self.branches.get(number) {
                self.ask(number, Verb::Forget(*end));
            }
        }
    }

    /// What is still remembered is listed, and left to recovery. That is told to commit as long as the decision is known, which
    /// what was done against or by itself keeps; of a transaction without one it has to hear, as in [`Self::after_rollback`].
    fn after_forget(&mut self) {
        let is_listed = self.branches.iter().any(|branch| branch.remembered);
        if is_listed && self.decided != Some(TwoPhaseDecision::Committed) && !self.abort_told {
            self.tell_abort();
        } else {
            self.stage = Stage::Over;
        }
    }

    fn with_state(&self, state: State) -> Vec<usize> {
        let numbered = self.branches.iter().enumerate();
        numbered.filter(|(_, branch)| branch.state == state).map(|(number, _)| number).collect()
    }

    fn ask(&mut self, number: usize, verb: Verb) {
        let branch = self.branches.get_mut(number).expect("the machine numbers its own branches");
        branch.state = State::Asked(verb);
        self.call(match verb {
            Verb::Prepare => Call::Prepare(number),
            Verb::OnePhase => Call::CommitOnePhase(number),
            Verb::CommitLast => Call::CommitLast(number),
            Verb::Commit => Call::Commit(number),
            Verb::Rollback => Call::Rollback(number),
            Verb::Forget(_) => Call::Forget(number),
        });
    }

    fn call_coordinator(&mut self, call: Call) {
        self.coordinator_asked = true;
        self.call(call);
    }

    fn call(&mut self, call: Call) {
        self.calls.push(call);
        self.awaited += 1;
    }

    fn judge(&self) -> TwoPhaseOutcome {
        let one_phase = self.decided.is_none();
        let committed = self.decided == Some(TwoPhaseDecision::Committed);
        if self.decided == Some(TwoPhaseDecision::Unknown) || (self.doubt == Doubt::Open && !committed) {
            return TwoPhaseOutcome::Unknown;
        }
        let mut deeds: Vec<Heuristic> = Vec::with_capacity(self.branches.len() + 1);
        if self.other != OtherWork::Nothing {
            deeds.push(if committed { Heuristic::Commit } else { Heuristic::Rollback });
        }
        deeds.extend(self.branches.iter().filter_map(|branch| match branch.state {
            State::Ended(BranchEnd::Committed) => Some(Heuristic::Commit),
            State::Ended(BranchEnd::RolledBack) => Some(Heuristic::Rollback),
            State::Ended(BranchEnd::Heuristic(deed)) => Some(deed),
            State::Ended(BranchEnd::Pending) => Some(if committed { Heuristic::Commit } else { Heuristic::Rollback }),
            _ => None,
        }));
        let has = |deed| deeds.contains(&deed);
        match (has(Heuristic::Commit), has(Heuristic::Rollback)) {
            _ if has(Heuristic::Mixed) => TwoPhaseOutcome::Mixed,
            (true, true) => TwoPhaseOutcome::Mixed,
            _ if has(Heuristic::Hazard) => TwoPhaseOutcome::Hazard,
            (true, false) => TwoPhaseOutcome::Committed,
            (false, true) => TwoPhaseOutcome::RolledBack,
            (false, false) if committed || one_phase => TwoPhaseOutcome::Committed,
            (false, false) => TwoPhaseOutcome::RolledBack,
        }
    }
}

#[cfg(test)]
#[path = "two_phase_tests.rs"]
mod tests;
