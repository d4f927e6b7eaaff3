//! The series of one group, put together one stretch of time after the other.
//!
//! What all series are at a moment is known when each has a point after it, or has ended. So each is read a piece further until that
//! holds for some moments; these go out, and what no later moment needs is forgotten. Memory is that of a piece of each series, however
//! long the range is. Series that were reduced are there whole from the beginning.
//!
//! May use: `column`, `merge`, `query`. Must not know: how points are printed.

use super::aggregator::{Aggregator, Between};
use super::column::{Column, Pieces, Sizes, Value, change, keeps_one};
use super::merge::merge;
use super::query::{Rate, SubQuery};
use crate::error::Result;
use crate::held::Held;
use crate::points::Points;
use crate::source::{Range, Series, Source};

/// Points of all series of a group that are in memory at a time, nearly, 16 bytes each.
const GROUP_POINTS: i64 = 8 << 20;
const SERIES_POINTS_MIN: i64 = 1 << 10;

/// What one series still has to come.
#[derive(Debug)]
struct Reading {
    /// `None` when everything was read.
    pieces: Option<Pieces>,
    rate: Option<Rate>,
    /// The last point that was read, for the rate of the next.
    before: Option<(i64, Value)>,
}

/// A group on its way.
#[derive(Debug)]
pub(crate) struct Stretches {
    aggregator: Aggregator,
    between: Between,
    shown: Range,
    /// The first moment that has not gone out.
    at: i64,
    series: Vec<Series>,
    readings: Vec<Reading>,
    columns: Vec<Column>,
    /// Points that were read.
    pub(crate) read: u64,
}

impl Stretches {
    /// A group whose points are put together as they are, or as rates.
    pub(crate) fn of_points(sub: &SubQuery, series: Vec<Series>, (read, shown): (Range, Range), sizes: Sizes) -> Self {
        let count = i64::try_from(series.len()).unwrap_or(i64::MAX).max(1);
        let points = (GROUP_POINTS / count).max(SERIES_POINTS_MIN).min(sizes.points);
        let reading = |series: &Series| Reading {
            pieces: Some(Pieces::new(series.id, read, Sizes { points, ..sizes })),
            rate: sub.rate,
            before: None,
        };
        let readings = series.iter().map(reading).collect();
        let columns = series.iter().map(|_| Column::default()).collect();
        Self::new(sub, shown, series, readings, columns)
    }

    /// A group whose series are there whole.
    pub(crate) fn of_columns(sub: &SubQuery, series: Vec<Series>, columns: Vec<Column>, shown: Range) -> Self {
        let readings = series.iter().map(|_| Reading { pieces: None, rate: None, before: None }).collect();
        Self::new(sub, shown, series, readings, columns)
    }

    fn new(sub: &SubQuery, shown: Range, series: Vec<Series>, readings: Vec<Reading>, columns: Vec<Column>) -> Self {
        let between = if sub.rate.is_some() { Between::Before } else { sub.aggregator.between() };
        Self { aggregator: sub.aggregator, between, shown, at: shown.from, series, readings, columns, read: 0 }
    }

    /// Hands over the points of the next stretch, which may have none; whether there is another.
    pub(crate) fn next(
        &mut self,
        source: &dyn Source,
        (points, held): (&mut Points, &Held),
        mut emit: impl FnMut(&[Series], i64, Value),
    ) -> Result<bool> {
        for (reading, column) in self.readings.iter_mut().zip(&mut self.columns) {
            while reading.pieces.is_some() && column.times.last().is_none_or(|last| *last <= self.at) {
                let before = column.memory_bytes();
                reading.next(source, points, column)?;
                held.add(source, column.memory_bytes().saturating_sub(before))?;
                self.read += points.len() as u64;
            }
        }
        self.leave_out_what_has_no_points();
        let unread = self.readings.iter().zip(&self.columns).filter(|(reading, _)| reading.pieces.is_some());
        // Moments before this one: after them each series has a point, or nothing.
        let end = unread.filter_map(|(_, column)| column.times.last().copied()).min();
        let stretch = Range { from: self.at, to: end.map_or(self.shown.to, |end| self.shown.to.min(end - 1)) };
        let series = &self.series;
        match self.columns.as_slice() {
            [column] if keeps_one(self.aggregator) => {
                let from = column.times.partition_point(|time| *time < stretch.from);
                let times = column.times.iter().enumerate().skip(from).take_while(|(_, time)| **time <= stretch.to);
                times
                    .filter_map(|(at, time)| Some((*time, column.get(at)?)))
                    .for_each(|(time, value)| emit(series, time, value));
            }
            columns => {
                let emit = |time, value| emit(series, time, value);
                merge(source, columns, (self.aggregator, self.between), stretch, emit)?;
            }
        }
        let Some(end) = end.filter(|end| *end <= self.shown.to) else { return Ok(false) };
        self.at = end;
        for column in &mut self.columns {
            column.forget_before(end);
        }
        held.set(source, self.columns.iter().map(Column::memory_bytes).sum())?;
        Ok(true)
    }

    /// Series without any point belong to no group: their tags are not those of the answer.
    fn leave_out_what_has_no_points(&mut self) {
        let mut has_points = self.columns.iter().map(|column| !column.times.is_empty()).collect::<Vec<_>>().into_iter();
        if has_points.as_slice().iter().all(|has| *has) {
            return;
        }
        let mut keep = has_points.clone();
        self.series.retain(|_| keep.next().unwrap_or(true));
        keep = has_points.clone();
        self.readings.retain(|_| keep.next().unwrap_or(true));
        self.columns.retain(|_| has_points.next().unwrap_or(true));
    }
}

impl Reading {
    /// Reads a piece.
    fn next(&mut self, source: &dyn Source, points: &mut Points, column: &mut Column) -> Result<()> {
        let Some(pieces) = &mut self.pieces else { return Ok(()) };
        pieces.next(source, points)?;
        if pieces.is_over() {
            self.pieces = None;
        }
        let Some(rate) = self.rate else {
            column.extend(points);
            return Ok(());
        };
        for (time, value) in points.iter() {
            let Some(now) = Value::of(value).map(|value| (time, value)) else { continue };
            if let Some(before) = self.before.replace(now)
                && let Some(found) = change(before, now, rate.counter)
            {
                column.push_double(time, found);
            }
        }
        Ok(())
    }
}
