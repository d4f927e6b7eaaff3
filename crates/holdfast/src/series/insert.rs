//! SELECT INTO: what a statement selects is written.
//!
//! May use: `write`, the engine's language. Must not know: protocols.

use ::series::influxql::{self, Env, Statement};
use ::series::{Error as SeriesError, Result as SeriesResult, Rows};
use journal::Position;

use super::{Series, Written};
use crate::error::Result;

/// What a SELECT INTO has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// Its newest batch: wait for it ([`crate::Store::wait`]) before telling anybody.
    pub position: Position,
    /// Rows.
    pub rows: u64,
}

impl Series {
    /// Carries a SELECT INTO out; other statements do nothing. Does not wait for durability. It is as many batches as it takes:
    /// those of a statement that fails stay.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses. The inner error is what the statement is to blame for, types of values that are in
    /// the way included.
    pub fn insert(&self, env: &Env<'_>, statement: &Statement) -> Result<SeriesResult<Inserted>> {
        let (mut position, mut failed) = (Position::ZERO, None);
        let mut write = |rows: &mut Rows| match self.write(rows) {
            Ok(Written { position: at, refused, .. }) => {
                position = at;
                let Some(first) = refused.first() else { return Ok(()) };
                let dropped: u64 = refused.iter().map(|refused| refused.points).sum();
                Err(SeriesError::invalid(format!("partial write: {} dropped={dropped}", first.reason)))
            }
            Err(error) => {
                let text = error.to_string();
                failed = Some(error);
                Err(SeriesError::Source { text })
            }
        };
        let inserted = influxql::insert(env, statement, &mut write);
        match failed {
            Some(error) => Err(error),
            None => Ok(inserted.map(|rows| Inserted { position, rows })),
        }
    }
}
