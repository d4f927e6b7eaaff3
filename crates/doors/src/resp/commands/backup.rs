//! BACKUP: a backup of the whole store into a directory of the server's machine, off the event loop.
//!
//! May use: `call`, `session`, the facade. Must not know: sockets, dispatch.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use holdfast::Backup;

use crate::resp::call::{Answer, Call, Fail, SYNTAX, store_error_text};
use crate::resp::open;
use crate::resp::reply::Reply;
use crate::resp::session::{Pending, ReplyMode, Session};

pub(crate) fn backup(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let dir = PathBuf::from(OsStr::from_bytes(args.at(1)));
    if !dir.is_absolute() {
        return Err("ERR the directory must be an absolute path on the server's machine".into());
    }
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    for at in (2..args.len()).step_by(2) {
        let (name, value) = (args.at(at), std::str::from_utf8(args.at(at + 1)).unwrap_or_default());
        let is_meant = if name.eq_ignore_ascii_case(b"store") {
            u128::from_str_radix(value, 16).ok() == Some(call.door.store.identity())
        } else if name.eq_ignore_ascii_case(b"process") {
            value.parse() == Ok(std::process::id())
        } else {
            return Err(SYNTAX.into());
        };
        if !is_meant {
            return Err("ERR this server serves another store".into());
        }
    }
    tracing::info!(client = %call.session.client.address, dir = %dir.display(), "a client asked for a backup");
    // Never on the event loop: on another file system it copies everything.
    call.session.pending = Some(Pending::Backup { dir });
    Ok(())
}

/// Writes the reply once the backup is made, or could not be.
pub(crate) fn backed_up(session: &mut Session, done: Option<holdfast::Result<Backup>>, reply: &mut Reply) {
    match done {
        Some(Ok(backup)) => {
            let numbers = [
                ("position", backup.position.get()),
                ("segments", backup.segments),
                ("bytes", backup.bytes),
                ("linked-segments", backup.linked),
                ("linked-bytes", backup.linked_bytes),
                ("copied-segments", backup.copied),
                ("copied-bytes", backup.copied_bytes),
                ("kept-segments", backup.kept),
                ("removed-segments", backup.removed),
                ("damaged-ranges", backup.damaged_ranges),
            ];
            reply.map(numbers.len());
            for (name, number) in numbers {
                reply.text(name);
                reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
            }
        }
        Some(Err(error)) => {
            tracing::error!(%error, "the backup failed");
            refuse(session, store_error_text(&error).into(), reply);
        }
        None => refuse(session, "ERR the backup was interrupted".into(), reply),
    }
    if session.reply_mode == ReplyMode::On {
        session.replies += 1;
    }
}

fn refuse(session: &mut Session, fail: Fail, reply: &mut Reply) {
    open::fail(session, &fail);
    reply.error(&fail.text());
}
