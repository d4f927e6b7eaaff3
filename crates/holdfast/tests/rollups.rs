//! Rollups never change an answer: whatever was written, overwritten, deleted, sealed and merged, queries say the same bit by bit as
//! when they are made of nothing but points.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use base::Random;
use base::memory::Disk;
use holdfast::series::influxql::{self, Document, Env, Epoch, Layout};
use holdfast::series::opentsdb::{Answer, Parameters, Query};
use holdfast::series::{Match, Points, PointsOnly, Range, Rows, Select, Source, Value, ValueRef};
use holdfast::{Durability, Limits, MemoryLedgers, Options, Store, World};

const DATABASE: &str = "default";
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
/// A Monday, at midnight.
const START: i64 = 1_699_833_600 * SECOND;
const HOURS: i64 = 60;

fn open(disk: &Disk, ledgers: &MemoryLedgers) -> Store {
    let world = World {
        files: Arc::new(disk.process()),
        clock: Arc::new(base::ManualClock::at(1_700_000_000_000)),
        ledgers: Arc::new(ledgers.clone()),
        threads: false,
        entropy: 42,
    };
    let options =
        Options { durability: Durability::Written, limits: Limits::default(), partitions: 2, ..Options::default() };
    Store::open_in(&world, Path::new("/store"), options).unwrap()
}

fn opentsdb(source: &dyn Source, query: &str) -> Vec<u8> {
    let query = Query::from_json(query.as_bytes(), &Parameters::default(), START).unwrap();
    let mut answer = match Answer::begin(source, DATABASE, query) {
        Ok(answer) => answer,
        Err(error) => return error.to_string().into_bytes(),
    };
    answer.whole(source).unwrap()
}

fn influxql(source: &dyn Source, text: &str) -> Vec<u8> {
    let env = Env { source, database: DATABASE, now: START, may_see: &|_| true };
    let mut document = Document::new(Layout::Plain, Epoch::Units(1), 64 << 20);
    for statement in influxql::parse(text, &influxql::Parameters::default()).unwrap() {
        document.begin(&statement);
        match influxql::read(&env, &statement, &mut document) {
            Ok(()) => document.end(None),
            Err(error) => document.fail(&error.to_string()),
        }
    }
    document.finish()
}

fn some<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

/// The same question twice; true when a rollup was of use.
fn ask(store: &Store, random: &mut Random) -> bool {
    let hour = |random: &mut Random| (START + random.below(HOURS as u64 + 4) as i64 * HOUR - HOUR) / SECOND;
    let shift = |random: &mut Random| if random.below(3) == 0 { random.below(3600) as i64 } else { 0 };
    let (a, b) = (hour(random) + shift(random), hour(random) + shift(random));
    let (from, to) = (a.min(b), a.max(b) + 1);
    let reader = store.series().reader();
    let plain = PointsOnly(&reader);
    let before = store.stats().series.summarized;
    let (text, with, without) = if random.below(2) == 0 {
        let every = some(random, &["1h", "1h", "2h", "1d", "1d", "7d", "30m", "90m", "0all", "1hc", "1dc"]);
        let function = some(
            random,
            &[
                "sum", "avg", "min", "max", "count", "zimsum", "mimmin", "mimmax", "pfsum", "dev", "first", "last",
                "p50",
            ],
        );
        let (aggregator, fill) =
            (some(random, &["none", "sum", "avg", "max"]), some(random, &["", "-nan", "-zero", "-null"]));
        let fill = if every == "0all" { "" } else { fill };
        let query = format!(
            r#"{{"start":{from},"end":{to},"msResolution":true,"queries":[{{"metric":"m","aggregator":"{aggregator}","downsample":"{every}-{function}{fill}"}}]}}"#
        );
        let (with, without) = (opentsdb(&reader, &query), opentsdb(&plain, &query));
        (query, with, without)
    } else {
        let function = some(random, &["count", "sum", "mean", "min", "max", "spread", "first", "last", "median"]);
        let every = some(random, &["1h", "1h", "2h", "1d", "7d", "30m", "1h,1h", "1d,6h", "1h,10m"]);
        let group = match random.below(4) {
            0 => String::new(),
            1 => format!("GROUP BY time({every})"),
            2 => format!("GROUP BY time({every}), host"),
            _ => format!("GROUP BY time({every}) fill(none) ORDER BY time DESC"),
        };
        let more = if group.is_empty() { "" } else { some(random, &["", "", ", count(value)", ", host"]) };
        let cast = some(random, &["", "", "", "", "::integer", "::float"]);
        let zone = some(random, &["", "", "", "tz('Europe/Berlin')", "tz('Asia/Kolkata')", "tz('UTC')"]);
        let query = format!(
            "SELECT {function}(value{cast}){more} FROM m WHERE time >= {from}s AND time < {to}s {group} {zone}; \
             SELECT {function}(value) FROM m"
        );
        let (with, without) = (influxql(&reader, &query), influxql(&plain, &query));
        (query, with, without)
    };
    assert_eq!(String::from_utf8_lossy(&with), String::from_utf8_lossy(&without), "{text}");
    store.stats().series.summarized > before
}

fn write(store: &Store, host: &str, points: impl Iterator<Item = (i64, Value)>) {
    let mut rows = Rows::new(DATABASE);
    let row = rows.row(host.as_bytes(), |_| Ok(("m".to_owned(), vec![("host".to_owned(), host.to_owned())]))).unwrap();
    let slot = rows.field(row, 0, b"value", |_| Ok("value".to_owned())).unwrap();
    points.for_each(|(time, value)| rows.push(slot, time, value.as_ref()));
    assert_eq!(store.series().write(&mut rows).unwrap().refused, []);
}

