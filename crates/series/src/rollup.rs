//! Rollups: what is known of all points of an hour or a day of a series, so that nobody has to look at them again. This is the
//! specification of their form.
//!
//!   rollup   (bytes of block, block)*   four blocks as `block.rs` has them: how many points each window has, the least, the greatest
//!                                       and the sum; their times are those at which the windows begin
//!
//! Windows begin at multiples of their length since 1970. Only such are there that have many points, all doubles or all integers,
//! of which no order and no rounding can make another answer: doubles that are finite and not -0.0, with a finite sum; integers
//! of which no partial sum leaves what a double holds exactly. The sum is that of adding one after the other in the order of time,
//! so it stands for its whole window alone and not for a part of a longer one; counts, least and greatest do both.
//!
//! Format: docs/formats/series.md
//!
//! May use: `block`, `points`. Must not know: files, who asks.

use base::{Fields, put_string};

use crate::block::{self, BLOCK_POINTS_MAX};
use crate::error::{Error, Result};
use crate::points::Points;
use crate::source::Range;
use crate::value::{Kind, Value, ValueRef};

/// Windows with fewer points are not worth it: they cost some twenty bytes each.
const WINDOW_POINTS_MIN: u64 = 256;
/// Integers of which doubles hold each.
const EXACT_MAX: u64 = 1 << 53;

const MALFORMED: Error = Error::Malformed { what: "rollup of a sealed file" };

/// How long the windows of a rollup are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// An hour.
    Hour = 1,
    /// A day, of UTC.
    Day = 2,
}

impl Unit {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// Nanoseconds.
    #[must_use]
    pub const fn length(self) -> i64 {
        match self {
            Self::Hour => 3_600_000_000_000,
            Self::Day => 86_400_000_000_000,
        }
    }

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| *unit as u8 == number)
    }

    /// The window that a time lies in, unless it is cut off where times end.
    fn window(self, time: i64) -> Option<Range> {
        let from = time.checked_sub(time.rem_euclid(self.length()))?;
        Some(Range { from, to: from.checked_add(self.length() - 1)? })
    }
}

/// Into which windows somebody is going to put points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// How long they are, in nanoseconds.
    pub length: i64,
    /// They begin at multiples of the length and this.
    pub offset: i64,
    /// What is of use.
    pub share: Share,
}

/// What part of a window a summary may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All of it: sums are needed, and those of parts would be rounded otherwise.
    Whole,
    /// Any part.
    Part,
}

impl Windows {
    /// All times as one window.
    pub(crate) const ALL: Self = Self { length: Unit::Hour.length(), offset: 0, share: Share::Part };

    /// The rollups that are of use.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        let fits = |unit: &Unit| match self.share {
            Share::Whole => unit.length() == self.length && self.offset % unit.length() == 0,
            Share::Part => self.length % unit.length() == 0 && self.offset % unit.length() == 0,
        };
        Unit::ALL.into_iter().find(fits)
    }

    /// The end of the window of a time.
    pub(crate) fn end(&self, time: i64) -> i64 {
        let within = (i128::from(time) - i128::from(self.offset)).rem_euclid(i128::from(self.length.max(1)));
        let left = i128::from(self.length) - 1 - within;
        time.saturating_add(i64::try_from(left).unwrap_or(i64::MAX))
    }
}

/// What is known of all points of a series in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// From when to when.
    pub range: Range,
    /// How many points there are.
    pub count: u64,
    kind: Kind,
    least: u64,
    greatest: u64,
    sum: u64,
}

impl Summary {
    fn value(&self, bits: u64) -> Value {
        if self.kind == Kind::Float { Value::Float(f64::from_bits(bits)) } else { Value::Integer(bits.cast_signed()) }
    }

    /// The least value.
    #[must_use]
    pub fn least(&self) -> Value {
        self.value(self.least)
    }

    /// The greatest value.
    #[must_use]
    pub fn greatest(&self) -> Value {
        self.value(self.greatest)
    }

    /// The values added one after the other.
    #[must_use]
    pub fn sum(&self) -> Value {
        self.value(self.sum)
    }
}

/// A window whose points are coming.
#[derive(Debug, Clone, Copy)]
struct Open {
    summary: Summary,
    /// The sum of integers without their signs.
    size: u64,
    /// Some value makes it unfit.
    is_unfit: bool,
}

impl Open {
    fn begin(range: Range, kind: Kind) -> Self {
        let (least, greatest, sum) = match kind {
            Kind::Float => (f64::INFINITY.to_bits(), f64::NEG_INFINITY.to_bits(), 0f64.to_bits()),
            _ => (i64::MAX.cast_unsigned(), i64::MIN.cast_unsigned(), 0),
        };
        let summary = Summary { range, count: 0, kind, least, greatest, sum };
        Self { summary, size: 0, is_unfit: !matches!(kind, Kind::Float | Kind::Integer) }
    }

