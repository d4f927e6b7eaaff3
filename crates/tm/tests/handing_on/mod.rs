//! Transactions that go from one program to the next.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use holdfast::Durability;
use holdfast_tm::{
    Administration, Begin, BranchName, Coordinator, CoordinatorId, Decisions, Deed, Embedded, Error, ErrorKind, Fate,
    Learned, Outcome, Pace, Recovery, ResourceManager, Sharing, State, Transaction, TransactionId, Verdict, Vote,
    XaCode,
};

use super::{Bank, bank, enlist};
use crate::monkey::Monkey;

const PATIENCE: Duration = Duration::from_secs(20);

fn begin(bank: &Bank) -> Transaction {
    bank.coordinator.begin(Begin { timeout: Some(Duration::from_secs(600)), sharing: Sharing::Shared }).unwrap()
}

#[tokio::test]
async fn the_last_program_decides_for_all_that_had_it_before() {
    let bank = bank();
    let monkeys = ["one", "two", "three"].map(Monkey::new);
    let mut transaction = begin(&bank);
    enlist(&mut transaction, &[&monkeys[0]]).await;
    let mut first = transaction.suspend().await.unwrap();
    assert_eq!(monkeys[0].calls(), ["prepare"]);
    let mut transaction = bank.coordinator.resume(&first.id().to_string()).await.unwrap();
    enlist(&mut transaction, &[&monkeys[1]]).await;
    let mut second = transaction.suspend().await.unwrap();
    // Nothing is decided so far, and it may be asked again.
    assert_eq!(first.finish(Duration::ZERO).await, Ok(None));
    let mut transaction = bank.coordinator.resume(&first.id().to_string()).await.unwrap();
    enlist(&mut transaction, &[&monkeys[2]]).await;
    transaction.commit().await.unwrap();
    for suspended in [&mut first, &mut second] {
        assert!(suspended.finish(PATIENCE).await.unwrap().unwrap().pending.is_empty());
    }
    for monkey in &monkeys {
        assert_eq!(monkey.calls(), ["prepare", "commit"]);
    }
    assert_eq!(bank.remembered(), 0);
}

#[tokio::test]
async fn a_transaction_is_resumed_by_one_program_and_not_before_it_is_suspended() {
    let bank = bank();
    let resume = async |id: String| bank.coordinator.resume(&id).await.map(drop).unwrap_err();
    let one = Monkey::new("one");
    let mut transaction = begin(&bank);
    let id = transaction.id().to_string();
    enlist(&mut transaction, &[&one]).await;
    let early = resume(id.clone()).await;
    assert!(early.kind == ErrorKind::Invalid && early.text.contains("is not suspended"), "{early}");
    let mut suspended = transaction.suspend().await.unwrap();
    let resumed = bank.coordinator.resume(&id).await.unwrap();
    let late = resume(id.clone()).await;
    assert!(late.kind == ErrorKind::Invalid && late.text.contains("another program has resumed"), "{late}");
    // Who resumed and lets go of it rolls it back.
    drop(resumed);
    let failed = suspended.finish(PATIENCE).await.unwrap_err();
    assert_eq!((failed.outcome, one.calls()), (Outcome::RolledBack, vec!["prepare", "rollback"]));
    assert_eq!(resume(id).await.kind, ErrorKind::Aborted);
    for text in ["nonsense", &bank.coordinator.begin(Begin::default()).unwrap().id().to_string()] {
        assert_eq!(resume(text.to_owned()).await.kind, ErrorKind::Invalid, "{text}");
    }
}

