//! Where the languages get series and points from.
//!
//! May use: `key`, `points`, `rollup`, `select`, what is kept of continuous queries. Must not know: query languages, files.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::Result;
use crate::influxql::ContinuousQuery;
use crate::key::Key;
use crate::points::Points;
use crate::rollup::{Summary, Windows};
use crate::select::{Match, Select};
use crate::value::{Kind, Value};

/// Names a series as long as it is there; a series that was dropped and comes again has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId {
    /// The partition it lies in.
    pub partition: u16,
    /// Its number there.
    pub number: u32,
}

/// A series that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// What to ask for its points by.
    pub id: SeriesId,
    /// Its name.
    pub key: Arc<Key>,
    /// The type of its values; a series of doubles may hold integers too, that are too long for one.
    pub kind: Kind,
}

/// Times from `from` up to and including `to`, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: i64,
    /// The last.
    pub to: i64,
}

impl Range {
    /// Every time.
    pub const ALL: Self = Self { from: i64::MIN, to: i64::MAX };
}

/// What comes in place of points.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// Some points.
    Points(&'a Points),
    /// What is known of all points of a range.
    Summary(&'a Summary),
}

/// Series and points to be asked for. Each call sees whole batches; two calls may see different moments.
pub trait Source {
    /// Asks whether the question goes on. All that is asked of a source, and [`Source::hold`], asks this by itself: for who works
    /// long without either.
    ///
    /// # Errors
    /// [`crate::Error::Late`] when it has taken too long, [`crate::Error::Canceled`] when nobody waits for it any more.
    fn go_on(&self) -> Result<()> {
        Ok(())
    }

    /// Notes that whoever asks holds so many bytes more: points, rows, what is not sent yet. They count until they are given back,
    /// or until the source ends.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] when all questions together may not hold so many: they are not held then; those of
    /// [`Source::go_on`].
    fn hold(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Gives back some of what is held.
    fn give_back(&self, _bytes: u64) {}

    /// The series that are meant, sorted by their keys.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn series(&self, select: &Select) -> Result<Vec<Series>>;

    /// Appends the points of a series in a range to `to`, sorted by time, each time once: what was written last. None of a
    /// series that was dropped.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn points(&self, series: SeriesId, range: Range, to: &mut Points) -> Result<()>;

    /// Tells the points of a series in a range as [`Source::points`] does, or summaries in place of some of them that say the same
    /// of these windows; in the order of time.
    ///
    /// # Errors
    /// [`crate::Error::Source`], and those of `tell`.
    fn pieces(
        &self,
        series: SeriesId,
        range: Range,
        _windows: Windows,
        tell: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut points = Points::new();
        self.points(series, range, &mut points)?;
        if points.is_empty() { Ok(()) } else { tell(Piece::Points(&points)) }
    }

    /// The point with the greatest time.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn last(&self, series: SeriesId) -> Result<Option<(i64, Value)>>;

    /// The databases, sorted: those that have series, and those that were created.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn databases(&self) -> Result<Vec<String>>;

    /// The metrics of a database, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn metrics(&self, database: &str) -> Result<Vec<String>>;

    /// The names of tags in a database, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn tag_names(&self, database: &str) -> Result<Vec<String>>;

    /// The values of all tags in a database, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn tag_values(&self, database: &str) -> Result<Vec<String>>;

    /// The metrics of a database, each with each of its fields, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn fields(&self, database: &str) -> Result<Vec<(String, String)>> {
        let select = Select { database: database.to_owned(), ..Select::default() };
        let all = self.series(&select)?;
        let fields: BTreeSet<_> =
            all.iter().map(|series| (series.key.metric.clone(), series.key.field.clone())).collect();
        Ok(fields.into_iter().collect())
    }

    /// The types that series of a metric's field have, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn kinds(&self, database: &str, metric: &str, field: &str) -> Result<Vec<Kind>> {
        let select = Select { field: Some(Match::is(field)), ..Select::metric(database, metric) };
        let kinds: BTreeSet<Kind> = self.series(&select)?.iter().map(|series| series.kind).collect();
        Ok(kinds.into_iter().collect())
    }

    /// The metrics of a database, each with the name of each tag that some of its series have, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn tags(&self, database: &str) -> Result<Vec<(String, String)>> {
        let select = Select { database: database.to_owned(), ..Select::default() };
        let all = self.series(&select)?;
        let of = |series: &Series| {
            let key = Arc::clone(&series.key);
            let names = key.tags.iter().map(|(name, _)| (key.metric.clone(), name.clone()));
            names.collect::<Vec<_>>()
        };
        let tags: BTreeSet<_> = all.iter().flat_map(of).collect();
        Ok(tags.into_iter().collect())
    }

    /// The values that a tag has in series of a metric, or of all of them, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Source`]; [`crate::Error::Memory`].
    fn values(&self, database: &str, metric: Option<&str>, tag: &str) -> Result<Vec<String>> {
        let metric = metric.map(Match::is);
        let select = Select { database: database.to_owned(), metric, ..Select::default() };
        let all = self.series(&select.and_tag(tag, Match::present()))?;
        let values: BTreeSet<String> = all.iter().map(|series| series.key.tag(tag).to_owned()).collect();
        Ok(values.into_iter().collect())
    }

    /// The continuous queries of all databases, sorted by database and name.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn continuous_queries(&self) -> Result<Vec<ContinuousQuery>> {
        Ok(Vec::new())
    }

    /// How long points of a database are kept; the first policy that fits a metric counts.
    ///
    /// # Errors
    /// [`crate::Error::Source`].
    fn retention(&self, _database: &str) -> Result<Vec<Policy>> {
        Ok(Vec::new())
    }
}

/// The same series, asked for nothing but points: to measure what summaries save, and to see that they change no answer.
pub struct PointsOnly<'a>(pub &'a dyn Source);

impl Source for PointsOnly<'_> {
    fn go_on(&self) -> Result<()> {
        self.0.go_on()
    }

    fn hold(&self, bytes: u64) -> Result<()> {
        self.0.hold(bytes)
    }

    fn give_back(&self, bytes: u64) {
        self.0.give_back(bytes);
    }

    fn series(&self, select: &Select) -> Result<Vec<Series>> {
        self.0.series(select)
    }

    fn points(&self, series: SeriesId, range: Range, to: &mut Points) -> Result<()> {
        self.0.points(series, range, to)
    }

    fn last(&self, series: SeriesId) -> Result<Option<(i64, Value)>> {
        self.0.last(series)
    }

    fn databases(&self) -> Result<Vec<String>> {
        self.0.databases()
    }

    fn metrics(&self, database: &str) -> Result<Vec<String>> {
        self.0.metrics(database)
    }

    fn tag_names(&self, database: &str) -> Result<Vec<String>> {
        self.0.tag_names(database)
    }

    fn tag_values(&self, database: &str) -> Result<Vec<String>> {
        self.0.tag_values(database)
    }

    fn continuous_queries(&self) -> Result<Vec<ContinuousQuery>> {
        self.0.continuous_queries()
    }

    fn retention(&self, database: &str) -> Result<Vec<Policy>> {
        self.0.retention(database)
    }
}

/// How long points of some metrics are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The metric; `*` stands for any characters.
    pub metric: String,
    /// How long, in nanoseconds.
    pub keep: i64,
}
