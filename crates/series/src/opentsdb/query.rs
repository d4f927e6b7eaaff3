//! What is asked: a query, its parts, and the parameters that come with a URL.
//!
//! May use: `aggregator`, `calendar`, `filter`, `time`. Must not know: JSON, series.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use serde_json::Value as Json;

use super::aggregator::Aggregator;
use super::calendar::Grid;
use super::filter::Filter;
use super::time::{self, Duration, Moment};
use crate::error::{Error, Result};
use crate::source::{Range, SeriesId};

/// Queries in one request.
pub(crate) const QUERIES_MAX: usize = 1_024;

/// Parameters of a URL, decoded, in order.
#[derive(Debug, Clone, Default)]
pub struct Parameters(pub Vec<(String, String)>);

impl Parameters {
    /// The first value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is there and does not say `false`.
    pub(crate) fn says(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.eq_ignore_ascii_case("false"))
    }
}

/// In what times are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Resolution {
    #[default]
    Seconds,
    Milliseconds,
}

/// How points are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shape {
    /// `{"1356998400":1}`
    #[default]
    Object,
    /// `[[1356998400,1]]`
    Arrays,
}

/// What is printed besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Show {
    pub(crate) tsuids: bool,
    pub(crate) query: bool,
    pub(crate) stats: bool,
    pub(crate) summary: bool,
}

/// Whether what was read is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Afterwards {
    /// Points stay.
    #[default]
    Keep,
    /// Points that were read are deleted.
    Delete,
}

/// What one request asks.
#[derive(Debug, Clone)]
pub struct Query {
    pub(crate) range: Range,
    pub(crate) resolution: Resolution,
    pub(crate) shape: Shape,
    pub(crate) show: Show,
    pub(crate) afterwards: Afterwards,
    pub(crate) queries: Vec<SubQuery>,
}

/// Which series are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Metric(String),
    Ids(BTreeSet<SeriesId>),
}

/// Whether series may have tags that no filter names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OtherTags {
    #[default]
    Allowed,
    Refused,
}

/// One of the queries of a request.
#[derive(Debug, Clone)]
pub(crate) struct SubQuery {
    pub(crate) aggregator: Aggregator,
    pub(crate) target: Target,
    pub(crate) filters: Vec<Filter>,
    pub(crate) other_tags: OtherTags,
    pub(crate) downsample: Option<Downsample>,
    pub(crate) rate: Option<Rate>,
    /// As it came, and its number among the request's, for `showQuery`.
    pub(crate) text: Json,
}

/// What an interval without points counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fill {
    #[default]
    None,
    Nan,
    Null,
    Zero,
}

/// One number for each interval.
#[derive(Debug, Clone)]
pub(crate) struct Downsample {
    pub(crate) grid: Grid,
    pub(crate) function: Aggregator,
    pub(crate) fill: Fill,
}

/// Change per second in place of values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Rate {
    /// The values only grow, until they begin anew.
    pub(crate) counter: Option<Counter>,
}

/// What is done where a counter is less than before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Counter {
    /// It ran over at this number.
    pub(crate) max: i64,
    /// A rate above this, where one is given, means that it began anew: the rate is 0.
    pub(crate) reset: i64,
    pub(crate) drops: Drops,
}

/// Whether the point where a counter is less than before has a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Drops {
    #[default]
    Keep,
    Drop,
}

impl Default for Counter {
    fn default() -> Self {
        Self { max: i64::MAX, reset: 0, drops: Drops::Keep }
    }
}

/// Everything that concerns times, until both ends are known.
pub(crate) struct Clock<'a> {
    pub(crate) now: i64,
    pub(crate) zone: TimeZone,
    pub(crate) start: Option<&'a str>,
    pub(crate) end: Option<&'a str>,
    pub(crate) is_calendar: bool,
}

impl Clock<'_> {
    /// The range: from the start up to and including the end.
    pub(crate) fn range(&self) -> Result<Range> {
        let start = self.start.filter(|start| !start.is_empty());
        let start = start.ok_or_else(|| Error::invalid("Missing start time"))?;
        let from = time::moment(start, self.now, &self.zone)?;
        let end = match self.end.filter(|end| !end.is_empty()) {
            Some(end) => time::moment(end, self.now, &self.zone)?,
            None => Moment { at: self.now, lasts: time::MILLISECOND },
        };
        if end.at < from.at {
            return Err(Error::invalid(format!(
                "End time [{}] must not be before the start time [{}] (in milliseconds)",
                end.at / time::MILLISECOND,
                from.at / time::MILLISECOND
            )));
        }
        Ok(Range { from: from.at, to: end.at.saturating_add(end.lasts - 1) })
    }
}

impl Downsample {
    /// `1m-avg`, `1dc-sum-nan`, `0all-count`.
    pub(crate) fn parse(text: &str, from: i64, clock: &Clock<'_>) -> Result<Self> {
        let bad = |why: &str| {
            Error::invalid(format!("Invalid downsample {text}: {why}; write as 1m-avg, 1dc-sum-zero or 0all-count"))
        };
        let mut parts = text.split('-');
        let (interval, function) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let fill = match parts.next().map(str::to_ascii_lowercase).as_deref() {
            None | Some("none") => Fill::None,
            Some("nan") => Fill::Nan,
            Some("null") => Fill::Null,
            Some("zero") => Fill::Zero,
            Some(_) => return Err(bad("the fill policies are none, nan, null and zero")),
        };
        if parts.next().is_some() {
            return Err(bad("there are too many parts"));
        }
        if function.is_empty() {
            return Err(bad("there is no function"));
        }
        let function = Aggregator::parse(function)?;
        if function == Aggregator::None {
            return Err(bad("cannot use the NONE aggregator for downsampling"));
        }
        let lower = interval.to_ascii_lowercase();
        let grid = if lower.trim_start_matches(|digit: char| digit.is_ascii_digit()) == "all" {
            Grid::All { start: from }
        } else {
            let (length, is_calendar) =
                lower.strip_suffix('c').map_or((lower.as_str(), clock.is_calendar), |it| (it, true));
            let length = Duration::parse(length)?;
            if is_calendar { Grid::Calendar(length, clock.zone.clone()) } else { Grid::Fixed(length.nanoseconds()) }
        };
        Ok(Self { grid, function, fill })
    }
}

/// The text of a series' id, where OpenTSDB has its UIDs.
pub(crate) fn tsuid(id: SeriesId) -> String {
    format!("{:04X}{:08X}", id.partition, id.number)
}

/// The id in such a text.
pub(crate) fn parse_tsuid(text: &str) -> Result<SeriesId> {
    let parse = || {
        let text = text.trim();
        let (partition, number) = text.split_at_checked(4).filter(|_| text.len() == 12)?;
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(SeriesId {
            partition: u16::from_str_radix(partition, 16).ok().filter(|_| is_hex)?,
            number: u32::from_str_radix(number, 16).ok()?,
        })
    };
    parse().ok_or_else(|| Error::invalid(format!("Invalid TSUID: {text}: they have 12 hexadecimal digits here")))
}
