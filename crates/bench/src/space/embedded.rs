//! Single questions to an embedded space: what many do at once, what one query costs, what stays near.
//!
//! May use: the space, the near cache. Must not know: servers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use grid::NearCache;
use holdfast::space::{
    Change, Definition, Document, Entries, IndexKind, Path, ReadOptions, Storage, Value, Wanted, WriteOptions,
};

use super::sheet::{Sheet, Times, record, times};
use super::throughput::{for_a_time, together};
use super::{Kept, Line, document, open};
use crate::figures::Unit;
use crate::workload::{Failure, Result};

const OURS: &str = "holdfast";
/// Who take by one template at the same time.
const TAKERS: u16 = 16;
/// Documents that are written at once.
const BATCH: u64 = 100;
/// Entries that one range finds.
const RANGE: u64 = 100;
/// Different values that are grouped by.
const GROUPS: u64 = 10;

/// What each entry of the queried type has: a number that orders them, one that groups them.
fn numbered(id: u64, payload: usize) -> Document {
    let mut fields = document(id, payload).to_fields();
    fields.insert("number".to_owned(), id.into());
    fields.insert("group".to_owned(), (id % GROUPS).into());
    Document::new(&fields)
}

/// Sixteen workers take all entries by the same template; each entry goes to one of them.
pub(super) fn contention(line: &Line, sheet: &mut Sheet<'_>, kept: Kept) -> Result<()> {
    let dir = line.common.fresh()?;
    let (_store, entries) = open(dir.path(), kept)?;
    let count = line.entries;
    let wanted = Wanted::template(&Document::from_pairs([("state", "new")]));
    for id in 0..count {
        let mut fields = document(id, line.payload).to_fields();
        fields.insert("state".to_owned(), "new".into());
        let _ = entries.write_shown(&Document::new(&fields), &WriteOptions::default())?;
    }
    let (taken, began) = (AtomicU64::new(0), Instant::now());
    let worst = together(TAKERS, &|_| {
        let mut worst = Duration::ZERO;
        loop {
            let begin = Instant::now();
            if entries.take(&wanted, &ReadOptions::default())?.is_none() {
                return Ok(worst);
            }
            worst = worst.max(begin.elapsed());
            taken.fetch_add(1, Ordering::Relaxed);
        }
    })?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let taken = taken.into_inner();
    if taken != count {
        return Err(Failure::from(format!("{count} entries were taken {taken} times")));
    }
    sheet.rate(OURS, "take", rate, None);
    sheet.add(OURS, "take, longest", (Unit::Nanos, worst.as_nanos() as f64), None);
    Ok(())
}

/// Entries of an ordered index by ranges of a hundred, and figures over all of them.
pub(super) fn queries(line: &Line, sheet: &mut Sheet<'_>, kept: Kept) -> Result<()> {
    let dir = line.common.fresh()?;
    let (store, _) = open(dir.path(), kept)?;
    let storage = if kept == Kept::Volatile { Storage::Volatile } else { Storage::Durable };
    let numbered_type = Definition { storage, ..Definition::new("bench", "numbered") };
    let entries = store.space("bench").declare(numbered_type.index("number", IndexKind::Ordered)?)?;
    for id in 0..line.entries {
        let _ = entries.write_shown(&numbered(id, line.payload), &WriteOptions::default())?;
    }
    let last = line.entries.saturating_sub(RANGE);
    let measured = for_a_time("range", 1, line.time(), &|number| {
        let from = number.wrapping_mul(7919) % (last + 1);
        let wanted = Wanted::query(
            "number BETWEEN ? AND ? ORDER BY number",
            &[Value::from(from), Value::from(from + RANGE - 1)],
        )?;
        let found = entries.read_many(&wanted, usize::MAX)?.len() as u64;
        assert_eq!(found, RANGE.min(line.entries), "all entries of the range");
        Ok(())
    })?;
    sheet.rate(OURS, "ranges of 100 by an ordered index", measured.rate, None);
    let began = Instant::now();
    let sum = entries.select("SELECT COUNT(*) AS n, SUM(number) AS s, MAX(number) AS m FROM numbered", &[])?;
    let took = began.elapsed();
    let counted = sum.first().and_then(|row| row.get("n")).map(|n| n.to_value());
    if counted != Some(Value::from(line.entries)) {
        return Err(Failure::from(format!("{} entries were counted as {counted:?}", line.entries)));
    }
    sheet.add(OURS, "count, sum and max of all", (Unit::Seconds, took.as_secs_f64()), None);
    let began = Instant::now();
    let grouped = entries.select("SELECT \"group\", AVG(number) AS a FROM numbered GROUP BY \"group\"", &[])?;
    let took = began.elapsed();
    assert_eq!(grouped.len() as u64, GROUPS.min(line.entries), "all groups");
    sheet.add(OURS, "average of ten groups", (Unit::Seconds, took.as_secs_f64()), None);
    Ok(())
}

