//! Functions of windows and aggregations against a model that goes through all points for each step and shares no code.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::model::Model;

/// Points of one series, by second.
type Points = BTreeMap<i64, f64>;

/// A few series `x{g=..,n=..}`, with counters that begin again, gaps, and steady ones.
fn series() -> impl Strategy<Value = Vec<Points>> {
    let value = prop_oneof![
        4 => (0..1000i32).prop_map(|n| f64::from(n) / 4.0),
        1 => (-1000..1000i32).prop_map(f64::from),
        1 => Just(f64::NAN),
        1 => Just(1e15),
    ];
    let points = proptest::collection::vec((1..40i64, value), 0..40);
    let points = points.prop_map(|gaps| {
        let mut time = 0;
        let points = gaps.into_iter().map(|(gap, value)| {
            time += gap;
            (time, value)
        });
        points.collect()
    });
    proptest::collection::vec(points, 1..6)
}

fn group(nth: usize) -> &'static str {
    ["a", "b"][nth % 2]
}

fn store(all: &[Points]) -> Model {
    let mut model = Model::default();
    for (nth, points) in all.iter().enumerate() {
        let points: Vec<(i64, f64)> = points.iter().map(|(time, value)| (*time, *value)).collect();
        model.put("x", &format!("g={},n={nth}", group(nth)), &points);
    }
    model
}

/// What an expression is by the evaluator: by labels and second.
fn evaluated(model: &Model, text: &str, span: (i64, i64, i64)) -> BTreeMap<(String, i64), f64> {
    let (start, end, step) = span;
    let span = Span { start_ms: start * 1000, end_ms: end * 1000, step_ms: step * 1000 };
    let scope = Scope { source: model, database: "default", limits: Limits::default(), go_on: &|| true };
    let parsed = Expression::parse(text, span.step_ms).unwrap();
    let Answer::Matrix(lines) = parsed.range(scope, span).unwrap() else { panic!("{text} is no matrix") };
    let points = |line: Line| {
        let of = ["g", "n"].map(|name| line.labels.get(name).to_owned()).join("/");
        line.points.into_iter().map(move |(ms, value)| ((of.clone(), ms / 1000), value))
    };
    lines.into_iter().flat_map(points).collect()
}

fn assert_near(text: &str, found: &BTreeMap<(String, i64), f64>, wanted: &BTreeMap<(String, i64), f64>) {
    assert_eq!(found.keys().collect::<BTreeSet<_>>(), wanted.keys().collect::<BTreeSet<_>>(), "{text}");
    for (at, wanted) in wanted {
        let found = found[at];
        let is_near = (found.is_nan() && wanted.is_nan())
            || found == *wanted
            || (found - wanted).abs() <= 1e-9 * found.abs().max(wanted.abs()).max(1e-3);
        assert!(is_near, "{text} at {at:?}: {found} and not {wanted}");
    }
}

/// The points of a window by their definition.
fn inside(points: &Points, end: i64, range: i64) -> Vec<(f64, f64)> {
    let all = points.iter().filter(|(time, _)| **time > end - range && **time <= end);
    all.map(|(time, value)| (*time as f64, *value)).collect()
}

/// Prometheus' documentation of `extrapolatedRate` in words, done one by one.
fn stretched(window: &[(f64, f64)], end: i64, range: i64, is_counter: bool) -> Option<f64> {
    if window.len() < 2 {
        return None;
    }
    let (first_time, first) = window[0];
    let (last_time, last) = window[window.len() - 1];
    let mut change = last - first;
    if is_counter {
        for nth in 1..window.len() {
            if window[nth].1 < window[nth - 1].1 {
                change += window[nth - 1].1;
            }
        }
    }
    let length = last_time - first_time;
    let apart = length / (window.len() - 1) as f64;
    let mut before = first_time - (end - range) as f64;
    let mut after = end as f64 - last_time;
    if before >= apart * 1.1 {
        before = apart / 2.0;
    }
    if is_counter && change > 0.0 && first >= 0.0 && length * (first / change) < before {
        before = length * (first / change);
    }
    if after >= apart * 1.1 {
        after = apart / 2.0;
    }
    Some(change * ((length + before + after) / length))
}

fn between(q: f64, values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(|a, b| {
        if a.is_nan() {
            std::cmp::Ordering::Less
        } else if b.is_nan() {
            std::cmp::Ordering::Greater
        } else {
            a.partial_cmp(b).unwrap()
        }
    });
    let at = q * (values.len() - 1) as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    low * (1.0 - at.fract()) + high * at.fract()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().map(|value| value / values.len() as f64).sum()
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
}

/// The least by an order, where NaN loses against all.
fn best(values: &[f64], is_before: fn(f64, f64) -> bool) -> f64 {
    let numbers: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    let found = numbers.iter().find(|one| numbers.iter().all(|other| !is_before(*other, **one)));
    found.copied().unwrap_or(f64::NAN)
}

fn of_values(name: &str, values: &[f64]) -> f64 {
    match name {
        "avg" => mean(values),
        "sum" => values.iter().sum(),
        "min" => best(values, |a, b| a < b),
        "max" => best(values, |a, b| a > b),
        "count" => values.len() as f64,
        "stdvar" => variance(values),
        "stddev" => variance(values).sqrt(),
        "group" | "present" => 1.0,
        "last" => values[values.len() - 1],
        "first" => values[0],
        "quantile" => between(0.3, values),
        _ => panic!("{name}"),
    }
}

