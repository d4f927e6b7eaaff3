//! The world of one run: programs, a server, resource managers and the messages between them, of which a seed chooses what
//! happens next.
//!
//! May use: everything here. Must not know: what is checked.

use std::collections::BTreeMap;
use std::time::Duration;

use base::memory::Fault;
use base::{Clock, Random, Time};
use holdfast::{CoordinatorId, Durability, OwnerId, Store, TransactionId};
use xa::{FORMAT_ID, TwoPhaseOutcome, Xid};

use crate::distributed::application::Application;
use crate::distributed::manager::{self, Fate, Manager};
use crate::distributed::points::{self, Moment, PASSAGES, Point, Points, Side, Step};
use crate::distributed::recovery::Recovery;
use crate::distributed::said::Said;
use crate::distributed::server::Served;
use crate::distributed::wire::{Callee, Message, Process, Purpose, Reply, Request};
use crate::run::{self, Check, Violation, report, traced};
use crate::world::Sim;

/// What kind of world it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// The coordinator is in the one program.
    pub(crate) embedded: bool,
    /// Messages get lost.
    lossy: bool,
    /// Writes and syncs of the server fail.
    faulty: bool,
    /// Resource managers decide by themselves.
    heuristic: bool,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Did {
    pub(crate) trace: u64,
    /// Programs that were told how a transaction ended.
    pub(crate) told: u64,
    /// Programs killed.
    pub(crate) kills: u64,
    /// Servers killed, or their power cut.
    pub(crate) crashes: u64,
    /// Branches that recovery settled.
    pub(crate) recovered: u64,
    /// Transactions that were committed by a program that had resumed them.
    pub(crate) resumed: u64,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) sim: Sim,
    /// `None` while the server is down.
    pub(crate) store: Option<Store>,
    pub(crate) coordinator: CoordinatorId,
    server_run: u64,
    /// Transactions begun by the server for programs that ask.
    pub(crate) begun: BTreeMap<OwnerId, u64>,
    pub(crate) server_recovery: Recovery,
    pub(crate) managers: Vec<Manager>,
    pub(crate) applications: Vec<Application>,
    messages: Vec<Message>,
    /// Connections that broke, which their resource managers have not noticed.
    pub(crate) closing: Vec<(usize, u64)>,
    pub(crate) points: Points,
    pub(crate) said: Said,
    /// Transactions that were suspended, which others may know of.
    pub(crate) handed_on: Vec<TransactionId>,
    pub(crate) style: Style,
    /// Nothing breaks any more, and nothing new is begun.
    pub(crate) is_calm: bool,
    pub(crate) outcome: Did,
    found: Option<Violation>,
    numbers: u64,
    verbose: bool,
}

impl World {
    pub(crate) fn new(seed: u64, lying_disk: bool, verbose: bool) -> Check<Self> {
        let mut sim = Sim::new(seed);
        sim.disk.set_lying_syncs(lying_disk);
        // Room for what is kept an hour for owners that may not know it.
        sim.options.limits.xa_transactions_max = 500;
        sim.options.limits.xa_owners_max = 60;
        // And for the parts of all programs through which one goes.
        sim.options.limits.xa_branches_max = 64;
        sim.options.limits.batch_changes_max = 256;
        if lying_disk {
            sim.options.durability = Durability::Synced;
        }
        let store = run::open(&mut sim)?;
        let coordinator = store.xa().coordinator();
        let mut random = Random::new(seed ^ 0x5851_F42D_4C95_7F2D);
        let style = Style {
            embedded: random.chance(1, 4),
            lossy: random.chance(2, 3),
            faulty: random.chance(1, 2),
            heuristic: random.chance(1, 3),
        };
        let managers = 2 + usize::try_from(random.below(2)).unwrap_or(0);
        let applications = if style.embedded { 1 } else { 2 + random.below(2) };
        let recovery = || Recovery::new(coordinator, managers);
        let mut world = Self {
            store: Some(store),
            coordinator,
            server_run: 1,
            begun: BTreeMap::new(),
            server_recovery: recovery(),
            managers: (0..managers).map(|_| Manager::new()).collect(),
            applications: (0..applications).map(|at| Application::new(recovery(), at == 1)).collect(),
            messages: Vec::new(),
            closing: Vec::new(),
            points: Points::default(),
            said: Said::default(),
            handed_on: Vec::new(),
            style,
            is_calm: false,
            outcome: Did::default(),
            found: None,
            numbers: 1,
            random,
            sim,
            verbose,
        };
        world.prepare_foreign();
        (0..world.applications.len()).for_each(|at| world.start_application(at));
        Ok(world)
    }

