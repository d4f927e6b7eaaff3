//! The target: a database, a connection to it, and what mirrors and loaders ask of it.
//!
//! Mirrors make the table `holdfast_mirror`: the name of a mirror, its bookmark in its text form, when it moved last, what the mirror follows
//! in which table, and why it has ended, if it has. Those that set aside what is refused make `holdfast_refused` as well: the mirror, the bookmark behind the
//! Holdfast batch, a number within that from 1, the row's key, the document as JSON or NULL where the entry went, why, and when.
//! A transaction of the target is begun and ended by its own words; a connection that is dropped before has changed nothing.
//!
//! May use: `table`, `tm` for connections. Must not know: listeners.

mod mariadb;
mod postgres;

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast::space::Document;
use holdfast::{Error, ErrorKind, Result};
use tm::{BranchName, MysqlManager, PostgresManager, PostgresTls};

use super::Database;
use super::table::{Mapping, Table};

/// Rows that are read at once.
const READ_ROWS: usize = 500;

/// A row to be put or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Put { key: String, row: Vec<Option<String>> },
    Remove { key: String },
}

impl Step {
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Remove { key } => key,
        }
    }
}

/// A row as it was read: the key, and the other columns.
pub(super) type Row = Vec<Option<String>>;

/// What `holdfast_mirror` has of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stands {
    pub(super) bookmark: String,
    /// What the bookmark is of; `None` in rows of before that was noted.
    pub(super) follows: Option<String>,
    pub(super) ended: Option<String>,
}

/// A row that was set aside, as `holdfast_refused` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedRow {
    /// Behind the batch in which it was.
    pub(super) bookmark: String,
    /// Within that batch, from 1.
    pub(super) number: i64,
    pub(super) key: String,
    /// As JSON; `None` where the entry went.
    pub(super) document: Option<String>,
    pub(super) reason: String,
}

/// Rows of `holdfast_refused` that are written at once.
const REFUSED_ROWS: usize = 500;
/// Bytes of documents that are written there at once, about.
const REFUSED_BYTES: usize = 4 << 20;

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// A row is not let in for what is in it, and will not be when it comes again: the transaction goes on, from its last savepoint, unless this ended it.
    Row(Error),
    /// The statement alone failed: the transaction goes on, from its last savepoint.
    Refused(Error),
    /// The connection, or the transaction as a whole.
    Down(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Row(error) | Failure::Refused(error) | Failure::Down(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Down(error)
    }
}

/// However far away it is, and whatever stands in between.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(20);

/// Where a target is.
#[derive(Clone)]
pub(super) enum Address {
    Postgres(Box<PostgresManager>),
    MariaDb(MysqlManager),
}

impl Address {
    /// Understands the text, and reads the certificates. Blocks.
    pub(super) fn of(database: &Database) -> Result<Self> {
        let Database { address, tls } = database;
        let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
        // A name is what resource managers have; nothing is prepared under this one.
        let name = BranchName::new("mirror").map_err(|error| invalid(error.to_string()))?;
        if let Some((_, rest)) = address.split_once("://").filter(|(scheme, _)| matches!(*scheme, "mysql" | "mariadb"))
        {
            let options = mariadb::parse(&format!("mysql://{rest}"))?;
            let manager = MysqlManager::new(name, options);
            return Ok(Self::MariaDb(match tls {
                Some(tls) => manager.with_tls(tls).map_err(invalid)?,
                None => manager,
            }));
        }
        let config = postgres::parse(address, tls.is_some())?;
        let manager = PostgresManager::new(name, config);
        Ok(Self::Postgres(Box::new(match tls {
            Some(tls) => manager.with_tls(PostgresTls::new(tls).map_err(invalid)?),
            None => manager,
        })))
    }

