//! The answer to a query, piece by piece.
//!
//! Groups are read and printed in small pieces, however long they are: one series whose points stay as they are by itself, others
//! a stretch of time after the other. Only what a downsampling makes of a group is in memory whole.
//!
//! Points of a downsampled query are those of its range. Without downsampling, series that are put together and rates see a
//! little further, to where the hours of both ends begin and end, as OpenTSDB does: so that a series is something at the very
//! ends too. What lies outside of the range is not shown.
//!
//! May use: everything of this module. Must not know: HTTP.

use std::collections::VecDeque;

use serde_json::json;

use super::calendar::Grid;
use super::column::{Column, GROUP_POINTS_MAX, Pieces, Room, Sizes, Value, keeps_one};
use super::print::{self, Nan, Printer};
use super::query::{Afterwards, Fill, Query, SubQuery};
use super::stretch::Stretches;
use super::time::HOUR;
use crate::error::Result;
use crate::held::Held;
use crate::points::Points;
use crate::select::Select;
use crate::source::{Range, Series, Source};

/// A piece of an answer ends when it has so many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// An answer that is being made.
#[derive(Debug)]
pub struct Answer {
    query: Query,
    /// Groups that are still to come, each with the number of its query.
    groups: VecDeque<(usize, Vec<Series>)>,
    current: Option<Current>,
    sizes: Sizes,
    deletions: Vec<(Select, Range)>,
    points: Points,
    counts: Counts,
    written: Written,
    /// The columns of the current group.
    held: Held,
}

/// How much of the list was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Open,
    Groups,
    All,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    series: u64,
    points: u64,
    printed: u64,
}

/// The group that is being printed.
#[derive(Debug)]
enum Current {
    One(Box<One>),
    Many(Box<Many>),
}

/// One series whose points stay as they are.
#[derive(Debug)]
struct One {
    /// That of the query.
    number: usize,
    series: Series,
    pieces: Pieces,
    printer: Printer,
}

/// Series that are put together, or of which something is computed.
#[derive(Debug)]
struct Many {
    number: usize,
    /// How many series were found.
    count: usize,
    stretches: Stretches,
    printer: Printer,
}

