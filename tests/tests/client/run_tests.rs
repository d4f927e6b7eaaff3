//! A server that has lost what it showed last, as a power cut takes it: views and caches of programs that go on show what is there now.

use std::time::Duration;

use client::{Client, ConnectOptions, LocalView, NearCache};
use holdfast::space::{Value, Wanted};
use holdfast_tests::{Launch, Snapshot, until};
use tempfile::TempDir;

use crate::scene::{number, order, orders, upsert};

#[test]
fn views_and_caches_begin_anew_with_another_run_of_the_server() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let server = Launch::new(&data).durability("written").start();
    let client = Client::connect(ConnectOptions::new(&server.resp().to_string())).wait().unwrap();
    let orders = orders(&client);
    for id in 0..4 {
        orders.write(&order(id, 1), &upsert()).wait().unwrap();
    }
    let near = NearCache::open(&orders, 100, Duration::ZERO).wait().unwrap();
    let view = LocalView::open(&orders, &Wanted::all(), Duration::ZERO).wait().unwrap();
    let before = Snapshot::of(&data);
    // These it loses: one is in a cache that has heard nothing of it since, because it was read and not heard of.
    orders.write(&order(1, 2), &upsert()).wait().unwrap();
    orders.write(&order(9, 2), &upsert()).wait().unwrap();
    let total = |id: i64| near.read(&Value::from(id)).wait().map(|it| it.map(|it| number(&it.document, "total")));
    let seen = |id: i64| view.get(&Value::from(id)).wait().map(|it| it.map(|it| number(&it, "total")));
    for look in [&total as &dyn Fn(i64) -> holdfast::Result<Option<i64>>, &seen] {
        assert_eq!((look(0).unwrap(), look(1).unwrap(), look(9).unwrap()), (Some(1), Some(2), Some(2)));
    }
    let address = server.resp().to_string();
    server.kill();
    before.restore(&data);
    let server = Launch::new(&data).durability("written").resp(&address).start_again();
    for look in [&total as &dyn Fn(i64) -> holdfast::Result<Option<i64>>, &seen] {
        // While it is not there they say so, and show nothing that is not so.
        let first = until(Duration::from_secs(60), || look(1).ok());
        assert_eq!(first, Some(Some(1)));
        assert_eq!((look(0).unwrap(), look(9).unwrap()), (Some(1), None));
    }
    assert_eq!(near.stats().cleared, 1);
    // And they follow it.
    orders.write(&order(1, 3), &upsert()).wait().unwrap();
    assert_eq!((total(1).unwrap(), seen(1).unwrap()), (Some(3), Some(3)));
    let (status, text) = server.terminate();
    assert!(status.success(), "{text}");
}
