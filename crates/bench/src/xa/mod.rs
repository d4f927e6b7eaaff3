//! `xa`: what a distributed transaction costs, in the cycles of the benchmark that LIXA ships with.
//!
//! A cycle is open, begin, commit, close, with think times between, over two resource managers that answer at once. So what is
//! measured is the transaction manager: its calls, its coordinator, its syncs. The coordinator is a server in a process of
//! its own over loopback, or in the process; programs drive either by the C interface or by the Rust one.
//!
//! May use: all of this folder. Must not know: how transactions are made.

mod coordinator;
mod cycle;
mod delayed;
mod dummy;
mod price;
mod rust;
mod timing;
mod words;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use holdfast::{Dial, Durability};

use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::report::{Figure, Report};
use crate::workload::{Failure, Result, seconds};

use crate::cost::Cost;
pub(crate) use coordinator::{Serve, serve};
use coordinator::{Served, Serving};
pub(crate) use price::{Price, price};
use timing::{Call, Timing};
use words::window;

/// The command line of `xa`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    /// Threads; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "12,20,40", value_parser = clap::value_parser!(u16).range(1..=1000))]
    threads: Vec<u16>,
    /// How long programs think between calls
    #[arg(long, value_enum, default_value_t = Think::Extreme)]
    think: Think,
    /// Whether each cycle opens and closes; online unless said. Of the C interface: the Rust one has nothing to open
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Where the coordinator is
    #[arg(long, value_enum, default_value_t = Place::Remote)]
    coordinator: Place,
    /// How programs drive it; by the C interface unless said, an embedded one by the Rust interface
    #[arg(long, value_enum)]
    interface: Option<Interface>,
    /// Loss window: 0 syncs each decision with its group, `written` leaves it to the operating system, otherwise MAX or
    /// MIN,MAX in milliseconds or with a unit: 5, 5ms, max=5ms, 1,10, min=1ms,max=10ms
    #[arg(long, default_value = "0", value_parser = window)]
    window: Durability,
    /// Added to each sync of the coordinator, in milliseconds or with a unit: a slower disk. Not of an embedded one by the C
    /// interface, where the library opens the store
    #[arg(long, default_value = "0", value_parser = words::time)]
    sync_delay: Duration,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
}

/// How long programs think: t1 between calls, t2 between cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Think {
    /// Not at all.
    None,
    /// t1 500 to 1500 us, t2 50 to 150 ms.
    Medium,
    /// t1 500 to 1500 us, t2 5 to 15 ms.
    High,
    /// Both 500 to 1500 us.
    Extreme,
}

/// What a cycle consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Open, begin, commit, close.
    Online,
    /// Begin, commit; opened once.
    Batch,
}

/// Where the coordinator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// In the process.
    Embedded,
    /// A server over loopback.
    Remote,
}

/// How programs drive the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Interface {
    /// `tm`, with a runtime in each thread.
    Rust,
    /// TX, with a thread of control in each thread.
    C,
}

impl Think {
    /// The shortest t1 and t2; the longest are three times as long.
    fn least(self) -> (Duration, Duration) {
        let t1 = Duration::from_micros(500);
        match self {
            Self::None => (Duration::ZERO, Duration::ZERO),
            Self::Medium => (t1, Duration::from_millis(50)),
            Self::High => (t1, Duration::from_millis(5)),
            Self::Extreme => (t1, t1),
        }
    }
}