    /// What others have prepared: of another coordinator, of other software, and something that only looks like ours.
    fn prepare_foreign(&mut self) {
        let other = CoordinatorId(self.coordinator.0 ^ 1);
        let id = TransactionId {
            coordinator: other,
            owner: OwnerId(1),
            sequence: 1,
            deadline_ms: 0,
            shared: false,
            last_resource: None,
        };
        let mut cut = TransactionId { coordinator: self.coordinator, ..id }.to_bytes().to_vec();
        cut.truncate(20);
        let name = || b"manager-0".to_vec();
        for manager in &mut self.managers {
            manager.is_moody = self.random.chance(1, 2);
            manager.prepare_foreign((FORMAT_ID, id.to_bytes().to_vec(), name()));
            manager.prepare_foreign((0x1234, b"other software".to_vec(), b"branch".to_vec()));
            manager.prepare_foreign((FORMAT_ID, cut.clone(), name()));
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.sim.clock.now()
    }

    /// The deadline of a transaction that begins now: for some soon, for most never. Shared ones may outlive their owners.
    pub(crate) fn deadline_ms(&mut self, shared: bool) -> u64 {
        let (chance, longest) = if shared { (2, 6_000) } else { (1, 500) };
        let timeout = self.random.chance(chance, 4).then(|| 50 + self.random.below(longest));
        timeout.map_or(0, |timeout| self.sim.clock.wall_ms() + timeout)
    }

    /// A number for a run or a connection: each only once.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn trace(&mut self, what: &str, number: u64) {
        if self.verbose {
            report(what, number);
        }
        self.outcome.trace = traced(self.outcome.trace, what, number);
    }

    fn tell(&mut self, what: &str, message: &Message) {
        let text = format!("{what}: {:?} to {:?}: {:?} {:?}", message.from, message.to, message.request, message.reply);
        self.trace(&text, message.run);
    }

    pub(crate) fn found(&mut self, found: Violation) {
        self.found.get_or_insert(found);
    }

    pub(crate) fn verdict(&mut self) -> Check<()> {
        self.found.take().map_or(Ok(()), Err)
    }

    pub(crate) fn fate(&self, manager: usize, xid: &Xid) -> Option<Fate> {
        self.managers.get(manager)?.fates.get(&manager::name(xid)).copied()
    }

    pub(crate) fn is_prepared(&self, manager: usize, xid: &Xid) -> bool {
        self.managers.get(manager).is_some_and(|manager| manager.is_prepared(&manager::name(xid)))
    }

    pub(crate) fn side_of(process: Process) -> Side {
        match process {
            Process::Application(_) => Side::Application,
            Process::Server => Side::Server,
        }
    }

    pub(crate) fn run_of(&self, process: Process) -> Option<u64> {
        match process {
            Process::Application(at) => self.applications.get(at)?.run,
            Process::Server => self.store.as_ref().map(|_| self.server_run),
        }
    }

    /// A process passes a crash point; whether it lives on.
    pub(crate) fn pass(&mut self, process: Process, step: Step, moment: Moment) -> bool {
        let point = Point { side: Self::side_of(process), step, moment };
        if self.points.pass(point) {
            self.trace("killed at a point", 0);
            self.kill(process);
            return false;
        }
        true
    }

    pub(crate) fn kill(&mut self, process: Process) {
        match process {
            Process::Application(at) => {
                self.kill_application(at);
                if self.style.embedded {
                    self.crash_server();
                }
            }
            Process::Server => self.crash_server(),
        }
    }

    /// What the server's end means to others.
    pub(crate) fn server_is_gone(&mut self) {
        self.server_run += 1;
        self.server_recovery = Recovery::new(self.coordinator, self.managers.len());
        for message in &mut self.messages {
            if message.to == Callee::Server && (message.reply.is_none() || self.random.chance(1, 2)) {
                message.reply = Some(Reply::Lost);
            }
        }
        for application in &mut self.applications {
            if application.asks_for_ids {
                application.owner = None;
            }
        }
        if self.style.embedded {
            self.kill_application(0);
        }
    }

    /// Sends a request; whether its sender lives on.
    pub(crate) fn send(&mut self, from: Process, to: Callee, request: Request, purpose: Purpose) -> bool {
        let Some(run) = self.run_of(from) else { return false };
        let is_recovery = matches!(purpose, Purpose::Listing(_) | Purpose::Settling(_) | Purpose::Asking(_))
            || matches!(request, Request::Settle(_) | Request::LetGo(_));
        let session = match (from, to) {
            (Process::Application(at), Callee::Manager(number)) if !is_recovery => {
                self.applications[at].sessions.get(number).copied().unwrap_or(0)
            }
            _ => 0,
        };
        let message = Message { from, run, session, to, request, purpose, reply: None, is_awaited: true };
        if message.step().is_some_and(|step| !self.pass(from, step, Moment::Before)) {
            return false;
        }
        self.messages.push(message);
        true
    }

