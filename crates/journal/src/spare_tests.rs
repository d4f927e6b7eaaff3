//! A disk full of what nothing needs: the journal frees it by itself, and opens.

use std::collections::BTreeMap;
use std::path::Path;

use base::Files;
use base::memory::{Disk, Fault};

use crate::tests::{DIR, batch, contents, open, write};
use crate::*;

/// A disk that clients' batches filled to the last byte, and what they were.
fn filled(seed: u64) -> (Disk, Journal, BTreeMap<Position, u64>) {
    let disk = Disk::new(seed);
    disk.set_capacity(100 << 10);
    let (journal, _) = open(&disk).unwrap();
    let mut expected = BTreeMap::new();
    for number in 0.. {
        let appended = match journal.append(&batch(number, 100)) {
            Ok(appended) => appended,
            Err(error) => {
                assert!(matches!(error, Error::DiskFull { .. }), "{error}");
                break;
            }
        };
        journal.wait(appended.position, Level::Synced).unwrap();
        expected.insert(appended.position, number);
        journal.step(base::Time::default()).unwrap();
    }
    take_the_rest(&disk);
    (disk, journal, expected)
}

/// Others than the journal write until no byte is left.
fn take_the_rest(disk: &Disk) {
    let used: u64 = disk.inventory().iter().map(|(_, bytes)| bytes).sum();
    disk.set_capacity(used);
}

fn sealed(journal: &Journal) -> Vec<Position> {
    journal
        .segment_stats()
        .iter()
        .filter(|segment| segment.sealed && !segment.is_stub)
        .map(|segment| segment.base)
        .collect()
}

fn refused(journal: &Journal) -> bool {
    matches!(journal.append(&batch(0, 3000)), Err(Error::DiskFull { .. }))
}

/// Letting go of a segment needed space for its stub first, so a disk full of dead data stayed full.
#[test]
fn on_a_full_disk_a_segment_is_let_go_and_writes_go_on() {
    let (disk, journal, mut expected) = filled(1);
    assert!(refused(&journal));
    let bases = sealed(&journal);
    assert!(bases.len() >= 4, "{bases:?}");
    for at in [1, 2] {
        assert!(journal.let_go(bases[at]).unwrap());
        expected.retain(|position, _| *position < bases[at] || *position >= bases[at + 1]);
        assert_eq!(contents(&journal).0, expected);
    }
    expected.extend(write(&journal, 1000..1005, Level::Synced));
    assert_eq!(contents(&journal).0, expected);
    std::mem::forget(journal);
    disk.kill_process();
    let (journal, recovery) = open(&disk).unwrap();
    assert_eq!(recovery.damage, []);
    assert_eq!(contents(&journal).0, expected);
}

/// A segment that holds something that lives could not be emptied: what is moved needs space at the end of the log.
#[test]
fn on_a_full_disk_what_is_kept_finds_space_and_clients_do_not_take_it() {
    let (_disk, journal, mut expected) = filled(2);
    for number in 1000..1010 {
        assert!(refused(&journal));
        expected.insert(journal.append_freeing(&batch(number, 200)).unwrap().position, number);
    }
    assert!(
        matches!(journal.append(&batch(1, 1)), Err(Error::DiskFull { .. })),
        "before there is space for the spare again"
    );
    for base in sealed(&journal).into_iter().take(4) {
        assert!(journal.let_go(base).unwrap());
        let end = journal.segment_stats().iter().find(|segment| segment.base == base).unwrap().end;
        expected.retain(|position, _| *position < base || *position >= end);
    }
    expected.extend(write(&journal, 2000..2003, Level::Synced));
    assert_eq!(contents(&journal).0, expected);
    journal.close().unwrap();
}

/// The store did not open any more, so what was there could not be read, nor be freed.
#[test]
fn a_journal_opens_on_a_full_disk_and_lets_go_there() {
    for (seed, closes) in [(3, true), (4, false), (5, true), (6, false)] {
        let (disk, journal, mut expected) = filled(seed);
        let mut journal = journal;
        for _ in 0..3 {
            if closes {
                journal.close().unwrap();
                drop(journal);
            } else {
                std::mem::forget(journal);
                disk.kill_process();
            }
            let (again, recovery) = open(&disk).unwrap();
            assert_eq!(recovery.damage, []);
            assert_eq!(contents(&again).0, expected);
            assert!(refused(&again));
            journal = again;
        }
        let bases = sealed(&journal);
        for at in [1, 2] {
            assert!(journal.let_go(bases[at]).unwrap());
            expected.retain(|position, _| *position < bases[at] || *position >= bases[at + 1]);
        }
        expected.extend(write(&journal, 1000..1005, Level::Synced));
        assert_eq!(contents(&journal).0, expected);
    }
}

