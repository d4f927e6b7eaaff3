//! Recovery: which branches that were found prepared are committed, rolled back or left, and when to look again.
//!
//! A round for every *source*, a resource manager that can list what is in doubt: it is due, it is listed, the coordinator
//! is asked about what is ours, the verdicts become instructions, their answers are noted. A source that cannot be reached
//! is asked again after a delay that doubles up to a bound, half of it random, so that many programs do not ask at once.
//!
//! Several programs may do this for the same sources at the same time: an instruction that somebody else carried out
//! already is answered with `XAER_NOTA`, which is as good as done.
//!
//! May use: `codes`, `id`; `base` for points in time. Must not know: clocks, what a source is, how verdicts are made.

use std::time::Duration;

use base::Time;

use crate::codes::{BranchEnd, Ended, XaCode};
use crate::id::{CoordinatorId, TransactionId, Xid};

/// When sources are asked.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two rounds with a source that answers; sooner when something of ours was found.
    pub interval: Duration,
    /// Before the first repetition with one that does not.
    pub retry_min: Duration,
    /// Before any repetition, at most.
    pub retry_max: Duration,
}

impl Default for Pace {
    /// A round in 10 s; a source that is down again after 250 ms to 30 s: a restart of a database takes some seconds.
    fn default() -> Self {
        let retry_min = Duration::from_millis(250);
        Self { interval: Duration::from_secs(10), retry_min, retry_max: Duration::from_secs(30) }
    }
}

/// What the coordinator says about a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Its prepared branches are committed.
    Commit,
    /// They are rolled back.
    Rollback,
    /// They are left alone.
    Leave,
}

/// What to do with one branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Where it was found: the source's number.
    pub source: usize,
    /// The branch.
    pub xid: Xid,
    /// What to do.
    pub action: Action,
}

/// The state of recovery. Pure: it is told what happened and the time.
#[derive(Debug)]
pub struct Settle {
    coordinator: CoordinatorId,
    pace: Pace,
    sources: Vec<Source>,
}

#[derive(Debug, Default)]
struct Source {
    /// In a row, the last included.
    failures: u32,
    not_before: Time,
    /// Ours, of the last list, without an instruction so far.
    found: Vec<Xid>,
}

impl Settle {
    /// Recovery of this coordinator's branches at so many sources, all of which are due.
    #[must_use]
    pub fn new(coordinator: CoordinatorId, sources: usize, pace: Pace) -> Self {
        Self { coordinator, pace, sources: (0..sources).map(|_| Source::default()).collect() }
    }

    /// The sources to list now.
    #[must_use]
    pub fn due(&self, now: Time) -> Vec<usize> {
        let numbered = self.sources.iter().enumerate();
        numbered.filter(|(_, source)| source.not_before <= now).map(|(number, _)| number).collect()
    }

    /// The same, and when any is due all others that answered when they were asked last: where commits have an order, a source
    /// that was asked long ago may hold a branch that comes first.
    #[must_use]
    pub fn due_together(&self, now: Time) -> Vec<usize> {
        let due = |source: &Source| source.not_before <= now;
        if !self.sources.iter().any(due) {
            return Vec::new();
        }
        let numbered = self.sources.iter().enumerate();
        numbered.filter(|(_, source)| due(source) || source.failures == 0).map(|(number, _)| number).collect()
    }

