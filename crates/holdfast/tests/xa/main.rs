//! A store as a coordinator: what it decides survives, and nobody sees the records.
#![allow(clippy::unwrap_used, reason = "tests stand outside the wall")]

mod damage;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::memory::Disk;
use base::{Limits, ManualClock};
use holdfast::*;

const SYNCED: Durability = Durability::Synced;

/// A disk, a clock and ledgers that outlive their stores.
struct Place {
    disk: Disk,
    clock: Arc<ManualClock>,
    ledgers: MemoryLedgers,
    limits: Limits,
}

impl Place {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        Self { disk: Disk::new(1), clock, ledgers: MemoryLedgers::new(), limits: Limits::default() }
    }

    fn world(&self) -> World {
        World {
            files: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as _,
            ledgers: Arc::new(self.ledgers.clone()),
            threads: false,
            entropy: 7,
        }
    }

    fn options(&self) -> Options {
        Options { durability: Durability::Written, limits: self.limits.clone(), ..Options::default() }
    }

    fn open(&self) -> Store {
        Store::open_in(&self.world(), Path::new("/store"), self.options()).unwrap()
    }

    fn power_cut(&self, store: Store) -> Store {
        self.disk.power_cut();
        drop(store);
        self.disk.power_on();
        self.ledgers.kill_process();
        self.open()
    }
}

fn names(names: &[&str]) -> Vec<BranchName> {
    names.iter().map(|name| BranchName::new(name).unwrap()).collect()
}

fn commit(store: &Store, id: TransactionId, branches: &[&str], durability: Durability) -> Result<()> {
    store.xa().commit(&CommitRequest { id, branches: &names(branches), wait: Duration::ZERO }, durability)
}

fn verdict(store: &Store, id: TransactionId) -> Verdict {
    store.xa().verdicts(&[id]).unwrap().wait(SYNCED).unwrap()[0]
}

fn begin(store: &Store) -> TransactionId {
    store.xa().begin(&Begin::default()).unwrap()
}

fn of_owner(store: &Store, owner: OwnerId, sequence: u64) -> TransactionId {
    TransactionId {
        coordinator: store.xa().coordinator(),
        owner,
        sequence,
        deadline_ms: 0,
        shared: false,
        last_resource: None,
    }
}

fn done(store: &Store, id: TransactionId, branch: &str) {
    let learned = Learned { branch: BranchName::new(branch).unwrap(), heuristic: None };
    store.xa().forget(id, &[learned], Forgetting::Known).unwrap().wait(SYNCED).unwrap();
}

fn remembered(store: &Store) -> Vec<(TransactionId, State)> {
    let listed = store.xa().list(None, 100).unwrap().wait(SYNCED).unwrap();
    listed.statuses.into_iter().map(|status| (status.id, status.state)).collect()
}

#[test]
fn a_synced_decision_survives_a_power_cut_until_all_branches_know() {
    let place = Place::new();
    let store = place.open();
    let (decided, other) = (begin(&store), begin(&store));
    commit(&store, decided, &["pg", "maria"], SYNCED).unwrap();
    commit(&store, decided, &["pg", "maria"], SYNCED).unwrap();
    assert_eq!((verdict(&store, decided), verdict(&store, other)), (Verdict::Commit, Verdict::Leave));
    let store = place.power_cut(store);
    assert_eq!((verdict(&store, decided), verdict(&store, other)), (Verdict::Commit, Verdict::Rollback));
    done(&store, decided, "pg");
    assert_eq!(remembered(&store), [(decided, State::Committed)]);
    done(&store, decided, "maria");
    store.step().unwrap();
    assert_eq!((store.stats().xa.outstanding, store.stats().xa.verdicts), (0, 2));
    // Somebody else has told the branches, while the owner may never have heard the answer to its commit.
    let store = place.power_cut(store);
    store.step().unwrap();
    // That branches know is noted lazily, so it is told again.
    done(&store, decided, "pg");
    done(&store, decided, "maria");
    assert!(commit(&store, decided, &["pg", "maria"], SYNCED).is_ok());
    assert_eq!(store.xa().abort(decided).unwrap().wait(SYNCED).unwrap(), Outcome::Committed);
    assert_eq!(remembered(&store), [(decided, State::Committed)]);
    place.clock.advance(Duration::from_secs(3600));
    store.step().unwrap();
    assert_eq!(remembered(&store), []);
    // An owner that heard it and tells all branches itself leaves nothing behind.
    let own = begin(&store);
    commit(&store, own, &["pg"], SYNCED).unwrap();
    done(&store, own, "pg");
    assert_eq!(remembered(&store), []);
    // Nobody waits for that, but it does not lie in memory for ever either.
    store.step().unwrap();
    place.disk.kill_process();
    drop(store);
    place.ledgers.kill_process();
    assert_eq!(remembered(&place.open()), []);
}

