//! Accounts in two databases, and a transaction that moves money between them.
//!
//! May use: `tm`, the databases' clients. Must not know: who kills what.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast::Options;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use tm::{
    Begin, BranchName, Coordinator, MysqlBranch, MysqlManager, Pace, PostgresBranch, PostgresManager, Recovery,
    RemoteOptions, ResourceManager, Transaction,
};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

pub(crate) const ACCOUNTS: i64 = 10;
/// In each account at first.
pub(crate) const EACH: i64 = 1000;
/// In each database.
pub(crate) const MONEY: i64 = ACCOUNTS * EACH;

/// How both databases are reached.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) postgres: String,
    pub(crate) mariadb: Opts,
}

/// A connection to each.
pub(crate) struct Clients {
    pub(crate) postgres: Arc<Client>,
    pub(crate) mariadb: Arc<Mutex<Conn>>,
}

/// The coordinator at `dir:` and a folder, or of the server at an address.
pub(crate) async fn open(place: &str) -> Result<Coordinator, Problem> {
    Ok(match place.strip_prefix("dir:") {
        Some(dir) => Coordinator::open(Path::new(dir), Options::default()).await?,
        None => Coordinator::connect(remote(place)).await?,
    })
}

/// How programs reach a server.
pub(crate) fn remote(address: &str) -> RemoteOptions {
    // Short, so that what a killed program left is cleared away soon.
    let (lease, patience) = (Duration::from_secs(1), Duration::from_secs(5));
    RemoteOptions { lease, patience, ..RemoteOptions::new(address) }
}

pub(crate) type Problem = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn name(text: &str) -> BranchName {
    BranchName::new(text).unwrap()
}

impl Reach {
    pub(crate) fn new(postgres: &str, socket: &Path) -> Self {
        let mariadb = OptsBuilder::default().user(Some("root")).socket(Some(socket.display().to_string()));
        Self { postgres: postgres.to_owned(), mariadb: mariadb.into() }
    }

    pub(crate) async fn connect(&self) -> Result<Clients, Problem> {
        let (postgres, connection) = tokio_postgres::connect(&self.postgres, NoTls).await?;
        tokio::spawn(connection);
        let mariadb = Conn::new(self.mariadb.clone()).await?;
        Ok(Clients { postgres: Arc::new(postgres), mariadb: Arc::new(Mutex::new(mariadb)) })
    }

    pub(crate) fn postgres_manager(&self) -> PostgresManager {
        PostgresManager::new(name("postgres"), self.postgres.parse().unwrap())
    }

    pub(crate) fn managers(&self) -> Vec<Arc<dyn ResourceManager>> {
        let postgres = self.postgres_manager();
        let mariadb = MysqlManager::new(name("mariadb"), self.mariadb.clone());
        vec![Arc::new(postgres), Arc::new(mariadb)]
    }

    /// The text of a profile with both, whose coordinator is a server.
    pub(crate) fn profile(&self, profile: &str, server: &str) -> String {
        let socket = self.mariadb.socket().unwrap_or_default().replace('/', "%2F");
        format!(
            "[profiles.{profile}.coordinator]\nservers = [\"{server}\"]\n\n[[profiles.{profile}.resource_managers]]\n\
             name = \"postgres\"\nkind = \"postgres\"\nopen = \"{}\"\n\n[[profiles.{profile}.resource_managers]]\n\
             name = \"mariadb\"\nkind = \"mariadb\"\nopen = \"mysql://root@localhost:3306?socket={socket}\"\n",
            self.postgres
        )
    }

    pub(crate) fn recovery(&self, coordinator: &Coordinator) -> Recovery {
        Recovery::new(coordinator, self.managers(), Pace::default())
    }

    /// Accounts, full of money, and a list of transfers.
    pub(crate) async fn found(&self) {
        self.found_with(ACCOUNTS).await;
    }

    /// The same, with so many accounts in each.
    pub(crate) async fn found_with(&self, accounts: i64) {
        let clients = self.connect().await.unwrap();
        let insert = (0..accounts).map(|id| format!("({id}, {EACH})")).collect::<Vec<_>>().join(", ");
        let tables = format!(
            "CREATE TABLE bank.accounts (id INT PRIMARY KEY, money BIGINT NOT NULL);
             CREATE TABLE bank.transfers (id VARCHAR(100) PRIMARY KEY);
             INSERT INTO bank.accounts VALUES {insert};"
        );
        clients.postgres.batch_execute(&format!("CREATE SCHEMA bank; {tables}")).await.unwrap();
        clients.mariadb.lock().await.query_drop(format!("CREATE DATABASE bank; {tables}")).await.unwrap();
    }
}

impl Clients {
    /// A transaction with a branch in each.
    pub(crate) async fn begin(&self, coordinator: &Coordinator) -> Result<Transaction, Problem> {
        let mut transaction = coordinator.begin(Begin::default())?;
        let branch = PostgresBranch::start(&self.postgres, transaction.xid("postgres")?).await?;
        transaction.enlist(&name("postgres"), branch).await?;
        let branch = MysqlBranch::start(&self.mariadb, &transaction.xid("mariadb")?).await?;
        transaction.enlist(&name("mariadb"), branch).await?;
        Ok(transaction)
    }

    /// Moves money from an account in PostgreSQL to one in MariaDB, or back when it is less than nothing. Does not commit.
    pub(crate) async fn transfer(&self, id: &str, from: i64, to: i64, money: i64) -> Result<(), Problem> {
        self.change(id, [from, to], [-money, money]).await
    }

    /// Changes an account in PostgreSQL and one in MariaDB by so much each. Does not commit.
    pub(crate) async fn change(&self, id: &str, accounts: [i64; 2], by: [i64; 2]) -> Result<(), Problem> {
        let statement = |account: i64, money: i64| {
            format!(
                "UPDATE bank.accounts SET money = money + {money} WHERE id = {account};
                 INSERT INTO bank.transfers VALUES ('{id}')"
            )
        };
        self.postgres.batch_execute(&statement(accounts[0], by[0])).await?;
        Ok(self.mariadb.lock().await.query_drop(statement(accounts[1], by[1])).await?)
    }

    /// All money of PostgreSQL and of MariaDB.
    pub(crate) async fn money(&self) -> (i64, i64) {
        let row = self.postgres.query_one("SELECT sum(money)::bigint FROM bank.accounts", &[]).await.unwrap();
        let query = "SELECT CAST(SUM(money) AS SIGNED) FROM bank.accounts";
        let there: Option<i64> = self.mariadb.lock().await.query_first(query).await.unwrap();
        (row.get(0), there.unwrap())
    }

    /// The transfers that each knows, in order.
    pub(crate) async fn transfers(&self) -> (Vec<String>, Vec<String>) {
        let query = "SELECT id FROM bank.transfers";
        let rows = self.postgres.query(query, &[]).await.unwrap();
        let mut here: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let mut there: Vec<String> = self.mariadb.lock().await.query(query).await.unwrap();
        here.sort();
        there.sort();
        (here, there)
    }

    /// How many transactions of anybody are prepared in each.
    pub(crate) async fn prepared(&self) -> (usize, usize) {
        let here = self.postgres.query("SELECT gid FROM pg_prepared_xacts", &[]).await.unwrap();
        let there: Vec<mysql_async::Row> = self.mariadb.lock().await.query("XA RECOVER").await.unwrap();
        (here.len(), there.len())
    }
}
