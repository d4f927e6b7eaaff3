//! Zeros ahead beside a backup, which seals the segment that they are for.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use base::memory::Disk;
use base::{Around, AroundFiles, Handle, ManualClock, Time};

use crate::tests::{DIR, open, options, write};
use crate::*;

const BACKUP: &str = "/backup";

/// From when somebody asks to be told, what reserves disk space waits until it is let go on.
#[derive(Default)]
struct Held(Mutex<Option<Sender<Sender<()>>>>);

impl Around for Held {
    fn allocate(&self, handle: &Handle, len: u64) -> io::Result<()> {
        let told = self.0.lock().unwrap().take();
        if let Some(told) = told {
            let (go_on, may_go_on) = channel();
            told.send(go_on).unwrap();
            may_go_on.recv().unwrap();
        }
        handle.file.allocate(len)
    }
}

impl Held {
    fn next(&self) -> Receiver<Sender<()>> {
        let (told, asked) = channel();
        *self.0.lock().unwrap() = Some(told);
        asked
    }
}

/// A journal whose next step wants zeros for which there is no space yet.
fn journal_that_wants_zeros(disk: &Disk) -> (Journal, Arc<Held>) {
    let held = Arc::new(Held::default());
    let files = AroundFiles::new(Arc::new(disk.clone()), Arc::clone(&held));
    let options = Options { segment_bytes: 1 << 20, zero_ahead_bytes: 64 << 10, ..options() };
    let clock = Arc::new(ManualClock::at(1_000));
    let (journal, _) = Journal::open(Arc::new(files), clock, Path::new(DIR), options).unwrap();
    write(&journal, 0..40, Level::Synced);
    assert!(journal.zero_wanted().is_some());
    (journal, held)
}

fn assert_is_whole(disk: &Disk) {
    assert_eq!(examine(disk, Path::new(BACKUP), &mut |_, _| ()).unwrap().damage, []);
}

/// The journal's thread reserved space in a file that a backup had sealed meanwhile, and linked: its footer was no more at
/// its end, in the store and in the backup. Or it wrote zeros over the footer, and the segment stayed open for ever.
#[test]
fn zeros_for_what_comes_neither_lengthen_a_segment_that_a_backup_seals_nor_touch_its_footer() {
    let disk = Disk::new(1);
    let (journal, held) = journal_that_wants_zeros(&disk);
    let before = journal.watermarks().appended;
    std::thread::scope(|scope| {
        let journal = &journal;
        let asked = held.next();
        let step = scope.spawn(|| journal.step(Time::default()));
        let go_on = asked.recv().unwrap();
        let linking = scope.spawn(|| journal.link_into(Path::new(BACKUP), 1));
        while journal.watermarks().appended == before {
            std::thread::yield_now();
        }
        for _ in 0..10_000 {
            // As far as it comes.
            std::thread::yield_now();
        }
        go_on.send(()).unwrap();
        step.join().unwrap().unwrap();
        linking.join().unwrap().unwrap();
    });
    assert_is_whole(&disk);
    journal.close().unwrap();
    drop(journal);
    assert_eq!(open(&disk).unwrap().1.damage, []);
}

#[test]
fn zeros_that_come_too_late_are_not_written() {
    let disk = Disk::new(1);
    let (journal, _) = journal_that_wants_zeros(&disk);
    let (segment, to) = journal.zero_wanted().unwrap();
    journal.link_into(Path::new(BACKUP), 1).unwrap();
    assert!(!segment.zero_ahead(to, 0).unwrap());
    assert_is_whole(&disk);
    journal.link_into(Path::new(BACKUP), 2).unwrap();
}
