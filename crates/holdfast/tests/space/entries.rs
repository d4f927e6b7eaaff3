//! Entries: written, found, taken, waited for, in order, with leases and limits.

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast::ErrorKind;
use holdfast::space::{AtLimit, Lease, Order, Storage, WriteMode};

use holdfast::MemoryLedgers;

use super::*;

#[test]
fn entries_are_found_by_id_and_example_and_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let digest = {
        let store = Store::open(dir.path(), options()).unwrap();
        let orders = orders(&store);
        for number in 0..50 {
            orders.write(&order(number, if number % 3 == 0 { "ada" } else { "bob" }, number * 10), &upsert()).unwrap();
        }
        let written = orders.write(&order(7, "eve", 1), &upsert()).unwrap();
        assert_eq!(written.previous.map(|entry| id(&entry)), Some(7));
        assert_eq!(orders.take(&Wanted::id(9), &now()).unwrap().map(|entry| id(&entry)), Some(9));
        assert_eq!(orders.take(&Wanted::id(9), &now()).unwrap(), None);
        assert_eq!(orders.count(&Wanted::all()).unwrap(), 49);
        assert_eq!(orders.explain(&example("eve")).unwrap().iter().map(|plan| plan.candidates).sum::<u64>(), 1);
        store.digest().unwrap()
    };
    for round in 0..2 {
        let store = Store::open(dir.path(), options()).unwrap();
        assert_eq!(store.digest().unwrap(), digest, "round {round}");
        let orders = store.space("shop").entries("order").unwrap();
        assert_eq!(ids(&orders.read_many(&example("eve"), 100).unwrap()), BTreeSet::from([7]));
        assert_eq!(orders.count(&example("ada")).unwrap(), 16);
    }
}

#[test]
fn a_killed_process_loses_no_entry_whether_or_not_there_is_a_snapshot() {
    let disk = base::memory::Disk::new(1);
    let ledgers = MemoryLedgers::new();
    let open = || Store::open_in(&world(&disk, &ledgers), std::path::Path::new("/store"), options()).unwrap();
    let store = open();
    let entries = orders(&store);
    let mut digest = 0;
    for number in 0..3000 {
        let written = entries.write(&order(number, "ada", number), &upsert()).unwrap();
        if number % 4 == 0 {
            entries.take(&Wanted::id(number), &now()).unwrap();
        }
        if number % 500 == 0 {
            store.step().unwrap();
        }
        assert!(written.previous.is_none());
        digest = store.digest().unwrap();
    }
    let snapshots = disk.inventory().into_iter().filter(|(path, bytes)| path.ends_with("0000.snap") && *bytes > 1000);
    assert_eq!(snapshots.count(), 1, "there is a snapshot that is not empty");
    disk.kill_process();
    ledgers.kill_process();
    let other = open();
    assert_eq!(other.digest().unwrap(), digest);
    assert_eq!(other.space("shop").entries("order").unwrap().count(&Wanted::all()).unwrap(), 2250);
    std::mem::forget(store);
}

#[test]
fn write_modes_and_versions_say_what_may_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let with = |mode| WriteOptions { mode, ..upsert() };
    let kind = |result: holdfast::Result<_>| result.map(|_: holdfast::space::Written| ()).map_err(|error| error.kind());
    assert_eq!(kind(orders.write(&order(1, "ada", 1), &with(WriteMode::Update))), Err(ErrorKind::Conflict));
    let first = orders.write(&order(1, "ada", 1), &with(WriteMode::Insert)).unwrap();
    assert_eq!(kind(orders.write(&order(1, "ada", 1), &with(WriteMode::Insert))), Err(ErrorKind::Conflict));
    let part = Document::from_pairs([("id", Value::from(1)), ("total", 2.into())]);
    let second = orders.write(&part, &with(WriteMode::Partial)).unwrap();
    let entry = orders.read(&Wanted::id(1), &now()).unwrap().unwrap();
    assert_eq!((entry.document, entry.version), (order(1, "ada", 2), second.version));
    let stale = WriteOptions { version: Some(first.version), ..upsert() };
    assert_eq!(kind(orders.write(&order(1, "eve", 3), &stale)), Err(ErrorKind::Conflict));
    let fresh = WriteOptions { version: Some(second.version), ..upsert() };
    orders.write(&order(1, "eve", 3), &fresh).unwrap();
    let stale = ReadOptions { version: Some(second.version), ..now() };
    assert_eq!(orders.take(&Wanted::id(1), &stale).unwrap_err().kind(), ErrorKind::Conflict);
    let made = orders.write(&Document::from_pairs([("customer", "zoe")]), &upsert()).unwrap();
    assert!(orders.read(&Wanted::id(made.id), &now()).unwrap().is_some(), "an id was made");
    let wrong = orders.write(&Document::from_pairs([("id", 1.5)]), &upsert()).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid);
}