#[tokio::test]
async fn what_cannot_be_suspended_is_rolled_back() {
    let bank = bank();
    let (one, two) = (Monkey::new("one"), Monkey::new("two").answering("prepare", XaCode::RolledBackDeadlock));
    let mut transaction = begin(&bank);
    enlist(&mut transaction, &[&one, &two]).await;
    let id = transaction.id().to_string();
    let failed = transaction.suspend().await.map(drop).unwrap_err();
    assert_eq!(failed.to_string(), "rolled back: two: XA_RBDEADLOCK as it was told");
    assert_eq!(one.calls(), ["prepare", "rollback"]);
    let mut late = bank.coordinator.resume(&id).await.unwrap();
    let three = Monkey::new("three");
    enlist(&mut late, &[&three]).await;
    assert_eq!(late.commit().await.unwrap_err().outcome, Outcome::RolledBack);
    assert_eq!(three.calls(), ["prepare", "rollback"]);

    let one = Monkey::new("one");
    let mut alone = bank.coordinator.begin(Begin::default()).unwrap();
    enlist(&mut alone, &[&one]).await;
    let failed = alone.suspend().await.map(drop).unwrap_err();
    assert!(failed.to_string().contains("only the program that decides about a shared transaction"), "{failed}");
    assert_eq!(one.calls(), ["rollback"]);
    let superior = begin(&bank);
    let mut joined = bank.coordinator.join(&superior.id().to_string()).unwrap();
    enlist(&mut joined, &[&one]).await;
    assert_eq!(joined.suspend().await.map(drop).unwrap_err().outcome, Outcome::RolledBack);
}

#[tokio::test]
async fn what_a_program_suspended_and_left_is_carried_out_by_recovery() {
    let bank = bank();
    for commits in [true, false] {
        let (one, two) = (Monkey::new("one"), Monkey::new("two"));
        let mut transaction = begin(&bank);
        enlist(&mut transaction, &[&one]).await;
        let mut suspended = transaction.suspend().await.unwrap();
        let id = suspended.id().to_string();
        // Also when it had begun to wait.
        assert_eq!(suspended.finish(Duration::ZERO).await, Ok(None));
        drop(suspended);
        let mut transaction = bank.coordinator.resume(&id).await.unwrap();
        enlist(&mut transaction, &[&two]).await;
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!((one.calls(), one.held()), (vec!["prepare"], 1));
        let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(one.clone())];
        let report = Recovery::new(&bank.coordinator, managers, Pace::default()).run().await;
        let expected = if commits { Fate::Committed } else { Fate::RolledBack };
        assert_eq!((report.found[0].fate, one.held()), (expected, 0));
    }
}

#[tokio::test]
async fn a_part_that_changed_nothing_is_over_when_it_is_suspended() {
    let bank = bank();
    let one = Monkey::new("one").answering("prepare", XaCode::ReadOnly);
    let mut transaction = begin(&bank);
    enlist(&mut transaction, &[&one]).await;
    let mut suspended = transaction.suspend().await.unwrap();
    assert_eq!(suspended.finish(PATIENCE).await.unwrap().unwrap().pending, Vec::<BranchName>::new());
    bank.coordinator.resume(&suspended.id().to_string()).await.unwrap().commit().await.unwrap();
    assert_eq!(one.calls(), ["prepare"]);
}

/// Its branches were left prepared, and nobody else knew their transaction.
#[tokio::test]
async fn a_suspension_that_is_given_up_is_one_or_a_rollback() {
    let bank = bank();
    let mut rolled_back = 0;
    for polls in 0..40 {
        let one = Monkey::new("one");
        let mut transaction = begin(&bank);
        let id = transaction.id();
        enlist(&mut transaction, &[&one]).await;
        let mut suspending = Box::pin(transaction.suspend());
        let mut is_done = false;
        for _ in 0..polls {
            is_done = is_done || suspending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            tokio::task::yield_now().await;
        }
        drop(suspending);
        let voted = || {
            let status = bank.embedded.status(id).unwrap();
            status.state == State::Suspended && status.branches.iter().all(|branch| branch.state == "prepared")
        };
        while !one.calls().contains(&"rollback") && !voted() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if one.calls().contains(&"rollback") {
            rolled_back += 1;
            assert!(!is_done);
            continue;
        }
        // It may be on its way to give up still.
        let committed = bank.coordinator.resume(&id.to_string()).await.unwrap().commit().await;
        let verdict = if committed.is_ok() { Verdict::Commit } else { Verdict::Rollback };
        assert_eq!(bank.embedded.verdicts(&[id]).unwrap(), [verdict]);
        if committed.is_err() {
            one.until_called("rollback").await;
            assert!(!is_done);
        }
    }
    assert!(rolled_back > 0);
}

/// A coordinator whose answers are lost: to a vote, while another program commits, or to so many requests to resume.
struct Lossy {
    embedded: Embedded,
    is_overtaken: bool,
    resumptions: AtomicU32,
}

impl Lossy {
    fn overtaken(embedded: Embedded) -> Self {
        Self { embedded, is_overtaken: true, resumptions: AtomicU32::new(0) }
    }

