//! The limit of memory of a whole space.

use holdfast::ErrorKind;
use holdfast::space::{AtLimit, Direction, EvictBy, Lease, Order, Path, Placement, SpaceUsage, Storage};

use super::*;

const LIMIT: u64 = 16 << 10;

fn declare(store: &Store, name: &str, at_limit: AtLimit) -> Entries {
    store.space("s").declare(Definition { at_limit, ..Definition::new("s", name) }).unwrap()
}

fn open(dir: &std::path::Path) -> Store {
    Store::open(dir, options()).unwrap()
}

/// Writes until it is refused; how many were written.
fn fill(entries: &Entries, from: i64) -> i64 {
    for number in from.. {
        match entries.write(&order(number, "x", 0), &upsert()) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
                return number - from;
            }
        }
    }
    unreachable!("the limit is far below")
}

#[test]
fn all_types_of_a_space_keep_to_its_limit_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let space = store.space("s");
    // A limit may come first.
    space.limit_memory(Some(LIMIT)).unwrap();
    assert_eq!(space.memory().unwrap(), SpaceUsage { bytes: 0, bytes_max: Some(LIMIT) });
    let spread = declare(&store, "spread", AtLimit::Refuse);
    let queue = Definition { order: Order::Fifo, storage: Storage::Volatile, ..Definition::new("s", "queue") };
    let queue = space.declare(queue).unwrap();
    // One that lies in a single partition may take all of it.
    let most = fill(&queue, 0);
    let used = space.memory().unwrap().bytes;
    assert!(most > 50 && used <= LIMIT && used > LIMIT - 300, "{most} entries, {used} bytes");
    let refused = spread.write(&order(1, "x", 0), &upsert()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit);
    assert!(refused.to_string().contains("the space s has reached its limit of 16384 bytes"), "{refused}");
    // What takes no more is not refused, and what goes gives room to all.
    queue.write(&order(0, "y", 1), &upsert()).unwrap();
    for _ in 0..10 {
        queue.take(&Wanted::all(), &now()).unwrap().unwrap();
    }
    let more = fill(&spread, 0);
    assert!((8..=15).contains(&more), "{more}");
    // Another space is another.
    let other = store.space("other").declare(Definition::new("other", "order")).unwrap();
    other.write(&order(1, "x", 0), &upsert()).unwrap();
    // In a transaction, and a task, all of it or nothing.
    let mut transaction = store.begin();
    spread.within(&mut transaction).write(&order(1000, "x", 0), &upsert()).unwrap();
    other.within(&mut transaction).write(&order(2, "x", 0), &upsert()).unwrap();
    assert_eq!(transaction.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(other.count(&Wanted::all()).unwrap(), 1);
    let task = space.execute(&Value::from(1000), None, |task| task.write("spread", &order(1000, "x", 0), &upsert()));
    assert_eq!(task.unwrap_err().kind(), ErrorKind::Limit);
    // Raised and taken away it holds at once.
    space.limit_memory(Some(LIMIT * 2)).unwrap();
    assert!(fill(&spread, 1000) > 50);
    space.limit_memory(None).unwrap();
    spread.write(&order(5000, "x", 0), &upsert()).unwrap();
    let used = space.memory().unwrap();
    assert!(used.bytes > LIMIT * 2 - 300 && used.bytes_max.is_none(), "{used:?}");
    // Below what is there already everything stays, and nothing more comes.
    space.limit_memory(Some(1000)).unwrap();
    assert_eq!(fill(&spread, 6000), 0);
    assert!(spread.read(&Wanted::id(5000), &now()).unwrap().is_some());
    // But what comes to take less is on its way below it.
    let before = space.memory().unwrap().bytes;
    spread.write(&order(5000, "", 0), &upsert()).unwrap();
    assert!(space.memory().unwrap().bytes < before);
    assert_eq!(spread.write(&order(5000, "longer", 0), &upsert()).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn types_of_one_transaction_count_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let space = store.space("s");
    let types: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| declare(&store, name, AtLimit::Refuse)).collect();
    space.limit_memory(Some(2_000)).unwrap();
    let commit = |each: i64| {
        let mut transaction = store.begin();
        for entries in &types {
            for number in 0..each {
                entries.within(&mut transaction).write(&order(number, "x", 0), &upsert()).unwrap();
            }
        }
        transaction.commit(Durability::Written)
    };
    let task = |each: i64| {
        space.execute(&Value::from(1), None, |task| {
            for name in ["a", "b", "c", "d"] {
                (0..each).try_for_each(|_| task.write(name, &order(1, &"x".repeat(200), 0), &upsert()).map(|_| ()))?;
            }
            Ok(())
        })
    };
    // Each type's alone would fit.
    assert_eq!(commit(10).unwrap_err().kind(), ErrorKind::Limit);
    space.limit_memory(Some(900)).unwrap();
    assert_eq!(task(1).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(space.memory().unwrap().bytes, 0);
    space.limit_memory(Some(2_000)).unwrap();
    task(1).unwrap();
    space.limit_memory(Some(10_000)).unwrap();
    commit(10).unwrap();
}

#[test]
fn a_cache_makes_room_for_what_must_not_go() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let space = store.space("s");
    let (cache, orders) = (declare(&store, "cache", AtLimit::Evict), declare(&store, "orders", AtLimit::Refuse));
    space.limit_memory(Some(LIMIT)).unwrap();
    for number in 0..500 {
        cache.write(&order(number, "x", 0), &upsert()).unwrap();
        assert!(cache.read(&Wanted::id(number), &now()).unwrap().is_some(), "what was just written stays");
    }
    let cached = cache.count(&Wanted::all()).unwrap();
    assert!(cached > 50 && space.memory().unwrap().bytes <= LIMIT);
    let written = fill(&orders, 0);
    let left = cache.count(&Wanted::all()).unwrap();
    assert!(written > 100 && left == 0, "{written} orders, {cached} cached before, {left} now");
    assert_eq!(orders.count(&Wanted::all()).unwrap(), written as u64, "none of these went");
    assert!(space.memory().unwrap().bytes <= LIMIT);
    // None of the cache is left where none of it can go.
    assert_eq!(cache.write(&order(9_000, "x", 0), &upsert()).unwrap_err().kind(), ErrorKind::Limit);
}

