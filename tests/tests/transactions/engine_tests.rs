//! Holdfast's own data in a transaction over databases: keys, entries and points in the batch of the decision, with the
//! coordinator in the process and on a server.

use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, ConnectOptions, Entries, Point, SeriesName, TransactionOptions};
use holdfast::series::Value as Number;
use holdfast::space::{Definition, Document, ReadOptions, Wanted, WriteOptions};
use holdfast::{Options, PutOptions, Store};
use holdfast_tests::Launch;
use mysql_async::prelude::Queryable;
use tm::{Begin, Coordinator, Outcome, RemoteOptions, Sharing, Transaction};

use crate::bank::{Clients, Reach};
use crate::databases::{MariaDb, Postgres};

/// A coordinator, the data beside it, and both databases.
struct Shop {
    coordinator: Coordinator,
    data: Client,
    orders: Entries,
    databases: Clients,
    /// Where its money is moved from and to.
    account: i64,
    next: AtomicU64,
}

impl Shop {
    async fn new(coordinator: Coordinator, data: Client, reach: &Reach, account: i64) -> Self {
        let orders = data.space("shop").declare(Definition::new("shop", "orders")).await.unwrap();
        Self { coordinator, data, orders, databases: reach.connect().await.unwrap(), account, next: AtomicU64::new(1) }
    }

    /// A transaction that has written the same number into both databases and all three engines.
    async fn everywhere(&self) -> (u64, Transaction, client::Transaction) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let transaction = self.databases.begin(&self.coordinator).await.unwrap();
        let id = format!("{:p}-{number}", std::ptr::from_ref(self));
        self.databases.transfer(&id, self.account, self.account, 1).await.unwrap();
        let mut data = self.data.begin(&TransactionOptions::default()).await.unwrap();
        data.put(b"b", &key(number), b"paid", &PutOptions::default()).await.unwrap();
        let order = Document::from_pairs([("id", i64::try_from(number).unwrap())]);
        data.write(&self.orders, &order, &WriteOptions::default()).await.unwrap();
        let point = Point { time: i64::try_from(number).unwrap(), value: Number::Integer(1) };
        data.add_points(&[(SeriesName::new("sold"), point)]).await.unwrap();
        (number, transaction, data)
    }

    /// Whether it is there: in the databases by how much money was moved there, in the engines by itself.
    async fn seen(&self, number: u64) -> [bool; 3] {
        let key = self.data.kv().get_value(b"b", &key(number)).await.unwrap().is_some();
        let id = Wanted::id(i64::try_from(number).unwrap());
        let entry = self.orders.read(&id, &ReadOptions::default()).await.unwrap().is_some();
        let last = self.data.series().last(&SeriesName::new("sold")).await.unwrap();
        [key, entry, last.is_some_and(|point| point.time == i64::try_from(number).unwrap())]
    }

    async fn moved(&self) -> [i64; 2] {
        let query = format!("SELECT money FROM bank.accounts WHERE id = {}", self.account);
        let here: i64 = self.databases.postgres.query_one(&query, &[]).await.unwrap().get(0);
        let there: Option<i64> = self.databases.mariadb.lock().await.query_first(query).await.unwrap();
        [crate::bank::EACH - here, there.unwrap() - crate::bank::EACH]
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("order-{number}").into_bytes()
}

