//! Every work of `holdfast-bench space` runs to its end, tiny, and measures something.
//!
//! Those with servers need the server's program (`HOLDFAST_BIN`, or what the build left beside this one), Redis and PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// What a tiny run of these works found out, in lines of JSON.
fn run(words: &[&str]) -> Vec<Value> {
    let folder = TempDir::new().expect("a temporary folder");
    let json = folder.path().join("figures");
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"));
    command.args(words).args(["--repetitions", "1"]).arg("--dir").arg(folder.path().join("data"));
    let output = command.arg("--json").arg(&json).stdin(Stdio::null()).output().expect("the program starts");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let left = std::fs::read_dir(folder.path().join("data")).expect("the folder was made").count();
    assert_eq!(left, 0, "{words:?} left files behind");
    let text = std::fs::read_to_string(&json).expect("figures were written");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn space(work: &str, more: &[&str]) -> Vec<Value> {
    let tiny = ["--entries", "200", "--seconds", "0.05", "--threads", "2", "--payload", "100"];
    run(&[&["space", "--work", work], tiny.as_slice(), more].concat())
}

fn server() -> PathBuf {
    let beside = || Path::new(env!("CARGO_BIN_EXE_holdfast-bench")).with_file_name("holdfast");
    let program = std::env::var_os("HOLDFAST_BIN").map_or_else(beside, PathBuf::from);
    assert!(program.exists(), "build the server (cargo build -p holdfast-server), or set HOLDFAST_BIN to its program");
    program
}

/// Medians of a figure, by side.
fn medians(figures: &[Value], figure: &str) -> Vec<(String, f64)> {
    let rows = figures.iter().filter(|row| row["figure"] == figure);
    let sides = rows.flat_map(|row| row["sides"].as_array().cloned().unwrap_or_default());
    sides
        .map(|side| {
            let median = side["figure"]["median"].as_f64();
            (side["side"].as_str().unwrap_or_default().to_owned(), median.expect("it was measured"))
        })
        .collect()
}

/// Each of the figures is there for just these sides, and above zero.
fn measured(figures: &[Value], wanted: &[&str], sides: &[&str]) {
    for figure in wanted {
        let found = medians(figures, figure);
        for side in sides {
            assert!(found.iter().any(|(name, _)| name == side), "{figure} of {side}: {found:?}");
        }
        assert!(found.iter().all(|(_, median)| *median > 0.0), "{figure}: {found:?}");
    }
}

#[test]
fn embedded_works_measure_what_they_name() {
    let of = |work| space(work, &["--durability", "volatile,written"]);
    let ours = |figures: &[Value], wanted: &[&str]| measured(figures, wanted, &["holdfast"]);
    ours(&of("paced"), &["write p50", "write response p99", "read p99.9"]);
    ours(&of("throughput"), &["insert", "update", "read", "take", "take, worst pause"]);
    ours(&of("scaling"), &["update", "update, by that of one thread", "take, by that of one thread"]);
    ours(&of("contention"), &["take", "take, longest"]);
    ours(&of("changes"), &["increment of one entry", "entries in batches of 100"]);
    ours(&of("queries"), &["ranges of 100 by an ordered index", "count, sum and max of all", "average of ten groups"]);
    ours(&of("near"), &["near reads, fresh", "near hits, fresh", "near read, 50 ms stale at most p99"]);
    ours(&of("handoff"), &["hand-off p50", "hand-off p99", "notify p50", "notify p99"]);
    ours(&of("memory"), &["counted beyond the payload"]);
    ours(&of("restart"), &["open after a kill", "open after a clean end"]);
}

#[test]
fn a_server_is_measured_beside_redis() {
    let server = server();
    let server = server.to_str().expect("a path in UTF-8");
    // redis-benchmark counts milliseconds: all of the requests must take it some.
    let more = ["--durability", "written,synced", "--requests", "5000", "--clients", "4", "--holdfast", server];
    let of = |work| space(work, &more);
    measured(&of("remote"), &["requests", "p50"], &["holdfast", "redis"]);
    let alike = of("alike");
    measured(&alike, &["requests", "p50"], &["holdfast", "redis"]);
    assert_eq!(alike.iter().filter(|row| row["figure"] == "requests").count(), 6 * 2 * 2, "rows, pipes, durabilities");
    measured(&of("waiting"), &["hand-off p50", "hand-off p99"], &["holdfast", "redis"]);
    measured(
        &of("execute"),
        &["write p50", "EVAL, empty p99", "FCALL, empty p50", "EVAL, reads one p50"],
        &["holdfast", "redis"],
    );
    measured(&of("prepared"), &["reads"], &["parsed once", "parsed each time"]);
    measured(&of("notify"), &["event p50", "event p99"], &["holdfast", "redis pub/sub", "redis stream"]);
}

#[test]
fn the_order_flow_is_measured_as_one_space_and_as_tiers() {
    let figures = space("flow", &["--durability", "written,synced", "--flow-clients", "3", "--workers", "2"]);
    measured(&figures, &["transactions", "end to end p50", "end to end p99"], &["space", "tiers"]);
    // How many are sent is told beforehand in the second part.
    let is_given =
        |row: &serde_json::Value| row["work"].as_str().unwrap().contains("/s,") && row["figure"] == "transactions";
    assert_eq!(figures.iter().filter(|row| is_given(row)).count(), 2);
    let has_bar = |row: &serde_json::Value| row["bar"].is_string();
    assert!(figures.iter().all(|row| has_bar(row) != is_given(row)), "each other figure of the flow has its bar");
}

#[test]
fn the_clinic_is_measured_over_a_space_and_over_a_database() {
    let app = Path::new(env!("CARGO_BIN_EXE_holdfast-bench")).with_file_name("examples").join("clinic");
    assert!(app.exists(), "build the application: cargo build -p holdfast-examples --example clinic");
    let app = app.to_str().expect("a path in UTF-8");
    let figures = run(&["clinic", "--app", app, "--owners", "50", "--clients", "3", "--seconds", "0.2"]);
    measured(&figures, &["page views", "page views by a core", "p50", "p99"], &["space", "postgresql"]);
}
