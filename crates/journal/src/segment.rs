//! One file of the journal: a header, records, and a footer once it is sealed.
//!
//! Format: docs/formats/journal.md
//!
//! A segment is *open* (one writer, preallocated, zeros behind the last record) or *sealed* (length fixed, footer
//! present). A torn tail is normal in an open segment and damage in a sealed one. The file's name is its base position
//! in 16 hexadecimal digits and `.seg`.
//!
//! May use: `base`, header and footer, lanes. Must not know: records, `Log`, retention.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::{File, Files, SMALL_WRITE_BYTES_MAX, read_exact_at};

use crate::bytes::index;
use crate::error::{Error, Result};
use crate::footer::{Footer, TRAILER_BYTES, Trailer};
use crate::header::{HEADER_BYTES_MAX, SegmentHeader, header_bytes};
use crate::position::Position;
use crate::syncing::LANES;

/// Zeros written by a writer that has overtaken those ahead, where a new page by itself costs more than a page's share of many
/// (measured: 5 us at the first store into it, 0.3 us where it was filled with zeros).
pub(crate) const OVERTAKEN_BYTES: u64 = 64 << 10;
/// Zeros written at once, up to a multiple of it: the system keeps what is written by one call in pieces that are as large as their
/// place is round, and takes a fault for each (measured on ext4 of Linux 6.18: 1 for 256 KiB, where pages by themselves took 64 of
/// 5 to 12 us each).
pub(crate) const ZERO_STEP_BYTES: u64 = 256 << 10;
static ZEROS_TO_WRITE: [u8; ZERO_STEP_BYTES as usize] = [0; ZERO_STEP_BYTES as usize];
/// Which handle beside its own fills a segment with zeros.
const ZEROS: usize = LANES - 1;

/// An open or sealed segment's file.
pub(crate) struct Segment {
    pub(crate) base: Position,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// Positions [base, base + capacity) are this segment's.
    capacity: AtomicU64,
    /// Disk space is reserved up to this offset.
    reserved: AtomicU64,
    /// Zeros or data were written up to this offset: writing below changes no metadata. Held while zeros are written, and
    /// the footer.
    zeroed: Mutex<u64>,
    zeroed_hint: AtomicU64,
    sealed: OnceLock<Trailer>,
    /// Where the log ended before it came here, by the header.
    entered_at: OnceLock<Position>,
    /// Behind the last record, once the log has left the segment: what comes there is the footer.
    left_at: OnceLock<Position>,
    /// More handles of the file, for each lane but the first, and for zeros: as old as the file, because one that is opened later does
    /// not hear of a failure that another was told before.
    beside: Mutex<[Option<Arc<dyn File>>; LANES]>,
    /// Set once its file was told that many small writes come between two syncs: whether that helps.
    is_unsynced: OnceLock<bool>,
    /// Bytes of a write, on average over the last ones.
    write_bytes: AtomicU64,
}

/// What stands at the start of a segment's file.
pub(crate) enum Start {
    Header(SegmentHeader),
    /// Prepared and never used.
    Blank,
    Damaged,
}

pub(crate) fn round_up(bytes: u64, to: u64) -> u64 {
    bytes.div_ceil(to) * to
}

pub(crate) fn file_name(base: Position) -> String {
    format!("{:016x}.seg", base.get())
}

pub(crate) fn base_of(name: &str) -> Option<Position> {
    let digits = name.strip_suffix(".seg")?;
    let canonical = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if canonical { u64::from_str_radix(digits, 16).ok().map(Position::new) } else { None }
}

impl Segment {
    /// Creates the file, durably, with `reserve` bytes of disk space, which may be none.
    pub(crate) fn create(files: &dyn Files, dir: &Path, base: Position, capacity: u64, reserve: u64) -> Result<Self> {
        let path = dir.join(file_name(base));
        let create = || {
            let file = files.create(&path)?;
            let allocated = if reserve > 0 { file.allocate(reserve) } else { Ok(()) };
            let made = allocated.and_then(|()| file.sync()).and_then(|()| files.sync_dir(dir));
            if made.is_err() {
                // A full disk must not keep the little that was taken.
                let _ = files.remove(&path);
            }
            made.map(|()| file)
        };
        let file = create().map_err(|error| Error::io("creating", &path, error))?;
        let beside = std::array::from_fn(|_| files.open(&path).ok());
        Ok(Self { beside: Mutex::new(beside), ..Self::new(base, path, file, capacity, reserve, 0) })
    }

