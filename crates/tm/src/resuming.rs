//! Requests to resume a transaction, by their numbers: one whose answer was lost, or that nobody waited for any more, is asked again
//! under the number that it had. Then the coordinator says that this program holds the transaction, if it does.
//!
//! A number is out while its request is: so of two calls at a time each has one of its own, and one of them is refused.
//!
//! May use: `decisions`. Must not know: where the coordinator is, what is done with a transaction.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xa::TransactionId;

use crate::decisions::{ErrorKind, Result, next_resumer};

/// So many are remembered; what was asked longest ago goes first, and is as if another program had resumed it.
const UNANSWERED_MAX: usize = 1024;

/// The requests of a coordinator's program that were not answered.
#[derive(Default)]
pub(crate) struct Resuming(Mutex<BTreeMap<u64, TransactionId>>);

/// A request that is under way. Dropping it leaves it unanswered.
pub(crate) struct Request<'a> {
    resuming: &'a Resuming,
    id: TransactionId,
    number: u64,
    is_answered: bool,
}

impl Resuming {
    fn unanswered(&self) -> MutexGuard<'_, BTreeMap<u64, TransactionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number for a request: that of an earlier one of which nobody knows what came of it, or a new one.
    pub(crate) fn begin(&self, id: TransactionId) -> Request<'_> {
        let mut unanswered = self.unanswered();
        let number = unanswered.iter().find(|(_, asked)| **asked == id).map(|(number, _)| *number);
        let number = number.inspect(|number| _ = unanswered.remove(number)).unwrap_or_else(next_resumer);
        Request { resuming: self, id, number, is_answered: false }
    }
}

impl Request<'_> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What the coordinator said.
    pub(crate) fn answered(mut self, answer: &Result<()>) {
        let is_lost = |kind| matches!(kind, ErrorKind::Unavailable | ErrorKind::Unknown);
        self.is_answered = !matches!(answer, Err(error) if is_lost(error.kind));
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let mut unanswered = self.resuming.unanswered();
        unanswered.insert(self.number, self.id);
        if unanswered.len() > UNANSWERED_MAX {
            unanswered.pop_first();
        }
    }
}
