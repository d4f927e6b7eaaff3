//! Ranges over several ledgers: what is shown, by whom, and what is not shown behind damage.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use base::{Files, OsFiles, Random};
use journal::{PartitionId, Position};

use super::*;
use crate::ledger::{Ledger, Ledgers, LsmLedgers, MemoryLedgers, Reading};

/// Few bytes, so that keys begin alike, end where others go on, and have tags of the least and the greatest bytes; some are alike
/// for longer than a tag is.
fn key(random: &mut Random, begin: &[u8]) -> Vec<u8> {
    let len = usize::try_from(random.below(24)).unwrap();
    let byte = |random: &mut Random| [0, 1, b'a', 0xFF][usize::try_from(random.below(4)).unwrap()];
    let alike = if random.below(2) == 0 { 0 } else { 20 };
    begin.iter().copied().chain(std::iter::repeat_n(0, alike)).chain((0..len).map(|_| byte(random))).collect()
}

#[test]
fn ledgers_are_merged_in_order_and_whole() {
    let mut random = Random::new(1);
    for count in 0..20usize {
        let begin = if count % 2 == 0 { &b"bucket"[..] } else { b"" };
        let ledgers: Vec<_> = (0..count)
            .map(|number| MemoryLedgers::new().open(PartitionId::new(u16::try_from(number).unwrap())).unwrap())
            .collect();
        let mut wanted = BTreeMap::new();
        for _ in 0..count * 30 {
            let (key, ledger) = (key(&mut random, begin), usize::try_from(random.below(count as u64)).unwrap());
            if wanted.contains_key(&key) {
                continue;
            }
            ledgers[ledger].insert(&key, &[7], Position::ZERO);
            wanted.insert(key, ledger);
        }
        let end = [begin, &[0xFF; 50]].concat();
        let bounds = Bounds::new(Bound::Included(begin.to_vec()), Bound::Excluded(end), Reading::Query);
        assert_eq!(bounds.shared(), begin.len());
        let mut cursor = Cursor::new(bounds.clone());
        ledgers.iter().for_each(|ledger| ledger.range_into(&mut cursor));
        let mut seen = BTreeMap::new();
        let mut last = None;
        while cursor.advance().unwrap() {
            assert_eq!((cursor.value(), cursor.tag()), (&[7][..], bounds.tag(cursor.key())));
            assert!(last.as_deref() < Some(cursor.key()), "{last:?}");
            last = Some(cursor.key().to_vec());
            seen.insert(cursor.key().to_vec(), cursor.ledger());
        }
        assert!(!cursor.advance().unwrap(), "the end stays the end");
        assert_eq!(seen, wanted, "{count}");
    }
}

fn partition(number: usize) -> PartitionId {
    PartitionId::new(u16::try_from(number).unwrap())
}

fn small_ledgers_in(dir: &Path) -> LsmLedgers {
    LsmLedgers::new(Arc::new(OsFiles), dir, 1 << 20).with_table_bytes(4 << 10)
}

/// What a cursor over all ledgers shows: key, value, and whose it is.
fn shown(ledgers: &[Arc<dyn Ledger>], bounds: &Bounds) -> Vec<(Vec<u8>, Vec<u8>, usize)> {
    let mut cursor = Cursor::new(bounds.clone());
    ledgers.iter().for_each(|ledger| ledger.range_into(&mut cursor));
    let mut shown = Vec::new();
    while cursor.advance().unwrap() {
        assert_eq!(cursor.tag(), bounds.tag(cursor.key()));
        shown.push((cursor.key().to_vec(), cursor.value().to_vec(), cursor.ledger()));
    }
    shown
}

