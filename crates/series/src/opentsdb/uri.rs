//! Queries in the parameters of a URL.
//!
//!   m = aggregator : [rate[{counter[,max[,reset[,dropcounter]]}] :] [interval-function[-fill] :] [explicit_tags :]
//!       metric [{tag=value,...}] [{tag=filter,...}]
//!
//! The first braces keep series apart by their tags, the second only choose. `tsuid=aggregator:...:id,id` names series.
//!
//! May use: `query`, `filter`. Must not know: JSON but to echo, series.

use std::collections::BTreeSet;

use serde_json::json;

use super::aggregator::Aggregator;
use super::filter::{Filter, Grouping};
use super::query::{
    Afterwards, Clock, Counter, Downsample, Drops, OtherTags, Parameters, QUERIES_MAX, Query, Rate, Resolution, Shape,
    Show, SubQuery, Target, parse_tsuid,
};
use super::time;
use crate::error::{Error, Result};
use crate::regexes::Regexes;

/// Filters of one query: series have fewer tags.
const FILTERS_MAX: usize = 64;

impl Query {
    /// The query in the parameters of a URL. `now` is in nanoseconds since 1970.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn from_parameters(parameters: &Parameters, now: i64) -> Result<Self> {
        let clock = Clock {
            now,
            zone: time::zone(parameters.get("tz").or_else(|| parameters.get("timezone")))?,
            start: parameters.get("start"),
            end: parameters.get("end"),
            is_calendar: parameters.says("use_calendar"),
        };
        let range = clock.range()?;
        let named = parameters.all("m").map(|text| (text, false));
        let (mut queries, mut regexes) = (Vec::new(), Regexes::default());
        for (text, is_ids) in named.chain(parameters.all("tsuid").map(|text| (text, true))) {
            let mut query = sub_query(text, is_ids, (range.from, &clock), &mut regexes)?;
            query.text = json!({ "m": text, "index": queries.len() });
            queries.push(query);
        }
        check_count(queries.len())?;
        Ok(Self {
            range,
            resolution: resolution(parameters),
            shape: shape(parameters),
            show: Show {
                tsuids: parameters.says("show_tsuids"),
                query: parameters.says("show_query"),
                stats: parameters.says("show_stats"),
                summary: parameters.says("show_summary"),
            },
            afterwards: if parameters.says("delete") { Afterwards::Delete } else { Afterwards::Keep },
            queries,
        })
    }
}

pub(crate) fn check_count(queries: usize) -> Result<()> {
    match queries {
        0 => Err(Error::invalid("Missing queries: name at least one, with m= or in \"queries\"")),
        1..=QUERIES_MAX => Ok(()),
        _ => Err(Error::Limit { what: "queries in one request", actual: queries as u64, limit: QUERIES_MAX as u64 }),
    }
}

/// Each series of the metric is held against each filter.
pub(crate) fn check_filters(filters: usize) -> Result<()> {
    if filters <= FILTERS_MAX {
        return Ok(());
    }
    Err(Error::Limit { what: "filters of one query", actual: filters as u64, limit: FILTERS_MAX as u64 })
}

pub(crate) fn resolution(parameters: &Parameters) -> Resolution {
    let is_fine = ["ms", "msResolution"].iter().any(|name| parameters.says(name));
    if is_fine { Resolution::Milliseconds } else { Resolution::Seconds }
}

pub(crate) fn shape(parameters: &Parameters) -> Shape {
    if parameters.says("arrays") { Shape::Arrays } else { Shape::Object }
}

