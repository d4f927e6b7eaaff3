//! Opening a journal: which segments there are, where the log ends, and what is damaged.
//!
//! Sealed segments are trusted by their trailer and not read: opening costs what is unsealed, usually one segment.
//! An unsealed segment is scanned. Damage there has two causes that must be told apart:
//!
//! * A power cut lost unsynced bytes. Then the log is cut at the first hole, so that what is left is a prefix of what
//!   was acknowledged; what lies behind is void.
//! * Bytes rotted that were already synced, or written in this very run of the machine, which a process kill cannot
//!   harm. Then exactly the damaged range is set aside and all the rest is kept.
//!
//! What was written and not known to be synced is written again and synced before the segment is sealed: if the process
//! before ended over a failed sync, the system may hold those bytes in memory only and believe them to be on the disk.
//!
//! A hole is of the second kind when a record or segment behind it says that the log was synced beyond it, or when the
//! segment's boot id is the machine's. Either way nothing goes unreported, and every byte stays in the file.
//!
//! May use: `base`, `unsealed.rs`, `segment.rs`. Must not know: engines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Files, crc32c};

use crate::begin::{self, First};
use crate::bytes::index;
use crate::chain::PartitionState;
use crate::damage::{Damage, DamageKind, SET_ASIDE, damage_at};
use crate::error::{Error, Result};
use crate::footer::{Extent, ExtentKind, Footer, Trailer};
use crate::header::{self, SegmentHeader, header_bytes};
use crate::journal::Options;
use crate::position::Position;
use crate::segment::{Segment, Start, base_of};
use crate::unsealed::{LogEnd, Scanned, Stretch};

/// What opening a journal found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Every damaged range, those of earlier openings included.
    pub damage: Vec<Damage>,
    /// Bytes of unsealed segments that were scanned.
    pub scanned_bytes: u64,
    /// Where the log ended.
    pub end: Position,
}

/// Whether what recovery decides is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Segments are sealed.
    Seal,
    /// Nothing is written; what would be sealed is told. Somebody else may be writing meanwhile.
    Look,
}

/// How a segment would be sealed.
pub(crate) struct Planned {
    pub(crate) footer: Footer,
    pub(crate) data_end: u64,
    pub(crate) log_end: Position,
}

/// The journal's state, ready to go on.
pub(crate) struct Recovered {
    pub(crate) segments: BTreeMap<Position, Arc<Segment>>,
    pub(crate) states: Vec<PartitionState>,
    pub(crate) previous_base: Position,
    pub(crate) previous_end: Position,
    pub(crate) next_base: Position,
    /// Files that hold nothing, of segments that were prepared or that nobody wrote to; to be removed once a new segment
    /// stands behind them.
    pub(crate) unused: Vec<PathBuf>,
    pub(crate) report: Recovery,
    /// What [`Mode::Look`] did not do.
    pub(crate) planned: BTreeMap<Position, Planned>,
    /// Where the journal is noted to begin, if it is.
    pub(crate) begin: Option<Position>,
}

struct Found {
    segment: Arc<Segment>,
    header: Option<SegmentHeader>,
    /// The next intact header says that the log does not go through this segment.
    void: bool,
    /// Where the next intact header says that the log left this segment.
    known_end: Option<Position>,
    /// The segment before, by this one's header, is there but was never synced.
    after_hole: bool,
    /// Part of the header never reached the disk.
    is_torn: bool,
    scanned: Option<Scanned>,
}

