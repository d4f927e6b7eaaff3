//! Statements that change something, as what has to be done; and what rights statements need.
//!
//! May use: `ast`, `condition`, `show`. Must not know: how changes are carried out.

use super::Env;
use super::ast::{From, Kind, Measurement, Pattern, Select as Selection};
use super::condition::Condition;
use super::continuous::{ContinuousQuery, Schedule};
use super::input::Input;
use super::parse::Statement;
use super::plan::Plan;
use super::show::found;
use super::times::Clock;
use crate::error::{Error, Result};
use crate::select::{Match, Select, TagMatch};
use crate::source::Range;

/// What a statement changes.
#[derive(Debug, Clone)]
pub enum Change {
    /// Makes a database known.
    CreateDatabase(String),
    /// Removes a database with all in it.
    DropDatabase(String),
    /// Removes series; what several of these mean, once.
    DropSeries(Vec<Select>),
    /// Removes points of series.
    Delete(Vec<Select>, Range),
    /// Keeps a continuous query; one of its name that says something else is in the way.
    CreateContinuousQuery(ContinuousQuery),
    /// Forgets a continuous query, if there is one.
    DropContinuousQuery {
        /// The database it belongs to.
        database: String,
        /// Its name there.
        name: String,
    },
}

/// What somebody has to be allowed to do with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Look at what is in it.
    Read,
    /// Change what is in it.
    Write,
    /// Remove it.
    Drop,
}

impl Statement {
    /// Whether it changes anything.
    #[must_use]
    pub fn is_change(&self) -> bool {
        matches!(
            self.kind,
            Kind::CreateDatabase { .. }
                | Kind::DropDatabase { .. }
                | Kind::DropMeasurement { .. }
                | Kind::DropSeries { .. }
                | Kind::Delete { .. }
                | Kind::CreateContinuousQuery(_)
                | Kind::DropContinuousQuery { .. }
        ) || self.is_insert()
    }

    /// The databases it has to do with, and what it does with them; `database` is the one that is meant when none is named. SHOW
    /// DATABASES needs nothing: see [`Env::may_see`].
    #[must_use]
    pub fn needs(&self, database: &str) -> Vec<(String, Need)> {
        let named = |name: &Option<String>| name.clone().unwrap_or_else(|| database.to_owned());
        let from = |from: &[Measurement], own: &Option<String>, need: Need| match from {
            [] => vec![(named(own), need)],
            from => from
                .iter()
                .map(|measurement| (measurement.database.clone().unwrap_or_else(|| named(own)), need))
                .collect(),
        };
        let mut needs = match &self.kind {
            Kind::ShowDatabases | Kind::ShowContinuousQueries => Vec::new(),
            Kind::ShowMeasurements { database, .. } | Kind::ShowRetentionPolicies { database } => {
                vec![(named(database), Need::Read)]
            }
            Kind::ShowTagKeys(show)
            | Kind::ShowFieldKeys(show)
            | Kind::ShowSeries(show)
            | Kind::ShowCardinality { show, .. }
            | Kind::ShowTagValues { show, .. } => from(&show.from, &show.database, Need::Read),
            Kind::CreateDatabase { name } => vec![(name.clone(), Need::Write)],
            Kind::DropDatabase { name } => vec![(name.clone(), Need::Drop)],
            Kind::DropMeasurement { .. } => vec![(database.to_owned(), Need::Write)],
            Kind::DropSeries { from: of, .. } | Kind::Delete { from: of, .. } => from(of, &None, Need::Write),
            Kind::Select(select) => {
                let mut needs = Vec::new();
                read(select, database, &mut needs);
                needs
            }
            Kind::CreateContinuousQuery(query) => {
                let mut needs = vec![(query.database.clone(), Need::Write)];
                read(&query.select, &query.database, &mut needs);
                needs
            }
            Kind::DropContinuousQuery { database, .. } => vec![(database.clone(), Need::Write)],
        };
        needs.sort();
        needs.dedup();
        needs
    }

