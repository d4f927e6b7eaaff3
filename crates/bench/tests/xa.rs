//! Every combination of `holdfast-bench xa` runs to its end, tiny, and measures what it names.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn xa(folder: &TempDir, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"));
    command.args(["xa", "--threads", "2", "--think", "none", "--seconds", "0.05", "--repetitions", "1"]);
    command.args(words).arg("--dir").arg(folder.path().join("data")).arg("--json").arg(folder.path().join("figures"));
    command.stdin(Stdio::null()).output().expect("the program starts")
}

/// What is measured of which work.
fn figures(words: &[&str]) -> (String, Vec<String>) {
    let folder = TempDir::new().expect("a temporary folder");
    let output = xa(&folder, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let left = std::fs::read_dir(folder.path().join("data")).expect("the folder was made").count();
    assert_eq!(left, 0, "{words:?} left files behind");
    let text = std::fs::read_to_string(folder.path().join("figures")).expect("figures were written");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let work = rows.first().map(|row| text(row, "work")).unwrap_or_default();
    (work, rows.iter().map(|row| text(row, "figure")).collect())
}

#[test]
fn either_interface_drives_either_coordinator() {
    for (words, work, opens, is_counted) in [
        (&["--coordinator", "remote"][..], "remote by c, synced, online, none, 2 threads", true, true),
        (&["--mode", "batch"], "remote by c, synced, batch, none, 2 threads", false, true),
        (&["--interface", "rust"], "remote by rust, synced, none, 2 threads", false, true),
        (&["--coordinator", "embedded"], "embedded by rust, synced, none, 2 threads", false, true),
        (
            &["--coordinator", "embedded", "--interface", "c", "--window", "written"],
            "embedded by c, written, online, none, 2 threads",
            true,
            false,
        ),
        (
            &["--coordinator", "embedded", "--interface", "c", "--mode", "batch"],
            "embedded by c, synced, batch, none, 2 threads",
            false,
            false,
        ),
    ] {
        let (found, figures) = figures(words);
        assert_eq!(found, work);
        let has = |figure: &str| figures.iter().any(|found| found == figure);
        assert!(
            has("transactions") && has("commit p95") && has("total p99") && has("CPU per transaction"),
            "{figures:?}"
        );
        assert_eq!((has("open p50"), has("close p50")), (opens, opens), "{work}: {figures:?}");
        for figure in ["disk operations", "syncs", "syncs per transaction", "batches per transaction"] {
            assert_eq!(has(figure), is_counted, "{work}: {figure}");
        }
    }
}

#[test]
fn times_may_have_units() {
    for (words, work) in [
        (
            &["--coordinator", "embedded", "--sync-delay", "2ms"][..],
            "embedded by rust, synced, sync +2 ms, none, 2 threads",
        ),
        (
            &["--coordinator", "embedded", "--sync-delay", "0.5"],
            "embedded by rust, synced, sync +0.5 ms, none, 2 threads",
        ),
        (&["--coordinator", "embedded", "--window", "max=5ms"], "embedded by rust, window, none, 2 threads"),
    ] {
        assert_eq!(figures(words).0, work);
    }
}

#[test]
fn what_could_only_be_ignored_is_refused() {
    for (words, why) in [
        (&["--coordinator", "embedded", "--mode", "batch"][..], "--mode is of the C interface"),
        (&["--interface", "rust", "--mode", "online"], "--mode is of the C interface"),
        (&["--coordinator", "embedded", "--interface", "c", "--sync-delay", "2ms"], "--sync-delay is not for"),
        (&["--sync-delay", "2 fortnights"], "is no time such as"),
        (&["--window", "min=5ms"], "does not say the window's MAX"),
    ] {
        let folder = TempDir::new().expect("a temporary folder");
        let output = xa(&folder, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    }
}
