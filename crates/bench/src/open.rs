//! `open`: how long a store with a large journal takes to open, after its writer was killed and after a clean stop.
//!
//! The writer is a child that fills the store, says so, and goes on writing until it is killed, so that the kill meets
//! it at work. Later repetitions write a little more and are killed again; the journal stays large.
//!
//! May use: `holdfast`. Must not know: what opening does.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast::{Durability, Options, PutOptions, Store};

use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::report::{Figure, Report};
use crate::workload::{Failure, Result, Values};

const OURS: &str = "holdfast";
const BUCKET: &[u8] = b"bench";
/// What the child says when it has filled the store.
const FILLED: &str = "filled";
/// How long the writer goes on until it is killed.
const GOES_ON: Duration = Duration::from_millis(300);
/// Written again before each later kill.
const MORE_BYTES: u64 = 64 << 20;
const KILLED_SECONDS_MAX: f64 = 2.0;

/// The command line of `open`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    /// Bytes of values to fill the store with, in GiB
    #[arg(long, default_value_t = 10.0)]
    gib: f64,
    /// Bytes of each value
    #[arg(long, default_value_t = 8192)]
    value_bytes: usize,
    /// Empty the page cache before each opening, as after a power cut; only root may
    #[arg(long)]
    drop_caches: bool,
}

/// The command line of the child.
#[derive(Debug, Args)]
pub(crate) struct Fill {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    bytes: u64,
    #[arg(long)]
    value_bytes: usize,
    #[arg(long)]
    first: u64,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    let bytes = (line.gib * (1u64 << 30) as f64) as u64;
    line.common.need(bytes + bytes / 8 + (2 << 30))?;
    let dir = line.common.fresh()?;
    let mut report = Report::new("open");
    let mut first = 0;
    for repetition in line.common.repetitions() {
        let fill = if repetition == 0 { bytes } else { MORE_BYTES };
        let keys = fill.div_ceil(line.value_bytes.max(1) as u64);
        fill_and_kill(line, dir.path(), fill, first)?;
        let store = timed_open(line, dir.path(), "after kill -9", &mut report)?;
        let size = Figure { work: "after kill -9", figure: "journal", unit: Unit::Bytes };
        report.add(size, OURS, store.stats().journal_bytes as f64);
        // The promise of `written`: everything that was acknowledged is there.
        for number in [first, first + keys / 2, first + keys - 1] {
            let found = store.kv().get(BUCKET, &number.to_be_bytes())?;
            if found.is_none_or(|object| object.value.len() != line.value_bytes) {
                return Err(format!("object {number} was acknowledged and is gone").into());
            }
        }
        let closing = Instant::now();
        store.close()?;
        drop(store);
        let stop = Figure { work: "clean stop", figure: "time", unit: Unit::Seconds };
        report.add(stop, OURS, closing.elapsed().as_secs_f64());
        let store = timed_open(line, dir.path(), "after clean stop", &mut report)?;
        store.close()?;
        first += keys;
    }
    let killed = Figure { work: "after kill -9", figure: "time to open", unit: Unit::Seconds };
    report.bar(killed, Bar::Below(KILLED_SECONDS_MAX));
    report.print(line.common.json.as_deref())
}

fn options() -> Options {
    Options { durability: Durability::Written, ..Options::default() }
}

fn timed_open(line: &Line, dir: &Path, work: &str, report: &mut Report) -> Result<Store> {
    if line.drop_caches {
        rustix::fs::sync();
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    let began = Instant::now();
    let store = Store::open(dir, options())?;
    let seconds = began.elapsed().as_secs_f64();
    say(&format!("  {work}: {seconds:.3} s"));
    report.add(Figure { work, figure: "time to open", unit: Unit::Seconds }, OURS, seconds);
    Ok(store)
}

fn fill_and_kill(line: &Line, dir: &Path, bytes: u64, first: u64) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("open-fill").arg("--dir").arg(dir);
    command.arg(format!("--bytes={bytes}")).arg(format!("--value-bytes={}", line.value_bytes));
    command.arg(format!("--first={first}"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or_else(|| Failure::from("a child without output"))?;
    let filled = BufReader::new(out).lines().map_while(std::io::Result::ok).any(|line| line == FILLED);
    if filled {
        thread::sleep(GOES_ON);
    }
    child.kill()?;
    child.wait()?;
    if filled { Ok(()) } else { Err("the writer did not fill the store".into()) }
}

/// Fills the store and goes on writing until killed.
pub(crate) fn fill(line: &Fill) -> Result<()> {
    let store = Store::open(&line.dir, options())?;
    let put = PutOptions::default();
    let mut values = Values::new(line.value_bytes, line.first);
    let keys = line.bytes.div_ceil(line.value_bytes.max(1) as u64);
    for number in line.first..line.first + keys {
        store.kv().put(BUCKET, &number.to_be_bytes(), values.next(), &put)?;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{FILLED}")?;
    out.flush()?;
    // Over the same objects, with values of the same length.
    for number in (line.first..line.first + keys).cycle() {
        store.kv().put(BUCKET, &number.to_be_bytes(), values.next(), &put)?;
    }
    Ok(())
}
