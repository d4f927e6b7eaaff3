//! A transaction that stays open: what it takes and reads is locked while the program thinks.
//!
//! In the process it is a transaction of the store; on a server it is one of a connection, which nobody else uses meanwhile. Where
//! it is lies in a slot, out of which an operation takes it and back into which it comes: so there is one operation at a time, and an
//! operation that is given up leaves nothing there, which ends the transaction.
//!
//!   Here | There  --an operation-->  Busy  --its answer-->  Here | There, or Ended, or Broken by the connection
//!
//! May use: `call`, `embedded`, `remote`, `entries`, the facade. Must not know: sockets.

mod deciding;
mod iterate;
mod keys;
mod many;
mod slot;
mod through;

use std::time::Duration;

use holdfast::space::{
    self, Bookmark, Cancel, Change, Changed, Document, Entry, ReadLock, ReadOptions, Taking, Value, Wanted,
    WriteOptions, Written,
};
use holdfast::{Committed, Condition, Durability, Error, ErrorKind, Head, Position, PutOptions, Result, Shown};

use crate::call::{Call, How, Step};
use crate::client::Place;
use crate::embedded::Embedded;
use crate::entries::{At, Entries, check_changes};
use crate::remote::{Alone, Reply, Words};
use crate::series::{Point, SeriesName};
use crate::{kv, read, scripts, series};
pub use iterate::WithinIteration;
use slot::{Away, Slot, State};
pub use through::Through;

/// How long a server waits for the lock of another transaction.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How a transaction goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionOptions {
    /// How long it may hold locks, from the first entry that it touches: then it is rolled back, and fails with `Timeout`. A minute
    /// unless said; a server allows an hour.
    pub lease: Duration,
    /// What reading an entry locks: nothing, it for others' changes (unless said), or it for all others.
    pub isolation: ReadLock,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self { lease: Duration::from_secs(60), isolation: ReadLock::Shared }
    }
}

/// Whether an operation in the process may wait.
enum Patience {
    None,
    Full(Cancel),
}

impl Patience {
    fn lock_timeout(&self, asked: Option<Duration>) -> Option<Duration> {
        if matches!(self, Self::None) { Some(Duration::ZERO) } else { asked }
    }

    fn reading(&self, options: &ReadOptions) -> ReadOptions {
        match self {
            Self::None => ReadOptions { wait: None, ..options.clone() },
            Self::Full(cancel) => {
                let cancel = options.cancel.clone().unwrap_or_else(|| cancel.clone());
                ReadOptions { cancel: Some(cancel), ..options.clone() }
            }
        }
    }
}

/// What an operation in the process came to.
enum Came<T> {
    Done(T),
    /// Nothing was there, which is its answer unless it may wait.
    Nothing(T),
}

impl<T> Came<T> {
    fn value(self) -> T {
        match self {
            Self::Done(value) | Self::Nothing(value) => value,
        }
    }
}

/// An operation on both sides.
struct Operation<T, H, R> {
    /// In the process; it may be tried twice, and changes nothing the first time when it would have to wait.
    here: H,
    /// What a server is asked.
    words: Result<Words>,
    /// How much longer than others it may take there.
    block: Duration,
    read: R,
    answer: std::marker::PhantomData<fn() -> T>,
}

/// A transaction that holds what it reads and takes while the program thinks: from [`Client::begin`](crate::Client::begin). It
/// sees its own changes, nobody else does before [`Transaction::commit`], which makes one batch of the journal of all of it;
/// dropping it rolls it back, and so does its lease when it ends. Versions of what it has written itself are 0: they are known when it is
/// committed.
///
/// One operation at a time: wait for the answer before the next. An operation that fails ends the transaction, which is rolled back,
/// and so does dropping a call that was sent.
#[must_use = "a transaction that is not committed is rolled back"]
pub struct Transaction {
    place: Place,
    slot: Slot,
    isolation: ReadLock,
}

