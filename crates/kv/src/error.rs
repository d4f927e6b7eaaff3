//! What can go wrong in the key-value engine.
//!
//! May use: `journal`. Must not know: how errors are shown to clients.

/// Result of engine calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the key-value engine.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ledger cannot be read or written; it is rebuilt from the journal when the store is opened again.
    #[error("ledger {path}: {reason}")]
    Ledger {
        /// The ledger's folder.
        path: String,
        /// What the ledger said.
        reason: String,
    },
    /// The system refuses the ledger something, disk space for example. Nothing is lost.
    #[error("ledger {path}: {reason}")]
    LedgerIo {
        /// The ledger's folder.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The stored value is not what was written.
    #[error("value at journal address {at} is damaged: {reason}")]
    Value {
        /// Address in the journal.
        at: u64,
        /// How it was noticed.
        reason: &'static str,
    },
    /// A journaled command does not decode.
    #[error("journaled key-value command does not decode")]
    Command,
    /// The journal.
    #[error(transparent)]
    Journal(#[from] journal::Error),
}
