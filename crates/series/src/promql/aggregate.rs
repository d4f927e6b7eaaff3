//! Aggregations: many series become one for each group.
//!
//! May use: `eval`, `steps`, `sums`. Must not know: selectors, functions.

use std::collections::BTreeMap;

use promql_parser::parser::token::{
    T_AVG, T_BOTTOMK, T_COUNT, T_COUNT_VALUES, T_GROUP, T_MAX, T_MIN, T_QUANTILE, T_STDDEV, T_STDVAR, T_SUM, T_TOPK,
};
use promql_parser::parser::{AggregateExpr, LabelModifier};

use crate::error::{Error, Result};

use super::eval::{Eval, Out};
use super::floats::write_plain;
use super::labels::{Labels, check_label};
use super::steps::{Merged, Steps, Table, is_there};
use super::sums::{Mean, Spread, Sum, quantile};

/// The state of a step of the group that is being added up.
const STATE_BYTES: u64 = 32;

/// Rows that become one.
struct Groups {
    labels: Vec<Labels>,
    /// The rows of each.
    rows: Vec<Vec<usize>>,
}

pub(crate) fn evaluate(eval: &Eval<'_>, aggregation: &AggregateExpr, steps: &Steps) -> Result<Out> {
    let table = eval.vector(&aggregation.expr, steps)?;
    let groups = Groups::of(&table, aggregation.modifier.as_ref());
    eval.spend_cells(groups.labels.len(), steps)?;
    eval.source.hold(STATE_BYTES.saturating_mul(steps.count as u64))?;
    let param = || aggregation.param.as_deref().ok_or_else(|| Error::invalid("the aggregation lacks its parameter"));
    let one_each = |of| Ok(Out::Vector(fold_each(&table, &groups, of)));
    match aggregation.op.id() {
        T_SUM => Ok(Out::Vector(accumulate(&table, &groups, Sum::add, |sum: &Sum| sum.value()))),
        T_AVG => Ok(Out::Vector(accumulate(&table, &groups, Mean::add, |mean: &Mean| mean.value()))),
        T_STDVAR => Ok(Out::Vector(accumulate(&table, &groups, Spread::add, |spread: &Spread| spread.variance()))),
        T_STDDEV => {
            Ok(Out::Vector(accumulate(&table, &groups, Spread::add, |spread: &Spread| spread.variance().sqrt())))
        }
        T_MIN => one_each(|to, value| if value < to || to.is_nan() { value } else { to }),
        T_MAX => one_each(|to, value| if value > to || to.is_nan() { value } else { to }),
        T_COUNT => {
            let add = |count: &mut f64, _| *count += 1.0;
            Ok(Out::Vector(accumulate(&table, &groups, add, |count: &f64| *count)))
        }
        T_GROUP => Ok(Out::Vector(accumulate(&table, &groups, |_: &mut f64, _| {}, |_: &f64| 1.0))),
        T_QUANTILE => {
            let qs = eval.scalar(param()?, steps)?;
            Ok(Out::Vector(quantiles(&table, &groups, &qs)))
        }
        T_TOPK | T_BOTTOMK => {
            let ks = eval.scalar(param()?, steps)?;
            if let Some(k) = ks.iter().find(|k| !is_count(**k)) {
                let reason =
                    format!("{k} is no number of series that {} can take: write a whole number", aggregation.op);
                return Err(Error::invalid(reason));
            }
            let order = if aggregation.op.id() == T_TOPK { Order::Top } else { Order::Bottom };
            Ok(Out::Vector(extremes(&table, &groups, &ks, order)))
        }
        T_COUNT_VALUES => {
            let label = eval.text(param()?)?;
            check_label(&label)?;
            count_values(eval, &table, &groups, &label, steps).map(Out::Vector)
        }
        _ => Err(Error::invalid(format!("the aggregation {} is not supported", aggregation.op))),
    }
}

impl Groups {
    fn of(table: &Table, by: Option<&LabelModifier>) -> Self {
        let mut found: BTreeMap<Labels, usize> = BTreeMap::new();
        let mut groups = Self { labels: Vec::new(), rows: Vec::new() };
        for (row, labels) in table.labels.iter().enumerate() {
            let labels = match by {
                None => Labels::default(),
                Some(LabelModifier::Include(names)) => labels.only(&names.labels),
                Some(LabelModifier::Exclude(names)) => labels.but(&names.labels),
            };
            let group = *found.entry(labels).or_insert_with_key(|labels| {
                groups.labels.push(labels.clone());
                groups.rows.push(Vec::new());
                groups.rows.len() - 1
            });
            if let Some(rows) = groups.rows.get_mut(group) {
                rows.push(row);
            }
        }
        groups
    }

    fn iter(&self) -> impl Iterator<Item = (&Labels, &[usize])> {
        self.labels.iter().zip(self.rows.iter().map(Vec::as_slice))
    }
}

