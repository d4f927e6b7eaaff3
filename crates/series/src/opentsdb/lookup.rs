//! Which series there are: `/api/search/lookup`, and which names: `/api/suggest`.
//!
//! May use: `json`, `print`, `query`. Must not know: HTTP.

use super::json::{Object, body, object};
use super::print::{FIELD_TAG, list, tag, tags, text, texts};
use super::query::{Parameters, tsuid};
use super::uri::check_filters;
use crate::error::{Error, Result};
use crate::select::{Match, Select};
use crate::source::{Series, Source};

/// Results unless a limit is asked for.
const RESULTS_DEFAULT: usize = 25;
/// What stands for any metric, tag or value.
const ANY: &str = "*";

/// Which series are looked for.
#[derive(Debug, Clone)]
pub struct Lookup {
    metric: String,
    /// Each `*` or empty for any.
    tags: Vec<(String, String)>,
    /// 0 for all.
    limit: usize,
    skipped: usize,
}

/// The series that were found.
#[derive(Debug)]
pub struct Found {
    lookup: Lookup,
    series: Vec<Series>,
    total: usize,
}

impl Lookup {
    /// The look-up in the parameters of a URL: `m=metric{tag=value}`, `limit`, `start_index`.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_parameters(parameters: &Parameters) -> Result<Self> {
        let text =
            parameters.get("m").ok_or_else(|| Error::invalid("Missing parameter m: write m=metric{tag=value}"))?;
        let bad = || Error::invalid(format!("Invalid parameter m={text}: write m=metric{{tag=value}}, * for any"));
        let (metric, tags) = match text.split_once('{') {
            None => (text, ""),
            Some((metric, tags)) => (metric, tags.strip_suffix('}').ok_or_else(bad)?),
        };
        let pairs = tags.split(',').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').map(|(tag, value)| (tag.to_owned(), value.to_owned())));
        Ok(Self {
            metric: metric.to_owned(),
            tags: pairs.collect::<Option<_>>().ok_or_else(bad)?,
            limit: count(parameters.get("limit"), "limit")?.unwrap_or(RESULTS_DEFAULT),
            skipped: count(parameters.get("start_index").or(parameters.get("startIndex")), "start_index")?.unwrap_or(0),
        })
    }

    /// The look-up in a body.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let all = body(bytes)?;
        let all = Object(&all);
        let mut pairs = Vec::new();
        for pair in all.list("tags")? {
            let pair = object(pair, "tags")?;
            pairs.push((pair.text("key")?.unwrap_or_default(), pair.text("value")?.unwrap_or_default()));
        }
        Ok(Self {
            metric: all.text("metric")?.unwrap_or_default(),
            tags: pairs,
            limit: count(all.text("limit")?.as_deref(), "limit")?.unwrap_or(RESULTS_DEFAULT),
            skipped: count(all.text("startIndex")?.as_deref(), "startIndex")?.unwrap_or(0),
        })
    }

    /// Looks for them in a database.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is no such metric; [`Error::Source`].
    pub fn find(self, source: &dyn Source, database: &str) -> Result<Found> {
        check_filters(self.tags.len())?;
        let is_any = |text: &str| text.is_empty() || text == ANY;
        let mut select = Select { database: database.to_owned(), ..Select::default() };
        if !is_any(&self.metric) {
            select.metric = Some(Match::is(&self.metric));
        }
        for (name, value) in self.tags.iter().filter(|(name, _)| !is_any(name) && name != FIELD_TAG) {
            select = select.and_tag(name, if is_any(value) { Match::present() } else { Match::is(value) });
        }
        let mut series = source.series(&select)?;
        series.retain(|series| {
            self.tags.iter().all(|(name, value)| match (is_any(name), is_any(value)) {
                (true, true) => true,
                (true, false) => tags(&series.key).any(|(_, found)| found == value),
                (false, true) => !tag(&series.key, name).is_empty(),
                (false, false) => tag(&series.key, name) == value,
            })
        });
        if series.is_empty() && !is_any(&self.metric) {
            let metrics = source.metrics(database)?;
            if metrics.binary_search(&self.metric).is_err() {
                return Err(Error::Missing { what: "metric", name: self.metric });
            }
        }
        let total = series.len();
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        let series = series.into_iter().skip(self.skipped).take(limit).collect();
        Ok(Found { lookup: self, series, total })
    }
}

