//! The real `redis-cli`, in a session that is written down with the answers of the original server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdfast_tests::{Launch, run};
use tempfile::TempDir;

/// Commands with the lines that answer them.
fn session() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/session.txt");
    let text = std::fs::read_to_string(path).expect("the session is beside the tests");
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(command) = line.strip_prefix("> ") {
            steps.push((command.to_owned(), Vec::new()));
        } else if let Some((_, answer)) = steps.last_mut() {
            answer.push(line.trim_end().to_owned());
        }
    }
    steps
}

#[test]
fn a_session_of_redis_cli_reads_as_with_the_original() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).start();
    let steps = session();
    assert!(steps.len() > 100, "the session is there");
    let input: String = steps.iter().map(|(command, _)| format!("{command}\n")).collect();
    for protocol in ["-2", "-3"] {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &server.resp().port().to_string(), "--no-raw", protocol]);
        let done = run(&mut command, input.as_bytes(), Duration::from_secs(60));
        assert_eq!(done.code, Some(0), "{}", done.text);
        let mut lines = done.text.lines().map(str::trim_end);
        for (number, (command, answer)) in steps.iter().enumerate() {
            let got: Vec<&str> = lines.by_ref().take(answer.len()).collect();
            assert_eq!(got, *answer, "redis-cli {protocol}, command {} of the session: {command}", number + 1);
        }
        assert_eq!(lines.next(), None, "nothing more is said");
    }
}

#[test]
fn redis_cli_scans_pipes_and_shows_information() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let port = server.resp().port().to_string();
    let ask = |arguments: &[&str], input: &str| {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &port]).args(arguments);
        let done = run(&mut command, input.as_bytes(), Duration::from_secs(60));
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.text);
        done.text
    };
    let mut mass = String::new();
    for number in 0..5_000 {
        let key = format!("key:{number}");
        mass.push_str(&format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\nv\r\n", key.len()));
    }
    let piped = ask(&["--pipe"], &mass);
    assert!(piped.contains("errors: 0, replies: 5000"), "{piped}");
    assert_eq!(ask(&["--scan", "--pattern", "key:*"], "").lines().count(), 5_000);
    assert_eq!(ask(&["DBSIZE"], ""), "5000");
    let info = ask(&["INFO"], "");
    assert!(info.contains("redis_version:") && info.contains("db0:keys=5000"), "{info}");
    assert_eq!(ask(&["-n", "2", "SET", "a", "b"], ""), "OK");
    assert_eq!(ask(&["-r", "3", "INCR", "n"], ""), "1\n2\n3");
    assert_eq!(ask(&["-x", "SET", "from-input"], "all of this"), "OK");
    assert_eq!(ask(&["GET", "from-input"], ""), "all of this");
}