/// What stands before a group.
fn head(out: &mut Vec<u8>, written: Written) {
    if written == Written::Groups {
        out.push(b',');
    }
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
        let sizes = Sizes::default();
        source.hold(PIECE_BYTES as u64)?;
        let held = Held::default();
        Ok(Self { query, groups, current: None, sizes, deletions, points, counts, written, held })
    }

    /// The same answer, read in pieces of these sizes.
    #[cfg(test)]
    pub(crate) fn in_pieces(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// What is to be deleted when the whole answer is made: nothing, unless the query says so.
    #[must_use]
    pub fn deletions(&self) -> &[(Select, Range)] {
        &self.deletions
    }

    /// The next piece; `None` after the last. The source must be that of the beginning, or a newer one.
    ///
    /// # Errors
    /// [`crate::Error::Source`], [`crate::Error::Memory`], and [`crate::Error::Invalid`] when too much would be filled; there is no
    /// answer then.
    pub fn next(&mut self, source: &dyn Source) -> Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        match self.written {
            Written::All => return Ok(None),
            Written::Nothing => {
                out.push(b'[');
                self.written = Written::Open;
            }
            Written::Open | Written::Groups => {}
        }
        while out.len() < PIECE_BYTES {
            if let Some(current) = self.current.take() {
                match current {
                    Current::One(one) => self.print_one(source, one, &mut out)?,
                    Current::Many(many) => self.print_many(source, many, &mut out)?,
                }
            } else if let Some((number, group)) = self.groups.pop_front() {
                self.group(source, number, group)?;
            } else {
                self.end(&mut out);
                self.written = Written::All;
                break;
            }
        }
        Ok(Some(out))
    }

    /// Whether the last piece was made.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.written == Written::All
    }

    /// The whole answer, in one.
    ///
    /// # Errors
    /// As [`Answer::next`].
    pub fn whole(&mut self, source: &dyn Source) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(mut piece) = self.next(source)? {
            source.hold(piece.len() as u64)?;
            whole.append(&mut piece);
        }
        Ok(whole)
    }

    fn group(&mut self, source: &dyn Source, number: usize, mut group: Vec<Series>) -> Result<()> {
        let Some(sub) = self.query.queries.get(number) else { return Ok(()) };
        self.counts.series += group.len() as u64;
        if group.len() == 1 && sub.downsample.is_none() && sub.rate.is_none() && keeps_one(sub.aggregator) {
            let Some(series) = group.pop() else { return Ok(()) };
            let pieces = Pieces::new(series.id, self.query.range, self.sizes);
            let printer = self.query.printer(sub);
            self.current = Some(Current::One(Box::new(One { number, series, pieces, printer })));
            return Ok(());
        }
        let (read, shown) = (self.query.read_range(sub), self.query.shown_range(sub));
        let count = group.len();
        let stretches = match &sub.downsample {
            None => Stretches::of_points(sub, group, (read, shown), self.sizes),
            Some(downsample) => {
                let mut columns = Vec::with_capacity(count);
                let mut left = GROUP_POINTS_MAX;
                for series in &group {
                    let pieces = (Pieces::new(series.id, read, self.sizes), read);
                    let room = Room { source, held: &self.held, points_max: left };
                    let column = Column::reduced(&room, pieces, downsample, &mut self.points)?;
                    left = left.saturating_sub(column.times.len() as u64);
                    self.counts.points += column.times.len() as u64;
                    let Some(rate) = sub.rate else {
                        columns.push(column);
                        continue;
                    };
                    let held = self.held.bytes();
                    self.held.add(source, column.memory_bytes())?;
                    columns.push(column.rates(rate));
                    self.held.back_to(source, held);
                }
                Stretches::of_columns(sub, group, columns, shown)
            }
        };
        let printer = self.query.printer(sub);
        self.current = Some(Current::Many(Box::new(Many { number, count, stretches, printer })));
        Ok(())
    }

    /// Prints a stretch of a group of several series.
    fn print_many(&mut self, source: &dyn Source, mut many: Box<Many>, out: &mut Vec<u8>) -> Result<()> {
        let Some(sub) = self.query.queries.get(many.number) else { return Ok(()) };
        let (show, written, printer) = (self.query.show, self.written, &mut many.printer);
        let is_more = many.stretches.next(source, (&mut self.points, &self.held), |series, time, value| {
            if printer.is_empty() {
                head(out, written);
                print::group(out, series, show, &sub.text);
            }
            printer.point(out, time, value);
        })?;
        if is_more {
            self.current = Some(Current::Many(many));
            return Ok(());
        }
        self.held.back_to(source, 0);
        self.counts.points += many.stretches.read;
        if !many.printer.is_empty() {
            self.close(many.printer, (many.number, many.count), out);
        }
        Ok(())
    }

    /// Prints a piece of a group of one series.
    fn print_one(&mut self, source: &dyn Source, mut one: Box<One>, out: &mut Vec<u8>) -> Result<()> {
        let Some(sub) = self.query.queries.get(one.number) else { return Ok(()) };
        one.pieces.next(source, &mut self.points)?;
        self.counts.points += self.points.len() as u64;
        for (time, value) in self.points.iter() {
            let Some(value) = Value::of(value) else { continue };
            if one.printer.is_empty() {
                head(out, self.written);
                print::group(out, std::slice::from_ref(&one.series), self.query.show, &sub.text);
            }
            one.printer.point(out, time, value);
        }
        if !one.pieces.is_over() {
            self.current = Some(Current::One(one));
        } else if !one.printer.is_empty() {
            self.close(one.printer, (one.number, 1), out);
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