/// Values in which order and rounding would be seen, now and then those that no rollup is made of.
fn value(random: &mut Random, style: u64) -> Value {
    let number = random.below(2000) as f64 - 1000.0;
    Value::Float(match (style, random.below(4000)) {
        (1, 0) => f64::NAN,
        (1, 1) => f64::INFINITY,
        (1, 2) => f64::from_bits(0x7ff8_0000_0000_1234),
        (2, 0..400) => -0.0,
        (2, 400..800) => 0.0,
        (3, _) => number * 1e300,
        (4, _) => number.exp(),
        (5, _) => f64::from(u8::try_from(random.below(2)).unwrap()),
        _ => number / 10.0,
    })
}

fn change(store: &Store, random: &mut Random, next: &mut i64) {
    let host = some(random, &["a", "b", "c"]);
    match random.below(20) {
        // As it comes: a stretch of some hours at 10 s, for all hosts.
        0..8 => {
            let (from, steps, style) = (*next, 200 + random.below(2500) as i64, random.below(8));
            for host in ["a", "b", "c"] {
                write(store, host, (0..steps).map(|n| (from + n * 10 * SECOND, value(random, style))));
            }
            *next = from + steps * 10 * SECOND;
        }
        // Anew or out of order.
        8 | 9 => {
            let from = START + random.below(HOURS as u64 * 360) as i64 * 10 * SECOND;
            let (steps, step) =
                (1 + random.below(300) as i64, [10 * SECOND, SECOND, 7 * SECOND][random.below(3) as usize]);
            let style = random.below(6);
            write(store, host, (0..steps).map(|n| (from + n * step, value(random, style))));
        }
        10 | 11 => {
            let from = START + random.below(HOURS as u64 * 60) as i64 * 60 * SECOND;
            let range = Range { from, to: from + random.below(3 * HOUR as u64) as i64 };
            let select = Select::metric(DATABASE, "m").and_tag("host", Match::is(host));
            store.series().delete(&select, range).unwrap();
        }
        12 if random.below(4) == 0 => {
            let select = Select::metric(DATABASE, "m").and_tag("host", Match::is(host));
            store.series().drop_series(&select).unwrap();
        }
        _ => store.series().seal().unwrap(),
    }
}

#[test]
fn rollups_never_change_an_answer() {
    let mut used = 0;
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let (disk, ledgers) = (Disk::new(seed), MemoryLedgers::default());
        let mut store = open(&disk, &ledgers);
        let mut next = START;
        for _ in 0..30 {
            change(&store, &mut random, &mut next);
            if next > START + HOURS * HOUR {
                next = START;
            }
            if random.below(12) == 0 {
                store.close().unwrap();
                drop(store);
                store = open(&disk, &ledgers);
                store.step().unwrap();
            }
            for _ in 0..6 {
                used += usize::from(ask(&store, &mut random));
            }
        }
        store.series().seal().unwrap();
        for _ in 0..30 {
            used += usize::from(ask(&store, &mut random));
        }
    }
    println!("{used} questions were answered with rollups");
    assert!(used > 100, "{used} questions were answered with rollups");
}

/// Integers stay what they are: the mean of integers is that of their sum, and types of several series meet in one window.
#[test]
fn rollups_of_integers_and_of_several_types_say_the_same() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let at = |n: i64| START + n * 10 * SECOND;
    write(&store, "a", (0..5000).map(|n| (at(n), Value::Integer(n * 1_000_003 % 4099 - 7))));
    write(&store, "b", (0..5000).map(|n| (at(n), Value::Float((n % 7) as f64 - 7.0))));
    write(&store, "c", (0..5000).map(|n| (at(n), Value::Integer(if n == 4000 { i64::MAX } else { n % 9 - 7 }))));
    // One who writes text is passed over by functions of numbers.
    write(&store, "t", (0..5000).map(|n| (at(n), Value::Text(format!("word {}", n % 5).into()))));
    store.series().seal().unwrap();
    let mut random = Random::new(3);
    let used = (0..400).filter(|_| ask(&store, &mut random)).count();
    assert!(used > 50, "{used}");
    let mut all = Points::new();
    let reader = store.series().reader();
    for series in reader
        .series(&Select::metric(DATABASE, "m").and_tag("host", Match::In(["a", "b", "c"].map(str::to_owned).into())))
        .unwrap()
    {
        reader.points(series.id, Range::ALL, &mut all).unwrap();
    }
    assert_eq!((all.len(), all.get(0).map(|(_, value)| value)), (15_000, Some(ValueRef::Integer(-7))));
}

/// Of equal values of several series the earlier counts, and 0 equals -0: a rollup does not know when its least value was.
#[test]
fn of_equal_values_of_several_series_the_earlier_counts() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let least = |when: i64, least: f64| {
        (0..360).map(move |n| (START + n * 10 * SECOND, Value::Float(if n == when { least } else { 5.0 })))
    };
    write(&store, "a", least(180, 0.0));
    write(&store, "b", least(60, -0.0));
    store.series().seal().unwrap();
    let reader = store.series().reader();
    let query = format!("SELECT min(value) FROM m WHERE time >= {START} AND time < {} GROUP BY time(1h)", START + HOUR);
    let answer = influxql(&reader, &query);
    assert_eq!(answer, influxql(&PointsOnly(&reader), &query));
    assert!(String::from_utf8_lossy(&answer).contains("-0"), "{}", String::from_utf8_lossy(&answer));
    assert!(store.stats().series.summarized > 0);
}
