//! KV.SNAPSHOT: views of the whole store at one instant, for KV.* commands that read.
//!
//! May use: `call`, the door's snapshots. Must not know: sockets, dispatch.

use std::time::{Duration, Instant};

use crate::resp::call::{Answer, Call, NOT_INTEGER, SYNTAX};
use crate::resp::number;

/// How long a snapshot is kept unless TTL says otherwise.
const SECONDS_DEFAULT: u64 = 60;

pub(crate) fn open(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let seconds_max = call.door.options.limits.snapshot_seconds_max;
    let seconds = match args.len() {
        2 => SECONDS_DEFAULT.min(seconds_max),
        4 if args.at(2).eq_ignore_ascii_case(b"ttl") => {
            let seconds = number::parse_u64(args.at(3)).ok_or(NOT_INTEGER)?;
            match (1..=seconds_max).contains(&seconds) {
                true => seconds,
                false => return Err(format!("ERR a snapshot is kept for 1 to {seconds_max} seconds").into()),
            }
        }
        _ => return Err(SYNTAX.into()),
    };
    let (client, now) = (call.session.client.id, Instant::now());
    let mut snapshots = call.door.snapshots();
    snapshots.close_expired(now);
    if !snapshots.has_room(client) {
        return Err("ERR too many snapshots are open: close one, or wait until the time of one is over".into());
    }
    let snapshot = call.door.store.snapshot()?;
    let position = snapshot.position();
    let id = snapshots.add(client, snapshot, now + Duration::from_secs(seconds));
    drop(snapshots);
    call.reply.array(2);
    call.reply.unsigned(id);
    call.reply.unsigned(position.get());
    Ok(())
}

pub(crate) fn close(call: &mut Call<'_, '_>) -> Answer {
    let id = number::parse_u64(call.args.at(2)).ok_or(NOT_INTEGER)?;
    let is_closed = call.door.snapshots().close(call.session.client.id, id);
    call.reply.integer(i64::from(is_closed));
    Ok(())
}

pub(crate) fn list(call: &mut Call<'_, '_>) -> Answer {
    let list = call.door.snapshots().list(call.session.client.id, Instant::now());
    call.reply.array(list.len());
    for listed in &list {
        call.reply.array(3);
        call.reply.unsigned(listed.id);
        call.reply.unsigned(listed.position.get());
        call.reply.unsigned(u64::try_from(listed.left.as_millis()).unwrap_or(u64::MAX));
    }
    Ok(())
}
