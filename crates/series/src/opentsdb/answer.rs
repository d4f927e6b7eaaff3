//! The answer to a query, piece by piece.
//!
//! A group of one series whose points stay as they are is read and printed in small pieces, however long it is. A group of many
//! is read whole, reduced first where there is a downsampling, and printed whole.
//!
//! Points of a downsampled query are those of its range. Without downsampling, series that are put together and rates see a
//! little further, to where the hours of both ends begin and end, as OpenTSDB does: so that a series is something at the very
//! ends too. What lies outside of the range is not shown.
//!
//! May use: everything of this module. Must not know: HTTP.

use std::collections::VecDeque;

use serde_json::json;

use super::aggregator::Between;
use super::calendar::Grid;
use super::column::{Column, Pieces, Value, keeps_one};
use super::merge::merge;
use super::print::{self, Nan, Printer};
use super::query::{Afterwards, Fill, Query, SubQuery};
use super::time::HOUR;
use crate::error::Result;
use crate::points::Points;
use crate::select::Select;
use crate::source::{Range, Series, Source};

/// A piece of an answer ends when it has so many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Whether there is more of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is.
    More,
    /// That was all.
    Done,
}

/// An answer that is being made.
#[derive(Debug)]
pub struct Answer {
    query: Query,
    /// Groups that are still to come, each with the number of its query.
    groups: VecDeque<(usize, Vec<Series>)>,
    /// The series that is being printed piece by piece.
    printing: Option<Printing>,
    deletions: Vec<(Select, Range)>,
    points: Points,
    counts: Counts,
    written: Written,
}

/// Whether anything of the list was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Open,
    Groups,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    series: u64,
    points: u64,
    printed: u64,
}

#[derive(Debug)]
struct Printing {
    number: usize,
    series: Series,
    pieces: Pieces,
    printer: Printer,
    read: u64,
}

impl Answer {
    /// Looks for the series that a query of a database means.
    ///
    /// # Errors
    /// [`crate::Error::Missing`] when there is no such metric; [`crate::Error::Source`].
    pub fn begin(source: &dyn Source, database: &str, query: Query) -> Result<Self> {
        let (mut groups, mut deletions) = (VecDeque::new(), Vec::new());
        for (number, sub) in query.queries.iter().enumerate() {
            let series = sub.series(source, database)?;
            if query.afterwards == Afterwards::Delete {
                let selections = sub.selections(source, database, &series)?;
                deletions.extend(selections.into_iter().map(|select| (select, query.range)));
            }
            groups.extend(sub.groups(series).into_iter().map(|group| (number, group)));
        }
        let (points, counts, written) = (Points::new(), Counts::default(), Written::Nothing);
        Ok(Self { query, groups, printing: None, deletions, points, counts, written })
    }

    /// What is to be deleted when the whole answer is made: nothing, unless the query says so.
    #[must_use]
    pub fn deletions(&self) -> &[(Select, Range)] {
        &self.deletions
    }

