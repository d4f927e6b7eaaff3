//! Mirrors of a server in tables with a column for each field, in PostgreSQL and in MariaDB: what comes back from there, tables of one's own, values that do not
//! fit, and kills of either side.

use std::path::Path;
use std::sync::Arc;

use grid::{ColumnKind, ColumnTable, Columns, FieldColumn, IdKind, Mirror, NotThrough, Rest};
use holdfast::space::{Wanted, WriteOptions};
use holdfast::{Durability, ErrorKind};
use holdfast_tests::{Client, Launch, Random, Server, Value, say, until};
use mysql_async::prelude::Queryable;
use tokio_postgres::SimpleQueryMessage;

use super::databases::{MariaDb, Postgres};
use super::scene::{self, LONG};
use super::server_tests::{document_of, is_said, metric};

const DECLARE: &str = "SPACE.DECLARE shop order HISTORY";

/// One of either, with settings that change how it writes values.
pub(crate) enum Database {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Database {
    pub(crate) fn postgres() -> Self {
        let mut postgres = Postgres::start(0);
        let settings = ["timezone=Asia/Kolkata", "datestyle=German", "bytea_output=escape", "extra_float_digits=0"];
        postgres.restart_with(settings.map(str::to_owned).to_vec());
        Self::Postgres(postgres)
    }

    pub(crate) fn mariadb() -> Self {
        let mut mariadb = MariaDb::start();
        mariadb.restart_with(["--skip-networking", "--default-time-zone=+05:30"].map(str::to_owned).to_vec());
        let this = Self::MariaDb(mariadb);
        this.ask_in("mysql", "CREATE DATABASE shop");
        this
    }

    pub(crate) fn is_mariadb(&self) -> bool {
        matches!(self, Self::MariaDb(_))
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Postgres(postgres) => postgres.connection(),
            Self::MariaDb(mariadb) => format!("mysql://root@localhost/shop?socket={}", mariadb.socket().display()),
        }
    }

    pub(crate) fn kill(&mut self) {
        match self {
            Self::Postgres(postgres) => postgres.kill(),
            Self::MariaDb(mariadb) => mariadb.kill(),
        }
    }

    pub(crate) fn run(&mut self) {
        match self {
            Self::Postgres(postgres) => postgres.run(0),
            Self::MariaDb(mariadb) => mariadb.run(),
        }
    }

    /// The rows of the answer, NULL as `NULL`. Names in the statement are in double quotes.
    pub(crate) fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        self.ask_in("shop", sql)
    }

    fn ask_in(&self, schema: &str, sql: &str) -> Vec<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let null = || "NULL".to_owned();
        runtime.block_on(async {
            match self {
                Self::Postgres(postgres) => {
                    let (client, connection) =
                        tokio_postgres::connect(&postgres.connection(), tokio_postgres::NoTls).await.unwrap();
                    let connection = tokio::spawn(connection);
                    let messages = client.simple_query(sql).await.unwrap();
                    connection.abort();
                    let rows = messages.iter().filter_map(|message| match message {
                        SimpleQueryMessage::Row(row) => Some(row),
                        _ => None,
                    });
                    rows.map(|row| (0..row.len()).map(|at| row.get(at).map_or_else(null, str::to_owned)).collect())
                        .collect()
                }
                Self::MariaDb(mariadb) => {
                    let options = mysql_async::OptsBuilder::default().user(Some("root")).db_name(Some(schema));
                    let options = options.socket(Some(mariadb.socket().display().to_string()));
                    let mut connection = mysql_async::Conn::new(options).await.unwrap();
                    let rows: Vec<mysql_async::Row> = connection.query(sql.replace('"', "`")).await.unwrap();
                    let text = |value: mysql_async::Value| match value {
                        mysql_async::Value::NULL => null(),
                        mysql_async::Value::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
                        other => panic!("{other:?}"),
                    };
                    rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect()
                }
            }
        })
    }
}

