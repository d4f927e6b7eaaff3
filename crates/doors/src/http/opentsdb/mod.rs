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

use std::sync::Arc;

use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use super::handle::Asked;
use super::upload::Upload;
use crate::auth::User;
use asking::{Asking, Form};
pub(crate) use routes::{Operation, ROUTES};

/// Carries a request out. Errors are told in OpenTSDB's form.
pub(crate) async fn run(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let form = match operation {
        Operation::PostQuery | Operation::PostLast | Operation::PostSuggest | Operation::PostLookup => Form::Body,
        Operation::PostAssign => Form::Body,
        Operation::DeleteQuery if upload.check_present().is_ok() => Form::BodyOrParameters,
        _ => Form::Parameters,
    };
    let answer = async {
        let asking = Asking::new(asked, user, form, upload).await?;
        match operation {
            Operation::Query | Operation::PostQuery => asking.query(Default::default()).await,
            Operation::DeleteQuery => asking.query(holdfast::series::opentsdb::Afterwards::Delete).await,
            Operation::Last | Operation::PostLast => asking.last().await,
            Operation::Suggest | Operation::PostSuggest => asking.suggest().await,
            Operation::Lookup | Operation::PostLookup => asking.lookup().await,
            Operation::Assign | Operation::PostAssign => asking.assign(),
            Operation::Aggregators => Ok(about::aggregators()),
            Operation::Config => Ok(about::config()),
            Operation::Filters => Ok(about::filters()),
            Operation::Version => Ok(about::version(&asked.shared.options.version)),
            Operation::Stats => Ok(about::stats(&asked.shared.snapshot().await.map_err(Failure::from)?)),
        }
    };
    Ok(answer.await.unwrap_or_else(IntoResponse::into_response))
}
