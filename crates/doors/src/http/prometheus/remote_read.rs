//! `/api/v1/read`: Prometheus' remote read, by which a Prometheus asks for what it does not have itself.
//!
//! Both messages are blocks of snappy. `read_request` reads the one; this is the other:
//! ```text
//! ReadResponse  1 results*, one for each query
//! Result        1 timeseries*
//! TimeSeries    1 labels* (1 name, 2 value), sorted, 2 samples* (1 value, 2 milliseconds), sorted
//! ```
//!
//! May use: `read_request`, `pages`, `message`, the facade's `promql`. Must not know: expressions.

use axum::http::HeaderValue;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use holdfast::Store;
use holdfast::series::promql::{Named, Selector};
use holdfast::series::{Points, Range, Reader, Source, Stop, ValueRef};

use super::read_request::{self, Query};
use super::refusal::Refusal;
use crate::http::handle::Asked;
use crate::http::message::{put_bytes, put_double, put_integer};
use crate::http::pages::Whole;

const NANOS_PER_MS: i64 = 1_000_000;

pub(super) async fn read(asked: &Asked<'_>, body: Vec<u8>, database: String) -> Result<Response, Refusal> {
    let find = move |store: &Store, stop: Stop| {
        let queries = read_request::queries(&body).map_err(Refusal::bad)?;
        let reader = store.series().reader().until(stop);
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
        // The answer has no room for warnings; Prometheus shows an error as one, beside what it has itself.
        if let Some(missing) = reader.missing() {
            return Err(Refusal::damaged(&missing));
        }
        reader.settle()?;
        Ok::<_, Refusal>(Whole::new(bytes, reader))
    };
    let mut answer = asked.question(find).await??.body().into_response();
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    Ok(answer)
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