    /// When the next source is due; `None` without sources.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.sources.iter().map(|source| source.not_before).min()
    }

    /// Makes all sources due, as somebody asks for it who knows that they are back.
    pub fn hurry(&mut self) {
        for source in &mut self.sources {
            source.not_before = Time::default();
        }
    }

    /// A source listed what is in doubt there. What is another coordinator's is dropped here.
    pub fn listed(&mut self, source: usize, branches: Vec<Xid>, now: Time) {
        let (ours, pace) = (self.coordinator, self.pace);
        let source = self.source(source);
        source.failures = 0;
        source.found = branches;
        source.found.retain(|xid| xid.transaction.coordinator == ours);
        // What is left alone now may be settled as soon as its owner's lease is over, and holds locks until then.
        let soon = pace.interval.min(pace.retry_min.saturating_mul(4));
        source.not_before = now.after(if source.found.is_empty() { pace.interval } else { soon });
    }

    /// A source could not be reached. `jitter` is any random number. Returns how long it is left alone.
    pub fn unreachable(&mut self, source: usize, now: Time, jitter: u32) -> Duration {
        let Pace { retry_min, retry_max, .. } = self.pace;
        let source = self.source(source);
        source.found.clear();
        let doubled = retry_min.saturating_mul(1_u32.checked_shl(source.failures).unwrap_or(u32::MAX));
        let delay = doubled.min(retry_max);
        let half = delay / 2;
        let wait = half + half.mul_f64(f64::from(jitter) / f64::from(u32::MAX));
        source.failures = source.failures.saturating_add(1);
        source.not_before = now.after(wait);
        wait
    }

    /// The transactions to ask the coordinator about, each once.
    #[must_use]
    pub fn questions(&self) -> Vec<TransactionId> {
        let found = self.sources.iter().flat_map(|source| &source.found);
        let mut ids: Vec<_> = found.map(|xid| xid.transaction).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// What to do, given the coordinator's answers. A transaction that has none is left alone, and so asked about again.
    pub fn instructions(&mut self, verdicts: &[(TransactionId, Action)]) -> Vec<Instruction> {
        let mut instructions = Vec::new();
        for (number, source) in self.sources.iter_mut().enumerate() {
            for xid in source.found.drain(..) {
                let verdict = verdicts.iter().find(|(id, _)| *id == xid.transaction);
                let action = verdict.map_or(Action::Leave, |(_, action)| *action);
                instructions.push(Instruction { source: number, xid, action });
            }
        }
        instructions
    }

    /// A source's answer to an instruction. Returns what became of the branch: unless that is pending, a coordinator that
    /// said commit is told, and a resource manager that remembers lets it go.
    ///
    /// # Panics
    /// When the instruction was to leave it.
    pub fn answered(&mut self, instruction: &Instruction, code: XaCode, now: Time, jitter: u32) -> Ended {
        let ended = match instruction.action {
            Action::Commit => code.after_commit(),
            Action::Rollback => code.after_rollback(),
            Action::Leave => panic!("nobody was asked about {}", instruction.xid),
        };
        if ended.end == BranchEnd::Pending {
            self.unreachable(instruction.source, now, jitter);
        }
        ended
    }

    fn source(&mut self, number: usize) -> &mut Source {
        self.sources.get_mut(number).expect("the caller numbers sources by its own list")
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Duration, Instruction, Pace, Settle, Time};
    use crate::codes::{BranchEnd, XaCode};
    use crate::id::{BranchName, CoordinatorId, OwnerId, TransactionId, Xid};

    const OURS: CoordinatorId = CoordinatorId(7);

    fn id(coordinator: CoordinatorId, sequence: u64) -> TransactionId {
        TransactionId { coordinator, owner: OwnerId(1), sequence, deadline_ms: 0, shared: false, last_resource: None }
    }

    fn xid(coordinator: CoordinatorId, sequence: u64, branch: &str) -> Xid {
        Xid { transaction: id(coordinator, sequence), branch: BranchName::new(branch).unwrap() }
    }

    fn at(seconds: u64) -> Time {
        Time::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn ours_are_asked_about_once_and_foreign_ones_never_touched() {
        let mut settle = Settle::new(OURS, 2, Pace::default());
        assert_eq!(settle.due(at(0)), [0, 1]);
        settle.listed(0, vec![xid(OURS, 1, "a"), xid(OURS, 2, "a"), xid(CoordinatorId(8), 3, "a")], at(0));
        settle.listed(1, vec![xid(OURS, 1, "b"), xid(OURS, 4, "b")], at(0));
        assert_eq!(settle.questions(), [id(OURS, 1), id(OURS, 2), id(OURS, 4)]);
        let foreign = (id(CoordinatorId(8), 3), Action::Rollback);
        let verdicts = [foreign, (id(OURS, 1), Action::Commit), (id(OURS, 2), Action::Rollback)];
        let doing = |source, xid, action| Instruction { source, xid, action };
        let expected = [
            doing(0, xid(OURS, 1, "a"), Action::Commit),
            doing(0, xid(OURS, 2, "a"), Action::Rollback),
            doing(1, xid(OURS, 1, "b"), Action::Commit),
            // Nothing was said about it.
            doing(1, xid(OURS, 4, "b"), Action::Leave),
        ];
        assert_eq!(settle.instructions(&verdicts), expected);
        assert!(settle.questions().is_empty());
    }

    #[test]
    fn a_source_that_is_down_is_asked_less_and_less_until_it_answers() {
        let pace = Pace {
            interval: Duration::from_secs(100),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(8),
        };
        let mut settle = Settle::new(OURS, 1, pace);
        let waits = |settle: &mut Settle, jitter| -> Vec<u64> {
            (0..40).map(|_| settle.unreachable(0, at(0), jitter).as_millis() as u64).collect()
        };
        let longest = waits(&mut settle, u32::MAX);
        assert_eq!(longest[..6], [1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(longest[39], 8000);
        settle.listed(0, Vec::new(), at(0));
        assert_eq!(waits(&mut settle, 0)[..5], [500, 1000, 2000, 4000, 4000]);
        assert_eq!(settle.next_due(), Some(at(4)));
        assert!(settle.due(at(3)).is_empty());
        assert_eq!(settle.due(at(4)), [0]);
        settle.hurry();
        assert_eq!(settle.due(at(0)), [0]);
    }

    #[test]
    fn sources_whose_commits_have_an_order_are_asked_together_but_for_those_that_are_down() {
        let mut settle = Settle::new(OURS, 3, Pace::default());
        settle.listed(0, Vec::new(), at(0));
        settle.listed(1, vec![xid(OURS, 1, "b")], at(0));
        for _ in 0..6 {
            settle.unreachable(2, at(0), u32::MAX);
        }
        assert_eq!((settle.due(at(0)), settle.due_together(at(0))), (vec![], vec![]));
        assert_eq!((settle.due(at(2)), settle.due_together(at(2))), (vec![1], vec![0, 1]));
        assert_eq!((settle.due(at(9)), settle.due_together(at(9))), (vec![1, 2], vec![0, 1, 2]));
    }

    #[test]
    fn an_answer_that_ends_nothing_makes_the_source_wait() {
        let commit = |source| Instruction { source, xid: xid(OURS, 1, "a"), action: Action::Commit };
        for code in XaCode::ALL {
            let mut settle = Settle::new(OURS, 2, Pace::default());
            let ended = settle.answered(&commit(1), code, at(5), 0);
            assert_eq!(ended, code.after_commit());
            assert_eq!(settle.due(at(5)).contains(&1), ended.end != BranchEnd::Pending);
            let roll_back = Instruction { action: Action::Rollback, ..commit(0) };
            assert_eq!(settle.answered(&roll_back, code, at(5), 0), code.after_rollback());
        }
    }
}
