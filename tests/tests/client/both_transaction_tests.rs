//! Transactions that stay open, in the process and on a server.

use std::thread;
use std::time::Duration;

use client::{Point, SeriesName, TransactionOptions};
use holdfast::series::Value as Number;
use holdfast::space::{Change, Document, Lease, Path, ReadLock, ReadOptions, Wanted, WriteMode, WriteOptions};
use holdfast::{Condition, Durability, ErrorKind, Position, PutOptions};
use holdfast_tests::Launch;
use tempfile::TempDir;

use crate::scene::{both, connect, number, order, orders, upsert};

fn begin(client: &client::Client) -> client::Transaction {
    client.begin(&TransactionOptions::default()).wait().unwrap()
}

fn at_once() -> ReadOptions {
    ReadOptions::default()
}

fn more() -> [Change; 1] {
    [Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() }]
}

#[test]
fn all_of_a_transaction_happens_with_one_version_and_nobody_sees_it_before() {
    both(|client| {
        let orders = orders(client);
        orders.write(&order(1, 10), &upsert()).wait().unwrap();
        let point = Point { time: 1_700_000_000_000_000_001, value: Number::Integer(5) };
        let name = SeriesName::new("sold").tag("shop", "a b");
        let mut transaction = begin(client);
        let taken = transaction.take(&orders, &Wanted::id(1), &at_once()).wait().unwrap().unwrap();
        assert_eq!(number(&taken.document, "total"), 10);
        let written = transaction.write(&orders, &order(2, 20), &upsert()).wait().unwrap();
        assert_eq!((written.id, written.version), (2.into(), Position::ZERO));
        let changed = transaction.change(&orders, &Wanted::id(2), &more(), &upsert()).wait().unwrap().unwrap();
        assert_eq!((number(&changed.now.document, "total"), changed.now.version), (21, Position::ZERO));
        transaction.put(b"b", b"k", b"v", &PutOptions::default()).wait().unwrap();
        assert_eq!(transaction.get_value(b"b", b"k").wait().unwrap(), Some(b"v".to_vec()));
        assert_eq!(transaction.head(b"b", b"k").wait().unwrap().unwrap().version, Position::ZERO);
        assert!(!transaction.delete(b"b", b"none", Condition::None).wait().unwrap());
        transaction.add_points(&[(name.clone(), point.clone())]).wait().unwrap();
        assert_eq!(transaction.count(&orders, &Wanted::all()).wait().unwrap(), 1);
        // Of others nobody sees it, nor gets what it has taken.
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 1);
        assert_eq!(orders.take(&Wanted::id(1), &at_once()).wait().unwrap(), None);
        assert_eq!(client.kv().get_value(b"b", b"k").wait().unwrap(), None);
        assert_eq!(client.series().last(&name).wait().unwrap(), None);
        let position = transaction.commit(Some(Durability::Synced)).wait().unwrap();
        let entry = orders.read(&Wanted::all(), &at_once()).wait().unwrap().unwrap();
        assert_eq!((number(&entry.document, "total"), entry.version), (21, position));
        assert_eq!(client.kv().head(b"b", b"k").wait().unwrap().unwrap().version, position);
        assert_eq!(client.series().last(&name).wait().unwrap(), Some(point));
    });
}

