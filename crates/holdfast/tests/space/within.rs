//! Queries, changes of many and renewals within a transaction.

use base::Random;
use holdfast::space::{Change, Lease, Listen, NoticeKind, Order, Path, ReadLock};
use holdfast::{ErrorKind, Position, Transaction};

use super::*;

fn add(path: &str, by: i64) -> Change {
    Change::Increment { path: Path::parse(path).unwrap(), by: by.into() }
}

/// Orders 0 to 29, of two customers in turn.
fn thirty(store: &Store) -> Entries {
    let orders = orders(store);
    for number in 0..30 {
        orders.write(&order(number, ["ada", "bob"][number as usize % 2], number % 11), &upsert()).unwrap();
    }
    orders
}

/// Does something to an entry or some within the transaction.
fn happens(random: &mut Random, orders: &Entries, transaction: &mut Transaction) {
    let number = i64::try_from(random.below(40)).unwrap();
    let customer = ["ada", "bob", "eve"][usize::try_from(random.below(3)).unwrap()];
    let mut within = orders.within(transaction);
    match random.below(6) {
        0 => drop(within.take(&Wanted::id(number), &now()).unwrap()),
        1 => drop(within.change(&Wanted::id(number), &[add("total", 7)], &upsert()).unwrap()),
        2 => drop(within.renew(&Wanted::id(number), Lease::For(Duration::from_secs(1000)), None).unwrap()),
        3 => {
            let some = Wanted::query("customer = ? AND total > ?", &[customer.into(), number.into()]).unwrap();
            within.change_many(&some, &[add("total", -3)], &upsert(), 100).unwrap();
        }
        _ => drop(within.write(&order(number, customer, number % 7), &upsert()).unwrap()),
    }
}

/// What a transaction sees by any query is what all see when it has committed.
#[test]
fn a_query_within_a_transaction_answers_what_all_see_behind_its_commit() {
    const QUERIES: [&str; 9] = [
        "SELECT count(*) AS n, sum(total) AS sum, min(total) AS least, max(id) AS last FROM order",
        "SELECT customer, count(*) AS n, avg(total) AS mean FROM order GROUP BY customer ORDER BY customer",
        "SELECT customer, sum(total) AS sum FROM order GROUP BY customer HAVING count(*) > 3 ORDER BY sum DESC, customer LIMIT 2",
        "SELECT id, total FROM order WHERE total BETWEEN 2 AND 9 ORDER BY total DESC, id LIMIT 5 OFFSET 3",
        "SELECT * FROM order WHERE customer = 'ada' ORDER BY id",
        "SELECT id AS number FROM order WHERE customer = 'bob' OR total > 8 ORDER BY id DESC",
        "SELECT count(DISTINCT total) AS n FROM order WHERE id > 10",
        "SELECT total, count(*) AS n FROM order GROUP BY total ORDER BY total LIMIT 3 OFFSET 1",
        "total < 0 ORDER BY id LIMIT 0",
    ];
    let mut random = Random::new(5);
    for _ in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), options()).unwrap();
        let orders = thirty(&store);
        let mut transaction = store.begin();
        (0..20).for_each(|_| happens(&mut random, &orders, &mut transaction));
        let before = QUERIES.map(|sql| orders.select(sql, &[]).unwrap());
        let within = QUERIES.map(|sql| orders.within(&mut transaction).select(sql, &[]).unwrap());
        assert_eq!(QUERIES.map(|sql| orders.select(sql, &[]).unwrap()), before, "nobody else sees any of it");
        transaction.commit(Durability::Written).unwrap();
        for ((sql, within), after) in
            QUERIES.iter().zip(within).zip(QUERIES.map(|sql| orders.select(sql, &[]).unwrap()))
        {
            assert_eq!(within, after, "{sql}");
        }
    }
}

