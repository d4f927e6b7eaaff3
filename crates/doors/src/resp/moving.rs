//! Connections that keep an event loop busy are spread over more reactors than the others: those whose clients pipeline, and those whose
//! commands take long.
//!
//! A small command that comes alone costs the system's network more than it costs the door: there the processors are better left to the
//! system and to clients on the same machine. Commands that come many at a time keep an event loop busy by themselves. (Measured with
//! two processors and the client on them: with two reactors pipelined commands are a tenth faster, single ones up to a tenth slower.)
//! So does a command that takes long, such as one that reads a page of entries; of these, however many are in the pipe, a turn handles few.
//! (Pages of a hundred entries, measured in the same way: one at a time 1.1 to 1.3 of what one event loop answers.)
//!
//! A connection that commits distributed transactions gets a reactor of its own while there is one. That reactor syncs by itself: nobody else
//! waits on it meanwhile, and neither does a thread have to be woken that syncs, nor the event loop behind it. Waking an idle processor
//! costs more than all the rest of such a commit.
//!
//! A connection moves once for each reason, when nothing of it is under way. One with TLS stays.
//!
//! May use: `session`, `wire`, `reply`. Must not know: commands, event loops.

use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;

use super::reply::Reply;
use super::session::Session;
use super::wire::Parser;

/// Commands in one read from which on it counts as pipelined.
const COMMANDS_MIN: usize = 8;
/// What the commands of one read take from which on the network takes the least of it.
const BUSY_MIN: Duration = Duration::from_micros(100);
/// So many such reads, one behind the other, are a habit.
const READS_MIN: u8 = 4;

/// Whether a client keeps its event loop busy, as far as it has shown.
#[derive(Default)]
pub(crate) struct Habit {
    reads: u8,
}

impl Habit {
    /// Of a client that was found to do so.
    pub(crate) const KNOWN: Self = Self { reads: READS_MIN };

    /// Notes how many commands one read has brought, and how long they took; true once, when reads that keep the loop busy have become a habit.
    pub(crate) fn keeps_busy(&mut self, commands: usize, took: Duration) -> bool {
        if self.reads >= READS_MIN {
            return false;
        }
        self.reads = if commands < COMMANDS_MIN && took < BUSY_MIN { 0 } else { self.reads + 1 };
        self.reads == READS_MIN
    }
}

/// So many commits of distributed transactions are a habit.
pub(crate) const COMMITS_MIN: u8 = 16;

/// The reactors that serve one connection each.
pub(crate) struct Places {
    /// The number of the first among the reactors of the door.
    first: usize,
    taken: Arc<[AtomicBool]>,
}

impl Places {
    pub(crate) fn new(first: usize, count: usize) -> Self {
        Self { first, taken: (0..count).map(|_| AtomicBool::default()).collect() }
    }

    /// A reactor that serves nobody, if there is one.
    pub(crate) fn take(&self) -> Option<Place> {
        let index = self.taken.iter().position(|taken| !taken.swap(true, Ordering::Relaxed))?;
        Some(Place { reactor: self.first + index, index, taken: Arc::clone(&self.taken) })
    }
}

/// The right to be served by a reactor alone, until it is dropped.
pub(crate) struct Place {
    pub(crate) reactor: usize,
    index: usize,
    taken: Arc<[AtomicBool]>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.get(self.index) {
            taken.store(false, Ordering::Relaxed);
        }
    }
}

/// What goes with a connection to another reactor.
pub(crate) struct Carried {
    pub(crate) session: Session,
    pub(crate) parser: Parser,
    pub(crate) reply: Reply,
    pub(crate) input: BytesMut,
    pub(crate) is_starved: bool,
    /// Held where it moves to, and there for as long as it lasts.
    pub(crate) place: Option<Place>,
}

/// A connection between two reactors.
pub(crate) struct Moving {
    pub(crate) to: usize,
    pub(crate) stream: StdStream,
    pub(crate) carried: Carried,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_connections_until_it_is_given_back() {
        let places = Places::new(3, 2);
        let (one, other) = (places.take().unwrap(), places.take().unwrap());
        assert_eq!((one.reactor, other.reactor), (3, 4));
        assert!(places.take().is_none());
        drop(one);
        assert_eq!(places.take().unwrap().reactor, 3);
    }

    #[test]
    fn a_few_busy_reads_in_a_row_are_a_habit_and_that_is_said_once() {
        let (short, long) = (BUSY_MIN - Duration::from_nanos(1), BUSY_MIN);
        // Many commands, or commands that take long.
        for (commands, took) in [(COMMANDS_MIN, short), (1, long), (100, Duration::from_secs(1))] {
            let mut habit = Habit::default();
            for _ in 0..10 {
                assert!((1..READS_MIN).all(|_| !habit.keeps_busy(commands, took)));
                assert!(!habit.keeps_busy(COMMANDS_MIN - 1, short), "broken off");
            }
            assert!((1..READS_MIN).all(|_| !habit.keeps_busy(commands, took)));
            assert!(habit.keeps_busy(commands, took));
            assert!((0..100).all(|_| !habit.keeps_busy(commands, took)));
        }
    }
}
