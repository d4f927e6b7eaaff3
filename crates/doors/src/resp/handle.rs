//! From arguments to a reply: find the row, check what may be checked before, run the handler on the right view of the
//! data, commit, and note how durable the reply must be before it is shown.
//!
//! May use: the facade, `table`, `call`, `session`. Must not know: sockets, what single commands do.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use holdfast::{Durability, Position, Scope};

use super::call::{Answer, Call, Fail, SYNTAX, View, arity, work};
use super::clients::Client;
use super::commands::space::wait::Waited;
use super::counters::add;
use super::door::Door;
use super::effort::{PARSED_BYTES, Use};
use super::reply::Reply;
use super::session::{BucketName, Need, Pending, Queued, ReplyMode, Session};
use super::table::{BucketOf, Command, Found, find, flag};
use super::tracking::Acting;
use super::wire::Args;
use super::work::{Turn, Worked};
use super::{number, open, permit, slowlog, unsupported};
use crate::budget::Share;
use crate::handed::Handed;

/// Runs one command that has just arrived and writes its reply; `started` is when the one before it ended.
pub(crate) fn command(
    door: &Door,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut Reply,
    now_ms: u64,
    started: &mut Instant,
) {
    let _acting = session.tracked.is_some().then(|| Acting::for_client(session.client.id));
    let mark = reply.len();
    let silent = session.reply_mode == ReplyMode::SkipNext;
    add(&session.counters.commands, 1);
    let found = find(args);
    let answer = match &found {
        Found::Row { row, index } => {
            session.client.set_command(*index);
            admit(door, session, row, args)
                .inspect_err(|_| break_transaction(session))
                .and_then(|()| start(door, session, row, *index, args, reply, now_ms))
        }
        Found::UnknownSubcommand { container } => {
            break_transaction(session);
            Err(unknown_subcommand(container, args))
        }
        Found::Unknown => {
            break_transaction(session);
            Err(unsupported::unknown_command(session, args))
        }
    };
    if let Err(Fail::Heavy { owed }) = answer {
        take_back(reply, mark);
        session.pending = Some(Pending::Heavy { owed });
        *started = Instant::now();
        return;
    }
    if let Err(fail) = answer {
        add(&session.counters.errors, 1);
        open::fail(session, &fail);
        take_back(reply, mark);
        reply.error(&fail.text());
    }
    if session.reply_mode == ReplyMode::Off || silent {
        reply.truncate(mark);
        if silent {
            session.reply_mode = ReplyMode::On;
        }
    } else if reply.len() > mark {
        session.replies += 1;
    }
    if let Some(tracked) = session.tracked.as_mut().filter(|tracked| tracked.is_said) {
        // It is said of the next command, or of all of a MULTI.
        let goes_on = matches!(&found, Found::Row { row, .. } if row.name.starts_with("client|"));
        tracked.is_said = goes_on || session.multi.is_some();
    }
    if let Found::Row { row, .. } = found {
        let now = Instant::now();
        let elapsed = now.duration_since(*started);
        *started = now;
        // A script that goes on in a thread is noted there.
        let is_noted_there = match &session.pending {
            Some(Pending::Script(_)) => true,
            Some(Pending::Within(waiting)) => waiting.is_of_script(),
            _ => false,
        };
        if !is_noted_there {
            note_slow(door, &session.client, row, args, elapsed, now_ms);
        }
    }
}

/// What is checked before a command runs or is queued.
pub(crate) fn admit(door: &Door, session: &Session, row: &'static Command, args: Args<'_>) -> Answer {
    if !row.accepts(args.len()) {
        return Err(arity(row.name));
    }
    if session.user.is_none() && door.options.users.is_required() && !row.has(flag::NO_AUTH) {
        return Err("NOAUTH Authentication required.".into());
    }
    if let Some(user) = &session.user {
        // Behind a SELECT that is queued a command is for another database; EXEC checks again.
        let queued = session.multi.as_ref().and_then(|queue| queue.selected);
        permit::check(user, row, args, queued.unwrap_or(session.bucket))?;
    }
    let limits = door.store.limits();
    if row.keys.bucket == BucketOf::First && args.at(1).len() > limits.bucket_bytes_max {
        return Err(format!("ERR the bucket's name exceeds {} bytes", limits.bucket_bytes_max).into());
    }
    if row.keys.first > 0 && row.key_arguments(args.len()).any(|index| args.at(index).len() > limits.key_bytes_max) {
        return Err(format!("ERR the key exceeds {} bytes", limits.key_bytes_max).into());
    }
    Ok(())
}

