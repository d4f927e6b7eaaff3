//! What resource managers did by themselves against a rollback, or asked to commit in one phase: recorded first, then forgotten, by
//! programs and by recovery.

use std::sync::{Arc, Mutex};

use holdfast::Durability;
use holdfast_tm::{
    Administration, Answer, Begin, BoxFuture, BranchName, Coordinator, CoordinatorId, Decisions, Deed, Embedded, Error,
    ErrorKind, Fate, Forget, Heuristic, InDoubt, LastResourceId, Learned, Outcome, Pace, Recovery, ResourceManager,
    State, TransactionId, Verdict, Vote, XaCode, Xid,
};

use super::{Bank, Monkey, bank, enlist};

const DEEDS: [(XaCode, Heuristic, &str, Outcome); 3] = [
    (XaCode::HeuristicCommit, Heuristic::Commit, "heuristic-commit", Outcome::Committed),
    (XaCode::HeuristicMixed, Heuristic::Mixed, "heuristic-mixed", Outcome::Mixed),
    (XaCode::HeuristicHazard, Heuristic::Hazard, "heuristic-hazard", Outcome::Hazard),
];

/// A coordinator that cannot write what it is to record, while it is told so.
struct Full {
    inner: Arc<dyn Decisions>,
    is_full: Arc<Mutex<bool>>,
}

impl Full {
    fn check_room(&self) -> Result<(), Error> {
        let full = Error { kind: ErrorKind::Unavailable, text: "the disk is full".to_owned() };
        if *self.is_full.lock().unwrap() { Err(full) } else { Ok(()) }
    }
}

impl Decisions for Full {
    fn coordinator(&self) -> CoordinatorId {
        self.inner.coordinator()
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId, Error> {
        self.inner.begin(begin)
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], how: Option<Durability>) -> Result<(), Error> {
        self.check_room()?;
        self.inner.commit(id, branches, how)
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        self.inner.done(id, done);
    }

    fn abort(&self, id: TransactionId) -> Result<(), Error> {
        self.inner.abort(id)
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<(), Error> {
        self.check_room()?;
        self.inner.record_deeds(id, deeds)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>, Error> {
        self.inner.verdicts(ids)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.inner.enlist(id, branches)
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.inner.suspend(id, branches)
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<(), Error> {
        self.inner.resume(id, number)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<(), Error> {
        self.inner.prepared(id, branch, part)
    }
}

fn full(bank: &Bank) -> (Coordinator, Arc<Mutex<bool>>) {
    let is_full = Arc::new(Mutex::new(true));
    let full = Full { inner: Arc::new(bank.embedded.clone()), is_full: Arc::clone(&is_full) };
    (Coordinator::over(Arc::new(full)), is_full)
}

/// What is listed of a transaction with branches.
fn listed(embedded: &Embedded, id: TransactionId) -> Vec<(String, String)> {
    let all = embedded.list("0").unwrap().transactions;
    let found = all.into_iter().filter(|status| status.id == id);
    let branches = found.flat_map(|status| status.branches);
    branches.map(|branch| (branch.branch.to_string(), branch.state)).collect()
}

#[tokio::test]
async fn what_a_program_hears_against_its_rollback_is_listed_until_somebody_forgets_it() {
    let bank = bank();
    for (code, _, state, outcome) in DEEDS {
        let one = Monkey::new("one").answering("rollback", code);
        let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
        let id = transaction.id();
        enlist(&mut transaction, &[&one]).await;
        let told = transaction.rollback().await.unwrap_err();
        assert_eq!(told.outcome, outcome, "{code}");
        assert_eq!(one.calls(), ["rollback", "forget"]);
        assert_eq!(listed(&bank.embedded, id), [("one".to_owned(), state.to_owned())]);
        assert_eq!(bank.embedded.status(id).unwrap().state, State::Aborted);
        let refused = Administration::forget(&bank.embedded, id, Forget::Settled).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid, "{refused}");
        Administration::forget(&bank.embedded, id, Forget::EvenInDoubt).unwrap();
        assert!(listed(&bank.embedded, id).is_empty());
    }
}

#[tokio::test]
async fn what_cannot_be_recorded_is_remembered_by_the_resource_manager_and_found_by_recovery() {
    let bank = bank();
    let (coordinator, is_full) = full(&bank);
    for (code, _, state, _) in DEEDS {
        *is_full.lock().unwrap() = true;
        let one = Monkey::new("one").answering("rollback", code);
        let mut transaction = coordinator.begin(Begin::default()).unwrap();
        let xid = transaction.xid("one").unwrap();
        enlist(&mut transaction, &[&one]).await;
        let told = transaction.rollback().await.unwrap_err();
        assert!(told.to_string().contains("is not recorded yet: the disk is full"), "{told}");
        assert_eq!(one.calls(), ["rollback"]);
        assert!(listed(&bank.embedded, xid.transaction).is_empty());
        // It lists it, as the standard has it, until it is to forget it.
        one.hold(&xid);
        let mut recovery = Recovery::new(&coordinator, vec![Arc::new(one.clone())], Pace::default());
        let report = recovery.run().await;
        assert_eq!(report.found[0].fate, Fate::Heuristic);
        assert!(report.found[0].reason.contains("could not record it"), "{}", report.found[0].reason);
        assert!(!one.calls().contains(&"forget"));
        *is_full.lock().unwrap() = false;
        let report = recovery.run().await;
        assert_eq!((report.found[0].fate, report.found[0].reason.as_str()), (Fate::Heuristic, "as it was told"));
        assert_eq!(one.calls(), ["rollback", "rollback", "rollback", "forget"]);
        assert_eq!(listed(&bank.embedded, xid.transaction), [("one".to_owned(), state.to_owned())]);
    }
}

#[tokio::test]
async fn one_that_rolled_back_by_itself_what_is_rolled_back_leaves_nothing_to_look_at() {
    let bank = bank();
    let one = Monkey::new("one").answering("rollback", XaCode::HeuristicRollback);
    let id = bank.embedded.begin(Begin::default()).unwrap();
    bank.embedded.abort(id).unwrap();
    one.hold(&Xid { transaction: id, branch: one.name().clone() });
    let mut recovery = Recovery::new(&bank.coordinator, vec![Arc::new(one.clone())], Pace::default());
    assert_eq!(recovery.run().await.found[0].fate, Fate::RolledBack);
    assert_eq!(one.calls(), ["rollback", "forget"]);
    assert!(listed(&bank.embedded, id).is_empty());
}

/// A resource manager that also is a last resource, which committed everything.
struct Committing(BranchName);

impl ResourceManager for Committing {
    fn name(&self) -> &BranchName {
        &self.0
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        Box::pin(async { Ok(InDoubt::default()) })
    }

    fn commit<'a>(&'a self, _: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { XaCode::Ok.into() })
    }

    fn rollback<'a>(&'a self, _: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { XaCode::Ok.into() })
    }

    fn settle_last<'a>(
        &'a self,
        _: LastResourceId,
        ids: &'a [TransactionId],
    ) -> BoxFuture<'a, Result<Option<Vec<bool>>, String>> {
        Box::pin(async { Ok(Some(vec![true; ids.len()])) })
    }
}

