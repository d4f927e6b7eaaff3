//! What a question holds of the memory that all questions have together.
//!
//! May use: `source`. Must not know: how much there is.

use std::cell::Cell;

use crate::error::Result;
use crate::source::Source;

/// What one part of a question holds. Nobody has to give it back: a source that ends takes back what was held of it.
#[derive(Debug, Default)]
pub(crate) struct Held(Cell<u64>);

impl Held {
    /// How many bytes it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.get()
    }

    /// Says that it is so many bytes now.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] when there are not so many; what was held before still is.
    pub(crate) fn set(&self, source: &dyn Source, bytes: u64) -> Result<()> {
        let before = self.0.get();
        if bytes > before {
            source.hold(bytes - before)?;
        } else {
            source.give_back(before - bytes);
        }
        self.0.set(bytes);
        Ok(())
    }

    /// Says that it is so many bytes more.
    ///
    /// # Errors
    /// As [`Held::set`].
    pub(crate) fn add(&self, source: &dyn Source, bytes: u64) -> Result<()> {
        self.set(source, self.0.get().saturating_add(bytes))
    }

    /// Gives back what was added since it was so many bytes.
    pub(crate) fn back_to(&self, source: &dyn Source, bytes: u64) {
        let before = self.0.get();
        source.give_back(before.saturating_sub(bytes));
        self.0.set(before.min(bytes));
    }
}
