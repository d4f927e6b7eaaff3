//! Entries of types with a routing: what decides where they lie is part of which they are.

use holdfast::space::{Change, Lease, Listen, Path};

use super::*;

/// Orders that lie by their customer.
fn by_customer(store: &Store) -> Entries {
    let routing = Some(Path::parse("customer").unwrap());
    store.space("s").declare(Definition { routing, history: true, ..Definition::new("s", "order") }).unwrap()
}

/// Entries with another routing value were read, taken and cleared too when they lay in the same partition.
#[test]
fn a_routing_value_chooses_entries_and_not_only_where_they_are_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { partitions: 1, ..options() }).unwrap();
    let orders = by_customer(&store);
    let of_ada = || Wanted::all().routed("ada");
    let mut listener = orders.listen(&of_ada(), Listen::default()).unwrap();
    orders.write(&order(2, "bob", 0), &upsert()).unwrap();
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    assert_eq!(listener.poll().unwrap().and_then(|notice| notice.after), Some(order(1, "ada", 0)));

    assert_eq!(orders.count(&of_ada()).unwrap(), 1);
    assert_eq!(ids(&orders.read_many(&of_ada(), 9).unwrap()), BTreeSet::from([1]));
    assert_eq!(ids(&orders.iterate(&of_ada()).unwrap().next(9).unwrap()), BTreeSet::from([1]));
    assert_eq!(orders.read(&of_ada(), &now()).unwrap().map(|it| id(&it)), Some(1));
    let other = Wanted::id(2).routed("ada");
    assert_eq!(orders.read_many(&other, 9).unwrap(), []);
    assert_eq!(orders.take(&other, &now()).unwrap(), None);
    assert!(!orders.renew(&other, Lease::Forever, None).unwrap());
    let change = [Change::Increment { path: Path::parse("total").unwrap(), by: 1i64.into() }];
    assert_eq!(orders.change(&other, &change, &upsert()).unwrap(), None);
    {
        let mut transaction = store.begin();
        let mut within = orders.within(&mut transaction);
        within.write(&order(3, "bob", 0), &upsert()).unwrap();
        assert_eq!(within.count(&of_ada()).unwrap(), 1);
        assert_eq!(within.clear(&of_ada(), 9).unwrap(), 1);
    }
    let waiting = std::thread::scope(|scope| {
        let taker = scope.spawn(|| orders.take(&Wanted::all().routed("eve"), &waits(20_000)).unwrap());
        while orders.waiters() == 0 {
            std::thread::yield_now();
        }
        orders.write(&order(4, "bob", 0), &upsert()).unwrap();
        orders.write(&order(5, "eve", 0), &upsert()).unwrap();
        taker.join().unwrap()
    });
    assert_eq!(waiting.map(|it| id(&it)), Some(5));
    assert_eq!(orders.clear(&of_ada(), None).unwrap(), 1);
    assert_eq!(ids(&orders.read_many(&Wanted::all(), 9).unwrap()), BTreeSet::from([2, 4]));
}

