//! Looking at a journal without changing a byte of it: what there is, what is damaged, and the batches in a range.
//!
//! A survey decides as recovery does and carries nothing out, so it says what the next opening would find. It works beside
//! a process that has the journal open and writes to it: what it cannot tell from a write under way it looks at again, and
//! what is different then was no damage. Bytes behind the last intact record of the log are *open*.
//!
//! May use: `recovery.rs`, `verify.rs`, `read.rs`. Must not know: engines.

use std::path::Path;
use std::sync::Arc;

use base::{Files, Limits};

use crate::chain::PartitionState;
use crate::damage::{Damage, DamageKind};
use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::header::header_bytes;
use crate::journal::Options;
use crate::position::Position;
use crate::read::{Hand, Visitor};
use crate::recovery::{Mode, Planned, Recovered, recover};
use crate::segment::{Segment, base_of};
use crate::verify::{SegmentCheck, Through, Verified, damage_in, is_same};

/// How often the open segments are looked at before what they show is believed.
const LOOKS: usize = 3;
/// How often a look is begun anew because a file was sealed under it.
const RETRIES_MAX: usize = 20;

/// A journal as it was at one moment.
pub struct Survey {
    segments: Vec<Surveyed>,
    damage: Vec<Damage>,
    end: Position,
    partitions: u16,
}

struct Surveyed {
    segment: Arc<Segment>,
    /// How an open one would be sealed.
    planned: Option<Planned>,
    is_log: bool,
}

/// One segment of a survey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedSegment {
    /// Its first position.
    pub base: Position,
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes of records in it, and of what is damaged between them; the header included.
    pub used_bytes: u64,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Bytes in it that are damaged or void.
    pub damaged_bytes: u64,
}

impl Survey {
    /// Looks at the journal in `dir`, which belongs to `store` with so many partitions; `promised` is as in [`Options`]. Reads headers, footers, and all of
    /// what is not sealed.
    ///
    /// # Errors
    /// `Foreign` when a segment belongs to something else; what reading meets.
    pub fn of(files: &dyn Files, dir: &Path, (store, partitions): (u128, u16), promised: Position) -> Result<Self> {
        let options = Options { promised, ..Options::new(store, partitions, &Limits::default()) };
        let mut seen = look(files, dir, &options)?;
        for _ in 1..LOOKS {
            if seen.report.damage.iter().all(|damage| seen.is_sealed(damage)) {
                break;
            }
            let again = look(files, dir, &options)?;
            let before = std::mem::replace(&mut seen, again).report.damage;
            seen.report.damage.retain(|damage| before.contains(damage));
        }
        let Recovered { segments, mut planned, report, .. } = seen;
        let is_log = |segment: &Segment| !report.damage.iter().any(|d| d.path == segment.path && is_whole(d, segment));
        let segments = segments.into_values().map(|segment| Surveyed {
            planned: planned.remove(&segment.base),
            is_log: is_log(&segment),
            segment,
        });
        Ok(Self { segments: segments.collect(), damage: report.damage, end: report.end, partitions })
    }

    /// Position at which the log ends.
    #[must_use]
    pub fn end(&self) -> Position {
        self.end
    }

    /// Every damaged range that is known, those that [`Survey::verify`] found included.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The segments, in order.
    #[must_use]
    pub fn segments(&self) -> Vec<SurveyedSegment> {
        let one = |surveyed: &Surveyed| {
            let Surveyed { segment, planned, .. } = surveyed;
            let of_plan = |planned: &Planned| (planned.data_end, planned.footer.damaged_bytes());
            let (used_bytes, damaged_bytes) = match segment.trailer() {
                Some(trailer) => (trailer.data_end, trailer.damaged_bytes),
                None => planned.as_ref().map_or((0, 0), of_plan),
            };
            let sealed = segment.trailer().is_some();
            SurveyedSegment { base: segment.base, bytes: segment.reserved(), used_bytes, sealed, damaged_bytes }
        };
        self.segments.iter().map(one).collect()
    }

