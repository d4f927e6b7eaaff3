//! What the journal promises, tried on a disk that breaks whatever it may.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::memory::{Disk, Fault};
use base::{Clock, Limits, ManualClock, Random};

use crate::*;

pub(crate) const DIR: &str = "/store/journal";
pub(crate) const PARTITIONS: u16 = 3;

pub(crate) fn options() -> Options {
    Options { reserve_bytes: 4 << 10, ..Options::new(7, PARTITIONS, &Limits::tiny()) }
}

pub(crate) fn open(disk: &Disk) -> Result<(Journal, Recovery)> {
    open_with(disk, PARTITIONS)
}

pub(crate) fn open_with(disk: &Disk, partitions: u16) -> Result<(Journal, Recovery)> {
    let clock = Arc::new(ManualClock::at(1_000));
    Journal::open(Arc::new(disk.clone()), clock, Path::new(DIR), Options { partitions, ..options() })
}

pub(crate) fn batch(number: u64, bytes: usize) -> Batch {
    let mut random = Random::new(number);
    let mut batch = Batch::new();
    for partition in 0..=number % u64::from(PARTITIONS) {
        batch.section(PartitionId::new(u16::try_from(partition).unwrap()), |to| {
            to.extend_from_slice(&number.to_le_bytes());
            let mut noise = vec![0; bytes];
            random.fill(&mut noise);
            to.extend_from_slice(&noise);
        });
    }
    batch
}

fn number_of(record: &Record<'_>) -> u64 {
    let first = record.sections.first().unwrap().commands.get(..8).unwrap();
    let number = u64::from_le_bytes(first.try_into().unwrap());
    let expected = batch(number, record.sections[0].commands.len() - 8);
    let whole: Vec<u8> = record.sections.iter().flat_map(|section| section.commands.iter().copied()).collect();
    assert_eq!(whole, expected.body, "a batch comes back as it went in");
    number
}

/// Every batch by position, and the damage met on the way.
pub(crate) fn contents(journal: &Journal) -> (BTreeMap<Position, u64>, Vec<Damage>) {
    let (mut batches, mut damage) = (BTreeMap::new(), Vec::new());
    let mut last = Position::ZERO;
    let visit = &mut |visit: Visit<'_>| {
        match visit {
            Visit::Record(record) => {
                assert!(record.position > last || last == Position::ZERO);
                last = record.position;
                batches.insert(record.position, number_of(&record));
            }
            Visit::Damaged(range) => damage.push(range.clone()),
        }
        Ok(())
    };
    journal.read_from(Position::ZERO, visit).unwrap();
    (batches, damage)
}

pub(crate) fn write(journal: &Journal, numbers: std::ops::Range<u64>, level: Level) -> BTreeMap<Position, u64> {
    let mut written = BTreeMap::new();
    for number in numbers {
        let appended = journal.append(&batch(number, 100)).unwrap();
        journal.wait(appended.position, level).unwrap();
        written.insert(appended.position, number);
    }
    written
}

#[test]
fn what_was_appended_is_read_back_in_order_through_segments_and_reopening() {
    let disk = Disk::new(1);
    let (journal, recovery) = open(&disk).unwrap();
    assert!(recovery.damage.is_empty());
    let mut expected = write(&journal, 0..100, Level::Written);
    assert_eq!(contents(&journal).0, expected);
    assert!(journal.stats().segments > 3, "the test should cross segments");
    journal.close().unwrap();
    assert!(matches!(journal.append(&batch(1, 1)), Err(Error::Closed)));
    drop(journal);
    for round in 1..4 {
        let (journal, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, []);
        assert_eq!(contents(&journal).0, expected);
        expected.extend(write(&journal, round * 1000..round * 1000 + 7, Level::Synced));
        assert_eq!(contents(&journal).0, expected);
        if round == 2 {
            journal.close().unwrap();
        }
        drop(journal);
        disk.kill_process();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_written_and_positions_are_never_reused() {
    let disk = Disk::new(2);
    let mut expected = BTreeMap::new();
    for round in 0..6 {
        let (journal, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, []);
        assert_eq!(contents(&journal).0, expected);
        let written = write(&journal, round * 100..round * 100 + 20, Level::Written);
        let floor = expected.keys().next_back().copied().unwrap_or_default();
        assert!(written.keys().all(|position| *position > floor));
        expected.extend(written);
        journal.step(base::Time::default()).unwrap();
        std::mem::forget(journal);
        disk.kill_process();
    }
}

#[test]
fn a_second_opener_is_refused() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(Error::InUse { .. })));
    drop(journal);
    open(&disk).unwrap();
}

