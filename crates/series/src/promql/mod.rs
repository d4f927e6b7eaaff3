//! PromQL: Prometheus' language, over any [`Source`].
//!
//! An [`Expression`] is parsed once and then evaluated at one moment or at the steps of a range; a [`Selector`] is what stands
//! in `match[]`. The text is parsed by `promql-parser`; what it takes and is not evaluated here is refused by name before
//! anything is read. `docs/reference/promql.md` says what there is and where it differs from Prometheus.
//!
//! May use: `source`, `points`, `select`. Must not know: HTTP, JSON, clocks.

mod aggregate;
mod binary;
mod call;
mod dates;
mod eval;
mod find;
mod floats;
mod histogram;
mod labels;
mod matching;
mod moments;
mod over_time;
mod parse;
mod scan;
mod steps;
mod sums;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_model;
#[cfg(test)]
mod tests_shapes;
mod window;

use std::cell::Cell;

use promql_parser::parser::Expr;
use promql_parser::parser::value::ValueType;

pub use eval::Limits;
pub use find::{Named, Selector};
pub use floats::write_float;
pub use labels::{Labels, NAME};
pub use moments::{parse_duration, parse_moment};

use crate::error::{Error, Result};
use crate::held::Held;
use crate::regexes::Regexes;
use crate::source::Source;

use eval::{Eval, Out};
use steps::{Steps, Table, is_there};

/// The most steps of a range query: the same as Prometheus has.
pub const STEPS_MAX: i64 = 11_000;
/// The step of queries that name none, in milliseconds: the same as VictoriaMetrics has.
pub const STEP_MS: i64 = 300_000;
const NANOS_PER_MS: i64 = 1_000_000;
/// A point of an answer.
const POINT_BYTES: u64 = 16;

/// An expression that was parsed.
#[derive(Debug, Clone)]
pub struct Expression {
    expr: Expr,
}

/// Where and within what an expression is evaluated.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// What is asked.
    pub source: &'a dyn Source,
    /// The database.
    pub database: &'a str,
    /// How much the query may take.
    pub limits: Limits,
    /// Says whether to go on; asked for each series at least.
    pub go_on: &'a dyn Fn() -> bool,
}

/// The steps of a range query, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first, since 1970.
    pub start_ms: i64,
    /// The last is at most this, since 1970.
    pub end_ms: i64,
    /// Between two.
    pub step_ms: i64,
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What it is.
    pub labels: Labels,
    /// Its values, by time in milliseconds since 1970.
    pub points: Vec<(i64, f64)>,
}

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A number.
    Scalar(i64, f64),
    /// A text.
    Text(i64, String),
    /// A value of each series: each line has one point.
    Vector(Vec<Line>),
    /// Values of each series, sorted by labels.
    Matrix(Vec<Line>),
}

impl Expression {
    /// Parses an expression. Functions of a window that have none get one of `step_ms`: the step of the query.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is none, or names something that is not supported.
    pub fn parse(text: &str, step_ms: i64) -> Result<Self> {
        Ok(Self { expr: parse::parse(text, step_ms.max(1), &mut Regexes::default())? })
    }

    /// As [`Expression::parse`], for [`Expression::range`].
    ///
    /// # Errors
    /// [`Error::Invalid`], also when it is a text or a range of points: those have no value at each step.
    pub fn parse_for_range(text: &str, step_ms: i64) -> Result<Self> {
        let parsed = Self::parse(text, step_ms)?;
        let instead = match parsed.expr.value_type() {
            ValueType::Matrix => "a range of points: use a function such as rate, or ask for one moment",
            ValueType::String => "a text: ask for one moment",
            ValueType::Scalar | ValueType::Vector => return Ok(parsed),
        };
        Err(Error::invalid(format!("a range query needs a number or a value of each series, and this is {instead}")))
    }

    /// Evaluates it at one moment.
    ///
    /// # Errors
    /// [`Error::Invalid`] when series do not go together as the expression wants, or `go_on` says no; [`Error::Limit`];
    /// [`Error::Source`].
    pub fn instant(&self, scope: Scope<'_>, time_ms: i64) -> Result<Answer> {
        let steps = Steps { start: nanos(time_ms), step: 0, count: 1 };
        let eval = scope.eval(steps);
        if let Expr::MatrixSelector(_) | Expr::Subquery(_) = without_parens(&self.expr) {
            return raw(&eval, &self.expr, &steps);
        }
        Ok(match eval.value(&self.expr, &steps)? {
            Out::Scalar(values) => Answer::Scalar(time_ms, values.first().copied().unwrap_or(f64::NAN)),
            Out::Text(text) => Answer::Text(time_ms, text),
            Out::Vector(table) => Answer::Vector(lines(&eval, &table, &steps)?),
        })
    }

