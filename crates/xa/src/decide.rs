//! How transactions are settled: who takes part in shared ones, commit, abort, and forgetting.
//!
//! May use: `table`. Must not know: verdicts, clocks, stores.

use std::collections::{BTreeMap, BTreeSet};

use crate::answer::{Plan, Rests};
use crate::error::TableError;
use crate::hold::{Holding, Resumer};
use crate::id::{BranchName, OwnerId, TransactionId};
use crate::record::{BranchState, Change, Decision, Heuristic, Record, RecordKey};
use crate::table::{AbortReason, Commit, Entry, Now, Outcome, Patience, Table, Vote};

/// What a branch of a committed transaction says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// The branch.
    pub branch: BranchName,
    /// What it did by itself, if it did.
    pub heuristic: Option<Heuristic>,
}

/// What to let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgetting {
    /// What nobody needs: branches that know the outcome. A branch that decided by itself stays.
    Known,
    /// Also what may be in doubt, and branches that decided by themselves.
    Everything,
}

/// What became of a request to take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// Noted.
    Part,
    /// Too late.
    Settled(Outcome),
}

/// Who takes part in a transaction under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    pub(crate) parts: BTreeMap<BranchName, Part>,
    pub(crate) holding: Holding,
    /// Who resumed it and has suspended it since, if they can be told from others; of very many the last.
    pub(crate) before: Vec<Resumer>,
}

/// A branch of a shared transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    /// Whose it is, if that was said.
    pub(crate) by: Option<OwnerId>,
    pub(crate) vote: Option<Vote>,
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Program(Patience),
    /// Somebody who has looked at the branches.
    Operator,
}

fn check_twice<'b>(branches: impl Iterator<Item = &'b BranchName>) -> Result<(), TableError> {
    let mut names: Vec<&BranchName> = branches.collect();
    names.sort_unstable();
    match names.windows(2).find_map(|pair| pair.first().filter(|name| Some(*name) == pair.get(1))) {
        Some(name) => Err(TableError::Twice((*name).clone())),
        None => Ok(()),
    }
}

impl Table {
    pub(crate) fn check_branches(&self, count: usize) -> Result<(), TableError> {
        let max = self.limits.xa_branches_max;
        if count > max { Err(TableError::Limit { what: "branches of a transaction", max }) } else { Ok(()) }
    }

    /// What speaks against anything but rolling back. In shadow there is only an operator to ask, who knows better.
    pub(crate) fn obstacle(&self, id: TransactionId, now: Now) -> Option<AbortReason> {
        if self.is_in_shadow(id.owner) {
            return None;
        }
        if id.deadline_ms != 0 && id.deadline_ms <= now.wall_ms {
            return Some(AbortReason::Deadline);
        }
        // Who takes part is known in memory only: of an owner of an earlier run that memory may be lost.
        (id.shared && id.owner.0 < self.owners.earlier).then_some(AbortReason::EntryLost)
    }

    /// Decides to commit a transaction whose `branches` are prepared, besides those that said so themselves. Asked again it
    /// says the same; branches that it did not name before are noted besides.
    ///
    /// # Errors
    /// `Foreign`, `NoSuchOwner`, `Twice`, `Taken`, `Suspended`, `Limit`: nothing was decided, unless it was before. `Doubtful`: nobody
    /// knows.
    pub fn commit(
        &mut self,
        id: TransactionId,
        branches: &[BranchName],
        patience: Patience,
        now: Now,
    ) -> Result<Plan<Commit>, TableError> {
        self.commit_by(By::Program(patience), id, branches, now)
    }

    /// The same for an operator, who has looked at all branches: also what is in doubt since the journal was damaged.
    ///
    /// # Errors
    /// `Foreign`, `NoSuchOwner`, `Twice`, `Limit`; `LastResource` where that decides, but of what is in doubt; `NoSuchBranch` when it is committed, without one of these: nothing was decided.
    pub fn commit_by_operator(
        &mut self,
        id: TransactionId,
        branches: &[BranchName],
        now: Now,
    ) -> Result<Plan<Commit>, TableError> {
        self.commit_by(By::Operator, id, branches, now)
    }

