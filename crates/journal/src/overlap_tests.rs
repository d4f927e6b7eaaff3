//! Syncs that overlap, on a disk whose every sync a test ends by hand.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::memory::Disk;
use base::{Around, AroundFiles, Handle, ManualClock, Time};

use crate::tests::{DIR, batch, options, write};
use crate::*;

/// A sync that has begun: by which handle, and where to say how it ends.
type Begun = (usize, Sender<io::Result<()>>);

/// Each sync takes two milliseconds, or until somebody says how it ends.
struct Slow {
    clock: Arc<ManualClock>,
    told: Mutex<Option<Sender<Begun>>>,
}

impl Around for Slow {
    fn sync(&self, handle: &Handle) -> io::Result<()> {
        let told = self.told.lock().unwrap().clone();
        if let Some(told) = told {
            let (end, ended) = channel();
            told.send((handle.number, end)).unwrap();
            ended.recv().unwrap()?;
        } else {
            self.clock.advance(Duration::from_millis(2));
        }
        handle.file.sync()
    }
}

/// A journal that knows its disk to be slow, and where its syncs are told from now on.
fn slow_journal() -> (Journal, Receiver<Begun>) {
    let clock = Arc::new(ManualClock::at(1_000));
    let slow = Arc::new(Slow { clock: clock.clone(), told: Mutex::default() });
    let files = AroundFiles::new(Arc::new(Disk::new(1)), Arc::clone(&slow));
    let options = Options { segment_bytes: 1 << 20, ..options() };
    let (journal, _) = Journal::open(Arc::new(files), clock, Path::new(DIR), options).unwrap();
    write(&journal, 0..10, Level::Synced);
    assert!(journal.overlaps_syncs());
    let (told, begun) = channel();
    *slow.told.lock().unwrap() = Some(told);
    (journal, begun)
}

#[test]
fn who_comes_while_a_slow_sync_runs_does_not_wait_for_its_end_to_begin_and_ends_behind_it() {
    let (journal, begun) = slow_journal();
    std::thread::scope(|scope| {
        let journal = &journal;
        let mut under_way = Vec::new();
        for number in 10..13 {
            let position = journal.append(&batch(number, 50)).unwrap().position;
            let waiting = scope.spawn(move || journal.wait(position, Level::Synced));
            under_way.push((position, waiting, begun.recv().unwrap()));
        }
        let mut handles: Vec<usize> = under_way.iter().map(|(_, _, (handle, _))| *handle).collect();
        handles.sort_unstable();
        handles.dedup();
        assert_eq!(handles.len(), 3, "each hears of a failure by itself");
        // What the running ones cover begins nothing.
        let covered = under_way.first().unwrap().0;
        let also = scope.spawn(move || journal.wait(covered, Level::Synced));
        for (_, _, (_, end)) in under_way.iter().skip(1) {
            end.send(Ok(())).unwrap();
        }
        for _ in 0..1_000 {
            assert!(journal.watermarks().synced <= covered, "what is synced is a prefix");
            std::thread::yield_now();
        }
        under_way.first().unwrap().2.1.send(Ok(())).unwrap();
        also.join().unwrap().unwrap();
        for (position, waiting, _) in under_way {
            waiting.join().unwrap().unwrap();
            assert!(journal.watermarks().synced > position);
        }
        assert!(begun.try_recv().is_err());
    });
}

#[test]
fn after_a_sync_that_failed_those_beside_it_promise_nothing() {
    for failing in 0..3_usize {
        let (journal, begun) = slow_journal();
        std::thread::scope(|scope| {
            let journal = &journal;
            let mut under_way = Vec::new();
            for number in 10..13 {
                let position = journal.append(&batch(number, 50)).unwrap().position;
                let waiting = scope.spawn(move || journal.wait(position, Level::Synced));
                under_way.push((position, waiting, begun.recv().unwrap()));
            }
            let (_, _, (_, end)) = under_way.get(failing).unwrap();
            end.send(Err(io::Error::other("the disk is gone"))).unwrap();
            while !journal.stats().poisoned {
                std::thread::yield_now();
            }
            for (at, (_, _, (_, end))) in under_way.iter().enumerate() {
                if at != failing {
                    end.send(Ok(())).unwrap();
                }
            }
            let first = under_way.first().unwrap().0;
            for (_, waiting, _) in under_way {
                assert!(waiting.join().unwrap().is_err());
            }
            assert!(journal.watermarks().synced <= first);
        });
    }
}

#[test]
fn no_more_syncs_run_than_there_are_lanes_and_all_who_wait_are_served() {
    let (journal, begun) = slow_journal();
    std::thread::scope(|scope| {
        let journal = &journal;
        let (mut waiting, mut running) = (Vec::new(), Vec::new());
        for number in 10..20 {
            let position = journal.append(&batch(number, 50)).unwrap().position;
            waiting.push(scope.spawn(move || journal.wait(position, Level::Synced)));
            if running.len() < crate::syncing::LANES {
                running.push(begun.recv().unwrap());
            }
        }
        for _ in 0..1_000 {
            assert!(begun.try_recv().is_err());
            std::thread::yield_now();
        }
        for (_, end) in running {
            end.send(Ok(())).unwrap();
        }
        while waiting.iter().any(|waiting| !waiting.is_finished()) {
            if let Ok((_, end)) = begun.recv_timeout(Duration::from_millis(1)) {
                end.send(Ok(())).unwrap();
            }
        }
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap().unwrap());
    });
}

/// What asked for a sync in a window, after one had begun that covered it, was due for ever: its journal's thread never slept.
#[test]
fn a_sync_that_was_asked_for_while_another_covered_it_is_not_due_for_ever() {
    let (journal, begun) = slow_journal();
    let [first, second] = [10, 11].map(|number| journal.append(&batch(number, 50)).unwrap().position);
    std::thread::scope(|scope| {
        let journal = &journal;
        let leading = scope.spawn(move || journal.wait(first, Level::Synced));
        let (_, end) = begun.recv().unwrap();
        let window = Window { min: Duration::from_millis(1), max: Duration::from_millis(10) };
        journal.wait(second, Level::Window(window)).unwrap();
        end.send(Ok(())).unwrap();
        leading.join().unwrap().unwrap();
    });
    assert!(journal.watermarks().synced > second);
    let later = Time::default().after(Duration::from_secs(3600));
    let mut next = Some(later);
    for _ in 0..100 {
        // Zeros for what is to come are written in several steps.
        next = journal.step(later).unwrap();
    }
    assert_eq!(next, None);
}
