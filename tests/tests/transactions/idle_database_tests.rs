//! A program that hangs in a branch in MariaDB loses its session, and the locks with it, when the time of its transaction is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::Options;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tm::{Begin, Coordinator, MysqlBranch, MysqlManager, Pace, Recovery, Sharing, Transaction};
use tokio::sync::Mutex;

use crate::bank::name;
use crate::databases::MariaDb;

/// What every session has that says nothing of its own; half an hour.
const USUAL: u64 = 1800;
/// The least that a branch is given.
const SHORT: Duration = Duration::from_secs(10);

struct Shop {
    mariadb: MariaDb,
    coordinator: Coordinator,
}

impl Shop {
    async fn connect(&self) -> Arc<Mutex<Conn>> {
        let socket = self.mariadb.socket().display().to_string();
        let options = OptsBuilder::default().user(Some("root")).socket(Some(socket));
        let mut connection = Conn::new(options).await.unwrap();
        connection.query_drop(format!("SET SESSION idle_transaction_timeout = {USUAL}")).await.unwrap();
        Arc::new(Mutex::new(connection))
    }

    async fn begin(&self, connection: &Arc<Mutex<Conn>>, begin: Begin) -> Transaction {
        let mut transaction = self.coordinator.begin(begin).unwrap();
        let branch = MysqlBranch::start(connection, &transaction.xid("shop").unwrap()).await.unwrap();
        transaction.enlist(&name("shop"), branch).await.unwrap();
        transaction
    }
}

fn within(timeout: Duration) -> Begin {
    Begin { timeout: Some(timeout), ..Begin::default() }
}

async fn idle(connection: &Mutex<Conn>) -> u64 {
    connection.lock().await.query_first("SELECT @@SESSION.idle_transaction_timeout").await.unwrap().unwrap()
}

async fn update(connection: &Mutex<Conn>, id: u32) -> mysql_async::Result<()> {
    let statement = format!("UPDATE shop.stock SET items = items + 1 WHERE id = {id}");
    connection.lock().await.query_drop(statement).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_in_mariadb_ends_with_the_time_of_its_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::open(folder.path(), Options::default()).await.unwrap();
    let shop = Shop { mariadb: MariaDb::start(), coordinator };
    let tables = "CREATE DATABASE shop; CREATE TABLE shop.stock (id INT PRIMARY KEY, items INT NOT NULL);
        INSERT INTO shop.stock VALUES (1, 0), (2, 0), (3, 0)";
    shop.connect().await.lock().await.query_drop(tables).await.unwrap();
    a_session_is_as_it_was_however_its_branch_ends(&shop).await;
    a_deadlock_leaves_sessions_as_they_were(&shop).await;
    tokio::join!(who_hangs_in_a_branch_loses_its_locks(&shop), who_hangs_with_a_prepared_branch_holds_up_nobody(&shop));
}

async fn a_session_is_as_it_was_however_its_branch_ends(shop: &Shop) {
    let connection = shop.connect().await;
    let hour = Duration::from_secs(3600);
    for (timeout, least, most) in [(None, USUAL, USUAL), (Some(hour), 3500, 3600), (Some(Duration::ZERO), 10, 10)] {
        for ending in ["one phase", "two phases", "rollback", "drop", "failure"] {
            let mut transaction = shop.begin(&connection, Begin { timeout, ..Begin::default() }).await;
            let other = shop.connect().await;
            if ending == "two phases" {
                let branch = MysqlBranch::start(&other, &transaction.xid("other").unwrap()).await.unwrap();
                transaction.enlist(&name("other"), branch).await.unwrap();
            }
            let (inside, case) = (idle(&connection).await, format!("{ending}, {timeout:?}"));
            assert!((least..=most).contains(&inside), "{inside} in {case}");
            update(&connection, 1).await.unwrap();
            match ending {
                "drop" => drop(transaction),
                "rollback" => transaction.rollback().await.unwrap(),
                "failure" => {
                    // It ends the branch, which then cannot be prepared.
                    let end = format!("XA END {}", literal(&transaction.xid("shop").unwrap()));
                    connection.lock().await.query_drop(end).await.unwrap();
                    transaction.commit().await.unwrap_err();
                }
                _ => drop(transaction.commit().await),
            }
            // Behind what a branch that is dropped has still to say.
            let begun = shop.begin(&connection, Begin::default()).await;
            assert_eq!(idle(&connection).await, USUAL, "{case}");
            begun.rollback().await.unwrap();
        }
    }
}

fn literal(xid: &tm::Xid) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (transaction, branch) = (hex(&xid.transaction.to_bytes()), hex(xid.branch.as_str().as_bytes()));
    format!("X'{transaction}',X'{branch}',{}", tm::FORMAT_ID)
}

/// The server rolls one of both back, whose branch can only be ended then.
async fn a_deadlock_leaves_sessions_as_they_were(shop: &Shop) {
    let (one, two) = (shop.connect().await, shop.connect().await);
    let hour = within(Duration::from_secs(3600));
    let (first, second) = (shop.begin(&one, hour).await, shop.begin(&two, hour).await);
    update(&one, 1).await.unwrap();
    update(&two, 2).await.unwrap();
    let (left, right) = tokio::join!(update(&one, 2), update(&two, 1));
    assert!(left.is_err() != right.is_err(), "{left:?} {right:?}");
    let (victim, survivor) = if left.is_err() { (first, second) } else { (second, first) };
    victim.commit().await.unwrap_err();
    survivor.commit().await.unwrap();
    assert_eq!((idle(&one).await, idle(&two).await), (USUAL, USUAL));
}

/// The row was locked for as long as the program was there.
async fn who_hangs_in_a_branch_loses_its_locks(shop: &Shop) {
    let (hung, other) = (shop.connect().await, shop.connect().await);
    let began = Instant::now();
    let transaction = shop.begin(&hung, within(SHORT)).await;
    update(&hung, 3).await.unwrap();
    other.lock().await.query_drop("SET SESSION innodb_lock_wait_timeout = 60").await.unwrap();
    update(&other, 3).await.unwrap();
    let waited = began.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(40)).contains(&waited), "{waited:?}");
    let failed = transaction.commit().await.unwrap_err();
    assert!(failed.to_string().contains("shop"), "{failed}");
    let items: u32 =
        other.lock().await.query_first("SELECT items FROM shop.stock WHERE id = 3").await.unwrap().unwrap();
    assert_eq!(items, 1, "the branch is rolled back");
}

/// As long as the session was there, recovery was told by MariaDB that it does not know the branch.
async fn who_hangs_with_a_prepared_branch_holds_up_nobody(shop: &Shop) {
    let (hung, other) = (shop.connect().await, shop.connect().await);
    let transaction = shop.begin(&hung, Begin { sharing: Sharing::Shared, ..within(SHORT) }).await;
    hung.lock().await.query_drop("INSERT INTO shop.stock VALUES (4, 0)").await.unwrap();
    let suspended = transaction.suspend().await.unwrap();
    let socket = shop.mariadb.socket().display().to_string();
    let options = OptsBuilder::default().user(Some("root")).socket(Some(socket));
    let manager = MysqlManager::new(name("shop"), options.into());
    let mut recovery = Recovery::new(&shop.coordinator, vec![Arc::new(manager)], Pace::default());
    let insert = "INSERT INTO shop.stock VALUES (4, 1)";
    other.lock().await.query_drop("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    let began = Instant::now();
    while other.lock().await.query_drop(insert).await.is_err() {
        recovery.run().await;
        assert!(began.elapsed() < Duration::from_secs(60), "the branch is still there");
    }
    drop(suspended);
}
