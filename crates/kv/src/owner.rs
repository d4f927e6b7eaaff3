//! Whose ledger it is.
//!
//! May use: `journal`. Must not know: what is in it.

use journal::PartitionId;

/// The partition of a store that a ledger is of. Folders change names and places; what is in a ledger says whose it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    /// Identity of the store.
    pub store: u128,
    /// The partition.
    pub partition: PartitionId,
}
