//! Entries inside EXEC: written, read and taken within a transaction that joins EXEC's batch.
//!
//! EXEC holds locks, so nothing here waits: an entry that somebody else has locked is a failure, and discards everything.
//!
//! May use: `call`, the facade. Must not know: sockets, replies.

use holdfast::space::{
    Change, Changed, Document, Entries, Entry, ReadLock, ReadOptions, Taking, Wanted, WriteOptions, Written,
};
use holdfast::{Error, ErrorKind, Transaction};

use crate::resp::call::{Answer, Call, Fail};

/// Runs a command such that inside EXEC whatever it fails of discards the transaction: the other commands must not happen
/// without it.
pub(crate) fn all_or_nothing(call: &mut Call<'_, '_>, run: fn(&mut Call<'_, '_>) -> Answer) -> Answer {
    let in_exec = call.in_exec;
    run(call).map_err(|fail| match fail {
        Fail::Text(text) if in_exec => {
            let text = text.strip_prefix("ERR ").unwrap_or(&text).to_owned();
            Fail::Store(Error::new(ErrorKind::Invalid, text))
        }
        fail => fail,
    })
}

fn transaction<'c>(call: &'c mut Call<'_, '_>) -> Result<&'c mut Transaction, Fail> {
    call.session.joined.as_mut().ok_or_else(|| "ERR internal error: EXEC has no transaction for spaces".into())
}

pub(crate) fn write(
    call: &mut Call<'_, '_>,
    entries: &Entries,
    document: &Document,
    options: &WriteOptions,
) -> Result<Written, Fail> {
    Ok(entries.within(transaction(call)?).write(document, options)?)
}

/// Changes an entry in place.
pub(crate) fn change(
    call: &mut Call<'_, '_>,
    entries: &Entries,
    wanted: &Wanted,
    changes: &[Change],
    options: &WriteOptions,
) -> Result<Option<Changed>, Fail> {
    Ok(entries.within(transaction(call)?).change(wanted, changes, options)?)
}

/// How many entries match.
pub(crate) fn count(call: &mut Call<'_, '_>, entries: &Entries, wanted: &Wanted) -> Result<u64, Fail> {
    Ok(entries.within(transaction(call)?).count(wanted)?)
}

/// Takes all that match and that nobody else has locked; how many.
pub(crate) fn clear(call: &mut Call<'_, '_>, entries: &Entries, wanted: &Wanted) -> Result<u64, Fail> {
    let most = call.door.options.limits.space_entries_max;
    Ok(entries.within(transaction(call)?).clear(wanted, most)?)
}

/// Reads an entry, which stays as it is until EXEC has committed, or takes it.
pub(crate) fn get(
    call: &mut Call<'_, '_>,
    entries: &Entries,
    wanted: &Wanted,
    options: &ReadOptions,
    taking: Taking,
) -> Result<Option<Entry>, Fail> {
    let mut within = entries.within(transaction(call)?);
    Ok(match taking {
        Taking::Read => within.read(wanted, ReadLock::Shared, options)?,
        Taking::Take => within.take(wanted, options)?,
    })
}
