//! What blocks of mirrors and loaders, awaited in a runtime of one thread: it comes, blocks nothing there, and may be dropped.

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use grid::{DocumentTable, IdKind, Loaded, Loader, Mirror, NotThrough};
use holdfast::space::{Value, Wanted, WriteOptions};
use holdfast::{Durability, ErrorKind};

use super::databases::Postgres;
use super::scene::{Database, LONG, SCHEMA, entries, open, order, quick};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn a_mirror_and_a_loader_are_awaited_and_dropped_within_a_runtime() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    database.run(
        r#"INSERT INTO "order" SELECT n, jsonb_build_object('id', n, 'total', n * 2) FROM generate_series(1, 100) n"#,
    );
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let client = Client::embedded(&store).unwrap();
    runtime().block_on(async {
        let running = client.elsewhere({
            let (orders, options) = (orders.clone(), quick(postgres.connection()));
            move || {
                let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer);
                Mirror::start(&orders, Arc::new(mapping), options)
            }
        });
        let running = running.await.unwrap();
        assert!(running.flush_with(&client, LONG).await.unwrap());
        // Loads share one connection, and each has its turn.
        let loader = Loader::beside(&store, &running).unwrap();
        let again = loader.clone();
        let (one, other) = futures_util::future::join(loader.load_with(&client), again.load_with(&client)).await;
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!((one.rows, other.rows, one.written + other.written), (100, 100, 100));
        let read = |id: i64| loader.read_with(&client, &id.into(), LONG);
        assert!(read(7).await.unwrap().is_some());
        assert!(read(700).await.unwrap().is_none());
        orders.take(&Wanted::id(8), &Default::default()).unwrap().unwrap();
        let ids: Vec<Value> = vec![7.into(), 8.into()];
        let loaded = loader.load_ids_with(&client, &ids, LONG).await.unwrap();
        assert_eq!((loaded.written, loaded.entries), (0, vec![Value::from(7)]));
        // Through the table, or not at all.
        let mut transaction = store.begin();
        orders.within(&mut transaction).write(&order(7, 1), &WriteOptions::default()).unwrap();
        let committed = running.commit_with(&client, transaction, Durability::Written, LONG);
        committed.await.unwrap().unwrap();
        let mut transaction = store.begin();
        orders.within(&mut transaction).write(&order(7, 2), &WriteOptions::default()).unwrap();
        drop(running.commit_with(&client, transaction, Durability::Written, LONG));
        orders.write(&order(9, 3), &WriteOptions::default()).unwrap();
        assert!(running.flush_with(&client, LONG).await.unwrap());
        // One that is dropped when it has begun goes on, and the loader with it.
        drop(loader.load_with(&client).begin());
        drop((loader, again));
        let stats = running.stop_with(&client).await.unwrap();
        assert_eq!((stats.ended, stats.trouble), (None, None));
        let alone = client.elsewhere({
            let (store, orders, address) = (store.clone(), orders.clone(), postgres.connection());
            move || {
                let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer);
                Loader::new(&store, &orders, Arc::new(mapping), &grid::Database::new(address))
            }
        });
        // Its row is gone, and so is not loaded.
        assert_eq!(alone.await.unwrap().load_with(&client).await.unwrap(), Loaded { rows: 99, written: 0 });
    });
    let mut table = database.table();
    table.sort_unstable();
    assert_eq!(table, entries(&orders));
    assert!(table.contains(&(7, 1)) && table.contains(&(9, 3)) && !table.iter().any(|(id, _)| *id == 8));
}

/// A database that is not there is waited for: by threads, and not by what else the runtime has to do.
#[test]
fn who_awaits_what_cannot_come_is_not_held_up_and_stops_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let client = Client::embedded(&store).unwrap();
    let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer);
    let nowhere = "host=127.0.0.1 port=1 user=postgres dbname=postgres";
    let running = Mirror::start(&orders, Arc::new(mapping), quick(nowhere)).unwrap();
    orders.write(&order(1, 1), &WriteOptions::default()).unwrap();
    runtime().block_on(async {
        assert!(!running.flush_with(&client, Duration::from_millis(5)).await.unwrap());
        let loader = Loader::beside(&store, &running).unwrap();
        let late = loader.read_with(&client, &Value::from(2), Duration::from_millis(5)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
        let mut transaction = store.begin();
        orders.within(&mut transaction).write(&order(1, 2), &WriteOptions::default()).unwrap();
        let through = running.commit_with(&client, transaction, Durability::Written, Duration::from_millis(5));
        match through.await.unwrap() {
            Err(NotThrough::Nothing(error)) => {
                assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
            }
            other => panic!("{other:?}"),
        }
        // These wait for a minute, unless the mirror stops; the last word is had all the same.
        let waits = [running.flush_with(&client, LONG).begin(), running.flush_with(&client, LONG).begin()];
        let loads = loader.load_with(&client).begin();
        let stats = running.stop_with(&client).await.unwrap();
        assert_eq!(stats.ended, None);
        for wait in waits {
            assert!(!wait.await.unwrap());
        }
        assert_eq!(loads.await.unwrap_err().kind(), ErrorKind::Closed);
    });
    assert_eq!(entries(&orders), [(1, 1)]);
    // Dropped, it stops all the same.
    let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer);
    let running = Mirror::start(&orders, Arc::new(mapping), quick(nowhere)).unwrap();
    drop(running.stop_with(&client));
}