#[test]
fn a_query_within_a_transaction_locks_nothing_and_is_refused_as_outside() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    (1..=5).for_each(|number| drop(orders.write(&order(number, "ada", number), &upsert()).unwrap()));
    let mut other = store.begin();
    orders.within(&mut other).take(&Wanted::id(1), &now()).unwrap().unwrap();
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    let count = |rows: Vec<Document>| rows[0].get("n").map(|n| n.to_value());
    let sql = "SELECT count(*) AS n FROM order WHERE total > ?";
    assert_eq!(count(within.select(sql, &[0.into()]).unwrap()), Some(5u64.into()), "what others take is there still");
    for (sql, parameters) in [("SELECT", 0), ("total > ?", 0), ("total > 1", 1), ("SELECT * FROM other", 0)] {
        let parameters = vec![Value::from(1); parameters];
        let refused = within.select(sql, &parameters).unwrap_err();
        assert_eq!(refused.to_string(), orders.select(sql, &parameters).unwrap_err().to_string());
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{sql}");
    }
    assert_eq!(within.select_up_to("SELECT id FROM order ORDER BY id", &[], 2).unwrap().len(), 2);
    let explain = "EXPLAIN SELECT * FROM order WHERE total = 3";
    assert_eq!(within.select(explain, &[]).unwrap(), orders.select(explain, &[]).unwrap());
    // Nothing is in the way of those who change what was seen.
    let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..upsert() };
    orders.change(&Wanted::id(2), &[add("total", 1)], &at_once).unwrap().unwrap();
    transaction.commit(Durability::Written).unwrap();
}

#[test]
fn all_that_a_transaction_changes_is_locked_before_the_first_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    (1..=5).for_each(|number| drop(orders.write(&order(number, "ada", number), &upsert()).unwrap()));
    let mut other = store.begin();
    orders.within(&mut other).read(&Wanted::id(4), ReadLock::Exclusive, &now()).unwrap().unwrap();
    let mut transaction = store.begin();
    let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..upsert() };
    let sum = |transaction: &mut Transaction| {
        let rows = orders.within(transaction).select("SELECT sum(total) AS sum FROM order", &[]).unwrap();
        rows[0].get("sum").map(|sum| sum.to_value())
    };
    let refused = orders.within(&mut transaction).change_many(&Wanted::all(), &[add("total", 100)], &at_once, 10);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(sum(&mut transaction), Some(15.into()), "none was changed");
    let refused = orders.within(&mut transaction).change_many(&Wanted::all(), &[add("total", 100)], &at_once, 4);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Limit);
    drop(other);
    let mut within = orders.within(&mut transaction);
    assert_eq!(within.change_many(&Wanted::all(), &[add("total", 100)], &at_once, 5).unwrap(), 5);
    let limited = Wanted::query("total > 100 ORDER BY total DESC LIMIT 2", &[]).unwrap();
    assert_eq!(within.change_many(&limited, &[add("total", 1000)], &at_once, 5).unwrap(), 2);
    assert_eq!(sum(&mut transaction), Some(2515.into()));
    let changed = orders.change(&Wanted::id(2), &[add("total", 1)], &at_once);
    assert_eq!(changed.unwrap_err().kind(), ErrorKind::Timeout, "others wait");
    drop(transaction);
    assert_eq!(sum(&mut store.begin()), Some(15.into()));
}

