//! Doing the same with each of some things, by several threads; and who may have a second thread for what it goes through.
//!
//! May use: nothing. Must not know: what is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads that do this at the most: each may have a piece of the journal in memory.
const HANDS_MAX: usize = 8;

/// How many threads have a processor each; one where there may be no threads.
pub(crate) fn hands(threads: bool) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    if threads { processors().min(HANDS_MAX) } else { 1 }
}

/// Does `work` with each of `things`, by at most so many threads, this one among them; the results in the order of the things. One that
/// does not start is done without.
pub(crate) fn each<T: Send, R: Send>(things: Vec<T>, hands: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let helpers = hands.min(things.len()).saturating_sub(1);
    let done = Mutex::new(things.iter().map(|_| None).collect::<Vec<Option<R>>>());
    let left = Mutex::new(things.into_iter().enumerate());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let hand = || {
        while let Some((number, thing)) = next() {
            let result = work(thing);
            if let Some(place) = done.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number) {
                *place = Some(result);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..helpers {
            let name = format!("holdfast-hand-{number}");
            let _ = std::thread::Builder::new().name(name).spawn_scoped(scope, hand);
        }
        hand();
    });
    // A thread that panicked has this one panic, so that nothing is missing here.
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// Threads of this program that go through all partitions: folds by key, and figures over entries.
static WORKING: AtomicUsize = AtomicUsize::new(0);

/// A thread that goes through all partitions.
pub(crate) struct Working(());

impl Working {
    /// This one.
    pub(crate) fn this() -> Self {
        WORKING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// One more, if all that work then have a processor each: more would only take it from the others.
    pub(crate) fn another(threads: bool) -> Option<Self> {
        let most = hands(threads);
        let add = |working| (working < most).then_some(working + 1);
        WORKING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(|_| Self(()))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_is_done_once_and_comes_back_in_order() {
        for (things, hands) in [(0, 4), (1, 4), (100, 1), (100, 0), (100, 3), (3, 100)] {
            let seen = Mutex::new(BTreeSet::new());
            let results = each((0..things).collect(), hands, |thing: i32| {
                seen.lock().unwrap().insert(thing);
                thing * 2
            });
            assert_eq!(results, (0..things).map(|thing| thing * 2).collect::<Vec<_>>());
            assert_eq!(seen.into_inner().unwrap().len(), usize::try_from(things).unwrap());
        }
        assert_eq!(hands(false), 1);
        assert!((1..=HANDS_MAX).contains(&super::hands(true)));
    }

    #[test]
    #[should_panic]
    fn a_panic_is_passed_on() {
        each(vec![1, 2, 3], 2, |thing| assert!(thing != 2, "on purpose"));
    }
}
