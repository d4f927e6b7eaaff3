//! One profile in use: its coordinator, its resource managers, and recovery of what was left in doubt in them.
//!
//! Shared by all threads of the process that use the profile, and kept when the last of them closes, so that opening again
//! costs no message.
//!
//! May use: `coordinator`, `resource`, `rounds`, `side_by_side`, `switch`, `tm`. Must not know: TX, where profiles come from.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast::Durability;
use tm::{BranchEnd, Decisions, Heuristic, TransactionId, Verdict, XaCode, Xid, against, note_ended};

use crate::abi::{TMNOFLAGS, TX_HAZARD, TX_MIXED, XidData};
use crate::coordinator::ClosableCoordinator;
use crate::last_error;
use crate::resource::{Resource, Verb, code};
use crate::rounds::Rounds;
use crate::side_by_side::{Named, call_all};
use crate::switch::SwitchedResource;

/// Between two rounds of recovery that nobody asked for.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Manager {
    pub(crate) decisions: Arc<dyn Decisions>,
    pub(crate) durability: Option<Durability>,
    /// In the order of the profile; a place is a resource manager's number.
    pub(crate) resources: Vec<SwitchedResource>,
    /// What a transaction may take when the program says nothing.
    pub(crate) timeout: Option<Duration>,
    last_recovery: Mutex<Option<Instant>>,
    /// Whose store takes part in transactions, when it has one.
    pub(crate) coordinator: Option<Arc<ClosableCoordinator>>,
    /// Recovery at connections of programs' own.
    pub(crate) rounds: Rounds,
}

/// What a round of recovery found and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// In doubt still, or ended by their resource managers' own decision against the coordinator's.
    pub(crate) left: u64,
    /// Resource managers and coordinators that could not be asked.
    pub(crate) unreachable: u64,
}

impl Manager {
    pub(crate) fn new(
        decisions: Arc<dyn Decisions>,
        resources: Vec<SwitchedResource>,
        durability: Option<Durability>,
        timeout: Option<Duration>,
    ) -> Self {
        let (last_recovery, rounds) = (Mutex::default(), Rounds::default());
        Self { decisions, durability, resources, timeout, last_recovery, coordinator: None, rounds }
    }

    /// Lets the store of its coordinator take part in transactions.
    pub(crate) fn with_coordinator(self, coordinator: Arc<ClosableCoordinator>) -> Self {
        Self { coordinator: Some(coordinator), ..self }
    }

    /// Recovers when nobody did for a while. For this, all resource managers must be open in this thread.
    pub(crate) fn recover_when_due(&self) {
        let now = Instant::now();
        {
            let mut last = self.last_recovery.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if last.is_some_and(|last| now.duration_since(last) < RECOVERY_INTERVAL) {
                return;
            }
            // Whoever notes the round makes it; others do not wait for it.
            *last = Some(now);
        }
        self.recover();
    }

    /// Asks every resource manager what is in doubt, and the coordinator what to do with it.
    pub(crate) fn recover(&self) -> Recovered {
        let resources: Vec<&dyn Resource> = self.resources.iter().map(|resource| resource as &dyn Resource).collect();
        recover(&*self.decisions, &resources, Pass::ALL)
    }
}

/// How far a round of recovery goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    /// When it leaves what it has not come to.
    pub(crate) end: Option<Instant>,
    pub(crate) carries_out: CarriesOut,
}

impl Pass {
    /// Until all was looked at.
    pub(crate) const ALL: Self = Self { end: None, carries_out: CarriesOut::All };
}

/// What of the verdicts a round of recovery carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CarriesOut {
    All,
    /// Commits have an order, which is not known before all who take part are.
    Rollbacks,
}

