//! What a user of the library may rely on, on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast::*;

fn open(dir: &std::path::Path) -> Store {
    Store::open(dir, Options { durability: Durability::Written, ..Options::default() }).unwrap()
}

fn plain() -> PutOptions {
    PutOptions::default()
}

#[test]
fn objects_of_every_size_come_back_with_their_heads_also_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = [0, 1, 128, 129, 5000, 1 << 20];
    let value = |size: usize| (0..size).map(|i| (i % 251) as u8).collect::<Vec<u8>>();
    let metadata = Metadata::from_pairs([("type", "text"), ("a", "b")]);
    let far = 4_000_000_000_000;
    for round in 0..3 {
        let store = open(dir.path());
        for size in sizes {
            let key = size.to_string();
            if round == 0 {
                let options = PutOptions { metadata: metadata.clone(), expires_ms: Some(far), ..plain() };
                let put = store.kv().put(b"b", key.as_bytes(), &value(size), &options).unwrap();
                assert_eq!(store.kv().head(b"b", key.as_bytes()).unwrap().unwrap().version, put.position);
            }
            let object = store.kv().get(b"b", key.as_bytes()).unwrap().unwrap();
            assert_eq!(&*object.value, value(size));
            let head = object.head;
            assert_eq!((head.value_bytes, head.expires_ms, &head.metadata), (size as u64, Some(far), &metadata));
        }
        assert_eq!(store.kv().count(b"b").unwrap().value, sizes.len() as u64);
        assert!(store.stats().damage.is_empty());
        if round == 1 {
            store.close().unwrap();
            assert_eq!(store.kv().get(b"b", b"0").unwrap_err().kind(), ErrorKind::Closed);
            // Another may open the directory though this one is still about.
            drop(open(dir.path()));
        }
    }
}

#[test]
fn a_file_where_the_directory_should_be_is_told_to_be_one() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    for dir in [file.clone(), file.join("within")] {
        let error = Store::open(&dir, Options::default()).map(|_| ()).unwrap_err();
        let told = format!("{} is a file and not a directory: name", file.display());
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().starts_with(&told), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn conditions_are_judged_in_the_instant_of_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let kv = store.kv();
    let put = |condition| kv.put(b"b", b"k", b"v", &PutOptions { condition, ..plain() });
    assert_eq!(put(Condition::Present).unwrap_err().kind(), ErrorKind::Conflict);
    let first = put(Condition::Absent).unwrap().position;
    assert_eq!(put(Condition::Absent).unwrap_err().kind(), ErrorKind::Conflict);
    let second = put(Condition::Version(first)).unwrap().position;
    assert!(second > first);
    let stale = put(Condition::Version(first)).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Conflict);
    assert_eq!(kv.delete(b"b", b"k", Condition::Version(first)).unwrap_err().kind(), ErrorKind::Conflict);
    assert!(kv.delete(b"b", b"k", Condition::Version(second)).unwrap().is_some());
    assert!(kv.delete(b"b", b"k", Condition::None).unwrap().is_none());
}

#[test]
fn what_is_changed_together_is_refused_with_the_change_that_is_too_much() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
    let store = Store::open(dir.path(), options).unwrap();
    let value = vec![b'v'; store.limits().value_bytes_max];
    let most = store.limits().batch_bytes_max / value.len();
    let mut both = store.exclusive(&Scope::All).unwrap();
    let mut staged = 0;
    let refused = loop {
        match both.put(b"b", &[staged], &value, &PutOptions::default()) {
            Ok(()) => staged += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refused.kind(), usize::from(staged) <= most), (ErrorKind::Limit, true), "{refused}");
    assert!(refused.to_string().contains(&store.limits().batch_bytes_max.to_string()), "{refused}");
    // What replaces another counts instead of it.
    both.put(b"b", &[0], b"small", &PutOptions::default()).unwrap();
    both.put(b"b", &[staged], &vec![b'v'; value.len() - 100], &PutOptions::default()).unwrap();
}

