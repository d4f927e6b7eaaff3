//! Evaluates a tree at all steps at once.
//!
//! Selectors read each series once; everything above works on tables. Depth is bounded by `scan`, memory by [`Limits`].
//!
//! May use: everything of the module. Must not know: HTTP, clocks: whoever asks says when it is late.

use std::cell::Cell;
use std::time::{Duration, UNIX_EPOCH};

use promql_parser::parser::{AtModifier, Expr, MatrixSelector, Offset, SubqueryExpr, VectorSelector};

use crate::error::{Error, Result};
use crate::held::Held;
use crate::points::Points;
use crate::source::{Range, Source};

use super::find::{Named, Selector};
use super::labels::Labels;
use super::steps::{Steps, Table, is_there};
use super::window::Samples;
use super::{aggregate, binary, call};

/// How far back the value of a series is looked for.
pub(crate) const LOOKBACK: i64 = 300 * 1_000_000_000;
/// The step of a subquery that names none.
const SUBQUERY_STEP: i64 = 60 * 1_000_000_000;
/// Windows that lie further from each other are read one by one, and not what lies between them. Finding a place in a series costs
/// about what reading some thousand points does.
const GAP_MIN: i64 = 6 * 3600 * 1_000_000_000;

/// What a value of a series at a step counts as in memory: it is copied once or twice on its way to the answer.
const CELL_BYTES: u64 = 16;
/// The longest value of a label that an expression makes: several times what one that was written may have. Functions within each other
/// multiply it each time.
const LABEL_BYTES_MAX: u64 = 16 << 10;
/// A value of a subquery once more, as a sample in windows: its time, itself, and where it is less than the one before it.
const SAMPLE_BYTES: u64 = 32;

/// How much one query may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Points that are read, all series and selectors together. Prometheus has 50 million too.
    pub points_max: u64,
    /// Values of series at steps, all intermediate results together; each takes 8 bytes.
    pub cells_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { points_max: 50_000_000, cells_max: 50_000_000 }
    }
}

/// What an expression is at each step.
#[derive(Debug)]
pub(crate) enum Out {
    Scalar(Vec<f64>),
    Vector(Table),
    Text(String),
}

/// One evaluation.
pub(crate) struct Eval<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) database: &'a str,
    pub(crate) limits: Limits,
    /// Says whether to go on.
    pub(crate) go_on: &'a dyn Fn() -> bool,
    /// What `@ start()` and `@ end()` mean.
    pub(crate) asked: Steps,
    pub(crate) points: Cell<u64>,
    pub(crate) cells: Cell<u64>,
    /// The points of the series that is being read.
    pub(crate) reading: Held,
}

/// The samples of series in windows: what functions of a window work on.
pub(crate) struct Windows {
    /// Where windows end.
    pub(crate) ends: Steps,
    /// How long they are.
    pub(crate) range: i64,
    from: From,
}

enum From {
    Series(Vec<Named>),
    Rows(Steps, Table),
}