    fn commit_by(
        &mut self,
        by: By,
        id: TransactionId,
        branches: &[BranchName],
        now: Now,
    ) -> Result<Plan<Commit>, TableError> {
        self.check_mine(id)?;
        check_twice(branches.iter())?;
        self.check_branches(branches.len())?;
        if let Some((outcome, needs)) = self.settled(id) {
            let more = self.decided_with_more(by, id, branches)?;
            return Ok(more.unwrap_or_else(|| Plan::nothing(Commit::Settled(outcome), needs)));
        }
        if by != By::Operator {
            self.check_shadow(id)?;
        } else if id.last_resource.is_some() && !self.is_in_shadow(id.owner) {
            return Err(TableError::LastResource(id));
        }
        if !self.owners.is_given(id.owner) {
            return Err(TableError::NoSuchOwner(id.owner));
        }
        self.check_room(id)?;
        self.touch(id.owner, now);
        let mut refusal = self.obstacle(id, now);
        let mut taking: Vec<BranchName> = branches.to_vec();
        if let Some(Entry::Shared(shared)) = self.entries.get(&id) {
            if by != By::Operator && shared.holding == Holding::Nobody {
                return Err(TableError::Suspended(id));
            }
            // A program names its own: what another one enlisted is not told again by who commits.
            if by != By::Operator
                && let Some(taken) = branches.iter().find(|branch| shared.parts.contains_key(*branch))
            {
                return Err(TableError::Taken(taken.clone()));
            }
            let has = |vote: Option<Vote>| shared.parts.values().any(|part| part.vote == vote);
            if has(Some(Vote::Failed)) {
                refusal = refusal.or(Some(AbortReason::BranchFailed));
            } else if has(None) {
                if refusal.is_none() && by == By::Program(Patience::Waits) {
                    return Ok(Plan::nothing(Commit::Waiting, crate::Needs::default()));
                }
                refusal = refusal.or(Some(AbortReason::NotPrepared));
            }
            let prepared = shared.parts.iter().filter(|(_, part)| part.vote == Some(Vote::Prepared));
            let prepared = prepared.map(|(branch, _)| branch).filter(|branch| !branches.contains(branch));
            taking.extend(prepared.cloned());
        }
        if let Some(reason) = refusal {
            return Ok(Self::bury(id, reason, now).map(Commit::Settled));
        }
        self.check_branches(taking.len())?;
        if taking.is_empty() && !id.shared {
            // Nobody will ever ask.
            return Ok(Plan::nothing(Commit::Decided, crate::Needs::default()));
        }
        let branches = taking.into_iter().map(|branch| (branch, BranchState::Open)).collect();
        let decision = Record::Decision(id, Decision { at_ms: now.wall_ms, branches });
        Ok(Plan::writing(Commit::Decided, Rests::AsAsked, vec![Change::Put(decision)]))
    }

    /// Of a transaction that is committed: notes those of the branches that the decision does not name. They are of it all the same, and
    /// if they were not noted it could be forgotten before they are committed. An operator has misspelt them.
    fn decided_with_more(
        &self,
        by: By,
        id: TransactionId,
        branches: &[BranchName],
    ) -> Result<Option<Plan<Commit>>, TableError> {
        let Some(Entry::Decided(decided)) = self.entries.get(&id) else { return Ok(None) };
        let mut decision = decided.decision.clone();
        let is_known = |branch: &&BranchName| decided.decision.branches.iter().any(|(name, _)| name == *branch);
        let more: Vec<BranchName> = branches.iter().filter(|branch| !is_known(branch)).cloned().collect();
        match more.first() {
            None => return Ok(None),
            Some(branch) if by == By::Operator => return Err(TableError::NoSuchBranch(branch.clone())),
            Some(_) => decision.branches.extend(more.into_iter().map(|branch| (branch, BranchState::Open))),
        }
        self.check_branches(decision.branches.len())?;
        let changes = vec![Change::Put(Record::Decision(id, decision))];
        Ok(Some(Plan::writing(Commit::Settled(Outcome::Committed), Rests::AsAsked, changes)))
    }

    /// Decides never to commit a transaction, unless it is committed already.
    ///
    /// # Errors
    /// `Foreign`, `NoSuchOwner`, `Limit`; `Doubtful`: it may be committed, and nobody knows.
    pub fn abort(&mut self, id: TransactionId, now: Now) -> Result<Plan<Outcome>, TableError> {
        self.abort_by(By::Program(Patience::Over), id, now)
    }