/// It lay in one partition, and was refused when that had no more of the cache.
#[test]
fn a_cache_in_all_partitions_makes_room_for_a_type_in_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let space = store.space("s");
    let cache = declare(&store, "cache", AtLimit::Evict);
    let queue = space.declare(Definition { order: Order::Fifo, ..Definition::new("s", "queue") }).unwrap();
    space.limit_memory(Some(LIMIT)).unwrap();
    (0..500).for_each(|number| drop(cache.write(&order(number, "x", 0), &upsert()).unwrap()));
    // What a transaction has locked stays.
    let held = Wanted::id(id(&cache.read(&Wanted::all(), &now()).unwrap().unwrap()));
    let mut transaction = store.begin();
    cache.within(&mut transaction).read(&held, holdfast::space::ReadLock::Exclusive, &now()).unwrap().unwrap();
    assert!(fill(&queue, 0) > 80);
    assert_eq!(cache.count(&Wanted::all()).unwrap(), 1);
    assert!(space.memory().unwrap().bytes <= LIMIT);
    assert!(cache.read(&held, &now()).unwrap().is_some());
}

#[test]
fn what_cannot_fit_evicts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let space = store.space("s");
    let (cache, orders) = (declare(&store, "cache", AtLimit::Evict), declare(&store, "orders", AtLimit::Refuse));
    space.limit_memory(Some(LIMIT)).unwrap();
    (0..40).for_each(|number| drop(orders.write(&order(number, "x", 0), &upsert()).unwrap()));
    (0..500).for_each(|number| drop(cache.write(&order(number, "x", 0), &upsert()).unwrap()));
    let cached = cache.count(&Wanted::all()).unwrap();
    let large = |bytes: usize| order(1_000, &"y".repeat(bytes), 0);
    for _ in 0..3 {
        let refused = orders.write(&large(LIMIT as usize - 2_000), &upsert()).unwrap_err();
        assert_eq!((refused.kind(), cache.count(&Wanted::all()).unwrap()), (ErrorKind::Limit, cached));
    }
    orders.write(&large(4_000), &upsert()).unwrap();
    let left = cache.count(&Wanted::all()).unwrap();
    assert!(left > 0 && left < cached, "as many as it takes: {left} of {cached}");
}

