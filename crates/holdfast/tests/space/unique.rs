//! Unique indexes of types whose entries lie together: over whatever paths, whoever writes, and after a restart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast::ErrorKind;
use holdfast::space::{AtLimit, Change, IndexDefinition, Lease, Order, Path, Placement, Storage, ValueRef, WriteMode};

use super::*;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn unique(name: &str, kind: IndexKind, paths: &[&str]) -> IndexDefinition {
    IndexDefinition { name: name.to_owned(), kind, unique: true, paths: paths.iter().map(|it| path(it)).collect() }
}

/// Users: nobody has another's address, nor his name in one city, nor one of his cards.
fn definition() -> Definition {
    Definition {
        placement: Placement::Together,
        history: true,
        indexes: vec![
            unique("email", IndexKind::Hash, &["email"]),
            unique("name", IndexKind::Ordered, &["city", "name"]),
            unique("card", IndexKind::Hash, &["cards[*]"]),
        ],
        ..Definition::new("s", "user")
    }
}

fn users(store: &Store) -> Entries {
    store.space("s").declare(definition()).unwrap()
}

fn user(json: &str) -> Document {
    Document::from_json(json.as_bytes()).unwrap()
}

fn is_refused<T>(by: &str, written: holdfast::Result<T>) {
    let error = written.err().unwrap();
    assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains(by), "{by}: {error}");
}

