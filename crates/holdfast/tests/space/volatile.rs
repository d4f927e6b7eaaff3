//! Entries of volatile types within transactions and tasks: all or nothing with what is durable, and without the disk where nothing is.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use base::memory::Disk;
use holdfast::space::{
    AtLimit, Change, Hears, Lease, Listen, Listener, NoticeKind, Order, Path, Placement, ReadLock, Storage, ValueRef,
};
use holdfast::{ErrorKind, PutOptions, Transaction};

use super::*;

pub(super) fn declare(store: &Store, definition: Definition) -> Entries {
    store.space("shop").declare(Definition { storage: Storage::Volatile, ..definition }).unwrap()
}

pub(super) fn sessions(store: &Store) -> Entries {
    let definition = Definition::new("shop", "session").index("customer", IndexKind::Hash).unwrap();
    declare(store, definition.index("total", IndexKind::Ordered).unwrap())
}

pub(super) fn add(by: i64) -> Change {
    Change::Increment { path: Path::parse("total").unwrap(), by: by.into() }
}

/// Ids and totals of all that is there.
pub(super) fn contents(entries: &Entries) -> BTreeMap<i64, i64> {
    let all = entries.read_many(&Wanted::all(), 10_000).unwrap();
    all.iter().map(|entry| (id(entry), total(entry))).collect()
}

pub(super) fn total(entry: &holdfast::space::Entry) -> i64 {
    match entry.document.get("total") {
        Some(ValueRef::I64(total)) => total,
        other => panic!("no total: {other:?}"),
    }
}

pub(super) fn commit(transaction: Transaction) -> holdfast::Result<holdfast::Committed> {
    transaction.commit(Durability::Synced)
}

fn hear(listener: &mut Listener) -> Vec<(NoticeKind, i64)> {
    let heard = std::iter::from_fn(|| listener.next(Duration::ZERO).unwrap());
    heard
        .map(|notice| {
            let document = notice.after.or(notice.before).unwrap();
            let Some(ValueRef::I64(id)) = document.get("id") else { panic!("{document:?}") };
            (notice.kind, id)
        })
        .collect()
}

#[test]
fn what_is_volatile_alone_is_in_no_journal_and_waits_for_no_disk() {
    let disk = Disk::new(7);
    let store = Store::open_in(&world(&disk, &MemoryLedgers::new()), FilePath::new("/store"), options()).unwrap();
    let (orders, sessions) = (orders(&store), sessions(&store));
    // Nothing that is written behind this is ever on the disk.
    let (operations, appended, batches) = (disk.operations(), store.watermarks().appended, store.stats().batches);
    let mut transaction = store.begin();
    let mut within = sessions.within(&mut transaction);
    for number in 0..20 {
        within.write(&order(number, "ada", number), &upsert()).unwrap();
    }
    assert_eq!(within.take(&Wanted::id(3), &now()).unwrap().map(|it| id(&it)), Some(3));
    assert_eq!(within.count(&Wanted::all()).unwrap(), 19);
    assert_eq!(sessions.count(&Wanted::all()).unwrap(), 0);
    // What it reads of durable types is in no way of that.
    assert_eq!(orders.within(&mut transaction).read(&Wanted::id(1), ReadLock::None, &now()).unwrap(), None);
    let committed = commit(transaction).unwrap();
    assert_eq!(sessions.count(&Wanted::all()).unwrap(), 19);
    let sum = store.space("shop").execute(&5.into(), Some(Durability::Synced), |task| {
        let before = task.get("session", 5)?.map(|it| total(&it));
        task.change("session", 5, &[add(10)])?;
        Ok(before)
    });
    assert_eq!(sum.unwrap(), Some(5));
    assert_eq!(sessions.read(&Wanted::id(5), &now()).unwrap().map(|it| total(&it)), Some(15));
    let all = store.space("shop").execute_all(
        Some(Durability::Synced),
        |task| {
            let found = task.read("session", &Wanted::all(), 100)?;
            found.iter().try_for_each(|entry| task.take("session", id(entry)).map(drop))?;
            Ok(found.len())
        },
        |a, b| a + b,
    );
    assert_eq!((all.unwrap(), sessions.count(&Wanted::all()).unwrap()), (19, 0));
    assert_eq!((store.watermarks().appended, store.stats().batches), (appended, batches));
    assert_eq!(disk.operations(), operations);
    assert!(committed.position < appended, "it is no version of what is in no journal");
}

