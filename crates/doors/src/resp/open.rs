//! A transaction between TX.BEGIN and TX.COMMIT: commands happen in it at once, one by one, while the client thinks.
//!
//! What it reads and changes in spaces is locked until it ends; what it reads of keys is looked at again when it commits. It
//! belongs to its connection, and is rolled back with it. A command that fails on it rolls it back too, whatever it is, and those behind it
//! fail until the client has said that it knows: clients send several at once, and half a transaction is none. Clients that share
//! or change connections without a word begin a *strict* one: what is to happen in it names it, and nothing else is let in.
//!
//! A command that has to wait, for a lock or for an entry, goes on in a thread, and the transaction with it; the connection
//! waits. There are turns for those who wait for locks, for those who wait for entries, for scripts, which wait for neither, and for those who only take long: who
//! could let go of what others wait for is not kept waiting by them.
//!
//!   session.open  --a command-->  View::Transaction  --must wait-->  Waiting, in a thread  -->  session.open
//!                 --one that fails-->  without its transaction, until TX.COMMIT or TX.ABORT
//!
//! May use: `handle`, `call`, `work`, the facade. Must not know: sockets, what single commands do.

use std::sync::Arc;
use std::time::Duration;

use holdfast::space::{Cancel, ReadLock};
use holdfast::{Durability, ErrorKind, Transaction};
use tokio::sync::Semaphore;

use super::call::{Answer, Call, Fail, View};
use super::door::Door;
use super::handle::{run, run_handler};
use super::reply::{Form, Reply};
use super::script::Later;
use super::session::{Gathered, Need, Pending, ReplyMode, Session};
use super::table::{BucketOf, Command, flag};
use super::wire::Args;
use super::work::{Worked, Written};

/// An open transaction of a connection.
pub(crate) struct Open {
    /// What TX.BEGIN answered. Whoever has something that is of use to it alone keeps a weak one.
    pub(crate) id: Arc<u64>,
    /// Not there while a command waits with it, nor when it has failed.
    pub(crate) transaction: Option<Transaction>,
    /// Why it was rolled back.
    pub(crate) failed: Option<String>,
    /// Whether commands have to name it.
    pub(crate) is_strict: bool,
    /// How SPACE.READ locks what it reads.
    pub(crate) isolation: ReadLock,
    /// How long it may hold locks, and so how long a command may wait for an entry.
    pub(crate) lease: Duration,
    /// What commands have asked for: the commit is as durable as the most careful of them.
    pub(crate) asked: Vec<Durability>,
    gathered: Gathered,
}

impl Open {
    pub(crate) fn new(id: u64, transaction: Transaction, lease: Duration) -> Self {
        let (transaction, gathered) = (Some(transaction), Gathered::default());
        let isolation = ReadLock::Shared;
        Open {
            id: Arc::new(id),
            transaction,
            failed: None,
            is_strict: false,
            isolation,
            lease,
            asked: Vec::new(),
            gathered,
        }
    }
}

/// How a command goes with an open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It happens in it.
    Within,
    /// It has nothing to do with data, or shows what is committed, and runs as always.
    Beside,
    Refused,
}

/// How the command goes with an open transaction.
pub(crate) fn way(row: &Command) -> Way {
    let names_keys = row.keys.first > 0 && !row.has(flag::WHOLE);
    // One that goes over keys that it does not name.
    let lists = row.has(flag::WHOLE) && row.has(flag::READONLY) && !row.has(flag::NO_MULTI);
    match row.keys.bucket {
        _ if row.has(flag::SCRIPT) || lists => Way::Within,
        // A transaction that is queued ends before its cursor would serve.
        BucketOf::Space if row.name == "space.iterate" => Way::Within,
        BucketOf::Space | BucketOf::Selected | BucketOf::First | BucketOf::Copy if row.has(flag::NO_MULTI) => {
            Way::Refused
        }
        BucketOf::Space => Way::Within,
        BucketOf::Selected | BucketOf::First | BucketOf::Copy if names_keys => Way::Within,
        BucketOf::Selected | BucketOf::First | BucketOf::Copy => Way::Refused,
        BucketOf::Series if row.has(flag::WRITE) => Way::Within,
        // What is committed: points of the transaction are seen behind its commit.
        BucketOf::Series | BucketOf::None => Way::Beside,
        BucketOf::Each if row.name == "xa.commit" => Way::Within,
        BucketOf::Each => Way::Refused,
    }
}