#[test]
fn what_is_to_be_unique_is_whatever_the_paths() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { partitions: 16, ..options() }).unwrap();
    let users = users(&store);
    let write = |json: &str| users.write(&user(json), &upsert());
    write(r#"{"id":1,"email":"ada@x","city":"Rome","name":"Ada","cards":[10,11,11]}"#).unwrap();
    write(r#"{"id":"two","email":"bob@x","city":"Rome","name":"Bob","cards":[12]}"#).unwrap();
    is_refused("email", write(r#"{"id":3,"email":"ada@x"}"#));
    is_refused("name", write(r#"{"id":3,"city":"Rome","name":"Ada"}"#));
    is_refused("card", write(r#"{"id":3,"cards":[20,12]}"#));
    // Who lacks a value has none that another could have.
    for id in 3..6 {
        write(&format!(r#"{{"id":{id},"city":"Rome","email":null,"cards":[]}}"#)).unwrap();
    }
    // Itself is no other, and what it gives up is free.
    write(r#"{"id":1,"email":"ada@x","city":"Rome","name":"Ada","cards":[11]}"#).unwrap();
    write(r#"{"id":3,"cards":[10]}"#).unwrap();
    let set = |name: &str, value: &str| [Change::Set { path: path(name), value: value.into() }];
    is_refused("email", users.change(&Wanted::id(1), &set("email", "bob@x"), &upsert()));
    is_refused("name", users.change(&Wanted::id(1), &set("name", "Bob"), &upsert()));
    users.change(&Wanted::id(1), &set("email", "ada@y"), &upsert()).unwrap().unwrap();
    write(r#"{"id":4,"email":"ada@x"}"#).unwrap();
    users.take(&Wanted::id("two"), &now()).unwrap().unwrap();
    write(r#"{"id":5,"email":"bob@x","city":"Rome","name":"Bob"}"#).unwrap();
    let partial = WriteOptions { mode: WriteMode::Partial, ..upsert() };
    is_refused("email", users.write(&user(r#"{"id":5,"email":"ada@y"}"#), &partial));
    // They lie in one partition, which a query looks at alone.
    assert_eq!(users.explain(&Wanted::query("city = 'Rome'", &[]).unwrap()).unwrap().len(), 1);
    // Values that are equal are one, whatever they are written as.
    write(r#"{"id":7,"email":7}"#).unwrap();
    is_refused("email", write(r#"{"id":8,"email":7.0}"#));
}

#[test]
fn a_batch_keeps_what_is_unique_and_may_pass_it_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let users = users(&store);
    let email = |id: i64, email: &str| user(&format!(r#"{{"id":{id},"email":"{email}"}}"#));
    let mut both = store.begin();
    users.within(&mut both).write(&email(1, "a"), &upsert()).unwrap();
    users.within(&mut both).write(&email(2, "a"), &upsert()).unwrap();
    is_refused("email", both.commit(Durability::Written));
    assert_eq!(users.count(&Wanted::all()).unwrap(), 0);
    users.write(&email(1, "a"), &upsert()).unwrap();
    // One gives it up, another gets it; and two change theirs with each other.
    let mut passes = store.begin();
    users.within(&mut passes).take(&Wanted::id(1), &now()).unwrap().unwrap();
    users.within(&mut passes).write(&email(2, "a"), &upsert()).unwrap();
    users.within(&mut passes).write(&email(3, "b"), &upsert()).unwrap();
    passes.commit(Durability::Written).unwrap();
    let mut swaps = store.begin();
    users.within(&mut swaps).write(&email(2, "b"), &upsert()).unwrap();
    users.within(&mut swaps).write(&email(3, "a"), &upsert()).unwrap();
    swaps.commit(Durability::Written).unwrap();
    is_refused("email", users.write(&email(4, "b"), &upsert()));
    // Somebody came first while a transaction was open.
    let mut late = store.begin();
    users.within(&mut late).write(&email(5, "c"), &upsert()).unwrap();
    users.write(&email(6, "c"), &upsert()).unwrap();
    is_refused("email", late.commit(Durability::Written));
    // So may a task, where they lie.
    let space = store.space("s");
    let passed = space.execute_beside("user", None, |task| {
        let old = task.take("user", 6)?;
        task.write("user", &email(7, "c"), &upsert())?;
        Ok(old.and_then(|old| old.document.get("email").map(ValueRef::to_value)))
    });
    assert_eq!(passed.unwrap(), Some("c".into()));
    is_refused("email", users.write(&email(8, "c"), &upsert()));
    is_refused("email", space.execute_beside("user", None, |task| task.write("user", &email(8, "c"), &upsert())));
    space.declare(Definition::new("s", "spread")).unwrap();
    for (name, says) in [("spread", "lie in partitions"), ("none", "no type none")] {
        let error = space.execute_beside(name, None, |_| Ok(())).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_value_is_free_when_a_lease_ends() {
    let (store, clock) = with_clock();
    let users = users(&store);
    let lease = WriteOptions { lease: Lease::For(Duration::from_millis(10)), ..upsert() };
    users.write(&user(r#"{"id":1,"email":"a"}"#), &lease).unwrap();
    users.write(&user(r#"{"id":2,"email":"b"}"#), &upsert()).unwrap();
    let change = [Change::Set { path: path("email"), value: "a".into() }];
    is_refused("email", users.change(&Wanted::id(2), &change, &upsert()));
    clock.advance(Duration::from_millis(20));
    users.change(&Wanted::id(2), &change, &upsert()).unwrap().unwrap();
    users.write(&user(r#"{"id":3,"email":"b"}"#), &upsert()).unwrap();
}

/// Of several that write one value at the same time one succeeds.
#[test]
fn many_writers_share_no_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { partitions: 16, ..options() }).unwrap();
    let users = users(&store);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let (users, done, store) = (&users, &done, &store);
            scope.spawn(move || {
                for value in 0..200_i64 {
                    let document = user(&format!(r#"{{"id":{},"email":{value}}}"#, value * 4 + thread));
                    let written = if (value + thread) % 2 == 0 {
                        users.write(&document, &upsert()).map(drop)
                    } else {
                        let mut transaction = store.begin();
                        users.within(&mut transaction).write(&document, &upsert()).unwrap();
                        transaction.commit(Durability::Written).map(drop)
                    };
                    match written {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!((done.into_inner(), users.count(&Wanted::all()).unwrap()), (200, 200));
}

#[test]
fn an_index_of_what_is_there_is_refused_where_it_would_not_be_unique() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("s");
    let plain = Definition { indexes: Vec::new(), ..definition() };
    let users = space.declare(plain.clone()).unwrap();
    let write = |json: &str| users.write(&user(json), &upsert()).unwrap();
    write(r#"{"id":1,"email":"a","city":"Rome"}"#);
    write(r#"{"id":2,"email":"a","city":"Rome","cards":[1,1]}"#);
    is_refused("email", space.declare(definition()));
    write(r#"{"id":2,"email":"b","city":"Rome","cards":[1,1]}"#);
    space.declare(definition()).unwrap();
    is_refused("email", users.write(&user(r#"{"id":3,"email":"b"}"#), &upsert()));
    space.declare(plain).unwrap();
    write(r#"{"id":3,"email":"b"}"#);
}

/// What users write, compared with a list that is gone through, over restarts with a snapshot and without.
#[test]
fn it_is_as_a_list_would_have_it_also_after_restarts() {
    let (disk, ledgers) = (base::memory::Disk::new(1), MemoryLedgers::new());
    let open = || Store::open_in(&world(&disk, &ledgers), std::path::Path::new("/store"), options()).unwrap();
    let mut store = open();
    let mut users = users(&store);
    let mut list: BTreeMap<i64, (i64, Option<i64>)> = BTreeMap::new();
    let mut random = 88_172_645_463_325_252_u64;
    let mut below = move |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        i64::try_from(random % bound).unwrap()
    };
    let mut refused = 0;
    for round in 0..4000 {
        let id = below(20);
        if below(5) == 0 {
            let gone = users.take(&Wanted::id(id), &now()).unwrap();
            assert_eq!(gone.is_some(), list.remove(&id).is_some());
        } else {
            let (email, name) = (below(25), Some(below(4)).filter(|name| *name > 0));
            let name_json = name.map(|name| format!(r#","name":{name}"#)).unwrap_or_default();
            let document = user(&format!(r#"{{"id":{id},"email":{email},"city":{}{name_json}}}"#, email % 3));
            let clashes = |(other, (has, named)): (&i64, &(i64, Option<i64>))| {
                *other != id && (*has == email || (name.is_some() && *named == name && has % 3 == email % 3))
            };
            let is_free = !list.iter().any(clashes);
            let written = users.write(&document, &upsert());
            assert_eq!(written.is_ok(), is_free, "{round}: {document:?} {list:?}");
            match written {
                Ok(_) => drop(list.insert(id, (email, name))),
                Err(_) => refused += 1,
            }
        }
        if round % 500 == 499 {
            if round % 1000 == 999 {
                store.close().unwrap();
            }
            drop((store, users));
            store = open();
            users = store.space("s").entries("user").unwrap();
            assert_eq!(*users.definition(), definition());
            assert_eq!(users.count(&Wanted::all()).unwrap(), list.len() as u64);
        }
    }
    assert!(refused > 500 && !list.is_empty(), "{refused}");
}

#[test]
fn a_limit_is_all_of_a_types_where_its_entries_lie_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { partitions: 16, ..options() }).unwrap();
    for at_limit in [AtLimit::Refuse, AtLimit::Evict] {
        let name = format!("{at_limit:?}");
        let definition = Definition {
            memory_bytes_max: 8 << 10,
            at_limit,
            placement: Placement::Together,
            ..Definition::new("s", name)
        };
        let entries = store.space("s").declare(definition).unwrap();
        let written = (0..200).take_while(|id| entries.write(&order(*id, "ada", 0), &upsert()).is_ok()).count();
        let (usage, is_full) = (entries.usage(), written < 200);
        assert_eq!(is_full, at_limit == AtLimit::Refuse);
        assert!(usage.bytes > 7 << 10 && usage.bytes <= 8 << 10, "{}: one partition has all of it", usage.bytes);
    }
}

#[test]
fn where_entries_lie_is_said_once_and_makes_sense() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let space = store.space("s");
    let spread = Definition { placement: Placement::Spread, ..definition() };
    let together = Definition { indexes: Vec::new(), ..definition() };
    for (definition, says) in [
        (spread.clone(), "declare that the type's entries lie together (TOGETHER)"),
        (Definition { routing: Some(path("city")), ..spread }, "lie together (TOGETHER)"),
        (Definition { routing: Some(path("city")), ..together.clone() }, "have no routing"),
        (Definition { order: Order::Fifo, ..together.clone() }, "lie together anyway"),
        (Definition { order: Order::Groups(path("city")), ..together.clone() }, "lie by their group"),
    ] {
        let error = space.declare(definition).err().unwrap();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(says), "{error}");
    }
    space.declare(together.clone()).unwrap();
    let error = space.declare(Definition { placement: Placement::Spread, ..together.clone() }).err().unwrap();
    assert!(error.to_string().contains("are fixed"), "{error}");
    // In order they lie together, too; and in memory only.
    let queue =
        Definition { placement: Placement::Spread, order: Order::Fifo, name: "queue".to_owned(), ..definition() };
    let volatile =
        Definition { storage: Storage::Volatile, history: false, name: "volatile".to_owned(), ..definition() };
    for definition in [queue, volatile] {
        let entries = space.declare(definition).unwrap();
        entries.write(&user(r#"{"id":1,"email":"a"}"#), &upsert()).unwrap();
        is_refused("email", entries.write(&user(r#"{"id":2,"email":"a"}"#), &upsert()));
        assert!(entries.take(&Wanted::all(), &now()).unwrap().is_some());
        entries.write(&user(r#"{"id":2,"email":"a"}"#), &upsert()).unwrap();
    }
    // A task is one batch there, in the order of its writing.
    let told = space.execute_beside("queue", None, |task| {
        for id in [9, 3, 7] {
            task.write("queue", &user(&format!(r#"{{"id":{id}}}"#)), &upsert())?;
        }
        task.take("queue", 2)?;
        task.read("queue", &Wanted::all(), 10)
    });
    assert_eq!(told.unwrap().iter().map(id).collect::<Vec<_>>(), [9, 3, 7]);
    let queue = space.entries("queue").unwrap();
    let taken = std::iter::from_fn(|| queue.take(&Wanted::all(), &now()).unwrap());
    assert_eq!(taken.map(|entry| id(&entry)).collect::<Vec<_>>(), [9, 3, 7]);
}