impl Transaction {
    pub(crate) fn begin(place: &Place, options: &TransactionOptions) -> Call<Self> {
        let TransactionOptions { lease, isolation } = *options;
        if lease.is_zero() {
            return Call::done(Err(Error::new(ErrorKind::Invalid, "a lease has to be longer than nothing")));
        }
        let this = move |place: &Place, state| Self { place: place.clone(), slot: Slot::new(state), isolation };
        match place {
            Place::Here(here) => {
                let store = here.store().clone();
                let place = place.clone();
                Call::new(move |_| {
                    let transaction = store.begin().with_lease(lease).joining();
                    Step::Done(Ok(this(&place, State::Here(Box::new(transaction)))))
                })
            }
            Place::There(there) => {
                let name = match isolation {
                    ReadLock::None => "COMMITTED",
                    ReadLock::Shared => "REPEATABLE",
                    ReadLock::Exclusive => "EXCLUSIVE",
                };
                let lease_ms = u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
                let words = Words::new("TX.BEGIN").and("LEASE").and(lease_ms.to_string()).and("ISOLATION").and(name);
                let place = place.clone();
                there.alone(&words).then(move |(alone, reply)| {
                    // Its id, for clients that share connections.
                    reply.unsigned()?;
                    Ok(this(&place, State::There(Box::new(alone))))
                })
            }
        }
    }

    /// The entries in the process.
    fn of(&self, entries: &Entries) -> Result<Option<space::Entries>> {
        match (&self.place, &entries.at) {
            (Place::Here(_), At::Here(_, entries)) => Ok(Some(entries.clone())),
            (Place::There(_), At::There(..)) => Ok(None),
            _ => Err(elsewhere()),
        }
    }

    /// Runs an operation, where the transaction is.
    fn run<T, H, R>(&mut self, operation: Operation<T, H, R>) -> Call<T>
    where
        T: Send + 'static,
        H: Fn(&mut holdfast::Transaction, &Patience) -> Result<Came<T>> + Send + 'static,
        R: FnOnce(Reply) -> Result<T> + Send + 'static,
    {
        let (place, slot) = (self.place.clone(), self.slot.clone());
        Call::new(move |how| match (slot.take(), place) {
            (Err(error), _) => Step::Done(Err(error)),
            (Ok((State::Here(transaction), away)), Place::Here(here)) => {
                run_here(how, &here, (transaction, away), operation.here)
            }
            (Ok((State::There(alone), away)), _) => match operation.words {
                Err(error) => {
                    away.put(State::There(alone));
                    Step::Done(Err(error))
                }
                Ok(words) => Step::Running(Box::pin(run_there(alone, away, words, operation.block, operation.read))),
            },
            (Ok(_), _) => Step::Done(Err(elsewhere())),
        })
    }

