//! The formats on disk are what they were: a store that an earlier build wrote opens with everything in it, and today's
//! code writes the same bytes.
//!
//! Each folder of `golden` was written by [`story`] in a simulated world, whose clock, identity and boot never differ. The
//! first segments are sealed, the last one is as a killed process left it. `contents.txt` says what is in them,
//! `ledger.txt` what the ledgers held, which are derived and so left out; the digest is one over ledgers.
//!
//! When this fails, a format changed, or what is written when. For a new folder raise [`NEWEST`], run once with
//! `HOLDFAST_BLESS=1`, and leave the older folders as they are: they have to stay readable. When only `ledger.txt` is
//! another, which no program reads back, remove it and run once with `HOLDFAST_BLESS=1`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::memory::Disk;
use base::{Limits, ManualClock, hash64, read_whole};
use holdfast::series::{Key, Match, Points, Range, Rows, Select, Source, ValueRef};
use holdfast::space::{
    Decimal, Definition, Document, Entry, IndexKind, Lease as EntryLease, Order, ReadOptions, Value, Wanted,
    WriteOptions,
};
use holdfast::{
    BranchName, CommitRequest, Condition, Deed, Durability, Forgetting, Heuristic, Indexes, LastResourceId, Learned,
    Lease, Ledgers, MemoryLedgers, Metadata, Options, Page, PutOptions, Scope, Store, Term, TransactionId, World,
};
use journal::PartitionId;

const DIR: &str = "/store";
/// The folder that today's code has to write.
const NEWEST: &str = "11";
/// How many files are in each.
const FILES: [(&str, usize); 11] = [
    ("1", 4),
    ("2", 4),
    ("3", 5),
    ("4", 9),
    ("5", 9),
    ("6", 16),
    ("7", 16),
    ("8", 16),
    ("9", 16),
    ("10", 17),
    (NEWEST, 17),
];
const PARTITIONS: u16 = 2;
/// The year 2100: what expires then is there for as long as this test matters.
const FAR_MS: u64 = 4_102_444_800_000;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn limits() -> Limits {
    Limits { segment_bytes: 8 << 10, zero_ahead_bytes: 1 << 10, inline_bytes_max: 16, ..Limits::default() }
}

fn options() -> Options {
    Options { durability: Durability::Synced, partitions: PARTITIONS, limits: limits(), ..Options::default() }
}

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

/// What the store of the story showed at its end, and what its ledgers held after the clean end.
struct Story {
    contents: String,
    digest: String,
    ledgers: String,
}

