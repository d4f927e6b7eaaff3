//! The aggregators as folds: begun, fed with numbers one by one, and asked for what came out.
//!
//! Each fold is one type, so that a loop over points is compiled for it alone. Of doubles, NaN is passed over; only a product
//! with NaN is NaN. Whole numbers wrap when they overflow and lose their fraction when they are divided, as OpenTSDB's do.
//!
//! May use: `aggregator`, `rollup`. Must not know: times, series.

use super::aggregator::{Aggregator, Estimate, Percentile};
use crate::rollup::Summary;
use crate::value::Value;

/// A number that can be folded.
pub(crate) trait Number: Copy + PartialOrd + Default + 'static {
    const GREATEST: Self;
    const LEAST: Self;
    /// What comes of no number at all.
    const NOTHING: Self;
    fn is_nothing(self) -> bool;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, count: u32) -> Self;
    fn of_count(count: u32) -> Self;
    fn to_double(self) -> f64;
    /// What is left of a double.
    fn of_double(double: f64) -> Self;
    fn order(a: &Self, b: &Self) -> std::cmp::Ordering;
    /// The number on the line from `from` to `to`, `part` of `whole` on the way.
    fn between(from: Self, to: Self, part: i64, whole: i64) -> Self;
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is meant")]
impl Number for f64 {
    const GREATEST: Self = f64::MAX;
    const LEAST: Self = f64::MIN;
    const NOTHING: Self = f64::NAN;

