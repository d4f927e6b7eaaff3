//! Statements that known clients send, and texts that nobody should.

use proptest::prelude::*;

use super::tests::{SECOND, answer, answer_with, machines};
use super::*;
use crate::model::{Model, key};
use crate::value::Value;

const MS: i64 = 1_000_000;

/// Two devices of a group, as iot-benchmark writes them: two sensors, a point every five seconds.
fn devices() -> Model {
    let mut model = Model::default();
    for device in ["d_0", "d_1"] {
        for sensor in ["s_0", "s_1"] {
            for nth in 0..12_i32 {
                let key = key("db", "group_0", &format!("device={device}"), sensor);
                model.write(&key, i64::from(nth) * 5000 * MS, Value::Float(f64::from(nth) + 0.5));
            }
        }
    }
    model
}

fn values(model: &Model, text: &str) -> String {
    let answer = answer_with(model, text, Layout::Plain, Epoch::Units(MS));
    assert!(!answer.contains("\"error\"") && answer.starts_with('{'), "{text}: {answer}");
    answer
        .split_once("\"values\":")
        .map_or_else(String::new, |(_, values)| values.trim_end().trim_end_matches("}]}]}").to_owned())
}

#[test]
fn the_queries_of_iot_benchmark_are_answered() {
    let model = devices();
    for (text, wanted) in [
        ("SELECT s_0 FROM group_0 WHERE (device = 'd_0') AND time = 10000000000", "[[10000,2.5]]"),
        (
            "SELECT s_0, s_1 FROM group_0 WHERE (device='d_0' OR device='d_1') AND time >= 50000000000 AND time <= 55000000000",
            "[[50000,10.5,10.5],[50000,10.5,10.5],[55000,11.5,11.5],[55000,11.5,11.5]]",
        ),
        (
            "SELECT s_0 FROM group_0 WHERE ( device='d_0') AND time >= 0 AND time <= 55000000000 AND s_0 > 9",
            "[[45000,9.5],[50000,10.5],[55000,11.5]]",
        ),
        ("SELECT count(s_0) FROM group_0 WHERE (device='d_0') AND time >= 0 AND time <= 30000000000", "[[0,7]]"),
        ("SELECT count(s_0) FROM group_0 WHERE (device='d_0') AND s_0 > 3.0", "[[0,9]]"),
        (
            "SELECT sum(s_0) FROM group_0 WHERE (device='d_0') AND time >= 0 AND time <= 30000000000 AND s_0 > 3.0",
            "[[0,20]]",
        ),
        (
            "SELECT count(s_0) FROM group_0 WHERE (device='d_0') AND time >= 0 AND time <= 40000000000 group by time(20000ms)",
            "[[0,4],[20000,4],[40000,1]]",
        ),
        ("SELECT last(s_0) FROM group_0 WHERE (device='d_1')", "[[55000,11.5]]"),
        ("SELECT last(s_0), last(s_1) FROM group_0 WHERE (device='d_1')", "[[0,11.5,11.5]]"),
        (
            "SELECT s_0 FROM group_0 WHERE (device='d_0') AND time >= 45000000000 AND time <= 55000000000 ORDER BY time desc",
            "[[55000,11.5],[50000,10.5],[45000,9.5]]",
        ),
    ] {
        assert_eq!(values(&model, text), wanted, "{text}");
    }
}

