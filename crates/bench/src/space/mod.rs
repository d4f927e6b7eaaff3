//! `space`: what entries of the object space cost, in the measurements that data grids are compared by.
//!
//! Entries of a fixed size with an integer id and no index, unless a measurement says otherwise. Throughput is measured with
//! threads that do nothing else; latency at a fixed rate, with a pacer that spins or sleeps: the two differ by what waking a
//! processor costs.
//!
//! May use: all of this folder. Must not know: how entries are kept.

mod embedded;
mod flow;
mod handoff;
mod paced;
mod prepared;
mod remote;
mod restart;
mod sheet;
mod throughput;
mod waiting;

use std::time::Duration;

use clap::{Args, ValueEnum};
use holdfast::space::{Definition, Document, Entries, Storage, Value};
use holdfast::{Durability, Options, Store};

use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::process::Programs;
use crate::report::{Figure, Report};
use crate::resp::Pair;
use crate::workload::{Result, rate, seconds};

pub(crate) use flow::{Worker, work};
pub(crate) use restart::{Fill, fill};
use sheet::Sheet;

/// The command line of `space`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    programs: Programs,
    /// What to measure, in this order: unless told otherwise all that needs no other program
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "paced,throughput,scaling,contention,changes,queries,near,handoff,memory,restart"
    )]
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
    /// Connections of `remote` and `alike`
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Requests of one run of `remote` and `alike` without pipelining; with it three times as many
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Clients of `flow`, each with one message on its way
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=90))]
    flow_clients: u16,
    /// Messages a second in `flow`, where both sides are to carry as many
    #[arg(long, default_value_t = 4000.0, value_parser = rate)]
    flow_rate: f64,
    /// Who handle messages in `flow`: threads of the space, programs of the tiers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=90))]
    workers: u16,
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
    /// The same by one, two and four threads over one, four and sixteen partitions.
    Scaling,
    /// Sixteen workers that take by one template.
    Contention,
    /// One entry that all threads increment, and entries that are written a hundred at a time.
    Changes,
    /// Ranges of an ordered index, and figures over all entries.
    Queries,
    /// One entry by an indexed query, parsed each time and once, in the process and of a server.
    Prepared,
    /// Reads from a near cache.
    Near,
    /// From the write of an entry to the return of a take that waited for it.
    Handoff,
    /// Bytes of memory of an entry beyond its payload, without an index.
    Memory,
    /// Opening a store with the entries after a clean end and after a kill.
    Restart,
    /// A server beside Redis, fifty connections: write, read, take, tasks.
    Remote,
    /// A server beside Redis, fifty connections: a field, a range, a hundred at once.
    Alike,
    /// A server beside Redis: from the write of an entry to the end of a take that waits for it.
    Waiting,
    /// A server beside Redis, one connection, 800 a second: write and tasks.
    Execute,
    /// A server beside Redis, 800 events a second: from the write to the event.
    Notify,
    /// An order flow in one space, beside Redis and PostgreSQL with programs between them.
    Flow,
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
        Options { durability, large_pages: true, ..Options::default() }
    }

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A fresh store with a type for entries.
pub(crate) fn open(dir: &std::path::Path, kept: Kept) -> Result<(Store, Entries)> {
    open_in(dir, kept, Options::default().partitions)
}

fn open_in(dir: &std::path::Path, kept: Kept, partitions: u16) -> Result<(Store, Entries)> {
    let store = Store::open(dir, Options { partitions, ..kept.options() })?;
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
    let mut pairs: Vec<(Kept, Pair)> = Vec::new();
    for repetition in line.common.repetitions() {
        for work in &line.work {
            for kept in &line.durability {
                say(&format!("  {work:?}, {}", kept.name()).to_lowercase());
                match work {
                    Work::Remote | Work::Alike | Work::Waiting | Work::Execute | Work::Notify => {
                        // What is remote keeps what it acknowledged; there is no other row for `volatile`.
                        if *kept == Kept::Volatile {
                            continue;
                        }
                        let at = match pairs.iter().position(|(of, _)| of == kept) {
                            Some(at) => at,
                            None => {
                                pairs.push((*kept, remote::start(line, *kept)?));
                                pairs.len() - 1
                            }
                        };
                        let (_, pair) = pairs.get(at).expect("it was just found or pushed");
                        match work {
                            Work::Remote => remote::throughput(line, pair, repetition, &mut report)?,
                            Work::Alike => remote::alike(line, pair, repetition, &mut report)?,
                            Work::Waiting => waiting::measure(line, pair, repetition, &mut report)?,
                            Work::Execute => remote::execute(line, pair, repetition, &mut report)?,
                            _ => remote::notify(line, pair, repetition, &mut report)?,
                        }
                    }
                    Work::Flow => flow::measure(line, &mut report, *kept, repetition)?,
                    Work::Prepared => {
                        prepared::embedded(line, &mut report, *kept)?;
                        if *kept == Kept::Written {
                            prepared::remote(line, &mut report, *kept)?;
                        }
                    }
                    _ => line.embedded(*work, &mut report, *kept)?,
                }
            }
        }
    }
    report.print(line.common.json.as_deref())?;
    pairs.into_iter().try_for_each(|(_, pair)| pair.stop())
}

