//! Sets of series' numbers.
//!
//! May use: roaring. Must not know: what the sets stand for.

use roaring::RoaringBitmap;

/// A set that is most often of one number: a tag that tells hosts apart has a value for each.
#[derive(Debug, Clone, Default)]
pub(crate) enum Postings {
    #[default]
    None,
    One(u32),
    Many(Box<RoaringBitmap>),
}

impl Postings {
    pub(crate) fn insert(&mut self, number: u32) {
        match self {
            Self::None => *self = Self::One(number),
            Self::One(one) if *one == number => {}
            Self::One(one) => *self = Self::Many(Box::new([*one, number].into_iter().collect())),
            Self::Many(all) => {
                all.insert(number);
            }
        }
    }

    pub(crate) fn remove(&mut self, number: u32) {
        match self {
            Self::One(one) if *one == number => *self = Self::None,
            Self::Many(all) => {
                all.remove(number);
                if all.is_empty() {
                    *self = Self::None;
                }
            }
            Self::None | Self::One(_) => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The least number.
    pub(crate) fn first(&self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::One(one) => Some(*one),
            Self::Many(all) => all.min(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
        }
    }

    /// Adds its numbers to a set.
    pub(crate) fn add_to(&self, set: &mut RoaringBitmap) {
        match self {
            Self::None => {}
            Self::One(one) => {
                set.insert(*one);
            }
            Self::Many(all) => *set |= &**all,
        }
    }

    /// Takes its numbers from a set.
    pub(crate) fn take_from(&self, set: &mut RoaringBitmap) {
        match self {
            Self::None => {}
            Self::One(one) => {
                set.remove(*one);
            }
            Self::Many(all) => *set -= &**all,
        }
    }
}
