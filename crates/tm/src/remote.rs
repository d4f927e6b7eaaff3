//! A coordinator that is a Holdfast server somewhere else, asked by RESP.
//!
//! Two connections are shared by all threads of the process: one for what waits for a sync, and one for what must not queue
//! behind that. Another is used for a commit that waits for other programs. A thread of its own renews the lease and sends
//! what was left lazily.
//!
//! When the connection breaks after a commit was sent, the server is asked what became of it, for as long as a reply may
//! take; a commit may be repeated, so one that did not arrive is sent again. What such a question cannot settle is
//! [`ErrorKind::Unknown`]: a refusal then may also mean that the decision was made, carried out by somebody's recovery, and
//! forgotten.
//!
//! May use: `decisions`, std's sockets and threads, rustls. Must not know: resource managers, async.

mod administration;
mod keeper;
mod options;
mod owner;
mod pipe;
mod slot;
mod socket;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use holdfast::Durability;
use xa::{BranchName, CoordinatorId, OwnerId, TransactionId};

use crate::decisions::{Decisions, Error, ErrorKind, Result};
use crate::{Begin, Deed, Heuristic, Learned, Sharing, Verdict, Vote};
use keeper::Keeper;
pub(crate) use options::{LEASE_MAX, LEASE_MIN, SHARED_WAIT_DEFAULT, SHARED_WAIT_MAX, host_and_port};
pub use options::{RemoteOptions, Tls};
use owner::Owner;
use pipe::{Pipe, Target};
use slot::Broken;
use wire::Reply;

/// Most ids in one question.
const IDS_MAX: usize = 500;
/// Most connections kept for commits that wait for other programs.
const SPARE_MAX: usize = 8;
/// Between two attempts to reach a server again that a commit was sent to.
const RETRY: Duration = Duration::from_millis(100);

/// A coordinator elsewhere. Blocks where [`Decisions`] says so, at most for [`RemoteOptions::patience`].
///
/// Dropping it sends what was left, and ends its owner: what is undecided is rolled back by whoever finds it. After a
/// shared transaction was begun the owner stays until its lease runs out, because other programs may still commit.
pub struct Remote {
    inner: Arc<Inner>,
    /// Ends before what it uses does.
    keeper: Keeper,
}

struct Inner {
    coordinator: CoordinatorId,
    options: RemoteOptions,
    target: Target,
    /// For what waits for a sync.
    main: Pipe,
    /// For what does not.
    side: Pipe,
    /// For commits that wait for other programs; each has one alone.
    spare: Mutex<Vec<Pipe>>,
    /// Its first owner: which program it is that enlists branches, for as long as it runs.
    program: OwnerId,
    /// `None` after the coordinator said that it ended, until there is a new one.
    owner: Mutex<Option<Owner>>,
    shared_begun: AtomicBool,
}

/// A commit that was sent, and whose reply was lost.
struct LostCommit<'a> {
    id: TransactionId,
    words: &'a [&'a str],
    /// Whether the words say how durable it is to be.
    says_durability: bool,
    broken: Broken,
}

impl Remote {
    /// Connects and becomes an owner.
    ///
    /// # Errors
    /// `Unavailable` when no server can be reached or none lets this user in; `Invalid` for options that make no sense,
    /// certificates that cannot be read, and a server without `XA` commands.
    pub fn open(options: RemoteOptions) -> Result<Self> {
        let target = options.target()?;
        let side = Pipe::new(target.clone());
        let (coordinator, owner) = Owner::open(&side, &options)?;
        let inner = Arc::new(Inner {
            coordinator,
            program: owner.id(),
            main: Pipe::new(target.clone()),
            side,
            target,
            options,
            spare: Mutex::default(),
            owner: Mutex::new(Some(owner)),
            shared_begun: AtomicBool::new(false),
        });
        let keeper = Keeper::start(&inner)?;
        Ok(Self { inner, keeper })
    }

    /// Notes of completion that were dropped because the coordinator did not answer for too long. Their decisions stay
    /// listed until somebody forgets them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.inner.main.dropped()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.keeper.stop();
        let last_words = self.inner.options.patience.min(Duration::from_secs(2));
        if self.inner.main.flush() {
            // Answered behind all that was flushed.
            let _ = self.inner.main.call(&["PING"], last_words);
        }
        let owner = self.inner.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(owner) = owner
            && !self.inner.shared_begun.load(Ordering::Relaxed)
        {
            // Nobody minds when it does not arrive: the lease runs out.
            let _ = self.inner.side.call(&["XA.OWNER", "END", &owner.id().0.to_string()], Duration::ZERO);
        }
    }
}