/// A close that failed kept the directory for as long as anybody knew the journal: it could not be opened again.
#[test]
fn a_close_that_fails_lets_go_of_the_directory() {
    for n in 0.. {
        let disk = Disk::new(n);
        let (journal, _) = open(&disk).unwrap();
        let expected = write(&journal, 0..3, Level::Written);
        disk.plan(n, Fault::Error);
        let closed = journal.close();
        disk.clear_plan();
        assert_eq!(contents(&open(&disk).unwrap().0).0, expected);
        assert!(matches!(journal.append(&batch(9, 1)), Err(Error::Closed | Error::Poisoned { .. })));
        if closed.is_ok() {
            assert!(n > 3, "{n}");
            break;
        }
    }
}

#[test]
fn another_stores_segments_are_refused() {
    let disk = Disk::new(1);
    drop(open(&disk).unwrap());
    let other = Options { store: 8, ..options() };
    let clock = Arc::new(ManualClock::at(0));
    let refused = Journal::open(Arc::new(disk.clone()), clock.clone(), Path::new(DIR), other);
    assert!(matches!(refused, Err(Error::Foreign { .. })));
    let other = Options { partitions: 4, ..options() };
    assert!(matches!(Journal::open(Arc::new(disk), clock, Path::new(DIR), other), Err(Error::Foreign { .. })));
}

#[test]
fn a_batch_larger_than_a_segment_gets_a_segment_of_its_own() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    let large = batch(0, 20 << 10);
    let one = journal.append(&batch(1, 10)).unwrap().position;
    let two = journal.append(&large).unwrap();
    let three = journal.append(&batch(2, 10)).unwrap().position;
    let expected = BTreeMap::from([(one, 1), (two.position, 0), (three, 2)]);
    assert_eq!(contents(&journal).0, expected);
    let mut read = vec![0; large.len()];
    journal.read_at(two.body_at, &mut read).unwrap();
    assert_eq!(read, large.body);
    std::mem::forget(journal);
    disk.kill_process();
    assert_eq!(contents(&open(&disk).unwrap().0).0, expected);
}

#[test]
fn positions_of_a_large_batch_that_a_power_cut_took_are_never_given_again() {
    // The simulator found them given again: nothing that was durable said how many addresses the segment had.
    for seed in 0..20 {
        let disk = Disk::new(seed);
        let (journal, _) = open(&disk).unwrap();
        // The second one lies behind a large one, in its segment.
        let given = [20 << 10, 10].map(|bytes| journal.append(&batch(0, bytes)).unwrap().position);
        journal.flush().unwrap();
        disk.power_cut();
        drop(journal);
        disk.power_on();
        let (journal, _) = open(&disk).unwrap();
        let next = journal.append(&batch(9, 10)).unwrap().position;
        assert!(given.iter().all(|position| *position < next), "seed {seed}: {given:?}, then {next}");
    }
}

