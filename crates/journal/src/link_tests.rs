//! Backups, surveys and scrubbing, on a disk that breaks whatever it may.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::memory::{Disk, Fault};

use crate::header::header_bytes;
use crate::manifest::Manifest;
use crate::tests::{DIR, PARTITIONS, contents, open, options, write};
use crate::*;

const BACKUP: &str = "/backup";
const STORE: u128 = 7;

fn survey(disk: &Disk, dir: &Path) -> Survey {
    Survey::of(disk, dir, (STORE, PARTITIONS), Position::ZERO).unwrap()
}

/// The batches of a journal that nobody may write to.
fn surveyed(disk: &Disk, dir: &Path) -> BTreeMap<Position, usize> {
    let mut found = BTreeMap::new();
    let visit = &mut |visit: Visit<'_>| {
        if let Visit::Record(record) = visit {
            found.insert(record.position, record.sections.len());
        }
        Ok(())
    };
    survey(disk, dir).read(Position::ZERO, Position::MAX, visit).unwrap();
    found
}

fn segments_of(disk: &Disk, dir: &str) -> Vec<(PathBuf, u64)> {
    let mut all = disk.inventory();
    all.retain(|(path, _)| path.starts_with(dir) && path.extension().is_some_and(|end| end == "seg"));
    all
}

fn backup_dir() -> PathBuf {
    Path::new(BACKUP).join("journal")
}

/// A backup's batches, after everything in it was checked.
fn examined(disk: &Disk) -> BTreeMap<Position, usize> {
    let examined = examine(disk, Path::new(BACKUP), &mut |_, _| ()).unwrap();
    // A footer whose sealing a power cut interrupted costs nothing.
    assert!(examined.damage.iter().all(|damage| damage.kind == DamageKind::Footer), "{:?}", examined.damage);
    let found = surveyed(disk, &backup_dir());
    let below = found.range(..examined.manifest.position).count() as u64;
    assert_eq!(examined.verified.batches, below, "the manifest's segments hold what is below its position");
    found
}

#[test]
fn a_second_backup_links_only_what_is_new_and_drops_what_the_store_let_go() {
    for links in [true, false] {
        let disk = Disk::new(1);
        disk.set_links(links);
        let (journal, _) = open(&disk).unwrap();
        let mut expected = write(&journal, 0..60, Level::Written);
        let first = journal.link_into(Path::new(BACKUP), 5).unwrap();
        let count = |linked: &Linked| if links { linked.linked } else { linked.copied };
        assert_eq!((count(&first), first.kept), (first.manifest.segments.len() as u64, 0));
        assert!(first.manifest.segments.len() > 3 && expected.keys().all(|at| *at < first.manifest.position));
        assert_eq!(examined(&disk).into_keys().collect::<Vec<_>>(), expected.keys().copied().collect::<Vec<_>>());
        let again = journal.link_into(Path::new(BACKUP), 6).unwrap();
        assert_eq!((count(&again), again.kept), (0, first.manifest.segments.len() as u64), "nothing was written");
        let last = write(&journal, 100..103, Level::Written);
        let lowest = *last.keys().next().unwrap();
        expected.extend(last);
        let third = journal.link_into(Path::new(BACKUP), 7).unwrap();
        assert_eq!((count(&third), third.kept, third.removed), (1, again.kept, 0));
        journal.trim(lowest).unwrap();
        let fourth = journal.link_into(Path::new(BACKUP), 8).unwrap();
        assert!(fourth.removed > 2 && count(&fourth) == 0);
        assert_eq!(examined(&disk).len(), 3);
        assert_eq!(segments_of(&disk, BACKUP).len(), fourth.manifest.segments.len());
        // The backup is a journal that opens, goes on, and shares nothing with the other but names of files.
        let clock = std::sync::Arc::new(base::ManualClock::at(0));
        let (copy, recovery) =
            Journal::open(std::sync::Arc::new(disk.clone()), clock, &backup_dir(), options()).unwrap();
        assert_eq!(recovery.damage, []);
        write(&copy, 500..510, Level::Synced);
        assert_eq!(contents(&journal).0.len(), 3);
    }
}

