//! Objects with index entries, folds and a tree over a store that has sorted keys and batches, and no more: what an
//! application on top of it would do.
//!
//! Keys: an object is `o key`; an index entry is `i index 00 term 00 key`, without value. In a plan with an index, a
//! value begins with the object's entries, so that a put can read what it replaces and remove its entries in the same
//! batch; a lock for each of some stripes of keys keeps two puts of one object apart, without which entries would be
//! left behind. In a plan without an index a put is a put.
//!
//! May use: `workload`. Must not know: which store it is.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::workload::{Driver, Durability, Entry, Failure, Fold, Plan, Result, See, Session, TermRange};

/// A sync at least this often, with durability `window`.
const WINDOW: Duration = Duration::from_millis(10);
const STRIPES: usize = 256;
/// Leaves of the tree, as Holdfast's largest.
const LEAVES: usize = 1 << 20;

/// One change of a batch.
pub(crate) enum Change<'a> {
    Put(Vec<u8>, &'a [u8]),
    Remove(Vec<u8>),
}

/// What keys and values a range is walked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    Keys,
    Values,
}

/// A store of sorted keys.
pub(crate) trait Ordered: Sync {
    /// Puts one value, at the durability that it was opened with.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Makes changes at once and together, at the durability that it was opened with.
    fn change(&self, changes: &[Change<'_>]) -> Result<()>;

    /// Shows the value that is there. False if there is none.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Whether the key is there.
    fn holds(&self, key: &[u8]) -> Result<bool>;

    /// Shows what is from `from` on and below `until`, in order.
    fn walk(&self, from: &[u8], until: &[u8], what: Walk, see: See<'_>) -> Result<()>;

    /// Syncs what was written.
    fn sync(&self) -> Result<()>;

    /// Waits until its background work is done.
    fn settle(&self) -> Result<()>;

    /// Compacts everything.
    fn compact(&self) -> Result<()>;
}

/// A store, and what is emulated on top.
pub(crate) struct Emulated<S> {
    store: S,
    dir: PathBuf,
    indexed: bool,
    window: bool,
    stripes: Vec<Mutex<()>>,
}

impl<S: Ordered> Emulated<S> {
    pub(crate) fn new(store: S, dir: &Path, plan: &Plan) -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        let window = plan.durability == Durability::Window;
        Self { store, dir: dir.to_owned(), indexed: plan.indexed(), window, stripes }
    }

    /// Runs something; beside it syncs as the window wants.
    pub(crate) fn synced_now_and_then(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let over = AtomicBool::new(!self.window);
        thread::scope(|scope| {
            let syncs = scope.spawn(|| {
                while !over.load(Relaxed) {
                    thread::sleep(WINDOW);
                    self.store.sync()?;
                }
                Ok::<_, Failure>(())
            });
            let result = run();
            over.store(true, Relaxed);
            syncs.join().map_err(|_| Failure::from("the syncing thread panicked"))??;
            result
        })
    }

    fn stripe(&self, key: &[u8]) -> Result<MutexGuard<'_, ()>> {
        let at = usize::try_from(hash(&[key]) % STRIPES as u64)?;
        let stripe = self.stripes.get(at).ok_or("no such stripe")?;
        Ok(stripe.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, key: &[u8], value: &[u8], entries: &[Entry]) -> Result<()> {
        let object = object_key(key);
        if !self.indexed {
            return self.store.put(&object, value);
        }
        let stored = with_entries(entries, value);
        let new: Vec<Vec<u8>> =
            entries.iter().map(|entry| index_key(entry.index.as_bytes(), &entry.term, key)).collect();
        let _alone = self.stripe(key)?;
        let mut old = Vec::new();
        self.store.get(&object, &mut |stored| old = entries_of(stored, key))?;
        let gone = old.into_iter().filter(|old| !new.contains(old)).map(Change::Remove);
        let mut changes: Vec<Change<'_>> = gone.collect();
        changes.push(Change::Put(object, &stored));
        changes.extend(new.iter().map(|entry| Change::Put(entry.clone(), b"")));
        self.store.change(&changes)
    }

    fn value<'v>(&self, stored: &'v [u8]) -> &'v [u8] {
        if self.indexed { split(stored).1 } else { stored }
    }
}

