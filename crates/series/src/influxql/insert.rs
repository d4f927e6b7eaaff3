//! SELECT INTO: the rows of a selection become points.
//!
//! Tags that are grouped by stay tags, as do those that `top` and `bottom` name; other columns become fields. Rows without a value
//! are no points. Points go out in batches as they come to be; those of earlier batches stay when a later one fails.
//!
//! May use: `run`, `answer`, `rows`. Must not know: how points are written.

use super::answer::{Cell, Sink};
use super::ast::{Expr, Kind, Select, Target};
use super::call::{self, Aggregate, Applied};
use super::parse::Statement;
use super::{Env, run};
use crate::error::{Error, Result};
use crate::rows::{Rows, Typing};
use crate::source::Range;
use crate::value::ValueRef;

/// Points of a batch, nearly.
const BATCH_POINTS: usize = 20_000;

/// Writes what [`Rows`] hold, and clears them.
pub type Write<'w> = dyn FnMut(&mut Rows) -> Result<()> + 'w;

impl Statement {
    /// Whether it is a SELECT INTO, for [`insert`].
    #[must_use]
    pub fn is_insert(&self) -> bool {
        matches!(&self.kind, Kind::Select(select) if select.into.is_some())
    }
}

/// Carries a SELECT INTO out. How many rows were written.
///
/// # Errors
/// [`Error::Invalid`] in InfluxDB's words; what `write` says.
pub fn insert(env: &Env<'_>, statement: &Statement, write: &mut Write<'_>) -> Result<u64> {
    let Kind::Select(select) = &statement.kind else { return Ok(0) };
    let Some(target) = &select.into else { return Ok(0) };
    let database = env.database(target.database.as_deref())?;
    env.check_database(database)?;
    let mut rows = Rows::new(database);
    rows.set_typing(Typing::Strict);
    let (named, tags) = (tags(select)?, Vec::new());
    let mut inserter =
        Inserter { target, write, rows, named, metric: String::new(), tags, columns: Vec::new(), count: 0 };
    run::select(env, select, Range::ALL, &mut inserter)?;
    inserter.flush()?;
    Ok(inserter.count)
}

/// Answers a SELECT INTO that has written so many rows.
///
/// # Errors
/// What the sink says.
pub fn say_inserted(count: u64, sink: &mut dyn Sink) -> Result<()> {
    sink.series("result", &[], &["time".to_owned(), "written".to_owned()])?;
    sink.row(Some(0), &[Some(ValueRef::Integer(count.cast_signed()))])
}

/// The tags that `top` and `bottom` name, which are columns.
fn tags(select: &Select) -> Result<Vec<String>> {
    for field in &select.fields {
        if let Expr::Call(named) = &field.expr
            && matches!(named.name.as_str(), "top" | "bottom")
            && let Applied::Aggregate(Aggregate::Top(_, tags) | Aggregate::Bottom(_, tags), _) = call::of(named)?
        {
            return Ok(tags);
        }
    }
    Ok(Vec::new())
}

struct Inserter<'i, 'w> {
    target: &'i Target,
    write: &'i mut Write<'w>,
    rows: Rows,
    /// Columns that are tags.
    named: Vec<String>,
    metric: String,
    tags: Vec<(String, String)>,
    columns: Vec<String>,
    count: u64,
}

impl Inserter<'_, '_> {
    fn flush(&mut self) -> Result<()> {
        if self.rows.is_empty() { Ok(()) } else { (self.write)(&mut self.rows) }
    }
}

impl Sink for Inserter<'_, '_> {
    fn series(&mut self, name: &str, tags: &[(&str, &str)], columns: &[String]) -> Result<()> {
        self.metric = self.target.name.clone().unwrap_or_else(|| name.to_owned());
        let tags = tags.iter().filter(|(_, value)| !value.is_empty());
        self.tags = tags.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.columns = columns.iter().skip(1).cloned().collect();
        Ok(())
    }

    fn row(&mut self, time: Option<i64>, cells: &[Cell<'_>]) -> Result<()> {
        let time = time.ok_or_else(|| Error::invalid("a row without a time cannot be written"))?;
        let mut tags = self.tags.clone();
        let mut raw = Vec::with_capacity(64);
        let columns = || self.columns.iter().zip(cells).filter_map(|(name, cell)| Some((name, (*cell)?)));
        for (name, value) in columns().filter(|(name, _)| self.named.contains(name)) {
            if let ValueRef::Text(value) = value {
                tags.push((name.clone(), value.to_owned()));
            }
        }
        for text in std::iter::once(&self.metric).chain(tags.iter().flat_map(|(name, value)| [name, value])) {
            base::put_string(&mut raw, text.as_bytes());
        }
        let mut row = None;
        for (nth, (name, value)) in columns().filter(|(name, _)| !self.named.contains(name)).enumerate() {
            let row = match row {
                Some(row) => row,
                None => match self.rows.row(&raw, |_| Ok((self.metric.clone(), tags.clone()))) {
                    Ok(named) => *row.insert(named),
                    // One that may not be named so any more is no reason not to write the others.
                    Err(Error::Invalid { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                },
            };
            match self.rows.field(row, nth, name.as_bytes(), |_| Ok(name.clone())) {
                Ok(slot) => self.rows.push(slot, time, value),
                Err(Error::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.count += u64::from(row.is_some());
        if self.rows.len() >= BATCH_POINTS { self.flush() } else { Ok(()) }
    }
}
