//! Recovery: asks every resource manager what is in doubt, the coordinator what to do about it, and does it.
//!
//! What to do and when is decided by [`xa::Settle`]; here it is carried out. Several programs may do so at once.
//!
//! May use: `branch`, `coordinator`, tokio. Must not know: resource managers.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use xa::{Action, BranchName, Ended, Instruction, LastResourceId, Pace, Settle, Time, TransactionId, XaCode};

use self::report::fate_of;
pub use self::report::{Down, Fate, Found, Progress, Report, Unreadable};
use crate::Verdict;
use crate::branch::{Answer, InDoubt, ResourceManager};
use crate::coordinator::Coordinator;
use crate::decisions::note_ended;

/// Recovery of a coordinator's branches in known resource managers.
pub struct Recovery {
    coordinator: Coordinator,
    managers: Vec<Arc<dyn ResourceManager>>,
    settle: Settle,
    start: Instant,
    patience: Duration,
    tell: Tell,
    /// What could not be read in each resource manager when it was asked last.
    unreadable: BTreeMap<usize, BTreeSet<String>>,
}

/// Whom to tell how a round goes.
type Tell = Box<dyn FnMut(Progress<'_>) + Send + Sync>;

/// What noting what became of branches needs, of several side by side.
struct Noting<'a> {
    coordinator: &'a Coordinator,
    patience: Duration,
    start: Instant,
    settle: Mutex<&'a mut Settle>,
    tell: Mutex<&'a mut Tell>,
}

/// A branch, where it is, and what to do with it.
type Task = (Instruction, Arc<dyn ResourceManager>);

