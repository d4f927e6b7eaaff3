//! Several operations that happen together or not at all, in spaces, keys and series.
//!
//! Nothing is sent before the commit: to a server all goes as one MULTI, in the process it is one batch under the locks of what
//! it names. So nobody else is held up while a program thinks, and a program that dies leaves nothing behind.
//!
//! May use: `entries`, `kv`, `series`, the facade. Must not know: sockets.

mod many;

use std::any::Any;
use std::marker::PhantomData;
use std::time::Duration;

use holdfast::series::Rows;
use holdfast::space::{
    Bookmark, Change, Changed, Document, Entry, ReadLock, ReadOptions, Taking, Wanted, WriteOptions, Written,
};
use holdfast::{
    Committed, Condition, Durability, Error, ErrorKind, Exclusive, Position, PutOptions, Result, Scope, Shown, Store,
    Transaction,
};

use crate::call::Call;
use crate::client::Place;
use crate::entries::{At, Entries, check_changes};
use crate::remote::{Again, Reply, Words};
use crate::series::{Point, SeriesName};
use crate::{kv, read, series};

type Answer = Box<dyn Any + Send>;
/// Makes the answer, now that the position of the batch is known.
type Late = Box<dyn FnOnce(Position) -> Answer + Send>;
type Run = Box<dyn FnOnce(&mut Within<'_, '_>) -> Result<Late> + Send>;
type Read = Box<dyn FnOnce(Reply) -> Result<Answer> + Send>;

/// Most operations of one batch.
const STEPS_MAX: usize = 60_000;

/// What steps in the process work with.
struct Within<'w, 's> {
    exclusive: &'w mut Exclusive<'s>,
    joined: &'w mut Transaction,
    rows: &'w mut Rows,
}

enum Steps {
    Here { run: Vec<Run>, keys: Vec<(Vec<u8>, Vec<u8>)> },
    There { words: Vec<Words>, read: Vec<Read> },
}

/// Operations that are to happen together or not at all: from [`Client::batch`](crate::Client::batch). They happen in the order
/// in which they were added, each sees what those before it did, and nothing waits: an entry that a transaction has locked, a
/// condition that does not hold or a document that cannot be makes the whole fail. Entries of volatile types happen with the rest, in memory; their
/// version is told as 0, and known by reading.
#[must_use = "nothing happens before the commit"]
pub struct Batch {
    place: Place,
    steps: Steps,
    durability: Option<Durability>,
    /// How many points it writes.
    points: usize,
    wrong: Option<Error>,
}

/// Stands for the answer to one operation of a batch: [`Done::take`] gives it.
#[derive(Debug)]
pub struct Made<T> {
    number: usize,
    of: PhantomData<fn() -> T>,
}

/// A batch that happened.
pub struct Done {
    /// The version of everything durable that it changed. What is volatile has one of its own, known by reading.
    pub position: Position,
    answers: Vec<Option<Result<Answer>>>,
}

impl Done {
    /// The answer to an operation of this batch; once.
    ///
    /// # Errors
    /// Those of an operation that failed by itself: points of a series with another kind of value, on a server.
    /// `Invalid` when it was taken, or is of another batch.
    pub fn take<T: 'static>(&mut self, made: Made<T>) -> Result<T> {
        let wrong = || Error::new(ErrorKind::Invalid, "this answer was taken already, or is of another batch");
        let answer = self.answers.get_mut(made.number).and_then(Option::take).ok_or_else(wrong)?;
        answer?.downcast().map(|answer| *answer).map_err(|_| wrong())
    }
}

/// The version of an entry that was written at this position. One that is in no journal has another, which is not known.
fn coming(is_durable: bool, position: Position) -> Position {
    if is_durable { position } else { Position::ZERO }
}

fn now<T: Send + 'static>(answer: T) -> Late {
    Box::new(move |_| Box::new(answer))
}

impl Batch {
    pub(crate) fn new(place: Place) -> Self {
        let steps = match &place {
            Place::Here(_) => Steps::Here { run: Vec::new(), keys: Vec::new() },
            Place::There(_) => Steps::There { words: Vec::new(), read: Vec::new() },
        };
        Self { place, steps, durability: None, points: 0, wrong: None }
    }

