//! Expressions of every shape, and texts that are none: nothing panics, and no answer has a series twice.

use proptest::prelude::*;

use super::tests::{at, during, scope, servers, show};
use super::*;
use crate::model::Model;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}") {
        let _ = at(&Model::default(), &text, 600);
    }

    #[test]
    fn whatever_makes_sense_is_answered_and_no_series_is_there_twice(text in expression()) {
        let model = servers();
        let parsed = Expression::parse(&text, STEP_MS);
        let parsed = parsed.unwrap_or_else(|error| panic!("{text}: {error}"));
        let span = Span { start_ms: 0, end_ms: 1_300_000, step_ms: 50_000 };
        for answer in [parsed.instant(scope(&model), 600_000), parsed.range(scope(&model), span)] {
            match answer {
                Ok(answer) => assert_apart(&text, &answer),
                Err(error) => {
                    let error = error.to_string();
                    let reasons = ["same labelset", "multiple matches", "found duplicate series"];
                    assert!(reasons.iter().any(|reason| error.contains(reason)), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn no_text_of_tokens_makes_it_panic(tokens in proptest::collection::vec(token(), 0..12), glue in "|[ ]") {
        let text = tokens.join(&glue);
        let model = servers();
        let _ = at(&model, &text, 600);
        let _ = during(&model, &text, (0, 600, 60));
    }
}

/// Expressions that could be meant, of every kind of part.
fn expression() -> impl Strategy<Value = String> {
    let number = proptest::sample::select(vec![
        "0",
        "1",
        "-2.5",
        "NaN",
        "Inf",
        "1e300",
        "5m",
        "time()",
        "scalar(load{host=\"a\"})",
    ]);
    let selector = proptest::sample::select(vec![
        "load",
        "requests",
        "disk_used",
        "{host=~\"a|b\"}",
        "load{host!=\"a\"}",
        "nothing",
        "load offset 3m",
        "load @ 300",
        "requests @ end()",
        "vector(1)",
        "{__name__=~\"l.*|disk_.+\"}",
    ]);
    let window = proptest::sample::select(vec![
        "load[5m]",
        "requests[3m] offset -1m",
        "{host=\"a\"}[10m]",
        "nothing[1m]",
        "load[1ms]",
        "requests[100y]",
        "load[5m] @ 0",
    ]);
    let function = proptest::sample::select(vec![
        "rate",
        "increase",
        "delta",
        "irate",
        "idelta",
        "deriv",
        "changes",
        "resets",
        "avg_over_time",
        "min_over_time",
        "sum_over_time",
        "stddev_over_time",
        "last_over_time",
        "absent_over_time",
    ]);
    let leaf = prop_oneof![
        number.clone().prop_map(|number| format!("vector({number})")),
        selector.prop_map(str::to_owned),
        (function.clone(), window.clone()).prop_map(|(function, window)| format!("{function}({window})")),
        (number.clone(), window).prop_map(|(number, window)| format!("quantile_over_time({number}, {window})")),
    ];
    leaf.prop_recursive(5, 20, 2, move |inner| {
        let of_value = proptest::sample::select(vec![
            "abs",
            "ceil",
            "ln",
            "sgn",
            "sort",
            "sort_desc",
            "absent",
            "timestamp",
            "day_of_year",
            "round",
            "-",
            "",
        ]);
        let aggregation = proptest::sample::select(vec![
            "sum(",
            "avg by (host) (",
            "max without (host) (",
            "count by (__name__) (",
            "stddev(",
            "topk(2, ",
            "bottomk by (job) (1, ",
            "quantile(0.5, ",
            "count_values(\"v\", ",
            "group(",
        ]);
        let operator = proptest::sample::select(vec![
            "+",
            "- on (host)",
            "* ignoring (job)",
            "/ on () group_left ()",
            "% on (host) group_right (job)",
            "^",
            "==",
            "> bool",
            "<= on (job)",
            "and",
            "or on (host)",
            "unless ignoring (host)",
            "atan2",
        ]);
        prop_oneof![
            (of_value, inner.clone()).prop_map(|(of, inner)| format!("{of}({inner})")),
            (aggregation, inner.clone()).prop_map(|(aggregation, inner)| format!("{aggregation}{inner})")),
            (inner.clone(), operator, inner.clone())
                .prop_map(|(left, operator, right)| format!("({left} {operator} {right})")),
            (inner.clone(), number.clone()).prop_map(|(left, number)| format!("({left} > {number})")),
            (inner.clone(), number.clone()).prop_map(|(inner, number)| format!("clamp({inner}, {number}, 5)")),
            (function.clone(), inner.clone()).prop_map(|(function, inner)| format!("{function}(({inner})[5m:47s])")),
            inner
                .clone()
                .prop_map(|inner| format!("histogram_quantile(0.5, label_join({inner}, \"le\", \"\", \"host\"))")),
            inner.prop_map(|inner| format!("label_replace({inner}, \"host\", \"$1\", \"job\", \"(.).*\")")),
        ]
    })
}

/// No two lines of an answer have the same labels, and none is empty.
fn assert_apart(text: &str, answer: &Answer) {
    let (Answer::Vector(lines) | Answer::Matrix(lines)) = answer else { return };
    let mut labels: Vec<&Labels> = lines.iter().map(|line| &line.labels).collect();
    labels.sort();
    assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "{text} has series twice: {}", show(answer));
    assert!(lines.iter().all(|line| !line.points.is_empty()), "{text}");
}

fn token() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "load",
        "requests",
        "{host=\"a\"}",
        "{",
        "}",
        "(",
        ")",
        "[5m]",
        "[1m:30s]",
        "[",
        "]",
        ":",
        ",",
        "5m",
        "1e300",
        "-1",
        "0",
        "NaN",
        "Inf",
        "\"a\"",
        "'",
        "`",
        "\\",
        "#",
        "\n",
        "\u{e9}",
        "+",
        "-",
        "*",
        "/",
        "%",
        "^",
        "==",
        "!=",
        ">",
        "<=",
        "=~",
        "!~",
        "=",
        "and",
        "or",
        "unless",
        "atan2",
        "on",
        "ignoring",
        "group_left",
        "bool",
        "by",
        "without",
        "offset",
        "@",
        "start()",
        "end()",
        "sum",
        "topk",
        "quantile",
        "count_values",
        "rate",
        "avg_over_time",
        "quantile_over_time",
        "histogram_quantile",
        "label_replace",
        "scalar",
        "vector",
        "time()",
        "sort",
        "absent",
        "le",
        "fill",
        "smoothed",
        "9223372036854775807",
        "1e19",
        "4d99999999999ms",
        "{{",
        "step()",
    ])
}

