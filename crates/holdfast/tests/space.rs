//! The object space through the store: what is written is there, what is taken is taken once, and all of it after a restart.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast::space::{
    AtLimit, Bookmark, Definition, Document, Entries, Hears, IndexKind, Lease, Listen, NoticeKind, Order, Path,
    ReadLock, ReadOptions, Storage, Value, Wanted, WriteMode, WriteOptions,
};
use holdfast::{Durability, ErrorKind, Limits, Options, PutOptions, Store};

fn options() -> Options {
    Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() }
}

fn order(id: i64, customer: &str, total: i64) -> Document {
    Document::from_pairs([("id", Value::from(id)), ("customer", customer.into()), ("total", total.into())])
}

fn orders(store: &Store) -> Entries {
    let definition = Definition::new("shop", "order").index("customer", IndexKind::Hash).unwrap();
    store.space("shop").declare(definition.index("total", IndexKind::Ordered).unwrap()).unwrap()
}

fn ids(entries: &[holdfast::space::Entry]) -> BTreeSet<i64> {
    entries.iter().map(|entry| id(entry)).collect()
}

fn id(entry: &holdfast::space::Entry) -> i64 {
    match entry.document.get("id") {
        Some(holdfast::space::ValueRef::I64(id)) => id,
        other => panic!("no id: {other:?}"),
    }
}

fn example(customer: &str) -> Wanted {
    Wanted::template(&Document::from_pairs([("customer", customer)]))
}

fn upsert() -> WriteOptions {
    WriteOptions::default()
}

fn now() -> ReadOptions {
    ReadOptions::default()
}

fn waits(ms: u64) -> ReadOptions {
    ReadOptions { wait: Some(Duration::from_millis(ms)), ..ReadOptions::default() }
}

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
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let entries = orders(&store);
    for number in 0..300 {
        entries.write(&order(number, "ada", number), &upsert()).unwrap();
        if number % 4 == 0 {
            entries.take(&Wanted::id(number), &now()).unwrap();
        }
    }
    let digest = store.digest().unwrap();
    // The process ends without closing: what it wrote is with the operating system.
    let copy = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp").arg("-r").arg(dir.path()).arg(copy.path().join("store")).status();
    assert!(status.unwrap().success());
    let other = Store::open(copy.path().join("store"), options()).unwrap();
    assert_eq!(other.digest().unwrap(), digest);
    assert_eq!(other.space("shop").entries("order").unwrap().count(&Wanted::all()).unwrap(), 225);
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
fn one_transaction_holds_a_group_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let definition =
        Definition { order: Order::Groups(Path::parse("customer").unwrap()), ..Definition::new("shop", "step") };
    let steps = store.space("shop").declare(definition).unwrap();
    for (number, customer) in [(1, "ada"), (2, "ada"), (3, "bob"), (4, "ada")] {
        steps.write(&order(number, customer, 0), &upsert()).unwrap();
    }
    let mut first = store.begin();
    let mut second = store.begin();
    let mut third = store.begin();
    let take = |transaction: &mut holdfast::Transaction| {
        steps.within(transaction).take(&Wanted::all(), &now()).unwrap().map(|step| id(&step))
    };
    // Groups are in no order among each other.
    assert_eq!(steps.within(&mut first).take(&example("ada"), &now()).unwrap().map(|step| id(&step)), Some(1));
    assert_eq!(take(&mut second), Some(3), "the group of the first is held");
    assert_eq!(take(&mut third), None);
    assert_eq!(take(&mut first), Some(2), "who holds the group goes on in it");
    drop(first);
    assert_eq!(take(&mut third), Some(1), "what was rolled back is first again");
    third.commit(Durability::Written).unwrap();
    second.commit(Durability::Written).unwrap();
    assert_eq!(steps.take_many(&Wanted::all(), 10, &now()).unwrap().iter().map(id).collect::<Vec<_>>(), [2, 4]);
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
fn one_transaction_spans_keys_and_entries_and_shows_itself_alone_what_it_does() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = Store::open(dir.path(), options()).unwrap();
        let orders = orders(&store);
        orders.write(&order(1, "ada", 10), &upsert()).unwrap();
        let mut transaction = store.begin();
        transaction.put(b"b", b"done", b"1", &PutOptions::default()).unwrap();
        assert!(orders.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().is_some());
        assert!(orders.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().is_none(), "it is taken");
        orders.within(&mut transaction).write(&order(2, "bob", 20), &upsert()).unwrap();
        assert_eq!(orders.within(&mut transaction).count(&Wanted::all()).unwrap(), 1);
        assert!(orders.take(&Wanted::all(), &now()).unwrap().is_none(), "one is locked, one is not there yet");
        assert_eq!(orders.count(&Wanted::all()).unwrap(), 1);
        let committed = transaction.commit(Durability::Synced).unwrap();
        let entry = orders.read(&Wanted::all(), &now()).unwrap().unwrap();
        assert_eq!((id(&entry), entry.version), (2, committed.position));
        assert_eq!(store.kv().head(b"b", b"done").unwrap().unwrap().version, committed.position);
        let mut dropped = store.begin();
        assert!(orders.within(&mut dropped).take(&Wanted::id(2), &now()).unwrap().is_some());
        drop(dropped);
        assert!(orders.read(&Wanted::id(2), &now()).unwrap().is_some());
    }
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = store.space("shop").entries("order").unwrap();
    assert_eq!(ids(&orders.read_many(&Wanted::all(), 9).unwrap()), BTreeSet::from([2]));
}

