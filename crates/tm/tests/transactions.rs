//! Transactions of an asynchronous program over an embedded coordinator and resource managers that do as they are told.
#![allow(clippy::unwrap_used, reason = "tests")]

mod handing_on;
mod heuristic;
mod last_resource;
mod monkey;
mod own;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use holdfast::{Durability, Options, PutOptions, Store};
use holdfast_tm::{
    Administration, Begin, BranchName, Coordinator, CoordinatorId, Decisions, Deed, Embedded, Error, ErrorKind, Fate,
    Learned, Outcome, Pace, Progress, Recovery, ResourceManager, Sharing, Transaction, TransactionId, Verdict, Vote,
    XaCode,
};
use monkey::Monkey;

struct Bank {
    _folder: tempfile::TempDir,
    store: Store,
    embedded: Embedded,
    coordinator: Coordinator,
}

fn bank() -> Bank {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let embedded = Embedded::over(store.clone());
    let coordinator = Coordinator::embedded(embedded.clone());
    Bank { _folder: folder, store, embedded, coordinator }
}

impl Bank {
    /// Decisions that a branch may not know of. Others go in the background.
    fn remembered(&self) -> usize {
        let transactions = self.embedded.list("0").unwrap().transactions;
        transactions.iter().filter(|status| status.branches.iter().any(|branch| branch.state == "open")).count()
    }
}

