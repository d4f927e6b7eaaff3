//! `resp`: the RESP door beside Redis, both driven by redis-benchmark.
//!
//! Four servers are asked in turn, both at their fast durability (`written`, everysec) and both at their safe one (`synced`,
//! always), and the others are stopped meanwhile: what one left to its background is done in its own time. The order of
//! the two changes with each repetition.
//!
//! May use: `process.rs`, `redis_benchmark.rs`. Must not know: RESP.

mod alike;
pub(crate) mod redis_benchmark;
mod space;

pub(crate) use alike::{load as load_alike, measure as measure_alike};
pub(crate) use space::{load as load_space, measure as measure_space};

use clap::Args;

use self::redis_benchmark::{Measured, Run, Test};
use crate::client::{Client, Load};
use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::process::{Fsync, Programs, Server};
use crate::report::{Figure, Report};
use crate::workload::Result;

pub(crate) const OURS: &str = "holdfast";
pub(crate) const THEIRS: &str = "redis";

/// The command line of `resp`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    programs: Programs,
    /// Requests of one run without pipelining
    #[arg(long, default_value_t = 200_000)]
    requests: u64,
    /// Requests of one run with pipelining
    #[arg(long, default_value_t = 600_000)]
    requests_pipelined: u64,
    /// Requests of one synced run
    #[arg(long, default_value_t = 100_000)]
    requests_synced: u64,
    /// Requests that a client sends before it waits
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    pipeline: Vec<u16>,
    /// Connections
    #[arg(long, default_value_t = 50)]
    clients: u16,
    /// Number of keys, all loaded before
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,
    /// Entries of a space beside Redis' keys, instead of keys
    #[arg(long)]
    space: bool,
    /// A script that does nothing, EVAL "return 1" 0, instead of keys
    #[arg(long, conflicts_with = "space")]
    script: bool,
}

/// Ours and theirs, at one durability.
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) ours: Server,
    pub(crate) theirs: Server,
    tests: &'static [Test],
}

impl Pair {
    /// Both at the durability that leaves the disk to the system.
    pub(crate) fn written(programs: &Programs, common: &Common) -> Result<Self> {
        Ok(Self {
            name: "written / everysec",
            ours: programs.start_holdfast(common.fresh()?, "written")?,
            theirs: programs.start_redis(common.fresh()?, Fsync::EverySecond)?,
            tests: &[Test::Get, Test::Set],
        })
    }

    /// Both with everything on the disk before it is answered.
    pub(crate) fn synced(programs: &Programs, common: &Common) -> Result<Self> {
        Ok(Self {
            name: "synced / always",
            ours: programs.start_holdfast(common.fresh()?, "synced")?,
            theirs: programs.start_redis(common.fresh()?, Fsync::Always)?,
            tests: &[Test::Set],
        })
    }

    /// Both sides, the other first in every other repetition.
    pub(crate) fn sides(&self, repetition: u32) -> [(&'static str, &Server); 2] {
        let mut sides = [(OURS, &self.ours), (THEIRS, &self.theirs)];
        if repetition % 2 == 1 {
            sides.reverse();
        }
        sides
    }

    /// Ends both.
    pub(crate) fn stop(self) -> Result<()> {
        self.ours.stop()?;
        self.theirs.stop()
    }
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    let requests = line.requests + line.requests_pipelined + 2 * line.requests_synced;
    let bytes = requests * u64::from(line.common.repetitions) + 4 * line.keys;
    line.common.need(bytes.saturating_mul(2 * (line.value_bytes as u64 + 200)))?;
    let pairs = [Pair::written(&line.programs, &line.common)?, Pair::synced(&line.programs, &line.common)?];
    for server in pairs.iter().flat_map(|pair| [&pair.ours, &pair.theirs]) {
        Client::connect(server.address)?.load(Load { keys: line.keys, value_bytes: line.value_bytes })?;
    }
    if line.space {
        pairs.iter().try_for_each(|pair| space::load(pair, line.keys, line.value_bytes))?;
    }
    pairs.iter().flat_map(|pair| [&pair.ours, &pair.theirs]).try_for_each(Server::rest)?;
    let mut report = Report::new("resp");
    for repetition in line.common.repetitions() {
        for pair in &pairs {
            if line.space {
                for pipeline in &line.pipeline {
                    let requests = if pair.tests.contains(&Test::Get) { line.requests } else { line.requests_synced };
                    space::measure(pair, line.run_of(Test::Set, requests, *pipeline), repetition, &mut report)?;
                }
            } else {
                measure(line, pair, repetition, &mut report)?;
            }
        }
    }
    report.print(line.common.json.as_deref())?;
    pairs.into_iter().try_for_each(Pair::stop)
}

impl Line {
    fn run_of(&self, test: Test, requests: u64, pipeline: u16) -> Run {
        Run { test, requests, pipeline, clients: self.clients, keys: self.keys, value_bytes: self.value_bytes }
    }
}

fn measure(line: &Line, pair: &Pair, repetition: u32, report: &mut Report) -> Result<()> {
    for pipeline in &line.pipeline {
        for test in if line.script { &[Test::Eval] } else { pair.tests } {
            let requests = match (pair.tests.contains(&Test::Get), pipeline) {
                (false, _) => line.requests_synced,
                (true, 1) => line.requests,
                (true, _) => line.requests_pipelined,
            };
            let run = line.run_of(*test, requests, *pipeline);
            let work = format!("{} P={pipeline}, {}", test.name(), pair.name);
            for (side, server) in pair.sides(repetition) {
                let _awake = server.awake()?;
                let measured = run.against(server.address)?;
                tell(report, &work, side, measured);
            }
        }
    }
    Ok(())
}

/// Notes what one side came to, which has to be at least what the other does.
pub(crate) fn tell(report: &mut Report, work: &str, side: &str, measured: Measured) {
    let figures = [
        ("requests", Unit::PerSecond, measured.rate),
        ("p50", Unit::Nanos, measured.p50_ms * 1e6),
        ("p99", Unit::Nanos, measured.p99_ms * 1e6),
    ];
    for (figure, unit, sample) in figures {
        let of = Figure { work, figure, unit };
        report.sides(of, &[OURS, THEIRS]);
        report.add(of, side, sample);
    }
    report.bar(Figure { work, figure: "requests", unit: Unit::PerSecond }, Bar::RatioAtLeast(1.0));
    say(&format!("  {work}: {side} {:.0} /s", measured.rate));
}
