//! One thread that writes and reads at a fixed rate.
//!
//! May use: the pacer. Must not know: reports.

use std::time::{Duration, Instant};

use holdfast::space::{Entries, ReadOptions, Wanted, WriteOptions};

use super::sheet::{Times, record, times};
use super::{Pacer, document};
use crate::workload::Result;

const RATE: f64 = 800.0;
/// Entries that are written over and over.
const ENTRIES: u64 = 20_000;

/// How long operations took.
pub(super) struct Paced {
    /// Each by itself.
    pub(super) service: Times,
    /// From when each should have begun: what somebody would have waited who is not slowed down with the store.
    pub(super) response: Times,
}

/// Latencies of both operations, by name.
pub(super) fn measure(
    entries: &Entries,
    payload: usize,
    pacer: Pacer,
    time: Duration,
) -> Result<[(&'static str, Paced); 2]> {
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

/// Does the operation at a fixed rate; it says itself how long it took.
pub(super) fn paced(pacer: Pacer, time: Duration, mut operation: impl FnMut(u64) -> Result<Duration>) -> Result<Paced> {
    let (mut service, mut response) = (times(), times());
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
        record(&mut service, operation(number)?);
        record(&mut response, due.elapsed());
    }
    Ok(Paced { service, response })
}
