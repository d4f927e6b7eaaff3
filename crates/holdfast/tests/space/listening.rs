//! Notifications.

use holdfast::space::{Bookmark, Hears, Lease, Listen, ListenName, NoticeKind, Storage};
use holdfast::{CompactionOptions, ErrorKind, MemoryLedgers};

use super::*;

fn with_history(store: &Store) -> Entries {
    store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "order") }).unwrap()
}

/// Ids with what happened to them, until nothing comes for a moment.
fn hear(listener: &mut holdfast::space::Listener) -> Vec<(NoticeKind, i64)> {
    let mut heard = Vec::new();
    while let Some(notice) = listener.next(Duration::ZERO).unwrap() {
        let document = notice.after.or(notice.before).unwrap();
        let Some(holdfast::space::ValueRef::I64(id)) = document.get("id") else { panic!("{document:?}") };
        heard.push((notice.kind, id));
    }
    heard
}

#[test]
fn a_listener_hears_each_event_once_and_goes_on_where_it_stood() {
    use NoticeKind::{Entered, Expired, Left, Taken, Updated, Written};
    let dir = tempfile::tempdir().unwrap();
    let bookmark = {
        let store = Store::open(dir.path(), options()).unwrap();
        let orders = with_history(&store);
        orders.write(&order(0, "ada", 0), &upsert()).unwrap();
        let mut all = orders.listen(&Wanted::all(), Listen::default()).unwrap();
        let large = Wanted::query("total >= 10", &[]).unwrap();
        let mut matching = orders.listen(&large, Listen { hears: Hears::MATCHING, ..Listen::default() }).unwrap();
        orders.write(&order(1, "ada", 10), &upsert()).unwrap();
        orders.write(&order(1, "ada", 11), &upsert()).unwrap();
        orders.write(&order(1, "ada", 9), &upsert()).unwrap();
        orders.write(&order(2, "ada", 12), &upsert()).unwrap();
        orders.take(&Wanted::id(2), &now()).unwrap().unwrap();
        let heard = [(Written, 1), (Updated, 1), (Updated, 1), (Written, 2), (Taken, 2)];
        assert_eq!(hear(&mut all), heard);
        assert_eq!(hear(&mut matching), [(Entered, 1), (Left, 1), (Entered, 2), (Left, 2)]);
        let from_start = Listen { from: Some(Bookmark::START), ..Listen::default() };
        let mut late = orders.listen(&Wanted::all(), from_start.clone()).unwrap();
        assert_eq!(hear(&mut late), [&[(Written, 0)], heard.as_slice()].concat());
        // One that stops within a batch goes on within it.
        let mut transaction = store.begin();
        for number in 10..20 {
            orders.within(&mut transaction).write(&order(number, "bob", 0), &upsert()).unwrap();
        }
        transaction.commit(Durability::Written).unwrap();
        let mut first: Vec<i64> =
            (0..4).map(|_| all.next(Duration::ZERO).unwrap().unwrap()).map(|notice| notice_id(&notice)).collect();
        let text = all.bookmark().to_string();
        let go_on = Listen { from: Some(text.parse().unwrap()), ..Listen::default() };
        let rest = hear(&mut orders.listen(&Wanted::all(), go_on).unwrap());
        first.extend(rest.iter().map(|(_, id)| *id));
        first.sort_unstable();
        assert_eq!(first, (10..20).collect::<Vec<_>>());
        hear(&mut all);
        let lease = WriteOptions { lease: Lease::For(Duration::from_millis(1)), ..upsert() };
        orders.write(&order(30, "eve", 0), &lease).unwrap();
        // Not more than the first: the lease may have ended by now.
        let first = all.next(Duration::from_secs(20)).unwrap().unwrap();
        assert_eq!((first.kind, notice_id(&first)), (Written, 30));
        let bookmark = all.bookmark();
        while orders.usage().entries > 12 {
            std::thread::yield_now();
        }
        bookmark
    };
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = store.space("shop").entries("order").unwrap();
    orders.write(&order(31, "eve", 0), &upsert()).unwrap();
    let mut back = orders.listen(&Wanted::all(), Listen { from: Some(bookmark), ..Listen::default() }).unwrap();
    let heard = hear(&mut back);
    assert!(heard.ends_with(&[(Expired, 30), (Written, 31)]), "{heard:?}");
}

