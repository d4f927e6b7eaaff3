//! Recovery that is struck itself, and what it finds at the next try.

use std::collections::BTreeMap;

use base::memory::{Disk, Fault};

use crate::tests::{PARTITIONS, contents, open_with, story, write};
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