#[test]
fn a_lease_is_renewed_when_the_transaction_commits_and_that_is_no_event() {
    let (store, clock) = with_clock();
    let orders = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "order") }).unwrap();
    let lease = |ms| Lease::For(Duration::from_millis(ms));
    for number in 1..=3 {
        orders.write(&order(number, "ada", 0), &WriteOptions { lease: lease(1_000), ..upsert() }).unwrap();
    }
    let mut listener = orders.listen(&Wanted::all(), Listen::default()).unwrap();
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    assert!(within.renew(&Wanted::id(1), lease(10_000), None).unwrap());
    assert!(within.renew(&Wanted::id(2), Lease::Forever, None).unwrap());
    assert!(within.renew(&Wanted::id(2), lease(5_000), None).unwrap(), "what it has renewed is renewed again");
    within.change(&Wanted::id(3), &[add("total", 1)], &upsert()).unwrap().unwrap();
    assert!(within.renew(&Wanted::id(3), Lease::Forever, None).unwrap(), "and what it has changed");
    assert!(!within.renew(&Wanted::id(4), Lease::Forever, None).unwrap());
    assert_eq!(within.renew(&Wanted::all(), Lease::Forever, None).unwrap_err().kind(), ErrorKind::Invalid);
    let expiries = |entries: &Entries| {
        let all = entries.read_many(&Wanted::query("id > 0 ORDER BY id", &[]).unwrap(), 10).unwrap();
        all.iter().map(|entry| entry.expires_ms.map(|ms| ms - 1_700_000_000_000)).collect::<Vec<_>>()
    };
    assert_eq!(expiries(&orders), [Some(1_000), Some(1_000), Some(1_000)], "not before it commits");
    let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..upsert() };
    assert_eq!(orders.write(&order(1, "bob", 0), &at_once).unwrap_err().kind(), ErrorKind::Timeout);
    transaction.commit(Durability::Written).unwrap();
    assert_eq!(expiries(&orders), [Some(10_000), Some(5_000), None]);
    let notices: Vec<_> = std::iter::from_fn(|| listener.poll().unwrap()).map(|notice| notice.kind).collect();
    assert_eq!(notices, [NoticeKind::Updated], "of what was changed");
    clock.advance(Duration::from_millis(6_000));
    let left = orders.read_many(&Wanted::query("id > 0 ORDER BY id", &[]).unwrap(), 10).unwrap();
    assert_eq!(ids(&left), BTreeSet::from([1, 3]));
    // What is written after it was renewed is written, and taken after that gone.
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    assert!(within.renew(&Wanted::id(1), Lease::Forever, None).unwrap());
    within.write(&order(1, "eve", 9), &upsert()).unwrap();
    assert!(within.renew(&Wanted::id(3), lease(1), None).unwrap());
    within.take(&Wanted::id(3), &now()).unwrap().unwrap();
    assert!(!within.renew(&Wanted::id(3), lease(1), None).unwrap());
    transaction.commit(Durability::Written).unwrap();
    let left = orders.read_many(&Wanted::all(), 10).unwrap();
    assert_eq!(left.iter().map(|entry| entry.document.clone()).collect::<Vec<_>>(), [order(1, "eve", 9)]);
    assert_eq!(left[0].expires_ms, None);
    // A renewal alone is a batch of its own.
    let mut transaction = store.begin();
    assert!(orders.within(&mut transaction).renew(&Wanted::id(1), lease(77_000), None).unwrap());
    transaction.commit(Durability::Written).unwrap();
    assert_eq!(expiries(&orders), [Some(83_000)]);
}

/// A clock that goes on whenever somebody looks at it.
struct Ticking {
    clock: base::ManualClock,
    step: Duration,
}

impl base::Clock for Ticking {
    fn now(&self) -> base::Time {
        self.clock.now()
    }

    fn wall_ms(&self) -> u64 {
        self.clock.advance(self.step);
        self.clock.wall_ms()
    }
}

/// The count was of those that were locked, and an entry whose lease ended between two looks at the clock was a conflict.
#[test]
fn entries_whose_leases_end_while_many_are_changed_are_left_alone() {
    let mut some = 0;
    for lease_ms in (60..400).step_by(10) {
        let clock = Ticking { clock: base::ManualClock::at(1_700_000_000_000), step: Duration::from_millis(1) };
        let world = World { clock: Arc::new(clock), ..world(&base::memory::Disk::new(1), &MemoryLedgers::new()) };
        let store = Store::open_in(&world, std::path::Path::new("/store"), options()).unwrap();
        let orders = orders(&store);
        let lease = WriteOptions { lease: Lease::For(Duration::from_millis(lease_ms)), ..upsert() };
        (0..30).for_each(|number| drop(orders.write(&order(number, "ada", 0), &lease).unwrap()));
        let mut transaction = store.begin();
        let mut within = orders.within(&mut transaction);
        let forever = WriteOptions { lease: Lease::Forever, ..upsert() };
        let changed = within.change_many(&Wanted::all(), &[add("total", 1)], &forever, 100).unwrap();
        let there = within.count(&Wanted::query("total = 1", &[]).unwrap()).unwrap();
        assert_eq!(changed, there, "{lease_ms}");
        some += u64::from((1..30).contains(&changed));
        transaction.commit(Durability::Written).unwrap();
        assert_eq!(orders.count(&Wanted::query("total = 1", &[]).unwrap()).unwrap(), changed);
    }
    assert!(some > 0, "no lease ended in the middle");
}

