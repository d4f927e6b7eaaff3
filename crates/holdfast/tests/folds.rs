//! Folds of every order against the obvious answer, on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};

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

fn count_by_write(store: &Store) -> usize {
    let mut count = 0;
    let fold = Fold { order: FoldOrder::Write, ..Fold::default() };
    let all = store.snapshot().unwrap().fold(&fold, &mut |_| {
        count += 1;
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(all.unwrap(), None);
    count
}

fn few_known() -> Options {
    let limits = Limits { page_entries_max: 1, ..Limits::tiny() };
    Options { durability: Durability::Written, limits, partitions: 1, ..Options::default() }
}

/// A fold in the order of writing knows of so many objects at once. When the last of them was in the middle of a batch, the rest of the
/// batch was left out, and all that followed if the journal ended there.
#[test]
fn a_fold_in_the_order_of_writing_comes_to_all_of_a_batch_in_whose_middle_it_looks_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), few_known()).unwrap();
    for batch in 0..100u8 {
        let mut exclusive = store.exclusive(&Scope::All).unwrap();
        for key in 0..3u8 {
            exclusive.put(b"b", &[batch, key], b"value", &PutOptions::default()).unwrap();
        }
        exclusive.commit().unwrap();
    }
    assert_eq!(count_by_write(&store), 300);
}