#[test]
fn positions_are_never_given_again_when_segments_are_made_smaller() {
    for seed in 0..20 {
        let disk = Disk::new(seed);
        let open_with = |segment_bytes| {
            let clock = Arc::new(ManualClock::at(1_000));
            let options = Options { segment_bytes, ..options() };
            Journal::open(Arc::new(disk.clone()), clock, Path::new(DIR), options).unwrap().0
        };
        let journal = open_with(64 << 10);
        write(&journal, 0..1, Level::Synced);
        let given: Vec<_> = (1..80).map(|number| journal.append(&batch(number, 1 << 10)).unwrap().position).collect();
        journal.flush().unwrap();
        disk.power_cut();
        drop(journal);
        disk.power_on();
        let next = open_with(8 << 10).append(&batch(99, 10)).unwrap().position;
        assert!(given.iter().all(|position| *position < next), "seed {seed}: {given:?}, then {next}");
    }
}

#[test]
fn one_flipped_byte_costs_at_most_the_record_it_hits_and_is_reported() {
    for closed in [true, false] {
        let disk = Disk::new(3);
        let (journal, _) = open(&disk).unwrap();
        let expected = write(&journal, 0..14, Level::Synced);
        if closed {
            journal.close().unwrap();
        }
        drop(journal);
        disk.kill_process();
        for (path, len) in disk.inventory() {
            for offset in 0..len {
                check_flip(&disk, &path, offset, &expected);
            }
        }
    }
}

fn check_flip(disk: &Disk, path: &Path, offset: u64, expected: &BTreeMap<Position, u64>) {
    let damaged = disk.fork(offset);
    let was = damaged.flip(path, offset, 0x10);
    let (journal, _) = open(&damaged).unwrap_or_else(|error| panic!("{path:?} {offset}: {error}"));
    let (found, _) = contents(&journal);
    let recovery = journal.recovery();
    let lost: Vec<_> = expected.iter().filter(|entry| found.get(entry.0) != Some(entry.1)).collect();
    assert!(found.iter().all(|entry| expected.get(entry.0) == Some(entry.1)), "{path:?} {offset}: invented a batch");
    assert!(lost.len() <= 1, "{path:?} {offset}: lost {lost:?}, {:?}", recovery.damage);
    // A zero may be space that nothing was written to yet.
    let is_written = was != 0 && path.extension().is_some_and(|end| end == "seg");
    if is_written || !lost.is_empty() {
        let covers = |d: &Damage| d.path == path && d.offset <= offset && offset < d.offset + d.bytes;
        assert!(recovery.damage.iter().any(covers), "{path:?} {offset}: unreported, {:?}", recovery.damage);
    }
    // Writing goes on, and the state after is stable: nothing more is lost at the next opening.
    let more = write(&journal, 500..503, Level::Synced);
    journal.close().unwrap();
    drop(journal);
    let (journal, _) = open(&damaged).unwrap();
    let mut all = found;
    all.extend(more);
    assert_eq!(contents(&journal).0, all, "{path:?} {offset}");
}

/// Runs a fixed story of writes with the fault at its n-th operation; returns whether the fault struck, what was
/// acknowledged at which level, and everything that was appended.
pub(crate) fn story(
    disk: &Disk,
    n: u64,
    fault: Fault,
    partitions: u16,
) -> Option<(Vec<Position>, BTreeMap<Position, u64>)> {
    story_of(disk, n, fault, (partitions, 150))
}

/// The story with so many partitions and sections of so many bytes.
pub(crate) fn story_of(
    disk: &Disk,
    n: u64,
    fault: Fault,
    (partitions, section_bytes): (u16, usize),
) -> Option<(Vec<Position>, BTreeMap<Position, u64>)> {
    let (mut synced, mut all) = (Vec::new(), BTreeMap::new());
    disk.plan(n, fault);
    let before = disk.operations();
    let Ok((journal, _)) = open_with(disk, partitions) else { return Some((synced, all)) };
    for number in 0..45 {
        let Ok(appended) = journal.append(&batch(number, section_bytes)) else { break };
        all.insert(appended.position, number);
        let level = if number % 4 == 3 { Level::Synced } else { Level::Written };
        if journal.wait(appended.position, level).is_err() {
            break;
        }
        if level == Level::Synced {
            synced.push(appended.position);
        }
        if number % 10 == 9 && journal.step(base::Time::default()).is_err() {
            break;
        }
    }
    let _ = journal.close();
    (disk.operations() - before > n).then_some((synced, all))
}

