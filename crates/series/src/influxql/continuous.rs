//! Continuous queries: what is kept of one, and when it runs over which times.
//!
//! A query runs at the boundaries of EVERY (or of its windows), each time over the windows of the last FOR (or of one run). Runs that
//! were missed are made up for in few, as far back as [`CATCH_UP_WINDOWS_MAX`] windows. What a run writes replaces what an
//! earlier one wrote, so a run that is repeated changes nothing.
//!
//! May use: `ast`, `parse`, `print`, `window`. Must not know: where queries are kept, threads.

use super::ast::{Continuous, Expr, From, Kind, Select};
use super::parse::{Statement, parse};
use super::print;
use super::run::window;
use super::times::Clock;
use super::window::Window;
use super::words::Parameters;
use crate::error::{Error, Result};
use crate::source::Range;

/// Windows that are made up for: what is further back is left out.
const CATCH_UP_WINDOWS_MAX: i64 = 10_000;
/// More windows than this are counted by their length, also in a zone where some are longer.
const ZONED_WINDOWS_MAX: i64 = 1_000;
/// Windows that one run computes at most, so that it ends soon; the next follows at once.
const RUN_WINDOWS_MAX: i64 = 1_000;

/// What is kept of a continuous query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinuousQuery {
    /// The database it belongs to.
    pub database: String,
    /// Its name there.
    pub name: String,
    /// The statement that creates it.
    pub text: String,
    /// Its last run, or when it was created: nanoseconds since 1970.
    pub through: i64,
}

/// A continuous query that can run.
#[derive(Debug)]
pub struct Schedule {
    /// The boundaries at which it runs.
    runs: Window,
    windows: Window,
    every: i64,
    span: Span,
    select: Select,
}

/// How far back a run computes.
#[derive(Debug, Clone, Copy)]
enum Span {
    /// So many windows, however long they are: a day has 25 hours once a year.
    Windows(i64),
    /// FOR of no whole number of windows.
    Nanos(i64),
}

/// A run that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The times that it computes; `None` when no window is complete.
    pub range: Option<Range>,
    /// What [`ContinuousQuery::through`] is when it is done.
    pub through: i64,
    /// Runs that are made up for, besides this.
    pub missed: u64,
    /// Nanoseconds that are left out because they are too far back.
    pub left_out: i64,
}

/// The times of `window` that begin at `time` or later.
fn not_before(window: &Window, time: i64) -> i64 {
    if window.start(time) == time { time } else { window.next(time) }
}

impl Schedule {
    /// Reads the statement of a query.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is none.
    pub fn of(query: &ContinuousQuery) -> Result<Self> {
        let mut statements = parse(&query.text, &Parameters::new())?;
        match (statements.pop().map(|statement| statement.kind), statements.len()) {
            (Some(Kind::CreateContinuousQuery(query)), 0) => Self::new(*query),
            _ => Err(Error::invalid("this is no continuous query")),
        }
    }

    pub(crate) fn new(query: Continuous) -> Result<Self> {
        let select = query.select;
        // An offset that is told by now() would move with every run.
        let Some(windows) = window(&select, Clock::utc(0))? else {
            return Err(Error::invalid("a continuous query is grouped by time"));
        };
        if window(&select, Clock::utc(1))?.as_ref() != Some(&windows) {
            let text = "the offset of GROUP BY time() in a continuous query cannot be told by now(): give a duration";
            return Err(Error::invalid(text));
        }
        let every = query.every.unwrap_or(windows.length);
        let runs = windows.with_length(every);
        let length = windows.length;
        let span = match query.span {
            Some(span) if span % length != 0 => Span::Nanos(span),
            Some(span) => Span::Windows(span / length),
            None => Span::Windows(every.saturating_add(length - 1) / length),
        };
        Ok(Self { runs, windows, every, span, select })
    }

