//! One side of the comparison while it runs: its process, its folder, its doors.
//!
//! May use: `programs.rs`, `/proc`. Must not know: what is measured.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::ask::Language;
use super::doors::{At, Doors};
use super::programs::{Place, Programs, Started, call};
use crate::cost::cpu_of;
use crate::place::Common;
use crate::process::{Running, memory_of};
use crate::workload::{Durability, Result, taken_bytes};

/// A folder is at rest when it did not change for so long; nobody waits longer than the second.
const REST: Duration = Duration::from_secs(4);
const REST_TIME_MAX: Duration = Duration::from_secs(180);
const STOP_TIME_MAX: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(250);

/// Who can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// `holdfast serve`.
    Holdfast,
    /// VictoriaMetrics, single node.
    Victoriametrics,
    /// InfluxDB 1.x.
    Influxdb,
    /// What `--at` describes.
    At,
}

/// What is needed to start any of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Starter<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) common: &'a Common,
    pub(crate) durability: Durability,
    /// What Holdfast is asked in.
    pub(crate) languages: &'a [Language],
    pub(crate) at: Option<&'a At>,
}

/// A side that runs. Dropping it kills it, unless somebody else started it.
pub(crate) struct Side {
    name: Name,
    pub(crate) doors: Doors,
    running: Option<Running>,
    process: Option<u32>,
    place: Place,
}

/// Space on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Of all files.
    pub(crate) all: u64,
    /// Of those that hold points and what finds them, without journals, where they are apart.
    pub(crate) series: Option<u64>,
}

impl Name {
    /// What reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Holdfast => "holdfast",
            Self::Victoriametrics => "victoriametrics",
            Self::Influxdb => "influxdb",
            Self::At => "at",
        }
    }
}

impl Starter<'_> {
    /// Starts it in a fresh folder.
    pub(crate) fn start(&self, name: Name) -> Result<Side> {
        if name == Name::At {
            let at = self.at.ok_or("say with --at where the server is")?;
            let place = Place::Known(at.dir.clone());
            return Ok(Side { name, doors: at.doors.clone(), running: None, process: at.process, place });
        }
        self.start_in(name, Place::Fresh(self.common.fresh()?))
    }

    fn start_in(&self, name: Name, place: Place) -> Result<Side> {
        let dir = place.path().ok_or("a folder that nobody knows")?;
        let Started { running, doors } = match name {
            Name::Holdfast => self.programs.holdfast(dir, self.durability, self.languages)?,
            Name::Victoriametrics => self.programs.victoriametrics(dir)?,
            Name::Influxdb => self.programs.influxdb(dir)?,
            Name::At => return Err("somebody else starts it".into()),
        };
        let process = Some(running.id());
        Ok(Side { name, doors, running: Some(running), process, place })
    }

    /// Stops it cleanly, and looks at its folder; then starts it again on what it left. `None` for what somebody else
    /// started, of which the folder is only looked at.
    pub(crate) fn start_again(&self, side: Side) -> Result<(Option<Taken>, Option<Side>)> {
        let Side { name, running, place, .. } = side;
        let stopped = running.map(|running| running.stop(STOP_TIME_MAX)).transpose()?;
        let taken = place.path().map(taken);
        let again = stopped.map(|()| self.start_in(name, place)).transpose()?;
        Ok((taken, again))
    }
}

impl Side {
    /// Processor time that it spent until now, if it may be seen.
    pub(crate) fn cpu(&self) -> Result<Option<Duration>> {
        self.process.map(cpu_of).transpose()
    }

    /// Resident memory in bytes, now and at most until now, if it may be seen.
    pub(crate) fn memory(&self) -> Result<Option<[u64; 2]>> {
        let look = |process| Ok([memory_of(process, "VmRSS:")?, memory_of(process, "VmHWM:")?]);
        self.process.map(look).transpose()
    }

    /// Lets it put its files in order: asks for what can be asked for, then waits until the folder changes no more.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.name == Name::Victoriametrics {
            call(self.doors.query, "GET", "/internal/force_flush")?;
            call(self.doors.query, "GET", "/internal/force_merge")?;
        }
        let Some(dir) = self.place.path() else { return Ok(()) };
        let began = Instant::now();
        let (mut size, mut since) = (taken_bytes(dir), Instant::now());
        while since.elapsed() < REST && began.elapsed() < REST_TIME_MAX {
            thread::sleep(PAUSE);
            let now = taken_bytes(dir);
            if now != size {
                (size, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Result<()> {
        self.running.map_or(Ok(()), |running| running.stop(STOP_TIME_MAX))
    }
}

fn taken(dir: &Path) -> Taken {
    let series = dir.join("series");
    Taken { all: taken_bytes(dir), series: series.exists().then(|| taken_bytes(&series)) }
}
