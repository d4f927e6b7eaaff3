//! What happens when things end, meet or fail at an awkward moment.

use std::task::{Context, Poll, Waker};

use holdfast::space::{
    AtLimit, Change, IndexDefinition, Lease, Listen, NoticeKind, Order, Path, ReadLock, Taking, WriteMode,
};
use holdfast::{CompactionOptions, ErrorKind, MemoryLedgers, Position, PutOptions};

use super::*;

fn jobs(store: &Store) -> Entries {
    store.space("s").declare(Definition { order: Order::Fifo, ..Definition::new("s", "job") }).unwrap()
}

/// Runs `work` while somebody waits to take what is wanted; what he got.
fn taken_while(entries: &Entries, wanted: &Wanted, work: impl FnOnce()) -> Option<i64> {
    let before = entries.waiters();
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| entries.take(wanted, &waits(2_000)).unwrap().map(|entry| id(&entry)));
        while entries.waiters() == before {
            std::thread::yield_now();
        }
        work();
        taker.join().unwrap()
    })
}

/// Who had only read an entry, and wrote another of the same partition, kept it from those who waited for it.
#[test]
fn a_commit_wakes_those_who_wait_for_what_it_had_only_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let jobs = jobs(&store);
    jobs.write(&order(1, "ada", 0), &upsert()).unwrap();
    let mut transaction = store.begin();
    jobs.within(&mut transaction).read(&Wanted::id(1), ReadLock::Exclusive, &now()).unwrap().unwrap();
    jobs.within(&mut transaction).write(&order(2, "ada", 0), &upsert()).unwrap();
    let got = taken_while(&jobs, &Wanted::id(1), || {
        transaction.commit(Durability::Written).unwrap();
    });
    assert_eq!(got, Some(1));
}

/// The group was free, and nobody said so to those who waited for the rest of it.
#[test]
fn a_group_that_is_let_go_of_wakes_those_who_wait_for_the_rest_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let order_by = Order::Groups(Path::parse("customer").unwrap());
    let steps = store.space("s").declare(Definition { order: order_by, ..Definition::new("s", "step") }).unwrap();
    for number in 1..=4 {
        steps.write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    let mut transaction = store.begin();
    assert!(steps.within(&mut transaction).take(&Wanted::all(), &now()).unwrap().is_some());
    let got = taken_while(&steps, &Wanted::all(), || {
        transaction.commit(Durability::Written).unwrap();
    });
    assert_eq!(got, Some(2));
    let mut transaction = store.begin();
    assert!(steps.within(&mut transaction).take(&Wanted::all(), &now()).unwrap().is_some());
    assert_eq!(steps.count(&Wanted::all()).unwrap(), 2, "who only looks sees what is held");
    let got = taken_while(&steps, &Wanted::id(4), || drop(transaction));
    assert_eq!(got, Some(4), "rolled back");
}

/// A commit let go of a read entry of another partition, and gave it away, while it still told listeners: for ever.
#[test]
fn a_commit_gives_away_what_it_had_only_read_elsewhere_while_somebody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let definition = Definition { history: true, ..Definition::new("s", "order") };
    let orders = store.space("s").declare(definition).unwrap();
    for number in 0..40 {
        orders.write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    let _listener = orders.listen(&Wanted::all(), Listen::default()).unwrap();
    for number in 0..20 {
        let mut transaction = store.begin();
        orders.within(&mut transaction).read(&Wanted::id(number), ReadLock::Exclusive, &now()).unwrap().unwrap();
        orders.within(&mut transaction).write(&order(39 - number, "eve", 0), &upsert()).unwrap();
        let got = taken_while(&orders, &Wanted::id(number), || {
            transaction.commit(Durability::Written).unwrap();
        });
        assert_eq!(got, Some(number));
    }
}

