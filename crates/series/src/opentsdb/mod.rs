//! What OpenTSDB's clients ask, as of its version 2.4: queries, last points, look-ups, suggestions.
//!
//! `uri` and `json` read a `query`; `plan` finds its series and puts them into groups; `column` makes of the points of one series
//! what the query asks of it, over a `calendar`'s intervals; `merge` makes many series one with the folds of `fold`,
//! `stretch` by stretch; `print` writes
//! what comes out, and `answer` drives it all, piece by piece. `last` and `lookup` are questions of their own.
//!
//! May use: the rest of the crate, `jiff`. Must not know: HTTP, how series are stored.

mod aggregator;
mod answer;
mod calendar;
mod column;
mod filter;
mod fold;
mod json;
mod last;
mod lookup;
mod merge;
mod plan;
mod print;
mod query;
mod stretch;
#[cfg(test)]
mod tests;
mod time;
mod uri;

pub use aggregator::aggregators;
pub use answer::Answer;
pub use filter::filters;
pub use last::LastQuery;
pub use lookup::{Found, Lookup, Suggest};
pub use print::{error_document, message};
pub use query::{Afterwards, Parameters, Query};
