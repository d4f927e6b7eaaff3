//! What a sync costs without a journal: a write into a file whose space is taken and filled with zeros, and a sync that
//! has no metadata to write.
//!
//! May use: files. Must not know: the journal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use base::Random;

use crate::workload::{Recorder, Result};

/// Bytes of the prepared file; writes begin again at its start when they reach its end.
const FILE_BYTES: u64 = 16 << 20;

pub(super) struct Bare {
    file: File,
    block: Vec<u8>,
    offset: u64,
}

impl Bare {
    /// Prepares a file for writes of `block_bytes`.
    pub(super) fn new(path: &Path, block_bytes: usize) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, FILE_BYTES)?;
        let zeros = vec![0; 1 << 20];
        for offset in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        let mut block = vec![0; block_bytes];
        Random::new(1).fill(&mut block);
        Ok(Self { file, block, offset: 0 })
    }

    /// Writes one block behind the last and syncs, `times` over.
    pub(super) fn run(&mut self, times: u32, recorder: &mut Recorder) -> Result<()> {
        for _ in 0..times {
            if self.offset + self.block.len() as u64 > FILE_BYTES {
                self.offset = 0;
            }
            let before = Instant::now();
            self.file.write_all_at(&self.block, self.offset)?;
            self.file.sync_data()?;
            recorder.add(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
            self.offset += self.block.len() as u64;
        }
        Ok(())
    }
}
