//! Runs the two-phase driver over branches and a coordinator: makes the calls it names, side by side, and tells it the
//! answers.
//!
//! May use: `branch`, `decisions`, tokio, futures. Must not know: resource managers, where the coordinator is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use xa::{
    BranchEnd, BranchName, Call, Deed, Learned, TransactionId, TwoPhase, TwoPhaseDecision, TwoPhaseOutcome, XaCode,
};

use crate::branch::{Answer, BoxFuture, Branch};
use crate::decisions::{Decisions, Error, ErrorKind, Result, decide_abort, note_done};
use crate::last_resource::LastResource;

/// A branch in the hands of a transaction.
pub(crate) struct Enlisted {
    pub(crate) name: BranchName,
    pub(crate) order: u32,
    /// Whether it is the last resource's.
    pub(crate) is_last: bool,
    pub(crate) branch: Box<dyn Branch>,
}

/// How to decide: usually by asking the coordinator, with local changes by committing them together.
pub(crate) enum Decide {
    /// By a call that may wait for a sync.
    Call(CallToDecide),
    /// By waiting long for somebody else.
    Wait(WaitForDecision),
}

type CallToDecide = Box<dyn FnOnce(&[BranchName]) -> Result<()> + Send>;
pub(crate) type WaitForDecision = Box<dyn FnOnce(Vec<BranchName>) -> BoxFuture<'static, Result<()>> + Send>;

impl Decide {
    pub(crate) fn call(call: impl FnOnce(&[BranchName]) -> Result<()> + Send + 'static) -> Self {
        Self::Call(Box::new(call))
    }
}

/// How long a last resource that went away in the middle of its commit is asked for it: a database is back some seconds after it
/// crashed, and who waits longer is better off with an answer.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);
/// Between two questions: at first and at most.
const ASK_PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// Where a call that may wait for a sync is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Here: it does not.
    Here,
    /// On a thread that may wait.
    Aside,
}

/// What became of it all.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: TwoPhaseOutcome,
    pub(crate) reasons: Vec<String>,
    pub(crate) pending: Vec<BranchName>,
}

/// The two sides of a transaction.
pub(crate) struct Drive {
    pub(crate) decisions: Arc<dyn Decisions>,
    pub(crate) waiting: Waiting,
    pub(crate) id: TransactionId,
    pub(crate) decide: Decide,
    pub(crate) last: Option<Arc<dyn LastResource>>,
}

enum Event {
    Branch(usize, Box<dyn Branch>, Answer),
    Decided(Result<()>),
    Aborted(Result<TwoPhaseDecision>),
}

impl Drive {
    /// Drives `machine`, whose branches are `enlisted`, to its end.
    pub(crate) async fn run(self, mut machine: TwoPhase, enlisted: Vec<Enlisted>) -> Ended {
        let Self { decisions, waiting, id, decide, last } = self;
        let mut decide = Some(decide);
        let mut reasons = Vec::new();
        let mut may_forget = true;
        let names: Vec<BranchName> = enlisted.iter().map(|enlisted| enlisted.name.clone()).collect();
        let mut branches: Vec<_> = enlisted.into_iter().map(|enlisted| Some(enlisted.branch)).collect();
        let name = |number: usize| names.get(number).expect("the machine numbers our list");
        let mut under_way: FuturesUnordered<BoxFuture<'static, Event>> = FuturesUnordered::new();
        let mut calls = machine.next_calls();
        while !calls.is_empty() || !under_way.is_empty() {
            for call in calls {
                let (number, verb) = match call {
                    Call::Prepare(number) => (number, Verb::Prepare),
                    Call::CommitOnePhase(number) => (number, Verb::OnePhase),
                    Call::CommitLast(number) => {
                        let (at, others) = (number, names.iter().enumerate());
                        let others = others.filter(|(number, _)| *number != at).map(|(_, name)| name.clone());
                        (number, Verb::CommitLast(others.collect()))
                    }
                    Call::AskLast(_) => {
                        let last = Arc::clone(last.as_ref().expect("who has its branch has it"));
                        under_way.push(Box::pin(async move { Event::Decided(asked(&*last, id).await) }));
                        continue;
                    }
                    Call::LetGo => {
                        last.as_ref().expect("who has its branch has it").let_go(id);
                        continue;
                    }
                    Call::Commit(number) => (number, Verb::Commit),
                    Call::Rollback(number) => (number, Verb::Rollback),
                    Call::Decide(prepared) => {
                        let prepared: Vec<_> = prepared.into_iter().map(|number| name(number).clone()).collect();
                        under_way.push(match decide.take().expect("a decision is asked for once") {
                            Decide::Call(call) => aside(waiting, move || Event::Decided(call(&prepared))),
                            Decide::Wait(wait) => {
                                let decided = wait(prepared);
                                Box::pin(async move { Event::Decided(decided.await) })
                            }
                        });
                        continue;
                    }
                    Call::Abort => {
                        let decisions = Arc::clone(&decisions);
                        under_way.push(aside(Waiting::Aside, move || Event::Aborted(decide_abort(&*decisions, id))));
                        continue;
                    }
                    Call::Done(ends) => {
                        let done = |(number, end): (usize, BranchEnd)| Learned {
                            branch: name(number).clone(),
                            heuristic: end.heuristic(),
                        };
                        let done: Vec<_> = ends.into_iter().map(done).collect();
                        may_forget = noted(&decisions, id, done).await;
                        continue;
                    }
                    Call::Deeds(deeds) => {
                        let deeds = deeds.into_iter().map(|(number, did)| Deed { branch: name(number).clone(), did });
                        may_forget = recorded(&decisions, id, deeds.collect(), &mut reasons).await;
                        continue;
                    }
                    // Recovery finds what it did by itself, and has it recorded.
                    Call::Forget(number) if !may_forget => {
                        machine.answer(number, XaCode::Retry);
                        continue;
                    }
                    Call::Forget(number) => (number, Verb::Forget),
                };
                let branch = branches.get_mut(number).and_then(Option::take).expect("one call of a branch at a time");
                under_way.push(Box::pin(call_branch(number, branch, verb)));
            }
            match under_way.next().await {
                // What was answered here has brought further calls, or it is over.
                None => {}
                Some(Event::Branch(number, branch, answer)) => {
                    if !matches!(answer.code, XaCode::Ok | XaCode::ReadOnly) {
                        reasons
                            .push(format!("{}: {} {}", name(number), answer.code, answer.reason).trim_end().to_owned());
                    }
                    if let Some(place) = branches.get_mut(number) {
                        *place = Some(branch);
                    }
                    machine.answer(number, answer.code);
                }
                Some(Event::Decided(result)) => machine.decide(decision_of(result, &mut reasons)),
                Some(Event::Aborted(result)) => machine.decide(result.unwrap_or_else(|error| {
                    reasons.push(error.text);
                    TwoPhaseDecision::Unknown
                })),
            }
            calls = machine.next_calls();
        }
        let outcome = machine.outcome().expect("nothing is under way and nothing left to call");
        let is_pending = |number: &usize| machine.end_of(*number) == Some(BranchEnd::Pending);
        let pending = (0..names.len()).filter(is_pending).map(|number| name(number).clone()).collect();
        Ended { outcome, reasons, pending }
    }
}

