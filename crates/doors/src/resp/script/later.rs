//! A script that is run in a thread: alone, when there is room for what it returns, or within an open transaction.
//!
//! What clients have not taken lies in memory, and all of it together is bounded (`resp.replies_bytes_max`). How much a script returns is known when
//! it has ended. Alone it has done nothing until then: one that returns more than there is room for comes to nothing, lets go of what it
//! has, waits for room without a turn, and begins again. Within an open transaction it cannot, and so it fails, which rolls that back.
//!
//! May use: `run`, `value`, the budget. Must not know: sockets, single commands.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use holdfast::space::{Cancel, ReadLock};
use holdfast::{Durability, Error, ErrorKind, Transaction};

use super::cache::Known;
use super::deadline::Deadline;
use super::guest::{Ground, Held, Opened};
use super::run::{AT_ONCE_MAX, Ended, Here, Ran, Task, play, run_alone, too_long, written};
use crate::auth::User;
use crate::budget::{Budget, Share};
use crate::resp::call::{Call, Fail};
use crate::resp::clients::Client;
use crate::resp::counters::Counters;
use crate::resp::door::Door;
use crate::resp::handle::{is_slow, note_slow};
use crate::resp::reply::{Form, Reply};
use crate::resp::session::{BucketName, Need, ReplyMode, Session};
use crate::resp::table::{Found, find};
use crate::resp::tracking::Tracked;
use crate::resp::wire::OwnedArgs;
use crate::resp::work::{Within, Worked, Written};

/// Room beside what texts take.
const SLACK_BYTES: usize = 64 << 10;
/// A script is begun with room for all that its memory may hold, if that is no more than this part of all room.
const FIRST_PART: usize = 8;
/// What a position takes that is known with the commit.
const POSITION_BYTES: usize = 32;

/// The room for replies that one run has.
struct Room<'a> {
    replies: &'a Budget,
    share: Share,
    /// A reply of so many bytes needs none.
    free_bytes: usize,
}

impl<'a> Room<'a> {
    /// With what was waited for, or what there is now.
    fn new(door: &'a Door, mut share: Share) -> Self {
        let replies = &door.replies;
        if share.is_empty() {
            let most = door.options.script.memory_bytes_max.saturating_add(SLACK_BYTES);
            let _ = replies.grow(&mut share, most.min(replies.bytes() / FIRST_PART));
        }
        Room { replies, share, free_bytes: door.options.limits.loop_bytes_max }
    }

    fn bytes(&self) -> usize {
        if self.replies.is_all(&self.share) { usize::MAX } else { self.share.bytes().max(self.free_bytes) }
    }

    /// Has it hold a reply of so many bytes.
    ///
    /// # Errors
    /// `Heavy` when there is no room for it now.
    fn hold(&mut self, bytes: usize) -> Result<(), Fail> {
        if bytes <= self.bytes() || self.replies.grow(&mut self.share, bytes).is_ok() {
            return Ok(());
        }
        Err(Fail::Heavy { owed: bytes as u64 })
    }

    /// The share of a reply that is there.
    fn end(mut self, bytes: usize) -> Share {
        self.share.shrink(if bytes > self.free_bytes { bytes } else { 0 });
        self.share
    }
}

/// What came of one beginning.
enum Attempt {
    Done(Written),
    /// Nothing has happened: there was no room for a reply of so many bytes.
    NoRoom(u64),
}

/// A script that is to be run in a thread.
pub(crate) struct Later {
    known: Arc<Known>,
    function: Option<String>,
    args: OwnedArgs,
    /// The argument behind the number of keys.
    first: usize,
    keys: usize,
    is_reading: bool,
    time_max: Duration,
    client: Arc<Client>,
    user: Option<Arc<User>>,
    bucket: BucketName,
    database: u16,
    durability: Durability,
    random: u64,
    tracked: Option<Tracked>,
    form: Form,
    /// Whether its reply is not to be sent.
    pub(crate) is_silent: bool,
}

impl Later {
    pub(super) fn new(call: &mut Call<'_, '_>, task: &Task<'_>, first: usize, time_max: Duration) -> Self {
        let session = &mut *call.session;
        Later {
            known: task.known.clone(),
            function: task.function.map(str::to_owned),
            args: call.args.to_owned(),
            first,
            keys: task.keys.len(),
            is_reading: task.is_reading,
            time_max,
            client: session.client.clone(),
            user: session.user.clone(),
            bucket: session.bucket,
            database: session.database,
            durability: session.durability,
            random: session.next_random(),
            tracked: session.tracked.as_ref().map(Tracked::lent),
            form: call.reply.form(),
            is_silent: session.reply_mode != ReplyMode::On,
        }
    }

    /// Runs it when it is its turn, and there is room for its reply. A client that is gone while it waits for that has it never begun.
    pub(crate) async fn run_elsewhere(self: Box<Self>, door: Arc<Door>, gone: Cancel) -> Worked {
        let elsewhere = door.elsewhere(&door.scripts.turns());
        let (mut this, mut share) = (self, Share::default());
        loop {
            let at = door.clone();
            let attempt = move || {
                let attempt = this.attempt(&at, share);
                Ok((this, attempt))
            };
            let (back, attempt) = elsewhere.run(attempt).await?;
            match attempt? {
                Attempt::Done(written) => return Ok(written),
                Attempt::NoRoom(bytes) => {
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(SLACK_BYTES);
                    (this, share) = (back, elsewhere.replies.wait(bytes).await);
                    if gone.is_canceled() {
                        return Err("ERR the client is gone".into());
                    }
                }
            }
        }
    }