#[test]
fn a_writer_waits_for_a_transaction_and_two_that_wait_for_each_other_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    orders.write(&order(2, "ada", 0), &upsert()).unwrap();
    let mut first = store.begin();
    orders.within(&mut first).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().unwrap();
    let short = WriteOptions { lock_timeout: Some(Duration::from_millis(5)), ..upsert() };
    assert_eq!(orders.write(&order(1, "eve", 0), &short).unwrap_err().kind(), ErrorKind::Timeout);
    let (told, waited) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut second = store.begin();
            orders.within(&mut second).write(&order(2, "second", 0), &upsert()).unwrap();
            let own = orders.within(&mut second).write(&order(1, "second", 0), &upsert());
            let own = own.map(|_| ()).map_err(|error| error.kind());
            own.and_then(|()| second.commit(Durability::Written).map(|_| ()).map_err(|error| error.kind()))
        });
        let theirs = orders.within(&mut first).write(&order(2, "first", 0), &upsert());
        let theirs = theirs.map(|_| ()).map_err(|error| error.kind());
        let theirs = theirs.and_then(|()| first.commit(Durability::Written).map(|_| ()).map_err(|error| error.kind()));
        (theirs, other.join().unwrap())
    });
    let customer = |number: i64| orders.read(&Wanted::id(number), &now()).unwrap().unwrap().document;
    match (told, waited) {
        (Ok(()), Err(ErrorKind::Conflict)) => assert_eq!(customer(2), order(2, "first", 0)),
        (Err(ErrorKind::Conflict), Ok(())) => assert_eq!(customer(1), order(1, "second", 0)),
        // The threads may have run one after the other.
        (Ok(()), Ok(())) => assert_eq!(customer(1), order(1, "second", 0)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_that_takes_too_long_lets_go_of_what_it_locked() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    let mut hung = store.begin().with_lease(Duration::from_millis(30));
    orders.within(&mut hung).take(&Wanted::id(1), &now()).unwrap().unwrap();
    let exists = ReadOptions { if_exists: true, ..waits(60_000) };
    assert!(orders.take(&Wanted::all(), &exists).unwrap().is_some(), "it became free");
    assert!(orders.take(&Wanted::all(), &exists).unwrap().is_none(), "there is nothing to wait for");
    assert_eq!(orders.within(&mut hung).take(&Wanted::id(1), &now()).unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(hung.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Timeout);
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
    assert!(evicts.usage().bytes <= 8 << 10 && evicts.count(&Wanted::all()).unwrap() > 10);
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

fn with_history(store: &Store) -> Entries {
    store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "order") }).unwrap()
}

/// Ids with what happened to them, until nothing comes for a moment.
fn hear(listener: &mut holdfast::space::Listener) -> Vec<(NoticeKind, i64)> {
    let mut heard = Vec::new();
    while let Some(notice) = listener.next(Duration::ZERO).unwrap() {
        let document = notice.after.or(notice.before).unwrap();
        let Some(holdfast::space::ValueRef::I64(id)) = document.get("id") else { panic!("{document:?}") };
        heard.push((notice.kind, id));
    }
    heard
}

