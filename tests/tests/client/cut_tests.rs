//! Connections that are cut, or swallow everything: what is kept near is never staler than it may be, events are heard once, and
//! calls are answered or told apart.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ConnectOptions, LocalView, NearCache};
use holdfast::ErrorKind;
use holdfast::space::{Listen, ReadOptions, Wanted};
use holdfast_tests::{Launch, Server, say};
use tempfile::TempDir;

use crate::cut::Way;
use crate::scene::{connect, number, order, orders, upsert};

struct Scene {
    _folder: TempDir,
    server: Server,
    way: Way,
}

impl Scene {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let server = Launch::new(folder.path()).durability("written").start();
        let way = Way::to(server.resp());
        Self { _folder: folder, server, way }
    }

    fn client(&self, timeout_millis: u64) -> Client {
        let timeout = Duration::from_millis(timeout_millis);
        Client::connect(ConnectOptions { timeout, ..ConnectOptions::new(&self.way.address.to_string()) })
            .wait()
            .unwrap()
    }
}

#[test]
fn what_is_kept_near_is_never_staler_than_its_bound_whatever_becomes_of_the_connection() {
    const BOUND: Duration = Duration::from_millis(200);
    let scene = Scene::new();
    let direct = orders(&connect(&scene.server));
    direct.write(&order(1, 0), &upsert()).wait().unwrap();
    let far = scene.client(2_000).space("shop").entries("orders").wait().unwrap();
    let view = LocalView::open(&far, &Wanted::all(), BOUND).wait().unwrap();
    let cache = NearCache::open(&far, 10, BOUND).wait().unwrap();
    let newest = AtomicI64::new(0);
    const ROUNDS: i64 = 12;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut total = 0;
            while newest.load(Ordering::SeqCst) >= 0 {
                total += 1;
                direct.write(&order(1, total), &upsert()).wait().unwrap();
                if newest.fetch_max(total, Ordering::SeqCst) < 0 {
                    break;
                }
            }
            total
        });
        let (mut shown, mut failed) = (0_u32, 0_u32);
        // What was acknowledged, and when that was known.
        let mut acknowledged: Vec<(Instant, i64)> = Vec::new();
        for round in 0..ROUNDS {
            match round % 4 {
                1 => scene.way.cut(),
                2 => scene.way.swallow(true),
                3 => {
                    scene.way.swallow(false);
                    scene.way.cut();
                }
                _ => {}
            }
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(500) {
                acknowledged.push((Instant::now(), newest.load(Ordering::SeqCst)));
                let before = Instant::now();
                let old = acknowledged.iter().rev().find(|(at, _)| before.duration_since(*at) > BOUND);
                let least = old.map_or(0, |(_, total)| *total);
                let from_view = view.get(&1.into()).wait().map(|it| number(&it.unwrap(), "total"));
                let from_cache = cache.read(&1.into()).wait().map(|it| number(&it.unwrap().document, "total"));
                for total in [from_view, from_cache] {
                    match total {
                        Ok(total) => {
                            shown += 1;
                            assert!(total >= least, "{total} is older than {least}, in round {round}");
                        }
                        Err(error) => {
                            failed += 1;
                            let kinds = [ErrorKind::Unavailable, ErrorKind::Timeout, ErrorKind::Unknown];
                            assert!(kinds.contains(&error.kind()), "{:?} {error}", error.kind());
                        }
                    }
                }
            }
        }
        scene.way.swallow(false);
        newest.store(i64::MIN, Ordering::SeqCst);
        let last = writer.join().unwrap();
        say!("{last} writes, {shown} shown, {failed} failed");
        assert!(shown > 100, "{shown}");
        let begun = Instant::now();
        while view.get(&1.into()).wait().ok().flatten().is_none_or(|it| number(&it, "total") != last) {
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
        // It may be as late as its bound, and no later.
        let begun = Instant::now();
        while number(&cache.read(&1.into()).wait().unwrap().unwrap().document, "total") != last {
            assert!(begun.elapsed() < BOUND + Duration::from_secs(1));
        }
    });
}

