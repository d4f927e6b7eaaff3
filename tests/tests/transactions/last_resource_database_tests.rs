//! PostgreSQL as the last resource, with roles, settings, copies and crowds of all kinds: whoever asks it gets the one right answer,
//! or none. One test, because a server takes seconds to start.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast::Options;
use tempfile::TempDir;
use tm::{
    Answer, Begin, BoxFuture, Branch, Coordinator, Decisions, Embedded, InDoubt, LastResource, Pace, PostgresBranch,
    PostgresLastResource, PostgresManager, Recovery, ResourceManager, TransactionId, Verdict, XaCode, Xid,
};
use tokio_postgres::Client;

use crate::bank::name;
use crate::databases::Postgres;

struct Setting {
    postgres: Postgres,
    decisions: Embedded,
    last: PostgresLastResource,
    client: Client,
    _folder: TempDir,
}

/// Somebody who has a branch prepared, and what he was told about it.
struct Prepared {
    name: tm::BranchName,
    xid: Xid,
    told: Mutex<Vec<Verdict>>,
}

impl Prepared {
    fn tell(&self, verdict: Verdict) -> BoxFuture<'_, Answer> {
        self.told.lock().unwrap().push(verdict);
        Box::pin(async { XaCode::Ok.into() })
    }
}

impl ResourceManager for Prepared {
    fn name(&self) -> &tm::BranchName {
        &self.name
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        Box::pin(async { Ok(vec![self.xid.clone()].into()) })
    }

    fn commit<'a>(&'a self, _xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.tell(Verdict::Commit)
    }

    fn rollback<'a>(&'a self, _xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.tell(Verdict::Rollback)
    }
}

impl Setting {
    fn manager(&self, with: &str) -> PostgresManager {
        let config = format!("{} {with}", self.postgres.connection()).parse().unwrap();
        PostgresManager::new(name("postgres"), config)
    }

    fn of_database(&self, database: &str) -> PostgresManager {
        let config = self.postgres.connection().replace("dbname=postgres", &format!("dbname={database}"));
        PostgresManager::new(name(database), config.parse().unwrap())
    }

    fn begun(&self) -> TransactionId {
        let id = self.decisions.begin(Begin::default()).unwrap();
        TransactionId { last_resource: Some(self.last.id()), ..id }
    }

    fn table(&self) -> String {
        format!("holdfast.decisions_{:016x}", self.last.id().0)
    }

    /// What a program does last.
    fn row(&self, id: TransactionId) -> String {
        format!("INSERT INTO {} (id, committed, branches) VALUES ('{id}', true, 'other')", self.table())
    }

    async fn run(&self, statements: &str) {
        self.client.batch_execute(statements).await.unwrap();
    }

