//! The folder of sealed files: how they are called, and how they are read and written.
//!
//!   manifest, manifest.copy            which of the others count
//!   NNNNNNNNNN.names, the same .copy   registers
//!   NNNNNNNNNN.points                  sealed files
//!   the same .lost                     what was there when both manifests were missing or damaged: set aside for whoever can read it
//!
//! May use: `base`, `series`. Must not know: what is done with what is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::series::{
    BlockAt, Manifest, PackedBlock, Points, Range, RollupAt, SEALED_HEADER_BYTES, SealedFile, SealedIndex, SeriesId,
    Summary, Unit, check_sealed_header, read_sealed_block, read_sealed_end, read_sealed_rollup,
};
use base::{File, Files, Placed, copy_whole, link_or_copy, read_exact_at, remove_if_there, write_new_file};
use journal::{Damage, DamageKind, Position};

use crate::error::{Error, ErrorKind, Result};

/// The folder within the store's.
pub(crate) const FOLDER: &str = "series";
pub(crate) const MANIFEST: &str = "manifest";
/// How the second of two equal files ends.
const COPY: &str = "copy";
/// How files end that were set aside because their manifest is lost.
const LOST: &str = "lost";
/// Bytes of a manifest or a register at most.
const BYTES_MAX: u64 = 16 << 30;
/// Bytes of a file between two words on how far its check is.
const CHECK_BYTES: u64 = 1 << 20;

/// A folder of sealed files.
#[derive(Clone, Copy)]
pub(crate) struct Folder<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) dir: &'a Path,
}

/// A sealed file that is open.
pub(crate) struct Shelved {
    pub(crate) of: SealedFile,
    path: PathBuf,
    file: Arc<dyn File>,
    /// What is in it.
    pub(crate) index: SealedIndex,
    /// A block of it was found damaged.
    damaged: AtomicBool,
}

pub(crate) fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} cannot be used: {error}", path.display()))
}

pub(crate) fn points_name(file: u64) -> String {
    format!("{file:010}.points")
}

pub(crate) fn register_name(file: u64) -> String {
    format!("{file:010}.names")
}

fn copy_name(name: &str) -> String {
    format!("{name}.{COPY}")
}