fn notice_id(notice: &holdfast::space::Notice) -> i64 {
    match notice.after.as_ref().and_then(|document| document.get("id")) {
        Some(holdfast::space::ValueRef::I64(id)) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slow_listener_harms_nobody_and_misses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = with_history(&store);
    let small = Listen { buffer_events: 5, ..Listen::default() };
    let mut slow = orders.listen(&Wanted::all(), small).unwrap();
    let mut newest = orders.listen(&Wanted::all(), Listen { conflate: true, ..Listen::default() }).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let orders = &orders;
            scope.spawn(move || {
                for number in 0..400 {
                    orders.write(&order(writer, "ada", number), &upsert()).unwrap();
                }
            });
        }
        let mut last = [-1; 3];
        let mut count = 0;
        while count < 1200 {
            let Some(notice) = slow.next(Duration::from_secs(20)).unwrap() else { panic!("after {count}: nothing") };
            let after = notice.after.clone().unwrap();
            let Some(holdfast::space::ValueRef::I64(total)) = after.get("total") else { panic!("{after:?}") };
            let writer = usize::try_from(notice_id(&notice)).unwrap();
            assert_eq!(total, last[writer] + 1, "each writer's events in order, none missing, none twice");
            last[writer] = total;
            count += 1;
        }
    });
    assert_eq!(slow.next(Duration::ZERO).unwrap(), None);
    let heard = hear(&mut newest);
    assert_eq!(heard.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>().len(), heard.len(), "one of each entry");
}

/// A listener to a type without history heard of replaced entries when it read the journal, and not when it heard them live.
#[test]
fn without_history_all_that_is_written_is_told_as_if_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let hears = Hears { updated: false, ..Hears::ALL };
    let mut live = orders.listen(&Wanted::all(), Listen { hears, ..Listen::default() }).unwrap();
    let from = Some(live.bookmark());
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    orders.write(&order(1, "ada", 2), &upsert()).unwrap();
    let mut late = orders.listen(&Wanted::all(), Listen { hears, from, ..Listen::default() }).unwrap();
    let heard = [(NoticeKind::Written, 1), (NoticeKind::Written, 1)];
    assert_eq!(hear(&mut live), heard);
    assert_eq!(hear(&mut late), heard);
}

#[test]
fn what_a_listener_cannot_hear_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let plain = orders(&store);
    let kind = |listen: Listen| plain.listen(&Wanted::all(), listen).map(|_| ()).map_err(|error| error.kind());
    assert_eq!(kind(Listen::default()), Err(ErrorKind::Invalid), "updates need history");
    let hears = Hears { updated: false, ..Hears::ALL };
    assert_eq!(kind(Listen { hears, ..Listen::default() }), Ok(()));
    let ahead = "99999999999.0".parse().unwrap();
    assert_eq!(kind(Listen { hears, from: Some(ahead), ..Listen::default() }), Err(ErrorKind::Invalid));
    assert!("12".parse::<Bookmark>().is_err() && "x.1".parse::<Bookmark>().is_err());
}

