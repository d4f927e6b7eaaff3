//! Expressions and what they are, in tables.

use std::fmt::Write as _;

use super::*;
use crate::model::{Bounded, Model, key};
use crate::value::Value;

const STEP: i64 = 60;

/// Points a minute apart from second 0 on: `1 2 _ 4`, or `0+10x5` for five steps of 10 after 0. `_` is none.
fn load(model: &mut Model, series: &[(&str, &str, &str)]) {
    for (metric, tags, values) in series {
        let mut at = 0;
        let mut put = |value: Option<f64>| {
            if let Some(value) = value {
                model.put(metric, tags, &[(at, value)]);
            }
            at += STEP;
        };
        for value in values.split(' ') {
            match value.split_once('x') {
                Some((line, count)) => {
                    let (start, slope) = line.split_once('+').unwrap_or((line, "0"));
                    let (start, slope): (f64, f64) = (start.parse().unwrap(), slope.parse().unwrap());
                    (0..=count.parse().unwrap()).for_each(|nth: i32| put(Some(start + slope * f64::from(nth))));
                }
                None => put(value.parse().ok()),
            }
        }
    }
}

pub(super) fn scope(model: &Model) -> Scope<'_> {
    Scope { source: model, database: "default", limits: Limits::default(), go_on: &|| true }
}

pub(super) fn show(answer: &Answer) -> String {
    let number = |value: f64| {
        let mut text = String::new();
        write_float(value, &mut text);
        text
    };
    match answer {
        Answer::Scalar(_, value) => number(*value),
        Answer::Text(_, text) => format!("{text:?}"),
        Answer::Vector(lines) => {
            let lines = lines.iter().map(|line| format!("{} {}", line.labels, number(line.points[0].1)));
            lines.collect::<Vec<_>>().join("; ")
        }
        Answer::Matrix(lines) => {
            let lines = lines.iter().map(|line| {
                let mut text = line.labels.to_string();
                line.points.iter().for_each(|(ms, value)| write!(text, " {}@{ms}", number(*value)).unwrap());
                text
            });
            lines.collect::<Vec<_>>().join("; ")
        }
    }
}

pub(super) fn at(model: &Model, text: &str, seconds: i64) -> String {
    match Expression::parse(text, STEP_MS).and_then(|parsed| parsed.instant(scope(model), seconds * 1000)) {
        Ok(answer) => show(&answer),
        Err(error) => format!("error: {error}"),
    }
}

pub(super) fn during(model: &Model, text: &str, (start, end, step): (i64, i64, i64)) -> String {
    let span = Span { start_ms: start * 1000, end_ms: end * 1000, step_ms: step * 1000 };
    match Expression::parse(text, span.step_ms).and_then(|parsed| parsed.range(scope(model), span)) {
        Ok(answer) => show(&answer),
        Err(error) => format!("error: {error}"),
    }
}

fn check(model: &Model, seconds: i64, table: &[(&str, &str)]) {
    for (text, wanted) in table {
        assert_eq!(at(model, text, seconds), *wanted, "{text} at {seconds}");
    }
}

pub(super) fn servers() -> Model {
    let mut model = Model::default();
    load(
        &mut model,
        &[
            ("requests", "job=api,host=a", "0+60x20"),
            ("requests", "job=api,host=b", "0+120x20"),
            ("requests", "job=web,host=c", "0+180x20"),
            ("load", "job=api,host=a", "1 2 3 4 5 6 7 8 9 10 11"),
            ("load", "job=api,host=b", "10x10"),
            ("load", "job=web,host=c", "-3 -2 -1 0 1 2 3 4 5 6 7"),
        ],
    );
    model.write(&key("default", "disk", "host=a", "used"), 600_000_000_000, Value::Integer(7));
    model.write(&key("default", "disk", "host=a", "full"), 600_000_000_000, Value::Boolean(true));
    model.write(&key("default", "disk", "host=a", "name"), 600_000_000_000, Value::Text("sda".into()));
    model.write(&key("other", "load", "host=z", "value"), 600_000_000_000, Value::Float(99.0));
    model
}

