//! SPACE.ITERATE: through all entries, a batch at a time.
//!
//! Where it stands is kept in the door, with the entries of one partition that it has come to: see `iterations`. Each batch is
//! gathered in a thread, because the next partition may have to be gone through.
//!
//! May use: `wanted`, `iterations`, the facade. Must not know: sockets, dispatch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{Entry, Wanted};

use super::wanted::{self, Takes, chosen, options};
use super::{entries, need_of, stop, within, write_entry};
use crate::iterations::{Going, Iterations, batch, locked};
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX, View};
use crate::resp::commands::own::durability;
use crate::resp::number;
use crate::resp::open::{Came, For};
use crate::resp::reply::Reply;

/// How many entries are returned unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 100;

pub(crate) fn iterate(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let entries = entries(call)?;
    let limits = call.door.options.limits.clone();
    let of = match &call.view {
        View::Transaction { of, .. } => Some(Arc::clone(of)),
        _ => None,
    };
    let is_going = args.at(3).eq_ignore_ascii_case(b"cursor");
    let (begins, count, life) = if is_going {
        let id = args.get(4).ok_or(SYNTAX).map(number::parse_u64)?.ok_or(NOT_INTEGER)?;
        let (count, life) = behind_cursor(call)?;
        let name = (args.at(1), args.at(2));
        let going = call.door.iterations().take(id, name, of.as_deref().copied(), Instant::now());
        let going = going.ok_or("ERR there is no such cursor any more, or it was used: begin anew")?;
        (Begins::Goes(Box::new(going)), count, life)
    } else {
        let mut chosen = chosen(call, 3)?;
        let options = options(call, &mut chosen, Takes::CountAndLife)?;
        (Begins::Now(Box::new(chosen.wanted)), options.count, options.life)
    };
    if count == Some(0) {
        return Err("ERR COUNT is at least 1".into());
    }
    let count = count.unwrap_or(COUNT_DEFAULT).min(limits.space_entries_max);
    // It is served once, and so cannot wait for room among what all clients are owed: it is no more than each may be owed at any time.
    let (iterations, bytes_max) = (call.door.iterations.clone(), limits.space_bytes_max.min(limits.loop_bytes_max));
    let (asked, stop) = (call.durability, stop(call));
    let name = (args.at(1).to_vec(), args.at(2).to_vec());
    let Some(of) = of else {
        call.defer(move |reply| {
            let mut going = match begins {
                // Another client may have begun it.
                Begins::Goes(going) => going.until(stop),
                Begins::Now(wanted) => Going::new(name, entries.iterate(&wanted)?),
            };
            let (found, goes_on) = batch(count, bytes_max, || going.next())?;
            let newest = found.iter().map(|entry| entry.version).max().unwrap_or_default();
            answer(reply, &iterations, &found, goes_on.then(|| going.living(life)));
            Ok(need_of(&entries, asked, newest))
        });
        return Ok(());
    };
    let (lock, begins) = (within::isolation(call), Mutex::new(Some(begins)));
    within::run(call, within::Begins::Elsewhere, (For::Lock, None), move |transaction, reply, _| {
        // Who comes again, because its lease has ended meanwhile, hears that.
        transaction.check()?;
        let begins = begins.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut within = entries.within(transaction);
        let mut going = match begins.ok_or("ERR internal error: an iteration that was begun twice")? {
            Begins::Goes(going) => going.until(stop.clone()),
            Begins::Now(wanted) => Going::within(name.clone(), &of, within.iterate(&wanted)?),
        };
        let (found, goes_on) = batch(count, bytes_max, || going.next_within(&mut within, lock))?;
        answer(reply, &iterations, &found, goes_on.then(|| going.living(life)));
        Ok(Came::Done)
    })
}

enum Begins {
    Now(Box<Wanted>),
    Goes(Box<Going>),
}

/// Answers the entries of a batch, and a cursor if there may be more.
fn answer(reply: &mut Reply, iterations: &Mutex<Iterations>, found: &[Entry], goes_on: Option<Going>) {
    let cursor = goes_on.map_or(0, |going| locked(iterations).add(going, Instant::now()));
    reply.array(2);
    reply.text(&cursor.to_string());
    reply.array(found.len());
    found.iter().for_each(|entry| write_entry(reply, entry));
}

/// The options behind a cursor.
fn behind_cursor(call: &mut Call<'_, '_>) -> Result<(Option<usize>, Option<Duration>), Fail> {
    let args = call.args();
    let (mut count, mut life, mut index) = (None, None, 5);
    while let Some(option) = args.get(index) {
        let argument = args.get(index + 1).ok_or(SYNTAX)?;
        if option.eq_ignore_ascii_case(b"count") && count.is_none() {
            let given = number::parse_u64(argument).and_then(|count| usize::try_from(count).ok());
            count = Some(given.ok_or(NOT_INTEGER)?);
        } else if option.eq_ignore_ascii_case(b"lease") && life.is_none() {
            life = Some(wanted::life(argument)?);
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    Ok((count, life))
}
