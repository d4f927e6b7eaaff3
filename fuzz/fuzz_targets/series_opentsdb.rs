//! Reads foreign bytes as OpenTSDB's questions, in bodies and in parameters, and answers those that are some over a few points: nothing
//! panics, and answers have an end.
//!
//! Run: `cargo +nightly fuzz run series_opentsdb`. May use: `series`.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use series::opentsdb::{Answer, LastQuery, Lookup, Parameters, Query, Suggest};
use series::{Key, Kind, Points, Range, Result, Select, Series, SeriesId, Source, Value, ValueRef};

const NOW: i64 = 1_600_000_000_000_000_000;

/// Two series `m` with some points in the minutes before now.
struct Few;

fn points(number: u32) -> Points {
    let mut points = Points::new();
    for at in 0..20 {
        let time = NOW - i64::from(60 - at * (3 - number.min(2))) * 1_000_000_000;
        let value = if at % 3 == 0 { ValueRef::Integer(i64::from(at)) } else { ValueRef::Float(f64::from(at) / 3.0) };
        points.push(time, value);
    }
    points
}

impl Source for Few {
    fn series(&self, select: &Select) -> Result<Vec<Series>> {
        let series = |number: u32| {
            let tags = vec![("a".to_owned(), number.to_string())];
            let key = Key { database: "default".to_owned(), metric: "m".to_owned(), tags, field: "value".to_owned() };
            Series { id: SeriesId { partition: 0, number }, key: Arc::new(key), kind: Kind::Float }
        };
        Ok((0..2).map(series).filter(|series| select.matches(&series.key)).collect())
    }

    fn points(&self, series: SeriesId, range: Range, to: &mut Points) -> Result<()> {
        let points = points(series.number);
        to.extend_from(&points, points.between(range.from, range.to));
        Ok(())
    }

    fn last(&self, series: SeriesId) -> Result<Option<(i64, Value)>> {
        Ok(points(series.number).last())
    }

    fn databases(&self) -> Result<Vec<String>> {
        Ok(vec!["default".to_owned()])
    }

    fn metrics(&self, _: &str) -> Result<Vec<String>> {
        Ok(vec!["m".to_owned()])
    }

    fn tag_names(&self, _: &str) -> Result<Vec<String>> {
        Ok(vec!["a".to_owned()])
    }

    fn tag_values(&self, _: &str) -> Result<Vec<String>> {
        Ok(vec!["0".to_owned(), "1".to_owned()])
    }
}

fn answer(query: Query) -> Result<Vec<u8>> {
    let mut answer = Answer::begin(&Few, "default", query)?;
    let mut whole = Vec::new();
    // What is filled may be long: its beginning says enough.
    for _ in 0..4 {
        let Some(mut piece) = answer.next(&Few)? else { break };
        whole.append(&mut piece);
        assert!(!answer.is_over() || whole.starts_with(b"[") && whole.ends_with(b"]"), "answers are lists");
    }
    Ok(whole)
}

fuzz_target!(|input: &[u8]| {
    let none = Parameters::default();
    let _ = Query::from_json(input, &none, NOW).and_then(answer);
    let _ = LastQuery::from_json(input, &none).and_then(|query| query.answer(&Few, "default", &mut Vec::new()));
    let _ = Lookup::from_json(input).and_then(|lookup| lookup.find(&Few, "default"));
    let _ = Suggest::from_json(input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    let pairs = text.split('&').map(|pair| pair.split_once('=').unwrap_or(("m", pair)));
    let mut pairs: Vec<(String, String)> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    pairs.push(("start".to_owned(), "1m-ago".to_owned()));
    let parameters = Parameters(pairs);
    let _ = Query::from_parameters(&parameters, NOW).and_then(answer);
    let _ = LastQuery::from_parameters(&parameters).and_then(|query| query.answer(&Few, "default", &mut Vec::new()));
    let _ = Lookup::from_parameters(&parameters).and_then(|lookup| lookup.find(&Few, "default"));
    let _ = Suggest::from_parameters(&parameters);
});
