//! When a segment's file is told that many small writes come between two syncs.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::memory::Disk;
use base::{Around, AroundFiles, Handle, ManualClock, Time};

use crate::tests::{DIR, batch, options};
use crate::*;

#[derive(Default)]
struct Told {
    told: AtomicUsize,
    syncs: AtomicUsize,
}

impl Around for Told {
    fn expect_small_writes(&self, handle: &Handle) -> bool {
        self.told.fetch_add(1, Ordering::Relaxed);
        handle.file.expect_small_writes()
    }

    fn sync(&self, handle: &Handle) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        handle.file.sync()
    }
}

fn journal() -> (Journal, Arc<Told>) {
    journal_of(1 << 20)
}

fn journal_of(segment_bytes: u64) -> (Journal, Arc<Told>) {
    let told = Arc::new(Told::default());
    let files = AroundFiles::new(Arc::new(Disk::new(1)), Arc::clone(&told));
    let options = Options { segment_bytes, zero_ahead_bytes: 64 << 10, ..options() };
    let clock = Arc::new(ManualClock::at(1_000));
    let (journal, _) = Journal::open(Arc::new(files), clock, Path::new(DIR), options).unwrap();
    (journal, told)
}

fn append(journal: &Journal, numbers: Range<u64>, level: impl Fn(u64) -> Level) {
    for number in numbers {
        let position = journal.append(&batch(number, 1000)).unwrap().position;
        journal.wait(position, level(number)).unwrap();
    }
}

/// How often files were told while two megabytes were appended, by how many segments there were.
fn told(level: impl Fn(u64) -> Level) -> (usize, u64) {
    let (journal, told) = journal();
    append(&journal, 0..1000, level);
    (told.told.load(Ordering::Relaxed), journal.stats().segments)
}

#[test]
fn each_segment_that_is_written_without_syncs_tells_its_file_once_and_one_that_is_synced_never() {
    let (written, segments) = told(|_| Level::Written);
    assert!(segments > 2);
    assert_eq!(written as u64, segments);
    assert_eq!(told(|_| Level::Synced).0, 0);
    assert_eq!(told(|number| if number % 16 == 0 { Level::Synced } else { Level::Written }).0, 0);
}

#[test]
fn zeros_for_pages_that_are_written_without_syncs_are_there_ahead_and_not_synced() {
    let (journal, told) = journal();
    append(&journal, 0..200, |_| Level::Written);
    let segment = Arc::clone(&crate::commit::lock(&journal.tail).segment);
    assert!(segment.is_unsynced());
    let syncs = told.syncs.load(Ordering::Relaxed);
    while journal.step(Time::from_nanos(1)).unwrap() == Some(Time::from_nanos(1)) {}
    assert!(journal.zero_wanted().is_none());
    assert!(!segment.needs_zeros(journal.watermarks().written.get() - segment.base.get() + (64 << 10)));
    assert_eq!(told.syncs.load(Ordering::Relaxed), syncs);
    // What overtakes them brings its own, and is what is read.
    append(&journal, 200..350, |_| Level::Written);
    assert!(!segment.needs_zeros(journal.watermarks().written.get() - segment.base.get()));
    let mut batches = 0;
    journal
        .read_from(Position::ZERO, &mut |_| {
            batches += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(batches, 350);
}

#[test]
fn large_writes_without_syncs_want_no_zeros_until_small_ones_come_again() {
    let (journal, _) = journal();
    let large = |numbers: Range<u64>| {
        for number in numbers {
            let position = journal.append(&batch(number, 5_000)).unwrap().position;
            journal.wait(position, Level::Written).unwrap();
        }
    };
    // Wanted of whoever fills ahead, or there because a writer brought them.
    let have_zeros = || {
        let segment = Arc::clone(&crate::commit::lock(&journal.tail).segment);
        assert!(segment.is_unsynced());
        let end = journal.watermarks().written.get() - segment.base.get();
        journal.zero_wanted().is_some() || !segment.needs_zeros(end + 1)
    };
    append(&journal, 0..20, |_| Level::Written);
    large(20..60);
    assert!(!have_zeros());
    append(&journal, 60..100, |_| Level::Written);
    assert!(have_zeros());
}

#[test]
fn the_background_comes_by_itself_while_small_writes_go_on_and_writers_do_not_wake_it() {
    let (journal, _) = journal_of(8 << 20);
    append(&journal, 0..300, |_| Level::Written);
    let wake = Arc::clone(&journal.options.wake);
    assert!(wake.wait(Some(Duration::ZERO)), "the first writers do");
    // A write each millisecond, and the background when it said that it would come.
    let mut due = Some(Time::from_nanos(0));
    let mut looks = 0;
    for millisecond in 0..600 {
        let now = Time::from_nanos(millisecond * 1_000_000);
        while due.is_some_and(|due| due <= now) {
            due = journal.step(now).unwrap();
            looks += 1;
        }
        append(&journal, 300 + millisecond..301 + millisecond, |_| Level::Written);
        let segment = Arc::clone(&crate::commit::lock(&journal.tail).segment);
        let written = journal.watermarks().written.get() - segment.base.get();
        assert!(!segment.needs_zeros(written + (16 << 10)), "{millisecond}");
        assert!(!wake.wait(Some(Duration::ZERO)), "{millisecond}");
    }
    assert!(looks < 200, "{looks}");
    // Nothing is written any more: it sleeps.
    let mut now = Time::from_nanos(600_000_000);
    for _ in 0..8 {
        match journal.step(now).unwrap() {
            Some(due) => now = due,
            None => return,
        }
    }
    panic!("it comes for nothing");
}
