//! Figures of one piece of work on one side, on their way into the report.
//!
//! May use: the report. Must not know: how anything is measured.

use hdrhistogram::Histogram;

use crate::figures::{Bar, Unit};
use crate::report::{Figure, Report};

/// Times in nanoseconds.
pub(super) type Times = Histogram<u64>;

/// Nothing measured yet.
pub(super) fn times() -> Times {
    Histogram::new(3).expect("three digits are allowed")
}

/// Adds a time.
pub(super) fn record(times: &mut Times, took: std::time::Duration) {
    let _ = times.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

/// Where the figures of one piece of work go.
pub(super) struct Sheet<'a> {
    pub(super) report: &'a mut Report,
    pub(super) work: &'a str,
    /// Whose figures these are; ours is first.
    pub(super) sides: &'a [&'a str],
}

impl Sheet<'_> {
    /// A figure of one side, and what ours must reach if something was said of it.
    pub(super) fn add(&mut self, side: &str, figure: &str, (unit, sample): (Unit, f64), bar: Option<Bar>) {
        let of = Figure { work: self.work, figure, unit };
        self.report.sides(of, self.sides);
        self.report.add(of, side, sample);
        if let Some(bar) = bar {
            self.report.bar(of, bar);
        }
    }

    /// How often a second.
    pub(super) fn rate(&mut self, side: &str, figure: &str, rate: f64, bar: Option<Bar>) {
        self.add(side, figure, (Unit::PerSecond, rate), bar);
    }

    /// Middle and tail; the bar is on each of them.
    pub(super) fn latency(&mut self, side: &str, name: &str, times: &Times, bar: Option<Bar>) {
        for (figure, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let sample = times.value_at_quantile(quantile) as f64;
            self.add(side, &format!("{name} {figure}"), (Unit::Nanos, sample), bar);
        }
    }
}
