//! Programs that are killed, end or start while the coordinator's own store takes part in their transactions.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use holdfast::Options;
use tm::{Administration, Begin, BranchName, Decisions, Embedded, Xid};

use crate::databases_tests::values;
use crate::engines_tests::{entry, key, play, play_until_it_dies, plays_by, points, program, remembered, store};
use crate::servers::start_postgres;
use crate::stage::{ASYNC, STATIC, Stage};

/// The key is there exactly where the branch is committed, whatever the program came to.
#[test]
fn a_program_that_dies_in_its_commit_leaves_both_or_neither() {
    let calls = ["open", "declare", "begin", "put=k:v", "write={\"id\": 1}", "point=m:1:1", "commit"];
    for (script, happened) in [
        ("end kill-after", false),
        ("prepare kill-before", false),
        ("prepare kill-after", false),
        ("commit kill-before", true),
        ("commit kill-after", true),
    ] {
        for switch in [STATIC, ASYNC] {
            for monkeys in [&[(switch, script)][..], &[(switch, ""), (switch, script)]] {
                let stage = Stage::embedded(monkeys);
                let answers = play_until_it_dies(&stage, &calls);
                assert_eq!(answers.len(), 6, "it dies in the commit: {answers:?}");
                let at = monkeys.len() - 1;
                stage.rewrite(at, "");
                let answers = play(&stage, &["open", "recover", "close"]);
                assert_eq!(values(&answers), ["TX_OK", "TX_OK left=0 unreachable=0", "TX_OK"], "{script}");
                assert_eq!((stage.prepared(0), stage.prepared(at)), (0, 0), "{script}");
                let verbs = stage.verbs();
                let committed = verbs.contains("commit");
                assert_eq!(committed, happened, "{script}: {verbs}");
                assert!(!happened || !verbs.contains("rollback"), "{script}: {verbs}");
                let store = store(&stage);
                let seen = (key(&store, "k").is_some(), entry(&store, 1).is_some(), points(&store, "m").len());
                assert_eq!(seen, (happened, happened, usize::from(happened)), "{script}");
            }
        }
    }
    // Before it, and when it does not end what it began.
    let stage = Stage::embedded(&[(STATIC, "")]);
    for last in ["die", "info"] {
        let play = if last == "die" { play_until_it_dies } else { play };
        let answers = play(&stage, &["open", "begin", "put=k:v", last]);
        assert!(answers[2].ends_with("TX_OK"), "{answers:?}");
        assert_eq!(key(&store(&stage), "k"), None, "{last}");
    }
}

/// A transaction that nobody ends holds the store, which kept the process from telling what its branches knew.
#[test]
fn a_process_that_ends_closes_the_store_although_a_transaction_is_open() {
    let stage = Stage::embedded(&[(STATIC, ""), (STATIC, "")]);
    let words = ["open", "begin", "put=k:v", "commit", "a", "open", "begin", "put=open:v"];
    let answers = play(&stage, &words);
    assert_eq!(values(&answers)[7], "TX_OK");
    assert_eq!(remembered(&stage), 0);
    assert_eq!(key(&store(&stage), "open"), None);
}

/// What earlier programs left held its locks until the first transaction began.
#[test]
fn what_is_to_be_rolled_back_is_when_a_connection_is_added_and_the_rest_when_the_program_says_so() {
    let postgres = start_postgres(20);
    let stage = Stage::embedded(&[]);
    let run = |script: &str| plays_by(stage.command(program()).env("DATABASE_PG", postgres.conninfo()), script);
    // Two branches that are prepared, of which one is decided, by a program that is gone.
    let ids = {
        let coordinator = Embedded::open(&stage.decisions(), Options::default()).unwrap();
        let ids = [1, 2].map(|_| coordinator.begin(Begin::default()).unwrap());
        coordinator.commit(ids[1], &[BranchName::new("own").unwrap()], None).unwrap();
        ids
    };
    let prepare = |id: usize| {
        format!(
            "pg=BEGIN -> done\n pg=INSERT INTO t VALUES ({id}) -> done\n pg=PREPARE TRANSACTION '{}' -> done\n",
            Xid { transaction: ids[id], branch: BranchName::new("own").unwrap() }
        )
    };
    run(&format!("a -> now\n open -> TX_OK\n pg=CREATE TABLE t (id int) -> done\n {} {}", prepare(0), prepare(1)));
    run("a -> now
         open -> TX_OK
         pg=SELECT count(*) FROM pg_prepared_xacts -> 1
         recover -> TX_OK left=0 unreachable=0
         pg=SELECT count(*) FROM pg_prepared_xacts -> 0
         pg=SELECT id FROM t -> 1");
    // It is remembered for a while, because its program may ask.
    let coordinator = Embedded::open(&stage.decisions(), Options::default()).unwrap();
    let branches = coordinator.list("0").unwrap().transactions.into_iter().flat_map(|status| status.branches);
    assert!(branches.into_iter().all(|branch| branch.state == "done"));
}

/// Money is moved from PostgreSQL to a key by programs that are killed at any moment.
#[test]
fn the_sum_over_postgres_and_a_key_stays_whenever_a_program_is_killed() {
    const MONEY: i64 = 1_000_000;
    let postgres = start_postgres(20);
    for more in ["", "\nlast_resource = true"] {
        let mut stage = Stage::new();
        stage.add_embedded_coordinator("default");
        stage.add_resource_manager("default", "pg", &format!("kind = \"postgres\"{more}"), &postgres.conninfo());
        let made = [
            "open",
            "pg=DROP TABLE IF EXISTS bank",
            "pg=CREATE TABLE bank (money int)",
            &format!("pg=INSERT INTO bank VALUES ({MONEY})"),
        ];
        assert_eq!(values(&play(&stage, &made)), ["TX_OK", "done", "done", "done"]);
        let (mut told, mut moved) = (0, 0);
        for round in 0..25 {
            let mut child = stage.command(program()).arg("transfers").stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            // After so many, at whatever it is about by then.
            for _ in 0..=round % 5 {
                assert_eq!(lines.next().unwrap().unwrap(), "TX_OK");
            }
            std::thread::sleep(std::time::Duration::from_micros(173 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            let all: Vec<String> = lines.map_while(Result::ok).collect();
            assert!(all.iter().all(|line| line == "TX_OK"), "{all:?}");
            let count = round % 5 + 1 + all.len() as u64;
            told += count - count / 4;
            // A server may take a moment until it knows that the program is gone.
            let answers = loop {
                let answers = play(
                    &stage,
                    &[
                        "open",
                        "recover",
                        "pg=SELECT money FROM bank",
                        "begin",
                        "get=money",
                        "rollback",
                        "pg=SELECT count(*) FROM pg_prepared_xacts",
                    ],
                );
                if values(&answers)[1] == "TX_OK left=0 unreachable=0" && values(&answers)[6] == "0" {
                    break answers;
                }
            };
            let answers = values(&answers);
            let here: i64 = answers[4].strip_prefix("TX_OK ").unwrap().parse().unwrap();
            assert_eq!(answers[2].parse::<i64>().unwrap() + here, MONEY, "{answers:?}");
            moved = here;
        }
        // At most one of each program happened of which it was not told.
        let untold = u64::try_from(moved).unwrap() - told;
        assert!(untold <= 25, "{moved} were moved, and {told} told");
    }
}
