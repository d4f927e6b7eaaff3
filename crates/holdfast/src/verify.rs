//! Looking at a store's folder without changing a byte of it, whether or not a process serves it.
//!
//! What is read is the journal; the ledger is derived from it, and who opens one removes what it does not name. So live bytes
//! are counted from the journal, which takes reading all of it, and are unknown before.
//!
//! May use: `journal`, `kv`'s commands and how far its ledgers go, `identity`, `beside`. Must not know: protocols.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::{Files, Limits, OsFiles};
use journal::{Damage, Position, Record, Survey, SurveyedSegment, Verified, Visit};
use kv::{Command, Compression, Indexes, LsmLedgers, Metadata, Recorded};

use crate::beside::{Beside, furthest_ledger, promised};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{self, Identity};
use crate::live_count::LiveCount;
use crate::options::Progress;

/// Bytes of a key or a value that are shown.
const SHOWN_BYTES: usize = 64;

/// A store's folder as it was at one moment.
pub struct Inspection {
    identity: Identity,
    survey: Survey,
    /// What lies beside the journal.
    beside: Beside,
    /// Damage of that which is known.
    damage: Vec<Damage>,
    live: Option<(BTreeMap<Position, u64>, Count)>,
    missing: Option<Position>,
}

/// Identity of the store, or backup, in `dir`, from its file `store` or from a segment; `None` when there is none. Writes
/// nothing, and works while a process has the store open.
///
/// # Errors
/// `Unavailable` when the disk refuses.
pub fn identity_of(dir: impl AsRef<Path>) -> Result<Option<u128>> {
    let dir = dir.as_ref();
    if !dir.join("store").exists() && !dir.join("journal").exists() {
        return Ok(None);
    }
    Ok(identity::find(&OsFiles, dir)?.map(|identity| identity.store))
}

/// Whether live bytes were counted or estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Every object was counted.
    Exact,
    /// There were too many to remember: a fair sample of them was counted.
    Estimated,
}

/// One segment of an inspected store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedSegment {
    /// Its first position.
    pub base: Position,
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes of it that are in use: header, records and what is damaged between them.
    pub used_bytes: u64,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Bytes in it that are damaged or void.
    pub damaged_bytes: u64,
    /// Bytes in it that objects still need; `None` before [`Inspection::verify`].
    pub live_bytes: Option<u64>,
}

impl Inspection {
    /// Looks at the store, or backup, in `dir`: reads headers and footers, and all of what is not sealed. Writes nothing.
    ///
    /// # Errors
    /// `Invalid` when there is no store; `Unavailable` when the disk refuses.
    pub fn of(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        // Before the journal, which may be written to meanwhile.
        let ledgers = LsmLedgers::new(Arc::new(OsFiles), &dir.join("ledger"), 0);
        let identity = identity::find(&OsFiles, dir)?;
        let through = identity.map(|identity| furthest_ledger(&ledgers, identity.partitions)).transpose()?.flatten();
        let mut inspection = Self::promised(&OsFiles, dir, promised(through))?;
        let options = journal::Options::new(0, inspection.partitions(), &Limits::default());
        let next = journal::next_position(&OsFiles, &dir.join("journal"), &options)?;
        let is_empty = journal::is_empty(&OsFiles, &dir.join("journal"))?;
        inspection.missing = through.map(|(_, through)| through).filter(|through| is_empty || *through >= next);
        Ok(inspection)
    }

    /// As [`Inspection::of`], with other files: for simulations.
    ///
    /// # Errors
    /// As [`Inspection::of`].
    pub fn in_files(files: &dyn Files, dir: &Path) -> Result<Self> {
        Self::promised(files, dir, Position::ZERO)
    }

    fn promised(files: &dyn Files, dir: &Path, promised: Position) -> Result<Self> {
        let identity = identity::find(files, dir)?.ok_or_else(|| {
            let text =
                format!("{} holds neither an intact file `store` nor a segment that says whose it is", dir.display());
            Error::new(ErrorKind::Invalid, text)
        })?;
        let survey = Survey::of(files, &dir.join("journal"), (identity.store, identity.partitions), promised)?;
        let backed_up = journal::read_manifest(files, dir)?.map(|manifest| manifest.position);
        let mut damage = Vec::new();
        let of = (identity.partitions, identity.used);
        let beside = Beside::open(files, dir, of, backed_up, &mut |one| damage.push(one))?;
        Ok(Self { identity, survey, beside, damage, live: None, missing: None })
    }

    /// A position that the journal does not reach though a ledger was written out up to it: files are missing at the journal's end, and the
    /// store does not open.
    #[must_use]
    pub fn missing(&self) -> Option<Position> {
        self.missing
    }

    /// Identity of the store.
    #[must_use]
    pub fn store(&self) -> u128 {
        self.identity.store
    }