/// Each held its own partition while it let go of what it had read in the other's.
#[test]
fn commits_that_read_in_each_others_partitions_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    for number in 0..64 {
        orders.write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    std::thread::scope(|scope| {
        for worker in 0..4i64 {
            let (store, orders) = (&store, &orders);
            scope.spawn(move || {
                for round in 0..300 {
                    let mut transaction = store.begin();
                    for read in 0..8 {
                        let read = (round * 7 + read * 5 + worker * 3) % 32;
                        orders.within(&mut transaction).read(&Wanted::id(read), ReadLock::Shared, &now()).unwrap();
                    }
                    let own = 32 + worker * 8 + round % 8;
                    orders.within(&mut transaction).write(&order(own, "eve", round), &upsert()).unwrap();
                    transaction.commit(Durability::Written).unwrap();
                }
            });
        }
    });
}

/// Two that had read an entry, and would both write it, waited until the time was out.
#[test]
fn two_readers_that_would_both_write_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    let (mut first, mut second) = (store.begin(), store.begin());
    orders.within(&mut first).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().unwrap();
    orders.within(&mut second).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().unwrap();
    let long = WriteOptions { lock_timeout: Some(Duration::from_secs(4)), ..upsert() };
    let write = |mut transaction: holdfast::Transaction| {
        let written = orders.within(&mut transaction).write(&order(1, "x", 0), &long);
        written.map(|_| ()).map_err(|error| error.kind())
    };
    let outcome = std::thread::scope(|scope| {
        let other = scope.spawn(|| write(second));
        let this = write(first);
        [this, other.join().unwrap()]
    });
    assert!(outcome.contains(&Err(ErrorKind::Conflict)) && outcome.contains(&Ok(())), "{outcome:?}");
}

/// It asked again and again, for ever, because nobody stood in its way but itself.
#[test]
fn a_transaction_whose_lease_ends_while_it_waits_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    let mut holder = store.begin();
    orders.within(&mut holder).read(&Wanted::id(1), ReadLock::Exclusive, &now()).unwrap().unwrap();
    let mut late = store.begin().with_lease(Duration::from_millis(20));
    let written = orders.within(&mut late).write(&order(1, "late", 0), &upsert());
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Timeout);
    drop(holder);
    assert!(orders.take(&Wanted::id(1), &now()).unwrap().is_some());
    let mut late = store.begin().with_lease(Duration::from_millis(20));
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    orders.within(&mut late).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().unwrap();
    let exists = ReadOptions { if_exists: true, ..waits(60_000) };
    assert!(orders.take(&Wanted::id(1), &exists).unwrap().is_some());
    assert_eq!(late.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Timeout, "it lost its lock");
}

fn poll_once<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// What was given back replaced what had been written meanwhile.
#[test]
fn what_is_given_back_replaces_nothing_newer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let mut waiting = Box::pin(orders.waiting(&Wanted::id(1), Taking::Take).unwrap());
    assert!(poll_once(&mut waiting).is_pending());
    orders.write(&order(1, "old", 0), &upsert()).unwrap();
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 0, "it was taken");
    orders.write(&order(1, "new", 0), &upsert()).unwrap();
    drop(waiting);
    assert_eq!(orders.read(&Wanted::id(1), &now()).unwrap().unwrap().document, order(1, "new", 0));
    let waiting = Box::pin(orders.waiting(&Wanted::id(2), Taking::Take).unwrap());
    orders.write(&order(2, "old", 0), &upsert()).unwrap();
    drop(waiting);
    assert_eq!(orders.read(&Wanted::id(2), &now()).unwrap().unwrap().document, order(2, "old", 0));
}

/// The waiter stayed in the queue, and what came was taken for nobody.
#[test]
fn a_waiting_that_is_refused_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    assert!(orders.waiting(&Wanted::all().routed(1.5), Taking::Take).is_err());
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    assert_eq!((orders.waiters(), orders.count(&Wanted::all()).unwrap()), (0, 1));
}

