//! Operations on two sides of series: which series of one goes with which of the other.
//!
//! Series go together whose *signatures* are equal: the labels named by `on`, or all but those of `ignoring` and the name. What
//! has no value at a step is not there at that step, so each rule holds step by step.
//!
//! May use: `steps`, `binary`. Must not know: expressions below.

use std::collections::BTreeMap;

use promql_parser::parser::{BinModifier, LabelModifier, VectorMatchCardinality};

use crate::error::{Error, Result};

use super::binary::Operator;
use super::eval::is_empty_at;
use super::labels::{Labels, NAME};
use super::steps::{ABSENT, Merged, Table, is_there};

/// Operations on what is there, whatever the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    And,
    Or,
    Unless,
}

fn signature(labels: &Labels, matching: Option<&LabelModifier>) -> Labels {
    match matching {
        Some(LabelModifier::Include(names)) => labels.only(&names.labels),
        Some(LabelModifier::Exclude(names)) => labels.but(&names.labels),
        None => labels.but(&[]),
    }
}

/// The rows of a table by their signatures.
fn by_signature(table: &Table, matching: Option<&LabelModifier>) -> BTreeMap<Labels, Vec<usize>> {
    let mut rows: BTreeMap<Labels, Vec<usize>> = BTreeMap::new();
    for (row, labels) in table.labels.iter().enumerate() {
        rows.entry(signature(labels, matching)).or_default().push(row);
    }
    rows
}

/// At which steps a signature has a value.
fn presence(table: &Table, matching: Option<&LabelModifier>) -> BTreeMap<Labels, Vec<bool>> {
    let mut steps: BTreeMap<Labels, Vec<bool>> = BTreeMap::new();
    for (labels, cells) in table.rows() {
        let steps = steps.entry(signature(labels, matching)).or_insert_with(|| vec![false; table.width]);
        steps.iter_mut().zip(cells).for_each(|(is_any, cell)| *is_any |= is_there(*cell));
    }
    steps
}

/// `and`, `or`, `unless`.
pub(crate) fn combine(left: &Table, right: &Table, set: Set, matching: Option<&LabelModifier>) -> Table {
    let mut out = Merged::new(left.width);
    let nowhere = vec![false; left.width];
    let in_right = if set == Set::Or { BTreeMap::new() } else { presence(right, matching) };
    let is_wanted = set == Set::And;
    for (labels, cells) in left.rows() {
        let others = in_right.get(&signature(labels, matching)).unwrap_or(&nowhere);
        let row = out.row(labels);
        for ((to, cell), is_other) in out.table.cells_mut(row).iter_mut().zip(cells).zip(others) {
            if *is_other == is_wanted && is_there(*cell) {
                *to = *cell;
            }
        }
    }
    if set == Set::Or {
        let in_left = presence(left, matching);
        for (labels, cells) in right.rows() {
            let others = in_left.get(&signature(labels, matching)).unwrap_or(&nowhere);
            let row = out.row(labels);
            for ((to, cell), is_other) in out.table.cells_mut(row).iter_mut().zip(cells).zip(others) {
                if !is_other && is_there(*cell) {
                    *to = *cell;
                }
            }
        }
    }
    out.table
}

