//! The first of many, in an order: along an index or not, the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast::space::{IndexDefinition, Outlook, Path, Placement, Query, Storage, ValueRef};

use super::*;

const FIELDS: [&str; 3] = ["a", "b", "c"];

/// A value, or none, of few different ones, so that there are equals.
fn value(random: &mut base::Random) -> Option<Value> {
    Some(match random.below(12) {
        0 => return None,
        1 => Value::Null,
        2 => Value::from("x"),
        3 => Value::F64(random.below(8) as f64),
        4 => vec![Value::from(1)].into(),
        _ => Value::from(random.below(8)),
    })
}

fn keys(query: &Query, document: &Document) -> Vec<Value> {
    query.order.iter().map(|key| key.path.first(document.fields()).to_value()).collect()
}

/// With one more index, ordered, on these paths.
fn ordered(mut definition: Definition, paths: &[&str]) -> Definition {
    let (name, paths) = (paths.join(", "), paths.iter().map(|path| Path::parse(path).unwrap()).collect());
    definition.indexes.push(IndexDefinition { name, kind: IndexKind::Ordered, unique: false, paths });
    definition
}

fn equal(a: &[Value], b: &[Value]) -> bool {
    let same = |a: &Value, b: &Value| holdfast::space::compare(a.stored().get(), b.stored().get()).is_eq();
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// What the query gives, checked against all that match its condition, sorted here.
fn check(entries: &Entries, condition: &str, order: &str, (limit, offset): (u64, u64)) {
    let sql = format!("{condition} {order} LIMIT {limit} OFFSET {offset}");
    let query = Query::parse(&sql).unwrap();
    let (all, filter) = (Wanted::all(), Query::parse(condition).unwrap().predicate);
    let mut expected = entries.read_many(&all, usize::MAX).unwrap();
    expected.retain(|entry| filter.matches(entry.document.fields()));
    let matching: BTreeSet<i64> = expected.iter().map(id).collect();
    expected.sort_by(|a, b| query.compare(a.document.fields(), b.document.fields()));
    let expected: Vec<_> = expected.iter().skip(offset as usize).take(limit as usize).collect();
    let found = entries.read_many(&Wanted::query(&sql, &[]).unwrap(), usize::MAX).unwrap();
    assert_eq!(found.len(), expected.len(), "{sql}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(equal(&keys(&query, &found.document), &keys(&query, &expected.document)), "{sql}");
    }
    let ids: BTreeSet<i64> = found.iter().map(id).collect();
    assert_eq!(ids.len(), found.len(), "{sql}: each once");
    assert!(ids.is_subset(&matching), "{sql}");
}

#[test]
fn whatever_indexes_there_are_the_first_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let seed = base::entropy();
    println!("seed {seed}");
    let mut random = base::Random::new(seed);
    let plain = Definition::new("o", "t");
    let kinds = [
        plain.clone(),
        ordered(plain.clone(), &["a"]),
        ordered(ordered(plain.clone(), &["b"]), &["a", "b"]),
        ordered(plain.clone(), &["a", "b", "c"]),
        ordered(ordered(plain.clone(), &["b", "a"]), &["c"]),
        ordered(Definition { placement: Placement::Together, ..plain }, &["a"]),
    ];
    for (number, definition) in kinds.into_iter().enumerate() {
        let definition = Definition { name: format!("t{number}"), ..definition };
        let entries = store.space("o").declare(definition).unwrap();
        for id in 0..600 {
            let mut fields: BTreeMap<String, Value> = BTreeMap::from([("id".to_owned(), Value::from(id))]);
            for name in FIELDS {
                fields.extend(value(&mut random).map(|value| (name.to_owned(), value)));
            }
            // Of one kind all have every field, so that an index has all entries.
            if number % 2 == 1 {
                FIELDS.iter().for_each(|name| {
                    let there = fields.entry((*name).to_owned()).or_insert(Value::from(3));
                    *there = if *there == Value::Null { Value::from(4) } else { there.clone() };
                });
            }
            entries.write(&Document::new(&fields), &upsert()).unwrap();
        }
        for _ in 0..150 {
            let mut pick = |of: &[&str]| of[random.below(of.len() as u64) as usize].to_owned();
            let condition = pick(&[
                "id >= 0",
                "a > 2",
                "a >= 2 AND a < 6",
                "a = 3",
                "a = 3 AND b > 1",
                "b <= 5",
                "a IN (1, 2)",
                "b = 2 AND a = 5",
                "c <> 3",
                "a > 100",
            ]);
            let key = |pick: &mut dyn FnMut(&[&str]) -> String| {
                [pick(&FIELDS), pick(&["", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST"])].join(" ")
            };
            let mut keys = vec![key(&mut pick)];
            while pick(&["more", "enough"]) == "more" && keys.len() < 3 {
                keys.push(key(&mut pick));
            }
            let window = (random.below(12), random.below(4) * random.below(4));
            check(&entries, &condition, &format!("ORDER BY {}", keys.join(", ")), window);
        }
    }
}

#[test]
fn the_first_of_many_are_come_to_along_an_index_and_not_by_looking_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let indexed = ordered(ordered(Definition::new("o", "t"), &["n"]), &["kind", "n"]);
    let entries = store.space("o").declare(indexed).unwrap();
    for id in 0..4000 {
        let fields = [("id", Value::from(id)), ("n", (id * 7919 % 4000).into()), ("kind", (id % 2).into())];
        entries.write(&Document::from_pairs(fields), &upsert()).unwrap();
    }
    let looked_at = |sql: &str| -> u64 {
        let plans = entries.explain(&Wanted::query(sql, &[]).unwrap()).unwrap();
        plans.iter().map(|plan| plan.candidates).sum()
    };
    let n = |sql: &str| -> Vec<i64> {
        let found = entries.read_many(&Wanted::query(sql, &[]).unwrap(), usize::MAX).unwrap();
        let number = |entry: &holdfast::space::Entry| match entry.document.get("n") {
            Some(ValueRef::I64(n)) => n,
            other => panic!("{other:?}"),
        };
        found.iter().map(number).collect()
    };
    for (sql, expected) in [
        ("n >= 100 ORDER BY n LIMIT 3", [100, 101, 102]),
        ("n > 100 AND n < 3000 ORDER BY n DESC LIMIT 3", [2999, 2998, 2997]),
        ("n <> 1 ORDER BY n LIMIT 3 OFFSET 2", [3, 4, 5]),
        ("kind = 1 ORDER BY n DESC LIMIT 3", [3999, 3997, 3995]),
        ("n >= 10 ORDER BY n, kind DESC LIMIT 3", [10, 11, 12]),
    ] {
        assert!(looked_at(sql) <= 5 * 16, "{sql}: {}", looked_at(sql));
        assert_eq!(n(sql), expected, "{sql}");
    }
    // What has one value orders nothing: entries with others are not come to.
    for sql in
        ["kind = 1 ORDER BY kind, n LIMIT 3", "kind = 1 AND n >= 0 ORDER BY kind LIMIT 3", "kind = 1 ORDER BY kind"]
    {
        let outlook = |few| entries.outlook(&Wanted::query(sql, &[]).unwrap(), usize::MAX, few).unwrap();
        assert_eq!((outlook(2000), outlook(1999) != Outlook::Few), (Outlook::Few, true), "{sql}");
    }
    assert_eq!(n("kind = 1 AND n > 7 ORDER BY kind DESC, n LIMIT 2"), [9, 11]);
    // Without a limit, or by what no index has, all are looked at.
    assert!(looked_at("n >= 100 ORDER BY n") > 3000);
    assert_eq!(looked_at("n <> 1 ORDER BY id LIMIT 3"), 4000);
    // What has no value is not in the index, and comes first.
    entries.write(&Document::from_pairs([("id", 5000)]), &upsert()).unwrap();
    let first = entries.read_many(&Wanted::query("id >= 0 ORDER BY n LIMIT 2", &[]).unwrap(), 10).unwrap();
    assert_eq!(first.iter().map(id).collect::<Vec<_>>(), [5000, 0]);
}

/// Of a type that lies by its customer, with these: whose, and how they are ordered.
fn by_customer(store: &Store, name: &str, all: impl Iterator<Item = (String, i64)>) -> Entries {
    let routing = Some(Path::parse("customer").unwrap());
    let definition = ordered(Definition { routing, ..Definition::new("o", name) }, &["total"]);
    let entries = store.space("o").declare(definition).unwrap();
    for ((customer, total), id) in all.zip(0..) {
        entries.write(&order(id, &customer, total), &upsert()).unwrap();
    }
    entries
}

/// A partition is asked for its share of a page, and again when it has more of it: wherever the first lie, and however many are equal.
#[test]
fn a_page_is_the_same_whichever_partitions_its_entries_lie_in() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let one = |id: i64| if id % 4 == 0 { "all".to_owned() } else { format!("c{id}") };
    let kinds = [
        // The first quarter in one partition; all in one; all equal; equal by tens, the one partition among them.
        by_customer(&store, "first", (0..800).map(|id| (one(id), if id % 4 == 0 { id } else { 10_000 + id }))),
        by_customer(&store, "alone", (0..800).map(|id| ("all".to_owned(), id))),
        by_customer(&store, "equal", (0..800).map(|id| (format!("c{id}"), 7))),
        by_customer(&store, "tens", (0..800).map(|id| (one(id), id / 10))),
    ];
    for entries in &kinds {
        for (condition, keys) in [("total >= 0", "total"), ("total >= 0", "total DESC"), ("total > 5", "total")] {
            let sql = format!("{condition} ORDER BY {keys}");
            let all = entries.read_many(&Wanted::query(&sql, &[]).unwrap(), usize::MAX).unwrap();
            let longest: Vec<i64> = all.iter().map(id).collect();
            assert!(longest.len() > 700, "{sql}: without a limit all");
            for limit in [799, 0, 1, 2, 15, 16, 17, 100, 150, 400] {
                for offset in [0, 3] {
                    check(entries, condition, &format!("ORDER BY {keys}"), (limit, offset));
                }
                let sql = format!("{condition} ORDER BY {keys} LIMIT {limit}");
                let found = entries.read_many(&Wanted::query(&sql, &[]).unwrap(), usize::MAX).unwrap();
                let found: Vec<i64> = found.iter().map(id).collect();
                assert!(longest.starts_with(&found), "{sql}: of equal ones the same are first");
            }
        }
    }
}

/// Behind a page's first entries a partition is asked for more, and may have been changed meanwhile: an entry that goes to and fro was there twice,
/// or not at all.
#[test]
fn a_partition_that_is_asked_twice_for_a_page_is_shown_as_of_one_instant() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { limits: Limits::default(), ..options() }).unwrap();
    let routing = Some(Path::parse("customer").unwrap());
    let storage = Storage::Volatile;
    let definition = ordered(Definition { routing, storage, ..Definition::new("o", "t") }, &["total"]);
    let entries = store.space("o").declare(definition).unwrap();
    for id in 0..300 {
        entries.write(&order(id, "all", id * 10), &upsert()).unwrap();
        entries.write(&order(1_000 + id, &format!("c{id}"), 100_000 + id), &upsert()).unwrap();
    }
    let page = Wanted::query("total >= 0 ORDER BY total LIMIT 300", &[]).unwrap();
    let (ends, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // From the front of the page to its end, and back.
            while !ends.load(Ordering::Relaxed) {
                for total in [2_995, 5] {
                    entries.write(&order(0, "all", total), &upsert()).unwrap();
                    moved.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let wrong = (0..3_000).find_map(|_| {
            let found = entries.read_many(&page, usize::MAX).unwrap();
            let ids: Vec<i64> = found.iter().map(id).collect();
            // Each of the one partition once, and none of another.
            let distinct: BTreeSet<i64> = ids.iter().copied().filter(|id| *id < 300).collect();
            (ids.len() != 300 || distinct.len() != 300).then_some(ids)
        });
        // Before anything fails, or nobody would end who moves it.
        ends.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
    assert!(moved.into_inner() > 100, "it was changed meanwhile");
}