/// Each was compared with what was there before, and not with the other.
#[test]
fn a_batch_keeps_what_is_unique() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let path = Path::parse("customer").unwrap();
    let kind = holdfast::space::IndexKind::Hash;
    let index = IndexDefinition { name: "one".into(), kind, unique: true, paths: vec![path.clone()] };
    let definition = Definition { routing: Some(path), indexes: vec![index], ..Definition::new("s", "account") };
    let space = store.space("s");
    let accounts = space.declare(definition).unwrap();
    let mut transaction = store.begin();
    accounts.within(&mut transaction).write(&order(1, "ada", 0), &upsert()).unwrap();
    accounts.within(&mut transaction).write(&order(2, "ada", 0), &upsert()).unwrap();
    assert_eq!(transaction.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Conflict);
    let both = space.execute(&"ada".into(), None, |task| {
        task.write("account", &order(1, "ada", 0), &upsert())?;
        task.write("account", &order(2, "ada", 0), &upsert())
    });
    assert_eq!(both.unwrap_err().kind(), ErrorKind::Conflict);
    accounts.write(&order(1, "ada", 0), &upsert()).unwrap();
    // One goes, and another comes in its place.
    let mut transaction = store.begin();
    accounts.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().unwrap();
    accounts.within(&mut transaction).write(&order(2, "ada", 0), &upsert()).unwrap();
    transaction.commit(Durability::Written).unwrap();
    space
        .execute(&"ada".into(), None, |task| {
            task.take("account", 2)?;
            task.write("account", &order(3, "ada", 0), &upsert())
        })
        .unwrap();
    assert_eq!(ids(&accounts.read_many(&Wanted::all(), 9).unwrap()), BTreeSet::from([3]));
}

/// A task passed over LIMIT and ORDER BY, did not see what lay behind an entry that a worker had, and took it.
#[test]
fn a_task_reads_as_others_do_and_takes_nothing_of_a_group_that_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("s");
    let order_by = Order::Groups(Path::parse("customer").unwrap());
    let steps = space.declare(Definition { order: order_by, ..Definition::new("s", "step") }).unwrap();
    for id in 0..4 {
        steps.write(&order(id, "ada", 0), &upsert()).unwrap();
    }
    let read =
        |wanted: &Wanted| space.execute(&"ada".into(), None, |task| task.read("step", wanted, 9).map(|all| ids(&all)));
    let mut worker = store.begin();
    assert_eq!(id(&steps.within(&mut worker).take(&Wanted::all(), &now()).unwrap().unwrap()), 0);
    // What is committed, as without a task.
    assert_eq!(read(&Wanted::all()).unwrap(), ids(&steps.read_many(&Wanted::all(), 9).unwrap()));
    let limited = Wanted::query("total = 0 LIMIT 3", &[]).unwrap();
    assert_eq!(read(&limited).unwrap().len(), 3);
    let ordered = Wanted::query("total = 0 ORDER BY id DESC", &[]).unwrap();
    assert_eq!(read(&ordered).unwrap_err().kind(), ErrorKind::Invalid);
    let take = |id: i64| space.execute(&"ada".into(), None, |task| task.take("step", id).map(|it| it.is_some()));
    assert_eq!(take(1).unwrap_err().kind(), ErrorKind::Timeout);
    drop(worker);
    assert!(take(1).unwrap());
}

/// Both lay under one name in the transaction, and the commit looked for the one where the other was.
#[test]
fn a_transaction_moves_an_entry_to_another_partition() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let routing = Some(Path::parse("customer").unwrap());
    let orders = store.space("s").declare(Definition { routing, ..Definition::new("s", "order") }).unwrap();
    let order_by = Order::Groups(Path::parse("customer").unwrap());
    let steps = store.space("s").declare(Definition { order: order_by, ..Definition::new("s", "step") }).unwrap();
    for (from, to) in [("ada", "bob"), ("bob", "cyd"), ("cyd", "dan"), ("dan", "eve"), ("eve", "fay")] {
        orders.write(&order(1, from, 0), &upsert()).unwrap();
        let mut transaction = store.begin();
        orders.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().unwrap();
        orders.within(&mut transaction).write(&order(1, to, 0), &upsert()).unwrap();
        transaction.commit(Durability::Written).unwrap();
        let left = orders.take_many(&Wanted::all(), 9, &now()).unwrap();
        assert_eq!(left.iter().map(|entry| entry.document.clone()).collect::<Vec<_>>(), [order(1, to, 0)]);
        // No group is held when all is over.
        steps.write(&order(1, from, 0), &upsert()).unwrap();
        let mut transaction = store.begin();
        steps.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().unwrap();
        steps.within(&mut transaction).write(&order(1, to, 0), &upsert()).unwrap();
        transaction.commit(Durability::Written).unwrap();
        steps.write(&order(2, from, 0), &upsert()).unwrap();
        assert_eq!(steps.take_many(&Wanted::all(), 9, &now()).unwrap().len(), 2);
    }
}