/// A server whose mirror `orders` is of the type `order`, with these keys.
fn launch(folder: &Path, database: &Database, keys: &str) -> Launch {
    let config = folder.join("holdfast.toml");
    std::fs::write(folder.join("address"), database.address()).unwrap();
    let orders = "[[mirrors]]\nname = \"orders\"\nspace = \"shop\"\ntype = \"order\"\naddress_file = \"address\"\n";
    std::fs::write(&config, format!("durability = \"written\"\n{orders}{keys}")).unwrap();
    Launch::new(&folder.join("data")).argument("--config").argument(&config.display().to_string())
}

/// Columns of these names, fields and kinds.
fn columns(columns: &[(&str, &str, &str)]) -> String {
    let each = columns.iter().map(|(name, field, kind)| {
        format!("[[mirrors.columns]]\nname = \"{name}\"\nfield = '{field}'\nkind = {kind}\n")
    });
    each.collect()
}

fn write(client: &mut Client, json: &str) {
    client.add(&["SPACE.WRITE", "shop", "order", json]);
    client.flush().unwrap();
    let answer = client.answer().unwrap();
    assert!(answer.error().is_none(), "{json}: {answer:?}");
}

fn declare(server: &Server) {
    assert_eq!(server.client().say(DECLARE), Value::Simple("OK".to_owned()));
}

/// All entries as JSON.
fn entries(server: &Server) -> Vec<String> {
    let answer = server.client().say("SPACE.MREAD shop order ANY COUNT 10000");
    let Value::Array(all) = &answer else { panic!("{answer:?}") };
    let mut all: Vec<String> = all.iter().map(document_of).collect();
    all.sort_unstable();
    all
}

