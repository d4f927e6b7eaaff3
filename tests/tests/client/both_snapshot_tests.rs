//! Snapshots and folds over them, in the process and on a server.

use std::ops::Bound;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use client::{Client, ConnectOptions, FoldPage, FoldShow, IndexRange, Snapshot};
use holdfast::{
    Condition, ErrorKind, FeedItem, FeedLimit, Fold, FoldOrder, Indexes, LeafSet, Metadata, Page, Position, PutOptions,
    Term, TreeSize,
};
use holdfast_tests::Launch;
use tempfile::TempDir;

use crate::scene::{both, impatient};

fn put(client: &Client, bucket: &[u8], key: &str, value: &[u8]) -> Position {
    let options = PutOptions {
        indexes: Indexes::from_pairs([("length", Term::Integer(i64::try_from(value.len()).unwrap()))]),
        metadata: Metadata::from_pairs([("of", key)]),
        ..PutOptions::default()
    };
    client.kv().put(bucket, key.as_bytes(), value, &options, None).wait().unwrap().position
}

fn name(number: usize) -> String {
    format!("k{number:02}")
}

/// Twenty objects of one bucket, three of another one.
fn fill(client: &Client) {
    (0..20).for_each(|number| _ = put(client, b"b", &name(number), &vec![b'v'; number]));
    (0..3).for_each(|number| _ = put(client, b"c", &name(number), b"c"));
}

fn whole(bucket: &[u8]) -> Page<'_> {
    Page { bucket, start: Bound::Unbounded, end: Bound::Unbounded, limit: 1_000, values: true }
}

