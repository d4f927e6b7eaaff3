//! Distributed transactions of a run: owners, decisions and questions, and what was answered.
//!
//! What is known of a transaction is only what somebody was told. A decision is at a position as any batch is, so what a
//! crash may take of it is what it may take of the journal.
//!
//! May use: the run. Must not know: what breaks when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast::{
    Begin, BranchName, Commit, Durability, ErrorKind, Forgetting, Heuristic, LastResourceId, Learned, Lease, Outcome,
    OwnerId, Patience, Pending, Position, PutOptions, RestsOn, Scope, Sharing, Taking, TransactionId, Verdict, Vote,
};

use crate::model::{Batch, Effect};
use crate::run::{Check, Run, violation};
use crate::step::{acknowledge, durability, name, promise};

const BRANCHES: [&str; 3] = ["pg", "maria", "other"];
/// Most transactions that are looked at.
const IDS_MAX: usize = 12;

/// What was said of distributed transactions.
#[derive(Debug, Default)]
pub(crate) struct Said {
    owners: Vec<(OwnerId, u64)>,
    ids: Vec<TransactionId>,
    /// Decided to be committed, and where; none of them is forgotten.
    pub(crate) committed: BTreeMap<TransactionId, Position>,
    /// Branches that were ever added to a shared one, which nobody else may name again.
    enlisted: BTreeSet<(TransactionId, BranchName)>,
    /// Somebody was told that they will never be committed.
    pub(crate) aborted: BTreeSet<TransactionId>,
}

impl Said {
    /// All branches know, or somebody gave it up: nothing can be said of it any more.
    fn forget(&mut self, id: TransactionId) {
        self.committed.remove(&id);
        self.aborted.remove(&id);
        self.ids.retain(|known| *known != id);
    }
}

fn branch(at: u64) -> BranchName {
    let at = usize::try_from(at).unwrap_or(0);
    BranchName::new(BRANCHES.get(at).copied().unwrap_or("more")).expect("these are names")
}

/// What went wrong is explained by a planned fault, or by a table that is full.
fn explained(error: &holdfast::Error) -> Check<()> {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Limit => Ok(()),
        _ => Err(violation("xa", format!("{:?}: {error}", error.kind()))),
    }
}

/// As [`explained`]; or a branch was named that is another program's.
fn explained_commit(run: &Run, id: TransactionId, branches: &[BranchName], error: &holdfast::Error) -> Check<()> {
    let is_taken = |branch: &BranchName| run.said.enlisted.contains(&(id, branch.clone()));
    match error.kind() {
        ErrorKind::Invalid if branches.iter().any(is_taken) => Ok(()),
        _ => explained(error),
    }
}

/// The answer, and where the decision is that it rests on; `None` when what has to be synced could not be.
fn shown<T>(run: &mut Run, pending: Pending<'_, T>) -> Check<Option<(T, Position)>> {
    let mut rests = RestsOn { asked: Position::ZERO, synced: Position::ZERO };
    let answer = pending.show_after(|on| rests = on);
    if rests.synced > Position::ZERO {
        match run.store.wait(rests.synced, Durability::Synced) {
            Ok(()) => promise(run, rests.synced, Durability::Synced),
            Err(error) => {
                explained(&error)?;
                return Ok(None);
            }
        }
    }
    Ok(Some((answer, rests.asked)))
}

/// Something about distributed transactions.
pub(crate) fn step(run: &mut Run) -> Check<()> {
    (0..=run.sim.random.below(5)).try_for_each(|_| one(run))
}

fn one(run: &mut Run) -> Check<()> {
    match run.sim.random.below(50) {
        0..5 => open(run),
        5..15 => begin(run),
        15..23 => commit(run),
        23..31 => commit_with_a_change(run),
        31..33 => abort(run),
        33..40 => judge(run),
        40..46 => learn(run),
        46 => take_part(run),
        47 => owners(run),
        _ => {
            // Longer than any lease, now and then.
            let by = Duration::from_millis(if run.sim.random.chance(1, 4) { 11_000 } else { 50 });
            run.sim.clock.advance(by);
            run.trace("xa: time", u64::try_from(by.as_millis()).unwrap_or(0));
            Ok(())
        }
    }
}

fn open(run: &mut Run) -> Check<()> {
    let store = run.store.clone();
    let lease = Lease::For(Duration::from_millis(100 + run.sim.random.below(2_000)));
    let opened = match store.xa().open(lease, "sim") {
        Ok(pending) => shown(run, pending)?,
        Err(error) => return explained(&error),
    };
    let Some((owner, _)) = opened else { return Ok(()) };
    if run.said.owners.iter().any(|(known, _)| *known == owner) {
        return Err(violation("xa", format!("owner {} was given out twice", owner.0)));
    }
    run.trace("xa: open", owner.0);
    run.said.owners.push((owner, 0));
    Ok(())
}

