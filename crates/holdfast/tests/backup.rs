//! Backups and restores of stores in a simulated world, and the scrubber's pace.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use base::memory::{Disk, Fault};
use base::{Files, Limits, ManualClock, read_whole};
use holdfast::{ErrorKind, Inspection, MemoryLedgers, Options, PutOptions, Restore, Store, World, restore_in};

const DIR: &str = "/store";
const BACKUP: &str = "/backup";

fn world(disk: &Disk) -> World {
    World {
        files: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::at(1_700_000_000_000)),
        ledgers: Arc::new(MemoryLedgers::new()),
        threads: false,
        entropy: 42,
    }
}

fn open(disk: &Disk, dir: &str) -> holdfast::Result<Store> {
    let options = Options { partitions: 2, limits: Limits::tiny(), ..Options::default() };
    Store::open_in(&world(disk), Path::new(dir), options)
}

fn fill(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let (key, value) = (number.to_le_bytes(), [7; 300]);
        store.kv().put(b"b", &key, &value, &PutOptions::default()).unwrap();
    }
}

fn count(store: &Store) -> u64 {
    store.kv().count(b"b").unwrap().value
}

fn restore(disk: &Disk, to: &str) -> holdfast::Result<holdfast::Restored> {
    restore_in(disk, (Path::new(BACKUP), Path::new(to)), Restore::default(), &mut |_| ())
}

