//! `/api/v1/read`: Prometheus' remote read, by which a Prometheus asks for what it does not have itself.
//!
//! Both messages are blocks of snappy:
//! ```text
//! ReadRequest   1 queries*, 2 accepted types of answers*     Query   1 start, 2 end (milliseconds), 3 matchers*
//! Matcher       1 type (0 =, 1 !=, 2 =~, 3 !~), 2 name, 3 value
//! ReadResponse  1 results*, one for each query               Result  1 timeseries*
//! TimeSeries    1 labels* (1 name, 2 value), sorted, 2 samples* (1 value, 2 milliseconds), sorted
//! ```
//! An answer is of the type 0, samples; the type 1, chunks that are streamed, is Prometheus' own form of storage.
//!
//! May use: `pages`, `message`, the facade's `promql`. Must not know: expressions.

use std::fmt::Write as _;

use axum::http::HeaderValue;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use holdfast::Store;
use holdfast::series::promql::{Named, Selector};
use holdfast::series::{Points, Range, Reader, Source, ValueRef};

use super::refusal::Refusal;
use crate::http::handle::Asked;
use crate::http::message::{Field, NoMessage, field, put_bytes, put_double, put_integer};
use crate::http::pages::Whole;

/// Queries of one request: Prometheus sends one.
const QUERIES_MAX: usize = 100;
const NANOS_PER_MS: i64 = 1_000_000;
/// The type of answers that is given.
const SAMPLES: u64 = 0;

/// One question: a selector as PromQL writes it, and a range.
#[derive(Debug, PartialEq, Eq)]
struct Query {
    selector: String,
    range: Range,
}

pub(super) async fn read(asked: &Asked<'_>, body: Vec<u8>, database: String) -> Result<Response, Refusal> {
    let find = move |store: &Store| {
        let queries = request(&body)?;
        let reader = store.series().reader();
        let mut answer = Vec::new();
        for Query { selector, range } in &queries {
            let selector = Selector::parse(selector).map_err(|error| Refusal::bad(error.to_string()))?;
            let result = result(&reader, selector.find(&reader, &database)?, *range)?;
            reader.hold(result.len() as u64)?;
            put_bytes(&mut answer, 1, &result);
            reader.give_back(result.len() as u64);
        }
        reader.hold(answer.len() as u64)?;
        let bytes = snap::raw::Encoder::new().compress_vec(&answer);
        let bytes = bytes.map_err(|_| Refusal::execution("the answer is too long: ask for less at a time"))?;
        reader.settle()?;
        Ok::<_, Refusal>(Whole::new(bytes, reader))
    };
    let mut answer = asked.shared.query(find).await??.body().into_response();
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    Ok(answer)
}

/// The questions in a request.
fn request(body: &[u8]) -> Result<Vec<Query>, Refusal> {
    let none = |NoMessage| Refusal::bad("the body is no message prometheus.ReadRequest");
    let (mut text, mut queries, mut accepted) = (body, Vec::new(), Vec::new());
    while let Some((key, value)) = field(&mut text).map_err(none)? {
        match (key, value) {
            (1, Field::Bytes(one)) => queries.push(query(one).map_err(none)??),
            (2, Field::Varint(kind)) => accepted.push(kind),
            // Numbers that are repeated may be packed.
            (2, Field::Bytes(kinds)) => accepted.extend(kinds.iter().map(|kind| u64::from(*kind))),
            _ => {}
        }
        if queries.len() > QUERIES_MAX {
            return Err(Refusal::bad(format!("there are more than {QUERIES_MAX} queries")));
        }
    }
    if !accepted.is_empty() && !accepted.contains(&SAMPLES) {
        return Err(Refusal::bad("chunks are not sent here: accept answers of the type SAMPLES too"));
    }
    Ok(queries)
}

