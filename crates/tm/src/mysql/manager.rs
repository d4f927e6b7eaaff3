//! MariaDB and MySQL as recovery sees them: `XA RECOVER`, which lists the whole server.
//!
//! May use: `branch`, mysql_async. Must not know: coordinators.

use std::fmt;

use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, DriverError, Opts, OptsBuilder, Row, SslOpts};
use xa::{BranchName, FORMAT_ID, XaCode, Xid};

use super::{literal, literal_of, settled};
use crate::branch::{Answer, BoxFuture, InDoubt, ResourceManager};
use crate::tls::{DatabaseTls, explained};

/// A MariaDB or MySQL server. Every call makes a connection of its own and closes it.
#[derive(Clone)]
pub struct MysqlManager {
    name: BranchName,
    order: u32,
    options: Opts,
}

impl MysqlManager {
    /// A server that is reached so.
    #[must_use]
    pub fn new(name: BranchName, options: Opts) -> Self {
        Self { name, order: 0, options }
    }

    /// With this place in the order of commits.
    #[must_use]
    pub fn in_order(self, order: u32) -> Self {
        Self { order, ..self }
    }

    /// By TLS, and never without. Blocks, because the files are tried.
    ///
    /// # Errors
    /// In plain words: when a file cannot be used, or the server is reached by a Unix socket.
    pub fn with_tls(self, tls: &DatabaseTls) -> Result<Self, String> {
        if self.options.socket().is_some() {
            return Err("TLS needs a host that is reached over TCP, not a socket".to_owned());
        }
        tls.client_config()?;
        let identity = tls.identity.as_ref();
        let identity = identity.map(|own| ClientIdentity::new(own.certificate.clone().into(), own.key.clone().into()));
        let options = SslOpts::default()
            .with_root_certs(vec![tls.authorities.clone().into()])
            .with_disable_built_in_roots(true)
            .with_client_identity(identity);
        // Else the driver would go over to the server's Unix socket once it is connected.
        let options = OptsBuilder::from_opts(self.options).ssl_opts(options).prefer_socket(false);
        Ok(Self { options: options.into(), ..self })
    }

    /// A new connection, for the program's own work too: [`super::MysqlBranch::start`].
    ///
    /// # Errors
    /// In plain words.
    pub async fn connect(&self) -> Result<Conn, String> {
        let plain = |error: mysql_async::Error| match &error {
            mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) => {
                "the server has no TLS, which is asked for: set ssl_cert and ssl_key there".to_owned()
            }
            _ => explained(&error).unwrap_or_else(|| error.to_string()),
        };
        Conn::new(self.options.clone()).await.map_err(plain)
    }

    async fn complete(&self, verb: &str, xid: &Xid) -> Answer {
        let mut connection = match self.connect().await {
            Ok(connection) => connection,
            Err(reason) => return Answer::new(XaCode::ManagerDown, reason),
        };
        let answer = settled(connection.query_drop(format!("XA {verb} {}", literal(xid))).await);
        let answer = if answer.code == XaCode::NotKnown {
            // Only what is not listed either is gone; else the connection that prepared it is still open.
            match listed(&mut connection).await {
                Ok(list) if !list.branches.contains(xid) => answer,
                Ok(_) => Answer::new(XaCode::Retry, "the connection that prepared it is still open"),
                Err(reason) => Answer::new(XaCode::ManagerDown, reason),
            }
        } else {
            answer
        };
        // A connection that cannot be closed politely is closed anyway.
        let _ = connection.disconnect().await;
        answer
    }
}

impl ResourceManager for MysqlManager {
    fn name(&self) -> &BranchName {
        &self.name
    }

    fn order(&self) -> u32 {
        self.order
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        Box::pin(async {
            let mut connection = self.connect().await?;
            let list = listed(&mut connection).await;
            let _ = connection.disconnect().await;
            list
        })
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(self.complete("COMMIT", xid))
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(self.complete("ROLLBACK", xid))
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = match self.connect().await {
                Ok(connection) => connection,
                Err(reason) => return vec![format!("cannot connect: {reason}")],
            };
            let list = listed(&mut connection).await;
            let _ = connection.disconnect().await;
            list.err().into_iter().map(|reason| format!("cannot list what is in doubt: {reason}")).collect()
        })
    }
}

