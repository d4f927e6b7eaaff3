//! Figures of the report, and what they have to reach.
//!
//! May use: `report.rs`, `times.rs`. Must not know: how anything is measured.

use std::path::Path;
use std::time::Duration;

use super::ask::Read;
use super::count::Counted;
use super::load::Loaded;
use super::side::Taken;
use super::times::{Operation, QUANTILES, Times};
use super::way::Way;
use super::{Case, Work};
use crate::figures::{Bar, Unit};
use crate::place::say;
use crate::report::{Figure, Report, shown};
use crate::workload::Result;

const MILLION: f64 = 1e6;
const POINTS: &str = "points";
const CPU: &str = "CPU per million points";
const MISSING: &str = "points missing";
const MISSING_AGAIN: &str = "points missing after a restart";
const PER_POINT: &str = "bytes per point";
const PEAK: &str = "memory, most";

/// The report, and whose turn it is.
pub(super) struct Notes {
    report: Report,
    sides: Vec<&'static str>,
    work: String,
    side: &'static str,
    bars: Vec<(String, String, Unit, Bar)>,
}

/// A load with what the server spent on it.
pub(super) struct Loading<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) cpu: Option<Duration>,
    pub(super) memory: Option<[u64; 2]>,
}

impl Notes {
    /// Nothing yet. Ratios are of the first side by others.
    pub(super) fn new(report: Report, sides: Vec<&'static str>) -> Self {
        Self { report, sides, work: String::new(), side: "", bars: Vec::new() }
    }

    /// What is noted from now on belongs to this.
    pub(super) fn begin(&mut self, work: &str, side: &'static str) {
        work.clone_into(&mut self.work);
        self.side = side;
    }

    fn add(&mut self, figure: &str, unit: Unit, sample: f64) {
        let of = Figure { work: &self.work, figure, unit };
        self.report.sides(of, &self.sides);
        self.report.add(of, self.side, sample);
    }

    /// Notes a bar, once.
    fn bar(&mut self, figure: &str, unit: Unit, bar: Bar) {
        let known = self.bars.iter().any(|(work, of, ..)| *work == self.work && of == figure);
        if !known {
            self.bars.push((self.work.clone(), figure.to_owned(), unit, bar));
        }
    }

    /// Sets the bars, which are promises of Holdfast's.
    pub(super) fn bars(&mut self) {
        if self.sides.first() != Some(&"holdfast") {
            return;
        }
        for (work, figure, unit, bar) in &self.bars {
            self.report.bar(Figure { work, figure, unit: *unit }, *bar);
        }
    }

    pub(super) fn print(&self, json: Option<&Path>) -> Result<()> {
        self.report.print(json)
    }