/// Notes what branches learned, and waits if it is of what resource managers did by themselves.
async fn noted(decisions: &Arc<dyn Decisions>, id: TransactionId, done: Vec<Learned>) -> bool {
    if done.iter().all(|done| done.heuristic.is_none()) {
        return note_done(&**decisions, id, &done);
    }
    let decisions = Arc::clone(decisions);
    tokio::task::spawn_blocking(move || note_done(&*decisions, id, &done)).await.unwrap_or(false)
}

/// Has it recorded what resource managers did by themselves with branches that were rolled back. Whether it is.
async fn recorded(
    decisions: &Arc<dyn Decisions>,
    id: TransactionId,
    deeds: Vec<Deed>,
    reasons: &mut Vec<String>,
) -> bool {
    let decisions = Arc::clone(decisions);
    match tokio::task::spawn_blocking(move || decisions.record_deeds(id, &deeds)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            reasons.push(format!("what a resource manager did by itself is not recorded yet: {error}"));
            false
        }
        Err(_) => false,
    }
}

fn decision_of(result: Result<()>, reasons: &mut Vec<String>) -> TwoPhaseDecision {
    let Err(Error { kind, text }) = result else { return TwoPhaseDecision::Committed };
    reasons.push(text);
    match kind {
        ErrorKind::Unknown => TwoPhaseDecision::Unknown,
        // Refused, or nothing happened.
        _ => TwoPhaseDecision::Aborted,
    }
}

/// Asks a last resource whose answer to the commit was lost what became of that, until it answers or is out of reach for long.
async fn asked(last: &dyn LastResource, id: TransactionId) -> Result<()> {
    let unknown = |text| Error { kind: ErrorKind::Unknown, text };
    let [mut pause, longest] = ASK_PAUSE;
    let mut reason = "the last resource does not say whether it committed".to_owned();
    let asking = async {
        loop {
            match last.settle(&[id]).await.as_deref() {
                Ok([true]) => return Ok(()),
                Ok(_) => {
                    let text = "the last resource rolled back".to_owned();
                    return Err(Error { kind: ErrorKind::Aborted, text });
                }
                Err(why) => reason = format!("the last resource does not say whether it committed: {why}"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    };
    let answered = tokio::time::timeout(ASK_TIME_MAX, asking).await;
    answered.unwrap_or_else(|_| Err(unknown(reason)))
}

#[derive(Clone)]
enum Verb {
    Prepare,
    OnePhase,
    CommitLast(Vec<BranchName>),
    Commit,
    Rollback,
    Forget,
}

async fn call_branch(number: usize, mut branch: Box<dyn Branch>, verb: Verb) -> Event {
    let answer = match verb {
        Verb::Prepare => branch.prepare().await,
        Verb::OnePhase => branch.commit_one_phase().await,
        Verb::CommitLast(others) => branch.commit_last(&others).await,
        Verb::Commit => branch.commit().await,
        Verb::Rollback => branch.rollback().await,
        Verb::Forget => branch.forget().await,
    };
    Event::Branch(number, branch, answer)
}

fn aside(waiting: Waiting, call: impl FnOnce() -> Event + Send + 'static) -> BoxFuture<'static, Event> {
    match waiting {
        Waiting::Here => Box::pin(async move { call() }),
        Waiting::Aside => Box::pin(async move {
            match tokio::task::spawn_blocking(call).await {
                Ok(event) => event,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }),
    }
}
