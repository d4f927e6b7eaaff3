//! A refusal is an answer too: that an entry or a key is there, or is not, or has another version, is not said before what it rests on is as
//! durable as the store promises.

use holdfast::space::{Change, IndexDefinition, Lease, Path, Placement, ReadLock, Storage, WriteMode};
use holdfast::{Condition, Error, ErrorKind, Position, PutOptions, Result, Scope};

use super::*;

fn mode(mode: WriteMode) -> WriteOptions {
    WriteOptions { mode, ..upsert() }
}

fn version(version: Position) -> WriteOptions {
    WriteOptions { version: Some(version), ..upsert() }
}

fn set(field: &str, value: impl Into<Value>) -> [Change; 1] {
    [Change::Set { path: Path::parse(field).unwrap(), value: value.into() }]
}

/// Users of whom nobody has another's name.
fn users(store: &Store, storage: Storage) -> Entries {
    let paths = vec![Path::parse("name").unwrap()];
    let index = IndexDefinition { name: "name".to_owned(), kind: IndexKind::Hash, unique: true, paths };
    let user =
        Definition { placement: Placement::Together, storage, indexes: vec![index], ..Definition::new("s", "user") };
    store.space("s").declare(user).unwrap()
}

fn user(id: i64, name: &str) -> Document {
    Document::from_pairs([("id", Value::from(id)), ("name", name.into())])
}

/// A store that promises what is synced, on this disk.
fn synced(disk: &base::memory::Disk) -> Store {
    let options = Options { durability: Durability::Synced, ..options() };
    Store::open_in(&world(disk, &MemoryLedgers::new()), std::path::Path::new("/s"), options).unwrap()
}

/// What the refusal rests on; it has to be one of this kind.
fn ground<T>(kind: ErrorKind, refused: Result<T>) -> Option<Position> {
    let error = refused.err().expect("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    error.rests_on()
}

/// A writer was told that the entry was there, which another had written an instant before; after a crash it never was.
#[test]
fn a_refusal_names_what_it_rests_on() {
    let store = synced(&base::memory::Disk::new(1));
    let users = users(&store, Storage::Durable);
    let first = users.write_shown(&user(1, "ada"), &upsert()).unwrap().version;
    let second = users.write_shown(&user(2, "bob"), &upsert()).unwrap().version;
    users.take_shown(&Wanted::id(2), &now()).unwrap().value.unwrap();
    let gone = users.absence(&Wanted::id(2)).unwrap();
    let third = users.write_shown(&user(3, "eve"), &upsert()).unwrap().version;
    let one = Wanted::id(1);
    let take = ReadOptions { version: Some(third), ..now() };
    let count = [Change::Increment { path: Path::parse("name").unwrap(), by: 1.into() }];
    let conflict = ErrorKind::Conflict;
    for (what, rests_on, wanted) in [
        ("insert", ground(conflict, users.write_shown(&user(1, "x"), &mode(WriteMode::Insert))), first),
        ("version", ground(conflict, users.write_shown(&user(1, "x"), &version(third))), first),
        ("version of none", ground(conflict, users.write_shown(&user(2, "x"), &version(second))), gone),
        ("update", ground(conflict, users.write_shown(&user(2, "x"), &mode(WriteMode::Update))), gone),
        ("partial", ground(conflict, users.write_shown(&user(9, "x"), &mode(WriteMode::Partial))), gone),
        ("unique", ground(conflict, users.write_shown(&user(4, "eve"), &upsert())), third),
        ("change", ground(conflict, users.change_shown(&one, &set("name", "x"), &version(third))), first),
        ("change to what is unique", ground(conflict, users.change_shown(&one, &set("name", "eve"), &upsert())), third),
        (
            "change to what an older one has",
            ground(conflict, users.change_shown(&Wanted::id(3), &set("name", "ada"), &upsert())),
            third,
        ),
        ("write of what an older one has", ground(conflict, users.write_shown(&user(3, "ada"), &upsert())), third),
        ("change that does not fit", ground(ErrorKind::Invalid, users.change_shown(&one, &count, &upsert())), first),
        ("change of the id", ground(ErrorKind::Invalid, users.change_shown(&one, &set("id", 5), &upsert())), first),
        ("renew", ground(conflict, users.renew_shown(&one, &version(third))), first),
        ("take", ground(conflict, users.take_shown(&one, &take)), first),
        ("read", ground(conflict, users.read_shown(&one, &take)), first),
    ] {
        assert_eq!(rests_on, Some(wanted), "{what}");
    }
    // What has nothing to do with what is there rests on nothing.
    assert_eq!(ground(ErrorKind::Invalid, users.change_shown(&Wanted::all(), &set("name", "x"), &upsert())), None);
    assert!(store.watermarks().synced <= first, "nobody has waited yet");
}

#[test]
fn who_waits_for_durability_is_refused_when_it_is_durable() {
    type Act = fn(&Entries, Position) -> Result<()>;
    let write: [(&str, Act); 12] = [
        ("insert", |users, _| users.write(&user(1, "x"), &mode(WriteMode::Insert)).map(drop)),
        ("update", |users, _| users.write(&user(2, "x"), &mode(WriteMode::Update)).map(drop)),
        ("version", |users, newest| users.write(&user(1, "x"), &version(newest)).map(drop)),
        ("unique", |users, _| users.write(&user(4, "ada"), &upsert()).map(drop)),
        ("many", |users, _| users.write_many(&[user(1, "x")], &mode(WriteMode::Insert)).pop().unwrap().map(drop)),
        ("change", |users, newest| users.change(&Wanted::id(1), &set("name", "x"), &version(newest)).map(drop)),
        ("change many", |users, _| users.change_many(&Wanted::id(1), &set("id", 7), &upsert()).map(drop)),
        ("take", |users, newest| users.take(&Wanted::id(1), &ReadOptions { version: Some(newest), ..now() }).map(drop)),
        ("take many", |users, newest| {
            users.take_many(&Wanted::id(1), 1, &ReadOptions { version: Some(newest), ..now() }).map(drop)
        }),
        ("read", |users, newest| users.read(&Wanted::id(1), &ReadOptions { version: Some(newest), ..now() }).map(drop)),
        ("task", |users, _| {
            let space = users.store().space("s");
            let insert = |task: &mut holdfast::space::Task<'_>| {
                task.write("user", &user(1, "x"), &mode(WriteMode::Insert)).map(drop)
            };
            space.execute_beside("user", None, insert)
        }),
        ("tasks", |users, _| {
            let refuse = |task: &mut holdfast::space::Task<'_>| match task.get("user", 1)? {
                Some(_) => Err(Error::new(ErrorKind::Conflict, "there is one")),
                None => Ok(()),
            };
            users.store().space("s").execute_all(None, refuse, |(), ()| ())
        }),
    ];
    for (what, refused) in write {
        let disk = base::memory::Disk::new(7);
        let store = synced(&disk);
        let users = users(&store, Storage::Durable);
        let begin = || {
            users.write_shown(&user(2, "bob"), &upsert()).unwrap();
            users.write_shown(&user(1, "ada"), &upsert()).unwrap();
            users.take_shown(&Wanted::id(2), &now()).unwrap().position
        };
        let newest = begin();
        let error = refused(&users, newest).expect_err(what);
        assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid), "{what}: {error}");
        assert!(store.watermarks().synced > error.rests_on().expect(what), "{what}");
        let newest = begin();
        disk.plan(0, base::memory::Fault::Error);
        let error = refused(&users, newest).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what} where it cannot be made durable: {error}");
    }
}

