//! The moments at which an expression is evaluated, and what it is at each: a table with a row for each series.
//!
//! A whole range query is evaluated at once, column by column, instead of once for each step: a series' points are read once.
//! A cell without a value holds [`ABSENT`], a NaN with bits that only Prometheus' staleness marker has; such a value in a
//! point means "nothing here" anyway.
//!
//! May use: `labels`. Must not know: expressions.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

use super::labels::Labels;

/// The bits of Prometheus' staleness marker.
const ABSENT_BITS: u64 = 0x7ff0_0000_0000_0002;

/// No value.
pub(crate) const ABSENT: f64 = f64::from_bits(ABSENT_BITS);

/// Whether there is a value.
pub(crate) fn is_there(value: f64) -> bool {
    value.to_bits() != ABSENT_BITS
}

/// Moments, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) start: i64,
    /// Zero when all are the same moment.
    pub(crate) step: i64,
    /// At least one.
    pub(crate) count: usize,
}

impl Steps {
    pub(crate) fn at(&self, nth: usize) -> i64 {
        let nth = i64::try_from(nth).unwrap_or(i64::MAX);
        self.start.saturating_add(self.step.saturating_mul(nth))
    }

    pub(crate) fn end(&self) -> i64 {
        self.at(self.count.saturating_sub(1))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = i64> {
        let steps = *self;
        (0..steps.count).map(move |nth| steps.at(nth))
    }
}

/// Values of series at steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// How many steps there are.
    pub(crate) width: usize,
    pub(crate) labels: Vec<Labels>,
    /// Row by row.
    pub(crate) cells: Vec<f64>,
}

impl Table {
    pub(crate) fn new(width: usize) -> Self {
        Self { width, labels: Vec::new(), cells: Vec::new() }
    }

    /// Appends a row without values; its cells.
    pub(crate) fn row(&mut self, labels: Labels) -> &mut [f64] {
        let at = self.cells.len();
        self.labels.push(labels);
        self.cells.resize(at + self.width, ABSENT);
        self.cells.get_mut(at..).expect("the row was just made")
    }

    pub(crate) fn cells(&self, row: usize) -> &[f64] {
        self.cells.get(row * self.width..(row + 1) * self.width).unwrap_or(&[])
    }

    pub(crate) fn cells_mut(&mut self, row: usize) -> &mut [f64] {
        self.cells.get_mut(row * self.width..(row + 1) * self.width).unwrap_or(&mut [])
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Labels, &[f64])> {
        self.labels.iter().zip(self.cells.chunks_exact(self.width.max(1)))
    }

    /// Takes back the last row if it has no values.
    pub(crate) fn forget_last_if_empty(&mut self) {
        let last = self.labels.len().saturating_sub(1);
        if !self.cells(last).iter().copied().any(is_there) {
            self.labels.pop();
            self.cells.truncate(last * self.width);
        }
    }

    /// The same with other values where there are any.
    pub(crate) fn map(mut self, of: impl Fn(f64) -> f64) -> Self {
        self.cells.iter_mut().filter(|cell| is_there(**cell)).for_each(|cell| *cell = of(*cell));
        self
    }

    /// Takes the names of metrics away.
    pub(crate) fn without_names(mut self) -> Result<Self> {
        self.labels = self.labels.into_iter().map(Labels::without_name).collect();
        self.unique()
    }

    /// Makes rows with equal labels one.
    ///
    /// # Errors
    /// When two of them have a value at one step: then the labels do not say which is which.
    pub(crate) fn unique(self) -> Result<Self> {
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        order.sort_by_key(|row| self.labels.get(*row));
        let is_same = |pair: &[usize]| match pair {
            [a, b] => self.labels.get(*a) == self.labels.get(*b),
            _ => false,
        };
        if !order.windows(2).any(is_same) {
            return Ok(self);
        }
        let mut merged = Merged::new(self.width);
        for (labels, cells) in self.rows() {
            let row = merged.row(labels);
            for (to, from) in merged.table.cells_mut(row).iter_mut().zip(cells).filter(|(_, from)| is_there(**from)) {
                if is_there(*to) {
                    return Err(same_labels(labels));
                }
                *to = *from;
            }
        }
        Ok(merged.table)
    }
}

fn same_labels(labels: &Labels) -> Error {
    Error::invalid(format!(
        "vector cannot contain metrics with the same labelset: without the name of the metric, several series are {labels}; \
         select one metric, or aggregate by other labels"
    ))
}

/// A table whose rows are found by their labels.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) table: Table,
    rows: BTreeMap<Labels, usize>,
}

impl Merged {
    pub(crate) fn new(width: usize) -> Self {
        Self { table: Table::new(width), rows: BTreeMap::new() }
    }

    /// The row with these labels.
    pub(crate) fn row(&mut self, labels: &Labels) -> usize {
        if let Some(row) = self.rows.get(labels) {
            return *row;
        }
        let row = self.rows.len();
        self.rows.insert(labels.clone(), row);
        self.table.row(labels.clone());
        row
    }
}
