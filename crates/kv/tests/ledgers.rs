//! The real ledger against the simulated one: the same changes give the same answers, now and at held positions,
//! through writing out, merging and loss of what was not written out.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::ops::Bound;
use std::sync::Arc;

use base::Random;
use holdfast_kv::{Ledger, Ledgers, LsmLedgers, MemoryLedgers, Slice};
use journal::{PartitionId, Position};

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

    fn compare(&self, key: &[u8], end: &[u8], at: Position) {
        assert_eq!(self.lsm.get(key, at).unwrap(), self.memory.get(key, at).unwrap(), "{key:?} at {at}");
        let range = |ledger: &dyn Ledger| -> Vec<(Slice, Slice)> {
            ledger.range(Bound::Included(key), Bound::Excluded(end), at).map(Result::unwrap).collect()
        };
        assert_eq!(range(&*self.lsm), range(&*self.memory), "{key:?}..{end:?} at {at}");
    }
}

#[test]
fn the_real_and_the_simulated_ledger_agree() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let (lsm, memory) = (LsmLedgers::new(dir.path(), 1 << 20), MemoryLedgers::new());
        let mut pair = Pair::open(&lsm, &memory);
        let mut position = Position::new(1);
        let mut held: Option<Position> = None;
        for _ in 0..3000 {
            let key = random.below(60).to_string().into_bytes();
            match random.below(100) {
                0..60 => {
                    let mut value = vec![0; usize::try_from(random.below(200)).unwrap()];
                    random.fill(&mut value);
                    pair.both(|ledger| ledger.insert(&key, Slice::from(value.as_slice()), position));
                    position = Position::new(position.get() + 88);
                }
                60..75 => {
                    pair.both(|ledger| ledger.remove(&key, position));
                    position = Position::new(position.get() + 88);
                }
                75..94 => {
                    let end = [key.as_slice(), b"5"].concat();
                    pair.compare(&key, &end, Position::MAX);
                    if let Some(held) = held {
                        pair.compare(&key, &end, held);
                    }
                }
                94 => held = held.is_none().then(|| Position::new(position.get() - 1)),
                95..98 => {
                    let keep = held.map_or(position, |held| Position::new(held.get() + 1));
                    pair.both(|ledger| {
                        // As the engine does: a summary is the newest entry of what is written out, and stays.
                        ledger.insert(b"summary", Slice::empty(), Position::new(position.get() - 1));
                        ledger.rotate(position);
                        ledger.write_out(keep).unwrap();
                    });
                    assert_eq!(pair.lsm.persisted(), pair.memory.persisted());
                }
                _ => {
                    held = None;
                    drop(pair);
                    pair = Pair::open(&lsm, &memory);
                    assert_eq!(pair.lsm.persisted(), pair.memory.persisted());
                }
            }
        }
    }
}

#[test]
fn a_condemned_ledger_comes_back_empty_and_leaves_its_neighbours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let lsm = LsmLedgers::new(dir.path(), 1 << 20);
    let write = |number| {
        let ledger = lsm.open(PartitionId::new(number)).unwrap();
        ledger.insert(b"k", Slice::from(b"v".as_slice()), Position::new(5));
        ledger.rotate(Position::new(6));
        ledger.write_out(Position::new(6)).unwrap();
    };
    write(0);
    write(1);
    lsm.condemn(PartitionId::new(1)).unwrap();
    assert_eq!(lsm.open(PartitionId::new(0)).unwrap().persisted(), Some(Position::new(5)));
    let emptied = lsm.open(PartitionId::new(1)).unwrap();
    assert_eq!((emptied.persisted(), emptied.get(b"k", Position::MAX).unwrap()), (None, None));
}
