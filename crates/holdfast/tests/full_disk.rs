//! A disk that overwriting filled with dead data: compaction frees it without anybody's help, also when the store was
//! closed or killed in between.
#![allow(clippy::unwrap_used, clippy::disallowed_types, reason = "tests stand outside the wall")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::ManualClock;
use base::memory::Disk;
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