#[test]
fn a_power_cut_at_any_operation_of_a_backup_harms_neither_the_store_nor_the_backup_before() {
    let (mut with, mut without) = (0, 0);
    for n in 0.. {
        let disk = Disk::new(n);
        let (journal, _) = open(&disk).unwrap();
        let mut expected = write(&journal, 0..25, Level::Synced);
        let is_second = n % 2 == 1;
        if is_second {
            journal.link_into(Path::new(BACKUP), 1).unwrap();
            expected.extend(write(&journal, 50..65, Level::Synced));
            journal.trim(*expected.keys().nth(12).unwrap()).unwrap();
        }
        let kept = contents(&journal).0;
        let before = disk.operations();
        disk.plan(n / 2, Fault::PowerCut);
        let done = journal.link_into(Path::new(BACKUP), 2);
        let is_over = disk.operations() - before <= n / 2;
        drop(journal);
        disk.clear_plan();
        disk.power_cut();
        disk.power_on();
        let backup = read_manifest(&disk, Path::new(BACKUP)).unwrap();
        if let Some(manifest) = &backup {
            let examined = examine(&disk, Path::new(BACKUP), &mut |_, _| ()).unwrap();
            assert_eq!(examined.damage, [], "{n}");
            assert!(examined.verified.batches >= if manifest.taken_ms == 1 { 25 } else { kept.len() as u64 }, "{n}");
            with += 1;
        } else {
            assert!(done.is_err() && !is_second, "{n}: what was there stays, and what was finished is there");
            without += 1;
        }
        let (journal, recovery) = open(&disk).unwrap();
        let is_unfinished = |damage: &Damage| matches!(damage.kind, DamageKind::Torn | DamageKind::Footer);
        assert!(recovery.damage.iter().all(is_unfinished), "{n}: {:?}", recovery.damage);
        assert_eq!(contents(&journal).0, kept, "{n}");
        journal.link_into(Path::new(BACKUP), 3).unwrap();
        assert_eq!(examined(&disk).len(), kept.len(), "{n}: the next backup is whole again");
        if is_over && is_second {
            break;
        }
    }
    assert!(with > 10 && without > 10, "{with} {without}");
}

#[test]
fn a_replaced_segment_is_put_over_the_old_name_and_stays_what_it_was_elsewhere() {
    let disk = Disk::new(3);
    let (journal, _) = open(&disk).unwrap();
    write(&journal, 0..60, Level::Synced);
    journal.link_into(Path::new(BACKUP), 1).unwrap();
    let other = Path::new("/other");
    journal.link_into(other, 1).unwrap();
    let (path, bytes) = segments_of(&disk, BACKUP).remove(1);
    // Stands for a backup of an earlier state of the segment: the same name, another file.
    let stale = base::Files::create(&disk, Path::new("/stale")).unwrap();
    stale.write_at(b"what it was", 0).unwrap();
    base::Files::rename(&disk, Path::new("/stale"), &path).unwrap();
    let wrong = examine(&disk, Path::new(BACKUP), &mut |_, _| ()).unwrap();
    assert!(wrong.damage.iter().any(|damage| damage.path == path), "{:?}", wrong.damage);
    let again = journal.link_into(Path::new(BACKUP), 2).unwrap();
    assert_eq!((again.linked, again.linked_bytes, again.removed), (1, bytes, 0));
    examined(&disk);
    assert_eq!(examine(&disk, other, &mut |_, _| ()).unwrap().damage, []);
}

#[test]
fn held_files_are_not_let_go() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    let written = write(&journal, 0..60, Level::Synced);
    journal.step(base::Time::default()).unwrap();
    let lowest = *written.keys().next_back().unwrap();
    let before = journal.stats().segments;
    let (one, two) = (journal.hold(), journal.hold());
    for hold in [one, two] {
        journal.trim(lowest).unwrap();
        assert_eq!(journal.stats().segments, before);
        drop(hold);
    }
    journal.trim(lowest).unwrap();
    assert!(journal.stats().segments < before);
}

#[test]
fn sealing_the_current_segment_is_done_once_and_positions_go_on() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    let nothing = journal.seal_current().unwrap();
    assert_eq!(journal.stats().segments, 1, "an empty segment stays");
    let mut expected = write(&journal, 0..3, Level::Written);
    let sealed = journal.seal_current().unwrap();
    assert!(nothing < sealed && journal.seal_current().unwrap() == sealed);
    assert_eq!(journal.stats().segments, 2);
    let marks = journal.watermarks();
    assert!(marks.synced <= marks.written && marks.written <= marks.appended, "{marks:?}");
    expected.extend(write(&journal, 3..6, Level::Written));
    assert_eq!(contents(&journal).0, expected);
    journal.close().unwrap();
    assert!(matches!(journal.seal_current(), Err(Error::Closed)));
}