/// A panic of the user's made the partition, keys and all, unusable until the store was opened again.
#[test]
fn a_task_that_panics_costs_nobody_anything() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let task = std::panic::AssertUnwindSafe(|| {
        store.space("shop").execute_all(None, |_| -> holdfast::Result<()> { panic!("a task") }, |(), ()| ())
    });
    assert!(std::panic::catch_unwind(task).is_err());
    for number in 0..20 {
        orders.write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 20);
}

/// Whether it was replaced or stood beside the new one was up to the number of partitions.
#[test]
fn a_write_replaces_no_entry_with_other_routing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { partitions: 1, ..options() }).unwrap();
    let routing = Some(Path::parse("customer").unwrap());
    let orders = store.space("s").declare(Definition { routing, ..Definition::new("s", "order") }).unwrap();
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    assert_eq!(orders.write(&order(1, "bob", 0), &upsert()).unwrap_err().kind(), ErrorKind::Conflict);
    let mut transaction = store.begin();
    let within = orders.within(&mut transaction).write(&order(1, "bob", 0), &upsert());
    assert_eq!(within.unwrap_err().kind(), ErrorKind::Conflict);
    drop(transaction);
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
}

/// Nobody told them.
#[test]
fn closing_ends_all_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let hears = holdfast::space::Hears { updated: false, ..holdfast::space::Hears::ALL };
    let mut listener = orders.listen(&Wanted::all(), Listen { hears, ..Listen::default() }).unwrap();
    let mut waiting = Box::pin(orders.waiting(&Wanted::id(7), Taking::Take).unwrap());
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| orders.take(&Wanted::all(), &waits(20_000)).unwrap_err().kind());
        let hearer = scope.spawn(|| listener.next(Duration::from_secs(20)).unwrap_err().kind());
        while orders.waiters() < 2 {
            std::thread::yield_now();
        }
        store.close().unwrap();
        assert_eq!((taker.join().unwrap(), hearer.join().unwrap()), (ErrorKind::Closed, ErrorKind::Closed));
    });
    assert!(matches!(poll_once(&mut waiting), Poll::Ready(Err(_))));
}

/// A restart was taken for a snapshot: the journal behind the older of both files was let go. And a damaged newer file took
/// the place of the older one when the next was written.
#[test]
fn either_snapshot_and_the_journal_are_enough() {
    let path = std::path::Path::new("/store");
    let compaction =
        CompactionOptions { bytes_per_second: 0, dead_percent: 5, keep_bytes: 0, ..CompactionOptions::default() };
    let disk = base::memory::Disk::new(1);
    let ledgers = MemoryLedgers::new();
    let open = |disk: &base::memory::Disk, ledgers: &MemoryLedgers| {
        Store::open_in(&world(disk, ledgers), path, Options { partitions: 1, compaction, ..options() }).unwrap()
    };
    let mut digest = 0;
    let mut last = None;
    for round in 0..6 {
        let store = open(&disk, &ledgers);
        let entries = orders(&store);
        if round > 0 {
            assert_eq!(store.digest().unwrap(), digest, "round {round}");
        }
        for number in 0..700 {
            // Some stay, the others are what makes the journal long.
            let number = if number < 10 { round * 10 + number } else { 1000 + number };
            entries.write(&order(number, "ada", round), &upsert()).unwrap();
            if number == 1690 && round % 2 == 1 {
                (0..40).for_each(|_| store.step().unwrap());
            }
        }
        digest = store.digest().unwrap();
        disk.kill_process();
        ledgers.kill_process();
        std::mem::forget(store);
        // In the round after the damage there is one snapshot only.
        for name in ["0000.snap", "0000.old"].into_iter().filter(|_| round != 4) {
            let other = disk.fork(7);
            let file = path.join("space").join(name);
            let bytes = other.inventory().into_iter().find(|(path, _)| *path == file).unwrap().1;
            for at in [0, bytes / 2, bytes - 1] {
                let other = disk.fork(7);
                other.flip(&file, at, 1);
                let store = open(&other, &MemoryLedgers::new());
                assert_eq!(store.digest().unwrap(), digest, "round {round}, {name} at {at}");
                last = Some(store.feed_floor());
                std::mem::forget(store);
            }
        }
        if round == 3 {
            disk.flip(&path.join("space/0000.snap"), 50, 1);
        }
    }
    assert!(last.unwrap() > Position::ZERO, "something was let go of");
}

