//! Answers compared with those that an InfluxDB gave that had the same points.
//!
//! A file is a statement, its answer, an empty line, and so on.

use super::tests::{SECOND, answer_with, machines};
use super::*;
use crate::error::Error;
use crate::key::Key;
use crate::model::{Bounded, Model, key};
use crate::value::Value;

/// Compares all statements of a file, of which there are at least so many.
fn compare(model: &Model, all: &str, epoch: Epoch, least: usize) {
    let mut differing = Vec::new();
    let pairs: Vec<&str> = all.split("\n\n").collect();
    for pair in &pairs {
        let (text, wanted) = pair.split_once('\n').unwrap();
        let answer = answer_with(model, text, Layout::Plain, epoch);
        if answer.trim() != wanted.trim() {
            differing.push(format!("{text}\n  is      {}\n  wanted  {}", answer.trim(), wanted.trim()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    assert!(pairs.len() >= least, "{}", pairs.len());
}

#[test]
fn statements_on_fields_and_tags() {
    compare(&machines(), include_str!("tests_influxdb.txt"), Epoch::Units(SECOND), 80);
}

/// `mix` with one field of all types, in weeks of their own.
fn mixed() -> Model {
    let mut model = machines();
    let week = 604_800;
    for (host, seconds, value) in [
        ("a", 10, Value::Float(1.5)),
        ("b", 20, Value::Float(2.5)),
        ("f", 2 * week + 10, Value::Integer(7)),
        ("c", 2 * week + 20, Value::Integer(9)),
        ("d", 4 * week + 10, Value::Text("text".into())),
        ("d", 4 * week + 20, Value::Text("later".into())),
        ("e", 6 * week + 10, Value::Boolean(true)),
    ] {
        model.write(&key("db", "mix", &format!("host={host}"), "v"), seconds * SECOND, value);
    }
    model
}

#[test]
fn statements_on_a_field_of_many_types_and_casts() {
    compare(&mixed(), include_str!("tests_influxdb_types.txt"), Epoch::Units(SECOND), 50);
}

/// InfluxDB shows only the numbers of such a field, in rows too.
#[test]
fn rows_show_values_of_all_types() {
    let answer = answer_with(
        &mixed(),
        "SELECT v FROM mix; SELECT v FROM mix WHERE host = 'e'",
        Layout::Csv,
        Epoch::Units(SECOND),
    );
    let wanted = "name,tags,time,v\nmix,,10,1.5\nmix,,20,2.5\nmix,,1209610,7\nmix,,1209620,9\nmix,,2419210,text\nmix,,2419220,later\nmix,,3628810,true\nmix,,3628810,true\n";
    assert_eq!(answer, wanted);
    let counted =
        answer_with(&mixed(), "SELECT count(v) FROM mix WHERE host =~ /d|e/", Layout::Csv, Epoch::Units(SECOND));
    assert_eq!(counted, "name,tags,time,count\nmix,,0,2\n");
}

#[test]
fn statements_in_zones_around_changes_of_clocks() {
    let mut model = Model::default();
    for start in [1_616_846_400, 1_635_595_200] {
        for hour in 0..48_i32 {
            let time = (start + 3600 * i64::from(hour)) * SECOND;
            model.write(&key("db", "m", "h=a", "v"), time, Value::Float(hour.into()));
        }
    }
    compare(&model, include_str!("tests_influxdb_zones.txt"), Epoch::Text, 30);
    let error = |text: &str| answer_with(&model, text, Layout::Plain, Epoch::Text);
    assert_eq!(error("SELECT v FROM m tz('No/Where')"), "error parsing query: unable to find time zone No/Where");
    assert_eq!(error("SELECT v FROM m tz(UTC)"), "error parsing query: expected string argument in tz()");
}

#[test]
fn statements_that_count() {
    compare(&machines(), include_str!("tests_influxdb_cardinality.txt"), Epoch::Units(SECOND), 45);
}

/// Carries statements out one after the other.
#[test]
fn statements_that_write_what_they_select() {
    let mut model = machines();
    let pairs: Vec<&str> = include_str!("tests_influxdb_into.txt").split("\n\n").collect();
    for pair in &pairs {
        let (text, wanted) = pair.split_once('\n').unwrap();
        let statement = parse(text, &Parameters::new()).unwrap().pop().unwrap();
        if !statement.is_insert() {
            compare(&model, pair, Epoch::Units(SECOND), 1);
            continue;
        }
        let mut document = Document::new(Layout::Plain, Epoch::Units(SECOND), 1 << 20);
        document.begin(&statement);
        let mut points = Vec::new();
        let env = Env { source: &model, database: "db", now: 1000 * SECOND, may_see: &|_| true };
        let inserted = insert(&env, &statement, &mut |rows| {
            for (_, pending) in rows.pending() {
                let key = Key { field: pending.field.to_owned(), ..pending.row.clone() };
                points.extend(pending.points.iter().map(|(time, value)| (key.clone(), time, value.to_value())));
            }
            rows.clear();
            Ok(())
        });
        match inserted.and_then(|count| say_inserted(count, &mut document)) {
            Ok(()) => document.end(None),
            Err(error) => document.fail(&error.to_string()),
        }
        assert_eq!(String::from_utf8(document.finish()).unwrap().trim(), wanted.trim(), "{text}");
        points.into_iter().for_each(|(key, time, value)| model.write(&key, time, value));
    }
    assert!(pairs.len() > 35, "{}", pairs.len());
}

/// Only points were held, and not what is made of them: some three times as much.
#[test]
fn what_is_made_of_points_is_held_before_it_is_made() {
    let mut model = Model::default();
    for nth in 0..12_000 {
        let tags = ["h=a", "h=b"][usize::from(nth % 2 == 1)];
        model.write(&key("db", "m", tags, "v"), 1000 * i64::from(nth), Value::Float(f64::from(nth)));
    }
    let ask = |text: &str, limit: u64| {
        let source = Bounded::new(&model, limit);
        let env = Env { source: &source, database: "db", now: 1000 * SECOND, may_see: &|_| true };
        let mut document = Document::new(Layout::Plain, Epoch::Units(1), 1 << 30);
        let statements = parse(text, &Parameters::new()).unwrap();
        (read(&env, &statements[0], &mut document), source.most())
    };
    for call in ["derivative(v)", "difference(v)", "median(v)", "distinct(v)", "top(v, 9000)", "percentile(v, 50)"] {
        let (answered, _) = ask(&format!("SELECT {call} FROM m"), 1 << 20);
        assert!(matches!(answered, Err(Error::Memory { .. })), "{call}: {answered:?}");
        assert!(ask(&format!("SELECT {call} FROM m"), 4 << 20).0.is_ok(), "{call}");
    }
    let (answered, most) = ask("SELECT count(v) FROM m WHERE time >= 0 GROUP BY time(1u) fill(none)", 1 << 20);
    assert!(matches!(answered, Err(Error::Memory { .. })), "{answered:?}");
    assert!(most > 900 << 10, "windows are held as they come to be: {most} bytes");
    let (answered, _) = ask("SELECT count(v) FROM m WHERE time >= 0 GROUP BY time(1ms) fill(none)", 1 << 20);
    assert!(answered.is_ok(), "{answered:?}");
}
