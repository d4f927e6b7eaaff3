//! A store as one side of an exchange.
//!
//! May use: the store, snapshots, `kv`. Must not know: the other side.

use std::ops::Bound;

use kv::{Clock, LeafSet, Page, Tree, TreeSize, object_hash};

use crate::error::{Error, ErrorKind, Result};
use crate::exchange::{Clocked, Peer};
use crate::kv::Shown;
use crate::partition::Partition;
use crate::store::Store;

/// Heads that are in memory at a time while the store is looked through.
const PAGE_ENTRIES: usize = 4096;

/// Every object of one instant, bucket by bucket, as durable as the store wants what is shown to be.
fn each_clock(store: &Store, mut visit: impl FnMut(&[u8], Vec<u8>, Clock)) -> Result<()> {
    let snapshot = store.snapshot()?;
    // A bucket that came after the snapshot is empty in it; one that went before the listing held nothing any more.
    for bucket in store.kv().buckets()?.value {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let start = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let page = Page { bucket: &bucket, start, end: Bound::Unbounded, limit: PAGE_ENTRIES, values: false };
            let out = snapshot.page(&page)?;
            last = out.entries.last().map(|(key, ..)| key.clone());
            out.entries.into_iter().for_each(|(key, head, _)| visit(&bucket, key, Clock::from(&head)));
            if !out.more {
                break;
            }
        }
    }
    store.settle(Shown { value: (), position: snapshot.position() })
}

/// The store's tree: the one that is kept if it is large enough, else one made now from all heads.
fn tree(store: &Store, size: TreeSize) -> Result<Tree> {
    let inner = store.inner();
    inner.check_open()?;
    let mut tree = Tree::new(size);
    if inner.options.tree.is_some_and(|kept| kept >= size) {
        let position = {
            let engines: Vec<_> = inner.partitions.iter().map(Partition::lock).collect();
            engines.iter().filter_map(|engine| engine.tree()).for_each(|share| tree.merge(share));
            inner.newest()
        };
        return store.settle(Shown { value: tree, position });
    }
    each_clock(store, |bucket, key, clock| tree.update(object_hash(bucket, &key), None, Some(clock.hash())))?;
    Ok(tree)
}

/// Compares what the store holds.
impl Peer for Store {
    fn root(&self, size: TreeSize) -> Result<Vec<u32>> {
        Ok(tree(self, size)?.root())
    }

    fn branches(&self, size: TreeSize, branches: &[u32]) -> Result<Vec<Vec<u32>>> {
        let no_such = || Error::new(ErrorKind::Invalid, format!("a tree has branches 0 to {}", size.width() - 1));
        tree(self, size)?.branches(branches).ok_or_else(no_such)
    }

    fn clocks(&self, leaves: &LeafSet) -> Result<Vec<Clocked>> {
        let mut clocks = Vec::new();
        each_clock(self, |bucket, key, clock| {
            if leaves.contains(object_hash(bucket, &key)) {
                clocks.push((bucket.to_vec(), key, clock));
            }
        })?;
        Ok(clocks)
    }
}
