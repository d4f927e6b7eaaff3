//! Recovery that is struck itself, and what it finds at the next try.

use std::collections::BTreeMap;

use base::Files;
use base::memory::{Disk, Fault};

use crate::tests::{PARTITIONS, contents, open_with, story, story_of, write};
use crate::*;

/// So many that a power cut may take one half of a segment's header.
const MANY_PARTITIONS: u16 = 20;

/// The log was cut in one segment, which was sealed, and the one behind it was not reached. The next recovery took the first
/// for sound and the second for log: batches came back behind others that stayed away.
#[test]
fn a_recovery_that_is_interrupted_at_any_operation_leaves_a_prefix_and_all_that_was_synced() {
    for partitions in [PARTITIONS, MANY_PARTITIONS] {
        let (mut struck, mut cut) = (0, 0);
        for n in 0.. {
            let disk = Disk::new(n);
            let Some((synced, all)) = story(&disk, n, Fault::PowerCut, partitions) else { break };
            disk.power_on();
            for (k, fault) in (0..).flat_map(|k| [(k, Fault::PowerCut), (k, Fault::Full)]) {
                let again = disk.fork(n * 100 + k);
                again.plan(k, fault);
                let before = again.operations();
                let opened = open_with(&again, partitions);
                // With the spare given up it may end well though it was struck.
                let is_over = opened.is_ok() && again.operations() <= before + k;
                drop(opened);
                again.clear_plan();
                again.kill_process();
                again.power_on();
                let (journal, recovery) = open_with(&again, partitions).unwrap();
                let (found, _) = contents(&journal);
                let prefix: BTreeMap<_, _> = all.iter().take(found.len()).map(|(p, n)| (*p, *n)).collect();
                assert_eq!(found, prefix, "{partitions} at {n}, then {fault:?} at {k}: {recovery:?}");
                assert!(synced.iter().all(|at| found.contains_key(at)), "{partitions} at {n}, then {fault:?} at {k}");
                cut += u64::from(recovery.damage.iter().any(|damage| damage.kind == DamageKind::Discarded));
                if is_over {
                    break;
                }
                struck += 1;
            }
        }
        assert!(struck > 500 && cut > 100, "{partitions}: {struck} {cut}");
    }
}

/// Of a header that was not synced a power cut may leave some sectors. It was taken for one that had rotted, of a segment
/// that was all there: batches came back behind others that were lost.
#[test]
fn a_power_cut_that_takes_a_sector_of_a_header_leaves_a_prefix_and_all_that_was_synced() {
    let mut torn = 0;
    for seed in 0..30 {
        for n in 0.. {
            let disk = Disk::new(seed * 1000 + n);
            let Some((synced, all)) = story(&disk, n, Fault::PowerCut, MANY_PARTITIONS) else { break };
            disk.power_on();
            let (journal, recovery) = open_with(&disk, MANY_PARTITIONS).unwrap();
            let (found, _) = contents(&journal);
            let prefix: BTreeMap<_, _> = all.iter().take(found.len()).map(|(p, n)| (*p, *n)).collect();
            assert_eq!(found, prefix, "seed {seed} at {n}: {recovery:?}");
            assert!(synced.iter().all(|at| found.contains_key(at)), "seed {seed} at {n}");
            torn += u64::from(recovery.damage.iter().any(|damage| damage.kind == DamageKind::Header));
        }
    }
    assert!(torn > 30, "{torn}");
}