    /// A load that is done.
    pub(super) fn loaded(&mut self, loading: &Loading<'_>, case: &Case) {
        let Loading { loaded, cpu, memory } = loading;
        let points = loaded.points as f64;
        let saturated = case.work == Work::Write && case.mix.reads == 0 && case.interval.is_zero();
        let each = cpu.filter(|_| points > 0.0).map(|cpu| cpu.as_secs_f64() * MILLION / points);
        if points > 0.0 {
            let rate = points / loaded.seconds.max(f64::MIN_POSITIVE);
            self.add(POINTS, Unit::PerSecond, rate);
            let cpu = each.map(|each| format!(", {each:.2} s of CPU per million")).unwrap_or_default();
            say(&format!("  {}: {} {}{cpu}", self.work, self.side, shown(rate, Unit::PerSecond)));
        }
        let asked: u64 =
            loaded.times.each().filter(|(of, _)| matches!(of, Operation::Read(_))).map(|(_, t)| t.len()).sum();
        if asked > 0 {
            let rate = asked as f64 / loaded.seconds.max(f64::MIN_POSITIVE);
            self.add("questions", Unit::PerSecond, rate);
            say(&format!("  {}: {} {} questions", self.work, self.side, shown(rate, Unit::PerSecond)));
        }
        if let Some(each) = each {
            self.add(CPU, Unit::Seconds, each);
        }
        if !case.way.is_answered() {
            self.add("the end, when everything was sent", Unit::Seconds, loaded.end_seconds);
        }
        self.times(&loaded.times);
        if let Some([now, most]) = memory {
            self.add("memory, after", Unit::Bytes, *now as f64);
            self.add(PEAK, Unit::Bytes, *most as f64);
        }
        let cpu_most = match case.way {
            Way::Line => 0.25,
            Way::Telnet => 0.39,
            Way::LineHttp => 0.44,
            Way::Put => 0.52,
            Way::Json => 1.2,
        };
        if saturated {
            self.bar(CPU, Unit::Seconds, Bar::Below(cpu_most));
            self.bar("write p999", Unit::Nanos, Bar::Below(100e6));
            if let Some(least) = match case.way {
                Way::Telnet => Some(3.1e6),
                Way::LineHttp => Some(3.35e6),
                _ => None,
            } {
                self.bar(POINTS, Unit::PerSecond, Bar::AtLeast(least));
            }
            if case.way.is_answered() {
                self.bar(PEAK, Unit::Bytes, Bar::Below(100.0 * 1024.0 * 1024.0));
            }
        }
        if case.work == Work::NewSeries {
            self.bar(POINTS, Unit::PerSecond, Bar::AtLeast(137e3));
        }
    }

    /// Latencies by kind of operation.
    pub(super) fn times(&mut self, times: &Times) {
        for (operation, times) in times.each() {
            let name = operation.name();
            self.add(&format!("{name} mean"), Unit::Nanos, times.mean());
            for (quantile, share) in QUANTILES {
                let sample = times.value_at_quantile(share) as f64;
                self.add(&format!("{name} {quantile}"), Unit::Nanos, sample);
            }
            self.add(&format!("{name} max"), Unit::Nanos, times.max() as f64);
        }
    }

    /// What was counted back.
    pub(super) fn counted(&mut self, counted: Counted) {
        self.noted(MISSING, counted);
        self.add("points counted back", Unit::Count, counted.found as f64);
        if self.work.starts_with("read") {
            for (read, most_ms) in [
                (Read::Precise, 0.13),
                (Read::Range, 0.14),
                (Read::Sum, 0.22),
                (Read::Hourly, 0.52),
                (Read::Latest, 0.23),
                (Read::Devices, 10.6),
            ] {
                let figure = format!("{} mean", Operation::Read(read).name());
                self.bar(&figure, Unit::Nanos, Bar::Below(most_ms * 1e6));
            }
        }
    }

    /// What was counted back after the server was stopped and started.
    pub(super) fn counted_again(&mut self, counted: Counted) {
        self.noted(MISSING_AGAIN, counted);
    }

    fn noted(&mut self, figure: &str, counted: Counted) {
        let Counted { found, missing, surplus } = counted;
        if missing + surplus > 0 {
            say(&format!(
                "  {}: {}: {found} points found, {missing} missing, {surplus} too many",
                self.work, self.side
            ));
        }
        self.add(figure, Unit::Count, (missing + surplus) as f64);
        self.bar(figure, Unit::Count, Bar::Below(0.5));
    }

    /// Space on the disk.
    pub(super) fn kept(&mut self, taken: Taken, points: u64) {
        let each = |bytes: u64| bytes as f64 / (points as f64).max(1.0);
        self.add("folder", Unit::Bytes, taken.all as f64);
        // Journals are kept by length and age, not by what is in them: where points are apart, they are what counts.
        self.add(PER_POINT, Unit::Bytes, each(taken.series.unwrap_or(taken.all)));
        self.add("bytes per point, the whole folder", Unit::Bytes, each(taken.all));
        self.bar(PER_POINT, Unit::Bytes, Bar::Below(0.6));
    }
}
