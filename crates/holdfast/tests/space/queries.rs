//! Changes in place, queries, iteration, and a model.

use holdfast::space::{Change, Entries, Entry, Hears, Lease, Listen, Path, ReadLock, Stop, WantedBy};
use holdfast::{ErrorKind, Result, Transaction};

use super::*;

#[test]
fn changes_travel_instead_of_documents() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 5), &upsert()).unwrap();
    let path = |text: &str| Path::parse(text).unwrap();
    let add = |by: i64| Change::Increment { path: path("total"), by: by.into() };
    let tag = Change::AddUnique { path: path("tags"), value: "new".into() };
    let changed = orders.change(&Wanted::id(1), &[add(3), tag.clone(), tag], &upsert()).unwrap().unwrap();
    assert_eq!(changed.before.document, order(1, "ada", 5));
    let mut fields = order(1, "ada", 8).to_fields();
    fields.insert("tags".into(), vec!["new"].into());
    assert_eq!(orders.read(&Wanted::id(1), &now()).unwrap().unwrap().document, Document::new(&fields));
    assert_eq!(orders.explain(&Wanted::query("total = 8", &[]).unwrap()).unwrap().len(), 16);
    assert_eq!(orders.count(&Wanted::query("total = 8 AND tags[*] = 'new'", &[]).unwrap()).unwrap(), 1);
    assert!(orders.change(&Wanted::id(2), &[add(1)], &upsert()).unwrap().is_none());
    let moves = [Change::Set { path: path("id"), value: 2.into() }];
    assert_eq!(orders.change(&Wanted::id(1), &moves, &upsert()).unwrap_err().kind(), ErrorKind::Invalid);
    let wrong = [add(1), Change::Append { path: path("customer"), value: 1.into() }];
    assert_eq!(orders.change(&Wanted::id(1), &wrong, &upsert()).unwrap_err().kind(), ErrorKind::Invalid);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| drop(orders.change(&Wanted::id(1), &[add(1)], &upsert()).unwrap())));
        }
    });
    assert_eq!(orders.count(&Wanted::query("total = ?", &[408.into()]).unwrap()).unwrap(), 1, "no increment is lost");
}

#[test]
fn queries_project_sort_group_and_page() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    for number in 0..60 {
        orders.write(&order(number, ["ada", "bob", "eve"][number as usize % 3], number), &upsert()).unwrap();
    }
    let sql = "SELECT customer, count(*) AS n, sum(total) AS sum FROM order WHERE total >= ? GROUP BY customer \
               HAVING count(*) > 1 ORDER BY sum DESC LIMIT 2";
    let sql = sql.replace("FROM order", "FROM \"order\"");
    let group = |customer: &str, n: i64, sum: i64| {
        Document::from_pairs([("customer", Value::from(customer)), ("n", n.into()), ("sum", sum.into())])
    };
    let groups = orders.select(&sql, &[30.into()]).unwrap();
    assert_eq!(groups, [group("eve", 10, 455), group("bob", 10, 445)]);
    let top = orders.select("SELECT total FROM \"order\" ORDER BY total DESC LIMIT 2 OFFSET 1", &[]).unwrap();
    assert_eq!(top, [Document::from_pairs([("total", 58)]), Document::from_pairs([("total", 57)])]);
    let page = orders.read_many(&Wanted::query("customer = 'ada' ORDER BY total LIMIT 3", &[]).unwrap(), 100).unwrap();
    assert_eq!(page.iter().map(id).collect::<Vec<_>>(), [0, 3, 6]);
    let total = |document: &Document| match document.get("total") {
        Some(holdfast::space::ValueRef::I64(total)) => total,
        _ => 0,
    };
    let sum = orders.reduce(&Wanted::all(), || 0, |sum, document| *sum += total(document), |a, b| a + b).unwrap();
    assert_eq!(sum, 59 * 60 / 2);
    let mut iteration = orders.iterate(&Wanted::all()).unwrap();
    let mut seen = BTreeSet::new();
    loop {
        let batch = iteration.next(7).unwrap();
        if batch.is_empty() {
            break;
        }
        assert!(batch.len() <= 7);
        seen.extend(batch.iter().map(id));
    }
    assert_eq!(seen.len(), 60);
    let wrong = orders.select("SELECT a.b FROM x JOIN y", &[]).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid);
}

