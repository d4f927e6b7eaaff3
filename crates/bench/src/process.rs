//! Servers as child processes: started on a free port in a fresh folder, stopped or killed, gone when dropped.
//!
//! May use: processes, `client.rs`. Must not know: what is measured.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Client;
use crate::workload::{Failure, Result};

/// No server takes longer to start in an empty folder, or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    running: Running,
    /// Where it speaks RESP.
    pub(crate) address: SocketAddr,
    dir: TempDir,
    rests: AtomicBool,
}

/// A child that does not outlive this value.
pub(crate) struct Running(Child);

/// While it is held, a server that rests goes on. What it does in the background meanwhile is then in nobody else's time.
pub(crate) struct Awake<'s>(Option<&'s Server>);

/// How Redis treats its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fsync {
    Never,
    EverySecond,
    Always,
}

/// Which of the two wins back the space of what is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reclaim {
    /// Each as it does by itself: Holdfast compacts all the time, Redis rewrites its file when it has doubled
    Both,
    /// Neither, so that both only grow
    Neither,
    /// Holdfast alone, which is in Redis' favour
    Holdfast,
}

/// The two programs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Programs {
    /// The server to measure
    #[arg(long, default_value = "target/release/holdfast")]
    holdfast: PathBuf,
    /// The server to compare with
    #[arg(long, default_value = "redis-server")]
    redis: PathBuf,
    /// Which of the two wins back the space of what is replaced
    #[arg(long, value_enum, default_value = "both")]
    reclaim: Reclaim,
}

impl Programs {
    /// Starts `holdfast serve` and waits until it says that it is ready.
    pub(crate) fn start_holdfast(&self, dir: TempDir, durability: &str) -> Result<Server> {
        let mut command = Command::new(&self.holdfast);
        command.arg("serve").arg("--dir").arg(dir.path());
        command.args([
            "--resp",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--line",
            "127.0.0.1:0",
            "--durability",
            durability,
        ]);
        // Read while it starts.
        let mut config = tempfile::NamedTempFile::new()?;
        if self.reclaim == Reclaim::Neither {
            config.write_all(b"[compaction]\nschedule = \"on demand\"\n")?;
        }
        command.arg("--config").arg(config.path());
        let mut running = Running::start(&mut command, &self.holdfast)?;
        let address = running.address_once_ready()?;
        Ok(Server { running, address, dir, rests: AtomicBool::new(false) })
    }

    /// Starts Redis with its append-only file and without snapshots.
    pub(crate) fn start_redis(&self, dir: TempDir, fsync: Fsync) -> Result<Server> {
        let port = free_port()?;
        let how = match fsync {
            Fsync::Never => "no",
            Fsync::EverySecond => "everysec",
            Fsync::Always => "always",
        };
        let mut command = Command::new(&self.redis);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(dir.path());
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", how]);
        if self.reclaim != Reclaim::Both {
            command.args(["--auto-aof-rewrite-percentage", "0"]);
        }
        command.args(["--loglevel", "warning"]);
        let mut running = Running::start(&mut command, &self.redis)?;
        running.unheard();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let server = Server { running, address, dir, rests: AtomicBool::new(false) };
        let began = Instant::now();
        while Client::connect(server.address).and_then(|mut client| client.call(&[b"PING"])).is_err() {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not answer", self.redis.display()).into());
            }
            thread::sleep(PAUSE);
        }
        Ok(server)
    }
}

impl Server {
    /// Folder of its data.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Memory of the process that is in use, in bytes.
    pub(crate) fn rss_bytes(&self) -> Result<u64> {
        memory_of(self.running.id(), "VmRSS:")
    }

    /// Stops its processes where they are.
    pub(crate) fn rest(&self) -> Result<()> {
        self.rests.store(true, Ordering::Relaxed);
        self.running.signal(Signal::STOP)
    }

