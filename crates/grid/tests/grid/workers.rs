//! Worker loops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use client::{Client, Entries};
use holdfast::space::{Definition, Order, Path, Wanted};
use holdfast::{ErrorKind, PutOptions, Store};
use holdfast_grid::{Backoff, Failure, WorkerOptions, Workers};

use super::*;

const QUICK: Backoff = Backoff { first: Duration::from_micros(200), max: Duration::from_millis(3) };

fn embedded(dir: &tempfile::TempDir) -> Client {
    Client::embedded(&Store::open(dir.path(), options()).unwrap()).unwrap()
}

fn declare(client: &Client, name: &str, order: Order) -> Entries {
    client.space("shop").declare(Definition { order, ..Definition::new("shop", name) }).wait().unwrap()
}

/// How many there are, locked ones too.
fn there(entries: &Entries) -> u64 {
    entries.usage().wait().unwrap().entries
}

fn waiters(entries: &Entries) -> u64 {
    entries.waiters().wait().unwrap()
}

fn ids(entries: &Entries) -> Vec<i64> {
    let mut ids: Vec<i64> = entries.read_many(&Wanted::all(), 100_000).wait().unwrap().iter().map(id).collect();
    ids.sort_unstable();
    ids
}

fn quick(threads: usize, batch_max: usize) -> WorkerOptions {
    let durability = Durability::Written;
    WorkerOptions { threads, batch_max, backoff: QUICK, durability, ..WorkerOptions::default() }
}

#[test]
fn nothing_is_lost_or_done_twice_over_failures_panics_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let client = embedded(&dir);
    let (orders, done) = (declare(&client, "order", Order::Any), declare(&client, "done", Order::Any));
    let letters = declare(&client, "letter", Order::Any);
    let tries = Arc::new(AtomicU64::new(0));
    const COUNT: i64 = 600;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..COUNT {
                orders.write(&order(number, "ada", number), &upsert()).wait().unwrap();
            }
        });
        for round in 0.. {
            let (writes, tried) = (done.clone(), Arc::clone(&tries));
            let options =
                WorkerOptions { dead_letters: Some(letters.clone()), attempts_max: 1000, ..quick(3, 1 + round % 5) };
            let workers = Workers::start(&client, &orders, &Wanted::all(), options, move |transaction, entry| {
                let number = id(entry);
                transaction.write(&writes, &entry.document, &upsert()).wait()?;
                let count = transaction.get_value(b"counts", &number.to_le_bytes()).wait()?.is_some();
                assert!(!count, "done twice: {number}");
                transaction.put(b"counts", &number.to_le_bytes(), b"1", &PutOptions::default()).wait()?;
                match dice(tried.fetch_add(1, Ordering::Relaxed)) % 8 {
                    0 => Err(Failure::new("no luck")),
                    1 => panic!("no luck at all"),
                    _ => Ok(()),
                }
            })
            .unwrap();
            let goal = (tries.load(Ordering::Relaxed) + 150).min(10_000);
            until("tries", || {
                tries.load(Ordering::Relaxed) >= goal || done.count(&Wanted::all()).wait().unwrap() == COUNT as u64
            });
            let stats = workers.stop();
            assert_eq!((stats.waiting, stats.dead, stats.trouble), (0, 0, None));
            assert_eq!(waiters(&orders), 0);
            if done.count(&Wanted::all()).wait().unwrap() == COUNT as u64 {
                break;
            }
        }
        writer.join().unwrap();
    });
    assert_eq!(ids(&done), (0..COUNT).collect::<Vec<_>>());
    assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 0);
    // All that was let go of can be locked again.
    assert_eq!(there(&orders), 0);
}

/// What was done of each group, in the order of doing; every third try of an entry fails.
fn in_order(order_of: Order, threads: usize, batch_max: usize) {
    let dir = tempfile::tempdir().unwrap();
    let client = embedded(&dir);
    let steps = declare(&client, "step", order_of.clone());
    const COUNT: i64 = 300;
    let done: Arc<Mutex<BTreeMap<Vec<u8>, Vec<i64>>>> = Arc::default();
    let told = Arc::clone(&done);
    let tries = AtomicU64::new(0);
    let workers =
        Workers::start(&client, &steps, &Wanted::all(), quick(threads, batch_max), move |transaction, entry| {
            match dice(tries.fetch_add(1, Ordering::Relaxed)) % 6 {
                0 => return Err(Failure::new("no luck")),
                1 => panic!("no luck at all"),
                _ => {}
            }
            // In a key, so that what is rolled back is not told.
            let group = entry.document.get("customer").map(holdfast::space::key_of).unwrap_or_default();
            let mut line = transaction.get_value(b"lines", &group).wait()?.unwrap_or_default();
            line.extend(id(entry).to_be_bytes());
            transaction.put(b"lines", &group, &line, &PutOptions::default()).wait()?;
            let line = line.chunks(8).map(|it| i64::from_be_bytes(it.try_into().unwrap())).collect();
            told.lock().unwrap().insert(group, line);
            Ok(())
        })
        .unwrap();
    for number in 0..COUNT {
        let customer = ["ada", "bob", "eve", "kim", "lee"][(dice(number as u64) % 5) as usize];
        steps.write(&order(number, customer, 0), &upsert()).wait().unwrap();
    }
    until("all steps", || there(&steps) == 0);
    let stats = workers.stop();
    assert_eq!(stats.handled, COUNT as u64);
    let done = done.lock().unwrap();
    assert_eq!(done.values().map(Vec::len).sum::<usize>(), COUNT as usize);
    assert!(done.values().all(|line| line.is_sorted()), "{done:?}");
    assert_eq!(done.values().flatten().collect::<BTreeSet<_>>().len(), COUNT as usize);
}

