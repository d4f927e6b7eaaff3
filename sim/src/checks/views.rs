//! A snapshot shows one instant for as long as it is held, whatever is written, written out and merged meanwhile.
//!
//! May use: the model. Must not know: how runs are driven.

use std::collections::BTreeSet;
use std::ops::Bound;

use holdfast::{FoldOrder, Page, Snapshot};

use crate::checks::{folds, indexes};
use crate::model::Contents;
use crate::run::{Check, Violation, refused, violation};

/// A snapshot and what it must show.
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    pub(crate) contents: Contents,
}

/// Reads the snapshot again.
pub(crate) fn check(view: &View) -> Check<()> {
    let failed = |error: holdfast::Error| refused("views", &error);
    let buckets: BTreeSet<&Vec<u8>> = view.contents.keys().map(|(bucket, _)| bucket).collect();
    for bucket in buckets {
        let page = Page { bucket, start: Bound::Unbounded, end: Bound::Unbounded, limit: 1000, values: true };
        let found = view.snapshot.page(&page).map_err(failed)?;
        let found = found.entries.iter().map(|(key, head, value)| (key, head.version, value.as_deref()));
        let wanted = view.contents.iter().filter(|((b, _), _)| b == bucket);
        let wanted = wanted.map(|((_, key), thing)| (key, thing.version, Some(thing.value.as_slice())));
        if !found.eq(wanted) {
            return Err(violation("views", format!("bucket {bucket:?} changed at {}", view.snapshot.position())));
        }
    }
    // The order that reads the journal, which compaction changes beneath.
    folds::check(&view.snapshot, FoldOrder::Write, 50, &view.contents).map_err(of_views)?;
    indexes::check_snapshot(&view.snapshot, &view.contents).map_err(of_views)
}

fn of_views(found: Violation) -> Violation {
    Violation { check: "views", ..found }
}
