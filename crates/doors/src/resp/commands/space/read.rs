//! SPACE.READ, SPACE.TAKE, SPACE.MREAD and SPACE.MTAKE.
//!
//! What is there is answered at once. Where finding it may take long, or nothing is there and the client waits, the rest
//! happens off the event loop: `wait.rs`.
//!
//! May use: `wait`, `wanted`, `within`. Must not know: sockets, dispatch.

use std::sync::Arc;

use holdfast::space::{Entries, Outlook, ReadOptions, Taking, Wanted};
use holdfast::{Error, ErrorKind, Shown};

use super::query::begins;
use super::wait::{Many, Wait};
use super::wanted::{Chosen, Options, Takes, chosen, options};
use super::within::Begins;
use super::{entries, found_here, is_long, need_of, outlook, show, show_change, within, write_entry};
use crate::handed::Handed;
use crate::resp::call::{Answer, Call, Fail};
use crate::resp::effort::Use;
use crate::resp::open::{Came, For};
use crate::resp::session::Pending;
use crate::resp::tracking::MayBeHidden;
use crate::through::ReadThrough;

/// How many entries SPACE.MREAD and SPACE.MTAKE return unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 100;
/// A transaction takes so many at once, and looks then whether they are too large together.
const TAKEN_AT_ONCE: usize = 64;
/// A transaction takes so many on the event loop.
const TAKEN_HERE_MAX: usize = 256;

pub(crate) fn read(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, |call| one(call, Taking::Read))
}

pub(crate) fn take(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, |call| one(call, Taking::Take))
}

fn one(call: &mut Call<'_, '_>, taking: Taking) -> Answer {
    let entries = entries(call)?;
    let mut chosen = chosen(call, 3)?;
    let options = options(call, &mut chosen, Takes::Waiting)?;
    if let (Taking::Read, Some(id), Some(tracked)) = (taking, chosen.wanted.by_id(), &call.session.tracked) {
        let of = entries.definition();
        tracked.ask_entry(&of.space, &of.name, id.scalar());
    }
    let reading = ReadOptions { version: options.version, if_exists: options.if_exists, ..ReadOptions::default() };
    if call.in_exec {
        return one_within(call, entries, chosen, options, reading, taking);
    }
    let is_long = !chosen.is_id && !chosen.is_any && is_long(&entries, &chosen.wanted, usize::MAX)?;
    let find = |entries: &Entries| match taking {
        Taking::Read => entries.read_shown(&chosen.wanted, &reading),
        Taking::Take => entries.take_shown(&chosen.wanted, &reading),
    };
    let looked = if is_long { found_here(call, &entries, find)? } else { Some(find(&entries)?) };
    let is_long = looked.is_none();
    let mut through = None;
    if let Some(Shown { value, position }) = looked {
        if let Some(entry) = value {
            if taking == Taking::Read {
                call.session.effort.add(entry.document.as_bytes().len() as u64, Use::Show)?;
            }
            return answer(call, &entries, taking, Shown { value: entry, position });
        }
        if options.strict {
            show(call, &entries, position);
            return Err(Fail::Store(gone()));
        }
        if taking == Taking::Read && chosen.is_id && options.version.is_none() && !options.if_exists {
            through = through_of(call, &entries);
        }
        if through.is_none() && options.block.is_none() {
            show(call, &entries, position);
            call.reply.null();
            return Ok(());
        }
    }
    if options.strict {
        return Err("ERR STRICT is of an entry that is found fast: by ID, or by an index".into());
    }
    if let (Taking::Read, Some(id), Some(tracked)) = (taking, chosen.wanted.by_id(), &mut call.session.tracked) {
        let of = entries.definition();
        tracked.wait_for(&of.space, &of.name, id.scalar());
    }
    wait(call, entries, chosen, &options, taking, (None, is_long, through));
    Ok(())
}

/// Who loads entries of this type that are not there, if anybody does.
fn through_of(call: &Call<'_, '_>, entries: &Entries) -> Option<Arc<dyn ReadThrough>> {
    let (through, of) = (call.door.options.read_through.as_ref()?, entries.definition());
    through.is_for(&of.space, &of.name).then(|| Arc::clone(through))
}

