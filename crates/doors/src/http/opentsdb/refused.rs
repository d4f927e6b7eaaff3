//! Errors as OpenTSDB tells them: `{"error":{"code":400,"message":"...","details":"..."}}`.
//!
//! May use: `failure`, the facade's errors, axum. Must not know: routes.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdfast::series::{SeriesError, opentsdb};

use super::super::failure::Failure;

pub(super) const JSON: &str = "application/json; charset=UTF-8";

/// A refusal in OpenTSDB's form, of something that is no question.
pub(crate) fn refused(status: StatusCode, message: &str, details: &str) -> Response {
    let body = opentsdb::error_document(status.as_u16(), message, details);
    (status, [(CONTENT_TYPE, JSON)], body).into_response()
}

/// Why a question is not answered.
#[derive(Debug)]
pub(super) struct Refused(Failure);

impl Refused {
    pub(super) fn forbidden(database: &str) -> Self {
        Refused(Failure::new(StatusCode::FORBIDDEN, format!("this user may not do this with the database {database}")))
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Refused(failure)
    }
}

impl From<holdfast::Error> for Refused {
    fn from(error: holdfast::Error) -> Self {
        Refused(error.into())
    }
}

impl From<SeriesError> for Refused {
    fn from(error: SeriesError) -> Self {
        Refused(match error {
            SeriesError::Invalid { .. } | SeriesError::Missing { .. } | SeriesError::Limit { .. } => {
                Failure::bad(opentsdb::message(&error))
            }
            _ => holdfast::Error::from(error).into(),
        })
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        // The status, and `Retry-After` where it belongs, are those of every answer that is not what was asked for.
        let (status, text) = self.0.clone().into_parts();
        let mut answer = self.0.into_response();
        let details = match status.is_client_error() {
            true => "see docs/reference/opentsdb.md for what may be asked",
            false => "the server could not answer; its log may tell more",
        };
        *answer.body_mut() = opentsdb::error_document(status.as_u16(), &text, details).into();
        answer.headers_mut().insert(CONTENT_TYPE, axum::http::HeaderValue::from_static(JSON));
        answer
    }
}
