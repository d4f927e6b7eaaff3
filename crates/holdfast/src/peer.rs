//! A store as one side of an exchange, and the tree that is kept for it: read, checked and made anew.
//!
//! May use: the store, snapshots, `kv`. Must not know: the other side.

use kv::{Clock, FoldRange, Item, LeafSet, Reader, Reading, Tree, TreeSize, object_hash};
use std::ops::ControlFlow;

use crate::error::{Error, ErrorKind, Result};
use crate::exchange::{Clocked, Peer};
use crate::fold::{Fold, FoldOrder};
use crate::kv::Shown;
use crate::partition::Partition;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// Most damaged objects that a check names.
const DAMAGED_MAX: usize = 1000;

/// Whether a check of the tree reads the values as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeValues {
    /// Heads only: what the ledger says.
    Trust,
    /// Each value is read, and compared with its checksum.
    Read,
}

/// What making the tree anew found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeCheck {
    /// Objects looked at.
    pub objects: u64,
    /// Bytes of values read.
    pub value_bytes: u64,
    /// Leaves that were not what the heads say, and are now.
    pub mended: u64,
    /// Bucket and key of objects whose value is missing or damaged, the first thousand.
    pub damaged: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Every object in a partition's view, also those that have expired and were not removed yet: the kept tree has them.
fn each_item(reader: &Reader, mut visit: impl FnMut(&Item<'_>) -> Result<()>) -> Result<()> {
    let mut items = reader.items(&FoldRange::all(None).bounds(Reading::Sweep), 0);
    while let Some(item) = items.step()? {
        visit(&item)?;
    }
    Ok(())
}

fn note(tree: &mut Tree, item: &Item<'_>) -> Result<()> {
    let (bucket, key) = item.name()?;
    if !kv::is_reserved(&bucket) {
        tree.update(object_hash(&bucket, key), None, Some(item.clock()?.hash()));
    }
    Ok(())
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
    let snapshot = store.snapshot()?;
    snapshot.readers.iter().try_for_each(|reader| each_item(reader, |item| note(&mut tree, item)))?;
    store.settle(Shown { value: tree, position: snapshot.position() })
}

impl Store {
    /// Makes the Merkle tree anew from every head, beside readers and writers, and mends the one that is kept where it
    /// differs. Damaged values are named and not mended: an exchange with another store knows nothing of them.
    ///
    /// # Errors
    /// `Invalid` when no tree is kept; `Corrupt` when the ledger is damaged.
    pub fn rebuild_tree(&self, values: TreeValues) -> Result<TreeCheck> {
        let Some(size) = self.inner().options.tree else {
            return Err(Error::new(ErrorKind::Invalid, "no tree is kept: see Options::tree"));
        };
        let mut check = TreeCheck::default();
        let share = |engine: &kv::Engine| engine.tree().cloned().unwrap_or(Tree::new(size));
        let (snapshot, kept) = Snapshot::take_noting(self, share)?;
        for ((partition, reader), kept) in self.inner().partitions.iter().zip(&snapshot.readers).zip(kept) {
            // By xor: what the kept tree and the heads have in common vanishes.
            let mut difference = kept;
            each_item(reader, |item| {
                check.objects += 1;
                if values == TreeValues::Read {
                    check_value(reader, item, &mut check)?;
                }
                note(&mut difference, item)
            })?;
            check.mended += difference.iter().count() as u64;
            if !difference.is_empty() {
                partition.lock().mend_tree(&difference);
            }
        }
        Ok(check)
    }
}

fn check_value(reader: &Reader, item: &Item<'_>, check: &mut TreeCheck) -> Result<()> {
    match reader.value_of(item) {
        Ok(value) => check.value_bytes += value.len() as u64,
        Err(kv::Error::Ledger { path, reason }) => return Err(kv::Error::Ledger { path, reason }.into()),
        Err(_) if check.damaged.len() < DAMAGED_MAX => {
            let (bucket, key) = item.name()?;
            check.damaged.push((bucket, key.to_vec()));
        }
        Err(_) => {}
    }
    Ok(())
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
        let mut clocks: Vec<(Vec<u8>, Vec<u8>, Clock)> = Vec::new();
        let snapshot = self.snapshot()?;
        let fold = Fold { leaves: Some(leaves), order: FoldOrder::Partition, ..Fold::default() };
        snapshot.fold(&fold, &mut |folded| {
            clocks.push((folded.bucket().to_vec(), folded.key().to_vec(), folded.clock()?));
            Ok(ControlFlow::Continue(()))
        })?;
        clocks.sort_unstable_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        self.settle(Shown { value: clocks, position: snapshot.position() })
    }
}
