//! The change feed, in the process and on a server.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use client::{Client, Feed};
use holdfast::{
    CompactionOptions, Condition, ErrorKind, FeedChange, FeedItem, FeedLimit, Fold, Indexes, Limits, Metadata, Options,
    Position, PutOptions, Store, Term,
};
use holdfast_tests::{Launch, until};
use tempfile::TempDir;

use crate::scene::{both, configured, connect, impatient, order, orders, upsert};

const MANY: FeedLimit = FeedLimit { items: 1_000, bytes: 1 << 20 };
const LONG: Duration = Duration::from_secs(30);

fn put(client: &Client, key: &str) -> Position {
    client.kv().put(b"b", key.as_bytes(), b"v", &PutOptions::default(), None).wait().unwrap().position
}

/// All there is to be read now.
fn all(feed: &mut Feed) -> Vec<FeedItem> {
    let mut all = Vec::new();
    loop {
        let items = feed.next(MANY, Duration::ZERO).wait().unwrap();
        if items.is_empty() {
            return all;
        }
        all.extend(items);
    }
}

fn keys_of(items: &[FeedItem]) -> Vec<String> {
    let key = |change: &FeedChange| match change {
        FeedChange::Put { key, .. } => String::from_utf8(key.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    let of = |item: &FeedItem| match item {
        FeedItem::Batch { changes, .. } => changes.iter().map(key).collect::<Vec<_>>(),
        FeedItem::Lost { .. } => panic!("{item:?}"),
    };
    items.iter().flat_map(of).collect()
}

fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("k{number:02}")).collect()
}

#[test]
fn batches_are_told_in_order_with_all_that_they_changed() {
    both(|client| {
        let mut feed = client.feed(Position::ZERO).wait().unwrap();
        assert_eq!(all(&mut feed), []);
        let options = PutOptions {
            expires_ms: Some(4_000_000_000_000),
            metadata: Metadata::from_pairs([("by", "ada\r\n")]),
            indexes: Indexes::from_pairs([("age", Term::Integer(-7)), ("name", Term::Binary(b"a\xff".to_vec()))]),
            ..PutOptions::default()
        };
        let kv = client.kv();
        let first = kv.put(b"b\r\n", b"\0k", b"v\xff", &options, None).wait().unwrap().position;
        let modified_ms = kv.head(b"b\r\n", b"\0k").wait().unwrap().unwrap().modified_ms;
        let orders = orders(client);
        let mut batch = client.batch();
        let _ = batch.write(&orders, &order(1, 1), &upsert());
        let _ = batch.delete(b"b\r\n", b"\0k", Condition::None);
        let _ = batch.put(b"b", b"k", b"", &PutOptions::default());
        let second = batch.commit().wait().unwrap().position;
        let items = all(&mut feed);
        let put = FeedChange::Put {
            bucket: b"b\r\n".to_vec(),
            key: b"\0k".to_vec(),
            value: b"v\xff".to_vec(),
            metadata: options.metadata,
            indexes: options.indexes,
            modified_ms,
            expires_ms: options.expires_ms,
        };
        assert_eq!(items.first(), Some(&FeedItem::Batch { position: first, changes: vec![put] }));
        let Some(FeedItem::Batch { position, changes }) = items.last() else { panic!("{items:?}") };
        assert_eq!((*position, changes.len(), items.len()), (second, 2, 2), "entries of spaces are not in it");
        assert!(changes.contains(&FeedChange::Delete { bucket: b"b\r\n".to_vec(), key: b"\0k".to_vec() }));
        assert!(feed.position() > second);
    });
}