#[test]
fn what_a_transaction_has_changed_has_no_version_before_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    assert!(within.read(&Wanted::id(1), ReadLock::None, &now()).unwrap().unwrap().version.get() > 0);
    within.change(&Wanted::id(1), &[add("total", 1)], &upsert()).unwrap().unwrap();
    let version = |entry: Option<holdfast::space::Entry>| entry.unwrap().version.get();
    assert_eq!(version(within.read(&Wanted::id(1), ReadLock::None, &now()).unwrap()), 0);
    assert_eq!(version(within.read_many(&Wanted::all(), ReadLock::Shared, 5).unwrap().pop()), 0);
    assert_eq!(version(within.write(&order(1, "ada", 3), &upsert()).unwrap().previous), 0);
    assert_eq!(version(within.take(&Wanted::id(1), &now()).unwrap()), 0);
}

#[test]
fn what_a_transaction_has_renewed_alone_has_the_version_that_it_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let written = orders.write(&order(1, "ada", 1), &upsert()).unwrap().version;
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    assert!(within.renew(&Wanted::id(1), Lease::Forever, None).unwrap());
    let reading = ReadOptions { version: Some(written), ..now() };
    assert_eq!(within.read(&Wanted::id(1), ReadLock::None, &reading).unwrap().unwrap().version, written);
    let other = ReadOptions { version: Some(holdfast::Position::new(1)), ..now() };
    assert_eq!(within.read(&Wanted::id(1), ReadLock::None, &other).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(within.write(&order(1, "ada", 2), &upsert()).unwrap().previous.unwrap().version, written);
    assert_eq!(within.read(&Wanted::id(1), ReadLock::None, &reading).unwrap_err().kind(), ErrorKind::Conflict);
}

/// Whatever a transaction does meanwhile, it comes to each entry once, as it has it by then; what it had not touched and nobody else changed is all there.
#[test]
fn going_through_entries_within_a_transaction_comes_to_each_once_as_the_transaction_has_it() {
    let mut random = Random::new(11);
    for round in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), options()).unwrap();
        let orders = thirty(&store);
        let mut transaction = store.begin();
        (0..8).for_each(|_| happens(&mut random, &orders, &mut transaction));
        let wanted = if round % 2 == 0 { Wanted::all() } else { Wanted::query("total < 8", &[]).unwrap() };
        let all = |transaction: &mut Transaction| {
            let found = orders.within(transaction).read_many(&wanted, ReadLock::None, 1000).unwrap();
            found
                .into_iter()
                .map(|entry| (entry.document.get("id").unwrap().to_value(), entry.document))
                .collect::<Vec<_>>()
        };
        let before = all(&mut transaction);
        let mut iteration = orders.within(&mut transaction).iterate(&wanted).unwrap();
        let lock = [ReadLock::None, ReadLock::Shared, ReadLock::Exclusive][round % 3];
        let mut shown: Vec<(Value, Document)> = Vec::new();
        loop {
            let batch = orders.within(&mut transaction).next_of(&mut iteration, lock, 4).unwrap();
            if batch.is_empty() {
                break;
            }
            let now = all(&mut transaction);
            for entry in batch {
                let id = entry.document.get("id").unwrap().to_value();
                assert!(shown.iter().all(|(other, _)| *other != id), "{id:?} came twice");
                assert!(now.contains(&(id.clone(), entry.document.clone())), "{id:?} is not so within the transaction");
                shown.push((id, entry.document));
            }
            happens(&mut random, &orders, &mut transaction);
        }
        assert_eq!(iteration.kept(), 0);
        let after = all(&mut transaction);
        for (id, document) in &before {
            if after.contains(&(id.clone(), document.clone())) {
                assert!(shown.iter().any(|(other, _)| other == id), "{id:?} was there all the time");
            }
        }
    }
}

