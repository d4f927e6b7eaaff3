//! SPACE.CHANGE and SPACE.MCHANGE: the change travels, not the document.
//!
//! May use: `argument`, `wanted`, the facade. Must not know: sockets, dispatch.

use std::time::Duration;

use holdfast::space::{Change, Changed, Lease, Path, Wanted, WriteOptions};
use holdfast::{ErrorKind, Position};

use super::argument::value;
use super::wanted::{chosen, lease, lock_wait};
use super::within::Begins;
use super::write::lock_time;
use super::{Version, entries, entries_to_change, need_of, show_change, within, write_entry, write_entry_with};
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::commands::own::durability;
use crate::resp::number;
use crate::resp::open::Came;
use crate::resp::reply::Reply;
use crate::resp::session::Need;
use crate::resp::wire::Args;

fn path(argument: &[u8]) -> Result<Path, Fail> {
    let text = std::str::from_utf8(argument).map_err(|_| Fail::from("ERR a path has to be UTF-8"))?;
    Path::parse(text).map_err(|error| Fail::Store(error.into()))
}

fn key(argument: &[u8]) -> Result<String, Fail> {
    std::str::from_utf8(argument).map(str::to_owned).map_err(|_| "ERR a key has to be UTF-8".into())
}

/// Reads one change at `at`, if there is one: and where the next word is.
fn change(args: Args<'_>, at: usize) -> Result<Option<(Change, usize)>, Fail> {
    let Some(word) = args.get(at) else { return Ok(None) };
    let argument = |number: usize| args.get(at + number).ok_or(SYNTAX);
    Ok(Some(match word.to_ascii_lowercase().as_slice() {
        b"set" => (Change::Set { path: path(argument(1)?)?, value: value(argument(2)?)? }, at + 3),
        b"unset" => (Change::Unset { path: path(argument(1)?)? }, at + 2),
        b"incr" => (Change::Increment { path: path(argument(1)?)?, by: value(argument(2)?)? }, at + 3),
        b"append" => (Change::Append { path: path(argument(1)?)?, value: value(argument(2)?)? }, at + 3),
        b"add" => (Change::AddUnique { path: path(argument(1)?)?, value: value(argument(2)?)? }, at + 3),
        b"remove" => (Change::RemoveItem { path: path(argument(1)?)?, value: value(argument(2)?)? }, at + 3),
        b"putkey" => {
            let (path, key) = (path(argument(1)?)?, key(argument(2)?)?);
            (Change::PutKey { path, key, value: value(argument(3)?)? }, at + 4)
        }
        b"removekey" => (Change::RemoveKey { path: path(argument(1)?)?, key: key(argument(2)?)? }, at + 3),
        _ => return Ok(None),
    }))
}

/// Reads changes from `at` on, and where the options begin.
fn changes(args: Args<'_>, mut at: usize) -> Result<(Vec<Change>, usize), Fail> {
    let mut changes = Vec::new();
    while let Some((change, next)) = change(args, at)? {
        changes.push(change);
        at = next;
    }
    if changes.is_empty() {
        return Err("ERR say what to change: SET, UNSET, INCR, APPEND, ADD, REMOVE, PUTKEY or REMOVEKEY".into());
    }
    Ok((changes, at))
}

pub(crate) fn run(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, one)
}