/// What one measurement came to.
struct Measured {
    timing: Timing,
    seconds: f64,
    cost: Cost,
    /// What a cycle's thinking takes of the programs' processor time, where that was measured.
    thinking: Option<Duration>,
    /// Where the store is in reach.
    served: Option<Served>,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    line.check()?;
    let mut report = Report::new("xa");
    for _ in line.common.repetitions() {
        for threads in &line.threads {
            let work = line.work(*threads);
            say(&format!("  {work}"));
            let dir = line.common.fresh()?;
            let measured = match (line.interface(), line.coordinator) {
                (Interface::C, Place::Remote) => line.remote(dir.path(), *threads)?,
                (Interface::C, Place::Embedded) => line.within(dir.path(), *threads)?,
                (Interface::Rust, _) => rust::measure(dir.path(), line, *threads)?,
            };
            tell(&mut report, &work, &measured);
        }
    }
    for threads in &line.threads {
        line.bars(&mut report, *threads);
    }
    report.print(line.common.json.as_deref())
}

impl Line {
    fn interface(&self) -> Interface {
        self.interface.unwrap_or(match self.coordinator {
            Place::Embedded => Interface::Rust,
            Place::Remote => Interface::C,
        })
    }

    fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Online)
    }

    /// What is said that could only be ignored.
    fn check(&self) -> Result<()> {
        let refused = match (self.interface(), self.coordinator) {
            (Interface::Rust, _) if self.mode.is_some() => {
                "--mode is of the C interface: in Rust a program opens its coordinator once, and a cycle opens nothing"
            }
            (Interface::C, Place::Embedded) if !self.sync_delay.is_zero() => {
                "--sync-delay is not for an embedded coordinator by the C interface: the library opens the store itself"
            }
            _ => return Ok(()),
        };
        Err(Failure::from(refused))
    }

    fn work(&self, threads: u16) -> String {
        let word = |choice: &dyn std::fmt::Debug| format!("{choice:?}").to_lowercase();
        let (place, interface) = (word(&self.coordinator), word(&self.interface()));
        let delay = match self.sync_delay {
            Duration::ZERO => String::new(),
            delay => format!(", sync +{} ms", delay.as_secs_f64() * 1e3),
        };
        let mode = match self.interface() {
            Interface::C => format!("{}, ", word(&self.mode())),
            Interface::Rust => String::new(),
        };
        format!("{place} by {interface}, {}{delay}, {mode}{}, {threads} threads", self.window, word(&self.think))
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn remote(&self, dir: &Path, threads: u16) -> Result<Measured> {
        let serving = Serving::start(dir, self.window, self.sync_delay)?;
        let profile = dummy::profile(dir, &format!("servers = [\"{}\"]", serving.address))?;
        cycle::warm_up(&profile)?;
        let (before, began, paid) = (serving.served()?, Instant::now(), Cost::now(Some(serving.pid()))?);
        let timing = cycle::run(threads, self.think, self.mode(), self.time())?;
        let seconds = began.elapsed().as_secs_f64();
        let cost = Cost::now(Some(serving.pid()))? - paid;
        let served = serving.served()? - before;
        serving.stop()?;
        Ok(Measured { timing, seconds, cost, thinking: self.thinking(threads)?, served: Some(served) })
    }

    /// With the coordinator in the process, where the library opens it, and closes it when the process ends.
    fn within(&self, dir: &Path, threads: u16) -> Result<Measured> {
        let (store, durability) = (dir.join("coordinator"), Dial(self.window));
        let place = format!("directory = \"{}\"\ndurability = \"{durability}\"", store.display());
        let profile = dummy::profile(dir, &place)?;
        cycle::warm_up(&profile)?;
        let (began, paid) = (Instant::now(), Cost::now(None)?);
        let timing = cycle::run(threads, self.think, self.mode(), self.time())?;
        let (seconds, cost) = (began.elapsed().as_secs_f64(), Cost::now(None)? - paid);
        Ok(Measured { timing, seconds, cost, thinking: self.thinking(threads)?, served: None })
    }

    fn thinking(&self, threads: u16) -> Result<Option<Duration>> {
        if self.think == Think::None {
            return Ok(None);
        }
        let before = Cost::now(None)?;
        let timing = cycle::think_alone(threads, self.think, self.mode(), self.time() / 2)?;
        let cycles = u32::try_from(timing.cycles).unwrap_or(u32::MAX).max(1);
        Ok(Some((Cost::now(None)? - before).own / cycles))
    }

    /// What must be reached, where something was said of it.
    fn bars(&self, report: &mut Report, threads: u16) {
        let work = self.work(threads);
        let micros = |figure: &'static str, most: f64| (figure, Unit::Nanos, Bar::Below(most * 1e3));
        let mut bars = Vec::new();
        let synced = self.window == Durability::Synced;
        let remote = self.coordinator == Place::Remote && self.interface() == Interface::C;
        let embedded = self.coordinator == Place::Embedded && self.interface() == Interface::Rust;
        match (self.think, !self.sync_delay.is_zero()) {
            (Think::Extreme, false) if remote && synced => {
                bars.push(("share of what thinking allows", Unit::Count, Bar::AtLeast(0.95)));
                bars.push(micros("CPU per transaction", 120.0));
                bars.extend(match threads {
                    12 => Some(micros("total p95", 1_000.0)),
                    20 => Some(micros("total p95", 1_500.0)),
                    40 => Some(micros("total p95", 3_000.0)),
                    _ => None,
                });
            }
            (Think::Extreme, true) if remote && synced => bars.extend(match threads {
                4 => Some(micros("total p95", 3_500.0)),
                40 => Some(micros("total p95", 6_000.0)),
                _ => None,
            }),
            (Think::None, false) if remote && threads == 40 => {
                let least = if synced { 30_000.0 } else { 60_000.0 };
                bars.push(("transactions", Unit::PerSecond, Bar::AtLeast(least)));
                if synced {
                    bars.push(("syncs per transaction", Unit::Count, Bar::Below(0.1)));
                }
            }
            (Think::None, false) if embedded && threads == 1 && self.window == Durability::Written => {
                bars.push(micros("total p50", 10.0));
            }
            _ => {}
        }
        for (figure, unit, bar) in bars {
            report.bar(Figure { work: &work, figure, unit }, bar);
        }
    }
}