#[test]
fn going_through_entries_within_a_transaction_is_bounded_and_refused_as_outside() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    (1..=9).for_each(|number| drop(orders.write(&order(number, "ada", number), &upsert()).unwrap()));
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    (20..=22).for_each(|number| drop(within.write(&order(number, "ada", 1), &upsert()).unwrap()));
    let limited = Wanted::query("total > 0 LIMIT 5", &[]).unwrap();
    let mut iteration = within.iterate(&limited).unwrap();
    assert_eq!(within.next_of(&mut iteration, ReadLock::None, 100).unwrap().len(), 5, "its own, and two more");
    let ordered = Wanted::query("total > 0 ORDER BY id", &[]).unwrap();
    let refused = within.iterate(&ordered).err().unwrap();
    assert_eq!((refused.kind(), refused.to_string()), {
        let outside = orders.iterate(&ordered).err().unwrap();
        (ErrorKind::Invalid, outside.to_string())
    });
    // What another has locked is passed over, unless nothing is to be locked.
    let mut other = store.begin();
    orders.within(&mut other).take(&Wanted::id(1), &now()).unwrap().unwrap();
    for (lock, count) in [(ReadLock::None, 12), (ReadLock::Shared, 11)] {
        let mut within = orders.within(&mut transaction);
        let mut iteration = within.iterate(&Wanted::all()).unwrap();
        assert_eq!(within.next_of(&mut iteration, lock, 100).unwrap().len(), count, "{lock:?}");
    }
    // What one transaction goes through is nothing to another, which would see what is not committed.
    let mut foreign = orders.within(&mut transaction).iterate(&Wanted::all()).unwrap();
    let refused = orders.within(&mut other).next_of(&mut foreign, ReadLock::None, 100).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    drop(other);
    transaction.commit(Durability::Written).unwrap();
}

fn number(document: &holdfast::space::Document) -> i64 {
    match document.get("id").unwrap().to_value() {
        Value::I64(id) => id,
        other => panic!("{other:?}"),
    }
}

fn numbers(entries: &[holdfast::space::Entry]) -> Vec<i64> {
    entries.iter().map(|entry| number(&entry.document)).collect()
}

fn taken_in_order(entries: &Entries) -> Vec<i64> {
    let one = || entries.take(&Wanted::all(), &now()).unwrap();
    numbers(&std::iter::from_fn(one).collect::<Vec<_>>())
}