/// How many series of each side go together, and which labels come from the other.
enum Card<'a> {
    OneToOne,
    /// The left side is the one with many.
    ManyToOne(&'a [String]),
    OneToMany(&'a [String]),
}

/// Arithmetic and comparisons.
pub(crate) fn operate(
    left: &Table,
    right: &Table,
    operator: Operator,
    modifier: Option<&BinModifier>,
) -> Result<Table> {
    let matching = modifier.and_then(|modifier| modifier.matching.as_ref());
    let card = match modifier.map(|modifier| &modifier.card) {
        Some(VectorMatchCardinality::ManyToOne(names)) => Card::ManyToOne(&names.labels),
        Some(VectorMatchCardinality::OneToMany(names)) => Card::OneToMany(&names.labels),
        _ => Card::OneToOne,
    };
    // `many` is the side whose labels the result has; in the other a signature is there once at most.
    let is_swapped = matches!(card, Card::OneToMany(_));
    let (many, one) = if is_swapped { (right, left) } else { (left, right) };
    let ones = by_signature(one, matching);
    let is_some_many: Vec<bool> = (0..many.width).map(|nth| !is_empty_at(many, nth)).collect();
    for (labels, rows) in &ones {
        check_alone(one, rows, labels, &is_some_many)?;
    }
    let mut out = Merged::new(many.width);
    // Which signatures were used at which step, where each may be once.
    let mut used: BTreeMap<Labels, Vec<bool>> = BTreeMap::new();
    for (labels, cells) in many.rows() {
        let signature = signature(labels, matching);
        let Some(partners) = ones.get(&signature) else { continue };
        for partner in partners {
            let with = one.labels.get(*partner).cloned().unwrap_or_default();
            let row = out.row(&result_labels(labels, &with, operator, matching, &card));
            let used = match card {
                Card::OneToOne => Some(used.entry(signature.clone()).or_insert_with(|| vec![false; many.width])),
                Card::ManyToOne(_) | Card::OneToMany(_) => None,
            };
            let mut used = used.map(|used| used.iter_mut());
            for ((to, a), b) in out.table.cells_mut(row).iter_mut().zip(cells).zip(one.cells(*partner)) {
                let is_used = used.as_mut().and_then(Iterator::next);
                if !is_there(*a) || !is_there(*b) {
                    continue;
                }
                let value = if is_swapped { operator.apply(*b, *a) } else { operator.apply(*a, *b) };
                if !is_there(value) {
                    continue;
                }
                if is_used.is_some_and(|is_used| std::mem::replace(is_used, true)) {
                    return Err(Error::invalid(format!(
                        "multiple matches for labels: many series of the left side go with {signature}: many-to-one \
                         matching must be explicit (group_left/group_right)"
                    )));
                }
                if is_there(*to) {
                    return Err(Error::invalid(
                        "multiple matches for labels: grouping labels must ensure unique matches",
                    ));
                }
                *to = value;
            }
        }
    }
    Ok(out.table)
}

/// No two rows have values at one step at which the other side has any.
fn check_alone(table: &Table, rows: &[usize], signature: &Labels, counts: &[bool]) -> Result<()> {
    if rows.len() < 2 {
        return Ok(());
    }
    for (nth, _) in counts.iter().enumerate().filter(|(_, counts)| **counts) {
        let is_there_at = |row: &&usize| table.cells(**row).get(nth).copied().is_some_and(is_there);
        let mut there = rows.iter().filter(is_there_at).filter_map(|row| table.labels.get(*row));
        if let (Some(one), Some(other)) = (there.next(), there.next()) {
            return Err(Error::invalid(format!(
                "found duplicate series for the match group {signature}: {one} and {other}; many-to-many matching not \
                 allowed: matching labels must be unique on one side"
            )));
        }
    }
    Ok(())
}

fn result_labels(
    many: &Labels,
    one: &Labels,
    operator: Operator,
    matching: Option<&LabelModifier>,
    card: &Card<'_>,
) -> Labels {
    let mut labels = many.clone();
    if operator.loses_name() {
        labels.set(NAME, "");
    }
    match card {
        Card::OneToOne => match matching {
            Some(LabelModifier::Include(names)) => labels = labels.only(&names.labels),
            Some(LabelModifier::Exclude(names)) => names.labels.iter().for_each(|name| labels.set(name, "")),
            None => {}
        },
        Card::ManyToOne(names) | Card::OneToMany(names) => {
            names.iter().for_each(|name| labels.set(name, one.get(name)));
        }
    }
    labels
}

/// No value where something is.
pub(crate) fn absent_cells(table: &Table) -> impl Iterator<Item = f64> {
    (0..table.width).map(|nth| if is_empty_at(table, nth) { 1.0 } else { ABSENT })
}
