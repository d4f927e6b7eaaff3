//! Sealed files in the background: what was deleted leaves them, damage stops nothing but itself, and failures are told.
#![allow(clippy::unwrap_used, clippy::disallowed_types, reason = "tests stand outside the wall")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::memory::Disk;
use base::{Files, ManualClock};
use holdfast::series::{Match, Points, Range, Retention, Rows, Select, Source, ValueRef, Written};
use holdfast::{Durability, ErrorKind, Limits, MemoryLedgers, Options, Store, World};

const NOW_MS: u64 = 1_700_000_000_000;

struct Place {
    disk: Disk,
    ledgers: MemoryLedgers,
    clock: Arc<ManualClock>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Place {
    fn new() -> Self {
        let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
        Self { disk, ledgers, clock: Arc::new(ManualClock::at(NOW_MS)), told: Arc::default() }
    }

    fn open(&self) -> Store {
        self.open_with(|_| ())
    }

    fn open_with(&self, change: impl FnOnce(&mut Options)) -> Store {
        let world = World {
            files: Arc::new(self.disk.process()),
            clock: Arc::clone(&self.clock) as _,
            ledgers: Arc::new(self.ledgers.clone()),
            threads: false,
            entropy: 42,
        };
        let told = Arc::clone(&self.told);
        let mut options = Options {
            durability: Durability::Written,
            limits: Limits::tiny(),
            partitions: 2,
            trouble: Some(Arc::new(move |word: &str| told.lock().unwrap().push(word.to_owned()))),
            ..Options::default()
        };
        change(&mut options);
        Store::open_in(&world, Path::new("/store"), options).unwrap()
    }

    /// Lets a minute pass, after which it is looked for what can go.
    fn minute(&self, store: &Store) {
        self.clock.advance(Duration::from_secs(61));
        store.step().unwrap();
    }

    fn sealed_files(&self) -> Vec<PathBuf> {
        let all = self.disk.inventory().into_iter().map(|(path, _)| path);
        all.filter(|path| path.extension().is_some_and(|end| end == "points")).collect()
    }
}

fn write(store: &Store, host: &str, times: std::ops::Range<i64>) {
    let written = write_each(store, host, times.map(|time| (time, ValueRef::Float(time as f64))));
    assert_eq!(written.refused, []);
}

fn write_each<'a>(store: &Store, host: &str, points: impl Iterator<Item = (i64, ValueRef<'a>)>) -> Written {
    let mut rows = Rows::new("d");
    let tags = vec![("host".to_owned(), host.to_owned())];
    let row = rows.row(host.as_bytes(), |_| Ok(("m".to_owned(), tags))).unwrap();
    let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
    points.for_each(|(time, value)| rows.push(slot, time, value));
    store.series().write(&mut rows).unwrap()
}

fn of(host: &str) -> Select {
    Select::metric("d", "m").and_tag("host", Match::is(host))
}

fn times(store: &Store, host: &str) -> Vec<i64> {
    let reader = store.series().reader();
    let mut points = Points::new();
    for series in reader.series(&of(host)).unwrap() {
        reader.points(series.id, Range::ALL, &mut points).unwrap();
    }
    points.times().to_vec()
}

/// Each deleted range cost a line of the manifest for ever, and its points their bytes.
#[test]
fn ranges_that_were_deleted_are_joined_and_leave_with_their_points() {
    let place = Place::new();
    let store = place.open();
    let erased = |store: &Store| store.stats().series.erased;
    write(&store, "a", 0..100);
    write(&store, "b", 0..100);
    store.series().seal().unwrap();
    for from in [10, 0, 20, 15, 40] {
        store.series().delete(&of("a"), Range { from, to: from + 9 }).unwrap();
    }
    assert_eq!(erased(&store), 2, "0 to 29, and 40 to 49");
    store.series().delete(&of("a"), Range { from: 30, to: 39 }).unwrap();
    assert_eq!(erased(&store), 1);
    // Written behind it: not meant by what was deleted before, whatever is joined to that.
    write(&store, "a", 5..6);
    store.series().seal().unwrap();
    store.series().delete(&of("a"), Range { from: 50, to: 54 }).unwrap();
    let wanted: Vec<i64> = [5].into_iter().chain(55..100).collect();
    assert_eq!((times(&store, "a"), erased(&store)), (wanted.clone(), 2));
    place.minute(&store);
    assert_eq!(erased(&store), 2, "a quarter of a file is not worth writing it again");
    store.series().delete(&of("b"), Range { from: 20, to: 99 }).unwrap();
    place.minute(&store);
    assert_eq!((times(&store, "a"), times(&store, "b")), (wanted.clone(), (0..20).collect()));
    let stats = store.stats().series;
    // What was deleted after the newest file was made may mean that one.
    assert!(stats.erased <= 2 && stats.points == 46 + 20, "{stats:?}");
    store.close().unwrap();
    drop(store);
    let store = place.open();
    assert_eq!((times(&store, "a"), times(&store, "b")), (wanted, (0..20).collect()));
    store.series().drop_series(&Select::metric("d", "m")).unwrap();
    place.minute(&store);
    place.minute(&store);
    assert_eq!((store.stats().series.points, place.sealed_files().len()), (0, 0));
    assert_eq!(erased(&store), 0);
}

