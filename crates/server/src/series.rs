//! `holdfast series export`: points as CSV, Arrow or Parquet, series by series, each in order of time.
//!
//! Columns of CSV: `time_ns`, `metric`, `field`, `type`, `value`, and one `tag:NAME` for each tag that one of the series has. Times are
//! nanoseconds since 1970. Values are written so that they are read as what they were: doubles with the fewest digits that mean
//! them (the payload of a NaN alone is lost), booleans as `true` and `false`, and `type` says which of float, integer, unsigned,
//! boolean and string a value is.
//!
//! Opens the store without threads. One series is in memory at a time, or as many rows as a batch has.
//!
//! May use: the facade, `inspect`, `config`. Must not know: protocols, files of the store.

mod arrow;
mod columns;
mod flat;
mod parquet;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use holdfast::series::{Found, Match, Points, Range, Select, Source, TagMatch, ValueRef};
use holdfast::{Options, World};

use crate::cli::{SeriesArguments, SeriesCommand, SeriesExportArguments, SeriesFormat, ServeArguments};
use crate::config::Config;
use crate::failure::Failure;
use crate::inspect::open_with;

use self::columns::Exported;

const NANOS_PER_MS: i64 = 1_000_000;

/// Does what the command line says.
pub(crate) fn series(arguments: &SeriesArguments) -> Result<ExitCode, Failure> {
    let SeriesCommand::Export(arguments) = &arguments.command;
    export(arguments, &mut BufWriter::new(io::stdout()))
}

/// Writes the points that a server with the same configuration would show.
fn export(arguments: &SeriesExportArguments, to: &mut (impl Write + Send)) -> Result<ExitCode, Failure> {
    let SeriesExportArguments { dir, config, .. } = arguments;
    let served = ServeArguments { dir: dir.clone(), config: config.clone(), ..ServeArguments::default() };
    let Config { dir, limits, series, .. } = Config::load(&served)?;
    if !dir.join("store").exists() && !dir.join("journal").exists() {
        return Err(Failure::NoStore(dir));
    }
    let world = World::real(&dir, &limits);
    let options = Options { limits, series, ..Options::default() };
    let store = open_with(&dir, world, options, "replaying the journal")?;
    let reader = store.series().reader();
    let found = found(&reader, arguments)?;
    let range = Range {
        from: arguments.from.map_or(i64::MIN, |ms| ms.saturating_mul(NANOS_PER_MS)),
        to: arguments.to.map_or(i64::MAX, |ms| ms.saturating_mul(NANOS_PER_MS).saturating_add(NANOS_PER_MS - 1)),
    };
    match arguments.format {
        SeriesFormat::Csv => csv(&reader, &found, range, to)?,
        SeriesFormat::Arrow => arrow::write(&Exported::new(&reader, &found, range)?, to)?,
        SeriesFormat::Parquet => parquet::write(&Exported::new(&reader, &found, range)?, to)?,
    }
    to.flush().map_err(Failure::Export)?;
    let missing = reader.missing();
    drop(reader);
    store.close().map_err(Failure::Close)?;
    missing.map_or(Ok(ExitCode::SUCCESS), |missing| Err(Failure::Incomplete(missing)))
}

/// The series that are meant, of which there are some.
fn found(source: &dyn Source, arguments: &SeriesExportArguments) -> Result<Vec<Found>, Failure> {
    let SeriesExportArguments { database, metric, .. } = arguments;
    let is = |name: &Option<String>| name.clone().map(Match::is);
    let tags = arguments.tags.iter();
    let select = Select {
        database: database.clone(),
        metric: is(metric),
        field: is(&arguments.field),
        tags: tags.map(|(tag, value)| TagMatch { tag: tag.clone(), value: Match::is(value) }).collect(),
    };
    let found = source.series(&select)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let databases = source.databases()?;
    let text = match metric {
        _ if databases.is_empty() => "the store has no time series".to_owned(),
        _ if !databases.contains(database) => {
            format!("there is no database {database}: --database is one of {}", some(&databases))
        }
        Some(metric) if !source.metrics(database)?.contains(metric) => {
            let metrics = source.metrics(database)?;
            format!("there is no metric {metric} in the database {database}: --metric is one of {}", some(&metrics))
        }
        _ => format!("no series of the database {database} has this field and these tags"),
    };
    Err(Failure::NoSeries(text))
}

/// Names, as many as one line has room for.
fn some(names: &[String]) -> String {
    const NAMES_MAX: usize = 20;
    let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMES_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", if shown.is_empty() { "none".to_owned() } else { shown.join(", ") })
}

fn csv(source: &dyn Source, found: &[Found], range: Range, to: &mut impl Write) -> Result<(), Failure> {
    let tags: BTreeSet<&str> =
        found.iter().flat_map(|series| series.key.tags.iter().map(|(name, _)| name.as_str())).collect();
    head(&tags, to).map_err(Failure::Export)?;
    let mut points = Points::new();
    for series in found {
        points.clear();
        source.points(series.id, range, &mut points)?;
        rows(series, &tags, &points, to).map_err(Failure::Export)?;
    }
    Ok(())
}

fn head(tags: &BTreeSet<&str>, to: &mut impl Write) -> io::Result<()> {
    write!(to, "time_ns,metric,field,type,value")?;
    for tag in tags {
        write!(to, ",{}", quoted(&format!("tag:{tag}")))?;
    }
    writeln!(to)
}

fn rows(series: &Found, tags: &BTreeSet<&str>, points: &Points, to: &mut impl Write) -> io::Result<()> {
    let key = &series.key;
    let (metric, field) = (quoted(&key.metric), quoted(&key.field));
    let mut end = String::new();
    for tag in tags {
        end.push(',');
        end.push_str(&quoted(key.tag(tag)));
    }
    for (time, value) in points.iter() {
        write!(to, "{time},{metric},{field},{},", value.kind().name())?;
        match value {
            ValueRef::Float(value) => write!(to, "{value:?}")?,
            ValueRef::Integer(value) => write!(to, "{value}")?,
            ValueRef::Unsigned(value) => write!(to, "{value}")?,
            ValueRef::Boolean(value) => write!(to, "{value}")?,
            ValueRef::Text(value) => to.write_all(quoted(value).as_bytes())?,
        }
        writeln!(to, "{end}")?;
    }
    Ok(())
}

/// A text as RFC 4180 has it: in quotes when something in it would end it, or would be trimmed.
fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    let needs_quotes = text.contains(['"', ',', '\n', '\r']) || text.trim() != text;
    if needs_quotes { format!("\"{}\"", text.replace('"', "\"\"")).into() } else { text.into() }
}
