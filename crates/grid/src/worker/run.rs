//! What one worker's thread does.
//!
//! An entry that failed and whose time has not come is *parked*: the transaction that took it next keeps it locked, and its
//! group with it, without a thread. So nobody else comes to it meanwhile, in whatever program, and a group keeps its order. To let
//! go of it and remember its time would be enough for nothing: it is the first that is taken next.
//!
//! A connection that breaks is nobody's failure. The server has rolled the transaction back; the thread begins again, with pauses that
//! grow, and comes to the entry anew as everybody does.
//!
//! May use: `failures`. Must not know: how workers are started.

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use client::{Transaction, TransactionOptions};
use holdfast::space::{Document, Entry, Order, ReadOptions, Value, WriteMode, WriteOptions, key_of};
use holdfast::{Error, ErrorKind, Result};

use super::failures::{Event, Next};
use super::{Cause, Failure, Shared};
use crate::backoff::Backoff;

/// Longest wait for an entry: an entry that was parked by another thread is looked after as often.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// Pauses while the store is in trouble. Not those of entries that fail, which may be hours: a server that is back is to be found.
const TROUBLE: Backoff = Backoff { first: Duration::from_millis(10), max: Duration::from_secs(2) };

/// An entry that is to be tried again later.
pub(super) struct Parked {
    due: Instant,
    /// What keeps the entry locked.
    transaction: Transaction,
}

impl PartialEq for Parked {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Parked {}

impl PartialOrd for Parked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Parked {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first, and that is to be the one due first.
        other.due.cmp(&self.due)
    }
}

impl Shared {
    pub(super) fn work(&self) {
        let mut troubles = 0;
        while !self.cancel.is_canceled() {
            match self.step() {
                Ok(()) => troubles = 0,
                // A server that closes is started again.
                Err(error) if error.kind() == ErrorKind::Closed && !self.client.is_remote() => {
                    self.state().stats.trouble = Some(error.to_string());
                    return;
                }
                Err(error) => {
                    troubles += 1;
                    self.state().stats.trouble = Some(error.to_string());
                    self.sleep_until(Instant::now() + TROUBLE.after(troubles));
                }
            }
        }
    }

