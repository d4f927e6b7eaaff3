//! An exchange: two stores compare what they hold, at a cost that follows their differences and not their size.
//!
//! The trees of both are compared from the root down (see `kv/src/tree.rs`), then the clocks of the objects under the
//! leaves that differ. Stores change meanwhile, and one may lag behind the other for a moment, so each step asks twice,
//! with a pause between, and goes on with what differed both times; what differs once is a race and not a difference.
//! What differs because it is written again and again may be missed by one exchange, and is found by a later one.
//!
//! Nothing is changed: what to do about a difference is the caller's.
//!
//! May use: `kv`. Must not know: where peers are, repair, time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use kv::{Clock, LeafSet, TreeSize, object_hash};

use crate::error::{Error, ErrorKind, Result};

/// Bucket, key and clock of an object.
pub type Clocked = (Vec<u8>, Vec<u8>, Clock);

/// The clocks here and there by bucket and key.
type Differing = BTreeMap<(Vec<u8>, Vec<u8>), (Option<Clock>, Option<Clock>)>;

/// One side of an exchange: a [`crate::Store`] here, or something that speaks for one elsewhere.
///
/// Answers may be of different moments.
pub trait Peer {
    /// The root of the tree of all objects with so many leaves: `size.width()` hashes.
    ///
    /// # Errors
    /// What keeps the peer from answering; the exchange ends with it.
    fn root(&self, size: TreeSize) -> Result<Vec<u32>>;

    /// The hashes of the leaves of these branches of that tree, in the order asked: `size.width()` for each.
    ///
    /// # Errors
    /// As [`Peer::root`].
    fn branches(&self, size: TreeSize, branches: &[u32]) -> Result<Vec<Vec<u32>>>;

    /// Every object under these leaves, expired ones left out, in any order.
    ///
    /// # Errors
    /// As [`Peer::root`].
    fn clocks(&self, leaves: &LeafSet) -> Result<Vec<Clocked>>;
}

/// Two peers that are to be compared, and how.
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    /// This side.
    pub here: &'a dyn Peer,
    /// The other side.
    pub there: &'a dyn Peer,
    /// Size of the trees to compare: the more objects the larger. Both peers must offer it.
    pub size: TreeSize,
    /// Most leaves whose objects one round compares, at least one: bounds memory and the size of an answer.
    pub leaves_max: usize,
    /// Called before anything is asked a second time: waits until what is on its way has arrived, if the caller knows how.
    pub pause: &'a dyn Fn(),
}

/// An exchange whose trees were compared: what is left are the objects under the leaves that differ.
pub struct Rounds<'a> {
    exchange: Exchange<'a>,
    /// Leaves to compare yet, descending.
    leaves: Vec<u32>,
}

/// An object that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Bucket.
    pub bucket: Vec<u8>,
    /// Key within the bucket.
    pub key: Vec<u8>,
    /// What is here; `None` when absent.
    pub here: Option<Clock>,
    /// What is there; `None` when absent.
    pub there: Option<Clock>,
}

/// How the two sides of an object differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// It is absent there: new here, or removed there.
    OnlyHere,
    /// It is absent here: new there, or removed here.
    OnlyThere,
    /// It was modified later here.
    NewerHere,
    /// It was modified later there.
    NewerThere,
    /// Both were modified in the same millisecond, and differ.
    SameTime,
}

/// A side of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This side.
    Here,
    /// The other side.
    There,
}

impl Difference {
    /// How the two sides differ.
    #[must_use]
    pub fn kind(&self) -> DifferenceKind {
        let (here, there) = match (&self.here, &self.there) {
            (Some(here), Some(there)) => (here, there),
            (_, None) => return DifferenceKind::OnlyHere,
            (None, _) => return DifferenceKind::OnlyThere,
        };
        match here.modified_ms.cmp(&there.modified_ms) {
            Ordering::Greater => DifferenceKind::NewerHere,
            Ordering::Less => DifferenceKind::NewerThere,
            Ordering::Equal => DifferenceKind::SameTime,
        }
    }

    /// The side whose object is to be kept: the only one, or the newer by [`Clock::newer`]. Both sides come to the same.
    /// Whether an absent object was removed or never there nobody can tell, so this never keeps an absence.
    #[must_use]
    pub fn keep(&self) -> Side {
        let here = match (&self.here, &self.there) {
            (Some(here), Some(there)) => here.newer(there) == Ordering::Greater,
            (here, _) => here.is_some(),
        };
        if here { Side::Here } else { Side::There }
    }
}