/// Nobody waited for it, so that entries that others had seen to be gone were there again after a kill, however long ago that was.
#[test]
fn what_was_evicted_for_a_write_that_is_refused_stays_gone() {
    let (store, _clock) = with_clock();
    let limited = Definition {
        memory_bytes_max: 4_000,
        at_limit: AtLimit::Evict,
        order: Order::Fifo,
        ..Definition::new("s", "cache")
    };
    let cache = store.space("s").declare(limited).unwrap();
    (0..5).for_each(|number| drop(cache.write(&order(number, &"x".repeat(500), 0), &upsert()).unwrap()));
    let mut transaction = store.begin();
    cache.within(&mut transaction).take(&Wanted::id(0), &now()).unwrap().unwrap();
    let refused = cache.write(&order(9, &"y".repeat(3_500), 0), &upsert()).unwrap_err();
    assert_eq!((refused.kind(), cache.count(&Wanted::all()).unwrap()), (ErrorKind::Limit, 1));
    let marks = store.watermarks();
    assert_eq!(marks.written, marks.appended);
}

/// The space is full, and a job that is done takes the place of itself.
#[test]
fn what_moves_between_types_needs_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let space = store.space("s");
    let (todo, done) = (declare(&store, "todo", AtLimit::Refuse), declare(&store, "done", AtLimit::Refuse));
    space.limit_memory(Some(LIMIT)).unwrap();
    let most = fill(&todo, 0);
    for number in 0..most / 2 {
        let mut transaction = store.begin();
        let job = todo.within(&mut transaction).take(&Wanted::id(number), &now()).unwrap().unwrap();
        done.within(&mut transaction).write(&job.document, &upsert()).unwrap();
        transaction.commit(Durability::Written).unwrap();
    }
    for number in most / 2..most {
        let moved = space.execute(&Value::from(number), None, |task| {
            let job = task.take("todo", number)?.expect("it is there");
            task.write("done", &job.document, &upsert())
        });
        moved.unwrap();
    }
    assert_eq!((todo.count(&Wanted::all()).unwrap(), done.count(&Wanted::all()).unwrap()), (0, most as u64));
}

#[test]
fn what_has_ended_makes_room() {
    let (store, clock) = with_clock();
    let entries = declare(&store, "t", AtLimit::Refuse);
    store.space("s").limit_memory(Some(LIMIT)).unwrap();
    let short = WriteOptions { lease: Lease::For(Duration::from_secs(1)), ..upsert() };
    for number in 0..20 {
        entries.write(&order(number, "x", 0), &short).unwrap();
    }
    let written = fill(&entries, 100);
    clock.advance(Duration::from_secs(2));
    let more = fill(&entries, 1_000);
    assert!(more > 0 && entries.count(&Wanted::all()).unwrap() as i64 == written + more, "{written}, {more}");
}

