//! Reading the log back, in order, around damage.
//!
//! May use: `scan.rs`, `segment.rs`. Must not know: who reads.

use std::sync::{Arc, PoisonError};

use crate::bytes::index;
use crate::commit::{load, lock};
use crate::error::Result;
use crate::footer::{ExtentKind, Footer};
use crate::header::header_bytes;
use crate::journal::Journal;
use crate::log::{Record, RecordSection, Visit};
use crate::position::Position;
use crate::record::RecordHeader;
use crate::recovery::{Damage, DamageKind};
use crate::scan::{Item, Scan};
use crate::segment::Segment;

pub(crate) type Visitor<'a> = dyn FnMut(Visit<'_>) -> Result<()> + 'a;

/// See [`crate::Log::read_from`].
pub(crate) fn read_from(journal: &Journal, from: Position, visit: &mut Visitor<'_>) -> Result<()> {
    journal.flush()?;
    let to = load(&journal.written);
    let segments: Vec<Arc<Segment>> = {
        let segments = journal.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.values().filter(|segment| segment.end() > from && segment.base < to).cloned().collect()
    };
    for segment in segments {
        read_segment(journal, &segment, from, to, visit)?;
    }
    Ok(())
}

fn read_segment(
    journal: &Journal,
    segment: &Segment,
    from: Position,
    to: Position,
    visit: &mut Visitor<'_>,
) -> Result<()> {
    let start = header_bytes(usize::from(journal.options.partitions));
    let Some(trailer) = segment.trailer() else {
        let bytes = segment.read_all(Some(to.get() - segment.base.get()))?;
        return Scan::new(&bytes, segment.base, start).try_for_each(|item| hand(journal, segment, &item, from, visit));
    };
    if trailer.log_end <= from {
        return Ok(());
    }
    let footer = segment.read_footer()?;
    let bytes = segment.read_all(Some(trailer.data_end))?;
    match footer {
        Some(footer) => read_by_index(journal, segment, &bytes, &footer, from, visit),
        None => {
            let end = index(trailer.log_end.get() - segment.base.get());
            let bytes = bytes.get(..end).unwrap_or(&bytes);
            let reason = "segment footer checksum mismatch";
            note(journal, segment, DamageKind::Footer, (trailer.data_end, trailer.body_bytes()), reason);
            Scan::new(bytes, segment.base, start).try_for_each(|item| hand(journal, segment, &item, from, visit))
        }
    }
}

/// Reads a sealed segment by its footer: each record is where the index says, or it is damaged.
fn read_by_index(
    journal: &Journal,
    segment: &Segment,
    bytes: &[u8],
    footer: &Footer,
    from: Position,
    visit: &mut Visitor<'_>,
) -> Result<()> {
    let mut offset = header_bytes(footer.states.len());
    for extent in &footer.extents {
        let at = offset;
        offset += extent.bytes;
        if segment.base.plus(offset) <= from || extent.kind == ExtentKind::Void {
            continue;
        }
        let rest = bytes.get(index(at)..index(offset)).unwrap_or_default();
        let header = RecordHeader::decode(rest, segment.base.plus(at)).filter(|h| h.record_len() == extent.bytes);
        let body = header.as_ref().and_then(|header| header.body(rest));
        let item = match (extent.kind, header.clone(), body) {
            (ExtentKind::Record, Some(header), Some(body)) => Item::Record { offset: at, header, body },
            (ExtentKind::Damaged, ..) => {
                Item::Damaged { offset: at, bytes: extent.bytes, reason: "set aside by an earlier recovery" }
            }
            _ => Item::Damaged { offset: at, bytes: extent.bytes, reason: "record checksum mismatch" },
        };
        hand(journal, segment, &item, from, visit)?;
    }
    Ok(())
}

fn hand(journal: &Journal, segment: &Segment, item: &Item<'_>, from: Position, visit: &mut Visitor<'_>) -> Result<()> {
    match item {
        Item::Record { offset, .. } if segment.base.plus(*offset) < from => Ok(()),
        Item::Record { offset, header, body } => {
            visit(Visit::Record(record(header, body, segment.base.get() + offset + header.header_len())))
        }
        Item::Damaged { offset, bytes, reason } => {
            let damage = note(journal, segment, DamageKind::Record, (*offset, *bytes), reason);
            visit(Visit::Damaged(&damage))
        }
        Item::Tail { offset, bytes } => {
            let reason = "record checksum mismatch at the end";
            let damage = note(journal, segment, DamageKind::Record, (*offset, *bytes), reason);
            visit(Visit::Damaged(&damage))
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
    Record { position: header.position, sections: sections.collect() }
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
    let damage = Damage { kind, path: segment.path.clone(), offset, bytes, position, reason };
    let mut known = lock(&journal.damage);
    let before = known.damage.iter().find(|d| (&d.path, d.offset, d.bytes) == (&damage.path, offset, bytes));
    if let Some(before) = before {
        return before.clone();
    }
    known.damage.push(damage.clone());
    damage
}