/// It held the journal from where it began, whatever it had heard or could ever hear.
#[test]
fn a_listener_to_whom_nothing_happens_holds_no_journal() {
    let compaction =
        CompactionOptions { bytes_per_second: 0, dead_percent: 5, keep_bytes: 0, ..CompactionOptions::default() };
    let world = world(&base::memory::Disk::new(1), &MemoryLedgers::new());
    let options = Options { partitions: 1, compaction, ..options() };
    let store = Store::open_in(&world, std::path::Path::new("/store"), options).unwrap();
    let quiet = with_history(&store);
    let volatile = Definition { storage: Storage::Volatile, ..Definition::new("shop", "session") };
    let volatile = store.space("shop").declare(volatile).unwrap();
    let mut quiet = quiet.listen(&Wanted::all(), Listen::default()).unwrap();
    let _volatile = volatile.listen(&Wanted::all(), Listen::default()).unwrap();
    let begun = store.watermarks().appended;
    for number in 0..3_000 {
        store.kv().put(b"b", b"k", &[0; 600], &holdfast::PutOptions::default()).unwrap();
        if number % 100 == 0 {
            assert_eq!(quiet.poll().unwrap(), None);
            (0..30).for_each(|_| store.step().unwrap());
        }
    }
    assert!(store.feed_floor() > begun, "{} {begun}", store.feed_floor());
}

/// Whoever has heard more than is done with listens anew from where it is.
#[test]
fn the_journal_is_kept_from_where_a_listener_says() {
    let compaction =
        CompactionOptions { bytes_per_second: 0, dead_percent: 5, keep_bytes: 0, ..CompactionOptions::default() };
    let world = world(&base::memory::Disk::new(1), &MemoryLedgers::new());
    let options = Options { partitions: 1, compaction, ..options() };
    let store = Store::open_in(&world, std::path::Path::new("/store"), options).unwrap();
    let orders = with_history(&store);
    let mut listener = orders.listen(&Wanted::all(), Listen::default()).unwrap();
    let done_with = listener.bookmark();
    listener.keep_from(done_with);
    let mut heard = 0;
    let mut hear = |listener: &mut holdfast::space::Listener| {
        for number in 0..3_000 {
            store.kv().put(b"b", b"k", &[0; 600], &holdfast::PutOptions::default()).unwrap();
            if number % 100 == 0 {
                orders.write(&order(1, "ada", number), &upsert()).unwrap();
                heard += std::iter::from_fn(|| listener.poll().unwrap()).count();
                (0..30).for_each(|_| store.step().unwrap());
            }
        }
        heard
    };
    assert_eq!(hear(&mut listener), 30);
    let anew = Listen { from: Some(done_with), ..Listen::default() };
    let mut anew = orders.listen(&Wanted::all(), anew).unwrap();
    assert_eq!(std::iter::from_fn(|| anew.poll().unwrap()).count(), 30);
    drop(anew);
    let now = listener.bookmark();
    listener.keep_from(now);
    hear(&mut listener);
    assert!(store.feed_floor() > done_with.position(), "and no further");
    assert!(store.feed_floor() <= now.position());
}

/// The buffer told what the journal could not, and the journal what the buffer had not.
#[test]
fn a_type_without_history_tells_the_same_live_and_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let hears = Hears { updated: false, ..Hears::ALL };
    let listen = |from| orders.listen(&Wanted::all(), Listen { hears, from, ..Listen::default() }).unwrap();
    let mut live = listen(None);
    let from = live.bookmark();
    orders.write(&order(1, "ada", 0), &upsert()).unwrap();
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    orders.take(&Wanted::id(1), &now()).unwrap().unwrap();
    let all = |listener: &mut holdfast::space::Listener| {
        std::iter::from_fn(|| listener.next(Duration::ZERO).unwrap()).collect::<Vec<_>>()
    };
    let live = all(&mut live);
    assert_eq!(live, all(&mut listen(Some(from))));
    assert_eq!(live.len(), 3);
}

fn named(name: &str, retain_bytes: Option<u64>) -> Listen {
    Listen { name: Some(ListenName { name: name.to_owned(), retain_bytes }), ..Listen::default() }
}

