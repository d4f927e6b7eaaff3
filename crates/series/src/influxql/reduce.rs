//! Functions whose results of parts give the result of the whole: one pass over each series, in any order, nothing kept but a part
//! for each window.
//!
//! May use: `call`, `window`, `math`, `rollup`. Must not know: where points come from.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use super::call::Aggregate;
use super::math::compare;
use super::window::{Runs, Window};
use crate::error::{Error, Result};
use crate::points::Points;
use crate::rollup::{Share, Summary, Windows};
use crate::value::{Kind, Value, ValueRef};

/// What is known of the points of one window.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Count(u64),
    Sum(Value, u64),
    /// The point that is chosen, and whose it is.
    Pick(i64, Value, usize),
    Ends(Value, Value),
}

/// A part in memory, with its place in the tree.
const PART_BYTES: u64 = 2 * size_of::<(i64, Part)>() as u64;
/// What parts grow by before that is held.
const PORTION_BYTES: u64 = 64 << 10;

/// Holds so many bytes more.
pub(crate) type Hold<'h> = dyn Fn(u64) -> Result<()> + 'h;

/// What is known so far, by the start of windows.
pub(crate) struct Parts<'c> {
    aggregate: &'c Aggregate,
    window: Option<&'c Window>,
    hold: &'c Hold<'c>,
    /// Bytes that are not held yet.
    unheld: u64,
    pub(crate) all: BTreeMap<i64, Part>,
    /// There were summaries among what was added.
    has_summaries: bool,
    /// Of two points the earlier should have been chosen, and it is not known which that is.
    pub(crate) is_doubtful: bool,
}

/// Whether a function can be computed in this way.
pub(crate) fn is_for(aggregate: &Aggregate) -> bool {
    use Aggregate::{Count, First, Last, Max, Mean, Min, Spread, Sum};
    matches!(aggregate, Count | Sum | Mean | Min | Max | First | Last | Spread)
}

/// A function does not work on values of this type.
pub(crate) fn unsupported(aggregate: &Aggregate, kind: Kind) -> Error {
    let name = format!("{aggregate:?}").to_lowercase();
    let name = name.split('(').next().unwrap_or_default();
    Error::invalid(format!("unsupported {name} iterator type: *query.{}InterruptIterator", kind.name()))
}

fn float(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// The place of the first value that none is better than; a number is better than what is none.
fn best<T: Copy>(values: impl Iterator<Item = T>, is_better: impl Fn(T, T) -> bool) -> Option<usize> {
    let mut best: Option<(usize, T)> = None;
    for (at, value) in values.enumerate() {
        match best {
            Some((_, found)) if !is_better(value, found) => {}
            _ => best = Some((at, value)),
        }
    }
    best.map(|(at, _)| at)
}

fn least(points: &Points, kind: Kind, range: Range<usize>) -> Option<usize> {
    let bits = points.bits().get(range)?.iter().copied();
    match kind {
        Kind::Float => best(bits.map(float), |new, old| new < old || (old.is_nan() && !new.is_nan())),
        Kind::Integer => best(bits.map(u64::cast_signed), |new, old| new < old),
        _ => best(bits, |new, old| new < old),
    }
}

fn greatest(points: &Points, kind: Kind, range: Range<usize>) -> Option<usize> {
    let bits = points.bits().get(range)?.iter().copied();
    match kind {
        Kind::Float => best(bits.map(float), |new, old| new > old || (old.is_nan() && !new.is_nan())),
        Kind::Integer => best(bits.map(u64::cast_signed), |new, old| new > old),
        _ => best(bits, |new, old| new > old),
    }
}

fn sum(points: &Points, kind: Kind, range: Range<usize>) -> Option<Value> {
    let bits = points.bits().get(range)?.iter().copied();
    Some(match kind {
        Kind::Float => Value::Float(bits.map(float).fold(0.0, |sum, number| sum + number)),
        Kind::Integer => Value::Integer(bits.fold(0, |sum: i64, number| sum.wrapping_add(number.cast_signed()))),
        Kind::Unsigned => Value::Unsigned(bits.fold(0, u64::wrapping_add)),
        Kind::Boolean | Kind::Text => return None,
    })
}

fn add(left: &Value, right: &Value) -> Value {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => Value::Integer(left.wrapping_add(*right)),
        (Value::Unsigned(left), Value::Unsigned(right)) => Value::Unsigned(left.wrapping_add(*right)),
        _ => {
            let number = |value: &Value| value.as_ref().number().unwrap_or(f64::NAN);
            Value::Float(number(left) + number(right))
        }
    }
}

