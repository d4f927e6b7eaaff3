//! The change feed, and checks of the kept Merkle tree, on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::time::Duration;

use holdfast::*;

fn options() -> Options {
    let compaction = CompactionOptions { schedule: Schedule::OnDemand, keep_bytes: 0, ..CompactionOptions::default() };
    Options { durability: Durability::Written, limits: Limits::tiny(), partitions: 4, compaction, ..Options::default() }
}

fn all(feed: &mut Feed, items: usize) -> Vec<FeedItem> {
    let mut found = Vec::new();
    loop {
        let next = feed.next(FeedLimit { items, bytes: 1 << 20 }, Duration::ZERO).unwrap();
        if next.is_empty() {
            return found;
        }
        assert!(next.len() <= items);
        found.extend(next);
    }
}

fn put(store: &Store, key: &[u8], value: &[u8]) -> Position {
    store.kv().put(b"b", key, value, &PutOptions::default()).unwrap().position
}

#[test]
fn every_batch_comes_once_in_order_and_a_feed_goes_on_where_it_was_also_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), options()).unwrap();
    let mut expected = Vec::new();
    let mut next = Position::ZERO;
    let mut found = Vec::new();
    for round in 0..30u8 {
        expected.push(put(&store, &[round], &vec![round; usize::from(round) * 20]));
        if round % 3 == 0 {
            expected.push(store.kv().delete(b"b", &[round], Condition::None).unwrap().unwrap().position);
        }
        if round % 7 == 0 {
            let mut both = store.exclusive(&Scope::All).unwrap();
            both.clear(b"other").unwrap();
            both.put(b"b", b"x", b"1", &PutOptions::default()).unwrap();
            both.put(b"b", b"y", b"2", &PutOptions::default()).unwrap();
            expected.push(both.commit().unwrap().position);
        }
        let mut feed = store.feed(next).unwrap();
        let items = all(&mut feed, 1 + usize::from(round) % 4);
        next = feed.position();
        drop(feed);
        found.extend(items);
        if round % 10 == 9 {
            store.close().unwrap();
            drop(store);
            store = Store::open(dir.path(), options()).unwrap();
        }
    }
    assert_eq!(found.iter().map(FeedItem::position).collect::<Vec<_>>(), expected);
    let whole = all(&mut store.feed(Position::ZERO).unwrap(), 1000);
    assert_eq!(whole, found, "the feed of a reader who comes late is the same");
    let FeedItem::Batch { changes, .. } = &found[2] else { panic!("{:?}", found[2]) };
    let clears = changes.iter().filter(|change| matches!(change, FeedChange::Clear { .. })).count();
    assert_eq!((changes.len(), clears), (3, 1), "{changes:?}");
    // Behind the last item there is nothing, until there is.
    let mut feed = store.feed(Position::new(expected.last().unwrap().get() + 1)).unwrap();
    assert!(feed.next(FeedLimit { items: 1, bytes: 1 }, Duration::from_millis(5)).unwrap().is_empty());
    assert!(!feed.has_more(), "although it began inside the last item");
    let again = store.feed(Position::ZERO).unwrap();
    assert!(again.has_more());
    drop(again);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| feed.next(FeedLimit { items: 1, bytes: 1 }, Duration::from_secs(60)).unwrap());
        let late = put(&store, b"late", b"v");
        assert_eq!(waiting.join().unwrap()[0].position(), late);
    });
}

/// A segment to which nobody had written was taken for one that compaction had let go of: whoever opened and closed a store, and
/// changed nothing, lost the place of every feed, listener and mirror.
#[test]
fn a_feed_goes_on_where_it_was_after_a_store_was_opened_and_closed_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let first = put(&store, b"first", b"1");
    store.close().unwrap();
    drop(store);
    for _ in 0..3 {
        let idle = Store::open(dir.path(), options()).unwrap();
        idle.close().unwrap();
    }
    let store = Store::open(dir.path(), options()).unwrap();
    let last = put(&store, b"last", b"2");
    let mut feed = store.feed(first).unwrap();
    let found: Vec<Position> = all(&mut feed, 10).iter().map(FeedItem::position).collect();
    assert_eq!(found, [first, last]);
    // What compaction lets go of is said as ever.
    drop(feed);
    for _ in 0..100 {
        put(&store, b"k", &[7; 700]);
    }
    while store.compact().unwrap().segments == 0 {
        std::thread::yield_now();
    }
    assert_eq!(store.feed(first).err().unwrap().kind(), ErrorKind::Invalid);
}