fn one(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let entries = entries(call)?;
    let mut wanted = Wanted::id(value(args.at(3))?);
    let (changes, mut at) = changes(args, 4)?;
    let (mut options, mut previous) = (WriteOptions::default(), false);
    while let Some(option) = args.get(at) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("previous") && !previous {
            previous = true;
            at += 1;
            continue;
        }
        let argument = args.get(at + 1).ok_or(SYNTAX)?;
        if is("lease") && options.lease == Lease::Default {
            options.lease = lease(argument)?;
        } else if is("version") && options.version.is_none() {
            options.version = Some(Position::new(number::parse_u64(argument).ok_or(NOT_INTEGER)?));
        } else if is("routing") {
            wanted = wanted.routed(value(argument)?);
        } else if is("lockwait") && options.lock_timeout.is_none() {
            options.lock_timeout = Some(lock_wait(argument)?);
        } else if !durability(call, option, at)? {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    if call.in_exec {
        let what = within::for_lock(options.lock_timeout);
        return within::run(call, Begins::Here, what, move |transaction, reply, patience| {
            let lock_timeout = patience.lock_timeout(options.lock_timeout);
            let options = WriteOptions { lock_timeout, ..options.clone() };
            let changed = entries.within(transaction).change(&wanted, &changes, &options)?;
            write_changed(reply, changed.as_ref(), Version::coming(&entries), previous);
            Ok(Came::Done)
        });
    }
    let at_once = WriteOptions { lock_timeout: Some(Duration::ZERO), ..options.clone() };
    let changed = match entries.change_shown(&wanted, &changes, &at_once) {
        Err(error) if error.kind() == ErrorKind::Timeout && options.lock_timeout != Some(Duration::ZERO) => {
            let (asked, left) = (call.durability, lock_time(options.lock_timeout));
            call.defer_for_lock(move |reply| {
                let options = WriteOptions { lock_timeout: left(), ..options };
                let changed = entries.change_shown(&wanted, &changes, &options)?;
                write_changed(reply, changed.value.as_ref(), Version::Known, previous);
                Ok(need_of(&entries, asked, changed.position))
            });
            return Ok(());
        }
        changed => changed?,
    };
    show_change(call, &entries, changed.position);
    write_changed(call.reply, changed.value.as_ref(), Version::Known, previous);
    Ok(())
}

/// Changes all that match, each by itself, in a thread: the more there are the longer it takes.
pub(crate) fn many(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_many)
}

fn try_many(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let entries = if call.in_exec { entries(call)? } else { entries_to_change(call)? };
    let mut chosen = chosen(call, 3)?;
    if args.get(chosen.next).is_some_and(|word| word.eq_ignore_ascii_case(b"routing")) {
        chosen.wanted = chosen.wanted.routed(value(args.get(chosen.next + 1).ok_or(SYNTAX)?)?);
        chosen.next += 2;
    }
    let (changes, mut at) = changes(args, chosen.next)?;
    let mut options = WriteOptions::default();
    while let Some(option) = args.get(at) {
        let argument = args.get(at + 1).ok_or(SYNTAX)?;
        if option.eq_ignore_ascii_case(b"lease") && options.lease == Lease::Default {
            options.lease = lease(argument)?;
        } else if option.eq_ignore_ascii_case(b"lockwait") && options.lock_timeout.is_none() {
            options.lock_timeout = Some(lock_wait(argument)?);
        } else if !durability(call, option, at)? {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    if call.in_exec {
        let most = call.door.options.limits.space_entries_max;
        let what = within::for_lock(options.lock_timeout);
        return within::run(call, Begins::Elsewhere, what, move |transaction, reply, patience| {
            let lock_timeout = patience.lock_timeout(options.lock_timeout);
            let options = WriteOptions { lock_timeout, ..options.clone() };
            reply.unsigned(entries.within(transaction).change_many(&chosen.wanted, &changes, &options, most)?);
            Ok(Came::Done)
        });
    }
    options.durability = Some(call.durability);
    let waits = options.lock_timeout != Some(Duration::ZERO);
    let change = move |reply: &mut Reply| {
        reply.unsigned(entries.change_many(&chosen.wanted, &changes, &options)?);
        Ok(Need::NOTHING)
    };
    // Who waits for a lock is not to be in the way of what ends it, which may take long.
    if waits {
        call.defer_for_lock(change)
    } else {
        call.defer(change)
    }
    Ok(())
}

/// What is there now; with PREVIOUS `[what is there now, what was]`.
fn write_changed(reply: &mut Reply, changed: Option<&Changed>, version: Version, previous: bool) {
    let Some(changed) = changed else { return reply.null() };
    if previous {
        reply.array(2);
    }
    write_entry_with(reply, &changed.now, version);
    if previous {
        write_entry(reply, &changed.before);
    }
}
