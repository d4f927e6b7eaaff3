//! Letting go of segments, and what that needs of their footers.

use std::collections::BTreeMap;
use std::path::Path;

use base::memory::{Disk, Fault};

use crate::segment::Segment;
use crate::tests::{DIR, batch, contents, open, write};
use crate::*;

#[test]
fn a_segment_in_the_middle_is_let_go_and_nothing_counts_as_missing_or_damaged() {
    let disk = Disk::new(5);
    let (journal, _) = open(&disk).unwrap();
    let mut expected = write(&journal, 0..60, Level::Synced);
    journal.step(base::Time::default()).unwrap();
    let bases: Vec<Position> = journal.segment_stats().iter().filter(|s| s.sealed).map(|s| s.base).collect();
    assert!(bases.len() >= 3, "{bases:?}");
    let (gone, end) = (bases[1], bases[2]);
    let inside = *expected.range(gone..end).next().unwrap().0;
    let before = journal.stats().segment_bytes;
    {
        let _hold = journal.hold();
        assert!(!journal.let_go(gone).unwrap(), "somebody holds the files");
    }
    assert!(journal.let_go(gone).unwrap() && journal.let_go(gone).unwrap());
    let open_segment = journal.segment_stats().last().unwrap().base;
    assert!(!journal.let_go(open_segment).unwrap(), "it is still written to");
    assert!(journal.stats().segment_bytes < before);
    expected.retain(|position, _| *position < gone || *position >= end);
    let missing = journal.read_at(inside.get() + 100, &mut [0; 8]);
    assert!(matches!(missing, Err(Error::Missing { .. })), "{missing:?}");
    assert_eq!(contents(&journal).0, expected);
    std::mem::forget(journal);
    for round in 1..3 {
        disk.kill_process();
        let (journal, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, []);
        assert_eq!(contents(&journal).0, expected);
        expected.extend(write(&journal, 1000 * round..1000 * round + 3, Level::Synced));
        std::mem::forget(journal);
    }
}

/// A sync of a footer failed, the process ended, the power was cut: the trailer had reached the disk and the footer's
/// body had not, in a segment of the middle. No record is hurt, and yet compaction refused that segment for ever.
#[test]
fn a_footer_torn_before_its_trailer_is_reported_and_made_again() {
    let disk = Disk::new(8);
    let (journal, _) = open(&disk).unwrap();
    let expected = write(&journal, 0..60, Level::Synced);
    journal.step(base::Time::default()).unwrap();
    let torn = journal.segment_stats().iter().filter(|segment| segment.sealed).nth(1).unwrap().base;
    let segment = Segment::open(&disk, Path::new(DIR), torn).unwrap();
    let footer = segment.read_trailer().unwrap().unwrap().data_end;
    std::mem::forget(journal);
    disk.flip(&segment.path, footer + 2, 1);
    disk.kill_process();
    let (journal, recovery) = open(&disk).unwrap();
    assert_eq!(recovery.damage.iter().map(|damage| damage.kind).collect::<Vec<_>>(), [DamageKind::Footer]);
    assert_eq!(contents(&journal).0, expected);
    std::mem::forget(journal);
    disk.kill_process();
    let (journal, recovery) = open(&disk).unwrap();
    assert_eq!(recovery.damage, []);
    assert!(journal.let_go(torn).unwrap());
}

#[test]
fn a_power_cut_at_any_operation_of_letting_go_leaves_the_segment_or_its_stub() {
    let mut outcomes = [0; 2];
    for n in 0.. {
        let disk = Disk::new(100 + n);
        let (journal, _) = open(&disk).unwrap();
        let expected = write(&journal, 0..60, Level::Synced);
        journal.step(base::Time::default()).unwrap();
        let bases: Vec<Position> = journal.segment_stats().iter().filter(|s| s.sealed).map(|s| s.base).collect();
        disk.plan(n, Fault::PowerCut);
        let before = disk.operations();
        let done = journal.let_go(bases[1]);
        if done.is_ok() {
            assert!(disk.operations() - before <= n, "the fault struck and was not seen");
            break;
        }
        std::mem::forget(journal);
        disk.power_on();
        let (journal, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, []);
        let (found, _) = contents(&journal);
        let rest = || expected.iter().filter(|(position, _)| **position < bases[1] || **position >= bases[2]);
        let is_stub = found.len() < expected.len();
        assert!(if is_stub { found.iter().eq(rest()) } else { found == expected });
        outcomes[usize::from(is_stub)] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes.iter().sum::<u64>() > 3, "{outcomes:?}");
}

