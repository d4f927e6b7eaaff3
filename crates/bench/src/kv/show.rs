//! What a side measured, as figures of the report and as lines of intervals.
//!
//! May use: `report.rs`, `workload`. Must not know: where results go.

use std::fmt::Write;

use crate::figures::Unit;
use crate::report::shown;
use crate::workload::{KindOutcome, Outcome, Plan};

/// The figure of all operations in a second.
pub(crate) const OPERATIONS: &str = "operations";

/// Above the lines of intervals.
pub(crate) const INTERVAL_HEAD: &str = "  seconds          kind             rate        p50       p95       p99       \
                                        p99.9     max       found  items/s     read        written     write   disk        space   memory";

/// A figure: work, name, unit, sample.
type Sample = (String, &'static str, Unit, f64);

/// How a workload is called in the report.
pub(crate) fn work(workload: &str, clients: u16, plan: &Plan) -> String {
    if plan.clients.len() > 1 { format!("{workload}, {clients} clients") } else { workload.to_owned() }
}

fn share(kind: &KindOutcome) -> f64 {
    kind.found as f64 / kind.operations.max(1) as f64
}

/// All figures of a workload.
pub(crate) fn figures(work: &str, outcome: &Outcome) -> Vec<Sample> {
    let mut all = vec![(work.to_owned(), OPERATIONS, Unit::PerSecond, outcome.rate())];
    let several = outcome.kinds.len() > 1;
    for kind in &outcome.kinds {
        let work = if several { format!("{work}: {}", kind.kind) } else { work.to_owned() };
        let mut add = |figure, unit, sample| all.push((work.clone(), figure, unit, sample));
        if several {
            add(OPERATIONS, Unit::PerSecond, outcome.kind_rate(kind));
        }
        let latency = kind.latency;
        add("p50", Unit::Nanos, latency.p50_ns as f64);
        add("p95", Unit::Nanos, latency.p95_ns as f64);
        add("p99", Unit::Nanos, latency.p99_ns as f64);
        add("p99.9", Unit::Nanos, latency.p999_ns as f64);
        add("max", Unit::Nanos, latency.max_ns as f64);
        if kind.found < kind.operations {
            add("found", Unit::Count, share(kind));
        }
        match kind.kind.as_str() {
            "reclaim" | "settle" | "compact" => add("reclaimed", Unit::Bytes, kind.items as f64),
            _ if kind.items > 0 => {
                add("shown by each", Unit::Count, kind.items as f64 / kind.operations.max(1) as f64);
                add("shown", Unit::PerSecond, kind.items as f64 / outcome.seconds.max(f64::MIN_POSITIVE));
            }
            _ => {}
        }
    }
    let used = &outcome.used;
    let mut add = |figure, unit, sample: Option<f64>| {
        all.extend(sample.map(|sample| (work.to_owned(), figure, unit, sample)));
    };
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    add("not begun", Unit::Count, (outcome.not_begun > 0).then_some(outcome.not_begun as f64));
    add("device read", Unit::Bytes, bytes(used.read_bytes));
    add("device written", Unit::Bytes, bytes(used.written_bytes));
    add("write amplification", Unit::Count, used.write_amplification());
    add("disk space", Unit::Bytes, bytes(used.disk_bytes));
    add("space amplification", Unit::Count, used.space_amplification());
    add("memory", Unit::Bytes, bytes(used.rss_bytes));
    all
}

/// A line for each kind of operation; what was used stands in the first.
pub(crate) fn interval(outcome: &Outcome) -> String {
    let mut text = String::new();
    let from = outcome.from_seconds;
    let when = format!("{from:.1} .. {:.1}", from + outcome.seconds);
    let used = &outcome.used;
    let seconds = outcome.seconds.max(f64::MIN_POSITIVE);
    let known = |value: Option<f64>, unit| value.map_or_else(|| "-".to_owned(), |value| shown(value, unit));
    let bytes = |bytes: Option<u64>| known(bytes.map(|bytes| bytes as f64), Unit::Bytes);
    let rates = |bytes: Option<u64>| {
        bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{}/s", shown(bytes as f64 / seconds, Unit::Bytes)))
    };
    let machine = format!(
        "{:<11} {:<11} {:<7} {:<11} {:<7} {}",
        rates(used.read_bytes),
        rates(used.written_bytes),
        known(used.write_amplification(), Unit::Count),
        bytes(used.disk_bytes),
        known(used.space_amplification(), Unit::Count),
        bytes(used.rss_bytes),
    );
    for (place, kind) in outcome.kinds.iter().enumerate() {
        let nanos = |nanos: u64| shown(nanos as f64, Unit::Nanos);
        let latency = kind.latency;
        let line = format!(
            "  {:<16} {:<16} {:<11} {:<9} {:<9} {:<9} {:<9} {:<9} {:<6.3} {:<11} {}",
            if place == 0 { when.as_str() } else { "" },
            kind.kind,
            shown(outcome.kind_rate(kind), Unit::PerSecond),
            nanos(latency.p50_ns),
            nanos(latency.p95_ns),
            nanos(latency.p99_ns),
            nanos(latency.p999_ns),
            nanos(latency.max_ns),
            share(kind),
            shown(kind.items as f64 / seconds, Unit::PerSecond),
            if place == 0 { machine.as_str() } else { "" },
        );
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if outcome.kinds.is_empty() {
        let _ = writeln!(text, "  {when:<16} nothing ended{:112}{machine}", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kinds: &[(&str, u64, u64)]) -> Outcome {
        let kind = |(kind, found, items): &(&str, u64, u64)| {
            let latency = json(r#"{"p50_ns":1000,"p95_ns":2000,"p99_ns":3000,"p999_ns":4000,"max_ns":5000}"#);
            serde_json::json!({"kind": kind, "operations": 100, "found": found, "items": items, "latency": latency})
        };
        let kinds: Vec<_> = kinds.iter().map(kind).collect();
        let used = json(
            r#"{"read_bytes":null,"written_bytes":3000,"put_bytes":1000,"rss_bytes":1048576,"disk_bytes":4096,
                "live_objects":1,"live_bytes":1024}"#,
        );
        serde_json::from_value(
            serde_json::json!({"workload": "w", "from_seconds": 10.0, "seconds": 2.0, "loaded_seconds": 2.0,
            "kinds": kinds, "not_begun": 0, "used": used}),
        )
        .unwrap()
    }

    fn json(text: &str) -> serde_json::Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn figures_say_what_was_found_and_how_much_was_used() {
        let figures = figures("w", &outcome(&[("get", 40, 0), ("put", 100, 0)]));
        let of = |work: &str, figure: &str| {
            figures.iter().find(|(w, f, ..)| w == work && *f == figure).map(|(.., sample)| *sample)
        };
        assert_eq!((of("w", OPERATIONS), of("w: get", OPERATIONS)), (Some(100.0), Some(50.0)));
        assert_eq!((of("w: get", "found"), of("w: put", "found")), (Some(0.4), None));
        assert_eq!((of("w", "write amplification"), of("w", "space amplification")), (Some(3.0), Some(4.0)));
        assert_eq!((of("w", "device read"), of("w", "not begun"), of("w: put", "p99.9")), (None, None, Some(4_000.0)));
    }

    #[test]
    fn an_interval_has_a_line_for_each_kind_and_what_was_used_once() {
        let text = interval(&outcome(&[("get", 40, 0), ("fold", 100, 1_000)]));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("  10.0 .. 12.0     get ") && lines[0].ends_with("1.00 MiB"), "{text}");
        assert!(lines[0].contains("0.400") && lines[1].ends_with("500.0 /s"), "{text}");
        assert_eq!(interval(&outcome(&[])).lines().count(), 1);
    }
}
