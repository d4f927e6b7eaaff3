//! Drives the machine of two-phase commit: makes the calls it names, and tells it the answers.
//!
//! Calls that are given out together run in parallel where resource managers can: all asynchronous ones are begun, then the
//! others are made one after the other, then the answers are collected.
//!
//! May use: `own`, `resource`, `tm`. Must not know: threads, TX codes.

use std::ffi::{c_int, c_long};
use std::time::{Duration, Instant};

use holdfast::Durability;
use tm::{
    BranchEnd, BranchName, Call, Decisions, Deed, ErrorKind, Learned, OtherWork, Outcome, TransactionId, TwoPhase,
    TwoPhaseDecision, XaCode, decide_abort, note_done,
};

use crate::abi::{TMASYNC, TMNOFLAGS, TMONEPHASE, XA_RETRY, XAER_ASYNC, XidData};
use crate::last_error;
use crate::own::OwnWork;
use crate::resource::{Collected, Resource, Verb, code};

/// How often a commit that cannot be made now is tried before it is left to recovery.
const COMMIT_ATTEMPTS: usize = 3;

/// How long a last resource that went away in the middle of its commit is asked for it, as programs in Rust do.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);
/// Between two questions: at first and at most.
const ASK_PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// What a transaction is driven with.
pub(crate) struct Means<'a> {
    pub(crate) decisions: &'a dyn Decisions,
    pub(crate) durability: Option<Durability>,
    /// The resources that take part; the machine's numbers are places in it.
    pub(crate) resources: &'a [&'a dyn Resource],
}

/// When to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// When all have committed.
    Completed,
    /// When it is decided, and everybody who commits by itself has begun to.
    Decided,
}

/// A transaction on its way to its end.
#[derive(Debug)]
pub(crate) struct Drive {
    id: TransactionId,
    machine: TwoPhase,
    /// Answers to collect, with their handles.
    under_way: Vec<(BranchCall, c_int)>,
    decided: bool,
    /// Whether it came back early, and is driven on by a later call of the program.
    collected: Collected,
    /// Whether resource managers may forget what they did by themselves.
    may_forget: bool,
    /// What commits in the batch of the decision.
    own: Option<OwnWork>,
}

impl Drive {
    pub(crate) fn commit(id: TransactionId, resources: &[&dyn Resource], other: OtherWork) -> Self {
        let orders: Vec<u32> = resources.iter().map(|resource| resource.order()).collect();
        let last = resources.iter().position(|resource| resource.is_last());
        let may_decide = id.last_resource.is_some() && other == OtherWork::Nothing;
        Self::of(
            id,
            match last.filter(|_| may_decide) {
                Some(last) => TwoPhase::commit_with_last(&orders, last),
                None => TwoPhase::commit(&orders, other),
            },
        )
    }

    pub(crate) fn rollback(id: TransactionId, resources: &[&dyn Resource], other: OtherWork) -> Self {
        Self::of(id, TwoPhase::rollback(resources.len(), other))
    }

    fn of(id: TransactionId, machine: TwoPhase) -> Self {
        let (under_way, collected) = (Vec::new(), Collected::AtOnce);
        Self { id, machine, under_way, decided: false, collected, may_forget: true, own: None }
    }

    /// With work of the coordinator's own store, which is what [`OtherWork::Local`] stands for.
    pub(crate) fn with_own(self, own: Option<OwnWork>) -> Self {
        Self { own, ..self }
    }

    /// Goes on; `None` when it came back early, and has to be driven on later.
    pub(crate) fn run(&mut self, means: &Means<'_>, until: Until) -> Option<Outcome> {
        loop {
            let (mut own, mut waiting) = (Vec::new(), Vec::new());
            for call in self.machine.next_calls() {
                if let (&Call::Forget(number), false) = (&call, self.may_forget) {
                    // Recovery finds what it did by itself, and has it recorded.
                    self.machine.answer(number, XaCode::Retry);
                    continue;
                }
                match BranchCall::of(&call) {
                    Some(call) if call.may_wait && resource(means, call.number).is_asynchronous() => waiting.push(call),
                    Some(call) => own.push(call),
                    None => self.ask(means, call),
                }
            }
            for call in waiting {
                own.extend(self.begin(means, call));
            }
            for call in &own {
                let answer = self.make(means, call);
                self.hear(means, call, answer);
            }
            if let Some(outcome) = self.machine.outcome() {
                return Some(outcome);
            }
            let can_leave = self.decided && !self.under_way.is_empty() && self.machine.is_last_group();
            if until == Until::Decided && can_leave {
                self.collected = Collected::Late;
                return None;
            }
            for (call, handle) in std::mem::take(&mut self.under_way) {
                last_error::clear();
                let mut answer = resource(means, call.number).complete(handle, self.collected);
                if answer == XA_RETRY {
                    answer = self.make(means, &call);
                }
                self.hear(means, &call, answer);
            }
            if let Some(outcome) = self.machine.outcome() {
                return Some(outcome);
            }
        }
    }

