//! Queries that are parsed once: they say what their text says, whatever they are used with.

use holdfast::space::{Change, Entry, Iteration, Listen, Path, PreparedQuery, ToQuery, WantedBy};
use holdfast::{Error, ErrorKind};

use super::*;

fn five(store: &Store) -> Entries {
    let orders = orders(store);
    for (id, customer) in (1..).zip(["ada", "bob", "ada", "eve", "ada"]) {
        orders.write(&order(id, customer, id * 10), &upsert()).unwrap();
    }
    orders
}

fn prepared(sql: &str) -> PreparedQuery {
    PreparedQuery::new(sql).unwrap()
}

fn all(mut iteration: Iteration) -> Vec<Entry> {
    std::iter::from_fn(|| Some(iteration.next(100).unwrap()).filter(|batch| !batch.is_empty())).flatten().collect()
}

#[test]
fn every_operation_takes_a_prepared_query_as_it_takes_a_text() {
    let (store, _) = with_clock();
    let orders = five(&store);
    let (sql, parameters) = ("customer = $1 AND total > $2", [Value::from("ada"), 10.into()]);
    let query = prepared(sql);
    assert_eq!((query.sql(), query.parameters()), (sql, 2));
    let of_text = Wanted::query(sql, &parameters).unwrap();
    // It is used for many operations, and the one after it gets what a text would.
    let wanted = || Wanted::query(&query, &parameters).unwrap();
    let WantedBy::Query { sql: text, parameters: given } = wanted().by().clone() else { panic!("a query") };
    assert_eq!((&*text, &*given), (sql, &parameters[..]));
    assert_eq!(ids(&orders.read_many(&wanted(), 10).unwrap()), BTreeSet::from([3, 5]));
    assert_eq!(orders.read(&wanted(), &now()).unwrap(), orders.read(&of_text, &now()).unwrap());
    assert_eq!(orders.count(&wanted()).unwrap(), 2);
    assert_eq!(orders.explain(&wanted()).unwrap(), orders.explain(&of_text).unwrap());
    assert_eq!(ids(&all(orders.iterate(&wanted()).unwrap())), BTreeSet::from([3, 5]));
    let mut listener = orders.listen(&wanted(), Listen { hears: written(), ..Listen::default() }).unwrap();
    orders.write(&order(6, "ada", 60), &upsert()).unwrap();
    orders.write(&order(7, "bob", 70), &upsert()).unwrap();
    let heard = listener.poll().unwrap().and_then(|notice| notice.after);
    assert_eq!((heard, listener.poll().unwrap()), (Some(order(6, "ada", 60)), None));
    let add = [Change::Increment { path: Path::parse("total").unwrap(), by: 1.into() }];
    assert_eq!(orders.change_many(&wanted(), &add, &upsert()).unwrap(), 3);
    let mut transaction = store.begin();
    assert_eq!(orders.within(&mut transaction).count(&wanted()).unwrap(), 3);
    drop(transaction);
    assert_eq!(orders.take(&wanted(), &now()).unwrap().map(|taken| id(&taken) % 2), Some(1));
    assert_eq!(orders.clear(&wanted(), None).unwrap() + 1, 3);
    assert_eq!(orders.count(&Wanted::all()).unwrap(), 4);
}

fn written() -> holdfast::space::Hears {
    holdfast::space::Hears { updated: false, ..holdfast::space::Hears::ALL }
}

