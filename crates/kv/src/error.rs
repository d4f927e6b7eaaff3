//! What can go wrong in the key-value engine.
//!
//! May use: `base`, `journal`. Must not know: how errors are shown to clients.

use std::io;
use std::path::Path;

/// Result of engine calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the key-value engine.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ledger cannot be read or written; it is rebuilt from the journal when the store is opened again.
    #[error("ledger {path}: {reason}")]
    Ledger {
        /// Its file or folder.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system refuses the ledger something, disk space for example. Nothing is lost.
    #[error("ledger {path}: {reason}")]
    LedgerIo {
        /// Its file or folder.
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

impl Error {
    /// What the system said of a file of a ledger: whether it is the file that is wrong, or the system short of something.
    pub(crate) fn of_ledger(path: &Path, error: &io::Error) -> Self {
        let (path, reason) = (path.display().to_string(), error.to_string());
        match is_damage(error) {
            true => Self::Ledger { path, reason },
            false => Self::LedgerIo { path, reason },
        }
    }
}

/// Whether what the system said is that a file is not what was written, rather than that it is short of something.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::UnexpectedEof | Kind::InvalidData | Kind::NotFound | Kind::IsADirectory)
        || base::is_unreadable(error)
}