/// A round of recovery at these resource managers. Branches of other coordinators are never touched.
pub(crate) fn recover(decisions: &dyn Decisions, resources: &[&dyn Resource], pass: Pass) -> Recovered {
    let mut recovered = Recovered::default();
    let mut found = Vec::new();
    for (place, resource) in resources.iter().enumerate() {
        last_error::clear();
        match resource.prepared() {
            Ok(xids) => found.extend(xids.into_iter().map(|xid| Found { place, resource: *resource, xid })),
            Err(code) => {
                let branch = resource.branch();
                last_error::set_with_reason(&format!("`{branch}` cannot be asked what is in doubt: {code}"));
                recovered.unreachable += 1;
            }
        }
    }
    found.retain(|found| found.xid.transaction.coordinator == decisions.coordinator());
    let mut ids: Vec<TransactionId> = found.iter().map(|found| found.xid.transaction).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return recovered;
    }
    let verdicts: BTreeMap<TransactionId, Verdict> = match decisions.verdicts(&ids) {
        Ok(verdicts) => ids.into_iter().zip(verdicts).collect(),
        Err(error) => {
            let count = found.len();
            last_error::set(format!("the coordinator cannot be asked what to do with {count} branches: {error}"));
            recovered.unreachable += 1;
            recovered.left += found.len() as u64;
            return recovered;
        }
    };
    let verdicts = asked_last(verdicts, resources, &mut recovered);
    let known: BTreeSet<(usize, TransactionId)> =
        found.iter().map(|found| (found.place, found.xid.transaction)).collect();
    // As when a program commits: those with a lower number first, and one that cannot now holds up nobody.
    let mut turns: BTreeMap<u32, Vec<Found<'_>>> = BTreeMap::new();
    for found in found {
        turns.entry(found.resource.order()).or_default().push(found);
    }
    for (order, turn) in turns {
        let verdict = |found: &Found<'_>| verdicts.get(&found.xid.transaction).copied().unwrap_or(Verdict::Leave);
        let commits = turn.iter().any(|found| verdict(found) == Verdict::Commit);
        let first = if commits { prepared_before(order, resources, &known) } else { BTreeSet::new() };
        for found in &turn {
            if pass.end.is_some_and(|end| Instant::now() >= end) {
                recovered.left += 1;
                continue;
            }
            let verdict = match verdict(found) {
                Verdict::Commit if first.contains(&found.xid.transaction) => Verdict::Leave,
                Verdict::Commit if pass.carries_out == CarriesOut::Rollbacks => Verdict::Leave,
                verdict => verdict,
            };
            match (settle(decisions, found.resource, &found.xid, verdict), verdict) {
                (None | Some(BranchEnd::Pending), _) => recovered.left += 1,
                (Some(end), verdict) if against(verdict, end).is_some() => recovered.left += 1,
                (_, Verdict::Commit) => recovered.committed += 1,
                _ => recovered.rolled_back += 1,
            }
        }
    }
    recovered
}

/// The same verdicts, those of last resources in the place of the coordinator's that it will not commit. Where nobody answers, and where
/// two do who do not agree, because one is a copy of the other, it stays as it is, and so is left alone.
fn asked_last(
    mut verdicts: BTreeMap<TransactionId, Verdict>,
    resources: &[&dyn Resource],
    recovered: &mut Recovered,
) -> BTreeMap<TransactionId, Verdict> {
    let open = verdicts.iter_mut().filter(|(_, verdict)| **verdict == Verdict::LastResource);
    for (id, verdict) in open {
        let Some(last) = id.last_resource else { continue };
        let mut answers = BTreeSet::new();
        for resource in resources {
            match resource.settle(last, &[*id]) {
                Ok(settled) => answers.extend(settled.unwrap_or_default()),
                Err(error) => {
                    let branch = resource.branch();
                    last_error::set(format!("`{branch}` cannot be asked what the last resource decided: {error}"));
                    recovered.unreachable += 1;
                }
            }
        }
        *verdict = match (answers.contains(&true), answers.contains(&false)) {
            (true, false) => Verdict::Commit,
            (false, true) => Verdict::Rollback,
            (true, true) => {
                tracing::warn!(%id, "two databases say differently what they decided as the same last resource");
                continue;
            }
            (false, false) => continue,
        };
    }
    verdicts
}

/// A prepared branch.
struct Found<'a> {
    /// Where, among those that are asked.
    place: usize,
    resource: &'a dyn Resource,
    xid: Xid,
}

