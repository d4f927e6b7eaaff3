//! Transactions that stay open from one request of a client to the next.
//!
//! ```text
//!   begun --> at rest --a request--> under way --it is done--> at rest
//!                |                       |
//!                |                       '--it fails--> rolled back
//!                '--committed, rolled back, or its lease ends--> gone
//! ```
//!
//! Each is known by an id that nobody guesses, to the user who began it. One request at a time is let at it. What they hold in memory is
//! taken from what all bodies may take.
//!
//! May use: the facade, tokio's timer, `budget`. Must not know: HTTP's messages, JSON, what operations do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use holdfast::series::Rows;
use holdfast::space::ReadLock;
use holdfast::{Store, Transaction};
use tokio::task::AbortHandle;

use super::running::Own;
use crate::budget::{Budget, Share};
use crate::http::failure::Failure;

/// What an entry that was changed takes in [`Own`], with its names.
const OWN_BYTES: usize = 160;

/// The open transactions of a door.
pub(crate) struct Transactions {
    by_id: Mutex<BTreeMap<String, Slot>>,
    max: usize,
}

struct Slot {
    user: Option<String>,
    /// Not there while a request is under way in it.
    at_rest: Option<Box<Open>>,
    /// Ends it with its lease.
    lease: AbortHandle,
}

/// An open transaction.
pub(super) struct Open {
    pub(super) transaction: Transaction,
    /// Its points.
    pub(super) rows: Rows,
    pub(super) own: Own,
    /// How entries are locked that are read.
    pub(super) lock: ReadLock,
    /// Bytes of what its points came in: no less than the texts among them take.
    pub(super) points_bytes: usize,
    share: Share,
}

/// How one begins.
pub(super) struct Beginning {
    pub(super) user: Option<String>,
    pub(super) lease: Duration,
    pub(super) lock: ReadLock,
}

impl Transactions {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Transactions { by_id: Mutex::default(), max })
    }

    /// Begins one that is known by `id`.
    ///
    /// # Errors
    /// 503 when there are too many.
    pub(super) fn begin(self: &Arc<Self>, store: &Store, id: &str, beginning: Beginning) -> Result<(), Failure> {
        let Beginning { user, lease, lock } = beginning;
        let mut by_id = self.lock();
        if by_id.len() >= self.max {
            let text = format!("{} transactions are open over HTTP, which is the most: end some", self.max);
            return Err(Failure::unavailable(text));
        }
        // What others are told who wait for it in vain: not enough to take part in it.
        let name = format!("{} over HTTP", id.get(..8).unwrap_or_default());
        let transaction = store.begin().with_name(&name).with_lease(lease).joining();
        let (rows, own, share) = (Rows::new("default"), Own::new(), Share::default());
        let open = Open { transaction, rows, own, lock, points_bytes: 0, share };
        let (table, known) = (Arc::clone(self), id.to_owned());
        let ends = tokio::spawn(async move {
            tokio::time::sleep(lease).await;
            table.forget(&known);
        });
        let slot = Slot { user, at_rest: Some(Box::new(open)), lease: ends.abort_handle() };
        by_id.insert(id.to_owned(), slot);
        Ok(())
    }

    /// That this user has it.
    ///
    /// # Errors
    /// 404 when not.
    pub(super) fn check_known(&self, id: &str, user: Option<&str>) -> Result<(), Failure> {
        let is_known = self.lock().get(id).is_some_and(|slot| slot.user.as_deref() == user);
        if is_known { Ok(()) } else { Err(none()) }
    }

    /// Takes one for a request, which gives it back or lets it go.
    ///
    /// # Errors
    /// 404 when this user has no such transaction, 409 when another request is under way in it.
    pub(super) fn take(&self, id: &str, user: Option<&str>) -> Result<Box<Open>, Failure> {
        let mut by_id = self.lock();
        let slot = by_id.get_mut(id).filter(|slot| slot.user.as_deref() == user).ok_or_else(none)?;
        slot.at_rest.take().ok_or_else(busy)
    }

    /// Puts one back that was taken. One that is gone meanwhile is rolled back.
    pub(super) fn give_back(&self, id: &str, open: Box<Open>) {
        match self.lock().get_mut(id) {
            Some(slot) => slot.at_rest = Some(open),
            None => let_go(open),
        }
    }

    /// Rolls one back. One that a request is under way in is rolled back when that is done.
    ///
    /// # Errors
    /// 404 when this user has no such transaction.
    pub(super) fn roll_back(&self, id: &str, user: Option<&str>) -> Result<(), Failure> {
        self.check_known(id, user)?;
        self.forget(id);
        Ok(())
    }

    /// Knows it no longer.
    pub(super) fn forget(&self, id: &str) {
        let Some(slot) = self.lock().remove(id) else { return };
        slot.lease.abort();
        slot.at_rest.into_iter().for_each(let_go);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Counts what it holds: keys and entries, and memory.
    ///
    /// # Errors
    /// 413 when that is more than `things_max` or `bytes_max`, 503 when so much memory is not there now.
    pub(super) fn count(&mut self, budget: &Budget, things_max: usize, bytes_max: usize) -> Result<(), Failure> {
        let (things, bytes) = self.transaction.held();
        if things > things_max {
            let text = format!("a transaction reads, changes or locks {things_max} keys and entries at the most");
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let own: usize = self.own.iter().map(|(space, of, key)| OWN_BYTES + space.len() + of.len() + key.len()).sum();
        let held = bytes.saturating_add(self.points_bytes + self.rows.bytes()).saturating_add(own);
        if held > bytes_max {
            let text = format!("what a transaction over HTTP changes takes {bytes_max} bytes of memory at the most");
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        Ok(budget.grow(&mut self.share, held)?)
    }
}

/// Rolls it back, in a thread: it may hold much.
pub(super) fn let_go(open: Box<Open>) {
    drop(tokio::task::spawn_blocking(move || drop(open)));
}

fn none() -> Failure {
    let text = "there is no such transaction: it has ended, or its lease has, or the server was started since; whether it was committed \
                is known by reading";
    Failure::new(StatusCode::NOT_FOUND, text)
}

fn busy() -> Failure {
    Failure::new(StatusCode::CONFLICT, "another request is under way in this transaction: one at a time")
}
