//! Every pair of answers of two resource managers, at every call, against an oracle of a few lines.
//!
//! What a single answer means is in the table of `codes.rs`; here is how two come together.

use super::scene::{ASYNC, STATIC, Scene};
use crate::abi::{TX_COMMITTED, TX_ERROR, TX_FAIL, TX_HAZARD, TX_MIXED, TX_OK, TX_OUTSIDE, TX_ROLLBACK};
use crate::control::End;
use crate::manager::Recovered;

/// Every answer that the standard has.
const ANSWERS: &[&str] = &[
    "XA_OK",
    "XA_RDONLY",
    "XA_RETRY",
    "XA_HEURMIX",
    "XA_HEURRB",
    "XA_HEURCOM",
    "XA_HEURHAZ",
    "XA_NOMIGRATE",
    "XA_RBROLLBACK",
    "XA_RBCOMMFAIL",
    "XA_RBDEADLOCK",
    "XA_RBINTEGRITY",
    "XA_RBOTHER",
    "XA_RBPROTO",
    "XA_RBTIMEOUT",
    "XA_RBTRANSIENT",
    "XAER_ASYNC",
    "XAER_RMERR",
    "XAER_NOTA",
    "XAER_INVAL",
    "XAER_PROTO",
    "XAER_RMFAIL",
    "XAER_DUPID",
    "XAER_OUTSIDE",
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
        "XA_HEURRB" | "XAER_RMERR" => Fate::RolledBack,
        rolled_back if rolled_back.starts_with("XA_RB") => Fate::RolledBack,
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
    play_with(STATIC, answers.map(|answer| format!("{verb} {answer}")), how)
}

fn play_with(switch: &str, scripts: [String; 2], how: End) -> i32 {
    let mut scene = Scene::new(&[(switch, &scripts[0]), (switch, &scripts[1])]);
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

/// Whoever does not end well has all rolled back, which is what a rollback wants.
#[test]
fn two_answers_to_end() {
    all_pairs(|first, second| {
        let expected = if [first, second] == ["XA_OK"; 2] { TX_OK } else { TX_ROLLBACK };
        assert_eq!(play("end", [first, second], End::Commit), expected, "{first} {second}");
        assert_eq!(play("end", [first, second], End::Rollback), TX_OK, "{first} {second}");
    });
}

/// The first that does not start says why there is no transaction.
#[test]
fn two_answers_to_start() {
    let at_start = |answer: &str| match answer {
        "XAER_OUTSIDE" => TX_OUTSIDE,
        "XAER_RMERR" | "XAER_DUPID" => TX_ERROR,
        error if error.starts_with("XAER") => TX_FAIL,
        // It would not be there for what follows.
        _ => TX_ERROR,
    };
    all_pairs(|first, second| {
        let expected = [first, second].into_iter().find(|answer| *answer != "XA_OK").map_or(TX_OK, at_start);
        let scripts = [first, second].map(|answer| format!("start {answer}"));
        let mut scene = Scene::new(&[(STATIC, &scripts[0]), (STATIC, &scripts[1])]);
        assert_eq!(scene.open(), TX_OK);
        assert_eq!(scene.thread.begin(), expected, "{first} {second}");
        assert_eq!(scene.thread.transaction.is_some(), expected == TX_OK);
    });
}

/// What is answered to forgetting changes nothing about what was done.
#[test]
fn two_answers_to_forget() {
    all_pairs(|first, second| {
        let scripts = |verb: &str, did: &str| [first, second].map(|answer| format!("{verb} {did}\nforget {answer}"));
        assert_eq!(play_with(STATIC, scripts("commit", "XA_HEURRB"), End::Commit), TX_ROLLBACK, "{first} {second}");
        assert_eq!(
            play_with(STATIC, scripts("rollback", "XA_HEURCOM"), End::Rollback),
            TX_COMMITTED,
            "{first} {second}"
        );
    });
}

/// What `xa_complete` answers counts as the answer to what was begun; `XA_RETRY` has it asked once more, without it.
#[test]
fn two_answers_to_complete() {
    let of_prepare = |answer| ["XA_OK", "XA_RDONLY", "XA_RETRY"].contains(&answer);
    all_pairs(|first, second| {
        let scripts = |before: &str| [first, second].map(|answer| format!("complete {before}{answer} XA_OK"));
        let prepared = if of_prepare(first) && of_prepare(second) { TX_OK } else { TX_ROLLBACK };
        assert_eq!(play_with(ASYNC, scripts(""), End::Commit), prepared, "prepare: {first} {second}");
        let committed = together(at_commit(first), at_commit(second), TX_OK, TX_ROLLBACK);
        assert_eq!(play_with(ASYNC, scripts("XA_OK "), End::Commit), committed, "commit: {first} {second}");
        let rolled_back = together(at_rollback(first), at_rollback(second), TX_COMMITTED, TX_OK);
        assert_eq!(play_with(ASYNC, scripts(""), End::Rollback), rolled_back, "rollback: {first} {second}");
    });
}

/// Each that cannot list is counted, whatever the other says.
#[test]
fn two_answers_to_recover() {
    // What is above is how many it lists.
    let answers: Vec<&str> =
        ANSWERS.iter().copied().filter(|answer| answer.starts_with("XAER") || *answer == "XA_OK").collect();
    for first in &answers {
        for second in &answers {
            let scripts = [first, second].map(|answer| format!("recover {answer}"));
            let mut scene = Scene::new(&[(STATIC, &scripts[0]), (STATIC, &scripts[1])]);
            assert_eq!(scene.open(), TX_OK);
            let found = scene.thread.recover().unwrap();
            let unreachable = [first, second].iter().filter(|answer| ***answer != "XA_OK").count() as u64;
            assert_eq!(found, Recovered { unreachable, ..Recovered::default() }, "{first} {second}");
        }
    }
}