/// Random operations beside a plain map, with indexes, leases off, restarts in between, and every query with and without an
/// index.
#[test]
fn a_model_agrees() {
    use std::collections::BTreeMap;
    let dir = tempfile::tempdir().unwrap();
    let seed = base::entropy();
    println!("seed {seed}");
    let mut random = base::Random::new(seed);
    let mut model: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    let document = |number: i64, (total, group): (i64, i64)| {
        Document::from_pairs([("id", Value::from(number)), ("total", total.into()), ("group", group.into())])
    };
    for round in 0..6 {
        let store = Store::open(dir.path(), options()).unwrap();
        let indexed = Definition::new("m", "t").index("total", IndexKind::Ordered).unwrap();
        let indexed = indexed.index("group", IndexKind::Hash).unwrap();
        let plain = Definition::new("m", "t");
        let entries = store.space("m").declare(if round % 2 == 0 { indexed } else { plain }).unwrap();
        for _ in 0..300 {
            let number = random.below(60).cast_signed();
            let value = (random.below(20).cast_signed(), random.below(5).cast_signed());
            match random.below(10) {
                0..5 => {
                    let written = entries.write(&document(number, value), &upsert()).unwrap();
                    let before = written.previous.map(|entry| entry.document);
                    assert_eq!(before, model.insert(number, value).map(|value| document(number, value)));
                }
                5..7 => {
                    let taken = entries.take(&Wanted::id(number), &now()).unwrap().map(|entry| entry.document);
                    assert_eq!(taken, model.remove(&number).map(|value| document(number, value)));
                }
                7 => {
                    let mut transaction = store.begin();
                    let (a, b) = (number, (number + 7) % 60);
                    let taken = entries.within(&mut transaction).take(&Wanted::id(a), &now()).unwrap();
                    entries.within(&mut transaction).write(&document(b, value), &upsert()).unwrap();
                    if random.chance(1, 2) {
                        transaction.commit(Durability::Written).unwrap();
                        assert_eq!(taken.is_some(), model.remove(&a).is_some());
                        model.insert(b, value);
                    }
                }
                _ => {
                    let (low, group) = value;
                    let wanted = Wanted::query("total >= ? AND \"group\" = ?", &[low.into(), group.into()]).unwrap();
                    let found = ids(&entries.read_many(&wanted, 1000).unwrap());
                    let expected = model.iter().filter(|(_, (total, of))| *total >= low && *of == group);
                    assert_eq!(found, expected.map(|(number, _)| *number).collect(), "seed {seed}");
                }
            }
        }
        let all = entries.read_many(&Wanted::all(), 1000).unwrap();
        let all: BTreeMap<i64, Document> = all.into_iter().map(|entry| (id(&entry), entry.document)).collect();
        let expected = model.iter().map(|(number, value)| (*number, document(*number, *value))).collect();
        assert_eq!(all, expected, "seed {seed}, round {round}");
        if round % 3 == 0 {
            store.close().unwrap();
        }
    }
}

/// They were passed over without a word.
#[test]
fn a_limit_counts_and_an_order_is_refused_where_it_would_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    for id in 0..40 {
        orders.write(&order(id, "ada", id), &upsert()).unwrap();
    }
    let query = |end: &str| Wanted::query(&format!("total >= 0 {end}"), &[]).unwrap();
    for (limit, many) in [(0, 0), (7, 7), (100, 40)] {
        let wanted = query(&format!("LIMIT {limit}"));
        assert_eq!(orders.count(&wanted).unwrap(), many);
        let (mut iteration, mut found) = (orders.iterate(&wanted).unwrap(), BTreeSet::new());
        loop {
            let some = ids(&iteration.next(3).unwrap());
            if some.is_empty() {
                break;
            }
            found.extend(some);
        }
        assert_eq!(found.len() as u64, many);
        let mut transaction = store.begin();
        let mut within = orders.within(&mut transaction);
        within.write(&order(0, "ada", 1), &upsert()).unwrap();
        within.write(&order(1, "ada", 1), &upsert()).unwrap();
        assert_eq!(within.count(&wanted).unwrap(), many);
    }
    let hears = Hears { updated: false, ..Hears::ALL };
    let listen = |wanted: &Wanted| orders.listen(wanted, Listen { hears, ..Listen::default() }).map(drop);
    listen(&query("")).unwrap();
    for end in ["ORDER BY total", "ORDER BY total LIMIT 3", "LIMIT 3 OFFSET 2"] {
        let wanted = query(end);
        for refused in [
            orders.count(&wanted).map(drop),
            orders.iterate(&wanted).map(drop),
            orders.reduce(&wanted, || (), |(), _| (), |(), ()| ()),
            listen(&wanted),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{end}");
        }
    }
    assert_eq!(listen(&query("LIMIT 3")).unwrap_err().kind(), ErrorKind::Invalid);
}

