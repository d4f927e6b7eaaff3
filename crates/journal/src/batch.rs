//! A batch before it has a position: the commands of each partition it touches, already summed.
//!
//! May use: `base`, `record.rs`. Must not know: files.

use base::{crc32c, hash128};

use crate::position::{PartitionId, Position};
use crate::record;

/// Commands for one or several partitions, written and found again together or not at all.
///
/// Build it with [`Batch::section`] for each partition in turn; everything costly (copying, checksums) happens before
/// the journal's lock.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    pub(crate) body: Vec<u8>,
    pub(crate) sections: Vec<Draft>,
    sum: Option<u32>,
}

/// One partition's part of a batch that has no position yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) partition: PartitionId,
    pub(crate) len: usize,
    pub(crate) digest: u128,
}

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The batch's position; durable once a watermark is above it.
    pub position: Position,
    /// Address of the first byte of the batch's commands, as laid out by [`Batch::section`].
    pub body_at: u64,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the commands that `write` appends to the buffer as the section of `partition`. Returns what `write` does.
    ///
    /// `write` must only append. Offsets in the buffer are offsets from [`Appended::body_at`]. A partition should have
    /// one section in a batch; a section without commands is left out.
    pub fn section<T>(&mut self, partition: PartitionId, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let from = self.body.len();
        let returned = write(&mut self.body);
        let commands = self.body.get(from..).expect("a section's writer only appends");
        if !commands.is_empty() {
            self.sections.push(Draft { partition, len: commands.len(), digest: hash128(commands) });
            self.sum = None;
        }
        returned
    }

    /// Takes the checksum over all commands now, so that [`crate::Log::append`] needs not: for callers that append under a
    /// lock.
    pub fn finish(&mut self) {
        self.sum = Some(crc32c(&self.body));
    }

    /// The checksum over all commands.
    pub(crate) fn sum(&self) -> u32 {
        self.sum.unwrap_or_else(|| crc32c(&self.body))
    }

    /// Each section's partition, offset from [`Appended::body_at`], and commands.
    pub fn sections(&self) -> impl Iterator<Item = (PartitionId, u64, &[u8])> {
        let mut offset = 0;
        self.sections.iter().map(move |section| {
            let from = offset;
            offset += section.len;
            let commands = self.body.get(from..offset).expect("sections lie one after another in the body");
            (section.partition, from as u64, commands)
        })
    }

    /// Bytes of all commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Bytes of the record this batch becomes.
    pub(crate) fn record_len(&self) -> u64 {
        record::record_len(self.sections.len(), self.body.len() as u64)
    }

    /// Empties the batch and keeps its memory for the next one, up to `bytes_max`.
    pub fn clear(&mut self, bytes_max: usize) {
        self.body.clear();
        self.body.shrink_to(bytes_max);
        self.sections.clear();
        self.sum = None;
    }
}