#[test]
fn the_limit_is_there_after_a_restart_a_backup_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let written = {
        let store = open(dir.path());
        let entries = declare(&store, "t", AtLimit::Refuse);
        store.space("s").limit_memory(Some(LIMIT)).unwrap();
        store.space("unused").limit_memory(Some(1)).unwrap();
        let written = fill(&entries, 0);
        store.compact().unwrap();
        written
    };
    let backup = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        assert_eq!(store.space("s").memory().unwrap().bytes_max, Some(LIMIT));
        assert_eq!(store.space("s").entries("t").unwrap().count(&Wanted::all()).unwrap(), written as u64);
        assert_eq!(fill(&store.space("s").entries("t").unwrap(), 10_000), 0);
        // A space that had no type has its limit when it gets one.
        let first = store.space("unused").declare(Definition::new("unused", "t")).unwrap();
        assert_eq!(first.write(&order(1, "x", 0), &upsert()).unwrap_err().kind(), ErrorKind::Limit);
        store.backup(backup.path().join("b")).unwrap();
        store.space("s").limit_memory(None).unwrap();
    }
    {
        let store = open(dir.path());
        assert_eq!(store.space("s").memory().unwrap().bytes_max, None);
        store.space("s").entries("t").unwrap().write(&order(10_000, "x", 0), &upsert()).unwrap();
    }
    for (name, why) in [("", "1 to"), ("a\nb", "control")] {
        let store = open(dir.path());
        let refused = store.space(name).limit_memory(Some(1)).unwrap_err();
        assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains(why), "{refused}");
    }
}

/// The sum is of what all threads do, in all partitions.
#[test]
fn many_writers_stay_at_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let space = store.space("s");
    let (kept, cache) = (declare(&store, "kept", AtLimit::Refuse), declare(&store, "cache", AtLimit::Evict));
    space.limit_memory(Some(LIMIT)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (kept, cache) = (kept.clone(), cache.clone());
            scope.spawn(move || {
                for number in 0..500 {
                    let entry = order(writer * 1_000 + number, "x", 0);
                    let entries = if number % 2 == 0 { &kept } else { &cache };
                    match entries.write(&entry, &upsert()) {
                        Ok(_) if number % 3 == 0 => drop(entries.take(&Wanted::id(id_of(&entry)), &now()).unwrap()),
                        Ok(_) => {}
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Limit, "{error}"),
                    }
                }
            });
        }
    });
    let used = space.memory().unwrap().bytes;
    // As many as write at one moment may pass together.
    assert!(used <= LIMIT + 4 * 300 && used > LIMIT / 2, "{used}");
    assert_eq!(used, kept.usage().bytes + cache.usage().bytes);
}

fn id_of(document: &Document) -> i64 {
    match document.get("id") {
        Some(holdfast::space::ValueRef::I64(id)) => id,
        other => panic!("no id: {other:?}"),
    }
}

/// What is left of four entries, of which one has to go, when something was done with them and the type was declared again.
fn left_of_four(act: impl Fn(&Entries)) -> Vec<i64> {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let at_limit = AtLimit::Evict;
    let roomy = Definition {
        placement: Placement::Together,
        at_limit,
        memory_bytes_max: 1 << 20,
        ..Definition::new("s", "cache")
    };
    let cache = store.space("s").declare(roomy.clone()).unwrap();
    for number in [3, 1, 2] {
        cache.write(&order(number, "x", 0), &upsert()).unwrap();
    }
    act(&cache);
    // Declaring it again forgot the order in which they were used.
    let memory_bytes_max = cache.usage().bytes;
    let cache = store.space("s").declare(Definition { memory_bytes_max, ..roomy }).unwrap();
    cache.write(&order(4, "x", 0), &upsert()).unwrap();
    let there = |number: &i64| cache.count(&Wanted::id(*number)).unwrap() == 1;
    (1..5).filter(there).collect()
}