#[test]
fn a_view_that_cannot_hear_says_so_and_hears_again() {
    let scene = Scene::new();
    let direct = orders(&connect(&scene.server));
    let far = scene.client(2_000).space("shop").entries("orders").wait().unwrap();
    let view = LocalView::open(&far, &Wanted::all(), Duration::from_millis(50)).wait().unwrap();
    scene.way.refuse(true);
    scene.way.cut();
    direct.write(&order(1, 1), &upsert()).wait().unwrap();
    thread::sleep(Duration::from_millis(60));
    let begun = Instant::now();
    let refused = view.count().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("older than 50ms"), "{refused}");
    assert!(begun.elapsed() >= Duration::from_millis(2_000), "{:?}", begun.elapsed());
    scene.way.refuse(false);
    let begun = Instant::now();
    while view.count().wait().ok() != Some(1) {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn events_are_heard_once_over_connections_that_break() {
    let scene = Scene::new();
    let direct = orders(&connect(&scene.server));
    let far = scene.client(5_000).space("shop").entries("orders").wait().unwrap();
    let mut heard = far.listen(&Wanted::all(), Listen::default()).wait().unwrap();
    const EVENTS: i64 = 1_500;
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..EVENTS {
                direct.write(&order(id, id), &upsert()).wait().unwrap();
                if id % 100 == 50 {
                    scene.way.cut();
                }
            }
        });
        let begun = Instant::now();
        for id in 0..EVENTS {
            let notice = loop {
                assert!(begun.elapsed() < Duration::from_secs(60), "{id}");
                match heard.next(Duration::from_millis(500)).wait() {
                    Ok(Some(notice)) => break notice,
                    Ok(None) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            };
            assert_eq!(number(&notice.after.unwrap(), "id"), id, "each once and in order");
        }
    });
}

#[test]
fn a_change_that_was_not_answered_is_unknown_and_a_read_is_asked_again() {
    let scene = Scene::new();
    let client = scene.client(2_000);
    let far = orders(&client);
    far.write(&order(1, 1), &upsert()).wait().unwrap();
    scene.way.swallow(true);
    let begun = Instant::now();
    let late = far.write(&order(1, 2), &upsert()).begin();
    let behind = far.write(&order(1, 3), &upsert()).begin();
    let late = late.wait().unwrap_err();
    assert!(late.kind() == ErrorKind::Timeout && begun.elapsed() >= Duration::from_millis(2_000), "{late}");
    assert_eq!(behind.wait().unwrap_err().kind(), ErrorKind::Unknown);
    let read = far.read(&Wanted::id(1), &ReadOptions::default()).begin();
    scene.way.swallow(false);
    scene.way.cut();
    assert_eq!(number(&read.wait().unwrap().unwrap().document, "total"), 1, "it was sent again");
    scene.way.refuse(true);
    scene.way.cut();
    let begun = Instant::now();
    let refused = far.write(&order(1, 4), &upsert()).wait().unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable || refused.kind() == ErrorKind::Unknown, "{refused}");
    let refused = far.write(&order(1, 4), &upsert()).wait().unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("it was not sent"), "{refused}");
    assert!(begun.elapsed() >= Duration::from_millis(2_000));
    scene.way.refuse(false);
    far.write(&order(1, 5), &upsert()).wait().unwrap();
}

/// The time of a request began when its connection had become idle, so that one behind a pause could be over before it was sent.
#[test]
fn a_request_behind_a_pause_has_its_whole_time() {
    let scene = Scene::new();
    let client = scene.client(1_000);
    let far = orders(&client);
    far.write(&order(1, 1), &upsert()).wait().unwrap();
    for total in 2..10 {
        thread::sleep(Duration::from_millis(1_100));
        far.write(&order(1, total), &upsert()).wait().unwrap();
    }
}

#[test]
fn more_views_than_a_server_lets_wait_are_all_kept_up_to_date() {
    const BOUND: Duration = Duration::from_secs(3);
    let scene = Scene::new();
    let far = orders(&scene.client(10_000));
    let views: Vec<LocalView> = (0..70).map(|_| LocalView::open(&far, &Wanted::all(), BOUND).wait().unwrap()).collect();
    for total in 1..=3 {
        far.write(&order(1, total), &upsert()).wait().unwrap();
        thread::sleep(BOUND);
        for view in &views {
            assert_eq!(number(&view.get(&1.into()).wait().unwrap().unwrap(), "total"), total);
        }
    }
}
