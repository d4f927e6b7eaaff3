//! One record of the journal: a batch as it lies in a segment. This comment is the format's specification.
//!
//! Format: docs/formats/journal.md
//!
//! Layout, sizes in bytes, integers little-endian; a record starts at a multiple of 8:
//!   magic            4   "HFR\x01"; the last byte is the version
//!   sections         2   how many, 1 or more
//!   zero             2
//!   body length      4
//!   body checksum    4   CRC32C of the body
//!   position         8   the record's own address
//!   synced           8   everything below was known to be on stable storage when this record was made
//!   section*        40 each:
//!     partition      2
//!     zero           2
//!     length         4   of this partition's commands
//!     epoch          8   1 on a single machine
//!     index          8   counts this partition's sections, contiguous
//!     chain         16   xxh3-128 chain, see `chain.rs`
//!   header checksum  4   CRC32C of all the above
//!   zero             4
//!   body                 the sections' commands one after another
//!   zero           0-7   up to a multiple of 8
//!
//! Because the header has its own checksum, a damaged body costs exactly its record: the length is still known. Because
//! a record knows its position, a search for the next record after a damaged header cannot be fooled by a copy of a
//! record inside a value. `synced` tells, after a power cut, a hole that was never promised from damage to what was.
//!
//! May use: `base`. Must not know: segments, files.

use base::{crc32c, hash128};

use crate::batch::{Batch, Draft};
use crate::bytes::{Reader, index, len32};
use crate::chain::PartitionState;
use crate::position::{PartitionId, Position};

pub(crate) const MAGIC: [u8; 4] = *b"HFR\x01";
pub(crate) const ALIGN: u64 = 8;
const FIXED_BYTES: usize = 32;
const SECTION_BYTES: usize = 40;
const SUM_BYTES: usize = 8;
/// The shortest record: one section of one byte.
pub(crate) const RECORD_BYTES_MIN: u64 = (FIXED_BYTES + SECTION_BYTES + SUM_BYTES) as u64 + ALIGN;

pub(crate) const fn header_len(sections: usize) -> u64 {
    (FIXED_BYTES + sections * SECTION_BYTES + SUM_BYTES) as u64
}

pub(crate) const fn record_len(sections: usize, body: u64) -> u64 {
    (header_len(sections) + body).next_multiple_of(ALIGN)
}

/// One section's entry in a record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionHeader {
    pub(crate) partition: PartitionId,
    pub(crate) len: u32,
    pub(crate) state: PartitionState,
}

/// A record's header, found intact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) position: Position,
    pub(crate) synced: Position,
    pub(crate) body_len: u32,
    pub(crate) body_sum: u32,
    pub(crate) sections: Vec<SectionHeader>,
}

/// Appends `batch` as the record at `position` to `to`; `states` are moved on.
pub(crate) fn encode(
    to: &mut Vec<u8>,
    batch: &Batch,
    body_sum: u32,
    position: Position,
    synced: Position,
    states: &mut [PartitionState],
) {
    let start = to.len();
    to.extend_from_slice(&MAGIC);
    to.extend_from_slice(&u16::try_from(batch.sections.len()).expect("partitions are 16-bit").to_le_bytes());
    to.extend_from_slice(&[0; 2]);
    to.extend_from_slice(&len32(batch.body.len()).to_le_bytes());
    to.extend_from_slice(&body_sum.to_le_bytes());
    to.extend_from_slice(&position.get().to_le_bytes());
    to.extend_from_slice(&synced.get().to_le_bytes());
    for Draft { partition, len, digest } in &batch.sections {
        let state = states.get_mut(partition.index()).expect("partitions were checked when the batch came in");
        *state = state.next(*partition, *digest);
        to.extend_from_slice(&partition.get().to_le_bytes());
        to.extend_from_slice(&[0; 2]);
        to.extend_from_slice(&len32(*len).to_le_bytes());
        state.encode(to);
    }
    let sum = crc32c(to.get(start..).expect("the header was just appended"));
    to.extend_from_slice(&sum.to_le_bytes());
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&batch.body);
    to.resize(start + index(batch.record_len()), 0);
}

impl RecordHeader {
    /// The header at the start of `bytes`, if an intact one for `position` is there.
    pub(crate) fn decode(bytes: &[u8], position: Position) -> Option<Self> {
        let mut from = Reader(bytes);
        if from.array()? != MAGIC {
            return None;
        }
        let count = usize::from(from.u16()?);
        let zero = from.u16()?;
        let (body_len, body_sum) = (from.u32()?, from.u32()?);
        let (at, synced) = (Position::new(from.u64()?), Position::new(from.u64()?));
        if count == 0 || zero != 0 || at != position {
            return None;
        }
        let summed = bytes.get(..FIXED_BYTES + count * SECTION_BYTES)?;
        let mut table = Reader(from.take(count * SECTION_BYTES)?);
        if crc32c(summed) != from.u32()? || from.u32()? != 0 {
            return None;
        }
        let mut sections = Vec::with_capacity(count);
        let mut total = 0u64;
        for _ in 0..count {
            let partition = PartitionId::new(table.u16()?);
            let zero = table.u16()?;
            let len = table.u32()?;
            total += u64::from(len);
            sections.push(SectionHeader { partition, len, state: PartitionState::decode(&mut table)? });
            if zero != 0 || len == 0 {
                return None;
            }
        }
        (total == u64::from(body_len)).then_some(Self { position, synced, body_len, body_sum, sections })
    }

    pub(crate) fn header_len(&self) -> u64 {
        header_len(self.sections.len())
    }

    pub(crate) fn record_len(&self) -> u64 {
        record_len(self.sections.len(), u64::from(self.body_len))
    }

    /// Partition, state and digest of the commands of each section, for an intact body.
    pub(crate) fn digests<'a>(
        &'a self,
        body: &'a [u8],
    ) -> impl Iterator<Item = (PartitionId, PartitionState, u128)> + 'a {
        let mut rest = body;
        self.sections.iter().map(move |section| {
            let (commands, behind) = rest.split_at_checked(index(u64::from(section.len))).unwrap_or((rest, &[]));
            rest = behind;
            (section.partition, section.state, hash128(commands))
        })
    }

    /// The record's body in `bytes`, which start at the record, if it is whole and intact, padding included.
    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let record = bytes.get(..index(self.record_len()))?;
        let from = index(self.header_len());
        let body = record.get(from..from + index(u64::from(self.body_len)))?;
        let padding = record.get(from + body.len()..)?;
        (crc32c(body) == self.body_sum && padding.iter().all(|byte| *byte == 0)).then_some(body)
    }
}
