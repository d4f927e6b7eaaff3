//! Who hears of keys and entries that change, at the moment they do: caches of what was read.
//!
//! It is no feed: nothing is kept for those who are not there, and what a power cut takes back was heard of. What it tells is that what was read before
//! is not to be relied on any more.
//!
//! May use: the key-value engine's commands, definitions of types. Must not know: doors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::space::{Definition, ValueRef};
use arc_swap::ArcSwap;
use kv::{Command, Commands, Recorded};

use crate::Store;

/// Hears of keys that change, and of entries of spaces.
///
/// It is called by whoever changes them, while their partition is locked and behind the change: who has told the watcher of a key before it
/// read the key either saw the change or has it told. So it has to be short, must not ask the store for anything, and must not panic.
pub trait KeyWatcher: Send + Sync {
    /// An object was put, deleted, or expires at another time. One that expires is deleted some time later.
    fn changed(&self, bucket: &[u8], key: &[u8]);

    /// Every object of a bucket is gone. Told once for each partition.
    fn cleared(&self, bucket: &[u8]);

    /// An entry of this type was written or removed, or its lease ends at another time. One whose lease has ended is removed some time
    /// later. Whoever does not care for entries has nothing to do.
    fn entry_changed(&self, space: &str, of: &str, id: ValueRef<'_>) {
        let _ = (space, of, id);
    }

    /// Every entry of this type is gone, and the type with them.
    fn entries_cleared(&self, space: &str, of: &str) {
        let _ = (space, of);
    }
}

/// All who hear.
#[derive(Default)]
pub(crate) struct KeyWatchers {
    are_there: AtomicBool,
    all: ArcSwap<Vec<Arc<dyn KeyWatcher>>>,
}

impl KeyWatchers {
    /// Tells what the commands of a section have changed.
    pub(crate) fn tell(&self, section: &[u8]) {
        if self.are_there.load(Ordering::Acquire) {
            self.tell_all(section);
        }
    }

    /// Tells that an entry of this type has changed.
    pub(crate) fn tell_entry(&self, of: &Definition, id: ValueRef<'_>) {
        if self.are_there.load(Ordering::Acquire) {
            self.each(|watcher| watcher.entry_changed(&of.space, &of.name, id));
        }
    }

    /// Tells that a type is gone.
    pub(crate) fn tell_entries_cleared(&self, of: &Definition) {
        self.each(|watcher| watcher.entries_cleared(&of.space, &of.name));
    }

    fn each(&self, tell: impl Fn(&dyn KeyWatcher)) {
        self.all.load().iter().for_each(|watcher| tell(&**watcher));
    }

    fn tell_all(&self, section: &[u8]) {
        let all = self.all.load();
        for said in Commands::new(section, 0).map_while(Result::ok) {
            let Recorded { command, .. } = said.recorded;
            for watcher in all.iter() {
                match &command {
                    Command::Put(put) => watcher.changed(put.bucket, put.key),
                    Command::Delete { bucket, key } | Command::Expire { bucket, key, .. } => {
                        watcher.changed(bucket, key);
                    }
                    Command::Clear { bucket } => watcher.cleared(bucket),
                }
            }
        }
    }
}