/// What the files are made of: every kind of command, values in the ledger and beside it, batches over several
/// partitions, a batch larger than a segment, a clean end, and changes behind it.
fn story(disk: &Disk) -> Story {
    let ledgers = MemoryLedgers::new();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let world = World {
        files: Arc::new(disk.process()),
        clock: Arc::clone(&clock) as _,
        ledgers: Arc::new(ledgers.clone()),
        threads: false,
        entropy: 42,
    };
    let plain = PutOptions::default();
    let store = Store::open_in(&world, Path::new(DIR), options()).unwrap();
    // The worked example of docs/formats.
    let put = PutOptions { metadata: Metadata::from_pairs([("lang", "en")]), ..plain.clone() };
    store.kv().put(b"users", b"ada", b"countess", &put).unwrap();
    for (number, len) in [0, 1, 16, 17, 300, 1000, 10_000].into_iter().enumerate() {
        clock.advance(Duration::from_millis(1500));
        let metadata = match number % 3 {
            0 => Metadata::default(),
            _ => Metadata::from_pairs([("type", "text/plain"), ("from", "golden")]),
        };
        let expires_ms = (number % 2 == 1).then_some(FAR_MS + number as u64);
        let put = PutOptions { metadata, expires_ms, ..plain.clone() };
        store.kv().put(b"sizes", format!("{len:05}").as_bytes(), &value(len), &put).unwrap();
    }
    let names: Vec<Vec<u8>> = (0..9u8).map(|number| vec![b'k', 0, number]).collect();
    let keys: Vec<(&[u8], &[u8])> = names.iter().map(|name| (b"a\0b".as_slice(), name.as_slice())).collect();
    let mut together = store.exclusive(&Scope::Keys(&keys)).unwrap();
    for name in &names {
        together.put(b"a\0b", name, b"together", &plain).unwrap();
    }
    together.commit().unwrap();
    store.kv().put(b"cleared", b"x", b"gone", &plain).unwrap();
    store.kv().put(b"db0", b"replaced", b"old", &plain).unwrap();
    store.kv().put(b"db0", b"replaced", b"new", &plain).unwrap();
    let pairs = [("city", Term::Binary(b"Ulm".to_vec())), ("age", Term::Integer(-3)), ("age", Term::Integer(40))];
    let put = PutOptions { indexes: Indexes::from_pairs(pairs), ..plain.clone() };
    store.kv().put(b"users", b"bo", b"found by index", &put).unwrap();
    let mut all = store.exclusive(&Scope::All).unwrap();
    all.clear(b"cleared").unwrap();
    all.commit().unwrap();
    decide(&store);
    write_entries(&store, 0);
    write_points(&store, 0);
    store.step().unwrap();
    store.close().unwrap();
    drop(store);
    let ledgers_text = ledgers_in_hex(&ledgers);
    disk.kill_process();
    clock.advance(Duration::from_secs(3600));
    let world = World { files: Arc::new(disk.process()), ..world };
    let store = Store::open_in(&world, Path::new(DIR), options()).unwrap();
    store.kv().delete(b"a\0b", &names[4], Condition::None).unwrap().unwrap();
    assert!(store.kv().expire(b"sizes", b"00300", Some(FAR_MS)).unwrap());
    assert!(store.kv().expire(b"sizes", b"00001", None).unwrap());
    store.kv().put(b"db1", b"last", &value(200), &plain).unwrap();
    write_entries(&store, 10);
    write_points(&store, 100);
    let (contents, digest) = (contents(&store), digest(&store));
    // A killed process: the last segment is not sealed.
    disk.kill_process();
    ledgers.kill_process();
    Story { contents, digest, ledgers: ledgers_text }
}

/// Every kind of record of distributed transactions. The lease is so long that no owner ends while the test looks.
fn decide(store: &Store) {
    let (xa, synced) = (store.xa(), Durability::Synced);
    let open = || xa.open(Lease::For(Duration::from_secs(600)), "golden").unwrap().wait(synced).unwrap();
    let (owner, ended) = (open(), open());
    let coordinator = xa.coordinator();
    let id = |sequence| TransactionId {
        coordinator,
        owner,
        sequence,
        deadline_ms: FAR_MS,
        shared: false,
        last_resource: None,
    };
    let branches = ["pg", "maria"].map(|name| BranchName::new(name).unwrap());
    xa.commit(&CommitRequest { id: id(1), branches: &branches, wait: Duration::ZERO }, synced).unwrap();
    // What a last resource decided, of which the coordinator has a copy.
    let by_last = TransactionId { last_resource: Some(LastResourceId(9)), ..id(4) };
    xa.commit(&CommitRequest { id: by_last, branches: &branches, wait: Duration::ZERO }, synced).unwrap();
    let learned =
        branches.map(|branch| Learned { heuristic: (branch.as_str() == "pg").then_some(Heuristic::Mixed), branch });
    xa.forget(id(1), &learned, Forgetting::Known).unwrap().wait(synced).unwrap();
    xa.abort(id(2)).unwrap().wait(synced).unwrap();
    // Rolled back, against which a resource manager committed.
    let deed = Deed { branch: BranchName::new("maria").unwrap(), did: Heuristic::Commit };
    xa.note_deeds(id(3), &[deed]).unwrap().wait(synced).unwrap();
    xa.end(ended).unwrap().wait(synced).unwrap();
}

