//! Listings of keys, in the process and on a server.

use std::ops::Bound;

use client::{Client, Keys};
use holdfast::{ErrorKind, Metadata, Page, PageOut, PutOptions};
use holdfast_tests::Launch;
use tempfile::TempDir;

use crate::scene::{both, connect, impatient};

fn whole(bucket: &[u8]) -> Page<'_> {
    Page { bucket, start: Bound::Unbounded, end: Bound::Unbounded, limit: 1_000, values: false }
}

fn put(client: &Client, bucket: &[u8], key: &[u8], value: &[u8]) {
    client.kv().put(bucket, key, value, &PutOptions::default(), None).wait().unwrap();
}

/// People p00 to p24, and a few others.
fn people(client: &Client) {
    for age in 0..25 {
        put(client, b"people", format!("p{age:02}").as_bytes(), &vec![b'x'; age]);
    }
    put(client, b"\xff\r\n", b"\0", b"odd");
    put(client, b"animals", b"cat", b"");
}

fn keys_of(page: &PageOut) -> Vec<Vec<u8>> {
    page.entries.iter().map(|(key, ..)| key.clone()).collect()
}

fn named(ages: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    ages.into_iter().map(|age| format!("p{age:02}").into_bytes()).collect()
}

#[test]
fn buckets_are_those_that_hold_something_and_their_objects_are_counted() {
    both(|client| {
        let kv = client.kv();
        assert_eq!(kv.buckets().wait().unwrap(), Vec::<Vec<u8>>::new());
        people(client);
        assert_eq!(kv.buckets().wait().unwrap(), [b"animals".to_vec(), b"people".to_vec(), b"\xff\r\n".to_vec()]);
        let counts = [&b"people"[..], b"animals", b"\xff\r\n", b"nobody"].map(|bucket| kv.count(bucket).begin());
        assert_eq!(counts.map(|count| count.wait().unwrap()), [25, 1, 1, 0]);
        kv.delete(b"animals", b"cat", holdfast::Condition::None, None).wait().unwrap();
        assert_eq!(kv.count(b"animals").wait().unwrap(), 0);
        assert_eq!(kv.buckets().wait().unwrap(), [b"people".to_vec(), b"\xff\r\n".to_vec()]);
    });
}

#[test]
fn a_bucket_is_gone_through_in_order_of_keys_page_by_page() {
    both(|client| {
        people(client);
        let kv = client.kv();
        let (mut seen, mut start) = (Vec::new(), Bound::Unbounded);
        loop {
            let start_at = start.as_ref().map(|key: &Vec<u8>| key.as_slice());
            let page = kv.page(&Page { start: start_at, limit: 7, ..whole(b"people") }).wait().unwrap();
            assert!(page.entries.len() == 7 || !page.more && page.entries.len() == 25 % 7, "{page:?}");
            seen.extend(keys_of(&page));
            if !page.more {
                break;
            }
            start = Bound::Excluded(seen.last().unwrap().clone());
        }
        assert_eq!(seen, named(0..25));
        let exactly = kv.page(&Page { limit: 25, ..whole(b"people") }).wait().unwrap();
        assert_eq!((exactly.entries.len(), exactly.more), (25, false));
        // A limit of nothing is one of one, as with indexes.
        let least = kv.page(&Page { limit: 0, ..whole(b"people") }).wait().unwrap();
        assert_eq!((keys_of(&least), least.more), (named([0]), true));
    });
}

#[test]
fn a_page_is_between_its_ends_and_so_are_keys() {
    both(|client| {
        people(client);
        put(client, b"people", b"p05\0", b"");
        let kv = client.kv();
        let (five, nine) = (b"p05".as_slice(), b"p09".as_slice());
        let behind_five = [vec![b"p05\0".to_vec()], named(6..9)].concat();
        let to_nine = [named([5]), vec![b"p05\0".to_vec()], named(6..10)].concat();
        let cases = [
            (Bound::Excluded(five), Bound::Excluded(nine), behind_five),
            (Bound::Included(five), Bound::Included(nine), to_nine),
            (Bound::Unbounded, Bound::Included(b"p00".as_slice()), named([0])),
            (Bound::Included(b"p24".as_slice()), Bound::Unbounded, named([24])),
            (Bound::Included(nine), Bound::Excluded(nine), vec![]),
            (Bound::Included(nine), Bound::Included(nine), named([9])),
            (Bound::Excluded(nine), Bound::Excluded(nine), vec![]),
            (Bound::Included(nine), Bound::Included(five), vec![]),
        ];
        for (start, end, expected) in cases {
            let wanted = Page { start, end, ..whole(b"people") };
            let page = kv.page(&wanted).wait().unwrap();
            assert_eq!((keys_of(&page), page.more), (expected.clone(), false), "{start:?} {end:?}");
            assert_eq!(kv.keys(&wanted).wait().unwrap(), Keys { keys: expected, more: false }, "{start:?} {end:?}");
        }
        let two = kv.keys(&Page { limit: 2, ..whole(b"people") }).wait().unwrap();
        assert_eq!(two, Keys { keys: named(0..2), more: true });
        assert_eq!(kv.keys(&whole(b"nobody")).wait().unwrap(), Keys::default());
        assert!(kv.page(&whole(b"nobody")).wait().unwrap().entries.is_empty());
    });
}

