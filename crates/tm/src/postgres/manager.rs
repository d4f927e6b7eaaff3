//! PostgreSQL as recovery sees it: `pg_prepared_xacts` of the current database.
//!
//! May use: `branch`, tokio-postgres. Must not know: coordinators.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::{CancelToken, Client, Config, NoTls};
use xa::{BranchName, LastResourceId, TransactionId, XaCode, Xid};

use super::{PostgresTls, last, said, settled};
use crate::branch::{Answer, BoxFuture, InDoubt, ResourceManager};
use crate::last_resource::Kept;
use crate::tls::explained;

/// A PostgreSQL database. Every call makes a connection of its own and closes it.
#[derive(Clone)]
pub struct PostgresManager {
    name: BranchName,
    order: u32,
    config: Config,
    tls: Option<PostgresTls>,
    /// Whether transactions are prepared there.
    prepares: bool,
}

impl PostgresManager {
    /// A database that is reached so. Prepared transactions can be completed by the role that prepared them, and by
    /// superusers.
    #[must_use]
    pub fn new(name: BranchName, config: Config) -> Self {
        Self { name, order: 0, config, tls: None, prepares: true }
    }

    /// With this place in the order of commits.
    #[must_use]
    pub fn in_order(self, order: u32) -> Self {
        Self { order, ..self }
    }

    /// As the last resource alone: that it can prepare nothing is not wrong then.
    #[must_use]
    pub fn without_prepare(self) -> Self {
        Self { prepares: false, ..self }
    }

    /// By TLS, and never without.
    #[must_use]
    pub fn with_tls(self, tls: PostgresTls) -> Self {
        let mut config = self.config;
        config.ssl_mode(SslMode::Require);
        Self { config, tls: Some(tls), ..self }
    }

    /// A new connection, for the program's own work too: [`super::PostgresBranch::start`].
    ///
    /// # Errors
    /// In plain words.
    pub async fn connect(&self) -> Result<Client, String> {
        // The server judges the certificate of a program when that takes the connection for made.
        let words = |error: &tokio_postgres::Error| explained(error).unwrap_or_else(|| said(error));
        let plain = |error: tokio_postgres::Error| match (words(&error), &self.tls) {
            (text, Some(_)) if text.ends_with("server does not support TLS") => {
                format!("the server has no TLS, which is asked for: set ssl = on there ({text})")
            }
            (text, Some(_)) if text.ends_with("no hostname provided for TLS handshake") => {
                format!("TLS needs a host that is reached over TCP, not the folder of a socket ({text})")
            }
            (text, _) => text,
        };
        // The connection ends when the client is dropped; an error of it is an error of the client's calls.
        Ok(match &self.tls {
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(plain)?;
                tokio::spawn(connection);
                client
            }
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(plain)?;
                tokio::spawn(connection);
                client
            }
        })
    }

    /// Ends what `client` is waiting for when it is dropped before it is over: PostgreSQL does not notice that nobody waits any
    /// more, and who asks again and again would use up its connections.
    pub(super) fn cancelling(&self, client: &Client) -> Cancelling {
        Cancelling { token: Some(client.cancel_token()), tls: self.tls.clone() }
    }

    async fn complete(&self, statement: String) -> Answer {
        match self.connect().await {
            Ok(client) => settled(client.batch_execute(&statement).await),
            Err(reason) => Answer::new(XaCode::ManagerDown, reason),
        }
    }
}

/// A request that is cancelled with this.
pub(super) struct Cancelling {
    token: Option<CancelToken>,
    tls: Option<PostgresTls>,
}

impl Cancelling {
    /// It was answered.
    pub(super) fn over(mut self) {
        self.token = None;
    }
}

impl Drop for Cancelling {
    fn drop(&mut self) {
        let (Some(token), Ok(runtime)) = (self.token.take(), tokio::runtime::Handle::try_current()) else { return };
        let tls = self.tls.take();
        runtime.spawn(async move {
            // Nobody is there to be told of an error.
            let _ = match tls {
                None => token.cancel_query(NoTls).await,
                Some(tls) => token.cancel_query(tls).await,
            };
        });
    }
}

impl ResourceManager for PostgresManager {
    fn name(&self) -> &BranchName {
        &self.name
    }

    fn order(&self) -> u32 {
        self.order
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        Box::pin(async {
            let client = self.connect().await?;
            // The names of Holdfast begin so; underscores and percent signs are not in that.
            let query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE 'hfxa1.%'";
            let rows = client.query(query, &[]).await.map_err(|error| said(&error))?;
            let gids = rows.iter().filter_map(|row| row.try_get::<_, String>(0).ok());
            let mut found = InDoubt::default();
            for gid in gids {
                match gid.parse() {
                    Ok(xid) => found.branches.push(xid),
                    Err(_) => found.unreadable.push(gid),
                }
            }
            Ok(found)
        })
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(self.complete(format!("COMMIT PREPARED '{xid}'")))
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(self.complete(format!("ROLLBACK PREPARED '{xid}'")))
    }

    fn settle_last<'a>(
        &'a self,
        last: LastResourceId,
        ids: &'a [TransactionId],
    ) -> BoxFuture<'a, Result<Option<Vec<bool>>, String>> {
        Box::pin(last::settle(self, last, ids))
    }

    fn kept<'a>(
        &'a self,
        age: Duration,
        is_wanted: &'a (dyn Fn(&Kept) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Vec<Kept>, String>> {
        Box::pin(last::kept(self, age, is_wanted))
    }

    fn let_go<'a>(&'a self, ids: &'a [TransactionId]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let client = self.connect().await?;
            let mut of: BTreeMap<LastResourceId, Vec<TransactionId>> = BTreeMap::new();
            for id in ids {
                if let Some(last) = id.last_resource {
                    of.entry(last).or_default().push(*id);
                }
            }
            for (last, ids) in of {
                last::let_go(&client, last, &ids).await?;
            }
            Ok(())
        })
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let client = match self.connect().await {
                Ok(client) => client,
                Err(reason) => return vec![format!("cannot connect: {reason}")],
            };
            let query = "SELECT current_setting('max_prepared_transactions')::int";
            match client.query_one(query, &[]).await.and_then(|row| row.try_get::<_, i32>(0)) {
                Err(error) => vec![said(&error)],
                Ok(0) if self.prepares => vec![
                    "max_prepared_transactions is 0, so nothing can be prepared. Set it in postgresql.conf, or by ALTER \
                     SYSTEM SET max_prepared_transactions = 100, to at least the number of transactions that run at the \
                     same time, and restart PostgreSQL"
                        .to_owned(),
                ],
                Ok(_) => Vec::new(),
            }
        })
    }
}

impl fmt::Debug for PostgresManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The driver's configuration may show a password.
        f.debug_struct("PostgresManager").field("name", &self.name).finish_non_exhaustive()
    }
}
