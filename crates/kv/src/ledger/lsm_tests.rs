//! What of the real ledger its users do not see: which files are there, and what is kept in memory.

use std::ops::Bound;

use super::*;
use crate::ledger::Reading;

fn at(position: u64) -> Position {
    Position::new(position)
}

fn number(number: u64) -> Slice {
    Slice::from(number.to_le_bytes().as_slice())
}

fn written(ledger: &dyn Ledger, keys: impl Iterator<Item = Vec<u8>>, value: &Slice, position: u64) {
    keys.for_each(|key| ledger.insert(&key, value, at(position)));
    ledger.rotate(at(position + 1));
    ledger.write_out(at(position + 1)).unwrap();
}

fn long_key(number: u64) -> Vec<u8> {
    format!("{number:08} {}", "is the number of an object whose key is long ".repeat(3)).into_bytes()
}

fn query(from: u64, to: u64) -> Bounds {
    Bounds::new(Bound::Included(long_key(from)), Bound::Excluded(long_key(to)), Reading::Query)
}

fn count(mut entries: Box<dyn Cursor>) -> u64 {
    (0..).take_while(|_| entries.advance().unwrap()).count() as u64
}

fn value(ledger: &dyn Ledger, key: &[u8]) -> Option<Slice> {
    ledger.get(key).unwrap().map(|found| found.value)
}

fn folders(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    #[expect(clippy::disallowed_methods, reason = "tests stand outside the wall")]
    let mut names: Vec<String> = std::fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

/// The story: the new tree lay where the old one had been, with tables of the same numbers.
#[test]
fn a_view_from_before_a_ledger_was_emptied_neither_reads_nor_removes_what_is_there_since() {
    let dir = tempfile::tempdir().unwrap();
    let ledgers = LsmLedgers::new(dir.path(), 1 << 20);
    let ledger = ledgers.open(PartitionId::new(7)).unwrap();
    // Enough for several blocks, of which the view has read none when the files of the new tree are there.
    let keys = || (0..2_000).map(long_key);
    written(&*ledger, keys(), &number(1), 10);
    let view = ledger.view(at(20));
    ledger.reset().unwrap();
    assert_eq!((value(&*ledger, &long_key(5)), ledger.persisted()), (None, None));
    written(&*ledger, keys(), &number(2), 30);
    assert_eq!(folders(dir.path()), ["0007", "0007.1"]);
    for key in keys().step_by(100) {
        assert_eq!(view.get(&key).unwrap().map(|found| found.value), Some(number(1)));
        assert_eq!(value(&*ledger, &key), Some(number(2)));
    }
    let mut old = view.range(&query(0, 2_000));
    while old.advance().unwrap() {
        assert_eq!(old.value(), &*number(1));
    }
    // What the old tree lets go of does not take anything of the new one's.
    ledger.reset().unwrap();
    written(&*ledger, keys(), &number(3), 50);
    drop((old, view));
    assert_eq!(folders(dir.path()), ["0007.2"]);
    drop(ledger);
    let again = LsmLedgers::new(dir.path(), 1 << 20).open(PartitionId::new(7)).unwrap();
    assert!(keys().all(|key| value(&*again, &key) == Some(number(3))));
}

#[test]
fn what_is_left_of_folders_from_before_goes_at_the_next_opening() {
    let dir = tempfile::tempdir().unwrap();
    let ledgers = LsmLedgers::new(dir.path(), 1 << 20);
    let id = PartitionId::new(0);
    written(&*ledgers.open(id).unwrap(), (0..10).map(long_key), &number(1), 10);
    #[expect(clippy::disallowed_methods, reason = "tests stand outside the wall")]
    std::fs::write(dir.path().join("0000/current"), b"garbage").unwrap();
    let emptied = ledgers.open(id).unwrap();
    assert_eq!((emptied.persisted(), folders(dir.path())), (None, vec!["0000.1".to_owned()]));
    written(&*emptied, (0..10).map(long_key), &number(2), 10);
    drop(emptied);
    ledgers.condemn(id).unwrap();
    let emptied = ledgers.open(id).unwrap();
    assert_eq!((emptied.persisted(), folders(dir.path())), (None, vec!["0000.2".to_owned()]));
}

/// The story: without the file that names the list a tree began anew beside the lists of before, came upon the name of one when it wrote its
/// own, and the store did not open, or did not close.
#[test]
#[expect(clippy::disallowed_methods, reason = "tests stand outside the wall")]
fn a_ledger_whose_list_nobody_names_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = LsmLedgers::new(dir.path(), 1 << 20);
    for round in 1..4 {
        written(&*ledgers.open(id).unwrap(), (0..10).map(long_key), &number(round), 10 * round);
    }
    std::fs::remove_file(dir.path().join("0000/current")).unwrap();
    for round in 1..4 {
        let ledger = ledgers.open(id).unwrap();
        assert_eq!((ledger.persisted().is_none(), folders(dir.path())), (round == 1, vec!["0000.1".to_owned()]));
        written(&*ledger, (0..10).map(long_key), &number(round), 10 * round);
    }
    // One that is there and has nothing yet is no ledger that lost something.
    std::fs::create_dir(dir.path().join("0001")).unwrap();
    assert!(Folder::newest(dir.path(), PartitionId::new(1)).unwrap().has_sound_list().unwrap());
}

