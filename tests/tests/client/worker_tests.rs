//! Worker loops: the same ones over a store in the process and over a server, whose connections break, and which is killed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Client, ConnectOptions, Entries, Transaction};
use grid::{Backoff, Failure, WorkerOptions, WorkerStats, Workers};
use holdfast::space::{Definition, Document, Entry, Order, Path, ReadOptions, Value, Wanted};
use holdfast::{Durability, ErrorKind, PutOptions};
use holdfast_tests::{Launch, until};
use tempfile::TempDir;

use crate::cut::Way;
use crate::scene::{both, connect, declare, document, impatient, number, order, orders, upsert};

const PATIENCE: Duration = Duration::from_secs(60);
const QUICK: Backoff = Backoff { first: Duration::from_micros(200), max: Duration::from_millis(5) };

fn quick(threads: usize) -> WorkerOptions {
    WorkerOptions { threads, backoff: QUICK, durability: Durability::Written, ..WorkerOptions::default() }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(until(PATIENCE, || is_so().then_some(())).is_some(), "{what}: not within {PATIENCE:?}");
}

/// Writes orders 0 .. `count`.
fn write(orders: &Entries, count: i64) {
    let all: Vec<Document> = (0..count).map(|id| order(id, id)).collect();
    orders.write_many(&all, &upsert()).wait().unwrap().into_iter().for_each(|written| drop(written.unwrap()));
}

/// What is done with an order that nobody may do twice: a sale is written whose id is made, and counted by a key.
fn sell(sales: &Entries, transaction: &mut Transaction, entry: &Entry) -> Result<(), Failure> {
    let id = number(&entry.document, "id");
    transaction.write(sales, &document([("order", id.into())]), &upsert()).wait()?;
    let key = id.to_string();
    let sold = transaction.get_value(b"sold", key.as_bytes()).wait()?.map_or(0, |digits| digits[0] - b'0');
    transaction.put(b"sold", key.as_bytes(), &[b'0' + sold + 1], &PutOptions::default()).wait()?;
    Ok(())
}

/// Each of the orders 0 .. `count` was sold once, and is gone.
fn check_sold_once(client: &Client, orders: &Entries, sales: &Entries, count: i64) {
    let mut sold: Vec<i64> = Vec::new();
    for sale in sales.read_many(&Wanted::all(), 10_000).wait().unwrap() {
        sold.push(number(&sale.document, "order"));
    }
    sold.sort_unstable();
    assert_eq!(sold, (0..count).collect::<Vec<_>>());
    for id in 0..count {
        let counted = client.kv().get_value(b"sold", id.to_string().as_bytes()).wait().unwrap();
        assert_eq!(counted, Some(b"1".to_vec()), "order {id}");
    }
    assert_eq!(orders.usage().wait().unwrap().entries, 0);
}

fn sales(client: &Client) -> Entries {
    declare(client, Definition::new("shop", "sales"))
}

#[test]
fn the_same_workers_do_everything_once_and_bury_what_always_fails() {
    both(|client| {
        let (orders, sales) = (orders(client), sales(client));
        let letters = declare(client, Definition::new("shop", "letters"));
        const COUNT: i64 = 120;
        write(&orders, COUNT + 1);
        let (to, seen) = (sales.clone(), Mutex::new(BTreeSet::new()));
        let options = WorkerOptions { batch_max: 4, attempts_max: 6, dead_letters: Some(letters.clone()), ..quick(3) };
        let workers = Workers::start(client, &orders, &Wanted::all(), options, move |transaction, entry| {
            sell(&to, transaction, entry)?;
            match number(&entry.document, "id") {
                // What it did is rolled back.
                COUNT => Err(Failure::new("nobody sells this")),
                id => {
                    let is_first = seen.lock().unwrap().insert(id);
                    assert!(!is_first || id % 10 != 0, "no luck");
                    Ok(())
                }
            }
        })
        .unwrap();
        eventually("all are handled", || {
            let stats = workers.stats();
            stats.handled == COUNT as u64 && stats.dead == 1
        });
        let stats = workers.stop();
        assert_eq!((stats.waiting, stats.unknown, &stats.trouble), (0, 0, &None));
        assert_eq!((stats.panicked, stats.failed), (12, 18));
        check_sold_once(client, &orders, &sales, COUNT);
        let letter = letters.read(&Wanted::all(), &ReadOptions::default()).wait().unwrap().unwrap().document;
        assert_eq!(number(&letter, "attempts"), 6);
        assert_eq!(letter.get("error").map(|text| text.to_value()), Some(Value::from("nobody sells this")));
        assert_eq!(letter.at(&["entry", "id"]).map(|id| id.to_value()), Some(Value::from(COUNT)));
    });
}

