//! What is asked of MariaDB, in its words.
//!
//! Rows are put in three steps, because `ON DUPLICATE KEY UPDATE` and `REPLACE` take a row that shares any unique value for the one
//! that is meant: those that are there are found by their keys and locked, the others are inserted, and those are updated.
//!
//! May use: `table`, mysql_async. Must not know: mirrors.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Params, Value};

use super::{Failure, READ_ROWS, RefusedRow, Row, Stands, Step};
use crate::mirror::hex;
use crate::mirror::table::{Column, Table, has_bytes};

/// Rows of one statement: so many that the way there and back counts for little.
const ROWS_MAX: usize = 500;
/// Bytes of values of one statement, about: a server takes 16 MiB unless told otherwise.
const STATEMENT_BYTES_MAX: usize = 4 << 20;
/// A statement has 65,535 places for values at most.
const VALUES_MAX: usize = 60_000;

/// What a statement is told that took longer than `max_statement_time`.
const STATEMENT_TIME_IS_OVER: u16 = 1969;
/// What a row takes in a statement besides its bytes, at most.
const ROW_BYTES: usize = 1024;
/// Steps of fewer bytes fit whatever a server takes.
const SMALL_BYTES: usize = 256 << 10;

/// Understands the text.
pub(super) fn parse(target: &str) -> Result<Opts> {
    // The driver's error may quote the text, which may hold a password.
    Opts::from_url(target).map_err(|_| {
        let text = "the target is not of the form mysql://user@host:port/database";
        Error::new(ErrorKind::Invalid, text)
    })
}

/// What mirrors rest on: values that do not fit are errors, times are in UTC, and locks are of rows that are there.
pub(super) async fn begin_session(connection: &mut Conn) -> Result<()> {
    run(connection, "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')").await?;
    run(connection, "SET SESSION time_zone = '+00:00'").await?;
    run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await
}

fn down(error: &mysql_async::Error) -> Error {
    let said = match error {
        mysql_async::Error::Server(server) => server.message.clone(),
        error => error.to_string(),
    };
    Error::new(ErrorKind::Unavailable, format!("MariaDB: {said}"))
}

fn failure(error: &mysql_async::Error) -> Failure {
    let mysql_async::Error::Server(server) = error else { return Failure::Down(down(error)) };
    // A deadlock, a time-out of a lock, a shutdown and a killed connection end the transaction, or may have. A table that is gone is made anew by another session.
    if matches!(server.code, 1213 | 1205 | 1613 | 1614 | 1053 | 1317 | 1927 | 1146 | 1932) {
        return Failure::Down(down(error));
    }
    let error = |kind| Error::new(kind, format!("MariaDB: {}", server.message));
    if is_of_row(server.code, &server.state) {
        return Failure::Row(error(ErrorKind::Invalid));
    }
    if server.code == STATEMENT_TIME_IS_OVER {
        return Failure::Refused(error(ErrorKind::Timeout));
    }
    // Tables, rights, and a column without a default, whose SQLSTATE says nothing: another row would do no better.
    let is_invalid = server.state.starts_with("42") || server.code == 1364;
    Failure::Refused(error(if is_invalid { ErrorKind::Invalid } else { ErrorKind::Unavailable }))
}

