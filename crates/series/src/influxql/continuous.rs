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
    span: i64,
    select: Select,
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
        let every = query.every.unwrap_or(windows.length);
        let runs = windows.with_length(every);
        let span = query.span.unwrap_or(every.max(windows.length));
        Ok(Self { runs, windows, every, span, select })
    }

    /// When it runs next.
    #[must_use]
    pub fn next(&self, through: i64) -> i64 {
        self.runs.next(through)
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
        let from = not_before(&self.windows, begin.saturating_sub(self.span));
        // A run in the midst of a window computes that one too.
        let ahead = length - self.every.min(length);
        let end = self.windows.start(last.saturating_add(ahead));
        let range = (from < end).then(|| Range { from, to: end - 1 });
        let missed = last.saturating_sub(begin) / self.every.max(1);
        Some(Due { range, through: last, missed: missed.unsigned_abs(), left_out: begin.saturating_sub(first) })
    }

    /// The statement that a run carries out; its conditions on time count for nothing.
    #[must_use]
    pub fn statement(&self, range: Range) -> Statement {
        let select = Select { within: Some(range), ..self.select.clone() };
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
