//! The points of one series on their way to an answer: read piece by piece, made one for each interval, made rates.
//!
//! May use: `calendar`, `fold`, `query`, `rollup`. Must not know: other series of the query.

use super::aggregator::Aggregator;
use super::calendar::{Grid, Interval};
use super::fold::{Fold, with_fold};
use super::query::{Counter, Downsample, Drops, Fill, Rate};
use super::time::{HOUR, MILLISECOND, SECOND};
use crate::error::{Error, Result};
use crate::held::Held;
use crate::points::Points;
use crate::rollup::{Share, Summary, Windows};
use crate::source::{Piece, Range, SeriesId, Source};
use crate::value::{Kind, ValueRef};

/// Points of the series of one group that may be there after they were reduced and filled, 16 bytes each.
pub(crate) const GROUP_POINTS_MAX: u64 = 8 << 20;

/// A point of a column of doubles, in bytes.
const POINT_BYTES: u64 = 16;
/// Intervals for which room is made at first; then it is doubled. A group may have very many short columns.
const INTERVALS_MIN: usize = 4;

/// Takes what is in a series.
type Tell<'t> = dyn FnMut(Piece<'_>) -> Result<()> + 't;

/// How much is read of a series at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// How many points a piece should have.
    pub(crate) points: i64,
    /// How long the first piece is, when nothing is known of the series.
    pub(crate) first: i64,
    /// How long any may be: what comes after a time without points may be dense.
    pub(crate) max: i64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { points: 1 << 17, first: 2 * HOUR, max: 7 * 24 * HOUR }
    }
}

/// Points of a series in a range, piece by piece: the memory of an answer does not grow with the range.
#[derive(Debug)]
pub(crate) struct Pieces {
    id: SeriesId,
    next: Option<i64>,
    to: i64,
    length: i64,
    sizes: Sizes,
}

impl Pieces {
    pub(crate) fn new(id: SeriesId, range: Range, sizes: Sizes) -> Self {
        let next = (range.from <= range.to).then_some(range.from);
        Self { id, next, to: range.to, length: sizes.first, sizes }
    }

    /// Whether there is no further piece.
    pub(crate) fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// Puts the next points in the place of those of `points`; whether there was a piece left, even an empty one.
    pub(crate) fn next(&mut self, source: &dyn Source, points: &mut Points) -> Result<bool> {
        points.clear();
        let Some(range) = self.range(None) else { return Ok(false) };
        source.points(self.id, range, points)?;
        self.read(range, points.len());
        Ok(true)
    }

    /// Tells what is in the next piece, which ends where a window does; whether there was a piece left.
    fn next_of(&mut self, source: &dyn Source, windows: Windows, tell: &mut Tell<'_>) -> Result<bool> {
        let Some(range) = self.range(Some(windows)) else { return Ok(false) };
        let mut found = 0;
        source.pieces(self.id, range, windows, &mut |piece| {
            found += if let Piece::Points(points) = piece { points.len() } else { 1 };
            tell(piece)
        })?;
        self.read(range, found);
        Ok(true)
    }

    /// What is to be read next.
    fn range(&self, windows: Option<Windows>) -> Option<Range> {
        let from = self.next?;
        let end = from.saturating_add(self.length - 1);
        let end = windows.map_or(end, |windows| windows.end(end));
        // A short rest is not worth a piece of its own: what a piece costs is mostly to find it.
        let is_last = self.to.saturating_sub(end) < self.length / 4;
        Some(Range { from, to: if is_last { self.to } else { end } })
    }

    /// Notes how much was found in a piece.
    fn read(&mut self, Range { to, .. }: Range, found: usize) {
        let found = i64::try_from(found).unwrap_or(i64::MAX).max(1);
        self.length = match self.sizes.points / found {
            0 => (self.length / 4).max(MILLISECOND),
            times => self.length.saturating_mul(times).min(self.sizes.max),
        };
        self.next = if to < self.to { to.checked_add(1) } else { None };
    }
}

/// A number as OpenTSDB prints it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Integer(i64),
    /// Beyond the signed.
    Unsigned(u64),
    Double(f64),
}

impl Value {
    /// The number of a value; `None` of text and of true and false.
    pub(crate) fn of(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Float(value) => Some(Self::Double(value)),
            ValueRef::Integer(value) => Some(Self::Integer(value)),
            ValueRef::Unsigned(value) => Some(i64::try_from(value).map_or(Self::Unsigned(value), Self::Integer)),
            ValueRef::Boolean(_) | ValueRef::Text(_) => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is meant")]
    pub(crate) fn to_double(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Double(value) => value,
        }
    }
}