async fn enlist(transaction: &mut Transaction, monkeys: &[&Monkey]) {
    for monkey in monkeys {
        let xid = transaction.xid(monkey.name().as_str()).unwrap();
        transaction.enlist(monkey.name(), monkey.branch(&xid)).await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_prepares_all_decides_commits_all_and_forgets() {
    let bank = bank();
    let (one, two) = (Monkey::new("one"), Monkey::new("two"));
    let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
    enlist(&mut transaction, &[&one, &two]).await;
    let committed = transaction.commit().await.unwrap();
    assert!(committed.pending.is_empty());
    assert_eq!(one.calls(), ["prepare", "commit"]);
    assert_eq!(two.calls(), ["prepare", "commit"]);
    assert_eq!(bank.remembered(), 0);
}

#[tokio::test]
async fn one_branch_commits_in_one_phase_and_none_needs_nothing() {
    let bank = bank();
    let one = Monkey::new("one");
    let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
    enlist(&mut transaction, &[&one]).await;
    transaction.commit().await.unwrap();
    assert_eq!(one.calls(), ["one phase"]);
    bank.coordinator.begin(Begin::default()).unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn a_refusal_rolls_all_back_and_says_whose_it_was() {
    let bank = bank();
    let (one, two) = (Monkey::new("one"), Monkey::new("two").answering("prepare", XaCode::RolledBackDeadlock));
    let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
    enlist(&mut transaction, &[&one, &two]).await;
    let failed = transaction.commit().await.unwrap_err();
    assert_eq!(failed.outcome, Outcome::RolledBack);
    assert_eq!(failed.to_string(), "rolled back: two: XA_RBDEADLOCK as it was told");
    assert_eq!((one.calls(), two.calls()), (vec!["prepare", "rollback"], vec!["prepare"]));
}

#[tokio::test]
async fn local_changes_and_branches_commit_together_or_not_at_all() {
    let bank = bank();
    for (vote, expected) in [(XaCode::RolledBack, None), (XaCode::Ok, Some(b"new".to_vec()))] {
        let one = Monkey::new("one").answering("prepare", vote);
        let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
        enlist(&mut transaction, &[&one]).await;
        transaction.kv().unwrap().put(b"accounts", b"key", b"new", &PutOptions::default()).unwrap();
        assert_eq!(transaction.commit().await.is_ok(), expected.is_some());
        let object = bank.store.kv().get(b"accounts", b"key").unwrap();
        assert_eq!(object.map(|object| object.value.to_vec()), expected);
    }
    assert_eq!(bank.remembered(), 0);
}

#[tokio::test]
async fn a_deadline_that_passed_rolls_back() {
    let bank = bank();
    let (one, two) = (Monkey::new("one"), Monkey::new("two"));
    let begin = Begin { timeout: Some(Duration::ZERO), ..Begin::default() };
    let mut transaction = bank.coordinator.begin(begin).unwrap();
    let deadline_ms = transaction.id().deadline_ms;
    enlist(&mut transaction, &[&one, &two]).await;
    while bank.store.xa().deadline_ms(Some(Duration::ZERO)) <= deadline_ms {
        tokio::task::yield_now().await;
    }
    let failed = transaction.commit().await.unwrap_err();
    assert_eq!(failed.outcome, Outcome::RolledBack);
    assert!(failed.to_string().contains("deadline"), "{failed}");
    assert_eq!(one.calls(), ["prepare", "rollback"]);
}

#[tokio::test]
async fn branches_commit_in_the_order_that_was_stated() {
    let bank = bank();
    let log = Monkey::log();
    let (queue, database) = (Monkey::logging("queue", &log), Monkey::logging("database", &log));
    let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
    for (order, monkey) in [(2, &queue), (1, &database)] {
        let xid = transaction.xid(monkey.name().as_str()).unwrap();
        transaction.enlist_in_order(monkey.name(), order, monkey.branch(&xid)).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let commits: Vec<String> = log.lock().unwrap().iter().filter(|line| line.contains("commit")).cloned().collect();
    assert_eq!(commits, ["database commit", "queue commit"]);
}

#[tokio::test]
async fn what_is_out_of_reach_after_the_decision_is_committed_by_recovery() {
    let bank = bank();
    let (one, two) = (Monkey::new("one"), Monkey::new("two").answering("commit", XaCode::ManagerDown));
    let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
    let xid = transaction.xid("two").unwrap();
    enlist(&mut transaction, &[&one, &two]).await;
    let committed = transaction.commit().await.unwrap();
    assert_eq!(committed.pending, [two.name().clone()]);
    assert_eq!(bank.remembered(), 1);

    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(one.clone()), Arc::new(two.clone())];
    let mut recovery = Recovery::new(&bank.coordinator, managers, Pace::default());
    let still = recovery.run().await;
    assert_eq!((still.found[0].fate, still.is_clean()), (Fate::Postponed, false));
    two.answer("commit", XaCode::Ok);
    let report = recovery.run().await;
    assert_eq!((&report.found[0].xid, report.found[0].fate), (&xid, Fate::Committed));
    assert!(report.is_clean());
    assert_eq!((bank.remembered(), recovery.run().await.found.len()), (0, 0));
}

#[tokio::test]
async fn what_may_be_prepared_and_is_out_of_reach_is_rolled_back_while_the_program_lives() {
    let bank = bank();
    let (one, two) = (Monkey::new("one"), Monkey::new("two").answering("prepare", XaCode::ManagerDown));
    two.answer("rollback", XaCode::ManagerDown);
    let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
    enlist(&mut transaction, &[&one, &two]).await;
    let failed = transaction.commit().await.unwrap_err();
    assert_eq!((failed.outcome, failed.pending), (Outcome::RolledBack, vec![two.name().clone()]));
    two.answer("rollback", XaCode::Ok);
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(two.clone())];
    let report = Recovery::new(&bank.coordinator, managers, Pace::default()).run().await;
    assert_eq!(report.found[0].fate, Fate::RolledBack);
}

#[tokio::test]
async fn recovery_leaves_the_undecided_and_the_foreign_alone_and_says_who_is_down() {
    let (ours, theirs) = (bank(), bank());
    let shared_database = Monkey::new("database");
    let undecided = ours.coordinator.begin(Begin::default()).unwrap();
    let foreign = theirs.coordinator.begin(Begin::default()).unwrap();
    for transaction in [&undecided, &foreign] {
        shared_database.hold(&transaction.xid("database").unwrap());
    }
    let down = Monkey::new("down");
    down.answer("in doubt", XaCode::ManagerDown);
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(shared_database.clone()), Arc::new(down)];
    let mut recovery = Recovery::new(&ours.coordinator, managers, Pace::default());
    let report = recovery.run().await;
    assert_eq!(report.found.len(), 1);
    assert_eq!((report.found[0].xid.transaction, report.found[0].fate), (undecided.id(), Fate::Left));
    assert_eq!(report.down[0].reason, "as it was told");
    assert_eq!(shared_database.held(), 2);
}

#[tokio::test]
async fn recovery_commits_in_order_and_what_is_out_of_reach_holds_up_nobody() {
    let bank = bank();
    let log = Monkey::log();
    let (queue, database) = (Monkey::logging("queue", &log).in_order(2), Monkey::logging("database", &log).in_order(1));
    let decide = |branches: &[&Monkey]| {
        let transaction = bank.coordinator.begin(Begin::default()).unwrap();
        let names: Vec<BranchName> = branches.iter().map(|monkey| monkey.name().clone()).collect();
        bank.embedded.commit(transaction.id(), &names, None).unwrap();
        transaction
    };
    let xid = |transaction: &Transaction, monkey: &Monkey| transaction.xid(monkey.name().as_str()).unwrap();
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(queue.clone()), Arc::new(database.clone())];
    let mut recovery = Recovery::new(&bank.coordinator, managers, Pace::default());

    let first = decide(&[&queue, &database]);
    queue.hold(&xid(&first, &queue));
    database.hold(&xid(&first, &database));
    assert!(recovery.run().await.is_clean());
    assert_eq!(*log.lock().unwrap(), ["database commit", "queue commit"]);

    // It is prepared in the database just after that was asked.
    log.lock().unwrap().clear();
    let second = decide(&[&queue, &database]);
    queue.hold(&xid(&second, &queue));
    database.hold_late(&xid(&second, &database));
    let report = recovery.run().await;
    assert_eq!((report.found.len(), report.found[0].fate), (1, Fate::Postponed));
    assert_eq!(report.found[0].reason, "database commits first");
    assert!(recovery.run().await.is_clean());
    assert_eq!(*log.lock().unwrap(), ["database commit", "queue commit"]);

    // The database cannot commit it now, or cannot be asked at all.
    for (call, found) in [("commit", 2), ("in doubt", 1)] {
        log.lock().unwrap().clear();
        let third = decide(&[&queue, &database]);
        queue.hold(&xid(&third, &queue));
        database.hold(&xid(&third, &database));
        database.answer(call, XaCode::ManagerDown);
        let report = recovery.run().await;
        assert_eq!((report.found.len(), report.is_clean()), (found, false), "{report:?}");
        assert_eq!((queue.held(), database.held()), (0, 1));
        assert_eq!(log.lock().unwrap().last().unwrap(), "queue commit");
        database.answer(call, XaCode::Ok);
        assert!(recovery.run().await.is_clean());
    }
    assert_eq!((database.held(), bank.remembered()), (0, 0));
}