impl Decisions for Remote {
    fn coordinator(&self) -> CoordinatorId {
        self.inner.coordinator
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId> {
        if begin.sharing == Sharing::Shared {
            self.inner.shared_begun.store(true, Ordering::Relaxed);
        }
        let mut owner = self.inner.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = match &mut *owner {
            Some(owner) => owner,
            none => none.insert(self.inner.new_owner()?),
        };
        Ok(owner.begin(self.inner.coordinator, begin))
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], durability: Option<Durability>) -> Result<()> {
        let (id_text, count) = (id.to_string(), branches.len().to_string());
        let mut words = vec!["XA.COMMIT", &id_text, "BRANCHES", &count];
        words.extend(branches.iter().map(BranchName::as_str));
        let waiting = id.shared.then(|| self.inner.options.shared_wait);
        let wait = waiting.unwrap_or_default().as_millis().to_string();
        if id.shared {
            words.extend(["WAIT", &wait]);
        }
        if let Some(durability) = durability {
            words.extend(["DURABILITY", name_of(durability)]);
        }
        let answer = match waiting {
            None => self.inner.main.call(&words, Duration::ZERO),
            Some(wait) => self.inner.call_alone(&words, wait),
        };
        if matches!(&answer, Ok(Reply::Error(text)) if text.starts_with("CORRUPT ")) {
            // So would be all that this owner begins.
            self.inner.drop_owner(id.owner);
        }
        match answer {
            Ok(reply) => ok(reply).map_err(|error| match error.kind {
                // A sync that failed says so too, and what it was to make durable may be on the disk.
                ErrorKind::Unavailable => Error { kind: ErrorKind::Unknown, ..error },
                _ => error,
            }),
            Err(broken) if !broken.sent => Err(unavailable(broken.text)),
            Err(broken) => self.inner.settle_commit(&LostCommit {
                id,
                words: &words,
                says_durability: durability.is_some(),
                broken,
            }),
        }
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        let id = id.to_string();
        if let Some(words) = words_of_done(&id, done) {
            self.inner.main.call_lazily(&words);
            self.keeper.notice();
        }
    }

    fn record(&self, id: TransactionId, done: &[Learned]) -> Result<()> {
        let id = id.to_string();
        words_of_done(&id, done).map_or(Ok(()), |words| ok(self.inner.ask(&self.inner.main, &words)?))
    }

    fn abort(&self, id: TransactionId) -> Result<()> {
        let id = id.to_string();
        let words = ["XA.ROLLBACK", &id];
        let aborted = self.inner.ask(&self.inner.main, &words).and_then(ok);
        if matches!(&aborted, Err(error) if error.kind == ErrorKind::Unavailable) {
            // It is told when the server is there again: branches that are prepared would hold their locks for as long as this
            // program lives, because only for programs that ended an abort is presumed.
            self.inner.main.call_lazily(&words);
            self.keeper.notice();
        }
        aborted
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<()> {
        let id = id.to_string();
        let mut words = vec!["XA.ROLLBACK", &id];
        for deed in deeds {
            words.extend(["BRANCH", deed.branch.as_str(), "HEURISTIC", word_of(deed.did)]);
        }
        ok(self.inner.ask(&self.inner.main, &words)?)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>> {
        let mut verdicts = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_MAX) {
            let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let mut words = vec!["XA.RECOVER"];
            words.extend(texts.iter().map(String::as_str));
            let reply = good(self.inner.ask(&self.inner.side, &words)?)?;
            let list = reply.list().filter(|list| list.len() == ids.len()).ok_or_else(|| strange(&reply))?;
            for verdict in list {
                verdicts.push(match verdict.text().as_deref() {
                    Some("commit") => Verdict::Commit,
                    Some("rollback") => Verdict::Rollback,
                    Some("last-resource") => Verdict::LastResource,
                    Some("leave") => Verdict::Leave,
                    Some("foreign") => Verdict::Foreign,
                    _ => return Err(strange(verdict)),
                });
            }
        }
        Ok(verdicts)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        self.inner.name_branches("XA.ENLIST", id, branches)
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        self.inner.name_branches("XA.SUSPEND", id, branches)
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<()> {
        let (id, by, number) = (id.to_string(), self.inner.program.0.to_string(), number.to_string());
        ok(self.inner.ask(&self.inner.side, &["XA.RESUME", &id, "BY", &by, "NUMBER", &number])?)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<()> {
        let id = id.to_string();
        let mut words = vec!["XA.PREPARED", &id, branch.as_str()];
        match part {
            Vote::Prepared => {}
            Vote::ReadOnly => words.push("READONLY"),
            Vote::Failed => words.push("FAILED"),
        }
        ok(self.inner.ask(&self.inner.side, &words)?)
    }
}

impl Inner {
    /// Names branches of this program, with this command.
    fn name_branches(&self, command: &str, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        let (id, by) = (id.to_string(), self.program.0.to_string());
        let mut words = vec![command, &id, "BY", &by];
        words.extend(branches.iter().map(BranchName::as_str));
        ok(self.ask(&self.side, &words)?)
    }

    /// Asks something that may be asked again: once more when the connection broke, which it has done long ago when the
    /// server was restarted meanwhile.
    fn ask(&self, pipe: &Pipe, words: &[&str]) -> Result<Reply> {
        let again = |broken: Broken| if broken.sent { pipe.call(words, Duration::ZERO) } else { Err(broken) };
        pipe.call(words, Duration::ZERO).or_else(again).map_err(|broken| unavailable(broken.text))
    }

    /// A call that may wait long, on a connection where nobody waits behind it.
    fn call_alone(&self, words: &[&str], wait: Duration) -> std::result::Result<Reply, Broken> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = spare().pop().unwrap_or_else(|| Pipe::new(self.target.clone()));
        let reply = pipe.call(words, wait);
        let mut spare = spare();
        if reply.is_ok() && spare.len() < SPARE_MAX {
            spare.push(pipe);
        }
        reply
    }

    /// Finds out what became of a commit whose reply was lost.
    fn settle_commit(&self, lost: &LostCommit<'_>) -> Result<()> {
        let LostCommit { id, words, says_durability, broken } = lost;
        let start = Instant::now();
        let unknown = |text: &str| {
            let text = format!("whether {id} is committed is not known: {}; {text}", broken.text);
            Err(Error { kind: ErrorKind::Unknown, text })
        };
        let status = loop {
            match self.side.call(&["XA.STATUS", &id.to_string()], Duration::ZERO) {
                Ok(reply) => break reply,
                Err(broken) if start.elapsed() >= self.options.patience => return unknown(&broken.text),
                Err(_) => thread::sleep(RETRY),
            }
        };
        let is_committed = status.field("state").and_then(Reply::text).as_deref() == Some("committed");
        // A status is only as durable as the server does it by default; the commit that is sent again waits for what it says.
        if is_committed && !says_durability {
            return Ok(());
        }
        match self.main.call(words, Duration::ZERO) {
            Ok(Reply::Ok) => Ok(()),
            Ok(Reply::Error(text)) => unknown(&text),
            Ok(other) => unknown(&strange(&other).text),
            Err(broken) => unknown(&broken.text),
        }
    }

    fn new_owner(&self) -> Result<Owner> {
        let (coordinator, owner) = Owner::open(&self.side, &self.options)?;
        if coordinator != self.coordinator {
            let text = "there is another coordinator now where the known one was".to_owned();
            return Err(unavailable(text));
        }
        Ok(owner)
    }

    /// Renews the lease, or notes that it is over. True when there is an owner that is known to be alive.
    fn renew(&self) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Owner::id);
        let Some(id) = owner else {
            let Ok(new) = self.new_owner() else { return false };
            self.owner.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(new);
            return true;
        };
        match self.ask(&self.side, &["XA.OWNER", "RENEW", &id.0.to_string()]) {
            Ok(Reply::Ok) => true,
            Ok(_) => {
                self.drop_owner(id);
                false
            }
            Err(_) => false,
        }
    }

