//! What of the real ledger its users do not see: which files are there, and what is kept in memory.

use std::ops::Bound;

use base::{Around, AroundFiles, Handle, OsFiles};

use super::*;
use crate::ledger::list::List;
use crate::ledger::table::IndexKind;
use crate::ledger::{Bounds, Reading};

#[path = "lsm_damage_tests.rs"]
mod damage;

fn at(position: u64) -> Position {
    Position::new(position)
}

fn number(number: u64) -> Slice {
    Slice::new(&number.to_le_bytes())
}

fn ledgers_in(dir: &Path, cache_bytes: u64) -> LsmLedgers {
    LsmLedgers::new(Arc::new(OsFiles), dir, cache_bytes)
}

/// With tables of a few blocks, in many levels.
fn small_ledgers_in(dir: &Path, cache_bytes: u64) -> LsmLedgers {
    let policy = Policy { runs: 2, drags: 8, first_level_bytes: 48 << 10, ratio: 2 };
    LsmLedgers { policy, ..ledgers_in(dir, cache_bytes).with_table_bytes(24 << 10) }
}

fn written(ledger: &dyn Ledger, keys: impl Iterator<Item = Vec<u8>>, value: &Slice, position: u64) {
    keys.for_each(|key| ledger.insert(&key, value, at(position)));
    ledger.rotate();
    ledger.write_out().unwrap();
    ledger.merge().unwrap();
}

fn long_key(number: u64) -> Vec<u8> {
    format!("{number:08} {}", "is the number of an object whose key is long ".repeat(3)).into_bytes()
}

fn query(from: u64, to: u64) -> Bounds {
    Bounds::new(Bound::Included(long_key(from)), Bound::Excluded(long_key(to)), Reading::Query)
}

fn count(mut entries: Cursor) -> u64 {
    (0..).take_while(|_| entries.advance().unwrap()).count() as u64
}

fn value(ledger: &dyn Ledger, key: &[u8]) -> Option<Slice> {
    ledger.get(key).unwrap().map(|found| found.value)
}

fn files_in(folder: &Path) -> Vec<String> {
    OsFiles.list(folder).unwrap()
}

fn tables_in(folder: &Path) -> Vec<String> {
    files_in(folder).into_iter().filter(|name| name.ends_with(".table")).collect()
}

fn infos(ledgers: &LsmLedgers, id: PartitionId) -> Vec<(u8, TableInfo)> {
    let list = read_whole(&OsFiles, &ledgers.folder(id).join(LIST), LIST_BYTES_MAX).unwrap();
    let runs = List::decode(&list).unwrap().runs.into_iter();
    runs.flat_map(|run| run.tables.into_iter().map(move |table| (run.level, table))).collect()
}

fn runs_of(ledger: &LsmLedger) -> Vec<(u8, usize)> {
    ledger.parts().tables.runs.iter().map(|run| (run.level, run.tables.len())).collect()
}

/// The story: what was emptied lay where its successor came to lie, with tables of the same numbers.
#[test]
fn a_view_from_before_a_ledger_was_emptied_neither_reads_nor_removes_what_is_there_since() {
    let dir = tempfile::tempdir().unwrap();
    let ledgers = ledgers_in(dir.path(), 1 << 20);
    let id = PartitionId::new(7);
    let ledger = ledgers.open(id).unwrap();
    // Enough for several blocks, of which the view has read none when the next tables are there.
    let keys = || (0..2_000).map(long_key);
    written(&*ledger, keys(), &number(1), 10);
    let view = ledger.view();
    ledger.reset().unwrap();
    assert_eq!((value(&*ledger, &long_key(5)), ledger.persisted()), (None, None));
    assert_eq!(tables_in(&ledgers.folder(id)), ["0000000000.table"]);
    written(&*ledger, keys(), &number(2), 30);
    for key in keys().step_by(100) {
        assert_eq!(view.get(&key).unwrap().map(|found| found.value), Some(number(1)));
        assert_eq!(value(&*ledger, &key), Some(number(2)));
    }
    let mut old = view.range(&query(0, 2_000));
    while old.advance().unwrap() {
        assert_eq!(old.value(), &*number(1));
    }
    // What the old one lets go of does not take anything of the new one's.
    ledger.reset().unwrap();
    written(&*ledger, keys(), &number(3), 50);
    assert_eq!(tables_in(&ledgers.folder(id)), ["0000000000.table", "0000000002.table"]);
    drop((old, view));
    assert_eq!(tables_in(&ledgers.folder(id)), ["0000000002.table"]);
    drop(ledger);
    let again = ledgers_in(dir.path(), 1 << 20).open(id).unwrap();
    assert!(keys().all(|key| value(&*again, &key) == Some(number(3))));
}

