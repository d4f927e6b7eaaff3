//! SPACE.WRITE, SPACE.MWRITE and SPACE.RENEW.
//!
//! A transaction of a program that embeds the store may have an entry locked: then the write waits in a thread.
//!
//! May use: `argument`, `wanted`, `within`. Must not know: sockets, dispatch.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{Document, Entries, Wanted, WriteMode, WriteOptions, Written};
use holdfast::{ErrorKind, Position};

use super::argument::{document, value, write_id};
use super::wanted::{Chosen, Takes, lease, lock_wait, options};
use super::within::Begins;
use super::{Version, entries, need_of, show_change, within, write_entry};
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::commands::own::{count, durability};
use crate::resp::number;
use crate::resp::open::{Came, For, LOCK_MAX, Patience};
use crate::resp::reply::Reply;
use crate::resp::session::Need;

/// Documents of one SPACE.MWRITE that are written on the event loop; more are written in a thread.
const AT_ONCE_MAX: usize = 256;

/// How entries are written, and what is answered.
struct How {
    options: WriteOptions,
    previous: bool,
}

impl How {
    /// Whether it waits for locks at all.
    fn waits(&self) -> bool {
        self.options.lock_timeout != Some(Duration::ZERO)
    }

    fn at_once(&self) -> WriteOptions {
        self.patient(&Patience::None)
    }

    fn patient(&self, patience: &Patience) -> WriteOptions {
        WriteOptions { lock_timeout: patience.lock_timeout(self.options.lock_timeout), ..self.options.clone() }
    }
}

/// How long a command may wait for a lock yet, which begins now: its turn to wait counts.
pub(super) fn lock_time(asked: Option<Duration>) -> impl Fn() -> Option<Duration> + Send {
    let begun = Instant::now();
    move || asked.map(|asked| asked.saturating_sub(begun.elapsed()))
}

fn how(call: &mut Call<'_, '_>, mut index: usize) -> Result<How, Fail> {
    let args = call.args();
    let (mut options, mut previous, mut mode, mut lease_given) = (WriteOptions::default(), false, None, false);
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let named = [("insert", WriteMode::Insert), ("update", WriteMode::Update), ("partial", WriteMode::Partial)];
        if let Some((_, named)) = named.into_iter().find(|(name, _)| is(name))
            && mode.is_none()
        {
            mode = Some(named);
            index += 1;
            continue;
        }
        if is("previous") && !previous {
            previous = true;
            index += 1;
            continue;
        }
        let argument = args.get(index + 1).ok_or(SYNTAX)?;
        if is("lease") && !lease_given {
            lease_given = true;
            options.lease = lease(argument)?;
        } else if is("version") && options.version.is_none() {
            options.version = Some(Position::new(number::parse_u64(argument).ok_or(NOT_INTEGER)?));
        } else if is("lockwait") && options.lock_timeout.is_none() {
            options.lock_timeout = Some(lock_wait(argument)?);
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    options.mode = mode.unwrap_or_default();
    Ok(How { options, previous })
}

/// `[id, version]`, with what was there before if that is wanted.
fn write_written(reply: &mut Reply, written: &Written, version: Version, previous: bool) {
    reply.array(if previous { 3 } else { 2 });
    write_id(reply, &written.id);
    version.write(reply, written.version);
    match &written.previous {
        _ if !previous => {}
        Some(entry) => write_entry(reply, entry),
        None => reply.null(),
    }
}

pub(crate) fn write(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_write)
}

fn try_write(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    let document = document(call.args().at(3))?;
    let how = how(call, 4)?;
    if call.in_exec {
        let what = within::for_lock(how.options.lock_timeout);
        return within::run(call, Begins::Here, what, move |transaction, reply, patience| {
            let written = entries.within(transaction).write(&document, &how.patient(patience))?;
            write_written(reply, &written, Version::coming(&entries), how.previous);
            Ok(Came::Done)
        });
    }
    match entries.write_shown(&document, &how.at_once()) {
        Err(error) if error.kind() == ErrorKind::Timeout && how.waits() => {
            let (asked, left) = (call.durability, lock_time(how.options.lock_timeout));
            call.defer_for_lock(move |reply| {
                let options = WriteOptions { lock_timeout: left(), ..how.options };
                let written = entries.write_shown(&document, &options)?;
                write_written(reply, &written, Version::Known, how.previous);
                Ok(need_of(&entries, asked, written.version))
            });
        }
        written => {
            let written = written?;
            show_change(call, &entries, written.version);
            write_written(call.reply, &written, Version::Known, how.previous);
        }
    }
    Ok(())
}

pub(crate) fn mwrite(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_mwrite)
}

