//! Points whose block is damaged: whoever asks for them gets the rest, or an error, and in either case is told what is missing.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_tests::{Launch, Server, Value, files_of, flip, holdfast, run};
use tempfile::TempDir;

/// A byte behind the header of a sealed file: in its first block.
const IN_FIRST_BLOCK: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// What curl prints for a request, headers included, and its exit code.
fn curl(server: &Server, arguments: &[&str], path: &str) -> (Option<i32>, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--globoff", "--include", "--max-time", "50"]).args(arguments);
    command.arg(format!("http://{}{path}", server.http()));
    let done = run(&mut command, b"", PATIENCE);
    (done.code, done.text)
}

/// Starts, writes a point a second, and stops, which packs them into a file of their own.
fn write(folder: &Path, seconds: Range<u64>) {
    let server = Launch::new(folder).durability("written").start();
    let lines: String = seconds.map(|second| format!("m f={second} {second}\n")).collect();
    let (_, answer) = curl(&server, &["--data-binary", &lines], "/write?db=db&precision=s");
    assert!(answer.contains("204"), "{answer}");
    let (status, text) = server.terminate();
    assert!(status.success(), "{text}");
}

fn sealed(folder: &Path) -> Vec<PathBuf> {
    files_of(folder).into_iter().filter(|path| path.extension().is_some_and(|end| end == "points")).collect()
}

#[test]
fn an_answer_without_damaged_points_says_so_in_every_way_of_asking() {
    const TOLD: &str = "the answer is incomplete: 1 damaged block of points";
    const HEADER: &str = "x-holdfast-incomplete: the answer is incomplete: 1 damaged block of points";
    let place = TempDir::new().expect("a temporary folder");
    let folder = place.path().join("data");
    write(&folder, 1700001000..1700001010);
    let damaged = sealed(&folder).pop().expect("what was written is sealed");
    write(&folder, 1700002000..1700002010);
    flip(&damaged, IN_FIRST_BLOCK, 1);
    let server = Launch::new(&folder).durability("written").start();
    let mut client = server.client();
    let body = r#"{"start":1700000900,"end":1700002500,"queries":[{"aggregator":"sum","metric":"m"}]}"#;
    // How it is asked for, how for the same without what is damaged, and what is told in the first case.
    let asked: [(&[&str], &str, &str, &str); 5] = [
        (
            &[],
            "/api/v1/query_range?query=m_f&start=1700001000&end=1700002010&step=1&db=db",
            "/api/v1/query_range?query=m_f&start=1700002005&end=1700002010&step=1&db=db",
            r#""warnings":["the answer is incomplete: 1 damaged block of points"#,
        ),
        (
            &[],
            "/query?db=db&epoch=s&q=SELECT%20f%20FROM%20m",
            "/query?db=db&epoch=s&q=SELECT%20f%20FROM%20m%20WHERE%20time%3E1700001500s",
            r#""messages":[{"level":"warning","text":"the answer is incomplete: 1 damaged block of points"#,
        ),
        (
            &[],
            "/api/query?start=1700000900&end=1700002500&m=none:m&db=db",
            "/api/query?start=1700001500&end=1700002500&m=none:m&db=db",
            HEADER,
        ),
        (
            &["--data-binary", body],
            "/api/query?db=db",
            "/api/query?start=1700001500&end=1700002500&m=sum:m&db=db",
            HEADER,
        ),
        (&[], "/api/v1/export?match[]=m_f&db=db", "/api/v1/export?match[]=m_f&start=1700001500&db=db", HEADER),
    ];
    for (arguments, with, without, wanted) in asked {
        let (code, answer) = curl(&server, arguments, with);
        assert!(code == Some(0) && answer.contains(wanted) && answer.contains("2009"), "{with}: {answer}");
        let (code, answer) = curl(&server, &[], without);
        assert!(code == Some(0) && !answer.contains("incomplete") && answer.contains("200"), "{without}: {answer}");
    }
    let refused = client.say("TS.RANGE m - + FIELD f DB db");
    let Value::Error(text) = &refused else { panic!("{refused:?}") };
    assert!(
        text.starts_with(
            "CORRUPT the answer is incomplete: 1 damaged block of points from 1700001000000000000 to 1700001009000000000 ns"
        ),
        "{text}"
    );
    let rest = client.say("TS.RANGE m 1700001009000000001 + FIELD f DB db");
    assert!(matches!(&rest, Value::Array(points) if points.len() == 10), "{rest:?}");
    drop(client);
    let (status, text) = server.terminate();
    assert!(status.success(), "{text}");
    let mut export = Command::new(holdfast());
    export.args(["series", "export", "--database", "db", "--format", "csv", "--dir"]).arg(&folder);
    let done = run(&mut export, b"", PATIENCE);
    assert!(done.code == Some(1) && done.text.contains("2009") && done.text.contains(TOLD), "{}", done.text);
}
