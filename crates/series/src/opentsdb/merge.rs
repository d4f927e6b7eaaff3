//! Many series made one: at every moment at which one of them has a point, the aggregator of what all of them are.
//!
//! A series is something from its first point to its last: at its points their values, and between them what the aggregator
//! takes there (on the line, zero, ...). The result is a whole number where everything it was made from is.
//!
//! Moments go by in blocks. Each series is walked once for each block, beside as many folds as the block has moments: memory is
//! that of the series and of one block.
//!
//! May use: `aggregator`, `column`, `fold`. Must not know: where columns come from, how points are printed.

use std::borrow::Cow;

use super::aggregator::{Aggregator, Between};
use super::column::{Column, Numbers, Value};
use super::fold::{Fold, Number, with_fold};
use super::time::MILLISECOND;
use crate::source::Range;

/// Moments in a block.
const BLOCK_MOMENTS: usize = 1_024;
/// Numbers that the folds of a block may keep.
const BLOCK_NUMBERS: usize = 1 << 20;

/// Hands over the points of the aggregate in the order of their times.
pub(crate) fn merge(
    columns: &[Column],
    (aggregator, between): (Aggregator, Between),
    shown: Range,
    mut emit: impl FnMut(i64, Value),
) {
    let moments = moments(columns);
    let from = moments.partition_point(|time| *time < shown.from);
    let to = moments.partition_point(|time| *time <= shown.to);
    let Some(moments) = moments.get(from..to.max(from)) else { return };

    let has_integers = columns.iter().any(|column| !matches!(column.numbers, Numbers::Doubles(_)));
    let has_doubles = columns.iter().any(|column| !matches!(column.numbers, Numbers::Integers(_)));
    let mut integers = has_integers.then(|| Side {
        walks: walks(columns, integers),
        fold: with_fold!(aggregator, i64, folding(aggregator, between)),
    });
    let mut doubles = has_doubles.then(|| Side {
        walks: walks(columns, doubles),
        fold: with_fold!(aggregator, f64, folding(aggregator, between)),
    });
    let mut kinds = (has_integers && has_doubles).then(|| walks(columns, are_doubles));

    let length = (BLOCK_NUMBERS / columns.len().max(1)).clamp(1, BLOCK_MOMENTS);
    let (mut whole, mut broken, mut is_broken) = (Vec::new(), Vec::new(), Vec::new());
    for block in moments.chunks(length) {
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
}

/// All moments at which a series has a point.
fn moments(columns: &[Column]) -> Cow<'_, [i64]> {
    let first = columns.first().map_or(&[][..], |column| &column.times);
    if columns.iter().all(|column| column.times == first) {
        return Cow::Borrowed(first);
    }
    let mut all = Vec::with_capacity(columns.iter().map(|column| column.times.len()).sum());
    for column in columns {
        all.extend_from_slice(&column.times);
    }
    // A stable sort finds the runs that are sorted already.
    all.sort();
    all.dedup();
    Cow::Owned(all)
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

fn walks<'a, T: Clone>(columns: &'a [Column], numbers: impl Fn(&'a Column) -> Cow<'a, [T]>) -> Vec<Walk<'a, T>> {
    columns.iter().map(|column| Walk { times: &column.times, numbers: numbers(column), at: 0 }).collect()
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

fn feed<F: Fold>(walk: &mut Walk<'_, F::Of>, moments: &[i64], between: Between, folds: &mut [F]) {
    for (moment, fold) in moments.iter().zip(folds) {
        let number = match walk.go(*moment) {
            None => return,
            Some(Place::Before(_)) => continue,
            Some(Place::At(number)) => *number,
            Some(Place::Between((from, before), (to, after))) => match between {
                Between::Line => line((from, *before), (to, *after), *moment),
                Between::Zero => F::Of::default(),
                Between::Greatest => F::Of::GREATEST,
                Between::Least => F::Of::LEAST,
                Between::Before => *before,
            },
        };
        fold.push(number);
    }
}

/// In milliseconds where they suffice, as OpenTSDB computes: the last digits depend on it.
fn line<T: Number>((from, before): (i64, T), (to, after): (i64, T), moment: i64) -> T {
    let (part, whole) = (moment.saturating_sub(from), to.saturating_sub(from));
    if part % MILLISECOND == 0 && whole % MILLISECOND == 0 {
        return T::between(before, after, part / MILLISECOND, whole / MILLISECOND);
    }
    T::between(before, after, part, whole)
}