/// A transaction put them into the queue in the order of their ids.
#[test]
fn what_a_transaction_writes_stands_in_a_queue_in_the_order_in_which_it_wrote_it() {
    let orders = [Order::Fifo, Order::Groups(Path::parse("customer").unwrap())];
    for of in orders {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), options()).unwrap();
        let definition = Definition { order: of.clone(), history: true, ..Definition::new("shop", "job") };
        let jobs = store.space("shop").declare(definition).unwrap();
        let mut listener = jobs.listen(&Wanted::all(), Listen::default()).unwrap();
        let mut transaction = store.begin();
        for number in [5, 3, 9, 1, 7] {
            jobs.within(&mut transaction).write(&order(number, "ada", 0), &upsert()).unwrap();
        }
        // Written again it keeps its place, taken and written again it goes to the end.
        let mut within = jobs.within(&mut transaction);
        within.write(&order(9, "ada", 1), &upsert()).unwrap();
        assert_eq!(numbers(&[within.take(&Wanted::id(3), &now()).unwrap().unwrap()]), [3]);
        within.write(&order(3, "ada", 1), &upsert()).unwrap();
        let all = within.read_many(&Wanted::all(), ReadLock::None, 10).unwrap();
        assert_eq!(numbers(&all), [5, 9, 1, 7, 3]);
        assert_eq!(numbers(&[within.read(&Wanted::all(), ReadLock::Shared, &now()).unwrap().unwrap()]), [5]);
        transaction.commit(Durability::Written).unwrap();
        let heard: Vec<_> = std::iter::from_fn(|| listener.poll().unwrap()).filter_map(|notice| notice.after).collect();
        assert_eq!(heard.iter().map(number).collect::<Vec<_>>(), [5, 9, 1, 7, 3]);
        drop(listener);
        drop((jobs, store));
        let store = Store::open(dir.path(), options()).unwrap();
        let jobs = store.space("shop").entries("job").unwrap();
        // What others wrote before comes before what a transaction writes anew.
        let mut transaction = store.begin();
        let mut within = jobs.within(&mut transaction);
        within.write(&order(0, "ada", 0), &upsert()).unwrap();
        let read = within.read(&Wanted::all(), ReadLock::Shared, &now()).unwrap().unwrap();
        let took: Vec<_> = std::iter::from_fn(|| within.take(&Wanted::all(), &now()).unwrap()).take(6).collect();
        assert_eq!((numbers(&[read]), numbers(&took)), (vec![5], vec![5, 9, 1, 7, 3, 0]), "{of:?}");
        drop(transaction);
        // What it changes keeps its place among what others wrote, and before what it writes anew.
        let mut transaction = store.begin();
        let mut within = jobs.within(&mut transaction);
        within.write(&order(0, "ada", 0), &upsert()).unwrap();
        for number in [1, 9] {
            within.change(&Wanted::id(number).routed("ada"), &[add("total", 1)], &upsert()).unwrap().unwrap();
        }
        let took: Vec<_> = std::iter::from_fn(|| within.take(&Wanted::all(), &now()).unwrap()).take(6).collect();
        assert_eq!(numbers(&took), [5, 9, 1, 7, 3, 0], "{of:?}");
        drop(transaction);
        assert_eq!(taken_in_order(&jobs), [5, 9, 1, 7, 3], "{of:?}");
    }
}

#[test]
fn what_a_task_writes_stands_in_a_queue_in_the_order_in_which_it_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("shop");
    let definition =
        Definition { order: Order::Groups(Path::parse("customer").unwrap()), ..Definition::new("shop", "job") };
    let jobs = space.declare(definition).unwrap();
    jobs.write(&order(4, "ada", 0), &upsert()).unwrap();
    let seen = space.execute(&"ada".into(), None, |task| {
        for number in [5, 3, 9, 1] {
            task.write("job", &order(number, "ada", 0), &upsert())?;
        }
        task.take("job", 3)?;
        task.write("job", &order(3, "ada", 1), &upsert())?;
        task.read("job", &Wanted::all(), 5)
    });
    assert_eq!(numbers(&seen.unwrap()), [4, 5, 9, 1, 3]);
    let seen = space.execute(&"ada".into(), None, |task| {
        task.write("job", &order(0, "ada", 0), &upsert())?;
        task.change("job", 9, &[add("total", 1)])?;
        Ok([task.read("job", &Wanted::all(), 1)?, task.read("job", &Wanted::all(), 9)?])
    });
    let seen = seen.unwrap();
    assert_eq!((numbers(&seen[0]), numbers(&seen[1])), (vec![4], vec![4, 5, 9, 1, 3, 0]));
    assert_eq!(taken_in_order(&jobs), [4, 5, 9, 1, 3, 0]);
}