#[test]
fn a_refusal_of_what_is_in_no_journal_waits_for_nothing() {
    let disk = base::memory::Disk::new(3);
    let store = synced(&disk);
    let users = users(&store, Storage::Volatile);
    users.write(&user(1, "ada"), &upsert()).unwrap();
    disk.plan(0, base::memory::Fault::Error);
    let (conflict, space) = (ErrorKind::Conflict, store.space("s"));
    let refuse = |task: &mut holdfast::space::Task<'_>| match task.get("user", 1)? {
        Some(_) => Err(Error::new(ErrorKind::Conflict, "there is one")),
        None => Ok(()),
    };
    for (what, rests_on) in [
        ("insert", ground(conflict, users.write(&user(1, "x"), &mode(WriteMode::Insert)))),
        ("update", ground(conflict, users.write(&user(2, "x"), &mode(WriteMode::Update)))),
        ("unique", ground(conflict, users.write(&user(2, "ada"), &upsert()))),
        ("renew", ground(conflict, users.renew_shown(&Wanted::id(1), &version(Position::new(1))).map(drop))),
        (
            "take",
            ground(conflict, users.take(&Wanted::id(1), &ReadOptions { version: Some(Position::new(1)), ..now() })),
        ),
        ("task", ground(conflict, space.execute_beside("user", None, refuse))),
    ] {
        assert_eq!(rests_on, None, "{what}");
    }
}

#[test]
fn a_transaction_that_is_refused_says_what_that_rests_on() {
    let disk = base::memory::Disk::new(5);
    let store = synced(&disk);
    let users = users(&store, Storage::Durable);
    users.write(&user(1, "ada"), &upsert()).unwrap();
    let (mut writes, mut unique, mut reads) = (store.begin(), store.begin(), store.begin());
    users.within(&mut writes).write(&user(5, "new"), &upsert()).unwrap();
    users.within(&mut unique).write(&user(6, "eve"), &upsert()).unwrap();
    assert!(reads.get(b"b", b"k").unwrap().is_none());
    users.write_shown(&user(5, "first"), &upsert()).unwrap();
    let eve = users.write_shown(&user(3, "eve"), &upsert()).unwrap().version;
    let put = store.kv().put_no_wait(b"b", b"k", b"v", &PutOptions::default()).unwrap().position;
    assert_eq!(ground(ErrorKind::Conflict, unique.commit_no_wait()), Some(eve));
    assert_eq!(ground(ErrorKind::Conflict, reads.commit_no_wait()), Some(put));
    assert!(store.watermarks().synced <= eve);
    let rests_on = ground(ErrorKind::Conflict, writes.commit(Durability::Synced)).unwrap();
    assert!(rests_on < eve && store.watermarks().synced > rests_on);
}

