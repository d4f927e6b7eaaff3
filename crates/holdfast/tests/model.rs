//! Everything at once, on a real disk with threads: writers, readers, folds, compaction by itself and on demand, and
//! backups, with restarts between.
//!
//! Each writer owns a bucket and notes the position of every change, so afterwards it is known what the store held at any
//! position. What snapshots, backups and restarts showed is compared with that, exactly. What readers saw in between is
//! judged by what was done before they asked and begun before they were answered.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside the wall"
)]

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use base::Random;
use holdfast::*;

/// Each has a bucket whose name is its number; 0 would be one of the store's own.
const WRITERS: std::ops::RangeInclusive<u8> = 1..=3;
const READERS: u64 = 2;
/// Keys of a writer that change one at a time.
const KEYS: u8 = 80;
/// Keys of a writer that are only ever put together.
const PAIR: [u8; 2] = [KEYS, KEYS + 1];
const ALL_KEYS: u8 = KEYS + 2;
/// An index of one bucket fits into one answer.
const INDEX_LIMIT: usize = 100;
const ERAS: u64 = 3;
const ERA_TIME: Duration = Duration::from_millis(500);
/// Steps of a writer from one signal to compaction and backup to the next.
const STEPS_PER_TICK: u64 = 32;
/// A bucket that all writers change, in transactions that may conflict.
const SHARED: &[u8] = b"shared";
const VALUE_MAX: u64 = 1_200;

/// Version and number of each object, by bucket and key.
type Contents = BTreeMap<(u8, u8), (Position, u64)>;

/// The value that is put with this number: it says where it belongs, and is short enough to lie in the ledger, or not.
fn value(key: (u8, u8), number: u64) -> Vec<u8> {
    let mut random = Random::new(number << 16 | u64::from(key.0) << 8 | u64::from(key.1));
    let length = if random.chance(1, 4) { 0 } else { random.below(VALUE_MAX) };
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + usize::try_from(length).unwrap(), 0);
    random.fill(&mut value[8..]);
    value
}

/// The number in a value, which must be the whole value of that number.
fn number_of(key: (u8, u8), found: &[u8]) -> u64 {
    let number = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert!(found == value(key, number), "{key:?} holds a value that nobody put, with number {number}");
    number
}

/// What readers may see of one key.
#[derive(Default)]
struct Watch {
    /// Number of the newest change that was begun.
    begun: AtomicU64,
    /// Twice the number of the newest change that is done, and one more if the object is there since.
    done: AtomicU64,
}

type Watches = BTreeMap<(u8, u8), Watch>;

/// One writer: what it did to its bucket, change by change.
struct Writer {
    bucket: u8,
    random: Random,
    number: u64,
    /// Position of each change, and the number of the value since; `None` when there is no object since.
    history: BTreeMap<u8, Vec<(Position, Option<u64>)>>,
    increments: u64,
}

impl Writer {
    fn latest(&self, key: u8) -> Option<u64> {
        self.history.get(&key).and_then(|changes| changes.last()).and_then(|(_, number)| *number)
    }

    /// Makes a change under a new number; `act` says at which position it happened, or that it changed nothing.
    fn change(
        &mut self,
        watches: &Watches,
        keys: &[u8],
        stays: bool,
        act: impl FnOnce(&mut Random, u64) -> Result<Option<Position>>,
    ) {
        self.number += 1;
        let number = self.number;
        let watch = |key: u8| &watches[&(self.bucket, key)];
        keys.iter().for_each(|key| watch(*key).begun.store(number, SeqCst));
        let position = act(&mut self.random, number).unwrap();
        keys.iter().for_each(|key| watch(*key).done.store(number * 2 + u64::from(stays), SeqCst));
        for key in keys {
            let Some(position) = position else {
                assert_eq!(self.latest(*key), None, "it was there, and could not be removed");
                continue;
            };
            self.history.entry(*key).or_default().push((position, stays.then_some(number)));
        }
    }