impl Folder<'_> {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn damage(&self, name: &str, offset: u64, bytes: u64, reason: &'static str) -> Damage {
        Damage { kind: DamageKind::Record, path: self.path(name), offset, bytes, position: Position::ZERO, reason }
    }

    /// The names of its files; none when there is no such folder.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        match self.files.list(self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.map_err(|error| failed(self.dir, &error)),
        }
    }

    /// Whether there is one of two equal files, damaged or not.
    pub(crate) fn has_either(&self, name: &str) -> Result<bool> {
        Ok(self.names()?.iter().any(|one| one == name || *one == copy_name(name)))
    }

    /// Opens two equal files, as far as they are there.
    pub(super) fn open_both(&self, name: &str) -> Result<Both> {
        let open = |name: String| {
            let path = self.path(&name);
            match self.files.open_to_read(&path) {
                Ok(file) => Ok((path, Some(file))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((path, None)),
                Err(error) => Err(failed(&path, &error)),
            }
        };
        Ok(Both([open(name.to_owned())?, open(copy_name(name))?]))
    }

    /// What each of two equal files is, if it is there and intact; damage is told.
    pub(super) fn both<T>(
        &self,
        name: &str,
        decode: impl Fn(&[u8]) -> ::series::Result<T>,
        tell: &mut dyn FnMut(Damage),
    ) -> Result<[Option<T>; 2]> {
        self.open_both(name)?.read(decode, tell)
    }

    /// What the first of two equal files is that is intact.
    pub(crate) fn read_either<T>(
        &self,
        name: &str,
        decode: impl Fn(&[u8]) -> ::series::Result<T>,
        tell: &mut dyn FnMut(Damage),
    ) -> Result<Option<T>> {
        let [first, second] = self.both(name, decode, tell)?;
        Ok(first.or(second))
    }

    /// Makes two files equal again of which one is missing or damaged, or was not reached when the power went. Damage is told.
    pub(crate) fn mend<T: PartialEq>(
        &self,
        name: &str,
        decode: impl Fn(&[u8]) -> ::series::Result<T>,
        tell: &mut dyn FnMut(Damage),
    ) -> Result<()> {
        let with_bytes = |bytes: &[u8]| decode(bytes).map(|_| bytes.to_vec());
        match self.both(name, with_bytes, tell)? {
            [None, None] => Ok(()),
            [Some(first), Some(second)] if first == second => Ok(()),
            [Some(bytes), _] | [None, Some(bytes)] => self.write_both(name, &bytes),
        }
    }

    /// Sets files aside whose manifest is lost: they are told of, and nothing removes or replaces them.
    pub(crate) fn set_aside(&self) -> Result<usize> {
        let mut count = 0;
        for name in self.names()?.iter().filter(|name| name.contains(".points") || name.contains(".names")) {
            if !name.ends_with(LOST) {
                let (from, to) = (self.path(name), self.path(&format!("{name}.{LOST}")));
                self.files.rename(&from, &to).map_err(|error| failed(&from, &error))?;
            }
            count += 1;
        }
        if count > 0 {
            self.files.sync_dir(self.dir).map_err(|error| failed(self.dir, &error))?;
        }
        Ok(count)
    }

    /// Writes two equal files, durably.
    pub(crate) fn write_both(&self, name: &str, bytes: &[u8]) -> Result<()> {
        for name in [copy_name(name), name.to_owned()] {
            let path = self.path(&name);
            write_new_file(self.files, &path, bytes).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }

    /// The files that a manifest names, but for itself.
    pub(crate) fn named(manifest: &Manifest) -> Vec<String> {
        let registers = manifest.registers.iter().map(|file| register_name(*file));
        let registers = registers.flat_map(|name| [copy_name(&name), name]);
        registers.chain(manifest.files.iter().map(|of| points_name(of.file))).collect()
    }

    /// Removes some files; what stays is removed by the next opening.
    pub(crate) fn remove(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            let _ = self.files.remove(&self.path(&name));
        }
    }

    /// Removes what a manifest does not name.
    pub(crate) fn remove_unnamed(&self, manifest: &Manifest) {
        let named = Self::named(manifest);
        let names = self.files.list(self.dir).unwrap_or_default();
        self.remove(
            names
                .into_iter()
                .filter(|name| !name.starts_with(MANIFEST) && !name.ends_with(LOST) && !named.contains(name)),
        );
    }

    /// Opens a sealed file, with its index; `None` when nothing of it can be read. Damage is told, and so is what the disk does not
    /// read: that costs this file, until it can be read, and not the store.
    pub(crate) fn open_points(&self, of: &SealedFile, tell: &mut dyn FnMut(Damage)) -> Result<Option<Shelved>> {
        let name = points_name(of.file);
        let path = self.path(&name);
        let file = match self.files.open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                tell(self.damage(&name, 0, of.bytes, "a sealed file is missing"));
                return Ok(None);
            }
            Err(error) => return Err(failed(&path, &error)),
        };
        let mut header = [0; SEALED_HEADER_BYTES];
        let read = read_exact_at(&*file, &mut header, 0);
        if read.is_err() || check_sealed_header(&header).is_err() {
            tell(self.damage(&name, 0, header.len() as u64, "the header of a sealed file"));
        }
        let mut found = None;
        let end_bytes = of.bytes.saturating_sub(of.ends_at) / 2;
        for offset in [of.ends_at, of.ends_at + end_bytes] {
            let mut end = vec![0; usize::try_from(end_bytes).unwrap_or(0)];
            match read_exact_at(&*file, &mut end, offset).ok().and_then(|()| read_sealed_end(&end, of.ends_at).ok()) {
                None => tell(self.damage(&name, offset, end_bytes, "an index of a sealed file")),
                index => found = found.or(index),
            }
        }
        Ok(found.map(|index| Shelved { of: of.clone(), path, file, index, damaged: AtomicBool::new(false) }))
    }

    /// The manifest; `None` when there is none that is intact.
    pub(crate) fn manifest(&self, tell: &mut dyn FnMut(Damage)) -> Result<Option<Manifest>> {
        self.read_either(MANIFEST, Manifest::decode, tell)
    }

    /// What is to be told of a folder without an intact manifest, if anything. `is_noted`: the store says of itself that it has time
    /// series.
    pub(crate) fn lost_manifest(&self, is_noted: bool) -> Result<Option<Damage>> {
        let names = self.names()?;
        if names.is_empty() {
            let reason = "the sealed files of time series are missing: what the journal has let go of is lost";
            let damage =
                Damage { kind: DamageKind::Missing, path: self.dir.to_owned(), ..self.damage("", 0, 0, reason) };
            return Ok(is_noted.then_some(damage));
        }
        let reason = "both manifests are damaged or missing: what was sealed is set aside by opening, and not shown";
        let is_sealed = names.iter().any(|name| name.contains(".points") || name.contains(".names"));
        let was_used = is_noted || is_sealed || self.has_either(MANIFEST)?;
        Ok(was_used.then(|| self.damage(MANIFEST, 0, 0, reason)))
    }

    /// Opens all that counts, and tells what is damaged as far as that shows. `is_noted` is as for [`Folder::lost_manifest`].
    pub(crate) fn open_all(&self, is_noted: bool, tell: &mut dyn FnMut(Damage)) -> Result<Opened> {
        let Some(manifest) = self.manifest(tell)? else {
            self.lost_manifest(is_noted)?.into_iter().for_each(tell);
            return Ok(Opened::default());
        };
        let registers = manifest.registers.iter().map(|file| self.open_both(&register_name(*file)));
        let registers = registers.collect::<Result<_>>()?;
        let points = manifest.files.iter().filter_map(|of| self.open_points(of, tell).transpose());
        Ok(Opened { registers, points: points.collect::<Result<_>>()? })
    }

    /// Makes another folder hold what this one does: its files, which never change, as links where that can be and is wanted, and
    /// then its manifest. What the other held before is good until then.
    pub(crate) fn place_into(&self, to: &Folder<'_>, is_link: bool) -> Result<()> {
        let Some(manifest) = self.manifest(&mut |_| ())? else { return Ok(()) };
        to.files.create_dir(to.dir).map_err(|error| failed(to.dir, &error))?;
        let there = to.names()?;
        for name in Self::named(&manifest).iter().filter(|name| !there.contains(name)) {
            let (from, to) = (self.path(name), to.path(name));
            let placed = match is_link {
                true => link_or_copy(self.files, &from, &to),
                false => copy_whole(self.files, &from, &to).map(|()| Placed::Copied),
            };
            match placed {
                // Damage that is told when it is looked for: the rest is worth having.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                placed => placed.map(|_| ()).map_err(|error| failed(&to, &error))?,
            }
        }
        to.files.sync_dir(to.dir).map_err(|error| failed(to.dir, &error))?;
        to.write_both(MANIFEST, &manifest.encode())?;
        to.remove_unnamed(&manifest);
        Ok(())
    }

    /// Removes everything.
    pub(crate) fn clear(&self) -> Result<()> {
        for name in self.names()? {
            let path = self.path(&name);
            remove_if_there(self.files, &path).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }
}

