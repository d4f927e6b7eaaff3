//! The coordinator: a server in a process of its own, that says on request what it did.
//!
//! It speaks over its standard streams: its address first, then a line of numbers for each line it is sent; it ends with its
//! input.
//!
//! May use: the facade, the RESP door, processes. Must not know: transactions.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::AroundFiles;
use clap::Args;
use holdfast::{Durability, Options, Store, World};

use super::delayed::Delayed;
use super::words::window;
use crate::workload::{Failure, Result};

/// The command line of the child.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, value_parser = window)]
    window: Durability,
    #[arg(long)]
    sync_delay_nanos: u64,
}

/// What a coordinator did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) batches: u64,
    /// Of groups of batches, to the journal.
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
}

impl Served {
    /// Until now.
    pub(super) fn of(store: &Store) -> Self {
        let stats = store.stats();
        Self { batches: stats.batches, writes: stats.group_batches.count, syncs: stats.sync_nanos.count }
    }
}

impl Sub for Served {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            batches: self.batches - earlier.batches,
            writes: self.writes - earlier.writes,
            syncs: self.syncs - earlier.syncs,
        }
    }
}

/// Opens a store on a disk whose syncs take `delay` longer.
pub(super) fn open(dir: &Path, durability: Durability, delay: Duration) -> Result<Store> {
    let options = Options { durability, ..Options::default() };
    let mut world = World::real(dir, &options.limits);
    if !delay.is_zero() {
        world.files = Arc::new(AroundFiles::new(world.files, Arc::new(Delayed(delay))));
    }
    Ok(Store::open_in(&world, dir, options)?)
}

/// Serves until the input ends.
pub(crate) fn serve(line: &Serve) -> Result<()> {
    let store = open(&line.dir, line.window, Duration::from_nanos(line.sync_delay_nanos))?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let door = doors::resp::serve(store.clone(), doors::resp::Options::new(listen))
        .map_err(|error| Failure::from(error.to_string()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", door.local_addr())?;
    out.flush()?;
    for asked in std::io::stdin().lock().lines() {
        asked?;
        let served = Served::of(&store);
        writeln!(out, "{} {} {}", served.batches, served.writes, served.syncs)?;
        out.flush()?;
    }
    door.stop();
    Ok(store.close()?)
}

/// A coordinator that serves. Dropping it kills it.
pub(super) struct Serving {
    child: Child,
    /// Questions and answers.
    talk: Mutex<(Option<ChildStdin>, BufReader<ChildStdout>)>,
    pub(super) address: SocketAddr,
}

impl Serving {
    pub(super) fn start(dir: &Path, durability: Durability, delay: Duration) -> Result<Self> {
        let store = dir.join("coordinator");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("xa-serve").arg("--dir").arg(store).arg(format!("--window={}", words(durability)));
        command.arg(format!("--sync-delay-nanos={}", delay.as_nanos()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let piped = || Failure::from("a child without its streams");
        let input = child.stdin.take().ok_or_else(piped)?;
        let mut output = BufReader::new(child.stdout.take().ok_or_else(piped)?);
        let mut text = String::new();
        output.read_line(&mut text)?;
        let Ok(address) = text.trim().parse() else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure::from("the coordinator did not start"));
        };
        Ok(Self { child, talk: Mutex::new((Some(input), output)), address })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it did until now.
    pub(super) fn served(&self) -> Result<Served> {
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        let (input, output) = &mut *talk;
        if let Some(input) = input {
            writeln!(input)?;
        }
        let mut text = String::new();
        output.read_line(&mut text)?;
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        match *numbers {
            [batches, writes, syncs] => Ok(Served { batches, writes, syncs }),
            _ => Err(Failure::from("the coordinator does not say what it did")),
        }
    }

    /// Ends it in order.
    pub(super) fn stop(mut self) -> Result<()> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
        let ended = self.child.wait()?;
        if ended.success() { Ok(()) } else { Err(Failure::from(format!("the coordinator ended with {ended}"))) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `window` reads.
fn words(durability: Durability) -> String {
    match durability {
        Durability::Synced => "0".to_owned(),
        Durability::Written => "written".to_owned(),
        Durability::Window(window) => {
            format!("{},{}", window.min.as_secs_f64() * 1e3, window.max.as_secs_f64() * 1e3)
        }
    }
}
