//! A journal as a store opens it: default limits, 16 partitions, and a thread for its background work.
//!
//! May use: `journal`, `base`. Must not know: what is measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Clock, Limits, OsClock, OsFiles, Random, Signal, Worker};
use journal::{Batch, Journal, Options, PartitionId};

use crate::workload::Result;

/// As many as a store has unless told otherwise.
const PARTITIONS: u16 = 16;

/// An open journal and its background thread.
pub(super) struct Opened {
    pub(super) journal: Arc<Journal>,
    stopping: Arc<AtomicBool>,
    wake: Arc<Signal>,
    _upkeep: Worker,
}

impl Opened {
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(OsClock::new());
        let options = Options::new(1, PARTITIONS, &Limits::default());
        let wake = Arc::clone(&options.wake);
        let (journal, _) = Journal::open(Arc::new(OsFiles), Arc::clone(&clock), &dir.join("journal"), options)?;
        let journal = Arc::new(journal);
        let stopping = Arc::new(AtomicBool::new(false));
        let upkeep = {
            let (journal, stopping, wake) = (Arc::clone(&journal), Arc::clone(&stopping), Arc::clone(&wake));
            Worker::start("bench-upkeep", move || {
                while !stopping.load(Ordering::Acquire) {
                    // What fails here has poisoned the journal, and the writer that is measured hears of it.
                    let again = journal.step(clock.now()).ok().flatten();
                    match again.map(|at| at.since(clock.now())) {
                        Some(wait) if wait.is_zero() => {}
                        wait => {
                            wake.wait(wait);
                        }
                    }
                }
            })?
        };
        Ok(Self { journal, stopping, wake, _upkeep: upkeep })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.raise();
    }
}

/// Makes batches of one size, each for one partition, as a put makes them.
pub(super) struct Batches {
    bytes: Vec<u8>,
    batch: Batch,
    random: Random,
}

impl Batches {
    pub(super) fn new(bytes: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut noise = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        random.fill(&mut noise);
        Self { bytes: noise, batch: Batch::new(), random }
    }

    /// The next batch: making it, checksum of the commands included, is part of what is measured.
    pub(super) fn next(&mut self) -> &Batch {
        let partition = u16::try_from(self.random.below(u64::from(PARTITIONS))).unwrap_or(0);
        self.batch.clear(usize::MAX);
        let bytes = &self.bytes;
        self.batch.section(PartitionId::new(partition), |to| to.extend_from_slice(bytes));
        &self.batch
    }
}
