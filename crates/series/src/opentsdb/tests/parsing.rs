//! Times, intervals, and bytes that are no questions.

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::{NOW, parameters};
use crate::opentsdb::calendar::Grid;
use crate::opentsdb::time::{Duration, moment, zone};
use crate::opentsdb::{LastQuery, Lookup, Parameters, Query, Suggest};

#[test]
fn times_are_read_as_clients_write_them() {
    let berlin = zone(Some("Europe/Berlin")).unwrap();
    for (text, zone, ms) in [
        ("1355961600", &TimeZone::UTC, 1_355_961_600_000),
        ("1355961600123", &TimeZone::UTC, 1_355_961_600_123),
        ("1355961600.123", &TimeZone::UTC, 1_355_961_600_123),
        ("1355961600123456", &TimeZone::UTC, 1_355_961_600_123),
        ("1355961600123456789", &TimeZone::UTC, 1_355_961_600_123),
        ("0", &TimeZone::UTC, 0),
        ("now", &TimeZone::UTC, NOW / 1_000_000),
        ("1h-ago", &TimeZone::UTC, NOW / 1_000_000 - 3_600_000),
        ("500MS-AGO", &TimeZone::UTC, NOW / 1_000_000 - 500),
        ("1n-ago", &TimeZone::UTC, NOW / 1_000_000 - 30 * 86_400_000),
        ("1y-ago", &TimeZone::UTC, NOW / 1_000_000 - 365 * 86_400_000),
        ("2012/12/20", &TimeZone::UTC, 1_355_961_600_000),
        ("2012/12/20-01:02", &TimeZone::UTC, 1_355_961_600_000 + 3_720_000),
        ("2012/12/20 01:02", &TimeZone::UTC, 1_355_961_600_000 + 3_720_000),
        ("2012/12/20-01:02:03", &berlin, 1_355_961_600_000 + 123_000),
        ("2012/12/20 01:02:03", &berlin, 1_355_961_600_000 + 123_000),
    ] {
        let found = moment(text, NOW, zone).unwrap();
        assert_eq!(found.at.div_euclid(1_000_000), ms, "{text}");
    }
    for text in [
        "",
        "-",
        "1.2.3",
        "12345678901.1",
        "1e5",
        "ago",
        "-ago",
        "5-ago",
        "5m",
        "2012/12",
        "2012/12/32",
        "12:00",
        "2012/12/20-1:2:3:4",
        "2012/12/20T00:00:00",
        "99999999999999999999",
        "\u{0661}",
    ] {
        assert!(moment(text, NOW, &TimeZone::UTC).is_err(), "{text}");
    }
}

#[test]
fn the_end_is_the_whole_of_what_was_written() {
    let range = |text: &str| Query::from_parameters(&parameters(text), NOW).unwrap().range;
    assert_eq!(range("start=1&end=2&m=sum:m").to, 2_000_999_999);
    assert_eq!(range("start=1&end=1355961600123&m=sum:m").to, 1_355_961_600_123_999_999);
    assert_eq!(range("start=1&end=1355961600123456789&m=sum:m").to, 1_355_961_600_123_456_789);
    assert_eq!(range("start=1&m=sum:m").to, NOW + 999_999);
}

