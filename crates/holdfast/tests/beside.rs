//! What lies beside the journal, snapshots of spaces and sealed files of series: what is damaged or missing is told by whoever looks,
//! a restore that would lose it is refused, and a journal that is gone is not begun anew under them.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stand outside the wall")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::memory::Disk;
use base::{Files, Limits, ManualClock};
use holdfast::Schedule::{Continuous, OnDemand};
use holdfast::series::Rows;
use holdfast::space::{Definition, Document, Value, WriteOptions};
use holdfast::{
    CompactionOptions, Damage, DamageKind, ErrorKind, Inspection, MemoryLedgers, Options, Restore, RestoreDamage,
    Restored, Store, World, restore_in,
};

const DIR: &str = "/store";
const BACKUP: &str = "/backup";
const NEW: &str = "/new";

fn open(disk: &Disk, dir: &str) -> holdfast::Result<Store> {
    open_with(disk, dir, &MemoryLedgers::new())
}

fn open_with(disk: &Disk, dir: &str, ledgers: &MemoryLedgers) -> holdfast::Result<Store> {
    let world = World {
        files: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::at(1_700_000_000_000)),
        ledgers: Arc::new(ledgers.clone()),
        threads: false,
        entropy: 42,
    };
    Store::open_in(&world, Path::new(dir), Options { partitions: 2, limits: Limits::tiny(), ..Options::default() })
}

fn fill(store: &Store, numbers: std::ops::Range<i64>) {
    let orders = store.space("shop").declare(Definition::new("shop", "order")).unwrap();
    for number in numbers.clone() {
        let order = Document::from_pairs([("id", Value::from(number))]);
        orders.write(&order, &WriteOptions::default()).unwrap();
    }
    let mut rows = Rows::new("d");
    let row = rows.row(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
    let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
    numbers.for_each(|time| rows.push_float(slot, time, 0.5));
    store.series().write(&mut rows).unwrap();
}

/// A closed store with entries and points, and its backup; what its digest was.
fn stored() -> (Disk, u128) {
    let disk = Disk::new(1);
    let store = open(&disk, DIR).unwrap();
    fill(&store, 0..100);
    store.close().unwrap();
    let store = open(&disk, DIR).unwrap();
    let digest = store.digest().unwrap();
    store.backup(BACKUP).unwrap();
    store.close().unwrap();
    (disk, digest)
}

fn restore(disk: &Disk, damage: RestoreDamage) -> holdfast::Result<Restored> {
    let how = Restore { damage, ..Restore::default() };
    restore_in(disk, (Path::new(BACKUP), Path::new(NEW)), how, &mut |_| ())
}

/// What a look at every byte finds damaged.
fn inspected(disk: &Disk, dir: &str) -> Vec<(DamageKind, PathBuf)> {
    let before = disk.operations();
    let mut inspection = Inspection::in_files(disk, Path::new(dir)).unwrap();
    inspection.verify(&mut |_| ()).unwrap();
    assert_eq!(disk.operations(), before, "something was written");
    short(&inspection.damage())
}

fn short(damage: &[Damage]) -> Vec<(DamageKind, PathBuf)> {
    damage.iter().map(|damage| (damage.kind, damage.path.clone())).collect()
}

fn remove(disk: &Disk, what: &str) {
    let all = disk.inventory().into_iter().map(|(path, _)| path).filter(|path| path.starts_with(what));
    assert!(all.map(|path| disk.remove(&path).unwrap()).count() > 0, "{what}");
}

fn find(disk: &Disk, dir: &str, end: &str) -> PathBuf {
    let mut all = disk.inventory().into_iter().map(|(path, _)| path);
    all.find(|path| path.starts_with(dir) && path.to_string_lossy().ends_with(end)).unwrap()
}

/// Changes a byte. A register of the backup is the store's, by another name.
fn damage(disk: &Disk, path: &Path) {
    if !path.starts_with(BACKUP) || !path.to_string_lossy().contains(".names") {
        disk.flip(path, 20, 1);
    }
}

/// Whether a restore refuses the backup and says of which file; with damage accepted, what the restored store tells when it opens.
fn refused(disk: &Disk, path: &Path) -> Vec<(DamageKind, PathBuf)> {
    let error = restore(disk, RestoreDamage::Refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()) && error.to_string().contains("offset 0"), "{error}");
    assert!(disk.inventory().iter().all(|(path, _)| !path.starts_with(NEW)), "something was restored");
    assert!(!restore(disk, RestoreDamage::Accept).unwrap().damage.is_empty());
    short(&open(disk, NEW).unwrap().stats().damage)
}