impl Store {
    /// Has `watcher` hear of every key and every entry that changes from now on, whoever changes it, for as long as the store is open.
    pub fn watch_keys(&self, watcher: Arc<dyn KeyWatcher>) {
        let watchers = &self.inner().key_watchers;
        watchers.all.rcu(|all| {
            let others = all.iter().cloned();
            others.chain([Arc::clone(&watcher)]).collect::<Vec<_>>()
        });
        watchers.are_there.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use base::ManualClock;
    use base::memory::Disk;

    use super::*;
    use crate::space::{AtLimit, Document, Lease, ReadOptions, Storage, Value, Wanted, WriteOptions};
    use crate::{Condition, Durability, MemoryLedgers, Options, PutOptions, Scope, World};

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl KeyWatcher for Heard {
        fn changed(&self, bucket: &[u8], key: &[u8]) {
            let [bucket, key] = [bucket, key].map(String::from_utf8_lossy);
            self.0.lock().unwrap().push(format!("{bucket}/{key}"));
        }

        fn cleared(&self, bucket: &[u8]) {
            self.0.lock().unwrap().push(format!("{}/", String::from_utf8_lossy(bucket)));
        }

        fn entry_changed(&self, space: &str, of: &str, id: ValueRef<'_>) {
            self.0.lock().unwrap().push(format!("{space}.{of} {}", id.to_value().to_json()));
        }

        fn entries_cleared(&self, space: &str, of: &str) {
            self.0.lock().unwrap().push(format!("{space}.{of}"));
        }
    }

    impl Heard {
        fn take(&self) -> Vec<String> {
            let mut heard = std::mem::take(&mut *self.0.lock().unwrap());
            heard.sort();
            heard
        }
    }

    /// One without threads, in memory, and its clock.
    fn store() -> (Store, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let world = World {
            files: Arc::new(Disk::new(1).process()),
            clock: Arc::clone(&clock) as _,
            ledgers: Arc::new(MemoryLedgers::default()),
            threads: false,
            entropy: 7,
        };
        let options = Options { partitions: 2, durability: Durability::Written, ..Options::default() };
        (Store::open_in(&world, Path::new("/store"), options).unwrap(), clock)
    }

    #[test]
    fn every_change_is_told_whatever_makes_it_and_nothing_that_changes_nothing() {
        let (store, clock) = store();
        let (heard, plain) = (Arc::new(Heard::default()), PutOptions::default());
        let kv = store.kv();
        kv.put(b"b", b"before", b"1", &plain).unwrap();
        store.watch_keys(Arc::clone(&heard) as _);
        kv.put(b"b", b"blind", b"1", &plain).unwrap();
        kv.put(b"b", b"if", b"1", &PutOptions { condition: Condition::Absent, ..PutOptions::default() }).unwrap();
        kv.put(b"b", b"if", b"2", &PutOptions { condition: Condition::Absent, ..PutOptions::default() }).unwrap_err();
        kv.expire(b"b", b"blind", Some(1_700_000_001_000)).unwrap();
        kv.delete(b"b", b"before", Condition::None).unwrap();
        kv.delete(b"b", b"nobody", Condition::None).unwrap();
        assert_eq!(heard.take(), ["b/before", "b/blind", "b/blind", "b/if"]);
        let mut several = store.exclusive(&Scope::Keys(&[(b"b", b"x"), (b"c", b"y")])).unwrap();
        several.put(b"b", b"x", b"1", &plain).unwrap();
        several.put(b"c", b"y", b"1", &plain).unwrap();
        assert_eq!(heard.take(), [""; 0], "not before it is committed");
        several.commit().unwrap();
        assert_eq!(heard.take(), ["b/x", "c/y"]);
        clock.advance(std::time::Duration::from_secs(10));
        store.step().unwrap();
        assert_eq!(heard.take(), ["b/blind"], "it has expired");
        let mut all = store.exclusive(&Scope::All).unwrap();
        all.clear(b"b").unwrap();
        all.commit().unwrap();
        let cleared = heard.take();
        assert!(!cleared.is_empty() && cleared.iter().all(|told| told == "b/"), "{cleared:?}");
    }

    #[test]
    fn every_change_of_an_entry_is_told_whatever_makes_it() {
        let (store, clock) = store();
        let heard = Arc::new(Heard::default());
        store.watch_keys(Arc::clone(&heard) as _);
        let space = store.space("s");
        let plain = WriteOptions::default();
        let entry = |id: u64| Document::from_pairs([("id", id)]);
        let leased = WriteOptions { lease: Lease::For(std::time::Duration::from_secs(1)), ..WriteOptions::default() };
        for storage in [Storage::Durable, Storage::Volatile] {
            let entries = space.declare(Definition { storage, ..Definition::new("s", "t") }).unwrap();
            entries.write(&entry(1), &plain).unwrap();
            entries.write(&entry(1), &plain).unwrap();
            entries.write(&entry(2), &leased).unwrap();
            assert_eq!(heard.take(), ["s.t 1", "s.t 1", "s.t 2"]);
            entries.renew(&Wanted::id(2), Lease::For(std::time::Duration::from_secs(2)), None).unwrap();
            entries.read(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap();
            assert_eq!(heard.take(), ["s.t 2"]);
            clock.advance(std::time::Duration::from_secs(10));
            store.step().unwrap();
            assert_eq!(heard.take(), ["s.t 2"], "its lease has ended");
            entries.take(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap();
            assert_eq!(entries.take(&Wanted::id(1), &ReadOptions::default()).unwrap(), None);
            assert_eq!(heard.take(), ["s.t 1"]);
            entries.write(&entry(3), &plain).unwrap();
            entries.clear(&Wanted::all(), None).unwrap();
            assert_eq!(heard.take(), ["s.t 3", "s.t 3"]);
            let mut transaction = store.begin();
            entries.within(&mut transaction).write(&entry(4), &plain).unwrap();
            assert_eq!(heard.take(), [""; 0], "not before it is committed");
            transaction.commit(Durability::Written).unwrap();
            let routing = Value::from(4u64);
            space.execute(&routing, None, |task| task.take("t", routing.clone()).map(drop)).unwrap();
            assert_eq!(heard.take(), ["s.t 4", "s.t 4"]);
            assert!(space.drop_type("t").unwrap());
            assert_eq!(heard.take(), ["s.t"]);
        }
    }

    #[test]
    fn an_entry_that_makes_room_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options { partitions: 1, ..Options::default() }).unwrap();
        let heard = Arc::new(Heard::default());
        let full = Definition { memory_bytes_max: 300, at_limit: AtLimit::Evict, ..Definition::new("s", "t") };
        let entries = store.space("s").declare(full).unwrap();
        let entry = |id: u64| Document::from_pairs([("id", id)]);
        entries.write(&entry(1), &WriteOptions::default()).unwrap();
        store.watch_keys(Arc::clone(&heard) as _);
        let mut told = Vec::new();
        for id in 2..10 {
            entries.write(&entry(id), &WriteOptions::default()).unwrap();
            told.extend(heard.take());
        }
        assert!(told.iter().any(|told| told == "s.t 1"), "{told:?}");
    }
}