fn tell(report: &mut Report, work: &str, measured: &Measured) {
    let mut add = |figure: &str, unit: Unit, sample: f64| report.add(Figure { work, figure, unit }, "holdfast", sample);
    let timing = &measured.timing;
    let transactions = timing.cycles as f64;
    add("transactions", Unit::PerSecond, transactions / measured.seconds);
    if timing.thought > Duration::ZERO {
        let calls = Duration::from_nanos(timing.total_nanos());
        let share = timing.thought.as_secs_f64() / (timing.thought + calls).as_secs_f64();
        add("share of what thinking allows", Unit::Count, share);
    }
    for (name, call) in Call::NAMES {
        let times = timing.of(call);
        if times.is_empty() {
            continue;
        }
        for (figure, quantile) in
            [("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("p98", 0.98), ("p99", 0.99)]
        {
            add(&format!("{name} {figure}"), Unit::Nanos, times.value_at_quantile(quantile) as f64);
        }
        add(&format!("{name} mean"), Unit::Nanos, times.mean());
        add(&format!("{name} deviation"), Unit::Nanos, times.stdev());
    }
    let each = |of: f64| of / transactions.max(1.0);
    add("CPU per transaction", Unit::Nanos, each(measured.cost.cpu.as_nanos() as f64));
    add("CPU of the programs", Unit::Nanos, each(measured.cost.own.as_nanos() as f64));
    if let Some(thinking) = measured.thinking {
        add("CPU of thinking alone", Unit::Nanos, thinking.as_nanos() as f64);
    }
    let Some(Served { batches, writes, syncs }) = measured.served else { return };
    add("syncs per transaction", Unit::Count, each(syncs as f64));
    add("syncs", Unit::PerSecond, syncs as f64 / measured.seconds);
    add("disk operations", Unit::PerSecond, (writes + syncs) as f64 / measured.seconds);
    add("batches per transaction", Unit::Count, each(batches as f64));
}
