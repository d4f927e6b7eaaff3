//! The real ledger against the simulated one: the same changes give the same answers, now and from views that are held,
//! through writing out, merging and loss of what was not written out.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use base::{OsFiles, Random};
use holdfast_kv::{Bounds, Cursor, Error, Hit, Ledger, Ledgers, LsmLedgers, MemoryLedgers, Reading, Slice, View};
use journal::{PartitionId, Position};

fn ledgers_in(dir: &Path, cache_bytes: u64) -> LsmLedgers {
    LsmLedgers::new(Arc::new(OsFiles), dir, cache_bytes)
}

struct Pair {
    lsm: Arc<dyn Ledger>,
    memory: Arc<dyn Ledger>,
}

impl Pair {
    fn open(lsm: &LsmLedgers, memory: &MemoryLedgers) -> Self {
        let id = PartitionId::new(3);
        Self { lsm: lsm.open(id).unwrap(), memory: memory.open(id).unwrap() }
    }

    fn both(&self, act: impl Fn(&dyn Ledger)) {
        act(&*self.lsm);
        act(&*self.memory);
    }

    fn compare(&self, key: &[u8], end: &[u8]) {
        assert_eq!(value_of(self.lsm.get(key)), value_of(self.memory.get(key)), "{key:?}");
        for reading in [Reading::Query, Reading::Sweep] {
            let bounds = between(key, end, reading);
            assert_eq!(all(self.lsm.range(&bounds)), all(self.memory.range(&bounds)), "{bounds:?}");
        }
    }

    fn hold(&self, at: Position) -> Held {
        Held { at, lsm: self.lsm.view(), memory: self.memory.view() }
    }
}

fn value_of(hit: Result<Option<Hit>, Error>) -> Option<Slice> {
    hit.unwrap().map(|hit| hit.value)
}

/// Views of one moment.
struct Held {
    at: Position,
    lsm: Arc<dyn View>,
    memory: Arc<dyn View>,
}

impl Held {
    fn compare(&self, key: &[u8], end: &[u8]) {
        let (lsm, memory) = (&self.lsm, &self.memory);
        assert_eq!(value_of(lsm.get(key)), value_of(memory.get(key)), "{key:?} at {}", self.at);
        for reading in [Reading::Query, Reading::Sweep] {
            let bounds = between(key, end, reading);
            assert_eq!(all(lsm.range(&bounds)), all(memory.range(&bounds)), "{bounds:?} at {}", self.at);
        }
    }
}

fn between(start: &[u8], end: &[u8], reading: Reading) -> Bounds {
    Bounds::new(Bound::Included(start.to_vec()), Bound::Excluded(end.to_vec()), reading)
}

fn everything() -> Bounds {
    Bounds::new(Bound::Unbounded, Bound::Unbounded, Reading::Query)
}

fn all(mut entries: Cursor) -> Vec<(Slice, Slice)> {
    let mut all = Vec::new();
    while entries.advance().unwrap() {
        all.push((Slice::new(entries.key()), Slice::new(entries.value())));
    }
    all
}

#[test]
fn the_real_and_the_simulated_ledger_agree() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let (lsm, memory) = (ledgers_in(dir.path(), 1 << 20), MemoryLedgers::new());
        let mut pair = Pair::open(&lsm, &memory);
        let mut position = Position::new(1);
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..3000 {
            let key = random.below(60).to_string().into_bytes();
            match random.below(100) {
                0..60 => {
                    let mut value = vec![0; usize::try_from(random.below(200)).unwrap()];
                    random.fill(&mut value);
                    pair.both(|ledger| ledger.insert(&key, value.as_slice(), position));
                    position = Position::new(position.get() + 88);
                }
                60..75 => {
                    pair.both(|ledger| ledger.remove(&key, position));
                    position = Position::new(position.get() + 88);
                }
                75..92 => {
                    let end = [key.as_slice(), b"5"].concat();
                    pair.compare(&key, &end);
                    held.iter().for_each(|view| view.compare(&key, &end));
                }
                92..95 if held.len() < 4 => held.push(pair.hold(Position::new(position.get() - 1))),
                92..95 => {
                    held.swap_remove(usize::try_from(random.below(4)).unwrap());
                }
                95..98 => {
                    let fails = random.below(4) == 0;
                    pair.both(|ledger| {
                        // As the engine does: a summary is the newest entry of what is written out, and stays.
                        ledger.insert(b"summary", &[], Position::new(position.get() - 1));
                        ledger.rotate();
                    });
                    if random.below(3) == 0 {
                        held.extend((held.len() < 4).then(|| pair.hold(Position::new(position.get() - 1))));
                    }
                    // Sometimes it is not written out before it is rotated again.
                    if !fails {
                        pair.both(|ledger| {
                            ledger.write_out().unwrap();
                            ledger.merge().unwrap();
                        });
                        assert_eq!(pair.lsm.persisted(), pair.memory.persisted());
                    }
                }
                98 => pair.compare(b"", b"zzz"),
                _ => {
                    held.clear();
                    drop(pair);
                    pair = Pair::open(&lsm, &memory);
                    assert_eq!(pair.lsm.persisted(), pair.memory.persisted());
                }
            }
        }
    }
}

