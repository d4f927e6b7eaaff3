//! Reading the log back, in order, around damage.
//!
//! May use: `scan.rs`, `segment.rs`. Must not know: who reads.

use std::sync::{Arc, PoisonError};

use crate::bytes::index;
use crate::commit::{load, lock};
use crate::damage::{Damage, DamageKind, SET_ASIDE};
use crate::error::{Error, Result};
use crate::footer::{Extent, ExtentKind, Footer};
use crate::header::header_bytes;
use crate::journal::Journal;
use crate::log::{Record, RecordSection, Visit};
use crate::position::Position;
use crate::record::RecordHeader;
use crate::scan::{Item, Scan};
use crate::segment::Segment;

/// Bytes read at a time, and one record.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes that hold the header of a record of a few sections.
const HEADER_BYTES_USUAL: u64 = 4 << 10;
/// A buffer that has become larger, by a large record, is not kept.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Of values that were read and are damaged no more ranges are kept, with all others: each look at them goes through all. The scrubber
/// finds the rest.
const PARTS_MAX: usize = 1_000;

/// What is left of reading a sealed segment that was broken off.
pub(crate) struct Interrupted {
    base: Position,
    footer: Footer,
    piece: Vec<u8>,
}

pub(crate) type Visitor<'a> = dyn FnMut(Visit<'_>) -> Result<()> + 'a;

/// Whether what lies from one position to before another is wanted.
pub(crate) type Wants<'a> = dyn Fn(Position, Position) -> bool + 'a;

/// See [`crate::Log::read_from`].
pub(crate) fn read_from(journal: &Journal, from: Position, visit: &mut Visitor<'_>) -> Result<()> {
    journal.flush()?;
    let to = load(&journal.written);
    let segments: Vec<Arc<Segment>> = {
        let segments = journal.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.values().filter(|segment| segment.end() > from && segment.base < to).cloned().collect()
    };
    for segment in segments {
        read_segment(journal, &segment, (from, to), &|_, _| true, visit)?;
    }
    Ok(())
}

pub(crate) fn read_segment(
    journal: &Journal,
    segment: &Segment,
    (from, to): (Position, Position),
    wants: &Wants<'_>,
    visit: &mut Visitor<'_>,
) -> Result<()> {
    let start = header_bytes(usize::from(journal.options.partitions));
    let note = |kind, range, reason| note(journal, segment, kind, range, reason);
    let mut hand = Hand { base: segment.base, from, to: Position::MAX, note: &note, visit };
    let Some(trailer) = segment.trailer() else {
        let to = segment.records_end(to);
        let end = segment.len()?.min(to.get() - segment.base.get());
        let first = from.get().saturating_sub(segment.base.get());
        let first = if first < end && is_record(segment, first, end)? { first } else { start };
        let at = intact(segment, (first, end), &mut hand)?;
        if at >= end {
            return Ok(());
        }
        // Damage, or what was being written when it ended: which of both shows in all that lies behind.
        let mut bytes = vec![0; index(end - at)];
        segment.read(&mut bytes, at)?;
        let base = segment.base.plus(at);
        let note = |kind, (offset, bytes), reason| note(kind, (offset + at, bytes), reason);
        let mut hand = Hand { base, from, to: Position::MAX, note: &note, visit: hand.visit };
        return Scan::new(&bytes, base, 0).try_for_each(|item| hand.item(&item));
    };
    if trailer.log_end <= from {
        // Who went on to the end in steps needs it no more.
        *lock(&journal.interrupted) = None;
        return Ok(());
    }
    if let Some((footer, mut piece)) = journal.footer_of(segment)? {
        let outcome = by_pieces(segment, &footer, (&mut piece, wants), &mut hand);
        if matches!(outcome, Err(Error::Closed)) {
            if piece.capacity() > KEPT_BYTES_MAX {
                piece = Vec::new();
            }
            *lock(&journal.interrupted) = Some(Interrupted { base: segment.base, footer, piece });
        }
        return outcome;
    }
    let bytes = segment.read_all(Some(trailer.data_end))?;
    let end = index(trailer.log_end.get() - segment.base.get());
    let bytes = bytes.get(..end).unwrap_or(&bytes);
    note(DamageKind::Footer, (trailer.data_end, trailer.body_bytes()), "segment footer checksum mismatch");
    Scan::new(bytes, segment.base, start).try_for_each(|item| hand.item(&item))
}

/// Whether a record of an open segment begins just there: who follows the log's end need not have the whole segment read each time.
fn is_record(segment: &Segment, at: u64, end: u64) -> Result<bool> {
    let mut bytes = vec![0; index(HEADER_BYTES_USUAL.min(end - at))];
    segment.read(&mut bytes, at)?;
    Ok(RecordHeader::decode(&bytes, segment.base.plus(at)).is_some())
}