/// Each opening took some of the spare space, and others took it when it had been given up: a service that restarts until somebody looks
/// did not open any more.
#[test]
fn a_journal_opens_again_and_again_where_not_a_byte_is_left_and_writes_once_there_is_space() {
    for (seed, closes) in [(31, true), (32, false), (33, true), (34, false)] {
        let (disk, journal, mut expected) = filled(seed);
        let mut journal = journal;
        for _ in 0..20 {
            if closes {
                journal.close().unwrap();
                drop(journal);
            } else {
                std::mem::forget(journal);
                disk.kill_process();
            }
            let _ = disk.remove(&Path::new(DIR).join("spare"));
            take_the_rest(&disk);
            let (again, recovery) = open(&disk).unwrap();
            assert_eq!(recovery.damage, []);
            assert_eq!(contents(&again).0, expected);
            take_the_rest(&disk);
            assert!(refused(&again) && again.step(base::Time::default()).is_ok());
            assert!(matches!(again.append_freeing(&batch(1, 1)), Err(Error::DiskFull { .. })));
            assert!(matches!(again.seal_current(), Ok(_) | Err(Error::DiskFull { .. })));
            journal = again;
        }
        let files = disk.inventory().len();
        assert!(files < 20, "one without space is removed once there is the next: {files}");
        disk.set_capacity(u64::MAX);
        expected.extend(write(&journal, 1000..1005, Level::Synced));
        assert_eq!(contents(&journal).0, expected);
        std::mem::forget(journal);
        disk.kill_process();
        let (journal, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, []);
        assert_eq!(contents(&journal).0, expected);
    }
}

/// Batches of one that opened without space for its header, of which the first needs a segment of its own.
#[test]
fn a_batch_larger_than_a_segment_is_the_first_behind_an_opening_without_space() {
    let (disk, journal, mut expected) = filled(35);
    journal.close().unwrap();
    drop(journal);
    let _ = disk.remove(&Path::new(DIR).join("spare"));
    take_the_rest(&disk);
    let (journal, _) = open(&disk).unwrap();
    disk.set_capacity(u64::MAX);
    let large = batch(7, 10_000);
    let appended = journal.append(&large).unwrap();
    journal.wait(appended.position, Level::Synced).unwrap();
    expected.insert(appended.position, 7);
    expected.extend(write(&journal, 1000..1005, Level::Synced));
    assert_eq!(contents(&journal).0, expected);
    std::mem::forget(journal);
    disk.kill_process();
    let (journal, recovery) = open(&disk).unwrap();
    assert_eq!((recovery.damage, contents(&journal).0), (vec![], expected));
}

#[test]
fn a_power_cut_or_an_error_at_any_operation_of_letting_go_and_opening_on_a_full_disk_loses_nothing() {
    for fault in [Fault::PowerCut, Fault::Error, Fault::Full] {
        for n in 0.. {
            let (disk, journal, expected) = filled(1000 + n);
            let bases = sealed(&journal);
            let gone = bases[1]..bases[2];
            disk.plan(n, fault);
            let before = disk.operations();
            let outcome = journal.let_go(gone.start);
            let _ = write_some(&journal);
            std::mem::forget(journal);
            disk.kill_process();
            let again = open(&disk);
            let is_over = disk.operations() - before <= n;
            drop(again);
            disk.clear_plan();
            disk.power_on();
            let (journal, recovery) = open(&disk).unwrap();
            let is_torn = |damage: &Damage| matches!(damage.kind, DamageKind::Torn | DamageKind::Discarded);
            assert!(recovery.damage.iter().all(is_torn), "{fault:?} at {n}: {:?}", recovery.damage);
            let (mut found, _) = contents(&journal);
            let is_there = found.range(gone.clone()).next().is_some();
            assert!(!(is_there && outcome.is_ok()), "{fault:?} at {n}: {outcome:?}");
            let needed = expected.iter().filter(|(at, _)| is_there || !gone.contains(at));
            for (position, number) in needed {
                assert_eq!(found.remove(position), Some(*number), "{fault:?} at {n}");
            }
            assert!(journal.let_go(gone.start).unwrap() && journal.let_go(bases[2]).unwrap(), "{fault:?} at {n}");
            write(&journal, 2000..2003, Level::Synced);
            if is_over {
                break;
            }
        }
    }
}

fn write_some(journal: &Journal) -> Result<()> {
    let appended = journal.append(&batch(3000, 100))?;
    journal.wait(appended.position, Level::Synced)
}

/// A file of no bytes was left beside the segment.
#[test]
fn a_stub_that_finds_no_space_leaves_nothing_and_neither_does_a_crash_while_it_is_written() {
    let (disk, journal, _) = filled(7);
    let halves = || disk.inventory().iter().filter(|(path, _)| path.extension() == Some("new".as_ref())).count();
    let base = sealed(&journal)[1];
    let _ = disk.remove(&Path::new(DIR).join("spare"));
    disk.set_capacity(1);
    assert!(matches!(journal.let_go(base), Err(Error::DiskFull { .. })));
    assert_eq!(halves(), 0);
    disk.set_capacity(u64::MAX);
    disk.plan(2, Fault::PowerCut);
    assert!(journal.let_go(base).is_err());
    std::mem::forget(journal);
    disk.power_on();
    let (_journal, recovery) = open(&disk).unwrap();
    assert_eq!((recovery.damage, halves()), (vec![], 0));
}
