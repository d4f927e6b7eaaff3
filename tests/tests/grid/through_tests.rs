//! Writing through: space and table have it when the caller is answered, or neither, or the caller is told which.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use grid::{DocumentTable, IdKind, Mapping, Mirror, NotThrough, Table};
use holdfast::space::{Document, Entries, ReadOptions, ValueRef, Wanted, WriteOptions};
use holdfast::{
    Committed, CompactionOptions, Compression, Durability, ErrorKind, PutOptions, Schedule, Store, Transaction,
};
use holdfast_tests::{Random, say, until};

use super::databases::Postgres;
use super::scene::{Database, LONG, SCHEMA, entries, mirror, open, open_with, order, quick};

/// Whoever moves the bookmark waits here while a test holds the lock: behind the commit of the space, before that of the table.
pub(crate) const GATE: &str = "
    CREATE FUNCTION gate() RETURNS trigger AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$ LANGUAGE plpgsql;
    CREATE TRIGGER gate BEFORE UPDATE ON holdfast_mirror FOR EACH ROW EXECUTE FUNCTION gate();
";

fn writing(store: &Store, orders: &Entries, documents: &[Document]) -> Transaction {
    let mut transaction = store.begin();
    for document in documents {
        orders.within(&mut transaction).write(document, &WriteOptions::default()).unwrap();
    }
    transaction
}

fn write_through(
    mirror: &Mirror,
    (store, orders): (&Store, &Entries),
    id: i64,
    total: i64,
) -> Result<Committed, NotThrough> {
    mirror.commit(writing(store, orders, &[order(id, total)]), Durability::Written, LONG)
}

fn total_of(orders: &Entries, id: i64) -> Option<i64> {
    entries(orders).into_iter().find(|(it, _)| *it == id).map(|(_, total)| total)
}

#[test]
fn the_table_has_what_was_answered() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG), "it has begun");
    let totals = AtomicI64::new(0);
    let written = std::thread::scope(|threads| {
        let mut callers = Vec::new();
        for thread in 0..4 {
            let (running, store, orders, postgres, totals) = (&running, &store, &orders, &postgres, &totals);
            let caller = threads.spawn(move || {
                let look = Database::connect(postgres);
                let mut written: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
                for round in 0..30 {
                    let total = totals.fetch_add(1, Ordering::Relaxed);
                    // Others write behind meanwhile, also to what is written through.
                    let (mine, shared) = (thread * 100 + round % 5, 1000 + round % 3);
                    orders.write(&order(shared, total), &WriteOptions::default()).unwrap();
                    let mut transaction = writing(store, orders, &[order(mine, total)]);
                    let also = orders.within(&mut transaction).take(&Wanted::id(shared), &ReadOptions::default());
                    let also = also.unwrap().is_some();
                    transaction.put(b"totals", mine.to_string().as_bytes(), b"done", &PutOptions::default()).unwrap();
                    running.commit(transaction, Durability::Written, LONG).unwrap();
                    let rows = look
                        .pairs(&format!(r#"SELECT id, (document->>'total')::bigint FROM "order" WHERE id = {mine}"#));
                    assert_eq!(rows, [(mine, total)], "the table had it at once, and took the other: {also}");
                    written.entry(mine).or_default().push(total);
                }
                written
            });
            callers.push(caller);
        }
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<BTreeMap<_, _>>()
    });
    assert!(store.kv().get(b"totals", b"0").unwrap().is_some(), "all of the transaction is committed");
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(database.table(), entries(&orders));
    let mut applied = database.applied();
    applied.retain(|id, _| *id < 1000);
    assert_eq!(applied, written, "each once, and in order");
    let stats = running.stop();
    assert_eq!((stats.failures, stats.ended), (0, None));
}

#[test]
fn what_the_table_refuses_changes_nothing() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    database.run(
        r#"ALTER TABLE "order" ADD CHECK ((document->>'total')::bigint >= 0);
           ALTER TABLE "order" ADD code bigint GENERATED ALWAYS AS ((document->>'total')::bigint) STORED;
           ALTER TABLE "order" ADD UNIQUE (code) DEFERRABLE INITIALLY DEFERRED;"#,
    );
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    let here = (&store, &orders);
    write_through(&running, here, 1, 10).unwrap();
    for (id, total, says) in [(2, -5, "check constraint"), (1, -5, "check constraint"), (2, 10, "duplicate key")] {
        match write_through(&running, here, id, total).unwrap_err() {
            NotThrough::Nothing(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().contains(says), "{error}");
            }
            other => panic!("{other}"),
        }
        assert_eq!(entries(&orders), [(1, 10)]);
    }
    // Neither does what the space refuses: somebody else writes the same new entry first.
    let late = writing(&store, &orders, &[order(3, 30)]);
    orders.write(&order(3, 31), &WriteOptions::default()).unwrap();
    let refused = running.commit(late, Durability::Written, LONG);
    assert!(matches!(&refused, Err(NotThrough::Nothing(error)) if error.kind() == ErrorKind::Conflict), "{refused:?}");
    // The next may.
    write_through(&running, here, 4, 40).unwrap();
    assert!(running.flush(LONG));
    assert_eq!(database.table(), [(1, 10), (3, 31), (4, 40)]);
    assert_eq!(entries(&orders), database.table());
    assert_eq!(database.applied(), BTreeMap::from([(1, vec![10]), (3, vec![31]), (4, vec![40])]));
    assert_eq!(running.stats().failures, 0, "a refusal is no failure of the target");
    // What was written behind and is refused holds up what comes after it, which is told why.
    orders.write(&order(5, -50), &WriteOptions::default()).unwrap();
    match write_through(&running, here, 6, 60).unwrap_err() {
        NotThrough::Nothing(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("cannot go on") && error.to_string().contains("check constraint"));
        }
        other => panic!("{other}"),
    }
    assert_eq!(total_of(&orders, 6), None);
    database.run(r#"ALTER TABLE "order" DROP CONSTRAINT order_document_check"#);
    write_through(&running, here, 6, 60).unwrap();
    assert_eq!(database.table(), entries(&orders));
}