#[test]
fn groups_and_queues_keep_their_order_under_failures() {
    both(|client| {
        for (name, order_of, threads) in
            [("grouped", Order::Groups(Path::parse("group").unwrap()), 3), ("queued", Order::Fifo, 1)]
        {
            let steps = declare(client, Definition { order: order_of, ..Definition::new("shop", name) });
            const COUNT: i64 = 60;
            let tries = AtomicU64::new(0);
            let options = WorkerOptions { batch_max: 3, ..quick(threads) };
            let workers = Workers::start(client, &steps, &Wanted::all(), options, move |transaction, entry| {
                if tries.fetch_add(1, Ordering::SeqCst).is_multiple_of(4) {
                    return Err(Failure::new("no luck"));
                }
                // In a key, so that what is rolled back is not told.
                let group = number(&entry.document, "group").to_string();
                let mut line = transaction.get_value(b"lines", group.as_bytes()).wait()?.unwrap_or_default();
                line.push(u8::try_from(number(&entry.document, "id")).unwrap());
                transaction.put(b"lines", group.as_bytes(), &line, &PutOptions::default()).wait()?;
                Ok(())
            })
            .unwrap();
            // Groups 0 .. 3 are those of one type, and 3 .. 6 those of the other.
            let group = |id: i64| id % 3 + if threads == 1 { 3 } else { 0 };
            for id in 0..COUNT {
                steps.write(&document([("id", id.into()), ("group", group(id).into())]), &upsert()).wait().unwrap();
            }
            eventually("all steps", || workers.stats().handled == COUNT as u64);
            assert!(workers.stop().failed > 0);
            for of in 0..3 {
                let line = client.kv().get_value(b"lines", group(of).to_string().as_bytes()).wait().unwrap();
                let expected: Vec<u8> = (0..60).filter(|id| i64::from(*id) % 3 == of).collect();
                assert_eq!(line, Some(expected), "{name}");
            }
        }
    });
}

/// Workers of a program of its own.
fn program(
    address: &str,
    options: WorkerOptions,
    handler: impl Fn(&Entries, &mut Transaction, &Entry) -> Result<(), Failure> + Send + Sync + 'static,
) -> Workers {
    let client = Client::connect(ConnectOptions::new(address)).wait().unwrap();
    let (orders, sales) = (orders(&client), sales(&client));
    Workers::start(&client, &orders, &Wanted::all(), options, move |transaction, entry| {
        handler(&sales, transaction, entry)
    })
    .unwrap()
}

#[test]
fn workers_of_several_programs_never_have_one_entry_at_once() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let client = connect(&server);
    let (orders, sales) = (orders(&client), sales(&client));
    const COUNT: i64 = 300;
    write(&orders, COUNT);
    let in_work: Arc<Mutex<BTreeSet<i64>>> = Arc::default();
    let tries = Arc::new(AtomicU64::new(0));
    let programs: Vec<Workers> = (1..=3)
        .map(|batch_max| {
            let (in_work, tries) = (Arc::clone(&in_work), Arc::clone(&tries));
            let options = WorkerOptions { batch_max, ..quick(2) };
            program(&server.resp().to_string(), options, move |sales, transaction, entry| {
                let id = number(&entry.document, "id");
                assert!(in_work.lock().unwrap().insert(id), "two have {id}");
                let sold = sell(sales, transaction, entry);
                assert!(in_work.lock().unwrap().remove(&id));
                sold?;
                if tries.fetch_add(1, Ordering::SeqCst).is_multiple_of(7) {
                    Err(Failure::new("no luck"))
                } else {
                    Ok(())
                }
            })
        })
        .collect();
    eventually("all are sold", || orders.usage().wait().unwrap().entries == 0);
    let all: Vec<WorkerStats> = programs.into_iter().map(Workers::stop).collect();
    assert!(all.iter().all(|stats| stats.panicked == 0 && stats.unknown == 0), "{all:?}");
    assert_eq!(all.iter().map(|stats| stats.handled).sum::<u64>(), COUNT as u64);
    assert!(all.iter().all(|stats| stats.handled > 0), "{all:?}");
    check_sold_once(&client, &orders, &sales, COUNT);
}