/// A condition that says where an entry lies is looked for there alone, and finds what looking everywhere would.
#[test]
fn a_condition_on_the_routing_or_the_id_looks_in_one_partition() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { partitions: 16, ..options() }).unwrap();
    let routed = by_customer(&store);
    let plain = store.space("s").declare(Definition::new("s", "plain")).unwrap();
    let where_is = |sql: &str, value: Value| Wanted::query(sql, &[value]).unwrap();
    for number in 0..200 {
        routed.write(&order(number, &format!("c{}", number % 20), number), &upsert()).unwrap();
        plain.write(&order(number, "x", number), &upsert()).unwrap();
    }
    let partitions = |entries: &Entries, wanted: &Wanted| entries.explain(wanted).unwrap().len();
    for number in 0..20 {
        let by_routing = where_is("total >= 0 AND customer = ?", format!("c{number}").into());
        let template = Wanted::template(&Document::from_pairs([("customer", format!("c{number}"))]));
        let found: BTreeSet<i64> = (0..200).filter(|id| id % 20 == number).collect();
        for wanted in [by_routing, template] {
            assert_eq!(partitions(&routed, &wanted), 1);
            assert_eq!(ids(&routed.read_many(&wanted, 99).unwrap()), found);
            assert_eq!(routed.count(&wanted).unwrap(), 10);
            assert_eq!(ids(&routed.iterate(&wanted).unwrap().next(99).unwrap()), found);
        }
        for (id, there) in [(Value::from(number), 1), (Value::F64(number as f64), 1), ("1".into(), 0)] {
            let by_id = where_is("id = ?", id.clone());
            assert_eq!((partitions(&plain, &by_id), plain.count(&by_id).unwrap()), (1, there), "{id:?}");
            // Of a routed type the id does not say where it lies, and is found all the same.
            assert_eq!((partitions(&routed, &by_id), routed.count(&by_id).unwrap()), (16, there), "{id:?}");
            assert!(routed.explain(&by_id).unwrap().iter().map(|plan| plan.candidates).sum::<u64>() <= 1);
        }
    }
    for (sql, value) in
        [("customer = ?", Value::F64(7.5)), ("customer <> ?", "c1".into()), ("id = 1 OR total = ?", 1.into())]
    {
        assert_eq!(partitions(&routed, &where_is(sql, value)), 16, "{sql}");
    }
    // Of two customers, and one that is routed elsewhere by what the caller says.
    let two = where_is("customer IN ('c1', ?)", "c2".into());
    assert_eq!((partitions(&routed, &two), routed.count(&two).unwrap()), (16, 20));
    assert_eq!(routed.count(&where_is("customer = ?", "c1".into()).routed("c2")).unwrap(), 0);
    // What a transaction has written itself is seen, and who waits is served.
    let wanted = where_is("customer = ? AND total > 1000", "c3".into());
    let mut transaction = store.begin();
    let mut within = routed.within(&mut transaction);
    within.write(&order(1_003, "c3", 1_003), &upsert()).unwrap();
    assert_eq!(within.count(&wanted).unwrap(), 1);
    assert_eq!(within.take(&wanted, &now()).unwrap().map(|it| id(&it)), Some(1_003));
    drop(transaction);
    let waited = std::thread::scope(|scope| {
        let taker = scope.spawn(|| routed.take(&wanted, &waits(20_000)).unwrap());
        while routed.waiters() == 0 {
            std::thread::yield_now();
        }
        routed.write(&order(1_004, "c4", 1_004), &upsert()).unwrap();
        routed.write(&order(1_003, "c3", 1_003), &upsert()).unwrap();
        taker.join().unwrap()
    });
    assert_eq!(waited.map(|it| id(&it)), Some(1_003));
}

/// Two entries with one id, which lie in two partitions.
fn twins(orders: &Entries) -> [&'static str; 2] {
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    let others = ["bob", "eve", "joe", "ann", "tom"];
    let other = others.into_iter().find(|other| orders.write(&order(1, other, 0), &upsert()).is_ok());
    ["ada", other.unwrap()]
}

/// A transaction did not see an entry because it had written another of the same id.
#[test]
fn a_transaction_passes_over_nothing_but_what_it_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = by_customer(&store);
    let [ada, other] = twins(&orders);
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    within.write(&order(1, ada, 7), &upsert()).unwrap();
    assert_eq!(within.count(&Wanted::all()).unwrap(), 2);
    assert_eq!(within.take(&Wanted::id(1).routed(other), &now()).unwrap().unwrap().document, order(1, other, 0));
}

/// One was changed twice, and the other never.
#[test]
fn each_of_two_entries_with_one_id_is_changed_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = by_customer(&store);
    let both = twins(&orders);
    let change = [Change::Increment { path: Path::parse("total").unwrap(), by: 1i64.into() }];
    assert_eq!(orders.change_many(&Wanted::all(), &change, &upsert()).unwrap(), 2);
    for customer in both {
        let entry = orders.read(&Wanted::id(1).routed(customer), &now()).unwrap().unwrap();
        assert_eq!(entry.document, order(1, customer, 1));
    }
}

/// The event of one made that of the other old.
#[test]
fn events_of_two_entries_with_one_id_are_not_conflated() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = by_customer(&store);
    let mut listener = orders.listen(&Wanted::all(), Listen { conflate: true, ..Listen::default() }).unwrap();
    let both = twins(&orders);
    for customer in both {
        let notice = listener.poll().unwrap().unwrap();
        assert_eq!(notice.after, Some(order(1, customer, 0)));
    }
}
