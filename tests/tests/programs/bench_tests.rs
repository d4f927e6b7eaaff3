//! The real `redis-benchmark` runs through without an error, and every number it prints is above zero.

use std::process::Command;
use std::time::Duration;

use holdfast_tests::{Launch, run, say};
use tempfile::TempDir;

#[test]
fn redis_benchmark_runs_through_with_and_without_pipelining() {
    let folder = TempDir::new().expect("a temporary folder");
    for (durability, requests) in [("written", "20000"), ("synced", "4000")] {
        let server = Launch::new(folder.path()).durability(durability).start();
        let port = server.resp().port().to_string();
        for pipeline in ["1", "16"] {
            let mut command = Command::new("redis-benchmark");
            command.args(["-h", "127.0.0.1", "-p", &port, "-t", "ping,set,get,incr,mset", "-q", "--csv"]);
            command.args(["-n", requests, "-c", "20", "-d", "200", "-r", "10000", "-P", pipeline]);
            let done = run(&mut command, b"", Duration::from_secs(240));
            assert_eq!(done.code, Some(0), "{}", done.text);
            let lower = done.text.to_lowercase();
            assert!(!lower.contains("error") && !lower.contains("warning"), "{}", done.text);
            let mut tests = 0;
            for line in done.text.lines().filter(|line| line.starts_with('"') && !line.starts_with("\"test\"")) {
                let cells: Vec<&str> = line.split(',').map(|cell| cell.trim_matches('"')).collect();
                let rate: f64 = cells.iter().rev().nth(6).and_then(|cell| cell.parse().ok()).unwrap_or(0.0);
                assert!(rate > 0.0, "{line}");
                say!("redis-benchmark, {durability}, P={pipeline}: {} {rate:.0}/s", cells[..cells.len() - 7].join(","));
                tests += 1;
            }
            assert_eq!(tests, 6, "ping twice, set, get, incr and mset:\n{}", done.text);
        }
    }
}