    /// Connects, or gives up when that takes too long; the connection is served by the runtime that calls.
    pub(super) async fn connect(&self) -> Result<Target> {
        let silent = |_| {
            let text = format!("the database does not answer: no connection in {} s", CONNECT_TIME_MAX.as_secs());
            Error::new(ErrorKind::Unavailable, text)
        };
        tokio::time::timeout(CONNECT_TIME_MAX, self.try_connect()).await.map_err(silent)?
    }

    async fn try_connect(&self) -> Result<Target> {
        let down = |database: &str, reason: String| Error::new(ErrorKind::Unavailable, format!("{database}: {reason}"));
        Ok(match self {
            Self::Postgres(manager) => {
                let client = manager.connect().await.map_err(|reason| down("PostgreSQL", reason))?;
                postgres::begin_session(&client).await?;
                Target::Postgres(client)
            }
            Self::MariaDb(manager) => {
                let mut connection = manager.connect().await.map_err(|reason| down("MariaDB", reason))?;
                mariadb::begin_session(&mut connection).await?;
                Target::MariaDb(Box::new(connection))
            }
        })
    }
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no runtime: {error}")))
}

/// A connection.
pub(super) enum Target {
    Postgres(tokio_postgres::Client),
    MariaDb(Box<mysql_async::Conn>),
}

