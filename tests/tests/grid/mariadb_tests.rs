//! The same in MariaDB: mirrors, loading, reading through and writing through, and what is peculiar there.

use std::collections::BTreeMap;
use std::sync::Arc;

use grid::{Column, DocumentTable, IdKind, Loaded, Loader, Mapping, Mirror, MirrorOptions, NotThrough, Table};
use holdfast::space::{Definition, Document, Entries, ReadOptions, Value, ValueRef, Wanted, WriteOptions};
use holdfast::{Durability, ErrorKind, Store};
use holdfast_tests::{Random, say, until};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, OptsBuilder};

use super::databases::MariaDb;
use super::scene::{LONG, entries, open, order, quick};

/// A table that notes every row that is put or removed.
pub(crate) const SCHEMA: &[&str] = &[
    "CREATE TABLE `order` (id bigint PRIMARY KEY, document json NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE applied (number bigint AUTO_INCREMENT PRIMARY KEY, id bigint, total bigint) ENGINE=InnoDB",
    "CREATE TRIGGER note_new AFTER INSERT ON `order` FOR EACH ROW \
     INSERT INTO applied (id, total) VALUES (NEW.id, JSON_VALUE(NEW.document, '$.total'))",
    "CREATE TRIGGER note_changed AFTER UPDATE ON `order` FOR EACH ROW \
     INSERT INTO applied (id, total) VALUES (NEW.id, JSON_VALUE(NEW.document, '$.total'))",
    "CREATE TRIGGER note_gone AFTER DELETE ON `order` FOR EACH ROW INSERT INTO applied (id, total) VALUES (OLD.id, -1)",
];

fn address(mariadb: &MariaDb) -> String {
    format!("mysql://root@localhost/shop?socket={}", mariadb.socket().display())
}

struct Database {
    runtime: tokio::runtime::Runtime,
    connection: Conn,
}

impl Database {
    fn connect(mariadb: &MariaDb) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let socket = Some(mariadb.socket().display().to_string());
        let options = OptsBuilder::default().user(Some("root")).socket(socket);
        let connection = runtime.block_on(async {
            let mut connection = Conn::new(options).await.unwrap();
            connection.query_drop("CREATE DATABASE IF NOT EXISTS shop").await.unwrap();
            connection.query_drop("USE shop").await.unwrap();
            connection
        });
        Self { runtime, connection }
    }

    fn run(&mut self, statements: &[&str]) {
        for sql in statements {
            self.runtime.block_on(self.connection.query_drop(*sql)).unwrap();
        }
    }

    fn rows<T: FromRow + Send + 'static>(&mut self, sql: &str) -> Vec<T> {
        self.runtime.block_on(self.connection.query(sql)).unwrap()
    }

    fn table(&mut self) -> Vec<(i64, i64)> {
        self.rows("SELECT id, CAST(JSON_VALUE(document, '$.total') AS SIGNED) FROM `order` ORDER BY id")
    }

    fn applied(&mut self) -> BTreeMap<i64, Vec<i64>> {
        let mut applied: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (id, total) in self.rows::<(i64, i64)>("SELECT id, total FROM applied ORDER BY number") {
            applied.entry(id).or_default().push(total);
        }
        applied
    }
}

fn mirror(orders: &Entries, mariadb: &MariaDb) -> Mirror {
    let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer).in_mariadb();
    Mirror::start(orders, Arc::new(mapping), quick(address(mariadb))).unwrap()
}

fn write_through(mirror: &Mirror, store: &Store, orders: &Entries, document: &Document) -> Result<(), NotThrough> {
    let mut transaction = store.begin();
    orders.within(&mut transaction).write(document, &WriteOptions::default()).unwrap();
    mirror.commit(transaction, Durability::Written, LONG).map(drop)
}