fn try_mwrite(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let entries = entries(call)?;
    let count = count(args.at(3))?;
    if count > args.from(4).len() {
        return Err("ERR fewer documents follow than are announced".into());
    }
    let how = how(call, 4 + count)?;
    let documents: Vec<_> = args.from(4).iter().take(count).map(document).collect();
    if call.in_exec {
        let documents = documents.into_iter().collect::<Result<Vec<_>, Fail>>()?;
        // Some may be written when one is found locked: it goes on behind them when it is tried again.
        let done = Mutex::new(Vec::new());
        let begins = if documents.len() > AT_ONCE_MAX { Begins::Elsewhere } else { Begins::Here };
        return within::run(
            call,
            begins,
            within::for_lock(how.options.lock_timeout),
            move |transaction, reply, patience| {
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                for document in documents.iter().skip(done.len()) {
                    done.push(entries.within(transaction).write(document, &how.patient(patience))?);
                }
                reply.array(done.len());
                let version = Version::coming(&entries);
                done.iter().for_each(|written| write_written(reply, written, version, how.previous));
                Ok(Came::Done)
            },
        );
    }
    // They wait for locks as long as one does, all together, and in their order: the others wait behind one that is locked.
    let left = lock_time(Some(how.options.lock_timeout.unwrap_or(LOCK_MAX)));
    let mut writing = Writing { left: documents.into(), outcomes: Vec::new() };
    let is_long = writing.left.len() > AT_ONCE_MAX;
    if !is_long {
        writing.write_unlocked(&entries, &how);
    }
    if !writing.left.is_empty() {
        let (asked, waits) = (call.durability, how.waits());
        let write = move |reply: &mut Reply| {
            writing.write(&entries, &how.options, &left);
            Ok(write_outcomes(reply, &entries, &writing.outcomes, how.previous, asked))
        };
        // Who waits for a lock is not to be in the way of what ends it, which may take long.
        if waits {
            call.defer_for_lock(write)
        } else {
            call.defer(write)
        }
        return Ok(());
    }
    let outcomes = writing.outcomes;
    let newest = outcomes.iter().flatten().map(|written| written.version).max();
    show_change(call, &entries, newest.unwrap_or_default());
    let need = write_outcomes(call.reply, &entries, &outcomes, how.previous, call.durability);
    call.session.need.merge(need);
    Ok(())
}

type Outcome = Result<Written, Fail>;

/// Documents that are written one after the other, each by itself.
struct Writing {
    left: VecDeque<Result<Document, Fail>>,
    outcomes: Vec<Outcome>,
}

impl Writing {
    /// Writes those before the first whose entry is locked, if that is to be waited for.
    fn write_unlocked(&mut self, entries: &Entries, how: &How) {
        let at_once = how.at_once();
        while let Some(document) = self.left.pop_front() {
            let outcome = match &document {
                Ok(document) => entries.write_shown(document, &at_once),
                Err(_) => {
                    self.outcomes.extend(document.err().map(Err));
                    continue;
                }
            };
            if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) && how.waits() {
                return self.left.push_front(document);
            }
            self.outcomes.push(outcome.map_err(Fail::from));
        }
    }

    /// Writes them all, and waits for locks as long as there is time left.
    fn write(&mut self, entries: &Entries, options: &WriteOptions, time: &dyn Fn() -> Option<Duration>) {
        while let Some(document) = self.left.pop_front() {
            let options = WriteOptions { lock_timeout: time(), ..options.clone() };
            let written = document.and_then(|document| Ok(entries.write_shown(&document, &options)?));
            self.outcomes.push(written);
        }
    }
}

/// What became of each, an error in the place of those that failed; and what that rests on.
fn write_outcomes(
    reply: &mut Reply,
    entries: &Entries,
    outcomes: &[Outcome],
    previous: bool,
    asked: holdfast::Durability,
) -> Need {
    reply.array(outcomes.len());
    let mut need = Need::NOTHING;
    for outcome in outcomes {
        match outcome {
            Ok(written) => {
                need.merge(need_of(entries, asked, written.version));
                write_written(reply, written, Version::Known, previous);
            }
            Err(fail) => {
                need.merge(fail.need(asked));
                reply.error(&fail.text());
            }
        }
    }
    need
}

pub(crate) fn renew(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_renew)
}

fn try_renew(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let entries = entries(call)?;
    if !args.at(4).eq_ignore_ascii_case(b"lease") {
        return Err(SYNTAX.into());
    }
    let until = lease(args.at(5))?;
    let mut chosen = chosen_id(args.at(3))?;
    chosen.next = 6;
    options(call, &mut chosen, Takes::Nothing)?;
    if call.in_exec {
        return within::run(call, Begins::Here, (For::Lock, None), move |transaction, reply, patience| {
            let renewed = entries.within(transaction).renew(&chosen.wanted, until, patience.lock_timeout(None))?;
            reply.integer(i64::from(renewed));
            Ok(Came::Done)
        });
    }
    let options = WriteOptions { lease: until, lock_timeout: Some(Duration::ZERO), ..WriteOptions::default() };
    match entries.renew_shown(&chosen.wanted, &options) {
        Err(error) if error.kind() == ErrorKind::Timeout => {
            let asked = call.durability;
            call.defer_for_lock(move |reply| {
                let options = WriteOptions { lock_timeout: None, ..options };
                let shown = entries.renew_shown(&chosen.wanted, &options)?;
                reply.integer(i64::from(shown.value));
                Ok(need_of(&entries, asked, shown.position))
            });
        }
        shown => {
            let shown = shown?;
            show_change(call, &entries, shown.position);
            call.reply.integer(i64::from(shown.value));
        }
    }
    Ok(())
}

fn chosen_id(argument: &[u8]) -> Result<Chosen, Fail> {
    let wanted = Wanted::id(value(argument)?);
    Ok(Chosen { wanted, is_id: true, is_any: false, next: 0 })
}