impl Eval<'_> {
    pub(crate) fn value(&self, expr: &Expr, steps: &Steps) -> Result<Out> {
        match expr {
            Expr::NumberLiteral(number) => self.same(number.val, steps).map(Out::Scalar),
            Expr::StringLiteral(text) => Ok(Out::Text(text.val.clone())),
            Expr::Paren(paren) => self.value(&paren.expr, steps),
            Expr::Unary(unary) => match self.value(&unary.expr, steps)? {
                Out::Scalar(values) => Ok(Out::Scalar(values.into_iter().map(|value| -value).collect())),
                Out::Vector(table) => Ok(Out::Vector(table.map(|value| -value).without_names()?)),
                Out::Text(_) => Err(Error::invalid("a text has no negative")),
            },
            Expr::VectorSelector(selector) => self.instant(selector, steps, |_, value| value).map(Out::Vector),
            Expr::Binary(operation) => binary::evaluate(self, operation, steps),
            Expr::Aggregate(aggregation) => aggregate::evaluate(self, aggregation, steps),
            Expr::Call(function) => call::evaluate(self, function, steps),
            Expr::MatrixSelector(_) | Expr::Subquery(_) => Err(Error::invalid(
                "a range of points stands where a value of each series has to: use a function such as rate",
            )),
            Expr::Extension(_) => Err(Error::invalid("this is not supported")),
        }
    }

    /// A value of each series, as most expressions need it.
    pub(crate) fn vector(&self, expr: &Expr, steps: &Steps) -> Result<Table> {
        match self.value(expr, steps)? {
            Out::Vector(table) => Ok(table),
            Out::Scalar(_) | Out::Text(_) => Err(Error::invalid("a number or text stands where series have to")),
        }
    }

    pub(crate) fn scalar(&self, expr: &Expr, steps: &Steps) -> Result<Vec<f64>> {
        match self.value(expr, steps)? {
            Out::Scalar(values) => Ok(values),
            Out::Vector(_) | Out::Text(_) => Err(Error::invalid("series or text stand where a number has to")),
        }
    }

    pub(crate) fn text(&self, expr: &Expr) -> Result<String> {
        match expr {
            Expr::StringLiteral(text) => Ok(text.val.clone()),
            Expr::Paren(paren) => self.text(&paren.expr),
            _ => Err(Error::invalid("something else stands where a text in quotes has to")),
        }
    }

    /// Notes that so many values are about to be made.
    pub(crate) fn spend_cells(&self, rows: usize, steps: &Steps) -> Result<()> {
        let cells = self.cells.get().saturating_add((rows as u64).saturating_mul(steps.count as u64));
        self.cells.set(cells);
        limited("values of series at steps", cells, self.limits.cells_max)?;
        self.source.hold((rows as u64).saturating_mul(steps.count as u64).saturating_mul(CELL_BYTES))?;
        self.check_time()
    }

    /// One number at every step.
    pub(crate) fn same(&self, number: f64, steps: &Steps) -> Result<Vec<f64>> {
        self.numbers(steps, std::iter::repeat_n(number, steps.count))
    }

    /// A number at each step.
    pub(crate) fn numbers(&self, steps: &Steps, numbers: impl Iterator<Item = f64>) -> Result<Vec<f64>> {
        self.spend_cells(1, steps)?;
        Ok(numbers.collect())
    }

    /// One series.
    pub(crate) fn one_row(&self, labels: Labels, steps: &Steps, cells: impl Iterator<Item = f64>) -> Result<Table> {
        self.spend_cells(1, steps)?;
        let mut table = Table::new(steps.count);
        table.row(labels).iter_mut().zip(cells).for_each(|(to, cell)| *to = cell);
        Ok(table)
    }

    /// Notes that a label's value of so many bytes is made of others.
    pub(crate) fn spend_label(&self, bytes: usize) -> Result<()> {
        limited("bytes of a label's value", bytes as u64, LABEL_BYTES_MAX)?;
        self.source.hold(2 * bytes as u64)
    }

    /// Asks whether to go on.
    pub(crate) fn check_time(&self) -> Result<()> {
        self.source.go_on()?;
        if (self.go_on)() { Ok(()) } else { Err(Error::invalid("the query took too long")) }
    }

    /// The moments that a selector is about.
    fn shifted(&self, steps: &Steps, at: Option<&AtModifier>, offset: Option<&Offset>) -> Steps {
        let mut shifted = *steps;
        let fixed = match at {
            Some(AtModifier::Start) => Some(self.asked.start),
            Some(AtModifier::End) => Some(self.asked.end()),
            Some(AtModifier::At(time)) => Some(match time.duration_since(UNIX_EPOCH) {
                Ok(after) => nanos(after),
                Err(before) => nanos(before.duration()).saturating_neg(),
            }),
            None => None,
        };
        if let Some(fixed) = fixed {
            shifted = Steps { start: fixed, step: 0, ..shifted };
        }
        shifted.start = match offset {
            Some(Offset::Pos(back)) => shifted.start.saturating_sub(nanos(*back)),
            Some(Offset::Neg(ahead)) => shifted.start.saturating_add(nanos(*ahead)),
            None => shifted.start,
        };
        shifted
    }

    /// The last value of each series at each step, given to `of` with its time; none when the series ended after it.
    pub(crate) fn instant(&self, selector: &VectorSelector, steps: &Steps, of: fn(i64, f64) -> f64) -> Result<Table> {
        let ends = self.shifted(steps, selector.at.as_ref(), selector.offset.as_ref());
        let series = Selector::of(selector).find(self.source, self.database)?;
        let windows = Windows { ends, range: LOOKBACK, from: From::Series(series) };
        let mut table = Table::new(steps.count);
        self.each(&windows, |labels, samples| {
            self.spend_cells(1, steps)?;
            let row = table.row(labels.clone());
            let (mut ended, mut later) = (None, samples.ends.iter().peekable());
            samples.slide(&ends, LOOKBACK, |nth, window| {
                while let Some(end) = later.next_if(|end| **end <= window.to) {
                    ended = Some(end);
                }
                if let (Some(time), Some(value), Some(cell)) =
                    (window.times.last(), window.values.last(), row.get_mut(nth))
                    && ended < Some(time)
                {
                    *cell = of(*time, *value);
                }
                Ok(())
            })?;
            table.forget_last_if_empty();
            Ok(())
        })?;
        Ok(table)
    }

    /// What a range selector or a subquery means.
    pub(crate) fn windows(&self, expr: &Expr, steps: &Steps) -> Result<Windows> {
        match expr {
            Expr::Paren(paren) => self.windows(&paren.expr, steps),
            Expr::MatrixSelector(MatrixSelector { vs, range }) => Ok(Windows {
                ends: self.shifted(steps, vs.at.as_ref(), vs.offset.as_ref()),
                range: nanos(*range),
                from: From::Series(Selector::of(vs).find(self.source, self.database)?),
            }),
            Expr::Subquery(subquery) => self.subquery(subquery, steps),
            _ => Err(Error::invalid("a value of each series stands where a range of points has to: write x[5m]")),
        }
    }

    fn subquery(&self, subquery: &SubqueryExpr, steps: &Steps) -> Result<Windows> {
        let ends = self.shifted(steps, subquery.at.as_ref(), subquery.offset.as_ref());
        let range = nanos(subquery.range);
        let step = subquery.step.map_or(SUBQUERY_STEP, nanos).max(1);
        // Its own steps are multiples of the step, so that they do not move with the query.
        let from = ends.start.saturating_sub(range);
        let first = from.div_euclid(step).saturating_add(1).saturating_mul(step);
        let count = ends.end().saturating_sub(first).div_euclid(step).saturating_add(1).max(1);
        limited("steps of a subquery", count.unsigned_abs(), self.limits.cells_max)?;
        let inner = Steps { start: first, step, count: usize::try_from(count).unwrap_or(usize::MAX) };
        let table = self.vector(&subquery.expr, &inner)?;
        Ok(Windows { ends, range, from: From::Rows(inner, table) })
    }

    /// Shows the samples of each series.
    pub(crate) fn each(&self, windows: &Windows, mut see: impl FnMut(&Labels, &Samples) -> Result<()>) -> Result<()> {
        let mut samples = Samples::default();
        match &windows.from {
            From::Rows(steps, table) => {
                self.reading.set(self.source, SAMPLE_BYTES.saturating_mul(steps.count as u64))?;
                for (labels, cells) in table.rows() {
                    samples.fill_row(steps, cells);
                    see(labels, &samples)?;
                }
            }
            From::Series(series) => {
                let mut points = Points::new();
                for named in series {
                    self.read(named, windows, &mut points)?;
                    samples.fill(&points);
                    see(&named.labels, &samples)?;
                }
            }
        }
        Ok(())
    }

    fn read(&self, named: &Named, windows: &Windows, to: &mut Points) -> Result<()> {
        self.check_time()?;
        to.clear();
        let Windows { ends, range, .. } = windows;
        let is_sparse = ends.step.saturating_sub(*range) > GAP_MIN;
        let after = |start: i64| start.saturating_sub(*range).saturating_add(1);
        for id in &named.ids {
            if is_sparse {
                for end in ends.iter() {
                    self.source.points(*id, Range { from: after(end), to: end }, to)?;
                }
            } else {
                self.source.points(*id, Range { from: after(ends.start), to: ends.end() }, to)?;
            }
        }
        if named.ids.len() > 1 {
            to.sort();
        }
        // And once more as numbers.
        self.reading.set(self.source, 2 * to.memory_bytes() as u64)?;
        let points = self.points.get().saturating_add(to.len() as u64);
        self.points.set(points);
        limited("points of one query", points, self.limits.points_max)
    }
}

fn limited(what: &'static str, actual: u64, limit: u64) -> Result<()> {
    if actual > limit { Err(Error::Limit { what, actual, limit }) } else { Ok(()) }
}

pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Whether no cell at a step has a value.
pub(crate) fn is_empty_at(table: &Table, nth: usize) -> bool {
    !table.rows().any(|(_, cells)| cells.get(nth).is_some_and(|cell| is_there(*cell)))
}
