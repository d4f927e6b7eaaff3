//! Transactions over durable and volatile types together, at random and at the same time: models of what they come to.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Random;
use base::memory::Disk;
use holdfast::space::{Order, Path, ReadLock, ValueRef};
use holdfast::{ErrorKind, PutOptions, Transaction};

use super::volatile::{add, commit, contents, declare, sessions, total};
use super::*;

/// Does something at random to one entry of both types within the transaction, and to what they should be.
fn happens(random: &mut Random, transaction: &mut Transaction, both: [&Entries; 2], model: &mut BTreeMap<i64, i64>) {
    let number = i64::try_from(random.below(12)).unwrap();
    let by = i64::try_from(random.below(50)).unwrap();
    let (what, wanted) = (random.below(9), Wanted::id(number));
    for entries in both {
        let mut within = entries.within(transaction);
        match what {
            0 | 1 => drop(within.write(&order(number, "ada", by), &upsert()).unwrap()),
            2 => {
                let taken = within.take(&wanted, &now()).unwrap();
                assert_eq!(taken.map(|it| total(&it)), model.get(&number).copied());
            }
            3 => {
                let changed = within.change(&wanted, &[add(by)], &upsert()).unwrap();
                assert_eq!(changed.map(|it| total(&it.before)), model.get(&number).copied());
            }
            4 => {
                let lock = [ReadLock::None, ReadLock::Shared, ReadLock::Exclusive][usize::try_from(by % 3).unwrap()];
                let read = within.read(&wanted, lock, &now()).unwrap();
                assert_eq!(read.map(|it| total(&it)), model.get(&number).copied());
            }
            5 => {
                let many = Wanted::query("total < ?", &[by.into()]).unwrap();
                let expected = model.values().filter(|total| **total < by).count() as u64;
                assert_eq!(within.count(&many).unwrap(), expected);
                assert_eq!(within.change_many(&many, &[add(100)], &upsert(), 100).unwrap(), expected);
            }
            6 => {
                let many = Wanted::query("total < ?", &[by.into()]).unwrap();
                let read = within.read_many(&many, ReadLock::Shared, 100).unwrap();
                let found: BTreeMap<i64, i64> = read.iter().map(|entry| (id(entry), total(entry))).collect();
                let expected = model.iter().filter(|(_, total)| **total < by);
                assert_eq!(found, expected.map(|(id, total)| (*id, *total)).collect());
            }
            7 => {
                let name = entries.definition().name.clone();
                let sql = format!("SELECT id, total FROM {name} WHERE total >= ? ORDER BY total DESC, id LIMIT 3");
                let rows = within.select(&sql, &[by.into()]).unwrap();
                let mut expected: Vec<_> = model.iter().filter(|(_, total)| **total >= by).collect();
                expected.sort_by_key(|(id, total)| (-**total, **id));
                expected.truncate(3);
                let expected = expected.iter().map(|(id, total)| order(**id, "ada", **total));
                let bare = |row: &Document| ["id", "total"].map(|name| row.get(name).map(ValueRef::to_value));
                assert_eq!(rows.iter().map(bare).collect::<Vec<_>>(), expected.map(|it| bare(&it)).collect::<Vec<_>>());
            }
            _ => {
                let all = Wanted::query("total < ?", &[20.into()]).unwrap();
                let expected = model.values().filter(|total| **total < 20).count() as u64;
                assert_eq!(within.clear(&all, 100).unwrap(), expected);
            }
        }
    }
    match what {
        0 | 1 => drop(model.insert(number, by)),
        2 => drop(model.remove(&number)),
        3 => model.get_mut(&number).into_iter().for_each(|total| *total += by),
        5 => model.values_mut().filter(|total| **total < by).for_each(|total| *total += 100),
        8 => model.retain(|_, total| *total >= 20),
        _ => {}
    }
}

/// How a transaction ends.
#[derive(Clone, Copy)]
enum Ends {
    Commits,
    RolledBack,
    /// Somebody changed a key that it has read.
    Conflict,
    /// Its batch is larger than any may be.
    TooLarge,
}

/// What is durable is the model of what is not, and a map is that of both.
#[test]
fn a_transaction_over_both_kinds_of_types_happens_as_a_whole_or_not_at_all() {
    const TOO_LARGE: i64 = 6;
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let disk = Disk::new(seed);
        let store = Store::open_in(&world(&disk, &MemoryLedgers::new()), FilePath::new("/store"), options()).unwrap();
        let (orders, sessions) = (orders(&store), sessions(&store));
        let large = Document::from_pairs([("id", Value::from(1)), ("text", "x".repeat(7_000).into())]);
        let mut committed = BTreeMap::new();
        for round in 0..150 {
            let mut model = committed.clone();
            let mut transaction = store.begin();
            let ends = [Ends::Commits, Ends::Commits, Ends::RolledBack, Ends::Conflict, Ends::TooLarge];
            let ends = ends[usize::try_from(random.below(5)).unwrap()];
            if let Ends::Conflict = ends {
                transaction.get(b"b", b"k").unwrap();
            }
            for _ in 0..random.below(12) {
                happens(&mut random, &mut transaction, [&orders, &sessions], &mut model);
                assert_eq!((contents(&orders), contents(&sessions)), (committed.clone(), committed.clone()));
            }
            match ends {
                Ends::Commits => {
                    commit(transaction).unwrap();
                    committed = model;
                }
                Ends::RolledBack => drop(transaction),
                Ends::Conflict => {
                    store.kv().put(b"b", b"k", &[round], &PutOptions::default()).unwrap();
                    assert_eq!(commit(transaction).unwrap_err().kind(), ErrorKind::Conflict);
                }
                Ends::TooLarge => {
                    for number in 0..TOO_LARGE {
                        let large = large.with("id", Value::from(1000 + number));
                        orders.within(&mut transaction).write(&large, &upsert()).unwrap();
                    }
                    assert_eq!(commit(transaction).unwrap_err().kind(), ErrorKind::Limit);
                }
            }
            assert_eq!((contents(&orders), contents(&sessions)), (committed.clone(), committed.clone()));
            // What was locked is free, however it ended.
            for number in committed.keys() {
                let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..upsert() };
                sessions.change(&Wanted::id(*number), &[add(0)], &at_once).unwrap().unwrap();
            }
        }
    }
}