#[test]
fn whole_queries_are_prepared_too() {
    let (store, _) = with_clock();
    let orders = five(&store);
    for (sql, parameters) in [
        ("SELECT customer, sum(total) AS s FROM order WHERE total >= ? GROUP BY customer ORDER BY customer", vec![20]),
        ("SELECT count(*) AS n FROM order HAVING count(*) > ?", vec![0]),
        ("SELECT id, total AS t FROM order WHERE total > ? ORDER BY t DESC LIMIT ? OFFSET ?", vec![10, 2, 1]),
        ("EXPLAIN SELECT * FROM order WHERE customer = 'ada'", vec![]),
    ] {
        let (query, parameters) = (prepared(sql), parameters.into_iter().map(Value::from).collect::<Vec<_>>());
        let expected = orders.select(sql, &parameters).unwrap();
        assert!(!expected.is_empty(), "{sql}");
        assert_eq!(orders.select(&query, &parameters).unwrap(), expected, "{sql}");
        let first = orders.select_up_to(sql, &parameters, 1).unwrap();
        assert_eq!(orders.select_up_to(&query, &parameters, 1).unwrap(), first, "{sql}");
        let mut transaction = store.begin();
        assert_eq!(orders.within(&mut transaction).select(&query, &parameters).unwrap(), expected, "{sql}");
    }
}

/// The same error of the text and of what was prepared of it.
fn refused(query: &PreparedQuery, act: impl Fn(&dyn Fn(&[Value]) -> Result<Wanted, Error>) -> Error) -> String {
    let (of_text, of_prepared) =
        (act(&|given| Wanted::query(query.sql(), given)), act(&|given| Wanted::query(query, given)));
    assert_eq!((of_text.kind(), of_text.to_string()), (of_prepared.kind(), of_prepared.to_string()));
    assert_eq!(of_prepared.kind(), ErrorKind::Invalid);
    of_prepared.to_string()
}

#[test]
fn wrong_parameters_are_told_as_of_a_text_and_spoil_nothing() {
    let query = prepared("customer LIKE ? AND total > ? LIMIT ?");
    let given: [(&[Value], &str); 5] = [
        (&[], "has 3 parameters, 0 were given"),
        (&["a%".into(), 1.into()], "has 3 parameters, 2 were given"),
        (&["a%".into(), 1.into(), 2.into(), 3.into()], "has 3 parameters, 4 were given"),
        (&[7.into(), 1.into(), 2.into()], "parameter 1 must be a string"),
        (&["a%".into(), 1.into(), "x".into()], "parameter 3 of LIMIT or OFFSET"),
    ];
    for (parameters, says) in given {
        let text = refused(&query, |wanted| wanted(parameters).unwrap_err());
        assert!(text.contains(says), "{text}");
    }
    let (store, _) = with_clock();
    let wanted = Wanted::query(&query, &["a%".into(), 0.into(), 2.into()]).unwrap();
    assert_eq!((five(&store).read_many(&wanted, 10).unwrap().len(), wanted.limit()), (2, Some(2)));
    let whole = prepared("SELECT customer FROM order");
    assert!(refused(&whole, |wanted| wanted(&[]).unwrap_err()).contains("use select"));
    let wrong = PreparedQuery::new("customer = ").unwrap_err();
    assert_eq!(wrong.to_string(), Wanted::query("customer = ", &[]).unwrap_err().to_string());
    assert_eq!(wrong.to_string(), "customer = ".prepared().unwrap_err().to_string());
}

