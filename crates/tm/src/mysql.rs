//! Branches in MariaDB and MySQL: their XA statements, names as hexadecimal literals.
//!
//! The program keeps using its own connection, behind a lock because both need it alone.
//!
//! Four things are peculiar. A prepared branch belongs to its connection until that is closed: for another it is *not
//! known*, although it is listed. So whoever recovers asks for the list again before believing that. After a deadlock or a
//! timeout a branch is rolled back and yet has to be ended. And error 1399, called `XAER_RMFAIL`, says that the statement
//! may not come now, not that anything failed. And a prepared branch that changed nothing is let go when its connection ends, but
//! stays in the list until it is to be committed, which is refused then as one that was rolled back.
//!
//! The session of a branch of a transaction with a deadline may be idle until then: `idle.rs`.
//!
//! May use: `branch`, `idle`, mysql_async. Must not know: coordinators.

mod manager;

use std::fmt::Write;
use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use tokio::sync::Mutex;
use xa::{FORMAT_ID, XaCode, Xid};

use crate::branch::{Answer, BoxFuture, Branch};
use crate::idle::MysqlIdle;
pub use manager::MysqlManager;

/// A branch in MariaDB or MySQL, on a connection of the program.
pub struct MysqlBranch {
    connection: Arc<Mutex<Conn>>,
    name: Xid,
    /// The same as statements take it.
    xid: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    /// It is ended, and may be prepared.
    Prepared,
    Ended,
}

impl MysqlBranch {
    /// Starts the branch on a connection that has no transaction under way.
    ///
    /// # Errors
    /// The database's.
    pub async fn start(connection: &Arc<Mutex<Conn>>, xid: &Xid) -> Result<Self, Error> {
        let (name, xid) = (xid.clone(), literal(xid));
        connection.lock().await.query_drop(MysqlIdle(&name).begun(&format!("XA START {xid}"))).await?;
        Ok(Self { connection: Arc::clone(connection), name, xid, state: State::Active })
    }

    /// The statement that ends it, in this connection.
    fn last_statement(&self, verb: &str, more: &str) -> String {
        MysqlIdle(&self.name).ended(&format!("XA {verb} {}{more}", self.xid))
    }

    /// Says why it failed, and ends it unless the connection did.
    async fn failed(&mut self, error: Error) -> Answer {
        if !matches!(error, Error::Server(_)) {
            return answer(&error);
        }
        let mut connection = self.connection.lock().await;
        // Refused when it is ended already.
        let _ = connection.query_drop(format!("XA END {}", self.xid)).await;
        match connection.query_drop(self.last_statement("ROLLBACK", "")).await {
            Err(Error::Io(_) | Error::Driver(_)) => Answer::new(XaCode::ManagerDown, error.to_string()),
            // Not known: it went with the failure.
            _ => {
                self.state = State::Ended;
                let why = answer(&error);
                let code = if why.code.is_rollback() { why.code } else { XaCode::RolledBackOther };
                Answer { code, ..why }
            }
        }
    }
}

impl Branch for MysqlBranch {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.state = State::Prepared;
            let statements = format!("XA END {0}; XA PREPARE {0}", self.xid);
            let result = self.connection.lock().await.query_drop(statements).await;
            match result {
                Ok(()) => XaCode::Ok.into(),
                Err(error) => self.failed(error).await,
            }
        })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let statements = format!("XA END {}; {}", self.xid, self.last_statement("COMMIT", " ONE PHASE"));
            let result = self.connection.lock().await.query_drop(statements).await;
            match result {
                Ok(()) => {
                    self.state = State::Ended;
                    XaCode::Ok.into()
                }
                Err(error) => self.failed(error).await,
            }
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.state = State::Ended;
            settled(self.connection.lock().await.query_drop(self.last_statement("COMMIT", "")).await)
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let mut connection = self.connection.lock().await;
            if self.state == State::Active {
                // Refused after a deadlock, and the rollback works all the same.
                let _ = connection.query_drop(format!("XA END {}", self.xid)).await;
            }
            self.state = State::Ended;
            settled(connection.query_drop(self.last_statement("ROLLBACK", "")).await)
        })
    }
}

impl Drop for MysqlBranch {
    fn drop(&mut self) {
        if self.state != State::Active {
            return;
        }
        // Without a runtime the connection cannot be used, and closing it rolls back.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (connection, end) = (Arc::clone(&self.connection), format!("XA END {}", self.xid));
            let rollback = self.last_statement("ROLLBACK", "");
            runtime.spawn(async move {
                let mut connection = connection.lock().await;
                let _ = connection.query_drop(end).await;
                let _ = connection.query_drop(rollback).await;
            });
        }
    }
}

/// A name as the statements take it.
fn literal(xid: &Xid) -> String {
    literal_of(&xid.transaction.to_bytes(), xid.branch.as_str().as_bytes())
}

/// The same for a name in two parts, whatever is in them.
fn literal_of(gtrid: &[u8], bqual: &[u8]) -> String {
    let hex = |to: &mut String, bytes: &[u8]| {
        for byte in bytes {
            write!(to, "{byte:02x}").expect("a string takes all");
        }
    };
    let mut text = "X'".to_owned();
    hex(&mut text, gtrid);
    text.push_str("',X'");
    hex(&mut text, bqual);
    write!(text, "',{FORMAT_ID}").expect("a string takes all");
    text
}

/// An error in the words of XA.
fn answer(error: &Error) -> Answer {
    let Error::Server(server) = error else { return Answer::new(XaCode::ManagerDown, error.to_string()) };
    let code = match server.code {
        1397 => XaCode::NotKnown,
        1398 => XaCode::Invalid,
        1399 => XaCode::Protocol,
        1400 => XaCode::Outside,
        1402 => XaCode::RolledBack,
        1440 => XaCode::Duplicate,
        1613 | 1205 => XaCode::RolledBackTimeout,
        1614 | 1213 => XaCode::RolledBackDeadlock,
        // 1401, XAER_RMERR, among them: its meaning for a commit would be that the branch is lost for ever.
        _ => XaCode::Retry,
    };
    Answer::new(code, server.message.clone())
}

/// The answer to a commit or rollback of a prepared branch.
fn settled(result: Result<(), Error>) -> Answer {
    match result {
        Ok(()) => XaCode::Ok.into(),
        // Said only of one that changed nothing (MariaDB, `trans_xa_detach`): it has come out as it should.
        Err(Error::Server(server)) if server.code == 1402 => XaCode::ReadOnly.into(),
        Err(error) => answer(&error),
    }
}