#[test]
fn a_restored_store_is_the_store_it_was() {
    let disk = Disk::new(1);
    let store = open(&disk, DIR).unwrap();
    fill(&store, 0..100);
    let (digest, backup) = (store.digest().unwrap(), store.backup(BACKUP).unwrap());
    assert!(backup.linked > 2 && backup.copied == 0);
    fill(&store, 100..150);
    let done = restore(&disk, "/new").unwrap();
    assert_eq!((done.batches, done.position, done.damage), (100, backup.position, vec![]));
    let restored = open(&disk, "/new").unwrap();
    assert_eq!(restored.digest().unwrap(), digest);
    assert_eq!(restored.identity(), store.identity());
    assert_eq!(restore(&disk, "/new").unwrap_err().kind(), ErrorKind::Invalid, "it is not empty");
    // What opens a backup changes it: it opens once it is none any more.
    assert_eq!(open(&disk, BACKUP).err().unwrap().kind(), ErrorKind::Invalid);
    Files::remove(&disk, &Path::new(BACKUP).join("backup")).unwrap();
    let opened = open(&disk, BACKUP).unwrap();
    assert_eq!(opened.digest().unwrap(), digest);
    store.close().unwrap();
    assert_eq!(store.backup("/other").unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_power_cut_at_any_operation_leaves_the_store_whole_and_the_backup_complete_or_none() {
    let (mut complete, mut none) = (0, 0);
    for n in 0.. {
        let disk = Disk::new(n);
        let store = open(&disk, DIR).unwrap();
        fill(&store, 0..40);
        let before = disk.operations();
        disk.plan(n, Fault::PowerCut);
        let done = store.backup(BACKUP);
        let is_over = disk.operations() - before <= n;
        disk.clear_plan();
        disk.power_cut();
        drop(store);
        disk.power_on();
        match restore(&disk, "/new") {
            Ok(_) => {
                assert_eq!(count(&open(&disk, "/new").unwrap()), 40, "{n}");
                complete += 1;
            }
            Err(error) => {
                assert!(done.is_err() && error.kind() == ErrorKind::Invalid, "{n}: {error}");
                none += 1;
            }
        }
        let store = open(&disk, DIR).unwrap();
        assert_eq!(count(&store), 40, "{n}");
        store.backup(BACKUP).unwrap();
        restore(&disk, "/after").unwrap();
        if is_over {
            break;
        }
    }
    assert!(complete > 0 && none > 5, "{complete} {none}");
}

#[test]
fn what_is_no_backup_is_told_as_what_it_is() {
    let disk = Disk::new(1);
    let store = open(&disk, DIR).unwrap();
    fill(&store, 0..3);
    let told = |from: &str| {
        let error =
            restore_in(&disk, (Path::new(from), Path::new("/new")), Restore::default(), &mut |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    assert!(told("/nowhere").contains("/nowhere is not there, or empty"));
    assert!(told(DIR).contains("a store's own folder is none"));
    disk.create_dir(Path::new("/etc")).unwrap();
    base::write_new_file(&disk, Path::new("/etc/passwd"), b"x").unwrap();
    assert!(told("/etc").contains("holds no finished backup"));
    let refused = store.backup("/etc").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("is not empty and holds no backup"), "{refused}");
    assert!(disk.list(Path::new("/etc")).unwrap() == ["passwd"], "nothing was left there");
}

/// The story: a backup into a folder within the data directory was made, and was gone with the store.
#[test]
fn a_backup_does_not_lie_within_its_store_however_the_folder_is_named() {
    let place = tempfile::tempdir().unwrap();
    let (data, link) = (place.path().join("data"), place.path().join("link"));
    let store = Store::open(&data, Options::default()).unwrap();
    fill(&store, 0..3);
    std::fs::create_dir(data.join("own")).unwrap();
    std::os::unix::fs::symlink(data.join("own"), &link).unwrap();
    for to in [data.join("backup"), data.join("a/b"), data.join("own/../b"), link.clone(), link.join("b")] {
        let error = store.backup(&to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("is within the folder of the store itself"), "{error}");
        assert!(
            !to.exists() || std::fs::read_dir(&to).unwrap().next().is_none(),
            "nothing was left in {}",
            to.display()
        );
    }
    let own = store.backup(&data).unwrap_err();
    assert!(own.kind() == ErrorKind::Invalid && own.to_string().contains("is the folder of a store"), "{own}");
    store.backup(place.path().join("data-backup")).unwrap();
    store.backup(data.join("../backup/new")).unwrap();
}

#[test]
fn a_power_cut_at_any_operation_of_a_restore_leaves_nothing_that_opens_as_a_part() {
    for n in 0.. {
        let disk = Disk::new(n);
        let store = open(&disk, DIR).unwrap();
        fill(&store, 0..40);
        store.backup(BACKUP).unwrap();
        let before = disk.operations();
        disk.plan(n, Fault::PowerCut);
        let done = restore(&disk, "/new");
        let is_over = disk.operations() - before <= n;
        disk.clear_plan();
        disk.power_cut();
        drop(store);
        disk.power_on();
        match open(&disk, "/new") {
            Ok(store) => {
                assert!(count(&store) == 40 || (done.is_err() && count(&store) == 0), "{n}: {}", count(&store))
            }
            Err(error) => assert!(done.is_err() && error.kind() == ErrorKind::Invalid, "{n}: {error}"),
        }
        if is_over {
            break;
        }
    }
}

#[test]
fn an_inspection_writes_nothing_and_counts_what_the_store_counts() {
    let disk = Disk::new(1);
    let store = open(&disk, DIR).unwrap();
    fill(&store, 0..60);
    fill(&store, 0..20);
    store.kv().delete(b"b", &30u32.to_le_bytes(), holdfast::Condition::None).unwrap();
    let wanted = store.stats().live_bytes;
    let before = disk.operations();
    let mut inspection = Inspection::in_files(&disk, Path::new(DIR)).unwrap();
    assert_eq!((inspection.partitions(), inspection.store()), (2, store.identity()));
    assert!(inspection.segments().iter().all(|segment| segment.live_bytes.is_none()));
    let verified = inspection.verify(&mut |_| ()).unwrap();
    assert_eq!((verified.batches, inspection.damage()), (81, vec![]));
    let live: u64 = inspection.segments().iter().filter_map(|segment| segment.live_bytes).sum();
    assert_eq!(live, wanted);
    let mut lines = Vec::new();
    let (from, to) = (holdfast::Position::ZERO, inspection.end());
    inspection.dump(from, to, &mut |line| lines.push(line.to_owned())).unwrap();
    assert_eq!(lines.iter().filter(|line| line.starts_with("batch ")).count(), 81);
    assert!(lines.iter().any(|line| line.trim() == "delete \"b\" \"\\x1e\\x00\\x00\\x00\""), "{lines:?}");
    assert_eq!(disk.operations(), before, "something was written");
}

#[test]
fn a_manifest_is_what_it_was() {
    let disk = Disk::new(1);
    let store = open(&disk, DIR).unwrap();
    fill(&store, 0..30);
    store.backup(BACKUP).unwrap();
    let found = read_whole(&disk, &Path::new(BACKUP).join("backup"), 1 << 20).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_backup/1");
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        std::fs::write(&golden, &found).unwrap();
    }
    assert_eq!(found, std::fs::read(golden).unwrap());
}
