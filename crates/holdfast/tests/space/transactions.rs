//! Transactions and tasks.

use base::Clock;
use holdfast::space::{Cancel, Change, Lease, Order, Path, ReadLock, WantedBy};
use holdfast::{ErrorKind, Position, PutOptions, Shown};

use super::*;

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

/// A page that looked at the head of a group in a transaction had others take what stood behind it.
#[test]
fn who_reads_the_first_of_a_group_under_a_lock_has_nobody_overtake_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let definition =
        Definition { order: Order::Groups(Path::parse("customer").unwrap()), ..Definition::new("shop", "step") };
    let steps = store.space("shop").declare(definition).unwrap();
    for (number, customer) in [(1, "ada"), (2, "ada"), (3, "bob"), (4, "ada")] {
        steps.write(&order(number, customer, 0), &upsert()).unwrap();
    }
    let mut reader = store.begin();
    let locked = steps.within(&mut reader).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap();
    assert!(locked.is_some());
    assert_eq!(steps.take(&example("ada"), &now()).unwrap(), None);
    assert_eq!(steps.take_many(&example("ada"), 10, &now()).unwrap(), []);
    let mut taker = store.begin();
    assert_eq!(steps.within(&mut taker).take(&example("ada"), &now()).unwrap(), None);
    assert_eq!(
        steps.within(&mut taker).take(&Wanted::all(), &now()).unwrap().map(|it| id(&it)),
        Some(3),
        "others go on"
    );
    // Whoever only reads, under a lock too, is in nobody's way; and what stands before it is in order.
    assert_eq!(
        steps.within(&mut taker).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().map(|it| id(&it)),
        Some(1)
    );
    drop(taker);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| steps.take(&example("ada"), &waits(20_000)).unwrap().map(|it| id(&it)));
        while steps.waiters() == 0 {
            std::thread::yield_now();
        }
        // One that is written meanwhile is not given to who waits for the first.
        steps.write(&order(5, "ada", 0), &upsert()).unwrap();
        drop(reader);
        assert_eq!(waiting.join().unwrap(), Some(1));
    });
    let mut reader = store.begin();
    steps.within(&mut reader).read(&Wanted::id(4), ReadLock::Shared, &now()).unwrap().unwrap();
    let taken = steps.take_many(&example("ada"), 10, &now()).unwrap();
    assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), [2], "up to the one that is locked");
}

/// Points that a transaction of the library wrote went into a database without a name, where no question finds them.
#[test]
fn points_of_a_transaction_are_in_the_database_default() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let mut transaction = store.begin();
    let rows = transaction.points();
    let row = rows.row(b"orders", |_| Ok(("orders".into(), Vec::new()))).unwrap();
    let slot = rows.field(row, 0, b"value", |_| Ok("value".into())).unwrap();
    rows.push_float(slot, 1_000, 1.0);
    transaction.commit(Durability::Written).unwrap();
    use holdfast::series::{Select, Source as _};
    let found = store.series().reader().series(&Select::metric("default", "orders")).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(store.begin().points().len(), 0);
    assert!(store.begin().commit(Durability::Written).is_ok());
}

/// Who waited for an entry of a group was not told when the one before it in the group was taken by a transaction: nobody had
/// written or let go of the entry that was free then.
#[test]
fn the_end_of_one_entry_of_a_group_serves_who_waits_for_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let definition =
        Definition { order: Order::Groups(Path::parse("customer").unwrap()), ..Definition::new("shop", "step") };
    let steps = store.space("shop").declare(definition).unwrap();
    for number in 1..=4 {
        steps.write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    let waits_for_next = |end: &dyn Fn(holdfast::Transaction), first: i64, next: i64| {
        let mut holder = store.begin();
        assert_eq!(steps.within(&mut holder).take(&Wanted::all(), &now()).unwrap().map(|it| id(&it)), Some(first));
        steps.within(&mut holder).take(&Wanted::all(), &now()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut transaction = store.begin();
                let taken = steps.within(&mut transaction).take(&Wanted::all(), &waits(20_000)).unwrap();
                taken.map(|entry| id(&entry))
            });
            while steps.waiters() == 0 {
                std::thread::yield_now();
            }
            end(holder);
            assert_eq!(waiting.join().unwrap(), Some(next));
        });
    };
    waits_for_next(&drop, 1, 1);
    let commits = |transaction: holdfast::Transaction| {
        transaction.commit(Durability::Written).unwrap();
    };
    waits_for_next(&commits, 1, 3);
}