#[test]
fn each_entry_has_its_effects_once_while_the_server_is_killed_and_started_again() {
    const COUNT: i64 = 600;
    const KILLS: u64 = 6;
    let folder = TempDir::new().unwrap();
    let mut server = Launch::new(folder.path()).durability("written").start();
    let address = server.resp().to_string();
    {
        let client = connect(&server);
        sales(&client);
        declare(&client, Definition::new("shop", "letters"));
        write(&orders(&client), COUNT);
    }
    let tries = Arc::new(AtomicU64::new(0));
    let programs: Vec<Workers> = (1..=2)
        .map(|batch_max| {
            let tried = Arc::clone(&tries);
            let letters = connect(&server).space("shop").entries("letters").wait().unwrap();
            // A connection that breaks is no attempt: otherwise some of them would become dead letters.
            let options = WorkerOptions { batch_max, attempts_max: 1, dead_letters: Some(letters), ..quick(2) };
            program(&address, options, move |sales, transaction, entry| {
                tried.fetch_add(1, Ordering::SeqCst);
                sell(sales, transaction, entry)
            })
        })
        .collect();
    for kill in 1..=KILLS {
        let goal = kill * COUNT as u64 / (KILLS + 1);
        eventually("some are in work", || tries.load(Ordering::SeqCst) >= goal);
        if kill % 3 == 0 {
            let (status, text) = server.terminate();
            assert!(status.success(), "{text}");
        } else {
            server.kill();
        }
        server = Launch::new(folder.path()).durability("written").resp(&address).start_again();
    }
    let client = connect(&server);
    let (orders, sales) = (orders(&client), sales(&client));
    eventually("all are sold", || orders.usage().wait().unwrap().entries == 0);
    let all: Vec<WorkerStats> = programs.into_iter().map(Workers::stop).collect();
    check_sold_once(&client, &orders, &sales, COUNT);
    let sum = |of: fn(&WorkerStats) -> u64| all.iter().map(of).sum::<u64>();
    let (handled, unknown) = (sum(|stats| stats.handled), sum(|stats| stats.unknown));
    assert!((handled..=handled + unknown).contains(&(COUNT as u64)), "{all:?}");
    assert_eq!(sum(|stats| stats.dead), 0, "{all:?}");
    // One whose connections broke between transactions has nothing to tell.
    assert!(all.iter().any(|stats| stats.trouble.is_some()), "{all:?}");
}

#[test]
fn a_connection_that_breaks_while_an_entry_is_handled_costs_no_attempt() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let way = Arc::new(Way::to(server.resp()));
    let direct = connect(&server);
    let (direct_orders, direct_sales) = (orders(&direct), sales(&direct));
    let letters = declare(&direct, Definition::new("shop", "letters"));
    let client = impatient(&way.address.to_string());
    let (orders, sales) = (orders(&client), sales(&client));
    let cuts = Arc::new(AtomicU64::new(0));
    let (cutting, cut) = (Arc::clone(&way), Arc::clone(&cuts));
    let far_letters = client.space("shop").entries("letters").wait().unwrap();
    let options = WorkerOptions { attempts_max: 1, dead_letters: Some(far_letters), ..quick(1) };
    let workers = Workers::start(&client, &orders, &Wanted::all(), options, move |transaction, entry| {
        let lost = |text: &str| Failure::new(text);
        match cut.fetch_add(1, Ordering::SeqCst) {
            // Nothing of the error is in what the handler says.
            0 => {
                cutting.cut();
                sell(&sales, transaction, entry).map_err(|_| lost("something went wrong"))
            }
            1 => {
                sell(&sales, transaction, entry)?;
                cutting.cut();
                let read = transaction.get_value(b"sold", b"0").wait();
                panic!("read {:?}", read.map_err(|error| error.kind()));
            }
            // It does not care, and what it did is lost all the same.
            2 => {
                cutting.cut();
                drop(sell(&sales, transaction, entry));
                Ok(())
            }
            // Nobody tells that it is lost.
            3 => {
                sell(&sales, transaction, entry)?;
                cutting.swallow(true);
                let read = transaction.get_value(b"sold", b"0").wait();
                cutting.swallow(false);
                Ok(read.map(drop)?)
            }
            // The commit finds it.
            4 => {
                sell(&sales, transaction, entry)?;
                cutting.cut();
                Ok(())
            }
            _ => sell(&sales, transaction, entry),
        }
    })
    .unwrap();
    write(&direct_orders, 1);
    eventually("it is sold", || direct_orders.usage().wait().unwrap().entries == 0);
    eventually("it is known", || workers.stats().handled == 1);
    let stats = workers.stop();
    assert_eq!((stats.failed, stats.dead, stats.panicked, stats.unknown), (0, 0, 1, 1), "{stats:?}");
    assert_eq!(cuts.load(Ordering::SeqCst), 6);
    check_sold_once(&direct, &direct_orders, &direct_sales, 1);
    assert_eq!(letters.count(&Wanted::all()).wait().unwrap(), 0);
}

