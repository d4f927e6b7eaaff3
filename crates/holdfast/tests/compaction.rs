//! Compaction against an obvious model, on a real disk: nothing is lost, nothing comes back, and space does.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use holdfast::*;
use proptest::prelude::*;

fn options() -> Options {
    let compaction = CompactionOptions { schedule: Schedule::OnDemand, keep_bytes: 0, ..CompactionOptions::default() };
    Options { durability: Durability::Written, limits: Limits::tiny(), partitions: 4, compaction, ..Options::default() }
}

fn open(dir: &std::path::Path) -> Store {
    Store::open(dir, options()).unwrap()
}

/// Segments of many of the parts for which compaction knows whether somebody needs something of them.
fn large() -> Options {
    let sizes =
        Limits { value_bytes_max: 64 << 10, batch_bytes_max: 256 << 10, segment_bytes: 512 << 10, ..Limits::tiny() };
    Options { limits: sizes, ..options() }
}

type Objects = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(snapshot: &Snapshot) -> Objects {
    let mut objects = Objects::new();
    let read = snapshot.fold(&Fold::default(), &mut |folded| {
        objects.insert(folded.key().to_vec(), folded.value()?.to_vec());
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(read.unwrap(), None);
    objects
}

fn lose_ledger(store: Store, dir: &std::path::Path) -> Store {
    lose_ledger_of(store, dir, options())
}

fn lose_ledger_of(store: Store, dir: &std::path::Path, options: Options) -> Store {
    store.close().unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.join("ledger")).unwrap();
    Store::open(dir, options).unwrap()
}

fn put(store: &Store, key: &[u8], value: &[u8]) -> Committed {
    store.kv().put(b"b", key, value, &PutOptions::default()).unwrap()
}

#[test]
fn space_comes_back_and_every_object_stays_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut versions = BTreeMap::new();
    for round in 0..40u8 {
        for key in 0..20u8 {
            let value = vec![round; 200 + usize::from(key)];
            versions.insert(key, put(&store, &[key], &value).position);
        }
        // What is put once and never again shares its segment with what dies.
        versions.insert(100 + round, put(&store, &[100 + round], &[round; 300]).position);
    }
    let before = (store.digest().unwrap(), contents(&store.snapshot().unwrap()), store.stats());
    let root = store.root(TreeSize::default()).unwrap();
    let done = store.compact().unwrap();
    let after = store.stats();
    assert!(done.segments > 10 && done.moved_bytes > 0, "{done:?}");
    assert!(after.journal_bytes * 3 < before.2.journal_bytes, "{} of {}", after.journal_bytes, before.2.journal_bytes);
    let check = |store: &Store| {
        assert_eq!(store.digest().unwrap(), before.0);
        assert_eq!(store.root(TreeSize::default()).unwrap(), root);
        assert_eq!(contents(&store.snapshot().unwrap()), before.1);
        for (key, version) in &versions {
            assert_eq!(store.kv().head(b"b", &[*key]).unwrap().unwrap().version, *version, "a move is no change");
        }
        assert!(store.stats().damage.is_empty(), "{:?}", store.stats().damage);
    };
    check(&store);
    store.close().unwrap();
    drop(store);
    let store = open(dir.path());
    check(&store);
    let store = lose_ledger(store, dir.path());
    check(&store);
    assert_eq!(store.compact().unwrap().segments, 0, "there is nothing left to do");
    check(&store);
    store.close().unwrap();
    drop(store);
    // Without a tree that is kept it is made from the heads.
    check(&Store::open(dir.path(), Options { tree: None, ..options() }).unwrap());
}

#[test]
fn what_nobody_needs_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), large()).unwrap();
    for number in 0..3_000u16 {
        // Every key is put again soon, but for three.
        let key = if number % 1_000 == 500 { number } else { number % 40 };
        put(&store, &key.to_be_bytes(), &vec![number as u8; 2_000]);
    }
    store.kv().delete(b"b", &0u16.to_be_bytes(), Condition::None).unwrap();
    let before = (store.digest().unwrap(), contents(&store.snapshot().unwrap()), store.stats());
    assert_eq!(before.1.len(), 42);
    let done = store.compact().unwrap();
    assert!(done.segments >= 9 && done.reclaimed_bytes > 4_500_000, "{done:?}");
    assert!(done.read_bytes < 600_000, "{done:?}");
    assert_eq!(store.digest().unwrap(), before.0);
    let store = lose_ledger_of(store, dir.path(), large());
    assert_eq!((store.digest().unwrap(), contents(&store.snapshot().unwrap())), (before.0, before.1));

    // Of a segment that was there before nothing is known, and all is read.
    for number in 0..600u16 {
        put(&store, &(number % 40).to_be_bytes(), &[1; 2_000]);
    }
    store.close().unwrap();
    drop(store);
    let store = Store::open(dir.path(), large()).unwrap();
    for key in 0..40u16 {
        put(&store, &key.to_be_bytes(), &[2; 10]);
    }
    let done = store.compact().unwrap();
    assert!(done.segments >= 2 && done.read_bytes > 1_000_000, "{done:?}");
}

