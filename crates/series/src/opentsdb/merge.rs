//! Many series made one: at every moment at which one of them has a point, the aggregator of what all of them are.
//!
//! A series is something from its first point to its last: at its points their values, and between them what the aggregator
//! takes there (on the line, zero, ...). The result is a whole number where everything it was made from is.
//!
//! Moments go by in blocks. Each series is walked once for each block, beside as many folds as the block has moments: memory is
//! that of the series and of one block.
//!
//! May use: `aggregator`, `column`, `fold`, whether the question goes on. Must not know: where columns come from, how points are printed.

use std::borrow::Cow;

use super::aggregator::{Aggregator, Between};
use super::column::{Column, Numbers, Value};
use super::fold::{Fold, Number, with_fold};
use super::time::MILLISECOND;
use crate::error::Result;
use crate::source::{Range, Source};

/// Moments in a block.
const BLOCK_MOMENTS: usize = 1_024;
/// Numbers that the folds of a block may keep.
const BLOCK_NUMBERS: usize = 1 << 20;

/// Hands over the points of the aggregate in the order of their times.
///
/// # Errors
/// When the question does not go on: very many series at as many moments take long, and touch nothing else.
pub(crate) fn merge(
    source: &dyn Source,
    columns: &[Column],
    (aggregator, between): (Aggregator, Between),
    shown: Range,
    mut emit: impl FnMut(i64, Value),
) -> Result<()> {
    let moments = moments(columns, shown);
    let Some(first) = moments.first() else { return Ok(()) };

    let has_integers = columns.iter().any(|column| !matches!(column.numbers, Numbers::Doubles(_)));
    let has_doubles = columns.iter().any(|column| !matches!(column.numbers, Numbers::Integers(_)));
    let mut integers = has_integers.then(|| Side {
        walks: walks(columns, *first, integers),
        fold: with_fold!(aggregator, i64, folding(aggregator, between)),
    });
    let mut doubles = has_doubles.then(|| Side {
        walks: walks(columns, *first, doubles),
        fold: with_fold!(aggregator, f64, folding(aggregator, between)),
    });
    let mut kinds = (has_integers && has_doubles).then(|| walks(columns, *first, are_doubles));

    let length = (BLOCK_NUMBERS / columns.len().max(1)).clamp(1, BLOCK_MOMENTS);
    let (mut whole, mut broken, mut is_broken) = (Vec::new(), Vec::new(), Vec::new());
    for block in moments.chunks(length) {
        source.go_on()?;
        if let Some(side) = &mut integers {
            (side.fold)(&mut side.walks, block, &mut whole);
        }
        if let Some(side) = &mut doubles {
            (side.fold)(&mut side.walks, block, &mut broken);
        }
        is_broken.clear();
        is_broken.resize(block.len(), !has_integers);
        for walk in kinds.iter_mut().flatten() {
            walk.mark(block, &mut is_broken);
        }
        for (slot, time) in block.iter().enumerate() {
            let value = match is_broken.get(slot) {
                Some(false) => whole.get(slot).copied().map(Value::Integer),
                _ => broken.get(slot).copied().map(Value::Double),
            };
            if let Some(value) = value {
                emit(*time, value);
            }
        }
    }
    Ok(())
}

/// All moments at which a series has a point: lists are joined by twos, so that those of series with the same times stay as short as they are.
fn moments(columns: &[Column], shown: Range) -> Cow<'_, [i64]> {
    let within = |column: &Column| {
        let from = column.times.partition_point(|time| *time < shown.from);
        let to = column.times.partition_point(|time| *time <= shown.to);
        from..to.max(from)
    };
    let mut lists: Vec<Cow<'_, [i64]>> =
        columns.iter().map(|column| Cow::Borrowed(column.times.get(within(column)).unwrap_or_default())).collect();
    while lists.len() > 1 {
        let mut joined = Vec::with_capacity(lists.len().div_ceil(2));
        let mut rest = lists.into_iter();
        while let Some(one) = rest.next() {
            joined.push(match rest.next() {
                Some(other) if one != other => Cow::Owned(union(&one, &other)),
                _ => one,
            });
        }
        lists = joined;
    }
    lists.pop().unwrap_or_default()
}