#[test]
fn limits_are_errors_that_name_themselves_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { limits: Limits::tiny(), ..Options::default() }).unwrap();
    let limit = |bucket: &[u8], key: &[u8], value: &[u8]| {
        let error = store.kv().put(bucket, key, value, &plain()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        error.to_string()
    };
    assert!(limit(&[1; 17], b"k", b"").contains("bucket name of 17 bytes; the limit is 16"));
    assert!(limit(b"b", &[1; 65], b"").contains("key of 65 bytes"));
    assert!(limit(b"b", b"k", &[1; 9000]).contains("value of 9000 bytes"));
    let metadata = Metadata::from_pairs([("name", [7; 100])]);
    let options = PutOptions { metadata, ..plain() };
    assert_eq!(store.kv().put(b"b", b"k", b"", &options).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(store.kv().count(b"b").unwrap().value, 0);
}

#[test]
fn a_transaction_is_all_or_nothing_and_notices_what_others_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.kv().put(b"b", b"a", b"1", &plain()).unwrap();
    let mut transaction = store.begin();
    assert_eq!(&*transaction.get(b"b", b"a").unwrap().unwrap().value, b"1");
    transaction.put(b"b", b"a", b"2", &plain()).unwrap();
    transaction.put(b"c", b"x", b"3", &plain()).unwrap();
    assert_eq!(&*transaction.get(b"b", b"a").unwrap().unwrap().value, b"2");
    assert!(store.kv().get(b"c", b"x").unwrap().is_none(), "nothing shows before commit");
    let committed = transaction.commit(Durability::Synced).unwrap();
    assert_eq!(store.kv().head(b"c", b"x").unwrap().unwrap().version, committed.position);
    assert_eq!(store.kv().head(b"b", b"a").unwrap().unwrap().version, committed.position);
    assert!(store.watermarks().synced > committed.position);

    let mut loser = store.begin();
    assert!(loser.get(b"b", b"absent").unwrap().is_none());
    loser.put(b"b", b"mine", b"", &plain()).unwrap();
    store.kv().put(b"b", b"absent", b"now there", &plain()).unwrap();
    assert_eq!(loser.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Conflict);
    assert!(store.kv().get(b"b", b"mine").unwrap().is_none());

    let mut lister = store.begin();
    let all = Page { bucket: b"b", start: Bound::Unbounded, end: Bound::Unbounded, limit: 10, values: false };
    assert_eq!(lister.page(&all).unwrap().entries.len(), 2);
    lister.delete(b"b", b"a").unwrap();
    store.kv().put(b"b", b"phantom", b"", &plain()).unwrap();
    assert_eq!(lister.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_snapshot_shows_one_instant_for_as_long_as_it_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { ledger_memory_bytes: 4 << 10, ..Limits::default() };
    let store =
        Store::open(dir.path(), Options { limits, durability: Durability::Written, ..Options::default() }).unwrap();
    let name = |i: u32| format!("key{i:05}").into_bytes();
    for i in 0..500 {
        store.kv().put(b"b", &name(i), &i.to_le_bytes(), &plain()).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for round in 0..5u32 {
        for i in 0..500 {
            match i % 3 {
                0 => drop(store.kv().delete(b"b", &name(i), Condition::None).unwrap()),
                _ => drop(store.kv().put(b"b", &name(i), &[round as u8; 300], &plain()).unwrap()),
            }
        }
        store.kv().put(b"b", &name(1000 + round), b"new", &plain()).unwrap();
        // Everything is rewritten, written out and merged beneath the snapshot.
        std::thread::sleep(Duration::from_millis(60));
        let all = Page { bucket: b"b", start: Bound::Unbounded, end: Bound::Unbounded, limit: 10_000, values: true };
        let page = snapshot.page(&all).unwrap();
        assert_eq!(page.entries.len(), 500);
        for (i, (key, _, value)) in (0u32..).zip(&page.entries) {
            assert_eq!((key, &**value.as_ref().unwrap()), (&name(i), &i.to_le_bytes()[..]));
        }
        assert_eq!(&*snapshot.get(b"b", &name(7)).unwrap().unwrap().value, 7u32.to_le_bytes());
        assert!(snapshot.head(b"b", &name(1000)).unwrap().is_none());
    }
}

#[test]
fn writers_wait_for_room_and_all_they_wrote_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { ledger_memory_bytes: 2 << 10, ledger_memory_bytes_max: 8 << 10, ..Limits::default() };
    let options = Options { limits, durability: Durability::Written, partitions: 2, ..Options::default() };
    let store = Store::open(dir.path(), options).unwrap();
    std::thread::scope(|threads| {
        for writer in 0..4u8 {
            let kv = store.kv();
            threads.spawn(move || {
                for number in 0..300u32 {
                    kv.put(b"b", &[&[writer][..], &number.to_be_bytes()].concat(), &[writer; 60], &plain()).unwrap();
                }
            });
        }
    });
    let stats = store.stats();
    assert!(stats.delayed_writes > 0 && stats.write_delay > Duration::ZERO, "the disk is slower than four writers");
    // Each of the four may have added one entry to a partition that had room for less.
    assert!(stats.ledger_memory_bytes <= 2 * ((8 << 10) + 4 * 512), "{}", stats.ledger_memory_bytes);
    assert_eq!(store.kv().count(b"b").unwrap().value, 1200);
    store.close().unwrap();
    assert_eq!(open(dir.path()).kv().count(b"b").unwrap().value, 1200);
}

#[test]
fn pages_scans_buckets_and_counts_agree_with_a_plain_map() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let kv = store.kv();
    let mut model = BTreeMap::new();
    let mut random = base::Random::new(5);
    for _ in 0..1000 {
        let key = random.below(400).to_string().into_bytes();
        if random.chance(1, 3) {
            kv.delete(b"b\0x", &key, Condition::None).unwrap();
            model.remove(&key);
        } else {
            kv.put(b"b\0x", &key, &key, &plain()).unwrap();
            model.insert(key.clone(), key);
        }
    }
    kv.put(b"b", b"other", b"", &plain()).unwrap();
    kv.put(b"b\0", b"other", b"", &plain()).unwrap();
    kv.put(b"c", b"other", b"", &plain()).unwrap();
    assert_eq!(kv.buckets().unwrap().value, [b"b".to_vec(), b"b\0".to_vec(), b"b\0x".to_vec(), b"c".to_vec()]);
    assert_eq!(kv.count(b"b\0x").unwrap().value, model.len() as u64);
    let (start, end): (&[u8], &[u8]) = (b"1", b"3");
    let page =
        Page { bucket: b"b\0x", start: Bound::Excluded(start), end: Bound::Included(end), limit: 7, values: true };
    let found = kv.page(&page).unwrap().value;
    let expected: Vec<_> = model.range::<[u8], _>((Bound::Excluded(start), Bound::Included(end))).take(7).collect();
    assert_eq!(
        found.entries.iter().map(|(k, ..)| k).collect::<Vec<_>>(),
        expected.iter().map(|e| e.0).collect::<Vec<_>>()
    );
    assert!(found.more);
    let (mut scanned, mut cursor) = (Vec::new(), None);
    loop {
        let (keys, next) = kv.scan(b"b\0x", cursor.as_ref(), 9).unwrap().value;
        assert!(keys.len() <= 9);
        scanned.extend(keys);
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    scanned.sort();
    assert_eq!(scanned, model.keys().cloned().collect::<Vec<_>>());
    for random in 0..50 {
        assert!(model.contains_key(&kv.random_key(b"b\0x", random).unwrap().value.unwrap()));
    }
    assert_eq!(kv.random_key(b"nothing", 1).unwrap().value, None);
    let mut exclusive = store.exclusive(&Scope::All).unwrap();
    exclusive.clear(b"b\0x").unwrap();
    exclusive.put(b"b\0x", b"after", b"", &plain()).unwrap();
    assert_eq!(exclusive.count(b"b\0x").unwrap(), 1);
    exclusive.commit().unwrap();
    assert_eq!(kv.count(b"b\0x").unwrap().value, 1);
    assert_eq!(kv.count(b"b").unwrap().value, 1);
}

#[test]
fn an_expired_object_is_absent_at_once_and_removed_soon() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let kv = store.kv();
    let soon = store.now_ms() + 150;
    kv.put(b"b", b"short", b"v", &PutOptions { expires_ms: Some(soon), ..plain() }).unwrap();
    kv.put(b"b", b"rewritten", b"v", &PutOptions { expires_ms: Some(soon), ..plain() }).unwrap();
    kv.put(b"b", b"rewritten", b"v", &plain()).unwrap();
    kv.put(b"b", b"kept", b"v", &PutOptions { expires_ms: Some(soon + 100_000), ..plain() }).unwrap();
    let options = PutOptions { keep_expiry: true, ..plain() };
    kv.put(b"b", b"kept", b"w", &options).unwrap();
    assert_eq!(kv.head(b"b", b"kept").unwrap().unwrap().expires_ms, Some(soon + 100_000));
    assert!(kv.get(b"b", b"short").unwrap().is_some());
    assert!(kv.expire(b"b", b"kept", Some(soon)).unwrap());
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while kv.count(b"b").unwrap().value != 1 {
        assert!(std::time::Instant::now() < deadline, "expired objects were not removed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(kv.get(b"b", b"short").unwrap().is_none());
    assert!(kv.get(b"b", b"rewritten").unwrap().is_some());
    assert_eq!(store.stats().expired, 2);
}

/// The files of a ledger's tables.
fn tables_of(dir: &Path, partition: u32) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(dir.join(format!("ledger/{partition:04}"))).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "table")).collect()
}

