//! `holdfast inspect --verify`: reads every record of the journal, and checks the ledger against what they say.
//!
//! The journal is replayed from its first record into ledgers in memory, which checks every record's checksum; the digest of
//! the outcome must be that of the stored ledgers. It takes memory for every key and small value of the store.
//!
//! May use: the facade, `inspect`. Must not know: file formats.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use holdfast::{Damage, DamageKind, Limits, MemoryLedgers, World};

use crate::failure::Failure;
use crate::inspect::open;

/// What reading everything found.
pub(crate) struct Verified {
    /// Every damaged range, those that were known included.
    pub(crate) damage: Vec<Damage>,
    pub(crate) ledger: LedgerState,
}

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
        matches!(self, Self::Agrees | Self::Unknown)
    }
}

impl fmt::Display for LedgerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agrees => f.write_str("the ledger agrees with it"),
            Self::Differs => f.write_str("the ledger differs from it: remove the folder `ledger` to have it rebuilt"),
            Self::Damaged(error) => {
                write!(f, "the ledger is damaged ({error}): remove the folder `ledger` to have it rebuilt")
            }
            Self::Unknown => f.write_str("the ledger cannot be checked, because records are damaged"),
        }
    }
}

/// Reads everything. `digest` is that of the stored ledgers.
pub(crate) fn verify(dir: &Path, digest: holdfast::Result<u128>) -> Result<Verified, Failure> {
    // Ledgers in memory need not be written out: there is nowhere to write them.
    let limits = Limits { ledger_memory_bytes: u64::MAX, ..Limits::default() };
    let world = World { ledgers: Arc::new(MemoryLedgers::new()), ..World::real(dir, &limits) };
    let store = open(dir, world, limits, "reading the journal")?;
    let damage = store.stats().damage;
    let ledger = match digest {
        Err(error) => LedgerState::Damaged(error.to_string()),
        Ok(_) if damage.iter().any(|one| costs_records(one.kind)) => LedgerState::Unknown,
        Ok(digest) if store.digest().map_err(Failure::Read)? == digest => LedgerState::Agrees,
        Ok(_) => LedgerState::Differs,
    };
    store.close().map_err(Failure::Close)?;
    Ok(Verified { damage, ledger })
}

/// Whether what the ledger should hold is not in the journal any more. What was never acknowledged is in neither.
fn costs_records(kind: DamageKind) -> bool {
    matches!(kind, DamageKind::Record | DamageKind::Missing)
}
