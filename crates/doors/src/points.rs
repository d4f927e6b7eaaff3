//! What a door that takes points needs of the store: a seam, so that tests can see what is written, and make it fail.
//!
//! May use: the facade, `durable`. Must not know: protocols.

use holdfast::series::{Rows, Written};
use holdfast::{Durability, Position, Store};

use crate::durable::Waits;

/// Takes points.
pub(crate) trait Writes: Send + Sync + 'static {
    /// Writes points as one batch, and clears `rows`. See [`holdfast::series::Series::write`].
    fn write(&self, rows: &mut Rows) -> holdfast::Result<Written>;
    /// Blocks until `position` is as durable as asked.
    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()>;
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

impl Writes for Store {
    fn write(&self, rows: &mut Rows) -> holdfast::Result<Written> {
        self.series().write(rows)
    }

    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()> {
        Waits::wait(self, position, durability)
    }

    fn now_ms(&self) -> u64 {
        Store::now_ms(self)
    }
}

/// Milliseconds as nanoseconds, since 1970.
pub(crate) fn nanos(ms: u64) -> i64 {
    i64::try_from(ms).ok().and_then(|ms| ms.checked_mul(1_000_000)).unwrap_or(i64::MAX)
}
