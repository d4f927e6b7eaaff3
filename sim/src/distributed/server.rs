//! The coordinator of the simulation: a real store that answers requests, and may be killed at each step of doing so.
//!
//! May use: `wire`, the store's public surface. Must not know: what breaks when, resource managers.

use holdfast::{
    Begin, Commit, Durability, Error, ErrorKind, Lease, Outcome, OwnerId, Patience, Pending, PutOptions, Sharing,
    Store, Taking, TransactionId, Verdict, Vote,
};
use std::time::Duration;
use xa::{TwoPhaseDecision, Xid};

use crate::distributed::checks::{holder, late};
use crate::distributed::points::{Moment, Step};
use crate::distributed::wire::{Message, Process, Reply, Request};
use crate::distributed::world::World;
use crate::run::{Violation, violation};

/// Where programs change something in the server's own store.
pub(crate) const BUCKET: &[u8] = b"local";

/// What became of a request.
pub(crate) enum Served {
    Reply(Reply),
    /// It waits for others.
    Later,
    /// The server was killed meanwhile.
    Crashed,
}

/// Why an answer is not known.
enum Unshown {
    Crashed,
    Failed(Error),
    /// It should not be.
    Wrong(Violation),
}

impl From<Error> for Unshown {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn begin(shared: bool) -> Begin {
    Begin { timeout: None, sharing: if shared { Sharing::Shared } else { Sharing::Alone } }
}

impl From<Violation> for Unshown {
    fn from(found: Violation) -> Self {
        Self::Wrong(found)
    }
}

impl World {
    /// Answers a request, unless it is killed while it does.
    pub(crate) fn serve(&mut self, message: &Message) -> Served {
        let Some(store) = self.store.clone() else { return Served::Reply(Reply::Refused) };
        let step = message.request.step();
        if step.is_some_and(|step| !self.pass(Process::Server, step, Moment::Before)) {
            return Served::Crashed;
        }
        let reply = match self.answer(&store, message) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Served::Later,
            Err(Unshown::Crashed) => return Served::Crashed,
            Err(Unshown::Failed(error)) => self.refusal(&message.request, &error),
            Err(Unshown::Wrong(found)) => {
                self.found(found);
                Reply::Refused
            }
        };
        if step.is_some_and(|step| !self.pass(Process::Server, step, Moment::After)) {
            return Served::Crashed;
        }
        Served::Reply(reply)
    }

    /// What a program concludes from an error, as `tm` does.
    fn refusal(&mut self, request: &Request, error: &Error) -> Reply {
        let is_decision = matches!(request, Request::Decide { .. });
        match error.kind() {
            ErrorKind::Aborted => {
                if let Request::Decide { id, .. } = request {
                    self.is_aborted(*id);
                }
                Reply::Decision(TwoPhaseDecision::Aborted)
            }
            ErrorKind::Unknown if is_decision => Reply::Decision(TwoPhaseDecision::Unknown),
            // With a change of its own the batch may be on its way to the disk.
            ErrorKind::Unavailable if matches!(request, Request::Decide { local: true, .. }) => {
                Reply::Decision(TwoPhaseDecision::Unknown)
            }
            ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Limit | ErrorKind::Invalid => Reply::Refused,
            kind => {
                self.found(violation("distributed", format!("{kind:?}: {error}")));
                Reply::Refused
            }
        }
    }

    /// Waits until an answer is durable enough, unless it is killed before.
    fn show<T>(&mut self, step: Step, pending: holdfast::Result<Pending<'_, T>>) -> Result<T, Unshown> {
        let pending = pending?;
        let is_synced = matches!(step, Step::Open | Step::Decision | Step::Abort | Step::Verdict | Step::Close);
        if is_synced && !self.pass(Process::Server, step, Moment::Written) {
            return Err(Unshown::Crashed);
        }
        Ok(pending.wait(self.sim.options.durability)?)
    }

