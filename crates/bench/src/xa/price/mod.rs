//! `xa-price`: what atomicity costs. The same statements in PostgreSQL and MariaDB, as one distributed transaction and as two
//! local ones that know nothing of each other.
//!
//! All sides run in one repetition, in an order that changes, on the same database servers, with the same connections' number
//! and everything synced: both databases flush each commit, and so does the coordinator, which is a server in a process of
//! its own.
//!
//! May use: all of this folder, the coordinator of `xa`. Must not know: statements, how databases are started.

mod phases;
mod timed;
mod work;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast::Durability;
use tm::{Remote, RemoteOptions};

use super::coordinator::Serving;
use crate::databases::Databases;
use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::report::{Figure, Report};
use crate::workload::{Failure, Result, seconds};

use phases::{Phase, Phases};
use work::{Side, Worker};

/// A distributed transaction may take so many times as long as two local ones.
const PRICE_MAX: f64 = 1.6;
/// Who decides.
const WORKS: [(Side, &str); 2] =
    [(Side::Atomic, "the coordinator decides"), (Side::AtomicLast, "PostgreSQL is the last resource")];
/// Of each side, before anything is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// The command line of `xa-price`.
#[derive(Debug, Args)]
pub(crate) struct Price {
    #[command(flatten)]
    common: Common,
    /// Programs at the same time, each with a thread and connections of its own; several numbers are measured one after the
    /// other
    #[arg(long, value_delimiter = ',', default_value = "8", value_parser = clap::value_parser!(u16).range(1..=80))]
    threads: Vec<u16>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// A PostgreSQL that is there, as "host=... user=... dbname=..."; a schema `holdfast_bench` is made and removed in it.
    /// Unless said one is started
    #[arg(long, value_name = "CONNECTION", requires = "mariadb")]
    postgres: Option<String>,
    /// A MariaDB that is there, as mysql://user:password@host:port; a database `holdfast_bench` is made and removed in it
    #[arg(long, value_name = "URL", requires = "postgres")]
    mariadb: Option<String>,
}

/// Runs the benchmark.
pub(crate) fn price(line: &Price) -> Result<()> {
    let folder = line.common.fresh()?;
    let databases = match (&line.postgres, &line.mariadb) {
        (Some(postgres), Some(mariadb)) => Databases::there(postgres, mariadb)?,
        _ => Databases::start(&folder)?,
    };
    databases.fill()?;
    let mut report = Report::new("xa-price");
    let serving = Serving::start(folder.path(), Durability::Synced, Duration::ZERO)?;
    let remote = Arc::new(Remote::open(RemoteOptions::new(&serving.address.to_string()))?);
    for repetition in line.common.repetitions() {
        for threads in &line.threads {
            // The two local ones are measured once for both.
            let works = WORKS.map(|(side, what)| (side, format!("PostgreSQL and MariaDB, {what}, {threads} threads")));
            for side in in_turn(repetition) {
                say(&format!("  {threads} threads: {side:?}"));
                let run = |time| line.run(*threads, time, side, &databases, &remote);
                run(WARM_UP)?;
                let began = Instant::now();
                let phases = run(Duration::from_secs_f64(line.seconds))?;
                let took = began.elapsed();
                for (_, work) in works.iter().filter(|(of, _)| *of == side || !side.is_atomic()) {
                    tell(&mut report, work, side, &phases, took);
                }
            }
            for (_, work) in &works {
                let mean = Figure { work, figure: "transaction mean", unit: Unit::Nanos };
                report.bar(mean, Bar::RatioBelow(PRICE_MAX));
            }
        }
    }
    databases.empty()?;
    drop(remote);
    serving.stop()?;
    report.print(line.common.json.as_deref())
}

/// All sides, another one first in each repetition.
fn in_turn(repetition: u32) -> impl Iterator<Item = Side> {
    let first = repetition as usize % Side::ALL.len();
    Side::ALL.into_iter().cycle().skip(first).take(Side::ALL.len())
}

impl Price {
    fn run(
        &self,
        threads: u16,
        time: Duration,
        side: Side,
        databases: &Databases,
        remote: &Arc<Remote>,
    ) -> Result<Phases> {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let worker = Worker::new(number, side, databases.clone(), Arc::clone(remote));
                thread::spawn(move || worker.run(time))
            })
            .collect();
        let mut all = Phases::default();
        for worker in workers {
            all.add(&worker.join().map_err(|_| Failure::from("a program panicked"))??);
        }
        Ok(all)
    }
}

fn tell(report: &mut Report, work: &str, side: Side, phases: &Phases, took: Duration) {
    let names = [Side::Atomic, Side::Local, Side::LocalAtOnce].map(Side::name);
    let mut add = |figure: &str, unit: Unit, sample: f64| {
        let of = Figure { work, figure, unit };
        report.sides(of, &names);
        report.add(of, side.name(), sample);
    };
    let total = phases.of(Phase::Transaction);
    add("transaction mean", Unit::Nanos, total.mean());
    for (figure, quantile) in [("transaction p50", 0.5), ("transaction p95", 0.95)] {
        add(figure, Unit::Nanos, total.value_at_quantile(quantile) as f64);
    }
    add("transactions", Unit::PerSecond, total.len() as f64 / took.as_secs_f64());
    for (phase, name) in Phase::NAMES {
        let times = phases.of(phase);
        if phase != Phase::Transaction && !times.is_empty() {
            add(&format!("{name} p50"), Unit::Nanos, times.value_at_quantile(0.5) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_comes_once_and_each_is_first_in_turn() {
        let firsts: Vec<Side> = (0..4).filter_map(|repetition| in_turn(repetition).next()).collect();
        assert_eq!(firsts, Side::ALL);
        let all: Vec<Side> = in_turn(2).collect();
        assert_eq!(all, [Side::ALL[2], Side::ALL[3], Side::ALL[0], Side::ALL[1]]);
    }
}