impl Recovery {
    /// Of these resource managers.
    #[must_use]
    pub fn new(coordinator: &Coordinator, managers: Vec<Arc<dyn ResourceManager>>, pace: Pace) -> Self {
        let settle = Settle::new(coordinator.id(), managers.len(), pace);
        let (start, tell) = (Instant::now(), Box::new(|_: Progress<'_>| ()));
        let (coordinator, unreadable) = (coordinator.clone(), BTreeMap::new());
        Self { coordinator, managers, settle, start, patience: PATIENCE, tell, unreadable }
    }

    /// `tell` hears what each resource manager answers when it does, and what becomes of each branch, before the round is over.
    /// It is called between answers, which it holds up.
    #[must_use]
    pub fn telling(self, tell: impl FnMut(Progress<'_>) + Send + Sync + 'static) -> Self {
        Self { tell: Box::new(tell), ..self }
    }

    /// How long a resource manager may take for an answer; 15 s unless said. One that hangs for longer is treated as one
    /// that is down, and keeps nobody else waiting.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// One round with all resource managers, also with those that are left alone for being down.
    pub async fn run(&mut self) -> Report {
        self.settle.hurry();
        self.round().await
    }

    /// Rounds for ever: at once, periodically, and when this program left something behind. `report` is told of each
    /// round in which something was found or out of reach, or cannot be read and is new. To end it drop the future, between two answers of which it
    /// may be dropped.
    pub async fn keep_running(self, mut report: impl FnMut(&Report)) {
        let told = |round: &Report| {
            let is_news = round.unreadable.iter().any(|unreadable| unreadable.is_new);
            if !round.found.is_empty() || !round.down.is_empty() || is_news {
                report(round);
            }
        };
        self.keep_running_until(std::future::pending(), told).await;
    }

    /// As [`Recovery::keep_running`], until `end` is ready; a round that is under way then is finished, so that what was
    /// done is noted. `report` is told of every round.
    pub async fn keep_running_until(mut self, end: impl Future<Output = ()>, mut report: impl FnMut(&Report)) {
        let mut end = std::pin::pin!(end);
        loop {
            let round = self.round().await;
            report(&round);
            let next = self.settle.next_due().map_or(Duration::MAX, |due| due.since(self.now()));
            let coordinator = self.coordinator.clone();
            tokio::select! {
                biased;
                () = &mut end => return,
                () = tokio::time::sleep(next.min(Duration::from_secs(3600))) => {}
                // A moment later, for what was left because the connection broke is still being cleared away.
                () = coordinator.hurried() => {
                    tokio::time::sleep(HURRY_PAUSE).await;
                    self.settle.hurry();
                }
            }
        }
    }

    async fn round(&mut self) -> Report {
        let mut report = Report::default();
        let due = if self.is_ordered() { self.settle.due_together(self.now()) } else { self.settle.due(self.now()) };
        let asked = due.iter().filter_map(|number| Some((*number, Arc::clone(self.managers.get(*number)?))));
        let patience = self.patience;
        let lists = asked.map(|(number, manager)| async move {
            // One that hangs must not keep the others from being recovered.
            let list = timeout(patience, manager.in_doubt()).await;
            (number, list.unwrap_or_else(|_| Err(no_answer(patience))))
        });
        let mut lists: FuturesUnordered<_> = lists.collect();
        let mut answered = BTreeSet::new();
        while let Some((number, list)) = lists.next().await {
            match (list, self.managers.get(number)) {
                (Ok(InDoubt { branches, unreadable }), Some(manager)) => {
                    let prepared = branches.len() + unreadable.len();
                    (self.tell)(Progress::Answered { manager: manager.name(), prepared });
                    self.settle.listed(number, branches, self.now());
                    self.note_unreadable(number, unreadable, &mut report);
                    answered.insert(number);
                }
                (Ok(_), None) => {}
                (Err(reason), _) => {
                    let pause = self.unreachable(number);
                    self.note_down(Down { manager: self.name(number), reason, pause }, &mut report);
                }
            }
        }
        report.answered.extend(answered.into_iter().filter_map(|number| self.name(number)));
        let ids = self.settle.questions();
        if !ids.is_empty() {
            let verdicts = self.verdicts(ids, &mut report).await;
            let instructions = self.settle.instructions(&verdicts);
            self.follow(instructions, &mut report).await;
        }
        report
    }

    async fn verdicts(&mut self, ids: Vec<TransactionId>, report: &mut Report) -> Vec<(TransactionId, Action)> {
        let asked = ids.clone();
        match self.coordinator.ask(move |decisions| decisions.verdicts(&asked)).await {
            Ok(verdicts) => {
                let mut actions = Vec::with_capacity(ids.len());
                let mut questions: BTreeMap<LastResourceId, Vec<TransactionId>> = BTreeMap::new();
                for (id, verdict) in ids.into_iter().zip(verdicts) {
                    match (verdict, id.last_resource) {
                        (Verdict::Commit, _) => actions.push((id, Action::Commit)),
                        (Verdict::Rollback, None) => actions.push((id, Action::Rollback)),
                        (Verdict::LastResource, Some(last)) => questions.entry(last).or_default().push(id),
                        // What is not named is left alone.
                        _ => {}
                    }
                }
                for (last, ids) in questions {
                    actions.extend(self.ask_last(last, ids, report).await);
                }
                actions
            }
            Err(error) => {
                self.note_down(Down { manager: None, reason: error.text, pause: Duration::ZERO }, report);
                Vec::new()
            }
        }
    }

    /// Asks whoever is this last resource what it decided. Without an answer its transactions are left alone.
    async fn ask_last(
        &mut self,
        last: LastResourceId,
        ids: Vec<TransactionId>,
        report: &mut Report,
    ) -> Vec<(TransactionId, Action)> {
        let (patience, ids) = (self.patience, &ids);
        let answers = self.managers.iter().map(|manager| async move {
            let answer = timeout(patience, manager.settle_last(last, ids)).await;
            (manager.name().clone(), answer.unwrap_or_else(|_| Err(no_answer(patience))))
        });
        let answers = join_all(answers).await;
        let told = |(name, answer): &'_ (BranchName, Result<Option<Vec<bool>>, String>)| {
            Some((name.clone(), answer.as_ref().ok()?.clone()?))
        };
        let (keepers, told): (Vec<BranchName>, Vec<Vec<bool>>) = answers.iter().filter_map(told).unzip();
        if !told.is_empty() {
            let action = |(number, id): (usize, &TransactionId)| {
                let mut words = told.iter().map(|words| words.get(number).copied());
                let committed = words.next()??;
                let agree = words.all(|word| word == Some(committed));
                agree.then_some((*id, if committed { Action::Commit } else { Action::Rollback }))
            };
            let actions: Vec<_> = ids.iter().enumerate().filter_map(action).collect();
            if actions.len() < ids.len() {
                let keepers = keepers.iter().map(BranchName::as_str).collect::<Vec<_>>().join(" and ");
                let reason = format!(
                    "{keepers} do not agree about {} transactions that the last resource {:016x} decided about: one of them is a copy, \
                     whose decisions have to be removed",
                    ids.len() - actions.len(),
                    last.0
                );
                self.note_down(Down { manager: None, reason, pause: Duration::ZERO }, report);
            }
            return actions;
        }
        let failures = answers.iter().filter_map(|(name, answer)| Some(format!("{name}: {}", answer.as_ref().err()?)));
        let failures = failures.collect::<Vec<_>>().join("; ");
        let why = if failures.is_empty() { "none of these resource managers is it".to_owned() } else { failures };
        let reason = format!("the last resource {:016x} decided about {} transactions: {why}", last.0, ids.len());
        self.note_down(Down { manager: None, reason, pause: Duration::ZERO }, report);
        Vec::new()
    }

    /// Carries instructions out, commits in the order of their resource managers. As when a program commits, one that is out
    /// of reach when its turn comes holds up nobody.
    async fn follow(&mut self, instructions: Vec<Instruction>, report: &mut Report) {
        let tried: BTreeSet<(usize, TransactionId)> =
            instructions.iter().map(|instruction| (instruction.source, instruction.xid.transaction)).collect();
        let mut turns: BTreeMap<u32, Vec<Task>> = BTreeMap::new();
        for instruction in instructions {
            let Some(manager) = self.managers.get(instruction.source) else { continue };
            let order = if instruction.action == Action::Commit { manager.order() } else { 0 };
            turns.entry(order).or_default().push((instruction, Arc::clone(manager)));
        }
        for (order, tasks) in turns {
            let commits = tasks.iter().any(|(instruction, _)| instruction.action == Action::Commit);
            let first = if commits { self.prepared_before(order, &tried).await } else { BTreeMap::new() };
            let (waiting, ready): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(|(instruction, _)| {
                instruction.action == Action::Commit && first.contains_key(&instruction.xid.transaction)
            });
            for (instruction, manager) in waiting {
                let name = first.get(&instruction.xid.transaction).expect("it was just found");
                let answer = Answer::new(XaCode::Retry, format!("{name} commits first"));
                let found = self.noting().noted(instruction, &*manager, Some(answer)).await;
                report.found.push(found);
            }
            self.carry_out(ready, report).await;
        }
    }

    /// Transactions that have a branch at a resource manager that commits before `order`, of which this round does not know:
    /// it was prepared after that one was asked, and its program may be about to commit it.
    async fn prepared_before(
        &self,
        order: u32,
        tried: &BTreeSet<(usize, TransactionId)>,
    ) -> BTreeMap<TransactionId, BranchName> {
        let earlier = self.managers.iter().enumerate().filter(|(_, manager)| manager.order() < order);
        let lists = earlier.map(|(number, manager)| async move {
            (number, manager.name().clone(), timeout(self.patience, manager.in_doubt()).await)
        });
        let mut found = BTreeMap::new();
        for (number, name, list) in join_all(lists).await {
            for xid in list.ok().and_then(Result::ok).unwrap_or_default().branches {
                if !tried.contains(&(number, xid.transaction)) {
                    found.insert(xid.transaction, name.clone());
                }
            }
        }
        found
    }

    async fn carry_out(&mut self, tasks: Vec<Task>, report: &mut Report) {
        let (turns, patience) = (&Semaphore::new(CALLS_MAX), self.patience);
        let noting = &self.noting();
        let tasks = tasks.into_iter().enumerate().map(|(place, (instruction, manager))| async move {
            let answer = {
                // Nobody closes it.
                let _turn = turns.acquire().await;
                match instruction.action {
                    Action::Commit => Some(timeout(patience, manager.commit(&instruction.xid)).await),
                    Action::Rollback => Some(timeout(patience, manager.rollback(&instruction.xid)).await),
                    Action::Leave => None,
                }
            };
            let silent = |_| Answer::new(XaCode::ManagerDown, no_answer(patience));
            let answer = answer.map(|told| told.unwrap_or_else(silent));
            (place, noting.noted(instruction, &*manager, answer).await)
        });
        // Noting is part of it: while nobody waits for one of these it may hold what another waits for.
        let mut tasks: FuturesUnordered<_> = tasks.collect();
        // In the report they stand as they were asked.
        let mut found = BTreeMap::new();
        while let Some((place, one)) = tasks.next().await {
            found.insert(place, one);
        }
        report.found.extend(found.into_values());
    }

    fn noting(&mut self) -> Noting<'_> {
        let (coordinator, patience, start) = (&self.coordinator, self.patience, self.start);
        Noting { coordinator, patience, start, settle: Mutex::new(&mut self.settle), tell: Mutex::new(&mut self.tell) }
    }

    fn note_unreadable(&mut self, number: usize, names: impl IntoIterator<Item = String>, report: &mut Report) {
        let Some(manager) = self.name(number) else { return };
        let known = self.unreadable.remove(&number).unwrap_or_default();
        let names: BTreeSet<String> = names.into_iter().collect();
        for name in &names {
            let (manager, is_new) = (manager.clone(), !known.contains(name));
            let unreadable = Unreadable { manager, name: name.clone(), is_new };
            if is_new {
                (self.tell)(Progress::Unreadable(&unreadable));
            }
            report.unreadable.push(unreadable);
        }
        self.unreadable.insert(number, names);
    }

    fn note_down(&mut self, down: Down, report: &mut Report) {
        (self.tell)(Progress::Down(&down));
        report.down.push(down);
    }

    /// Whether commits have an order.
    fn is_ordered(&self) -> bool {
        self.managers.windows(2).any(|two| two.first().map(|one| one.order()) != two.last().map(|one| one.order()))
    }

    fn unreachable(&mut self, number: usize) -> Duration {
        let (now, jitter) = (self.now(), jitter());
        self.settle.unreachable(number, now, jitter)
    }

    fn name(&self, number: usize) -> Option<BranchName> {
        self.managers.get(number).map(|manager| manager.name().clone())
    }

    fn now(&self) -> Time {
        Time::default().after(self.start.elapsed())
    }
}

impl Noting<'_> {
    /// Notes what became of a branch; without an answer it was left alone.
    async fn noted(&self, instruction: Instruction, manager: &dyn ResourceManager, answer: Option<Answer>) -> Found {
        let (fate, reason) = match answer {
            None => (Fate::Left, String::new()),
            Some(answer) => {
                let (ended, may_forget) = self.note(&instruction, &answer).await;
                if ended.remembered && may_forget {
                    // One that is not forgotten now is listed and forgotten the next time.
                    let _ = timeout(self.patience, manager.forget(&instruction.xid)).await;
                }
                let unrecorded = "the coordinator could not record it, so the resource manager is to remember it";
                let reasons = [answer.reason.as_str(), if may_forget { "" } else { unrecorded }];
                let reasons = reasons.into_iter().filter(|reason| !reason.is_empty()).collect::<Vec<_>>();
                (fate_of(instruction.action, ended.end), reasons.join("; "))
            }
        };
        let found = Found { manager: manager.name().clone(), xid: instruction.xid, fate, reason };
        (lock(&self.tell))(Progress::Found(&found));
        found
    }