    /// The same for an operator, who has looked at all branches: also what is in doubt since the journal was damaged.
    ///
    /// # Errors
    /// `Foreign`, `NoSuchOwner`, `Limit`.
    pub fn abort_by_operator(&mut self, id: TransactionId, now: Now) -> Result<Plan<Outcome>, TableError> {
        self.abort_by(By::Operator, id, now)
    }

    fn abort_by(&mut self, by: By, id: TransactionId, now: Now) -> Result<Plan<Outcome>, TableError> {
        self.check_mine(id)?;
        if let Some((outcome, needs)) = self.settled(id) {
            return Ok(Plan::nothing(outcome, needs));
        }
        if by != By::Operator {
            self.check_shadow(id)?;
        }
        if !self.owners.is_given(id.owner) {
            return Err(TableError::NoSuchOwner(id.owner));
        }
        self.check_room(id)?;
        self.touch(id.owner, now);
        Ok(Self::bury(id, AbortReason::RolledBack, now))
    }

    /// Notes that branches learned of the decision to commit, and lets go of it when all have: at once, or after an hour
    /// when the owner may not have learned of it. Of a transaction that is not decided there is nothing to note.
    ///
    /// Without branches the whole transaction is let go of.
    ///
    /// # Errors
    /// `Foreign`, `NoSuchBranch`; `NotDone` and `Retained` when there is something that only [`Forgetting::Everything`] lets go of.
    pub fn forget(
        &mut self,
        id: TransactionId,
        learned: &[Learned],
        forgetting: Forgetting,
    ) -> Result<Plan<()>, TableError> {
        self.check_mine(id)?;
        if learned.is_empty()
            && let Some(forgotten) = self.forget_deeds(id, forgetting)
        {
            return forgotten;
        }
        if forgetting == Forgetting::Everything && matches!(self.entries.get(&id), Some(Entry::Doubtful)) {
            // Until it is found prepared again.
            self.entries.remove(&id);
        }
        let by_force = forgetting == Forgetting::Everything;
        let has_deeds = learned.iter().any(|learned| learned.heuristic.is_some());
        let Some(Entry::Decided(decided)) = self.entries.get_mut(&id) else {
            return Ok(Plan::nothing((), crate::Needs::default()));
        };
        let mut decision = decided.decision.clone();
        for Learned { branch, heuristic } in learned {
            let known = decision.branches.iter_mut().find(|(name, _)| name == branch);
            let (_, state) = known.ok_or_else(|| TableError::NoSuchBranch(branch.clone()))?;
            match (heuristic, &state) {
                (Some(heuristic), _) => *state = BranchState::Heuristic(*heuristic),
                (None, BranchState::Heuristic(_)) if !by_force => {}
                (None, _) => *state = BranchState::Done,
            }
        }
        let mut left = decision.branches.iter().filter(|(_, state)| *state != BranchState::Done);
        let is_over = match left.next() {
            None => true,
            Some((branch, _)) if learned.is_empty() && !by_force => return Err(TableError::NotDone(branch.clone())),
            Some(_) => learned.is_empty(),
        };
        if learned.is_empty() && decided.is_told && !by_force {
            return Err(TableError::Retained);
        }
        let change = if is_over && (by_force || !decided.is_told) {
            Change::Delete(RecordKey::Decision(id))
        } else if decision == decided.decision {
            // Who noted it may be waiting for the disk still.
            let needs = if has_deeds { crate::Needs::synced(decided.mark) } else { crate::Needs::default() };
            return Ok(Plan::nothing((), needs));
        } else {
            Change::Put(Record::Decision(id, decision))
        };
        let rests = match (by_force, has_deeds) {
            (true, _) => Rests::AsAsked,
            // The resource manager forgets it next.
            (false, true) => Rests::Synced,
            (false, false) => Rests::Lazily,
        };
        Ok(Plan::writing((), rests, vec![change]))
    }

    /// Whether [`Table::forget`] of this would change anything now. An answer that rests on nothing.
    ///
    /// # Errors
    /// As [`Table::forget`].
    pub fn is_news(&mut self, id: TransactionId, learned: &[Learned]) -> Result<bool, TableError> {
        Ok(!self.forget(id, learned, Forgetting::Known)?.changes.is_empty())
    }