    /// Begins nothing more as this owner.
    fn drop_owner(&self, id: OwnerId) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if owner.as_ref().is_some_and(|owner| owner.id() == id) {
            *owner = None;
        }
    }
}

/// Without a branch it would mean all of them, so there is no such request.
fn words_of_done<'a>(id: &'a str, done: &'a [Learned]) -> Option<Vec<&'a str>> {
    let mut words = vec!["XA.FORGET", id];
    for done in done {
        words.extend(["BRANCH", done.branch.as_str()]);
        if let Some(heuristic) = done.heuristic {
            words.extend(["HEURISTIC", word_of(heuristic)]);
        }
    }
    (!done.is_empty()).then_some(words)
}

fn name_of(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::Window(_) => "window",
        Durability::Written => "written",
    }
}

fn word_of(heuristic: Heuristic) -> &'static str {
    match heuristic {
        Heuristic::Commit => "commit",
        Heuristic::Rollback => "rollback",
        Heuristic::Mixed => "mixed",
        Heuristic::Hazard => "hazard",
    }
}

fn unavailable(text: String) -> Error {
    Error { kind: ErrorKind::Unavailable, text }
}

fn strange(reply: &Reply) -> Error {
    let text = format!("the coordinator answered what makes no sense: {reply:.60?}");
    Error { kind: ErrorKind::Invalid, text }
}

/// The reply, unless it is an error.
fn good(reply: Reply) -> Result<Reply> {
    let Reply::Error(text) = reply else { return Ok(reply) };
    let (code, rest) = text.split_once(' ').unwrap_or((&text, ""));
    let (kind, text) = match code {
        "ABORTED" => (ErrorKind::Aborted, rest.to_owned()),
        "UNAVAILABLE" | "TIMEOUT" | "CORRUPT" => (ErrorKind::Unavailable, rest.to_owned()),
        "UNKNOWN" => (ErrorKind::Unknown, rest.to_owned()),
        "ERR" => (ErrorKind::Invalid, rest.to_owned()),
        _ => (ErrorKind::Invalid, text),
    };
    Err(Error { kind, text })
}

fn ok(reply: Reply) -> Result<()> {
    match good(reply)? {
        Reply::Ok => Ok(()),
        other => Err(strange(&other)),
    }
}

#[cfg(test)]
mod tests;
