//! What a table refuses is set aside: whole transactions, each once, whoever is killed when. What is no fault of a row is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use grid::{
    ColumnKind, ColumnTable, Columns, DocumentTable, FieldColumn, IdKind, Loader, Mapping, Mirror, MirrorOptions,
    NotThrough, Refused, Rest,
};
use holdfast::space::{AtLimit, Definition, Document, Entries, ReadOptions, Value, ValueRef, Wanted, WriteOptions};
use holdfast::{CompactionOptions, Durability, ErrorKind, Schedule, Store};
use holdfast_tests::{Random, say, until};

use super::column_tests::Database;
use super::databases::Postgres;
use super::mariadb_tests;
use super::scene::{LONG, SCHEMA, entries, open, open_with, order, quick};
use super::server_tests::{self, is_said, metric};
use super::through_tests::{GATE, compact_past, stands_at_gate};

const BOTH: [fn() -> Database; 2] = [Database::postgres, Database::mariadb];

fn options(database: &Database) -> MirrorOptions {
    MirrorOptions { refused: Refused::SetAside, ..quick(database.address()) }
}

fn documents(orders: &Entries, id: IdKind, database: &Database) -> Arc<dyn Mapping> {
    let mapping = DocumentTable::of(&orders.definition(), id);
    Arc::new(if database.is_mariadb() { mapping.in_mariadb() } else { mapping })
}

fn start(orders: &Entries, database: &Database) -> Mirror {
    Mirror::start(orders, documents(orders, IdKind::Integer, database), options(database)).unwrap()
}

