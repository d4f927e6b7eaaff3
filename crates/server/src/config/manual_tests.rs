//! The manual's table of keys says what is in force: every key, default and range.

use std::fs;

use super::tests::error;
use super::*;

/// The rows of the manual's table of keys, cell by cell.
fn manual() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    let table = text.split("## Keys").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()).collect()
}

#[test]
fn the_manual_has_the_defaults_and_ranges_that_are_in_force() {
    let (limits, resp, http) = (Limits::default(), doors::resp::Limits::default(), doors::http::Limits::default());
    let partitions = i64::from(holdfast::Options::default().partitions);
    let number = |value: usize| i64::try_from(value).unwrap();
    let wide = |value: u64| i64::try_from(value).unwrap();
    let scrub = wide(holdfast::Options::default().scrub_bytes_per_second);
    let compaction = CompactionOptions::default();
    let rows = manual();
    for (key, default, range) in [
        ("partitions", partitions, PARTITIONS),
        ("compaction.bytes_per_second", wide(compaction.bytes_per_second), COMPACTION_BYTES_PER_SECOND),
        ("compaction.dead_percent", wide(compaction.dead_percent), DEAD_PERCENT),
        ("compaction.keep_bytes", wide(compaction.keep_bytes), KEEP_BYTES),
        ("scrub.bytes_per_second", scrub, SCRUB_BYTES_PER_SECOND),
        ("limits.value_bytes_max", number(limits.value_bytes_max), VALUE_BYTES),
        ("limits.segment_bytes", wide(limits.segment_bytes), SEGMENT_BYTES),
        ("limits.ledger_cache_bytes", wide(limits.ledger_cache_bytes), LEDGER_CACHE_BYTES),
        ("limits.ledger_memory_bytes", wide(limits.ledger_memory_bytes), LEDGER_MEMORY_BYTES),
        ("limits.value_cache_bytes", wide(limits.value_cache_bytes), VALUE_CACHE_BYTES),
        ("limits.listener_retain_bytes_max", wide(limits.listener_retain_bytes_max), LISTENER_RETAIN_BYTES),
        ("resp.connections_max", number(resp.clients_max), CONNECTIONS),
        ("resp.idle_timeout_seconds", 0, IDLE_SECONDS),
        ("resp.input_bytes_max", number(resp.input_bytes_max), INPUT_BYTES),
        ("resp.replies_bytes_max", number(resp.replies_bytes_max), INPUT_BYTES),
        ("resp.output_bytes_max", number(resp.output_bytes_max), OUTPUT_BYTES),
        ("http.connections_max", number(http.connections_max), CONNECTIONS),
        ("http.threads_max", number(http.threads_max), HTTP_THREADS),
        ("http.body_bytes_max", wide(http.body_bytes_max), BODY_BYTES),
        ("http.bodies_bytes_max", wide(http.bodies_bytes_max), BODIES_BYTES),
        ("space.query_seconds_max", wide(resp.space_time_max.as_secs()), space::QUERY_SECONDS),
        ("space.query_memory_bytes", wide(limits.space_query_memory_bytes), space::QUERY_MEMORY_BYTES),
        ("script.memory_bytes_max", number(ScriptOptions::default().memory_bytes_max), script::MEMORY_BYTES),
        ("script.steps_max", wide(ScriptOptions::default().steps_max), script::STEPS),
        ("script.time_milliseconds_max", 100, script::TIME_MILLISECONDS),
        ("series.memory_bytes", wide(limits.series_memory_bytes), series::MEMORY_BYTES),
        ("series.query_memory_bytes", wide(limits.series_query_memory_bytes), series::QUERY_MEMORY_BYTES),
        ("series.query_seconds_max", wide(resp.series_time_max.as_secs()), series::QUERY_SECONDS),
        ("series.series_max", number(limits.series_max), series::SERIES),
        ("series.free_bytes_min", wide(holdfast::Options::default().series.free_bytes_min), series::FREE_BYTES),
        (
            "series.merge_bytes_per_second",
            wide(holdfast::Options::default().series.merge_bytes_per_second),
            series::MERGE_BYTES_PER_SECOND,
        ),
        ("xa.sweep_seconds", 0, SWEEP_SECONDS),
        ("xa.interval_seconds", wide(tm::Pace::default().interval.as_secs()), RECOVERY_SECONDS),
    ] {
        let row = rows.iter().find(|row| row.first().is_some_and(|found| found == key)).expect(key);
        let wanted = [default.to_string(), format!("{} to {}", range.start(), range.end())];
        assert_eq!(row.get(2..4), Some(&wanted[..]), "{key}");
        assert!(range.contains(&default), "{key}");
    }
    let words = |key: &str| rows.iter().find(|row| row.first().is_some_and(|found| found == key)).expect(key).clone();
    let leaves = TreeSize::ALL.map(|size| size.leaves().to_string()).join(", ");
    let default = holdfast::Options::default().tree.map_or(0, TreeSize::leaves).to_string();
    assert_eq!(words("tree.leaves").get(2..4), Some(&[default, format!("0, {leaves}")][..]));
    let reactors = ["one for two processors".to_owned(), format!("{} to {}", REACTORS.start(), REACTORS.end())];
    assert_eq!(words("resp.reactors").get(2..4), Some(&reactors[..]));
    let for_streams = ["one for each processor".to_owned(), reactors[1].clone()];
    for key in ["resp.pipeline_reactors", "line.reactors"] {
        assert_eq!(words(key).get(2..4), Some(&for_streams[..]), "{key}");
    }
    assert_eq!(words("ledger_compression")[2], format!("\"{}\"", holdfast::Options::default().ledger_compression));
    assert_eq!(words("compression")[2], format!("\"{}\"", holdfast::Options::default().compression));
    assert_eq!(words("mirrors.columns.scale")[3], format!("{} to {}", columns::SCALE.start(), columns::SCALE.end()));
    assert_eq!(words("compaction.schedule")[2], format!("\"{}\"", When::default()));
}

