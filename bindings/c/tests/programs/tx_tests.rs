//! The TX interface as C programs see it.

use tm::Administration;

use crate::stage::{ASYNC, DYNAMIC, STATIC, Stage, compile};

/// Plays calls; each line of the script is a call and what it answers.
fn plays(stage: &Stage, script: &str) {
    let lines: Vec<(&str, &str)> = script.lines().filter_map(|line| line.trim().split_once(": ")).collect();
    let words: Vec<&str> = lines.iter().map(|(call, _)| *call).filter(|call| *call != "elsewhere").collect();
    let expected: Vec<String> = lines.iter().map(|(call, answer)| format!("{call}: {answer}")).collect();
    assert_eq!(stage.play(&words), expected);
}

#[test]
fn the_headers_are_the_standards() {
    let stage = Stage::new();
    let output = stage.run(&compile("standard", &[]), &[]);
    assert!(output.status.success());
}

#[test]
fn every_call_in_every_state_answers_as_the_standard_has_it() {
    // How to come into each state, and the answer of each call there; the table is in `src/tx_state.rs`.
    let states: [(&[&str], &str); 5] = [
        (&[], "S0"),
        (&["open"], "S1"),
        (&["open", "chained"], "S2"),
        (&["open", "begin"], "S3"),
        (&["open", "chained", "begin"], "S4"),
    ];
    let calls: [(&str, [bool; 5]); 12] = [
        ("begin", [false, true, true, false, false]),
        ("close", [true, true, true, false, false]),
        ("commit", [false, false, false, true, true]),
        ("rollback", [false, false, false, true, true]),
        ("info", [false, true, true, true, true]),
        ("open", [true, true, true, true, true]),
        ("completed", [false, true, true, true, true]),
        ("logged", [false, true, true, true, true]),
        ("chained", [false, true, true, true, true]),
        ("unchained", [false, true, true, true, true]),
        ("timeout=5", [false, true, true, true, true]),
        ("suspend", [false, false, false, true, true]),
    ];
    let stage = Stage::of_monkeys(&[(STATIC, "")]);
    for (place, (way, state)) in states.iter().enumerate() {
        for (call, allowed) in &calls {
            let words: Vec<&str> = way.iter().copied().chain([*call]).collect();
            let answers = stage.play(&words);
            let refused = answers.last().unwrap().ends_with(": TX_PROTOCOL_ERROR");
            assert_eq!(!refused, allowed[place], "{call} in {state}: {answers:?}");
        }
    }
}

#[test]
fn a_program_commits_and_rolls_back() {
    let stage = Stage::of_monkeys(&[(STATIC, ""), (STATIC, "")]);
    plays(
        &stage,
        "open: TX_OK
         info: idle,return=0,control=0,timeout=0,xid=null
         begin: TX_OK
         info: active,return=0,control=0,timeout=0,xid=ours
         info-null: 1
         commit: TX_OK
         begin: TX_OK
         rollback: TX_OK
         close: TX_OK",
    );
    assert_eq!(stage.verbs(), "end end prepare prepare commit commit end end rollback rollback");
    assert_eq!(stage.coordinator.undone(), 0);
}

#[test]
fn arguments_are_checked() {
    plays(
        &Stage::of_monkeys(&[(STATIC, "")]),
        "open: TX_OK
         timeout=-1: TX_EINVAL
         control=2: TX_EINVAL
         return=2: TX_EINVAL
         timeout=3: TX_OK
         logged: TX_OK
         begin: TX_OK
         suspend-small: TX_EINVAL
         resume-null: TX_PROTOCOL_ERROR
         info: active,return=1,control=0,timeout=3,xid=ours",
    );
}

#[test]
fn chained_transactions_go_on_until_they_are_unchained() {
    let stage = Stage::of_monkeys(&[(STATIC, "")]);
    plays(
        &stage,
        "open: TX_OK
         chained: TX_OK
         begin: TX_OK
         commit: TX_OK
         info: active,return=0,control=1,timeout=0,xid=ours
         close: TX_PROTOCOL_ERROR
         rollback: TX_OK
         unchained: TX_OK
         commit: TX_OK
         info: idle,return=0,control=0,timeout=0,xid=null
         close: TX_OK",
    );
    assert_eq!(stage.verbs(), "end commit end rollback end commit");
}

