//! Queries that are parsed once and asked many times, with other parameters each time.
//!
//! Only what hangs on nothing but the text is kept: parameters are bound, and the index is chosen, with each use. So a query goes on
//! meaning the same when indexes come and go, or its type is declared anew, and may be used with any type and any store.
//!
//! May use: `space`. Must not know: who keeps them, what is done with them.

use std::sync::Arc;

use ::space::{Query, Value};

use crate::error::Result;

/// A query that was parsed once, to be asked many times: a prepared statement. It stands wherever the text of a query may, see [`ToQuery`].
///
/// Cheap to clone; clones share what was parsed. It belongs to no store and to no type.
#[derive(Debug, Clone)]
pub struct PreparedQuery {
    sql: Arc<str>,
    query: Arc<Query>,
}

impl PreparedQuery {
    /// Parses a text: a condition with what may follow it, or a whole SELECT, with `?` or `$1` for parameters.
    ///
    /// # Errors
    /// `Invalid` names what is not understood, and what would be; `Limit` when the text is too long or too deep. What is wrong with
    /// parameters is told where they are given.
    pub fn new(sql: &str) -> Result<Self> {
        Ok(Self { query: Arc::new(Query::parse(sql)?), sql: sql.into() })
    }

    /// The text that it was made of.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// How many parameters it needs.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.query.parameters
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.sql
    }

    pub(crate) fn bind(&self, parameters: &[Value]) -> Result<Query> {
        Ok(self.query.bind(parameters)?)
    }

    /// What it takes of memory, roughly: names stand in the text, and again in what was made of it.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.sql.len() + self.query.memory_bytes()
    }
}

/// What says a query: a text, which is parsed, or a [`PreparedQuery`], which was.
pub trait ToQuery: sealed::Sealed {
    /// The text.
    fn sql(&self) -> &str;

    /// The query, parsed now if it was not before.
    ///
    /// # Errors
    /// As [`PreparedQuery::new`].
    fn prepared(&self) -> Result<PreparedQuery>;
}

impl ToQuery for str {
    fn sql(&self) -> &str {
        self
    }

    fn prepared(&self) -> Result<PreparedQuery> {
        PreparedQuery::new(self)
    }
}

impl ToQuery for String {
    fn sql(&self) -> &str {
        self
    }

    fn prepared(&self) -> Result<PreparedQuery> {
        PreparedQuery::new(self)
    }
}

impl ToQuery for PreparedQuery {
    fn sql(&self) -> &str {
        &self.sql
    }

    fn prepared(&self) -> Result<PreparedQuery> {
        Ok(self.clone())
    }
}

mod sealed {
    /// Kept here, so that operations may ask for more of what says a query later.
    pub trait Sealed {}

    impl Sealed for str {}
    impl Sealed for String {}
    impl Sealed for super::PreparedQuery {}
}
