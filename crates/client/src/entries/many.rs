//! Operations on many entries, in the process or on a server.
//!
//! May use: as `entries`. Must not know: sockets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast::space::{
    self, Change, Document, Entry, Plan, ReadOptions, ToQuery, Usage, Value, Wanted, WriteOptions, Written,
};
use holdfast::{Durability, Error, ErrorKind, Position, Result, Shown};

use super::{At, Entries, check_cancel, check_changes};
use crate::call::{Call, How, Step};
use crate::read;
use crate::remote::{Again, Remote, Reply, Words};

/// Documents that go in one SPACE.MWRITE, and their bytes: a server's limits are far above.
const WRITES_MAX: (usize, usize) = (1_000, 8 << 20);
/// What a call waits for that does not block.
const NO_BLOCK: Option<Duration> = Some(Duration::ZERO);

fn failed<T: Send + 'static>(error: Error) -> Call<T> {
    Call::done(Err(error))
}

impl Entries {
    /// Writes several entries, each by itself: one that fails stops no other. To a server they go in parts of a thousand, all on
    /// the way at once; when the connection breaks, those of a part share what is known of it. For entries that transactions have locked a
    /// server waits 5 s at the most, for all of a part together, and `lock_timeout` if that is less: one that is locked still is a `Timeout`
    /// in its place, and the others are written.
    ///
    /// # Errors
    /// None for the whole; each entry has its own outcome.
    pub fn write_many(&self, documents: &[Document], options: &WriteOptions) -> Call<Vec<Result<Written>>> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, documents, options) = (entries.clone(), documents.to_vec(), options.clone());
                here.elsewhere_for_lock(move || Ok(entries.write_many(&documents, &options)))
            }
            At::There(there, _) => {
                let mut parts: Vec<Call<Vec<Result<Written>>>> = Vec::new();
                let mut rest = documents;
                while !rest.is_empty() {
                    let (part, next) = self.part(there, rest, options);
                    parts.push(part);
                    rest = next;
                }
                all(parts)
            }
        }
    }

    /// A call for the first of these documents, and those that are left.
    fn part<'d>(
        &self,
        there: &Remote,
        documents: &'d [Document],
        options: &WriteOptions,
    ) -> (Call<Vec<Result<Written>>>, &'d [Document]) {
        let (mut all, mut bytes, mut too_long) = (Vec::new(), 0, Vec::new());
        for (number, document) in documents.iter().enumerate().take(WRITES_MAX.0) {
            let packed = document.to_msgpack();
            if let Err(error) = there.check_bytes("document", packed.len()) {
                too_long.push((number, error));
                continue;
            }
            if bytes > 0 && bytes + packed.len() > WRITES_MAX.1 {
                break;
            }
            bytes += packed.len();
            all.push(packed);
        }
        let count = all.len() + too_long.len();
        let rest = documents.get(count..).unwrap_or_default();
        let outcomes = move |mut outcomes: Vec<Result<Written>>| {
            // In ascending order, so that each place is right when it is come to.
            for (number, error) in too_long {
                outcomes.insert(number.min(outcomes.len()), Err(error));
            }
            outcomes
        };
        if all.is_empty() {
            return (Call::done(Ok(outcomes(Vec::new()))), rest);
        }
        let mut words = self.words("SPACE.MWRITE").and(all.len().to_string());
        all.iter().for_each(|packed| words.add(packed));
        let sent = all.len();
        let call = there.call_outcome(&words.writing(options), Again::MustNot, move |reply| {
            let list = reply.and_then(Reply::list);
            Ok(outcomes(match list {
                Ok(list) if list.len() == sent => list.into_iter().map(read::written).collect(),
                Ok(list) => vec![Err(crate::remote::strange(&Reply::List(list))); sent],
                Err(error) => vec![Err(error); sent],
            }))
        });
        (call, rest)
    }

    /// Reads up to `max` entries: [`holdfast::space::Entries::read_many`]. A server gives 10,000 at the most: iterate for more.
    ///
    /// # Errors
    /// As there.
    pub fn read_many(&self, wanted: &Wanted, max: usize) -> Call<Vec<Entry>> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted) = (entries.clone(), wanted.clone());
                here.shown(self.durable(None), move || entries.read_many_shown(&wanted, max))
            }
            At::There(..) if max == 0 => Call::done(Ok(Vec::new())),
            At::There(there, _) => match self.words("SPACE.MREAD").wanted(wanted) {
                Ok(words) => {
                    let words = words.and("COUNT").and(max.min(i64::MAX as usize).to_string());
                    there.call_alone(&words, Again::May, NO_BLOCK, read::entries)
                }
                Err(error) => failed(error),
            },
        }
    }

    /// Takes up to `max` entries: [`holdfast::space::Entries::take_many`]. A server stops after 16 MiB of documents.
    ///
    /// # Errors
    /// As there.
    pub fn take_many(&self, wanted: &Wanted, max: usize, options: &ReadOptions) -> Call<Vec<Entry>> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted, options) = (entries.clone(), wanted.clone(), options.clone());
                let (this, here, wanted_first) = (self.clone(), here.clone(), wanted.clone());
                let durability = self.durable(options.durability);
                let max = wanted.limit().map_or(max, |limit| max.min(usize::try_from(limit).unwrap_or(usize::MAX)));
                Call::new(move |how| {
                    if how == How::Wait || max == 0 {
                        return Step::Done(entries.take_many(&wanted, max, &options));
                    }
                    // Waiting for the first costs no thread; the rest is there or not.
                    let now = ReadOptions { wait: None, ..options.clone() };
                    let rest = move |first: Option<Entry>| {
                        let Some(first) = first else { return Call::done(Ok(Vec::new())) };
                        here.elsewhere(move || {
                            // The first is durable already, and stays the caller's whatever becomes of the rest.
                            let mut taken = vec![Shown { value: first, position: Position::ZERO }];
                            let mut absence = Position::ZERO;
                            while taken.len() < max
                                && let Ok(Shown { value, position }) = entries.take_shown(&wanted, &now)
                            {
                                let Some(value) = value else {
                                    absence = position;
                                    break;
                                };
                                taken.push(Shown { value, position });
                            }
                            entries.taken(taken, absence, durability)
                        })
                    };
                    this.take(&wanted_first, &options).and_then(rest).step(how)
                })
            }
            At::There(..) if max == 0 => Call::done(Ok(Vec::new())),
            At::There(there, _) => {
                let words = check_cancel(options.cancel.as_ref()).and_then(|()| {
                    let words = self.words("SPACE.MTAKE").wanted(wanted)?;
                    Ok(words.and("COUNT").and(max.min(i64::MAX as usize).to_string()).reading(options))
                });
                match words {
                    Ok(words) => {
                        let block = Some(options.wait.unwrap_or_default());
                        there.call_alone(&words, Again::MustNot, block, read::entries)
                    }
                    Err(error) => failed(error),
                }
            }
        }
    }

    /// How many entries there are that match.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn count(&self, wanted: &Wanted) -> Call<u64> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted) = (entries.clone(), wanted.clone());
                here.shown(self.durable(None), move || entries.count_shown(&wanted))
            }
            At::There(there, _) => match self.words("SPACE.COUNT").wanted(wanted) {
                Ok(words) => there.call_alone(&words, Again::May, NO_BLOCK, |reply| reply.unsigned()),
                Err(error) => failed(error),
            },
        }
    }

    /// Removes all entries that match and no transaction has locked; returns how many.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn clear(&self, wanted: &Wanted, durability: Option<Durability>) -> Call<u64> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted) = (entries.clone(), wanted.clone());
                here.shown(self.durable(durability), move || entries.clear_shown(&wanted))
            }
            At::There(there, _) => match self.words("SPACE.CLEAR").wanted(wanted) {
                Ok(words) => {
                    there.call_alone(&words.durability(durability), Again::MustNot, NO_BLOCK, |reply| reply.unsigned())
                }
                Err(error) => failed(error),
            },
        }
    }

    /// Changes every entry that matches in place, each by itself; returns how many.
    ///
    /// # Errors
    /// As [`Entries::change`]; those before the error are changed.
    pub fn change_many(&self, wanted: &Wanted, changes: &[Change], options: &WriteOptions) -> Call<u64> {
        if let Err(error) = check_changes(changes) {
            return failed(error);
        }
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted) = (entries.clone(), wanted.clone());
                let (changes, options) = (changes.to_vec(), options.clone());
                here.elsewhere_for_lock(move || entries.change_many(&wanted, &changes, &options))
            }
            At::There(there, _) => match self.change_many_words(wanted, changes, options) {
                Ok(words) => there.call_alone(&words, Again::MustNot, NO_BLOCK, |reply| reply.unsigned()),
                Err(error) => failed(error),
            },
        }
    }

    pub(crate) fn change_many_words(
        &self,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
    ) -> Result<Words> {
        if options.version.is_some() {
            let text = "many entries have many versions: leave the version out";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let words = self.words("SPACE.MCHANGE").wanted(wanted)?;
        let words = words.changes(changes).lease(options.lease).lock_wait(options.lock_timeout);
        Ok(words.durability(options.durability))
    }

    /// Answers a whole query: [`holdfast::space::Entries::select`]. A server gives 10,000 documents at the most. It is sent the text, of a
    /// [`PreparedQuery`](space::PreparedQuery) too, and remembers what it has parsed.
    ///
    /// # Errors
    /// As there.
    pub fn select(&self, query: &(impl ToQuery + ?Sized), parameters: &[Value]) -> Call<Vec<Document>> {
        match &self.at {
            At::Here(here, entries) => {
                let query = match query.prepared() {
                    Ok(query) => query,
                    Err(error) => return failed(error),
                };
                let (entries, parameters) = (entries.clone(), parameters.to_vec());
                here.elsewhere(move || entries.select(&query, &parameters))
            }
            At::There(there, _) => {
                there.call_alone(&self.select_words(query.sql(), parameters), Again::May, NO_BLOCK, read::documents)
            }
        }
    }

    pub(crate) fn select_words(&self, sql: &str, parameters: &[Value]) -> Words {
        let mut words = self.words("SPACE.SELECT").and(sql).and(parameters.len().to_string());
        parameters.iter().for_each(|parameter| words.add(parameter.to_json()));
        words
    }

    /// How entries would be found, in each partition. A server tells which indexes, and how many candidates by each in all.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn explain(&self, wanted: &Wanted) -> Call<Vec<Plan>> {
        match &self.at {
            At::Here(_, entries) => Call::done(entries.explain(wanted)),
            At::There(there, _) => match self.words("SPACE.EXPLAIN").wanted(wanted) {
                Ok(words) => there.call(&words, Again::May, |reply| read::plans(&reply.good()?)),
                Err(error) => failed(error),
            },
        }
    }

    /// What the type takes of memory.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn usage(&self) -> Call<Usage> {
        match &self.at {
            At::Here(_, entries) => Call::done(Ok(entries.usage())),
            At::There(there, _) => {
                there.call(&self.words("SPACE.INFO"), Again::May, |reply| Ok(read::info(&reply.good()?)?.1))
            }
        }
    }

    /// How many wait for entries now.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn waiters(&self) -> Call<u64> {
        match &self.at {
            At::Here(_, entries) => Call::done(Ok(entries.waiters() as u64)),
            At::There(there, _) => {
                there.call(&self.words("SPACE.INFO"), Again::May, |reply| Ok(read::info(&reply.good()?)?.2))
            }
        }
    }

    /// Goes through all entries that match, a batch at a time: [`holdfast::space::Entries::iterate`]. A server remembers where for
    /// a minute after each batch, or as long as [`Iteration::with_lease`] says; then, and when it is started again, the next one fails with `Invalid`: begin anew.
    ///
    /// # Errors
    /// As there.
    pub fn iterate(&self, wanted: &Wanted) -> Call<Iteration> {
        match &self.at {
            At::Here(here, entries) => {
                let here = here.clone();
                let iteration = entries.iterate(wanted);
                Call::done(iteration.map(|all| Iteration(Through::Here(here, Arc::new(Mutex::new(all))))))
            }
            At::There(there, _) => match self.words("SPACE.ITERATE").wanted(wanted) {
                Ok(words) => {
                    let go_on = self.words("SPACE.ITERATE");
                    let place = Arc::new(Mutex::new(Some(words)));
                    Call::done(Ok(Iteration(Through::There { there: there.clone(), go_on, place, lease: None })))
                }
                Err(error) => failed(error),
            },
        }
    }
}

