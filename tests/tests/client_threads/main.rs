//! Threads of the client library, counted in a process where nothing else runs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[allow(dead_code, reason = "this test needs a part of it")]
#[path = "../client/scene.rs"]
mod scene;

use std::time::Duration;

use holdfast::space::{ReadOptions, Wanted};

use scene::{both, number, order, orders, upsert};

#[test]
fn calls_are_awaited_in_any_runtime_without_a_thread_each() {
    both(|client| {
        let orders = orders(client);
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let writes = (0..200).map(|id| {
                let (orders, document) = (orders.clone(), order(id, id));
                async move { orders.write(&document, &upsert()).await.unwrap() }
            });
            let written = futures_util::future::join_all(writes).await;
            assert_eq!(written.len(), 200);
            let begun = threads();
            // Those who wait are many, and threads are not.
            let wanted = Wanted::query("total >= 1000", &[]).unwrap();
            let options = ReadOptions { wait: Some(Duration::from_secs(60)), ..ReadOptions::default() };
            let takes: Vec<_> = (0..100).map(|_| orders.take(&wanted, &options).begin()).collect();
            while orders.waiters().await.unwrap() < 100 {}
            assert!(threads() <= begun + 8, "{begun} threads, now {}", threads());
            for id in 1000..1100 {
                orders.write(&order(id, id), &upsert()).await.unwrap();
            }
            let mut taken: Vec<i64> = futures_util::future::join_all(takes)
                .await
                .into_iter()
                .map(|taken| number(&taken.unwrap().unwrap().document, "id"))
                .collect();
            taken.sort_unstable();
            assert_eq!(taken, (1000..1100).collect::<Vec<_>>());
        });
    });
}