fn grid() -> impl Strategy<Value = Grid> {
    const ZONES: &[&str] =
        &["UTC", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"];
    let zone = proptest::sample::select(ZONES).prop_map(|name| zone(Some(name)).unwrap());
    let unit = proptest::sample::select(&["ms", "s", "m", "h", "d", "w", "n", "y"][..]);
    let duration = (1_i64..100, unit).prop_map(|(count, unit)| Duration::parse(&format!("{count}{unit}")).unwrap());
    prop_oneof![
        duration.clone().prop_map(|duration| Grid::Fixed(duration.nanoseconds())),
        (duration, zone).prop_map(|(duration, zone)| Grid::Calendar(duration, zone)),
    ]
}

proptest! {
    #[test]
    fn intervals_hold_their_times_and_leave_no_gap(
        grid in grid(),
        time in 0_i64..2_000_000_000_000_000_000,
        offsets in proptest::collection::vec(0.0..1.0_f64, 3),
    ) {
        let interval = grid.interval(time);
        prop_assert!(interval.start <= time && time < interval.end, "{:?} {:?}", grid, interval);
        prop_assert_eq!(grid.interval(interval.start), interval);
        prop_assert_eq!(grid.interval(interval.end - 1), interval);
        let next = grid.interval(interval.end);
        prop_assert_eq!(next.start, interval.end);
        for offset in offsets {
            let within = interval.start + ((interval.end - interval.start) as f64 * offset) as i64;
            prop_assert_eq!(grid.interval(within.min(interval.end - 1)), interval);
        }
    }

    #[test]
    fn no_parameters_make_it_panic(texts in proptest::collection::vec(
        prop_oneof!["\\PC{0,30}", "[a-z0-9:{}()=,|*.-]{0,40}", "sum:(rate|1m-avg|rate\\{counter)?:?[a-z]{0,3}[{}=(),]{0,6}"], 0..4,
    )) {
        let names = ["m", "start", "end", "tz", "tsuid", "timeseries", "type", "tsuids", "limit"];
        for name in names {
            let mut pairs: Vec<(String, String)> = texts.iter().map(|text| (name.to_owned(), text.clone())).collect();
            let _ = Query::from_parameters(&Parameters(pairs.clone()), NOW);
            pairs.push(("start".to_owned(), "1".to_owned()));
            let parameters = Parameters(pairs);
            let _ = Query::from_parameters(&parameters, NOW);
            let _ = LastQuery::from_parameters(&parameters);
            let _ = Lookup::from_parameters(&parameters);
            let _ = Suggest::from_parameters(&parameters);
        }
    }

    #[test]
    fn no_body_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0..200_usize, by in any::<u8>()) {
        let mut close = br#"{"start":"1h-ago","end":5,"timezone":"UTC","queries":[{"aggregator":"p99","metric":"m","rate":true,
            "rateOptions":{"counter":true,"counterMax":1e30},"downsample":"1dc-sum-nan","tags":{"a":"*"},
            "filters":[{"type":"regexp","tagk":"b","filter":"(x","groupBy":true}]}]}"#.to_vec();
        if let Some(byte) = close.get_mut(at) {
            *byte = by;
        }
        for body in [bytes, close] {
            let _ = Query::from_json(&body, &Parameters::default(), NOW);
            let _ = LastQuery::from_json(&body, &Parameters::default());
            let _ = Lookup::from_json(&body);
            let _ = Suggest::from_json(&body);
        }
    }
}

#[test]
fn filters_and_regular_expressions_of_a_request_are_counted() {
    let refusal = |body: String| {
        let parsed = Query::from_json(body.as_bytes(), &Parameters::default(), NOW);
        parsed.map_err(|error| error.to_string()).err().unwrap_or_default()
    };
    let filter = r#"{"type":"regexp","tagk":"host","filter":"^a"}"#;
    let query = |filters: usize| {
        let filters = vec![filter; filters].join(",");
        format!(r#"{{"aggregator":"sum","metric":"m","filters":[{filters}]}}"#)
    };
    let body = |queries: usize, filters: usize| {
        let queries = vec![query(filters); queries].join(",");
        format!(r#"{{"start":"1h-ago","queries":[{queries}]}}"#)
    };
    assert_eq!(refusal(body(1, 64)), "");
    assert_eq!(refusal(body(1, 65)), "filters of one query 65 is above the limit of 64");
    assert_eq!(refusal(body(100, 10)), "");
    assert_eq!(refusal(body(1000, 10)), "number of regular expressions 1025 is above the limit of 1024");
}
