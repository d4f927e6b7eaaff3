//! What can go wrong in the space.
//!
//! May use: positions. Must not know: the facade's kinds.

use journal::Position;

/// Why the space refuses something.
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
    /// There is no such type.
    #[error("the space {space} has no type {name}: declare it first")]
    NoType {
        /// The space.
        space: String,
        /// The type's name.
        name: String,
    },
    /// Another entry has the value that the new one would have in a unique index.
    #[error("another entry of {name} has the same {index} as the entry {id}, which is unique")]
    NotUnique {
        /// The type's name.
        name: String,
        /// The id of the new one, as JSON.
        id: String,
        /// The index.
        index: String,
        /// The version of the other one; zero if it is in no journal, or comes with the same batch.
        rests_on: Position,
    },
}

/// The result of something in the space.
pub type Result<T> = std::result::Result<T, Error>;

/// Refuses more than `limit`.
pub(crate) fn limit(what: &'static str, actual: usize, limit: usize) -> Result<()> {
    if actual <= limit { Ok(()) } else { Err(Error::Limit { what, actual: actual as u64, limit: limit as u64 }) }
}

pub(crate) fn invalid<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Invalid { text: text.into() })
}