/// After a target was replaced, `sum(up)` counted the old one and the new one for five minutes: Prometheus had written when it ended.
#[test]
fn a_series_ends_with_a_staleness_marker_and_goes_on_with_the_next_value() {
    let mut model = Model::default();
    model.put("up", "instance=old", &[(50, 1.0), (60, steps::ABSENT), (200, 3.0), (210, f64::NAN)]);
    model.put("up", "instance=new", &[(65, 1.0)]);
    for (text, seconds, wanted) in [
        (r#"up{instance="old"}"#, 59, r#"up{instance="old"} 1"#),
        (r#"up{instance="old"}"#, 60, ""),
        (r#"up{instance="old"}"#, 70, ""),
        (r#"timestamp(up{instance="old"})"#, 70, ""),
        (r#"up{instance="old"} @ 55"#, 70, r#"up{instance="old"} 1"#),
        (r#"up{instance="old"} offset 15s"#, 70, r#"up{instance="old"} 1"#),
        (r#"absent(up{instance="old"})"#, 70, r#"{instance="old"} 1"#),
        ("sum(up)", 62, ""),
        ("sum(up)", 70, "{} 1"),
        ("sum(up)", 200, "{} 4"),
        // A NaN that is none ends nothing.
        (r#"up{instance="old"}"#, 220, r#"up{instance="old"} NaN"#),
        // What lies in a range stays there.
        (r#"last_over_time(up{instance="old"}[1m])"#, 70, r#"up{instance="old"} 1"#),
        (r#"count_over_time(up{instance="old"}[5m])"#, 200, r#"{instance="old"} 2"#),
        (r#"count_over_time(up{instance="old"}[30s:5s])"#, 70, r#"{instance="old"} 2"#),
    ] {
        assert_eq!(at(&model, text, seconds), wanted, "{text} at {seconds}");
    }
    let steps = r#"up{instance="old"} 1@50000 3@200000"#;
    assert_eq!(during(&model, r#"up{instance="old"}"#, (50, 200, 50)), steps);
}

/// Each doubled what the one within it had made: thirty of them made a label of a gigabyte.
#[test]
fn labels_that_are_made_of_labels_are_bounded() {
    let long = "x".repeat(64);
    let begin = format!("label_replace(vector(1), \"a\", \"{long}\", \"\", \"\")");
    let joined = |times: usize| {
        (0..times).fold(begin.clone(), |inner, _| format!("label_join({inner}, \"a\", \"\", \"a\", \"a\")"))
    };
    let replaced = |times: usize| {
        (0..times).fold(begin.clone(), |inner, _| format!("label_replace({inner}, \"a\", \"$1$1\", \"a\", \"(.*)\")"))
    };
    let wanted = format!("{{a=\"{}\"}} 1", long.repeat(256));
    for made in [&joined as &dyn Fn(usize) -> String, &replaced] {
        assert_eq!(at(&Model::default(), &made(8), 600), wanted);
        for times in [9, 20] {
            let answer = at(&Model::default(), &made(times), 600);
            assert_eq!(answer, "error: bytes of a label's value 32768 is above the limit of 16384");
        }
    }
}