#[test]
fn what_nobody_names_goes_at_the_next_opening_and_no_number_comes_twice() {
    let dir = tempfile::tempdir().unwrap();
    let ledgers = ledgers_in(dir.path(), 1 << 20);
    let id = PartitionId::new(0);
    let folder = ledgers.folder(id);
    written(&*ledgers.open(id).unwrap(), (0..10).map(long_key), &number(1), 10);
    for left in ["0000000007.table", "list.new", "somebody's"] {
        OsFiles.create(&folder.join(left)).unwrap();
    }
    // Not a file, and not in the way.
    OsFiles.create_dir(&folder.join("0000000009.table")).unwrap();
    let ledger = ledgers.open(id).unwrap();
    assert_eq!(files_in(&folder), ["0000000000.table", LIST]);
    for round in 1..4 {
        written(&*ledger, (0..10).map(long_key), &number(round), 10 + round);
    }
    assert_eq!(value(&*ledger, &long_key(3)), Some(number(3)));
    assert!(!tables_in(&folder).contains(&"0000000007.table".to_owned()), "a view may have read it");
    drop(ledger);
    ledgers.condemn(id).unwrap();
    ledgers.condemn(id).unwrap();
    let emptied = ledgers.open(id).unwrap();
    assert_eq!((emptied.persisted(), files_in(&folder).len()), (None, 0));
    written(&*emptied, (0..10).map(long_key), &number(9), 30);
    drop(emptied);
    assert_eq!(value(&*ledgers.open(id).unwrap(), &long_key(3)), Some(number(9)));
}

#[test]
fn settling_merges_what_was_written_out_lately_where_that_costs_little_and_changes_nothing() {
    // How much there is before, how much is written out twice then, and into how many runs that is settled.
    for (old, new, settled) in [(0, 500, 1), (2_000, 500, 1), (100_000, 100, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledgers_in(dir.path(), 1 << 20).open_one(PartitionId::new(0)).unwrap();
        // What there is before is in one run, below the newest level.
        (0..4)
            .filter(|_| old > 0)
            .for_each(|part| written(&ledger, (part..old).step_by(4).map(long_key), &number(1), 10 + part));
        for round in 0..2 {
            written(&ledger, (0..new).map(|key| long_key(key * 3 + round)), &number(2), 20 + round);
        }
        ledger.remove(&long_key(3), at(29));
        ledger.rotate();
        let mut all = Vec::new();
        let everything = Bounds::everything(Reading::Sweep);
        let mut entries = ledger.range(&everything);
        while entries.advance().unwrap() {
            all.push((entries.key().to_vec(), entries.value().to_vec()));
        }
        let view = ledger.view();
        ledger.settle().unwrap();
        // What is in memory stays there.
        assert!(ledger.memory_bytes() > 0 && ledger.persisted() == Some(at(21)));
        for mut entries in [ledger.range(&everything), view.range(&everything)] {
            for (key, value) in &all {
                assert!(entries.advance().unwrap());
                assert_eq!((entries.key(), entries.value()), (&key[..], &value[..]));
            }
            assert!(!entries.advance().unwrap());
        }
        assert_eq!(runs_of(&ledger).len(), settled, "{old}, {new}");
    }
}

#[test]
fn blocks_are_stored_as_is_said_from_then_on_and_read_however_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let mut round = 0;
    let mut sizes = Vec::new();
    for codec in [Compression::None, Compression::Lz4, Compression::Zstd, Compression::None] {
        let ledgers = ledgers_in(dir.path(), 1 << 20).compressed(codec);
        let ledger = ledgers.open(id).unwrap();
        // So many parts of the same keys are merged, and what is merged is written anew.
        for _ in 0..4 {
            round += 1;
            written(&*ledger, (0..3_000).map(long_key), &number(round), 10 * round);
            assert!((0..3_000).step_by(99).all(|key| value(&*ledger, &long_key(key)) == Some(number(round))));
        }
        assert_eq!(count(ledger.range(&query(0, 3_000))), 3_000);
        drop(ledger);
        let infos = infos(&ledgers, id);
        assert_eq!(infos.iter().map(|(level, info)| (*level, info.codec)).collect::<Vec<_>>(), [(1, codec)]);
        sizes.push(infos[0].1.bytes);
    }
    assert!(sizes[0] == sizes[3] && sizes[1] < sizes[0] * 3 / 4 && sizes[2] < sizes[1], "{sizes:?}");
    // What comes in order overlaps nothing, and is stored as was said all the same.
    let ledgers = ledgers_in(dir.path(), 1 << 20).compressed(Compression::Zstd);
    let id = PartitionId::new(1);
    let ledger = ledgers.open(id).unwrap();
    (0..4).for_each(|part| written(&*ledger, (part * 500..part * 500 + 500).map(long_key), &number(1), 10 + part));
    assert_eq!(infos(&ledgers, id).iter().map(|(_, info)| info.codec).collect::<Vec<_>>(), [Compression::Zstd]);
}

