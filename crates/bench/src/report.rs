//! What was measured, as a table for people and as lines of JSON for programs.
//!
//! May use: `figures.rs`. Must not know: how anything is measured.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::figures::{Bar, Range, Row, Unit};
use crate::workload::{Failure, Result};

/// Everything one run of a benchmark found out.
#[derive(Debug)]
pub(crate) struct Report {
    bench: &'static str,
    rows: Vec<Row>,
}

/// Which figure of which work a sample belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure<'a> {
    pub(crate) work: &'a str,
    pub(crate) figure: &'a str,
    pub(crate) unit: Unit,
}

impl Report {
    /// A report of the benchmark `bench`, empty yet.
    pub(crate) fn new(bench: &'static str) -> Self {
        Self { bench, rows: Vec::new() }
    }

    fn row(&mut self, of: Figure<'_>) -> &mut Row {
        let known = self.rows.iter().position(|row| row.work == of.work && row.figure == of.figure);
        let at = known.unwrap_or_else(|| {
            let (work, figure) = (of.work.to_owned(), of.figure.to_owned());
            self.rows.push(Row { work, figure, unit: of.unit, sides: Vec::new(), bar: None });
            self.rows.len() - 1
        });
        self.rows.get_mut(at).expect("the row was just found or pushed")
    }

    /// Adds one repetition's sample of one side. The side that is added first is ours.
    pub(crate) fn add(&mut self, of: Figure<'_>, side: &str, sample: f64) {
        let row = self.row(of);
        match row.sides.iter_mut().find(|(name, _)| name == side) {
            Some((_, samples)) => samples.push(sample),
            None => row.sides.push((side.to_owned(), vec![sample])),
        }
    }

    /// Says in which order the sides of a figure stand, whichever is measured first: ours, then those it is compared to.
    pub(crate) fn sides(&mut self, of: Figure<'_>, sides: &[&str]) {
        let row = self.row(of);
        for side in sides {
            if row.sides.iter().all(|(name, _)| name != side) {
                row.sides.push(((*side).to_owned(), Vec::new()));
            }
        }
    }

    /// Says what a figure must reach.
    pub(crate) fn bar(&mut self, of: Figure<'_>, bar: Bar) {
        self.row(of).bar = Some(bar);
    }

    /// Prints the table to standard output, and writes the JSON to a file if there is one.
    pub(crate) fn print(&self, json: Option<&Path>) -> Result<()> {
        if let Some(path) = json {
            let file = File::create(path).map_err(|error| Failure::from(format!("{}: {error}", path.display())))?;
            self.write_json(BufWriter::new(file))?;
        }
        self.print_table()
    }

    /// Prints the table to standard output.
    pub(crate) fn print_table(&self) -> Result<()> {
        Ok(write!(io::stdout().lock(), "{}", self.table())?)
    }

    /// Writes a line of JSON for each figure.
    pub(crate) fn write_json(&self, mut to: impl Write) -> Result<()> {
        self.rows.iter().try_for_each(|row| writeln!(to, "{}", self.line(row)))?;
        Ok(to.flush()?)
    }

    fn line(&self, row: &Row) -> Value {
        let summed = |samples: &[f64]| {
            Range::of(samples).map(|r| json!({"median": r.median, "min": r.min, "max": r.max, "samples": samples}))
        };
        let sides = row.sides.iter().enumerate().map(|(at, (name, samples))| {
            let ratio = if at == 0 { None } else { summed(&row.ratios(at)) };
            json!({"side": name, "figure": summed(samples), "ratio": ratio})
        });
        json!({
            "bench": self.bench,
            "work": row.work,
            "figure": row.figure,
            "unit": format!("{:?}", row.unit),
            "sides": sides.collect::<Vec<_>>(),
            "bar": row.bar.map(|bar| format!("{bar:?}")),
            "reached": row.reached(),
        })
    }

