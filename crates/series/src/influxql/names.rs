//! The names of a database's fields and tags, and the values of these, by measurement.
//!
//! Without a condition they are read from the index, in time for what there is of them; with one, from the series that it means.
//!
//! May use: `show`, `source`. Must not know: answers, points.

use std::collections::{BTreeMap, BTreeSet};

use super::Env;
use super::ast::{Measurement, Pattern, Show, Wanted};
use super::show::series;
use crate::error::Result;

/// Something of each measurement.
pub(super) type ByMeasurement<T> = BTreeMap<String, BTreeSet<T>>;

fn is_meant(measurement: Option<&Measurement>, metric: &str) -> bool {
    measurement.is_none_or(|measurement| match &measurement.name {
        Pattern::Is(name) => name == metric,
        Pattern::Regex(regex) => regex.is_match(metric),
    })
}

/// Calls for each name of the measurements of a statement without a condition: with database, measurement and name. `list` says what there is.
fn each(
    env: &Env<'_>,
    show: &Show,
    list: impl Fn(&str) -> Result<Vec<(String, String)>>,
    mut add: impl FnMut(&str, String, String) -> Result<()>,
) -> Result<()> {
    let everything = [None];
    let wanted: Vec<Option<&Measurement>> = show.from.iter().map(Some).collect();
    for measurement in if show.from.is_empty() { &everything[..] } else { &wanted } {
        let named = measurement.and_then(|measurement| measurement.database.as_deref());
        let database = env.database(named.or(show.database.as_deref()))?;
        let metrics = env.source.metrics(database)?;
        if !metrics.iter().any(|metric| is_meant(*measurement, metric)) {
            env.check_database(database)?;
            continue;
        }
        for (metric, name) in list(database)? {
            if is_meant(*measurement, &metric) {
                add(database, metric, name)?;
            }
        }
    }
    Ok(())
}

/// The fields, with each type that they have.
pub(super) fn field_keys(env: &Env<'_>, show: &Show) -> Result<ByMeasurement<(String, &'static str)>> {
    let mut found = ByMeasurement::new();
    if show.condition.is_some() {
        for series in series(env, show)? {
            let known: &mut BTreeSet<_> = found.entry(series.key.metric.clone()).or_default();
            known.insert((series.key.field.clone(), series.kind.name()));
        }
        return Ok(found);
    }
    each(
        env,
        show,
        |database| env.source.fields(database),
        |database, metric, field| {
            let kinds = env.source.kinds(database, &metric, &field)?;
            let kinds = kinds.into_iter().map(|kind| (field.clone(), kind.name()));
            found.entry(metric).or_default().extend(kinds);
            Ok(())
        },
    )?;
    Ok(found)
}

/// The names of tags.
pub(super) fn tag_keys(env: &Env<'_>, show: &Show) -> Result<ByMeasurement<String>> {
    let mut found = ByMeasurement::new();
    if show.condition.is_some() {
        for series in series(env, show)? {
            let known: &mut BTreeSet<_> = found.entry(series.key.metric.clone()).or_default();
            known.extend(series.key.tags.iter().map(|(name, _)| name.clone()));
        }
        return Ok(found);
    }
    each(
        env,
        show,
        |database| env.source.tags(database),
        |_, metric, tag| {
            found.entry(metric).or_default().insert(tag);
            Ok(())
        },
    )?;
    Ok(found)
}

/// The names of some tags, with each value that they have.
pub(super) fn tag_values(env: &Env<'_>, show: &Show, keys: &Wanted) -> Result<ByMeasurement<(String, String)>> {
    let mut found: ByMeasurement<(String, String)> = ByMeasurement::new();
    if show.condition.is_some() {
        for series in series(env, show)? {
            for tag in series.key.tags.iter().filter(|(name, _)| keys.matches(name)) {
                if !found.get(&series.key.metric).is_some_and(|known| known.contains(tag)) {
                    found.entry(series.key.metric.clone()).or_default().insert(tag.clone());
                }
            }
        }
        return Ok(found);
    }
    each(
        env,
        show,
        |database| env.source.tags(database),
        |database, metric, tag| {
            if keys.matches(&tag) {
                let values = env.source.values(database, Some(&metric), &tag)?;
                let values = values.into_iter().map(|value| (tag.clone(), value));
                found.entry(metric).or_default().extend(values);
            }
            Ok(())
        },
    )?;
    Ok(found)
}
