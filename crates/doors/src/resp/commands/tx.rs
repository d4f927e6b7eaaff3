//! TX.BEGIN, TX.RUN, TX.COMMIT, TX.ABORT and TX.LIST: a transaction that stays open while the client thinks. See `resp/open.rs`.
//!
//! May use: `open`, the facade. Must not know: sockets, what commands do within it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use holdfast::space::{NotThrough, ReadLock};
use holdfast::{Durability, Position, Store, Transaction};

use super::own::durability;
use crate::numbers::PointCounts;
use crate::resp::call::{Answer, Call, Fail, SYNTAX, store_error_text};
use crate::resp::handle::{admit, unknown_subcommand};
use crate::resp::open::{self, Open, none_open};
use crate::resp::reply::Reply;
use crate::resp::session::{Need, Pending};
use crate::resp::table::{Found, find, flag};
use crate::resp::{number, unsupported};

/// How long a transaction may hold locks unless it says otherwise.
const LEASE: Duration = Duration::from_secs(60);
/// The longest that a commit waits for the table that it is written through.
const THROUGH_MAX: Duration = Duration::from_secs(60);
/// What stands in the name of a transaction between its number and that of its client.
const NAME_BETWEEN: &str = " of client ";
/// How many keys and entries a transaction may hold that is committed on the event loop: each takes some microseconds, and
/// all other clients wait.
const COMMITTED_HERE_MAX: usize = 256;