/// Deleting what is not there was remembered for every series that was meant, for as long as there were files, and bounded by nothing.
#[test]
fn what_is_deleted_is_remembered_where_there_is_something_and_not_without_end() {
    let place = Place::new();
    let store = place.open_with(|options| options.limits.series_erased_max = 3);
    let series = store.series();
    let delete = |host: &str, from: i64, to: i64| series.delete(&of(host), Range { from, to });
    write(&store, "a", 0..10);
    series.seal().unwrap();
    write(&store, "a", 20..30);
    let before = store.stats().batches;
    for nth in 0..1000 {
        assert_eq!(delete("a", 100 + 2 * nth, 100 + 2 * nth).unwrap().1, 1);
        assert_eq!(delete("nobody", 0, 10).unwrap().1, 0);
    }
    assert_eq!((store.stats().series.erased, store.stats().batches), (0, before));
    // In memory, and then where nothing is left: it has to be as durable as that.
    let (position, _) = delete("a", 25, 40).unwrap();
    assert_eq!((delete("a", 26, 50).unwrap().0, store.stats().batches), (position, before + 1));
    for at in [1, 3, 5] {
        assert!(store.stats().series.erased <= 3);
        let _ = delete("a", at, at);
    }
    assert_eq!(delete("a", 7, 7).unwrap_err().kind(), ErrorKind::Limit);
    let wanted = [0, 2, 4, 5, 6, 7, 8, 9, 20, 21, 22, 23, 24];
    assert_eq!((times(&store, "a"), store.stats().series.erased), (wanted.to_vec(), 3));
    // When the files were written again, nothing of it needs to be remembered.
    for nth in 0..4 {
        write(&store, "b", nth..nth + 1);
        series.seal().unwrap();
    }
    assert_eq!(store.stats().series.erased, 0);
    delete("a", 4, 24).unwrap();
    assert_eq!(times(&store, "a"), [0, 2]);
}

/// One damaged block kept all files from being merged, for ever.
#[test]
fn files_are_merged_around_one_that_is_damaged() {
    let place = Place::new();
    for nth in 0..10 {
        // Closing seals, and merges nothing.
        let store = place.open();
        write(&store, "a", nth * 10..nth * 10 + 10);
        store.close().unwrap();
    }
    let mut files = place.sealed_files();
    files.sort();
    let damaged = files[4].clone();
    place.disk.flip(&damaged, 20, 1);
    let store = place.open();
    store.series().seal().unwrap();
    let files = place.sealed_files();
    assert!(files.contains(&damaged) && files.len() == 3, "those before, it, and those behind: {files:?}");
    let wanted: Vec<i64> = (0..40).chain(50..100).collect();
    assert_eq!(times(&store, "a"), wanted);
    let damage = store.stats().damage;
    assert!(damage.len() == 1 && damage[0].path == damaged, "{damage:?}");
    let reader = store.series().reader();
    let series = reader.series(&of("a")).unwrap()[0].id;
    reader.points(series, Range { from: 50, to: 99 }, &mut Points::new()).unwrap();
    assert!(reader.missing().is_none(), "nothing of it was asked for");
    for to in [45, 99] {
        reader.points(series, Range { from: 0, to }, &mut Points::new()).unwrap();
        let missing = reader.missing().unwrap();
        assert_eq!((missing.blocks(), missing.range()), (1, Range { from: 40, to: 49 }));
    }
    // Everything is deleted: the damaged file is wanted by nobody any more.
    store.series().delete(&Select::metric("d", "m"), Range { from: 0, to: 1000 }).unwrap();
    place.minute(&store);
    assert_eq!(place.sealed_files(), Vec::<PathBuf>::new());
    assert!(place.told.lock().unwrap().iter().all(|word| word.contains("damaged")), "{:?}", place.told);
}