#[test]
fn each_event_is_applied_once_whatever_is_stopped_or_killed() {
    let mut mariadb = MariaDb::start();
    Database::connect(&mariadb).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let seed = Random::seed();
    say!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut store, mut orders) = open(folder.path());
    let mut running = Some(mirror(&orders, &mariadb));
    assert!(running.as_ref().unwrap().flush(LONG), "it has begun");
    let mut model: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut total = 0;
    for _ in 0..10 {
        for _ in 0..40 {
            total += 1;
            let id = i64::try_from(random.below(30)).unwrap();
            match (random.below(5), &running) {
                (0, _) => {
                    if orders.take(&Wanted::id(id), &ReadOptions::default()).unwrap().is_some() {
                        model.entry(id).or_default().push(-1);
                    }
                }
                (1, _) => {
                    // Always together.
                    let mut transaction = store.begin();
                    for id in [1000, 1001, 1002] {
                        orders.within(&mut transaction).write(&order(id, total), &WriteOptions::default()).unwrap();
                        model.entry(id).or_default().push(total);
                    }
                    transaction.commit(Durability::Written).unwrap();
                }
                (2, Some(running)) => match write_through(running, &store, &orders, &order(id, total)) {
                    Ok(()) | Err(NotThrough::TableBehind { .. }) => model.entry(id).or_default().push(total),
                    Err(NotThrough::Nothing(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                    Err(other) => panic!("{other}"),
                },
                _ => {
                    orders.write(&order(id, total), &WriteOptions::default()).unwrap();
                    model.entry(id).or_default().push(total);
                }
            }
        }
        match random.below(4) {
            0 => running = None,
            1 => {
                mariadb.kill();
                mariadb.run();
            }
            2 => {
                running = None;
                store.close().unwrap();
                drop((store, orders));
                (store, orders) = open(folder.path());
            }
            _ => {}
        }
        if running.is_none() {
            running = Some(mirror(&orders, &mariadb));
        }
        let together: Vec<(i64, i64)> = Database::connect(&mariadb)
            .rows("SELECT count(*), count(DISTINCT JSON_VALUE(document, '$.total')) FROM `order` WHERE id >= 1000");
        assert!(matches!(together[0], (0, 0) | (3, 1)), "a batch is applied as a whole: {together:?}");
    }
    let running = running.unwrap();
    assert!(running.flush(LONG), "{:?}", running.stats());
    let mut database = Database::connect(&mariadb);
    assert_eq!(database.table(), entries(&orders));
    assert_eq!(database.applied(), model, "each event once, those of an entry in order");
}

#[test]
fn a_table_is_loaded_and_read_through() {
    let mariadb = MariaDb::start();
    let mut database = Database::connect(&mariadb);
    database.run(SCHEMA);
    database.run(&[
        "INSERT INTO `order` SELECT seq, JSON_OBJECT('id', seq, 'total', seq * 2) FROM seq_1_to_1200",
        "DELETE FROM applied",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &mariadb);
    assert!(running.flush(LONG));
    let loader = Loader::beside(&store, &running).unwrap();
    orders.write(&order(7, 1), &WriteOptions::default()).unwrap();
    assert_eq!(loader.load().unwrap(), Loaded { rows: 1200, written: 1199 });
    assert!(running.flush(LONG));
    assert_eq!(database.applied(), BTreeMap::from([(7, vec![1])]), "what was loaded stays where it came from");
    database.run(&["INSERT INTO `order` VALUES (5000, '{\"id\": 5000, \"total\": 3}')", "DELETE FROM applied"]);
    let read = |id: i64| loader.read(&id.into(), LONG).unwrap().map(|entry| entry.document);
    assert_eq!(read(5000), Some(Document::from_pairs([("id", 5000_i64), ("total", 3)])));
    assert_eq!(read(6000), None);
    let ids: Vec<holdfast::space::Value> = (4990..5510).map(holdfast::space::Value::from).collect();
    let loaded = loader.load_ids(&ids, LONG).unwrap();
    assert_eq!((loaded.entries, loaded.written), (vec![5000.into()], 0));
    for id in 1..30 {
        orders.take(&Wanted::id(id), &ReadOptions::default()).unwrap().unwrap();
        assert_eq!(read(id), None, "{id}");
    }
    assert_eq!(database.applied().len(), 29, "only what was taken");
    assert_eq!(database.table().len(), 1172);
    // Without a mirror, into another space.
    let copies = store.space("copy").declare(Definition::new("copy", "order")).unwrap();
    let mapping = Arc::new(DocumentTable::of(&copies.definition(), IdKind::Integer).in_mariadb());
    let alone = Loader::new(&store, &copies, mapping, &grid::Database::new(address(&mariadb))).unwrap();
    assert_eq!(alone.load().unwrap(), Loaded { rows: 1172, written: 1172 });
    assert_eq!(entries(&copies), database.table());
}

/// A table of pages by their addresses, each with a rank that no other has.
struct Pages(Table);

impl Mapping for Pages {
    fn table(&self) -> &Table {
        &self.0
    }

    fn key(&self, id: ValueRef<'_>) -> holdfast::Result<String> {
        match id {
            ValueRef::String(text) => Ok(text.to_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn row(&self, document: &Document) -> holdfast::Result<Vec<Option<String>>> {
        Ok(vec![match document.get("rank") {
            Some(ValueRef::I64(rank)) => Some(rank.to_string()),
            _ => None,
        }])
    }

    fn document(&self, key: &str, row: &[Option<&str>]) -> holdfast::Result<Document> {
        let rank = row[0].map_or(Value::Null, |rank| rank.parse::<i64>().unwrap().into());
        Ok(Document::from_pairs([("id", Value::from(key)), ("rank", rank)]))
    }
}

#[test]
fn ids_are_compared_as_they_are_written_and_no_row_is_taken_for_another() {
    let mariadb = MariaDb::start();
    let mut database = Database::connect(&mariadb);
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let pages = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "page") }).unwrap();
    // The key as DocumentTable has it.
    let made = DocumentTable::of(&pages.definition(), IdKind::String).in_mariadb();
    let rank = Column { name: "rank".to_owned(), sql_type: "bigint UNIQUE".to_owned() };
    let table = Table { name: "shop.page".to_owned(), key: made.table().key.clone(), columns: vec![rank] };
    let running = Mirror::start(&pages, Arc::new(Pages(table)), quick(address(&mariadb))).unwrap();
    let page = |id: &str, rank: Option<i64>| {
        Document::from_pairs([("id", Value::from(id)), ("rank", rank.map_or(Value::Null, Value::from))])
    };
    let write = |id: &str, rank: Option<i64>| write_through(&running, &store, &pages, &page(id, rank));
    for (id, rank) in [("a", Some(1)), ("A", Some(2)), ("a ", Some(3)), ("ä", None), ("", Some(5))] {
        write(id, rank).unwrap();
    }
    write("A", Some(20)).unwrap();
    pages.take(&Wanted::id("a"), &ReadOptions::default()).unwrap().unwrap();
    assert!(running.flush(LONG));
    let mut rows = |sql: &str| database.rows::<(String, Option<i64>)>(sql);
    let all = "SELECT id, `rank` FROM page ORDER BY id";
    let expected = [("", Some(5)), ("A", Some(20)), ("a ", Some(3)), ("ä", None)];
    assert_eq!(rows(all), expected.map(|(id, rank)| (id.to_owned(), rank)));
    // Another row has the rank: for INSERT .. ON DUPLICATE KEY UPDATE that would be the row that is meant.
    for (id, rank) in [("new", 3), ("A", 5)] {
        match write(id, Some(rank)).unwrap_err() {
            NotThrough::Nothing(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().contains("Duplicate entry"), "{error}");
            }
            other => panic!("{other}"),
        }
    }
    let long = write(&"x".repeat(300), None).unwrap_err().to_string();
    assert!(long.contains("Data too long"), "{long}");
    assert_eq!(rows(all), expected.map(|(id, rank)| (id.to_owned(), rank)));
    assert_eq!(pages.count(&Wanted::all()).unwrap(), 4);
}

/// MariaDB gives some refusals of values a SQLSTATE that says nothing of them. They were taken for a database that is away.
#[test]
fn a_row_that_the_table_refuses_is_invalid_whatever_mariadb_calls_it() {
    let mariadb = MariaDb::start();
    let mut database = Database::connect(&mariadb);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    database.run(SCHEMA);
    let running = mirror(&orders, &mariadb);
    write_through(&running, &store, &orders, &order(1, 10)).unwrap();
    for (column, says) in [
        ("word enum('10') GENERATED ALWAYS AS (JSON_VALUE(document, '$.total')) STORED", "Data truncated"),
        ("word tinyint GENERATED ALWAYS AS (JSON_VALUE(document, '$.total')) STORED", "Out of range"),
        ("word varchar(1) GENERATED ALWAYS AS (JSON_VALUE(document, '$.total')) STORED", "Data too long"),
        (
            "word bigint GENERATED ALWAYS AS (CONCAT('x', JSON_VALUE(document, '$.total'))) STORED",
            "Incorrect integer value",
        ),
        ("word bigint CHECK (JSON_VALUE(document, '$.total') < 100)", "CONSTRAINT"),
        ("word varchar(10) NOT NULL", "doesn't have a default value"),
    ] {
        // Of the row that is there nothing is asked.
        database.run(&["SET sql_mode = ''", &format!("ALTER TABLE `order` ADD {column}"), "SET sql_mode = DEFAULT"]);
        match write_through(&running, &store, &orders, &order(2, 1000)).unwrap_err() {
            NotThrough::Nothing(error) => {
                assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(says), "{error}");
            }
            other => panic!("{other}"),
        }
        assert_eq!((entries(&orders), database.table()), (vec![(1, 10)], vec![(1, 10)]));
        database.run(&["ALTER TABLE `order` DROP word"]);
    }
    assert_eq!(running.stop().failures, 0, "a refusal is no failure of the target");
}

