//! What the server is and how: `/`, `/health`, `/metrics`, `/stats`.
//!
//! May use: `shared`, `influx`, `metrics`, `numbers`, axum. Must not know: objects.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::failure::Failure;
use super::shared::Shared;
use super::{influx, metrics, numbers};

/// Whether clients should be sent here: 200, or 503 with the reason.
pub(crate) async fn health(shared: &Shared, parts: &Parts) -> Response {
    let (code, status) = match shared.stats().await {
        Ok(stats) if stats.refuses_writes => (StatusCode::SERVICE_UNAVAILABLE, "refuses_writes"),
        Ok(_) => (StatusCode::OK, "ok"),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
    };
    let of_influx = influx::health(parts, status, code == StatusCode::OK);
    json(code, &of_influx.unwrap_or_else(|| serde_json::json!({ "status": status })))
}

pub(crate) async fn metrics(shared: &Arc<Shared>) -> Result<Response, Failure> {
    let snapshot = shared.snapshot().await?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render(&snapshot)).into_response())
}

pub(crate) async fn stats(shared: &Arc<Shared>) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &numbers::render(&shared.snapshot().await?)))
}

/// What this is, for who comes without knowing.
pub(crate) fn welcome(version: &str) -> Response {
    let text = format!(
        "Holdfast {version}: keys and values, spaces of objects and time series.\n\
         /openapi.json says what there is here, /health how the server is, /metrics and /stats its numbers.\n"
    );
    text.into_response()
}

/// JSON for people to read too.
pub(crate) fn json(code: StatusCode, value: &Value) -> Response {
    (code, [(CONTENT_TYPE, "application/json")], format!("{value:#}\n")).into_response()
}
