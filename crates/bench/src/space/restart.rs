//! Opening a store that has the entries: after a clean end, and after its program was killed.
//!
//! May use: the space, processes. Must not know: other measurements.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast::Store;

use super::{Kept, Line, document, open};
use crate::figures::{Bar, Unit};
use crate::process::Running;
use crate::report::{Figure, Report};
use crate::workload::{Failure, Result};

const FILLED: &str = "filled";
/// Millions of entries take seconds.
const FILL_TIME_MAX: Duration = Duration::from_secs(600);

/// The program that is killed, started by the benchmark.
#[derive(Debug, Args)]
pub(crate) struct Fill {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    entries: u64,
    #[arg(long)]
    payload: usize,
}

/// Opens after a kill, then after a clean end.
pub(super) fn measure(line: &Line, report: &mut Report, kept: Kept) -> Result<()> {
    if kept == Kept::Volatile {
        return Ok(());
    }
    let dir = line.common.fresh()?;
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    command.arg("space-fill").arg("--dir").arg(dir.path());
    command.arg(format!("--entries={}", line.entries)).arg(format!("--payload={}", line.payload));
    let mut filling = Running::start(&mut command, &program)?;
    filling.once_it_says(FILLED, FILL_TIME_MAX)?;
    drop(filling);
    for figure in ["open after a kill", "open after a clean end"] {
        let seconds = opened(dir.path(), kept, line.entries)?;
        let work = format!("{} entries of {} B", line.entries, line.payload);
        let of = Figure { work: &work, figure, unit: Unit::Seconds };
        report.add(of, "holdfast", seconds);
        report.bar(of, Bar::Below(2.0));
    }
    Ok(())
}

fn opened(dir: &Path, kept: Kept, entries: u64) -> Result<f64> {
    let began = Instant::now();
    let store = Store::open(dir, kept.options())?;
    let took = began.elapsed();
    let there = store.space("bench").entries("entry")?.usage().entries;
    if there != entries {
        return Err(Failure::from(format!("{there} entries of {entries} are back")));
    }
    store.close()?;
    Ok(took.as_secs_f64())
}

/// Writes the entries, says so, and waits to be killed.
pub(crate) fn fill(line: &Fill) -> Result<()> {
    let (_store, entries) = open(&line.dir, Kept::Written)?;
    for id in 0..line.entries {
        let _ = entries.write_shown(&document(id, line.payload), &Default::default())?;
    }
    entries.write(&document(0, line.payload), &Default::default())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{FILLED}")?;
    out.flush()?;
    loop {
        std::thread::park();
    }
}