impl Target {
    /// A statement without parameters or rows, which both databases write alike: those that begin and end transactions.
    pub(super) async fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Postgres(client) => postgres::run(client, sql).await,
            Self::MariaDb(connection) => mariadb::run(connection, sql).await,
        }
    }

    /// Sets a savepoint, and has each statement from there on end after so long: what ends so is `Refused` with `Timeout`.
    pub(super) async fn savepoint_within(&mut self, savepoint: &str, limit: Duration) -> Result<()> {
        match self {
            Self::Postgres(client) => postgres::savepoint_within(client, savepoint, limit).await,
            Self::MariaDb(connection) => mariadb::savepoint_within(connection, savepoint, limit).await,
        }
    }

    /// Has statements end when the database wants them to, again.
    pub(super) async fn unlimit(&mut self) -> Result<()> {
        self.run(match self {
            Self::Postgres(_) => "SET LOCAL statement_timeout TO DEFAULT",
            Self::MariaDb(_) => "SET SESSION max_statement_time = DEFAULT",
        })
        .await
    }

    /// Makes the tables that are not there. A mirror whose table is to be made begins anew: its bookmark goes before that.
    pub(super) async fn make_tables(&mut self, name: &str, follows: &str, table: &Table) -> Result<()> {
        match self {
            Self::Postgres(client) => postgres::make_tables(client, name, follows, table).await,
            Self::MariaDb(connection) => mariadb::make_tables(connection, name, follows, table).await,
        }
    }

    /// What is there of a mirror.
    pub(super) async fn stands(&mut self, name: &str) -> Result<Option<Stands>> {
        match self {
            Self::Postgres(client) => postgres::stands(client, name).await,
            Self::MariaDb(connection) => mariadb::stands(connection, name).await,
        }
    }

    /// Notes what a bookmark is of that has no such note.
    pub(super) async fn adopt(&mut self, name: &str, follows: &str) -> Result<()> {
        match self {
            Self::Postgres(client) => postgres::adopt(client, name, follows).await,
            Self::MariaDb(connection) => mariadb::adopt(connection, name, follows).await,
        }
    }

    /// Notes why a mirror of this has ended, so that it does not go on by mistake when it is started again.
    pub(super) async fn note_end(&mut self, name: &str, follows: &str, why: &str) -> Result<()> {
        match self {
            Self::Postgres(client) => postgres::note_end(client, name, follows, why).await,
            Self::MariaDb(connection) => mariadb::note_end(connection, name, follows, why).await,
        }
    }

    /// Where a mirror stands. Within a transaction the row stays locked until its end.
    pub(super) async fn bookmark(&mut self, name: &str) -> Result<Option<String>> {
        match self {
            Self::Postgres(client) => postgres::bookmark(client, name).await,
            Self::MariaDb(connection) => mariadb::bookmark(connection, name).await,
        }
    }

    /// Writes the first bookmark, of what the mirror follows. The row stays locked until the transaction ends.
    pub(super) async fn set_bookmark(&mut self, name: &str, to: &str, follows: &str) -> Result<()> {
        let set = match self {
            Self::Postgres(client) => postgres::set_bookmark(client, name, to, follows).await?,
            Self::MariaDb(connection) => mariadb::set_bookmark(connection, name, to, follows).await?,
        };
        if set == 1 { Ok(()) } else { Err(moved_by_another(name)) }
    }

    /// Moves the bookmark. The row stays locked until the transaction ends.
    pub(super) async fn move_bookmark(&mut self, name: &str, from: &str, to: &str) -> Result<()> {
        let moved = match self {
            Self::Postgres(client) => postgres::move_bookmark(client, name, from, to).await?,
            Self::MariaDb(connection) => mariadb::move_bookmark(connection, name, from, to).await?,
        };
        if moved == 1 { Ok(()) } else { Err(moved_by_another(name)) }
    }

    /// Makes the table of what is set aside, if it is not there.
    pub(super) async fn make_refused(&mut self) -> Result<()> {
        match self {
            Self::Postgres(client) => postgres::make_refused(client).await,
            Self::MariaDb(connection) => mariadb::make_refused(connection).await,
        }
    }

    /// Writes down what is set aside.
    pub(super) async fn set_aside(&mut self, name: &str, rows: &[RefusedRow]) -> Result<()> {
        for some in refused_parts(rows) {
            match self {
                Self::Postgres(client) => postgres::set_aside(client, name, some).await?,
                Self::MariaDb(connection) => mariadb::set_aside(connection, name, some).await?,
            }
        }
        Ok(())
    }

    /// Ends the transaction, and has checked what waited for that.
    pub(super) async fn commit(&mut self) -> std::result::Result<(), Failure> {
        match self {
            Self::Postgres(client) => postgres::commit(client).await,
            Self::MariaDb(connection) => Ok(mariadb::run(connection, "COMMIT").await?),
        }
    }

    /// Takes the steps, in their order, as few statements.
    pub(super) async fn apply(&mut self, table: &Table, steps: &[Step]) -> std::result::Result<(), Failure> {
        for run in runs(steps) {
            match self {
                Self::Postgres(client) => postgres::take(client, table, run).await?,
                Self::MariaDb(connection) => mariadb::take(connection, table, run).await?,
            }
        }
        Ok(())
    }

    /// Takes them, and has everything checked that would be checked at the end of a transaction which did nothing else.
    pub(super) async fn apply_checked(&mut self, table: &Table, steps: &[Step]) -> std::result::Result<(), Failure> {
        self.apply(table, steps).await?;
        match self {
            Self::Postgres(client) => postgres::check_now(client).await,
            // It defers nothing.
            Self::MariaDb(_) => Ok(()),
        }
    }

    /// Reads all rows, some at a time.
    pub(super) async fn rows(&mut self, table: &Table, each: &mut dyn FnMut(&[Row]) -> Result<()>) -> Result<()> {
        match self {
            Self::Postgres(client) => postgres::rows(client, table, each).await,
            Self::MariaDb(connection) => mariadb::rows(connection, table, each).await,
        }
    }

    /// Reads the rows with these keys that there are, in any order.
    pub(super) async fn rows_of(&mut self, table: &Table, keys: &[String]) -> Result<Vec<Row>> {
        match self {
            Self::Postgres(client) => postgres::rows_of(client, table, keys).await,
            Self::MariaDb(connection) => mariadb::rows_of(connection, table, keys).await,
        }
    }
}

pub(super) fn moved_by_another(name: &str) -> Error {
    let text = format!("another mirror has moved the bookmark of {name}: give each a name of its own");
    Error::new(ErrorKind::Unavailable, text)
}