    /// Whether a branch is left to recovery.
    pub(crate) fn is_pending(&self) -> bool {
        self.machine.is_pending()
    }

    /// Begins a call and does not wait. Gives it back when it has to be made the ordinary way.
    fn begin(&mut self, means: &Means<'_>, call: BranchCall) -> Option<BranchCall> {
        let xid = self.xid(means, call.number);
        last_error::clear();
        match resource(means, call.number).call(call.verb, &xid, call.flags | TMASYNC) {
            XAER_ASYNC => return Some(call),
            handle if handle > 0 => self.under_way.push((call, handle)),
            answer => self.hear(means, &call, answer),
        }
        None
    }

    /// Tells the machine an answer, and notes one that is why the transaction does not end as the program wants.
    fn hear(&mut self, means: &Means<'_>, call: &BranchCall, answer: c_int) {
        let answer = code(answer);
        let is_single = call.flags == TMONEPHASE;
        let (verb, is_why) = match call.verb {
            Verb::Prepare => ("xa_prepare", ![XaCode::Ok, XaCode::ReadOnly].contains(&answer)),
            Verb::Commit if is_single => ("xa_commit", ![XaCode::Ok, XaCode::ReadOnly].contains(&answer)),
            Verb::Commit => ("xa_commit", answer.after_commit().end.heuristic().is_some()),
            // One that cannot be told is told by recovery, and does not hide why it is rolled back.
            Verb::Rollback => ("xa_rollback", answer.after_rollback().end.heuristic().is_some()),
            _ => ("", false),
        };
        if is_why {
            let branch = resource(means, call.number).branch();
            last_error::set_with_reason(&format!("{verb} of `{branch}` answered {answer}"));
        }
        self.machine.answer(call.number, answer);
    }

    fn make(&self, means: &Means<'_>, call: &BranchCall) -> c_int {
        let xid = self.xid(means, call.number);
        last_error::clear();
        let attempt = || resource(means, call.number).call(call.verb, &xid, call.flags);
        let mut answer = attempt();
        for _ in 1..COMMIT_ATTEMPTS {
            if answer != XA_RETRY {
                break;
            }
            answer = attempt();
        }
        answer
    }

    /// Makes a call to whoever decides.
    fn ask(&mut self, means: &Means<'_>, call: Call) {
        match call {
            Call::CommitLast(number) => self.commit_last(means, number),
            Call::AskLast(number) => {
                let decision = self.ask_last(resource(means, number));
                self.decided = decision == TwoPhaseDecision::Committed;
                self.machine.decide(decision);
            }
            Call::LetGo => {
                if let Some(last) = means.resources.iter().find(|resource| resource.is_last()) {
                    last.let_go(self.id);
                }
            }
            Call::Decide(numbers) => {
                let branches: Vec<_> = numbers.iter().map(|number| resource(means, *number).branch().clone()).collect();
                // A copy: what it is of is let go of then.
                let durability = self.id.last_resource.map_or(means.durability, |_| Some(Durability::Synced));
                let asked = match self.own.take() {
                    Some(own) => own.commit(self.id, &branches),
                    None => means.decisions.commit(self.id, &branches, durability),
                };
                let did = |number: &usize| self.machine.end_of(*number).and_then(BranchEnd::heuristic).is_some();
                match &asked {
                    Ok(()) => {}
                    // What it did by itself is why the transaction does not end well, and stays what the program is told.
                    Err(error) if numbers.iter().any(did) => {
                        tracing::warn!(id = %self.id, %error, "what was done by itself does not stand with a decision");
                    }
                    Err(error) => {
                        last_error::set(format!("the coordinator does not say that it is committed: {error}"))
                    }
                }
                let decision = match asked {
                    Ok(()) => TwoPhaseDecision::Committed,
                    Err(error) if error.kind == ErrorKind::Unknown => TwoPhaseDecision::Unknown,
                    // It refused, or nothing happened there: without a decision the transaction is aborted.
                    Err(_) => TwoPhaseDecision::Aborted,
                };
                self.decided = decision == TwoPhaseDecision::Committed;
                self.machine.decide(decision);
            }
            Call::Abort => {
                // Neither is certain as long as the coordinator cannot say: recovery will.
                let decision = decide_abort(means.decisions, self.id).unwrap_or(TwoPhaseDecision::Unknown);
                self.machine.decide(decision);
            }
            Call::Done(ends) => {
                let done = ends.into_iter().map(|(number, end)| Learned {
                    branch: resource(means, number).branch().clone(),
                    heuristic: end.heuristic(),
                });
                self.may_forget = note_done(means.decisions, self.id, &done.collect::<Vec<_>>());
            }
            Call::Deeds(deeds) => {
                let deed = |(number, did)| Deed { branch: resource(means, number).branch().clone(), did };
                let deeds: Vec<Deed> = deeds.into_iter().map(deed).collect();
                let recorded = means.decisions.record_deeds(self.id, &deeds);
                if let Err(error) = &recorded {
                    tracing::warn!(id = %self.id, %error, "what was done against the rollback is not recorded yet");
                }
                self.may_forget = recorded.is_ok();
            }
            _ => panic!("calls of branches are made elsewhere"),
        }
    }