    /// A message arrives: a request is answered, or an answer is heard.
    fn deliver(&mut self, at: usize) {
        let mut message = self.messages.swap_remove(at);
        self.tell("deliver", &message);
        if let Some(reply) = message.reply.take() {
            return self.hear(message, reply);
        }
        let reply = match message.to {
            Callee::Manager(number) => {
                let manager = self.managers.get_mut(number).expect("they are numbered");
                manager.serve(&message.request, message.session, &mut self.random)
            }
            Callee::Server => match self.serve(&message) {
                Served::Reply(reply) => reply,
                Served::Later => return self.messages.push(message),
                Served::Crashed => Reply::Lost,
            },
        };
        if message.is_awaited {
            message.reply = Some(reply);
            self.messages.push(message);
        }
    }

    fn hear(&mut self, message: Message, reply: Reply) {
        if !message.is_awaited || self.run_of(message.from) != Some(message.run) {
            return;
        }
        if reply == Reply::Lost {
            self.lose_session(&message);
        } else if let Some(step) = message.step()
            && !self.pass(message.from, step, Moment::After)
        {
            return;
        }
        match (&message.purpose, message.from) {
            (Purpose::Listing(_) | Purpose::Judging(_) | Purpose::Asking(_) | Purpose::Settling(_), _) => {
                self.recovery_heard(message, reply);
            }
            (Purpose::RecordingFor(..), _) => self.recovery_heard(message, reply),
            (_, Process::Application(at)) => self.application_heard(at, message, reply),
            (_, Process::Server) => {}
        }
    }

    /// The connection on which no answer came is given up, and its resource manager notices at some time.
    fn lose_session(&mut self, message: &Message) {
        let next = self.number();
        if let (Process::Application(at), Callee::Manager(number)) = (message.from, message.to)
            && let Some(session) = self.applications[at].sessions.get_mut(number)
            && *session == message.session
        {
            self.closing.push((number, std::mem::replace(session, next)));
        }
    }

    /// A connection breaks while a message is under way: its request may have arrived, or arrive yet, or never.
    fn lose(&mut self, at: usize) {
        let Some(message) = self.messages.get_mut(at) else { return };
        let is_local = self.style.embedded && message.to == Callee::Server;
        if is_local || message.from == Process::Server && message.to == Callee::Server {
            return;
        }
        let told = Message { reply: Some(Reply::Lost), ..message.clone() };
        if message.reply.is_some() || self.random.chance(1, 2) {
            *message = told;
        } else {
            message.is_awaited = false;
            self.messages.push(told);
        }
    }

    fn any_message(&mut self) -> Option<usize> {
        let count = self.messages.len() as u64;
        (count > 0).then(|| usize::try_from(self.random.below(count)).unwrap_or(0))
    }

    fn any(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap_or(0)
    }

    /// One thing happens.
    pub(crate) fn step(&mut self) -> Check<()> {
        match self.random.below(200) {
            0..110 => {
                if let Some(at) = self.any_message() {
                    self.deliver(at);
                }
            }
            110..150 => {
                let at = self.any(self.applications.len());
                self.move_application(at);
            }
            150..164 => self.recover_somewhere(),
            164..174 => {
                let by = Duration::from_millis(1 + self.random.below(60));
                self.pass_time(by)?;
            }
            174..178 if self.style.lossy => {
                if let Some(at) = self.any_message() {
                    self.trace("lose", 0);
                    self.lose(at);
                }
            }
            178..182 => self.notice(),
            182 => self.crash_something(),
            183..193 => self.start_something()?,
            193 if self.style.heuristic => {
                let at = self.any(self.managers.len());
                let _ = self.managers[at].decide_by_itself(&mut self.random);
            }
            194 if self.style.faulty => {
                let after = self.random.below(20);
                let fault = if self.random.chance(1, 2) { Fault::Error } else { Fault::Full };
                self.sim.disk.plan(after, fault);
            }
            195 if self.random.chance(1, 4) => self.forget_by_hand(),
            196..200 if !self.points.has_plan() && self.random.chance(1, 4) => {
                let all = points::all();
                let point = all[self.any(all.len())];
                let passage = 1 + u32::try_from(self.random.below(u64::from(PASSAGES))).unwrap_or(0);
                self.points.plan(point, passage);
            }
            _ => {}
        }
        self.verdict()
    }

    fn recover_somewhere(&mut self) {
        let at = self.any(self.applications.len() + 1);
        let process = if at == self.applications.len() { Process::Server } else { Process::Application(at) };
        self.recover(process);
    }