fn begin(run: &mut Run) -> Check<()> {
    let store = run.store.clone();
    let random = &mut run.sim.random;
    let timeout = random.chance(1, 4).then(|| Duration::from_millis(random.below(400)));
    let sharing = if random.chance(1, 4) { Sharing::Shared } else { Sharing::Alone };
    let count = run.said.owners.len() as u64;
    let own = count == 0 || random.chance(1, 8);
    let id = if own {
        match store.xa().begin(&Begin { timeout, sharing }) {
            Ok(id) => id,
            Err(error) if error.kind() == ErrorKind::Unknown => return Ok(()),
            Err(error) => return explained(&error),
        }
    } else {
        let at = count.saturating_sub(1 + random.below(3.min(count)));
        let known = run.said.owners.get_mut(usize::try_from(at).unwrap_or(0)).expect("one of those there are");
        known.1 += 1;
        let (coordinator, deadline_ms) = (store.xa().coordinator(), store.xa().deadline_ms(timeout));
        let shared = sharing == Sharing::Shared;
        let last_resource = (!shared && random.chance(1, 3)).then_some(LastResourceId(1));
        TransactionId { coordinator, owner: known.0, sequence: known.1, deadline_ms, shared, last_resource }
    };
    if run.said.ids.len() >= IDS_MAX {
        let oldest = run.said.ids.remove(0);
        // What is not looked at any more is not to fill the table.
        if let Ok(pending) = store.xa().forget(oldest, &[], Forgetting::Everything) {
            let _ = shown(run, pending)?;
        }
        run.said.forget(oldest);
    }
    run.trace("xa: begin", id.sequence);
    run.said.ids.push(id);
    Ok(())
}

fn pick(run: &mut Run) -> Option<TransactionId> {
    let count = run.said.ids.len() as u64;
    let at = if count == 0 { 0 } else { run.sim.random.below(count) };
    run.said.ids.get(usize::try_from(at).unwrap_or(0)).copied()
}

fn branches(run: &mut Run) -> Vec<BranchName> {
    (0..=run.sim.random.below(3)).filter(|at| *at < 3).map(branch).collect()
}

/// Somebody is told that a transaction is committed, by a batch at `position`.
fn is_committed(run: &mut Run, id: TransactionId, position: Position) -> Check<()> {
    run.trace("xa: committed", position.get());
    if run.said.aborted.contains(&id) {
        return Err(violation("xa", format!("{id} is committed after it was said to be rolled back")));
    }
    let known = run.said.committed.len();
    run.said.committed.entry(id).or_insert(position);
    run.outcome.decided += (run.said.committed.len() - known) as u64;
    Ok(())
}

/// Somebody is told that a transaction will never be committed.
fn is_aborted(run: &mut Run, id: TransactionId) -> Check<()> {
    run.trace("xa: aborted", id.sequence);
    if run.said.committed.contains_key(&id) {
        return Err(violation("xa", format!("{id} is said to be rolled back, and was decided")));
    }
    run.outcome.aborted += u64::from(run.said.aborted.insert(id));
    Ok(())
}

fn commit(run: &mut Run) -> Check<()> {
    let Some(id) = pick(run) else { return Ok(()) };
    let (store, branches) = (run.store.clone(), branches(run));
    let decided = match store.xa().decide(id, &branches, Patience::Over) {
        Ok(pending) => shown(run, pending)?,
        Err(error) => return explained_commit(run, id, &branches, &error),
    };
    match decided {
        None => Ok(()),
        Some((Commit::Decided | Commit::Settled(Outcome::Committed), position)) => {
            is_committed(run, id, position)?;
            let durability = durability(run);
            acknowledge(run, position, durability)
        }
        Some((Commit::Settled(Outcome::Aborted(_)), _)) => is_aborted(run, id),
        Some((Commit::Waiting, _)) => Err(violation("xa", "a commit waits that was not to".into())),
    }
}

fn commit_with_a_change(run: &mut Run) -> Check<()> {
    let Some(id) = pick(run) else { return Ok(()) };
    let (store, branches, (bucket, key)) = (run.store.clone(), branches(run), name(run));
    let mut exclusive = match store.xa().exclusive(&Scope::Keys(&[(&bucket, &key)]), &[id]) {
        Ok(exclusive) => exclusive,
        Err(error) => return explained(&error),
    };
    let now_ms = exclusive.now_ms();
    let value = id.sequence.to_string().into_bytes();
    let staged = exclusive.put(&bucket, &key, &value, &PutOptions::default());
    if let Err(error) = staged.and_then(|()| exclusive.decide(id, &branches)) {
        return explained_commit(run, id, &branches, &error);
    }
    match exclusive.commit() {
        Ok(committed) => {
            let effect = Effect::Put { value, expires_ms: None, metadata: Vec::new(), indexes: Default::default() };
            let effects = vec![((bucket, key), effect)];
            run.outcome.commits += 1;
            run.model.commit(Batch { position: committed.position, now_ms, effects });
            is_committed(run, id, committed.position)?;
            let durability = durability(run);
            acknowledge(run, committed.position, durability)
        }
        Err(error) if error.kind() == ErrorKind::Conflict && run.said.committed.contains_key(&id) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Aborted => {
            let position = error.rests_on().unwrap_or_default();
            match store.wait(position, Durability::Synced) {
                Ok(()) => {
                    promise(run, position, Durability::Synced);
                    is_aborted(run, id)
                }
                Err(error) => explained(&error),
            }
        }
        Err(error) => explained_commit(run, id, &branches, &error),
    }
}

