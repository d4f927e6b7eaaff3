//! One run: a seed's story from an empty disk to the last check.
//!
//! May use: everything here. Must not know: command lines.

use base::hash64;
use base::memory::Fault;
use holdfast::space::Bookmark;
use holdfast::{Durability, Position, Store};

use crate::checks::views::View;
use crate::checks::{self, contents, durable, folds, indexes, live, replay, tree};
use crate::model::Model;
use crate::step;
use crate::world::Sim;
use crate::xa::{self, Said};
use crate::{series, space};

/// A property that did not hold.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which check noticed.
    pub check: &'static str,
    /// What was seen.
    pub text: String,
    /// Whether the store answered that it is unavailable: no contradiction, if a planned fault explains it.
    pub unavailable: bool,
}

pub(crate) type Check<T> = Result<T, Violation>;

pub(crate) fn violation(check: &'static str, text: String) -> Violation {
    Violation { check, text, unavailable: false }
}

/// A read that answered with an error.
pub(crate) fn refused(check: &'static str, error: &holdfast::Error) -> Violation {
    let unavailable = error.kind() == holdfast::ErrorKind::Unavailable;
    Violation { check, text: format!("{:?}: {error}", error.kind()), unavailable }
}

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Decides everything.
    pub seed: u64,
    /// How many steps.
    pub steps: u64,
    /// Whether the disk pretends to sync: then the run has to fail, which proves that the checks can.
    pub lying_disk: bool,
    /// Whether to print each step of the trace to standard error.
    pub verbose: bool,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// A hash over every operation and its result.
    pub trace: u64,
    /// Batches committed.
    pub commits: u64,
    /// Crashes survived: kills, power cuts, and reopenings after failures.
    pub crashes: u64,
    /// Segments that compaction let go.
    pub compacted: u64,
    /// Distributed transactions that were said to be committed.
    pub decided: u64,
    /// Distributed transactions that were said to be rolled back.
    pub aborted: u64,
    /// Decisions that a crash took, as it may what was not promised.
    pub undecided: u64,
}

/// Runs a seed twice and checks that both runs are the same.
///
/// # Errors
/// The first check that fails.
pub fn prove(setup: Setup) -> Result<Outcome, Violation> {
    let first = run(setup)?;
    let second = run(setup)?;
    if first != second {
        return Err(violation("determinism", format!("{first:?} then {second:?}")));
    }
    Ok(first)
}

/// Runs a seed.
///
/// # Errors
/// The first check that fails.
pub fn run(setup: Setup) -> Result<Outcome, Violation> {
    let mut sim = Sim::new(setup.seed);
    sim.disk.set_lying_syncs(setup.lying_disk);
    let store = open(&mut sim)?;
    let mut run = Run {
        sim,
        store,
        model: Model::default(),
        views: Vec::new(),
        said: Said::default(),
        heard: None,
        outcome: Outcome::default(),
        verbose: setup.verbose,
    };
    for _ in 0..setup.steps {
        run.step()?;
    }
    run.power_cut(false)?;
    contents::check(&run.store, &run.model)?;
    Ok(run.outcome)
}

/// Opens the store; with a planned fault in the way, again without.
pub(crate) fn open(sim: &mut Sim) -> Check<Store> {
    for _ in 0..3 {
        match sim.open() {
            Ok(store) if sim.disk.is_powered() => return Ok(store),
            // It went off in something that opening can do without, such as making spare space.
            Ok(store) => {
                drop(store);
                recover_disk(sim);
            }
            Err(error) if error.kind() == holdfast::ErrorKind::Unavailable => recover_disk(sim),
            Err(error) => return Err(violation("open", error.to_string())),
        }
    }
    sim.open().map_err(|error| violation("open", error.to_string()))
}

fn recover_disk(sim: &mut Sim) {
    sim.disk.clear_plan();
    sim.end_ledgers();
    if sim.disk.is_powered() {
        sim.disk.kill_process();
    } else {
        sim.disk.power_on();
    }
}

pub(crate) struct Run {
    pub(crate) sim: Sim,
    pub(crate) store: Store,
    pub(crate) model: Model,
    pub(crate) views: Vec<View>,
    pub(crate) said: Said,
    /// Where the listener stood that a crash took.
    pub(crate) heard: Option<Bookmark>,
    pub(crate) outcome: Outcome,
    verbose: bool,
}

#[expect(clippy::print_stderr, reason = "asked for, to see what a failing seed does")]
pub(crate) fn report(what: &str, number: u64) {
    eprintln!("{what} {number}");
}

/// The hash over what happened, with this behind it.
pub(crate) fn traced(trace: u64, what: &str, number: u64) -> u64 {
    let mut input = trace.to_le_bytes().to_vec();
    input.extend_from_slice(what.as_bytes());
    input.extend_from_slice(&number.to_le_bytes());
    hash64(&input)
}

impl Run {
    pub(crate) fn trace(&mut self, what: &str, number: u64) {
        if self.verbose {
            report(what, number);
        }
        self.outcome.trace = traced(self.outcome.trace, what, number);
    }

    fn step(&mut self) -> Check<()> {
        match self.sim.random.below(100) {
            0..30 => step::change(self),
            30..36 => series::step(self),
            36..50 => space::step(self),
            50..62 => xa::step(self),
            62..72 => step::read(self),
            72..78 => step::transaction(self),
            78..82 => step::view(self),
            82..88 => step::time(self),
            88..90 => self.compare(),
            90 => step::compact(self),
            91..93 => self.kill(false),
            93..95 => self.kill(true),
            95 => self.reopen_calmly(),
            96 => self.power_cut(false),
            97 => self.power_cut(true),
            98 => self.plan(Fault::Error),
            _ => {
                let fault = if self.sim.random.chance(1, 2) { Fault::Full } else { Fault::PowerCut };
                self.plan(fault)
            }
        }
    }

