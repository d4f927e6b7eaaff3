//! One writer that waits for each sync, beside a bare write and sync.
//!
//! The disk has moods that last for seconds, so the three take turns of a tenth of a repetition each.
//!
//! May use: `bare.rs`, `opened.rs`. Must not know: more than one writer.

use std::time::Instant;

use journal::{Level, Log};

use super::bare::Bare;
use super::opened::{Batches, Opened};
use super::{Line, OURS};
use crate::figures::{Bar, Unit};
use crate::report::{Figure, Report};
use crate::workload::{Recorder, Result};

const TURNS: u32 = 10;
/// Bytes of the bare block that the bar is about.
const BLOCK_BYTES: usize = 4096;

pub(super) fn measure(line: &Line, repetition: u32, report: &mut Report) -> Result<()> {
    let dir = line.common.fresh()?;
    let small = usize::try_from(line.batch_bytes)?;
    let mut bare_block = Bare::new(&dir.path().join("bare-block"), BLOCK_BYTES)?;
    let mut bare_small = Bare::new(&dir.path().join("bare-small"), small)?;
    let opened = Opened::new(dir.path())?;
    let mut batches = Batches::new(line.batch_bytes, 1);
    let [mut ours, mut block, mut same] = [Recorder::new()?, Recorder::new()?, Recorder::new()?];
    let turn = line.syncs.div_ceil(TURNS);
    for at in 0..TURNS {
        for who in 0..3 {
            match (who + at + repetition) % 3 {
                0 => bare_block.run(turn, &mut block)?,
                1 => bare_small.run(turn, &mut same)?,
                _ => append(&opened, &mut batches, turn, &mut ours)?,
            }
        }
    }
    let names = [format!("bare {BLOCK_BYTES} B"), format!("bare {small} B")];
    let figures = |recorder: &Recorder| {
        let latency = recorder.latency();
        [("p50", latency.p50_ns), ("p95", latency.p95_ns), ("p99", latency.p99_ns)]
    };
    for (name, bare) in names.iter().zip([&block, &same]) {
        let work = format!("1 writer synced, by {name}");
        for ((figure, ours), (_, bare)) in figures(&ours).into_iter().zip(figures(bare)) {
            let of = Figure { work: &work, figure, unit: Unit::Nanos };
            report.add(of, OURS, ours as f64);
            report.add(of, name, bare as f64);
        }
    }
    let work = format!("1 writer synced, by {}", names[0]);
    report.bar(Figure { work: &work, figure: "p50", unit: Unit::Nanos }, Bar::RatioBelow(1.3));
    Ok(())
}

fn append(opened: &Opened, batches: &mut Batches, times: u32, recorder: &mut Recorder) -> Result<()> {
    for _ in 0..times {
        let before = Instant::now();
        let appended = opened.journal.append(batches.next())?;
        opened.journal.wait(appended.position, Level::Synced)?;
        recorder.add(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(())
}