    /// How durable it is to be when its answer comes, for operations that are added from now on; on a server it is at least as
    /// durable as that does by itself.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    fn step<T: Send + 'static>(
        &mut self,
        run: impl FnOnce(&mut Within<'_, '_>) -> Result<Late> + Send + 'static,
        words: impl FnOnce() -> Result<Words>,
        read: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Made<T> {
        let number = match &mut self.steps {
            Steps::Here { run: all, .. } => {
                all.push(Box::new(run));
                all.len() - 1
            }
            Steps::There { words: all, read: reads } => {
                match words() {
                    Ok(words) => all.push(words),
                    // Told by the commit, which does nothing then.
                    Err(error) => {
                        self.wrong.get_or_insert(error);
                        all.push(Words::new("PING"));
                    }
                }
                reads.push(Box::new(move |reply| Ok(Box::new(read(reply)?))));
                all.len() - 1
            }
        };
        if number >= STEPS_MAX {
            let text = format!("a batch has {STEPS_MAX} operations at the most");
            self.wrong.get_or_insert(Error::new(ErrorKind::Limit, text));
        }
        Made { number, of: PhantomData }
    }

    /// The part of a type in the process.
    fn of(&mut self, entries: &Entries) -> Option<holdfast::space::Entries> {
        let is_same =
            matches!((&self.place, &entries.at), (Place::Here(_), At::Here(..)) | (Place::There(_), At::There(..)));
        if !is_same {
            let text = "the entries are not of the client that the batch is of";
            self.wrong.get_or_insert(Error::new(ErrorKind::Invalid, text));
        }
        if let At::Here(_, entries) = &entries.at { Some(entries.clone()) } else { None }
    }

