//! Runs the program, reads what it says, and never leaves it behind.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const TIME_MAX: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<ChildStderr>,
    /// What it said until it was ready.
    pub(crate) said: Vec<String>,
}

/// How a server ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// What it said after it was ready.
    pub(crate) said: Vec<String>,
    pub(crate) complained: String,
}

pub(crate) fn holdfast(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    run_with_input(arguments, b"")
}

pub(crate) fn run_with_input(arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut child = holdfast(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

impl Server {
    /// Starts on free ports, and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let ports = ["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"];
        Self::try_start(ports.iter().chain(arguments).copied()).unwrap_or_else(|(_, text)| panic!("{text}"))
    }

    pub(crate) fn try_start<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Self, (Option<i32>, String)> {
        let mut child = holdfast(arguments).spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let stderr = child.stderr.take();
        let mut server = Self { child, lines, stderr, said: Vec::new() };
        while let Ok(line) = server.lines.recv_timeout(TIME_MAX) {
            if line == "ready" {
                return Ok(server);
            }
            server.said.push(line);
        }
        let ended = server.wait();
        Err((ended.code, ended.complained))
    }

    /// The value of a line that begins with this word.
    pub(crate) fn value(&self, word: &str) -> &str {
        let value = self.said.iter().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("nothing about {word} in {:?}", self.said)).trim()
    }

    pub(crate) fn resp(&self) -> SocketAddr {
        self.value("resp").parse().unwrap()
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.value("http").parse().unwrap()
    }

    /// What comes back for this, until the server closes or falls silent after an answer.
    pub(crate) fn say(&self, words: &str) -> String {
        let mut stream = connect(self.resp());
        stream.write_all(words.as_bytes()).unwrap();
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).unwrap();
        answer.truncate(count);
        String::from_utf8(answer).unwrap()
    }

    pub(crate) fn get(&self, path: &str, headers: &str) -> String {
        let mut stream = connect(self.http());
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next thing it says.
    pub(crate) fn next_line(&self) -> String {
        self.lines.recv_timeout(TIME_MAX).unwrap()
    }

    pub(crate) fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(mut self) -> Ended {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < TIME_MAX, "it still runs");
            std::thread::yield_now();
        };
        let mut complained = String::new();
        self.stderr.take().unwrap().read_to_string(&mut complained).unwrap();
        Ended { code: status.code(), said: self.lines.iter().collect(), complained }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIME_MAX)).unwrap();
    stream
}
