//! Functions.
//!
//! May use: `eval`, `over_time`, `dates`, `histogram`. Must not know: aggregations, operations.

use crate::error::{Error, Result};
use crate::regexes::Regexes;
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{Call, Expr};

use super::eval::{Eval, Out};
use super::find::Selector;
use super::labels::{Labels, NAME, check_label};
use super::matching::absent_cells;
use super::over_time::{self, Beside};
use super::steps::{ABSENT, Steps, Table, is_there};
use super::{dates, histogram};

/// Functions that are written out below.
const OTHERS: &[&str] = &[
    "absent",
    "absent_over_time",
    "clamp",
    "clamp_max",
    "clamp_min",
    "histogram_quantile",
    "label_join",
    "label_replace",
    "pi",
    "round",
    "scalar",
    "sort",
    "sort_desc",
    "time",
    "timestamp",
    "vector",
];
/// Functions of a window whose result is still a value of the metric.
/// Values in windows between two looks whether to go on: some hundred microseconds.
const STRETCH_VALUES: usize = 64 << 10;
const KEEPS_NAME: &[&str] = &["first_over_time", "last_over_time"];

/// Whether there is such a function.
pub(crate) fn is_known(name: &str) -> bool {
    let is_of_value = of_value(name).is_some() || dates::by_name(name).is_some();
    is_of_value || over_time::by_name(name).is_some() || OTHERS.contains(&name)
}

/// A function of one number.
fn of_value(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "abs" => f64::abs,
        "acos" => f64::acos,
        "acosh" => f64::acosh,
        "asin" => f64::asin,
        "asinh" => f64::asinh,
        "atan" => f64::atan,
        "atanh" => f64::atanh,
        "ceil" => f64::ceil,
        "cos" => f64::cos,
        "cosh" => f64::cosh,
        "deg" => f64::to_degrees,
        "exp" => f64::exp,
        "floor" => f64::floor,
        "ln" => f64::ln,
        "log10" => f64::log10,
        "log2" => f64::log2,
        "rad" => f64::to_radians,
        "sgn" => |value| if value == 0.0 || value.is_nan() { value } else { value.signum() },
        "sin" => f64::sin,
        "sinh" => f64::sinh,
        "sqrt" => f64::sqrt,
        "tan" => f64::tan,
        "tanh" => f64::tanh,
        _ => return None,
    })
}

/// The arguments of one call.
struct Args<'a> {
    eval: &'a Eval<'a>,
    call: &'a Call,
    steps: &'a Steps,
}

impl Args<'_> {
    fn expr(&self, nth: usize) -> Result<&Expr> {
        let lacks = || Error::invalid(format!("{} lacks an argument", self.call.func.name));
        self.call.args.args.get(nth).map(AsRef::as_ref).ok_or_else(lacks)
    }

    fn vector(&self, nth: usize) -> Result<Table> {
        self.eval.vector(self.expr(nth)?, self.steps)
    }

    fn scalar(&self, nth: usize) -> Result<Vec<f64>> {
        self.eval.scalar(self.expr(nth)?, self.steps)
    }

    fn scalar_or(&self, nth: usize, default: f64) -> Result<Vec<f64>> {
        if self.call.args.args.len() > nth { self.scalar(nth) } else { self.eval.same(default, self.steps) }
    }

    fn text(&self, nth: usize) -> Result<String> {
        self.eval.text(self.expr(nth)?)
    }

    /// Every value with the numbers of its step.
    fn with_numbers(&self, table: Table, numbers: [&[f64]; 2], of: impl Fn(f64, [f64; 2]) -> f64) -> Result<Out> {
        let mut table = table;
        let [first, second] = numbers;
        for row in 0..table.labels.len() {
            let cells = table.cells_mut(row).iter_mut().zip(first.iter().zip(second));
            cells.filter(|(cell, _)| is_there(**cell)).for_each(|(cell, (a, b))| *cell = of(*cell, [*a, *b]));
        }
        table.without_names().map(Out::Vector)
    }
}

