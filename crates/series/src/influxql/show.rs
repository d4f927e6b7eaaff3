//! SHOW: what there is in a database.
//!
//! May use: `input`, `filter`, `answer`. Must not know: points, but for their types.

use std::collections::BTreeSet;

use super::Env;
use super::answer::Sink;
use super::ast::{Expr, Kind, Measurement, Page, Pattern, Show, Wanted};
use super::cardinality::cardinality;
use super::condition::Condition;
use super::filter::{Filter, Kept};
use super::input::{Input, Member};
use super::names;
use super::print::POLICY;
use super::times::Clock;
use crate::error::Result;
use crate::select::{Match, Select};
use crate::source::{Policy, Range, Series, Source};
use crate::value::ValueRef;

/// One answer of a SHOW statement with its pages.
struct Out<'s> {
    sink: &'s mut dyn Sink,
    page: Page,
    series: usize,
}

impl Out<'_> {
    /// Sends a series of rows of texts, if it has any and is on the page.
    fn send(&mut self, name: &str, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<()> {
        let Page { limit, offset, series_limit, series_offset } = self.page;
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut rows = rows.skip(offset).take(limit).peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        self.series += 1;
        if self.series <= series_offset || (series_limit > 0 && self.series - series_offset > series_limit) {
            return Ok(());
        }
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        self.sink.series(name, &[], &columns)?;
        for row in rows {
            let cells: Vec<_> = row.iter().map(|text| Some(ValueRef::Text(text))).collect();
            self.sink.row(None, &cells)?;
        }
        Ok(())
    }
}

/// The series of a database, by what FROM and WHERE say of metrics and tags.
pub(crate) fn found(
    env: &Env<'_>,
    database: Option<&str>,
    from: &[Measurement],
    condition: &Condition,
) -> Result<Vec<Series>> {
    let everything = [None];
    let wanted: Vec<Option<&Measurement>> = from.iter().map(Some).collect();
    let rest = condition.rest(&[]);
    // Without members: to SHOW, every name is that of a tag.
    let input = Input::new(env.source);
    let filter = Filter::new(rest.as_ref(), &input)?;
    let mut all = Vec::new();
    for measurement in if from.is_empty() { &everything[..] } else { &wanted } {
        let named = measurement.and_then(|measurement| measurement.database.as_deref());
        let database = env.database(named.or(database))?;
        let metric = measurement.map(|measurement| match &measurement.name {
            Pattern::Is(name) => Match::is(name.clone()),
            Pattern::Regex(regex) => Match::Regex(regex.clone()),
        });
        let select = Select { database: database.to_owned(), metric, field: None, tags: condition.tags(&[]) };
        let found = env.source.series(&select)?;
        if found.is_empty() {
            env.check_database(database)?;
        }
        for series in found {
            let member = Member { key: series.key.clone(), fields: Vec::new() };
            if rest.is_none() || !matches!(filter.of(&input, &member, Range::ALL)?, Kept::Nothing) {
                all.push(series);
            }
        }
    }
    Ok(all)
}

/// The series that a statement means.
pub(super) fn series(env: &Env<'_>, show: &Show) -> Result<Vec<Series>> {
    let condition = Condition::of(show.condition.as_ref(), Clock::utc(env.now))?;
    found(env, show.database.as_deref(), &show.from, &condition)
}

/// Answers a statement, if it is one of these.
pub(crate) fn show(env: &Env<'_>, kind: &Kind, sink: &mut dyn Sink) -> Result<()> {
    let out = |sink, page| Out { sink, page, series: 0 };
    match kind {
        Kind::ShowDatabases => databases(env, sink),
        Kind::ShowMeasurements { database, wanted, condition, page } => {
            let names = measurements(env, database.as_deref(), wanted.as_ref(), condition.as_ref())?;
            out(sink, *page).send("measurements", &["name"], names.into_iter().map(|name| vec![name]))
        }
        Kind::ShowTagKeys(show) => {
            let mut out = out(sink, show.page);
            names::tag_keys(env, show)?
                .into_iter()
                .try_for_each(|(metric, keys)| out.send(&metric, &["tagKey"], keys.into_iter().map(|key| vec![key])))
        }
        Kind::ShowTagValues { show, keys } => tag_values(env, show, keys, &mut out(sink, show.page)),
        Kind::ShowFieldKeys(show) => field_keys(env, show, &mut out(sink, show.page)),
        Kind::ShowSeries(show) => {
            let keys: BTreeSet<String> = series(env, show)?.iter().map(written).collect();
            out(sink, show.page).send("", &["key"], keys.into_iter().map(|key| vec![key]))
        }
        Kind::ShowRetentionPolicies { database } => policies(env, database.as_deref(), sink),
        Kind::ShowCardinality { of, precision, show, keys } => {
            cardinality(env, (*of, *precision), show, keys.as_ref(), sink)
        }
        Kind::ShowContinuousQueries => continuous_queries(env, sink),
        _ => Ok(()),
    }
}

fn databases(env: &Env<'_>, sink: &mut dyn Sink) -> Result<()> {
    sink.series("databases", &[], &["name".to_owned()])?;
    for name in env.source.databases()? {
        if (env.may_see)(&name) {
            sink.row(None, &[Some(ValueRef::Text(&name))])?;
        }
    }
    Ok(())
}