impl<'a> Exchange<'a> {
    /// Compares the trees: nothing but two roots when they are the same.
    ///
    /// # Errors
    /// What a peer says; `Internal` when it answers something else than was asked.
    pub fn begin(self) -> Result<Rounds<'a>> {
        let mut branches = self.differing_branches()?;
        if !branches.is_empty() {
            (self.pause)();
            let again = self.differing_branches()?;
            branches.retain(|branch| again.contains(branch));
        }
        let mut leaves = self.differing_leaves(&branches)?;
        if !leaves.is_empty() {
            (self.pause)();
            let width = self.size.width();
            let branches: BTreeSet<u32> = leaves.iter().map(|leaf| leaf / width).collect();
            let again = self.differing_leaves(&branches)?;
            leaves.retain(|leaf| again.contains(leaf));
        }
        Ok(Rounds { exchange: self, leaves: leaves.into_iter().rev().collect() })
    }

    fn differing_branches(&self) -> Result<BTreeSet<u32>> {
        let root = |peer: &dyn Peer| sized(peer.root(self.size)?, self.size);
        Ok(differing(&root(self.here)?, &root(self.there)?).collect())
    }

    fn differing_leaves(&self, branches: &BTreeSet<u32>) -> Result<BTreeSet<u32>> {
        if branches.is_empty() {
            return Ok(BTreeSet::new());
        }
        let ids: Vec<u32> = branches.iter().copied().collect();
        let ask = |peer: &dyn Peer| -> Result<Vec<Vec<u32>>> {
            let answer = peer.branches(self.size, &ids)?;
            if answer.len() != ids.len() {
                return Err(answered(format!("{} branches instead of {}", answer.len(), ids.len())));
            }
            answer.into_iter().map(|leaves| sized(leaves, self.size)).collect()
        };
        let (here, there) = (ask(self.here)?, ask(self.there)?);
        let width = self.size.width();
        let pairs = ids.iter().zip(here.iter().zip(&there));
        let leaves = pairs.flat_map(|(id, (here, there))| differing(here, there).map(move |leaf| id * width + leaf));
        Ok(leaves.collect())
    }

    /// What differs under these leaves.
    fn differing_objects(&self, leaves: &LeafSet) -> Result<Differing> {
        let mut both = Differing::new();
        for (bucket, key, clock) in asked(self.here.clocks(leaves)?, leaves)? {
            both.entry((bucket, key)).or_default().0 = Some(clock);
        }
        for (bucket, key, clock) in asked(self.there.clocks(leaves)?, leaves)? {
            both.entry((bucket, key)).or_default().1 = Some(clock);
        }
        both.retain(|_, (here, there)| here != there);
        Ok(both)
    }
}

impl Rounds<'_> {
    /// How many leaves are not compared yet.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// Compares the objects under the next leaves, up to `leaves_max`: the differences by bucket and key, or `None` when
    /// there are no more leaves. A round may find nothing though its leaves differ: an expired object that only one side
    /// has removed is none.
    ///
    /// # Errors
    /// What a peer says; `Internal` when it answers something else than was asked. The next call tries the same again.
    pub fn step(&mut self) -> Result<Option<Vec<Difference>>> {
        let exchange = &self.exchange;
        let left = self.leaves.len().saturating_sub(exchange.leaves_max.max(1));
        let round = self.leaves.get(left..).unwrap_or_default();
        if round.is_empty() {
            return Ok(None);
        }
        let set = |leaves: &[u32]| LeafSet::new(exchange.size, leaves.iter().copied());
        let leaves = set(round).expect("differing leaves are leaves of the tree");
        let mut found = exchange.differing_objects(&leaves)?;
        if !found.is_empty() {
            (exchange.pause)();
            let leaf = |(bucket, key): &(Vec<u8>, Vec<u8>)| exchange.size.leaf(object_hash(bucket, key));
            let fewer: Vec<u32> = found.keys().map(leaf).collect();
            let mut again =
                exchange.differing_objects(&set(&fewer).expect("a leaf of an object is one of the tree"))?;
            again.retain(|name, _| found.contains_key(name));
            found = again;
        }
        self.leaves.truncate(left);
        let difference = |((bucket, key), (here, there))| Difference { bucket, key, here, there };
        Ok(Some(found.into_iter().map(difference).collect()))
    }
}

/// Where two rows of hashes differ.
fn differing(here: &[u32], there: &[u32]) -> impl Iterator<Item = u32> {
    (0u32..).zip(here.iter().zip(there)).filter(|(_, (here, there))| here != there).map(|(at, _)| at)
}

fn answered(what: String) -> Error {
    Error::new(ErrorKind::Internal, format!("a peer of an exchange answered {what}"))
}

fn sized(hashes: Vec<u32>, size: TreeSize) -> Result<Vec<u32>> {
    if hashes.len() != size.width() as usize {
        return Err(answered(format!("{} hashes instead of {}", hashes.len(), size.width())));
    }
    Ok(hashes)
}

fn asked(clocks: Vec<Clocked>, leaves: &LeafSet) -> Result<Vec<Clocked>> {
    if clocks.iter().any(|(bucket, key, _)| !leaves.contains(object_hash(bucket, key))) {
        return Err(answered("an object that was not asked for".into()));
    }
    Ok(clocks)
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
