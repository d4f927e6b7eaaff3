//! Why something is refused, as Prometheus says it.
//!
//! May use: the facade's errors, `json`. Must not know: routes.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdfast::ErrorKind;
use holdfast::series::{Missing, SeriesError};

use super::json;
use crate::http::failure::Failure;
use crate::http::handle::{JSON, with_type};

/// An answer that is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, text: impl Into<String>) -> Self {
        Self { status, kind, text: text.into() }
    }

    /// The request makes no sense.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", text)
    }

    /// The request makes sense, and what is stored does not let it be answered.
    pub(super) fn execution(text: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", text)
    }

    /// Some of what is asked for is damaged, and the answer could not say so.
    pub(super) fn damaged(missing: &Missing) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", missing.to_string())
    }

    /// It took too long.
    pub(super) fn late() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", "query timed out in expression evaluation")
    }

    /// A path or method that is not served.
    pub(super) fn unserved(status: StatusCode, text: &str) -> Self {
        let kind = if status == StatusCode::NOT_FOUND { "not_found" } else { "bad_data" };
        Self::new(status, kind, text)
    }

    pub(super) fn forbidden(database: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", format!("this user may not do this with the database {database}"))
    }
}

impl From<SeriesError> for Refusal {
    fn from(error: SeriesError) -> Self {
        match error {
            SeriesError::Late { .. } => {
                let text = format!("query timed out in expression evaluation: {error}");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", text)
            }
            SeriesError::Canceled => Self::new(StatusCode::SERVICE_UNAVAILABLE, "canceled", error.to_string()),
            SeriesError::Source { text } => Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", text),
            SeriesError::Malformed { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
            }
            _ => Self::execution(error.to_string()),
        }
    }
}

impl From<holdfast::Error> for Refusal {
    fn from(error: holdfast::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Invalid => "bad_data",
            ErrorKind::Limit => "execution",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Unavailable | ErrorKind::Closed | ErrorKind::Unknown => "unavailable",
            _ => "internal",
        };
        let text = error.to_string();
        let status = Failure::from(error).code();
        // Of what is too much, only what took too long is answered when there is time.
        let is_late = kind == "execution" && status == StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, if is_late { "timeout" } else { kind }, text)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::new(failure.code(), "unavailable", failure.text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut answer = with_type(JSON, json::error(self.kind, &self.text));
        *answer.status_mut() = self.status;
        answer
    }
}
