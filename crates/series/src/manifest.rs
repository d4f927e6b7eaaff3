//! The manifest: which sealed files there are, and up to where they have everything. This is the specification of its form, and of
//! registers.
//!
//!   manifest   magic 8 "HFSMANIF" | version 1 | next file | partitions, each: through 8, digest 8, next number
//!              | registers, each: file | files, each: file, from 8, to 8, points, ends at, bytes, through 8 for each partition
//!              | erased, each: partition, number, from 8, to 8, at 8 | databases, each: text | crc32c of all before 4
//!   register   magic 8 "HFSNAMES" | version 1 | entry* | crc32c of all before 4
//!   entry      1 | partition | number | kind 1 | key         a series
//!              2 | partition | number | kind 1               its values are of another type now
//!              3 | partition | number                        it was dropped
//!
//! Lists are their count and their entries; counts and numbers are LEB128, other integers little-endian; keys are as in commands.
//! Format: docs/formats/series.md
//!
//! Registers count in the order in which the manifest names them.
//!
//! May use: `command`. Must not know: how files are read and written.

use std::collections::BTreeSet;

use base::{Fields, crc32c, put_string, put_varint};
use journal::Position;

use crate::command::{put_key, read_key};
use crate::engine::Erased;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::source::{Range, SeriesId};
use crate::value::Kind;

const MAGIC: [u8; 8] = *b"HFSMANIF";
const REGISTER_MAGIC: [u8; 8] = *b"HFSNAMES";
const VERSION: u8 = 1;

const SERIES: u8 = 1;
const KIND: u8 = 2;
const GONE: u8 = 3;

const MALFORMED: Error = Error::Malformed { what: "manifest of time series" };
const MALFORMED_REGISTER: Error = Error::Malformed { what: "register of time series" };

/// What is sealed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The number of the next file.
    pub next_file: u64,
    /// By partition.
    pub partitions: Vec<Sealed>,
    /// Files with the names of series, in the order in which they count.
    pub registers: Vec<u64>,
    /// Files with points, in the order in which they were written: the later counts.
    pub files: Vec<SealedFile>,
    /// What was deleted and may still be in files, with its partition.
    pub erased: Vec<(u16, Erased)>,
    /// Databases that were created by name.
    pub databases: BTreeSet<String>,
}

/// What is sealed of a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Everything up to this position.
    pub through: Position,
    /// The engine's digest then.
    pub digest: u64,
    /// The number that its next new series gets.
    pub next: u32,
}

/// One file with points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile {
    /// Its number, which is its name.
    pub file: u64,
    /// The first and the last time in it.
    pub range: Range,
    /// Points in it.
    pub points: u64,
    /// Where its two ends begin.
    pub ends_at: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// By partition: what was written up to this position is meant.
    pub through: Vec<Position>,
}

impl SealedFile {
    /// What was written in a partition up to this position is meant by the file, and what was deleted up to it is not in it.
    #[must_use]
    pub fn through(&self, partition: u16) -> Position {
        self.through.get(usize::from(partition)).copied().unwrap_or_default()
    }
}

impl Manifest {
    /// Up to where the files count for a partition. Also those that cannot be opened: they may be readable again some day, with
    /// what was deleted since still in them.
    pub fn throughs(&self, partition: u16) -> impl Iterator<Item = Position> {
        self.files.iter().map(move |of| of.through(partition))
    }

    /// The manifest as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        to.push(VERSION);
        put_varint(&mut to, self.next_file);
        put_varint(&mut to, self.partitions.len() as u64);
        for sealed in &self.partitions {
            to.extend_from_slice(&sealed.through.get().to_le_bytes());
            to.extend_from_slice(&sealed.digest.to_le_bytes());
            put_varint(&mut to, sealed.next.into());
        }
        put_varint(&mut to, self.registers.len() as u64);
        self.registers.iter().for_each(|file| put_varint(&mut to, *file));
        put_varint(&mut to, self.files.len() as u64);
        for file in &self.files {
            put_varint(&mut to, file.file);
            put_range(file.range, &mut to);
            put_varint(&mut to, file.points);
            put_varint(&mut to, file.ends_at);
            put_varint(&mut to, file.bytes);
            debug_assert_eq!(file.through.len(), self.partitions.len(), "a position for each partition");
            file.through.iter().for_each(|through| to.extend_from_slice(&through.get().to_le_bytes()));
        }
        put_varint(&mut to, self.erased.len() as u64);
        for (partition, erased) in &self.erased {
            put_varint(&mut to, (*partition).into());
            put_varint(&mut to, erased.number.into());
            put_range(erased.range, &mut to);
            to.extend_from_slice(&erased.at.get().to_le_bytes());
        }
        put_varint(&mut to, self.databases.len() as u64);
        self.databases.iter().for_each(|name| put_string(&mut to, name.as_bytes()));
        let sum = crc32c(&to);
        to.extend_from_slice(&sum.to_le_bytes());
        to
    }

    /// The manifest that the bytes are.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let summed = summed(bytes, MAGIC).ok_or(MALFORMED)?;
        Self::read(&mut Fields(summed)).ok_or(MALFORMED)
    }

    fn read(from: &mut Fields<'_>) -> Option<Self> {
        let next_file = from.varint()?;
        let partitions = list(from, |from| {
            let (through, digest) = (Position::new(from.u64()?), from.u64()?);
            Some(Sealed { through, digest, next: u32::try_from(from.varint()?).ok()? })
        })?;
        let registers = list(from, Fields::varint)?;
        let files = list(from, |from| {
            let (file, range, points) = (from.varint()?, read_range(from)?, from.varint()?);
            let (ends_at, bytes) = (from.varint()?, from.varint()?);
            let through = partitions.iter().map(|_| from.u64().map(Position::new)).collect::<Option<_>>()?;
            Some(SealedFile { file, range, points, ends_at, bytes, through })
        })?;
        let erased = list(from, |from| {
            let (partition, number) = (u16::try_from(from.varint()?).ok()?, u32::try_from(from.varint()?).ok()?);
            Some((partition, Erased { number, range: read_range(from)?, at: Position::new(from.u64()?) }))
        })?;
        let databases = list(from, |from| from.text().map(str::to_owned))?.into_iter().collect();
        let is_whole = from.0.is_empty();
        is_whole.then_some(Self { next_file, partitions, registers, files, erased, databases })
    }
}