/// Sixty-four takers and four writers: each entry goes to one taker, none is left, nobody waits for what is not to come.
#[test]
fn each_entry_goes_to_one_taker() {
    const TAKERS: usize = 64;
    const EACH: i64 = 250;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let left = AtomicU64::new(4 * EACH as u64);
    let taken: Vec<i64> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..TAKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    while left.load(Ordering::Acquire) > 0 {
                        if let Some(entry) = orders.take(&example("ada"), &waits(20)).unwrap() {
                            left.fetch_sub(1, Ordering::AcqRel);
                            mine.push(id(&entry));
                        }
                    }
                    mine
                })
            })
            .collect();
        for writer in 0..4 {
            let orders = &orders;
            scope.spawn(move || {
                for number in 0..EACH {
                    orders.write(&order(writer * EACH + number, "ada", 1), &upsert()).unwrap();
                }
            });
        }
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    assert_eq!(taken.len() as i64, 4 * EACH);
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len() as i64, 4 * EACH);
    assert_eq!((orders.count(&Wanted::all()).unwrap(), orders.waiters()), (0, 0));
}

#[test]
fn who_waits_is_served_in_the_order_of_coming() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    std::thread::scope(|scope| {
        let mut takers = Vec::new();
        for number in 0..5 {
            takers.push(scope.spawn(|| orders.take(&example("ada"), &waits(60_000)).unwrap().map(|entry| id(&entry))));
            while orders.waiters() <= number {
                std::thread::yield_now();
            }
        }
        // One who waits for something else is not in the way of anybody.
        let reader = scope.spawn(|| orders.read(&example("bob"), &waits(60_000)).unwrap().map(|entry| id(&entry)));
        while orders.waiters() <= 5 {
            std::thread::yield_now();
        }
        for number in 0..5 {
            orders.write(&order(number, "ada", 0), &upsert()).unwrap();
        }
        let got: Vec<Option<i64>> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
        assert_eq!(got, (0..5).map(Some).collect::<Vec<_>>());
        orders.write(&order(9, "bob", 0), &upsert()).unwrap();
        assert_eq!(reader.join().unwrap(), Some(9));
    });
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 1, "what was read is still there");
}

#[test]
fn a_queue_is_taken_in_the_order_of_writing_also_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = Store::open(dir.path(), options()).unwrap();
        let definition = Definition { order: Order::Fifo, ..Definition::new("shop", "job") };
        let jobs = store.space("shop").declare(definition).unwrap();
        for number in [5, 3, 9, 1] {
            jobs.write(&order(number, "ada", 0), &upsert()).unwrap();
        }
        // An update does not change the place in the queue.
        jobs.write(&order(5, "eve", 0), &upsert()).unwrap();
        assert_eq!(jobs.take(&Wanted::all(), &now()).unwrap().map(|job| id(&job)), Some(5));
    }
    let store = Store::open(dir.path(), options()).unwrap();
    let jobs = store.space("shop").entries("job").unwrap();
    jobs.write(&order(2, "ada", 0), &upsert()).unwrap();
    let taken = jobs.take_many(&Wanted::all(), 10, &now()).unwrap();
    assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), [3, 9, 1, 2]);
}

#[test]
fn a_lease_ends_neither_early_nor_never() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let lease = |ms| WriteOptions { lease: Lease::For(Duration::from_millis(ms)), ..upsert() };
    let before = store.now_ms();
    orders.write(&order(1, "ada", 0), &lease(150)).unwrap();
    orders.write(&order(2, "ada", 0), &lease(60_000)).unwrap();
    orders.write(&order(3, "ada", 0), &lease(20)).unwrap();
    assert!(orders.renew(&Wanted::id(3), Lease::Forever, None).unwrap());
    assert!(!orders.renew(&Wanted::id(4), Lease::Forever, None).unwrap());
    while orders.count(&Wanted::all()).unwrap() > 2 {
        std::thread::yield_now();
    }
    assert!(store.now_ms() >= before + 150);
    while orders.usage().entries > 2 {
        std::thread::yield_now();
    }
    assert_eq!(ids(&orders.read_many(&Wanted::all(), 9).unwrap()), BTreeSet::from([2, 3]));
}

