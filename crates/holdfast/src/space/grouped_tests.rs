//! Figures that two threads add up are those that one adds up.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use ::space::{Document, Value, ValueRef};

use super::*;
use crate::error::ErrorKind;
use crate::hands::hands;
use crate::space::{Definition, GoOn, PreparedQuery, Stop, WriteOptions};
use crate::{Durability, Options, Store};

const ONE_THREAD: Duration = Duration::MAX;
const TWO_THREADS: Duration = Duration::ZERO;

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { durability: Durability::Written, ..Options::default() }).unwrap();
    (dir, store)
}

/// Entries of a type, with these values.
fn entries_of(store: &Store, name: &str, values: impl Iterator<Item = Value>) -> Entries {
    let entries = store.space("s").declare(Definition::new("s", name)).unwrap();
    for (value, id) in values.zip(0i64..) {
        let fields = [("id", Value::from(id)), ("kind", (id % 7).into()), ("value", value)];
        entries.write(&Document::from_pairs(fields), &WriteOptions::default()).unwrap();
    }
    entries
}

fn answer(entries: &Entries, sql: &str, worth: Duration) -> Result<Vec<Document>> {
    let query = entries.asked(&PreparedQuery::new(sql).unwrap(), &[])?;
    Ok(entries.grouped_if(worth, &Wanted::of_query(query.clone()), &query)?.finish(&query)?)
}

/// The same entries, and the threads that go through them.
fn watched(entries: &Entries) -> (Entries, Arc<Mutex<BTreeSet<String>>>) {
    let threads = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&threads);
    let go_on = GoOn::new(move || {
        let id: ThreadId = std::thread::current().id();
        seen.lock().unwrap().insert(format!("{id:?}"));
        true
    });
    (entries.until(Stop { go_on: Some(go_on), ..Stop::default() }), threads)
}

#[test]
fn long_ones_have_a_second_thread_and_short_ones_have_none() {
    let (_dir, store) = store();
    let (entries, threads) = watched(&entries_of(&store, "t", (0..500i64).map(Value::from)));
    let counts = |worth| {
        threads.lock().unwrap().clear();
        answer(&entries, "SELECT count(*) FROM t", worth).unwrap();
        threads.lock().unwrap().len()
    };
    assert_eq!((0..20).map(|_| counts(ONE_THREAD)).max(), Some(1));
    // Other tests may have the processors just now.
    let most = hands(true).min(2);
    assert!((0..1_000).any(|_| counts(TWO_THREADS) == most));
    // One that stood still for a millisecond seems long.
    assert!((0..1_000).any(|_| counts(WORTH) == 1), "500 entries are few");
}

#[test]
fn two_threads_come_to_the_same_bits_as_one() {
    let (_dir, store) = store();
    let floats = |id: i64| Value::F64((id as f64 * 0.1).exp() * if id % 3 == 0 { -1.0 } else { 1.0 });
    // Whether these leave what an f64 holds depends on which are added first.
    let large = |id: i64| Value::F64(if id % 2 == 0 { f64::MAX } else { -f64::MAX });
    let kinds = [
        entries_of(&store, "floats", (0..900).map(floats)),
        entries_of(&store, "large", (0..90).map(large)),
        entries_of(&store, "none", std::iter::empty()),
        entries_of(&store, "mixed", (0..400i64).map(|id| if id % 5 == 0 { Value::Null } else { id.into() })),
    ];
    for entries in &kinds {
        let name = &entries.definition().name;
        for sql in [
            "SELECT count(*) AS n, sum(value) AS s, avg(value) AS a, min(value), max(value), count(distinct value) FROM t",
            "SELECT kind, sum(value) AS s, avg(value), count(value) FROM t WHERE id > 3 GROUP BY kind HAVING count(*) > 2 ORDER BY s DESC LIMIT 5",
            "SELECT value, count(*) FROM t GROUP BY value",
            "SELECT sum(value) FROM t WHERE id = 7",
        ] {
            let sql = sql.replace("FROM t", &format!("FROM {name}"));
            let alone = answer(entries, &sql, ONE_THREAD).unwrap();
            for _ in 0..20 {
                let together = answer(entries, &sql, TWO_THREADS).unwrap();
                assert!(alone.iter().map(Document::as_bytes).eq(together.iter().map(Document::as_bytes)), "{sql}");
            }
        }
    }
    let count = answer(&kinds[0], "SELECT count(*) AS n, sum(id) AS s FROM floats", TWO_THREADS).unwrap();
    let figure = |name| count.first().and_then(|row| row.get(name)).map(ValueRef::to_value);
    assert_eq!((figure("n"), figure("s")), (Some(900.into()), Some((899 * 900 / 2).into())));
}

#[test]
fn what_fails_in_either_half_fails_the_whole() {
    let (_dir, store) = store();
    for bad in [0, 150, 299] {
        let value = |id: i64| if id == bad { Value::from("text") } else { id.into() };
        let entries = entries_of(&store, &format!("t{bad}"), (0..300).map(value));
        for worth in [ONE_THREAD, TWO_THREADS] {
            let error = answer(&entries, &format!("SELECT sum(value) FROM t{bad}"), worth).unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("is no number"), "{error}");
        }
        let ended = entries.until(Stop { go_on: Some(GoOn::new(|| false)), ..Stop::default() });
        for worth in [ONE_THREAD, TWO_THREADS] {
            let error = answer(&ended, &format!("SELECT count(*) FROM t{bad}"), worth).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Limit);
        }
    }
}