/// Every kind of command of a space, and every kind of value; a batch with keys.
fn write_entries(store: &Store, first: u64) {
    let space = store.space("golden");
    let by_ended = Definition::new("golden", "event").index("tags[*]", IndexKind::Hash).unwrap();
    let events = space.declare(Definition { history: true, ..by_ended }).unwrap();
    let queue = space.declare(Definition { order: Order::Fifo, ..Definition::new("golden", "queue") }).unwrap();
    space.declare(Definition::new("golden", "dropped")).unwrap();
    assert!(space.drop_type("dropped").unwrap());
    let document = |number: u64| {
        Document::from_pairs([
            ("id", Value::from(first + number)),
            ("flag", true.into()),
            ("nothing", Value::Null),
            ("large", u64::MAX.into()),
            ("ratio", 0.1.into()),
            ("price", Value::Decimal(Decimal { mantissa: -1250, scale: 2 })),
            ("at", Value::Timestamp(1_700_000_000_123_456_789)),
            ("raw", Value::Bytes(vec![0, 255])),
            ("tags", vec!["a", "b"].into()),
        ])
    };
    let lease = EntryLease::For(Duration::from_millis(FAR_MS - store.now_ms()));
    for number in 0..4 {
        let options =
            WriteOptions { lease: if number == 1 { lease } else { EntryLease::Default }, ..WriteOptions::default() };
        events.write(&document(number), &options).unwrap();
        queue.write(&document(number), &options).unwrap();
    }
    events.write(&document(0), &WriteOptions::default()).unwrap();
    events.renew(&Wanted::id(first + 2), lease, None).unwrap();
    queue.take(&Wanted::all(), &ReadOptions::default()).unwrap().unwrap();
    let mut transaction = store.begin();
    transaction.put(b"db1", b"with entries", b"one batch", &PutOptions::default()).unwrap();
    events.within(&mut transaction).take(&Wanted::id(first + 3), &ReadOptions::default()).unwrap().unwrap();
    transaction.commit(Durability::Synced).unwrap();
}

/// Every kind of command of time series, and every kind of value; few points and many, regular and not; a batch with a key.
fn write_points(store: &Store, first: i64) {
    let series = store.series();
    series.create_database("empty").unwrap();
    series.create_database("forgotten").unwrap();
    series.drop_database("forgotten").unwrap();
    let mut rows = Rows::new("golden");
    let point = |rows: &mut Rows, (metric, field): (&str, &str), at: i64, value: ValueRef<'_>| {
        let name = |_: &[u8]| Ok((metric.to_owned(), vec![("host".to_owned(), "a".to_owned())]));
        let row = rows.row(metric.as_bytes(), name).unwrap();
        let slot = rows.field(row, 0, field.as_bytes(), |_| Ok(field.to_owned())).unwrap();
        rows.push(slot, (1_700_000_000 + first + at) * 1_000_000_000, value);
    };
    for at in 0..100 {
        point(&mut rows, ("many", "regular"), at, ValueRef::Float(at as f64 / 4.0));
        point(&mut rows, ("many", "jittered"), 3 * at + at % 2, ValueRef::Integer(at * at - 50));
        point(&mut rows, ("many", "rough"), at, ValueRef::Float(1.0 / (at + 3) as f64));
    }
    // In pages, and with rollups of an hour.
    for at in 0..600 {
        point(&mut rows, ("paged", "regular"), 10 * at, ValueRef::Float((at * at % 977) as f64 / 10.0));
        point(&mut rows, ("paged", "jittered"), 9 * at + at % 3, ValueRef::Integer(at - 50));
        point(&mut rows, ("paged", "rough"), 10 * at, ValueRef::Float(1.0 / (at + 3) as f64));
    }
    let few = [
        ("float", ValueRef::Float(f64::from_bits(0x7ff8_0000_0000_0007))),
        ("integer", ValueRef::Integer(i64::MIN)),
        ("unsigned", ValueRef::Unsigned(u64::MAX)),
        ("boolean", ValueRef::Boolean(true)),
        ("text", ValueRef::Text("Grüße")),
        ("mixed", ValueRef::Integer(7)),
        ("mixed", ValueRef::Float(0.5)),
        ("gone", ValueRef::Float(1.0)),
    ];
    for (at, (field, value)) in few.into_iter().enumerate() {
        point(&mut rows, ("few", field), at as i64, value);
    }
    let mut exclusive = store.exclusive(&Scope::Keys(&[(b"db1", b"with points")])).unwrap();
    exclusive.put(b"db1", b"with points", b"one batch", &PutOptions::default()).unwrap();
    exclusive.add_points(&mut rows).unwrap();
    exclusive.commit().unwrap();
    let from = (1_700_000_000 + first) * 1_000_000_000;
    let some = Range { from: from + 10_000_000_000, to: from + 20_000_000_000 };
    series.delete(&Select { field: Some(Match::is("regular")), ..Select::metric("golden", "many") }, some).unwrap();
    let gone = Select { field: Some(Match::is("gone")), ..Select::metric("golden", "few") };
    let (position, _) = series.drop_series(&gone).unwrap();
    store.wait(position, Durability::Synced).unwrap();
}

