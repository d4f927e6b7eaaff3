//! `series export` of the real program: what was written over HTTP is in the files that it makes, as Arrow's own library reads them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdfast_tests::{Launch, holdfast, python, run};
use tempfile::TempDir;

const HOSTS: usize = 4;
const MOMENTS: usize = 9_000;
const FIELDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(180);

/// Lines with a field of each type; one host has a tag that the others have not.
fn lines(moments: std::ops::Range<usize>) -> String {
    let line = |moment: usize, host: usize| {
        let rack = if host == 0 { ",rack=r\u{e9}d\\ 1" } else { "" };
        let (float, integer) = (moment as f64 / 7.0 * 10_f64.powi(host as i32 * 30), moment as i64 - 4_000);
        let (is_even, unsigned) = (moment.is_multiple_of(2), u64::MAX - moment as u64);
        format!(
            "m,host=h{host}{rack} f={float:e},n={integer}i,u={unsigned}u,b={is_even},t=\"{moment}, \u{2603}\" {moment}\n"
        )
    };
    moments.flat_map(|moment| (0..HOSTS).map(move |host| line(moment, host))).collect()
}

#[test]
fn arrow_and_parquet_have_what_was_written() {
    let folder = TempDir::new().expect("a temporary folder");
    let data = folder.path().join("data");
    let server = Launch::new(&data).durability("written").start();
    for first in (0..MOMENTS).step_by(MOMENTS / 6) {
        let body = folder.path().join("body");
        fs::write(&body, lines(first..first + MOMENTS / 6)).expect("a file of a test can be written");
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--max-time", "60", "--data-binary"]);
        command.arg(format!("@{}", body.display())).arg(format!("http://{}/write?db=db&precision=s", server.http()));
        let done = run(&mut command, b"", PATIENCE);
        assert_eq!((done.code, done.text.as_str()), (Some(0), ""));
    }
    let (status, _) = server.terminate();
    assert!(status.success(), "{status}");
    let mut reading = Command::new(python());
    reading.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("py").join("export.py"));
    for format in ["arrow", "parquet", "csv"] {
        let to = folder.path().join(format);
        let output = fs::File::create(&to).expect("a file of a test can be made");
        let mut export = Command::new(holdfast());
        export.args(["series", "export", "--database", "db", "--format", format, "--dir"]).arg(&data).stdout(output);
        let status = export.status().expect("the program can be run");
        assert!(status.success(), "{format}: {status}");
        reading.arg(to);
    }
    reading.arg((HOSTS * MOMENTS * FIELDS).to_string());
    let done = run(&mut reading, b"", PATIENCE);
    assert_eq!(done.code, Some(0), "{}", done.text);
    assert!(done.text.contains("180000 rows are the same"), "{}", done.text);
}
