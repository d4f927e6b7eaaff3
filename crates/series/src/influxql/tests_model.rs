//! Functions, windows and fills against an implementation that is slow and obvious: for each window look at all points.
//!
//! Nothing here uses anything of the evaluator but its answers.

use proptest::prelude::*;
use serde_json::Value as Json;

use super::tests::{SECOND, answer_with};
use super::{Epoch, Layout};
use crate::model::{Model, key};
use crate::value::Value;

/// A point: which of the hosts, seconds, value.
type Point = (usize, i64, f64);
type Row = (i64, Option<f64>);

const HOSTS: [&str; 3] = ["a", "b", "c"];

fn model(points: &[Point], whole: bool) -> Model {
    let mut model = Model::default();
    model.put("m", "host=a", &[(1, 1.0)]);
    model.write(&key("db", "other", "host=a", "x"), 0, Value::Float(1.0));
    for (host, time, value) in points {
        #[expect(clippy::cast_possible_truncation, reason = "the values of tests are small")]
        let written = if whole { Value::Integer(*value as i64) } else { Value::Float(*value) };
        model.write(&key("db", "m", &format!("host={}", HOSTS[*host]), "x"), time * SECOND, written);
    }
    model
}

fn rows(model: &Model, text: &str) -> Vec<Row> {
    let whole = answer_with(model, text, Layout::Plain, Epoch::Units(SECOND));
    let whole: Json = serde_json::from_str(&whole).unwrap_or_else(|_| panic!("{text}: {whole}"));
    let result = &whole["results"][0];
    assert!(result.get("error").is_none(), "{text}: {result}");
    let values = result["series"][0]["values"].as_array().cloned().unwrap_or_default();
    values.iter().map(|row| (row[0].as_i64().unwrap(), row[1].as_f64())).collect()
}

/// What is written last counts; in the order of times, then of hosts.
fn distinct_points(points: &[Point], from: i64, to: i64) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        kept.retain(|old| (old.0, old.1) != (point.0, point.1));
        if (from..=to).contains(&point.1) {
            kept.push(*point);
        }
    }
    kept.sort_by_key(|(host, time, _)| (*time, *host));
    kept
}