#[test]
fn a_lost_or_damaged_ledger_is_rebuilt_with_progress_and_the_same_digest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for i in 0..3000u32 {
        let key = (i % 1700).to_le_bytes();
        match i % 7 {
            0 => drop(store.kv().delete(b"b", &key, Condition::None).unwrap()),
            1 => drop(store.kv().put(b"c", &key, &[3; 4000], &plain()).unwrap()),
            2 => drop(store.kv().expire(b"b", &key, Some(4_000_000_000_000)).unwrap()),
            _ => drop(store.kv().put(b"b", &key, &i.to_le_bytes(), &plain()).unwrap()),
        }
    }
    let digest = store.digest().unwrap();
    let (live, count) = (store.stats().live_bytes, store.kv().count(b"b").unwrap().value);
    store.close().unwrap();
    drop(store);
    let ledger = dir.path().join("ledger");
    let damage: [&dyn Fn(); 3] = [
        &|| std::fs::remove_dir_all(&ledger).unwrap(),
        &|| {
            for path in tables_of(dir.path(), 3) {
                let mut bytes = std::fs::read(&path).unwrap();
                let middle = bytes.len() / 3;
                bytes[middle] ^= 1;
                std::fs::write(&path, bytes).unwrap();
            }
        },
        &|| std::fs::write(ledger.join("0005/list"), b"garbage").unwrap(),
    ];
    for (damage, damaged) in damage.into_iter().zip([None, Some("of partition 3 "), None]) {
        damage();
        let trouble = Arc::new(std::sync::Mutex::new(String::new()));
        let hears = Arc::clone(&trouble);
        let hear: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(move |word| hears.lock().unwrap().push_str(word));
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let progress: Arc<dyn Fn(Progress) + Send + Sync> = Arc::new(move |p| seen.lock().unwrap().push(p));
        let options = Options { progress: Some(progress), trouble: Some(hear), ..Options::default() };
        let store = Store::open(dir.path(), options).unwrap();
        // Damage inside a table shows only when it is read: then that partition is rebuilt on the spot.
        for i in 0..1700u32 {
            store.kv().get(b"b", &i.to_le_bytes()).unwrap();
            store.kv().get(b"c", &i.to_le_bytes()).unwrap();
        }
        let found = store.digest().unwrap();
        assert_eq!(found, digest);
        assert_eq!((store.stats().live_bytes, store.kv().count(b"b").unwrap().value), (live, count));
        let trouble = trouble.lock().unwrap();
        assert!(
            damaged.map_or(trouble.is_empty(), |of| trouble.contains(of) && trouble.contains("made anew")),
            "{trouble}"
        );
        drop(store);
    }
}

