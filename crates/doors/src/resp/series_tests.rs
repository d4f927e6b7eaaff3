//! TS.*: what they answer, and that inside MULTI their points are in one batch with everything else.
//!
//! May use: the fixture of `handle_tests.rs`. Must not know: sockets.

use super::*;
use crate::auth::{BucketRight, Right};

#[test]
fn points_are_added_and_read_back_as_what_they_are() {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("TS.ADD cpu,host=a 1356998400 1.5", ":1356998400000000000"),
        ("TS.ADD cpu 1356998401123 7 TAGS host a", ":1356998401123000000"),
        ("TS.ADD cpu,host=a 1356998402 NaN", ":1356998402000000000"),
        (
            "TS.RANGE cpu - + TAGS host a",
            "*3 *2 :1356998400000000000 $3 1.5 *2 :1356998401123000000 $1 7 *2 :1356998402000000000 $3 nan",
        ),
        ("TS.RANGE cpu,host=a 1356998400 1356998401 COUNT 5", "*1 *2 :1356998400000000000 $3 1.5"),
        ("TS.RANGE cpu,host=a - + COUNT 1", "*1 *2 :1356998400000000000 $3 1.5"),
        ("TS.RANGE cpu - +", "*0"),
        ("TS.LAST cpu,host=a", "*2 :1356998402000000000 $3 nan"),
        ("TS.LAST cpu,host=b", "$-1"),
        ("TS.ADD n 1 7 FIELD count DB plant", ":1000000000"),
        ("TS.LAST n FIELD count DB plant", "*2 :1000000000 :7"),
        ("TS.LAST n FIELD count", "$-1"),
        ("TS.MADD DB plant a 1 1 b,x=y 2 2.5 a 3 3", "*3 :1000000000 :2000000000 :3000000000"),
        ("TS.RANGE a - + DB plant", "*2 *2 :1000000000 :1 *2 :3000000000 :3"),
        ("TS.QUERY sum(a) AT 3 DB plant", "*1 *2 *0 *1 *2 :3000 $1 3"),
        (
            "TS.QUERY a FROM 3 TO 5 STEP 1000 DB plant",
            "*1 *2 *2 $8 __name__ $1 a *3 *2 :3000 $1 3 *2 :4000 $1 3 *2 :5000 $1 3",
        ),
        ("TS.QUERY 1+1 AT 3", "*2 :3000 $1 2"),
    ]);
    assert!(fixture.run("TS.ADD cpu,host=a * 1").starts_with(':'));
    assert_eq!(fixture.door.numbers().points.unwrap().written, 8);
}

#[test]
fn what_is_wrong_is_told_and_nothing_of_it_is_written() {
    let mut fixture = Fixture::new();
    for (line, wanted) in [
        (
            "TS.ADD cpu now 1",
            "-ERR invalid time 'now': the time is not a number of digits; write * for now, seconds since 1970, or with 13, 16 or 19 digits ms, us or ns",
        ),
        ("TS.ADD cpu 1 x", "-ERR invalid value 'x': write a number such as 7, 1.5 or NaN"),
        (
            "TS.ADD cpu 1 1e400",
            "-ERR invalid value '1e400': it is out of range: doubles reach from -1.7976931348623157e308 to 1.7976931348623157e308",
        ),
        ("TS.ADD cpu,a 1 1", "-ERR invalid tag 'a': a tag is a name, = and a value"),
        ("TS.ADD cpu,a=1 1 1 TAGS a 2", "-ERR the tag a is there twice"),
        ("TS.ADD cpu 1 1 TAGS a", "-ERR TAGS is followed by names, each with its value"),
        ("TS.ADD cpu 1 1 COUNT 1", "-ERR syntax error"),
        ("TS.ADD cpu 1 1 DB", "-ERR syntax error"),
        ("TS.ADD cpu 1 1 DB \"\"", "-ERR a name is empty"),
        ("TS.ADD \"\" 1 1", "-ERR the name of the metric is empty"),
        ("TS.MADD good 1 1 bad 1", "-ERR wrong number of arguments for 'ts.madd' command"),
        (
            "TS.MADD good 1 1 bad x 1",
            "-ERR invalid time 'x': the time is not a number of digits; write * for now, seconds since 1970, or with 13, 16 or 19 digits ms, us or ns",
        ),
        ("TS.MADD good 1 1 bad,x 1 1", "-ERR invalid tag 'x': a tag is a name, = and a value"),
        ("TS.MADD DB x", "-ERR wrong number of arguments for 'ts.madd' command"),
        (
            "TS.RANGE cpu x +",
            "-ERR invalid time 'x': the time is not a number of digits; write * for now, seconds since 1970, or with 13, 16 or 19 digits ms, us or ns",
        ),
        ("TS.RANGE cpu - + COUNT x", "-ERR COUNT is a whole number"),
    ] {
        assert_eq!(fixture.run(line), wanted, "{line}");
    }
    assert!(fixture.run("TS.QUERY sum(").starts_with("-ERR "));
    assert_eq!(fixture.run("TS.RANGE good - +"), "*0");
    assert_eq!(fixture.door.numbers().points.unwrap().written, 0);
}

