//! Queries in the body of a request. Unknown names are passed over; numbers and switches may come as texts.
//!
//! May use: `query`, `filter`, `uri`. Must not know: series.

use serde_json::{Map, Value as Json};

use super::aggregator::Aggregator;
use super::filter::{Filter, Grouping};
use super::query::{
    Afterwards, Clock, Counter, Downsample, Drops, OtherTags, Parameters, Query, Rate, Resolution, Shape, Show,
    SubQuery, Target, parse_tsuid,
};
use super::time;
use super::uri::{check_count, check_filters, resolution, shape};
use crate::error::{Error, Result};
use crate::regexes::Regexes;

/// An object of a body, whose values are read by name.
pub(crate) struct Object<'a>(pub(crate) &'a Map<String, Json>);

/// The object that a body is.
pub(crate) fn body(bytes: &[u8]) -> Result<Map<String, Json>> {
    if bytes.trim_ascii().is_empty() {
        return Err(Error::invalid("Missing request content: send a query as JSON"));
    }
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err(Error::invalid("Unable to parse the given JSON: it must be an object")),
        Err(error) => Err(Error::invalid(format!("Unable to parse the given JSON: {error}"))),
    }
}

impl Object<'_> {
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text; a number is the text of itself.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text.clone())),
            Some(Json::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(Error::invalid(format!("\"{name}\" must be a text"))),
        }
    }

    pub(crate) fn says(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None => Ok(false),
            Some(Json::Bool(says)) => Ok(*says),
            Some(Json::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(Json::String(text)) if text.eq_ignore_ascii_case("false") || text.is_empty() => Ok(false),
            Some(_) => Err(Error::invalid(format!("\"{name}\" must be true or false"))),
        }
    }

    fn number(&self, name: &str, otherwise: i64) -> Result<i64> {
        let bad = || Error::invalid(format!("\"{name}\" must be a whole number"));
        match self.get(name) {
            None => Ok(otherwise),
            Some(Json::String(text)) => text.trim().parse().map_err(|_| bad()),
            #[expect(clippy::cast_possible_truncation, reason = "a counter's end beyond 2^53 is as good rounded")]
            Some(value) => value.as_i64().or_else(|| value.as_f64().map(|number| number as i64)).ok_or_else(bad),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<&[Json]> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Json::Array(list)) => Ok(list),
            Some(_) => Err(Error::invalid(format!("\"{name}\" must be a list"))),
        }
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Object<'_>>> {
        self.get(name).map(|value| object(value, name)).transpose()
    }
}

pub(crate) fn object<'a>(value: &'a Json, what: &str) -> Result<Object<'a>> {
    value.as_object().map(Object).ok_or_else(|| Error::invalid(format!("\"{what}\" must be an object")))
}

impl Query {
    /// The query in a body, with what the parameters of the URL add. `now` is in nanoseconds since 1970.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_json(bytes: &[u8], parameters: &Parameters, now: i64) -> Result<Self> {
        let all = body(bytes)?;
        let all = Object(&all);
        let (start, end) = (all.text("start")?, all.text("end")?);
        let zone = all.text("timezone")?.or(all.text("tz")?);
        let clock = Clock {
            now,
            zone: time::zone(zone.as_deref().or_else(|| parameters.get("tz")))?,
            start: start.as_deref().or_else(|| parameters.get("start")),
            end: end.as_deref().or_else(|| parameters.get("end")),
            is_calendar: all.says("useCalendar")?,
        };
        let range = clock.range()?;
        let queries = all.list("queries")?;
        check_count(queries.len())?;
        let mut regexes = Regexes::default();
        let both = |name: &str, parameter: &str| Ok::<_, Error>(all.says(name)? || parameters.says(parameter));
        Ok(Self {
            range,
            resolution: if all.says("msResolution")? { Resolution::Milliseconds } else { resolution(parameters) },
            shape: if all.says("arrays")? { Shape::Arrays } else { shape(parameters) },
            show: Show {
                tsuids: both("showTSUIDs", "show_tsuids")?,
                query: both("showQuery", "show_query")?,
                stats: both("showStats", "show_stats")?,
                summary: both("showSummary", "show_summary")?,
            },
            afterwards: if both("delete", "delete")? { Afterwards::Delete } else { Afterwards::Keep },
            queries: queries
                .iter()
                .enumerate()
                .map(|query| sub_query(query, (range.from, &clock), &mut regexes))
                .collect::<Result<_>>()?,
        })
    }

    /// Whether what is read is to be removed.
    #[must_use]
    pub fn afterwards(&self) -> Afterwards {
        self.afterwards
    }

    /// The same query, and what it reads is removed.
    #[must_use]
    pub fn and_delete(mut self) -> Self {
        self.afterwards = Afterwards::Delete;
        self
    }
}