/// The server ended with exit code 1, though the next start has everything.
#[test]
fn a_table_that_is_found_damaged_when_the_store_closes_is_told_and_is_no_failure() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    for tables in 1..8u32 {
        let dir = tempfile::tempdir().unwrap();
        let heard = Arc::clone(&told);
        let trouble: Arc<dyn Fn(&str) + Send + Sync> =
            Arc::new(move |word| heard.lock().unwrap().push(word.to_owned()));
        let open = || {
            let options = Options { partitions: 1, trouble: Some(trouble.clone()), ..Options::default() };
            Store::open(dir.path(), options).unwrap()
        };
        for table in 0..tables {
            let store = open();
            for key in 0..100 {
                store.kv().put(b"b", &(table * 100 + key).to_be_bytes(), &[7; 50], &plain()).unwrap();
            }
            if table + 1 == tables {
                for path in tables_of(dir.path(), 0) {
                    let mut bytes = std::fs::read(&path).unwrap();
                    let half = bytes.len() / 2;
                    bytes[..half].iter_mut().step_by(50).for_each(|byte| *byte ^= 1);
                    std::fs::write(&path, bytes).unwrap();
                }
            }
            store.close().unwrap();
        }
        assert_eq!(open().kv().count(b"b").unwrap().value, u64::from(tables) * 100);
    }
    let told = told.lock().unwrap();
    assert!(told.iter().any(|word| word.contains("the next opening rebuilds it")), "{told:?}");
}

