//! The last point of each series that is meant: `/api/query/last`.
//!
//! How many hours `backScan` says to look back does not matter here: the last point is known whatever its age.
//!
//! May use: `json`, `plan`, `print`, `query`. Must not know: HTTP.

use super::column::Value;
use super::filter::{Filter, Grouping};
use super::json::{Object, body, object};
use super::plan::of_metric;
use super::print::{number, tags, text, texts};
use super::query::{Parameters, QUERIES_MAX, Target, parse_tsuid, tsuid};
use super::time::MILLISECOND;
use super::uri::{check_count, check_filters, metric_with_filters};
use crate::error::{Error, Result};
use crate::regexes::Regexes;
use crate::select::Select;
use crate::source::{Series, Source};

/// Whether series are told by name or by id alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Shown,
    Hidden,
}

/// Which last points are asked for.
#[derive(Debug, Clone)]
pub struct LastQuery {
    targets: Vec<(Target, Vec<Filter>)>,
    names: Names,
}

impl LastQuery {
    /// The query in the parameters of a URL: `timeseries=metric{tag=value}`, `tsuids=id,id`, `resolve`.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_parameters(parameters: &Parameters) -> Result<Self> {
        let (mut targets, mut regexes) = (Vec::new(), Regexes::default());
        for named in parameters.all("timeseries") {
            let (metric, filters) = metric_with_filters(named, &mut regexes)?;
            targets.push((Target::Metric(metric), filters));
        }
        for ids in parameters.all("tsuids") {
            targets.push((Target::Ids(ids.split(',').map(parse_tsuid).collect::<Result<_>>()?), Vec::new()));
        }
        check_count(targets.len())?;
        Ok(Self { targets, names: names(parameters.says("resolve")) })
    }

    /// The query in a body.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_json(bytes: &[u8], parameters: &Parameters) -> Result<Self> {
        let all = body(bytes)?;
        let all = Object(&all);
        let (mut targets, mut regexes) = (Vec::new(), Regexes::default());
        for query in all.list("queries")?.iter().take(QUERIES_MAX + 1) {
            let query = object(query, "queries")?;
            let ids = query.list("tsuids")?;
            if !ids.is_empty() {
                let ids = ids.iter().map(|id| parse_tsuid(id.as_str().unwrap_or_default())).collect::<Result<_>>()?;
                targets.push((Target::Ids(ids), Vec::new()));
                continue;
            }
            let metric = query.text("metric")?.filter(|metric| !metric.is_empty());
            let metric = metric.ok_or_else(|| Error::invalid("Missing the metric or tsuids, provide at least one"))?;
            let mut filters = Vec::new();
            if let Some(tags) = query.object("tags")? {
                for name in tags.0.keys() {
                    let text = tags.text(name)?.unwrap_or_default();
                    filters.push(Filter::parse(name, &text, Grouping::Together, &mut regexes)?);
                }
            }
            check_filters(filters.len())?;
            targets.push((Target::Metric(metric), filters));
        }
        check_count(targets.len())?;
        Ok(Self { targets, names: names(all.says("resolveNames")? || parameters.says("resolve")) })
    }

    /// Appends the answer.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is no such metric; [`Error::Source`].
    pub fn answer(&self, source: &dyn Source, database: &str, out: &mut Vec<u8>) -> Result<()> {
        out.push(b'[');
        let start = out.len();
        for (target, filters) in &self.targets {
            let series = match target {
                Target::Metric(metric) => of_metric(source, database, metric, filters)?,
                Target::Ids(ids) => {
                    let mut all = source.series(&Select { database: database.to_owned(), ..Select::default() })?;
                    all.retain(|series| ids.contains(&series.id));
                    all
                }
            };
            for series in series {
                let last = source.last(series.id)?;
                let Some((time, value)) = last.and_then(|(time, value)| Some((time, Value::of(value.as_ref())?)))
                else {
                    continue;
                };
                if out.len() > start {
                    out.push(b',');
                }
                self.write(&series, time, value, out);
            }
        }
        out.push(b']');
        Ok(())
    }

    fn write(&self, series: &Series, time: i64, value: Value, out: &mut Vec<u8>) {
        out.push(b'{');
        if self.names == Names::Shown {
            out.extend_from_slice(b"\"metric\":");
            text(out, &series.key.metric);
            out.extend_from_slice(b",\"tags\":");
            texts(out, tags(&series.key));
            out.push(b',');
        }
        out.extend_from_slice(b"\"timestamp\":");
        number(out, Value::Integer(time.div_euclid(MILLISECOND)));
        // OpenTSDB has the value as a text here.
        out.extend_from_slice(b",\"value\":");
        match value {
            Value::Double(double) if !double.is_finite() => number(out, value),
            _ => {
                out.push(b'"');
                number(out, value);
                out.push(b'"');
            }
        }
        out.extend_from_slice(b",\"tsuid\":");
        text(out, &tsuid(series.id));
        out.push(b'}');
    }
}

fn names(are_shown: bool) -> Names {
    if are_shown { Names::Shown } else { Names::Hidden }
}