/// Runs a command while a transaction is open.
pub(crate) fn command(
    door: &Door,
    session: &mut Session,
    row: &'static Command,
    args: Args<'_>,
    reply: &mut Reply,
    now_ms: u64,
) -> Answer {
    match way(row) {
        Way::Within => {}
        Way::Beside => return run(door, session, row, args, reply, now_ms),
        Way::Refused => {
            let name = row.name.replace('|', " ").to_uppercase();
            return Err(format!("ERR {name} is not possible within a transaction: TX.COMMIT or TX.ABORT before").into());
        }
    }
    let Some(mut open) = session.open.take() else { return Err(none_open()) };
    let Some(mut transaction) = open.transaction.take() else {
        let fail = over(&open);
        session.open = Some(open);
        return Err(fail);
    };
    let durability = session.durability;
    let may = transaction.check().map_err(Fail::from);
    let ran = may.and_then(|()| open.gathered.add(door, args.bytes_len()).map_err(limit)).and_then(|()| {
        let view = View::Transaction { transaction: &mut transaction, of: &open.id, isolation: open.isolation };
        let mut call = Call { door, session, command: row, args, view, reply, now_ms, durability, in_exec: true };
        run_handler(&mut call)?;
        Ok(call.durability)
    });
    if matches!(ran, Err(Fail::Heavy { .. })) {
        open.gathered.take_back(args.bytes_len());
    }
    // Versions are known when it is committed.
    reply.resolve(0);
    let ran = ran.and_then(|asked| {
        let (things, bytes) = transaction.held();
        open.gathered.hold(door, things, bytes.saturating_add(session.points.bytes() as u64))?;
        Ok(asked)
    });
    if let (Ok(asked), true) = (&ran, row.has(flag::WRITE))
        && !open.asked.contains(asked)
    {
        open.asked.push(*asked);
    }
    if let Ok(asked) = ran {
        session.need.add(asked, transaction.seen());
    }
    match &mut session.pending {
        Some(Pending::Within(waiting)) if ran.is_ok() => {
            *transaction.points() = std::mem::take(&mut session.points);
            waiting.transaction = Some(transaction);
            (waiting.lease, waiting.of) = (open.lease, (open.id.clone(), open.isolation));
        }
        pending => {
            // What has failed goes on nowhere.
            pending.take_if(|pending| matches!(pending, Pending::Within(_)));
            open.transaction = Some(transaction);
        }
    }
    session.open = Some(open);
    tell(session);
    ran.map(|_| ())
}

/// What a transaction that holds too much is told, by the code that says so of other things.
fn limit(fail: Fail) -> Fail {
    match fail {
        Fail::Text(text) => text.replacen("ERR ", "LIMIT ", 1).into(),
        fail => fail,
    }
}

/// What commands of a transaction are told that was rolled back.
pub(crate) fn over(open: &Open) -> Fail {
    let why = open.failed.as_deref().unwrap_or("ERR internal error: it is not there");
    format!("EXECABORT the transaction was rolled back: {why}; TX.ABORT, and begin again").into()
}

/// Rolls the open transaction back, if there is one, because a command has failed on its connection: one within it, beside it, that ends
/// it, or that is none. Who sends several at once relies on it that none of them happened without the others, and cannot know which
/// of them is refused for what.
pub(crate) fn fail(session: &mut Session, fail: &Fail) {
    if let Some(open) = session.open.as_mut().filter(|open| open.failed.is_none()) {
        open.failed = Some(fail.text().into_owned());
        open.transaction = None;
        // What it held is free for others, though the client has not been told yet.
        open.gathered.forget();
        session.forget_points();
        tell(session);
    }
}