    /// Writes an entry: [`Entries::write`].
    pub fn write(&mut self, entries: &Entries, document: &Document, options: &WriteOptions) -> Made<Written> {
        let here = self.of(entries);
        let options = WriteOptions { durability: self.durability, lock_timeout: None, ..options.clone() };
        let (of_run, asked) = (document.clone(), options.clone());
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..asked };
            let written = entries.within(within.joined).write(&of_run, &at_once)?;
            let is_durable = entries.is_durable();
            Ok(Box::new(move |position| {
                let version = coming(is_durable, position);
                Box::new(Written { version, ..written }) as Answer
            }) as Late)
        };
        self.step(run, || entries.write_words(document, &options), read::written)
    }

    /// Reads an entry, which stays as it is until the batch has happened.
    pub fn read(&mut self, entries: &Entries, wanted: &Wanted) -> Made<Option<Entry>> {
        self.get(entries, wanted, Taking::Read, None)
    }

    /// Takes an entry, if there is one.
    pub fn take(&mut self, entries: &Entries, wanted: &Wanted) -> Made<Option<Entry>> {
        self.get(entries, wanted, Taking::Take, None)
    }

    /// Takes the entry with this id and this version; the batch fails with `Conflict` if it has another, or is gone.
    pub fn take_version(&mut self, entries: &Entries, wanted: &Wanted, version: Position) -> Made<Option<Entry>> {
        self.get(entries, wanted, Taking::Take, Some(version))
    }

    fn get(
        &mut self,
        entries: &Entries,
        wanted: &Wanted,
        taking: Taking,
        version: Option<Position>,
    ) -> Made<Option<Entry>> {
        let here = self.of(entries);
        let options = ReadOptions { version, durability: self.durability, ..ReadOptions::default() };
        let (of_run, asked) = (wanted.clone(), options.clone());
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            let mut within = entries.within(within.joined);
            let found = match taking {
                Taking::Read => within.read(&of_run, ReadLock::Shared, &asked)?,
                Taking::Take => within.take(&of_run, &asked)?,
            };
            if found.is_none() && asked.version.is_some() {
                return Err(gone());
            }
            Ok(now(found))
        };
        self.step(
            run,
            || {
                let words = entries.get_words(wanted, &options, taking)?;
                Ok(if version.is_some() { words.and("STRICT") } else { words })
            },
            read::some_entry,
        )
    }

    /// Changes an entry in place: [`Entries::change`].
    pub fn change(
        &mut self,
        entries: &Entries,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
    ) -> Made<Option<Changed>> {
        let here = self.of(entries);
        if let Err(error) = check_changes(changes) {
            self.wrong.get_or_insert(error);
        }
        let options = WriteOptions { durability: self.durability, lock_timeout: None, ..options.clone() };
        let (of_run, asked, all) = (wanted.clone(), options.clone(), changes.to_vec());
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..asked };
            let changed = entries.within(within.joined).change(&of_run, &all, &at_once)?;
            let is_durable = entries.is_durable();
            Ok(Box::new(move |position| {
                let version = coming(is_durable, position);
                let changed = changed.map(|it: Changed| Changed { now: Entry { version, ..it.now }, ..it });
                Box::new(changed) as Answer
            }) as Late)
        };
        self.step(run, || entries.change_words(wanted, changes, &options), read::changed)
    }

    /// Notes that a listener by name has done with all up to a bookmark: [`Entries::acknowledge`], together with what was done about the
    /// events, so that each is done with exactly once.
    pub fn acknowledge(&mut self, entries: &Entries, name: &str, bookmark: Bookmark) -> Made<()> {
        let here = self.of(entries);
        if let Some(here) = &here {
            let (bucket, key) = here.listener_object(name);
            self.key(bucket, &key);
        }
        let of_run = name.to_owned();
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            within.exclusive.acknowledge(&entries, &of_run, bookmark).map(|()| now(()))
        };
        self.step(run, || Ok(entries.acknowledge_words(name, bookmark)), Reply::ok)
    }

    /// How many entries match, as the batch would have it.
    pub fn count(&mut self, entries: &Entries, wanted: &Wanted) -> Made<u64> {
        let here = self.of(entries);
        let (of_run, durability) = (wanted.clone(), self.durability);
        let run = move |within: &mut Within<'_, '_>| {
            let entries = here.ok_or_else(elsewhere)?;
            Ok(now(entries.within(within.joined).count(&of_run)?))
        };
        let words = || Ok(entries.words("SPACE.COUNT").wanted(wanted)?.durability(durability));
        self.step(run, words, |reply| reply.unsigned())
    }

    fn key(&mut self, bucket: &[u8], key: &[u8]) {
        if let Steps::Here { keys, .. } = &mut self.steps {
            keys.push((bucket.to_vec(), key.to_vec()));
        }
    }

    /// Puts an object: [`Kv::put`](crate::Kv::put). A condition that does not hold makes the whole fail.
    pub fn put(&mut self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Made<Committed> {
        self.key(bucket, key);
        if let Place::There(there) = &self.place
            && let Err(error) = there.check_bytes("value", value.len())
        {
            self.wrong.get_or_insert(error);
        }
        let (of_run, asked, durability) =
            ((bucket.to_vec(), key.to_vec(), value.to_vec()), options.clone(), self.durability);
        let run = move |within: &mut Within<'_, '_>| {
            let (bucket, key, value) = of_run;
            within.exclusive.put(&bucket, &key, &value, &asked)?;
            Ok(Box::new(|position| Box::new(Committed { position }) as Answer) as Late)
        };
        let words = || Ok(kv::put_words(bucket, key, value, options).durability(durability));
        self.step(run, words, kv::read_put)
    }

    /// Removes an object; whether it was there. A condition that does not hold makes the whole fail.
    pub fn delete(&mut self, bucket: &[u8], key: &[u8], condition: Condition) -> Made<bool> {
        self.key(bucket, key);
        let (of_run, durability) = ((bucket.to_vec(), key.to_vec()), self.durability);
        let run = move |within: &mut Within<'_, '_>| {
            let (bucket, key) = of_run;
            kv::check(condition, within.exclusive.head(&bucket, &key)?.as_ref())?;
            Ok(now(within.exclusive.delete(&bucket, &key)?))
        };
        let words = || Ok(kv::delete_words(bucket, key, condition).durability(durability));
        self.step(run, words, |reply| Ok(kv::read_delete(reply)?.is_some()))
    }

    /// The value of an object, as the batch would have it.
    pub fn get_value(&mut self, bucket: &[u8], key: &[u8]) -> Made<Option<Vec<u8>>> {
        self.key(bucket, key);
        let of_run = (bucket.to_vec(), key.to_vec());
        let run = move |within: &mut Within<'_, '_>| {
            let (bucket, key) = of_run;
            Ok(now(within.exclusive.get(&bucket, &key)?.map(|object| object.value.to_vec())))
        };
        let words = || Ok(Words::new("KV.GET").and(bucket).and(key));
        self.step(run, words, |reply| {
            let Some(object) = reply.some()? else { return Ok(None) };
            let [value, _, _] = object.items()?;
            value.bytes().map(Some)
        })
    }

    /// Writes points: [`Series::write`](crate::Series::write).
    pub fn add_points(&mut self, points: &[(SeriesName, Point)]) -> Made<()> {
        let (of_run, durability) = (points.to_vec(), self.durability);
        self.points += points.len();
        // What a server would refuse is refused everywhere.
        if let Err(error) = series::add_words(points, durability) {
            self.wrong.get_or_insert(error);
        }
        let run = move |within: &mut Within<'_, '_>| series::add_rows(within.rows, &of_run).map(|()| now(()));
        self.step(run, || series::add_words(points, durability), series::read_added)
    }

    /// Makes all of it happen.
    ///
    /// # Errors
    /// That of the first operation that failed: nothing has happened. `Unknown` when the connection broke before the answer:
    /// it happened as a whole or not at all, which is known by reading.
    pub fn commit(self) -> Call<Done> {
        if let Some(error) = self.wrong {
            return Call::done(Err(error));
        }
        match (self.place, self.steps) {
            (Place::Here(here), Steps::Here { run, keys }) => {
                let store = here.store().clone();
                let durability = self.durability.unwrap_or(store.durability());
                here.shown_with_room(self.points, durability, move || commit_here(&store, run, &keys))
            }
            (Place::There(there), Steps::There { words, read }) => {
                let mut all = vec![Words::new("MULTI")];
                all.extend(words);
                // A command that changes nothing, whose answer is the position of the batch.
                all.push(Words::new("EXEC").and("POSITION"));
                there.call_together(&all, Again::MustNot, move |replies| done(replies, read))
            }
            _ => Call::done(Err(elsewhere())),
        }
    }
}

