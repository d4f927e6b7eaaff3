//! One run of a script: locks, time, commit; on the event loop, in a thread, inside EXEC, or for another door.
//!
//! May use: `guest`, `value`, `cache`, the facade. Must not know: sockets, single commands.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast::{Durability, Error, ErrorKind, Position, Scope};
use script::{Entry, Limits, Run, Sandbox, ScriptError, Stop, Value};

use super::cache::Known;
use super::deadline::Deadline;
use super::guest::{Ground, Guest, Held};
use super::later::Later;
use super::value::write;
use crate::resp::call::{Answer, Call, Fail, View};
use crate::resp::door::{Door, Options};
use crate::resp::effort::{Effort, ITEM_BYTES, Use};
use crate::resp::open::Waiting;
use crate::resp::reply::{Protocol, Reply};
use crate::resp::session::{Pending, Session};

/// How long a script may hold up the event loop before it begins again in a thread.
pub(super) const AT_ONCE_MAX: Duration = Duration::from_millis(1);

thread_local! {
    /// A state that was used before: making one takes as long as a hundred short scripts.
    static SPARE: RefCell<Option<Sandbox>> = const { RefCell::new(None) };
}

/// What is to be run.
pub(crate) struct Task<'a> {
    pub(crate) known: &'a Arc<Known>,
    /// A function of it, or the script as such.
    pub(crate) function: Option<&'a str>,
    pub(crate) keys: Vec<&'a [u8]>,
    pub(crate) arguments: Vec<&'a [u8]>,
    /// Whether writing is refused.
    pub(crate) is_reading: bool,
    /// Bytes of texts in what it returns, if that is less than a reply of the door may have.
    pub(crate) result_bytes_max: usize,
    /// What it may return where it runs.
    pub(crate) here: Here,
    /// How much of its time is spent: it was compiled for this run.
    pub(crate) spent: Duration,
}

/// What a script may return where it runs: of more nothing is made, so that it can begin again elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub(crate) bytes_max: usize,
    pub(crate) items_max: usize,
}

impl Here {
    pub(crate) const ANY: Self = Here { bytes_max: usize::MAX, items_max: usize::MAX };

    /// As much as may be done here of other things.
    fn of(effort: &Effort) -> Self {
        let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Here {
            bytes_max: whole(effort.value_max(Use::Show)),
            items_max: whole(effort.value_max(Use::Look) / ITEM_BYTES),
        }
    }
}

/// What scripts of a door may take, time apart.
pub(crate) fn limits(options: &Options) -> Limits {
    Limits {
        memory_bytes_max: options.script.memory_bytes_max,
        steps_max: options.script.steps_max,
        result_bytes_max: options.limits.output_bytes_max,
        ..Limits::default()
    }
}

/// The error reply for a script that did not end well.
pub(crate) fn failure(error: &ScriptError) -> Fail {
    match error {
        ScriptError::Raised { text } => text.clone().into(),
        ScriptError::Compile { text } => format!("ERR Error compiling script: {text}").into(),
        ScriptError::NoFunction => "ERR Function not found".into(),
        error @ ScriptError::Memory { .. } => format!("ERR {error} (script.memory_bytes_max)").into(),
        error @ ScriptError::Stopped(Stop::Steps) => format!("ERR {error} (script.steps_max)").into(),
        error => format!("ERR {error}").into(),
    }
}

/// What is said of a run that was too long. Loading a library has a time that nobody chooses.
pub(super) fn too_long() -> Fail {
    format!("ERR {} (script.time_milliseconds_max)", ScriptError::Stopped(Stop::Time)).into()
}

