//! Random series and queries: answers are those of the oracle.

use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::oracle::{self, Asked, Downsample, Line, Number, Rate};
use super::{NOW, made_in, parameters, post};
use crate::error::Error;
use crate::model::{Bounded, Model, key};
use crate::opentsdb::column::Sizes;
use crate::opentsdb::time::SECOND;
use crate::opentsdb::{Answer, Parameters, Query};
use crate::value::Value;

const AGGREGATORS: &[&str] = &[
    "none",
    "sum",
    "avg",
    "min",
    "max",
    "count",
    "dev",
    "mult",
    "first",
    "last",
    "median",
    "diff",
    "squareSum",
    "zimsum",
    "pfsum",
    "mimmin",
    "mimmax",
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p999",
    "ep50r3",
    "ep75r3",
    "ep90r3",
    "ep99r3",
    "ep999r3",
    "ep50r7",
    "ep75r7",
    "ep95r7",
    "ep99r7",
    "ep999r7",
];
/// Somewhere within an hour, so that some points lie in the hours of a query and not in its range.
const START: i64 = 1_356_998_400 * 1_000_000_000 + 7 * 60 * 1_000_000_000;

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        4 => (-50_i64..50).prop_map(Number::Whole),
        4 => (-5_000_i32..5_000).prop_map(|number| Number::Broken(f64::from(number) / 64.0)),
        1 => Just(Number::Broken(f64::NAN)),
    ]
}

