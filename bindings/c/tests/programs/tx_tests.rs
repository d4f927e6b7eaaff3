//! The TX interface as C programs see it.

use std::time::{Duration, Instant};

use tm::Administration;

use crate::stage::{ASYNC, DYNAMIC, STATIC, Stage, compile};

/// Plays calls; each line of the script is a call and what it answers.
fn plays(stage: &Stage, script: &str) {
    let lines: Vec<(&str, &str)> = script.lines().filter_map(|line| line.trim().split_once(": ")).collect();
    let words: Vec<&str> = lines.iter().map(|(call, _)| *call).filter(|call| *call != "elsewhere").collect();
    let expected: Vec<String> = lines.iter().map(|(call, answer)| format!("{call}: {answer}")).collect();
    assert_eq!(stage.play(&words), expected);
}

/// Neither how many there are nor what the coordinator makes of it keeps a program waiting for long.
#[test]
fn a_profile_may_have_ten_thousand_resource_managers() {
    const MANY: usize = 10_000;
    let mut stage = Stage::new();
    stage.add_coordinator("default");
    stage.add_crowd(MANY, "");
    let began = Instant::now();
    plays(
        &stage,
        "open: TX_OK
         begin: TX_OK
         commit: TX_OK
         begin: TX_OK
         rollback: TX_OK
         recover: committed=0,rolled-back=0,left=0,unreachable=0
         close: TX_OK",
    );
    assert_eq!(stage.coordinator.undone(), 0);
    // The last of so many that has something to say is heard, and a name that comes twice is noticed.
    let refuses = stage.folder.path().join("refuses");
    std::fs::write(&refuses, "prepare XA_RBDEADLOCK").unwrap();
    let library = crate::stage::monkey().display().to_string();
    stage.add_switch("default", "last", &library, STATIC, &format!("script={}", refuses.display()));
    let answers = stage.play(&["open", "begin", "commit", "error"]);
    assert_eq!(answers[2], "commit: TX_ROLLBACK");
    assert!(answers[3].contains("xa_prepare of `last` answered XA_RBDEADLOCK"), "{}", answers[3]);
    stage.add_crowd(1, "");
    let answers = stage.play(&["open", "error"]);
    assert_eq!(answers[0], "open: TX_FAIL");
    assert!(answers[1].contains("two resource managers are called monkey0"), "{}", answers[1]);

    // A coordinator of ours has its limit, and what is too much for it is rolled back everywhere.
    let mut stage = Stage::new();
    stage.add_embedded_coordinator("default");
    stage.add_crowd(MANY, "");
    let answers = stage.play(&["open", "begin", "commit", "error", "begin", "rollback", "close"]);
    let codes = [2, 5, 6].map(|place| answers[place].as_str());
    assert_eq!(codes, ["commit: TX_ROLLBACK", "rollback: TX_OK", "close: TX_OK"]);
    assert!(answers[3].contains("the coordinator holds at most 1000 branches of a transaction"), "{}", answers[3]);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn the_headers_are_the_standards() {
    let stage = Stage::new();
    let output = stage.run(&compile("standard", &[]), &[]);
    assert!(output.status.success());
}

/// The table of `src/tx_state.rs` as programs see it. In each cell what the call answers, and what `tx_info` says after it: `-` where
/// no resource manager is open, else whether there is a transaction, what a commit returns at, and whether they are chained.
const CELLS: &str = "
    call        S0                   S1            S2            S3                   S4
    begin       TX_PROTOCOL_ERROR:-  TX_OK:A00     TX_OK:A01     TX_PROTOCOL_ERROR:A00 TX_PROTOCOL_ERROR:A01
    close       TX_OK:-              TX_OK:-       TX_OK:-       TX_PROTOCOL_ERROR:A00 TX_PROTOCOL_ERROR:A01
    commit      TX_PROTOCOL_ERROR:-  TX_PROTOCOL_ERROR:I00 TX_PROTOCOL_ERROR:I01 TX_OK:I00 TX_OK:A01
    rollback    TX_PROTOCOL_ERROR:-  TX_PROTOCOL_ERROR:I00 TX_PROTOCOL_ERROR:I01 TX_OK:I00 TX_OK:A01
    open        TX_OK:I00            TX_OK:I00     TX_OK:I01     TX_OK:A00            TX_OK:A01
    completed   TX_PROTOCOL_ERROR:-  TX_OK:I00     TX_OK:I01     TX_OK:A00            TX_OK:A01
    logged      TX_PROTOCOL_ERROR:-  TX_OK:I10     TX_OK:I11     TX_OK:A10            TX_OK:A11
    chained     TX_PROTOCOL_ERROR:-  TX_OK:I01     TX_OK:I01     TX_OK:A01            TX_OK:A01
    unchained   TX_PROTOCOL_ERROR:-  TX_OK:I00     TX_OK:I00     TX_OK:A00            TX_OK:A00
    timeout=5   TX_PROTOCOL_ERROR:-  TX_OK:I00     TX_OK:I01     TX_OK:A00            TX_OK:A01
    suspend     TX_PROTOCOL_ERROR:-  TX_PROTOCOL_ERROR:I00 TX_PROTOCOL_ERROR:I01 TX_OK:I00 TX_OK:I01
    resume      TX_PROTOCOL_ERROR:-  TX_EINVAL:I00 TX_EINVAL:I01 TX_PROTOCOL_ERROR:A00 TX_PROTOCOL_ERROR:A01
";

/// What `tx_info` says, as in the table.
fn seen(info: &str) -> String {
    let Some((state, rest)) = info.split_once(",return=") else {
        assert_eq!(info, "TX_PROTOCOL_ERROR");
        return "-".to_owned();
    };
    let (returns, rest) = rest.split_once(",control=").unwrap();
    let (control, rest) = rest.split_once(",timeout=").unwrap();
    let is_active = match state {
        "active" => rest.ends_with(",xid=ours"),
        "idle" => !rest.ends_with(",xid=null"),
        _ => panic!("{info}"),
    };
    assert_eq!(is_active, state == "active", "{info}");
    format!("{}{returns}{control}", if is_active { "A" } else { "I" })
}

#[test]
fn every_call_in_every_state_answers_as_the_standard_has_it_and_leads_where_it_says() {
    let ways: [&[&str]; 5] = [&[], &["open"], &["open", "chained"], &["open", "begin"], &["open", "chained", "begin"]];
    let stage = Stage::of_monkeys(&[(STATIC, "")]);
    let mut wrong = Vec::new();
    let mut cells = 0;
    for row in CELLS.lines().filter(|row| !row.trim().is_empty()).skip(1) {
        let mut row = row.split_whitespace();
        let call = row.next().unwrap();
        for (way, cell) in ways.iter().zip(row) {
            let words: Vec<&str> = way.iter().copied().chain([call, "info", "info"]).collect();
            let answers = stage.play(&words);
            let said: Vec<&str> =
                answers[way.len()..].iter().map(|answer| answer.split_once(": ").unwrap().1).collect();
            let found = format!("{}:{}", said[0], seen(said[1]));
            let timeout = if call == "timeout=5" && found.starts_with("TX_OK") { "timeout=5," } else { "timeout=0," };
            let is_timeout = said[1] == "TX_PROTOCOL_ERROR" || said[1].contains(timeout);
            // To look changes nothing.
            if found != cell || !is_timeout || said[1] != said[2] {
                wrong.push(format!("{call} after {way:?}: {cell}, but {answers:?}"));
            }
            cells += 1;
        }
    }
    assert_eq!((cells, wrong.join("\n")), (60, String::new()));
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
