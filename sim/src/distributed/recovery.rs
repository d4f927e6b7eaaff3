//! Recovery as programs and the server do it, by the pure logic of `xa`: list, ask, settle.
//!
//! May use: `wire`, `xa`. Must not know: what is right.

use holdfast::{Deed, Forgetting, Heuristic, Learned, Verdict};
use xa::{Action, BranchEnd, Instruction, LastResourceId, Pace, Settle, TransactionId, TwoPhaseDecision, Xid};

use crate::distributed::wire::{Callee, Message, Process, Purpose, Reply, Request};
use crate::distributed::world::World;

/// One process's recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    settle: Settle,
    /// Answers that the round waits for.
    awaited: usize,
    /// What is known so far of the transactions that were found, and whom to ask for the others.
    verdicts: Vec<(TransactionId, Action)>,
    questions: Vec<(TransactionId, LastResourceId)>,
}

impl Recovery {
    pub(crate) fn new(coordinator: holdfast::CoordinatorId, managers: usize) -> Self {
        let pace = Pace {
            interval: std::time::Duration::from_millis(500),
            retry_min: std::time::Duration::from_millis(20),
            retry_max: std::time::Duration::from_millis(200),
        };
        let (verdicts, questions) = (Vec::new(), Vec::new());
        Self { settle: Settle::new(coordinator, managers, pace), awaited: 0, verdicts, questions }
    }

    pub(crate) fn hurry(&mut self) {
        self.settle.hurry();
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.awaited == 0
    }
}

impl World {
    fn recovery(&mut self, process: Process) -> &mut Recovery {
        match process {
            Process::Application(at) => &mut self.applications[at].recovery,
            Process::Server => &mut self.server_recovery,
        }
    }

    /// Begins a round, if one is due.
    pub(crate) fn recover(&mut self, process: Process) {
        // In one process with its coordinator a program has one recovery.
        let is_server = self.style.embedded && process != Process::Server;
        if is_server || self.run_of(process).is_none() || !self.recovery(process).is_resting() {
            return;
        }
        let now = self.now();
        let due = self.recovery(process).settle.due(now);
        self.recovery(process).awaited = due.len();
        for manager in due {
            if !self.send(process, Callee::Manager(manager), Request::List, Purpose::Listing(manager)) {
                return;
            }
        }
    }

    pub(crate) fn recovery_heard(&mut self, message: Message, reply: Reply) {
        let (process, now, jitter) = (message.from, self.now(), self.random.next() as u32);
        if let Purpose::RecordingFor(manager, xid) = message.purpose {
            if reply == Reply::Taken {
                self.forget_at(process, manager, xid);
            }
            return;
        }
        let recovery = self.recovery(process);
        recovery.awaited -= 1;
        match (message.purpose, reply) {
            (Purpose::Listing(manager), Reply::Listed(names)) => {
                let ours = names.iter().filter_map(|(format, id, branch)| Xid::of_parts(*format, id, branch));
                recovery.settle.listed(manager, ours.collect(), now);
                self.after_listing(process);
            }
            (Purpose::Listing(manager), _) => {
                recovery.settle.unreachable(manager, now, jitter);
                self.after_listing(process);
            }
            (Purpose::Judging(ids), Reply::Verdicts(verdicts)) => {
                for (id, verdict) in ids.into_iter().zip(verdicts) {
                    match (verdict, id.last_resource) {
                        (Verdict::Commit, _) => recovery.verdicts.push((id, Action::Commit)),
                        (Verdict::Rollback, None) => recovery.verdicts.push((id, Action::Rollback)),
                        (Verdict::LastResource, Some(last)) => recovery.questions.push((id, last)),
                        _ => {}
                    }
                }
                self.ask_last(process);
            }
            (Purpose::Asking(id), reply) => {
                match reply {
                    Reply::Decision(TwoPhaseDecision::Committed) => recovery.verdicts.push((id, Action::Commit)),
                    Reply::Decision(TwoPhaseDecision::Aborted) => recovery.verdicts.push((id, Action::Rollback)),
                    _ => {}
                }
                self.ask_last(process);
            }
            (Purpose::Judging(_), _) => drop(recovery.settle.instructions(&[])),
            (Purpose::Settling(instruction), reply) => {
                let ended = recovery.settle.answered(&instruction, Message::code(&reply), now, jitter);
                self.settled(process, &instruction, ended);
            }
            _ => {}
        }
    }

    fn after_listing(&mut self, process: Process) {
        let recovery = self.recovery(process);
        if recovery.awaited > 0 {
            return;
        }
        let ids = recovery.settle.questions();
        if !ids.is_empty() {
            recovery.awaited = 1;
            self.send(process, Callee::Server, Request::Verdicts(ids.clone()), Purpose::Judging(ids));
        }
    }

    /// Asks the next last resource; when all have answered does what was found out.
    fn ask_last(&mut self, process: Process) {
        let recovery = self.recovery(process);
        if let Some((id, last)) = recovery.questions.pop() {
            recovery.awaited = 1;
            let last = Callee::Manager(usize::try_from(last.0).unwrap_or(0));
            self.send(process, last, Request::Settle(id), Purpose::Asking(id));
            return;
        }
        let verdicts = std::mem::take(&mut recovery.verdicts);
        let instructions = recovery.settle.instructions(&verdicts);
        self.carry_out(process, instructions);
    }

    fn carry_out(&mut self, process: Process, instructions: Vec<Instruction>) {
        let told: Vec<Instruction> =
            instructions.into_iter().filter(|instruction| instruction.action != Action::Leave).collect();
        self.recovery(process).awaited = told.len();
        for instruction in told {
            let (xid, manager) = (instruction.xid.clone(), Callee::Manager(instruction.source));
            let request = match instruction.action {
                Action::Commit => Request::Commit(xid),
                _ => Request::Rollback(xid),
            };
            if !self.send(process, manager, request, Purpose::Settling(instruction)) {
                return;
            }
        }
    }

    fn settled(&mut self, process: Process, instruction: &Instruction, ended: xa::Ended) {
        let xid = &instruction.xid;
        let heuristic = ended.end.heuristic();
        self.outcome.recovered += u64::from(ended.end != BranchEnd::Pending);
        if instruction.action == Action::Commit && ended.end != BranchEnd::Pending {
            let learned = vec![Learned { branch: xid.branch.clone(), heuristic }];
            let done = Request::Done(xid.transaction, learned, Forgetting::Known);
            let purpose = match ended.remembered {
                true => Purpose::RecordingFor(instruction.source, xid.clone()),
                false => Purpose::Nothing,
            };
            self.send(process, Callee::Server, done, purpose);
        } else if let Some(did) = heuristic.filter(|did| *did != Heuristic::Rollback) {
            let deeds = Request::Deeds(xid.transaction, vec![Deed { branch: xid.branch.clone(), did }]);
            let purpose = Purpose::RecordingFor(instruction.source, xid.clone());
            self.send(process, Callee::Server, deeds, purpose);
        } else if ended.remembered {
            self.said.reported.insert(xid.clone());
            self.forget_at(process, instruction.source, xid.clone());
        }
    }

    fn forget_at(&mut self, process: Process, manager: usize, xid: Xid) {
        self.send(process, Callee::Manager(manager), Request::Forget(xid), Purpose::Nothing);
    }
}
