//! The Merkle tree that is kept with every change is the one that the objects make.
//!
//! May use: the store's public surface. Must not know: the model.

use std::ops::ControlFlow;

use holdfast::{Fold, FoldOrder, Peer, Store, Tree, TreeSize, object_hash};

use crate::run::{Check, refused, violation};

/// Objects that expired are in the kept tree until they are removed, and in no snapshot: has them removed, which takes
/// as many steps as the limit of one asks for.
pub(crate) fn remove_expired(store: &Store) -> holdfast::Result<()> {
    loop {
        let before = store.stats().expired;
        store.step()?;
        if store.stats().expired == before {
            return Ok(());
        }
    }
}

/// The store's tree against one made from a fold, in sizes of which the larger or both may be kept.
pub(crate) fn check(store: &Store) -> Check<()> {
    let failed = |error: holdfast::Error| refused("tree", &error);
    for size in TreeSize::ALL.into_iter().take(2) {
        let mut made = Tree::new(size);
        let fold = Fold { order: FoldOrder::Partition, ..Fold::default() };
        let snapshot = store.snapshot().map_err(failed)?;
        let whole = snapshot.fold(&fold, &mut |folded| {
            made.update(object_hash(folded.bucket(), folded.key()), None, Some(folded.clock()?.hash()));
            Ok(ControlFlow::Continue(()))
        });
        whole.map_err(failed)?;
        let (root, made) = (store.root(size).map_err(failed)?, made.root());
        if root != made {
            return Err(violation("tree", format!("{} leaves: kept {root:?}, made {made:?}", size.leaves())));
        }
    }
    Ok(())
}
