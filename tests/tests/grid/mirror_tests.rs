//! The table becomes what the space has, each event applied exactly once, whatever is stopped or killed when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use grid::{DocumentTable, IdKind, Loaded, LoadedIds, Loader, Mirror, MirrorOptions};
use holdfast::space::{AtLimit, Bookmark, Definition, Document, ReadOptions, Value, Wanted, WriteOptions};
use holdfast::{Compression, Durability, ErrorKind, PutOptions};
use holdfast_tests::{Random, say, until};

use super::databases::Postgres;
use super::scene::{Database, LONG, SCHEMA, entries, mirror, open, order};

#[test]
fn a_mirror_applies_each_event_once_whatever_is_stopped_or_killed() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let seed = Random::seed();
    say!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut store, mut orders) = open(folder.path());
    let mut running = Some(mirror(&orders, &postgres));
    assert!(running.as_ref().unwrap().flush(LONG), "it has begun");
    let mut model: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut total = 0;
    for _ in 0..24 {
        for _ in 0..40 {
            total += 1;
            let id = i64::try_from(random.below(30)).unwrap();
            match random.below(5) {
                0 => {
                    if orders.take(&Wanted::id(id), &ReadOptions::default()).unwrap().is_some() {
                        model.entry(id).or_default().push(-1);
                    }
                }
                1 => {
                    // Always together.
                    let mut transaction = store.begin();
                    for id in [1000, 1001, 1002] {
                        orders.within(&mut transaction).write(&order(id, total), &WriteOptions::default()).unwrap();
                        model.entry(id).or_default().push(total);
                    }
                    transaction.commit(Durability::Written).unwrap();
                }
                _ => {
                    orders.write(&order(id, total), &WriteOptions::default()).unwrap();
                    model.entry(id).or_default().push(total);
                }
            }
        }
        match random.below(6) {
            0 => running = None,
            1 => {
                postgres.kill();
                postgres.run(0);
            }
            2 => {
                postgres.kill();
                running = None;
                postgres.run(0);
            }
            3 => {
                running = None;
                store.close().unwrap();
                drop((store, orders));
                (store, orders) = open(folder.path());
            }
            _ => {}
        }
        if running.is_none() {
            running = Some(mirror(&orders, &postgres));
        }
        let database = Database::connect(&postgres);
        let together =
            database.pairs(r#"SELECT count(*), count(DISTINCT document->>'total') FROM "order" WHERE id >= 1000"#);
        assert!(matches!(together[0], (0, 0) | (3, 1)), "a batch is applied as a whole: {together:?}");
    }
    let running = running.unwrap();
    assert!(running.flush(LONG), "{:?}", running.stats());
    let database = Database::connect(&postgres);
    assert_eq!(database.table(), entries(&orders));
    assert_eq!(database.applied(), model, "each event once, those of an entry in order");
    say!("{:?}", running.stop());
}

#[test]
fn a_target_that_is_down_holds_nobody_up_and_gets_everything_later() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_store, orders) = open(folder.path());
    (0..50).for_each(|id| drop(orders.write(&order(id, 0), &WriteOptions::default()).unwrap()));
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    assert_eq!(Database::connect(&postgres).table().len(), 50, "what was there before is copied");
    postgres.kill();
    for total in 1..200 {
        orders.write(&order(total % 7, total), &WriteOptions::default()).unwrap();
    }
    assert!(until(LONG, || running.stats().trouble).is_some());
    assert!(!running.flush(std::time::Duration::from_millis(20)));
    postgres.run(0);
    assert!(running.flush(LONG));
    assert_eq!(Database::connect(&postgres).table(), entries(&orders));
    assert_eq!(running.stop().trouble, None);
}

#[test]
fn two_mirrors_of_one_name_apply_each_event_once() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_store, orders) = open(folder.path());
    let (first, second) = (mirror(&orders, &postgres), mirror(&orders, &postgres));
    assert!(first.flush(LONG) && second.flush(LONG), "both have begun");
    for total in 0..300 {
        orders.write(&order(total % 3, total), &WriteOptions::default()).unwrap();
    }
    assert!(first.flush(LONG) && second.flush(LONG));
    assert_eq!(database.table(), entries(&orders));
    let applied = database.applied();
    assert_eq!(applied.values().map(Vec::len).sum::<usize>(), 300);
    assert!(applied.values().all(|totals| totals.is_sorted()));
}