fn elsewhere() -> Error {
    Error::new(ErrorKind::Invalid, "the entries are not of the client that the batch is of")
}

fn gone() -> Error {
    Error::new(ErrorKind::Conflict, "there is no entry with this id any more: read again")
}

fn commit_here(store: &Store, run: Vec<Run>, keys: &[(Vec<u8>, Vec<u8>)]) -> Result<Shown<Done>> {
    let mut scope: Vec<(&[u8], &[u8])> = keys.iter().map(|(bucket, key)| (bucket.as_slice(), key.as_slice())).collect();
    scope.sort_unstable();
    scope.dedup();
    let mut joined = store.begin().joining();
    let mut rows = Rows::new("default");
    let mut exclusive = store.exclusive(&Scope::Keys(&scope))?;
    let mut late = Vec::with_capacity(run.len());
    for run in run {
        let ran = run(&mut Within { exclusive: &mut exclusive, joined: &mut joined, rows: &mut rows });
        // Whatever was read by now may be why it is refused.
        late.push(ran.map_err(|error| error.resting_on(exclusive.seen().max(joined.seen())))?);
    }
    exclusive.join_spaces(&mut joined);
    if !rows.is_empty() {
        exclusive.add_points(&mut rows)?;
    }
    let position = exclusive.commit()?.position;
    let answers = late.into_iter().map(|late| Some(Ok(late(position)))).collect();
    Ok(Shown { value: Done { position, answers }, position })
}

/// What EXEC answered.
fn done(replies: Vec<Reply>, read: Vec<Read>) -> Result<Done> {
    let mut replies = replies;
    let exec = replies.pop().unwrap_or(Reply::Null);
    // A command that was refused when it was queued says why; EXEC says only that one was.
    if let Reply::Error(_) = exec
        && let Some(refused) = replies.into_iter().find(|reply| matches!(reply, Reply::Error(_)))
    {
        refused.good()?;
    }
    let [position, answers] = exec.items()?;
    let answers = answers.list()?;
    let answers = read.into_iter().zip(answers).map(|(read, reply)| Some(read(reply))).collect();
    Ok(Done { position: position.position()?, answers })
}