/// An entry that was written while the one before it in its group was let go of went to who waited, out of order.
#[test]
fn an_entry_that_comes_while_its_group_becomes_free_overtakes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let definition =
        Definition { order: Order::Groups(Path::parse("customer").unwrap()), ..Definition::new("shop", "step") };
    let steps = store.space("shop").declare(definition).unwrap();
    for round in 0..200 {
        steps.write(&order(2 * round, "ada", 0), &upsert()).unwrap();
        let mut holder = store.begin();
        steps.within(&mut holder).take(&Wanted::all(), &now()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut transaction = store.begin();
                let taken = steps.within(&mut transaction).take(&Wanted::all(), &waits(20_000)).unwrap();
                taken.map(|entry| id(&entry))
            });
            while steps.waiters() == 0 {
                std::thread::yield_now();
            }
            let written = scope.spawn(|| steps.write(&order(2 * round + 1, "ada", 0), &upsert()).unwrap());
            drop(holder);
            assert_eq!(waiting.join().unwrap(), Some(2 * round));
            written.join().unwrap();
        });
        assert_eq!(steps.clear(&Wanted::all(), None).unwrap(), 2);
    }
}

/// A commit let go of what it had only read while it had other partitions locked, in whatever order: two of them could wait for
/// each other for ever.
#[test]
fn transactions_that_read_in_one_partition_and_write_in_another_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    (0..64).for_each(|number| drop(orders.write(&order(number, "ada", 0), &upsert()).unwrap()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, orders) = (&store, &orders);
            scope.spawn(move || {
                for round in 0..300_i64 {
                    let mut transaction = store.begin();
                    for step in 0..4 {
                        let number = thread * 16 + (round * 7 + step * 5) % 16;
                        let lock = ReadLock::Exclusive;
                        orders.within(&mut transaction).read(&Wanted::id(number), lock, &now()).unwrap();
                        if step % 2 == round % 2 {
                            orders.within(&mut transaction).write(&order(number, "bob", round), &upsert()).unwrap();
                        }
                    }
                    transaction.commit(Durability::Written).unwrap();
                }
            });
        }
    });
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
fn a_task_runs_beside_the_data_and_is_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("shop");
    let by_customer = Some(Path::parse("customer").unwrap());
    let orders = space.declare(Definition { routing: by_customer, ..Definition::new("shop", "order") }).unwrap();
    let customers = space.declare(Definition::new("shop", "customer")).unwrap();
    let add = |by: i64| Change::Increment { path: Path::parse("open").unwrap(), by: by.into() };
    for customer in ["ada", "bob"] {
        customers.write(&Document::from_pairs([("id", customer)]), &upsert()).unwrap();
        for number in 0..5 {
            let number = number + if customer == "ada" { 0 } else { 10 };
            orders.write(&order(number, customer, 7), &upsert()).unwrap();
        }
    }
    let before = store.stats().batches;
    let sum = space.execute(&"ada".into(), None, |task| {
        let mut sum = 0;
        for entry in task.read("order", &example("ada"), 100)? {
            sum += 7;
            task.take("order", id(&entry))?;
        }
        assert!(task.read("order", &example("ada"), 100)?.is_empty());
        task.change("customer", "ada", &[add(sum)])?;
        task.write("order", &order(99, "ada", sum), &upsert())?;
        assert_eq!(task.get("order", 99)?.map(|entry| id(&entry)), Some(99));
        Ok(sum)
    });
    assert_eq!((sum.unwrap(), store.stats().batches), (35, before + 1));
    assert_eq!(ids(&orders.read_many(&example("ada"), 9).unwrap()), BTreeSet::from([99]));
    let failed = space.execute(&"bob".into(), None, |task| {
        task.take("order", 10)?;
        task.write("order", &order(50, "ada", 0), &upsert()).map(|_| ())
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Invalid, "it lies elsewhere");
    assert_eq!(orders.count(&example("bob")).unwrap(), 5, "and nothing happened");
    let count = space.execute_all(None, |task| Ok(task.read("order", &Wanted::all(), 1000)?.len()), |a, b| a + b);
    assert_eq!(count.unwrap(), 6);
    let many = orders.change_many(&example("bob"), &[Change::Unset { path: Path::parse("total").unwrap() }], &upsert());
    assert_eq!(many.unwrap(), 5);
    assert_eq!(orders.count(&Wanted::query("total IS NULL", &[]).unwrap()).unwrap(), 5);
    // Without an id an entry gets one with which it lies where the task runs, and the transaction of nobody else's partition is entered.
    let notes = space.declare(Definition::new("shop", "note")).unwrap();
    for number in 0..64 {
        let note = Document::from_pairs([("text", "n")]);
        let routing = Value::from(number);
        let made = space.execute(&routing, None, |task| {
            let made = task.write("note", &note, &upsert())?;
            assert!(task.get("note", made.clone())?.is_some());
            Ok(made)
        });
        let made = made.unwrap();
        assert!(notes.read(&Wanted::id(made.clone()), &ReadOptions::default()).unwrap().is_some());
        let again = space.execute(&routing, None, |task| task.take("note", made));
        assert!(again.unwrap().is_some(), "it lies where the routing value says");
    }
    let lacks = space
        .execute(&"bob".into(), None, |task| task.write("order", &Document::from_pairs([("total", 1)]), &upsert()));
    assert!(lacks.unwrap_err().to_string().contains("lacks customer"));
    space.register("open", |task, name| {
        let Value::String(name) = name else { return Ok(Value::Null) };
        let customer = task.get("customer", name.as_str())?;
        Ok(customer.and_then(|it| it.document.get("open").map(holdfast::space::ValueRef::to_value)).unwrap_or_default())
    });
    assert_eq!(space.call("open", &"ada".into(), &"ada".into(), None).unwrap(), Value::from(35));
    assert_eq!(space.call("close", &1.into(), &Value::Null, None).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn what_is_changed_together_keeps_to_the_limit_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("shop");
    let limited = Definition { memory_bytes_max: 2000, order: Order::Fifo, ..Definition::new("shop", "order") };
    let orders = space.declare(limited).unwrap();
    let mut transaction = store.begin();
    for number in 0..40 {
        orders.within(&mut transaction).write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    assert_eq!(transaction.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 0);
    let mut transaction = store.begin();
    for number in 0..5 {
        orders.within(&mut transaction).write(&order(number, "ada", 0), &upsert()).unwrap();
    }
    transaction.commit(Durability::Written).unwrap();
    let ordered = Wanted::query("total = 0 ORDER BY id DESC", &[]).unwrap();
    assert_eq!(orders.take(&ordered, &now()).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(orders.clear(&ordered, None).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(orders.clear(&Wanted::query("total = 0 LIMIT 2", &[]).unwrap(), None).unwrap(), 2);
}

#[test]
fn an_entry_is_changed_within_a_transaction_and_by_nobody_else_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 10), &upsert()).unwrap();
    let more = [Change::Increment { path: Path::parse("total").unwrap(), by: 5.into() }];
    let mut transaction = store.begin();
    let changed = orders.within(&mut transaction).change(&Wanted::id(1), &more, &upsert()).unwrap().unwrap();
    assert_eq!((changed.before.document, changed.now.document), (order(1, "ada", 10), order(1, "ada", 15)));
    let twice = orders.within(&mut transaction).change(&Wanted::id(1), &more, &upsert()).unwrap().unwrap();
    assert_eq!(twice.now.document, order(1, "ada", 20));
    assert_eq!(orders.within(&mut transaction).change(&Wanted::id(2), &more, &upsert()).unwrap(), None);
    let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..upsert() };
    let mut other = store.begin();
    let kinds = [
        orders.within(&mut other).change(&Wanted::id(1), &more, &at_once).unwrap_err().kind(),
        orders.within(&mut other).change(&Wanted::all(), &more, &at_once).unwrap_err().kind(),
        orders.change(&Wanted::id(1), &more, &at_once).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Timeout, ErrorKind::Invalid, ErrorKind::Timeout]);
    let committed = transaction.commit(Durability::Written).unwrap();
    let entry = orders.read(&Wanted::id(1), &now()).unwrap().unwrap();
    assert_eq!((entry.document, entry.version), (order(1, "ada", 20), committed.position));
    // What it takes is there no more, also for itself.
    let mut transaction = store.begin();
    orders.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().unwrap();
    assert_eq!(orders.within(&mut transaction).change(&Wanted::id(1), &more, &at_once).unwrap(), None);
}

