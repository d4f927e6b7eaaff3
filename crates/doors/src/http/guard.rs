//! What stands before every answer: is the body too large, who asks, does the answer take too long, how did it end.
//!
//! May use: `auth`, `credentials`, axum. Must not know: what is answered.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::credentials::{self, Credentials};
use super::shared::Shared;
use crate::auth::User;

/// The name of this door in users' lists of doors.
const DOOR: &str = "http";

/// Counts every answer, and makes one when it takes too long or the body is too large.
pub(crate) async fn bound(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let answer = if body_bytes(&request).is_some_and(|bytes| bytes > shared.options.limits.body_bytes_max) {
        let text = format!("a body holds at most {} bytes\n", shared.options.limits.body_bytes_max);
        // The body is not read, so the connection cannot go on.
        (StatusCode::PAYLOAD_TOO_LARGE, [(CONNECTION, "close")], text).into_response()
    } else {
        // Asking the store has its own time, which ends first and says more.
        let time = shared.options.limits.answer_timeout * 2;
        timeout(time, next.run(request)).await.unwrap_or_else(|_| unavailable("it took too long\n"))
    };
    shared.answers.count(answer.status().as_u16());
    answer
}

/// The length that the client announces; a body in chunks announces none and is bounded when it is read.
fn body_bytes(request: &Request) -> Option<u64> {
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Lets in who may come through this door.
pub(crate) async fn authenticate(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if !shared.options.users.is_required() {
        return next.run(request).await;
    }
    let given = request.headers().get(AUTHORIZATION).and_then(|value| credentials::parse(value.as_bytes()));
    let user = match given {
        Some(given) => verify(&shared, given).await,
        None => None,
    };
    match user {
        None => unauthorized(),
        Some(user) if user.may_enter(DOOR) => next.run(request).await,
        Some(_) => (StatusCode::FORBIDDEN, "this user may not use HTTP\n").into_response(),
    }
}

/// Verifies at once what was verified before, and else in a thread that may take its time: argon2 is slow on purpose.
async fn verify(shared: &Shared, given: Credentials) -> Option<Arc<User>> {
    let users = Arc::clone(&shared.options.users);
    if let Some(user) = users.verify_cached(&given.name, &given.password) {
        return Some(user);
    }
    tokio::task::spawn_blocking(move || users.verify(&given.name, &given.password)).await.ok().flatten()
}

fn unauthorized() -> Response {
    let mut answer = (StatusCode::UNAUTHORIZED, "name and password, please\n").into_response();
    for challenge in ["Basic realm=\"holdfast\", charset=\"UTF-8\"", "Bearer realm=\"holdfast\""] {
        answer.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    answer
}

/// 503, with a hint to come back.
pub(crate) fn unavailable(text: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], text).into_response()
}