/// The segment that is begun for a backup may be full and sealed before the backup looks which ones are. It was taken then,
/// and the backup held later batches than it said.
#[test]
fn a_backup_beside_busy_writers_holds_just_what_is_below_its_position() {
    let disk = Disk::new(1);
    let (journal, _) = open(&disk).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let ordering = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for writer in 1..=2 {
            let (journal, is_over) = (&journal, &is_over);
            scope.spawn(move || {
                let mut number = writer * 1_000_000;
                while !is_over.load(ordering) {
                    write(journal, number..number + 10, Level::Written);
                    number += 10;
                }
            });
        }
        let mut newest = journal.watermarks().appended;
        let mut check = || {
            // Each has something to take, and writers that are at work.
            while journal.watermarks().appended <= newest {
                std::thread::yield_now();
            }
            let Manifest { position, segments, .. } = journal.link_into(Path::new(BACKUP), 1)?.manifest;
            newest = position;
            // Only the newest are looked at, so that the journal does not get long.
            journal.trim(position)?;
            Ok::<_, Error>((position, segments.last().map(|segment| segment.base)))
        };
        let found: Vec<_> = (0..50).map(|_| check()).collect();
        is_over.store(true, ordering);
        let header = header_bytes(usize::from(PARTITIONS));
        for outcome in found {
            let (position, last) = outcome.unwrap();
            assert!(last.is_some_and(|base| base.plus(header) < position), "{last:?} in a backup up to {position}");
        }
    });
}

#[test]
fn every_changed_byte_of_a_backup_is_found() {
    let disk = Disk::new(3);
    let (journal, _) = open(&disk).unwrap();
    write(&journal, 0..14, Level::Synced);
    journal.link_into(Path::new(BACKUP), 1).unwrap();
    drop(journal);
    for (path, len) in segments_of(&disk, BACKUP) {
        for offset in 0..len {
            let damaged = disk.fork(offset);
            damaged.flip(&path, offset, 0x10);
            let examined = examine(&damaged, Path::new(BACKUP), &mut |_, _| ()).unwrap();
            let covers = |d: &Damage| d.path == path && d.offset <= offset && offset < d.offset + d.bytes;
            let is_trailer = offset + 72 >= len;
            assert!(
                examined.damage.iter().any(covers) || (is_trailer && !examined.damage.is_empty()),
                "{path:?} {offset}: {:?}",
                examined.damage
            );
        }
    }
    let manifest = Path::new(BACKUP).join(MANIFEST_FILE);
    disk.flip(&manifest, 20, 1);
    assert!(matches!(examine(&disk, Path::new(BACKUP), &mut |_, _| ()), Err(Error::Foreign { .. })));
}

#[test]
fn a_survey_changes_nothing_and_finds_what_opening_and_reading_everything_finds() {
    for closed in [true, false] {
        let disk = Disk::new(3);
        let (journal, _) = open(&disk).unwrap();
        let expected = write(&journal, 0..14, Level::Synced);
        if closed {
            journal.close().unwrap();
        }
        drop(journal);
        disk.kill_process();
        for (path, len) in segments_of(&disk, DIR) {
            for offset in 0..len {
                let damaged = disk.fork(offset);
                let was = damaged.flip(&path, offset, 0x10);
                let mut survey = survey(&damaged, Path::new(DIR));
                survey.verify(&mut |_, _| ()).unwrap();
                assert_eq!(damaged.operations(), disk.operations(), "{path:?} {offset}: something was written");
                let found = surveyed(&damaged, Path::new(DIR));
                let (journal, _) = open(&damaged).unwrap();
                let opened = contents(&journal).0;
                assert_eq!(found.keys().collect::<Vec<_>>(), opened.keys().collect::<Vec<_>>(), "{path:?} {offset}");
                let covers = |d: &Damage| d.path == path && d.offset <= offset && offset < d.offset + d.bytes;
                let is_lost = opened.len() < expected.len();
                if was != 0 || is_lost {
                    assert!(survey.damage().iter().any(covers), "{path:?} {offset}: {:?}", survey.damage());
                }
            }
        }
    }
}