#[test]
fn the_manual_names_every_key_and_no_other() {
    let rows = manual();
    for key in rows.iter().filter_map(|row| row.first()) {
        let mut table = key.split('.').collect::<Vec<_>>();
        let name = table.pop().unwrap();
        // A wrong type at a key that exists is a mistake of type; at one that does not, of name.
        let value = "1979-05-27";
        let text = match table.as_slice() {
            [] => format!("{name} = {value}"),
            ["users"] => format!("[[users]]\n{name} = {value}"),
            ["series", "retention"] => format!("[[series.retention]]\n{name} = {value}"),
            ["mirrors"] => format!("[[mirrors]]\n{name} = {value}"),
            ["mirrors", "columns"] => format!("[[mirrors]]\n[[mirrors.columns]]\n{name} = {value}"),
            ["mirrors", "tls"] => format!("[[mirrors]]\ntls = {{ {name} = {value} }}"),
            ["users", "buckets"] => format!("[[users]]\nbuckets = [{{ {name} = {value} }}]"),
            table => format!("[{}]\n{name} = {value}", table.join(".")),
        };
        assert!(!error(&text).contains("there is no key"), "{key} is in the manual and not in the program");
    }
    for table in [
        "",
        "[tree]\n",
        "[compaction]\n",
        "[scrub]\n",
        "[limits]\n",
        "[resp]\n",
        "[resp.tls]\n",
        "[http]\n",
        "[line]\n",
        "[series]\n",
        "[[series.retention]]\n",
        "[space]\n",
        "[script]\n",
        "[xa]\n",
        "[[mirrors]]\n",
        "[[mirrors]]\n[[mirrors.columns]]\n",
        "[[users]]\n",
    ] {
        let named = error(&format!("{table}no_such_key = 1"));
        let keys = named.split('`').skip(3).step_by(2);
        let prefix = table.lines().last().unwrap_or_default().trim_matches(['[', ']']);
        let tables = "tree compaction scrub limits resp http line series retention space script tls xa mirrors columns";
        for key in keys.filter(|key| tables.split(' ').all(|table| table != *key)) {
            let key = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
            assert!(rows.iter().any(|row| row.first() == Some(&key)), "{key} is in the program and not in the manual");
        }
    }
}
