//! `POST /batch`: operations on entries, objects and points that happen together or not at all, as one batch of the journal.
//!
//! `json` reads them, `run` carries them out. `transactions` does so step by step, in one of those that stay `open`. Who asks may have rights to some places only, so these are looked at here, for each
//! operation, before any happens. What goes wrong is told with the number of the operation.
//!
//! May use: everything of the door but sockets.

mod answer;
mod json;
mod noted;
mod open;
mod operation;
mod run;
mod running;
mod transactions;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::space::ReadLock;
use holdfast::{Durability, Position, Store};
use serde_json::json;

pub(crate) use self::open::Transactions;
use self::running::Bounds;
use super::failure::Failure;
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::object::shown_at;
use super::showing::Sent;
use super::spaces::holding;
use super::upload::Upload;
use crate::auth::User;

/// Why a batch did not happen.
#[derive(Debug)]
struct Fault {
    /// The first operation that failed, from 0 on; `None` when that was found when all was put together.
    operation: Option<usize>,
    failure: Failure,
    /// What that rests on, and how durable it is to be before it is told.
    rests_on: Option<(Position, Durability)>,
    /// Of what is asked for in a transaction that stays open: whether it goes on.
    open: Option<bool>,
}

impl Fault {
    fn of(operation: usize) -> impl Fn(Failure) -> Self {
        move |failure| Fault { operation: Some(operation), failure, rests_on: None, open: None }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Fault { operation: None, failure, rests_on: None, open: None }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut body = json!({ "operation": self.operation, "error": self.failure.text() });
        if let Some(open) = self.open {
            body["open"] = json!(open);
        }
        let body = body.to_string();
        let mut answer = self.failure.into_response();
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        *answer.body_mut() = Body::from(body);
        answer
    }
}

/// A batch that happened.
struct Done {
    position: Position,
    durability: Durability,
    body: Sent,
}

impl Asked<'_> {
    /// Whatever is wrong with a batch is told in one form.
    pub(crate) async fn batch(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Response {
        self.try_batch(user, upload).await.unwrap_or_else(Fault::into_response)
    }

    async fn try_batch(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Result<Response, Fault> {
        let shared = self.shared;
        let limits = &shared.options.limits;
        let operations_max = limits.batch_operations_max;
        let bounds = Bounds {
            entries: limits.page_entries_max,
            answer_bytes: limits.documents_bytes_max,
            end: Instant::now() + limits.answer_timeout,
            lock: ReadLock::Shared,
            lock_until: None,
        };
        upload.check_present()?;
        let (own, here) = (self.durability()?, Arc::clone(shared));
        let named = self.query.get("durability").is_some();
        let store = shared.store.clone();
        let read = move |text: &[u8]| Ok(json::batch(text, operations_max, &store));
        let (read, share) = self.json(upload, Becomes::Values, read).await?;
        let (operations, asked) = read?;
        let act = move |store: &Store| {
            let durability = match asked {
                Some(_) if named => {
                    return Err(Failure::bad("durability stands in the path and in the body: one is enough").into());
                }
                Some(name) => here.durability(name.as_bytes())?,
                None => own,
            };
            check_rights(user.as_deref(), &operations)?;
            run::run(store, &here, operations, durability, &bounds)
        };
        match shared.ask(holding(share, act)).await.map_err(Failure::from)? {
            Ok(Done { position, durability, body }) => {
                shared.durable(position, durability).await?;
                Ok(say_durability(with_type(JSON, body), durability))
            }
            Err(fault) => {
                // What it was refused by may not vanish either.
                if let Some((position, durability)) = fault.rests_on {
                    shared.durable(position, shown_at(durability)).await?;
                }
                Err(fault)
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