/// What an earlier recovery left out is told from a recovery that did not end, also when the header that told of its end is
/// gone.
#[test]
fn a_flipped_byte_behind_a_cut_costs_at_most_the_record_it_hits() {
    let mut cuts = 0;
    for seed in 0..120 {
        let disk = Disk::new(seed);
        let n = seed / 2;
        let partitions = if seed % 2 == 0 { PARTITIONS } else { MANY_PARTITIONS };
        let Some(_) = story(&disk, n, Fault::PowerCut, partitions) else { break };
        disk.power_on();
        let (journal, recovery) = open_with(&disk, partitions).unwrap();
        if !recovery.damage.iter().any(|damage| damage.kind == DamageKind::Discarded) {
            continue;
        }
        cuts += 1;
        write(&journal, 900..905, Level::Synced);
        let expected = contents(&journal).0;
        drop(journal);
        disk.power_cut();
        disk.power_on();
        for (path, len) in disk.inventory() {
            for offset in (0..len).filter(|offset| *offset < 8 || offset % 512 == 7) {
                let damaged = disk.fork(offset);
                damaged.flip(&path, offset, 0x10);
                let found = contents(&open_with(&damaged, partitions).unwrap().0).0;
                let lost = expected.iter().filter(|entry| found.get(entry.0) != Some(entry.1)).count();
                assert!(lost <= 1, "at {n}: {path:?} {offset}: lost {lost}");
            }
        }
    }
    assert!(cuts > 3, "{cuts}");
}

/// A server was killed when it had written a footer and not cut the file yet, and its folder was said to be damaged, for ever.
#[test]
fn a_kill_at_any_operation_damages_nothing_also_in_the_middle_of_a_footer() {
    let (mut kills, mut torn) = (0, 0);
    for n in 0.. {
        let disk = Disk::new(n);
        let Some((_, all)) = story_of(&disk, n, Fault::Kill, (PARTITIONS, 900)) else { break };
        kills += 1;
        for cut in footers_cut(&disk) {
            torn += 1;
            look_and_open(&cut, &all, &format!("killed at {n} while it wrote a footer"));
        }
        look_and_open(&disk, &all, &format!("killed at {n}"));
    }
    assert!(kills > 100 && torn > 10, "{kills} {torn}");
}

fn survey(disk: &Disk) -> Survey {
    let (files, dir) = (disk.process(), std::path::Path::new(crate::tests::DIR));
    let store = (crate::tests::options().store, PARTITIONS);
    let mut survey = Survey::of(&files, dir, store, Position::ZERO).unwrap();
    survey.verify(&mut |_, _| {}).unwrap();
    survey
}

fn look_and_open(disk: &Disk, all: &BTreeMap<Position, u64>, what: &str) {
    let seen = survey(disk);
    assert_eq!(seen.damage(), [], "{what}");
    for _ in 0..2 {
        let (journal, recovery) = open_with(disk, PARTITIONS).unwrap();
        assert_eq!(recovery.damage, [], "{what}");
        let found = contents(&journal).0;
        // The last one may not have been written when it was killed.
        assert!(found.len() + 1 >= all.len() && all.iter().zip(&found).all(|(one, other)| one == other), "{what}");
        drop(journal);
        disk.kill_process();
    }
}

/// The disk with less and less of a footer that was written into a file that is not cut; none if there is no such file.
fn footers_cut(disk: &Disk) -> Vec<Disk> {
    let mut cut = Vec::new();
    let segments = survey(disk).segments();
    // Of the last one nothing says where its records end.
    let before = segments.split_last().map_or(&[][..], |(_, before)| before);
    for segment in before.iter().filter(|segment| !segment.sealed) {
        let path = std::path::Path::new(crate::tests::DIR).join(crate::segment::file_name(segment.base));
        let mut bytes = vec![0; usize::try_from(segment.bytes).unwrap()];
        let file = disk.open(&path).unwrap();
        base::read_exact_at(&*file, &mut bytes, 0).unwrap();
        let footer = usize::try_from(segment.used_bytes).unwrap()..bytes.len();
        let Some(len) = bytes[footer.clone()].iter().rposition(|byte| *byte != 0) else { continue };
        for keep in [1, 7, 8, len / 2, len] {
            let fork = disk.fork(0);
            let file = fork.open(&path).unwrap();
            file.write_at(&vec![0; footer.len() - keep], (footer.start + keep) as u64).unwrap();
            cut.push(fork);
        }
    }
    cut
}
