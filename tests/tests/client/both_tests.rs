//! Keys, series, asynchronous forms, views and caches, in the process and on a server.

use std::time::{Duration, Instant};

use client::{IndexRange, LocalView, NearCache, Point, SeriesName};
use futures_util::StreamExt;
use holdfast::series::{Range as Times, Value as Number};
use holdfast::space::{Definition, Listen, NoticeKind, ReadOptions, Wanted};
use holdfast::{Condition, Durability, ErrorKind, Indexes, Metadata, PutOptions, Term, TermRef};

use crate::scene::{both, declare, number, order, orders, upsert};

#[test]
fn objects_are_put_with_all_that_belongs_to_them() {
    both(|client| {
        let kv = client.kv();
        let far = 4_000_000_000_000;
        let options = PutOptions {
            expires_ms: Some(far),
            metadata: Metadata::from_pairs([("type", "text"), ("by", "ada\r\n")]),
            indexes: Indexes::from_pairs([("age", Term::Integer(-7)), ("name", Term::Binary(b"ada".to_vec()))]),
            ..PutOptions::default()
        };
        let put = kv.put(b"b\r\n", b"\0k", b"v\xff", &options, Some(Durability::Written)).wait().unwrap();
        let object = kv.get(b"b\r\n", b"\0k").wait().unwrap().unwrap();
        assert_eq!((&*object.value, object.head.version), (b"v\xff".as_slice(), put.position));
        assert_eq!((object.head.expires_ms, object.head.value_bytes), (Some(far), 2));
        assert_eq!((&object.head.metadata, &object.head.indexes), (&options.metadata, &options.indexes));
        assert_eq!(kv.head(b"b\r\n", b"\0k").wait().unwrap(), Some(object.head));
        assert_eq!(kv.get_value(b"b\r\n", b"\0k").wait().unwrap(), Some(b"v\xff".to_vec()));
        assert!(kv.get(b"b", b"none").wait().unwrap().is_none());
        assert_eq!(kv.head(b"b", b"none").wait().unwrap(), None);
        let stale = PutOptions { condition: Condition::Version(holdfast::Position::new(1)), ..PutOptions::default() };
        let refused = kv.put(b"b\r\n", b"\0k", b"w", &stale, None).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let kept = PutOptions { keep_expiry: true, condition: Condition::Present, ..PutOptions::default() };
        kv.put(b"b\r\n", b"\0k", b"w", &kept, None).wait().unwrap();
        assert_eq!(kv.head(b"b\r\n", b"\0k").wait().unwrap().unwrap().expires_ms, Some(far));
        let refused = kv.delete(b"b\r\n", b"\0k", Condition::Absent, None).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(kv.delete(b"b\r\n", b"\0k", Condition::None, None).wait().unwrap().is_some());
        assert!(kv.delete(b"b\r\n", b"\0k", Condition::None, None).wait().unwrap().is_none());
    });
}

#[test]
fn an_index_is_gone_through_page_by_page() {
    both(|client| {
        let kv = client.kv();
        for age in 0..25 {
            let indexes = Indexes::from_pairs([("age", Term::Integer(age))]);
            let options = PutOptions { indexes, ..PutOptions::default() };
            kv.put(b"people", format!("p{age:02}").as_bytes(), b"", &options, None).wait().unwrap();
        }
        let mut range =
            IndexRange { from: Term::Integer(5), to: Term::Integer(20), term_regex: None, limit: 6, after: None };
        let mut ages = Vec::new();
        loop {
            let page = kv.index(b"people", b"age", &range).wait().unwrap();
            for (term, key) in page.entries.iter() {
                let TermRef::Integer(age) = term else { panic!("{term:?}") };
                assert_eq!(key, format!("p{age:02}").as_bytes());
                ages.push(age);
            }
            let Some(next) = page.next else { break };
            range.after = Some(next);
        }
        assert_eq!(ages, (5..=20).collect::<Vec<_>>());
        let ones = IndexRange { term_regex: Some("^1.$".to_owned()), limit: 100, after: None, ..range.clone() };
        assert_eq!(kv.index(b"people", b"age", &ones).wait().unwrap().entries.len(), 10);
        if client.is_remote() {
            let mixed = IndexRange { to: Term::Binary(b"x".to_vec()), ..ones };
            assert_eq!(kv.index(b"people", b"age", &mixed).wait().unwrap_err().kind(), ErrorKind::Invalid);
        }
    });
}

