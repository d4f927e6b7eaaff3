//! One writer that never waits for the disk: with each batch given to the operating system before the next, and with
//! many at once.
//!
//! May use: `opened.rs`. Must not know: syncs.

use std::time::Instant;

use journal::{Level, Log};

use super::opened::{Batches, Opened};
use super::{Line, OURS};
use crate::figures::{Bar, Unit};
use crate::report::{Figure, Report};
use crate::workload::Result;

/// The writer waits for each, for every 64th, for every 1024th batch.
const STRIDES: [u64; 3] = [1, 64, 1024];
const BAR: f64 = 1_500_000.0;

pub(super) fn measure(line: &Line, report: &mut Report) -> Result<()> {
    for stride in STRIDES {
        let dir = line.common.fresh()?;
        let opened = Opened::new(dir.path())?;
        let mut batches = Batches::new(line.batch_bytes, stride);
        let began = Instant::now();
        for number in 1..=line.batches {
            let appended = opened.journal.append(batches.next())?;
            if number % stride == 0 || number == line.batches {
                opened.journal.wait(appended.position, Level::Written)?;
            }
        }
        let rate = line.batches as f64 / began.elapsed().as_secs_f64();
        let work = format!("1 writer written, waits for every {stride}");
        let of = Figure { work: &work, figure: "batches", unit: Unit::PerSecond };
        report.add(of, OURS, rate);
        if stride > 1 {
            report.bar(of, Bar::AtLeast(BAR));
        }
    }
    Ok(())
}