/// Whether this error is of what is in a row, so that the row will be refused again: data, integrity, the check of a view, and what a trigger signals without a state of
/// its own.
fn is_of_row(code: u16, state: &str) -> bool {
    match code {
        // Truncated data, wrong values, constraints, broken or deep JSON, a row that is too large: their SQLSTATEs say nothing of the row.
        1118 | 1265 | 1366 | 1411 | 1525 | 3140 | 3819 | 4025 | 4035..=4040 => true,
        // A name that is of two columns, which has the state of integrity.
        1052 => false,
        _ => matches!(state.get(..2), Some("22" | "23" | "44")) || state == "45000",
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The table's name as SQL has it.
fn name_of(table: &Table) -> String {
    table.name.split('.').map(quoted).collect::<Vec<_>>().join(".")
}

/// A value of the key. Text beside an integer would be compared as doubles.
fn key_value(column: &Column, key: &str) -> Value {
    let is_integer = column.sql_type.to_ascii_lowercase().contains("int");
    match (is_integer, key.parse::<i64>(), key.parse::<u64>()) {
        (true, Ok(number), _) => Value::Int(number),
        (true, _, Ok(number)) => Value::UInt(number),
        _ => Value::from(key),
    }
}

/// A value of another column. Of bytes no text is made by the database, nor are they made of one.
fn value(column: &Column, text: &str) -> std::result::Result<Value, Failure> {
    if !has_bytes(&column.sql_type) {
        return Ok(Value::from(text));
    }
    hex::decode(text).map(Value::Bytes).ok_or_else(|| {
        let text = format!("the bytes for the column {} are no hexadecimal digits", column.name);
        Failure::Row(Error::new(ErrorKind::Invalid, text))
    })
}

/// `?, ?, ?`
fn places(count: usize) -> String {
    vec!["?"; count].join(", ")
}

pub(super) async fn run(connection: &mut Conn, sql: &str) -> Result<()> {
    connection.query_drop(sql).await.map_err(|error| down(&error))
}

/// The limit lasts until it is taken away.
pub(super) async fn savepoint_within(connection: &mut Conn, savepoint: &str, limit: Duration) -> Result<()> {
    run(connection, &format!("SAVEPOINT {savepoint}")).await?;
    let seconds = limit.as_secs_f64().max(0.001);
    run(connection, &format!("SET SESSION max_statement_time = {seconds:.6}")).await
}

pub(super) async fn make_tables(connection: &mut Conn, name: &str, follows: &str, table: &Table) -> Result<()> {
    let own = "CREATE TABLE IF NOT EXISTS holdfast_mirror (\
               name varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, bookmark varchar(64) NOT NULL, \
               changed_at timestamp(6) NOT NULL DEFAULT current_timestamp(6), follows text, ended text) \
               CHARACTER SET utf8mb4 ENGINE=InnoDB";
    run(connection, own).await?;
    // To add what is there needs rights that a mirror does not.
    if run(connection, "SELECT follows, ended FROM holdfast_mirror LIMIT 0").await.is_err() {
        let more =
            "ALTER TABLE holdfast_mirror ADD COLUMN IF NOT EXISTS follows text, ADD COLUMN IF NOT EXISTS ended text";
        run(connection, more).await?;
    }
    if engine_of(connection, table).await?.is_none() {
        let sql = "DELETE FROM holdfast_mirror WHERE name = ? AND COALESCE(follows, ?) = ?";
        connection.exec_drop(sql, (name, follows, follows)).await.map_err(|error| down(&error))?;
    }
    let columns: String = table.columns.iter().map(|it| format!(", {} {}", quoted(&it.name), it.sql_type)).collect();
    let (key, key_type) = (quoted(&table.key.name), &table.key.sql_type);
    let rows =
        format!("CREATE TABLE IF NOT EXISTS {} ({key} {key_type} PRIMARY KEY{columns}) ENGINE=InnoDB", name_of(table));
    run(connection, &rows).await?;
    match engine_of(connection, table).await?.flatten() {
        Some(engine) if !engine.eq_ignore_ascii_case("InnoDB") => {
            let text = format!(
                "MariaDB: the table {} is kept by {engine}, and transactions need InnoDB: ALTER TABLE {} ENGINE=InnoDB",
                table.name,
                name_of(table)
            );
            Err(Error::new(ErrorKind::Unavailable, text))
        }
        _ => Ok(()),
    }
}

/// What keeps the table, if it is there; of a view nothing does.
async fn engine_of(connection: &mut Conn, table: &Table) -> Result<Option<Option<String>>> {
    let (schema, name) = match table.name.split_once('.') {
        Some((schema, name)) => (Value::from(schema), name),
        None => (Value::NULL, table.name.as_str()),
    };
    let asked = "SELECT ENGINE FROM information_schema.TABLES \
                 WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?";
    connection.exec_first(asked, (schema, name)).await.map_err(|error| down(&error))
}

pub(super) async fn make_refused(connection: &mut Conn) -> Result<()> {
    // A mirror that began anew may come to a bookmark a second time, so that is no key.
    let sql = "CREATE TABLE IF NOT EXISTS holdfast_refused (id bigint AUTO_INCREMENT PRIMARY KEY, \
               mirror varchar(255) COLLATE utf8mb4_bin NOT NULL, bookmark varchar(64) NOT NULL, number bigint NOT NULL, \
               row_key longtext COLLATE utf8mb4_bin NOT NULL, document longtext, reason longtext NOT NULL, \
               refused_at timestamp(6) NOT NULL DEFAULT current_timestamp(6)) CHARACTER SET utf8mb4 ENGINE=InnoDB";
    run(connection, sql).await
}

pub(super) async fn set_aside(connection: &mut Conn, name: &str, rows: &[RefusedRow]) -> Result<()> {
    let bytes_of = |row: &RefusedRow| row.key.len() + row.reason.len() + row.document.as_ref().map_or(0, String::len);
    let bytes: usize = rows.iter().map(|row| bytes_of(row) + ROW_BYTES).sum();
    if bytes > SMALL_BYTES {
        let packet = packet_bytes_max(connection).await?;
        if bytes > packet {
            let text = format!(
                "MariaDB: what its table refuses cannot be set aside, because it has {bytes} bytes and max_allowed_packet is {packet}: raise that, for the \
                 server and for new connections"
            );
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
    }
    let places = vec!["(?, ?, ?, ?, ?, ?)"; rows.len()].join(", ");
    let sql =
        format!("INSERT INTO holdfast_refused (mirror, bookmark, number, row_key, document, reason) VALUES {places}");
    let values = rows.iter().flat_map(|row| {
        let RefusedRow { bookmark, number, key, document, reason } = row;
        let document = document.as_deref().map_or(Value::NULL, Value::from);
        [name.into(), bookmark.as_str().into(), (*number).into(), key.as_str().into(), document, reason.as_str().into()]
    });
    let values: Vec<Value> = values.collect();
    connection.exec_drop(sql, Params::Positional(values)).await.map_err(|error| down(&error))
}

pub(super) async fn stands(connection: &mut Conn, name: &str) -> Result<Option<Stands>> {
    let sql = "SELECT bookmark, follows, ended FROM holdfast_mirror WHERE name = ?";
    let row = connection.exec_first(sql, (name,)).await.map_err(|error| down(&error))?;
    Ok(row.map(|(bookmark, follows, ended)| Stands { bookmark, follows, ended }))
}

pub(super) async fn adopt(connection: &mut Conn, name: &str, follows: &str) -> Result<()> {
    let sql = "UPDATE holdfast_mirror SET follows = ? WHERE name = ? AND follows IS NULL";
    connection.exec_drop(sql, (follows, name)).await.map_err(|error| down(&error))
}

pub(super) async fn note_end(connection: &mut Conn, name: &str, follows: &str, why: &str) -> Result<()> {
    let sql = "UPDATE holdfast_mirror SET ended = ? WHERE name = ? AND follows = ? AND ended IS NULL";
    connection.exec_drop(sql, (why, name, follows)).await.map_err(|error| down(&error))
}

pub(super) async fn bookmark(connection: &mut Conn, name: &str) -> Result<Option<String>> {
    let sql = "SELECT bookmark FROM holdfast_mirror WHERE name = ? FOR UPDATE";
    connection.exec_first(sql, (name,)).await.map_err(|error| down(&error))
}

/// How many rows were written: one, or none.
pub(super) async fn set_bookmark(connection: &mut Conn, name: &str, to: &str, follows: &str) -> Result<u64> {
    let sql = "INSERT IGNORE INTO holdfast_mirror (name, bookmark, follows) VALUES (?, ?, ?)";
    connection.exec_drop(sql, (name, to, follows)).await.map_err(|error| down(&error))?;
    Ok(connection.affected_rows())
}

/// How many rows were moved: one, or none.
pub(super) async fn move_bookmark(connection: &mut Conn, name: &str, from: &str, to: &str) -> Result<u64> {
    let sql =
        "UPDATE holdfast_mirror SET bookmark = ?, changed_at = current_timestamp(6) WHERE name = ? AND bookmark = ?";
    connection.exec_drop(sql, (to, name, from)).await.map_err(|error| down(&error))?;
    Ok(connection.affected_rows())
}

/// Takes steps of one kind, each key once.
pub(super) async fn take(connection: &mut Conn, table: &Table, run: &[Step]) -> std::result::Result<(), Failure> {
    let bytes: usize = run.iter().map(bytes_of).sum();
    let mut bytes_max = STATEMENT_BYTES_MAX;
    if bytes > SMALL_BYTES {
        let packet = packet_bytes_max(connection).await?;
        if let Some(step) = run.iter().find(|step| bytes_of(step) + ROW_BYTES > packet) {
            let (key, has) = (step.key(), bytes_of(step));
            let text = format!(
                "MariaDB: the row {key} has {has} bytes, and its max_allowed_packet is {packet}: raise that, for the server and for new connections"
            );
            return Err(Failure::Row(Error::new(ErrorKind::Invalid, text)));
        }
        bytes_max = bytes_max.min(packet / 2);
    }
    for part in parts(run, 1 + table.columns.len(), bytes_max) {
        match part.first() {
            Some(Step::Put { .. }) => put(connection, table, part).await?,
            _ => remove(connection, table, part).await?,
        }
    }
    Ok(())
}

/// The largest statement that the server takes.
async fn packet_bytes_max(connection: &mut Conn) -> Result<usize> {
    let bytes: Option<u64> =
        connection.query_first("SELECT @@max_allowed_packet").await.map_err(|error| down(&error))?;
    Ok(bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)))
}

/// Bytes of the values of a step.
fn bytes_of(step: &Step) -> usize {
    let row = match step {
        Step::Put { row, .. } => row.iter().flatten().map(String::len).sum(),
        Step::Remove { .. } => 0,
    };
    step.key().len() + row
}

/// Parts that fit into a statement each, of about so many bytes.
fn parts(mut run: &[Step], width: usize, bytes_max: usize) -> Vec<&[Step]> {
    let rows_max = ROWS_MAX.min(VALUES_MAX / width.max(1)).max(1);
    let mut parts = Vec::new();
    while !run.is_empty() {
        let mut bytes = 0;
        let fits = |step: &&Step| {
            bytes += bytes_of(step);
            bytes <= bytes_max
        };
        let count = run.iter().take(rows_max).take_while(fits).count().max(1);
        let (part, rest) = run.split_at(count);
        parts.push(part);
        run = rest;
    }
    parts
}

/// The values of the columns behind the key. A row that is too short has NULL in the others.
fn values(table: &Table, row: &[Option<String>]) -> std::result::Result<Vec<Value>, Failure> {
    let texts = row.iter().map(Option::as_deref).chain(std::iter::repeat(None));
    let each =
        table.columns.iter().zip(texts).map(|(column, text)| text.map_or(Ok(Value::NULL), |it| value(column, it)));
    each.collect()
}

async fn put(connection: &mut Conn, table: &Table, part: &[Step]) -> std::result::Result<(), Failure> {
    let failure = |error: mysql_async::Error| failure(&error);
    let (name, key) = (name_of(table), quoted(&table.key.name));
    let keys: Vec<Value> = part.iter().map(|step| key_value(&table.key, step.key())).collect();
    let find = format!("SELECT CAST({key} AS CHAR) FROM {name} WHERE {key} IN ({}) FOR UPDATE", places(keys.len()));
    let there: Vec<String> = connection.exec(find, Params::Positional(keys)).await.map_err(failure)?;
    let there: BTreeSet<String> = there.into_iter().collect();
    let (old, new): (Vec<&Step>, Vec<&Step>) = part.iter().partition(|step| there.contains(step.key()));
    if !new.is_empty() {
        let names: Vec<String> = table.all().map(|column| quoted(&column.name)).collect();
        let row = format!("({})", places(names.len()));
        let sql = format!("INSERT INTO {name} ({}) VALUES {}", names.join(", "), vec![row; new.len()].join(", "));
        let mut all = Vec::with_capacity(names.len() * new.len());
        for step in new {
            let Step::Put { key, row } = step else { continue };
            all.push(key_value(&table.key, key));
            all.extend(values(table, row)?);
        }
        connection.exec_drop(sql, Params::Positional(all)).await.map_err(failure)?;
    }
    if table.columns.is_empty() {
        return Ok(());
    }
    let sets: Vec<String> = table.columns.iter().map(|column| format!("{} = ?", quoted(&column.name))).collect();
    let sql = format!("UPDATE {name} SET {} WHERE {key} = ?", sets.join(", "));
    for step in old {
        let Step::Put { key, row } = step else { continue };
        let mut all = values(table, row)?;
        all.push(key_value(&table.key, key));
        connection.exec_drop(sql.as_str(), Params::Positional(all)).await.map_err(failure)?;
    }
    Ok(())
}

async fn remove(connection: &mut Conn, table: &Table, part: &[Step]) -> std::result::Result<(), Failure> {
    let (name, key) = (name_of(table), quoted(&table.key.name));
    let keys: Vec<Value> = part.iter().map(|step| key_value(&table.key, step.key())).collect();
    let sql = format!("DELETE FROM {name} WHERE {key} IN ({})", places(keys.len()));
    connection.exec_drop(sql, Params::Positional(keys)).await.map_err(|error| failure(&error))
}

/// What selects rows, as text.
fn select(table: &Table) -> String {
    let text = |column: &Column, is_key: bool| {
        let function = if has_bytes(&column.sql_type) && !is_key { "HEX({})" } else { "CAST({} AS CHAR)" };
        function.replace("{}", &quoted(&column.name))
    };
    let columns = table.columns.iter().map(|column| text(column, false));
    let columns: Vec<String> = std::iter::once(text(&table.key, true)).chain(columns).collect();
    format!("SELECT {} FROM {}", columns.join(", "), name_of(table))
}

fn row_of(row: mysql_async::Row) -> Result<Row> {
    let text = |value: Value| match value {
        Value::NULL => Ok(None),
        Value::Bytes(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "a value is no text".to_owned()),
        other => Err(format!("a value came as {other:?} and not as text")),
    };
    let row: std::result::Result<Row, String> = row.unwrap().into_iter().map(text).collect();
    row.map_err(|text| Error::new(ErrorKind::Invalid, format!("MariaDB: {text}")))
}

pub(super) async fn rows(
    connection: &mut Conn,
    table: &Table,
    each: &mut dyn FnMut(&[Row]) -> Result<()>,
) -> Result<()> {
    let down = |error: mysql_async::Error| down(&error);
    let mut found = connection.query_iter(select(table)).await.map_err(down)?;
    let mut rows = Vec::with_capacity(READ_ROWS);
    while let Some(row) = found.next().await.map_err(down)? {
        rows.push(row_of(row)?);
        if rows.len() == READ_ROWS {
            each(&rows)?;
            rows.clear();
        }
    }
    if rows.is_empty() { Ok(()) } else { each(&rows) }
}

pub(super) async fn rows_of(connection: &mut Conn, table: &Table, keys: &[String]) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    for some in keys.chunks(READ_ROWS) {
        let marks = vec!["?"; some.len()].join(", ");
        let sql = format!("{} WHERE {} IN ({marks})", select(table), quoted(&table.key.name));
        let keys: Vec<Value> = some.iter().map(|key| key_value(&table.key, key)).collect();
        let rows: Vec<mysql_async::Row> = connection.exec(sql, keys).await.map_err(|error| down(&error))?;
        found.extend(rows.into_iter().map(row_of).collect::<Result<Vec<_>>>()?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_into_a_statement() {
        let put = |bytes: usize| Step::Put { key: "k".to_owned(), row: vec![Some("x".repeat(bytes)), None] };
        let lengths = |run: &[Step], width| {
            parts(run, width, STATEMENT_BYTES_MAX).iter().map(|part| part.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&vec![put(1); 1200], 3), [500, 500, 200]);
        assert_eq!(lengths(&vec![put(1); 30], 6000), [10, 10, 10]);
        assert_eq!(lengths(&[put(3 << 20), put(3 << 20), put(9 << 20), put(1)], 3), [1, 1, 1, 1]);
        assert_eq!(lengths(&[], 3), [0; 0]);
    }

    #[test]
    fn rows_are_told_apart_from_the_database_by_number_and_sqlstate() {
        let server = |code: u16, state: &str| {
            let message = "what it said".to_owned();
            failure(&mysql_async::Error::Server(mysql_async::ServerError { code, message, state: state.to_owned() }))
        };
        for (code, state) in [
            (1048, "23000"), // NOT NULL
            (1062, "23000"), // UNIQUE
            (1118, "42000"), // a row that is too large
            (1264, "22003"),
            (1265, "01000"),
            (1292, "22007"),
            (1366, "22007"),
            (1366, "HY000"),
            (1369, "44000"), // the check of a view
            (1406, "22001"),
            (1451, "23000"), // foreign keys
            (1452, "23000"),
            (1525, "HY000"),
            (1644, "45000"), // SIGNAL
            (3140, "22032"),
            (3819, "HY000"),
            (4025, "23000"), // CHECK
            (4038, "HY000"),
            (4040, "HY000"),
        ] {
            assert!(matches!(server(code, state), Failure::Row(error) if error.kind() == ErrorKind::Invalid), "{code}");
        }
        for (code, state) in [
            (1021, "HY000"), // a full disk
            (1044, "42000"), // rights
            (1052, "23000"),
            (1054, "42S22"), // no such column
            (1114, "HY000"), // a full table
            (1136, "21S01"),
            (1142, "42000"),
            (1290, "HY000"), // read-only
            (1364, "HY000"),
            (1526, "HY000"), // no partition
            (1644, "55000"), // a state of one's own
            (1969, "70100"), // a statement that took too long
        ] {
            let late = code == STATEMENT_TIME_IS_OVER;
            let is_so = |error: &Error| (error.kind() == ErrorKind::Timeout) == late;
            assert!(matches!(server(code, state), Failure::Refused(error) if is_so(&error)), "{code}");
        }
        let ends = [(1053, "08S01"), (1205, "HY000"), (1213, "40001"), (1317, "70100"), (1927, "70100")];
        // No such table: another session makes it anew.
        for (code, state) in ends.into_iter().chain([(1146, "42S02")]) {
            assert!(matches!(server(code, state), Failure::Down(_)), "{code}");
        }
        let lost = mysql_async::Error::Driver(mysql_async::DriverError::ConnectionClosed);
        assert!(matches!(failure(&lost), Failure::Down(_)));
    }

    #[test]
    fn bytes_travel_as_hexadecimal_digits() {
        let column = |sql_type: &str| Column { name: "scan".to_owned(), sql_type: sql_type.to_owned() };
        for binary in ["longblob", "BLOB", "varbinary(16)", "binary (2) NOT NULL"] {
            assert_eq!(value(&column(binary), "00fF").unwrap(), Value::Bytes(vec![0, 255]), "{binary}");
            assert!(matches!(value(&column(binary), "x"), Err(Failure::Row(_))), "{binary}");
        }
        for text in ["longtext", "varchar(9) COLLATE utf8mb4_bin", "varchar(9) CHARACTER SET binary"] {
            assert_eq!(value(&column(text), "00").unwrap(), Value::Bytes(b"00".to_vec()), "{text}");
        }
        let table = Table { name: "a".to_owned(), key: column("varbinary(9)"), columns: vec![column("blob")] };
        assert_eq!(select(&table), "SELECT CAST(`scan` AS CHAR), HEX(`scan`) FROM `a`");
    }

    #[test]
    fn keys_of_integer_columns_travel_as_integers() {
        let column = |sql_type: &str| Column { name: "id".to_owned(), sql_type: sql_type.to_owned() };
        assert_eq!(key_value(&column("BIGINT"), "-7"), Value::Int(-7));
        assert_eq!(key_value(&column("bigint unsigned"), "18446744073709551615"), Value::UInt(u64::MAX));
        assert_eq!(key_value(&column("varchar(9)"), "7"), Value::from("7"));
        assert_eq!(key_value(&column("int"), "x"), Value::from("x"));
    }
}
