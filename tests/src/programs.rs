//! Finds the programs that the tests run, and runs them to their end.
//!
//! May use: `output`, `wait`. Must not know: what the programs do.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::output::Output;
use crate::wait::until;

/// The end of a program: whether it was content, and all it printed.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Both streams, in the order in which their lines came.
    pub text: String,
}

/// The server's program: `HOLDFAST_BIN`, or what the last build left in the target folder.
///
/// # Panics
/// When there is none.
pub fn holdfast() -> PathBuf {
    if let Some(named) = std::env::var_os("HOLDFAST_BIN") {
        return named.into();
    }
    let built = ["release", "checked", "debug"].map(|profile| target().join(profile).join("holdfast"));
    built.into_iter().find(|path| path.exists()).expect("run `cargo xtask test`, or set HOLDFAST_BIN to the program")
}

/// The Python with redis-py: `HOLDFAST_PYTHON`, or the environment that `cargo xtask test` makes.
pub fn python() -> PathBuf {
    std::env::var_os("HOLDFAST_PYTHON").map_or_else(|| target().join("e2e-python/bin/python"), PathBuf::from)
}

/// The program of an example, as the last build left it beside this test program.
///
/// # Panics
/// When there is none.
pub fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    let profile = own.ancestors().nth(2).expect("cargo puts tests three folders deep");
    let path = profile.join("examples").join(name);
    assert!(path.exists(), "run `cargo xtask test`, which builds the example {name}");
    path
}

/// The target folder: this test program lies in `<target>/<profile>/deps`.
fn target() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    own.ancestors().nth(3).map(Path::to_path_buf).expect("cargo puts tests three folders deep")
}

/// How long a test that could go on for ever goes on: the seconds in the variable, or the default.
pub fn budget(variable: &str, default_seconds: u64) -> Duration {
    let given = std::env::var(variable).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(default_seconds))
}

/// Runs a program to its end, with this as its input.
///
/// # Panics
/// When it cannot be started, or does not end in time.
pub fn run(command: &mut Command, input: &[u8], time_max: Duration) -> Finished {
    let name = command.get_program().display().to_string();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!("cannot start {name}: {error}; `cargo xtask test` installs what the tests need")
    });
    let output = Output::default();
    output.follow(child.stdout.take().expect("it was piped"));
    output.follow(child.stderr.take().expect("it was piped"));
    if let Some(mut stdin) = child.stdin.take() {
        // A program may end without having read all of its input; its exit code tells whether that is wrong.
        drop(stdin.write_all(input));
    }
    let status = until(time_max, || child.try_wait().ok().flatten());
    if status.is_none() {
        drop(child.kill());
    }
    output.wait_for_end(Duration::from_secs(5));
    let text = output.text();
    let status = status.unwrap_or_else(|| panic!("{name} did not end within {time_max:?}; it printed:\n{text}"));
    Finished { code: status.code(), text }
}
