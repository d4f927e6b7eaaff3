//! Statements.
//!
//! May use: `words`, `parse_select`, `ast`. Must not know: what there is in a database.

use jiff::tz::TimeZone;

use super::ast::{Continuous, Counted, Kind, Precision, Show, Wanted};
use super::lexer::Token;
use super::parse_select::{Into, condition, from, order, page, select};
use super::print::{self, POLICY};
use super::words::{Parameters, Words};
use crate::error::{Error, Result};

/// Statements in one request.
const STATEMENTS_MAX: usize = 1000;

/// One statement of InfluxQL.
#[derive(Debug, Clone)]
pub struct Statement {
    pub(crate) kind: Kind,
    text: String,
}

impl Statement {
    /// One that nobody said.
    pub(crate) fn of(kind: Kind) -> Self {
        Self { kind, text: String::new() }
    }

    /// The zone that it is answered in; `None` for UTC.
    pub(crate) fn zone(&self) -> Option<&TimeZone> {
        match &self.kind {
            Kind::Select(select) => select.zone.as_ref(),
            _ => None,
        }
    }

    /// How it was said.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Reads statements with semicolons between them.
///
/// # Errors
/// [`Error::Invalid`] with the place where it is wrong, in InfluxDB's words; [`Error::Limit`] when it is too long.
pub fn parse(text: &str, parameters: &Parameters) -> Result<Vec<Statement>> {
    let mut words = Words::new(text, parameters)?;
    let mut statements = Vec::new();
    loop {
        while words.takes_sign(";")? {}
        if *words.peek()? == Token::End {
            return Ok(statements);
        }
        if statements.len() == STATEMENTS_MAX {
            let limit = STATEMENTS_MAX as u64;
            return Err(Error::Limit { what: "the number of statements", actual: limit + 1, limit });
        }
        let start = words.position();
        let kind = statement(&mut words)?;
        let end = words.position();
        if !matches!(words.peek()?, Token::End | Token::Sign(";")) {
            return Err(words.expected(";"));
        }
        let said = text.get(start..end).unwrap_or_default().trim_end().to_owned();
        statements.push(Statement { kind, text: said });
    }
}

fn statement(words: &mut Words<'_>) -> Result<Kind> {
    let first = ["SELECT", "DELETE", "SHOW", "CREATE", "DROP", "EXPLAIN", "GRANT", "REVOKE", "ALTER", "SET", "KILL"];
    match words.take_one(&first)? {
        "SELECT" => select(words, 0, Into::May).map(|select| Kind::Select(Box::new(select))),
        "SHOW" => show(words),
        "CREATE" => create(words),
        "DROP" => drop(words),
        other @ ("EXPLAIN" | "GRANT" | "REVOKE" | "ALTER" | "SET" | "KILL") => {
            configured(words)?;
            Err(words.error(&format!("{other} is not supported")))
        }
        _ => {
            let kind = Kind::Delete { from: from(words)?, condition: condition(words)? };
            match &kind {
                Kind::Delete { from, condition: None } if from.is_empty() => Err(words.expected("FROM, WHERE")),
                _ => Ok(kind),
            }
        }
    }
}

/// # Errors
/// When what comes next is no matter of statements here.
fn configured(words: &mut Words<'_>) -> Result<()> {
    for (word, advice) in [
        (
            "RETENTION",
            "retention policies are configured, as [[series.retention]] of the server, and not made by statements",
        ),
        ("USER", "users are configured, as [[users]] of the server, and not made by statements"),
    ] {
        if matches!(words.peek()?, Token::Word(found) if found.eq_ignore_ascii_case(word)) {
            return Err(words.error(advice));
        }
    }
    Ok(())
}

fn create(words: &mut Words<'_>) -> Result<Kind> {
    configured(words)?;
    if words.take_one(&["CONTINUOUS", "DATABASE"])? == "CONTINUOUS" {
        return continuous(words).map(|query| Kind::CreateContinuousQuery(Box::new(query)));
    }
    let name = words.name()?;
    if words.takes("WITH")? {
        policy(words)?;
    }
    Ok(Kind::CreateDatabase { name })
}

/// What comes after `CREATE DATABASE .. WITH`: it may say what there is anyway.
///
/// # Errors
/// When it asks for points to be kept otherwise than they are, which nobody would notice until they are missing.
fn policy(words: &mut Words<'_>) -> Result<()> {
    while !matches!(words.peek()?, Token::End | Token::Sign(";")) {
        match words.take_one(&["DURATION", "REPLICATION", "SHARD", "NAME"])? {
            // Shards and replicas have no counterpart here, and nothing depends on them.
            "REPLICATION" => {
                words.count()?;
            }
            "SHARD" => {
                words.take("DURATION")?;
                words.next()?;
            }
            "NAME" => {
                let is_it = matches!(words.peek()?, Token::Word(name) | Token::Quoted(name) if name == POLICY);
                if !is_it {
                    let text = format!("there is one retention policy, {POLICY}: leave NAME out");
                    return Err(words.error(&text));
                }
                words.next()?;
            }
            _ => {
                let is_endless = match words.peek()? {
                    Token::Duration(nanos) => *nanos == 0,
                    Token::Word(word) => word.eq_ignore_ascii_case("INF"),
                    _ => return Err(words.expected("duration")),
                };
                if !is_endless {
                    return Err(words.error(
                        "how long points are kept is configured, as [[series.retention]] of the server, and not by statements: leave \
                         DURATION out",
                    ));
                }
                words.next()?;
            }
        }
    }
    Ok(())
}

/// What comes after `CREATE CONTINUOUS`.
fn continuous(words: &mut Words<'_>) -> Result<Continuous> {
    words.take("QUERY")?;
    let name = words.name()?;
    words.take("ON")?;
    let database = words.name()?;
    let (mut every, mut span) = (None, None);
    if words.takes("RESAMPLE")? {
        if words.takes("EVERY")? {
            every = Some(duration(words)?);
        }
        if words.takes("FOR")? {
            span = Some(duration(words)?);
        }
        if every.is_none() && span.is_none() {
            return Err(words.expected("EVERY, FOR"));
        }
    }
    words.take("BEGIN")?;
    words.take("SELECT")?;
    let select = select(words, 0, Into::Must)?;
    let Some(interval) = select.every.as_ref().map(|every| every.length) else {
        return Err(words.expected_instead("GROUP BY time(...)"));
    };
    words.take("END")?;
    let least = every.unwrap_or(0).max(interval);
    if let Some(span) = span.filter(|span| *span < least) {
        let [least, span] = [least, span].map(print::duration);
        let text = format!("FOR duration must be >= GROUP BY time duration: must be a minimum of {least}, got {span}");
        return Err(Error::invalid(format!("error parsing query: {text}")));
    }
    Ok(Continuous { name, database, every, span, select })
}

fn duration(words: &mut Words<'_>) -> Result<i64> {
    match *words.peek()? {
        Token::Duration(length) if length > 0 => words.next().map(|_| length),
        _ => Err(words.expected("duration")),
    }
}

fn drop(words: &mut Words<'_>) -> Result<Kind> {
    configured(words)?;
    match words.take_one(&["CONTINUOUS", "DATABASE", "MEASUREMENT", "SERIES"])? {
        "CONTINUOUS" => {
            words.take("QUERY")?;
            let name = words.name()?;
            words.take("ON")?;
            Ok(Kind::DropContinuousQuery { name, database: words.name()? })
        }
        "DATABASE" => Ok(Kind::DropDatabase { name: words.name()? }),
        "MEASUREMENT" => Ok(Kind::DropMeasurement { name: words.name()? }),
        _ => {
            let (from, condition) = (from(words)?, condition(words)?);
            if from.is_empty() && condition.is_none() {
                return Err(words.expected("FROM, WHERE"));
            }
            Ok(Kind::DropSeries { from, condition })
        }
    }
}

fn on(words: &mut Words<'_>) -> Result<Option<String>> {
    if words.takes("ON")? { words.name().map(Some) } else { Ok(None) }
}

fn show(words: &mut Words<'_>) -> Result<Kind> {
    let first = ["CONTINUOUS", "DATABASES", "FIELD", "MEASUREMENT", "MEASUREMENTS", "RETENTION", "SERIES", "TAG"];
    match words.take_one(&first)? {
        "DATABASES" => Ok(Kind::ShowDatabases),
        "CONTINUOUS" => {
            words.take("QUERIES")?;
            Ok(Kind::ShowContinuousQueries)
        }
        "MEASUREMENT" => cardinality(words, Counted::Measurements),
        "MEASUREMENTS" => {
            let database = on(words)?;
            let mut wanted_measurement = None;
            if words.takes("WITH")? {
                words.take("MEASUREMENT")?;
                wanted_measurement = Some(wanted(words)?);
            }
            let condition = condition(words)?;
            order(words)?;
            Ok(Kind::ShowMeasurements { database, wanted: wanted_measurement, condition, page: page(words)? })
        }
        "RETENTION" => {
            words.take("POLICIES")?;
            Ok(Kind::ShowRetentionPolicies { database: on(words)? })
        }
        "FIELD" => match words.take_one(&["KEY", "KEYS"])? {
            "KEY" => cardinality(words, Counted::FieldKeys),
            _ => rest(words, None).map(|(show, _)| Kind::ShowFieldKeys(show)),
        },
        "SERIES" if is_counted(words)? => cardinality(words, Counted::Series),
        "SERIES" => rest(words, None).map(|(show, _)| Kind::ShowSeries(show)),
        _ => match words.take_one(&["KEY", "KEYS", "VALUES"])? {
            "KEY" => cardinality(words, Counted::TagKeys),
            "KEYS" => rest(words, None).map(|(show, _)| Kind::ShowTagKeys(show)),
            _ if is_counted(words)? => cardinality(words, Counted::TagValues),
            _ => match rest(words, Some("KEY"))? {
                (show, Some(keys)) => Ok(Kind::ShowTagValues { show, keys }),
                _ => Err(words.expected("WITH")),
            },
        },
    }
}

fn is_counted(words: &mut Words<'_>) -> Result<bool> {
    Ok(
        matches!(words.peek()?, Token::Word(word) if ["EXACT", "CARDINALITY"].iter().any(|one| word.eq_ignore_ascii_case(one))),
    )
}

/// What comes after the name of what is counted.
fn cardinality(words: &mut Words<'_>, of: Counted) -> Result<Kind> {
    let precision = match words.take_one(&["EXACT", "CARDINALITY"])? {
        "EXACT" => {
            words.take("CARDINALITY")?;
            Precision::Exact
        }
        _ => Precision::Estimated,
    };
    let (show, keys) = rest(words, (of == Counted::TagValues).then_some("KEY"))?;
    Ok(Kind::ShowCardinality { of, precision, show, keys })
}

/// `ON`, `FROM`, `WITH` what is named, `WHERE`, and the page.
fn rest(words: &mut Words<'_>, with: Option<&str>) -> Result<(Show, Option<Wanted>)> {
    let database = on(words)?;
    let from = from(words)?;
    let mut keys = None;
    if let Some(what) = with {
        words.take("WITH")?;
        words.take(what)?;
        keys = Some(wanted(words)?);
    }
    let condition = condition(words)?;
    order(words)?;
    Ok((Show { database, from, condition, page: page(words)? }, keys))
}

/// `= name`, `!= name`, `=~ /x/`, `!~ /x/`, `IN (a, b)`.
fn wanted(words: &mut Words<'_>) -> Result<Wanted> {
    if words.takes("IN")? {
        words.take_sign("(")?;
        let mut names = vec![words.name()?];
        while words.takes_sign(",")? {
            names.push(words.name()?);
        }
        words.take_sign(")")?;
        return Ok(Wanted::In(names));
    }
    let operator = words.next()?;
    let Token::Sign(sign) = operator else { return Err(words.expected("IN, =, !=, =~, !~")) };
    match sign {
        "=" | "==" | "!=" | "<>" => {
            // Measurements may be qualified; what counts is the last.
            let mut name = words.name()?;
            while words.takes_sign(".")? {
                name = words.name()?;
            }
            Ok(if sign.starts_with('=') { Wanted::In(vec![name]) } else { Wanted::NotIn(vec![name]) })
        }
        "=~" | "!~" => match words.regex()? {
            Some(regex) if sign == "=~" => Ok(Wanted::Regex(regex)),
            Some(regex) => Ok(Wanted::NotRegex(regex)),
            None => Err(words.expected("regex")),
        },
        _ => Err(words.expected("IN, =, !=, =~, !~")),
    }
}
