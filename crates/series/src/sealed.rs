//! Sealed files: blocks of points, and an index of them behind. This is the specification of their form.
//!
//!   file     magic 8 "HFSERIES" | version 1 | zero 7 | block* | end | end       the version is 2, or 1 in files without pages and rollups
//!   end      index | footer; there are two of them, so that a damaged byte costs no more than its block
//!   block    see `block.rs`, and `rollup.rs`; blocks lie by partition, series and time, rollups behind the points of their series
//!   index    count | entry*
//!   entry    partition | number | zigzag of the first time, less that of the entry before | last time less the first
//!            | points, or 0 and the unit of a rollup 1 | bytes of the block | crc32c of the block 4
//!   footer   offset of the index 8 | its length 8 | its crc32c 4 | crc32c of the 20 bytes before 4 | magic 8 "HFSEALED"
//!
//! Format: docs/formats/series.md
//!
//! Lengths, counts and numbers are LEB128, other integers little-endian. A file never changes.
//!
//! May use: `block`, `rollup`. Must not know: how files are read and written.

use base::{Fields, crc32c, put_varint, unzigzag, zigzag};

use crate::block::{self, Block};
use crate::error::{Error, Result};
use crate::points::Points;
use crate::rollup::{self, Rolling, Summary, Unit};
use crate::source::{Range, SeriesId};

const MAGIC: [u8; 8] = *b"HFSERIES";
const END_MAGIC: [u8; 8] = *b"HFSEALED";
const VERSION: u8 = 2;
/// Files without pages and rollups.
const VERSION_PLAIN: u8 = 1;
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

/// Where a rollup lies, and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupAt {
    /// Of how long windows it is.
    pub unit: Unit,
    /// As with a block, but there are no points.
    pub at: BlockAt,
}

/// What is in a sealed file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealedIndex {
    /// Blocks of points, by series and time.
    pub blocks: Vec<BlockAt>,
    /// Rollups, by series and, of each unit, time.
    pub rollups: Vec<RollupAt>,
}

/// Makes a sealed file, from the beginning to the end.
#[derive(Debug)]
pub struct Sealer {
    /// Bytes of the file that were not taken yet.
    buffer: Vec<u8>,
    /// Bytes that were taken.
    taken: u64,
    index: SealedIndex,
    /// The series that was added last, and its rollups.
    rolling: Option<(SeriesId, [Rolling; Unit::ALL.len()])>,
}

impl Default for Sealer {
    fn default() -> Self {
        let mut buffer = MAGIC.to_vec();
        buffer.push(VERSION);
        buffer.resize(SEALED_HEADER_BYTES, 0);
        Self { buffer, taken: 0, index: SealedIndex::default(), rolling: None }
    }
}