/// Goes through entries: from [`Entries::iterate`].
pub struct Iteration(Through);

enum Through {
    Here(crate::embedded::Embedded, Arc<Mutex<space::Iteration>>),
    There {
        there: Remote,
        go_on: Words,
        /// What asks for the next batch; `None` at the end.
        place: Arc<Mutex<Option<Words>>>,
        /// How long the server remembers where it is, in milliseconds.
        lease: Option<u64>,
    },
}

/// Longest that a server may be told to remember where one is in an iteration.
const LEASE_MAX: Duration = Duration::from_secs(3_600);

/// The milliseconds of such a time.
///
/// # Errors
/// `Invalid` when it is none that a server takes.
pub(crate) fn iteration_lease_ms(lease: Duration) -> Result<u64> {
    let ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 || lease > LEASE_MAX {
        let text = format!("the lease of an iteration is from 1 to {} milliseconds", LEASE_MAX.as_millis());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(ms)
}

impl Iteration {
    /// The same, remembered by a server for so long after each batch that is asked for from now on, instead of a minute. In the process it is
    /// remembered as long as it is there.
    ///
    /// # Errors
    /// `Invalid` when that is shorter than a millisecond, or longer than an hour.
    pub fn with_lease(self, lease: Duration) -> Result<Self> {
        let ms = iteration_lease_ms(lease)?;
        Ok(Self(match self.0 {
            Through::There { there, go_on, place, .. } => Through::There { there, go_on, place, lease: Some(ms) },
            here @ Through::Here(..) => here,
        }))
    }

    /// The next entries, at most so many; none at the end. A server gives 10,000 at the most.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn next(&mut self, max: usize) -> Call<Vec<Entry>> {
        match &self.0 {
            Through::Here(here, all) => {
                let all = Arc::clone(all);
                here.elsewhere(move || all.lock().unwrap_or_else(PoisonError::into_inner).next(max.max(1)))
            }
            Through::There { there, go_on, place, lease } => {
                let asked = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let Some(words) = asked else { return Call::done(Ok(Vec::new())) };
                let words = words.and("COUNT").and(max.clamp(1, i64::MAX as usize).to_string());
                let words = lease.iter().fold(words, |words, ms| words.and("LEASE").and(ms.to_string()));
                let (go_on, place) = (go_on.clone(), Arc::clone(place));
                there.call_alone(&words, Again::MustNot, NO_BLOCK, move |reply| {
                    let [cursor, found] = reply.items()?;
                    let found = read::entries(found)?;
                    let cursor = cursor.text()?;
                    let next = (cursor != "0").then(|| go_on.and("CURSOR").and(cursor.as_bytes()));
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = next;
                    Ok(found)
                })
            }
        }
    }
}

/// All of these, in their order: begun together.
fn all(parts: Vec<Call<Vec<Result<Written>>>>) -> Call<Vec<Result<Written>>> {
    Call::all(parts).then(|parts| Ok(parts.into_iter().flatten().collect()))
}

#[cfg(test)]
#[path = "many_tests.rs"]
mod tests;
