//! Branches in PostgreSQL: `PREPARE TRANSACTION` under the branch's name as text.
//!
//! The program goes on using its own client. What it does between [`PostgresBranch::start`] and the end of the transaction
//! belongs to it; it must not end it by a COMMIT or ROLLBACK of its own.
//!
//! `PREPARE TRANSACTION` and `COMMIT` succeed silently as a rollback when a statement failed before. So a `SELECT` goes
//! with them, which fails then; and also when the program ended the transaction itself: `postgres_mark.rs`. Such a branch is
//! *lost*. Nobody knows whether it was committed, which it says when it is rolled back.
//!
//! May use: `branch`, `postgres_mark`, tokio-postgres. Must not know: coordinators.

mod last;
mod manager;
mod tls;

use std::sync::Arc;

use futures_util::FutureExt;
use tokio_postgres::{Client, Error, SimpleQueryMessage, error::SqlState};
use xa::{BranchName, XaCode, Xid};

use crate::branch::{Answer, BoxFuture, Branch};
use crate::postgres_decisions::PostgresDecisions;
use crate::postgres_mark::PostgresMark;
pub use last::PostgresLastResource;
pub use manager::PostgresManager;
pub use tls::PostgresTls;

/// A branch in PostgreSQL, on a connection of the program.
pub struct PostgresBranch {
    client: Arc<Client>,
    xid: Xid,
    prepared: bool,
    ended: bool,
    /// Whether the program ended it itself.
    lost: bool,
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
        if let Err(error) = client.batch_execute(&PostgresMark(&xid).begin()).await {
            // It may have begun, and can only be rolled back then.
            if error.as_db_error().is_some() {
                drop(client.batch_execute("ROLLBACK").now_or_never());
            }
            return Err(error);
        }
        Ok(Self { client: Arc::clone(client), xid, prepared: false, ended: false, lost: false, asks: false })
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
        Some(match self.client.batch_execute(&PostgresMark(&self.xid).checked("COMMIT")).await {
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
        self.lost = is_missed(&error);
        let code = match error.code() {
            Some(&SqlState::T_R_DEADLOCK_DETECTED) => XaCode::RolledBackDeadlock,
            Some(&SqlState::T_R_SERIALIZATION_FAILURE) => XaCode::RolledBackTransient,
            Some(&SqlState::QUERY_CANCELED) => XaCode::RolledBackTimeout,
            // It is asked to roll back then.
            _ if self.lost => XaCode::Protocol,
            Some(state) if state.code().starts_with("23") => XaCode::RolledBackIntegrity,
            _ => XaCode::RolledBackOther,
        };
        let reason = if self.lost { LOST.to_owned() } else { said(&error) };
        match self.client.batch_execute("ROLLBACK").await {
            Ok(()) => {
                self.ended = true;
                Answer::new(code, reason)
            }
            Err(_) => Answer::new(XaCode::ManagerDown, reason),
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
            let prepare = format!("PREPARE TRANSACTION '{}'", self.xid);
            match self.client.batch_execute(&PostgresMark(&self.xid).checked(&prepare)).await {
                Ok(()) => XaCode::Ok.into(),
                Err(error) => self.failed(error).await,
            }
        })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            match self.client.batch_execute(&PostgresMark(&self.xid).checked("COMMIT")).await {
                Ok(()) => {
                    self.ended = true;
                    XaCode::Ok.into()
                }
                Err(error) => self.failed(error).await,
            }
        })
    }

    fn commit_last<'a>(&'a mut self, others: &'a [BranchName]) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let Some(last) = self.xid.transaction.last_resource else {
                return Answer::new(XaCode::Protocol, "the transaction was begun without a last resource");
            };
            match self.client.batch_execute(&PostgresDecisions(last).commit(&self.xid, others)).await {
                Ok(()) => {
                    self.ended = true;
                    XaCode::Ok.into()
                }
                Err(error) => {
                    let advice = last::advice(&error);
                    let Answer { code, reason } = self.failed(error).await;
                    Answer::new(code, advice.map_or(reason.clone(), |advice| format!("{advice} ({reason})")))
                }
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
            if self.lost {
                return Answer::new(XaCode::HeuristicHazard, LOST);
            }
            if self.prepared {
                return settled(self.client.batch_execute(&format!("ROLLBACK PREPARED '{}'", self.xid)).await);
            }
            // Nothing is asked first: the question fails where a statement did, a second request would be needed, and of a
            // transaction that was dropped what the program does next may come in between.
            settled(self.client.batch_execute("ROLLBACK").await)
        })
    }
}

impl Drop for PostgresBranch {
    fn drop(&mut self) {
        if self.prepared || self.ended {
            return;
        }
        // The request is queued at once by the first poll, before what the program asks of its client next; nobody needs its
        // answer.
        drop(self.client.batch_execute("ROLLBACK").now_or_never());
    }
}

/// Why nobody knows what became of a branch.
const LOST: &str = "the program ended the branch itself, and whether it committed it is not known";

/// Whether an error says that the transaction is not the branch's.
fn is_missed(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| PostgresMark::is_missed(error.code().code(), error.message()))
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
