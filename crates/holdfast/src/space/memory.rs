//! What queries of spaces hold of memory, all together: those that are kept while their client waits, listens or goes through entries,
//! and what others gather while they are answered.
//!
//! May use: limits. Must not know: operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};

/// The memory of all queries of a store.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    bytes_max: u64,
    held: AtomicU64,
    /// Of that by queries that are kept: no more than half, so that whoever waits keeps nobody from being answered.
    kept: AtomicU64,
}

/// Memory that a query counts as; dropping it gives it back.
#[derive(Debug)]
pub struct Held {
    memory: Arc<QueryMemory>,
    bytes: u64,
    of: Of,
}

/// What holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Kept,
    Running,
}

/// What is taken at a time by who gathers, so that it costs nothing for each entry.
const STEP_BYTES: u64 = 64 << 10;

fn take(counter: &AtomicU64, bytes: u64, most: u64) -> std::result::Result<(), u64> {
    let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
    counter.fetch_update(Relaxed, Relaxed, more).map(|_| ())
}

impl QueryMemory {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, held: AtomicU64::new(0), kept: AtomicU64::new(0) })
    }

    /// Room for a query that is kept.
    ///
    /// # Errors
    /// `Limit`.
    pub(crate) fn keep(self: &Arc<Self>, bytes: u64) -> Result<Held> {
        let most = self.bytes_max / 2;
        let refused = |held: u64| {
            let text = format!(
                "a query of {bytes} bytes cannot be kept: of {most} bytes (half of space.query_memory_bytes) {held} are held by those \
                 that wait, listen or iterate: make it smaller, ask again later, or raise the limit"
            );
            Error::new(ErrorKind::Limit, text)
        };
        take(&self.kept, bytes, most).map_err(refused)?;
        let mut held = Held { memory: Arc::clone(self), bytes: 0, of: Of::Kept };
        if let Err(error) = held.take(bytes) {
            self.kept.fetch_sub(bytes, Relaxed);
            return Err(error);
        }
        Ok(held)
    }

    /// Room for what a query gathers while it is answered; none yet.
    pub(crate) fn run(self: &Arc<Self>) -> Held {
        Held { memory: Arc::clone(self), bytes: 0, of: Of::Running }
    }

    /// How many bytes are held.
    #[cfg(test)]
    fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

impl Held {
    /// Says that it is at least so many bytes now.
    ///
    /// # Errors
    /// `Limit` when there are not so many; what was held before still is.
    pub(crate) fn reach(&mut self, bytes: u64) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            None | Some(0) => Ok(()),
            Some(more) => self.take(more.max(STEP_BYTES)).or_else(|_| self.take(more)),
        }
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let limit = self.memory.bytes_max;
        take(&self.memory.held, bytes, limit).map_err(|held| {
            let text = format!(
                "the query would need {bytes} bytes more, and of {limit} bytes that queries of spaces may hold together \
                 (space.query_memory_bytes) {held} are held: ask for less, ask again later, or raise the limit"
            );
            Error::new(ErrorKind::Limit, text)
        })?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Relaxed);
        if self.of == Of::Kept {
            self.memory.kept.fetch_sub(self.bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_half_and_all_of_it_comes_back() {
        let memory = QueryMemory::new(1000);
        let kept = memory.keep(400).unwrap();
        assert_eq!(memory.keep(101).unwrap_err().kind(), ErrorKind::Limit);
        let more = memory.keep(100).unwrap();
        let mut running = memory.run();
        assert!(running.reach(500).is_ok() && running.reach(10).is_ok());
        let error = running.reach(501).unwrap_err();
        assert!(error.kind() == ErrorKind::Limit && error.to_string().contains("space.query_memory_bytes"), "{error}");
        drop(more);
        assert!(running.reach(600).is_ok());
        let error = memory.keep(10).unwrap_err().to_string();
        assert!(error.contains("10 bytes more"), "{error}");
        drop((running, kept));
        assert_eq!((memory.held(), memory.kept.load(Relaxed)), (0, 0));
    }
}