    fn pass_time(&mut self, by: Duration) -> Check<()> {
        self.sim.clock.advance(by);
        self.trace("time", u64::try_from(by.as_millis()).unwrap_or(0));
        if let Some(store) = self.store.clone() {
            let stepped = store.step();
            if store.stats().refuses_writes || !self.sim.disk.is_powered() {
                self.trace("the server wants to be started again", 0);
                self.crash_server();
            } else if let Err(error) = stepped {
                crate::step::explained_step(&error)?;
            }
        }
        self.renew();
        Ok(())
    }

    /// A resource manager notices that a connection is over.
    fn notice(&mut self) {
        if !self.closing.is_empty() {
            let at = self.any(self.closing.len());
            let (manager, session) = self.closing.swap_remove(at);
            self.managers[manager].close(session);
        }
    }

    fn crash_something(&mut self) {
        self.trace("crash", 0);
        match self.random.below(3) {
            0 => {
                let at = self.any(self.applications.len());
                self.kill(Process::Application(at));
            }
            1 => self.kill(Process::Server),
            _ => {
                let at = self.any(self.managers.len());
                let next = self.number();
                self.managers[at].crash(next);
                for message in &mut self.messages {
                    if message.to == Callee::Manager(at) && message.reply.is_none() {
                        message.reply = Some(Reply::Lost);
                    }
                }
            }
        }
    }

    /// Something that is down is started.
    fn start_something(&mut self) -> Check<()> {
        let at = self.any(self.managers.len() + self.applications.len() + 1);
        if let Some(manager) = self.managers.get_mut(at) {
            manager.is_up = true;
            return Ok(());
        }
        let at = at - self.managers.len();
        if at == self.applications.len() || self.style.embedded {
            self.start_server()?;
        }
        if at < self.applications.len() && self.applications[at].run.is_none() {
            self.start_application(at);
        }
        Ok(())
    }

    fn start_server(&mut self) -> Check<()> {
        if self.store.is_none() {
            self.store = Some(run::open(&mut self.sim)?);
            self.trace("the server is started", 0);
            if self.style.embedded && self.applications[0].run.is_none() {
                self.start_application(0);
            }
        }
        Ok(())
    }

    /// An operator lets go of a transaction that is committed, and of which no resource manager has anything left.
    fn forget_by_hand(&mut self) {
        let is_over = |id: &TransactionId| {
            let branches = self.said.parts.get(id).into_iter().flatten().flat_map(|part| &part.branches);
            branches.into_iter().all(|(manager, xid)| !self.managers[*manager].has(&manager::name(xid)))
        };
        let over: Vec<TransactionId> = self.said.committed.iter().filter(|id| is_over(id)).copied().collect();
        if !over.is_empty() && self.run_of(Process::Application(0)).is_some() {
            let id = over[self.any(over.len())];
            let request = Request::Done(id, Vec::new(), holdfast::Forgetting::Everything);
            self.send(Process::Application(0), Callee::Server, request, Purpose::Nothing);
        }
    }

    /// Whether a resource manager did something by itself instead of a commit in one phase, and its answer was lost.
    fn has_unheard_deed(&self) -> bool {
        self.said.parts.values().flatten().any(|part| match part.branches.as_slice() {
            [(manager, xid)] if part.told == Some(TwoPhaseOutcome::Hazard) => {
                self.managers[*manager].has(&manager::name(xid))
            }
            _ => false,
        })
    }

    /// Nothing breaks any more: everybody is up, what is under way ends, and recovery has its time.
    pub(crate) fn settle(&mut self) -> Check<()> {
        self.is_calm = true;
        self.take_back();
        self.points.clear_plan();
        self.sim.disk.clear_plan();
        self.managers.iter_mut().for_each(|manager| manager.is_up = true);
        self.start_server()?;
        for round in 0..ROUNDS {
            if round == ENDING_ROUND && self.has_unheard_deed() {
                (0..self.applications.len()).for_each(|at| self.kill(Process::Application(at)));
                self.start_server()?;
            }
            for _ in 0..DELIVERIES_MAX {
                let Some(at) = self.any_message() else { break };
                self.deliver(at);
                self.verdict()?;
            }
            while !self.closing.is_empty() {
                self.notice();
            }
            (0..self.applications.len()).for_each(|at| self.move_application(at));
            let processes = (0..self.applications.len()).map(Process::Application);
            processes.chain([Process::Server]).for_each(|process| self.recover(process));
            self.pass_time(Duration::from_millis(250))?;
            self.start_server()?;
        }
        Ok(())
    }
}

/// The round in which programs end that were told a hazard of their only branch, if it is remembered. Nobody decides about such a
/// transaction, so that the coordinator hears of it when its owner has ended.
const ENDING_ROUND: usize = 10;
/// Rounds of the end: longer than any lease, and the time of grace after a start of the server.
const ROUNDS: usize = 80;
/// Messages delivered between two of them.
const DELIVERIES_MAX: usize = 300;
