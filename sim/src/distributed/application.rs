//! A program of the simulation: it becomes an owner, has transactions over some resource managers, joins those of others.
//!
//! Which calls come next is said by the driver of two-phase commit that `tm` and the C library use; here they are sent, and
//! their answers told to it.
//!
//! May use: `wire`, `xa`. Must not know: what breaks when, what is right.

use base::Time;
use holdfast::{BranchName, Deed, Forgetting, Learned, OwnerId, TransactionId, Verdict, Vote};
use std::time::Duration;
use xa::{Call, LastResourceId, OtherWork, TwoPhase, TwoPhaseDecision, TwoPhaseOutcome, XaCode, Xid};

use crate::distributed::points::{Moment, Step};
use crate::distributed::recovery::Recovery;
use crate::distributed::said;
use crate::distributed::wire::{Callee, Message, Process, Purpose, Reply, Request};
use crate::distributed::world::World;

/// How long a shared transaction waits for its others.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often an owner shows that it lives: a third of the shortest lease.
const RENEWAL: Duration = Duration::from_millis(330);

/// The program.
#[derive(Debug)]
pub(crate) struct Application {
    /// Which run of it this is; `None` while it is down.
    pub(crate) run: Option<u64>,
    pub(crate) owner: Option<OwnerId>,
    sequence: u64,
    renewed: Time,
    /// It has no library: the server makes its ids, and watches its connection instead of a lease.
    pub(crate) asks_for_ids: bool,
    /// Its connection to each resource manager.
    pub(crate) sessions: Vec<u64>,
    pub(crate) doing: Doing,
    pub(crate) recovery: Recovery,
    /// Transactions that have to be rolled back, which the coordinator could not be told.
    pub(crate) owed: Vec<TransactionId>,
    /// Transactions that it suspended.
    pub(crate) handed_on: Vec<TransactionId>,
}

/// What it is about.
#[derive(Debug)]
pub(crate) enum Doing {
    Resting,
    /// For an answer that comes before any work.
    Waiting,
    Enlisting(Part),
    Starting(Part),
    Working(Part),
    Suspending(Part),
    Ending(Part),
    Completing(Part, TwoPhase),
}

/// Its part of a transaction.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) id: TransactionId,
    /// Which part of it.
    pub(crate) number: usize,
    /// Another program decides.
    pub(crate) is_joined: bool,
    /// The same, because this one suspended it.
    pub(crate) is_suspended: bool,
    pub(crate) branches: Vec<Branch>,
    /// Answers that are waited for.
    awaited: usize,
    pub(crate) has_failed: bool,
    wants_commit: bool,
    local: bool,
    /// Votes that are to be sent.
    votes: Vec<(BranchName, Vote)>,
    /// Whether the decision of another program is asked for.
    is_polling: bool,
    until: Time,
    /// Calls that wait until something is recorded, and the outcome if it is known already.
    held: Option<(Vec<Call>, Option<TwoPhaseOutcome>)>,
}

impl Part {
    /// The branch of its last resource.
    fn last(&self) -> Option<usize> {
        let last = self.id.last_resource?;
        self.branches.iter().position(|branch| branch.manager as u64 == last.0)
    }
}

#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) manager: usize,
    pub(crate) xid: Xid,
}

impl Application {
    pub(crate) fn new(recovery: Recovery, asks_for_ids: bool) -> Self {
        Self {
            run: None,
            owner: None,
            sequence: 0,
            renewed: Time::default(),
            asks_for_ids,
            sessions: Vec::new(),
            doing: Doing::Resting,
            recovery,
            owed: Vec::new(),
            handed_on: Vec::new(),
        }
    }

    /// A transaction of its own that others may join now.
    pub(crate) fn invites(&self) -> Option<TransactionId> {
        match &self.doing {
            Doing::Working(part) if part.id.shared && !part.is_joined => Some(part.id),
            _ => None,
        }
    }
}