    /// What it changes; `None` when it reads.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it makes no sense or there is no such database; [`Error::Source`].
    pub fn change(&self, env: &Env<'_>) -> Result<Option<Change>> {
        Ok(Some(match &self.kind {
            Kind::CreateDatabase { name } => Change::CreateDatabase(name.clone()),
            Kind::DropDatabase { name } => Change::DropDatabase(name.clone()),
            Kind::DropMeasurement { name } => {
                let database = env.database(None)?;
                env.check_database(database)?;
                Change::DropSeries(vec![Select::metric(database, name.clone())])
            }
            Kind::DropSeries { from, condition } => {
                let condition = Condition::of(condition.as_ref(), Clock::utc(env.now))?;
                if condition.range != Range::ALL {
                    return Err(Error::invalid("DROP SERIES doesn't support time in WHERE clause"));
                }
                Change::DropSeries(selects(env, from, &condition)?)
            }
            Kind::Delete { from, condition } => {
                let condition = Condition::of(condition.as_ref(), Clock::utc(env.now))?;
                Change::Delete(selects(env, from, &condition)?, condition.range)
            }
            Kind::CreateContinuousQuery(query) => {
                query.check()?;
                let mut needs = vec![(query.database.clone(), Need::Write)];
                read(&query.select, &query.database, &mut needs);
                needs.iter().try_for_each(|(database, _)| env.check_database(database))?;
                // What cannot be planned can never run.
                Plan::of(&query.select, &Input::new(env.source), &[])?;
                let kept = query.kept(env.now);
                // Parentheses that were left out are written: they may make it nest too deeply.
                Schedule::of(&kept)?;
                Change::CreateContinuousQuery(kept)
            }
            Kind::DropContinuousQuery { name, database } => {
                Change::DropContinuousQuery { database: database.clone(), name: name.clone() }
            }
            _ => return Ok(None),
        }))
    }
}

fn read(select: &Selection, database: &str, needs: &mut Vec<(String, Need)>) {
    if let Some(target) = &select.into {
        needs.push((target.database.clone().unwrap_or_else(|| database.to_owned()), Need::Write));
    }
    for from in &select.from {
        match from {
            From::Measurement(measurement) => {
                let name = measurement.database.clone().unwrap_or_else(|| database.to_owned());
                needs.push((name, Need::Read));
            }
            From::Select(inner) => read(inner, database, needs),
        }
    }
}

/// What is deleted is chosen by tags: a field in a condition would mean all or nothing.
fn check_tags(env: &Env<'_>, database: &str, condition: &Condition) -> Result<()> {
    let tags = env.source.tag_names(database)?;
    for name in condition.names().filter(|name| !tags.iter().any(|tag| tag == name)) {
        let field = Some(Match::is(name));
        let fields = Select { database: database.to_owned(), metric: None, field, tags: Vec::new() };
        if !env.source.series(&fields)?.is_empty() {
            return Err(Error::invalid("fields not supported in WHERE clause during deletion"));
        }
    }
    Ok(())
}

fn selects(env: &Env<'_>, from: &[Measurement], condition: &Condition) -> Result<Vec<Select>> {
    let named = from.iter().map(|measurement| measurement.database.as_deref());
    for database in named.chain([None]) {
        check_tags(env, env.database(database)?, condition)?;
    }
    if let Some(rest) = condition.rest(&[]) {
        let names = rest.names();
        if names.contains(&"time") {
            return Err(Error::invalid("time may only stand in a range that holds for all of what is deleted"));
        }
        return exactly(env, from, condition);
    }
    let whole = |metric, database: &str| Select {
        database: database.to_owned(),
        metric,
        field: None,
        tags: condition.tags(&[]),
    };
    let mut all = Vec::new();
    for measurement in from {
        let metric = match &measurement.name {
            Pattern::Is(name) => Match::is(name.clone()),
            Pattern::Regex(regex) => Match::Regex(regex.clone()),
        };
        all.push(whole(Some(metric), env.database(measurement.database.as_deref())?));
    }
    if from.is_empty() {
        all.push(whole(None, env.database(None)?));
    }
    all.iter().try_for_each(|select| env.check_database(&select.database))?;
    Ok(all)
}

/// One selection for each series that is meant: for conditions that are more than a list of conditions on tags.
fn exactly(env: &Env<'_>, from: &[Measurement], condition: &Condition) -> Result<Vec<Select>> {
    let mut all: Vec<Select> = Vec::new();
    for series in found(env, None, from, condition)? {
        let key = &series.key;
        let tags = env.source.tag_names(&key.database)?.into_iter();
        let tags = tags.map(|tag| TagMatch { value: Match::is(key.tag(&tag)), tag }).collect();
        let metric = Some(Match::is(key.metric.clone()));
        all.push(Select { database: key.database.clone(), metric, field: Some(Match::is(key.field.clone())), tags });
    }
    Ok(all)
}