/// One entry within a transaction, where that of EXEC does not wait: as BLPOP in Redis.
fn one_within(
    call: &mut Call<'_, '_>,
    entries: Arc<Entries>,
    chosen: Chosen,
    options: Options,
    reading: ReadOptions,
    taking: Taking,
) -> Answer {
    let lock = within::isolation(call);
    let begins =
        if chosen.is_id || chosen.is_any { Begins::Here } else { begins(&entries, &chosen.wanted, usize::MAX)? };
    let followed = match (taking, chosen.wanted.by_id(), &call.session.tracked) {
        (Taking::Read, Some(id), Some(tracked)) => {
            let of = entries.definition();
            tracked.may_be_hidden(&of.space, &of.name, id.scalar())
        }
        _ => None,
    };
    within::run(call, begins, (For::Entry, options.block), move |transaction, reply, patience| {
        let reading = ReadOptions { wait: patience.wait(options.block), cancel: patience.cancel(), ..reading.clone() };
        let mut within = entries.within(transaction);
        let found = match taking {
            Taking::Read => within.read(&chosen.wanted, lock, &reading)?,
            Taking::Take => within.take(&chosen.wanted, &reading)?,
        };
        match found {
            Some(entry) => write_entry(reply, &entry),
            None if options.strict => return Err(Fail::Store(gone())),
            None => {
                reply.null();
                followed.iter().for_each(MayBeHidden::was_not_seen);
                return Ok(if options.block.is_some() { Came::Nothing } else { Came::Done });
            }
        }
        Ok(Came::Done)
    })
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "there is no such entry that is free: it is gone, or a transaction has it; read again",
    )
}

fn answer(call: &mut Call<'_, '_>, entries: &Entries, taking: Taking, shown: Shown<holdfast::space::Entry>) -> Answer {
    write_entry(call.reply, &shown.value);
    if taking == Taking::Read {
        show(call, entries, shown.position);
        return Ok(());
    }
    show_change(call, entries, shown.position);
    if call.reply.take_overflow() {
        drop(Handed::new(&call.door.store, entries, shown.value));
        return Err(Fail::TooBig(call.door.options.limits.output_bytes_max));
    }
    Ok(())
}

/// Hands the rest to the connection.
fn wait(
    call: &mut Call<'_, '_>,
    entries: Arc<Entries>,
    chosen: Chosen,
    options: &Options,
    taking: Taking,
    (many, is_long, through): (Option<Many>, bool, Option<Arc<dyn ReadThrough>>),
) {
    call.session.pending = Some(Pending::Entry(Box::new(Wait {
        store: call.door.store.clone(),
        entries,
        wanted: chosen.wanted,
        taking,
        version: options.version,
        block: options.block,
        if_exists: options.if_exists,
        many,
        is_long,
        client: call.session.client.clone(),
        elsewhere: call.door.long(),
        form: call.reply.form(),
        output_bytes_max: call.door.options.limits.output_bytes_max,
        durability: call.durability,
        is_silent: call.session.reply_mode != crate::resp::session::ReplyMode::On,
        through,
    })));
}

/// How many entries a command returns at the most.
fn most(call: &Call<'_, '_>, options: &Options, wanted: &Wanted) -> Many {
    let limits = &call.door.options.limits;
    let of_sql = wanted.limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let count = options.count.unwrap_or(COUNT_DEFAULT).min(limits.space_entries_max).min(of_sql);
    Many { count, bytes: limits.space_bytes_max, time: limits.space_time_max }
}

pub(crate) fn mread(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_mread)
}