/// It was gone for reading, and there for writing.
#[test]
fn an_entry_whose_lease_has_ended_is_in_nobodys_way() {
    let (store, clock) = with_clock();
    let jobs = jobs(&store);
    let lease = WriteOptions { lease: Lease::For(Duration::from_millis(10)), ..upsert() };
    jobs.write(&order(1, "ada", 0), &lease).unwrap();
    jobs.write(&order(2, "ada", 0), &upsert()).unwrap();
    clock.advance(Duration::from_millis(20));
    let insert = WriteOptions { mode: WriteMode::Insert, ..upsert() };
    let mut transaction = store.begin();
    assert!(jobs.within(&mut transaction).write(&order(1, "eve", 0), &insert).unwrap().previous.is_none());
    drop(transaction);
    assert!(jobs.write(&order(1, "eve", 0), &insert).unwrap().previous.is_none());
    assert_eq!(id(&jobs.take(&Wanted::all(), &now()).unwrap().unwrap()), 2, "the new one came last");
    let path = Path::parse("customer").unwrap();
    let kind = holdfast::space::IndexKind::Hash;
    let index = IndexDefinition { name: "one".into(), kind, unique: true, paths: vec![path.clone()] };
    let definition = Definition { routing: Some(path), indexes: vec![index], ..Definition::new("s", "account") };
    let accounts = store.space("s").declare(definition).unwrap();
    accounts.write(&order(1, "ada", 0), &lease).unwrap();
    clock.advance(Duration::from_millis(20));
    accounts.write(&order(2, "ada", 0), &upsert()).unwrap();
}

/// What it had written itself it saw for ever.
#[test]
fn a_transaction_sees_the_end_of_leases_that_it_gave() {
    let (store, clock) = with_clock();
    let jobs = jobs(&store);
    jobs.write(&order(2, "ada", 0), &upsert()).unwrap();
    let lease = WriteOptions { lease: Lease::For(Duration::from_millis(10)), ..upsert() };
    let insert = WriteOptions { mode: WriteMode::Insert, ..upsert() };
    let change = [Change::Set { path: Path::parse("customer").unwrap(), value: "bob".into() }];
    let mut transaction = store.begin();
    let mut within = jobs.within(&mut transaction);
    within.write(&order(1, "ada", 0), &lease).unwrap();
    let changed = within.change(&Wanted::id(2), &change, &lease).unwrap().unwrap();
    assert_eq!(changed.now.expires_ms, Some(1_700_000_000_010));
    assert_eq!(within.count(&Wanted::all()).unwrap(), 2);
    assert!(within.read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().is_some());
    clock.advance(Duration::from_millis(20));
    for id in [1, 2] {
        assert_eq!(within.read(&Wanted::id(id), ReadLock::Shared, &now()).unwrap(), None, "{id}");
        assert_eq!(within.take(&Wanted::id(id), &now()).unwrap(), None, "{id}");
        assert_eq!(within.change(&Wanted::id(id), &change, &upsert()).unwrap(), None, "{id}");
    }
    assert_eq!((within.count(&Wanted::all()).unwrap(), within.clear(&Wanted::all(), 10).unwrap()), (0, 0));
    assert!(within.write(&order(1, "eve", 0), &insert).unwrap().previous.is_none());
    assert_eq!(within.count(&Wanted::all()).unwrap(), 1);
    transaction.commit(Durability::Written).unwrap();
    let left: Vec<i64> = jobs.read_many(&Wanted::all(), 10).unwrap().iter().map(id).collect();
    assert_eq!(left, [1]);
}