/// Behind a tombstone, because the last resource decided, nothing could be recorded: only the report told of it.
#[tokio::test]
async fn what_was_done_against_a_last_resource_is_listed_too() {
    let bank = bank();
    let one = Monkey::new("one").answering("commit", XaCode::HeuristicRollback);
    for is_copied in [false, true] {
        let own = bank.embedded.begin(Begin::default()).unwrap();
        let id = TransactionId { last_resource: Some(LastResourceId(7)), ..own };
        match is_copied {
            false => bank.embedded.abort(id).unwrap(),
            true => bank.embedded.commit(id, &[one.name().clone()], None).unwrap(),
        }
        one.hold(&Xid { transaction: id, branch: one.name().clone() });
        let last = Committing(BranchName::new("last").unwrap());
        let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(one.clone()), Arc::new(last)];
        let report = Recovery::new(&bank.coordinator, managers, Pace::default()).run().await;
        assert_eq!(report.found[0].fate, Fate::Heuristic, "{report:?}");
        assert_eq!(listed(&bank.embedded, id), [("one".to_owned(), "heuristic-rollback".to_owned())], "{is_copied}");
        let state = if is_copied { State::Committed } else { State::LastResource };
        assert_eq!(bank.embedded.status(id).unwrap().state, state);
    }
}

/// Nobody could note it with a decision that the coordinator does not have, and so the branch was listed for ever.
#[tokio::test]
async fn a_branch_that_did_what_a_last_resource_decided_is_told_to_forget_it() {
    let bank = bank();
    for is_copied in [false, true] {
        let one = Monkey::new("one").answering("commit", XaCode::HeuristicCommit);
        let own = bank.embedded.begin(Begin::default()).unwrap();
        let id = TransactionId { last_resource: Some(LastResourceId(7)), ..own };
        match is_copied {
            false => bank.embedded.abort(id).unwrap(),
            true => bank.embedded.commit(id, &[one.name().clone()], None).unwrap(),
        }
        one.hold(&Xid { transaction: id, branch: one.name().clone() });
        let last = Committing(BranchName::new("last").unwrap());
        let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(one.clone()), Arc::new(last)];
        Recovery::new(&bank.coordinator, managers, Pace::default()).run().await;
        assert_eq!(one.calls().last(), Some(&"forget"), "{is_copied}: {:?}", one.calls());
    }
}