fn sorted(points: &[Point]) -> Vec<f64> {
    let mut values: Vec<f64> = points.iter().map(|point| point.2).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The results of a function of some points, each with the time of its point where it has one.
#[expect(clippy::cast_precision_loss, reason = "the counts of tests are small")]
fn naive(function: &str, points: &[Point]) -> Vec<(Option<i64>, Option<f64>)> {
    let Some(first) = points.first() else { return Vec::new() };
    let count = points.len() as f64;
    let sum: f64 = points.iter().map(|point| point.2).sum();
    let ordered = sorted(points);
    let (least, greatest) = (ordered[0], *ordered.last().unwrap());
    let at = |value: f64| points.iter().find(|point| point.2 == value).unwrap().1;
    let of_time = |time: i64| {
        let same = points.iter().filter(|point| point.1 == time).map(|point| point.2);
        (Some(time), Some(same.fold(f64::NEG_INFINITY, f64::max)))
    };
    let ranked = |is_top: bool| {
        let mut all = points.to_vec();
        all.sort_by(|a, b| if is_top { b.2.total_cmp(&a.2) } else { a.2.total_cmp(&b.2) });
        all.truncate(2);
        all.sort_by_key(|(_, time, _)| *time);
        all.into_iter().map(|(_, time, value)| (Some(time), Some(value))).collect::<Vec<_>>()
    };
    let mut different = ordered.clone();
    different.dedup();
    let one = |value: f64| vec![(None, Some(value))];
    match function {
        "count(x)" => one(count),
        "sum(x)" => one(sum),
        "mean(x)" => one(sum / count),
        "min(x)" => vec![(Some(at(least)), Some(least))],
        "max(x)" => vec![(Some(at(greatest)), Some(greatest))],
        "first(x)" => vec![of_time(first.1)],
        "last(x)" => vec![of_time(points.last().unwrap().1)],
        "spread(x)" => one(greatest - least),
        "median(x)" => {
            let half = ordered.len() / 2;
            one(if ordered.len() % 2 == 1 { ordered[half] } else { (ordered[half - 1] + ordered[half]) / 2.0 })
        }
        "stddev(x)" if points.len() < 2 => vec![(None, None)],
        "stddev(x)" => {
            let mean = sum / count;
            one((points.iter().map(|point| (point.2 - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt())
        }
        "mode(x)" => {
            // The most frequent value; of values that are there once the least.
            let times = |value: f64| points.iter().filter(|point| point.2 == value).count();
            let most = different.iter().map(|value| times(*value)).max().unwrap();
            let best: Vec<f64> = different.iter().copied().filter(|value| times(*value) == most).collect();
            if best.len() == 1 || most == 1 { one(best[0]) } else { Vec::new() }
        }
        "percentile(x, 30)" => {
            let rank = (count * 30.0 / 100.0).round();
            let rank = ordered.iter().zip(1..).find(|(_, nth)| f64::from(*nth) == rank).map(|(value, _)| *value);
            rank.into_iter().map(|value| (None, Some(value))).collect()
        }
        "distinct(x)" => {
            let mut came: Vec<f64> = Vec::new();
            points.iter().for_each(|point| {
                if !came.contains(&point.2) {
                    came.push(point.2)
                }
            });
            came.into_iter().map(|value| (None, Some(value))).collect()
        }
        "count(distinct(x))" => one(different.len() as f64),
        "top(x, 2)" => ranked(true),
        "bottom(x, 2)" => ranked(false),
        _ => panic!("{function}"),
    }
}

const FUNCTIONS: [&str; 16] = [
    "count(x)",
    "sum(x)",
    "mean(x)",
    "min(x)",
    "max(x)",
    "first(x)",
    "last(x)",
    "spread(x)",
    "median(x)",
    "stddev(x)",
    "mode(x)",
    "percentile(x, 30)",
    "distinct(x)",
    "count(distinct(x))",
    "top(x, 2)",
    "bottom(x, 2)",
];

/// Whether several values are the mode, of which InfluxDB's choice is not worth a second implementation.
fn is_tied(function: &str, points: &[Point]) -> bool {
    function == "mode(x)" && naive(function, points).is_empty() && !points.is_empty()
}

fn windowed(function: &str, points: &[Point], every: i64, offset: i64) -> Vec<Row> {
    let start = |time: i64| (time - offset).div_euclid(every) * every + offset;
    let mut starts: Vec<i64> = points.iter().map(|point| start(point.1)).collect();
    starts.dedup();
    let keeps = function.starts_with("top") || function.starts_with("bottom");
    let mut rows = Vec::new();
    for window in starts {
        let inside: Vec<Point> = points.iter().copied().filter(|point| start(point.1) == window).collect();
        for (time, value) in naive(function, &inside) {
            rows.push((time.filter(|_| keeps).unwrap_or(window), value));
        }
    }
    rows
}

fn filled(function: &str, rows: &[Row], every: i64, (first, last): (i64, i64), fill: &str) -> Vec<Row> {
    let is_whole = matches!(function, "count(x)" | "count(distinct(x))");
    if rows.is_empty() || fill == "none" || ["top", "bottom", "distinct"].iter().any(|name| function.starts_with(name))
    {
        return rows.to_vec();
    }
    let mut all = Vec::new();
    let mut time = first;
    while time <= last {
        let before = rows.iter().rev().find(|row| row.0 < time);
        let after = rows.iter().find(|row| row.0 > time);
        let value = match rows.iter().find(|row| row.0 == time) {
            Some((_, value)) => *value,
            None => match fill {
                "null" if is_whole => Some(0.0),
                "previous" => before.and_then(|row| row.1),
                "7" => Some(7.0),
                "linear" => match (before, after) {
                    (Some((t0, Some(v0))), Some((t1, Some(v1)))) => {
                        #[expect(clippy::cast_precision_loss, reason = "the times of tests are small")]
                        let value = v0 + (v1 - v0) * (time - t0) as f64 / (t1 - t0) as f64;
                        Some(if is_whole { (value + 1e-9).floor() } else { value })
                    }
                    _ => None,
                },
                _ => None,
            },
        };
        all.push((time, value));
        time += every;
    }
    all
}

fn is_same(left: &[Row], right: &[Row]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| {
            left.0 == right.0
                && match (left.1, right.1) {
                    (Some(left), Some(right)) => (left - right).abs() <= 1e-9 * (1.0 + right.abs()),
                    (left, right) => left.is_none() && right.is_none(),
                }
        })
}

fn points() -> impl Strategy<Value = Vec<Point>> {
    let value = (-20_i32..20).prop_map(|half| f64::from(half) / 2.0);
    proptest::collection::vec((0_usize..3, 0_i64..100, value), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_function_with_every_window_and_fill_answers_as_the_obvious_one(
        all in points(),
        every in 1_i64..30,
        offset in -40_i64..40,
        from in 0_i64..50,
        length in 0_i64..60,
        descending in any::<bool>(),
    ) {
        let (store, to) = (model(&all, false), from + length);
        let kept = distinct_points(&all, from, to);
        let start = |time: i64| (time - offset).div_euclid(every) * every + offset;
        for function in FUNCTIONS {
            if (-60..=110).any(|window| {
                let inside: Vec<Point> = kept.iter().copied().filter(|point| start(point.1) == window).collect();
                is_tied(function, &inside)
            }) {
                continue;
            }
            let found = windowed(function, &kept, every, offset);
            for fill in ["none", "null", "previous", "linear", "7"] {
                // What comes before is what comes after in the other direction.
                if descending && fill == "previous" {
                    continue;
                }
                let mut wanted = filled(function, &found, every, (start(from), start(to)), fill);
                let order = if descending { wanted.reverse(); "DESC" } else { "ASC" };
                if descending && function == "distinct(x)" || descending && function.contains('2') && !function.starts_with('c') {
                    wanted.sort_by_key(|row| std::cmp::Reverse(row.0));
                    continue;
                }
                let text = format!(
                    "SELECT {function} FROM m WHERE time >= {from}s AND time <= {to}s \
                     GROUP BY time({every}s, {offset}s) fill({fill}) ORDER BY time {order}"
                );
                let answered = rows(&store, &text);
                prop_assert!(is_same(&answered, &wanted), "{}\n{:?}\n{:?}", text, answered, wanted);
            }
        }
    }

    #[test]
    fn without_windows_functions_answer_once_for_each_tag(all in points(), from in 0_i64..50, length in 0_i64..60) {
        let (store, to) = (model(&all, false), from + length);
        for function in FUNCTIONS {
            for (host, name) in HOSTS.iter().enumerate() {
                let kept: Vec<Point> =
                    distinct_points(&all, from, to).into_iter().filter(|point| point.0 == host).collect();
                if is_tied(function, &kept) {
                    continue;
                }
                let wanted: Vec<Row> = naive(function, &kept).into_iter().map(|(time, value)| (time.unwrap_or(from), value)).collect();
                let text = format!("SELECT {function} FROM m WHERE time >= {from}s AND time <= {to}s AND host = '{name}'");
                let mut answered = rows(&store, &text);
                if function.starts_with("percentile") {
                    // Which of equal values is chosen is all that differs.
                    answered.iter_mut().for_each(|row| row.0 = from);
                }
                prop_assert!(is_same(&answered, &wanted), "{}\n{:?}\n{:?}", text, answered, wanted);
            }
        }
    }

    #[test]
    fn functions_of_rows_are_computed_from_neighbours(all in points(), every in 1_i64..30, whole in any::<bool>()) {
        let store = model(&all, whole);
        let only: Vec<Point> = distinct_points(&all, 0, 1000).into_iter().filter(|point| point.0 == 1).collect();
        let raw: Vec<(i64, f64)> = only.iter().map(|point| (point.1, if whole { point.2.trunc() } else { point.2 })).collect();
        let sums: Vec<(i64, f64)> = {
            let mut sums: Vec<(i64, f64)> = Vec::new();
            for (time, value) in &raw {
                let start = time.div_euclid(every) * every;
                match sums.last_mut().filter(|last| last.0 == start) {
                    Some(last) => last.1 += value,
                    None => sums.push((start, *value)),
                }
            }
            sums
        };
        for (of, tail, rows_of) in [
            ("x", String::new(), &raw),
            ("sum(x)", format!(" AND time < 100s GROUP BY time({every}s) fill(none)"), &sums),
        ] {
            #[expect(clippy::cast_precision_loss, reason = "the times of tests are small")]
            let pairs = |make: &dyn Fn(f64, f64, f64) -> Option<f64>| -> Vec<Row> {
                let pairs = rows_of.windows(2);
                let made = pairs.map(|pair| (pair[1].0, make(pair[0].1, pair[1].1, (pair[1].0 - pair[0].0) as f64)));
                made.filter(|row| row.1.is_some()).collect()
            };
            let running = |count: usize| -> Vec<Row> {
                rows_of.windows(count).map(|some| (some[count - 1].0, Some(some.iter().map(|one| one.1).sum::<f64>() / f64::from(u8::try_from(count).unwrap())))).collect()
            };
            let mut total = 0.0;
            let cumulated: Vec<Row> = rows_of.iter().map(|(time, value)| { total += value; (*time, Some(total)) }).collect();
            let table: Vec<(String, Vec<Row>)> = vec![
                (format!("difference({of})"), pairs(&|old, new, _| Some(new - old))),
                (format!("non_negative_difference({of})"), pairs(&|old, new, _| Some(new - old).filter(|it| *it >= 0.0))),
                (format!("derivative({of}, 2s)"), pairs(&|old, new, time| Some((new - old) * 2.0 / time))),
                (format!("non_negative_derivative({of}, 1s)"), pairs(&|old, new, time| Some((new - old) / time).filter(|it| *it >= 0.0))),
                (format!("elapsed({of}, 1s)"), pairs(&|_, _, time| Some(time))),
                (format!("cumulative_sum({of})"), cumulated),
                (format!("moving_average({of}, 3)"), running(3)),
            ];
            for (function, wanted) in table {
                let text = format!("SELECT {function} FROM m WHERE host = 'b'{tail}");
                let answered = rows(&store, &text);
                prop_assert!(is_same(&answered, &wanted), "{}\n{:?}\n{:?}", text, answered, wanted);
            }
        }
    }

    #[test]
    fn integrals_are_areas_under_lines(all in points(), every in 5_i64..30) {
        let store = model(&all, false);
        let only: Vec<Point> = distinct_points(&all, 0, 1000).into_iter().filter(|point| point.0 == 0).collect();
        // In steps of half seconds, whose midpoints give the area of a line exactly when its ends are whole.
        let area = |from: i64, to: i64| -> f64 {
            only.windows(2).flat_map(|pair| (pair[0].1 * 2..pair[1].1 * 2).map(|half| (pair[0], pair[1], half)))
                .filter(|(_, _, half)| (from * 2..to * 2).contains(half))
                .map(|(old, new, half)| {
                    #[expect(clippy::cast_precision_loss, reason = "the times of tests are small")]
                    let share = ((half as f64 + 0.5) / 2.0 - old.1 as f64) / (new.1 - old.1) as f64;
                    (old.2 + (new.2 - old.2) * share) * 0.5
                })
                .sum()
        };
        let answered = rows(&store, "SELECT integral(x) FROM m WHERE host = 'a'");
        let wanted: Vec<Row> = if only.is_empty() { Vec::new() } else { vec![(0, Some(area(0, 1000)))] };
        prop_assert!(is_same(&answered, &wanted), "{:?} {:?}", answered, wanted);
        // Windows side by side that all hold points add up to the whole.
        if only.windows(2).any(|pair| pair[1].1.div_euclid(every) - pair[0].1.div_euclid(every) > 1) {
            return Ok(());
        }
        let text = format!("SELECT integral(x) FROM m WHERE host = 'a' AND time < 100s GROUP BY time({every}s)");
        let parts = rows(&store, &text);
        let sum: f64 = parts.iter().filter_map(|row| row.1).sum();
        prop_assert!((sum - area(0, 1000)).abs() < 1e-6, "{:?}", parts);
    }

    #[test]
    fn rows_of_fields_are_those_that_were_written(all in points(), limit in 0_usize..5, offset in 0_usize..5, least in -10_i32..10) {
        let store = model(&all, false);
        let mut wanted: Vec<Row> = distinct_points(&all, 10, 80).into_iter()
            .filter(|point| point.2 >= f64::from(least) && point.0 != 2)
            .map(|(_, time, value)| (time, Some(value)))
            .collect();
        let condition = format!("(host = 'a' OR host =~ /^b$/) AND x >= {least} AND time >= 10s AND time <= 80s");
        for order in ["ASC", "DESC"] {
            let page: Vec<Row> = wanted.iter().copied().skip(offset).take(if limit == 0 { usize::MAX } else { limit }).collect();
            let text = format!("SELECT x FROM m WHERE {condition} ORDER BY time {order} LIMIT {limit} OFFSET {offset}");
            prop_assert_eq!(rows(&store, &text), page, "{}", text);
            wanted.reverse();
        }
        // The same with times so far apart that a part is not enough.
        let mut far = Model::default();
        for (host, time, value) in &all {
            let key = key("db", "m", &format!("host={}", HOSTS[*host]), "x");
            far.write(&key, (1 << (*time % 50)) * 1000, Value::Float(*value));
        }
        far.write(&key("db", "m", "host=a", "x"), 0, Value::Float(0.0));
        for order in ["ASC", "DESC"] {
            let condition = format!("WHERE time >= 0 AND x >= {least}");
            let answered = |page: &str| rows(&far, &format!("SELECT x FROM m {condition} ORDER BY time {order} {page}"));
            let (whole, most) = (answered(""), if limit == 0 { usize::MAX } else { limit });
            let page: Vec<Row> = whole.into_iter().skip(offset).take(most).collect();
            prop_assert_eq!(answered(&format!("LIMIT {limit} OFFSET {offset}")), page);
        }
        let newest = distinct_points(&all, i64::MIN, i64::MAX).last().map(|point| (point.1, Some(point.2)));
        let answered = rows(&store, "SELECT x FROM m ORDER BY time DESC LIMIT 1");
        prop_assert_eq!(answered.first().copied(), newest);
    }
}