#[test]
fn the_queries_of_grafana_are_answered() {
    let model = machines();
    for (text, wanted) in [
        (
            r#"SELECT mean("user") FROM "cpu" WHERE ("host" = 'a') AND time >= 0ms and time <= 45000ms GROUP BY time(20s) fill(null)"#,
            "[[0,1.5],[20000,4],[40000,3]]",
        ),
        (
            r#"SELECT non_negative_derivative(mean("user"), 10s) FROM "autogen"."cpu" WHERE ("host" =~ /^(a|b)$/) AND time >= 0ms and time <= 45000ms GROUP BY time(10s), "region"::tag fill(none)"#,
            "[[10000,1],[20000,2]]},{\"name\":\"cpu\",\"tags\":{\"region\":\"us\"},\"columns\":[\"time\",\"non_negative_derivative\"],\"values\":[[10000,10],[20000,20]]",
        ),
        (r#"SELECT last("user") AS "now" FROM "cpu" WHERE time >= now() - 6h"#, "[[40000,30]]"),
        (r#"SELECT "user" FROM "cpu" WHERE $__x = 1"#, ""),
        (r#"SHOW MEASUREMENTS WITH MEASUREMENT =~ /(?i)CP/ LIMIT 100"#, r#"[["cpu"]]"#),
        (r#"SHOW TAG KEYS FROM "cpu""#, r#"[["host"],["region"]]"#),
        (r#"SHOW TAG VALUES FROM "cpu" WITH KEY = "host" WHERE "region" = 'eu' LIMIT 100"#, r#"[["host","a"]]"#),
        (
            r#"SHOW FIELD KEYS FROM "cpu" "#,
            r#"[["idle","float"],["n","integer"],["note","string"],["up","boolean"],["user","float"]]"#,
        ),
        (r#"SHOW RETENTION POLICIES on "db""#, r#"[["autogen","0s","168h0m0s",1,true]]"#),
        ("show databases", r#"[["db"]]"#),
    ] {
        if wanted.is_empty() {
            assert!(answer(&model, text).contains("missing parameter"), "{text}");
            continue;
        }
        let found = values(&model, text);
        assert_eq!(found, wanted, "{text}");
    }
}

#[test]
fn the_statements_of_telegraf_and_others_are_understood() {
    for (text, need) in [
        ("CREATE DATABASE \"telegraf\"", ("telegraf", Need::Write)),
        ("create database t with duration inf replication 1 shard duration 1h name \"autogen\"", ("t", Need::Write)),
        ("CREATE DATABASE t WITH DURATION 0s NAME autogen", ("t", Need::Write)),
        ("DROP DATABASE \"t\"", ("t", Need::Drop)),
        ("DROP SERIES FROM cpu WHERE host='a'", ("db", Need::Write)),
        ("DELETE FROM \"other\".\"autogen\".\"cpu\" WHERE time < now() - 1d", ("other", Need::Write)),
        ("SELECT x FROM (SELECT y FROM other..z)", ("other", Need::Read)),
    ] {
        let statements = parse(text, &Parameters::new()).unwrap();
        let needs = statements[0].needs("db");
        assert_eq!(needs, [(need.0.to_owned(), need.1)], "{text}");
        assert_eq!(statements[0].text(), text);
    }
}

/// `$name`, in all the forms in which clients send what it stands for.
#[test]
fn parameters_stand_for_names_expressions_durations_and_values() {
    let bound = Parameters::from(
        [
            ("host", Parameter::Value(Value::Text("it's".into()))),
            ("b", Parameter::Value(Value::Text("b".into()))),
            ("n", Parameter::Value(Value::Integer(2))),
            ("minus", Parameter::Value(Value::Integer(-3))),
            ("less", Parameter::Value(Value::Float(-1.5))),
            ("more", Parameter::Value(Value::Float(1.5))),
            ("yes", Parameter::Value(Value::Boolean(true))),
            ("at", Parameter::Value(Value::Text("1970-01-01T00:00:10Z".into()))),
            ("field", Parameter::Name("user".to_owned())),
            ("from", Parameter::Name("cpu".to_owned())),
            ("tag", Parameter::Name("host".to_owned())),
            ("any", Parameter::Regex("^[b/]$".to_owned())),
            ("window", Parameter::duration("20s").unwrap()),
            ("back", Parameter::Duration(-20 * SECOND)),
        ]
        .map(|(name, parameter)| (name.to_owned(), parameter)),
    );
    let model = machines();
    let run = |text: &str| -> String {
        let statements = match parse(text, &bound) {
            Ok(statements) => statements,
            Err(error) => return error.to_string(),
        };
        let env = Env { source: &model, database: "db", now: 60 * SECOND, may_see: &|_| true };
        let mut document = Document::new(Layout::Csv, Epoch::Units(SECOND), 1 << 20);
        document.begin(&statements[0]);
        match read(&env, &statements[0], &mut document) {
            Ok(()) => document.end(None),
            Err(error) => document.fail(&error.to_string()),
        }
        let csv = String::from_utf8(document.finish()).unwrap();
        csv.lines().skip(1).collect::<Vec<_>>().join(" ")
    };
    for (text, wanted) in [
        ("SELECT $field FROM $from WHERE $tag = $b LIMIT $n", "cpu,,0,10 cpu,,10,20"),
        ("SELECT $field FROM $from WHERE host = $b AND time > $at", "cpu,,20,40 cpu,,40,30"),
        ("SELECT $field FROM $\"from\" WHERE host =~ $any AND $field > $more LIMIT 1", "cpu,,0,10"),
        ("SELECT $field + $minus, $field * $less FROM cpu WHERE host = $b LIMIT 1", "cpu,,0,7,-15"),
        ("SELECT $field FROM cpu WHERE host = $host", ""),
        ("SELECT $field FROM cpu WHERE up = $yes AND host = 'a'", "cpu,,10,2"),
        (
            "SELECT max($field) FROM cpu WHERE host = $b AND time >= 0s AND time < 40s GROUP BY time($window)",
            "cpu,,0,20 cpu,,20,40",
        ),
        ("SELECT $field FROM cpu WHERE host = $b AND time > now() + $back", ""),
        ("SELECT $field FROM cpu WHERE host = $b AND time >= now() - $window", "cpu,,40,30"),
        ("SELECT x FROM y WHERE h = $other", "error parsing query: missing parameter: other at line 1, char 27"),
        (
            "SELECT x FROM y WHERE h = $",
            "error parsing query: found $ without the name of a parameter at line 1, char 27",
        ),
        (
            "DROP RETENTION POLICY x ON db",
            "error parsing query: retention policies are configured, as [[series.retention]] of the server, and not made by statements at line 1, char 6",
        ),
        (
            "CREATE USER x",
            "error parsing query: users are configured, as [[users]] of the server, and not made by statements at line 1, char 8",
        ),
        (
            "ALTER RETENTION POLICY x",
            "error parsing query: retention policies are configured, as [[series.retention]] of the server, and not made by statements at line 1, char 7",
        ),
        // What was passed over here was missed when points were still there, or gone.
        (
            "CREATE DATABASE d WITH DURATION 7d REPLICATION 1",
            "error parsing query: how long points are kept is configured, as [[series.retention]] of the server, and not by statements: leave DURATION out at line 1, char 33",
        ),
        (
            "CREATE DATABASE d WITH NAME \"week\"",
            "error parsing query: there is one retention policy, autogen: leave NAME out at line 1, char 29",
        ),
        (
            "CREATE DATABASE d WITH x",
            "error parsing query: found x, expected DURATION, REPLICATION, SHARD, NAME at line 1, char 24",
        ),
        (
            "CREATE RETENTION POLICY x ON db DURATION 1d REPLICATION 1",
            "error parsing query: retention policies are configured, as [[series.retention]] of the server, and not made by statements at line 1, char 8",
        ),
        ("KILL QUERY 1", "error parsing query: KILL is not supported at line 1, char 6"),
        ("SELECT x FROM y LIMIT $minus", "error parsing query: found $, expected integer at line 1, char 23"),
    ] {
        assert_eq!(run(text), wanted, "{text}");
    }
    assert_eq!(Parameter::duration("1h30m"), Some(Parameter::Duration(5400 * SECOND)));
    assert_eq!([Parameter::duration(""), Parameter::duration("1h x"), Parameter::duration("5")], [None, None, None]);
}

/// Parses and answers in a thread with as little stack as one of the doors' has.
fn survives(text: String) -> String {
    let run = move || answer(&machines(), &text);
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap()
}

#[test]
fn nesting_ends_in_an_error_before_the_stack_does() {
    for (open, middle, close) in [
        ("(", "user", ")"),
        ("- ", "user", ""),
        ("abs(", "user", ")"),
        ("user + (", "user", ")"),
        ("user + ", "user", ""),
        ("derivative(", "user", ")"),
    ] {
        for (depth, is_fine) in [(20, true), (10_000, false)] {
            let expr = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
            let answer =
                survives(format!("SELECT {expr} FROM cpu WHERE {} user > 0 {}", "(".repeat(depth), ")".repeat(depth)));
            assert_eq!(!answer.contains("error parsing query"), is_fine, "{open} {depth}: {answer}");
        }
    }
    // As deep as it goes: chains at every level.
    let level = format!("{}(", "user+".repeat(20));
    assert!(!survives(format!("SELECT {}user{} FROM cpu", level.repeat(60), ")".repeat(60))).is_empty());
    let many = vec!["user = 1"; 5000].join(" OR ");
    assert!(survives(format!("SELECT user FROM cpu WHERE {many}")).contains("\"values\""));
    let deep = format!("{}SELECT user FROM cpu{}", "SELECT user FROM (".repeat(12), ")".repeat(12));
    assert!(survives(deep).contains("subqueries nest too deeply"));
    assert!(survives(" ".repeat(2 << 20)).contains("above the limit"));
    assert!(
        survives(format!("SELECT user FROM cpu WHERE host =~ /{}/", "(a{1000}){1000}".repeat(3)))
            .contains("bad regular")
    );
}

/// Words from which statements are made, right or wrong.
fn words() -> impl Strategy<Value = String> {
    const WORDS: [&str; 72] = [
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "time",
        "(",
        ")",
        "10s",
        ",",
        "*",
        "user",
        "host",
        "cpu",
        "'a'",
        "=",
        "!=",
        "=~",
        "/a/",
        "AND",
        "OR",
        "mean",
        "count",
        "max",
        "top",
        "derivative",
        "fill",
        "null",
        "linear",
        "ORDER",
        "DESC",
        "LIMIT",
        "OFFSET",
        "SLIMIT",
        "1",
        "1.5",
        "-",
        "+",
        "now",
        "SHOW",
        "TAG",
        "KEYS",
        "VALUES",
        "WITH",
        "KEY",
        "IN",
        "SERIES",
        "MEASUREMENTS",
        "DATABASES",
        "DROP",
        "DELETE",
        ";",
        "::",
        "field",
        ".",
        "\"n\"",
        "AS",
        "x",
        "distinct",
        "percentile",
        ">",
        "<=",
        "<",
        "1h",
        "n",
        "up",
        "true",
        "note",
        "$x",
        "/",
        "%",
        "tz",
    ];
    proptest::collection::vec(0..WORDS.len(), 0..24)
        .prop_map(|some| some.into_iter().map(|at| WORDS[at]).collect::<Vec<_>>().join(" "))
}

/// Selections that are nearly right: what parses is carried out.
pub(super) fn selections() -> impl Strategy<Value = String> {
    let column = prop::sample::select(vec![
        "user",
        "*",
        "mean(user)",
        "max(n)",
        "top(user, host, 2)",
        "count(*)",
        "derivative(mean(user), 1s)",
        "host",
        "up",
        "percentile(n, 90)",
        "user / n",
        "note",
        "last(note)",
        "mode(note)",
        "distinct(up)",
        "sum(up)",
        "elapsed(user)",
        "min(up)",
        "integral(n)",
        "stddev(user)",
        "moving_average(n, 2)",
        "cumulative_sum(up)",
        "abs(n) + 1",
        "first(/u/)",
    ]);
    let from = prop::sample::select(vec![
        "cpu",
        "cpu, mem",
        "/./",
        "(SELECT * FROM cpu)",
        "(SELECT max(user) FROM cpu GROUP BY host)",
        "db..cpu",
    ]);
    let condition = prop::sample::select(vec![
        "",
        "WHERE user > 2",
        "WHERE time > 5s",
        "WHERE host = 'a' OR n > 5",
        "WHERE time = 10s OR up = true",
        "WHERE note =~ /o/",
        "WHERE time > 30s AND time < 20s",
        "WHERE user + n > 20 AND host != ''",
        "WHERE time >= -9223372036854775807",
    ]);
    let group = prop::sample::select(vec![
        "",
        "GROUP BY host",
        "GROUP BY *",
        "GROUP BY time(7s)",
        "GROUP BY time(10000w), host",
        "GROUP BY /o/, nothing",
        "GROUP BY time(10s, -3s) fill(linear)",
        "GROUP BY time(7s), region fill(previous)",
        "GROUP BY time(10s) fill(3)",
    ]);
    let end = prop::sample::select(vec![
        "",
        "ORDER BY time DESC",
        "LIMIT 2",
        "ORDER BY time DESC LIMIT 1",
        "OFFSET 1 SLIMIT 1",
        "SOFFSET 1",
    ]);
    (proptest::collection::vec(column, 1..3), from, condition, group, end).prop_map(
        |(columns, from, condition, group, end)| {
            format!("SELECT {} FROM {from} {condition} {group} {end}", columns.join(", "))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}", made in words()) {
        let _ = parse(&text, &Parameters::new());
        let _ = parse(&format!("SELECT {text}"), &Parameters::new());
        let model = machines();
        answer(&model, &made);
        answer(&model, &format!("SELECT {made}"));
        answer(&model, &format!("SELECT user FROM cpu WHERE {made}"));
    }

    #[test]
    fn whatever_is_selected_answers_are_well_formed(text in selections(), chunk in 1_usize..3) {
        let model = machines();
        let whole = answer_with(&model, &text, Layout::Plain, Epoch::Text);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&whole).is_ok(), "{}: {}", text, whole);
        for line in answer_with(&model, &text, Layout::Chunked(chunk), Epoch::Text).lines() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{}: {}", text, line);
        }
        let pretty = answer_with(&model, &text, Layout::Pretty, Epoch::Text);
        let (pretty, whole): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(&pretty).unwrap(), serde_json::from_str(&whole).unwrap());
        prop_assert_eq!(pretty, whole);
    }
}

/// Sixty of a megabyte each in a hundred statements ended the process.
#[test]
fn large_regular_expressions_are_few_in_a_request() {
    let of = |number: usize, regex: &str| {
        let one = format!("SELECT user FROM cpu WHERE host =~ /{regex}/");
        answer(&machines(), &vec![one; number].join(";"))
    };
    assert!(of(500, "^a$").contains("\"values\"") && !of(500, "^a$").contains("error"));
    assert!(of(64, r"\w{15}|a").contains("\"values\""));
    let refused = of(65, r"\w{15}|a");
    assert!(refused.contains("bad regular expression") && refused.contains("size limit"), "{refused}");
    let many = vec!["host =~ /^a$/"; 1025].join(" OR ");
    let refused = answer(&machines(), &format!("SELECT user FROM cpu WHERE {many}"));
    assert!(refused.contains("number of regular expressions 1025 is above the limit of 1024"), "{refused}");
}