/// All others had gone before it was seen that it would never fit; and what was written might go for itself.
#[test]
fn what_never_fits_drives_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let limit = Definition { memory_bytes_max: 4 << 10, at_limit: AtLimit::Evict, ..Definition::new("s", "cache") };
    let cache = store.space("s").declare(Definition { order: Order::Fifo, ..limit }).unwrap();
    for number in 0..5 {
        cache.write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    let large = |id: i64, bytes| Document::from_pairs([("id", Value::from(id)), ("x", Value::Bytes(vec![0; bytes]))]);
    assert_eq!(cache.write(&large(9, 8 << 10), &upsert()).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(cache.count(&Wanted::all()).unwrap(), 5);
    cache.write(&large(0, 3500), &upsert()).unwrap();
    assert!(cache.read(&Wanted::id(0), &now()).unwrap().is_some());
    assert!(cache.usage().bytes <= 4 << 10);
}

/// A limit in the query was not heard.
#[test]
fn a_limit_holds_for_what_is_taken_and_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    for number in 0..10 {
        orders.write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    let three = Wanted::query("customer = 'ada' LIMIT 3", &[]).unwrap();
    assert_eq!(orders.take_many(&three, 100, &now()).unwrap().len(), 3);
    assert_eq!(orders.clear(&three, None).unwrap(), 3);
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 4);
}

/// Its own lock was in its way.
#[test]
fn a_transaction_reads_what_it_has_locked_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    let mut transaction = store.begin();
    for lock in [ReadLock::Exclusive, ReadLock::None, ReadLock::Shared, ReadLock::None] {
        assert!(orders.within(&mut transaction).read(&Wanted::id(1), lock, &now()).unwrap().is_some(), "{lock:?}");
        assert!(orders.within(&mut transaction).read(&example("ada"), lock, &now()).unwrap().is_some(), "{lock:?}");
    }
    assert!(orders.take(&Wanted::id(1), &now()).unwrap().is_none(), "it is locked all the same");
}

/// The new entry was told as an update of the one that had ended, whose end was never told, and had its place in the queue.
#[test]
fn what_is_written_where_a_lease_has_ended_is_a_new_entry() {
    let (store, clock) = with_clock();
    let definition = Definition { order: Order::Fifo, history: true, ..Definition::new("s", "job") };
    let jobs = store.space("s").declare(definition).unwrap();
    let insert = WriteOptions { mode: WriteMode::Insert, ..upsert() };
    let short = WriteOptions { lease: Lease::For(Duration::from_millis(20)), ..upsert() };
    let in_transaction = || {
        let mut transaction = store.begin();
        // Locked, so that nobody removes it.
        jobs.within(&mut transaction).read(&Wanted::id(1), ReadLock::Exclusive, &now()).unwrap().unwrap();
        clock.advance(Duration::from_millis(50));
        jobs.within(&mut transaction).write(&order(1, "new", 0), &insert).unwrap();
        transaction.commit(Durability::Written).unwrap();
    };
    let in_task = || {
        clock.advance(Duration::from_millis(50));
        // All of the type lie together; whichever task has their partition writes.
        let wrote = store.space("s").execute_all(
            None,
            |task| Ok(task.write("job", &order(1, "new", 0), &insert).is_ok()),
            |a, b| a || b,
        );
        assert!(wrote.unwrap());
    };
    for write in [&in_transaction as &dyn Fn(), &in_task] {
        let begin = jobs.listen(&Wanted::all(), Listen::default()).unwrap().bookmark();
        let mut live = jobs.listen(&Wanted::all(), Listen::default()).unwrap();
        jobs.write(&order(1, "old", 0), &short).unwrap();
        jobs.write(&order(2, "next", 0), &upsert()).unwrap();
        write();
        let mut journaled = jobs.listen(&Wanted::all(), Listen { from: Some(begin), ..Listen::default() }).unwrap();
        for listener in [&mut live, &mut journaled] {
            let mut heard = Vec::new();
            while let Some(notice) = listener.poll().unwrap() {
                heard.push(notice.kind);
            }
            let written = NoticeKind::Written;
            assert_eq!(heard, [written, written, NoticeKind::Expired, written]);
        }
        let taken = jobs.take_many(&Wanted::all(), 10, &now()).unwrap();
        assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), [2, 1]);
    }
}

