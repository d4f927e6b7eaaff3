//! The servers that are compared, started on free ports in fresh folders and stopped again.
//!
//! VictoriaMetrics keeps its data for a hundred years, because the scenario lies in the past. InfluxDB has no Influx lines over TCP; its
//! plugin for OpenTSDB takes `put` lines and JSON on one port. It is told to write what it has in memory into its files two
//! seconds after the last point, and to compact them then, so that its folder comes to rest while somebody waits.
//!
//! May use: processes. Must not know: what is measured.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use tempfile::TempDir;

use super::ask::Language;
use super::doors::{Checkpoint, Doors};
use super::http::Http;
use crate::process::{Running, free_port};
use crate::workload::{Durability, Failure, Result};

const START_TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const LOG: &str = "log";

/// The programs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Programs {
    /// The server to measure
    #[arg(long, default_value = "target/release/holdfast")]
    holdfast: PathBuf,
    /// VictoriaMetrics' single-node program, to compare with
    #[arg(long, default_value = "victoria-metrics")]
    victoriametrics: PathBuf,
    /// InfluxDB 1.x's program, to compare with
    #[arg(long, default_value = "influxd")]
    influxdb: PathBuf,
}

/// A server that was started, and where it is found.
pub(crate) struct Started {
    pub(crate) running: Running,
    pub(crate) doors: Doors,
}

impl Programs {
    /// Starts `holdfast serve` on a folder.
    pub(crate) fn holdfast(&self, dir: &Path, durability: Durability, languages: &[Language]) -> Result<Started> {
        let durability = match durability {
            Durability::Written => "written",
            Durability::Window => "window:1ms,10ms",
            Durability::Synced => "synced",
        };
        let mut command = Command::new(&self.holdfast);
        command.arg("serve").arg("--dir").arg(dir).args(["--durability", durability]);
        command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"]);
        let build = "build it with `cargo build --release -p holdfast-server`, or name it with --holdfast";
        let mut running = start(&mut command, &self.holdfast, build)?;
        let [http, line] = running.addresses_once_ready(["http", "line"])?;
        let doors = Doors {
            telnet: Some(line),
            line: Some(line),
            line_http: Some(http),
            put: Some(http),
            json: Some(http),
            query: http,
            languages: languages.to_vec(),
            checkpoint: Checkpoint::Answered,
        };
        Ok(Started { running, doors })
    }

    /// Starts VictoriaMetrics on a folder.
    pub(crate) fn victoriametrics(&self, dir: &Path) -> Result<Started> {
        let [http, line, telnet, json] = free_addresses()?;
        let mut command = Command::new(&self.victoriametrics);
        command.arg(format!("-storageDataPath={}", dir.join("data").display()));
        let listen = [("http", http), ("influx", line), ("opentsdb", telnet), ("opentsdbHTTP", json)];
        command.args(listen.map(|(what, at)| format!("-{what}ListenAddr={at}")));
        // A query of everything that was written is no attack.
        command.args(["-retentionPeriod=100y", "-loggerLevel=ERROR", "-search.maxQueryDuration=5m"]);
        command.args(["-search.maxUniqueTimeseries=1000000", "-search.maxSamplesPerQuery=4000000000"]);
        let build = "build `github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics` with Go as docs/benchmarks.md \
                     says, or name it with --victoriametrics";
        let running = start_quietly(&mut command, &self.victoriametrics, (dir, build))?;
        let doors = Doors {
            telnet: Some(telnet),
            line: Some(line),
            line_http: Some(http),
            put: None,
            json: Some(json),
            query: http,
            languages: vec![Language::Promql],
            checkpoint: Checkpoint::Unknown,
        };
        once_it_answers(Started { running, doors }, dir, "/health")
    }

    /// Starts InfluxDB on a folder.
    pub(crate) fn influxdb(&self, dir: &Path) -> Result<Started> {
        let [http, telnet, own, _] = free_addresses()?;
        let file = dir.join("influxdb.conf");
        std::fs::write(&file, configuration(dir, [http, telnet, own]))?;
        let mut command = Command::new(&self.influxdb);
        command.arg("run").arg("-config").arg(&file);
        let install = "install Debian's `influxdb`, or name it with --influxdb";
        let running = start_quietly(&mut command, &self.influxdb, (dir, install))?;
        let doors = Doors {
            telnet: Some(telnet),
            line: None,
            line_http: Some(http),
            put: None,
            json: Some(telnet),
            query: http,
            languages: vec![Language::Influxql],
            checkpoint: Checkpoint::Unknown,
        };
        let started = once_it_answers(Started { running, doors }, dir, "/ping")?;
        call(http, "POST", "/query?q=CREATE%20DATABASE%20%22default%22")?;
        Ok(started)
    }
}

