//! Folds of every order against the obvious answer, on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use holdfast::*;

type Name = (Vec<u8>, Vec<u8>);
type Objects = BTreeMap<Name, Vec<u8>>;

fn filled(dir: &std::path::Path) -> (Store, Objects) {
    let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
    let store = Store::open(dir, options).unwrap();
    let mut objects = Objects::new();
    for number in 0..300usize {
        let bucket = if number % 3 == 0 { b"odd\0".to_vec() } else { b"even".to_vec() };
        let key = format!("key-{:03}", number * 7 % 200).into_bytes();
        let value = vec![(number % 251) as u8; number % 90];
        store.kv().put(&bucket, &key, &value, &PutOptions::default()).unwrap();
        objects.insert((bucket, key), value);
    }
    for key in ["key-007", "key-008"] {
        store.kv().delete(b"even", key.as_bytes(), Condition::None).unwrap();
        objects.remove(&(b"even".to_vec(), key.as_bytes().to_vec()));
    }
    store.kv().expire(b"even", b"key-001", Some(1)).unwrap();
    objects.remove(&(b"even".to_vec(), b"key-001".to_vec()));
    (store, objects)
}

/// Goes through everything in pages, and returns what was found in the order of the fold.
fn pages(snapshot: &Snapshot, fold: &Fold<'_>) -> Vec<(Name, Vec<u8>)> {
    let mut found = Vec::new();
    let mut after = fold.after.cloned();
    loop {
        let mut count = 0;
        let page = Fold { after: after.as_ref(), ..fold.clone() };
        let next = snapshot.fold(&page, &mut |folded| {
            count += 1;
            assert_eq!(folded.head()?.value_bytes, folded.value_bytes());
            found.push(((folded.bucket().to_vec(), folded.key().to_vec()), folded.value()?.to_vec()));
            Ok(ControlFlow::Continue(()))
        });
        assert!(count <= fold.limit);
        match next.unwrap() {
            None => return found,
            Some(cursor) => after = Some(FoldCursor::decode(&cursor.encode()).unwrap()),
        }
    }
}

#[test]
fn every_order_comes_to_every_object_once_whatever_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = filled(dir.path());
    let snapshot = store.snapshot().unwrap();
    // What comes later is not seen.
    store.kv().put(b"even", b"late", b"late", &PutOptions::default()).unwrap();
    store.kv().delete(b"even", b"key-010", Condition::None).unwrap();
    for order in [FoldOrder::Key, FoldOrder::Write, FoldOrder::Partition] {
        for limit in [1, 7, usize::MAX] {
            let found = pages(&snapshot, &Fold { order, limit, ..Fold::default() });
            assert_eq!(found.len(), objects.len(), "{order:?} by {limit}");
            if order == FoldOrder::Key {
                assert!(found.is_sorted_by(|a, b| a.0 < b.0));
            }
            assert_eq!(found.into_iter().collect::<Objects>(), objects, "{order:?} by {limit}");
        }
        let odd = pages(&snapshot, &Fold { order, bucket: Some(b"odd\0"), ..Fold::default() });
        assert!(!odd.is_empty() && odd.iter().all(|((bucket, _), _)| bucket == b"odd\0"));
        assert_eq!(odd.len(), objects.keys().filter(|(bucket, _)| bucket == b"odd\0").count());
    }
    let one = Fold { limit: 1, ..Fold::default() };
    let other = snapshot.fold(&one, &mut |_| Ok(ControlFlow::Continue(()))).unwrap();
    let wrong = Fold { order: FoldOrder::Write, after: other.as_ref(), ..Fold::default() };
    let refused = snapshot.fold(&wrong, &mut |_| Ok(ControlFlow::Continue(()))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn folds_pick_by_range_expression_time_and_leaf_and_stop_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = filled(dir.path());
    let snapshot = store.snapshot().unwrap();
    let count = |fold: &Fold<'_>| pages(&snapshot, fold).len();
    let expected = |wanted: &dyn Fn(&[u8], &[u8]) -> bool| objects.keys().filter(|(b, k)| wanted(b, k)).count();
    for order in [FoldOrder::Key, FoldOrder::Write, FoldOrder::Partition] {
        let range = Fold {
            order,
            bucket: Some(b"even"),
            start: Bound::Excluded(b"key-020"),
            end: Bound::Included(b"key-040"),
            ..Fold::default()
        };
        assert_eq!(count(&range), expected(&|b, k| b == b"even" && k > &b"key-020"[..] && k <= &b"key-040"[..]));
        let backwards = Fold { start: Bound::Included(b"z"), end: Bound::Included(b"a"), ..range.clone() };
        assert_eq!(count(&backwards), 0);
        let expression = regex("5$").unwrap();
        let fives = Fold { order, key_regex: Some(&expression), ..Fold::default() };
        assert_eq!(count(&fives), expected(&|_, k| k.ends_with(b"5")));
        assert_eq!(count(&Fold { order, modified_ms: 0..1000, ..Fold::default() }), 0);
        let leaves = LeafSet::new(TreeSize::default(), (0..1 << 15).step_by(2)).unwrap();
        let under = Fold { order, leaves: Some(&leaves), ..Fold::default() };
        assert_eq!(count(&under), expected(&|b, k| leaves.contains(object_hash(b, k))));
        let mut seen = 0;
        let stopped = snapshot.fold(&Fold { order, ..Fold::default() }, &mut |_| {
            seen += 1;
            Ok(if seen == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        assert_eq!(seen, 5);
        let cursor = stopped.unwrap();
        assert_eq!(count(&Fold { order, after: cursor.as_ref(), ..Fold::default() }), objects.len() - 5);
    }
}