impl Found {
    /// Appends the answer. `milliseconds` is how long it took.
    pub fn write(&self, milliseconds: u64, out: &mut Vec<u8>) {
        let Lookup { metric, tags: asked, limit, skipped } = &self.lookup;
        out.extend_from_slice(b"{\"type\":\"LOOKUP\",\"metric\":");
        text(out, if metric.is_empty() { ANY } else { metric });
        out.extend_from_slice(b",\"tags\":[");
        for (nth, (name, value)) in asked.iter().enumerate() {
            if nth > 0 {
                out.push(b',');
            }
            texts(out, [("key", name.as_str()), ("value", value.as_str())].into_iter());
        }
        let head = format!("],\"limit\":{limit},\"time\":{milliseconds},\"results\":[");
        out.extend_from_slice(head.as_bytes());
        for (nth, series) in self.series.iter().enumerate() {
            out.extend_from_slice(if nth > 0 { b",{\"metric\":" } else { b"{\"metric\":" });
            text(out, &series.key.metric);
            out.extend_from_slice(b",\"tags\":");
            texts(out, tags(&series.key));
            out.extend_from_slice(b",\"tsuid\":");
            text(out, &tsuid(series.id));
            out.push(b'}');
        }
        out.extend_from_slice(format!("],\"startIndex\":{skipped},\"totalResults\":{}}}", self.total).as_bytes());
    }
}

fn count(text: Option<&str>, what: &str) -> Result<Option<usize>> {
    let bad = || Error::invalid(format!("Invalid {what}: it is a whole number from 0"));
    text.filter(|text| !text.is_empty()).map(|text| text.parse().map_err(|_| bad())).transpose()
}

/// Whose names are suggested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Metrics,
    Tags,
    Values,
}

/// Which names are asked for.
#[derive(Debug, Clone)]
pub struct Suggest {
    names: Names,
    prefix: String,
    max: usize,
}

impl Suggest {
    /// What the parameters of a URL ask: `type`, `q`, `max`.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_parameters(parameters: &Parameters) -> Result<Self> {
        Self::new(parameters.get("type"), parameters.get("q"), parameters.get("max"))
    }

    /// What a body asks.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let all = body(bytes)?;
        let all = Object(&all);
        let (names, prefix, max) = (all.text("type")?, all.text("q")?, all.text("max")?);
        Self::new(names.as_deref(), prefix.as_deref(), max.as_deref())
    }

    fn new(names: Option<&str>, prefix: Option<&str>, max: Option<&str>) -> Result<Self> {
        let names = match names {
            Some("metrics") => Names::Metrics,
            Some("tagk") => Names::Tags,
            Some("tagv") => Names::Values,
            Some(other) => {
                return Err(Error::invalid(format!("Invalid 'type' parameter:{other}: it is metrics, tagk or tagv")));
            }
            None => return Err(Error::invalid("Missing parameter type: it is metrics, tagk or tagv")),
        };
        let max = count(max, "max")?.unwrap_or(RESULTS_DEFAULT);
        Ok(Self { names, prefix: prefix.unwrap_or_default().to_owned(), max })
    }

    /// Appends the names of a database that begin as they should.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub fn answer(&self, source: &dyn Source, database: &str, out: &mut Vec<u8>) -> Result<()> {
        let names = match self.names {
            Names::Metrics => source.metrics(database)?,
            Names::Tags => source.tag_names(database)?,
            Names::Values => source.tag_values(database)?,
        };
        let begin = names.partition_point(|name| name.as_str() < self.prefix.as_str());
        let found = names.iter().skip(begin).take_while(|name| name.starts_with(&self.prefix)).take(self.max);
        list(out, found.map(String::as_str));
        Ok(())
    }
}
