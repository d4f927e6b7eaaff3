//! Time series through the store: what was written last is there, in order, whatever was sealed, merged, deleted, killed or cut off
//! in between.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use base::Random;
use base::memory::Disk;
use holdfast::series::{Key, Kind, Match, Range, Rows, Select, SeriesError, Source, Typing, Value, ValueRef};
use holdfast::{Durability, ErrorKind, Limits, MemoryLedgers, Options, PutOptions, Scope, Store, World};

#[path = "series/contents.rs"]
mod contents;
#[path = "series/ends.rs"]
mod ends;
#[path = "series/retention.rs"]
mod retention;

use contents::{Contents, contents};

const DATABASE: &str = "default";

const NOW_MS: u64 = 1_700_000_000_000;

/// A world without threads on a disk in memory.
fn world(disk: &Disk, ledgers: &MemoryLedgers) -> World {
    World {
        files: Arc::new(disk.process()),
        clock: Arc::new(base::ManualClock::at(NOW_MS)),
        ledgers: Arc::new(ledgers.clone()),
        threads: false,
        entropy: 42,
    }
}

fn options() -> Options {
    Options { durability: Durability::Written, limits: Limits::tiny(), partitions: 4, ..Options::default() }
}

fn open(disk: &Disk, ledgers: &MemoryLedgers) -> Store {
    Store::open_in(&world(disk, ledgers), Path::new("/store"), options()).unwrap()
}

fn key(metric: &str, host: &str, field: &str) -> Key {
    let tags = vec![("host".to_owned(), host.to_owned())];
    Key { database: DATABASE.into(), metric: metric.into(), tags, field: field.into() }
}

fn add(rows: &mut Rows, key: &Key, time: i64, value: ValueRef<'_>) {
    let row = rows
        .row(format!("{},{:?}", key.metric, key.tags).as_bytes(), |_| Ok((key.metric.clone(), key.tags.clone())))
        .unwrap();
    let slot = rows.field(row, 0, key.field.as_bytes(), |_| Ok(key.field.clone())).unwrap();
    rows.push(slot, time, value);
}

/// One random change of the store, and of what it should hold.
fn change(store: &Store, rows: &mut Rows, random: &mut Random, model: &mut Contents) -> holdfast::Position {
    let some_key = |random: &mut Random| {
        key(
            ["m", "n"][random.below(2) as usize],
            ["a", "b", "c"][random.below(3) as usize],
            ["value", "f"][random.below(2) as usize],
        )
    };
    let some_time = |random: &mut Random| random.below(100) as i64 * 1_000_000_000 + random.below(2) as i64;
    match random.below(40) {
        0 => {
            let (from, to) = (some_time(random), some_time(random));
            let select = Select::metric(DATABASE, "m").and_tag("host", Match::is("a"));
            model.iter_mut().filter(|(key, _)| select.matches(key)).for_each(|(_, points)| {
                points.retain(|time, _| !(from..=to).contains(time));
            });
            store.series().delete(&select, Range { from, to }).unwrap().0
        }
        1 => {
            let select = Select { field: Some(Match::is("f")), ..Select::metric(DATABASE, "n") };
            model.retain(|key, _| !select.matches(key));
            store.series().drop_series(&select).unwrap().0
        }
        _ => {
            for _ in 0..=random.below(4) {
                let key = some_key(random);
                for _ in 0..=random.below(6) {
                    let (time, number) = (some_time(random), random.below(1000) as i64);
                    let value = match key.field.as_str() {
                        "f" if key.metric == "m" => Value::Text(format!("t{number}").into()),
                        "f" => Value::Integer(number),
                        _ => Value::Float(number as f64 / 100.0),
                    };
                    add(rows, &key, time, value.as_ref());
                    model.entry(key.clone()).or_default().insert(time, value);
                }
            }
            let written = store.series().write(rows).unwrap();
            assert_eq!((written.refused, rows.len()), (vec![], 0));
            written.position
        }
    }
}