fn sub_query(
    (number, json): (usize, &Json),
    (from, clock): (i64, &Clock<'_>),
    regexes: &mut Regexes,
) -> Result<SubQuery> {
    let query = object(json, "queries")?;
    let mut text = json.clone();
    // By this clients know which of their queries a series answers.
    text["index"] = number.into();
    let aggregator = query.text("aggregator")?;
    let aggregator = aggregator.ok_or_else(|| Error::invalid("Missing the aggregation function of a query"))?;
    let ids = query.list("tsuids")?;
    let target = match query.text("metric")?.filter(|metric| !metric.is_empty()) {
        _ if !ids.is_empty() => {
            Target::Ids(ids.iter().map(|id| parse_tsuid(id.as_str().unwrap_or_default())).collect::<Result<_>>()?)
        }
        Some(metric) => Target::Metric(metric),
        None => return Err(Error::invalid("Missing the metric or tsuids, provide at least one")),
    };
    if query.get("percentiles").is_some() {
        return Err(Error::invalid("\"percentiles\" of histograms are not supported: there are no histograms here"));
    }
    let downsample = query.text("downsample")?.filter(|text| !text.is_empty());
    Ok(SubQuery {
        aggregator: Aggregator::parse(&aggregator)?,
        target,
        filters: filters(&query, regexes)?,
        other_tags: if query.says("explicitTags")? { OtherTags::Refused } else { OtherTags::Allowed },
        downsample: downsample.map(|text| Downsample::parse(&text, from, clock)).transpose()?,
        rate: if query.says("rate")? { Some(rate(&query)?) } else { None },
        text,
    })
}

fn filters(query: &Object<'_>, regexes: &mut Regexes) -> Result<Vec<Filter>> {
    let mut filters = Vec::new();
    if let Some(tags) = query.object("tags")? {
        for name in tags.0.keys() {
            filters.push(Filter::parse(name, &tags.text(name)?.unwrap_or_default(), Grouping::Apart, regexes)?);
        }
    }
    for filter in query.list("filters")? {
        let filter = object(filter, "filters")?;
        let text = |name: &str| Ok::<_, Error>(filter.text(name)?.unwrap_or_default());
        let is_apart = filter.says("groupBy")? || filter.says("group_by")?;
        let grouping = if is_apart { Grouping::Apart } else { Grouping::Together };
        filters.push(Filter::new(&text("type")?, &text("tagk")?, &text("filter")?, grouping, regexes)?);
    }
    check_filters(filters.len())?;
    Ok(filters)
}

fn rate(query: &Object<'_>) -> Result<Rate> {
    let Some(options) = query.object("rateOptions")? else { return Ok(Rate::default()) };
    let counter = Counter {
        max: options.number("counterMax", i64::MAX)?,
        reset: options.number("resetValue", 0)?,
        drops: if options.says("dropResets")? { Drops::Drop } else { Drops::Keep },
    };
    Ok(Rate { counter: options.says("counter")?.then_some(counter) })
}