/// A transaction that had an object expire went on to see it, where an exclusive does not.
#[test]
fn what_expires_by_a_transaction_is_gone_for_the_transaction_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.kv().put(b"b", b"k", b"old", &plain()).unwrap();
    let mut transaction = store.begin();
    assert!(transaction.expire(b"b", b"k", Some(1)).unwrap());
    assert!(transaction.get(b"b", b"k").unwrap().is_none() && !transaction.delete(b"b", b"k").unwrap());
    transaction.put(b"b", b"other", b"", &PutOptions { expires_ms: Some(1), ..plain() }).unwrap();
    assert!(transaction.head(b"b", b"other").unwrap().is_none());
    let absent = PutOptions { condition: Condition::Absent, ..plain() };
    transaction.put(b"b", b"k", b"new", &absent).unwrap();
    transaction.commit(Durability::Written).unwrap();
    assert_eq!(*store.kv().get(b"b", b"k").unwrap().unwrap().value, *b"new");
    assert!(store.kv().get(b"b", b"other").unwrap().is_none());
}

/// How often a ledger is discarded was counted for all together, so a store was lost to damage in any three, of which each can be
/// rebuilt.
#[test]
fn any_number_of_damaged_ledgers_are_rebuilt_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for i in 0..3000u32 {
        store.kv().put(b"b", &i.to_le_bytes(), &[3; 40], &plain()).unwrap();
    }
    let digest = store.digest().unwrap();
    store.close().unwrap();
    drop(store);
    for partition in 0..5 {
        for path in tables_of(dir.path(), partition) {
            let mut bytes = std::fs::read(&path).unwrap();
            // What opening the table itself reads is behind its entries, of which the last is what opening the engine reads.
            let most = bytes.len() * 9 / 10;
            bytes[..most].iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
            std::fs::write(&path, bytes).unwrap();
        }
    }
    assert_eq!(open(dir.path()).digest().unwrap(), digest);
}

