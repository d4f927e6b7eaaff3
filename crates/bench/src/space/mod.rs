//! `space`: what entries of the object space cost, in the measurements that data grids are compared by.
//!
//! Entries of a fixed size with an integer id and no index, unless a measurement says otherwise. Throughput is measured with
//! threads that do nothing else; latency at a fixed rate, with a pacer that spins or sleeps: the two differ by what waking a
//! processor costs.
//!
//! May use: all of this folder. Must not know: how entries are kept.

mod handoff;
mod paced;
mod throughput;

use std::time::Duration;

use clap::{Args, ValueEnum};
use holdfast::space::{Definition, Document, Entries, Storage, Value};
use holdfast::{Durability, Options, Store};

use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::report::{Figure, Report};
use crate::workload::{Result, seconds};

/// The command line of `space`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    /// What to measure, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "paced,throughput,handoff,memory,restart")]
    work: Vec<Work>,
    /// Bytes of payload in each entry
    #[arg(long, default_value_t = 1024)]
    payload: usize,
    /// Entries that are there
    #[arg(long, default_value_t = 400_000)]
    entries: u64,
    /// Threads of the throughput measurements
    #[arg(long, value_delimiter = ',', default_value = "2,20", value_parser = clap::value_parser!(u16).range(1..=1000))]
    threads: Vec<u16>,
    /// Whether entries are in the journal, and when a write is answered
    #[arg(long, value_enum, value_delimiter = ',', default_value = "volatile,written")]
    durability: Vec<Kept>,
    /// How the pacer of `paced` waits for the next operation's time
    #[arg(long, value_enum, default_value_t = Pacer::Spin)]
    pacer: Pacer,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    /// One thread, 800 writes, reads and events a second: their latency.
    Paced,
    /// Insert, update, read by id and take, as fast as the threads can.
    Throughput,
    /// From the write of an entry to the return of a take that waited for it.
    Handoff,
    /// Bytes of memory of an entry beyond its payload, without an index.
    Memory,
    /// Opening a store with the entries after a clean end and after a kill.
    Restart,
}

/// What survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kept {
    /// Nothing: entries are in memory only.
    Volatile,
    /// What was answered survives the process.
    Written,
    /// What was answered survives the machine.
    Synced,
}

/// How a pacer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pacer {
    /// It keeps its processor.
    Spin,
    /// It sleeps.
    Sleep,
}