/// What a command hears that does not name the strict transaction that is open, unless it has nothing to do with data.
pub(crate) fn stray(session: &Session, row: &Command) -> Answer {
    match &session.open {
        Some(open) if open.is_strict && way(row) != Way::Beside => {
            Err("ERR a strict transaction is open on this connection: TX.RUN names it, TX.COMMIT and TX.ABORT end it"
                .into())
        }
        _ => Ok(()),
    }
}

/// Has CLIENT LIST show how many commands the transaction has had, if one is open.
pub(crate) fn tell(session: &Session) {
    let commands = session.open.as_ref().map_or(-1, |open| i64::try_from(open.gathered.commands()).unwrap_or(i64::MAX));
    session.client.set_transaction(commands, session.watched.len());
    session.client.set_transaction_bytes(session.open.as_ref().map_or(0, |open| open.gathered.bytes()));
}

/// Takes back the transaction of a command that has waited; what is to be answered.
pub(crate) fn back(door: &Door, session: &mut Session, transaction: Option<Transaction>, worked: Worked) -> Worked {
    let (mut worked, mut transaction) = (worked, transaction);
    if let Some(transaction) = &mut transaction {
        session.points = std::mem::take(transaction.points());
    }
    if let Some(open) = &mut session.open {
        let within = worked.as_mut().map(|written| std::mem::take(&mut written.within)).unwrap_or_default();
        open.asked.extend(within.asked.filter(|asked| !open.asked.contains(asked)));
        worked = worked.and_then(|done| match within.kept_bytes {
            0 => Ok(done),
            bytes => open.gathered.add_bytes(door, bytes).map_err(limit).map(|()| done),
        });
        if let Some((things, bytes)) = transaction.as_ref().map(Transaction::held) {
            let bytes = bytes.saturating_add(session.points.bytes() as u64);
            worked = worked.and_then(|done| open.gathered.hold(door, things, bytes).map(|()| done));
        }
        open.transaction = transaction;
    } else if let (Ok(_), Some(tracked)) = (&worked, &mut session.tracked) {
        // It was committed: what it has read is what everybody sees now.
        tracked.has_uncommitted = false;
    }
    tell(session);
    worked
}

/// What is said where no transaction is open.
pub(crate) fn none_open() -> Fail {
    "NOTX no transaction is open on this connection: TX.BEGIN begins one".into()
}

/// Whether a command may wait where it runs.
pub(crate) enum Patience {
    /// It may not: what would have to fails with `Timeout`, or finds nothing.
    None,
    /// For a lock as long as writes do, for entries as long as the transaction may, and until it is canceled.
    Full { lease: Duration, cancel: Cancel },
}

impl Patience {
    /// How long to wait for a lock, where so long was asked for.
    pub(crate) fn lock_timeout(&self, asked: Option<Duration>) -> Option<Duration> {
        match self {
            Self::None => Some(Duration::ZERO),
            Self::Full { .. } => asked,
        }
    }

    /// How long to wait for an entry when `block` was asked for; zero is as long as may be.
    pub(crate) fn wait(&self, block: Option<Duration>) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Full { lease, .. } => block.map(|block| if block.is_zero() { *lease } else { block.min(*lease) }),
        }
    }

    pub(crate) fn cancel(&self) -> Option<Cancel> {
        match self {
            Self::None => None,
            Self::Full { cancel, .. } => Some(cancel.clone()),
        }
    }
}

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// Its reply is written.
    Done,
    /// Nothing was there, which is its reply unless it may wait.
    Nothing,
}