#[test]
fn a_transaction_that_takes_too_long_is_rolled_back() {
    let stage = Stage::of_monkeys(&[(STATIC, ""), (STATIC, "")]);
    plays(
        &stage,
        "open: TX_OK
         timeout=1: TX_OK
         begin: TX_OK
         until-timeout: over
         info: timeout,return=0,control=0,timeout=1,xid=ours
         commit: TX_ROLLBACK",
    );
    assert_eq!(stage.verbs(), "end end rollback rollback");
}

#[test]
fn a_commit_that_returns_early_is_completed_by_the_next_call() {
    let stage = Stage::of_monkeys(&[(ASYNC, ""), (ASYNC, "")]);
    plays(&stage, "open: TX_OK\nlogged: TX_OK\nbegin: TX_OK\ncommit: TX_OK\nclose: TX_OK");
    assert_eq!((stage.prepared(0), stage.prepared(1), stage.coordinator.undone()), (0, 0, 0));
}

#[test]
fn a_resource_manager_registers_itself() {
    let stage = Stage::of_monkeys(&[(DYNAMIC, ""), (STATIC, "")]);
    plays(
        &stage,
        "open: TX_OK
         begin: TX_OK
         work=0: TM_OK
         work=0: TMER_PROTO
         work=1: TMER_INVAL
         work=7: TMER_INVAL
         leave=0: TMER_PROTO
         reg-null=0: TMER_INVAL
         reg-flags=0: TMER_INVAL
         commit: TX_OK
         begin: TX_OK
         commit: TX_OK",
    );
    assert_eq!(stage.verbs(), "end end prepare prepare commit commit end commit");
    // Who registers is never started by the transaction manager.
    assert!(!stage.calls().iter().any(|call| call.starts_with("start 0")));
}

#[test]
fn work_outside_of_transactions_has_to_end_before_one_begins() {
    plays(
        &Stage::of_monkeys(&[(DYNAMIC, "")]),
        "open: TX_OK
         work=0: TM_OK
         begin: TX_OUTSIDE
         leave=0: TM_OK
         leave=0: TMER_PROTO
         begin: TX_OK
         rollback: TX_OK",
    );
}

#[test]
fn a_transaction_is_suspended_and_resumed() {
    let stage = Stage::of_monkeys(&[(STATIC, ""), (DYNAMIC, "")]);
    plays(
        &stage,
        "open: TX_OK
         begin: TX_OK
         work=1: TM_OK
         suspend: TX_OK
         info: idle,return=0,control=0,timeout=0,xid=null
         begin: TX_OK
         rollback: TX_OK
         resume: TX_OK
         work=1: TM_RESUME
         commit: TX_OK",
    );
    let calls: Vec<String> = stage.calls().into_iter().filter(|call| call.starts_with("end")).collect();
    // Suspended with and without leave to migrate, the second transaction's end, then both ends of the first.
    assert_eq!(calls, ["end 0 2100000", "end 1 2000000", "end 0 20000000", "end 0 4000000", "end 1 4000000"]);
    assert!(stage.calls().contains(&"start 0 8000000".to_owned()));
}

#[test]
fn a_suspended_transaction_migrates_unless_a_branch_does_not() {
    plays(
        &Stage::of_monkeys(&[(STATIC, "")]),
        "open: TX_OK
         begin: TX_OK
         suspend: TX_OK
         elsewhere: open=TX_OK resume=TX_OK commit=TX_OK close=TX_OK
         resume-elsewhere: joined
         resume: TX_EINVAL",
    );
    plays(
        &Stage::of_monkeys(&[(STATIC, "end XA_NOMIGRATE XA_OK")]),
        "open: TX_OK
         begin: TX_OK
         suspend: TX_OK
         elsewhere: open=TX_OK resume=TX_PROTOCOL_ERROR commit=TX_PROTOCOL_ERROR close=TX_OK
         resume-elsewhere: joined
         resume: TX_OK
         commit: TX_OK",
    );
}

#[test]
fn a_branch_that_cannot_be_resumed_can_only_be_rolled_back() {
    plays(
        &Stage::of_monkeys(&[(STATIC, "start XA_OK XA_RBDEADLOCK")]),
        "open: TX_OK
         begin: TX_OK
         suspend: TX_OK
         resume: TX_OK
         info: rollback-only,return=0,control=0,timeout=0,xid=ours
         commit: TX_ROLLBACK",
    );
}