fn query(mut text: &[u8]) -> Result<Result<Query, Refusal>, NoMessage> {
    let (mut start, mut end, mut selector) = (0, 0, String::from("{"));
    while let Some((key, value)) = field(&mut text)? {
        match (key, value) {
            (1, Field::Varint(ms)) => start = ms.cast_signed(),
            (2, Field::Varint(ms)) => end = ms.cast_signed(),
            (3, Field::Bytes(matcher)) => {
                if let Err(refusal) = write_matcher(matcher, &mut selector)? {
                    return Ok(Err(refusal));
                }
            }
            _ => {}
        }
    }
    selector.push('}');
    let from = start.saturating_mul(NANOS_PER_MS);
    // All of the last millisecond.
    let to = end.saturating_mul(NANOS_PER_MS).saturating_add(NANOS_PER_MS - 1);
    if to < from {
        return Ok(Err(Refusal::bad("a query ends before it starts")));
    }
    Ok(Ok(Query { selector, range: Range { from, to } }))
}

/// Adds a matcher to a selector.
fn write_matcher(mut text: &[u8], selector: &mut String) -> Result<Result<(), Refusal>, NoMessage> {
    let (mut kind, mut name, mut value) = (0, &b""[..], &b""[..]);
    while let Some((key, found)) = field(&mut text)? {
        match (key, found) {
            (1, Field::Varint(found)) => kind = found,
            (2, Field::Bytes(bytes)) => name = bytes,
            (3, Field::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    let operator = match kind {
        0 => "=",
        1 => "!=",
        2 => "=~",
        3 => "!~",
        _ => return Ok(Err(Refusal::bad("the type of a matcher is not known"))),
    };
    let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
        return Ok(Err(Refusal::bad("a matcher is not UTF-8")));
    };
    let is_word = !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_word {
        return Ok(Err(Refusal::bad(format!("the label {name:?} cannot be asked for: its name is no word"))));
    }
    let _ = write!(selector, "{name}{operator}\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => selector.extend(['\\', character]),
            '\n' => selector.push_str("\\n"),
            _ => selector.push(character),
        }
    }
    selector.push_str("\",");
    Ok(Ok(()))
}

/// The result of one query.
fn result(reader: &Reader, found: Vec<Named>, range: Range) -> Result<Vec<u8>, Refusal> {
    let (mut result, mut series, mut part, mut points) = (Vec::new(), Vec::new(), Vec::new(), Points::new());
    for Named { labels, ids } in found {
        points.clear();
        for id in ids {
            reader.points(id, range, &mut points)?;
        }
        let bytes = points.memory_bytes() as u64;
        reader.hold(bytes)?;
        points.sort();
        series.clear();
        for (name, value) in labels.iter() {
            part.clear();
            put_bytes(&mut part, 1, name.as_bytes());
            put_bytes(&mut part, 2, value.as_bytes());
            put_bytes(&mut series, 1, &part);
        }
        let names_bytes = series.len();
        samples(&points, &mut part, &mut series);
        reader.give_back(bytes);
        if series.len() > names_bytes {
            reader.hold(series.len() as u64)?;
            put_bytes(&mut result, 1, &series);
        }
    }
    Ok(result)
}

/// Adds the numbers among points. Of those in one millisecond the last counts.
fn samples(points: &Points, part: &mut Vec<u8>, series: &mut Vec<u8>) {
    let mut last: Option<(i64, f64)> = None;
    let mut put = |(at, value): (i64, f64)| {
        part.clear();
        put_double(part, 1, value);
        put_integer(part, 2, at);
        put_bytes(series, 2, part);
    };
    for (time, value) in points.iter() {
        let number = match value {
            ValueRef::Boolean(value) => Some(f64::from(u8::from(value))),
            other => other.number(),
        };
        let Some(number) = number else { continue };
        let at = time.div_euclid(NANOS_PER_MS);
        if let Some(before) = last.filter(|(before, _)| *before != at) {
            put(before);
        }
        last = Some((at, number));
    }
    last.into_iter().for_each(put);
}

#[cfg(test)]
#[path = "remote_read_tests.rs"]
mod tests;
