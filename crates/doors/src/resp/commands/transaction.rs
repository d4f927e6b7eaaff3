//! MULTI, EXEC and WATCH: one exclusive, one batch of the journal.
//!
//! EXEC locks what the queued commands name (everything, if one of them goes over a whole database), checks that watched
//! keys still have the versions they had, runs the commands, and commits once. A command that fails by itself changes
//! nothing and does not stop the others, as in Redis; an error of the store discards the whole transaction. After EXEC POSITION,
//! which Redis does not have, every error does.
//!
//! What is done in spaces is a transaction that joins the batch; points of time series are gathered, and join it whole.
//!
//! May use: `call`, `handle`. Must not know: sockets.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use holdfast::{Durability, ErrorKind, Scope, Transaction};

use crate::resp::call::{Answer, Call, Fail, View, store_error_text};
use crate::resp::counters::add;
use crate::resp::door::Door;
use crate::resp::handle::{NamedKey, keys_of, run_in};
use crate::resp::permit;
use crate::resp::session::{BucketName, Need, Queue, Queued, ReplyMode, Session, Watched};
use crate::resp::table::{BucketOf, Command, flag};
use crate::resp::wire::Args;

pub(crate) fn multi(call: &mut Call<'_, '_>) -> Answer {
    if call.session.multi.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    if call.session.open.is_some() {
        return Err("ERR a transaction is open: TX.COMMIT or TX.ABORT before MULTI".into());
    }
    call.session.multi = Some(Queue::default());
    call.session.client.set_transaction(0, call.session.watched.len());
    call.reply.ok();
    Ok(())
}

fn end(session: &mut Session) -> Option<Queue> {
    session.watched.clear();
    session.client.set_transaction(-1, 0);
    session.multi.take()
}

pub(crate) fn discard(call: &mut Call<'_, '_>) -> Answer {
    if call.session.multi.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    end(call.session);
    call.reply.ok();
    Ok(())
}

pub(crate) fn watch(call: &mut Call<'_, '_>) -> Answer {
    if call.session.multi.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    if call.session.open.is_some() {
        return Err("ERR a transaction is open, which watches all keys that it reads".into());
    }
    let bucket = call.session.bucket;
    let args = call.args();
    for key in args.from(1).iter() {
        let is_watched = call.session.watched.iter().any(|watched| watched.bucket == bucket && watched.key == key);
        if is_watched {
            continue;
        }
        if call.session.watched.len() >= call.door.options.limits.watched_keys_max {
            return Err("ERR too many watched keys".into());
        }
        let version = call.view.head(bucket.as_bytes(), key)?.map(|head| head.version);
        call.session.watched.push(Watched { bucket, key: key.to_vec(), version });
    }
    call.session.client.set_transaction(-1, call.session.watched.len());
    call.reply.ok();
    Ok(())
}

pub(crate) fn unwatch(call: &mut Call<'_, '_>) -> Answer {
    call.session.watched.clear();
    call.session.client.set_transaction(-1, 0);
    call.reply.ok();
    Ok(())
}

pub(crate) fn exec(call: &mut Call<'_, '_>) -> Answer {
    // Whatever else it says, it ends the transaction.
    let shows_position = match call.args.get(1) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"position") && call.args.len() == 2 => true,
        Some(_) => {
            end(call.session);
            return Err("EXECABORT Transaction discarded: ERR EXEC takes nothing, or POSITION".into());
        }
    };
    let watched = std::mem::take(&mut call.session.watched);
    let Some(queue) = end(call.session) else {
        call.session.watched = watched;
        return Err("ERR EXEC without MULTI".into());
    };
    if queue.broken {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    let before = Before::of(call.session);
    let ran = run_all(call, &queue.commands, &watched, shows_position);
    if let Err(fail) = &ran {
        let mut need = fail.need(call.session.durability);
        need.add(call.session.durability, call.session.joined.as_ref().map(Transaction::seen).unwrap_or_default());
        call.session.need.merge(need);
    }
    call.session.joined = None;
    if ran.is_err() {
        call.session.forget_points();
    }
    if matches!(ran, Err(Fail::Heavy { .. })) {
        before.restore(call.session, queue, watched);
        return ran;
    }
    ran.map_err(|fail| match fail {
        Fail::Text(_) => fail,
        // What became of a distributed transaction is more than that nothing has happened here.
        Fail::Store(error)
            if error.rests_on().is_some() && error.told_at(Durability::Written) == Durability::Synced =>
        {
            store_error_text(&error).into()
        }
        // It may have happened: who is told that it was discarded does it again.
        Fail::Store(error) if error.kind() == ErrorKind::Unknown => store_error_text(&error).into(),
        fail => format!("EXECABORT Transaction discarded: {}", fail.text()).into(),
    })
}

/// What commands of a transaction change of the connection, as it was before: EXEC may have to be begun again.
struct Before {
    database: u16,
    durability: Durability,
    reply_mode: ReplyMode,
}

impl Before {
    fn of(session: &Session) -> Self {
        Before { database: session.database, durability: session.durability, reply_mode: session.reply_mode }
    }

    /// As if EXEC had not come yet.
    fn restore(self, session: &mut Session, queue: Queue, watched: Vec<Watched>) {
        session.select(self.database);
        (session.durability, session.reply_mode) = (self.durability, self.reply_mode);
        session.client.set_transaction(queue.commands.len() as i64, watched.len());
        (session.multi, session.watched) = (Some(queue), watched);
    }
}

