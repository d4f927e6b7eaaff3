//! What is asked, in whichever language a server understands, and what it found.
//!
//! May use: all of this folder, `scenario.rs`, `way.rs`. Must not know: sockets, who is asked.

mod expected;
mod influxql;
mod opentsdb;
mod promql;

use std::ops::Range;

use base::Random;
use clap::ValueEnum;
use serde_json::Value;

use super::scenario::Scenario;
use super::way::Shape;
use crate::workload::{Failure, Result};

const SECOND_MILLIS: u64 = 1_000;
const MINUTE_MILLIS: u64 = 60 * SECOND_MILLIS;
pub(crate) const HOUR_MILLIS: u64 = 60 * MINUTE_MILLIS;

/// A kind of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Read {
    /// One point of one series, by its time.
    Precise,
    /// The points of 250 s of one series.
    Range,
    /// The sum of 10 h of one series.
    Sum,
    /// The average of each hour in 20 h of one series.
    Hourly,
    /// The latest point of one series.
    Latest,
    /// The points of 250 s of one series that are above a value.
    Filter,
    /// The points of 250 s of one series, the latest first.
    Descending,
    /// The average of each minute in 1 h, of one sensor of each device.
    Devices,
    /// How many points each device has of one sensor.
    #[value(skip)]
    Count,
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ask {
    pub(crate) read: Read,
    pub(crate) shape: Shape,
    /// Not looked at by questions of all devices.
    pub(crate) device: u32,
    pub(crate) sensor: u32,
    pub(crate) rows: Range<u64>,
    /// First moment, in milliseconds.
    pub(crate) from: i64,
    /// The moment after the last.
    pub(crate) until: i64,
    pub(crate) step_millis: u32,
    /// What [`Read::Filter`] wants to be exceeded.
    pub(crate) above: u32,
}

/// A query language over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// `POST /api/query`, JSON.
    Opentsdb,
    /// `GET /query`.
    Influxql,
    /// `GET /api/v1/query` and `query_range`.
    Promql,
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// The device, where it is said.
    pub(crate) device: Option<String>,
    /// Milliseconds and values, in the order of the answer.
    pub(crate) points: Vec<(i64, f64)>,
}

impl Read {
    /// Those that one device is asked, in the order of reports.
    pub(crate) const MIX: [Self; 7] =
        [Self::Precise, Self::Range, Self::Sum, Self::Hourly, Self::Latest, Self::Filter, Self::Descending];

    /// What reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Precise => "precise point",
            Self::Range => "250 s range",
            Self::Sum => "sum over 10 h",
            Self::Hourly => "hourly average over 20 h",
            Self::Latest => "latest point",
            Self::Filter => "value filter",
            Self::Descending => "descending",
            Self::Devices => "one sensor of all devices, 1 h at 1 min",
            Self::Count => "count",
        }
    }

    /// How long its range is, and what it begins at a multiple of.
    fn millis(self) -> (Option<u64>, u64) {
        match self {
            Self::Precise => (Some(1), 1),
            Self::Range | Self::Filter | Self::Descending => (Some(250 * SECOND_MILLIS), 1),
            Self::Sum => (Some(10 * HOUR_MILLIS), 1),
            Self::Hourly => (Some(20 * HOUR_MILLIS), HOUR_MILLIS),
            Self::Devices => (Some(HOUR_MILLIS), MINUTE_MILLIS),
            Self::Latest | Self::Count => (None, 1),
        }
    }
}

impl Ask {
    /// A question about everything: so many rows are there.
    pub(crate) fn all(read: Read, shape: Shape, scenario: &Scenario, rows: u64) -> Self {
        Self { read, shape, device: 0, sensor: 0, rows: 0..0, from: 0, until: 0, step_millis: 0, above: 50 }
            .over(scenario, 0..rows)
    }

    /// Any question of a kind about one device, of which so many rows are there: a range that is longer than them is cut.
    pub(crate) fn any(read: Read, shape: Shape, there: There<'_>, random: &mut Random) -> Self {
        let There { scenario, device, rows } = there;
        let (millis, multiple) = read.millis();
        let length = millis.map_or(rows, |millis| scenario.rows_in(millis).max(1)).min(rows);
        let first = random.below(rows - length + 1);
        let first = first - first % scenario.rows_in(multiple).max(1);
        let sensor = u32::try_from(random.below(u64::from(scenario.sensors))).unwrap_or_default();
        Self { device, sensor, ..Self::all(read, shape, scenario, rows) }.over(scenario, first..first + length)
    }

    /// The same question about other rows.
    pub(crate) fn over(self, scenario: &Scenario, rows: Range<u64>) -> Self {
        let (from, until) = (scenario.millis(rows.start), scenario.millis(rows.end));
        Self { rows, from, until, step_millis: scenario.step_millis, ..self }
    }

