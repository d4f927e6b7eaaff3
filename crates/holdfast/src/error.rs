//! The error of the library: a kind that says what to do next, and a sentence for people.
//!
//! May use: the errors of the layers below. Must not know: protocols, durability.

use std::fmt;

use journal::Position;

/// Result of library calls.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A condition did not hold, or somebody else changed what was read: read again and decide anew.
    Conflict,
    /// The request makes no sense: change it.
    Invalid,
    /// A limit is exceeded: ask for less, or raise the limit.
    Limit,
    /// It took longer than was allowed: whether it happened is known by reading.
    Timeout,
    /// It cannot be done now: free space, or reopen the store, as the message says.
    Unavailable,
    /// Stored data is damaged: what the message names is lost, all else is served.
    Corrupt,
    /// The store was closed: open it again.
    Closed,
    /// The distributed transaction will never be committed: roll all its branches back.
    Aborted,
    /// Whether it happened is not known: ask again.
    Unknown,
    /// A fault of Holdfast: please report it.
    Internal,
}

/// An error of the store. Its text is safe to show to users: it holds no values and no secrets.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    rests_on: Option<Position>,
    /// Whether that has to be synced, whatever the caller asks for.
    is_final: bool,
}

impl Error {
    /// An error of this kind with this text.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), rests_on: None, is_final: false }
    }

    /// What the error rests on, if it speaks of what was written: of an entry that is there, or is gone, of a version, of a decision. In
    /// a crash that may vanish until it is as durable as [`Error::told_at`] says, so nobody may be told before: wait by
    /// [`Store::wait`](crate::Store::wait). Calls that wait for durability have waited, and fail with `Unavailable` where that was refused.
    #[must_use]
    pub fn rests_on(&self) -> Option<Position> {
        self.rests_on
    }

    /// Whether what it rests on has to be synced, whatever the caller asks for.
    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }

    /// It rests on that too: for who refuses something because of what was read up to that position. What is in no journal has no
    /// position, and is passed as zero.
    #[must_use]
    pub fn resting_on(self, position: Position) -> Self {
        let rests_on = self.rests_on.max(Some(position).filter(|position| *position > Position::ZERO));
        Self { rests_on, ..self }
    }

    /// It rests on that, which has to be synced before it is told.
    pub(crate) fn resting_on_synced(self, position: Position) -> Self {
        Self { rests_on: Some(position), is_final: true, ..self }
    }

    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn limit(what: &str, is: usize, max: usize) -> Self {
        Self::new(ErrorKind::Limit, format!("{what} of {is} bytes; the limit is {max}"))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl From<journal::Error> for Error {
    fn from(error: journal::Error) -> Self {
        use journal::Error as E;
        let kind = match &error {
            E::Io { .. } | E::DiskFull { .. } | E::Poisoned { .. } | E::InUse { .. } => ErrorKind::Unavailable,
            E::Damaged { .. } | E::Missing { .. } => ErrorKind::Corrupt,
            E::Foreign { .. } => ErrorKind::Invalid,
            E::BatchSize { .. } => ErrorKind::Limit,
            E::Closed => ErrorKind::Closed,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<space::Error> for Error {
    fn from(error: space::Error) -> Self {
        use space::Error as E;
        let kind = match &error {
            E::Invalid { .. } | E::NoType { .. } => ErrorKind::Invalid,
            E::Limit { .. } => ErrorKind::Limit,
            E::NotUnique { .. } => ErrorKind::Conflict,
            E::Malformed { .. } => ErrorKind::Corrupt,
            _ => ErrorKind::Internal,
        };
        let rests_on = if let E::NotUnique { rests_on, .. } = error { rests_on } else { Position::ZERO };
        Self::new(kind, error.to_string()).resting_on(rests_on)
    }
}

impl From<series::Error> for Error {
    fn from(error: series::Error) -> Self {
        use series::Error as E;
        let kind = match &error {
            E::Invalid { .. } | E::Missing { .. } => ErrorKind::Invalid,
            E::Limit { .. } | E::Memory { .. } | E::Late { .. } => ErrorKind::Limit,
            E::Canceled => ErrorKind::Timeout,
            E::Malformed { .. } => ErrorKind::Corrupt,
            E::Source { .. } => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<kv::Error> for Error {
    fn from(error: kv::Error) -> Self {
        match error {
            kv::Error::Journal(error) => error.into(),
            error @ kv::Error::LedgerIo { .. } => Self::new(ErrorKind::Unavailable, error.to_string()),
            error => Self::new(ErrorKind::Corrupt, error.to_string()),
        }
    }
}