    /// Writes an entry; one that is there is locked. See [`Entries::write`].
    ///
    /// # Errors
    /// As there; `Conflict` also when this and other transactions wait for each other: give it up, and begin again; `Timeout` also
    /// when the transaction's lease has ended.
    pub fn write(&mut self, entries: &Entries, document: &Document, options: &WriteOptions) -> Call<Written> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.write_words(document, options);
        let (document, options) = (document.clone(), options.clone());
        let here = move |transaction: &mut holdfast::Transaction, patience: &Patience| {
            let lock_timeout = patience.lock_timeout(options.lock_timeout);
            let options = WriteOptions { lock_timeout, ..options.clone() };
            let written = of.as_ref().ok_or_else(elsewhere)?.within(transaction).write(&document, &options)?;
            Ok(Came::Done(Written { version: Position::ZERO, ..written }))
        };
        self.run(one(here, words, LOCK_TIMEOUT, read::written))
    }

    /// Changes an entry in place, which is locked. See [`Entries::change`].
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn change(
        &mut self,
        entries: &Entries,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
    ) -> Call<Option<Changed>> {
        let of = match self.of(entries).and_then(|of| check_changes(changes).map(|()| of)) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.change_words(wanted, changes, options);
        let (wanted, changes, options) = (wanted.clone(), changes.to_vec(), options.clone());
        let here = move |transaction: &mut holdfast::Transaction, patience: &Patience| {
            let lock_timeout = patience.lock_timeout(options.lock_timeout);
            let options = WriteOptions { lock_timeout, ..options.clone() };
            let mut within = of.as_ref().ok_or_else(elsewhere)?.within(transaction);
            let changed = within.change(&wanted, &changes, &options)?;
            let now = |entry: Entry| Entry { version: Position::ZERO, ..entry };
            Ok(Came::Done(changed.map(|Changed { before, now: is }| Changed { before, now: now(is) })))
        };
        self.run(one(here, words, LOCK_TIMEOUT, read::changed))
    }

    /// Reads an entry, which is locked as the transaction's isolation says. See [`Entries::read`].
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn read(&mut self, entries: &Entries, wanted: &Wanted, options: &ReadOptions) -> Call<Option<Entry>> {
        self.get(entries, wanted, options, Taking::Read)
    }

    /// Takes an entry: nobody else gets it, and it is gone when the transaction commits. See [`Entries::take`].
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn take(&mut self, entries: &Entries, wanted: &Wanted, options: &ReadOptions) -> Call<Option<Entry>> {
        self.get(entries, wanted, options, Taking::Take)
    }

    fn get(
        &mut self,
        entries: &Entries,
        wanted: &Wanted,
        options: &ReadOptions,
        taking: Taking,
    ) -> Call<Option<Entry>> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = entries.get_words(wanted, options, taking);
        let (wanted, options, lock) = (wanted.clone(), options.clone(), self.isolation);
        let block = options.wait.unwrap_or_default();
        let here = move |transaction: &mut holdfast::Transaction, patience: &Patience| {
            let mut within = of.as_ref().ok_or_else(elsewhere)?.within(transaction);
            let reading = patience.reading(&options);
            let found = match taking {
                Taking::Read => within.read(&wanted, lock, &reading)?,
                Taking::Take => within.take(&wanted, &reading)?,
            };
            let may_come = found.is_none() && options.wait.is_some();
            Ok(if may_come { Came::Nothing(found) } else { Came::Done(found) })
        };
        self.run(one(here, words, block, read::some_entry))
    }

    /// Runs a script on the server within this transaction: it sees what that has done, and what it does is done by it. See
    /// [`Scripts::eval`](crate::Scripts::eval).
    ///
    /// # Errors
    /// As there, and the transaction is rolled back then; `Timeout` also when it writes to an entry that another has locked, for which a
    /// script does not wait.
    pub fn eval(&mut self, script: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Call<Value> {
        self.run_script("EVAL", script, keys, arguments)
    }

    /// Runs a function of a library on the server within this transaction, as [`Transaction::eval`] runs a script.
    ///
    /// # Errors
    /// As there; `Invalid` when there is no such function.
    pub fn call_function(&mut self, function: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Call<Value> {
        self.run_script("FCALL", function, keys, arguments)
    }

    fn run_script(&mut self, command: &str, what: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Call<Value> {
        if matches!(self.place, Place::Here(_)) {
            return scripts::only_there();
        }
        let words = Ok(scripts::words(command, what, keys, arguments));
        let here = |_: &mut holdfast::Transaction, _: &Patience| Err(elsewhere());
        self.run(one(here, words, Duration::ZERO, scripts::value))
    }

    /// Notes that a listener by name has done with all up to a bookmark: [`Entries::acknowledge`], with what else the transaction does, so
    /// that events are done with exactly once.
    ///
    /// # Errors
    /// As there. Of two transactions that acknowledge for one listener at the same time the second to commit fails with `Conflict`.
    pub fn acknowledge(&mut self, entries: &Entries, name: &str, bookmark: Bookmark) -> Call<()> {
        let of = match self.of(entries) {
            Ok(of) => of,
            Err(error) => return Call::done(Err(error)),
        };
        let words = Ok(entries.acknowledge_words(name, bookmark));
        let name = name.to_owned();
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            let of = of.as_ref().ok_or_else(elsewhere)?;
            of.acknowledge_within(transaction, &name, bookmark).map(Came::Done)
        };
        self.run(one(here, words, Duration::ZERO, Reply::ok))
    }

    /// The value of an object. Keys are not locked: the commit fails with `Conflict` when somebody has changed by then what was read of
    /// them.
    ///
    /// # Errors
    /// `Conflict` when somebody has changed it since this transaction read it first.
    pub fn get_value(&mut self, bucket: &[u8], key: &[u8]) -> Call<Option<Vec<u8>>> {
        let words = Ok(kv::named("KV.GET", bucket, key));
        let (bucket, key) = (bucket.to_vec(), key.to_vec());
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            Ok(Came::Done(transaction.get(&bucket, &key)?.map(|object| object.value.to_vec())))
        };
        self.run(one(here, words, Duration::ZERO, |reply: Reply| {
            let Some(object) = reply.some()? else { return Ok(None) };
            let [value, _, _] = object.items()?;
            value.bytes().map(Some)
        }))
    }

    /// What is known of an object.
    ///
    /// # Errors
    /// As [`Transaction::get_value`].
    pub fn head(&mut self, bucket: &[u8], key: &[u8]) -> Call<Option<Head>> {
        let words = Ok(kv::named("KV.HEAD", bucket, key));
        let (bucket, key) = (bucket.to_vec(), key.to_vec());
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            let known = |head: Head| if head.version == Position::MAX { Position::ZERO } else { head.version };
            let head = transaction.head(&bucket, &key)?;
            Ok(Came::Done(head.map(|head| Head { version: known(head.clone()), ..head })))
        };
        let read = |reply: Reply| reply.some()?.map(|reply| kv::read_head(&reply)).transpose();
        self.run(one(here, words, Duration::ZERO, read))
    }

    /// Puts an object. See [`Kv::put`](crate::Kv::put).
    ///
    /// # Errors
    /// As there, and [`Transaction::get_value`].
    pub fn put(&mut self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Call<()> {
        let words = match &self.place {
            Place::There(there) => there.check_bytes("value", value.len()),
            Place::Here(_) => Ok(()),
        };
        let words = words.map(|()| kv::put_words(bucket, key, value, options));
        let (bucket, key, value, options) = (bucket.to_vec(), key.to_vec(), value.to_vec(), options.clone());
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            transaction.put(&bucket, &key, &value, &options).map(Came::Done)
        };
        self.run(one(here, words, Duration::ZERO, |reply| kv::read_put(reply).map(|_| ())))
    }

    /// Removes an object; whether it was there.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold; as [`Transaction::get_value`].
    pub fn delete(&mut self, bucket: &[u8], key: &[u8], condition: Condition) -> Call<bool> {
        let words = Ok(kv::delete_words(bucket, key, condition));
        let (bucket, key) = (bucket.to_vec(), key.to_vec());
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            kv::check(condition, transaction.head(&bucket, &key)?.as_ref())?;
            transaction.delete(&bucket, &key).map(Came::Done)
        };
        self.run(one(here, words, Duration::ZERO, |reply| Ok(kv::read_delete(reply)?.is_some())))
    }

    /// Writes points. See [`Series::write`](crate::Series::write).
    ///
    /// # Errors
    /// As there; that a series has another kind of value is told by the commit.
    pub fn add_points(&mut self, points: &[(SeriesName, Point)]) -> Call<()> {
        let words = series::add_words(points, None);
        let (points, wrong) = (points.to_vec(), words.as_ref().err().cloned());
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            wrong.clone().map_or(Ok(()), Err)?;
            series::add_rows(transaction.points(), &points).map(Came::Done)
        };
        self.run(one(here, words, Duration::ZERO, series::read_added))
    }

    /// Whether an operation of it found that the connection to the server had broken: it is rolled back, and whoever goes on as
    /// if that were the fault of what he was doing is wrong. Never in the process.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.slot.is_broken()
    }

    /// Makes all of it happen: the version of everything durable that it changed. What is volatile has one of its own, known by reading.
    ///
    /// # Errors
    /// `Conflict` when somebody has changed what it read of keys: nothing has happened, begin again. `Timeout` when its lease had ended.
    /// `Unknown` when the connection broke before the answer: it happened as a whole or not at all, which is known by reading.
    pub fn commit(self, durability: Option<Durability>) -> Call<Position> {
        let words = Words::new("TX.COMMIT").durability(durability);
        let Self { place, slot, .. } = self;
        Call::new(move |how| match (slot.take(), place) {
            (Err(error), _) => Step::Done(Err(error)),
            (Ok((State::Here(transaction), _away)), Place::Here(here)) => {
                let durability = durability.unwrap_or(here.store().durability());
                commit_here(*transaction, &here, durability).step(how)
            }
            (Ok((State::There(alone), _away)), _) => {
                Step::Running(Box::pin(async move { commit_there(alone, &words, Duration::ZERO).await?.position() }))
            }
            (Ok(_), _) => Step::Done(Err(elsewhere())),
        })
    }

    /// Rolls it back, and waits until its locks are free. One that has ended is rolled back already.
    ///
    /// # Errors
    /// `Invalid` while an operation is under way.
    pub fn abort(self) -> Call<()> {
        Call::new(move |_| match self.slot.take() {
            Err(_) if self.slot.has_ended() => Step::Done(Ok(())),
            Err(error) => Step::Done(Err(error)),
            Ok((State::There(alone), _away)) => Step::Running(Box::pin(async move {
                // A connection that breaks has rolled it back too.
                let Ok((alone, reply)) = alone.ask(&Words::new("TX.ABORT"), Duration::ZERO).await else {
                    return Ok(());
                };
                alone.give_back();
                reply.ok()
            })),
            Ok((state, _away)) => {
                drop(state);
                Step::Done(Ok(()))
            }
        })
    }
}