fn put_range(range: Range, to: &mut Vec<u8>) {
    to.extend_from_slice(&range.from.to_le_bytes());
    to.extend_from_slice(&range.to.to_le_bytes());
}

fn read_range(from: &mut Fields<'_>) -> Option<Range> {
    Some(Range { from: from.u64()?.cast_signed(), to: from.u64()?.cast_signed() })
}

fn list<'a, T>(from: &mut Fields<'a>, mut one: impl FnMut(&mut Fields<'a>) -> Option<T>) -> Option<Vec<T>> {
    let count = from.varint()?;
    (0..count).map(|_| one(from)).collect()
}

/// What stands between the version and the checksum, if both are right.
fn summed(bytes: &[u8], magic: [u8; 8]) -> Option<&[u8]> {
    let (all, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    let mut from = Fields(all);
    let is_ours = from.array() == Some(magic) && from.u8() == Some(VERSION);
    (is_ours && crc32c(all).to_le_bytes() == *sum).then_some(from.0)
}

/// Makes a register.
#[derive(Debug)]
pub struct Register(Vec<u8>);

/// What a register says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// A series.
    Series(SeriesId, Kind, Key),
    /// A series' values are of another type now.
    Kind(SeriesId, Kind),
    /// A series was dropped.
    Gone(SeriesId),
}

impl Default for Register {
    fn default() -> Self {
        let mut bytes = REGISTER_MAGIC.to_vec();
        bytes.push(VERSION);
        Self(bytes)
    }
}

impl Register {
    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len() <= REGISTER_MAGIC.len() + 1
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: &Registered) {
        let to = &mut self.0;
        let mut tagged = |tag: u8, series: &SeriesId| {
            to.push(tag);
            put_varint(to, series.partition.into());
            put_varint(to, series.number.into());
        };
        match entry {
            Registered::Series(series, kind, key) => {
                tagged(SERIES, series);
                to.push(*kind as u8);
                put_key(key, to);
            }
            Registered::Kind(series, kind) => {
                tagged(KIND, series);
                to.push(*kind as u8);
            }
            Registered::Gone(series) => tagged(GONE, series),
        }
    }

    /// The file's bytes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let sum = crc32c(&self.0);
        self.0.extend_from_slice(&sum.to_le_bytes());
        self.0
    }

    /// Tells each entry of a register.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn read(bytes: &[u8], tell: &mut dyn FnMut(Registered)) -> Result<()> {
        let mut from = Fields(summed(bytes, REGISTER_MAGIC).ok_or(MALFORMED_REGISTER)?);
        while !from.0.is_empty() {
            tell(read_entry(&mut from).ok_or(MALFORMED_REGISTER)?);
        }
        Ok(())
    }
}

fn read_entry(from: &mut Fields<'_>) -> Option<Registered> {
    let tag = from.u8()?;
    let partition = u16::try_from(from.varint()?).ok()?;
    let series = SeriesId { partition, number: u32::try_from(from.varint()?).ok()? };
    Some(match tag {
        SERIES => Registered::Series(series, Kind::of(from.u8()?)?, read_key(from)?),
        KIND => Registered::Kind(series, Kind::of(from.u8()?)?),
        GONE => Registered::Gone(series),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_and_registers_come_back_and_changed_ones_are_refused() {
        let sealed = |n: u64| Sealed { through: Position::new(n), digest: n * 7, next: 9 };
        let range = Range { from: -5, to: 77 };
        let file = SealedFile {
            file: 3,
            range,
            points: 8,
            ends_at: 55,
            bytes: 99,
            through: vec![Position::new(4), Position::new(5)],
        };
        let manifest = Manifest {
            next_file: 12,
            partitions: vec![sealed(4), sealed(5)],
            registers: vec![1, 2],
            files: vec![file],
            erased: vec![(1, Erased { number: 3, range, at: Position::new(6) })],
            databases: ["a", "b"].map(str::to_owned).into(),
        };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        let series = SeriesId { partition: 1, number: 2 };
        let entries = [
            Registered::Series(series, Kind::Float, crate::model::key("d", "m", "a=b", "f")),
            Registered::Kind(series, Kind::Integer),
            Registered::Gone(series),
        ];
        let mut register = Register::default();
        entries.iter().for_each(|entry| register.add(entry));
        let register = register.finish();
        let mut seen = Vec::new();
        Register::read(&register, &mut |entry| seen.push(entry)).unwrap();
        assert_eq!(seen, entries);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert_eq!(Manifest::decode(&changed), Err(MALFORMED));
        }
        for at in 0..register.len() {
            let mut changed = register.clone();
            changed[at] ^= 4;
            assert_eq!(Register::read(&changed, &mut |_| ()), Err(MALFORMED_REGISTER));
        }
    }
}
