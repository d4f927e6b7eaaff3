//! The store's own buckets are nobody else's.
#![allow(clippy::unwrap_used, reason = "tests stand outside the wall")]

use std::ops::Bound;

use holdfast::*;

const OWN: &[u8] = b"\0xa";

fn is_invalid<T>(result: Result<T>) -> bool {
    result.err().is_some_and(|error| error.kind() == ErrorKind::Invalid && error.to_string().contains("byte 00"))
}

#[test]
fn users_are_refused_what_is_in_them_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let (kv, plain) = (store.kv(), PutOptions::default());
    let page = Page { bucket: OWN, start: Bound::Unbounded, end: Bound::Unbounded, limit: 1, values: false };
    let term = Term::Integer(1);
    let index =
        IndexQuery { bucket: OWN, index: b"i", from: &term, to: &term, term_regex: None, limit: 1, after: None };
    let fold = Fold { bucket: Some(OWN), ..Fold::default() };
    for bucket in [OWN, b"\0"] {
        assert!(is_invalid(kv.get(bucket, b"k")) && is_invalid(kv.head(bucket, b"k")));
        assert!(is_invalid(kv.peek(bucket, b"k")) && is_invalid(kv.peek_head(bucket, b"k")));
        assert!(is_invalid(kv.put(bucket, b"k", b"v", &plain)) && is_invalid(kv.expire(bucket, b"k", None)));
        assert!(is_invalid(kv.delete(bucket, b"k", Condition::None)) && is_invalid(kv.count(bucket)));
        assert!(is_invalid(kv.scan(bucket, None, 1)) && is_invalid(kv.random_key(bucket, 1)));
        assert!(is_invalid(store.exclusive(&Scope::Keys(&[(b"b", b"k"), (bucket, b"k")])).map(|_| ())));
    }
    assert!(is_invalid(kv.page(&page)) && is_invalid(kv.index(&index)));
    let mut all = store.exclusive(&Scope::All).unwrap();
    assert!(is_invalid(all.get(OWN, b"k")) && is_invalid(all.head(OWN, b"k")) && is_invalid(all.clear(OWN)));
    assert!(is_invalid(all.put(OWN, b"k", b"v", &plain)) && is_invalid(all.delete(OWN, b"k")));
    assert!(is_invalid(all.expire(OWN, b"k", Some(1))) && is_invalid(all.page(&page)));
    assert!(is_invalid(all.scan(OWN, None, 1)) && is_invalid(all.random_key(OWN, 1)) && is_invalid(all.count(OWN)));
    drop(all);
    let mut transaction = store.begin();
    assert!(is_invalid(transaction.get(OWN, b"k")) && is_invalid(transaction.put(OWN, b"k", b"v", &plain)));
    assert!(is_invalid(transaction.delete(OWN, b"k")) && is_invalid(transaction.page(&page)));
    let snapshot = store.snapshot().unwrap();
    assert!(is_invalid(snapshot.get(OWN, b"k")) && is_invalid(snapshot.head(OWN, b"k")));
    assert!(is_invalid(snapshot.page(&page)) && is_invalid(snapshot.index(&index)));
    assert!(is_invalid(snapshot.fold(&fold, &mut |_| Ok(std::ops::ControlFlow::Continue(())))));
    assert!(kv.buckets().unwrap().value.is_empty(), "nothing was written");
}
