//! The answers of the HTTP door, and the paths under which they are.
//!
//! `/ping` and `/health` are for probes and need no password: they say nothing but how the server is. All else does when
//! there are users.
//!
//! May use: `guard`, `metrics`, `numbers`, axum. Must not know: sockets.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::guard::{authenticate, bound, unavailable};
use super::shared::Shared;
use super::{metrics, numbers};

const STALLED: &str = "the store does not answer: its disk may be stuck\n";

/// All paths.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route_layer(from_fn_with_state(Arc::clone(shared), authenticate))
        .route("/ping", get("OK\n"))
        .route("/health", get(health))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(map_response(uncached))
        .layer(from_fn_with_state(Arc::clone(shared), bound))
        .with_state(Arc::clone(shared))
}

/// No answer is of use later.
async fn uncached(mut answer: Response) -> Response {
    use axum::http::header::{CACHE_CONTROL, HeaderValue};
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "there is nothing here; there are /ping, /health, /metrics and /stats\n")
}

async fn not_allowed() -> (StatusCode, &'static str) {
    (StatusCode::METHOD_NOT_ALLOWED, "this can only be read: GET or HEAD\n")
}

/// Whether clients should be sent here: 200, or 503 with the reason.
async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let (code, status) = match shared.stats().await {
        Ok(stats) if stats.refuses_writes => (StatusCode::SERVICE_UNAVAILABLE, "refuses_writes"),
        Ok(_) => (StatusCode::OK, "ok"),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
    };
    json(code, &serde_json::json!({ "status": status }))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    match shared.snapshot().await {
        Ok(snapshot) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render(&snapshot)).into_response(),
        Err(_) => unavailable(STALLED),
    }
}

async fn stats(State(shared): State<Arc<Shared>>) -> Response {
    match shared.snapshot().await {
        Ok(snapshot) => json(StatusCode::OK, &numbers::render(&snapshot)),
        Err(_) => unavailable(STALLED),
    }
}

fn json(code: StatusCode, value: &serde_json::Value) -> Response {
    (code, [(CONTENT_TYPE, "application/json")], format!("{value:#}\n")).into_response()
}