fn sub_query(text: &str, is_ids: bool, (from, clock): (i64, &Clock<'_>), regexes: &mut Regexes) -> Result<SubQuery> {
    let bad = |why: &str| Error::invalid(format!("Invalid parameter m={text}: {why}"));
    let (aggregator, mut rest) = text.split_once(':').ok_or_else(|| bad("write aggregator:metric"))?;
    let mut query = SubQuery {
        aggregator: Aggregator::parse(aggregator)?,
        target: Target::Ids(BTreeSet::new()),
        filters: Vec::new(),
        other_tags: OtherTags::Allowed,
        downsample: None,
        rate: None,
        text: json!(null),
    };
    while let Some((part, after)) = split_part(rest) {
        let lower = part.to_ascii_lowercase();
        if lower == "rate" || lower.starts_with("rate{") {
            query.rate = Some(rate(&lower).ok_or_else(|| bad("write rate or rate{counter,max,reset}"))?);
        } else if lower == "explicit_tags" {
            query.other_tags = OtherTags::Refused;
        } else if part.starts_with(|first: char| first.is_ascii_digit()) {
            query.downsample = Some(Downsample::parse(part, from, clock)?);
        } else {
            break;
        }
        rest = after;
    }
    if is_ids {
        query.target = Target::Ids(rest.split(',').map(parse_tsuid).collect::<Result<_>>()?);
    } else {
        let (metric, filters) = metric_with_filters(rest, regexes)?;
        (query.target, query.filters) = (Target::Metric(metric), filters);
    }
    Ok(query)
}

/// What stands before the next colon that is not in braces, and what after.
fn split_part(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_u32;
    let colon = text.char_indices().find(|(_, character)| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        *character == ':' && depth == 0
    });
    let (before, after) = text.split_at_checked(colon?.0)?;
    Some((before, after.strip_prefix(':')?))
}

fn rate(text: &str) -> Option<Rate> {
    let Some(options) = text.strip_prefix("rate{") else { return Some(Rate::default()) };
    let options: Vec<&str> = options.strip_suffix('}')?.split(',').map(str::trim).collect();
    let (first, rest) = options.split_first()?;
    let number = |at: usize, otherwise: i64| match rest.get(at).filter(|text| !text.is_empty()) {
        None => Some(otherwise),
        Some(text) => text.parse::<i64>().ok(),
    };
    let drops = *first == "dropcounter" || rest.get(2).is_some_and(|text| ["dropcounter", "true"].contains(text));
    let counter = Counter {
        max: number(0, i64::MAX)?,
        reset: number(1, 0)?,
        drops: if drops { Drops::Drop } else { Drops::Keep },
    };
    let is_known = first.is_empty() || first.ends_with("counter");
    (is_known && rest.len() <= 3).then(|| Rate { counter: first.ends_with("counter").then_some(counter) })
}

/// `metric{tag=value}{tag=filter}`.
pub(crate) fn metric_with_filters(text: &str, regexes: &mut Regexes) -> Result<(String, Vec<Filter>)> {
    let bad = |why: &str| Error::invalid(format!("Invalid metric {text}: {why}"));
    let (metric, mut rest) =
        text.split_once('{').map_or((text, ""), |(metric, _)| (metric, text.get(metric.len()..).unwrap_or_default()));
    if metric.is_empty() {
        return Err(bad("its name is empty"));
    }
    let mut filters = Vec::new();
    for grouping in [Grouping::Apart, Grouping::Together] {
        if rest.is_empty() {
            break;
        }
        let inner = rest.strip_prefix('{').ok_or_else(|| bad("write metric{tag=value}{tag=filter}"))?;
        let end = closing(inner).ok_or_else(|| bad("a brace or bracket is not closed"))?;
        let (inner, after) = inner.split_at_checked(end).unwrap_or((inner, ""));
        for pair in split_pairs(inner).filter(|pair| !pair.trim().is_empty()) {
            let (tag, value) = pair.split_once('=').ok_or_else(|| bad("write tag=value between the braces"))?;
            filters.push(Filter::parse(tag.trim(), value.trim(), grouping, regexes)?);
        }
        rest = after.strip_prefix('}').unwrap_or(after);
    }
    check_filters(filters.len())?;
    if rest.is_empty() { Ok((metric.to_owned(), filters)) } else { Err(bad("there is more after the braces")) }
}

/// Where the brace is that closes what begins here: not one in round brackets, as of a regular expression.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    let find = |(at, character): (usize, char)| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '}' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    };
    text.char_indices().find_map(find)
}

/// What stands between commas that are not in round brackets.
fn split_pairs(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}