#[test]
fn selectors_find_series_by_name_and_labels() {
    check(
        &servers(),
        600,
        &[
            (r#"load{host="a"}"#, r#"load{host="a", job="api"} 11"#),
            (r#"{__name__="load",host="a"}"#, r#"load{host="a", job="api"} 11"#),
            (r#"{host="c",job!=""}"#, r#"load{host="c", job="web"} 7; requests{host="c", job="web"} 1800"#),
            (r#"load{host!="a"}"#, r#"load{host="b", job="api"} 10; load{host="c", job="web"} 7"#),
            (r#"load{host=~"a|c"}"#, r#"load{host="a", job="api"} 11; load{host="c", job="web"} 7"#),
            (r#"load{host=~"[ab]", host!~"b.*"}"#, r#"load{host="a", job="api"} 11"#),
            // Anchored: `oa` is a part of the name.
            (r#"{__name__=~"oa"}"#, ""),
            (r#"{__name__=~"lo.d",host="a"}"#, r#"load{host="a", job="api"} 11"#),
            (r#"{__name__=~"disk_.*"}"#, r#"disk_full{host="a"} 1; disk_used{host="a"} 7"#),
            (r#"disk_used"#, r#"disk_used{host="a"} 7"#),
            // Text is no number, and booleans are.
            (r#"disk_name"#, ""),
            (r#"disk_full"#, r#"disk_full{host="a"} 1"#),
            (r#"{__name__!="load",host="a",job=""}"#, r#"disk_full{host="a"} 1; disk_used{host="a"} 7"#),
            ("nothing", ""),
            (
                r#"{__name__="load",host="a" or __name__="load",host="c"}"#,
                r#"load{host="a", job="api"} 11; load{host="c", job="web"} 7"#,
            ),
            (r#"load{host="z"}"#, ""),
        ],
    );
}

#[test]
fn series_whose_metric_and_field_make_one_name_are_one() {
    let mut model = Model::default();
    model.write(&key("default", "a_b", "", "value"), 1_000_000_000, Value::Float(1.0));
    model.write(&key("default", "a", "", "b"), 2_000_000_000, Value::Float(2.0));
    model.write(&key("default", "a", "", "b_c"), 2_000_000_000, Value::Float(3.0));
    check(
        &model,
        3,
        &[
            ("a_b", "a_b 2"),
            ("a_b[3s]", "a_b 1@1000 2@2000"),
            ("a_b_c", "a_b_c 3"),
            (r#"{__name__=~"a_b|a_b_c"}"#, "a_b 2; a_b_c 3"),
            (r#"{__name__=~"a_b.*"}"#, "a_b 2; a_b_c 3"),
            ("a_b_value", ""),
        ],
    );
}

#[test]
fn a_value_lasts_five_minutes_and_not_longer() {
    let mut model = Model::default();
    model.put("x", "", &[(1000, 1.0), (1001, f64::from_bits(0x7ff0_0000_0000_0002)), (1100, f64::NAN)]);
    check(&model, 1000, &[("x", "x 1"), ("x @ 999", ""), ("x @ 1299", "x NaN"), ("x offset 1s", "")]);
    check(&model, 1001, &[("x", ""), ("x offset 1s", "x 1"), ("x offset -99s", "x NaN"), ("x[10s]", "x 1@1000000")]);
    check(&model, 1399, &[("x", "x NaN")]);
    check(&model, 1400, &[("x", "")]);
}

#[test]
fn numbers_and_texts_are_computed_with() {
    check(
        &Model::default(),
        1_709_210_096,
        &[
            ("1 + 2 * 3 ^ 2", "19"),
            ("-2 ^ 2", "-4"),
            ("5 % 3 - 10 / 4", "-0.5"),
            ("1 > bool 2", "0"),
            ("0 / 0", "NaN"),
            ("1 / 0", "+Inf"),
            ("0x1F", "31"),
            ("\"a\\\"b\"", "\"a\\\"b\""),
            ("time()", "1709210096"),
            ("pi() > bool 3", "1"),
            ("vector(3)", "{} 3"),
            ("scalar(vector(4)) + 1", "5"),
            ("scalar(x)", "NaN"),
            ("hour() + minute() / 100", "{} 12.34"),
            ("days_in_month(vector(951782400))", "{} 29"),
            ("absent(x{a=\"1\",b=~\"2\"})", "{a=\"1\"} 1"),
            ("absent_over_time(x{a=\"1\"}[5m])", "{a=\"1\"} 1"),
            ("absent(vector(1))", ""),
            ("clamp(vector(5), 1, 3)", "{} 3"),
            ("clamp(vector(5), 3, 1)", ""),
            ("clamp_min(vector(-5), 0) + clamp_max(vector(9), 7)", "{} 7"),
            ("round(vector(2.5)) + round(vector(-2.5))", "{} 1"),
            ("round(vector(5.17), 0.1)", "{} 5.2"),
            ("sgn(vector(-3)) + abs(vector(-3)) + sqrt(vector(16)) + log2(vector(8))", "{} 9"),
            ("vector(5) > 3", "{} 5"),
            ("3 < vector(5)", "{} 5"),
            ("3 > vector(5)", ""),
            ("3 > bool vector(5)", "{} 0"),
            ("vector(7) atan2 vector(7) < 1", "{} 0.7853981633974483"),
        ],
    );
}

#[test]
fn changes_within_windows_are_stretched_to_their_edges() {
    let mut model = Model::default();
    load(
        &mut model,
        &[
            ("steady", "", "0+60x30"),
            // A counter that begins again in the third minute.
            ("again", "", "100 160 220 40 100 160"),
            ("gauge", "", "10 5 20 15"),
            ("late", "", "_ _ _ _ _ _ _ _ 1 61 121"),
        ],
    );
    check(
        &model,
        600,
        &[
            ("rate(steady[5m])", "{} 1"),
            // Five samples, four minutes apart, in a window of five that begins just after one.
            ("increase(steady[5m])", "{} 300"),
            ("increase(steady[5m] offset 2m30s)", "{} 300"),
            ("irate(steady[5m])", "{} 1"),
            ("idelta(steady[5m])", "{} 60"),
            ("deriv(steady[5m])", "{} 1"),
            ("predict_linear(steady[5m], 60)", "{} 660"),
            ("rate(steady[1m])", ""),
            ("delta(gauge[4m] @ 200)", "{} 6.666666666666666"),
            ("changes(gauge[5m] @ 200)", "{} 3"),
            ("resets(gauge[5m] @ 200)", "{} 2"),
            // It was 1 after eight minutes: it cannot have been less than zero before, so a sixtieth of a minute is added.
            ("increase(late[10m])", "{} 121"),
        ],
    );
    // 60 + 60 + 40 + 60 + 60, as if from five minutes before.
    check(&model, 300, &[("increase(again[5m1s])", "{} 280.93333333333334"), ("resets(again[6m])", "{} 1")]);
}

#[test]
fn windows_are_summed_up() {
    let mut model = Model::default();
    load(&mut model, &[("x", "", "2 8 0 6 NaN 4")]);
    check(
        &model,
        180,
        &[
            ("avg_over_time(x[5m])", "{} 4"),
            ("sum_over_time(x[5m])", "{} 16"),
            ("count_over_time(x[5m])", "{} 4"),
            ("min_over_time(x[5m])", "{} 0"),
            ("max_over_time(x[5m])", "{} 8"),
            ("stdvar_over_time(x[5m])", "{} 10"),
            ("stddev_over_time(x[5m]) ^ 2", "{} 10.000000000000002"),
            ("quantile_over_time(0.5, x[5m])", "{} 4"),
            ("present_over_time(x[5m])", "{} 1"),
            ("last_over_time(x[5m])", "x 6"),
            ("first_over_time(x[5m])", "x 2"),
            // The start of a window is not in it.
            ("sum_over_time(x[2m])", "{} 6"),
            ("sum_over_time(x[2m1ms])", "{} 14"),
            ("x[2m]", "x 0@120000 6@180000"),
            ("max_over_time(x[1m] offset 1h)", ""),
            // VictoriaMetrics' window of one step, and its aggregation of a window.
            ("max_over_time(x)", "{} 8"),
            ("count({__name__=\"x\"}[60000ms])", "{} 1"),
        ],
    );
    check(
        &model,
        300,
        &[
            ("max_over_time(x[2m])", "{} 4"),
            ("sum_over_time(x[2m])", "{} NaN"),
            ("changes(x[5m])", "{} 4"),
            ("max_over_time(sum_over_time(x[1m])[4m:1m])", "{} 6"),
            ("avg_over_time((x * 2)[2m:1m] offset 2m)", "{} 6"),
            ("count_over_time(x[10m:150s])", "{} 3"),
        ],
    );
}

#[test]
fn series_are_aggregated_by_labels() {
    check(
        &servers(),
        600,
        &[
            ("sum(load)", "{} 28"),
            ("sum by (job) (load)", r#"{job="api"} 21; {job="web"} 7"#),
            ("sum without (host) (load)", r#"{job="api"} 21; {job="web"} 7"#),
            ("avg by (job) (load)", r#"{job="api"} 10.5; {job="web"} 7"#),
            ("min(load) + max(load) * 100", "{} 1107"),
            ("count by (job, missing) (load)", r#"{job="api"} 2; {job="web"} 1"#),
            ("count by (__name__) ({job=\"web\"})", "load 1; requests 1"),
            ("group(load)", "{} 1"),
            ("stdvar by (job) (load)", r#"{job="api"} 0.25; {job="web"} 0"#),
            ("stddev by (job) (load)", r#"{job="api"} 0.5; {job="web"} 0"#),
            ("quantile(0.5, load)", "{} 10"),
            ("quantile(2, load)", "{} +Inf"),
            ("topk(2, load)", r#"load{host="a", job="api"} 11; load{host="b", job="api"} 10"#),
            ("bottomk by (job) (1, load)", r#"load{host="b", job="api"} 10; load{host="c", job="web"} 7"#),
            ("topk(0, load)", ""),
            ("count_values(\"load\", load > 9)", r#"{load="11"} 1; {load="10"} 1"#),
            (
                "sort(load)",
                r#"load{host="c", job="web"} 7; load{host="b", job="api"} 10; load{host="a", job="api"} 11"#,
            ),
            ("sort_desc(load < 11)", r#"load{host="b", job="api"} 10; load{host="c", job="web"} 7"#),
            ("sum(nothing)", ""),
            ("sum(rate(requests[5m]))", "{} 6"),
        ],
    );
}

#[test]
fn two_sides_go_together_by_their_labels() {
    check(
        &servers(),
        600,
        &[
            (
                "requests / load",
                r#"{host="a", job="api"} 54.54545454545455; {host="b", job="api"} 120; {host="c", job="web"} 257.14285714285717"#,
            ),
            ("load > on (host) (requests / 100)", r#"{host="a"} 11"#),
            ("load >= ignoring (job) requests", ""),
            ("load > bool load", r#"{host="a", job="api"} 0; {host="b", job="api"} 0; {host="c", job="web"} 0"#),
            (
                "load / on (job) group_left () sum by (job) (load)",
                r#"{host="a", job="api"} 0.5238095238095238; {host="b", job="api"} 0.47619047619047616; {host="c", job="web"} 1"#,
            ),
            (
                "sum by (job) (load) - on (job) group_right () load",
                r#"{host="a", job="api"} 10; {host="b", job="api"} 11; {host="c", job="web"} 0"#,
            ),
            (
                "load * on (host) group_left (extra) label_replace(load, \"extra\", \"x-$1\", \"host\", \"(a)\")",
                r#"{extra="x-a", host="a", job="api"} 121; {host="b", job="api"} 100; {host="c", job="web"} 49"#,
            ),
            (
                "load / on (job) sum by (job) (load)",
                "error: multiple matches for labels: many series of the left side go with {job=\"api\"}: many-to-one matching must be explicit (group_left/group_right)",
            ),
            (
                "sum by (job) (load) / on (job) load",
                "error: found duplicate series for the match group {job=\"api\"}: load{host=\"a\", job=\"api\"} and load{host=\"b\", job=\"api\"}; many-to-many matching not allowed: matching labels must be unique on one side",
            ),
            ("load and requests > 1000", r#"load{host="b", job="api"} 10; load{host="c", job="web"} 7"#),
            ("load unless on (host) (requests > 1000)", r#"load{host="a", job="api"} 11"#),
            ("load{host=\"a\"} or on (job) load", r#"load{host="a", job="api"} 11; load{host="c", job="web"} 7"#),
            ("-load{host=\"a\"}", r#"{host="a", job="api"} -11"#),
            ("load == 10", r#"load{host="b", job="api"} 10"#),
            ("load > -1 < 8", r#"load{host="c", job="web"} 7"#),
        ],
    );
}

#[test]
fn series_that_only_their_names_told_apart_are_not_mixed() {
    let text = at(&servers(), "{host=\"b\"} * 1", 600);
    assert!(text.contains("vector cannot contain metrics with the same labelset"), "{text}");
}

#[test]
fn labels_are_made_of_labels() {
    check(
        &servers(),
        600,
        &[
            ("label_replace(load{host=\"a\"}, \"job\", \"\", \"host\", \".*\")", r#"load{host="a"} 11"#),
            (
                "label_replace(load{host=\"a\"}, \"n\", \"$job\", \"job\", \"(?P<job>a).*\")",
                r#"load{host="a", job="api", n="a"} 11"#,
            ),
            ("label_replace(load{host=\"a\"}, \"n\", \"x\", \"job\", \"p\")", r#"load{host="a", job="api"} 11"#),
            (
                "label_join(load{host=\"a\"}, \"n\", \"-\", \"job\", \"none\", \"host\")",
                r#"load{host="a", job="api", n="api--a"} 11"#,
            ),
            ("timestamp(load{host=\"a\"} offset 30s)", r#"{host="a", job="api"} 540"#),
        ],
    );
}

#[test]
fn quantiles_of_histograms_lie_within_buckets() {
    let mut model = Model::default();
    load(
        &mut model,
        &[
            ("latency_bucket", "le=0.1,op=r", "0 10"),
            ("latency_bucket", "le=0.5,op=r", "0 30"),
            ("latency_bucket", "le=1,op=r", "0 40"),
            ("latency_bucket", "le=+Inf,op=r", "0 40"),
            ("latency_bucket", "le=1,op=w", "0 5"),
            ("latency_bucket", "le=+Inf,op=w", "0 10"),
            ("latency_bucket", "le=1,op=x", "0 5"),
        ],
    );
    check(
        &model,
        60,
        &[
            ("histogram_quantile(0.5, latency_bucket)", r#"{op="r"} 0.30000000000000004; {op="w"} 1; {op="x"} NaN"#),
            ("histogram_quantile(0.9, latency_bucket{op=\"w\"})", r#"{op="w"} 1"#),
            ("histogram_quantile(0.125, latency_bucket{op=\"r\"})", r#"{op="r"} 0.05"#),
            ("histogram_quantile(2, latency_bucket{op=\"r\"})", r#"{op="r"} +Inf"#),
            ("histogram_quantile(0.75, sum by (le) (rate(latency_bucket{op=\"r\"}[5m])))", "{} 0.5"),
        ],
    );
}

#[test]
fn a_range_is_evaluated_at_each_step() {
    let model = servers();
    for (text, span, wanted) in [
        (r#"load{host="c"} > 0"#, (180, 360, 60), r#"load{host="c", job="web"} 1@240000 2@300000 3@360000"#),
        ("sum(load)", (0, 130, 60), "{} 8@0 10@60000 12@120000"),
        ("1", (0, 100, 50), "{} 1@0 1@50000 1@100000"),
        ("time()", (5, 5, 1), "{} 5@5000"),
        (r#"load{host="a"} @ 120"#, (600, 660, 60), r#"load{host="a", job="api"} 3@600000 3@660000"#),
        (
            r#"load{host="a"} @ end() - load{host="a"} @ start()"#,
            (0, 600, 300),
            r#"{host="a", job="api"} 10@0 10@300000 10@600000"#,
        ),
        (r#"increase(requests{host="a"}[2m])"#, (600, 900, 300), r#"{host="a", job="api"} 120@600000 120@900000"#),
        // Windows far from each other.
        (r#"sum_over_time(load{host="a"}[3m])"#, (-86_280, 86_400, 86_400), r#"{host="a", job="api"} 6@120000"#),
        ("topk(1, load)", (0, 600, 600), r#"load{host="a", job="api"} 11@600000; load{host="b", job="api"} 10@0"#),
        // The value before the first step is looked back for, and what lies beyond the last is not seen.
        (r#"max_over_time(load{host="a"})"#, (300, 540, 120), r#"{host="a", job="api"} 6@300000 8@420000 10@540000"#),
        (r#"max_over_time(rate(requests{host="c"}[2m])[5m:])"#, (600, 600, 1), r#"{host="c", job="web"} 3@600000"#),
        (
            "load[5m]",
            (0, 1, 1),
            "error: a range of points stands where a value of each series has to: use a function such as rate",
        ),
        ("1", (1, 0, 1), "error: end timestamp must not be before start time"),
        ("1", (0, 1, 0), "error: zero or negative query resolution step widths are not accepted: try a positive step"),
        (
            "1",
            (0, 11_001, 1),
            "error: exceeded maximum resolution of 11000 points per timeseries: try a step of at least 1001 ms",
        ),
    ] {
        assert_eq!(during(&model, text, span), wanted, "{text}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (text, wanted) in [
        ("histogram_avg(x)", "the function histogram_avg is not supported"),
        ("limitk(2, x)", "the aggregation limitk is not supported"),
        ("sum(mad_over_time(x[5m]))", "the function mad_over_time is not supported"),
        ("x[5m+1m]", "arithmetic in durations is not supported: write a window as [5m]"),
        ("x[5m] smoothed", "cannot parse the expression: "),
        ("rate(x[5m] anchored)", "cannot parse the expression: "),
        ("x[step()]", "expressions in place of durations are not supported"),
        ("start() - end()", "the function "),
        ("info(x)", "the function info is not supported"),
        ("ts_of_max_over_time(x[5m])", "the function ts_of_max_over_time is not supported"),
        ("{{schema:1}}", "cannot parse the expression: "),
        ("x + fill(0) y", "fill in a binary operation is not supported"),
        ("{}", "cannot parse the expression: "),
        ("foo(x)", "cannot parse the expression: "),
        ("sum(", "cannot parse the expression: "),
        ("", "cannot parse the expression: "),
        ("{a=~\"(\"}", "bad regular expression \"(\": "),
    ] {
        let text = Expression::parse(text, 1000).unwrap_err().to_string();
        assert!(text.starts_with(wanted), "{text}");
    }
}

#[test]
fn a_query_ends_when_it_takes_too_much() {
    let model = servers();
    let span = Span { start_ms: 0, end_ms: 600_000, step_ms: 60_000 };
    let limited = |limits: Limits, go_on: &dyn Fn() -> bool| {
        let parsed = Expression::parse("sum(load) + sum(load)", 1000).unwrap();
        parsed.range(Scope { limits, go_on, ..scope(&model) }, span).map_err(|error| error.to_string())
    };
    assert!(limited(Limits::default(), &|| true).is_ok());
    let few = Limits { points_max: 33, ..Limits::default() };
    assert_eq!(limited(few, &|| true), Err("points of one query 44 is above the limit of 33".to_owned()));
    let narrow = Limits { cells_max: 50, ..Limits::default() };
    assert_eq!(limited(narrow, &|| true), Err("values of series at steps 55 is above the limit of 50".to_owned()));
    assert_eq!(limited(Limits::default(), &|| false), Err("the query took too long".to_owned()));
}

#[test]
fn the_deepest_expression_that_is_read_fits_on_a_small_stack() {
    let model = servers();
    let deep = scan::DEPTH_MAX;
    let texts = [
        format!("{}1{}", "(".repeat(deep), ")".repeat(deep)),
        format!("{}1", "-".repeat(deep)),
        format!("load{}", " or load".repeat(deep)),
        format!("{}load{}", "abs(".repeat(deep), ")".repeat(deep)),
        format!("{}load{}", "sum(".repeat(deep), ")".repeat(deep)),
        format!("{}load{}", "sum_over_time(".repeat(deep / 2), "[1m:1m])".repeat(deep / 2)),
        format!("1{}", "^1".repeat(deep)),
    ];
    let ask = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || texts.iter().map(|text| at(&model, text, 600)).collect::<Vec<_>>());
    for answer in ask.unwrap().join().unwrap() {
        assert!(!answer.starts_with("error"), "{answer}");
    }
}

#[test]
fn selectors_of_match_parameters_are_selectors_alone() {
    let model = servers();
    let found = Selector::parse("{host=\"c\"}").unwrap().labels(&model, "default", i64::MIN).unwrap();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, [r#"load{host="c", job="web"}"#, r#"requests{host="c", job="web"}"#]);
    let later = Selector::having("host").labels(&model, "default", 601_000_000_000).unwrap();
    assert_eq!(later.len(), 3);
    for text in ["load[5m]", "sum(load)", "load offset 5m", "1", "{}", ""] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
    let selects = Selector::parse("{__name__=~\"disk_(used|full)\",host=\"a\"}").unwrap();
    let selects = selects.selects(&model, "default").unwrap();
    let found: Vec<_> = selects.iter().flat_map(|select| model.series(select).unwrap()).collect();
    assert_eq!(found.iter().map(|series| series.key.field.as_str()).collect::<Vec<_>>(), ["full", "used"]);
}

/// Numbers without series were in no limit: 45 additions within a subquery of 20 million steps took 7 GB, and its text has 250 bytes.
#[test]
fn numbers_at_many_steps_are_bounded_as_series_are() {
    let nothing = Model::default();
    let ask = |text: &str, memory: u64, cells_max: u64| {
        let source = Bounded::new(&nothing, memory);
        let limits = Limits { cells_max, ..Limits::default() };
        let scope = Scope { source: &source, database: "default", limits, go_on: &|| true };
        let answered = Expression::parse(text, STEP_MS).unwrap().instant(scope, 600_000);
        (answered.map(|answer| show(&answer)), source.most())
    };
    let nested = (0..45).fold("1".to_owned(), |inner, _| format!("1+({inner})"));
    for inner in [
        format!("vector({nested})"),
        "vector(1)".to_owned(),
        "vector(time())".to_owned(),
        "vector(pi())".to_owned(),
        "absent(x)".to_owned(),
        "absent_over_time(x[5m])".to_owned(),
        "hour()".to_owned(),
        "vector(scalar(x))".to_owned(),
        "sum(vector(1))".to_owned(),
    ] {
        let text = format!("sum_over_time({inner}[19999999s:1s])");
        let (answered, most) = ask(&text, 16 << 20, 20_000_000);
        assert!(matches!(answered, Err(Error::Memory { .. })) && most <= 16 << 20, "{text}: {answered:?}");
        // With few steps each is counted too.
        let text = format!("sum_over_time({inner}[1000s:1s])");
        let (answered, most) = ask(&text, 16 << 20, 20_000_000);
        assert!(answered.is_ok() && most >= 1000 * 16, "{text}: {answered:?}, {most} bytes");
        let (answered, _) = ask(&text, 16 << 20, 500);
        assert!(matches!(answered, Err(Error::Limit { .. })), "{text}: {answered:?}");
    }
    let (answered, most) = ask(&format!("sum_over_time(vector({nested})[1000s:1s])"), 16 << 20, 20_000_000);
    assert_eq!(answered.unwrap(), "{} 46000");
    assert!(most > 46 * 1000 * 8, "each of them is counted: {most} bytes");
}

/// One series in a long window at many steps was worked at to its end, whoever waited.
#[test]
fn long_windows_ask_whether_to_go_on() {
    let mut model = Model::default();
    let points: Vec<(i64, f64)> = (0..20_000).map(|second| (second, 1.0)).collect();
    model.put("x", "", &points);
    let source = Bounded::new(&model, u64::MAX);
    let span = Span { start_ms: 18_000_000, end_ms: 19_999_000, step_ms: 20_000 };
    let expression = Expression::parse("sum_over_time(x[1d])", STEP_MS).unwrap();
    expression.range(Scope { source: &source, ..scope(&model) }, span).unwrap();
    // Two million values.
    assert!((20..100).contains(&source.asked()), "{}", source.asked());
}