#[test]
fn with_the_database_down_nothing_is_changed_and_the_caller_is_told() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    let here = (&store, &orders);
    write_through(&running, here, 1, 10).unwrap();
    postgres.kill();
    // The process that serves a connection may outlive the one that was killed for a moment.
    let mut totals = vec![10];
    let mut refusals = 0;
    while refusals < 3 {
        let total = totals.last().unwrap() + 1;
        match write_through(&running, here, 1, total) {
            Ok(_) => totals.push(total),
            Err(NotThrough::Nothing(error)) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                refusals += 1;
            }
            // That one ended just then.
            Err(NotThrough::TableBehind { .. }) => totals.push(total),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(total_of(&orders, 1), totals.last().copied());
    }
    // Its locks are gone with it, and who writes behind is not held up.
    orders.write(&order(1, 100), &WriteOptions::default()).unwrap();
    totals.push(100);
    postgres.run(0);
    write_through(&running, here, 2, 20).unwrap();
    assert_eq!(Database::connect(&postgres).table(), [(1, 100), (2, 20)], "in order: what was before is there too");
    // A connection that died while nobody used it is not the next caller's trouble.
    postgres.kill();
    postgres.run(0);
    write_through(&running, here, 3, 30).unwrap();
    // A target that hangs is waited for as long as the caller says.
    let database = Database::connect(&postgres);
    database.run(r#"BEGIN; SELECT * FROM "order" WHERE id = 3 FOR UPDATE"#);
    let waiting = writing(&store, &orders, &[order(3, 31)]);
    let late = running.commit(waiting, Durability::Written, Duration::from_millis(300));
    assert!(matches!(&late, Err(NotThrough::Nothing(error)) if error.kind() == ErrorKind::Timeout), "{late:?}");
    assert_eq!(total_of(&orders, 3), Some(30));
    database.run("ROLLBACK");
    write_through(&running, here, 3, 32).unwrap();
    assert!(running.flush(LONG));
    assert_eq!(database.table(), entries(&orders));
    let applied = database.applied();
    assert_eq!(applied, BTreeMap::from([(1, totals), (2, vec![20]), (3, vec![30, 32])]));
}

