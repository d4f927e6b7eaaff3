//! Checks a sealed segment from its first byte to its last, a piece at a time: every record, the chain of each partition,
//! and the checksum over the whole file.
//!
//! The footer says where each record lies, so a damaged one costs itself and the check goes on behind it. A segment whose
//! footer is damaged is searched for its records first, in memory, and then checked like any other. Beside that, memory is
//! one piece and one record.
//!
//! May use: `segment.rs`, `record.rs`, `scan.rs`. Must not know: who checks, and how often.

use std::sync::Arc;

use base::Crc32c;

use crate::bytes::index;
use crate::chain::PartitionState;
use crate::damage::{Damage, DamageKind, SET_ASIDE};
use crate::error::{Error, Result};
use crate::footer::{Extent, ExtentKind, Footer, Trailer};
use crate::header::header_bytes;
use crate::position::Position;
use crate::record::RecordHeader;
use crate::scan::Scan;
use crate::segment::{Segment, Start};

/// Bytes read at a time.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// A check that is under way.
pub(crate) struct SegmentCheck {
    pub(crate) segment: Arc<Segment>,
    trailer: Trailer,
    /// What follows the header, in order; the next is at `extent_at`.
    extents: std::vec::IntoIter<Extent>,
    extent: Option<Extent>,
    extent_at: u64,
    /// What of the current extent was read.
    pending: Vec<u8>,
    at: u64,
    sum: Crc32c,
    /// Where each partition stands, if nothing before was damaged.
    states: Vec<Option<PartitionState>>,
    /// Where the footer says that each stands at the end.
    end_states: Option<Vec<PartitionState>>,
    checked: Checked,
}

/// What reading every byte found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Intact batches.
    pub batches: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Segments whose checksum over the whole file was compared.
    pub segments: u64,
}

/// Checks of one segment after another: follows the chains from each to the next.
#[derive(Default)]
pub(crate) struct Through {
    pub(crate) verified: Verified,
    pub(crate) damage: Vec<Damage>,
    /// What was damaged when the segment was sealed.
    pub(crate) aside: Vec<Damage>,
    before: Option<(Position, Option<Vec<PartitionState>>)>,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) damage: Vec<Damage>,
    /// What was damaged when the segment was sealed.
    pub(crate) aside: Vec<Damage>,
    /// Intact records.
    pub(crate) records: u64,
    /// Where each partition's log stood at the segment's start, by its header, and at its end, by its footer.
    pub(crate) start_states: Option<Vec<PartitionState>>,
    pub(crate) end_states: Option<Vec<PartitionState>>,
    /// The segment before, by the header.
    pub(crate) previous_base: Option<Position>,
}

impl SegmentCheck {
    /// Begins with a sealed segment; `None` when it is open.
    pub(crate) fn begin(segment: &Arc<Segment>) -> Result<Option<Self>> {
        let Some(trailer) = segment.trailer().copied() else { return Ok(None) };
        let mut checked = Checked::default();
        let partitions = usize::try_from(trailer.partitions).unwrap_or_default();
        let mut states = vec![None; partitions];
        let start = header_bytes(partitions);
        if let Start::Header(header) = segment.read_start()? {
            states = header.states.iter().copied().map(Some).collect();
            checked.start_states = Some(header.states);
            checked.previous_base = Some(header.previous_base);
        } else {
            let reason = "segment header checksum mismatch";
            checked.damage.push(damage_in(segment, DamageKind::Header, 0, header_bytes(0), reason));
        }
        let (extents, end_states) = match segment.read_footer()? {
            Some(Footer { extents, states }) => (extents, Some(states)),
            None => {
                let (at, bytes, reason) = (trailer.data_end, trailer.body_bytes(), "segment footer checksum mismatch");
                checked.damage.push(damage_in(segment, DamageKind::Footer, at, bytes, reason));
                let bytes = segment.read_all(Some(trailer.data_end))?;
                (Scan::new(&bytes, segment.base, start).map(|item| item.extent()).collect(), None)
            }
        };
        let mut check = Self {
            segment: Arc::clone(segment),
            trailer,
            extents: extents.into_iter(),
            extent: None,
            extent_at: start,
            pending: Vec::new(),
            at: 0,
            sum: Crc32c::new(),
            states,
            end_states,
            checked,
        };
        check.extent = check.extents.next();
        Ok(Some(check))
    }

    /// Bytes that are still to be read.
    pub(crate) fn left(&self) -> u64 {
        self.trailer.data_end.saturating_sub(self.at)
    }

    /// Reads and checks at most `bytes_max` more; returns how many, 0 at the end.
    pub(crate) fn step(&mut self, bytes_max: usize) -> Result<usize> {
        let wanted = self.left().min(bytes_max as u64);
        let mut piece = vec![0; index(wanted)];
        self.segment.read(&mut piece, self.at)?;
        self.sum.update(&piece);
        let mut rest = piece.as_slice();
        while !rest.is_empty() {
            rest = self.take(rest);
        }
        Ok(piece.len())
    }

