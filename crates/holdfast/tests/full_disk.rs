//! A disk that overwriting filled with dead data: compaction frees it without anybody's help, also when the store was
//! closed or killed in between.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests stand outside the wall"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::memory::Disk;
use base::{Around, AroundFiles, Files, ManualClock};
use holdfast::*;

const KEYS: u8 = 12;

struct Machine {
    disk: Disk,
    clock: Arc<ManualClock>,
    ledgers: Arc<MemoryLedgers>,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let disk = Disk::new(seed);
        Self { disk, clock: Arc::new(ManualClock::at(1_700_000_000_000)), ledgers: Arc::default() }
    }

    fn open(&self) -> Result<Store> {
        let world = World {
            files: Arc::new(self.disk.process()),
            clock: Arc::clone(&self.clock) as _,
            ledgers: Arc::clone(&self.ledgers) as _,
            threads: false,
            entropy: 42,
        };
        let compaction = CompactionOptions { keep_bytes: 0, ..CompactionOptions::default() };
        let (durability, limits) = (Durability::Synced, Limits::tiny());
        let options = Options { durability, limits, partitions: 2, compaction, ..Options::default() };
        Store::open_in(&world, Path::new("/store"), options)
    }

    /// Lets the background work until writes are taken again, or for a while.
    fn settles(&self, store: &Store) -> bool {
        (0..2000).any(|_| {
            self.clock.advance(Duration::from_millis(500));
            let _ = store.step();
            // As clients do that go on trying.
            put(store, 0, 0).is_ok() && store.stats().compaction.segments > 2
        })
    }
}

fn put(store: &Store, key: u8, number: u32) -> Result<()> {
    let value = [&number.to_le_bytes()[..], &[key; 300]].concat();
    let done = store.kv().put(b"b", &[key], &value, &PutOptions::default())?;
    store.wait(done.position, Durability::Synced)
}

fn check(store: &Store, numbers: &BTreeMap<u8, u32>) {
    for (key, number) in numbers {
        let value = store.kv().get(b"b", &[*key]).unwrap().unwrap().value;
        assert_eq!(value[..4], number.to_le_bytes(), "{key}");
    }
    assert!(store.stats().damage.is_empty(), "{:?}", store.stats().damage);
}

/// Overwrites a few keys until the disk has no byte left; compaction gets no turn. Key 0 is left out.
fn fill(machine: &Machine, store: &Store) -> BTreeMap<u8, u32> {
    machine.disk.set_capacity(200 << 10);
    let mut numbers = BTreeMap::new();
    for number in 0.. {
        let key = 1 + (number % u32::from(KEYS)) as u8;
        match put(store, key, number) {
            Ok(()) => drop(numbers.insert(key, number)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("no space left on the disk"), "{error}");
                break;
            }
        }
    }
    take_the_rest(machine);
    assert!(put(store, 1, u32::MAX).is_err());
    numbers
}

/// Others than the store write until no byte is left.
fn take_the_rest(machine: &Machine) {
    let used: u64 = machine.disk.inventory().iter().map(|(_, bytes)| bytes).sum();
    machine.disk.set_capacity(used);
}

/// Compaction needed space for the stub before it let a segment go of which nothing lived: the disk stayed full.
#[test]
fn compaction_frees_a_disk_that_is_full_of_dead_data() {
    for seed in 0..8 {
        let machine = Machine::new(seed);
        let store = machine.open().unwrap();
        let mut numbers = fill(&machine, &store);
        check(&store, &numbers);
        assert!(machine.settles(&store), "{:?}", store.stats().compaction);
        check(&store, &numbers);
        // It comes to that again and again.
        for number in 10_000..13_000 {
            let key = 1 + (number % u32::from(KEYS)) as u8;
            if put(&store, key, number).is_ok() {
                numbers.insert(key, number);
            } else {
                assert!(machine.settles(&store), "{:?}", store.stats().compaction);
            }
        }
        check(&store, &numbers);
        assert!(numbers.values().all(|number| *number > 12_000), "{numbers:?}");
        store.close().unwrap();
    }
}

/// Each segment holds a key that is written once: it has to be moved before it goes.
#[test]
fn compaction_frees_a_full_disk_also_when_a_little_lives_in_each_segment() {
    let machine = Machine::new(9);
    let store = machine.open().unwrap();
    let mut numbers = BTreeMap::new();
    for number in 0..20 {
        put(&store, 100 + number, u32::from(number)).unwrap();
        numbers.insert(100 + number, u32::from(number));
        (0..12).for_each(|again| put(&store, 1, again).unwrap());
    }
    numbers.extend(fill(&machine, &store));
    assert!(machine.settles(&store), "{:?}", store.stats().compaction);
    check(&store, &numbers);
}

/// The store did not open any more, so nobody could read or free anything.
#[test]
fn a_store_opens_on_a_full_disk_serves_reads_and_frees_it() {
    for (seed, closes) in [(20, true), (21, false), (22, true), (23, false)] {
        let machine = Machine::new(seed);
        let mut store = machine.open().unwrap();
        let mut numbers = fill(&machine, &store);
        for _ in 0..3 {
            if closes {
                store.close().unwrap();
            } else {
                machine.disk.kill_process();
            }
            drop(store);
            store = machine.open().unwrap();
            check(&store, &numbers);
            // What sealing gave back is taken first.
            let (taken, refused) = (0..).find_map(|number| Some((number, put(&store, 1, number).err()?))).unwrap();
            if taken > 0 {
                numbers.insert(1, taken - 1);
            }
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        }
        assert!(machine.settles(&store), "{seed} {:?} {:?}", store.stats().compaction, machine.disk.inventory());
        check(&store, &numbers);
        store.close().unwrap();
    }
}