#[test]
fn what_is_sound_is_told_as_sound() {
    let (disk, digest) = stored();
    assert_eq!((inspected(&disk, DIR), inspected(&disk, BACKUP)), (vec![], vec![]));
    assert_eq!(restore(&disk, RestoreDamage::Refuse).unwrap().damage, []);
    let restored = open(&disk, NEW).unwrap();
    assert_eq!((restored.digest().unwrap(), restored.stats().damage), (digest, vec![]));
    assert_eq!(inspected(&disk, NEW), []);
}

/// A backup with both snapshots of a partition damaged was verified as sound and restored without a word, and entries were gone.
#[test]
fn snapshots_of_spaces_are_looked_at_before_they_are_restored() {
    let (disk, _) = stored();
    for dir in [DIR, BACKUP] {
        for end in ["snap", "old"] {
            disk.flip(&Path::new(dir).join("space/0001").with_extension(end), 20, 1);
        }
        let path = Path::new(dir).join("space/0001.snap");
        assert_eq!(inspected(&disk, dir), [(DamageKind::Record, path)]);
    }
    let told = refused(&disk, &Path::new(BACKUP).join("space/0001.snap"));
    assert_eq!(told, [(DamageKind::Record, PathBuf::from("/new/space/0001.snap"))]);
}

/// With every snapshot damaged nobody knew of a type any more, and so of no damage.
#[test]
fn that_all_snapshots_are_damaged_is_told() {
    let (disk, _) = stored();
    for name in ["0000.snap", "0000.old", "0001.snap", "0001.old"] {
        disk.flip(&Path::new(DIR).join("space").join(name), 20, 1);
    }
    assert_eq!(inspected(&disk, DIR).len(), 2);
    assert_eq!(open(&disk, DIR).unwrap().stats().damage.len(), 2);
}

#[test]
fn one_damaged_copy_of_two_is_told_and_costs_nothing() {
    for end in ["space/0001.snap", "space/0000.old", ".names", ".names.copy", "manifest", "manifest.copy"] {
        let (disk, digest) = stored();
        for dir in [DIR, BACKUP] {
            let path = find(&disk, dir, end);
            damage(&disk, &path);
            assert_eq!(inspected(&disk, dir), [(DamageKind::Copy, path)], "{end}");
        }
        let damage = restore(&disk, RestoreDamage::Refuse).unwrap().damage;
        assert_eq!(short(&damage), [(DamageKind::Copy, find(&disk, BACKUP, end))], "{end}");
        assert_eq!(open(&disk, NEW).unwrap().digest().unwrap(), digest, "{end}");
        let store = open(&disk, DIR).unwrap();
        assert_eq!(short(&store.stats().damage).len(), 1, "{end}: {:?}", store.stats().damage);
        assert_eq!(store.digest().unwrap(), digest, "{end}");
    }
}

/// Without its folder a store was taken for one that has no spaces or no time series, and so was a backup.
#[test]
fn a_folder_that_is_missing_is_missed() {
    for folder in ["space", "series"] {
        let (disk, _) = stored();
        let missing = |dir: &str| vec![(DamageKind::Missing, Path::new(dir).join(folder))];
        for dir in [DIR, BACKUP] {
            remove(&disk, &format!("{dir}/{folder}"));
            assert_eq!(inspected(&disk, dir), missing(dir));
        }
        assert_eq!(refused(&disk, &Path::new(BACKUP).join(folder)), missing(NEW));
        assert_eq!(short(&open(&disk, DIR).unwrap().stats().damage), missing(DIR));
    }
}

