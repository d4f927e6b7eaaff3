//! Blocks against a sorted map, and against garbage.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Map = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn built(map: &Map) -> Block {
    let (mut builder, mut to) = (Builder::default(), Vec::new());
    map.iter().for_each(|(key, value)| builder.add(key, value.as_deref()));
    builder.finish(&mut to);
    assert!(builder.is_empty());
    Block::of(Arc::from(to)).unwrap()
}

fn joined(split: Split<'_>) -> Vec<u8> {
    [split.prefix, split.rest].concat()
}

fn check(map: &Map, asked: &[Vec<u8>]) {
    let block = built(map);
    assert_eq!(block.len(), map.len());
    for (number, (key, value)) in map.iter().enumerate() {
        let spot = block.spot(number);
        assert_eq!((joined(block.key(spot)), spot.is_removal), (key.clone(), value.is_none()));
        assert_eq!(block.value(spot), value.as_deref().unwrap_or_default());
        assert_eq!(*block.slice(spot), *block.value(spot));
        for shared in 0..=key.len() {
            assert_eq!(block.tag(spot, shared), tag_of(&key[shared..]), "{key:?} from {shared}");
        }
    }
    for key in asked.iter().chain(map.keys()) {
        assert_eq!(block.before(key), map.range::<Vec<u8>, _>(..key).count(), "{key:?}");
        assert_eq!(block.up_to(key), map.range::<Vec<u8>, _>(..=key).count(), "{key:?}");
        assert_eq!(block.find(key).is_some(), map.contains_key(key));
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    (0usize..4, proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFF)], 0..7))
        .prop_map(|(begin, rest)| [&b"abc"[..begin], &rest].concat())
}

fn entries() -> impl Strategy<Value = Map> {
    let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9));
    proptest::collection::btree_map(key(), value, 0..40)
}

proptest! {
    #[test]
    fn entries_are_found_by_number_and_by_key(map in entries(), asked in proptest::collection::vec(key(), 9)) {
        check(&map, &asked);
    }

    #[test]
    fn split_keys_compare_as_whole_ones_do(a in key(), b in key(), cut_a in 0usize..9, cut_b in 0usize..9, from in 0usize..12) {
        let split = |key: &'static [u8], cut: usize| {
            let (prefix, rest) = key.split_at(cut.min(key.len()));
            Split { prefix, rest }
        };
        let (a, b): (&'static [u8], &'static [u8]) = (a.leak(), b.leak());
        prop_assert_eq!(split(a, cut_a).compare(split(b, cut_b)), a.cmp(b));
        prop_assert_eq!(split(a, cut_a).tag(from), tag_of(a.get(from..).unwrap_or_default()));
    }

    #[test]
    fn a_separator_separates_and_is_not_longer_than_the_last_key(a in key(), b in key()) {
        let (last, next) = if a < b { (a, b) } else { (b, a) };
        prop_assume!(last != next);
        let between = separator(&last, &next);
        prop_assert!(*last <= *between && *between < *next && between.len() <= last.len());
    }

    #[test]
    fn garbage_is_no_block_or_one_that_can_be_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), tail in 0u32..9, map in entries(), at in any::<usize>(), bit in 0u8..8) {
        if bytes.len() > 8 {
            let at = bytes.len() - 8;
            bytes[at..at + 4].copy_from_slice(&tail.to_le_bytes());
            bytes[at + 4..].copy_from_slice(&(tail / 2).to_le_bytes());
        }
        let mut flipped = built(&map).bytes.to_vec();
        let at = at % flipped.len();
        flipped[at] ^= 1 << bit;
        for bytes in [bytes, flipped] {
            let Some(block) = Block::of(Arc::from(bytes)) else { continue };
            for number in 0..block.len() {
                let spot = block.spot(number);
                prop_assert!(block.key(spot).rest.len() + block.value(spot).len() <= block.bytes());
                block.find(block.key(spot).rest);
            }
        }
    }
}

#[test]
fn large_entries_make_a_wide_block() {
    let map: Map = (0u8..40).map(|number| (vec![7, number], (number % 3 > 0).then(|| vec![number; 3_000]))).collect();
    check(&map, &[vec![7], vec![7, 3, 0], vec![8]]);
    assert!(built(&map).wide && built(&map).bytes() < 27 * 3_000 + 40 * 20);
    let one = Map::from([(vec![1; 70_000], Some(vec![2; 70_000]))]);
    check(&one, &[vec![1; 69_999], vec![1; 70_001]]);
    check(&Map::new(), &[vec![], vec![1]]);
    check(&Map::from([(vec![], Some(vec![]))]), &[vec![1]]);
}

#[test]
fn what_keys_share_is_there_once() {
    let key = |number: u32| format!("a long beginning that all of the keys have, and then {number:04}").into_bytes();
    let map: Map = (0..50).map(|number| (key(number), Some(vec![1]))).collect();
    let bytes = built(&map).bytes();
    assert!(bytes < 57 + 50 * (2 + 1 + 4) + 8, "{bytes}");
}
