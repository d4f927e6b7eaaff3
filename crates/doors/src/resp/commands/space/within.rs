//! Entries inside EXEC, and between TX.BEGIN and TX.COMMIT: written, read and taken within a transaction.
//!
//! EXEC holds locks, so nothing waits there: an entry that somebody else has locked is a failure, and discards everything. So it is for a script. An
//! open transaction waits as the commands outside do, in a thread.
//!
//! May use: `call`, `open`, the facade. Must not know: sockets.

use std::time::Duration;

use holdfast::space::ReadLock;
use holdfast::{Error, ErrorKind, Transaction};

use crate::resp::call::{Answer, Call, Fail, View};
use crate::resp::open::{Came, For, Patience, Waiting, Work};
use crate::resp::reply::Reply;
use crate::resp::session::Pending;

/// Runs a command such that inside EXEC whatever it fails of discards the transaction: the other commands must not happen
/// without it. So it is in a script: the command may have changed something of the open transaction already, and the script could go on.
pub(crate) fn all_or_nothing(call: &mut Call<'_, '_>, run: fn(&mut Call<'_, '_>) -> Answer) -> Answer {
    let in_exec = call.in_exec && (call.session.is_script || !matches!(call.view, View::Transaction { .. }));
    run(call).map_err(|fail| match fail {
        Fail::Text(text) if in_exec => {
            let text = text.strip_prefix("ERR ").unwrap_or(&text).to_owned();
            Fail::Store(Error::new(ErrorKind::Invalid, text))
        }
        fail => fail,
    })
}

/// How SPACE.READ locks what it reads.
pub(crate) fn isolation(call: &Call<'_, '_>) -> ReadLock {
    match call.view {
        View::Transaction { isolation, .. } => isolation,
        _ => ReadLock::Shared,
    }
}

/// Where a command of an open transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// Here, and in a thread once more if it has to wait.
    Here,
    /// In a thread: it may take long.
    Elsewhere,
}

/// What a command that may write to a locked entry waits for, where it says how long. A turn to wait is waited for that long as well, and not as
/// long as may be where it said that it waits for nothing.
pub(crate) fn for_lock(asked: Option<Duration>) -> (For, Option<Duration>) {
    (For::Lock, asked.map(|asked| asked.max(Duration::from_millis(1))))
}

/// Does something within the transaction under way; where that is open, it waits for `what` if it must, for so long.
pub(crate) fn run(
    call: &mut Call<'_, '_>,
    begins: Begins,
    (what, block): (For, Option<Duration>),
    step: impl Fn(&mut Transaction, &mut Reply, &Patience) -> Result<Came, Fail> + Send + 'static,
) -> Answer {
    let mark = call.reply.len();
    let View::Transaction { transaction, .. } = &mut call.view else {
        if begins == Begins::Elsewhere {
            call.session.effort.add_long()?;
        }
        let joined = call.session.joined.as_mut();
        let joined = joined.ok_or("ERR internal error: EXEC has no transaction for spaces")?;
        return step(joined, call.reply, &Patience::None).map(|_| ());
    };
    if call.session.is_script {
        // It waits for nothing, and runs where it may take long.
        return step(transaction, call.reply, &Patience::None).map(|_| ());
    }
    if begins == Begins::Here {
        match step(transaction, call.reply, &Patience::None) {
            Ok(Came::Done) => return Ok(()),
            Ok(Came::Nothing) => {}
            Err(Fail::Store(error)) if error.kind() == ErrorKind::Timeout => {}
            Err(fail) => return Err(fail),
        }
        call.reply.truncate(mark);
    }
    let waiting = Waiting::new(call, what, Work::Step(Box::new(step))).for_so_long(block);
    call.session.pending = Some(Pending::Within(if begins == Begins::Elsewhere { waiting.long() } else { waiting }));
    Ok(())
}