/// It was taken for a new store, and what came then was below what the ledgers had: it was gone when the store opened again.
#[test]
fn a_store_of_keys_whose_journal_is_missing_is_refused() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open_with(&disk, DIR, &ledgers).unwrap();
    for value in 0..100u32 {
        store.kv().put(b"b", b"k", &value.to_le_bytes(), &holdfast::PutOptions::default()).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let mut segments: Vec<PathBuf> = disk.inventory().into_iter().map(|(path, _)| path).collect();
    segments.retain(|path| path.starts_with(Path::new(DIR).join("journal")));
    let kept = segments.iter().map(|path| base::read_whole(&disk, path, 1 << 20).unwrap()).collect::<Vec<_>>();
    segments.iter().for_each(|path| disk.remove(path).unwrap());
    let refused = open_with(&disk, DIR, &ledgers).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("files of the journal are missing"), "{refused}");
    for (path, bytes) in segments.iter().zip(&kept) {
        base::write_new_file(&disk, path, bytes).unwrap();
    }
    let object = open_with(&disk, DIR, &ledgers).unwrap().kv().get(b"b", b"k").unwrap().unwrap();
    assert_eq!(object.value.as_ref(), 99u32.to_le_bytes());
}

/// The first opening was refused and left a segment behind, so that the journal went far enough for the second: keys were gone without a word.
#[test]
fn a_store_whose_last_segments_are_missing_is_refused_however_often_it_is_opened() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let limits = Limits::tiny();
        Store::open(
            place.path(),
            Options { partitions: 2, limits, durability: holdfast::Durability::Written, ..Options::default() },
        )
    };
    let store = open().unwrap();
    for value in 0..2_000u32 {
        store.kv().put(b"b", &value.to_le_bytes(), &[7; 500], &holdfast::PutOptions::default()).unwrap();
    }
    store.close().unwrap();
    let journal = place.path().join("journal");
    let listed = || {
        let names = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".seg")).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(holdfast::Inspection::of(place.path()).unwrap().missing(), None);
    let all = listed();
    for lost in [1, 2] {
        let taken: Vec<_> = all.iter().rev().take(lost).collect();
        taken.iter().for_each(|name| std::fs::rename(journal.join(name), place.path().join(name)).unwrap());
        let left = listed();
        for _ in 0..3 {
            let refused = open().map(|_| ()).unwrap_err();
            let text = refused.to_string();
            assert!(refused.kind() == ErrorKind::Corrupt && text.contains("the ledger of partition"), "{refused}");
            assert_eq!(listed(), left, "nothing is changed");
        }
        assert!(holdfast::Inspection::of(place.path()).unwrap().missing().is_some());
        taken.iter().for_each(|name| std::fs::rename(place.path().join(name), journal.join(name)).unwrap());
    }
    let store = open().unwrap();
    for value in 0..2_000u32 {
        assert!(store.kv().get(b"b", &value.to_le_bytes()).unwrap().is_some(), "{value}");
    }
}

#[test]
fn a_store_without_its_journals_folder_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let open = || Store::open(place.path(), Options { partitions: 2, ..Options::default() });
    open().unwrap().close().unwrap();
    std::fs::remove_dir_all(place.path().join("journal")).unwrap();
    let refused = open().map(|_| ()).unwrap_err();
    assert!(refused.kind() == ErrorKind::Corrupt && refused.to_string().contains("has no journal"), "{refused}");
    assert!(!place.path().join("journal").exists(), "nothing is changed");
}