fn abort(run: &mut Run) -> Check<()> {
    let Some(id) = pick(run) else { return Ok(()) };
    let store = run.store.clone();
    match store.xa().abort(id) {
        Ok(pending) => match shown(run, pending)? {
            Some((Outcome::Committed, position)) => is_committed(run, id, position),
            Some((Outcome::Aborted(_), _)) => is_aborted(run, id),
            None => Ok(()),
        },
        Err(error) => explained(&error),
    }
}

fn judge(run: &mut Run) -> Check<()> {
    let (store, ids) = (run.store.clone(), run.said.ids.clone());
    let judged = match store.xa().verdicts(&ids) {
        Ok(pending) => shown(run, pending)?,
        Err(error) => return explained(&error),
    };
    let Some((verdicts, _)) = judged else { return Ok(()) };
    for (id, verdict) in ids.into_iter().zip(verdicts) {
        match verdict {
            Verdict::Commit => {
                let position = run.said.committed.get(&id).copied();
                is_committed(run, id, position.unwrap_or(run.model.synced))?;
            }
            // Where another may decide, the coordinator says of itself alone that it will not.
            Verdict::Rollback if id.last_resource.is_none() => is_aborted(run, id)?,
            Verdict::LastResource if id.last_resource.is_some() => is_aborted(run, id)?,
            Verdict::Rollback | Verdict::LastResource => {
                return Err(violation("xa", format!("of {id} the wrong one is to decide: {verdict:?}")));
            }
            Verdict::Leave if run.said.committed.contains_key(&id) => {
                return Err(violation("xa", format!("{id} was decided, and is to be left alone")));
            }
            Verdict::Leave => {}
            Verdict::Foreign => return Err(violation("xa", format!("{id} is said to be foreign"))),
        }
    }
    Ok(())
}

fn learn(run: &mut Run) -> Check<()> {
    let Some(id) = pick(run) else { return Ok(()) };
    let store = run.store.clone();
    let branch = branch(run.sim.random.below(3));
    let heuristic = run.sim.random.chance(1, 8).then_some(Heuristic::Hazard);
    let learned = [Learned { branch, heuristic }];
    let by_force = run.sim.random.chance(1, 8);
    let pending = if by_force {
        store.xa().forget(id, &[], Forgetting::Everything)
    } else {
        store.xa().forget(id, &learned, Forgetting::Known)
    };
    match pending {
        Ok(pending) => drop(shown(run, pending)?),
        Err(error) if error.kind() == ErrorKind::Invalid => return Ok(()),
        Err(error) => return explained(&error),
    }
    // It is gone when all branches know of it.
    match store.xa().status(id) {
        Ok(pending) => match shown(run, pending)? {
            Some((status, _)) if status.state == holdfast::State::Unknown => {
                if run.said.committed.contains_key(&id) {
                    run.said.forget(id);
                }
                Ok(())
            }
            _ => Ok(()),
        },
        Err(error) => explained(&error),
    }
}

fn take_part(run: &mut Run) -> Check<()> {
    let Some(id) = pick(run).filter(|id| id.shared) else { return Ok(()) };
    let store = run.store.clone();
    let branch = branch(run.sim.random.below(3));
    let pending = if run.sim.random.chance(1, 2) {
        run.said.enlisted.insert((id, branch.clone()));
        store.xa().enlist(id, None, &[branch])
    } else {
        let vote = if run.sim.random.chance(1, 5) { Vote::Failed } else { Vote::Prepared };
        store.xa().vote(id, &branch, vote)
    };
    match pending {
        Ok(pending) => match shown(run, pending)? {
            Some((Taking::Settled(Outcome::Aborted(_)), _)) => is_aborted(run, id),
            Some((Taking::Settled(Outcome::Committed), position)) => is_committed(run, id, position),
            Some((Taking::Part, _)) | None => Ok(()),
        },
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
        Err(error) => explained(&error),
    }
}

/// Owners renew their leases, and end.
fn owners(run: &mut Run) -> Check<()> {
    let store = run.store.clone();
    let count = run.said.owners.len() as u64;
    if count == 0 {
        return Ok(());
    }
    let at = usize::try_from(run.sim.random.below(count)).unwrap_or(0);
    let owner = run.said.owners.get(at).expect("one of those there are").0;
    if run.sim.random.chance(1, 3) {
        match store.xa().end(owner) {
            Ok(pending) => drop(shown(run, pending)?),
            Err(error) => return explained(&error),
        }
    }
    match store.xa().renew(owner) {
        Ok(pending) => drop(shown(run, pending)?),
        Err(error) => return explained(&error),
    }
    Ok(())
}