/// The story: a byte of the list of tables had the tree show entries of before for those of now, without a word, and what compaction let go of
/// by them was lost for good.
#[test]
#[expect(clippy::disallowed_methods, reason = "tests stand outside the wall")]
fn a_changed_byte_of_the_list_of_tables_has_the_ledger_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = LsmLedgers::new(dir.path(), 1 << 20);
    for round in 1..4 {
        written(&*ledgers.open(id).unwrap(), (0..10).map(long_key), &number(round), 10 * round);
    }
    let folder = dir.path().join("0000");
    let lists = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let named: Vec<PathBuf> = lists().collect();
    assert!(named.len() >= 2, "`current` and the list that it names: {named:?}");
    let mut healed = 0;
    for path in named {
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            std::fs::write(&path, &flipped).unwrap();
            let is_sound = Folder::newest(dir.path(), id).unwrap().has_sound_list().unwrap();
            healed += usize::from(!is_sound);
            // Lists of before are nobody's.
            assert!(!is_sound || !path.ends_with("current"), "{} at {at}", path.display());
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(healed > 100, "{healed}");
    let ledger = ledgers.open(id).unwrap();
    assert!((0..10).all(|key| value(&*ledger, &long_key(key)) == Some(number(3))));
    drop(ledger);
    let newest = lists().filter(|path| !path.ends_with("current")).max().unwrap();
    let mut flipped = std::fs::read(&newest).unwrap();
    flipped[84] ^= 1;
    std::fs::write(&newest, &flipped).unwrap();
    let anew = ledgers.open(id).unwrap();
    assert_eq!((anew.persisted(), value(&*anew, &long_key(1))), (None, None), "the journal has it all");
}

