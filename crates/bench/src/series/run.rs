//! One side's turn at one case: start, load, count back, ask, look, stop.
//!
//! May use: all of this folder. Must not know: reports' form.

use std::time::Duration;

use base::Random;

use super::ask::{Ask, HOUR_MILLIS, Read, There};
use super::count::{Asker, Written};
use super::load;
use super::plan::{Layout, Mix, Plan};
use super::scenario::Scenario;
use super::show::{Loading, Notes};
use super::side::{Name, Side, Starter};
use super::times::{Operation, Times};
use super::{Case, Line, Work};
use crate::place::say;
use crate::workload::{Failure, Result};

/// Devices in a request of `new-series`: with 10 sensors as many points as elsewhere.
const NEW_DEVICES: u32 = 20;
/// What a server does with what it has in its buffers when nobody sends any more counts too.
const BREATH: Duration = Duration::from_secs(1);

/// What is run.
pub(super) struct Turn<'a> {
    pub(super) line: &'a Line,
    pub(super) starter: Starter<'a>,
    pub(super) case: &'a Case,
}

impl Turn<'_> {
    /// Runs it for one side, unless that has not this way in.
    pub(super) fn run(&self, name: Name, notes: &mut Notes) -> Result<()> {
        let side = self.starter.start(name)?;
        if side.doors.way(self.case.way).is_none() {
            self.case.skipped(name.name());
            return side.stop();
        }
        notes.begin(&self.case.name(), name.name());
        let blame = |failure: Failure| Failure::from(format!("{}: {}: {failure}", self.case.name(), name.name()));
        let done = match self.case.work {
            Work::Write => self.write(side, notes),
            Work::Read => self.read(side, notes),
            Work::NewSeries => self.new_series(side, notes),
        };
        done.map_err(blame)
    }

    fn plan(&self, scenario: Scenario, side: &Side) -> Plan {
        let shape = self.case.way.shape();
        Plan {
            scenario,
            way: self.case.way,
            clients: self.line.clients,
            requests: self.line.requests,
            layout: Layout::Rows(self.line.rows),
            mix: Mix { writes: 1, reads: 0 },
            reads: Read::MIX.into_iter().filter(|read| side.doors.can_ask(*read, shape)).collect(),
            rows_before: 0,
            interval: Duration::ZERO,
        }
    }

    fn write(&self, side: Side, notes: &mut Notes) -> Result<()> {
        let mut plan = self.plan(self.line.scenario(), &side);
        let rows = self.line.requests * self.line.rows;
        let written = Written { scenario: plan.scenario, shape: self.case.way.shape(), rows };
        if self.case.mix.writes == 0 {
            load::run(plan.clone(), &side.doors, self.line.means())?;
            written.count(&side.doors)?;
            plan.rows_before = rows;
        }
        plan = Plan { mix: self.case.mix, interval: self.case.interval, ..plan };
        self.load(plan, &side, notes)?;
        self.count_back(written, &side, notes)?;
        side.stop()
    }

    /// Loads, and notes what it took.
    fn load(&self, plan: Plan, side: &Side, notes: &mut Notes) -> Result<()> {
        let before = side.cpu()?;
        let loaded = load::run(plan, &side.doors, self.line.means())?;
        std::thread::sleep(BREATH);
        let cpu = side.cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
        let loading = Loading { loaded: &loaded, cpu, memory: side.memory()? };
        notes.loaded(&loading, self.case);
        Ok(())
    }

    fn count_back(&self, written: Written, side: &Side, notes: &mut Notes) -> Result<()> {
        let counted = written.count(&side.doors)?;
        notes.counted(counted);
        if counted.missing + counted.surplus == 0 {
            written.sample(&side.doors)?;
        }
        Ok(())
    }

    fn new_series(&self, side: Side, notes: &mut Notes) -> Result<()> {
        let Line { clients, sensors, new_series, .. } = *self.line;
        let each = NEW_DEVICES * sensors;
        let clients = clients.min(new_series / each).max(1);
        let requests = u64::from((new_series / each / clients).max(1));
        let devices = clients * u32::try_from(requests)? * NEW_DEVICES;
        let scenario = Scenario { devices, ..self.line.scenario() };
        let plan = Plan { clients, requests, layout: Layout::Devices(NEW_DEVICES), ..self.plan(scenario, &side) };
        self.load(plan, &side, notes)?;
        self.count_back(Written { scenario, shape: self.case.way.shape(), rows: 1 }, &side, notes)?;
        side.stop()
    }

    fn read(&self, side: Side, notes: &mut Notes) -> Result<()> {
        let scenario = self.line.scenario();
        let requests = scenario.rows_in(self.line.hours * HOUR_MILLIS).div_ceil(self.line.rows);
        let plan = Plan { requests, ..self.plan(scenario, &side) };
        let points = plan.points();
        let written = Written { scenario, shape: self.case.way.shape(), rows: requests * self.line.rows };
        self.load(plan, &side, notes)?;
        self.count_back(written, &side, notes)?;
        notes.times(&self.ask(written, &side)?);
        say("    waiting until the folder is at rest");
        side.settle()?;
        let (taken, again) = self.starter.start_again(side)?;
        if let Some(taken) = taken {
            notes.kept(taken, points);
        }
        if let Some(side) = again {
            // What is on the disk has to be everything.
            notes.counted_again(written.count(&side.doors)?);
            side.stop()?;
        }
        Ok(())
    }

    /// Asks every question many times, one after the other, and looks whether the answers are right.
    fn ask(&self, written: Written, side: &Side) -> Result<Times> {
        let mut asker = Asker::new(&side.doors)?;
        let (mut times, mut random) = (Times::default(), Random::new(self.line.seed));
        for read in Read::MIX.into_iter().chain([Read::Devices]) {
            if !side.doors.can_ask(read, written.shape) {
                continue;
            }
            // The question of all devices reads as much as hundreds of the others.
            let questions = if read == Read::Devices { self.line.questions.div_ceil(10) } else { self.line.questions };
            for _ in 0..questions {
                let device = u32::try_from(random.below(u64::from(written.scenario.devices)))?;
                let there = There { scenario: &written.scenario, device, rows: written.rows };
                let ask = Ask::any(read, written.shape, there, &mut random);
                let (found, took) = asker.ask(&ask)?;
                ask.check(&written.scenario, &found)?;
                times.add(Operation::Read(read), took)?;
            }
        }
        Ok(times)
    }
}
