//! `kv`: the volume tests of leveled and Riak over Holdfast, embedded or over RESP, alone or beside other stores.
//!
//! Each repetition starts a fresh program for each store, one after the other, in rotating order. All say what they
//! measured in the same lines of JSON: see `workload/outcome.rs`.
//!
//! May use: `workload`, `report.rs`. Must not know: any store.

mod drivers;
mod embedded;
mod server;
mod show;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::json;

pub(crate) use drivers::{Side, run_side};

use self::drivers::{Name, Started};
use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::report::{Figure, Report};
use crate::workload::{Durability, Failure, Plan, Result, Said, Workload};

/// Room for what is overwritten before it is removed.
const SLACK_BYTES: u64 = 4 << 30;

/// The command line of `kv`.
#[derive(Debug, Args)]
pub(crate) struct Kv {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    plan: Plan,
    /// Stores to measure in turn, of which the first is ours: holdfast, resp (our server), resp:HOST:PORT, redis,
    /// rocksdb, blobdb, fjall
    #[arg(long, visible_alias = "driver", value_delimiter = ',', default_value = "holdfast")]
    drivers: Vec<Name>,
    #[command(flatten)]
    started: Started,
}

/// One run of one store.
struct Turn<'a> {
    line: &'a Kv,
    names: &'a [String],
    name: &'a str,
    repetition: u32,
    clients: u16,
}

/// Where results go.
struct Sinks {
    report: Report,
    json: Option<File>,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Kv) -> Result<()> {
    let plan = &line.plan;
    line.started.check(&line.drivers)?;
    let object = plan.value.mean_bytes().saturating_add(200);
    line.common.need(plan.objects.saturating_mul(object).saturating_mul(2).saturating_add(SLACK_BYTES))?;
    let open =
        |path: &PathBuf| File::create(path).map_err(|error| Failure::from(format!("{}: {error}", path.display())));
    let json = line.common.json.as_ref().map(open).transpose()?;
    let mut sinks = Sinks { report: Report::new("kv"), json };
    let names: Vec<String> = line.drivers.iter().map(ToString::to_string).collect();
    for repetition in line.common.repetitions() {
        let mut order: Vec<(&Name, &String)> = line.drivers.iter().zip(&names).collect();
        let first = usize::try_from(repetition)? % order.len().max(1);
        order.rotate_left(first);
        for clients in &plan.clients {
            let plan = Plan { clients: vec![*clients], ..plan.clone() };
            for (driver, name) in &order {
                let mut ready = line.started.ready(driver, &line.common, &plan)?;
                let turn = Turn { line, names: &names, name, repetition, clients: *clients };
                turn.run(&mut ready.command, &mut sinks)?;
                ready.end()?;
            }
        }
    }
    bars(line, &names, &mut sinks.report);
    if let Some(file) = &sinks.json {
        sinks.report.write_json(file)?;
    }
    sinks.report.print_table()
}

/// What is promised: not to be slower than RocksDB where neither syncs.
fn bars(line: &Kv, names: &[String], report: &mut Report) {
    let promised = matches!(names, [first, second, ..] if first == "holdfast" && second == "rocksdb");
    if !promised || line.plan.durability != Durability::Written {
        return;
    }
    for workload in [Workload::Update, Workload::Get].into_iter().filter(|w| line.plan.workloads.contains(w)) {
        for clients in &line.plan.clients {
            let work = show::work(&workload.name(), *clients, &line.plan);
            let of = Figure { work: &work, figure: show::OPERATIONS, unit: Unit::PerSecond };
            report.bar(of, Bar::RatioAtLeast(1.0));
        }
    }
}

impl Turn<'_> {
    /// Runs one side and passes on what it says.
    fn run(&self, command: &mut Command, sinks: &mut Sinks) -> Result<()> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or_else(|| Failure::from("a child without output"))?;
        let mut shown = String::new();
        let heard = BufReader::new(out).lines().try_for_each(|text| {
            let said: Said = serde_json::from_str(&text?)?;
            self.pass_on(&said, &mut shown, sinks)
        });
        if heard.is_err() {
            // It may have ended already; its failure, if it has one, is the more telling.
            let _ = child.kill();
        }
        let status = child.wait()?;
        heard?;
        if status.success() { Ok(()) } else { Err(format!("{} failed: {status}", self.name).into()) }
    }

    fn pass_on(&self, said: &Said, shown: &mut String, sinks: &mut Sinks) -> Result<()> {
        let plan = &self.line.plan;
        if let Some(file) = &mut sinks.json {
            let (store, repetition, clients) = (self.name, self.repetition, self.clients);
            let amplification = match said {
                Said::Interval(outcome) | Said::Outcome(outcome) => {
                    json!({"write": outcome.used.write_amplification(), "space": outcome.used.space_amplification()})
                }
                Said::Skipped { .. } => json!(null),
            };
            let line = json!({"bench": "kv", "store": store, "repetition": repetition, "clients": clients,
                "durability": format!("{:?}", plan.durability).to_lowercase(), "amplification": amplification,
                "said": said});
            writeln!(file, "{line}")?;
        }
        match said {
            Said::Interval(outcome) => {
                if *shown != outcome.workload {
                    let head = format!(
                        "{}, repetition {}, {} clients: {}\n{}",
                        self.name,
                        self.repetition + 1,
                        self.clients,
                        outcome.workload,
                        show::INTERVAL_HEAD
                    );
                    writeln!(std::io::stdout().lock(), "{head}")?;
                    outcome.workload.clone_into(shown);
                }
                Ok(write!(std::io::stdout().lock(), "{}", show::interval(outcome))?)
            }
            Said::Outcome(outcome) => {
                let work = show::work(&outcome.workload, self.clients, plan);
                let sides: Vec<&str> = self.names.iter().map(String::as_str).collect();
                for (work, figure, unit, sample) in show::figures(&work, outcome) {
                    let of = Figure { work: &work, figure, unit };
                    sinks.report.sides(of, &sides);
                    sinks.report.add(of, self.name, sample);
                }
                say(&format!("  {work}: {} {:.0} /s", self.name, outcome.rate()));
                Ok(())
            }
            Said::Skipped { workload, reason } => {
                say(&format!("  {workload}: {}: {reason}", self.name));
                Ok(())
            }
        }
    }
}