#[test]
fn a_listener_by_name_goes_on_behind_what_was_acknowledged() {
    use NoticeKind::Written;
    let dir = tempfile::tempdir().unwrap();
    {
        let store = Store::open(dir.path(), options()).unwrap();
        let orders = with_history(&store);
        orders.write(&order(0, "ada", 0), &upsert()).unwrap();
        let mut mailer = orders.listen(&Wanted::all(), named("mailer", None)).unwrap();
        for id in 1..=4 {
            orders.write(&order(id, "ada", 0), &upsert()).unwrap();
        }
        assert_eq!(hear(&mut mailer), [(Written, 1), (Written, 2), (Written, 3), (Written, 4)]);
        let mut again = orders.listen(&Wanted::all(), named("mailer", None)).unwrap();
        assert_eq!(notice_id(&again.next(Duration::ZERO).unwrap().unwrap()), 1, "nothing was acknowledged");
        assert_eq!(notice_id(&again.next(Duration::ZERO).unwrap().unwrap()), 2);
        orders.acknowledge("mailer", again.bookmark(), None).unwrap();
        // What was acknowledged is not taken back.
        orders.acknowledge("mailer", Bookmark::START, None).unwrap();
        // What was done about an event and that it is done with is one batch, or none.
        let bookmark = again.next(Duration::ZERO).unwrap().unwrap().bookmark;
        let mut transaction = store.begin();
        orders.within(&mut transaction).write(&order(100, "done", 3), &upsert()).unwrap();
        orders.acknowledge_within(&mut transaction, "mailer", bookmark).unwrap();
        drop(transaction);
        assert_eq!(orders.known_listeners().unwrap()[0].bookmark, {
            let third = orders.listen(&Wanted::all(), named("mailer", None)).unwrap();
            third.bookmark()
        });
        let mut transaction = store.begin();
        let mut other = store.begin();
        orders.within(&mut transaction).write(&order(100, "done", 3), &upsert()).unwrap();
        orders.acknowledge_within(&mut transaction, "mailer", bookmark).unwrap();
        orders.acknowledge_within(&mut other, "mailer", bookmark).unwrap();
        transaction.commit(Durability::Written).unwrap();
        assert_eq!(other.commit(Durability::Written).unwrap_err().kind(), ErrorKind::Conflict);
        store.close().unwrap();
    }
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = store.space("shop").entries("order").unwrap();
    let mut back = orders.listen(&Wanted::all(), named("mailer", None)).unwrap();
    assert_eq!(hear(&mut back), [(Written, 4), (Written, 100)]);
    assert_eq!(orders.known_listeners().unwrap().iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["mailer"]);
    assert!(store.kv().buckets().unwrap().value.is_empty(), "hidden from users");
    assert!(orders.forget_listener("mailer").unwrap() && !orders.forget_listener("mailer").unwrap());
    let mut new = orders.listen(&Wanted::all(), named("mailer", None)).unwrap();
    assert_eq!(hear(&mut new), [], "a new one begins now");
    // A type that is dropped takes its listeners with it.
    store.space("shop").drop_type("order").unwrap();
    assert!(with_history(&store).known_listeners().unwrap().is_empty());
}

#[test]
fn what_is_wrong_with_a_name_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = with_history(&store);
    let volatile = Definition { storage: Storage::Volatile, ..Definition::new("shop", "quote") };
    let quotes = store.space("shop").declare(volatile).unwrap();
    let refused = |result: holdfast::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    let listen = |entries: &Entries, name: &str| entries.listen(&Wanted::all(), named(name, None)).map(drop);
    assert!(refused(listen(&orders, "")).contains("1 to 256 bytes"));
    assert!(refused(listen(&orders, &"x".repeat(257))).contains("not 257"));
    assert!(refused(listen(&quotes, "mailer")).contains("without a name"));
    assert!(refused(orders.acknowledge("mailer", Bookmark::START, None)).contains("listen by that name first"));
    listen(&orders, "mailer").unwrap();
    let far = "99999999999999.0".parse().unwrap();
    assert!(refused(orders.acknowledge("mailer", far, None)).contains("positions up to"));
    let from = Listen { from: Some(far), ..named("mailer", None) };
    assert!(refused(orders.listen(&Wanted::all(), from).map(drop)).contains("positions up to"));
}

