//! That there is none is an answer too: it is not given before what it rests on is as durable as the store promises.

use holdfast::space::{Change, Lease, Path, ReadLock};
use holdfast::{ErrorKind, Position};

use super::*;

/// Three orders, of which the first was taken and then the second changed, and nobody waited for that; and the position of the change.
fn changed(store: &Store) -> (Arc<Entries>, Position) {
    let orders = Arc::new(orders(store));
    for id in 1..=3 {
        orders.write(&order(id, "ada", id), &upsert()).unwrap();
    }
    orders.take_shown(&Wanted::id(1), &now()).unwrap().value.unwrap();
    let changed = orders.change_shown(&Wanted::id(2), &[set_total(100)], &upsert()).unwrap();
    (orders, changed.position)
}

fn set_total(total: i64) -> Change {
    Change::Set { path: Path::parse("total").unwrap(), value: total.into() }
}

/// A taker was told that nothing is there by what another had taken and what was not written yet; after a crash it was there again.
#[test]
fn what_is_said_not_to_be_there_rests_on_what_went_last() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let (orders, newest) = changed(&store);
    let (gone, two) = (Wanted::id(1), Wanted::query("total = 2", &[]).unwrap());
    let change = orders.change_shown(&gone, &[set_total(1)], &upsert()).unwrap();
    let renewal = WriteOptions { lease: Lease::Forever, ..upsert() };
    let taken_at = orders.absence(&gone).unwrap();
    assert!(Position::ZERO < taken_at && taken_at <= newest);
    for (what, position) in [
        ("read", orders.read_shown(&gone, &now()).unwrap().position),
        ("take", orders.take_shown(&gone, &now()).unwrap().position),
        ("change", change.position),
        ("renew", orders.renew_shown(&gone, &renewal).unwrap().position),
    ] {
        assert_eq!(position, taken_at, "{what}");
    }
    let ordered = Wanted::query("total >= 2 ORDER BY total LIMIT 5", &[]).unwrap();
    for (what, position) in [
        ("read by a query", orders.read_shown(&two, &now()).unwrap().position),
        ("take by a query", orders.take_shown(&two, &now()).unwrap().position),
        ("read many", orders.read_many_shown(&two, 10).unwrap().position),
        ("read many in order", orders.read_many_shown(&ordered, 10).unwrap().position),
        ("count", orders.count_shown(&two).unwrap().position),
        ("clear", orders.clear_shown(&two).unwrap().position),
    ] {
        assert_eq!(position, newest, "{what}");
    }
    // What is there rests on itself.
    let third = orders.read_shown(&Wanted::id(3), &now()).unwrap();
    assert_eq!(third.position, third.value.unwrap().version);
}

#[test]
fn the_end_of_a_lease_is_waited_for_by_nobody_and_an_earlier_end_is() {
    let (store, clock) = with_clock();
    let orders = orders(&store);
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    let until = |ms| WriteOptions { lease: Lease::For(Duration::from_millis(ms)), ..upsert() };
    let absence = || orders.absence(&Wanted::all()).unwrap();
    let ends = orders.renew_shown(&Wanted::id(1), &until(60_000)).unwrap().position;
    assert_eq!(absence(), ends, "it was there for ever before");
    orders.renew_shown(&Wanted::id(1), &until(90_000)).unwrap();
    assert_eq!(absence(), ends, "it lasts longer");
    let earlier = orders.renew_shown(&Wanted::id(1), &until(10)).unwrap().position;
    assert_eq!(absence(), earlier);
    clock.advance(Duration::from_millis(11));
    store.step().unwrap();
    let shown = orders.read_shown(&Wanted::id(1), &now()).unwrap();
    assert_eq!((shown.value, shown.position), (None, earlier), "that its lease ended is sure");
    assert_eq!(orders.usage().entries, 0, "it was removed all the same");
}

#[test]
fn who_reads_that_there_is_none_waits_and_is_refused_where_that_cannot_be_made_durable() {
    let (disk, ledgers) = (base::memory::Disk::new(7), MemoryLedgers::new());
    let options = Options { durability: Durability::Synced, ..options() };
    let store = Store::open_in(&world(&disk, &ledgers), std::path::Path::new("/s"), options).unwrap();
    let (orders, newest) = changed(&store);
    assert!(store.watermarks().synced <= newest);
    assert_eq!(orders.read(&Wanted::id(1), &now()).unwrap(), None);
    assert!(store.watermarks().synced > orders.absence(&Wanted::id(1)).unwrap());
    let mut transaction = store.begin();
    assert_eq!(orders.within(&mut transaction).read(&Wanted::id(1), ReadLock::None, &now()).unwrap(), None);
    drop(transaction);
    orders.take_shown(&Wanted::id(3), &now()).unwrap().value.unwrap();
    disk.plan(0, base::memory::Fault::Error);
    let refused = |result: holdfast::Result<bool>, what: &str| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Unavailable, "{what}");
    };
    refused(orders.read(&Wanted::id(3), &now()).map(|it| it.is_none()), "read");
    refused(orders.take_many(&Wanted::id(3), 1, &now()).map(|it| it.is_empty()), "take many");
    refused(orders.change_many(&Wanted::id(3), &[set_total(1)], &upsert()).map(|count| count == 0), "change many");
    refused(orders.count(&Wanted::query("total = 3", &[]).unwrap()).map(|count| count == 0), "count");
    refused(orders.iterate(&Wanted::all()).and_then(|mut all| all.next(10)).map(|all| all.is_empty()), "iterate");
}