type Uses = Box<dyn Fn() -> holdfast::Result<()> + Send + Sync>;

/// A function that read by its own handle of the entries waited for itself for ever, and so did all others, and the end of the store.
#[test]
fn a_task_that_uses_the_store_by_another_way_is_refused_and_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (space, entries) = (store.space("shop"), orders(&store));
    entries.write(&order(1, "ada", 0), &upsert()).unwrap();
    let other = tempfile::tempdir().unwrap();
    let other = Store::open(other.path(), options()).unwrap();
    let uses: Vec<(&str, Uses)> = vec![
        (
            "reads",
            Box::new({
                let it = entries.clone();
                move || it.read(&Wanted::id(1), &now()).map(drop)
            }),
        ),
        (
            "takes",
            Box::new({
                let it = entries.clone();
                move || it.take(&Wanted::all(), &now()).map(drop)
            }),
        ),
        (
            "counts",
            Box::new({
                let it = entries.clone();
                move || it.count(&Wanted::all()).map(drop)
            }),
        ),
        (
            "writes",
            Box::new({
                let it = entries.clone();
                move || it.write(&order(1, "bob", 0), &upsert()).map(drop)
            }),
        ),
        (
            "calls",
            Box::new({
                let it = space.clone();
                move || it.call("reads", &1.into(), &Value::Null, None).map(drop)
            }),
        ),
        (
            "puts",
            Box::new({
                let it = store.clone();
                move || it.kv().put(b"b", b"k", b"v", &PutOptions::default()).map(drop)
            }),
        ),
        (
            "begins",
            Box::new({
                let it = (store.clone(), entries.clone());
                move || {
                    let mut transaction = it.0.begin();
                    it.1.within(&mut transaction).read(&Wanted::id(1), ReadLock::Shared, &now())?;
                    Ok(())
                }
            }),
        ),
    ];
    for (name, uses) in uses {
        space.register(name, move |_, _| uses().map(|()| Value::Null));
        let error = space.call(name, &1.into(), &Value::Null, None).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("wait for itself"), "{name}: {error}");
    }
    // Another store is nobody who waits.
    space.register("elsewhere", move |task, _| {
        other.kv().put(b"b", b"k", b"v", &PutOptions::default())?;
        Ok(Value::from(task.get("order", 1)?.is_some()))
    });
    assert_eq!(space.call("elsewhere", &1.into(), &Value::Null, None).unwrap(), Value::from(true));
    entries.write(&order(1, "eve", 0), &upsert()).unwrap();
    store.close().unwrap();
}

#[test]
fn a_function_that_panics_or_is_not_there_is_an_error_for_whoever_calls_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (space, entries) = (store.space("shop"), orders(&store));
    let call = |name: &str| space.call(name, &1.into(), &Value::Null, None).unwrap_err().to_string();
    assert!(call("spend").contains("registers its functions each time"), "{}", call("spend"));
    space.register("spend", |task, _| {
        task.write("order", &order(1, "ada", 0), &upsert())?;
        panic!("out of {}", "money")
    });
    assert!(call("spent").contains("spend are"), "{}", call("spent"));
    assert!(call("spend").contains("spend panicked: out of money"), "{}", call("spend"));
    assert_eq!(entries.count(&Wanted::all()).unwrap(), 0);
}