#[tokio::test]
async fn a_resource_manager_that_hangs_keeps_nobody_else_in_doubt() {
    let bank = bank();
    let (hanging, other) = (Monkey::new("hanging"), Monkey::new("other"));
    let transaction = bank.coordinator.begin(Begin::default()).unwrap();
    let names = [hanging.name().clone(), other.name().clone()];
    bank.embedded.commit(transaction.id(), &names, None).unwrap();
    hanging.hold(&transaction.xid("hanging").unwrap());
    other.hold(&transaction.xid("other").unwrap());
    hanging.hang(true);
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(hanging.clone()), Arc::new(other.clone())];
    let recovery = Recovery::new(&bank.coordinator, managers, Pace::default());
    let mut recovery = recovery.with_patience(Duration::from_millis(50));
    let report = recovery.run().await;
    assert_eq!(report.down[0].reason, "no answer within 50 ms");
    assert_eq!((hanging.held(), other.held()), (1, 0));
    hanging.hang(false);
    assert!(recovery.run().await.is_clean());
    assert_eq!((hanging.held(), bank.remembered()), (0, 0));
}

/// The profile's timeout and order were dropped, and nobody noticed, because nobody opened a coordinator so.
#[tokio::test]
async fn a_coordinator_of_a_profile_has_its_timeout_its_order_and_its_wait() {
    let folder = tempfile::tempdir().unwrap();
    let manager = |name: &str, order: u32| {
        format!("[[profiles.bank.resource_managers]]\nname = \"{name}\"\nkind = \"mariadb\"\norder = {order}\n")
    };
    let text = format!(
        "[profiles.bank]\ntimeout_ms = 60000\n[profiles.bank.coordinator]\ndirectory = \"{}\"\nshared_wait_ms = 1\n{}{}",
        folder.path().display(),
        manager("queue", 2),
        manager("database", 1)
    );
    let profile = holdfast_tm::Profile::of_text(&text, None, &|_| None).unwrap();
    let coordinator = holdfast_tm::open_coordinator(&profile).await.unwrap();
    let log = Monkey::log();
    let [queue, database, other] = ["queue", "database", "other"].map(|name| Monkey::logging(name, &log));
    let mut transaction = coordinator.begin(Begin::default()).unwrap();
    assert_ne!(transaction.id().deadline_ms, 0, "the profile's timeout");
    enlist(&mut transaction, &[&queue, &database, &other]).await;
    transaction.commit().await.unwrap();
    let commits: Vec<String> = log.lock().unwrap().iter().filter(|line| line.contains("commit")).cloned().collect();
    assert_eq!(commits, ["other commit", "database commit", "queue commit"]);
    // What the program says wins.
    let own = coordinator.begin(Begin { timeout: Some(Duration::from_secs(3600)), ..Begin::default() }).unwrap();
    assert!(own.id().deadline_ms > transaction_deadline(&coordinator) + 1_000_000);
    log.lock().unwrap().clear();
    let mut transaction = coordinator.begin(Begin::default()).unwrap();
    for (order, monkey) in [(1, &queue), (3, &database)] {
        let xid = transaction.xid(monkey.name().as_str()).unwrap();
        transaction.enlist_in_order(monkey.name(), order, monkey.branch(&xid)).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let commits: Vec<String> = log.lock().unwrap().iter().filter(|line| line.contains("commit")).cloned().collect();
    assert_eq!(commits, ["queue commit", "database commit"]);
    // Another program never votes; with the usual wait this took half a minute.
    let shared = coordinator.begin(Begin { sharing: Sharing::Shared, ..Begin::default() }).unwrap();
    let mut joined = coordinator.join(&shared.id().to_string()).unwrap();
    enlist(&mut joined, &[&other]).await;
    let began = std::time::Instant::now();
    assert_eq!(shared.commit().await.unwrap_err().outcome, Outcome::RolledBack);
    assert!(began.elapsed() < Duration::from_secs(15));
    drop(joined);
}

/// The deadline of a transaction that begins now.
fn transaction_deadline(coordinator: &Coordinator) -> u64 {
    coordinator.begin(Begin::default()).unwrap().id().deadline_ms
}

/// Nothing was said before all had answered.
#[tokio::test]
async fn what_one_answers_is_told_while_another_is_still_awaited() {
    let bank = bank();
    let (quick, slow) = (Monkey::new("quick"), Monkey::new("slow"));
    let id = bank.embedded.begin(Begin::default()).unwrap();
    bank.embedded.abort(id).unwrap();
    quick.hold(&holdfast_tm::Xid { transaction: id, branch: quick.name().clone() });
    slow.hang(true);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(slow), Arc::new(quick)];
    let recovery = Recovery::new(&bank.coordinator, managers, Pace::default());
    let patience = Duration::from_millis(20);
    let mut recovery = recovery.with_patience(patience).telling(move |progress| {
        let line = match progress {
            Progress::Answered { manager, prepared } => format!("{manager}: {prepared}"),
            Progress::Down(down) => format!("{}: {}", down.manager.as_ref().unwrap(), down.reason),
            Progress::Found(found) => format!("{}: {}", found.manager, found.fate),
            Progress::Unreadable(unreadable) => unreadable.name.clone(),
        };
        heard.lock().unwrap().push(line);
    });
    let report = recovery.run().await;
    assert_eq!(*told.lock().unwrap(), ["quick: 1", "slow: no answer within 20 ms", "quick: rolled back"]);
    assert_eq!((report.answered.len(), report.down.len(), report.found.len()), (1, 1, 1));
}

