//! The stores that can be measured, and how each is started for one repetition.
//!
//! Every store is a program of its own for each repetition, or is asked by one, in a fresh folder: what it uses of the
//! machine is then its own, and nothing of one store's memory is left when the next begins.
//!
//! May use: `process.rs`, `place.rs`. Must not know: workloads, RocksDB; that side is a program in `compare/`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use clap::Args;

use super::embedded::Embedded;
use super::server::Served;
use crate::place::Common;
use crate::process::{Fsync, Programs, Server};
use crate::workload::{Durability, Plan, Result, run_side as run_plan};

/// A store by its name on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// Holdfast in the benchmark's process.
    Holdfast,
    /// Holdfast's server over RESP, started for each repetition.
    Resp,
    /// Whatever speaks the Redis protocol there; what it holds stays.
    RespAt(SocketAddr),
    /// Redis with its append-only file, started for each repetition.
    Redis,
    /// A store of the program in `compare/`.
    Compared(&'static str),
}

/// The programs that are started.
#[derive(Debug, Clone, Args)]
pub(crate) struct Started {
    #[command(flatten)]
    programs: Programs,
    /// The program that `cargo build --release` makes in `compare/`
    #[arg(long, default_value = "compare/target/release/compare")]
    compare_program: PathBuf,
    /// Bits per key of the Bloom filters of the compared stores; 0 is none
    #[arg(long, default_value_t = 10)]
    bloom_bits: u8,
}

/// The command line of one side, started by `kv`.
#[derive(Debug, Args)]
pub(crate) struct Side {
    /// Folder of the store, if it is here
    #[arg(long)]
    store_dir: Option<PathBuf>,
    /// Server to ask, instead of a store in this process
    #[arg(long)]
    address: Option<SocketAddr>,
    #[command(flatten)]
    plan: Plan,
}

/// One side, ready to run. What belongs to it lives as long as this.
pub(crate) struct Ready {
    pub(crate) command: Command,
    server: Option<Server>,
    _dir: Option<tempfile::TempDir>,
}

const COMPARED: [&str; 3] = ["rocksdb", "blobdb", "fjall"];

impl Started {
    /// Refuses to begin what would fail in the middle.
    pub(crate) fn check(&self, names: &[Name]) -> Result<()> {
        if names.iter().any(|name| matches!(name, Name::Compared(_))) && !self.compare_program.is_file() {
            let text = format!(
                "{} is not there: run `cargo build --release` in compare/ (see docs/benchmarks.md)",
                self.compare_program.display()
            );
            return Err(text.into());
        }
        Ok(())
    }

    /// Prepares one side for one repetition, with fresh data.
    pub(crate) fn ready(&self, name: &Name, common: &Common, plan: &Plan) -> Result<Ready> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("kv-side");
        let (mut server, mut dir) = (None, None);
        match name {
            Name::Holdfast => dir = Some(common.fresh()?),
            Name::RespAt(address) => {
                command.arg(format!("--address={address}"));
            }
            Name::Resp => {
                let durability = match plan.durability {
                    Durability::Written => "written",
                    Durability::Window => "window:1ms,10ms",
                    Durability::Synced => "synced",
                };
                server = Some(self.programs.start_holdfast(common.fresh()?, durability)?);
            }
            Name::Redis => {
                let fsync = match plan.durability {
                    Durability::Written => Fsync::Never,
                    Durability::Window => Fsync::EverySecond,
                    Durability::Synced => Fsync::Always,
                };
                server = Some(self.programs.start_redis(common.fresh()?, fsync)?);
            }
            Name::Compared(store) => {
                command = Command::new(&self.compare_program);
                command.arg(format!("--store={store}")).arg(format!("--bloom-bits={}", self.bloom_bits));
                dir = Some(common.fresh()?);
            }
        }
        if let Some(server) = &server {
            command.arg(format!("--address={}", server.address)).arg("--store-dir").arg(server.dir());
        }
        if let Some(dir) = &dir {
            command.arg("--store-dir").arg(dir.path());
        }
        command.args(plan.arguments());
        Ok(Ready { command, server, _dir: dir })
    }
}

impl Ready {
    /// Ends what was started.
    pub(crate) fn end(self) -> Result<()> {
        self.server.map_or(Ok(()), Server::stop)
    }
}

/// Does the plan to one store of this program.
pub(crate) fn run_side(side: &Side) -> Result<()> {
    match (side.address, &side.store_dir) {
        (Some(address), dir) => run_plan(&Served::find(address, dir.clone())?, &side.plan),
        (None, Some(dir)) => {
            let embedded = Embedded::open(dir, &side.plan)?;
            run_plan(&embedded, &side.plan)?;
            embedded.close()
        }
        (None, None) => Err("neither a folder nor an address".into()),
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(said: &str) -> std::result::Result<Self, String> {
        if let Some(address) = said.strip_prefix("resp:") {
            let found = address.to_socket_addrs().ok().and_then(|mut found| found.next());
            return found.map(Self::RespAt).ok_or_else(|| format!("`{address}` is no address HOST:PORT"));
        }
        match said {
            "holdfast" => Ok(Self::Holdfast),
            "resp" => Ok(Self::Resp),
            "redis" => Ok(Self::Redis),
            _ => COMPARED
                .into_iter()
                .find(|name| *name == said)
                .map(Self::Compared)
                .ok_or_else(|| format!("there are holdfast, resp, resp:HOST:PORT, redis, {}", COMPARED.join(", "))),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holdfast => f.write_str("holdfast"),
            Self::Resp => f.write_str("resp"),
            Self::RespAt(address) => write!(f, "resp:{address}"),
            Self::Redis => f.write_str("redis"),
            Self::Compared(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_is_known_by_its_name() {
        for said in ["holdfast", "resp", "resp:127.0.0.1:6379", "redis", "rocksdb", "blobdb", "fjall"] {
            assert_eq!(said.parse::<Name>().unwrap().to_string(), said);
        }
        for wrong in ["", "resp:", "resp:6379", "leveldb"] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }
}