/// The manifest of a store whose sealed files go as far as `position` or beyond, and how far; `None` when they do not.
pub(crate) fn beyond(files: &dyn Files, dir: &Path, position: Position) -> Result<Option<(PathBuf, Position)>> {
    let dir = dir.join(FOLDER);
    let folder = Folder { files, dir: &dir };
    let manifest = folder.manifest(&mut |_| ())?;
    let through = manifest.and_then(|manifest| manifest.partitions.iter().map(|sealed| sealed.through).max());
    Ok(through.filter(|through| *through >= position).map(|through| (folder.path(MANIFEST), through)))
}

/// Two equal files, open as far as they are there.
pub(crate) struct Both([(PathBuf, Option<Arc<dyn File>>); 2]);

impl Both {
    /// What each of them is, if it is there and intact; damage is told.
    fn read<T>(
        &self,
        decode: impl Fn(&[u8]) -> ::series::Result<T>,
        tell: &mut dyn FnMut(Damage),
    ) -> Result<[Option<T>; 2]> {
        let mut damaged = Vec::new();
        let mut one = |(path, file): &(PathBuf, Option<Arc<dyn File>>)| -> Result<Option<T>> {
            let Some(file) = file else { return Ok(None) };
            let bytes = read_bytes(&**file).map_err(|error| failed(path, &error))?;
            let decoded = decode(&bytes).ok();
            if decoded.is_none() {
                damaged.push((path.clone(), bytes.len() as u64));
            }
            Ok(decoded)
        };
        let [first, second] = &self.0;
        let read = [one(first)?, one(second)?];
        // The other one says the same.
        let kind = if read.iter().any(Option::is_some) { DamageKind::Copy } else { DamageKind::Record };
        let reason = "a checksum that does not match";
        for (path, bytes) in damaged {
            tell(Damage { kind, path, offset: 0, bytes, position: Position::ZERO, reason });
        }
        Ok(read)
    }
}