#[test]
fn a_fault_at_any_operation_of_a_trim_leaves_nothing_that_is_missed_later() {
    for n in 0.. {
        let disk = Disk::new(300 + n);
        let (journal, _) = open(&disk).unwrap();
        let expected = write(&journal, 0..60, Level::Synced);
        journal.step(base::Time::default()).unwrap();
        let bases: Vec<Position> = journal.segment_stats().iter().filter(|s| s.sealed).map(|s| s.base).collect();
        disk.plan(n, Fault::Error);
        if journal.trim(bases[2]).is_ok() {
            assert!(n > 2, "the faults struck");
            break;
        }
        // The next trim goes on where this one failed, or lets everything be; then the power is cut.
        journal.trim(bases[2]).unwrap();
        std::mem::forget(journal);
        disk.power_cut();
        disk.power_on();
        let (journal, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, [], "fault at {n}");
        let left: BTreeMap<_, _> = expected.range(bases[2]..).map(|(position, number)| (*position, *number)).collect();
        // What was trimmed may come back, if the fault was in making it durable.
        let mut found = contents(&journal).0;
        found.retain(|position, _| *position >= bases[2]);
        assert_eq!(found, left, "fault at {n}");
    }
}

/// Each opening of a store that nobody wrote to left a file, and a handle, for ever; and with many of them compaction appended
/// the oldest segment again, whatever it held.
#[test]
fn openings_that_write_nothing_leave_nothing() {
    for is_closed in [true, false] {
        let disk = Disk::new(2);
        let mut expected = BTreeMap::new();
        for round in 0..24 {
            let (journal, recovery) = open(&disk).unwrap();
            assert_eq!(recovery.damage, []);
            if round == 1 || round == 22 {
                expected.extend(write(&journal, round..round + 1, Level::Synced));
            }
            assert_eq!(contents(&journal).0, expected);
            let is_segment = |(path, _): &(std::path::PathBuf, u64)| path.extension() == Some("seg".as_ref());
            let files = disk.inventory().iter().filter(|file| is_segment(file)).count();
            assert!(files <= 3 + expected.len(), "{files} files in round {round}");
            assert_eq!(journal.stats().segments, files as u64);
            if is_closed {
                journal.close().unwrap();
            }
            drop(journal);
            disk.kill_process();
        }
        assert_eq!(expected.len(), 2);
    }
}

#[test]
fn an_empty_segment_that_the_next_one_names_stays() {
    let disk = Disk::new(3);
    let (journal, _) = open(&disk).unwrap();
    let mut expected = write(&journal, 0..2, Level::Synced);
    journal.close().unwrap();
    drop(journal);
    let (journal, _) = open(&disk).unwrap();
    // Too large for the segment that is open: it stays empty.
    expected.insert(journal.append(&batch(3, 20 << 10)).unwrap().position, 3);
    let mut journal = journal;
    for _ in 0..3 {
        journal.close().unwrap();
        drop(journal);
        let (again, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, []);
        assert_eq!(contents(&again).0, expected);
        journal = again;
    }
}

#[test]
fn a_segment_that_was_let_go_stays_when_nobody_writes() {
    let disk = Disk::new(4);
    let (journal, _) = open(&disk).unwrap();
    write(&journal, 0..60, Level::Synced);
    journal.step(base::Time::default()).unwrap();
    let newest = journal.segment_stats().iter().rev().filter(|s| s.sealed).map(|s| s.base).next().unwrap();
    assert!(journal.let_go(newest).unwrap());
    let expected = contents(&journal).0;
    let mut journal = journal;
    for _ in 0..3 {
        journal.close().unwrap();
        drop(journal);
        // Also when the one header is damaged that names it.
        let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "seg");
        let last = disk.inventory().into_iter().map(|(path, _)| path).rfind(is_segment).unwrap();
        disk.flip(&last, 20, 1);
        let (again, recovery) = open(&disk).unwrap();
        assert!(recovery.damage.iter().all(|damage| damage.kind == DamageKind::Header));
        assert_eq!(contents(&again).0, expected);
        assert!(again.segment_stats().iter().any(|segment| segment.base == newest && segment.is_let_go));
        journal = again;
    }
}

#[test]
fn where_the_log_ended_is_known_when_nothing_of_it_is_left() {
    let disk = Disk::new(6);
    let (journal, _) = open(&disk).unwrap();
    write(&journal, 0..5, Level::Synced);
    let end = journal.watermarks().appended;
    journal.seal_current().unwrap();
    journal.trim(Position::MAX).unwrap();
    assert_eq!(journal.stats().segments, 1);
    let mut journal = journal;
    for _ in 0..3 {
        journal.close().unwrap();
        drop(journal);
        let (again, recovery) = open(&disk).unwrap();
        assert_eq!((recovery.end, recovery.damage), (end, vec![]));
        journal = again;
    }
}