impl Line {
    /// How long each measurement takes.
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn embedded(&self, work: Work, report: &mut Report, kept: Kept) -> Result<()> {
        let name = format!("embedded, {} entries of {} B, {}", self.entries, self.payload, kept.name());
        let mut sheet = Sheet { report: &mut *report, work: &name, sides: &["holdfast"] };
        match work {
            Work::Contention => embedded::contention(self, &mut sheet, kept),
            Work::Queries => embedded::queries(self, &mut sheet, kept),
            Work::Near => embedded::near(self, &mut sheet, kept),
            Work::Changes => self.threads.iter().try_for_each(|threads| {
                let work = format!("embedded, {threads} threads, entries of {} B, {}", self.payload, kept.name());
                let mut sheet = Sheet { report: &mut *report, work: &work, sides: &["holdfast"] };
                embedded::changes(self, &mut sheet, kept, *threads)
            }),
            Work::Scaling => embedded::scaling(self, report, kept),
            Work::Paced => self.paced(report, kept, self.time()),
            Work::Throughput => self.throughput(report, kept, self.time()),
            Work::Handoff => self.handoff(report, kept),
            Work::Memory => self.memory(report, kept),
            Work::Restart => restart::measure(self, report, kept),
            Work::Prepared | Work::Remote | Work::Alike | Work::Waiting | Work::Execute | Work::Notify | Work::Flow => {
                unreachable!("these have servers")
            }
        }
    }

    fn paced(&self, report: &mut Report, kept: Kept, time: Duration) -> Result<()> {
        let dir = self.common.fresh()?;
        let (_store, entries) = open(dir.path(), kept)?;
        let pacer = format!("{:?}", self.pacer).to_lowercase();
        let work = format!("embedded, 800/s, {pacer}, {} B, {}", self.payload, kept.name());
        let bars: &[(&str, [f64; 4])] = &[("write", [1.0, 1.5, 3.0, 8.0]), ("read", [0.7, 1.0, 2.0, 5.0])];
        for (name, paced) in paced::measure(&entries, self.payload, self.pacer, time)? {
            let quantiles = [("p20", 0.2), ("p50", 0.5), ("p88", 0.88), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
            for (figure, quantile) in quantiles {
                for (kind, times) in [("", &paced.service), ("response ", &paced.response)] {
                    let figure = format!("{name} {kind}{figure}");
                    let of = Figure { work: &work, figure: &figure, unit: Unit::Nanos };
                    report.add(of, "holdfast", times.value_at_quantile(quantile) as f64);
                }
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
            let alone = throughput::alone(*threads, time)?;
            for throughput::Measured { name, rate, worst } in measured {
                report.add(Figure { work: &work, figure: name, unit: Unit::PerSecond }, "holdfast", rate);
                let figure = format!("{name}, worst pause");
                let pause = Figure { work: &work, figure: &figure, unit: Unit::Nanos };
                report.sides(pause, &["holdfast", "no store"]);
                report.add(pause, "holdfast", worst.as_nanos() as f64);
                report.add(pause, "no store", alone.as_nanos() as f64);
                let least = match (kept, *threads, name) {
                    (Kept::Volatile, 20, "read") => Some(2.6e6),
                    (Kept::Volatile, 20, _) => Some(1e6),
                    (Kept::Written, 20, "insert" | "update" | "update by new documents" | "take") => Some(0.5e6),
                    (Kept::Volatile, 2, "update" | "update by new documents") => Some(1e6),
                    (Kept::Written, 2, "update" | "update by new documents") => Some(0.5e6),
                    (_, 2, "read") => Some(3e6),
                    _ => None,
                };
                if let Some(least) = least {
                    report.bar(Figure { work: &work, figure: name, unit: Unit::PerSecond }, Bar::AtLeast(least));
                }
                if *threads == 20 {
                    report.bar(pause, Bar::Below(10e6));
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
        let before = crate::process::memory_of(std::process::id(), "VmRSS:")?;
        for id in 0..self.entries {
            let _ = entries.write_shown(&document(id, self.payload), &Default::default())?;
        }
        let work = format!("{} entries of {} B, {}", self.entries, self.payload, kept.name());
        let each = (entries.usage().bytes as f64 / self.entries as f64) - self.payload as f64;
        let of = Figure { work: &work, figure: "counted beyond the payload", unit: Unit::Bytes };
        report.add(of, "holdfast", each);
        // 64 and the index that there always is, the table of ids: some 14 bytes an entry.
        report.bar(of, Bar::Below(78.0));
        let resident = embedded::resident(&entries, before, self.payload)?;
        report.add(
            Figure { work: &work, figure: "resident beyond the payload", unit: Unit::Bytes },
            "holdfast",
            resident,
        );
        Ok(())
    }
}
