//! What a store in the process refuses is told when what that rests on is durable, however it is asked.

use holdfast::space::{Change, Definition, Document, Path, ReadOptions, Wanted, WriteMode, WriteOptions};
use holdfast::{Condition, Options, PutOptions};

use super::*;
use crate::call::block_on;
use crate::{Client, Entries, TransactionOptions};

/// An entry and a key that were written an instant ago by somebody who does not wait: the older of both positions.
fn written(store: &Store) -> Position {
    let jobs = store.space("shop").entries("jobs").unwrap();
    let document = Document::from_pairs([("id", 1_i64)]);
    let version = jobs.write_shown(&document, &WriteOptions::default()).unwrap().version;
    let _ = store.kv().put_no_wait(b"b", b"k", b"v", &PutOptions::default()).unwrap();
    version
}

type Refused = fn(&Client, &Entries) -> Call<()>;

#[test]
fn a_refusal_waits_for_what_it_rests_on_whether_it_is_awaited_or_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options { durability: Durability::Synced, ..Options::default() }).unwrap();
    let client = Client::embedded(&store).unwrap();
    let jobs = client.space("shop").declare(Definition::new("shop", "jobs")).wait().unwrap();
    let insert = || WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
    let id = || Document::from_pairs([("id", 1_i64)]);
    let refused: [(&str, Refused); 7] = [
        ("write", |_, jobs| {
            let insert = WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
            jobs.write(&Document::from_pairs([("id", 1_i64)]), &insert).then(|_| Ok(()))
        }),
        ("change", |_, jobs| {
            let changes = [Change::Set { path: Path::parse("n").unwrap(), value: 1.into() }];
            let options = WriteOptions { version: Some(Position::new(1)), ..WriteOptions::default() };
            jobs.change(&Wanted::id(1), &changes, &options).then(|_| Ok(()))
        }),
        ("take", |_, jobs| {
            let options = ReadOptions { version: Some(Position::new(1)), ..ReadOptions::default() };
            jobs.take(&Wanted::id(1), &options).then(|_| Ok(()))
        }),
        ("put", |client, _| {
            let absent = PutOptions { condition: Condition::Absent, ..PutOptions::default() };
            client.kv().put(b"b", b"k", b"x", &absent, None).then(|_| Ok(()))
        }),
        ("delete", |client, _| {
            client.kv().delete(b"b", b"k", Condition::Version(Position::new(1)), None).then(|_| Ok(()))
        }),
        ("batch", |client, _| {
            let mut batch = client.batch();
            let absent = PutOptions { condition: Condition::Absent, ..PutOptions::default() };
            let _ = batch.put(b"b", b"k", b"x", &absent);
            batch.commit().then(|_| Ok(()))
        }),
        ("batch of entries", |client, jobs| {
            let mut batch = client.batch();
            let insert = WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
            let _ = batch.write(jobs, &Document::from_pairs([("id", 1_i64)]), &insert);
            batch.commit().then(|_| Ok(()))
        }),
    ];
    for (what, refused) in refused {
        for awaited in [true, false] {
            let version = written(&store);
            assert!(store.watermarks().synced <= version);
            let call = refused(&client, &jobs);
            let error = if awaited { block_on(call) } else { call.wait() }.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Conflict, "{what}: {error}");
            assert!(store.watermarks().synced > error.rests_on().expect(what), "{what}, awaited: {awaited}");
        }
    }
    // Within a transaction, and by its commit.
    for awaited in [true, false] {
        let end = |call: Call<()>| if awaited { block_on(call) } else { call.wait() };
        let version = written(&store);
        let mut open = client.begin(&TransactionOptions::default()).wait().unwrap();
        let error = end(open.write(&jobs, &id(), &insert()).then(|_| Ok(()))).unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && store.watermarks().synced > version, "{error}");
        let mut open = client.begin(&TransactionOptions::default()).wait().unwrap();
        end(open.write(&jobs, &Document::from_pairs([("id", 2_i64)]), &insert()).then(|_| Ok(()))).unwrap();
        let here = store.space("shop").entries("jobs").unwrap();
        let two = Document::from_pairs([("id", 2_i64)]);
        let version = here.write_shown(&two, &WriteOptions::default()).unwrap().version;
        let error = end(open.commit(None).then(|_| Ok(()))).unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && store.watermarks().synced > version, "{error}");
        drop(here.take_shown(&Wanted::id(2), &ReadOptions::default()).unwrap());
    }
}