#[test]
fn a_type_keeps_to_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let limited = |name: &str, at_limit| {
        let definition =
            Definition { memory_bytes_max: 8 << 10, at_limit, order: Order::Fifo, ..Definition::new("s", name) };
        store.space("s").declare(definition).unwrap()
    };
    let (refuses, evicts) = (limited("a", AtLimit::Refuse), limited("b", AtLimit::Evict));
    let outcome: Vec<_> = (0..200).map(|number| refuses.write(&order(number, "x", 0), &upsert())).collect();
    let full = outcome.iter().position(Result::is_err).unwrap();
    assert_eq!(outcome[full].as_ref().unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(refuses.count(&Wanted::all()).unwrap(), full as u64);
    for number in 0..200 {
        evicts.write(&order(number, "x", 0), &upsert()).unwrap();
        assert!(evicts.read(&Wanted::id(0), &now()).unwrap().is_some(), "what is used stays");
    }
    let (usage, count) = (evicts.usage(), evicts.count(&Wanted::all()).unwrap());
    assert!(usage.bytes <= 8 << 10 && count > 10, "{usage:?}, {count}");
}

#[test]
fn volatile_entries_are_gone_with_the_process_and_durable_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = Store::open(dir.path(), options()).unwrap();
        let definition = Definition { storage: Storage::Volatile, ..Definition::new("shop", "session") };
        let sessions = store.space("shop").declare(definition).unwrap();
        let first = sessions.write(&order(1, "ada", 0), &upsert()).unwrap();
        let second = sessions.write(&order(1, "ada", 0), &upsert()).unwrap();
        assert!(second.version > first.version && store.watermarks().appended < first.version);
        assert_eq!(sessions.count(&Wanted::all()).unwrap(), 1);
    }
    let store = Store::open(dir.path(), options()).unwrap();
    assert_eq!(store.space("shop").entries("session").unwrap().count(&Wanted::all()).unwrap(), 0);
}

#[test]
fn a_type_is_changed_and_dropped_while_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("shop");
    let plain = space.declare(Definition::new("shop", "order")).unwrap();
    for number in 0..100 {
        plain.write(&order(number, "ada", number % 7), &upsert()).unwrap();
    }
    let wanted = Wanted::template(&Document::from_pairs([("total", 3)]));
    assert_eq!(plain.explain(&wanted).unwrap().iter().map(|plan| plan.candidates).sum::<u64>(), 100);
    let found = ids(&plain.read_many(&wanted, 100).unwrap());
    let indexed = space.declare(Definition::new("shop", "order").index("total", IndexKind::Hash).unwrap()).unwrap();
    assert_eq!(indexed.explain(&wanted).unwrap().iter().map(|plan| plan.candidates).sum::<u64>(), found.len() as u64);
    assert_eq!(ids(&plain.read_many(&wanted, 100).unwrap()), found, "an index changes no answer");
    let moved = Definition { order: Order::Fifo, ..Definition::new("shop", "order") };
    assert_eq!(space.declare(moved).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| plain.take(&Wanted::id(1000), &waits(60_000)));
        while plain.waiters() == 0 {
            std::thread::yield_now();
        }
        assert!(space.drop_type("order").unwrap());
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    });
    assert_eq!(plain.count(&Wanted::all()).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(space.declare(Definition::new("shop", "order")).unwrap().count(&Wanted::all()).unwrap(), 0);
}

#[test]
fn a_backup_has_the_entries() {
    let (dir, backup, restored) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(dir.path(), options()).unwrap();
    let entries = orders(&store);
    for number in 0..40 {
        entries.write(&order(number, "ada", number), &upsert()).unwrap();
    }
    store.backup(backup.path().join("b")).unwrap();
    let digest = store.digest().unwrap();
    entries.write(&order(99, "late", 0), &upsert()).unwrap();
    let how = holdfast::Restore::default();
    holdfast::restore(backup.path().join("b"), restored.path().join("r"), how, &mut |_| ()).unwrap();
    let other = Store::open(restored.path().join("r"), options()).unwrap();
    assert_eq!(other.digest().unwrap(), digest);
}

/// A first declaration failed between two snapshots. The next one took the folder for complete, and after a power cut the
/// store did not know that it had a space (simulation, seed 15192633527106127006).
#[test]
fn a_first_declaration_that_fails_half_way_costs_no_entry_later() {
    use base::memory::{Disk, Fault};

    let mut failed = 0;
    for after in 0..80 {
        let disk = Disk::new(after);
        let ledgers = MemoryLedgers::new();
        let open = || Store::open_in(&world(&disk, &ledgers), std::path::Path::new("/store"), options()).unwrap();
        let declare = |store: &Store| store.space("shop").declare(Definition::new("shop", "order"));
        let mut store = open();
        disk.plan(after, Fault::Full);
        if declare(&store).is_err() {
            failed += 1;
            if after % 2 == 0 {
                disk.kill_process();
                ledgers.kill_process();
                store = open();
            }
        }
        disk.clear_plan();
        let entries = declare(&store).unwrap();
        let synced = WriteOptions { durability: Some(Durability::Synced), ..upsert() };
        entries.write(&order(1, "ada", 1), &synced).unwrap();
        disk.power_cut();
        disk.power_on();
        ledgers.kill_process();
        let again = open();
        assert_eq!(again.space("shop").entries("order").unwrap().count(&Wanted::all()).unwrap(), 1, "fault at {after}");
        std::mem::forget(store);
    }
    assert!(failed > 20, "only {failed} declarations failed");
}

