//! A server that is killed while a client works, and started again: what was acknowledged is there, what was taken is gone, and
//! only what was told to be unknown is either.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ConnectOptions, Entries, TransactionOptions};
use holdfast::space::{Listen, ReadOptions, Wanted};
use holdfast::{ErrorKind, PutOptions};
use holdfast_tests::{Launch, Random, say};
use tempfile::TempDir;

use crate::scene::{number, order, orders, upsert};

const KILLS: usize = 5;

fn is_lost(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unknown | ErrorKind::Timeout)
}

/// Writes entries with ids of its own until it is told to stop: those that were acknowledged, and those that may be there.
fn write(orders: &Entries, writer: i64, stops: &AtomicBool) -> (Vec<i64>, Vec<i64>) {
    let (mut sure, mut unsure) = (Vec::new(), Vec::new());
    let mut id = writer * 1_000_000;
    while !stops.load(Ordering::SeqCst) {
        id += 1;
        match orders.write(&order(id, 0), &upsert()).wait() {
            Ok(_) => sure.push(id),
            Err(error) if is_lost(error.kind()) => unsure.push(id),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
    (sure, unsure)
}

/// Takes entries until none come any more after it was told to stop; how often an answer was lost.
fn take(orders: &Entries, stops: &AtomicBool) -> (Vec<i64>, usize) {
    let options = ReadOptions { wait: Some(Duration::from_millis(200)), ..ReadOptions::default() };
    let (mut taken, mut lost) = (Vec::new(), 0);
    loop {
        let is_last = stops.load(Ordering::SeqCst);
        match orders.take(&Wanted::all(), &options).wait() {
            Ok(Some(entry)) => taken.push(number(&entry.document, "id")),
            Ok(None) if is_last => return (taken, lost),
            Ok(None) => {}
            Err(error) if is_lost(error.kind()) => lost += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}

#[test]
fn entries_are_written_and_taken_once_while_the_server_is_killed_and_started_again() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    say!("client: HOLDFAST_SEED={seed}");
    let folder = TempDir::new().unwrap();
    let mut server = Launch::new(folder.path()).durability("written").start();
    let address = server.resp().to_string();
    let client = Client::connect(ConnectOptions::new(&address)).wait().unwrap();
    let orders = orders(&client);
    let (no_more_writes, no_more_takes) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (orders, no_more_writes, no_more_takes) = (&orders, &no_more_writes, &no_more_takes);
        let writers: Vec<_> = (1..=2).map(|it| scope.spawn(move || write(orders, it, no_more_writes))).collect();
        let takers: Vec<_> = (0..3).map(|_| scope.spawn(move || take(orders, no_more_takes))).collect();
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(100 + random.below(300) as u64));
            server.kill();
            server = Launch::new(folder.path()).durability("written").resp(&address).start_again();
        }
        thread::sleep(Duration::from_millis(100));
        no_more_writes.store(true, Ordering::SeqCst);
        let (mut sure, mut unsure) = (Vec::new(), Vec::new());
        for writer in writers {
            let (written, lost) = writer.join().unwrap();
            sure.extend(written);
            unsure.extend(lost);
        }
        no_more_takes.store(true, Ordering::SeqCst);
        let (mut taken, mut lost_takes) = (BTreeMap::<i64, u32>::new(), 0);
        for taker in takers {
            let (ids, lost) = taker.join().unwrap();
            ids.into_iter().for_each(|id| *taken.entry(id).or_default() += 1);
            lost_takes += lost;
        }
        say!("{} written, {} unsure, {} taken, {lost_takes} takes lost", sure.len(), unsure.len(), taken.len());
        assert!(sure.len() > 50, "{}", sure.len());
        assert!(taken.values().all(|times| *times == 1), "an entry was taken twice");
        assert!(taken.keys().all(|id| sure.contains(id) || unsure.contains(id)), "taken and never written");
        let missing = sure.iter().filter(|id| !taken.contains_key(id)).count();
        assert!(missing <= lost_takes, "{missing} are gone, and only {lost_takes} takes were not answered");
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 0);
    });
}

#[test]
fn a_batch_whose_answer_was_lost_happened_as_a_whole_or_not_at_all() {
    let folder = TempDir::new().unwrap();
    let mut server = Launch::new(folder.path()).durability("written").start();
    let address = server.resp().to_string();
    let client = Client::connect(ConnectOptions::new(&address)).wait().unwrap();
    let orders = orders(&client);
    orders.write(&order(0, 0), &upsert()).wait().unwrap();
    client.kv().put(b"bank", b"n", b"0", &PutOptions::default(), None).wait().unwrap();
    let mut acknowledged = 0;
    for round in 0..4_u64 {
        let killed = thread::spawn(move || {
            thread::sleep(Duration::from_millis(60 + 40 * round));
            server.kill();
        });
        let mut n = acknowledged;
        let error = loop {
            n += 1;
            let mut batch = client.batch();
            let _ = batch.take(&orders, &Wanted::id(n - 1));
            let _ = batch.write(&orders, &order(n, n), &upsert());
            let _ = batch.put(b"bank", b"n", n.to_string().as_bytes(), &PutOptions::default());
            match batch.commit().wait() {
                Ok(_) => acknowledged = n,
                Err(error) => break error,
            }
        };
        killed.join().unwrap();
        server = Launch::new(folder.path()).durability("written").resp(&address).start_again();
        let all = orders.read_many(&Wanted::all(), 10).wait().unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        let there = number(&all[0].document, "id");
        let key = client.kv().get_value(b"bank", b"n").wait().unwrap().unwrap();
        assert_eq!(key, there.to_string().as_bytes(), "a half");
        let may_be = if is_lost(error.kind()) { acknowledged..=acknowledged + 1 } else { acknowledged..=acknowledged };
        assert!(may_be.contains(&there), "{there}, acknowledged {acknowledged}, then {error}");
        acknowledged = there;
    }
    assert!(acknowledged > 4, "{acknowledged}");
}