/// Ledgers were written out into the space that is kept for opening: after some restarts the store did not open.
#[test]
fn a_store_that_is_opened_again_and_again_on_a_full_disk_serves_reads_each_time() {
    for (seed, closes) in [(30, true), (31, false)] {
        let machine = Machine::new(seed);
        let mut store = machine.open().unwrap();
        let numbers = fill(&machine, &store);
        for _ in 0..20 {
            if closes {
                store.close().unwrap();
            } else {
                machine.disk.kill_process();
            }
            drop(store);
            // What the last one freed, and what was kept back, others took.
            let _ = machine.disk.remove(Path::new("/store/journal/spare"));
            take_the_rest(&machine);
            store = machine.open().unwrap();
            take_the_rest(&machine);
            check(&store, &numbers);
            assert_eq!(put(&store, 1, 0).unwrap_err().kind(), ErrorKind::Unavailable);
            let _ = store.step();
        }
        machine.disk.set_capacity(u64::MAX);
        put(&store, 50, 50).unwrap();
        check(&store, &numbers);
        store.close().unwrap();
    }
}

/// A delete was refused like any write, and so nobody could help compaction.
#[test]
fn what_only_removes_is_taken_on_a_full_disk() {
    let machine = Machine::new(32);
    let store = machine.open().unwrap();
    let mut numbers = fill(&machine, &store);
    let deleted = |key: u8| {
        let done = store.kv().delete(b"b", &[key], Condition::None).unwrap().unwrap();
        store.wait(done.position, Durability::Synced).unwrap();
    };
    for key in 1..=4 {
        deleted(key);
        numbers.remove(&key);
        assert!(store.kv().get(b"b", &[key]).unwrap().is_none());
        assert!(put(&store, 20, 0).is_err(), "what is left is for what frees space");
    }
    check(&store, &numbers);
    drop(store);
    machine.disk.kill_process();
    let store = machine.open().unwrap();
    assert!((1..=4).all(|key| store.kv().get(b"b", &[key]).unwrap().is_none()));
    check(&store, &numbers);
}

/// A disk that says that no more is free than it is told to; what was taken before stays.
struct Free(AtomicU64);

impl Default for Free {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Around for Free {
    fn free_bytes(&self, files: &dyn Files, dir: &Path) -> std::io::Result<u64> {
        Ok(files.free_bytes(dir)?.min(self.0.load(Ordering::Acquire)))
    }
}

fn open_on(dir: &Path, disk: &Arc<Free>) -> Store {
    let limits = Limits::default();
    let mut world = World::real(dir, &limits);
    world.files = Arc::new(AroundFiles::new(world.files, Arc::clone(disk)));
    world.threads = false;
    Store::open_in(&world, dir, Options { limits, partitions: 2, ..Options::default() }).unwrap()
}

/// On a full disk ledgers with much in memory kept segments that were dead altogether: writing them out found no space.
#[test]
fn ledgers_are_written_out_before_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Free::default());
    let store = open_on(dir.path(), &disk);
    for key in 0..2_000u16 {
        store.kv().put(b"b", &key.to_be_bytes(), &[1; 100], &PutOptions::default()).unwrap();
    }
    store.step().unwrap();
    let memory = store.stats().ledger_memory_bytes;
    assert!(memory > 200_000, "{memory}");
    disk.0.store((100 << 20) + 2 * memory, Ordering::Release);
    store.step().unwrap();
    assert_eq!(store.stats().ledger_memory_bytes, memory, "there is room");
    disk.0.store((60 << 20) + 2 * memory, Ordering::Release);
    store.step().unwrap();
    assert!(store.stats().ledger_memory_bytes <= 2 * (16 << 10), "{:?}", store.stats().ledger_memory_bytes);
    store.close().unwrap();
}

/// The ledgers know nothing of the disk's being full but by its errors, and took its last bytes.
#[test]
fn ledgers_are_not_written_out_while_what_is_left_of_the_disk_is_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Free::default());
    let open = || open_on(dir.path(), &disk);
    let tables = || {
        let folders = std::fs::read_dir(dir.path().join("ledger")).unwrap();
        let of = |folder: std::fs::DirEntry| std::fs::read_dir(folder.path()).into_iter().flatten();
        folders.flat_map(|folder| of(folder.unwrap())).count()
    };
    open().close().unwrap();
    std::fs::remove_file(dir.path().join("journal/spare")).unwrap();
    disk.0.store(0, Ordering::Release);
    let numbers: BTreeMap<u8, u32> = (1..=100).map(|key| (key, 7)).collect();
    let mut store = open();
    numbers.iter().for_each(|(key, number)| put(&store, *key, *number).unwrap());
    for _ in 0..3 {
        store.close().unwrap();
        assert_eq!(tables(), 0);
        store = open();
        check(&store, &numbers);
    }
    disk.0.store(u64::MAX, Ordering::Release);
    store.close().unwrap();
    assert!(tables() > 0, "it is what is looked for");
}
