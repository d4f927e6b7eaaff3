//! What a coordinator says after damage of its journal: to what is lost, and that nothing else is.

use super::*;

/// Damages the one record with this name of a branch in it.
fn flip(place: &Place, marker: &str) {
    let mut flipped = 0;
    for (path, bytes) in
        place.disk.inventory().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"))
    {
        let all = base::read_whole(&place.disk, &path, bytes).unwrap();
        if let Some(at) = all.windows(marker.len()).position(|bytes| bytes == marker.as_bytes()) {
            place.disk.flip(&path, at as u64, 1);
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
}

fn meet(store: &Store) {
    meet_all(store, 1);
}

/// Whoever reads the journal meets damage.
fn meet_all(store: &Store, known: usize) {
    let mut feed = store.feed(Position::ZERO).unwrap();
    let limit = FeedLimit { items: 100, bytes: 1 << 20 };
    while !feed.next(limit, Duration::ZERO).unwrap().is_empty() {}
    assert_eq!(store.stats().damage.len(), known);
}

/// Decisions that were lost by damage were once taken for decisions that nobody had made, and their branches rolled back.
#[test]
fn after_damage_that_may_have_taken_a_decision_branches_are_left_alone_until_an_operator_decides() {
    let place = Place::new();
    let store = place.open();
    let lease = Lease::For(Duration::from_secs(1));
    let owner = store.xa().open(lease, "").unwrap().wait(SYNCED).unwrap();
    let coordinator = store.xa().coordinator();
    let id = |owner, sequence| TransactionId {
        coordinator,
        owner,
        sequence,
        deadline_ms: 0,
        shared: false,
        last_resource: None,
    };
    let [lost, kept, open, other] = [1, 2, 3, 4].map(|sequence| id(owner, sequence));
    let past = TransactionId { sequence: 5, deadline_ms: 1, ..lost };
    let marker = "x".repeat(64);
    commit(&store, lost, &[&marker], SYNCED).unwrap();
    commit(&store, kept, &["pg"], SYNCED).unwrap();
    place.disk.kill_process();
    drop(store);
    place.ledgers.delete_all();
    flip(&place, &marker);

    let store = place.open();
    place.clock.advance(Duration::from_secs(60));
    store.step().unwrap();
    let damage = store.stats().damage;
    assert_eq!(damage.iter().map(|damage| damage.kind).collect::<Vec<_>>(), [DamageKind::Record], "{damage:?}");
    assert_eq!([lost, open, past].map(|id| verdict(&store, id)), [Verdict::Leave; 3]);
    assert_eq!(verdict(&store, kept), Verdict::Commit);
    let listed = |store: &Store| {
        let listed = store.xa().list(None, 10).unwrap().wait(SYNCED).unwrap().statuses;
        listed.into_iter().map(|status| (status.id.sequence, status.state)).collect::<Vec<_>>()
    };
    let doubtful = |sequence| (sequence, State::Doubtful);
    assert_eq!(listed(&store), [doubtful(1), (2, State::Committed), doubtful(3), doubtful(5)]);

    // Who is new is judged as ever, and has a number that nobody had.
    let newer = store.xa().open(lease, "").unwrap().wait(SYNCED).unwrap();
    assert!(newer.0 > owner.0 + 1_000_000, "{newer:?}");
    place.clock.advance(Duration::from_secs(60));
    assert_eq!(verdict(&store, id(newer, 1)), Verdict::Rollback);

    // It stays so after another start, without new damage, which is told once more.
    store.close().unwrap();
    drop(store);
    let store = place.open();
    place.clock.advance(Duration::from_secs(60));
    assert_eq!([lost, other].map(|id| verdict(&store, id)), [Verdict::Leave; 2]);
    let newest = store.xa().open(lease, "").unwrap().wait(SYNCED).unwrap();
    assert!(newest.0 < newer.0 + 1_000_000, "numbers are passed over once: {newest:?} after {newer:?}");

    // A program that was cut off since before does not decide, alone or with a change of its own, and goes on as somebody new.
    let refused = commit(&store, lost, &["pg", "maria"], SYNCED).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("`holdfast xa commit` or `holdfast xa rollback`"), "{refused}");
    assert_eq!(store.xa().abort(other).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut change = store.begin();
    change.put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
    change.decide(open, &names(&["pg"]));
    assert_eq!(change.commit(SYNCED).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(store.kv().get(b"b", b"k").unwrap().is_none());
    assert!(store.xa().renew(owner).unwrap().wait(SYNCED).unwrap().is_err());

    // An operator looked at the data.
    for (id, branches) in [(lost, &["pg", "maria"][..]), (past, &["pg"])] {
        let decided = store.xa().decide_by_operator(id, &names(branches)).unwrap().wait(SYNCED).unwrap();
        assert_eq!(decided, Commit::Decided);
    }
    store.xa().abort_by_operator(other).unwrap().wait(SYNCED).unwrap();
    // Now that it is recorded it is said to everybody.
    commit(&store, lost, &["pg", "maria"], SYNCED).unwrap();
    let decided = [Verdict::Commit, Verdict::Commit, Verdict::Rollback];
    assert_eq!([lost, past, other].map(|id| verdict(&store, id)), decided);
    assert_eq!(verdict(&store, open), Verdict::Leave);
    store.xa().forget(open, &[], Forgetting::Everything).unwrap().wait(SYNCED).unwrap();
    assert!(!listed(&store).contains(&doubtful(3)));
}

/// Damage that was met while the store served was not noted: once a ledger was rebuilt from that journal, what the table knew
/// was gone with the process.
#[test]
fn damage_that_is_met_while_serving_costs_no_decision() {
    let place = Place::new();
    let store = place.open();
    let marker = "x".repeat(64);
    let owner = store.xa().open(Lease::For(Duration::from_secs(1)), "").unwrap().wait(SYNCED).unwrap();
    let (decided, aborted) = (of_owner(&store, owner, 1), of_owner(&store, owner, 2));
    commit(&store, decided, &[&marker], SYNCED).unwrap();
    store.xa().abort(aborted).unwrap().wait(SYNCED).unwrap();
    flip(&place, &marker);
    meet(&store);
    store.step().unwrap();
    store.step().unwrap();
    place.disk.kill_process();
    drop(store);
    place.ledgers.delete_all();

    let store = place.open();
    assert_eq!(store.stats().damage.len(), 1);
    assert_eq!([decided, aborted].map(|id| verdict(&store, id)), [Verdict::Commit, Verdict::Rollback]);
    assert_eq!(store.xa().renew(owner).unwrap().wait(SYNCED).unwrap(), Ok(()), "nobody is in shadow");
    place.clock.advance(Duration::from_secs(60));
    assert_eq!(verdict(&store, of_owner(&store, owner, 3)), Verdict::Rollback);
}

/// A store that is closed, or killed, before its first step had its ledgers pass damage that was noted nowhere.
#[test]
fn damage_that_opening_finds_is_noted_before_ledgers_pass_it() {
    for is_closed in [true, false] {
        let place = Place { limits: Limits { ledger_memory_bytes_max: 1 << 10, ..Limits::default() }, ..Place::new() };
        let store = place.open();
        let marker = "x".repeat(64);
        let lease = Lease::For(Duration::from_secs(1));
        let owner = store.xa().open(lease, "").unwrap().wait(SYNCED).unwrap();
        let lost = of_owner(&store, owner, 1);
        commit(&store, lost, &[&marker], SYNCED).unwrap();
        // What is sealed is read where it has to be replayed, and not again; each partition has something that its ledger lost.
        fill(&store);
        store.close().unwrap();
        drop(store);
        place.ledgers.delete_all();
        flip(&place, &marker);

        let store = place.open();
        assert_eq!(store.stats().damage.len(), 1);
        if is_closed {
            store.close().unwrap();
        } else {
            fill(&store);
            place.disk.kill_process();
        }
        place.ledgers.kill_process();
        drop(store);

        let store = place.open();
        place.clock.advance(Duration::from_secs(60));
        assert_eq!((is_closed, verdict(&store, lost)), (is_closed, Verdict::Leave));
        assert!(remembered(&store).contains(&(lost, State::Doubtful)));
        assert_eq!(commit(&store, lost, &["pg"], SYNCED).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// Puts until writers have made room in every partition: nobody else does in a store without threads that is not stepped.
fn fill(store: &Store) {
    for number in 0..2000_u32 {
        store.kv().put(b"b", &number.to_be_bytes(), &[7; 100], &PutOptions::default()).unwrap();
    }
}

/// Only a step and closing wrote the table again; writers that made room and compaction wrote out rebuilt ledgers without.
#[test]
fn whoever_writes_out_a_ledger_has_what_damage_may_have_taken_written_again() {
    let place = Place { limits: Limits { ledger_memory_bytes_max: 1 << 10, ..Limits::default() }, ..Place::new() };
    let store = place.open();
    let marker = "x".repeat(64);
    let owner = store.xa().open(Lease::For(Duration::from_secs(1)), "").unwrap().wait(SYNCED).unwrap();
    let (decided, aborted) = (of_owner(&store, owner, 1), of_owner(&store, owner, 2));
    commit(&store, decided, &[&marker], SYNCED).unwrap();
    store.xa().abort(aborted).unwrap().wait(SYNCED).unwrap();
    // More than one batch of records.
    let more: Vec<TransactionId> = (3..200).map(|sequence| of_owner(&store, owner, sequence)).collect();
    for id in &more {
        commit(&store, *id, &["pg"], Durability::Written).unwrap();
    }
    flip(&place, &marker);
    meet(&store);
    fill(&store);
    place.disk.kill_process();
    drop(store);
    place.ledgers.delete_all();

    let store = place.open();
    assert_eq!(store.stats().damage.len(), 1);
    assert_eq!([decided, aborted].map(|id| verdict(&store, id)), [Verdict::Commit, Verdict::Rollback]);
    assert!(more.iter().all(|id| verdict(&store, *id) == Verdict::Commit));
    assert_eq!(store.xa().renew(owner).unwrap().wait(SYNCED).unwrap(), Ok(()), "nobody is in shadow");
}

/// Ledgers were written out although the table could not be written before.
#[test]
fn no_ledger_is_written_out_while_the_table_cannot_be_written_again() {
    let place = Place { limits: Limits { ledger_memory_bytes: 1, ..Limits::default() }, ..Place::new() };
    let store = place.open();
    let marker = "x".repeat(64);
    let decided = begin(&store);
    commit(&store, decided, &[&marker], SYNCED).unwrap();
    flip(&place, &marker);
    meet(&store);
    place.disk.set_capacity(0);
    for bytes in [1000, 1] {
        while store.kv().put(b"b", b"k", &[7; 1000][..bytes], &PutOptions::default()).is_ok() {}
    }
    let in_memory = store.stats().ledger_memory_bytes;
    assert_eq!(store.step().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(store.stats().ledger_memory_bytes >= in_memory);
    place.disk.set_capacity(u64::MAX);
    store.step().unwrap();
    assert!(store.stats().ledger_memory_bytes < in_memory);
    place.disk.kill_process();
    drop(store);
    place.ledgers.delete_all();
    assert_eq!(verdict(&place.open(), decided), Verdict::Commit);
}

/// The table is written again in small batches, beside threads that decide, make room and come upon more damage meanwhile.
#[test]
fn damage_after_damage_beside_threads_that_decide_costs_no_decision() {
    let place = Place {
        limits: Limits { ledger_memory_bytes: 4 << 10, ledger_memory_bytes_max: 16 << 10, ..Limits::default() },
        ..Place::new()
    };
    let store =
        Store::open_in(&World { threads: true, ..place.world() }, Path::new("/store"), place.options()).unwrap();
    let owner = store.xa().open(Lease::Held, "").unwrap().wait(SYNCED).unwrap();
    let markers: Vec<String> = (0..4).map(|number| format!("{number}").repeat(64)).collect();
    let mut decided: Vec<TransactionId> = (0..300).map(|sequence| of_owner(&store, owner, sequence)).collect();
    for (number, id) in decided.iter().enumerate() {
        let marker = markers.get(number / 50).filter(|_| number % 50 == 0);
        commit(&store, *id, &[marker.map_or("pg", String::as_str)], SYNCED).unwrap();
    }
    std::thread::scope(|scope| {
        let store = &store;
        let deciding: Vec<_> = (1..4_u64)
            .map(|thread| {
                scope.spawn(move || {
                    let ids: Vec<_> = (0..300).map(|number| of_owner(store, owner, 1000 * thread + number)).collect();
                    for id in &ids {
                        commit(store, *id, &["pg"], Durability::Written).unwrap();
                        store.kv().put(b"b", &id.sequence.to_be_bytes(), &[7; 100], &PutOptions::default()).unwrap();
                    }
                    ids
                })
            })
            .collect();
        for (known, marker) in markers.iter().enumerate() {
            flip(&place, marker);
            meet_all(store, known + 1);
        }
        decided.extend(deciding.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
    store.close().unwrap();
    drop(store);
    place.ledgers.delete_all();
    let store = place.open();
    assert_eq!(store.stats().damage.len(), markers.len());
    let undecided = decided.iter().filter(|id| verdict(&store, **id) != Verdict::Commit).count();
    assert_eq!(undecided, 0, "of {}", decided.len());
}