#[test]
fn versions_of_volatile_entries_are_their_own_and_hold_within_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (orders, sessions) = (orders(&store), sessions(&store));
    let first = sessions.write(&order(1, "ada", 0), &upsert()).unwrap().version;
    let mut transaction = store.begin().joining();
    let at = |version| WriteOptions { version: Some(version), ..upsert() };
    let mut within = sessions.within(&mut transaction);
    assert_eq!(within.read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().map(|it| it.version), Some(first));
    within.write(&order(1, "ada", 1), &at(first)).unwrap();
    assert_eq!(within.write(&order(1, "ada", 2), &at(first)).unwrap_err().kind(), ErrorKind::Conflict);
    within.write(&order(2, "ada", 1), &upsert()).unwrap();
    orders.within(&mut transaction).write(&order(1, "ada", 1), &upsert()).unwrap();
    let mut exclusive = store.exclusive(&holdfast::Scope::Keys(&[])).unwrap();
    exclusive.join_spaces(&mut transaction);
    let position = exclusive.commit().unwrap().position;
    drop(transaction);
    let version = |entries: &Entries, id: i64| entries.read(&Wanted::id(id), &now()).unwrap().unwrap().version;
    let second = version(&sessions, 1);
    assert!(second > first && second > position);
    assert_eq!((version(&sessions, 2), version(&orders, 1)), (second, position));
    assert!(sessions.write(&order(1, "ada", 3), &at(second)).unwrap().version > second);
    // One that reads them rests on nothing.
    let mut reads = store.begin().joining();
    let found = sessions.within(&mut reads).read_many(&Wanted::all(), ReadLock::Exclusive, 10).unwrap();
    assert_eq!((found.len(), reads.seen()), (2, holdfast::Position::ZERO));
}

#[test]
fn after_a_crash_the_durable_part_is_there_and_the_volatile_one_is_not() {
    let (disk, ledgers) = (Disk::new(3), MemoryLedgers::new());
    let open = || Store::open_in(&world(&disk, &ledgers), FilePath::new("/store"), options()).unwrap();
    let store = open();
    let (orders, sessions) = (orders(&store), sessions(&store));
    let mut transaction = store.begin();
    for number in 0..10 {
        orders.within(&mut transaction).write(&order(number, "ada", number), &upsert()).unwrap();
        sessions.within(&mut transaction).write(&order(number, "ada", number), &upsert()).unwrap();
    }
    transaction.put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
    commit(transaction).unwrap();
    assert_eq!(contents(&orders), contents(&sessions));
    disk.power_cut();
    drop((orders, sessions, store));
    disk.power_on();
    let store = open();
    let of = |name: &str| contents(&store.space("shop").entries(name).unwrap()).len();
    assert_eq!((of("order"), of("session")), (10, 0));
    assert!(store.kv().get(b"b", b"k").unwrap().is_some());
    // And is written anew as if nothing had been.
    let sessions = store.space("shop").entries("session").unwrap();
    let mut transaction = store.begin();
    let insert = WriteOptions { mode: holdfast::space::WriteMode::Insert, ..upsert() };
    sessions.within(&mut transaction).write(&order(1, "ada", 0), &insert).unwrap();
    commit(transaction).unwrap();
    assert_eq!(sessions.count(&Wanted::all()).unwrap(), 1);
}

