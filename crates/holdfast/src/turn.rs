//! Writers give way to each other between two writes, so that none of them is stopped in the middle of one.
//!
//! Where more threads are ready than there are processors the system takes a thread's processor away after some milliseconds,
//! wherever it is: often in a write, with a partition's lock or the journal's file in its hands. Its write then takes a whole round
//! of the others' turns, and so do theirs that come for what it holds. A thread that gives way by itself, much sooner and between
//! writes, is not stopped in them; where nobody else is ready giving way costs a system call without effect. (Measured with ten writers
//! on two processors: the 99th percentile of an update falls from 5 ms to 0.9 ms, and as many are done.)
//!
//! The others may be no writers, and give nothing back: a thread that computes has the processor for milliseconds before it is a writer's turn again. So where
//! that took milliseconds in which others wrote little, again and again, the writer has its share first (`base::rest_behind`). (Measured with
//! one writer beside nine threads that compute: 250 puts a second when a turn was always as short, 38,000 now, 70,000 when it never gives way.) Once is no
//! reason: the system has work of its own to do, and a writer that does not give way has those beside it wait for four times as long.
//!
//! Who writes now and then, and does something else between, is hardly ever stopped in a write, and would pay for each with a system call or somebody else's turn.
//!
//! May use: `base`, the store's clock. Must not know: what is written.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Clock, Time};

use crate::durability::Durability;
use crate::store::Store;

/// After so long a writer gives way. Others wait for this times their number, often for all of them: the system is slow to move threads that
/// never sleep to another processor, so eight or nine may share one while the others have the second for themselves. At 300 us the 99th percentile of ten
/// is twice what it is at this, at 35 us a tenth more; at 5 us every write gives way, and ten update a tenth less.
const TURN_TIME: Duration = Duration::from_micros(20);
/// After so long one gives way whose operations are in memory alone: with many of them to a turn, to give way is little of it.
const LONG_TURN_TIME: Duration = Duration::from_micros(100);
/// Whose last write, or look, began longer ago has done something else since, or slept, and has a new turn. Or it writes that long at once: then to be stopped is little
/// of it.
const SPARSE_TIME: Duration = Duration::from_micros(200);
/// So many of those are done between two looks at the clock.
const OPERATIONS: u32 = 8;
/// Waits in a row in which others did little: those that wait beside a thread that computes are all like that.
const WAITS_MIN: u32 = 3;

/// Operations in memory of all threads, more or less: it is processors that they share, whatever the store.
static DONE_IN_MEMORY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// When the thread's turn ends.
    static ENDS: Cell<Time> = const { Cell::new(Time::from_nanos(0)) };
    /// When the thread was asked last.
    static ASKED: Cell<Time> = const { Cell::new(Time::from_nanos(0)) };
    /// Operations in memory of this thread.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    /// How many waits in a row were for threads that give nothing back.
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

impl Store {
    /// Called before a write that waits for this durability, without any lock. Who waits for a sync sleeps anyhow.
    pub(crate) fn give_way(&self, durability: Durability) {
        if durability != Durability::Synced {
            let inner = self.inner();
            give_way(&*inner.clock, TURN_TIME, base::yield_now, || inner.journal.appended_batches());
        }
    }

    /// Called before a change that has nothing to do with the journal and takes less than a microsecond, without any lock.
    pub(crate) fn give_way_in_memory(&self) {
        let looks = LOOKS.get().wrapping_add(1);
        LOOKS.set(looks);
        if looks.is_multiple_of(OPERATIONS) {
            DONE_IN_MEMORY.fetch_add(u64::from(OPERATIONS), Ordering::Relaxed);
            let done = || DONE_IN_MEMORY.load(Ordering::Relaxed);
            give_way(&*self.inner().clock, LONG_TURN_TIME, base::yield_now, done);
        }
    }
}

fn give_way(clock: &dyn Clock, turn_time: Duration, others: impl FnOnce(), done: impl Fn() -> u64) {
    let now = clock.now();
    let was_asked = ASKED.replace(now);
    if now < ENDS.get() {
        return;
    }
    if now.since(was_asked) > SPARSE_TIME {
        ENDS.set(now.after(turn_time));
    } else {
        let done_before = done();
        others();
        let behind = clock.now();
        ASKED.set(behind);
        let rest = base::rest_behind(behind.since(now), done().saturating_sub(done_before));
        WAITS.set(rest.map_or(0, |_| WAITS.get().saturating_add(1)));
        let rest = rest.filter(|_| WAITS.get() >= WAITS_MIN);
        ENDS.set(behind.after(rest.unwrap_or(turn_time)));
    }
}