impl<'c> Parts<'c> {
    pub(crate) fn new(aggregate: &'c Aggregate, window: Option<&'c Window>, hold: &'c Hold<'c>) -> Self {
        Self { aggregate, window, hold, unheld: 0, all: BTreeMap::new(), has_summaries: false, is_doubtful: false }
    }

    /// Adds what is known of points, all of one window.
    pub(crate) fn add_summary(&mut self, summary: &Summary, member: usize) -> Result<()> {
        self.has_summaries = true;
        let time = summary.range.from;
        let part = match self.aggregate {
            Aggregate::Count => Part::Count(summary.count),
            Aggregate::Min => Part::Pick(time, summary.least(), member),
            Aggregate::Max => Part::Pick(time, summary.greatest(), member),
            _ => Part::Sum(summary.sum(), summary.count),
        };
        self.merge(self.window.map_or(0, |window| window.start(time)), part)
    }

    /// Adds points, sorted by time.
    pub(crate) fn add(&mut self, points: &Points, member: usize) -> Result<()> {
        for (window, run) in Runs::new(points.times(), self.window) {
            if let Some(kind) = points.kind() {
                self.add_run(window, points, kind, run, member)?;
                continue;
            }
            // Values of several types: parts of one type each.
            let mut start = run.start;
            for at in run.clone() {
                let (kind, next) = (points.kind_at(at), points.kind_at(at + 1));
                if let Some(kind) = kind.filter(|kind| at + 1 == run.end || next != Some(*kind)) {
                    self.add_run(window, points, kind, start..at + 1, member)?;
                    start = at + 1;
                }
            }
        }
        Ok(())
    }

    fn add_run(&mut self, window: i64, points: &Points, kind: Kind, run: Range<usize>, member: usize) -> Result<()> {
        let pick = |at: Option<usize>| {
            let (time, value) = at.and_then(|at| points.get(run.start + at))?;
            Some(Part::Pick(time, value.to_value(), member))
        };
        let refused = || unsupported(self.aggregate, kind);
        let is_number = !matches!(kind, Kind::Boolean | Kind::Text);
        let part = match self.aggregate {
            Aggregate::Count => Some(Part::Count(run.len() as u64)),
            Aggregate::First => pick(Some(0)),
            Aggregate::Last => pick(run.len().checked_sub(1)),
            Aggregate::Min | Aggregate::Max if kind == Kind::Text => return Err(refused()),
            Aggregate::Min => pick(least(points, kind, run.clone())),
            Aggregate::Max => pick(greatest(points, kind, run.clone())),
            _ if !is_number => return Err(refused()),
            Aggregate::Spread => {
                let value = |at: Option<usize>| Some(points.get(run.start + at?)?.1.to_value());
                let ends = (value(least(points, kind, run.clone())), value(greatest(points, kind, run.clone())));
                match ends {
                    (Some(low), Some(high)) => Some(Part::Ends(low, high)),
                    _ => None,
                }
            }
            _ => sum(points, kind, run.clone()).map(|sum| Part::Sum(sum, run.len() as u64)),
        };
        part.map_or(Ok(()), |part| self.merge(window, part))
    }

    /// Adds one point, as one that was found without reading the others.
    pub(crate) fn merge(&mut self, window: i64, part: Part) -> Result<()> {
        match self.all.entry(window) {
            Entry::Vacant(place) => {
                place.insert(part);
                self.unheld += PART_BYTES;
                if self.unheld > PORTION_BYTES {
                    (self.hold)(std::mem::take(&mut self.unheld))?;
                }
            }
            Entry::Occupied(mut place) => {
                if let (true, Part::Pick(_, old, _), Part::Pick(_, new, _)) = (self.has_summaries, place.get(), &part) {
                    let is_equal = compare(old.as_ref(), new.as_ref()).is_some_and(|order| order.is_eq());
                    self.is_doubtful |= is_equal && old != new;
                }
                let merged = merged(self.aggregate, place.get(), part);
                place.insert(merged);
            }
        }
        Ok(())
    }
}