    fn is_nothing(self) -> bool {
        self.is_nan()
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn minus(self, other: Self) -> Self {
        self - other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn over(self, count: u32) -> Self {
        self / f64::from(count)
    }

    fn of_count(count: u32) -> Self {
        f64::from(count)
    }

    fn to_double(self) -> f64 {
        self
    }

    fn of_double(double: f64) -> Self {
        double
    }

    fn order(a: &Self, b: &Self) -> std::cmp::Ordering {
        a.total_cmp(b)
    }

    fn between(from: Self, to: Self, part: i64, whole: i64) -> Self {
        from + part as f64 * (to - from) / whole as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is meant")]
#[expect(clippy::cast_possible_truncation, reason = "OpenTSDB's whole numbers lose their fraction")]
impl Number for i64 {
    const GREATEST: Self = i64::MAX;
    const LEAST: Self = i64::MIN;
    const NOTHING: Self = 0;

    fn is_nothing(self) -> bool {
        false
    }

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    fn over(self, count: u32) -> Self {
        self / i64::from(count.max(1))
    }

    fn of_count(count: u32) -> Self {
        i64::from(count)
    }

    fn to_double(self) -> f64 {
        self as f64
    }

    fn of_double(double: f64) -> Self {
        double as i64
    }

    fn order(a: &Self, b: &Self) -> std::cmp::Ordering {
        a.cmp(b)
    }

    fn between(from: Self, to: Self, part: i64, whole: i64) -> Self {
        let way = i128::from(part) * (i128::from(to) - i128::from(from)) / i128::from(whole.max(1));
        (i128::from(from) + way) as i64
    }
}

/// A fold of numbers of one type.
pub(crate) trait Fold: Clone {
    type Of: Number;
    /// Bytes that are kept of each number until the end.
    const KEPT_BYTES: u64 = 0;
    /// The fold of an aggregator, of nothing yet.
    fn begin(aggregator: Aggregator) -> Self;
    fn push(&mut self, number: Self::Of);
    /// Numbers of which no more is known: only of folds whose aggregator says that it is enough.
    fn push_summary(&mut self, _: &Summary) {
        debug_assert!(false, "this fold needs the numbers");
    }
    /// What came out; the fold is of nothing again.
    fn finish(&mut self) -> Self::Of;
}

#[derive(Clone)]
pub(crate) struct Sum<T>(T, u32);
#[derive(Clone)]
pub(crate) struct Avg<T>(T, u32);
#[derive(Clone)]
pub(crate) struct SquareSum<T>(T, u32);
#[derive(Clone)]
pub(crate) struct Count<T>(u32, std::marker::PhantomData<T>);
#[derive(Clone)]
pub(crate) struct Min<T>(Option<T>);
#[derive(Clone)]
pub(crate) struct Max<T>(Option<T>);
#[derive(Clone)]
pub(crate) struct Mult<T>(Option<T>);
#[derive(Clone)]
pub(crate) struct First<T>(Option<T>);
#[derive(Clone)]
pub(crate) struct Last<T>(Option<T>);
#[derive(Clone)]
pub(crate) struct Diff<T>(Option<(T, T)>);
/// By Welford: count, mean, and the sum of the squares of the distances from it.
#[derive(Clone)]
pub(crate) struct Dev<T>(u32, f64, f64, std::marker::PhantomData<T>);
/// All of them, to be sorted.
#[derive(Clone)]
pub(crate) struct Sorted<T>(Option<Percentile>, Vec<T>);

fn number<T: Number>(value: &Value) -> T {
    T::of_double(value.as_ref().number().unwrap_or(f64::NAN))
}

fn few(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A fold that adds up and counts; what is added, what comes of it, and whether it may be fed with sums.
macro_rules! adding {
    ($name:ident, $number:ident => $term:expr, $sum:ident, $count:ident => $result:expr $(, $push_summary:ident)?) => {
        impl<T: Number> Fold for $name<T> {
            type Of = T;

            fn begin(_: Aggregator) -> Self {
                Self(T::default(), 0)
            }

            fn push(&mut self, $number: T) {
                if !$number.is_nothing() {
                    self.0 = self.0.plus($term);
                    self.1 = self.1.saturating_add(1);
                }
            }

            $(fn $push_summary(&mut self, of: &Summary) {
                self.0 = self.0.plus(number(&of.sum()));
                self.1 = self.1.saturating_add(few(of.count));
            })?

            fn finish(&mut self) -> T {
                let ($sum, $count) = (std::mem::take(&mut self.0), std::mem::take(&mut self.1));
                if $count == 0 { T::NOTHING } else { $result }
            }
        }
    };
}

adding!(Sum, number => number, sum, _count => sum, push_summary);
adding!(Avg, number => number, sum, count => sum.over(count), push_summary);
adding!(SquareSum, number => number.times(number), sum, _count => sum);

/// A fold that keeps one of the numbers, or what two make; and which of many that is, if a summary says it.
macro_rules! keeping {
    ($name:ident, $kept:ident, $number:ident => $result:expr $(, $push_summary:ident of $which:ident)?) => {
        impl<T: Number> Fold for $name<T> {
            type Of = T;

            fn begin(_: Aggregator) -> Self {
                Self(None)
            }

            fn push(&mut self, $number: T) {
                if !$number.is_nothing() {
                    self.0 = Some(match self.0 {
                        None => $number,
                        Some($kept) => $result,
                    });
                }
            }

            $(fn $push_summary(&mut self, of: &Summary) {
                self.push(number(&of.$which()));
            })?

            fn finish(&mut self) -> T {
                self.0.take().unwrap_or(T::NOTHING)
            }
        }
    };
}

keeping!(Min, kept, number => if number < kept { number } else { kept }, push_summary of least);
keeping!(Max, kept, number => if number > kept { number } else { kept }, push_summary of greatest);
keeping!(First, kept, number => kept);
keeping!(Last, _kept, number => number);

impl<T: Number> Fold for Mult<T> {
    type Of = T;

    fn begin(_: Aggregator) -> Self {
        Self(None)
    }

    fn push(&mut self, number: T) {
        self.0 = Some(self.0.map_or(number, |product| product.times(number)));
    }

    fn finish(&mut self) -> T {
        self.0.take().unwrap_or(T::NOTHING)
    }
}

impl<T: Number> Fold for Count<T> {
    type Of = T;

    fn begin(_: Aggregator) -> Self {
        Self(0, std::marker::PhantomData)
    }

    fn push(&mut self, number: T) {
        self.0 = self.0.saturating_add(u32::from(!number.is_nothing()));
    }

    fn push_summary(&mut self, of: &Summary) {
        self.0 = self.0.saturating_add(few(of.count));
    }

    fn finish(&mut self) -> T {
        T::of_count(std::mem::take(&mut self.0))
    }
}

impl<T: Number> Fold for Diff<T> {
    type Of = T;

    fn begin(_: Aggregator) -> Self {
        Self(None)
    }

    fn push(&mut self, number: T) {
        if !number.is_nothing() {
            self.0 = Some((self.0.map_or(number, |(first, _)| first), number));
        }
    }

    fn finish(&mut self) -> T {
        self.0.take().map_or(T::NOTHING, |(first, last)| last.minus(first))
    }
}

impl<T: Number> Fold for Dev<T> {
    type Of = T;

    fn begin(_: Aggregator) -> Self {
        Self(0, 0.0, 0.0, std::marker::PhantomData)
    }

    fn push(&mut self, number: T) {
        if number.is_nothing() {
            return;
        }
        let (number, before) = (number.to_double(), self.1);
        self.0 = self.0.saturating_add(1);
        if self.0 == 1 {
            self.1 = number;
            return;
        }
        self.1 = before + (number - before) / f64::from(self.0);
        self.2 += (number - before) * (number - self.1);
    }

    fn finish(&mut self) -> T {
        let (count, squares) = (self.0, self.2);
        *self = Self(0, 0.0, 0.0, std::marker::PhantomData);
        match count {
            0 => T::NOTHING,
            1 => T::default(),
            _ => T::of_double((squares / f64::from(count)).sqrt()),
        }
    }
}

impl<T: Number> Fold for Sorted<T> {
    type Of = T;
    const KEPT_BYTES: u64 = size_of::<T>() as u64;

    fn begin(aggregator: Aggregator) -> Self {
        match aggregator {
            Aggregator::Percentile(percentile) => Self(Some(percentile), Vec::new()),
            _ => Self(None, Vec::new()),
        }
    }

    fn push(&mut self, number: T) {
        if !number.is_nothing() {
            self.1.push(number);
        }
    }

    fn finish(&mut self) -> T {
        self.1.sort_unstable_by(T::order);
        let found = match self.0 {
            None => self.1.get(self.1.len() / 2).copied(),
            Some(percentile) => estimate(percentile, &self.1).map(T::of_double),
        };
        self.1.clear();
        found.unwrap_or(T::NOTHING)
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to a length"
)]
fn estimate<T: Number>(percentile: Percentile, sorted: &[T]) -> Option<f64> {
    let (first, last) = (sorted.first()?.to_double(), sorted.last()?.to_double());
    let (count, share) = (sorted.len() as f64, percentile.share);
    let place = match percentile.estimate {
        Estimate::Legacy => share * (count + 1.0),
        Estimate::R3 if share <= 0.5 / count => 0.0,
        Estimate::R3 => (share * count).round_ties_even(),
        Estimate::R7 => 1.0 + (count - 1.0) * share,
    };
    if place < 1.0 {
        return Some(first);
    }
    if place >= count {
        return Some(last);
    }
    let (at, part) = (place as usize, place - place.floor());
    let (lower, upper) = (sorted.get(at - 1)?.to_double(), sorted.get(at)?.to_double());
    Some(lower + part * (upper - lower))
}

/// Calls a function that is generic over folds with the fold of an aggregator.
macro_rules! with_fold {
    ($aggregator:expr, $number:ty, $call:ident ( $($argument:expr),* )) => {{
        use $crate::opentsdb::aggregator::Aggregator as A;
        use $crate::opentsdb::fold as f;
        match $aggregator {
            A::None | A::Last => $call::<f::Last<$number>>($($argument),*),
            A::Sum | A::ZimSum | A::PfSum => $call::<f::Sum<$number>>($($argument),*),
            A::Avg => $call::<f::Avg<$number>>($($argument),*),
            A::Min | A::MimMin => $call::<f::Min<$number>>($($argument),*),
            A::Max | A::MimMax => $call::<f::Max<$number>>($($argument),*),
            A::Count => $call::<f::Count<$number>>($($argument),*),
            A::Dev => $call::<f::Dev<$number>>($($argument),*),
            A::Mult => $call::<f::Mult<$number>>($($argument),*),
            A::First => $call::<f::First<$number>>($($argument),*),
            A::Diff => $call::<f::Diff<$number>>($($argument),*),
            A::SquareSum => $call::<f::SquareSum<$number>>($($argument),*),
            A::Median | A::Percentile(_) => $call::<f::Sorted<$number>>($($argument),*),
        }
    }};
}
pub(crate) use with_fold;
