//! Programs that hang, or end, in the middle of transactions on real databases: what becomes of their locks and of what they prepared.

use std::time::{Duration, Instant};

use crate::databases_tests::{Player, databases, values};

/// In MariaDB the rows were locked for as long as the program was there.
#[test]
fn a_program_that_hangs_in_a_branch_loses_its_locks_when_its_time_is_over() {
    let databases = databases("t");
    let stage = databases.stage("");
    let insert = |kind: &str, id: u32| format!("{kind}=INSERT INTO t VALUES ({id})");
    let (pg, ma) = (insert("pg", 1), insert("ma", 1));
    let idle = "ma=SELECT @@SESSION.idle_transaction_timeout";
    let words = [
        "open",
        "timeout=10",
        "begin",
        &pg,
        &ma,
        idle,
        "wait",
        "commit",
        "begin",
        "commit",
        "timeout=0",
        "begin",
        idle,
    ];
    let mut by_switch = Player::start(&databases, &stage, "", &words);
    let (pg, ma) = (insert("own-pg", 2), insert("own-ma", 2));
    let mut by_object = Player::start(&databases, &stage, "", &["tm", "tx-begin-in=10", &pg, &ma, "wait", "tx-commit"]);
    by_switch.skip(5);
    assert_eq!(by_switch.next(), "10");
    by_object.skip(4);
    for program in [&by_switch, &by_object] {
        program.signal("-STOP");
    }
    let began = Instant::now();
    let rows: Vec<String> = [1, 2].iter().flat_map(|id| [insert("own-pg", *id), insert("own-ma", *id)]).collect();
    let words: Vec<&str> = ["tm"].into_iter().chain(rows.iter().map(String::as_str)).collect();
    assert_eq!(values(&databases.play(&stage, &words)), ["TX_OK", "done", "done", "done", "done"]);
    assert!(began.elapsed() > Duration::from_secs(8), "they were locked until then");
    for program in [&mut by_switch, &mut by_object] {
        program.signal("-CONT");
        program.go_on();
        assert_eq!(program.next(), "TX_ROLLBACK");
    }
    let answers: Vec<String> = (0..5).map(|_| by_switch.next()).collect();
    assert_eq!(answers, ["TX_OK", "TX_OK", "TX_OK", "TX_OK", "0"], "it goes on, and the session is as it was");
    by_switch.end();
    by_object.end();
    assert_eq!(databases.counts("t"), ["2", "2", "0", "nothing"]);
}

/// However a branch ends, the session is as the program has it.
#[test]
fn how_long_a_session_may_be_idle_is_the_programs_own_behind_a_branch() {
    let databases = databases("t");
    let stage = databases.stage("");
    for (place, set, end) in [("", "begin", "commit"), ("own-", "tx-begin-in=60", "tx-commit")] {
        let idle = format!("{place}ma=SELECT @@SESSION.idle_transaction_timeout");
        let usual = format!("{place}ma=SET SESSION idle_transaction_timeout = 1800");
        let mut words = if place.is_empty() { vec!["open", "timeout=60", "begin", "commit"] } else { vec!["tm"] };
        words.extend([&usual, set, &idle]);
        let (first, rolled_back) = (words.len(), end.replace("commit", "rollback"));
        words.extend([end, &idle, set, &rolled_back, &idle]);
        let answers = databases.play(&stage, &words);
        let values = values(&answers);
        // By the coordinator's clock it is over at once, and a branch has this long at least.
        assert_eq!(values[first - 1], "10", "{answers:?}");
        assert_eq!(values[first..], ["TX_OK", "1800", "TX_OK", "TX_OK", "1800"], "{answers:?}");
    }
}

/// It stayed until somebody called `holdfast_tm_recover`.
#[test]
fn what_a_program_left_prepared_is_recovered_when_another_comes() {
    let databases = databases("t");
    let stage = databases.stage("");
    let work = ["own-pg=INSERT INTO t VALUES (1)", "own-ma=INSERT INTO t VALUES (1)"];
    let answers = databases.play(&stage, &["tm", "tx-shared", work[0], work[1], "tx-suspend"]);
    assert_eq!(values(&answers)[4], "TX_OK", "{answers:?}");
    while !stage.coordinator.is_alone() {
        std::thread::yield_now();
    }
    // Not within a transaction of the program's own, which goes on.
    let (insert, delete) = ("own-pg=INSERT INTO t VALUES (2)", "own-pg=DELETE FROM t");
    let prepared = "own-pg=SELECT count(*) FROM pg_prepared_xacts";
    let words = ["tm-within", insert, "tm-recover", "tx-begin", delete, "own-pg=COMMIT", prepared];
    let answers = databases.play(&stage, &words);
    let left = values(&answers);
    assert_eq!(left[3..], ["TX_OUTSIDE", "done", "done", "1"], "{answers:?}");
    // The servers may take a moment until they know that the program is gone.
    let began = Instant::now();
    while databases.counts("t") != ["0", "0", "0", "nothing"] {
        assert_eq!(values(&databases.play(&stage, &["tm", "tx-begin", "tx-commit"])), ["TX_OK"; 3]);
        assert!(began.elapsed() < Duration::from_secs(60), "it is still there");
    }
}

#[test]
fn a_program_states_the_order_of_commits() {
    let databases = databases("t");
    let stage = databases.stage("");
    let words =
        ["tm", "tm-order=pg:7", "tm-order=none:1", "tm-order=no name:1", "tx-begin", "tm-order=ma:1", "tx-commit"];
    let expected = ["TX_OK", "TX_OK", "TX_EINVAL", "TX_EINVAL", "TX_OK", "TX_PROTOCOL_ERROR", "TX_OK"];
    assert_eq!(values(&databases.play(&stage, &words)), expected);
}