/// The buckets and keys the transaction names, or nothing if it goes over whole databases.
fn scope_of<'a>(
    door: &Door,
    commands: &'a [Queued],
    watched: &'a [Watched],
    selected: BucketName,
) -> Option<Vec<NamedKey<'a>>> {
    let mut keys = Vec::new();
    for watched in watched {
        keys.push((Cow::Borrowed(watched.bucket.as_bytes()), Cow::Borrowed(watched.key.as_slice())));
    }
    let mut selected = selected;
    for queued in commands {
        let args = queued.args.args();
        if queued.command.has(flag::WHOLE) {
            return None;
        }
        // Where the store keeps a listener is its own affair, and nothing that commands name. What is wrong with the command it says itself.
        if queued.command.name == "space.ack"
            && let Some((bucket, key)) = listener_object(door, args)
        {
            keys.push((Cow::Borrowed(bucket), Cow::Owned(key)));
        }
        if queued.command.name == "select"
            && let Some(database) = door.database(args.at(1))
        {
            selected = BucketName::of(database);
        }
        keys_of(queued.command, args, selected, &mut keys);
    }
    Some(keys)
}

/// What SPACE.ACK changes, if there is such a type.
fn listener_object(door: &Door, args: Args<'_>) -> Option<(&'static [u8], Vec<u8>)> {
    let [space, of, name] = [1, 2, 3].map(|index| std::str::from_utf8(args.at(index)).ok());
    Some(door.store.space(space?).entries(of?).ok()?.listener_object(name?))
}

fn run_all(call: &mut Call<'_, '_>, commands: &[Queued], watched: &[Watched], shows_position: bool) -> Answer {
    let named = scope_of(call.door, commands, watched, call.session.bucket);
    let door = call.door;
    let shows_numbers = commands.iter().any(|queued| queued.command.has(flag::NUMBERS));
    call.session.numbers = shows_numbers.then(|| door.store.stats());
    let may_be_in_spaces = |row: &Command| row.keys.bucket == BucketOf::Space || row.has(flag::SCRIPT);
    let in_spaces = commands.iter().any(|queued| may_be_in_spaces(queued.command));
    call.session.deadline = None;
    call.session.joined = in_spaces.then(|| door.store.begin().joining());
    // Before the exclusive, which it outlives.
    let mut joined;
    call.session.forget_points();
    let mut points;
    let mut exclusive = match &named {
        None => door.store.exclusive(&Scope::All)?,
        Some(named) => {
            let mut scope: Vec<(&[u8], &[u8])> =
                named.iter().map(|(bucket, key)| (bucket.as_ref(), key.as_ref())).collect();
            scope.sort_unstable();
            scope.dedup();
            // Transactions that are decided with the batch. An id that is none is an error of its command.
            let decided = commands.iter().filter(|queued| queued.command.name == "xa.commit");
            let id = |queued: &Queued| std::str::from_utf8(queued.args.args().at(1)).ok()?.parse().ok();
            let ids: Vec<holdfast::TransactionId> = decided.filter_map(id).collect();
            door.store.xa().exclusive(&Scope::Keys(&scope), &ids)?
        }
    };
    let mut is_changed = false;
    for watched in watched {
        let head = exclusive.head(watched.bucket.as_bytes(), &watched.key)?;
        is_changed |= head.map(|head| head.version) != watched.version;
    }
    if is_changed {
        let committed = exclusive.commit()?;
        call.session.need.add(call.session.durability, committed.position);
        call.reply.null_array();
        return Ok(());
    }
    if shows_position {
        call.reply.array(2);
        call.reply.commit_position();
    }
    call.reply.array(commands.len());
    let mut wanted = Vec::new();
    let mut wrote = false;
    for queued in commands {
        let mark = call.reply.len();
        call.session.effort.add_items(1)?;
        let args = queued.args.args();
        add(&call.session.counters.commands, 1);
        call.session.client.set_command(queued.index);
        let permitted = match &call.session.user {
            Some(user) => permit::check(user, queued.command, args, call.session.bucket),
            None => Ok(()),
        };
        let ran = permitted.and_then(|()| {
            run_in(
                door,
                call.session,
                queued.command,
                args,
                call.reply,
                call.now_ms,
                true,
                View::Exclusive(&mut exclusive),
            )
        });
        wrote |= queued.command.has(flag::WRITE);
        match ran {
            Ok(durability) => wanted.push(durability),
            // Who asks for the position takes it for that of all of them.
            Err(Fail::Text(text)) if shows_position => {
                return Err(format!("EXECABORT Transaction discarded: {text}").into());
            }
            Err(Fail::Text(text)) => {
                add(&call.session.counters.errors, 1);
                call.reply.truncate(mark);
                call.reply.error(&text);
            }
            Err(fail) => return Err(fail),
        }
    }
    joined = call.session.joined.take();
    if let Some(joined) = &mut joined {
        exclusive.join_spaces(joined);
    }
    points = std::mem::take(&mut call.session.points);
    let count = points.len() as u64;
    if count > 0 {
        exclusive.add_points(&mut points)?;
    }
    let committed = exclusive.commit()?;
    if count > 0 {
        door.points.written.fetch_add(count, Relaxed);
        door.points.batches.fetch_add(1, Relaxed);
    }
    call.session.keep_points(points);
    call.reply.resolve(committed.position.get());
    if wrote {
        call.session.last_write = call.session.last_write.max(committed.position);
    }
    // There is one commit: it must be as durable as the most careful of the commands asks.
    let mut need = Need::NOTHING;
    need.add(call.session.durability, committed.position);
    wanted.into_iter().for_each(|durability: Durability| need.add(durability, committed.position));
    call.session.need.merge(need);
    Ok(())
}