/// The thread has slept: a turn begins.
pub(crate) fn has_rested(clock: &dyn Clock) {
    ENDS.set(clock.now().after(TURN_TIME));
}

#[cfg(test)]
mod tests {
    use base::ManualClock;

    use super::*;

    /// Whether a writer gives way now, and for how long.
    fn gives_way(clock: &ManualClock, waits: Duration) -> bool {
        let mut gave_way = false;
        let others = || {
            clock.advance(waits);
            gave_way = true;
        };
        give_way(clock, TURN_TIME, others, || 0);
        gave_way
    }

    #[test]
    fn a_turn_ends_when_its_time_is_over_and_begins_anew_behind_that_or_a_rest() {
        let (clock, least) = (ManualClock::at(0), Duration::from_nanos(1));
        let others = 10 * TURN_TIME;
        assert!(gives_way(&clock, others));
        clock.advance(TURN_TIME - least);
        assert!(!gives_way(&clock, others), "its time is not over, and the others' is not its own");
        clock.advance(least);
        assert!(gives_way(&clock, others));
        clock.advance(TURN_TIME / 2);
        has_rested(&clock);
        clock.advance(TURN_TIME - least);
        assert!(!gives_way(&clock, others));
        clock.advance(least);
        assert!(gives_way(&clock, others));
    }

    /// One writer beside nine threads that compute did 250 puts a second, where it does 70,000 when it never gives way.
    #[test]
    fn beside_threads_that_give_nothing_back_a_writer_has_its_share() {
        for waits in [1, 3, 12, 50].map(Duration::from_millis) {
            let clock = ManualClock::at(0);
            has_rested(&clock);
            let (mut worked, mut waited) = (Duration::ZERO, Duration::ZERO);
            let write = TURN_TIME / 3;
            for _ in 0..1_000_000 {
                if gives_way(&clock, waits) {
                    waited += waits;
                }
                clock.advance(write);
                worked += write;
            }
            assert!(worked > 3 * waited, "{waits:?}: {worked:?} of {waited:?}");
        }
    }

    /// A thread of the system's that ran for 3 ms had the writer keep its processor for 12, and eight others waited.
    #[test]
    fn one_long_wait_is_no_reason_to_stop_giving_way() {
        let clock = ManualClock::at(0);
        let (short, long) = (TURN_TIME, Duration::from_millis(3));
        for waits in [short, long, long, short, long, long, short] {
            assert!(gives_way(&clock, waits), "{waits:?}");
            clock.advance(TURN_TIME);
        }
        for _ in 0..WAITS_MIN {
            assert!(gives_way(&clock, long));
            clock.advance(TURN_TIME);
        }
        assert!(!gives_way(&clock, long), "now it has its share");
    }

    #[test]
    fn who_writes_now_and_then_does_not_give_way() {
        let clock = ManualClock::at(0);
        assert!(gives_way(&clock, Duration::ZERO), "the clock of the process has just begun");
        for _ in 0..100 {
            clock.advance(SPARSE_TIME + Duration::from_nanos(1));
            assert!(!gives_way(&clock, Duration::ZERO));
            // Several at once have a turn together.
            clock.advance(TURN_TIME - Duration::from_nanos(1));
            assert!(!gives_way(&clock, Duration::ZERO));
        }
        clock.advance(Duration::from_nanos(1));
        assert!(gives_way(&clock, Duration::ZERO), "that is not now and then");
    }

    /// Many that share a processor wait for milliseconds, and are no threads that compute.
    #[test]
    fn others_that_work_are_given_way_to_however_long_that_takes() {
        let clock = ManualClock::at(0);
        has_rested(&clock);
        let done = Cell::new(0);
        for _ in 0..10 * WAITS_MIN {
            clock.advance(TURN_TIME);
            let before = done.get();
            let others = || {
                clock.advance(Duration::from_millis(5));
                done.set(done.get() + 100);
            };
            give_way(&clock, TURN_TIME, others, || done.get());
            assert_eq!(done.get(), before + 100, "it did not give way");
        }
    }
}