    /// Appends the next piece to `out`. The source must be that of the beginning, or a newer one.
    ///
    /// # Errors
    /// [`crate::Error::Source`], and [`crate::Error::Invalid`] when too much would be filled; there is no answer then.
    pub fn next(&mut self, source: &dyn Source, out: &mut Vec<u8>) -> Result<Progress> {
        if self.written == Written::Nothing {
            out.push(b'[');
            self.written = Written::Open;
        }
        while out.len() < PIECE_BYTES {
            if let Some(printing) = self.printing.take() {
                self.print(source, printing, out)?;
            } else if let Some((number, group)) = self.groups.pop_front() {
                self.group(source, number, group, out)?;
            } else {
                self.end(out);
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    fn group(&mut self, source: &dyn Source, number: usize, mut group: Vec<Series>, out: &mut Vec<u8>) -> Result<()> {
        let Some(sub) = self.query.queries.get(number) else { return Ok(()) };
        self.counts.series += group.len() as u64;
        if group.len() == 1 && sub.downsample.is_none() && sub.rate.is_none() && keeps_one(sub.aggregator) {
            let Some(series) = group.pop() else { return Ok(()) };
            let pieces = Pieces::new(series.id, self.query.range);
            self.printing = Some(Printing { number, series, pieces, printer: self.query.printer(sub), read: 0 });
            return Ok(());
        }
        let read = self.query.read_range(sub);
        let (mut columns, mut present) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
        for series in &group {
            let column = match &sub.downsample {
                Some(downsample) => Column::reduced(source, (series.id, read), downsample, &mut self.points)?,
                None => Column::raw(source, Pieces::new(series.id, read), &mut self.points)?,
            };
            self.counts.points += column.times.len() as u64;
            let column = if let Some(rate) = sub.rate { column.rates(rate) } else { column };
            if !column.times.is_empty() {
                columns.push(column);
                present.push(series);
            }
        }
        let before = out.len();
        let separator = if self.written == Written::Groups { &b","[..] } else { &[] };
        out.extend_from_slice(separator);
        print::group(out, &present, self.query.show, &sub.text);
        let mut printer = self.query.printer(sub);
        let shown = self.query.shown_range(sub);
        match columns.as_slice() {
            [column] if keeps_one(sub.aggregator) => {
                for (at, time) in column.times.iter().enumerate() {
                    if let Some(value) = column.get(at).filter(|_| shown.from <= *time && *time <= shown.to) {
                        printer.point(out, *time, value);
                    }
                }
            }
            columns => {
                let between = if sub.rate.is_some() { Between::Before } else { sub.aggregator.between() };
                merge(columns, (sub.aggregator, between), shown, |time, value| printer.point(out, time, value));
            }
        }
        if printer.is_empty() {
            out.truncate(before);
            return Ok(());
        }
        self.close(printer, (number, group.len()), out);
        Ok(())
    }

    fn print(&mut self, source: &dyn Source, mut printing: Printing, out: &mut Vec<u8>) -> Result<()> {
        let Some(sub) = self.query.queries.get(printing.number) else { return Ok(()) };
        let is_piece = printing.pieces.next(source, &mut self.points)?;
        printing.read += self.points.len() as u64;
        self.counts.points += self.points.len() as u64;
        for (time, value) in self.points.iter() {
            let Some(value) = Value::of(value) else { continue };
            if printing.printer.is_empty() {
                let separator = if self.written == Written::Groups { &b","[..] } else { &[] };
                out.extend_from_slice(separator);
                print::group(out, &[&printing.series], self.query.show, &sub.text);
            }
            printing.printer.point(out, time, value);
        }
        if is_piece {
            self.printing = Some(printing);
        } else if !printing.printer.is_empty() {
            self.close(printing.printer, (printing.number, 1), out);
        }
        Ok(())
    }

    /// Ends a group whose points are written.
    fn close(&mut self, printer: Printer, (number, series): (usize, usize), out: &mut Vec<u8>) {
        let printed = printer.end(out);
        self.counts.printed += printed;
        if self.query.show.stats {
            let stats = json!({ "queryIdx": number, "emittedDPs": printed, "rowsPostFilter": series });
            out.extend_from_slice(format!(",\"stats\":{stats}").as_bytes());
        }
        out.push(b'}');
        self.written = Written::Groups;
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if self.query.show.summary {
            let Counts { series, points, printed } = self.counts;
            let stats = json!({ "emittedDPs": printed, "dpsPostFilter": points, "rowsPostFilter": series });
            let separator = if self.written == Written::Groups { "," } else { "" };
            out.extend_from_slice(format!("{separator}{{\"statsSummary\":{stats}}}").as_bytes());
        }
        out.push(b']');
    }
}

impl Query {
    fn printer(&self, sub: &SubQuery) -> Printer {
        let fills_null = sub.downsample.as_ref().is_some_and(|downsample| downsample.fill == Fill::Null);
        Printer::new(self.shape, self.resolution, if fills_null { Nan::Null } else { Nan::Quoted })
    }

    /// Which points are read.
    fn read_range(&self, sub: &SubQuery) -> Range {
        if sub.downsample.is_some() {
            return self.range;
        }
        let Range { from, to } = self.range;
        let end = to.saturating_sub(to.rem_euclid(HOUR)).saturating_add(HOUR - 1);
        Range { from: from.saturating_sub(from.rem_euclid(HOUR)), to: end }
    }

    /// Which points are printed: those of the first interval too, whose time is that of its beginning.
    fn shown_range(&self, sub: &SubQuery) -> Range {
        let from = match &sub.downsample {
            None | Some(super::query::Downsample { grid: Grid::All { .. }, .. }) => self.range.from,
            Some(downsample) => downsample.grid.interval(self.range.from).start,
        };
        Range { from, to: self.range.to }
    }
}
