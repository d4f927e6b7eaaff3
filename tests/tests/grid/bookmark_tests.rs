//! What a bookmark is of: another store, type or table, a past that did not happen here, and a table that has gone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grid::{DocumentTable, IdKind, Loader, Mirror};
use holdfast::space::{Definition, Entries, ReadOptions, Wanted, WriteOptions};
use holdfast_tests::until;

use super::databases::{MariaDb, Postgres};
use super::scene::{Database, LONG, SCHEMA, entries, mirror, open, order, quick};

fn write(orders: &Entries, ids: std::ops::Range<i64>) {
    ids.for_each(|id| drop(orders.write(&order(id, id), &WriteOptions::default()).unwrap()));
}

fn ended(running: &Mirror) -> String {
    until(LONG, || running.stats().ended).unwrap_or_else(|| panic!("it goes on: {:?}", running.stats()))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let (file, to) = (file.unwrap().path(), to.to_owned());
        let to = to.join(file.file_name().unwrap());
        match file.is_dir() {
            true => copy(&file, &to),
            false => assert!(std::fs::copy(&file, &to).is_ok()),
        }
    }
}

/// What was taken while no mirror ran came back, and nothing ever told the table of it.
#[test]
fn what_was_taken_before_or_while_a_table_is_loaded_does_not_come_back() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    write(&orders, 0..1500);
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    drop(running);
    (0..100).for_each(|id| drop(orders.take(&Wanted::id(id), &ReadOptions::default()).unwrap().unwrap()));
    let running = mirror(&orders, &postgres);
    let loader = Loader::beside(&store, &running).unwrap();
    assert_eq!(loader.load().unwrap().written, 0);
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 1400);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (100..1500).for_each(|id| drop(orders.take(&Wanted::id(id), &ReadOptions::default()).unwrap().unwrap()));
            has_ended.store(true, Ordering::Release);
        });
        while !has_ended.load(Ordering::Acquire) {
            assert_eq!(loader.load().unwrap().written, 0);
        }
    });
    assert!(running.flush(LONG));
    assert_eq!((entries(&orders), database.table()), (Vec::new(), Vec::new()));
}

/// A second type of the same name, and a new store, went on from a bookmark of another, and what came before never arrived.
#[test]
fn a_mirror_does_not_go_on_from_the_bookmark_of_another_type_table_or_store() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    write(&orders, 0..20);
    let first = mirror(&orders, &postgres);
    assert!(first.flush(LONG));

    let bills = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "bill") }).unwrap();
    write(&bills, 0..20);
    let second = mirror(&bills, &postgres);
    let why = ended(&second);
    assert!(why.contains("type bill of space shop") && why.contains("a name of its own"), "{why}");
    assert!(!second.flush(LONG));
    let refused = Loader::beside(&store, &second).unwrap().load().unwrap_err().to_string();
    assert!(refused.contains("has ended"), "{refused}");

    let other = tempfile::tempdir().unwrap();
    let (_other, others) = open(other.path());
    write(&others, 0..30);
    let third = mirror(&others, &postgres);
    assert!(ended(&third).contains("in store"), "{}", ended(&third));

    // The first minds none of that, also when it is started again.
    drop(first);
    write(&orders, 20..25);
    let first = mirror(&orders, &postgres);
    assert!(first.flush(LONG), "{:?}", first.stats());
    assert_eq!(database.table(), entries(&orders));
    // One of before that was noted is as it was.
    drop(first);
    database.run("ALTER TABLE holdfast_mirror DROP COLUMN follows, DROP COLUMN ended");
    write(&orders, 25..30);
    let first = mirror(&orders, &postgres);
    assert!(first.flush(LONG), "{:?}", first.stats());
    assert_eq!(database.table(), entries(&orders));
    assert!(database.texts("SELECT follows FROM holdfast_mirror")[0].contains("type order"));
}

