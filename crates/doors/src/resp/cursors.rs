//! SCAN cursors: the number a client holds stands for a place in a bucket that the store describes.
//!
//! The table is bounded. A cursor that was continued from is the first to go, because its client has a newer one; then the
//! one not used for longest. A forgotten cursor is an error for its client, never a wrong answer.
//!
//! May use: the facade's `ScanCursor`. Must not know: commands.

use std::collections::{BTreeSet, HashMap};

use holdfast::ScanCursor;

use crate::ids::Ids;

struct Entry {
    bucket: Vec<u8>,
    cursor: ScanCursor,
    order: (bool, u64),
}

/// The cursors of one door.
pub(crate) struct Cursors {
    by_id: HashMap<u64, Entry>,
    /// What goes first comes first: (not continued from yet, when it was used, id).
    order: BTreeSet<(bool, u64, u64)>,
    ids: Ids,
    clock: u64,
    entries_max: usize,
}

impl Cursors {
    pub(crate) fn new(entries_max: usize) -> Self {
        Cursors {
            by_id: HashMap::new(),
            order: BTreeSet::new(),
            ids: Ids::new(),
            clock: 0,
            entries_max: entries_max.max(1),
        }
    }

    /// Remembers a place and answers its number, which is never 0, nor one of another run of the program.
    pub(crate) fn add(&mut self, bucket: &[u8], cursor: ScanCursor) -> u64 {
        while self.by_id.len() >= self.entries_max
            && let Some((_, _, oldest)) = self.order.pop_first()
        {
            self.by_id.remove(&oldest);
        }
        let id = self.ids.next();
        self.clock += 1;
        let order = (true, self.clock);
        self.order.insert((order.0, order.1, id));
        self.by_id.insert(id, Entry { bucket: bucket.to_vec(), cursor, order });
        id
    }

    /// The place behind a number, if it is remembered and belongs to this bucket. It can be used again.
    pub(crate) fn get(&mut self, id: u64, bucket: &[u8]) -> Option<ScanCursor> {
        let entry = self.by_id.get_mut(&id).filter(|entry| entry.bucket == bucket)?;
        self.order.remove(&(entry.order.0, entry.order.1, id));
        self.clock += 1;
        entry.order = (false, self.clock);
        self.order.insert((false, self.clock, id));
        Some(entry.cursor.clone())
    }
}
