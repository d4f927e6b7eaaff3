//! In which order the entries of one type were used last: those that were not used for longest are evicted first.
//!
//! A list through the slots: each knows who was used just before it and just after it. So a use is a few writes to one row, however many
//! entries there are, and an entry takes eight bytes of it; a tree of uses took some seventy and was gone down twice for each read.
//!
//! May use: the type of slots. Must not know: what entries are.

use crate::entries::{Slot, row_bytes};

/// Nobody: the neighbour of the first and of the last. Memory ends before slots come to it.
const NOBODY: Slot = Slot::MAX;

/// What an entry takes in the order.
pub(crate) const USED_BYTES: u64 = row_bytes(size_of::<Link>());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    older: Slot,
    newer: Slot,
}

#[derive(Debug)]
pub(crate) struct Used {
    /// By slot. Of one that is not in the order both neighbours are itself.
    links: Vec<Link>,
    oldest: Slot,
    newest: Slot,
}

impl Default for Used {
    fn default() -> Self {
        Self { links: Vec::new(), oldest: NOBODY, newest: NOBODY }
    }
}

impl Used {
    /// It is the one that was used last.
    pub(crate) fn touch(&mut self, slot: Slot) {
        if self.newest == slot {
            return;
        }
        self.remove(slot);
        for new in self.links.len()..=slot as usize {
            // Slots are numbers of u32.
            let itself = Slot::try_from(new).unwrap_or(NOBODY);
            self.links.push(Link { older: itself, newer: itself });
        }
        let older = std::mem::replace(&mut self.newest, slot);
        if let Some(link) = self.links.get_mut(slot as usize) {
            *link = Link { older, newer: NOBODY };
        }
        self.set_newer(older, slot);
    }

    /// It is not in the order any more.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let Some(link) = self.links.get_mut(slot as usize).filter(|link| link.older != slot) else { return };
        let Link { older, newer } = std::mem::replace(link, Link { older: slot, newer: slot });
        self.set_newer(older, newer);
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => self.newest = older,
        }
    }

    /// Behind `older`, or first of all where that is nobody, stands `newer`.
    fn set_newer(&mut self, older: Slot, newer: Slot) {
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => self.oldest = newer,
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Those first that were not used for longest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> {
        let there = |slot: Slot| (slot != NOBODY).then_some(slot);
        std::iter::successors(there(self.oldest), move |slot| there(self.links.get(*slot as usize)?.newer))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_as_a_row_from_which_who_is_used_goes_to_the_end(uses in proptest::collection::vec((0u32..12, any::<bool>()), 0..200)) {
            let (mut used, mut model) = (Used::default(), Vec::new());
            for (slot, goes) in uses {
                model.retain(|other| *other != slot);
                if goes {
                    used.remove(slot);
                } else {
                    used.touch(slot);
                    model.push(slot);
                }
                prop_assert_eq!(used.iter().collect::<Vec<_>>(), model.clone());
            }
            used.clear();
            prop_assert_eq!(used.iter().count(), 0);
        }
    }
}