#[test]
fn deletes_expiries_and_clears_among_what_nobody_needs_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), large()).unwrap();
    // A segment that stays, with what is changed later.
    for key in 1_000..1_300u16 {
        put(&store, &key.to_be_bytes(), &[1; 2_000]);
    }
    store.kv().put(b"cleared", b"key", &[1; 2_000], &PutOptions::default()).unwrap();
    let hot = |from: u8, to: u8| {
        for number in from..to {
            put(&store, &[number % 10], &[number; 2_000]);
        }
    };
    hot(0, 250);
    store.kv().delete(b"b", &1_000u16.to_be_bytes(), Condition::None).unwrap();
    hot(0, 20);
    store.kv().expire(b"b", &1_001u16.to_be_bytes(), Some(u64::MAX >> 2)).unwrap();
    hot(0, 20);
    let mut exclusive = store.exclusive(&Scope::All).unwrap();
    exclusive.clear(b"cleared").unwrap();
    exclusive.commit().unwrap();
    hot(0, 250);
    hot(0, 250);
    let before = (store.digest().unwrap(), contents(&store.snapshot().unwrap()));
    let done = store.compact().unwrap();
    assert!(done.segments >= 2 && done.read_bytes * 4 < done.reclaimed_bytes, "{done:?}");
    let store = lose_ledger_of(store, dir.path(), large());
    assert!((store.digest().unwrap(), contents(&store.snapshot().unwrap())) == before, "what was removed is back");
    assert!(store.kv().get(b"b", &1_000u16.to_be_bytes()).unwrap().is_none());
    assert!(store.kv().get(b"cleared", b"key").unwrap().is_none());
    let expires_ms = store.kv().head(b"b", &1_001u16.to_be_bytes()).unwrap().unwrap().expires_ms;
    assert_eq!(expires_ms, Some(u64::MAX >> 2));
}

#[test]
fn a_snapshot_reads_on_and_what_it_reads_goes_when_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for key in 0..60u8 {
        put(&store, &[key], &[1; 500]);
    }
    let snapshot = store.snapshot().unwrap();
    let before = contents(&snapshot);
    for key in 0..60u8 {
        put(&store, &[key], &[2; 500]);
    }
    // Segments are sealed in the background, which may come late on a busy machine.
    let mut compactions = (0..100_000).map(|_| {
        std::thread::yield_now();
        store.compact().unwrap()
    });
    let waiting = compactions.find(|done| done.waiting > 0).unwrap();
    assert_eq!(contents(&snapshot), before);
    assert!(contents(&store.snapshot().unwrap()).values().all(|value| *value == [2; 500]));
    drop(snapshot);
    let done = store.compact().unwrap();
    assert!(done.waiting == 0 && done.segments >= waiting.segments + waiting.waiting, "{done:?} after {waiting:?}");
}

#[test]
fn what_was_deleted_stays_deleted_when_the_ledger_is_lost_after_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    // A segment that stays, with objects that are deleted later; then their deletes, in segments that go.
    for key in 0..40u8 {
        put(&store, &[key], &[key; 400]);
    }
    for key in 0..6u8 {
        store.kv().delete(b"b", &[key], Condition::None).unwrap();
    }
    store.kv().expire(b"b", &[7], Some(1)).unwrap();
    store.kv().expire(b"b", &[8], Some(u64::MAX >> 2)).unwrap();
    for round in 0..10 {
        for key in 100..120u8 {
            put(&store, &[key], &[round; 400]);
        }
    }
    for _ in 0..3 {
        let before = (contents(&store.snapshot().unwrap()), store.kv().head(b"b", &[8]).unwrap());
        assert!(before.1.is_some() && !before.0.contains_key(&vec![7]));
        store.compact().unwrap();
        store = lose_ledger(store, dir.path());
        let after = (contents(&store.snapshot().unwrap()), store.kv().head(b"b", &[8]).unwrap());
        assert_eq!(after, before);
    }
    for key in 6..=255u8 {
        store.kv().delete(b"b", &[key], Condition::None).unwrap();
    }
    for _ in 0..4 {
        store.compact().unwrap();
        store = lose_ledger(store, dir.path());
        assert!(contents(&store.snapshot().unwrap()).is_empty());
    }
    let stats = store.stats();
    assert!(stats.segments <= 6, "deletes go when nothing older is left: {:?}", stats.segment_live);
}