    /// Evaluates it at each step of a range. The answer is a matrix.
    ///
    /// # Errors
    /// As [`Expression::instant`], and [`Error::Invalid`] when the span makes no sense or the expression is a text or a range
    /// of points.
    pub fn range(&self, scope: Scope<'_>, span: Span) -> Result<Answer> {
        let steps = span.steps()?;
        let eval = scope.eval(steps);
        let table = match eval.value(&self.expr, &steps)? {
            Out::Vector(table) => table,
            Out::Text(_) => return Err(Error::invalid("a range query of a text is not possible: ask for one moment")),
            Out::Scalar(values) => {
                let mut table = Table::new(steps.count);
                table.row(Labels::default()).copy_from_slice(&values);
                table
            }
        };
        let mut lines = lines(&eval, &table, &steps)?;
        lines.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(Answer::Matrix(lines))
    }
}

impl Span {
    /// # Errors
    /// `Invalid` when it makes no sense: the text says what would.
    pub fn check(&self) -> Result<()> {
        self.steps().map(drop)
    }

    fn steps(&self) -> Result<Steps> {
        let Self { start_ms, end_ms, step_ms } = *self;
        if step_ms <= 0 {
            return Err(Error::invalid(
                "zero or negative query resolution step widths are not accepted: try a positive step",
            ));
        }
        if end_ms < start_ms {
            return Err(Error::invalid("end timestamp must not be before start time"));
        }
        let more = end_ms.saturating_sub(start_ms) / step_ms;
        if more > STEPS_MAX {
            return Err(Error::invalid(format!(
                "exceeded maximum resolution of {STEPS_MAX} points per timeseries: try a step of at least {} ms",
                end_ms.saturating_sub(start_ms) / STEPS_MAX + 1
            )));
        }
        let count = usize::try_from(more).map_err(|_| Error::invalid("the range is too long"))? + 1;
        Ok(Steps { start: nanos(start_ms), step: nanos(step_ms), count })
    }
}

impl<'a> Scope<'a> {
    fn eval(self, asked: Steps) -> Eval<'a> {
        let Self { source, database, limits, go_on } = self;
        Eval {
            source,
            database,
            limits,
            go_on,
            asked,
            points: Cell::new(0),
            cells: Cell::new(0),
            reading: Held::default(),
        }
    }
}

fn nanos(ms: i64) -> i64 {
    ms.saturating_mul(NANOS_PER_MS)
}

fn without_parens(mut expr: &Expr) -> &Expr {
    while let Expr::Paren(paren) = expr {
        expr = &paren.expr;
    }
    expr
}

/// The points of a range selector as they are.
fn raw(eval: &Eval<'_>, expr: &Expr, steps: &Steps) -> Result<Answer> {
    let windows = eval.windows(expr, steps)?;
    let mut lines = Vec::new();
    eval.each(&windows, |labels, samples| {
        samples.slide(&windows.ends, windows.range, |_, window| {
            let times = window.times.iter().map(|time| time.div_euclid(NANOS_PER_MS));
            let points: Vec<(i64, f64)> = times.zip(window.values.iter().copied()).collect();
            if !points.is_empty() {
                lines.push(Line { labels: labels.clone(), points });
            }
            Ok(())
        })?;
        let points = lines.last().map_or(0, |line| line.points.len());
        eval.source.hold(points as u64 * POINT_BYTES)
    })?;
    Ok(Answer::Matrix(lines))
}

fn lines(eval: &Eval<'_>, table: &Table, steps: &Steps) -> Result<Vec<Line>> {
    eval.source.hold(table.cells.len() as u64 * POINT_BYTES)?;
    let times: Vec<i64> = steps.iter().map(|time| time.div_euclid(NANOS_PER_MS)).collect();
    let line = |(labels, cells): (&Labels, &[f64])| {
        let points: Vec<(i64, f64)> =
            times.iter().copied().zip(cells.iter().copied()).filter(|(_, cell)| is_there(*cell)).collect();
        (!points.is_empty()).then(|| Line { labels: labels.clone(), points })
    };
    Ok(table.rows().filter_map(line).collect())
}