#[test]
fn a_prepared_query_means_the_same_when_indexes_come_and_the_type_is_declared_anew() {
    let (store, _) = with_clock();
    let bare = || store.space("shop").declare(Definition::new("shop", "order")).unwrap();
    let orders = bare();
    for id in 1..=9 {
        orders.write(&order(id, if id % 3 == 0 { "ada" } else { "bob" }, id), &upsert()).unwrap();
    }
    let query = prepared("customer = ?");
    let found = |of: &Entries| {
        let wanted = Wanted::query(&query, &["ada".into()]).unwrap();
        let index = of.explain(&wanted).unwrap().iter().find_map(|plan| plan.index.clone());
        (index, ids(&of.read_many(&wanted, 10).unwrap()))
    };
    let expected = BTreeSet::from([3, 6, 9]);
    assert_eq!(found(&orders), (None, expected.clone()));
    let kept = Wanted::query(&query, &["ada".into()]).unwrap();
    let indexed = Definition::new("shop", "order").index("customer", IndexKind::Hash).unwrap();
    store.space("shop").declare(indexed).unwrap();
    assert_eq!(found(&orders), (Some("customer".into()), expected.clone()));
    assert_eq!(ids(&orders.read_many(&kept, 10).unwrap()), expected, "also what was bound before");
    assert_eq!(found(&bare()), (None, expected.clone()), "the index is gone");
    assert!(store.space("shop").drop_type("order").unwrap());
    let anew = super::orders(&store);
    assert_eq!(found(&anew).1, BTreeSet::new());
    anew.write(&order(12, "ada", 1), &upsert()).unwrap();
    assert_eq!(found(&anew).1, BTreeSet::from([12]));
    // The name is another type's now, with another id and other paths: nothing of the old one was kept.
    assert!(store.space("shop").drop_type("order").unwrap());
    let keyed = Definition { id: "key".into(), ..Definition::new("shop", "order") };
    let keyed = store.space("shop").declare(keyed).unwrap();
    let document = Document::from_pairs([("key", "k"), ("customer", "ada")]);
    keyed.write(&document, &upsert()).unwrap();
    let wanted = Wanted::query(&query, &["ada".into()]).unwrap();
    assert_eq!(keyed.read(&wanted, &now()).unwrap().map(|entry| entry.document), Some(document));
}

#[test]
fn a_prepared_query_of_one_type_serves_others_unless_it_names_its_own() {
    let (store, _) = with_clock();
    let (orders, other) = (five(&store), store.space("shop").declare(Definition::new("shop", "other")).unwrap());
    other.write(&order(1, "ada", 99), &upsert()).unwrap();
    let condition = prepared("customer = ?");
    let count = |of: &Entries| of.count(&Wanted::query(&condition, &["ada".into()]).unwrap()).unwrap();
    assert_eq!((count(&orders), count(&other), count(&orders)), (3, 1, 3));
    let whole = prepared("SELECT sum(total) AS s FROM order WHERE customer = ?");
    let error = other.select(&whole, &["ada".into()]).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), {
        let of_text = other.select(whole.sql(), &["ada".into()]).unwrap_err();
        (ErrorKind::Invalid, of_text.to_string())
    });
    assert!(error.to_string().contains("of the type order, not of other"), "{error}");
    let sum = orders.select(&whole, &["ada".into()]).unwrap();
    assert_eq!(sum[0].get("s").map(|it| it.to_value()), Some(90.into()), "it is as good as before");
    // It belongs to no store.
    let (elsewhere, _) = with_clock();
    assert_eq!(count(&five(&elsewhere)), 3);
}

#[test]
fn a_store_remembers_the_texts_that_it_is_asked_for() {
    let (store, _) = with_clock();
    let orders = five(&store);
    for (number, customer) in ["ada", "bob", "nobody"].into_iter().enumerate() {
        let query = store.prepared("customer = ?").unwrap();
        let count = orders.count(&Wanted::query(&query, &[customer.into()]).unwrap()).unwrap();
        assert_eq!(count, [3, 1, 0][number], "{customer}");
    }
    let cache = store.stats().query_cache;
    assert_eq!((cache.hits, cache.misses, cache.queries), (2, 1, 1));
    for number in 0..3_000 {
        let sql = format!("total > {number}");
        let query = store.prepared(&sql).unwrap();
        let counted = orders.count(&Wanted::query(&query, &[]).unwrap()).unwrap();
        assert_eq!(counted, 5u64.saturating_sub(number / 10), "{sql}");
    }
    let cache = store.stats().query_cache;
    assert_eq!((cache.hits, cache.misses), (2, 3_001));
    assert!(cache.queries <= 1_024 && cache.bytes <= 4 << 20 && cache.bytes > 0, "{cache:?}");
}