#[test]
fn what_was_said_to_be_rolled_back_is_never_committed() {
    let place = Place::new();
    let store = place.open();
    let aborted = begin(&store);
    assert!(matches!(store.xa().abort(aborted).unwrap().wait(SYNCED).unwrap(), Outcome::Aborted(_)));
    let late = store.xa().begin(&Begin { timeout: Some(Duration::from_millis(5)), ..Begin::default() }).unwrap();
    assert_eq!(verdict(&store, late), Verdict::Leave);
    place.clock.advance(Duration::from_millis(5));
    assert_eq!(verdict(&store, late), Verdict::Rollback);
    let store = place.power_cut(store);
    for id in [aborted, late] {
        assert_eq!(commit(&store, id, &["pg"], SYNCED).unwrap_err().kind(), ErrorKind::Aborted);
        assert_eq!(verdict(&store, id), Verdict::Rollback);
    }
    // Their owner is dead, which says the same.
    store.xa().own().unwrap();
    store.step().unwrap();
    assert_eq!(remembered(&store), []);
    assert_eq!(commit(&store, aborted, &["pg"], SYNCED).unwrap_err().kind(), ErrorKind::Aborted);
}

#[test]
fn owners_live_by_their_leases_and_have_a_grace_after_a_restart() {
    let place = Place::new();
    let store = place.open();
    let lease = Lease::For(Duration::from_secs(30));
    let open = |store: &Store, name| store.xa().open(lease, name).unwrap().wait(SYNCED).unwrap();
    let (first, second, third) = (open(&store, "a"), open(&store, "b"), open(&store, "c"));
    let renew = |store: &Store, owner| store.xa().renew(owner).unwrap().wait(SYNCED).unwrap();
    place.clock.advance(Duration::from_secs(20));
    renew(&store, first).unwrap();
    renew(&store, third).unwrap();
    place.clock.advance(Duration::from_secs(20));
    let judge = |store: &Store, owner| verdict(store, of_owner(store, owner, 1));
    assert_eq!((judge(&store, first), judge(&store, second)), (Verdict::Leave, Verdict::Rollback));
    assert!(renew(&store, second).is_err());
    // Nothing but records survives; owners that say something in time go on.
    let store = place.power_cut(store);
    assert_eq!((judge(&store, first), judge(&store, third)), (Verdict::Leave, Verdict::Leave));
    assert_eq!(judge(&store, second), Verdict::Rollback);
    renew(&store, first).unwrap();
    let fourth = open(&store, "d");
    assert!(fourth > third);
    place.clock.advance(Duration::from_secs(29));
    commit(&store, of_owner(&store, first, 2), &["pg"], SYNCED).unwrap();
    place.clock.advance(Duration::from_secs(2));
    assert_eq!((judge(&store, first), judge(&store, third)), (Verdict::Leave, Verdict::Rollback));
    place.clock.advance(Duration::from_secs(2));
    store.step().unwrap();
    assert_eq!(commit(&store, of_owner(&store, fourth, 2), &["pg"], SYNCED).unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(verdict(&store, of_owner(&store, first, 2)), Verdict::Commit);
    // A program that has the directory to itself knows better than the clock.
    let fifth = open(&store, "e");
    let store = place.power_cut(store);
    assert_eq!(judge(&store, fifth), Verdict::Leave);
    let own = store.xa().own().unwrap();
    assert_eq!((judge(&store, fifth), judge(&store, own)), (Verdict::Rollback, Verdict::Leave));
    assert_eq!(store.xa().own().unwrap(), own);
}

#[test]
fn a_decision_and_what_it_changes_in_the_store_are_one_batch() {
    let place = Place::new();
    let store = place.open();
    let plain = PutOptions::default();
    let (good, bad) = (begin(&store), begin(&store));
    let change = |id, value: &[u8]| {
        let mut transaction = store.begin();
        transaction.put(b"b", b"k", value, &plain).unwrap();
        transaction.decide(id, &names(&["pg"]));
        transaction.commit(SYNCED)
    };
    let batches = store.stats().batches;
    let committed = change(good, b"1").unwrap();
    assert_eq!(store.stats().batches, batches + 1);
    assert_eq!(store.kv().head(b"b", b"k").unwrap().unwrap().version, committed.position);
    // Asked again, it is not changed again.
    assert_eq!(change(good, b"2").unwrap_err().kind(), ErrorKind::Conflict);
    store.xa().abort(bad).unwrap().wait(SYNCED).unwrap();
    let refused = change(bad, b"3").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Aborted);
    assert!(store.watermarks().synced > refused.rests_on().unwrap());
    let late = store.xa().begin(&Begin { timeout: Some(Duration::from_millis(1)), ..Begin::default() }).unwrap();
    place.clock.advance(Duration::from_millis(1));
    assert_eq!(change(late, b"4").unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(&*store.kv().get(b"b", b"k").unwrap().unwrap().value, b"1");
    // Inside of exclusive access too, and only for what it was asked for.
    let (inside, outside) = (begin(&store), begin(&store));
    let mut exclusive = store.xa().exclusive(&Scope::Keys(&[(b"b", b"k")]), &[inside]).unwrap();
    exclusive.put(b"b", b"k", b"5", &plain).unwrap();
    exclusive.decide(inside, &names(&["pg"])).unwrap();
    assert!(exclusive.decide(outside, &names(&["pg", "pg"])).is_err());
    let committed = exclusive.commit().unwrap();
    store.wait(committed.position, SYNCED).unwrap();
    let store = place.power_cut(store);
    assert_eq!(
        (verdict(&store, inside), verdict(&store, good), verdict(&store, late)),
        (Verdict::Commit, Verdict::Commit, Verdict::Rollback)
    );
    assert_eq!(&*store.kv().get(b"b", b"k").unwrap().unwrap().value, b"5");
}

/// Every later transaction of the process was of an owner that had ended, and so could never be committed.
#[test]
fn a_process_whose_owner_was_ended_goes_on_as_another() {
    let place = Place::new();
    let store = place.open();
    let (committed, open) = (begin(&store), begin(&store));
    commit(&store, committed, &["a"], SYNCED).unwrap();
    store.xa().end(open.owner).unwrap().wait(SYNCED).unwrap();
    assert_eq!(commit(&store, open, &["a"], SYNCED).unwrap_err().kind(), ErrorKind::Aborted);
    let next = begin(&store);
    assert_ne!(next.owner, open.owner);
    assert_eq!((begin(&store).owner, store.xa().own().unwrap()), (next.owner, next.owner));
    commit(&store, next, &["a"], SYNCED).unwrap();
    assert_eq!((verdict(&store, committed), verdict(&store, open)), (Verdict::Commit, Verdict::Rollback));
}

#[test]
fn a_shared_transaction_commits_when_all_who_take_part_are_prepared() {
    let place = Place::new();
    let store = place.open();
    let xa = store.xa();
    let shared = || xa.begin(&Begin { timeout: None, sharing: Sharing::Shared }).unwrap();
    let vote =
        |id, branch: &str, vote| xa.vote(id, &BranchName::new(branch).unwrap(), vote).unwrap().wait(SYNCED).unwrap();
    let (all, failing, slow, lost) = (shared(), shared(), shared(), shared());
    for id in [all, failing, slow, lost] {
        assert_eq!(xa.enlist(id, None, &names(&["a", "b", "c"])).unwrap().wait(SYNCED).unwrap(), Taking::Part);
    }
    for id in [all, failing, lost] {
        vote(id, "a", Vote::Prepared);
        vote(id, "b", Vote::ReadOnly);
    }
    let waits = xa.decide(all, &names(&["own"]), Patience::Waits).unwrap().wait(SYNCED).unwrap();
    assert_eq!(waits, Commit::Waiting);
    vote(all, "c", Vote::Prepared);
    vote(lost, "c", Vote::Prepared);
    vote(failing, "c", Vote::Failed);
    vote(failing, "c", Vote::Prepared);
    assert_eq!(commit(&store, all, &["own", "b"], SYNCED).unwrap_err().kind(), ErrorKind::Invalid);
    commit(&store, all, &["own"], SYNCED).unwrap();
    let status = xa.status(all).unwrap().wait(SYNCED).unwrap();
    let branches: Vec<&str> = status.branches.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(branches, ["own", "a", "c"]);
    for id in [failing, slow] {
        assert_eq!(commit(&store, id, &["own"], SYNCED).unwrap_err().kind(), ErrorKind::Aborted);
        assert_eq!(vote(id, "a", Vote::Prepared), Taking::Settled(Outcome::Aborted(AbortReason::RolledBack)));
    }
    // Who takes part in it is lost with the coordinator's memory.
    let store = place.power_cut(store);
    assert_eq!(commit(&store, lost, &["own"], SYNCED).unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(verdict(&store, all), Verdict::Commit);
}

#[test]
fn nobody_sees_the_records_but_replay_and_backups() {
    let (place, plain_place) = (Place::new(), Place::new());
    let (store, plain) = (place.open(), plain_place.open());
    for store in [&store, &plain] {
        store.kv().put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
    }
    let id = begin(&store);
    commit(&store, id, &["pg"], SYNCED).unwrap();
    store.xa().abort(begin(&store)).unwrap().wait(SYNCED).unwrap();
    assert_eq!(store.kv().buckets().unwrap().value, [b"b"]);
    assert_eq!(store.exclusive(&Scope::All).unwrap().buckets().unwrap(), [b"b"]);
    let mut feed = store.feed(Position::ZERO).unwrap();
    let items = feed.next(FeedLimit { items: 100, bytes: 1 << 20 }, Duration::ZERO).unwrap();
    assert_eq!(items.len(), 1);
    for order in [FoldOrder::Key, FoldOrder::Write, FoldOrder::Partition] {
        let mut buckets = Vec::new();
        let all = Fold { order, limit: 2, ..Fold::default() };
        let end = store.snapshot().unwrap().fold(&all, &mut |folded| {
            buckets.push(folded.bucket().to_vec());
            Ok(ControlFlow::Continue(()))
        });
        assert_eq!((buckets, end.unwrap()), (vec![b"b".to_vec()], None));
    }
    for kept in [TreeSize::default(), *TreeSize::ALL.last().unwrap()] {
        assert_eq!(store.root(kept).unwrap(), plain.root(kept).unwrap());
    }
    assert_eq!(store.rebuild_tree(TreeValues::Read).unwrap().mended, 0);
    let digest = store.digest().unwrap();
    let store = place.power_cut(store);
    assert_eq!(store.digest().unwrap(), digest);
    assert_eq!(verdict(&store, id), Verdict::Commit);
}

#[test]
fn bounds_are_errors_and_a_full_table_says_nothing_it_cannot_keep() {
    let mut place = Place::new();
    place.limits = Limits::tiny();
    let store = place.open();
    let max = place.limits.xa_transactions_max;
    let ids: Vec<TransactionId> = (0..max).map(|_| begin(&store)).collect();
    for id in &ids {
        commit(&store, *id, &["pg"], SYNCED).unwrap();
    }
    let late = store.xa().begin(&Begin { timeout: Some(Duration::from_millis(1)), ..Begin::default() }).unwrap();
    place.clock.advance(Duration::from_millis(1));
    let refused = commit(&store, begin(&store), &["pg"], SYNCED).unwrap_err();
    assert_eq!((refused.kind(), refused.to_string().contains("12 transactions")), (ErrorKind::Limit, true));
    assert_eq!(store.xa().abort(begin(&store)).map(|_| ()).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(verdict(&store, late), Verdict::Leave);
    done(&store, ids[0], "pg");
    assert_eq!(verdict(&store, late), Verdict::Rollback);
    let many = commit(&store, ids[0], &["a", "b", "c", "d", "e"], SYNCED).unwrap_err();
    assert_eq!(many.kind(), ErrorKind::Limit);
    let lease = Lease::For(Duration::from_secs(1));
    let open = || store.xa().open(lease, "").and_then(|opened| opened.wait(SYNCED));
    let owners = std::iter::repeat_with(open).take(10).filter(|opened| opened.is_ok()).count();
    assert_eq!(owners, place.limits.xa_owners_max - 1, "and this process");
    place.clock.advance(Duration::from_secs(1));
    store.step().unwrap();
    assert!(open().is_ok());
}

#[test]
fn a_decision_whose_value_rotted_is_still_one() {
    let place = Place::new();
    let store = place.open();
    let id = begin(&store);
    // So long that it does not lie in the ledger.
    let (first, second) = ("x".repeat(64), "y".repeat(64));
    commit(&store, id, &[&first, &second], SYNCED).unwrap();
    store.close().unwrap();
    drop(store);
    let mut flipped = 0;
    for (path, bytes) in
        place.disk.inventory().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"))
    {
        let all = base::read_whole(&place.disk, &path, bytes).unwrap();
        for at in all.windows(64).enumerate().filter(|(_, bytes)| *bytes == second.as_bytes()).map(|(at, _)| at) {
            place.disk.flip(&path, at as u64, 1);
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
    let store = place.open();
    assert_eq!((verdict(&store, id), store.stats().xa.heuristic), (Verdict::Commit, 1));
    let status = store.xa().status(id).unwrap().wait(SYNCED).unwrap();
    assert_eq!(status.branches.first().map(|(name, _)| name.as_str()), Some("damaged"));
    store.xa().forget(id, &[], Forgetting::Everything).unwrap().wait(SYNCED).unwrap();
    assert_eq!(remembered(&store), []);
}

/// Deciders, askers and writers of the same objects, with the background at work: whoever is told something first is
/// right, each decision comes with its object and none without, and nobody waits for ever.
#[test]
fn threads_that_decide_ask_and_change_agree() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Written, ..Options::default() };
    let store = Store::open(dir.path(), options.clone()).unwrap();
    let ids: Vec<TransactionId> = (0..300).map(|_| begin(&store)).collect();
    let judge = |step: usize| -> Vec<(TransactionId, bool)> {
        let mut found = Vec::new();
        for ids in ids.chunks(step) {
            let verdicts = store.xa().verdicts(ids).unwrap().wait(SYNCED).unwrap();
            for (id, verdict) in ids.iter().zip(verdicts) {
                match verdict {
                    Verdict::Commit => found.push((*id, true)),
                    Verdict::Rollback => found.push((*id, false)),
                    Verdict::LastResource | Verdict::Leave | Verdict::Foreign => {}
                }
            }
        }
        found
    };
    let decide = |of: usize| -> Vec<(TransactionId, bool)> {
        let mut found = Vec::new();
        for (number, id) in ids.iter().enumerate() {
            let key = id.sequence.to_be_bytes();
            let (scope, branches) = ([(b"b".as_slice(), key.as_slice())], names(&["pg", "maria"]));
            match (number + of) % 5 {
                0 => {
                    let outcome = store.xa().abort(*id).unwrap().wait(SYNCED).unwrap();
                    found.push((*id, outcome == Outcome::Committed));
                    continue;
                }
                1 => drop(store.snapshot().unwrap().get(b"b", &key)),
                2 => drop(store.exclusive(&Scope::All).unwrap().put(b"other", b"k", b"v", &PutOptions::default())),
                _ => {}
            }
            let mut exclusive = store.xa().exclusive(&Scope::Keys(&scope), &[*id]).unwrap();
            exclusive.put(b"b", &key, b"v", &PutOptions::default()).unwrap();
            exclusive.decide(*id, &branches).unwrap();
            match exclusive.commit() {
                Ok(_) => found.push((*id, true)),
                Err(error) if error.kind() == ErrorKind::Conflict => found.push((*id, true)),
                Err(error) if error.kind() == ErrorKind::Aborted => found.push((*id, false)),
                Err(error) => panic!("{error}"),
            }
        }
        found
    };
    let found: Vec<(TransactionId, bool)> = std::thread::scope(|scope| {
        let deciders: Vec<_> = (0..3).map(|of| scope.spawn(move || decide(of))).collect();
        let askers: Vec<_> = [7, 50].map(|step| scope.spawn(move || judge(step))).into();
        deciders.into_iter().chain(askers).flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut outcomes = std::collections::BTreeMap::new();
    for (id, is_committed) in found {
        assert_eq!(*outcomes.entry(id).or_insert(is_committed), is_committed, "{id}");
    }
    assert_eq!(outcomes.len(), ids.len());
    assert!(outcomes.values().any(|committed| *committed) && outcomes.values().any(|committed| !*committed));
    store.close().unwrap();
    let store = Store::open(dir.path(), options).unwrap();
    for (id, is_committed) in outcomes {
        assert_eq!(store.kv().get(b"b", &id.sequence.to_be_bytes()).unwrap().is_some(), is_committed, "{id}");
        assert_eq!(verdict(&store, id), if is_committed { Verdict::Commit } else { Verdict::Rollback });
    }
}

/// A note that branches are done was once kept until it could be written with others, whatever it was about: it deleted a
/// decision that came after it.
#[test]
fn what_is_said_of_a_transaction_before_its_decision_is_not_taken_for_news_of_it() {
    let place = Place::new();
    let store = place.open();
    let id = begin(&store);
    done(&store, id, "pg");
    commit(&store, id, &["pg"], SYNCED).unwrap();
    store.step().unwrap();
    assert_eq!(remembered(&store), [(id, State::Committed)]);
    assert_eq!(verdict(&store, id), Verdict::Commit);
    // An unknown name is refused, and takes nothing with it.
    let stranger = Learned { branch: BranchName::new("stranger").unwrap(), heuristic: None };
    let refused = store.xa().forget(id, &[stranger], Forgetting::Known).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn many_completions_share_a_batch() {
    let place = Place::new();
    let store = place.open();
    let ids: Vec<TransactionId> = (0..100).map(|_| begin(&store)).collect();
    for id in &ids {
        commit(&store, *id, &["pg"], Durability::Written).unwrap();
    }
    let before = store.stats().batches;
    ids.iter().take(64).for_each(|id| done(&store, *id, "pg"));
    let batches = store.stats().batches - before;
    assert!(batches <= 2, "{batches} batches for 64 completions");
    // Said again and again, as by a client whose answers are lost.
    for _ in 0..3 {
        ids.iter().skip(64).for_each(|id| done(&store, *id, "pg"));
    }
    store.step().unwrap();
    assert_eq!(remembered(&store), []);
}

#[test]
fn a_batch_cannot_decide_what_leaves_no_record() {
    let place = Place::new();
    let store = place.open();
    let id = begin(&store);
    let mut exclusive = store.xa().exclusive(&Scope::Keys(&[]), &[id]).unwrap();
    assert_eq!(exclusive.decide(id, &[]).unwrap_err().kind(), ErrorKind::Invalid);
}