/// What a transaction reads of many is what others read once it has committed, whatever it has done before.
#[test]
fn a_transaction_reads_many_as_they_will_be() {
    let (store, clock) = with_clock();
    let entries = orders(&store);
    for number in 0..20 {
        entries.write(&order(number, if number % 2 == 0 { "ada" } else { "bob" }, number * 10), &upsert()).unwrap();
    }
    let mut transaction = store.begin();
    let mut within = entries.within(&mut transaction);
    within.take(&Wanted::id(4), &now()).unwrap().unwrap();
    within.take(&Wanted::id(5), &now()).unwrap().unwrap();
    within.write(&order(6, "bob", 5), &upsert()).unwrap();
    within.write(&order(30, "ada", 65), &upsert()).unwrap();
    within.write(&order(31, "ada", 1), &upsert()).unwrap();
    within.take(&Wanted::id(31), &now()).unwrap().unwrap();
    let gone = WriteOptions { lease: Lease::For(Duration::from_millis(20)), ..upsert() };
    within.write(&order(32, "ada", 2), &gone).unwrap();
    clock.advance(Duration::from_millis(30));
    let sql = |text: &str| Wanted::query(text, &[]).unwrap();
    let asked = [
        (Wanted::all(), 100),
        (Wanted::all(), 7),
        (Wanted::id(6), 9),
        (Wanted::id(4), 9),
        (example("ada"), 100),
        (example("bob"), 100),
        (sql("total >= 50 ORDER BY total DESC"), 100),
        (sql("total >= 50 ORDER BY total DESC LIMIT 4 OFFSET 12"), 100),
        (sql("customer = 'ada' ORDER BY total LIMIT 3"), 100),
        (sql("customer = 'ada' ORDER BY total OFFSET 3"), 2),
        (sql("total < 60 LIMIT 2 OFFSET 1"), 100),
        (sql("total < 0"), 100),
        (Wanted::all(), 0),
    ];
    let seen: Vec<_> =
        asked.iter().map(|(wanted, max)| within.read_many(wanted, ReadLock::None, *max).unwrap()).collect();
    let locked: Vec<_> =
        asked.iter().map(|(wanted, max)| within.read_many(wanted, ReadLock::Shared, *max).unwrap()).collect();
    transaction.commit(Durability::Written).unwrap();
    for (((wanted, max), seen), locked) in asked.iter().zip(seen).zip(locked) {
        let there = entries.read_many(wanted, *max).unwrap();
        let ids = |entries: &[Entry]| entries.iter().map(id).collect::<Vec<_>>();
        assert_eq!(ids(&locked), ids(&seen), "{wanted:?}");
        let is_ordered = |by: &WantedBy| matches!(by, WantedBy::Query { sql, .. } if sql.contains("ORDER BY"));
        if is_ordered(wanted.by()) {
            assert_eq!(ids(&seen), ids(&there), "{wanted:?}");
        } else if *max < 100 || wanted.limit().is_some() {
            assert_eq!(seen.len(), there.len(), "{wanted:?}");
        } else {
            assert_eq!(super::ids(&seen), super::ids(&there), "{wanted:?}");
        }
    }
}

