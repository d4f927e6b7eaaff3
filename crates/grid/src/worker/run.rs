//! What one worker's thread does.
//!
//! An entry that failed and whose time has not come is *parked*: the transaction that took it next keeps it locked, and its
//! group with it, without a thread. So nobody else comes to it meanwhile, and a group keeps its order.
//!
//! May use: `failures`. Must not know: how workers are started.

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use holdfast::space::{Document, Entry, Order, ReadOptions, Value, WriteMode, WriteOptions, key_of};
use holdfast::{Error, ErrorKind, Result, Transaction};

use super::failures::{Event, Next};
use super::{Failure, Shared};

/// Longest wait for an entry: an entry that was parked by another thread is looked after as often.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// Most entries that are parked. More failing entries than that wait for one another.
const PARKED_MAX: usize = 1024;

/// An entry that is to be tried again later.
pub(super) struct Parked {
    due: Instant,
    /// What keeps the entry locked.
    _transaction: Transaction,
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
                Err(error) if error.kind() == ErrorKind::Closed => {
                    self.state().stats.trouble = Some(error.to_string());
                    return;
                }
                Err(error) => {
                    troubles += 1;
                    self.state().stats.trouble = Some(error.to_string());
                    self.sleep_until(Instant::now() + self.options.backoff.after(troubles));
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
            drop(parked);
            return Ok(());
        }
        let is_full = state.parked.len() >= PARKED_MAX;
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
            let mut transaction = self.store.begin().with_lease(self.options.lease);
            let mut batch = Vec::new();
            let mut stops_at = None;
            let mut options =
                ReadOptions { wait: Some(wait), cancel: Some(self.cancel.clone()), ..ReadOptions::default() };
            while batch.len() < max {
                let taken = self.entries.within(&mut transaction).take(&self.wanted, &options);
                let Some(entry) = taken.or_else(|error| late(&error, error.clone()))? else { break };
                options.wait = None;
                let attempts_max = self.options.dead_letters.as_ref().map(|_| self.options.attempts_max);
                let next = self.state().failures.next(&self.key(&entry), entry.version, attempts_max);
                if next != Next::Handle {
                    stops_at = Some((entry, next));
                    break;
                }
                batch.push(entry);
            }
            match stops_at {
                None if batch.is_empty() => return Ok(()),
                None => return self.handle(transaction, &batch),
                // What comes before is handled first, without this one.
                Some(_) if !batch.is_empty() => max = batch.len(),
                Some((entry, Next::Bury { attempts, error })) => {
                    return self.bury(transaction, &entry, attempts, &error);
                }
                Some((_, Next::Wait(due))) => {
                    self.park(transaction, due);
                    return Ok(());
                }
                Some((_, Next::Handle)) => return Ok(()),
            }
        }
    }

    /// Keeps the entry locked until its time comes. Then it is let go of and taken anew, with a whole lease. A lease that ends
    /// before lets go of it too early, and whoever takes it then parks it again.
    fn park(&self, transaction: Transaction, due: Instant) {
        if self.entries.definition().order == Order::Fifo {
            // Nothing may overtake it.
            self.sleep_until(due);
        } else {
            self.state().parked.push(Parked { due, _transaction: transaction });
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
            // Noted before the entry is free again, so that nobody gets it without its wait.
            self.note(entry, &failure);
            return Ok(());
        }
        match transaction.commit(self.options.durability) {
            Ok(_) => {
                let mut state = self.state();
                batch.iter().for_each(|entry| state.failures.forget(&self.key(entry)));
                state.stats.handled += batch.len() as u64;
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Unavailable) => Err(error),
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
        let event = Event { version: entry.version, error: &failure.text, counts: !failure.is_conflict };
        let mut state = self.state();
        state.failures.note(self.key(entry), &event, |tries| self.options.backoff.after(tries));
        if failure.is_conflict {
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
        letters.within(&mut transaction).write(&letter, &insert)?;
        transaction.commit(self.options.durability)?;
        let mut state = self.state();
        state.failures.forget(&self.key(entry));
        state.stats.dead += 1;
        Ok(())
    }
}

/// A lease that ended while nothing was taken yet is no trouble.
fn late<T>(error: &Error, cause: Error) -> Result<Option<T>> {
    if error.kind() == ErrorKind::Timeout { Ok(None) } else { Err(cause) }
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
    fn conflicts_are_told_from_failures() {
        let conflict = Failure::from(Error::new(ErrorKind::Conflict, "again"));
        assert!(conflict.is_conflict && !Failure::from(Error::new(ErrorKind::Limit, "full")).is_conflict);
        assert!(!Failure::from(std::fmt::Error).is_conflict);
    }
}
