//! Notifications.

use holdfast::space::{Bookmark, Hears, Lease, Listen, NoticeKind, Storage};
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

/// Its position is that of the journal, and the listener stood at a number of another kind.
#[test]
fn a_volatile_entry_that_a_transaction_takes_is_heard_of() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let volatile = Definition { storage: Storage::Volatile, ..Definition::new("shop", "session") };
    let sessions = store.space("shop").declare(volatile).unwrap();
    let mut listener = sessions.listen(&Wanted::all(), Listen::default()).unwrap();
    sessions.write(&order(1, "ada", 0), &upsert()).unwrap();
    assert_eq!(hear(&mut listener), [(NoticeKind::Written, 1)]);
    let mut transaction = store.begin();
    sessions.within(&mut transaction).take(&Wanted::id(1), &now()).unwrap().unwrap();
    transaction.commit(Durability::Written).unwrap();
    assert_eq!(hear(&mut listener), [(NoticeKind::Taken, 1)]);
}