/// Runs a script, and writes its reply; or leaves it to the connection to have it run in a thread.
pub(crate) fn run(call: &mut Call<'_, '_>, task: Task<'_>, first: usize) -> Answer {
    let task = &Task { here: Here::of(&call.session.effort), ..task };
    if matches!(call.view, View::Transaction { .. }) {
        return run_in_open(call, task, first);
    }
    if call.in_exec {
        return run_in_exec(call, task);
    }
    let time_max = call.door.options.script.time_max.saturating_sub(task.spent);
    if time_max.is_zero() {
        return Err(too_long());
    }
    if !task.known.is_slow.load(Relaxed) {
        let mut session = call.session.for_script();
        let bytes_max = call.door.options.limits.output_bytes_max;
        let mut answer = |value| written(call.reply, &value, bytes_max);
        let ran = run_alone(call.door, &mut session, task, &mut answer, || Deadline::at(AT_ONCE_MAX));
        session.forget_points();
        session.joined = None;
        call.session.need.merge(session.need);
        call.session.end_script(session);
        match ran {
            Ok(Ran::Done { durability, position, wrote }) => {
                call.reply.resolve(position.get());
                call.session.need.add(durability, position);
                if wrote {
                    call.session.last_write = call.session.last_write.max(position);
                }
                return Ok(());
            }
            Err(Fail::Heavy { .. }) => task.known.is_slow.store(true, Relaxed),
            Ok(Ran::TooLong) => task.known.is_slow.store(true, Relaxed),
            Err(fail) => return Err(fail),
        }
    }
    let later = Later::new(call, task, first, time_max);
    call.session.pending = Some(Pending::Script(Box::new(later)));
    Ok(())
}

/// Leaves it to the connection to have it run within the open transaction, in a thread: what it has changed there cannot be told from what
/// was changed before, so it cannot begin again. If it fails, the transaction is rolled back, as with any command.
fn run_in_open(call: &mut Call<'_, '_>, task: &Task<'_>, first: usize) -> Answer {
    let time_max = call.door.options.script.time_max.saturating_sub(task.spent);
    let later = Later::new(call, task, first, time_max);
    if let Some(tracked) = &mut call.session.tracked {
        tracked.has_uncommitted = true;
    }
    call.session.pending = Some(Pending::Within(Waiting::of_script(call, Box::new(later))));
    Ok(())
}

/// Takes what a script returned, before it is committed: what fails here undoes it.
type Answering<'a> = dyn FnMut(Value) -> Answer + 'a;

/// Writes what a script returned, if that is not too much.
pub(super) fn written(reply: &mut Reply, value: &Value, bytes_max: usize) -> Answer {
    write(reply, value);
    if reply.take_overflow() { Err(Fail::TooBig(bytes_max)) } else { Ok(()) }
}

/// How a script that began ended, if it did not fail.
pub(super) enum Ran {
    Done {
        durability: Durability,
        position: Position,
        wrote: bool,
    },
    /// Its time is over, and nothing has happened.
    TooLong,
}

/// Runs a script in an exclusive of its own, as often as it needs more locks: twice.
pub(super) fn run_alone(
    door: &Door,
    session: &mut Session,
    task: &Task<'_>,
    answer: &mut Answering<'_>,
    deadline: impl Fn() -> Deadline,
) -> Result<Ran, Fail> {
    let (bucket, database) = (session.bucket, session.database);
    let declared: Vec<(&[u8], &[u8])> = task.keys.iter().map(|key| (bucket.as_bytes(), *key)).collect();
    if !task.known.is_whole.load(Relaxed) {
        let held = Held::Keys(&declared);
        if let Some(ran) = run_holding(door, session, task, answer, &deadline, held)? {
            return Ok(ran);
        }
        task.known.is_whole.store(true, Relaxed);
        // What it selected, gathered and locked in spaces.
        session.joined = None;
        session.forget_points();
        (session.bucket, session.database) = (bucket, database);
    }
    let ran = run_holding(door, session, task, answer, &deadline, Held::All)?;
    ran.ok_or_else(|| "ERR internal error: a script with all locks asks for more".into())
}