/// Opens all segments in `dir`, finds the end of the log and seals what is not sealed.
pub(crate) fn recover(files: &dyn Files, dir: &Path, options: &Options, mode: Mode) -> Result<Recovered> {
    let mut report = Recovery::default();
    let mut unused = Vec::new();
    let mut next_base = Position::ZERO;
    let mut found = find(files, dir, (options, mode), &mut report, &mut unused, &mut next_base)?;
    unused.retain(|path| !was_synced(path, &found, options));
    link(&mut found, &unused, &mut report);
    // Behind the listing: who lets go of segments meanwhile has noted it before.
    let capacities = found.iter().filter_map(|found| Some(found.header.as_ref()?.capacity));
    let usual = capacities.fold(options.segment_bytes, u64::max);
    // Before a hole lies a segment that is there, and was never synced.
    let first = found.first().filter(|first| !first.after_hole);
    let first =
        first.map(|first| First { path: &first.segment.path, base: first.segment.base, header: first.header.as_ref() });
    let begin = begin::look((files, dir), options.store, (first, usual, next_base), &mut report.damage)?;
    // Segments that were put back when nothing of them was needed any more may name others.
    let is_needed = |one: &Damage| one.kind != DamageKind::Missing || one.is_missing_behind(begin.unwrap_or_default());
    report.damage.retain(is_needed);
    let promised = scan_unsealed(&mut found, options, &mut report)?;
    let mut planned = BTreeMap::new();
    let boot = files.boot_id();
    let mut walk = Walk { boot, promised, cut: false, report: &mut report, mode, planned: &mut planned };
    let mut states = vec![PartitionState::START; usize::from(options.partitions)];
    // Where nothing is left of the log, the first header still says where it ended.
    let first = found.first().and_then(|first| first.header.as_ref());
    let mut end = first.map_or((Position::ZERO, Position::ZERO), |header| (header.previous_base, header.previous_end));
    for i in 0..found.len() {
        let later = found.iter().skip(i + 1).any(Found::has_records);
        let Some(this) = found.get(i) else { break };
        walk.segment(this, (later, i + 1 == found.len()), &mut states, &mut end)?;
    }
    report.end = end.1;
    if mode == Mode::Seal {
        let idle = found.extract_if(.., |this| this.is_idle());
        unused.extend(idle.map(|this| this.segment.path.clone()));
    }
    let segments = found.into_iter().map(|found| (found.segment.base, found.segment)).collect();
    let (previous_base, previous_end) = end;
    Ok(Recovered { segments, states, previous_base, previous_end, next_base, unused, report, planned, begin })
}

/// Identity of the store and number of partitions, from the first segment in `dir` that can tell; `None` when there
/// is none.
///
/// # Errors
/// What listing and reading meet.
pub fn identify(files: &dyn Files, dir: &Path) -> Result<Option<(u128, u16)>> {
    let names = files.list(dir).map_err(|error| Error::io("listing", dir, error))?;
    for base in names.iter().filter_map(|name| base_of(name)) {
        if let Start::Header(header) = Segment::open_to_read(files, dir, base)?.read_start()? {
            let partitions = u16::try_from(header.states.len()).unwrap_or(u16::MAX);
            return Ok(Some((header.store, partitions)));
        }
    }
    Ok(None)
}