/// The numbers of a series, in the order of their times, each time once.
#[derive(Debug, Default)]
pub(crate) struct Column {
    pub(crate) times: Vec<i64>,
    pub(crate) numbers: Numbers,
}

#[derive(Debug)]
pub(crate) enum Numbers {
    Integers(Vec<i64>),
    Doubles(Vec<f64>),
    Both(Vec<Value>),
}

impl Default for Numbers {
    fn default() -> Self {
        Self::Integers(Vec::new())
    }
}

impl Column {
    /// Appends the numbers among points.
    pub(crate) fn extend(&mut self, points: &Points) {
        let doubles = || points.bits().iter().map(|bits| f64::from_bits(*bits));
        let is_new = self.times.is_empty();
        match (&mut self.numbers, points.kind()) {
            _ if points.is_empty() => return,
            (Numbers::Doubles(numbers), Some(Kind::Float)) => numbers.extend(doubles()),
            (numbers, Some(Kind::Float)) if is_new => *numbers = Numbers::Doubles(doubles().collect()),
            (Numbers::Integers(numbers), Some(Kind::Integer)) => {
                numbers.extend(points.bits().iter().map(|bits| bits.cast_signed()));
            }
            _ => return self.extend_by_each(points),
        }
        self.times.extend_from_slice(points.times());
    }

    fn extend_by_each(&mut self, points: &Points) {
        let mut both: Vec<Value> = (0..self.times.len()).filter_map(|at| self.get(at)).collect();
        for (time, value) in points.iter() {
            if let Some(value) = Value::of(value) {
                self.times.push(time);
                both.push(value);
            }
        }
        self.numbers = Numbers::Both(both);
    }

    /// Appends a point to a column of doubles.
    pub(crate) fn push_double(&mut self, time: i64, number: f64) {
        match &mut self.numbers {
            Numbers::Doubles(numbers) => numbers.push(number),
            Numbers::Integers(_) if self.times.is_empty() => self.numbers = Numbers::Doubles(vec![number]),
            Numbers::Integers(_) | Numbers::Both(_) => return,
        }
        self.times.push(time);
    }

    /// Forgets the points before the last one that is before a moment, when they are many: the others have to be moved.
    pub(crate) fn forget_before(&mut self, moment: i64) {
        let unneeded = self.times.partition_point(|time| *time < moment).saturating_sub(1);
        if unneeded < self.times.len() / 2 {
            return;
        }
        self.times.drain(..unneeded);
        match &mut self.numbers {
            Numbers::Integers(numbers) => drop(numbers.drain(..unneeded)),
            Numbers::Doubles(numbers) => drop(numbers.drain(..unneeded)),
            Numbers::Both(numbers) => drop(numbers.drain(..unneeded)),
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<Value> {
        match &self.numbers {
            Numbers::Integers(numbers) => numbers.get(at).copied().map(Value::Integer),
            Numbers::Doubles(numbers) => numbers.get(at).copied().map(Value::Double),
            Numbers::Both(numbers) => numbers.get(at).copied(),
        }
    }

    /// One number for each interval that has points, or that is filled. What is in memory for it is held before it is there, and the
    /// column still is at the end.
    pub(crate) fn reduced(
        room: &Room<'_>,
        (pieces, range): (Pieces, Range),
        downsample: &Downsample,
        points: &mut Points,
    ) -> Result<Self> {
        let before = room.held.bytes();
        let mut column = with_fold!(downsample.function, f64, reduce(room, pieces, downsample, points))?;
        let is_filled = downsample.fill != Fill::None && !matches!(downsample.grid, Grid::All { .. });
        if is_filled && !column.times.is_empty() {
            column = filled(&column, range, downsample, room)?;
        }
        room.held.set(room.source, before + column.memory_bytes())?;
        Ok(column)
    }

    /// Bytes of memory, nearly.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of_number = if matches!(self.numbers, Numbers::Both(_)) { 16 } else { 8 };
        self.times.len() as u64 * (8 + of_number)
    }

    /// The change per second since the point before, of every point but the first.
    pub(crate) fn rates(&self, rate: Rate) -> Self {
        let (mut times, mut rates) = (Vec::with_capacity(self.times.len()), Vec::with_capacity(self.times.len()));
        let points = || self.times.iter().enumerate().filter_map(|(at, time)| Some((*time, self.get(at)?)));
        for (before, (time, value)) in points().zip(points().skip(1)) {
            if let Some(found) = change(before, (time, value), rate.counter) {
                times.push(time);
                rates.push(found);
            }
        }
        Self { times, numbers: Numbers::Doubles(rates) }
    }
}

/// What a column may take.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    pub(crate) source: &'a dyn Source,
    /// Of the group.
    pub(crate) held: &'a Held,
    /// Points that it may have yet.
    pub(crate) points_max: u64,
}