async fn commit(transaction: Transaction, mut data: client::Transaction) -> Result<tm::Committed, tm::Failed> {
    let decide = async move |id, prepared: Vec<tm::BranchName>| {
        data.decide(id, &prepared).await?;
        data.commit(None).await.map(drop)
    };
    transaction.commit_with(decide).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_entries_points_and_two_databases_change_together_or_not_at_all() {
    let (postgres, mariadb) = (Postgres::start(20), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    reach.found().await;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("here"), Options::default()).unwrap();
    let here = Coordinator::embedded(tm::Embedded::over(store.clone()));
    let server = Launch::new(&folder.path().join("there")).start();
    let address = server.resp().to_string();
    let there = Coordinator::connect(RemoteOptions::new(&address)).await.unwrap();
    let data = Client::connect(ConnectOptions::new(&address)).await.unwrap();
    let shops = [
        Shop::new(here, Client::embedded(&store).unwrap(), &reach, 1).await,
        Shop::new(there.clone(), data, &reach, 2).await,
    ];
    for (at, shop) in shops.iter().enumerate() {
        let (first, transaction, data) = shop.everywhere().await;
        assert_eq!(shop.seen(first).await, [false; 3]);
        assert!(commit(transaction, data).await.unwrap().pending.is_empty());
        assert_eq!((shop.seen(first).await, shop.moved().await), ([true; 3], [1; 2]));

        // A branch that cannot be prepared.
        let (refused, transaction, data) = shop.everywhere().await;
        shop.databases.postgres.batch_execute("SELECT 1/0").await.unwrap_err();
        assert_eq!(commit(transaction, data).await.unwrap_err().outcome, Outcome::RolledBack);
        assert_eq!((shop.seen(refused).await, shop.moved().await), ([false; 3], [1; 2]));

        // Data that somebody has changed meanwhile.
        let (outdated, transaction, mut data) = shop.everywhere().await;
        data.get_value(b"b", b"watched").await.unwrap();
        shop.data.kv().put(b"b", b"watched", b"new", &PutOptions::default(), None).await.unwrap();
        let failed = commit(transaction, data).await.unwrap_err();
        assert_eq!(failed.outcome, Outcome::RolledBack, "{failed}");
        assert_eq!((shop.seen(outdated).await, shop.moved().await), ([false; 3], [1; 2]));

        // Somebody decided meanwhile that it will never be committed.
        let (aborted, transaction, data) = shop.everywhere().await;
        let decisions: &dyn tm::Decisions = &tm::Embedded::over(store.clone());
        let remote = tm::Remote::open(RemoteOptions::new(&address)).unwrap();
        let decisions = if at == 0 { decisions } else { &remote };
        decisions.abort(transaction.id()).unwrap();
        let failed = commit(transaction, data).await.unwrap_err();
        assert_eq!(failed.outcome, Outcome::RolledBack, "{failed}");
        assert_eq!((shop.seen(aborted).await, shop.moved().await), ([false; 3], [1; 2]));
    }
    // Without a branch that had to be prepared.
    for shop in &shops {
        let mut data = shop.data.begin(&TransactionOptions::default()).await.unwrap();
        data.put(b"b", b"alone", b"paid", &PutOptions::default()).await.unwrap();
        let transaction = shop.coordinator.begin(Begin::default()).unwrap();
        commit(transaction, data).await.unwrap();
        assert_eq!(shop.data.kv().get_value(b"b", b"alone").await.unwrap(), Some(b"paid".to_vec()));
    }
    // Of another coordinator's transaction the data decides nothing.
    let (_, transaction, here) = shops[0].everywhere().await;
    let (other, mine, there) = shops[1].everywhere().await;
    drop((here, mine));
    let failed = commit(transaction, there).await.unwrap_err();
    assert!(failed.outcome == Outcome::RolledBack && failed.to_string().contains("another coordinator"), "{failed}");
    assert_eq!((shops[1].seen(other).await, shops[1].moved().await), ([false; 3], [1; 2]));
    // Nor together with a shared one.
    let data = shops[1].data.begin(&TransactionOptions::default()).await.unwrap();
    let shared = shops[1].coordinator.begin(Begin { timeout: None, sharing: Sharing::Shared }).unwrap();
    assert!(commit(shared, data).await.unwrap_err().to_string().contains("a shared transaction"));
}

/// The server dies when the branches are prepared: either all of it happened, or nothing, wherever it died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_while_it_decides_has_all_of_it_or_nothing() {
    let (postgres, mariadb) = (Postgres::start(20), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    reach.found().await;
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::new(folder.path()).durability("synced");
    let mut server = Some(launch.start());
    let address = server.as_ref().unwrap().resp().to_string();
    let launch = launch.resp(&address);
    let patience = std::time::Duration::from_secs(5);
    let options = RemoteOptions { patience, ..RemoteOptions::new(&address) };
    let coordinator = Coordinator::connect(options).await.unwrap();
    let data = Client::connect(ConnectOptions::new(&address)).await.unwrap();
    let mut shop = Shop::new(coordinator, data, &reach, 1).await;
    let mut moved = 0;
    for is_decided in [false, true] {
        let (number, transaction, mut data) = shop.everywhere().await;
        let (killed, now) = tokio::sync::oneshot::channel();
        let dying = server.take().unwrap();
        let decide = async move |id, prepared: Vec<tm::BranchName>| {
            data.decide(id, &prepared).await?;
            if is_decided {
                data.commit(None).await?;
            }
            dying.kill();
            let _ = killed.send(());
            // What came of it is lost with the connection.
            Err(holdfast::Error::new(holdfast::ErrorKind::Unknown, "the connection broke"))
        };
        let committing = tokio::spawn(transaction.commit_with(decide));
        now.await.unwrap();
        server = Some(launch.start_again());
        let ended = committing.await.unwrap();
        // The coordinator may be out of reach for as long as it was asked.
        match &ended {
            Ok(_) => assert!(is_decided),
            Err(failed) => assert!(failed.outcome == Outcome::Unknown || !is_decided, "{failed}"),
        }
        moved += i64::from(is_decided);
        // MariaDB gives no branch away whose connection is open. The coordinator may hear of the abort later.
        shop.databases = reach.connect().await.unwrap();
        let mut recovery = reach.recovery(&shop.coordinator);
        let is_settled = async { while !recovery.run().await.is_clean() {} };
        tokio::time::timeout(std::time::Duration::from_secs(60), is_settled).await.unwrap();
        assert_eq!((shop.seen(number).await, shop.moved().await), ([is_decided; 3], [moved; 2]));
    }
}
