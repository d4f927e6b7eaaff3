//! One thread that writes and reads at a fixed rate.
//!
//! May use: the pacer. Must not know: reports.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use holdfast::space::{Entries, ReadOptions, Wanted, WriteOptions};

use super::{Pacer, document};
use crate::workload::Result;

const RATE: f64 = 800.0;
/// Entries that are written over and over.
const ENTRIES: u64 = 20_000;

/// Latencies in nanoseconds of the operation itself, by name.
pub(super) fn measure(
    entries: &Entries,
    payload: usize,
    pacer: Pacer,
    time: Duration,
) -> Result<[(&'static str, Histogram<u64>); 2]> {
    for id in 0..ENTRIES {
        let _ = entries.write_shown(&document(id, payload), &WriteOptions::default())?;
    }
    let write = paced(pacer, time, |number| {
        let document = document(number % ENTRIES, payload);
        let began = Instant::now();
        entries.write(&document, &WriteOptions::default())?;
        Ok(began.elapsed())
    })?;
    let read = paced(pacer, time, |number| {
        let wanted = Wanted::id(number * 7919 % ENTRIES);
        let began = Instant::now();
        let found = entries.read(&wanted, &ReadOptions::default())?;
        let took = began.elapsed();
        assert!(found.is_some(), "it was written");
        Ok(took)
    })?;
    Ok([("write", write), ("read", read)])
}

fn paced(pacer: Pacer, time: Duration, mut operation: impl FnMut(u64) -> Result<Duration>) -> Result<Histogram<u64>> {
    let mut times = Histogram::new(3).expect("three digits are allowed");
    let start = Instant::now();
    for number in 0.. {
        let due = start + Duration::from_secs_f64(number as f64 / RATE);
        if due > start + time {
            break;
        }
        match pacer {
            Pacer::Spin => while Instant::now() < due {},
            Pacer::Sleep => std::thread::sleep(due.saturating_duration_since(Instant::now())),
        }
        let _ = times.record(u64::try_from(operation(number)?.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}