/// As long as no ledger was written out nothing told of what there had been: it opened as a new store, and all keys were gone.
#[test]
fn a_store_whose_segments_were_all_removed_is_refused_though_nothing_else_tells_of_them() {
    let place = tempfile::tempdir().unwrap();
    let open = || Store::open(place.path(), Options { partitions: 2, ..Options::default() });
    drop(open().unwrap());
    let (journal, kept) = (place.path().join("journal"), place.path().join("kept"));
    std::fs::rename(&journal, &kept).unwrap();
    std::fs::create_dir(&journal).unwrap();
    for _ in 0..2 {
        let refused = open().map(|_| ()).unwrap_err();
        assert!(
            refused.kind() == ErrorKind::Corrupt && refused.to_string().contains("there is no segment"),
            "{refused}"
        );
        assert_eq!(std::fs::read_dir(&journal).unwrap().count(), 0, "nothing is changed");
    }
    std::fs::remove_dir(&journal).unwrap();
    std::fs::rename(&kept, &journal).unwrap();
    drop(open().unwrap());
    // The backup of a store that never held anything has no segments either, and what is made of it was never open.
    let (empty, backup, new) = (place.path().join("empty"), place.path().join("backup"), place.path().join("new"));
    Store::open(&empty, Options::default()).unwrap().backup(&backup).unwrap();
    holdfast::restore(&backup, &new, Restore::default(), &mut |_| ()).unwrap();
    for _ in 0..2 {
        drop(Store::open(&new, Options::default()).unwrap());
    }
}

/// Of stores and backups that were made before it was noted.
#[test]
fn what_a_store_has_is_noted_when_it_opens() {
    let (disk, _) = stored();
    let path = Path::new(DIR).join("store");
    let noted = base::read_whole(&disk, &path, 64).unwrap();
    let mut before = noted.clone();
    (before[7], before[26]) = (1, 0);
    let sum = base::crc32c(&before[..28]);
    before[28..].copy_from_slice(&sum.to_le_bytes());
    assert_ne!(before, noted, "nothing was noted");
    base::write_new_file(&disk, &path, &before).unwrap();
    let store = open(&disk, DIR).unwrap();
    assert_eq!(store.stats().damage, []);
    assert_eq!(base::read_whole(&disk, &path, 64).unwrap(), noted);
    // A backup of then has no note either, until it is brought up to date.
    let backup = Path::new(BACKUP).join("store");
    base::write_new_file(&disk, &backup, &before).unwrap();
    store.backup(BACKUP).unwrap();
    assert_eq!(base::read_whole(&disk, &backup, 64).unwrap(), noted);
}

/// Both registers damaged, both manifests missing: what a restore refuses a look did not tell.
#[test]
fn damage_to_names_and_manifests_is_told_by_whoever_looks() {
    let (disk, _) = stored();
    for dir in [DIR, BACKUP] {
        for end in [".names", ".names.copy"] {
            damage(&disk, &find(&disk, dir, end));
        }
        let wanted: Vec<_> = [".names", ".names.copy", ".names"].iter().map(|end| find(&disk, dir, end)).collect();
        let told = inspected(&disk, dir);
        assert!(told.iter().all(|(kind, _)| *kind == DamageKind::Record), "{told:?}");
        assert_eq!(told.into_iter().map(|(_, path)| path).collect::<Vec<_>>(), wanted);
    }
    refused(&disk, &find(&disk, BACKUP, ".names"));
    let (disk, _) = stored();
    for dir in [DIR, BACKUP] {
        ["manifest", "manifest.copy"].iter().for_each(|end| disk.remove(&find(&disk, dir, end)).unwrap());
        assert_eq!(inspected(&disk, dir), [(DamageKind::Record, Path::new(dir).join("series/manifest"))]);
    }
    refused(&disk, &Path::new(BACKUP).join("series/manifest"));
}

/// The store opened with an empty journal, gave out positions a second time, and whoever read a space waited for the snapshot's position.
#[test]
fn a_journal_that_ends_before_what_lies_beside_it_is_refused_and_nothing_is_written() {
    for (keep, without) in [("space", "series"), ("series", "space")] {
        let (disk, _) = stored();
        remove(&disk, &format!("{DIR}/journal"));
        remove(&disk, &format!("{DIR}/{without}"));
        let before = disk.inventory();
        let error = open(&disk, DIR).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let text = error.to_string();
        assert!(text.contains("the journal in /store/journal ends before") && text.contains(keep), "{text}");
        assert_eq!(disk.inventory(), before);
    }
    // The last segments, of which snapshots know.
    let (disk, digest) = stored();
    let segments = disk.list(&Path::new(DIR).join("journal")).unwrap();
    let segments: Vec<PathBuf> = segments.iter().map(|name| Path::new(DIR).join("journal").join(name)).collect();
    let segments: Vec<&PathBuf> = segments.iter().filter(|path| path.extension().is_some()).collect();
    assert!(segments.len() > 3);
    let fork = disk.fork(7);
    segments.iter().skip(2).for_each(|path| fork.remove(path).unwrap());
    assert_eq!(open(&fork, DIR).err().unwrap().kind(), ErrorKind::Corrupt);
    assert_eq!(open(&disk, DIR).unwrap().digest().unwrap(), digest);
}