/// The first start told it, and the second went on: positions begin anew further on each time, and the bookmark lay among them.
#[test]
fn a_store_put_back_from_a_copy_is_told_at_each_start_until_it_begins_anew() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (here, kept) = (folder.path().join("here"), folder.path().join("kept"));
    let (store, orders) = open(&here);
    write(&orders, 0..20);
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    drop(running);
    store.close().unwrap();
    drop((store, orders));
    copy(&here, &kept);
    let (store, orders) = open(&here);
    write(&orders, 20..200);
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    drop(running);
    store.close().unwrap();
    drop((store, orders));
    std::fs::remove_dir_all(&here).unwrap();
    copy(&kept, &here);
    // Positions go on behind what the copy had, so that the bookmark is beyond them.
    database.run("UPDATE holdfast_mirror SET bookmark = '900000000000.0'");
    let mut first = String::new();
    for start in 0..3 {
        let (store, orders) = open(&here);
        write(&orders, 1000 + start..1001 + start);
        let running = mirror(&orders, &postgres);
        let why = ended(&running);
        assert!(!running.flush(LONG));
        if start == 0 {
            first = why;
            // What comes later is beyond it.
            database.run("UPDATE holdfast_mirror SET bookmark = '0.0'");
        } else {
            assert!(why.contains(&first) && why.contains("delete the row orders of holdfast_mirror"), "{why}");
        }
        drop(running);
        store.close().unwrap();
    }
    database.run(r#"DELETE FROM holdfast_mirror; TRUNCATE "order""#);
    let (_store, orders) = open(&here);
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(database.table(), entries(&orders));
    assert_eq!(entries(&orders).len(), 23);
}

/// It was made anew, empty, and the mirror went on from its bookmark.
#[test]
fn a_table_that_was_dropped_is_made_anew_with_all_that_there_is() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    let folder = tempfile::tempdir().unwrap();
    let (_store, orders) = open(folder.path());
    write(&orders, 0..200);
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    database.run(r#"DROP TABLE "order""#);
    write(&orders, 200..202);
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(database.table(), entries(&orders));
    drop(running);
    database.run(r#"DROP TABLE "order""#);
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(database.table().len(), 202);
}

#[test]
fn bookmarks_in_mariadb_are_of_what_they_are_of_too() {
    let mariadb = MariaDb::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let socket = Some(mariadb.socket().display().to_string());
    let options = mysql_async::OptsBuilder::default().user(Some("root")).socket(socket);
    let run = |sql: &str| -> Option<i64> {
        use mysql_async::prelude::Queryable;
        runtime.block_on(async {
            let mut connection = mysql_async::Conn::new(options.clone()).await.unwrap();
            let row = connection.query_first(sql).await.unwrap();
            connection.disconnect().await.unwrap();
            row
        })
    };
    run("CREATE DATABASE shop");
    let address = format!("mysql://root@localhost/shop?socket={}", mariadb.socket().display());
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    write(&orders, 0..20);
    let start = |entries: &Entries| {
        let mapping = DocumentTable::of(&entries.definition(), IdKind::Integer).in_mariadb();
        Mirror::start(entries, Arc::new(mapping), quick(address.clone())).unwrap()
    };
    let first = start(&orders);
    assert!(first.flush(LONG), "{:?}", first.stats());
    let bills = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "bill") }).unwrap();
    assert!(ended(&start(&bills)).contains("type bill of space shop"));
    run("DROP TABLE shop.`order`");
    write(&orders, 20..22);
    assert!(first.flush(LONG), "{:?}", first.stats());
    assert_eq!(run("SELECT count(*) FROM shop.`order`"), Some(22));
    drop(first);
    run("UPDATE shop.holdfast_mirror SET bookmark = '900000000000.0'");
    let why = ended(&start(&orders));
    run("UPDATE shop.holdfast_mirror SET bookmark = '0.0'");
    assert!(ended(&start(&orders)).contains(&why));
    run("ALTER TABLE shop.holdfast_mirror DROP COLUMN follows, DROP COLUMN ended");
    run("DELETE FROM shop.holdfast_mirror");
    let first = start(&orders);
    assert!(first.flush(LONG), "{:?}", first.stats());
}