    fn add(&mut self, kind: Kind, bits: &[u64]) {
        self.summary.count += bits.len() as u64;
        self.is_unfit |= kind != self.summary.kind;
        if self.is_unfit {
            return;
        }
        if kind == Kind::Float { self.add_floats(bits) } else { self.add_integers(bits) }
    }

    fn add_floats(&mut self, bits: &[u64]) {
        let of = &mut self.summary;
        let [mut least, mut greatest, mut sum] = [of.least, of.greatest, of.sum].map(f64::from_bits);
        for one in bits {
            let value = f64::from_bits(*one);
            self.is_unfit |= !value.is_finite() || *one == (-0.0f64).to_bits();
            least = if value < least { value } else { least };
            greatest = if value > greatest { value } else { greatest };
            sum += value;
        }
        self.is_unfit |= !sum.is_finite();
        [of.least, of.greatest, of.sum] = [least, greatest, sum].map(f64::to_bits);
    }

    fn add_integers(&mut self, bits: &[u64]) {
        let of = &mut self.summary;
        let [mut least, mut greatest, mut sum] = [of.least, of.greatest, of.sum].map(u64::cast_signed);
        for value in bits.iter().map(|bits| bits.cast_signed()) {
            least = least.min(value);
            greatest = greatest.max(value);
            sum = sum.wrapping_add(value);
            self.size = self.size.saturating_add(value.unsigned_abs());
        }
        self.is_unfit |= self.size >= EXACT_MAX;
        [of.least, of.greatest, of.sum] = [least, greatest, sum].map(i64::cast_unsigned);
    }
}

/// The windows of one length of a series whose points come in order.
#[derive(Debug)]
pub(crate) struct Rolling {
    pub(crate) unit: Unit,
    open: Option<Open>,
    done: Vec<Summary>,
}

impl Rolling {
    pub(crate) fn new(unit: Unit) -> Self {
        Self { unit, open: None, done: Vec::new() }
    }

