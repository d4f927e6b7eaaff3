//! The target: a connection to PostgreSQL, and the statements that mirrors and loaders send.
//!
//! Mirrors make the table `holdfast_mirror`: the name of a mirror, its bookmark in its text form, and when it moved last.
//!
//! May use: `table`, tokio-postgres. Must not know: listeners.

use std::collections::BTreeSet;
use std::error::Error as _;

use holdfast::{Error, ErrorKind, Result};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Transaction};

use super::table::{Mapping, Table, quoted};

/// A row to be put or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Put { key: String, row: Vec<Option<String>> },
    Remove { key: String },
}

pub(super) fn parse(target: &str) -> Result<Config> {
    // The text may hold a password: the error does not repeat it.
    target.parse().map_err(|error| Error::new(ErrorKind::Invalid, format!("the target is not understood: {error}")))
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no runtime: {error}")))
}

/// An error in the database's own words. The driver's own display of one names only its kind.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) => error.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

pub(super) fn down(error: &tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("PostgreSQL: {}", said(error)))
}

/// Connects; the connection is served by the runtime that calls.
pub(super) async fn connect(target: &str) -> Result<Client> {
    let (client, connection) = parse(target)?.connect(NoTls).await.map_err(|error| down(&error))?;
    // How it ends is seen by the next request.
    tokio::spawn(connection);
    Ok(client)
}

/// Makes the tables that are not there.
pub(super) async fn make_tables(client: &Client, table: &Table) -> Result<()> {
    let own = "CREATE TABLE IF NOT EXISTS holdfast_mirror (name text PRIMARY KEY, bookmark text NOT NULL, \
               changed_at timestamptz NOT NULL DEFAULT now())";
    let columns: String = table.columns.iter().map(|it| format!(", {} {}", quoted(&it.name), it.sql_type)).collect();
    let (key, key_type) = (quoted(&table.key.name), &table.key.sql_type);
    let rows = format!("CREATE TABLE IF NOT EXISTS {} ({key} {key_type} PRIMARY KEY{columns})", table.sql_name());
    client.batch_execute(&format!("{own}; {rows}")).await.map_err(|error| down(&error))
}

/// Where a mirror stands.
pub(super) async fn bookmark(client: &Client, name: &str) -> Result<Option<String>> {
    let row = client.query_opt("SELECT bookmark FROM holdfast_mirror WHERE name = $1", &[&name]).await;
    Ok(row.map_err(|error| down(&error))?.map(|row| row.get(0)))
}

/// Moves the bookmark, or writes the first. The row stays locked until the transaction ends.
pub(super) async fn move_bookmark(
    transaction: &Transaction<'_>,
    name: &str,
    from: Option<&str>,
    to: &str,
) -> Result<()> {
    let moved = match from {
        Some(from) => {
            let sql = "UPDATE holdfast_mirror SET bookmark = $3, changed_at = now() WHERE name = $1 AND bookmark = $2";
            transaction.execute(sql, &[&name, &from, &to]).await
        }
        None => {
            let sql = "INSERT INTO holdfast_mirror (name, bookmark) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            transaction.execute(sql, &[&name, &to]).await
        }
    };
    if moved.map_err(|error| down(&error))? == 1 {
        return Ok(());
    }
    let text = format!("another mirror has moved the bookmark of {name}: give each a name of its own");
    Err(Error::new(ErrorKind::Unavailable, text))
}

/// Takes the steps, in their order, as few statements.
pub(super) async fn apply(transaction: &Transaction<'_>, table: &Table, steps: &[Step]) -> Result<()> {
    for run in runs(steps) {
        match run.first() {
            Some(Step::Put { .. }) => put(transaction, table, run).await,
            _ => remove(transaction, table, run).await,
        }
        .map_err(|error| down(&error))?;
    }
    Ok(())
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

async fn put(
    transaction: &Transaction<'_>,
    table: &Table,
    run: &[Step],
) -> std::result::Result<(), tokio_postgres::Error> {
    let width = 1 + table.columns.len();
    let mut columns: Vec<Vec<Option<String>>> = vec![Vec::with_capacity(run.len()); width];
    for step in run {
        let Step::Put { key, row } = step else { continue };
        let mut values = std::iter::once(Some(key.clone())).chain(row.iter().cloned());
        // A row that is too short has NULL in the other columns.
        columns.iter_mut().for_each(|column| column.push(values.next().flatten()));
    }
    let each = |with: &dyn Fn(usize, &str, &str) -> String| {
        let parts = table.all().enumerate().map(|(number, it)| with(number, &quoted(&it.name), &it.sql_type));
        parts.collect::<Vec<_>>().join(", ")
    };
    let names = each(&|_, name, _| name.to_owned());
    let values = each(&|number, _, sql_type| format!("c{number}::{sql_type}"));
    let arrays = each(&|number, _, _| format!("${}::text[]", number + 1));
    let aliases = each(&|number, _, _| format!("c{number}"));
    let sets: Vec<String> = table.columns.iter().map(|it| format!("{0} = EXCLUDED.{0}", quoted(&it.name))).collect();
    let update = if sets.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", sets.join(", ")) };
    let (name, key) = (table.sql_name(), quoted(&table.key.name));
    let sql = format!(
        "INSERT INTO {name} ({names}) SELECT {values} FROM unnest({arrays}) AS r({aliases}) \
         ON CONFLICT ({key}) DO {update}"
    );
    let parameters: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect();
    transaction.execute(&sql, &parameters).await.map(|_| ())
}

async fn remove(
    transaction: &Transaction<'_>,
    table: &Table,
    run: &[Step],
) -> std::result::Result<(), tokio_postgres::Error> {
    let key = |step: &Step| match step {
        Step::Put { key, .. } | Step::Remove { key } => key.clone(),
    };
    let keys: Vec<String> = run.iter().map(key).collect();
    let (name, key, key_type) = (table.sql_name(), quoted(&table.key.name), &table.key.sql_type);
    let sql = format!("DELETE FROM {name} WHERE {key} IN (SELECT k::{key_type} FROM unnest($1::text[]) AS r(k))");
    transaction.execute(&sql, &[&keys]).await.map(|_| ())
}

/// What selects rows, as text.
pub(super) fn select(table: &Table) -> String {
    let columns: Vec<String> = table.all().map(|it| format!("{}::text", quoted(&it.name))).collect();
    format!("SELECT {} FROM {}", columns.join(", "), table.sql_name())
}

/// What selects one row.
pub(super) fn select_one(table: &Table) -> String {
    let (key, key_type) = (quoted(&table.key.name), &table.key.sql_type);
    format!("{} WHERE {key} = $1::text::{key_type}", select(table))
}

/// The document of a row.
pub(super) fn document(mapping: &dyn Mapping, row: &Row) -> Result<holdfast::space::Document> {
    let value = |number| row.try_get::<_, Option<&str>>(number).map_err(|error| down(&error));
    let key = value(0)?.unwrap_or_default();
    let values = (1..row.len()).map(value).collect::<Result<Vec<_>>>()?;
    mapping.document(key, &values)
}

#[cfg(test)]
mod tests {
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
}
