//! What is asked of PostgreSQL, in its words.
//!
//! May use: `table`, tokio-postgres. Must not know: mirrors.

use std::error::Error as _;
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config};

use super::{Failure, READ_ROWS, RefusedRow, Row, Stands, Step};
use crate::mirror::table::Table;

/// Understands the text; with TLS if it is by that.
pub(super) fn parse(target: &str, by_tls: bool) -> Result<Config> {
    let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
    // The driver's error may quote the text, which may hold a password.
    let config: Config = target.parse().map_err(|_| {
        invalid(
            "the target is not understood: it is of the form `host=.. user=.. dbname=..` or postgres://user@host/database".to_owned(),
        )
    })?;
    if config.get_ssl_mode() == SslMode::Require && !by_tls {
        let text = "the target says sslmode=require: give the options `tls`, with the authorities that are trusted";
        return Err(invalid(text.to_owned()));
    }
    Ok(config)
}

/// Characters of what the database says of a row.
const DETAIL_MAX: usize = 300;

/// An error in the database's own words. The driver's own display of one names only its kind.
fn said(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        // The details say which row it is.
        (Some(error), _) => match error.detail() {
            Some(detail) => format!("{}: {}", error.message(), detail.chars().take(DETAIL_MAX).collect::<String>()),
            None => error.message().to_owned(),
        },
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

fn down(error: &tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("PostgreSQL: {}", said(error)))
}