/// Writes to other keys, and lets go of as much of the journal as nobody holds.
pub(crate) fn compact_past(store: &Store) {
    let plain = PutOptions { compression: Some(Compression::None), ..PutOptions::default() };
    for _ in 0..10 {
        for _ in 0..50 {
            store.kv().put(b"other", b"key", &[7; 7_000], &plain).unwrap();
        }
        // Segments are sealed, and the space's snapshots written, in the background.
        std::thread::sleep(Duration::from_millis(300));
        store.compact().unwrap();
    }
}

fn let_go_of_all() -> CompactionOptions {
    CompactionOptions { schedule: Schedule::OnDemand, keep_bytes: 0, ..CompactionOptions::default() }
}

/// A failure while somebody waited had the mirror stop listening, so that compaction let go of what it had not applied.
#[test]
fn the_journal_is_held_while_the_database_is_down_also_for_who_writes_through() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open_with(folder.path(), let_go_of_all());
    let running = mirror(&orders, &postgres);
    let here = (&store, &orders);
    write_through(&running, here, 1, 10).unwrap();
    postgres.kill();
    let refused = until(LONG, || write_through(&running, here, 1, 11).err());
    assert!(refused.is_some());
    orders.write(&order(2, 20), &WriteOptions::default()).unwrap();
    compact_past(&store);
    postgres.run(0);
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(Database::connect(&postgres).table(), entries(&orders));
    assert_eq!(total_of(&orders, 2), Some(20));
}

/// Also before it knows where the table stands.
#[test]
fn the_journal_is_held_for_a_mirror_that_began_with_the_database_down() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open_with(folder.path(), let_go_of_all());
    let running = mirror(&orders, &postgres);
    write_through(&running, (&store, &orders), 1, 10).unwrap();
    running.stop();
    orders.write(&order(2, 20), &WriteOptions::default()).unwrap();
    postgres.kill();
    let running = mirror(&orders, &postgres);
    assert!(until(LONG, || running.stats().trouble).is_some());
    compact_past(&store);
    postgres.run(0);
    assert!(running.flush(LONG), "{:?}", running.stats());
    assert_eq!(Database::connect(&postgres).table(), [(1, 10), (2, 20)]);
}

/// Callers that come while the mirror applies something have written something else before.
#[test]
fn nobody_overtakes_what_was_written_before() {
    let postgres = Postgres::start(0);
    let gate = Database::connect(&postgres);
    gate.run(SCHEMA);
    gate.run(
        r#"CREATE FUNCTION after_two() RETURNS trigger AS $$ BEGIN
               IF NEW.id = 3 AND NOT EXISTS (SELECT FROM "order" WHERE id = 2) THEN RAISE 'two is not there'; END IF;
               RETURN NEW;
           END $$ LANGUAGE plpgsql;
           CREATE TRIGGER after_two BEFORE INSERT ON "order" FOR EACH ROW EXECUTE FUNCTION after_two();"#,
    );
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG), "it has begun");
    gate.run(GATE);
    gate.run("SELECT pg_advisory_lock(7)");
    orders.write(&order(1, 10), &WriteOptions::default()).unwrap();
    stands_at_gate(&gate);
    orders.write(&order(2, 20), &WriteOptions::default()).unwrap();
    std::thread::scope(|threads| {
        let caller = threads.spawn(|| write_through(&running, (&store, &orders), 3, 30));
        std::thread::sleep(Duration::from_millis(300));
        gate.run("SELECT pg_advisory_unlock(7)");
        caller.join().unwrap().unwrap();
    });
    assert_eq!(gate.table(), entries(&orders));
}

