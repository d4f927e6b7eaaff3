//! Programs that die at a named point: what they left is completed by the next one that opens.

use std::collections::{BTreeMap, BTreeSet};

use tm::{Administration, BranchName, Embedded, Forget};

use crate::stage::{ASYNC, DYNAMIC, STATIC, Stage};

/// Waits until the coordinator has noticed that the program died.
fn until_alone(stage: &Stage) {
    while !stage.coordinator.is_alone() {
        std::thread::yield_now();
    }
}

/// A program dies where the script says; then another one opens, and nothing is in doubt any more.
///
/// `undone` is how many decisions are remembered for a branch that was committed without anybody having heard of it.
fn dies(switch: &str, script: &str, calls: &[&str], expected: &str, undone: usize) {
    let stage = Stage::of_monkeys(&[(switch, ""), (switch, script)]);
    let answers = stage.play(calls);
    assert_ne!(answers.len(), calls.len(), "{script}: it did not die: {answers:?}");
    until_alone(&stage);
    stage.rewrite(1, "");
    let before = stage.verbs();
    assert_eq!(stage.play(&["open", "close"]), ["open: TX_OK", "close: TX_OK"], "{script}");
    assert_eq!((stage.prepared(0), stage.prepared(1)), (0, 0), "{script}");
    assert_eq!(stage.coordinator.undone(), undone, "{script}");
    let after = stage.verbs();
    assert_eq!(after.strip_prefix(&before).unwrap().trim(), expected, "{script}");
}

#[test]
fn a_program_that_dies_at_any_verb_leaves_nothing_in_doubt() {
    for switch in [STATIC, ASYNC] {
        let commit = ["open", "begin", "commit"];
        for point in ["kill-before", "kill-after"] {
            // Nothing is prepared: there is nothing to recover.
            dies(switch, &format!("open {point}"), &commit, "", 0);
            dies(switch, &format!("start {point}"), &commit, "", 0);
            dies(switch, &format!("end {point}"), &commit, "", 0);
        }
        // The first is prepared, and nothing is decided.
        dies(switch, "prepare kill-before", &commit, "rollback", 0);
        dies(switch, "prepare kill-after", &commit, "rollback rollback", 0);
        let rollback = ["open", "begin", "rollback"];
        dies(switch, "rollback kill-before", &rollback, "", 0);
        dies(switch, "rollback kill-after", &rollback, "", 0);
        dies(switch, "close kill-before", &["open", "begin", "rollback", "close"], "", 0);
    }
    // It is decided. The first was committed, but the coordinator never hears of it, because it is not found in doubt: the
    // decision stays until somebody forgets it.
    dies(STATIC, "commit kill-before", &["open", "begin", "commit"], "commit", 1);
}

#[test]
fn a_program_that_dies_during_recovery_leaves_it_to_the_next() {
    let stage = Stage::of_monkeys(&[(STATIC, ""), (STATIC, "commit kill-before")]);
    stage.play(&["open", "begin", "commit"]);
    until_alone(&stage);
    // The script still says so: this one dies when it commits what the first one left.
    assert!(stage.play(&["open"]).is_empty());
    assert_eq!(stage.prepared(1), 1);
    until_alone(&stage);
    stage.rewrite(1, "");
    assert_eq!(stage.play(&["open", "recover"])[0], "open: TX_OK");
    assert_eq!(stage.prepared(1), 0);
}

#[test]
fn a_program_that_decides_for_itself_and_dies_is_completed_by_the_next() {
    for (script, verb) in
        [("prepare kill-before", "rollback"), ("prepare kill-after", "rollback"), ("commit kill-before", "commit")]
    {
        let stage = Stage::embedded(&[(STATIC, ""), (STATIC, script)]);
        assert_eq!(stage.play(&["open", "begin", "commit"]).len(), 2, "it dies in the commit");
        stage.rewrite(1, "");
        let rounds = stage.play(&["open", "recover"]);
        assert_eq!(rounds, ["open: TX_OK", "recover: committed=0,rolled-back=0,left=0,unreachable=0"]);
        assert_eq!((stage.prepared(0), stage.prepared(1)), (0, 0), "{script}");
        // What the opening did by itself is what was to be done.
        assert!(stage.verbs().ends_with(verb), "{}", stage.verbs());
    }
}

/// Whether a transaction was committed at one resource manager and rolled back at another, after it was prepared.
fn is_torn(log: &str) -> bool {
    let mut ends: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut prepared: BTreeSet<&str> = BTreeSet::new();
    for line in log.lines() {
        let words: Vec<&str> = line.splitn(6, ' ').collect();
        let [_, _, verb, branch, _, answer] = words[..] else { panic!("{line}") };
        let transaction = branch.split('-').nth(1).unwrap_or_default();
        match (verb, answer) {
            ("prepare", "0" | "dies after") => {
                prepared.insert(transaction);
            }
            ("commit" | "rollback", "0" | "dies after") if prepared.contains(transaction) => {
                ends.entry(transaction).or_default().insert(verb);
            }
            _ => {}
        }
    }
    ends.values().any(|verbs| verbs.len() > 1)
}