#[test]
fn waiting_is_ended_from_elsewhere_and_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let cancel = holdfast::space::Cancel::new();
    let options = ReadOptions { cancel: Some(cancel.clone()), ..waits(600_000) };
    std::thread::scope(|scope| {
        let takers: Vec<_> = (0..3).map(|_| scope.spawn(|| orders.take(&Wanted::all(), &options).unwrap())).collect();
        while orders.waiters() < 3 {
            std::thread::yield_now();
        }
        cancel.cancel();
        assert!(takers.into_iter().all(|taker| taker.join().unwrap().is_none()));
    });
    assert_eq!((cancel.is_canceled(), orders.waiters()), (true, 0));
    assert!(orders.take(&Wanted::all(), &options).unwrap().is_none(), "who comes later does not wait");
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    assert!(orders.take(&Wanted::all(), &options).unwrap().is_some(), "what is there is taken");
}

#[test]
fn lost_snapshots_are_told_and_ids_are_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let made = {
        let store = Store::open(dir.path(), options()).unwrap();
        let far = orders(&store).write(&order(i64::MAX / 2, "ada", 0), &upsert()).unwrap();
        assert_eq!(far.id, Value::from(i64::MAX / 2));
        drop(store);
        let store = Store::open(dir.path(), options()).unwrap();
        let entries = store.space("shop").entries("order").unwrap();
        entries.write(&Document::from_pairs([("customer", "bob")]), &upsert()).unwrap().id
    };
    assert_eq!(made, Value::from(i64::MAX / 2 + 1), "later than all that are there, whatever the clock says");
    for end in ["snap", "old"] {
        let path = dir.path().join("space").join(format!("0003.{end}"));
        base::write_new_file(&base::OsFiles, &path, b"rotten").unwrap();
    }
    let store = Store::open(dir.path(), options()).unwrap();
    let damage = store.stats().damage;
    assert!(damage.len() == 1 && damage[0].path.ends_with("0003.snap"), "{damage:?}");
}

/// An update of a backup that fails after the snapshots were copied left newer ones beside the manifest of before: restored, the
/// store passed over new batches when it replayed them.
#[test]
fn a_backup_that_fails_half_way_restores_what_it_was() {
    use base::memory::{Disk, Fault};

    let (mut failed, mut whole) = (0, 0);
    for after in (0..600).step_by(5) {
        let disk = Disk::new(after);
        let open = |dir: &str, ledgers: &MemoryLedgers| {
            Store::open_in(&world(&disk, ledgers), std::path::Path::new(dir), options()).unwrap()
        };
        let (ledgers, others) = (MemoryLedgers::new(), MemoryLedgers::new());
        let store = open("/store", &ledgers);
        let entries = orders(&store);
        (0..10).for_each(|number| drop(entries.write(&order(number, "ada", 0), &upsert()).unwrap()));
        store.backup("/backup").unwrap();
        (10..20).for_each(|number| drop(entries.write(&order(number, "ada", 0), &upsert()).unwrap()));
        store.close().unwrap();
        drop((entries, store));
        let store = open("/store", &ledgers);
        disk.plan(after, Fault::Full);
        let made = store.backup("/backup").is_ok();
        disk.clear_plan();
        let paths = (std::path::Path::new("/backup"), std::path::Path::new("/restored"));
        holdfast::restore_in(&disk, paths, holdfast::Restore::default(), &mut |_| ()).unwrap();
        let restored = open("/restored", &others);
        let entries = restored.space("shop").entries("order").unwrap();
        let count = entries.count(&Wanted::all()).unwrap();
        assert!(count == 20 || (count == 10 && !made), "fault at {after}: {count}, {made}");
        (0..5).for_each(|number| drop(entries.write(&order(100 + number, "eve", 0), &upsert()).unwrap()));
        disk.kill_process();
        others.kill_process();
        let again = open("/restored", &others);
        let count_now = again.space("shop").entries("order").unwrap().count(&Wanted::all()).unwrap();
        assert_eq!(count_now, count + 5, "fault at {after}");
        failed += u32::from(!made);
        whole += u32::from(made);
        std::mem::forget((store, restored));
    }
    assert!(failed > 20 && whole > 10, "{failed} failed, {whole} did not");
}