#[test]
fn transactions_that_read_many_to_themselves_share_out_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let entries = orders(&store);
    for number in 0..10 {
        entries.write(&order(number, "ada", 9 - number), &upsert()).unwrap();
    }
    let dear = Wanted::query("total >= 0 ORDER BY total DESC", &[]).unwrap();
    let (mut first, mut second, mut third) = (store.begin(), store.begin(), store.begin());
    let own = |transaction: &mut Transaction, max| {
        let read = entries.within(transaction).read_many(&dear, ReadLock::Exclusive, max).unwrap();
        read.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(own(&mut first, 3), [0, 1, 2]);
    assert_eq!(own(&mut second, 4), [3, 4, 5, 6], "the first has locked the ones before");
    assert_eq!(own(&mut first, 5), [0, 1, 2, 7, 8], "its own stay its own");
    assert_eq!(own(&mut third, 100), [9]);
    // What is locked is shown, as it was committed, to who locks nothing.
    assert_eq!(entries.within(&mut third).read_many(&dear, ReadLock::None, 100).unwrap().len(), 10);
    assert_eq!(entries.take(&Wanted::id(0), &now()).unwrap(), None);
    drop(first);
    assert_eq!(own(&mut third, 3), [0, 1, 2]);
    let (mut fourth, mut fifth) = (store.begin(), store.begin());
    let shared = |transaction: &mut Transaction| {
        entries.within(transaction).read_many(&dear, ReadLock::Shared, 2).unwrap().iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!((shared(&mut fourth), shared(&mut fifth)), (vec![7, 8], vec![7, 8]));
}

/// Nothing ended a query: one that took minutes held a place of the few that there are, and a lock, long after its client had gone.
#[test]
fn what_goes_through_entries_ends_when_its_time_is_over_or_it_is_canceled() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    (0..2_000).for_each(|number| drop(orders.write(&order(number, "ada", number), &upsert()).unwrap()));
    let cancel = holdfast::space::Cancel::new();
    cancel.cancel();
    let over = Stop { time_max: Some(std::time::Duration::ZERO), ..Stop::default() };
    let canceled = Stop { cancel: Some(cancel), ..Stop::default() };
    let none = Wanted::query("customer = 'nobody'", &[]).unwrap();
    let select = |sql: &str, of: &Entries| of.select(sql, &[]).map(|_| ());
    for (stop, kind) in [(over, ErrorKind::Limit), (canceled, ErrorKind::Timeout)] {
        let ended = orders.until(stop.clone());
        let mut iteration = orders.iterate(&Wanted::all()).unwrap();
        iteration.set_stop(stop);
        let set = Change::Set { path: Path::parse("total").unwrap(), value: 7.into() };
        let tried = [
            ("count", ended.count(&none).map(|_| ())),
            ("read_many", ended.read_many(&none, 10).map(|_| ())),
            ("read", ended.read(&none, &now()).map(|_| ())),
            ("take", ended.take(&none, &now()).map(|_| ())),
            ("clear", ended.clear(&Wanted::all(), None).map(|_| ())),
            ("change_many", ended.change_many(&Wanted::all(), &[set], &upsert()).map(|_| ())),
            ("select", select("SELECT total FROM \"order\" ORDER BY total", &ended)),
            ("groups", select("SELECT customer, count(*) FROM \"order\" GROUP BY customer", &ended)),
            ("iterate", iteration.next(10).map(|_| ())),
        ];
        for (what, outcome) in tried {
            let error = outcome.expect_err(what);
            assert_eq!(error.kind(), kind, "{what}: {error}");
        }
        iteration.set_stop(Stop::default());
        let mut all = 0;
        while let found @ 1.. = iteration.next(1_000).unwrap().len() {
            all += found;
        }
        assert_eq!(all, 2_000, "who asks again misses nothing");
    }
    let enough = orders.until(Stop { time_max: Some(std::time::Duration::from_secs(60)), ..Stop::default() });
    assert_eq!(enough.count(&Wanted::all()).unwrap(), 2_000);
    assert!(enough.read(&Wanted::all(), &now()).unwrap().is_some());
}