    fn session(&self) -> Session {
        // Counters have one writer each, and this is another thread.
        let mut session = Session::new(self.client.clone(), Arc::new(Counters::default()), self.durability);
        (session.bucket, session.database, session.user) = (self.bucket, self.database, self.user.clone());
        session.random = self.random | 1;
        session.tracked = self.tracked.as_ref().map(Tracked::lent);
        session
    }

    fn task(&self, bytes_max: usize) -> Task<'_> {
        let (keys, arguments) = self.args.args().from(self.first).iter().enumerate().fold(
            (Vec::new(), Vec::new()),
            |(mut keys, mut arguments), (index, argument)| {
                if index < self.keys { &mut keys } else { &mut arguments }.push(argument);
                (keys, arguments)
            },
        );
        Task {
            known: &self.known,
            function: self.function.as_deref(),
            keys,
            arguments,
            is_reading: self.is_reading,
            result_bytes_max: usize::MAX,
            here: Here { bytes_max, items_max: usize::MAX },
            spent: Duration::ZERO,
        }
    }

    /// Has the slow log know how long it took here: what was waited for before is not its own.
    fn note(&self, door: &Door, elapsed: Duration) {
        if is_slow(door, elapsed)
            && let Found::Row { row, .. } = find(self.args.args())
        {
            note_slow(door, &self.client, row, self.args.args(), elapsed, door.store.now_ms());
        }
    }

    /// Runs it here, within an open transaction. Answers what its reply rests on, and what the transaction is to know of it. Blocks when it
    /// fails, until what the error may tell is as durable.
    pub(crate) fn run_within(
        &self,
        door: &Door,
        (transaction, of, isolation): (&mut Transaction, &Arc<u64>, ReadLock),
        reply: &mut Reply,
    ) -> Result<(Need, Within, Share), Fail> {
        let mut session = self.session();
        session.points = std::mem::take(transaction.points());
        let mut room = Room::new(door, Share::default());
        let ground = Ground::Open(Opened { transaction: &mut *transaction, of, isolation });
        let task = self.task(usize::MAX);
        let started = Instant::now();
        let played = play(door, &mut session, ground, &task, Held::All, Deadline::of_work(self.time_max));
        self.note(door, started.elapsed());
        *transaction.points() = session.points;
        self.client.set_database(self.database);
        let bytes_max = door.options.limits.output_bytes_max;
        let ended = match played.ended {
            Ended::Returned(value) => written(reply, &value, bytes_max).and_then(|()| room.hold(reply.len())),
            Ended::Failed(fail) => Err(fail),
            Ended::TooLarge(owed) => Err(Fail::Heavy { owed }),
            Ended::TooLong => Err(too_long()),
            Ended::NeedsAll => Err("ERR internal error: a script with all locks asks for more".into()),
        };
        let Err(fail) = ended else {
            // What it shows of entries is as durable as it asked for.
            session.need.add(played.durability, transaction.seen());
            let asked = played.wrote.then_some(played.durability);
            let within = Within { asked, kept_bytes: played.kept_bytes };
            return Ok((session.need, within, room.end(reply.len())));
        };
        let fail = if let Fail::Heavy { owed } = fail { no_room(owed) } else { fail };
        // The connection waits for what it rests on, or tells that it cannot be.
        Err(Fail::Resting { fail: Box::new(fail), need: session.need })
    }

    /// Runs it here, if its reply has a place in this share or in what room there is besides.
    fn attempt(&self, door: &Door, share: Share) -> Result<Attempt, Fail> {
        let limits = &door.options.limits;
        let (mut room, mut session) = (Room::new(door, share), self.session());
        let mut reply = Reply::of_form(self.form, limits.output_bytes_max);
        let bytes_max = if self.is_silent { usize::MAX } else { room.bytes() };
        let (task, started) = (self.task(bytes_max), Instant::now());
        let mut answer = |value| {
            // Nobody gets it.
            if self.is_silent {
                return Ok(());
            }
            written(&mut reply, &value, limits.output_bytes_max)?;
            room.hold(reply.len() + reply.gaps().len() * POSITION_BYTES)
        };
        let ran = run_alone(door, &mut session, &task, &mut answer, || Deadline::of_work(self.time_max));
        self.client.set_database(self.database);
        let is_large = reply.len() > limits.loop_bytes_max || matches!(ran, Err(Fail::Heavy { .. }));
        let elapsed = started.elapsed();
        self.known.is_slow.store(is_large || elapsed > AT_ONCE_MAX / 2, Relaxed);
        if !matches!(ran, Err(Fail::Heavy { .. })) {
            self.note(door, elapsed);
        }
        let mut need = session.need;
        match ran {
            Ok(Ran::Done { durability, position, .. }) => {
                reply.resolve(position.get());
                need.add(durability, position);
            }
            Ok(Ran::TooLong) => return Err(too_long()),
            Err(Fail::Heavy { owed }) => return Ok(Attempt::NoRoom(owed)),
            // An error that has to wait is written as a reply that has to.
            Err(fail) if need != Need::NOTHING => {
                reply.truncate(0);
                reply.error(&fail.text());
            }
            Err(fail) => return Err(fail),
        }
        if reply.take_overflow() {
            return Err(Fail::TooBig(limits.output_bytes_max));
        }
        let share = room.end(reply.len());
        Ok(Attempt::Done(Written { room: share, ..Written::new(reply.take(Vec::new()), need) }))
    }
}

/// It cannot begin again within a transaction.
fn no_room(owed: u64) -> Fail {
    let text = format!(
        "there is no room for the {owed} bytes that the script returns, as clients are owed too much (resp.replies_bytes_max)"
    );
    Fail::Store(Error::new(ErrorKind::Limit, text))
}