fn read_bytes(file: &dyn File) -> std::io::Result<Vec<u8>> {
    let len = file.len()?;
    if len > BYTES_MAX {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

/// All that counts in a folder, open: whoever merges or removes files meanwhile changes nothing of what is read.
#[derive(Default)]
pub(crate) struct Opened {
    registers: Vec<Both>,
    points: Vec<Shelved>,
}

impl Opened {
    /// Reads every byte, and tells damage.
    pub(crate) fn check(&self, tell: &mut dyn FnMut(Damage)) -> Result<()> {
        for register in &self.registers {
            let decode = |bytes: &[u8]| ::series::Register::read(bytes, &mut |_| ());
            if let [None, None] = register.read(decode, tell)? {
                let [(path, _), _] = &register.0;
                let reason = "both copies of a register are damaged or missing: its series have no names";
                let (kind, path, position) = (DamageKind::Record, path.clone(), Position::ZERO);
                tell(Damage { kind, path, offset: 0, bytes: 0, position, reason });
            }
        }
        self.points.iter().try_for_each(|points| points.check(&mut |_| (), tell))
    }
}

impl Shelved {
    /// The blocks of a series that may have points in a range.
    pub(crate) fn blocks(&self, series: SeriesId, range: Range) -> impl Iterator<Item = &BlockAt> {
        let blocks = &self.index.blocks;
        let from = blocks.partition_point(|at| (at.series, at.range.to) < (series, range.from));
        let rest = blocks.get(from..).unwrap_or_default();
        rest.iter().take_while(move |at| at.series == series && at.range.from <= range.to)
    }

    /// The rollups of a series that may have windows in a range.
    pub(crate) fn rollups(&self, series: SeriesId, unit: Unit, range: Range) -> impl Iterator<Item = &RollupAt> {
        let from = self.index.rollups.partition_point(|rollup| rollup.at.series < series);
        let mine = self.index.rollups.iter().skip(from).take_while(move |rollup| rollup.at.series == series);
        let is_meant = move |rollup: &&RollupAt| {
            rollup.unit == unit && rollup.at.range.from <= range.to && rollup.at.range.to >= range.from
        };
        mine.filter(is_meant)
    }

    /// What was written up to this position is meant by the file.
    pub(crate) fn through(&self, partition: u16) -> Position {
        self.of.through(partition)
    }

    /// Whether a block of it was found damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// A block's bytes; they may be damaged.
    pub(crate) fn block_bytes(&self, at: &BlockAt) -> Result<Vec<u8>> {
        let mut bytes = vec![0; at.bytes as usize];
        match read_exact_at(&*self.file, &mut bytes, at.offset) {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(failed(&self.path, &error)),
            // What is missing does not match its checksum.
            _ => Ok(bytes),
        }
    }

    /// What a block is as it was written; `None` when it is damaged, which is told.
    fn intact<T>(
        &self,
        at: &BlockAt,
        read: impl FnOnce(Vec<u8>) -> ::series::Result<T>,
        tell: &mut dyn FnMut(Damage),
    ) -> Result<Option<T>> {
        if let Ok(read) = read(self.block_bytes(at)?) {
            return Ok(Some(read));
        }
        tell(self.malformed(at));
        Ok(None)
    }

    /// Notes and says that a block is not what was written.
    pub(crate) fn malformed(&self, at: &BlockAt) -> Damage {
        // A rollup is no points: what it says can be had from those.
        let is_points = at.points > 0;
        self.damaged.fetch_or(is_points, Ordering::Relaxed);
        let reason = if is_points { "a block of points" } else { "a rollup" };
        let (kind, path, position) = (DamageKind::Record, self.path.clone(), Position::ZERO);
        Damage { kind, path, offset: at.offset, bytes: at.bytes.into(), position, reason }
    }

    /// The points of a block; `None` when it is damaged, which is told.
    pub(crate) fn block(&self, at: &BlockAt, tell: &mut dyn FnMut(Damage)) -> Result<Option<Points>> {
        let read = |bytes: Vec<u8>| {
            let mut points = Points::new();
            read_sealed_block(at, &bytes, &mut points).map(|()| points)
        };
        self.intact(at, read, tell)
    }

    /// A block whose pages are to be unpacked; `None` when it is damaged, which is told.
    pub(crate) fn packed(&self, at: &BlockAt, tell: &mut dyn FnMut(Damage)) -> Result<Option<PackedBlock>> {
        self.intact(at, |bytes| PackedBlock::open(at, bytes), tell)
    }

    /// The windows of a rollup; `None` when it is damaged, which is told.
    pub(crate) fn rollup(&self, rollup: &RollupAt, tell: &mut dyn FnMut(Damage)) -> Result<Option<Vec<Summary>>> {
        self.intact(&rollup.at, |bytes| read_sealed_rollup(rollup, &bytes), tell)
    }

    /// Reads blocks and rollups from the one with this number on, as many as have so many bytes, and tells damage. The bytes that were
    /// read, and the number of the next; `None` when there is none.
    pub(crate) fn check_some(
        &self,
        from: usize,
        bytes: u64,
        tell: &mut dyn FnMut(Damage),
    ) -> Result<(u64, Option<usize>)> {
        let (mut read, mut next) = (0, from);
        while read < bytes {
            let SealedIndex { blocks, rollups } = &self.index;
            let at = match (blocks.get(next), rollups.get(next.saturating_sub(blocks.len()))) {
                (Some(at), _) => {
                    self.block(at, tell)?;
                    at
                }
                (None, Some(rollup)) => {
                    self.rollup(rollup, tell)?;
                    &rollup.at
                }
                (None, None) => return Ok((read, None)),
            };
            read += u64::from(at.bytes);
            next += 1;
        }
        Ok((read, Some(next)))
    }

    /// Reads all blocks and rollups, and tells damage. `read` is told the bytes of each piece.
    pub(crate) fn check(&self, read: &mut dyn FnMut(u64), tell: &mut dyn FnMut(Damage)) -> Result<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            let bytes;
            (bytes, next) = self.check_some(from, CHECK_BYTES, tell)?;
            read(bytes);
        }
        Ok(())
    }
}