impl World {
    /// A program does what comes next, if that is its own to do.
    pub(crate) fn move_application(&mut self, at: usize) {
        if self.applications[at].run.is_none() {
            return;
        }
        let is_done = self.is_calm || self.random.chance(1, 2);
        match &self.applications[at].doing {
            Doing::Resting if self.is_calm => {}
            Doing::Resting => self.begin_something(at),
            Doing::Working(_) if is_done => self.end_work(at),
            Doing::Completing(part, _) if part.is_polling => self.poll(at),
            _ => {}
        }
    }

    fn begin_something(&mut self, at: usize) {
        let me = Process::Application(at);
        let Some(owner) = self.applications[at].owner else {
            self.applications[at].doing = Doing::Waiting;
            self.send(me, Callee::Server, Request::Open, Purpose::Opening);
            return;
        };
        let invitation = self.applications.iter().find_map(Application::invites);
        if let Some(id) = invitation.filter(|_| self.random.chance(1, 2)) {
            return self.join(at, id);
        }
        if self.random.chance(3, 4)
            && let Some(id) = self.any_handed_on()
        {
            return self.resume(at, id);
        }
        if self.random.chance(1, 12) && !self.style.embedded {
            self.applications[at].doing = Doing::Waiting;
            self.send(me, Callee::Server, Request::Close(owner), Purpose::Closing);
            return;
        }
        let shared = !self.style.embedded && self.random.chance(1, 2);
        if self.style.embedded || self.applications[at].asks_for_ids {
            self.applications[at].doing = Doing::Waiting;
            self.send(me, Callee::Server, Request::Begin { owner, shared }, Purpose::Beginning { shared });
            return;
        }
        if !self.pass(me, Step::Begin, Moment::Before) {
            return;
        }
        self.applications[at].sequence += 1;
        let (sequence, deadline_ms) = (self.applications[at].sequence, self.deadline_ms(shared));
        let id =
            TransactionId { coordinator: self.coordinator, owner, sequence, deadline_ms, shared, last_resource: None };
        if self.pass(me, Step::Begin, Moment::After) {
            self.start(at, id);
        }
    }

    pub(crate) fn part(&mut self, at: usize, id: TransactionId, is_joined: bool) -> Part {
        let count = self.managers.len() as u64;
        let first = self.random.below(count);
        // One branch is committed in one phase, which is to be rare.
        let branches = if self.random.chance(1, 6) { 1 } else { 2 + self.random.below(count - 1) };
        let branch = |number: u64| {
            let manager = usize::try_from((first + number) % count).unwrap_or(0);
            let name = if is_joined { format!("joined-{at}-{manager}") } else { format!("manager-{manager}") };
            let branch = BranchName::new(&name).expect("these are names");
            Branch { manager, xid: Xid { transaction: id, branch } }
        };
        let branches: Vec<Branch> = (0..branches).map(branch).collect();
        let local = self.style.embedded && self.random.chance(1, 2);
        let said = said::Part {
            has_local: local,
            branches: branches.iter().map(|branch| (branch.manager, branch.xid.clone())).collect(),
            told: None,
        };
        let number = self.said.begun(id, said);
        let (until, votes) = (self.now().after(PATIENCE), Vec::new());
        Part {
            id,
            number,
            is_joined,
            is_suspended: false,
            branches,
            awaited: 0,
            has_failed: false,
            wants_commit: self.random.chance(9, 10),
            local,
            votes,
            is_polling: false,
            until,
            held: None,
        }
    }

    fn start(&mut self, at: usize, mut id: TransactionId) {
        self.trace("begin", id.sequence);
        if !id.shared && self.random.chance(1, 3) {
            id.last_resource = Some(LastResourceId(self.random.below(self.managers.len() as u64)));
        }
        let part = self.part(at, id, false);
        self.start_branches(at, part);
    }

