//! Where a transaction lies between its operations, which take it out one at a time.
//!
//! May use: `remote`, the facade. Must not know: operations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast::space::Cancel;
use holdfast::{Error, ErrorKind, Result};

use crate::remote::Alone;

/// Where a transaction is.
pub(super) enum State {
    Here(Box<holdfast::Transaction>),
    There(Box<Alone>),
    Busy,
    Ended,
    /// Ended, because its connection broke.
    Broken,
}

/// Where it lies while no operation has it.
#[derive(Clone)]
pub(super) struct Slot(Arc<Mutex<State>>);

impl Slot {
    pub(super) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.lock(), State::Ended | State::Broken)
    }

    pub(super) fn is_broken(&self) -> bool {
        matches!(*self.lock(), State::Broken)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in it, for one operation.
    pub(super) fn take(&self) -> Result<(State, Away)> {
        let mut slot = self.lock();
        match std::mem::replace(&mut *slot, State::Busy) {
            State::Busy => {
                let text = "an operation of this transaction is under way: wait for its answer first";
                Err(Error::new(ErrorKind::Invalid, text))
            }
            ended @ (State::Ended | State::Broken) => {
                *slot = ended;
                let text = "the transaction has ended, and was rolled back unless it was committed: begin again";
                Err(Error::new(ErrorKind::Invalid, text))
            }
            state => Ok((state, Away { slot: self.clone(), cancel: Cancel::new() })),
        }
    }
}

/// What is done with what was taken out of the slot. Dropping it without putting that back ends the transaction.
pub(super) struct Away {
    slot: Slot,
    /// Ends what waits.
    pub(super) cancel: Cancel,
}

impl Away {
    pub(super) fn put(self, state: State) {
        *self.slot.lock() = state;
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let mut slot = self.slot.lock();
        if matches!(*slot, State::Busy) {
            *slot = State::Ended;
        }
        drop(slot);
        self.cancel.cancel();
    }
}