#[test]
fn what_was_put_behind_a_clear_in_one_batch_stays_however_often_the_clear_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    put(&store, b"cold", &[0; 600]);
    for key in 0..20u8 {
        put(&store, &[key], &[1; 600]);
    }
    let mut exclusive = store.exclusive(&Scope::All).unwrap();
    exclusive.clear(b"b").unwrap();
    for key in [b"first", b"other"] {
        exclusive.put(b"b", key, &[2; 600], &PutOptions::default()).unwrap();
    }
    exclusive.commit().unwrap();
    for round in 0..6u8 {
        for key in 0..20u8 {
            store.kv().put(b"c", &[key], &[round; 600], &PutOptions::default()).unwrap();
        }
        store.compact().unwrap();
        store = lose_ledger(store, dir.path());
        let objects = contents(&store.snapshot().unwrap());
        assert!(objects.contains_key(b"first".as_slice()) && objects.contains_key(b"other".as_slice()), "{round}");
        assert!(!objects.contains_key(b"cold".as_slice()), "{round}");
    }
}

/// Flips one byte of a file, wherever it is open.
fn flip(path: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

fn segments(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(dir.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// One whose changes cannot be said again, because what they change is damaged elsewhere, was chosen again and again, and no other was
/// compacted any more.
#[test]
fn a_segment_that_cannot_be_compacted_is_told_of_and_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let trouble = std::sync::Arc::clone(&told);
    let options = || {
        let trouble = std::sync::Arc::clone(&trouble);
        let tell = move |word: &str| trouble.lock().unwrap().push(word.to_owned());
        Options { trouble: Some(std::sync::Arc::new(tell)), ..options() }
    };
    let reopened = |store: Store| {
        store.close().unwrap();
        drop(store);
        Store::open(dir.path(), options()).unwrap()
    };
    let store = Store::open(dir.path(), options()).unwrap();
    put(&store, b"damaged-later", &[9; 300]);
    let store = reopened(store);
    // Nearly all of this will be dead, but what the expiry speaks of.
    store.kv().expire(b"b", b"damaged-later", Some(u64::MAX >> 2)).unwrap();
    for round in 0..5 {
        put(&store, b"hot", &[round; 900]);
    }
    let mut store = reopened(store);
    for round in 0..8u8 {
        for key in 0..3 {
            put(&store, &[round, key], &[round; 900]);
            put(&store, b"hot", &[round; 900]);
        }
        store = reopened(store);
    }
    let (path, at) = segments(dir.path())
        .into_iter()
        .find_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(13).position(|window| window == b"damaged-later")?;
            Some((path, at as u64))
        })
        .unwrap();
    flip(&path, at);
    let done = store.compact().unwrap();
    assert!(done.segments > 4, "{done:?}");
    let word = std::mem::take(&mut *told.lock().unwrap());
    assert!(
        word.len() == 1 && word[0].contains("cannot be compacted") && word[0].contains("stays as it is"),
        "{word:?}"
    );
    assert!(store.kv().head(b"b", b"damaged-later").unwrap().is_some());
    assert_eq!(store.compact().unwrap().segments, done.segments, "nothing is left to do");
    assert!(told.lock().unwrap().is_empty());
}

/// One that could not be let go took those with it that waited beside it: they were forgotten, and moved once more.
#[test]
fn a_segment_that_cannot_be_let_go_does_not_hold_up_those_that_wait_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    for _ in 0..2 {
        for key in 0..60u8 {
            put(&store, &[key], &[1; 500]);
        }
        store.close().unwrap();
        drop(store);
        store = open(dir.path());
    }
    let snapshot = store.snapshot().unwrap();
    put(&store, b"later", b"");
    let waiting = store.compact().unwrap();
    assert!(waiting.waiting > 3, "{waiting:?}");
    // Its footer rots.
    let oldest = segments(dir.path()).remove(0);
    flip(&oldest, std::fs::metadata(&oldest).unwrap().len() - 80);
    drop(snapshot);
    let done = store.compact().unwrap();
    assert_eq!((done.waiting, done.segments), (0, waiting.waiting - 1));
    assert_eq!(done.moved_bytes, waiting.moved_bytes);
}