#[test]
fn whatever_happens_in_between_the_last_write_is_what_is_there() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (disk, ledgers) = (Disk::new(seed), MemoryLedgers::default());
        let mut model = Contents::new();
        for _ in 0..4 {
            let store = open(&disk, &ledgers);
            let mut rows = Rows::new(DATABASE);
            assert_eq!(contents(&store), model, "seed {seed}, after opening");
            for _ in 0..random.below(60) {
                let position = change(&store, &mut rows, &mut random, &mut model);
                store.wait(position, Durability::Written).unwrap();
                match random.below(12) {
                    0 => store.series().seal().unwrap(),
                    1 => store.step().unwrap(),
                    2 => assert_eq!(contents(&store), model, "seed {seed}"),
                    _ => {}
                }
            }
            let live = store.digest().unwrap();
            assert_eq!(contents(&store), model, "seed {seed}, at the end");
            if random.chance(1, 2) {
                store.close().unwrap();
            } else {
                // A kill: nothing is written any more, and what was is there.
                disk.kill_process();
                drop(store);
                ledgers.kill_process();
            }
            let store = open(&disk, &ledgers);
            assert_eq!(store.digest().unwrap(), live, "seed {seed}: replay equals live");
            drop(store);
        }
    }
}

#[test]
fn a_power_cut_takes_at_most_what_was_not_synced_and_only_the_newest() {
    for seed in 0..60 {
        let mut random = Random::new(1000 + seed);
        let (disk, ledgers) = (Disk::new(seed), MemoryLedgers::default());
        let mut model = Contents::new();
        for _ in 0..3 {
            let store = open(&disk, &ledgers);
            let mut rows = Rows::new(DATABASE);
            let mut states = vec![model.clone()];
            let mut promised = 0;
            for _ in 0..random.below(50) {
                let position = change(&store, &mut rows, &mut random, &mut model);
                states.push(model.clone());
                if random.chance(1, 6) {
                    store.wait(position, Durability::Synced).unwrap();
                    promised = states.len() - 1;
                }
                if random.chance(1, 10) {
                    store.step().unwrap();
                }
                if random.chance(1, 20) {
                    store.series().seal().unwrap();
                    promised = states.len() - 1;
                }
            }
            disk.power_cut();
            drop(store);
            disk.power_on();
            ledgers.kill_process();
            let store = open(&disk, &ledgers);
            let found = contents(&store);
            let is_there = states.iter().skip(promised).any(|state| *state == found);
            assert!(is_there, "seed {seed}: what is there is none of the states since the last promise");
            model = found;
            store.close().unwrap();
        }
    }
}

fn flush(store: &Store, rows: &mut Rows) -> holdfast::series::Written {
    store.series().write(rows).unwrap()
}

fn one(store: &Store, key: &Key) -> Vec<(i64, Value)> {
    contents(store).remove(key).unwrap_or_default().into_iter().collect()
}

#[test]
fn points_and_keys_are_one_batch_or_none() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    add(&mut rows, &key("m", "a", "value"), 5, ValueRef::Float(1.0));
    let mut exclusive = store.exclusive(&Scope::Keys(&[(b"b", b"k")])).unwrap();
    exclusive.put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
    exclusive.add_points(&mut rows).unwrap();
    exclusive.commit().unwrap();
    assert_eq!(one(&store, &key("m", "a", "value")), [(5, Value::Float(1.0))]);
    assert!(rows.is_empty());
    // A point that cannot be keeps the key from being changed.
    add(&mut rows, &key("m", "a", "value"), 6, ValueRef::Text("no number"));
    let mut exclusive = store.exclusive(&Scope::Keys(&[(b"b", b"k")])).unwrap();
    exclusive.put(b"b", b"k", b"other", &PutOptions::default()).unwrap();
    exclusive.add_points(&mut rows).unwrap();
    assert_eq!(exclusive.commit().map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    assert_eq!(&*store.kv().get(b"b", b"k").unwrap().unwrap().value, b"v");
    let digest = store.digest().unwrap();
    store.wait(store.watermarks().appended, Durability::Written).unwrap();
    disk.kill_process();
    drop(store);
    ledgers.kill_process();
    let store = open(&disk, &ledgers);
    assert_eq!(store.digest().unwrap(), digest);
    assert_eq!(one(&store, &key("m", "a", "value")), [(5, Value::Float(1.0))]);
}