/// What some put in, others take in transactions of which some are rolled back: each is done with once, and in its order.
#[test]
fn of_what_transactions_take_of_a_volatile_type_nothing_is_lost_and_nothing_comes_twice() {
    const EACH: i64 = 150;
    let groups = Order::Groups(Path::parse("customer").unwrap());
    for (at, kind) in [Order::Any, Order::Fifo, groups].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), options()).unwrap();
        let is_in_order = kind != Order::Any;
        let queue = declare(&store, Definition { order: kind, ..Definition::new("shop", "queue") });
        let done = declare(&store, Definition::new("shop", "done"));
        let kept = orders(&store);
        std::thread::scope(|scope| {
            for writer in 0..2_i64 {
                let (store, queue) = (&store, &queue);
                scope.spawn(move || {
                    let customer = ["ada", "bob"][usize::try_from(writer).unwrap()];
                    for number in 0..EACH / 2 {
                        let mut transaction = store.begin();
                        for number in [2 * number, 2 * number + 1] {
                            let job = order(writer * EACH + number, customer, number);
                            queue.within(&mut transaction).write(&job, &upsert()).unwrap();
                        }
                        commit(transaction).unwrap();
                    }
                });
            }
            for taker in 0..3_u64 {
                let (store, queue, done, kept) = (&store, &queue, &done, &kept);
                scope.spawn(move || {
                    let mut random = Random::new(taker + 10 * at as u64);
                    // Others may be about to roll back what would be the last.
                    while done.count(&Wanted::all()).unwrap() < 2 * EACH as u64 {
                        let mut transaction = store.begin();
                        let taken = queue.within(&mut transaction).take(&Wanted::all(), &waits(20)).unwrap();
                        let Some(job) = taken else { continue };
                        done.within(&mut transaction).write(&job.document, &upsert()).unwrap();
                        // Some have a durable part.
                        if random.below(2) == 0 {
                            kept.within(&mut transaction).write(&job.document, &upsert()).unwrap();
                        }
                        if random.below(4) > 0 {
                            transaction.commit(Durability::Written).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(queue.count(&Wanted::all()).unwrap(), 0);
        let all = done.read_many(&Wanted::all(), 1000).unwrap();
        assert_eq!(ids(&all), (0..2 * EACH).collect());
        assert!(kept.count(&Wanted::all()).unwrap() > 0);
        // Of one group one transaction at a time has some, so they were committed in the order of writing.
        if is_in_order && at == 2 {
            for customer in ["ada", "bob"] {
                let mut of = done.read_many(&example(customer), 1000).unwrap();
                of.sort_by_key(|entry| entry.version);
                assert!(of.is_sorted_by_key(total), "{customer}");
            }
        }
    }
}

/// Money goes from accounts in memory to durable ones and back; who reads both under locks sees all of it, always.
#[test]
fn transactions_over_both_kinds_of_types_serialise() {
    const ACCOUNTS: i64 = 4;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (orders, sessions) = (orders(&store), sessions(&store));
    for number in 0..ACCOUNTS {
        orders.write(&order(number, "ada", 100), &upsert()).unwrap();
        sessions.write(&order(number, "ada", 100), &upsert()).unwrap();
    }
    let is_retried = |error: &holdfast::Error| matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Timeout);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (store, orders, sessions, done) = (&store, &orders, &sessions, &done);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..200 {
                    let mut account = || Wanted::id(i64::try_from(random.below(ACCOUNTS as u64)).unwrap());
                    let (from, to) = (account(), account());
                    let by = i64::try_from(random.below(9)).unwrap();
                    let [first, second] = if random.below(2) == 0 { [orders, sessions] } else { [sessions, orders] };
                    let moved = (|| {
                        let mut transaction = store.begin();
                        first.within(&mut transaction).change(&from, &[add(-by)], &upsert())?;
                        second.within(&mut transaction).change(&to, &[add(by)], &upsert())?;
                        transaction.commit(Durability::Written)
                    })();
                    match moved {
                        Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(is_retried(&error), "{error}"),
                    }
                }
            });
        }
        for _ in 0..200 {
            let mut transaction = store.begin();
            let mut sum = 0;
            let all = (0..ACCOUNTS).flat_map(|number| [(&orders, number), (&sessions, number)]);
            let read = all.map(|(entries, number)| {
                let lock = ReadOptions { if_exists: true, ..waits(20_000) };
                let read = entries.within(&mut transaction).read(&Wanted::id(number), ReadLock::Shared, &lock)?;
                sum += read.as_ref().map(total).unwrap();
                Ok(())
            });
            match read.collect::<holdfast::Result<()>>() {
                Ok(()) => assert_eq!(sum, 2 * 100 * ACCOUNTS),
                Err(error) => assert!(is_retried(&error), "{error}"),
            }
        }
    });
    assert!(done.into_inner() > 100);
    let sum: i64 = contents(&orders).values().chain(contents(&sessions).values()).sum();
    assert_eq!(sum, 2 * 100 * ACCOUNTS);
}