/// Steps of one kind that follow one another, each key at most once.
fn runs(mut steps: &[Step]) -> Vec<&[Step]> {
    let mut runs = Vec::new();
    while let Some(first) = steps.first() {
        let mut keys = BTreeSet::new();
        let fits = |step: &&Step| match (first, *step) {
            (Step::Put { .. }, Step::Put { key, .. }) | (Step::Remove { .. }, Step::Remove { key }) => {
                keys.insert(key.clone())
            }
            _ => false,
        };
        let count = steps.iter().take_while(fits).count();
        let (run, rest) = steps.split_at(count);
        runs.push(run);
        steps = rest;
    }
    runs
}

/// Rows of which each part is written at once.
fn refused_parts(mut rows: &[RefusedRow]) -> Vec<&[RefusedRow]> {
    let mut parts = Vec::new();
    while !rows.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&RefusedRow| {
            bytes += row.key.len() + row.document.as_ref().map_or(0, String::len) + row.reason.len();
            bytes <= REFUSED_BYTES
        };
        let count = rows.iter().take(REFUSED_ROWS).take_while(fits).count().max(1);
        let (part, rest) = rows.split_at(count);
        parts.push(part);
        rows = rest;
    }
    parts
}

/// The document of a row.
pub(super) fn document(mapping: &dyn Mapping, row: &Row) -> Result<Document> {
    let mut values = row.iter().map(Option::as_deref);
    let key = values.next().flatten().unwrap_or_default();
    mapping.document(key, &values.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use tm::DatabaseTls;

    use super::*;

    #[test]
    fn a_run_is_of_one_kind_and_has_each_key_once() {
        let put = |key: &str| Step::Put { key: key.to_owned(), row: Vec::new() };
        let remove = |key: &str| Step::Remove { key: key.to_owned() };
        let steps = [put("a"), put("b"), put("a"), remove("a"), remove("b"), put("b")];
        let lengths: Vec<usize> = runs(&steps).iter().map(|run| run.len()).collect();
        assert_eq!(lengths, [2, 1, 2, 1]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn what_is_set_aside_is_written_in_parts() {
        let row = |bytes: usize| RefusedRow {
            bookmark: "1.0".to_owned(),
            number: 1,
            key: "7".to_owned(),
            document: Some("x".repeat(bytes)),
            reason: String::new(),
        };
        let lengths = |rows: &[RefusedRow]| refused_parts(rows).iter().map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&vec![row(1); 1200]), [500, 500, 200]);
        assert_eq!(lengths(&[row(3 << 20), row(3 << 20), row(9 << 20), row(1)]), [1, 1, 1, 1]);
        assert!(lengths(&[]).is_empty());
    }

    #[test]
    fn a_target_that_is_not_understood_is_refused_without_its_password() {
        let of = |address: &str, tls: Option<&DatabaseTls>| {
            Address::of(&Database { address: address.to_owned(), tls: tls.cloned() })
        };
        let refused = |address: &str, tls: Option<&DatabaseTls>| match of(address, tls) {
            Ok(_) => panic!("{address} is understood"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(!error.to_string().contains("secret"), "{error}");
                error.to_string()
            }
        };
        assert!(refused("host=x password=secret port=many", None).starts_with("the target is not understood"));
        assert!(refused("mysql://ada:secret@h:many/shop", None).contains("mysql://user@host:port/database"));
        assert!(refused("host=x password=secret sslmode=require", None).contains("authorities"));
        let tls = DatabaseTls { authorities: "/nowhere/ca.pem".into(), identity: None };
        assert!(refused("host=x password=secret", Some(&tls)).contains("/nowhere/ca.pem"));
        assert!(refused("mariadb://ada:secret@localhost/?socket=/x", Some(&tls)).contains("TCP"));
        assert!(matches!(of("mariadb://ada@h:3306/shop", None), Ok(Address::MariaDb(_))));
        assert!(matches!(of("postgres://ada@h/shop", None), Ok(Address::Postgres(_))));
        assert!(!format!("{:?}", Database::new("password=secret")).contains("secret"));
    }
}
