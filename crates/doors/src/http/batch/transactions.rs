//! `/transactions`: beginning, operations within, commit and rollback of transactions that stay open.
//!
//! Operations are those of batches, and so are their answers; versions that come with the commit are null. Whatever fails within a
//! transaction rolls it back: what came before it in the same request has happened in it already, and half of it is none.
//!
//! May use: everything of the door but sockets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::space::{NotThrough, ReadLock};
use holdfast::{Durability, ErrorKind, Position, Store};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::answer::{Answer, list};
use super::open::{Beginning, Open, Transactions, let_go};
use super::operation::Operation;
use super::running::{Bounds, Objects, Running};
use super::{Fault, check_rights};
use crate::auth::User;
use crate::budget::Share;
use crate::http::failure::Failure;
use crate::http::fields::Fields;
use crate::http::handle::{Asked, JSON, say_durability, with_type};
use crate::http::json_body::Becomes;
use crate::http::object::shown_at;
use crate::http::showing::{Otherwise, Text};
use crate::http::upload::Upload;
use crate::numbers::PointCounts;

/// How long a transaction may hold locks unless it says otherwise.
const LEASE: Duration = Duration::from_secs(60);
/// How long a request waits for locked entries unless it says otherwise.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long who would wait for a lock, and has no turn to, waits for one before it looks again.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const NOT_FOUND: StatusCode = StatusCode::NOT_FOUND;

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

    /// Whatever is wrong is told as it is of a batch, with whether the transaction goes on.
    pub(crate) async fn within_transaction(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Response {
        self.try_within(user, upload).await.unwrap_or_else(Fault::into_response)
    }

    async fn try_within(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Result<Response, Fault> {
        self.check_known(user.as_deref())?;
        // What is not begun changes nothing.
        let still = |fault: Fault| Fault { open: Some(true), ..fault };
        let (asked, share) = self.asked_within(user.as_deref(), upload).await.map_err(still)?;
        let open = self.take(user.as_deref())?;
        let ended = |fault: Fault| Fault { open: Some(false), ..fault };
        self.carry_out(
            Held { transactions: &self.shared.transactions, id: self.transaction(), open: Some(open) },
            asked,
            share,
        )
        .await
        .map_err(ended)
    }

    /// What the request asks for, which its user may.
    async fn asked_within(&self, user: Option<&User>, upload: &mut Upload) -> Result<(Steps, Share), Fault> {
        let limits = &self.shared.options.limits;
        upload.check_present()?;
        let (operations_max, store) = (limits.batch_operations_max, self.shared.store.clone());
        let read = move |text: &[u8]| Ok(super::json::within(text, operations_max, &store).map(|it| (it, text.len())));
        let (read, share) = self.json(upload, Becomes::Values, read).await?;
        let ((operations, wait_ms), bytes) = read?;
        check_rights(user, &operations)?;
        // The answer has to come in its time.
        let lock_timeout = wait_ms.map_or(LOCK_TIMEOUT, Duration::from_millis).min(limits.answer_timeout / 2);
        let lock_until = (!lock_timeout.is_zero()).then(|| Instant::now() + lock_timeout);
        let (left, answers) = (operations.into(), Vec::new());
        let left_bytes = limits.documents_bytes_max;
        Ok((Steps { left, answers, bytes, left_bytes, is_waiting: false, lock_until }, share))
    }

    /// Does what is asked for. Where it would wait for a lock it goes on in a turn among those that may, so that these leave threads to
    /// those who could let go; as long as it has none it looks again now and then.
    async fn carry_out(&self, mut held: Held<'_>, mut steps: Steps, mut share: Share) -> Result<Response, Fault> {
        let shared = self.shared;
        let limits = &shared.options.limits;
        let (things_max, bytes_max) = (limits.batch_operations_max, limits.transaction_bytes_max);
        let mut bounds = Bounds {
            entries: limits.page_entries_max,
            answer_bytes: limits.documents_bytes_max,
            end: Instant::now() + limits.answer_timeout,
            lock: held.open.as_ref().map_or(ReadLock::Shared, |open| open.lock),
            lock_until: None,
        };
        let position = loop {
            let turn = match steps.lock_until.filter(|_| steps.is_waiting) {
                None => None,
                Some(until) => self.lock_turn(until).await,
            };
            bounds.lock_until = steps.lock_until.filter(|_| turn.is_some());
            let (here, mut open) = (Arc::clone(shared), held.open.take().expect("it is put back behind each step"));
            let act = move |store: &Store| {
                let _turn = turn;
                let went = open.go_on(store, &mut steps, bounds);
                let counted = went.and_then(|goes_on| {
                    open.count(&here.budget, things_max, bytes_max)?;
                    Ok(goes_on)
                });
                (counted, open, steps, share)
            };
            let (counted, open);
            (counted, open, steps, share) = shared.ask(act).await.map_err(Failure::from)?;
            let position = open.transaction.seen();
            held.open = Some(open);
            match counted {
                Ok(GoesOn::Done) => break position,
                Ok(GoesOn::WouldWait) => {}
                Err(fault) => {
                    if let Some((position, durability)) = fault.rests_on {
                        shared.durable(position, durability).await?;
                    }
                    return Err(fault);
                }
            }
        };
        let durability = shown_at(shared.store.durability());
        shared.durable(position, durability).await?;
        drop(share);
        held.give_back();
        let bytes = limits.documents_bytes_max.saturating_sub(steps.left_bytes);
        let show = move |text: &mut Text| text.add(&format!("{{\"answers\":{}}}", list(&steps.answers, None)));
        Ok(with_type(JSON, shared.show((bytes, Otherwise::Show), show).await?))
    }

    /// A turn among those whose threads may wait for locks; `None` when there is none for a while.
    async fn lock_turn(&self, until: Instant) -> Option<OwnedSemaphorePermit> {
        let wait = until.saturating_duration_since(Instant::now()).min(LOOK_INTERVAL);
        timeout(wait, Arc::clone(&self.shared.lock_turns).acquire_owned()).await.ok()?.ok()
    }

    /// Whatever is wrong is told as it is of operations.
    pub(crate) async fn commit_transaction(&self, user: Option<Arc<User>>) -> Response {
        self.try_commit(user).await.unwrap_or_else(Fault::into_response)
    }

    async fn try_commit(&self, user: Option<Arc<User>>) -> Result<Response, Fault> {
        self.check_known(user.as_deref())?;
        let durability = self.durability().map_err(|failure| Fault { open: Some(true), ..failure.into() })?;
        let through = self.through().map_err(|failure| Fault { open: Some(true), ..failure.into() })?;
        let open = self.take(user.as_deref())?;
        let (shared, here) = (self.shared, Arc::clone(self.shared));
        shared.transactions.forget(&self.transaction());
        let ended = |failure: Failure| Fault { open: Some(false), ..failure.into() };
        if let Some(wait) = through {
            return self.commit_through(open, durability, wait).await.map_err(ended);
        }
        let act = move |store: &Store| commit(*open, (store, &here.points), durability);
        let committed = shared.ask(act).await.map_err(|stalled| ended(stalled.into()))?;
        let (position, durability, failure) = match committed {
            Ok(position) => (position, durability, None),
            Err((failure, (position, durability))) => (position, durability, Some(failure)),
        };
        shared.durable(position, durability).await.map_err(ended)?;
        if let Some(failure) = failure {
            return Err(ended(failure));
        }
        let body = json!({ "position": format!("{:016x}", position.get()) }).to_string();
        Ok(say_durability(with_type(JSON, Body::from(body)), durability))
    }

    /// How long the commit waits for the table that it is to be written through, if it is.
    fn through(&self) -> Result<Option<Duration>, Failure> {
        // One that is misspelled would be committed without.
        let known = ["durability", "through_ms"];
        let is_unknown = |name: &[u8]| !known.iter().any(|known| name == known.as_bytes());
        if let Some((name, _)) = self.query.pairs().find(|(name, _)| is_unknown(name)) {
            let name = String::from_utf8_lossy(name);
            return Err(Failure::bad(format!("a commit takes durability and through_ms, not {name}")));
        }
        let Some(ms) = self.query.number("through_ms")? else { return Ok(None) };
        // The answer has to come in its time.
        let most = self.shared.options.limits.answer_timeout / 2;
        if (1..=most.as_millis()).contains(&u128::from(ms)) {
            return Ok(Some(Duration::from_millis(ms)));
        }
        Err(Failure::bad(format!("through_ms is from 1 to {}", most.as_millis())))
    }

    async fn commit_through(
        &self,
        open: Box<Open>,
        durability: Durability,
        wait: Duration,
    ) -> Result<Response, Failure> {
        let (shared, until) = (self.shared, Instant::now() + wait);
        let turn = timeout(wait, Arc::clone(&shared.table_turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            let_go(open);
            return Err(Failure::unavailable(
                "nothing was changed: too many others wait for their tables; begin again",
            ));
        };
        let here = Arc::clone(shared);
        let act = move |store: &Store| {
            let _turn = turn;
            let left = until.saturating_duration_since(Instant::now());
            commit_through(*open, (store, &here.points), durability, left)
        };
        let (position, behind) = shared.ask(act).await??;
        let mut body = json!({ "position": format!("{:016x}", position.get()) });
        let is_behind = behind.is_some();
        if let Some(why) = behind {
            body["behind"] = json!(why);
        }
        let mut answer = say_durability(with_type(JSON, Body::from(body.to_string())), durability);
        if is_behind {
            *answer.status_mut() = StatusCode::ACCEPTED;
        }
        Ok(answer)
    }

    fn check_known(&self, user: Option<&User>) -> Result<(), Fault> {
        let known = self.shared.transactions.check_known(&self.transaction(), user.map(|user| &*user.name));
        known.map_err(|failure| Fault { open: Some(false), ..failure.into() })
    }

    fn take(&self, user: Option<&User>) -> Result<Box<Open>, Fault> {
        let open = self.shared.transactions.take(&self.transaction(), user.map(|user| &*user.name));
        open.map_err(|failure| Fault { open: Some(failure.code() != NOT_FOUND), ..failure.into() })
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

/// What is left of a request, and what was done of it.
struct Steps {
    left: VecDeque<Operation>,
    answers: Vec<Answer>,
    /// Of the body that it came in, until its points are counted.
    bytes: usize,
    /// How much may be read yet.
    left_bytes: usize,
    /// The next operation was tried, and has to wait for a lock.
    is_waiting: bool,
    /// Until when it may wait for locks.
    lock_until: Option<Instant>,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    Done,
    /// The next operation has to wait for a lock.
    WouldWait,
}

/// A transaction in the hands of a request: rolled back unless it is given back, also when the request's client goes away.
struct Held<'a> {
    transactions: &'a Transactions,
    id: String,
    /// Not there while a thread has it.
    open: Option<Box<Open>>,
}

impl Held<'_> {
    fn give_back(mut self) {
        if let Some(open) = self.open.take() {
            self.transactions.give_back(&self.id, open);
            self.id.clear();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // It has been given back; no transaction is called nothing.
        if self.id.is_empty() {
            return;
        }
        self.transactions.forget(&self.id);
        self.open.take().into_iter().for_each(let_go);
    }
}

impl Open {
    /// Goes on with a request as far as it goes without waiting, or with waiting where `bounds` have a time for that.
    fn go_on(&mut self, store: &Store, steps: &mut Steps, bounds: Bounds) -> Result<GoesOn, Fault> {
        // An ended lease is nothing that passes.
        self.transaction.check().map_err(|error| Failure::new(StatusCode::CONFLICT, error.to_string()))?;
        if steps.left.iter().any(|it| matches!(it, Operation::Points(_))) {
            self.points_bytes += std::mem::take(&mut steps.bytes);
        }
        steps.is_waiting = false;
        let may_wait_later =
            bounds.lock_until.is_none() && steps.lock_until.is_some_and(|until| Instant::now() < until);
        let mut running = Running {
            store,
            bounds,
            objects: Objects::Watched,
            transaction: &mut self.transaction,
            rows: &mut self.rows,
            types: BTreeMap::new(),
            own: &mut self.own,
            left_bytes: steps.left_bytes,
            has_met_lock: false,
        };
        while let Some(operation) = steps.left.pop_front() {
            let again = (may_wait_later && operation.may_wait()).then(|| operation.clone());
            let went = running.step(operation);
            steps.left_bytes = running.left_bytes;
            let would_wait = std::mem::take(&mut running.has_met_lock) || went.as_ref().is_err_and(Failure::is_locked);
            if let Some(again) = again.filter(|_| would_wait) {
                steps.left.push_front(again);
                steps.is_waiting = true;
                return Ok(GoesOn::WouldWait);
            }
            steps.answers.push(went.map_err(|failure| {
                let newest = Position::new(store.watermarks().appended.get().saturating_sub(1));
                let rests_on = Some((newest, shown_at(store.durability())));
                Fault { rests_on, ..Fault::of(steps.answers.len())(failure) }
            })?);
        }
        Ok(GoesOn::Done)
    }
}

/// Commits it, and waits for nothing. With what it fails by comes what that rests on, and how durable that has to be.
fn commit(
    open: Open,
    (store, counts): (&Store, &PointCounts),
    asked: Durability,
) -> Result<Position, (Failure, (Position, Durability))> {
    let Open { mut transaction, rows, .. } = open;
    let points = rows.len();
    if points > 0 {
        store.series().make_room(points).map_err(|error| (error.into(), (Position::ZERO, asked)))?;
    }
    let seen = transaction.seen();
    *transaction.points() = rows;
    let committed = transaction.commit_no_wait().map_err(|error| {
        let rests_on = (error.rests_on().unwrap_or(seen), error.told_at(shown_at(asked)));
        (refused(error), rests_on)
    })?;
    count_points(counts, points);
    Ok(committed.position.max(seen))
}

/// What a commit fails by: a transaction that is over cannot be tried again.
fn refused(error: holdfast::Error) -> Failure {
    match error.kind() {
        ErrorKind::Conflict | ErrorKind::Timeout => Failure::new(StatusCode::CONFLICT, error.to_string()),
        _ => error.into(),
    }
}

fn count_points(counts: &PointCounts, points: usize) {
    if points > 0 {
        counts.written.fetch_add(points as u64, Relaxed);
        counts.batches.fetch_add(1, Relaxed);
    }
}

/// Commits it once its table has taken it, and waits until it is as durable as asked. With its position comes why the table is behind, if it is.
fn commit_through(
    open: Open,
    (store, counts): (&Store, &PointCounts),
    durability: Durability,
    wait: Duration,
) -> Result<(Position, Option<String>), Failure> {
    let Open { mut transaction, rows, .. } = open;
    let (points, seen) = (rows.len(), transaction.seen());
    *transaction.points() = rows;
    let (position, behind) = match transaction.commit_through(durability, wait) {
        Ok(committed) => (committed.position, None),
        Err(NotThrough::TableBehind { committed, reason }) => (committed.position, Some(reason.to_string())),
        Err(NotThrough::Nothing(error)) => {
            // What was read before it failed may be told by that.
            store.wait(seen, durability)?;
            let failure = refused(error);
            let text = format!("nothing was changed: {}", failure.text());
            return Err(Failure::new(failure.code(), text));
        }
        Err(unknown) => return Err(Failure::unavailable(unknown.to_string())),
    };
    count_points(counts, points);
    store.wait(seen, durability)?;
    Ok((position.max(seen), behind))
}
