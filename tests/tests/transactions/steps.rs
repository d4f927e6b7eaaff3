//! The steps of a transaction in a program, at one of which it ends itself by SIGKILL, or waits until somebody else is dead.
//!
//! A step is named by who does what, and whether before or after. Between steps a program is killed some time after one.
//!
//! May use: `tm`, `rustix` for signals. Must not know: what the transaction is about.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use holdfast::{Begin, Durability};
use holdfast_tests::until;
use rustix::process::{Signal, getpid, kill_process};
use tm::{
    Answer, BoxFuture, Branch, BranchName, CoordinatorId, Decisions, Deed, InDoubt, LastResource, LastResourceId,
    Learned, PostgresLastResource, Remote, ResourceManager, Result, TransactionId, Verdict, Vote, Xid,
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
    "before last postgres",
    "after last postgres",
    "before ask",
    "after ask",
    "before let go",
    "after let go",
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

/// Those of a transaction that several programs share, besides.
pub(crate) const SHARED_STEPS: &[&str] = &[
    "before enlist",
    "after enlist",
    "before suspend",
    "after suspend",
    "before resume",
    "after resume",
    "before vote",
    "after vote",
];

/// Those of a program's life, and of a branch that decided by itself.
pub(crate) const LIFE_STEPS: &[&str] = &[
    "before open",
    "after open",
    "before register",
    "after register",
    "before unregister",
    "after unregister",
    "before record",
    "after record",
    "before forget",
    "after forget",
    "before close",
    "after close",
];

fn is_step(step: &str) -> bool {
    STEPS.contains(&step) || SHARED_STEPS.contains(&step) || LIFE_STEPS.contains(&step)
}

/// Where somebody dies.
struct Death {
    step: String,
    /// How often this program gets there before.
    left: AtomicU32,
    victim: Victim,
    /// Whether that has happened, of somebody else's death.
    is_over: AtomicBool,
}

/// Who dies.
pub(crate) enum Victim {
    /// This program, so long after the step.
    Itself(Duration),
    /// Somebody else. Whoever reads what this program says kills them, and makes this file then.
    Other { name: String, dead: PathBuf },
}

/// How long another one's death may take.
const WAIT_MAX: Duration = Duration::from_secs(60);

static DEATH: OnceLock<Death> = OnceLock::new();

/// Plans a death at a step, when this program comes there for the time after `passages`.
pub(crate) fn plan(step: &str, passages: u32, victim: Victim) {
    assert!(is_step(step), "{step}");
    let (left, is_over) = (AtomicU32::new(passages), AtomicBool::new(false));
    let death = Death { step: step.to_owned(), left, victim, is_over };
    assert!(DEATH.set(death).is_ok(), "one dies once");
}

/// This program comes to a step.
pub(crate) fn pass(step: &str) {
    debug_assert!(is_step(step), "{step}");
    let Some(death) = DEATH.get().filter(|death| death.step == step) else { return };
    let counted = death.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if counted.is_ok() {
        return;
    }
    match &death.victim {
        Victim::Itself(delay) if delay.is_zero() => die(step),
        Victim::Itself(delay) => {
            let (delay, step) = (*delay, step.to_owned());
            thread::spawn(move || {
                thread::sleep(delay);
                die(&step);
            });
        }
        Victim::Other { name, dead } => {
            if !death.is_over.swap(true, Ordering::SeqCst) {
                say(&format!("wants {name} {step}"));
                until(WAIT_MAX, || dead.exists().then_some(())).expect("whom it wants is killed");
            }
        }
    }
}

fn say(line: &str) {
    // Of the lines of others none may be cut in two.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Says where, and dies.
pub(crate) fn die(step: &str) {
    say(&format!("dies {step}"));
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

    fn commit_last<'a>(&'a mut self, others: &'a [BranchName]) -> BoxFuture<'a, Answer> {
        Box::pin(stepped("last", self.name, self.branch.commit_last(others)))
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

    fn in_doubt(&self) -> BoxFuture<'_, std::result::Result<InDoubt, String>> {
        self.0.in_doubt()
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(stepped("recover", self.0.name().as_str(), self.0.commit(xid)))
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(stepped("recover", self.0.name().as_str(), self.0.rollback(xid)))
    }

    fn settle_last<'a>(
        &'a self,
        last: LastResourceId,
        ids: &'a [TransactionId],
    ) -> BoxFuture<'a, std::result::Result<Option<Vec<bool>>, String>> {
        Box::pin(async move {
            pass("before ask");
            let settled = self.0.settle_last(last, ids).await;
            pass("after ask");
            settled
        })
    }
}

/// A last resource to ask which is a step.
pub(crate) struct SteppedLast(pub(crate) PostgresLastResource);

impl LastResource for SteppedLast {
    fn id(&self) -> LastResourceId {
        self.0.id()
    }

    fn settle<'a>(&'a self, ids: &'a [TransactionId]) -> BoxFuture<'a, std::result::Result<Vec<bool>, String>> {
        Box::pin(async move {
            pass("before ask");
            let settled = self.0.settle(ids).await;
            pass("after ask");
            settled
        })
    }

    fn let_go(&self, id: TransactionId) {
        pass("before let go");
        self.0.let_go(id);
        pass("after let go");
    }
}

fn around<T>(step: &str, call: impl FnOnce() -> T) -> T {
    pass(&format!("before {step}"));
    let answer = call();
    pass(&format!("after {step}"));
    answer
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

    fn record(&self, id: TransactionId, done: &[Learned]) -> Result<()> {
        around("record", || self.0.record(id, done))
    }

    fn abort(&self, id: TransactionId) -> Result<()> {
        self.0.abort(id)
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<()> {
        self.0.record_deeds(id, deeds)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>> {
        self.0.verdicts(ids)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        around("enlist", || self.0.enlist(id, branches))
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        around("suspend", || self.0.suspend(id, branches))
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<()> {
        around("resume", || self.0.resume(id, number))
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<()> {
        around("vote", || self.0.prepared(id, branch, part))
    }
}