#[test]
fn whatever_kills_a_program_at_whatever_passage_nothing_is_torn_or_in_doubt() {
    let verbs = ["open", "recover", "start", "end", "prepare", "commit", "rollback", "complete", "close"];
    let calls = ["open", "begin", "commit", "begin", "rollback", "begin", "commit", "close", "open", "close"];
    let registering: Vec<&str> = calls
        .iter()
        .flat_map(|call| if *call == "begin" { &["begin", "work=1", "work=0"] } else { std::slice::from_ref(call) })
        .copied()
        .collect();
    let mut deaths = 0;
    for (switch, verb) in [STATIC, ASYNC, DYNAMIC].into_iter().flat_map(|switch| verbs.map(|verb| (switch, verb))) {
        for (passage, point) in
            ["", "XA_OK "].into_iter().flat_map(|passage| ["kill-before", "kill-after"].map(|point| (passage, point)))
        {
            for killer in 0..2 {
                let script = format!("{verb} {passage}{point}");
                let mut scripts = ["", ""];
                scripts[killer] = &script;
                let stage = Stage::of_monkeys(&scripts.map(|script| (switch, script)));
                let calls = if switch == DYNAMIC { registering.as_slice() } else { &calls };
                deaths += u32::from(stage.play(calls).len() < calls.len());
                until_alone(&stage);
                stage.rewrite(killer, "");
                let case = format!("{switch} {script} at {killer}");
                assert_eq!(stage.play(&["open", "close"]), ["open: TX_OK", "close: TX_OK"], "{case}");
                assert_eq!((stage.prepared(0), stage.prepared(1)), (0, 0), "{case}");
                let log = std::fs::read_to_string(stage.folder.path().join("log")).unwrap();
                assert!(!is_torn(&log), "{case}\n{log}");
            }
        }
    }
    assert!(deaths > 100, "only {deaths} programs died");
}

/// A program that dies between two steps of registering, inside of a transaction and outside: nothing is left, and nobody is held up.
#[test]
fn a_program_that_dies_while_resource_managers_register_leaves_nothing() {
    for calls in [
        &["open", "begin", "die"][..],
        &["open", "begin", "work=0", "die"],
        &["open", "begin", "work=0", "work=1", "die"],
        &["open", "begin", "work=0", "commit", "begin", "work=1", "die"],
        &["open", "work=0", "die"],
        &["open", "work=0", "leave=0", "die"],
        &["open", "work=0", "leave=0", "begin", "work=0", "work=1", "die"],
    ] {
        let stage = Stage::of_monkeys(&[(DYNAMIC, ""), (DYNAMIC, "")]);
        assert_eq!(stage.play(calls).len(), calls.len() - 1, "{calls:?}");
        until_alone(&stage);
        let before = stage.verbs();
        let next = ["open", "work=0", "leave=0", "begin", "work=0", "work=1", "commit", "close"];
        let answers = stage.play(&next);
        assert!(
            answers.len() == next.len() && answers.iter().all(|answer| answer.ends_with("_OK")),
            "{calls:?}: {answers:?}"
        );
        assert_eq!((stage.prepared(0), stage.prepared(1)), (0, 0), "{calls:?}");
        assert_eq!(
            stage.verbs().strip_prefix(&before).unwrap().trim(),
            "end end prepare prepare commit commit",
            "{calls:?}"
        );
    }
}

/// What the coordinator of a stage lists of branches, and the transactions that they are of.
fn listed(stage: &Stage) -> Vec<(tm::TransactionId, BranchName, String)> {
    let coordinator = Embedded::open(&stage.decisions(), holdfast::Options::default()).unwrap();
    let all = coordinator.list("0").unwrap().transactions.into_iter();
    all.flat_map(|status| {
        status.branches.into_iter().map(move |branch| (status.id, branch.branch, branch.state)).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn what_a_resource_manager_did_is_known_although_the_program_dies_while_it_is_to_forget() {
    // One that is alone commits in one phase, and nothing of it is prepared.
    for (first, second, state, prepared) in [
        ("commit XA_HEURRB", Some(""), "heuristic-rollback", 1),
        ("rollback XA_HEURCOM", Some("prepare XA_RBOTHER"), "heuristic-commit", 1),
        ("commit XA_HEURCOM", None, "heuristic-commit", 0),
        ("commit XA_HEURRB", None, "heuristic-rollback", 0),
        ("commit XA_HEURMIX", None, "heuristic-mixed", 0),
        ("commit XA_HEURHAZ", None, "heuristic-hazard", 0),
    ] {
        for (point, is_kept) in [("kill-before", prepared), ("kill-after", 0)] {
            let case = format!("{first}, {second:?}, {point}");
            let script = format!("{first}\nforget {point}");
            let monkeys: Vec<(&str, &str)> =
                [Some(script.as_str()), second].into_iter().flatten().map(|script| (STATIC, script)).collect();
            let stage = Stage::embedded(&monkeys);
            assert_eq!(stage.play(&["open", "begin", "commit"]).len(), 2, "{case}: it dies in the commit");
            assert_eq!(stage.prepared(0), is_kept, "{case}");
            let is_known =
                || listed(&stage).iter().any(|(_, branch, did)| branch.as_str() == "monkey0" && did == state);
            assert!(is_known(), "{case}: {:?}", listed(&stage));
            // The next one lists it, if it was not forgotten, and forgets it. What is known stays.
            stage.rewrite(0, first);
            assert_eq!(stage.play(&["open", "close"]), ["open: TX_OK", "close: TX_OK"], "{case}");
            assert_eq!((stage.prepared(0), stage.prepared(1)), (0, 0), "{case}");
            assert!(is_known(), "{case}: {:?}", listed(&stage));
            let id = listed(&stage)[0].0;
            let coordinator = Embedded::open(&stage.decisions(), holdfast::Options::default()).unwrap();
            assert!(coordinator.forget(id, Forget::Settled).is_err(), "{case}");
            coordinator.forget(id, Forget::EvenInDoubt).unwrap();
            drop(coordinator);
            assert!(listed(&stage).is_empty(), "{case}");
        }
    }
}