/// A snapshot that has nothing yet goes up to the segment that nothing was written to, and no backup has that.
#[test]
fn a_backup_of_an_idle_store_opens() {
    let disk = Disk::new(1);
    open(&disk, DIR).unwrap().close().unwrap();
    let store = open(&disk, DIR).unwrap();
    store.space("shop").declare(Definition::new("shop", "order")).unwrap();
    store.close().unwrap();
    let store = open(&disk, DIR).unwrap();
    store.backup(BACKUP).unwrap();
    restore(&disk, RestoreDamage::Refuse).unwrap();
    assert_eq!(open(&disk, NEW).unwrap().digest().unwrap(), store.digest().unwrap());
}

/// It was torn or never synced, as the end of a journal may be after a power cut; but a ledger had been written out beyond it.
#[test]
fn synced_bytes_that_are_gone_from_the_last_segments_are_damage_and_stay_it() {
    type Damaging = fn(&Path);
    let emptied: Damaging = |path| std::fs::write(path, b"").unwrap();
    let zeroed: Damaging = |path| std::fs::write(path, vec![0; std::fs::read(path).unwrap().len()]).unwrap();
    let halved: Damaging = |path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2 + 5]).unwrap();
    };
    let begun: Damaging = |path| std::fs::write(path, &std::fs::read(path).unwrap()[..4096]).unwrap();
    let tail_zeroed: Damaging = |path| {
        let mut bytes = std::fs::read(path).unwrap();
        let from = bytes.len() * 2 / 3;
        bytes[from..].fill(0);
        std::fs::write(path, bytes).unwrap();
    };
    for (behind, damaging) in
        [emptied, zeroed, halved, begun, tail_zeroed].into_iter().flat_map(|how| [(0, how), (1, how)])
    {
        let place = tempfile::tempdir().unwrap();
        let open = || {
            let limits = Limits::tiny();
            let durability = holdfast::Durability::Written;
            Store::open(place.path(), Options { partitions: 2, limits, durability, ..Options::default() })
        };
        let store = open().unwrap();
        let put = |store: &Store, value: u32| {
            store.kv().put(b"b", &value.to_le_bytes(), &[7; 500], &holdfast::PutOptions::default()).unwrap();
        };
        (0..2_000).for_each(|value| put(&store, value));
        store.close().unwrap();
        let mut segments: Vec<_> = std::fs::read_dir(place.path().join("journal"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
            .collect();
        segments.sort();
        damaging(&segments[segments.len() - 1 - behind]);
        let is_told = |damage: &[holdfast::Damage]| {
            damage.iter().any(|one| matches!(one.kind, DamageKind::Record | DamageKind::Missing))
        };
        assert!(is_told(&holdfast::Inspection::of(place.path()).unwrap().damage()), "{behind}");
        for again in 0..3 {
            let store = open().unwrap();
            assert!(is_told(&store.stats().damage), "{behind} {again}");
            put(&store, 3_000 + again);
            let lost = (0..2_000u32).filter(|value| store.kv().get(b"b", &value.to_le_bytes()).is_err()).count();
            assert!(lost > 0, "{behind} {again}");
            store.close().unwrap();
            drop(store);
        }
        std::fs::remove_dir_all(place.path().join("ledger")).unwrap();
        let store = open().unwrap();
        assert!(is_told(&store.stats().damage));
        assert!((3_000..3_003u32).all(|value| store.kv().get(b"b", &value.to_le_bytes()).unwrap().is_some()));
    }
}

/// A store on a real disk whose segments are a few objects long, compacted all the time or when it is asked to.
struct Compacted {
    place: tempfile::TempDir,
    told: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Compacted {
    fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap(), told: Arc::default() }
    }

    fn open(&self, schedule: holdfast::Schedule) -> Store {
        let told = Arc::clone(&self.told);
        let trouble: holdfast::Tell = Arc::new(move |text: &str| told.lock().unwrap().push(text.to_owned()));
        let (limits, durability) = (Limits::tiny(), holdfast::Durability::Written);
        let compaction = CompactionOptions { keep_bytes: 0, schedule, ..CompactionOptions::default() };
        let options =
            Options { partitions: 2, limits, durability, compaction, trouble: Some(trouble), ..Options::default() };
        Store::open(self.place.path(), options).unwrap()
    }

    fn segments(&self) -> Vec<PathBuf> {
        let names = std::fs::read_dir(self.place.path().join("journal")).unwrap().map(|entry| entry.unwrap().path());
        let mut segments: Vec<_> = names.filter(|path| path.extension().is_some_and(|end| end == "seg")).collect();
        segments.sort();
        segments
    }

    /// Where a segment is kept while it is missing.
    fn kept(&self, segment: &Path) -> PathBuf {
        self.place.path().join(segment.file_name().unwrap())
    }

    fn take(&self, segments: &[PathBuf]) {
        segments.iter().for_each(|path| std::fs::rename(path, self.kept(path)).unwrap());
    }

    fn put_back(&self, segments: &[PathBuf]) {
        segments.iter().for_each(|path| std::fs::rename(self.kept(path), path).unwrap());
    }

    fn is_missed_by_inspect(&self) -> bool {
        is_missed(&holdfast::Inspection::of(self.place.path()).unwrap().damage())
    }
}