/// The journal is held for one that is away, up to its bound; behind it the listener is told, and compaction goes on.
#[test]
fn the_journal_is_held_for_a_name_up_to_its_bound_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let compaction =
        CompactionOptions { schedule: holdfast::Schedule::OnDemand, keep_bytes: 0, ..CompactionOptions::default() };
    // One partition: snapshots of others would need the beginning of the journal.
    let options = || Options { partitions: 1, compaction, ..options() };
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = with_history(&store);
    let away = orders.listen(&Wanted::all(), named("away", Some(1 << 20))).unwrap().bookmark();
    for id in 0..40 {
        orders.write(&order(id % 3, "ada", id), &upsert()).unwrap();
        store.kv().put(b"b", b"k", &[7; 300], &holdfast::PutOptions::default()).unwrap();
    }
    let compacted = |store: &Store| {
        // Segments are sealed in the background, which may come late on a busy machine.
        (0..1500).any(|_| {
            std::thread::yield_now();
            store.compact().unwrap().segments > 0
        })
    };
    // The space's own snapshots need the journal no more when there are two behind all of this.
    let (mut store, mut orders) = (store, orders);
    for id in 50..53 {
        orders.write(&order(id, "ada", id), &upsert()).unwrap();
        store.close().unwrap();
        drop(orders);
        drop(store);
        store = Store::open(dir.path(), options()).unwrap();
        orders = store.space("shop").entries("order").unwrap();
    }
    assert!(!compacted(&store), "all of the journal is held");
    let known = orders.known_listeners().unwrap().remove(0);
    assert!(known.is_held && known.bookmark == away && known.behind_bytes > 0);
    // It comes, hears everything, and says that a little is enough from now on.
    let mut back = orders.listen(&Wanted::all(), named("away", Some(1000))).unwrap();
    assert_eq!(hear(&mut back).len(), 43);
    drop(back);
    assert!(!orders.known_listeners().unwrap()[0].is_held);
    assert!(compacted(&store), "behind its bound nothing is held");
    // What is left is less than its bound, and not what it needs.
    assert!(!orders.known_listeners().unwrap()[0].is_held);
    let error = orders.listen(&Wanted::all(), named("away", None)).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("away stands at") && error.contains("more than its 1000 bytes were written since"),
        "{error}"
    );
    assert!(orders.forget_listener("away").unwrap());
    orders.listen(&Wanted::all(), named("away", None)).unwrap();
}

/// Names were looked at only when a segment was chosen, so one that was new while it waited to be let go lost its place.
#[test]
fn the_journal_is_held_for_a_name_that_is_new_while_a_segment_waits_to_be_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let compaction =
        CompactionOptions { schedule: holdfast::Schedule::OnDemand, keep_bytes: 0, ..CompactionOptions::default() };
    let options = || Options { partitions: 1, compaction, ..options() };
    let mut store = Store::open(dir.path(), options()).unwrap();
    let mut orders = with_history(&store);
    let put = |store: &Store| {
        store.kv().put(b"b", b"k", &[7; 300], &holdfast::PutOptions::default()).unwrap();
    };
    for id in 0..40 {
        orders.write(&order(id, "ada", id), &upsert()).unwrap();
        put(&store);
    }
    // The space's own snapshots need the journal no more when there are two behind all of this.
    for id in 40..43 {
        orders.write(&order(id, "ada", id), &upsert()).unwrap();
        store.close().unwrap();
        drop(orders);
        drop(store);
        store = Store::open(dir.path(), options()).unwrap();
        orders = store.space("shop").entries("order").unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    put(&store);
    let waiting = store.compact().unwrap();
    assert!(waiting.waiting > 0 && waiting.segments == 0, "{waiting:?}");
    let from_start = Listen { from: Some(Bookmark::START), ..named("new", None) };
    drop(orders.listen(&Wanted::all(), from_start).unwrap());
    drop(snapshot);
    let kept = store.compact().unwrap();
    assert!(kept.waiting > 0 && kept.segments == 0, "{kept:?}");
    let mut new = orders.listen(&Wanted::all(), named("new", None)).unwrap();
    assert_eq!(hear(&mut new).len(), 43);
    orders.acknowledge("new", new.bookmark(), None).unwrap();
    drop(new);
    assert!(store.compact().unwrap().segments >= kept.waiting, "what it has acknowledged goes");
}

