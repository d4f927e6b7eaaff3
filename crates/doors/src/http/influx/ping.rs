//! `/ping`, which is asked by two families of clients: Riak's want 200 and `OK`, InfluxDB's 204; and what InfluxDB's want of `/health`.
//!
//! May use: `handle`. Must not know: the store.

use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::say_version;
use crate::http::handle::{Asked, JSON, with_type};

/// How the agents of InfluxDB's clients begin, in lower case.
const AGENTS: [&str; 5] = ["influx", "telegraf", "chronograf", "kapacitor", "grafana"];

/// Answers a ping. InfluxDB's clients are known by HEAD, by parameters that only they send, by their names, and the Python client,
/// which has none, by headers that it sends without need.
pub(crate) fn ping(asked: &Asked<'_>) -> Response {
    let verbose = asked.query.get("verbose");
    let mut answer = if verbose.is_some_and(|value| !matches!(value, b"false" | b"0")) {
        with_type(JSON, format!("{}\n", json!({ "version": super::VERSION })))
    } else if verbose.is_some() || asked.query.get("wait_for_leader").is_some() || is_influx(asked.parts) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        "OK\n".into_response()
    };
    say_version(answer.headers_mut());
    answer
}

/// What `/health` says to clients of InfluxDB 2, which take nothing else for an answer; `None` to everybody else.
pub(crate) fn health(parts: &Parts, status: &str, is_well: bool) -> Option<Value> {
    let (word, message) = if is_well { ("pass", "ready for queries and writes") } else { ("fail", status) };
    let said = json!({"name": "influxdb", "message": message, "status": word, "checks": [], "version": super::VERSION});
    header(parts, USER_AGENT).starts_with("influx").then_some(said)
}

fn header(parts: &Parts, name: HeaderName) -> String {
    let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
    value.map(str::to_ascii_lowercase).unwrap_or_default()
}

fn is_influx(parts: &Parts) -> bool {
    let header = |name| header(parts, name);
    let agent = header(USER_AGENT);
    let is_python = agent.starts_with("python-requests")
        && (header(CONTENT_TYPE).starts_with("application/x-www-form-urlencoded")
            || header(ACCEPT).contains("application/x-msgpack"));
    parts.method == Method::HEAD || is_python || AGENTS.iter().any(|name| agent.starts_with(name))
}