#[test]
fn what_was_used_last_stays_when_the_type_is_declared_again() {
    let query = |sql: &str| Wanted::query(sql, &[]).unwrap();
    assert_eq!(left_of_four(|_| ()), [1, 2, 4], "that was written first");
    assert_eq!(left_of_four(|cache| drop(cache.read(&Wanted::id(3), &now()).unwrap())), [2, 3, 4]);
    // Reading several is a use of each that is shown, and of no other.
    assert_eq!(left_of_four(|cache| drop(cache.read_many(&Wanted::id(3), 9).unwrap())), [2, 3, 4]);
    assert_eq!(left_of_four(|cache| drop(cache.read_many(&query("id = 3"), 9).unwrap())), [2, 3, 4]);
    assert_eq!(left_of_four(|cache| drop(cache.select("SELECT id FROM cache WHERE id = 3", &[]).unwrap())), [2, 3, 4]);
    assert_eq!(left_of_four(|cache| drop(cache.read_many(&query("id > 3"), 9).unwrap())), [1, 2, 4]);
    // Whole queries in an order or with figures, and counting, are none.
    assert_eq!(left_of_four(|cache| drop(cache.read_many(&query("id = 3 ORDER BY id"), 9).unwrap())), [1, 2, 4]);
    assert_eq!(left_of_four(|cache| drop(cache.select("SELECT MAX(id) AS most FROM cache", &[]).unwrap())), [1, 2, 4]);
    assert_eq!(left_of_four(|cache| assert_eq!(cache.count(&query("id = 3")).unwrap(), 1)), [1, 2, 4]);
}

#[test]
fn entries_are_evicted_by_what_their_type_says_also_behind_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let by = |direction| EvictBy { path: Path::parse("total").unwrap(), direction };
    let definition = Definition {
        memory_bytes_max: 6_000,
        at_limit: AtLimit::Evict,
        evict_by: Some(by(Direction::Ascending)),
        placement: Placement::Together,
        ..Definition::new("s", "offers").index("total", IndexKind::Ordered).unwrap()
    };
    // The best of them, whatever the order in which they come and whoever looks at the others.
    let totals = |offers: &Entries| -> Vec<i64> {
        let all = offers.read_many(&Wanted::query("total >= 0 ORDER BY total", &[]).unwrap(), 999).unwrap();
        all.iter().map(|entry| entry.document.get("total").and_then(|it| it.as_i64()).unwrap()).collect()
    };
    {
        let store = open(dir.path());
        let offers = store.space("s").declare(definition.clone()).unwrap();
        // One that lacks it stays.
        offers.write(&Document::from_pairs([("id", -1_i64)]), &upsert()).unwrap();
        for number in 0..200_i64 {
            offers.write(&order(1_000 + number, "x", 1_000 + number * 37 % 200), &upsert()).unwrap();
            drop(offers.read(&Wanted::id(1_000), &now()).unwrap());
        }
        let there = totals(&offers);
        assert!((10..100).contains(&there.len()), "{there:?}");
        // What comes last is there even if it is the worst.
        let best: Vec<i64> = (1_200 - there.len() as i64 + 1..1_200).collect();
        assert_eq!(there[1..], best, "{there:?}");
    }
    let store = open(dir.path());
    let offers = store.space("s").entries("offers").unwrap();
    assert_eq!(*offers.definition(), definition);
    offers.write(&order(2_000, "x", 1_500), &upsert()).unwrap();
    offers.write(&order(2_001, "x", 1_100), &upsert()).unwrap();
    let there = totals(&offers);
    assert_eq!((there[0], there[there.len() - 1]), (1_100, 1_500));
    offers.write(&order(2_002, "x", 1_501), &upsert()).unwrap();
    assert!(!totals(&offers).contains(&1_100), "the least of them went");
    assert!(offers.read(&Wanted::id(-1), &now()).unwrap().is_some());
    // The other way round, as soon as it is said.
    let other = Definition { evict_by: Some(by(Direction::Descending)), ..definition };
    let offers = store.space("s").declare(other).unwrap();
    offers.write(&order(2_003, "x", 1_003), &upsert()).unwrap();
    let there = totals(&offers);
    assert!(there.contains(&1_003) && !there.contains(&1_501), "{there:?}");
}