    /// As [`Table::forget`] of several transactions, each once, in one write. What one of them refuses is passed by.
    pub fn forget_all(&mut self, done: &BTreeMap<TransactionId, BTreeSet<BranchName>>) -> Plan<()> {
        let mut changes = Vec::new();
        for (id, branches) in done {
            let learned = |branch: &BranchName| Learned { branch: branch.clone(), heuristic: None };
            let learned: Vec<Learned> = branches.iter().map(learned).collect();
            changes.extend(self.forget(*id, &learned, Forgetting::Known).into_iter().flat_map(|plan| plan.changes));
        }
        Plan::writing((), Rests::Lazily, changes)
    }

    /// A program that says which owner it is has been given that number.
    pub(crate) fn check_owner(&self, by: Option<OwnerId>) -> Result<(), TableError> {
        match by.filter(|by| !self.owners.is_given(*by)) {
            Some(unknown) => Err(TableError::NoSuchOwner(unknown)),
            None => Ok(()),
        }
    }

    pub(crate) fn take_part(&mut self, id: TransactionId, now: Now) -> Result<Option<Plan<Taking>>, TableError> {
        self.check_mine(id)?;
        if !id.shared {
            return Err(TableError::NotShared);
        }
        if let Some((outcome, needs)) = self.settled(id) {
            return Ok(Some(Plan::nothing(Taking::Settled(outcome), needs)));
        }
        self.check_shadow(id)?;
        if !self.owners.is_given(id.owner) {
            return Err(TableError::NoSuchOwner(id.owner));
        }
        self.check_room(id)?;
        self.touch(id.owner, now);
        Ok(self.obstacle(id, now).map(|reason| Self::bury(id, reason, now).map(Taking::Settled)))
    }

    /// Branches belong to a shared transaction, and have to vote before it commits. `by` is the program's own owner, if it
    /// has one: who asks again, because an answer was lost, is told from another program that chose the same name.
    ///
    /// # Errors
    /// `Foreign`, `NotShared`, `NoSuchOwner`, `Twice`, `Taken`, `Limit`, `Doubtful`.
    pub fn enlist(
        &mut self,
        id: TransactionId,
        by: Option<OwnerId>,
        branches: &[BranchName],
        now: Now,
    ) -> Result<Plan<Taking>, TableError> {
        check_twice(branches.iter())?;
        self.check_owner(by)?;
        if let Some(plan) = self.take_part(id, now)? {
            return Ok(plan);
        }
        let none = Shared::default();
        let shared = match self.entries.get(&id) {
            Some(Entry::Shared(shared)) => shared,
            _ => &none,
        };
        let is_taken =
            |branch: &BranchName| shared.parts.get(branch).is_some_and(|part| part.by != by || part.vote.is_some());
        if let Some(taken) = branches.iter().find(|branch| is_taken(branch)) {
            return Err(TableError::Taken(taken.clone()));
        }
        let new = branches.iter().filter(|branch| !shared.parts.contains_key(*branch)).count();
        self.check_branches(shared.parts.len() + new)?;
        if id.deadline_ms != 0 {
            self.deadlines.insert((id.deadline_ms, id));
        }
        if let Entry::Shared(shared) = self.entries.entry(id).or_insert_with(|| Entry::Shared(Shared::default())) {
            for branch in branches {
                shared.parts.entry(branch.clone()).or_insert(Part { by, vote: None });
            }
        }
        Ok(Plan::nothing(Taking::Part, crate::Needs::default()))
    }

    /// A branch of a shared transaction voted. A vote of failure stands.
    ///
    /// # Errors
    /// `Foreign`, `NotShared`, `NoSuchOwner`, `NoSuchBranch`, `Doubtful`.
    pub fn vote(
        &mut self,
        id: TransactionId,
        branch: &BranchName,
        vote: Vote,
        now: Now,
    ) -> Result<Plan<Taking>, TableError> {
        if let Some(plan) = self.take_part(id, now)? {
            return Ok(plan);
        }
        let part = match self.entries.get_mut(&id) {
            Some(Entry::Shared(shared)) => shared.parts.get_mut(branch),
            _ => None,
        };
        let part = part.ok_or_else(|| TableError::NoSuchBranch(branch.clone()))?;
        if part.vote != Some(Vote::Failed) {
            part.vote = Some(vote);
        }
        Ok(Plan::nothing(Taking::Part, crate::Needs::default()))
    }
}