/// Batches with points were neither slowed nor bounded: memory grew for as long as they came faster than they were sealed.
#[test]
fn points_in_batches_are_refused_when_memory_is_full_and_taken_again_when_there_is_room() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    let mut written = 0;
    let refused = loop {
        assert!(written < 10_000, "nobody is refused");
        (0..10).for_each(|more| add(&mut rows, &key("m", "a", "value"), written + more, ValueRef::Float(1.0)));
        let mut exclusive = store.exclusive(&Scope::Keys(&[(b"b", b"k")])).unwrap();
        exclusive.put(b"b", b"k", written.to_string().as_bytes(), &PutOptions::default()).unwrap();
        match exclusive.add_points(&mut rows) {
            Ok(()) => exclusive.commit().unwrap(),
            Err(error) => break error,
        };
        written += 10;
    };
    assert!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("try again"), "{refused}");
    let max = 2 * Limits::tiny().series_memory_bytes;
    let held = store.stats().series.memory_bytes;
    assert!(held > max && held < 2 * max, "{held} of {max}");
    assert_eq!(store.kv().get(b"b", b"k").unwrap().unwrap().value.as_ref(), (written - 10).to_string().as_bytes());
    assert!(store.series().is_crowded());
    store.series().make_room(10).unwrap();
    assert!(!store.series().is_crowded());
    let mut exclusive = store.exclusive(&Scope::Keys(&[])).unwrap();
    exclusive.add_points(&mut rows).unwrap();
    exclusive.commit().unwrap();
    assert_eq!(one(&store, &key("m", "a", "value")).len() as i64, written + 10);
}

#[test]
fn types_that_do_not_fit_are_refused_and_integers_become_doubles_where_doubles_are() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    let (m, n) = (key("m", "a", "value"), key("n", "a", "value"));
    add(&mut rows, &m, 1, ValueRef::Float(1.5));
    add(&mut rows, &n, 1, ValueRef::Integer(1));
    flush(&store, &mut rows);
    add(&mut rows, &m, 2, ValueRef::Integer(2));
    add(&mut rows, &n, 2, ValueRef::Float(2.5));
    assert_eq!(flush(&store, &mut rows).refused, []);
    assert_eq!(one(&store, &m), [(1, Value::Float(1.5)), (2, Value::Float(2.0))]);
    assert_eq!(one(&store, &n), [(1, Value::Integer(1)), (2, Value::Float(2.5))]);
    rows.set_typing(Typing::Strict);
    add(&mut rows, &m, 3, ValueRef::Integer(2));
    add(&mut rows, &key("k", "a", "value"), 3, ValueRef::Integer(2));
    let written = flush(&store, &mut rows);
    let reason =
        "field type conflict: input field \"value\" on measurement \"m\" is type integer, already exists as type float";
    assert_eq!((written.points, written.refused[0].reason.as_str(), written.refused.len()), (1, reason, 1));
    store.series().seal().unwrap();
    drop(store);
    let store = open(&disk, &ledgers);
    assert_eq!(one(&store, &n), [(1, Value::Integer(1)), (2, Value::Float(2.5))]);
}

/// One integer that no double is made a field of doubles one of integers, and lines with doubles were refused from then on.
#[test]
fn a_series_of_doubles_stays_one_whatever_integers_come() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    let (m, n, u) = (key("m", "a", "value"), key("n", "a", "value"), key("u", "a", "value"));
    let large = (1 << 53) + 1;
    add(&mut rows, &m, 1, ValueRef::Float(1.5));
    add(&mut rows, &n, 1, ValueRef::Integer(1));
    add(&mut rows, &u, 1, ValueRef::Unsigned(1));
    flush(&store, &mut rows);
    [&m, &n, &u].iter().for_each(|key| add(&mut rows, key, 2, ValueRef::Integer(large)));
    flush(&store, &mut rows);
    // A double widens what is a series of integers.
    add(&mut rows, &n, 3, ValueRef::Float(0.5));
    flush(&store, &mut rows);
    add(&mut rows, &n, 4, ValueRef::Integer(large));
    assert_eq!(flush(&store, &mut rows).refused, []);
    let check = |store: &Store| {
        let kind = |key: &Key| store.series().reader().series(&Select::metric(DATABASE, &key.metric)).unwrap()[0].kind;
        assert_eq!([&m, &n, &u].map(kind), [Kind::Float, Kind::Float, Kind::Unsigned]);
        let mut rows = Rows::new(DATABASE);
        rows.set_typing(Typing::Strict);
        add(&mut rows, &m, 5, ValueRef::Float(2.5));
        add(&mut rows, &n, 5, ValueRef::Float(2.5));
        add(&mut rows, &u, 5, ValueRef::Unsigned(2));
        assert_eq!(flush(store, &mut rows).refused, []);
        assert_eq!(one(store, &m)[1], (2, Value::Integer(large)), "no digit of it is lost");
    };
    check(&store);
    store.series().seal().unwrap();
    store.close().unwrap();
    drop(store);
    check(&open(&disk, &ledgers));
}