impl Sealer {
    /// Adds points of a series, sorted by time, each time once: as blocks. Series have to come in order, and the points of one
    /// behind those that it has already.
    pub fn add(&mut self, series: SeriesId, points: &Points) {
        let mut at = 0;
        while at < points.len() {
            let end = block::end(points, at);
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
        self.roll(series, points);
        let range = Range { from: *first, to: *last };
        let points_count = u32::try_from(points.len()).expect("a block's points are few");
        let at = self.put(series, range, points_count, |to| block::encode(points, to));
        self.index.blocks.push(at);
    }

    /// Appends a block; where it lies.
    fn put(&mut self, series: SeriesId, range: Range, points: u32, encode: impl FnOnce(&mut Vec<u8>)) -> BlockAt {
        let from = self.buffer.len();
        encode(&mut self.buffer);
        let bytes = self.buffer.get(from..).unwrap_or_default();
        let len = u32::try_from(bytes.len()).expect("a block is small");
        BlockAt { series, range, points, offset: self.taken + from as u64, bytes: len, crc: crc32c(bytes) }
    }

    /// Adds a block as it lies in another file.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the bytes are not those that were written: nothing is added.
    pub fn add_raw(&mut self, at: &BlockAt, bytes: &[u8]) -> Result<()> {
        let mut points = Points::new();
        read_sealed_block(at, bytes, &mut points)?;
        self.roll(at.series, &points);
        self.index.blocks.push(BlockAt { offset: self.taken + self.buffer.len() as u64, ..*at });
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds points of a series to its rollups.
    fn roll(&mut self, series: SeriesId, points: &Points) {
        if self.rolling.as_ref().is_some_and(|(of, _)| *of != series) {
            self.end_rollups();
        }
        let (_, rolling) = self.rolling.get_or_insert_with(|| (series, Unit::ALL.map(Rolling::new)));
        let mut full = Vec::new();
        for one in rolling {
            one.feed(points);
            if one.is_full() {
                full.push((one.unit, one.take()));
            }
        }
        full.into_iter().for_each(|(unit, summaries)| self.put_rollup(series, unit, &summaries));
    }

    fn end_rollups(&mut self) {
        let Some((series, mut rolling)) = self.rolling.take() else { return };
        for one in &mut rolling {
            let mut summaries = one.end();
            while !summaries.is_empty() {
                self.put_rollup(series, one.unit, &summaries);
                summaries = one.take();
            }
        }
    }

    fn put_rollup(&mut self, series: SeriesId, unit: Unit, summaries: &[Summary]) {
        let Some(range) = rollup::range(summaries) else { return };
        let at = self.put(series, range, 0, |to| rollup::encode(summaries, to));
        self.index.rollups.push(RollupAt { unit, at });
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.index.blocks.len()
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
        self.end_rollups();
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
    /// What is in it.
    pub index: SealedIndex,
}

fn encode_index(index: &SealedIndex) -> Vec<u8> {
    let count = index.blocks.len() + index.rollups.len();
    let mut bytes = Vec::with_capacity(count * 24);
    put_varint(&mut bytes, count as u64);
    let rollups = index.rollups.iter().map(|rollup| (&rollup.at, Some(rollup.unit)));
    let mut entries: Vec<(&BlockAt, Option<Unit>)> = index.blocks.iter().map(|at| (at, None)).chain(rollups).collect();
    // Where each lies is told by the lengths of those before.
    entries.sort_unstable_by_key(|(at, _)| at.offset);
    let mut before = 0i64;
    for (at, unit) in entries {
        put_varint(&mut bytes, at.series.partition.into());
        put_varint(&mut bytes, at.series.number.into());
        put_varint(&mut bytes, zigzag(at.range.from.wrapping_sub(before)));
        put_varint(&mut bytes, at.range.to.wrapping_sub(at.range.from).cast_unsigned());
        put_varint(&mut bytes, at.points.into());
        bytes.extend(unit.map(|unit| unit as u8));
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
    let is_ours = from.array() == Some(MAGIC) && matches!(from.u8(), Some(VERSION | VERSION_PLAIN));
    if is_ours && from.array() == Some([0u8; 7]) { Ok(()) } else { Err(MALFORMED) }
}

/// The index that one end of a file has.
///
/// # Errors
/// [`Error::Malformed`] when it is not as it was written: try the other end.
pub fn read_sealed_end(end: &[u8], ends_at: u64) -> Result<SealedIndex> {
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

fn read_index(bytes: &[u8]) -> Result<SealedIndex> {
    let index = || {
        let mut from = Fields(bytes);
        let count = usize::try_from(from.varint()?).ok()?;
        let mut index = SealedIndex::default();
        index.blocks.reserve(count.min(bytes.len() / 10));
        let (mut before, mut offset) = (0i64, SEALED_HEADER_BYTES as u64);
        for _ in 0..count {
            let partition = u16::try_from(from.varint()?).ok()?;
            let number = u32::try_from(from.varint()?).ok()?;
            let first = before.wrapping_add(unzigzag(from.varint()?));
            let last = first.checked_add_unsigned(from.varint()?)?;
            let points = u32::try_from(from.varint()?).ok()?;
            let unit = if points == 0 { Some(Unit::of(from.u8()?)?) } else { None };
            let bytes = u32::try_from(from.varint()?).ok()?;
            let (series, range) = (SeriesId { partition, number }, Range { from: first, to: last });
            let at = BlockAt { series, range, points, offset, bytes, crc: from.u32()? };
            match unit {
                None => index.blocks.push(at),
                Some(unit) => index.rollups.push(RollupAt { unit, at }),
            }
            offset = offset.checked_add(bytes.into())?;
            before = first;
        }
        index.blocks.shrink_to_fit();
        from.0.is_empty().then_some(index)
    };
    index().ok_or(MALFORMED)
}

/// The windows of a rollup.
///
/// # Errors
/// [`Error::Malformed`] when the bytes are not those that were written.
pub fn read_sealed_rollup(rollup: &RollupAt, bytes: &[u8]) -> Result<Vec<Summary>> {
    if crc32c(bytes) != rollup.at.crc {
        return Err(MALFORMED);
    }
    rollup::decode(rollup.unit, bytes)
}

/// A block as it lies in a file, whose pages are unpacked one by one.
#[derive(Debug)]
pub struct PackedBlock {
    bytes: Vec<u8>,
    block: Block,
    range: Range,
}

impl PackedBlock {
    /// Looks into a block.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the bytes are not those that were written.
    pub fn open(at: &BlockAt, bytes: Vec<u8>) -> Result<Self> {
        if crc32c(&bytes) != at.crc {
            return Err(MALFORMED);
        }
        Ok(Self { block: Block::open(&bytes)?, bytes, range: at.range })
    }

    /// How many pages it has.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.block.pages()
    }

    /// Which times the points of a page may have.
    #[must_use]
    pub fn page_range(&self, page: usize) -> Range {
        let from = self.block.first(page).unwrap_or(self.range.from);
        let next = self.block.first(page + 1).filter(|_| page + 1 < self.pages());
        Range { from, to: next.map_or(self.range.to, |next| next.saturating_sub(1)) }
    }

    /// Appends the points of a page.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn page(&self, page: usize, points: &mut Points) -> Result<()> {
        self.block.page(&self.bytes, page, points)
    }

    /// Bytes of memory, nearly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + 2048
    }
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
    use crate::value::ValueRef;

    /// A block of 8192 large texts had more than is unpacked of one: it could be written, and not be read.
    #[test]
    fn blocks_end_before_their_text_is_large_and_a_larger_one_has_a_block_of_its_own() {
        let mut points = Points::new();
        let lens = [6, 6, 5, 20, 9, 0, 0, 9, 7, 1].map(|mib| mib << 20);
        for (time, len) in (0..).zip(lens) {
            points.push(time, ValueRef::Text(&"x".repeat(len)));
        }
        points.push_float(10, 1.5);
        let mut sealer = Sealer::default();
        let series = SeriesId { partition: 0, number: 0 };
        sealer.add(series, &points);
        let (_, mut file) = sealer.take();
        let (_, end, made) = sealer.finish();
        file.extend(end);
        let counts: Vec<u32> = made.index.blocks.iter().map(|at| at.points).collect();
        assert_eq!(counts, [2, 1, 1, 3, 2, 2], "6 + 6; 5; 20; 9; 9 + 7; 1 and a number");
        let mut back = Points::new();
        for at in &made.index.blocks {
            read_sealed_block(at, &file[at.offset as usize..][..at.bytes as usize], &mut back).unwrap();
        }
        assert!(points.iter().eq(back.iter()));
    }

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
            for at in index.blocks.iter().filter(|at| at.series == series) {
                read_sealed_block(at, &file[at.offset as usize..][..at.bytes as usize], &mut points).unwrap();
            }
            assert_eq!(points, wanted);
        }
    }
}