pub(crate) fn evaluate(eval: &Eval<'_>, call: &Call, steps: &Steps) -> Result<Out> {
    let name = call.func.name;
    let args = Args { eval, call, steps };
    if over_time::by_name(name).is_some() {
        return of_window(&args).map(Out::Vector);
    }
    if let Some(of) = of_value(name) {
        return args.vector(0)?.map(of).without_names().map(Out::Vector);
    }
    if let Some(of) = dates::by_name(name) {
        let table = match call.args.is_empty() {
            true => eval.one_row(Labels::default(), steps, steps.iter().map(seconds))?,
            false => args.vector(0)?,
        };
        return table.map(of).without_names().map(Out::Vector);
    }
    match name {
        "absent" => {
            let table = args.vector(0)?;
            let labels = match args.expr(0)? {
                Expr::VectorSelector(selector) => Selector::of(selector).equal_labels(),
                _ => Labels::default(),
            };
            eval.one_row(labels, steps, absent_cells(&table)).map(Out::Vector)
        }
        "absent_over_time" => absent_over_time(&args).map(Out::Vector),
        "clamp" => {
            let (table, lowest, highest) = (args.vector(0)?, args.scalar(1)?, args.scalar(2)?);
            args.with_numbers(table, [&lowest, &highest], |value, [lowest, highest]| match () {
                () if lowest > highest => ABSENT,
                () => smaller(larger(value, lowest), highest),
            })
        }
        "clamp_max" => {
            let (table, highest) = (args.vector(0)?, args.scalar(1)?);
            args.with_numbers(table, [&highest, &highest], |value, [highest, _]| smaller(value, highest))
        }
        "clamp_min" => {
            let (table, lowest) = (args.vector(0)?, args.scalar(1)?);
            args.with_numbers(table, [&lowest, &lowest], |value, [lowest, _]| larger(value, lowest))
        }
        "histogram_quantile" => {
            let (qs, table) = (args.scalar(0)?, args.vector(1)?);
            Ok(Out::Vector(histogram::quantiles(&qs, &table)))
        }
        "label_join" => label_join(&args).map(Out::Vector),
        "label_replace" => label_replace(&args).map(Out::Vector),
        "pi" => eval.same(std::f64::consts::PI, steps).map(Out::Scalar),
        "round" => {
            let (table, to) = (args.vector(0)?, args.scalar_or(1, 1.0)?);
            // Halves go up; dividing by the inverse keeps 0.1 from becoming 0.10000000000000001.
            args.with_numbers(table, [&to, &to], |value, [to, _]| {
                let inverse = 1.0 / to;
                (value * inverse + 0.5).floor() / inverse
            })
        }
        "scalar" => {
            let table = args.vector(0)?;
            eval.numbers(steps, (0..steps.count).map(|nth| only(&table, nth))).map(Out::Scalar)
        }
        "sort" | "sort_desc" => {
            let table = args.vector(0)?;
            Ok(Out::Vector(if steps.count == 1 { sorted(&table, name == "sort") } else { table }))
        }
        "time" => eval.numbers(steps, steps.iter().map(seconds)).map(Out::Scalar),
        "timestamp" => timestamps(&args).map(Out::Vector),
        "vector" => {
            let numbers = args.scalar(0)?;
            eval.one_row(Labels::default(), steps, numbers.into_iter()).map(Out::Vector)
        }
        _ => Err(Error::invalid(format!("the function {name} is not supported"))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
fn seconds(time: i64) -> f64 {
    // Milliseconds are what Prometheus knows of time.
    time.div_euclid(1_000_000) as f64 / 1000.0
}

/// Unlike the ones of the standard library, NaN stays.
fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Whether an argument is a range of points.
fn is_window(arg: &Expr) -> bool {
    arg.value_type() == ValueType::Matrix
}

fn of_window(args: &Args<'_>) -> Result<Table> {
    let name = args.call.func.name;
    let Args { eval, call, steps } = *args;
    let of = over_time::by_name(name).ok_or_else(|| Error::invalid(format!("there is no function {name}")))?;
    let place = call.args.args.iter().position(|arg| is_window(arg));
    let place = place.ok_or_else(|| Error::invalid(format!("{name} needs a range of points: write x[5m]")))?;
    let params = match name {
        "quantile_over_time" => args.scalar(0)?,
        "predict_linear" => args.scalar(1)?,
        _ => Vec::new(),
    };
    let windows = eval.windows(args.expr(place)?, steps)?;
    let keeps_name = KEEPS_NAME.contains(&name);
    let mut table = Table::new(steps.count);
    let mut scratch = Vec::new();
    eval.each(&windows, |labels, samples| {
        eval.spend_cells(1, steps)?;
        let labels = if keeps_name { labels.clone() } else { labels.clone().without_name() };
        let row = table.row(labels);
        let mut seen = 0;
        samples.slide(&windows.ends, windows.range, |nth, window| {
            // Long windows at many steps are the same points over and over.
            seen += window.values.len();
            if seen > STRETCH_VALUES {
                eval.check_time()?;
                seen = 0;
            }
            let param = params.get(nth).copied().unwrap_or(0.0);
            let mut beside = Beside { param, now: steps.at(nth), scratch: &mut scratch };
            if let Some(cell) = row.get_mut(nth) {
                *cell = of(window, &mut beside);
            }
            Ok(())
        })?;
        table.forget_last_if_empty();
        Ok(())
    })?;
    table.unique()
}

fn absent_over_time(args: &Args<'_>) -> Result<Table> {
    let expr = args.expr(0)?;
    let windows = args.eval.windows(expr, args.steps)?;
    let mut is_any = args.eval.one_row(Labels::default(), args.steps, std::iter::empty())?;
    let cells = is_any.cells_mut(0);
    args.eval.each(&windows, |_, samples| {
        samples.slide(&windows.ends, windows.range, |nth, window| {
            if let Some(cell) = cells.get_mut(nth).filter(|_| !window.values.is_empty()) {
                *cell = 1.0;
            }
            Ok(())
        })
    })?;
    let labels = match expr {
        Expr::MatrixSelector(selector) => Selector::of(&selector.vs).equal_labels(),
        _ => Labels::default(),
    };
    args.eval.one_row(labels, args.steps, absent_cells(&is_any))
}

/// The only value at a step; NaN when there are several or none.
fn only(table: &Table, nth: usize) -> f64 {
    let mut values = table.rows().filter_map(|(_, cells)| cells.get(nth).copied()).filter(|cell| is_there(*cell));
    match (values.next(), values.next()) {
        (Some(value), None) => value,
        _ => f64::NAN,
    }
}

/// The rows by their first value, NaN at the end.
fn sorted(table: &Table, is_ascending: bool) -> Table {
    let mut rows: Vec<(&Labels, &[f64])> =
        table.rows().filter(|(_, cells)| cells.first().is_some_and(|cell| is_there(*cell))).collect();
    let value = |row: &(&Labels, &[f64])| row.1.first().copied().unwrap_or(f64::NAN);
    rows.sort_by(|a, b| {
        let (a, b) = (value(a), value(b));
        let by_value = if is_ascending { a.partial_cmp(&b) } else { b.partial_cmp(&a) };
        a.is_nan().cmp(&b.is_nan()).then(by_value.unwrap_or(std::cmp::Ordering::Equal))
    });
    let mut out = Table::new(table.width);
    for (labels, cells) in rows {
        out.row(labels.clone()).copy_from_slice(cells);
    }
    out
}

fn timestamps(args: &Args<'_>) -> Result<Table> {
    let mut inner = args.expr(0)?;
    while let Expr::Paren(paren) = inner {
        inner = &paren.expr;
    }
    if let Expr::VectorSelector(selector) = inner {
        return args.eval.instant(selector, args.steps, |time, _| seconds(time))?.without_names();
    }
    let mut table = args.vector(0)?;
    for row in 0..table.labels.len() {
        let cells = table.cells_mut(row).iter_mut().zip(args.steps.iter());
        cells.filter(|(cell, _)| is_there(**cell)).for_each(|(cell, time)| *cell = seconds(time));
    }
    table.without_names()
}

fn label_replace(args: &Args<'_>) -> Result<Table> {
    let mut table = args.vector(0)?;
    let [to, replacement, from, regex] = [args.text(1)?, args.text(2)?, args.text(3)?, args.text(4)?];
    check_label(&to)?;
    let regex = Regexes::default()
        .builder(&format!("^(?s:{regex})$"))?
        .build()
        .map_err(|_| Error::invalid(format!("{regex:?} is no regular expression")))?;
    let mut value = String::new();
    for labels in &mut table.labels {
        if let Some(captures) = regex.captures(labels.get(&from)) {
            value.clear();
            captures.expand(&replacement, &mut value);
            args.eval.spend_label(value.len())?;
            labels.set(&to, &value);
        }
    }
    table.unique()
}

fn label_join(args: &Args<'_>) -> Result<Table> {
    let mut table = args.vector(0)?;
    let (to, separator) = (args.text(1)?, args.text(2)?);
    if to != NAME {
        check_label(&to)?;
    }
    let from = (3..args.call.args.args.len()).map(|nth| args.text(nth)).collect::<Result<Vec<String>>>()?;
    for labels in &mut table.labels {
        let values: Vec<&str> = from.iter().map(|name| labels.get(name)).collect();
        args.eval.spend_label(values.iter().map(|value| value.len() + separator.len()).sum())?;
        let joined = values.join(&separator);
        labels.set(&to, &joined);
    }
    table.unique()
}
