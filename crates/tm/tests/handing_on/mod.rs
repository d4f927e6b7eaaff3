//! Transactions that go from one program to the next.

use std::sync::Arc;
use std::time::Duration;

use holdfast_tm::{
    Begin, BranchName, ErrorKind, Fate, Outcome, Pace, Recovery, ResourceManager, Sharing, Transaction, XaCode,
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