/// A disk that is full refuses the batch: what is volatile in it must not have happened either.
#[test]
fn a_commit_that_the_disk_refuses_leaves_nothing_of_it_in_memory() {
    let disk = Disk::new(5);
    let store = Store::open_in(&world(&disk, &MemoryLedgers::new()), FilePath::new("/store"), options()).unwrap();
    let (orders, sessions) = (orders(&store), sessions(&store));
    sessions.write(&order(1, "ada", 10), &upsert()).unwrap();
    let mut listener = sessions.listen(&Wanted::all(), Listen::default()).unwrap();
    disk.set_capacity(300 << 10);
    let text = |id: i64| order(id, "ada", 0).with("text", Value::from("x".repeat(6000)));
    let refused = (100..).find_map(|number| orders.write(&text(number), &upsert()).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    disk.set_capacity(disk.inventory().iter().map(|(_, bytes)| bytes).sum());
    let there = orders.count(&Wanted::all()).unwrap();
    let changes = |transaction: &mut Transaction| {
        let mut within = sessions.within(transaction);
        within.write(&order(2, "ada", 20), &upsert()).unwrap();
        within.change(&Wanted::id(1), &[add(1)], &upsert()).unwrap().unwrap();
        within.write(&order(3, "ada", 30), &upsert()).unwrap();
        within.take(&Wanted::id(3), &now()).unwrap().unwrap();
    };
    let mut transaction = store.begin();
    changes(&mut transaction);
    orders.within(&mut transaction).write(&text(1), &upsert()).unwrap();
    assert_eq!(commit(transaction).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(contents(&sessions), BTreeMap::from([(1, 10)]));
    assert_eq!((hear(&mut listener), orders.count(&Wanted::all()).unwrap()), (vec![], there));
    let both = store.space("shop").execute(&1.into(), None, |task| {
        task.change("session", 1, &[add(1)])?;
        task.write("order", &text(1), &upsert())
    });
    assert_eq!(both.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!((contents(&sessions), hear(&mut listener)), (BTreeMap::from([(1, 10)]), vec![]));
    // What needs no disk goes on.
    let mut transaction = store.begin();
    changes(&mut transaction);
    commit(transaction).unwrap();
    assert_eq!(contents(&sessions), BTreeMap::from([(1, 11), (2, 20)]));
    let mut heard = hear(&mut listener);
    heard.sort_by_key(|(_, id)| *id);
    assert_eq!(heard, [(NoticeKind::Updated, 1), (NoticeKind::Written, 2)]);
}

#[test]
fn who_comes_second_to_a_volatile_entry_waits_is_in_conflict_or_told_of_a_deadlock() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (orders, sessions) = (orders(&store), sessions(&store));
    sessions.write(&order(1, "ada", 0), &upsert()).unwrap();
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    // An entry that is not there cannot be locked: the second to commit is told.
    let (mut first, mut second) = (store.begin(), store.begin());
    for transaction in [&mut first, &mut second] {
        sessions.within(transaction).write(&order(2, "ada", 0), &upsert()).unwrap();
    }
    orders.within(&mut second).write(&order(5, "bob", 0), &upsert()).unwrap();
    sessions.within(&mut second).write(&order(6, "bob", 0), &upsert()).unwrap();
    commit(first).unwrap();
    assert_eq!(commit(second).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!((contents(&sessions).len(), contents(&orders).len()), (2, 1));
    // One that is there is locked, for those outside too; who only reads sees what was committed last.
    let mut first = store.begin().with_name("first");
    sessions.within(&mut first).change(&Wanted::id(1), &[add(5)], &upsert()).unwrap().unwrap();
    let at_once = WriteOptions { lock_timeout: Some(Duration::from_millis(1)), ..upsert() };
    for refused in [
        sessions.write(&order(1, "eve", 0), &at_once).map(drop),
        sessions.within(&mut store.begin()).write(&order(1, "eve", 0), &at_once).map(drop),
        sessions.change(&Wanted::id(1), &[add(1)], &at_once).map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused}");
        assert!(refused.to_string().ends_with(": first"), "{refused}");
    }
    assert_eq!(sessions.take(&Wanted::id(1), &now()).unwrap(), None);
    let committed_last = |lock| {
        let read = sessions.within(&mut store.begin()).read(&Wanted::id(1), lock, &now()).unwrap();
        read.map(|it| total(&it))
    };
    assert_eq!((committed_last(ReadLock::None), committed_last(ReadLock::Shared)), (Some(0), None));
    let task = store.space("shop").execute(&1.into(), None, |task| task.change("session", 1, &[add(1)]));
    assert_eq!(task.unwrap_err().kind(), ErrorKind::Timeout);
    // Each waits for the other, over both kinds of types.
    let mut second = store.begin();
    orders.within(&mut second).read(&Wanted::id(1), ReadLock::Exclusive, &now()).unwrap().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| sessions.within(&mut second).write(&order(1, "bob", 7), &upsert()).map(drop));
        while !store.open_transactions().iter().any(|open| open.is_waiting) {
            std::thread::yield_now();
        }
        let error = orders.within(&mut first).write(&order(1, "ada", 1), &upsert()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        drop(first);
        waits.join().unwrap().unwrap();
    });
    commit(second).unwrap();
    assert_eq!(sessions.read(&Wanted::id(1), &now()).unwrap().map(|it| total(&it)), Some(7));
}