/// All pages of a fold, each of which is looked at.
fn fold_all(snapshot: &Snapshot, fold: &Fold<'_>, show: FoldShow, look: impl Fn(&FoldPage)) -> Vec<(String, String)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = snapshot.fold(&Fold { after: after.as_ref(), ..fold.clone() }, show).wait().unwrap();
        look(&page);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        all.extend(page.objects.iter().map(|object| (text(&object.bucket), text(&object.key))));
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

fn names(bucket: &str, numbers: impl IntoIterator<Item = usize>) -> Vec<(String, String)> {
    numbers.into_iter().map(|number| (bucket.to_owned(), name(number))).collect()
}

#[test]
fn what_was_there_is_there_however_it_changes() {
    both(|client| {
        fill(client);
        let kv = client.kv();
        let before = kv.get(b"b", b"k07").wait().unwrap().unwrap();
        let snapshot = client.snapshot().wait().unwrap();
        assert!(snapshot.position() >= kv.head(b"c", b"k02").wait().unwrap().unwrap().version);
        assert!(snapshot.position() < put(client, b"b", "k07", b"new"));
        put(client, b"b", "k99", b"new");
        kv.delete(b"b", b"k08", Condition::None, None).wait().unwrap();
        let was = snapshot.get(b"b", b"k07").wait().unwrap().unwrap();
        assert_eq!((&*was.value, &was.head), (&*before.value, &before.head));
        assert_eq!(snapshot.head(b"b", b"k08").wait().unwrap().unwrap().value_bytes, 8);
        assert_eq!(snapshot.get(b"b", b"k99").wait().unwrap().map(|object| object.head), None);
        assert_eq!(snapshot.head(b"nobody", b"k").wait().unwrap(), None);
        let page = snapshot.page(&whole(b"b")).wait().unwrap();
        let keys: Vec<Vec<u8>> = (0..20).map(|number| name(number).into_bytes()).collect();
        assert!(page.entries.iter().map(|(key, ..)| key).eq(&keys) && !page.more, "{page:?}");
        assert!(page.entries.iter().enumerate().all(|(length, (_, _, value))| value.as_ref().unwrap().len() == length));
        assert_eq!(snapshot.keys(&whole(b"b")).wait().unwrap().keys, keys);
        assert_eq!(snapshot.keys(&Page { limit: 3, ..whole(b"b") }).wait().unwrap().keys, keys[..3]);
        let range =
            IndexRange { from: Term::Integer(7), to: Term::Integer(8), term_regex: None, limit: 9, after: None };
        let found = snapshot.index(b"b", b"length", &range).wait().unwrap();
        assert!(found.entries.iter().map(|(_, key)| key).eq([b"k07", b"k08"]));
        assert_eq!(kv.index(b"b", b"length", &range).wait().unwrap().entries.len(), 0);
        assert_eq!(snapshot.count(&Fold::default()).wait().unwrap(), 23);
        let later = client.snapshot().wait().unwrap();
        assert_eq!(later.count(&Fold { bucket: Some(b"b"), ..Fold::default() }).wait().unwrap(), 20);
        assert_eq!(&*later.get(b"b", b"k07").wait().unwrap().unwrap().value, b"new");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let both =
            runtime.block_on(async { futures_util::join!(snapshot.count(&Fold::default()), later.head(b"b", b"k99")) });
        assert_eq!((both.0.unwrap(), both.1.unwrap().unwrap().value_bytes), (23, 3));
    });
}

#[test]
fn the_feed_tells_what_came_behind_a_snapshot() {
    both(|client| {
        fill(client);
        let snapshot = client.snapshot().wait().unwrap();
        let position = put(client, b"b", "k20", b"new");
        let mut feed = client.feed(Position::new(snapshot.position().get() + 1)).wait().unwrap();
        let limit = FeedLimit { items: 10, bytes: 1 << 20 };
        let items = feed.next(limit, Duration::from_secs(30)).wait().unwrap();
        assert_eq!(items.iter().map(FeedItem::position).collect::<Vec<_>>(), [position]);
    });
}

#[test]
fn a_fold_comes_to_all_objects_in_each_order_page_by_page() {
    both(|client| {
        fill(client);
        put(client, b"b", "k05", b"again");
        let snapshot = client.snapshot().wait().unwrap();
        let by_key = [names("b", 0..20), names("c", 0..3)].concat();
        let by_write = [names("b", (0..20).filter(|number| *number != 5)), names("c", 0..3), names("b", [5])].concat();
        for (order, expected) in
            [(FoldOrder::Key, Some(&by_key)), (FoldOrder::Write, Some(&by_write)), (FoldOrder::Partition, None)]
        {
            for limit in [1, 7, 23, usize::MAX] {
                let fold = Fold { order, limit, ..Fold::default() };
                let look = |page: &FoldPage| assert!(page.objects.len() <= limit.min(23), "{page:?}");
                let mut all = fold_all(&snapshot, &fold, FoldShow::Keys, look);
                if let Some(expected) = expected {
                    assert_eq!(&all, expected, "{order:?}, {limit} at a time");
                }
                all.sort();
                assert_eq!(all, by_key, "{order:?}, {limit} at a time");
            }
        }
        let of_other = snapshot.fold(&Fold { limit: 2, ..Fold::default() }, FoldShow::Keys).wait().unwrap().next;
        let mixed = Fold { after: of_other.as_ref(), order: FoldOrder::Write, ..Fold::default() };
        assert_eq!(snapshot.fold(&mixed, FoldShow::Keys).wait().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(snapshot.count(&mixed).wait().unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn a_fold_comes_to_what_is_wanted_and_counts_it() {
    both(|client| {
        fill(client);
        let snapshot = client.snapshot().wait().unwrap();
        let size = TreeSize::with_leaves(1024).unwrap();
        let regex = holdfast::regex("[03]$").unwrap();
        let leaves = LeafSet::new(size, (0..1024).filter(|leaf| leaf % 2 == 0)).unwrap();
        let others = LeafSet::new(size, (0..1024).filter(|leaf| leaf % 2 == 1)).unwrap();
        let none = LeafSet::new(size, []).unwrap();
        let b = Fold { bucket: Some(b"b"), ..Fold::default() };
        let modified = snapshot.head(b"b", b"k00").wait().unwrap().unwrap().modified_ms;
        let count = |fold: &Fold<'_>| snapshot.count(fold).wait().unwrap();
        let all = |fold: &Fold<'_>| {
            let all = fold_all(&snapshot, fold, FoldShow::Heads, |_| {});
            assert_eq!(count(&Fold { limit: usize::MAX, ..fold.clone() }), all.len() as u64);
            all
        };
        assert_eq!(all(&b), names("b", 0..20));
        let (start, end) = (Bound::Excluded(b"k05".as_slice()), Bound::Included(b"k08".as_slice()));
        assert_eq!(all(&Fold { start, end, ..b.clone() }), names("b", 6..9));
        assert_eq!(all(&Fold { key_regex: Some(&regex), limit: 2, ..b.clone() }), names("b", [0, 3, 10, 13]));
        assert_eq!(all(&Fold { modified_ms: 0..modified, ..Fold::default() }), []);
        assert_eq!(all(&Fold { modified_ms: modified..u64::MAX - 1, ..b.clone() }), names("b", 0..20));
        let parts = [&leaves, &others].map(|leaves| all(&Fold { leaves: Some(leaves), ..b.clone() }));
        let mut both_parts = parts.concat();
        both_parts.sort();
        assert_eq!(both_parts, names("b", 0..20));
        assert!(parts.iter().all(|part| !part.is_empty()), "{parts:?}");
        assert_eq!(all(&Fold { leaves: Some(&none), ..Fold::default() }), []);
        assert_eq!(count(&Fold { limit: 4, ..Fold::default() }), 4);
        let third = snapshot.fold(&Fold { limit: 3, ..b.clone() }, FoldShow::Keys).wait().unwrap().next;
        assert_eq!(count(&Fold { after: third.as_ref(), ..b.clone() }), 17);
        assert_eq!(all(&Fold { bucket: Some(b"nobody"), ..Fold::default() }), []);
        let endless = Fold { start, ..Fold::default() };
        for refused in [
            snapshot.fold(&endless, FoldShow::Keys).wait().map(|_| ()),
            snapshot.count(&endless).wait().map(|_| ()),
            snapshot.count(&Fold { bucket: Some(b"\0xa"), ..Fold::default() }).wait().map(|_| ()),
            snapshot.get(b"\0xa", b"k").wait().map(|_| ()),
            snapshot.keys(&whole(b"\0xa")).wait().map(|_| ()),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        }
    });
}

#[test]
fn a_fold_shows_what_it_was_asked_for_and_large_values_end_its_pages() {
    both(|client| {
        let value = vec![b'x'; 100 << 10];
        (0..30).for_each(|number| _ = put(client, b"large", &name(number), &value));
        let snapshot = client.snapshot().wait().unwrap();
        let fold = Fold::default();
        let pages = std::cell::Cell::new(0);
        let all = fold_all(&snapshot, &fold, FoldShow::Objects, |page| {
            pages.set(pages.get() + 1);
            assert!((1..=11).contains(&page.objects.len()), "{}", page.objects.len());
            assert!(page.objects.iter().all(|object| object.value.as_deref() == Some(value.as_slice())));
        });
        assert_eq!((all, pages.get()), (names("large", 0..30), 3));
        let page = snapshot.fold(&fold, FoldShow::Heads).wait().unwrap();
        assert_eq!((page.objects.len(), page.next.is_none()), (30, true));
        let head = client.kv().head(b"large", b"k00").wait().unwrap();
        assert_eq!((&page.objects[0].head, &page.objects[0].value), (&head, &None));
        let page = snapshot.fold(&fold, FoldShow::Keys).wait().unwrap();
        assert!(page.objects.iter().all(|object| object.head.is_none() && object.value.is_none()));
    });
}

/// The connection is the snapshot: it went with the call.
#[test]
fn a_call_that_is_dropped_leaves_the_snapshot() {
    both(|client| {
        fill(client);
        let snapshot = client.snapshot().wait().unwrap();
        for _ in 0..20 {
            let mut dropped = snapshot.count(&Fold::default());
            let _ = Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop()));
        }
        assert_eq!(snapshot.count(&Fold::default()).wait().unwrap(), 23);
        let held = snapshot.get(b"b", b"k01").begin();
        drop(snapshot);
        assert_eq!(&*held.wait().unwrap().unwrap().value, b"v", "what was begun has its answer");
    });
}

#[test]
fn a_snapshot_that_is_dropped_makes_room_for_others() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let options = ConnectOptions {
        timeout: Duration::from_secs(3),
        connections_max: 2,
        ..ConnectOptions::new(&server.resp().to_string())
    };
    let client = Client::connect(options).wait().unwrap();
    fill(&client);
    let (first, second) = (client.snapshot().wait().unwrap(), client.snapshot().wait().unwrap());
    let refused = client.snapshot().wait().map(|_| ()).unwrap_err();
    assert_eq!((refused.kind(), refused.to_string().contains("connections_max")), (ErrorKind::Unavailable, true));
    drop(first);
    assert_eq!(client.snapshot().wait().unwrap().count(&Fold::default()).wait().unwrap(), 23);
    drop(second);
    // The server has room for 256: it lets go of each with its connection, a moment after.
    let begun = Instant::now();
    let mut opened = 0;
    while opened < 600 {
        match client.snapshot().wait() {
            Ok(_) => opened += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{opened}");
    }
}

#[test]
fn a_snapshot_goes_with_its_server_and_says_so() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let address = server.resp().to_string();
    let client = impatient(&address);
    fill(&client);
    let snapshot = client.snapshot().wait().unwrap();
    assert_eq!(snapshot.count(&Fold::default()).wait().unwrap(), 23);
    server.kill();
    let gone = || {
        let kinds = [
            snapshot.count(&Fold::default()).wait().map(|_| ()),
            snapshot.get(b"b", b"k01").wait().map(|_| ()),
            snapshot.page(&whole(b"b")).wait().map(|_| ()),
        ];
        kinds.map(|refused| refused.unwrap_err().kind())
    };
    assert_eq!(gone(), [ErrorKind::Unavailable; 3]);
    assert_eq!(client.snapshot().wait().map(|_| ()).unwrap_err().kind(), ErrorKind::Unavailable);
    let _server = Launch::new(folder.path()).resp(&address).start_again();
    assert_eq!(gone(), [ErrorKind::Unavailable; 3], "it is not taken again behind anybody's back");
    assert_eq!(client.snapshot().wait().unwrap().count(&Fold::default()).wait().unwrap(), 23);
}