fn break_transaction(session: &mut Session) {
    if let Some(queue) = &mut session.multi {
        queue.broken = true;
    }
}

pub(crate) fn unknown_subcommand(container: &Command, args: Args<'_>) -> Fail {
    let sub = String::from_utf8_lossy(args.at(1));
    let sub: String = sub.chars().take(128).collect();
    format!("ERR unknown subcommand '{sub}'. Try {} HELP.", container.name.to_uppercase()).into()
}

/// Queues the command if a transaction is open, or runs it.
fn start(
    door: &Door,
    session: &mut Session,
    row: &'static Command,
    index: u16,
    args: Args<'_>,
    reply: &mut Reply,
    now_ms: u64,
) -> Answer {
    if let Some(queue) = &mut session.multi
        && !row.has(flag::IMMEDIATE)
    {
        if row.has(flag::NO_MULTI) {
            queue.broken = true;
            return Err("ERR Command not allowed inside a transaction".into());
        }
        if let Err(fail) = queue.gathered.add(door, args.bytes_len()) {
            queue.give_up();
            return Err(fail);
        }
        if row.name == "select"
            && let Some(database) = door.database(args.at(1))
        {
            queue.selected = Some(BucketName::of(database));
        }
        queue.commands.push(Queued { command: row, index, args: args.to_owned() });
        session.client.set_transaction(queue.commands.len() as i64, session.watched.len());
        session.client.set_transaction_bytes(queue.gathered.bytes());
        if row.keys.bucket == BucketOf::Series && row.has(flag::WRITE) && door.store.series().is_crowded() {
            // EXEC holds locks and cannot wait for room; so who queues points does.
            let (store, points) = (door.store.clone(), args.len() / 3);
            let held = work(door, session, reply, move |reply| {
                // Why there is no room is said by EXEC, which is refused then.
                let _ = store.series().make_room(points);
                reply.simple("QUEUED");
                Ok(Need::NOTHING)
            });
            session.pending = Some(Pending::Work(held.of(Turn::HeldWrite)));
            return Ok(());
        }
        reply.simple("QUEUED");
        return Ok(());
    }
    if session.open.is_some() && !row.has(flag::IMMEDIATE) {
        open::stray(session, row)?;
        return open::command(door, session, row, args, reply, now_ms);
    }
    run(door, session, row, args, reply, now_ms)
}

/// Runs a command outside of transactions, on the view its row asks for.
pub(super) fn run(
    door: &Door,
    session: &mut Session,
    row: &'static Command,
    args: Args<'_>,
    reply: &mut Reply,
    now_ms: u64,
) -> Answer {
    let several_keys =
        row.keys.first > 0 && row.keys.first != row.keys.last && args.len() > 2 && row.has(flag::READONLY);
    // Spaces and time series see to their own batches.
    let is_apart = matches!(row.keys.bucket, BucketOf::Space | BucketOf::Series);
    let is_blind = row.is_blind(args.len());
    if row.has(flag::IMMEDIATE) || is_apart || is_blind || !(row.has(flag::WRITE) || several_keys) {
        let mut call = Call {
            door,
            command: row,
            args,
            view: View::direct(&door.store),
            reply,
            now_ms,
            durability: session.durability,
            in_exec: false,
            session,
        };
        run_handler(&mut call)?;
        if let View::Direct { shown, .. } = call.view
            && is_blind
        {
            session.last_write = session.last_write.max(shown);
        }
        return Ok(());
    }
    let bucket = session.bucket;
    let mut exclusive = if row.has(flag::WHOLE) {
        door.store.exclusive(&Scope::All)?
    } else if row.keys.bucket == BucketOf::Selected && row.keys.first == row.keys.last {
        // The hot path: one key, nothing allocated.
        door.store.exclusive(&Scope::Keys(&[(bucket.as_bytes(), args.at(row.keys.first as usize))]))?
    } else {
        let mut named = Vec::new();
        keys_of(row, args, bucket, &mut named);
        let scope: Vec<(&[u8], &[u8])> = named.iter().map(|(bucket, key)| (bucket.as_ref(), key.as_ref())).collect();
        door.store.exclusive(&Scope::Keys(&scope))?
    };
    let view = View::Exclusive(&mut exclusive);
    let durability = run_in(door, session, row, args, reply, now_ms, false, view)?;
    let committed = exclusive.commit()?;
    reply.resolve(committed.position.get());
    session.need.add(durability, committed.position);
    if row.has(flag::WRITE) {
        session.last_write = session.last_write.max(committed.position);
    }
    Ok(())
}