#[test]
fn groups_keep_their_order_under_failures() {
    let groups = Order::Groups(Path::parse("customer").unwrap());
    in_order(groups.clone(), 4, 1);
    in_order(groups, 3, 7);
}

#[test]
fn first_in_first_out_keeps_its_order_under_failures() {
    in_order(Order::Fifo, 1, 1);
    in_order(Order::Fifo, 1, 5);
}

#[test]
fn an_entry_that_always_fails_becomes_a_dead_letter_and_keeps_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let client = embedded(&dir);
    let steps = declare(&client, "step", Order::Groups(Path::parse("customer").unwrap()));
    let letters = declare(&client, "letter", Order::Any);
    let tries = Arc::new(AtomicU64::new(0));
    let tried = Arc::clone(&tries);
    for (number, customer) in [(1, "ada"), (2, "ada"), (3, "bob"), (4, "ada")] {
        steps.write(&order(number, customer, 0), &upsert()).wait().unwrap();
    }
    let options = WorkerOptions { dead_letters: Some(letters.clone()), attempts_max: 3, ..quick(2, 4) };
    let workers = Workers::start(&client, &steps, &Wanted::all(), options, move |transaction, entry| {
        if id(entry) == 2 {
            tried.fetch_add(1, Ordering::Relaxed);
            transaction.put(b"b", b"half", b"done", &PutOptions::default()).wait()?;
            return Err(Failure::new("2 is odd"));
        }
        Ok(())
    })
    .unwrap();
    until("all steps", || there(&steps) == 0);
    let stats = workers.stop();
    assert_eq!((stats.handled, stats.failed, stats.dead, tries.load(Ordering::Relaxed)), (3, 3, 1, 3));
    let letter = letters.read(&Wanted::all(), &now()).wait().unwrap().unwrap().document;
    assert_eq!(integer(&letter, "attempts"), 3);
    assert_eq!(letter.get("error"), Some(ValueRef::String("2 is odd")));
    assert_eq!(letter.at(&["entry", "id"]), Some(ValueRef::I64(2)));
    assert!(client.kv().get(b"b", b"half").wait().unwrap().is_none(), "what failed changed nothing");
}

#[test]
fn a_stop_in_the_middle_ends_what_is_in_work_and_takes_nothing_new() {
    let dir = tempfile::tempdir().unwrap();
    let client = embedded(&dir);
    let orders = declare(&client, "order", Order::Any);
    (0..10).for_each(|number| drop(orders.write(&order(number, "ada", 0), &upsert()).wait().unwrap()));
    let (begun, goes_on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (begins, waits) = (Arc::clone(&begun), Arc::clone(&goes_on));
    let workers = Workers::start(&client, &orders, &Wanted::all(), quick(2, 1), move |_, _| {
        begins.fetch_add(1, Ordering::SeqCst);
        until("the test lets handlers go on", || waits.load(Ordering::SeqCst) == 1);
        Ok(())
    })
    .unwrap();
    until("two are in work", || begun.load(Ordering::SeqCst) == 2);
    let stats = std::thread::scope(|scope| {
        let stops = scope.spawn(|| workers.stop());
        // It waits for them, however long that is.
        (0..1000).for_each(|_| std::thread::yield_now());
        goes_on.store(1, Ordering::SeqCst);
        stops.join().unwrap()
    });
    assert!((2..=4).contains(&stats.handled), "{stats:?}");
    assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 10 - stats.handled);
    // Nothing is left locked, and nobody waits.
    assert_eq!(orders.take_many(&Wanted::all(), 100, &now()).wait().unwrap().len() as u64, 10 - stats.handled);
    let idle = Workers::start(&client, &orders, &Wanted::all(), quick(3, 1), |_, _| Ok(())).unwrap();
    until("all wait", || waiters(&orders) == 3);
    idle.stop();
    assert_eq!(waiters(&orders), 0);
}