#[test]
fn a_power_cut_at_any_operation_keeps_what_was_synced_and_a_prefix_of_the_rest() {
    for seed in 0..4 {
        for n in 0.. {
            let disk = Disk::new(seed * 1000 + n);
            let Some((synced, all)) = story(&disk, n, Fault::PowerCut, PARTITIONS) else { break };
            disk.power_on();
            let (journal, recovery) = open(&disk).unwrap_or_else(|error| panic!("seed {seed} at {n}: {error}"));
            let (found, _) = contents(&journal);
            for position in &synced {
                assert!(found.contains_key(position), "seed {seed} at {n}: synced {position} lost, {recovery:?}");
            }
            let prefix: BTreeMap<_, _> = all.iter().take(found.len()).map(|(p, n)| (*p, *n)).collect();
            assert_eq!(found, prefix, "seed {seed} at {n}: not a prefix, {recovery:?}");
            // Again, with a cut in the recovered journal, and a recovery of the recovery.
            let more = write(&journal, 900..905, Level::Synced);
            let top = all.keys().next_back().copied().unwrap_or_default();
            assert!(more.keys().all(|position| *position > top), "seed {seed} at {n}: a position was reused");
            disk.power_cut();
            drop(journal);
            disk.power_on();
            let mut expected = found;
            expected.extend(more);
            assert_eq!(contents(&open(&disk).unwrap().0).0, expected, "seed {seed} at {n}");
        }
    }
}

#[test]
fn a_failed_write_or_sync_stops_writing_and_loses_nothing_acknowledged() {
    for n in 0.. {
        let disk = Disk::new(n);
        let Some((synced, _)) = story(&disk, n, Fault::Error, PARTITIONS) else { break };
        disk.kill_process();
        disk.power_cut();
        disk.power_on();
        let (found, _) = contents(&open(&disk).unwrap().0);
        assert!(synced.iter().all(|position| found.contains_key(position)), "at {n}");
    }
}

#[test]
fn after_a_failed_sync_every_waiter_and_writer_is_told() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    let first = write(&journal, 0..1, Level::Synced);
    let position = journal.append(&batch(1, 10)).unwrap().position;
    disk.plan(1, Fault::Error);
    assert!(matches!(journal.wait(position, Level::Synced), Err(Error::Poisoned { .. })));
    assert!(matches!(journal.wait(position, Level::Synced), Err(Error::Poisoned { .. })));
    assert!(matches!(journal.append(&batch(2, 10)), Err(Error::Poisoned { .. })));
    journal.wait(*first.keys().next().unwrap(), Level::Synced).unwrap();
    assert!(journal.stats().poisoned);
    assert_eq!(journal.watermarks().synced, position);
}

#[test]
fn a_full_disk_refuses_the_batch_and_nothing_else() {
    for capacity in (0..60 << 10).step_by(1 << 10) {
        let disk = Disk::new(1);
        disk.set_capacity(capacity);
        let mut expected = BTreeMap::new();
        if let Ok((journal, _)) = open(&disk) {
            for number in 0..200 {
                match journal.append(&batch(number, 200)) {
                    Ok(appended) => {
                        journal.wait(appended.position, Level::Synced).unwrap();
                        expected.insert(appended.position, number);
                    }
                    Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "{error}"),
                }
            }
            assert_eq!(contents(&journal).0, expected, "reads go on");
            disk.set_capacity(u64::MAX);
            expected.extend(write(&journal, 1000..1003, Level::Synced));
            assert_eq!(contents(&journal).0, expected, "with space, writing goes on");
        }
        disk.set_capacity(u64::MAX);
        disk.kill_process();
        assert_eq!(contents(&open(&disk).unwrap().0).0, expected, "capacity {capacity}");
    }
}

