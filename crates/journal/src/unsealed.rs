//! What lies in a segment that is not sealed.
//!
//! A kill may come between the writing of a footer and the cutting of the file behind it. Such a file reaches beyond where its footer ends, or
//! would end, and nothing in it is damaged.
//!
//! May use: `scan.rs`, `segment.rs`, `footer.rs`. Must not know: other segments, what a stretch means for the log.

use base::crc32c;

use crate::bytes::index;
use crate::chain::PartitionState;
use crate::footer::{Extent, Footer, TRAILER_BYTES, Trailer};
use crate::header::header_bytes;
use crate::position::{PartitionId, Position};
use crate::scan::{Item, Scan};
use crate::segment::Segment;

/// Where other segments say that the log left this one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogEnd {
    /// Nothing says it.
    Unknown,
    At(Position),
    /// The log does not go through it.
    Elsewhere,
}

/// A segment, looked through.
pub(crate) struct Scanned {
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) data_end: u64,
    /// Of all bytes before `data_end`.
    pub(crate) sum: u32,
    /// Where the first record may be.
    pub(crate) start: u64,
}

/// A record, or bytes that are none.
pub(crate) struct Stretch {
    pub(crate) offset: u64,
    pub(crate) extent: Extent,
    /// Partition, state after the section, and digest of its commands.
    pub(crate) sections: Vec<(PartitionId, PartitionState, u128)>,
    pub(crate) reason: &'static str,
}

impl Scanned {
    /// Looks through a segment's bytes. `promised` becomes the highest position of which a record says that it was synced.
    pub(crate) fn of(
        segment: &Segment,
        mut bytes: Vec<u8>,
        (partitions, end): (u16, LogEnd),
        promised: &mut Position,
    ) -> Self {
        let start = header_bytes(usize::from(partitions));
        let mut this = Self { stretches: Vec::new(), data_end: start, sum: 0, start };
        for item in Scan::new(&bytes, segment.base, start) {
            this.data_end = item.end();
            let (sections, reason) = match &item {
                Item::Record { header, body, .. } => {
                    *promised = header.synced.max(*promised);
                    (header.digests(body).collect(), "")
                }
                Item::Damaged { reason, .. } => (Vec::new(), *reason),
                Item::Tail { .. } => (Vec::new(), "unfinished or damaged bytes at the end"),
            };
            this.stretches.push(Stretch { offset: item.offset(), extent: item.extent(), sections, reason });
        }
        // It proves no sync: a recovery writes footers of what it leaves out, too.
        if segment.trailer().is_none() && this.ends_in_footer(segment.base, &bytes, (partitions, end)) {
            this.data_end = this.stretches.pop().map_or(start, |footer| footer.offset);
        }
        // A torn footer may end the file at no multiple of 8; sealing pads what is set aside with zeros.
        bytes.resize(index(this.data_end), 0);
        this.sum = crc32c(&bytes);
        this
    }

    /// Whether the last stretch is a footer, or a part of one, that a kill left in a file that was to be cut behind it. Once the file is cut
    /// there, what is no footer was one. Where nothing says that the records end before, only a whole one is known to be a footer.
    fn ends_in_footer(&self, base: Position, bytes: &[u8], (partitions, end): (u16, LogEnd)) -> bool {
        let Some((last, before)) = self.stretches.split_last().filter(|(last, _)| !last.extent.is_record()) else {
            return false;
        };
        let at = last.offset;
        let extents = before.iter().map(|stretch| stretch.extent).collect();
        let states = vec![PartitionState::START; usize::from(partitions)];
        let footer_end = at + Footer { extents, states }.encode(base, at, Position::ZERO, 0).len() as u64;
        let is_footer = match end {
            LogEnd::Elsewhere => false,
            LogEnd::At(end) => end <= base.plus(at),
            LogEnd::Unknown => is_footer(base, bytes.get(index(at)..index(footer_end)).unwrap_or_default(), footer_end),
        };
        is_footer && bytes.len() as u64 > footer_end
    }
}

/// Whether these are a whole footer of the segment, if its file ended there.
fn is_footer(base: Position, bytes: &[u8], file_bytes: u64) -> bool {
    let parts = bytes.len().checked_sub(TRAILER_BYTES).and_then(|body| bytes.split_at_checked(body));
    let trailer = parts.and_then(|(body, trailer)| Some((body, Trailer::decode(trailer, file_bytes)?)));
    trailer.is_some_and(|(body, trailer)| trailer.base == base && Footer::decode(body, &trailer).is_some())
}
