//! Records as bytes: round trips, foreign bytes, and the example of the format's page.

use super::*;
use crate::id::{CoordinatorId, LastResourceId};
use proptest::prelude::*;

fn id() -> TransactionId {
    TransactionId {
        coordinator: CoordinatorId(0x0102_0304_0506_0708),
        owner: OwnerId(5),
        sequence: 7,
        deadline_ms: 1_700_000_000_000,
        shared: true,
        last_resource: None,
    }
}

fn any_record() -> impl Strategy<Value = Record> {
    let states = prop_oneof![
        Just(BranchState::Open),
        Just(BranchState::Done),
        Just(BranchState::Heuristic(Heuristic::Commit)),
        Just(BranchState::Heuristic(Heuristic::Rollback)),
        Just(BranchState::Heuristic(Heuristic::Mixed)),
        Just(BranchState::Heuristic(Heuristic::Hazard)),
    ];
    let branch = ("[a-zA-Z0-9_.-]{1,64}", states).prop_map(|(name, state)| (BranchName::new(&name).unwrap(), state));
    let deeds = prop_oneof![Just(Heuristic::Commit), Just(Heuristic::Mixed), Just(Heuristic::Hazard)];
    let deed =
        ("[a-zA-Z0-9_.-]{1,64}", deeds).prop_map(|(name, did)| Deed { branch: BranchName::new(&name).unwrap(), did });
    let owners = (any::<u64>(), any::<u64>(), any::<u32>(), proptest::collection::btree_set(any::<u64>(), 0..6));
    prop_oneof![
        (any::<u64>(), proptest::collection::vec(branch, 0..6))
            .prop_map(|(at_ms, branches)| Record::Decision(id(), Decision { at_ms, branches })),
        (any::<u64>(), proptest::collection::vec(deed, 0..4))
            .prop_map(|(at_ms, deeds)| Record::Tombstone(id(), Abort { at_ms, deeds })),
        (any::<u64>(), any::<u64>()).prop_map(|(owner, at_ms)| Record::Ended(OwnerId(owner), Tombstone { at_ms })),
        owners.prop_map(|(a, b, lease_ms, alive)| {
            let floor = a.min(b);
            let alive = alive.into_iter().filter(|owner| *owner < floor).map(OwnerId).collect();
            let lease = Duration::from_millis(u64::from(lease_ms));
            Record::Owners(OwnersRecord { next: a.max(b), floor, lease, alive })
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(upto, below)| Record::Damage(DamageRecord { upto, below })),
    ]
}

proptest! {
    #[test]
    fn records_round_trip_and_no_shorter_or_longer_value_is_one(record in any_record()) {
        let (key, value) = (record.key().to_bytes(), record.value());
        prop_assert_eq!(Record::decode(&key, &value), Ok(record.clone()));
        for cut in 0..value.len() {
            prop_assert!(Record::decode(&key, &value[..cut]).is_err());
        }
        prop_assert!(Record::decode(&key, &[&value[..], &[0]].concat()).is_err());
    }

    #[test]
    fn no_bytes_panic_and_what_decodes_encodes_to_the_same(
        kind in prop_oneof![Just(b'd'), Just(b'a'), Just(b'e'), Just(b'n'), Just(b'q'), any::<u8>()],
        rest in proptest::collection::vec(any::<u8>(), 0..12),
        mut value in proptest::collection::vec(any::<u8>(), 0..80),
        version in prop_oneof![Just(1), Just(2), any::<u8>()],
    ) {
        let rest = if matches!(kind, b'd' | b'a') { id().to_bytes().to_vec() } else { rest };
        let key = [&[kind], rest.as_slice()].concat();
        value.insert(0, version);
        if let Ok(record) = Record::decode(&key, &value) {
            prop_assert_eq!((record.key().to_bytes(), record.value()), (key, value));
        }
    }
}

#[test]
fn a_key_alone_says_what_must_not_be_lost() {
    let keys = [RecordKey::Decision(id()), RecordKey::Tombstone(id()), RecordKey::Ended(OwnerId(3))];
    for key in keys {
        let record = Record::of_key_alone(&key.to_bytes()).unwrap();
        assert_eq!(record.key(), key);
        assert_eq!(Record::decode(&key.to_bytes(), &record.value()), Ok(record));
    }
    assert_eq!(Record::of_key_alone(b"n"), None);
    assert_eq!(Record::of_key_alone(b"dx"), None);
}

/// The example of docs/formats/xa.md.
#[test]
fn the_example_of_the_format_page_is_what_is_written() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    let branches = vec![
        (BranchName::new("pg").unwrap(), BranchState::Done),
        (BranchName::new("maria").unwrap(), BranchState::Heuristic(Heuristic::Rollback)),
    ];
    let decision = Record::Decision(id(), Decision { at_ms: 1_699_999_999_000, branches });
    let alive = BTreeSet::from([OwnerId(5)]);
    let owners = OwnersRecord { next: 1025, floor: 9, lease: Duration::from_secs(10), alive };
    let ended = Record::Ended(OwnerId(6), Tombstone { at_ms: 1_699_999_999_000 });
    let page = include_str!("../../../docs/formats/xa.md");
    let deeds = vec![Deed { branch: BranchName::new("maria").unwrap(), did: Heuristic::Commit }];
    let abort = Record::Tombstone(id(), Abort { at_ms: 1_699_999_999_000, deeds });
    for record in [decision, abort, ended, Record::Owners(owners)] {
        for line in [hex(&record.key().to_bytes()), hex(&record.value())] {
            assert!(page.contains(&line), "the page lacks: {line}");
        }
    }
    let with_last = TransactionId { shared: false, last_resource: Some(LastResourceId(9)), ..id() };
    for line in [id().to_string(), with_last.to_string(), hex(&with_last.to_bytes())] {
        assert!(page.contains(&line), "the page lacks: {line}");
    }
}

#[test]
fn a_tombstone_of_before_there_were_deeds_is_read_and_no_deed_is_none() {
    let key = RecordKey::Tombstone(id()).to_bytes();
    let old = [&[1], 5_u64.to_be_bytes().as_slice()].concat();
    assert_eq!(Record::decode(&key, &old), Ok(Record::Tombstone(id(), Abort { at_ms: 5, deeds: Vec::new() })));
    let with = |branches: &[u8]| [&[2], 5_u64.to_be_bytes().as_slice(), branches].concat();
    assert!(Record::decode(&key, &with(&[0, 1, 2, 1, b'a'])).is_ok());
    for wrong in [&[0, 0][..], &[0, 1, 0, 1, b'a'], &[0, 1, 1, 1, b'a'], &[0, 1, 6, 1, b'a'], &[0, 1, 2, 1, b'/']] {
        assert!(Record::decode(&key, &with(wrong)).is_err(), "{wrong:?}");
    }
    // Only a transaction's tombstone has a second version.
    assert!(Record::decode(&RecordKey::Ended(OwnerId(3)).to_bytes(), &with(&[0, 1, 2, 1, b'a'])).is_err());
    assert!(Record::decode(&RecordKey::Decision(id()).to_bytes(), &with(&[0, 1, 2, 1, b'a'])).is_err());
}