fn is_missed(damage: &[Damage]) -> bool {
    damage.iter().any(|one| one.kind == DamageKind::Missing)
}

fn put(store: &Store, keys: std::ops::Range<u32>, fill: u8) {
    for key in keys {
        store.kv().put(b"b", &key.to_le_bytes(), &[fill; 500], &holdfast::PutOptions::default()).unwrap();
    }
}

/// How many of the objects are what they should be, and how many are told to be corrupt; none is anything else.
fn read(store: &Store, keys: std::ops::Range<u32>, fill: u8) -> (usize, usize) {
    let (mut right, mut corrupt) = (0, 0);
    for key in keys {
        match store.kv().get(b"b", &key.to_le_bytes()) {
            Ok(found) => {
                assert_eq!(*found.expect("an object that was lost is not absent").value, [fill; 500]);
                right += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                corrupt += 1;
            }
        }
    }
    (right, corrupt)
}

/// Closed, with 2,000 objects, keys from 1,000; what lay before was let go of.
fn compacted() -> Compacted {
    let compacted = Compacted::new();
    let store = compacted.open(Continuous);
    put(&store, 0..1_000, 7);
    let first = compacted.segments().remove(0);
    for key in 0..1_000u32 {
        store.kv().delete(b"b", &key.to_le_bytes(), holdfast::Condition::None).unwrap();
    }
    put(&store, 1_000..3_000, 7);
    store.compact().unwrap();
    assert!(!first.exists(), "the oldest was let go of");
    store.close().unwrap();
    drop(store);
    assert_eq!(holdfast::Inspection::of(compacted.place.path()).unwrap().damage(), []);
    let store = compacted.open(OnDemand);
    assert_eq!(store.stats().damage, []);
    store.close().unwrap();
    compacted
}

/// Nothing told of them: compaction lets go of the oldest too. With all but the last ones gone the ledgers passed for old copies, and
/// were made anew without what they knew.
#[test]
fn the_oldest_segments_are_missed_also_where_older_ones_were_let_go_of() {
    let compacted = compacted();
    let all = compacted.segments();
    for lost in [1, 3, all.len() - 1] {
        let taken = &all[..lost];
        compacted.take(taken);
        compacted.told.lock().unwrap().clear();
        assert!(compacted.is_missed_by_inspect(), "{lost}");
        for _ in 0..3 {
            let store = compacted.open(OnDemand);
            assert!(is_missed(&store.stats().damage), "{lost}");
            assert!(read(&store, 1_000..3_000, 7).1 > 0, "{lost}");
            store.close().unwrap();
        }
        assert_eq!(*compacted.told.lock().unwrap(), Vec::<String>::new(), "no ledger was blamed");
        compacted.put_back(taken);
    }
    let store = compacted.open(OnDemand);
    assert_eq!((store.stats().damage, read(&store, 1_000..3_000, 7)), (vec![], (2_000, 0)));
}