fn continuous_queries(env: &Env<'_>, sink: &mut dyn Sink) -> Result<()> {
    let queries = env.source.continuous_queries()?;
    for database in env.source.databases()?.iter().filter(|database| (env.may_see)(database)) {
        sink.series(database, &[], &["name", "query"].map(str::to_owned))?;
        for query in queries.iter().filter(|query| query.database == *database) {
            sink.row(None, &[Some(ValueRef::Text(&query.name)), Some(ValueRef::Text(&query.text))])?;
        }
    }
    Ok(())
}

fn measurements(
    env: &Env<'_>,
    database: Option<&str>,
    wanted: Option<&Wanted>,
    condition: Option<&Expr>,
) -> Result<Vec<String>> {
    let mut names = if condition.is_some() {
        let condition = Condition::of(condition, Clock::utc(env.now))?;
        let names: BTreeSet<String> =
            found(env, database, &[], &condition)?.iter().map(|series| series.key.metric.clone()).collect();
        names.into_iter().collect()
    } else {
        // Of a database that is not there InfluxDB says nothing here, unlike elsewhere.
        env.source.metrics(env.database(database)?)?
    };
    names.retain(|name| wanted.is_none_or(|wanted| wanted.matches(name)));
    Ok(names)
}

fn tag_values(env: &Env<'_>, show: &Show, keys: &Wanted, out: &mut Out<'_>) -> Result<()> {
    names::tag_values(env, show, keys)?.into_iter().try_for_each(|(metric, values)| {
        out.send(&metric, &["key", "value"], values.into_iter().map(|(key, value)| vec![key, value]))
    })
}

fn field_keys(env: &Env<'_>, show: &Show, out: &mut Out<'_>) -> Result<()> {
    names::field_keys(env, show)?.into_iter().try_for_each(|(metric, kinds)| {
        let rows = kinds.into_iter().map(|(field, kind)| vec![field, kind.to_owned()]);
        out.send(&metric, &["fieldKey", "fieldType"], rows)
    })
}

/// Whether clients may name this retention policy: one that SHOW RETENTION POLICIES lists, or none.
///
/// # Errors
/// What the source says.
pub fn has_policy(source: &dyn Source, database: &str, name: &str) -> Result<bool> {
    let is_it = |policy: &Policy| policy.metric == name;
    Ok(matches!(name, "" | POLICY) || policies_of(source, database)?.iter().any(is_it))
}

/// What is configured for a database, the policy for all measurements first.
fn policies_of(source: &dyn Source, database: &str) -> Result<Vec<Policy>> {
    let mut policies = source.retention(database)?;
    // The first that fits counts: behind one for everything nothing does.
    let general = policies.iter().position(|policy| policy.metric == "*");
    let keep = general.and_then(|at| policies.get(at)).map_or(0, |policy| policy.keep);
    policies.truncate(general.unwrap_or(policies.len()));
    policies.insert(0, Policy { metric: POLICY.to_owned(), keep });
    Ok(policies)
}

/// The retention that is configured, in InfluxDB's form: what holds for all measurements as `autogen`, and what holds for some as
/// policies with their patterns for names.
fn policies(env: &Env<'_>, database: Option<&str>, sink: &mut dyn Sink) -> Result<()> {
    let database = env.database(database)?;
    env.check_database(database)?;
    let columns = ["name", "duration", "shardGroupDuration", "replicaN", "default"].map(str::to_owned);
    sink.series("", &[], &columns)?;
    let policies = policies_of(env.source, database)?;
    for (at, Policy { metric, keep }) in policies.iter().enumerate() {
        let (duration, group) = (hours(*keep), hours(shard(*keep)));
        let texts = [metric, &duration, &group].map(|text| Some(ValueRef::Text(text)));
        let [name, duration, group] = texts;
        let is_default = Some(ValueRef::Boolean(at == 0));
        sink.row(None, &[name, duration, group, Some(ValueRef::Integer(1)), is_default])?;
    }
    Ok(())
}

/// A length of time as Go shows it.
fn hours(nanos: i64) -> String {
    let seconds = nanos / 1_000_000_000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// How long InfluxDB would make a shard of points that are kept so long. There are none here; clients expect the column.
fn shard(keep: i64) -> i64 {
    const HOUR: i64 = 3_600_000_000_000;
    match keep / HOUR {
        0 => 168 * HOUR,
        1..48 => HOUR,
        48..4320 => 24 * HOUR,
        _ => 168 * HOUR,
    }
}

/// A series as line protocol writes it.
fn written(series: &Series) -> String {
    let mut text = String::new();
    let mut add = |part: &str, escaped: &[char]| {
        for char in part.chars() {
            if escaped.contains(&char) {
                text.push('\\');
            }
            text.push(char);
        }
    };
    add(&series.key.metric, &[',', ' ']);
    for (name, value) in &series.key.tags {
        add(",", &[]);
        add(name, &[',', ' ', '=']);
        add("=", &[]);
        add(value, &[',', ' ', '=']);
    }
    text
}
