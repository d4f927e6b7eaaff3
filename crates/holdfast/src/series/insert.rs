//! SELECT INTO: what a statement selects is written.
//!
//! May use: `write`, the engine's language. Must not know: protocols.

use ::series::influxql::{self, Env, Statement};
use ::series::{Error as SeriesError, Result as SeriesResult, Rows};
use journal::Position;

use super::{Series, Written};
use crate::error::{Error, ErrorKind, Result};

/// What a SELECT INTO has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// Its newest batch: wait for it ([`crate::Store::wait`]) before telling anybody.
    pub position: Position,
    /// Rows.
    pub rows: u64,
}

impl Series {
    /// Carries a SELECT INTO out while `may_go_on`; other statements do nothing. Does not wait for durability. It is as many batches
    /// as it takes: those of a statement that fails stay, and points that are refused are no reason not to write the others.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses, `Closed` when it may not go on. The inner error is what the statement is to blame for,
    /// types of values that are in the way included; `Source` there is what could not be read.
    pub fn insert(
        &self,
        env: &Env<'_>,
        statement: &Statement,
        may_go_on: &dyn Fn() -> bool,
    ) -> Result<SeriesResult<Inserted>> {
        let (mut position, mut failed) = (Position::ZERO, None);
        let (mut refusal, mut dropped) = (None, 0);
        let mut write = |rows: &mut Rows| {
            let written = if may_go_on() {
                self.write(rows)
            } else {
                Err(Error::new(ErrorKind::Closed, "the statement was ended before it was done"))
            };
            match written {
                Ok(Written { position: at, refused, .. }) => {
                    position = at;
                    dropped += refused.iter().map(|refused| refused.points).sum::<u64>();
                    refusal = refusal.take().or_else(|| refused.into_iter().next());
                    Ok(())
                }
                Err(error) => {
                    let text = error.to_string();
                    failed = Some(error);
                    Err(SeriesError::Source { text })
                }
            }
        };
        let inserted = influxql::insert(env, statement, &mut write);
        if let Some(error) = failed {
            return Err(error);
        }
        if let (Ok(_), Some(first)) = (&inserted, refusal) {
            let text = format!("partial write: {} dropped={dropped}", first.reason);
            return Ok(Err(SeriesError::invalid(text)));
        }
        Ok(inserted.map(|rows| Inserted { position, rows }))
    }
}
