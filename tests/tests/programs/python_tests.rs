//! Real libraries through `py/*.py`: redis-py, both versions of the protocol, and those for time series. Each script prints what differs
//! and, at its end, how many checks it made.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdfast_tests::{Launch, python, run, say};
use tempfile::TempDir;

fn script(name: &str, checks_min: u64) {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("py").join(name);
    for protocol in ["2", "3"] {
        let mut command = Command::new(python());
        command.arg("-B").arg(&path).args(["--port", &server.resp().port().to_string(), "--protocol", protocol]);
        let done = run(&mut command, b"", Duration::from_secs(180));
        assert_eq!(done.code, Some(0), "{name}, protocol {protocol}:\n{}", done.text);
        let checks = done.text.lines().last().and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
        assert!(checks.is_some_and(|checks| checks >= checks_min), "{name}, protocol {protocol}:\n{}", done.text);
        say!("redis-py, protocol {protocol}, {name}: {} checks", checks.unwrap_or(0));
    }
}

#[test]
fn libraries_for_influxdb_and_opentsdb_find_what_they_know() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let mut command = Command::new(python());
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("py/series_clients.py"));
    command.args(["--port", &server.http().port().to_string(), "--line-port", &server.line().port().to_string()]);
    let done = run(&mut command, b"", Duration::from_secs(180));
    assert_eq!(done.code, Some(0), "{}", done.text);
    let checks = done.text.lines().last().and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    assert!(checks.is_some_and(|checks| checks >= 45), "{}", done.text);
    say!("libraries for InfluxDB and OpenTSDB: {} checks", checks.unwrap_or(0));
}

#[test]
fn redis_py_finds_strings_as_it_knows_them() {
    script("strings.py", 100);
}

#[test]
fn redis_py_finds_keys_and_expiry_as_it_knows_them() {
    script("keys.py", 80);
}

#[test]
fn redis_py_finds_transactions_as_it_knows_them() {
    script("transactions.py", 40);
}

#[test]
fn redis_py_finds_the_connection_and_the_server_as_it_knows_them() {
    script("connection.py", 40);
}

#[test]
fn redis_py_runs_scripts_and_functions() {
    script("scripts.py", 40);
}

#[test]
fn redis_py_writes_and_takes_entries_of_spaces() {
    script("space.py", 60);
}

#[test]
fn what_programs_do_with_types_of_redis_is_done_with_entries() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python/from_redis.py");
    let mut command = Command::new(python());
    command.arg("-B").arg(example).arg(server.resp().port().to_string());
    let done = run(&mut command, b"", Duration::from_secs(60));
    assert_eq!((done.code, done.text.trim()), (Some(0), "10 habits moved"), "{}", done.text);
}