/// The store's files, by their paths in its folder; locks hold nothing.
fn files(disk: &Disk) -> BTreeMap<String, Vec<u8>> {
    let in_store = |path: &Path| path.strip_prefix(DIR).unwrap().to_str().unwrap().to_owned();
    let read = |path: &Path| read_whole(disk, path, u64::MAX).unwrap();
    // Disk space that is kept back is no part of what is stored.
    let is_stored = |(path, _): &(PathBuf, u64)| path.file_name() != Some("spare".as_ref());
    disk.inventory().into_iter().filter(is_stored).map(|(path, _)| (in_store(&path), read(&path))).collect()
}

/// What a store shows, one line for each object.
fn contents(store: &Store) -> String {
    let mut text = String::new();
    for bucket in store.kv().buckets().unwrap().value {
        let all =
            Page { bucket: &bucket, start: Bound::Unbounded, end: Bound::Unbounded, limit: usize::MAX, values: true };
        for (key, head, value) in store.kv().page(&all).unwrap().value.entries {
            let value = value.unwrap();
            let pair = |(name, value): (&[u8], &[u8])| format!(" {}={}", name.escape_ascii(), value.escape_ascii());
            let metadata: String = head.metadata.iter().map(pair).collect();
            let indexes: String =
                head.indexes.iter().map(|(name, term)| format!(" {}={term:?}", name.escape_ascii())).collect();
            let (bucket, key) = (bucket.escape_ascii(), key.escape_ascii());
            writeln!(
                text,
                "{bucket} {key}: version {}, {} bytes, crc32c {:08x}, xxh3 {:016x}, modified {}, expires {:?}, metadata{metadata}{indexes}",
                head.version,
                head.value_bytes,
                head.checksum,
                hash64(&value),
                head.modified_ms,
                head.expires_ms,
            )
            .unwrap();
        }
    }
    for status in store.xa().list(None, 100).unwrap().wait(Durability::Synced).unwrap().statuses {
        let branches: String = status.branches.iter().map(|(name, state)| format!(" {name}={state:?}")).collect();
        writeln!(text, "transaction {}: {:?} at {:?}, branches{branches}", status.id, status.state, status.at_ms)
            .unwrap();
    }
    for name in store.spaces() {
        for definition in store.space(&name).types() {
            let entries = store.space(&name).entries(&definition.name).unwrap();
            let mut all = entries.read_many(&Wanted::all(), usize::MAX).unwrap();
            all.sort_by_key(|entry| entry.document.as_bytes().to_vec());
            for Entry { document, version, expires_ms } in all {
                let json = document.to_json();
                writeln!(text, "{name} {} {json}: version {version}, expires {expires_ms:?}", definition.name).unwrap();
            }
        }
    }
    let reader = store.series().reader();
    for database in reader.databases().unwrap() {
        writeln!(text, "database {database}").unwrap();
        for series in reader.series(&Select { database: database.clone(), ..Select::default() }).unwrap() {
            let mut points = Points::new();
            reader.points(series.id, Range::ALL, &mut points).unwrap();
            for (time, value) in points.iter() {
                let Key { metric, field, tags, .. } = &*series.key;
                let bits = value.number().map_or(0, f64::to_bits);
                writeln!(text, "point {metric} {tags:?} {field} {time}: {value:?} {bits:016x}").unwrap();
            }
        }
    }
    text
}