/// InfluxDB knows one type for a field of a measurement: another host is refused as well.
#[test]
fn with_types_taken_strictly_new_series_have_the_type_of_their_field() {
    let store = open(&Disk::new(1), &MemoryLedgers::default());
    let strict = || {
        let mut rows = Rows::new("d");
        rows.set_typing(Typing::Strict);
        rows
    };
    let write = |rows: &mut Rows, points: &[(&str, ValueRef<'_>)]| {
        (0..).zip(points).for_each(|(time, (host, value))| add(rows, &key("m", host, "f"), time, *value));
        let written = store.series().write(rows).unwrap();
        (written.points, written.refused.into_iter().map(|refused| refused.reason).collect::<Vec<_>>())
    };
    let conflict = |is: &str, was: &str| {
        format!(
            "field type conflict: input field \"f\" on measurement \"m\" is type {is}, already exists as type {was}"
        )
    };
    let mut rows = strict();
    // The first that comes says what it is, within a request too.
    let (integer, float) = (ValueRef::Integer(1), ValueRef::Float(1.5));
    assert_eq!(write(&mut rows, &[("a", integer), ("b", float)]), (1, vec![conflict("float", "integer")]));
    for host in 0..20 {
        let host = format!("h{host}");
        assert_eq!(write(&mut strict(), &[(&host, float)]), (0, vec![conflict("float", "integer")]), "{host}");
        assert_eq!(write(&mut strict(), &[(&host, ValueRef::Text("x"))]), (0, vec![conflict("string", "integer")]));
    }
    let names = |store: &Store| store.series().reader().series(&Select::metric("d", "m")).unwrap().len();
    assert_eq!(names(&store), 1, "what is refused makes no series");
    assert_eq!(write(&mut rows, &[("c", integer), ("c", float)]), (1, vec![conflict("float", "integer")]));
    // Other fields, measurements and databases have types of their own.
    let mut other = strict();
    add(&mut other, &key("m", "a", "g"), 1, float);
    add(&mut other, &key("n", "a", "f"), 1, float);
    other.set_database("e");
    add(&mut other, &key("m", "a", "f"), 1, ValueRef::Text("x"));
    assert_eq!(store.series().write(&mut other).unwrap().refused, []);
    // Where numbers go together nobody looks at other series; and then there are two types, of which each is taken.
    let mut numbers = Rows::new("d");
    assert_eq!(write(&mut numbers, &[("z", float)]), (1, vec![]));
    // When all series of a field are gone, so is its type.
    store.series().drop_series(&Select::metric("d", "m")).unwrap();
    assert_eq!(write(&mut strict(), &[("q", ValueRef::Text("x"))]), (1, vec![]));
    assert_eq!(write(&mut strict(), &[("r", integer)]), (0, vec![conflict("integer", "string")]));
}

#[test]
fn limits_refuse_the_point_and_say_which() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    let limits = Limits::tiny();
    for n in 0..limits.series_max + 2 {
        add(&mut rows, &key("m", &n.to_string(), "value"), 1, ValueRef::Float(1.0));
    }
    let written = flush(&store, &mut rows);
    assert_eq!((written.points as usize, written.refused.len()), (limits.series_max, 2));
    assert!(written.refused[0].reason.contains("series_max"), "{:?}", written.refused);
    add(&mut rows, &key("m", &"x".repeat(limits.series_name_bytes_max + 1), "value"), 1, ValueRef::Float(1.0));
    assert!(flush(&store, &mut rows).refused[0].reason.contains("at most 16 bytes"));
    store.series().drop_series(&Select::metric(DATABASE, "m").and_tag("host", Match::is("7"))).unwrap();
    add(&mut rows, &key("m", "new", "value"), 1, ValueRef::Float(1.0));
    assert_eq!(flush(&store, &mut rows).refused, []);
}

#[test]
fn databases_come_and_go_with_their_series() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let series = store.series();
    let mut rows = Rows::new("other");
    add(&mut rows, &key("m", "a", "value"), 1, ValueRef::Float(1.0));
    flush(&store, &mut rows);
    series.create_database("empty").unwrap();
    assert_eq!(series.create_database("").map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    assert_eq!(series.reader().databases().unwrap(), ["empty", "other"]);
    drop((store, series));
    let store = open(&disk, &ledgers);
    assert_eq!(store.series().reader().databases().unwrap(), ["empty", "other"]);
    assert_eq!(store.series().drop_database("other").unwrap().1, 1);
    store.series().drop_database("empty").unwrap();
    assert!(store.series().reader().databases().unwrap().is_empty());
    store.close().unwrap();
    let closed = store.series().reader().databases();
    assert!(matches!(closed, Err(SeriesError::Source { .. })), "{closed:?}");
}

