//! `/transactions`: beginning, operations within, commit and rollback of transactions that stay open.
//!
//! Operations are those of batches, and so are their answers; versions that come with the commit are null. Whatever fails within a
//! transaction rolls it back: what came before it in the same request has happened in it already, and half of it is none.
//!
//! May use: everything of the door but sockets.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::space::ReadLock;
use holdfast::{Durability, ErrorKind, Position, Store};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::answer::list;
use super::open::{Beginning, Open};
use super::operation::Operation;
use super::running::{Bounds, Objects, Running};
use super::{Fault, check_rights};
use crate::auth::User;
use crate::http::failure::Failure;
use crate::http::fields::Fields;
use crate::http::handle::{Asked, JSON, say_durability, with_type};
use crate::http::json_body::Becomes;
use crate::http::object::shown_at;
use crate::http::spaces::holding;
use crate::http::upload::Upload;

/// How long a transaction may hold locks unless it says otherwise.
const LEASE: Duration = Duration::from_secs(60);
/// How long a request waits for locked entries unless it says otherwise.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// What happened in a transaction, and what that rests on.
struct Shown {
    body: String,
    position: Position,
}

impl Asked<'_> {
    pub(crate) async fn begin_transaction(
        &self,
        user: Option<Arc<User>>,
        upload: &mut Upload,
    ) -> Result<Response, Failure> {
        let lease_max = self.shared.options.limits.transaction_lease_max;
        let read = move |text: &[u8]| beginning(text, lease_max);
        let ((lease, lock), _) = self.json(upload, Becomes::Values, read).await?;
        let id = self.shared.new_key();
        let beginning = Beginning { user: user.map(|user| user.name.clone()), lease, lock };
        self.shared.transactions.begin(&self.shared.store, &id, beginning)?;
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let body = json!({ "transaction": id, "lease_ms": lease_ms }).to_string();
        let mut answer = with_type(JSON, Body::from(body));
        *answer.status_mut() = StatusCode::CREATED;
        if let Ok(path) = HeaderValue::from_str(&format!("/transactions/{id}")) {
            answer.headers_mut().insert(LOCATION, path);
        }
        Ok(answer)
    }

    /// Whatever is wrong is told as it is of a batch.
    pub(crate) async fn within_transaction(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Response {
        self.try_within(user, upload).await.unwrap_or_else(Fault::into_response)
    }

    async fn try_within(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Result<Response, Fault> {
        let (shared, id) = (self.shared, self.transaction());
        let limits = &shared.options.limits;
        upload.check_present()?;
        let (operations_max, store) = (limits.batch_operations_max, shared.store.clone());
        let read = move |text: &[u8]| Ok(super::json::within(text, operations_max, &store).map(|it| (it, text.len())));
        let (read, share) = self.json(upload, Becomes::Values, read).await?;
        let ((operations, wait_ms), bytes) = read?;
        check_rights(user.as_deref(), &operations)?;
        // The answer has to come in its time.
        let lock_timeout = wait_ms.map_or(LOCK_TIMEOUT, Duration::from_millis).min(limits.answer_timeout / 2);
        let lock_until = Instant::now() + lock_timeout;
        let turn = self.lock_turn(lock_timeout).await;
        // Who goes away while it waits leaves it at rest.
        let mut open = shared.transactions.take(&id, user.as_ref().map(|user| &*user.name))?;
        let bounds = Bounds {
            entries: limits.page_entries_max,
            answer_bytes: limits.documents_bytes_max,
            end: Instant::now() + limits.answer_timeout,
            lock: open.lock,
            lock_until: turn.is_some().then_some(lock_until),
        };
        let (here, bytes_max) = (Arc::clone(shared), limits.transaction_bytes_max);
        let things_max = limits.batch_operations_max;
        let act = move |store: &Store| {
            let _turn = turn;
            let done = open.carry_out(store, operations, bytes, &bounds);
            let done = done
                .and_then(|shown| open.count(&here.budget, things_max, bytes_max).map(|()| shown).map_err(Fault::from));
            match done {
                Ok(_) => here.transactions.give_back(&id, open),
                Err(_) => here.transactions.forget(&id),
            }
            done
        };
        let durability = shown_at(shared.store.durability());
        match shared.ask(holding(share, act)).await.map_err(Failure::from)? {
            Ok(Shown { body, position }) => {
                shared.durable(position, durability).await?;
                Ok(with_type(JSON, Body::from(body)))
            }
            Err(fault) => {
                if let Some((position, durability)) = fault.rests_on {
                    shared.durable(position, durability).await?;
                }
                Err(fault)
            }
        }
    }

    /// A turn among those whose threads may wait for locks, so that they leave some to those who could let go. Who gets none in time
    /// does not wait for locks either.
    async fn lock_turn(&self, lock_timeout: Duration) -> Option<OwnedSemaphorePermit> {
        if lock_timeout.is_zero() {
            return None;
        }
        timeout(lock_timeout, Arc::clone(&self.shared.lock_turns).acquire_owned()).await.ok()?.ok()
    }

    pub(crate) async fn commit_transaction(&self, user: Option<Arc<User>>) -> Result<Response, Failure> {
        let (shared, id, durability) = (self.shared, self.transaction(), self.durability()?);
        let open = shared.transactions.take(&id, user.as_ref().map(|user| &*user.name))?;
        shared.transactions.forget(&id);
        let here = Arc::clone(shared);
        let committed = shared.ask(move |store| commit(*open, store, &here.points)).await?;
        let (position, durability, failure) = match committed {
            Ok(position) => (position, durability, None),
            Err((failure, position)) => (position, Durability::Synced, Some(failure)),
        };
        shared.durable(position, durability).await?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let body = json!({ "position": format!("{:016x}", position.get()) }).to_string();
        Ok(say_durability(with_type(JSON, Body::from(body)), durability))
    }

    pub(crate) fn roll_back_transaction(&self, user: Option<Arc<User>>) -> Result<Response, Failure> {
        let (transactions, id) = (&self.shared.transactions, self.transaction());
        transactions.roll_back(&id, user.as_ref().map(|user| &*user.name))?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    fn transaction(&self) -> String {
        String::from_utf8_lossy(self.captured(0)).into_owned()
    }
}

/// The lease and the lock of reads that a body says.
fn beginning(text: &[u8], lease_max: Duration) -> Result<(Duration, ReadLock), Failure> {
    let mut fields = Fields::parse(if text.is_empty() { b"{}" } else { text })?;
    let lease = match fields.number("lease_ms")? {
        None => LEASE.min(lease_max),
        Some(ms) if (1..=lease_max.as_millis()).contains(&u128::from(ms)) => Duration::from_millis(ms),
        Some(_) => return Err(Failure::bad(format!("lease_ms is from 1 to {}", lease_max.as_millis()))),
    };
    let lock = match fields.text("isolation")?.as_deref() {
        None | Some("repeatable") => ReadLock::Shared,
        Some("committed") => ReadLock::None,
        Some("exclusive") => ReadLock::Exclusive,
        Some(_) => return Err(Failure::bad("isolation is one of committed, repeatable, exclusive")),
    };
    fields.end()?;
    Ok((lease, lock))
}

impl Open {
    /// Carries operations out, from a body of so many bytes.
    fn carry_out(
        &mut self,
        store: &Store,
        operations: Vec<Operation>,
        bytes: usize,
        bounds: &Bounds,
    ) -> Result<Shown, Fault> {
        // An ended lease is nothing that passes.
        self.transaction.check().map_err(|error| Failure::new(StatusCode::CONFLICT, error.to_string()))?;
        if operations.iter().any(|it| matches!(it, Operation::Points(_))) {
            self.points_bytes += bytes;
        }
        let mut answers = Vec::with_capacity(operations.len());
        let mut running = Running {
            store,
            bounds,
            objects: Objects::Watched,
            transaction: &mut self.transaction,
            rows: &mut self.rows,
            types: std::collections::BTreeMap::new(),
            own: &mut self.own,
            left_bytes: bounds.answer_bytes,
        };
        for (number, operation) in operations.into_iter().enumerate() {
            let answer = running.step(operation).map_err(|failure| {
                let newest = Position::new(store.watermarks().appended.get().saturating_sub(1));
                let rests_on = Some((newest, shown_at(store.durability())));
                Fault { rests_on, ..Fault::of(number)(failure) }
            })?;
            answers.push(answer);
        }
        let body = format!("{{\"answers\":{}}}", list(&answers, None));
        Ok(Shown { body, position: self.transaction.seen() })
    }
}

/// Commits it, and waits for nothing. With what it fails by comes what that rests on.
fn commit(open: Open, store: &Store, counts: &crate::numbers::PointCounts) -> Result<Position, (Failure, Position)> {
    let Open { mut transaction, rows, .. } = open;
    let points = rows.len();
    if points > 0 {
        store.series().make_room(points).map_err(|error| (error.into(), Position::ZERO))?;
    }
    let seen = transaction.seen();
    *transaction.points() = rows;
    let committed = transaction.commit_no_wait().map_err(|error| {
        let rests_on = error.rests_on().unwrap_or(seen);
        let failure = match error.kind() {
            ErrorKind::Conflict => Failure::new(StatusCode::CONFLICT, error.to_string()),
            ErrorKind::Timeout => Failure::new(StatusCode::CONFLICT, error.to_string()),
            _ => error.into(),
        };
        (failure, rests_on)
    })?;
    if points > 0 {
        counts.written.fetch_add(points as u64, Relaxed);
        counts.batches.fetch_add(1, Relaxed);
    }
    Ok(committed.position.max(seen))
}