fn digest(store: &Store) -> String {
    format!("{:032x}\n", store.digest().unwrap())
}

/// Every entry of every ledger, in hexadecimal.
fn ledgers_in_hex(ledgers: &MemoryLedgers) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut text = String::new();
    for partition in 0..PARTITIONS {
        let ledger = ledgers.open(PartitionId::new(partition)).unwrap();
        let mut entries = ledger.range(&kv::Bounds::new(Bound::Unbounded, Bound::Unbounded, kv::Reading::Sweep));
        while entries.advance().unwrap() {
            writeln!(text, "{partition} {} {}", hex(entries.key()), hex(entries.value())).unwrap();
        }
    }
    text
}

/// Compares with what lies in the golden folder; the newest is written first if it is not there and this run may.
fn assert_same(folder: &str, name: &str, now: &[u8]) {
    let path = golden().join(folder).join(name);
    if folder == NEWEST && !path.exists() && std::env::var_os("HOLDFAST_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, now).unwrap();
    }
    let kept = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differs = kept.iter().zip(now).position(|(a, b)| a != b).unwrap_or(kept.len().min(now.len()));
    let (was, is) = (kept.len(), now.len());
    assert!(kept == now, "{}: was {was} bytes, is {is}, differs at {differs}; see {}", path.display(), file!());
}

/// Copies the store of a golden folder; returns how many files it has.
fn copy(from: &Path, to: &Path) -> usize {
    let mut copied = 0;
    for part in ["", "journal", "space", "series"].into_iter().filter(|part| from.join(part).is_dir()) {
        std::fs::create_dir_all(to.join(part)).unwrap();
        for entry in std::fs::read_dir(from.join(part)).unwrap().map(Result::unwrap) {
            let ends = ["seg", "snap", "old", "points", "names", "copy"];
            let is_of_the_store = entry.path().extension().is_none_or(|end| ends.iter().any(|one| end == *one));
            if entry.file_type().unwrap().is_file() && is_of_the_store {
                std::fs::copy(entry.path(), to.join(part).join(entry.file_name())).unwrap();
                copied += 1;
            }
        }
    }
    copied
}

#[test]
fn todays_code_writes_the_bytes_it_always_wrote() {
    let disk = Disk::new(1);
    let story = story(&disk);
    let files = files(&disk);
    assert_eq!(Some(&(NEWEST, files.len())), FILES.last(), "{:?}", files.keys());
    for (name, bytes) in files {
        assert_same(NEWEST, &name, &bytes);
    }
    assert_same(NEWEST, "ledger.txt", story.ledgers.as_bytes());
    assert_same(NEWEST, "contents.txt", story.contents.as_bytes());
    assert_same(NEWEST, "digest.txt", story.digest.as_bytes());
}

#[test]
fn stores_of_earlier_builds_open_with_everything_in_them() {
    for entry in std::fs::read_dir(golden()).unwrap().map(Result::unwrap) {
        let folder = entry.file_name().into_string().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let count = FILES.iter().find(|(name, _)| *name == folder).map_or(0, |(_, count)| *count);
        assert_eq!(copy(&entry.path(), dir.path()), count, "{folder} is no store");
        for opening in 1..=3 {
            let store = Store::open(dir.path(), options()).unwrap();
            assert!(store.stats().damage.is_empty(), "{folder}, opening {opening}: {:?}", store.stats().damage);
            assert_same(&folder, "contents.txt", contents(&store).as_bytes());
            if folder == NEWEST {
                assert_same(NEWEST, "digest.txt", digest(&store).as_bytes());
            }
            if opening == 2 {
                store.kv().put(b"new", b"key", b"value", &PutOptions::default()).unwrap();
                store.kv().delete(b"new", b"key", Condition::None).unwrap();
            }
            store.close().unwrap();
        }
    }
}