#[test]
fn a_table_is_loaded_and_read_through_and_does_not_come_back() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    database.run(
        r#"INSERT INTO "order" SELECT n, jsonb_build_object('id', n, 'total', n * 2) FROM generate_series(1, 1200) n;
           TRUNCATE applied"#,
    );
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    let loader = Loader::beside(&store, &running).unwrap();
    orders.write(&order(7, 1), &WriteOptions::default()).unwrap();
    assert_eq!(loader.load().unwrap(), Loaded { rows: 1200, written: 1199 });
    // A load that was over kept the table locked for as long as its loader lived.
    database.run(r#"BEGIN; SET LOCAL lock_timeout = '20s'; LOCK TABLE "order" IN ACCESS EXCLUSIVE MODE; COMMIT"#);
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 1200);
    assert!(running.flush(LONG));
    assert_eq!(database.applied(), BTreeMap::from([(7, vec![1])]), "what was loaded stays where it came from");
    // Read-through.
    database.run(r#"INSERT INTO "order" VALUES (5000, '{"id": 5000, "total": 3}'); TRUNCATE applied"#);
    let read = |id: i64| loader.read(&id.into(), LONG).unwrap().map(|entry| entry.document);
    assert_eq!(read(5000), Some(Document::from_pairs([("id", 5000_i64), ("total", 3)])));
    assert!(orders.read(&Wanted::id(5000), &ReadOptions::default()).unwrap().is_some());
    assert_eq!(read(6000), None);
    // Several at once, some of which have no row, are there, or are of no kind that a key is.
    database.run(r#"INSERT INTO "order" VALUES (5001, '{"id": 5001, "total": 5}'); TRUNCATE applied"#);
    let ids = [5001.into(), 5000.into(), 6000.into(), 5001.into(), "5001".into(), Value::Null];
    let loaded = loader.load_ids(&ids, LONG).unwrap();
    assert_eq!((loaded.written, loaded.entries.len()), (1, 2), "{loaded:?}");
    assert!(loaded.entries.contains(&5000.into()) && loaded.entries.contains(&5001.into()), "{loaded:?}");
    assert_eq!(loader.load_ids(&[], LONG).unwrap(), LoadedIds::default());
    orders.take(&Wanted::id(5001), &ReadOptions::default()).unwrap().unwrap();
    assert_eq!(loader.load_ids(&ids, LONG).unwrap(), LoadedIds { entries: vec![5000.into()], written: 0 });
    database.run("TRUNCATE applied");
    // What was taken is not there again, although the table had it a moment ago.
    for id in 1..100 {
        orders.take(&Wanted::id(id), &ReadOptions::default()).unwrap().unwrap();
        assert_eq!(read(id), None, "{id}");
    }
    let applied = database.applied();
    assert_eq!(applied.len(), 99, "only what was taken: {applied:?}");
    // What is changed after it was loaded is mirrored.
    orders.write(&order(5000, 4), &WriteOptions::default()).unwrap();
    assert!(running.flush(LONG));
    assert_eq!(database.table(), entries(&orders));
}

/// The bookmark of a type to which nothing happened stayed where it was, and with it the journal while the mirror ran; after a restart
/// the mirror ended, because compaction had let go of what lay behind the bookmark, although nothing of it was the mirror's.
#[test]
fn the_bookmark_of_a_quiet_type_moves_with_the_store() {
    let postgres = Postgres::start(0);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    orders.write(&order(1, 10), &WriteOptions::default()).unwrap();
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    let begin = running.stats().position;
    let mut newest = begin;
    let plain = PutOptions { compression: Some(Compression::None), ..PutOptions::default() };
    for _ in 0..600 {
        newest = store.kv().put(b"other", b"key", &[7; 7_000], &plain).unwrap().position;
    }
    // A listener passes by a MiB at a time, and the bookmark behind it too.
    let far = newest.get() - (2 << 20);
    assert!(far > begin.get());
    let moved = until(LONG, || Some(running.stats().position).filter(|position| position.get() >= far));
    assert!(moved.is_some(), "{:?}", running.stats());
    let stands = Database::connect(&postgres).texts("SELECT bookmark FROM holdfast_mirror").remove(0);
    let stands: Bookmark = stands.parse().unwrap();
    assert!(stands.position().get() >= far && running.stop().events == 0);
    // It goes on from there.
    orders.write(&order(2, 20), &WriteOptions::default()).unwrap();
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    assert_eq!(Database::connect(&postgres).table(), entries(&orders));
}

#[test]
fn what_is_evicted_stays_in_the_table_and_is_read_through() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let definition = Definition {
        history: true,
        memory_bytes_max: 64 << 10,
        at_limit: AtLimit::Evict,
        ..Definition::new("shop", "page")
    };
    let pages = store.space("shop").declare(definition).unwrap();
    let mapping = Arc::new(DocumentTable::of(&pages.definition(), IdKind::Integer));
    let running = Mirror::start(&pages, mapping, MirrorOptions::new("pages", postgres.connection())).unwrap();
    assert!(running.flush(LONG), "it has begun");
    let text = "x".repeat(500);
    for id in 0..400_i64 {
        let page = Document::from_pairs([("id", Value::from(id)), ("text", text.as_str().into())]);
        pages.write(&page, &WriteOptions::default()).unwrap();
    }
    assert!(pages.count(&Wanted::all()).unwrap() < 400, "some are evicted");
    assert!(running.flush(LONG));
    assert_eq!(database.pairs("SELECT count(*), max(id) FROM page"), [(400, 399)]);
    let loader = Loader::beside(&store, &running).unwrap();
    let was_there = AtomicBool::new(true);
    for id in 0..400_i64 {
        let there = pages.read(&Wanted::id(id), &ReadOptions::default()).unwrap().is_some();
        was_there.fetch_and(there, Ordering::Relaxed);
        assert!(loader.read(&id.into(), LONG).unwrap().is_some(), "{id}");
    }
    assert!(!was_there.load(Ordering::Relaxed));
}