    /// Tells everybody what a resource manager answered. Whether it may forget that, too.
    async fn note(&self, instruction: &Instruction, answer: &Answer) -> (Ended, bool) {
        let now = Time::default().after(self.start.elapsed());
        let ended = lock(&self.settle).answered(instruction, answer.code, now, jitter());
        let (decisions, xid, end) = (self.coordinator.decisions(), instruction.xid.clone(), ended.end);
        let verdict = if instruction.action == Action::Commit { Verdict::Commit } else { Verdict::Rollback };
        if end.heuristic().is_none() {
            return (ended, note_ended(&*decisions, &xid, verdict, end));
        }
        // That waits until it is recorded.
        let noting = tokio::task::spawn_blocking(move || note_ended(&*decisions, &xid, verdict, end));
        (ended, noting.await.unwrap_or(false))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

const PATIENCE: Duration = Duration::from_secs(15);

/// Branches that are settled at the same time: each call is a connection, of which a database that was down with much in
/// doubt has not enough for all.
const CALLS_MAX: usize = 16;

/// From the end of a transaction that left something to the round that sees to it.
const HURRY_PAUSE: Duration = Duration::from_millis(100);

fn no_answer(patience: Duration) -> String {
    format!("no answer within {} ms", patience.as_millis())
}

/// The standard library seeds each of these from the operating system.
fn jitter() -> u32 {
    RandomState::new().hash_one(0) as u32
}
