//! What clients of InfluxDB 1.x ask: InfluxQL, pings.
//!
//! Parameters come in the query or, as a form, in the body, which counts before the query. Answers and refusals are JSON as InfluxDB
//! has it, and every one says the version of InfluxDB that it is like: clients look for that.
//!
//! May use: the facade's `series`, `handle`, `table`, `upload`. Must not know: sockets.

mod leaving;
mod params;
mod ping;
mod query;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use holdfast::series::influxql::error_document;

use super::failure::Failure;
use super::handle::{Asked, JSON, with_type};
use super::table::{Access, Operation as Any, Route, Verb};
use super::upload::Upload;
use crate::auth::User;

pub(crate) use ping::{health, ping};

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Query,
}

const QUERY: &[&str] = &["q", "db", "rp", "epoch", "pretty", "chunked", "chunk_size", "params", "u", "p", "durability"];

/// Every route.
pub(crate) static ROUTES: &[Route] = &[
    Route {
        verb: Verb::Get,
        path: "/query",
        operation: Any::Influx(Operation::Query),
        access: Access::User,
        summary: "Carries InfluxQL out.",
        query: QUERY,
        statuses: &[200, 400],
    },
    Route {
        verb: Verb::Post,
        path: "/query",
        operation: Any::Influx(Operation::Query),
        access: Access::User,
        summary: "Carries InfluxQL out; the parameters may be a form.",
        query: QUERY,
        statuses: &[200, 400],
    },
];

/// The version of InfluxDB that answers are like.
const VERSION: &str = "1.8.10";

/// Carries a request out.
pub(crate) async fn run(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let mut answer = match operation {
        Operation::Query => query::query(asked, user, upload).await?,
    };
    say_version(answer.headers_mut());
    Ok(answer)
}

fn say_version(headers: &mut HeaderMap) {
    headers.insert(HeaderName::from_static("x-influxdb-version"), HeaderValue::from_static(VERSION));
    headers.insert(HeaderName::from_static("x-influxdb-build"), HeaderValue::from_static("OSS"));
}

/// A refusal in InfluxDB's form.
pub(crate) fn refused(status: StatusCode, text: &str) -> Response {
    let mut answer = with_type(JSON, error_document(text));
    *answer.status_mut() = status;
    // What is no header's value is said in the body alone.
    if let Ok(text) = HeaderValue::from_str(text) {
        answer.headers_mut().insert(HeaderName::from_static("x-influxdb-error"), text);
    }
    answer
}