    fn join(&mut self, at: usize, id: TransactionId) {
        self.trace("join", id.sequence);
        let part = self.part(at, id, true);
        let names = part.branches.iter().map(|branch| branch.xid.branch.clone()).collect();
        self.applications[at].doing = Doing::Enlisting(part);
        self.send(Process::Application(at), Callee::Server, Request::Enlist(id, names), Purpose::Joining);
    }

    pub(crate) fn start_branches(&mut self, at: usize, mut part: Part) {
        part.awaited = part.branches.len();
        let starts: Vec<_> = part.branches.iter().map(|branch| (branch.manager, branch.xid.clone())).collect();
        self.applications[at].doing = Doing::Starting(part);
        for (manager, xid) in starts {
            let sent =
                self.send(Process::Application(at), Callee::Manager(manager), Request::Start(xid), Purpose::Starting);
            if !sent {
                return;
            }
        }
    }

    pub(crate) fn take(&mut self, at: usize) -> Doing {
        std::mem::replace(&mut self.applications[at].doing, Doing::Resting)
    }

    fn end_work(&mut self, at: usize) {
        let Doing::Working(mut part) = self.take(at) else { return };
        part.awaited = part.branches.len();
        let ends: Vec<_> = part.branches.iter().map(|branch| (branch.manager, branch.xid.clone())).collect();
        self.applications[at].doing = Doing::Ending(part);
        for (manager, xid) in ends {
            if !self.send(Process::Application(at), Callee::Manager(manager), Request::End(xid), Purpose::Ending) {
                return;
            }
        }
    }

    /// An answer came, to the run of the program that asked.
    pub(crate) fn application_heard(&mut self, at: usize, message: Message, reply: Reply) {
        let now = self.now();
        match (message.purpose, reply) {
            (Purpose::Renewing, Reply::Decision(_)) => self.applications[at].owner = None,
            (Purpose::Nothing, Reply::Decision(_)) => {
                if let Request::Abort(id) = message.request {
                    self.applications[at].owed.retain(|owed| *owed != id);
                }
            }
            (Purpose::Nothing | Purpose::Renewing, _) => {}
            (Purpose::Opening, reply) => {
                self.applications[at].doing = Doing::Resting;
                if let Reply::Owner(owner) = reply {
                    let application = &mut self.applications[at];
                    (application.owner, application.sequence) = (Some(owner), 0);
                    application.renewed = now;
                }
            }
            (Purpose::Closing, _) => {
                self.applications[at].doing = Doing::Resting;
                self.applications[at].owner = None;
            }
            (Purpose::Beginning { .. }, Reply::Id(id)) => self.start(at, id),
            (Purpose::Beginning { .. }, _) => self.applications[at].doing = Doing::Resting,
            (Purpose::Joining, reply) => {
                if let (Doing::Enlisting(part), Reply::Taken) = (self.take(at), reply) {
                    self.start_branches(at, part);
                }
            }
            (Purpose::Suspending, reply) => self.is_suspended(at, &reply),
            (Purpose::Resuming, reply) => self.is_resumed(at, message.request, &reply),
            (Purpose::Starting, reply) => {
                let Doing::Starting(mut part) = self.take(at) else { return };
                part.awaited -= 1;
                part.has_failed |= reply != Reply::Code(XaCode::Ok);
                match (part.awaited, part.has_failed) {
                    (0, true) => self.complete(at, part),
                    (0, false) => self.applications[at].doing = Doing::Working(part),
                    _ => self.applications[at].doing = Doing::Starting(part),
                }
            }
            (Purpose::Ending, reply) => {
                let Doing::Ending(mut part) = self.take(at) else { return };
                part.awaited -= 1;
                part.has_failed |= reply != Reply::Code(XaCode::Ok);
                let suspends = !part.is_joined && part.id.shared && part.wants_commit && !part.has_failed;
                match part.awaited {
                    0 if suspends && !self.is_calm && self.random.chance(2, 3) => self.suspend(at, part),
                    0 => self.complete(at, part),
                    _ => self.applications[at].doing = Doing::Ending(part),
                }
            }
            (purpose, reply) => self.driver_heard(at, &purpose, reply),
        }
    }