fn of_window(name: &str, window: &[(f64, f64)], end: i64, range: i64) -> Option<f64> {
    let values: Vec<f64> = window.iter().map(|(_, value)| *value).collect();
    let pairs = || (1..values.len()).map(|nth| (values[nth - 1], values[nth]));
    if let Some(of) = name.strip_suffix("_over_time") {
        return (!values.is_empty()).then(|| of_values(of, &values));
    }
    match name {
        "increase" => stretched(window, end, range, true),
        "rate" => stretched(window, end, range, true).map(|change| change / range as f64),
        "delta" => stretched(window, end, range, false),
        "idelta" => pairs().last().map(|(before, now)| now - before),
        "irate" => {
            let (before, now) = pairs().last()?;
            let seconds = window[window.len() - 1].0 - window[window.len() - 2].0;
            Some(if now < before { now } else { now - before } / seconds)
        }
        "changes" if !values.is_empty() => {
            Some(pairs().filter(|(a, b)| !(a == b || a.is_nan() && b.is_nan())).count() as f64)
        }
        "resets" if !values.is_empty() => Some(pairs().filter(|(a, b)| b < a).count() as f64),
        _ => None,
    }
}

const OF_WINDOW: &[&str] = &[
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "changes",
    "resets",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "last_over_time",
    "first_over_time",
    "present_over_time",
    "quantile_over_time",
];
const AGGREGATIONS: &[&str] = &["sum", "avg", "min", "max", "count", "group", "quantile"];

/// Numbers so different in size that squares of them lose all digits are left out where squares are taken.
fn is_tame(all: &[Points]) -> bool {
    all.iter().flat_map(BTreeMap::values).all(|value| value.abs() < 1e9)
}

fn steps((start, end, step): (i64, i64, i64)) -> impl Iterator<Item = i64> {
    (start..=end).step_by(usize::try_from(step).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn functions_of_windows_are_what_their_definitions_say(
        all in series(),
        range in 1..300i64,
        step in 1..200i64,
        start in -50..200i64,
        offset in -60..60i64,
    ) {
        let model = store(&all);
        let span = (start, 600, step);
        let mut names = OF_WINDOW.to_vec();
        if is_tame(&all) {
            names.extend(["stdvar_over_time", "stddev_over_time"]);
        }
        for name in names {
            let param = if name == "quantile_over_time" { "0.3, " } else { "" };
            let text = format!("{name}({param}x[{range}s] offset {offset}s)");
            // An offset of nothing is no duration.
            let text = text.replace(" offset 0s", "");
            let mut wanted = BTreeMap::new();
            for (nth, points) in all.iter().enumerate() {
                for at in steps(span) {
                    let window = inside(points, at - offset, range);
                    if let Some(value) = of_window(name, &window, at - offset, range) {
                        wanted.insert((format!("{}/{nth}", group(nth)), at), value);
                    }
                }
            }
            assert_near(&text, &evaluated(&model, &text, span), &wanted);
        }
    }

    #[test]
    fn aggregations_are_what_their_definitions_say(all in series(), step in 1..200i64, start in -50..200i64) {
        let model = store(&all);
        let span = (start, 900, step);
        let mut names = AGGREGATIONS.to_vec();
        if is_tame(&all) {
            names.extend(["stdvar", "stddev"]);
        }
        let mut groups: BTreeMap<(String, i64), Vec<f64>> = BTreeMap::new();
        for (nth, points) in all.iter().enumerate() {
            for at in steps(span) {
                if let Some((_, value)) = inside(points, at, 300).last() {
                    groups.entry((format!("{}/", group(nth)), at)).or_default().push(*value);
                }
            }
        }
        for name in names {
            let param = if name == "quantile" { "0.3, " } else { "" };
            let wanted = groups.iter().map(|(at, values)| (at.clone(), of_values(name, values))).collect();
            for text in [format!("{name} by (g) ({param}x)"), format!("{name}({param}x) without (n)")] {
                assert_near(&text, &evaluated(&model, &text, span), &wanted);
            }
        }
        // Of a group the two largest stay, by their numbers; which of two equal ones is not said.
        let kept = evaluated(&model, "topk by (g) (2, x)", span);
        for ((of, at), values) in &groups {
            let mut found: Vec<f64> = kept.iter().filter(|((labels, time), _)| labels.starts_with(of.as_str()) && time == at).map(|(_, value)| *value).collect();
            let mut wanted: Vec<f64> = values.iter().map(|value| if value.is_nan() { f64::NEG_INFINITY } else { *value }).collect();
            found.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = f64::NEG_INFINITY);
            found.sort_by(f64::total_cmp);
            wanted.sort_by(f64::total_cmp);
            assert_eq!(found, wanted[wanted.len().saturating_sub(2)..]);
        }
    }

    #[test]
    fn one_moment_is_what_the_range_is_there(all in series(), at in 0..900i64, range in 1..200i64) {
        let model = store(&all);
        let scope = Scope { source: &model, database: "default", limits: Limits::default(), go_on: &|| true };
        for text in [format!("rate(x[{range}s])"), "x > 50".into(), "sum by (g) (x) / on (g) group_right () x".into(), "max_over_time(x[2m:17s])".into()] {
            let over = evaluated(&model, &text, (at - 70, at + 70, 7));
            let parsed = Expression::parse(&text, 1).unwrap();
            let Answer::Vector(lines) = parsed.instant(scope, at * 1000).unwrap() else { panic!("{text} is no vector") };
            let there: BTreeMap<_, _> = lines.iter().map(|line| (["g", "n"].map(|name| line.labels.get(name)).join("/"), line.points[0].1.to_bits())).collect();
            let wanted: BTreeMap<_, _> = over.into_iter().filter(|((_, time), _)| *time == at).map(|((of, _), value)| (of, value.to_bits())).collect();
            assert_eq!(there, wanted, "{text}");
        }
    }
}
