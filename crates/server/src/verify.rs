//! `holdfast inspect --ledger`: checks the ledger against what the records of the journal say. The server must not be running:
//! this opens the store as a start does, which cuts an unfinished end, seals the last segment and lets the ledger catch up.
//!
//! The journal is replayed from its first record into ledgers in memory, which checks every record's checksum; the digest of
//! the outcome must be that of the stored ledgers. It takes memory for every key and small value of the store.
//!
//! May use: the facade, `inspect`. Must not know: file formats.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use holdfast::{DamageKind, Limits, MemoryLedgers, World};

use crate::failure::Failure;
use crate::inspect::open;

/// Whether the stored ledger says what the journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LedgerState {
    Agrees,
    /// Removing the folder `ledger` makes the next start rebuild it.
    Differs,
    /// It cannot be read.
    Damaged(String),
    /// Damaged records leave nothing to compare with.
    Unknown,
}

impl LedgerState {
    pub(crate) fn is_sound(&self) -> bool {
        matches!(self, Self::Agrees)
    }
}

impl fmt::Display for LedgerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agrees => f.write_str("agrees with the journal"),
            Self::Differs => f.write_str("differs from the journal: remove the folder `ledger` to have it rebuilt"),
            Self::Damaged(error) => {
                write!(f, "is damaged ({error}): remove the folder `ledger` to have it rebuilt")
            }
            Self::Unknown => f.write_str("cannot be checked, because records are damaged: --verify shows them"),
        }
    }
}

/// Compares what the ledgers of the store in `dir` say with what its journal says. Opens the store.
pub(crate) fn verify_ledger(dir: &Path) -> Result<LedgerState, Failure> {
    let limits = Limits::default();
    let store = open(dir, World::real(dir, &limits), limits, "replaying the journal")?;
    let stored = store.digest();
    store.close().map_err(Failure::Close)?;
    // Only now the directory may be opened again.
    drop(store);
    // Ledgers in memory need not be written out: there is nowhere to write them.
    let limits = Limits { ledger_memory_bytes: u64::MAX, ..Limits::default() };
    let world = World { ledgers: Arc::new(MemoryLedgers::new()), ..World::real(dir, &limits) };
    let store = open(dir, world, limits, "reading the journal")?;
    let state = match stored {
        Err(error) => LedgerState::Damaged(error.to_string()),
        Ok(_) if store.stats().damage.iter().any(|one| costs_records(one.kind)) => LedgerState::Unknown,
        Ok(stored) if store.digest().map_err(Failure::Read)? == stored => LedgerState::Agrees,
        Ok(_) => LedgerState::Differs,
    };
    store.close().map_err(Failure::Close)?;
    Ok(state)
}

/// Whether what the ledger should hold is not in the journal any more. What was never acknowledged is in neither.
fn costs_records(kind: DamageKind) -> bool {
    matches!(kind, DamageKind::Record | DamageKind::Missing)
}
