//! Finds the records in a segment's bytes, and goes on after damage.
//!
//! A record whose body fails its checksum costs exactly itself. A header that fails costs everything up to the next
//! place where an intact header for just that address stands. What nothing intact follows is the tail.
//!
//! May use: `record.rs`. Must not know: files, what a tail means for a segment's state.

use crate::bytes::index;
use crate::footer::{Extent, ExtentKind};
use crate::position::Position;
use crate::record::{ALIGN, RECORD_BYTES_MIN, RecordHeader};

/// One stretch of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// An intact record.
    Record { offset: u64, header: RecordHeader, body: &'a [u8] },
    /// Bytes that are no record, with an intact record behind them.
    Damaged { offset: u64, bytes: u64, reason: &'static str },
    /// Bytes that are no record and not all zero, with nothing intact behind them. The last item.
    Tail { offset: u64, bytes: u64 },
}

impl Item<'_> {
    pub(crate) fn extent(&self) -> Extent {
        match self {
            Self::Record { header, .. } => Extent { bytes: header.record_len(), kind: ExtentKind::Record },
            Self::Damaged { bytes, .. } | Self::Tail { bytes, .. } => {
                Extent { bytes: *bytes, kind: ExtentKind::Damaged }
            }
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::Record { offset, .. } | Self::Damaged { offset, .. } | Self::Tail { offset, .. } => *offset,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset() + self.extent().bytes
    }
}

/// Iterates over the stretches of a segment from an offset where a record should start.
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    base: Position,
    offset: u64,
}

impl<'a> Scan<'a> {
    /// `bytes` is the segment from its first byte; `offset` the first record's.
    pub(crate) fn new(bytes: &'a [u8], base: Position, offset: u64) -> Self {
        Self { bytes, base, offset }
    }

    fn at(&self, offset: u64) -> &'a [u8] {
        self.bytes.get(index(offset)..).unwrap_or_default()
    }

    fn header_at(&self, offset: u64) -> Option<RecordHeader> {
        let header = RecordHeader::decode(self.at(offset), self.base.plus(offset))?;
        (offset + header.record_len() <= self.bytes.len() as u64).then_some(header)
    }

    fn next_header(&self, mut offset: u64) -> Option<u64> {
        while offset + RECORD_BYTES_MIN <= self.bytes.len() as u64 {
            if self.header_at(offset).is_some() {
                return Some(offset);
            }
            offset += ALIGN;
        }
        None
    }

    fn tail(&mut self, offset: u64) -> Option<Item<'a>> {
        let rest = self.at(offset);
        self.offset = self.bytes.len() as u64;
        let used = rest.iter().rposition(|byte| *byte != 0)? + 1;
        Some(Item::Tail { offset, bytes: (used as u64).next_multiple_of(ALIGN) })
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let offset = self.offset;
        let Some(header) = self.header_at(offset) else {
            let Some(next) = self.next_header(offset + ALIGN) else { return self.tail(offset) };
            self.offset = next;
            return Some(Item::Damaged { offset, bytes: next - offset, reason: "no intact record header" });
        };
        self.offset = offset + header.record_len();
        match header.body(self.at(offset)) {
            Some(body) => Some(Item::Record { offset, header, body }),
            None if self.next_header(self.offset).is_none() => self.tail(offset),
            None => Some(Item::Damaged { offset, bytes: header.record_len(), reason: "record checksum mismatch" }),
        }
    }
}