/// Points gathered by interval, whichever pieces they come in.
struct Gathering<'a, F> {
    room: &'a Room<'a>,
    grid: &'a Grid,
    current: Option<Interval>,
    fold: F,
    /// Numbers that the fold keeps of this interval, and for how many its memory is.
    kept: (usize, usize),
    times: Vec<i64>,
    numbers: Vec<f64>,
}

impl<F: Fold<Of = f64>> Gathering<'_, F> {
    fn feed<T: Copy>(&mut self, times: &[i64], values: &[T], number: impl Fn(T) -> f64) -> Result<()> {
        let mut rest = (times, values);
        while let Some(time) = rest.0.first() {
            let interval = match self.current {
                Some(interval) if *time < interval.end => interval,
                _ => {
                    self.flush()?;
                    self.grid.interval(*time)
                }
            };
            self.current = Some(interval);
            // At least one: what holds more than all times is no interval.
            let count = rest.0.partition_point(|time| *time < interval.end).max(1);
            let (Some((_, times)), Some((mine, values))) =
                (rest.0.split_at_checked(count), rest.1.split_at_checked(count))
            else {
                break;
            };
            self.keep(mine.len())?;
            for value in mine {
                self.fold.push(number(*value));
            }
            rest = (times, values);
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "OpenTSDB makes doubles of all that it gathers")]
    fn feed_points(&mut self, points: &Points) -> Result<()> {
        match points.kind() {
            Some(Kind::Float) => self.feed(points.times(), points.bits(), f64::from_bits),
            Some(Kind::Integer) => self.feed(points.times(), points.bits(), |bits| bits.cast_signed() as f64),
            _ => {
                let (times, numbers): (Vec<i64>, Vec<f64>) = points.numbers().unzip();
                self.feed(&times, &numbers, |number| number)
            }
        }
    }

    fn feed_summary(&mut self, summary: &Summary) -> Result<()> {
        let interval = self.grid.interval(summary.range.from);
        if self.current.is_some_and(|current| current != interval) {
            self.flush()?;
        }
        self.current = Some(interval);
        self.fold.push_summary(summary);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let Some(interval) = self.current.take() else { return Ok(()) };
        if self.times.len() as u64 >= self.room.points_max {
            return Err(Error::invalid(format!(
                "The intervals of one group may be {GROUP_POINTS_MAX} in all, and there are more: use a longer interval"
            )));
        }
        let length = self.times.len();
        if length == self.times.capacity() {
            let more = length.max(INTERVALS_MIN);
            self.room.held.add(self.room.source, more as u64 * POINT_BYTES)?;
            self.times.reserve_exact(more);
            self.numbers.reserve_exact(more);
        }
        self.times.push(interval.start);
        self.numbers.push(self.fold.finish());
        self.kept.0 = 0;
        Ok(())
    }

    /// Holds the memory for so many more numbers, if the fold keeps them: it grows by doubling.
    fn keep(&mut self, count: usize) -> Result<()> {
        if F::KEPT_BYTES == 0 {
            return Ok(());
        }
        let (kept, room) = &mut self.kept;
        *kept += count;
        if *kept > *room {
            let wanted = kept.next_power_of_two();
            self.room.held.add(self.room.source, (wanted - *room) as u64 * F::KEPT_BYTES)?;
            *room = wanted;
        }
        Ok(())
    }
}

/// The windows of which summaries are as good as points.
fn summarized(downsample: &Downsample) -> Option<Windows> {
    use Aggregator::{Avg, Count, Max, MimMax, MimMin, Min, PfSum, Sum, ZimSum};
    let share = match downsample.function {
        Sum | ZimSum | PfSum | Avg => Share::Whole,
        Min | MimMin | Max | MimMax | Count => Share::Part,
        _ => return None,
    };
    let windows = match (&downsample.grid, share) {
        (Grid::Fixed(length), _) => Windows { length: *length, offset: 0, share },
        (Grid::All { .. }, Share::Part) => Windows::ALL,
        _ => return None,
    };
    windows.unit().map(|_| windows)
}