#[test]
fn compaction_ends_while_a_snapshot_holds_the_oldest_segment() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for round in 0..4u8 {
        for key in 0..20u8 {
            put(&store, &[key], &[round; 600]);
        }
    }
    let snapshot = store.snapshot().unwrap();
    for key in 0..15u8 {
        store.kv().delete(b"b", &[key], Condition::None).unwrap();
    }
    for round in 0..60u8 {
        put(&store, b"k", &[round; 600]);
    }
    let first = store.compact().unwrap();
    let second = store.compact().unwrap();
    assert!(first.waiting > 0 && second.moved_bytes < first.moved_bytes + (8 << 10), "{first:?} then {second:?}");
    drop(snapshot);
}

#[test]
fn a_store_that_was_opened_before_its_hours_is_compacted_in_the_first_of_them() {
    let clock = std::sync::Arc::new(base::ManualClock::at(20 * 3600 * 1000));
    let limits = Limits::tiny();
    let world = World {
        files: std::sync::Arc::new(base::memory::Disk::new(1)),
        clock: std::sync::Arc::clone(&clock) as _,
        ledgers: std::sync::Arc::new(MemoryLedgers::new()),
        threads: false,
        entropy: 1,
    };
    let schedule = Schedule::Hours { from: 22, to: 23 };
    let compaction = CompactionOptions { schedule, keep_bytes: 0, ..CompactionOptions::default() };
    let options = Options { compaction, limits, ..options() };
    let store = Store::open_in(&world, std::path::Path::new("/store"), options).unwrap();
    for round in 0..50 {
        put(&store, b"k", &[round; 1000]);
    }
    // So many steps are enough for a whole run.
    let compacted = |hours: u64| {
        clock.advance(std::time::Duration::from_secs(hours * 3600));
        (0..1000).for_each(|_| store.step().unwrap());
        store.stats().compaction.segments
    };
    assert_eq!((compacted(0), compacted(1)), (0, 0), "it is 21 o'clock");
    let first = compacted(1);
    assert!(first > 0, "it is 22 o'clock");
    for round in 0..50 {
        put(&store, b"k", &[round; 1000]);
    }
    assert_eq!((compacted(0), compacted(1)), (first, first), "one run was begun, and the hour is over");
    assert!(compacted(23) > first, "the next day");
}

/// Spaces and series write to files of their own when it is much, and keep the journal until then: one entry or one point held back all
/// that a run was asked for.
#[test]
fn a_run_takes_what_lies_behind_an_entry_and_a_point() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let entries = store.space("s").declare(space::Definition::new("s", "t")).unwrap();
    entries.write(&space::Document::from_pairs([("id", 1)]), &space::WriteOptions::default()).unwrap();
    let mut rows = series::Rows::new("plant");
    let row = rows.row(b"cpu", |_| Ok(("cpu".into(), vec![("host".into(), "a".into())]))).unwrap();
    let slot = rows.field(row, 0, b"", |_| Ok("value".into())).unwrap();
    rows.push(slot, 1, series::ValueRef::Float(0.5));
    store.series().write(&mut rows).unwrap();
    for round in 0..40u8 {
        for key in 0..20u8 {
            put(&store, &[key], &[round; 300]);
        }
    }
    let before = store.stats().journal_bytes;
    let done = store.compact().unwrap();
    let after = store.stats().journal_bytes;
    assert!(done.segments > 10 && after * 3 < before, "{done:?}: {after} of {before}");
    let contents = |store: &Store| {
        let entry = store.space("s").entries("t").unwrap().read(&space::Wanted::id(1), &space::ReadOptions::default());
        (entry.unwrap().map(|entry| entry.document.to_json()), store.digest().unwrap())
    };
    let held = contents(&store);
    assert_eq!(held.0.as_deref(), Some(r#"{"id":1}"#));
    store.close().unwrap();
    drop((store, entries));
    assert_eq!(contents(&open(dir.path())), held);
}

#[test]
fn a_second_request_is_told_that_one_is_running() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for round in 0..50 {
        put(&store, b"k", &[round; 1000]);
    }
    let outcomes: Vec<Result<CompactionStats>> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..4).map(|_| scope.spawn(|| store.compact())).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(outcomes.iter().any(Result::is_ok));
    let refused = outcomes.into_iter().filter_map(Result::err);
    refused.for_each(|error| assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"));
}