    fn step(&mut self, store: &Store, watches: &Watches) {
        let (bucket, name) = (self.bucket, [self.bucket]);
        // Some keys are changed all the time and some hardly ever: these are what compaction has to move.
        let colder_than = self.random.below(u64::from(KEYS)) + 1;
        let key = u8::try_from(self.random.below(colder_than)).unwrap();
        match self.random.below(400) {
            0..200 => self.change(watches, &[key], true, |random, number| {
                let put = store.kv().put(&name, &[key], &value((bucket, key), number), &options(random, number));
                Ok(Some(put?.position))
            }),
            200..260 => self.change(watches, &PAIR, true, |random, number| {
                let mut together = store.begin();
                for key in PAIR {
                    together.put(&name, &[key], &value((bucket, key), number), &options(random, number))?;
                }
                Ok(Some(together.commit(store.durability())?.position))
            }),
            260..300 => self.change(watches, &[key], false, |_, _| {
                Ok(store.kv().delete(&name, &[key], Condition::None)?.map(|done| done.position))
            }),
            // It is gone at once, and removed by the background at some time.
            300..320 => self.change(watches, &[key], false, |_, _| expire(store, bucket, key, 1)),
            320..340 => {
                let latest = self.latest(key);
                let expired = expire(store, bucket, key, u64::MAX >> 2).unwrap();
                assert_eq!(expired.is_some(), latest.is_some());
                let changes = self.history.entry(key).or_default();
                changes.extend(expired.map(|position| (position, latest)));
            }
            340 => {
                let keys: Vec<u8> = (0..ALL_KEYS).collect();
                self.change(watches, &keys, false, |_, _| {
                    let mut exclusive = store.exclusive(&Scope::All)?;
                    exclusive.clear(&name)?;
                    Ok(Some(exclusive.commit()?.position))
                });
            }
            341..360 => {
                while !increment(store) {}
                self.increments += 1;
            }
            _ => {
                let found = store.kv().get(&name, &[key]).unwrap();
                let found = found.map(|object| number_of((bucket, key), &object.value));
                assert_eq!(found, self.latest(key), "{bucket} {key}: nobody else writes it");
            }
        }
    }

    /// Adds what the bucket held before this position.
    fn held_below(&self, below: Position, contents: &mut Contents) {
        for (key, changes) in &self.history {
            let before = changes.partition_point(|(position, _)| *position < below);
            if let Some((version, Some(number))) = changes[..before].last() {
                contents.insert((self.bucket, *key), (*version, *number));
            }
        }
    }
}

/// Each value is found by its number, and stored somehow.
fn options(random: &mut Random, number: u64) -> PutOptions {
    let codecs = [None, Some(Compression::Lz4), Some(Compression::Zstd)];
    let indexes = Indexes::from_pairs([(b"number", Term::Integer(i64::try_from(number).unwrap()))]);
    let compression = codecs[usize::try_from(random.below(3)).unwrap()];
    PutOptions { indexes, compression, ..PutOptions::default() }
}

/// The position of the change; `None` when there is no such object.
fn expire(store: &Store, bucket: u8, key: u8, expires_ms: u64) -> Result<Option<Position>> {
    let mut exclusive = store.exclusive(&Scope::Keys(&[(&[bucket], &[key])]))?;
    let there = exclusive.expire(&[bucket], &[key], Some(expires_ms))?;
    let committed = exclusive.commit()?;
    store.wait(committed.position, store.durability())?;
    Ok(there.then_some(committed.position))
}

/// Adds one to the number that all writers share; false when another one did meanwhile.
fn increment(store: &Store) -> bool {
    let mut transaction = store.begin();
    let added = (|| {
        let found = transaction.get(SHARED, b"counter")?;
        let next = found.map_or(0, |object| u64::from_le_bytes(object.value[..].try_into().unwrap())) + 1;
        transaction.put(SHARED, b"counter", &next.to_le_bytes(), &PutOptions::default())
    })();
    match added.and_then(|()| transaction.commit(store.durability())) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            false
        }
    }
}