#[test]
fn repeatable_reads_hold_volatile_entries_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let sessions = sessions(&store);
    sessions.write(&order(1, "ada", 0), &upsert()).unwrap();
    let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..upsert() };
    let mut first = store.begin();
    let mut second = store.begin();
    let shared =
        |of: &mut Transaction| sessions.within(of).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().is_some();
    assert!(shared(&mut first) && shared(&mut second), "those who only read share it");
    assert_eq!(sessions.write(&order(1, "eve", 1), &at_once).unwrap_err().kind(), ErrorKind::Timeout);
    let exclusive = |of: &mut Transaction| {
        let read = sessions.within(of).read(&Wanted::id(1), ReadLock::Exclusive, &now()).unwrap();
        read.is_some()
    };
    assert!(!exclusive(&mut first), "the other has it too");
    drop(second);
    assert!(exclusive(&mut first));
    assert!(!shared(&mut store.begin()));
    commit(first).unwrap();
    sessions.write(&order(1, "eve", 1), &at_once).unwrap();
}

#[test]
fn a_lease_that_ends_lets_go_of_volatile_entries_and_the_transaction_changes_nothing() {
    let (store, clock) = with_clock();
    let sessions = sessions(&store);
    sessions.write(&order(1, "ada", 0), &upsert()).unwrap();
    let mut transaction = store.begin().with_lease(Duration::from_secs(10));
    sessions.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().unwrap();
    sessions.within(&mut transaction).write(&order(2, "ada", 0), &upsert()).unwrap();
    clock.advance(Duration::from_secs(11));
    let _ = store.step();
    assert_eq!(commit(transaction).unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(sessions.take(&Wanted::all(), &now()).unwrap().map(|it| id(&it)), Some(1));
    assert_eq!(sessions.count(&Wanted::all()).unwrap(), 0);
}

/// One whose lease has ended and that is still there goes first, and then the new one comes.
#[test]
fn leases_within_a_transaction_end_those_of_volatile_entries() {
    let (store, clock) = with_clock();
    let sessions = sessions(&store);
    let second = |lease: u64| WriteOptions { lease: Lease::For(Duration::from_secs(lease)), ..upsert() };
    sessions.write(&order(1, "ada", 0), &second(10)).unwrap();
    sessions.write(&order(2, "ada", 0), &second(10)).unwrap();
    let mut listener = sessions.listen(&Wanted::all(), Listen::default()).unwrap();
    let mut transaction = store.begin();
    let mut within = sessions.within(&mut transaction);
    assert!(within.renew(&Wanted::id(2), Lease::For(Duration::from_secs(100)), None).unwrap());
    clock.advance(Duration::from_secs(20));
    let insert = WriteOptions { mode: holdfast::space::WriteMode::Insert, ..upsert() };
    within.write(&order(1, "bob", 1), &insert).unwrap();
    within.write(&order(3, "bob", 1), &second(5)).unwrap();
    commit(transaction).unwrap();
    use NoticeKind::{Expired, Written};
    // Those of one entry are in order; what lies elsewhere may come between.
    let mut heard = hear(&mut listener);
    heard.sort_by_key(|(_, id)| *id);
    assert_eq!(heard, [(Expired, 1), (Written, 1), (Written, 3)]);
    assert_eq!(contents(&sessions), BTreeMap::from([(1, 1), (2, 0), (3, 1)]));
    clock.advance(Duration::from_secs(6));
    let _ = store.step();
    assert_eq!((hear(&mut listener), contents(&sessions).len()), (vec![(Expired, 3)], 2));
    clock.advance(Duration::from_secs(100));
    assert_eq!(contents(&sessions), BTreeMap::from([(1, 1)]));
}

#[test]
fn events_of_volatile_entries_come_behind_the_commit() {
    use NoticeKind::{Taken, Updated, Written};
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (orders, sessions) = (orders(&store), sessions(&store));
    sessions.write(&order(1, "ada", 0), &upsert()).unwrap();
    let mut listener = sessions.listen(&Wanted::all(), Listen::default()).unwrap();
    let hears = Hears { updated: false, ..Hears::ALL };
    let mut durable = orders.listen(&Wanted::all(), Listen { hears, ..Listen::default() }).unwrap();
    let changes = |transaction: &mut Transaction| {
        sessions.within(transaction).write(&order(7, "ada", 0), &upsert()).unwrap();
        orders.within(transaction).write(&order(8, "ada", 0), &upsert()).unwrap();
        sessions.within(transaction).change(&Wanted::id(1), &[add(1)], &upsert()).unwrap().unwrap();
        sessions.within(transaction).write(&order(4, "ada", 0), &upsert()).unwrap();
    };
    let mut given_up = store.begin();
    changes(&mut given_up);
    drop(given_up);
    let mut transaction = store.begin();
    changes(&mut transaction);
    assert_eq!((hear(&mut listener), hear(&mut durable)), (vec![], vec![]));
    commit(transaction).unwrap();
    let mut heard = hear(&mut listener);
    heard.sort_by_key(|(_, id)| *id);
    assert_eq!(heard, [(Updated, 1), (Written, 4), (Written, 7)]);
    assert_eq!(hear(&mut durable), [(Written, 8)]);
    let mut transaction = store.begin();
    sessions.within(&mut transaction).take(&Wanted::id(4), &now()).unwrap().unwrap();
    commit(transaction).unwrap();
    assert_eq!(hear(&mut listener), [(Taken, 4)]);
}

#[test]
fn who_waits_for_volatile_entries_gets_what_a_transaction_writes_or_lets_go_of_in_the_order_of_coming() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let queue = declare(&store, Definition { order: Order::Fifo, ..Definition::new("shop", "queue") });
    std::thread::scope(|scope| {
        let mut waiting = Vec::new();
        for number in 0..3 {
            let (store, queue) = (&store, &queue);
            waiting.push(scope.spawn(move || {
                // Those within transactions and those outside stand in one line.
                if number == 1 {
                    let mut transaction = store.begin();
                    let taken = queue.within(&mut transaction).take(&Wanted::all(), &waits(60_000)).unwrap();
                    commit(transaction).unwrap();
                    return taken.map(|it| id(&it));
                }
                queue.take(&Wanted::all(), &waits(60_000)).unwrap().map(|it| id(&it))
            }));
            while queue.waiters() <= number {
                std::thread::yield_now();
            }
        }
        let mut transaction = store.begin();
        for number in [30, 20, 10] {
            queue.within(&mut transaction).write(&order(number, "ada", 0), &upsert()).unwrap();
        }
        assert_eq!(queue.waiters(), 3);
        commit(transaction).unwrap();
        let got: Vec<_> = waiting.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(got, [Some(30), Some(20), Some(10)]);
    });
    queue.write(&order(1, "ada", 0), &upsert()).unwrap();
    let mut holder = store.begin();
    queue.within(&mut holder).take(&Wanted::all(), &now()).unwrap().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.take(&Wanted::all(), &waits(60_000)).unwrap().map(|it| id(&it)));
        while queue.waiters() == 0 {
            std::thread::yield_now();
        }
        drop(holder);
        assert_eq!(waiting.join().unwrap(), Some(1), "what was rolled back is there again");
    });
}

