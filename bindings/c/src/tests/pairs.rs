//! Every pair of answers of two resource managers, at prepare, commit and rollback, against an oracle of a few lines.
//!
//! What a single answer means is in the table of `codes.rs`; here is how two come together.

use super::scene::{STATIC, Scene};
use crate::abi::{TX_COMMITTED, TX_HAZARD, TX_MIXED, TX_OK, TX_ROLLBACK};
use crate::control::End;

const ANSWERS: &[&str] = &[
    "XA_OK",
    "XA_RDONLY",
    "XA_RETRY",
    "XA_HEURMIX",
    "XA_HEURRB",
    "XA_HEURCOM",
    "XA_HEURHAZ",
    "XA_RBROLLBACK",
    "XA_RBTIMEOUT",
    "XAER_RMERR",
    "XAER_NOTA",
    "XAER_INVAL",
    "XAER_PROTO",
    "XAER_RMFAIL",
];

/// What became of a branch: committed, rolled back, both, or nobody knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Committed,
    RolledBack,
    Mixed,
    Hazard,
}

fn at_commit(answer: &str) -> Fate {
    match answer {
        "XA_HEURMIX" => Fate::Mixed,
        "XA_HEURHAZ" => Fate::Hazard,
        "XA_HEURRB" | "XA_RBROLLBACK" | "XA_RBTIMEOUT" | "XAER_RMERR" => Fate::RolledBack,
        // Everything else is committed, or will be by recovery.
        _ => Fate::Committed,
    }
}

fn at_rollback(answer: &str) -> Fate {
    match answer {
        "XA_HEURMIX" => Fate::Mixed,
        "XA_HEURHAZ" => Fate::Hazard,
        "XA_HEURCOM" => Fate::Committed,
        _ => Fate::RolledBack,
    }
}

fn together(first: Fate, second: Fate, committed: i32, rolled_back: i32) -> i32 {
    let fates = [first, second];
    let both = |fate| first == fate && second == fate;
    let differ = fates.contains(&Fate::Committed) && fates.contains(&Fate::RolledBack);
    match () {
        () if fates.contains(&Fate::Mixed) || differ => TX_MIXED,
        () if fates.contains(&Fate::Hazard) => TX_HAZARD,
        () if both(Fate::Committed) => committed,
        () => rolled_back,
    }
}

fn play(verb: &str, answers: [&str; 2], how: End) -> i32 {
    let scripts = answers.map(|answer| format!("{verb} {answer}"));
    let mut scene = Scene::new(&[(STATIC, &scripts[0]), (STATIC, &scripts[1])]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    scene.thread.end(how)
}

fn all_pairs(mut check: impl FnMut(&'static str, &'static str)) {
    for first in ANSWERS {
        for second in ANSWERS {
            check(first, second);
        }
    }
}

#[test]
fn two_answers_to_commit() {
    all_pairs(|first, second| {
        let expected = together(at_commit(first), at_commit(second), TX_OK, TX_ROLLBACK);
        assert_eq!(play("commit", [first, second], End::Commit), expected, "{first} {second}");
    });
}

#[test]
fn two_answers_to_rollback() {
    all_pairs(|first, second| {
        let expected = together(at_rollback(first), at_rollback(second), TX_COMMITTED, TX_OK);
        assert_eq!(play("rollback", [first, second], End::Rollback), expected, "{first} {second}");
    });
}

#[test]
fn two_answers_to_prepare() {
    let can = |answer| ["XA_OK", "XA_RDONLY"].contains(&answer);
    all_pairs(|first, second| {
        let expected = if can(first) && can(second) { TX_OK } else { TX_ROLLBACK };
        assert_eq!(play("prepare", [first, second], End::Commit), expected, "{first} {second}");
    });
}
