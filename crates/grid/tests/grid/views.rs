//! Local views and near caches: nothing missed, nothing double, nothing older than stated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use holdfast::space::{Definition, Entries, Path, Storage, Wanted};
use holdfast::{ErrorKind, Store};
use holdfast_grid::{LocalView, NearCache};

use super::*;

fn declare(store: &Store, storage: Storage, history: bool) -> Entries {
    store.space("shop").declare(Definition { storage, history, ..Definition::new("shop", "order") }).unwrap()
}

fn open(storage: Storage, history: bool) -> (tempfile::TempDir, Store, Entries) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = declare(&store, storage, history);
    (dir, store, orders)
}

fn shown(documents: impl Iterator<Item = Document>) -> BTreeMap<i64, i64> {
    documents.map(|document| (integer(&document, "id"), integer(&document, "total"))).collect()
}

#[test]
fn a_view_that_begins_among_writers_has_what_the_query_finds() {
    for storage in [Storage::Durable, Storage::Volatile] {
        let (_dir, store, orders) = open(storage, true);
        let large = Wanted::query("total >= 50", &[]).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..3_u64 {
                let orders = &orders;
                scope.spawn(move || {
                    for round in 0..700 {
                        let number = dice(writer << 32 | round);
                        let id = i64::try_from(number % 40).unwrap();
                        if number >> 32 & 3 == 0 {
                            orders.take(&Wanted::id(id), &now()).unwrap();
                        } else {
                            let total = i64::try_from(number >> 40 & 0x7f).unwrap();
                            orders.write(&order(id, "ada", total), &upsert()).unwrap();
                        }
                    }
                });
            }
            for _ in 0..5 {
                let view = LocalView::open(&orders, &large, Duration::ZERO).unwrap();
                assert!(shown(view.iter().unwrap()).values().all(|total| *total >= 50));
            }
        });
        let view = LocalView::open(&orders, &large, Duration::ZERO).unwrap();
        let late = LocalView::open(&orders, &large, Duration::from_secs(600)).unwrap();
        orders.write(&order(7, "ada", 99), &upsert()).unwrap();
        orders.write(&order(8, "ada", 1), &upsert()).unwrap();
        orders.take(&Wanted::id(9), &now()).unwrap();
        let there = orders.read_many(&large, 1000).unwrap();
        let there = shown(there.into_iter().map(|entry| entry.document));
        assert_eq!(shown(view.iter().unwrap()), there);
        assert_eq!(view.count().unwrap(), there.len());
        assert_eq!(view.get(&7.into()).unwrap().map(|it| integer(&it, "total")), Some(99));
        assert_eq!(view.get(&8.into()).unwrap(), None);
        // One that nobody hurries hears it all the same.
        until("the view hears", || shown(late.iter().unwrap()) == there);
        store.close().unwrap();
    }
}

#[test]
fn a_view_shows_what_was_acknowledged_before_its_staleness() {
    let (_dir, _store, orders) = open(Storage::Durable, true);
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    let fresh = LocalView::open(&orders, &Wanted::all(), Duration::ZERO).unwrap();
    let bound = Duration::from_millis(15);
    let relaxed = LocalView::open(&orders, &Wanted::all(), bound).unwrap();
    let cache = NearCache::open(&_store, &orders, 10, Duration::ZERO).unwrap();
    let relaxed_cache = NearCache::open(&_store, &orders, 10, bound).unwrap();
    let acknowledged = AtomicI64::new(0);
    const LAST: i64 = 3000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for total in 1..=LAST {
                orders.write(&order(1, "ada", total), &upsert()).unwrap();
                acknowledged.store(total, Ordering::SeqCst);
            }
        });
        let seen = |view: &LocalView| integer(&view.get(&1.into()).unwrap().unwrap(), "total");
        let kept = |cache: &NearCache| integer(&cache.read(&1.into()).unwrap().unwrap().document, "total");
        let mut before = (Instant::now(), 0);
        loop {
            let least = acknowledged.load(Ordering::SeqCst);
            assert!(seen(&fresh) >= least, "older than what was acknowledged");
            assert!(kept(&cache) >= least, "older than what was acknowledged");
            if before.0.elapsed() > bound {
                assert!(seen(&relaxed) >= before.1, "older than its bound");
                assert!(kept(&relaxed_cache) >= before.1, "older than its bound");
                before = (Instant::now(), least);
            }
            if least == LAST {
                break;
            }
        }
    });
}