    /// Whether the store is in the state that its reads can be held to: after a failure it wants to be reopened.
    pub(crate) fn is_well(&self) -> bool {
        self.sim.disk.is_powered() && !self.store.stats().refuses_writes
    }

    /// Looks at everything.
    fn compare(&mut self) -> Check<()> {
        if !self.is_well() {
            return self.kill(false);
        }
        self.trace("compare", 0);
        let compared = self.compare_all();
        self.unless_struck(compared)
    }

    fn compare_all(&mut self) -> Check<()> {
        contents::check(&self.store, &self.model)?;
        indexes::check(&self.store, &self.model)?;
        let snapshot = self.store.snapshot().map_err(|error| refused("folds", &error))?;
        let expected = Model::visible_keys(&self.model.contents, snapshot.now_ms());
        let limit = 1 + usize::try_from(self.sim.random.below(20)).unwrap_or(0);
        folds::ORDERS.into_iter().try_for_each(|order| folds::check(&snapshot, order, limit, &expected))?;
        drop(snapshot);
        match tree::remove_expired(&self.store) {
            Ok(()) => tree::check(&self.store),
            Err(error) => step::explained_step(&error),
        }
    }

    /// What a check said of a store that was well before it. A planned fault may have struck meanwhile, for a read of what
    /// was just written waits until that is durable, and the wait writes and syncs: then the answer is an error, and that
    /// is not held against the store.
    pub(crate) fn unless_struck(&self, checked: Check<()>) -> Check<()> {
        checked.or_else(|found| if found.unavailable && !self.is_well() { Ok(()) } else { Err(found) })
    }

    /// Lets a fault strike at one of the next operations.
    fn plan(&mut self, fault: Fault) -> Check<()> {
        let after = self.sim.random.below(30);
        self.trace("plan", after);
        self.sim.disk.plan(after, fault);
        Ok(())
    }

    /// Replaces the store by a newly opened one, after a crash did its part.
    fn reopen(&mut self) -> Check<()> {
        self.views.clear();
        self.outcome.compacted += self.store.stats().compaction.segments;
        self.sim.end_ledgers();
        let old = self.store.clone();
        self.store = open(&mut self.sim)?;
        self.sim.disk.clear_plan();
        drop(old);
        self.outcome.crashes += 1;
        // It reads the whole journal twice.
        if self.sim.random.chance(1, 4) { live::check(&self.store, &self.sim) } else { Ok(()) }
    }

    /// The process is killed; the ledgers' folder may be lost on top.
    pub(crate) fn kill(&mut self, lose_ledgers: bool) -> Check<()> {
        let last = self.model.batches.last().map_or(Position::ZERO, |batch| batch.position);
        // Without power nothing of a ledger is read that is not at hand.
        let complete = self.sim.disk.is_powered()
            && self.store.wait(last, Durability::Written).is_ok()
            && self.store.wait(self.newest(), Durability::Written).is_ok();
        let digest = if complete { Some(replay::digest(&self.store)?) } else { None };
        self.trace("kill", last.get());
        self.sim.disk.kill_process();
        self.sim.disk.clear_plan();
        if !self.sim.disk.is_powered() {
            self.sim.disk.power_on();
            let promised = self.model.synced;
            self.reopen()?;
            return self.check_durable(promised);
        }
        if lose_ledgers {
            self.sim.lose_ledgers();
        }
        self.reopen()?;
        if let Some(digest) = digest {
            self.model.written = self.model.written.max(last);
            replay::check(&self.store, digest)?;
        }
        let promised = self.model.written;
        self.check_durable(promised)
    }

    /// What a crash has left, of objects and of decisions.
    fn check_durable(&mut self, promised: Position) -> Check<()> {
        let before: Vec<Position> = self.model.batches.iter().map(|batch| batch.position).collect();
        durable::check(&self.store, &mut self.model, promised)?;
        let decided = self.said.committed.len();
        checks::xa::check(&self.store, &mut self.said, &self.model, promised, &before)?;
        self.outcome.undecided += (decided - self.said.committed.len()) as u64;
        let heard = space::hear(self);
        self.unless_struck(heard)
    }

    fn newest(&self) -> Position {
        Position::new(self.store.watermarks().appended.get().saturating_sub(1))
    }

    fn reopen_calmly(&mut self) -> Check<()> {
        self.sim.disk.clear_plan();
        self.views.clear();
        if self.store.close().is_err() {
            return self.kill(false);
        }
        self.trace("close", 0);
        self.sim.disk.kill_process();
        self.reopen()?;
        let all = self.model.batches.last().map_or(Position::ZERO, |batch| batch.position);
        self.check_durable(all)
    }

    /// The power is cut; the ledgers' folder may be lost on top.
    pub(crate) fn power_cut(&mut self, lose_ledgers: bool) -> Check<()> {
        self.trace("power cut", 0);
        self.sim.disk.clear_plan();
        if self.sim.disk.is_powered() {
            self.sim.disk.power_cut();
        }
        self.sim.disk.power_on();
        if lose_ledgers {
            self.sim.lose_ledgers();
        }
        // What is recovered from may strike recovery too.
        match self.sim.random.below(4) {
            0 => self.plan(Fault::PowerCut)?,
            1 => self.plan(Fault::Full)?,
            _ => {}
        }
        self.reopen()?;
        let promised = self.model.synced;
        self.check_durable(promised)
    }
}