#[test]
fn a_server_tells_new_expiries_and_buckets_that_were_emptied() {
    let folder = TempDir::new().unwrap();
    let server = configured(&folder, "[script]\nsteps_max = 1000000000000\ntime_milliseconds_max = 10000\n").start();
    let client = connect(&server);
    let mut feed = client.feed(Position::ZERO).wait().unwrap();
    let eval = |script: &str| drop(client.scripts().eval(script, &[], &[]).wait().unwrap());
    eval("redis.call('SET', 'k', 'v')");
    eval("redis.call('PEXPIREAT', 'k', '4000000000000')");
    eval("redis.call('PERSIST', 'k')");
    server.client().call(&["FLUSHDB"]).unwrap();
    let changes: Vec<FeedChange> = all(&mut feed).into_iter().skip(1).flat_map(changes_of).collect();
    let (bucket, key) = (b"db0".to_vec(), b"k".to_vec());
    let expire = |expires_ms| FeedChange::Expire { bucket: bucket.clone(), key: key.clone(), expires_ms };
    let clear = FeedChange::Clear { bucket: bucket.clone() };
    assert_eq!(changes, [expire(Some(4_000_000_000_000)), expire(None), clear]);
}

fn changes_of(item: FeedItem) -> Vec<FeedChange> {
    match item {
        FeedItem::Batch { changes, .. } => changes,
        FeedItem::Lost { .. } => panic!("{item:?}"),
    }
}

#[test]
fn another_feed_goes_on_where_one_stood() {
    both(|client| {
        let positions: Vec<Position> = names(0..20).iter().map(|name| put(client, name)).collect();
        let mut feed = client.feed(Position::ZERO).wait().unwrap();
        let five = FeedLimit { items: 5, ..MANY };
        assert_eq!(keys_of(&feed.next(five, LONG).wait().unwrap()), names(0..5));
        assert!(positions[4] < feed.position() && feed.position() <= positions[5]);
        let mut other = client.feed(feed.position()).wait().unwrap();
        assert_eq!(keys_of(&other.next(five, LONG).wait().unwrap()), names(5..10));
        assert_eq!(keys_of(&all(&mut feed)), names(5..20));
        let one = FeedLimit { items: 0, bytes: 0 };
        let mut behind = client.feed(Position::new(positions[17].get() + 1)).wait().unwrap();
        assert_eq!(keys_of(&behind.next(one, LONG).wait().unwrap()), names(18..19));
    });
}

/// What was read for a call that nobody waited for any more was lost.
#[test]
fn a_call_that_is_dropped_takes_nothing_from_the_feed() {
    both(|client| {
        names(0..5).iter().for_each(|name| _ = put(client, name));
        let mut feed = client.feed(Position::ZERO).wait().unwrap();
        for _ in 0..5 {
            let mut dropped = feed.next(FeedLimit { items: 2, ..MANY }, Duration::ZERO);
            if Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                // What was told was told.
                feed = client.feed(Position::ZERO).wait().unwrap();
            }
        }
        assert_eq!(feed.position(), Position::ZERO);
        assert_eq!(keys_of(&all(&mut feed)), names(0..5));
    });
}

#[test]
fn who_waits_is_told_at_once_and_waits_no_longer_than_was_said() {
    both(|client| {
        put(client, "k00");
        let mut feed = client.feed(Position::ZERO).wait().unwrap();
        assert_eq!(keys_of(&all(&mut feed)), names(0..1));
        let begun = Instant::now();
        assert_eq!(feed.next(MANY, Duration::from_millis(50)).wait().unwrap(), []);
        assert!((Duration::from_millis(50)..Duration::from_secs(10)).contains(&begun.elapsed()));
        for number in 1..4 {
            let next = feed.next(MANY, LONG).begin();
            put(client, &format!("k{number:02}"));
            assert_eq!(keys_of(&next.wait().unwrap()), names(number..number + 1));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let told = runtime.block_on(async {
            let put = async { client.kv().put(b"b", b"k04", b"v", &PutOptions::default(), None).await };
            futures_util::join!(feed.next(MANY, LONG), put).0.unwrap()
        });
        assert_eq!(keys_of(&told), names(4..5));
        assert!(begun.elapsed() < LONG);
    });
}

/// A server lets 64 wait.
#[test]
fn more_may_wait_than_a_server_has_room_for() {
    both(|client| {
        put(client, "k00");
        let mut feeds: Vec<Feed> = (0..70).map(|_| client.feed(Position::ZERO).wait().unwrap()).collect();
        feeds.iter_mut().for_each(|feed| drop(all(feed)));
        let begun = Instant::now();
        let waiting: Vec<_> = feeds.iter_mut().map(|feed| feed.next(MANY, LONG).begin()).collect();
        // Time for all of them to be waiting.
        while begun.elapsed() < Duration::from_millis(500) {
            client.kv().head(b"b", b"k00").wait().unwrap();
        }
        put(client, "k01");
        for next in waiting {
            assert_eq!(keys_of(&next.wait().unwrap()), names(1..2));
        }
    });
}

#[test]
fn a_feed_from_where_nothing_is_yet_is_refused() {
    both(|client| {
        let at = put(client, "k00");
        let refused = client.feed(Position::new(at.get() + (1 << 40))).wait().map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    });
}

#[test]
fn a_feed_goes_on_when_its_server_is_started_again() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let address = server.resp().to_string();
    let (client, impatient) = (connect(&server), impatient(&address));
    put(&client, "k00");
    let mut feed = client.feed(Position::ZERO).wait().unwrap();
    let mut short = impatient.feed(Position::ZERO).wait().unwrap();
    assert_eq!(keys_of(&all(&mut feed)), names(0..1));
    put(&client, "k01");
    server.kill();
    assert_eq!(short.next(MANY, LONG).wait().unwrap_err().kind(), ErrorKind::Unavailable);
    let gone = impatient.feed(Position::ZERO).wait().map(|_| ()).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unavailable);
    let next = feed.next(MANY, LONG).begin();
    let _server = Launch::new(folder.path()).resp(&address).start_again();
    assert_eq!(keys_of(&next.wait().unwrap()), names(1..2));
    assert_eq!(keys_of(&all(&mut short)), names(0..2), "it has not moved");
}

