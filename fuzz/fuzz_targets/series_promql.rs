//! Parses foreign text as PromQL and as a selector, and evaluates it over two series: nothing panics, and nothing takes long.
//!
//! Run: `cargo +nightly fuzz run series_promql`. May use: `series`.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use series::promql::{Expression, Limits, Scope, Selector, Span};
use series::{FIELD_DEFAULT, Key, Kind, Points, Range, Result, Select, Series, SeriesId, Source, Value};

/// Counters `x{a="0"}` and `x{a="1"}` with a point every ten seconds.
struct Two;

impl Source for Two {
    fn series(&self, select: &Select) -> Result<Vec<Series>> {
        let series = (0..2u32).map(|number| Series {
            id: SeriesId { partition: 0, number },
            key: Arc::new(Key {
                database: "default".to_owned(),
                metric: "x".to_owned(),
                tags: vec![("a".to_owned(), number.to_string())],
                field: FIELD_DEFAULT.to_owned(),
            }),
            kind: Kind::Float,
        });
        Ok(series.filter(|series| select.matches(&series.key)).collect())
    }

    fn points(&self, series: SeriesId, range: Range, to: &mut Points) -> Result<()> {
        let times = (0..100i64).map(|nth| nth * 10_000_000_000);
        for time in times.filter(|time| (range.from..=range.to).contains(time)) {
            to.push_float(time, (time / 1_000_000_000 * i64::from(series.number + 1) % 700) as f64);
        }
        Ok(())
    }

    fn last(&self, _: SeriesId) -> Result<Option<(i64, Value)>> {
        Ok(None)
    }

    fn databases(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn metrics(&self, _: &str) -> Result<Vec<String>> {
        Ok(vec!["x".to_owned()])
    }

    fn tag_names(&self, _: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn tag_values(&self, _: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fuzz_target!(|text: &str| {
    let _ = Selector::parse(text).map(|selector| selector.find(&Two, "default"));
    let Ok(expression) = Expression::parse(text, 60_000) else { return };
    let limits = Limits { points_max: 100_000, cells_max: 100_000 };
    let scope = Scope { source: &Two, database: "default", limits, go_on: &|| true };
    let _ = expression.instant(scope, 600_000);
    let _ = expression.range(scope, Span { start_ms: 0, end_ms: 1_000_000, step_ms: 50_000 });
});