/// Reads the records of an open segment, which has no footer yet, a piece at a time, as long as they are intact; says where that ends.
fn intact(segment: &Segment, (mut at, end): (u64, u64), hand: &mut Hand<'_, '_>) -> Result<u64> {
    let (mut piece, mut wanted) = (Vec::new(), PIECE_BYTES);
    while at < end {
        piece.resize(index(wanted.min(end - at)), 0);
        segment.read(&mut piece, at)?;
        let (began, piece_end) = (at, at + piece.len() as u64);
        wanted = PIECE_BYTES;
        loop {
            let rest = piece.get(index(at - began)..).unwrap_or_default();
            let Some(header) = RecordHeader::decode(rest, segment.base.plus(at)) else { break };
            let record_end = at + header.record_len();
            if record_end > piece_end {
                // Read from its beginning, and as a whole.
                wanted = PIECE_BYTES.max(header.record_len());
                break;
            }
            let Some(body) = header.body(rest) else { return Ok(at) };
            hand.item(&Item::Record { offset: at, header, body })?;
            at = record_end;
        }
        if at == began && (wanted == PIECE_BYTES || at + wanted > end) {
            return Ok(at);
        }
    }
    Ok(at)
}

/// Reads a sealed segment by its footer, a piece at a time, from what is wanted first. There is one buffer for all pieces: memory that the
/// system has to clear first costs as much as reading into it. Records that are not wanted are passed over, damage never is.
fn by_pieces(
    segment: &Segment,
    footer: &Footer,
    (piece, wants): (&mut Vec<u8>, &Wants<'_>),
    hand: &mut Hand<'_, '_>,
) -> Result<()> {
    let mut start = header_bytes(footer.states.len());
    let mut rest = footer.extents.as_slice();
    let from = hand.from;
    // Who reads in steps goes on where the last one ended.
    let is_wanted = |at: u64, extent: &Extent| {
        let end = segment.base.plus(at + extent.bytes);
        end > from && (extent.kind != ExtentKind::Record || wants(segment.base.plus(at), end))
    };
    while let Some(first) = rest.first() {
        let (mut bytes, mut count) = (0, 0);
        while let Some(extent) = rest.get(count).filter(|_| bytes < PIECE_BYTES)
            && is_wanted(start + bytes, extent)
        {
            bytes += extent.bytes;
            count += 1;
        }
        if count == 0 {
            start += first.bytes;
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let (extents, behind) = rest.split_at(count);
        rest = behind;
        piece.resize(index(bytes), 0);
        match segment.read(piece, start) {
            Err(error) if error.is_unreadable() => one_by_one(segment, start, extents, hand)?,
            read => {
                read?;
                hand.extents(start, piece, extents)?;
            }
        }
        start += bytes;
    }
    Ok(())
}

/// Reads each extent by itself where the disk does not read all of them: a bad sector costs the records that it is in.
fn one_by_one(segment: &Segment, mut at: u64, extents: &[Extent], hand: &mut Hand<'_, '_>) -> Result<()> {
    // A disk that reads nothing is gone, and what was on it may come back.
    segment.read_trailer()?;
    let mut bytes = Vec::new();
    for extent in extents {
        let end = segment.base.plus(at + extent.bytes);
        if end > hand.from && extent.kind != ExtentKind::Void {
            bytes.resize(index(extent.bytes), 0);
            match segment.read(&mut bytes, at) {
                Err(error) if error.is_unreadable() => {
                    hand.item(&Item::Damaged { offset: at, bytes: extent.bytes, reason: "the disk does not read it" })?;
                }
                read => {
                    read?;
                    hand.extents(at, &bytes, std::slice::from_ref(extent))?;
                }
            }
        }
        at += extent.bytes;
    }
    Ok(())
}

/// Remembers a damaged range of a segment, and returns it.
pub(crate) type Note<'a> = dyn Fn(DamageKind, (u64, u64), &'static str) -> Damage + 'a;

/// Hands what is found in one segment to who reads: what lies at or behind `from` and before `to`.
pub(crate) struct Hand<'a, 'v> {
    pub(crate) base: Position,
    pub(crate) from: Position,
    pub(crate) to: Position,
    pub(crate) note: &'a Note<'a>,
    pub(crate) visit: &'a mut Visitor<'v>,
}

impl Hand<'_, '_> {
    /// Reads a sealed segment by its footer: each record is where the index says, or it is damaged.
    pub(crate) fn by_index(&mut self, bytes: &[u8], footer: &Footer) -> Result<()> {
        let start = header_bytes(footer.states.len());
        self.extents(start, bytes.get(index(start)..).unwrap_or_default(), &footer.extents)
    }

    /// Takes stretches that lie one behind the other from `start` in the segment; `bytes` are theirs.
    fn extents(&mut self, start: u64, bytes: &[u8], extents: &[Extent]) -> Result<()> {
        let mut offset = start;
        for extent in extents {
            let at = offset;
            offset += extent.bytes;
            let is_outside = self.base.plus(offset) <= self.from || self.base.plus(at) >= self.to;
            if is_outside || extent.kind == ExtentKind::Void {
                continue;
            }
            let rest = bytes.get(index(at - start)..index(offset - start)).unwrap_or_default();
            let header = RecordHeader::decode(rest, self.base.plus(at)).filter(|h| h.record_len() == extent.bytes);
            let body = header.as_ref().and_then(|header| header.body(rest));
            let item = match (extent.kind, header, body) {
                (ExtentKind::Record, Some(header), Some(body)) => Item::Record { offset: at, header, body },
                (ExtentKind::Damaged, ..) => Item::Damaged { offset: at, bytes: extent.bytes, reason: SET_ASIDE },
                _ => Item::Damaged { offset: at, bytes: extent.bytes, reason: "record checksum mismatch" },
            };
            self.item(&item)?;
        }
        Ok(())
    }

    fn item(&mut self, item: &Item<'_>) -> Result<()> {
        match item {
            Item::Record { offset, .. } if self.base.plus(*offset) < self.from => Ok(()),
            Item::Record { offset, header, body } => {
                (self.visit)(Visit::Record(record(header, body, self.base.get() + offset + header.header_len())))
            }
            Item::Damaged { offset, bytes, reason } => {
                let damage = (self.note)(DamageKind::Record, (*offset, *bytes), reason);
                (self.visit)(Visit::Damaged(&damage))
            }
            Item::Tail { offset, bytes } => {
                let reason = "record checksum mismatch at the end";
                let damage = (self.note)(DamageKind::Record, (*offset, *bytes), reason);
                (self.visit)(Visit::Damaged(&damage))
            }
        }
    }
}

fn record<'a>(header: &RecordHeader, body: &'a [u8], body_at: u64) -> Record<'a> {
    let mut offset = 0;
    let sections = header.sections.iter().map(|section| {
        let from = offset;
        offset += index(u64::from(section.len));
        let commands = body.get(from..offset).expect("decoding checked that the sections fill the body");
        RecordSection { partition: section.partition, state: section.state, commands, at: body_at + from as u64 }
    });
    let end = header.position.plus(header.record_len());
    Record { position: header.position, end, sections: sections.collect() }
}

