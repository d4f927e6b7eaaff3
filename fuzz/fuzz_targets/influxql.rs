//! Parses foreign text as statements and answers them from nothing: nothing panics, no stack overflows, and every answer is JSON.
//!
//! Run: `cargo +nightly fuzz run influxql`. May use: `series`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use series::influxql::{Change, Document, Env, Epoch, Layout, Parameters, Schedule, insert, parse, read};
use series::{Points, Range, Select, Series, SeriesId, Source, Value};

/// A store with nothing in it but a database.
struct Nothing;

impl Source for Nothing {
    fn series(&self, _: &Select) -> series::Result<Vec<Series>> {
        Ok(Vec::new())
    }

    fn points(&self, _: SeriesId, _: Range, _: &mut Points) -> series::Result<()> {
        Ok(())
    }

    fn last(&self, _: SeriesId) -> series::Result<Option<(i64, Value)>> {
        Ok(None)
    }

    fn databases(&self) -> series::Result<Vec<String>> {
        Ok(vec!["db".to_owned()])
    }

    fn metrics(&self, _: &str) -> series::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn tag_names(&self, _: &str) -> series::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn tag_values(&self, _: &str) -> series::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fuzz_target!(|text: &str| {
    let Ok(statements) = parse(text, &Parameters::new()) else { return };
    let env = Env { source: &Nothing, database: "db", now: 0, may_see: &|_| true };
    let mut document = Document::new(Layout::Plain, Epoch::Text, 1 << 20);
    for statement in &statements {
        document.begin(statement);
        let done = read(&env, statement, &mut document);
        let _ = statement.needs("db");
        if let Ok(Some(Change::CreateContinuousQuery(query))) = statement.change(&env) {
            let schedule = Schedule::of(&query).expect("what is kept can be read again");
            let _ = schedule.due(query.through, i64::MAX);
        }
        let _ = insert(&env, statement, &mut |rows| {
            rows.clear();
            Ok(())
        });
        match done {
            Ok(()) => document.end(None),
            Err(error) => document.fail(&error.to_string()),
        }
    }
    assert!(document.finish().ends_with(b"]}\n"));
});
