//! Where a process may be killed: each has a name, and runs prove that each was reached.
//!
//! A point lies before or after a step of a program or of the server. A kill strikes the first or the second time that
//! its process passes the point in a run: the second is the second branch, the second transaction or the second try.
//!
//! May use: nothing. Must not know: what a step does.

use std::collections::BTreeMap;
use std::fmt;

/// Whose step it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A program that has transactions.
    Application,
    /// The coordinator.
    Server,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A program becomes an owner.
    Open,
    /// A transaction begins.
    Begin,
    /// Branches of another program are enlisted.
    Enlist,
    /// A branch is started at its resource manager.
    Start,
    /// The work in a branch is ended.
    End,
    /// A branch is prepared.
    Prepare,
    /// A branch of another program votes.
    Vote,
    /// A program leaves deciding to whoever resumes.
    Suspend,
    /// A program goes on with what another one suspended.
    Resume,
    /// The decision to commit.
    Decision,
    /// The decision not to.
    Abort,
    /// The last resource commits, and decides by that.
    Last,
    /// The last resource is asked what it decided.
    AskLast,
    /// The last resource hears that nobody needs its decision.
    LetGo,
    /// A prepared branch is committed, or the only one in one phase.
    Commit,
    /// A branch is rolled back.
    Rollback,
    /// What is known to be done is noted.
    Done,
    /// A resource manager is told to forget what it did by itself.
    Forget,
    /// Recovery: what is in doubt is listed.
    List,
    /// Recovery: the coordinator is asked what to do.
    Verdict,
    /// Recovery: what it said is carried out.
    Settle,
    /// An owner ends.
    Close,
}

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Before it is asked for; at the server before it is done.
    Before,
    /// At the server: it is in the journal, and not synced.
    Written,
    /// After the answer came; at the server before it is sent.
    After,
}

/// A crash point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Whose.
    pub side: Side,
    /// What is done.
    pub step: Step,
    /// When.
    pub moment: Moment,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, step, moment } = self;
        write!(f, "{side:?}: {moment:?} {step:?}")
    }
}

/// Which time a process passes a point.
pub(crate) const PASSAGES: u32 = 2;

const APPLICATION: [Step; 22] = [
    Step::Open,
    Step::Begin,
    Step::Enlist,
    Step::Start,
    Step::End,
    Step::Prepare,
    Step::Vote,
    Step::Suspend,
    Step::Resume,
    Step::Decision,
    Step::Abort,
    Step::Last,
    Step::AskLast,
    Step::LetGo,
    Step::Commit,
    Step::Rollback,
    Step::Done,
    Step::Forget,
    Step::List,
    Step::Verdict,
    Step::Settle,
    Step::Close,
];
/// What the server does when it is asked to, or by itself.
const SERVER: [Step; 15] = [
    Step::Open,
    Step::Begin,
    Step::Enlist,
    Step::Vote,
    Step::Suspend,
    Step::Resume,
    Step::Decision,
    Step::Abort,
    Step::Done,
    Step::Forget,
    Step::List,
    Step::Verdict,
    Step::AskLast,
    Step::Settle,
    Step::Close,
];
/// Where the server waits for a sync.
const SYNCED: [Step; 5] = [Step::Open, Step::Decision, Step::Abort, Step::Verdict, Step::Close];

/// All of them.
#[must_use]
pub fn all() -> Vec<Point> {
    let both = [Moment::Before, Moment::After];
    let of = |side: Side, steps: &[Step], moments: &[Moment]| -> Vec<Point> {
        let pairs = steps.iter().flat_map(|step| moments.iter().map(|moment| (*step, *moment)));
        pairs.map(|(step, moment)| Point { side, step, moment }).collect()
    };
    let mut all = of(Side::Application, &APPLICATION, &both);
    all.extend(of(Side::Server, &SERVER, &both));
    all.extend(of(Side::Server, &SYNCED, &[Moment::Written]));
    all
}

/// How often each was passed by processes, and where kills struck.
#[derive(Debug, Clone, Default)]
pub(crate) struct Points {
    passed: BTreeMap<Point, u32>,
    /// Where the next planned kill strikes, and how many passages are left until it does.
    plan: Option<(Point, u32)>,
    pub(crate) struck: BTreeMap<(Point, u32), u64>,
}

impl Points {
    /// Plans a kill the `passage`-th time from now, 1 for the next, that a process passes this point.
    pub(crate) fn plan(&mut self, point: Point, passage: u32) {
        self.plan = Some((point, passage));
        self.passed.clear();
    }

    pub(crate) fn has_plan(&self) -> bool {
        self.plan.is_some()
    }

    pub(crate) fn clear_plan(&mut self) {
        self.plan = None;
    }

    /// A process passes a point: whether it is killed there.
    pub(crate) fn pass(&mut self, point: Point) -> bool {
        let passed = self.passed.entry(point).or_default();
        *passed += 1;
        let strikes = self.plan == Some((point, *passed));
        if strikes {
            *self.struck.entry((point, *passed)).or_default() += 1;
            self.plan = None;
        }
        strikes
    }
}