    /// Opens an existing file, which is of any state.
    pub(crate) fn open(files: &dyn Files, dir: &Path, base: Position) -> Result<Self> {
        let path = dir.join(file_name(base));
        let file = files.open(&path);
        Self::opened(file, base, path)
    }

    /// Opens an existing file, which is of any state, and changes nothing.
    pub(crate) fn open_to_read(files: &dyn Files, dir: &Path, base: Position) -> Result<Self> {
        let path = dir.join(file_name(base));
        let file = files.open_to_read(&path);
        Self::opened(file, base, path)
    }

    fn opened(file: std::io::Result<Arc<dyn File>>, base: Position, path: PathBuf) -> Result<Self> {
        let opened = file.and_then(|file| file.len().map(|len| (file, len)));
        let (file, len) = opened.map_err(|error| Error::io("opening", &path, error))?;
        Ok(Self::new(base, path, file, len, len, len))
    }

    fn new(base: Position, path: PathBuf, file: Arc<dyn File>, capacity: u64, reserved: u64, zeroed: u64) -> Self {
        Self {
            base,
            path,
            file,
            capacity: AtomicU64::new(capacity),
            reserved: AtomicU64::new(reserved),
            zeroed: Mutex::new(zeroed),
            zeroed_hint: AtomicU64::new(zeroed),
            sealed: OnceLock::new(),
            entered_at: OnceLock::new(),
            left_at: OnceLock::new(),
            beside: Mutex::default(),
            is_unsynced: OnceLock::new(),
            write_bytes: AtomicU64::new(0),
        }
    }

    /// Notes where the log ended before.
    pub(crate) fn enter(&self, previous_end: Position) {
        let _ = self.entered_at.set(previous_end);
    }

    /// Where the log ended before; the first position when the header cannot say.
    pub(crate) fn entered_at(&self) -> Position {
        self.entered_at.get().copied().unwrap_or(self.base)
    }

    /// Notes that nothing is appended any more.
    pub(crate) fn leave(&self, end: Position) {
        let _ = self.left_at.set(end);
    }

