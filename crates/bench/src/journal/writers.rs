//! Many writers that wait for syncs and share them.
//!
//! May use: `opened.rs`. Must not know: a single writer's latency.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use journal::{Level, Log};

use super::opened::{Batches, Opened};
use super::{Line, OURS};
use crate::figures::{Bar, Unit};
use crate::report::{Figure, Report};
use crate::workload::{Failure, Recorder, Result};

/// The number of writers that the bar is about, and the bar.
const BAR: (u16, f64) = (64, 200_000.0);

pub(super) fn measure(line: &Line, report: &mut Report) -> Result<()> {
    for writers in &line.writers {
        one(line, *writers, report)?;
    }
    Ok(())
}

fn one(line: &Line, writers: u16, report: &mut Report) -> Result<()> {
    let dir = line.common.fresh()?;
    let opened = Opened::new(dir.path())?;
    let stop = AtomicBool::new(false);
    let before = opened.journal.stats();
    let began = Instant::now();
    let all = thread::scope(|scope| {
        let spawn = |writer| {
            scope.spawn({
                let (opened, stop) = (&opened, &stop);
                move || write(line, opened, writer, stop)
            })
        };
        let threads: Vec<_> = (0..u64::from(writers)).map(spawn).collect();
        thread::sleep(Duration::from_secs_f64(line.seconds));
        stop.store(true, Ordering::Release);
        let mut all = Recorder::new()?;
        for thread in threads {
            let one = thread.join().map_err(|_| Failure::from("a writer panicked"))??;
            all.merge(&one)?;
        }
        Ok::<_, Failure>(all)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let after = opened.journal.stats();
    let syncs = (after.sync_nanos.count - before.sync_nanos.count) as f64;
    let latency = all.latency();
    let work = format!("{writers} writers synced");
    let mut add = |figure, unit, sample| report.add(Figure { work: &work, figure, unit }, OURS, sample);
    add("batches", Unit::PerSecond, all.count() as f64 / seconds);
    add("syncs", Unit::PerSecond, syncs / seconds);
    add("batches/sync", Unit::Count, all.count() as f64 / syncs.max(1.0));
    add("p50", Unit::Nanos, latency.p50_ns as f64);
    add("p99", Unit::Nanos, latency.p99_ns as f64);
    if writers == BAR.0 {
        report.bar(Figure { work: &work, figure: "batches", unit: Unit::PerSecond }, Bar::AtLeast(BAR.1));
    }
    Ok(())
}

fn write(line: &Line, opened: &Opened, writer: u64, stop: &AtomicBool) -> Result<Recorder> {
    let mut recorder = Recorder::new()?;
    let mut batches = Batches::new(line.batch_bytes, writer);
    let mut before = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let appended = opened.journal.append(batches.next())?;
        opened.journal.wait(appended.position, Level::Synced)?;
        let now = Instant::now();
        recorder.add(u64::try_from(now.duration_since(before).as_nanos()).unwrap_or(u64::MAX));
        before = now;
    }
    Ok(recorder)
}