/// Runs a command on a view of something that is committed later, and answers how durable it wants its reply to be.
#[expect(
    clippy::too_many_arguments,
    reason = "they are the fields of `Call`; a struct to build that struct would say less"
)]
pub(crate) fn run_in<'s>(
    door: &'s Door,
    session: &mut Session,
    row: &'static Command,
    args: Args<'_>,
    reply: &mut Reply,
    now_ms: u64,
    in_exec: bool,
    view: View<'_, 's>,
) -> Result<Durability, Fail> {
    let durability = session.durability;
    let mut call = Call { door, session, command: row, args, view, reply, now_ms, durability, in_exec };
    run_handler(&mut call)?;
    Ok(call.durability)
}

/// Runs the handler, and notes what it showed. A reply that does not fit is an error before anything is committed.
pub(super) fn run_handler(call: &mut Call<'_, '_>) -> Answer {
    let command = call.command;
    if command.keys.first > 0 && matches!(command.keys.bucket, BucketOf::Selected | BucketOf::First | BucketOf::Copy) {
        // What is put has to be encoded, and each key to be looked up.
        call.session.effort.add(call.args.bytes_len() as u64, Use::Look)?;
        call.session.effort.add_items(call.args.len())?;
    }
    let is_open = matches!(call.view, View::Transaction { .. });
    if let Some(tracked) = &mut call.session.tracked
        && command.has(flag::READONLY)
    {
        tracked.has_uncommitted |= is_open;
        // Before anything is read: what changes from here on is told.
        let mut keys = Vec::new();
        keys_of(command, call.args, call.session.bucket, &mut keys);
        keys.iter().for_each(|(bucket, key)| tracked.ask(bucket, key));
    }
    if command.keys.bucket == BucketOf::Space {
        call.session.effort.add((call.args.bytes_len() as u64).saturating_mul(PARSED_BYTES), Use::Look)?;
    }
    let ran = (command.run)(call).map_err(|fail| explain(command, fail));
    ran.inspect_err(|fail| note_refused(call, fail))?;
    if call.reply.take_overflow() {
        return Err(Fail::TooBig(call.door.options.limits.output_bytes_max));
    }
    match &call.view {
        View::Direct { shown, .. } if *shown > Position::ZERO => call.session.need.add(call.durability, *shown),
        View::Snapshot(snapshot) => call.session.need.add(call.durability, snapshot.position()),
        // What an exclusive shows rests on its commit; a transaction knows what it has shown.
        View::Direct { .. } | View::Exclusive(_) | View::Transaction { .. } => {}
    }
    Ok(())
}

/// Notes what a failure rests on: whatever its command has seen may be why.
fn note_refused(call: &mut Call<'_, '_>, fail: &Fail) {
    // It is begun again.
    if matches!(fail, Fail::Heavy { .. }) {
        return;
    }
    let seen = match &call.view {
        View::Direct { shown, .. } => *shown,
        View::Exclusive(exclusive) => exclusive.seen(),
        View::Transaction { transaction, .. } => transaction.seen(),
        View::Snapshot(snapshot) => snapshot.position(),
    };
    call.session.need.add(call.durability, seen);
    call.session.need.merge(fail.need(call.durability));
}

/// Says of a command that only Holdfast has how it is written: there is no manual elsewhere to look it up in.
fn explain(command: &Command, fail: Fail) -> Fail {
    match fail {
        Fail::Text(text) if text == SYNTAX && command.group == "holdfast" => {
            let name = command.name.replace('|', " ").to_uppercase();
            format!("{SYNTAX}: it is {name} {}", command.syntax).into()
        }
        fail => fail,
    }
}