#[test]
fn a_changed_byte_costs_its_block_and_is_told() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    let hosts = ["a", "b", "c", "d"];
    for host in hosts {
        (0..10).for_each(|time| add(&mut rows, &key("m", host, "value"), time, ValueRef::Float(time as f64)));
    }
    flush(&store, &mut rows);
    let whole = contents(&store);
    store.close().unwrap();
    drop(store);
    let files: Vec<_> = disk.inventory().into_iter().filter(|(path, _)| path.starts_with("/store/series")).collect();
    assert!(files.len() >= 5, "{files:?}");
    for (path, bytes) in files {
        for offset in 0..bytes {
            let (disk, ledgers) = (disk.fork(offset), MemoryLedgers::default());
            disk.flip(&path, offset, 1 << (offset % 8));
            let store = open(&disk, &ledgers);
            let found = contents(&store);
            assert!(!store.stats().damage.is_empty(), "{path:?} {offset}: nothing is told");
            let lost = whole.iter().filter(|(key, points)| found.get(key) != Some(points)).count();
            assert!(lost <= 1, "{path:?} {offset}: {lost} series lost");
            assert!(found.values().flatten().all(|(time, value)| *value == Value::Float(*time as f64)));
        }
    }
}

#[test]
fn a_backup_has_what_was_there_when_it_was_made_and_later_ones_too() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let (disk, ledgers) = (Disk::new(seed), MemoryLedgers::default());
        let store = open(&disk, &ledgers);
        let mut rows = Rows::new(DATABASE);
        let mut model = Contents::new();
        let backup = Path::new("/backup");
        for round in 0..4 {
            for _ in 0..30 {
                change(&store, &mut rows, &mut random, &mut model);
                if random.chance(1, 10) {
                    store.series().seal().unwrap();
                }
            }
            store.backup(backup).unwrap();
            let then = model.clone();
            change(&store, &mut rows, &mut random, &mut model);
            store.series().seal().unwrap();
            let dir = Path::new("/").join(format!("restored{round}"));
            holdfast::restore_in(&disk, (backup, &dir), holdfast::Restore::default(), &mut |_| ()).unwrap();
            let other = Store::open_in(&world(&disk, &MemoryLedgers::default()), &dir, options()).unwrap();
            assert_eq!(contents(&other), then, "seed {seed}, round {round}");
        }
        // A byte that rots in the backup is found by whoever restores it, and by whoever inspects.
        let sealed = disk.inventory().into_iter().find(|(path, _)| {
            path.starts_with("/backup/series") && path.extension().is_some_and(|end| end == "points")
        });
        let (path, _) = sealed.unwrap();
        disk.flip(&path, 20, 1);
        let to = Path::new("/refused");
        let refused = holdfast::restore_in(&disk, (backup, to), holdfast::Restore::default(), &mut |_| ());
        let text = refused.unwrap_err();
        assert!(text.kind() == ErrorKind::Corrupt && text.to_string().contains(".points"), "{text}");
        let mut inspection = holdfast::Inspection::in_files(&disk, backup).unwrap();
        assert!(inspection.damage().is_empty());
        inspection.verify(&mut |_| ()).unwrap();
        assert_eq!(inspection.damage().iter().map(|damage| damage.path.clone()).collect::<Vec<_>>(), [path]);
    }
}

#[test]
fn a_disk_that_is_nearly_full_takes_no_points_and_all_else() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    disk.set_capacity(64 << 20);
    let mut options = options();
    options.series.free_bytes_min = 32 << 20;
    let store = Store::open_in(&world(&disk, &ledgers), Path::new("/store"), options).unwrap();
    let mut rows = Rows::new(DATABASE);
    let mut write = |store: &Store| {
        add(&mut rows, &key("m", "a", "value"), 1, ValueRef::Float(1.0));
        store.series().write(&mut rows).map(|written| written.points)
    };
    store.step().unwrap();
    assert_eq!(write(&store).unwrap(), 1);
    disk.set_capacity(8 << 20);
    store.step().unwrap();
    let refused = write(&store).unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("bytes are free"), "{refused}");
    store.kv().put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
    disk.set_capacity(64 << 20);
    store.step().unwrap();
    assert_eq!(write(&store).unwrap(), 2, "what was refused is still there to be written");
}