    fn resuming(embedded: Embedded, lost: u32) -> Self {
        Self { embedded, is_overtaken: false, resumptions: AtomicU32::new(lost) }
    }
}

impl Decisions for Lossy {
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
        self.embedded.resume(id, number)?;
        let lost = self.resumptions.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let text = "the connection broke".to_owned();
        if lost.is_ok() { Err(Error { kind: ErrorKind::Unavailable, text }) } else { Ok(()) }
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<(), Error> {
        self.embedded.prepared(id, branch, part)?;
        if !self.is_overtaken {
            return Ok(());
        }
        self.embedded.resume(id, holdfast_tm::next_resumer())?;
        self.embedded.commit(id, &[BranchName::new("elsewhere").unwrap()], None)?;
        Err(Error { kind: ErrorKind::Invalid, text: "lost".to_owned() })
    }
}

#[tokio::test]
async fn a_program_that_is_overtaken_while_it_suspends_has_committed() {
    let bank = bank();
    let coordinator = Coordinator::over(Arc::new(Lossy::overtaken(bank.embedded.clone())));
    let one = Monkey::new("one");
    let timeout = Some(Duration::from_secs(600));
    let mut transaction = coordinator.begin(Begin { timeout, sharing: Sharing::Shared }).unwrap();
    enlist(&mut transaction, &[&one]).await;
    let mut suspended = transaction.suspend().await.unwrap();
    assert!(suspended.finish(PATIENCE).await.unwrap().is_some());
    assert_eq!(one.calls(), ["prepare", "commit"]);
}

/// Nobody held it then, and its branches kept their locks until the deadline.
#[tokio::test]
async fn a_program_that_did_not_hear_that_it_has_resumed_asks_again() {
    let bank = bank();
    let coordinator = Coordinator::over(Arc::new(Lossy::resuming(bank.embedded.clone(), 2)));
    let (one, two) = (Monkey::new("one"), Monkey::new("two"));
    let mut transaction = begin(&bank);
    enlist(&mut transaction, &[&one]).await;
    let mut suspended = transaction.suspend().await.unwrap();
    let id = suspended.id().to_string();
    for _ in 0..2 {
        assert_eq!(coordinator.resume(&id).await.map(drop).unwrap_err().kind, ErrorKind::Unavailable);
    }
    // It is not another program's for that.
    let other = bank.coordinator.resume(&id).await.map(drop).unwrap_err();
    assert!(other.text.contains("another program has resumed"), "{other}");
    let mut transaction = coordinator.clone().resume(&id).await.unwrap();
    // What was answered is another request the next time.
    assert_eq!(coordinator.resume(&id).await.map(drop).unwrap_err().kind, ErrorKind::Invalid);
    enlist(&mut transaction, &[&two]).await;
    transaction.commit().await.unwrap();
    suspended.finish(PATIENCE).await.unwrap().unwrap();
    assert_eq!((one.calls(), two.calls()), (vec!["prepare", "commit"], vec!["prepare", "commit"]));
}

#[tokio::test]
async fn a_program_that_gave_up_resuming_asks_again() {
    let bank = bank();
    for polls in 0..20 {
        let one = Monkey::new("one");
        let mut transaction = begin(&bank);
        enlist(&mut transaction, &[&one]).await;
        let id = transaction.suspend().await.unwrap().id();
        let text = id.to_string();
        let mut resuming = Box::pin(bank.coordinator.resume(&text));
        let is_done = (0..polls).any(|_| resuming.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        drop(resuming);
        if is_done {
            continue;
        }
        // What was on its way may come before this, or behind it.
        let transaction = bank.coordinator.resume(&text).await.unwrap();
        assert_eq!(bank.embedded.status(id).unwrap().state, State::Active);
        transaction.commit().await.unwrap();
    }
}

#[tokio::test]
async fn of_two_calls_that_resume_at_a_time_one_does() {
    let bank = bank();
    let mut transaction = begin(&bank);
    enlist(&mut transaction, &[&Monkey::new("one")]).await;
    let id = transaction.suspend().await.unwrap().id().to_string();
    let (first, second) = tokio::join!(bank.coordinator.resume(&id), bank.coordinator.resume(&id));
    assert_eq!(u32::from(first.is_ok()) + u32::from(second.is_ok()), 1);
}
