//! Work in the background that nobody waits for: that it fails is told once, in words, and so is that it works again.
#![allow(clippy::unwrap_used, clippy::disallowed_types, reason = "tests stand outside the wall")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::ManualClock;
use base::memory::{Disk, Fault};
use holdfast::{Durability, ErrorKind, Limits, MemoryLedgers, Options, PutOptions, Scope, Store, World};

const NOW_MS: u64 = 1_700_000_000_000;

#[test]
fn what_expired_and_cannot_be_removed_is_told_once_and_so_is_that_it_works_again() {
    let (disk, clock) = (Disk::new(1), Arc::new(ManualClock::at(NOW_MS)));
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let world = World {
        files: Arc::new(disk.process()),
        clock: Arc::clone(&clock) as _,
        ledgers: Arc::new(MemoryLedgers::default()),
        threads: false,
        entropy: 42,
    };
    let listener = Arc::clone(&told);
    let options = Options {
        durability: Durability::Written,
        limits: Limits::tiny(),
        partitions: 2,
        trouble: Some(Arc::new(move |word: &str| listener.lock().unwrap().push(word.to_owned()))),
        ..Options::default()
    };
    let store = Store::open_in(&world, Path::new("/store"), options).unwrap();
    let told = || std::mem::take(&mut *told.lock().unwrap());
    let expiring = PutOptions { expires_ms: Some(NOW_MS + 1_000), ..PutOptions::default() };
    store.kv().put(b"b", b"passing", b"v", &expiring).unwrap();
    store.step().unwrap();
    assert!(told().is_empty());
    disk.set_capacity(0);
    let fill = |n: u32| store.kv().put(b"b", &n.to_be_bytes(), &[7; 64], &PutOptions::default());
    let full = (0..).find_map(|n| fill(n).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::Unavailable, "{full}");
    clock.advance(Duration::from_secs(2));
    for _ in 0..3 {
        assert!(store.step().is_err());
    }
    let words = told();
    let about = |what: &str| words.iter().filter(|word| word.starts_with("keys: ") && word.contains(what)).count();
    assert_eq!(about("what has expired cannot be removed"), 1, "{words:?}");
    disk.set_capacity(u64::MAX);
    store.step().unwrap();
    assert!(store.kv().get(b"b", b"passing").unwrap().is_none());
    assert_eq!(told().iter().filter(|word| *word == "keys: what has expired is removed again").count(), 1);
    store.step().unwrap();
    assert!(told().is_empty());
}

fn world_on(disk: &Disk) -> World {
    World {
        files: Arc::new(disk.process()),
        clock: Arc::new(ManualClock::at(NOW_MS)),
        ledgers: Arc::new(MemoryLedgers::default()),
        threads: false,
        entropy: 42,
    }
}

/// It said that another process had it, for as long as anybody here had a clone, a snapshot or a transaction.
#[test]
fn a_store_whose_closing_failed_can_be_opened_again_beside_what_is_left_of_it() {
    let disk = Disk::new(1);
    let world = world_on(&disk);
    let options = || Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
    let store = Store::open_in(&world, Path::new("/store"), options()).unwrap();
    store.kv().put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
    let (clone, snapshot) = (store.clone(), store.snapshot().unwrap());
    disk.plan(0, Fault::Error);
    assert_eq!(store.close().unwrap_err().kind(), ErrorKind::Unavailable);
    let again = Store::open_in(&world, Path::new("/store"), options()).unwrap();
    assert_eq!(again.kv().get(b"b", b"k").unwrap().unwrap().value.as_ref(), b"v");
    assert!(clone.kv().put(b"b", b"k", b"late", &PutOptions::default()).is_err());
    drop((clone, snapshot));
    again.kv().put(b"b", b"k", b"w", &PutOptions::default()).unwrap();
    again.close().unwrap();
}

/// A store that had lost its ledgers did not open any more.
#[test]
fn a_sector_that_does_not_read_costs_the_object_that_it_is_in_also_when_ledgers_are_rebuilt() {
    let disk = Disk::new(1);
    let open = || {
        let options = Options { limits: Limits::tiny(), partitions: 2, ..Options::default() };
        Store::open_in(&world_on(&disk), Path::new("/store"), options).unwrap()
    };
    let store = open();
    for n in 0..60u8 {
        store.kv().put(b"b", &[n], &[n; 500], &PutOptions::default()).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let segments =
        || disk.inventory().into_iter().map(|(path, _)| path).filter(|path| path.extension() == Some("seg".as_ref()));
    disk.set_unreadable(&segments().nth(1).unwrap(), 5000);
    let store = open();
    assert_eq!((0..60u8).filter(|n| store.kv().get(b"b", &[*n]).unwrap().is_some()).count(), 59);
    assert_eq!(store.stats().damage.len(), 1);
}

/// Batches over everything, which EXEC with a listing is, filled memory without bound.
#[test]
fn batches_over_everything_make_room_too() {
    let world = World {
        files: Arc::new(Disk::new(1).process()),
        clock: Arc::new(ManualClock::at(NOW_MS)),
        ledgers: Arc::new(MemoryLedgers::default()),
        threads: false,
        entropy: 42,
    };
    let limits = Limits { ledger_memory_bytes: 2 << 10, ledger_memory_bytes_max: 8 << 10, ..Limits::default() };
    let options = Options { durability: Durability::Written, limits, partitions: 2, ..Options::default() };
    let store = Store::open_in(&world, Path::new("/store"), options).unwrap();
    for number in 0..1200_u32 {
        let mut everything = store.exclusive(&Scope::All).unwrap();
        everything.put(b"b", &number.to_be_bytes(), &[7; 60], &PutOptions::default()).unwrap();
        everything.commit().unwrap();
        let bytes = store.stats().ledger_memory_bytes;
        assert!(bytes <= 2 * ((8 << 10) + 512), "{bytes} after {number}");
    }
    assert_eq!(store.kv().count(b"b").unwrap().value, 1200);
}

/// How many tables a partition's ledger has.
#[expect(clippy::disallowed_methods, reason = "tests stand outside the wall")]
fn tables(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir.join("ledger/0000")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".table")).count()
}

#[test]
fn a_ledger_is_settled_once_it_was_not_written_out_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { ledger_memory_bytes: 8 << 10, ..Limits::default() };
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let world = World { clock: Arc::clone(&clock) as _, threads: false, ..World::real(dir.path(), &limits) };
    let options = Options { durability: Durability::Written, limits, partitions: 1, ..Options::default() };
    let store = Store::open_in(&world, dir.path(), options).unwrap();
    let mut most = 0;
    for n in 0..1_000u32 {
        store.kv().put(b"b", &n.to_be_bytes(), &[7; 64], &PutOptions::default()).unwrap();
        if n % 100 == 99 {
            clock.advance(Duration::from_millis(900));
            store.step().unwrap();
            most = most.max(tables(dir.path()));
        }
    }
    assert!(
        most >= 3,
        "what is written out one behind the other is left as it is, and there were {most} tables at the most"
    );
    clock.advance(Duration::from_secs(1));
    store.step().unwrap();
    assert_eq!(tables(dir.path()), 1);
    assert_eq!(store.kv().count(b"b").unwrap().value, 1_000);
    // Nothing is left to be done.
    clock.advance(Duration::from_secs(10));
    store.step().unwrap();
    assert_eq!(tables(dir.path()), 1);
    store.close().unwrap();
}