/// Goes row by row, which is the order in memory, with a state for each step.
fn accumulate<S: Default + Clone>(
    table: &Table,
    groups: &Groups,
    add: impl Fn(&mut S, f64),
    value: impl Fn(&S) -> f64,
) -> Table {
    let mut out = Table::new(table.width);
    let mut states: Vec<(bool, S)> = Vec::new();
    for (labels, rows) in groups.iter() {
        states.clear();
        states.resize(table.width, (false, S::default()));
        for row in rows {
            for ((is_any, state), cell) in states.iter_mut().zip(table.cells(*row)).filter(|(_, cell)| is_there(**cell))
            {
                *is_any = true;
                add(state, *cell);
            }
        }
        let made = out.row(labels.clone());
        for (cell, (_, state)) in made.iter_mut().zip(&states).filter(|(_, (is_any, _))| *is_any) {
            *cell = value(state);
        }
    }
    out
}

fn fold_each(table: &Table, groups: &Groups, of: fn(f64, f64) -> f64) -> Table {
    let mut out = Table::new(table.width);
    for (labels, rows) in groups.iter() {
        let made = out.row(labels.clone());
        for row in rows {
            for (to, cell) in made.iter_mut().zip(table.cells(*row)).filter(|(_, cell)| is_there(**cell)) {
                *to = if is_there(*to) { of(*to, *cell) } else { *cell };
            }
        }
    }
    out
}

/// The values of a group at a step, with their rows.
fn at<'a>(table: &'a Table, rows: &'a [usize], nth: usize) -> impl Iterator<Item = (usize, f64)> {
    let values = rows.iter().filter_map(move |row| Some((*row, *table.cells(*row).get(nth)?)));
    values.filter(|(_, value)| is_there(*value))
}

fn quantiles(table: &Table, groups: &Groups, qs: &[f64]) -> Table {
    let mut out = Table::new(table.width);
    let mut values = Vec::new();
    for (labels, rows) in groups.iter() {
        let made = out.row(labels.clone());
        for (nth, (to, q)) in made.iter_mut().zip(qs).enumerate() {
            values.clear();
            values.extend(at(table, rows, nth).map(|(_, value)| value));
            if !values.is_empty() {
                *to = quantile(*q, &mut values);
            }
        }
    }
    out
}

/// Whether a number may say how many: less than one is none, and what is none at all or beyond all counts is a mistake.
fn is_count(k: f64) -> bool {
    const COUNT_MAX: f64 = 9.2e18;
    k.abs() <= COUNT_MAX
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Top,
    Bottom,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count: out of range it saturates, which is meant"
)]
fn extremes(table: &Table, groups: &Groups, ks: &[f64], order: Order) -> Table {
    let mut kept = Table { cells: vec![super::steps::ABSENT; table.cells.len()], ..table.clone() };
    let mut first_order = Vec::new();
    let mut values: Vec<(usize, f64)> = Vec::new();
    for (_, rows) in groups.iter() {
        for (nth, k) in ks.iter().enumerate() {
            values.clear();
            values.extend(at(table, rows, nth));
            // NaN is the last that is taken, whichever end is asked for.
            values.sort_by(|(_, a), (_, b)| {
                let by_value = if order == Order::Top { b.total_cmp(a) } else { a.total_cmp(b) };
                a.is_nan().cmp(&b.is_nan()).then(if a == b { std::cmp::Ordering::Equal } else { by_value })
            });
            values.truncate(k.max(0.0) as usize);
            for (row, value) in &values {
                if let Some(cell) = kept.cells_mut(*row).get_mut(nth) {
                    *cell = *value;
                }
                if nth == 0 {
                    first_order.push(*row);
                }
            }
        }
    }
    let is_kept = |row: &usize| kept.cells(*row).iter().copied().any(is_there);
    // One step is answered in the order of values; more have none, and stay in the order of series.
    let rows = if table.width == 1 { first_order } else { (0..table.labels.len()).filter(is_kept).collect() };
    let mut out = Table::new(table.width);
    for row in rows {
        if let Some(labels) = kept.labels.get(row) {
            out.row(labels.clone()).copy_from_slice(kept.cells(row));
        }
    }
    out
}

fn count_values(eval: &Eval<'_>, table: &Table, groups: &Groups, label: &str, steps: &Steps) -> Result<Table> {
    let mut merged = Merged::new(table.width);
    let mut text = String::new();
    for (labels, rows) in groups.iter() {
        for nth in 0..table.width {
            for (_, value) in at(table, rows, nth) {
                text.clear();
                write_plain(value, &mut text);
                let mut labels = labels.clone();
                labels.set(label, &text);
                let before = merged.table.labels.len();
                let row = merged.row(&labels);
                eval.spend_cells(merged.table.labels.len() - before, steps)?;
                if let Some(cell) = merged.table.cells_mut(row).get_mut(nth) {
                    *cell = if is_there(*cell) { *cell + 1.0 } else { 1.0 };
                }
            }
        }
    }
    Ok(merged.table)
}