#[test]
fn a_window_sync_starts_when_it_is_due_and_not_before() {
    let disk = Disk::new(1);
    let clock = Arc::new(ManualClock::at(0));
    let (journal, _) = Journal::open(Arc::new(disk), clock.clone(), Path::new(DIR), options()).unwrap();
    let window = Window { min: Duration::from_millis(4), max: Duration::from_millis(10) };
    let put = |number| {
        let position = journal.append(&batch(number, 10)).unwrap().position;
        journal.wait(position, Level::Window(window)).unwrap();
        position
    };
    clock.advance(Duration::from_millis(100));
    let first = put(1);
    assert!(journal.watermarks().written > first && journal.watermarks().synced <= first);
    let settle = || {
        loop {
            match journal.step(clock.now()).unwrap() {
                Some(at) if at <= clock.now() => {}
                later => return later,
            }
        }
    };
    let due = settle().unwrap();
    assert_eq!(due.since(clock.now()), Duration::from_millis(10));
    clock.advance(Duration::from_millis(7));
    let second = put(2);
    assert_eq!(journal.stats().unsynced_age, Duration::from_millis(7));
    assert_eq!(settle(), Some(due), "the oldest batch sets the time");
    clock.advance(Duration::from_millis(3));
    assert_eq!(settle(), None);
    assert!(journal.watermarks().synced > second);
    assert_eq!((journal.stats().unsynced_batches, journal.stats().unsynced_bytes), (0, 0));
}

#[test]
fn trimming_removes_whole_segments_below_the_lowest_needed_position() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    let written = write(&journal, 0..100, Level::Synced);
    while journal.step(base::Time::default()).unwrap().is_some() {}
    let before = journal.stats().segments;
    let lowest = *written.keys().nth(60).unwrap();
    journal.trim(lowest).unwrap();
    assert!(journal.stats().segments < before);
    let kept = contents(&journal).0;
    assert!(written.range(lowest..).all(|(position, number)| kept.get(position) == Some(number)));
    assert!(kept.len() < written.len());
    let gone = *written.keys().next().unwrap();
    assert!(matches!(journal.read_at(gone.get(), &mut [0]), Err(Error::Missing { .. })));
    std::mem::forget(journal);
    disk.kill_process();
    let (journal, recovery) = open(&disk).unwrap();
    assert_eq!((contents(&journal).0, recovery.damage), (kept, vec![]));
}

#[test]
fn a_missing_segment_is_reported() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    write(&journal, 0..100, Level::Synced);
    journal.close().unwrap();
    drop(journal);
    let paths: Vec<PathBuf> = disk.inventory().into_iter().map(|(path, _)| path).collect();
    let victim = paths.get(2).unwrap();
    base::Files::remove(&disk, victim).unwrap();
    let (_, recovery) = open(&disk).unwrap();
    assert!(recovery.damage.iter().any(|d| d.kind == DamageKind::Missing && d.path == *victim), "{recovery:?}");
}

