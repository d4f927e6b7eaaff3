//! Programs that die at a named point: what they left is completed by the next one that opens.

use std::collections::{BTreeMap, BTreeSet};

use crate::stage::{ASYNC, STATIC, Stage};

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
    let mut deaths = 0;
    for (switch, verb) in [STATIC, ASYNC].into_iter().flat_map(|switch| verbs.map(|verb| (switch, verb))) {
        for (passage, point) in
            ["", "XA_OK "].into_iter().flat_map(|passage| ["kill-before", "kill-after"].map(|point| (passage, point)))
        {
            for killer in 0..2 {
                let script = format!("{verb} {passage}{point}");
                let mut scripts = ["", ""];
                scripts[killer] = &script;
                let stage = Stage::of_monkeys(&scripts.map(|script| (switch, script)));
                deaths += u32::from(stage.play(&calls).len() < calls.len());
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
