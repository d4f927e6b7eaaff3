//! What is sealed: files of points, registers of names, and the manifest that says which of them count.
//!
//! Manifest and registers are kept twice, because everything hangs on them; each is written before what it names is needed, and
//! what a manifest does not name any more is removed only when both are replaced.
//!
//! May use: `base`, `series`. Must not know: when something is sealed or merged, who reads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::series::{
    BlockAt, Engine, Manifest, Points, Range, Register, Registered, SEALED_HEADER_BYTES, SealedFile, SeriesId,
    check_sealed_header, read_sealed_block, read_sealed_end,
};
use base::{File, Files, read_exact_at, read_whole, remove_if_there, write_new_file};
use journal::{Damage, DamageKind, Position};

use crate::error::{Error, ErrorKind, Result};
use crate::store::lock;

/// The folder within the store's.
pub(crate) const FOLDER: &str = "series";
const MANIFEST: &str = "manifest";
/// The second of the two.
const COPY: &str = "copy";
/// Bytes of a manifest or a register at most.
const BYTES_MAX: u64 = 16 << 30;
/// Blocks that were read lately, unpacked, in bytes.
const CACHE_BYTES: u64 = 16 << 20;

/// All that is sealed.
pub(crate) struct Shelf {
    files: Arc<dyn Files>,
    dir: PathBuf,
    contents: Mutex<Arc<Contents>>,
    /// Held by who changes the contents.
    changing: Mutex<()>,
    /// Held by who seals.
    pub(crate) sealing: Mutex<()>,
    /// Held by who merges.
    pub(crate) merging: Mutex<()>,
    is_used: AtomicBool,
    damage: Mutex<Vec<Damage>>,
    cache: quick_cache::sync::Cache<(u64, u64), Arc<Points>, Weigh>,
    /// Bytes of points in memory, in all partitions.
    pub(crate) memory_bytes: AtomicU64,
    /// Series, in all partitions.
    pub(crate) series: AtomicU64,
}

/// What is sealed at one moment.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) manifest: Manifest,
    /// As the manifest has them; one that cannot be read is missing here.
    pub(crate) files: Vec<Arc<Shelved>>,
}

/// A sealed file that is open.
pub(crate) struct Shelved {
    pub(crate) of: SealedFile,
    file: Arc<dyn File>,
    /// Its blocks by series and time.
    pub(crate) index: Vec<BlockAt>,
}

/// A partition's share, as opening found it.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// Everything up to this position is in it.
    pub(crate) replayed: Position,
}

#[derive(Clone)]
struct Weigh;

impl quick_cache::Weighter<(u64, u64), Arc<Points>> for Weigh {
    fn weight(&self, _: &(u64, u64), points: &Arc<Points>) -> u64 {
        points.memory_bytes() as u64 + 64
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} cannot be used: {error}", path.display()))
}

impl Shelved {
    /// The blocks of a series that may have points in a range.
    pub(crate) fn blocks(&self, series: SeriesId, range: Range) -> impl Iterator<Item = &BlockAt> {
        let from = self.index.partition_point(|at| (at.series, at.range.to) < (series, range.from));
        let rest = self.index.get(from..).unwrap_or_default();
        rest.iter().take_while(move |at| at.series == series && at.range.from <= range.to)
    }

    /// What was written up to this position is meant by the file.
    pub(crate) fn through(&self, partition: u16) -> Position {
        self.of.through.get(usize::from(partition)).copied().unwrap_or_default()
    }
}

impl Shelf {
    /// Opens what is sealed in a store, and each partition's engine as far as that goes.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses. Damage is no error.
    pub(crate) fn open(files: &Arc<dyn Files>, dir: &Path, partitions: u16) -> Result<(Self, Vec<Loaded>)> {
        let shelf = Self {
            files: Arc::clone(files),
            dir: dir.join(FOLDER),
            contents: Mutex::default(),
            changing: Mutex::default(),
            sealing: Mutex::default(),
            merging: Mutex::default(),
            is_used: AtomicBool::new(false),
            damage: Mutex::default(),
            cache: quick_cache::sync::Cache::with_weighter(4096, CACHE_BYTES, Weigh),
            memory_bytes: AtomicU64::new(0),
            series: AtomicU64::new(0),
        };
        let mut loaded: Vec<Loaded> = (0..partitions).map(|_| Loaded::default()).collect();
        let Some(manifest) = shelf.read_either(MANIFEST, |bytes| Manifest::decode(bytes))? else {
            if !shelf.is_there(MANIFEST)? {
                // Never used: nothing to replay.
                loaded.iter_mut().for_each(|loaded| loaded.replayed = Position::MAX);
            } else {
                shelf.is_used.store(true, Ordering::Release);
                shelf.note_damage(MANIFEST, 0, 0, "both manifests are damaged: what is sealed cannot be found");
            }
            return Ok((shelf, loaded));
        };
        shelf.is_used.store(true, Ordering::Release);
        shelf.load(&manifest, &mut loaded)?;
        shelf.remove_unnamed(&manifest);
        let opened = manifest.files.iter().filter_map(|of| shelf.open_file(of).transpose());
        let files = opened.collect::<Result<_>>()?;
        *lock(&shelf.contents) = Arc::new(Contents { manifest, files });
        let series: usize = loaded.iter().map(|loaded| loaded.engine.len()).sum();
        shelf.series.store(series as u64, Ordering::Relaxed);
        Ok((shelf, loaded))
    }

