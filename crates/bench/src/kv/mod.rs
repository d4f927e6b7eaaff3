//! `kv`: the key-value engine embedded, alone or beside RocksDB.
//!
//! Each repetition starts a fresh program for each side, one after the other, in alternating order. Both say what
//! they measured in the same lines of JSON: see `workload/side.rs`.
//!
//! May use: `workload`, `report.rs`. Must not know: RocksDB; its side is a program of its own, in `compare/`.

mod embedded;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

pub(crate) use embedded::{Side, run_embedded};

use crate::figures::{Bar, Unit};
use crate::place::Common;
use crate::report::{Figure, Report};
use crate::workload::{Durability, Failure, Outcome, Phase, Plan, Result};

const OURS: &str = "holdfast";
const THEIRS: &str = "rocksdb";

/// The command line of `kv`.
#[derive(Debug, Args)]
pub(crate) struct Kv {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    plan: Plan,
    /// Measure RocksDB beside it, in turn
    #[arg(long)]
    compare: bool,
    /// The program that `cargo build --release` makes in `compare/`
    #[arg(long, default_value = "compare/target/release/compare")]
    compare_program: PathBuf,
    /// Bits per key of RocksDB's Bloom filter; RocksDB's default is none, and Holdfast's ledger has one
    #[arg(long, default_value_t = 0)]
    bloom_bits: u8,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Kv) -> Result<()> {
    let plan = &line.plan;
    if line.compare && !line.compare_program.is_file() {
        let text = format!(
            "{} is not there: run `cargo build --release` in compare/ (see docs/benchmarks.md)",
            line.compare_program.display()
        );
        return Err(text.into());
    }
    line.common.need(plan.keys.saturating_mul(plan.value_bytes as u64 + 200).saturating_add(8 << 30))?;
    let mut report = Report::new("kv");
    for repetition in line.common.repetitions() {
        let mut sides = if line.compare { vec![OURS, THEIRS] } else { vec![OURS] };
        if repetition % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            let dir = line.common.fresh()?;
            let mut command = if side == OURS {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("kv-side");
                command
            } else {
                let mut command = Command::new(&line.compare_program);
                command.arg(format!("--bloom-bits={}", line.bloom_bits));
                command
            };
            command.arg("--dir").arg(dir.path()).args(plan.arguments());
            for outcome in outcomes(command)? {
                note(&mut report, side, line.compare, &outcome);
            }
        }
    }
    if line.compare && plan.durability == Durability::Written {
        for phase in [Phase::Put, Phase::Get].into_iter().filter(|phase| plan.phases.contains(phase)) {
            let work = phase.name();
            report.bar(Figure { work: &work, figure: "operations", unit: Unit::PerSecond }, Bar::RatioAtLeast(1.0));
        }
    }
    Ok(report.print(line.common.json)?)
}

/// Runs one side and reads its lines.
fn outcomes(mut command: Command) -> Result<Vec<Outcome>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or_else(|| Failure::from("a child without output"))?;
    let parse = |line: std::io::Result<String>| Ok::<_, Failure>(serde_json::from_str(&line?)?);
    let outcomes: Result<Vec<Outcome>> = BufReader::new(out).lines().map(parse).collect();
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{command:?} failed: {status}").into());
    }
    outcomes
}

fn note(report: &mut Report, side: &str, compare: bool, outcome: &Outcome) {
    let mut add = |work: &str, figure: &str, unit, sample| {
        let of = Figure { work, figure, unit };
        if compare {
            report.sides(of, [OURS, THEIRS]);
        }
        report.add(of, side, sample);
    };
    add(&outcome.phase, "operations", Unit::PerSecond, outcome.rate());
    for kind in &outcome.kinds {
        let work =
            if outcome.kinds.len() > 1 { format!("{} {}", outcome.phase, kind.kind) } else { outcome.phase.clone() };
        let latency = kind.latency;
        for (figure, nanos) in
            [("p50", latency.p50_ns), ("p99", latency.p99_ns), ("p99.9", latency.p999_ns), ("max", latency.max_ns)]
        {
            add(&work, figure, Unit::Nanos, nanos as f64);
        }
        if outcome.kinds.len() > 1 || kind.found < kind.operations {
            add(&work, "found", Unit::Count, kind.found as f64 / kind.operations.max(1) as f64);
        }
    }
}
