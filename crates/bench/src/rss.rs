//! `rss`: memory of the server, idle and with a million small objects, beside Redis.
//!
//! May use: `process.rs`, `client.rs`. Must not know: what the memory is for.

use std::thread;
use std::time::Duration;

use clap::Args;

use crate::client::{Client, Load};
use crate::figures::{Bar, Unit};
use crate::place::Common;
use crate::process::{Fsync, Programs};
use crate::report::{Figure, Report};
use crate::workload::{Result, seconds};

const OURS: &str = "holdfast";
const THEIRS: &str = "redis";
const IDLE_BYTES_MAX: f64 = (30 << 20) as f64;

/// The command line of `rss`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    programs: Programs,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Seconds to let a server rest before its memory is looked at
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    rest: f64,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    line.common.need(line.keys.saturating_mul(line.value_bytes as u64 + 300).saturating_mul(3))?;
    let mut report = Report::new("rss");
    let idle = Figure { work: "idle", figure: "RSS", unit: Unit::Bytes };
    let work = format!("{} keys of {} B", line.keys, line.value_bytes);
    let just = Figure { work: &work, figure: "RSS, just loaded", unit: Unit::Bytes };
    let loaded = Figure { work: &work, figure: "RSS, at rest", unit: Unit::Bytes };
    let rest = Duration::from_secs_f64(line.rest);
    for _ in line.common.repetitions() {
        for side in [OURS, THEIRS] {
            let dir = line.common.fresh()?;
            let server = if side == OURS {
                line.programs.start_holdfast(dir, "written")?
            } else {
                line.programs.start_redis(dir, Fsync::EverySecond)?
            };
            thread::sleep(rest);
            report.add(idle, side, server.rss_bytes()? as f64);
            Client::connect(server.address)?.load(Load { keys: line.keys, value_bytes: line.value_bytes })?;
            report.add(just, side, server.rss_bytes()? as f64);
            thread::sleep(rest);
            report.add(loaded, side, server.rss_bytes()? as f64);
            server.stop()?;
        }
    }
    report.bar(idle, Bar::Below(IDLE_BYTES_MAX));
    report.bar(just, Bar::RatioBelow(1.0));
    report.bar(loaded, Bar::RatioBelow(1.0));
    report.print(line.common.json.as_deref())
}