/// A feed that showed only what happened to be synced stood still behind writers at `written` for as long as nobody else had anything
/// synced, and who followed it took an old copy for a whole one.
#[test]
fn what_was_acknowledged_at_less_is_made_durable_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { durability: Durability::Synced, ..options() }).unwrap();
    let mut feed = store.feed(Position::ZERO).unwrap();
    let write =
        |key: &[u8]| store.kv().put_at(b"b", key, b"v", &PutOptions::default(), Durability::Written).unwrap().position;
    let first = write(b"first");
    assert!(feed.has_more());
    let items = all(&mut feed, 10);
    assert_eq!(items.iter().map(FeedItem::position).collect::<Vec<_>>(), [first]);
    assert!(store.watermarks().synced > first && !feed.has_more());

    let second = write(b"second");
    let items = all(&mut feed.shown_at(Durability::Written), 10);
    assert_eq!(items.iter().map(FeedItem::position).collect::<Vec<_>>(), [second]);
}

#[test]
fn a_page_ends_by_the_bytes_of_its_values_also_when_the_journal_has_them_compressed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let value = vec![b'v'; store.limits().value_bytes_max];
    let compressed = PutOptions { compression: Some(Compression::Zstd), ..PutOptions::default() };
    for key in 0..20u8 {
        store.kv().put(b"b", &[key], &value, &compressed).unwrap();
    }
    let mut feed = store.feed(Position::ZERO).unwrap();
    let limit = FeedLimit { items: 100, bytes: 3 * value.len() as u64 };
    let sizes: Vec<usize> = (0..7).map(|_| feed.next(limit, Duration::ZERO).unwrap().len()).collect();
    assert_eq!(sizes, [3, 3, 3, 3, 3, 3, 2]);
}

#[test]
fn compaction_leaves_what_a_feed_has_not_read_and_says_what_it_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    put(&store, b"cold", &[1; 300]);
    let first: Vec<Position> = (0..40u8).map(|round| put(&store, b"hot", &[round; 900])).collect();
    let mut feed = store.feed(Position::ZERO).unwrap();
    assert_eq!(store.compact().unwrap().segments, 0, "a feed stands before all of it");
    assert_eq!(all(&mut feed, 1000).len(), 41);
    // Segments are sealed in the background, which may come late on a busy machine.
    let compacted = (0..100_000).any(|_| {
        std::thread::yield_now();
        store.compact().unwrap().segments > 0
    });
    assert!(compacted);
    let late = put(&store, b"hot", b"late");
    let items = all(&mut feed, 1000);
    assert_eq!(items.iter().map(FeedItem::position).collect::<Vec<_>>(), [late], "what was moved is no change");
    drop(feed);
    let floor = store.feed_floor();
    assert!(floor > first[0]);
    for wrong in [Position::ZERO, Position::new(late.get() + 100_000)] {
        let refused = store.feed(wrong).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains(&floor.to_string()), "{refused}");
    }
    assert!(!all(&mut store.feed(floor).unwrap(), 10).is_empty());
}

/// Feeds were looked at only when a segment was chosen: one that began while the segment was moved, or waited for a snapshot, passed over
/// what had been in it, and nobody was told.
#[test]
fn a_feed_that_begins_while_a_segment_waits_to_be_let_go_misses_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let mut written: Vec<Position> = (0..60u8).map(|key| put(&store, &[key], &[1; 500])).collect();
    let snapshot = store.snapshot().unwrap();
    written.extend((0..60u8).map(|key| put(&store, &[key], &[2; 500])));
    // Segments are sealed in the background, which may come late on a busy machine.
    let waits = (0..100_000).any(|_| {
        std::thread::yield_now();
        store.compact().unwrap().waiting > 0
    });
    assert!(waits && store.stats().compaction.segments == 0);
    let mut feed = store.feed(Position::ZERO).unwrap();
    drop(snapshot);
    let kept = store.compact().unwrap();
    assert!(kept.waiting > 0 && kept.segments == 0, "{kept:?}");
    assert_eq!(all(&mut feed, 1000).iter().map(FeedItem::position).collect::<Vec<_>>(), written);
    let done = store.compact().unwrap();
    assert!(done.waiting == 0 && done.segments >= kept.waiting, "it was read: {done:?}");
}

