//! Sealing: points go from memory into a file that never changes, after which the journal needs not keep them.
//!
//! May use: the shelf, partitions, `journal`. Must not know: who writes or reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::series::{
    Engine, Erased, Frozen, Manifest, Points, Range, Register, Registered, Sealed, SealedFile, Sealer, SeriesId,
    without_erased,
};
use base::File;
use journal::{Level, Log, Position};

use super::shelf::Contents;
use crate::error::{Error, Result};
use crate::identity::Used;
use crate::store::{Inner, lock};

/// Bytes of a file that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Registers from which on they are made one.
const REGISTERS_MAX: usize = 8;

/// When there is to be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Whatever there is.
    Now,
    /// If there are more bytes of points in memory.
    Above(u64),
}

/// One partition, frozen.
struct Rotated {
    sealed: Sealed,
    frozen: Vec<Arc<Frozen>>,
    erased: BTreeMap<u32, Vec<Erased>>,
    databases: BTreeSet<String>,
    /// Series whose type changed, and those that were dropped.
    changes: (BTreeSet<u32>, BTreeSet<u32>),
}

impl Inner {
    /// Writes the first manifest, so that opening knows that there is something to replay.
    pub(crate) fn begin_series(&self) -> Result<()> {
        let _one = lock(&self.shelf.sealing);
        if self.shelf.is_used() {
            return Ok(());
        }
        let through = self.newest();
        self.journal.wait(through, Level::Synced)?;
        let sealed = Sealed { through, ..Sealed::default() };
        self.shelf.change(|manifest| manifest.partitions = vec![sealed; self.partitions.len()])?;
        // What fails here is noted by the next opening.
        self.note_use(Used { space: false, series: true })
    }

    /// Seals what is in memory, of all partitions.
    pub(crate) fn seal_series(&self, when: When) -> Result<()> {
        let _one = lock(&self.shelf.sealing);
        if let When::Above(bytes) = when
            && self.shelf.memory_bytes.load(Ordering::Relaxed) <= bytes
        {
            return Ok(());
        }
        if !self.shelf.is_used() {
            return Ok(());
        }
        self.partitions.iter().try_for_each(crate::partition::Partition::check)?;
        let before = self.shelf.contents();
        let rotated: Vec<Rotated> =
            self.partitions.iter().map(|partition| self.rotate(&mut partition.series())).collect();
        let outcome = self.seal(&before, &rotated);
        for (partition, rotated) in self.partitions.iter().zip(rotated) {
            let mut engine = partition.series();
            if outcome.is_err() {
                engine.give_back_changes(rotated.changes);
                continue;
            }
            engine.sealed(rotated.sealed.through);
            let bytes: usize = rotated.frozen.iter().map(|frozen| frozen.bytes).sum();
            self.shelf.memory_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
        self.shelf.room.tried(&outcome);
        outcome?;
        self.forget_erased();
        Ok(())
    }

    fn rotate(&self, engine: &mut Engine) -> Rotated {
        // Under the partition's lock nothing of it is on its way, so everything to come is behind this.
        let through = self.newest();
        let fresh = engine.rotate(through);
        if fresh.series.is_empty() {
            // Nothing to be sealed, but heads that were emptied may have counted for something.
            self.shelf.memory_bytes.fetch_sub(fresh.bytes as u64, Ordering::Relaxed);
        }
        Rotated {
            sealed: Sealed { through, digest: engine.digest(), next: engine.next() },
            frozen: engine.frozen().to_vec(),
            erased: engine.erased().clone(),
            databases: engine.created_databases().clone(),
            changes: engine.take_changes(),
        }
    }

    fn seal(&self, before: &Contents, rotated: &[Rotated]) -> Result<()> {
        let newest = rotated.iter().map(|rotated| rotated.sealed.through).max().unwrap_or_default();
        self.journal.wait(newest, Level::Synced)?;
        let through: Vec<Position> = rotated.iter().map(|rotated| rotated.sealed.through).collect();
        let file = self.seal_points(rotated, through)?;
        // What no manifest will name is not left lying about: on a nearly full disk each attempt would take more of it.
        let forget = |_: &Error| self.shelf.forget_points(file.iter().map(|of| of.file));
        let register = self.seal_names(before, rotated).inspect_err(forget)?;
        let erased: Vec<(u16, Erased)> = (0u16..)
            .zip(rotated)
            .flat_map(|(partition, rotated)| rotated.erased.values().flatten().map(move |erased| (partition, *erased)))
            .collect();
        let databases = rotated.first().map(|first| first.databases.clone());
        // Names were looked at as they are by now: what was dropped or retyped since must not come back without its name.
        self.journal.wait(self.newest(), Level::Synced).map_err(Error::from).inspect_err(forget)?;
        self.shelf.change(|manifest: &mut Manifest| {
            manifest.partitions = rotated.iter().map(|rotated| rotated.sealed).collect();
            manifest.erased = erased;
            manifest.databases = databases.unwrap_or_default();
            manifest.files.extend(file);
            match register {
                Some((file, true)) => manifest.registers = vec![file],
                Some((file, false)) => manifest.registers.push(file),
                None => {}
            }
        })
    }

    fn seal_points(&self, rotated: &[Rotated], through: Vec<Position>) -> Result<Option<SealedFile>> {
        if rotated.iter().all(|rotated| rotated.frozen.is_empty()) {
            return Ok(None);
        }
        let file = self.shelf.new_file();
        let mut writer = Writer::create(self, file)?;
        for (partition, rotated) in (0u16..).zip(rotated) {
            let numbers = rotated.frozen.iter().flat_map(|frozen| frozen.series.iter().map(|(number, _)| *number));
            let numbers: BTreeSet<u32> = numbers.collect();
            for number in numbers {
                let series = SeriesId { partition, number };
                let mut of_it =
                    rotated.frozen.iter().filter_map(|frozen| Some((frozen.through, frozen.points(number)?)));
                let erased = rotated.erased.get(&number).map_or(&[][..], Vec::as_slice);
                match (of_it.next(), of_it.next()) {
                    (Some((_, only)), None) if erased.is_empty() => writer.add(series, only)?,
                    _ => writer.add(series, &join(&rotated.frozen, number, erased))?,
                }
            }
        }
        writer.finish(through)
    }

    /// Writes the names of new series, or of all when there are many registers: then true.
    fn seal_names(&self, before: &Contents, rotated: &[Rotated]) -> Result<Option<(u64, bool)>> {
        let is_whole = before.manifest.registers.len() >= REGISTERS_MAX;
        let mut register = Register::default();
        for ((partition, rotated), at) in (0u16..).zip(rotated).zip(0usize..) {
            let known = before.manifest.partitions.get(at).map_or(0, |sealed| sealed.next);
            let Some(of) = self.partitions.get(at) else { continue };
            let engine = of.series();
            let from = if is_whole { 0 } else { known };
            for number in from..rotated.sealed.next {
                if let (Some(kind), Some(key)) = (engine.kind(number), engine.key(number)) {
                    register.add(&Registered::Series(SeriesId { partition, number }, kind, key));
                }
            }
            if is_whole {
                continue;
            }
            let (retyped, gone) = &rotated.changes;
            for number in retyped.iter().filter(|number| **number < known) {
                if let Some(kind) = engine.kind(*number) {
                    register.add(&Registered::Kind(SeriesId { partition, number: *number }, kind));
                }
            }
            for number in gone.iter().filter(|number| **number < known) {
                register.add(&Registered::Gone(SeriesId { partition, number: *number }));
            }
        }
        if register.is_empty() && !is_whole {
            return Ok(None);
        }
        let file = self.shelf.new_file();
        self.shelf.write_register(file, &register.finish())?;
        Ok(Some((file, is_whole)))
    }

    /// Lets partitions forget what was deleted, once nothing older is sealed, and join what makes no difference any more.
    pub(crate) fn forget_erased(&self) {
        for (partition, at) in self.partitions.iter().zip(0u16..) {
            let mut engine = partition.series();
            // Under the partition's lock, so that what is not frozen any more is among the files.
            engine.tidy_erased(self.shelf.contents().manifest.throughs(at));
        }
    }
}

/// The points of a series in frozen heads, of which the later count. An earlier sealing may have failed: then something was
/// deleted since the older ones were frozen, which the file will be taken to know.
fn join(frozen: &[Arc<Frozen>], number: u32, erased: &[Erased]) -> Points {
    let mut all = Points::new();
    for frozen in frozen {
        if let Some(points) = frozen.points(number) {
            let mut points = points.clone();
            without_erased(&mut points, erased, frozen.through);
            all.extend_from(&points, 0..points.len());
        }
    }
    all.sort();
    all
}

/// A file of points that is being written.
pub(crate) struct Writer<'a> {
    inner: &'a Inner,
    number: u64,
    file: Arc<dyn File>,
    pub(crate) sealer: Sealer,
}