/// Remembers damage that was not known before, and returns it.
fn note(
    journal: &Journal,
    segment: &Segment,
    kind: DamageKind,
    (offset, bytes): (u64, u64),
    reason: &'static str,
) -> Damage {
    let position = segment.base.plus(offset);
    journal.remember(Damage { kind, path: segment.path.clone(), offset, bytes, position, reason })
}

impl Journal {
    /// The footer of a sealed segment, and a buffer. Who reads a segment in steps, which compaction does, ends each before its end, and finds
    /// both here when it goes on: a footer of small records takes longer to decode than a step takes.
    fn footer_of(&self, segment: &Segment) -> Result<Option<(Footer, Vec<u8>)>> {
        // Taken even if it is another's, so that none stays for ever. A stub has its segment's base, and another footer.
        let interrupted = lock(&self.interrupted).take();
        match interrupted {
            Some(Interrupted { base, footer, piece }) if base == segment.base && !segment.is_stub() => {
                Ok(Some((footer, piece)))
            }
            _ => Ok(segment.read_footer()?.map(|footer| (footer, Vec::new()))),
        }
    }

    /// Adds damage to what is known, unless it is, in place of parts of it that are; returns what is known of that range. A value that was
    /// read is a part of the record that the scrubber finds.
    pub(crate) fn remember(&self, damage: Damage) -> Damage {
        let mut known = lock(&self.damage);
        let is_same = |d: &&Damage| (&d.path, d.offset, d.bytes) == (&damage.path, damage.offset, damage.bytes);
        if let Some(before) = known.damage.iter().find(is_same) {
            return before.clone();
        }
        known.damage.retain(|before| !before.is_part_of(&damage));
        known.damage.push(damage.clone());
        damage
    }

    /// Adds damage to what is known, unless it is, by itself or as a part of more.
    pub(crate) fn remember_part(&self, damage: Damage) {
        let mut known = lock(&self.damage);
        if known.damage.len() < PARTS_MAX && !known.damage.iter().any(|before| damage.is_part_of(before)) {
            known.damage.push(damage);
        }
    }
}