fn elsewhere() -> Error {
    Error::new(ErrorKind::Invalid, "the entries are not of the client that the transaction is of")
}

/// An operation about one thing.
fn one<T, H, R>(here: H, words: Result<Words>, block: Duration, read: R) -> Operation<T, H, R> {
    Operation { here, words, block, read, answer: std::marker::PhantomData }
}

type Taken = (Box<holdfast::Transaction>, Away);

/// Runs an operation on a store in the process: at once, or in another thread if it must wait and is awaited.
fn run_here<T: Send + 'static>(
    how: How,
    embedded: &Embedded,
    (mut transaction, away): Taken,
    here: impl Fn(&mut holdfast::Transaction, &Patience) -> Result<Came<T>> + Send + 'static,
) -> Step<T> {
    let full = Patience::Full(away.cancel.clone());
    if how == How::Wait {
        let ran = here(&mut transaction, &full).map(Came::value);
        return embedded.settle(how, back((transaction, away), ran), Some(embedded.store().durability()));
    }
    let this = embedded.clone();
    match here(&mut transaction, &Patience::None) {
        Ok(Came::Nothing(_)) => {}
        Err(error) if error.kind() == ErrorKind::Timeout => {}
        ran => {
            let ran = back((transaction, away), ran.map(Came::value));
            return Step::Running(Box::pin(async move { shown(&this, ran).await }));
        }
    }
    let waiting = this.off_for_lock(move || {
        let ran = here(&mut transaction, &full).map(Came::value);
        Ok((transaction, ran))
    });
    Step::Running(Box::pin(async move {
        let (transaction, ran) = waiting.await?;
        shown(&this, back((transaction, away), ran)).await
    }))
}

