//! Changes of the coordinator's own store that cannot be made: nothing happened, and that is what is said.

use std::time::Duration;

use holdfast::{Durability, Limits, Options, PutOptions, Store};
use holdfast_tm::{Begin, Coordinator, Embedded, ErrorKind, Outcome, OwnDecision, commit_with_decision};

use crate::enlist;
use crate::monkey::Monkey;

/// It was told as unknown, and a branch that was prepared by then as perhaps committed.
#[tokio::test]
async fn changes_that_are_too_many_roll_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::tiny();
    let many = limits.batch_changes_max + 1;
    let store = Store::open(folder.path(), Options { limits, ..Options::default() }).unwrap();
    let coordinator = Coordinator::embedded(Embedded::over(store.clone()));
    for monkeys in [&[][..], &[&Monkey::new("one")]] {
        let mut transaction = coordinator.begin(Begin::default()).unwrap();
        enlist(&mut transaction, monkeys).await;
        let own = transaction.kv().unwrap();
        for number in 0..many {
            own.put(b"b", number.to_string().as_bytes(), b"", &PutOptions::default()).unwrap();
        }
        let failed = transaction.commit().await.unwrap_err();
        assert_eq!(failed.outcome, Outcome::RolledBack, "{failed}");
        assert!(failed.to_string().contains("a batch holds at most"), "{failed}");
        assert!(monkeys.iter().all(|monkey| monkey.calls() == ["prepare", "rollback"]));
        assert!(store.kv().get(b"b", b"0").unwrap().is_none());
    }
}

#[test]
fn changes_whose_lease_has_ended_are_not_committed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let mut changes = store.begin();
    changes.put(b"b", b"k", b"", &PutOptions::default()).unwrap();
    let changes = changes.with_lease(Duration::ZERO);
    while changes.check().is_ok() {
        std::thread::yield_now();
    }
    let id = store.xa().begin(&Begin::default()).unwrap();
    let decision = OwnDecision { id, prepared: &[], durability: Durability::Synced };
    let failed = commit_with_decision(&store, changes, decision).unwrap_err();
    assert_eq!(failed.kind, ErrorKind::Aborted, "{failed}");
    assert!(store.kv().get(b"b", b"k").unwrap().is_none());
}

/// What is refused before it is written was told as unknown: with a full disk, on which no abort could be written either, branches
/// stayed prepared.
#[tokio::test]
async fn changes_for_which_there_is_no_room_roll_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.series.free_bytes_min = u64::MAX;
    let store = Store::open(folder.path(), options).unwrap();
    let coordinator = Coordinator::embedded(Embedded::over(store.clone()));
    for monkeys in [&[][..], &[&Monkey::new("one")]] {
        let mut transaction = coordinator.begin(Begin::default()).unwrap();
        enlist(&mut transaction, monkeys).await;
        let own = transaction.kv().unwrap();
        own.put(b"b", b"k", b"", &PutOptions::default()).unwrap();
        let rows = own.points();
        let row = rows.row(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
        let slot = rows.field(row, 0, b"value", |_| Ok("value".to_owned())).unwrap();
        rows.push_float(slot, 1, 1.0);
        let failed = transaction.commit().await.unwrap_err();
        assert_eq!(failed.outcome, Outcome::RolledBack, "{failed}");
        assert!(monkeys.iter().all(|monkey| monkey.calls() == ["prepare", "rollback"]));
        assert!(store.kv().get(b"b", b"k").unwrap().is_none());
    }
}