#[test]
fn a_view_of_a_type_without_history_is_refused_and_a_cache_is_not() {
    let (_dir, store, orders) = open(Storage::Durable, false);
    let refused = LocalView::open(&orders, &Wanted::all(), Duration::ZERO).map(|_| ()).map_err(|it| it.kind());
    assert_eq!(refused, Err(ErrorKind::Invalid));
    let cache = NearCache::open(&store, &orders, 10, Duration::ZERO).unwrap();
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    let total = || cache.read(&1.into()).unwrap().map(|entry| integer(&entry.document, "total"));
    assert_eq!((total(), total()), (Some(1), Some(1)));
    orders.write(&order(1, "ada", 2), &upsert()).unwrap();
    assert_eq!(total(), Some(2));
    orders.take(&Wanted::id(1), &now()).unwrap();
    assert_eq!(total(), None);
}

#[test]
fn a_cache_keeps_what_is_used_and_no_more_than_it_may() {
    let (_dir, store, orders) = open(Storage::Durable, true);
    for number in 0..20 {
        orders.write(&order(number, "ada", number), &upsert()).unwrap();
    }
    let cache = NearCache::open(&store, &orders, 4, Duration::ZERO).unwrap();
    let read = |number: i64| cache.read(&number.into()).unwrap().map(|entry| id(&entry));
    for number in 1..20 {
        assert_eq!((read(0), read(number)), (Some(0), Some(number)));
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries, stats.evicted), (18, 20, 4, 16), "{stats:?}");
    assert_eq!(read(99), None);
    orders.write(&order(0, "ada", 5), &upsert()).unwrap();
    orders.write(&order(3, "ada", 5), &upsert()).unwrap();
    assert_eq!(cache.read(&0.into()).unwrap().map(|entry| integer(&entry.document, "total")), Some(5));
    assert_eq!(cache.stats().invalidated, 1, "what it has not is not forgotten");
}

#[test]
fn a_cache_is_never_behind_writers_of_many_entries() {
    for storage in [Storage::Durable, Storage::Volatile] {
        let (_dir, store, orders) = open(storage, true);
        let cache = NearCache::open(&store, &orders, 8, Duration::ZERO).unwrap();
        let acknowledged: Vec<AtomicI64> = (0..16).map(|_| AtomicI64::new(-1)).collect();
        std::thread::scope(|scope| {
            for writer in 0..2_usize {
                let (orders, acknowledged) = (&orders, &acknowledged);
                scope.spawn(move || {
                    for total in 0..500 {
                        for number in (writer..16).step_by(2) {
                            orders.write(&order(number as i64, "ada", total), &upsert()).unwrap();
                            acknowledged[number].store(total, Ordering::SeqCst);
                        }
                    }
                });
            }
            for reader in 0..2_u64 {
                let (cache, acknowledged) = (&cache, &acknowledged);
                scope.spawn(move || {
                    for round in 0..6000 {
                        let number = usize::try_from(dice(reader << 32 | round) % 16).unwrap();
                        let least = acknowledged[number].load(Ordering::SeqCst);
                        let read = cache.read(&(number as i64).into()).unwrap();
                        let total = read.map_or(-1, |entry| integer(&entry.document, "total"));
                        assert!(total >= least, "{number}: {total} after {least}");
                    }
                });
            }
        });
    }
}

/// The two were one in the view, and gone from it when the first was taken.
#[test]
fn a_view_tells_entries_with_one_id_apart_by_their_routing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let routing = Some(Path::parse("customer").unwrap());
    let definition = Definition { routing, history: true, ..Definition::new("shop", "order") };
    let orders = store.space("shop").declare(definition).unwrap();
    let before = LocalView::open(&orders, &Wanted::all(), Duration::ZERO).unwrap();
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    let others = ["bob", "eve", "joe", "ann", "tom"];
    let other = others.into_iter().find(|other| orders.write(&order(1, other, 2), &upsert()).is_ok()).unwrap();
    orders.write(&order(2, "ada", 3), &upsert()).unwrap();
    let after = LocalView::open(&orders, &Wanted::all(), Duration::ZERO).unwrap();
    assert_eq!((before.count().unwrap(), after.count().unwrap()), (3, 3));
    orders.take(&Wanted::id(1).routed("ada"), &now()).unwrap().unwrap();
    for view in [before, after] {
        assert_eq!(view.get(&1.into()).unwrap(), Some(order(1, other, 2)));
        assert_eq!(view.iter().unwrap().collect::<Vec<_>>(), [order(1, other, 2), order(2, "ada", 3)]);
    }
}
