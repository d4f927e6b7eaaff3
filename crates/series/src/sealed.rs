//! Sealed files: blocks of points, and an index of them behind. This is the specification of their form.
//!
//!   file     magic 8 "HFSERIES" | version 1 | zero 7 | block* | end | end
//!   end      index | footer; there are two of them, so that a damaged byte costs no more than its block
//!   block    see `block.rs`; blocks lie by partition, series and time
//!   index    count | entry*
//!   entry    partition | number | zigzag of the first time, less that of the entry before | last time less the first
//!            | points | bytes of the block | crc32c of the block 4
//!   footer   offset of the index 8 | its length 8 | its crc32c 4 | crc32c of the 20 bytes before 4 | magic 8 "HFSEALED"
//!
//! Format: docs/formats/series.md.
//!
//! Lengths, counts and numbers are LEB128, other integers little-endian. A file never changes.
//!
//! May use: `block`. Must not know: how files are read and written.

use base::{Fields, crc32c, put_varint, unzigzag, zigzag};

use crate::block::{self, BLOCK_POINTS_MAX};
use crate::error::{Error, Result};
use crate::points::Points;
use crate::source::{Range, SeriesId};

const MAGIC: [u8; 8] = *b"HFSERIES";
const END_MAGIC: [u8; 8] = *b"HFSEALED";
const VERSION: u8 = 1;
/// Bytes before the first block.
pub const SEALED_HEADER_BYTES: usize = 16;
const FOOTER_BYTES: usize = 32;

/// Where a block lies, and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockAt {
    /// The series.
    pub series: SeriesId,
    /// First and last time.
    pub range: Range,
    /// Points.
    pub points: u32,
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// CRC32C of the bytes.
    pub crc: u32,
}

/// Makes a sealed file, from the beginning to the end.
#[derive(Debug)]
pub struct Sealer {
    /// Bytes of the file that were not taken yet.
    buffer: Vec<u8>,
    /// Bytes that were taken.
    taken: u64,
    index: Vec<BlockAt>,
}

impl Default for Sealer {
    fn default() -> Self {
        let mut buffer = MAGIC.to_vec();
        buffer.push(VERSION);
        buffer.resize(SEALED_HEADER_BYTES, 0);
        Self { buffer, taken: 0, index: Vec::new() }
    }
}

impl Sealer {
    /// Adds points of a series, sorted by time, each time once: as blocks. Series have to come in order, and the points of one
    /// behind those that it has already.
    pub fn add(&mut self, series: SeriesId, points: &Points) {
        let mut at = 0;
        while at < points.len() {
            let end = points.len().min(at + BLOCK_POINTS_MAX);
            if at == 0 && end == points.len() {
                self.add_block(series, points);
            } else {
                let mut some = Points::new();
                some.extend_from(points, at..end);
                self.add_block(series, &some);
            }
            at = end;
        }
    }

    fn add_block(&mut self, series: SeriesId, points: &Points) {
        let (Some(first), Some(last)) = (points.times().first(), points.times().last()) else { return };
        let from = self.buffer.len();
        block::encode(points, &mut self.buffer);
        let bytes = self.buffer.get(from..).unwrap_or_default();
        self.index.push(BlockAt {
            series,
            range: Range { from: *first, to: *last },
            points: u32::try_from(points.len()).expect("a block's points are few"),
            offset: self.taken + from as u64,
            bytes: u32::try_from(bytes.len()).expect("a block is small"),
            crc: crc32c(bytes),
        });
    }

    /// Adds a block as it lies in another file.
    pub fn add_raw(&mut self, at: &BlockAt, bytes: &[u8]) {
        self.index.push(BlockAt { offset: self.taken + self.buffer.len() as u64, ..*at });
        self.buffer.extend_from_slice(bytes);
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.index.len()
    }

    /// Bytes that wait to be taken.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Takes the bytes that come next in the file, and where they belong.
    pub fn take(&mut self) -> (u64, Vec<u8>) {
        let at = self.taken;
        let bytes = std::mem::take(&mut self.buffer);
        self.taken += bytes.len() as u64;
        (at, bytes)
    }

    /// The file's end: what is still to be written, and where; and what was made.
    #[must_use]
    pub fn finish(mut self) -> (u64, Vec<u8>, Made) {
        let ends_at = self.taken + self.buffer.len() as u64;
        let mut end = encode_index(&self.index);
        let (len, sum) = (end.len() as u64, crc32c(&end));
        let from = end.len();
        end.extend_from_slice(&ends_at.to_le_bytes());
        end.extend_from_slice(&len.to_le_bytes());
        end.extend_from_slice(&sum.to_le_bytes());
        let sum = crc32c(end.get(from..).unwrap_or_default());
        end.extend_from_slice(&sum.to_le_bytes());
        end.extend_from_slice(&END_MAGIC);
        self.buffer.extend_from_slice(&end);
        self.buffer.extend_from_slice(&end);
        let bytes = self.taken + self.buffer.len() as u64;
        (self.taken, self.buffer, Made { ends_at, bytes, index: self.index })
    }
}

/// A sealed file that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Where its two ends begin.
    pub ends_at: u64,
    /// Its bytes in all.
    pub bytes: u64,
    /// Its blocks.
    pub index: Vec<BlockAt>,
}

