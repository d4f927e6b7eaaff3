//! Programs that are killed: this test program itself, started again for one of its tests, with a job in its environment.
//!
//! May use: std, `rustix` for ids of processes. Must not know: what a job is about.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use holdfast_tests::until;
use rustix::process::Pid;

/// Where a program finds its job.
const JOB: &str = "HOLDFAST_TEST_JOB";

/// The job of this process, when it is such a program and no test.
pub(crate) fn job() -> Option<String> {
    std::env::var(JOB).ok()
}

/// A running program. Dropping it kills it, and hears what it had said.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Program {
    /// Starts the test with this name with a job. `hear` is told of each line that it prints.
    pub(crate) fn start(test: &str, job: &str, mut hear: impl FnMut(&str) + Send + 'static) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(JOB, job);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = thread::spawn(move || lines.map_while(Result::ok).for_each(|line| hear(&line)));
        Self { child, input, reader: Some(reader) }
    }

    /// Tells it a line, unless it is dead.
    pub(crate) fn tell(&mut self, line: &str) {
        let _ = self.input.as_mut().map(|input| writeln!(input, "{line}"));
    }

    /// Its process.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it ends by itself within this time.
    pub(crate) fn ends_within(&mut self, time_max: Duration) -> bool {
        until(time_max, || self.child.try_wait().unwrap()).is_some()
    }

    /// SIGKILL; when this returns it is gone, and all it said is heard.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