#[tokio::test]
async fn recovery_that_is_told_to_end_ends_after_its_round() {
    let bank = bank();
    let database = Monkey::new("database");
    let transaction = bank.coordinator.begin(Begin::default()).unwrap();
    bank.embedded.commit(transaction.id(), &[database.name().clone()], None).unwrap();
    database.hold(&transaction.xid("database").unwrap());
    let recovery = Recovery::new(&bank.coordinator, vec![Arc::new(database.clone())], Pace::default());
    let mut rounds = 0;
    // It is told so before it begins.
    recovery.keep_running_until(std::future::ready(()), |report| rounds += report.answered.len()).await;
    assert_eq!((rounds, database.held(), bank.remembered()), (1, 0, 0));
}

#[tokio::test]
async fn after_a_restart_the_undecided_are_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let database = Monkey::new("database");
    let open = async || Coordinator::open(folder.path(), Options::default()).await.unwrap();
    let first = open().await;
    let lost = first.begin(Begin::default()).unwrap();
    database.hold(&lost.xid("database").unwrap());
    drop((lost, first));
    let second = open().await;
    // Earlier programs end when this one becomes an owner.
    second.begin(Begin::default()).unwrap();
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(database.clone())];
    let report = Recovery::new(&second, managers, Pace::default()).run().await;
    assert_eq!(report.found[0].fate, Fate::RolledBack);
    assert_eq!(database.held(), 0);
}