pub(crate) fn begin(call: &mut Call<'_, '_>) -> Answer {
    not_within_multi(call)?;
    if call.session.open.is_some() {
        return Err("ERR a transaction is open already: they do not nest".into());
    }
    if !call.session.watched.is_empty() {
        return Err("ERR WATCH is for MULTI: a transaction watches all keys that it reads".into());
    }
    let lease_max = call.door.options.limits.transaction_lease_max;
    let (mut lease, mut isolation, mut is_strict, mut index) = (None, None, false, 1);
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    while let Some(option) = call.args.get(index) {
        if is(option, "strict") && !is_strict {
            (is_strict, index) = (true, index + 1);
            continue;
        }
        let argument = call.args.get(index + 1).ok_or(SYNTAX)?;
        if is(option, "lease") && lease.is_none() {
            let ms = number::parse_u64(argument).filter(|ms| (1..=lease_max.as_millis()).contains(&u128::from(*ms)));
            let wrong = || format!("ERR a lease has 1 to {} milliseconds", lease_max.as_millis());
            lease = Some(Duration::from_millis(ms.ok_or_else(wrong)?));
        } else if is(option, "isolation") && isolation.is_none() {
            let kinds =
                [("committed", ReadLock::None), ("repeatable", ReadLock::Shared), ("exclusive", ReadLock::Exclusive)];
            let named = kinds.into_iter().find(|(name, _)| is(argument, name));
            isolation = Some(named.ok_or("ERR ISOLATION is one of COMMITTED, REPEATABLE, EXCLUSIVE")?.1);
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    let lease = lease.unwrap_or(LEASE.min(lease_max));
    // Not to be guessed by a connection that has another one, and exact where numbers are doubles.
    let id = call.session.next_random() >> 11 | 1;
    let name = format!("{id}{NAME_BETWEEN}{}", call.session.client.id);
    let transaction = call.door.store.begin().with_name(&name).with_lease(lease).joining();
    let mut open = Open::new(id, transaction, lease);
    open.is_strict = is_strict;
    open.isolation = isolation.unwrap_or(open.isolation);
    call.session.forget_points();
    call.session.open = Some(open);
    open::tell(call.session);
    call.reply.unsigned(id);
    Ok(())
}

/// Refuses it within MULTI, and EXEC with it: what was meant to happen in the one transaction must not happen in the other.
fn not_within_multi(call: &mut Call<'_, '_>) -> Answer {
    let Some(queue) = &mut call.session.multi else { return Ok(()) };
    queue.give_up();
    Err("ERR a transaction of TX.BEGIN and one of MULTI exclude each other: EXEC or DISCARD before".into())
}

/// Looks that the transaction that an argument names is open here; or any, where none is named and it is not strict.
fn named(call: &Call<'_, '_>, id: Option<&[u8]>) -> Answer {
    match (&call.session.open, id) {
        (None, None) => Err(none_open()),
        (Some(open), None) if open.is_strict => {
            Err("ERR a strict transaction is named: ID, and what TX.BEGIN answered".into())
        }
        (Some(_), None) => Ok(()),
        (Some(open), Some(id)) if number::parse_u64(id) == Some(*open.id) => Ok(()),
        (_, Some(_)) => {
            let text = "NOTX this connection has no such transaction: it has ended, or its connection has; whether it was committed is known by reading";
            Err(text.into())
        }
    }
}

pub(crate) fn abort(call: &mut Call<'_, '_>) -> Answer {
    not_within_multi(call)?;
    let id = match call.args.get(1) {
        None => None,
        Some(word) if word.eq_ignore_ascii_case(b"id") && call.args.len() == 3 => call.args.get(2),
        Some(_) => return Err(SYNTAX.into()),
    };
    named(call, id)?;
    call.session.open = None;
    open::tell(call.session);
    call.session.forget_points();
    call.reply.ok();
    Ok(())
}

/// TX.RUN: a command within the transaction that it names.
pub(crate) fn run(call: &mut Call<'_, '_>) -> Answer {
    not_within_multi(call)?;
    named(call, call.args.get(1))?;
    let args = call.args().from(2);
    match find(args) {
        Found::Row { row, .. } if row.has(flag::IMMEDIATE) => {
            Err(format!("ERR {} is not run by TX.RUN", row.name.to_uppercase()).into())
        }
        Found::Row { row, .. } => admit(call.door, call.session, row, args)
            .and_then(|()| open::command(call.door, call.session, row, args, call.reply, call.now_ms)),
        Found::UnknownSubcommand { container } => Err(unknown_subcommand(container, args)),
        Found::Unknown => Err(unsupported::unknown_command(call.session, args)),
    }
}

pub(crate) fn commit(call: &mut Call<'_, '_>) -> Answer {
    not_within_multi(call)?;
    let (mut id, mut is_asked, mut through, mut index) = (None, false, None, 1);
    while let Some(option) = call.args.get(index) {
        if option.eq_ignore_ascii_case(b"id") && id.is_none() {
            id = Some(call.args.get(index + 1).ok_or(SYNTAX)?);
        } else if option.eq_ignore_ascii_case(b"through") && through.is_none() {
            through = Some(through_wait(call.args.get(index + 1).ok_or(SYNTAX)?)?);
        } else if !is_asked && durability(call, option, index)? {
            is_asked = true;
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    named(call, id)?;
    let open = call.session.open.take().ok_or_else(none_open)?;
    open::tell(call.session);
    let failed = open::over(&open);
    let mut transaction = open.transaction.ok_or(failed)?;
    // What it asks for itself counts, and nothing else then: it is what was said last.
    let asked = if is_asked || open.asked.is_empty() { vec![call.durability] } else { open.asked };
    *transaction.points() = std::mem::take(&mut call.session.points);
    let (store, counts) = (call.door.store.clone(), Arc::clone(&call.door.points));
    if let Some(wait) = through {
        let until = Instant::now() + wait;
        // What needs no table is in nobody's way.
        let table = transaction.followed_by().map_err(|error| nothing_changed(&error))?.unwrap_or_default();
        let turns = call.door.turns_for_table(&table);
        let commit = move |transaction: Transaction, reply: &mut Reply| {
            end_through(transaction, (&store, &counts), &asked, until, reply)
        };
        let waiting = open::Waiting::to_commit_through(call, transaction, (wait, turns), Box::new(commit));
        call.session.pending = Some(Pending::Within(waiting));
        return Ok(());
    }
    let is_held_back = !transaction.points().is_empty() && store.series().is_crowded();
    let (things, bytes) = transaction.held();
    let is_large = things > COMMITTED_HERE_MAX || bytes > call.door.options.limits.loop_bytes_max as u64;
    if is_held_back || is_large {
        let commit = move |mut transaction: Transaction, reply: &mut Reply| {
            if is_held_back {
                store.series().make_room(transaction.points().len())?;
            }
            let (need, ended) = end(transaction, &counts, &asked, reply);
            ended.map_err(|fail| Fail::Resting { fail: Box::new(fail), need })?;
            Ok(need)
        };
        call.session.pending = Some(Pending::Within(open::Waiting::to_commit(call, transaction, Box::new(commit))));
        return Ok(());
    }
    let (need, ended) = end(transaction, &counts, &asked, call.reply);
    if let Some(tracked) = call.session.tracked.as_mut().filter(|_| ended.is_ok()) {
        // What it has read is what everybody sees now.
        tracked.has_uncommitted = false;
    }
    call.session.need.merge(need);
    call.session.last_write = call.session.last_write.max(need.own);
    ended
}

/// TX.LIST: the transactions that may hold locks.
pub(crate) fn list(call: &mut Call<'_, '_>) -> Answer {
    let open = call.door.store.open_transactions();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let reply = &mut *call.reply;
    reply.array(open.len());
    for open in open {
        let name = open.name.unwrap_or_default();
        let (id, client) = name.split_once(NAME_BETWEEN).map_or((name.as_str(), None), |(id, it)| (id, Some(it)));
        let number = |text: &str| number::parse_u64(text.as_bytes());
        reply.map(7);
        reply.text("id");
        match number(id) {
            Some(id) => reply.unsigned(id),
            None if id.is_empty() => reply.null(),
            None => reply.text(id),
        }
        reply.text("client");
        match client.and_then(number) {
            Some(client) => reply.unsigned(client),
            None => reply.null(),
        }
        reply.text("age-ms");
        reply.unsigned(millis(open.age));
        reply.text("lease-left-ms");
        match open.left {
            Some(left) => reply.unsigned(millis(left)),
            None => reply.null(),
        }
        for (name, value) in
            [("locks", open.locks), ("bytes", open.held_bytes), ("waiting", u64::from(open.is_waiting))]
        {
            reply.text(name);
            reply.unsigned(value);
        }
    }
    Ok(())
}

/// How long a commit waits for its table.
fn through_wait(argument: &[u8]) -> Result<Duration, Fail> {
    let ms = number::parse_u64(argument).filter(|ms| (1..=THROUGH_MAX.as_millis()).contains(&u128::from(*ms)));
    let wrong = || format!("ERR THROUGH waits for 1 to {} milliseconds", THROUGH_MAX.as_millis());
    Ok(Duration::from_millis(ms.ok_or_else(wrong)?))
}

/// Commits once the table has taken it. Blocks until that, and until it is as durable as asked.
fn end_through(
    mut transaction: Transaction,
    (store, counts): (&Store, &PointCounts),
    asked: &[Durability],
    until: Instant,
    reply: &mut Reply,
) -> Result<Need, Fail> {
    // What its turn took is a part of it.
    let wait = until.saturating_duration_since(Instant::now());
    let (points, seen) = (transaction.points().len() as u64, transaction.seen());
    let committed = transaction.commit_through(most_careful(asked), wait);
    let position = match &committed {
        Ok(committed) | Err(NotThrough::TableBehind { committed, .. }) => committed.position,
        Err(_) => Position::ZERO,
    };
    if position > Position::ZERO && points > 0 {
        counts.written.fetch_add(points, Relaxed);
        counts.batches.fetch_add(1, Relaxed);
    }
    // What was read may be newer than what was changed. Durable enough to be told, whether it went well or not.
    store.wait(seen, most_careful(asked)).map_err(|error| match position {
        Position::ZERO => Fail::Store(error),
        _ => format!("UNKNOWN it happened, and may not last: {error}").into(),
    })?;
    match committed {
        Ok(_) => {
            reply.unsigned(position.get());
            Ok(Need { own: position, ..Need::NOTHING })
        }
        // Its position is what tells it from all that failed.
        Err(NotThrough::TableBehind { reason, .. }) => {
            let text = format!("BEHIND {} it happened, and its table gets it when it can: {reason}", position.get());
            Err(text.into())
        }
        Err(NotThrough::Nothing(error)) => Err(nothing_changed(&error)),
        Err(unknown) => Err(format!("UNKNOWN {unknown}").into()),
    }
}

fn nothing_changed(error: &holdfast::Error) -> Fail {
    let text = store_error_text(error);
    let (code, text) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{code} nothing was changed: {text}").into()
}

/// The one among these that loses least.
fn most_careful(asked: &[Durability]) -> Durability {
    let rank = |durability: &Durability| match durability {
        Durability::Synced => (0, Duration::ZERO),
        Durability::Window(window) => (1, window.max),
        _ => (2, Duration::ZERO),
    };
    asked.iter().copied().min_by_key(rank).unwrap_or_default()
}

/// Commits: what the reply rests on, also when it is an error.
fn end(
    mut transaction: Transaction,
    counts: &PointCounts,
    asked: &[Durability],
    reply: &mut Reply,
) -> (Need, Result<(), Fail>) {
    let points = transaction.points().len() as u64;
    let mut need = Need::NOTHING;
    match transaction.commit_no_wait() {
        Ok(committed) => {
            if points > 0 {
                counts.written.fetch_add(points, Relaxed);
                counts.batches.fetch_add(1, Relaxed);
            }
            reply.unsigned(committed.position.get());
            asked.iter().for_each(|asked| need.add(*asked, committed.position));
            need.own = committed.position;
            (need, Ok(()))
        }
        Err(error) => {
            let fail = Fail::Store(error);
            asked.iter().for_each(|asked| need.merge(fail.need(*asked)));
            (need, Err(fail.text().into_owned().into()))
        }
    }
}