/// One entry that all threads change, and documents that are written a hundred at a time.
pub(super) fn changes(line: &Line, sheet: &mut Sheet<'_>, kept: Kept, threads: u16) -> Result<()> {
    let dir = line.common.fresh()?;
    let (_store, entries) = open(dir.path(), kept)?;
    entries.write(&Document::from_pairs([("id", 1), ("hits", 0)]), &WriteOptions::default())?;
    let (hot, by) = (Wanted::id(1), [Change::Increment { path: Path::parse("hits")?, by: 1.into() }]);
    let done = AtomicU64::new(0);
    let measured = for_a_time("increment", threads, line.time(), &|_| {
        entries.change(&hot, &by, &WriteOptions::default())?.expect("the entry is there");
        done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })?;
    let hits =
        entries.read(&hot, &ReadOptions::default())?.and_then(|entry| entry.document.get("hits")?.to_value().into());
    let done = done.into_inner();
    if hits != Some(Value::from(done)) {
        return Err(Failure::from(format!("{done} increments made {hits:?}")));
    }
    sheet.rate(OURS, "increment of one entry", measured.rate, None);
    let batches: Vec<Vec<Document>> =
        (0..16).map(|batch| (0..BATCH).map(|id| document(batch * BATCH + id + 2, line.payload)).collect()).collect();
    let measured = for_a_time("batch", threads, line.time(), &|number| {
        let batch = batches.get(usize::try_from(number % 16).unwrap_or(0)).expect("there are sixteen");
        entries.write_many(batch, &WriteOptions::default()).into_iter().try_for_each(|written| written.map(|_| ()))
    })?;
    sheet.rate(OURS, "entries in batches of 100", measured.rate * BATCH as f64, None);
    Ok(())
}

/// Reads that a near cache answers.
pub(super) fn near(line: &Line, sheet: &mut Sheet<'_>, kept: Kept) -> Result<()> {
    let dir = line.common.fresh()?;
    let (store, entries) = open(dir.path(), kept)?;
    let count = line.entries.clamp(1, 10_000);
    for id in 0..count {
        let _ = entries.write_shown(&document(id, line.payload), &WriteOptions::default())?;
    }
    for (name, staleness) in [("fresh", Duration::ZERO), ("50 ms stale at most", Duration::from_millis(50))] {
        let cache = NearCache::open(&store, &entries, usize::try_from(count)?, staleness)?;
        for id in 0..count {
            assert!(cache.read(&Value::from(id))?.is_some(), "it was written");
        }
        let before = cache.stats();
        let mut latency = times();
        let measured = one_reader(&cache, count, line.time(), &mut latency)?;
        let after = cache.stats();
        let reads = (after.hits + after.misses - before.hits - before.misses).max(1);
        sheet.rate(OURS, &format!("near reads, {name}"), measured, None);
        sheet.latency(OURS, &format!("near read, {name}"), &latency, None);
        let hits = (after.hits - before.hits) as f64 / reads as f64;
        sheet.add(OURS, &format!("near hits, {name}"), (Unit::Count, hits), None);
    }
    Ok(())
}

fn one_reader(cache: &NearCache, count: u64, time: Duration, latency: &mut Times) -> Result<f64> {
    let (began, mut number) = (Instant::now(), 0u64);
    while began.elapsed() < time {
        let begin = Instant::now();
        let found = cache.read(&Value::from(number.wrapping_mul(7919) % count))?;
        record(latency, begin.elapsed());
        assert!(found.is_some(), "it was written");
        number += 1;
    }
    Ok(number as f64 / began.elapsed().as_secs_f64())
}

/// Updates and reads by one, two and four threads, over few and many partitions.
pub(super) fn scaling(line: &Line, report: &mut crate::report::Report, kept: Kept) -> Result<()> {
    for partitions in [1, 4, 16] {
        let mut alone: Vec<(&'static str, f64)> = Vec::new();
        for threads in [1, 2, 4] {
            let dir = line.common.fresh()?;
            let (_store, entries) = super::open_in(dir.path(), kept, partitions)?;
            let of = (line.entries, threads);
            let work = format!("embedded, {partitions} partitions, {threads} threads, {}", kept.name());
            let mut sheet = Sheet { report: &mut *report, work: &work, sides: &[OURS] };
            for measured in super::throughput::measure(&entries, line.payload, of, line.time())? {
                sheet.rate(OURS, measured.name, measured.rate, None);
                match alone.iter().find(|(name, _)| *name == measured.name) {
                    None => alone.push((measured.name, measured.rate)),
                    Some((_, one)) => {
                        let speed_up = (Unit::Count, measured.rate / one);
                        sheet.add(OURS, &format!("{}, by that of one thread", measured.name), speed_up, None);
                    }
                }
            }
        }
    }
    Ok(())
}

/// How many bytes of memory the process has grown by each entry, beyond its payload.
pub(super) fn resident(entries: &Entries, before: u64, payload: usize) -> Result<f64> {
    let now = crate::process::memory_of(std::process::id(), "VmRSS:")?;
    let each = now.saturating_sub(before) as f64 / (entries.usage().entries as f64).max(1.0);
    Ok(each - payload as f64)
}