/// Points at most `length` ms after the start, at irregular times; some of whole numbers alone, some of doubles.
fn line(length: i64) -> impl Strategy<Value = Line> {
    let unit = prop_oneof![Just(1_000_000_i64), Just(1_000_000_000), Just(1_234_567)];
    let times = proptest::collection::btree_map(-length..length, number(), 0..30);
    (times, unit, 0..3_u8).prop_map(move |(points, unit, kind)| {
        let points = points.into_iter().map(|(at, value)| {
            let value = match (kind, value) {
                (0, Number::Broken(value)) => Number::Whole(value as i64),
                (1, value) => Number::Broken(value.double()),
                (_, value) => value,
            };
            (START + at * unit, value)
        });
        points.collect()
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let name = || proptest::sample::select(AGGREGATORS).prop_map(str::to_owned);
    let interval = prop_oneof![
        Just(None),
        Just(Some(1_000_000_000_i64)),
        Just(Some(700_000_000)),
        Just(Some(60_000_000_000)),
        Just(Some(3_600_000_000_000)),
    ];
    let fill = proptest::sample::select(&["none", "nan", "null", "zero"][..]).prop_map(str::to_owned);
    let function = name().prop_filter("none does not reduce", |name| name != "none");
    let downsample =
        (interval, function, fill).prop_map(|(interval, function, fill)| Downsample { interval, function, fill });
    let counter = (prop_oneof![Just(i64::MAX), Just(100), Just(1_000)], 0..60_i64, any::<bool>());
    let rate = proptest::option::of(counter).prop_map(|counter| Rate { counter });
    let range = (-60_000_i64..60_000, 0_i64..60_000);
    (name(), proptest::option::of(downsample), proptest::option::weighted(0.3, rate), range).prop_map(
        |(aggregator, downsample, rate, (from, length))| {
            let from = START + from * 1_000_000;
            let to = from + length * 1_000_000 + 999_999;
            Asked { from, to, aggregator, downsample, rate }
        },
    )
}

fn body(asked: &Asked) -> Json {
    let mut query = Map::new();
    query.insert("aggregator".to_owned(), json!(asked.aggregator));
    query.insert("metric".to_owned(), json!("m"));
    if let Some(Downsample { interval, function, fill }) = &asked.downsample {
        let interval = interval.map_or("0all".to_owned(), |length| format!("{}ms", length / 1_000_000));
        query.insert("downsample".to_owned(), json!(format!("{interval}-{function}-{fill}")));
    }
    if let Some(rate) = &asked.rate {
        query.insert("rate".to_owned(), json!(true));
        if let Some((max, reset, drops)) = rate.counter {
            let options = json!({ "counter": true, "counterMax": max, "resetValue": reset, "dropResets": drops });
            query.insert("rateOptions".to_owned(), options);
        }
    }
    json!({
        "start": asked.from / 1_000_000,
        "end": asked.to / 1_000_000,
        "msResolution": true,
        "arrays": true,
        "queries": [query],
    })
}

/// Whether a printed number is that of the oracle: whole where it is whole, and the same but for what rounding makes of it.
fn is_same(printed: &Json, wanted: Number, asked: &Asked) -> bool {
    let is_rounded = asked.aggregator == "dev" || asked.aggregator.starts_with(['p', 'e']);
    let fills_null = asked.downsample.as_ref().is_some_and(|downsample| downsample.fill == "null");
    match wanted {
        Number::Whole(wanted) if is_rounded => printed.as_i64().is_some_and(|found| (found - wanted).abs() <= 1),
        Number::Whole(wanted) => printed.as_i64() == Some(wanted),
        Number::Broken(wanted) if wanted.is_nan() && fills_null => printed.is_null(),
        Number::Broken(wanted) if wanted.is_nan() => *printed == json!("NaN"),
        Number::Broken(wanted) if wanted.is_infinite() => {
            *printed == json!(if wanted > 0.0 { "Infinity" } else { "-Infinity" })
        }
        Number::Broken(wanted) => {
            let close = |found: f64| (found - wanted).abs() <= 1e-6 + wanted.abs() * 1e-9;
            printed.is_f64() && printed.as_f64().is_some_and(close)
        }
    }
}

fn check(asked: &Asked, lines: &[Line]) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    for (nth, line) in lines.iter().enumerate() {
        for (time, value) in line {
            let value = match value {
                Number::Whole(value) => Value::Integer(*value),
                Number::Broken(value) => Value::Float(*value),
            };
            model.write(&key("default", "m", &format!("nth={nth}"), "value"), *time, value);
        }
    }
    // So that the metric is there.
    model.write(&key("default", "m", "nth=far", "value"), 0, Value::Integer(1));
    let groups: Vec<Line> = match asked.aggregator.as_str() {
        "none" => lines.iter().map(|line| oracle::answer(asked, std::slice::from_ref(line))).collect(),
        _ => vec![oracle::answer(asked, lines)],
    };
    let groups: Vec<Line> = groups.into_iter().filter(|group| !group.is_empty()).collect();
    let found = post(&model, &body(asked)).unwrap();
    // In pieces of a few points, and of none, it is the same.
    let query = Query::from_json(body(asked).to_string().as_bytes(), &Parameters::default(), NOW).unwrap();
    let sizes = Sizes { points: 4, first: 1_000_000_000, max: 3_600_000_000_000 };
    let in_pieces: Json = serde_json::from_str(&made_in(&model, query, sizes).unwrap()).unwrap();
    prop_assert_eq!(&in_pieces, &found);
    let found = found.as_array().unwrap();
    prop_assert_eq!(found.len(), groups.len(), "{:?}", found);
    for (found, wanted) in found.iter().zip(&groups) {
        let points = found["dps"].as_array().unwrap();
        prop_assert_eq!(points.len(), wanted.len(), "{:?}\n{:?}", points, wanted);
        for (point, (time, value)) in points.iter().zip(wanted) {
            prop_assert_eq!(point[0].as_i64().unwrap(), time.div_euclid(1_000_000));
            prop_assert!(is_same(&point[1], *value, asked), "at {}: {} is not {:?}", time, point[1], value);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn answers_are_those_of_a_slow_and_plain_description(
        asked in asked(),
        lines in proptest::collection::vec(line(100), 1..5),
    ) {
        check(&asked, &lines)?;
    }

    #[test]
    fn points_beyond_the_ends_count_within_their_hours_alone(
        asked in asked(),
        lines in proptest::collection::vec(line(5_000), 2..4),
    ) {
        check(&asked, &lines)?;
    }
}

/// A downsampling was held when all of it was made, and the values of a percentile never: a series of 100 million points took 1.6 GB.
#[test]
fn what_a_downsampling_gathers_is_held_while_it_grows() {
    let mut model = Model::default();
    let points: Vec<(i64, f64)> = (0..200_000).map(|nth| (i64::from(nth), f64::from(nth))).collect();
    model.put("x", "h=a", &points);
    let count = points.len();
    let ask = |downsample: &str, memory: u64| {
        let source = Bounded::new(&model, (256 << 10) + memory);
        let text = format!("start=0&end={count}&m=sum:{downsample}:x");
        let query = Query::from_parameters(&parameters(&text), NOW).unwrap();
        let sizes = Sizes { points: 1 << 10, first: 1000 * SECOND, max: 2000 * SECOND };
        let answered = Answer::begin(&source, "default", query).unwrap().in_pieces(sizes).next(&source);
        (answered, source.read())
    };
    for downsample in ["0all-p99", "0all-median", "0all-ep99r7", "1s-sum", "1s-dev", "1s-sum-zero", "1s-p99"] {
        let (answered, read) = ask(downsample, 1 << 20);
        assert!(matches!(answered, Err(Error::Memory { .. })), "{downsample}: {answered:?}");
        assert!(read < count * 7 / 8, "{downsample}: {read} points were read before it was told");
        assert!(ask(downsample, 16 << 20).0.is_ok(), "{downsample}");
    }
    for downsample in ["0all-sum", "1h-p99", "1m-avg-nan"] {
        assert!(ask(downsample, 1 << 20).0.is_ok(), "{downsample}: few intervals need little");
    }
}

/// Series that have their points at other times than the others were made one without a look at who waits: a number of each series at
/// each point of another.
#[test]
fn many_series_at_many_moments_ask_whether_to_go_on() {
    let mut model = Model::default();
    for host in 0..10 {
        let points: Vec<(i64, f64)> = (0..4_000).map(|nth| (10 * nth + host, 1.0)).collect();
        model.put("x", &format!("h={host}"), &points);
    }
    let source = Bounded::new(&model, u64::MAX);
    let query = Query::from_parameters(&parameters("start=0&end=40000&m=sum:x"), NOW).unwrap();
    let sizes = Sizes { points: 1 << 20, first: 100_000 * SECOND, max: 100_000 * SECOND };
    Answer::begin(&source, "default", query).unwrap().in_pieces(sizes).whole(&source).unwrap();
    assert!((30..500).contains(&source.asked()), "{}", source.asked());
}