impl Kept {
    fn options(self) -> Options {
        let durability = if self == Self::Synced { Durability::Synced } else { Durability::Written };
        Options { durability, ..Options::default() }
    }

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A fresh store with a type for entries.
pub(crate) fn open(dir: &std::path::Path, kept: Kept) -> Result<(Store, Entries)> {
    let store = Store::open(dir, kept.options())?;
    let storage = if kept == Kept::Volatile { Storage::Volatile } else { Storage::Durable };
    let definition = Definition { storage, history: false, ..Definition::new("bench", "entry") };
    let entries = store.space("bench").declare(definition)?;
    Ok((store, entries))
}

/// An entry with this id.
pub(crate) fn document(id: u64, payload: usize) -> Document {
    let mut bytes = vec![0; payload];
    base::Random::new(id).fill(&mut bytes);
    Document::from_pairs([("id", Value::from(id)), ("payload", Value::Bytes(bytes))])
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    line.common.need(line.entries * (line.payload as u64 + 100) * 6)?;
    let mut report = Report::new("space");
    let time = Duration::from_secs_f64(line.seconds);
    for _ in line.common.repetitions() {
        for work in &line.work {
            for kept in &line.durability {
                say(&format!("  {work:?}, {}", kept.name()).to_lowercase());
                match work {
                    Work::Paced => line.paced(&mut report, *kept, time)?,
                    Work::Throughput => line.throughput(&mut report, *kept, time)?,
                    Work::Handoff => line.handoff(&mut report, *kept)?,
                    Work::Memory => line.memory(&mut report, *kept)?,
                    Work::Restart => line.restart(&mut report, *kept)?,
                }
            }
        }
    }
    report.print(line.common.json.as_deref())
}

impl Line {
    fn paced(&self, report: &mut Report, kept: Kept, time: Duration) -> Result<()> {
        let dir = self.common.fresh()?;
        let (_store, entries) = open(dir.path(), kept)?;
        let pacer = format!("{:?}", self.pacer).to_lowercase();
        let work = format!("embedded, 800/s, {pacer}, {} B, {}", self.payload, kept.name());
        let bars: &[(&str, [f64; 4])] = &[("write", [1.0, 1.5, 3.0, 8.0]), ("read", [0.7, 1.0, 2.0, 5.0])];
        for (name, times) in paced::measure(&entries, self.payload, self.pacer, time)? {
            let quantiles = [("p20", 0.2), ("p50", 0.5), ("p88", 0.88), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
            for (figure, quantile) in quantiles {
                let figure = format!("{name} {figure}");
                let of = Figure { work: &work, figure: &figure, unit: Unit::Nanos };
                report.add(of, "holdfast", times.value_at_quantile(quantile) as f64);
            }
            let named = ["p20", "p50", "p90", "p99"];
            let bar = bars.iter().find(|(of, _)| *of == name).filter(|_| kept == Kept::Written);
            for (figure, most) in bar.into_iter().flat_map(|(_, most)| named.into_iter().zip(most)) {
                let figure = format!("{name} {figure}");
                report.bar(Figure { work: &work, figure: &figure, unit: Unit::Nanos }, Bar::Below(most * 1e3));
            }
        }
        Ok(())
    }

    fn throughput(&self, report: &mut Report, kept: Kept, time: Duration) -> Result<()> {
        for threads in &self.threads {
            let dir = self.common.fresh()?;
            let (_store, entries) = open(dir.path(), kept)?;
            let work =
                format!("embedded, {threads} threads, {} entries of {} B, {}", self.entries, self.payload, kept.name());
            let measured = throughput::measure(&entries, self.payload, (self.entries, *threads), time)?;
            for throughput::Measured { name, rate, worst } in measured {
                report.add(Figure { work: &work, figure: name, unit: Unit::PerSecond }, "holdfast", rate);
                let figure = format!("{name}, worst pause");
                report.add(
                    Figure { work: &work, figure: &figure, unit: Unit::Nanos },
                    "holdfast",
                    worst.as_nanos() as f64,
                );
                let least = match (kept, *threads, name) {
                    (Kept::Volatile, 20, "read") => Some(2.6e6),
                    (Kept::Volatile, 20, _) => Some(1e6),
                    (Kept::Written, 20, "insert" | "update" | "take") => Some(0.5e6),
                    (Kept::Volatile, 2, "update") => Some(1e6),
                    (Kept::Written, 2, "update") => Some(0.5e6),
                    (_, 2, "read") => Some(3e6),
                    _ => None,
                };
                if let Some(least) = least {
                    report.bar(Figure { work: &work, figure: name, unit: Unit::PerSecond }, Bar::AtLeast(least));
                }
                if *threads == 20 {
                    report.bar(Figure { work: &work, figure: &figure, unit: Unit::Nanos }, Bar::Below(10e6));
                }
            }
        }
        Ok(())
    }

    fn handoff(&self, report: &mut Report, kept: Kept) -> Result<()> {
        let dir = self.common.fresh()?;
        let (_store, entries) = open(dir.path(), kept)?;
        let work = format!("embedded, {}", kept.name());
        for (name, times, bars) in [
            ("hand-off", handoff::take(&entries)?, [10.0, 25.0, 60.0]),
            ("notify", handoff::notify(&entries)?, [5.0, 15.0, 40.0]),
        ] {
            for ((figure, quantile), most) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)].into_iter().zip(bars) {
                let figure = format!("{name} {figure}");
                let of = Figure { work: &work, figure: &figure, unit: Unit::Nanos };
                report.add(of, "holdfast", times.value_at_quantile(quantile) as f64);
                report.bar(of, Bar::Below(most * 1e3));
            }
        }
        Ok(())
    }

    fn memory(&self, report: &mut Report, kept: Kept) -> Result<()> {
        let dir = self.common.fresh()?;
        let (_store, entries) = open(dir.path(), kept)?;
        let before = crate::process::resident_bytes()?;
        for id in 0..self.entries {
            let _ = entries.write_shown(&document(id, self.payload), &Default::default())?;
        }
        let grown = crate::process::resident_bytes()?.saturating_sub(before);
        let work = format!("{} entries of {} B, {}", self.entries, self.payload, kept.name());
        let each = |bytes: u64| (bytes as f64 / self.entries as f64) - self.payload as f64;
        let figure = |figure: &'static str| Figure { work: &work, figure, unit: Unit::Bytes };
        report.add(figure("beyond the payload, resident"), "holdfast", each(grown));
        report.add(figure("beyond the payload, counted"), "holdfast", each(entries.usage().bytes));
        report.bar(figure("beyond the payload, counted"), Bar::Below(64.0));
        Ok(())
    }

    fn restart(&self, report: &mut Report, kept: Kept) -> Result<()> {
        if kept == Kept::Volatile {
            return Ok(());
        }
        let dir = self.common.fresh()?;
        {
            let (_store, entries) = open(dir.path(), kept)?;
            for id in 0..self.entries {
                let _ = entries.write_shown(&document(id, self.payload), &Default::default())?;
            }
        }
        let began = std::time::Instant::now();
        let store = Store::open(dir.path(), kept.options())?;
        let took = began.elapsed();
        assert_eq!(store.space("bench").entries("entry")?.usage().entries, self.entries, "all entries are back");
        let work = format!("{} entries of {} B", self.entries, self.payload);
        let of = Figure { work: &work, figure: "open after a clean end", unit: Unit::Seconds };
        report.add(of, "holdfast", took.as_secs_f64());
        report.bar(of, Bar::Below(2.0));
        Ok(())
    }
}