    async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Until a query says that many.
    async fn until(&self, query: &str, number: i64) {
        for _ in 0..1000 {
            if self.number(query).await == number {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{query} does not become {number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_a_last_resource_gets_the_right_answer_or_none() {
    let postgres = Postgres::start(0);
    let folder = tempfile::tempdir().unwrap();
    let decisions = Embedded::open(folder.path(), Options::default()).unwrap();
    let manager = PostgresManager::new(name("postgres"), postgres.connection().parse().unwrap());
    let last = PostgresLastResource::open(&manager).await.unwrap();
    let client = manager.connect().await.unwrap();
    let setting = Setting { postgres, decisions, last, client, _folder: folder };
    those_who_open_it_at_once_have_the_same(&setting).await;
    defaults_of_a_role_are_in_nobodys_way(&setting).await;
    who_gave_up_leaves_nobody_waiting_in_the_database(&setting).await;
    a_commit_that_no_standby_has_is_told_to_nobody(&setting).await;
    a_copy_that_says_something_else_is_not_believed(&setting).await;
    what_the_database_refuses_is_explained(&setting).await;
}

/// Two tables would be two last resources, and a sweep sees to one.
async fn those_who_open_it_at_once_have_the_same(setting: &Setting) {
    for number in 0..5 {
        let database = format!("opened{number}");
        setting.run(&format!("CREATE DATABASE {database}")).await;
        let manager = setting.of_database(&database);
        assert!(manager.check().await.concat().contains("max_prepared_transactions is 0"));
        if number % 2 == 0 {
            manager.connect().await.unwrap().batch_execute("CREATE SCHEMA holdfast").await.unwrap();
        }
        let opening = [0; 6].map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move { PostgresLastResource::open(&manager).await.unwrap().id() })
        });
        let mut ids = Vec::new();
        for opening in opening {
            ids.push(opening.await.unwrap());
        }
        assert!(ids.windows(2).all(|two| two[0] == two[1]), "{ids:?}");
        let query = "SELECT count(*) FROM pg_class WHERE relname ~ '^decisions_[0-9a-f]{16}$'";
        let tables = manager.connect().await.unwrap().query_one(query, &[]).await.unwrap();
        assert_eq!(tables.get::<_, i64>(0), 1);
    }
}

/// The removal of old decisions was refused then, and so was every answer.
async fn defaults_of_a_role_are_in_nobodys_way(setting: &Setting) {
    for default in ["default_transaction_read_only=on", "default_transaction_isolation=serializable"] {
        let manager = setting.manager(&format!("options='-c {default}'"));
        let last = Arc::new(PostgresLastResource::open(&manager).await.unwrap());
        let old = format!(
            "INSERT INTO {} SELECT 'old' || number, false, '', now() - interval '3 days', now() - interval '3 days'
                 FROM generate_series(1, 20000) number",
            setting.table()
        );
        setting.run(&old).await;
        let asking: Vec<_> = (0..6)
            .map(|_| {
                let (last, id) = (Arc::clone(&last), setting.begun());
                tokio::spawn(async move { last.settle(&[id]).await })
            })
            .collect();
        for asking in asking {
            assert_eq!(asking.await.unwrap(), Ok(vec![false]), "{default}");
        }
        let left = setting.number(&format!("SELECT count(*) FROM {} WHERE id LIKE 'old%'", setting.table())).await;
        assert_eq!(left, 0, "{default}");
    }
}

/// PostgreSQL does not notice that a client is gone while it waits for a lock. Each round of a recovery left a connection behind.
async fn who_gave_up_leaves_nobody_waiting_in_the_database(setting: &Setting) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let id = setting.begun();
    let committing = setting.manager("").connect().await.unwrap();
    committing.batch_execute(&format!("BEGIN; {}", setting.row(id))).await.unwrap();
    {
        let ids = [id];
        let mut asking = setting.last.settle(&ids);
        tokio::select! {
            answer = &mut asking => panic!("{answer:?}"),
            () = setting.until(waiting, 1) => {}
        }
    }
    setting.until(waiting, 0).await;
    committing.batch_execute("COMMIT").await.unwrap();
    assert_eq!(setting.last.settle(&[id]).await, Ok(vec![true]));
}

/// A commit is visible when its wait for a synchronous standby was ended by a kill. Who committed other branches because of it
/// lost it with the machine.
async fn a_commit_that_no_standby_has_is_told_to_nobody(setting: &Setting) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let shown = "SELECT (current_setting('synchronous_standby_names') = 'nobody')::int::bigint";
    setting.client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await.unwrap();
    setting.run("SELECT pg_reload_conf()").await;
    setting.until(shown, 1).await;
    let id = setting.begun();
    let committing = setting.manager("").connect().await.unwrap();
    let statement = format!("BEGIN; {}; COMMIT", setting.row(id));
    let committing = tokio::spawn(async move { committing.batch_execute(&statement).await });
    setting.until(waiting, 1).await;
    setting.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").await;
    committing.await.unwrap().unwrap_err();
    let ids = [id];
    let mut asking = setting.last.settle(&ids);
    tokio::select! {
        answer = &mut asking => panic!("{answer:?}"),
        () = setting.until(waiting, 1) => {}
    }
    setting.client.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await.unwrap();
    setting.run("SELECT pg_reload_conf()").await;
    assert_eq!(asking.await, Ok(vec![true]));
}

/// It was asked first, said that nothing was committed, and the branch was rolled back.
async fn a_copy_that_says_something_else_is_not_believed(setting: &Setting) {
    setting.run("CREATE DATABASE copy").await;
    let copy = setting.of_database("copy");
    let table = format!(
        "CREATE SCHEMA holdfast; CREATE TABLE {} (id text PRIMARY KEY, committed boolean NOT NULL, branches text NOT NULL, \
         began timestamptz NOT NULL DEFAULT now(), decided timestamptz NOT NULL DEFAULT now(), deadline timestamptz)",
        setting.table()
    );
    copy.connect().await.unwrap().batch_execute(&table).await.unwrap();
    let coordinator = Coordinator::embedded(setting.decisions.clone());
    for is_committed in [true, false] {
        let id = setting.begun();
        if is_committed {
            setting.run(&setting.row(id)).await;
        }
        setting.decisions.abort(id).unwrap();
        let xid = Xid { transaction: id, branch: name("other") };
        let other = Arc::new(Prepared { name: name("other"), xid, told: Mutex::default() });
        let managers: Vec<Arc<dyn ResourceManager>> =
            vec![Arc::new(copy.clone()), Arc::new(setting.manager("")), Arc::clone(&other) as _];
        let report = Recovery::new(&coordinator, managers, Pace::default()).run().await;
        let told = std::mem::take(&mut *other.told.lock().unwrap());
        if is_committed {
            assert_eq!(told, []);
            let why = &report.down.first().unwrap().reason;
            assert!(why.contains("copy and postgres do not agree about 1 transactions"), "{why}");
        } else {
            assert_eq!(told, [Verdict::Rollback]);
        }
    }
}

async fn what_the_database_refuses_is_explained(setting: &Setting) {
    let elsewhere = setting.of_database("template1");
    let read_only = setting.manager("options='-c default_transaction_read_only=on'");
    for (manager, word) in [(elsewhere, "of another database"), (read_only, "is read only: let another one decide")] {
        let xid = Xid { transaction: setting.begun(), branch: name("postgres") };
        let client = Arc::new(manager.connect().await.unwrap());
        let answer = PostgresBranch::start(&client, xid).await.unwrap().commit_last(&[]).await;
        assert!(answer.code.is_rollback() && answer.reason.contains(word), "{answer:?}");
    }
}
