//! What can go wrong in the journal.
//!
//! May use: nothing. Must not know: how errors are shown to clients.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::position::Position;

/// Result of journal calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the journal. Cheap to clone: one failed sync is told to every waiter.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    #[error("{action} {path:?} failed: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No space for the batch; nothing of it was written.
    #[error("no space left on the disk for the journal in {path:?}; free some space and try again")]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// An earlier write or sync failed: nothing more is written until the journal is reopened.
    #[error("the journal refuses writes since an earlier failure ({first}); reopen the store")]
    Poisoned {
        /// The failure that started it.
        first: Arc<Error>,
    },
    /// Stored bytes are not what was written.
    #[error("damaged data in {path:?}, {bytes} bytes at offset {offset}: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// How many bytes are affected.
        bytes: u64,
        /// How it was noticed.
        reason: &'static str,
    },
    /// The position is not in the journal (any more).
    #[error("position {position} is not in the journal")]
    Missing {
        /// The position asked for.
        position: Position,
    },
    /// Another process has the directory open.
    #[error("{path:?} is in use by another process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds something this program cannot read.
    #[error("{path:?} is not a journal this program can read: {reason}")]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The batch is empty or larger than a record may be.
    #[error("batch of {bytes} bytes; a batch holds 1 to {bytes_max} bytes of commands")]
    BatchSize {
        /// What was given.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull || source.kind() == io::ErrorKind::QuotaExceeded {
            return Self::DiskFull { path: path.to_owned() };
        }
        Self::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Whether a read failed because of the bytes that it asked for, as those of a bad sector do.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Io { source, .. } if base::is_unreadable(source))
    }

    pub(crate) fn foreign(path: &std::path::Path, reason: impl Into<String>) -> Self {
        Self::Foreign { path: path.to_owned(), reason: reason.into() }
    }
}
