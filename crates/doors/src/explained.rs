//! How entries would be found, of all partitions together.
//!
//! May use: the facade. Must not know: protocols.

use std::collections::BTreeMap;

use holdfast::space::{Entries, Wanted};

/// By what entries are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    Id,
    Index(String),
    /// All entries of a partition are looked at.
    All,
}

/// Partitions in which entries are found in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) by: By,
    pub(crate) partitions: u64,
    /// Entries that are looked at: of long ranges at least so many.
    pub(crate) candidates: u64,
}

/// How entries would be found. Of one that is wanted by its id one is looked at wherever it may be.
pub(crate) fn explain(entries: &Entries, wanted: &Wanted, is_id: bool) -> holdfast::Result<Vec<Found>> {
    let mut indexes: BTreeMap<Option<String>, (u64, u64)> = BTreeMap::new();
    for plan in entries.explain(wanted)? {
        let (partitions, candidates) = indexes.entry(plan.index).or_default();
        *partitions += 1;
        *candidates += if is_id { 1 } else { plan.candidates };
    }
    let found = |(index, (partitions, candidates))| {
        let by = match index {
            _ if is_id => By::Id,
            Some(index) => By::Index(index),
            None => By::All,
        };
        Found { by, partitions, candidates }
    };
    Ok(indexes.into_iter().map(found).collect())
}
