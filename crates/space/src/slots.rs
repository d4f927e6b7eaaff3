//! The entries at one key of an index: few in place, many in a set.
//!
//! Most keys have one entry or a few. A set of its own for two of them took 64 bytes, which is as much as all else of the key.
//!
//! May use: the type of slots. Must not know: keys, what entries are.

use std::collections::BTreeSet;

use crate::entries::Slot;

/// As many as have room where a set is that has more.
const FEW_MAX: usize = 5;
/// What a set takes for as many as one node has room for, and from there on for each: leaves are full to two thirds, and there are nodes above them.
/// `tests/memory.rs` compares it with what was handed out.
const NODE_BYTES: u64 = 64;
const NODE_MAX: usize = 11;
const SLOT_BYTES: u64 = 12;

/// What so many entries at a key take beside it.
pub(crate) fn slots_bytes(entries: usize) -> u64 {
    if entries <= FEW_MAX {
        0
    } else if entries <= NODE_MAX {
        NODE_BYTES
    } else {
        NODE_BYTES + SLOT_BYTES * entries as u64
    }
}

#[derive(Debug)]
pub(crate) enum Slots {
    /// Those at the front of the row count, in order.
    Few(u8, [Slot; FEW_MAX]),
    /// More than are few.
    Many(BTreeSet<Slot>),
}

impl Slots {
    pub(crate) fn one(slot: Slot) -> Self {
        Self::of([slot])
    }

    /// Of few, in order.
    fn of(slots: impl IntoIterator<Item = Slot>) -> Self {
        let (mut few, mut count) = ([0; FEW_MAX], 0);
        for (to, slot) in few.iter_mut().zip(slots) {
            *to = slot;
            count += 1;
        }
        Self::Few(count, few)
    }

    /// Those that are few.
    fn few(&self) -> &[Slot] {
        match self {
            Self::Few(count, slots) => slots.get(..usize::from(*count)).unwrap_or_default(),
            Self::Many(_) => &[],
        }
    }

    pub(crate) fn insert(&mut self, slot: Slot) {
        if let Self::Many(many) = self {
            many.insert(slot);
            return;
        }
        let few = self.few();
        let Err(at) = few.binary_search(&slot) else { return };
        let (front, behind) = few.split_at_checked(at).unwrap_or_default();
        let all = front.iter().copied().chain([slot]).chain(behind.iter().copied());
        *self = if few.len() == FEW_MAX { Self::Many(all.collect()) } else { Self::of(all) };
    }

    /// How many there were, and how many are left.
    pub(crate) fn remove(&mut self, slot: Slot) -> (usize, usize) {
        let before = self.len();
        let left = match self {
            Self::Many(many) => {
                many.remove(&slot);
                if many.len() > FEW_MAX {
                    return (before, many.len());
                }
                Self::of(many.iter().copied())
            }
            Self::Few(..) => Self::of(self.few().iter().copied().filter(|other| *other != slot)),
        };
        *self = left;
        (before, self.len())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(count, _) => usize::from(*count),
            Self::Many(many) => many.len(),
        }
    }

    /// In order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        let many = if let Self::Many(many) = self { Some(many) } else { None };
        self.few().iter().chain(many.into_iter().flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_a_set_in_order_however_many_there_are(steps in proptest::collection::vec((0u32..16, any::<bool>()), 0..200)) {
            let (mut slots, mut model) = (Slots::one(7), BTreeSet::from([7]));
            for (slot, goes) in steps {
                if goes && model.len() > 1 {
                    let before = model.len();
                    model.remove(&slot);
                    prop_assert_eq!(slots.remove(slot), (before, model.len()));
                } else {
                    slots.insert(slot);
                    model.insert(slot);
                }
                prop_assert_eq!(slots.len(), model.len());
                prop_assert!(slots.iter().eq(model.iter().copied()));
                prop_assert_eq!(matches!(slots, Slots::Few(..)), model.len() <= FEW_MAX);
            }
        }
    }

    #[test]
    fn few_take_no_more_room_than_a_set_does() {
        assert!(size_of::<Slots>() <= size_of::<(u8, BTreeSet<Slot>)>());
    }
}
