//! Where the journal begins: oldest segments that were lost are told from those that were let go of, at each opening.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::Files;
use base::memory::{Disk, Fault};

use crate::begin::{self, Noted};
use crate::tests::{DIR, contents, open, options, write};
use crate::*;

fn note() -> PathBuf {
    Path::new(DIR).join(BEGIN_FILE)
}

fn segments(disk: &Disk) -> Vec<PathBuf> {
    let paths = disk.inventory().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.extension().is_some_and(|end| end == "seg")).collect()
}

/// A closed journal whose oldest segments were let go of, with the batches in it.
fn trimmed(seed: u64) -> (Disk, BTreeMap<Position, u64>) {
    let disk = Disk::new(seed);
    let (journal, _) = open(&disk).unwrap();
    let written = write(&journal, 0..100, Level::Synced);
    while journal.step(base::Time::default()).unwrap().is_some() {}
    journal.trim(*written.keys().nth(30).unwrap()).unwrap();
    let kept = contents(&journal).0;
    journal.close().unwrap();
    assert!(kept.len() > 50 && kept.len() < 100);
    (disk, kept)
}

#[test]
fn lost_oldest_segments_are_missing_at_each_opening_and_to_who_only_looks() {
    for lost in 1..5 {
        let (disk, kept) = trimmed(lost);
        let (_, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.damage, [], "nothing is missing of what was let go of");
        let Noted::At(begin) = begin::read(&disk, Path::new(DIR), options().store).unwrap() else { panic!("no note") };
        let all = segments(&disk);
        let (gone, rest) = all.split_at(usize::try_from(lost).unwrap());
        gone.iter().for_each(|path| disk.remove(path).unwrap());
        let survey = Survey::of(&disk, Path::new(DIR), (options().store, options().partitions), Position::ZERO);
        let mut told = vec![survey.unwrap().damage().to_vec()];
        for _ in 0..3 {
            let (journal, recovery) = open(&disk).unwrap();
            assert_eq!(journal.let_go_before(), begin);
            assert!(journal.floor() > begin);
            let left = contents(&journal).0;
            assert!(
                left.len() < kept.len() && left.iter().all(|(position, number)| kept.get(position) == Some(number))
            );
            told.push(recovery.damage);
            journal.close().unwrap();
        }
        for damage in told {
            let [one] = damage.as_slice() else { panic!("{damage:?}") };
            assert_eq!((one.kind, &one.path, one.position), (DamageKind::Missing, gone.last().unwrap(), begin));
            let end = Position::new(one.position.get() + one.bytes);
            let first = base_of(rest.first().unwrap());
            assert!(end <= first, "{end} {first}");
            assert!(
                kept.keys().all(|position| *position < end || *position >= first),
                "what is missing ends where the rest begins"
            );
        }
        // Whoever lets go of what lies behind says that nothing before is needed any more.
        let (journal, _) = open(&disk).unwrap();
        journal.trim(*kept.keys().nth_back(3).unwrap()).unwrap();
        journal.close().unwrap();
        assert_eq!(open(&disk).unwrap().1.damage, []);
    }
}

#[test]
fn a_backup_and_the_journal_it_becomes_know_where_it_begins() {
    let (disk, kept) = trimmed(9);
    let (journal, _) = open(&disk).unwrap();
    let backup = Path::new("/backup");
    journal.link_into(backup, 5).unwrap();
    let copy = backup.join("journal");
    assert_eq!(begin::read(&disk, &copy, options().store).unwrap(), Noted::At(journal.let_go_before()));
    let oldest =
        disk.inventory().into_iter().find(|(path, _)| path.starts_with(&copy) && *path != copy.join(BEGIN_FILE));
    disk.remove(&oldest.unwrap().0).unwrap();
    let survey = Survey::of(&disk, &copy, (options().store, options().partitions), Position::ZERO).unwrap();
    assert!(matches!(survey.damage(), [one] if one.kind == DamageKind::Missing), "{:?}", survey.damage());
    assert_eq!(contents(&journal).0, kept);
    journal.link_into(backup, 6).unwrap();
    assert_eq!(examine(&disk, backup, &mut |_, _| ()).unwrap().damage, []);
    disk.flip(&copy.join(BEGIN_FILE), 25, 1);
    let damage = examine(&disk, backup, &mut |_, _| ()).unwrap().damage;
    assert!(matches!(damage.as_slice(), [one] if one.kind == DamageKind::Copy), "{damage:?}");
}