    fn load(&self, manifest: &Manifest, loaded: &mut [Loaded]) -> Result<()> {
        for file in &manifest.registers {
            let name = register_name(*file);
            let entries = self.read_either(&name, |bytes| {
                let mut entries = Vec::new();
                Register::read(bytes, &mut |entry| entries.push(entry)).map(|()| entries)
            })?;
            let Some(entries) = entries else {
                self.note_damage(&name, 0, 0, "both copies of a register are damaged: its series have no names");
                continue;
            };
            for entry in entries {
                let (Registered::Series(series, ..) | Registered::Kind(series, _) | Registered::Gone(series)) = entry;
                let Some(loaded) = loaded.get_mut(usize::from(series.partition)) else { continue };
                match entry {
                    Registered::Series(series, kind, key) => loaded.engine.restore_series(series.number, kind, &key),
                    Registered::Kind(series, kind) => loaded.engine.restore_kind(series.number, kind),
                    Registered::Gone(series) => loaded.engine.restore_gone(series.number),
                }
            }
        }
        for ((partition, loaded), sealed) in (0u16..).zip(loaded).zip(&manifest.partitions) {
            let erased = manifest.erased.iter().filter(|(of, _)| *of == partition).map(|(_, erased)| *erased).collect();
            let databases = if partition == 0 { manifest.databases.clone() } else { Default::default() };
            loaded.engine.restore(sealed.through, sealed.digest, erased, databases);
            loaded.engine.restore_next(sealed.next);
            loaded.replayed = sealed.through;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn is_there(&self, name: &str) -> Result<bool> {
        match self.files.list(&self.dir) {
            Ok(names) => Ok(names.iter().any(|one| one == name || *one == format!("{name}.{COPY}"))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(&self.dir, &error)),
        }
    }

    /// What the first of two equal files is that is intact.
    fn read_either<T>(&self, name: &str, decode: impl Fn(&[u8]) -> ::series::Result<T>) -> Result<Option<T>> {
        for name in [name.to_owned(), format!("{name}.{COPY}")] {
            let path = self.path(&name);
            match read_whole(&*self.files, &path, BYTES_MAX) {
                Ok(bytes) => match decode(&bytes) {
                    Ok(decoded) => return Ok(Some(decoded)),
                    Err(_) => self.note_damage(&name, 0, bytes.len() as u64, "a checksum that does not match"),
                },
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&path, &error)),
            }
        }
        Ok(None)
    }

