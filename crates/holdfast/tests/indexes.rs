//! Secondary indexes and compression, against an obvious model, on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::collections::{BTreeMap, BTreeSet};

use holdfast::*;
use proptest::prelude::*;

fn open(dir: &std::path::Path) -> Store {
    let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
    Store::open(dir, options).unwrap()
}

fn text(term: &str) -> Term {
    Term::Binary(term.as_bytes().to_vec())
}

fn all(bucket: &'static [u8], index: &'static [u8], store: &Store, limit: usize) -> Vec<(Term, Vec<u8>)> {
    let (from, to) = (Term::Integer(i64::MIN), Term::Binary(vec![0xFF; 8]));
    let mut entries = Vec::new();
    let mut after = None;
    loop {
        let query = IndexQuery { bucket, index, from: &from, to: &to, term_regex: None, limit, after: after.as_ref() };
        let page = store.kv().index(&query).unwrap().value;
        assert!(page.entries.len() <= limit);
        entries.extend(page.entries.to_vec());
        match page.next {
            None => return entries,
            next => after = next,
        }
        let text = after.as_ref().map(IndexCursor::encode).unwrap();
        assert_eq!(IndexCursor::decode(&text).ok(), after);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put { key: u8, terms: Vec<i8> },
    Delete { key: u8 },
    Expire { key: u8, gone: bool },
    Clear,
    Reopen,
    LoseLedger,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..12, proptest::collection::vec(-3i8..4, 0..4)).prop_map(|(key, terms)| Step::Put { key, terms }),
        3 => (0u8..12).prop_map(|key| Step::Delete { key }),
        2 => (0u8..12, any::<bool>()).prop_map(|(key, gone)| Step::Expire { key, gone }),
        1 => Just(Step::Clear),
        1 => Just(Step::Reopen),
        1 => Just(Step::LoseLedger),
    ]
}

/// Terms alternate between integers and binaries.
fn term(number: i8) -> Term {
    if number % 2 == 0 { Term::Integer(i64::from(number)) } else { text(&format!("t{number}")) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn an_index_holds_just_what_the_objects_say(steps in proptest::collection::vec(step(), 1..30), limit in 1usize..20) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut model: BTreeMap<u8, BTreeSet<Term>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put { key, terms } => {
                    let terms: BTreeSet<Term> = terms.into_iter().map(term).collect();
                    let indexes = Indexes::from_pairs(terms.iter().map(|term| ("i", term.clone())));
                    let options = PutOptions { indexes, ..PutOptions::default() };
                    store.kv().put(b"b", &[key], &[key; 30], &options).unwrap();
                    model.insert(key, terms);
                }
                Step::Delete { key } => {
                    store.kv().delete(b"b", &[key], Condition::None).unwrap();
                    model.remove(&key);
                }
                Step::Expire { key, gone } => {
                    let at = if gone { 1 } else { u64::MAX >> 1 };
                    store.kv().expire(b"b", &[key], Some(at)).unwrap();
                    if gone {
                        model.remove(&key);
                    }
                }
                Step::Clear => {
                    let mut exclusive = store.exclusive(&Scope::All).unwrap();
                    exclusive.clear(b"b").unwrap();
                    exclusive.commit().unwrap();
                    model.clear();
                }
                Step::Reopen | Step::LoseLedger => {
                    store.close().unwrap();
                    let digest = |store: &Store| store.digest().unwrap();
                    drop(store);
                    if matches!(step, Step::LoseLedger) {
                        std::fs::remove_dir_all(dir.path().join("ledger")).unwrap();
                    }
                    store = open(dir.path());
                    digest(&store);
                }
            }
            let expected: BTreeSet<(Term, Vec<u8>)> =
                model.iter().flat_map(|(key, terms)| terms.iter().map(|term| (term.clone(), vec![*key]))).collect();
            let expected: Vec<_> = expected.into_iter().collect();
            prop_assert_eq!(all(b"b", b"i", &store, limit), expected);
        }
    }
}

#[test]
fn terms_are_found_by_range_by_value_and_by_expression() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for (number, city) in ["Ulm", "Bonn", "Ulm", "Kiel", "Jena"].iter().enumerate() {
        let pairs = [("city", text(city)), ("age", Term::Integer(number as i64 * 10 - 20))];
        let options = PutOptions { indexes: Indexes::from_pairs(pairs), ..PutOptions::default() };
        store.kv().put(b"b", &[b'a' + number as u8], b"v", &options).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    store.kv().delete(b"b", b"a", Condition::None).unwrap();
    let keys = |index: &str, from: Term, to: Term, pattern: Option<&str>| {
        let expression = pattern.map(|pattern| regex(pattern).unwrap());
        let query = IndexQuery {
            bucket: b"b",
            index: index.as_bytes(),
            from: &from,
            to: &to,
            term_regex: expression.as_ref(),
            limit: 10,
            after: None,
        };
        let page = snapshot.index(&query).unwrap();
        page.entries.to_vec().into_iter().map(|(_, key)| String::from_utf8(key).unwrap()).collect::<String>()
    };
    assert_eq!(keys("city", text("Ulm"), text("Ulm"), None), "ac");
    assert_eq!(keys("city", text("C"), text("L"), None), "ed");
    assert_eq!(keys("city", text(""), text("Z"), Some("n[an]")), "be");
    assert_eq!(keys("age", Term::Integer(-10), Term::Integer(10), None), "bcd");
    assert_eq!(keys("age", Term::Integer(10), Term::Integer(-10), None), "", "an empty range is no error");
    assert_eq!(keys("age", Term::Integer(-20), Term::Integer(20), Some("^-")), "ab");
    assert_eq!(keys("other", text(""), text("Z"), None), "");
    assert_eq!(regex("(").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(regex("((a{1000}){1000}){1000}").unwrap_err().kind(), ErrorKind::Invalid);
    let head = store.kv().head(b"b", b"b").unwrap().unwrap();
    let found: Vec<_> = head.indexes.iter().map(|(name, term)| (name.to_vec(), term)).collect();
    assert_eq!(found, [(b"age".to_vec(), Term::Integer(-10)), (b"city".to_vec(), text("Bonn"))]);
}

#[test]
fn too_many_or_too_long_index_entries_are_refused_and_nothing_happens() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let long = Indexes::from_pairs([("i", Term::Binary(vec![b'x'; 66_000]))]);
    let many = Indexes::from_pairs((0..10_000).map(|number| ("index", Term::Integer(number))));
    for indexes in [long, many] {
        let options = PutOptions { indexes, ..PutOptions::default() };
        assert_eq!(store.kv().put(b"b", b"k", b"v", &options).unwrap_err().kind(), ErrorKind::Limit);
    }
    assert!(store.kv().get(b"b", b"k").unwrap().is_none());
}

