//! Branches in databases whose clients are C libraries: statements over a connection that the program uses as well.
//!
//! A client library is looked for when the first connection needs it, so that nothing of it is needed to build or install
//! this one.
//!
//! May use: `abi`, `resource`. Must not know: transactions, profiles.

mod address;
mod branch;
mod dialect;
mod last;
mod libmariadb;
mod libpq;
mod mariadb;
mod postgres;
mod switches;

pub(crate) use branch::BranchConnection;
pub(crate) use libmariadb::MariaSession;
pub(crate) use libpq::PgSession;
pub(crate) use switches::{
    ASKING, COLLECTED_LATE, LAST_RESOURCE, Switched, commit_last, last_resource, let_go, settle, with_connection,
};
pub use switches::{holdfast_mariadb_switch, holdfast_postgres_switch};

/// A connection that understands statements.
pub(crate) trait Session {
    /// How two-phase commit is said to it.
    type Dialect: dialect::Dialect;

    /// Sends a statement and does not wait for the answer.
    fn send(&mut self, statement: &str) -> Result<(), Failure>;

    /// Waits for the answer to what was sent.
    fn receive(&mut self) -> Result<Reply, Failure>;

    /// What the server says of the session's transaction; a client that is not told knows only of branches.
    fn standing(&self) -> Standing;

    /// Why the last statement on the connection failed, whoever made it; as far as the client still knows.
    fn last_failure(&self) -> Option<String> {
        None
    }

    /// Closes the connection and opens it again, in place: pointers to it stay good. `None` where it is the program's.
    fn reopen(&mut self) -> Option<Result<(), Failure>> {
        None
    }
}

/// A good answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reply {
    /// What was done, where the server says so.
    pub(crate) tag: String,
    pub(crate) rows: Vec<Vec<Vec<u8>>>,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the connection is lost: {0}")]
    Lost(String),
    #[error("{text} ({state}/{number})")]
    Refused {
        /// The SQLSTATE.
        state: String,
        /// The server's own number; 0 where it has none.
        number: u32,
        text: String,
    },
}

/// What is open in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No transaction.
    Idle,
    /// One that may go on.
    Open,
    /// One that can only be rolled back.
    Failed,
    /// Not known to the client.
    Untold,
}