#[test]
fn many_threads_work_at_the_same_time() {
    let stage = Stage::of_monkeys(&[(STATIC, ""), (ASYNC, "")]);
    let output = stage.run(&compile("threads", &[]), &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 failures\n");
    assert_eq!((stage.prepared(0), stage.prepared(1), stage.coordinator.undone()), (0, 0, 0));
    // A process that ends while its threads have all open leaves nothing behind, either.
    let output = stage.run(&compile("threads", &[]), &["stay"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 failures\n");
    assert_eq!((stage.prepared(0), stage.prepared(1), stage.coordinator.undone()), (0, 0, 0));
}

#[test]
fn a_process_uses_two_profiles() {
    let mut stage = Stage::of_monkeys(&[(STATIC, "")]);
    stage.add_profile("other", &[(STATIC, ""), (STATIC, "")]);
    plays(
        &stage,
        "open: TX_OK
         begin: TX_OK
         commit: TX_OK
         close: TX_OK
         profile=other: set
         open: TX_OK
         begin: TX_OK
         commit: TX_OK
         close: TX_OK",
    );
    assert_eq!(stage.verbs(), "end commit end end prepare prepare commit commit");
}

#[test]
fn what_is_wrong_with_a_profile_is_said() {
    let library = crate::stage::monkey().display().to_string();
    let wrong = [
        ("libno-such-thing.so", "x", "", "cannot load the library `libno-such-thing.so`"),
        (&library, "no_such_switch", "", "has no symbol `no_such_switch`"),
        (&library, STATIC, "script=/no/such/file", "xa_open of `rm` answered XAER_INVAL"),
    ];
    for (library, symbol, open, said) in wrong {
        let mut stage = Stage::new();
        stage.add_coordinator("default");
        stage.add_switch("default", "rm", library, symbol, open);
        let answers = stage.play(&["open", "error"]);
        assert_eq!(answers[0], "open: TX_FAIL");
        assert!(answers[1].contains(said), "{answers:?}");
    }
    let answers = Stage::of_monkeys(&[]).play(&["profile=missing", "open", "error"]);
    assert!(answers[2].contains("no profile missing"), "{answers:?}");
}

#[test]
fn a_program_decides_for_itself() {
    let stage = Stage::embedded(&[(STATIC, ""), (ASYNC, "")]);
    for _ in 0..2 {
        plays(&stage, "open: TX_OK\nbegin: TX_OK\ncommit: TX_OK\nbegin: TX_OK\nrollback: TX_OK\nclose: TX_OK");
    }
    let output = stage.run(&compile("threads", &[]), &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 failures\n");
    assert_eq!((stage.prepared(0), stage.prepared(1)), (0, 0));
    // Every decision is known to all its branches, and forgotten.
    let decisions = tm::Embedded::open(&stage.decisions(), holdfast::Options::default()).unwrap();
    assert!(decisions.list("0").unwrap().transactions.is_empty());
}

/// `holdfast_last_error` told of a failure of long before, after calls that were refused and commits that came too late.
#[test]
fn every_call_that_fails_says_why() {
    let stage = Stage::of_monkeys(&[(STATIC, "commit XA_RBDEADLOCK")]);
    let output = stage.run(&compile("reasons", &[]), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let mut lines: Vec<&str> = text.lines().collect();
    assert!(lines.pop().unwrap().contains("no profile before"), "what goes well clears nothing");
    assert_eq!(lines.len(), 56, "{text}");
    for line in &lines {
        let [_, code, reason] = line.split(" | ").collect::<Vec<_>>().try_into().unwrap();
        assert!(code.starts_with("TX_") && code != "TX_OK", "{line}");
        assert!(!reason.contains("no profile before") && !reason.is_empty(), "{line}");
    }
    let told = |call: &str, why: &str| lines.iter().any(|line| line.starts_with(call) && line.contains(why));
    assert!(told("tx_commit() | TX_ROLLBACK", "xa_commit of `monkey0` answered XA_RBDEADLOCK"), "{text}");
    assert!(told("tx_commit() | TX_ROLLBACK", "took longer than it may"), "{text}");
    assert!(told("holdfast_tx_commit(tx) | TX_ROLLBACK", "took longer than it may"), "{text}");
    assert!(told("holdfast_resume(\"none\") | TX_PROTOCOL_ERROR", "call tx_open first"), "{text}");
    assert!(told("holdfast_tx_begin(tm, -1", "a timeout is 0 seconds or more, not -1"), "{text}");
}