    pub(crate) fn complete(&mut self, at: usize, part: Part) {
        let orders: Vec<u32> = part.branches.iter().map(|branch| u32::from(branch.manager % 2 == 1)).collect();
        let other = match (part.is_joined, part.id.shared, part.local) {
            (false, true, _) => OtherWork::Shared,
            (_, _, true) => OtherWork::Local,
            _ => OtherWork::Nothing,
        };
        let commits = part.wants_commit && !part.has_failed;
        let machine = match (commits, part.is_joined) {
            (true, true) => TwoPhase::commit(&orders, OtherWork::Elsewhere),
            // It may have no branch, and where the store takes part that decides.
            (true, false) => match part.last().filter(|_| other == OtherWork::Nothing) {
                Some(last) => TwoPhase::commit_with_last(&orders, last),
                None => TwoPhase::commit(&orders, other),
            },
            (false, _) => TwoPhase::rollback(orders.len(), other),
        };
        self.applications[at].doing = Doing::Completing(part, machine);
        self.make_calls(at);
    }

    /// Sends what the driver says is next, and ends the transaction when there is nothing more.
    fn make_calls(&mut self, at: usize) {
        let Doing::Completing(_, machine) = &mut self.applications[at].doing else { return };
        let calls = machine.next_calls();
        let outcome = machine.outcome();
        let mut calls = calls.into_iter();
        while let Some(call) = calls.next() {
            let waits = match &call {
                Call::Done(ends) => ends.iter().any(|(_, end)| end.heuristic().is_some()),
                Call::Deeds(_) => true,
                _ => false,
            };
            if !self.call(at, call) {
                return;
            }
            if waits {
                return self.hold(at, calls.collect(), outcome);
            }
        }
        if let Some(outcome) = outcome {
            self.is_over(at, outcome);
        }
    }

    /// What follows when all is recorded.
    fn hold(&mut self, at: usize, calls: Vec<Call>, outcome: Option<TwoPhaseOutcome>) {
        if let Doing::Completing(part, _) = &mut self.applications[at].doing {
            part.held = Some((calls, outcome));
        }
    }

    /// Resource managers forget what they did by themselves, if that is recorded; else recovery finds it again.
    fn recorded(&mut self, at: usize, reply: &Reply) {
        let Doing::Completing(part, _) = &mut self.applications[at].doing else { return };
        let Some((calls, outcome)) = part.held.take() else { return };
        for call in calls {
            match (call, &mut self.applications[at].doing) {
                (Call::Forget(number), Doing::Completing(_, machine)) if *reply != Reply::Taken => {
                    machine.answer(number, XaCode::Retry);
                }
                (call, _) => {
                    if !self.call(at, call) {
                        return;
                    }
                }
            }
        }
        match outcome {
            Some(outcome) => self.is_over(at, outcome),
            None => self.make_calls(at),
        }
    }

