//! As many operations as some threads can do.
//!
//! May use: the space. Must not know: reports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast::space::{Document, Entries, ReadOptions, Wanted, WriteOptions};

use super::document;
use crate::workload::{Failure, Result};

/// Entries that are updated over and over.
const HOT: u64 = 4096;

/// What one kind of operation came to.
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) rate: f64,
    /// The longest single operation.
    pub(super) worst: Duration,
}

/// Inserts, updates, reads and takes entries with ids below `count`.
pub(super) fn measure(
    entries: &Entries,
    payload: usize,
    (count, threads): (u64, u16),
    time: Duration,
) -> Result<Vec<Measured>> {
    let template = document(0, payload);
    // The id goes into a copy of the same bytes: what a caller does who has a value and a name for it.
    let with_id = |id: u64| {
        let mut fields = template.to_fields();
        fields.insert("id".to_owned(), id.into());
        Document::new(&fields)
    };
    // Made beforehand: making them is not what is measured. But the store shares what it is given, so who writes the same again writes no memory: that
    // is one more kind of update.
    let documents: Vec<Document> = (0..count).map(with_id).collect();
    let of = |id: u64| documents.get(usize::try_from(id).unwrap_or(usize::MAX)).expect("ids are below the count");
    let write = |id: u64| entries.write(of(id), &WriteOptions::default()).map(|_| ());
    let write_new = |id: u64| {
        let document = Document::from_stored(of(id).as_bytes()).map_err(holdfast::Error::from)?;
        entries.write(&document, &WriteOptions::default()).map(|_| ())
    };
    let every =
        |name, operation: &(dyn Fn(u64) -> holdfast::Result<()> + Sync)| once_each(name, threads, count, operation);
    let insert = every("insert", &write)?;
    let hot = HOT.min(count);
    let spread = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let update = for_a_time("update", threads, time, &|number| write(spread(number) % hot))?;
    let update_new = for_a_time("update by new documents", threads, time, &|number| write_new(spread(number) % hot))?;
    let read = for_a_time("read", threads, time, &|number| {
        let found = entries.read(&Wanted::id(spread(number) % count), &ReadOptions::default())?;
        assert!(found.is_some(), "it was inserted");
        Ok(())
    })?;
    let take = every("take", &|id| {
        let taken = entries.take(&Wanted::id(id), &ReadOptions::default())?;
        assert!(taken.is_some(), "nobody else takes it");
        Ok(())
    })?;
    Ok(vec![insert, update, update_new, read, take])
}

/// The longest operation of threads that use no store: what the system's scheduler alone takes from one of so many.
pub(super) fn alone(threads: u16, time: Duration) -> Result<Duration> {
    let nothing = |number: u64| {
        std::hint::black_box(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Ok(())
    };
    Ok(for_a_time("nothing", threads, time, &nothing)?.worst)
}

/// Each number below `count` once, by the threads together.
fn once_each(
    name: &'static str,
    threads: u16,
    count: u64,
    operation: &(dyn Fn(u64) -> holdfast::Result<()> + Sync),
) -> Result<Measured> {
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let worst = together(threads, &|_| {
        let mut worst = Duration::ZERO;
        loop {
            let first = next.fetch_add(64, Ordering::Relaxed);
            if first >= count {
                return Ok(worst);
            }
            for number in first..(first + 64).min(count) {
                let began = Instant::now();
                operation(number)?;
                worst = worst.max(began.elapsed());
            }
        }
    })?;
    Ok(Measured { name, rate: count as f64 / began.elapsed().as_secs_f64(), worst })
}

/// As often as the threads can within the time. Numbers are given out once.
pub(super) fn for_a_time(
    name: &'static str,
    threads: u16,
    time: Duration,
    operation: &(dyn Fn(u64) -> holdfast::Result<()> + Sync),
) -> Result<Measured> {
    let done = AtomicU64::new(0);
    let began = Instant::now();
    let worst = together(threads, &|thread| {
        let (mut worst, mut number) = (Duration::ZERO, 0);
        while began.elapsed() < time {
            for _ in 0..32 {
                let before = Instant::now();
                operation(number * u64::from(threads) + thread)?;
                worst = worst.max(before.elapsed());
                number += 1;
            }
        }
        done.fetch_add(number, Ordering::Relaxed);
        Ok(worst)
    })?;
    Ok(Measured { name, rate: done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64(), worst })
}

/// Runs the threads to their end; the worst of what they met.
pub(super) fn together(threads: u16, body: &(dyn Fn(u64) -> Result<Duration> + Sync)) -> Result<Duration> {
    thread::scope(|scope| {
        let running: Vec<_> = (0..u64::from(threads)).map(|number| scope.spawn(move || body(number))).collect();
        let mut worst = Duration::ZERO;
        for thread in running {
            let met = thread.join().map_err(|_| Failure::from("a thread of the benchmark panicked"))??;
            worst = worst.max(met);
        }
        Ok(worst)
    })
}
