//! SPACE.ITERATE: through all entries, a batch at a time.
//!
//! Where it stands is kept in the door, with the entries of one partition that it has come to: see `iterations`. Each batch is
//! gathered in a thread, because the next partition may have to be gone through.
//!
//! May use: `wanted`, `iterations`, the facade. Must not know: sockets, dispatch.

use std::time::Instant;

use super::wanted::{Takes, chosen, options};
use super::{entries, need_of, stop, write_entry};
use crate::iterations::Going;
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::commands::own::durability;

use crate::resp::number;

/// How many entries are returned unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 100;

pub(crate) fn iterate(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let entries = entries(call)?;
    let limits = call.door.options.limits.clone();
    let is_going = args.at(3).eq_ignore_ascii_case(b"cursor");
    let (mut going, count) = if is_going {
        let id = args.get(4).ok_or(SYNTAX).map(number::parse_u64)?.ok_or(NOT_INTEGER)?;
        let count = counted(call)?;
        let name = (args.at(1), args.at(2));
        let going = call.door.iterations().take(id, name, Instant::now());
        let going = going.ok_or("ERR there is no such cursor any more, or it was used: begin anew")?;
        (Begins::Goes(going), count)
    } else {
        let mut chosen = chosen(call, 3)?;
        let options = options(call, &mut chosen, Takes::Count)?;
        (Begins::Now(chosen.wanted), options.count)
    };
    let count = count.unwrap_or(COUNT_DEFAULT).clamp(1, limits.space_entries_max);
    let (door, asked, stop) = (call.door.iterations.clone(), call.durability, stop(call));
    let name = (args.at(1).to_vec(), args.at(2).to_vec());
    call.defer(move |reply| {
        let mut going = match std::mem::replace(&mut going, Begins::Over) {
            // Another client may have begun it.
            Begins::Goes(going) => going.until(stop),
            Begins::Now(wanted) => Going::new(name, entries.iterate(&wanted)?),
            Begins::Over => return Err("ERR internal error: an iteration that was begun twice".into()),
        };
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut is_over = false;
        while found.len() < count && bytes < limits.space_bytes_max {
            let Some(entry) = going.next()? else {
                is_over = true;
                break;
            };
            bytes += entry.document.as_bytes().len();
            found.push(entry);
        }
        let newest = found.iter().map(|entry| entry.version).max().unwrap_or_default();
        let cursor = if is_over { 0 } else { crate::iterations::locked(&door).add(going, Instant::now()) };
        reply.array(2);
        reply.text(&cursor.to_string());
        reply.array(found.len());
        found.iter().for_each(|entry| write_entry(reply, entry));
        Ok(need_of(&entries, asked, newest))
    });
    Ok(())
}

enum Begins {
    Now(holdfast::space::Wanted),
    Goes(Going),
    Over,
}

/// The options behind a cursor.
fn counted(call: &mut Call<'_, '_>) -> Result<Option<usize>, Fail> {
    let args = call.args();
    let (mut count, mut index) = (None, 5);
    while let Some(option) = args.get(index) {
        let argument = args.get(index + 1).ok_or(SYNTAX)?;
        if option.eq_ignore_ascii_case(b"count") && count.is_none() {
            let given = number::parse_u64(argument).and_then(|count| usize::try_from(count).ok());
            count = Some(given.ok_or(NOT_INTEGER)?);
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    Ok(count)
}