/// A command as it happens within a transaction. It may be tried twice, and changes nothing the first time when that did not do.
pub(crate) type Step = Box<dyn Fn(&mut Transaction, &mut Reply, &Patience) -> Result<Came, Fail> + Send>;

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Lock,
    Entry,
}

/// The longest that somebody waits for a lock, and so for a turn to wait for one.
pub(crate) const LOCK_MAX: Duration = Duration::from_secs(5);

/// What a commit is told that had no turn to wait for its table.
const NO_TURN: &str = "TIMEOUT nothing was changed: too many others wait for this table; begin again";

/// A command that waits, and its transaction.
pub(crate) struct Waiting {
    what: For,
    step: Work,
    /// Of the transaction: its number, and how what is read is locked.
    of: (Arc<u64>, ReadLock),
    /// Whether it has to be done elsewhere because it may take long, and need not wait.
    is_long: bool,
    /// How long it was asked to wait for an entry or a lock; zero is as long as it may.
    block: Duration,
    /// Where a commit waits for its turn that waits for a table.
    turns: Option<Arc<Semaphore>>,
    transaction: Option<Transaction>,
    lease: Duration,
    cancel: Cancel,
    form: Form,
    bytes_max: usize,
    durability: Durability,
    pub(crate) is_silent: bool,
}

/// What is done elsewhere with a transaction.
pub(crate) enum Work {
    Step(Step),
    /// A script.
    Script(Box<Later>),
    /// It ends with this.
    Commit(Commit),
}

type Commit = Box<dyn FnOnce(Transaction, &mut Reply) -> Result<Need, Fail> + Send>;

impl Waiting {
    /// Whether it is a script that goes on in a thread.
    pub(crate) fn is_of_script(&self) -> bool {
        matches!(self.step, Work::Script(_))
    }

    pub(crate) fn new(call: &Call<'_, '_>, what: For, step: Work) -> Box<Self> {
        Box::new(Waiting {
            what,
            step,
            of: (Arc::default(), ReadLock::None),
            is_long: false,
            block: Duration::ZERO,
            turns: None,
            transaction: None,
            lease: Duration::ZERO,
            cancel: Cancel::new(),
            form: call.reply.form(),
            bytes_max: call.door.options.limits.output_bytes_max,
            durability: call.durability,
            is_silent: call.session.reply_mode != ReplyMode::On,
        })
    }

    /// A commit that has to wait first, or takes long.
    pub(crate) fn to_commit(call: &Call<'_, '_>, transaction: Transaction, commit: Commit) -> Box<Self> {
        let waiting = Self::new(call, For::Lock, Work::Commit(commit));
        Box::new(Waiting { transaction: Some(transaction), is_long: true, ..*waiting })
    }

    /// A commit that waits for a table, and as long for its turn to among those.
    pub(crate) fn to_commit_through(
        call: &Call<'_, '_>,
        transaction: Transaction,
        (wait, turns): (Duration, Arc<Semaphore>),
        commit: Commit,
    ) -> Box<Self> {
        let waiting = Self::new(call, For::Lock, Work::Commit(commit));
        Box::new(Waiting { transaction: Some(transaction), block: wait, turns: Some(turns), ..*waiting })
    }

    /// A script, which waits for nothing.
    pub(crate) fn of_script(call: &Call<'_, '_>, later: Box<Later>) -> Box<Self> {
        Self::new(call, For::Lock, Work::Script(later)).long()
    }

    /// It may take long, and is tried first without waiting.
    pub(crate) fn long(self: Box<Self>) -> Box<Self> {
        Box::new(Waiting { is_long: true, ..*self })
    }

    /// How long it was asked to wait for an entry or a lock.
    pub(crate) fn for_so_long(self: Box<Self>, block: Option<Duration>) -> Box<Self> {
        Box::new(Waiting { block: block.unwrap_or_default(), ..*self })
    }

    /// Ends the waiting when it is dropped, or told to.
    pub(crate) fn guard(&self) -> Guard {
        Guard(self.cancel.clone())
    }