/// Waits until the mirror waits for the lock.
pub(crate) fn stands_at_gate(gate: &Database) {
    let sql = "SELECT count(*), 0::bigint FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    assert!(until(LONG, || (gate.pairs(sql) == [(1, 0)]).then_some(())).is_some());
}

/// Once the first was checked, the others of the target's transaction were checked with each statement.
#[test]
fn each_that_shares_a_transaction_has_its_constraints_deferred() {
    let postgres = Postgres::start(0);
    let gate = Database::connect(&postgres);
    gate.run(SCHEMA);
    gate.run(
        r#"ALTER TABLE "order" ADD code bigint GENERATED ALWAYS AS ((document->>'total')::bigint) STORED;
           ALTER TABLE "order" ADD UNIQUE (code) DEFERRABLE INITIALLY DEFERRED;"#,
    );
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    for id in 1..=10 {
        orders.write(&order(id, id * 10), &WriteOptions::default()).unwrap();
    }
    let running = mirror(&orders, &postgres);
    assert!(running.flush(LONG), "it has begun");
    gate.run(GATE);
    gate.run("SELECT pg_advisory_lock(7)");
    orders.write(&order(11, 110), &WriteOptions::default()).unwrap();
    stands_at_gate(&gate);
    // Whatever the order, a total is put before the entry goes that has it; and in one case it does not go.
    let take_over = |documents: [Document; 2], goes: &[i64]| {
        let mut transaction = writing(&store, &orders, &documents);
        for &id in goes {
            orders.within(&mut transaction).take(&Wanted::id(id), &ReadOptions::default()).unwrap().unwrap();
        }
        running.commit(transaction, Durability::Written, LONG)
    };
    let told = std::thread::scope(|threads| {
        let first = threads.spawn(|| take_over([order(1, 20), order(4, 30)], &[2, 3]));
        let second = threads.spawn(|| take_over([order(5, 60), order(8, 70)], &[6, 7]));
        let third = threads.spawn(|| take_over([order(9, 100), order(12, 120)], &[11]));
        std::thread::sleep(Duration::from_millis(300));
        gate.run("SELECT pg_advisory_unlock(7)");
        [first, second, third].map(|caller| caller.join().unwrap())
    });
    assert!(told[0].is_ok() && told[1].is_ok(), "{told:?}");
    assert!(
        matches!(&told[2], Err(NotThrough::Nothing(error)) if error.to_string().contains("duplicate key")),
        "{told:?}"
    );
    assert!(running.flush(LONG));
    assert_eq!(gate.table(), entries(&orders));
    assert_eq!(gate.table(), [(1, 20), (4, 30), (5, 60), (8, 70), (9, 90), (10, 100), (11, 110)]);
}