    fn table(&self) -> String {
        let head = ["work", "figure", "side", "median", "min .. max", "ratio", "min .. max", "bar"];
        let mut lines: Vec<[String; 8]> = vec![head.map(str::to_owned)];
        for row in &self.rows {
            for (at, (side, samples)) in row.sides.iter().enumerate() {
                let Some(range) = Range::of(samples) else { continue };
                let first = |text: String| if at == 0 { text } else { String::new() };
                let show = |value| shown(value, row.unit);
                let ratio = if at == 0 { None } else { Range::of(&row.ratios(at)) };
                lines.push([
                    first(row.work.clone()),
                    first(row.figure.clone()),
                    side.clone(),
                    show(range.median),
                    format!("{} .. {}", show(range.min), show(range.max)),
                    ratio.map(|r| format!("{:.2}x", r.median)).unwrap_or_default(),
                    ratio.map(|r| format!("{:.2} .. {:.2}", r.min, r.max)).unwrap_or_default(),
                    first(said(row)),
                ]);
            }
        }
        let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for line in &lines {
            let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

fn said(row: &Row) -> String {
    let Some(bar) = row.bar else { return String::new() };
    let wanted = match bar {
        Bar::AtLeast(least) => format!(">= {}", shown(least, row.unit)),
        Bar::Below(most) => format!("< {}", shown(most, row.unit)),
        Bar::RatioAtLeast(least) => format!(">= {least:.2}x"),
        Bar::RatioBelow(most) => format!("< {most:.2}x"),
    };
    match row.reached() {
        Some(true) => format!("{wanted} reached"),
        Some(false) => format!("{wanted} MISSED"),
        None => format!("{wanted} not measured"),
    }
}

/// A number with three or four digits that matter.
pub(crate) fn shown(value: f64, unit: Unit) -> String {
    const RATES: &[(f64, &str)] = &[(1e6, " M/s"), (1e3, " k/s"), (1.0, " /s")];
    const TIMES: &[(f64, &str)] = &[(1e9, " s"), (1e6, " ms"), (1e3, " us"), (1.0, " ns")];
    const SIZES: &[(f64, &str)] = &[(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1024.0, " KiB"), (1.0, " B")];
    let (value, scale): (f64, &[(f64, &str)]) = match unit {
        Unit::PerSecond => (value, RATES),
        Unit::Nanos => (value, TIMES),
        Unit::Seconds => (value * 1e9, TIMES),
        Unit::Bytes => (value, SIZES),
        Unit::Count => (value, &[(1.0, "")]),
    };
    let fits = scale.iter().find(|(from, _)| value >= *from).or(scale.last());
    let (by, name) = fits.copied().unwrap_or((1.0, ""));
    let scaled = value / by;
    let decimals = if scaled < 10.0 { 2 } else { usize::from(scaled < 1000.0) };
    format!("{scaled:.decimals$}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_their_unit() {
        let cases = [
            (1_534_000.0, Unit::PerSecond, "1.53 M/s"),
            (12_345.0, Unit::PerSecond, "12.3 k/s"),
            (46_200.0, Unit::Nanos, "46.2 us"),
            (1.5, Unit::Seconds, "1.50 s"),
            (0.0042, Unit::Seconds, "4.20 ms"),
            (31_457_280.0, Unit::Bytes, "30.0 MiB"),
            (63.5, Unit::Count, "63.5"),
            (0.0, Unit::PerSecond, "0.00 /s"),
        ];
        for (value, unit, text) in cases {
            assert_eq!(shown(value, unit), text);
        }
    }

    #[test]
    fn a_table_shows_both_sides_the_ratio_and_whether_the_bar_was_reached() {
        let mut report = Report::new("test");
        let get = Figure { work: "get", figure: "rate", unit: Unit::PerSecond };
        report.sides(get, &["holdfast", "other"]);
        for (side, sample) in [("other", 100.0), ("holdfast", 150.0), ("holdfast", 50.0), ("other", 100.0)] {
            report.add(get, side, sample);
        }
        report.bar(get, Bar::RatioAtLeast(1.0));
        assert_eq!(
            report.table(),
            "work  figure  side      median    min .. max            ratio  min .. max    bar\n\
             get   rate    holdfast  100.0 /s  50.0 /s .. 150.0 /s                        >= 1.00x reached\n\
             \x20             other     100.0 /s  100.0 /s .. 100.0 /s  1.00x  0.50 .. 1.50\n"
        );
        let line = report.line(&report.rows[0]);
        assert_eq!((line["sides"][1]["ratio"]["min"].as_f64(), line["reached"].as_bool()), (Some(0.5), Some(true)));
        assert_eq!(line["sides"][1]["side"], "other");
    }
}
