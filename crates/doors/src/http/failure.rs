//! Why a request fails: a status, and a sentence for people.
//!
//! May use: the facade's error, axum. Must not know: routes.

use std::borrow::Cow;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::ErrorKind;

use crate::setting;

/// Seconds after which a client may try again what cannot be done now.
pub(crate) const RETRY_SECONDS: &str = "5";
/// What the journal's error says when the disk has no space: there is no kind of its own for it.
const NO_SPACE: &str = "no space left";
/// What the conflict of those says that wait for each other: it is no condition that does not hold.
const DEADLOCK: &str = "a deadlock";
/// What the errors of queries say whose time is over: as little.
const TIME_OVER: [&str; 2] = ["raise space.query_seconds_max", "raise series.query_seconds_max"];

/// An answer that is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    status: StatusCode,
    text: Cow<'static, str>,
    /// Whether the same request may be answered otherwise in a moment.
    passes: bool,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        Failure { status, text: text.into(), passes: status == StatusCode::SERVICE_UNAVAILABLE }
    }

    /// 400: the request makes no sense.
    pub(crate) fn bad(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, text)
    }

    /// 404.
    pub(crate) fn not_found() -> Self {
        Failure::new(StatusCode::NOT_FOUND, "not found")
    }

    /// 404, of what others rest on.
    pub(crate) fn missing(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::new(StatusCode::NOT_FOUND, text)
    }

    /// 409: a transaction has locked the entry, nobody knows any more which.
    pub(crate) fn locked() -> Self {
        Failure { passes: true, ..Failure::new(StatusCode::CONFLICT, "a transaction has locked the entry; try again") }
    }

    /// 412: a condition in the headers does not hold.
    pub(crate) fn precondition() -> Self {
        Failure::new(StatusCode::PRECONDITION_FAILED, "the object is not in the state that the condition asks for")
    }

    /// 503, with a hint to come back.
    pub(crate) fn unavailable(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// Whether a transaction has locked what is asked for.
    pub(crate) fn is_locked(&self) -> bool {
        self.passes && self.status == StatusCode::CONFLICT
    }

    /// Status and sentence, for protocols that tell them in a form of their own.
    pub(crate) fn into_parts(self) -> (StatusCode, Cow<'static, str>) {
        (self.status, self.text)
    }

    /// The status, for answers that say it in their own form.
    pub(crate) fn code(&self) -> StatusCode {
        self.status
    }

    /// What is wrong.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.status.as_u16()
    }
}

impl From<holdfast::Error> for Failure {
    fn from(error: holdfast::Error) -> Self {
        let text = setting::told(&error);
        let status = match error.kind() {
            ErrorKind::Conflict if text.starts_with(DEADLOCK) => StatusCode::CONFLICT,
            ErrorKind::Conflict => StatusCode::PRECONDITION_FAILED,
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Limit if TIME_OVER.iter().any(|over| text.ends_with(over)) => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Limit => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Unavailable if text.contains(NO_SPACE) => StatusCode::INSUFFICIENT_STORAGE,
            // Nothing of the store's own takes too long but the lock of a transaction; the text may say whose it is.
            ErrorKind::Timeout => {
                return Failure { passes: true, ..Failure::new(StatusCode::CONFLICT, format!("{text}; try again")) };
            }
            ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Closed => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Failure::new(status, text)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut answer = (self.status, format!("{}\n", self.text)).into_response();
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.passes {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        answer
    }
}