/// Whoever flushed waited until a moment came in which nobody wrote through.
#[test]
fn who_flushes_does_not_wait_for_who_writes_through() {
    let postgres = Postgres::start(0);
    let (gate, row) = (Database::connect(&postgres), Database::connect(&postgres));
    gate.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    write_through(&running, (&store, &orders), 3, 30).unwrap();
    gate.run(GATE);
    gate.run("SELECT pg_advisory_lock(7)");
    row.run(r#"BEGIN; SELECT * FROM "order" WHERE id = 3 FOR UPDATE"#);
    orders.write(&order(1, 10), &WriteOptions::default()).unwrap();
    stands_at_gate(&gate);
    std::thread::scope(|threads| {
        let caller = threads.spawn(|| write_through(&running, (&store, &orders), 3, 31));
        let flusher = threads.spawn(|| running.flush(Duration::from_secs(10)));
        // Both have asked before the mirror looks.
        std::thread::sleep(Duration::from_secs(1));
        gate.run("SELECT pg_advisory_unlock(7)");
        let is_flushed = flusher.join().unwrap();
        row.run("ROLLBACK");
        caller.join().unwrap().unwrap();
        assert!(is_flushed, "the table had all but what waited");
    });
    assert_eq!(gate.table(), [(1, 10), (3, 31)]);
}

#[test]
fn a_mirror_that_has_ended_takes_nothing_more() {
    let postgres = Postgres::start(0);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    write_through(&running, (&store, &orders), 1, 10).unwrap();
    Database::connect(&postgres).run("UPDATE holdfast_mirror SET bookmark = 'torn'");
    // Another finds the bookmark so, and this one finds it moved.
    let ended = mirror(&orders, &postgres);
    assert!(until(LONG, || ended.stats().ended).is_some());
    match write_through(&ended, (&store, &orders), 1, 11).unwrap_err() {
        NotThrough::Nothing(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
        other => panic!("{other}"),
    }
    assert_eq!(entries(&orders), [(1, 10)]);
}

/// Tells a row apart from how it was told before.
struct Counting(DocumentTable, AtomicI64);

impl Mapping for Counting {
    fn table(&self) -> &Table {
        self.0.table()
    }

    fn key(&self, id: ValueRef<'_>) -> holdfast::Result<String> {
        self.0.key(id)
    }

    fn row(&self, document: &Document) -> holdfast::Result<Vec<Option<String>>> {
        let told = self.1.fetch_add(1, Ordering::Relaxed);
        let mut row = self.0.row(document)?;
        row[0] = row[0].as_ref().map(|json| json.replacen('{', &format!("{{\"told\": {told}, "), 1));
        Ok(row)
    }

    fn document(&self, key: &str, row: &[Option<&str>]) -> holdfast::Result<Document> {
        self.0.document(key, row)
    }
}

/// What is heard of the space counts, should it not be what the table took before.
#[test]
fn the_table_ends_with_what_was_heard() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let mapping = Counting(DocumentTable::of(&orders.definition(), IdKind::Integer), AtomicI64::new(0));
    let running = Mirror::start(&orders, Arc::new(mapping), quick(postgres.connection())).unwrap();
    assert!(running.flush(LONG), "it has begun");
    for total in 0..3 {
        write_through(&running, (&store, &orders), 1, total).unwrap();
        let told = database.pairs(r#"SELECT id, (document->>'told')::bigint FROM "order""#);
        assert_eq!(told, [(1, 2 * total + 1)], "the second of the two");
    }
    assert_eq!(database.applied(), BTreeMap::from([(1, vec![0, 1, 2])]), "once each");
}

/// A caller who waits between the commit of the space and that of the table, and what is done meanwhile.
struct Between {
    postgres: Postgres,
    folder: tempfile::TempDir,
    store: Store,
    orders: Entries,
    running: Mirror,
    gate: Database,
}

impl Between {
    fn start() -> Self {
        let postgres = Postgres::start(0);
        let gate = Database::connect(&postgres);
        gate.run(SCHEMA);
        let folder = tempfile::tempdir().unwrap();
        let (store, orders) = open(folder.path());
        let running = mirror(&orders, &postgres);
        write_through(&running, (&store, &orders), 1, 10).unwrap();
        gate.run(GATE);
        gate.run("SELECT pg_advisory_lock(7)");
        Self { postgres, folder, store, orders, running, gate }
    }

    /// What the caller is told who waits so long, when this is done as soon as the space has it.
    fn told(&mut self, wait: Duration, act: impl FnOnce(&mut Postgres)) -> holdfast::Error {
        let Self { postgres, store, orders, running, .. } = self;
        let told = std::thread::scope(|threads| {
            let caller = threads.spawn(|| {
                let transaction = writing(store, orders, &[order(1, 11), order(2, 20)]);
                running.commit(transaction, Durability::Written, wait)
            });
            assert!(until(LONG, || (total_of(orders, 2) == Some(20)).then_some(())).is_some(), "the space has it");
            assert_eq!(Database::connect(postgres).table(), [(1, 10)], "and the table has it not");
            act(postgres);
            caller.join().unwrap()
        });
        match told.unwrap_err() {
            NotThrough::TableBehind { committed, reason } => {
                let entry = orders.read(&Wanted::id(2), &ReadOptions::default()).unwrap().unwrap();
                assert_eq!(entry.version, committed.position);
                reason
            }
            other => panic!("{other}"),
        }
    }

    /// The space wins, and what is repeated is done once.
    fn ends_well(self) {
        let Self { postgres, folder: _folder, store, orders, running, gate } = self;
        drop(gate);
        assert!(running.flush(LONG), "{:?}", running.stats());
        let database = Database::connect(&postgres);
        assert_eq!(database.table(), [(1, 11), (2, 20)]);
        assert_eq!(database.applied(), BTreeMap::from([(1, vec![10, 11]), (2, vec![20])]));
        write_through(&running, (&store, &orders), 1, 12).unwrap();
        assert_eq!(database.table(), [(1, 12), (2, 20)]);
    }
}

#[test]
fn between_the_two_commits_the_database_is_killed() {
    let mut between = Between::start();
    let reason = between.told(LONG, Postgres::kill);
    assert_eq!(reason.kind(), ErrorKind::Unavailable, "{reason}");
    between.postgres.run(0);
    between.ends_well();
}

#[test]
fn between_the_two_commits_the_database_takes_too_long() {
    let mut between = Between::start();
    let reason = between.told(Duration::from_secs(1), |_| ());
    assert_eq!(reason.kind(), ErrorKind::Timeout, "{reason}");
    between.ends_well();
}

#[test]
fn between_the_two_commits_mirror_and_store_end() {
    let mut between = Between::start();
    between.told(Duration::from_secs(1), |_| ());
    let Between { postgres, folder, store, orders, running, gate } = between;
    // As far as the database can see, the same as a kill: the connection goes, and its transaction with it.
    running.stop();
    store.close().unwrap();
    drop((store, orders));
    let (store, orders) = open(folder.path());
    let running = mirror(&orders, &postgres);
    Between { postgres, folder, store, orders, running, gate }.ends_well();
}

#[test]
fn whatever_is_killed_the_table_gets_once_what_the_space_has() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let seed = Random::seed();
    say!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut store, mut orders) = open(folder.path());
    let mut running = mirror(&orders, &postgres);
    let mut model: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let (mut total, mut outcomes) = (0, [0; 3]);
    for _ in 0..12 {
        let (kills_after, ids) = (random.below(20), [0; 20].map(|_| i64::try_from(random.below(6)).unwrap()));
        std::thread::scope(|threads| {
            let (done, next) = std::sync::mpsc::channel();
            let (running, store, orders) = (&running, &store, &orders);
            let first = total;
            let caller = threads.spawn(move || {
                let mut told = Vec::new();
                for (id, total) in ids.into_iter().zip(first..) {
                    // Nobody is left to be told when the database is killed already.
                    let _ = done.send(());
                    told.push((id, total, write_through(running, (store, orders), id, total)));
                }
                told
            });
            for _ in 0..kills_after {
                next.recv().unwrap();
            }
            postgres.kill();
            for (id, total, told) in caller.join().unwrap() {
                match told {
                    Ok(_) => outcomes[0] += 1,
                    Err(NotThrough::TableBehind { .. }) => outcomes[1] += 1,
                    Err(NotThrough::Nothing(_)) => {
                        outcomes[2] += 1;
                        continue;
                    }
                    Err(other) => panic!("{other}"),
                }
                model.entry(id).or_default().push(total);
            }
        });
        total += 20;
        postgres.run(0);
        if random.below(2) == 0 {
            running.stop();
            store.close().unwrap();
            drop((store, orders));
            (store, orders) = open(folder.path());
            running = mirror(&orders, &postgres);
        }
    }
    say!("through, behind, not at all: {outcomes:?}");
    assert!(outcomes[0] > 0 && outcomes[2] > 0);
    assert!(running.flush(LONG), "{:?}", running.stats());
    let database = Database::connect(&postgres);
    assert_eq!(database.table(), entries(&orders));
    assert_eq!(database.applied(), model);
}
