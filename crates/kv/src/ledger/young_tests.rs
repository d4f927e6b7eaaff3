//! The young map against a `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::ledger::chunk::OVERHEAD_BYTES;

/// What became of a key: its value, and the position.
type Became = (Option<Vec<u8>>, u64);
type Model = BTreeMap<Vec<u8>, Became>;

fn became(change: Change<'_>) -> Became {
    (change.value.map(<[u8]>::to_vec), change.position.get())
}

fn range(young: &Young, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Vec<(Vec<u8>, Became)> {
    let mut range = young.range(start, end);
    let mut all = Vec::new();
    while range.advance() {
        let (key, change) = range.entry().unwrap();
        assert_eq!(range.key(), key);
        all.push((key.to_vec(), became(change)));
    }
    assert!(!range.advance());
    all
}

fn all(young: &Young) -> Vec<(Vec<u8>, Became)> {
    young.iter().map(|(key, change)| (key.to_vec(), became(change))).collect()
}

fn check(young: &Young, model: &Model) {
    assert_eq!(all(young), model.clone().into_iter().collect::<Vec<_>>());
    assert_eq!(young.is_empty(), model.is_empty());
    let live = model
        .iter()
        .map(|(key, (value, _))| key.len() + value.as_ref().map_or(0, Vec::len) + OVERHEAD_BYTES)
        .sum::<usize>();
    let cost = young.runs.chunks.iter().map(|chunk| chunk.cost()).sum::<u64>();
    assert_eq!(young.bytes(), cost);
    assert!((live as u64..=2 * live as u64).contains(&cost), "{cost} for {live}");
    assert_eq!(young.runs.tags.len(), young.runs.chunks.len());
    for (chunk, found) in young.runs.chunks.iter().zip(&young.runs.tags) {
        assert!((1..=CHUNK_MAX).contains(&chunk.len()));
        assert!(chunk.first().starts_with(&young.runs.shared));
        assert_eq!(tag(chunk.first(), young.runs.shared.len()), *found);
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few keys, so that they meet; enough of them to split chunks several times. Some begin alike for longer than a tag,
    // some differ only in how many zeros they end with.
    let name = proptest::collection::vec(0u8..24, 0..3);
    (prop_oneof![Just(&b""[..]), Just(&b"bucket"[..]), Just(&b"a long bucket"[..])], name, 0usize..2)
        .prop_map(|(bucket, name, zeros)| [bucket, &name, &[0; 3][..zeros]].concat())
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
}

fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Whether a `BTreeMap` accepts the range.
fn ordered(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Excluded(start), Bound::Excluded(end)) => start < end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start <= end,
        _ => true,
    }
}

proptest::proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_map_is_a_sorted_map_and_its_clones_do_not_change(
        changes in proptest::collection::vec((key(), proptest::option::of(0usize..40)), 0..1500),
        ranges in proptest::collection::vec((bound(), bound()), 20),
        clone_every in 1usize..400,
    ) {
        let (mut young, mut model) = (Young::default(), Model::new());
        let mut clones = Vec::new();
        for (number, (key, value)) in changes.iter().enumerate() {
            if number % clone_every == 0 {
                clones.push((young.clone(), model.clone()));
            }
            let value = value.map(|len| vec![u8::try_from(number % 251).unwrap(); len]);
            young.set(key, &Change { value: value.as_deref(), position: Position::new(number as u64) });
            model.insert(key.clone(), (value, number as u64));
            assert_eq!(young.get(key).map(became).as_ref(), model.get(key));
        }
        clones.push((young, model));
        for (young, model) in &clones {
            check(young, model);
            for (start, end) in &ranges {
                let wanted: Vec<_> = match ordered(start, end) {
                    true => model.range((start.clone(), end.clone())).map(|(k, v)| (k.clone(), v.clone())).collect(),
                    false => Vec::new(),
                };
                assert_eq!(range(young, borrow(start), borrow(end)), wanted, "{start:?}..{end:?}");
            }
        }
        let (young, model) = clones.last().unwrap();
        for key in (0u8..25).flat_map(|a| [vec![], vec![a], vec![a, 3], [b"bucket", &[a][..]].concat()]) {
            assert_eq!(young.get(&key).map(became).as_ref(), model.get(&key));
        }
    }
}

#[test]
fn keys_that_come_in_order_fill_their_chunks() {
    let mut young = Young::default();
    for number in 0..(10 * CHUNK_MAX as u64) {
        young.set(&number.to_be_bytes(), &Change { value: None, position: Position::new(number) });
    }
    assert_eq!((young.iter().count(), young.runs.chunks.len()), (10 * CHUNK_MAX, 10));
}