#[test]
fn settling_merges_what_was_written_out_lately_where_that_costs_little_and_changes_nothing() {
    let runs = |ledgers: &LsmLedgers, id| {
        let path = Folder::newest(&ledgers.dir, id).unwrap();
        ledgers
            .open_tree(path)
            .unwrap()
            .tree
            .current_version()
            .iter_levels()
            .map(|level| level.iter().count())
            .sum::<usize>()
    };
    // How much there is before, how much is written out twice then, and into how many runs that is settled.
    for (old, new, settled) in [(0, 500, 1), (2_000, 500, 1), (100_000, 500, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let ledgers = LsmLedgers::new(dir.path(), 1 << 20);
        let id = PartitionId::new(0);
        let ledger = ledgers.open(id).unwrap();
        // What there is before is in one run, below the newest level.
        (0..4)
            .filter(|_| old > 0)
            .for_each(|part| written(&*ledger, (part..old).step_by(4).map(long_key), &number(1), 10 + part));
        for round in 0..2 {
            written(&*ledger, (0..new).map(|key| long_key(key * 3 + round)), &number(2), 20 + round);
        }
        ledger.remove(&long_key(3), at(29));
        ledger.rotate(at(30));
        let mut all = Vec::new();
        let everything = Bounds::new(Bound::Unbounded, Bound::Unbounded, Reading::Sweep);
        let mut entries = ledger.range(&everything);
        while entries.advance().unwrap() {
            all.push((entries.key().to_vec(), entries.value().to_vec()));
        }
        let view = ledger.view(at(30));
        ledger.settle(at(30)).unwrap();
        // What is in memory stays there.
        assert!(ledger.memory_bytes() > 0 && ledger.persisted() == Some(at(21)));
        for mut entries in [ledger.range(&everything), view.range(&everything)] {
            for (key, value) in &all {
                assert!(entries.advance().unwrap());
                assert_eq!((entries.key(), entries.value()), (&key[..], &value[..]));
            }
            assert!(!entries.advance().unwrap());
        }
        drop((ledger, view));
        assert_eq!(runs(&ledgers, id), settled, "{old}, {new}");
    }
}

#[test]
fn blocks_are_stored_as_is_said_from_then_on_and_read_however_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let (mut round, mut seen) = (0, Vec::new());
    for compression in [LedgerCompression::None, LedgerCompression::Lz4, LedgerCompression::None] {
        let ledgers = LsmLedgers::new(dir.path(), 1 << 20).compressed(compression);
        let ledger = ledgers.open(id).unwrap();
        // So many parts of the same keys are merged, and what is merged is written anew.
        for _ in 0..4 {
            round += 1;
            written(&*ledger, (0..3_000).map(long_key), &number(round), 10 * round);
            assert!((0..3_000).step_by(99).all(|key| value(&*ledger, &long_key(key)) == Some(number(round))));
        }
        assert_eq!(count(ledger.range(&query(0, 3_000))), 3_000);
        drop(ledger);
        let tree = ledgers.open_tree(Folder::newest(dir.path(), id).unwrap()).unwrap();
        let version = tree.tree.current_version();
        let tables = version.iter_levels().flat_map(|level| level.iter()).flat_map(|run| run.iter());
        let packed = tables.map(|table| table.metadata.data_block_compression);
        seen.push(packed.filter(|packed| *packed == CompressionType::Lz4).count());
    }
    assert!(seen[0] == 0 && seen[1] > 0 && seen[2] == 0, "{seen:?}");
}

/// The story: where the blocks of a table are stayed in memory from the first range on that touched it, whatever the cache
/// was to hold.
#[test]
fn where_blocks_are_is_kept_in_the_room_of_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledger = LsmLedgers::new(dir.path(), 64 << 20).open(id).unwrap();
    let objects = 60_000;
    // In two tables at the least, of which one has its index in parts.
    for part in 0..6 {
        let keys = (part..objects).step_by(6).map(long_key);
        written(&*ledger, keys, &Slice::from(vec![7; 100]), 10 + part);
    }
    drop(ledger);
    let roomy = LsmLedgers::new(dir.path(), 64 << 20);
    let ledger = roomy.open(id).unwrap();
    assert_eq!(count(ledger.range(&query(100, 101))), 1);
    let touched = roomy.blocks.bytes();
    assert!(touched > 20_000, "a block and its index count, which are {touched} bytes");
    let sweep = Bounds::new(Bound::Unbounded, Bound::Unbounded, Reading::Sweep);
    assert_eq!(count(ledger.range(&sweep)), objects);
    assert_eq!(roomy.blocks.bytes(), touched, "who goes through everything keeps nothing");
    drop(ledger);
    // Less room than the index alone takes.
    for cache_bytes in [64 << 10, 256 << 10] {
        let tight = LsmLedgers::new(dir.path(), cache_bytes);
        let ledger = tight.open(id).unwrap();
        for from in (0..objects).step_by(997) {
            assert_eq!(count(ledger.range(&query(from, from + 40))), 40.min(objects - from));
            assert!(tight.blocks.bytes() <= cache_bytes, "{} bytes", tight.blocks.bytes());
        }
    }
}