fn union(one: &[i64], other: &[i64]) -> Vec<i64> {
    let mut all = Vec::with_capacity(one.len().max(other.len()) + one.len().min(other.len()) / 2);
    let (mut one, mut other) = (one, other);
    while let ([first, rest @ ..], [second, others @ ..]) = (one, other) {
        all.push(*first.min(second));
        if first <= second {
            one = rest;
        }
        if second <= first {
            other = others;
        }
    }
    all.extend_from_slice(one);
    all.extend_from_slice(other);
    all
}

/// Whole numbers of a column; 0 for doubles, which nobody asks for.
fn integers(column: &Column) -> Cow<'_, [i64]> {
    match &column.numbers {
        Numbers::Integers(numbers) => Cow::Borrowed(numbers),
        Numbers::Doubles(numbers) => Cow::Owned(vec![0; numbers.len()]),
        Numbers::Both(numbers) => Cow::Owned(
            numbers.iter().map(|value| if let Value::Integer(number) = value { *number } else { 0 }).collect(),
        ),
    }
}

fn doubles(column: &Column) -> Cow<'_, [f64]> {
    match &column.numbers {
        Numbers::Integers(numbers) => Cow::Owned(numbers.iter().map(|number| number.to_double()).collect()),
        Numbers::Doubles(numbers) => Cow::Borrowed(numbers),
        Numbers::Both(numbers) => Cow::Owned(numbers.iter().map(|value| value.to_double()).collect()),
    }
}

fn are_doubles(column: &Column) -> Cow<'_, [bool]> {
    Cow::Owned(match &column.numbers {
        Numbers::Integers(numbers) => vec![false; numbers.len()],
        Numbers::Doubles(numbers) => vec![true; numbers.len()],
        Numbers::Both(numbers) => numbers.iter().map(|value| !matches!(value, Value::Integer(_))).collect(),
    })
}

/// One series, walked from moment to moment.
struct Walk<'a, T: Clone> {
    times: &'a [i64],
    numbers: Cow<'a, [T]>,
    /// The first point that is not before the moment.
    at: usize,
}

type Folding<T> = Box<dyn FnMut(&mut [Walk<'_, T>], &[i64], &mut Vec<T>)>;

/// The numbers of one type of all series, and what makes one of them.
struct Side<'a, T: Clone> {
    walks: Vec<Walk<'a, T>>,
    fold: Folding<T>,
}

/// Walks that begin at the first of the moments.
fn walks<'a, T: Clone>(
    columns: &'a [Column],
    first: i64,
    numbers: impl Fn(&'a Column) -> Cow<'a, [T]>,
) -> Vec<Walk<'a, T>> {
    let walk = |column: &'a Column| Walk {
        times: &column.times,
        numbers: numbers(column),
        at: column.times.partition_point(|time| *time < first),
    };
    columns.iter().map(walk).collect()
}

impl<T: Copy> Walk<'_, T> {
    fn point(&self, at: usize) -> Option<(i64, T)> {
        Some((*self.times.get(at)?, *self.numbers.get(at)?))
    }
}

impl<T: Clone> Walk<'_, T> {
    /// Goes on to a moment: the point of that moment, or that before and that after; `None` after the last.
    fn go(&mut self, moment: i64) -> Option<Place<'_, T>> {
        while self.times.get(self.at).is_some_and(|time| *time < moment) {
            self.at += 1;
        }
        let (time, number) = (*self.times.get(self.at)?, self.numbers.get(self.at)?);
        if time == moment {
            return Some(Place::At(number));
        }
        let before = self.at.checked_sub(1).and_then(|at| Some((*self.times.get(at)?, self.numbers.get(at)?)));
        Some(before.map_or(Place::Before(number), |before| Place::Between(before, (time, number))))
    }
}

