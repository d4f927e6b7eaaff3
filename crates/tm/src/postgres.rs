//! Branches in PostgreSQL: `PREPARE TRANSACTION` under the branch's name as text.
//!
//! The program goes on using its own client. What it does between [`PostgresBranch::start`] and the end of the transaction
//! belongs to it; it must not end it by a COMMIT of its own.
//!
//! `PREPARE TRANSACTION` and `COMMIT` succeed silently as a rollback when a statement failed before. So a `SELECT` goes
//! with them, which fails then.
//!
//! May use: `branch`, tokio-postgres. Must not know: coordinators.

mod manager;
mod tls;

use std::sync::Arc;

use tokio_postgres::{Client, Error, SimpleQueryMessage, error::SqlState};
use xa::{XaCode, Xid};

use crate::branch::{Answer, BoxFuture, Branch};
pub use manager::PostgresManager;
pub use tls::PostgresTls;

/// A branch in PostgreSQL, on a connection of the program.
pub struct PostgresBranch {
    client: Arc<Client>,
    xid: Xid,
    prepared: bool,
    ended: bool,
    /// Whether it may be asked whether it changed anything.
    asks: bool,
}

impl PostgresBranch {
    /// Starts the branch on a client that has no transaction under way. To set an isolation level, execute
    /// `SET TRANSACTION` next.
    ///
    /// # Errors
    /// The database's.
    pub async fn start(client: &Arc<Client>, xid: Xid) -> Result<Self, Error> {
        client.batch_execute("BEGIN").await?;
        Ok(Self { client: Arc::clone(client), xid, prepared: false, ended: false, asks: false })
    }

    /// A branch that changed nothing drops out: it is ended before the decision, without a sync and without a second phase. PostgreSQL
    /// is asked whether it did, which is one more round trip for those that did.
    ///
    /// The program says by this that the branch has nothing that takes effect at its end but changes of PostgreSQL's own tables:
    /// no `NOTIFY`, `LISTEN` or `UNLISTEN`, no changes through foreign tables, no cursor `WITH HOLD`, of which PostgreSQL does not
    /// tell. With one of these and no other change they would happen although the transaction is rolled back elsewhere; a
    /// branch that also changed something is refused, as ever.
    #[must_use]
    pub fn asking(mut self) -> Self {
        self.asks = true;
        self
    }

    /// Ends it, if it is one that may be asked and changed nothing. `None` when it has to be prepared.
    async fn drop_out(&mut self) -> Option<Answer> {
        // Fails in a transaction in which a statement failed.
        let rows = match self.client.simple_query("SELECT pg_current_xact_id_if_assigned() IS NULL").await {
            Ok(rows) => rows,
            Err(error) => return Some(self.failed(error).await),
        };
        let changed_nothing = rows.iter().any(|row| match row {
            SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
            _ => false,
        });
        if !changed_nothing {
            return None;
        }
        // A serialization failure of what was read comes now.
        Some(match self.client.batch_execute("COMMIT").await {
            Ok(()) => {
                self.ended = true;
                XaCode::ReadOnly.into()
            }
            Err(error) => self.failed(error).await,
        })
    }

    /// Ends a transaction that failed, so that the program may use its client again, and says why it did.
    async fn failed(&mut self, error: Error) -> Answer {
        if self.client.is_closed() || error.as_db_error().is_none() {
            return Answer::new(XaCode::ManagerDown, said(&error));
        }
        let code = match error.code() {
            Some(&SqlState::T_R_DEADLOCK_DETECTED) => XaCode::RolledBackDeadlock,
            Some(&SqlState::T_R_SERIALIZATION_FAILURE) => XaCode::RolledBackTransient,
            Some(&SqlState::QUERY_CANCELED) => XaCode::RolledBackTimeout,
            Some(state) if state.code().starts_with("23") => XaCode::RolledBackIntegrity,
            _ => XaCode::RolledBackOther,
        };
        match self.client.batch_execute("ROLLBACK").await {
            Ok(()) => {
                self.ended = true;
                Answer::new(code, said(&error))
            }
            Err(_) => Answer::new(XaCode::ManagerDown, said(&error)),
        }
    }
}

impl Branch for PostgresBranch {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            if self.asks
                && let Some(answer) = self.drop_out().await
            {
                return answer;
            }
            // Whatever the answer is or whether there is one: it may be prepared.
            self.prepared = true;
            match self.client.batch_execute(&format!("SELECT 1; PREPARE TRANSACTION '{}'", self.xid)).await {
                Ok(()) => XaCode::Ok.into(),
                Err(error) => self.failed(error).await,
            }
        })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            match self.client.batch_execute("SELECT 1; COMMIT").await {
                Ok(()) => {
                    self.ended = true;
                    XaCode::Ok.into()
                }
                Err(error) => self.failed(error).await,
            }
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.ended = true;
            settled(self.client.batch_execute(&format!("COMMIT PREPARED '{}'", self.xid)).await)
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.ended = true;
            if self.prepared {
                settled(self.client.batch_execute(&format!("ROLLBACK PREPARED '{}'", self.xid)).await)
            } else {
                settled(self.client.batch_execute("ROLLBACK").await)
            }
        })
    }
}

impl Drop for PostgresBranch {
    fn drop(&mut self) {
        if self.prepared || self.ended {
            return;
        }
        // The request is queued at once by the first poll; nobody needs its answer, and without a runtime the connection
        // is not served either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = Arc::clone(&self.client);
            runtime.spawn(async move { client.batch_execute("ROLLBACK").await });
        }
    }
}

/// The answer to a COMMIT PREPARED or ROLLBACK PREPARED.
fn settled(result: Result<(), Error>) -> Answer {
    let Err(error) = result else { return XaCode::Ok.into() };
    match error.code() {
        Some(&SqlState::UNDEFINED_OBJECT) => Answer::new(XaCode::NotKnown, said(&error)),
        // Busy: somebody else is completing it now.
        Some(_) => Answer::new(XaCode::Retry, said(&error)),
        None => Answer::new(XaCode::ManagerDown, said(&error)),
    }
}

/// An error in the database's own words. The driver's own display of one names only its kind.
pub(crate) fn said(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => match error.hint() {
            Some(hint) => format!("{} ({hint})", error.message()),
            None => error.message().to_owned(),
        },
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