impl<S: Ordered> Driver for Emulated<S> {
    fn session(&self) -> Result<Box<dyn Session + Send + '_>> {
        Ok(Box::new(self))
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn settle(&self) -> Result<()> {
        self.store.settle()
    }

    fn compact(&self) -> Result<()> {
        self.store.compact()
    }

    fn rebuild_tree(&self) -> Result<u64> {
        // Nothing but the value itself tells whether two replicas have the same.
        let mut leaves = vec![0_u64; LEAVES];
        let mut objects = 0;
        self.store.walk(b"o", b"p", Walk::Values, &mut |key, value| {
            let place = usize::try_from(hash(&[key]) % LEAVES as u64).unwrap_or(0);
            if let Some(leaf) = leaves.get_mut(place) {
                *leaf ^= hash(&[key, value.unwrap_or_default()]);
            }
            objects += 1;
        })?;
        std::hint::black_box(&leaves);
        Ok(objects)
    }
}

impl<S: Ordered> Session for &Emulated<S> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.replace(key, value, &[])
    }

    fn put_indexed(&mut self, key: &[u8], value: &[u8], entries: &[Entry]) -> Result<()> {
        self.replace(key, value, entries)
    }

    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.store.get(&object_key(key), &mut |stored| see(self.value(stored)))
    }

    fn head(&mut self, key: &[u8]) -> Result<bool> {
        self.store.holds(&object_key(key))
    }

    fn index_range(&mut self, range: &TermRange, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let index = range.index.as_bytes();
        // Behind every key of the last term.
        let until = [b"i", index, b"\0", &range.to, b"\x01"].concat();
        let head = index.len() + 2;
        self.store.walk(&index_key(index, &range.from, b""), &until, Walk::Keys, &mut |entry, _| {
            let term_and_key = entry.get(head..).unwrap_or_default();
            let mut parts = term_and_key.splitn(2, |byte| *byte == 0);
            if let (Some(term), Some(key)) = (parts.next(), parts.next())
                && range.filter.is_none_or(|filter| filter.matches(term))
            {
                see(term, key);
            }
        })
    }

    fn fold(&mut self, what: Fold, see: See<'_>) -> Result<()> {
        let walk = if what == Fold::Heads { Walk::Keys } else { Walk::Values };
        self.store.walk(b"o", b"p", walk, &mut |key, stored| {
            see(key.get(1..).unwrap_or_default(), stored.map(|stored| self.value(stored)));
        })
    }
}

fn object_key(key: &[u8]) -> Vec<u8> {
    [b"o", key].concat()
}

fn index_key(index: &[u8], term: &[u8], key: &[u8]) -> Vec<u8> {
    let mut whole = [b"i", index, b"\0", term].concat();
    if !key.is_empty() {
        whole.push(0);
        whole.extend_from_slice(key);
    }
    whole
}

/// Length of the entries 4, little-endian, then each entry as `index 00 term 00`, then the value.
fn with_entries(entries: &[Entry], value: &[u8]) -> Vec<u8> {
    let mut stored = vec![0; 4];
    for entry in entries {
        for part in [entry.index.as_bytes(), entry.term.as_slice()] {
            stored.extend_from_slice(part);
            stored.push(0);
        }
    }
    let length = u32::try_from(stored.len() - 4).unwrap_or(0).to_le_bytes();
    for (to, byte) in stored.iter_mut().zip(length) {
        *to = byte;
    }
    stored.extend_from_slice(value);
    stored
}

fn split(stored: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = stored.split_first_chunk::<4>() else { return (b"", b"") };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    rest.split_at_checked(length).unwrap_or((b"", b""))
}

/// Index keys of the entries of what is stored for `key`.
fn entries_of(stored: &[u8], key: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = split(stored).0.split(|byte| *byte == 0);
    let next = || Some(index_key(parts.next()?, parts.next()?, key));
    std::iter::from_fn(next).collect()
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

#[cfg(test)]
#[path = "emulated_tests.rs"]
mod tests;