fn failure(error: &tokio_postgres::Error) -> Failure {
    let is_error = |error: &&DbError| error.parsed_severity() == Some(Severity::Error);
    let Some(answer) = error.as_db_error().filter(is_error) else { return Failure::Down(down(error)) };
    // Data, integrity and what triggers say speak of the row; the rest of the database as it is now.
    let code = answer.code().code();
    // A table or a schema that is gone is made anew by another session.
    if matches!(code, "42P01" | "3F000") {
        return Failure::Down(down(error));
    }
    let kind = match code.get(..2) {
        _ if matches!(code, "55P03" | "57014") => ErrorKind::Timeout,
        Some("22" | "23" | "42" | "44" | "P0") => ErrorKind::Invalid,
        _ if is_of_row(code) => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    let error = Error::new(kind, format!("PostgreSQL: {}", said(error)));
    if is_of_row(code) { Failure::Row(error) } else { Failure::Refused(error) }
}

/// Whether this SQLSTATE is of what is in a row, so that the row will be refused again: data, integrity, the check of a view, an exception that a trigger raises without a
/// state of its own, and what is too large for an index or too deep for the parser. Of tables, rights, locks and the server itself it is not.
fn is_of_row(code: &str) -> bool {
    matches!(code.get(..2), Some("22" | "23" | "44")) || matches!(code, "P0001" | "54000" | "54001")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The table's name as SQL has it.
fn name_of(table: &Table) -> String {
    table.name.split('.').map(quoted).collect::<Vec<_>>().join(".")
}

/// The type that text is cast to for a column of this type: a cast to `varchar(9)` cuts off what is longer, without a word, and only what
/// is assigned to a column of it is refused.
fn cast(sql_type: &str) -> String {
    let lower = sql_type.trim_start().to_ascii_lowercase();
    let word = lower.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
    let without_length = match word {
        "varchar" => "varchar",
        "character" | "char" | "nchar" | "national" | "bpchar" if lower.contains("varying") => "varchar",
        "character" | "char" | "nchar" | "national" | "bpchar" => "bpchar",
        "bit" | "varbit" => "varbit",
        _ => return sql_type.to_owned(),
    };
    let array = lower.split_once('[').map_or_else(String::new, |(_, behind)| format!("[{behind}"));
    format!("{without_length}{array}")
}

/// What values of a row rest on: they travel as text, in one form whatever the server's settings are.
pub(super) async fn begin_session(client: &Client) -> Result<()> {
    let sql = "SET TimeZone TO 'UTC'; SET DateStyle TO 'ISO'; SET extra_float_digits TO 1; SET bytea_output TO 'hex'";
    run(client, sql).await
}

pub(super) async fn run(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(|error| down(&error))
}

/// The limit lasts until the transaction ends, or goes back to the savepoint.
pub(super) async fn savepoint_within(client: &Client, savepoint: &str, limit: Duration) -> Result<()> {
    let ms = limit.as_millis().max(1);
    run(client, &format!("SAVEPOINT {savepoint}; SET LOCAL statement_timeout TO {ms}")).await
}

pub(super) async fn make_tables(client: &Client, name: &str, follows: &str, table: &Table) -> Result<()> {
    let own = "CREATE TABLE IF NOT EXISTS holdfast_mirror (name text PRIMARY KEY, bookmark text NOT NULL, \
               changed_at timestamptz NOT NULL DEFAULT now(), follows text, ended text)";
    run(client, own).await?;
    // To add what is there needs the rights of the table's owner.
    if run(client, "SELECT follows, ended FROM holdfast_mirror WHERE false").await.is_err() {
        let more =
            "ALTER TABLE holdfast_mirror ADD COLUMN IF NOT EXISTS follows text, ADD COLUMN IF NOT EXISTS ended text";
        run(client, more).await?;
    }
    let rows = name_of(table);
    let asked = client.query_one("SELECT to_regclass($1) IS NULL", &[&rows]).await.map_err(|error| down(&error))?;
    if asked.try_get(0).map_err(|error| down(&error))? {
        let sql = "DELETE FROM holdfast_mirror WHERE name = $1 AND COALESCE(follows, $2) = $2";
        client.execute(sql, &[&name, &follows]).await.map_err(|error| down(&error))?;
    }
    let columns: String = table.columns.iter().map(|it| format!(", {} {}", quoted(&it.name), it.sql_type)).collect();
    let (key, key_type) = (quoted(&table.key.name), &table.key.sql_type);
    run(client, &format!("CREATE TABLE IF NOT EXISTS {rows} ({key} {key_type} PRIMARY KEY{columns})")).await
}

pub(super) async fn make_refused(client: &Client) -> Result<()> {
    // A mirror that began anew may come to a bookmark a second time, so that is no key.
    let sql = "CREATE TABLE IF NOT EXISTS holdfast_refused (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
               mirror text NOT NULL, bookmark text NOT NULL, number bigint NOT NULL, row_key text NOT NULL, \
               document text, reason text NOT NULL, refused_at timestamptz NOT NULL DEFAULT now())";
    run(client, sql).await
}

pub(super) async fn set_aside(client: &Client, name: &str, rows: &[RefusedRow]) -> Result<()> {
    let sql = "INSERT INTO holdfast_refused (mirror, bookmark, number, row_key, document, reason) \
               SELECT $1, r.* FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[]) AS r";
    let bookmarks: Vec<&str> = rows.iter().map(|row| row.bookmark.as_str()).collect();
    let numbers: Vec<i64> = rows.iter().map(|row| row.number).collect();
    let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    let documents: Vec<Option<&str>> = rows.iter().map(|row| row.document.as_deref()).collect();
    let reasons: Vec<&str> = rows.iter().map(|row| row.reason.as_str()).collect();
    let written = client.execute(sql, &[&name, &bookmarks, &numbers, &keys, &documents, &reasons]).await;
    written.map(|_| ()).map_err(|error| down(&error))
}

pub(super) async fn commit(client: &Client) -> std::result::Result<(), Failure> {
    client.batch_execute("COMMIT").await.map_err(|error| failure(&error))
}

pub(super) async fn stands(client: &Client, name: &str) -> Result<Option<Stands>> {
    let down = |error: tokio_postgres::Error| down(&error);
    let sql = "SELECT bookmark, follows, ended FROM holdfast_mirror WHERE name = $1";
    let Some(row) = client.query_opt(sql, &[&name]).await.map_err(down)? else { return Ok(None) };
    let (bookmark, follows) = (row.try_get(0).map_err(down)?, row.try_get(1).map_err(down)?);
    Ok(Some(Stands { bookmark, follows, ended: row.try_get(2).map_err(down)? }))
}

pub(super) async fn adopt(client: &Client, name: &str, follows: &str) -> Result<()> {
    let sql = "UPDATE holdfast_mirror SET follows = $2 WHERE name = $1 AND follows IS NULL";
    client.execute(sql, &[&name, &follows]).await.map(|_| ()).map_err(|error| down(&error))
}

pub(super) async fn note_end(client: &Client, name: &str, follows: &str, why: &str) -> Result<()> {
    let sql = "UPDATE holdfast_mirror SET ended = $3 WHERE name = $1 AND follows = $2 AND ended IS NULL";
    client.execute(sql, &[&name, &follows, &why]).await.map(|_| ()).map_err(|error| down(&error))
}

pub(super) async fn bookmark(client: &Client, name: &str) -> Result<Option<String>> {
    let sql = "SELECT bookmark FROM holdfast_mirror WHERE name = $1 FOR UPDATE";
    let row = client.query_opt(sql, &[&name]).await.map_err(|error| down(&error))?;
    row.map(|row| row.try_get(0).map_err(|error| down(&error))).transpose()
}

/// How many rows were written: one, or none.
pub(super) async fn set_bookmark(client: &Client, name: &str, to: &str, follows: &str) -> Result<u64> {
    let sql = "INSERT INTO holdfast_mirror (name, bookmark, follows) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    client.execute(sql, &[&name, &to, &follows]).await.map_err(|error| down(&error))
}

/// How many rows were moved: one, or none.
pub(super) async fn move_bookmark(client: &Client, name: &str, from: &str, to: &str) -> Result<u64> {
    let sql = "UPDATE holdfast_mirror SET bookmark = $3, changed_at = now() WHERE name = $1 AND bookmark = $2";
    client.execute(sql, &[&name, &from, &to]).await.map_err(|error| down(&error))
}

/// Takes steps of one kind, each key once.
pub(super) async fn take(client: &Client, table: &Table, run: &[Step]) -> std::result::Result<(), Failure> {
    let taken = match run.first() {
        Some(Step::Put { .. }) => put(client, table, run).await,
        _ => remove(client, table, run).await,
    };
    taken.map_err(|error| failure(&error))
}

async fn put(client: &Client, table: &Table, run: &[Step]) -> std::result::Result<(), tokio_postgres::Error> {
    let width = 1 + table.columns.len();
    let mut columns: Vec<Vec<Option<&str>>> = vec![Vec::with_capacity(run.len()); width];
    for step in run {
        let Step::Put { key, row } = step else { continue };
        let mut values = std::iter::once(Some(key.as_str())).chain(row.iter().map(Option::as_deref));
        // A row that is too short has NULL in the other columns.
        columns.iter_mut().for_each(|column| column.push(values.next().flatten()));
    }
    let each = |with: &dyn Fn(usize, &str, &str) -> String| {
        let parts = table.all().enumerate().map(|(number, it)| with(number, &quoted(&it.name), &it.sql_type));
        parts.collect::<Vec<_>>().join(", ")
    };
    let names = each(&|_, name, _| name.to_owned());
    let values = each(&|number, _, sql_type| format!("c{number}::{}", cast(sql_type)));
    let arrays = each(&|number, _, _| format!("${}::text[]", number + 1));
    let aliases = each(&|number, _, _| format!("c{number}"));
    let sets: Vec<String> = table.columns.iter().map(|it| format!("{0} = EXCLUDED.{0}", quoted(&it.name))).collect();
    let update = if sets.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", sets.join(", ")) };
    let (name, key) = (name_of(table), quoted(&table.key.name));
    let sql = format!(
        "INSERT INTO {name} ({names}) SELECT {values} FROM unnest({arrays}) AS r({aliases}) \
         ON CONFLICT ({key}) DO {update}"
    );
    let parameters: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect();
    client.execute(&sql, &parameters).await.map(|_| ())
}

async fn remove(client: &Client, table: &Table, run: &[Step]) -> std::result::Result<(), tokio_postgres::Error> {
    // A text with that character is in no column, and the server would refuse the others with it.
    let keys: Vec<&str> = run.iter().map(Step::key).filter(|key| !key.contains('\0')).collect();
    let (name, key, key_type) = (name_of(table), quoted(&table.key.name), cast(&table.key.sql_type));
    let sql = format!("DELETE FROM {name} WHERE {key} IN (SELECT k::{key_type} FROM unnest($1::text[]) AS r(k))");
    client.execute(&sql, &[&keys]).await.map(|_| ())
}

/// Has constraints checked that were to be checked at the end.
pub(super) async fn check_now(client: &Client) -> std::result::Result<(), Failure> {
    // Going back has them checked at the end again, those that are, for the next who shares the transaction.
    let sql = "SAVEPOINT holdfast_check; SET CONSTRAINTS ALL IMMEDIATE; \
               ROLLBACK TO SAVEPOINT holdfast_check; RELEASE SAVEPOINT holdfast_check";
    client.batch_execute(sql).await.map_err(|error| failure(&error))
}

/// What selects rows, as text.
fn select(table: &Table) -> String {
    let columns: Vec<String> = table.all().map(|it| format!("{}::text", quoted(&it.name))).collect();
    format!("SELECT {} FROM {}", columns.join(", "), name_of(table))
}

fn row_of(row: &tokio_postgres::Row) -> Result<Row> {
    (0..row.len()).map(|number| row.try_get(number).map_err(|error| down(&error))).collect()
}

pub(super) async fn rows(client: &mut Client, table: &Table, each: &mut dyn FnMut(&[Row]) -> Result<()>) -> Result<()> {
    let down = |error: tokio_postgres::Error| down(&error);
    let transaction = client.transaction().await.map_err(down)?;
    let read = async {
        let portal = transaction.bind(&select(table), &[]).await.map_err(down)?;
        loop {
            let rows = transaction.query_portal(&portal, i32::try_from(READ_ROWS).unwrap_or(i32::MAX));
            let rows = rows.await.map_err(down)?;
            if rows.is_empty() {
                return Ok(());
            }
            each(&rows.iter().map(row_of).collect::<Result<Vec<_>>>()?)?;
        }
    };
    let read = read.await;
    // Waited for: nobody drives the connection afterwards, and the table would stay locked against those who alter it.
    let ended = transaction.rollback().await.map_err(down);
    read.and(ended)
}

pub(super) async fn rows_of(client: &Client, table: &Table, keys: &[String]) -> Result<Vec<Row>> {
    let (name, key_type) = (quoted(&table.key.name), cast(&table.key.sql_type));
    let sql = format!("{} WHERE {name} = ANY($1::text[]::{key_type}[])", select(table));
    // A text with that character is in no column, and the server would refuse the others with it.
    let keys: Vec<&String> = keys.iter().filter(|key| !key.contains('\0')).collect();
    let rows = client.query(&sql, &[&keys]).await.map_err(|error| down(&error))?;
    rows.iter().map(row_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::table::Column;

    #[test]
    fn nothing_is_cast_to_a_length() {
        for (sql_type, wanted) in [
            ("varchar(9)", "varchar"),
            ("Character Varying (9)", "varchar"),
            ("national character varying(9)", "varchar"),
            ("char(9)", "bpchar"),
            ("char", "bpchar"),
            ("varchar(9)[]", "varchar[]"),
            ("bit(3)", "varbit"),
            ("bit varying(3)", "varbit"),
            ("numeric(12, 2)", "numeric(12, 2)"),
            ("text", "text"),
            ("shop.state", "shop.state"),
        ] {
            assert_eq!(cast(sql_type), wanted);
        }
    }

    #[test]
    fn rows_are_told_apart_from_the_database_by_the_sqlstate() {
        // Too long, out of range, no UUID, NUL, NOT NULL, a foreign key, UNIQUE, CHECK, EXCLUDE, a view's check, RAISE, an index row, a stack.
        for code in [
            "22001", "22003", "22P02", "22021", "22P05", "23502", "23503", "23505", "23514", "23P01", "44000", "P0001",
            "54000", "54001",
        ] {
            assert!(is_of_row(code), "{code}");
        }
        // Connections, features, transactions, rights, tables, columns, types, disks, memory, connections, columns, locks, shutdowns, files, faults.
        for code in [
            "08006", "0A000", "25006", "25P02", "28000", "40001", "40P01", "42501", "42P01", "42703", "42804", "53100",
            "53200", "53300", "54011", "55P03", "57014", "57P01", "58030", "P0002", "P0004", "XX000", "", "2",
        ] {
            assert!(!is_of_row(code), "{code}");
        }
    }

    #[test]
    fn names_are_quoted_and_schemas_are_names_of_their_own() {
        let key = Column { name: "id".to_owned(), sql_type: "bigint".to_owned() };
        let table = Table { name: "a.b\"c".to_owned(), key, columns: Vec::new() };
        assert_eq!(name_of(&table), "\"a\".\"b\"\"c\"");
        assert_eq!(select(&table), "SELECT \"id\"::text FROM \"a\".\"b\"\"c\"");
    }
}