    /// Lets them go on, if they rest, for as long as what is returned is held.
    pub(crate) fn awake(&self) -> Result<Awake<'_>> {
        if !self.rests.swap(false, Ordering::Relaxed) {
            return Ok(Awake(None));
        }
        self.running.signal(Signal::CONT)?;
        Ok(Awake(Some(self)))
    }

    /// Asks the server to stop, and waits for it.
    pub(crate) fn stop(self) -> Result<()> {
        self.running.signal(Signal::CONT)?;
        self.running.stop(PATIENCE)
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command, program: &Path) -> Result<Self> {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        spawned.map(Self).map_err(|error| Failure::from(format!("{}: {error}", program.display())))
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Reads what it says and forgets it: a full pipe would stop it.
    pub(crate) fn unheard(&mut self) {
        if let Some(mut out) = self.0.stdout.take() {
            thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        }
    }

    /// Asks it to stop, and waits for it.
    pub(crate) fn stop(mut self, patience: Duration) -> Result<()> {
        signal(self.0.id(), Signal::TERM)?;
        let began = Instant::now();
        while self.0.try_wait()?.is_none() {
            if began.elapsed() > patience {
                return Err("the server does not stop".into());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Sends a signal to it, and to the children that it has at the moment.
    fn signal(&self, which: Signal) -> Result<()> {
        let id = self.0.id();
        signal(id, which)?;
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            // It may have ended meanwhile.
            let _ = signal(child, which);
        }
        Ok(())
    }

    fn address_once_ready(&mut self) -> Result<SocketAddr> {
        self.addresses_once_ready(["resp"]).map(|[address]| address)
    }

    /// What it says before a line that is `last`.
    pub(crate) fn once_it_says(&mut self, last: &str, patience: Duration) -> Result<Vec<String>> {
        let out = self.0.stdout.take().ok_or_else(|| Failure::from("a child without output"))?;
        let (tell, hear) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                // After that nobody listens, but the pipe must be read as long as the program lives.
                let _ = tell.send(line);
            }
        });
        let mut said = Vec::new();
        let end = Instant::now() + patience;
        loop {
            match hear.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.trim() == last => return Ok(said),
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout) => return Err(format!("the program did not say `{last}`").into()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the program ended before it said `{last}`").into());
                }
            }
        }
    }

    /// Where `holdfast` says that these doors are, once it is ready.
    pub(crate) fn addresses_once_ready<const N: usize>(&mut self, doors: [&str; N]) -> Result<[SocketAddr; N]> {
        let said = self.once_it_says("ready", PATIENCE)?;
        let found = doors.map(|door| said.iter().find_map(|line| address_of(door, line)));
        let missing: Vec<&str> =
            doors.iter().zip(&found).filter(|(_, at)| at.is_none()).map(|(door, _)| *door).collect();
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        match missing.as_slice() {
            [] => Ok(found.map(|address| address.unwrap_or(none))),
            doors => Err(format!("the server did not say where it listens: {}", doors.join(", ")).into()),
        }
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        // One that has ended rests.
        let _ = self.0.map(Server::rest);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(process: u32, which: Signal) -> Result<()> {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| Failure::from("a child without a process id"))?;
    Ok(kill_process(id, which)?)
}

/// The address in a line `resp  127.0.0.1:7411`.
fn address_of(door: &str, line: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace();
    (words.next()? == door).then(|| words.next()?.parse().ok())?
}

/// A port that nobody listened on a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Memory of a process in bytes: `VmRSS:` is now, `VmHWM:` the most it was.
pub(crate) fn memory_of(process: u32, which: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| Failure::from(format!("{path}: {error}")))?;
    bytes_of(&status, which).ok_or_else(|| Failure::from(format!("{path} does not say {which}")))
}

fn bytes_of(status: &str, which: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(which))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_what_a_server_says() {
        assert_eq!(address_of("resp", "resp      127.0.0.1:7411"), Some(SocketAddr::from(([127, 0, 0, 1], 7411))));
        assert_eq!(address_of("http", "  http 127.0.0.1:1 (plain)").map(|a| a.port()), Some(1));
        for other in ["", "ready", "http 127.0.0.1:7412", "resp", "resp off", "data resp"] {
            assert_eq!(address_of("resp", other), None, "{other}");
        }
    }

    #[test]
    fn resident_memory_is_found_in_a_status_page() {
        let status = "Name:\tx\nVmHWM:\t  2000 kB\nVmRSS:\t    1234 kB\n";
        assert_eq!(["VmRSS:", "VmHWM:"].map(|which| bytes_of(status, which)), [Some(1234 * 1024), Some(2000 * 1024)]);
        assert_eq!(bytes_of("Name:\tx\n", "VmRSS:"), None);
        assert!(memory_of(std::process::id(), "VmRSS:").unwrap() > 0);
    }
}
