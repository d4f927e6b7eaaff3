//! Letting go of sealed segments whose content is not needed any more, or was appended again.
//!
//! The oldest segments are simply removed ([`crate::Log::trim`]), when it is noted durably that the journal begins behind them (`begin.rs`). One in the middle is replaced by a *stub*: its header and
//! a footer without records, which still says where the log went on and where each partition's chain stood. So a
//! segment that is missing is told from one that was let go. The stub is written beside and renamed over the segment,
//! durably: after a crash there is the one or the other, whole. On a full disk the stub takes
//! the place of the spare (`spare.rs`). Who reads the old file reads on, from the open file.
//!
//! May use: all of this crate. Must not know: engines, what is needed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use base::{crc32c, write_new_file};

use crate::begin;
use crate::commit::lock;
use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::header::header_bytes;
use crate::journal::Journal;
use crate::log::Visit;
use crate::position::Position;
use crate::read::read_segment;
use crate::segment::Segment;

impl Segment {
    /// Whether it is sealed and has no records: they were let go, or there never were any.
    pub(crate) fn is_stub(&self) -> bool {
        self.trailer().is_some_and(|trailer| {
            let start = header_bytes(usize::try_from(trailer.partitions).unwrap_or_default());
            trailer.data_end == start
        })
    }

    /// Whether it had records, which were let go.
    pub(crate) fn is_let_go(&self) -> bool {
        self.trailer().is_some_and(|trailer| self.is_stub() && trailer.log_end > self.base.plus(trailer.data_end))
    }
}

impl Journal {
    /// The lowest position from which on all batches are here: where the log went on behind what was let go last.
    #[must_use]
    pub fn floor(&self) -> Position {
        self.let_go_last().unwrap_or_else(|| {
            // What was removed, if anything, lay before the first.
            let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
            segments.values().next().map(|first| first.entered_at()).unwrap_or_default()
        })
    }

    /// The position before which batches were let go of: those behind it that are not here are missing. At most
    /// [`Journal::floor`].
    #[must_use]
    pub fn let_go_before(&self) -> Position {
        let begin = self.begin();
        self.let_go_last().map_or(begin, |behind| behind.max(begin)).min(self.floor())
    }

    /// Where the journal is noted to begin.
    #[must_use]
    pub fn begin(&self) -> Position {
        Position::new(self.begin.load(Ordering::Acquire))
    }

    /// Where segments are missing first, of those that lie behind where the journal begins.
    #[must_use]
    pub fn missing_from(&self) -> Option<Position> {
        let begin = self.begin();
        let damage = lock(&self.damage);
        let missing = damage.damage.iter().filter(|damage| damage.is_missing_behind(begin));
        missing.map(|damage| damage.position).min()
    }

    /// Whether the segment at `base` was let go of: it is a stub, or gone from before where the journal begins. Not so one that is missing.
    #[must_use]
    pub fn has_let_go(&self, base: Position) -> bool {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&base).map_or(base < self.begin(), |segment| segment.is_stub())
    }

    /// Where the log went on behind the last segment that was let go of and is a stub.
    fn let_go_last(&self) -> Option<Position> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let mut let_go = segments.values().rev().filter(|segment| segment.is_let_go());
        let_go.find_map(|segment| segment.trailer()).map(|trailer| trailer.log_end)
    }

    /// Notes durably that the journal begins at `begin`.
    pub(crate) fn note_begin(&self, begin: Position) -> Result<()> {
        begin::write(&*self.files, &self.dir, self.options.store, begin)?;
        self.begin.store(begin.get(), Ordering::Release);
        Ok(())
    }

    /// Calls `visit` for the batches at or behind `from` in the segment at `base`, in order, with damaged ranges where
    /// they lie. Nothing when there is no such segment. Batches for which `wants`, asked where one begins and ends, is false need
    /// not be read, and are then not checked either.
    ///
    /// # Errors
    /// What reading meets, and the first error of `visit`, which ends the reading.
    pub fn read_segment(
        &self,
        base: Position,
        from: Position,
        wants: &dyn Fn(Position, Position) -> bool,
        visit: &mut dyn FnMut(Visit<'_>) -> Result<()>,
    ) -> Result<()> {
        let segment = {
            let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
            segments.get(&base).cloned()
        };
        match segment {
            Some(segment) => read_segment(self, &segment, (from, Position::MAX), wants, visit),
            None => Ok(()),
        }
    }

    /// Replaces the sealed segment at `base` by a stub: its records are gone, and its disk space is free. False when that
    /// cannot be now, because it is open or somebody holds its file; true when it is a stub already.
    ///
    /// Everything in it that is still needed must have been appended again, and be on stable storage.
    ///
    /// # Errors
    /// `DiskFull`; `Io`. The segment is then what it was.
    pub fn let_go(&self, base: Position) -> Result<bool> {
        let Some(_none_holds) = self.letting_go() else { return Ok(false) };
        let segment = {
            let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
            segments.get(&base).cloned()
        };
        let Some(segment) = segment else { return Ok(true) };
        let Some(trailer) = segment.trailer().copied() else { return Ok(false) };
        if segment.is_stub() {
            return Ok(true);
        }
        let Some(Footer { states, .. }) = segment.read_footer()? else {
            return Err(segment.damaged(trailer.data_end, trailer.body_bytes(), "segment footer checksum mismatch"));
        };
        let start = header_bytes(states.len());
        let mut bytes = segment.read_all(Some(start))?;
        let sum = crc32c(&bytes);
        let footer = Footer { extents: Vec::new(), states };
        bytes.extend_from_slice(&footer.encode(base, start, trailer.log_end, sum));
        let replace = || {
            write_new_file(&*self.files, &segment.path, &bytes)
                .map_err(|error| Error::io("replacing", &segment.path, error))
        };
        match replace() {
            Err(Error::DiskFull { .. }) => self.with_spare(replace)?,
            replaced => replaced?,
        }
        let stub = Segment::open(&*self.files, &self.dir, base)?;
        stub.set_capacity(segment.capacity());
        stub.enter(segment.entered_at());
        stub.read_trailer()?;
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.insert(base, Arc::new(stub));
        drop(segments);
        // Its space comes back with the last handle.
        drop(segment);
        self.spare.make();
        Ok(true)
    }
}