/// In small tables of several levels, the last of which have index and filter in parts.
#[test]
fn keys_are_found_in_blocks_however_they_are_at_hand() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let objects = 30_000;
    let ledger = LsmLedgers::new(dir.path(), 1 << 20).open_one(id).unwrap();
    for part in 0..8 {
        // Some of each part are replaced, and some removed, by what comes later. Every fifth number is nobody's.
        let of_part = |number: &u64| (number % 8 == part || number % 97 == part) && number % 5 != 4;
        (0..objects).filter(of_part).for_each(|key| ledger.insert(&long_key(key), &number(key + part), at(10 + part)));
        (0..objects).filter(|number| number % 89 == part).for_each(|key| ledger.remove(&long_key(key), at(10 + part)));
        ledger.rotate(at(20 + part));
        ledger.change(|_| ledger.flush(at(20 + part))).unwrap();
        let small = Leveled::default().with_l0_threshold(2).with_table_target_size(24 << 10);
        let small = Arc::new(small.with_level_ratio_policy(vec![2.0]));
        ledger.change(|tree| (0..9).try_for_each(|_| tree.tree.compact(small.clone(), part).map(|_| ()))).unwrap();
    }
    let version = ledger.parts().tree.tree.current_version();
    let tables: Vec<_> = version.iter_levels().flat_map(|level| level.iter()).flat_map(|run| run.iter()).collect();
    let with_parts = tables.iter().filter(|table| table.regions.filter_tli.is_some()).count();
    assert!(with_parts > 0 && with_parts < tables.len(), "{with_parts} of {}", tables.len());
    drop((version, ledger));
    // What came last of a number, by the order above: what is removed in a part is, even if it was written in it.
    let expected = |key: u64| {
        let parts = (0..8).rev().find_map(|part| {
            if key % 89 == part {
                return Some(None);
            }
            ((key % 8 == part || key % 97 == part) && key % 5 != 4).then_some(Some(number(key + part)))
        });
        parts.flatten()
    };
    for (cache_bytes, borrowed) in [(64 << 10, 0), (1 << 20, 0), (64 << 20, 0), (64 << 10, 64 << 20)] {
        let ledgers = LsmLedgers::new(dir.path(), cache_bytes);
        ledgers.blocks.borrow(borrowed);
        let ledger = ledgers.open_one(id).unwrap();
        let mut at_hand = 0;
        for round in 0..2 {
            for key in (0..objects).map(|n| n * 7_919 % objects) {
                if key % 500 == round {
                    // Unpacks a block, which may be at hand as it is stored.
                    let range = ledger.range(&query(key, key + 20));
                    assert_eq!(
                        count(range),
                        (key..(key + 20).min(objects)).filter(|key| expected(*key).is_some()).count() as u64
                    );
                }
                let found = ledger.get(&long_key(key)).unwrap();
                at_hand += u64::from(round == 1 && found.as_ref().is_some_and(|found| found.was_at_hand));
                assert_eq!(found.map(|found| found.value), expected(key), "{key}");
            }
            assert!(ledgers.blocks.bytes() <= cache_bytes + borrowed);
        }
        let there = (0..objects).filter(|key| expected(*key).is_some()).count() as u64;
        assert_eq!(at_hand == there, cache_bytes + borrowed >= 64 << 20, "{at_hand} of {there}");
        ledgers.blocks.borrow(0);
        assert!(ledgers.blocks.bytes() <= cache_bytes);
    }
}