fn reduce<F: Fold<Of = f64>>(
    room: &Room<'_>,
    mut pieces: Pieces,
    downsample: &Downsample,
    points: &mut Points,
) -> Result<Column> {
    let fold = F::begin(downsample.function);
    let (times, numbers) = (Vec::new(), Vec::new());
    let mut gathering = Gathering { room, grid: &downsample.grid, current: None, fold, kept: (0, 0), times, numbers };
    if let Some(windows) = summarized(downsample) {
        let mut tell = |piece: Piece<'_>| match piece {
            Piece::Points(points) => gathering.feed_points(points),
            Piece::Summary(summary) => gathering.feed_summary(summary),
        };
        while pieces.next_of(room.source, windows, &mut tell)? {}
    } else {
        while pieces.next(room.source, points)? {
            let bytes = points.memory_bytes() as u64;
            room.source.hold(bytes)?;
            gathering.feed_points(points)?;
            room.source.give_back(bytes);
        }
    }
    gathering.flush()?;
    Ok(Column { times: gathering.times, numbers: Numbers::Doubles(gathering.numbers) })
}

/// A number for every interval of the range.
fn filled(reduced: &Column, range: Range, downsample: &Downsample, room: &Room<'_>) -> Result<Column> {
    let missing = if downsample.fill == Fill::Zero { 0.0 } else { f64::NAN };
    let mut column = Column { times: Vec::new(), numbers: Numbers::Integers(Vec::new()) };
    let mut numbers = Vec::new();
    let mut interval = downsample.grid.interval(range.from);
    let length = interval.end.saturating_sub(interval.start).max(1);
    let expected = range.to.saturating_sub(interval.start).unsigned_abs() / length.unsigned_abs();
    if expected > room.points_max {
        return Err(Error::invalid(format!(
            "The range has {expected} intervals for each series, and all series of a group together may have \
             {GROUP_POINTS_MAX}: use a longer interval or no fill policy"
        )));
    }
    room.held.add(room.source, (expected + 1) * POINT_BYTES)?;
    let mut at = 0;
    while interval.start <= range.to {
        column.times.push(interval.start);
        let found = reduced.times.get(at).is_some_and(|time| *time == interval.start);
        numbers.push(reduced.get(at).filter(|_| found).map_or(missing, Value::to_double));
        at += usize::from(found);
        if interval.end <= interval.start || interval.end == i64::MAX {
            break;
        }
        interval = downsample.grid.interval(interval.end);
    }
    column.numbers = Numbers::Doubles(numbers);
    Ok(column)
}

/// The change per second between two points; `None` when the later one is dropped.
#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is meant")]
pub(crate) fn change(before: (i64, Value), now: (i64, Value), counter: Option<Counter>) -> Option<f64> {
    let nanoseconds = now.0.saturating_sub(before.0);
    let seconds = match nanoseconds % MILLISECOND {
        0 => (nanoseconds / MILLISECOND) as f64 / 1_000.0,
        _ => nanoseconds as f64 / SECOND as f64,
    };
    let integers = match (before.1, now.1) {
        (Value::Integer(before), Value::Integer(now)) => Some((before, now)),
        _ => None,
    };
    let difference = match integers {
        Some((before, now)) => now.wrapping_sub(before) as f64,
        None => now.1.to_double() - before.1.to_double(),
    };
    let Some(counter) = counter.filter(|_| difference < 0.0) else { return Some(difference / seconds) };
    if counter.drops == Drops::Drop {
        return None;
    }
    let difference = match integers {
        Some((before, now)) => counter.max.wrapping_sub(before).wrapping_add(now) as f64,
        None => counter.max as f64 - before.1.to_double() + now.1.to_double(),
    };
    let rate = difference / seconds;
    Some(if counter.reset > 0 && rate > counter.reset as f64 { 0.0 } else { rate })
}

/// Whether an aggregator of one number is that number.
pub(crate) fn keeps_one(aggregator: Aggregator) -> bool {
    !matches!(aggregator, Aggregator::Count | Aggregator::Dev | Aggregator::Diff | Aggregator::SquareSum)
}
