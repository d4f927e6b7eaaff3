//! Batches over spaces, keys and series, in the process and on a server.

use std::time::Duration;

use client::{Point, SeriesName, TransactionOptions};
use holdfast::series::Value as Number;
use holdfast::space::{Change, Lease, Path, ReadOptions, Wanted, WriteMode, WriteOptions};
use holdfast::{Condition, Durability, ErrorKind, PutOptions};

use crate::scene::{both, number, order, orders, upsert};

#[test]
fn all_of_a_batch_happens_with_one_version_and_each_answer_is_there() {
    both(|client| {
        let orders = orders(client);
        orders.write(&order(1, 10), &upsert()).wait().unwrap();
        let point = Point { time: 1_700_000_000_000_000_001, value: Number::Integer(5) };
        let name = SeriesName::new("sold").tag("shop", "a b");
        let mut batch = client.batch();
        let taken = batch.take(&orders, &Wanted::id(1));
        let written = batch.write(&orders, &order(2, 20), &upsert());
        let more = [Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() }];
        let changed = batch.change(&orders, &Wanted::id(2), &more, &upsert());
        let read = batch.read(&orders, &Wanted::id(2));
        let none = batch.take(&orders, &Wanted::id(77));
        let count = batch.count(&orders, &Wanted::all());
        let put = batch.put(b"b", b"k", b"v", &PutOptions::default());
        let value = batch.get_value(b"b", b"k");
        let gone = batch.delete(b"b", b"none", Condition::None);
        batch.add_points(&[(name.clone(), point.clone())]);
        let mut done = batch.commit().wait().unwrap();
        let position = done.position;
        assert_eq!(number(&done.take(taken).unwrap().unwrap().document, "total"), 10);
        let written = done.take(written).unwrap();
        assert_eq!((written.id, written.version), (2.into(), position));
        let changed = done.take(changed).unwrap().unwrap();
        assert_eq!((number(&changed.now.document, "total"), changed.now.version), (21, position));
        assert_eq!(number(&done.take(read).unwrap().unwrap().document, "total"), 21);
        assert_eq!(done.take(none).unwrap(), None);
        assert_eq!(done.take(count).unwrap(), 1);
        assert_eq!(done.take(put).unwrap().position, position);
        assert_eq!(done.take(value).unwrap(), Some(b"v".to_vec()));
        assert!(!done.take(gone).unwrap());
        let entry = orders.read(&Wanted::id(2), &ReadOptions::default()).wait().unwrap().unwrap();
        assert_eq!(entry.version, position, "one batch");
        assert_eq!(client.kv().head(b"b", b"k").wait().unwrap().unwrap().version, position);
        assert_eq!(client.series().last(&name).wait().unwrap(), Some(point));
    });
}

#[test]
fn a_batch_of_which_one_part_cannot_be_does_nothing() {
    both(|client| {
        let orders = orders(client);
        let version = orders.write(&order(1, 10), &upsert()).wait().unwrap().version;
        client.kv().put(b"b", b"k", b"v", &PutOptions::default(), None).wait().unwrap();
        let absent = PutOptions { condition: Condition::Absent, ..PutOptions::default() };
        let insert = WriteOptions { mode: WriteMode::Insert, ..upsert() };
        type Spoil<'s> = &'s dyn Fn(&mut client::Batch);
        let spoils: [(Spoil<'_>, ErrorKind); 6] = [
            (&|batch| _ = batch.write(&orders, &order(1, 1), &insert), ErrorKind::Conflict),
            (&|batch| _ = batch.put(b"b", b"k", b"w", &absent), ErrorKind::Conflict),
            (&|batch| _ = batch.delete(b"b", b"none", Condition::Present), ErrorKind::Conflict),
            (&|batch| _ = batch.take_version(&orders, &Wanted::id(9), version), ErrorKind::Conflict),
            (&|batch| _ = batch.change(&orders, &Wanted::id(1), &[], &upsert()), ErrorKind::Invalid),
            (&|batch| _ = batch.add_points(&[]), ErrorKind::Invalid),
        ];
        for (number, (spoil, kind)) in spoils.into_iter().enumerate() {
            let mut batch = client.batch();
            let _ = batch.write(&orders, &order(5, 5), &upsert());
            let _ = batch.put(b"b", b"other", b"v", &PutOptions::default());
            spoil(&mut batch);
            let refused = batch.commit().wait().map(|done| done.position);
            assert_eq!(refused.map_err(|error| error.kind()), Err(kind), "{number}");
        }
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 1);
        assert_eq!(client.kv().get_value(b"b", b"other").wait().unwrap(), None);
        // Nothing stays locked.
        let mut batch = client.batch();
        let taken = batch.take_version(&orders, &Wanted::id(1), version);
        let mut done = batch.commit().wait().unwrap();
        assert!(done.take(taken).unwrap().is_some());
    });
}

#[test]
fn what_belongs_to_no_batch_is_refused() {
    both(|client| {
        let orders = orders(client);
        let (mut one, mut other) = (client.batch(), client.batch());
        let first = one.count(&orders, &Wanted::all());
        let second = other.take(&orders, &Wanted::all());
        let mut done = one.commit().wait().unwrap();
        assert_eq!(done.take(second).unwrap_err().kind(), ErrorKind::Invalid);
        let _ = first;
        let empty = client.batch().commit().wait();
        assert!(empty.is_ok(), "nothing to do is done");
    });
}

