//! The footer of a sealed segment: what lies where, and one checksum over all of it. This comment is the format's
//! specification.
//!
//! Format: docs/formats/journal.md
//!
//! Layout, sizes in bytes, integers little-endian; the footer ends the file:
//!   index                 one LEB128 number for each extent behind the header, in order, without a gap:
//!                         (length / 8) << 2 | kind, where kind is 0 a record, 1 damaged bytes, 2 void bytes
//!   partition state* 32   each: epoch 8 | index 8 | chain 16, as of the segment's end
//!   trailer          72:
//!     magic           8   "HOLDEND\x01"; the last byte is the version
//!     base            8   position of the segment
//!     data end        8   offset in the file at which the index starts
//!     index bytes     4
//!     partitions      4   how many states
//!     extents         4   how many numbers the index has
//!     tail checksum   4   CRC32C of index and states
//!     segment sum     4   CRC32C of the file's bytes [0, data end)
//!     zero            4
//!     log end         8   position at which the log ended in this segment (the end of its last record)
//!     damaged bytes   8   sum of the damaged and void extents
//!     zero            4
//!     checksum        4   CRC32C of the trailer's first 68 bytes
//!
//! A footer is derived: when it is missing or damaged the segment is scanned instead, and sealed again.
//!
//! May use: `base`. Must not know: records, files.

use base::crc32c;

use crate::bytes::{Reader, index, len32, put_varint};
use crate::chain::{PartitionState, STATE_BYTES};
use crate::position::Position;

const MAGIC: [u8; 8] = *b"HOLDEND\x01";
pub(crate) const TRAILER_BYTES: usize = 72;
const SUMMED_BYTES: usize = 68;
/// What an extent of up to 256 MiB takes in the index.
const EXTENT_BYTES_MAX: usize = 4;

/// What a stretch of a segment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    Record,
    Damaged,
    Void,
}

/// A stretch of a segment, a multiple of 8 bytes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) bytes: u64,
    pub(crate) kind: ExtentKind,
}

/// The index of a segment that still grows, as the footer will have it: a byte or two for each record, so that what comes in hardly ever meets
/// a page of memory that was not used before, which is a fault that costs many times what a small write does.
#[derive(Debug, Default)]
pub(crate) struct Index {
    numbers: Vec<u8>,
    extents: usize,
}

impl Index {
    pub(crate) fn push(&mut self, extent: Extent) {
        extent.encode(&mut self.numbers);
        self.extents += 1;
    }

    pub(crate) const fn len(&self) -> usize {
        self.extents
    }

    pub(crate) fn extents(&self) -> Vec<Extent> {
        Extent::decode_all(&self.numbers).expect("they were encoded here")
    }
}

/// The fixed end of a footer, enough to know the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) base: Position,
    pub(crate) data_end: u64,
    pub(crate) index_bytes: u32,
    pub(crate) partitions: u32,
    pub(crate) extents: u32,
    pub(crate) tail_sum: u32,
    pub(crate) segment_sum: u32,
    pub(crate) log_end: Position,
    pub(crate) damaged_bytes: u64,
}

/// Index and states of a sealed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) extents: Vec<Extent>,
    pub(crate) states: Vec<PartitionState>,
}

/// Most bytes of a footer with so many extents, each of less than 256 MiB.
pub(crate) const fn footer_bytes_max(extents: usize, partitions: usize) -> u64 {
    (extents * EXTENT_BYTES_MAX + partitions * STATE_BYTES + TRAILER_BYTES) as u64
}

impl Extent {
    pub(crate) fn is_record(&self) -> bool {
        self.kind == ExtentKind::Record
    }

    fn encode(&self, to: &mut Vec<u8>) {
        // A hole at the end of all may reach into a record, as far as is promised: then to where that begins.
        let kind = match self.kind {
            ExtentKind::Record => 0,
            ExtentKind::Damaged => 1,
            ExtentKind::Void => 2,
        };
        put_varint(to, ((self.bytes / 8) << 2) | kind);
    }

    fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut from = Reader(bytes);
        let mut extents = Vec::new();
        while !from.0.is_empty() {
            let number = from.varint()?;
            let kind = match number & 3 {
                0 => ExtentKind::Record,
                1 => ExtentKind::Damaged,
                2 => ExtentKind::Void,
                _ => return None,
            };
            extents.push(Self { bytes: (number >> 2).checked_mul(8)?, kind });
        }
        Some(extents)
    }
}

impl Footer {
    /// Bytes that are damaged or void.
    pub(crate) fn damaged_bytes(&self) -> u64 {
        self.extents.iter().filter(|extent| !extent.is_record()).map(|extent| extent.bytes).sum()
    }

    /// The footer's bytes, to be written at `data_end`.
    pub(crate) fn encode(&self, base: Position, data_end: u64, log_end: Position, segment_sum: u32) -> Vec<u8> {
        let mut to = Vec::new();
        self.extents.iter().for_each(|extent| extent.encode(&mut to));
        let index_bytes = len32(to.len());
        for state in &self.states {
            state.encode(&mut to);
        }
        let tail_sum = crc32c(&to);
        let damaged = self.damaged_bytes();
        let start = to.len();
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&base.get().to_le_bytes());
        to.extend_from_slice(&data_end.to_le_bytes());
        to.extend_from_slice(&index_bytes.to_le_bytes());
        to.extend_from_slice(&len32(self.states.len()).to_le_bytes());
        to.extend_from_slice(&len32(self.extents.len()).to_le_bytes());
        to.extend_from_slice(&tail_sum.to_le_bytes());
        to.extend_from_slice(&segment_sum.to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&log_end.get().to_le_bytes());
        to.extend_from_slice(&damaged.to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        let sum = crc32c(to.get(start..).expect("the trailer was just appended"));
        to.extend_from_slice(&sum.to_le_bytes());
        to
    }

    /// Index and states from the bytes between data end and trailer.
    pub(crate) fn decode(bytes: &[u8], trailer: &Trailer) -> Option<Self> {
        if crc32c(bytes) != trailer.tail_sum {
            return None;
        }
        let (index_bytes, states) = bytes.split_at_checked(index(u64::from(trailer.index_bytes)))?;
        let extents = Extent::decode_all(index_bytes)?;
        let mut from = Reader(states);
        let states = (0..trailer.partitions).map(|_| PartitionState::decode(&mut from)).collect::<Option<_>>()?;
        Some(Self { extents, states })
    }
}

impl Trailer {
    /// The trailer in a file's last [`TRAILER_BYTES`], if it is intact and fits a file of `file_bytes`.
    pub(crate) fn decode(bytes: &[u8], file_bytes: u64) -> Option<Self> {
        let mut from = Reader(bytes);
        if from.array()? != MAGIC {
            return None;
        }
        let base = Position::new(from.u64()?);
        let data_end = from.u64()?;
        let (index_bytes, partitions, extents) = (from.u32()?, from.u32()?, from.u32()?);
        let (tail_sum, segment_sum) = (from.u32()?, from.u32()?);
        from.u32()?;
        let log_end = Position::new(from.u64()?);
        let damaged_bytes = from.u64()?;
        from.u32()?;
        let sum = from.u32()?;
        let trailer =
            Self { base, data_end, index_bytes, partitions, extents, tail_sum, segment_sum, log_end, damaged_bytes };
        let whole = data_end.checked_add(trailer.body_bytes())?.checked_add(TRAILER_BYTES as u64)?;
        (crc32c(bytes.get(..SUMMED_BYTES)?) == sum && whole == file_bytes).then_some(trailer)
    }

    /// Bytes of the whole file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.data_end + self.body_bytes() + TRAILER_BYTES as u64
    }

    /// Bytes of index and states.
    pub(crate) fn body_bytes(&self) -> u64 {
        u64::from(self.index_bytes) + u64::from(self.partitions) * STATE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_grows_says_what_it_was_told() {
        let kinds = [ExtentKind::Record, ExtentKind::Damaged, ExtentKind::Void];
        let extents: Vec<Extent> =
            (0..40).map(|bits| Extent { bytes: 8 << bits, kind: kinds[bits as usize % 3] }).collect();
        let mut index = Index::default();
        extents.iter().for_each(|extent| index.push(*extent));
        assert_eq!((index.len(), index.extents()), (40, extents));
    }
}
