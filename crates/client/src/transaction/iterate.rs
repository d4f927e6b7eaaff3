//! Going through entries within a transaction that stays open, a batch at a time.
//!
//! May use: what `transaction` may. Must not know: sockets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast::Result;
use holdfast::space::{self, Entry, Wanted};

use super::{Came, Patience, Transaction, elsewhere, one};
use crate::call::Call;
use crate::entries::{Entries, iteration_lease_ms};
use crate::read;
use crate::remote::{Reply, Words};

/// Goes through entries within a transaction: from [`Transaction::iterate`].
pub struct WithinIteration {
    entries: Entries,
    place: Arc<Mutex<At>>,
    /// How long a server remembers where it is, in milliseconds.
    lease: Option<u64>,
}

impl WithinIteration {
    /// As [`Iteration::with_lease`](crate::Iteration::with_lease); it ends with its transaction all the same.
    ///
    /// # Errors
    /// As there.
    pub fn with_lease(self, lease: Duration) -> Result<Self> {
        Ok(Self { lease: Some(iteration_lease_ms(lease)?), ..self })
    }
}

/// Where one stands.
enum At {
    Begin(Box<Wanted>),
    Here(Box<space::WithinIteration>),
    /// What the server is asked for the next batch.
    There(Words),
    End,
}

fn lock(place: &Mutex<At>) -> MutexGuard<'_, At> {
    // Whoever panicked while it had it left it whole.
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transaction {
    /// Goes through all entries that match as this transaction has them when they are come to, each once, a batch at a time:
    /// [`Transaction::next_of`]. What it has written by then comes first; what it writes anew behind the first batch, or makes match, may not be come to.
    pub fn iterate(&self, entries: &Entries, wanted: &Wanted) -> WithinIteration {
        let place = Arc::new(Mutex::new(At::Begin(Box::new(wanted.clone()))));
        WithinIteration { entries: entries.clone(), place, lease: None }
    }

    /// The next entries, at most so many, on a server 10,000; none at the end. They are locked as the transaction's isolation says, and
    /// those that another transaction has locked are passed over then. A server remembers where for a minute after each batch, or as long as [`WithinIteration::with_lease`] says.
    ///
    /// # Errors
    /// As [`Entries::iterate`] and [`Transaction::write`]; `Invalid` when it is another transaction's.
    pub fn next_of(&mut self, iteration: &mut WithinIteration, max: usize) -> Call<Vec<Entry>> {
        let of = match self.of(&iteration.entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let (lock_as, place, max) = (self.isolation, Arc::clone(&iteration.place), max.clamp(1, i64::MAX as usize));
        let command = || iteration.entries.words("SPACE.ITERATE");
        let words = match &*lock(&place) {
            At::Begin(wanted) => command().wanted(wanted),
            At::There(words) => Ok(words.clone()),
            At::Here(_) => Ok(command()),
            At::End => return Call::done(Ok(Vec::new())),
        };
        let words: Result<Words> = words.map(|words| words.and("COUNT").and(max.to_string()));
        let words =
            words.map(|words| iteration.lease.iter().fold(words, |words, ms| words.and("LEASE").and(ms.to_string())));
        let (here_place, go_on) = (Arc::clone(&place), command());
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            let mut within = of.as_ref().ok_or_else(elsewhere)?.within(transaction);
            let mut at = lock(&here_place);
            if let At::Begin(wanted) = &*at {
                *at = At::Here(Box::new(within.iterate(wanted)?));
            }
            let At::Here(iteration) = &mut *at else { return Err(elsewhere()) };
            Ok(Came::Done(within.next_of(iteration, lock_as, max)?))
        };
        let read = move |reply: Reply| {
            let [cursor, found] = reply.items()?;
            let (found, cursor) = (read::entries(found)?, cursor.text()?);
            *lock(&place) = match &*cursor {
                "0" => At::End,
                cursor => At::There(go_on.and("CURSOR").and(cursor.as_bytes())),
            };
            Ok(found)
        };
        self.run(one(here, words, Duration::ZERO, read))
    }
}