/// Takes the reply of a command that waited for entries: those in it that the client does not have yet.
pub(crate) fn waited(
    session: &mut Session,
    waited: Waited,
    is_silent: bool,
    reply: &mut Reply,
) -> (Share, Vec<Handed>) {
    let (waited, handed) = match waited {
        Ok((written, handed)) => (Ok(written), handed),
        Err(fail) => (Err(fail), Vec::new()),
    };
    let room = worked(session, waited, is_silent, reply);
    if let Some(tracked) = &mut session.tracked {
        tracked.end_waiting();
    }
    if is_silent {
        // Nobody wants to hear of them.
        handed.into_iter().for_each(Handed::keep);
        return (room, Vec::new());
    }
    (room, handed)
}

/// Takes the reply of a command that ran off the event loop, and gives the room that it has.
pub(crate) fn worked(session: &mut Session, worked: Worked, is_silent: bool, reply: &mut Reply) -> Share {
    let mut room = Share::default();
    match worked {
        Ok(written) => {
            let need = written.need;
            session.last_write = session.last_write.max(need.own);
            // WAITAOF may wait for a little more than was written.
            session.last_write = session.last_write.max(need.synced).max(need.window).max(need.written);
            if !is_silent {
                reply.join(written.reply);
                session.need.merge(need);
                room = written.room;
            }
        }
        Err(fail) => {
            add(&session.counters.errors, 1);
            open::fail(session, &fail);
            if !is_silent {
                session.need.merge(fail.need(session.durability));
                reply.error(&fail.text());
            }
        }
    }
    session.replies += usize::from(!is_silent);
    room
}

/// A bucket and a key in it.
pub(crate) type NamedKey<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The buckets and keys a call names.
pub(crate) fn keys_of<'a>(row: &Command, args: Args<'a>, selected: BucketName, keys: &mut Vec<NamedKey<'a>>) {
    let selected: Cow<'a, [u8]> = Cow::Owned(selected.as_bytes().to_vec());
    for (number, index) in row.key_arguments(args.len()).enumerate() {
        let bucket = match row.keys.bucket {
            BucketOf::First => Cow::Borrowed(args.at(1)),
            BucketOf::Copy if number == 1 => match copy_database(args) {
                Some(database) => Cow::Owned(BucketName::of(database).as_bytes().to_vec()),
                None => selected.clone(),
            },
            _ => selected.clone(),
        };
        keys.push((bucket, Cow::Borrowed(args.at(index))));
    }
}

/// The database that the option DB of COPY names, if it is there and a number.
pub(crate) fn copy_database(args: Args<'_>) -> Option<u16> {
    let mut index = 3;
    let mut database = None;
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"db") {
            database = args.get(index + 1).and_then(number::parse_i64).and_then(|number| u16::try_from(number).ok());
            index += 1;
        }
        index += 1;
    }
    database
}

/// Whether what took so long is told to anybody.
pub(crate) fn is_slow(door: &Door, elapsed: Duration) -> bool {
    let threshold_us = u64::try_from(door.settings.slowlog_us.load(Relaxed)).ok();
    let latency_ms = Some(door.settings.latency_ms.load(Relaxed)).filter(|latency_ms| *latency_ms > 0);
    threshold_us.is_some_and(|threshold_us| elapsed.as_micros() >= threshold_us.into())
        || latency_ms.is_some_and(|latency_ms| elapsed.as_millis() >= latency_ms.into())
}

/// Notes that a command took so long, if that is long.
pub(crate) fn note_slow(
    door: &Door,
    client: &Client,
    row: &'static Command,
    args: Args<'_>,
    elapsed: Duration,
    now_ms: u64,
) {
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let threshold = door.settings.slowlog_us.load(Relaxed);
    if threshold >= 0 && micros >= threshold as u64 && !row.has(flag::SKIP_SLOWLOG) {
        let entry = slowlog::Entry {
            id: 0,
            unix_s: now_ms / 1000,
            micros,
            args: slowlog::shown_args(row, args),
            client: client.address.to_string(),
            client_name: client.names().name.clone(),
        };
        door.slowlog.add(entry, door.settings.slowlog_entries.load(Relaxed) as usize);
    }
    let latency_ms = door.settings.latency_ms.load(Relaxed);
    if latency_ms > 0 && micros / 1000 >= latency_ms {
        let event = if row.has(flag::FAST) { "fast-command" } else { "command" };
        door.latency.add(event, now_ms / 1000, micros / 1000);
    }
}

/// Takes back what a command wrote that has come to nothing, also that it wrote too much.
fn take_back(reply: &mut Reply, mark: usize) {
    reply.truncate(mark);
    reply.take_overflow();
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