impl fmt::Debug for MysqlManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The driver's options may show a password.
        f.debug_struct("MysqlManager").field("name", &self.name).finish_non_exhaustive()
    }
}

async fn listed(connection: &mut Conn) -> Result<InDoubt, String> {
    let rows: Vec<Row> = connection.query("XA RECOVER").await.map_err(|error| {
        let rights = match &error {
            mysql_async::Error::Server(server) if matches!(server.code, 1227 | 1142 | 1044) => {
                ". The user needs the right to see them: GRANT XA_RECOVER_ADMIN ON *.* in MySQL, SUPER in old versions"
            }
            _ => "",
        };
        format!("{error}{rights}")
    })?;
    let mut found = InDoubt::default();
    for row in rows {
        // A row is the format, the lengths of the two parts of the name, and both parts in one.
        let cell = |at: usize| row.get_opt::<i64, _>(at).and_then(std::result::Result::ok);
        let name = row.get_opt::<Vec<u8>, _>(3).and_then(std::result::Result::ok);
        let (Some(format), Some(length), Some(name)) = (cell(0), cell(1), name) else { continue };
        sort_in(format, length, &name, &mut found);
    }
    Ok(found)
}

/// Puts a name where it belongs. One of another format is nobody's here.
fn sort_in(format: i64, length: i64, name: &[u8], found: &mut InDoubt) {
    if format != i64::from(FORMAT_ID) {
        return;
    }
    // As much as there is: a name is shown whatever is wrong with it.
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (gtrid, bqual) = name.split_at_checked(length).unwrap_or((name, &[]));
    match Xid::of_parts(FORMAT_ID, gtrid, bqual) {
        Some(xid) => found.branches.push(xid),
        None => found.unreadable.push(literal_of(gtrid, bqual)),
    }
}

#[cfg(test)]
mod tests {
    use xa::{BranchName, CoordinatorId, FORMAT_ID, OwnerId, TransactionId, Xid};

    use super::{InDoubt, sort_in};

    #[test]
    fn a_name_of_ours_that_cannot_be_read_is_told_as_the_server_takes_it_and_one_of_others_is_passed_over() {
        let transaction = TransactionId {
            coordinator: CoordinatorId(1),
            owner: OwnerId(2),
            sequence: 3,
            deadline_ms: 0,
            shared: false,
            last_resource: None,
        };
        let xid = Xid { transaction, branch: BranchName::new("shop").unwrap() };
        let (gtrid, ours) = (transaction.to_bytes(), i64::from(FORMAT_ID));
        let name = [&gtrid[..], b"shop"].concat();
        let length = i64::try_from(gtrid.len()).unwrap();
        let mut found = InDoubt::default();
        sort_in(ours, length, &name, &mut found);
        sort_in(ours + 1, length, &name, &mut found);
        sort_in(ours + (1 << 32), length, &name, &mut found);
        assert_eq!(found, InDoubt { branches: vec![xid], unreadable: vec![] });
        // A part of the transaction's name, a branch that is none, lengths that are not.
        sort_in(ours, 2, b"abshop", &mut found);
        sort_in(ours, length, &[&gtrid[..], b"a b"].concat(), &mut found);
        sort_in(ours, 99, b"ab", &mut found);
        sort_in(ours, -1, b"", &mut found);
        let of_branch = found.unreadable.remove(1);
        assert!(of_branch.ends_with(&format!(",X'612062',{FORMAT_ID}")), "{of_branch}");
        let told = ["X'6162',X'73686f70'", "X'6162',X''", "X'',X''"].map(|name| format!("{name},{FORMAT_ID}"));
        assert_eq!((found.branches.len(), found.unreadable), (1, told.to_vec()));
    }
}