fn model(writers: &[Writer], below: Position) -> Contents {
    let mut contents = Contents::new();
    writers.iter().for_each(|writer| writer.held_below(below, &mut contents));
    contents
}

/// What a snapshot shows of the writers' buckets.
fn contents(snapshot: &Snapshot, order: FoldOrder) -> Contents {
    let mut contents = Contents::new();
    let fold = Fold { order, ..Fold::default() };
    let read = snapshot.fold(&fold, &mut |folded| {
        if let ([bucket], [key]) = (folded.bucket(), folded.key()) {
            let number = number_of((*bucket, *key), &folded.value()?);
            let before = contents.insert((*bucket, *key), (folded.version(), number));
            assert_eq!(before, None, "{bucket} {key} came twice");
        }
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(read.unwrap(), None);
    contents
}

/// Reads single keys and pages, until the writers are done.
fn read(store: &Store, watches: &Watches, is_over: &AtomicBool, mut random: Random) -> u64 {
    let mut seen: BTreeMap<(u8, u8), (Position, u64)> = BTreeMap::new();
    let mut reads = 0;
    while !is_over.load(SeqCst) {
        let at = usize::try_from(random.below(watches.len() as u64)).unwrap();
        let (name, watch) = watches.iter().nth(at).unwrap();
        let done = watch.done.load(SeqCst);
        let found = store.kv().get(&[name.0], &[name.1]).unwrap();
        let begun = watch.begun.load(SeqCst);
        let (done, was_there) = (done / 2, done % 2 == 1);
        if let Some(object) = found {
            let shown = (object.head.version, number_of(*name, &object.value));
            let since = if was_there { done } else { done + 1 };
            assert!((since..=begun).contains(&shown.1), "{name:?}: {shown:?}, not {since} to {begun}");
            let before = seen.insert(*name, shown).unwrap_or(shown);
            assert!(before <= shown && before.1 <= shown.1, "{name:?}: {shown:?} after {before:?}");
        } else {
            assert!(!was_there || begun > done, "{name:?} is not there, after {done} and before {begun}");
        }
        if random.chance(1, 16) {
            let (start, end) = (Bound::Unbounded, Bound::Unbounded);
            let page = Page { bucket: &[name.0], start, end, limit: 50, values: true };
            store.kv().page(&page).unwrap();
        }
        reads += 1;
    }
    reads
}

/// Folds one snapshot after another, until the writers are done; returns what each showed, and at which position.
fn fold(store: &Store, is_over: &AtomicBool, mut random: Random) -> Vec<(Position, Contents)> {
    let orders = [FoldOrder::Key, FoldOrder::Write, FoldOrder::Partition];
    let mut shown: Vec<(Position, Contents)> = Vec::new();
    let mut held: Option<(Snapshot, Contents)> = None;
    while !is_over.load(SeqCst) {
        let mut order = || orders[usize::try_from(random.below(3)).unwrap()];
        let snapshot = store.snapshot().unwrap();
        let found = contents(&snapshot, order());
        for bucket in WRITERS {
            let [left, right] = PAIR.map(|key| found.get(&(bucket, key)));
            assert_eq!(left, right, "one of a pair in bucket {bucket} at {}", snapshot.position());
            assert_eq!(indexed(&snapshot, bucket), of_bucket(&found, bucket), "the index of bucket {bucket}");
        }
        if let Some((snapshot, before)) = &held {
            assert_eq!(&contents(snapshot, order()), before, "what a snapshot shows has changed");
        }
        assert!(shown.last().is_none_or(|(position, _)| *position <= snapshot.position()));
        shown.push((snapshot.position(), found.clone()));
        // Some are held for a while, so that compaction has to wait; but not always one.
        held = match random.below(4) {
            0 => Some((snapshot, found)),
            1 => None,
            _ => held,
        };
    }
    shown
}

/// Numbers and keys, by the index.
fn indexed(snapshot: &Snapshot, bucket: u8) -> Vec<(u64, u8)> {
    let (from, to) = (&Term::Integer(i64::MIN), &Term::Integer(i64::MAX));
    let bucket = &[bucket];
    let query = IndexQuery { bucket, index: b"number", from, to, term_regex: None, limit: INDEX_LIMIT, after: None };
    let page = snapshot.index(&query).unwrap();
    assert_eq!(page.next, None);
    let entry = |(term, key): (Term, Vec<u8>)| match term {
        Term::Integer(number) => (u64::try_from(number).unwrap(), key[0]),
        Term::Binary(_) => panic!("all terms are numbers"),
    };
    page.entries.to_vec().into_iter().map(entry).collect()
}

/// Numbers and keys, in the order of an index.
fn of_bucket(contents: &Contents, bucket: u8) -> Vec<(u64, u8)> {
    let of = contents.range((bucket, 0)..=(bucket, u8::MAX));
    let mut entries: Vec<(u64, u8)> = of.map(|((_, key), (_, number))| (*number, *key)).collect();
    entries.sort_unstable();
    entries
}

/// Small enough for dozens of segments and tables in each era, not so small that all the time goes into syncs of them.
fn limits() -> Limits {
    Limits {
        segment_bytes: 24 << 10,
        zero_ahead_bytes: 4 << 10,
        group_bytes_max: 8 << 10,
        ledger_memory_bytes: 16 << 10,
        ledger_memory_bytes_max: 256 << 10,
        replay_bytes_max: 1 << 20,
        ..Limits::tiny()
    }
}

fn open(dir: &Path, era: u64) -> Store {
    let window = Durability::window(Duration::from_millis(1), Duration::from_millis(5));
    let durability = [Durability::Written, window, Durability::Synced][usize::try_from(era % 3).unwrap()];
    let schedule = if era.is_multiple_of(2) { Schedule::Continuous } else { Schedule::OnDemand };
    let compaction = CompactionOptions { schedule, bytes_per_second: 0, dead_percent: 5, keep_bytes: 0 };
    Store::open(dir, Options { durability, limits: limits(), partitions: 4, compaction, ..Options::default() }).unwrap()
}

/// What an era came to, beside the writers' histories.
struct Outcome {
    reads: u64,
    shown: Vec<(Position, Contents)>,
    /// Compactions that were asked for.
    asked: u64,
    /// The newest backup: everything below this position.
    backup: Option<Position>,
}

/// Tells the others that the writers are done, also when one of them failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// All at once, until the time is over.
fn live(store: &Store, writers: &mut [Writer], watches: &Watches, backup: &Path, random: &mut Random) -> Outcome {
    let is_over = AtomicBool::new(false);
    let (compact_ticks, compact_due) = sync_channel(1);
    let (backup_ticks, backup_due) = sync_channel(1);
    let ticks = [compact_ticks, backup_ticks];
    thread::scope(|scope| {
        let over = Over(&is_over);
        let compacting = scope.spawn(|| compact_when_due(store, compact_due));
        let backing_up = scope.spawn(|| backup_when_due(store, backup, backup_due));
        let reading: Vec<_> = (0..READERS)
            .map(|_| {
                let (random, is_over) = (Random::new(random.next()), &is_over);
                scope.spawn(move || read(store, watches, is_over, random))
            })
            .collect();
        let random = Random::new(random.next());
        let folding = scope.spawn(|| fold(store, &is_over, random));
        let writing: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                let ticks = ticks.clone();
                scope.spawn(move || write_and_tick(store, writer, watches, &ticks))
            })
            .collect();
        drop(ticks);
        writing.into_iter().for_each(|writer| writer.join().unwrap());
        drop(over);
        Outcome {
            reads: reading.into_iter().map(|reader| reader.join().unwrap()).sum(),
            shown: folding.join().unwrap(),
            asked: compacting.join().unwrap(),
            backup: backing_up.join().unwrap(),
        }
    })
}

