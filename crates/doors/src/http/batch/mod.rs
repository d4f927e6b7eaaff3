//! `POST /batch`: operations on entries, objects and points that happen together or not at all, as one batch of the journal.
//!
//! `json` reads them, `run` carries them out. Who asks may have rights to some places only, so these are looked at here, for each
//! operation, before any happens. What goes wrong is told with the number of the operation.
//!
//! May use: everything of the door but sockets.

mod json;
mod operation;
mod run;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::{Durability, Position, Store};
use serde_json::json;

use self::run::Bounds;
use super::failure::{Failure, RETRY_SECONDS};
use super::handle::{Asked, JSON, say_durability, with_type};
use super::object::shown_at;
use super::upload::Upload;
use crate::auth::User;

/// What a body takes of memory when it is read, by its length: names and numbers are larger in memory than as text.
const READ_FACTOR: usize = 4;

/// Why a batch did not happen.
#[derive(Debug)]
struct Fault {
    /// The first operation that failed, from 0 on; `None` when that was found when all was put together.
    operation: Option<usize>,
    failure: Failure,
    /// What that rests on, and how durable it is to be before it is told.
    rests_on: Option<(Position, Durability)>,
}

impl Fault {
    fn of(operation: usize) -> impl Fn(Failure) -> Self {
        move |failure| Fault { operation: Some(operation), failure, rests_on: None }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Fault { operation: None, failure, rests_on: None }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, error) = self.failure.into_parts();
        let body = json!({ "operation": self.operation, "error": error });
        let mut answer = (status, [(CONTENT_TYPE, JSON)], body.to_string()).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        answer
    }
}

/// A batch that happened.
struct Done {
    position: Position,
    durability: Durability,
    body: Vec<u8>,
}

impl Asked<'_> {
    pub(crate) async fn batch(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Result<Response, Failure> {
        let shared = self.shared;
        let limits = &shared.options.limits;
        let bounds = Bounds {
            operations: limits.batch_operations_max,
            entries: limits.page_entries_max,
            answer_bytes: limits.documents_bytes_max,
            end: Instant::now() + limits.answer_timeout,
        };
        upload.limit(limits.batch_body_bytes_max)?;
        upload.check_present()?;
        let body = upload.read().await?;
        let mut share = upload.take_share();
        let all = usize::try_from(shared.options.limits.bodies_bytes_max).unwrap_or(usize::MAX);
        shared.budget.grow(&mut share, (READ_FACTOR * body.len()).min(all))?;
        let (own, here) = (self.durability()?, Arc::clone(shared));
        let named = self.query.get("durability").is_some();
        let act = move |store: &Store| {
            let _share = share;
            let (operations, asked) = json::batch(&body, bounds.operations)?;
            drop(body);
            let durability = match asked {
                Some(_) if named => {
                    return Err(Failure::bad("durability stands in the path and in the body: one is enough").into());
                }
                Some(name) => here.durability(name.as_bytes())?,
                None => own,
            };
            check_rights(user.as_deref(), &operations)?;
            run::run(store, &here.points, operations, durability, &bounds)
        };
        match shared.ask(act).await? {
            Ok(Done { position, durability, body }) => {
                shared.durable(position, durability).await?;
                Ok(say_durability(with_type(JSON, Body::from(body)), durability))
            }
            Err(fault) => {
                // What it was refused by may not vanish either.
                if let Some((position, durability)) = fault.rests_on {
                    shared.durable(position, shown_at(durability)).await?;
                }
                Ok(fault.into_response())
            }
        }
    }
}

fn check_rights(user: Option<&User>, operations: &[operation::Operation]) -> Result<(), Fault> {
    let Some(user) = user else { return Ok(()) };
    for (number, operation) in operations.iter().enumerate() {
        for (right, place) in operation.needs() {
            if !user.may(right, place) {
                let text = "this user may not do this with this bucket, space or database";
                return Err(Fault::of(number)(Failure::new(StatusCode::FORBIDDEN, text)));
            }
        }
    }
    Ok(())
}
