//! Asks now and then whether a search among very many names goes on.
//!
//! May use: nothing. Must not know: why it would not.

use std::cell::Cell;
use std::ops::ControlFlow;

/// Work between two questions, in bytes of names: some hundred names, or milliseconds of a regular expression that takes long.
const STRETCH_BYTES: usize = 16 << 10;
/// What a name counts beside its bytes.
const NAME_BYTES: usize = 64;

/// Breaks when a search ends.
pub(crate) type GoOn<'a> = &'a dyn Fn() -> ControlFlow<()>;

/// Watches one search.
pub(crate) struct Watch<'a> {
    go_on: GoOn<'a>,
    left: Cell<usize>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(go_on: GoOn<'a>) -> Self {
        Self { go_on, left: Cell::new(STRETCH_BYTES) }
    }

    /// Another name was looked at. Breaks when the search ends.
    pub(crate) fn pass(&self, name: &str) -> ControlFlow<()> {
        match self.left.get().checked_sub(NAME_BYTES + name.len()) {
            Some(left) => self.left.set(left),
            None => {
                (self.go_on)()?;
                self.left.set(STRETCH_BYTES);
            }
        }
        ControlFlow::Continue(())
    }
}
