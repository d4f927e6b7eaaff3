//! Reading the snapshots of spaces again, piece by piece, to find damage before an opening needs the bytes.
//!
//! Only checksums are looked at, so that a large snapshot takes no memory. A snapshot that is written anew takes the place of a
//! damaged one: what is told of a partition is what the last round found, unlike what opening found, by which something may be lost.
//!
//! May use: `files`. Must not know: how fast, when.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::space::SnapshotCheck;
use base::File;
use journal::PartitionId;

use super::files::{ENDS, FOLDER, Found, Pair, damage_of_pair, open, path};
use crate::partition::Partition;
use crate::store::{Inner, lock};

/// How far a round through the snapshots is.
#[derive(Default)]
pub(crate) struct SnapshotScrub {
    partition: u16,
    reading: Option<Reading>,
}

/// A partition's two files, which stay what they are while others take their names.
struct Reading {
    /// Those that are not read yet, the next one last, and where in [`Pair`] they are.
    left: Vec<(usize, Arc<dyn File>)>,
    found: Pair,
    partition: PartitionId,
    check: SnapshotCheck,
    offset: u64,
}

impl Reading {
    /// Reads some of what is left; how many bytes it was, or `None` when nothing is left.
    fn step(&mut self, bytes_max: u64) -> Option<u64> {
        let (end, file) = self.left.last()?;
        let mut buffer = vec![0; usize::try_from(bytes_max).expect("a piece fits memory")];
        let read = file.read_at(&mut buffer, self.offset);
        if let Some(bytes) = read.as_ref().ok().and_then(|read| buffer.get(..*read)).filter(|bytes| !bytes.is_empty()) {
            self.check.update(bytes);
            self.offset += bytes.len() as u64;
            return Some(bytes.len() as u64);
        }
        let bytes = file.len().unwrap_or(self.offset);
        let is_intact = read.is_ok() && self.check.is_intact();
        self.found[*end] = if is_intact { Found::Intact } else { Found::Damaged { bytes } };
        self.left.pop();
        (self.check, self.offset) = (SnapshotCheck::new(self.partition), 0);
        Some(0)
    }
}

impl Inner {
    /// Reads and checks the next bytes, at most so many of them, and notes damage. How many it was; `None` when the round is over.
    pub(crate) fn scrub_snapshots(&self, at: &mut SnapshotScrub, bytes_max: u64) -> Option<u64> {
        loop {
            let partition = self.partitions.get(usize::from(at.partition))?;
            let reading = at.reading.get_or_insert_with(|| self.open_snapshots(partition));
            match reading.step(bytes_max) {
                Some(0) => {}
                Some(read) => return Some(read),
                None => {
                    self.note_snapshots(reading.partition, reading.found);
                    (at.partition, at.reading) = (at.partition + 1, None);
                }
            }
        }
    }

    fn open_snapshots(&self, partition: &Partition) -> Reading {
        let mut left = Vec::new();
        // A store whose space was never used has none to be looked for.
        if partition.space_through.load(Ordering::Acquire) != u64::MAX {
            // A file that is being replaced is not there for a moment.
            let _none = lock(&self.spaces.snapshots);
            for (end, name) in ENDS.into_iter().enumerate().rev() {
                // What cannot be opened now, such as for want of descriptors, is read in the next round.
                if let Ok(Some(file)) = open(&*self.files, &path(self.dir(), partition.id, name)) {
                    left.push((end, file));
                }
            }
        }
        let check = SnapshotCheck::new(partition.id);
        Reading { left, found: [Found::Missing; 2], partition: partition.id, check, offset: 0 }
    }

    fn note_snapshots(&self, partition: PartitionId, found: Pair) {
        // Missing ones are told of by opening, which knows whether there were any.
        let damage = damage_of_pair(&self.dir().join(FOLDER), partition, found, false);
        let mut known = lock(&self.damaged_snapshots);
        match damage {
            Some(damage) => drop(known.insert(partition, damage)),
            None => drop(known.remove(&partition)),
        }
    }
}