#[test]
fn a_listener_hears_each_event_once_and_goes_on_where_it_stood() {
    use NoticeKind::{Entered, Expired, Left, Taken, Updated, Written};
    let dir = tempfile::tempdir().unwrap();
    let bookmark = {
        let store = Store::open(dir.path(), options()).unwrap();
        let orders = with_history(&store);
        orders.write(&order(0, "ada", 0), &upsert()).unwrap();
        let mut all = orders.listen(&Wanted::all(), Listen::default()).unwrap();
        let large = Wanted::query("total >= 10", &[]).unwrap();
        let mut matching = orders.listen(&large, Listen { hears: Hears::MATCHING, ..Listen::default() }).unwrap();
        orders.write(&order(1, "ada", 10), &upsert()).unwrap();
        orders.write(&order(1, "ada", 11), &upsert()).unwrap();
        orders.write(&order(1, "ada", 9), &upsert()).unwrap();
        orders.write(&order(2, "ada", 12), &upsert()).unwrap();
        orders.take(&Wanted::id(2), &now()).unwrap().unwrap();
        let heard = [(Written, 1), (Updated, 1), (Updated, 1), (Written, 2), (Taken, 2)];
        assert_eq!(hear(&mut all), heard);
        assert_eq!(hear(&mut matching), [(Entered, 1), (Left, 1), (Entered, 2), (Left, 2)]);
        let from_start = Listen { from: Some(Bookmark::START), ..Listen::default() };
        let mut late = orders.listen(&Wanted::all(), from_start.clone()).unwrap();
        assert_eq!(hear(&mut late), [&[(Written, 0)], heard.as_slice()].concat());
        // One that stops within a batch goes on within it.
        let mut transaction = store.begin();
        for number in 10..20 {
            orders.within(&mut transaction).write(&order(number, "bob", 0), &upsert()).unwrap();
        }
        transaction.commit(Durability::Written).unwrap();
        let mut first: Vec<i64> =
            (0..4).map(|_| all.next(Duration::ZERO).unwrap().unwrap()).map(|notice| notice_id(&notice)).collect();
        let text = all.bookmark().to_string();
        let go_on = Listen { from: Some(text.parse().unwrap()), ..Listen::default() };
        let rest = hear(&mut orders.listen(&Wanted::all(), go_on).unwrap());
        first.extend(rest.iter().map(|(_, id)| *id));
        first.sort_unstable();
        assert_eq!(first, (10..20).collect::<Vec<_>>());
        hear(&mut all);
        let lease = WriteOptions { lease: Lease::For(Duration::from_millis(1)), ..upsert() };
        orders.write(&order(30, "eve", 0), &lease).unwrap();
        assert_eq!(hear(&mut all).first(), Some(&(Written, 30)));
        let bookmark = all.bookmark();
        while orders.usage().entries > 12 {
            std::thread::yield_now();
        }
        bookmark
    };
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = store.space("shop").entries("order").unwrap();
    orders.write(&order(31, "eve", 0), &upsert()).unwrap();
    let mut back = orders.listen(&Wanted::all(), Listen { from: Some(bookmark), ..Listen::default() }).unwrap();
    let heard = hear(&mut back);
    assert!(heard.ends_with(&[(Expired, 30), (Written, 31)]), "{heard:?}");
}

fn notice_id(notice: &holdfast::space::Notice) -> i64 {
    match notice.after.as_ref().and_then(|document| document.get("id")) {
        Some(holdfast::space::ValueRef::I64(id)) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slow_listener_harms_nobody_and_misses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = with_history(&store);
    let small = Listen { buffer_events: 5, ..Listen::default() };
    let mut slow = orders.listen(&Wanted::all(), small).unwrap();
    let mut newest = orders.listen(&Wanted::all(), Listen { conflate: true, ..Listen::default() }).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let orders = &orders;
            scope.spawn(move || {
                for number in 0..400 {
                    orders.write(&order(writer, "ada", number), &upsert()).unwrap();
                }
            });
        }
        let mut last = [-1; 3];
        let mut count = 0;
        while count < 1200 {
            let Some(notice) = slow.next(Duration::from_secs(20)).unwrap() else { panic!("after {count}: nothing") };
            let after = notice.after.clone().unwrap();
            let Some(holdfast::space::ValueRef::I64(total)) = after.get("total") else { panic!("{after:?}") };
            let writer = usize::try_from(notice_id(&notice)).unwrap();
            assert_eq!(total, last[writer] + 1, "each writer's events in order, none missing, none twice");
            last[writer] = total;
            count += 1;
        }
    });
    assert_eq!(slow.next(Duration::ZERO).unwrap(), None);
    let heard = hear(&mut newest);
    assert_eq!(heard.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>().len(), heard.len(), "one of each entry");
}

#[test]
fn what_a_listener_cannot_hear_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let plain = orders(&store);
    let kind = |listen: Listen| plain.listen(&Wanted::all(), listen).map(|_| ()).map_err(|error| error.kind());
    assert_eq!(kind(Listen::default()), Err(ErrorKind::Invalid), "updates need history");
    let hears = Hears { updated: false, ..Hears::ALL };
    assert_eq!(kind(Listen { hears, ..Listen::default() }), Ok(()));
    let ahead = "99999999999.0".parse().unwrap();
    assert_eq!(kind(Listen { hears, from: Some(ahead), ..Listen::default() }), Err(ErrorKind::Invalid));
    assert!("12".parse::<Bookmark>().is_err() && "x.1".parse::<Bookmark>().is_err());
}