const ONE_PHASE: [(XaCode, &str, Outcome); 4] = [
    (XaCode::HeuristicCommit, "heuristic-commit", Outcome::Committed),
    (XaCode::HeuristicRollback, "heuristic-rollback", Outcome::RolledBack),
    (XaCode::HeuristicMixed, "heuristic-mixed", Outcome::Mixed),
    (XaCode::HeuristicHazard, "heuristic-hazard", Outcome::Hazard),
];

/// Commits the only branch of a transaction, in one phase.
async fn commit_alone(coordinator: &Coordinator, one: &Monkey) -> (Xid, Outcome, String) {
    let mut transaction = coordinator.begin(Begin::default()).unwrap();
    let xid = transaction.xid(one.name().as_str()).unwrap();
    enlist(&mut transaction, &[one]).await;
    match transaction.commit().await {
        Ok(_) => (xid, Outcome::Committed, String::new()),
        Err(failed) => (xid, failed.outcome, failed.to_string()),
    }
}

/// No coordinator hears of a commit in one phase, and none heard of what was done instead: the program was told, and when it was
/// gone nobody knew.
#[tokio::test]
async fn what_was_done_instead_of_a_commit_in_one_phase_is_listed_also_after_a_restart_until_somebody_forgets_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut done = Vec::new();
    for (code, state, outcome) in ONE_PHASE {
        let coordinator = Coordinator::open(folder.path(), holdfast::Options::default()).await.unwrap();
        let one = Monkey::new("one").answering("one phase", code);
        let (xid, told, _) = commit_alone(&coordinator, &one).await;
        assert_eq!(told, outcome, "{code}");
        assert_eq!(one.calls(), ["one phase", "forget"]);
        done.push((xid.transaction, state));
    }
    let embedded = Embedded::open(folder.path(), holdfast::Options::default()).unwrap();
    for (id, state) in done {
        assert_eq!(listed(&embedded, id), [("one".to_owned(), state.to_owned())]);
        assert_eq!(embedded.status(id).unwrap().state, State::Committed);
        assert_eq!(Administration::forget(&embedded, id, Forget::Settled).unwrap_err().kind, ErrorKind::Invalid);
        Administration::forget(&embedded, id, Forget::EvenInDoubt).unwrap();
        assert!(listed(&embedded, id).is_empty());
    }
}

/// A coordinator that has given the transaction up does not take the decision: then it stands with the rollback.
#[tokio::test]
async fn what_was_done_in_one_phase_behind_the_deadline_is_listed_too() {
    let bank = bank();
    for (code, state, outcome) in ONE_PHASE {
        let one = Monkey::new("one").answering("one phase", code);
        let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
        let id = transaction.id();
        enlist(&mut transaction, &[&one]).await;
        bank.embedded.abort(id).unwrap();
        let ended = transaction.commit().await.map_or_else(|failed| failed.outcome, |_| Outcome::Committed);
        assert_eq!(ended, outcome, "{code}");
        assert_eq!(one.calls(), ["one phase", "forget"]);
        assert_eq!(listed(&bank.embedded, id), [("one".to_owned(), state.to_owned())]);
        assert_eq!(bank.embedded.status(id).unwrap().state, State::Aborted);
    }
}

#[tokio::test]
async fn what_was_done_in_one_phase_and_cannot_be_recorded_is_found_by_recovery() {
    let bank = bank();
    let (coordinator, is_full) = full(&bank);
    for (code, state, outcome) in ONE_PHASE {
        *is_full.lock().unwrap() = true;
        let one = Monkey::new("one").answering("one phase", code).answering("rollback", code);
        let (xid, told, reasons) = commit_alone(&coordinator, &one).await;
        assert_eq!(told, outcome, "{code}");
        assert!(told == Outcome::Committed || reasons.contains("the disk is full"), "{reasons}");
        assert_eq!(one.calls(), ["one phase"]);
        one.hold(&xid);
        *is_full.lock().unwrap() = false;
        Recovery::new(&coordinator, vec![Arc::new(one.clone())], Pace::default()).run().await;
        assert_eq!(one.calls(), ["one phase", "rollback", "forget"]);
        // Nobody decided to commit it, so what was rolled back is as it should be.
        let expected =
            if code == XaCode::HeuristicRollback { vec![] } else { vec![("one".to_owned(), state.to_owned())] };
        assert_eq!(listed(&bank.embedded, xid.transaction), expected);
    }
}

/// Whoever is out of reach remembers nothing of it, and nothing is to be forgotten.
#[tokio::test]
async fn a_commit_in_one_phase_whose_answer_is_lost_is_the_programs_to_hear() {
    let bank = bank();
    let one = Monkey::new("one").answering("one phase", XaCode::ManagerDown);
    let (xid, told, _) = commit_alone(&bank.coordinator, &one).await;
    assert_eq!((told, one.calls()), (Outcome::Hazard, vec!["one phase"]));
    assert!(listed(&bank.embedded, xid.transaction).is_empty());
}
