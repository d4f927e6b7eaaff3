//! A part of the young map: a few entries that follow each other, in one stretch of memory.
//!
//! A *tag* of each key, eight bytes from where the chunk's keys begin to differ, lies in order; all of them are looked at, which
//! waits once for all of them, and usually one of the keys. Keys and values lie behind each other in one buffer, in the order
//! of their arrival: an entry of its own allocation costs two visits to the allocator and two more places to wait for. A value
//! of the same length is replaced in place.
//!
//! May use: nothing. Must not know: other chunks.

use std::cmp::Ordering;

use base::fetch_ahead;
use journal::Position;

use super::young::Change;
use crate::coming::{Step, fetch_start};
use crate::key::common_bytes;

/// Entries of a chunk at which it is split. Each search looks at a quarter of a kilobyte of tags then.
pub(super) const CHUNK_MAX: usize = 32;
/// Bytes that an entry costs beside key and value, in a chunk that is two thirds full.
pub(super) const OVERHEAD_BYTES: usize = 64;
/// Of a line of the processor's cache.
const TAGS_PER_LINE: usize = 8;
/// Length of the value of a key that was removed.
const REMOVED: u32 = u32::MAX;

/// Where an entry lies.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Where its key begins; the value follows.
    at: usize,
    key_bytes: u32,
    /// [`REMOVED`] if there is none.
    value_bytes: u32,
    position: Position,
}

/// Entries that follow each other.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Bytes that all keys begin with.
    skip: usize,
    /// Tags of the keys, ascending; behind them the greatest there is.
    tags: [u64; CHUNK_MAX],
    /// Ascending, as many as there are; beside the tags, where a list of its own would be one more place to wait for.
    entries: [Entry; CHUNK_MAX],
    len: usize,
    /// Keys and values.
    bytes: Vec<u8>,
    /// How many of them are nobody's any more.
    dead: usize,
}

impl Clone for Chunk {
    fn clone(&self) -> Self {
        Self::new(self.iter())
    }
}

/// The eight bytes of `key` behind the first `skip`, as a number of the same order; zeros for what is not there.
pub(super) fn tag(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    rest.iter().zip([56, 48, 40, 32, 24, 16, 8]).fold(0, |tag, (byte, shift)| tag | u64::from(*byte) << shift)
}

fn len32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("limits keep keys and values of a ledger far below 4 GiB")
}

impl Entry {
    fn key_end(&self) -> usize {
        self.at + self.key_bytes as usize
    }

    /// Bytes of the value, none if it was removed.
    fn value_len(&self) -> usize {
        if self.value_bytes == REMOVED { 0 } else { self.value_bytes as usize }
    }

    fn len(&self) -> usize {
        self.key_bytes as usize + self.value_len()
    }
}

impl Chunk {
    /// A chunk of ascending entries, not more than fit.
    pub(super) fn new<'a>(ascending: impl Iterator<Item = (&'a [u8], Change<'a>)> + Clone) -> Self {
        let live =
            ascending.clone().map(|(key, change)| key.len() + change.value.map_or(0, <[u8]>::len)).sum::<usize>();
        // Room for a few more, so that the next one does not move all.
        let bytes = Vec::with_capacity(live + live / 4);
        let entries = [Entry::default(); CHUNK_MAX];
        let mut chunk = Self { skip: 0, tags: [u64::MAX; CHUNK_MAX], entries, len: 0, bytes, dead: 0 };
        for (key, change) in ascending {
            let entry = chunk.append(key, &change);
            if let Some(to) = chunk.entries.get_mut(chunk.len) {
                *to = entry;
                chunk.len += 1;
            }
        }
        let last = chunk.len().checked_sub(1).and_then(|place| chunk.key(place)).unwrap_or_default();
        chunk.retag(common_bytes(chunk.first(), last));
        chunk
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn entry(&self, place: usize) -> Option<&Entry> {
        self.entries.get(..self.len)?.get(place)
    }

    /// About how much memory it takes.
    pub(super) fn cost(&self) -> u64 {
        (self.bytes.len() + self.len() * OVERHEAD_BYTES) as u64
    }

    /// The key at a place in the order of keys.
    pub(super) fn key(&self, place: usize) -> Option<&[u8]> {
        let entry = self.entry(place)?;
        self.bytes.get(entry.at..entry.key_end())
    }

    /// The least key.
    pub(super) fn first(&self) -> &[u8] {
        self.key(0).unwrap_or_default()
    }

