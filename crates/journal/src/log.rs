//! What the rest of Holdfast needs of a log, and what a log needs of those who follow it.
//!
//! May use: nothing. Must not know: segments.

use std::time::Duration;

use crate::batch::{Appended, Batch};
use crate::chain::PartitionState;
use crate::damage::Damage;
use crate::error::Result;
use crate::position::{PartitionId, Position};

/// How durable a position has to be before a wait for it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Given to the operating system: survives the process.
    Written,
    /// As `Written`, and a sync will start within the window.
    Window(Window),
    /// On stable storage: survives a power cut.
    Synced,
}

/// Bounds for a sync that nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The sync starts at least this long after the one before started. Not above `max`.
    pub min: Duration,
    /// The sync starts at most this long after the oldest batch that it covers was acknowledged.
    pub max: Duration,
}

/// How far the log got. Each is the position before which everything has that state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermarks {
    /// Has a position.
    pub appended: Position,
    /// Given to the operating system.
    pub written: Position,
    /// On stable storage.
    pub synced: Position,
}

/// A batch read back.
#[derive(Debug)]
pub struct Record<'a> {
    /// Its position.
    pub position: Position,
    /// Behind its last byte: where the next batch begins, if that is in the same segment.
    pub end: Position,
    /// Its sections, in the order in which they were added.
    pub sections: Vec<RecordSection<'a>>,
}

/// One partition's part of a batch read back.
#[derive(Debug)]
pub struct RecordSection<'a> {
    /// Whose.
    pub partition: PartitionId,
    /// Place in the partition's own log, and its chain value.
    pub state: PartitionState,
    /// The commands.
    pub commands: &'a [u8],
    /// Address of the first byte of `commands`, for [`Log::read_at`].
    pub at: u64,
}

/// What [`Log::read_from`] comes across.
#[derive(Debug)]
pub enum Visit<'a> {
    /// The next batch.
    Record(Record<'a>),
    /// Bytes where a batch was and cannot be read any more.
    Damaged(&'a Damage),
}

/// An ordered, durable log of batches.
///
/// Batches are found again in the order of their positions, whole or not at all.
pub trait Log: Send + Sync {
    /// Gives `batch` the next position. Does not wait for durability.
    ///
    /// # Errors
    /// `DiskFull` and `BatchSize` change nothing. `Poisoned` after an earlier failed write or sync, until reopened.
    fn append(&self, batch: &Batch) -> Result<Appended>;

    /// Blocks until the batch at `position` is as durable as asked. The caller may be made to do the writing or syncing
    /// for everybody who waits.
    ///
    /// # Errors
    /// The failure of the write or sync. What was durable before still is.
    fn wait(&self, position: Position, level: Level) -> Result<()>;

    /// How far the log got.
    fn watermarks(&self) -> Watermarks;

    /// Calls `visit` for every batch at or behind `from`, in order, with damaged ranges where they lie.
    ///
    /// # Errors
    /// What reading meets, and the first error of `visit`, which ends the reading.
    fn read_from(&self, from: Position, visit: &mut dyn FnMut(Visit<'_>) -> Result<()>) -> Result<()>;

    /// Fills `buffer` from address `at`, which must be inside one batch. Says nothing about the bytes' integrity.
    ///
    /// # Errors
    /// `Missing` when the address is not in the log any more; `Damaged` when the file ends before.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()>;

    /// Whoever read bytes from `at` on found that they are not what was written: they are shown as damage from now on.
    fn note_damage(&self, at: u64, bytes: u64, reason: &'static str);

    /// Removes what lies wholly below `lowest`, which no reader needs any more. Does nothing, and is to be called again
    /// later, while somebody holds the files.
    ///
    /// # Errors
    /// What removing files meets.
    fn trim(&self, lowest: Position) -> Result<()>;
}

/// Something that a log's commands change, in the same way each time.
pub trait StateMachine {
    /// Why a command could not be applied.
    type Error;

    /// Applies the commands of one section at `position`, whose first byte lies at address `at`.
    ///
    /// # Errors
    /// Commands that do not decode; nothing of the section was applied.
    fn apply(&mut self, position: Position, at: u64, commands: &[u8]) -> std::result::Result<(), Self::Error>;

    /// The lowest position that must stay in the log for this machine; `None` when it needs nothing.
    fn needs(&self) -> Option<Position>;

    /// A hash of the whole state: the same prefix of the log gives the same digest, live or replayed.
    ///
    /// # Errors
    /// What reading the state meets.
    fn digest(&self) -> std::result::Result<u128, Self::Error>;
}