/// Nothing if it needs more locks.
fn run_holding(
    door: &Door,
    session: &mut Session,
    task: &Task<'_>,
    answer: &mut Answering<'_>,
    deadline: &impl Fn() -> Deadline,
    held: Held<'_>,
) -> Result<Option<Ran>, Fail> {
    // Before the exclusive, which they outlive.
    let mut joined;
    let mut points;
    let scope = match held {
        Held::All => Scope::All,
        Held::Keys(keys) => Scope::Keys(keys),
    };
    let mut exclusive = door.store.exclusive(&scope)?;
    let played = play(door, session, Ground::Exclusive(&mut exclusive), task, held, deadline());
    let value = match played.ended {
        Ended::NeedsAll => return Ok(None),
        Ended::TooLong => return Ok(Some(Ran::TooLong)),
        Ended::Failed(fail) => return Err(fail),
        Ended::TooLarge(owed) => return Err(Fail::Heavy { owed }),
        Ended::Returned(value) => value,
    };
    answer(value)?;
    joined = session.joined.take();
    if let Some(joined) = &mut joined {
        exclusive.join_spaces(joined);
    }
    points = std::mem::take(&mut session.points);
    let count = points.len() as u64;
    if count > 0 {
        exclusive.add_points(&mut points)?;
    }
    let position = match exclusive.commit() {
        Ok(committed) => committed.position,
        Err(error) => {
            let fail = Fail::Store(error);
            session.need.merge(fail.need(played.durability));
            return Err(fail);
        }
    };
    if count > 0 {
        door.points.written.fetch_add(count, Relaxed);
        door.points.batches.fetch_add(1, Relaxed);
    }
    session.keep_points(points);
    Ok(Some(Ran::Done { durability: played.durability, position, wrote: played.wrote }))
}

/// Runs a script in the exclusive of the transaction. All of them together get the time of one.
fn run_in_exec(call: &mut Call<'_, '_>, task: &Task<'_>) -> Answer {
    let time_max = call.door.options.script.time_max.saturating_sub(task.spent);
    let deadline = *call.session.deadline.get_or_insert_with(|| Deadline::of_work(time_max));
    let mut session = call.session.for_script();
    let View::Exclusive(exclusive) = &mut call.view else {
        return Err("ERR internal error: EXEC without an exclusive".into());
    };
    let played = play(call.door, &mut session, Ground::Exclusive(exclusive), task, Held::All, deadline);
    call.session.need.merge(session.need);
    call.session.end_script(session);
    call.durability = played.durability;
    let fail = match played.ended {
        Ended::Returned(value) => {
            let mark = call.reply.len();
            write(call.reply, &value);
            return call.session.effort.add((call.reply.len() - mark) as u64, Use::Show);
        }
        Ended::Failed(fail) => fail,
        // Nothing of the transaction has happened: it begins again where there is room.
        Ended::TooLarge(owed) => call.session.effort.add(owed, Use::Show).err().unwrap_or(Fail::Heavy { owed }),
        Ended::TooLong => too_long(),
        Ended::NeedsAll => "ERR internal error: a script with all locks asks for more".into(),
    };
    Err(match fail {
        // What it had done by then cannot be told apart from what others did: nothing may happen.
        Fail::Text(text) if played.wrote => {
            let text = format!("a script failed after it had written: {}", text.strip_prefix("ERR ").unwrap_or(&text));
            Fail::Store(Error::new(ErrorKind::Invalid, text))
        }
        fail => fail,
    })
}

pub(super) enum Ended {
    Returned(Value),
    /// It returned more than it may where it runs: so many bytes, or items.
    TooLarge(u64),
    Failed(Fail),
    TooLong,
    NeedsAll,
}

pub(super) struct Played {
    pub(super) ended: Ended,
    pub(super) durability: Durability,
    pub(super) wrote: bool,
    /// Bytes of arguments that are kept for the commit beside what is staged.
    pub(super) kept_bytes: u64,
}