    fn call(&mut self, at: usize, call: Call) -> bool {
        let Doing::Completing(part, _) = &mut self.applications[at].doing else { return false };
        let id = part.id;
        let branch = |number: usize| &part.branches[number];
        let of_branch = |number: usize, request: fn(Xid) -> Request| {
            (Callee::Manager(branch(number).manager), request(branch(number).xid.clone()), Purpose::Branch(number))
        };
        let (to, request, purpose) = match call {
            Call::Prepare(number) => of_branch(number, Request::Prepare),
            Call::CommitOnePhase(number) => of_branch(number, Request::OnePhase),
            Call::CommitLast(number) => of_branch(number, Request::CommitLast),
            Call::AskLast(number) => {
                (Callee::Manager(branch(number).manager), Request::Settle(id), Purpose::AskingLast)
            }
            Call::LetGo => {
                let last = part.last().expect("it decided");
                (Callee::Manager(branch(last).manager), Request::LetGo(id), Purpose::Nothing)
            }
            Call::Commit(number) => of_branch(number, Request::Commit),
            Call::Rollback(number) => of_branch(number, Request::Rollback),
            Call::Forget(number) => of_branch(number, Request::Forget),
            Call::Abort => (Callee::Server, Request::Abort(id), Purpose::Aborting),
            Call::Done(ends) => {
                let learned = |(number, end): (usize, xa::BranchEnd)| Learned {
                    branch: branch(number).xid.branch.clone(),
                    heuristic: end.heuristic(),
                };
                let learned: Vec<Learned> = ends.into_iter().map(learned).collect();
                let is_heuristic = learned.iter().any(|learned| learned.heuristic.is_some());
                let purpose = if is_heuristic { Purpose::Recording } else { Purpose::Nothing };
                (Callee::Server, Request::Done(id, learned, Forgetting::Known), purpose)
            }
            Call::Deeds(deeds) => {
                let deed =
                    |(number, did): (usize, xa::Heuristic)| Deed { branch: branch(number).xid.branch.clone(), did };
                let deeds = deeds.into_iter().map(deed).collect();
                (Callee::Server, Request::Deeds(id, deeds), Purpose::Recording)
            }
            Call::Decide(prepared) if part.is_joined => {
                let votes = part.branches.iter().enumerate().map(|(number, branch)| {
                    let vote = if prepared.contains(&number) { Vote::Prepared } else { Vote::ReadOnly };
                    (branch.xid.branch.clone(), vote)
                });
                part.votes = votes.collect();
                part.has_failed = prepared.is_empty();
                return self.vote(at);
            }
            Call::Decide(prepared) => {
                let branches = prepared.into_iter().map(|number| branch(number).xid.branch.clone()).collect();
                let request = Request::Decide { id, branches, local: part.local, until: part.until };
                (Callee::Server, request, Purpose::Deciding)
            }
        };
        self.send(Process::Application(at), to, request, purpose)
    }

    /// Sends the next vote; when all are cast, asks what was decided.
    fn vote(&mut self, at: usize) -> bool {
        let Doing::Completing(part, machine) = &mut self.applications[at].doing else { return false };
        if let Some((name, vote)) = part.votes.pop() {
            let request = Request::Vote(part.id, name, vote);
            return self.send(Process::Application(at), Callee::Server, request, Purpose::Voting);
        }
        let handed_on = part.is_suspended.then_some(part.id);
        if part.has_failed {
            // Nothing was changed here: what is decided does not concern this part.
            machine.decide(TwoPhaseDecision::Committed);
            self.make_calls(at);
        } else {
            part.is_polling = true;
        }
        if let Some(id) = handed_on {
            self.hand_on(at, id);
        }
        true
    }

    fn poll(&mut self, at: usize) {
        let Doing::Completing(part, _) = &mut self.applications[at].doing else { return };
        part.is_polling = false;
        let request = Request::Verdicts(vec![part.id]);
        self.send(Process::Application(at), Callee::Server, request, Purpose::Polling);
    }

