//! What there is: labels, their values, series, and how many of them.
//!
//! `start` leaves series out whose last point is before it. `end` is not looked at: what was written first is not at hand.
//!
//! May use: `params`, `json`. Must not know: points.

use std::collections::BTreeSet;

use axum::response::Response;
use holdfast::Store;
use holdfast::series::promql::{Labels, NAME, Selector};

use super::json;
use super::params::Params;
use super::refusal::Refusal;
use crate::http::handle::{Asked, JSON, with_type};

/// Entries of each list of the cardinality page.
const TOP: usize = 10;
const TOP_MAX: usize = 10_000;

/// Series that are asked about.
struct Wanted {
    database: String,
    selectors: Vec<Selector>,
    since: i64,
    limit: Option<usize>,
}

impl Wanted {
    fn of(params: &Params, database: String) -> Result<Self, Refusal> {
        let since = params.range()?.map_or(i64::MIN, |range| range.from);
        Ok(Self { database, selectors: params.selectors()?, since, limit: params.limit()? })
    }

    /// Their labels, each once.
    fn found(&self, store: &Store) -> Result<BTreeSet<Labels>, Refusal> {
        let reader = store.series().reader();
        let mut all = BTreeSet::new();
        for selector in &self.selectors {
            all.extend(selector.labels(&reader, &self.database, self.since)?);
        }
        reader.settle()?;
        Ok(all)
    }
}

pub(super) async fn labels(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let mut wanted = Wanted::of(params, database)?;
    if wanted.selectors.is_empty() {
        wanted.selectors.push(Selector::having(NAME));
    }
    let list = move |store: &Store| {
        let names: BTreeSet<String> =
            wanted.found(store)?.iter().flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned())).collect();
        Ok::<_, Refusal>(json::texts(&Vec::from_iter(names), wanted.limit))
    };
    Ok(with_type(JSON, asked.shared.ask(list).await??))
}

pub(super) async fn values(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let mut wanted = Wanted::of(params, database)?;
    let name = std::str::from_utf8(asked.captured(0)).map_err(|_| Refusal::bad("the label's name is no UTF-8"))?;
    let name = name.to_owned();
    if wanted.selectors.is_empty() {
        wanted.selectors.push(Selector::having(&name));
    }
    let list = move |store: &Store| {
        let values: BTreeSet<String> = wanted
            .found(store)?
            .iter()
            .map(|labels| labels.get(&name).to_owned())
            .filter(|value| !value.is_empty())
            .collect();
        Ok::<_, Refusal>(json::texts(&Vec::from_iter(values), wanted.limit))
    };
    Ok(with_type(JSON, asked.shared.ask(list).await??))
}

pub(super) async fn series(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let wanted = Wanted::of(params, database)?;
    if wanted.selectors.is_empty() {
        return Err(Refusal::bad("no match[] parameter provided"));
    }
    let list = move |store: &Store| {
        let found = Vec::from_iter(wanted.found(store)?);
        Ok::<_, Refusal>(json::all_labels(&found, wanted.limit))
    };
    Ok(with_type(JSON, asked.shared.ask(list).await??))
}

pub(super) async fn cardinality(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let top = params.limit()?.unwrap_or(TOP).min(TOP_MAX);
    let count = move |store: &Store| {
        let reader = store.series().reader();
        let found = reader.cardinality(&database)?;
        reader.settle()?;
        Ok::<_, Refusal>(json::cardinality(&found, top))
    };
    Ok(with_type(JSON, asked.shared.ask(count).await??))
}