#[test]
fn compression_may_be_switched_on_a_store_with_data() {
    let dir = tempfile::tempdir().unwrap();
    let value = b"holdfast holds what it acknowledges ".repeat(20);
    let codecs = [Compression::None, Compression::Lz4, Compression::Zstd];
    for round in 0..2 {
        for (number, compression) in codecs.into_iter().enumerate() {
            let store = Store::open(dir.path(), Options { compression, ..Options::default() }).unwrap();
            let options = PutOptions::default();
            store.kv().put(b"b", &[b'0' + number as u8], &value, &options).unwrap();
            // Small ones are compressed too, where they are kept: in the ledger.
            store.kv().put(b"b", &[b'a' + number as u8], &[b'x'; 100], &options).unwrap();
            let own = PutOptions { compression: Some(Compression::None), ..PutOptions::default() };
            store.kv().put(b"b", b"own", &value, &own).unwrap();
            assert_eq!(store.kv().head(b"b", b"own").unwrap().unwrap().compression, Compression::None);
            for (number, compression) in codecs.into_iter().enumerate().take(if round == 0 { number + 1 } else { 3 }) {
                let object = store.kv().get(b"b", &[b'0' + number as u8]).unwrap().unwrap();
                assert_eq!((&*object.value, object.head.compression), (value.as_slice(), compression));
                assert_eq!(object.head.value_bytes, value.len() as u64);
                let small = store.kv().get(b"b", &[b'a' + number as u8]).unwrap().unwrap();
                assert_eq!(&*small.value, [b'x'; 100]);
            }
            store.close().unwrap();
        }
    }
}

/// The story: key and index entries within their limits were refused together, by the limit of a library.
#[test]
fn the_longest_keys_and_terms_go_together_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Store::open(dir.path(), Options { partitions: 1, ..Options::default() }).unwrap();
    let limits = Limits::default();
    let (bucket, key) = (vec![0xFF; limits.bucket_bytes_max], vec![0; limits.key_bytes_max]);
    let longest = vec![0xFE; limits.indexes_bytes_max - 64];
    let indexes = Indexes::from_pairs([("i", Term::Binary(longest.clone()))]);
    for round in 0..3u8 {
        let store = open();
        let options = PutOptions { indexes: indexes.clone(), ..PutOptions::default() };
        store.kv().put(&bucket, &key, &[round], &options).unwrap();
        for other in 0..200u32 {
            store.kv().put(&bucket, &other.to_be_bytes(), &[round; 90], &PutOptions::default()).unwrap();
        }
        store.close().unwrap();
    }
    let store = open();
    assert_eq!(&*store.kv().get(&bucket, &key).unwrap().unwrap().value, &[2]);
    let (from, to) = (Term::Integer(0), Term::Binary(vec![0xFF; 8]));
    let query =
        IndexQuery { bucket: &bucket, index: b"i", from: &from, to: &to, term_regex: None, limit: 9, after: None };
    let page = store.kv().index(&query).unwrap().value;
    assert_eq!(page.entries.to_vec(), [(Term::Binary(longest), key)]);
}

#[test]
fn a_continuation_of_another_index_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..4u8 {
        let indexes = Indexes::from_pairs(["city", "town"].map(|index| (index, text("Ulm"))));
        store.kv().put(b"b", &[number], b"v", &PutOptions { indexes, ..PutOptions::default() }).unwrap();
    }
    let ulm = text("Ulm");
    let page = |bucket: &'static [u8], index: &'static [u8], after: Option<&IndexCursor>| {
        store.kv().index(&IndexQuery { bucket, index, from: &ulm, to: &ulm, term_regex: None, limit: 2, after })
    };
    let next = page(b"b", b"city", None).unwrap().value.next.unwrap();
    assert_eq!(page(b"b", b"city", Some(&next)).unwrap().value.entries.len(), 2);
    for (bucket, index) in [(&b"b"[..], &b"town"[..]), (b"bc", b"ity"), (b"a", b"city")] {
        let refused = page(bucket, index, Some(&next)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    // Letters and digits of something else.
    let short = IndexCursor::decode("69ab").unwrap();
    assert_eq!(page(b"b", b"city", Some(&short)).unwrap_err().kind(), ErrorKind::Invalid);
}
