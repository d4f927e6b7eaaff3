//! The real server, as a process of its own on free ports, watched and always cleaned up.
//!
//! May use: `output`, `programs`, `resp`, `wait`, `rustix` for signals. Must not know: what a test does with it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::output::Output;
use crate::programs::holdfast;
use crate::resp::Client;
use crate::wait::until;

const START_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// How a server is to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    folder: PathBuf,
    resp: String,
    arguments: Vec<String>,
    files_max: Option<u32>,
}

/// A start that did not succeed.
#[derive(Debug)]
pub struct Refusal {
    /// The exit code; `None` when a signal ended the process.
    pub code: Option<i32>,
    /// What the process printed.
    pub text: String,
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    output: Output,
    resp: SocketAddr,
    http: SocketAddr,
    line: Option<SocketAddr>,
}

impl Launch {
    /// On this data folder, with ports that are free and everything else as it comes.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), resp: "127.0.0.1:0".to_owned(), arguments: Vec::new(), files_max: None }
    }

    /// With this durability, in the words of the command line.
    #[must_use]
    pub fn durability(self, durability: &str) -> Self {
        self.argument("--durability").argument(durability)
    }

    /// With its RESP door at this address, so that clients find it again after a restart.
    #[must_use]
    pub fn resp(mut self, address: &str) -> Self {
        address.clone_into(&mut self.resp);
        self
    }

    /// Allowed to have so many files open, sockets among them.
    #[must_use]
    pub fn files_max(self, files_max: u32) -> Self {
        Self { files_max: Some(files_max), ..self }
    }

    /// With one more word on the command line.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts the process and does not wait for anything.
    ///
    /// # Panics
    /// When the program cannot be started at all.
    pub fn spawn(&self) -> (Child, Output) {
        let mut command = match self.files_max {
            None => Command::new(holdfast()),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(holdfast());
                shell
            }
        };
        command.arg("serve").arg("--dir").arg(&self.folder);
        command.args(["--resp", &self.resp, "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"]).args(&self.arguments);
        follow(&mut command)
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn start(&self) -> Server {
        self.try_start()
            .unwrap_or_else(|refusal| panic!("the server did not start, exit {:?}:\n{}", refusal.code, refusal.text))
    }

    /// As [`Self::start`], of a server that was killed just now: its port may take a moment to be free.
    ///
    /// # Panics
    /// When it does not answer in time.
    pub fn start_again(&self) -> Server {
        until(START_TIME_MAX, || self.try_start().ok()).unwrap_or_else(|| self.start())
    }

    /// Starts the server and waits until it answers or has given up.
    ///
    /// # Errors
    /// What it printed before it ended, or within the time it has.
    pub fn try_start(&self) -> Result<Server, Refusal> {
        let (child, output) = self.spawn();
        Server::of(child, output)
    }
}

/// Starts a program whose output is followed.
fn follow(command: &mut Command) -> (Child, Output) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", command.get_program().display()));
    let output = Output::default();
    output.follow(child.stdout.take().expect("it was piped"));
    output.follow(child.stderr.take().expect("it was piped"));
    (child, output)
}

impl Server {
    /// A server that somebody started, once it is ready.
    ///
    /// # Errors
    /// What it printed, when it ended or did not become ready in time.
    pub fn of(mut child: Child, output: Output) -> Result<Self, Refusal> {
        let ready = output.wait_for(START_TIME_MAX, |line| (line.trim() == "ready").then_some(()));
        let door = |name: &str| output.wait_for(Duration::ZERO, |line| line.strip_prefix(name)?.trim().parse().ok());
        if let (Some(()), Some(resp), Some(http)) = (ready, door("resp "), door("http ")) {
            let line = door("line ");
            return Ok(Self { child, output, resp, http, line });
        }
        let exit = until(Duration::from_secs(5), || child.try_wait().ok().flatten());
        drop(child.kill());
        drop(child.wait());
        output.wait_for_end(Duration::from_secs(5));
        Err(Refusal { code: exit.and_then(|status| status.code()), text: output.text() })
    }

    /// Starts `holdfast` with these words only, in this working folder.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn bare(arguments: &[&str], working_folder: &Path) -> Self {
        let (child, output) = follow(Command::new(holdfast()).args(arguments).current_dir(working_folder));
        Self::of(child, output).unwrap_or_else(|refusal| panic!("exit {:?}:\n{}", refusal.code, refusal.text))
    }

    /// Where it speaks RESP.
    pub fn resp(&self) -> SocketAddr {
        self.resp
    }

    /// Where it speaks HTTP.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where it takes lines of points.
    ///
    /// # Panics
    /// When it takes none.
    pub fn line(&self) -> SocketAddr {
        self.line.unwrap_or_else(|| panic!("no line door:\n{}", self.output.text()))
    }

    /// What it has printed.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// A new connection.
    ///
    /// # Panics
    /// When it is not accepted.
    pub fn client(&self) -> Client {
        Client::connect(self.resp)
            .unwrap_or_else(|error| panic!("cannot connect: {error}; server:\n{}", self.output.text()))
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Memory that the process holds now.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: Option<u64> = line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
        kib.expect("a running process has a resident size") * 1024
    }

    /// Its process, for signals that do not end it.
    #[must_use]
    pub fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// SIGTERM; how it ended, and all it printed.
    pub fn terminate(self) -> (ExitStatus, String) {
        self.stop(Signal::TERM)
    }

    /// SIGINT, as Ctrl-C sends it.
    pub fn interrupt(self) -> (ExitStatus, String) {
        self.stop(Signal::INT)
    }

    fn stop(mut self, signal: Signal) -> (ExitStatus, String) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("the server runs");
        let status = until(STOP_TIME_MAX, || self.child.try_wait().ok().flatten());
        let status = status
            .unwrap_or_else(|| panic!("still running {STOP_TIME_MAX:?} after {signal:?}:\n{}", self.output.text()));
        self.output.wait_for_end(Duration::from_secs(5));
        (status, self.output.text())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
