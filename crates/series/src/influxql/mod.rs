//! InfluxQL as InfluxDB 1.8 answers it, over any [`Source`].
//!
//! [`parse`] reads statements; [`read`] answers those that read into a [`Sink`], row by row; [`Statement::change`] says what the
//! others want done. [`Document`] is a sink that writes InfluxDB's answers. docs/reference/influxql.md says what there is of the
//! language and where it differs.
//!
//! A selection goes through: `condition` (times, tags, the rest), `input` (series), `plan` (columns), then for each series of the
//! answer `raw` (rows of fields) or `aggregate` (rows of functions: `reduce` and `gather`, `fill`, `transform`).
//!
//! May use: `source` and what it is made of. Must not know: HTTP, how series are stored.

mod ast;
mod lexer;
mod parse;
mod parse_expr;
mod parse_select;
mod print;
mod words;

mod call;
mod cast;
mod condition;
mod filter;
mod input;
mod node;
mod plan;

mod aggregate;
mod fill;
mod gather;
mod math;
mod raw;
mod reduce;
mod transform;
mod window;

mod cardinality;
mod change;
mod continuous;
mod insert;
mod names;
mod run;
mod show;

mod answer;
mod document;
mod json;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_clients;
#[cfg(test)]
mod tests_continuous;
#[cfg(test)]
mod tests_influxdb;
#[cfg(test)]
mod tests_model;
mod times;

pub use answer::{Cell, Sink};
pub use change::{Change, Need};
pub use continuous::{ContinuousQuery, Due, Schedule};
pub use document::{Document, Epoch, Layout, Outlet, error_document};
pub use insert::{Write, insert, say_inserted};
pub use parse::{Statement, parse};
pub use show::has_policy;
pub use words::{Parameter, Parameters};

use crate::error::Result;
use crate::source::{Range, Source};

/// What statements are answered from.
pub struct Env<'a> {
    /// Where series and points come from.
    pub source: &'a dyn Source,
    /// The database that is meant when a statement names none; empty when the request names none either.
    pub database: &'a str,
    /// Nanoseconds since 1970.
    pub now: i64,
    /// Whether somebody is told of a database.
    pub may_see: &'a dyn Fn(&str) -> bool,
}

/// Answers a statement that reads; one that changes something has an empty answer.
///
/// # Errors
/// [`crate::Error::Invalid`] in InfluxDB's words, as part of the answer to the statement; [`crate::Error::Source`]; what the sink
/// says.
pub fn read(env: &Env<'_>, statement: &Statement, sink: &mut dyn Sink) -> Result<()> {
    match &statement.kind {
        ast::Kind::Select(select) => run::select(env, select, Range::ALL, sink),
        kind => show::show(env, kind, sink),
    }
}