#[test]
fn a_listener_goes_on_behind_what_it_heard_when_the_server_is_started_again() {
    let folder = TempDir::new().unwrap();
    let mut server = Launch::new(folder.path()).durability("written").start();
    let address = server.resp().to_string();
    let client = Client::connect(ConnectOptions::new(&address)).wait().unwrap();
    let orders = orders(&client);
    let mut heard = orders.listen(&Wanted::all(), Listen::default()).wait().unwrap();
    let mut next = 0;
    for round in 0..3 {
        for id in round * 10..round * 10 + 10 {
            orders.write(&order(id, id), &upsert()).wait().unwrap();
            if id % 2 == 0 {
                let notice = heard.next(Duration::from_secs(20)).wait().unwrap().unwrap();
                assert_eq!(number(&notice.after.unwrap(), "id"), next);
                next += 1;
            }
        }
        server.kill();
        server = Launch::new(folder.path()).durability("written").resp(&address).start_again();
    }
    let begun = Instant::now();
    while next < 30 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        if let Ok(Some(notice)) = heard.next(Duration::from_secs(5)).wait() {
            assert_eq!(number(&notice.after.unwrap(), "id"), next);
            next += 1;
        }
    }
    assert_eq!(heard.next(Duration::from_millis(50)).wait().unwrap(), None);
    drop(server);
}

/// Moves entries through transactions, a point of the total with each, until it is told to stop; how many commits were acknowledged,
/// and how many may have happened.
fn move_on(client: &Client, orders: &Entries, stops: &AtomicBool) -> (u64, u64) {
    let (mut sure, mut unsure) = (0, 0);
    let waiting = ReadOptions { wait: Some(Duration::from_millis(50)), ..ReadOptions::default() };
    while !stops.load(Ordering::SeqCst) {
        let once = || -> holdfast::Result<Option<client::Transaction>> {
            let mut transaction = client.begin(&TransactionOptions::default()).wait()?;
            let Some(entry) = transaction.take(orders, &Wanted::all(), &waiting).wait()? else { return Ok(None) };
            let (id, total) = (number(&entry.document, "id"), number(&entry.document, "total"));
            // Under another id, so that one that was moved twice, or not whole, is seen.
            transaction.write(orders, &order(id + 100, total + 1), &upsert()).wait()?;
            let key = (id % 100).to_string();
            let moved = transaction.get_value(b"moved", key.as_bytes()).wait()?;
            let moved = moved.map_or(0, |digits| String::from_utf8(digits).unwrap().parse::<i64>().unwrap());
            assert_eq!(moved, total, "key and entry are changed together");
            let next = (moved + 1).to_string();
            transaction.put(b"moved", key.as_bytes(), next.as_bytes(), &PutOptions::default()).wait()?;
            Ok(Some(transaction))
        };
        match once() {
            Ok(None) => {}
            Ok(Some(transaction)) => match transaction.commit(None).wait() {
                Ok(_) => sure += 1,
                Err(error) if is_lost(error.kind()) => unsure += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            },
            // Nothing has happened of what was not committed.
            Err(error) => assert!(is_lost(error.kind()) || error.kind() == ErrorKind::Unavailable, "{error}"),
        }
    }
    (sure, unsure)
}

#[test]
fn open_transactions_move_entries_whole_or_not_at_all_while_the_server_is_killed_and_started_again() {
    const ENTRIES: i64 = 8;
    let seed = Random::seed();
    let mut random = Random::new(seed);
    say!("client: HOLDFAST_SEED={seed}");
    let folder = TempDir::new().unwrap();
    let mut server = Launch::new(folder.path()).durability("written").start();
    let address = server.resp().to_string();
    let client = Client::connect(ConnectOptions::new(&address)).wait().unwrap();
    let orders = orders(&client);
    (0..ENTRIES).for_each(|id| drop(orders.write(&order(id, 0), &upsert()).wait().unwrap()));
    let stops = AtomicBool::new(false);
    thread::scope(|scope| {
        let (client, orders, stops) = (&client, &orders, &stops);
        let movers: Vec<_> = (0..4).map(|_| scope.spawn(move || move_on(client, orders, stops))).collect();
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(100 + random.below(300) as u64));
            server.kill();
            server = Launch::new(folder.path()).durability("written").resp(&address).start_again();
        }
        thread::sleep(Duration::from_millis(100));
        stops.store(true, Ordering::SeqCst);
        let moved: Vec<(u64, u64)> = movers.into_iter().map(|mover| mover.join().unwrap()).collect();
        let (sure, unsure) = moved.iter().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let left = orders.read_many(&Wanted::all(), 100).wait().unwrap();
        let total: i64 = left.iter().map(|entry| number(&entry.document, "total")).sum();
        say!("{sure} moved, {unsure} unsure, {total} in the entries");
        assert_eq!(left.len() as i64, ENTRIES);
        assert!(left.iter().all(|entry| number(&entry.document, "id") / 100 == number(&entry.document, "total")));
        assert!(sure > 20 && (sure..=sure + unsure).contains(&(total as u64)), "{sure} {unsure} {total}");
    });
}