fn value(number: u64) -> Slice {
    Slice::new(&number.to_le_bytes())
}

#[test]
fn a_view_shows_its_moment_through_changes_and_write_outs() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledgers_in(dir.path(), 1 << 20).open(PartitionId::new(0)).unwrap();
    let at = Position::new;
    // Of each pair of keys one is in the tree, one put aside, one young; and one of each is removed where it is newest.
    for (round, key) in [b"tree", b"aside".as_slice(), b"young"].iter().enumerate() {
        let position = at(100 * (round as u64 + 1));
        ledger.insert(key, &value(round as u64), position);
        ledger.insert(&[*key, b"-removed"].concat(), &value(9), position);
        match round {
            0 => {
                ledger.rotate();
                ledger.write_out().unwrap();
                ledger.merge().unwrap();
                ledger.remove(b"tree-removed", at(195));
            }
            1 => {
                ledger.rotate();
                ledger.remove(b"aside-removed", at(295));
            }
            _ => ledger.remove(b"young-removed", at(310)),
        }
    }
    let wanted: Vec<(Slice, Slice)> = [("aside", 1), ("tree", 0), ("young", 2)]
        .map(|(key, number)| (Slice::new(key.as_bytes()), value(number)))
        .into();
    let view = ledger.view();
    let begun = ledger.range(&everything());
    for round in 4..8u64 {
        for key in ["tree", "aside", "young", "new"] {
            match round {
                5 => ledger.remove(key.as_bytes(), at(round * 100)),
                _ => ledger.insert(key.as_bytes(), &value(round), at(round * 100)),
            }
        }
        let check = || {
            assert_eq!(all(view.range(&everything())), wanted);
            assert_eq!(view.get(b"tree").unwrap().map(|found| found.value), Some(value(0)));
            assert_eq!(view.get(b"tree-removed").unwrap(), None);
            assert_eq!(view.get(b"new").unwrap().map(|found| found.value), None);
        };
        check();
        ledger.rotate();
        check();
        ledger.write_out().unwrap();
        ledger.merge().unwrap();
        check();
    }
    assert_eq!(all(begun), wanted, "a range shows the moment in which it began");
    assert_eq!(ledger.get(b"tree").unwrap().map(|found| found.value), Some(value(7)));
}

#[test]
fn a_range_shows_one_moment_while_the_writer_goes_on() {
    const KEYS: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledgers_in(dir.path(), 1 << 20).open(PartitionId::new(0)).unwrap();
    let key = |number: u64| number.to_be_bytes();
    (0..KEYS).for_each(|number| ledger.insert(&key(number), &value(0), Position::new(1)));
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            // Each round changes the keys from the first to the last, so no moment has a later key ahead of an earlier.
            for round in 1..30u64 {
                (0..KEYS).for_each(|number| ledger.insert(&key(number), &value(round), Position::new(round * 100)));
                if round % 3 == 0 {
                    ledger.rotate();
                    ledger.write_out().unwrap();
                    ledger.merge().unwrap();
                }
            }
        });
        while !writer.is_finished() {
            let seen = all(ledger.range(&everything()));
            let rounds: Vec<u64> = seen.iter().map(|(_, v)| u64::from_le_bytes((**v).try_into().unwrap())).collect();
            assert_eq!(rounds.len() as u64, KEYS);
            assert!(rounds.is_sorted_by(|a, b| a >= b) && rounds[0] <= rounds[rounds.len() - 1] + 1, "{rounds:?}");
        }
    });
}

