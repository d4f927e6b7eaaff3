//! Two programs in one transaction, with a server as their coordinator and PostgreSQL under both.

use std::sync::Arc;
use std::time::Duration;

use holdfast_tests::Launch;
use tm::{Begin, Coordinator, Outcome, PostgresBranch, RemoteOptions, Sharing, Transaction};
use tokio_postgres::{Client, NoTls};

use crate::bank::name;
use crate::databases::Postgres;

/// One program: its own connections to everybody.
struct Program {
    coordinator: Coordinator,
    client: Arc<Client>,
}

impl Program {
    async fn start(server: &str, postgres: &Postgres) -> Self {
        let coordinator = Coordinator::connect(RemoteOptions::new(server)).await.unwrap();
        let (client, connection) = tokio_postgres::connect(&postgres.connection(), NoTls).await.unwrap();
        tokio::spawn(connection);
        Self { coordinator, client: Arc::new(client) }
    }

    async fn insert(&self, transaction: &mut Transaction, branch: &str, row: &str) {
        let started = PostgresBranch::start(&self.client, transaction.xid(branch).unwrap()).await.unwrap();
        transaction.enlist(&name(branch), started).await.unwrap();
        self.client.batch_execute(&format!("INSERT INTO rows VALUES ('{row}')")).await.unwrap();
    }

    async fn rows(&self) -> i64 {
        self.client.query_one("SELECT count(*) FROM rows", &[]).await.unwrap().get(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_programs_commit_together_or_not_at_all() {
    let patience = Duration::from_secs(20);
    let postgres = Postgres::start(10);
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::new(&folder.path().join("data")).start();
    let address = server.resp().to_string();
    let (first, second) = (Program::start(&address, &postgres).await, Program::start(&address, &postgres).await);
    first.client.batch_execute("CREATE TABLE rows (id TEXT PRIMARY KEY)").await.unwrap();
    let begin = Begin { timeout: Some(Duration::from_secs(60)), sharing: Sharing::Shared };

    let mut superior = first.coordinator.begin(begin).unwrap();
    first.insert(&mut superior, "first", "a").await;
    let mut joined = second.coordinator.join(&superior.id().to_string()).unwrap();
    second.insert(&mut joined, "second", "b").await;
    let (above, below) = tokio::join!(superior.commit(), joined.prepare(patience));
    assert!(above.is_ok() && below.is_ok(), "{above:?} {below:?}");
    assert_eq!(second.rows().await, 2);

    // The second program fails, and the first learns it from the coordinator.
    let mut superior = first.coordinator.begin(begin).unwrap();
    first.insert(&mut superior, "first", "c").await;
    let mut joined = second.coordinator.join(&superior.id().to_string()).unwrap();
    second.insert(&mut joined, "second", "d").await;
    assert!(second.client.batch_execute("INSERT INTO rows VALUES ('d')").await.is_err());
    let (above, below) = tokio::join!(superior.commit(), joined.prepare(patience));
    assert_eq!(above.unwrap_err().outcome, Outcome::RolledBack);
    assert_eq!(below.unwrap_err().outcome, Outcome::RolledBack);

    // The first gives up while the second waits for it.
    let mut superior = first.coordinator.begin(begin).unwrap();
    first.insert(&mut superior, "first", "e").await;
    let mut joined = second.coordinator.join(&superior.id().to_string()).unwrap();
    second.insert(&mut joined, "second", "f").await;
    let (above, below) = tokio::join!(superior.rollback(), joined.prepare(patience));
    assert!(above.is_ok(), "{above:?}");
    assert_eq!(below.unwrap_err().outcome, Outcome::RolledBack);
    assert_eq!(second.rows().await, 2);
}

/// The owner that began it was gone then, and all was rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_goes_on_with_what_one_suspended_that_has_ended() {
    let postgres = Postgres::start(10);
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::new(&folder.path().join("data")).start();
    let address = server.resp().to_string();
    let (first, second) = (Program::start(&address, &postgres).await, Program::start(&address, &postgres).await);
    second.client.batch_execute("CREATE TABLE rows (id TEXT PRIMARY KEY)").await.unwrap();
    let begin = Begin { timeout: Some(Duration::from_secs(60)), sharing: Sharing::Shared };
    let mut transaction = first.coordinator.begin(begin).unwrap();
    first.insert(&mut transaction, "first", "a").await;
    let id = transaction.suspend().await.unwrap().id();
    // It ends as its program does, which says so to the coordinator.
    drop(first);
    let mut transaction = second.coordinator.resume(&id.to_string()).await.unwrap();
    let third = Program::start(&address, &postgres).await;
    let refused = third.coordinator.resume(&id.to_string()).await.map(drop).unwrap_err();
    assert!(refused.text.contains("another program has resumed"), "{refused}");
    second.insert(&mut transaction, "second", "b").await;
    transaction.commit().await.unwrap();
    let managers: Vec<Arc<dyn tm::ResourceManager>> =
        vec![Arc::new(tm::PostgresManager::new(name("first"), postgres.connection().parse().unwrap()))];
    let report = tm::Recovery::new(&second.coordinator, managers, tm::Pace::default()).run().await;
    assert_eq!(report.found.iter().map(|found| found.fate).collect::<Vec<_>>(), [tm::Fate::Committed]);
    assert_eq!(second.rows().await, 2);
}
