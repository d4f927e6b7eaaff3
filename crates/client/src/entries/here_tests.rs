//! What is awaited in a store of this process.

use std::task::{Context, Waker};
use std::time::Instant;

use holdfast::space::{Cancel, Definition, Document, Listen, Storage, WriteOptions};
use holdfast::{Options, Store};

use super::*;
use crate::Client;

/// A store with five jobs.
fn jobs(folder: &std::path::Path) -> (Store, Entries, crate::Entries) {
    let store = Store::open(folder, Options::default()).unwrap();
    let jobs = Client::embedded(&store)
        .unwrap()
        .space("shop")
        .declare(Definition { history: true, ..Definition::new("shop", "jobs") })
        .wait()
        .unwrap();
    for number in 0..5_i64 {
        jobs.write(&Document::from_pairs([("id", number)]), &WriteOptions::default()).wait().unwrap();
    }
    let here = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "jobs") }).unwrap();
    (store, here, jobs)
}

fn while_locked(wait: Duration) -> ReadOptions {
    ReadOptions { wait: Some(wait), if_exists: true, ..ReadOptions::default() }
}

/// Such a call went on in a thread, took the entry when the lock was gone, and gave it to nobody.
#[test]
fn a_take_that_is_dropped_while_it_waits_for_a_lock_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, here, jobs) = jobs(folder.path());
    let mut holder = store.begin();
    here.within(&mut holder).take(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap();
    let mut dropped = jobs.take(&Wanted::id(1), &while_locked(Duration::from_secs(20)));
    assert!(std::pin::Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(dropped);
    drop(holder);
    // Who asks next gets it.
    let kept = jobs.take(&Wanted::id(1), &while_locked(Duration::from_secs(20)));
    assert!(crate::call::block_on(kept).unwrap().is_some());
}

#[test]
fn a_take_gets_what_a_transaction_lets_go_of_and_not_what_it_took() {
    let folder = tempfile::tempdir().unwrap();
    let (store, here, jobs) = jobs(folder.path());
    for keeps in [false, true] {
        let mut holder = store.begin();
        here.within(&mut holder).take(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap();
        let waiting = jobs.take(&Wanted::id(1), &while_locked(Duration::from_secs(20))).begin();
        if keeps {
            holder.commit(Durability::Written).map(|_| ()).unwrap()
        } else {
            drop(holder)
        }
        let taken = waiting.wait().unwrap();
        assert_eq!(taken.is_some(), !keeps);
        if let Some(entry) = taken {
            jobs.write(&entry.document, &WriteOptions::default()).wait().unwrap();
        }
    }
    let begin = Instant::now();
    let none = crate::call::block_on(jobs.take(&Wanted::id(77), &while_locked(Duration::from_secs(20)))).unwrap();
    assert!(none.is_none() && begin.elapsed() < Duration::from_secs(10), "what is not there is not waited for");
}

/// Who looked again and again came behind whoever was in the queue when the lock went.
#[test]
fn who_awaits_a_lock_has_its_turn_among_all_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (store, here, jobs) = jobs(folder.path());
    let mut holder = store.begin();
    here.within(&mut holder).take(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap();
    let mut first = jobs.take(&Wanted::id(1), &while_locked(Duration::from_secs(60)));
    let options = ReadOptions { wait: Some(Duration::from_secs(60)), ..ReadOptions::default() };
    let mut second = jobs.take(&Wanted::id(1), &options);
    for call in [&mut first, &mut second] {
        assert!(std::pin::Pin::new(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(holder);
    assert!(crate::call::block_on(first).unwrap().is_some());
    assert!(std::pin::Pin::new(&mut second).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn waiting_for_a_lock_ends_by_its_time_and_by_cancel() {
    let folder = tempfile::tempdir().unwrap();
    let (store, here, jobs) = jobs(folder.path());
    let mut holder = store.begin();
    here.within(&mut holder).take(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap();
    let begin = Instant::now();
    let late = jobs.take(&Wanted::id(1), &while_locked(Duration::from_millis(50)));
    assert!(crate::call::block_on(late).unwrap().is_none());
    let cancel = Cancel::new();
    let options = ReadOptions { cancel: Some(cancel.clone()), ..while_locked(Duration::from_secs(60)) };
    let awaited = jobs.take(&Wanted::id(1), &options).begin();
    let blocked = jobs.take(&Wanted::id(1), &options);
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| blocked.wait());
        cancel.cancel();
        assert!(awaited.wait().unwrap().is_none());
        assert!(blocked.join().unwrap().unwrap().is_none());
    });
    assert!(begin.elapsed() < Duration::from_secs(30));
    drop(holder);
    assert_eq!(jobs.count(&Wanted::all()).wait().unwrap(), 5);
}

/// A cancel that many calls share, one after the other, grew with each.
#[test]
fn a_call_that_has_ended_is_forgotten_by_its_cancel() {
    struct Task;
    impl std::task::Wake for Task {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    let folder = tempfile::tempdir().unwrap();
    let (_store, _, jobs) = jobs(folder.path());
    let options =
        ReadOptions { cancel: Some(Cancel::new()), wait: Some(Duration::from_secs(60)), ..ReadOptions::default() };
    let task = std::sync::Arc::new(Task);
    for _ in 0..3 {
        let mut call = jobs.take(&Wanted::id(77), &options);
        let waker = Waker::from(std::sync::Arc::clone(&task));
        assert!(std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
        drop((call, waker));
        // The timer's thread may hold it a moment longer.
        let begin = Instant::now();
        while std::sync::Arc::strong_count(&task) > 1 {
            assert!(begin.elapsed() < Duration::from_secs(20), "somebody keeps the waker");
            std::thread::yield_now();
        }
    }
}

#[test]
fn times_may_be_as_long_as_can_be_said() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, _, jobs) = jobs(folder.path());
    let view = crate::LocalView::open(&jobs, &Wanted::all(), Duration::MAX).wait().unwrap();
    assert_eq!(view.count().wait().unwrap(), 5);
    let options = ReadOptions { wait: Some(Duration::MAX), ..ReadOptions::default() };
    assert!(crate::call::block_on(jobs.take(&Wanted::id(1), &options)).unwrap().is_some());
}

#[test]
fn a_wait_that_is_canceled_ends_and_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, here, jobs) = jobs(folder.path());
    let cancel = Cancel::new();
    // What is there is an answer all the same.
    let first = jobs.take(&Wanted::id(1), &ReadOptions::default()).wait_unless(&cancel).unwrap();
    assert!(first.is_some_and(|entry| entry.is_some()));
    let patient = ReadOptions { wait: Some(Duration::from_secs(60)), ..ReadOptions::default() };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| jobs.take(&Wanted::id(1), &patient).wait_unless(&cancel));
        while here.waiters() == 0 {
            std::thread::yield_now();
        }
        cancel.cancel();
        assert_eq!(waits.join().unwrap().unwrap(), None);
    });
    assert_eq!(here.waiters(), 0);
    // One that was used before lets nothing begin.
    assert_eq!(jobs.take(&Wanted::id(2), &ReadOptions::default()).wait_unless(&cancel).unwrap(), None);
    assert!(jobs.read(&Wanted::id(2), &ReadOptions::default()).wait().unwrap().is_some());
}

/// What was in hand was lost where an error stood behind it.
#[test]
fn events_before_an_error_are_told_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let client = Client::embedded(&store).unwrap();
    let definition = Definition { storage: Storage::Volatile, ..Definition::new("shop", "price") };
    let prices = client.space("shop").declare(definition).wait().unwrap();
    let listen = Listen { buffer_events: 5, ..Listen::default() };
    let mut listener = prices.listen(&Wanted::all(), listen).wait().unwrap();
    let write = |ids: std::ops::Range<i64>| {
        for id in ids {
            prices.write(&Document::from_pairs([("id", id)]), &WriteOptions::default()).wait().unwrap();
        }
    };
    write(0..5);
    assert!(listener.next(Duration::ZERO).wait().unwrap().is_some());
    write(5..20);
    let page = || crate::call::block_on(listener.page_here(Duration::ZERO));
    assert_eq!(page().unwrap().notices.len(), 4);
    assert_eq!(page().unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(page().unwrap().notices, []);
    write(20..21);
    assert_eq!(page().unwrap().notices.len(), 1);
}