/// What waits holds its query, which nobody counted; what is gathered was refused when it was there.
#[test]
fn queries_hold_no_more_memory_than_they_may() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { space_query_memory_bytes: 1 << 20, ..Limits::default() };
    let store = Store::open(dir.path(), Options { limits, ..options() }).unwrap();
    let orders = orders(&store);
    let large = |number: i64| {
        let mut fields = order(number, "ada", number).to_fields();
        fields.insert("note".into(), Value::from(format!("{number:010}").repeat(20)));
        Document::new(&fields)
    };
    (0..20_000).for_each(|number| drop(orders.write(&large(number), &upsert()).unwrap()));
    let refused = |what: &str, outcome: holdfast::Result<usize>| {
        let error = outcome.expect_err(what);
        assert!(
            error.kind() == ErrorKind::Limit && error.to_string().contains("query_memory_bytes"),
            "{what}: {error}"
        );
    };
    let select = |sql: &str| orders.select(sql, &[]).map(|rows| rows.len());
    refused("sorting", select("SELECT * FROM \"order\" ORDER BY total DESC"));
    assert_eq!(select("SELECT * FROM \"order\" ORDER BY total DESC LIMIT 10").unwrap(), 10, "only those are kept");
    let columns: Vec<String> = (0..600).map(|number| format!("note AS n{number}")).collect();
    refused("columns", select(&format!("SELECT {} FROM \"order\" LIMIT 100", columns.join(", "))));
    refused("groups", select("SELECT note, count(*) FROM \"order\" GROUP BY note"));
    refused("values", select("SELECT count(distinct note) AS n FROM \"order\""));
    refused("reading", orders.read_many(&Wanted::all(), usize::MAX).map(|found| found.len()));
    assert_eq!(orders.select_up_to("SELECT total FROM \"order\"", &[], 7).unwrap().len(), 7);
    // Half of it is for those that are kept: these wait with some two hundred kilobytes each.
    let sql = format!("note = '{}'", "x".repeat(60 << 10));
    let waits = || orders.waiting(&Wanted::query(&sql, &[]).unwrap(), holdfast::space::Taking::Take);
    let waiting: Vec<_> = std::iter::from_fn(|| waits().ok()).take(100).collect();
    assert!((1..10).contains(&waiting.len()) && orders.waiters() == waiting.len(), "{}", waiting.len());
    refused("waiting", waits().map(|_| 0));
    refused("listening", orders.listen(&Wanted::query(&sql, &[]).unwrap(), Listen::default()).map(|_| 0));
    refused("iterating", orders.iterate(&Wanted::query(&sql, &[]).unwrap()).map(|_| 0));
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 20_000, "others are answered");
    drop(waiting);
    assert!(waits().is_ok() && orders.iterate(&Wanted::query(&sql, &[]).unwrap()).is_ok(), "it comes back");
    let error = orders.iterate(&Wanted::query(r"note RLIKE '\w{15}|a'", &[]).unwrap()).err().unwrap();
    assert!(error.to_string().contains("a query of 2"), "an expression counts as large as it is: {error}");
}

/// A whole SELECT was taken for its condition alone, and was of whatever type it was asked of.
#[test]
fn a_query_that_names_another_type_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    let right = Wanted::query("SELECT * FROM order WHERE total = 1", &[]).unwrap();
    assert_eq!((orders.count(&right).unwrap(), orders.read_many(&right, 9).unwrap().len()), (1, 1));
    let wrong = &Wanted::query("SELECT * FROM invoice WHERE total = 1", &[]).unwrap();
    let increment = &[Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() }];
    let check = |done: Result<bool>, what: &str| {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
        assert!(error.to_string().contains("the query is of the type invoice, not of order"), "{what}: {error}");
    };
    check(orders.read(wrong, &now()).map(|it| it.is_some()), "read");
    check(orders.take(wrong, &waits(1)).map(|it| it.is_some()), "take");
    check(orders.waiting(wrong, holdfast::space::Taking::Take).map(|_| true), "waiting");
    check(orders.read_many(wrong, 9).map(|it| it.is_empty()), "read_many");
    check(orders.take_many(wrong, 9, &now()).map(|it| it.is_empty()), "take_many");
    check(orders.count(wrong).map(|it| it > 0), "count");
    check(orders.clear(wrong, None).map(|it| it > 0), "clear");
    check(orders.change_many(wrong, increment, &upsert()).map(|it| it > 0), "change_many");
    check(orders.explain(wrong).map(|it| it.is_empty()), "explain");
    check(orders.iterate(wrong).map(|_| true), "iterate");
    check(orders.reduce(wrong, || 0, |all, _| *all += 1, |a, b| a + b).map(|it| it > 0), "reduce");
    check(orders.listen(wrong, Listen::default()).map(|_| true), "listen");
    let mut transaction = store.begin();
    let mut within = orders.within(&mut transaction);
    // There is one of its own that would match, which is looked at first.
    within.write(&order(2, "ada", 1), &upsert()).unwrap();
    check(within.read(wrong, ReadLock::None, &now()).map(|it| it.is_some()), "read within");
    check(within.take(wrong, &now()).map(|it| it.is_some()), "take within");
    check(within.read_many(wrong, ReadLock::None, 1).map(|it| it.is_empty()), "read_many within");
    check(within.take_many(wrong, 1).map(|it| it.is_empty()), "take_many within");
    check(within.count(wrong).map(|it| it > 0), "count within");
    check(within.clear(wrong, 9).map(|it| it > 0), "clear within");
    check(within.change_many(wrong, increment, &upsert(), 9).map(|it| it > 0), "change_many within");
    check(within.iterate(wrong).map(|_| true), "iterate within");
    drop(transaction);
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 1);
}