#[test]
fn what_is_wanted_says_what_it_was_made_of() {
    let example = order(1, "ada", 10);
    let wanted = Wanted::template(&example).routed("r");
    assert!(matches!(wanted.by(), WantedBy::Template(template) if *template == example));
    assert_eq!((wanted.routing(), wanted.by_id()), (Some(&"r".into()), None));
    let query = Wanted::query("total > ?", &[7.into()]).unwrap();
    assert!(
        matches!(query.by(), WantedBy::Query { sql, parameters } if &**sql == "total > ?" && **parameters == [7.into()])
    );
    assert!(matches!(Wanted::id(7).by(), WantedBy::All));
    assert_eq!(Wanted::id(7).by_id(), Some(&7.into()));
}

#[test]
fn a_cancel_wakes_futures_that_look_at_it() {
    struct Woken(std::sync::atomic::AtomicUsize);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let (cancel, woken) = (Cancel::new(), Arc::new(Woken(0.into())));
    let waker = std::task::Waker::from(Arc::clone(&woken));
    cancel.wake_with(&waker);
    cancel.wake_with(&waker);
    assert_eq!(woken.0.load(std::sync::atomic::Ordering::SeqCst), 0);
    cancel.cancel();
    assert_eq!(woken.0.load(std::sync::atomic::Ordering::SeqCst), 1, "once, however often it was left");
    cancel.wake_with(&waker);
    assert_eq!(woken.0.load(std::sync::atomic::Ordering::SeqCst), 2, "at once when it was used");
}

