//! What reading a sealed segment in steps reads of its file.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::memory::Disk;
use base::{Around, AroundFiles, Handle, ManualClock};

use crate::tests::{DIR, batch, options};
use crate::*;

const SEGMENT_BYTES: u64 = 8 << 20;
/// As compaction does.
const STEP_BYTES: u64 = 1 << 20;

#[derive(Default)]
struct Counted(AtomicU64);

impl Around for Counted {
    fn read_at(&self, handle: &Handle, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = handle.file.read_at(buffer, offset)?;
        self.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Positions of the batches of a segment that are wanted, a step's worth at a time.
fn in_steps(journal: &Journal, base: Position, wants: &dyn Fn(Position, Position) -> bool) -> Vec<Position> {
    let (mut from, mut found) = (base, Vec::new());
    // Steps that end elsewhere than pieces do that are counted from the beginning.
    let mut step = STEP_BYTES / 3;
    loop {
        let (mut read, mut next) = (0, None);
        let outcome = journal.read_segment(base, from, wants, &mut |visit| {
            let Visit::Record(record) = visit else { panic!("nothing is damaged") };
            found.push(record.position);
            read += record.end.get() - record.position.get();
            next = (read >= step).then_some(record.end);
            if next.is_some() { Err(Error::Closed) } else { Ok(()) }
        });
        match next {
            Some(next) => (from, step) = (next, STEP_BYTES),
            None => return outcome.map(|()| found).unwrap(),
        }
    }
}

#[test]
fn each_step_reads_on_where_the_last_one_ended_and_nothing_twice() {
    let counted = Arc::new(Counted::default());
    let files = AroundFiles::new(Arc::new(Disk::new(1)), Arc::clone(&counted));
    let options = Options { segment_bytes: SEGMENT_BYTES, batch_bytes_max: 8 << 20, ..options() };
    let (journal, _) =
        Journal::open(Arc::new(files), Arc::new(ManualClock::at(1_000)), Path::new(DIR), options).unwrap();
    let mut written = Vec::new();
    // The last is larger than a step, and than what is kept of a buffer.
    for (number, bytes) in (0..3000).map(|number| (number, 1000)).chain([(3001, 3 << 20)]) {
        written.push(journal.append(&batch(number, bytes)).unwrap().position);
    }
    journal.wait(*written.last().unwrap(), Level::Written).unwrap();
    journal.seal_current().unwrap();
    let sealed: Vec<SegmentStats> = journal.segment_stats().into_iter().filter(|segment| segment.sealed).collect();
    let mut found = Vec::new();
    for segment in &sealed {
        // Its footer is read for the first time.
        let before = counted.0.load(Ordering::Relaxed);
        found.extend(in_steps(&journal, segment.base, &|_, _| true));
        let read = counted.0.load(Ordering::Relaxed) - before;
        let bytes = segment.end.get() - segment.base.get();
        assert!(read < bytes + bytes / 8 + (64 << 10), "{read} bytes were read of {bytes}");
    }
    assert_eq!(found, written);
    assert!(sealed.len() > 1);

    // One of so many batches that follow each other is wanted, and not the large one.
    let wanted: Vec<Position> = written.iter().copied().step_by(99).collect();
    let wants = |from: Position, to: Position| wanted.iter().any(|position| (from..to).contains(position));
    let before = counted.0.load(Ordering::Relaxed);
    let found: Vec<Position> = sealed.iter().flat_map(|segment| in_steps(&journal, segment.base, &wants)).collect();
    assert_eq!(found, wanted);
    let read = counted.0.load(Ordering::Relaxed) - before;
    assert!(read < (100 << 10), "{read} bytes were read");
}