    /// Writes two equal files, durably.
    fn write_both(&self, name: &str, bytes: &[u8]) -> Result<()> {
        for name in [format!("{name}.{COPY}"), name.to_owned()] {
            let path = self.path(&name);
            write_new_file(&*self.files, &path, bytes).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }

    fn note_damage(&self, name: &str, offset: u64, bytes: u64, reason: &'static str) {
        let (path, position) = (self.path(name), Position::ZERO);
        let damage = Damage { kind: DamageKind::Record, path, offset, bytes, position, reason };
        let mut all = lock(&self.damage);
        if !all.contains(&damage) {
            all.push(damage);
        }
    }

    /// Damage that was found so far.
    pub(crate) fn damage(&self) -> Vec<Damage> {
        lock(&self.damage).clone()
    }

    /// Removes what a crash left, or what could not be removed.
    fn remove_unnamed(&self, manifest: &Manifest) {
        let named = |name: &str| {
            name.starts_with(MANIFEST)
                || manifest.files.iter().any(|of| name == points_name(of.file))
                || manifest.registers.iter().any(|file| name.starts_with(&register_name(*file)))
        };
        let names = self.files.list(&self.dir).unwrap_or_default();
        for name in names.iter().filter(|name| !named(name)) {
            // What stays is removed by the next opening.
            let _ = self.files.remove(&self.path(name));
        }
    }

    /// Opens a sealed file; `None` when nothing of it can be read.
    fn open_file(&self, of: &SealedFile) -> Result<Option<Arc<Shelved>>> {
        let name = points_name(of.file);
        let path = self.path(&name);
        let file = match self.files.open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.note_damage(&name, 0, of.bytes, "a sealed file is missing");
                return Ok(None);
            }
            Err(error) => return Err(failed(&path, &error)),
        };
        let mut header = [0; SEALED_HEADER_BYTES];
        let read = read_exact_at(&*file, &mut header, 0);
        if read.is_err() || check_sealed_header(&header).is_err() {
            self.note_damage(&name, 0, header.len() as u64, "the header of a sealed file");
        }
        let end_bytes = of.bytes.saturating_sub(of.ends_at) / 2;
        for offset in [of.ends_at, of.ends_at + end_bytes] {
            let mut end = vec![0; usize::try_from(end_bytes).unwrap_or(0)];
            let index =
                read_exact_at(&*file, &mut end, offset).ok().and_then(|()| read_sealed_end(&end, of.ends_at).ok());
            match index {
                Some(index) => return Ok(Some(Arc::new(Shelved { of: of.clone(), file, index }))),
                None => self.note_damage(&name, offset, end_bytes, "an index of a sealed file"),
            }
        }
        Ok(None)
    }

    /// Whether time series were ever written.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// What is sealed now.
    pub(crate) fn contents(&self) -> Arc<Contents> {
        Arc::clone(&lock(&self.contents))
    }

    /// Everything up to this position is sealed, in all partitions.
    pub(crate) fn through(&self) -> Position {
        if !self.is_used() {
            return Position::MAX;
        }
        let contents = self.contents();
        contents.manifest.partitions.iter().map(|sealed| sealed.through).min().unwrap_or_default()
    }

    /// A number for a new file.
    pub(crate) fn new_file(&self) -> u64 {
        let _one = lock(&self.changing);
        let mut contents = lock(&self.contents);
        let file = contents.manifest.next_file.max(1);
        let manifest = Manifest { next_file: file + 1, ..contents.manifest.clone() };
        *contents = Arc::new(Contents { manifest, files: contents.files.clone() });
        file
    }

    /// Creates a file for points.
    pub(crate) fn create_points(&self, file: u64) -> Result<Arc<dyn File>> {
        let path = self.path(&points_name(file));
        let create = || {
            self.files.create_dir(&self.dir)?;
            remove_if_there(&*self.files, &path)?;
            self.files.create(&path)
        };
        create().map_err(|error| failed(&path, &error))
    }

    /// What went wrong with a file for points; the half of it is removed.
    pub(crate) fn give_up(&self, file: u64, error: &std::io::Error) -> Error {
        let path = self.path(&points_name(file));
        let _ = self.files.remove(&path);
        failed(&path, error)
    }

    /// Writes a register.
    pub(crate) fn write_register(&self, file: u64, bytes: &[u8]) -> Result<()> {
        self.files.create_dir(&self.dir).map_err(|error| failed(&self.dir, &error))?;
        self.write_both(&register_name(file), bytes)
    }

    /// Makes another manifest count, durably. What it names is on stable storage already, but for the folder.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let _one = lock(&self.changing);
        let before = self.contents();
        let mut manifest = before.manifest.clone();
        change(&mut manifest);
        self.files
            .create_dir(&self.dir)
            .and_then(|()| self.files.sync_dir(&self.dir))
            .map_err(|error| failed(&self.dir, &error))?;
        let opened = |of: &SealedFile| match before.files.iter().find(|open| open.of.file == of.file) {
            Some(open) => Some(Ok(Arc::clone(open))),
            None => self.open_file(of).transpose(),
        };
        let files = manifest.files.iter().filter_map(opened).collect::<Result<Vec<_>>>()?;
        self.write_both(MANIFEST, &manifest.encode())?;
        self.is_used.store(true, Ordering::Release);
        let gone_files = before.manifest.files.iter().map(|of| of.file);
        let gone_files = gone_files.filter(|file| manifest.files.iter().all(|of| of.file != *file)).map(points_name);
        let gone_registers = before.manifest.registers.iter().filter(|file| !manifest.registers.contains(file));
        let gone_registers = gone_registers.map(|file| register_name(*file));
        let gone: Vec<String> =
            gone_files.chain(gone_registers.flat_map(|name| [format!("{name}.{COPY}"), name])).collect();
        // Who makes a new file meanwhile has taken a number that stays taken.
        let mut contents = lock(&self.contents);
        manifest.next_file = manifest.next_file.max(contents.manifest.next_file);
        *contents = Arc::new(Contents { manifest, files });
        drop(contents);
        for name in gone {
            let _ = self.files.remove(&self.path(&name));
        }
        Ok(())
    }

    /// The points of a block; `None` when it is damaged, which is noted.
    pub(crate) fn block(&self, of: &Shelved, at: &BlockAt) -> Result<Option<Arc<Points>>> {
        let key = (of.of.file, at.offset);
        if let Some(points) = self.cache.get(&key) {
            return Ok(Some(points));
        }
        let bytes = self.block_bytes(of, at)?;
        let mut points = Points::new();
        if read_sealed_block(at, &bytes, &mut points).is_err() {
            self.note_damage(&points_name(of.of.file), at.offset, at.bytes.into(), "a block of points");
            return Ok(None);
        }
        let points = Arc::new(points);
        self.cache.insert(key, Arc::clone(&points));
        Ok(Some(points))
    }

    /// A block as it lies in the file; it may be damaged.
    pub(crate) fn block_bytes(&self, of: &Shelved, at: &BlockAt) -> Result<Vec<u8>> {
        let mut bytes = vec![0; at.bytes as usize];
        match read_exact_at(&*of.file, &mut bytes, at.offset) {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                Err(failed(&self.path(&points_name(of.of.file)), &error))
            }
            // What is missing does not match its checksum.
            _ => Ok(bytes),
        }
    }
}

fn points_name(file: u64) -> String {
    format!("{file:010}.points")
}

fn register_name(file: u64) -> String {
    format!("{file:010}.names")
}
