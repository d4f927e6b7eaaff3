//! SPACE.*: entries of the object space, as JSON or MessagePack.
//!
//! Nothing here waits for a sync, for a lock or for an entry: what an answer rests on is noted with the connection, and what
//! has to wait is handed to it (`wait.rs`) or to a thread. Inside EXEC entries are written, read and taken within a
//! transaction that becomes a part of EXEC's one batch (`within.rs`).
//!
//! May use: `call`, the facade. Must not know: sockets, dispatch.

pub(crate) mod argument;
pub(crate) mod change;
pub(crate) mod declare;
pub(crate) mod describe;
pub(crate) mod iterate;
pub(crate) mod listen;
pub(crate) mod query;
pub(crate) mod read;
pub(crate) mod wait;
pub(crate) mod wanted;
pub(crate) mod within;
pub(crate) mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast::space::{Entries, Entry, GoOn, Outlook, Stop, ValueRef, Wanted};
use holdfast::{Durability, Position};

use crate::resp::call::{Call, Fail, View};
use crate::resp::reply::Reply;
use crate::resp::session::Need;

/// How many entries a command may have to look at before it is run off the event loop.
const LOOKED_AT_MAX: u64 = 4_096;
/// How many stretches of work a search may do on the event loop of which it is not known how many it needs: each some 64 KiB of entries, or a partition.
const STRETCHES_HERE_MAX: usize = 48;
/// And how long.
const TIME_HERE_MAX: Duration = Duration::from_millis(1);

fn text<'a>(what: &str, argument: &'a [u8]) -> Result<&'a str, Fail> {
    std::str::from_utf8(argument).map_err(|_| format!("ERR the name of the {what} is not UTF-8").into())
}

/// The type that the last command of a connection was about. Most name the same again, and to find it takes a lock and counts that all reactors
/// write.
#[derive(Default)]
pub(crate) struct LastType(Option<Known>);

struct Known {
    space: Box<str>,
    name: Box<str>,
    entries: Arc<Entries>,
}

impl LastType {
    /// Has what is looked at fetched for commands with these ids, that are about to come.
    pub(crate) fn fetch_ahead<'v>(&self, ids: impl Iterator<Item = ValueRef<'v>>) {
        if let Some(known) = &self.0 {
            known.entries.fetch_ahead(ids);
        }
    }

    fn get(&self, space: &str, name: &str) -> Option<&Arc<Entries>> {
        let known = self.0.as_ref().filter(|known| *known.space == *space && *known.name == *name)?;
        Some(&known.entries).filter(|entries| entries.is_there())
    }
}

/// The type that the first two arguments name. Whoever goes through its entries ends when its time is over, or the client is gone.
fn entries(call: &mut Call<'_, '_>) -> Result<Arc<Entries>, Fail> {
    let args = call.args();
    let (space, name) = (text("space", args.at(1))?, text("type", args.at(2))?);
    if let Some(entries) = call.session.last_type.get(space, name) {
        return Ok(Arc::clone(entries));
    }
    let entries = Arc::new(call.door.store.space(space).entries(name)?.until(stop(call)));
    // A script has another end each time.
    if !call.session.is_script {
        let known = Known { space: space.into(), name: name.into(), entries: Arc::clone(&entries) };
        call.session.last_type = LastType(Some(known));
    }
    Ok(entries)
}

/// When this command ends though it is not done.
fn stop(call: &Call<'_, '_>) -> Stop {
    let time_max = Some(call.door.options.limits.space_time_max);
    // A script has one time for all that it calls.
    let deadline = call.session.deadline.filter(|_| call.session.is_script);
    let go_on = deadline.map(|deadline| GoOn::new(move || !deadline.is_over()));
    Stop { time_max, cancel: Some(call.session.client.gone.clone()), go_on }
}

/// The same for one that changes many entries: who sends it and goes means it.
fn entries_to_change(call: &mut Call<'_, '_>) -> Result<Arc<Entries>, Fail> {
    let entries = entries(call)?;
    Ok(Arc::new(entries.until(Stop { cancel: None, ..stop(call) })))
}