    /// When it runs next.
    #[must_use]
    pub fn next(&self, through: i64) -> i64 {
        self.runs.next(through)
    }

    /// From when on it runs after a clock that was far ahead had it run for times that are to come; `None` while what was noted
    /// can be believed.
    #[must_use]
    pub fn set_back(&self, through: i64, now: i64) -> Option<i64> {
        let ahead = through.saturating_sub(now);
        (ahead > self.every.max(self.windows.length).saturating_mul(2)).then(|| self.runs.start(now))
    }

    /// The times that are computed by a run at a boundary begin here.
    fn begins(&self, boundary: i64) -> i64 {
        match self.span {
            Span::Nanos(span) => not_before(&self.windows, boundary.saturating_sub(span)),
            Span::Windows(count) => {
                let newest = self.windows.start(boundary.saturating_sub(1));
                if count <= ZONED_WINDOWS_MAX {
                    self.windows.moved(newest, 1 - count.max(1))
                } else {
                    self.windows.start(newest.saturating_sub((count - 1).saturating_mul(self.windows.length)))
                }
            }
        }
    }

    /// The run that is due, if one is.
    #[must_use]
    pub fn due(&self, through: i64, now: i64) -> Option<Due> {
        let first = self.next(through);
        if first > now {
            return None;
        }
        let newest = self.runs.start(now);
        let length = self.windows.length;
        let earliest = newest.saturating_sub(length.saturating_mul(CATCH_UP_WINDOWS_MAX));
        let begin = if first < earliest { self.runs.next(earliest) } else { first };
        let last = newest.min(self.runs.start(begin.saturating_add(length.saturating_mul(RUN_WINDOWS_MAX))));
        let from = self.begins(begin);
        // A run in the midst of a window computes that one too, if it runs more often than windows end.
        let end = if self.every < length { not_before(&self.windows, last) } else { self.windows.start(last) };
        let range = (from < end).then(|| Range { from, to: end - 1 });
        let missed = last.saturating_sub(begin) / self.every.max(1);
        Some(Due { range, through: last, missed: missed.unsigned_abs(), left_out: begin.saturating_sub(first) })
    }

    /// The statement that a run carries out; its conditions on time count for nothing.
    #[must_use]
    pub fn statement(&self, range: Range) -> Statement {
        let mut select = self.select.clone();
        select.confine(range);
        Statement::of(Kind::Select(Box::new(select)))
    }
}

impl Continuous {
    /// The query with every database named, as it is kept.
    pub(crate) fn kept(&self, now: i64) -> ContinuousQuery {
        let mut query = self.clone();
        qualify(&mut query.select, &self.database);
        let (database, name) = (self.database.clone(), self.name.clone());
        ContinuousQuery { database, name, text: print::continuous(&query), through: now }
    }

    /// # Errors
    /// [`Error::Invalid`] in InfluxDB's words when it can never run.
    pub(crate) fn check(&self) -> Result<()> {
        let mut has_call = false;
        for field in &self.select.fields {
            field.expr.walk(&mut |part| {
                has_call = has_call || matches!(part, Expr::Call(_));
                true
            });
        }
        if !has_call {
            return Err(Error::invalid("GROUP BY requires at least one aggregate function"));
        }
        Schedule::new(self.clone()).map(|_| ())
    }
}

impl Select {
    /// Has it, and what it selects from, look at this range alone.
    fn confine(&mut self, range: Range) {
        self.within = Some(range);
        for from in &mut self.from {
            if let From::Select(inner) = from {
                inner.confine(range);
            }
        }
    }
}

fn qualify(select: &mut Select, database: &str) {
    if let Some(into) = &mut select.into {
        into.database.get_or_insert_with(|| database.to_owned());
    }
    for from in &mut select.from {
        match from {
            From::Measurement(measurement) => {
                measurement.database.get_or_insert_with(|| database.to_owned());
            }
            From::Select(inner) => qualify(inner, database),
        }
    }
}