#[test]
fn of_each_ledger_the_youngest_part_that_knows_a_key_says_what_became_of_it() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let home = small_ledgers_in(dir.path());
        // One of them stays empty.
        let ledgers: Vec<_> = (0..5).map(|number| home.open(partition(number)).unwrap()).collect();
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, usize)> = BTreeMap::new();
        for step in 1..2_000u64 {
            let key = format!("bucket {}", random.below(300)).into_bytes();
            // Of each key it is always the same ledger.
            let owner = [0, 1, 3, 4][usize::from(key[key.len() - 1] % 4)];
            match random.below(100) {
                0..70 => {
                    let mut value = vec![0; usize::try_from(random.below(90)).unwrap()];
                    random.fill(&mut value);
                    ledgers[owner].insert(&key, &value, Position::new(step));
                    model.insert(key, (value, owner));
                }
                70..95 => {
                    ledgers[owner].remove(&key, Position::new(step));
                    model.remove(&key);
                }
                95..97 => ledgers[owner].rotate(),
                97..99 => {
                    ledgers[owner].rotate();
                    ledgers[owner].write_out().unwrap();
                }
                _ => ledgers[owner].merge().unwrap(),
            }
            if step % 50 != 0 {
                continue;
            }
            let mut ends = [random.below(400), random.below(400)].map(|end| format!("bucket {end}").into_bytes());
            ends.sort();
            let [from, to] = ends;
            for reading in [Reading::Query, Reading::Sweep] {
                let bounds = Bounds::new(Bound::Excluded(from.clone()), Bound::Included(to.clone()), reading);
                let inside = model.iter().filter(|(key, _)| **key > from && **key <= to);
                let wanted: Vec<_> = inside.map(|(key, (value, owner))| (key.clone(), value.clone(), *owner)).collect();
                assert_eq!(shown(&ledgers, &bounds), wanted, "{bounds:?} of {seed} at {step}");
            }
        }
    }
}

/// Flips a bit of the `at`th block of the only table of a ledger, counted in blocks' usual length.
fn damage(folder: &Path, at: usize) {
    let names = OsFiles.list(folder).unwrap();
    let tables: Vec<_> = names.iter().filter(|name| name.ends_with(".table")).collect();
    let [name] = tables.as_slice() else { panic!("one table: {names:?}") };
    let path = folder.join(name);
    let mut bytes = base::read_whole(&OsFiles, &path, 1 << 20).unwrap();
    bytes[100 + at * 4096] ^= 1;
    OsFiles.remove(&path).unwrap();
    base::write_new_file(&OsFiles, &path, &bytes).unwrap();
}

#[test]
fn damage_is_that_of_its_ledger_and_behind_it_nothing_is_shown() {
    for block in [0, 3] {
        let dir = tempfile::tempdir().unwrap();
        let home = small_ledgers_in(dir.path()).with_table_bytes(1 << 20);
        let fill = || {
            let ledgers: Vec<_> = (0..4).map(|number| home.open(partition(number)).unwrap()).collect();
            (0..4_000u64).for_each(|number| {
                let key = format!("{number:06}").into_bytes();
                ledgers[usize::try_from(number % 4).unwrap()].insert(&key, &[1; 20], Position::new(1));
            });
            ledgers
        };
        fill().iter().for_each(|ledger| {
            ledger.rotate();
            ledger.write_out().unwrap();
        });
        damage(&dir.path().join("0002"), block);
        let ledgers: Vec<_> = (0..4).map(|number| home.open(partition(number)).unwrap()).collect();
        // Something young beside it, which would be shown if the cursor went on.
        ledgers[2].insert(b"000000", &[2], Position::new(2));
        let mut cursor = Cursor::new(Bounds::everything(Reading::Query));
        ledgers.iter().for_each(|ledger| ledger.range_into(&mut cursor));
        let mut seen = 0;
        let failed = loop {
            match cursor.advance() {
                Ok(true) => seen += 1,
                Ok(false) => break false,
                Err(error) => break matches!(error, Error::Ledger { .. }),
            }
        };
        assert!(failed && (seen == 0) == (block == 0), "{seen} before block {block}");
        assert!(!cursor.advance().unwrap() && !cursor.advance().unwrap(), "behind that nothing is shown");
        let damaged: Vec<_> = ledgers.iter().map(|ledger| ledger.is_damaged()).collect();
        assert_eq!(damaged, [false, false, true, false]);
    }
}