    /// Takes what belongs to the current extent, or to none; returns what is behind it.
    fn take<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let here = match self.extent {
            None => piece.len() as u64,
            // The header.
            Some(_) if self.at < self.extent_at => self.extent_at - self.at,
            Some(extent) => self.extent_at + extent.bytes - self.at,
        };
        let (taken, rest) = piece.split_at(index(here.min(piece.len() as u64)));
        let is_inside = self.at >= self.extent_at;
        self.at += taken.len() as u64;
        if let Some(extent) = self.extent.filter(|_| is_inside) {
            if extent.kind == ExtentKind::Record {
                self.pending.extend_from_slice(taken);
            }
            if self.at == self.extent_at + extent.bytes {
                self.finish_extent(extent);
            }
        }
        rest
    }

    fn finish_extent(&mut self, extent: Extent) {
        let (at, bytes) = (self.extent_at, std::mem::take(&mut self.pending));
        match extent.kind {
            ExtentKind::Record => self.record(at, &bytes),
            // Known, and reported by whoever opened the journal.
            ExtentKind::Damaged => {
                let one = damage_in(&self.segment, DamageKind::Record, at, extent.bytes, SET_ASIDE);
                self.checked.aside.push(one);
                self.states.fill(None);
            }
            ExtentKind::Void => {}
        }
        self.pending = bytes;
        self.pending.clear();
        self.pending.shrink_to(1 << 20);
        self.extent_at += extent.bytes;
        self.extent = self.extents.next();
    }

    fn record(&mut self, at: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let header = RecordHeader::decode(bytes, self.segment.base.plus(at)).filter(|h| h.record_len() == len);
        let Some((header, body)) = header.as_ref().and_then(|header| Some((header, header.body(bytes)?))) else {
            self.note(DamageKind::Record, at, len, "record checksum mismatch");
            self.states.fill(None);
            return;
        };
        self.checked.records += 1;
        let mut is_broken = false;
        for (partition, state, digest) in header.digests(body) {
            let Some(slot) = self.states.get_mut(partition.index()) else { continue };
            let before = slot.replace(state);
            is_broken |= before
                .is_some_and(|before| PartitionState { epoch: state.epoch, ..before }.next(partition, digest) != state);
        }
        if is_broken {
            self.note(DamageKind::Chain, at, len, "a section does not continue its partition's chain");
        }
    }

    fn note(&mut self, kind: DamageKind, offset: u64, bytes: u64, reason: &'static str) {
        self.checked.damage.push(damage_in(&self.segment, kind, offset, bytes, reason));
    }

    /// What was found, after the last step.
    pub(crate) fn finish(mut self) -> Checked {
        debug_assert_eq!(self.left(), 0);
        let (end, footer_bytes) = (self.trailer.data_end, self.trailer.body_bytes());
        // A segment that compaction has emptied names the states of what it held.
        let has_records = self.checked.records > 0;
        if let Some(states) = &self.end_states {
            let differs = |(is, says): (&Option<PartitionState>, &PartitionState)| is.is_some_and(|is| is != *says);
            if has_records && self.states.iter().zip(states).any(differs) {
                let reason = "the footer does not continue a partition's chain";
                self.note(DamageKind::Chain, end, footer_bytes, reason);
            }
        }
        if self.sum.finish() != self.trailer.segment_sum && self.checked.damage.is_empty() {
            // Every record is intact: what changed is the padding of the header, or void.
            let reason = "segment checksum mismatch, and every record is intact";
            self.note(DamageKind::Header, 0, end, reason);
        }
        self.checked.end_states = self.end_states;
        self.checked
    }

    /// What was found before reading failed, and that it failed there.
    pub(crate) fn give_up(mut self, error: &Error) -> Checked {
        let (at, bytes) = (self.at, self.left());
        let reason = match error {
            Error::Damaged { reason, .. } => reason,
            _ => "the disk does not read it",
        };
        self.note(DamageKind::Record, at, bytes, reason);
        self.checked
    }
}

impl Through {
    /// Runs a check to its end. A segment that is void, which `is_log` denies, is passed over by the chains. `told` is
    /// called with the bytes read so far.
    pub(crate) fn run(&mut self, mut check: SegmentCheck, is_log: bool, told: &mut dyn FnMut(u64)) {
        let before = self.verified.bytes;
        let (mut done, file_bytes) = (0, check.trailer.file_bytes());
        let segment = Arc::clone(&check.segment);
        let checked = loop {
            match check.step(PIECE_BYTES) {
                Ok(0) => break check.finish(),
                Ok(bytes) => {
                    done += bytes as u64;
                    told(before + done);
                }
                Err(error) => break check.give_up(&error),
            }
        };
        self.verified.bytes = before + file_bytes;
        self.add(&segment, checked, is_log);
    }

    /// Adds what the check of the next segment found.
    pub(crate) fn add(&mut self, segment: &Segment, checked: Checked, is_log: bool) {
        self.verified.segments += 1;
        self.verified.batches += checked.records;
        self.damage.extend(checked.damage);
        self.aside.extend(checked.aside);
        if let (Some((base, Some(end))), Some(start)) = (&self.before, &checked.start_states)
            && checked.previous_base == Some(*base)
            && end != start
        {
            let reason = "the segment does not continue a partition's chain";
            self.damage.push(damage_in(segment, DamageKind::Chain, 0, header_bytes(0), reason));
        }
        if is_log {
            self.before = Some((segment.base, checked.end_states));
        }
    }
}

/// Whether two reports are of one damage.
pub(crate) fn is_same(one: &Damage, other: &Damage) -> bool {
    (&one.path, one.offset, one.bytes) == (&other.path, other.offset, other.bytes)
}

pub(crate) fn damage_in(segment: &Segment, kind: DamageKind, offset: u64, bytes: u64, reason: &'static str) -> Damage {
    Damage { kind, path: segment.path.clone(), offset, bytes, position: segment.base.plus(offset), reason }
}