    /// Partitions.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        self.identity.partitions
    }

    /// Position at which the log ends.
    #[must_use]
    pub fn end(&self) -> Position {
        self.survey.end()
    }

    /// Every damaged range that is known, those that [`Inspection::verify`] found included.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        [self.survey.damage(), &self.damage].concat()
    }

    /// How live bytes were counted; `None` before [`Inspection::verify`].
    #[must_use]
    pub fn count(&self) -> Option<Count> {
        self.live.as_ref().map(|(_, count)| *count)
    }

    /// The segments, in order.
    #[must_use]
    pub fn segments(&self) -> Vec<InspectedSegment> {
        let live = |base| self.live.as_ref().map(|(live, _)| live.get(&base).copied().unwrap_or(0));
        let one = |SurveyedSegment { base, bytes, used_bytes, sealed, damaged_bytes }| InspectedSegment {
            base,
            bytes,
            used_bytes,
            sealed,
            damaged_bytes,
            live_bytes: live(base),
        };
        self.survey.segments().into_iter().map(one).collect()
    }

    /// Reads every byte: checks each record, the checksum over each sealed segment, the chain of each partition through
    /// all of them, the snapshots of spaces, and the sealed files of time series; then reads once more and counts live bytes. Memory is bounded by one segment and some 300 MiB.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses. Damage is no error: see [`Inspection::damage`].
    pub fn verify(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Verified> {
        let told = |done_bytes, total_bytes| Progress { done_bytes, total_bytes: 2 * total_bytes, batches: 0 };
        let verified = self.survey.verify(&mut |done, total| progress(told(done, total)))?;
        let mut count = LiveCount::default();
        let mut batches = 0;
        let total: u64 = self.survey.segments().iter().map(|segment| segment.bytes).sum();
        let mut done = 0;
        self.survey.read(Position::ZERO, Position::MAX, &mut |visit| {
            if let Visit::Record(record) = visit {
                batches += 1;
                let segment = self.survey.segment_base(record.position.get());
                for section in &record.sections {
                    done += section.commands.len() as u64;
                    count.apply(section, record.position, segment);
                }
                progress(Progress { done_bytes: total + done.min(total), total_bytes: 2 * total, batches });
            }
            Ok(())
        })?;
        let damage = &mut self.damage;
        self.beside.check(&mut |one| {
            if !damage.contains(&one) {
                damage.push(one);
            }
        })?;
        progress(Progress { done_bytes: 2 * total, total_bytes: 2 * total, batches });
        let how = if count.is_exact() { Count::Exact } else { Count::Estimated };
        self.live = Some((count.by_segment(), how));
        Ok(verified)
    }

    /// Hands `line` one line of text for each batch at or behind `from` and before `to`, for each of its changes, and for
    /// each damaged range. Keys are escaped, long keys and values cut.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn dump(&self, from: Position, to: Position, line: &mut dyn FnMut(&str)) -> Result<()> {
        self.survey.read(from, to, &mut |visit| {
            match visit {
                Visit::Record(record) => dump_record(&record, line),
                Visit::Damaged(damage) => line(&damage.to_string()),
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn dump_record(record: &Record<'_>, line: &mut dyn FnMut(&str)) {
    let bytes: usize = record.sections.iter().map(|section| section.commands.len()).sum();
    line(&format!("batch {}, {} sections, {bytes} bytes", record.position, record.sections.len()));
    for section in &record.sections {
        line(&format!("  partition {}, index {}", section.partition.get(), section.state.index));
        let mut rest = section.commands;
        for (engine, part) in kv::other_parts(section.commands) {
            line(&format!("    engine {engine}, {} bytes: {}", part.len(), shown(part)));
            rest = rest.get(kv::OTHER_PART_HEADER_BYTES + part.len()..).unwrap_or_default();
        }
        while !rest.is_empty() {
            let Some((recorded, bytes)) = Recorded::decode(rest) else {
                line(&format!("    {} bytes that are no command: {}", rest.len(), shown(rest)));
                break;
            };
            let kept = recorded.version.map_or(String::new(), |version| format!("kept since {version}: "));
            line(&format!("    {kept}{}", describe(&recorded.command)));
            rest = rest.get(bytes..).unwrap_or_default();
        }
    }
}

fn describe(command: &Command<'_>) -> String {
    match command {
        Command::Put(put) => {
            let (bucket, key, stored) = (shown(put.bucket), shown(put.key), shown(put.stored));
            let mut text = format!("put {bucket} {key} = {stored} ({} bytes", put.value_bytes);
            if put.compression != Compression::None {
                text += &format!(", {} bytes {}", put.stored.len(), put.compression);
            }
            text += &format!(", crc32c {:08x}, modified {}", put.checksum, put.modified_ms);
            text += &expiry(put.expires_ms);
            if !put.metadata.is_empty() {
                let metadata = Metadata::from_encoded(put.metadata);
                for (name, value) in metadata.iter() {
                    text += &format!(", {}: {}", shown(name), shown(value));
                }
            }
            for (index, term) in Indexes::from_encoded(put.indexes).iter() {
                text += &format!(", index {} {term}", shown(index));
            }
            text + ")"
        }
        Command::Delete { bucket, key } => format!("delete {} {}", shown(bucket), shown(key)),
        Command::Expire { bucket, key, modified_ms, expires_ms } => {
            let expiry = if *expires_ms == 0 { ", never expires".to_owned() } else { expiry(*expires_ms) };
            format!("expire {} {} (modified {modified_ms}{expiry})", shown(bucket), shown(key))
        }
        Command::Clear { bucket } => format!("clear {}", shown(bucket)),
    }
}

fn expiry(expires_ms: u64) -> String {
    if expires_ms == 0 { String::new() } else { format!(", expires {expires_ms}") }
}

/// Bytes between quotes, escaped, and cut where they are long.
fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES).filter(|_| bytes.len() > SHOWN_BYTES) {
        Some(start) => format!("\"{}\"...", start.escape_ascii()),
        None => format!("\"{}\"", bytes.escape_ascii()),
    }
}