    /// Base of the segment that holds the address `at`; `at` itself when none does.
    #[must_use]
    pub fn segment_base(&self, at: u64) -> Position {
        let position = Position::new(at);
        let after = self.segments.partition_point(|surveyed| surveyed.segment.base <= position);
        let found = after.checked_sub(1).and_then(|before| self.segments.get(before));
        found.map_or(position, |surveyed| surveyed.segment.base)
    }

    /// Reads every byte of the sealed segments, and checks every record, the checksum over each whole file, and the chain
    /// of each partition through all segments. (The records of open ones were checked when the survey was made.) Damage is
    /// added to [`Survey::damage`]. `told` is called with the bytes read so far and those to read in all.
    ///
    /// # Errors
    /// None for what is damaged or does not read, which is noted; only what finding its footer meets.
    pub fn verify(&mut self, told: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
        let total: u64 = self.segments.iter().map(|surveyed| surveyed.segment.reserved()).sum();
        let mut through = Through::default();
        for surveyed in &self.segments {
            let segment = &surveyed.segment;
            match SegmentCheck::begin(segment)? {
                Some(check) => through.run(check, surveyed.is_log, &mut |done| told(done, total)),
                None => {
                    let records = surveyed.planned.iter().flat_map(|planned| &planned.footer.extents);
                    through.verified.batches += records.filter(|extent| extent.is_record()).count() as u64;
                    through.verified.bytes += segment.reserved();
                }
            }
        }
        told(total, total);
        for damage in through.damage {
            if !self.damage.iter().any(|known| is_same(known, &damage)) {
                self.damage.push(damage);
            }
        }
        Ok(through.verified)
    }

    /// Calls `visit` for every batch at or behind `from` and before `to`, in order, with damaged ranges where they lie.
    ///
    /// # Errors
    /// What reading meets, and the first error of `visit`, which ends the reading.
    pub fn read(&self, from: Position, to: Position, visit: &mut Visitor<'_>) -> Result<()> {
        for surveyed in &self.segments {
            let segment = &surveyed.segment;
            let (data_end, log_end) = match (segment.trailer(), &surveyed.planned) {
                (Some(trailer), _) => (trailer.data_end, trailer.log_end),
                (None, Some(planned)) => (planned.data_end, planned.log_end),
                (None, None) => continue,
            };
            if log_end <= from || segment.base >= to {
                continue;
            }
            let bytes = segment.read_all(Some(data_end))?;
            let footer = match &surveyed.planned {
                Some(planned) => planned.footer.clone(),
                None => self.footer(segment, &bytes)?,
            };
            let note = |kind, (offset, bytes), reason| damage_in(segment, kind, offset, bytes, reason);
            Hand { base: segment.base, from, to, note: &note, visit: &mut *visit }.by_index(&bytes, &footer)?;
        }
        Ok(())
    }

    /// The footer, or what it would say.
    fn footer(&self, segment: &Segment, bytes: &[u8]) -> Result<Footer> {
        let start = header_bytes(usize::from(self.partitions));
        Ok(segment.read_footer()?.unwrap_or_else(|| Footer {
            extents: crate::scan::Scan::new(bytes, segment.base, start).map(|item| item.extent()).collect(),
            states: vec![PartitionState::START; usize::from(self.partitions)],
        }))
    }
}

/// Looks once. A file that is sealed meanwhile becomes shorter than it was found to be: then once more.
fn look(files: &dyn Files, dir: &Path, options: &Options) -> Result<Recovered> {
    for _ in 0..RETRIES_MAX {
        match recover(files, dir, options, Mode::Look) {
            Err(Error::Damaged { .. }) => {}
            seen => return seen,
        }
    }
    recover(files, dir, options, Mode::Look)
}

/// Whether damage makes all of a segment void.
fn is_whole(damage: &Damage, segment: &Segment) -> bool {
    damage.kind == DamageKind::Discarded && damage.bytes >= segment.reserved()
}

impl Recovered {
    /// Whether the range lies in what nobody writes to any more.
    fn is_sealed(&self, damage: &Damage) -> bool {
        let base = damage.path.file_name().and_then(|name| base_of(name.to_str()?));
        base.is_some_and(|base| self.segments.get(&base).is_some_and(|segment| segment.trailer().is_some()))
    }
}
