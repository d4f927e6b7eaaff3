//! When a refusal may be told: once what it rests on is as durable as answers are to be.
//!
//! May use: `error`, `durability`, the store. Must not know: what was refused.

use journal::Log;

use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::store::Store;

impl Error {
    /// How durable what it rests on has to be, for who wants answers as durable as `asked`. What became of a distributed transaction
    /// is told when it is synced, whatever was asked.
    #[must_use]
    pub fn told_at(&self, asked: Durability) -> Durability {
        if self.is_final() { Durability::Synced } else { asked }
    }
}

impl Store {
    /// Hands on what a call came to that waits for durability: a refusal when what it rests on is as durable as answers are to be.
    pub(crate) fn told<T>(&self, result: Result<T>, durability: Durability) -> Result<T> {
        if let Err(error) = &result
            && let Some(position) = error.rests_on()
        {
            self.inner().journal.wait(position, error.told_at(durability).read_level())?;
        }
        result
    }
}
