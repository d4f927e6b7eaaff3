//! Disk space kept back for what frees disk space: a file of zeros, `spare`, in the journal's folder.
//!
//! Letting go of a segment needs a stub first, moving what lives in it needs room at the end of the log, sealing needs a
//! footer, and opening a new segment. On a disk that is full of dead data all that was refused, and so it stayed full.
//! States of the file:
//!
//! * *There*: the disk has it. What clients append may take the rest of the disk, down to the last byte.
//! * *Missing*: it was removed because something that frees space found none, or there was no room to make it. Until it is
//!   made again nothing that clients append is given new space: what is left is for compaction, sealing and opening.
//!
//! It holds nothing, so losing or keeping it in a crash is the same to the log: opening takes what it finds, and makes it
//! where there is room.
//!
//! May use: `base`. Must not know: segments, who needs space.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use base::{Files, remove_if_there};

const SPARE_FILE: &str = "spare";

/// The spare space of one journal.
pub(crate) struct Spare {
    files: Arc<dyn Files>,
    dir: PathBuf,
    path: PathBuf,
    bytes: u64,
    /// Read while clients' batches get space: giving waits for those that found the spare there, which would take it.
    state: RwLock<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) is_there: bool,
    /// How many work in its place just now.
    given: usize,
}

/// While it lives, the spare's space is for whoever has it.
pub(crate) struct Given(Arc<Spare>);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.state.write().unwrap_or_else(PoisonError::into_inner).given -= 1;
        self.0.make();
    }
}

impl Spare {
    /// Looks what there is in `dir`; makes nothing.
    pub(crate) fn find(files: &Arc<dyn Files>, dir: &Path, bytes: u64) -> Arc<Self> {
        let path = dir.join(SPARE_FILE);
        // The space of a file that was copied here may never have been taken.
        let is_there = files.open(&path).is_ok_and(|file| file.allocate(bytes).is_ok());
        if !is_there {
            let _ = remove_if_there(&**files, &path);
        }
        let state = RwLock::new(State { is_there, given: 0 });
        Arc::new(Self { files: Arc::clone(files), dir: dir.to_owned(), path, bytes, state })
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are free beside it, as far as the system tells.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.files.free_bytes(&self.dir).ok()
    }

    /// Whether as much is free, beside it.
    pub(crate) fn has_room(&self) -> bool {
        self.free_bytes().is_some_and(|free| free >= self.bytes)
    }

    /// Whether `bytes` more may be moved in its place: the last part is for stubs and footers, which end the work.
    pub(crate) fn leaves_room(&self, bytes: u64) -> bool {
        self.free_bytes().is_some_and(|free| free >= bytes + self.bytes / 4)
    }

    /// Makes it, durably, if it is missing, there is room, and nobody was given its space.
    pub(crate) fn make(&self) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.is_there || state.given > 0 || !self.has_room() {
            return;
        }
        let make = || {
            remove_if_there(&*self.files, &self.path)?;
            let file = self.files.create(&self.path)?;
            file.allocate(self.bytes)?;
            file.sync()?;
            self.files.sync_dir(&self.dir)
        };
        state.is_there = make().is_ok();
        if !state.is_there {
            let _ = self.files.remove(&self.path);
        }
    }

    /// Gives its space to whoever frees more.
    pub(crate) fn give(self: &Arc<Self>) -> Given {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.given += 1;
        if std::mem::take(&mut state.is_there) {
            // Synced because some file systems give out space again only when its removal is durable.
            let _ = self.files.remove(&self.path).and_then(|()| self.files.sync_dir(&self.dir));
        }
        Given(Arc::clone(self))
    }

    /// Whether it is there, after an attempt at making it; that stays so while the guard lives.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        let read = || self.state.read().unwrap_or_else(PoisonError::into_inner);
        let state = read();
        if state.is_there {
            return state;
        }
        drop(state);
        self.make();
        read()
    }
}