#[test]
fn readers_and_writers_go_on_beside_continuous_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let compaction =
        CompactionOptions { bytes_per_second: 0, dead_percent: 5, keep_bytes: 0, ..CompactionOptions::default() };
    let store = Store::open(dir.path(), Options { compaction, ..options() }).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ordering = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for reader in 0..2u8 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut last = 0u32;
                while !stop.load(ordering) {
                    let Some(object) = store.kv().get(b"b", &[reader]).unwrap() else { continue };
                    let round = u32::from_le_bytes(object.value[..4].try_into().unwrap());
                    assert!(round >= last && object.value.len() == 600);
                    last = round;
                    let page =
                        Page { bucket: b"b", start: Bound::Unbounded, end: Bound::Unbounded, limit: 50, values: true };
                    store.kv().page(&page).unwrap();
                }
            });
        }
        let mut round = 0u32;
        while round < 300 || (store.stats().compaction.segments < 20 && round < 20_000) {
            for key in 0..10u8 {
                let mut value = round.to_le_bytes().to_vec();
                value.resize(600, key);
                put(&store, &[key], &value);
            }
            round += 1;
        }
        stop.store(true, ordering);
    });
    let stats = store.stats();
    assert!(stats.compaction.segments >= 20, "{:?}", stats.compaction);
    assert!(stats.damage.is_empty(), "{:?}", stats.damage);
}

#[derive(Debug, Clone)]
enum Step {
    Put { key: u8, len: u16 },
    Delete { key: u8 },
    Expire { key: u8, gone: bool },
    Clear,
    Compact,
    Hold,
    Drop,
    Reopen,
    LoseLedger,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0u8..16, 0u16..1500).prop_map(|(key, len)| Step::Put { key, len }),
        6 => (0u8..16).prop_map(|key| Step::Delete { key }),
        4 => (0u8..16, any::<bool>()).prop_map(|(key, gone)| Step::Expire { key, gone }),
        1 => Just(Step::Clear),
        4 => Just(Step::Compact),
        1 => Just(Step::Hold),
        1 => Just(Step::Drop),
        1 => Just(Step::Reopen),
        1 => Just(Step::LoseLedger),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn compaction_anywhere_in_any_story_changes_nothing(
        steps in proptest::collection::vec(step(), 20..120),
        is_large in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (options, scale) = if is_large { (large(), 40) } else { (options(), 1) };
        let mut store = Store::open(dir.path(), options.clone()).unwrap();
        let mut model = Objects::new();
        let mut held: Option<(Snapshot, Objects)> = None;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put { key, len } => {
                    let value = vec![number as u8; usize::from(len) * scale];
                    put(&store, &[key], &value);
                    model.insert(vec![key], value);
                }
                Step::Delete { key } => {
                    store.kv().delete(b"b", &[key], Condition::None).unwrap();
                    model.remove(&vec![key]);
                }
                Step::Expire { key, gone } => {
                    store.kv().expire(b"b", &[key], Some(if gone { 1 } else { u64::MAX >> 2 })).unwrap();
                    if gone {
                        model.remove(&vec![key]);
                    }
                }
                Step::Clear => {
                    let mut exclusive = store.exclusive(&Scope::All).unwrap();
                    exclusive.clear(b"b").unwrap();
                    exclusive.commit().unwrap();
                    model.clear();
                }
                Step::Compact => drop(store.compact().unwrap()),
                Step::Hold => held = Some((store.snapshot().unwrap(), model.clone())),
                Step::Drop => held = None,
                Step::Reopen | Step::LoseLedger => {
                    held = None;
                    store.close().unwrap();
                    drop(store);
                    if matches!(step, Step::LoseLedger) {
                        std::fs::remove_dir_all(dir.path().join("ledger")).unwrap();
                    }
                    store = Store::open(dir.path(), options.clone()).unwrap();
                    prop_assert!(store.stats().damage.is_empty(), "{:?}", store.stats().damage);
                }
            }
            prop_assert_eq!(&contents(&store.snapshot().unwrap()), &model);
            if let Some((snapshot, before)) = &held {
                prop_assert_eq!(&contents(snapshot), before);
            }
        }
    }
}

/// A mirror that was started behind the opening found that what it had not had yet was gone.
#[test]
fn what_is_held_is_compacted_by_nobody_before_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let compaction =
        CompactionOptions { keep_bytes: 0, dead_percent: 5, bytes_per_second: 0, ..CompactionOptions::default() };
    let options = Options { compaction, holds_compaction: true, ..options() };
    let world = World { threads: false, ..World::real(dir.path(), &options.limits) };
    let store = Store::open_in(&world, dir.path(), options).unwrap();
    // Each is dead as soon as the next is there.
    let step = || {
        put(&store, b"one", &[7; 300]);
        store.step().unwrap();
        store.stats().compaction.segments
    };
    assert_eq!((0..3_000).map(|_| step()).max(), Some(0));
    store.release_compaction();
    assert!((0..3_000).any(|_| step() > 10), "{:?}", store.stats());
}