const KINDS: &[(&str, &str, &str)] = &[
    ("total", "total", "\"integer\""),
    ("serial", "serial", "\"integer\"\ntype = \"numeric(20)\""),
    ("buyer", "buyer", "\"string\"\ntype = \"uuid\""),
    ("kept", "kept", "\"json\"\ntype = \"json\""),
    ("weight", "weight", "\"double\""),
    ("share", "share", "\"decimal\""),
    ("price", "price", "\"decimal\"\nscale = 2"),
    ("name", "customer.name", "\"string\""),
    ("paid", "paid", "\"boolean\""),
    ("at", "at", "\"timestamp\""),
    ("exact", "exact", "\"nanoseconds\""),
    ("scan", "scan", "\"bytes\""),
    ("unit tags", r#""unit ""tags""""#, "\"json\""),
];

/// Extremes of each kind, and nested fields whose parents are missing or no maps.
const DOCUMENTS: &[&str] = &[
    r#"{"id":-9223372036854775808}"#,
    r#"{"at":{"$timestamp":"1969-12-31T23:59:59.999999Z"},"customer":{"name":""},"exact":{"$timestamp":"1677-09-21T00:12:43.145224192Z"},"id":1,"paid":true,"price":{"$decimal":"-0.10"},"scan":{"$bytes":"AP8nXFwK"},"serial":18446744073709551615,"share":{"$decimal":"170141183460469231731687303715884105727"},"total":-9223372036854775808,"unit \"tags\"":[1,{"a":null,"b":{"$bytes":"AA=="}},"é"],"weight":-1.5}"#,
    r#"{"at":{"$timestamp":"1900-02-28T12:00:00Z"},"customer":{"age":7,"name":"O'Hara \\ \"é\" 𝄞\n`;--"},"exact":{"$timestamp":"2262-04-11T23:47:16.854775807Z"},"id":2,"paid":false,"price":{"$decimal":"99999999999999999999999999999999999.99"},"scan":{"$bytes":""},"serial":-1,"share":{"$decimal":"0.00000000000000000000000001"},"total":9223372036854775807,"unit \"tags\"":{"$$bytes":"x"},"weight":5e-324}"#,
    r#"{"at":{"$timestamp":"2262-04-11T23:47:16.854775Z"},"customer":"Bonn","id":3,"note":-0.0,"total":null,"weight":1.7976931348623157e+308}"#,
    r#"{"customer":null,"id":4,"note":{"deep":[1e+16,1e+300,{"$f64":"NaN"},{"$decimal":"1.50"}]},"weight":0.1}"#,
    r#"{"buyer":"0b5b8f0e-6d4c-4c7a-9d3e-0123456789ab","customer":{},"id":5,"kept":[-0.0,1e+16,{"a":null}],"weight":2.2250738585072014e-308}"#,
    r#"{"customer":{"name":null,"other":""},"id":6,"unit \"tags\"":"text","weight":123456789.12345679}"#,
];

/// The mirror makes the table, whose store is then lost.
fn everything_comes_back(database: &Database, more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let keys = format!("key = \"number\"\nrest = \"more\"\nload = true\n{}", columns(KINDS));
    let launch = launch(folder.path(), database, &keys);
    let server = launch.start();
    declare(&server);
    assert!(is_said(&server, "and follows"));
    let mut client = server.client();
    for json in DOCUMENTS.iter().chain(more) {
        write(&mut client, json);
    }
    // Written once more, as the statement is another one; and taken.
    write(&mut client, DOCUMENTS[1]);
    write(&mut client, r#"{"id":100,"total":1}"#);
    assert!(client.say("SPACE.TAKE shop order ID 100").error().is_none());
    let mut wanted: Vec<String> = DOCUMENTS.iter().chain(more).map(|json| (*json).to_owned()).collect();
    wanted.sort_unstable();
    assert_eq!(entries(&server), wanted);
    let count = || database.ask("SELECT count(*) FROM \"order\"")[0][0].parse::<usize>().unwrap();
    let all = until(LONG, || (count() == wanted.len() && metric(&server, "up") == 1).then_some(()));
    assert!(all.is_some(), "{} rows", count());
    let of = |id: &str, columns: &str| {
        let text = columns.split(", ").map(|name| match database {
            Database::Postgres(_) => format!("\"{name}\"::text"),
            Database::MariaDb(_) => format!("CAST(\"{name}\" AS CHAR)"),
        });
        let text = text.collect::<Vec<_>>().join(", ");
        database.ask(&format!("SELECT {text} FROM \"order\" WHERE number = {id}"))
    };
    assert_eq!(of("1", "total, serial, name, price"), [["-9223372036854775808", "18446744073709551615", "", "-0.10"]]);
    assert_eq!(of("2", "exact, more"), [["9223372036854775807", r#"{"customer":{"age":7}}"#]]);
    assert_eq!(
        database.ask("SELECT length(scan) FROM \"order\" WHERE number IN (1, 2) ORDER BY number"),
        [["6"], ["0"]]
    );
    assert_eq!(of("4", "total, name, paid, more")[0][..3], ["NULL", "NULL", "NULL"]);
    assert_eq!(of("6", "more"), [[r#"{"customer":{"name":null,"other":""}}"#]]);
    let (status, text) = server.terminate();
    assert!(status.success(), "{text}");
    std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    database.ask("DELETE FROM holdfast_mirror");
    let server = launch.start();
    declare(&server);
    let loaded = format!("its table has {0} rows, of which {0} were no entries and are now", wanted.len());
    assert!(is_said(&server, &loaded));
    assert_eq!(entries(&server), wanted);
}

#[test]
fn every_kind_comes_back_from_postgres_as_it_was() {
    // Only there.
    let numbers = [
        r#"{"id":7,"weight":{"$f64":"NaN"}}"#,
        r#"{"id":8,"weight":{"$f64":"Infinity"}}"#,
        r#"{"id":9,"weight":{"$f64":"-Infinity"}}"#,
        r#"{"id":10,"weight":-0.0}"#,
        r#"{"id":11,"share":{"$decimal":"12.500"}}"#,
    ];
    everything_comes_back(&Database::postgres(), &numbers);
}

#[test]
fn every_kind_comes_back_from_mariadb_as_it_was() {
    everything_comes_back(&Database::mariadb(), &[]);
}

/// A table of somebody's own: narrower columns, some of which the mirror knows nothing of.
const OWN: &[(&str, &str, &str)] = &[
    ("sum", "total", "\"integer\""),
    ("city", "address.city", "\"string\"\ntype = \"varchar(10)\""),
    ("seen", "seen", "\"timestamp\""),
];

fn own_table(database: &Database) {
    let seen = if matches!(database, Database::Postgres(_)) { "timestamp" } else { "timestamp(6) NULL" };
    database.ask(&format!(
        "CREATE TABLE \"order\" (note varchar(9) NOT NULL DEFAULT 'none', city varchar(10), number integer PRIMARY KEY, \
         sum integer, seen {seen})"
    ));
}

fn order(id: i64, total: i64) -> String {
    let seen = "{\"$timestamp\":\"2026-06-01T12:00:00.000001Z\"}";
    format!(r#"{{"address":{{"city":"Bonn"}},"id":{id},"seen":{seen},"total":{total}}}"#)
}

fn table(database: &Database) -> Vec<(i64, i64)> {
    let rows = database.ask("SELECT number, sum FROM \"order\" WHERE city = 'Bonn' ORDER BY number");
    rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect()
}

fn totals(server: &Server) -> Vec<(i64, i64)> {
    let number = |json: &str, field: &str| -> i64 {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        value[field].as_i64().unwrap()
    };
    let mut all: Vec<(i64, i64)> = entries(server).iter().map(|it| (number(it, "id"), number(it, "total"))).collect();
    all.sort_unstable();
    all
}

fn is_the_same(database: &Database, server: &Server) -> bool {
    let wanted = totals(server);
    until(LONG, || (table(database) == wanted).then_some(())).is_some()
}

fn kills_leave_the_table_equal(mut database: Database) {
    own_table(&database);
    let folder = tempfile::tempdir().unwrap();
    let launch = launch(folder.path(), &database, &format!("key = \"number\"\n{}", columns(OWN)));
    let mut server = launch.start();
    declare(&server);
    assert!(is_said(&server, "and follows"));
    let seed = Random::seed();
    say!("seed {seed}");
    let mut random = Random::new(seed);
    let mut newest: i64 = 0;
    for round in 0..6 {
        let mut client = server.client();
        for _ in 0..80 {
            newest += 1;
            let id = i64::try_from(random.below(40)).unwrap();
            if random.below(6) == 0 {
                assert!(client.say(&format!("SPACE.TAKE shop order ID {id}")).error().is_none());
            } else {
                write(&mut client, &order(id, newest));
            }
        }
        // Each of them, in some order, and what comes is written meanwhile.
        match round % 3 {
            0 => {
                server.kill();
                server = launch.start_again();
            }
            1 => {
                database.kill();
                write(&mut client, &order(1, newest));
                database.run();
            }
            _ => {
                database.kill();
                server.kill();
                server = launch.start_again();
                write(&mut server.client(), &order(2, newest));
                database.run();
            }
        }
    }
    assert!(is_the_same(&database, &server), "{:?} {:?}", table(&database), totals(&server));
    assert!(table(&database).len() > 10);
    // In UTC, whatever the database's own zone is.
    let seconds = match database {
        Database::Postgres(_) => "extract(epoch FROM seen)",
        Database::MariaDb(_) => "UNIX_TIMESTAMP(seen)",
    };
    assert_eq!(database.ask(&format!("SELECT DISTINCT {seconds} FROM \"order\"")), [["1780315200.000001"]]);
    // What the mirror knows nothing of is as it was.
    for id in [1, 2] {
        write(&mut server.client(), &order(id, newest));
    }
    assert!(is_the_same(&database, &server));
    database.ask("UPDATE \"order\" SET note = 'mine' WHERE number = 1");
    write(&mut server.client(), &order(1, -1));
    assert!(is_the_same(&database, &server));
    assert_eq!(database.ask("SELECT note FROM \"order\" WHERE number IN (1, 2) ORDER BY number"), [["mine"], ["none"]]);
}

#[test]
fn a_table_of_ones_own_in_postgres_is_equal_whoever_is_killed() {
    kills_leave_the_table_equal(Database::postgres());
}

#[test]
fn a_table_of_ones_own_in_mariadb_is_equal_whoever_is_killed() {
    kills_leave_the_table_equal(Database::mariadb());
}

/// What the mapping refuses, and what the table does: in order, each after the one before was mended.
fn what_does_not_fit_is_told(database: &Database, words: &[(&str, &str)]) {
    own_table(database);
    let folder = tempfile::tempdir().unwrap();
    let launch = launch(folder.path(), database, &format!("key = \"number\"\n{}", columns(OWN)));
    let server = launch.start();
    declare(&server);
    assert!(is_said(&server, "and follows"));
    let mut client = server.client();
    for (id, (json, words)) in (10..).zip(words) {
        write(&mut client, &json.replace("ID", &id.to_string()));
        assert!(is_said(&server, words), "{words}");
        assert_eq!(metric(&server, "up"), 0, "{words}");
        // It holds up what comes later, until it is gone and the mirror begins anew.
        write(&mut client, &order(id - 10, 5));
        assert!(table(database).iter().all(|(number, _)| *number != id - 10));
        assert!(client.say(&format!("SPACE.TAKE shop order ID {id}")).error().is_none());
        database.ask("DELETE FROM holdfast_mirror");
        assert!(is_the_same(database, &server), "{words}");
        assert!(until(LONG, || (metric(&server, "up") == 1).then_some(())).is_some());
    }
}

const REFUSED: [(&str, &str); 4] = [
    (
        r#"{"id":ID,"total":"many"}"#,
        "mirror orders: the entry 10 does not fit its table: its field total is a string, and the column sum has integers; tried again",
    ),
    (
        r#"{"id":ID,"more":{"x":1}}"#,
        "the entry 11 does not fit its table: its field more.x has no column, and there is none for the rest",
    ),
    (
        r#"{"id":ID,"seen":{"$timestamp":"2026-01-01T00:00:00.000000001Z"}}"#,
        "its field seen is finer than a microsecond",
    ),
    (r#"{"address":"Bonn","id":ID}"#, "the entry 13 does not fit its table: its field address has no column"),
];

#[test]
fn a_value_that_does_not_fit_in_postgres_is_told_and_holds_up_what_follows() {
    let by_table = [
        (r#"{"id":ID,"total":2147483648}"#, "PostgreSQL: integer out of range"),
        (r#"{"address":{"city":"Königswinter"},"id":ID}"#, "PostgreSQL: value too long for type character varying(10)"),
    ];
    what_does_not_fit_is_told(&Database::postgres(), &[&REFUSED[..], &by_table].concat());
}

#[test]
fn a_value_that_does_not_fit_in_mariadb_is_told_and_holds_up_what_follows() {
    let by_table = [
        (r#"{"id":ID,"total":2147483648}"#, "MariaDB: Out of range value for column 'sum'"),
        (r#"{"address":{"city":"Königswinter"},"id":ID}"#, "MariaDB: Data too long for column 'city'"),
        (r#"{"id":ID,"seen":{"$timestamp":"1969-01-01T00:00:00Z"}}"#, "MariaDB: Incorrect datetime value"),
    ];
    what_does_not_fit_is_told(&Database::mariadb(), &[&REFUSED[..], &by_table].concat());
}

fn what_was_evicted_is_read_from_its_columns(database: &Database) {
    let folder = tempfile::tempdir().unwrap();
    let keys = format!("rest = \"more\"\nread_through = true\n{}", columns(OWN));
    let launch = launch(folder.path(), database, &keys);
    let server = launch.start();
    let mut client = server.client();
    assert_eq!(client.say(&format!("{DECLARE} MEMORY 32768 EVICT")), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "and follows"));
    let of = |id: i64| order(id, id * 10).replace("\"city\"", "\"age\":null,\"city\"");
    for id in 0..400 {
        write(&mut client, &of(id));
    }
    let count = || database.ask("SELECT count(*) FROM \"order\"")[0][0].clone();
    assert!(until(LONG, || (count() == "400").then_some(())).is_some());
    assert!(entries(&server).len() < 400, "some were evicted");
    for id in 0..400 {
        assert_eq!(document_of(&client.say(&format!("SPACE.READ shop order ID {id}"))), of(id));
    }
    assert!(metric(&server, "loaded_total") > 0);
    // One that was taken is not there, and a row of another's making is an entry, or its reader's trouble.
    assert_ne!(client.say("SPACE.TAKE shop order ID 399"), Value::Nil);
    assert_eq!(client.say("SPACE.READ shop order ID 399"), Value::Nil);
    database.ask("INSERT INTO \"order\" (id, sum, more) VALUES (9000, 7, NULL), (9001, 7, '[]')");
    assert_eq!(document_of(&client.say("SPACE.READ shop order ID 9000")), r#"{"id":9000,"total":7}"#);
    let answer = client.say("SPACE.READ shop order ID 9001");
    assert!(
        answer.error().is_some_and(|text| text.contains("the row 9001 is no entry: its column more")),
        "{answer:?}"
    );
}

#[test]
fn what_was_evicted_is_read_from_columns_of_postgres() {
    what_was_evicted_is_read_from_its_columns(&Database::postgres());
}

#[test]
fn what_was_evicted_is_read_from_columns_of_mariadb() {
    what_was_evicted_is_read_from_its_columns(&Database::mariadb());
}

#[test]
fn a_column_for_the_id_is_told_of_when_the_type_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdfast.toml");
    let keys = columns(&[("city", "number.city", "\"string\"")]);
    let orders = "[[mirrors]]\nname = \"orders\"\nspace = \"shop\"\ntype = \"order\"\naddress = \"user=shop\"\n";
    std::fs::write(&config, format!("{orders}{keys}")).unwrap();
    let config = config.display().to_string();
    let server = Launch::new(&folder.path().join("data")).argument("--config").argument(&config).start();
    let declare = format!("{DECLARE} ID number");
    assert_eq!(server.client().say(&declare), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "mirror orders: the column city is for number, the id, which is the key id"));
}

#[test]
fn what_does_not_fit_is_not_written_through() {
    let database = Database::postgres();
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = scene::open(folder.path());
    let total = FieldColumn::new("total", ColumnKind::Integer);
    let columns = Columns { key: "number".to_owned(), fields: vec![total], rest: Rest::Refused };
    let mapping = ColumnTable::of(&orders.definition(), IdKind::Integer, columns).unwrap();
    let mirror = Mirror::start(&orders, Arc::new(mapping), scene::quick(database.address())).unwrap();
    let write = |document| {
        let mut transaction = store.begin();
        orders.within(&mut transaction).write(&document, &WriteOptions::default()).unwrap();
        mirror.commit(transaction, Durability::Written, LONG)
    };
    let order = |total: i64| holdfast::space::Document::from_pairs([("id", 1), ("total", total)]);
    write(order(5)).unwrap();
    match write(order(6).with("total", "many".into())).unwrap_err() {
        NotThrough::Nothing(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
        other => panic!("{other}"),
    }
    assert_eq!(database.ask("SELECT number, total FROM \"order\""), [["1", "5"]]);
    assert_eq!(orders.read(&Wanted::id(1), &Default::default()).unwrap().unwrap().document, order(5));
}