#[tokio::test]
async fn two_programs_commit_together_and_the_failure_of_one_rolls_both_back() {
    let bank = bank();
    let patience = Duration::from_secs(20);
    for vote in [XaCode::Ok, XaCode::ReadOnly, XaCode::RolledBack] {
        let (ours, theirs) = (Monkey::new("ours"), Monkey::new("theirs").answering("prepare", vote));
        let mut superior = bank.coordinator.begin(Begin { timeout: None, sharing: Sharing::Shared }).unwrap();
        enlist(&mut superior, &[&ours]).await;
        let mut joined = bank.coordinator.join(&superior.id().to_string()).unwrap();
        enlist(&mut joined, &[&theirs]).await;
        let (above, below) = tokio::join!(superior.commit(), joined.prepare(patience));
        let is_committed = vote != XaCode::RolledBack;
        assert_eq!((above.is_ok(), below.is_ok()), (is_committed, is_committed), "{above:?} {below:?}");
        assert_eq!(ours.calls()[1], if is_committed { "commit" } else { "rollback" });
        assert_eq!(theirs.calls().len(), if vote == XaCode::Ok { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_transaction_that_is_dropped_rolls_back() {
    let bank = bank();
    let one = Monkey::new("one");
    let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
    enlist(&mut transaction, &[&one]).await;
    drop(transaction);
    one.until_called("rollback").await;
}

#[tokio::test]
async fn a_program_that_drops_its_part_fails_the_whole() {
    let bank = bank();
    let begin = || bank.coordinator.begin(Begin { timeout: None, sharing: Sharing::Shared }).unwrap();
    for is_superior_dropped in [false, true] {
        let (ours, theirs) = (Monkey::new("ours"), Monkey::new("theirs"));
        let mut superior = begin();
        enlist(&mut superior, &[&ours]).await;
        let mut joined = bank.coordinator.join(&superior.id().to_string()).unwrap();
        enlist(&mut joined, &[&theirs]).await;
        let failed = if is_superior_dropped {
            drop(superior);
            joined.prepare(Duration::from_secs(20)).await.unwrap_err()
        } else {
            drop(joined);
            superior.commit().await.unwrap_err()
        };
        assert_eq!(failed.outcome, Outcome::RolledBack, "{failed}");
        ours.until_called("rollback").await;
        theirs.until_called("rollback").await;
    }
}

#[tokio::test]
async fn several_programs_may_recover_at_once() {
    let bank = bank();
    let (one, two) = (Monkey::new("one"), Monkey::new("two").answering("commit", XaCode::ManagerDown));
    for _ in 0..20 {
        let mut transaction = bank.coordinator.begin(Begin::default()).unwrap();
        enlist(&mut transaction, &[&one, &two]).await;
        transaction.commit().await.unwrap();
    }
    two.answer("commit", XaCode::Ok);
    let recover = async || {
        let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(two.clone())];
        Recovery::new(&bank.coordinator, managers, Pace::default()).run().await
    };
    let (first, second, third) = tokio::join!(recover(), recover(), recover());
    for report in [first, second, third] {
        assert!(report.found.iter().all(|found| found.fate == Fate::Committed), "{report:?}");
    }
    assert_eq!((two.held(), bank.remembered()), (0, 0));
}

/// A coordinator whose answer to commit is lost, and which then refuses to say anything useful, or does.
struct Mumbling {
    embedded: Embedded,
    commits: bool,
    verdict: Verdict,
}

impl Decisions for Mumbling {
    fn coordinator(&self) -> CoordinatorId {
        self.embedded.coordinator()
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId, Error> {
        self.embedded.begin(begin)
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], how: Option<Durability>) -> Result<(), Error> {
        if self.commits {
            self.embedded.commit(id, branches, how)?;
        }
        Err(Error { kind: ErrorKind::Unknown, text: "lost".to_owned() })
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        self.embedded.done(id, done);
    }

    fn abort(&self, _: TransactionId) -> Result<(), Error> {
        Err(Error { kind: ErrorKind::Invalid, text: "no permission".to_owned() })
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<(), Error> {
        self.embedded.record_deeds(id, deeds)
    }

    fn verdicts(&self, _: &[TransactionId]) -> Result<Vec<Verdict>, Error> {
        Ok(vec![self.verdict])
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.embedded.enlist(id, branches)
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.embedded.suspend(id, branches)
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<(), Error> {
        self.embedded.resume(id, number)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<(), Error> {
        self.embedded.prepared(id, branch, part)
    }
}

#[tokio::test]
async fn nothing_is_committed_because_an_abort_was_refused() {
    for (commits, verdict, outcome) in [
        (true, Verdict::Commit, Outcome::Committed),
        (false, Verdict::Rollback, Outcome::RolledBack),
        (false, Verdict::Leave, Outcome::Unknown),
        (true, Verdict::Leave, Outcome::Unknown),
    ] {
        let bank = bank();
        let embedded = bank.embedded.clone();
        let coordinator = Coordinator::over(Arc::new(Mumbling { embedded, commits, verdict }));
        let (one, two) = (Monkey::new("one"), Monkey::new("two"));
        let mut transaction = coordinator.begin(Begin::default()).unwrap();
        enlist(&mut transaction, &[&one, &two]).await;
        let ended = transaction.commit().await;
        assert_eq!(ended.map_or_else(|failed| failed.outcome, |_| Outcome::Committed), outcome);
        let calls: &[&str] = match outcome {
            Outcome::Committed => &["prepare", "commit"],
            Outcome::RolledBack => &["prepare", "rollback"],
            _ => &["prepare"],
        };
        assert_eq!(one.calls(), calls);
    }
}

/// A coordinator that takes a vote, and lets all be decided by it; but the voter hears of an error, because the answer was
/// lost and the vote repeated.
struct Stuttering {
    embedded: Embedded,
    commits: bool,
    says: ErrorKind,
}

impl Decisions for Stuttering {
    fn coordinator(&self) -> CoordinatorId {
        self.embedded.coordinator()
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId, Error> {
        self.embedded.begin(begin)
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], how: Option<Durability>) -> Result<(), Error> {
        self.embedded.commit(id, branches, how)
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        self.embedded.done(id, done);
    }

    fn abort(&self, id: TransactionId) -> Result<(), Error> {
        self.embedded.abort(id)
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<(), Error> {
        self.embedded.record_deeds(id, deeds)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>, Error> {
        self.embedded.verdicts(ids)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.embedded.enlist(id, branches)
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.embedded.suspend(id, branches)
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<(), Error> {
        self.embedded.resume(id, number)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<(), Error> {
        if self.commits {
            self.embedded.prepared(id, branch, part)?;
            self.embedded.commit(id, &[], None)?;
        }
        Err(Error { kind: self.says, text: "not this time".to_owned() })
    }
}

/// A server took a vote, its answer was lost, the other program's commit decided, and the vote that was sent again was
/// refused as too late: the branch was rolled back, and the transaction torn.
#[tokio::test]
async fn a_vote_that_may_have_been_taken_is_rolled_back_only_when_that_is_decided() {
    for (commits, says) in [
        (true, ErrorKind::Invalid),
        (true, ErrorKind::Unavailable),
        (true, ErrorKind::Unknown),
        (false, ErrorKind::Invalid),
        (false, ErrorKind::Unavailable),
        (false, ErrorKind::Aborted),
    ] {
        let bank = bank();
        let embedded = bank.embedded.clone();
        let coordinator = Coordinator::over(Arc::new(Stuttering { embedded, commits, says }));
        let superior = bank.coordinator.begin(Begin { timeout: None, sharing: Sharing::Shared }).unwrap();
        let theirs = Monkey::new("theirs");
        let mut joined = coordinator.join(&superior.id().to_string()).unwrap();
        enlist(&mut joined, &[&theirs]).await;
        let ended = joined.prepare(Duration::from_secs(20)).await;
        let outcome = ended.map_or_else(|failed| failed.outcome, |_| Outcome::Committed);
        let (expected, last) = if commits { (Outcome::Committed, "commit") } else { (Outcome::RolledBack, "rollback") };
        assert_eq!((outcome, theirs.calls()), (expected, vec!["prepare", last]), "{says:?}");
        assert_eq!(bank.embedded.abort(superior.id()).is_ok(), !commits);
    }
}

#[tokio::test]
async fn ids_that_make_no_sense_are_refused() {
    let bank = bank();
    let other = self::bank();
    let alone = bank.coordinator.begin(Begin::default()).unwrap().id().to_string();
    let foreign = other.coordinator.begin(Begin { timeout: None, sharing: Sharing::Shared }).unwrap().id().to_string();
    for (id, why) in [("nonsense", "begins with"), (&alone, "not begun as a shared"), (&foreign, "another coordinator")]
    {
        let error = bank.coordinator.join(id).err().unwrap();
        assert!(error.text.contains(why), "{error}");
    }
}