/// The last that was known of lies in damage: the one behind it was taken for one that is not shown.
#[test]
fn a_fold_in_the_order_of_writing_passes_over_damage_alone() {
    let (mut folded, dir) = (Vec::new(), tempfile::tempdir().unwrap());
    let store = Store::open(dir.path(), few_known()).unwrap();
    for key in 0..40u8 {
        store.kv().put(b"b", &[key], &[100 + key; 50], &PutOptions::default()).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let journal = dir.path().join("journal");
    let files = || std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
    let whole: Vec<_> = files().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    // Of which two are looked up, and the next ten are known of.
    for key in 8..16u8 {
        for (path, bytes) in &whole {
            let mut bytes = bytes.clone();
            if let Some(at) = bytes.windows(50).position(|window| window == [100 + key; 50]) {
                bytes[at] ^= 0xff;
            }
            std::fs::write(path, bytes).unwrap();
        }
        let store = Store::open(dir.path(), few_known()).unwrap();
        folded.push(count_by_write(&store));
    }
    assert_eq!(folded, [39; 8]);
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

/// A store whose fold in the order of writing knows of no more than a part of its objects at once, with objects whose
/// expiry was changed, later and by the batch that put them, and with what compaction has moved.
#[test]
fn a_fold_in_the_order_of_writing_shows_what_one_in_the_order_of_keys_shows() {
    const OBJECTS: usize = 2_400;
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
    let store = Store::open(dir.path(), options).unwrap();
    assert!(OBJECTS > store.limits().page_entries_max * 20, "so many pages are known of at once, twice");
    let later = |number: usize| 4_000_000_000_000 + number as u64;
    let key = |number: usize| format!("key-{:04}", number * 7 % OBJECTS).into_bytes();
    for round in 0..2 {
        for number in (0..OBJECTS).filter(|number| round == 0 || number % 3 == 0) {
            let value = vec![(number % 251) as u8; number % 60 + round];
            let expires_ms = (number % 5 == 0).then(|| later(number));
            let indexes = Indexes::from_pairs([("size", Term::Integer(value.len() as i64))]);
            let put = PutOptions { expires_ms, indexes, ..PutOptions::default() };
            let name: (&[u8], &[u8]) = (b"bucket", &key(number));
            let mut batch = store.exclusive(&Scope::Keys(&[name])).unwrap();
            batch.put(name.0, name.1, &value, &put).unwrap();
            if number % 11 == 0 {
                batch.expire(name.0, name.1, Some(later(2 * number))).unwrap();
            }
            batch.commit().unwrap();
        }
    }
    store.compact().unwrap();
    for number in (0..OBJECTS).step_by(13) {
        match number % 3 {
            0 => drop(store.kv().delete(b"bucket", &key(number), Condition::None).unwrap()),
            1 => assert!(store.kv().expire(b"bucket", &key(number), None).unwrap()),
            _ => assert!(store.kv().expire(b"bucket", &key(number), Some(1)).unwrap()),
        }
    }
    let snapshot = store.snapshot().unwrap();
    store.kv().put(b"bucket", b"late", b"", &PutOptions::default()).unwrap();
    let shown = |fold: &Fold<'_>| {
        let mut shown = BTreeMap::new();
        let next = snapshot.fold(fold, &mut |folded| {
            let before = shown.insert(folded.key().to_vec(), (folded.head()?, folded.value()?.to_vec()));
            assert_eq!(before, None, "each comes once");
            Ok(ControlFlow::Continue(()))
        });
        (shown, next.unwrap())
    };
    let (wanted, _) = shown(&Fold::default());
    assert!(wanted.len() > OBJECTS - 200 && wanted.values().any(|(head, _)| head.expires_ms.is_none()));
    let (found, next) = shown(&Fold { order: FoldOrder::Write, ..Fold::default() });
    assert_eq!((found, next), (wanted.clone(), None));
    for limit in [1, 90, 700, 1_000, 1_999, wanted.len() - 1, wanted.len()] {
        let (mut found, mut after) = (BTreeMap::new(), None);
        loop {
            let (page, next) =
                shown(&Fold { order: FoldOrder::Write, limit, after: after.as_ref(), ..Fold::default() });
            assert!(page.len() == limit || next.is_none(), "{} of {limit}", page.len());
            found.extend(page);
            after = next;
            if after.is_none() || (limit == 1 && found.len() == 40) {
                break;
            }
        }
        assert!(limit == 1 || found == wanted, "{} of {} by {limit}", found.len(), wanted.len());
    }
    let some =
        Fold { order: FoldOrder::Write, bucket: Some(b"bucket"), start: Bound::Included(b"key-2"), ..Fold::default() };
    assert_eq!(shown(&some).0.len(), wanted.keys().filter(|key| key.as_slice() >= b"key-2".as_slice()).count());
}

/// So many that a fold by key gets a second thread where there is a processor for it.
fn many(dir: &std::path::Path) -> (Store, Vec<Name>) {
    let options = Options { durability: Durability::Written, ..Options::default() };
    let store = Store::open(dir, options).unwrap();
    let mut names = Vec::new();
    for number in 0..15_000usize {
        let bucket = if number % 5 == 0 { b"odd\0".to_vec() } else { b"even".to_vec() };
        let key = format!("key-{:05}", number * 7919 % 15_000).into_bytes();
        store.kv().put(&bucket, &key, &key, &PutOptions::default()).unwrap();
        names.push((bucket, key));
    }
    for (bucket, key) in names.split_off(14_000) {
        store.kv().delete(&bucket, &key, Condition::None).unwrap();
    }
    names.sort();
    (store, names)
}

#[test]
fn a_long_fold_shows_everything_once_in_order_and_stops_where_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (store, names) = many(dir.path());
    let snapshot = store.snapshot().unwrap();
    store.kv().put(b"even", b"later", b"", &PutOptions::default()).unwrap();
    let in_order = |found: Vec<(Name, Vec<u8>)>| {
        assert!(found.iter().all(|((_, key), value)| key == value));
        found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(in_order(pages(&snapshot, &Fold::default())), names);
    for limit in [4095, 4096, 4097, 9000] {
        assert_eq!(in_order(pages(&snapshot, &Fold { limit, ..Fold::default() })), names, "{limit}");
    }
    let even: Vec<_> = names.iter().filter(|(bucket, _)| bucket == b"even").cloned().collect();
    assert_eq!(in_order(pages(&snapshot, &Fold { bucket: Some(b"even"), ..Fold::default() })), even);
    for stop in [1, 4096, 4097, 8000, names.len() - 1, names.len()] {
        let mut seen = 0;
        let next = snapshot.fold(&Fold::default(), &mut |_| {
            seen += 1;
            Ok(if seen == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        assert_eq!(seen, stop);
        let rest = next.unwrap().map(|after| pages(&snapshot, &Fold { after: Some(&after), ..Fold::default() }));
        assert_eq!(in_order(rest.unwrap_or_default()), names[stop..], "{stop}");
        let failed = snapshot.fold(&Fold::default(), &mut |_| {
            seen -= 1;
            if seen == 0 { Err(Error::new(ErrorKind::Invalid, "enough")) } else { Ok(ControlFlow::Continue(())) }
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn long_folds_at_the_same_time_show_the_same_and_panic_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let (store, names) = many(dir.path());
    let snapshot = store.snapshot().unwrap();
    let count = || {
        let mut seen = names.iter();
        let all = snapshot.fold(&Fold::default(), &mut |folded| {
            let (bucket, key) = seen.next().unwrap();
            assert_eq!((bucket.as_slice(), key.as_slice()), (folded.bucket(), folded.key()));
            Ok(ControlFlow::Continue(()))
        });
        (all.unwrap(), seen.len())
    };
    std::thread::scope(|scope| {
        let folds: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..5).map(|_| count()).collect::<Vec<_>>())).collect();
        let panics = scope.spawn(|| {
            let mut left = 6000;
            snapshot.fold(&Fold::default(), &mut |_| {
                left -= 1;
                assert_ne!(left, 0, "on purpose");
                Ok(ControlFlow::Continue(()))
            })
        });
        assert!(panics.join().is_err());
        assert!(folds.into_iter().all(|fold| fold.join().unwrap() == vec![(None, 0); 5]));
    });
}

/// The files of a ledger's tables.
fn tables(dir: &Path, partition: u32) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(dir.join(format!("ledger/{partition:04}"))).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "table")).collect()
}

/// Of the partitions that the second thread goes through.
#[test]
fn a_long_fold_that_comes_upon_damage_fails_and_the_next_shows_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (store, names) = many(dir.path());
    store.close().unwrap();
    drop(store);
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let snapshot = store.snapshot().unwrap();
    for partition in 8..16 {
        for path in tables(dir.path(), partition) {
            let mut bytes = std::fs::read(&path).unwrap();
            let (half, most) = (bytes.len() / 2, bytes.len() * 9 / 10);
            bytes[half..most].iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let mut seen = names.iter();
    let failed = snapshot.fold(&Fold::default(), &mut |folded| {
        let (bucket, key) = seen.next().unwrap();
        assert_eq!((bucket.as_slice(), key.as_slice()), (folded.bucket(), folded.key()));
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!((1000..names.len() - 4096).contains(&seen.len()), "{}", seen.len());
    drop(snapshot);
    // What is found damaged is filled again from the journal; each ledger is found by whoever comes upon it.
    for _ in 0..600 {
        let snapshot = store.snapshot().unwrap();
        let mut found = Vec::new();
        let all = snapshot.fold(&Fold::default(), &mut |folded| {
            found.push((folded.bucket().to_vec(), folded.key().to_vec()));
            Ok(ControlFlow::Continue(()))
        });
        if all.is_ok() {
            assert_eq!(found, names);
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it stays damaged");
}

#[test]
fn a_continuation_of_another_bucket_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { durability: Durability::Written, ..Options::default() }).unwrap();
    for (bucket, key) in [(&b"b"[..], &b"k"[..]), (b"b", b"l"), (b"c", b"k"), (b"c", b"l")] {
        store.kv().put(bucket, key, b"v", &PutOptions::default()).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for order in [FoldOrder::Key, FoldOrder::Partition] {
        let fold = |bucket, after| {
            let fold = Fold { bucket, order, limit: 1, after, ..Fold::default() };
            snapshot.fold(&fold, &mut |_| Ok(ControlFlow::Continue(())))
        };
        let next = fold(Some(b"b"), None).unwrap().unwrap();
        assert!(fold(Some(b"b"), Some(&next)).is_ok() && fold(None, Some(&next)).is_ok());
        assert_eq!(fold(Some(b"c"), Some(&next)).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