#[test]
fn points_are_written_and_found_by_time() {
    both(|client| {
        let series = client.series();
        let name = SeriesName::new("cpu load").tag("host", "a=1,b");
        let start = 1_700_000_000_000_000_000_i64;
        let at = |index: i64| start + index * 500_000_000;
        let points: Vec<_> = (0..100)
            .map(|index| (name.clone(), Point { time: at(index), value: Number::Float(index as f64 * 0.5) }))
            .collect();
        series.write(&points, None).wait().unwrap();
        let range = series.range(&name, Times { from: at(10), to: at(12) }, 100).wait().unwrap();
        let expected: Vec<_> = points[10..=12].iter().map(|(_, point)| point.clone()).collect();
        assert_eq!(range, expected);
        let all = Times { from: i64::MIN, to: i64::MAX };
        assert_eq!(series.range(&name, all, 7).wait().unwrap().len(), 7);
        assert_eq!(series.last(&name).wait().unwrap(), Some(points[99].1.clone()));
        let other = SeriesName::new("cpu load");
        assert_eq!(series.last(&other).wait().unwrap(), None, "other tags are another series");
        assert_eq!(series.range(&other, all, 7).wait().unwrap(), []);
        let text = Point { time: start, value: Number::Text("x".into()) };
        assert_eq!(series.write(&[(name, text)], None).wait().unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn events_are_a_stream() {
    both(|client| {
        let orders = orders(client);
        let events = orders.listen(&Wanted::all(), Listen::default()).wait().unwrap().events();
        for id in 0..30 {
            orders.write(&order(id, id), &upsert()).wait().unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let heard: Vec<_> = runtime.block_on(events.take(30).collect());
        let ids: Vec<i64> = heard.into_iter().map(|it| number(&it.unwrap().after.unwrap(), "id")).collect();
        assert_eq!(ids, (0..30).collect::<Vec<_>>());
    });
}

#[test]
fn a_view_and_a_cache_show_what_was_acknowledged() {
    both(|client| {
        let orders = orders(client);
        let documents: Vec<_> = (0..1_500).map(|id| order(id, id)).collect();
        orders.write_many(&documents, &upsert()).wait().unwrap();
        let large = Wanted::query("total >= 1000", &[]).unwrap();
        let view = LocalView::open(&orders, &large, Duration::ZERO).wait().unwrap();
        assert_eq!(view.count().wait().unwrap(), 500);
        let cache = NearCache::open(&orders, 4, Duration::ZERO).wait().unwrap();
        for round in 0..50 {
            orders.write(&order(7, round), &upsert()).wait().unwrap();
            orders.write(&order(1_001, 2_000 + round), &upsert()).wait().unwrap();
            assert_eq!(number(&cache.read(&7.into()).wait().unwrap().unwrap().document, "total"), round);
            assert_eq!(number(&view.get(&1_001.into()).wait().unwrap().unwrap(), "total"), 2_000 + round);
        }
        orders.write(&order(1_001, 1), &upsert()).wait().unwrap();
        orders.take(&Wanted::id(1_002), &ReadOptions::default()).wait().unwrap();
        orders.write(&order(3, 5_000), &upsert()).wait().unwrap();
        assert_eq!(view.get(&1_001.into()).wait().unwrap(), None);
        assert_eq!(view.get(&1_002.into()).wait().unwrap(), None);
        assert_eq!(view.count().wait().unwrap(), 499);
        let shown: Vec<i64> = view.all().wait().unwrap().iter().map(|it| number(it, "id")).collect();
        assert!(shown.contains(&3), "{shown:?}");
        orders.take(&Wanted::id(7), &ReadOptions::default()).wait().unwrap();
        assert_eq!(cache.read(&7.into()).wait().unwrap(), None);
        for id in [20, 21, 22, 23, 24, 20, 24] {
            assert_eq!(number(&cache.read(&id.into()).wait().unwrap().unwrap().document, "id"), id);
        }
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.hits >= 1, stats.cleared), (4, true, 0), "{stats:?}");
        assert!(stats.invalidated >= 50, "{stats:?}");
    });
}

#[test]
fn a_view_that_is_relaxed_hears_by_itself() {
    both(|client| {
        let orders = orders(client);
        let view = LocalView::open(&orders, &Wanted::all(), Duration::from_secs(600)).wait().unwrap();
        orders.write(&order(1, 1), &upsert()).wait().unwrap();
        let begun = Instant::now();
        while view.count().wait().unwrap() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        let plain = declare(client, Definition::new("shop", "plain"));
        let refused = LocalView::open(&plain, &Wanted::all(), Duration::ZERO).wait().map(|_| ());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        let cache = NearCache::open(&plain, 10, Duration::ZERO).wait().unwrap();
        for total in 0..3 {
            plain.write(&order(1, total), &upsert()).wait().unwrap();
            assert_eq!(number(&cache.read(&1.into()).wait().unwrap().unwrap().document, "total"), total);
        }
    });
}

#[test]
fn a_transaction_of_the_store_is_awaited_by_its_position_and_the_store_is_free_after_the_client() {
    let folder = tempfile::TempDir::new().unwrap();
    for round in 0..3_i64 {
        let store = holdfast::Store::open(folder.path(), holdfast::Options::default()).unwrap();
        let client = client::Client::embedded(&store).unwrap();
        let jobs = orders(&client);
        let entries = store.space("shop").entries("orders").unwrap();
        let mut transaction = store.begin();
        entries.within(&mut transaction).write(&order(round, round), &upsert()).unwrap();
        let committed = transaction.commit(Durability::Written).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(client.durable(committed.position, Durability::Synced)).unwrap();
        assert!(store.watermarks().synced > committed.position);
        let view = LocalView::open(&jobs, &Wanted::all(), Duration::from_secs(1)).wait().unwrap();
        assert_eq!(view.count().wait().unwrap(), usize::try_from(round).unwrap() + 1);
        let waits = ReadOptions { wait: Some(Duration::from_secs(60)), ..ReadOptions::default() };
        let waiting = jobs.take(&Wanted::id(99), &waits).begin();
        drop((waiting, view, jobs, entries, client));
        store.close().unwrap();
    }
}

/// On a server each question reads the journal, where all of them are.
#[test]
fn of_events_of_one_entry_that_wait_only_the_newest_is_told_where_that_is_asked() {
    both(|client| {
        let orders = orders(client);
        let listen = |from| Listen { conflate: true, from, ..Listen::default() };
        let mut heard = orders.listen(&Wanted::all(), listen(None)).wait().unwrap();
        let mut told = || {
            let notice = heard.next(Duration::from_secs(20)).wait().unwrap().unwrap();
            let after = notice.after.unwrap();
            (notice.kind, number(&after, "id"), number(&after, "total"))
        };
        for total in 0..20 {
            orders.write(&order(1, total), &upsert()).wait().unwrap();
        }
        orders.write(&order(2, 0), &upsert()).wait().unwrap();
        assert_eq!([told(), told()], [(NoticeKind::Written, 1, 19), (NoticeKind::Written, 2, 0)]);
        for total in 20..40 {
            orders.write(&order(1 + total % 2, total), &upsert()).wait().unwrap();
        }
        assert_eq!([told(), told()], [(NoticeKind::Updated, 1, 38), (NoticeKind::Updated, 2, 39)]);
        assert_eq!(heard.next(Duration::ZERO).wait().unwrap(), None);
        let mut next = orders.listen(&Wanted::all(), listen(Some(heard.bookmark()))).wait().unwrap();
        orders.take(&Wanted::id(1), &ReadOptions::default()).wait().unwrap().unwrap();
        for listener in [&mut heard, &mut next] {
            let notice = listener.next(Duration::from_secs(20)).wait().unwrap().unwrap();
            assert_eq!(notice.kind, NoticeKind::Taken, "it goes on behind all that was made one");
        }
    });
}