/// An entry that a transaction had locked was passed over by who read one, and not by who read many.
#[test]
fn reading_shows_what_was_committed_last_whoever_has_it_locked() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 10), &upsert()).unwrap();
    let total = |entry: Option<holdfast::space::Entry>| entry.unwrap().document.get("total").map(|it| it.to_value());
    let by_query = Wanted::query("customer = 'ada'", &[]).unwrap();
    let mut holder = store.begin();
    orders.within(&mut holder).write(&order(1, "ada", 20), &upsert()).unwrap();
    let mut other = store.begin();
    for wanted in [Wanted::id(1), by_query, Wanted::all()] {
        assert_eq!(total(orders.read(&wanted, &now()).unwrap()), Some(10.into()));
        assert_eq!(total(orders.within(&mut other).read(&wanted, ReadLock::None, &now()).unwrap()), Some(10.into()));
        assert_eq!(orders.within(&mut other).read(&wanted, ReadLock::Shared, &now()).unwrap(), None, "who locks waits");
        assert_eq!(orders.take(&wanted, &now()).unwrap(), None, "who takes waits too");
        assert_eq!(total(orders.within(&mut holder).read(&wanted, ReadLock::None, &now()).unwrap()), Some(20.into()));
    }
    holder.commit(Durability::Written).unwrap();
    assert_eq!(total(orders.read(&Wanted::id(1), &now()).unwrap()), Some(20.into()));
    // Of a group that somebody holds too.
    let groups = Order::Groups(Path::parse("customer").unwrap());
    let jobs = store.space("shop").declare(Definition { order: groups, ..Definition::new("shop", "job") }).unwrap();
    jobs.write(&order(1, "ada", 1), &upsert()).unwrap();
    jobs.write(&order(2, "ada", 2), &upsert()).unwrap();
    let mut holder = store.begin();
    jobs.within(&mut holder).take(&Wanted::all(), &now()).unwrap().unwrap();
    assert_eq!(jobs.take(&Wanted::all(), &now()).unwrap(), None);
    assert_eq!(total(jobs.read(&Wanted::all(), &now()).unwrap()), Some(1.into()));
}