#[test]
fn queries_changes_of_many_and_renewals_are_part_of_a_transaction() {
    both(|client| {
        let orders = orders(client);
        let lease = WriteOptions { lease: Lease::For(Duration::from_secs(1000)), ..upsert() };
        for id in 1..=4 {
            orders.write(&order(id, 10 * id), &lease).wait().unwrap();
        }
        let sql = "SELECT count(*) AS n, sum(total) AS sum FROM orders WHERE total > ?";
        let figures = |rows: Vec<Document>| rows.iter().map(Document::to_json).collect::<Vec<_>>();
        let mut transaction = begin(client);
        let some = Wanted::query("total >= ?", &[30.into()]).unwrap();
        assert_eq!(transaction.change_many(&orders, &some, &more(), &upsert()).wait().unwrap(), 2);
        assert!(transaction.renew(&orders, &Wanted::id(1), Lease::Forever).wait().unwrap());
        assert!(!transaction.renew(&orders, &Wanted::id(7), Lease::Forever).wait().unwrap());
        assert_eq!(transaction.clear(&orders, &Wanted::query("total = 20", &[]).unwrap()).wait().unwrap(), 1);
        let within = transaction.select(&orders, sql, &[0.into()]).wait().unwrap();
        assert_eq!(figures(within), [r#"{"n":3,"sum":82}"#]);
        assert_eq!(figures(orders.select(sql, &[0.into()]).wait().unwrap()), [r#"{"n":4,"sum":100}"#]);
        transaction.commit(None).wait().unwrap();
        assert_eq!(figures(orders.select(sql, &[0.into()]).wait().unwrap()), [r#"{"n":3,"sum":82}"#]);
        let first = orders.read(&Wanted::id(1), &at_once()).wait().unwrap().unwrap();
        assert_eq!(first.expires_ms, None);
        let mut transaction = begin(client);
        let version = WriteOptions { version: Some(Position::new(1)), ..upsert() };
        let refused = transaction.change_many(&orders, &some, &more(), &version).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(transaction.select(&orders, "SELECT", &[]).wait().unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn a_transaction_goes_through_entries_as_it_has_them() {
    both(|client| {
        let orders = orders(client);
        for id in 1..=10 {
            orders.write(&order(id, 10 * id), &upsert()).wait().unwrap();
        }
        let mut transaction = begin(client);
        transaction.write(&orders, &order(11, 500), &upsert()).wait().unwrap();
        transaction.take(&orders, &Wanted::id(4), &at_once()).wait().unwrap().unwrap();
        transaction.change(&orders, &Wanted::id(5), &more(), &upsert()).wait().unwrap().unwrap();
        let mut iteration = transaction.iterate(&orders, &Wanted::query("total > ?", &[20.into()]).unwrap());
        let mut found = Vec::new();
        loop {
            let batch = transaction.next_of(&mut iteration, 3).wait().unwrap();
            assert!(batch.len() <= 3);
            if batch.is_empty() {
                break;
            }
            found.extend(batch.iter().map(|entry| (number(&entry.document, "id"), number(&entry.document, "total"))));
        }
        found.sort_unstable();
        assert_eq!(found, [(3, 30), (5, 51), (6, 60), (7, 70), (8, 80), (9, 90), (10, 100), (11, 500)]);
        assert_eq!(transaction.next_of(&mut iteration, 3).wait().unwrap(), []);
        transaction.commit(None).wait().unwrap();
        // One that is of another transaction is refused there, and so is an order.
        let (mut first, mut second) = (begin(client), begin(client));
        let mut iteration = first.iterate(&orders, &Wanted::all());
        assert_eq!(first.next_of(&mut iteration, 3).wait().unwrap().len(), 3);
        assert_eq!(second.next_of(&mut iteration, 3).wait().unwrap_err().kind(), ErrorKind::Invalid);
        let mut ordered = first.iterate(&orders, &Wanted::query("total > 0 ORDER BY id", &[]).unwrap());
        assert_eq!(first.next_of(&mut ordered, 3).wait().unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn what_is_given_up_or_dropped_never_happened() {
    both(|client| {
        let orders = orders(client);
        orders.write(&order(1, 10), &upsert()).wait().unwrap();
        for is_told in [true, false] {
            let mut transaction = begin(client);
            let read = transaction.read_many(&orders, &Wanted::all(), 9).wait().unwrap();
            let counted = transaction.count(&orders, &Wanted::all()).wait().unwrap();
            assert!(!read.is_empty() && read.len() as u64 == counted);
            assert_eq!(transaction.read_many(&orders, &Wanted::all(), 1).wait().unwrap().len(), 1);
            assert_eq!(transaction.read_many(&orders, &Wanted::all(), 0).wait().unwrap(), []);
            let taken = transaction.take_many(&orders, &Wanted::all(), 5).wait().unwrap();
            assert_eq!(taken.len(), 1);
            transaction.put(b"b", b"k", b"v", &PutOptions::default()).wait().unwrap();
            if is_told {
                transaction.abort().wait().unwrap();
            } else {
                drop(transaction);
            }
            // The server hears of a connection that is gone when it gets to it.
            let patient = ReadOptions { wait: Some(Duration::from_secs(30)), ..at_once() };
            assert!(orders.take(&Wanted::id(1), &patient).wait().unwrap().is_some());
            orders.write(&order(1, 10), &upsert()).wait().unwrap();
            assert_eq!(client.kv().get_value(b"b", b"k").wait().unwrap(), None);
        }
    });
}

#[test]
fn who_waits_for_a_lock_goes_on_when_it_is_free_awaited_or_not() {
    both(|client| {
        let orders = orders(client);
        orders.write(&order(1, 0), &upsert()).wait().unwrap();
        for is_awaited in [true, false] {
            let (mut first, mut second) = (begin(client), begin(client));
            first.change(&orders, &Wanted::id(1), &more(), &upsert()).wait().unwrap().unwrap();
            thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let change = second.change(&orders, &Wanted::id(1), &more(), &upsert());
                    if is_awaited { change.begin().wait() } else { change.wait() }
                });
                first.commit(None).wait().unwrap();
                waits.join().unwrap().unwrap().unwrap();
            });
            second.commit(None).wait().unwrap();
        }
        let entry = orders.read(&Wanted::id(1), &at_once()).wait().unwrap().unwrap();
        assert_eq!(number(&entry.document, "total"), 4);
    });
}

#[test]
fn a_take_that_waits_gets_what_comes_and_one_that_is_dropped_gives_the_transaction_up() {
    both(|client| {
        let orders = orders(client);
        let waiting = ReadOptions { wait: Some(Duration::from_secs(60)), ..at_once() };
        let mut transaction = begin(client);
        let take = transaction.take(&orders, &Wanted::all(), &waiting).begin();
        orders.write(&order(1, 1), &upsert()).wait().unwrap();
        assert_eq!(number(&take.wait().unwrap().unwrap().document, "id"), 1);
        let take = transaction.take(&orders, &Wanted::all(), &waiting).begin();
        // One at a time.
        let refused = transaction.count(&orders, &Wanted::all()).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        drop(take);
        let ended = transaction.count(&orders, &Wanted::all()).wait().unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Invalid);
        assert!(ended.to_string().contains("has ended"), "{ended}");
        assert!(transaction.commit(None).wait().is_err());
        assert_eq!(
            orders.take(&Wanted::all(), &waiting).wait().unwrap().map(|entry| number(&entry.document, "id")),
            Some(1)
        );
    });
}

#[test]
fn conflicts_deadlocks_and_leases_are_told_as_such() {
    both(|client| {
        let orders = orders(client);
        orders.write_many(&[order(1, 0), order(2, 0)], &upsert()).wait().unwrap();
        // A key that was read is another at the commit.
        let mut transaction = begin(client);
        assert_eq!(transaction.get_value(b"b", b"k").wait().unwrap(), None);
        client.kv().put(b"b", b"k", b"v", &PutOptions::default(), None).wait().unwrap();
        transaction.write(&orders, &order(3, 0), &upsert()).wait().unwrap();
        assert_eq!(transaction.commit(None).wait().unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 2);
        // An operation that fails ends the transaction, and nothing of it happens.
        let mut transaction = begin(client);
        let insert = WriteOptions { mode: WriteMode::Insert, ..upsert() };
        transaction.write(&orders, &order(4, 0), &insert).wait().unwrap();
        let there = transaction.write(&orders, &order(1, 0), &insert).wait().unwrap_err();
        assert_eq!(there.kind(), ErrorKind::Conflict);
        let ended = transaction.write(&orders, &order(5, 0), &insert).wait().unwrap_err();
        assert!(ended.to_string().contains("has ended"), "{ended}");
        assert_eq!(transaction.commit(None).wait().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 2);
        // Two that wait for each other: one is told, and the other goes on when it gives up.
        let (mut first, mut second) = (begin(client), begin(client));
        first.change(&orders, &Wanted::id(1), &more(), &upsert()).wait().unwrap();
        second.change(&orders, &Wanted::id(2), &more(), &upsert()).wait().unwrap();
        let went_on = thread::scope(|scope| {
            let go = |mut transaction: client::Transaction, id: i64| match transaction
                .change(&orders, &Wanted::id(id), &more(), &upsert())
                .wait()
            {
                Ok(_) => transaction.commit(None).wait().is_ok(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict);
                    transaction.abort().wait().unwrap();
                    false
                }
            };
            let first = scope.spawn(move || go(first, 2));
            let second = scope.spawn(move || go(second, 1));
            [first.join().unwrap(), second.join().unwrap()]
        });
        assert_eq!(went_on.iter().filter(|went| **went).count(), 1);
        // A lease that has ended.
        let options = TransactionOptions { lease: Duration::from_millis(20), isolation: ReadLock::Exclusive };
        let mut late = client.begin(&options).wait().unwrap();
        late.read(&orders, &Wanted::id(1), &at_once()).wait().unwrap().unwrap();
        let patient = ReadOptions { wait: Some(Duration::from_secs(30)), ..at_once() };
        assert!(orders.take(&Wanted::id(1), &patient).wait().unwrap().is_some());
        assert_eq!(late.commit(None).wait().unwrap_err().kind(), ErrorKind::Timeout);
        let nothing = TransactionOptions { lease: Duration::ZERO, ..TransactionOptions::default() };
        assert!(client.begin(&nothing).wait().is_err_and(|error| error.kind() == ErrorKind::Invalid));
    });
}

#[test]
fn a_server_that_is_killed_has_rolled_back_what_was_open_and_kept_what_was_committed() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let client = connect(&server);
    let orders_there = orders(&client);
    orders_there.write_many(&[order(1, 0), order(2, 0)], &upsert()).wait().unwrap();
    let (mut done, mut open) = (begin(&client), begin(&client));
    done.take(&orders_there, &Wanted::id(1), &at_once()).wait().unwrap().unwrap();
    done.put(b"b", b"took", b"1", &PutOptions::default()).wait().unwrap();
    open.take(&orders_there, &Wanted::id(2), &at_once()).wait().unwrap().unwrap();
    open.put(b"b", b"took", b"2", &PutOptions::default()).wait().unwrap();
    done.commit(None).wait().unwrap();
    server.kill();
    let broken = open.count(&orders_there, &Wanted::all()).wait().unwrap_err();
    assert_eq!(broken.kind(), ErrorKind::Unavailable);
    assert!(open.commit(None).wait().is_err());
    let server = Launch::new(folder.path()).start();
    let client = connect(&server);
    let orders = orders(&client);
    let left = orders.take_many(&Wanted::all(), 5, &at_once()).wait().unwrap();
    assert_eq!(left.iter().map(|entry| number(&entry.document, "id")).collect::<Vec<_>>(), [2]);
    assert_eq!(client.kv().get_value(b"b", b"took").wait().unwrap(), Some(b"1".to_vec()));
}