fn configuration(dir: &Path, [http, telnet, own]: [SocketAddr; 3]) -> String {
    let at = |name: &str| dir.join(name).display().to_string();
    format!(
        "reporting-disabled = true\nbind-address = \"{own}\"\n\
         [meta]\ndir = \"{}\"\n\
         [data]\ndir = \"{}\"\nwal-dir = \"{}\"\nquery-log-enabled = false\n\
         cache-snapshot-write-cold-duration = \"2s\"\ncompact-full-write-cold-duration = \"2s\"\n\
         [http]\nbind-address = \"{http}\"\nlog-enabled = false\nsuppress-write-log = true\n\
         [[opentsdb]]\nenabled = true\nbind-address = \"{telnet}\"\ndatabase = \"default\"\n\
         [monitor]\nstore-enabled = false\n\
         [logging]\nlevel = \"error\"\nsuppress-logo = true\n",
        at("meta"),
        at("data"),
        at("wal")
    )
}

fn start(command: &mut Command, program: &Path, missing: &str) -> Result<Running> {
    Running::start(command, program).map_err(|failure| Failure::from(format!("{failure}; {missing}")))
}

/// As [`start`], of a program that talks much: into a file, which is shown if it does not start.
fn start_quietly(command: &mut Command, program: &Path, (dir, missing): (&Path, &str)) -> Result<Running> {
    let log = File::options().create(true).append(true).open(dir.join(LOG))?;
    let mut running = start(command.stderr(log), program, missing)?;
    running.unheard();
    Ok(running)
}

fn free_addresses() -> Result<[SocketAddr; 4]> {
    let address = || Ok::<SocketAddr, Failure>(SocketAddr::from(([127, 0, 0, 1], free_port()?)));
    Ok([address()?, address()?, address()?, address()?])
}

fn once_it_answers(mut started: Started, dir: &Path, path: &str) -> Result<Started> {
    let began = Instant::now();
    loop {
        match call(started.doors.query, "GET", path) {
            Ok(()) => return Ok(started),
            Err(_) if started.running.has_ended()? => {
                let said = std::fs::read_to_string(dir.join(LOG)).unwrap_or_default();
                return Err(format!("the server ended instead of starting: {}", said.trim_end()).into());
            }
            Err(failure) if began.elapsed() > START_TIME_MAX => return Err(failure),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// A request without a body, whose answer says no more than that it was one of success.
pub(crate) fn call(address: SocketAddr, method: &str, path: &str) -> Result<()> {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        Http::connect(address).await?.ask(request.as_bytes()).await?;
        Ok(())
    })
}

/// Where a server keeps its files.
pub(crate) enum Place {
    /// A folder of ours, which goes away.
    Fresh(TempDir),
    /// Somebody else's, if it is known.
    Known(Option<PathBuf>),
}

impl Place {
    /// The folder.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Fresh(dir) => Some(dir.path()),
            Self::Known(dir) => dir.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_what_to_do() {
        let programs = Programs { holdfast: "/no/a".into(), victoriametrics: "/no/b".into(), influxdb: "/no/c".into() };
        let dir = tempfile::tempdir().unwrap();
        let said = |started: Result<Started>| started.map(|_| ()).unwrap_err().to_string();
        for (text, parts) in [
            (said(programs.holdfast(dir.path(), Durability::Written, &[])), ["/no/a", "cargo build", "--holdfast"]),
            (said(programs.victoriametrics(dir.path())), ["/no/b", "docs/benchmarks.md", "--victoriametrics"]),
            (said(programs.influxdb(dir.path())), ["/no/c", "Debian", "--influxdb"]),
        ] {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn the_configuration_of_influxdb_is_toml() {
        let addresses = free_addresses().unwrap();
        let text = configuration(Path::new("/d"), [addresses[0], addresses[1], addresses[2]]);
        assert!(text.contains("dir = \"/d/meta\"") && text.contains("wal-dir = \"/d/wal\""), "{text}");
        assert!(text.lines().all(|line| line.starts_with('[') || line.contains(" = ")), "{text}");
    }
}