#[test]
fn inside_multi_points_are_one_batch_with_keys_and_entries() {
    let mut fixture = Fixture::new();
    fixture.run("SPACE.DECLARE shop orders");
    let before = fixture.door.store.stats().batches;
    fixture.check(&[
        ("MULTI", "+OK"),
        ("SET k v", "+QUEUED"),
        ("TS.ADD cpu 1 1", "+QUEUED"),
        ("TS.MADD DB plant a 1 1 b 2 2", "+QUEUED"),
        ("TS.ADD cpu x 1", "+QUEUED"),
    ]);
    fixture.run_args(&[b"SPACE.WRITE", b"shop", b"orders", br#"{"id":1}"#]);
    let reply = fixture.run("EXEC");
    assert!(reply.starts_with("*5 +OK :1000000000 *2 :1000000000 :2000000000 -ERR invalid time 'x'"), "{reply}");
    assert_eq!(fixture.door.store.stats().batches, before + 1);
    fixture.check(&[
        ("GET k", "$1 v"),
        ("TS.LAST cpu", "*2 :1000000000 :1"),
        ("TS.LAST b DB plant", "*2 :2000000000 :2"),
        ("SPACE.COUNT shop orders ANY", ":1"),
    ]);
    // Only points.
    fixture.check(&[
        ("MULTI", "+OK"),
        ("TS.ADD cpu 2 2", "+QUEUED"),
        ("EXEC", "*1 :2000000000"),
        ("TS.LAST cpu", "*2 :2000000000 :2"),
    ]);
    // What is discarded leaves nothing behind.
    fixture.check(&[
        ("MULTI", "+OK"),
        ("TS.ADD cpu 3 3", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("WATCH k", "+OK"),
        ("SET k w", "+OK"),
        ("MULTI", "+OK"),
        ("TS.ADD cpu 4 4", "+QUEUED"),
        ("EXEC", "*-1"),
        ("MULTI", "+OK"),
        ("SET other v", "+QUEUED"),
        ("EXEC", "*1 +OK"),
        ("TS.LAST cpu", "*2 :2000000000 :2"),
        ("MULTI", "+OK"),
        ("TS.LAST cpu", "+QUEUED"),
        ("TS.ADD cpu 5 5", "+QUEUED"),
        ("TS.LAST cpu", "+QUEUED"),
        (
            "EXEC",
            "*3 *2 :2000000000 :2 :5000000000 -ERR TS.LAST does not see points of the same transaction: read before TS.ADD and TS.MADD",
        ),
        ("TS.LAST cpu", "*2 :5000000000 :5"),
    ]);
}

#[test]
fn points_that_the_store_refuses_discard_the_transaction() {
    let mut fixture = Fixture::new();
    let tags: String = (0..65).map(|at| format!(",t{at}=1")).collect();
    let reason = "a series has at most 64 tags, not 65";
    assert_eq!(fixture.run(&format!("TS.ADD cpu{tags} 1 1")), format!("-ERR {reason}"));
    assert_eq!(fixture.run(&format!("TS.MADD good 1 1 cpu{tags} 1 1")), format!("-ERR {reason}"));
    fixture.check(&[("MULTI", "+OK"), ("SET k v", "+QUEUED")]);
    fixture.run(&format!("TS.ADD cpu{tags} 1 1"));
    assert_eq!(fixture.run("EXEC"), format!("-EXECABORT Transaction discarded: ERR {reason}"));
    fixture.check(&[("GET k", "$-1"), ("TS.LAST good", "$-1"), ("TS.ADD good 1 1", ":1000000000")]);
}

/// They were acknowledged, and shown by no query.
#[test]
fn points_that_are_older_than_they_are_kept_are_refused() {
    let mut fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let mut options = holdfast::Options { durability: Durability::Written, ..holdfast::Options::default() };
    let (database, metric) = ("*".to_owned(), "short".to_owned());
    options.series.retention =
        vec![holdfast::series::Retention { database, metric, keep: std::time::Duration::from_secs(3600) }];
    let store = Store::open(dir.path(), options).unwrap();
    fixture.door = Arc::new(Door::new(store, Options::new("127.0.0.1:0".parse().unwrap()), fixture.door.address));
    fixture.session = Fixture::session(&fixture.door);
    let reason = "ERR points beyond retention policy";
    fixture.check(&[
        ("TS.ADD short 1356998400 1", format!("-{reason}").as_str()),
        ("TS.MADD short * 1 short 1356998400 2", format!("-{reason}").as_str()),
        ("TS.RANGE short - +", "*0"),
        ("TS.ADD long 1356998400 1", ":1356998400000000000"),
        ("MULTI", "+OK"),
        ("SET k v", "+QUEUED"),
        ("TS.ADD short 1 1", "+QUEUED"),
        ("EXEC", format!("-EXECABORT Transaction discarded: {reason}").as_str()),
        ("GET k", "$-1"),
    ]);
    assert!(fixture.run("TS.ADD short * 1").starts_with(':'));
}

/// TS.ADD, TS.MADD and EXEC were neither slowed nor bounded: memory grew for as long as points came faster than they were sealed.
#[test]
fn who_writes_points_faster_than_they_are_sealed_is_held_back_off_the_event_loop() {
    let mut fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let mut options = holdfast::Options { durability: Durability::Written, ..holdfast::Options::default() };
    // One point is too many, so that whoever writes the next one waits until it is sealed.
    options.limits.series_memory_bytes = 0;
    let store = Store::open(dir.path(), options).unwrap();
    fixture.door = Arc::new(Door::new(store, Options::new("127.0.0.1:0".parse().unwrap()), fixture.door.address));
    fixture.session = Fixture::session(&fixture.door);
    let (mut held, mut second) = ([0; 2], 0);
    // Sealing may be quicker than this, so it takes some tries to find it at it.
    while held.contains(&0) && second < 1_000 {
        second += 4;
        let [a, b, c, d] = [1, 2, 3, 4].map(|more| (second + more).to_string());
        fixture.check(&[(format!("TS.ADD cpu {a} 1").as_str(), format!(":{a}000000000").as_str())]);
        held[0] += usize::from(fixture.door.store.series().is_crowded());
        let wanted = format!("*2 :{b}000000000 :{c}000000000");
        fixture.check(&[(format!("TS.MADD cpu {b} 2 cpu {c} 3").as_str(), wanted.as_str()), ("MULTI", "+OK")]);
        assert!(
            fixture.session.last_write > Position::ZERO && fixture.session.need.written == fixture.session.last_write
        );
        held[1] += usize::from(fixture.door.store.series().is_crowded());
        fixture.check(&[(format!("TS.ADD cpu {d} 4").as_str(), "+QUEUED"), ("SET k v", "+QUEUED")]);
        fixture.check(&[("EXEC", format!("*2 :{d}000000000 +OK").as_str())]);
    }
    assert!(second < 1_000, "held back {held:?}");
    let written = fixture.door.numbers().points.unwrap();
    assert_eq!((written.written, written.batches), (second as u64, second as u64 / 4 * 3));
    assert!(fixture.run("TS.RANGE cpu - +").starts_with(&format!("*{second} ")), "each is there once");
}

#[test]
fn questions_that_need_more_memory_than_there_is_are_refused_and_give_it_back() {
    let mut fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let mut options = holdfast::Options { durability: Durability::Written, ..holdfast::Options::default() };
    options.limits.series_query_memory_bytes = 64 << 10;
    let store = Store::open(dir.path(), options).unwrap();
    fixture.door = Arc::new(Door::new(store, Options::new("127.0.0.1:0".parse().unwrap()), fixture.door.address));
    fixture.session = Fixture::session(&fixture.door);
    let points: Vec<String> = (1..=5_000).map(|second| format!("m {second} 1.5")).collect();
    assert!(fixture.run(&format!("TS.MADD {}", points.join(" "))).starts_with("*5000 "));
    for _ in 0..2 {
        for query in ["TS.RANGE m - +", "TS.QUERY max_over_time(m[2h]) AT 5000", "TS.QUERY m FROM 1 TO 5000 STEP 1000"]
        {
            let refused = fixture.run(query);
            let is_refused = refused.starts_with("-LIMIT ") && refused.contains("(series.query_memory_bytes)");
            assert!(is_refused, "{query}: {refused}");
            assert_eq!(fixture.door.store.stats().series.query_bytes, 0, "{query}");
        }
        fixture.check(&[("TS.RANGE m 4999 5000", "*2 *2 :4999000000000 $3 1.5 *2 :5000000000000 $3 1.5")]);
        assert_eq!(fixture.door.store.stats().series.query_bytes, 0);
    }
}

#[test]
fn a_user_has_rights_on_databases_as_on_buckets() {
    let mut fixture = Fixture::new();
    let mut user = User::admin("ada", "unused");
    user.buckets = vec![
        BucketRight { pattern: "plant".to_owned(), right: Right::Write },
        BucketRight { pattern: "default".to_owned(), right: Right::Read },
    ];
    fixture.session.user = Some(Arc::new(user));
    fixture.check(&[
        ("TS.ADD cpu 1 1 DB plant", ":1000000000"),
        ("TS.ADD cpu 1 1", "-NOPERM this user has no permissions for the database default"),
        ("TS.LAST cpu", "$-1"),
        ("TS.LAST cpu DB other", "-NOPERM this user has no permissions for the database other"),
        ("TS.QUERY cpu DB other", "-NOPERM this user has no permissions for the database other"),
    ]);
}

/// Each connection kept the names of 65,536 series, however long they were.
#[test]
fn a_connection_remembers_the_names_of_few_series() {
    let mut fixture = Fixture::new();
    fixture.run("TS.ADD cpu,host=a 1 1");
    let little = fixture.session.points.name_bytes();
    assert!(little > 0, "some it does");
    let long = "a".repeat(4000);
    for nth in 0..400 {
        fixture.run(&format!("TS.ADD cpu,host={nth}{long} 1 1"));
        if nth % 50 == 0 {
            fixture.check(&[("MULTI", "+OK"), (&format!("TS.ADD cpu,host={nth}b{long} 1 1"), "+QUEUED")]);
            fixture.run("EXEC");
        }
        assert!(fixture.session.points.name_bytes() <= 1 << 20);
    }
}

/// Points of a transaction that was discarded stayed with the connection, and its next TS.ADD wrote them.
#[test]
fn points_of_a_transaction_that_is_discarded_are_never_written() {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("SET k text", "+OK"),
        ("MULTI", "+OK"),
        ("TS.ADD cpu 1 1", "+QUEUED"),
        ("INCR k", "+QUEUED"),
        ("EXEC POSITION", "-EXECABORT Transaction discarded: ERR value is not an integer or out of range"),
        ("TS.ADD cpu 2 2", ":2000000000"),
        ("TS.RANGE cpu - +", "*1 *2 :2000000000 :2"),
    ]);
}