/// Each was looked for by itself, past all that had been taken before.
#[test]
fn many_are_taken_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    for id in 0..40 {
        orders.write(&order(id, if id % 2 == 0 { "ada" } else { "bob" }, id), &upsert()).unwrap();
    }
    let of_ada = Wanted::query("customer = 'ada'", &[]).unwrap();
    let mut other = store.begin();
    orders.within(&mut other).take(&Wanted::id(4), &now()).unwrap().unwrap();
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    within.write(&order(100, "ada", 1), &upsert()).unwrap();
    within
        .change(
            &Wanted::id(1),
            &[Change::Set { path: Path::parse("customer").unwrap(), value: "ada".into() }],
            &upsert(),
        )
        .unwrap();
    within.take(&Wanted::id(6), &now()).unwrap().unwrap();
    let first = within.take_many(&of_ada, 5).unwrap();
    assert_eq!(first.len(), 5);
    let rest = within.take_many(&of_ada, 100).unwrap();
    let all: Vec<_> = first.into_iter().chain(rest).collect();
    // But the one that somebody else has, and the one that was taken before; with what this one has made of them.
    let expected: BTreeSet<i64> = (0..40).filter(|id| id % 2 == 0 && ![4, 6].contains(id)).chain([1, 100]).collect();
    assert_eq!((ids(&all), all.len()), (expected.clone(), expected.len()));
    assert_eq!(within.take_many(&of_ada, 100).unwrap(), []);
    let ordered = Wanted::query("customer = 'bob' ORDER BY total", &[]).unwrap();
    assert_eq!(within.take_many(&ordered, 1).unwrap_err().kind(), ErrorKind::Invalid);
    transaction.commit(Durability::Written).unwrap();
    drop(other);
    assert_eq!(orders.count(&of_ada).unwrap(), 1);
    // In turn, where there is one.
    let jobs =
        store.space("shop").declare(Definition { order: Order::Fifo, ..Definition::new("shop", "job") }).unwrap();
    for id in [5, 1, 4, 2, 3, 9, 8] {
        jobs.write(&order(id, "ada", 0), &upsert()).unwrap();
    }
    let mut other = store.begin();
    assert_eq!(jobs.within(&mut other).take(&Wanted::all(), &now()).unwrap().map(|it| id(&it)), Some(5));
    let mut transaction = store.begin();
    let mut within = jobs.within(&mut transaction);
    let taken = within.take_many(&Wanted::all(), 4).unwrap();
    assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), [1, 4, 2, 3]);
    within.write(&order(9, "bob", 0), &upsert()).unwrap();
    assert_eq!(within.take_many(&Wanted::all(), 4).unwrap(), [], "its own may be before");
    assert_eq!(within.take(&Wanted::all(), &now()).unwrap().map(|it| id(&it)), Some(9));
    let rest = within.take_many(&Wanted::all(), 4).unwrap();
    assert_eq!(rest.iter().map(id).collect::<Vec<_>>(), [8]);
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 20);
}

/// A write behind a change of its own took the version from before the transaction for the entry's.
#[test]
fn a_version_that_the_transaction_itself_has_changed_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let read = orders.write(&order(1, "ada", 1), &upsert()).unwrap().version;
    let at = |version: Position| WriteOptions { version: Some(version), ..upsert() };
    let reading = |version: Position| ReadOptions { version: Some(version), ..now() };
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    within.write(&order(1, "ada", 2), &at(read)).unwrap();
    // Nor is what is told of it, which is 0, a version of anything.
    for version in [read, Position::ZERO] {
        let write = within.write(&order(1, "ada", 3), &at(version)).unwrap_err();
        let change = within.change(&Wanted::id(1), &[add("total", 1)], &at(version)).unwrap_err();
        let take = within.take(&Wanted::id(1), &reading(version)).unwrap_err();
        assert_eq!([write, change, take].map(|error| error.kind()), [ErrorKind::Conflict; 3], "{version}");
    }
    within.write(&order(1, "ada", 4), &upsert()).unwrap();
    within.write(&order(2, "bob", 1), &upsert()).unwrap();
    assert_eq!(
        within.write(&order(2, "bob", 2), &at(Position::ZERO)).unwrap_err().kind(),
        ErrorKind::Conflict,
        "one that is new has none"
    );
    transaction.commit(Durability::Written).unwrap();
    assert_eq!(orders.read(&Wanted::id(1), &now()).unwrap().unwrap().document, order(1, "ada", 4));
    // Another lease alone leaves the version.
    let read = orders.read(&Wanted::id(1), &now()).unwrap().unwrap().version;
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    assert!(within.renew(&Wanted::id(1), Lease::Forever, None).unwrap());
    within.write(&order(1, "ada", 5), &at(read)).unwrap();
    within.write(&order(1, "ada", 6), &at(read)).unwrap_err();
    transaction.commit(Durability::Written).unwrap();
    assert_eq!(orders.read(&Wanted::id(1), &now()).unwrap().unwrap().document, order(1, "ada", 5));
}
