//! A month of readings, one each ten seconds, and what hours and days of it cost to ask: with the rollups that sealed files have, and
//! from the points themselves. The answers are the same, bit by bit.
//!
//! Run: `cargo run --release -p holdfast-examples --example month_of_readings`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::time::{Duration, Instant};

use holdfast::series::opentsdb::{Answer, Parameters, Query};
use holdfast::series::{PointsOnly, Rows, Source, ValueRef};
use holdfast::{Options, Store};

type Answered = Result<Vec<u8>, Box<dyn std::error::Error>>;

const START: i64 = 1_700_006_400;
const READINGS: i64 = 30 * 24 * 360;

fn ask(source: &dyn Source, downsample: &str) -> Answered {
    let end = START + READINGS * 10;
    let text = format!(
        r#"{{"start":{START},"end":{end},"queries":[{{"metric":"temperature","aggregator":"none","downsample":"{downsample}"}}]}}"#
    );
    let query = Query::from_json(text.as_bytes(), &Parameters::default(), end * 1_000_000_000)?;
    Ok(Answer::begin(source, "default", query)?.whole(source)?)
}

/// The best of some tries, and the answer.
fn timed(ask: impl Fn() -> Answered) -> Result<(Duration, Vec<u8>), Box<dyn std::error::Error>> {
    let (mut best, mut found) = (Duration::MAX, Vec::new());
    for _ in 0..5 {
        let begin = Instant::now();
        found = ask()?;
        best = best.min(begin.elapsed());
    }
    Ok((best, found))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path(), Options::default())?;
    let mut rows = Rows::new("default");
    let row = rows.row(b"temperature", |_| Ok(("temperature".into(), vec![("room".into(), "a".into())])))?;
    let slot = rows.field(row, 0, b"value", |_| Ok("value".into()))?;
    for at in 0..READINGS {
        let degrees = (2100 + (at % 8640 - 4320).abs() / 10 + at * 7919 % 13) as f64 / 100.0;
        rows.push(slot, (START + at * 10) * 1_000_000_000, ValueRef::Float(degrees));
    }
    store.series().write(&mut rows)?;
    store.series().seal()?;
    let stats = store.stats().series;
    println!("{} readings take {:.3} bytes each", stats.points, stats.file_bytes as f64 / stats.points as f64);
    let reader = store.series().reader();
    for downsample in ["1h-avg", "1h-max", "1d-avg", "0all-count"] {
        let (with, answer) = timed(|| ask(&reader, downsample))?;
        let (without, wanted) = timed(|| ask(&PointsOnly(&reader), downsample))?;
        assert_eq!(answer, wanted, "rollups change no answer");
        let ratio = without.as_secs_f64() / with.as_secs_f64();
        println!("{downsample:>10}: {with:>9.1?} with rollups, {without:>9.1?} from points, {ratio:.0} times as fast");
    }
    assert!(store.stats().series.summarized > 0);
    store.close()?;
    Ok(())
}
