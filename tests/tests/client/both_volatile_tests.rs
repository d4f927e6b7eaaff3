//! Entries of volatile types in batches and transactions, in the process and on a server.

use client::{Client, Entries, TransactionOptions};
use holdfast::space::{Change, Definition, Path, ReadOptions, Storage, Wanted, WriteMode, WriteOptions};
use holdfast::{Condition, ErrorKind, Position, PutOptions};
use holdfast_tests::Launch;
use tempfile::TempDir;

use crate::scene::{both, connect, declare, number, order, orders, upsert};

fn sessions(client: &Client) -> Entries {
    declare(client, Definition { storage: Storage::Volatile, ..Definition::new("shop", "sessions") })
}

fn more() -> [Change; 1] {
    [Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() }]
}

fn now() -> ReadOptions {
    ReadOptions::default()
}

fn count(entries: &Entries) -> u64 {
    entries.count(&Wanted::all()).wait().unwrap()
}

#[test]
fn a_batch_has_volatile_entries_with_the_rest_or_none_of_it() {
    both(|client| {
        let (orders, sessions) = (orders(client), sessions(client));
        let first = sessions.write(&order(1, 10), &upsert()).wait().unwrap().version;
        // Nothing in it is for the journal.
        let mut batch = client.batch();
        let at = WriteOptions { version: Some(first), ..upsert() };
        let changed = batch.change(&sessions, &Wanted::id(1), &more(), &at);
        let written = batch.write(&sessions, &order(2, 20), &upsert());
        let mut done = batch.commit().wait().unwrap();
        assert_eq!(done.position, Position::ZERO);
        let changed = done.take(changed).unwrap().unwrap().now;
        assert_eq!((number(&changed.document, "total"), changed.version), (11, Position::ZERO));
        assert_eq!(done.take(written).unwrap().version, Position::ZERO);
        let read = sessions.read(&Wanted::id(1), &now()).wait().unwrap().unwrap();
        assert!(number(&read.document, "total") == 11 && read.version > first);
        for condition in [Condition::Present, Condition::None] {
            let mut batch = client.batch();
            let taken = batch.take(&sessions, &Wanted::id(2));
            let durable = batch.write(&orders, &order(2, 20), &upsert());
            let volatile = batch.write(&sessions, &order(3, 30), &upsert());
            let _ = batch.delete(b"b", b"none", condition);
            let committed = batch.commit().wait();
            if condition == Condition::Present {
                assert_eq!(committed.map(|done| done.position).unwrap_err().kind(), ErrorKind::Conflict);
                assert_eq!((count(&orders), count(&sessions)), (0, 2));
                continue;
            }
            let mut done = committed.unwrap();
            assert!(done.take(taken).unwrap().is_some());
            let versions = (done.take(durable).unwrap().version, done.take(volatile).unwrap().version);
            assert_eq!(versions, (done.position, Position::ZERO));
        }
        assert_eq!((count(&orders), count(&sessions)), (1, 2));
    });
}

#[test]
fn a_transaction_has_volatile_entries_with_the_rest_or_none_of_it() {
    both(|client| {
        let (orders, sessions) = (orders(client), sessions(client));
        sessions.write(&order(1, 10), &upsert()).wait().unwrap();
        for commits in [false, true] {
            let mut transaction = client.begin(&TransactionOptions::default()).wait().unwrap();
            assert!(transaction.take(&sessions, &Wanted::id(1), &now()).wait().unwrap().is_some());
            transaction.write(&sessions, &order(2, 20), &upsert()).wait().unwrap();
            transaction.write(&orders, &order(2, 20), &upsert()).wait().unwrap();
            transaction.put(b"b", b"k", b"v", &PutOptions::default()).wait().unwrap();
            assert_eq!(transaction.count(&sessions, &Wanted::all()).wait().unwrap(), 1);
            assert_eq!((count(&sessions), count(&orders)), (1, 0));
            assert_eq!(sessions.take(&Wanted::id(1), &now()).wait().unwrap(), None, "it is another's");
            if commits {
                transaction.commit(None).wait().unwrap();
            } else {
                let update = WriteOptions { mode: WriteMode::Update, ..upsert() };
                assert!(transaction.write(&sessions, &order(9, 9), &update).wait().is_err());
            }
        }
        assert_eq!((count(&sessions), count(&orders)), (1, 1));
        let left = sessions.take(&Wanted::all(), &now()).wait().unwrap().unwrap();
        assert_eq!(number(&left.document, "id"), 2);
    });
}

#[test]
fn a_server_that_is_killed_has_kept_what_was_durable_of_a_transaction_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let client = connect(&server);
    let (orders_there, sessions_there) = (orders(&client), sessions(&client));
    let mut transaction = client.begin(&TransactionOptions::default()).wait().unwrap();
    transaction.write(&orders_there, &order(1, 1), &upsert()).wait().unwrap();
    transaction.write(&sessions_there, &order(1, 1), &upsert()).wait().unwrap();
    transaction.commit(None).wait().unwrap();
    assert_eq!((count(&orders_there), count(&sessions_there)), (1, 1));
    server.kill();
    let server = Launch::new(folder.path()).start();
    let client = connect(&server);
    assert_eq!((count(&orders(&client)), count(&sessions(&client))), (1, 0));
}