fn encode_index(index: &[BlockAt]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(index.len() * 24);
    put_varint(&mut bytes, index.len() as u64);
    let mut before = 0i64;
    for at in index {
        put_varint(&mut bytes, at.series.partition.into());
        put_varint(&mut bytes, at.series.number.into());
        put_varint(&mut bytes, zigzag(at.range.from.wrapping_sub(before)));
        put_varint(&mut bytes, at.range.to.wrapping_sub(at.range.from).cast_unsigned());
        put_varint(&mut bytes, at.points.into());
        put_varint(&mut bytes, at.bytes.into());
        bytes.extend_from_slice(&at.crc.to_le_bytes());
        before = at.range.from;
    }
    bytes
}

const MALFORMED: Error = Error::Malformed { what: "sealed file of time series" };

/// Whether a file begins as a sealed file does.
///
/// # Errors
/// [`Error::Malformed`] when it does not, or is of a newer version.
pub fn check_sealed_header(bytes: &[u8]) -> Result<()> {
    let mut from = Fields(bytes);
    let is_ours = from.array() == Some(MAGIC) && from.u8() == Some(VERSION) && from.array() == Some([0u8; 7]);
    if is_ours { Ok(()) } else { Err(MALFORMED) }
}

/// The index that one end of a file has.
///
/// # Errors
/// [`Error::Malformed`] when it is not as it was written: try the other end.
pub fn read_sealed_end(end: &[u8], ends_at: u64) -> Result<Vec<BlockAt>> {
    let (index, footer) = end.split_at_checked(end.len().saturating_sub(FOOTER_BYTES)).ok_or(MALFORMED)?;
    let is_intact = || {
        let mut from = Fields(footer);
        let (offset, len, crc, sum) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
        let is_ours = from.array() == Some(END_MAGIC) && from.0.is_empty() && sum == crc32c(footer.get(..20)?);
        (is_ours && offset == ends_at && len == index.len() as u64 && crc == crc32c(index)).then_some(())
    };
    is_intact().ok_or(MALFORMED)?;
    read_index(index)
}

fn read_index(bytes: &[u8]) -> Result<Vec<BlockAt>> {
    let index = || {
        let mut from = Fields(bytes);
        let count = usize::try_from(from.varint()?).ok()?;
        let mut index = Vec::with_capacity(count.min(bytes.len() / 10));
        let (mut before, mut offset) = (0i64, SEALED_HEADER_BYTES as u64);
        for _ in 0..count {
            let partition = u16::try_from(from.varint()?).ok()?;
            let number = u32::try_from(from.varint()?).ok()?;
            let first = before.wrapping_add(unzigzag(from.varint()?));
            let last = first.checked_add_unsigned(from.varint()?)?;
            let points = u32::try_from(from.varint()?).ok()?;
            let bytes = u32::try_from(from.varint()?).ok()?;
            let range = Range { from: first, to: last };
            index.push(BlockAt {
                series: SeriesId { partition, number },
                range,
                points,
                offset,
                bytes,
                crc: from.u32()?,
            });
            offset = offset.checked_add(bytes.into())?;
            before = first;
        }
        from.0.is_empty().then_some(index)
    };
    index().ok_or(MALFORMED)
}

/// Appends the points of a block.
///
/// # Errors
/// [`Error::Malformed`] when the bytes are not those that were written.
pub fn read_sealed_block(at: &BlockAt, bytes: &[u8], points: &mut Points) -> Result<()> {
    if crc32c(bytes) != at.crc {
        return Err(MALFORMED);
    }
    block::decode(bytes, points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_made() {
        let mut sealer = Sealer::default();
        let mut file = Vec::new();
        let mut wanted = Vec::new();
        for number in 0..5u32 {
            let mut points = Points::new();
            (0..9000i64 * i64::from(number % 2) + 3)
                .for_each(|n| points.push_float(n * 1_000_000_000 - 5, n as f64 / 4.0));
            let series = SeriesId { partition: (number / 2) as u16, number };
            sealer.add(series, &points);
            wanted.push((series, points));
            let (at, bytes) = sealer.take();
            assert_eq!(at, file.len() as u64);
            file.extend(bytes);
        }
        let (at, bytes, made) = sealer.finish();
        assert_eq!(at, file.len() as u64);
        file.extend(bytes);
        check_sealed_header(&file[..SEALED_HEADER_BYTES]).unwrap();
        assert_eq!(made.bytes, file.len() as u64);
        let ends = &file[made.ends_at as usize..];
        let (one, other) = ends.split_at(ends.len() / 2);
        let index = read_sealed_end(one, made.ends_at).unwrap();
        assert_eq!((&index, read_sealed_end(other, made.ends_at).as_ref()), (&made.index, Ok(&made.index)));
        for at in 0..one.len() {
            let mut changed = one.to_vec();
            changed[at] ^= 1;
            assert!(read_sealed_end(&changed, made.ends_at).is_err());
        }
        for (series, wanted) in wanted {
            let mut points = Points::new();
            for at in index.iter().filter(|at| at.series == series) {
                read_sealed_block(at, &file[at.offset as usize..][..at.bytes as usize], &mut points).unwrap();
            }
            assert_eq!(points, wanted);
        }
    }
}