    fn driver_heard(&mut self, at: usize, purpose: &Purpose, reply: Reply) {
        let now = self.now();
        let Doing::Completing(part, machine) = &mut self.applications[at].doing else { return };
        match (purpose, reply) {
            (Purpose::Recording, reply) => return self.recorded(at, &reply),
            (Purpose::Branch(number), reply) => machine.answer(*number, Message::code(&reply)),
            (Purpose::Deciding | Purpose::AskingLast | Purpose::Aborting, Reply::Decision(decision)) => {
                machine.decide(decision);
            }
            (Purpose::AskingLast, _) => machine.decide(TwoPhaseDecision::Unknown),
            // Refused, so nothing happened.
            (Purpose::Deciding, Reply::Refused) => machine.decide(TwoPhaseDecision::Aborted),
            (Purpose::Deciding, _) => machine.decide(TwoPhaseDecision::Unknown),
            (Purpose::Aborting, _) => {
                let id = part.id;
                machine.decide(TwoPhaseDecision::Unknown);
                self.applications[at].owed.push(id);
            }
            (Purpose::Voting, Reply::Taken) => {
                self.vote(at);
                return;
            }
            (Purpose::Voting, Reply::Decision(TwoPhaseDecision::Aborted)) => machine.decide(TwoPhaseDecision::Aborted),
            (Purpose::Voting, _) => machine.decide(TwoPhaseDecision::Unknown),
            (Purpose::Polling, Reply::Verdicts(verdicts)) if verdicts == [Verdict::Commit] => {
                machine.decide(TwoPhaseDecision::Committed);
            }
            (Purpose::Polling, Reply::Verdicts(verdicts)) if verdicts == [Verdict::Rollback] => {
                machine.decide(TwoPhaseDecision::Aborted);
            }
            (Purpose::Polling, _) if now < part.until.after(PATIENCE) => part.is_polling = true,
            (Purpose::Polling, _) => machine.decide(TwoPhaseDecision::Unknown),
            _ => {}
        }
        self.make_calls(at);
    }

    /// The program is told how it ended.
    fn is_over(&mut self, at: usize, outcome: TwoPhaseOutcome) {
        let Doing::Completing(part, machine) = self.take(at) else { return };
        self.trace("told", outcome as u64);
        self.outcome.told += 1;
        self.said.told(part.id, part.number, outcome);
        for (number, branch) in part.branches.iter().enumerate() {
            if machine.end_of(number).is_some_and(|end| end.heuristic().is_some()) {
                self.said.reported.insert(branch.xid.clone());
            }
        }
        if machine.is_pending() {
            self.applications[at].recovery.hurry();
        }
        let is_failed = !matches!(outcome, TwoPhaseOutcome::Committed | TwoPhaseOutcome::Unknown);
        if part.is_joined && is_failed {
            for branch in &part.branches {
                let vote = Request::Vote(part.id, branch.xid.branch.clone(), Vote::Failed);
                if !self.send(Process::Application(at), Callee::Server, vote, Purpose::Nothing) {
                    return;
                }
            }
        }
    }

    /// Owners show that they live, and tell the coordinator what they could not before.
    pub(crate) fn renew(&mut self) {
        let now = self.now();
        for at in 0..self.applications.len() {
            let application = &mut self.applications[at];
            let is_due = now.since(application.renewed) >= RENEWAL;
            if self.style.embedded || application.run.is_none() || !is_due {
                continue;
            }
            application.renewed = now;
            let owner = application.owner.filter(|_| !application.asks_for_ids);
            let owed = application.owed.clone();
            let renewal = owner.map(|owner| (Request::Renew(owner), Purpose::Renewing));
            let aborts = owed.into_iter().map(|id| (Request::Abort(id), Purpose::Nothing));
            for (request, purpose) in renewal.into_iter().chain(aborts) {
                if !self.send(Process::Application(at), Callee::Server, request, purpose) {
                    break;
                }
            }
        }
    }

    /// A program is killed.
    pub(crate) fn kill_application(&mut self, at: usize) {
        let application = &mut self.applications[at];
        if application.run.take().is_none() {
            return;
        }
        self.outcome.kills += 1;
        application.doing = Doing::Resting;
        application.owed.clear();
        application.handed_on.clear();
        let owner = application.owner.take().filter(|_| application.asks_for_ids);
        let sessions = std::mem::take(&mut application.sessions);
        self.closing.extend(sessions.into_iter().enumerate());
        // The server sees that the connection is over.
        if let (Some(owner), Some(store)) = (owner, &self.store) {
            store.xa().release(owner);
        }
    }

    /// A program is started.
    pub(crate) fn start_application(&mut self, at: usize) {
        let run = self.number();
        let sessions = (0..self.managers.len()).map(|_| self.number()).collect();
        let application = &mut self.applications[at];
        (application.run, application.sessions) = (Some(run), sessions);
        application.recovery = Recovery::new(self.coordinator, self.managers.len());
    }
}