    /// Sleeps, unless the workers are stopped.
    fn sleep_until(&self, end: Instant) {
        let mut state = self.state();
        while !self.cancel.is_canceled() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.stopped.wait_timeout(state, left);
            state = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn step(&self) -> Result<()> {
        let now = Instant::now();
        let mut state = self.state();
        let due = state.parked.peek().map(|parked| parked.due);
        if due.is_some_and(|due| due <= now) {
            let parked = state.parked.pop();
            drop(state);
            parked.into_iter().for_each(|parked| self.let_go(parked.transaction));
            return Ok(());
        }
        let is_full = state.parked.len() >= self.parked_max;
        let is_single = state.singly > 0;
        state.singly = state.singly.saturating_sub(1);
        drop(state);
        if let Some(due) = due.filter(|_| is_full) {
            self.sleep_until(due);
            return Ok(());
        }
        let left = due.map_or(IDLE_WAIT, |due| due.saturating_duration_since(now));
        // The transaction's lease runs while it waits for its first entry.
        let wait = left.min(IDLE_WAIT).min(self.options.lease / 4);
        self.take(wait, if is_single { 1 } else { self.options.batch_max })
    }

    /// Takes a batch, and does with it what is to be done.
    fn take(&self, wait: Duration, mut max: usize) -> Result<()> {
        loop {
            let begin = TransactionOptions { lease: self.options.lease, isolation: self.options.isolation };
            let Some(mut transaction) = self.client.begin(&begin).wait_unless(&self.cancel)? else { return Ok(()) };
            let batch = late(self.get(&mut transaction, wait, max))?;
            let attempts_max = self.options.dead_letters.as_ref().map(|_| self.options.attempts_max);
            let mut nexts = batch.iter().enumerate().map(|(at, entry)| {
                let next = self.state().failures.next(&self.key(entry), entry.version, attempts_max);
                (at, entry, next)
            });
            match nexts.find(|(_, _, next)| *next != Next::Handle) {
                None if batch.is_empty() => self.let_go(transaction),
                None => return self.handle(transaction, &batch),
                // What comes before is handled first, without this one; and this one alone, without what comes behind.
                Some((at, ..)) if batch.len() > 1 => {
                    max = at.max(1);
                    self.let_go(transaction);
                    continue;
                }
                Some((_, entry, Next::Bury { attempts, error })) => {
                    return self.bury(transaction, entry, attempts, &error);
                }
                Some((_, _, Next::Wait(due))) => self.park(transaction, due),
                Some((_, _, Next::Handle)) => {}
            }
            return Ok(());
        }
    }

    /// Waits for an entry, and takes what else there is.
    fn get(&self, transaction: &mut Transaction, wait: Duration, max: usize) -> Result<Vec<Entry>> {
        let mut options = ReadOptions { wait: Some(wait), ..ReadOptions::default() };
        let first = if self.client.is_remote() {
            let taken = transaction.take(&self.entries, &self.wanted, &options).wait_unless(&self.cancel);
            taken.map(Option::flatten)
        } else {
            // In this thread, where as many as there are may wait.
            options.cancel = Some(self.cancel.clone());
            transaction.take(&self.entries, &self.wanted, &options).wait()
        };
        let Some(first) = first? else { return Ok(Vec::new()) };
        let mut batch = vec![first];
        if max > 1 {
            batch.extend(transaction.take_many(&self.entries, &self.wanted, max - 1).wait()?);
        }
        Ok(batch)
    }

    /// Rolls a transaction back, and waits until others can have its entries, so that a group or a queue goes on with the same one.
    fn let_go(&self, transaction: Transaction) {
        // One that cannot be rolled back is with its connection.
        let _ = transaction.abort().wait_unless(&self.cancel);
    }

    /// Keeps the entry locked until its time comes. Then it is let go of and taken anew, with a whole lease. A lease that ends
    /// before lets go of it too early, and whoever takes it then parks it again.
    fn park(&self, transaction: Transaction, due: Instant) {
        if self.entries.definition().order == Order::Fifo {
            // Nothing may overtake it.
            self.sleep_until(due);
            self.let_go(transaction);
        } else {
            self.state().parked.push(Parked { due, transaction });
        }
    }

    fn key(&self, entry: &Entry) -> Vec<u8> {
        let id = entry.document.get(&self.entries.definition().id);
        id.map(key_of).unwrap_or_default()
    }

    /// Hands entries to the handler, and commits.
    fn handle(&self, mut transaction: Transaction, batch: &[Entry]) -> Result<()> {
        for entry in batch {
            // What the handler had of the transaction is dropped, and what it has of its own is its own.
            let handled = catch_unwind(AssertUnwindSafe(|| (self.handler)(&mut transaction, entry)));
            let failure = match handled {
                Ok(Ok(())) => continue,
                Ok(Err(failure)) => failure,
                Err(panic) => {
                    self.state().stats.panicked += 1;
                    Failure::new(format!("the handler panicked: {}", said(&*panic)))
                }
            };
            if transaction.is_broken() {
                // Whatever the handler says of it.
                return Err(Error::new(ErrorKind::Unavailable, failure.text));
            }
            // Noted before the entry is free again, so that nobody gets it without its wait.
            self.note(entry, &failure);
            self.let_go(transaction);
            return Ok(());
        }
        if transaction.is_broken() {
            return Err(Error::new(ErrorKind::Unavailable, "the connection broke while an entry was handled"));
        }
        match transaction.commit(Some(self.options.durability)).wait() {
            Ok(_) => {
                let mut state = self.state();
                batch.iter().for_each(|entry| state.failures.forget(&self.key(entry)));
                state.stats.handled += batch.len() as u64;
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => {
                self.state().stats.unknown += batch.len() as u64;
                Err(error)
            }
            Err(error) if error.kind() == ErrorKind::Closed => Err(error),
            Err(error) => {
                match batch {
                    [entry] => self.note(entry, &Failure::from(error)),
                    _ => self.state().singly += batch.len(),
                }
                Ok(())
            }
        }
    }

    fn note(&self, entry: &Entry, failure: &Failure) {
        let event = Event { version: entry.version, error: &failure.text, counts: failure.cause == Cause::Entry };
        let mut state = self.state();
        state.failures.note(self.key(entry), &event, |tries| self.options.backoff.after(tries));
        if failure.cause == Cause::Conflict {
            state.stats.conflicts += 1;
        } else {
            state.stats.failed += 1;
        }
    }

    /// Makes a dead letter of an entry.
    fn bury(&self, mut transaction: Transaction, entry: &Entry, attempts: u32, error: &str) -> Result<()> {
        let Some(letters) = &self.options.dead_letters else { return Ok(()) };
        let definition = self.entries.definition();
        let letter = Document::from_pairs([
            ("space", Value::from(definition.space.as_str())),
            ("type", Value::from(definition.name.as_str())),
            ("entry", Value::Map(entry.document.to_fields())),
            ("attempts", Value::I64(attempts.into())),
            ("error", Value::from(error)),
        ]);
        let insert = WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
        transaction.write(letters, &letter, &insert).wait()?;
        transaction.commit(Some(self.options.durability)).wait()?;
        let mut state = self.state();
        state.failures.forget(&self.key(entry));
        state.stats.dead += 1;
        Ok(())
    }
}

/// A lease that ended while nothing was taken yet is no trouble.
fn late(taken: Result<Vec<Entry>>) -> Result<Vec<Entry>> {
    taken.or_else(|error| if error.kind() == ErrorKind::Timeout { Ok(Vec::new()) } else { Err(error) })
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_says_what_it_said() {
        let caught = |panics: fn()| said(&*catch_unwind(panics).unwrap_err());
        assert_eq!(caught(|| panic!("plain")), "plain");
        assert_eq!(caught(|| panic!("number {}", 1)), "number 1");
        assert_eq!(caught(|| std::panic::panic_any(1)), "without a text");
    }

    #[test]
    fn conflicts_and_stores_that_are_away_are_told_from_failures_also_within_other_errors() {
        #[derive(Debug)]
        struct Ours(Error);
        impl std::fmt::Display for Ours {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("could not pay")
            }
        }
        impl std::error::Error for Ours {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        for (kind, cause) in [
            (ErrorKind::Conflict, Cause::Conflict),
            (ErrorKind::Unavailable, Cause::Store),
            (ErrorKind::Unknown, Cause::Store),
            (ErrorKind::Limit, Cause::Entry),
            (ErrorKind::Timeout, Cause::Entry),
        ] {
            let error = Error::new(kind, "so it is");
            assert_eq!(Failure::from(error.clone()).cause, cause);
            let ours = Failure::from(Ours(error));
            assert_eq!((ours.cause, ours.text.as_str()), (cause, "could not pay"));
        }
        assert_eq!(Failure::from(std::fmt::Error).cause, Cause::Entry);
    }
}