/// A sealing that failed left heads frozen; what was deleted since came back with the next that succeeded.
#[test]
fn what_is_deleted_after_a_sealing_that_failed_stays_deleted() {
    for fault_at in 0..12 {
        let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
        let store = open(&disk, &ledgers);
        let mut rows = Rows::new(DATABASE);
        let m = key("m", "a", "value");
        (1..4).for_each(|time| add(&mut rows, &m, time, ValueRef::Float(time as f64)));
        let written = flush(&store, &mut rows);
        store.wait(written.position, Durability::Synced).unwrap();
        disk.plan(fault_at, base::memory::Fault::Full);
        let failed = store.series().seal().is_err();
        disk.clear_plan();
        store.series().delete(&Select::metric(DATABASE, "m"), Range { from: 2, to: 2 }).unwrap();
        store.series().seal().unwrap();
        let times = |store: &Store| one(store, &m).into_iter().map(|(time, _)| time).collect::<Vec<_>>();
        assert_eq!(times(&store), [1, 3], "fault at {fault_at}, which failed: {failed}");
        store.close().unwrap();
        drop(store);
        assert_eq!(times(&open(&disk, &ledgers)), [1, 3], "fault at {fault_at}, reopened");
        let names =
            disk.inventory().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "points"));
        assert!(names.count() <= 2, "fault at {fault_at}: files that nothing names are left");
    }
}

/// Without a manifest the folder was taken for one that was never used, and its files were overwritten.
#[test]
fn files_without_their_manifests_are_set_aside_and_told_of() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    add(&mut rows, &key("m", "a", "value"), 1, ValueRef::Float(1.0));
    flush(&store, &mut rows);
    store.close().unwrap();
    drop(store);
    let files: &dyn base::Files = &disk;
    for name in ["manifest", "manifest.copy"] {
        files.remove(&Path::new("/store/series").join(name)).unwrap();
    }
    let store = open(&disk, &ledgers);
    assert!(
        store.stats().damage.iter().any(|damage| damage.reason.contains("set aside")),
        "{:?}",
        store.stats().damage
    );
    add(&mut rows, &key("n", "a", "value"), 1, ValueRef::Float(1.0));
    flush(&store, &mut rows);
    store.close().unwrap();
    drop(store);
    let store = open(&disk, &ledgers);
    assert_eq!(one(&store, &key("n", "a", "value")), [(1, Value::Float(1.0))]);
    let lost =
        disk.inventory().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "lost")).count();
    assert_eq!(lost, 3, "{:?}", disk.inventory());
}

/// Merging took damaged blocks away, and with them every word of the damage.
#[test]
fn a_damaged_file_is_not_merged_and_a_damaged_copy_is_mended() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    (0..5).for_each(|time| add(&mut rows, &key("m", "a", "value"), time, ValueRef::Float(time as f64)));
    flush(&store, &mut rows);
    store.close().unwrap();
    drop(store);
    let of_end = |end: &str| {
        let mut all = disk.inventory().into_iter().map(|(path, _)| path);
        all.find(|path| path.to_string_lossy().contains("/series/") && path.to_string_lossy().ends_with(end)).unwrap()
    };
    let points = of_end(".points");
    disk.flip(&points, 20, 1);
    disk.flip(&of_end("manifest"), 20, 1);
    disk.flip(&of_end(".names"), 12, 1);
    let store = open(&disk, &ledgers);
    assert_eq!(store.stats().damage.len(), 2, "{:?}", store.stats().damage);
    for time in 0..8 {
        add(&mut rows, &key("n", "a", "value"), time, ValueRef::Float(1.0));
        flush(&store, &mut rows);
        // What the damage keeps from being merged is no reason to merge nothing.
        let _ = store.series().seal();
    }
    assert_eq!(one(&store, &key("n", "a", "value")).len(), 8);
    store.close().unwrap();
    drop(store);
    let store = open(&disk, &ledgers);
    assert!(store.stats().damage.is_empty(), "copies were mended: {:?}", store.stats().damage);
    assert!(one(&store, &key("m", "a", "value")).is_empty());
    let damage = store.stats().damage;
    assert!(damage.len() == 1 && damage[0].path == points, "{damage:?}");
}