#[test]
fn workers_stop_at_once_whatever_they_wait_for() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let client = connect(&server);
    let orders = orders(&client);
    let start = |handler: fn() -> Result<(), Failure>| {
        Workers::start(&client, &orders, &Wanted::all(), quick(3), move |_, _| handler()).unwrap()
    };
    // For an entry.
    let idle = start(|| Ok(()));
    eventually("all wait", || orders.waiters().wait().unwrap() == 3);
    idle.stop();
    eventually("nobody waits", || orders.waiters().wait().unwrap() == 0);
    // For an entry to be tried again, which others can have then.
    write(&orders, 1);
    let slow =
        WorkerOptions { backoff: Backoff { first: Duration::from_secs(20), max: Duration::from_secs(20) }, ..quick(1) };
    let failing =
        Workers::start(&client, &orders, &Wanted::all(), slow, |_, _| Err(Failure::new("not today"))).unwrap();
    eventually("it waits", || failing.stats().waiting == 1);
    assert_eq!(orders.take(&Wanted::all(), &ReadOptions::default()).wait().unwrap(), None, "it is kept from others");
    failing.stop();
    let patient = ReadOptions { wait: Some(PATIENCE), ..ReadOptions::default() };
    assert!(orders.take(&Wanted::all(), &patient).wait().unwrap().is_some());
    // For a server that is gone: a call waits for it for 10 s.
    let lonely = start(|| Ok(()));
    eventually("all wait", || orders.waiters().wait().unwrap() == 3);
    server.kill();
    eventually("the loss is noticed", || lonely.stats().trouble.is_some());
    let begin = Instant::now();
    lonely.stop();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn what_waits_to_be_tried_again_takes_a_bounded_number_of_connections() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let direct = connect(&server);
    let (direct_orders, direct_sales) = (orders(&direct), sales(&direct));
    const COUNT: i64 = 60;
    write(&direct_orders, COUNT);
    let few = ConnectOptions { connections_max: 6, ..ConnectOptions::new(&server.resp().to_string()) };
    let client = Client::connect(few).wait().unwrap();
    let (orders, sales) = (orders(&client), sales(&client));
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = Arc::clone(&is_open);
    let slow = Backoff { first: Duration::from_millis(20), max: Duration::from_millis(50) };
    let options = WorkerOptions { backoff: slow, ..quick(2) };
    let workers = Workers::start(&client, &orders, &Wanted::all(), options, move |transaction, entry| {
        sell(&sales, transaction, entry)?;
        if opens.load(Ordering::SeqCst) { Ok(()) } else { Err(Failure::new("the shop is closed")) }
    })
    .unwrap();
    eventually("as many wait as may", || workers.stats().waiting == 4);
    eventually("they are tried again and again", || {
        let stats = workers.stats();
        // The other thread may have come upon one meanwhile, and has no other connection then.
        assert!(stats.waiting <= 5, "{stats:?}");
        stats.failed > 40
    });
    is_open.store(true, Ordering::SeqCst);
    eventually("all are sold", || workers.stats().handled == COUNT as u64);
    assert_eq!(workers.stop().trouble, None);
    check_sold_once(&direct, &direct_orders, &direct_sales, COUNT);
    for (threads, lease, is_good) in [(5, 60, true), (6, 60, false), (1, 3601, false)] {
        let options = WorkerOptions { lease: Duration::from_secs(lease), ..quick(threads) };
        let started = Workers::start(&client, &orders, &Wanted::all(), options, |_, _| Ok(()));
        let refused = started.map(drop).map_err(|error| error.kind());
        assert_eq!(refused, if is_good { Ok(()) } else { Err(ErrorKind::Invalid) });
    }
}