/// The story: where the blocks of a table are stayed in memory from the first range on that touched it, whatever the cache
/// was to hold.
#[test]
fn where_blocks_are_is_kept_in_the_room_of_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledger = ledgers_in(dir.path(), 64 << 20).open(id).unwrap();
    let objects = 60_000;
    // In several tables, of which one has its index in parts.
    for part in 0..6 {
        let keys = (part..objects).step_by(6).map(long_key);
        written(&*ledger, keys, &Slice::new(&[7; 100]), 10 + part);
    }
    drop(ledger);
    let roomy = ledgers_in(dir.path(), 64 << 20);
    assert!(infos(&roomy, id).iter().any(|(_, info)| info.index == IndexKind::Parts));
    let ledger = roomy.open(id).unwrap();
    assert_eq!(count(ledger.range(&query(100, 101))), 1);
    let touched = roomy.blocks.bytes();
    assert!(touched > 10_000, "blocks and where they are count, which are {touched} bytes");
    let sweep = Bounds::everything(Reading::Sweep);
    assert_eq!(count(ledger.range(&sweep)), objects);
    assert_eq!(roomy.blocks.bytes(), touched, "who goes through everything keeps nothing");
    drop(ledger);
    // Less room than the index alone takes.
    for cache_bytes in [16 << 10, 256 << 10] {
        let tight = ledgers_in(dir.path(), cache_bytes);
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
    let ledger = small_ledgers_in(dir.path(), 1 << 20).open_one(id).unwrap();
    for part in 0..8 {
        // Some of each part are replaced, and some removed, by what comes later. Every fifth number is nobody's.
        let of_part = |number: &u64| (number % 8 == part || number % 97 == part) && number % 5 != 4;
        (0..objects).filter(of_part).for_each(|key| ledger.insert(&long_key(key), &number(key + part), at(10 + part)));
        (0..objects).filter(|number| number % 89 == part).for_each(|key| ledger.remove(&long_key(key), at(10 + part)));
        ledger.rotate();
        ledger.write_out().unwrap();
        (0..9).for_each(|_| ledger.merge().unwrap());
    }
    let levels: Vec<u8> = runs_of(&ledger).into_iter().map(|(level, _)| level).collect();
    assert!(levels.len() > 2 && levels.iter().all(|level| *level < 7), "{levels:?}");
    let infos = infos(&ledger.home, id);
    let with_parts = infos.iter().filter(|(_, info)| info.filter.is_none()).count();
    assert!(with_parts > 0 && with_parts < infos.len(), "{with_parts} of {}", infos.len());
    drop(ledger);
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
        let ledgers = ledgers_in(dir.path(), cache_bytes);
        ledgers.blocks.borrow(borrowed);
        let ledger = ledgers.open_one(id).unwrap();
        let mut at_hand = 0;
        for round in 0..2 {
            for key in (0..objects).map(|n| n * 7_919 % objects) {
                if key % 500 == round {
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

#[test]
fn removals_end_where_nothing_is_below_and_so_do_the_files_of_what_was_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = small_ledgers_in(dir.path(), 1 << 20);
    let ledger = ledgers.open_one(id).unwrap();
    for round in 0..6 {
        (0..3_000).for_each(|key| ledger.insert(&long_key(key), &number(round), at(10 + 2 * round)));
        ledger.rotate();
        ledger.write_out().unwrap();
        (0..4).for_each(|_| ledger.merge().unwrap());
        (0..3_000).for_each(|key| ledger.remove(&long_key(key), at(11 + 2 * round)));
        ledger.rotate();
        ledger.write_out().unwrap();
        (0..4).for_each(|_| ledger.merge().unwrap());
        assert_eq!(count(ledger.range(&query(0, 3_000))), 0);
    }
    assert_eq!(ledger.persisted(), Some(at(21)));
    let named: Vec<_> = infos(&ledgers, id).into_iter().map(|(_, info)| info).collect();
    assert_eq!(tables_in(&ledgers.folder(id)).len(), named.len());
    let entries: u64 = named.iter().map(|info| info.entries).sum();
    assert!(entries <= 3_000, "{entries}");
}

/// What is written today is read by the programs to come: docs/formats/kv.md. What codecs make of a block is for their standards to say.
#[test]
fn the_files_are_what_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = small_ledgers_in(dir.path(), 1 << 20).compressed(Compression::None);
    let ledger = ledgers.open(id).unwrap();
    for part in 0..2 {
        (0..1_000).for_each(|key| ledger.insert(&long_key(key * 2 + part), &number(key), at(10 + part)));
        (0..10).for_each(|key| ledger.remove(&long_key(key * 50), at(10 + part)));
        ledger.rotate();
        ledger.write_out().unwrap();
        (0..9).for_each(|_| ledger.merge().unwrap());
    }
    let infos = infos(&ledgers, id);
    assert!(infos.iter().any(|(_, info)| info.filter.is_none()), "some have filters in parts");
    assert!(infos.iter().any(|(_, info)| info.filter.is_some()), "some have not");
    let hash = |name| base::hash64(&read_whole(&OsFiles, &ledgers.folder(id).join(name), LIST_BYTES_MAX).unwrap());
    let mut names = tables_in(&ledgers.folder(id));
    names.push(LIST.to_owned());
    let all = names.iter().fold(0u64, |all, name| all.rotate_left(1) ^ hash(name));
    assert_eq!((names.len(), all), (13, 11_572_548_757_750_416_756));
}

/// A disk that says so for as long as it is told to.
#[derive(Default)]
struct Saying {
    syncing: Mutex<Option<i32>>,
    reading: Mutex<Option<i32>>,
    naming: Mutex<Option<i32>>,
}

fn said(what: &Mutex<Option<i32>>) -> io::Result<()> {
    what.lock().unwrap().map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
}

impl Around for Saying {
    fn read_at(&self, handle: &Handle, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        said(&self.reading)?;
        handle.file.read_at(buffer, offset)
    }

    fn sync(&self, handle: &Handle) -> io::Result<()> {
        said(&self.syncing)?;
        handle.file.sync()
    }

    fn sync_dir(&self, files: &dyn Files, dir: &Path) -> io::Result<()> {
        said(&self.naming)?;
        files.sync_dir(dir)
    }
}

/// The story: a disk that could not sync a new table had the ledger emptied, and filled again from the journal, and again. One that could open no
/// more files had it discarded.
#[test]
fn what_cannot_be_written_or_opened_costs_nothing_that_is_there() {
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let saying = Arc::new(Saying::default());
    let files: Arc<dyn Files> = Arc::new(AroundFiles::new(Arc::new(OsFiles), Arc::clone(&saying)));
    let ledgers = LsmLedgers::new(files, dir.path(), 0);
    let ledger = ledgers.open(id).unwrap();
    written(&*ledger, (0..100).map(long_key), &number(1), 10);
    let before = files_in(&ledgers.folder(id));
    for round in 0..3 {
        (0..100).for_each(|key| ledger.insert(&long_key(key), &number(2), at(20 + round)));
        ledger.rotate();
        let which = [&saying.syncing, &saying.naming][usize::try_from(round % 2).unwrap()];
        *which.lock().unwrap() = Some(EIO);
        assert!(matches!(ledger.write_out(), Err(Error::LedgerIo { .. })));
        assert!(!ledger.is_damaged() && ledger.persisted() == Some(at(10)));
        assert_eq!(files_in(&ledgers.folder(id)), before, "nothing is left of it");
        *which.lock().unwrap() = None;
        assert_eq!(value(&*ledger, &long_key(5)), Some(number(2)), "in memory");
    }
    ledger.write_out().unwrap();
    drop(ledger);
    *saying.reading.lock().unwrap() = Some(EMFILE);
    assert!(matches!(ledgers.open(id), Err(Error::LedgerIo { .. })));
    *saying.reading.lock().unwrap() = None;
    let ledger = ledgers.open(id).unwrap();
    assert_eq!((ledger.persisted(), value(&*ledger, &long_key(5))), (Some(at(22)), Some(number(2))));
    *saying.reading.lock().unwrap() = Some(EMFILE);
    assert!(matches!(ledger.get(&long_key(7)), Err(Error::LedgerIo { .. })) && !ledger.is_damaged());
    *saying.reading.lock().unwrap() = Some(EIO);
    assert!(matches!(ledger.get(&long_key(7)), Err(Error::Ledger { .. })) && ledger.is_damaged(), "not to be read");
}

/// The story: a snapshot that outlived its store came upon tables that were merged away since, and had the next opening discard what was sound.
#[test]
fn what_a_view_finds_when_its_ledger_is_closed_is_no_news() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = ledgers_in(dir.path(), 0);
    let ledger = ledgers.open(id).unwrap();
    written(&*ledger, (0..100).map(long_key), &number(1), 10);
    let view = ledger.view();
    (0..4).for_each(|round| written(&*ledger, (0..100).map(long_key), &number(2), 20 + round));
    drop(ledger);
    let ledger = ledgers.open(id).unwrap();
    // Of what the view reads there may be nothing any more.
    let _ = view.get(&long_key(5));
    assert_eq!(value(&*ledger, &long_key(5)), Some(number(2)));
    drop((view, ledger));
    assert_eq!(ledgers.open(id).unwrap().persisted(), Some(at(23)));
}
