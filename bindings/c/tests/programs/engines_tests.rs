//! Keys, entries and points of the coordinator's own store in transactions of C programs: there with the decision, or not at all.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use holdfast::series::{Match, Points, Range, Rows, Select, Source, ValueRef};
use holdfast::space::{Definition, Document, IndexKind, ReadOptions, Wanted, WriteOptions};
use holdfast::{Options, PutOptions, Store};
use tm::{Administration, Embedded};

use crate::databases_tests::values;
use crate::servers::start_postgres;
use crate::stage::{ASYNC, STATIC, Stage, compile};

pub(crate) fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("engines", &["-l:libpq.so.5"]))
}

pub(crate) fn play(stage: &Stage, words: &[&str]) -> Vec<String> {
    let output = stage.run(program(), words);
    assert!(output.status.success(), "{output:?}");
    answers(output)
}

/// Plays calls of which one ends the program.
pub(crate) fn play_until_it_dies(stage: &Stage, words: &[&str]) -> Vec<String> {
    let output = stage.run(program(), words);
    assert!(output.status.signal().is_some(), "{output:?}");
    answers(output)
}

fn answers(output: Output) -> Vec<String> {
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Plays calls; each line of the script is a call and what it answers.
pub(crate) fn plays(stage: &Stage, script: &str) {
    plays_by(&mut stage.command(program()), script);
}

pub(crate) fn plays_by(command: &mut Command, script: &str) {
    let lines: Vec<(&str, &str)> = script.lines().filter_map(|line| line.trim().split_once(" -> ")).collect();
    let words: Vec<&str> = lines.iter().map(|(call, _)| *call).collect();
    let expected: Vec<String> = lines.iter().map(|(call, answer)| format!("{call}: {answer}")).collect();
    let output = command.args(words).output().unwrap();
    let answers: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    assert_eq!(answers, expected);
    assert!(output.status.success(), "{output:?}");
}

pub(crate) fn store(stage: &Stage) -> Store {
    Store::open(stage.decisions(), Options::default()).unwrap()
}

pub(crate) fn key(store: &Store, key: &str) -> Option<String> {
    let found = store.kv().get(b"b", key.as_bytes()).unwrap();
    found.map(|object| String::from_utf8(object.value.to_vec()).unwrap())
}

pub(crate) fn entry(store: &Store, id: i64) -> Option<Document> {
    let entries = store.space("s").entries("t").unwrap();
    entries.read(&Wanted::id(id), &ReadOptions::default()).unwrap().map(|entry| entry.document)
}

/// Times in seconds, of the series with the tag `host=h`, and values.
pub(crate) fn points(store: &Store, metric: &str) -> Vec<(i64, f64)> {
    let reader = store.series().reader();
    let select =
        Select { database: "default".to_owned(), metric: Some(Match::is(metric.to_owned())), ..Select::default() };
    let mut all = Vec::new();
    for series in reader.series(&select).unwrap() {
        assert_eq!(series.key.tag("host"), "h");
        let mut points = Points::new();
        reader.points(series.id, Range { from: i64::MIN, to: i64::MAX }, &mut points).unwrap();
        all.extend(points.iter().map(|(time, value)| match value {
            ValueRef::Float(value) => (time / 1_000_000_000, value),
            other => panic!("{other:?}"),
        }));
    }
    all
}

/// Decisions that the coordinator remembers.
pub(crate) fn remembered(stage: &Stage) -> usize {
    let coordinator = Embedded::open(&stage.decisions(), Options::default()).unwrap();
    coordinator.list("0").unwrap().transactions.len()
}

/// In all that follows the first transaction commits, and the second is rolled back.
const WORK: &str = r#"
    open -> TX_OK
    declare -> TX_OK
    declare -> TX_OK
    begin -> TX_OK
    get=k -> HOLDFAST_NOT_FOUND NULL
    put=k:one -> TX_OK
    put=empty: -> TX_OK
    get=k -> TX_OK one
    get=empty -> TX_OK empty
    put=gone:one -> TX_OK
    delete=gone -> TX_OK
    get=gone -> HOLDFAST_NOT_FOUND NULL
    delete=gone -> HOLDFAST_NOT_FOUND
    read=1 -> HOLDFAST_NOT_FOUND NULL
    write={"id": 1, "paid": false} -> TX_OK 1
    read=1 -> TX_OK {"id":1,"paid":false}
    write={"id": "ada"} -> TX_OK "ada"
    take="ada" -> TX_OK {"id":"ada"}
    take="ada" -> HOLDFAST_NOT_FOUND NULL
    point=sold:1:2.5 -> TX_OK
    commit -> TX_OK
    begin -> TX_OK
    get=k -> TX_OK one
    put=k:two -> TX_OK
    put=more:two -> TX_OK
    take=1 -> TX_OK {"id":1,"paid":false}
    write={"id": 2} -> TX_OK 2
    point=sold:2:3 -> TX_OK
    rollback -> TX_OK
"#;

fn check_work(stage: &Stage) {
    let store = store(stage);
    let keys = ["k", "empty", "gone", "more"].map(|name| key(&store, name));
    assert_eq!(keys, [Some("one".to_owned()), Some(String::new()), None, None]);
    assert_eq!(entry(&store, 1), Some(Document::from_json(br#"{"id": 1, "paid": false}"#).unwrap()));
    assert_eq!((entry(&store, 2), points(&store, "sold")), (None, vec![(1, 2.5)]));
}

#[test]
fn keys_entries_and_points_are_there_with_the_decision_or_not_at_all() {
    for monkeys in [&[][..], &[(STATIC, "")], &[(STATIC, ""), (ASYNC, "")], &[(ASYNC, ""), (ASYNC, "")]] {
        for ends in ["close -> TX_OK", ""] {
            let stage = Stage::embedded(monkeys);
            plays(&stage, &format!("{WORK}{ends}"));
            check_work(&stage);
            assert_eq!(remembered(&stage), 0, "{monkeys:?}");
        }
    }
    // As objects, of which the one sees what the other has committed.
    let stage = Stage::embedded(&[]);
    plays(
        &stage,
        &format!("a -> now{WORK} b -> now\n open -> TX_OK\n begin -> TX_OK\n get=k -> TX_OK one\n commit -> TX_OK"),
    );
    check_work(&stage);
}

/// A key and an entry that are there.
fn prepare_store(stage: &Stage) {
    let store = store(stage);
    store.kv().put(b"b", b"old", b"v", &PutOptions::default()).unwrap();
    let entries = store.space("s").declare(Definition::new("s", "t")).unwrap();
    entries.write(&Document::from_pairs([("id", 7)]), &WriteOptions::default()).unwrap();
}

/// A program in C would take its indexes away.
#[test]
fn a_type_that_is_there_stays_as_it_is() {
    let stage = Stage::embedded(&[]);
    let definition = Definition::new("s", "t").index("of", IndexKind::Hash).unwrap();
    store(&stage).space("s").declare(definition.clone()).unwrap();
    plays(&stage, "open -> TX_OK\n declare -> TX_OK\n type=other -> now\n declare -> TX_OK");
    let types = store(&stage).space("s").types();
    assert_eq!(types.len(), 2);
    assert!(types.iter().any(|kind| **kind == definition), "{types:?}");
}

/// What is prepared and what is decided rests on what there is to be done.
#[test]
fn one_branch_is_prepared_only_where_something_was_changed_here() {
    let all = "open\nbegin\n{}commit\n";
    for (work, one, two) in [
        ("", "end commit", "end end prepare prepare commit commit"),
        ("get=old\nread=7\ntake=1\ndelete=k\n", "end commit", "end end prepare prepare commit commit"),
        ("put=k:v\n", "end prepare commit", "end end prepare prepare commit commit"),
        ("write={}\n", "end prepare commit", "end end prepare prepare commit commit"),
        ("point=m:1:1\n", "end prepare commit", "end end prepare prepare commit commit"),
        ("delete=old\n", "end prepare commit", "end end prepare prepare commit commit"),
        ("take=7\n", "end prepare commit", "end end prepare prepare commit commit"),
    ] {
        for (monkeys, verbs) in [(&[(STATIC, "")][..], one), (&[(STATIC, ""), (STATIC, "")], two)] {
            let stage = Stage::embedded(monkeys);
            prepare_store(&stage);
            let script = all.replace("{}", work);
            let answers = play(&stage, &script.lines().collect::<Vec<_>>());
            assert_eq!(answers.last().unwrap(), "commit: TX_OK", "{answers:?}");
            assert_eq!(stage.verbs(), verbs, "{work:?}");
            let is_one_phase = stage.calls().iter().any(|call| call == "commit 0 40000000");
            assert_eq!(is_one_phase, verbs == "end commit", "{:?}", stage.calls());
        }
    }
    // A branch that changed nothing drops out, and what is to be done here is done without it.
    let stage = Stage::embedded(&[(STATIC, "prepare XA_RDONLY")]);
    plays(&stage, "open -> TX_OK\n begin -> TX_OK\n put=k:v -> TX_OK\n commit -> TX_OK");
    assert_eq!((key(&store(&stage), "k").as_deref(), stage.verbs().as_str()), (Some("v"), "end prepare"));
    // And one that cannot commit takes it along.
    for script in ["prepare XA_RBDEADLOCK", "end XA_RBROLLBACK"] {
        let stage = Stage::embedded(&[(STATIC, script)]);
        plays(&stage, "open -> TX_OK\n begin -> TX_OK\n put=k:v -> TX_OK\n commit -> TX_ROLLBACK");
        assert_eq!(key(&store(&stage), "k"), None, "{script}");
    }
}

#[test]
fn a_chained_transaction_begins_without_what_the_one_before_did() {
    let stage = Stage::embedded(&[(ASYNC, "")]);
    plays(
        &stage,
        "open -> TX_OK
         chained -> TX_OK
         logged -> TX_OK
         begin -> TX_OK
         put=first:1 -> TX_OK
         commit -> TX_OK
         get=first -> TX_OK 1
         rollback -> TX_OK
         put=second:1 -> TX_OK
         rollback -> TX_OK
         get=second -> HOLDFAST_NOT_FOUND NULL
         put=third:1 -> TX_OK
         commit -> TX_OK
         rollback -> TX_OK",
    );
    let store = store(&stage);
    assert_eq!(["first", "second", "third"].map(|name| key(&store, name).is_some()), [true, false, true]);
}

#[test]
fn what_was_done_goes_with_a_transaction_from_thread_to_thread() {
    let stage = Stage::embedded(&[(STATIC, "")]);
    let words =
        ["open", "begin", "put=k:v", "suspend", "begin", "get=k", "put=other:v", "rollback", "resume-elsewhere"];
    let answers = play(&stage, &words);
    assert_eq!(answers[5], "get=k: HOLDFAST_NOT_FOUND NULL");
    assert_eq!(answers[8], "elsewhere: open=TX_OK resume=TX_OK commit=TX_OK close=TX_OK", "{answers:?}");
    assert_eq!(["k", "other"].map(|name| key(&store(&stage), name).is_some()), [true, false]);
}

#[test]
fn who_read_what_somebody_else_changed_is_rolled_back() {
    let stage = Stage::embedded(&[(STATIC, "")]);
    let beside = "a -> now\n open -> TX_OK\n begin -> TX_OK\n put=k:theirs -> TX_OK\n commit -> TX_OK\n tx -> now\n";
    // When it commits; also where it changed nothing, and its branch would commit in one phase.
    let prefix = "the coordinator does not say that it is committed: ";
    for (read, work, why) in [
        ("HOLDFAST_NOT_FOUND NULL", "put=mine:1 -> TX_OK\n", prefix),
        ("TX_OK theirs", "take=none -> TX_EINVAL NULL\n", ""),
    ] {
        plays(
            &stage,
            &format!(
                "open -> TX_OK\n begin -> TX_OK\n get=k -> {read}\n{work}{beside} commit -> TX_ROLLBACK
                 error -> {why}somebody else changed what this transaction read; begin again
                 begin -> TX_OK\n get=k -> TX_OK theirs\n put=fresh:1 -> TX_OK\n commit -> TX_OK"
            ),
        );
    }
    assert_eq!(stage.verbs(), "end prepare rollback end prepare commit end rollback end prepare commit");
    assert_eq!(["k", "mine", "fresh"].map(|name| key(&store(&stage), name).is_some()), [true, false, true]);
    assert_eq!((stage.prepared(0), remembered(&stage)), (0, 0));
    // Or when it looks again; then it can do nothing more.
    plays(
        &stage,
        &format!(
            "open -> TX_OK\n begin -> TX_OK\n put=mine:1 -> TX_OK\n get=k -> TX_OK theirs\n{}
             get=k -> TX_ROLLBACK NULL
             info -> rollback-only
             put=mine:2 -> TX_ROLLBACK
             error -> the transaction can only be rolled back: a call or a resource manager said so before
             commit -> TX_ROLLBACK",
            beside.replace("theirs", "later")
        ),
    );
    assert_eq!(["k", "mine"].map(|name| key(&store(&stage), name)), [Some("later".to_owned()), None]);
}

#[test]
fn an_entry_is_locked_until_the_transaction_ends_and_waited_for_no_longer_than_it_may_take() {
    let stage = Stage::embedded(&[]);
    plays(
        &stage,
        r#"open -> TX_OK
           declare -> TX_OK
           begin -> TX_OK
           write={"id": 1} -> TX_OK 1
           commit -> TX_OK
           begin -> TX_OK
           read=1 -> TX_OK {"id":1}
           a -> now
           open -> TX_OK
           begin -> TX_OK
           read=1 -> TX_OK {"id":1}
           rollback -> TX_OK
           begin-in=1 -> TX_OK
           write={"id": 1, "by": "a"} -> TX_ROLLBACK NULL
           put=k:v -> TX_ROLLBACK
           error -> the transaction took longer than it may: its timeout is what the program set, or timeout_ms of the profile
           commit -> TX_ROLLBACK
           begin -> TX_OK
           take=1 -> TX_ERROR NULL
           put=goes-on:1 -> TX_OK
           commit -> TX_OK
           tx -> now
           take=1 -> TX_OK {"id":1}
           commit -> TX_OK
           begin -> TX_OK
           read=1 -> HOLDFAST_NOT_FOUND NULL
           commit -> TX_OK"#,
    );
    let store = store(&stage);
    assert_eq!((key(&store, "k"), key(&store, "goes-on").as_deref()), (None, Some("1")));
}

/// It was told so, and nobody waits until it has heard.
#[test]
fn of_two_threads_that_wait_for_each_other_one_is_rolled_back_and_the_other_commits() {
    let stage = Stage::embedded(&[(STATIC, "")]);
    plays(
        &stage,
        r#"open -> TX_OK
           declare -> TX_OK
           begin -> TX_OK
           write={"id": 1} -> TX_OK 1
           write={"id": 2} -> TX_OK 2
           commit -> TX_OK
           deadlock -> one of both
           begin -> TX_OK
           read=1 -> HOLDFAST_NOT_FOUND NULL
           read=2 -> HOLDFAST_NOT_FOUND NULL
           commit -> TX_OK"#,
    );
}

#[test]
fn a_transaction_that_takes_longer_than_it_may_lets_go_of_what_it_has_locked() {
    let stage = Stage::embedded(&[(STATIC, "")]);
    plays(
        &stage,
        r#"open -> TX_OK
           declare -> TX_OK
           begin-in=1 -> TX_OK
           put=k:v -> TX_OK
           write={"id": 1} -> TX_OK 1
           commit -> TX_OK
           begin-in=1 -> TX_OK
           take=1 -> TX_OK {"id":1}
           put=k:late -> TX_OK
           a -> now
           open -> TX_OK
           begin -> TX_OK
           take=1 -> TX_OK {"id":1}
           commit -> TX_OK
           tx -> now
           until-timeout -> over
           put=k:later -> TX_ROLLBACK
           commit -> TX_ROLLBACK"#,
    );
    let store = store(&stage);
    assert_eq!((key(&store, "k").as_deref(), entry(&store, 1)), (Some("v"), None));
}

/// Only the commit knows what a series has.
#[test]
fn a_point_that_does_not_fit_its_series_rolls_everything_back() {
    let stage = Stage::embedded(&[(STATIC, "")]);
    {
        let store = store(&stage);
        let mut rows = Rows::new("default");
        let slot = rows.series(b"m", |_| Ok(("m".to_owned(), vec![("host".to_owned(), "h".to_owned())]))).unwrap();
        rows.push(slot, 1, ValueRef::Text("words"));
        store.series().write(&mut rows).unwrap();
    }
    let answers = play(&stage, &["open", "begin", "put=k:v", "point=m:1:1", "commit", "error"]);
    assert_eq!(values(&answers)[3..5], ["TX_OK", "TX_ROLLBACK"]);
    assert!(answers[5].contains("type"), "{}", answers[5]);
    assert_eq!((key(&store(&stage), "k"), stage.prepared(0)), (None, 0));
}

#[test]
fn work_outside_of_a_transaction_or_without_the_store_is_refused_and_says_why() {
    let stage = Stage::embedded(&[]);
    let words =
        ["put=k:v", "error", "declare", "open", "put=k:v", "error", "get=k", "write={}", "take=1", "point=m:1:1"];
    let answers = play(&stage, &words);
    let refused = "TX_PROTOCOL_ERROR";
    assert_eq!(
        values(&answers),
        [
            refused,
            "nothing is open in this thread: call tx_open first",
            refused,
            "TX_OK",
            refused,
            "the thread is in no transaction",
            "TX_PROTOCOL_ERROR NULL",
            "TX_PROTOCOL_ERROR NULL",
            "TX_PROTOCOL_ERROR NULL",
            refused
        ]
    );
    // A transaction that other programs take part in, and one that is over.
    let answers = play(&stage, &["a", "open", "shared", "put=k:v", "error", "commit", "put=k:v", "error"]);
    assert_eq!(values(&answers)[3..5], ["TX_EINVAL", "a shared transaction cannot change the coordinator's store"]);
    assert_eq!(values(&answers)[6..], ["TX_EINVAL", "the transaction is NULL"]);

    // The coordinator is elsewhere; the transaction goes on.
    let stage = Stage::of_monkeys(&[(STATIC, "")]);
    for words in [
        ["tx", "open", "begin", "put=k:v", "error", "get=k", "declare", "commit"],
        ["a", "open", "begin", "put=k:v", "error", "get=k", "declare", "commit"],
    ] {
        let answers = play(&stage, &words);
        assert_eq!(values(&answers)[3], "TX_EINVAL");
        assert!(
            answers[4].contains("the coordinator's store is not in this process") && answers[4].contains("`directory`"),
            "{}",
            answers[4]
        );
        assert_eq!(values(&answers)[5..], ["TX_EINVAL NULL", "TX_EINVAL", "TX_OK"]);
    }
}

#[test]
fn bad_arguments_are_refused_with_a_reason_and_the_transaction_goes_on() {
    let stage = Stage::embedded(&[]);
    for face in ["tx", "a"] {
        let answers = play(&stage, &[face, "open", "declare", "begin", "put=before:1", "bad", "put=after:1", "commit"]);
        let lines: Vec<Vec<&str>> = answers.iter().map(|line| line.split(" | ").collect()).collect();
        let told: Vec<&Vec<&str>> = lines.iter().filter(|line| line.len() == 3).collect();
        assert_eq!(told.len(), 42, "{answers:?}");
        // A bucket and a key may be empty.
        let well: Vec<_> = told.iter().filter(|line| line[1] != "TX_EINVAL" || line[2].is_empty()).collect();
        assert_eq!(well.len(), 2, "{well:?}");
        assert!(well.iter().all(|line| line[0].contains("\"\", ") && line[1] == "TX_OK"), "{well:?}");
        let reason = |call: &str| {
            // As the preprocessor has it.
            let line = told.iter().find(|line| line[0].replace("((void *)0)", "NULL").contains(call));
            line.unwrap_or_else(|| panic!("{call}"))[2]
        };
        for (call, says) in [
            ("NULL, \"k\", 1, \"v\", 1)", "the bucket is NULL"),
            ("\"b\", NULL, 1, \"v\", 1)", "the key is NULL, and is said to have 1 bytes"),
            ("\"k\", 1, NULL, 1)", "the value is NULL, and is said to have 1 bytes"),
            ("(size_t)-1", "the key cannot have 18446744073709551615 bytes"),
            ("longer, 1 << 20", "1048576 bytes"),
            ("longer, NULL, 0", "a metric, a tag and its value have at most 4096 bytes, not 5000"),
            ("\"k\", 1, NULL, &size)", "the place for the value is NULL"),
            ("\"k\", 1, &value, NULL)", "the place for the value's size is NULL"),
            ("\"other\", \"{}\"", "other"),
            ("\\xff", "the type is not UTF-8"),
            ("\"{\\\"id\\\": 1\"", "JSON"),
            ("\"ada\"", "JSON"),
            ("\"host=a\"", "the tags of the point"),
            ("{\\\"a\\\": 1}", "the value of a is no string"),
            ("tm_declare(NULL", "tm is NULL"),
            ("tx_put(NULL", "the transaction is NULL"),
        ] {
            assert!(reason(call).contains(says), "{call}: {}", reason(call));
        }
        assert!(answers.contains(&"NULL NULL".to_owned()), "{answers:?}");
        assert_eq!(answers.last().unwrap(), "commit: TX_OK");
    }
    assert_eq!(["before", "after", "k"].map(|name| key(&store(&stage), name).is_some()), [true, true, false]);
}

/// An object has the work of its own connection, and that of the store.
#[test]
fn an_object_commits_a_connection_of_its_own_and_the_store_together() {
    let postgres = start_postgres(20);
    let stage = Stage::embedded(&[]);
    let mut command = stage.command(program());
    plays_by(
        command.env("DATABASE_PG", postgres.conninfo()),
        "a -> now
         open -> TX_OK
         pg=CREATE TABLE t (id int PRIMARY KEY) -> done
         begin -> TX_OK
         pg=INSERT INTO t VALUES (1) -> done
         put=k:1 -> TX_OK
         commit -> TX_OK
         begin -> TX_OK
         pg=INSERT INTO t VALUES (2) -> done
         put=k:2 -> TX_OK
         rollback -> TX_OK
         begin -> TX_OK
         pg=INSERT INTO t VALUES (1) -> failed
         put=k:3 -> TX_OK
         commit -> TX_ROLLBACK
         begin -> TX_OK
         get=k -> TX_OK 1
         pg=INSERT INTO t VALUES (3) -> done
         b -> now
         open -> TX_OK
         begin -> TX_OK
         put=k:4 -> TX_OK
         commit -> TX_OK
         a -> now
         commit -> TX_ROLLBACK
         pg=SELECT count(*) FROM t -> 1
         begin -> TX_OK
         get=k -> TX_OK 4
         b -> now
         begin -> TX_OK
         put=k:5 -> TX_OK
         commit -> TX_OK
         a -> now
         get=k -> TX_ROLLBACK NULL
         put=k:6 -> TX_ROLLBACK
         commit -> TX_ROLLBACK
         pg=SELECT count(*) FROM pg_prepared_xacts -> 0",
    );
    assert_eq!(remembered(&stage), 0);
    assert_eq!(key(&store(&stage), "k").as_deref(), Some("5"));
}
