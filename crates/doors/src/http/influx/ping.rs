//! `/ping`, which is asked by two families of clients: Riak's want 200 and `OK`, InfluxDB's 204.
//!
//! May use: `handle`. Must not know: the store.

use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

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

fn is_influx(parts: &Parts) -> bool {
    let header = |name| {
        let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_ascii_lowercase).unwrap_or_default()
    };
    let agent = header(USER_AGENT);
    let is_python = agent.starts_with("python-requests")
        && (header(CONTENT_TYPE).starts_with("application/x-www-form-urlencoded")
            || header(ACCEPT).contains("application/x-msgpack"));
    parts.method == Method::HEAD || is_python || AGENTS.iter().any(|name| agent.starts_with(name))
}