    /// The entry at a place in the order of keys.
    pub(super) fn at(&self, place: usize) -> Option<(&[u8], Change<'_>)> {
        let entry = self.entry(place)?;
        let value = self.bytes.get(entry.key_end()..entry.key_end() + entry.value_len());
        let value = value.filter(|_| entry.value_bytes != REMOVED);
        Some((self.key(place)?, Change { value, position: entry.position }))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Change<'_>)> + Clone {
        (0..self.len()).filter_map(|place| self.at(place))
    }

    /// Takes the tags anew, from the first `skip` bytes on.
    fn retag(&mut self, skip: usize) {
        self.skip = skip;
        for place in 0..self.len() {
            let tag = tag(self.key(place).unwrap_or_default(), skip);
            self.tags.iter_mut().skip(place).take(1).for_each(|to| *to = tag);
        }
    }

    /// Fetches what looking for `key` looks at: the tags, then the entry that is the key's unless others have the same tag, then that
    /// entry's bytes. `hint` tells the last step what the one before has found.
    pub(super) fn fetch(&self, key: &[u8], step: Step, hint: &mut usize) {
        if step == Step::First {
            return self.tags.iter().step_by(TAGS_PER_LINE).for_each(fetch_ahead);
        }
        if step == Step::Second {
            let wanted = tag(key, self.skip);
            *hint = self.tags.iter().filter(|tag| **tag < wanted).count();
        }
        let Some(entry) = self.entry(*hint) else { return };
        if step == Step::Second {
            return fetch_ahead(entry);
        }
        fetch_start(self.bytes.get(entry.at..entry.key_end() + entry.value_len()).unwrap_or_default());
    }

    /// The place of `key`, or where it belongs.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let wanted = tag(key, self.skip);
        // All tags at once: a binary search would wait for one place after the other.
        let (mut low, mut same) = (0, 0);
        for tag in &self.tags {
            low += usize::from(*tag < wanted);
            same += usize::from(*tag == wanted);
        }
        let mut high = (low + same).min(self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.key(middle).map_or(Ordering::Greater, |found| found.cmp(key)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        // What does not begin like the others is before or behind them, whatever its tag is.
        let shared = self.first().get(..self.skip).unwrap_or_default();
        match key.get(..self.skip).unwrap_or(key).cmp(shared) {
            Ordering::Less => Err(0),
            Ordering::Equal => Err(low),
            Ordering::Greater => Err(self.len()),
        }
    }

    fn append(&mut self, key: &[u8], change: &Change<'_>) -> Entry {
        let at = self.bytes.len();
        let value = change.value.unwrap_or_default();
        let more = key.len() + value.len();
        if self.bytes.capacity() - at < more {
            self.bytes.reserve_exact(more.max(at / 2));
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Entry { at, key_bytes: len32(key), value_bytes: change.value.map_or(REMOVED, len32), position: change.position }
    }

    /// Inserts an entry where it belongs; there must be room.
    pub(super) fn insert(&mut self, place: usize, key: &[u8], change: &Change<'_>) {
        let len = self.len();
        debug_assert!(place <= len && len < CHUNK_MAX, "the caller splits full chunks");
        let common = common_bytes(self.first(), key);
        if common < self.skip {
            self.retag(common);
        }
        let entry = self.append(key, change);
        self.entries.copy_within(place..len, place + 1);
        self.tags.copy_within(place..len, place + 1);
        if let (Some(to), Some(to_tag)) = (self.entries.get_mut(place), self.tags.get_mut(place)) {
            (*to, *to_tag) = (entry, tag(key, self.skip));
        }
        self.len += 1;
    }

    /// Notes what became of the key at `place`, instead of what is there.
    pub(super) fn replace(&mut self, place: usize, change: &Change<'_>) {
        let Some(entry) = self.entries.get_mut(..self.len).and_then(|entries| entries.get_mut(place)) else { return };
        let had = entry.value_len();
        let value = change.value.unwrap_or_default();
        let room = self.bytes.get_mut(entry.key_end()..).and_then(|rest| rest.get_mut(..value.len()));
        match room.filter(|_| value.len() <= had) {
            Some(room) => {
                room.copy_from_slice(value);
                entry.value_bytes = change.value.map_or(REMOVED, len32);
                entry.position = change.position;
                self.dead += had - value.len();
            }
            None => {
                let (old, key) = (*entry, self.key(place).unwrap_or_default().to_vec());
                let entry = self.append(&key, change);
                self.entries.iter_mut().skip(place).take(1).for_each(|to| *to = entry);
                self.dead += old.len();
            }
        }
        if self.dead > self.bytes.len() / 2 {
            *self = self.clone();
        }
    }

    /// The lower and the upper half, in chunks of their own.
    pub(super) fn split(&self) -> (Self, Self) {
        let middle = self.len() / 2;
        (Self::new(self.iter().take(middle)), Self::new(self.iter().skip(middle)))
    }
}
