//! A source that is obviously right, for tests: maps in memory.
//!
//! May use: `source`. Must not know: how series are stored.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::points::Points;
use crate::select::Select;
use crate::source::{Range, Series, SeriesId, Source};
use crate::value::{Kind, Value};

/// All points, by series and time.
#[derive(Debug, Default, Clone)]
pub(crate) struct Model {
    series: BTreeMap<Key, (u32, BTreeMap<i64, Value>)>,
    next: u32,
}

impl Model {
    /// Writes a point; `tags` in any order.
    pub(crate) fn write(&mut self, key: &Key, time: i64, value: Value) {
        let next = &mut self.next;
        let (_, points) = self.series.entry(key.clone()).or_insert_with(|| {
            *next += 1;
            (*next, BTreeMap::new())
        });
        points.insert(time, value);
    }

    /// Writes doubles to a metric of the database `default`, with tags as `a=1,b=2`, times in seconds.
    pub(crate) fn put(&mut self, metric: &str, tags: &str, points: &[(i64, f64)]) {
        let key = key("default", metric, tags, crate::FIELD_DEFAULT);
        for (seconds, value) in points {
            self.write(&key, seconds * 1_000_000_000, Value::Float(*value));
        }
    }

    fn find(&self, id: SeriesId) -> Option<&BTreeMap<i64, Value>> {
        self.series.values().find(|(number, _)| *number == id.number).map(|(_, points)| points)
    }
}

/// A model of which questions may hold only so many bytes.
pub(crate) struct Bounded<'a> {
    pub(crate) model: &'a Model,
    pub(crate) limit: u64,
    held: Cell<u64>,
    most: Cell<u64>,
    read: Cell<usize>,
    asked: Cell<usize>,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(model: &'a Model, limit: u64) -> Self {
        Self { model, limit, held: Cell::new(0), most: Cell::new(0), read: Cell::new(0), asked: Cell::new(0) }
    }

    /// The most that was held at a time.
    pub(crate) fn most(&self) -> u64 {
        self.most.get()
    }

    /// How often somebody asked whether to go on.
    pub(crate) fn asked(&self) -> usize {
        self.asked.get()
    }

    /// How many points were read.
    pub(crate) fn read(&self) -> usize {
        self.read.get()
    }
}

impl Source for Bounded<'_> {
    fn go_on(&self) -> Result<()> {
        self.asked.set(self.asked.get() + 1);
        Ok(())
    }

    fn hold(&self, bytes: u64) -> Result<()> {
        let (held, limit) = (self.held.get(), self.limit);
        if held + bytes > limit {
            return Err(Error::Memory { wanted: bytes, held, limit });
        }
        self.held.set(held + bytes);
        self.most.set(self.most.get().max(held + bytes));
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.held.set(self.held.get().checked_sub(bytes).expect("no more than was held"));
    }

    fn series(&self, select: &Select) -> Result<Vec<Series>> {
        self.model.series(select)
    }

    fn points(&self, series: SeriesId, range: Range, to: &mut Points) -> Result<()> {
        let before = to.len();
        self.model.points(series, range, to)?;
        self.read.set(self.read.get() + to.len() - before);
        Ok(())
    }

    fn last(&self, series: SeriesId) -> Result<Option<(i64, Value)>> {
        self.model.last(series)
    }

    fn databases(&self) -> Result<Vec<String>> {
        self.model.databases()
    }

    fn metrics(&self, database: &str) -> Result<Vec<String>> {
        self.model.metrics(database)
    }

    fn tag_names(&self, database: &str) -> Result<Vec<String>> {
        self.model.tag_names(database)
    }

    fn tag_values(&self, database: &str) -> Result<Vec<String>> {
        self.model.tag_values(database)
    }
}

/// A key, with tags as `a=1,b=2`.
pub(crate) fn key(database: &str, metric: &str, tags: &str, field: &str) -> Key {
    let mut tags: Vec<(String, String)> = tags
        .split(',')
        .filter_map(|tag| tag.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    tags.sort();
    Key { database: database.to_owned(), metric: metric.to_owned(), tags, field: field.to_owned() }
}

impl Source for Model {
    fn series(&self, select: &Select) -> Result<Vec<Series>> {
        let meant = self.series.iter().filter(|(key, _)| select.matches(key));
        Ok(meant
            .map(|(key, (number, points))| Series {
                id: SeriesId { partition: 0, number: *number },
                key: Arc::new(key.clone()),
                kind: points.values().next().map_or(Kind::Float, |value| value.as_ref().kind()),
            })
            .collect())
    }

    fn points(&self, series: SeriesId, range: Range, to: &mut Points) -> Result<()> {
        for (time, value) in self.find(series).into_iter().flat_map(|points| points.range(range.from..=range.to)) {
            to.push(*time, value.as_ref());
        }
        Ok(())
    }

    fn last(&self, series: SeriesId) -> Result<Option<(i64, Value)>> {
        let last = self.find(series).and_then(|points| points.last_key_value());
        Ok(last.map(|(time, value)| (*time, value.clone())))
    }

    fn databases(&self) -> Result<Vec<String>> {
        let all: BTreeSet<&String> = self.series.keys().map(|key| &key.database).collect();
        Ok(all.into_iter().cloned().collect())
    }

    fn metrics(&self, database: &str) -> Result<Vec<String>> {
        let mine = self.series.keys().filter(|key| key.database == database);
        let all: BTreeSet<&String> = mine.map(|key| &key.metric).collect();
        Ok(all.into_iter().cloned().collect())
    }

    fn tag_names(&self, database: &str) -> Result<Vec<String>> {
        let mine = self.series.keys().filter(|key| key.database == database);
        let all: BTreeSet<&String> = mine.flat_map(|key| key.tags.iter().map(|(name, _)| name)).collect();
        Ok(all.into_iter().cloned().collect())
    }

    fn tag_values(&self, database: &str) -> Result<Vec<String>> {
        let mine = self.series.keys().filter(|key| key.database == database);
        let all: BTreeSet<&String> = mine.flat_map(|key| key.tags.iter().map(|(_, value)| value)).collect();
        Ok(all.into_iter().cloned().collect())
    }
}