/// Puts a transaction of a store in the process back, unless its operation has failed; the answer, and what it rests on.
fn back<T>((transaction, away): Taken, ran: Result<T>) -> Result<Shown<T>> {
    let position = transaction.seen();
    let value = ran.map_err(|error| error.resting_on(position))?;
    away.put(State::Here(transaction));
    Ok(Shown { value, position })
}

/// The answer, when it may be shown.
async fn shown<T>(embedded: &Embedded, ran: Result<Shown<T>>) -> Result<T> {
    embedded.answer(ran, Some(embedded.store().durability())).await
}

/// Asks the server that has the transaction.
async fn run_there<T>(
    alone: Box<Alone>,
    away: Away,
    words: Words,
    block: Duration,
    read: impl FnOnce(Reply) -> Result<T>,
) -> Result<T> {
    if let Err(error) = alone.remote().check_words(&words) {
        away.put(State::There(alone));
        return Err(error);
    }
    let (alone, reply) = match alone.ask(&words, block).await {
        Ok(answered) => answered,
        Err(error) => {
            away.put(State::Broken);
            let text = format!("{error}; the transaction was rolled back: begin again");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
    };
    if let Reply::Error(_) = reply {
        // It is rolled back there, and its connection as good as before once that is acknowledged.
        if let Ok((alone, Reply::Bytes(_))) = alone.ask(&Words::new("TX.ABORT"), Duration::ZERO).await {
            alone.give_back();
        }
        drop(away);
        return read(reply);
    }
    away.put(State::There(Box::new(alone)));
    read(reply)
}

/// What the server answers that has it, which takes so much longer than others may.
async fn commit_there(alone: Box<Alone>, words: &Words, block: Duration) -> Result<Reply> {
    let (alone, reply) = alone.ask(words, block).await.map_err(|error| {
        let text = format!("{error}; the transaction happened as a whole or not at all");
        Error::new(ErrorKind::Unknown, text)
    })?;
    alone.give_back();
    Ok(reply)
}

fn commit_here(mut transaction: holdfast::Transaction, here: &Embedded, durability: Durability) -> Call<Position> {
    let points = transaction.points().len();
    let commit = move || {
        let Committed { position } = transaction.commit_no_wait()?;
        Ok(Shown { value: position, position })
    };
    here.shown_with_room(points, durability, commit)
}