impl<'a> Writer<'a> {
    pub(crate) fn create(inner: &'a Inner, number: u64) -> Result<Self> {
        let file = inner.shelf.create_points(number)?;
        Ok(Self { inner, number, file, sealer: Sealer::default() })
    }

    pub(crate) fn add(&mut self, series: SeriesId, points: &Points) -> Result<()> {
        self.sealer.add(series, points);
        self.flush()
    }

    /// Writes what has gathered.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.sealer.waiting_bytes() < WRITE_BYTES {
            return Ok(());
        }
        let (at, bytes) = self.sealer.take();
        self.file.write_at(&bytes, at).map_err(|error| self.inner.shelf.give_up(self.number, &error))
    }

    /// Ends the file, on stable storage; `None` when there is nothing in it.
    pub(crate) fn finish(self, through: Vec<Position>) -> Result<Option<SealedFile>> {
        if self.sealer.blocks() == 0 {
            let nothing = std::io::Error::from(std::io::ErrorKind::Other);
            let _ = self.inner.shelf.give_up(self.number, &nothing);
            return Ok(None);
        }
        let (at, bytes, made) = self.sealer.finish();
        let written = self.file.write_at(&bytes, at).and_then(|()| self.file.sync());
        written.map_err(|error| self.inner.shelf.give_up(self.number, &error))?;
        let blocks = &made.index.blocks;
        let from = blocks.iter().map(|at| at.range.from).min().unwrap_or_default();
        let to = blocks.iter().map(|at| at.range.to).max().unwrap_or_default();
        let points = blocks.iter().map(|at| u64::from(at.points)).sum();
        let range = Range { from, to };
        Ok(Some(SealedFile { file: self.number, range, points, ends_at: made.ends_at, bytes: made.bytes, through }))
    }
}
