//! The hash chain of a partition: each section names its place in the partition's own log and proves its past.
//!
//! chain = xxh3-128( previous chain 16 | xxh3-128 of the commands 16 | partition 2 | epoch 8 | index 8 ), little-endian.
//!
//! Index counts a partition's sections from 1 without a gap. Epoch is 1 on a single machine; a replicated log raises
//! it with each new primary. The digest of the commands is taken before the journal's lock, the chain under it.
//!
//! May use: `base`. Must not know: files.

use base::hash128;

use crate::bytes::Reader;
use crate::position::PartitionId;

/// Bytes of an encoded [`PartitionState`].
pub(crate) const STATE_BYTES: usize = 32;

/// Where one partition's own log stands: what the next section must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionState {
    /// The current primary's number; 1 on a single machine.
    pub epoch: u64,
    /// How many sections there were.
    pub index: u64,
    /// The chain value of the last section.
    pub chain: u128,
}

impl PartitionState {
    pub(crate) const START: Self = Self { epoch: 1, index: 0, chain: 0 };

    /// The state after a section whose commands have `digest`.
    pub(crate) fn next(self, partition: PartitionId, digest: u128) -> Self {
        let index = self.index + 1;
        let mut input = [0; 50];
        let mut rest = input.as_mut_slice();
        let mut put = |bytes: &[u8]| {
            let (to, behind) = std::mem::take(&mut rest).split_at_mut(bytes.len());
            to.copy_from_slice(bytes);
            rest = behind;
        };
        put(&self.chain.to_le_bytes());
        put(&digest.to_le_bytes());
        put(&partition.get().to_le_bytes());
        put(&self.epoch.to_le_bytes());
        put(&index.to_le_bytes());
        Self { epoch: self.epoch, index, chain: hash128(&input) }
    }

    pub(crate) fn encode(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.epoch.to_le_bytes());
        to.extend_from_slice(&self.index.to_le_bytes());
        to.extend_from_slice(&self.chain.to_le_bytes());
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self { epoch: from.u64()?, index: from.u64()?, chain: from.u128()? })
    }
}