    /// Adds points, all behind those that it has.
    pub(crate) fn feed(&mut self, points: &Points) {
        let (times, bits) = (points.times(), points.bits());
        let mut at = 0;
        while let Some(time) = times.get(at) {
            let rest = times.get(at..).unwrap_or_default();
            let window = self.unit.window(*time);
            let mut end = at + window.map_or(1, |range| rest.partition_point(|time| *time <= range.to));
            let Some(kind) = points.kind_at(at) else { return };
            if points.kind().is_none() {
                end = (at..end).find(|at| points.kind_at(*at) != Some(kind)).unwrap_or(end);
            }
            if self.open.is_none_or(|open| Some(open.summary.range) != window) {
                self.close();
                self.open = window.map(|range| Open::begin(range, kind));
            }
            if let Some(open) = &mut self.open {
                open.add(kind, bits.get(at..end).unwrap_or_default());
            }
            at = end;
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take().filter(|open| !open.is_unfit && open.summary.count >= WINDOW_POINTS_MIN) {
            self.done.push(open.summary);
        }
    }

    /// Whether there are as many windows as go together.
    pub(crate) fn is_full(&self) -> bool {
        self.done.len() >= BLOCK_POINTS_MAX
    }

    /// Takes the windows that have all their points, at most as many as go together.
    pub(crate) fn take(&mut self) -> Vec<Summary> {
        let rest = self.done.split_off(self.done.len().min(BLOCK_POINTS_MAX));
        std::mem::replace(&mut self.done, rest)
    }

    /// Takes all: no more points come.
    pub(crate) fn end(&mut self) -> Vec<Summary> {
        self.close();
        self.take()
    }
}

/// From the beginning of the first window to the end of the last.
pub(crate) fn range(summaries: &[Summary]) -> Option<Range> {
    Some(Range { from: summaries.first()?.range.from, to: summaries.last()?.range.to })
}

/// Appends windows, sorted, at most as many as a block has points.
pub(crate) fn encode(summaries: &[Summary], to: &mut Vec<u8>) {
    let column = |value: &dyn Fn(&Summary) -> Value| {
        let mut points = Points::new();
        summaries.iter().for_each(|of| points.push(of.range.from, value(of).as_ref()));
        let mut block = Vec::new();
        block::encode(&points, &mut block);
        block
    };
    put_string(to, &column(&|of| Value::Integer(of.count.cast_signed())));
    put_string(to, &column(&Summary::least));
    put_string(to, &column(&Summary::greatest));
    put_string(to, &column(&Summary::sum));
}

/// The windows of a rollup.
pub(crate) fn decode(unit: Unit, bytes: &[u8]) -> Result<Vec<Summary>> {
    let mut from = Fields(bytes);
    let mut column = || {
        let mut points = Points::new();
        block::decode(from.string().ok_or(MALFORMED)?, &mut points)?;
        Ok::<_, Error>(points)
    };
    let (counts, least, greatest, sums) = (column()?, column()?, column()?, column()?);
    let is_whole = from.0.is_empty() && [&least, &greatest, &sums].iter().all(|one| one.times() == counts.times());
    if !is_whole {
        return Err(MALFORMED);
    }
    let one = |at: usize| {
        let (time, ValueRef::Integer(count)) = counts.get(at)? else { return None };
        let kind = sums.kind_at(at).filter(|kind| matches!(kind, Kind::Float | Kind::Integer))?;
        let is_same = [&least, &greatest].iter().all(|column| column.kind_at(at) == Some(kind));
        let bits = |column: &Points| column.bits().get(at).copied();
        let range = unit.window(time).filter(|range| is_same && range.from == time)?;
        let (least, greatest, sum) = (bits(&least)?, bits(&greatest)?, bits(&sums)?);
        Some(Summary { range, count: u64::try_from(count).ok()?, kind, least, greatest, sum })
    };
    (0..counts.len()).map(one).collect::<Option<_>>().ok_or(MALFORMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolled(points: &Points, pieces: usize) -> Vec<Summary> {
        let mut rolling = Rolling::new(Unit::Hour);
        for from in (0..points.len()).step_by(pieces) {
            let mut some = Points::new();
            some.extend_from(points, from..points.len().min(from + pieces));
            rolling.feed(&some);
        }
        rolling.end()
    }

    /// Five hours of a value each 10 s, of which the second has one that is something else.
    fn hours(odd: &Value, value: impl Fn(i64) -> Value) -> Points {
        let mut points = Points::new();
        for n in 0..5 * 360 {
            let value = if n == 500 { odd.clone() } else { value(n) };
            points.push(n * 10_000_000_000 - Unit::Hour.length(), value.as_ref());
        }
        points
    }

    #[test]
    fn windows_say_what_adding_one_after_the_other_says() {
        let points = hours(&Value::Float(0.7), |n| Value::Float(n as f64 / 10.0 - 33.3));
        for pieces in [1, 7, 5000] {
            let summaries = rolled(&points, pieces);
            assert_eq!(summaries.len(), 5);
            for of in &summaries {
                let mine: Vec<f64> = points
                    .numbers()
                    .filter(|(time, _)| (of.range.from..=of.range.to).contains(time))
                    .map(|(_, number)| number)
                    .collect();
                assert_eq!(of.count, mine.len() as u64);
                assert_eq!(of.sum(), Value::Float(mine.iter().fold(0.0, |sum, number| sum + number)));
                assert_eq!(of.least(), Value::Float(mine.iter().copied().fold(f64::MAX, f64::min)));
                assert_eq!(of.greatest(), Value::Float(mine.iter().copied().fold(f64::MIN, f64::max)));
            }
            let mut bytes = Vec::new();
            encode(&summaries, &mut bytes);
            assert_eq!(decode(Unit::Hour, &bytes), Ok(summaries));
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0x11;
                let _ = decode(Unit::Day, &changed);
            }
        }
    }

    #[test]
    fn windows_with_values_whose_order_or_rounding_would_matter_are_left_out() {
        for odd in [f64::NAN, f64::INFINITY, -0.0, 1.7e308].map(Value::Float) {
            let big = odd == Value::Float(1.7e308);
            let value = |n: i64| Value::Float(if big && n == 501 { 1.7e308 } else { n as f64 });
            let starts: Vec<i64> = rolled(&hours(&odd, value), 100).iter().map(|of| of.range.from).collect();
            assert_eq!(starts, [-1, 1, 2, 3].map(|hour| hour * Unit::Hour.length()), "{odd:?}");
        }
        for odd in [Value::Integer(1 << 53), Value::Float(1.0), Value::Text("a".into()), Value::Unsigned(1)] {
            assert_eq!(rolled(&hours(&odd, Value::Integer), 64).len(), 4, "{odd:?}");
        }
        assert_eq!(rolled(&hours(&Value::Unsigned(1), |_| Value::Unsigned(1)), 64), []);
        let mut few = Points::new();
        (0..255).for_each(|n| few.push_float(n, 1.0));
        assert_eq!(rolled(&few, 64), []);
        few.push_float(255, 1.0);
        assert_eq!(rolled(&few, 64).len(), 1);
        let mut ends = Points::new();
        (0..300).for_each(|n| ends.push_float(i64::MIN + n, 1.0));
        (0..300).for_each(|n| ends.push_float(i64::MAX - 300 + n, 1.0));
        assert_eq!(rolled(&ends, 1000), [], "windows that times do not have whole");
    }
}