fn try_mread(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    let mut chosen = chosen(call, 3)?;
    let options = options(call, &mut chosen, Takes::Count)?;
    let many = most(call, &options, &chosen.wanted);
    if call.in_exec {
        let lock = within::isolation(call);
        let begins = match () {
            () if chosen.is_id => Begins::Here,
            () if is_large(call, &entries, many.count) => Begins::Elsewhere,
            () => begins(&entries, &chosen.wanted, many.count)?,
        };
        return within::run(call, begins, (For::Lock, None), move |transaction, reply, _| {
            many.write(reply, &entries.within(transaction).read_many(&chosen.wanted, lock, many.count)?);
            Ok(Came::Done)
        });
    }
    let may_be_long = !chosen.is_id && (many.count > super::LOOKED_AT_MAX as usize || !chosen.is_any);
    let find = |entries: &Entries| entries.read_many_shown(&chosen.wanted, many.count);
    let outlook = if may_be_long { outlook(&entries, &chosen.wanted, many.count)? } else { Outlook::Few };
    let looked = match outlook {
        Outlook::Few => Some(find(&entries)?),
        Outlook::First => found_here(call, &entries, find)?,
        Outlook::Many => None,
    };
    let Some(shown) = looked else {
        let asked = call.durability;
        call.defer_reading(move |reply| {
            let shown = entries.read_many_shown(&chosen.wanted, many.count)?;
            many.write(reply, &shown.value);
            Ok(need_of(&entries, asked, shown.position))
        });
        return Ok(());
    };
    let bytes = shown.value.iter().map(|entry| entry.document.as_bytes().len() as u64).sum();
    call.session.effort.add(bytes, Use::Show)?;
    show(call, &entries, shown.position);
    many.write(call.reply, &shown.value);
    Ok(())
}

/// Whether so many entries may have more bytes than are shown on the event loop.
fn is_large(call: &Call<'_, '_>, entries: &Entries, count: usize) -> bool {
    let usage = entries.usage();
    let each = usage.bytes / usage.entries.max(1);
    each.saturating_mul(usage.entries.min(count as u64)) > call.door.options.limits.loop_bytes_max as u64
}

pub(crate) fn mtake(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_mtake)
}

fn try_mtake(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    let mut chosen = chosen(call, 3)?;
    let options = options(call, &mut chosen, Takes::WaitingAndCount)?;
    let many = most(call, &options, &chosen.wanted);
    if options.if_exists {
        return Err(Error::new(ErrorKind::Invalid, "IFEXISTS is for one entry: SPACE.TAKE").into());
    }
    if call.in_exec {
        let begins = match () {
            () if many.count > TAKEN_HERE_MAX => Begins::Elsewhere,
            () if chosen.is_id || chosen.is_any => Begins::Here,
            () => begins(&entries, &chosen.wanted, many.count)?,
        };
        return within::run(call, begins, (For::Entry, options.block), move |transaction, reply, patience| {
            let mut taken = Vec::new();
            while taken.len() < many.count && !many.is_enough(&taken) {
                let some = TAKEN_AT_ONCE.min(many.count - taken.len());
                let more = entries.within(transaction).take_many(&chosen.wanted, some)?;
                if more.is_empty() {
                    break;
                }
                taken.extend(more);
            }
            while taken.len() < many.count && !many.is_enough(&taken) {
                // What waits is the first.
                let wait = if taken.is_empty() { patience.wait(options.block) } else { None };
                let reading = ReadOptions { wait, cancel: patience.cancel(), ..ReadOptions::default() };
                let Some(entry) = entries.within(transaction).take(&chosen.wanted, &reading)? else { break };
                taken.push(entry);
            }
            many.write(reply, &taken);
            let is_all = !taken.is_empty() || options.block.is_none();
            Ok(if is_all { Came::Done } else { Came::Nothing })
        });
    }
    let is_long =
        !chosen.is_id && (!chosen.is_any || many.count > 256) && is_long(&entries, &chosen.wanted, usize::MAX)?;
    if !is_long {
        let (taken, position) = many.take(&entries, &chosen.wanted)?;
        if !taken.is_empty() || options.block.is_none() {
            show_change(call, &entries, position);
            many.write(call.reply, &taken);
            return Ok(());
        }
    }
    wait(call, entries, chosen, &options, Taking::Take, (Some(many), is_long, None));
    Ok(())
}
