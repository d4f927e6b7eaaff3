//! Plans for tables that are nowhere.

use super::*;
use crate::compression::Compression;
use crate::ledger::stored::Place;
use crate::ledger::table::IndexKind;

const POLICY: Policy = Policy { runs: 4, drags: 8, first_level_bytes: 100, ratio: 10 };

fn table(number: u64, bytes: u64, keys: &str) -> TableInfo {
    let (least, greatest) = keys.split_once('-').unwrap();
    TableInfo {
        number,
        bytes,
        entries: bytes,
        removals: 0,
        codec: Compression::None,
        top: Place::default(),
        index: IndexKind::Blocks,
        filter: None,
        least: least.into(),
        greatest: greatest.into(),
    }
}

fn run(level: u8, tables: &[(u64, u64, &str)]) -> Run {
    Run { level, tables: tables.iter().map(|(number, bytes, keys)| table(*number, *bytes, keys)).collect() }
}

fn young(number: u64, keys: &str) -> Run {
    run(0, &[(number, 5, keys)])
}

#[test]
fn runs_of_level_0_wait_until_there_are_enough_and_take_what_they_overlap_along() {
    let old = run(1, &[(1, 30, "a-c"), (2, 30, "d-f"), (3, 30, "x-z")]);
    let deep = run(2, &[(4, 500, "p-q")]);
    let mut runs = vec![young(9, "b-e"), young(8, "c-d"), young(7, "e-g"), old, deep];
    assert_eq!(next(&runs, POLICY), None);
    runs.insert(0, young(10, "d-m"));
    let wanted = Plan { from: vec![10, 9, 8, 7], with: vec![1, 2], to: 1, may_move: false, is_last: true };
    assert_eq!(next(&runs, POLICY), Some(wanted.clone()));
    // What is below, and in their range, may have what they remove.
    runs[0] = young(10, "d-p");
    assert_eq!(next(&runs, POLICY), Some(Plan { is_last: false, ..wanted }));
}

#[test]
fn what_overlaps_nothing_may_go_down_as_it_is() {
    let runs = |last| vec![young(4, "g-h"), young(3, "e-f"), young(2, last), young(1, "a-b"), run(1, &[(5, 9, "x-z")])];
    let plan = |last| next(&runs(last), POLICY).unwrap();
    assert_eq!((plan("c-d").may_move, plan("c-d").with.len()), (true, 0));
    assert!(!plan("b-d").may_move, "two have b");
    assert!(!plan("w-y").may_move, "level 1 has x");
}

#[test]
fn a_level_that_is_too_large_gives_the_table_that_drags_least_along() {
    let first = run(1, &[(1, 40, "a-c"), (2, 40, "d-f"), (3, 40, "g-i")]);
    let second = run(2, &[(4, 90, "b-b"), (5, 60, "e-e"), (6, 99, "g-h")]);
    let runs = [first, second, run(3, &[(7, 9, "f-k")])];
    let wanted = Plan { from: vec![2], with: vec![5], to: 2, may_move: false, is_last: false };
    assert_eq!(next(&runs, POLICY), Some(wanted));
    let [first, second, third] = runs;
    // A level's room is ten times that of the one before, and the last has no bounds.
    let large = run(2, &[(8, 1_001, "a-z")]);
    let roomy = Policy { first_level_bytes: 120, ..POLICY };
    assert_eq!(next(&[first.clone(), second, third.clone()], roomy), None);
    assert_eq!(next(&[large.clone(), third], POLICY).map(|plan| (plan.from, plan.to)), Some((vec![8], 3)));
    assert_eq!(next(&[first, Run { level: 6, ..large }], roomy), None);
}

