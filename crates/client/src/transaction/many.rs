//! Many entries within a transaction that stays open.
//!
//! May use: what `transaction` may. Must not know: sockets.

use std::time::Duration;

use holdfast::Result;
use holdfast::space::{Change, Document, Entry, Lease, ReadOptions, ToQuery, Value, Wanted, WriteOptions};

use super::{Came, LOCK_TIMEOUT, Patience, Transaction, elsewhere, one};
use crate::call::Call;
use crate::entries::{Entries, check_changes};
use crate::read;
use crate::remote::{Reply, Words};

impl Transaction {
    /// How many entries match, as this transaction would have it. Nothing is locked.
    ///
    /// # Errors
    /// As [`Entries::count`].
    pub fn count(&mut self, entries: &Entries, wanted: &Wanted) -> Call<u64> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.words("SPACE.COUNT").wanted(wanted);
        let wanted = wanted.clone();
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            Ok(Came::Done(of.as_ref().ok_or_else(elsewhere)?.within(transaction).count(&wanted)?))
        };
        self.run(one(here, words, Duration::ZERO, |reply: Reply| reply.unsigned()))
    }

    /// Reads up to so many entries as this transaction would have them, in the order of [`Entries::read_many`], those that it has written
    /// itself last; on a server 10,000 at the most. They are locked as its isolation says, and those that another transaction has locked
    /// are passed over then.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn read_many(&mut self, entries: &Entries, wanted: &Wanted, max: usize) -> Call<Vec<Entry>> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        if max == 0 {
            return Call::done(Ok(Vec::new()));
        }
        let (max, words) = many_words(entries, "SPACE.MREAD", wanted, max);
        let (wanted, lock) = (wanted.clone(), self.isolation);
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            let mut within = of.as_ref().ok_or_else(elsewhere)?.within(transaction);
            Ok(Came::Done(within.read_many(&wanted, lock, max)?))
        };
        self.run(one(here, words, Duration::ZERO, read::entries))
    }

    /// Takes up to so many entries that are there, in order; on a server 10,000 at the most.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn take_many(&mut self, entries: &Entries, wanted: &Wanted, max: usize) -> Call<Vec<Entry>> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let (max, words) = many_words(entries, "SPACE.MTAKE", wanted, max);
        let wanted = wanted.clone();
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            let mut within = of.as_ref().ok_or_else(elsewhere)?.within(transaction);
            let mut taken = Vec::new();
            while taken.len() < max
                && let Some(entry) = within.take(&wanted, &ReadOptions::default())?
            {
                taken.push(entry);
            }
            Ok(Came::Done(taken))
        };
        self.run(one(here, words, Duration::ZERO, read::entries))
    }

    /// Answers a whole query as this transaction would have it: [`Entries::select`]. Nothing is locked; a server gives 10,000 documents at
    /// the most.
    ///
    /// # Errors
    /// As there.
    pub fn select(
        &mut self,
        entries: &Entries,
        query: &(impl ToQuery + ?Sized),
        parameters: &[Value],
    ) -> Call<Vec<Document>> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.select_words(query.sql(), parameters);
        // A server parses it by itself, and what is wrong with it is wrong within the transaction.
        let query = of.as_ref().map(|_| query.prepared());
        let parameters = parameters.to_vec();
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            let query = query.as_ref().ok_or_else(elsewhere)?.as_ref().map_err(Clone::clone)?;
            Ok(Came::Done(of.as_ref().ok_or_else(elsewhere)?.within(transaction).select(query, &parameters)?))
        };
        self.run(one(here, Ok(words), Duration::ZERO, read::documents))
    }

    /// Changes every entry that matches in place, on a server 10,000 at the most; returns how many. All are locked before the first is
    /// changed.
    ///
    /// # Errors
    /// As [`Transaction::change`]; `Limit` when more match.
    pub fn change_many(
        &mut self,
        entries: &Entries,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
    ) -> Call<u64> {
        let of = match self.of(entries).and_then(|of| check_changes(changes).map(|()| of)) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.change_many_words(wanted, changes, options);
        if words.is_err() {
            return Call::done(words.map(|_| 0));
        }
        let (wanted, changes, options) = (wanted.clone(), changes.to_vec(), options.clone());
        let here = move |transaction: &mut holdfast::Transaction, patience: &Patience| {
            let lock_timeout = patience.lock_timeout(options.lock_timeout);
            let options = WriteOptions { lock_timeout, ..options.clone() };
            let mut within = of.as_ref().ok_or_else(elsewhere)?.within(transaction);
            Ok(Came::Done(within.change_many(&wanted, &changes, &options, usize::MAX)?))
        };
        self.run(one(here, words, LOCK_TIMEOUT, |reply: Reply| reply.unsigned()))
    }

    /// Removes all entries that match and that nobody else has locked, on a server 10,000 at the most; returns how many. They go when the
    /// transaction commits.
    ///
    /// # Errors
    /// As [`Transaction::take`]; `Limit` when more match.
    pub fn clear(&mut self, entries: &Entries, wanted: &Wanted) -> Call<u64> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.words("SPACE.CLEAR").wanted(wanted);
        let wanted = wanted.clone();
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            Ok(Came::Done(of.as_ref().ok_or_else(elsewhere)?.within(transaction).clear(&wanted, usize::MAX)?))
        };
        self.run(one(here, words, Duration::ZERO, |reply: Reply| reply.unsigned()))
    }

    /// Ends the lease of the entry that is wanted by its id at another time, when the transaction commits; it is locked until then. False if
    /// there is no such entry.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn renew(&mut self, entries: &Entries, wanted: &Wanted, lease: Lease) -> Call<bool> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.renew_words(wanted, lease);
        let wanted = wanted.clone();
        let here = move |transaction: &mut holdfast::Transaction, patience: &Patience| {
            let mut within = of.as_ref().ok_or_else(elsewhere)?.within(transaction);
            Ok(Came::Done(within.renew(&wanted, lease, patience.lock_timeout(None))?))
        };
        self.run(one(here, words, LOCK_TIMEOUT, |reply: Reply| Ok(reply.unsigned()? != 0)))
    }
}

/// How many entries a command about many may answer, and its words.
fn many_words(entries: &Entries, command: &str, wanted: &Wanted, max: usize) -> (usize, Result<Words>) {
    let max = wanted.limit().map_or(max, |limit| max.min(usize::try_from(limit).unwrap_or(usize::MAX)));
    let count = max.min(i64::MAX as usize).to_string();
    (max, entries.words(command).wanted(wanted).map(|words| words.and("COUNT").and(count)))
}
