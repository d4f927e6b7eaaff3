//! Operations of a batch on many entries, and queries and leases.
//!
//! May use: what `batch` may. Must not know: sockets.

use std::time::Duration;

use holdfast::space::{Change, Document, Entry, Lease, ReadLock, ReadOptions, Value, Wanted, WriteOptions};

use super::{Batch, Made, Within, elsewhere, now};
use crate::entries::{Entries, check_changes};
use crate::read;

impl Batch {
    /// Takes up to so many entries; on a server 10,000 at the most.
    pub fn take_many(&mut self, entries: &Entries, wanted: &Wanted, max: usize) -> Made<Vec<Entry>> {
        let here = self.of(entries);
        let (of_run, durability) = (wanted.clone(), self.durability);
        let max = wanted.limit().map_or(max, |limit| max.min(usize::try_from(limit).unwrap_or(usize::MAX)));
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            let mut within = entries.within(within.joined);
            let mut taken = Vec::new();
            while taken.len() < max
                && let Some(entry) = within.take(&of_run, &ReadOptions::default())?
            {
                taken.push(entry);
            }
            Ok(now(taken))
        };
        let words = || {
            let words = entries.words("SPACE.MTAKE").wanted(wanted)?.and("COUNT");
            Ok(words.and(max.min(i64::MAX as usize).to_string()).durability(durability))
        };
        self.step(run, words, read::entries)
    }

    /// Reads up to so many entries, as the batch would have them, in the order of [`Entries::read_many`], those that it has written itself
    /// last; on a server 10,000 at the most. They stay as they are until the batch has happened; those that a transaction has locked are
    /// passed over.
    pub fn read_many(&mut self, entries: &Entries, wanted: &Wanted, max: usize) -> Made<Vec<Entry>> {
        let here = self.of(entries);
        let of_run = wanted.clone();
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            if max == 0 {
                return Ok(now(Vec::<Entry>::new()));
            }
            Ok(now(entries.within(within.joined).read_many(&of_run, ReadLock::Shared, max)?))
        };
        let words = || {
            // A server counts from one: of what is left then nothing is shown.
            let words = entries.words("SPACE.MREAD").wanted(wanted)?.and("COUNT");
            Ok(words.and(max.clamp(1, i64::MAX as usize).to_string()))
        };
        self.step(run, words, move |reply| {
            let mut found = read::entries(reply)?;
            found.truncate(max);
            Ok(found)
        })
    }

    /// Answers a whole query, as the batch would have it: [`Entries::select`]. Nothing is locked; a server gives 10,000 documents at the
    /// most.
    pub fn select(&mut self, entries: &Entries, sql: &str, parameters: &[Value]) -> Made<Vec<Document>> {
        let here = self.of(entries);
        let of_run = (sql.to_owned(), parameters.to_vec());
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            let (sql, parameters) = of_run;
            Ok(now(entries.within(within.joined).select(&sql, &parameters)?))
        };
        self.step(run, || Ok(entries.select_words(sql, parameters)), read::documents)
    }

    /// Changes every entry that matches in place, on a server 10,000 at the most; how many. More, or one that a transaction has locked,
    /// make the whole fail.
    pub fn change_many(
        &mut self,
        entries: &Entries,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
    ) -> Made<u64> {
        let here = self.of(entries);
        let options = WriteOptions { durability: self.durability, lock_timeout: None, ..options.clone() };
        // What a server would refuse is refused everywhere.
        let words = check_changes(changes).and_then(|()| entries.change_many_words(wanted, changes, &options));
        if let Err(error) = &words {
            self.wrong.get_or_insert(error.clone());
        }
        let (of_run, all) = (wanted.clone(), changes.to_vec());
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..options };
            Ok(now(entries.within(within.joined).change_many(&of_run, &all, &at_once, usize::MAX)?))
        };
        self.step(run, || words, |reply| reply.unsigned())
    }

    /// Removes all entries that match and that no transaction has locked, on a server 10,000 at the most; how many. More make the whole
    /// fail.
    pub fn clear(&mut self, entries: &Entries, wanted: &Wanted) -> Made<u64> {
        let here = self.of(entries);
        let (of_run, durability) = (wanted.clone(), self.durability);
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            Ok(now(entries.within(within.joined).clear(&of_run, usize::MAX)?))
        };
        let words = || Ok(entries.words("SPACE.CLEAR").wanted(wanted)?.durability(durability));
        self.step(run, words, |reply| reply.unsigned())
    }

    /// Ends the lease of the entry that is wanted by its id at another time: [`Entries::renew`]. False if there is no such entry.
    pub fn renew(&mut self, entries: &Entries, wanted: &Wanted, lease: Lease) -> Made<bool> {
        let here = self.of(entries);
        let words = entries.renew_words(wanted, lease).map(|words| words.durability(self.durability));
        let of_run = wanted.clone();
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            Ok(now(entries.within(within.joined).renew(&of_run, lease, Some(Duration::ZERO))?))
        };
        self.step(run, || words, |reply| Ok(reply.unsigned()? != 0))
    }
}