    /// Up to where records lie, of those below `to`.
    pub(crate) fn records_end(&self, to: Position) -> Position {
        self.left_at.get().copied().unwrap_or(to).min(to)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Acquire)
    }

    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Release);
    }

    pub(crate) fn end(&self) -> Position {
        self.base.plus(self.capacity())
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Makes sure that writes below `offset` find disk space; takes `ahead` more while at it, if that is to be had.
    pub(crate) fn reserve(&self, offset: u64, ahead: u64) -> Result<()> {
        if offset <= self.reserved() {
            return Ok(());
        }
        let more = (offset + ahead).min(self.capacity()).max(offset);
        let to = match self.file.allocate(more) {
            Ok(()) => more,
            Err(_) if more > offset => {
                self.file.allocate(offset).map_err(|error| Error::io("growing", &self.path, error))?;
                offset
            }
            Err(error) => return Err(Error::io("growing", &self.path, error)),
        };
        self.reserved.fetch_max(to, Ordering::AcqRel);
        Ok(())
    }

    /// Writes `bytes` at `offset`. Called by one thread at a time.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let average = self.write_bytes.load(Ordering::Relaxed);
        let bytes_now = bytes.len() as u64;
        self.write_bytes.store(if average == 0 { bytes_now } else { (average * 7 + bytes_now) / 8 }, Ordering::Relaxed);
        if end > self.zeroed_hint.load(Ordering::Acquire) {
            self.overtake_zeros(end)?;
        }
        self.file.write_at(bytes, offset).map_err(|error| Error::io("writing", &self.path, error))
    }

    /// Before what reaches to `end` is written, which is behind the zeros.
    fn overtake_zeros(&self, end: u64) -> Result<()> {
        let mut zeroed = self.zeroed.lock().unwrap_or_else(PoisonError::into_inner);
        *zeroed = end.max(*zeroed);
        if self.wants_pages() && *zeroed == end {
            let to = round_up(end + OVERTAKEN_BYTES / 2, OVERTAKEN_BYTES);
            let to = self.reserved().min(self.capacity()).min(to).max(end);
            self.fill_with_zeros(end, to)?;
            *zeroed = to;
        }
        self.zeroed_hint.store(*zeroed, Ordering::Release);
        Ok(())
    }

    fn fill_with_zeros(&self, from: u64, to: u64) -> Result<()> {
        let zeros = ZEROS_TO_WRITE.get(..index(to - from)).expect("no more than a step at once");
        self.file.write_at(zeros, from).map_err(|error| Error::io("preparing", &self.path, error))
    }

    /// Whether much is written between two syncs, by a way that zeros make shorter.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.is_unsynced.get().is_some_and(|helps| *helps)
    }

    /// Whether what is written between two syncs goes that way: in writes that are small.
    pub(crate) fn wants_pages(&self) -> bool {
        self.is_unsynced() && self.write_bytes.load(Ordering::Relaxed) <= SMALL_WRITE_BYTES_MAX as u64
    }

    /// Much is written between two syncs. Returns [`Segment::wants_pages`].
    pub(crate) fn note_unsynced(&self) -> bool {
        self.is_unsynced.get_or_init(|| self.file.expect_small_writes());
        self.wants_pages()
    }

    /// Whether bytes below `offset` were neither written nor filled with zeros.
    pub(crate) fn needs_zeros(&self, offset: u64) -> bool {
        offset > self.zeroed_hint.load(Ordering::Acquire)
    }

    /// Takes disk space up to `to`, and `ahead` more if that is to be had, and fills it with zeros, a step at once so that a writer
    /// never waits long for them. True if it wrote.
    pub(crate) fn zero_ahead(&self, to: u64, ahead: u64) -> Result<bool> {
        let mut zeroed = self.zeroed.lock().unwrap_or_else(PoisonError::into_inner);
        // What comes behind the records, or is there by now, is the footer.
        let is_left = self.left_at.get().is_some();
        // A full disk is the business of the batch that needs the space.
        if is_left || self.reserve(to, ahead).is_err() {
            return Ok(false);
        }
        let from = *zeroed;
        let to = to.min(round_up(from + 1, ZERO_STEP_BYTES));
        if to <= from {
            return Ok(false);
        }
        self.fill_with_zeros(from, to)?;
        *zeroed = to;
        self.zeroed_hint.store(to, Ordering::Release);
        // A writer that overtakes the zeros waits for their writing, not for their sync.
        drop(zeroed);
        if self.is_unsynced() {
            // They are there for the first stores into their pages; syncs are rare.
            self.file.make_ready(from, to);
            return Ok(true);
        }
        // By a handle of their own: a failure that it hears of is told once more to whoever syncs what was acknowledged.
        let synced = self.handle(ZEROS).unwrap_or_else(|| Arc::clone(&self.file)).sync();
        synced.map_err(|error| Error::io("preparing", &self.path, error))?;
        Ok(true)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|error| Error::io("syncing", &self.path, error))
    }

    /// Nothing more is written to it: it needs no handles but its own.
    pub(crate) fn close_beside(&self) {
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    fn handle(&self, at: usize) -> Option<Arc<dyn File>> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner).get(at)?.clone()
    }

    /// Syncs by the handle of this lane. `None` where that is the segment's own, or there is none to have.
    pub(crate) fn sync_beside(&self, lane: usize) -> Option<Result<()>> {
        let file = self.handle(lane.checked_sub(1)?)?;
        Some(file.sync().map_err(|error| Error::io("syncing", &self.path, error)))
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(&*self.file, buffer, offset).map_err(|error| {
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                self.damaged(offset, buffer.len() as u64, "the file ends before")
            } else {
                Error::io("reading", &self.path, error)
            }
        })
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> Result<u64> {
        self.file.len().map_err(|error| Error::io("reading", &self.path, error))
    }

    /// All bytes of the file, or the first `to` of them.
    pub(crate) fn read_all(&self, to: Option<u64>) -> Result<Vec<u8>> {
        let len = self.len()?;
        let mut bytes = vec![0; index(to.map_or(len, |to| to.min(len)))];
        self.read(&mut bytes, 0)?;
        Ok(bytes)
    }

    pub(crate) fn read_start(&self) -> Result<Start> {
        let len = self.len()?;
        let mut bytes = vec![0; index(len.min(header_bytes(0)))];
        self.read(&mut bytes, 0)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Start::Blank);
        }
        // The second number of the header is its length; a header that does not fit the first block is read whole.
        let stated = bytes.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, |b| u64::from(u32::from_le_bytes(b)));
        if stated > bytes.len() as u64 && stated <= HEADER_BYTES_MAX.min(len) {
            bytes = self.read_all(Some(stated))?;
        }
        Ok(match SegmentHeader::decode(&bytes) {
            Some(Ok(header)) if header.base == self.base => Start::Header(header),
            Some(Err(version)) => {
                let reason = format!("it is of version {version}; this program reads version 1, use a newer one");
                return Err(Error::foreign(&self.path, reason));
            }
            _ => Start::Damaged,
        })
    }

    /// Finds out whether the segment is sealed.
    pub(crate) fn read_trailer(&self) -> Result<Option<Trailer>> {
        let len = self.file.len().map_err(|error| Error::io("reading", &self.path, error))?;
        let Some(at) = len.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
        let mut bytes = [0; TRAILER_BYTES];
        self.read(&mut bytes, at)?;
        let trailer = Trailer::decode(&bytes, len).filter(|trailer| trailer.base == self.base);
        if let Some(trailer) = trailer {
            let _ = self.sealed.set(trailer);
        }
        Ok(trailer)
    }

    pub(crate) fn trailer(&self) -> Option<&Trailer> {
        self.sealed.get()
    }

    /// The footer of a sealed segment; `None` if it is damaged or the segment open.
    pub(crate) fn read_footer(&self) -> Result<Option<Footer>> {
        let Some(trailer) = self.trailer() else { return Ok(None) };
        let mut bytes = vec![0; index(trailer.body_bytes())];
        self.read(&mut bytes, trailer.data_end)?;
        Ok(Footer::decode(&bytes, trailer))
    }

    /// Writes the bytes in `from..to` once more and syncs: see `recovery.rs`. Bytes beyond the file's end become zeros.
    pub(crate) fn rewrite(&self, from: u64, to: u64) -> Result<()> {
        let mut bytes = self.read_all(Some(to))?;
        bytes.resize(index(to), 0);
        let bytes = bytes.get(index(from)..).unwrap_or_default();
        let written = self.file.write_at(bytes, from).and_then(|()| self.file.sync());
        written.map_err(|error| Error::io("syncing", &self.path, error))
    }

    /// Writes the footer behind `data_end` and cuts the file there, durably. Everything before must be synced.
    pub(crate) fn seal(&self, footer: &Footer, data_end: u64, log_end: Position, segment_sum: u32) -> Result<()> {
        let _no_zeros = self.zeroed.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = footer.encode(self.base, data_end, log_end, segment_sum);
        let end = data_end + bytes.len() as u64;
        let seal = || {
            self.file.write_at(&bytes, data_end)?;
            self.file.set_len(end)?;
            self.file.sync()
        };
        seal().map_err(|error| Error::io("sealing", &self.path, error))?;
        self.reserved.store(end, Ordering::Release);
        match self.read_trailer()? {
            Some(_) => Ok(()),
            None => Err(self.damaged(data_end, bytes.len() as u64, "the footer was written and is not there")),
        }
    }

    pub(crate) fn damaged(&self, offset: u64, bytes: u64, reason: &'static str) -> Error {
        Error::Damaged { path: self.path.clone(), offset, bytes, reason }
    }
}