#[test]
fn many_are_taken_in_a_batch_or_none() {
    both(|client| {
        let orders = orders(client);
        for id in 0..20 {
            orders.write(&order(id, id), &upsert()).wait().unwrap();
        }
        let small = Wanted::query("total < ?", &[10.into()]).unwrap();
        for (refused, left) in [(true, 20), (false, 13)] {
            let mut batch = client.batch().durability(Durability::Synced);
            let taken = batch.take_many(&orders, &small, 7);
            if refused {
                let _ = batch.delete(b"b", b"none", Condition::Present);
            }
            match batch.commit().wait() {
                Ok(mut done) => assert_eq!(done.take(taken).unwrap().len(), 7),
                Err(error) => assert!(refused && error.kind() == ErrorKind::Conflict, "{error}"),
            }
            assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), left);
        }
    });
}

#[test]
fn many_are_read_changed_selected_renewed_and_cleared_in_a_batch() {
    both(|client| {
        let orders = orders(client);
        for id in 0..6 {
            orders.write(&order(id, 10 * id), &upsert()).wait().unwrap();
        }
        let small = Wanted::query("total < ?", &[25.into()]).unwrap();
        let more = [Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() }];
        let mut batch = client.batch();
        let _ = batch.write(&orders, &order(6, 60), &upsert());
        let changed = batch.change_many(&orders, &small, &more, &upsert());
        let read = batch.read_many(&orders, &small, 2);
        let all = batch.read_many(&orders, &Wanted::all(), usize::MAX);
        let none = batch.read_many(&orders, &Wanted::all(), 0);
        let sum = batch.select(&orders, "SELECT SUM(total) AS sum FROM orders WHERE total > ?", &[(-1).into()]);
        let renewed = batch.renew(&orders, &Wanted::id(1), Lease::For(Duration::from_secs(3600)));
        let absent = batch.renew(&orders, &Wanted::id(77), Lease::Forever);
        let cleared = batch.clear(&orders, &Wanted::query("total > 35", &[]).unwrap());
        let left = batch.count(&orders, &Wanted::all());
        let mut done = batch.commit().wait().unwrap();
        let position = done.position;
        assert_eq!(done.take(changed).unwrap(), 3);
        assert_eq!(done.take(read).unwrap().len(), 2);
        assert_eq!(done.take(all).unwrap().len(), 7);
        assert_eq!(done.take(none).unwrap(), []);
        // 1, 11, 21, 30, 40, 50, 60.
        assert_eq!(number(&done.take(sum).unwrap()[0], "sum"), 213);
        assert!(done.take(renewed).unwrap());
        assert!(!done.take(absent).unwrap());
        assert_eq!(done.take(cleared).unwrap(), 3);
        assert_eq!(done.take(left).unwrap(), 4);
        let one = orders.read(&Wanted::id(1), &ReadOptions::default()).wait().unwrap().unwrap();
        assert_eq!((number(&one.document, "total"), one.version), (11, position));
        assert!(one.expires_ms.is_some(), "its lease ends in an hour");
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 4);
    });
}

#[test]
fn what_cannot_be_done_to_many_undoes_the_batch() {
    both(|client| {
        let orders = orders(client);
        for id in 0..3 {
            orders.write(&order(id, id), &upsert()).wait().unwrap();
        }
        let version = orders.read(&Wanted::id(0), &ReadOptions::default()).wait().unwrap().unwrap().version;
        let more = [Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() }];
        let with_version = WriteOptions { version: Some(version), ..upsert() };
        let mut holder = client.begin(&TransactionOptions::default()).wait().unwrap();
        assert!(holder.take(&orders, &Wanted::id(2), &ReadOptions::default()).wait().unwrap().is_some());
        type Spoil<'s> = &'s dyn Fn(&mut client::Batch);
        let spoils: [(Spoil<'_>, ErrorKind); 7] = [
            (&|batch| _ = batch.change_many(&orders, &Wanted::all(), &[], &upsert()), ErrorKind::Invalid),
            (&|batch| _ = batch.change_many(&orders, &Wanted::all(), &more, &with_version), ErrorKind::Invalid),
            (&|batch| _ = batch.change_many(&orders, &Wanted::all(), &more, &upsert()), ErrorKind::Timeout),
            (&|batch| _ = batch.renew(&orders, &Wanted::id(2), Lease::Forever), ErrorKind::Timeout),
            (&|batch| _ = batch.renew(&orders, &Wanted::all(), Lease::Forever), ErrorKind::Invalid),
            (&|batch| _ = batch.select(&orders, "SELECT FROM WHERE", &[]), ErrorKind::Invalid),
            (
                &|batch| _ = batch.clear(&orders, &Wanted::query("1 = 1 ORDER BY total", &[]).unwrap()),
                ErrorKind::Invalid,
            ),
        ];
        for (number, (spoil, kind)) in spoils.into_iter().enumerate() {
            let mut batch = client.batch();
            let _ = batch.write(&orders, &order(0, 100), &upsert());
            spoil(&mut batch);
            let refused = batch.commit().wait().map(|done| done.position);
            assert_eq!(refused.map_err(|error| error.kind()), Err(kind), "{number}");
        }
        // Those that a transaction has locked are passed over.
        let mut batch = client.batch();
        let (read, cleared) = (batch.read_many(&orders, &Wanted::all(), 10), batch.clear(&orders, &Wanted::all()));
        let mut done = batch.commit().wait().unwrap();
        let read = done.take(read).unwrap();
        assert_eq!(read.iter().map(|entry| number(&entry.document, "total")).sum::<i64>(), 1, "nothing was changed");
        assert_eq!((read.len(), done.take(cleared).unwrap()), (2, 2));
        holder.abort().wait().unwrap();
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 1);
    });
}