    /// Whether what was found is what was written.
    ///
    /// # Errors
    /// With what differs.
    pub(crate) fn check(&self, scenario: &Scenario, found: &[Found]) -> Result<()> {
        expected::check(self, scenario, found).map_err(|what| Failure::from(format!("{}: {what}", self.read.name())))
    }
}

/// What is there of one device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct There<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) device: u32,
    pub(crate) rows: u64,
}

impl Language {
    /// The request; `None` when the language cannot ask that.
    pub(crate) fn request(self, ask: &Ask) -> Option<Vec<u8>> {
        match self {
            Self::Opentsdb => opentsdb::request(ask),
            Self::Influxql => Some(influxql::request(ask)),
            Self::Promql => promql::request(ask),
        }
    }

    /// What the body of an answer says.
    ///
    /// # Errors
    /// When it is not an answer of this language.
    pub(crate) fn found(self, read: Read, body: &[u8]) -> Result<Vec<Found>> {
        let parsed = serde_json::from_slice::<Value>(body).ok();
        let found = parsed.as_ref().and_then(|answer| match (self, read) {
            (Self::Opentsdb, Read::Latest) => opentsdb::latest(answer),
            (Self::Opentsdb, _) => opentsdb::found(answer),
            (Self::Influxql, _) => influxql::found(answer),
            (Self::Promql, _) => promql::found(answer),
        });
        found.ok_or_else(|| {
            let start: String = String::from_utf8_lossy(body).chars().take(300).collect();
            Failure::from(format!("{}: {self:?} was answered with `{start}`", read.name()))
        })
    }
}

/// A request without a body.
fn get(path: &str, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut to = format!("GET {path}");
    for (at, (name, value)) in parameters.iter().enumerate() {
        to.push_str(if at == 0 { "?" } else { "&" });
        to.push_str(name);
        to.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => to.push(char::from(byte)),
                other => to.push_str(&format!("%{other:02X}")),
            }
        }
    }
    to.push_str(" HTTP/1.1\r\nHost: localhost\r\n\r\n");
    to.into_bytes()
}

/// A request with a JSON body.
fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: Scenario = Scenario { seed: 1, devices: 200, sensors: 10, step_millis: 5_000 };

    #[test]
    fn any_question_is_within_what_is_there() {
        let mut random = Random::new(3);
        for rows in [1, 30, 7_300, 15_120] {
            for read in Read::MIX.into_iter().chain([Read::Devices]) {
                for _ in 0..100 {
                    let there = There { scenario: &SCENARIO, device: 7, rows };
                    let ask = Ask::any(read, Shape::Metrics, there, &mut random);
                    assert!(ask.rows.start < ask.rows.end && ask.rows.end <= rows, "{ask:?} of {rows}");
                    assert!(ask.sensor < 10 && ask.device == 7);
                    assert_eq!((ask.from, ask.until), (SCENARIO.millis(ask.rows.start), SCENARIO.millis(ask.rows.end)));
                }
            }
        }
    }

    #[test]
    fn ranges_have_the_length_that_their_names_say() {
        let mut random = Random::new(3);
        let mut rows = |read| {
            let there = There { scenario: &SCENARIO, device: 7, rows: 15_120 };
            let ask = Ask::any(read, Shape::Fields, there, &mut random);
            (ask.rows.end - ask.rows.start, ask.from % 3_600_000 == 0)
        };
        assert_eq!([Read::Precise, Read::Range, Read::Sum].map(|read| rows(read).0), [1, 50, 7_200]);
        assert_eq!((rows(Read::Hourly), rows(Read::Devices).0), ((14_400, true), 720));
    }

    #[test]
    fn each_language_asks_in_requests_that_say_their_length() {
        let mut random = Random::new(3);
        for language in Language::value_variants() {
            for read in Read::MIX.into_iter().chain([Read::Devices, Read::Count]) {
                for shape in [Shape::Metrics, Shape::Fields] {
                    let there = There { scenario: &SCENARIO, device: 7, rows: 15_120 };
                    let Some(request) = language.request(&Ask::any(read, shape, there, &mut random)) else { continue };
                    let request = String::from_utf8(request).unwrap();
                    let (head, body) = request.split_once("\r\n\r\n").unwrap();
                    assert!(head.lines().next().unwrap().split(' ').count() == 3, "{head}");
                    assert!(body.is_empty() || head.contains(&format!("Content-Length: {}", body.len())));
                }
            }
        }
    }

    #[test]
    fn what_is_no_answer_is_shown() {
        for language in Language::value_variants() {
            let failure = language.found(Read::Sum, b"<html>no").unwrap_err().to_string();
            assert!(failure.contains("<html>no") && failure.contains("sum over 10 h"), "{failure}");
        }
    }
}
