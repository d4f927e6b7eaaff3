//! Replay equals live: the same journal prefix gives the same digest, whatever the ledgers had kept.
//!
//! May use: the store's public surface. Must not know: the model.

use holdfast::Store;

use crate::run::{Check, violation};

/// The digest of a store, as of everything it applied.
pub(crate) fn digest(store: &Store) -> Check<u128> {
    store.digest().map_err(|error| violation("replay", format!("digest: {error}")))
}

/// A store that was reopened without losing anything against what it was before.
pub(crate) fn check(store: &Store, before: u128) -> Check<()> {
    let after = digest(store)?;
    if after == before {
        return Ok(());
    }
    Err(violation("replay", format!("the digest was {before:032x} live and is {after:032x} replayed")))
}