/// Compaction removed the segment that the first opening had left empty, and the feed took that for history that was let go.
#[test]
fn the_feed_of_a_store_of_which_nothing_was_let_go_begins_at_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), options()).unwrap();
    for _ in 0..3 {
        store.close().unwrap();
        drop(store);
        store = Store::open(dir.path(), options()).unwrap();
        store.compact().unwrap();
        assert_eq!(store.feed_floor(), Position::ZERO);
    }
    let first = put(&store, b"k", b"v");
    let items = all(&mut store.feed(Position::ZERO).unwrap(), 10);
    assert_eq!(items.iter().map(FeedItem::position).collect::<Vec<_>>(), [first]);
}

/// Who had read all that was let go was told that he had missed some of it.
#[test]
fn who_stands_at_the_end_of_what_was_let_go_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), options()).unwrap();
    put(&store, b"k", b"v");
    store.kv().delete(b"b", b"k", Condition::None).unwrap();
    let mut feed = store.feed(Position::ZERO).unwrap();
    assert_eq!(all(&mut feed, 10).len(), 2);
    let next = feed.position();
    drop(feed);
    store.close().unwrap();
    drop(store);
    store = Store::open(dir.path(), options()).unwrap();
    let later = put(&store, b"later", b"v");
    assert_eq!(store.compact().unwrap().segments, 1);
    for _ in 0..3 {
        assert_eq!(store.feed_floor(), next);
        let before = store.feed(Position::new(next.get() - 1)).err().unwrap();
        assert_eq!(before.kind(), ErrorKind::Invalid);
        let items = all(&mut store.feed(next).unwrap(), 10);
        assert_eq!(items.iter().map(FeedItem::position).collect::<Vec<_>>(), [later]);
        store.close().unwrap();
        drop(store);
        store = Store::open(dir.path(), options()).unwrap();
    }
}

#[test]
fn a_check_of_the_tree_finds_it_whole_beside_writers_and_names_damaged_values() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    for key in 0..100u8 {
        put(&store, &[key], &[key; 400]);
    }
    store.kv().expire(b"b", &[3], Some(1)).unwrap();
    std::thread::scope(|scope| {
        let write = |n: u32| put(&store, &[(n % 100) as u8], &n.to_le_bytes());
        let writer = scope.spawn(move || (0..400).map(write).max());
        while !writer.is_finished() {
            let check = store.rebuild_tree(TreeValues::Trust).unwrap();
            assert_eq!((check.mended, check.value_bytes), (0, 0));
        }
    });
    for key in 0..100u8 {
        put(&store, &[key], &[key; 400]);
    }
    let check = store.rebuild_tree(TreeValues::Read).unwrap();
    assert_eq!((check.objects, check.mended, check.value_bytes), (100, 0, 40_000));
    store.close().unwrap();
    // One value rots.
    let needle = [77u8; 400];
    let mut hit = 0;
    for entry in std::fs::read_dir(dir.path().join("journal")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(400).position(|window| window == needle) {
            bytes[at + 9] ^= 1;
            hit += 1;
            std::fs::write(&path, &bytes).unwrap();
        }
    }
    assert!(hit > 0);
    let store = Store::open(dir.path(), options()).unwrap();
    let check = store.rebuild_tree(TreeValues::Read).unwrap();
    assert_eq!((check.mended, check.damaged), (0, vec![(b"b".to_vec(), vec![77])]));
    drop(store);
    let store = Store::open(dir.path(), Options { tree: None, ..options() }).unwrap();
    assert_eq!(store.rebuild_tree(TreeValues::Trust).unwrap_err().kind(), ErrorKind::Invalid);
}

/// The segment that is written to counted as full: after the first restart of a small store everything before was "more than the
/// newest 64 MiB", and went.
#[test]
fn a_small_store_keeps_its_whole_journal_over_any_number_of_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let compaction = CompactionOptions { schedule: Schedule::OnDemand, ..CompactionOptions::default() };
    let options = Options { durability: Durability::Written, partitions: 4, compaction, ..Options::default() };
    let mut expected = Vec::new();
    for round in 0..6_u8 {
        let store = Store::open(dir.path(), options.clone()).unwrap();
        for _ in 0..200 {
            // All but the last is dead.
            expected.push(put(&store, b"k", &vec![round; 300]));
        }
        let _ = store.compact();
        while store.stats().compaction.is_running {
            std::thread::yield_now();
        }
        let found = all(&mut store.feed(Position::ZERO).unwrap(), 100);
        assert_eq!(found.len(), expected.len(), "round {round}");
        store.close().unwrap();
    }
}