#[test]
fn a_table_without_transactions_is_refused_with_what_to_do() {
    let mariadb = MariaDb::start();
    let mut database = Database::connect(&mariadb);
    database.run(&["CREATE TABLE `order` (id bigint PRIMARY KEY, document json NOT NULL) ENGINE=MyISAM"]);
    let folder = tempfile::tempdir().unwrap();
    let (_store, orders) = open(folder.path());
    orders.write(&order(1, 10), &WriteOptions::default()).unwrap();
    let running = mirror(&orders, &mariadb);
    let trouble = until(LONG, || running.stats().trouble).unwrap();
    assert!(trouble.contains("ALTER TABLE `order` ENGINE=InnoDB"), "{trouble}");
    database.run(&["ALTER TABLE `order` ENGINE=InnoDB"]);
    assert!(running.flush(LONG));
    assert_eq!(database.table(), [(1, 10)]);
    // Tables of PostgreSQL are none of MariaDB.
    let mapping = Arc::new(DocumentTable::of(&Definition::new("shop", "other"), IdKind::Integer));
    let wrong = Mirror::start(&orders, mapping, MirrorOptions::new("wrong", address(&mariadb))).unwrap();
    assert!(until(LONG, || wrong.stats().trouble).is_some_and(|trouble| trouble.contains("jsonb")));
}