    /// Waits, and runs it. The transaction is back unless it has ended. Nobody has a turn to wait while there is work to do, nor one
    /// to work while waiting: who could let go of what others wait for is not kept waiting by them.
    pub(crate) async fn run(self: Box<Self>, door: Arc<Door>) -> (Worked, Option<Transaction>) {
        let mut this = self;
        if this.is_long {
            let elsewhere = match this.step {
                Work::Script(_) => door.elsewhere(&door.scripts.turns()),
                _ => door.long(),
            };
            let to_work = door.clone();
            this = match elsewhere.run(move || Ok(this.work(&to_work))).await {
                Ok(Ok((worked, transaction))) => {
                    // That of a script has its room, if it needs some.
                    let roomy = |written: Written| match written.room.is_empty() {
                        true => Written { room: elsewhere.room_for(written.reply.len()), ..written },
                        false => written,
                    };
                    return (worked.map(roomy), transaction);
                }
                Ok(Err(must_wait)) => must_wait,
                Err(fail) => return (Err(fail), None),
            };
        }
        // It waits no longer for its turn than it would wait itself.
        let turns = this.turns.clone().unwrap_or_else(|| door.turns_for(this.what));
        let longest = match this.what {
            For::Lock if this.turns.is_some() => this.block,
            For::Lock if this.block.is_zero() => LOCK_MAX,
            For::Lock => this.block.min(LOCK_MAX),
            For::Entry if this.block.is_zero() => this.lease,
            For::Entry => this.block.min(this.lease),
        };
        let Ok(Ok(turn)) = tokio::time::timeout(longest, turns.acquire_owned()).await else {
            return this.end_waiting();
        };
        let waited = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            this.wait()
        });
        waited.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a command of a transaction ended without an answer");
            (Err("ERR internal error".into()), None)
        })
    }

    /// Does it without waiting; or says that it has to.
    fn work(self: Box<Self>, door: &Door) -> Result<(Worked, Option<Transaction>), Box<Self>> {
        let mut this = *self;
        let Some(mut transaction) = this.transaction.take() else { return Ok((Err(none_open()), None)) };
        let mut reply = Reply::of_form(this.form, this.bytes_max);
        let step = match this.step {
            Work::Commit(commit) => return Ok((committed(commit, transaction, reply), None)),
            Work::Script(script) => {
                let (of, isolation) = this.of;
                let ran = script.run_within(door, (&mut transaction, &of, isolation), &mut reply);
                let worked = ran.and_then(|(need, within, room)| {
                    let mut written = answer(this.durability, &transaction, reply, this.bytes_max, Ok(()))?;
                    written.need.merge(need);
                    Ok(Written { within, room, ..written })
                });
                return Ok((worked, Some(transaction)));
            }
            Work::Step(step) => step,
        };
        match step(&mut transaction, &mut reply, &Patience::None) {
            Ok(Came::Nothing) => {}
            Err(Fail::Store(error)) if error.kind() == ErrorKind::Timeout => {}
            ran => {
                let ran = ran.map(|_| ());
                return Ok((answer(this.durability, &transaction, reply, this.bytes_max, ran), Some(transaction)));
            }
        }
        Err(Box::new(Waiting { transaction: Some(transaction), step: Work::Step(step), ..this }))
    }

    /// Its time is over, and it had no turn to wait: as if it had waited in vain.
    fn end_waiting(self: Box<Self>) -> (Worked, Option<Transaction>) {
        let step = match self.step {
            Work::Step(step) => step,
            // It ends with its transaction, which nobody has committed.
            Work::Commit(_) => return (Err(NO_TURN.into()), None),
            Work::Script(_) => return (Err(none_open()), None),
        };
        let Some(mut transaction) = self.transaction else { return (Err(none_open()), None) };
        let mut reply = Reply::of_form(self.form, self.bytes_max);
        let ran = step(&mut transaction, &mut reply, &Patience::None).map(|_| ());
        (answer(self.durability, &transaction, reply, self.bytes_max, ran), Some(transaction))
    }

    /// Does it, and waits where it has to.
    fn wait(self: Box<Self>) -> (Worked, Option<Transaction>) {
        let Some(mut transaction) = self.transaction else { return (Err(none_open()), None) };
        let mut reply = Reply::of_form(self.form, self.bytes_max);
        let step = match self.step {
            Work::Step(step) => step,
            Work::Commit(commit) => return (committed(commit, transaction, reply), None),
            Work::Script(_) => return (Err(none_open()), None),
        };
        let patience = Patience::Full { lease: self.lease, cancel: self.cancel };
        let ran = step(&mut transaction, &mut reply, &patience).map(|_| ());
        // Nothing came, because its time is over.
        let ran = ran.and_then(|()| Ok(transaction.check()?));
        (answer(self.durability, &transaction, reply, self.bytes_max, ran), Some(transaction))
    }
}

