//! SELECT INTO: what a statement selects is written.
//!
//! May use: `write`, the engine's language. Must not know: protocols.

use ::series::influxql::{self, ContinuousQuery, Env, Statement};
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

/// As long as what a SELECT INTO goes on.
#[derive(Clone, Copy)]
pub struct GoOn<'a> {
    /// It is a run of this continuous query, and ends when that is dropped or changed.
    pub query: Option<&'a ContinuousQuery>,
    /// Asked before each batch.
    pub may: &'a dyn Fn() -> bool,
}

impl Series {
    /// Carries a SELECT INTO out, as long as it may go on and its database is there; other statements do nothing. Does not wait for durability. It is as many batches
    /// as it takes: those of a statement that fails stay, and points that are refused are no reason not to write the others.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses, `Closed` when it may not go on, `Conflict` when its continuous query is gone. The inner error is what the statement is to blame for,
    /// types of values that are in the way included; `Source` there is what could not be read.
    pub fn insert(&self, env: &Env<'_>, statement: &Statement, go_on: &GoOn<'_>) -> Result<SeriesResult<Inserted>> {
        let (mut position, mut failed) = (Position::ZERO, None);
        let (mut refusal, mut dropped) = (None, 0);
        let mut write = |rows: &mut Rows| {
            let written = if (go_on.may)() {
                self.store.inner().write_while(rows, go_on.query)
            } else {
                Err(Error::new(ErrorKind::Closed, "the statement was ended before it was done"))
            };
            let written = match written {
                Ok(Err(gone)) if go_on.query.is_none() => return Err(SeriesError::invalid(gone)),
                Ok(Err(gone)) => Err(Error::new(ErrorKind::Conflict, gone)),
                Ok(Ok(written)) => Ok(written),
                Err(error) => Err(error),
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