/// What was needed of them was forgotten when they were missing, so that compaction took them for dead once they were back, and removed them.
#[test]
fn segments_that_are_put_back_are_whole_whatever_was_compacted_meanwhile() {
    for from in [0, 5] {
        let compacted = compacted();
        let all = compacted.segments();
        let taken = &all[from..from + 3];
        compacted.take(taken);
        for schedule in [OnDemand, Continuous] {
            let store = compacted.open(schedule);
            assert!(is_missed(&store.stats().damage), "{from}");
            put(&store, 4_000..4_200, 8);
            put(&store, 4_000..4_200, 9);
            store.compact().unwrap();
            assert!(read(&store, 1_000..3_000, 7).1 > 0);
            store.close().unwrap();
        }
        assert!(compacted.is_missed_by_inspect(), "{from}");
        compacted.put_back(taken);
        for schedule in [OnDemand, Continuous, OnDemand] {
            let store = compacted.open(schedule);
            assert_eq!(store.stats().damage, [], "{from}");
            store.compact().unwrap();
            assert_eq!(read(&store, 1_000..3_000, 7), (2_000, 0), "{from}");
            assert_eq!(read(&store, 4_000..4_200, 9), (200, 0), "{from}");
            store.close().unwrap();
        }
    }
}

/// Compaction leaves stubs behind what is missing, and letting go of these noted that the journal begins behind them.
#[test]
fn what_is_missing_is_told_until_nothing_of_it_is_needed() {
    let compacted = compacted();
    let all = compacted.segments();
    compacted.take(&all[..2]);
    // All that shares segments with them dies: the segments behind become stubs.
    for round in 0..3 {
        let store = compacted.open(Continuous);
        assert!(is_missed(&store.stats().damage), "{round}");
        let corrupt: Vec<u32> =
            (1_000..3_000).filter(|key: &u32| store.kv().get(b"b", &key.to_le_bytes()).is_err()).collect();
        assert!(!corrupt.is_empty(), "{round}");
        for key in (1_000..2_000u32).filter(|key| !corrupt.contains(key)) {
            store.kv().delete(b"b", &key.to_le_bytes(), holdfast::Condition::None).unwrap();
        }
        store.compact().unwrap();
        store.close().unwrap();
    }
    let store = compacted.open(Continuous);
    put(&store, 1_000..3_000, 8);
    store.compact().unwrap();
    put(&store, 5_000..5_200, 8);
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    let store = compacted.open(OnDemand);
    assert_eq!((store.stats().damage, read(&store, 1_000..3_000, 8)), (vec![], (2_000, 0)));
    assert_eq!(*compacted.told.lock().unwrap(), Vec::<String>::new(), "no ledger was made anew for what was let go of");
}

/// A ledger that ended before went on behind them, and never heard of what was in them when they were back.
#[test]
fn a_ledger_that_was_led_over_missing_segments_is_made_anew_when_they_are_back() {
    let compacted = Compacted::new();
    let ledger = compacted.place.path().join("ledger");
    let old = compacted.place.path().join("old");
    let store = compacted.open(OnDemand);
    put(&store, 0..300, 1);
    store.close().unwrap();
    drop(store);
    let copy = |from: &Path, to: &Path| {
        assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&ledger, &old);
    let before = compacted.segments().len();
    let store = compacted.open(OnDemand);
    put(&store, 0..300, 2);
    put(&store, 300..600, 2);
    store.close().unwrap();
    drop(store);
    // As a kill leaves it: the ledger has not been written out.
    std::fs::remove_dir_all(&ledger).unwrap();
    std::fs::rename(&old, &ledger).unwrap();
    let all = compacted.segments();
    let taken = &all[before + 2..before + 6];
    compacted.take(taken);
    for _ in 0..2 {
        let store = compacted.open(OnDemand);
        assert!(is_missed(&store.stats().damage));
        store.close().unwrap();
    }
    compacted.put_back(taken);
    assert_eq!(*compacted.told.lock().unwrap(), Vec::<String>::new());
    for again in 0..2 {
        let store = compacted.open(OnDemand);
        assert_eq!(store.stats().damage, []);
        assert_eq!(read(&store, 0..600, 2), (600, 0), "{again}");
        store.close().unwrap();
        assert_eq!(compacted.told.lock().unwrap().len(), 1, "all are made anew, once");
    }
}