/// What a transaction is refused, or told to have been there, while it is open.
#[test]
fn within_a_transaction_a_refusal_waits_as_what_is_read_there() {
    type Act = fn(&mut holdfast::space::Within<'_>, Position) -> Result<()>;
    let acts: [(&str, Act); 6] = [
        ("insert", |users, _| users.write(&user(1, "x"), &mode(WriteMode::Insert)).map(drop)),
        ("update", |users, _| users.write(&user(2, "x"), &mode(WriteMode::Update)).map(drop)),
        ("version", |users, newest| users.write(&user(1, "x"), &version(newest)).map(drop)),
        ("take", |users, newest| users.take(&Wanted::id(1), &ReadOptions { version: Some(newest), ..now() }).map(drop)),
        ("read", |users, newest| {
            let options = ReadOptions { version: Some(newest), ..now() };
            users.read(&Wanted::id(1), ReadLock::Shared, &options).map(drop)
        }),
        ("what was there before", |users, _| {
            let written = users.write(&user(1, "x"), &upsert())?;
            assert_eq!(written.previous.unwrap().document, user(1, "ada"));
            Ok(())
        }),
    ];
    for (what, act) in acts {
        let disk = base::memory::Disk::new(11);
        let store = synced(&disk);
        let users = users(&store, Storage::Durable);
        users.write_shown(&user(2, "bob"), &upsert()).unwrap();
        users.write_shown(&user(1, "ada"), &upsert()).unwrap();
        let newest = users.take_shown(&Wanted::id(2), &now()).unwrap().position;
        let mut joining = store.begin().joining();
        let _ = act(&mut users.within(&mut joining), newest);
        assert!(joining.seen() > Position::ZERO && store.watermarks().synced <= joining.seen(), "{what}");
        drop(joining);
        disk.plan(0, base::memory::Fault::Error);
        let mut transaction = store.begin();
        let error = act(&mut users.within(&mut transaction), newest).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
    }
}

#[test]
fn a_condition_on_a_key_that_does_not_hold_waits_too() {
    let disk = base::memory::Disk::new(9);
    let store = synced(&disk);
    let kv = store.kv();
    let on = |condition| PutOptions { condition, ..PutOptions::default() };
    let put = |key: &[u8]| kv.put_no_wait(b"b", key, b"v", &PutOptions::default()).unwrap().position;
    let removed = |key: &[u8]| {
        put(key);
        let mut exclusive = store.exclusive(&Scope::Keys(&[(b"b", key)])).unwrap();
        assert!(exclusive.delete(b"b", key).unwrap());
        exclusive.commit().unwrap().position
    };
    let (there, gone) = (put(b"there"), removed(b"gone"));
    let conflict = ErrorKind::Conflict;
    let other = Condition::Version(Position::new(1));
    assert_eq!(ground(conflict, kv.put_no_wait(b"b", b"there", b"x", &on(Condition::Absent))), Some(there));
    assert_eq!(ground(conflict, kv.put_no_wait(b"b", b"there", b"x", &on(other))), Some(there));
    assert_eq!(ground(conflict, kv.put_no_wait(b"b", b"gone", b"x", &on(Condition::Present))), Some(gone));
    assert!(store.watermarks().synced <= there);
    assert_eq!(ground(conflict, kv.put(b"b", b"there", b"x", &on(Condition::Absent))), Some(there));
    assert!(store.watermarks().synced > there);
    let gone = removed(b"gone");
    assert_eq!(ground(conflict, kv.delete(b"b", b"gone", Condition::Present)), Some(gone));
    assert!(store.watermarks().synced > gone);
    put(b"late");
    disk.plan(0, base::memory::Fault::Error);
    ground(ErrorKind::Unavailable, kv.delete(b"b", b"late", other));
    ground(ErrorKind::Unavailable, kv.put(b"b", b"late", b"x", &on(Condition::Absent)));
}

/// What a lease has ended is refused as if it were gone, and so it stays after a crash.
#[test]
fn the_end_of_a_lease_is_waited_for_by_no_refusal() {
    let (store, clock) = with_clock();
    let orders = orders(&store);
    let lease = WriteOptions { lease: Lease::For(Duration::from_millis(10)), ..upsert() };
    orders.write(&order(1, "ada", 1), &lease).unwrap();
    clock.advance(Duration::from_millis(11));
    store.step().unwrap();
    assert_eq!(ground(ErrorKind::Conflict, orders.write_shown(&order(1, "x", 1), &mode(WriteMode::Update))), None);
}