/// A table that notes what is done to it, and has no total that can be divided by seven.
fn make_table(database: &Database) {
    if database.is_mariadb() {
        mariadb_tests::SCHEMA.iter().for_each(|sql| drop(database.ask(sql)));
        database.ask(
            r#"ALTER TABLE "order" ADD total bigint GENERATED ALWAYS AS (JSON_VALUE(document, '$.total')) STORED"#,
        );
    } else {
        database.ask(SCHEMA);
        database
            .ask(r#"ALTER TABLE "order" ADD total bigint GENERATED ALWAYS AS ((document->>'total')::bigint) STORED"#);
    }
    database.ask(r#"ALTER TABLE "order" ADD CONSTRAINT no_sevens CHECK (MOD(total, 7) <> 0)"#);
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

fn pairs(database: &Database, sql: &str) -> Vec<(i64, i64)> {
    database.ask(sql).iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
}

fn table(database: &Database) -> BTreeMap<i64, i64> {
    pairs(database, r#"SELECT id, total FROM "order""#).into_iter().collect()
}

fn applied(database: &Database) -> BTreeMap<i64, Vec<i64>> {
    let mut applied: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (id, total) in pairs(database, "SELECT id, total FROM applied ORDER BY number") {
        applied.entry(id).or_default().push(total);
    }
    applied
}

fn total_of(json: &str) -> i64 {
    match Document::from_json(json.as_bytes()).unwrap().get("total") {
        Some(ValueRef::I64(total)) => total,
        other => panic!("{other:?}"),
    }
}

/// What was set aside, transaction by transaction: ids, and totals unless the entry went.
fn set_aside(database: &Database) -> Vec<Vec<(i64, Option<i64>)>> {
    let rows = database.ask("SELECT bookmark, number, row_key, document, mirror FROM holdfast_refused ORDER BY id");
    let (mut all, mut bookmarks) = (Vec::<Vec<_>>::new(), BTreeSet::new());
    for row in rows {
        assert_eq!(row[4], "orders");
        if row[1] == "1" {
            assert!(bookmarks.insert(row[0].clone()), "{row:?} is there twice");
            all.push(Vec::new());
        }
        let (transaction, total) = (all.last_mut().unwrap(), (row[3] != "NULL").then(|| total_of(&row[3])));
        transaction.push((number(&row[2]), total));
        assert_eq!(number(&row[1]), i64::try_from(transaction.len()).unwrap());
    }
    // A batch has them by partitions.
    all.iter_mut().for_each(|transaction| transaction.sort_unstable());
    all
}

fn reasons(database: &Database) -> Vec<String> {
    database.ask("SELECT reason FROM holdfast_refused ORDER BY id").into_iter().flatten().collect()
}

/// Writes these in one transaction, behind takes of those.
fn commit(store: &Store, orders: &Entries, takes: &[i64], writes: &[(i64, i64)]) {
    let mut transaction = store.begin();
    for id in takes {
        orders.within(&mut transaction).take(&Wanted::id(*id), &ReadOptions::default()).unwrap().unwrap();
    }
    for (id, total) in writes {
        orders.within(&mut transaction).write(&order(*id, *total), &WriteOptions::default()).unwrap();
    }
    transaction.commit(Durability::Written).unwrap();
}

#[test]
fn a_transaction_with_a_row_that_is_refused_is_set_aside_as_a_whole_and_what_follows_is_applied() {
    for database in BOTH.map(|database| database()) {
        make_table(&database);
        let folder = tempfile::tempdir().unwrap();
        let (store, orders) = open(folder.path());
        let running = start(&orders, &database);
        assert!(running.flush(LONG), "{:?}", running.stats());
        commit(&store, &orders, &[], &[(1, 10), (2, 20), (3, 30)]);
        commit(&store, &orders, &[3], &[(1, 11), (2, 7), (4, 40)]);
        commit(&store, &orders, &[], &[(5, 50)]);
        assert!(running.flush(LONG), "{:?}", running.stats());
        assert_eq!(table(&database), BTreeMap::from([(1, 10), (2, 20), (3, 30), (5, 50)]));
        assert_eq!(set_aside(&database), [[(1, Some(11)), (2, Some(7)), (3, None), (4, Some(40))]]);
        let reason = reasons(&database).remove(0);
        assert!(reason.contains("no_sevens"), "{reason}");
        let stats = running.stats();
        assert_eq!((stats.set_aside, stats.refusal, stats.failures), (1, Some(reason), 0));
        // Later events of the same entries: a document is written as a whole, and what is not there may go.
        commit(&store, &orders, &[4], &[(1, 12), (2, 22)]);
        assert!(running.flush(LONG), "{:?}", running.stats());
        assert_eq!(table(&database), BTreeMap::from([(1, 12), (2, 22), (3, 30), (5, 50)]));
        assert_eq!(applied(&database)[&2], [20, 22]);
        assert_eq!((running.stop().set_aside, reasons(&database).len()), (1, 4));
    }
}

/// Everything in one transaction of the target: halves of halves are what is left of it.
#[test]
fn those_that_are_refused_among_many_are_found_in_their_order() {
    for database in BOTH.map(|database| database()) {
        make_table(&database);
        let folder = tempfile::tempdir().unwrap();
        let (store, orders) = open(folder.path());
        let mapping = documents(&orders, IdKind::Integer, &database);
        let running = Mirror::start(&orders, mapping, MirrorOptions { batch_events_max: 1000, ..options(&database) });
        let running = running.unwrap();
        assert!(running.flush(LONG));
        running.stop();
        (1..=300).for_each(|total| commit(&store, &orders, &[], &[(total % 11, total), (100 + total % 11, total)]));
        let running = start(&orders, &database);
        assert!(running.flush(LONG), "{:?}", running.stats());
        let sevens = (1..=300).filter(|total| total % 7 == 0);
        let wanted: Vec<_> =
            sevens.map(|total| vec![(total % 11, Some(total)), (100 + total % 11, Some(total))]).collect();
        assert_eq!(set_aside(&database), wanted);
        let others: Vec<i64> = (1..=300).filter(|total| total % 7 != 0).collect();
        for (id, totals) in applied(&database) {
            let wanted = others.iter().copied().filter(|total| total % 11 == id % 100);
            assert_eq!(totals, wanted.collect::<Vec<_>>(), "{id}");
        }
        assert_eq!(running.stop().set_aside, 42);
    }
}

/// It stands between what it has written down and the end of the target's transaction.
#[test]
fn what_was_written_down_and_not_committed_is_written_down_once() {
    let mut postgres = Postgres::start(0);
    let gate = super::scene::Database::connect(&postgres);
    gate.run(SCHEMA);
    gate.run(r#"ALTER TABLE "order" ADD CHECK ((document->>'total')::bigint % 7 <> 0)"#);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let options = MirrorOptions { refused: Refused::SetAside, ..quick(postgres.connection()) };
    let mapping = Arc::new(DocumentTable::of(&orders.definition(), IdKind::Integer));
    let running = Mirror::start(&orders, mapping, options).unwrap();
    assert!(running.flush(LONG));
    gate.run(&GATE.replace("BEFORE UPDATE ON holdfast_mirror", "AFTER INSERT ON holdfast_refused"));
    gate.run("SELECT pg_advisory_lock(7)");
    commit(&store, &orders, &[], &[(1, 10), (2, 14)]);
    commit(&store, &orders, &[], &[(3, 30)]);
    stands_at_gate(&gate);
    postgres.kill();
    postgres.run(0);
    assert!(running.flush(LONG), "{:?}", running.stats());
    let database = super::scene::Database::connect(&postgres);
    assert_eq!(database.table(), [(3, 30)]);
    let rows =
        database.pairs("SELECT row_key::bigint, (document::json->>'total')::bigint FROM holdfast_refused ORDER BY 1");
    assert_eq!(rows, [(1, 10), (2, 14)]);
    let stats = running.stop();
    assert!(stats.set_aside == 1 && stats.failures > 0, "{stats:?}");
}

#[test]
fn two_mirrors_of_one_name_set_aside_each_transaction_once() {
    for database in BOTH.map(|database| database()) {
        make_table(&database);
        let folder = tempfile::tempdir().unwrap();
        let (store, orders) = open(folder.path());
        let (first, second) = (start(&orders, &database), start(&orders, &database));
        assert!(first.flush(LONG) && second.flush(LONG), "both have begun");
        (1..=210).for_each(|total| commit(&store, &orders, &[], &[(total % 3, total)]));
        assert!(first.flush(LONG) && second.flush(LONG));
        let wanted: Vec<_> = (1..=30).map(|seven| vec![(seven * 7 % 3, Some(seven * 7))]).collect();
        assert_eq!(set_aside(&database), wanted);
        assert_eq!(applied(&database).values().map(Vec::len).sum::<usize>(), 180);
        assert!(applied(&database).values().all(|totals| totals.is_sorted()));
        assert_eq!(first.stop().set_aside + second.stop().set_aside, 30);
    }
}

/// Of each transaction it is known by the model whether it is applied or set aside.
fn each_is_applied_or_set_aside_once(mut database: Database) {
    make_table(&database);
    let folder = tempfile::tempdir().unwrap();
    let seed = Random::seed();
    say!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut store, mut orders) = open(folder.path());
    let mut running = Some(start(&orders, &database));
    assert!(running.as_ref().unwrap().flush(LONG), "it has begun");
    let (mut rows, mut notes, mut refused) = (BTreeMap::new(), BTreeMap::<i64, Vec<i64>>::new(), Vec::new());
    let mut total = 0;
    let mut failures = 0;
    for round in 0..16 {
        let before = running.as_ref().map(Mirror::stats).unwrap_or_default();
        for _ in 0..40 {
            let mut some = |count: usize| -> Vec<(i64, i64)> {
                let ids = (0..count).map(|_| i64::try_from(random.below(30)).unwrap()).collect::<BTreeSet<_>>();
                ids.into_iter()
                    .map(|id| {
                        total += 1;
                        (id, total)
                    })
                    .collect()
            };
            let writes = some(1 + round % 3);
            let taken = i64::try_from(random.below(30)).unwrap();
            let is_there = orders.read(&Wanted::id(taken), &ReadOptions::default()).unwrap().is_some();
            let takes = is_there && random.below(3) == 0 && writes.iter().all(|(id, _)| *id != taken);
            let takes = if takes { vec![taken] } else { Vec::new() };
            commit(&store, &orders, &takes, &writes);
            if writes.iter().any(|(_, total)| total % 7 == 0) {
                let gone = takes.iter().map(|id| (*id, None));
                let all = gone.chain(writes.iter().map(|(id, total)| (*id, Some(*total))));
                refused.push(all.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
                continue;
            }
            for id in takes.iter().filter(|id| rows.remove(*id).is_some()) {
                notes.entry(*id).or_default().push(-1);
            }
            for (id, total) in writes {
                rows.insert(id, total);
                notes.entry(id).or_default().push(total);
            }
        }
        // In the midst of it: there are batches of the target left.
        let far = before.transactions + random.below(3) as u64;
        let is_under_way = || running.as_ref().map(Mirror::stats).filter(|stats| stats.transactions >= far);
        assert!(until(LONG, is_under_way).is_some(), "{before:?}");
        match random.below(6) {
            0 => running = None,
            1 => {
                database.kill();
                database.run();
            }
            2 => {
                database.kill();
                running = None;
                database.run();
            }
            3 => {
                running = None;
                store.close().unwrap();
                drop((store, orders));
                (store, orders) = open(folder.path());
            }
            _ => {}
        }
        failures += running.as_ref().map_or(0, |running| running.stats().failures - before.failures);
        if running.is_none() {
            running = Some(start(&orders, &database));
        }
    }
    let running = running.unwrap();
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(set_aside(&database), refused);
    assert_eq!((table(&database), applied(&database)), (rows, notes));
    say!("{} set aside, {failures} failures, {:?}", refused.len(), running.stop());
}

#[test]
fn in_postgres_each_is_applied_or_set_aside_once_whoever_is_killed() {
    each_is_applied_or_set_aside_once(Database::postgres());
}

#[test]
fn in_mariadb_each_is_applied_or_set_aside_once_whoever_is_killed() {
    each_is_applied_or_set_aside_once(Database::mariadb());
}

fn page(id: Value, fields: &[(&str, Value)]) -> Document {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Document::from_pairs(std::iter::once(("id".to_owned(), id)).chain(fields))
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(Value::from(1_i64), |inner, _| Value::List(vec![inner]))
}

/// Each is refused for another reason, by the mapping or the table.
fn whatever_is_refused(
    database: &Database,
    mapping: &dyn Fn(&Definition) -> Arc<dyn Mapping>,
    all: &[(Document, &str, &str)],
) {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let definition = Definition { history: true, ..Definition::new("shop", "page") };
    let pages = store.space("shop").declare(definition).unwrap();
    let running = Mirror::start(&pages, mapping(&pages.definition()), options(database)).unwrap();
    assert!(running.flush(LONG), "{:?}", running.stats());
    for (count, (document, key, words)) in (1..).zip(all) {
        pages.write(document, &WriteOptions::default()).unwrap();
        assert!(running.flush(LONG), "{words}: {:?}", running.stats());
        assert_eq!((running.stats().set_aside, running.stats().failures), (count, 0), "{words}: {:?}", running.stats());
        let row =
            database.ask("SELECT row_key, document, reason FROM holdfast_refused ORDER BY id DESC LIMIT 1").remove(0);
        assert_eq!((row[0].as_str(), row[1].as_str()), (*key, document.to_json().as_str()));
        assert!(row[2].contains(words), "{words}: {}", row[2]);
    }
    // There is nothing to be removed, also by keys that no row can have.
    for (document, ..) in all {
        let id = document.get("id").unwrap().to_value();
        pages.take(&Wanted::id(id), &ReadOptions::default()).unwrap().unwrap();
    }
    assert!(running.flush(LONG), "{:?}", running.stats());
    let stats = running.stop();
    assert_eq!((stats.set_aside, stats.failures), (all.len() as u64, 0), "{stats:?}");
}

#[test]
fn whatever_postgres_refuses_of_a_row_is_set_aside() {
    let database = Database::postgres();
    database.ask(
        r#"CREATE TABLE page (id text PRIMARY KEY, word varchar(4), small smallint, rank bigint UNIQUE DEFERRABLE INITIALLY DEFERRED,
                              buyer uuid, more json, CHECK (small <> 7));
           INSERT INTO page (id, rank) VALUES ('there', 5);
           CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN
               IF NEW.small = 8 THEN RAISE 'no eights'; END IF; RETURN NEW;
           END $$ LANGUAGE plpgsql;
           CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON page FOR EACH ROW EXECUTE FUNCTION refuse();"#,
    );
    let mut fields = ["small", "rank"].map(|name| FieldColumn::new(name, ColumnKind::Integer)).to_vec();
    fields.push(FieldColumn::new("word", ColumnKind::String));
    fields.push(FieldColumn { sql_type: Some("uuid".to_owned()), ..FieldColumn::new("buyer", ColumnKind::String) });
    let columns = Columns { key: "id".to_owned(), fields, rest: Rest::Refused };
    let mapping = |definition: &Definition| -> Arc<dyn Mapping> {
        Arc::new(ColumnTable::of(definition, IdKind::String, columns.clone()).unwrap())
    };
    let long = {
        // So that it cannot be made small.
        let mut random = Random::new(1);
        (0..4000).map(|_| char::from(b'a' + u8::try_from(random.below(26)).unwrap())).collect::<String>()
    };
    let of = |id: &str, name: &str, value: Value| page(id.into(), &[(name, value)]);
    whatever_is_refused(
        &database,
        &mapping,
        &[
            (of("a", "small", 7.into()), "a", "check constraint"),
            (of("b", "small", 40_000.into()), "b", "smallint out of range"),
            (of("c", "small", 8.into()), "c", "no eights"),
            (of("d", "word", "too long".into()), "d", "value too long"),
            (of("e", "word", "a\0b".into()), "e", "0x00"),
            (of("f\0g", "word", "a".into()), "f\\u0000g", "0x00"),
            (of("h", "rank", 5.into()), "h", "duplicate key"),
            (of("i", "buyer", "nobody".into()), "i", "invalid input syntax for type uuid"),
            (of(&long, "small", 1.into()), &long, "index row"),
            (of("j", "small", "one".into()), "j", "its field small is a string"),
            (of("k", "other", 1.into()), "k", "has no column"),
            (page(5.into(), &[]), "5", "an id is"),
        ],
    );
    assert_eq!(database.ask("SELECT id FROM page"), [["there"]]);
}

#[test]
fn whatever_mariadb_refuses_of_a_row_is_set_aside() {
    let database = Database::mariadb();
    for sql in [
        r#"CREATE TABLE page (id varchar(20) PRIMARY KEY, word varchar(4), small smallint, "rank" bigint UNIQUE, kind enum('10'),
                              more json, CHECK (small <> 7)) CHARACTER SET utf8mb4 ENGINE=InnoDB"#,
        r#"INSERT INTO page (id, "rank") VALUES ('there', 5)"#,
        r#"CREATE TRIGGER refuse BEFORE INSERT ON page FOR EACH ROW
           IF NEW.small = 8 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no eights'; END IF"#,
    ] {
        database.ask(sql);
    }
    let mut fields = ["small", "rank"].map(|name| FieldColumn::new(name, ColumnKind::Integer)).to_vec();
    fields.extend(["word", "kind"].map(|name| FieldColumn::new(name, ColumnKind::String)));
    fields.push(FieldColumn::new("more", ColumnKind::Json));
    let columns = Columns { key: "id".to_owned(), fields, rest: Rest::Refused };
    let mapping = |definition: &Definition| -> Arc<dyn Mapping> {
        Arc::new(ColumnTable::of(definition, IdKind::String, columns.clone()).unwrap().in_mariadb())
    };
    let of = |id: &str, name: &str, value: Value| page(id.into(), &[(name, value)]);
    whatever_is_refused(
        &database,
        &mapping,
        &[
            (of("a", "small", 7.into()), "a", "CONSTRAINT"),
            (of("b", "small", 40_000.into()), "b", "Out of range"),
            (of("c", "small", 8.into()), "c", "no eights"),
            (of("d", "word", "too long".into()), "d", "Data too long"),
            (of("e", "kind", "11".into()), "e", "Data truncated"),
            (of("f", "rank", 5.into()), "f", "Duplicate entry"),
            (of("g", "more", deep(32)), "g", "CONSTRAINT"),
            (of("a name of 21 letters.", "small", 1.into()), "a name of 21 letters.", "Data too long"),
            (of("h", "small", "a\0b".into()), "h", "its field small is a string"),
            (page(5.into(), &[]), "5", "an id is"),
        ],
    );
    assert_eq!(database.ask("SELECT id FROM page"), [["there"]]);
}

#[test]
fn json_that_a_database_cannot_have_is_set_aside() {
    for database in BOTH.map(|database| database()) {
        let mapping = |definition: &Definition| -> Arc<dyn Mapping> {
            let mapping = DocumentTable::of(definition, IdKind::Integer);
            Arc::new(if database.is_mariadb() { mapping.in_mariadb() } else { mapping })
        };
        let wanted = match &database {
            Database::Postgres(_) => {
                (page(1.into(), &[("note", "a\0b".into())]), "1", "unsupported Unicode escape sequence")
            }
            Database::MariaDb(_) => (page(1.into(), &[("note", deep(31))]), "1", "CONSTRAINT"),
        };
        whatever_is_refused(&database, &mapping, &[wanted]);
    }
}

/// What a constraint says of a whole transaction that is checked at its end is said of none of its statements.
#[test]
fn what_is_checked_at_the_end_is_set_aside_too() {
    let database = Database::postgres();
    make_table(&database);
    database.ask(r#"ALTER TABLE "order" ADD UNIQUE (total) DEFERRABLE INITIALLY DEFERRED"#);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    // In the copy that it begins with, too.
    commit(&store, &orders, &[], &[(1, 10), (2, 10), (3, 30), (4, 7)]);
    let running = start(&orders, &database);
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(table(&database).into_values().collect::<Vec<_>>(), [10, 30]);
    assert_eq!((running.stats().set_aside, reasons(&database).len()), (2, 2));
    assert!(reasons(&database).iter().any(|reason| reason.contains("duplicate key")));
    // Two that change places within a transaction are in order, and so is one whose place is free when it ends.
    commit(&store, &orders, &[], &[(5, 50), (6, 60)]);
    commit(&store, &orders, &[], &[(5, 60), (6, 50)]);
    commit(&store, &orders, &[], &[(8, 80), (7, 30)]);
    commit(&store, &orders, &[], &[(9, 90)]);
    assert!(running.flush(LONG), "{:?}", running.stats());
    let table = table(&database);
    assert_eq!((table[&5], table[&6], table[&9], table.get(&7), table.get(&8)), (60, 50, 90, None, None));
    assert_eq!(running.stop().set_aside, 3);
}

#[test]
fn entries_of_the_copy_that_a_mirror_begins_with_are_set_aside_one_by_one() {
    for database in BOTH.map(|database| database()) {
        make_table(&database);
        let folder = tempfile::tempdir().unwrap();
        let (store, orders) = open(folder.path());
        // More than are copied at once.
        (0..130).for_each(|ten| {
            let some: Vec<(i64, i64)> =
                (ten * 10..ten * 10 + 10).map(|id| (id, if id % 100 == 3 { 7 } else { 8 })).collect();
            commit(&store, &orders, &[], &some);
        });
        let running = start(&orders, &database);
        assert!(running.flush(LONG), "{:?}", running.stats());
        assert_eq!((table(&database).len(), running.stats().set_aside), (1287, 13));
        let rows = database.ask("SELECT row_key, number FROM holdfast_refused");
        let keys: BTreeSet<i64> = rows.iter().map(|row| number(&row[0])).collect();
        assert_eq!(keys, (0..13).map(|hundred| hundred * 100 + 3).collect());
        assert_eq!(rows.iter().map(|row| number(&row[1])).collect::<BTreeSet<_>>().len(), 13);
        running.stop();
        // It begins anew at the same bookmark: the same again.
        database.ask("DELETE FROM holdfast_mirror");
        let running = start(&orders, &database);
        assert!(running.flush(LONG), "{:?}", running.stats());
        assert_eq!((table(&database).len(), running.stop().set_aside, reasons(&database).len()), (1287, 13, 26));
    }
}

#[test]
fn the_journal_is_not_held_for_what_was_set_aside() {
    let database = Database::postgres();
    make_table(&database);
    let compaction = CompactionOptions { schedule: Schedule::OnDemand, keep_bytes: 0, ..CompactionOptions::default() };
    let held = |refused: Refused| {
        let folder = tempfile::tempdir().unwrap();
        let (store, orders) = open_with(folder.path(), compaction);
        let mapping = documents(&orders, IdKind::Integer, &database);
        let running = Mirror::start(&orders, mapping, MirrorOptions { refused, ..options(&database) }).unwrap();
        assert!(running.flush(LONG));
        orders.write(&order(1, 7), &WriteOptions::default()).unwrap();
        assert_eq!(running.flush(Duration::from_secs(2)), refused == Refused::SetAside);
        compact_past(&store);
        let bytes = store.stats().journal_bytes;
        running.stop();
        database.ask("DELETE FROM holdfast_mirror");
        bytes
    };
    let (stops, goes_on) = (held(Refused::Stop), held(Refused::SetAside));
    assert!(goes_on + (1 << 20) < stops, "{goes_on} bytes are left, where {stops} are held");
}

/// A mirror as a user with fewer rights, who has made its tables.
fn as_user(database: &Database, orders: &Entries) -> Mirror {
    let address = match database {
        Database::Postgres(_) => {
            database.ask("CREATE ROLE shop LOGIN; GRANT ALL ON SCHEMA public TO shop; GRANT ALL ON ALL TABLES IN SCHEMA public TO shop");
            database.ask("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO shop");
            database.address().replace("user=postgres", "user=shop")
        }
        Database::MariaDb(_) => {
            database.ask("CREATE USER shop@localhost");
            database.ask("GRANT ALL ON shop.* TO shop@localhost");
            database.address().replace("root@", "shop@")
        }
    };
    let mapping = documents(orders, IdKind::Integer, database);
    Mirror::start(orders, mapping, MirrorOptions { refused: Refused::SetAside, ..quick(address) }).unwrap()
}

/// It stands still and sets nothing aside, until this has been mended.
fn stands_still(running: &Mirror, database: &Database, words: &[&str], mend: &[&str]) {
    let trouble = until(LONG, || running.stats().trouble.filter(|it| words.iter().any(|word| it.contains(word))));
    assert!(trouble.is_some(), "{words:?}: {:?}", running.stats());
    assert!(!running.flush(Duration::from_millis(200)));
    mend.iter().for_each(|sql| drop(database.ask(sql)));
    assert!(running.flush(LONG), "{words:?}: {:?}", running.stats());
    assert_eq!((running.stats().set_aside, running.stats().trouble), (0, None), "{words:?}: {:?}", running.stats());
}

#[test]
fn what_is_no_fault_of_a_row_is_not_set_aside() {
    for mut database in BOTH.map(|database| database()) {
        make_table(&database);
        let folder = tempfile::tempdir().unwrap();
        let (_store, orders) = open(folder.path());
        let running = as_user(&database, &orders);
        assert!(running.flush(LONG), "{:?}", running.stats());
        let is_mariadb = database.is_mariadb();
        let write = |id: i64| drop(orders.write(&order(id, id * 10), &WriteOptions::default()).unwrap());
        // Rights.
        let either = |mariadb: &'static str, postgres: &'static str| if is_mariadb { mariadb } else { postgres };
        database.ask(either("REVOKE ALL ON shop.* FROM shop@localhost", r#"REVOKE INSERT ON "order" FROM shop"#));
        if is_mariadb {
            // A session has the rights on its database that it had.
            database.kill();
            database.run();
        }
        write(1);
        let grant = either("GRANT ALL ON shop.* TO shop@localhost", r#"GRANT ALL ON "order" TO shop"#);
        stands_still(&running, &database, &["denied"], &[grant]);
        // A column.
        database.ask(r#"ALTER TABLE "order" RENAME COLUMN document TO papers"#);
        write(2);
        stands_still(&running, &database, &["document"], &[r#"ALTER TABLE "order" RENAME COLUMN papers TO document"#]);
        // The database.
        database.kill();
        // The connection may outlive it for a moment.
        let trouble = until(LONG, || {
            write(3);
            running.stats().trouble
        });
        assert!(trouble.is_some());
        database.run();
        assert!(running.flush(LONG), "{:?}", running.stats());
        // A table, which is made anew.
        if is_mariadb {
            database.ask(r#"DROP TABLE "order""#);
        } else {
            database.ask(r#"DROP TABLE "order" CASCADE"#);
        }
        write(4);
        assert!(running.flush(LONG), "{:?}", running.stats());
        assert_eq!(database.ask(r#"SELECT id FROM "order" ORDER BY id"#), [["1"], ["2"], ["3"], ["4"]]);
        // What is refused where nothing can be set aside: that is trouble, and it is set aside later.
        database.ask(r#"ALTER TABLE "order" ADD CHECK (id <> 5)"#);
        database.ask("ALTER TABLE holdfast_refused RENAME COLUMN reason TO because");
        write(5);
        let words = if is_mariadb { "'reason'" } else { "\"reason\"" };
        let trouble = until(LONG, || running.stats().trouble.filter(|it| it.contains(words)));
        assert!(trouble.is_some(), "{:?}", running.stats());
        assert_eq!(running.stats().set_aside, 0);
        database.ask("ALTER TABLE holdfast_refused RENAME COLUMN because TO reason");
        assert!(running.flush(LONG), "{:?}", running.stats());
        assert_eq!((running.stop().set_aside, reasons(&database).len()), (1, 1));
    }
}

#[test]
fn what_postgres_cannot_do_now_is_not_set_aside() {
    let database = Database::postgres();
    make_table(&database);
    let folder = tempfile::tempdir().unwrap();
    let (_store, orders) = open(folder.path());
    let write = |id: i64| drop(orders.write(&order(id, id * 10), &WriteOptions::default()).unwrap());
    let running = start(&orders, &database);
    assert!(running.flush(LONG));
    // A lock that is not waited for, a fault of a trigger, a state of its own, and a type that is another.
    for (id, (spoil, words, mend)) in (1..).zip([
        ("CREATE OR REPLACE FUNCTION note() RETURNS trigger AS $$ BEGIN RAISE lock_not_available; END $$ LANGUAGE plpgsql", "lock_not_available", ""),
        ("CREATE OR REPLACE FUNCTION note() RETURNS trigger AS $$ BEGIN RAISE disk_full; END $$ LANGUAGE plpgsql", "disk_full", ""),
        ("CREATE OR REPLACE FUNCTION note() RETURNS trigger AS $$ BEGIN RAISE 'later' USING ERRCODE = '55000'; END $$ LANGUAGE plpgsql", "later", ""),
        ("CREATE OR REPLACE FUNCTION note() RETURNS trigger AS $$ BEGIN PERFORM * FROM nowhere; END $$ LANGUAGE plpgsql", "nowhere", ""),
        (r#"ALTER TABLE "order" ADD seen date NOT NULL DEFAULT now(), ALTER document DROP NOT NULL, DROP total; ALTER TABLE "order" ALTER document TYPE bytea USING NULL"#, "bytea", r#"ALTER TABLE "order" ALTER document TYPE jsonb USING NULL"#),
    ]) {
        database.ask(spoil);
        write(id);
        let good = "CREATE OR REPLACE FUNCTION note() RETURNS trigger AS $$ BEGIN RETURN NULL; END $$ LANGUAGE plpgsql";
        stands_still(&running, &database, &[words], &[mend, good]);
    }
    assert_eq!(running.stop().set_aside, 0);
}

#[test]
fn what_is_written_through_is_refused_to_its_caller_and_what_others_wrote_is_set_aside() {
    for database in BOTH.map(|database| database()) {
        make_table(&database);
        let folder = tempfile::tempdir().unwrap();
        let (store, orders) = open(folder.path());
        let running = start(&orders, &database);
        assert!(running.flush(LONG));
        let through = |id: i64, total: i64| {
            let mut transaction = store.begin();
            orders.within(&mut transaction).write(&order(id, total), &WriteOptions::default()).unwrap();
            running.commit(transaction, Durability::Written, LONG)
        };
        let refused = through(1, 7).unwrap_err();
        assert!(matches!(&refused, NotThrough::Nothing(error) if error.kind() == ErrorKind::Invalid), "{refused}");
        assert!(entries(&orders).is_empty() && set_aside(&database).is_empty());
        // Also where what others wrote, which is refused, was there before.
        orders.write(&order(2, 14), &WriteOptions::default()).unwrap();
        through(3, 30).unwrap();
        assert_eq!(table(&database), BTreeMap::from([(3, 30)]));
        assert_eq!(set_aside(&database), [[(2, Some(14))]]);
        // And meanwhile, to the same entries.
        let totals = AtomicI64::new(100);
        std::thread::scope(|threads| {
            for thread in 0..2_i64 {
                let (totals, orders) = (&totals, &orders);
                threads.spawn(move || {
                    for round in 0..150 {
                        let total = totals.fetch_add(1, Ordering::Relaxed);
                        orders.write(&order(10 + (thread + round) % 5, total), &WriteOptions::default()).unwrap();
                    }
                });
            }
            for round in 0..60 {
                let total = totals.fetch_add(1, Ordering::Relaxed);
                match through(10 + round % 5, total) {
                    Ok(_) => assert_ne!(total % 7, 0),
                    Err(NotThrough::Nothing(error)) => {
                        assert!(
                            total % 7 == 0 && error.kind() == ErrorKind::Invalid || error.kind() == ErrorKind::Conflict,
                            "{total}: {error}"
                        );
                    }
                    Err(other) => panic!("{total}: {other}"),
                }
            }
        });
        assert!(running.flush(LONG), "{:?}", running.stats());
        let aside: BTreeSet<i64> = set_aside(&database).iter().map(|rows| rows[0].1.unwrap()).collect();
        let told: BTreeSet<i64> = applied(&database).into_values().flatten().collect();
        assert!(aside.iter().all(|total| total % 7 == 0) && told.iter().all(|total| total % 7 != 0));
        assert!(aside.len() > 1 && aside.is_disjoint(&told));
        // An entry whose last value was set aside has the one before.
        let rows = table(&database);
        for (id, total) in entries(&orders).into_iter().filter(|(_, total)| total % 7 != 0) {
            assert_eq!(rows.get(&id), Some(&total), "{id}");
        }
        assert_eq!(running.stop().failures, 0);
    }
}

/// Rows would come back that are older than their entries.
#[test]
fn nothing_is_set_aside_where_rows_come_back() {
    let postgres = Postgres::start(0);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let options = MirrorOptions { refused: Refused::SetAside, ..quick(postgres.connection()) };
    let mapping = Arc::new(DocumentTable::of(&orders.definition(), IdKind::Integer));
    let running = Mirror::start(&orders, mapping.clone(), options.clone()).unwrap();
    let error = Loader::beside(&store, &running).err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("sets aside"), "{error}");
    let evicts = Definition {
        history: true,
        memory_bytes_max: 64 << 10,
        at_limit: AtLimit::Evict,
        ..Definition::new("shop", "page")
    };
    let pages = store.space("shop").declare(evicts).unwrap();
    let error = Mirror::start(&pages, mapping, options).err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("are evicted"), "{error}");
}

#[test]
fn a_server_sets_aside_and_tells_of_it_whoever_is_killed() {
    let mut postgres = Postgres::start(0);
    let look = |postgres: &Postgres| super::scene::Database::connect(postgres);
    look(&postgres).run(SCHEMA);
    look(&postgres)
        .run(r#"ALTER TABLE "order" ADD CONSTRAINT no_sevens CHECK ((document->>'total')::bigint % 7 <> 0)"#);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = server_tests::scene(folder.path(), &postgres, "refused = \"set-aside\"\n");
    let mut server = launch.start();
    assert!(server.client().say(server_tests::DECLARE).error().is_none());
    assert!(is_said(&server, "and follows"));
    let mut random = Random::new(11);
    let mut total = 0;
    for _ in 0..8 {
        let mut client = server.client();
        for _ in 0..60 {
            total += 1;
            let json = format!(r#"{{"id":{},"customer":"ada","total":{total}}}"#, total % 5);
            assert!(client.say(&format!("SPACE.WRITE shop order {json}")).error().is_none());
        }
        match random.below(3) {
            0 => {
                server.kill();
                server = launch.start_again();
            }
            1 => {
                postgres.kill();
                postgres.run(0);
            }
            _ => {}
        }
    }
    let database = look(&postgres);
    let sevens: Vec<i64> = (1..=total).filter(|total| total % 7 == 0).collect();
    let aside =
        || database.pairs("SELECT (document::jsonb->>'total')::bigint, number FROM holdfast_refused ORDER BY id");
    let applied = || database.applied().into_values().map(|totals| totals.len()).sum::<usize>();
    let wanted = usize::try_from(total).unwrap() - sevens.len();
    assert!(until(LONG, || (applied() == wanted).then_some(())).is_some(), "{} of {wanted}", applied());
    assert!(until(LONG, || (aside().len() == sevens.len()).then_some(())).is_some());
    assert_eq!(aside(), sevens.iter().map(|total| (*total, 1)).collect::<Vec<_>>(), "each once, in order");
    // Of what this run of the server did, and what it says of it.
    let before = metric(&server, "set_aside_total");
    assert!(server.client().say(r#"SPACE.WRITE shop order {"id":1,"total":7000}"#).error().is_none());
    assert!(until(LONG, || (metric(&server, "set_aside_total") == before + 1).then_some(())).is_some());
    assert!(is_said(&server, "mirror orders: set aside into holdfast_refused, as its table refuses them: "));
    assert!(until(LONG, || (metric(&server, "up") == 1).then_some(())).is_some(), "it follows");
    // Written through, it is refused to the client.
    let mut client = server.client();
    assert!(client.say("TX.BEGIN").error().is_none());
    assert!(client.say(r#"SPACE.WRITE shop order {"id":1,"total":14}"#).error().is_none());
    let answer = client.say("TX.COMMIT THROUGH 60000");
    assert!(answer.error().is_some_and(|error| error.contains("no_sevens")), "{answer:?}");
    assert_eq!(metric(&server, "set_aside_total"), before + 1);
    // A type that evicts is not mirrored so.
    assert_eq!(server.client().say("SPACE.DROP shop order").error(), None);
    assert!(server.client().say(&format!("{} MEMORY 32768 EVICT", server_tests::DECLARE)).error().is_none());
    assert!(is_said(&server, "entries of the type order are evicted"));
}
