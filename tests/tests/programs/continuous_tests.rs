//! A continuous query of the real program: it runs by itself, it is there after SIGKILL, and what was missed while nothing ran is
//! made up for.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_tests::{Launch, Server, run, until};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs()
}

fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--globoff", "--max-time", "60"]).args(arguments);
    let done = run(&mut command, b"", Duration::from_secs(90));
    assert_eq!(done.code, Some(0), "curl {arguments:?}: {}", done.text);
    done.text
}

fn ask(server: &Server, statement: &str) -> String {
    let url = format!("http://{}/query?db=db&epoch=s", server.http());
    let answer = curl(&["--data-urlencode", &format!("q={statement}"), &url]);
    assert!(!answer.contains("error"), "{statement}: {answer}");
    answer
}

fn write(server: &Server, lines: &str) {
    let url = format!("http://{}/write?db=db&precision=s", server.http());
    assert_eq!(curl(&["--data-binary", lines, &url]), "");
}

/// The starts of the windows that were computed.
fn windows(server: &Server) -> Vec<u64> {
    let answer = ask(server, "SELECT count FROM out");
    let Some((_, values)) = answer.split_once("\"values\":[[") else { return Vec::new() };
    values.split("],[").filter_map(|row| row.split(',').next()?.parse().ok()).collect()
}

#[test]
fn a_continuous_query_runs_by_itself_and_makes_up_for_what_a_kill_made_it_miss() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let began = now_seconds();
    let lines: Vec<String> = (began - 5..began + 60).map(|second| format!("m,host=a v={second}i {second}\n")).collect();
    write(&server, &lines.concat());
    ask(
        &server,
        "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT count(v), last(v) INTO out FROM m GROUP BY time(1s), host END",
    );
    let shown = ask(&server, "SHOW CONTINUOUS QUERIES");
    let some = until(PATIENCE, || Some(windows(&server)).filter(|windows| windows.len() >= 2));
    let before = some.expect("the query runs by itself");
    assert!(before[0] >= began - 1 && before.is_sorted(), "{before:?} {began}");
    server.kill();
    // Some runs are missed.
    let resumed = before[before.len() - 1] + 5;
    until(PATIENCE, || (now_seconds() > resumed).then_some(())).expect("time goes by");
    let server = Launch::new(folder.path()).start();
    assert_eq!(ask(&server, "SHOW CONTINUOUS QUERIES"), shown);
    let all = until(PATIENCE, || Some(windows(&server)).filter(|windows| windows.last() > Some(&resumed)));
    let all = all.expect("the query runs again");
    let wanted: Vec<u64> = (all[0]..=all[all.len() - 1]).collect();
    assert_eq!(all, wanted, "no window is left out");
    let rows = ask(&server, &format!("SELECT count, last FROM out WHERE time = {resumed}s AND host = 'a'"));
    assert!(rows.contains(&format!("[[{resumed},1,{resumed}]]")), "{rows}");
    let metrics = curl(&[&format!("http://{}/metrics", server.http())]);
    assert!(metrics.contains("\nholdfast_continuous_queries 1\n"), "{metrics}");
    let missed = metrics.lines().find_map(|line| line.strip_prefix("holdfast_continuous_missed_total "));
    assert!(missed.is_some_and(|missed| missed.parse::<u64>().is_ok_and(|missed| missed >= 3)), "{missed:?}");
    ask(&server, "DROP DATABASE db");
    stays_away(&server);
    let (status, _) = server.terminate();
    assert!(status.success(), "{status}");
}

/// Nothing brings a database back that was dropped with its queries.
fn stays_away(server: &Server) {
    let dropped = now_seconds();
    until(PATIENCE, || (now_seconds() > dropped + 2).then_some(())).expect("time goes by");
    let url = format!("http://{}/query?db=db&epoch=s", server.http());
    let answer = curl(&["--data-urlencode", "q=SELECT count FROM out", &url]);
    assert!(answer.contains("database not found: db"), "{answer}");
}