/// Nothing that a ledger has not heard of has counts: where the journal begins was noted behind it, and put back it was removed.
#[test]
fn what_no_ledger_has_heard_of_is_not_let_go_of_while_it_is_missing() {
    let compacted = Compacted::new();
    let store = compacted.open(OnDemand);
    put(&store, 0..300, 1);
    let before = compacted.segments().len();
    put(&store, 1_000..1_030, 2);
    put(&store, 0..300, 3);
    store.close().unwrap();
    drop(store);
    let taken: Vec<PathBuf> = compacted.segments().drain(..before + 5).collect();
    compacted.take(&taken);
    // As after a kill: nothing was written out.
    std::fs::remove_dir_all(compacted.place.path().join("ledger")).unwrap();
    for _ in 0..3 {
        let store = compacted.open(Continuous);
        assert!(is_missed(&store.stats().damage));
        put(&store, 0..300, 4);
        store.compact().unwrap();
        store.close().unwrap();
    }
    compacted.put_back(&taken);
    for again in 0..3 {
        let store = compacted.open(Continuous);
        assert_eq!(store.stats().damage, [], "{again}");
        store.compact().unwrap();
        assert_eq!((read(&store, 1_000..1_030, 2), read(&store, 0..300, 4)), ((30, 0), (300, 0)), "{again}");
        store.close().unwrap();
    }
}

/// What deletes an object was dropped when nothing older was there, and the object came back with the segment.
#[test]
fn what_was_deleted_in_missing_segments_stays_deleted_when_they_are_back() {
    let compacted = Compacted::new();
    let store = compacted.open(OnDemand);
    put(&store, 0..60, 1);
    put(&store, 2_000..2_030, 1);
    let taken = compacted.segments();
    put(&store, 100..400, 1);
    for key in 2_000..2_030u32 {
        store.kv().delete(b"b", &key.to_le_bytes(), holdfast::Condition::None).unwrap();
    }
    put(&store, 100..400, 2);
    store.close().unwrap();
    drop(store);
    compacted.take(&taken);
    for round in 3..6 {
        let store = compacted.open(Continuous);
        put(&store, 100..400, round);
        store.compact().unwrap();
        store.close().unwrap();
    }
    compacted.put_back(&taken);
    std::fs::remove_dir_all(compacted.place.path().join("ledger")).unwrap();
    let store = compacted.open(OnDemand);
    assert_eq!((store.stats().damage, read(&store, 0..60, 1), read(&store, 100..400, 5)), (vec![], (60, 0), (300, 0)));
    for key in 2_000..2_030u32 {
        assert_eq!(store.kv().head(b"b", &key.to_le_bytes()).unwrap(), None, "{key}");
    }
}

/// A kill leaves the next segment, which was prepared and not used. With it alone a store opened as if it had never held anything.
#[test]
fn a_store_whose_only_segment_was_never_used_is_refused() {
    let compacted = compacted();
    let all = compacted.segments();
    let last = all.last().unwrap();
    compacted.take(&all);
    let prepared = last.with_file_name("0000000000ffe000.seg");
    std::fs::write(&prepared, [0; 8192]).unwrap();
    for _ in 0..2 {
        let refused = Store::open(compacted.place.path(), Options::default()).map(|_| ()).unwrap_err();
        assert!(refused.kind() == ErrorKind::Corrupt && refused.to_string().contains("no segment"), "{refused}");
        assert_eq!(compacted.segments(), std::slice::from_ref(&prepared), "nothing is changed");
    }
}