/// The story: a copy of the ledger from before was believed, though the journal had let go of what came behind it: what was deleted since was there
/// again.
#[test]
fn a_ledger_that_is_older_than_what_the_journal_still_has_is_made_anew() {
    let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { segment_bytes: 64 << 10, ..Limits::default() };
    let open = || {
        let compaction = CompactionOptions {
            schedule: Schedule::OnDemand,
            dead_percent: 1,
            keep_bytes: 0,
            ..CompactionOptions::default()
        };
        let options = Options { partitions: 2, limits: limits.clone(), compaction, ..Options::default() };
        Store::open(dir.path(), options).unwrap()
    };
    let copy = |from: &Path, to: &Path| {
        for partition in ["0000", "0001"] {
            let _ = std::fs::remove_dir_all(to.join(partition));
            std::fs::create_dir_all(to.join(partition)).unwrap();
            for file in std::fs::read_dir(from.join(partition)).unwrap().map(|entry| entry.unwrap()) {
                std::fs::copy(file.path(), to.join(partition).join(file.file_name())).unwrap();
            }
        }
    };
    let store = open();
    for key in 0..500u32 {
        store.kv().put(b"b", &key.to_be_bytes(), &[7; 100], &plain()).unwrap();
    }
    let first = store.watermarks().appended;
    store.close().unwrap();
    drop(store);
    copy(&dir.path().join("ledger"), old.path());
    let store = open();
    for key in 0..500u32 {
        store.kv().delete(b"b", &key.to_be_bytes(), Condition::None).unwrap();
    }
    for round in 0..30u8 {
        for key in 0..40u8 {
            store.kv().put(b"b", &[key, 1, 1, 1], &[round; 300], &plain()).unwrap();
        }
        store.compact().unwrap();
    }
    let digest = store.digest().unwrap();
    assert!(store.feed_floor() > first, "{} {first} {:?}", store.feed_floor(), store.stats().compaction);
    store.close().unwrap();
    drop(store);
    copy(old.path(), &dir.path().join("ledger"));
    let store = open();
    assert_eq!(store.kv().count(b"b").unwrap().value, 40);
    assert_eq!(store.digest().unwrap(), digest);
}

/// The story: keys of ledgers that were in each other's place were missing without a word, since what each said was intact.
#[test]
fn a_ledger_of_another_partition_or_of_another_store_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let digests = [&one, &other].map(|dir| {
        let store = open(dir);
        for i in 0..500u32 {
            store.kv().put(b"b", &i.to_le_bytes(), &[3; 40], &plain()).unwrap();
        }
        let digest = store.digest().unwrap();
        store.close().unwrap();
        digest
    });
    let exchange = |one: &std::path::Path, other: &std::path::Path| {
        let aside = dir.path().join("aside");
        std::fs::rename(one, &aside).unwrap();
        std::fs::rename(other, one).unwrap();
        std::fs::rename(&aside, other).unwrap();
    };
    exchange(&one.join("ledger/0003"), &one.join("ledger/0007"));
    exchange(&one.join("ledger/0005"), &other.join("ledger/0005"));
    for (dir, digest, wrong) in [(&one, &digests[0], [3, 5, 7].as_slice()), (&other, &digests[1], &[5])] {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let hear: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(move |word| hears.lock().unwrap().push(word.to_owned()));
        let store = Store::open(dir, Options { trouble: Some(hear), ..Options::default() }).unwrap();
        assert_eq!(store.digest().unwrap(), *digest);
        let told = told.lock().unwrap().clone();
        for partition in wrong {
            let wanted = format!("the ledger of partition {partition} is damaged, and is made anew from the journal");
            assert!(told.iter().any(|word| word.contains(&wanted) && word.contains("another partition's")), "{told:?}");
        }
        assert_eq!(told.len(), wrong.len(), "{told:?}");
    }
}

#[test]
fn concurrent_readers_never_see_half_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let keys: Vec<Vec<u8>> = (0..4u8).map(|i| vec![b'k', i]).collect();
    let write = |round: u64| {
        let scope: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (b"b".as_slice(), key.as_slice())).collect();
        let mut exclusive = store.exclusive(&Scope::Keys(&scope)).unwrap();
        for key in &keys {
            exclusive.put(b"b", key, &round.to_le_bytes(), &plain()).unwrap();
        }
        exclusive.commit().unwrap();
    };
    write(0);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for key in &keys {
                        let object = store.kv().get(b"b", key).unwrap().unwrap();
                        let round = u64::from_le_bytes(object.value.as_ref().try_into().unwrap());
                        assert!(round >= last, "{round} after {last}: half a batch was seen");
                        last = round;
                    }
                }
            });
        }
        (1..20_000).for_each(&write);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