fn write_and_tick(store: &Store, writer: &mut Writer, watches: &Watches, ticks: &[SyncSender<()>]) {
    let end = Instant::now() + ERA_TIME;
    for step in 0.. {
        if Instant::now() >= end {
            break;
        }
        writer.step(store, watches);
        if step % STEPS_PER_TICK == 0 {
            // Who is still busy has been told already.
            for tick in ticks {
                let _ = tick.try_send(());
            }
        }
    }
}

fn compact_when_due(store: &Store, due: Receiver<()>) -> u64 {
    let one = |()| store.compact().inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"));
    due.into_iter().map(one).filter(Result::is_ok).count() as u64
}

fn backup_when_due(store: &Store, dir: &Path, due: Receiver<()>) -> Option<Position> {
    due.into_iter().map(|()| store.backup(dir).unwrap().position).last()
}

#[test]
fn everything_at_once_shows_what_was_written_at_every_instant_in_every_backup_and_after_every_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup, restored) = (dir.path().join("data"), dir.path().join("backup"), dir.path().join("restored"));
    let mut random = Random::new(base::entropy());
    let new = |(bucket, random)| Writer { bucket, random, number: 0, history: BTreeMap::new(), increments: 0 };
    let mut writers: Vec<Writer> = WRITERS.map(|bucket| new((bucket, Random::new(random.next())))).collect();
    let names = WRITERS.flat_map(|bucket| (0..ALL_KEYS).map(move |key| (bucket, key)));
    let watches: Watches = names.map(|name| (name, Watch::default())).collect();
    let (mut compacted, mut moved_bytes) = (0, 0);
    let mut store = open(&data, 0);
    for era in 0..ERAS {
        let outcome = live(&store, &mut writers, &watches, &backup, &mut random);
        assert!(outcome.reads > 0 && outcome.asked > 0 && !outcome.shown.is_empty(), "era {era} was idle");
        for (position, shown) in &outcome.shown {
            assert_eq!(*shown, model(&writers, Position::new(position.get() + 1)), "at {position}");
        }
        // Nothing holds a snapshot any more, so what waited for one goes now.
        let compaction = store.compact().unwrap();
        let all = model(&writers, Position::MAX);
        assert_eq!(contents(&store.snapshot().unwrap(), FoldOrder::Write), all);
        let stats = store.stats();
        assert!(stats.damage.is_empty(), "{:?}", stats.damage);
        compacted += compaction.segments;
        moved_bytes += compaction.moved_bytes;
        store.close().unwrap();
        drop(store);

        // A backup is made in each era; that of the second is only brought up to date by the third.
        if era.is_multiple_of(2) {
            restore(&backup, &restored, Restore::default(), &mut |_| ()).unwrap();
            let from_backup = Store::open(&restored, Options::default()).unwrap();
            let found = contents(&from_backup.snapshot().unwrap(), FoldOrder::Key);
            assert_eq!(found, model(&writers, outcome.backup.unwrap()), "the backup");
            drop(from_backup);
            std::fs::remove_dir_all(&restored).unwrap();
        } else {
            std::fs::remove_dir_all(data.join("ledger")).unwrap();
        }
        store = open(&data, era + 1);
        assert_eq!(contents(&store.snapshot().unwrap(), FoldOrder::Key), all, "after a restart");
    }
    let counter = store.kv().get(SHARED, b"counter").unwrap().unwrap();
    let increments: u64 = writers.iter().map(|writer| writer.increments).sum();
    assert_eq!(u64::from_le_bytes(counter.value[..].try_into().unwrap()), increments);
    assert!(compacted > 0 && moved_bytes > 0, "{compacted} segments, {moved_bytes} bytes moved");
}