/// What a commit answers; the transaction has ended.
fn committed(commit: Commit, transaction: Transaction, mut reply: Reply) -> Worked {
    let need = commit(transaction, &mut reply)?;
    Ok(Written::new(reply.take(Vec::new()), need))
}

/// What is answered, and what that rests on.
fn answer(
    durability: Durability,
    transaction: &Transaction,
    mut reply: Reply,
    bytes_max: usize,
    ran: Result<(), Fail>,
) -> Worked {
    ran.map_err(|fail| fail.resting(durability, transaction.seen()))?;
    reply.resolve(0);
    if reply.take_overflow() {
        return Err(Fail::TooBig(bytes_max));
    }
    let mut need = Need::NOTHING;
    need.add(durability, transaction.seen());
    Ok(Written::new(reply.take(Vec::new()), need))
}

/// Ends the waiting of a command when the connection is not there any more.
pub(crate) struct Guard(Cancel);

impl Guard {
    pub(crate) fn end(&self) {
        self.0.cancel();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::rows::COMMANDS;

    fn names(wanted: Way) -> Vec<&'static str> {
        COMMANDS.iter().filter(|row| way(row) == wanted && !row.has(flag::IMMEDIATE)).map(|row| row.name).collect()
    }

    #[test]
    fn what_happens_within_an_open_transaction() {
        let within = names(Way::Within);
        for name in [
            "eval",
            "fcall",
            "get",
            "set",
            "mset",
            "copy",
            "expire",
            "kv.put",
            "kv.head",
            "keys",
            "scan",
            "randomkey",
            "dbsize",
            "kv.keys",
            "kv.range",
            "kv.buckets",
            "ts.add",
            "ts.madd",
            "xa.commit",
        ] {
            assert!(within.contains(&name), "{name}");
        }
        let in_spaces: Vec<_> = within.iter().filter(|name| name.starts_with("space.")).copied().collect();
        let expected = [
            "ack", "change", "clear", "count", "iterate", "mchange", "mread", "mtake", "mwrite", "read", "renew",
            "select", "take", "write",
        ];
        assert_eq!(in_spaces, expected.map(|name| format!("space.{name}")));
    }

    #[test]
    fn what_goes_over_more_than_it_names_is_refused_and_what_has_no_data_is_not() {
        let (refused, beside) = (names(Way::Refused), names(Way::Beside));
        for name in ["flushall", "kv.fold", "kv.index", "space.listen", "feed"] {
            assert!(refused.contains(&name), "{name}");
        }
        for name in ["ping", "select", "info", "client|id", "ts.range", "config|get"] {
            assert!(beside.contains(&name), "{name}");
        }
        let writes = COMMANDS.iter().filter(|row| row.has(flag::WRITE) && way(row) == Way::Beside);
        assert_eq!(writes.map(|row| row.name).collect::<Vec<_>>(), [""; 0]);
    }
}
