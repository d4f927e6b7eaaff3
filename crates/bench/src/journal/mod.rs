//! `journal`: the journal alone, without store or engine.
//!
//!   sync      one writer, synced: append and wait, against a bare write and sync of a prepared file, beside it
//!   writers   synced, by number of writers: batches a second, and how many share a sync
//!   written   one writer, never synced: waiting for each batch, and for every 64th and 1024th
//!
//! May use: `journal`, `base`. Must not know: stores.

mod bare;
mod opened;
mod sync;
mod writers;
mod written;

use clap::{Args, ValueEnum};

use crate::place::Common;
use crate::report::Report;
use crate::workload::Result;

const OURS: &str = "journal";

/// The command line of `journal`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    /// Parts to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sync,writers,written")]
    parts: Vec<Part>,
    /// Bytes of each batch
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_bytes: u32,
    /// Syncs measured in each repetition of `sync`
    #[arg(long, default_value_t = 2_000)]
    syncs: u32,
    /// Numbers of writers
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    writers: Vec<u16>,
    /// Seconds for each number of writers
    #[arg(long, default_value_t = 1.0, value_parser = crate::workload::seconds)]
    seconds: f64,
    /// Batches in each repetition of `written`
    #[arg(long, default_value_t = 1_000_000)]
    batches: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Sync,
    Writers,
    Written,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    line.common.need(line.batches.saturating_mul(u64::from(line.batch_bytes) + 96).max(4 << 30))?;
    let mut report = Report::new("journal");
    for repetition in line.common.repetitions() {
        for part in &line.parts {
            match part {
                Part::Sync => sync::measure(line, repetition, &mut report)?,
                Part::Writers => writers::measure(line, &mut report)?,
                Part::Written => written::measure(line, &mut report)?,
            }
        }
    }
    report.print(line.common.json.as_deref())
}
