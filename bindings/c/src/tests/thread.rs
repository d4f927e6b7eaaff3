//! A thread of control: chained transactions, timeouts, dynamic registration, asynchronous calls, order of commits.

use std::sync::Arc;
use std::time::Instant;

use super::scene::{ASYNC, DYNAMIC, PATIENCE, STATIC, Scene};
use crate::abi::{
    TX_ACTIVE, TX_CHAINED, TX_COMMIT_COMPLETED, TX_COMMIT_DECISION_LOGGED, TX_EINVAL, TX_OK, TX_PROTOCOL_ERROR,
    TX_ROLLBACK, TX_TIMEOUT_ROLLBACK_ONLY, TX_UNCHAINED,
};
use crate::control::{Association, End, Thread};

#[test]
fn chained_transactions_follow_each_other_with_new_names() {
    let mut scene = Scene::new(&[(STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.set_control(TX_CHAINED), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    let (first, _) = scene.thread.info().unwrap();
    assert_eq!(scene.thread.end(End::Commit), TX_OK);
    let (second, active) = scene.thread.info().unwrap();
    assert!(active && first.xid != second.xid);
    assert_eq!(scene.thread.set_control(TX_UNCHAINED), TX_OK);
    assert_eq!(scene.thread.end(End::Rollback), TX_OK);
    let (third, active) = scene.thread.info().unwrap();
    assert!(!active && third.xid.format == -1);
    assert_eq!(scene.verbs(), "end commit end rollback");
}

#[test]
fn what_takes_too_long_can_only_be_rolled_back() {
    let mut scene = Scene::new(&[(STATIC, ""), (STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.set_timeout(-1), TX_EINVAL);
    assert_eq!(scene.thread.set_timeout(1), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.info().unwrap().0.transaction_state, TX_ACTIVE);
    // Its time is made to be over, rather than waited for.
    scene.thread.transaction.as_mut().unwrap().deadline = Some(Instant::now());
    assert_eq!(scene.thread.info().unwrap().0.transaction_state, TX_TIMEOUT_ROLLBACK_ONLY);
    assert_eq!(scene.thread.end(End::Commit), TX_ROLLBACK);
    assert_eq!(scene.verbs(), "end end rollback rollback");
    // A timeout is for transactions that begin later, not for the one that runs.
    assert_eq!(scene.thread.set_timeout(0), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.transaction.unwrap().deadline, None);
}

#[test]
fn settings_are_told_and_checked() {
    let mut scene = Scene::new(&[]);
    assert_eq!(scene.thread.set_commit_return(TX_COMMIT_COMPLETED), TX_PROTOCOL_ERROR);
    assert_eq!(scene.thread.set_control(7), TX_PROTOCOL_ERROR);
    assert!(scene.thread.info().is_none());
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.set_commit_return(7), TX_EINVAL);
    assert_eq!(scene.thread.set_control(7), TX_EINVAL);
    assert_eq!(scene.thread.set_timeout(30), TX_OK);
    assert_eq!(scene.thread.set_commit_return(TX_COMMIT_DECISION_LOGGED), TX_OK);
    let (info, _) = scene.thread.info().unwrap();
    assert_eq!((info.when_return, info.transaction_timeout), (TX_COMMIT_DECISION_LOGGED, 30));
    // Nothing of it outlives the opening.
    assert_eq!(scene.thread.close(), TX_OK);
    assert_eq!(scene.open(), TX_OK);
    let (info, _) = scene.thread.info().unwrap();
    assert_eq!((info.when_return, info.transaction_timeout), (TX_COMMIT_COMPLETED, 0));
}

#[test]
fn a_resource_manager_that_registers_itself_has_no_part_until_it_does() {
    let mut scene = Scene::new(&[(STATIC, ""), (DYNAMIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_OK);
    // One branch: in one phase.
    assert_eq!(scene.verbs(), "end commit");
}

#[test]
fn asynchronous_branches_prepare_and_commit_in_parallel() {
    let mut scene = Scene::new(&[(ASYNC, ""), (STATIC, ""), (ASYNC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_OK);
    let calls = scene.calls();
    let calls = &calls[calls.iter().position(|call| call.starts_with("prepare")).unwrap()..];
    let expected = [
        "prepare 0 80000000",
        "prepare 2 80000000",
        "prepare 1 0",
        "complete 0 0",
        "complete 2 0",
        "commit 0 80000000",
        "commit 2 80000000",
        "commit 1 0",
        "complete 0 0",
        "complete 2 0",
    ];
    assert_eq!(calls, expected);
}

#[test]
fn an_asynchronous_branch_that_refuses_rolls_all_back() {
    let mut scene = Scene::new(&[(ASYNC, "prepare XA_RBDEADLOCK"), (ASYNC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_ROLLBACK);
    assert_eq!(scene.verbs(), "end end prepare prepare rollback");
}

#[test]
fn a_commit_that_returns_early_is_completed_by_the_next_call() {
    let mut scene = Scene::new(&[(ASYNC, ""), (ASYNC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.set_commit_return(TX_COMMIT_DECISION_LOGGED), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_OK);
    let completed = |scene: &Scene| scene.calls().iter().filter(|call| call.starts_with("complete")).count();
    assert_eq!(completed(&scene), 2, "only the answers to prepare were waited for");
    assert!(scene.memory.done.lock().unwrap().is_empty());
    assert!(scene.thread.info().is_some());
    assert_eq!(completed(&scene), 4);
    assert_eq!(scene.memory.done.lock().unwrap().len(), 2);
}

/// Only the first group was asked before the call returned: the branches of the second kept their locks until the thread made
/// another call, which may be never.
#[test]
fn a_commit_that_returns_early_has_asked_all_groups_of_an_order() {
    let mut scene = Scene::new(&[(ASYNC, ""), (ASYNC, ""), (ASYNC, "")]);
    Arc::get_mut(&mut scene.manager).unwrap().resources[0].order = 2;
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.set_commit_return(TX_COMMIT_DECISION_LOGGED), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_OK);
    let calls = scene.calls();
    let calls = &calls[calls.iter().position(|call| call.starts_with("commit")).unwrap()..];
    let expected = ["commit 1 80000000", "commit 2 80000000", "complete 1 0", "complete 2 0", "commit 0 80000000"];
    assert_eq!(calls, expected);
}

/// A branch that registers itself stays suspended until it works again. The second time nobody asked it, and so nobody knew
/// any more that it does not leave its thread.
#[test]
fn a_branch_that_does_not_migrate_binds_its_transaction_however_often_that_is_suspended() {
    let mut scene = Scene::new(&[(DYNAMIC, "end XA_NOMIGRATE")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    scene.thread.associate(0, Association::Active);
    let id = scene.thread.suspend().unwrap();
    assert_eq!(scene.thread.resume(id), TX_OK);
    assert_eq!(scene.thread.suspend(), Ok(id));
    let manager = scene.manager.clone();
    let elsewhere = || {
        let mut thread = Thread::default();
        assert_eq!(thread.open(|| Ok(manager)), TX_OK);
        thread.resume(id)
    };
    assert_eq!(std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap()), TX_PROTOCOL_ERROR);
    assert_eq!(scene.thread.resume(id), TX_OK);
    assert_eq!(scene.thread.end(End::Rollback), TX_OK);
}

#[test]
fn lower_orders_commit_first() {
    let mut scene = Scene::new(&[(STATIC, ""), (STATIC, "")]);
    Arc::get_mut(&mut scene.manager).unwrap().resources[0].order = 2;
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_OK);
    let commits: Vec<String> = scene.calls().into_iter().filter(|call| call.starts_with("commit")).collect();
    assert_eq!(commits, ["commit 1 0", "commit 0 0"]);
}

#[test]
fn a_resource_manager_that_came_back_is_opened_anew() {
    let mut scene = Scene::new(&[(STATIC, "start XAER_RMFAIL")]);
    assert_eq!(scene.open(), TX_OK);
    scene.thread.begin();
    let verbs: Vec<String> = scene.calls().iter().map(|call| call.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(verbs, ["open", "recover", "recover", "start", "close", "open", "start"]);
}

#[test]
fn threads_do_not_know_each_other() {
    let scene = Scene::new(&[(STATIC, ""), (ASYNC, "")]);
    let manager = scene.manager.clone();
    let work = || {
        let mut thread = Thread::default();
        assert_eq!(thread.open(|| Ok(manager.clone())), TX_OK);
        for round in 0..50 {
            assert_eq!(thread.begin(), TX_OK);
            assert_eq!(thread.end(if round % 3 == 0 { End::Rollback } else { End::Commit }), TX_OK);
        }
        assert_eq!(thread.close(), TX_OK);
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(work);
        }
    });
    assert!(started.elapsed() < PATIENCE);
    assert_eq!((scene.prepared(0), scene.prepared(1)), (0, 0));
    assert!(scene.memory.decided.lock().unwrap().is_empty());
}
