//! What is found prepared is committed, rolled back or left, and never touched when it is not ours.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};
use std::sync::Arc;

use tm::{
    BranchName, CoordinatorId, Decisions, Deed, ErrorKind, Heuristic, Learned, OwnerId, TransactionId, XaCode, Xid,
};

use super::scene::{COORDINATOR, Memory, STATIC, Scene};
use crate::abi::{TMNOFLAGS, TX_COMMITTED, TX_HAZARD, TX_MIXED, TX_OK, TX_ROLLBACK, XA_OK, XAER_ASYNC, XidData};
use crate::control::End;
use crate::last_error;
use crate::manager::{Pass, Recovered, recover};
use crate::resource::{Collected, Resource, Verb};

fn prepare(scene: &Scene, coordinator: CoordinatorId, owner: u64, sequence: u64) -> TransactionId {
    let transaction = TransactionId {
        coordinator,
        owner: OwnerId(owner),
        sequence,
        deadline_ms: 0,
        shared: false,
        last_resource: None,
    };
    let resource = &scene.manager.resources[0];
    let name = XidData::of(&Xid { transaction, branch: resource.branch.clone() });
    assert_eq!(resource.call(Verb::Prepare, &name, TMNOFLAGS), XA_OK);
    transaction
}

#[test]
fn decided_branches_are_committed_orphans_rolled_back_and_others_left() {
    let mut scene = Scene::new(&[(STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    let decided = prepare(&scene, COORDINATOR, 9, 1);
    scene.memory.commit(decided, &[BranchName::new("monkey0").unwrap()], None).unwrap();
    prepare(&scene, COORDINATOR, 9, 2);
    prepare(&scene, COORDINATOR, 1, 3);
    prepare(&scene, CoordinatorId(8), 9, 4);
    let recovered = scene.thread.recover().unwrap();
    assert_eq!(recovered, Recovered { committed: 1, rolled_back: 1, left: 1, unreachable: 0 });
    assert_eq!(scene.verbs(), "prepare prepare prepare prepare commit rollback");
    // The live owner's and the other coordinator's are there still, and the decision is forgotten.
    assert_eq!(scene.prepared(0), 2);
    assert!(scene.memory.decided.lock().unwrap().is_empty());
}

#[test]
fn lower_orders_are_committed_first() {
    let mut scene = Scene::new(&[(STATIC, ""), (STATIC, "")]);
    Arc::get_mut(&mut scene.manager).unwrap().resources[0].order = 2;
    assert_eq!(scene.open(), TX_OK);
    let transaction = prepare(&scene, COORDINATOR, 9, 1);
    let other = &scene.manager.resources[1];
    let name = XidData::of(&Xid { transaction, branch: other.branch.clone() });
    assert_eq!(other.call(Verb::Prepare, &name, TMNOFLAGS), XA_OK);
    let branches = ["monkey0", "monkey1"].map(|name| BranchName::new(name).unwrap());
    scene.memory.commit(transaction, &branches, None).unwrap();
    assert_eq!(scene.thread.recover().unwrap().committed, 2);
    let commits: Vec<String> = scene.calls().into_iter().filter(|call| call.starts_with("commit")).collect();
    assert_eq!(commits, ["commit 1 0", "commit 0 0"]);
}

/// A resource manager with lists that the test made up.
struct Listing {
    branch: BranchName,
    order: u32,
    lists: RefCell<Vec<Vec<Xid>>>,
    commits: Cell<u64>,
}

impl Resource for Listing {
    fn branch(&self) -> &BranchName {
        &self.branch
    }

    fn order(&self) -> u32 {
        self.order
    }

    fn is_asynchronous(&self) -> bool {
        false
    }

    fn call(&self, verb: Verb, _: &XidData, _: c_long) -> c_int {
        assert_eq!(verb, Verb::Commit);
        self.commits.set(self.commits.get() + 1);
        XA_OK
    }

    fn complete(&self, _: c_int, _: Collected) -> c_int {
        XAER_ASYNC
    }

    fn prepared(&self) -> Result<Vec<Xid>, XaCode> {
        Ok(self.lists.borrow_mut().pop().unwrap_or_default())
    }
}

/// It was prepared at the first just after that one had been listed, and decided before the verdict was asked for: the second
/// was committed, and the first, which commits before it, came with the next round.
#[test]
fn what_was_prepared_since_it_was_listed_is_committed_first_by_its_program() {
    let id = TransactionId {
        coordinator: COORDINATOR,
        owner: OwnerId(9),
        sequence: 1,
        deadline_ms: 0,
        shared: false,
        last_resource: None,
    };
    let names = ["monkey0", "monkey1"].map(|name| BranchName::new(name).unwrap());
    let [first, second] = names.clone().map(|branch| vec![Xid { transaction: id, branch }]);
    let memory = Memory::default();
    memory.commit(id, &names, None).unwrap();
    // The last of them comes first.
    let lists = [vec![first.clone(), first, Vec::new()], vec![second.clone(), second]];
    let numbered = names.into_iter().zip(1..).zip(lists);
    let managers: Vec<Listing> = numbered
        .map(|((branch, order), lists)| Listing { branch, order, lists: RefCell::new(lists), commits: Cell::new(0) })
        .collect();
    let resources: Vec<&dyn Resource> = managers.iter().map(|manager| manager as &dyn Resource).collect();
    let commits = || managers.iter().map(|manager| manager.commits.get()).collect::<Vec<_>>();
    assert_eq!(recover(&memory, &resources, Pass::ALL), Recovered { left: 1, ..Recovered::default() });
    assert_eq!(commits(), [0, 0]);
    // The next round knows of both. Their program is gone, so this one commits them.
    assert_eq!(recover(&memory, &resources, Pass::ALL), Recovered { committed: 2, ..Recovered::default() });
    assert_eq!(commits(), [1, 1]);
}

#[test]
fn more_branches_than_fit_in_one_list_are_all_found() {
    let mut scene = Scene::new(&[(STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    for sequence in 0..200 {
        prepare(&scene, COORDINATOR, 9, sequence);
    }
    assert_eq!(scene.thread.recover().unwrap().rolled_back, 200);
    assert_eq!(scene.prepared(0), 0);
}

#[test]
fn a_branch_whose_commit_was_lost_is_committed_by_the_next_round() {
    let mut scene = Scene::new(&[(STATIC, "commit XAER_RMFAIL XA_OK"), (STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_OK);
    assert_eq!((scene.prepared(0), scene.prepared(1)), (1, 0));
    assert_eq!(scene.memory.decided.lock().unwrap().len(), 1);
    assert_eq!(scene.thread.recover().unwrap().committed, 1);
    assert_eq!(scene.prepared(0), 0);
    assert!(scene.memory.decided.lock().unwrap().is_empty());
}

/// Found by the simulator: a program that was killed between telling a resource manager to forget and telling the coordinator
/// took with it the only knowledge of what had been done against the decision.
#[test]
fn nobody_forgets_what_it_did_by_itself_before_that_is_recorded() {
    let mut scene = Scene::new(&[(STATIC, "commit XA_HEURRB"), (STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    *scene.memory.refuses_records.lock().unwrap() = true;
    assert_eq!(scene.thread.end(End::Commit), TX_MIXED);
    assert_eq!(scene.verbs(), "end end prepare prepare commit commit");
    assert_eq!(scene.memory.done.lock().unwrap().len(), 0);

    let mut scene = Scene::new(&[(STATIC, "commit XA_HEURRB"), (STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Commit), TX_MIXED);
    assert_eq!(scene.verbs(), "end end prepare prepare commit commit forget");
    assert_eq!(scene.memory.done.lock().unwrap().len(), 2);
}

/// Of a commit in one phase the coordinator did not hear, nor of what was done instead.
#[test]
fn what_was_done_instead_of_a_commit_in_one_phase_is_recorded_before_it_is_forgotten() {
    for (answer, did, code) in [
        ("XA_HEURCOM", Heuristic::Commit, TX_OK),
        ("XA_HEURRB", Heuristic::Rollback, TX_ROLLBACK),
        ("XA_HEURMIX", Heuristic::Mixed, TX_MIXED),
        ("XA_HEURHAZ", Heuristic::Hazard, TX_HAZARD),
    ] {
        for refusal in [None, Some(ErrorKind::Aborted), Some(ErrorKind::Unknown)] {
            for refuses_records in [false, true] {
                let mut scene = Scene::new(&[(STATIC, &format!("commit {answer}"))]);
                assert_eq!(scene.open(), TX_OK);
                assert_eq!(scene.thread.begin(), TX_OK);
                let id = scene.thread.transaction.unwrap().id;
                *scene.memory.refusal.lock().unwrap() = refusal;
                *scene.memory.refuses_records.lock().unwrap() = refuses_records;
                last_error::set("before".to_owned());
                assert_eq!(scene.thread.end(End::Commit), code, "{answer} {refusal:?}");
                assert_eq!(last_error::text(), format!("xa_commit of `monkey0` answered {answer}"));
                assert_eq!(scene.verbs(), if refuses_records { "end commit" } else { "end commit forget" });
                let branch = BranchName::new("monkey0").unwrap();
                let (decided, refused) = match refusal {
                    _ if refuses_records => (vec![], vec![]),
                    None => (vec![(id, Learned { branch, heuristic: Some(did) })], vec![]),
                    Some(_) => (vec![], vec![(id, Deed { branch, did })]),
                };
                assert_eq!(*scene.memory.done.lock().unwrap(), decided, "{answer} {refusal:?}");
                assert_eq!(*scene.memory.deeds.lock().unwrap(), refused, "{answer} {refusal:?}");
            }
        }
    }
}

/// Of a transaction that was rolled back the resource manager was told to forget at once, and then nobody knew.
#[test]
fn nobody_forgets_what_it_did_against_a_rollback_before_that_is_recorded() {
    for (answer, did, code) in [
        ("XA_HEURCOM", Heuristic::Commit, TX_COMMITTED),
        ("XA_HEURMIX", Heuristic::Mixed, TX_MIXED),
        ("XA_HEURHAZ", Heuristic::Hazard, TX_HAZARD),
    ] {
        for refuses in [true, false] {
            let mut scene = Scene::new(&[(STATIC, &format!("rollback {answer}"))]);
            assert_eq!(scene.open(), TX_OK);
            assert_eq!(scene.thread.begin(), TX_OK);
            let id = scene.thread.transaction.unwrap().id;
            *scene.memory.refuses_records.lock().unwrap() = refuses;
            assert_eq!(scene.thread.end(End::Rollback), code, "{answer}");
            assert_eq!(scene.verbs(), if refuses { "end rollback" } else { "end rollback forget" });
            let deeds = scene.memory.deeds.lock().unwrap();
            let deed = Deed { branch: BranchName::new("monkey0").unwrap(), did };
            assert_eq!(*deeds, if refuses { vec![] } else { vec![(id, deed)] });
            // So that recovery does not wait for the end of a program that lives.
            assert_eq!(*scene.memory.aborted.lock().unwrap(), [id]);
        }
    }
    let mut scene = Scene::new(&[(STATIC, "rollback XA_HEURRB")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    assert_eq!(scene.thread.end(End::Rollback), TX_OK);
    assert_eq!(scene.verbs(), "end rollback forget");
    assert!(scene.memory.deeds.lock().unwrap().is_empty(), "it did what it was to do");
}

/// What had been committed against the verdict was counted as rolled back, and forgotten where alone it was known.
#[test]
fn what_was_done_against_the_verdict_is_said_and_not_counted_as_carried_out() {
    for (script, commits, said) in [
        ("rollback XA_HEURCOM", false, "monkey0 has committed "),
        ("rollback XA_HEURMIX", false, "monkey0 has committed in part and rolled back in part "),
        ("commit XA_HEURRB", true, "monkey0 has rolled back "),
        ("commit XA_HEURHAZ", true, "monkey0 may have committed or rolled back "),
    ] {
        let mut scene = Scene::new(&[(STATIC, script)]);
        assert_eq!(scene.open(), TX_OK);
        let transaction = prepare(&scene, COORDINATOR, 9, 1);
        if commits {
            scene.memory.commit(transaction, &[BranchName::new("monkey0").unwrap()], None).unwrap();
        }
        *scene.memory.refuses_records.lock().unwrap() = true;
        assert_eq!(scene.thread.recover().unwrap(), Recovered { left: 1, ..Recovered::default() }, "{script}");
        assert!(!scene.verbs().contains("forget"), "it could not be recorded");
        *scene.memory.refuses_records.lock().unwrap() = false;
        assert_eq!(scene.thread.recover().unwrap(), Recovered { left: 1, ..Recovered::default() }, "{script}");
        assert_eq!(scene.memory.deeds.lock().unwrap().len(), usize::from(!commits));
        let text = last_error::text();
        assert!(text.starts_with(&format!("{said}{transaction}.monkey0 by itself")), "{text}");
        assert!(scene.verbs().ends_with(" forget"));
    }
    for (script, commits) in [("rollback XA_HEURRB", false), ("commit XA_HEURCOM", true)] {
        let mut scene = Scene::new(&[(STATIC, script)]);
        assert_eq!(scene.open(), TX_OK);
        let transaction = prepare(&scene, COORDINATOR, 9, 1);
        if commits {
            scene.memory.commit(transaction, &[BranchName::new("monkey0").unwrap()], None).unwrap();
        }
        assert_eq!(scene.thread.recover().unwrap().left, 0, "that was the verdict");
    }
}

#[test]
fn a_resource_manager_that_cannot_list_is_counted_and_does_not_hold_up_the_others() {
    let mut scene = Scene::new(&[(STATIC, "recover XAER_RMFAIL"), (STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.recover().unwrap(), Recovered { unreachable: 1, ..Recovered::default() });
}

#[test]
fn a_coordinator_that_refuses_means_rollback_and_one_whose_answer_is_lost_is_asked_again() {
    let answers = BTreeMap::from([("aborted", ErrorKind::Aborted), ("unavailable", ErrorKind::Unavailable)]);
    for kind in answers.into_values() {
        let mut scene = Scene::new(&[(STATIC, ""), (STATIC, "")]);
        assert_eq!(scene.open(), TX_OK);
        assert_eq!(scene.thread.begin(), TX_OK);
        *scene.memory.refusal.lock().unwrap() = Some(kind);
        assert_eq!(scene.thread.end(End::Commit), TX_ROLLBACK);
        assert_eq!(scene.verbs(), "end end prepare prepare rollback rollback");
    }
    // Once it is known that it will never be committed, the answer that was lost does no harm.
    let mut scene = Scene::new(&[(STATIC, ""), (STATIC, "")]);
    assert_eq!(scene.open(), TX_OK);
    assert_eq!(scene.thread.begin(), TX_OK);
    *scene.memory.refusal.lock().unwrap() = Some(ErrorKind::Unknown);
    assert_ne!(scene.thread.end(End::Commit), TX_HAZARD);
    assert_eq!((scene.prepared(0), scene.prepared(1)), (0, 0));
}
