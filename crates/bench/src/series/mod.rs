//! `series`: points in and answers out, by five ways in and three query languages, beside other time series databases.
//!
//! The scenario is iot-benchmark's: each client is a device with some sensors, sends rows of points in requests, and asks about
//! what it sent. Whatever was sent is counted back, series by series.
//!
//! May use: all of this folder. Must not know: protocols.

mod ask;
mod client;
mod count;
mod doors;
mod family;
pub(crate) mod http;
mod load;
mod plan;
mod programs;
mod run;
mod scenario;
mod show;
mod side;
mod times;
mod way;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::place::{Common, say};
use crate::report::Report;
use crate::workload::{Durability, Result};
use ask::Language;
use doors::At;
use load::Means;
use plan::Mix;
use programs::Programs;
use run::Turn;
use scenario::Scenario;
use show::Notes;
use side::{Name, Starter};
use way::Way;

/// The command line of `series`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    programs: Programs,
    /// What is compared; ratios are the first by another
    #[arg(long, value_enum, value_delimiter = ',', default_value = "holdfast,victoriametrics,influxdb")]
    sides: Vec<Name>,
    /// The server of the side `at`: telnet=HOST:PORT,line=..,write=..,put=..,json=..,query=..,in=opentsdb+influxql+promql,pid=N,dir=PATH
    #[arg(long, value_name = "DOORS")]
    at: Option<At>,
    /// What to measure, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "write,read,new-series")]
    work: Vec<Work>,
    /// Ways in
    #[arg(long, value_enum, value_delimiter = ',', default_value = "line,telnet,line-http,put,json")]
    ways: Vec<Way>,
    /// Clients, which are devices
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Sensors of a device
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    sensors: u32,
    /// Rows of a request
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rows: u64,
    /// Requests of a client in `write`
    #[arg(long, default_value_t = 100)]
    requests: u64,
    /// Milliseconds from row to row
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    step: u32,
    /// Writes to questions in `write`; with 0:1 as many requests are written before
    #[arg(long, value_delimiter = ',', default_value = "1:0,9:1")]
    ratio: Vec<Mix>,
    /// Least milliseconds between the beginnings of a client's requests in `write`
    #[arg(long, value_delimiter = ',', default_value = "0,10")]
    interval: Vec<u64>,
    /// Hours that are written in `read`
    #[arg(long, default_value_t = 21)]
    hours: u64,
    /// The way in by which they are written; points are named by it
    #[arg(long, value_enum, value_delimiter = ',', default_value = "line-http")]
    read_ways: Vec<Way>,
    /// How often each question is asked in `read`, by one caller
    #[arg(long, default_value_t = 300)]
    questions: u32,
    /// Series of `new-series`
    #[arg(long, default_value_t = 200_000)]
    new_series: u32,
    /// What Holdfast is asked in: the first language that can ask something does
    #[arg(long, value_enum, value_delimiter = ',', default_value = "opentsdb,influxql")]
    holdfast_reads: Vec<Language>,
    /// When Holdfast answers a write
    #[arg(long, value_enum, default_value_t = Durability::Written)]
    durability: Durability,
    /// Threads of the client side
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    client_threads: u32,
    /// MiB of requests that are made before they are sent
    #[arg(long, default_value_t = 512)]
    ahead_mib: u32,
    /// Seed of values and of what is asked
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    /// All clients write, and ask, as fast as they can or at their pace.
    Write,
    /// Much is written once; then one caller asks; then bytes on the disk.
    Read,
    /// The first point of many series.
    NewSeries,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    if line.sides.iter().enumerate().any(|(at, side)| line.sides.iter().skip(at + 1).any(|other| other == side)) {
        return Err("--sides names a side twice".into());
    }
    let most = line.rows * line.requests.max(1);
    let rows = most.max(line.scenario().rows_in(line.hours * ask::HOUR_MILLIS));
    let points = u64::from(line.clients) * u64::from(line.sensors) * rows;
    // The journal of a side that keeps points as text would take more, and none does.
    line.common.need(points.saturating_mul(40).saturating_add(1 << 30))?;
    let mut notes = Notes::new(Report::new("series"), line.sides.iter().map(|side| side.name()).collect());
    let starter = Starter {
        programs: &line.programs,
        common: &line.common,
        durability: line.durability,
        languages: &line.holdfast_reads,
        at: line.at.as_ref(),
    };
    for repetition in line.common.repetitions() {
        let mut order = line.sides.clone();
        order.rotate_left(usize::try_from(repetition)? % line.sides.len().max(1));
        for work in &line.work {
            for case in line.cases(*work) {
                for name in &order {
                    let turn = Turn { line, starter, case: &case };
                    turn.run(*name, &mut notes)?;
                }
            }
        }
    }
    notes.bars();
    notes.print(line.common.json.as_deref())
}

/// One thing that is measured, of all sides in turn.
#[derive(Debug, Clone)]
struct Case {
    work: Work,
    way: Way,
    mix: Mix,
    interval: Duration,
}

impl Line {
    fn scenario(&self) -> Scenario {
        Scenario { seed: self.seed, devices: self.clients, sensors: self.sensors, step_millis: self.step }
    }

    fn means(&self) -> Means {
        let ahead_bytes = usize::try_from(self.ahead_mib).unwrap_or(usize::MAX >> 20) << 20;
        Means { threads: self.client_threads, ahead_bytes }
    }

    fn cases(&self, work: Work) -> Vec<Case> {
        let only_writes = Mix { writes: 1, reads: 0 };
        let simple = |way: &Way| Case { work, way: *way, mix: only_writes, interval: Duration::ZERO };
        match work {
            Work::Read => self.read_ways.iter().map(simple).collect(),
            Work::NewSeries => self.ways.iter().map(simple).collect(),
            Work::Write => {
                let mut cases = Vec::new();
                for way in &self.ways {
                    for mix in &self.ratio {
                        for interval in &self.interval {
                            cases.push(Case { mix: *mix, interval: Duration::from_millis(*interval), ..simple(way) });
                        }
                    }
                }
                cases
            }
        }
    }
}

impl Case {
    fn name(&self) -> String {
        let way = self.way.name();
        match self.work {
            Work::Write => format!("{way}, {}, {} ms", self.mix, self.interval.as_millis()),
            Work::Read => format!("read, by {way}"),
            Work::NewSeries => format!("new series, {way}"),
        }
    }

    fn skipped(&self, side: &str) {
        say(&format!("  {}: {side} has no such way in", self.name()));
    }
}
