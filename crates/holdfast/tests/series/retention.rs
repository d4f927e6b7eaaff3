//! How long points are kept: what is older is neither taken nor shown, and leaves the disk.

use holdfast::series::{Owner, Refused};

use super::*;

/// A store that keeps points of `short.*` for 100 seconds and all others for 100 000.
fn open_keeping(disk: &Disk, ledgers: &MemoryLedgers) -> Store {
    let keep = |metric: &str, seconds| holdfast::series::Retention {
        database: "*".into(),
        metric: metric.into(),
        keep: std::time::Duration::from_secs(seconds),
    };
    let mut options = options();
    options.series.retention = vec![keep("short.*", 100), keep("*", 100_000)];
    options.series.free_bytes_min = 0;
    Store::open_in(&world(disk, ledgers), Path::new("/store"), options).unwrap()
}

/// The time so many seconds before now.
fn ago(seconds: i64) -> i64 {
    (i64::try_from(NOW_MS).unwrap() - seconds * 1000) * 1_000_000
}

#[test]
fn what_is_too_old_is_not_shown_and_goes() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers);
    let mut rows = Rows::new(DATABASE);
    for metric in ["short.m", "long"] {
        for seconds in [50, 99, 101, 5_000, 99_999, 100_001] {
            add(&mut rows, &key(metric, "a", "value"), ago(seconds), ValueRef::Float(seconds as f64));
            // Each in a file of its own.
            flush(&store, &mut rows);
            store.series().seal().unwrap();
        }
    }
    store.close().unwrap();
    let store = open_keeping(&disk, &ledgers);
    let check = |store: &Store| {
        let seen =
            |metric: &str| one(store, &key(metric, "a", "value")).into_iter().map(|(time, _)| time).collect::<Vec<_>>();
        assert_eq!(seen("short.m"), [ago(99), ago(50)]);
        assert_eq!(seen("long"), [99_999, 5_000, 101, 99, 50].map(ago));
    };
    check(&store);
    let before = store.stats().series.points;
    store.step().unwrap();
    check(&store);
    assert!(store.stats().series.points < before, "{:?}", store.stats().series);
}

/// They were acknowledged, and shown by no query.
#[test]
fn points_that_are_older_than_they_are_kept_are_refused_and_the_others_written() {
    let store = open_keeping(&Disk::new(1), &MemoryLedgers::default());
    let mut rows = Rows::new(DATABASE);
    let (short, long) = (key("short.m", "a", "value"), key("long", "a", "value"));
    for seconds in [50, 101, 100, 200] {
        add(&mut rows, &short, ago(seconds), ValueRef::Integer(seconds));
        add(&mut rows, &long, ago(seconds), ValueRef::Text("x"));
    }
    rows.set_owner(Some(Owner(7)));
    add(&mut rows, &key("short.gone", "a", "value"), 0, ValueRef::Float(1.0));
    let written = flush(&store, &mut rows);
    let refused = |metric: &str, points, owner| Refused {
        metric: metric.to_owned(),
        field: "value".to_owned(),
        points,
        owner,
        reason: "points beyond retention policy".to_owned(),
    };
    let mut told = written.refused;
    told.sort_by_key(|one| one.points);
    assert_eq!(told, [refused("short.gone", 1, Some(Owner(7))), refused("short.m", 2, None)]);
    assert_eq!((written.points, store.stats().series.refused), (6, 3));
    assert_eq!(one(&store, &short), [(ago(100), Value::Integer(100)), (ago(50), Value::Integer(50))]);
    assert_eq!(one(&store, &long).len(), 4);
    let metrics = store.series().reader().metrics(DATABASE).unwrap();
    assert_eq!(metrics, ["long", "short.m"], "what is refused makes no series");
    // With keys in one batch it is all or nothing.
    add(&mut rows, &short, ago(1), ValueRef::Integer(1));
    add(&mut rows, &short, ago(1000), ValueRef::Integer(1));
    let mut exclusive = store.exclusive(&Scope::Keys(&[])).unwrap();
    exclusive.add_points(&mut rows).unwrap();
    let error = exclusive.commit().unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Invalid, "points beyond retention policy"));
    assert_eq!(one(&store, &short).len(), 2);
}