/// Writes much that replaces what was before, so that the journal has much to let go of.
fn overwrite(client: &Client) {
    let value = vec![b'h'; 1 << 20];
    (0..40).for_each(|_| _ = client.kv().put(b"b", b"hot", &value, &PutOptions::default(), None).wait().unwrap());
}

/// A feed was away while everything before was compacted away.
fn is_told(client: &Client, floor: impl Fn() -> Position) {
    let first = put(client, "k00");
    overwrite(client);
    until(LONG, || (floor() > first).then_some(())).expect("the journal is compacted");
    let refused = client.feed(first).wait().map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("the feed"), "{refused}");
    let snapshot = client.snapshot().wait().unwrap();
    assert_eq!(snapshot.count(&Fold::default()).wait().unwrap(), 2);
    let mut feed = client.feed(Position::new(snapshot.position().get() + 1)).wait().unwrap();
    put(client, "k01");
    assert_eq!(keys_of(&feed.next(MANY, LONG).wait().unwrap()), names(1..2));
}

#[test]
fn a_feed_that_was_away_too_long_is_told_and_begins_with_a_snapshot() {
    let folder = TempDir::new().unwrap();
    let options = Options {
        limits: Limits { value_bytes_max: 1 << 20, segment_bytes: 8 << 20, ..Limits::default() },
        compaction: CompactionOptions { keep_bytes: 0, ..CompactionOptions::default() },
        ..Options::default()
    };
    let store = Store::open(folder.path(), options).unwrap();
    is_told(&Client::embedded(&store).unwrap(), || store.feed_floor());
    let folder = TempDir::new().unwrap();
    let configuration = "[compaction]\nkeep_bytes = 0\n[limits]\nvalue_bytes_max = 1048576\nsegment_bytes = 8388608\n";
    let server = configured(&folder, configuration).start();
    // The server tells where the feed begins by refusing, and by nothing else.
    let floor = || match server.client().call(&["FEED", "FROM", "0"]).unwrap() {
        holdfast_tests::Value::Error(text) => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            Position::new(digits.parse().unwrap())
        }
        _ => Position::ZERO,
    };
    is_told(&connect(&server), floor);
}

#[test]
fn who_waits_for_a_store_in_the_process_is_told_that_it_was_closed() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let client = Client::embedded(&store).unwrap();
    let mut feed = client.feed(Position::ZERO).wait().unwrap();
    let next = feed.next(MANY, LONG).begin();
    store.close().unwrap();
    assert_eq!(next.wait().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(client.feed(Position::ZERO).wait().map(|_| ()).unwrap_err().kind(), ErrorKind::Closed);
}