/// A table that somebody had locked kept its readers for as long as that lasted.
#[test]
fn a_table_that_does_not_answer_is_waited_for_as_long_as_it_was_said() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    database.run(r#"INSERT INTO "order" VALUES (1, '{"id": 1, "total": 3}')"#);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG));
    let loader = Loader::beside(&store, &running).unwrap();
    database.run(r#"BEGIN; LOCK TABLE "order" IN ACCESS EXCLUSIVE MODE"#);
    let error = loader.read(&1.into(), Duration::from_millis(300)).unwrap_err();
    assert!(error.kind() == ErrorKind::Timeout && error.to_string().contains("has locked it"), "{error}");
    database.run("ROLLBACK");
    assert!(loader.read(&1.into(), LONG).unwrap().is_some());
}

#[test]
fn ids_of_texts_are_read_through_whatever_is_in_them() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let definition = Definition { history: true, ..Definition::new("shop", "page") };
    let pages = store.space("shop").declare(definition).unwrap();
    let mapping = Arc::new(DocumentTable::of(&pages.definition(), IdKind::String));
    let running = Mirror::start(&pages, mapping, MirrorOptions::new("pages", postgres.connection())).unwrap();
    assert!(running.flush(LONG), "it has begun");
    let loader = Loader::beside(&store, &running).unwrap();
    let ids = ["a'b\"c", "{x,\"y\"}", "NULL", "", "\\", "é€"];
    for id in ids {
        let json = Document::from_pairs([("id", id)]).to_json();
        let sql = "INSERT INTO page VALUES ($1, $2::text::jsonb)";
        database.runtime.block_on(database.client.execute(sql, &[&id, &json])).unwrap();
    }
    for id in ids {
        assert!(loader.read(&id.into(), LONG).unwrap().is_some(), "{id}");
    }
    // No column has such a text, and PostgreSQL refuses to look for one.
    let asked = ["a\0b".into(), ids[0].into()];
    assert_eq!(loader.load_ids(&asked, LONG).unwrap().entries, [ids[0].into()]);
    assert!(loader.read(&"a\0b".into(), LONG).unwrap().is_none());
    assert!(running.flush(LONG), "{:?}", running.stats());
}