    fn answer(&mut self, store: &Store, message: &Message) -> Result<Option<Reply>, Unshown> {
        let step = message.request.step().unwrap_or(Step::Open);
        let xa = store.xa();
        Ok(Some(match &message.request {
            Request::Open if self.style.embedded => Reply::Owner(xa.own()?),
            Request::Open => {
                let asks = matches!(message.from, Process::Application(at) if self.applications[at].asks_for_ids);
                let length = Duration::from_millis(1_000 + self.random.below(1_000));
                let lease = if asks { Lease::Held } else { Lease::For(length) };
                Reply::Owner(self.show(step, xa.open(lease, "simulated"))?)
            }
            Request::Renew(owner) => match self.show(step, xa.renew(*owner))? {
                Ok(()) => Reply::Taken,
                Err(_) => Reply::Decision(TwoPhaseDecision::Aborted),
            },
            Request::Begin { shared, .. } if self.style.embedded => Reply::Id(xa.begin(&begin(*shared))?),
            Request::Begin { owner, shared } => Reply::Id(self.next_id(*owner, *shared)),
            Request::Enlist(id, branches) => {
                let taking = self.show(step, xa.enlist(*id, None, branches))?;
                if taking == Taking::Part && self.said.committed.contains(id) {
                    // All that it had was committed and is forgotten: these are no part of it, and will not be committed.
                    let late = branches.iter().map(|branch| Xid { transaction: *id, branch: branch.clone() });
                    self.said.late.extend(late);
                }
                self.taken(*id, taking)
            }
            Request::Vote(id, branch, vote) => {
                let taking = self.show(step, xa.vote(*id, branch, *vote))?;
                if taking == Taking::Part {
                    holder::commit_by_others(self, store, *id)?;
                }
                if *vote == Vote::Failed {
                    self.said.failed.insert(*id);
                }
                self.taken(*id, taking)
            }
            Request::Suspend(id, by, branches) => {
                let taking = self.show(step, xa.suspend(*id, Some(*by), branches))?;
                if taking == Taking::Part {
                    holder::suspended(self, *id, message.run)?;
                    holder::commit_by_others(self, store, *id)?;
                }
                self.taken(*id, taking)
            }
            Request::Resume(id, resumer) => {
                let taking = self.show(step, xa.resume(*id, *resumer))?;
                if taking == Taking::Part {
                    holder::resumed(self, *id, message.run)?;
                }
                self.taken(*id, taking)
            }
            Request::Decide { id, branches, local: false, until } => {
                let patience = if id.shared && self.now() < *until { Patience::Waits } else { Patience::Over };
                match self.show(step, xa.decide(*id, branches, patience))? {
                    Commit::Decided => {
                        holder::decided(self, *id, message.run)?;
                        self.is_committed(*id)
                    }
                    Commit::Settled(Outcome::Committed) => self.is_committed(*id),
                    Commit::Settled(Outcome::Aborted(_)) => self.is_aborted(*id),
                    Commit::Waiting => return Ok(None),
                }
            }
            Request::Decide { id, branches, local: true, .. } => {
                let mut local = store.begin();
                local.put(BUCKET, id.to_string().as_bytes(), b"done", &PutOptions::default())?;
                if !branches.is_empty() {
                    local.decide(*id, branches);
                }
                local.commit(self.sim.options.durability)?;
                self.is_committed(*id)
            }
            Request::Abort(id) => match self.show(step, xa.abort(*id))? {
                Outcome::Committed => self.is_committed(*id),
                Outcome::Aborted(_) => self.is_aborted(*id),
            },
            Request::Done(id, learned, forgetting) => {
                self.show(step, xa.forget(*id, learned, *forgetting))?;
                for learned in learned.iter().filter(|learned| learned.heuristic.is_some()) {
                    self.said.reported.insert(Xid { transaction: *id, branch: learned.branch.clone() });
                }
                Reply::Taken
            }
            Request::Deeds(id, deeds) => match self.show(step, xa.note_deeds(*id, deeds))? {
                Outcome::Committed => self.is_committed(*id),
                Outcome::Aborted(_) => {
                    for deed in deeds {
                        self.said.reported.insert(Xid { transaction: *id, branch: deed.branch.clone() });
                    }
                    self.is_aborted(*id);
                    Reply::Taken
                }
            },
            Request::Verdicts(ids) => {
                let verdicts = self.show(step, xa.verdicts(ids))?;
                for (id, verdict) in ids.iter().zip(&verdicts) {
                    match verdict {
                        Verdict::Commit => drop(self.is_committed(*id)),
                        Verdict::Rollback => {
                            holder::rolled_back(self, *id)?;
                            drop(self.is_aborted(*id));
                        }
                        // Who says the rest is another.
                        Verdict::LastResource | Verdict::Leave => {}
                        Verdict::Foreign => self.found(violation("foreign", format!("{id} is called foreign"))),
                    }
                }
                Reply::Verdicts(verdicts)
            }
            Request::Close(owner) => {
                self.show(step, xa.end(*owner))?;
                Reply::Taken
            }
            _ => Reply::Refused,
        }))
    }

    fn next_id(&mut self, owner: OwnerId, shared: bool) -> TransactionId {
        let begun = self.begun.entry(owner).or_default();
        *begun += 1;
        let sequence = *begun;
        TransactionId {
            coordinator: self.coordinator,
            owner,
            sequence,
            deadline_ms: self.deadline_ms(shared),
            shared,
            last_resource: None,
        }
    }

    fn taken(&mut self, id: TransactionId, taking: Taking) -> Reply {
        match taking {
            Taking::Part => Reply::Taken,
            Taking::Settled(Outcome::Aborted(_)) => self.is_aborted(id),
            Taking::Settled(Outcome::Committed) => self.is_committed(id),
        }
    }

    fn is_committed(&mut self, id: TransactionId) -> Reply {
        self.says(id, TwoPhaseDecision::Committed)
    }

    fn is_aborted(&mut self, id: TransactionId) -> Reply {
        self.says(id, TwoPhaseDecision::Aborted)
    }

    /// The coordinator is about to say how a transaction ends.
    fn says(&mut self, id: TransactionId, decision: TwoPhaseDecision) -> Reply {
        if let Err(found) = late::check(self, id, decision) {
            self.found(found);
        }
        match decision {
            TwoPhaseDecision::Committed => self.said.committed.insert(id),
            _ => self.said.aborted.insert(id),
        };
        Reply::Decision(decision)
    }

    /// Whether the server's own part of a transaction is there.
    pub(crate) fn has_local(&self, id: TransactionId) -> bool {
        let store = self.store.as_ref();
        store.is_some_and(|store| store.kv().get(BUCKET, id.to_string().as_bytes()).is_ok_and(|shown| shown.is_some()))
    }

    /// The server is killed, or its power cut if what it promised is to survive that.
    pub(crate) fn crash_server(&mut self) {
        if self.store.is_none() {
            return;
        }
        self.outcome.crashes += 1;
        self.sim.disk.clear_plan();
        if !self.sim.disk.is_powered() {
            self.sim.disk.power_on();
        } else if self.sim.options.durability == Durability::Synced && self.random.chance(1, 2) {
            self.sim.disk.power_cut();
            self.sim.disk.power_on();
        } else {
            self.sim.disk.kill_process();
        }
        self.sim.end_ledgers();
        self.store = None;
        self.begun.clear();
        // What is not decided is rolled back.
        self.said.held.clear();
        self.server_is_gone();
    }
}