/// Where a moment lies in a series.
enum Place<'a, T> {
    At(&'a T),
    Between((i64, &'a T), (i64, &'a T)),
    /// Before the first point.
    Before(&'a T),
}

impl Walk<'_, bool> {
    /// Notes the moments at which the series has a double before or after: OpenTSDB answers with a double there.
    fn mark(&mut self, moments: &[i64], marks: &mut [bool]) {
        for (moment, mark) in moments.iter().zip(marks) {
            let found = match self.go(*moment) {
                None => return,
                Some(Place::Between((_, before), (_, after))) => *before || *after,
                Some(Place::Before(after)) => *after,
                Some(Place::At(at)) => *at || self.numbers.get(self.at + 1).is_some_and(|next| *next),
            };
            *mark |= found;
        }
    }
}

/// What makes one of many: it walks them all beside the moments of a block.
fn folding<F: Fold + 'static>(aggregator: Aggregator, between: Between) -> Folding<F::Of> {
    let mut folds: Vec<F> = Vec::new();
    Box::new(move |walks, moments, results| {
        folds.resize(moments.len(), F::begin(aggregator));
        for walk in walks {
            feed(walk, moments, between, &mut folds);
        }
        results.clear();
        results.extend(folds.iter_mut().map(F::finish));
    })
}

/// Walks a series beside the moments: from each of its points to the next, and in between what it is there.
fn feed<F: Fold>(walk: &mut Walk<'_, F::Of>, moments: &[i64], between: Between, folds: &mut [F]) {
    let mut slots = moments.iter().zip(folds);
    if walk.at == 0 {
        let first = walk.times.first().map_or(moments.len(), |first| moments.partition_point(|moment| moment < first));
        if let Some(before) = first.checked_sub(1) {
            slots.nth(before);
        }
    }
    let mut slot = slots.next();
    let mut from = walk.point(walk.at.wrapping_sub(1));
    while let Some((time, number)) = walk.point(walk.at) {
        if let Some((before, value)) = from {
            let segment = Segment::new((before, value), (time, number));
            while let Some((moment, fold)) = slot.take_if(|(moment, _)| **moment < time) {
                fold.push(match between {
                    Between::Line => segment.at(*moment),
                    Between::Zero => F::Of::default(),
                    Between::Greatest => F::Of::GREATEST,
                    Between::Least => F::Of::LEAST,
                    Between::Before => value,
                });
                slot = slots.next();
            }
        }
        if let Some((_, fold)) = slot.take_if(|(moment, _)| **moment == time) {
            fold.push(number);
            slot = slots.next();
        }
        if slot.is_none() {
            // The next block begins after this moment, and maybe before this point.
            return;
        }
        from = Some((time, number));
        walk.at += 1;
    }
}

/// The line between two points.
struct Segment<T> {
    from: i64,
    whole: i64,
    ends: (T, T),
    unit: i64,
}

impl<T: Number> Segment<T> {
    fn new((from, before): (i64, T), (to, after): (i64, T)) -> Self {
        // In milliseconds where they suffice, as OpenTSDB computes: the last digits depend on it.
        let unit = if from % MILLISECOND == 0 && to % MILLISECOND == 0 { MILLISECOND } else { 1 };
        Self { from, whole: to.saturating_sub(from) / unit, ends: (before, after), unit }
    }

    fn at(&self, moment: i64) -> T {
        let part = moment.saturating_sub(self.from);
        if self.unit == MILLISECOND && part % MILLISECOND == 0 {
            return T::between(self.ends.0, self.ends.1, part / MILLISECOND, self.whole);
        }
        T::between(self.ends.0, self.ends.1, part, self.whole.saturating_mul(self.unit))
    }
}
