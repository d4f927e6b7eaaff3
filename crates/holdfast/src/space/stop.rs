//! When work on many entries ends though it is not done: it takes too long, or nobody waits for it any more.
//!
//! May use: `cancel`, clocks. Must not know: operations.

use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Time};

use super::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result};

/// Work between two looks, in bytes of documents: some ten microseconds, or milliseconds of a condition that takes long.
const STRETCH_BYTES: usize = 64 << 10;
/// What a document counts at least.
const DOCUMENT_BYTES: usize = 256;

/// When operations that go through entries end though they are not done: see [`Entries::until`](super::Entries::until). Questions about
/// time series too: see [`Reader::until`](crate::series::Reader::until).
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// How long one operation may go through entries, or one question work; `None` is as long as that takes. Waiting for an entry, a lock or a sync does not
    /// count.
    pub time_max: Option<Duration>,
    /// Ends them from another thread.
    pub cancel: Option<Cancel>,
    /// Ends them by what the caller counts; of operations on entries alone.
    pub go_on: Option<GoOn>,
}

/// Whether an operation may go on: asked between stretches of its work, by each thread that works, of which there may be two at once.
#[derive(Clone)]
pub struct GoOn(Arc<dyn Fn() -> bool + Send + Sync>);

impl GoOn {
    /// As long as this is true.
    pub fn new(may: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may))
    }
}

impl fmt::Debug for GoOn {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("GoOn")
    }
}

/// Watches one operation.
pub(crate) struct Watch<'a> {
    stop: &'a Stop,
    clock: &'a dyn Clock,
    ends: Option<Time>,
    left: Cell<usize>,
}

impl Stop {
    const NEVER: &'static Self = &Self { time_max: None, cancel: None, go_on: None };

    /// An operation begins.
    pub(crate) fn watch<'a>(&'a self, clock: &'a dyn Clock) -> Watch<'a> {
        let ends = self.time_max.map(|time| clock.now().after(time));
        Watch { stop: self, clock, ends, left: Cell::new(STRETCH_BYTES) }
    }
}

impl<'a> Watch<'a> {
    /// Of an operation that always comes to its end.
    pub(crate) fn never(clock: &'a dyn Clock) -> Self {
        Stop::NEVER.watch(clock)
    }

    /// The same operation, in another thread.
    pub(crate) fn beside(&self) -> Self {
        Self { left: Cell::new(STRETCH_BYTES), ..*self }
    }

    /// Whether the operation may go on.
    ///
    /// # Errors
    /// `Timeout` when it was canceled, `Limit` when its time is over, or it may not go on.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stop.cancel.as_ref().is_some_and(Cancel::is_canceled) {
            return Err(Error::new(ErrorKind::Timeout, "the query was ended: nobody waits for its answer any more"));
        }
        if self.ends.is_some_and(|ends| self.clock.now() >= ends) {
            let seconds = self.stop.time_max.unwrap_or_default().as_secs_f64();
            let text = format!(
                "the query was ended after {seconds} s: ask for less by an index, a routing value or LIMIT, or raise \
                 space.query_seconds_max"
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
        if self.stop.go_on.as_ref().is_some_and(|go_on| !(go_on.0)()) {
            return Err(Error::new(
                ErrorKind::Limit,
                "the query was ended: what it is a part of has worked for too long",
            ));
        }
        Ok(())
    }

    /// As [`Watch::check`], for a search, which is asked the same again behind it.
    pub(crate) fn go_on(&self) -> ControlFlow<()> {
        if self.check().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// As [`Watch::check`] after so many documents and bytes, so that it costs nothing to be called for each.
    pub(crate) fn pass(&self, bytes: usize) -> Result<()> {
        match self.left.get().checked_sub(DOCUMENT_BYTES.saturating_add(bytes)) {
            Some(left) => self.left.set(left),
            None => {
                self.check()?;
                self.left.set(STRETCH_BYTES);
            }
        }
        Ok(())
    }
}
