//! What the store should hold: which objects were put, how long each is, and how many bytes were put in all.
//!
//! Numbers below the loaded ones have a place in a table of four bytes each; the tail of the Pareto distribution, which
//! has no end, lies in maps.
//!
//! May use: nothing. Must not know: stores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

const TAIL_PARTS: u64 = 64;

/// Shared by all callers; exact as soon as no put is under way, but for two that replace the same object at once.
#[derive(Debug)]
pub(crate) struct Live {
    /// Length of the value and one, or zero for none.
    table: Vec<AtomicU32>,
    tail: Vec<Mutex<HashMap<u64, u32>>>,
    objects: AtomicU64,
    bytes: AtomicU64,
    put_bytes: AtomicU64,
}

/// The sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    /// Objects that are there.
    pub(crate) objects: u64,
    /// Bytes of their values.
    pub(crate) bytes: u64,
    /// Bytes of all values that were ever put.
    pub(crate) put_bytes: u64,
}

impl Live {
    /// Nothing yet, with a table for the numbers below `objects`.
    pub(crate) fn new(objects: u64) -> Self {
        let mut table = Vec::new();
        table.resize_with(usize::try_from(objects).unwrap_or(0), AtomicU32::default);
        let tail = (0..TAIL_PARTS).map(|_| Mutex::default()).collect();
        Self { table, tail, objects: AtomicU64::new(0), bytes: AtomicU64::new(0), put_bytes: AtomicU64::new(0) }
    }

    /// Notes an acknowledged put.
    pub(crate) fn put(&self, number: u64, bytes: usize) {
        let coded = u32::try_from(bytes + 1).unwrap_or(u32::MAX);
        let before = match usize::try_from(number).ok().and_then(|at| self.table.get(at)) {
            Some(place) => place.swap(coded, Relaxed),
            None => {
                let part = usize::try_from(number % TAIL_PARTS).ok().and_then(|at| self.tail.get(at));
                let insert = |part: &Mutex<HashMap<u64, u32>>| {
                    part.lock().unwrap_or_else(PoisonError::into_inner).insert(number, coded)
                };
                part.and_then(insert).unwrap_or(0)
            }
        };
        self.put_bytes.fetch_add(bytes as u64, Relaxed);
        if before == 0 {
            self.objects.fetch_add(1, Relaxed);
            self.bytes.fetch_add(bytes as u64, Relaxed);
        } else {
            // Wraps around and back again when the new value is shorter.
            self.bytes.fetch_add((bytes as u64).wrapping_sub(u64::from(before - 1)), Relaxed);
        }
    }

    /// Whether a put of this object was acknowledged.
    pub(crate) fn holds(&self, number: u64) -> bool {
        if let Some(place) = usize::try_from(number).ok().and_then(|at| self.table.get(at)) {
            return place.load(Relaxed) > 0;
        }
        let part = usize::try_from(number % TAIL_PARTS).ok().and_then(|at| self.tail.get(at));
        part.is_some_and(|part| part.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&number))
    }

    /// The sums as they are now.
    pub(crate) fn sums(&self) -> Sums {
        Sums {
            objects: self.objects.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            put_bytes: self.put_bytes.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_map_whether_in_the_table_or_in_the_tail() {
        let live = Live::new(10);
        let mut map = std::collections::BTreeMap::new();
        let mut put = 0;
        for (number, bytes) in [(1, 100), (9, 0), (10, 7), (1, 30), (10, 70), (u64::MAX, 1), (9, 5), (74, 2), (9, 0)] {
            live.put(number, bytes);
            map.insert(number, bytes as u64);
            put += bytes as u64;
            let sums = Sums { objects: map.len() as u64, bytes: map.values().sum(), put_bytes: put };
            assert_eq!(live.sums(), sums);
            assert!(live.holds(number) && !live.holds(5) && !live.holds(11));
        }
    }
}
