//! What can go wrong with time series.
//!
//! May use: nothing. Must not know: the facade's kinds, statuses of protocols.

use std::time::Duration;

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that should be something of ours are not.
    #[error("malformed {what}")]
    Malformed {
        /// What they should be.
        what: &'static str,
    },
    /// The request makes no sense: the text says what to change.
    #[error("{text}")]
    Invalid {
        /// What was wrong, and what would be right.
        text: String,
    },
    /// Something is larger than it may be.
    #[error("{what} {actual} is above the limit of {limit}")]
    Limit {
        /// What.
        what: &'static str,
        /// How much it was.
        actual: u64,
        /// How much it may be.
        limit: u64,
    },
    /// Something that was asked for by name is not there.
    #[error("no such {what}: {name}")]
    Missing {
        /// What: a metric, a database.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// All questions together would hold more memory than they may.
    #[error(
        "this needs {wanted} bytes of memory more, and of the {limit} that all questions about time series may hold together \
         (series.query_memory_bytes) {held} are held: ask for less, ask again later, or raise the limit"
    )]
    Memory {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes that were held then.
        held: u64,
        /// Bytes that may be.
        limit: u64,
    },
    /// The question took longer than it may.
    #[error(
        "the query was ended after {} s: ask about fewer series, or a shorter time, or raise series.query_seconds_max",
        time_max.as_secs_f64()
    )]
    Late {
        /// How long it may.
        time_max: Duration,
    },
    /// The question was ended from outside.
    #[error("the query was ended: nobody waits for its answer any more")]
    Canceled,
    /// What the points come from failed: the disk, or the store is closed.
    #[error("{text}")]
    Source {
        /// What it said.
        text: String,
    },
}

impl Error {
    /// A request that makes no sense.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid { text: text.into() }
    }
}

/// The result of something with time series.
pub type Result<T> = std::result::Result<T, Error>;
