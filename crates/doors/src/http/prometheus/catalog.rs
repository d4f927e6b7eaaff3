//! What there is: labels, their values, series, and how many of them.
//!
//! With selectors, `start` leaves series out whose last point is before it; without, everything that was ever written is listed,
//! from the index. `end` is not looked at: what was written first is not at hand.
//!
//! May use: `params`, `json`. Must not know: points.

use std::collections::BTreeSet;

use axum::response::Response;
use holdfast::Store;
use holdfast::series::promql::{Labels, NAME, Selector};
use holdfast::series::{Reader, Source, Stop};

use super::escaped::unescaped;
use super::json;
use super::params::{Params, selectors};
use super::refusal::Refusal;
use crate::http::handle::{Asked, JSON, with_type};

/// Entries of each list of the cardinality page.
const TOP: usize = 10;
const TOP_MAX: usize = 10_000;

/// Series that are asked about.
struct Wanted {
    database: String,
    matches: Vec<String>,
    since: i64,
    limit: Option<usize>,
}

impl Wanted {
    fn of(params: &Params, database: String) -> Result<Self, Refusal> {
        let since = params.range()?.map_or(i64::MIN, |range| range.from);
        Ok(Self { database, matches: params.matches()?, since, limit: params.limit()? })
    }

    /// Their labels, each once.
    fn found(&self, reader: &Reader) -> Result<BTreeSet<Labels>, Refusal> {
        let mut all = BTreeSet::new();
        for selector in selectors(&self.matches)? {
            all.extend(selector.labels(reader, &self.database, self.since)?);
        }
        Ok(all)
    }

    /// The names of labels. Those of all series are read from the index.
    fn names(&self, reader: &Reader) -> Result<BTreeSet<String>, Refusal> {
        if !self.matches.is_empty() {
            let found = self.found(reader)?;
            return Ok(found.iter().flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned())).collect());
        }
        let mut names = BTreeSet::from_iter(reader.tag_names(&self.database)?);
        if !reader.metrics(&self.database)?.is_empty() {
            names.insert(NAME.to_owned());
        }
        Ok(names)
    }

    /// The values of a label. Those of all series are read from the index.
    fn values(&self, reader: &Reader, name: &str) -> Result<BTreeSet<String>, Refusal> {
        let found = match (self.matches.is_empty(), name) {
            (false, _) => self.found(reader)?,
            (true, NAME) => return Ok(Selector::names(reader, &self.database)?),
            (true, _) => return Ok(reader.values(&self.database, None, name)?.into_iter().collect()),
        };
        Ok(found.iter().map(|labels| labels.get(name).to_owned()).filter(|value| !value.is_empty()).collect())
    }
}

pub(super) async fn labels(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let wanted = Wanted::of(params, database)?;
    let list = move |store: &Store, stop: Stop| {
        let reader = store.series().reader().until(stop);
        let names = wanted.names(&reader)?;
        reader.settle()?;
        Ok::<_, Refusal>(json::texts(&Vec::from_iter(names), wanted.limit))
    };
    Ok(with_type(JSON, asked.question(list).await??))
}

pub(super) async fn values(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let wanted = Wanted::of(params, database)?;
    let name = std::str::from_utf8(asked.captured(0)).map_err(|_| Refusal::bad("the label's name is no UTF-8"))?;
    let name = unescaped(name);
    let list = move |store: &Store, stop: Stop| {
        let reader = store.series().reader().until(stop);
        let values = wanted.values(&reader, &name)?;
        reader.settle()?;
        Ok::<_, Refusal>(json::texts(&Vec::from_iter(values), wanted.limit))
    };
    Ok(with_type(JSON, asked.question(list).await??))
}

pub(super) async fn series(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let wanted = Wanted::of(params, database)?;
    if wanted.matches.is_empty() {
        return Err(Refusal::bad("no match[] parameter provided"));
    }
    let list = move |store: &Store, stop: Stop| {
        let reader = store.series().reader().until(stop);
        let found = Vec::from_iter(wanted.found(&reader)?);
        reader.settle()?;
        Ok::<_, Refusal>(json::all_labels(&found, wanted.limit))
    };
    Ok(with_type(JSON, asked.question(list).await??))
}

pub(super) async fn cardinality(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let top = params.limit()?.unwrap_or(TOP).min(TOP_MAX);
    let count = move |store: &Store, stop: Stop| {
        let reader = store.series().reader().until(stop);
        let found = reader.cardinality(&database)?;
        reader.settle()?;
        Ok::<_, Refusal>(json::cardinality(&found, top))
    };
    Ok(with_type(JSON, asked.question(count).await??))
}
