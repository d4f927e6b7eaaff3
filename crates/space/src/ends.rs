//! When leases end, by the slot of the entry.
//!
//! Most entries of most types have no lease, so it is not kept with the entry: slots lie in chunks, and one without a lease takes nothing. A table
//! from slot to end would take three times as much where all have one, and one long row would be made all at once for the first.
//!
//! May use: the type of slots. Must not know: what entries are.

use crate::entries::Slot;

/// Slots of a chunk.
const SLOTS: usize = 64;

/// The ends of neighbours, in milliseconds since 1970; 0 is never.
#[derive(Debug)]
struct Chunk {
    ends_ms: [u64; SLOTS],
    /// How many of them are not 0.
    leases: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Ends {
    chunks: Vec<Option<Box<Chunk>>>,
    /// Chunks that are there.
    used: usize,
}

impl Ends {
    /// When the lease ends, in milliseconds since 1970; 0 is never.
    pub(crate) fn get(&self, slot: Slot) -> u64 {
        let (chunk, at) = place(slot);
        let chunk = self.chunks.get(chunk).and_then(Option::as_ref);
        chunk.and_then(|chunk| chunk.ends_ms.get(at)).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, slot: Slot, end_ms: u64) {
        let (chunk, at) = place(slot);
        if chunk >= self.chunks.len() {
            if end_ms == 0 {
                return;
            }
            self.chunks.resize_with(chunk + 1, || None);
        }
        let Some(place) = self.chunks.get_mut(chunk) else { return };
        if place.is_none() {
            if end_ms == 0 {
                return;
            }
            self.used += 1;
        }
        let chunk = place.get_or_insert_with(|| Box::new(Chunk { ends_ms: [0; SLOTS], leases: 0 }));
        if let Some(end) = chunk.ends_ms.get_mut(at) {
            chunk.leases = chunk.leases + usize::from(end_ms != 0) - usize::from(*end != 0);
            *end = end_ms;
        }
        if chunk.leases == 0 {
            *place = None;
            self.used -= 1;
        }
    }

    /// What they take of memory.
    pub(crate) fn bytes(&self) -> u64 {
        (self.used * size_of::<Chunk>()) as u64
    }
}

/// The chunk, and where in it.
fn place(slot: Slot) -> (usize, usize) {
    (slot as usize / SLOTS, slot as usize % SLOTS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_as_a_map_from_slots_and_keep_no_chunk_without_a_lease(
            changes in proptest::collection::vec((0u32..300, prop_oneof![Just(0), 1u64..9]), 0..200)
        ) {
            let (mut ends, mut model) = (Ends::default(), BTreeMap::new());
            for (slot, end_ms) in changes {
                ends.set(slot, end_ms);
                model.insert(slot, end_ms);
                model.retain(|_, end_ms| *end_ms != 0);
                let mut chunks: Vec<usize> = model.keys().map(|slot| place(*slot).0).collect();
                chunks.dedup();
                prop_assert_eq!(ends.bytes(), (chunks.len() * size_of::<Chunk>()) as u64);
            }
            for slot in 0..400 {
                prop_assert_eq!(ends.get(slot), model.get(&slot).copied().unwrap_or(0));
            }
        }
    }
}