/// The number of a type that was dropped was given to the next one after reopening, in whatever space, and with it its events.
#[test]
fn a_new_type_hears_nothing_of_one_that_was_dropped_before_the_store_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    orders(&store);
    let old =
        store.space("private").declare(Definition { history: true, ..Definition::new("private", "secret") }).unwrap();
    old.write(&order(1, "ada", 10), &upsert()).unwrap();
    store.space("private").drop_type("secret").unwrap();
    store.close().unwrap();
    drop((old, store));
    // Once from the snapshot alone, once with nothing written since.
    for name in ["first", "second"] {
        let store = Store::open(dir.path(), options()).unwrap();
        let new = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", name) }).unwrap();
        let from = Some(Bookmark::START);
        let mut listener = new.listen(&Wanted::all(), Listen { from, ..Listen::default() }).unwrap();
        assert_eq!(hear(&mut listener), []);
        drop(listener);
        new.write(&order(2, "eve", 20), &upsert()).unwrap();
        store.space("shop").drop_type(name).unwrap();
        store.close().unwrap();
    }
}

/// Only the newest of the events was kept, with its own kind and what was there before itself: an entry that had entered a query, or
/// come, was never told.
#[test]
fn conflated_events_tell_what_became_of_an_entry_since_the_first_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = with_history(&store);
    let large = Wanted::query("total >= 10", &[]).unwrap();
    let written = Hears { written: true, entered: false, left: false, ..Hears::MATCHING };
    let taken = Hears { written: false, updated: false, expired: false, ..Hears::ALL };
    let write = |id: i64, total: i64| drop(orders.write(&order(id, "ada", total), &upsert()).unwrap());
    let take = |id: i64| drop(orders.take(&Wanted::id(id), &now()).unwrap().unwrap());
    for id in 1..=4 {
        write(id, if id > 2 { 10 } else { 0 });
    }
    let listen = |hears| orders.listen(&large, Listen { hears, conflate: true, ..Listen::default() }).unwrap();
    let (mut matching, mut came, mut all) = (listen(Hears::MATCHING), listen(written), listen(Hears::ALL));
    let mut gone = listen(taken);
    for (id, total) in
        [(1, 10), (1, 11), (2, 10), (2, 0), (3, 0), (3, 11), (4, 11), (5, 10), (5, 11), (6, 10), (7, 0), (7, 10)]
    {
        write(id, total);
    }
    take(4);
    take(6);
    take(3);
    write(3, 12);
    write(3, 13);
    use NoticeKind::{Entered, Left, Taken, Updated, Written};
    assert_eq!(hear(&mut matching), [(Entered, 1), (Entered, 5), (Entered, 7), (Left, 4)]);
    assert_eq!(hear(&mut came), [(Written, 5), (Written, 7), (Written, 3)]);
    assert_eq!(hear(&mut all), [(Updated, 1), (Written, 5), (Written, 7), (Taken, 4), (Taken, 6), (Written, 3)]);
    assert_eq!(hear(&mut gone), [(Taken, 4), (Taken, 6)]);
    // What was told is over.
    write(1, 12);
    write(1, 0);
    assert_eq!(hear(&mut matching), [(Left, 1)]);
}
