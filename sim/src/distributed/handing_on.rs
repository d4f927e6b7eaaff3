//! Programs of the simulation that hand a shared transaction on: one suspends it, another one resumes it.
//!
//! Who would resume it asks too early, too late, several at a time, and once more with the same number when no answer came. Who
//! gives that up leaves one that nobody holds: it ends at its deadline, or when the program that suspended it takes it back.
//!
//! May use: `application`, `wire`. Must not know: what breaks when, what is right.

use holdfast::{BranchName, OwnerId, Resumer, TransactionId};

use crate::distributed::application::{Application, Doing, Part};
use crate::distributed::wire::{Callee, Process, Purpose, Reply, Request};
use crate::distributed::world::World;

impl World {
    /// Leaves a transaction to whoever resumes it, and prepares its own part when the coordinator knows of it.
    pub(crate) fn suspend(&mut self, at: usize, part: Part) {
        self.trace("suspend", part.id.sequence);
        let (id, names) = (part.id, part.branches.iter().map(|branch| branch.xid.branch.clone()).collect());
        let Some(run) = self.applications[at].run else { return };
        self.applications[at].doing = Doing::Suspending(part);
        let request = Request::Suspend(id, OwnerId(run), names);
        self.send(Process::Application(at), Callee::Server, request, Purpose::Suspending);
    }

    /// The answer to that.
    pub(crate) fn is_suspended(&mut self, at: usize, reply: &Reply) {
        let Doing::Suspending(mut part) = self.take(at) else { return };
        // Another program decides from here on, or it was refused, and this one rolls back.
        (part.is_joined, part.is_suspended, part.has_failed) = match reply {
            Reply::Taken => (true, true, part.has_failed),
            _ => (false, false, true),
        };
        self.complete(at, part);
    }

    /// All its branches have voted: it may be sent to others.
    pub(crate) fn hand_on(&mut self, at: usize, id: TransactionId) {
        self.trace("hand on", id.sequence);
        self.handed_on.push(id);
        self.applications[at].handed_on.push(id);
    }

    /// One that this program may try to resume.
    pub(crate) fn any_handed_on(&mut self) -> Option<TransactionId> {
        // Somebody may have heard of it too early.
        let early = self.applications.iter().find_map(Application::invites).filter(|_| self.random.chance(1, 20));
        let count = self.handed_on.len() as u64;
        if early.is_some() || count == 0 {
            return early;
        }
        let at = usize::try_from(self.random.below(count)).unwrap_or(0);
        // Others may have the id too.
        let is_the_only_one = self.random.chance(1, 2);
        if is_the_only_one { Some(self.handed_on.swap_remove(at)) } else { self.handed_on.get(at).copied() }
    }

    pub(crate) fn resume(&mut self, at: usize, id: TransactionId) {
        self.trace("resume", id.sequence);
        let number = self.number();
        let by = self.applications[at].run.map(OwnerId);
        self.applications[at].doing = Doing::Waiting;
        let request = Request::Resume(id, Resumer { by, number: Some(number) });
        self.send(Process::Application(at), Callee::Server, request, Purpose::Resuming);
    }

    /// The answer to that: this program decides from now on, or has nothing of it.
    pub(crate) fn is_resumed(&mut self, at: usize, request: Request, reply: &Reply) {
        let Request::Resume(id, _) = request else { return };
        self.applications[at].doing = Doing::Resting;
        match reply {
            Reply::Taken => {
                self.trace("resumed", id.sequence);
                let part = self.resumed_part(at, id);
                self.start_branches(at, part);
            }
            Reply::Lost if self.random.chance(2, 3) => {
                self.applications[at].doing = Doing::Waiting;
                self.send(Process::Application(at), Callee::Server, request, Purpose::Resuming);
            }
            _ => {}
        }
    }

    /// Its part, whose branches no other program has.
    fn resumed_part(&mut self, at: usize, id: TransactionId) -> Part {
        let mut part = self.part(at, id, false);
        let number = self.number();
        for branch in &mut part.branches {
            let name = format!("resumed-{number}-{}", branch.manager);
            branch.xid.branch = BranchName::new(&name).expect("these are names");
        }
        let branches = part.branches.iter().map(|branch| (branch.manager, branch.xid.clone())).collect();
        self.said.renamed(id, part.number, branches);
        part
    }

    /// Nothing new is begun: programs take back what they handed on, as far as no deadline ends it.
    pub(crate) fn take_back(&mut self) {
        for application in &mut self.applications {
            let handed_on = std::mem::take(&mut application.handed_on);
            application.owed.extend(handed_on.into_iter().filter(|id| id.deadline_ms == 0));
        }
    }
}
