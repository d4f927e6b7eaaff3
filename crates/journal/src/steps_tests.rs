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

/// The story: each of ten folds held all of the open segment, and a feed read it to its end for each batch.
#[test]
fn an_open_segment_is_read_a_piece_at_a_time_up_to_damage_and_behind_it() {
    let (disk, counted) = (Disk::new(2), Arc::new(Counted::default()));
    let files = AroundFiles::new(Arc::new(disk.clone()), Arc::clone(&counted));
    let options = Options { segment_bytes: 32 << 20, batch_bytes_max: 8 << 20, ..options() };
    let (journal, _) =
        Journal::open(Arc::new(files), Arc::new(ManualClock::at(1_000)), Path::new(DIR), options).unwrap();
    let mut written = Vec::new();
    // Some lie over the ends of pieces, some are larger than a piece.
    for number in 0..3000 {
        let bytes = if number % 700 == 350 { 2 << 20 } else { 1000 };
        written.push(journal.append(&batch(number, bytes)).unwrap());
    }
    let positions: Vec<Position> = written.iter().map(|appended| appended.position).collect();
    journal.wait(*positions.last().unwrap(), Level::Written).unwrap();
    let open = journal.segment_stats().into_iter().rfind(|segment| !segment.sealed).unwrap();
    assert!(open.base < positions[2000], "most of it is in one segment");
    let of_open: Vec<Position> = positions.iter().copied().filter(|position| *position >= open.base).collect();
    let found = |from: Position, max: usize| {
        let (mut found, mut damage) = (Vec::new(), Vec::new());
        let outcome = journal.read_from(from, &mut |visit| {
            match visit {
                Visit::Record(record) => found.push(record.position),
                Visit::Damaged(range) => damage.push(range.clone()),
            }
            if found.len() >= max { Err(Error::Closed) } else { Ok(()) }
        });
        assert!(outcome.is_ok() || found.len() == max);
        (found, damage)
    };
    for at in [0, 1, of_open.len() / 2, of_open.len() - 1] {
        // Just at a record, and in the middle of one.
        assert_eq!(found(of_open[at], usize::MAX), (of_open[at..].to_vec(), vec![]));
        assert_eq!(found(of_open[at].plus(8), usize::MAX), (of_open[at + 1..].to_vec(), vec![]));
    }
    let before = counted.0.load(Ordering::Relaxed);
    assert_eq!(found(of_open[1], 3).0, of_open[1..4]);
    let read = counted.0.load(Ordering::Relaxed) - before;
    assert!(read <= STEP_BYTES + (8 << 10), "{read} bytes were read for three batches");
    // One is damaged, and what comes behind it is there.
    let hit = of_open.len() / 2;
    let path = disk
        .inventory()
        .into_iter()
        .map(|(path, _)| path)
        .rfind(|path| path.extension().is_some_and(|end| end == "seg"));
    disk.flip(&path.unwrap(), of_open[hit].get() - open.base.get() + 500, 1);
    let mut expected = of_open.clone();
    expected.remove(hit);
    let (records, damage) = found(of_open[0], usize::MAX);
    assert_eq!(records, expected);
    assert_eq!(damage.iter().map(|damage| damage.position).collect::<Vec<_>>(), [of_open[hit]]);
    // Damage before what is asked for is no news of it.
    assert_eq!(found(of_open[hit + 1], usize::MAX), (of_open[hit + 1..].to_vec(), vec![]));
}