#[test]
fn closing_beside_writers_loses_nothing_acknowledged() {
    for round in 0..30 {
        let disk = Disk::new(round);
        let (journal, _) = open(&disk).unwrap();
        let acknowledged: Vec<Position> = std::thread::scope(|scope| {
            let write = |writer: u64| {
                let mut acknowledged = Vec::new();
                for number in 0..200 {
                    let Ok(appended) = journal.append(&batch(writer * 1000 + number, 50)) else { break };
                    if journal.wait(appended.position, Level::Synced).is_ok() {
                        acknowledged.push(appended.position);
                    }
                }
                acknowledged
            };
            let writers: Vec<_> = (0..3).map(|writer| scope.spawn(move || write(writer))).collect();
            while journal.stats().batches < 20 + round {
                std::thread::yield_now();
            }
            journal.close().unwrap();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        drop(journal);
        disk.kill_process();
        let (found, _) = contents(&open(&disk).unwrap().0);
        assert!(acknowledged.len() >= 20 && acknowledged.iter().all(|position| found.contains_key(position)));
    }
}

#[test]
fn a_failed_sync_wakes_everybody_who_waits_for_one() {
    let mut poisoned = 0;
    for round in 0..40 {
        let disk = Disk::new(round);
        let (journal, _) = open(&disk).unwrap();
        disk.plan(10 + round % 7, Fault::Error);
        std::thread::scope(|scope| {
            for writer in 0..8u64 {
                let journal = &journal;
                scope.spawn(move || {
                    for number in 0..50 {
                        let appended = journal.append(&batch(writer * 1000 + number, 50));
                        let waited = appended.and_then(|a| journal.wait(a.position, Level::Synced));
                        if waited.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        poisoned += u64::from(journal.stats().poisoned);
    }
    assert!(poisoned > 20, "the fault met a write or sync in {poisoned} rounds only");
}

#[test]
fn a_segment_of_a_newer_version_is_refused_and_a_rotten_version_byte_is_not() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    let expected = write(&journal, 0..3, Level::Synced);
    drop(journal);
    disk.kill_process();
    let path = disk.inventory().into_iter().next().unwrap().0;
    let rotten = disk.fork(1);
    rotten.flip(&path, 7, 3);
    assert_eq!(contents(&open(&rotten).unwrap().0).0, expected);
    let file = base::Files::open(&disk, &path).unwrap();
    let mut header = vec![0; 80 + 32 * usize::from(PARTITIONS)];
    base::read_exact_at(&*file, &mut header, 0).unwrap();
    header[7] = 2;
    header.extend_from_slice(&base::crc32c(&header.clone()).to_le_bytes());
    file.write_at(&header, 0).unwrap();
    assert!(matches!(open(&disk), Err(Error::Foreign { reason, .. }) if reason.contains("version 2")));
}

#[test]
fn many_writers_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { segment_bytes: 1 << 20, ..Limits::default() };
    let clock = Arc::new(base::OsClock::new());
    let options = Options::new(7, PARTITIONS, &limits);
    let (journal, _) = Journal::open(Arc::new(base::OsFiles), clock, dir.path(), options.clone()).unwrap();
    let positions: Vec<BTreeMap<Position, u64>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..16u64)
            .map(|writer| {
                let journal = &journal;
                scope.spawn(move || write(journal, writer * 1000..writer * 1000 + 100, Level::Synced))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let stats = journal.stats();
    assert_eq!(stats.batches, 1600);
    assert!(stats.group_batches.count < 1600, "no sync was shared: {stats:?}");
    let all: BTreeMap<Position, u64> = positions.into_iter().flatten().collect();
    assert_eq!(all.len(), 1600);
    assert_eq!(contents(&journal).0, all);
    drop(journal);
    let clock = Arc::new(base::OsClock::new());
    let (journal, recovery) = Journal::open(Arc::new(base::OsFiles), clock, dir.path(), options).unwrap();
    assert_eq!((contents(&journal).0, recovery.damage), (all, vec![]));
}

proptest::proptest! {
    #[test]
    fn a_segment_of_garbage_opens_and_gives_nothing(mut bytes in proptest::collection::vec(0u8..=255, 0..9000), real in 0usize..4096) {
        let disk = Disk::new(1);
        let (journal, _) = open(&disk).unwrap();
        write(&journal, 0..3, Level::Synced);
        drop(journal);
        disk.kill_process();
        let (path, len) = disk.inventory().into_iter().next().unwrap();
        let file = base::Files::open(&disk, &path).unwrap();
        // Keep the first bytes, so that the search for records starts inside of real ones.
        let keep = real.min(bytes.len());
        let mut start = vec![0; keep];
        base::read_exact_at(&*file, &mut start, 0).unwrap();
        bytes.splice(..keep, start);
        file.set_len(0).unwrap();
        file.write_at(&bytes, 0).unwrap();
        let _ = len;
        if let Ok((journal, _)) = open(&disk) {
            contents(&journal);
            write(&journal, 10..12, Level::Synced);
        }
    }
}