/// The connection broke at it, for all who shared it and each time anew.
#[test]
fn a_row_that_is_larger_than_a_packet_is_refused_by_itself() {
    let mariadb = MariaDb::start();
    let mut database = Database::connect(&mariadb);
    database.run(SCHEMA);
    database.run(&["SET GLOBAL max_allowed_packet = 1048576"]);
    let folder = tempfile::tempdir().unwrap();
    let options = holdfast::Options { durability: Durability::Written, ..holdfast::Options::default() };
    let store = Store::open(folder.path(), options).unwrap();
    let definition = Definition { history: true, ..Definition::new("shop", "order") };
    let orders = store.space("shop").declare(definition).unwrap();
    let running = mirror(&orders, &mariadb);
    assert!(running.flush(LONG), "it has begun");
    let document = |id: i64, bytes: usize| {
        Document::from_pairs([("id", Value::from(id)), ("total", id.into()), ("noise", "x".repeat(bytes).into())])
    };
    for _ in 0..3 {
        match write_through(&running, &store, &orders, &document(1, 2 << 20)).unwrap_err() {
            NotThrough::Nothing(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                let told = error.to_string();
                assert!(told.contains("the row 1 has") && told.contains("max_allowed_packet is 1048576"), "{told}");
            }
            other => panic!("{other}"),
        }
        write_through(&running, &store, &orders, &document(2, 900_000)).unwrap();
    }
    // Together they are more than a packet, and come in several.
    let mut transaction = store.begin();
    for id in 10..110 {
        orders.within(&mut transaction).write(&document(id, 20_000), &WriteOptions::default()).unwrap();
    }
    transaction.commit(Durability::Written).unwrap();
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(database.table().len(), 101);
    assert_eq!(running.stats().failures, 0);
    // One that is written behind says what to do, and is let in when that was done.
    orders.write(&document(3, 2 << 20), &WriteOptions::default()).unwrap();
    let trouble = until(LONG, || running.stats().trouble);
    assert!(trouble.as_ref().is_some_and(|told| told.contains("max_allowed_packet")), "{trouble:?}");
    // Nor can it be set aside, which says the same.
    running.stop();
    let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer).in_mariadb();
    let options = MirrorOptions { refused: grid::Refused::SetAside, ..quick(address(&mariadb)) };
    let running = Mirror::start(&orders, Arc::new(mapping), options).unwrap();
    let trouble = until(LONG, || running.stats().trouble);
    assert!(trouble.as_ref().is_some_and(|told| told.contains("cannot be set aside")), "{trouble:?}");
    database.run(&["SET GLOBAL max_allowed_packet = 16777216"]);
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(database.table().len(), 102);
}