#[test]
fn limits_of_memory_hold_for_volatile_entries_of_a_transaction_before_it_commits() {
    const LIMIT: u64 = 16 << 10;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let limited = |name: &str, at_limit| {
        let placement = Placement::Together;
        let definition = Definition { placement, memory_bytes_max: LIMIT, at_limit, ..Definition::new("shop", name) };
        declare(&store, definition)
    };
    let (orders, full) = (orders(&store), limited("full", AtLimit::Refuse));
    let (cache, seen) = (limited("cache", AtLimit::Evict), sessions(&store));
    let many = |entries: &Entries, ids: std::ops::Range<i64>| {
        let mut transaction = store.begin();
        orders.within(&mut transaction).write(&order(ids.start, "ada", 0), &upsert()).unwrap();
        seen.within(&mut transaction).write(&order(ids.start, "ada", 0), &upsert()).unwrap();
        ids.for_each(|id| drop(entries.within(&mut transaction).write(&order(id, "ada", id), &upsert()).unwrap()));
        commit(transaction)
    };
    many(&full, 0..40).unwrap();
    let error = many(&full, 1000..1400).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert_eq!(full.count(&Wanted::all()).unwrap(), 40);
    assert_eq!((contents(&orders).len(), contents(&seen).len()), (1, 1));
    // Where a type evicts, what is older goes, and never what the transaction itself writes.
    for batch in 0..20 {
        many(&cache, 10_000 + 40 * batch..10_000 + 40 * (batch + 1)).unwrap();
        let there = contents(&cache);
        assert!(cache.usage().bytes <= LIMIT, "{:?}", cache.usage());
        assert!((0..40).all(|number| there.contains_key(&(10_000 + 40 * batch + number))));
    }
    assert!(contents(&cache).len() < 300);
    let error = many(&cache, 50_000..50_400).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(contents(&cache).keys().all(|id| *id < 50_000));
}