/// The story: what was taken along reached beyond the table that went down, to a removal of what lay below.
#[test]
fn removals_end_only_where_nothing_is_below_what_is_taken_along() {
    let plan =
        |deep| next(&[run(1, &[(1, 101, "m-n")]), run(2, &[(2, 5, "a-z")]), run(3, &[(3, 5, deep)])], POLICY).unwrap();
    assert_eq!((plan("b-c").with.clone(), plan("b-c").is_last), (vec![2], false));
    assert!(
        !next(
            &[
                young(2, "m-n"),
                young(1, "m-n"),
                young(4, "m-n"),
                young(5, "m-n"),
                run(1, &[(6, 9, "a-p")]),
                run(2, &[(7, 9, "a-b")])
            ],
            POLICY
        )
        .unwrap()
        .is_last
    );
    let below = |keys| next(&[run(1, &[(1, 101, "m-n")]), run(3, &[(3, 5, keys)])], POLICY).unwrap();
    assert_eq!((below("a-b").is_last, below("a-b").may_move, below("a-m").is_last), (true, true, false));
    // What is removed goes when there is nothing to hide, and so does not stay as it is.
    let mut first = run(1, &[(1, 101, "m-n")]);
    first.tables[0].removals = 1;
    assert!(!next(&[first.clone(), run(3, &[(3, 5, "a-b")])], POLICY).unwrap().may_move);
    assert!(next(&[first, run(3, &[(3, 5, "a-m")])], POLICY).unwrap().may_move);
}

#[test]
fn runs_that_are_not_worth_what_they_drag_along_become_one_with_those_of_like_size() {
    let sized = |sizes: &[u64]| {
        let mut runs: Vec<Run> = (1..).zip(sizes).map(|(number, size)| run(0, &[(number, *size, "a-c")])).collect();
        runs.push(run(1, &[(99, 1_000, "b-d")]));
        runs
    };
    let roomy = Policy { first_level_bytes: 10_000, ..POLICY };
    let plan = |sizes: &[u64]| {
        next(&sized(sizes), roomy).map(|plan| (plan.to, plan.from.len(), plan.with.len(), plan.is_last))
    };
    assert_eq!(plan(&[1, 1, 1]), None);
    assert_eq!(plan(&[1, 1, 1, 1]), Some((0, 4, 0, false)));
    assert_eq!(plan(&[1, 1, 1, 4]), Some((0, 3, 0, false)), "the large one waits until there is as much");
    assert_eq!(plan(&[1, 1, 1, 1, 4]), Some((0, 5, 0, false)));
    assert_eq!(plan(&[1, 2, 4, 8]), None);
    assert_eq!(plan(&[1, 4, 40, 80]), Some((1, 4, 1, true)), "125 drag 1000 along");
    // However long it goes on, there are few runs, and each byte is written a few times.
    let (mut sizes, mut written): (Vec<u64>, u64) = (Vec::new(), 0);
    for round in 0..10_000u64 {
        sizes.insert(0, 1);
        while let Some(plan) = next(&sized(&sizes), roomy) {
            let merged: u64 = sizes.drain(..plan.from.len()).sum();
            written += merged + if plan.to == 1 { 1_000 } else { 0 };
            (plan.to == 0).then(|| sizes.insert(0, merged));
        }
        assert!(sizes.len() < 12, "{round}: {sizes:?}");
    }
    assert!(written < 10_000 * 18, "{written}");
}

#[test]
fn settling_merges_what_costs_little_and_else_what_is_alike() {
    let to = |runs: &[Run]| settling(runs, POLICY).map(|plan| (plan.to, plan.from.len(), plan.with.len()));
    let with = |bytes| [young(3, "a-b"), young(2, "b-c"), run(1, &[(1, bytes, "b-d")])];
    assert_eq!((to(&with(80)), to(&with(81))), (Some((1, 2, 1)), Some((0, 2, 0))));
    let [_, one, below] = with(89);
    assert_eq!(to(&[one.clone(), below.clone()]), None, "one run is not made fewer");
    assert_eq!(
        to(&[one.clone(), run(0, &[(5, 6, "a-c")]), below]),
        None,
        "nor is the older one written for the younger"
    );
    assert_eq!((to(std::slice::from_ref(&one)), to(&[run(1, &[(1, 5, "a-b")])])), (None, None));
    assert_eq!(to(&[young(3, "a-b"), one]), Some((1, 2, 0)));
    assert_eq!(to(&[young(2, "a-c"), run(1, &[(1, 900, "d-f")])]), Some((1, 1, 0)));
    let moves = settling(&[young(2, "a-c"), young(1, "d-e")], POLICY).unwrap();
    assert!(moves.may_move && moves.is_last && moves.to == 1);
}