/// Runs a script until it ends or has to. What it staged is in the exclusive, or the transaction, and in the session.
pub(super) fn play<'s>(
    door: &'s Door,
    session: &mut Session,
    ground: Ground<'_, 's>,
    task: &Task<'_>,
    held: Held<'_>,
    deadline: Deadline,
) -> Played {
    let most = limits(&door.options);
    let result_bytes_max = most.result_bytes_max.min(task.result_bytes_max);
    let limits = Limits {
        result_bytes_max: result_bytes_max.min(task.here.bytes_max),
        elements_max: most.elements_max.min(task.here.items_max),
        ..most
    };
    let mut scratch = Reply::new(door.options.limits.output_bytes_max.min(limits.memory_bytes_max));
    scratch.protocol = Protocol::Resp2;
    let seed = session.next_random() as u32;
    let durability = session.durability;
    (session.deadline, session.is_script) = (Some(deadline), true);
    let mut guest = Guest {
        door,
        session,
        ground,
        held,
        is_reading: task.is_reading || task.known.script.header().is_some_and(|header| header.is_reading),
        now_ms: door.store.now_ms(),
        reply: scratch,
        durability,
        called: false,
        wrote: false,
        failed: None,
        needs_all: false,
        kept_bytes: 0,
        lines: 0,
    };
    let run = Run {
        script: &task.known.script,
        entry: task.function.map_or(Entry::Text, Entry::Function),
        keys: &task.keys,
        arguments: &task.arguments,
        seed,
        limits: &limits,
    };
    let running = door.scripts.begin();
    let is_killed = running.is_killed();
    let watch = move || match (is_killed(), deadline.is_over()) {
        (true, _) => Some(Stop::Killed),
        (_, true) => Some(Stop::Time),
        _ => None,
    };
    let spare = SPARE.with(|spare| spare.borrow_mut().take());
    let ran = spare.map_or_else(Sandbox::new, Ok).and_then(|mut sandbox| {
        let ran = sandbox.run(&run, Box::new(watch), &mut guest);
        if !sandbox.is_spent() {
            SPARE.with(|spare| spare.replace(Some(sandbox)));
        }
        ran
    });
    let (durability, wrote, called, kept_bytes) = (guest.durability, guest.wrote, guest.called, guest.kept_bytes);
    let ended = match (guest.failed.take(), ran) {
        _ if guest.needs_all => Ended::NeedsAll,
        // A query that was told to stop.
        (Some(Fail::Store(error)), _) if error.kind() == ErrorKind::Limit && deadline.is_over() => Ended::TooLong,
        (Some(fail), _) => Ended::Failed(fail),
        (None, Err(ScriptError::Stopped(Stop::Time))) => Ended::TooLong,
        // A command that was told to stop failed, and the script with it before the watch was asked.
        (None, Err(ScriptError::Raised { .. })) if deadline.is_over() => Ended::TooLong,
        (None, Err(ScriptError::TooLarge { bytes, .. }))
            if bytes <= result_bytes_max
                && (bytes > limits.result_bytes_max || limits.elements_max < Limits::default().elements_max) =>
        {
            Ended::TooLarge(bytes as u64)
        }
        (None, Err(error)) => {
            if let ScriptError::Setup { text } = &error {
                tracing::error!(text, "a script could not be run");
            }
            Ended::Failed(failure(&error))
        }
        // Who is answered with an error may rely on it that nothing has happened.
        (None, Ok(Value::Error(text))) => Ended::Failed(String::from_utf8_lossy(&text).into_owned().into()),
        (None, Ok(value)) => Ended::Returned(value),
    };
    if called && matches!(&ended, Ended::Failed(fail) if !matches!(fail, Fail::Heavy { .. })) {
        // Its error may tell what it has read.
        let newest = Position::new(door.store.watermarks().appended.get().saturating_sub(1));
        session.need.add(durability, newest);
    }
    Played { ended, durability, wrote, kept_bytes }
}
