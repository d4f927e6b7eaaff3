//! Programs that run beside the one that is tested: collectors, and other databases.
//!
//! May use: the tools of the tests, `rustix` for signals. Must not know: what the programs do.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_tests::{Output, until};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything that they do may take.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(60);

/// A program that runs beside the test. Dropping it kills it.
pub(crate) struct Program {
    child: Child,
    output: Output,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let name = command.get_program().display().to_string();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| {
            panic!("cannot start {name}: {error}; `cargo xtask test` installs what the tests need")
        });
        let output = Output::default();
        output.follow(child.stdout.take().expect("it was piped"));
        output.follow(child.stderr.take().expect("it was piped"));
        Program { child, output }
    }

    /// What it has printed.
    pub(crate) fn output(&self) -> &Output {
        &self.output
    }

    /// Asks until there is an answer.
    pub(crate) fn until<T>(&self, what: &str, ask: impl FnMut() -> Option<T>) -> T {
        until(TIME_MAX, ask).unwrap_or_else(|| panic!("no {what} in time; it said:\n{}", self.output.text()))
    }

    /// Ends it in order: it sends what it still has.
    pub(crate) fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        let ended = until(TIME_MAX, || self.child.try_wait().ok().flatten());
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}:\n{}", self.output.text());
        self.output.wait_for_end(TIME_MAX);
        self.output.text()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