    fn commit_last(&mut self, means: &Means<'_>, number: usize) {
        let numbered = means.resources.iter().enumerate().filter(|(other, _)| *other != number);
        let others: Vec<BranchName> = numbered.map(|(_, resource)| resource.branch().clone()).collect();
        let last = resource(means, number);
        last_error::clear();
        let answer = code(last.commit_last(&self.xid(means, number), &others));
        if answer != XaCode::Ok {
            last_error::set_with_reason(&format!(
                "the commit of `{}`, the last resource, answered {answer}",
                last.branch()
            ));
        }
        self.decided = answer == XaCode::Ok;
        self.machine.answer(number, answer);
    }

    /// Asks a last resource whose answer to the commit was lost what became of that, until it answers or is out of reach for long.
    fn ask_last(&self, last: &dyn Resource) -> TwoPhaseDecision {
        let Some(id) = self.id.last_resource else { return TwoPhaseDecision::Unknown };
        let began = Instant::now();
        let [mut pause, longest] = ASK_PAUSE;
        loop {
            match last
                .settle(id, &[self.id])
                .map(|settled| settled.as_deref().and_then(|settled| settled.first().copied()))
            {
                Ok(Some(true)) => return TwoPhaseDecision::Committed,
                Ok(Some(false)) => return TwoPhaseDecision::Aborted,
                Ok(None) => last_error::set(format!("`{}` has no table of decisions any more", last.branch())),
                Err(why) => last_error::set(format!("the last resource does not say whether it committed: {why}")),
            }
            if began.elapsed() >= ASK_TIME_MAX {
                return TwoPhaseDecision::Unknown;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }

    fn xid(&self, means: &Means<'_>, number: usize) -> XidData {
        XidData::of_branch(self.id, resource(means, number).branch())
    }
}

/// A call to a branch's resource manager.
#[derive(Debug)]
struct BranchCall {
    number: usize,
    verb: Verb,
    flags: c_long,
    /// Whether its answer may come later.
    may_wait: bool,
}

impl BranchCall {
    fn of(call: &Call) -> Option<Self> {
        let (number, verb, flags) = match *call {
            Call::Prepare(number) => (number, Verb::Prepare, TMNOFLAGS),
            Call::CommitOnePhase(number) => (number, Verb::Commit, TMONEPHASE),
            Call::Commit(number) => (number, Verb::Commit, TMNOFLAGS),
            Call::Rollback(number) => (number, Verb::Rollback, TMNOFLAGS),
            Call::Forget(number) => (number, Verb::Forget, TMNOFLAGS),
            _ => return None,
        };
        // One call alone gains nothing by not waiting.
        Some(Self { number, verb, flags, may_wait: verb != Verb::Forget && flags == TMNOFLAGS })
    }
}

fn resource<'a>(means: &Means<'a>, number: usize) -> &'a dyn Resource {
    *means.resources.get(number).expect("the machine numbers the resources it was made with")
}
