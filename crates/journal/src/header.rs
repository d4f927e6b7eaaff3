//! The header of a segment. This comment is the format's specification.
//!
//! Format: docs/formats/journal.md
//!
//! Layout, sizes in bytes, integers little-endian:
//!   magic             8   "HOLDSEG\x01"; the last byte is the version
//!   header bytes      4   length of the whole header, a multiple of 4096; the first record follows
//!   partitions        4   how many
//!   base              8   position of the header's first byte; also the file's name
//!   capacity          8   positions [base, base + capacity) belong to this segment
//!   previous base     8   base of the segment before; its own base in the first one
//!   previous end      8   position at which the log ended in the segment before; anything there beyond it is void
//!   store            16   identity of the store
//!   boot             16   identifies the run of the machine that wrote the segment
//!   partition state* 32   each: epoch 8 | index 8 | chain 16, as of the segment's start
//!   checksum          4   CRC32C of all the above
//!   zero                  up to header bytes
//!
//! A file whose header is all zeros was prepared and never used.
//!
//! May use: `base`. Must not know: records, files.

use base::crc32c;

use crate::bytes::{Reader, index, len32};
use crate::chain::{PartitionState, STATE_BYTES};
use crate::position::Position;

const MAGIC: [u8; 7] = *b"HOLDSEG";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 80;
const SUM_BYTES: usize = 4;
const BLOCK: usize = 4096;
/// What a disk writes whole or not at all; some write more.
const SECTOR_BYTES: usize = 512;
/// Most bytes a header may take: 65,535 partitions.
pub(crate) const HEADER_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) base: Position,
    pub(crate) capacity: u64,
    pub(crate) previous_base: Position,
    pub(crate) previous_end: Position,
    pub(crate) store: u128,
    pub(crate) boot: u128,
    pub(crate) states: Vec<PartitionState>,
}

/// Length of the header of a segment with so many partitions.
pub(crate) const fn header_bytes(partitions: usize) -> u64 {
    content_bytes(partitions).next_multiple_of(BLOCK) as u64
}

const fn content_bytes(partitions: usize) -> usize {
    FIXED_BYTES + partitions * STATE_BYTES + SUM_BYTES
}

/// Whether a sector of the header at the start of `bytes` was never written: what a power cut leaves of one that was not
/// synced, and no byte that rots.
pub(crate) fn is_torn(bytes: &[u8], partitions: usize) -> bool {
    let content = bytes.get(..content_bytes(partitions)).unwrap_or_default();
    content.chunks(SECTOR_BYTES).any(|sector| sector.iter().all(|byte| *byte == 0))
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let len = header_bytes(self.states.len());
        let mut to = Vec::with_capacity(index(len));
        to.extend_from_slice(&MAGIC);
        to.push(VERSION);
        to.extend_from_slice(&len32(index(len)).to_le_bytes());
        to.extend_from_slice(&len32(self.states.len()).to_le_bytes());
        to.extend_from_slice(&self.base.get().to_le_bytes());
        to.extend_from_slice(&self.capacity.to_le_bytes());
        to.extend_from_slice(&self.previous_base.get().to_le_bytes());
        to.extend_from_slice(&self.previous_end.get().to_le_bytes());
        to.extend_from_slice(&self.store.to_le_bytes());
        to.extend_from_slice(&self.boot.to_le_bytes());
        for state in &self.states {
            state.encode(&mut to);
        }
        let sum = crc32c(&to);
        to.extend_from_slice(&sum.to_le_bytes());
        to.resize(index(len), 0);
        to
    }

    /// The header at the start of `bytes`, if an intact one is there; the version if it is intact and not ours.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Result<Self, u8>> {
        let mut from = Reader(bytes);
        if from.array()? != MAGIC {
            return None;
        }
        let [version] = from.array()?;
        let len = u64::from(from.u32()?);
        let partitions = usize::try_from(from.u32()?).ok()?;
        if partitions > usize::from(u16::MAX) || len != header_bytes(partitions) {
            return None;
        }
        let base = Position::new(from.u64()?);
        let capacity = from.u64()?;
        let previous_base = Position::new(from.u64()?);
        let previous_end = Position::new(from.u64()?);
        let (store, boot) = (from.u128()?, from.u128()?);
        let states = (0..partitions).map(|_| PartitionState::decode(&mut from)).collect::<Option<Vec<_>>>()?;
        let summed = bytes.get(..FIXED_BYTES + partitions * STATE_BYTES)?;
        if crc32c(summed) != from.u32()? {
            return None;
        }
        let header = Self { base, capacity, previous_base, previous_end, store, boot, states };
        Some(if version == VERSION { Ok(header) } else { Err(version) })
    }
}