/// Whether finding these, as many at most, may take so long that others would wait: by no index, or in a long range of one.
fn is_long(entries: &Entries, wanted: &Wanted, max: usize) -> Result<bool, Fail> {
    Ok(outlook(entries, wanted, max)? != Outlook::Few)
}

/// How much there is to look at to find these, as many at most.
fn outlook(entries: &Entries, wanted: &Wanted, max: usize) -> Result<Outlook, Fail> {
    Ok(entries.outlook(wanted, max, LOOKED_AT_MAX)?)
}

/// Finds here what may take long and mostly does not, because the first that are come to are wanted. None when it did, and is to be begun again elsewhere;
/// then nothing has been changed.
fn found_here<T>(
    call: &Call<'_, '_>,
    entries: &Entries,
    find: impl FnOnce(&Entries) -> holdfast::Result<T>,
) -> Result<Option<T>, Fail> {
    // A script is in a thread.
    if call.session.is_script {
        return Ok(None);
    }
    let (left, began) = (AtomicUsize::new(STRETCHES_HERE_MAX), Instant::now());
    let is_over = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&is_over);
    let go_on = GoOn::new(move || {
        // A stretch of a condition that takes long may take a millisecond by itself.
        let may = left.load(Ordering::Relaxed) > 0 && began.elapsed() < TIME_HERE_MAX;
        left.fetch_sub(usize::from(may), Ordering::Relaxed);
        tells.fetch_or(!may, Ordering::Relaxed);
        may
    });
    match find(&entries.until(Stop { go_on: Some(go_on), ..stop(call) })) {
        Err(_) if is_over.load(Ordering::Relaxed) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// What a reply rests on. An entry that is in no journal is as durable as it will ever be.
fn need_of(entries: &Entries, durability: Durability, position: Position) -> Need {
    let mut need = Need::NOTHING;
    if entries.is_durable() {
        need.add(durability, position);
    }
    need
}

/// Notes what the reply shows.
fn show(call: &mut Call<'_, '_>, entries: &Entries, position: Position) {
    if let View::Direct { shown, .. } = &mut call.view
        && entries.is_durable()
    {
        *shown = (*shown).max(position);
    }
}

/// Notes what the reply shows that the connection has changed.
fn show_change(call: &mut Call<'_, '_>, entries: &Entries, position: Position) {
    show(call, entries, position);
    if let View::Direct { shown, .. } = &call.view {
        call.session.last_write = call.session.last_write.max(*shown);
    }
}

/// `[document, version, when its lease ends or null]`.
fn write_entry(reply: &mut Reply, entry: &Entry) {
    reply.array(3);
    reply.document(&entry.document);
    reply.unsigned(entry.version.get());
    write_expiry(reply, entry);
}

/// What is told as the version of an entry that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Known,
    /// It is that of the batch under way.
    OfBatch,
    /// It is in no journal, and so has one of its own, which nobody knows before the commit.
    OfItsOwn,
}

impl Version {
    /// Of an entry that is written by the batch under way.
    fn coming(entries: &Entries) -> Self {
        if entries.is_durable() { Self::OfBatch } else { Self::OfItsOwn }
    }

    fn write(self, reply: &mut Reply, known: Position) {
        match self {
            Self::Known => reply.unsigned(known.get()),
            Self::OfBatch => reply.commit_position(),
            Self::OfItsOwn => reply.unsigned(0),
        }
    }
}

/// As [`write_entry`], of an entry that was written just now.
fn write_entry_with(reply: &mut Reply, entry: &Entry, version: Version) {
    reply.array(3);
    reply.document(&entry.document);
    version.write(reply, entry.version);
    write_expiry(reply, entry);
}

fn write_expiry(reply: &mut Reply, entry: &Entry) {
    match entry.expires_ms {
        Some(at) => reply.unsigned(at),
        None => reply.null(),
    }
}