/// Whether the folder `dir` has no segment that was ever used, not even one that cannot be read. A journal that was ever opened has one.
///
/// # Errors
/// What listing and reading meet, such as that there is no folder.
pub fn is_empty(files: &dyn Files, dir: &Path) -> Result<bool> {
    let names = files.list(dir).map_err(|error| Error::io("listing", dir, error))?;
    for base in names.iter().filter_map(|name| base_of(name)) {
        let segment = Segment::open_to_read(files, dir, base)?;
        if !matches!(segment.read_start()?, Start::Blank) || segment.read_trailer()?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The position that the next opening gives out first, at the earliest: behind everything that the segments in `dir` may have
/// held. Changes nothing; the folder need not be there.
///
/// # Errors
/// What listing and reading meet.
pub fn next_position(files: &dyn Files, dir: &Path, options: &Options) -> Result<Position> {
    let header = header_bytes(usize::from(options.partitions));
    let names = match files.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(|error| Error::io("listing", dir, error))?,
    };
    let Some(base) = names.iter().filter_map(|name| base_of(name)).max() else { return Ok(Position::new(header)) };
    let segment = Segment::open_to_read(files, dir, base)?;
    let capacity = match segment.read_start()? {
        Start::Header(header) => header.capacity,
        Start::Blank | Start::Damaged => options.segment_bytes.max(segment.capacity()),
    };
    Ok(base.plus(capacity).plus(header))
}

/// Opens the files, in order, and reads their headers and trailers.
fn find(
    files: &dyn Files,
    dir: &Path,
    (options, mode): (&Options, Mode),
    report: &mut Recovery,
    unused: &mut Vec<PathBuf>,
    next_base: &mut Position,
) -> Result<Vec<Found>> {
    let names = files.list(dir).map_err(|error| Error::io("listing", dir, error))?;
    let mut all = Vec::new();
    // Earlier runs may have made larger ones than these options say.
    let mut usual_capacity = options.segment_bytes;
    for base in names.iter().filter_map(|name| base_of(name)) {
        let segment = match mode {
            Mode::Seal => Segment::open(files, dir, base)?,
            Mode::Look => match Segment::open_to_read(files, dir, base) {
                // Whoever has the journal open has let go of it since the folder was listed.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => continue,
                opened => opened?,
            },
        };
        let start = segment.read_start()?;
        let capacity = match &start {
            Start::Header(header) => {
                usual_capacity = usual_capacity.max(header.capacity);
                header.capacity
            }
            // The file of an unusually large one was given its length, durably, before it was used.
            Start::Blank | Start::Damaged => usual_capacity.max(segment.capacity()),
        };
        segment.set_capacity(capacity);
        *next_base = segment.end().max(*next_base);
        let damage = |kind, bytes, reason| damage_at(&segment, kind, 0, bytes, reason);
        let mut is_torn = false;
        let header = match start {
            Start::Header(header) => {
                check_header(&segment, &header, options)?;
                segment.enter(header.previous_end);
                Some(header)
            }
            Start::Damaged => {
                let partitions = usize::from(options.partitions);
                is_torn = header::is_torn(&segment.read_all(Some(header_bytes(partitions)))?, partitions);
                report.damage.push(damage(DamageKind::Header, header_bytes(0), "segment header checksum mismatch"));
                None
            }
            // A sealed segment was in use, whatever its first block says.
            Start::Blank if segment.read_trailer()?.is_some() => {
                report.damage.push(damage(DamageKind::Header, header_bytes(0), "segment header is all zeros"));
                None
            }
            // Something in it was synced, or the journal would not have been told so.
            Start::Blank if in_it(&segment, options) => {
                report.damage.push(damage(DamageKind::Header, header_bytes(0), "segment header is all zeros"));
                None
            }
            Start::Blank => {
                // The header goes out with the first group, so nothing in here was ever synced.
                let bytes = segment.read_all(None)?.iter().rposition(|b| *b != 0).map_or(0, |last| last as u64 + 1);
                if bytes > 0 {
                    report.damage.push(damage(DamageKind::Discarded, bytes, "segment never synced"));
                }
                unused.push(segment.path.clone());
                continue;
            }
        };
        segment.read_trailer()?;
        all.push(Found {
            segment: Arc::new(segment),
            header,
            void: false,
            known_end: None,
            after_hole: false,
            is_torn,
            scanned: None,
        });
    }
    Ok(all)
}

fn check_header(segment: &Segment, header: &SegmentHeader, options: &Options) -> Result<()> {
    if header.store != options.store {
        return Err(Error::foreign(&segment.path, "it belongs to another store"));
    }
    if header.states.len() != usize::from(options.partitions) {
        let reason = format!("it has {} partitions, the store {}", header.states.len(), options.partitions);
        return Err(Error::foreign(&segment.path, reason));
    }
    Ok(())
}

/// Whether the journal was synced up to somewhere in this segment, by what lies beside.
fn in_it(segment: &Segment, options: &Options) -> bool {
    let start = segment.base.plus(header_bytes(usize::from(options.partitions)));
    start < options.promised && options.promised <= segment.end()
}

/// Whether a segment that holds nothing held something that was synced: the log went through it, by the next one's header, and
/// was synced beyond.
fn was_synced(path: &Path, found: &[Found], options: &Options) -> bool {
    let start = header_bytes(usize::from(options.partitions));
    // What a recovery before this one has sealed as void holds nothing of the log, and says nothing of what came before.
    let of_log = |trailer: &Trailer| trailer.damaged_bytes == 0 || trailer.log_end > trailer.base.plus(start);
    let trailers = found.iter().filter_map(|found| found.segment.trailer());
    let sealed = trailers.filter(|trailer| of_log(trailer)).map(|trailer| trailer.log_end).max();
    let promised = sealed.map_or(options.promised, |sealed| sealed.max(options.promised));
    let mut headers = found.iter().filter_map(|found| found.header.as_ref());
    headers.any(|header| {
        header.previous_base.plus(start) < promised
            && path.file_name().is_some_and(|name| *name == *crate::segment::file_name(header.previous_base))
    })
}

/// Lets each intact header speak about the segments before it.
fn link(found: &mut [Found], unused: &[PathBuf], report: &mut Recovery) {
    let mut next: Option<(Position, Position)> = None;
    for this in found.iter_mut().rev() {
        let base = this.segment.base;
        if let Some(header) = &this.header {
            let before = this.segment.path.with_file_name(crate::segment::file_name(header.previous_base));
            this.after_hole = header.previous_base != base && unused.contains(&before);
        }
        if let Some((previous_base, previous_end)) = next {
            this.void = base > previous_base;
            if base == previous_base {
                this.known_end = Some(previous_end);
            }
            let path = this.segment.path.with_file_name(crate::segment::file_name(previous_base));
            if base < previous_base && !unused.contains(&path) {
                let bytes = previous_end.get().saturating_sub(previous_base.get());
                let (kind, reason) = (DamageKind::Missing, "a segment is missing");
                report.damage.push(Damage { kind, path, offset: 0, bytes, position: previous_base, reason });
            }
            if base < previous_base || this.header.is_none() {
                // A damaged header says nothing about what came before it.
                next = None;
            }
        }
        if let Some(header) = this.header.as_ref().filter(|_| !this.void) {
            next = Some((header.previous_base, header.previous_end));
        }
    }
}

/// Scans what is not sealed; returns the highest position that anything on disk says was synced.
fn scan_unsealed(found: &mut [Found], options: &Options, report: &mut Recovery) -> Result<Position> {
    let mut promised = options.promised;
    let last = found.len().saturating_sub(1);
    for (i, this) in found.iter_mut().enumerate() {
        if let Some(trailer) = this.segment.trailer() {
            promised = promised.max(trailer.log_end);
            // A footer can be torn though its trailer is whole: a sync that failed, or a kill before it, and then a power
            // cut. Compaction and the partitions' states need it, so it is made again from the records. A stub has none.
            if (i != last && this.segment.is_stub()) || this.segment.read_footer()?.is_some() {
                continue;
            }
            let (bytes, reason) = (trailer.body_bytes(), "segment footer checksum mismatch");
            report.damage.push(damage_at(&this.segment, DamageKind::Footer, trailer.data_end, bytes, reason));
        }
        let bytes = this.segment.read_all(this.segment.trailer().map(|trailer| trailer.data_end))?;
        report.scanned_bytes += bytes.len() as u64;
        let end = if this.void { LogEnd::Elsewhere } else { this.known_end.map_or(LogEnd::Unknown, LogEnd::At) };
        this.scanned = Some(Scanned::of(&this.segment, bytes, (options.partitions, end), &mut promised));
    }
    Ok(promised)
}

impl Found {
    /// Whether nobody ever wrote to it, and no header needs it to be there.
    fn is_idle(&self) -> bool {
        self.known_end.is_none() && self.segment.is_stub() && !self.segment.is_let_go()
    }

    fn has_records(&self) -> bool {
        let scanned = |s: &Scanned| s.stretches.iter().any(|stretch| stretch.extent.kind == ExtentKind::Record);
        !self.void && self.scanned.as_ref().map_or(self.segment.trailer().is_some(), scanned)
    }
}

struct Walk<'a> {
    boot: u128,
    promised: Position,
    cut: bool,
    report: &'a mut Recovery,
    mode: Mode,
    planned: &'a mut BTreeMap<Position, Planned>,
}