/// Merging made a block of text that was more than is unpacked of one: its points were gone, as damage.
#[test]
fn large_texts_are_there_after_merging_and_one_that_is_too_large_is_refused() {
    let place = Place::new();
    let store = place.open_with(|options| options.limits = Limits::default());
    let max = Limits::default().series_text_bytes_max;
    let text = "x".repeat(max + 1);
    // More in all than the 256 MiB that are unpacked of a block.
    for first in 0..14 {
        let times = first * 20..first * 20 + 20;
        let written = write_each(&store, "a", times.map(|time| (time, ValueRef::Text(&text[..max]))));
        assert_eq!((written.points, written.refused.len()), (20, 0));
        store.series().seal().unwrap();
    }
    let two = [(300, ValueRef::Text(&text)), (301, ValueRef::Text("short"))];
    let written = write_each(&store, "a", two.into_iter());
    assert_eq!((written.points, written.refused[0].points), (1, 1));
    let wanted = "a text has at most 1048576 bytes, not 1048577: field \"f\" on measurement \"m\"";
    assert_eq!(written.refused[0].reason, wanted);
    store.series().seal().unwrap();
    assert!(store.stats().series.merges > 0 && store.stats().damage.is_empty(), "{:?}", store.stats());
    let reader = store.series().reader();
    let series = reader.series(&of("a")).unwrap()[0].id;
    for time in 0..280 {
        let mut points = Points::new();
        reader.points(series, Range { from: time, to: time }, &mut points).unwrap();
        assert!(points.len() == 1 && points.last().unwrap().1.as_ref() == ValueRef::Text(&text[..max]), "{time}");
    }
}

/// What was deleted from a file that could not be opened was forgotten, and came back with the file.
#[test]
fn what_was_deleted_stays_so_in_a_file_that_comes_back() {
    let place = Place::new();
    let store = place.open();
    write(&store, "a", 0..100);
    store.series().seal().unwrap();
    store.series().delete(&of("a"), Range { from: 10, to: 89 }).unwrap();
    write(&store, "b", 0..10);
    store.close().unwrap();
    drop(store);
    let file = place.sealed_files().into_iter().min().unwrap();
    let away = Path::new("/away");
    place.disk.rename(&file, away).unwrap();
    let store = place.open();
    assert_eq!((times(&store, "a"), store.stats().damage.len()), (vec![], 1));
    for nth in 10..13 {
        write(&store, "b", nth..nth + 1);
        store.series().seal().unwrap();
    }
    store.close().unwrap();
    drop(store);
    place.disk.rename(away, &file).unwrap();
    let store = place.open();
    let wanted: Vec<i64> = (0..10).chain(90..100).collect();
    assert_eq!((times(&store, "a"), times(&store, "b").len()), (wanted, 13));
}

/// Files behind one that could not be written again were never removed, though that needs no room.
#[test]
fn a_file_that_is_too_old_goes_also_when_one_before_it_cannot_be_written_again() {
    let place = Place::new();
    let store = place.open_with(|options| {
        let (database, metric) = ("*".to_owned(), "*".to_owned());
        options.series.retention = vec![Retention { database, metric, keep: Duration::from_secs(3600) }];
        options.limits.series_memory_bytes = 1 << 20;
    });
    let now = NOW_MS.cast_signed() * 1_000_000;
    let noise: Vec<f64> = (0..1000).map(|at| f64::from(at).sin()).collect();
    let noise = |from: i64| (from..).zip(noise.iter().map(|value| ValueRef::Float(*value)));
    write_each(&store, "a", noise(now - 1_000_000));
    write_each(&store, "b", noise(now + 3_000_000_000_000));
    store.series().seal().unwrap();
    let both = place.sealed_files();
    write_each(&store, "c", noise(now - 5_000_000).take(100));
    store.series().seal().unwrap();
    assert_eq!((both.len(), place.sealed_files().len()), (1, 2));
    place.clock.advance(Duration::from_secs(3600));
    let used: u64 = place.disk.inventory().into_iter().map(|(_, bytes)| bytes).sum();
    place.disk.set_capacity(used + 3000);
    place.minute(&store);
    assert_eq!(place.sealed_files(), both);
    let told = place.told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("make room on the disk"), "{told:?}");
    place.disk.set_capacity(1 << 30);
    place.minute(&store);
    assert_eq!((store.stats().series.points, times(&store, "b").len()), (1000, 1000));
}

/// A full disk was noticed when the journal had filled it too.
#[test]
fn a_sealing_that_fails_is_told_with_what_to_do_and_so_is_its_end() {
    let place = Place::new();
    let store = place.open();
    write(&store, "a", 0..10);
    place.disk.set_capacity(1 << 30);
    let used: u64 = place.disk.inventory().into_iter().map(|(_, bytes)| bytes).sum();
    let full = Limits::tiny().series_memory_bytes.cast_signed() / 16 + 10;
    write(&store, "a", 0..full);
    place.disk.set_capacity(used + 200);
    store.step().unwrap();
    place.disk.set_capacity(1 << 30);
    let told = place.told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("make room on the disk"), "{told:?}");
    assert!(store.stats().series.seal_failures > 0);
    store.step().unwrap();
    let told = place.told.lock().unwrap().clone();
    assert!(told.len() == 2 && told[1].contains("again"), "{told:?}");
    assert_eq!(times(&store, "a").len() as i64, full);
}
