//! What OpenTSDB's clients ask: queries, last points, look-ups, suggestions, deletion, and how the server is.
//!
//! `routes` is the table, `refused` how errors are told, `asking` what each question takes from a request and which threads answer
//! it, `about` what is the same whatever the points. Everything else is the facade's `series::opentsdb`.
//!
//! May use: the facade's `series`, `handle`, `table`, `upload`. Must not know: sockets.

mod about;
mod asking;
mod refused;
mod routes;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_grafana;

use std::sync::Arc;

use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use super::handle::Asked;
use super::upload::Upload;
use crate::auth::User;
use asking::{Asking, Asks, Form};
use holdfast::series::opentsdb::Afterwards;
pub(crate) use refused::refused;
pub(crate) use routes::{Operation, ROUTES};

/// Carries a request out. Errors are told in OpenTSDB's form.
pub(crate) async fn run(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let answer = async {
        let (asking, form) = match operation {
            Operation::Aggregators => return Ok(about::aggregators()),
            Operation::Config => return Ok(about::config()),
            Operation::Filters => return Ok(about::filters()),
            Operation::Version => return Ok(about::version(&asked.shared.options.version)),
            Operation::Stats => return Ok(about::stats(&asked.shared.snapshot().await.map_err(Failure::from)?)),
            Operation::Query => (Asks::Query(Afterwards::Keep), Form::Parameters),
            Operation::PostQuery => (Asks::Query(Afterwards::Keep), Form::Body),
            Operation::DeleteQuery => (Asks::Query(Afterwards::Delete), Form::BodyOrParameters),
            Operation::Last => (Asks::Last, Form::Parameters),
            Operation::PostLast => (Asks::Last, Form::Body),
            Operation::Suggest => (Asks::Suggest, Form::Parameters),
            Operation::PostSuggest => (Asks::Suggest, Form::Body),
            Operation::Lookup => (Asks::Lookup, Form::Parameters),
            Operation::PostLookup => (Asks::Lookup, Form::Body),
            Operation::Assign => (Asks::Assign, Form::Parameters),
            Operation::PostAssign => (Asks::Assign, Form::Body),
        };
        Asking::new(asked, user, form)?.answer(asking, upload).await
    };
    Ok(answer.await.unwrap_or_else(IntoResponse::into_response))
}