/// Transactions that have a branch at a resource manager that commits before `order`, of which this round does not know: it
/// was prepared after that one was asked, and its program may be about to commit it.
fn prepared_before(
    order: u32,
    resources: &[&dyn Resource],
    known: &BTreeSet<(usize, TransactionId)>,
) -> BTreeSet<TransactionId> {
    let earlier = resources.iter().enumerate().filter(|(_, resource)| resource.order() < order);
    let listed = earlier.flat_map(|(place, resource)| {
        let xids = resource.prepared().unwrap_or_default();
        xids.into_iter().map(move |xid| (place, xid.transaction))
    });
    listed.filter(|branch| !known.contains(branch)).map(|(_, transaction)| transaction).collect()
}

/// Carries a verdict out at prepared branches of one transaction: side by side, commits in their order. The code when it did not come
/// out as the verdict has it.
pub(crate) fn carry_out(
    decisions: &dyn Decisions,
    id: TransactionId,
    verdict: Verdict,
    resources: &[&dyn Resource],
) -> Option<c_int> {
    let verb = verb_of(verdict)?;
    let mut turns: BTreeMap<u32, Vec<Named<'_>>> = BTreeMap::new();
    for resource in resources {
        let order = if verb == Verb::Commit { resource.order() } else { 0 };
        turns.entry(order).or_default().push((*resource, XidData::of_branch(id, resource.branch())));
    }
    let mut ends = Vec::new();
    for turn in turns.values() {
        let mut answers = Vec::new();
        call_all(verb, turn, |place, answer| answers.push((place, code(answer))));
        for (place, answer) in answers {
            let (resource, _) = turn.get(place).expect("each has its place");
            let xid = Xid { transaction: id, branch: resource.branch().clone() };
            ends.push(settled(decisions, *resource, &xid, verdict, answer));
        }
    }
    let deeds: Vec<Heuristic> = ends.into_iter().filter_map(|end| against(verdict, end)).collect();
    if deeds.iter().any(|deed| *deed != Heuristic::Hazard) {
        return Some(TX_MIXED);
    }
    (!deeds.is_empty()).then_some(TX_HAZARD)
}

/// What a resource manager is told by a verdict; nothing where the branch is to be left alone.
fn verb_of(verdict: Verdict) -> Option<Verb> {
    match verdict {
        Verdict::Commit => Some(Verb::Commit),
        Verdict::Rollback => Some(Verb::Rollback),
        // Nobody here is it, or it does not answer.
        Verdict::LastResource | Verdict::Leave | Verdict::Foreign => None,
    }
}

/// Carries a verdict out at one branch, and tells the coordinator; `None` where it is to be left alone.
fn settle(decisions: &dyn Decisions, resource: &dyn Resource, xid: &Xid, verdict: Verdict) -> Option<BranchEnd> {
    let answer = code(resource.call(verb_of(verdict)?, &XidData::of(xid), TMNOFLAGS));
    Some(settled(decisions, resource, xid, verdict, answer))
}

/// Tells the coordinator what a resource manager answered to a verdict.
fn settled(
    decisions: &dyn Decisions,
    resource: &dyn Resource,
    xid: &Xid,
    verdict: Verdict,
    answer: XaCode,
) -> BranchEnd {
    let ended = if verdict == Verdict::Commit { answer.after_commit() } else { answer.after_rollback() };
    if let Some(deed) = against(verdict, ended.end) {
        let did = match deed {
            Heuristic::Commit => "has committed",
            Heuristic::Rollback => "has rolled back",
            Heuristic::Mixed => "has committed in part and rolled back in part",
            Heuristic::Hazard => "may have committed or rolled back",
        };
        let was = if verdict == Verdict::Commit { "committed" } else { "rolled back" };
        last_error::set(format!("{} {did} {xid} by itself, which is {was} otherwise", resource.branch()));
    }
    let may_forget = note_ended(decisions, xid, verdict, ended.end);
    if ended.remembered && may_forget {
        let forgotten = code(resource.call(Verb::Forget, &XidData::of(xid), TMNOFLAGS));
        if forgotten != XaCode::Ok {
            tracing::warn!(%xid, answer = %forgotten, "does not forget what it decided by itself");
        }
    }
    ended.end
}
