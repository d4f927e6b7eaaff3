//! Runs programs: their output streams through while it is counted, and none of them may run for ever.
//!
//! May use: `tally`. Must not know: what is run, or why.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::tally::Tally;

/// Longer than any step takes on two cores from an empty target folder; a step that takes longer hangs.
const STEP_TIME_MAX: Duration = Duration::from_secs(40 * 60);

/// Lines waiting to be printed and counted.
const LINES_MAX: usize = 1024;

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Two jobs and two test threads unless told otherwise: what passes on the smallest machine passes everywhere.
    for name in ["CARGO_BUILD_JOBS", "RUST_TEST_THREADS"] {
        if std::env::var_os(name).is_none() {
            command.env(name, "2");
        }
    }
    command
}

/// Runs a program that prints `test result:` lines and counts them; a program that fails without having said which test
/// failed (it did not compile, or it died) counts as one failure.
pub(crate) fn tests(name: &str, command: &mut Command, tally: &mut Tally) {
    let failed_before = tally.failed();
    let success = timed(name, command, tally);
    if !success && tally.failed() == failed_before {
        tally.step(name, false);
    }
}

/// Runs a program that is one test: it passes when its exit code is 0.
pub(crate) fn step(name: &str, command: &mut Command, tally: &mut Tally) -> bool {
    let success = timed(name, command, tally);
    tally.step(name, success);
    success
}

/// Whether the program can be started at all and ends well; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a program to its end, streaming and counting its output.
pub(crate) fn timed(name: &str, command: &mut Command, tally: &mut Tally) -> bool {
    println!("==== {name}");
    let begin = Instant::now();
    let success = match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
        Ok(child) => watch(child, tally),
        Err(error) => {
            println!("cannot start {}: {error}", command.get_program().display());
            false
        }
    };
    let word = if success { "ok" } else { "FAILED" };
    println!("==== {name}: {word}, {:.1} s", begin.elapsed().as_secs_f64());
    success
}

fn watch(mut child: Child, tally: &mut Tally) -> bool {
    let (sender, lines) = mpsc::sync_channel::<String>(LINES_MAX);
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // Not `lines()`: one byte that is not UTF-8 must not end the stream.
            while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
    let deadline = Instant::now() + STEP_TIME_MAX;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                tally.read_line(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return child.wait().is_ok_and(|status| status.success()),
            Err(RecvTimeoutError::Timeout) => {
                println!("no end after {} s: killed", STEP_TIME_MAX.as_secs());
                kill_family(child.id());
                // The status of a killed child says nothing; waiting only lets the system forget it.
                drop(child.wait());
                return false;
            }
        }
    }
}

/// Kills a process and all that descend from it: cargo dies without taking the test program along.
fn kill_family(ancestor: u32) {
    let parents = parents();
    let mut family = BTreeSet::from([ancestor]);
    while let Some((child, _)) =
        parents.iter().find(|(child, parent)| family.contains(parent) && !family.contains(child))
    {
        family.insert(*child);
    }
    let ids: Vec<String> = family.iter().map(ToString::to_string).collect();
    succeeds(Command::new("sh").arg("-c").arg(format!("kill -9 {}", ids.join(" "))));
}

/// (process, parent) of everything that runs.
fn parents() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in parentheses may contain anything, so count from its end: state, then parent.
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            Some((process, parent))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{parents, step, succeeds, tests};
    use crate::tally::Tally;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn output_is_counted_and_a_silent_death_is_one_failure() {
        let mut tally = Tally::default();
        tests("good", &mut shell("echo 'test result: ok. 7 passed; 0 failed;'"), &mut tally);
        tests("bad", &mut shell("echo 'test result: FAILED. 1 passed; 2 failed;'; exit 101"), &mut tally);
        tests("dead", &mut shell("kill -9 $$"), &mut tally);
        tests("absent", &mut Command::new("/no/such/program"), &mut tally);
        assert!(tally.report().ends_with("8 passed, 4 failed"));
    }

    #[test]
    fn a_step_is_one_test() {
        let mut tally = Tally::default();
        assert!(step("true", &mut shell("exit 0"), &mut tally));
        assert!(!step("false", &mut shell("exit 3"), &mut tally));
        assert!(tally.report().ends_with("1 passed, 1 failed"));
    }

    #[test]
    fn succeeds_tells_a_missing_program_from_a_working_one() {
        assert!(succeeds(&mut shell("exit 0")));
        assert!(!succeeds(&mut Command::new("/no/such/program")));
    }

    #[test]
    fn this_process_has_a_parent() {
        let own = std::process::id();
        assert!(parents().iter().any(|(process, parent)| *process == own && *parent > 0));
    }
}