#[test]
fn a_crash_at_any_operation_of_letting_go_misses_nothing() {
    let mut crashes = 0;
    for fault in [Fault::PowerCut, Fault::Error] {
        for n in 0.. {
            let disk = Disk::new(n);
            let (journal, _) = open(&disk).unwrap();
            let written = write(&journal, 0..60, Level::Synced);
            journal.step(base::Time::default()).unwrap();
            let lowest = *written.keys().nth(40).unwrap();
            let before = disk.operations();
            disk.plan(n, fault);
            let _ = journal.trim(lowest);
            let is_over = disk.operations() - before <= n;
            drop(journal);
            disk.clear_plan();
            disk.power_cut();
            disk.power_on();
            let (journal, recovery) = open(&disk).unwrap();
            let costs = |one: &&Damage| !matches!(one.kind, DamageKind::Torn | DamageKind::Footer);
            assert_eq!(recovery.damage.iter().find(costs), None, "{fault:?} at {n}");
            let left = contents(&journal).0;
            assert!(written.range(lowest..).all(|(position, number)| left.get(position) == Some(number)));
            journal.trim(lowest).unwrap();
            journal.close().unwrap();
            assert_eq!(open(&disk).unwrap().1.damage.iter().find(costs), None);
            crashes += 1;
            if is_over {
                break;
            }
        }
    }
    assert!(crashes > 20, "{crashes}");
}

#[test]
fn lost_oldest_segments_are_missing_also_when_the_first_that_is_left_has_a_damaged_header() {
    for lost in 0..4 {
        let (disk, _) = trimmed(lost);
        let all = segments(&disk);
        let (gone, rest) = all.split_at(usize::try_from(lost).unwrap());
        gone.iter().for_each(|path| disk.remove(path).unwrap());
        disk.flip(rest.first().unwrap(), 20, 1);
        for _ in 0..2 {
            let (journal, recovery) = open(&disk).unwrap();
            let is_missed = recovery.damage.iter().any(|one| one.kind == DamageKind::Missing);
            assert_eq!(
                is_missed,
                lost > 0,
                "{lost}: {:?} {:?}",
                begin::read(&disk, Path::new(DIR), 7),
                recovery.damage
            );
            journal.close().unwrap();
        }
    }
}

#[test]
fn a_store_without_the_note_gets_one_and_a_damaged_one_costs_nothing() {
    let (disk, kept) = trimmed(3);
    let intact = base::read_whole(&disk, &note(), 100).unwrap();
    let reopen = |what: &str| {
        let (journal, recovery) = open(&disk).unwrap();
        assert_eq!(contents(&journal).0, kept, "{what}");
        journal.close().unwrap();
        recovery.damage
    };
    let is_noted = || matches!(begin::read(&disk, Path::new(DIR), options().store).unwrap(), Noted::At(_));
    disk.remove(&note()).unwrap();
    assert_eq!(reopen("absent"), []);
    assert!(is_noted());
    let mut wrong: Vec<Vec<u8>> = (0..intact.len()).map(|len| intact[..len].to_vec()).collect();
    wrong.extend((0..intact.len()).map(|at| intact.iter().enumerate().map(|(i, b)| b ^ u8::from(i == at)).collect()));
    wrong.push([intact.clone(), vec![0]].concat());
    for bytes in wrong {
        base::write_new_file(&disk, &note(), &bytes).unwrap();
        let damage = reopen("damaged");
        assert!(matches!(damage.as_slice(), [one] if one.kind == DamageKind::Copy && one.path == note()), "{damage:?}");
        assert!(is_noted());
        assert_eq!(reopen("mended"), []);
    }
    // It begins nowhere behind the end.
    begin::write(&disk, Path::new(DIR), options().store, Position::new(u64::MAX)).unwrap();
    assert!(matches!(reopen("beyond").as_slice(), [one] if one.kind == DamageKind::Copy));
    // Of another store, by a mistake in copying: it says nothing of this one.
    begin::write(&disk, Path::new(DIR), 8, Position::ZERO).unwrap();
    assert!(matches!(reopen("foreign").as_slice(), [one] if one.kind == DamageKind::Copy));
}

#[test]
fn a_note_of_a_newer_version_is_refused_and_left_as_it_is() {
    let (disk, _) = trimmed(4);
    let mut bytes = base::read_whole(&disk, &note(), 100).unwrap();
    let body = bytes.len() - 4;
    bytes[7] = 2;
    let sum = base::crc32c(&bytes[..body]);
    bytes[body..].copy_from_slice(&sum.to_le_bytes());
    base::write_new_file(&disk, &note(), &bytes).unwrap();
    let before = disk.inventory();
    let refused = open(&disk).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, Error::Foreign { path, .. } if *path == note()), "{refused}");
    assert_eq!(disk.inventory(), before);
    assert_eq!(base::read_whole(&disk, &note(), 100).unwrap(), bytes);
}

#[test]
fn on_a_full_disk_the_note_is_written_in_the_place_of_the_spare() {
    let disk = Disk::new(5);
    let (journal, _) = open(&disk).unwrap();
    let written = write(&journal, 0..60, Level::Synced);
    journal.step(base::Time::default()).unwrap();
    let used: u64 = disk.inventory().iter().map(|(_, bytes)| bytes).sum();
    disk.set_capacity(used);
    let lowest = *written.keys().nth(40).unwrap();
    journal.trim(lowest).unwrap();
    assert!(journal.stats().segments < 10);
    let noted = begin::read(&disk, Path::new(DIR), options().store).unwrap();
    assert_eq!(noted, Noted::At(journal.floor()));
}

fn base_of(path: &Path) -> Position {
    crate::segment::base_of(path.file_name().unwrap().to_str().unwrap()).unwrap()
}