#[test]
fn stopping_is_awaited_while_handlers_end_and_goes_on_when_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let client = embedded(&dir);
    let orders = declare(&client, "order", Order::Any);
    let held = |begun: &Arc<AtomicU64>, goes_on: &Arc<AtomicU64>| {
        orders.write(&order(1, "ada", 0), &upsert()).wait().unwrap();
        let (begins, waits) = (Arc::clone(begun), Arc::clone(goes_on));
        let workers = Workers::start(&client, &orders, &Wanted::all(), quick(1, 1), move |_, _| {
            begins.fetch_add(1, Ordering::SeqCst);
            until("the test lets handlers go on", || waits.load(Ordering::SeqCst) == 1);
            Ok(())
        });
        until("it is in work", || begun.load(Ordering::SeqCst) == 1);
        workers.unwrap()
    };
    let (begun, goes_on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stopping = held(&begun, &goes_on).stop_with(&client).begin();
    // This thread is free to let the handler end.
    goes_on.store(1, Ordering::SeqCst);
    assert_eq!(stopping.wait().unwrap().handled, 1);
    let (begun, goes_on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    drop(held(&begun, &goes_on).stop_with(&client).begin());
    orders.write(&order(2, "ada", 0), &upsert()).wait().unwrap();
    goes_on.store(1, Ordering::SeqCst);
    until("the handler has ended", || there(&orders) == 1);
    until("nobody waits", || waiters(&orders) == 0);
    assert_eq!(ids(&orders), [2], "nothing new was taken");
    drop(Workers::start(&client, &orders, &Wanted::id(3), quick(2, 1), |_, _| Ok(())).unwrap().stop_with(&client));
    assert_eq!(waiters(&orders), 0);
}

#[test]
fn a_handler_that_outlives_its_lease_has_worked_in_vain() {
    let dir = tempfile::tempdir().unwrap();
    let client = embedded(&dir);
    let (orders, done) = (declare(&client, "order", Order::Any), declare(&client, "done", Order::Any));
    orders.write(&order(1, "ada", 0), &upsert()).wait().unwrap();
    let calls = AtomicU64::new(0);
    let options = WorkerOptions { lease: Duration::from_millis(300), ..quick(1, 1) };
    let (writes, watches) = (done.clone(), orders.clone());
    let workers = Workers::start(&client, &orders, &Wanted::all(), options, move |transaction, entry| {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            // Somebody else can have it when the lease is over.
            until("the lease ends", || {
                let other = watches.take(&Wanted::all(), &now()).wait().unwrap();
                other.is_some_and(|entry| watches.write(&entry.document, &upsert()).wait().is_ok())
            });
        }
        transaction.write(&writes, &entry.document, &upsert()).wait().map(|_| ()).or(Ok(()))
    })
    .unwrap();
    // Not when there is no entry: the test itself takes it for a moment.
    until("it is done", || workers.stats().handled == 1);
    let stats = workers.stop();
    assert_eq!((stats.handled, stats.failed, ids(&done)), (1, 1, vec![1]));
}

#[test]
fn options_out_of_range_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let client = embedded(&dir);
    let (any, fifo) = (declare(&client, "any", Order::Any), declare(&client, "fifo", Order::Fifo));
    let starts = |entries: &Entries, options: WorkerOptions| {
        Workers::start(&client, entries, &Wanted::all(), options, |_, _| Ok(())).map(|_| ()).map_err(|it| it.kind())
    };
    assert_eq!(starts(&fifo, quick(2, 1)), Err(ErrorKind::Invalid));
    assert_eq!(starts(&any, quick(0, 1)), Err(ErrorKind::Invalid));
    assert_eq!(starts(&any, quick(1, 0)), Err(ErrorKind::Invalid));
    assert_eq!(starts(&any, quick(1, 1001)), Err(ErrorKind::Invalid));
    let own_letters = WorkerOptions { dead_letters: Some(any.clone()), ..quick(1, 1) };
    assert_eq!(starts(&any, own_letters), Err(ErrorKind::Invalid));
    let volatile = holdfast::space::Storage::Volatile;
    let definition = Definition { storage: volatile, ..Definition::new("shop", "lost") };
    let lost = client.space("shop").declare(definition).wait().unwrap();
    let lost_letters = WorkerOptions { dead_letters: Some(lost), ..quick(1, 1) };
    assert_eq!(starts(&any, lost_letters), Err(ErrorKind::Invalid));
    // A worker takes one after the other: it would pass over both.
    for sql in ["id > 0 ORDER BY id", "id > 0 LIMIT 10"] {
        let wanted = Wanted::query(sql, &[]).unwrap();
        let started = Workers::start(&client, &any, &wanted, quick(1, 1), |_, _| Ok(()));
        assert_eq!(started.err().map(|error| error.kind()), Some(ErrorKind::Invalid), "{sql}");
    }
    assert_eq!(starts(&any, quick(1, 1)), Ok(()));
}