/// It was said not to be there.
#[test]
fn a_task_that_looks_for_an_entry_of_another_partition_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (space, entries) = (store.space("shop"), orders(&store));
    (0..50).for_each(|id| drop(entries.write(&order(id, "ada", 0), &upsert()).unwrap()));
    let partition = |id: i64| space.execute(&id.into(), None, |task| Ok(task.partition())).unwrap();
    let far = (1..50).find(|id| partition(*id) != partition(0)).unwrap();
    let refused = space.execute(&0.into(), None, |task| task.get("order", far).map(|it| it.is_some())).unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("another partition"), "{refused}");
    assert!(space.execute(&0.into(), None, |task| task.take("order", far).map(|it| it.is_some())).is_err());
    assert!(space.execute(&far.into(), None, |task| task.get("order", far).map(|it| it.is_some())).unwrap());
    // In all partitions it is in one of them.
    let found = space.execute_all(None, |task| task.get("order", far).map(|it| u32::from(it.is_some())), |a, b| a + b);
    assert_eq!(found.unwrap(), 1);
}

/// Each partition's changes were a batch of their own, and those before a failure stayed.
#[test]
fn what_a_task_does_in_all_partitions_is_one_batch_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("shop");
    let orders = space.declare(Definition { history: true, ..Definition::new("shop", "order") }).unwrap();
    (0..100).for_each(|number| drop(orders.write(&order(number, "ada", 0), &upsert()).unwrap()));
    let mut live = orders.listen(&Wanted::all(), Listen::default()).unwrap();
    let begin = live.bookmark();
    let increment = Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() };
    let change = |fails_at: usize| {
        let mut partitions = 0;
        space.execute_all(
            None,
            |task| {
                partitions += 1;
                let here = task.read("order", &Wanted::all(), 1_000)?;
                for entry in &here {
                    task.change("order", id(entry), std::slice::from_ref(&increment))?;
                }
                if partitions == fails_at {
                    return Err(holdfast::Error::new(ErrorKind::Invalid, "enough"));
                }
                Ok(here.len())
            },
            |one, other| one + other,
        )
    };
    let (before, digest) = (store.stats().batches, store.digest().unwrap());
    for fails_at in [2, 9, 16] {
        assert_eq!(change(fails_at).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut partitions = 0;
        let write = |task: &mut holdfast::space::Task<'_>| {
            partitions += 1;
            assert!(partitions < 9, "a task");
            task.write("order", &Document::from_pairs([("total", 5)]), &upsert()).map(|_| ())
        };
        drop(space.execute_all(None, write, |(), ()| ()));
    }));
    assert!(panics.is_err());
    assert_eq!((store.stats().batches, store.digest().unwrap()), (before, digest), "nothing has happened");
    assert_eq!(change(0).unwrap(), 100);
    assert_eq!(store.stats().batches, before + 1);
    let all = orders.read_many(&Wanted::all(), 1_000).unwrap();
    assert!(all.iter().all(|entry| entry.version == all[0].version
        && entry.document.get("total") == Some(holdfast::space::ValueRef::I64(1))));
    // Listeners hear of it once, as the journal has it.
    let mut away = orders.listen(&Wanted::all(), Listen { from: Some(begin), ..Listen::default() }).unwrap();
    let heard = |listener: &mut holdfast::space::Listener| {
        let mut heard = Vec::new();
        while let Some(notice) = listener.poll().unwrap() {
            heard.push(notice);
        }
        heard
    };
    let told = heard(&mut live);
    assert_eq!((told.len(), &told), (100, &heard(&mut away)));
    let count =
        space.execute_all(None, |task| Ok(task.read("order", &Wanted::all(), 1_000)?.len()), |one, other| one + other);
    assert_eq!((count.unwrap(), store.stats().batches), (100, before + 1), "of nothing there is no batch");
    drop((live, away, orders, space, store));
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = store.space("shop").entries("order").unwrap();
    assert_eq!(orders.count(&Wanted::query("total = 1", &[]).unwrap()).unwrap(), 100);
}