#[test]
fn a_page_has_all_that_is_known_of_an_object_and_its_value_where_it_is_asked_for() {
    both(|client| {
        let kv = client.kv();
        let metadata = Metadata::from_pairs([("by", "ada\r\n")]);
        let options = PutOptions { metadata, expires_ms: Some(4_000_000_000_000), ..PutOptions::default() };
        kv.put(b"b", b"k\r\n", b"v\xff", &options, None).wait().unwrap();
        put(client, b"b", b"l", b"");
        let page = kv.page(&Page { values: true, ..whole(b"b") }).wait().unwrap();
        let [(key, head, value), (_, _, empty)] = page.entries.as_slice() else { panic!("{page:?}") };
        assert_eq!((key.as_slice(), value.as_deref()), (b"k\r\n".as_slice(), Some(b"v\xff".as_slice())));
        assert_eq!(Some(head), kv.head(b"b", b"k\r\n").wait().unwrap().as_ref());
        assert_eq!(empty.as_deref(), Some(b"".as_slice()));
        let page = kv.page(&whole(b"b")).wait().unwrap();
        assert!(page.entries.iter().all(|(_, _, value)| value.is_none()));
    });
}

#[test]
fn listings_are_awaited_in_any_runtime() {
    both(|client| {
        people(client);
        let kv = client.kv();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (keys, buckets, count) = runtime.block_on(async {
            let all = futures_util::join!(kv.keys(&whole(b"people")), kv.buckets(), kv.count(b"people"));
            (all.0.unwrap(), all.1.unwrap(), all.2.unwrap())
        });
        assert_eq!((keys.keys, buckets.len(), count), (named(0..25), 3, 25));
    });
}

#[test]
fn buckets_of_the_stores_own_are_not_listed() {
    both(|client| {
        let kv = client.kv();
        let own = b"\0xa";
        let refused = [
            kv.page(&whole(own)).wait().map(|_| ()),
            kv.keys(&whole(own)).wait().map(|_| ()),
            kv.count(own).wait().map(|_| ()),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        }
    });
}

#[test]
fn a_server_that_has_gone_lists_nothing() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let client = impatient(&server.resp().to_string());
    people(&connect(&server));
    server.kill();
    let kv = client.kv();
    let (page, keys) = (kv.page(&whole(b"people")).begin(), kv.keys(&whole(b"people")).begin());
    let (count, buckets) = (kv.count(b"people").begin(), kv.buckets().begin());
    let refused =
        [page.wait().map(|_| ()), keys.wait().map(|_| ()), count.wait().map(|_| ()), buckets.wait().map(|_| ())];
    for refused in refused {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}

#[test]
fn a_transaction_lists_keys_as_it_has_them() {
    both(|client| {
        people(client);
        let mut transaction = client.begin(&client::TransactionOptions::default()).wait().unwrap();
        let key = |age: usize| format!("p{age:02}").into_bytes();
        for age in [3, 9, 20] {
            assert!(transaction.delete(b"people", &key(age), holdfast::Condition::None).wait().unwrap());
        }
        for age in [25, 26] {
            transaction.put(b"people", &key(age), b"", &PutOptions::default()).wait().unwrap();
        }
        let expected: Vec<Vec<u8>> = (0..27).filter(|age| ![3, 9, 20].contains(age)).map(key).collect();
        // In pages of whatever length, whose ends lie where something was changed, and from anywhere.
        for (limit, first) in [(1, 0), (2, 0), (3, 2), (4, 8), (5, 19), (24, 0), (100, 0)] {
            let (mut found, mut start) = (Vec::new(), Bound::Included(key(first)));
            loop {
                let page = Page { start: start.as_ref().map(Vec::as_slice), limit, ..whole(b"people") };
                let Keys { keys, more } = transaction.keys(&page).wait().unwrap();
                assert!(keys.len() <= limit && (!more || !keys.is_empty()));
                found.extend(keys);
                if !more {
                    break;
                }
                start = Bound::Excluded(found.last().unwrap().clone());
            }
            let wanted: Vec<_> = expected.iter().filter(|it| **it >= key(first)).cloned().collect();
            assert_eq!(found, wanted, "pages of {limit}");
        }
        transaction.commit(None).wait().unwrap();
        let Keys { keys, .. } = client.kv().keys(&whole(b"people")).wait().unwrap();
        assert_eq!(keys, expected);
    });
}
