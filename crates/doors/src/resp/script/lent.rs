//! Scripts that this door runs for another: by text, by hash and by name, with the rights of whoever asks there.
//!
//! `kept` has those that are kept. They run in threads, and have the same turns, time and memory as those of this door's own clients.
//!
//! May use: `run`, `cache`, `functions`, `crate::scripts`. Must not know: the other door.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use holdfast::{Durability, ErrorKind, Position};
use script::{ScriptError, Stop, Value};

use super::cache::Known;
use super::deadline::Deadline;
use super::run::{Here, Ran as Ended, Task, failure, limits, run_alone, too_long};
use crate::budget::Share;
use crate::resp::call::Fail;
use crate::resp::clients::Client;
use crate::resp::counters::Counters;
use crate::resp::door::Door;
use crate::resp::handle::{is_slow, note_slow};
use crate::resp::session::{Need, Session};
use crate::resp::table;
use crate::resp::wire::OwnedArgs;
use crate::scripts::{Accepts, Failed, Ran, Returned, Running, RunsScripts, Scripts, Wanted, Which, Why};

/// The codes in front of errors that say what kind they are.
const CODES: [(&str, ErrorKind); 6] = [
    ("CONFLICT", ErrorKind::Conflict),
    ("LIMIT", ErrorKind::Limit),
    ("TIMEOUT", ErrorKind::Timeout),
    ("UNAVAILABLE", ErrorKind::Unavailable),
    ("ABORTED", ErrorKind::Aborted),
    ("CORRUPT", ErrorKind::Corrupt),
];

/// How the error ends of a script that returned more than is taken.
const TOO_BIG: &str = "cannot be a reply: it is too big";

/// The scripts of this door, as long as it is open.
pub(crate) fn lent(door: &Arc<Door>) -> Scripts {
    Scripts::new(Lent(Arc::downgrade(door)))
}

pub(super) struct Lent(pub(super) Weak<Door>);

impl RunsScripts for Lent {
    fn run(&self, wanted: Wanted, mut accepts: Accepts, share: Share) -> Running {
        let door = self.0.upgrade();
        Box::pin(async move {
            let Some(door) = door else { return Ran::nothing(closing()) };
            let Ok(turn) = door.scripts.turns().acquire_owned().await else { return Ran::nothing(closing()) };
            let run = move || {
                // They end with the script, also when nobody waits for it any more.
                let _held = (turn, share);
                run(&door, &wanted, &mut accepts)
            };
            tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| {
                tracing::error!(%error, "a script ended without an answer");
                Ran::nothing(failed(Why::Store(ErrorKind::Internal), "ERR internal error"))
            })
        })
    }
}

impl Ran {
    /// Nothing was run.
    fn nothing(failed: Failed) -> Self {
        Ran { result: Err(failed), rests_on: Vec::new() }
    }
}

pub(super) fn failed(why: Why, text: impl Into<String>) -> Failed {
    Failed { why, text: text.into() }
}

pub(super) fn closing() -> Failed {
    failed(Why::Store(ErrorKind::Unavailable), "UNAVAILABLE the door that runs scripts is closed")
}

/// There is no script with this hash.
pub(super) fn missing() -> Failed {
    failed(Why::Missing, "NOSCRIPT No matching script. Send its text.")
}

/// A script that was found.
struct Found {
    known: Arc<Known>,
    function: Option<String>,
    is_reading: bool,
    /// What it rests on that there is such a one.
    position: Position,
    /// How much of its time was spent on compiling it.
    spent: Duration,
}

fn find(door: &Door, which: &Which) -> Result<Found, Failed> {
    let found =
        |known| Found { known, function: None, is_reading: false, position: Position::ZERO, spent: Duration::ZERO };
    match which {
        Which::Text(text) => {
            let compiled = door.scripts.of_text(text, &limits(&door.options));
            let (known, spent) = compiled.map_err(|error| failed(Why::Malformed, failure(&error).text()))?;
            Ok(Found { spent, ..found(known) })
        }
        Which::Hash(sha) => door.scripts.get(sha.as_bytes()).map(found).ok_or_else(missing),
        Which::Function(name) => {
            let table = door.functions.table();
            let missing = || failed(Why::Missing, "ERR Function not found");
            let (library, is_reading) = table.function(name).ok_or_else(missing)?;
            let (function, position) = (Some(name.clone()), table.position);
            Ok(Found { function, is_reading, position, ..found(library.known.clone()) })
        }
    }
}

fn session(door: &Door, wanted: &Wanted) -> Session {
    let id = door.clients.next_id();
    let client = Client::new(id, wanted.address.unwrap_or(door.address), door.address, door.store.now_ms());
    // Counters of reactors have one writer each, and this is another thread.
    let mut session = Session::new(Arc::new(client), Arc::new(Counters::default()), wanted.durability);
    session.user.clone_from(&wanted.user);
    session.client.names().name.clone_from(&wanted.door);
    session.select(wanted.database);
    session
}