/// Who waited for a lock did not hear of being canceled.
#[test]
fn waiting_for_a_lock_ends_when_it_is_canceled() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 10), &upsert()).unwrap();
    let mut holder = store.begin();
    orders.within(&mut holder).take(&Wanted::id(1), &now()).unwrap().unwrap();
    let clock = base::OsClock::new();
    for round in 0..50 {
        let cancel = holdfast::space::Cancel::new();
        let wait = Some(Duration::from_secs(60));
        let waits = ReadOptions { wait, if_exists: true, cancel: Some(cancel.clone()), ..ReadOptions::default() };
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| orders.take(&Wanted::id(1), &waits).unwrap());
            (0..round * 20).for_each(|_| std::thread::yield_now());
            cancel.cancel();
            assert_eq!(taking.join().unwrap(), None);
        });
    }
    assert!(clock.now().since(base::Time::default()) < Duration::from_secs(55), "none waited for its time to end");
}

/// What was taken durably was dropped with the error of what was taken after it.
#[test]
fn what_was_taken_durably_is_not_lost_when_the_disk_refuses_the_rest() {
    let (disk, ledgers) = (base::memory::Disk::new(7), MemoryLedgers::new());
    let options = Options { durability: Durability::Synced, ..options() };
    let store = Store::open_in(&world(&disk, &ledgers), std::path::Path::new("/s"), options).unwrap();
    let orders = orders(&store);
    for id in 1..=3 {
        orders.write(&order(id, "ada", id), &upsert()).unwrap();
    }
    let take = |id: i64| {
        let shown = orders.take_shown(&Wanted::id(id), &now()).unwrap();
        Shown { value: shown.value.unwrap(), position: shown.position }
    };
    let first = take(1);
    store.wait(first.position, Durability::Synced).unwrap();
    let rest = [take(2), take(3)];
    disk.plan(0, base::memory::Fault::Error);
    let [second, third] = rest;
    let kept =
        orders.taken(vec![first.clone(), second.clone(), third], Position::ZERO, Some(Durability::Synced)).unwrap();
    assert_eq!(kept, [first.value]);
    assert_eq!(orders.taken(vec![second], Position::ZERO, None).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// The transaction wrote the entry with the lease that it had found, and what had been renewed for ever ended.
#[test]
fn a_renewal_waits_for_the_transaction_that_would_take_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let short = Lease::For(Duration::from_secs(60));
    orders.write(&order(1, "ada", 1), &WriteOptions { lease: short, ..upsert() }).unwrap();
    let mut transaction = store.begin();
    let change = [Change::Increment { path: Path::parse("total").unwrap(), by: 1i64.into() }];
    orders.within(&mut transaction).change(&Wanted::id(1), &change, &upsert()).unwrap().unwrap();
    let at_once = orders.renew_shown(
        &Wanted::id(1),
        &WriteOptions { lease: Lease::Forever, lock_timeout: Some(Duration::ZERO), ..upsert() },
    );
    assert_eq!(at_once.map(|shown| shown.value).unwrap_err().kind(), ErrorKind::Timeout);
    std::thread::scope(|scope| {
        let renewing = scope.spawn(|| orders.renew(&Wanted::id(1), Lease::Forever, None).unwrap());
        transaction.commit(Durability::Written).unwrap();
        assert!(renewing.join().unwrap());
    });
    let entry = orders.read(&Wanted::id(1), &now()).unwrap().unwrap();
    assert_eq!((entry.document, entry.expires_ms), (order(1, "ada", 2), None));
}

/// They waited for each other until the time of both was out, and both got nothing.
#[test]
fn transactions_that_wait_to_take_what_the_other_has_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    for id in [1, 2] {
        orders.write(&order(id, "ada", 0), &upsert()).unwrap();
    }
    let holds = |id: i64| {
        let mut transaction = store.begin();
        orders.within(&mut transaction).read(&Wanted::id(id), ReadLock::Exclusive, &now()).unwrap().unwrap();
        transaction
    };
    let take = |mut transaction: holdfast::Transaction, id: i64| {
        let taken = orders.within(&mut transaction).take(&Wanted::id(id), &waits(20_000));
        taken.map(|entry| entry.is_some()).map_err(|error| error.kind())
    };
    let (first, second) = (holds(1), holds(2));
    let mut outcomes = std::thread::scope(|scope| {
        let other = scope.spawn(|| take(second, 1));
        let this = take(first, 2);
        [this, other.join().unwrap()]
    });
    outcomes.sort_by_key(Result::is_ok);
    assert_eq!(outcomes, [Err(ErrorKind::Conflict), Ok(true)], "one is told, and the other goes on");
    // Who waited no longer stands in nobody's way.
    let (mut first, mut second) = (holds(1), holds(2));
    assert_eq!(orders.within(&mut first).take(&Wanted::id(2), &waits(1)).unwrap(), None);
    assert_eq!(orders.within(&mut second).take(&Wanted::id(1), &waits(1)).unwrap(), None);
}