/// The windows of which summaries are as good as points, where nobody asks which point was chosen.
pub(crate) fn summarized(aggregate: &Aggregate, window: Option<&Window>) -> Option<Windows> {
    let share = match aggregate {
        Aggregate::Sum | Aggregate::Mean => Share::Whole,
        Aggregate::Count | Aggregate::Min | Aggregate::Max => Share::Part,
        _ => return None,
    };
    let windows = match (window, aggregate) {
        (Some(window), _) => Windows { length: window.length, offset: window.offset_of_utc()?, share },
        (None, Aggregate::Count) => Windows::ALL,
        (None, _) => return None,
    };
    windows.unit().map(|_| windows)
}

/// Whether a point is chosen instead of another.
fn is_chosen(aggregate: &Aggregate, new: (i64, ValueRef<'_>), old: (i64, ValueRef<'_>)) -> bool {
    let is_nan = |value: ValueRef<'_>| matches!(value, ValueRef::Float(number) if number.is_nan());
    let order = compare(new.1, old.1);
    match aggregate {
        // Of points of one time the greater value, as InfluxDB has it, but for the first of true and false.
        Aggregate::First if matches!(new.1, ValueRef::Boolean(_)) => {
            new.0 < old.0 || (new.0 == old.0 && order.is_some_and(std::cmp::Ordering::is_lt))
        }
        Aggregate::First => new.0 < old.0 || (new.0 == old.0 && order.is_some_and(std::cmp::Ordering::is_gt)),
        Aggregate::Last => new.0 > old.0 || (new.0 == old.0 && order.is_some_and(std::cmp::Ordering::is_gt)),
        _ if is_nan(new.1) || is_nan(old.1) => is_nan(old.1) && (!is_nan(new.1) || new.0 < old.0),
        Aggregate::Min => order.is_some_and(|order| order.is_lt() || (order.is_eq() && new.0 < old.0)),
        _ => order.is_some_and(|order| order.is_gt() || (order.is_eq() && new.0 < old.0)),
    }
}

fn merged(aggregate: &Aggregate, old: &Part, new: Part) -> Part {
    match (old, new) {
        (Part::Count(old), Part::Count(new)) => Part::Count(old + new),
        (Part::Sum(old, count), Part::Sum(new, more)) => Part::Sum(add(old, &new), count + more),
        (Part::Pick(time, value, member), Part::Pick(new_time, new, new_member)) => {
            if is_chosen(aggregate, (new_time, new.as_ref()), (*time, value.as_ref())) {
                Part::Pick(new_time, new, new_member)
            } else {
                Part::Pick(*time, value.clone(), *member)
            }
        }
        (Part::Ends(low, high), Part::Ends(new_low, new_high)) => {
            let is_less = |a: &Value, b: &Value| compare(a.as_ref(), b.as_ref()).is_some_and(|order| order.is_lt());
            let is_nan = |value: &Value| matches!(value, Value::Float(number) if number.is_nan());
            Part::Ends(
                if is_less(&new_low, low) && !is_nan(&new_low) || is_nan(low) { new_low } else { low.clone() },
                if is_less(high, &new_high) { new_high } else { high.clone() },
            )
        }
        (_, new) => new,
    }
}

/// The result, and the point that it is, if it is one.
pub(crate) fn result(aggregate: &Aggregate, part: Part) -> (Value, Option<(i64, usize)>) {
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    let value = match part {
        Part::Count(count) => Value::Integer(count.cast_signed()),
        Part::Sum(sum, count) if *aggregate == Aggregate::Mean => {
            Value::Float(sum.as_ref().number().unwrap_or(f64::NAN) / count as f64)
        }
        Part::Sum(sum, _) => sum,
        Part::Pick(time, value, member) => return (value, Some((time, member))),
        Part::Ends(low, high) => match (&low, &high) {
            (Value::Integer(low), Value::Integer(high)) => Value::Integer(high.wrapping_sub(*low)),
            (Value::Unsigned(low), Value::Unsigned(high)) => Value::Unsigned(high.wrapping_sub(*low)),
            _ => {
                let number = |value: &Value| value.as_ref().number().unwrap_or(f64::NAN);
                Value::Float(number(&high) - number(&low))
            }
        },
    };
    (value, None)
}