impl Walk<'_> {
    /// Takes one segment into the log, or not. `end` is base and end of the log so far.
    fn segment(
        &mut self,
        this: &Found,
        (later, is_last): (bool, bool),
        states: &mut Vec<PartitionState>,
        end: &mut (Position, Position),
    ) -> Result<()> {
        let base = this.segment.base;
        let Some(scanned) = &this.scanned else {
            self.sealed(this, states)?;
            let Some(trailer) = this.segment.trailer().filter(|_| !this.void) else { return Ok(()) };
            // A recovery before this one cut the log in here, and ended before it had sealed what lies behind. Not so when
            // there are records of a later opening: then it did end, and the header that said so is damaged.
            let reached = this.known_end.unwrap_or(base.plus(trailer.data_end));
            self.cut |= trailer.log_end < reached && self.promised < reached;
            if trailer.log_end > base.plus(header_bytes(states.len())) {
                *end = (base, trailer.log_end);
            }
            return Ok(());
        };
        // The hole is a whole segment whose header never reached the disk, or part of this one's.
        let is_hole = this.is_torn && self.promised <= base.plus(scanned.start);
        self.cut |= !this.void && (is_hole || this.after_hole && !self.survived(this));
        if let Some(header) = this.header.as_ref().filter(|_| !this.void && !self.cut) {
            states.clone_from(&header.states);
        }
        let mut extents = Vec::with_capacity(scanned.stretches.len());
        let mut log_end = base.plus(scanned.start);
        let mut at = scanned.start;
        for (i, stretch) in scanned.stretches.iter().enumerate() {
            let rest = scanned.stretches.get(i + 1..).unwrap_or_default();
            let more = later || rest.iter().any(|stretch| stretch.extent.kind == ExtentKind::Record);
            let kind = self.judge(this, stretch, more);
            at = stretch.offset + stretch.extent.bytes;
            extents.push(Extent { bytes: stretch.extent.bytes, kind });
            match kind {
                ExtentKind::Record => {
                    self.follow(&this.segment, stretch, states);
                    log_end = base.plus(at);
                }
                ExtentKind::Damaged => log_end = base.plus(at),
                ExtentKind::Void => {}
            }
        }
        // In the last segment what was promised says so too.
        let promised = (is_last && self.promised <= this.segment.end()).then_some(self.promised);
        let known_end = this.known_end.or(promised);
        if let Some(known) = known_end.filter(|known| *known > base.plus(at) && !self.cut && !this.void) {
            // The log is known to have gone on here, and there is nothing: as bad as damage.
            let extent = Extent { bytes: known.get() - base.plus(at).get(), kind: ExtentKind::Damaged };
            let hole = Stretch { offset: at, extent, sections: Vec::new(), reason: "records are missing" };
            let kind = self.judge(this, &hole, later);
            extents.push(Extent { bytes: extent.bytes, kind });
            at += extent.bytes;
            if kind == ExtentKind::Damaged {
                log_end = known;
            }
        }
        let footer = Footer { extents, states: states.clone() };
        match self.mode {
            Mode::Look => drop(self.planned.insert(base, Planned { footer, data_end: at, log_end })),
            Mode::Seal => self.seal(this, scanned, &Planned { footer, data_end: at, log_end })?,
        }
        if log_end > base.plus(scanned.start) {
            *end = (base, log_end);
        }
        Ok(())
    }

    /// Puts on stable storage what may not be, and seals.
    fn seal(&self, this: &Found, scanned: &Scanned, planned: &Planned) -> Result<()> {
        let Planned { footer, data_end, log_end } = planned;
        let is_whole = *data_end == scanned.data_end;
        let sum = if is_whole { scanned.sum } else { crc32c(&padded(&this.segment, *data_end)?) };
        let proven = self.promised.get().saturating_sub(this.segment.base.get()).min(*data_end);
        // The header goes out with the first records.
        let unproven = if proven > scanned.start { proven } else { 0 };
        this.segment.rewrite(unproven, *data_end)?;
        this.segment.seal(footer, *data_end, *log_end, sum)
    }

    /// Decides what a stretch of an unsealed segment is to the log, and reports it.
    fn judge(&mut self, this: &Found, stretch: &Stretch, more: bool) -> ExtentKind {
        let position = this.segment.base.plus(stretch.offset);
        let bytes = stretch.extent.bytes;
        let record = stretch.extent.kind == ExtentKind::Record;
        let beyond = this.known_end.is_some_and(|end| position >= end);
        let (kind, damage) = if this.void || beyond {
            // Records behind the log's known end were void already; other bytes there were a footer.
            (ExtentKind::Void, (!record).then_some((DamageKind::Footer, "segment footer damaged")))
        } else if self.cut {
            (ExtentKind::Void, Some((DamageKind::Discarded, "never synced, behind a hole left by a power cut")))
        } else if record {
            (ExtentKind::Record, None)
        } else if !more && self.promised > position {
            (ExtentKind::Damaged, Some((DamageKind::Record, stretch.reason)))
        } else if !more {
            (ExtentKind::Void, Some((DamageKind::Torn, stretch.reason)))
        } else if self.survived(this) || self.promised >= position.plus(bytes) {
            (ExtentKind::Damaged, Some((DamageKind::Record, stretch.reason)))
        } else {
            self.cut = true;
            (ExtentKind::Void, Some((DamageKind::Discarded, "never synced, lost by a power cut")))
        };
        if let Some((kind, reason)) = damage {
            self.report.damage.push(damage_at(&this.segment, kind, stretch.offset, bytes, reason));
        }
        kind
    }

    /// Whether everything written to the segment is still with the operating system. A damaged header cannot say, and
    /// then keeping is the safer guess.
    fn survived(&self, this: &Found) -> bool {
        this.header.as_ref().is_none_or(|header| header.boot == self.boot && self.boot != 0)
    }

    /// Checks that a record continues its partitions' chains, and moves them on.
    fn follow(&mut self, segment: &Segment, stretch: &Stretch, states: &mut [PartitionState]) {
        for (partition, state, digest) in &stretch.sections {
            let Some(before) = states.get_mut(partition.index()) else { continue };
            let expected = PartitionState { epoch: state.epoch, ..*before }.next(*partition, *digest);
            *before = *state;
            if expected != *state && self.report.damage.iter().all(|damage| damage.kind == DamageKind::Header) {
                let reason = "a section does not continue its partition's chain";
                let bytes = stretch.extent.bytes;
                self.report.damage.push(damage_at(segment, DamageKind::Chain, stretch.offset, bytes, reason));
            }
        }
    }

    /// A sealed segment needs no decision; what its footer sets aside is reported again.
    fn sealed(&mut self, this: &Found, states: &mut Vec<PartitionState>) -> Result<()> {
        let Some(trailer) = this.segment.trailer() else { return Ok(()) };
        if trailer.damaged_bytes == 0 && !self.needs_states(this) {
            return Ok(());
        }
        let Some(footer) = this.segment.read_footer()? else {
            let bytes = trailer.body_bytes();
            let reason = "segment footer checksum mismatch";
            self.report.damage.push(damage_at(&this.segment, DamageKind::Footer, trailer.data_end, bytes, reason));
            return Ok(());
        };
        let mut offset = header_bytes(footer.states.len());
        for extent in &footer.extents {
            let (kind, reason) = match extent.kind {
                ExtentKind::Record => (None, ""),
                ExtentKind::Damaged => (Some(DamageKind::Record), SET_ASIDE),
                ExtentKind::Void => (Some(DamageKind::Discarded), "void since an earlier recovery"),
            };
            if let Some(kind) = kind {
                self.report.damage.push(damage_at(&this.segment, kind, offset, extent.bytes, reason));
            }
            offset += extent.bytes;
        }
        if !this.void {
            *states = footer.states;
        }
        Ok(())
    }

    /// The footer's states matter when no later header repeats them.
    fn needs_states(&self, this: &Found) -> bool {
        this.known_end.is_none()
    }
}

/// The first `len` bytes of the file, with zeros where it ends before.
fn padded(segment: &Segment, len: u64) -> Result<Vec<u8>> {
    let mut bytes = segment.read_all(Some(len))?;
    bytes.resize(index(len), 0);
    Ok(bytes)
}
