//! The steps of a transaction in a program, at one of which the program ends itself by SIGKILL.
//!
//! A step is named by who does what, and whether before or after. Between steps a program is killed some time after one.
//!
//! May use: `tm`, `rustix` for signals. Must not know: what the transaction is about.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use holdfast::{Begin, Durability};
use rustix::process::{Signal, getpid, kill_process};
use tm::{
    Answer, BoxFuture, Branch, BranchName, CoordinatorId, Decisions, Learned, Remote, ResourceManager, Result,
    TransactionId, Verdict, Vote, Xid,
};

/// All steps, in the order in which a transaction comes to them.
pub(crate) const STEPS: &[&str] = &[
    "after begin",
    "after start postgres",
    "after start mariadb",
    "after work",
    "before prepare postgres",
    "after prepare postgres",
    "before prepare mariadb",
    "after prepare mariadb",
    "before decision",
    "after decision",
    "before commit postgres",
    "after commit postgres",
    "before commit mariadb",
    "after commit mariadb",
    "before done",
    "after done",
    "before rollback postgres",
    "after rollback postgres",
    "before rollback mariadb",
    "after rollback mariadb",
    "before recover postgres",
    "after recover postgres",
    "before recover mariadb",
    "after recover mariadb",
    "after all",
];

/// Where this program dies.
struct Death {
    step: String,
    /// How often it gets there before.
    left: AtomicU32,
    delay: Duration,
}

static DEATH: OnceLock<Death> = OnceLock::new();

/// Plans this program's end: so long after it came to a step for the time after `passages`.
pub(crate) fn die_at(step: &str, passages: u32, delay: Duration) {
    assert!(STEPS.contains(&step), "{step}");
    let death = Death { step: step.to_owned(), left: AtomicU32::new(passages), delay };
    assert!(DEATH.set(death).is_ok(), "one dies once");
}

/// This program comes to a step.
pub(crate) fn pass(step: &str) {
    debug_assert!(STEPS.contains(&step), "{step}");
    let Some(death) = DEATH.get().filter(|death| death.step == step) else { return };
    let counted = death.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if counted.is_ok() {
        return;
    }
    if death.delay.is_zero() {
        die(step);
    }
    let (delay, step) = (death.delay, step.to_owned());
    thread::spawn(move || {
        thread::sleep(delay);
        die(&step);
    });
}

/// Says where, and dies.
pub(crate) fn die(step: &str) {
    // Of the lines of others none may be cut in two.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "dies {step}");
    let _ = out.flush();
    kill_process(getpid(), Signal::KILL).unwrap();
    // The signal is on its way.
    loop {
        thread::park();
    }
}

/// A branch whose calls are steps.
pub(crate) struct SteppedBranch<B> {
    pub(crate) name: &'static str,
    pub(crate) branch: B,
}

async fn stepped(verb: &str, name: &str, call: BoxFuture<'_, Answer>) -> Answer {
    pass(&format!("before {verb} {name}"));
    let answer = call.await;
    pass(&format!("after {verb} {name}"));
    answer
}

impl<B: Branch> Branch for SteppedBranch<B> {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(stepped("prepare", self.name, self.branch.prepare()))
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        self.branch.commit_one_phase()
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(stepped("commit", self.name, self.branch.commit()))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(stepped("rollback", self.name, self.branch.rollback()))
    }
}

/// A resource manager whose recovery is steps.
pub(crate) struct SteppedManager(pub(crate) Arc<dyn ResourceManager>);

impl ResourceManager for SteppedManager {
    fn name(&self) -> &BranchName {
        self.0.name()
    }

    fn in_doubt(&self) -> BoxFuture<'_, std::result::Result<Vec<Xid>, String>> {
        self.0.in_doubt()
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(stepped("recover", self.0.name().as_str(), self.0.commit(xid)))
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(stepped("recover", self.0.name().as_str(), self.0.rollback(xid)))
    }
}

/// A coordinator whose decisions are steps.
pub(crate) struct SteppedDecisions(pub(crate) Remote);

impl Decisions for SteppedDecisions {
    fn coordinator(&self) -> CoordinatorId {
        self.0.coordinator()
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId> {
        self.0.begin(begin)
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], durability: Option<Durability>) -> Result<()> {
        pass("before decision");
        let decided = self.0.commit(id, branches, durability);
        pass("after decision");
        decided
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        pass("before done");
        self.0.done(id, done);
        pass("after done");
    }

    fn abort(&self, id: TransactionId) -> Result<()> {
        self.0.abort(id)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>> {
        self.0.verdicts(ids)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        self.0.enlist(id, branches)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<()> {
        self.0.prepared(id, branch, part)
    }
}
