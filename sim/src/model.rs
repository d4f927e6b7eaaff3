//! What the store must hold: a list of batches, and the map that a prefix of them makes.
//!
//! May use: nothing. Must not know: the store.

use std::collections::BTreeMap;

use holdfast::{Indexes, Position, Term};

/// Bucket and key.
pub(crate) type Name = (Vec<u8>, Vec<u8>);

/// One object's state in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) version: Position,
    pub(crate) value: Vec<u8>,
    pub(crate) expires_ms: Option<u64>,
    pub(crate) modified_ms: u64,
    pub(crate) metadata: Vec<u8>,
    pub(crate) indexes: Indexes,
}

/// What a batch made of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Put { value: Vec<u8>, expires_ms: Option<u64>, metadata: Vec<u8>, indexes: Indexes },
    Delete,
    Expire { expires_ms: Option<u64> },
    Clear,
}

/// One committed batch; for `Clear` the key is empty and the whole bucket is meant.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) position: Position,
    pub(crate) now_ms: u64,
    pub(crate) effects: Vec<(Name, Effect)>,
}

pub(crate) type Contents = BTreeMap<Name, Thing>;

/// One index: terms and keys, in order.
pub(crate) type Entries = Vec<(Term, Vec<u8>)>;

/// What the index of a bucket holds when the objects are these.
pub(crate) fn index(contents: &Contents, bucket: &[u8], index: &[u8]) -> Entries {
    let mut entries = Entries::new();
    for ((_, key), thing) in contents.iter().filter(|((b, _), _)| b == bucket) {
        let terms = thing.indexes.iter().filter(|(name, _)| *name == index);
        entries.extend(terms.map(|(_, term)| (term, key.clone())));
    }
    entries.sort();
    entries
}

/// Everything that was committed since the start, and what was promised of it.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) batches: Vec<Batch>,
    pub(crate) contents: Contents,
    /// Everything at or below survives a killed process.
    pub(crate) written: Position,
    /// Everything at or below survives a power cut.
    pub(crate) synced: Position,
}

pub(crate) fn apply(contents: &mut Contents, batch: &Batch) {
    // An object that had expired by the time of the batch is gone, whether or not its removal was journaled.
    contents.retain(|_, thing| thing.expires_ms.is_none_or(|at| at > batch.now_ms));
    for (name, effect) in &batch.effects {
        match effect {
            Effect::Put { value, expires_ms, metadata, indexes } => {
                let (value, metadata, indexes) = (value.clone(), metadata.clone(), indexes.clone());
                // Entries of spaces do not tell when they were changed.
                let modified_ms = if name.0 == crate::space::BUCKET { 0 } else { batch.now_ms };
                // Points have no version.
                let is_point = name.0 == crate::series::BUCKET;
                let modified_ms = if is_point { 0 } else { modified_ms };
                let (version, expires_ms) = (if is_point { Position::ZERO } else { batch.position }, *expires_ms);
                contents.insert(name.clone(), Thing { version, value, expires_ms, modified_ms, metadata, indexes });
            }
            Effect::Delete => {
                contents.remove(name);
            }
            Effect::Expire { expires_ms } => {
                if let Some(thing) = contents.get_mut(name) {
                    thing.expires_ms = *expires_ms;
                    thing.modified_ms = batch.now_ms;
                    thing.version = batch.position;
                }
            }
            Effect::Clear => contents.retain(|(bucket, _), _| *bucket != name.0),
        }
    }
}

impl Model {
    pub(crate) fn commit(&mut self, batch: Batch) {
        apply(&mut self.contents, &batch);
        self.batches.push(batch);
    }

    /// What is visible at `now_ms`.
    pub(crate) fn visible(contents: &Contents, now_ms: u64) -> Contents {
        let alive = |thing: &Thing| thing.expires_ms.is_none_or(|at| at > now_ms);
        contents.iter().filter(|(_, thing)| alive(thing)).map(|(name, thing)| (name.clone(), thing.clone())).collect()
    }

    /// What is visible of objects by key.
    pub(crate) fn visible_keys(contents: &Contents, now_ms: u64) -> Contents {
        let mut visible = Self::visible(contents, now_ms);
        visible.retain(|(bucket, _), _| bucket != crate::space::BUCKET && bucket != crate::series::BUCKET);
        visible
    }

    /// The position of the batch without which, and all behind it, this would be visible again; 0 if there is none.
    pub(crate) fn absent_since(&self, name: &Name, now_ms: u64) -> Position {
        let touches = |(_, batch): &(usize, &Batch)| batch.effects.iter().any(|(touched, _)| touched == name);
        let would_be_back =
            |(before, _): &(usize, &Batch)| Self::visible(&self.prefix(*before), now_ms).contains_key(name);
        let found = self.batches.iter().enumerate().rev().filter(touches).find(would_be_back);
        found.map_or(Position::ZERO, |(_, batch)| batch.position)
    }

    /// What the first `count` batches make.
    pub(crate) fn prefix(&self, count: usize) -> Contents {
        let mut contents = Contents::new();
        self.batches.iter().take(count).for_each(|batch| apply(&mut contents, batch));
        contents
    }

    /// The first of some last batches without all of which the same is visible.
    pub(crate) fn unseen_from(&self, now_ms: u64) -> Option<Position> {
        /// More than these no crash takes without a trace: something of them would be seen.
        const LOOKED_AT: usize = 16;
        let all = Self::visible(&self.contents, now_ms);
        let from = self.batches.len().saturating_sub(LOOKED_AT);
        let mut counts = from..self.batches.len();
        let count = counts.find(|count| Self::visible(&self.prefix(*count), now_ms) == all)?;
        self.batches.get(count).map(|batch| batch.position)
    }

    /// Forgets the batches behind the first `count`, which a crash took.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.contents = self.prefix(count);
        self.batches.truncate(count);
    }
}
