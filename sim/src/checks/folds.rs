//! A fold comes to each object once, in its order, whatever the pages that it is cut into.
//!
//! May use: the model. Must not know: how runs are driven.

use std::ops::ControlFlow;

use holdfast::{Fold, FoldOrder, Snapshot};

use crate::checks::contents::difference;
use crate::model::{Contents, Name, Thing};
use crate::run::{Check, refused, violation};

pub(crate) const ORDERS: [FoldOrder; 3] = [FoldOrder::Key, FoldOrder::Write, FoldOrder::Partition];

/// Goes through the snapshot, `limit` objects at a time, which must show just these contents.
pub(crate) fn check(snapshot: &Snapshot, order: FoldOrder, limit: usize, expected: &Contents) -> Check<()> {
    let failed = |error: holdfast::Error| refused("folds", &error);
    let mut found = Contents::new();
    let mut names: Vec<Name> = Vec::new();
    let mut after = None;
    loop {
        let fold = Fold { order, limit, after: after.as_ref(), ..Fold::default() };
        let next = snapshot.fold(&fold, &mut |folded| {
            let name = (folded.bucket().to_vec(), folded.key().to_vec());
            let head = folded.head()?;
            let thing = Thing {
                version: head.version,
                value: folded.value()?.to_vec(),
                expires_ms: head.expires_ms,
                modified_ms: head.modified_ms,
                metadata: head.metadata.encoded().to_vec(),
                indexes: head.indexes,
            };
            names.push(name.clone());
            found.insert(name, thing);
            Ok(ControlFlow::Continue(()))
        });
        after = next.map_err(failed)?;
        if after.is_none() {
            break;
        }
    }
    if found != *expected || names.len() != expected.len() {
        let text = format!("{order:?} came to {} objects: {}", names.len(), difference(expected, &found));
        return Err(violation("folds", text));
    }
    if order == FoldOrder::Key && !names.is_sorted() {
        return Err(violation("folds", format!("out of order: {names:?}")));
    }
    Ok(())
}