#[test]
fn a_task_changes_both_kinds_of_types_or_neither() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = Store::open(dir.path(), options()).unwrap();
        let (orders, sessions) = (orders(&store), sessions(&store));
        let space = store.space("shop");
        let mut listener = sessions.listen(&Wanted::all(), Listen::default()).unwrap();
        for number in 0..20 {
            let made = space.execute(&number.into(), None, |task| {
                task.write("session", &order(number, "ada", 1), &upsert())?;
                task.write("order", &order(number, "ada", 1), &upsert())?;
                assert_eq!(task.read("session", &Wanted::id(number), 9)?.len(), 1);
                // Others see neither, and a third is given up.
                let name = if number % 3 == 0 { "nothing" } else { "session" };
                task.change(name, number, &[add(0)]).map(drop)
            });
            assert_eq!(made.is_ok(), number % 3 != 0);
        }
        let expected: BTreeMap<i64, i64> = (0..20).filter(|number| number % 3 != 0).map(|number| (number, 1)).collect();
        assert_eq!((contents(&orders), contents(&sessions)), (expected.clone(), expected.clone()));
        assert_eq!(hear(&mut listener).len(), expected.len());
        let taken = space.execute_all(
            None,
            |task| {
                let found = task.read("session", &Wanted::all(), 100)?;
                for entry in &found {
                    task.take("session", id(entry))?.unwrap();
                    task.change("order", id(entry), &[add(1)])?.unwrap();
                }
                Ok(found.len())
            },
            |a, b| a + b,
        );
        assert_eq!(taken.unwrap(), expected.len());
        assert_eq!(
            (contents(&orders).values().sum::<i64>(), contents(&sessions).len()),
            (2 * expected.len() as i64, 0)
        );
        space.execute(&1.into(), None, |task| task.write("session", &order(1, "ada", 1), &upsert())).unwrap();
    }
    let store = Store::open(dir.path(), options()).unwrap();
    let of = |name: &str| contents(&store.space("shop").entries(name).unwrap()).len();
    assert_eq!((of("order"), of("session")), (13, 0));
}

/// What recovery finds decided in the journal has no volatile part.
#[test]
fn volatile_entries_are_done_with_a_decision_by_the_process_that_decides() {
    let (disk, ledgers) = (Disk::new(9), MemoryLedgers::new());
    let open = || Store::open_in(&world(&disk, &ledgers), FilePath::new("/store"), options()).unwrap();
    let store = open();
    let sessions = sessions(&store);
    let begin = || store.xa().begin(&holdfast::Begin::default()).unwrap();
    let (good, bad) = (begin(), begin());
    store.xa().abort(bad).unwrap().wait(Durability::Synced).unwrap();
    let change = |decides, id: i64| {
        let mut transaction = store.begin();
        sessions.within(&mut transaction).write(&order(id, "ada", 1), &upsert()).unwrap();
        transaction.decide(decides, &[holdfast::BranchName::new("pg").unwrap()]);
        commit(transaction)
    };
    assert_eq!(change(bad, 1).unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(contents(&sessions), BTreeMap::new());
    change(good, 2).unwrap();
    assert_eq!(contents(&sessions), BTreeMap::from([(2, 1)]));
    // Asked again, it is not changed again.
    assert_eq!(change(good, 3).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(contents(&sessions), BTreeMap::from([(2, 1)]));
    disk.power_cut();
    drop((sessions, store));
    disk.power_on();
    let store = open();
    let verdicts = store.xa().verdicts(&[good]).unwrap().wait(Durability::Synced).unwrap();
    assert_eq!(verdicts, [holdfast::Verdict::Commit]);
    assert_eq!(contents(&store.space("shop").entries("session").unwrap()), BTreeMap::new());
}

/// The journal bounds the rest of a batch.
#[test]
fn what_a_batch_changes_in_memory_is_bounded_as_the_rest_of_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), options()).unwrap();
    let (sessions, bytes_max) = (sessions(&store), store.limits().batch_bytes_max);
    let customer = "c".repeat(1 << 10);
    for (count, fits) in [(bytes_max / 2048, true), (2 * bytes_max / 1024, false)] {
        let mut transaction = store.begin();
        for id in 0..i64::try_from(count).unwrap() {
            sessions.within(&mut transaction).write(&order(id, &customer, 0), &upsert()).unwrap();
        }
        let committed = commit(transaction).map(drop).map_err(|error| error.kind());
        assert_eq!(committed, if fits { Ok(()) } else { Err(ErrorKind::Limit) });
        assert_eq!(contents(&sessions).len(), bytes_max / 2048, "nothing of what does not fit");
    }
}