/// The deadlock was seen in the lock of another entry that lay in the place of the one that was waited for.
#[test]
fn who_waits_for_an_entry_that_is_gone_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    // In order of their own all lie in one partition.
    let orders = store.space("shop").declare(Definition { order: Order::Fifo, ..Definition::new("shop", "order") });
    let orders = orders.unwrap();
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    orders.write(&order(2, "ada", 0), &upsert()).unwrap();
    let mut gone = store.begin();
    orders.within(&mut gone).take(&Wanted::id(2), &now()).unwrap().unwrap();
    std::thread::scope(|scope| {
        let waits_for_second = scope.spawn(|| {
            let mut waiting = store.begin();
            orders.within(&mut waiting).take(&Wanted::id(1), &now()).unwrap().unwrap();
            orders.within(&mut waiting).take(&Wanted::id(2), &waits(60_000)).unwrap().map(|it| id(&it))
        });
        while orders.waiters() == 0 {
            std::thread::yield_now();
        }
        // That it waits is noted just behind this.
        let noted = store.now_ms() + 20;
        while store.now_ms() < noted {
            std::thread::yield_now();
        }
        gone.commit(Durability::Written).unwrap();
        orders.write(&order(3, "bob", 0), &upsert()).unwrap();
        let mut other = store.begin();
        orders.within(&mut other).take(&Wanted::id(3), &now()).unwrap().unwrap();
        let taken = orders.within(&mut other).take(&Wanted::id(1), &waits(5)).map(|it| it.map(|it| id(&it)));
        let written = orders.write(&order(2, "eve", 0), &upsert());
        assert_eq!(waits_for_second.join().unwrap(), Some(2));
        assert_eq!(taken.unwrap(), None, "it is locked, and its holder does not wait for this one");
        written.unwrap();
    });
}

#[test]
fn changing_many_waits_for_all_locks_as_long_as_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    // In order of their own they are changed in it.
    let orders = store.space("shop").declare(Definition { order: Order::Fifo, ..Definition::new("shop", "order") });
    let orders = orders.unwrap();
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    orders.write(&order(2, "ada", 0), &upsert()).unwrap();
    // The second goes behind the end of the waiting, and not so far behind that who waited anew would not get it.
    let holding = [(1, 600), (2, 1_500)].map(|(number, lease_ms)| {
        let mut holder = store.begin().with_lease(Duration::from_millis(lease_ms));
        orders.within(&mut holder).read(&Wanted::id(number), ReadLock::Exclusive, &now()).unwrap().unwrap();
        holder
    });
    let options = WriteOptions { lock_timeout: Some(Duration::from_millis(1_000)), ..upsert() };
    let unset = [Change::Unset { path: Path::parse("total").unwrap() }];
    let changed = orders.change_many(&Wanted::all(), &unset, &options);
    assert_eq!(changed.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(orders.count(&Wanted::query("total IS NULL", &[]).unwrap()).unwrap(), 1, "the first became free");
    drop(holding);
}