/// How it would be said over RESP, for the slow log.
fn words(wanted: &Wanted) -> OwnedArgs {
    let (name, which) = match &wanted.which {
        Which::Text(text) => ("EVAL", text.as_slice()),
        Which::Hash(sha) => ("EVALSHA", sha.as_bytes()),
        Which::Function(name) => ("FCALL", name.as_bytes()),
    };
    let name = if wanted.is_reading { format!("{name}_RO") } else { name.to_owned() };
    let (mut words, count) = (OwnedArgs::default(), wanted.keys.len().to_string());
    let all = [name.as_bytes(), which, count.as_bytes()].into_iter();
    all.chain(wanted.keys.iter().chain(&wanted.arguments).map(Vec::as_slice)).for_each(|word| words.push(word));
    words
}

/// Has the slow log know how long it took.
fn note(door: &Door, wanted: &Wanted, client: &Client, elapsed: Duration) {
    if !is_slow(door, elapsed) {
        return;
    }
    let words = words(wanted);
    if let table::Found::Row { row, .. } = table::find(words.args()) {
        note_slow(door, client, row, words.args(), elapsed, door.store.now_ms());
    }
}

/// What there has to be for a script to begin.
fn check(door: &Door, wanted: &Wanted) -> Result<(), Failed> {
    if wanted.database >= door.options.databases {
        return Err(failed(Why::Malformed, "ERR DB index is out of range"));
    }
    let bytes_max = door.store.limits().key_bytes_max;
    if wanted.keys.iter().any(|key| key.len() > bytes_max) {
        return Err(failed(Why::Malformed, format!("ERR the key exceeds {bytes_max} bytes")));
    }
    Ok(())
}

/// Runs it here, and has the slow log know. Blocks.
fn run(door: &Door, wanted: &Wanted, accepts: &mut Accepts) -> Ran {
    let (mut session, started) = (session(door, wanted), Instant::now());
    let ran = run_for(door, &mut session, wanted, accepts);
    note(door, wanted, &session.client, started.elapsed());
    ran
}

fn run_for(door: &Door, session: &mut Session, wanted: &Wanted, accepts: &mut Accepts) -> Ran {
    let found = match check(door, wanted).and_then(|()| find(door, &wanted.which)) {
        Ok(found) => found,
        Err(failed) => return Ran::nothing(failed),
    };
    let time_max = door.options.script.time_max.min(wanted.time_max).saturating_sub(found.spent);
    let task = Task {
        known: &found.known,
        function: found.function.as_deref(),
        keys: wanted.keys.iter().map(Vec::as_slice).collect(),
        arguments: wanted.arguments.iter().map(Vec::as_slice).collect(),
        is_reading: wanted.is_reading || found.is_reading,
        result_bytes_max: wanted.result_bytes_max,
        here: Here::ANY,
        spent: Duration::ZERO,
    };
    session.need.add(wanted.durability, found.position);
    let (mut value, mut share) = (Value::Nil, Share::default());
    let mut answer = |returned| {
        share = accepts(&returned)?;
        value = returned;
        Ok(())
    };
    let ended = if time_max.is_zero() {
        Ok(Ended::TooLong)
    } else {
        run_alone(door, session, &task, &mut answer, || Deadline::of_work(time_max))
    };
    let mut need = session.need;
    let result = match ended {
        Ok(Ended::Done { durability, position, .. }) => {
            need.add(durability, position);
            Ok(Returned { value, position, share })
        }
        Ok(Ended::TooLong) => Err(failed(Why::Stopped, too_long().text())),
        Err(fail) => Err(failed(why(&fail), fail.text())),
    };
    Ran { result, rests_on: rests_on(door, need) }
}

fn rests_on(door: &Door, need: Need) -> Vec<(Durability, Position)> {
    let window = Durability::Window(door.options.window);
    let all = [(Durability::Synced, need.synced), (window, need.window), (Durability::Written, need.written)];
    all.into_iter().filter(|(_, position)| *position > Position::ZERO).collect()
}

/// How errors end that name a limit of the configuration which no second try changes.
const LIMITS: [&str; 2] = ["(script.memory_bytes_max)", "(script.steps_max)"];

pub(super) fn why(fail: &Fail) -> Why {
    match fail {
        Fail::Store(error) => Why::Store(error.kind()),
        Fail::TooBig(_) => Why::Store(ErrorKind::Limit),
        Fail::Heavy { .. } => Why::Store(ErrorKind::Internal),
        Fail::Resting { fail, .. } => why(fail),
        Fail::Text(text) if LIMITS.iter().any(|named| text.ends_with(named)) => Why::Store(ErrorKind::Limit),
        Fail::Text(text) if text.ends_with(TOO_BIG) => Why::Store(ErrorKind::Limit),
        Fail::Text(text) if *text == failure(&ScriptError::Stopped(Stop::Killed)).text() => Why::Stopped,
        Fail::Text(text) => {
            let code = text.split(' ').next().unwrap_or_default();
            if code == "NOPERM" {
                return Why::Denied;
            }
            CODES.iter().find(|(known, _)| *known == code).map_or(Why::Raised, |(_, kind)| Why::Store(*kind))
        }
    }
}