#[test]
fn what_a_view_shows_outlives_the_ledger_that_is_reset() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledgers_in(dir.path(), 1 << 20).open(PartitionId::new(0)).unwrap();
    ledger.insert(b"young", &value(1), Position::new(10));
    let view = ledger.view();
    ledger.reset().unwrap();
    ledger.insert(b"young", &value(2), Position::new(30));
    assert_eq!(view.get(b"young").unwrap().map(|found| found.value), Some(value(1)));
    assert_eq!((ledger.persisted(), ledger.is_damaged()), (None, false));
    ledger.rotate();
    ledger.write_out().unwrap();
    ledger.merge().unwrap();
    assert_eq!((ledger.memory_bytes(), ledger.persisted()), (0, Some(Position::new(30))));
}

#[test]
fn a_condemned_ledger_comes_back_empty_and_leaves_its_neighbours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let lsm = ledgers_in(dir.path(), 1 << 20);
    let write = |number| {
        let ledger = lsm.open(PartitionId::new(number)).unwrap();
        ledger.insert(b"k", b"v", Position::new(5));
        ledger.rotate();
        ledger.write_out().unwrap();
        ledger.merge().unwrap();
    };
    write(0);
    write(1);
    lsm.condemn(PartitionId::new(1)).unwrap();
    assert_eq!(lsm.open(PartitionId::new(0)).unwrap().persisted(), Some(Position::new(5)));
    let emptied = lsm.open(PartitionId::new(1)).unwrap();
    assert_eq!((emptied.persisted(), emptied.get(b"k").unwrap()), (None, None));
}

/// Tables of many blocks, on several levels, some with an index in two parts: ranges begin and end in the middle of
/// blocks, at their edges, and between tables.
#[test]
fn ranges_over_many_blocks_and_tables_show_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (lsm, memory) = (ledgers_in(dir.path(), 64 << 10), MemoryLedgers::new());
    let pair = Pair::open(&lsm, &memory);
    let mut random = Random::new(7);
    let key = |number: u64| format!("a common beginning of all keys {number:06}").into_bytes();
    let mut position = 1;
    for round in 0..12 {
        for _ in 0..2000 {
            let number = random.below(6_000);
            position += 10;
            let at = Position::new(position);
            if random.below(8) == 0 {
                pair.both(|ledger| ledger.remove(&key(number), at));
            } else {
                let value = Slice::new(&vec![round; usize::try_from(random.below(300)).unwrap()]);
                pair.both(|ledger| ledger.insert(&key(number), &value, at));
            }
        }
        pair.both(|ledger| {
            ledger.rotate();
            ledger.write_out().unwrap();
            ledger.merge().unwrap();
        });
        pair.compare(b"", b"b");
        for _ in 0..20 {
            let from = random.below(6_000);
            pair.compare(&key(from), &key(from + random.below(400)));
        }
    }
    // What is at hand is what is there, also after the ledger is opened again.
    let lsm = lsm.open(PartitionId::new(4)).unwrap();
    lsm.insert(b"other", &value(1), Position::new(1));
    assert_eq!(all(lsm.range(&everything())).len(), 1);
    pair.compare(b"", b"b");
}

/// The story: a merge took the range of the tables that it moved down for that of all it merged, let go of removals behind it though what they
/// removed lay below, and it was there again.
#[test]
fn what_is_removed_stays_removed_through_every_level() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let lsm = ledgers_in(dir.path(), 1 << 20).with_table_bytes(700 << (seed % 3));
        let memory = MemoryLedgers::new();
        let mut pair = Pair::open(&lsm, &memory);
        let mut random = Random::new(seed);
        let key = |number: u64| format!("{number:05}").into_bytes();
        let mut position = 1;
        for round in 0..220u64 {
            // Now here, now there, so that tables of a level are of different ages.
            let from = random.below(3_000);
            for _ in 0..40 {
                position += 1;
                let number = from + random.below(300);
                match (round + number) % 3 {
                    0 => pair.both(|ledger| ledger.remove(&key(number), Position::new(position))),
                    _ => {
                        pair.both(|ledger| ledger.insert(&key(number), &number.to_le_bytes(), Position::new(position)))
                    }
                }
            }
            pair.both(|ledger| {
                ledger.insert(b"~summary", &[7; 900], Position::new(position));
                ledger.rotate();
                ledger.write_out().unwrap();
                ledger.merge().unwrap();
            });
            if random.below(5) == 0 {
                pair.lsm.settle().unwrap();
            }
            if random.below(20) == 0 {
                drop(pair);
                pair = Pair::open(&lsm, &memory);
            }
            if round % 4 == 0 {
                pair.compare(b"", b"~~");
            }
            pair.compare(&key(from + random.below(300)), &key(from + 300));
        }
    }
}