#[test]
fn a_survey_beside_a_writer_takes_what_moves_for_no_damage() {
    let disk = Disk::new(9);
    let (journal, _) = open(&disk).unwrap();
    let journal = std::sync::Arc::new(journal);
    let is_done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = {
        let (journal, is_done) = (std::sync::Arc::clone(&journal), std::sync::Arc::clone(&is_done));
        base::Worker::start("writer", move || {
            for number in 0..40 {
                write(&journal, number * 10..number * 10 + 10, Level::Written);
                journal.step(base::Time::default()).unwrap();
            }
            is_done.store(true, std::sync::atomic::Ordering::Release);
        })
        .unwrap()
    };
    let mut last = 0;
    while !is_done.load(std::sync::atomic::Ordering::Acquire) {
        let mut survey = survey(&disk, Path::new(DIR));
        survey.verify(&mut |_, _| ()).unwrap();
        assert_eq!(survey.damage(), []);
        let now = surveyed(&disk, Path::new(DIR)).len();
        assert!(now >= last, "what was there is there");
        last = now;
    }
    drop(writer);
    assert_eq!(surveyed(&disk, Path::new(DIR)).len(), 400);
}

/// Runs a scrubber through one round.
fn round(journal: &Journal, scrub: &mut Scrub) -> u64 {
    let mut read = 0;
    loop {
        match journal.scrub(scrub, 700) {
            Scrubbed::Bytes(bytes) => read += bytes,
            Scrubbed::Round => return read,
        }
    }
}

#[test]
fn a_scrubber_finds_a_changed_byte_of_a_sealed_segment_once_and_goes_on() {
    let disk = Disk::new(5);
    let (journal, _) = open(&disk).unwrap();
    let expected = write(&journal, 0..60, Level::Synced);
    journal.step(base::Time::default()).unwrap();
    let mut scrub = Scrub::default();
    let whole = round(&journal, &mut scrub);
    let sealed = journal.segment_stats().into_iter().filter(|segment| segment.sealed);
    let footers_too: u64 = sealed.map(|segment| segment.bytes).sum();
    assert!(whole > 2 * 8192 && whole < footers_too);
    assert_eq!(journal.recovery().damage, []);
    let (path, _) = segments_of(&disk, DIR).remove(1);
    disk.flip(&path, 5000, 1);
    for _ in 0..2 {
        assert_eq!(round(&journal, &mut scrub), whole, "the round goes on behind the damage");
        let damage = journal.recovery().damage;
        let [one] = damage.as_slice() else { panic!("{damage:?}") };
        assert!(
            one.path == path && one.offset <= 5000 && 5000 < one.offset + one.bytes && one.kind == DamageKind::Record
        );
    }
    assert_eq!(contents(&journal).0.len(), expected.len() - 1);
}

/// Replay, feeds and compaction ended there with an error, and a store without ledgers did not open.
#[test]
fn a_sector_that_does_not_read_costs_the_record_that_it_is_in() {
    let disk = Disk::new(6);
    let (journal, _) = open(&disk).unwrap();
    let written = write(&journal, 0..60, Level::Synced);
    journal.close().unwrap();
    drop(journal);
    let (path, _) = segments_of(&disk, DIR).remove(1);
    disk.set_unreadable(&path, 5000);
    let (journal, _) = open(&disk).unwrap();
    for _ in 0..2 {
        let (found, damage) = contents(&journal);
        let [one] = damage.as_slice() else { panic!("{damage:?}") };
        assert!(one.path == path && one.offset <= 5000 && 5000 < one.offset + one.bytes, "{one}");
        let mut expected = written.clone();
        assert!(expected.remove(&one.position).is_some());
        assert_eq!(found, expected);
    }
    assert_eq!(journal.recovery().damage.len(), 1, "it is known once");
    // A disk that reads nothing is gone, and what was on it may come back.
    for (path, len) in segments_of(&disk, DIR) {
        (0..len).step_by(16).for_each(|offset| disk.set_unreadable(&path, offset));
    }
    let read = journal.read_from(Position::ZERO, &mut |_| panic!("nothing reads"));
    assert!(matches!(read, Err(Error::Io { .. })), "{read:?}");
}
